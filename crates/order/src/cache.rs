//! Recent entries and unordered bodies in memory, both bounded.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use trireme_types::{Entry, LogIndex, SessionMark};

/// A payload up to this size is copied into the cache. It may be a part of a buffer with much else, which it would keep as long as itself: one
/// small write in a minute would keep the heartbeats of that minute.
const COPIED_MAX: usize = 16 << 10;

/// Bodies that are not ordered yet, and entries that are about to be delivered.
#[derive(Default)]
pub(crate) struct Memory {
    /// Bodies that their origins have sent, and that are not in the log yet.
    pub unordered: BodyPool,
    /// Entries read back from the log that are the next to be delivered.
    pub ahead: VecDeque<Entry>,
}

/// The newest entries of the log, so that replication and delivery need not read it back. Older ones are read from the store, but
/// none that is not delivered: to read back a large one would hold up everything else. Their number is bounded by what clients
/// wait for.
#[derive(Default)]
pub(crate) struct TailCache {
    /// Consecutive, up to the end of the log.
    entries: VecDeque<Entry>,
    /// Of their payloads.
    bytes: usize,
}

impl TailCache {
    /// Of what is delivered no more than `bytes_max` of payload stays.
    pub fn push(&mut self, mut entry: Entry, delivered: LogIndex, bytes_max: usize) {
        if self.entries.back().is_some_and(|last| last.header.index.next() != entry.header.index) {
            self.clear();
        }
        if entry.payload.len() <= COPIED_MAX {
            entry.payload = Bytes::copy_from_slice(&entry.payload);
        }
        self.bytes += entry.payload.len();
        self.entries.push_back(entry);
        while self.bytes > bytes_max && self.entries.front().is_some_and(|old| old.header.index <= delivered) {
            if let Some(old) = self.entries.pop_front() {
                self.bytes -= old.payload.len();
            }
        }
    }

    pub fn get(&self, index: LogIndex) -> Option<&Entry> {
        let first = self.entries.front()?.header.index;
        self.entries.get(index.0.checked_sub(first.0)? as usize)
    }

    pub fn truncate_after(&mut self, index: LogIndex) {
        while self.entries.back().is_some_and(|e| e.header.index > index) {
            if let Some(gone) = self.entries.pop_back() {
                self.bytes -= gone.payload.len();
            }
        }
    }

    pub fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }
}

/// Bodies received from their origins and not yet ordered.
#[derive(Default)]
pub(crate) struct BodyPool {
    bodies: HashMap<SessionMark, Bytes>,
    /// In which they came. May name some that are gone.
    order: VecDeque<SessionMark>,
    /// Of all bodies.
    bytes: usize,
}

impl BodyPool {
    /// Beyond `bytes_max` the oldest go: the sequencer hands out what is missing.
    pub fn insert(&mut self, mark: SessionMark, body: Bytes, bytes_max: usize) {
        self.bytes += body.len();
        if let Some(old) = self.bodies.insert(mark, body) {
            self.bytes -= old.len();
        } else {
            self.order.push_back(mark);
        }
        while self.bytes > bytes_max {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some(old) = self.bodies.remove(&oldest) {
                self.bytes -= old.len();
            }
        }
        // Bodies leave by `take`, their places in the order stay: sweep now and then.
        if self.order.len() > 2 * self.bodies.len() + 64 {
            self.order.retain(|key| self.bodies.contains_key(key));
        }
    }

    pub fn get(&self, mark: SessionMark) -> Option<&Bytes> {
        self.bodies.get(&mark)
    }

    pub fn remove(&mut self, mark: SessionMark) {
        if let Some(old) = self.bodies.remove(&mark) {
            self.bytes -= old.len();
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use trireme_types::{EntryHeader, EntryKind, Seqno, Session, Term};

    use super::*;

    #[test]
    fn a_small_payload_does_not_keep_what_was_received_with_it() {
        let received = Bytes::from(vec![7; 64 << 10]);
        let mut cache = TailCache::default();
        let payload = received.slice(100..300);
        let (index, session) = (LogIndex(1), Session::default());
        let header = EntryHeader {
            index,
            term: Term(1),
            seqno: Seqno(1),
            voters: index,
            session,
            number: trireme_types::ProposalNumber(1),
            kind: EntryKind::App,
        };
        cache.push(Entry { header, payload: payload.clone() }, index, 1 << 20);
        assert_eq!(cache.get(index).unwrap().payload, payload);
        drop(payload);
        assert!(received.is_unique());
    }
}
