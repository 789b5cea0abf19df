//! The log over a real directory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use trireme_order::{DiskFault, LogStore, StoreError};
use trireme_types::{Base, Choice, Entry, HardState, Incarnation, LogIndex, NodeId, Seqno, Term, Uuid};
use trireme_wslog::{DirStorage, Options, Trim, WriteSetLog, WriteWatch};

use crate::support::dir::Dir;
use crate::support::entries::entry;

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

fn sync(log: &mut WriteSetLog<DirStorage>) {
    if let Some(ticket) = log.begin_sync() {
        let done = std::thread::spawn(move || ticket.run()).join().unwrap().unwrap();
        log.finish_sync(done).unwrap();
    }
}

/// A write that waits for the disk is known as a sync is; preparations beside the log are nobody's wait.
#[test]
fn writes_are_watched_and_the_preparation_of_segments_is_not() {
    #[derive(Clone, Default)]
    struct Count(Arc<[AtomicU64; 2]>);
    impl WriteWatch for Count {
        fn began(&self, _: Instant) {
            self.0[0].fetch_add(1, Relaxed);
        }
        fn ended(&self, began: Instant) {
            assert!(began.elapsed() < Duration::from_secs(60));
            self.0[1].fetch_add(1, Relaxed);
        }
    }
    let dir = Dir::new();
    let (mut log, _) = open(&dir);
    let count = Count::default();
    log.watch_writes(count.clone());
    let seen = || [0, 1].map(|at| count.0[at].load(Relaxed));
    log.reset(base()).unwrap();
    let before = seen();
    log.append(&[entry(1, 1, 100)]).unwrap();
    let after = seen();
    assert!(after[0] > before[0] && after[0] == after[1], "{before:?}, then {after:?}");
    // More than half of a segment: the next one is prepared.
    log.append(&[entry(2, 1, 40_000)]).unwrap();
    let (before, ticket) = (seen(), log.begin_spare().unwrap());
    log.finish_spare(ticket.run()).unwrap();
    assert_eq!(seen(), before);
}

#[test]
fn keeps_entries_promises_and_identity_over_reopening() {
    let dir = Dir::new();
    let all: Vec<Entry> =
        (1..=300).map(|i| entry(i, 1, if i % 50 == 0 { 100_000 } else { 100 + i as usize })).collect();
    let hard = HardState {
        term: Term(7),
        vote: Choice { term: Term(7), of: NODE },
        voters_committed: LogIndex(1),
        committed: LogIndex(2),
        ..HardState::default()
    };
    {
        let (mut log, report) = open(&dir);
        assert!(report.created && !report.unclean);
        log.reset(base()).unwrap();
        assert_eq!(log.begin_incarnation(Incarnation::ZERO).unwrap(), Incarnation(1));
        assert_eq!(log.begin_incarnation(Incarnation(7)).unwrap(), Incarnation(7));
        assert_eq!(log.begin_incarnation(Incarnation(7)).unwrap(), Incarnation(8));
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
    assert_eq!((log.node_id(), log.incarnation(), log.hard_state()), (NODE, Incarnation(8), hard));
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
    assert!(matches!(error, StoreError::InUse(_)), "{error}");
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
    assert_eq!(
        (log.last(), log.term_at(LogIndex(101)), log.term_at(LogIndex(102))),
        (LogIndex(101), Some(Term(2)), None)
    );
    assert_eq!(log.read(LogIndex(101), 0).unwrap(), [entry(101, 2, 10)]);
}

#[test]
fn checkpoints_are_wanted_at_each_segment_or_as_far_apart_as_is_asked() {
    let dir = Dir::new();
    let (mut log, _) = open(&dir);
    log.reset(base()).unwrap();
    // Entries between two checkpoints, of which some sixty make a segment.
    let mut gaps = |from: u64, spacing: u64| {
        log.space_checkpoints(spacing);
        let mut wanted = Vec::new();
        for i in from..from + 1000 {
            log.append(&[entry(i, 1, 1000)]).unwrap();
            if log.wants_checkpoint() {
                log.save_checkpoint(&Base { index: LogIndex(i), term: Term(1), seqno: Seqno(i), ..base() }).unwrap();
                wanted.push(i);
            }
        }
        wanted.windows(2).map(|w| w[1] - w[0]).collect::<Vec<_>>()
    };
    assert!(gaps(1, 0).iter().all(|gap| (50..=70).contains(gap)));
    let spaced = gaps(1001, 256 << 10);
    assert!(spaced.len() >= 2 && spaced.iter().all(|gap| (200..=280).contains(gap)), "{spaced:?}");
    // The first one is due at once, in the midst of a segment.
    assert!(gaps(2001, 0)[1..].iter().all(|gap| (50..=70).contains(gap)));
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

#[test]
fn readers_on_other_threads_get_right_entries_or_none() {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    let dir = Dir::new();
    let (mut log, _) = open(&dir);
    log.reset(base()).unwrap();
    log.append(&[entry(1, 1, 10)]).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|n| {
            let (reader, stop) = (log.reader(), stop.clone());
            std::thread::spawn(move || {
                let (mut hits, mut misses, mut step) = (0u64, 0u64, n);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) || hits == 0 {
                    step += 7919;
                    let (first, last) = reader.held();
                    // A little beyond both ends as well.
                    let from = LogIndex((first.0 + step % (last.0 - first.0 + 10)).saturating_sub(5));
                    let read = reader.read(from, 20_000).unwrap();
                    misses += u64::from(read.is_empty());
                    for (at, e) in read.iter().enumerate() {
                        assert_eq!(e.header.index.0, from.0 + at as u64);
                        assert!(e.payload.iter().all(|b| *b == e.header.index.0 as u8 ^ e.header.term.0 as u8));
                        hits += 1;
                    }
                }
                (hits, misses)
            })
        })
        .collect();
    let mut term = 1;
    for round in 0..1500u64 {
        let next = log.last().0 + 1;
        let count = 1 + round % 5;
        log.append(&(next..next + count).map(|i| entry(i, term, 500 + (i as usize % 7) * 300)).collect::<Vec<_>>())
            .unwrap();
        if round % 40 == 39 {
            term += 1;
            log.truncate_after(LogIndex(log.last().0 - 3)).unwrap();
        }
        if log.wants_checkpoint() {
            let index = LogIndex(log.last().0 - 4);
            if index > log.base().index {
                let (t, s) = (log.term_at(index).unwrap(), Seqno(index.0));
                log.save_checkpoint(&Base { index, term: t, seqno: s, ..base() }).unwrap();
            }
        }
        if round % 10 == 0 {
            sync(&mut log);
            log.trim(Trim { keep_from: log.last(), bytes_max: Some(300 << 10) }).unwrap();
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(log.first() > LogIndex(1000), "nothing was trimmed");
    for reader in readers {
        let (hits, _) = reader.join().unwrap();
        assert!(hits > 0);
    }
}

#[test]
fn recover_no_starts_empty_and_suspect_but_keeps_identity_and_promises() {
    let dir = Dir::new();
    let hard = HardState { term: Term(3), ..HardState::default() };
    let (mut log, _) = open(&dir);
    log.reset(base()).unwrap();
    log.append(&[entry(1, 1, 10), entry(2, 1, 10)]).unwrap();
    log.save_hard_state(hard).unwrap();
    log.close().unwrap();
    let fresh = Options { recover: false, new_node: Some(NodeId(Uuid([1; 16]))), ..options() };
    let (log, report) = WriteSetLog::open(DirStorage::new(dir.path()).unwrap(), &fresh).unwrap();
    assert_eq!((log.last(), log.base()), (LogIndex(0), &Base::default()));
    assert_eq!((log.node_id(), log.hard_state(), report.suspect), (NODE, hard, Some(LogIndex(0))));
    drop(log);
    let (mut log, report) = open(&dir);
    assert_eq!((log.last(), report.suspect), (LogIndex(0), Some(LogIndex(0))));
    log.set_suspect(None).unwrap();
    log.reset(base()).unwrap();
    drop(log);
    assert_eq!(open(&dir).1.suspect, None);
}

#[test]
fn a_log_is_outdated_over_starts_until_it_is_whole() {
    let dir = Dir::new();
    let (mut log, _) = open(&dir);
    log.reset(base()).unwrap();
    log.append(&[entry(1, 1, 10)]).unwrap();
    assert!(!log.is_outdated());
    log.set_suspect(Some(LogIndex::ZERO)).unwrap();
    log.set_outdated(true).unwrap();
    // It was not closed.
    drop(log);
    let (log, report) = open(&dir);
    assert!(log.is_outdated());
    assert_eq!(report.suspect, Some(LogIndex::ZERO));
    log.close().unwrap();
    let (mut log, _) = open(&dir);
    assert!(log.is_outdated());
    // The new base may be from before the newest voters, too.
    log.reset(base()).unwrap();
    assert!(log.is_outdated());
    log.set_suspect(None).unwrap();
    drop(log);
    let (log, report) = open(&dir);
    assert_eq!((log.is_outdated(), report.suspect), (false, None));
}

/// The file system of a log that failed can be unmounted and repaired, and the log opened again beside what is left of it.
#[test]
fn a_failed_log_that_was_let_go_of_holds_no_files() {
    let dir = Dir::new();
    let inside = || {
        let fds = std::fs::read_dir("/proc/self/fd").unwrap();
        fds.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok()).filter(|to| to.starts_with(dir.path())).count()
    };
    let (mut log, _) = open(&dir);
    log.reset(base()).unwrap();
    log.append(&[entry(1, 1, 10)]).unwrap();
    sync(&mut log);
    let away = dir.path().with_extension("away");
    std::fs::rename(dir.path(), &away).unwrap();
    // The next segment cannot be made.
    let error = (2..).find_map(|i| log.append(&[entry(i, 1, 10_000)]).err()).unwrap();
    assert!(matches!(error, StoreError::Disk { cause: DiskFault::Gone, .. }), "{error}");
    std::fs::rename(&away, dir.path()).unwrap();
    assert!(inside() > 2);
    let reader = log.reader();
    log.let_go();
    assert_eq!(inside(), 0);
    assert!(log.append(&[entry(2, 1, 10)]).is_err() && log.save_hard_state(HardState::default()).is_err());
    assert!(reader.get(LogIndex(1)).is_err());
    let (again, report) = open(&dir);
    assert!(report.unclean && again.last() >= LogIndex(1), "{:?}", again.last());
}

#[test]
fn a_log_that_must_be_there_is_not_made() {
    let dir = Dir::new();
    let there = Options { new_node: None, ..options() };
    let error = WriteSetLog::open(DirStorage::new(dir.path()).unwrap(), &there).err().unwrap();
    assert_eq!(error, StoreError::Absent);
    drop(open(&dir));
    assert!(WriteSetLog::open(DirStorage::new(dir.path()).unwrap(), &there).is_ok());
}

#[test]
fn missing_or_unreadable_metadata_is_an_error_that_says_what_to_do() {
    let dir = Dir::new();
    let (mut log, _) = open(&dir);
    log.reset(base()).unwrap();
    log.close().unwrap();
    let meta = dir.path().join("trireme.meta.galera.cache");
    let whole = std::fs::read(&meta).unwrap();
    let mut one = whole.clone();
    one[100] ^= 1;
    std::fs::write(&meta, &one).unwrap();
    let (log, report) = open(&dir);
    assert!(report.metadata_copy_lost);
    log.close().unwrap();
    assert!(!open(&dir).1.metadata_copy_lost, "the next save repairs the copy");
    for bad in [vec![], vec![0; 8192], b"edited by hand".to_vec()] {
        std::fs::write(&meta, bad).unwrap();
        let error = WriteSetLog::open(DirStorage::new(dir.path()).unwrap(), &options()).err().unwrap();
        assert!(matches!(error, StoreError::Damaged(_)) && error.to_string().contains("remove all files"), "{error}");
    }
    std::fs::remove_file(&meta).unwrap();
    let error = WriteSetLog::open(DirStorage::new(dir.path()).unwrap(), &options()).err().unwrap();
    assert!(
        matches!(error, StoreError::Damaged(_)) && error.to_string().contains("there are segments but no"),
        "{error}"
    );
}

#[test]
fn segments_deleted_by_somebody_are_a_hole() {
    let dir = Dir::new();
    let (mut log, _) = open(&dir);
    log.reset(base()).unwrap();
    log.append(&(1..=500).map(|i| entry(i, 1, 1000)).collect::<Vec<_>>()).unwrap();
    log.close().unwrap();
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let path = file.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("trireme.0") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let (log, report) = open(&dir);
    assert!(report.hole.is_some() && report.suspect == Some(LogIndex(0)) && log.last() == LogIndex(0), "{report:?}");
    assert!(log.is_damaged());
}

#[test]
fn wrong_calls_are_refused_and_change_nothing() {
    let dir = Dir::new();
    let (mut log, _) = open(&dir);
    log.reset(base()).unwrap();
    log.append(&[entry(1, 1, 10), entry(2, 1, 10)]).unwrap();
    assert!(log.append(&[entry(4, 1, 10)]).is_err());
    assert!(log.append(&[entry(3, 1, 10), entry(3, 1, 10)]).is_err());
    assert!(log.truncate_after(LogIndex(3)).is_err());
    assert!(log.save_checkpoint(&Base { index: LogIndex(2), term: Term(9), seqno: Seqno(2), ..base() }).is_err());
    assert_eq!((log.last(), log.failed()), (LogIndex(2), None));
    log.append(&[entry(3, 1, 10)]).unwrap();
    assert_eq!(log.read(LogIndex(1), usize::MAX).unwrap(), [entry(1, 1, 10), entry(2, 1, 10), entry(3, 1, 10)]);
    assert_eq!(
        (log.index_of(Seqno(3)), log.index_of(Seqno(4)), log.index_of(Seqno(0))),
        (Some(LogIndex(3)), None, None)
    );
}

#[test]
fn inspect_sees_a_live_log_and_changes_nothing() {
    use trireme_wslog::inspect;
    let dir = Dir::new();
    let (mut log, _) = open(&dir);
    log.reset(base()).unwrap();
    let all: Vec<Entry> = (1..=200).map(|i| entry(i, 1, 1000)).collect();
    log.append(&all).unwrap();
    log.truncate_after(LogIndex(150)).unwrap();
    log.append(&[entry(151, 2, 5)]).unwrap();
    log.save_checkpoint(&Base { index: LogIndex(140), term: Term(1), seqno: Seqno(140), ..base() }).unwrap();
    let snapshot = || {
        let mut files: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|f| f.unwrap())
            .map(|f| (f.file_name(), std::fs::read(f.path()).unwrap()))
            .collect();
        files.sort();
        files
    };
    let before = snapshot();
    let storage = DirStorage::read_only(dir.path()).unwrap();
    let summary = inspect::summary(&storage, None).unwrap();
    assert_eq!(summary.meta.as_ref().unwrap().node, NODE);
    assert_eq!(summary.segments.last().unwrap().state, inspect::SegmentState::Cut);
    assert_eq!(summary.segments.last().unwrap().range.unwrap().from, LogIndex(151));
    assert!(summary.segments.len() >= 3 && summary.checkpoints.len() == 2);
    let verdict = inspect::verify(&storage, None, None).unwrap();
    assert_eq!((verdict.last, verdict.report.hole, verdict.report.torn_tail_cut), (LogIndex(151), None, false));
    assert_eq!(verdict.checkpoints, [(LogIndex(0), Seqno(0)), (LogIndex(140), Seqno(140))]);
    let mut seen = Vec::new();
    let range = trireme_wslog::IndexRange { from: LogIndex(149), to: LogIndex(160) };
    inspect::entries(&storage, Some(range), None, |e| {
        seen.push(e);
        true
    })
    .unwrap();
    assert_eq!(seen, [entry(149, 1, 1000), entry(150, 1, 1000), entry(151, 2, 5)]);
    assert!(snapshot() == before, "looking changed something");
    // Damage in the middle of what was synced is found.
    sync(&mut log);
    let first = dir.path().join(&summary.segments[0].name);
    let mut bytes = std::fs::read(&first).unwrap();
    bytes[5000] ^= 4;
    std::fs::write(&first, bytes).unwrap();
    let verdict = inspect::verify(&storage, None, None).unwrap();
    assert!(verdict.report.hole.is_some() || verdict.report.lost_history.is_some(), "{verdict:?}");
}

#[test]
fn a_directory_of_another_format_is_refused_by_name() {
    let dir = Dir::new();
    drop(open(&dir));
    let path = dir.path().join("trireme.meta.galera.cache");
    let mut bytes = std::fs::read(&path).unwrap();
    for copy in [0, 4096] {
        bytes[copy + 8..copy + 12].copy_from_slice(&1u32.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[copy..copy + 508]);
        bytes[copy + 508..copy + 512].copy_from_slice(&checksum.to_le_bytes());
    }
    std::fs::write(&path, &bytes).unwrap();
    let Err(error) = WriteSetLog::open(DirStorage::new(dir.path()).unwrap(), &options()) else {
        panic!("opened a directory of another format");
    };
    let text = error.to_string();
    assert!(matches!(error, StoreError::OtherVersion(_)), "{error:?}");
    assert!(text.contains("of format 1") && text.contains("formats 2 and 3"), "{text}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "nothing is changed");
}

#[test]
fn nobody_else_can_read_the_log_whatever_the_mask() {
    use std::os::unix::fs::MetadataExt;
    let dir = Dir::new();
    let (mut log, _) = open(&dir);
    log.append(&[entry(1, 1, 100)]).unwrap();
    drop(log);
    let mut files = 0;
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().mode();
        assert_eq!(mode & 0o007, 0, "{:?} has mode {mode:o}", file.file_name());
        files += 1;
    }
    assert!(files >= 3, "lock, metadata, segment");
}

#[test]
fn a_link_in_the_place_of_a_file_is_not_followed() {
    let (dir, elsewhere) = (Dir::new(), Dir::new());
    let (log, _) = open(&dir);
    drop(log);
    let target = elsewhere.path().join("precious");
    std::fs::write(&target, "untouched").unwrap();
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let path = file.unwrap().path();
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
    }
    assert!(WriteSetLog::open(DirStorage::new(dir.path()).unwrap(), &options()).is_err());
    assert_eq!(std::fs::read(&target).unwrap(), b"untouched");
}
