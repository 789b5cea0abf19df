//! Which log a node runs on: the simulator's simple one or the real one over a simulated disk.

use trireme_order::{LogStore, StoreError};
use trireme_types::{Base, Durability, Entry, HardState, LogIndex, NodeId, Seqno, Term};

use crate::options::{Options, StoreKind};
use crate::outage::Sick;
use crate::real::RealStore;
use crate::rng::Rng;
use crate::store::{Appended, FastStore};

pub enum Store {
    Fast(Box<FastStore>),
    Real(Box<RealStore>),
}

macro_rules! each {
    ($self:ident, $s:ident => $body:expr) => {
        match $self {
            Store::Fast($s) => $body,
            Store::Real($s) => $body,
        }
    };
}

impl Store {
    pub fn create(options: &Options, node: NodeId, seed: u64) -> Store {
        match options.store {
            StoreKind::Fast => Store::Fast(Box::new(FastStore::new(options))),
            StoreKind::Real => Store::Real(Box::new(RealStore::create(options, node, seed))),
        }
    }
    /// Stands in while the true store is on its way from a process to its slot.
    pub fn nothing() -> Store {
        Store::Fast(Box::new(FastStore::new(&Options::calm(0, 1))))
    }
    /// About how many entries it holds beyond what it is to hold in any case; zero: nothing may go.
    pub fn excess(&self) -> u64 {
        each!(self, s => s.excess())
    }
    /// Drops some of these, none from `keep_from` on.
    pub fn trim(&mut self, keep_from: LogIndex) {
        each!(self, s => s.trim(keep_from))
    }
    /// Drops all that it may below `keep_from`, also what it is to hold in any other case.
    pub fn trim_wholly(&mut self, keep_from: LogIndex) {
        each!(self, s => s.trim_wholly(keep_from))
    }
    /// Let an operation fail soon.
    pub fn set_fuse(&mut self, operations: u32) {
        each!(self, s => s.set_fuse(operations))
    }
    /// No more failures from here on.
    pub fn clear_fuse(&mut self) {
        each!(self, s => s.clear_fuse())
    }
    /// The same because of the disk, which stays as it is.
    pub fn break_soon(&mut self, sick: Sick, operations: u32) {
        each!(self, s => s.break_soon(sick, operations))
    }
    /// It has failed, and may have lost what no sync has covered.
    pub fn doubt(&mut self) {
        each!(self, s => s.doubt())
    }
    /// Opened again by the process that has it, after it failed; `None`: that does not work yet. `works`: the disk does. `drops`: it
    /// has lost what no sync had covered, or some of that. Says whether anything that was written is gone.
    pub fn come_back(&mut self, works: bool, drops: bool, rng: &mut Rng) -> Option<bool> {
        match self {
            Store::Fast(s) => s.come_back(works, drops, rng),
            Store::Real(s) => s.come_back(works, drops),
        }
    }
    /// The meaning of its acknowledgements, as the next process will read it.
    pub fn durability(&self) -> Durability {
        each!(self, s => s.durability())
    }
    pub fn failed(&self) -> bool {
        each!(self, s => s.failed())
    }
    /// It has failed, and something was done to it.
    pub fn failed_for_a_reason(&self) -> bool {
        match self {
            Store::Fast(s) => s.failed(),
            Store::Real(s) => s.failed_for_a_reason(),
        }
    }
    /// A fault makes operations of it fail, so that its end may look like damage after a death. The simple log is never torn.
    pub fn is_fused(&self) -> bool {
        match self {
            Store::Fast(_) => false,
            Store::Real(s) => s.is_fused(),
        }
    }
    /// Was it opened anew after such a fault? Says so once.
    pub fn take_torn(&mut self) -> bool {
        match self {
            Store::Fast(_) => false,
            Store::Real(s) => s.take_torn(),
        }
    }
    pub fn take_appended(&mut self) -> Vec<Appended> {
        each!(self, s => s.take_appended())
    }
    /// Generation and position of a sync that begins now; `None` when there is nothing to sync.
    pub fn begin_sync(&mut self, early: bool) -> Option<(u64, LogIndex)> {
        match self {
            Store::Fast(s) => s.begin_sync(),
            Store::Real(s) => s.begin_sync(early),
        }
    }
    /// The sync is done; says whether it succeeded.
    pub fn complete_sync(&mut self, generation: u64, upto: LogIndex) -> bool {
        match self {
            Store::Fast(s) => {
                s.complete_sync(generation, upto);
                !s.failed()
            }
            Store::Real(s) => s.complete_sync(),
        }
    }
    /// Everything is on the disk when this returns, unless the log has failed.
    pub fn sync_all(&mut self) {
        match self {
            Store::Fast(s) => {
                if let Some((generation, upto)) = s.begin_sync() {
                    s.complete_sync(generation, upto);
                }
            }
            Store::Real(s) => s.sync_all(),
        }
    }
    pub fn housekeeping(&mut self) {
        match self {
            Store::Fast(_) => {}
            Store::Real(s) => s.housekeeping(),
        }
    }
    /// A write past the page cache is under way.
    pub fn writes_past_cache(&self) -> bool {
        match self {
            Store::Fast(_) => false,
            Store::Real(s) => s.writes_past_cache(),
        }
    }
    pub fn take_complaint(&mut self) -> Option<String> {
        match self {
            Store::Fast(_) => None,
            Store::Real(s) => s.take_complaint(),
        }
    }
    /// `drops`: it was in an outage of its disk, which has lost all that no sync had covered. Says whether anything that was written is
    /// gone.
    pub fn process_died(&mut self, drops: bool, rng: &mut Rng) -> bool {
        match self {
            Store::Fast(s) => s.process_died(drops, rng),
            Store::Real(s) => s.process_died(drops),
        }
    }
    /// The log that a node finds when it is started on a copy of this disk.
    pub fn copy(&self) -> Store {
        match self {
            Store::Fast(s) => Store::Fast(Box::new(s.copy())),
            Store::Real(s) => Store::Real(Box::new(s.copy())),
        }
    }
    /// Bits of what is stored flip.
    pub fn damage(&mut self, rng: &mut Rng) {
        each!(self, s => s.damage(rng))
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
    fn written(&self) -> LogIndex {
        each!(self, s => s.written())
    }
    fn held(&self) -> LogIndex {
        each!(self, s => s.held())
    }
    fn wants_write_on(&self) -> bool {
        each!(self, s => s.wants_write_on())
    }
    fn write_on(&mut self) -> Result<(), StoreError> {
        each!(self, s => s.write_on())
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
    fn suspect(&self) -> Option<LogIndex> {
        each!(self, s => s.suspect())
    }
    fn set_suspect(&mut self, after: Option<LogIndex>) -> Result<(), StoreError> {
        each!(self, s => s.set_suspect(after))
    }
    fn is_outdated(&self) -> bool {
        each!(self, s => s.is_outdated())
    }
    fn set_outdated(&mut self, outdated: bool) -> Result<(), StoreError> {
        each!(self, s => s.set_outdated(outdated))
    }
    fn is_damaged(&self) -> bool {
        each!(self, s => s.is_damaged())
    }
    fn set_durability(&mut self, durability: Durability) -> Result<(), StoreError> {
        each!(self, s => s.set_durability(durability))
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
