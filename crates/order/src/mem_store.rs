//! A log in memory, for tests: what is written survives, what is synced is what the test says.

use trireme_types::{Base, Durability, Entry, HardState, LogIndex, Seqno, Term};

use crate::{DiskFault, LogStore, StoreError};

#[derive(Clone, Debug, Default)]
pub struct MemStore {
    base: Base,
    entries: Vec<Entry>,
    hard: HardState,
    synced: LogIndex,
    suspect: Option<LogIndex>,
    outdated: bool,
    damaged: bool,
    process: bool,
    generation: u64,
    checkpoints: Vec<Base>,
    /// Entries between checkpoints wanted; zero: never.
    pub checkpoint_every: u64,
    /// Nothing is appended any more: what is on disk then is what a crash at that moment leaves.
    pub full: bool,
}

impl MemStore {
    pub fn new() -> MemStore {
        MemStore::default()
    }

    fn needs_room(&self, operation: &str) -> Result<(), StoreError> {
        let (operation, path, said) = (operation.to_owned(), "memory".into(), "no space left".to_owned());
        if self.full { Err(StoreError::Disk { operation, path, cause: DiskFault::Full, said }) } else { Ok(()) }
    }

    /// Records behind `end` turn out to be unreadable.
    pub fn damage(&mut self, end: LogIndex) -> Result<(), StoreError> {
        self.truncate_after(end)?;
        self.suspect = Some(self.suspect.map_or(end, |before| before.min(end)));
        self.damaged = true;
        Ok(())
    }

    /// Everything written becomes durable; returns what to report to the group.
    pub fn sync(&mut self) -> (u64, LogIndex) {
        self.synced = self.last();
        (self.generation, self.synced)
    }

    /// Power loss: what was not synced is gone.
    pub fn lose_unsynced(&mut self) {
        if self.process {
            self.suspect = Some(self.synced);
        }
        let keep = self.synced.0.saturating_sub(self.base.index.0) as usize;
        self.entries.truncate(keep);
    }

    /// Forgets entries up to the newest checkpoint at or below `index`.
    pub fn trim(&mut self, index: LogIndex) {
        if let Some(base) = self.checkpoints.iter().rev().find(|c| c.index <= index).cloned() {
            self.entries.drain(..(base.index.0 - self.base.index.0) as usize);
            self.checkpoints.retain(|c| c.index > base.index);
            self.base = base;
        }
    }

    fn position(&self, index: LogIndex) -> Option<usize> {
        index.0.checked_sub(self.base.index.0 + 1).map(|p| p as usize)
    }
}

impl LogStore for MemStore {
    fn base(&self) -> &Base {
        &self.base
    }
    fn last(&self) -> LogIndex {
        LogIndex(self.base.index.0 + self.entries.len() as u64)
    }
    fn written(&self) -> LogIndex {
        self.last()
    }
    fn write_on(&mut self) -> Result<(), StoreError> {
        Ok(())
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
        self.entries.get(self.position(index)?).map(|e| e.header.term)
    }
    fn index_of(&self, seqno: Seqno) -> Option<LogIndex> {
        self.entries.iter().find(|e| e.header.kind.takes_seqno() && e.header.seqno == seqno).map(|e| e.header.index)
    }
    fn read(&self, from: LogIndex, max_bytes: usize) -> Result<Vec<Entry>, StoreError> {
        let Some(start) = self.position(from) else { return Ok(Vec::new()) };
        let mut bytes = 0;
        Ok(self
            .entries
            .iter()
            .skip(start)
            .enumerate()
            .take_while(|(n, e)| {
                bytes += e.payload.len();
                *n == 0 || bytes <= max_bytes
            })
            .map(|(_, e)| e.clone())
            .collect())
    }
    fn append(&mut self, entries: &[Entry]) -> Result<(), StoreError> {
        self.needs_room("append to")?;
        for e in entries {
            assert_eq!(e.header.index, self.last().next(), "entries are appended without gaps");
            self.entries.push(e.clone());
        }
        Ok(())
    }
    fn truncate_after(&mut self, index: LogIndex) -> Result<(), StoreError> {
        assert!(index >= self.base.index);
        self.entries.truncate((index.0 - self.base.index.0) as usize);
        self.synced = self.synced.min(index);
        self.checkpoints.retain(|c| c.index <= index);
        self.generation += 1;
        Ok(())
    }
    fn reset(&mut self, base: Base) -> Result<(), StoreError> {
        self.needs_room("replace")?;
        self.entries.clear();
        self.checkpoints.clear();
        self.synced = base.index;
        self.base = base;
        self.generation += 1;
        Ok(())
    }
    fn hard_state(&self) -> HardState {
        self.hard
    }
    fn save_hard_state(&mut self, state: HardState) -> Result<(), StoreError> {
        self.hard = state;
        Ok(())
    }
    fn suspect(&self) -> Option<LogIndex> {
        self.suspect
    }
    fn set_suspect(&mut self, after: Option<LogIndex>) -> Result<(), StoreError> {
        self.suspect = after;
        self.outdated &= after.is_some();
        self.damaged &= after.is_some();
        Ok(())
    }
    fn is_outdated(&self) -> bool {
        self.outdated
    }
    fn set_outdated(&mut self, outdated: bool) -> Result<(), StoreError> {
        self.outdated = outdated;
        Ok(())
    }
    fn is_damaged(&self) -> bool {
        self.damaged
    }
    fn set_durability(&mut self, durability: Durability) -> Result<(), StoreError> {
        self.process = durability == Durability::Process;
        Ok(())
    }
    fn wants_checkpoint(&self) -> bool {
        let newest = self.checkpoints.last().map_or(self.base.index, |c| c.index);
        self.checkpoint_every > 0 && self.last().0 >= newest.0 + self.checkpoint_every
    }
    fn save_checkpoint(&mut self, base: &Base) -> Result<(), StoreError> {
        self.checkpoints.push(base.clone());
        Ok(())
    }
    fn checkpoint_before(&self, seqno: Seqno) -> Option<Base> {
        self.checkpoints.iter().rev().chain(std::iter::once(&self.base)).find(|c| c.seqno <= seqno).cloned()
    }
}
