//! How much history is kept: `gcache.size` and its companions.

use trireme_order::LogStore;
use trireme_order::StoreError;
use trireme_types::LogIndex;

use crate::checkpoint::{self, Kept};
use crate::index::Segment;
use crate::log::{Spare, WriteSetLog};
use crate::names;
use crate::options::Trim;
use crate::storage::Storage;
use crate::wish::{TrimAnswer, TrimWish};

impl<S: Storage> WriteSetLog<S> {
    /// Bytes of all segment files, the spare and damaged ones included.
    pub fn bytes_held(&self) -> u64 {
        let segments: u64 = self.shared.held().segments.iter().map(|s| s.capacity).sum();
        let spare = if self.spare.is_some() { self.segment_size } else { 0 };
        segments + spare + self.damaged.iter().map(|(_, len)| len).sum::<u64>()
    }

    /// Is there more than `gcache.size + gcache.keep_pages_size`? Then a checkpoint and [`WriteSetLog::trim`] are due.
    pub fn wants_trim(&self) -> bool {
        self.excess() > 0
    }

    /// Bytes held beyond `gcache.size + gcache.keep_pages_size`.
    pub fn excess(&self) -> u64 {
        self.bytes_held().saturating_sub(self.bytes_max)
    }

    /// From now on no checkpoint is wanted before the segments behind the newest one take `bytes`. Zero: one for each segment. Meant for a time
    /// in which the state is so large that writing it takes long, and so does reading it back for trimming. Entries behind the newest
    /// checkpoint cannot be trimmed, and are delivered again after a restart.
    pub fn space_checkpoints(&mut self, bytes: u64) {
        self.checkpoint_spacing = bytes;
    }

    pub(crate) fn is_checkpoint_due(&self) -> bool {
        if self.checkpoint_spacing == 0 {
            return true;
        }
        let newest = self.kept.back().map_or(self.base.index, |kept| kept.index);
        let held = self.shared.held();
        let behind: u64 = held.segments.iter().rev().take_while(|s| s.first > newest).map(|s| s.capacity).sum();
        behind >= self.checkpoint_spacing
    }

    /// Drops the oldest segments until the rest fits the bound. Returns the first index held.
    ///
    /// Moves the base to a durable checkpoint; so nothing is dropped beyond the newest one, nor beyond `keep_from`, nor beyond what
    /// is synced (so the oldest segment left always has a durable header), and the segment that takes the appends always stays. The bound yields to all of these.
    pub fn trim(&mut self, limits: Trim) -> Result<LogIndex, StoreError> {
        let bytes_max = limits.bytes_max.unwrap_or(self.bytes_max);
        self.guarded(|log| log.try_trim(limits.keep_from, bytes_max))?;
        Ok(self.first())
    }

    fn try_trim(&mut self, keep_from: LogIndex, bytes_max: u64) -> Result<(), StoreError> {
        while self.bytes_held() > bytes_max
            && let Some((number, _)) = self.damaged.pop()
        {
            self.storage.remove(&names::damaged(number))?;
            self.note_names_changed();
        }
        let excess = self.bytes_held().saturating_sub(bytes_max);
        if excess == 0 {
            return Ok(());
        }
        let candidates: Vec<Kept> = self
            .kept
            .iter()
            .copied()
            .filter(|k| {
                k.written_after.is_none() && k.index > self.base.index && k.index < keep_from && k.index < self.synced
            })
            .collect();
        // The lowest that frees enough, else the lowest of those that free most.
        let mut best: Option<(Kept, u64)> = None;
        for kept in candidates {
            let freed = self.freed_by(kept.index);
            if freed > best.map_or(0, |(_, freed)| freed) {
                best = Some((kept, freed));
            }
            if freed >= excess {
                break;
            }
        }
        let Some((kept, _)) = best else { return Ok(()) };
        let Some((_, base)) = checkpoint::read(&self.storage, kept.number, self.keys.as_ref())? else {
            return Err(StoreError::Damaged(format!(
                "{} cannot be read back as it was written: the disk returned other bytes",
                names::checkpoint(kept.number)
            )));
        };
        self.base = base;
        let dropped: Vec<Segment<S::File>> = {
            let mut held = self.shared.held_mut();
            let count = held.segments.iter().skip(1).take_while(|next| next.first.prev() <= kept.index).count();
            let below = (kept.index.0 - held.base.0) as usize;
            held.slots.drain(..below);
            held.base = kept.index;
            held.segments.drain(..count).collect()
        };
        // Segments first, in their order: while one of them is left, so are all younger ones and the states between.
        for segment in dropped {
            self.forget_dirty(segment.number);
            let name = names::segment(segment.number);
            // Clear text does not lie about in the files of a log that is sealed.
            let may_stay = self.keys.is_none() || segment.key.is_some();
            let recycle =
                may_stay && segment.capacity == self.segment_size && self.spare.is_none() && !self.spare_in_flight;
            if recycle && self.bytes_held() + self.segment_size <= bytes_max {
                self.storage.rename(&name, names::SPARE)?;
                self.spare = Some(Spare { file: segment.file, written_after: Some(self.serial()) });
            } else {
                self.storage.remove(&name)?;
                if segment.capacity > self.segment_size {
                    self.removed.push(segment.file);
                }
            }
        }
        while self.kept.front().is_some_and(|k| k.index < kept.index) {
            if let Some(old) = self.kept.pop_front() {
                self.forget_dirty(old.number);
                self.storage.remove(&names::checkpoint(old.number))?;
            }
        }
        self.note_names_changed();
        Ok(())
    }

    /// An operator's wish to drop entries, once.
    pub fn take_wish(&self) -> Result<Option<TrimWish>, StoreError> {
        TrimWish::take(&self.storage)
    }

    pub fn answer_wish(&self, answer: &TrimAnswer) -> Result<(), StoreError> {
        answer.put(&self.storage)
    }

    /// Files that hold what a large record took and have lost their names: to close one gives its space back, which takes tenths of
    /// a second. To be dropped where nobody waits.
    pub fn take_removed(&mut self) -> Vec<S::File> {
        std::mem::take(&mut self.removed)
    }

    /// Bytes of the segments that end at or below `index`.
    fn freed_by(&self, index: LogIndex) -> u64 {
        let held = self.shared.held();
        held.segments
            .iter()
            .zip(held.segments.iter().skip(1))
            .filter(|(_, next)| next.first.prev() <= index)
            .map(|(s, _)| s.capacity)
            .sum()
    }
}
