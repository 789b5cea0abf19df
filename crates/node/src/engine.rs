//! The storage engine that runs in this process: is it where this node goes on from, and what does it have on disk at a stop (rule 31)?

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use trireme_replicator::position::{self, Elsewhere, Stop, Stopping, Word};
use trireme_replicator::retention::{EngineLog, FirstLook};
use trireme_types::{Seqno, Timestamp, Uuid};

use crate::Server;
use crate::threads::lock;

/// Compares a position with that of the engine, which runs. May wait for the engine.
///
/// **Errors:** where the engine is instead.
pub fn compare(server: &dyn Server, at: (Uuid, Seqno), word: Word) -> Result<(), Elsewhere> {
    let found = server.engine_position().map(Into::into);
    position::compare(found, server.process().is_some(), at.into(), word)
}

/// How long a stop waits for the engine to flush its log. InnoDB does so every second unless told otherwise.
const FLUSH_MAX: Duration = Duration::from_secs(5);
/// How long it waits for an engine that does not answer at all.
pub const STOP_MAX: Duration = Duration::from_secs(6);
const _: () = assert!(STOP_MAX.as_millis() > FLUSH_MAX.as_millis() + LOOK_EVERY.as_millis());
/// How often the engine is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits until the disk has what the engine has written by now, a few seconds at most. `false`: it has not, or nobody knows.
pub fn await_flush(server: &dyn Server) -> bool {
    let EngineLog::At { written, .. } = server.engine_log() else { return false };
    let until = Instant::now() + FLUSH_MAX;
    loop {
        match server.engine_log() {
            EngineLog::At { durable, .. } if durable >= written => return sync_log_files().is_ok(),
            EngineLog::At { .. } if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
            EngineLog::At { .. } | EngineLog::Closed | EngineLog::Silent => return false,
        }
    }
}

/// The engine's log files, opened once more, by device and inode. They stay open: to close one would take the engine's lock off it.
static LOG_FILES: Mutex<BTreeMap<(u64, u64), File>> = Mutex::new(BTreeMap::new());

/// Syncs the log files that an engine of this process has open. A killed process may have written a part without a sync: this one has read that
/// back, takes it for synced, and never syncs it.
///
/// Not by the engine's own descriptors: that would swallow an error that it has to see.
fn sync_log_files() -> io::Result<()> {
    let mut ours = lock(&LOG_FILES);
    for (descriptor, _) in open_files(b"ib_logfile")? {
        let found = match fs::metadata(&descriptor) {
            Ok(found) => found,
            // The engine has closed it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let file = match ours.entry((found.dev(), found.ino())) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => place.insert(File::open(descriptor)?),
        };
        file.sync_data()?;
    }
    Ok(())
}

/// The files that this process has open and whose names begin so: the descriptor, as a path, and the file.
fn open_files(name: &[u8]) -> io::Result<impl Iterator<Item = (PathBuf, PathBuf)>> {
    let all = fs::read_dir("/proc/self/fd")?.flatten();
    let files = all.filter_map(|open| Some((open.path(), fs::read_link(open.path()).ok()?)));
    Ok(files.filter(move |(_, file)| file.file_name().is_some_and(|is| is.as_bytes().starts_with(name))))
}

/// Puts on disk what a full copy has brought: whoever copied left that to the kernel. Files of the data may lie elsewhere than in the data
/// directory (undo logs, tables with a directory of their own), and a part of it may have a file system of its own.
pub fn sync_copy(data_dir: &Path) -> io::Result<()> {
    // Directories, since to close another descriptor of a file that the engine has open would take its lock off it.
    let mut synced = BTreeSet::new();
    sync_file_system(&File::open(data_dir)?, &mut synced)?;
    let mounts = mounts_below(&data_dir.canonicalize()?, &fs::read_to_string("/proc/self/mountinfo")?);
    let beside_files: BTreeSet<PathBuf> =
        open_files(b"")?.filter_map(|(_, file)| file.parent().map(Path::to_owned)).collect();
    for path in mounts.into_iter().chain(beside_files) {
        match File::open(path) {
            Ok(directory) => sync_file_system(&directory, &mut synced)?,
            // No place for data: a socket, or a file system that only another user reads.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn sync_file_system(directory: &File, synced: &mut BTreeSet<u64>) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    if synced.insert(directory.metadata()?.dev()) && unsafe { libc::syncfs(directory.as_raw_fd()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Where file systems are mounted below this directory, by the text of proc_pid_mountinfo(5).
fn mounts_below(dir: &Path, table: &str) -> Vec<PathBuf> {
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    // Blanks and the like are written as three octal digits.
    let points =
        points.map(|point| PathBuf::from(point.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")));
    points.filter(|point| point != dir && point.starts_with(dir)).collect()
}

/// Puts on disk what a statement that changes schemas leaves to the kernel: the names of files, which the server changes without a sync, and the
/// engine's position, which it has written by now and syncs with flush=1 only.
pub fn sync_statement(data_dir: &Path) -> io::Result<()> {
    File::open(data_dir)?.sync_all()?;
    for schema in fs::read_dir(data_dir)?.flatten().filter(|entry| entry.path().is_dir()) {
        match File::open(schema.path()) {
            Ok(directory) => directory.sync_all()?,
            // It was dropped meanwhile; or it is none, as the server cannot change what is in it (`lost+found`).
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {}
            Err(error) => return Err(error),
        }
    }
    sync_log_files()
}

/// The engine's log, as the one thread sees it that asks.
pub struct Eye {
    /// Its time.
    begun: Instant,
    first: Option<FirstLook>,
}

impl Eye {
    pub fn new() -> Eye {
        Eye { begun: Instant::now(), first: None }
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO.after(self.begun.elapsed())
    }

    pub fn look(&mut self, server: &dyn Server) -> EngineLog {
        let log = server.engine_log();
        if let EngineLog::At { durable, .. } = log {
            let now = self.now();
            self.first.get_or_insert(FirstLook::new(durable, now));
        }
        log
    }

    /// The position that a stop may write down: see [`Stopping`]. Waits for the engine's log, a few seconds at most if it answers.
    pub fn at_stop(&mut self, server: &dyn Server, history: Uuid, left: Seqno, ended: Seqno) -> Stop {
        let found = server.engine_position().map(Into::into);
        let mut stopping = match Stopping::begin(history, left, ended, found, server.process().is_some(), self.first) {
            Ok(stopping) => stopping,
            Err(at_once) => return at_once,
        };
        let until = Instant::now() + FLUSH_MAX;
        loop {
            let log = self.look(server);
            if let Some(stop) = stopping.look(log, self.now(), Instant::now() >= until) {
                return stop;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;
    use std::cell::RefCell;

    #[test]
    fn file_systems_below_the_data_directory_are_found() {
        let table = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 8:2 / /data rw - ext4 /dev/sda2 rw\n\
                     24 23 8:3 / /data/a\\040schema rw - ext4 /dev/sda3 rw\n25 22 8:4 / /database rw - ext4 /dev/sda4 rw\n";
        assert_eq!(mounts_below(Path::new("/data"), table), [PathBuf::from("/data/a schema")]);
    }

    const HERE: Uuid = Uuid([1; 16]);
    const ELSEWHERE: Uuid = Uuid([2; 16]);

    fn at(seqno: u64) -> Option<(Uuid, Seqno)> {
        Some((HERE, Seqno(seqno)))
    }

    /// A server of which nothing is asked but its engine.
    struct Engine {
        position: Option<(Uuid, Seqno)>,
        is_server: bool,
        /// Its log, look by look; the last one stays.
        log: RefCell<Vec<EngineLog>>,
    }

    mod stub {
        use super::*;
        use crate::{Applied, Gtid, Handle, Meta, RecvCtx, ServerProcess, ServerView};

        impl Server for super::Locked {
            fn engine_position(&self) -> Option<(Uuid, Seqno)> {
                self.0.lock().unwrap().position
            }
            fn engine_log(&self) -> EngineLog {
                let engine = self.0.lock().unwrap();
                let mut log = engine.log.borrow_mut();
                if log.len() > 1 { log.remove(0) } else { log[0] }
            }
            fn process(&self) -> Option<ServerProcess> {
                self.0.lock().unwrap().is_server.then(ServerProcess::default)
            }
            fn connected(&self, _: &ServerView) -> bool {
                unreachable!()
            }
            fn view(&self, _: RecvCtx, _: &ServerView) -> bool {
                unreachable!()
            }
            fn wants_script(&self) -> bool {
                unreachable!()
            }
            fn sst_request(&self) -> Result<Vec<u8>, ()> {
                unreachable!()
            }
            fn apply(&self, _: RecvCtx, _: Handle, _: u32, _: &[u8], _: &Meta) -> Applied {
                unreachable!()
            }
            fn sst_donate(&self, _: RecvCtx, _: &[u8], _: Gtid, _: bool) -> bool {
                unreachable!()
            }
            fn synced(&self) -> bool {
                unreachable!()
            }
            fn log(&self, _: Level, _: &str) {
                unreachable!()
            }
            fn end(&self, _: &str) {
                unreachable!()
            }
            fn allowed(&self, _: &str) -> bool {
                unreachable!()
            }
            fn event(&self, _: &str, _: &str) {
                unreachable!()
            }
        }
    }

    struct Locked(std::sync::Mutex<Engine>);

    fn engine(position: Option<(Uuid, Seqno)>, is_server: bool, log: Vec<EngineLog>) -> Locked {
        Locked(std::sync::Mutex::new(Engine { position, is_server, log: RefCell::new(log) }))
    }

    fn at_stop(server: &Locked, left: u64, ended: u64) -> Stop {
        Eye::new().at_stop(server, HERE, Seqno(left), Seqno(ended))
    }

    fn written(written: u64, durable: u64) -> EngineLog {
        EngineLog::At { written, durable }
    }

    #[test]
    fn a_stop_records_what_the_engine_has_on_disk() {
        let server = engine(at(9), true, vec![written(100, 50), written(120, 99), written(130, 100)]);
        assert_eq!(at_stop(&server, 9, 9), Stop::OnDisk(Seqno(9)), "up to where it was at first");
    }

    /// The disk seems to have everything, as it did when the server began: a killed process may have written that without a sync.
    #[test]
    fn a_stop_does_not_vouch_for_what_the_engine_only_read_back() {
        let server = engine(at(9), true, vec![written(100, 100)]);
        assert_eq!(at_stop(&server, 9, 9), Stop::Claimed(Seqno(9)));
        let server = engine(at(9), true, vec![written(100, 90), written(100, 100)]);
        let mut eye = Eye::new();
        eye.look(&server);
        assert_eq!(
            eye.at_stop(&server, HERE, Seqno(9), Seqno(9)),
            Stop::OnDisk(Seqno(9)),
            "this process has synced it"
        );
    }

    /// A commit is queued for the binary log: the engine is one behind, and will not stay there.
    #[test]
    fn a_stop_records_nothing_while_a_commit_is_under_way() {
        let server = engine(at(8), true, vec![written(100, 100)]);
        assert_eq!(at_stop(&server, 9, 8), Stop::Unknown);
    }

    #[test]
    fn a_stop_records_no_position_that_the_next_start_could_not_rely_on() {
        let closed = engine(at(9), true, vec![written(100, 50), EngineLog::Closed]);
        assert_eq!(at_stop(&closed, 9, 9), Stop::Unknown);
        let elsewhere = engine(Some((ELSEWHERE, Seqno(9))), true, vec![written(1, 1)]);
        assert_eq!(at_stop(&elsewhere, 9, 9), Stop::Unknown);
        let unopened = engine(None, true, vec![EngineLog::Silent]);
        assert_eq!(at_stop(&unopened, 9, 9), Stop::Unknown);
        let silent = engine(at(9), true, vec![EngineLog::Silent]);
        assert_eq!(at_stop(&silent, 9, 9), Stop::Claimed(Seqno(9)));
        let nobody = engine(None, false, vec![EngineLog::Silent]);
        assert_eq!(at_stop(&nobody, 9, 9), Stop::Claimed(Seqno(9)));
    }

    /// A server executes thousands of statements.
    #[test]
    fn log_files_are_opened_once_more_and_no_more() {
        let dir = std::env::temp_dir().join(format!("trireme-engine-{}", std::process::id()));
        fs::create_dir_all(dir.join("d")).unwrap();
        let log = dir.join("ib_logfile0");
        let engines = File::create(&log).unwrap();
        let opened = || {
            let all = fs::read_dir("/proc/self/fd").unwrap().flatten();
            all.filter(|open| fs::read_link(open.path()).is_ok_and(|file| file == log)).count()
        };
        for _ in 0..3 {
            sync_statement(&dir).unwrap();
            assert_eq!(opened(), 2);
        }
        drop(engines);
        fs::remove_dir_all(&dir).unwrap();
        assert!(sync_statement(&dir).is_err());
    }

    #[test]
    fn a_flush_is_awaited_for_what_was_written_when_that_began() {
        let flushes = engine(at(9), true, vec![written(100, 50), written(120, 99), written(130, 100), written(0, 0)]);
        assert!(await_flush(&flushes));
        assert_eq!(flushes.engine_log(), written(0, 0), "nobody waits for what came later");
        for log in [EngineLog::Closed, EngineLog::Silent] {
            assert!(!await_flush(&engine(at(9), true, vec![log])));
            assert!(!await_flush(&engine(at(9), true, vec![written(100, 50), log])));
        }
    }

    #[test]
    fn an_engine_that_runs_confirms_or_contradicts() {
        let position = (HERE, Seqno(9));
        let log = || vec![EngineLog::Silent];
        assert_eq!(compare(&engine(at(9), true, log()), position, Word::Engine), Ok(()));
        assert!(compare(&engine(at(8), true, log()), position, Word::Engine).is_err());
        assert!(compare(&engine(at(8), true, log()), position, Word::Operator).is_err());
        assert!(compare(&engine(None, true, log()), position, Word::Engine).is_err());
        assert_eq!(compare(&engine(None, true, log()), position, Word::Operator), Ok(()));
        assert_eq!(compare(&engine(None, false, log()), position, Word::Engine), Ok(()), "nobody to ask");
    }
}
