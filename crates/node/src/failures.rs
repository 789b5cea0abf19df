//! The file that says what this node failed to apply: see [`Failures`]. It lies beside the write-set log, which a full copy of the data spares.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use trireme_private as private;
use trireme_replicator::Failures;
use trireme_replicator::votes::ErrorClass;
use trireme_types::Seqno;

use crate::threads::lock;

pub const FILE_NAME: &str = "trireme.failed.galera.cache";
/// More than as many notes as are kept take.
const MAX_LEN: u64 = 64 << 10;
const MODE: u32 = 0o600;

struct Kept {
    failures: Option<Failures>,
    /// The disk did not take them.
    unsaved: bool,
}

/// For any thread; a change may take as long as the disk does.
pub struct KeptFailures {
    path: PathBuf,
    kept: Mutex<Kept>,
}

impl KeptFailures {
    /// Reads what an earlier life left in that directory. A file that cannot be read says nothing.
    pub fn open(dir: &Path) -> KeptFailures {
        let path = dir.join(FILE_NAME);
        let mut content = String::new();
        let read = File::open(&path).and_then(|file| file.take(MAX_LEN).read_to_string(&mut content));
        let failures = read.ok().and_then(|_| Failures::parse(&content));
        KeptFailures { path, kept: Mutex::new(Kept { failures, unsaved: false }) }
    }

    pub fn known(&self) -> Option<Failures> {
        lock(&self.kept).failures.clone()
    }

    /// How `seqno`, which the data hold, went here. `None`: that is not known.
    pub fn held(&self, seqno: Seqno) -> Option<ErrorClass> {
        lock(&self.kept).failures.as_ref()?.held(seqno)
    }

    /// **Errors:** it is not on disk, and counts until the process ends, or is saved.
    pub fn remember(&self, failures: Failures) -> io::Result<()> {
        let mut kept = lock(&self.kept);
        if kept.failures.as_ref() == Some(&failures) && !kept.unsaved {
            return Ok(());
        }
        self.write(&mut kept, failures)
    }

    /// This node failed at `seqno`. Errors as above.
    pub fn note(&self, seqno: Seqno, class: ErrorClass) -> io::Result<()> {
        let mut kept = lock(&self.kept);
        let Some(mut failures) = kept.failures.clone() else { return Ok(()) };
        failures.note(seqno, class);
        self.write(&mut kept, failures)
    }

    /// The disk works again: what it did not take before is written now. Errors as above.
    pub fn save(&self) -> io::Result<()> {
        let mut kept = lock(&self.kept);
        match kept.failures.clone().filter(|_| kept.unsaved) {
            Some(failures) => self.write(&mut kept, failures),
            None => Ok(()),
        }
    }

    fn write(&self, kept: &mut Kept, failures: Failures) -> io::Result<()> {
        let content = failures.print();
        *kept = Kept { failures: Some(failures), unsaved: true };
        private::replace(&self.path, content.as_bytes(), MODE)?;
        // The name, too.
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        File::open(dir.unwrap_or(Path::new(".")))?.sync_all()?;
        kept.unsaved = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use trireme_replicator::Position;
    use trireme_types::Uuid;

    use super::*;

    #[test]
    fn a_failure_is_known_in_the_next_life() {
        let dir = private::fresh_dir(&std::env::temp_dir(), "trireme-failures-").unwrap();
        let begun = Failures::begin(Position { history: Uuid([7; 16]), seqno: Seqno(4) });
        let first = KeptFailures::open(&dir);
        first.note(Seqno(5), ErrorClass(77)).unwrap();
        assert_eq!(first.known(), None, "of these data nothing is known");
        first.remember(begun).unwrap();
        first.note(Seqno(6), ErrorClass(77)).unwrap();
        assert_eq!(KeptFailures::open(&dir).known().unwrap().held(Seqno(6)), Some(ErrorClass(77)));
        // The disk is out, and works again.
        let away = dir.with_extension("away");
        std::fs::rename(&dir, &away).unwrap();
        first.note(Seqno(7), ErrorClass(78)).unwrap_err();
        std::fs::rename(&away, &dir).unwrap();
        assert_eq!(KeptFailures::open(&dir).held(Seqno(7)), Some(ErrorClass::SUCCESS));
        first.save().unwrap();
        assert_eq!(KeptFailures::open(&dir).held(Seqno(7)), Some(ErrorClass(78)));
        std::fs::write(dir.join(FILE_NAME), "torn").unwrap();
        assert_eq!(KeptFailures::open(&dir).known(), None);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
