//! A log in a real directory that is written past the page cache: by io_uring, where this machine has it.

use std::os::fd::AsRawFd;

use bytes::Bytes;
use trireme_order::LogStore;
use trireme_types::{Base, Durability, Entry, LogIndex, NodeId, SplitMix, Uuid};
use trireme_wslog::{DirStorage, KEY_BYTES, LogKeys, Options, WriteSetLog, inspect};

use crate::support::dir::Dir;
use crate::support::entries;

const NODE: NodeId = NodeId(Uuid([7; 16]));

type Log = WriteSetLog<DirStorage>;

/// Where a log lies, and its key if it has one.
struct Place {
    dir: Dir,
    keys: Option<LogKeys>,
}

impl Place {
    fn new(keys: Option<LogKeys>) -> Place {
        Place { dir: Dir::new(), keys }
    }

    fn open(&self) -> Log {
        let options = Options { size: 8 << 20, keys: self.keys.clone(), ..Options::new(NODE, "boot") };
        let (log, report) = WriteSetLog::open(DirStorage::new(self.dir.path()).unwrap(), &options).unwrap();
        assert_eq!((report.hole, report.torn_tail_cut), (None, false));
        log
    }
}

/// `None`, and says why, where there is no such way: then nothing can be tested.
fn directly(mut log: Log) -> Option<Log> {
    match log.direct_writer() {
        Ok(writer) => {
            log.write_past_cache(writer);
            Some(log)
        }
        Err(why) => {
            eprintln!("SKIPPED: {why}");
            None
        }
    }
}

/// Every byte tells its place: one that lands elsewhere in a page is seen.
fn entry(index: u64, len: usize) -> Entry {
    let payload: Vec<u8> = (0..len).map(|at| (at as u64 ^ index) as u8).collect();
    Entry { payload: Bytes::from(payload), ..entries::entry(index, 1, 0) }
}

/// As a node's group thread does it. Was it written past the cache?
fn sync(log: &mut Log) -> bool {
    if log.begin_write().unwrap().is_some() {
        let watched = log.readable().unwrap().as_raw_fd();
        let done = loop {
            if let Some(done) = log.finish_write() {
                break done.unwrap();
            }
            let mut poll = libc::pollfd { fd: watched, events: libc::POLLIN, revents: 0 };
            let mut count = [0u8; 8];
            // SAFETY: one valid entry; eight bytes.
            let ready =
                unsafe { (libc::poll(&mut poll, 1, 10_000), libc::read(watched, count.as_mut_ptr().cast(), 8)) };
            assert_eq!(ready, (1, 8), "the end of a write is told");
        };
        assert_eq!((log.written(), log.synced()), (done.upto, done.upto));
        return true;
    }
    if let Some(ticket) = log.begin_sync() {
        log.finish_sync(ticket.run().unwrap()).unwrap();
    }
    false
}

fn check(log: &Log, lengths: &[usize]) {
    let mut next = log.first();
    assert_eq!(next, LogIndex(1));
    while next <= log.last() {
        let read = log.read(next, 100_000).unwrap();
        assert!(!read.is_empty());
        for found in read {
            assert_eq!(found, entry(next.0, lengths[next.0 as usize - 1]));
            next = next.next();
        }
    }
    assert_eq!(next.0, lengths.len() as u64 + 1);
}

#[test]
fn what_is_written_past_the_cache_is_read_through_it() {
    write_and_read(Place::new(None));
}

#[test]
fn what_is_written_past_the_cache_is_sealed_where_there_is_a_key() {
    write_and_read(Place::new(Some(LogKeys::new(&[[5; KEY_BYTES]]).unwrap())));
}

fn write_and_read(place: Place) {
    let mut log = place.open();
    log.reset(Base { history: Uuid([1; 16]), ..Base::default() }).unwrap();
    let Some(mut log) = directly(log) else { return };
    let mut reader = log.reader();
    let mut rng = SplitMix(1);
    let mut lengths = Vec::new();
    let (mut past, mut all) = (0, 0);
    for round in 0..600 {
        let entries: Vec<Entry> = (0..1 + rng.below(4))
            .map(|_| {
                let len = match rng.below(60) {
                    0 => 700_000,
                    1..=4 => rng.below(70_000) as usize,
                    // Ends at a page now and then.
                    5..=9 => 4096 - 96,
                    _ => rng.below(900) as usize,
                };
                lengths.push(len);
                entry(lengths.len() as u64, len)
            })
            .collect();
        log.append(&entries).unwrap();
        // Another thread's way to what may be in no file as yet, and to what was written just before.
        for back in [0, 1, 5] {
            let index = (lengths.len() as u64).saturating_sub(back).max(1);
            let found = reader.get(LogIndex(index)).unwrap();
            if log.wants_write_on() && found.is_none() {
                continue;
            }
            assert_eq!(found, Some(entry(index, lengths[index as usize - 1])));
        }
        if rng.below(3) > 0 {
            while log.wants_write_on() {
                log.write_on().unwrap();
            }
            all += 1;
            past += u32::from(sync(&mut log));
        }
        if let Some(ticket) = log.begin_spare() {
            log.finish_spare(ticket.run()).unwrap();
        }
        if round % 200 == 199 {
            // Killed: what is not synced may be gone.
            while log.synced() < log.last() {
                while log.wants_write_on() {
                    log.write_on().unwrap();
                }
                sync(&mut log);
            }
            // A reader of the files alone sees it too.
            let looked =
                inspect::verify(&DirStorage::read_only(place.dir.path()).unwrap(), None, place.keys.as_ref()).unwrap();
            assert_eq!((looked.last, looked.report.hole), (log.last(), None));
            drop(log);
            log = directly(place.open()).unwrap();
            check(&log, &lengths);
            reader = log.reader();
        }
    }
    assert!(past * 2 > all, "only {past} of {all} went past the cache");
    let reader = log.reader();
    log.close().unwrap();
    drop(reader);
    check(&place.open(), &lengths);
}

#[test]
fn a_change_of_mode_writes_what_waits() {
    let place = Place::new(None);
    let mut log = place.open();
    log.reset(Base { history: Uuid([1; 16]), ..Base::default() }).unwrap();
    let Some(mut log) = directly(log) else { return };
    let mut lengths = vec![100];
    log.append(&[entry(1, 100)]).unwrap();
    while log.synced() < log.last() {
        sync(&mut log);
    }
    // One write under way, and more that waits.
    log.append(&[entry(2, 200)]).unwrap();
    assert_eq!(log.begin_write().unwrap(), Some(LogIndex(2)));
    log.append(&[entry(3, 300)]).unwrap();
    lengths.extend([200, 300]);
    assert_eq!((log.written(), log.held(), log.last()), (LogIndex(1), LogIndex(3), LogIndex(3)));
    log.set_durability(Durability::Process).unwrap();
    assert_eq!((log.written(), log.held()), (LogIndex(3), LogIndex(3)));
    // From here on an append is in its file on return.
    log.append(&[entry(4, 400)]).unwrap();
    lengths.push(400);
    assert_eq!(log.written(), LogIndex(4));
    assert_eq!(log.begin_write().unwrap(), None);
    drop(log);
    check(&place.open(), &lengths);
}
