//! Two branches of one history can give the same index, term and seqno to different entries. A state of one is never taken for one of
//! the other, wherever the process or its power ends.

use bytes::Bytes;
use trireme_order::{LogStore, StoreError};
use trireme_types::{
    Base, Entry, EntryHeader, EntryKind, Fork, Lineage, LogIndex, NodeId, ProposalNumber, Seqno, Session, Term, Uuid,
};
use trireme_wslog::{Faults, Options, SimDisk, Trim, WriteSetLog};

const NODE: NodeId = NodeId(Uuid([9; 16]));
const HISTORY: Uuid = Uuid([3; 16]);

type Log = WriteSetLog<SimDisk>;

fn options(boot: u64) -> Options {
    Options {
        size: 64 << 10,
        segment_size_override: Some(4 << 10),
        slice_override: Some(1000),
        ..Options::new(NODE, format!("boot {boot}"))
    }
}

/// The state of a branch after entry `index`: its numbers are the other's too.
fn state(branch: u8, index: u64) -> Base {
    let fork = Fork { index: LogIndex(2), seqno: Seqno(2), id: Uuid([branch; 16]) };
    Base {
        history: HISTORY,
        index: LogIndex(index),
        term: Term(1),
        seqno: Seqno(index),
        lineage: Lineage::default().with(fork),
        app: Bytes::from(vec![branch; 100]),
        ..Base::default()
    }
}

fn entries(branch: u8, from: u64, to: u64) -> Vec<Entry> {
    (from..=to)
        .map(|index| Entry {
            header: EntryHeader {
                index: LogIndex(index),
                term: Term(1),
                seqno: Seqno(index),
                voters: LogIndex(1),
                session: Session { node: NODE, number: 1 },
                number: ProposalNumber(index),
                kind: EntryKind::WriteSet,
            },
            payload: Bytes::from(vec![branch; 300]),
        })
        .collect()
}

fn sync(log: &mut Log) -> Result<(), StoreError> {
    match log.begin_sync() {
        Some(ticket) => {
            let done = ticket.run()?;
            log.finish_sync(done)
        }
        None => Ok(()),
    }
}

/// A log of branch 1 with entries 1 to 40 and states at 10, 20 and 30, all on disk.
fn first_branch(seed: u64) -> (SimDisk, Log) {
    let disk = SimDisk::new(seed);
    let (mut log, _) = WriteSetLog::open(disk.clone(), &options(1)).unwrap();
    log.reset(state(1, 0)).unwrap();
    for upto in [10, 20, 30] {
        log.append(&entries(1, upto - 9, upto)).unwrap();
        log.save_checkpoint(&state(1, upto)).unwrap();
    }
    log.append(&entries(1, 31, 40)).unwrap();
    sync(&mut log).unwrap();
    (disk, log)
}

/// Reopens and answers of which branch the log is; everything in it is of that one.
fn branch_of(disk: &SimDisk, boot: u64) -> u8 {
    let (mut log, report) = WriteSetLog::open(disk.clone(), &options(boot)).unwrap();
    assert_eq!(report.hole, None, "{report:?}");
    let branch = log.base().app[0];
    check(&log, branch);
    // Nor may a state of the other branch become the base later.
    log.append(&entries(branch, log.last().0 + 1, log.last().0 + 1)).unwrap();
    sync(&mut log).unwrap();
    log.trim(Trim { keep_from: log.last(), bytes_max: Some(0) }).unwrap();
    check(&log, branch);
    drop(log);
    disk.kill();
    let (log, _) = WriteSetLog::open(disk.clone(), &options(boot)).unwrap();
    check(&log, branch);
    branch
}

fn check(log: &Log, branch: u8) {
    assert_eq!(*log.base(), state(branch, log.base().index.0));
    for seqno in log.base().seqno.0..=log.last().0 {
        let found = log.checkpoint_before(Seqno(seqno)).unwrap();
        assert_eq!(found, state(branch, found.index.0), "the state before seqno {seqno}");
    }
    let mut next = log.first();
    while next <= log.last() {
        for entry in log.read(next, 10_000).unwrap() {
            assert_eq!((entry.header.index, entry.payload[0]), (next, branch));
            next = next.next();
        }
    }
}

/// Dies at each write and each sync of `change`, by a kill and by a loss of power.
fn die_within(change: impl Fn(&mut Log) -> Result<(), StoreError>, mut each: impl FnMut(SimDisk, u64)) {
    for power in [false, true] {
        for syncs in [false, true] {
            for left in 0.. {
                let mut done = false;
                // The seed decides what a loss of power takes.
                for seed in 0..if power { 12 } else { 1 } {
                    let (disk, mut log) = first_branch(seed + 100 * left);
                    let faults = match syncs {
                        false => Faults { writes_left: Some(left), ..Faults::default() },
                        true => Faults { syncs_left: Some(left), ..Faults::default() },
                    };
                    disk.set_faults(faults);
                    done = change(&mut log).is_ok();
                    disk.set_faults(Faults::default());
                    drop(log);
                    if power {
                        disk.crash()
                    } else {
                        disk.kill()
                    }
                    each(disk, 1 + u64::from(power));
                }
                if done {
                    break;
                }
            }
        }
    }
}

#[test]
fn reset_to_another_branch_that_is_cut_off_changes_all_or_nothing() {
    for at in [0, 5, 20, 25, 40, 41] {
        let (mut before, mut after) = (0, 0);
        die_within(
            |log| log.reset(state(2, at)),
            |disk, boot| match branch_of(&disk, boot) {
                1 => before += 1,
                _ => after += 1,
            },
        );
        assert!(before > 5 && after > 5, "reset at {at}: {before} before, {after} after");
    }
}

#[test]
fn states_of_the_branch_before_a_reset_do_not_come_back_with_its_files() {
    die_within(
        |log| {
            log.reset(state(2, 5))?;
            log.append(&entries(2, 6, 35))?;
            log.begin_sync().into_iter().try_for_each(|ticket| ticket.run().map(drop))
        },
        |disk, boot| {
            branch_of(&disk, boot);
        },
    );
}

#[test]
fn states_above_a_cut_do_not_come_back_with_their_files() {
    for seed in 0..200 {
        let (disk, mut log) = first_branch(seed);
        log.truncate_after(LogIndex(15)).unwrap();
        log.append(&entries(2, 16, 35)).unwrap();
        // The seed decides which of the entries and of the removals are on disk.
        disk.crash();
        let (log, _) = WriteSetLog::open(disk, &options(2)).unwrap();
        for seqno in 16..=log.last().0 {
            let found = log.checkpoint_before(Seqno(seqno)).unwrap();
            assert!(found.index.0 <= 15, "seed {seed}: a state of the entries that were cut, at {}", found.index);
        }
    }
}

#[test]
fn base_without_entries_in_its_own_segment_stays_over_restarts() {
    let disk = SimDisk::new(1);
    let (mut log, _) = WriteSetLog::open(disk.clone(), &options(1)).unwrap();
    log.reset(state(1, 7)).unwrap();
    let large = Entry { payload: Bytes::from(vec![1; 9000]), ..entries(1, 8, 8).remove(0) };
    log.append(&[large]).unwrap();
    while log.written() < log.last() {
        log.write_on().unwrap();
    }
    log.truncate_after(LogIndex(7)).unwrap();
    log.append(&entries(1, 8, 9)).unwrap();
    drop(log);
    disk.kill();
    for _ in 0..3 {
        let (log, report) = WriteSetLog::open(disk.clone(), &options(1)).unwrap();
        assert_eq!((report.hole, log.base(), log.last()), (None, &state(1, 7), LogIndex(9)), "{report:?}");
        drop(log);
        disk.kill();
    }
}
