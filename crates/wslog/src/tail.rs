//! The way of appends past the page cache: what is appended waits in memory, and goes to the disk in one write that is durable when it is done. No
//! thread waits for it.
//!
//! Only the end of the newest segment is written so, and only small records. Everything else goes by the page cache and a sync ticket: the first
//! records of a segment, large ones, checkpoints, names. A page of a file is never written in both ways without a sync in between.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use trireme_order::{LogStore, StoreError};
use trireme_types::{Durability, Entry, LogIndex};

use crate::dir::{DirStorage, WriteWatch};
use crate::direct::{DirectWriter, PAGE, PAGES_MAX, Pages};
use crate::error::NoDirectWriter;
use crate::format::{RecordHeader, TERMINATOR, record_len};
use crate::index::Slot;
use crate::log::{COALESCE_MAX, WriteSetLog};
use crate::storage::{Storage, read_exact};
use crate::sync::Synced;
use crate::uring::RingWriter;

/// Most bytes that wait in memory for a disk that does not answer. More waits in the page cache, whose bound is the system's: there the thread is
/// stopped by the disk.
const WAITING_MAX: usize = 256 << 20;

/// The way past the page cache, when the log has one.
pub(crate) struct PastCache<F> {
    writer: Box<dyn DirectWriter<F>>,
    way: Way,
}

/// How an append gets into its file at this moment.
enum Way {
    /// Into the page cache, at once.
    Cached,
    /// It waits in memory: a ticket covers everything that is in the page cache.
    Settling,
    /// It waits in memory for the next write. The page cache holds nothing that is not on the disk.
    Clean(Tail),
    /// It waits in memory while that is under way.
    Flight(Flight),
}

/// The end of the log as it is on the disk, from the page on in which it lies.
struct Tail {
    pages: Pages,
    /// Offset of the first page in the segment.
    at: u64,
}

/// Records that are being written.
struct Flight {
    at: u64,
    /// From there to the end of the last record.
    len: usize,
    slots: Vec<Slot>,
    last: Entry,
    chain: u32,
    end: u64,
}

impl WriteSetLog<DirStorage> {
    /// Only the first watch counts.
    pub fn watch_writes(&self, watch: impl WriteWatch + 'static) {
        self.storage.watch_writes(Box::new(watch));
    }

    /// A way past the page cache for the calling thread, to be given to [`WriteSetLog::write_past_cache`].
    ///
    pub fn direct_writer(&self) -> Result<RingWriter, NoDirectWriter> {
        let lock = self.lock.as_ref().ok_or(NoDirectWriter::Failed)?;
        self.storage.direct_writer(lock)
    }
}

impl<S: Storage> WriteSetLog<S> {
    /// From now on what is appended in durability mode `disk` is written past the page cache, as far as that can be.
    pub fn write_past_cache(&mut self, writer: impl DirectWriter<S::File>) {
        assert!(!writer.is_under_way(), "a writer begins with nothing");
        self.past_cache = Some(PastCache { writer: Box::new(writer), way: Way::Cached });
    }

    /// Is there such a way?
    pub fn writes_past_cache(&self) -> bool {
        self.past_cache.is_some()
    }

    /// Nothing more is written past the page cache. Waits for what is under way, but no longer than `longest`; false: it still is, and nothing has
    /// changed.
    pub fn write_by_cache(&mut self, longest: Option<Duration>) -> bool {
        if self.shared.failed().is_none() {
            // A failure of the disk is the log's failure.
            let _ = self.guarded(|log| log.land_within(longest));
        } else if let Some(past) = &mut self.past_cache {
            let _ = past.writer.wait(longest);
        }
        if self.is_under_way() {
            return false;
        }
        if self.shared.failed().is_none() {
            let _ = self.guarded(|log| log.write_all());
        }
        self.past_cache = None;
        true
    }

    /// Becomes readable, anew each time, when a write has ended: for an edge-triggered poll.
    pub fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.past_cache.as_ref()?.writer.readable()
    }

    /// Is a write under way whose end was not taken by [`WriteSetLog::finish_write`]?
    pub fn is_under_way(&self) -> bool {
        self.past_cache.as_ref().is_some_and(|past| past.writer.is_under_way())
    }

    /// Begins to write what waits, past the page cache, and tells up to where. `None`: it cannot go that way now. Then what waits is in the page cache, or
    /// will be with the next calls of `write_on`, and a ticket is due ([`WriteSetLog::begin_sync`]). Call it when nothing is under way.
    pub fn begin_write(&mut self) -> Result<Option<LogIndex>, StoreError> {
        self.guarded(|log| log.try_begin_write())
    }

    /// Takes the end of a write; `None`: there is none that has ended. Give its generation and position to the group.
    ///
    /// **Errors:** a failed write is final; the log refuses everything from then on.
    pub fn finish_write(&mut self) -> Option<Result<Synced, StoreError>> {
        if let Err(error) = self.shared.check() {
            return self.is_under_way().then_some(Err(error));
        }
        let outcome = self.past_cache.as_mut()?.writer.outcome()?;
        Some(outcome.and_then(|pages| self.land(pages)).map_err(|e| self.shared.fail(e)))
    }

    /// Does what is appended wait in memory, until it is written and durable at once?
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.past_cache.as_ref().is_some_and(|past| !matches!(past.way, Way::Cached))
    }

    /// More waits than should.
    pub(crate) fn waits_too_long(&self) -> bool {
        self.shared.held().unwritten.bytes() > WAITING_MAX
    }

    /// A ticket has been drawn that covers everything written.
    pub(crate) fn settle(&mut self) {
        let all_written = self.shared.held().unwritten.entries().is_empty();
        let wanted = self.durability() == Durability::Disk && all_written;
        if let Some(past) = &mut self.past_cache
            && matches!(past.way, Way::Cached)
            && wanted
        {
            past.way = Way::Settling;
        }
    }

    /// Something is written into the page cache.
    pub(crate) fn go_by_cache(&mut self) {
        if let Some(past) = &mut self.past_cache {
            assert!(!matches!(past.way, Way::Flight(_)), "no page is written in two ways at once");
            past.way = Way::Cached;
        }
    }

    /// Waits for what is under way.
    pub(crate) fn land_now(&mut self) -> Result<(), StoreError> {
        self.land_within(None)
    }

    fn land_within(&mut self, longest: Option<Duration>) -> Result<(), StoreError> {
        let Some(past) = &mut self.past_cache else { return Ok(()) };
        if let Some(outcome) = past.writer.wait(longest) {
            let _ = self.land(outcome?)?;
        }
        Ok(())
    }

    /// Everything that waits is written into the page cache on return.
    pub(crate) fn write_all(&mut self) -> Result<(), StoreError> {
        self.land_now()?;
        self.go_by_cache();
        while self.is_writing() {
            self.try_write_on()?;
        }
        Ok(())
    }

    fn try_begin_write(&mut self) -> Result<Option<LogIndex>, StoreError> {
        let clean = self.is_all_synced() && self.durability() == Durability::Disk;
        let Some(past) = &mut self.past_cache else { return Ok(None) };
        let way = std::mem::replace(&mut past.way, Way::Cached);
        let tail = match way {
            Way::Flight(_) => panic!("one write at a time"),
            Way::Clean(tail) if clean => Some(tail),
            Way::Settling if clean => self.read_tail()?,
            Way::Cached | Way::Settling | Way::Clean(_) => None,
        };
        if let Some(tail) = tail {
            if !self.is_writing() {
                self.become_way(Way::Clean(tail));
                return Ok(None);
            }
            let upto = self.take_off(tail)?;
            if upto.is_some() {
                return Ok(upto);
            }
        }
        self.try_write_on()?;
        Ok(None)
    }

    fn become_way(&mut self, way: Way) {
        if let Some(past) = &mut self.past_cache {
            past.way = way;
        }
    }

    /// The last page of the log, from its file. `None`: there is no segment.
    fn read_tail(&self) -> Result<Option<Tail>, StoreError> {
        let Some(segment) = self.shared.held().segments.back().cloned() else { return Ok(None) };
        let at = self.end - self.end % PAGE as u64;
        let Some(bytes) = read_exact(&segment.file, at, (self.end - at) as usize)? else {
            return Err(StoreError::Damaged(format!("segment {} ends before its last record", segment.number)));
        };
        let mut pages = Pages::default();
        pages.put(&bytes);
        Ok(Some(Tail { pages, at }))
    }

    /// Begins to write the first records that wait, and tells up to where. `None`: the first one does not fit here.
    fn take_off(&mut self, tail: Tail) -> Result<Option<LogIndex>, StoreError> {
        let Tail { mut pages, at } = tail;
        let Some(segment) = self.shared.held().segments.back().cloned() else { return Ok(None) };
        if segment.capacity > self.segment_size {
            // One that is made for a large record is no longer than what was written into it.
            return Ok(None);
        }
        // Whole pages of the file.
        let limit = segment.capacity - segment.capacity % PAGE as u64;
        let (mut end, mut chain) = (self.end, self.chain);
        let mut len = pages.bytes().len() as u64;
        let mut fitting: Vec<Entry> = Vec::new();
        for entry in self.shared.held().unwritten.entries() {
            let stored = self.stored_len(entry);
            let record = record_len(stored);
            // A page more, for the zeros behind the last record.
            let fits = end + record <= limit && (len + record) as usize + PAGE <= PAGES_MAX;
            if stored > COALESCE_MAX || !fits {
                break;
            }
            end += record;
            len += record;
            fitting.push(entry.clone());
        }
        let Some(last) = fitting.last().cloned() else { return Ok(None) };
        let mut slots = Vec::with_capacity(fitting.len());
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut place = self.end;
        for entry in &fitting {
            let stored = self.sealed(segment.number, chain, entry)?;
            scratch.clear();
            chain = RecordHeader::encode(
                &mut scratch,
                segment.number,
                chain,
                self.synced,
                &entry.header,
                stored.len(),
                crc32fast::hash(&stored),
            );
            scratch.extend_from_slice(&stored);
            scratch.resize(scratch.len().next_multiple_of(8), 0);
            pages.put(&scratch);
            slots.push(Slot::new(&entry.header, segment.number, place, stored.len()));
            place += record_len(stored.len());
        }
        self.scratch = scratch;
        assert_eq!((place, pages.bytes().len() as u64), (end, len), "the records are where they were planned");
        // The zeros that say that nothing follows.
        let room = (limit - end).min(TERMINATOR.len() as u64);
        pages.pad(room as usize);
        let len = (end - at) as usize;
        let upto = last.header.index;
        let flight = Flight { at, len, slots, last, chain, end };
        let Some(past) = &mut self.past_cache else { return Ok(None) };
        past.way = Way::Flight(flight);
        past.writer.begin(&segment.file, at, pages)?;
        Ok(Some(upto))
    }

    /// The write that was under way is on the disk.
    fn land(&mut self, mut pages: Pages) -> Result<Synced, StoreError> {
        let way = self.past_cache.as_mut().map(|past| std::mem::replace(&mut past.way, Way::Cached));
        let Some(Way::Flight(Flight { at, len, slots, last, chain, end })) = way else {
            panic!("a write ends that was not begun");
        };
        {
            let mut held = self.shared.held_mut();
            held.unwritten.drop_first(slots.len());
            held.slots.extend(slots);
        }
        self.end = end;
        self.chain = chain;
        self.take_over(&last.header);
        self.synced = self.last_written();
        let gone = pages.keep_last_page(len);
        let tail = Tail { pages, at: at + gone as u64 };
        self.become_way(Way::Clean(tail));
        self.note_synced()?;
        Ok(Synced { generation: self.generation(), upto: self.synced, serial: 0 })
    }
}
