//! The empty data directory that every new node starts from: made once per server version, then copied, because
//! `mariadb-install-db` takes longer than a whole cluster's start.

use crate::config::SST_USER;
use crate::error::{During, Error, Result};
use crate::process::{have, run, search_path};
use crate::userns;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Copies the template to `target`, which must not exist yet or be empty; makes the template first if need be. **Returns** the password
/// of the account for state transfers.
pub fn copy_to(target: &Path, user: Option<&str>, say: &mut dyn FnMut(&str)) -> Result<String> {
    let template = ensure(user, say)?;
    let password = std::fs::read_to_string(password_file(&template))
        .during(|| format!("cannot read {}", password_file(&template).display()))?;
    let mut copy = Command::new("cp");
    copy.args(["-a", "-T", "--reflink=auto"]);
    if user.is_none() {
        copy.arg("--no-preserve=ownership"); // what one makes is one's own
    }
    run(copy.arg(data(&template)).arg(target))?;
    Ok(password)
}

fn data(template: &Path) -> PathBuf {
    template.join("data")
}

fn password_file(template: &Path) -> PathBuf {
    template.join("sst-password")
}

/// Lets the servers' user, and nobody else, reach what it owns below `dir`, which is the caller's own.
pub fn let_in(dir: &Path, user: &str) -> Result<()> {
    let during = || format!("cannot open {} to `{user}`", dir.display());
    let account = nix::unistd::User::from_name(user).ok().flatten();
    let group = account.map(|account| account.gid.as_raw());
    std::os::unix::fs::chown(dir, None, group).during(during)?;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o710)).during(during)
}

fn ensure(user: Option<&str>, say: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    for program in ["mariadbd", "mariadb-install-db"] {
        if !have(program) {
            return Err(Error::Missing {
                what: program.to_owned(),
                advice: "install the package mariadb-server, for instance with `scripts/install-deps.sh`".to_owned(),
            });
        }
    }
    let version = run(as_user(user, "mariadbd").args(["--no-defaults", "--version"]))?;
    let version: String = String::from_utf8_lossy(&version)
        .split_whitespace()
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        .unwrap_or("unknown")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' })
        .collect();
    let uid = uid_of(user)?;
    // The last number changes with the contents below, so that an old template is never taken for a new one.
    let owner = userns::outer().map_or(uid, |(uid, _)| uid);
    let template = PathBuf::from(format!("/var/tmp/trireme-template-{owner}-{version}-2"));
    once(&template, uid, |new| {
        say("preparing an empty data directory (once per server version)");
        make(new, user, uid)
    })?;
    Ok(template)
}

/// Makes the directory `template`, which belongs to `uid`, unless it is there. Several threads of this process, and other processes, may ask for it at
/// the same time. `make` is given another name, so that nobody sees a half of it.
fn once(template: &Path, uid: u32, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    // The other name is that of the process: its threads would get in each other's way.
    static MAKING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Ok(meta) = std::fs::symlink_metadata(template) {
        if meta.is_dir() && meta.uid() == uid {
            return Ok(());
        }
        return Err(Error::BadSpec(format!("{} belongs to somebody else: remove it", template.display())));
    }
    let new = PathBuf::from(format!("{}.{}", template.display(), std::process::id()));
    let made = make(&new);
    if made.is_err() {
        let _ = std::fs::remove_dir_all(&new);
        return made;
    }
    match std::fs::rename(&new, template) {
        Ok(()) => Ok(()),
        // Another process was faster; its directory is as good.
        Err(_) if template.is_dir() => {
            let _ = std::fs::remove_dir_all(&new);
            Ok(())
        }
        Err(error) => Err(Error::Io { what: format!("cannot create {}", template.display()), error }),
    }
}

fn make(dir: &Path, user: Option<&str>, uid: u32) -> Result<()> {
    let data = data(dir);
    for new in [dir, &data] {
        std::fs::DirBuilder::new().mode(0o700).create(new).during(|| format!("cannot create {}", new.display()))?;
    }
    let password = draw(16).during(|| "cannot draw a password".to_owned())?;
    trireme_private::write_new(&password_file(dir), password.as_bytes())
        .during(|| format!("cannot write {}", password_file(dir).display()))?;
    // `root` logs in without a password over the socket, which lies in a directory of ours; over TCP only the
    // account of the state transfer exists.
    let sql = dir.join("accounts.sql");
    trireme_private::write_new(
        &sql,
        format!(
            "FLUSH PRIVILEGES;\nCREATE USER {SST_USER}@'%' IDENTIFIED BY '{password}';\n\
             GRANT ALL ON *.* TO {SST_USER}@'%' WITH GRANT OPTION;\n\
             CREATE USER {SST_USER}@localhost IDENTIFIED BY '{password}';\n\
             GRANT ALL ON *.* TO {SST_USER}@localhost WITH GRANT OPTION;\n"
        )
        .as_bytes(),
    )
    .during(|| format!("cannot write {}", sql.display()))?;
    for path in [dir, &data, &password_file(dir), &sql] {
        std::os::unix::fs::chown(path, Some(uid), None).during(|| format!("cannot chown {}", path.display()))?;
    }
    run(as_user(user, "mariadb-install-db").args([
        "--no-defaults".to_owned(),
        // Also on a machine whose own name cannot be looked up: nobody here is called by a host's name.
        "--force".to_owned(),
        format!("--datadir={}", data.display()),
        format!("--extra-file={}", sql.display()),
        "--auth-root-authentication-method=normal".to_owned(),
        "--skip-test-db".to_owned(),
        "--skip-name-resolve".to_owned(),
        "--innodb-log-file-size=32M".to_owned(),
    ]))?;
    std::fs::remove_file(&sql).during(|| format!("cannot remove {}", sql.display()))?;
    if !data.join("mysql").is_dir() {
        return Err(Error::BadSpec("mariadb-install-db left no system tables".to_owned()));
    }
    Ok(())
}

/// So many random bytes, as hexadecimal digits.
pub fn draw(bytes: usize) -> std::io::Result<String> {
    let mut random = vec![0; bytes];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn as_user(user: Option<&str>, program: &str) -> Command {
    let mut command = match user {
        Some(user) => {
            let mut command = Command::new("setpriv");
            command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups", program]);
            command
        }
        None => {
            let words: Vec<String> = userns::as_oneself().into_iter().chain([program.to_owned()]).collect();
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            command
        }
    };
    command.env("PATH", search_path()).current_dir("/");
    command
}

/// The number of a user name; our own without a name.
pub fn uid_of(user: Option<&str>) -> Result<u32> {
    let Some(name) = user else { return Ok(nix::unistd::geteuid().as_raw()) };
    match nix::unistd::User::from_name(name) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) | Err(_) => Err(Error::Missing {
            what: format!("the user `{name}` (servers refuse to run as root)"),
            advice: "install the package mariadb-server, which creates it".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn threads_that_need_it_at_the_same_time_make_it_once() {
        const THREADS: usize = 8;
        let dir = trireme_private::fresh_dir(&std::env::temp_dir(), "trireme-template").unwrap();
        let (template, uid) = (dir.join("template"), nix::unistd::geteuid().as_raw());
        let (made, begin) = (AtomicU32::new(0), Barrier::new(THREADS));
        let make = |new: &Path| {
            made.fetch_add(1, Ordering::Relaxed);
            std::fs::create_dir(new).during(|| "cannot create it".to_owned())?;
            std::fs::write(new.join("whole"), "").during(|| "cannot write".to_owned())
        };
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    begin.wait();
                    once(&template, uid, make).unwrap();
                    assert!(template.join("whole").exists());
                });
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_directory_that_could_not_be_made_is_no_obstacle_for_the_next_one() {
        let dir = trireme_private::fresh_dir(&std::env::temp_dir(), "trireme-template").unwrap();
        let (template, uid) = (dir.join("template"), nix::unistd::geteuid().as_raw());
        let create = |new: &Path| std::fs::create_dir(new).during(|| "cannot create it".to_owned());
        let half = |new: &Path| create(new).and(Err(Error::BadSpec("half of it".to_owned())));
        assert!(once(&template, uid, half).is_err() && !template.exists());
        once(&template, uid, create).unwrap();
        assert!(template.is_dir());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
