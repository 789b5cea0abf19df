//! From the threads of a node to the one that writes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};

use trireme_types::{LogIndex, Term};

use crate::event::Event;
use crate::record::Record;

/// Events that wait to be written, at most: some 50 ms of a storm. More are dropped and counted.
const QUEUE: usize = 4096;

/// Any thread may note; nobody is waited for.
pub struct Recorder {
    queue: Option<SyncSender<Record>>,
    term: AtomicU64,
    dropped: AtomicU64,
    often: Often,
}

/// Events of kinds that may come in thousands, in one second; more are only counted, or they would push all else out of the file.
const OFTEN_MAX: u32 = 10;

/// How many came in the running second.
#[derive(Default)]
struct Often {
    /// The second in the upper half, the count in the lower.
    second: AtomicU64,
    more: AtomicU64,
}

impl Often {
    /// Is this one to be noted? `second`: since 1970.
    fn admit(&self, second: u64) -> bool {
        let second = second << 32;
        let before = self.second.load(Relaxed);
        let count = if before & !u64::from(u32::MAX) == second { before as u32 } else { 0 };
        if count >= OFTEN_MAX {
            self.more.fetch_add(1, Relaxed);
            return false;
        }
        // Two at the same time may count as one.
        self.second.store(second | u64::from(count + 1), Relaxed);
        true
    }
}

/// The other end.
pub struct Incoming {
    queue: Receiver<Record>,
}

/// Nanoseconds since 1970, by the clock of the machine.
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

impl Recorder {
    /// One that notes nothing.
    pub fn off() -> Recorder {
        Recorder { queue: None, term: AtomicU64::new(0), dropped: AtomicU64::new(0), often: Often::default() }
    }

    pub fn new() -> (Recorder, Incoming) {
        let (send, queue) = sync_channel(QUEUE);
        (Recorder { queue: Some(send), ..Recorder::off() }, Incoming { queue })
    }

    pub fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// The term that the node knows from now on.
    pub fn set_term(&self, term: Term) {
        self.term.store(term.0, Relaxed);
    }

    pub fn note(&self, event: Event) {
        self.put(None, false, event);
    }

    /// Of the entry at `index`. `late`: it is read later than it was ordered.
    pub fn note_at(&self, index: LogIndex, late: bool, event: Event) {
        self.put(Some(index), late, event);
    }

    /// Of a kind that may come in thousands: `index` if it is of an entry.
    pub fn note_often(&self, index: Option<LogIndex>, event: impl FnOnce() -> Event) {
        if self.is_on() && self.often.admit(unix_ns() / 1_000_000_000) {
            self.put(index, false, event());
        }
    }

    fn put(&self, index: Option<LogIndex>, late: bool, event: Event) {
        let Some(queue) = &self.queue else { return };
        let term = Term(self.term.load(Relaxed));
        let record = Record { sequence: 0, unix_ns: unix_ns(), term, index, late, event };
        // Nobody waits at the other end, so nobody has to be woken: no system call.
        if queue.try_send(record).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    /// How many [`Recorder::note_often`] only counted since the last call.
    pub fn take_more(&self) -> u64 {
        self.often.more.swap(0, Relaxed)
    }

    /// The number of events that were dropped since the last call.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Relaxed)
    }
}

impl Incoming {
    /// The events that have come, oldest first.
    pub fn take(&self, into: &mut Vec<Record>) {
        loop {
            match self.queue.try_recv() {
                Ok(record) => into.push(record),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
            if into.len() >= 2 * QUEUE {
                // The rest with the next batch: a storm must not be written without end.
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_of_one_kind_is_counted_and_the_next_second_is_another() {
        let often = Often::default();
        let second = 1_800_000_000;
        assert_eq!((0..100).filter(|_| often.admit(second)).count(), OFTEN_MAX as usize);
        assert_eq!(often.more.load(Relaxed), 90);
        assert!(often.admit(second + 1));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let (recorder, incoming) = Recorder::new();
        recorder.set_term(Term(4));
        for _ in 0..QUEUE + 10 {
            recorder.note(Event::Stopped {});
        }
        assert_eq!((recorder.take_dropped(), recorder.take_dropped()), (10, 0));
        let mut records = Vec::new();
        incoming.take(&mut records);
        assert_eq!((records.len(), records[0].term, records[0].index), (QUEUE, Term(4), None));
        recorder.note_at(LogIndex(7), true, Event::Stopped {});
        incoming.take(&mut records);
        assert_eq!((records.len(), records[QUEUE].index, records[QUEUE].late), (QUEUE + 1, Some(LogIndex(7)), true));
        let off = Recorder::off();
        off.note(Event::Stopped {});
        assert_eq!((off.is_on(), off.take_dropped()), (false, 0));
    }
}
