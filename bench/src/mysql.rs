//! MySQL's programs, which cannot be installed beside MariaDB's: a tree of their own with Debian sid's packages, entered by `chroot`.

use crate::systems::have;
use crate::tool::{self, command};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use trireme_cluster::Cancel;

/// Where the tree is kept, so that it is made once.
pub const DEFAULT_ROOT: &str = "/var/cache/trireme-bench/mysql";
/// Debian has MySQL in this suite only.
const SUITE: &str = "sid";
const PACKAGE: &str = "mysql-server-core";
const MIRROR: &str = "http://deb.debian.org/debian";
/// Download and unpacking, also where both are slow.
const LIMIT: Duration = Duration::from_secs(1200);
/// In the tree.
pub const SERVER: &str = "/usr/sbin/mysqld";
const PLUGIN: &str = "usr/lib/mysql/plugin/group_replication.so";
/// Where the directory with the servers' data is seen in the tree.
pub const DATA: &str = "/mnt";
/// `nobody`, of the machine and of the tree: the server refuses to be root.
pub const USER: u32 = 65534;

/// The tree, or the reason why there is none.
pub fn tree(root: &Path) -> Result<PathBuf, String> {
    if !is_root() {
        return Err("MySQL's programs live in a tree of their own, which only root can enter".to_owned());
    }
    if is_whole(root) {
        return Ok(root.to_owned());
    }
    Err(format!(
        "MySQL's packages cannot be installed beside MariaDB's, and {} holds no tree of their own: name a system of MySQL with --systems and it is made",
        root.display()
    ))
}

/// The tree; made where it is missing, which takes a minute or two and 500 MB. **Errors** with the last words of what failed.
pub fn make(root: &Path, cancel: &Cancel, say: &mut dyn FnMut(&str)) -> Result<PathBuf, String> {
    if is_whole(root) || !is_root() {
        return tree(root);
    }
    if !have("debootstrap") {
        return Err("a tree with MySQL's packages needs debootstrap: apt-get install debootstrap".to_owned());
    }
    if root.exists() {
        return Err(format!(
            "{} holds something else than a tree with MySQL: remove it, or name another --mysql-root",
            root.display()
        ));
    }
    let above = root.parent().ok_or("--mysql-root / is no place for a tree")?;
    trireme_private::own_dir(above)?;
    // Under another name until it is whole: a run that is interrupted leaves no half of one.
    let unfinished = root.with_extension("unfinished");
    remove(&unfinished)?;
    say(&format!("making {} with {PACKAGE} of Debian {SUITE}; it is kept", root.display()));
    let mut debootstrap = command("debootstrap");
    debootstrap
        .args(["--variant=minbase", &format!("--include={PACKAGE}"), SUITE])
        .arg(&unfinished)
        .arg(mirror(&apt_sources()));
    // Packages are fetched by a user of their own.
    open(above)?;
    let made = tool::run(debootstrap, LIMIT, cancel);
    let log = std::fs::read_to_string(unfinished.join("debootstrap/debootstrap.log")).unwrap_or_default();
    let outcome = made.map_err(|error| match log.lines().rev().find(|line| !line.trim().is_empty()) {
        Some(line) if !cancel.is_set() => format!("debootstrap failed: {error}; its log ends with: {line}"),
        _ => error,
    });
    let outcome = outcome.and_then(|_| match is_whole(&unfinished) {
        true => std::fs::rename(&unfinished, root).map_err(|e| format!("{}: {e}", root.display())),
        false => Err(format!("{PACKAGE} of Debian {SUITE} has no Group Replication")),
    });
    if outcome.is_err() {
        remove(&unfinished)?;
    }
    outcome.map(|()| root.to_owned())
}

/// A command in the tree, where `data` is seen as [`DATA`]. The mounts are of its process and go with it.
pub fn inside(tree: &Path, data: &Path) -> Command {
    const SCRIPT: &str = "tree=$0; mount --rbind \"$1\" \"$tree/mnt\" && mount -t proc proc \"$tree/proc\" && shift && exec chroot --userspec=65534:65534 \"$tree\" \"$@\"";
    let mut inside = command("unshare");
    inside.args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT]).arg(tree).arg(data);
    inside
}

/// The server's own words on what it is.
pub fn version(tree: &Path) -> Option<String> {
    let mut chroot = command("chroot");
    chroot.arg(tree).args([SERVER, "--version"]);
    let said = tool::run(chroot, Duration::from_secs(10), &Cancel::default()).ok()?;
    said.lines().next().map(|line| line.trim().to_owned())
}

fn is_root() -> bool {
    // SAFETY: asks who we are.
    unsafe { libc::geteuid() == 0 }
}

fn is_whole(root: &Path) -> bool {
    root.join(SERVER.trim_start_matches('/')).is_file() && root.join(PLUGIN).is_file()
}

fn open(dir: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o711)).map_err(|e| format!("{}: {e}", dir.display()))
}

/// Removes a tree in which nothing is mounted any more.
fn remove(tree: &Path) -> Result<(), String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for mounted in mounts.lines().rev().filter_map(|line| line.split(' ').nth(1)) {
        if Path::new(mounted).starts_with(tree) {
            let mut umount = command("umount");
            umount.arg("--lazy").arg(mounted);
            tool::run(umount, Duration::from_secs(10), &Cancel::default())?;
        }
    }
    match std::fs::remove_dir_all(tree) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {error}", tree.display())),
        _ => Ok(()),
    }
}

/// All that apt knows of where packages are.
fn apt_sources() -> String {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    let mut more: Vec<PathBuf> = std::fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    more.sort();
    files.extend(more);
    files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).collect::<Vec<_>>().join("\n")
}

/// The first mirror of Debian itself in apt's sources, of either format; else the usual one.
fn mirror(sources: &str) -> String {
    let lines = sources.lines().filter(|line| !line.trim_start().starts_with('#'));
    let words =
        lines.filter(|line| line.starts_with("deb ") || line.starts_with("URIs:")).flat_map(str::split_whitespace);
    let mut mirrors = words.filter(|word| word.starts_with("http") && word.trim_end_matches('/').ends_with("/debian"));
    mirrors.next().unwrap_or(MIRROR).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_apts() {
        assert_eq!(
            mirror("# deb http://old/debian x main\ndeb [a=b] http://one/debian bookworm main"),
            "http://one/debian"
        );
        let both = "URIs: http://two/debian-security\nURIs: http://two/debian/\nSuites: bookworm";
        assert_eq!(mirror(both), "http://two/debian/");
        assert_eq!(mirror("deb https://packages.example.org/apt stable main"), MIRROR);
    }

    #[test]
    fn a_tree_that_is_none_is_no_tree() {
        let dir = trireme_private::fresh_dir(&std::env::temp_dir(), "trireme-mysql-root").unwrap();
        assert!(tree(&dir).is_err());
        let mut said = Vec::new();
        let error = make(&dir, &Cancel::default(), &mut |line| said.push(line.to_owned())).unwrap_err();
        assert!(!error.is_empty() && said.is_empty(), "nothing is made over what is there: {error} {said:?}");
        std::fs::remove_dir(&dir).unwrap();
    }
}
