//! Directories and files that other local users can neither read nor have prepared.
//!
//! A program that writes below `/tmp` under a name that can be guessed writes where somebody else has put a link. A program
//! that reads a file out of a directory that others can change runs what they wrote. All directories that this project makes
//! for itself are made or checked here.
#![deny(unsafe_code)]

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Nobody but the owner.
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Bits with which others, or the group, can change something.
const CHANGED_BY_OTHERS: u32 = 0o022;
/// Bits with which anybody but the owner can do anything.
const NOT_THE_OWNER: u32 = 0o077;
const STICKY: u32 = 0o1000;
const READ_BY_OTHERS: &str = "can be read by other users: close it with `chmod 0600";
/// Files that this crate reads are small; a larger one is none of ours.
const READ_MAX: u64 = 4 << 20;

/// A new directory below `base`, for the caller alone. Its name begins with `prefix`. An existing one is never taken: it may be
/// somebody's trap.
pub fn fresh_dir(base: &Path, prefix: &str) -> io::Result<PathBuf> {
    for attempt in 0..1000 {
        let dir = base.join(format!("{prefix}-{}-{attempt}", std::process::id()));
        match DirBuilder::new().mode(DIR_MODE).create(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("no free directory in {}", base.display())))
}

/// Makes `dir`, and what is missing above it, for the caller alone; or accepts an existing one that [`check_dir`] accepts. An
/// existing one that others may read is closed to them if it is empty and refused otherwise.
///
/// **Errors:** a sentence for people that names the directory.
pub fn own_dir(dir: &Path) -> Result<(), String> {
    if let Some(above) = dir.parent() {
        DirBuilder::new().mode(DIR_MODE).recursive(true).create(above).map_err(|e| cannot("create", dir, &e))?;
    }
    make_dir(dir)?;
    check_dir(dir)?;
    let mode = look(dir)?.mode();
    if mode & 0o007 != 0 {
        let mut entries = std::fs::read_dir(dir).map_err(|e| cannot("list", dir, &e))?;
        if entries.next().is_some() {
            return Err(format!(
                "other users can read {} (mode {:04o}), and it is not empty: close it with `chmod 0700 {0}`, or choose another \
                 directory",
                dir.display(),
                mode & 0o7777
            ));
        }
        let closed = std::fs::Permissions::from_mode(DIR_MODE);
        std::fs::set_permissions(dir, closed).map_err(|e| cannot("close", dir, &e))?;
    }
    Ok(())
}

/// `false`: something has that name already.
fn make_dir(dir: &Path) -> Result<bool, String> {
    match DirBuilder::new().mode(DIR_MODE).create(dir) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(cannot("create", dir, &error)),
    }
}

/// May what lies in `dir` be believed? It must be a directory and not a link, belong to the caller, and nobody else may be able to
/// put something into it or to replace it.
pub fn check_dir(dir: &Path) -> Result<(), String> {
    let meta = look(dir)?;
    if !meta.is_dir() {
        return Err(format!("{} is not a directory (a link is not followed)", dir.display()));
    }
    check_owner(dir, &meta)?;
    if meta.mode() & CHANGED_BY_OTHERS != 0 {
        return Err(format!(
            "other users can write to {} (mode {:04o}): remove it, or choose another directory",
            dir.display(),
            meta.mode() & 0o7777
        ));
    }
    let full = std::path::absolute(dir).map_err(|e| cannot("find", dir, &e))?;
    let nested = in_user_namespace();
    for above in full.ancestors().skip(1) {
        // Followed: whoever can change a link on the way owns a directory on the way.
        let meta = std::fs::metadata(above).map_err(|e| cannot("look at", above, &e))?;
        let trusted = meta.uid() == 0 || meta.uid() == euid() || (nested && meta.uid() == OVERFLOW_UID);
        if !trusted {
            return Err(format!(
                "{} lies below {}, which belongs to user {}: that user could replace it; choose another directory",
                dir.display(),
                above.display(),
                meta.uid()
            ));
        }
        if meta.mode() & 0o002 != 0 && meta.mode() & STICKY == 0 {
            return Err(format!(
                "{} lies below {}, in which everybody can rename files: choose another directory",
                dir.display(),
                above.display()
            ));
        }
    }
    Ok(())
}

/// The contents of a file that the caller owns and nobody else can change. `Ok(None)`: there is none.
pub fn read_own(path: &Path) -> Result<Option<Vec<u8>>, String> {
    read(path, Whose::Ours, CHANGED_BY_OTHERS, "can be changed by other users: close it with `chmod 0600")
}

/// The same for what nobody else may know.
pub fn read_secret(path: &Path) -> Result<Option<Vec<u8>>, String> {
    read(path, Whose::Ours, NOT_THE_OWNER, READ_BY_OTHERS)
}

/// The same for an administrator's command: root may read it whoever the owner is. The file that is made of it is given to that one: see [`replace_as`].
pub fn read_secret_of_any(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let whose = if euid() == 0 { Whose::Anybodys } else { Whose::Ours };
    read(path, whose, NOT_THE_OWNER, READ_BY_OTHERS)
}

/// The owner that a file may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Ours,
    Anybodys,
}

fn read(path: &Path, whose: Whose, refused: u32, why: &str) -> Result<Option<Vec<u8>>, String> {
    // Not blocking, in case it is a pipe.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            return Err(format!("{} is a link, which is not followed: name the file itself", path.display()));
        }
        Err(error) => return Err(cannot("read", path, &error)),
    };
    let meta = file.metadata().map_err(|e| cannot("look at", path, &e))?;
    if !meta.is_file() {
        return Err(format!("{} is not a file", path.display()));
    }
    if whose == Whose::Ours {
        check_owner(path, &meta)?;
    }
    if meta.mode() & refused != 0 {
        return Err(format!("{} (mode {:04o}) {why} {0}`", path.display(), meta.mode() & 0o7777));
    }
    let mut bytes = Vec::new();
    file.take(READ_MAX + 1).read_to_end(&mut bytes).map_err(|e| cannot("read", path, &e))?;
    if bytes.len() as u64 > READ_MAX {
        return Err(format!("{} is larger than {READ_MAX} bytes", path.display()));
    }
    Ok(Some(bytes))
}

/// Makes a file that only its owner can read; fails when there is one already.
pub fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_new_with(path, bytes, FILE_MODE, None)
}

fn write_new_with(path: &Path, bytes: &[u8], mode: u32, owner: Option<(u32, u32)>) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    // The mode holds whatever the process's mask says.
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    if let Some((user, group)) = owner {
        std::os::unix::fs::fchown(&file, Some(user), Some(group))?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}

/// Replaces a file as a whole, with the given mode: whoever reads it sees the old contents or the new ones.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    replace_with(path, bytes, mode, None)
}

/// The same for an administrator's command: if root calls it, the new file belongs to the owner of `like`.
pub fn replace_as(path: &Path, bytes: &[u8], mode: u32, like: &Path) -> io::Result<()> {
    replace_with(path, bytes, mode, owner_to_give(like)?)
}

/// Makes a directory for the owner of `like` alone, if root calls this; otherwise for the caller alone. One that is there has to be that one's.
///
/// **Errors:** a sentence for people that names the directory.
pub fn own_dir_as(dir: &Path, like: &Path) -> Result<(), String> {
    let owner = owner_to_give(like).map_err(|e| cannot("look at", like, &e))?;
    if make_dir(dir)? {
        let Some((user, group)) = owner else { return Ok(()) };
        return std::os::unix::fs::lchown(dir, Some(user), Some(group)).map_err(|e| cannot("give away", dir, &e));
    }
    let meta = look(dir)?;
    let wanted = owner.map_or(euid(), |(user, _)| user);
    if meta.uid() != wanted {
        return Err(format!(
            "{} belongs to user {}, and what comes into it is user {wanted}'s: give it away with `chown {wanted} {0}`, or choose another one",
            dir.display(),
            meta.uid()
        ));
    }
    Ok(())
}

/// User and group, if this process can give them something.
fn owner_to_give(like: &Path) -> io::Result<Option<(u32, u32)>> {
    let meta = std::fs::symlink_metadata(like)?;
    Ok((euid() == 0).then_some((meta.uid(), meta.gid())))
}

fn replace_with(path: &Path, bytes: &[u8], mode: u32, owner: Option<(u32, u32)>) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    write_new_with(&new, bytes, mode, owner)?;
    std::fs::rename(&new, path)
}

/// Opens a file for appending or locking, made if need be; never through a link.
pub fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options.create(true).mode(FILE_MODE).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// The mode of a file that somebody else can use: another user, or a group that is not the caller's own. (The caller's own group may: that is how
/// a key that belongs to root is given to a server.) `None` when nobody can, or it is not there.
pub fn used_by_others(path: &Path) -> Option<u32> {
    let meta = std::fs::metadata(path).ok()?;
    let own_group = meta.gid() == egid();
    let closed = if own_group { 0o007 | CHANGED_BY_OTHERS } else { NOT_THE_OWNER };
    (meta.mode() & closed != 0).then_some(meta.mode() & 0o7777)
}

fn look(path: &Path) -> Result<Metadata, String> {
    std::fs::symlink_metadata(path).map_err(|e| cannot("look at", path, &e))
}

fn check_owner(path: &Path, meta: &Metadata) -> Result<(), String> {
    if meta.uid() == euid() {
        return Ok(());
    }
    Err(format!(
        "{} belongs to user {}, and this process is user {}: run it as that user, or choose another place",
        path.display(),
        meta.uid(),
        euid()
    ))
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}

/// The process's effective user. Not from `/proc/self`: of a server that gave up being root that belongs to root.
#[allow(unsafe_code)] // no safe wrapper in the standard library
fn euid() -> u32 {
    // SAFETY: takes nothing, touches no memory and cannot fail.
    unsafe { libc::geteuid() }
}

/// The kernel shows this inside a user namespace for everybody who is not mapped.
const OVERFLOW_UID: u32 = 65534;

#[allow(unsafe_code)] // no safe wrapper in the standard library
fn egid() -> u32 {
    // SAFETY: takes and gives integers, cannot fail.
    unsafe { libc::getegid() }
}

fn in_user_namespace() -> bool {
    let whole = |map: String| map.split_whitespace().eq(["0", "0", "4294967295"]);
    !std::fs::read_to_string("/proc/self/uid_map").is_ok_and(whole)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory of the test's own, removed at its end.
    struct Place(PathBuf);

    impl Place {
        fn new() -> Place {
            Place(fresh_dir(&std::env::temp_dir(), "trireme-private-test").unwrap())
        }
        fn at(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    /// Is this root, who can make something another user's? Says so if not.
    fn may_give_away() -> bool {
        let may = euid() == 0 && !in_user_namespace();
        if !may {
            println!("skipped: needs root");
        }
        may
    }

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_is_made_is_for_its_owner_alone() {
        let place = Place::new();
        assert_eq!(mode(&place.0), 0o700);
        own_dir(&place.at("a/b")).unwrap();
        assert_eq!((mode(&place.at("a")), mode(&place.at("a/b"))), (0o700, 0o700));
        write_new(&place.at("key"), b"k").unwrap();
        assert_eq!(mode(&place.at("key")), 0o600);
        replace(&place.at("key"), b"l", 0o600).unwrap();
        assert_eq!((mode(&place.at("key")), read_secret(&place.at("key")).unwrap()), (0o600, Some(b"l".to_vec())));
    }

    #[test]
    fn a_directory_that_is_there_is_never_taken_for_a_fresh_one() {
        let place = Place::new();
        let first = fresh_dir(&place.0, "x").unwrap();
        let second = fresh_dir(&place.0, "x").unwrap();
        assert_ne!(first, second);
    }

    #[test]
    fn links_are_not_followed() {
        let place = Place::new();
        own_dir(&place.at("real")).unwrap();
        symlink(place.at("real"), place.at("link")).unwrap();
        assert!(own_dir(&place.at("link")).unwrap_err().contains("is not a directory"));
        std::fs::write(place.at("file"), "x").unwrap();
        symlink(place.at("file"), place.at("filelink")).unwrap();
        assert!(read_own(&place.at("filelink")).unwrap_err().contains("link"));
        assert!(open_own(&place.at("filelink"), OpenOptions::new().append(true)).is_err());
        symlink(place.at("nothing"), place.at("new.new")).unwrap();
        replace(&place.at("new"), b"x", 0o644).unwrap();
        assert_eq!(mode(&place.at("new")), 0o644);
        assert!(!place.at("nothing").exists());
    }

    #[test]
    fn what_others_can_change_is_refused() {
        let place = Place::new();
        own_dir(&place.at("d")).unwrap();
        chmod(&place.at("d"), 0o777);
        assert!(own_dir(&place.at("d")).unwrap_err().contains("can write to"));
        own_dir(&place.at("open")).unwrap();
        chmod(&place.at("open"), 0o777);
        own_dir(&place.at("open/below")).unwrap_err();
        std::fs::write(place.at("f"), "x").unwrap();
        chmod(&place.at("f"), 0o666);
        assert!(read_own(&place.at("f")).unwrap_err().contains("chmod 0600"));
        chmod(&place.at("f"), 0o644);
        assert_eq!(read_own(&place.at("f")).unwrap(), Some(b"x".to_vec()));
        assert!(read_secret(&place.at("f")).unwrap_err().contains("can be read by other users"));
    }

    #[test]
    fn an_empty_directory_is_closed_and_a_full_one_is_refused() {
        let place = Place::new();
        let dir = place.at("d");
        std::fs::create_dir(&dir).unwrap();
        chmod(&dir, 0o755);
        own_dir(&dir).unwrap();
        assert_eq!(mode(&dir), 0o700);
        chmod(&dir, 0o755);
        std::fs::write(dir.join("x"), "").unwrap();
        assert!(own_dir(&dir).unwrap_err().contains("chmod 0700"));
        assert_eq!(mode(&dir), 0o755, "left as it was");
    }

    /// Needs root, to make something of another user.
    #[test]
    fn what_others_can_use_is_told_and_the_own_group_is_no_other() {
        let place = Place::new();
        let file = place.at("key");
        assert_eq!(used_by_others(&file), None);
        write_new(&file, b"key").unwrap();
        for (mode, told) in [(0o600, false), (0o640, false), (0o660, true), (0o604, true), (0o644, true)] {
            chmod(&file, mode);
            assert_eq!(used_by_others(&file), told.then_some(mode), "{mode:o}");
        }
    }

    #[test]
    fn root_changes_the_secret_of_a_server_and_it_stays_that_ones() {
        if !may_give_away() {
            return;
        }
        let place = Place::new();
        let (file, dir) = (place.at("secret"), place.at("made"));
        write_new(&file, b"old").unwrap();
        std::os::unix::fs::chown(&file, Some(12345), Some(54321)).unwrap();
        let owner = |path: &Path| look(path).map(|meta| (meta.uid(), meta.gid())).unwrap();
        assert!(read_secret(&file).unwrap_err().contains("belongs to user 12345"));
        assert_eq!(read_secret_of_any(&file).unwrap(), Some(b"old".to_vec()));
        replace_as(&file, b"new", 0o600, &file).unwrap();
        assert_eq!(
            (owner(&file), mode(&file), std::fs::read(&file).unwrap()),
            ((12345, 54321), 0o600, b"new".to_vec())
        );
        own_dir_as(&dir, &file).unwrap();
        assert_eq!((owner(&dir), mode(&dir)), ((12345, 54321), 0o700));
        own_dir_as(&dir, &file).unwrap();
        std::os::unix::fs::chown(&dir, Some(0), None).unwrap();
        assert!(own_dir_as(&dir, &file).unwrap_err().contains("chown 12345"), "the server could not look into it");
        chmod(&file, 0o640);
        assert!(read_secret_of_any(&file).unwrap_err().contains("chmod 0600"));
    }

    #[test]
    fn what_belongs_to_another_user_is_refused() {
        if !may_give_away() {
            return;
        }
        let place = Place::new();
        own_dir(&place.at("d")).unwrap();
        std::fs::write(place.at("d/f"), "x").unwrap();
        std::os::unix::fs::chown(place.at("d/f"), Some(12345), None).unwrap();
        assert!(read_own(&place.at("d/f")).unwrap_err().contains("belongs to user 12345"));
        std::os::unix::fs::chown(place.at("d"), Some(12345), None).unwrap();
        assert!(own_dir(&place.at("d")).unwrap_err().contains("belongs to user 12345"));
        assert!(own_dir(&place.at("d/below")).unwrap_err().contains("which belongs to user 12345"));
    }
}
