//! The log itself.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use trireme_order::{LogStore, StoreError};
use trireme_types::{Base, Durability, Entry, EntryHeader, HardState, Incarnation, LogIndex, NodeId, Seqno, Term};

use crate::checkpoint::{self, Kept};
use crate::error::InClearText;
use crate::format::{
    Format, Meta, Origin, Purpose, RECORD_HEADER, RECORD_PAYLOAD_MAX, RecordHeader, SEGMENT_HEADER, SegmentHeader,
    TERMINATOR, associated, record_len,
};
use crate::index::{Held, Segment, Shared, Slot, Unwritten};
use crate::meta::{self, Found, MetaFile};
use crate::names;
use crate::options::{BOOT_ID_MAX, IndexRange, OpenReport, Options};
use crate::reader::LogReader;
use crate::recovery::{self, Recovered};
use crate::seal::{LogKeys, SEAL, Sealer, Stream};
use crate::storage::{Storage, StorageFile};
use crate::sync::{SpareReady, SpareTicket, SyncTicket, Synced};
use crate::tail::PastCache;

/// Segment and checkpoint numbers are reserved in blocks, so that most new files need no write of the metadata.
const NUMBER_BLOCK: u64 = 64;
/// Payloads up to here are copied into one buffer with their neighbours (one write per append); larger ones are written from
/// where they are.
pub(crate) const COALESCE_MAX: usize = 64 * 1024;
/// Size of a segment that is needed at once and durably, in the middle of a change of term, when no spare is at hand: filling a
/// large one with zeros and syncing it would hold the group up for some hundred milliseconds.
const CUT_SEGMENT_MAX: u64 = 1 << 20;
/// The append buffer is given back when an append left it larger than this.
const SCRATCH_KEEP: usize = 4 << 20;

/// The durable write-set log of one member. Owned by one thread; see [`LogReader`] and [`SyncTicket`] for what others do.
///
/// After the first failed operation everything is refused until the log is opened again.
pub struct WriteSetLog<S: Storage> {
    pub(crate) storage: S,
    /// `None` once the log has failed and was let go of.
    pub(crate) lock: Option<S::Lock>,
    pub(crate) segment_size: u64,
    /// `gcache.size`.
    size: u64,
    /// `gcache.size + gcache.keep_pages_size`.
    pub(crate) bytes_max: u64,
    meta: MetaFile<S::File>,
    pub(crate) shared: Arc<Shared<S::File>>,
    pub(crate) base: Base,
    /// Number of the checkpoint with which the log began.
    began: u64,
    /// `None`: what is written is in clear text.
    pub(crate) keys: Option<LogKeys>,
    /// For the segment that takes the appends, when that is sealed.
    sealer: Option<Sealer>,
    /// State after the last *written* entry.
    last: LogIndex,
    last_term: Term,
    last_seqno: Seqno,
    /// The first entry that waits ([`Held::unwritten`]) is partly written.
    begun: Option<Begun>,
    /// Most bytes of payload that one call writes.
    slice: usize,
    /// Where the next record goes, in the last segment; meaningless without one.
    pub(crate) end: u64,
    pub(crate) chain: u32,
    pub(crate) synced: LogIndex,
    generation: u64,
    /// Rising in index. The base's own is the first, unless the log is as yet without any file.
    pub(crate) kept: VecDeque<Kept>,
    segment_begun: bool,
    /// See [`WriteSetLog::space_checkpoints`].
    pub(crate) checkpoint_spacing: u64,
    pub(crate) spare: Option<Spare<S::File>>,
    pub(crate) spare_in_flight: bool,
    next_number: u64,
    dirty: Vec<Dirty<S::File>>,
    dirty_dir: Option<u64>,
    /// Serial of the newest sync ticket.
    serial: u64,
    pub(crate) scratch: Vec<u8>,
    /// `None`: everything goes by the page cache.
    pub(crate) past_cache: Option<PastCache<S::File>>,
    /// Files of large segments that were dropped and are not closed yet.
    pub(crate) removed: Vec<S::File>,
    /// Put-aside segments and their bytes; the first to go when space is needed.
    pub(crate) damaged: Vec<(u64, u64)>,
    /// See [`WriteSetLog::doubt`].
    doubted: Option<Doubt>,
}

/// The note of a failed log about itself.
#[derive(Clone, Copy)]
struct Doubt {
    /// The first suspect index before.
    before: Option<LogIndex>,
    noted: LogIndex,
}

/// The next segment's file, under the spare's name.
pub(crate) struct Spare<F> {
    pub file: F,
    /// As in [`Kept::written_after`]. A recycled segment is not written to before its new name is durable: else a crash could
    /// bring it back under the old one, half overwritten, and look like damage.
    pub written_after: Option<u64>,
}

/// A record of which a part of the payload is in the file, behind the place of its header. The header is written last: until then
/// the place where the record begins says that nothing follows.
struct Begun {
    /// Bytes of the payload that are written.
    written: usize,
    /// Bytes in the file: these, and what a seal puts before them.
    stored: usize,
    sum: crc32fast::Hasher,
    /// The durable watermark that the header will name: a seal covers it from its beginning on.
    synced: LogIndex,
    seal: Option<Stream>,
}

/// A file with writes that no finished sync has covered.
struct Dirty<F> {
    name: u64,
    file: F,
    /// Serial of the newest ticket at the last write: only a later ticket covers it.
    written_after: u64,
}

impl<S: Storage> WriteSetLog<S> {
    /// Opens the log of the directory, or makes one.
    ///
    /// Reads and checks all segments: takes about a second per gigabyte or two. On return everything held is on disk.
    ///
    /// **Errors:** somebody else has the directory open; the disk fails; the metadata is missing or unreadable although there
    /// are segments; a key is missing (then nothing was changed). Damaged segments are no error: see the report.
    pub fn open(storage: S, options: &Options) -> Result<(WriteSetLog<S>, OpenReport), StoreError> {
        let lock = storage.lock()?;
        let mut created = false;
        let boot_id = boot_text(&options.boot_id);
        let (meta, copy_lost) = match meta::read(&storage)? {
            Found::Meta { file, copy_lost } => (*file, copy_lost),
            Found::Unreadable => {
                return Err(StoreError::Damaged(format!(
                    "both copies in {} are unreadable, so this member's identity and promises are lost; remove all \
                     files named trireme.*.galera.cache in this directory to join as a new member with a full copy",
                    names::META
                )));
            }
            Found::Absent if recovery::any_log_files(&storage)? => {
                return Err(StoreError::Damaged(format!(
                    "there are segments but no {}: the log is incomplete; put the file back, or remove all files \
                     named trireme.*.galera.cache in this directory to join as a new member with a full copy",
                    names::META
                )));
            }
            Found::Absent => {
                let Some(node) = options.new_node else {
                    return Err(StoreError::Absent);
                };
                created = true;
                let fresh = Meta { node, clean: true, boot_id: boot_id.clone(), number_limit: 1, ..Meta::default() };
                (MetaFile::create(&storage, fresh)?, false)
            }
        };
        // Reads only: without the right keys nothing is changed.
        let mut found = recovery::analyse(&storage, meta.meta(), &boot_id, options.keys.as_ref())?;
        found.load_base(&storage, options.keys.as_ref())?;
        meta.secure()?;
        found.report.created = created;
        found.report.metadata_copy_lost = copy_lost;
        if !options.recover {
            discard(&mut found);
        }
        let mut report = found.report.clone();
        let plan = Plan {
            cut: found.cut,
            ends_in_format_before: found.ends_in_format_before,
            epoch: found.epoch,
            remove: std::mem::take(&mut found.remove),
            put_aside: std::mem::take(&mut found.put_aside),
            boot_id,
        };
        let mut log = WriteSetLog::assemble(storage, lock, options, meta, found);
        log.carry_out(&mut report, plan).map_err(|e| log.shared.fail(e))?;
        Ok((log, report))
    }

    fn assemble(
        storage: S,
        lock: S::Lock,
        options: &Options,
        meta: MetaFile<S::File>,
        found: Recovered<S::File>,
    ) -> WriteSetLog<S> {
        let last = LogIndex(found.base.index.0 + found.slots.len() as u64);
        let (last_term, last_seqno) =
            found.slots.back().map_or((found.base.term, found.base.seqno), |slot| (slot.term, slot.seqno));
        let newest = found.kept.back().map_or(LogIndex::ZERO, |k| k.index);
        WriteSetLog {
            storage,
            lock: Some(lock),
            segment_size: options.segment_size(),
            size: options.size,
            bytes_max: options.size.saturating_add(options.keep_pages_size),
            next_number: meta.meta().number_limit.max(found.number_max + 1).max(1),
            meta,
            last,
            last_term,
            last_seqno,
            begun: None,
            slice: options.slice(),
            end: found.end,
            chain: found.chain,
            synced: last.min(found.report.watermark),
            generation: 1,
            segment_begun: found.segments.back().is_some_and(|s| s.first.prev() > newest),
            checkpoint_spacing: 0,
            shared: Shared::new(Held {
                base: found.base.index,
                slots: found.slots,
                segments: found.segments,
                unwritten: Unwritten::default(),
            }),
            base: found.base,
            began: found.began,
            keys: options.keys.clone(),
            sealer: None,
            kept: found.kept,
            spare: None,
            spare_in_flight: false,
            dirty: Vec::new(),
            dirty_dir: None,
            serial: 0,
            scratch: Vec::new(),
            past_cache: None,
            removed: Vec::new(),
            damaged: found.damaged.into_iter().map(|n| (n, 0)).collect(),
            doubted: None,
        }
    }

    /// Makes the files what recovery decided, and everything held durable.
    ///
    /// Each step leaves a state from which the next open comes to the same decision: first the suspicion is made durable, then
    /// what lies behind the cut is voided, and only then are files moved or removed.
    fn carry_out(&mut self, report: &mut OpenReport, plan: Plan) -> Result<(), StoreError> {
        let hole = report.hole.map(|h| (h.from, h.to));
        let known = self.meta.meta();
        if known.suspect != report.suspect || known.hole != hole {
            let suspect = report.suspect;
            self.meta.save(|m| (m.suspect, m.hole) = (suspect, hole))?;
        }
        if report.unclean {
            self.rewrite_unsynced()?;
        }
        let sealed_by = self.shared.held().segments.back().map(|segment| segment.key.clone());
        if self.keys.is_some() && !matches!(sealed_by, Some(Some(_))) {
            // It may be a former segment, in clear text.
            self.storage.remove(names::SPARE)?;
        }
        if plan.cut {
            self.begin_cut()?;
        }
        let epoch = if self.shared.held().segments.is_empty() { 0 } else { plan.epoch.max(self.meta.meta().epoch) };
        self.secure_number(NUMBER_BLOCK)?;
        let (synced, history) = (self.last, self.base.history);
        self.meta.save(|m| {
            m.synced = synced;
            m.history = history;
            m.epoch = epoch;
            m.boot_id = plan.boot_id;
            m.clean = false;
        })?;
        self.synced = synced;
        for number in plan.put_aside {
            if self.storage.open(&names::segment(number))?.is_some() {
                self.storage.rename(&names::segment(number), &names::damaged(number))?;
                self.damaged.push((number, 0));
            }
        }
        for (number, len) in &mut self.damaged {
            if let Some(file) = self.storage.open(&names::damaged(*number))? {
                *len = file.len()?;
            }
        }
        let mut remove = plan.remove;
        remove.sort();
        for name in remove {
            self.storage.remove(&name)?;
        }
        self.adopt_spare()?;
        match sealed_by {
            // The log begins with its next entry, or the cut began a segment.
            None => {}
            Some(_) if plan.cut => {}
            Some(_) if plan.ends_in_format_before => self.begin_segment(Origin::Continues, self.segment_size)?,
            Some(Some(key)) => self.sealer = Some(key.sealer()?),
            // A log that was in clear text goes on sealed.
            Some(None) if self.keys.is_some() => self.begin_segment(Origin::Continues, self.segment_size)?,
            Some(None) => {}
        }
        self.storage.sync_dir()
    }

    /// Entries that recovery read may have come from the page cache without ever reaching the disk, even after a failed sync
    /// that made the kernel forget them (rule 17). Equal bytes make the pages dirty again, so that the sync really writes
    /// them.
    fn rewrite_unsynced(&mut self) -> Result<(), StoreError> {
        let held = self.shared.held();
        for (at, segment) in held.segments.iter().enumerate() {
            let next = held.segments.get(at + 1);
            // A segment with all entries below the watermark was synced, header included. Of the last one nobody knows.
            let last = next.map_or(self.last, |next| next.first.prev());
            if next.is_some() && last <= self.synced {
                continue;
            }
            let end = held.slot(last).filter(|s| s.segment == segment.number).map_or(0, Slot::end);
            let start = held.slot(self.synced.next()).filter(|s| s.segment == segment.number).map_or(0, Slot::offset);
            copy_onto_itself(&segment.file, 0, SEGMENT_HEADER as u64)?;
            copy_onto_itself(&segment.file, start, end)?;
            segment.file.sync()?;
        }
        for kept in &self.kept {
            if let Some(file) = self.storage.open(&names::checkpoint(kept.number))? {
                copy_onto_itself(&file, 0, file.len()?)?;
                file.sync()?;
            }
        }
        self.storage.sync_dir()
    }

    /// Takes over a spare segment that an earlier run left, when it has the right size.
    fn adopt_spare(&mut self) -> Result<(), StoreError> {
        let Some(file) = self.storage.open(names::SPARE)? else { return Ok(()) };
        if file.len()? == self.segment_size {
            self.spare = Some(Spare { file, written_after: None });
            return Ok(());
        }
        self.storage.remove(names::SPARE)
    }

    /// The voter id of this log.
    pub fn node_id(&self) -> NodeId {
        self.meta.meta().node
    }

    pub fn incarnation(&self) -> Incarnation {
        self.meta.meta().incarnation
    }

    /// Raises the incarnation for a new start of the node, to `at_least` or more; durable on return.
    pub fn begin_incarnation(&mut self, at_least: Incarnation) -> Result<Incarnation, StoreError> {
        self.save_meta(|m| m.incarnation = m.incarnation.next().max(at_least))?;
        Ok(self.incarnation())
    }

    /// The first of `keys` seals what is begun from now on: for a log that is sealed already. A file that was sealed by
    /// other keys stays readable.
    pub fn use_keys(&mut self, keys: &LogKeys) -> Result<(), InClearText> {
        let Some(before) = &self.keys else {
            return Err(InClearText);
        };
        self.keys = Some(keys.and_older(before));
        Ok(())
    }

    /// `gcache.keep_pages_size` from now on.
    pub fn keep_beyond(&mut self, keep_pages_size: u64) {
        self.bytes_max = self.size.saturating_add(keep_pages_size);
    }

    pub fn durability(&self) -> Durability {
        if self.meta.meta().process { Durability::Process } else { Durability::Disk }
    }

    /// The first failure, when there was one.
    pub fn failed(&self) -> Option<StoreError> {
        self.shared.failed().cloned()
    }

    /// For other threads.
    pub fn reader(&self) -> LogReader<S> {
        LogReader::new(self.shared.clone())
    }

    /// Closes all files and lets go of the directory, so that its file system can be repaired and the log opened anew. For a log that
    /// has failed: it refuses everything anyway. False: a write is still under way, and nothing was let go of.
    pub fn let_go(&mut self) -> bool {
        assert!(self.shared.failed().is_some(), "only a failed log may be opened beside itself");
        if !self.write_by_cache(Some(Duration::ZERO)) {
            return false;
        }
        self.shared.held_mut().segments.clear();
        self.dirty.clear();
        self.removed.clear();
        self.spare = None;
        self.meta.let_go();
        self.lock = None;
        true
    }

    /// Blocks until everything is on the disk.
    pub fn sync_all(&mut self) -> Result<(), StoreError> {
        self.guarded(|log| log.write_all())?;
        if let Some(ticket) = self.begin_sync() {
            let done = ticket.run()?;
            self.finish_sync(done)?;
        }
        Ok(())
    }

    /// Syncs everything and marks the log as closed cleanly.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.sync_all()?;
        self.save_meta(|m| m.clean = true)
    }

    /// A ticket for everything written until now that no finished sync covers; `None` when there is nothing.
    pub fn begin_sync(&mut self) -> Option<SyncTicket<S>> {
        if self.dirty.is_empty() && self.dirty_dir.is_none() && self.synced == self.last {
            return None;
        }
        self.serial += 1;
        self.settle();
        Some(SyncTicket {
            generation: self.generation,
            upto: self.last,
            serial: self.serial,
            files: self.dirty.iter().map(|d| d.file.clone()).collect(),
            dir: self.dirty_dir.map(|_| self.storage.clone()),
            shared: self.shared.clone(),
        })
    }

    /// Takes a finished sync back. The watermark moves unless the log was truncated or reset since.
    pub fn finish_sync(&mut self, done: Synced) -> Result<(), StoreError> {
        self.shared.check()?;
        self.dirty.retain(|d| d.written_after >= done.serial);
        self.dirty_dir = self.dirty_dir.filter(|written_after| *written_after >= done.serial);
        for kept in &mut self.kept {
            kept.written_after = kept.written_after.filter(|written_after| *written_after >= done.serial);
        }
        if let Some(spare) = &mut self.spare {
            spare.written_after = spare.written_after.filter(|written_after| *written_after >= done.serial);
        }
        if done.generation == self.generation && done.upto > self.synced {
            self.synced = done.upto;
            self.note_synced()?;
        }
        Ok(())
    }

    /// Notes the watermark in the metadata, without waiting for the disk. Only this tells of a record that nothing follows that it was synced.
    pub(crate) fn note_synced(&mut self) -> Result<(), StoreError> {
        let synced = self.synced;
        self.meta.note(|m| m.synced = synced).map_err(|e| self.shared.fail(e))
    }

    /// Is everything that was written on the disk, names as well?
    pub(crate) fn is_all_synced(&self) -> bool {
        self.dirty.is_empty() && self.dirty_dir.is_none() && self.synced == self.last
    }

    /// Work for a helper thread, now and then: the next segment, prepared before an append needs it.
    pub fn begin_spare(&mut self) -> Option<SpareTicket<S>> {
        let capacity = self.shared.held().segments.back()?.capacity;
        let soon = self.end > capacity / 2;
        if self.spare.is_some() || self.spare_in_flight || !soon || self.shared.failed().is_some() {
            return None;
        }
        self.spare_in_flight = true;
        Some(SpareTicket { storage: self.storage.clone(), size: self.segment_size })
    }

    /// Writes the next segment, unless it is there already, and waits for the disk: proves that a log opened here can go on. For a log
    /// that nobody has open.
    pub fn make_room(storage: &S, options: &Options) -> Result<(), StoreError> {
        let _lock = storage.lock()?;
        if WriteSetLog::has_room(storage, options)? {
            return Ok(());
        }
        SpareTicket { storage: storage.clone(), size: options.segment_size() }.run().file.map(drop)
    }

    /// Is the next segment there already?
    pub fn has_room(storage: &S, options: &Options) -> Result<bool, StoreError> {
        let Some(spare) = storage.open(names::SPARE)? else { return Ok(false) };
        Ok(spare.len()? == options.segment_size())
    }

    /// For a log that has failed, before it is let go of. In mode `process` entries were acknowledged that no sync has covered, and the kernel
    /// drops from its cache what it could not write. A process that opens the log on the same boot sees a shorter log with a clean end. So
    /// the log is made suspect for them, as far as the disk still takes that. Returns the entry after which it is; `None`: nothing
    /// that was acknowledged is in doubt. Once is enough.
    ///
    /// **Errors:** the disk did not take it. Then only this process, and peers that live, know of it.
    pub fn doubt(&mut self) -> Result<Option<LogIndex>, StoreError> {
        assert!(self.shared.failed().is_some(), "only a failed log doubts itself");
        if self.durability() == Durability::Disk || self.last <= self.synced {
            return Ok(None);
        }
        let before = self.suspect();
        let noted = before.map_or(self.synced, |before| before.min(self.synced));
        if self.doubted.is_none() {
            self.doubted = Some(Doubt { before, noted });
            self.meta.save(|m| m.suspect = Some(noted))?;
        }
        Ok(Some(noted))
    }

    /// Takes over what the log `failed`, which this process had open, promised: promises are kept also by a disk that forgot them, and what
    /// was acknowledged and is not here makes this log no evidence of what was committed (rule 16). Returns the entries that are
    /// missing.
    pub fn succeed(&mut self, failed: &WriteSetLog<S>) -> Result<Option<IndexRange>, StoreError> {
        let (before, here) = (failed.hard_state(), self.hard_state());
        let HardState { term, vote, entrusted, .. } = if before.term >= here.term { before } else { here };
        // A log that lacks entries known to be committed is barred by these marks.
        let same = before.branch == here.branch;
        let mark = |before: LogIndex, here: LogIndex| if same { before.max(here) } else { before };
        let committed = mark(before.committed, here.committed);
        let voters_committed = mark(before.voters_committed, here.voters_committed);
        let state = HardState { term, vote, entrusted, voters_committed, committed, branch: before.branch };
        if state != here {
            self.save_hard_state(state)?;
        }
        if failed.is_outdated() {
            if self.suspect().is_none() {
                self.set_suspect(failed.doubted.map_or(failed.suspect(), |doubt| doubt.before))?;
            }
            self.set_outdated(true)?;
        }
        if failed.incarnation() > self.incarnation() {
            self.begin_incarnation(failed.incarnation())?;
        }
        let acknowledged = match failed.durability() {
            Durability::Disk => failed.synced,
            Durability::Process => failed.shared.held().last(),
        };
        if self.last() >= acknowledged {
            // Nothing is missing, so what the failed log noted of itself is void; what recovery found is not.
            if let Some(doubt) = failed.doubted
                && self.suspect() == Some(doubt.noted)
                && self.meta.meta().hole.is_none()
            {
                self.set_suspect(doubt.before)?;
            }
            return Ok(None);
        }
        if self.suspect().is_none() {
            self.set_suspect(Some(self.last()))?;
        }
        // Changes of the voters are synced before they are acknowledged: a disk that lost what was synced may have lost one.
        if self.last() < failed.synced {
            self.set_outdated(true)?;
        }
        Ok(Some(IndexRange { from: self.last().next(), to: acknowledged }))
    }

    /// Takes the prepared segment. **Errors:** it could not be prepared; a warning to the operator, the log goes on.
    pub fn finish_spare(&mut self, ready: SpareReady<S>) -> Result<(), StoreError> {
        self.spare_in_flight = false;
        self.spare = Some(Spare { file: ready.file?, written_after: None });
        self.note_names_changed();
        Ok(())
    }

    fn save_meta(&mut self, change: impl FnOnce(&mut Meta)) -> Result<(), StoreError> {
        self.shared.check()?;
        self.meta.save(change).map_err(|e| self.shared.fail(e))
    }

    /// A number that no file in the directory has had before.
    fn take_number(&mut self) -> Result<u64, StoreError> {
        self.secure_number(1)?;
        let number = self.next_number;
        self.next_number += 1;
        Ok(number)
    }

    /// Reserves at least `count` numbers.
    fn secure_number(&mut self, count: u64) -> Result<(), StoreError> {
        let needed = self.next_number + count;
        if self.meta.meta().number_limit < needed {
            self.meta.save(|m| m.number_limit = needed.max(m.number_limit.saturating_add(NUMBER_BLOCK)))?;
        }
        Ok(())
    }

    /// Serial that the next finished ticket must exceed to cover what is done now.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    fn mark_dirty(&mut self, name: u64, file: &S::File) {
        let written_after = self.serial;
        match self.dirty.iter_mut().find(|d| d.name == name) {
            Some(dirty) => dirty.written_after = written_after,
            None => self.dirty.push(Dirty { name, file: file.clone(), written_after }),
        }
    }

    /// Begins a segment for `last + 1` and makes it the one that takes appends. One that continues the log is not durable on
    /// return. One that voids others is: its header before its name, so that under its name it is never seen without.
    fn begin_segment(&mut self, origin: Origin, capacity: u64) -> Result<(), StoreError> {
        let number = self.take_number()?;
        let header = SegmentHeader {
            format: Format::Current,
            number,
            origin,
            first: self.last.next(),
            prev_term: self.last_term,
            prev_seqno: self.last_seqno,
            history: self.base.history,
            synced: self.synced,
            began: self.began,
            seal: None,
        };
        self.go_by_cache();
        let (header, key) = match &self.keys {
            None => (header, None),
            Some(keys) => {
                let (header, key) = header.sealed(keys)?;
                (header, Some(Arc::new(key)))
            }
        };
        let sealer = key.as_ref().map(|key| key.sealer()).transpose()?;
        let mut bytes = header.encode();
        bytes.extend_from_slice(&TERMINATOR);
        let name = names::segment(number);
        let usable = capacity == self.segment_size && self.spare.as_ref().is_some_and(|s| s.written_after.is_none());
        let spare = if usable { self.spare.take() } else { None };
        let (file, temporary) = match spare {
            Some(Spare { file, .. }) => (file, names::SPARE),
            None => {
                let file = self.storage.create(names::SEGMENT_TMP)?;
                // One that is made for a single large record is filled by it.
                if capacity <= self.segment_size {
                    file.fill(capacity)?;
                }
                (file, names::SEGMENT_TMP)
            }
        };
        file.write_at(0, &bytes)?;
        let durable = origin != Origin::Continues;
        if durable {
            file.sync()?;
        }
        self.storage.rename(temporary, &name)?;
        if durable {
            self.storage.sync_dir()?;
        }
        self.dirty_dir = Some(self.serial);
        self.mark_dirty(number, &file);
        self.end = SEGMENT_HEADER as u64;
        self.chain = header.chain();
        self.sealer = sealer;
        self.segment_begun = true;
        self.shared.held_mut().segments.push_back(Segment { number, first: header.first, file, capacity, key });
        Ok(())
    }

    /// Begins a segment that voids everything after `last` in the older ones. Durable on return.
    fn begin_cut(&mut self) -> Result<(), StoreError> {
        self.begin_durable(Origin::Cut)
    }

    fn begin_durable(&mut self, origin: Origin) -> Result<(), StoreError> {
        let spare_at_hand = self.spare.as_ref().is_some_and(|s| s.written_after.is_none());
        let capacity = if spare_at_hand { self.segment_size } else { self.segment_size.min(CUT_SEGMENT_MAX) };
        self.begin_segment(origin, capacity)?;
        let number = self.shared.held().segments.back().map_or(0, |s| s.number);
        let (synced, history) = (self.synced, self.base.history);
        self.meta.save(|m| (m.synced, m.epoch, m.history) = (synced, number, history))
    }

    /// Forgets the dirt of a file that is no more.
    pub(crate) fn forget_dirty(&mut self, name: u64) {
        self.dirty.retain(|d| d.name != name);
    }

    pub(crate) fn note_names_changed(&mut self) {
        self.dirty_dir = Some(self.serial);
    }

    /// `waited`: they are the first that wait.
    fn try_append(&mut self, entries: &[Entry], waited: bool) -> Result<(), StoreError> {
        let before = (self.last, self.last_term, self.last_seqno);
        let done = self.append_records(entries, waited);
        if done.is_err() {
            // Those that waited wait still, and are counted once.
            (self.last, self.last_term, self.last_seqno) = before;
        }
        done
    }

    fn append_records(&mut self, entries: &[Entry], waited: bool) -> Result<(), StoreError> {
        let mut slots: Vec<Slot> = Vec::with_capacity(entries.len());
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        // Where the bytes in `scratch` go.
        let mut at = self.end;
        let mut segment = self.shared.held().segments.back().cloned();
        if segment.is_none() {
            self.begin_files()?;
            segment = self.shared.held().segments.back().cloned();
            at = self.end;
        }
        for entry in entries {
            let stored_len = self.stored_len(entry);
            let len = record_len(stored_len);
            let room = segment.as_ref().map_or(0, |s| s.capacity);
            if self.end + len > room {
                if let Some(full) = &segment {
                    full.file.write_at(at, &scratch)?;
                    self.mark_dirty(full.number, &full.file);
                }
                scratch.clear();
                let capacity = self.segment_size.max(SEGMENT_HEADER as u64 + len);
                self.begin_segment(Origin::Continues, capacity)?;
                segment = self.shared.held().segments.back().cloned();
                at = self.end;
            }
            let Some(current) = &segment else {
                return Err(StoreError::Damaged("no segment to append to".into()));
            };
            let stored = self.sealed(current.number, self.chain, entry)?;
            self.chain = RecordHeader::encode(
                &mut scratch,
                current.number,
                self.chain,
                self.synced,
                &entry.header,
                stored_len,
                crc32fast::hash(&stored),
            );
            if stored_len <= COALESCE_MAX {
                scratch.extend_from_slice(&stored);
            } else {
                current.file.write_at(at, &scratch)?;
                at += scratch.len() as u64;
                scratch.clear();
                current.file.write_at(at, &stored)?;
                at += stored_len as u64;
            }
            let padding = stored_len.next_multiple_of(8) - stored_len;
            scratch.extend_from_slice(&[0; 8][..padding]);
            slots.push(self.take_in(entry, current.number));
        }
        if let Some(current) = &segment {
            if self.end + TERMINATOR.len() as u64 <= current.capacity {
                scratch.extend_from_slice(&TERMINATOR);
            }
            current.file.write_at(at, &scratch)?;
            self.mark_dirty(current.number, &current.file);
        }
        if scratch.capacity() <= SCRATCH_KEEP {
            self.scratch = scratch;
        }
        let mut held = self.shared.held_mut();
        held.slots.extend(slots);
        if waited {
            held.unwritten.drop_first(entries.len());
        }
        Ok(())
    }

    /// The payload as it is on disk, behind the record whose checksum is `chain`.
    pub(crate) fn sealed(&mut self, segment: u64, chain: u32, entry: &Entry) -> Result<Bytes, StoreError> {
        let stored_len = self.stored_len(entry);
        let stored = match &mut self.sealer {
            None => entry.payload.clone(),
            Some(sealer) => {
                let associated = associated(segment, chain, self.synced, &entry.header, stored_len);
                Bytes::from(sealer.seal(&associated, &entry.payload)?)
            }
        };
        assert_eq!(stored.len(), stored_len, "a segment is sealed as the log is");
        Ok(stored)
    }

    pub(crate) fn is_writing(&self) -> bool {
        !self.shared.held().unwritten.entries().is_empty()
    }

    /// Writes as much of what waits as one call may.
    pub(crate) fn try_write_on(&mut self) -> Result<(), StoreError> {
        let mut room = self.slice;
        while let Some(first) = self.first_unwritten() {
            if first.payload.len() > self.slice {
                room -= self.write_piece(first, room)?;
            } else {
                let mut small = Vec::new();
                for entry in self.shared.held().unwritten.entries() {
                    if entry.payload.len() > room {
                        break;
                    }
                    room = room.saturating_sub(RECORD_HEADER + entry.payload.len());
                    small.push(entry.clone());
                }
                if small.is_empty() {
                    return Ok(());
                }
                self.try_append(&small, true)?;
            }
            if room == 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    fn first_unwritten(&self) -> Option<Entry> {
        self.shared.held().unwritten.entries().front().cloned()
    }

    /// Writes the next piece of `entry`, the first that waits, of at most `room` bytes; with the last piece it becomes part of the
    /// log. Returns how many bytes were written.
    fn write_piece(&mut self, entry: Entry, room: usize) -> Result<usize, StoreError> {
        let payload = &entry.payload;
        let stored_len = self.stored_len(&entry);
        let len = record_len(stored_len);
        let begun = self.begun.take();
        if begun.is_none() {
            if self.shared.held().segments.is_empty() {
                self.begin_files()?;
            }
            if self.shared.held().segments.back().is_none_or(|s| self.end + len > s.capacity) {
                self.begin_segment(Origin::Continues, self.segment_size.max(SEGMENT_HEADER as u64 + len))?;
            }
        }
        let Some(current) = self.shared.held().segments.back().cloned() else {
            return Err(StoreError::Damaged("no segment to append to".into()));
        };
        let (mut begun, mut bytes) = match begun {
            Some(begun) => (begun, Vec::new()),
            None => self.begin_record(&entry, current.number)?,
        };
        let n = room.min(payload.len() - begun.written);
        let piece = payload.slice(begun.written..begun.written + n);
        begun.written += n;
        // Without a seal the piece is written from where it is.
        let piece = match &mut begun.seal {
            None => piece,
            Some(seal) => {
                bytes.extend_from_slice(&seal.next(&piece)?);
                Bytes::from(bytes)
            }
        };
        begun.sum.update(&piece);
        current.file.write_at(self.end + (RECORD_HEADER + begun.stored) as u64, &piece)?;
        self.mark_dirty(current.number, &current.file);
        begun.stored += piece.len();
        if begun.written < payload.len() {
            self.begun = Some(begun);
            return Ok(n);
        }
        let mut rest = Vec::new();
        if let Some(seal) = begun.seal {
            rest.extend_from_slice(&seal.end()?);
            begun.sum.update(&rest);
        }
        assert_eq!(begun.stored + rest.len(), stored_len, "a segment is sealed as the log is");
        rest.resize(rest.len() + stored_len.next_multiple_of(8) - stored_len, 0);
        if self.end + len + TERMINATOR.len() as u64 <= current.capacity {
            rest.extend_from_slice(&TERMINATOR);
        }
        current.file.write_at(self.end + (RECORD_HEADER + begun.stored) as u64, &rest)?;
        let mut header = Vec::with_capacity(RECORD_HEADER);
        self.chain = RecordHeader::encode(
            &mut header,
            current.number,
            self.chain,
            begun.synced,
            &entry.header,
            stored_len,
            begun.sum.finalize(),
        );
        current.file.write_at(self.end, &header)?;
        let slot = self.take_in(&entry, current.number);
        let mut held = self.shared.held_mut();
        held.slots.push_back(slot);
        held.unwritten.drop_first(1);
        Ok(n)
    }

    /// A record that will be written in pieces, and the bytes that go before the first of them.
    fn begin_record(&mut self, entry: &Entry, segment: u64) -> Result<(Begun, Vec<u8>), StoreError> {
        let (synced, sum) = (self.synced, crc32fast::Hasher::new());
        let associated = associated(segment, self.chain, synced, &entry.header, self.stored_len(entry));
        let (seal, before) = match &mut self.sealer {
            None => (None, Vec::new()),
            Some(sealer) => {
                let (head, stream) = sealer.begin(&associated)?;
                (Some(stream), head.to_vec())
            }
        };
        Ok((Begun { written: 0, stored: 0, sum, synced, seal }, before))
    }

    /// Bytes of an entry's payload on disk.
    pub(crate) fn stored_len(&self, entry: &Entry) -> usize {
        entry.payload.len() + if self.keys.is_some() { SEAL } else { 0 }
    }

    /// A record was written where the log ends.
    fn take_in(&mut self, entry: &Entry, segment: u64) -> Slot {
        let slot = Slot::new(&entry.header, segment, self.end, self.stored_len(entry));
        self.end += record_len(self.stored_len(entry));
        self.take_over(&entry.header);
        slot
    }

    /// It is the last one that is written.
    pub(crate) fn take_over(&mut self, header: &EntryHeader) {
        self.last = header.index;
        self.last_term = header.term;
        self.last_seqno = header.seqno;
    }

    pub(crate) fn last_written(&self) -> LogIndex {
        self.last
    }

    /// Forgets what waits from `keep` entries on.
    fn drop_unwritten(&mut self, keep: usize) {
        self.shared.held_mut().unwritten.keep_first(keep);
        if keep == 0 {
            self.begun = None;
        }
    }

    fn try_truncate(&mut self, index: LogIndex) -> Result<(), StoreError> {
        self.land_now()?;
        self.generation += 1;
        self.drop_unwritten(index.0.saturating_sub(self.last.0) as usize);
        if index >= self.last {
            // No file knows of what was dropped: a record is none without its header.
            return Ok(());
        }
        let end;
        {
            let mut held = self.shared.held_mut();
            let keep = (index.0 - held.base.0) as usize;
            held.slots.truncate(keep);
            end = held.slots.back().map(|s| (s.segment, s.end(), s.term, s.seqno));
        }
        self.last = index;
        (self.last_term, self.last_seqno) =
            end.map_or((self.base.term, self.base.seqno), |(_, _, term, seqno)| (term, seqno));
        self.synced = self.synced.min(index);
        self.begin_cut()?;
        // From here on the cut is durable, and what it voids may go.
        let gone: Vec<Segment<S::File>> = {
            let mut held = self.shared.held_mut();
            let Some(current) = held.segments.pop_back() else { return Ok(()) };
            let mut gone = Vec::new();
            while held.segments.back().is_some_and(|s| s.first > index) {
                gone.extend(held.segments.pop_back());
            }
            if let Some(sealed) = held.segments.back_mut()
                && let Some((number, end, ..)) = end
                && sealed.number == number
            {
                // Gives back the space of what was cut. A reader that still looks there finds nothing, rightly.
                sealed.file.set_len(end)?;
                sealed.capacity = end;
            }
            held.segments.push_back(current);
            gone
        };
        for segment in gone {
            self.forget_dirty(segment.number);
            self.storage.remove(&names::segment(segment.number))?;
        }
        while self.kept.back().is_some_and(|k| k.index > index) {
            if let Some(kept) = self.kept.pop_back() {
                self.forget_dirty(kept.number);
                self.storage.remove(&names::checkpoint(kept.number))?;
            }
        }
        self.note_names_changed();
        Ok(())
    }

    fn try_reset(&mut self, base: Base) -> Result<(), StoreError> {
        self.land_now()?;
        self.drop_unwritten(0);
        self.restart_at(base)
    }

    /// The first files of a log that has none.
    fn begin_files(&mut self) -> Result<(), StoreError> {
        self.restart_at(self.base.clone())
    }

    fn restart_at(&mut self, base: Base) -> Result<(), StoreError> {
        self.generation += 1;
        let number = self.take_number()?;
        let file = checkpoint::write(&self.storage, number, Purpose::Begins, &base, self.keys.as_ref())?;
        file.sync()?;
        let former: Vec<Segment<S::File>> = {
            let mut held = self.shared.held_mut();
            held.slots.clear();
            held.base = base.index;
            std::mem::take(&mut held.segments).into()
        };
        let former_kept = std::mem::take(&mut self.kept);
        self.dirty.clear();
        self.last = base.index;
        self.last_term = base.term;
        self.last_seqno = base.seqno;
        self.synced = base.index;
        self.base = base;
        self.began = number;
        self.kept.push_back(Kept::new(number, &self.base, None));
        self.begin_durable(Origin::Reset)?;
        self.segment_begun = false;
        for segment in former {
            self.storage.remove(&names::segment(segment.number))?;
        }
        for kept in former_kept {
            self.storage.remove(&names::checkpoint(kept.number))?;
        }
        for (number, _) in std::mem::take(&mut self.damaged) {
            self.storage.remove(&names::damaged(number))?;
        }
        self.note_names_changed();
        Ok(())
    }

    fn check_appendable(&self, entries: &[Entry]) -> Result<(), StoreError> {
        let mut expected = self.last().next();
        let newest = self.shared.held().unwritten.entries().back().map(|entry| entry.header.seqno);
        let mut seqno = newest.unwrap_or(self.last_seqno);
        for entry in entries {
            let header = &entry.header;
            if header.index != expected {
                return Err(StoreError::Refused(format!("append of entry {} where {expected} is next", header.index)));
            }
            if header.seqno < seqno {
                return Err(StoreError::Refused(format!(
                    "entry {expected} takes the seqno back from {seqno} to {}",
                    header.seqno
                )));
            }
            if entry.payload.len() > RECORD_PAYLOAD_MAX {
                return Err(StoreError::Refused(format!("entry {expected} has {} bytes", entry.payload.len())));
            }
            expected = expected.next();
            seqno = header.seqno;
        }
        Ok(())
    }

    /// Runs `change` unless the log has failed; its failure is the log's.
    pub(crate) fn guarded<T>(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.shared.check()?;
        change(self).map_err(|e| self.shared.fail(e))
    }
}

/// The work that recovery wants done.
struct Plan {
    cut: bool,
    ends_in_format_before: bool,
    epoch: u64,
    remove: Vec<String>,
    put_aside: Vec<u64>,
    boot_id: String,
}

/// `gcache.recover=no`: everything found goes, and the member is suspect for all of it.
fn discard<F>(found: &mut Recovered<F>) {
    let last = LogIndex(found.base.index.0 + found.slots.len() as u64);
    if found.segments.is_empty() {
        return;
    }
    found.remove.extend(found.segments.drain(..).map(|s| names::segment(s.number)));
    found.remove.extend(found.kept.drain(..).map(|k| names::checkpoint(k.number)));
    found.slots.clear();
    found.base = Base::default();
    found.cut = false;
    found.report.suspect = Some(LogIndex::ZERO);
    found.report.hole = Some(IndexRange { from: LogIndex(1), to: last.max(LogIndex(1)) });
    found.report.notes.push(format!("gcache.recover=no: the log up to entry {last} was discarded"));
}

fn boot_text(text: &str) -> String {
    let mut end = text.len().min(BOOT_ID_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_string()
}

fn copy_onto_itself<F: StorageFile>(file: &F, from: u64, to: u64) -> Result<(), StoreError> {
    let mut buf = vec![0; 1 << 20];
    let mut at = from;
    while at < to {
        let want = (to - at).min(buf.len() as u64) as usize;
        let got = file.read_at(at, &mut buf[..want])?;
        if got == 0 {
            return Ok(());
        }
        file.write_at(at, &buf[..got])?;
        at += got as u64;
    }
    Ok(())
}

impl<S: Storage> LogStore for WriteSetLog<S> {
    fn base(&self) -> &Base {
        &self.base
    }

    fn last(&self) -> LogIndex {
        LogIndex(self.last.0 + self.shared.held().unwritten.entries().len() as u64)
    }

    fn written(&self) -> LogIndex {
        self.last
    }

    fn synced(&self) -> LogIndex {
        self.synced
    }

    fn generation(&self) -> u64 {
        self.generation
    }

    fn term_at(&self, index: LogIndex) -> Option<Term> {
        if index == self.base.index {
            return Some(self.base.term);
        }
        let held = self.shared.held();
        let written = held.slot(index).map(|s| s.term);
        written.or_else(|| held.waiting(index).map(|entry| entry.header.term))
    }

    fn index_of(&self, seqno: Seqno) -> Option<LogIndex> {
        if seqno <= self.base.seqno {
            return None;
        }
        // Entries that take no seqno repeat the one before: the taker is the first that has it.
        if seqno > self.last_seqno {
            let held = self.shared.held();
            let at = held.unwritten.entries().partition_point(|entry| entry.header.seqno < seqno);
            let found = held.unwritten.entries().get(at)?.header;
            return (found.seqno == seqno).then_some(found.index);
        }
        let held = self.shared.held();
        let at = held.slots.partition_point(|s| s.seqno < seqno);
        (held.slots.get(at)?.seqno == seqno).then(|| LogIndex(held.base.0 + 1 + at as u64))
    }

    fn read(&self, from: LogIndex, max_bytes: usize) -> Result<Vec<Entry>, StoreError> {
        self.shared.read(from, max_bytes)
    }

    /// A wrong index is refused and changes nothing; any other failure is final.
    fn append(&mut self, entries: &[Entry]) -> Result<(), StoreError> {
        self.shared.check()?;
        self.check_appendable(entries)?;
        if entries.is_empty() {
            return Ok(());
        }
        let waits = self.waits_for_disk();
        if !waits && !self.is_writing() && entries.iter().all(|entry| entry.payload.len() <= self.slice) {
            return self.guarded(|log| log.try_append(entries, false));
        }
        self.shared.held_mut().unwritten.extend(entries);
        match waits {
            true if self.waits_too_long() => self.guarded(|log| log.write_all()),
            true => Ok(()),
            false => self.write_on(),
        }
    }

    /// Takes about a millisecond, unless the disk is slow.
    fn write_on(&mut self) -> Result<(), StoreError> {
        self.guarded(|log| {
            if log.is_under_way() {
                return Ok(());
            }
            log.go_by_cache();
            log.try_write_on()
        })
    }

    fn wants_write_on(&self) -> bool {
        self.is_writing() && !self.waits_for_disk()
    }

    fn held(&self) -> LogIndex {
        // A log that has failed lets go of its way past the cache, and holds what it held.
        let in_memory =
            (self.past_cache.is_some() || self.shared.failed().is_some()) && self.durability() == Durability::Disk;
        if in_memory { self.last() } else { self.written() }
    }

    /// Durable on return. An index outside `base().index..=last()` is refused and changes nothing.
    fn truncate_after(&mut self, index: LogIndex) -> Result<(), StoreError> {
        self.shared.check()?;
        if index < self.base.index || index > self.last() {
            return Err(StoreError::Refused(format!(
                "truncation after {index} outside of {}..={}",
                self.base.index,
                self.last()
            )));
        }
        if index == self.last() {
            return Ok(());
        }
        self.guarded(|log| log.try_truncate(index))
    }

    fn reset(&mut self, base: Base) -> Result<(), StoreError> {
        self.guarded(|log| log.try_reset(base))
    }

    fn hard_state(&self) -> HardState {
        self.meta.meta().hard
    }

    fn save_hard_state(&mut self, state: HardState) -> Result<(), StoreError> {
        self.save_meta(|m| m.hard = state)
    }

    fn suspect(&self) -> Option<LogIndex> {
        self.meta.meta().suspect
    }

    /// `None`: others have repaired the log, a hole included.
    fn set_suspect(&mut self, after: Option<LogIndex>) -> Result<(), StoreError> {
        self.save_meta(|m| {
            m.suspect = after;
            if after.is_none() {
                m.hole = None;
                m.outdated = false;
            }
        })
    }

    fn is_outdated(&self) -> bool {
        self.meta.meta().outdated
    }

    fn set_outdated(&mut self, outdated: bool) -> Result<(), StoreError> {
        if self.is_outdated() == outdated {
            return self.shared.check();
        }
        self.save_meta(|m| m.outdated = outdated)
    }

    fn is_damaged(&self) -> bool {
        self.meta.meta().hole.is_some()
    }

    /// Recovery judges an unclean stop by it.
    fn set_durability(&mut self, durability: Durability) -> Result<(), StoreError> {
        let process = durability == Durability::Process;
        if self.meta.meta().process == process {
            return self.shared.check();
        }
        if process {
            // An entry that is acknowledged from here on is written.
            self.guarded(|log| log.write_all())?;
        }
        self.save_meta(|m| m.process = process)
    }

    fn wants_checkpoint(&self) -> bool {
        self.segment_begun && self.is_checkpoint_due()
    }

    /// A state that is not one of this log is refused and changes nothing.
    fn save_checkpoint(&mut self, base: &Base) -> Result<(), StoreError> {
        self.shared.check()?;
        let after = {
            let held = self.shared.held();
            // One that is in no file as yet is committed all the same; if it never gets there, recovery drops the checkpoint.
            let waiting = held.waiting(base.index).map(|entry| (entry.header.term, entry.header.seqno));
            held.slot(base.index).map(|s| (s.term, s.seqno)).or(waiting)
        };
        let fits = base.history == self.base.history
            && (base.index == self.base.index || after == Some((base.term, base.seqno)));
        if !fits {
            return Err(StoreError::Refused(format!("the state after entry {} is not one of this log", base.index)));
        }
        self.segment_begun = false;
        if self.kept.back().is_some_and(|k| k.index >= base.index) || base.index == self.base.index {
            return Ok(());
        }
        self.guarded(|log| {
            let number = log.take_number()?;
            let file = checkpoint::write(&log.storage, number, Purpose::Kept, base, log.keys.as_ref())?;
            log.note_names_changed();
            log.mark_dirty(number, &file);
            log.kept.push_back(Kept::new(number, base, Some(log.serial)));
            Ok(())
        })
    }

    fn checkpoint_before(&self, seqno: Seqno) -> Option<Base> {
        for kept in self.kept.iter().rev().filter(|k| k.seqno <= seqno && k.index > self.base.index) {
            // One that cannot be read back is as good as absent; an older one serves as well.
            if let Ok(Some((_, base))) = checkpoint::read(&self.storage, kept.number, self.keys.as_ref()) {
                return Some(base);
            }
        }
        (self.base.seqno <= seqno).then(|| self.base.clone())
    }
}
