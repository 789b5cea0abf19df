//! A sync fails in mode `process`, and the kernel drops what it could not write; then the process is started again on the same boot. And a write
//! fails of what has waited for a write past the page cache.

use trireme_order::LogStore;
use trireme_types::{Base, Durability, HardState, LogIndex, NodeId, Uuid};
use trireme_wslog::{Faults, OpenReport, Options, SimDisk, WriteSetLog};

use crate::support::entries::entry;

fn options() -> Options {
    Options { size: 1 << 20, segment_size_override: Some(64 << 10), ..Options::new(NodeId(Uuid([9; 16])), "boot 1") }
}

fn open(disk: &SimDisk) -> (WriteSetLog<SimDisk>, OpenReport) {
    WriteSetLog::open(disk.clone(), &options()).unwrap()
}

/// A log of mode `process` with five synced entries and five that were written, and acknowledged, after them; its next sync fails.
fn failed(disk: &SimDisk) -> WriteSetLog<SimDisk> {
    let (mut log, _) = open(disk);
    log.reset(Base { history: Uuid([5; 16]), ..Base::default() }).unwrap();
    log.set_durability(Durability::Process).unwrap();
    let sync = |log: &mut WriteSetLog<SimDisk>| {
        let done = log.begin_sync().expect("something is to be synced").run()?;
        log.finish_sync(done)
    };
    log.append(&(1..=5).map(|index| entry(index, 1, 1000)).collect::<Vec<_>>()).unwrap();
    sync(&mut log).unwrap();
    log.append(&(6..=10).map(|index| entry(index, 1, 1000)).collect::<Vec<_>>()).unwrap();
    disk.set_faults(Faults { syncs_left: Some(0), ..Faults::default() });
    sync(&mut log).unwrap_err();
    disk.set_faults(Faults::default());
    log
}

#[test]
fn what_a_failed_sync_may_have_lost_is_suspect_for_the_next_process() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let mut log = failed(&disk);
        assert_eq!(log.doubt().unwrap(), Some(LogIndex(5)));
        assert_eq!(log.doubt().unwrap(), Some(LogIndex(5)), "once more changes nothing");
        drop(log);
        // The pages are gone, and the boot is the same.
        disk.crash();
        let (log, report) = open(&disk);
        assert!(log.last() >= LogIndex(5));
        assert!(!report.rebooted);
        assert_eq!(report.suspect, Some(LogIndex(5)), "seed {seed}, up to {}", log.last());
    }
}

/// The process goes on by itself, and sees what is missing.
#[test]
fn doubt_goes_when_the_same_process_finds_all_of_it() {
    let disk = SimDisk::new(1);
    let mut log = failed(&disk);
    log.doubt().unwrap();
    log.let_go();
    let (mut again, report) = open(&disk);
    assert_eq!((again.last(), report.suspect), (LogIndex(10), Some(LogIndex(5))));
    assert_eq!(again.succeed(&log).unwrap(), None);
    assert_eq!(again.suspect(), None);
}

/// A disk forgot what the log had noted of itself. The process has not.
#[test]
fn marks_are_kept_by_the_process_where_the_disk_forgot_them() {
    let disk = SimDisk::new(3);
    let (mut log, _) = open(&disk);
    let forgotten = log.hard_state();
    let marked = HardState { voters_committed: LogIndex(4), committed: LogIndex(5), ..forgotten };
    log.save_hard_state(marked).unwrap();
    log.set_suspect(Some(LogIndex(0))).unwrap();
    log.set_outdated(true).unwrap();
    log.append(&[entry(1, 1, 1000)]).unwrap();
    disk.set_faults(Faults { syncs_left: Some(0), ..Faults::default() });
    log.sync_all().unwrap_err();
    disk.set_faults(Faults::default());
    assert!(log.let_go());
    let (mut again, _) = open(&disk);
    again.save_hard_state(forgotten).unwrap();
    again.set_suspect(None).unwrap();
    assert!(!again.is_outdated());
    again.succeed(&log).unwrap();
    assert_eq!(again.hard_state(), marked);
    assert!(again.is_outdated());
}

/// The disk comes back without entries that it had synced: a change of the voters may be among them.
#[test]
fn a_disk_that_lost_what_was_synced_may_lack_voters() {
    for left in [4, 5] {
        let mut log = failed(&SimDisk::new(1));
        log.let_go();
        let (mut again, _) = open(&SimDisk::new(2));
        again.reset(log.base().clone()).unwrap();
        again.append(&(1..=left).map(|index| entry(index, 1, 1000)).collect::<Vec<_>>()).unwrap();
        assert!(again.succeed(&log).unwrap().is_some());
        assert_eq!((again.suspect(), again.is_outdated()), (Some(LogIndex(left)), left < 5));
    }
}

/// The limit: a disk that takes nothing any more takes no note either. Then nothing on it tells the next process, and the peers have to:
/// they have seen what was acknowledged (rule 12).
#[test]
fn a_disk_that_takes_nothing_takes_no_note() {
    let disk = SimDisk::new(2);
    let mut log = failed(&disk);
    disk.set_faults(Faults { read_only: true, ..Faults::default() });
    log.doubt().unwrap_err();
    drop(log);
    disk.set_faults(Faults::default());
    disk.crash();
    let (log, report) = open(&disk);
    assert!(log.last() <= LogIndex(10) && report.suspect.is_none());
}

#[test]
fn in_mode_disk_nothing_acknowledged_is_in_doubt() {
    let disk = SimDisk::new(3);
    let (mut log, _) = open(&disk);
    log.reset(Base { history: Uuid([5; 16]), ..Base::default() }).unwrap();
    log.append(&[entry(1, 1, 1000)]).unwrap();
    disk.set_faults(Faults { syncs_left: Some(0), ..Faults::default() });
    log.begin_sync().unwrap().run().unwrap_err();
    assert_eq!(log.doubt().unwrap(), None);
}

/// A member's own idea of where its log ends, which has these entries already, is compared with it.
#[test]
fn what_waited_for_a_write_that_fails_is_counted_once() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk);
    log.reset(Base { history: Uuid([5; 16]), ..Base::default() }).unwrap();
    log.write_past_cache(disk.direct_writer());
    log.append(&[entry(1, 1, 100)]).unwrap();
    assert_eq!(log.begin_write().unwrap(), None);
    let _ticket = log.begin_sync().unwrap();
    log.append(&[entry(2, 1, 100), entry(3, 1, 100)]).unwrap();
    assert_eq!((log.written(), log.held(), log.last()), (LogIndex(1), LogIndex(3), LogIndex(3)), "they wait");
    disk.set_faults(Faults { writes_left: Some(0), ..Faults::default() });
    // The ticket is not back, so they go by the cache.
    log.begin_write().unwrap_err();
    assert_eq!((log.written(), log.held(), log.last()), (LogIndex(1), LogIndex(3), LogIndex(3)));
    assert!(log.let_go());
    assert_eq!((log.written(), log.held(), log.last()), (LogIndex(1), LogIndex(3), LogIndex(3)));
}
