//! What the order needs of a log. The real one is `trireme-wslog`; the simulator runs the same code over a disk that it crashes.

use trireme_types::{Base, Durability, Entry, HardState, LogIndex, Seqno, Term};

/// A failed log operation. Final: the log refuses everything afterwards and the member leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError(pub String);

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StoreError {}

/// A log of entries `first()..=last()`, dense, with the state just before `first()` in `base()`.
///
/// What is appended is in the log at once, for whoever reads it here. It counts as held, and may be acknowledged, only once it is
/// *written* (it survives the death of the process): when `append` returns, but for large entries and what follows them, which
/// `write_on` writes piece by piece. It is durable only once the driver has synced it, which it reports to the group by
/// `handle_synced(generation, upto)`.
pub trait LogStore {
    /// State just before the first entry held; `base().index + 1 == first()`.
    fn base(&self) -> &Base;
    fn first(&self) -> LogIndex {
        self.base().index.next()
    }
    /// Index of the last entry; `base().index` when the log is empty.
    fn last(&self) -> LogIndex;
    /// Everything up to here is written.
    fn written(&self) -> LogIndex;
    /// Everything up to here is written, or will be with the next sync: in mode `disk` what the others have committed may be delivered up to here. After
    /// the death of the process less may be left, as after a loss of power. Never what may be acknowledged.
    fn held(&self) -> LogIndex {
        self.written()
    }
    /// Everything up to here is on disk, as far as this store knows (after open: what recovery verified).
    fn synced(&self) -> LogIndex;
    /// Rises with every truncation or reset: a sync completion of an older generation counts for nothing (rule 2).
    fn generation(&self) -> u64;
    /// Term of the entry at `index`; also answers for `base().index`. `None` outside.
    fn term_at(&self, index: LogIndex) -> Option<Term>;
    /// Index of the entry that took `seqno`, when held.
    fn index_of(&self, seqno: Seqno) -> Option<LogIndex>;
    /// Consecutive entries from `from` on: at least one when held, then as many as fit into `max_bytes` of payload.
    fn read(&self, from: LogIndex, max_bytes: usize) -> Result<Vec<Entry>, StoreError>;
    /// Appends after `last()`; indexes must be consecutive.
    fn append(&mut self, entries: &[Entry]) -> Result<(), StoreError>;
    /// Is there something for `write_on`? What a sync will write is not.
    fn wants_write_on(&self) -> bool {
        self.written() < self.last()
    }
    /// Writes a piece of what is appended and not written. Call it until nothing is wanted, and do other things in between.
    fn write_on(&mut self) -> Result<(), StoreError>;
    /// Forgets everything after `index` (≥ base().index).
    fn truncate_after(&mut self, index: LogIndex) -> Result<(), StoreError>;
    /// Forgets everything and continues at `base.index + 1`. Durable on return.
    fn reset(&mut self, base: Base) -> Result<(), StoreError>;
    fn hard_state(&self) -> HardState;
    /// Durable on return, in both durability modes.
    fn save_hard_state(&mut self, state: HardState) -> Result<(), StoreError>;
    /// Entries above this may be missing although this member acknowledged them (rules 12, 16, 17): it says nothing about
    /// what was committed until it is repaired. `None`: the log is whole.
    fn suspect(&self) -> Option<LogIndex>;
    /// Durable on return.
    fn set_suspect(&mut self, after: Option<LogIndex>) -> Result<(), StoreError>;
    /// What acknowledgements mean from here on: `Process` makes the log suspect after a loss of power. Durable on return.
    fn set_durability(&mut self, durability: Durability) -> Result<(), StoreError>;
    /// Would the log like a checkpoint now (a segment was begun since the last one)?
    fn wants_checkpoint(&self) -> bool;
    /// Keeps `base` (state after a delivered index within the log) so that the log may later be trimmed up to it and
    /// delivery may start there.
    fn save_checkpoint(&mut self, base: &Base) -> Result<(), StoreError>;
    /// The newest kept state (base included) whose seqno is at most `seqno`.
    fn checkpoint_before(&self, seqno: Seqno) -> Option<Base>;
}
