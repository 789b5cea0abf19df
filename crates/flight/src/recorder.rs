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
        Recorder { queue: None, term: AtomicU64::new(0), dropped: AtomicU64::new(0) }
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

    fn put(&self, index: Option<LogIndex>, late: bool, event: Event) {
        let Some(queue) = &self.queue else { return };
        let term = Term(self.term.load(Relaxed));
        let record = Record { sequence: 0, unix_ns: unix_ns(), term, index, late, event };
        // Nobody waits at the other end, so nobody has to be woken: no system call.
        if queue.try_send(record).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    /// What was dropped since the last call.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Relaxed)
    }
}

impl Incoming {
    /// What has come, oldest first.
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
