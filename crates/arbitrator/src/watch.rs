//! Files with the secret or the certificates that an operator changes while the arbitrator runs. A server is told by SQL to read them again. Nobody can
//! tell an arbitrator, so it looks by itself.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A mark that differs from one content of a file to the next. Times alone would not: the kernel's clock for files takes steps of milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    place: (u64, u64),
    size: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// `None`: it is not there at the moment.
    fn of(path: &Path) -> Option<Stamp> {
        let found = fs::metadata(path).ok()?;
        Some(Stamp {
            place: (found.dev(), found.ino()),
            size: found.size(),
            written: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// The files of one arbitrator.
pub struct Watch {
    files: Vec<PathBuf>,
    /// When they were read.
    read: Vec<Option<Stamp>>,
    /// When they were looked at last.
    seen: Vec<Option<Stamp>>,
}

impl Watch {
    /// Call it before the files are read: a change while they are read is then not missed.
    pub fn new(files: Vec<PathBuf>) -> Watch {
        let read: Vec<_> = files.iter().map(|path| Stamp::of(path)).collect();
        Watch { files, seen: read.clone(), read }
    }

    /// Are they to be read again? Yes, once, when they have changed and are as they were at the last look: a file that is being copied is not whole.
    pub fn look(&mut self) -> bool {
        let now: Vec<_> = self.files.iter().map(|path| Stamp::of(path)).collect();
        let rests = now == self.seen;
        self.seen = now;
        let due = rests && self.seen != self.read && self.seen.iter().all(Option::is_some);
        if due {
            self.read.clone_from(&self.seen);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once_and_when_it_is_complete() {
        let dir = trireme_private::fresh_dir(&std::env::temp_dir(), "trireme-watch").unwrap();
        let (secret, other) = (dir.join("secret"), dir.join("other"));
        fs::write(&secret, "one").unwrap();
        fs::write(&other, "x").unwrap();
        let mut watch = Watch::new(vec![secret.clone(), other.clone()]);
        assert!(!watch.look() && !watch.look(), "nothing has changed");
        fs::write(&secret, "one and").unwrap();
        assert!(!watch.look(), "it may not be whole");
        fs::write(&secret, "one and two").unwrap();
        assert!(!watch.look(), "it was not");
        assert!(watch.look());
        assert!(!watch.look(), "once");
        // Replaced by one of the same length.
        fs::write(dir.join("new"), "one and 2nd").unwrap();
        fs::rename(dir.join("new"), &secret).unwrap();
        assert!(!watch.look());
        assert!(watch.look());
        fs::remove_file(&other).unwrap();
        assert!(!watch.look() && !watch.look(), "what is not there cannot be read");
        fs::write(&other, "x").unwrap();
        assert!(!watch.look());
        assert!(watch.look(), "there again");
        fs::remove_dir_all(&dir).unwrap();
    }
}
