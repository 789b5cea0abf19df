//! The log over a real directory.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use trireme_order::LogStore;
use trireme_types::{Base, Entry, EntryHeader, EntryKind, HardState, Incarnation, LogIndex, NodeId, Seqno, Session, Term, Uuid};
use trireme_wslog::{DirStorage, Options, Trim, WriteSetLog};

/// A directory of its own, removed at the end.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("trireme-wslog-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }
    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const NODE: NodeId = NodeId(Uuid([9; 16]));

fn options() -> Options {
    Options { size: 1 << 20, segment_size_override: Some(64 << 10), ..Options::new(NODE, "boot 1") }
}

fn open(dir: &Dir) -> (WriteSetLog<DirStorage>, trireme_wslog::OpenReport) {
    WriteSetLog::open(DirStorage::new(dir.path()).unwrap(), &options()).unwrap()
}

fn base() -> Base {
    Base { history: Uuid([5; 16]), ..Base::default() }
}

fn entry(index: u64, term: u64, size: usize) -> Entry {
    let header = EntryHeader {
        index: LogIndex(index),
        term: Term(term),
        seqno: Seqno(index),
        voters: LogIndex(1),
        session: Session::default(),
        number: index,
        kind: EntryKind::WriteSet,
    };
    Entry { header, payload: Bytes::from(vec![index as u8 ^ term as u8; size]) }
}

fn sync(log: &mut WriteSetLog<DirStorage>) {
    if let Some(ticket) = log.begin_sync() {
        let done = std::thread::spawn(move || ticket.run()).join().unwrap().unwrap();
        log.finish_sync(done).unwrap();
    }
}

#[test]
fn keeps_entries_promises_and_identity_over_reopening() {
    let dir = Dir::new();
    let all: Vec<Entry> = (1..=300).map(|i| entry(i, 1, if i % 50 == 0 { 100_000 } else { 100 + i as usize })).collect();
    let hard = HardState { term: Term(7), voted_for: NODE, voters_committed: LogIndex(1), committed: LogIndex(2) };
    {
        let (mut log, report) = open(&dir);
        assert!(report.created && !report.unclean);
        log.reset(base()).unwrap();
        assert_eq!(log.begin_incarnation().unwrap(), Incarnation(1));
        for chunk in all.chunks(7) {
            log.append(chunk).unwrap();
        }
        assert_eq!(log.read(LogIndex(1), usize::MAX).unwrap(), all);
        log.save_hard_state(hard).unwrap();
        assert_eq!(log.synced(), LogIndex(0));
        sync(&mut log);
        assert_eq!(log.synced(), LogIndex(300));
        log.close().unwrap();
    }
    let (mut log, report) = open(&dir);
    assert!(!report.unclean && !report.created && report.hole.is_none() && report.suspect.is_none(), "{report:?}");
    assert_eq!((log.node_id(), log.incarnation(), log.hard_state()), (NODE, Incarnation(1), hard));
    assert_eq!(log.read(LogIndex(1), usize::MAX).unwrap(), all);
    log.append(&[entry(301, 2, 10)]).unwrap();
    drop(log); // as after kill -9
    let (log, report) = open(&dir);
    assert!(report.unclean && !report.rebooted && !report.torn_tail_cut, "{report:?}");
    assert_eq!((log.last(), log.synced(), log.term_at(LogIndex(301))), (LogIndex(301), LogIndex(301), Some(Term(2))));
    for name in std::fs::read_dir(dir.path()).unwrap() {
        let name = name.unwrap();
        assert!(name.file_type().unwrap().is_file() && name.file_name().to_str().unwrap().ends_with("galera.cache"));
    }
}

#[test]
fn second_user_of_a_directory_is_refused() {
    let dir = Dir::new();
    let (log, _) = open(&dir);
    let error = WriteSetLog::open(DirStorage::new(dir.path()).unwrap(), &options()).err().unwrap();
    assert!(error.0.contains("in use"), "{error}");
    drop(log);
    open(&dir);
}

#[test]
fn truncation_survives_and_old_sync_counts_for_nothing() {
    let dir = Dir::new();
    let (mut log, _) = open(&dir);
    log.reset(base()).unwrap();
    log.append(&(1..=200).map(|i| entry(i, 1, 1000)).collect::<Vec<_>>()).unwrap();
    let ticket = log.begin_sync().unwrap();
    log.truncate_after(LogIndex(100)).unwrap();
    log.append(&[entry(101, 2, 10)]).unwrap();
    log.finish_sync(ticket.run().unwrap()).unwrap();
    assert_eq!(log.synced(), LogIndex(0));
    sync(&mut log);
    assert_eq!(log.synced(), LogIndex(101));
    drop(log);
    let (log, report) = open(&dir);
    assert!(report.hole.is_none() && !report.torn_tail_cut, "{report:?}");
    assert_eq!((log.last(), log.term_at(LogIndex(101)), log.term_at(LogIndex(102))), (LogIndex(101), Some(Term(2)), None));
    assert_eq!(log.read(LogIndex(101), 0).unwrap(), [entry(101, 2, 10)]);
}

#[test]
fn trims_to_a_durable_checkpoint_and_recycles() {
    let dir = Dir::new();
    let (mut log, _) = open(&dir);
    log.reset(base()).unwrap();
    for i in 1..=2000 {
        log.append(&[entry(i, 1, 1000)]).unwrap();
        if log.wants_checkpoint() {
            log.save_checkpoint(&Base { index: LogIndex(i), term: Term(1), seqno: Seqno(i), ..base() }).unwrap();
        }
        sync(&mut log);
        if let Some(ticket) = log.begin_spare() {
            log.finish_spare(ticket.run()).unwrap();
        }
        if log.wants_trim() {
            let first = log.trim(Trim { keep_from: LogIndex(i - 50), bytes_max: None }).unwrap();
            assert!(first <= LogIndex(i - 50));
        }
    }
    assert!(log.first() > LogIndex(900) && log.bytes_held() <= 1 << 20, "{} {}", log.first(), log.bytes_held());
    let (first, held) = (log.first(), log.read(LogIndex(1990), usize::MAX).unwrap());
    assert_eq!(log.checkpoint_before(Seqno(1500)).unwrap().index.0 / 100, 14);
    assert_eq!(log.read(first.prev(), usize::MAX).unwrap(), []);
    drop(log);
    let (log, report) = open(&dir);
    assert!(report.notes.is_empty(), "{report:?}");
    assert_eq!((log.first(), log.last()), (first, LogIndex(2000)));
    assert_eq!(log.read(LogIndex(1990), usize::MAX).unwrap(), held);
}
