//! The write-set log: what it makes of damaged files, and whether it keeps its promises whatever is asked of it in which order.

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use trireme_order::{LogStore, StoreError};
use trireme_types::{
    Base, Entry, EntryHeader, EntryKind, HardState, LogIndex, NodeId, ProposalNumber, Seqno, Session, Term, Uuid,
};
use trireme_wslog::{Options, SimDisk, Storage, StorageFile, WriteSetLog, fuzzing, inspect};

/// The model of the log's own tests.
#[path = "../../wslog/tests/log/model/world.rs"]
#[allow(dead_code)]
mod world;

/// Operations of the log, on a failing disk, with ends of the process and restarts, against the model of the log's own tests: the
/// bytes are its choices.
pub fn operations(data: &[u8]) {
    let Some((&seed, choices)) = data.split_first() else { return };
    let mut world = world::World::with_choices(u64::from(seed), choices.to_vec());
    for _ in 0..12 {
        if world.rng.spent() {
            break;
        }
        world.life();
    }
}

pub fn operation_seeds() -> Vec<Vec<u8>> {
    crate::noise(8, 400)
}

const NODE: NodeId = NodeId(Uuid([9; 16]));

fn options() -> Options {
    Options { size: 64 << 10, segment_size_override: Some(4 << 10), ..Options::new(NODE, "boot") }
}

/// A log is written and ends in some way; then its files are damaged, and their checksums made right again or not. Opening
/// answers with a log or an error; a log that opened can be read from end to end, goes on, and is the same when it is opened again.
/// Looking at it (`trireme log`) finds what opening finds.
pub fn recovery(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let disk = SimDisk::new(1);
    // Bytes that run out end the choices, not the test.
    let _ = write(&mut u, &disk);
    let _ = damage(&mut u, &disk);
    let looked = inspect::verify(&disk, Some("boot"), None);
    let _ = inspect::summary(&disk, None);
    let _ = inspect::entries(&disk, None, None, |_| true);
    match WriteSetLog::open(disk.clone(), &options()) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok((mut log, report)) => {
            if let Ok(looked) = looked {
                let base = Base { app: Bytes::new(), ..log.base().clone() };
                assert_eq!((looked.base, looked.last), (base, log.last()), "{report:?}");
            }
            go_on(&mut log).expect("a log that opened works");
            let (base, last, hard) = (log.base().clone(), log.last(), log.hard_state());
            drop(log);
            disk.kill();
            let (log, report) = WriteSetLog::open(disk, &options()).expect("what was opened once opens again");
            assert_eq!((log.base(), log.last(), log.hard_state()), (&base, last, hard), "{report:?}");
        }
    }
}

fn go_on(log: &mut WriteSetLog<SimDisk>) -> std::result::Result<(), StoreError> {
    let mut next = log.first();
    while next <= log.last() {
        let read = log.read(next, 2000)?;
        assert!(!read.is_empty(), "{next} of {}", log.last());
        for entry in read {
            assert_eq!(entry.header.index, next);
            assert!(log.term_at(next).is_some());
            next = next.next();
        }
    }
    let _ = log.checkpoint_before(Seqno(u64::MAX));
    // Positions at the end of all numbers cannot be gone on from; the order refuses them before.
    if log.last().0 < u64::MAX - 2 && log.base().seqno.0 < u64::MAX - 2 {
        let (term, seqno) = state(log);
        log.append(&[entry(log.last().next(), term, seqno.next(), b"more")])?;
        if let Some(ticket) = log.begin_sync() {
            log.finish_sync(ticket.run()?)?;
        }
    }
    log.save_hard_state(HardState { term: Term(1 << 20), ..log.hard_state() })
}

/// After the last entry.
fn state(log: &WriteSetLog<SimDisk>) -> (Term, Seqno) {
    let last = log.read(log.last(), 1).expect("a disk that works");
    last.first().map_or((log.base().term, log.base().seqno), |e| (e.header.term, e.header.seqno))
}

fn entry(index: LogIndex, term: Term, seqno: Seqno, payload: &[u8]) -> Entry {
    let header = EntryHeader {
        index,
        term,
        seqno,
        voters: LogIndex(1),
        session: Session { node: NODE, number: 1 },
        number: ProposalNumber(index.0),
        kind: EntryKind::WriteSet,
    };
    Entry { header, payload: Bytes::copy_from_slice(payload) }
}

fn write(u: &mut Unstructured<'_>, disk: &SimDisk) -> Result<()> {
    let (mut log, _) = WriteSetLog::open(disk.clone(), &options()).expect("an empty disk");
    for _ in 0..u.int_in_range(0..=24)? {
        let last = log.last();
        let (term, seqno) = state(&log);
        match u.int_in_range(0..=9u8)? {
            0..=5 => {
                let len = below(u, 2000)?;
                log.append(&[entry(last.next(), term, seqno.next(), &vec![last.0 as u8; len])]).expect("room");
            }
            6 => {
                if let Some(ticket) = log.begin_sync() {
                    log.finish_sync(ticket.run().expect("a disk that works")).expect("a disk that works");
                }
            }
            7 => {
                let back = u64::from(u.int_in_range(0..=3u8)?).min(last.0 - log.base().index.0);
                log.truncate_after(LogIndex(last.0 - back)).expect("a disk that works");
            }
            8 => {
                let base = Base { index: last, term, seqno, ..log.base().clone() };
                if last > log.base().index {
                    log.save_checkpoint(&base).expect("a disk that works");
                }
            }
            _ => {
                let base = Base { index: last, term: term.next(), seqno, history: Uuid([4; 16]), ..Base::default() };
                log.reset(base).expect("a disk that works");
            }
        }
    }
    match u.int_in_range(0..=2u8)? {
        0 => log.close().expect("a disk that works"),
        1 => disk.kill(),
        _ => disk.crash(),
    }
    Ok(())
}

fn below(u: &mut Unstructured<'_>, limit: usize) -> Result<usize> {
    Ok(usize::from(u.arbitrary::<u16>()?) % limit)
}

fn damage(u: &mut Unstructured<'_>, disk: &SimDisk) -> Result<()> {
    disk.kill();
    for _ in 0..u.int_in_range(1..=4u8)? {
        let mut names = disk.list().expect("a disk that works");
        names.sort();
        if names.is_empty() {
            return Ok(());
        }
        let name = u.choose(&names)?.clone();
        let mut content = disk.content(&name).unwrap_or_default();
        let used = content.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
        match u.int_in_range(0..=5u8)? {
            0 => {
                disk.remove(&name).expect("a disk that works");
                continue;
            }
            1 => content.truncate(below(u, content.len() + 1)?),
            2 => {
                // Another file's place, or a name that nobody gave.
                let to = match u.choose_index(names.len() + 1)? {
                    n if n < names.len() => names[n].clone(),
                    _ => format!("trireme.{:08}.galera.cache", u.arbitrary::<u8>()?),
                };
                disk.rename(&name, &to).expect("a disk that works");
                continue;
            }
            _ => {
                for _ in 0..u.int_in_range(1..=3u8)? {
                    let at = below(u, used + 16)?;
                    let len = u.int_in_range(1..=8usize)?.min(u.len());
                    let with = u.bytes(len)?.to_vec();
                    if content.len() >= at + with.len() {
                        content[at..at + with.len()].copy_from_slice(&with);
                    }
                }
            }
        }
        if u.arbitrary()? {
            fuzzing::seal(&name, &mut content);
        }
        let file = disk.create(&name).expect("a disk that works");
        file.write_at(0, &content).and_then(|()| file.sync()).expect("a disk that works");
        disk.sync_dir().expect("a disk that works");
    }
    Ok(())
}

pub fn recovery_seeds() -> Vec<Vec<u8>> {
    crate::noise(12, 90)
}
