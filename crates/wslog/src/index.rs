//! Where every held entry lies: shared by the log, which changes it, and its readers.
//!
//! 32 bytes of memory per held entry; retention bounds their number (at most one per 96 bytes of log).

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use trireme_order::StoreError;
use trireme_types::{Entry, EntryHeader, LogIndex, Seqno, Term};

use crate::format::{RECORD_HEADER, RecordHeader, record_len};
use crate::seal::FileKey;
use crate::storage::{StorageFile, read_exact};

/// One held entry. Its index is its place in [`Held::slots`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    pub term: Term,
    pub seqno: Seqno,
    /// Number of the segment.
    pub segment: u64,
    /// Offset of the record in the segment, in units of 8 bytes.
    pub at: u32,
    /// As it is on disk, with its seal.
    pub payload_len: u32,
}

const _: () = assert!(std::mem::size_of::<Slot>() == 32);

impl Slot {
    /// Of a record at `offset`, whose payload has `stored` bytes there.
    pub fn new(header: &EntryHeader, segment: u64, offset: u64, stored: usize) -> Slot {
        Slot { term: header.term, seqno: header.seqno, segment, at: (offset / 8) as u32, payload_len: stored as u32 }
    }

    pub fn offset(&self) -> u64 {
        u64::from(self.at) * 8
    }
    pub fn record_len(&self) -> u64 {
        record_len(self.payload_len as usize)
    }
    pub fn end(&self) -> u64 {
        self.offset() + self.record_len()
    }
}

/// One segment of the log, in use.
#[derive(Clone)]
pub struct Segment<F> {
    pub number: u64,
    pub first: LogIndex,
    pub file: F,
    /// Bytes of the file.
    pub capacity: u64,
    /// `None`: in clear text.
    pub key: Option<Arc<FileKey>>,
}

/// The entries that are held now.
pub struct Held<F> {
    /// Index before the first entry held.
    pub base: LogIndex,
    pub slots: VecDeque<Slot>,
    /// In order of number and of first index; the last one takes the appends.
    pub segments: VecDeque<Segment<F>>,
    /// Entries that were appended and are in no file as yet, or not in whole: they follow the slots.
    pub unwritten: Unwritten,
}

/// Entries that wait in memory, in order, and their size.
#[derive(Default)]
pub struct Unwritten {
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl Unwritten {
    pub fn entries(&self) -> &VecDeque<Entry> {
        &self.entries
    }

    /// Of their payloads.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn extend(&mut self, entries: &[Entry]) {
        self.bytes += entries.iter().map(|entry| entry.payload.len()).sum::<usize>();
        self.entries.extend(entries.iter().cloned());
    }

    /// The first `n` are written.
    pub fn drop_first(&mut self, n: usize) {
        self.bytes -= self.entries.drain(..n).map(|entry| entry.payload.len()).sum::<usize>();
    }

    /// Forgets what comes after the first `n`.
    pub fn keep_first(&mut self, n: usize) {
        let kept = n.min(self.entries.len());
        self.bytes -= self.entries.drain(kept..).map(|entry| entry.payload.len()).sum::<usize>();
    }
}

impl<F> Held<F> {
    pub fn last(&self) -> LogIndex {
        LogIndex(self.base.0 + self.slots.len() as u64)
    }

    pub fn slot(&self, index: LogIndex) -> Option<&Slot> {
        let at = index.0.checked_sub(self.base.0)?.checked_sub(1)?;
        self.slots.get(usize::try_from(at).ok()?)
    }

    /// An entry that is not written yet.
    pub fn waiting(&self, index: LogIndex) -> Option<&Entry> {
        let at = index.0.checked_sub(self.last().0 + 1)?;
        self.unwritten.entries().get(usize::try_from(at).ok()?)
    }

    fn segment(&self, number: u64) -> Option<&Segment<F>> {
        let at = self.segments.binary_search_by_key(&number, |s| s.number).ok()?;
        self.segments.get(at)
    }
}

/// Shared by the log, its readers and its sync tickets.
pub struct Shared<F> {
    held: RwLock<Held<F>>,
    /// The first failure. Once set, everything is refused.
    failed: OnceLock<StoreError>,
}

impl<F: StorageFile> Shared<F> {
    pub fn new(held: Held<F>) -> Arc<Shared<F>> {
        Arc::new(Shared { held: RwLock::new(held), failed: OnceLock::new() })
    }

    // No code that runs under the lock can panic halfway through a change; a poisoned lock still guards a whole value.
    pub fn held(&self) -> RwLockReadGuard<'_, Held<F>> {
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn held_mut(&self) -> RwLockWriteGuard<'_, Held<F>> {
        self.held.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn check(&self) -> Result<(), StoreError> {
        match self.failed.get() {
            None => Ok(()),
            Some(first) => Err(StoreError::Failed(Box::new(first.clone()))),
        }
    }

    /// Remembers the first failure; returns `error`.
    pub fn fail(&self, error: StoreError) -> StoreError {
        let _ = self.failed.set(error.clone());
        error
    }

    pub fn failed(&self) -> Option<&StoreError> {
        self.failed.get()
    }

    /// Consecutive entries from `from`: at least one when held, then as many as fit into `max_bytes` of payload. The written
    /// entries and those that are not written yet may be answered one after the other.
    pub fn read(&self, from: LogIndex, max_bytes: usize) -> Result<Vec<Entry>, StoreError> {
        self.check()?;
        // First, as an entry that is written meanwhile is found in its file then.
        let mut out = self.waiting(from, max_bytes);
        if !out.is_empty() {
            return Ok(out);
        }
        let mut next = from;
        let mut budget = max_bytes as u64;
        while out.len() < READ_ENTRIES_MAX
            && let Some(chunk) = self.locate(next, budget, out.is_empty())
        {
            let entries = match chunk.load(next) {
                Ok(Some(entries)) => entries,
                // Trimmed, truncated or recycled under our hands, or damaged.
                Ok(None) if self.locate(next, budget, out.is_empty()).is_some_and(|now| now.slots == chunk.slots) => {
                    return Err(self.fail(StoreError::Damaged(format!(
                        "entry {next} in segment {} cannot be read back as it was written: the disk returned \
                         other bytes",
                        chunk.segment.number
                    ))));
                }
                Ok(None) => continue,
                Err(e) => return Err(self.fail(e)),
            };
            let mut over = false;
            for entry in entries {
                let len = entry.payload.len() as u64;
                over = len > budget;
                budget = budget.saturating_sub(len);
                next = entry.header.index.next();
                out.push(entry);
            }
            if over {
                break; // a single entry larger than asked for: nothing may join it
            }
        }
        Ok(out)
    }

    fn waiting(&self, from: LogIndex, max_bytes: usize) -> Vec<Entry> {
        let held = self.held();
        let mut out = Vec::new();
        let Some(at) = from.0.checked_sub(held.last().0 + 1) else { return out };
        let mut bytes = 0;
        for entry in held.unwritten.entries().iter().skip(usize::try_from(at).unwrap_or(usize::MAX)) {
            bytes += entry.payload.len();
            if !out.is_empty() && bytes > max_bytes {
                break;
            }
            out.push(entry.clone());
        }
        out
    }

    /// The longest run of records within one segment that begins with `from` and fits.
    fn locate(&self, from: LogIndex, budget: u64, first: bool) -> Option<Chunk<F>> {
        let held = self.held();
        let head = *held.slot(from)?;
        let segment = held.segment(head.segment)?.clone();
        let mut slots = Vec::new();
        let mut payload = 0;
        let skip = (from.0 - held.base.0 - 1) as usize;
        for slot in held.slots.range(skip..) {
            let fits = payload + u64::from(slot.payload_len) <= budget || (first && slots.is_empty());
            let near = slot.segment == head.segment && (slots.is_empty() || slot.end() - head.offset() <= CHUNK_MAX);
            if !fits || !near {
                break;
            }
            payload += u64::from(slot.payload_len);
            slots.push(*slot);
            if payload > budget {
                break;
            }
        }
        (!slots.is_empty()).then_some(Chunk { segment, slots })
    }
}

/// Most entries in one answer (or little more): entries without payload cost memory too. A caller that wants more asks
/// again.
const READ_ENTRIES_MAX: usize = 1 << 16;
/// Most bytes read at once, unless a single entry is larger.
const CHUNK_MAX: u64 = 1 << 20;

struct Chunk<F> {
    segment: Segment<F>,
    slots: Vec<Slot>,
}

impl<F: StorageFile> Chunk<F> {
    /// `None` when the bytes are not those of the entries expected.
    fn load(&self, from: LogIndex) -> Result<Option<Vec<Entry>>, StoreError> {
        let (Some(head), Some(tail)) = (self.slots.first(), self.slots.last()) else { return Ok(None) };
        let start = head.offset();
        let Some(buf) = read_exact(&self.segment.file, start, (tail.end() - start) as usize)? else { return Ok(None) };
        let buf = Bytes::from(buf);
        let mut out = Vec::with_capacity(self.slots.len());
        let mut index = from;
        for slot in &self.slots {
            let at = (slot.offset() - start) as usize;
            let Some(header) = RecordHeader::decode(&buf[at..], self.segment.number) else { return Ok(None) };
            let payload = buf.slice(at + RECORD_HEADER..at + RECORD_HEADER + slot.payload_len as usize);
            let same = header.payload_len == slot.payload_len
                && header.entry.index == index
                && header.entry.term == slot.term
                && header.payload_crc == crc32fast::hash(&payload);
            if !same {
                return Ok(None);
            }
            let payload = match &self.segment.key {
                None => payload,
                Some(key) => match header.open(self.segment.number, key, &payload)? {
                    Some(payload) => payload,
                    None => return Ok(None),
                },
            };
            out.push(Entry { header: header.entry, payload });
            index = index.next();
        }
        Ok(Some(out))
    }
}
