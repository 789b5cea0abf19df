//! Which log a node runs on: the simulator's simple one or the real one over a simulated disk.

use trireme_order::{LogStore, StoreError};
use trireme_types::{Base, Entry, HardState, LogIndex, Seqno, Term};

use crate::options::Options;
use crate::rng::Rng;
use crate::store::{Appended, FastStore};

#[derive(Clone)]
pub enum Store {
    Fast(FastStore),
}

macro_rules! each {
    ($self:ident, $s:ident => $body:expr) => {
        match $self {
            Store::Fast($s) => $body,
        }
    };
}

impl Store {
    pub fn create(options: &Options, seed: u64) -> Store {
        let _ = seed;
        Store::Fast(FastStore::new(options))
    }
    pub fn set_keep(&mut self, seqno: Seqno) {
        each!(self, s => s.set_keep(seqno))
    }
    pub fn set_fuse(&mut self, operations: u32) {
        each!(self, s => s.set_fuse(operations))
    }
    pub fn failed(&self) -> bool {
        each!(self, s => s.failed())
    }
    pub fn take_appended(&mut self) -> Vec<Appended> {
        each!(self, s => s.take_appended())
    }
    pub fn complete_sync(&mut self, generation: u64, upto: LogIndex) {
        each!(self, s => s.complete_sync(generation, upto))
    }
    pub fn reopen(&mut self) {
        each!(self, s => s.reopen())
    }
    pub fn process_died(&mut self, rng: &mut Rng) {
        each!(self, s => s.process_died(rng))
    }
    pub fn lose_power(&mut self, rng: &mut Rng) {
        each!(self, s => s.lose_power(rng))
    }
}

impl LogStore for Store {
    fn base(&self) -> &Base {
        each!(self, s => s.base())
    }
    fn last(&self) -> LogIndex {
        each!(self, s => s.last())
    }
    fn synced(&self) -> LogIndex {
        each!(self, s => s.synced())
    }
    fn generation(&self) -> u64 {
        each!(self, s => s.generation())
    }
    fn term_at(&self, index: LogIndex) -> Option<Term> {
        each!(self, s => s.term_at(index))
    }
    fn index_of(&self, seqno: Seqno) -> Option<LogIndex> {
        each!(self, s => s.index_of(seqno))
    }
    fn read(&self, from: LogIndex, max_bytes: usize) -> Result<Vec<Entry>, StoreError> {
        each!(self, s => s.read(from, max_bytes))
    }
    fn append(&mut self, entries: &[Entry]) -> Result<(), StoreError> {
        each!(self, s => s.append(entries))
    }
    fn truncate_after(&mut self, index: LogIndex) -> Result<(), StoreError> {
        each!(self, s => s.truncate_after(index))
    }
    fn reset(&mut self, base: Base) -> Result<(), StoreError> {
        each!(self, s => s.reset(base))
    }
    fn hard_state(&self) -> HardState {
        each!(self, s => s.hard_state())
    }
    fn save_hard_state(&mut self, state: HardState) -> Result<(), StoreError> {
        each!(self, s => s.save_hard_state(state))
    }
    fn wants_checkpoint(&self) -> bool {
        each!(self, s => s.wants_checkpoint())
    }
    fn save_checkpoint(&mut self, base: &Base) -> Result<(), StoreError> {
        each!(self, s => s.save_checkpoint(base))
    }
    fn checkpoint_before(&self, seqno: Seqno) -> Option<Base> {
        each!(self, s => s.checkpoint_before(seqno))
    }
}
