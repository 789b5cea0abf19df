//! The work of the thread that writes: it never fails the node, whatever the disk does.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::event::Event;
use crate::record::Record;
use crate::recorder::{Incoming, Recorder, unix_ns};
use crate::ring::{FILE_NAME, Identity, Ring};

/// Between two attempts with a disk that refuses.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// How often it is looked whether the file is still the one in the directory.
const LOOK_AT_FILE: Duration = Duration::from_secs(1);
/// Records that wait for a disk that refuses; older ones are dropped and counted.
const WAITING_MAX: usize = 4096;

pub struct Keeper {
    dir: PathBuf,
    len: u64,
    identity: Identity,
    incoming: Incoming,
    ring: Option<Ring>,
    tried: Option<Instant>,
    looked: Option<Instant>,
    waiting: Vec<Record>,
    /// That it does not work was said.
    told: bool,
}

impl Keeper {
    /// `len`: of the file, in bytes.
    pub fn new(dir: PathBuf, len: u64, identity: Identity, incoming: Incoming) -> Keeper {
        Keeper { dir, len, identity, incoming, ring: None, tried: None, looked: None, waiting: Vec::new(), told: false }
    }

    /// Writes what was noted. Waits for the disk. The text that it returns belongs into the server's log: it is said once
    /// that the disk refuses, and once that it works again.
    pub fn keep(&mut self, recorder: &Recorder, now: Instant) -> Option<String> {
        self.incoming.take(&mut self.waiting);
        let mut dropped = recorder.take_dropped();
        if self.waiting.len() > WAITING_MAX {
            let too_many = self.waiting.len() - WAITING_MAX;
            dropped += too_many as u64;
            self.waiting.drain(..too_many);
        }
        if dropped > 0 {
            let (term, unix_ns) = self.waiting.last().map_or((Default::default(), unix_ns()), |r| (r.term, r.unix_ns));
            let event = Event::Dropped { count: dropped };
            self.waiting.push(Record { sequence: 0, unix_ns, term, index: None, late: false, event });
        }
        self.look_at_file(now);
        if self.waiting.is_empty() {
            return None;
        }
        if self.ring.is_none() && self.tried.is_some_and(|at| now.saturating_duration_since(at) < TRY_AGAIN) {
            return None;
        }
        match self.write() {
            Ok(()) => {
                self.waiting.clear();
                self.tried = None;
                std::mem::take(&mut self.told).then(|| "the flight recorder works again".to_owned())
            }
            Err(error) => {
                self.ring = None;
                self.tried = Some(now);
                let path = self.dir.join(FILE_NAME);
                (!std::mem::replace(&mut self.told, true)).then(|| {
                    format!(
                        "the flight recorder cannot write {}: {error}. The node goes on without it, and tries again",
                        path.display()
                    )
                })
            }
        }
    }

    fn write(&mut self) -> std::io::Result<()> {
        let ring = match &mut self.ring {
            Some(ring) => ring,
            none => none.insert(Ring::open(&self.dir, self.len, &self.identity, unix_ns())?),
        };
        ring.append(&mut self.waiting)
    }

    /// Scripts of full copies, and people, remove files.
    fn look_at_file(&mut self, now: Instant) {
        if self.looked.is_some_and(|at| now.saturating_duration_since(at) < LOOK_AT_FILE) {
            return;
        }
        self.looked = Some(now);
        let inode = |metadata: std::io::Result<std::fs::Metadata>| metadata.ok().map(|m| (m.dev(), m.ino()));
        let own = self.ring.as_ref().and_then(|ring| inode(File::metadata(ring.medium())));
        if own.is_some() && own != inode(std::fs::symlink_metadata(self.dir.join(FILE_NAME))) {
            self.ring = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading;
    use crate::ring::LEN_MIN;
    use trireme_types::{NodeId, Uuid};

    struct Dir(PathBuf);

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn keeper(name: &str) -> (Dir, Recorder, Keeper) {
        let dir = std::env::temp_dir().join(format!("trireme-keeper-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let (recorder, incoming) = Recorder::new();
        let identity = Identity { node: NodeId(Uuid([1; 16])), name: "db1".into() };
        let keeper = Keeper::new(dir.clone(), LEN_MIN, identity, incoming);
        (Dir(dir), recorder, keeper)
    }

    fn words(dir: &Dir) -> Vec<&'static str> {
        let reading = Reading::decode(&std::fs::read(dir.0.join(FILE_NAME)).unwrap()).unwrap();
        reading.records.iter().map(|record| record.event.word()).collect()
    }

    #[test]
    fn a_disk_that_refuses_is_told_of_once_and_what_waited_is_written() {
        let (dir, recorder, mut keeper) = keeper("refuses");
        let start = Instant::now();
        // A directory in the place of the file's directory's parent: nothing can be made there.
        std::fs::remove_dir(&dir.0).unwrap();
        recorder.note(Event::Connecting { cluster: "c".into(), bootstrap: true });
        assert!(keeper.keep(&recorder, start).unwrap().contains("tries again"));
        for second in 1..20 {
            recorder.note(Event::Left {});
            assert_eq!(keeper.keep(&recorder, start + Duration::from_secs(second)), None);
        }
        std::fs::create_dir(&dir.0).unwrap();
        recorder.note(Event::Stopped {});
        assert!(keeper.keep(&recorder, start + Duration::from_secs(60)).unwrap().contains("works again"));
        let words = words(&dir);
        assert_eq!((words.len(), words[0], words[20]), (21, "connecting", "stopped"));
    }

    #[test]
    fn what_was_dropped_is_written() {
        let (dir, recorder, mut keeper) = keeper("dropped");
        for _ in 0..10_000 {
            recorder.note(Event::Left {});
        }
        assert_eq!(keeper.keep(&recorder, Instant::now()), None);
        assert_eq!(words(&dir).last(), Some(&"dropped"));
    }

    #[test]
    fn a_file_that_was_removed_is_made_anew() {
        let (dir, recorder, mut keeper) = keeper("removed");
        let start = Instant::now();
        recorder.note(Event::Left {});
        keeper.keep(&recorder, start);
        std::fs::remove_file(dir.0.join(FILE_NAME)).unwrap();
        recorder.note(Event::Stopped {});
        keeper.keep(&recorder, start + Duration::from_secs(2));
        assert_eq!(words(&dir), ["stopped"]);
    }
}
