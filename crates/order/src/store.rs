//! The log, as the order needs it. The real one is `trireme-wslog`; the simulator runs the same code over a disk that it crashes.

use trireme_types::{Base, Durability, Entry, HardState, LogIndex, Seqno, Term};

/// A log operation that failed or was refused. A failure is final: the log refuses everything afterwards and the member leaves. A refusal
/// has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The file system did not carry out an operation.
    #[error("write-set log: cannot {operation} {path}: {said}; {}", cause.advice())]
    Disk { operation: String, path: String, cause: DiskFault, said: String },
    /// It failed before, for the reason given.
    #[error("the write-set log refuses everything since its first failure: {0}")]
    Failed(Box<StoreError>),
    /// Another process has it open.
    #[error("write-set log: {0}")]
    InUse(String),
    /// There is none where it should be.
    #[error("write-set log: there is none in its directory: is the file system mounted that holds it?")]
    Absent,
    /// Bytes came back other than they were written, or files are missing.
    #[error("write-set log: {0}")]
    Damaged(String),
    /// Another version of Trireme wrote it. Nothing was changed.
    #[error("write-set log: {0}")]
    OtherVersion(String),
    /// It is encrypted with another key than those that are given, or cannot be encrypted. Nothing was changed.
    #[error("write-set log: {0}")]
    Key(String),
    /// A request that does not fit this log. Nothing was changed.
    #[error("write-set log: {0}")]
    Refused(String),
}

/// Why the file system did not carry out an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    Full,
    Denied,
    ReadOnly,
    /// It cannot do this at all.
    Unsupported,
    /// The file or its directory is not there.
    Gone,
    Other,
}

impl DiskFault {
    /// The advice to an operator.
    fn advice(self) -> &'static str {
        match self {
            DiskFault::Full => "free space on that file system, or lower gcache.size",
            DiskFault::Denied => "give the server's user read and write access",
            DiskFault::ReadOnly => {
                "the file system is read-only: look into the kernel log for the reason, and remount it"
            }
            DiskFault::Unsupported => "give gcache.dir another file system, or leave repl.log_io at threads",
            DiskFault::Gone => "check gcache.dir: the directory must exist and stay mounted",
            DiskFault::Other => "look into the kernel log for errors of the disk",
        }
    }
}

/// A log of entries `first()..=last()`, dense, with the state just before `first()` in `base()`.
///
/// An appended entry is in the log at once, for whoever reads it here. It counts as held, and may be acknowledged, only once it is
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
    /// Is there something for `write_on`? Pieces that a sync will write are not.
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
    /// Durable on return. `None`: the log is whole, so it is not outdated either.
    fn set_suspect(&mut self, after: Option<LogIndex>) -> Result<(), StoreError>;
    /// Changes of the voters may be among what is missing: those that this log names may be the voters of then (rule 12). Only a suspect log is.
    fn is_outdated(&self) -> bool;
    /// Durable on return.
    fn set_outdated(&mut self, outdated: bool) -> Result<(), StoreError>;
    /// Has it lost records that were on disk (rule 17), and is it not repaired since? Any kind of entry may be among them. Only a suspect log has.
    fn is_damaged(&self) -> bool;
    /// The meaning of acknowledgements from here on: `Process` makes the log suspect after a loss of power. Durable on return.
    fn set_durability(&mut self, durability: Durability) -> Result<(), StoreError>;
    /// Would the log like a checkpoint now (a segment was begun since the last one)?
    fn wants_checkpoint(&self) -> bool;
    /// Keeps `base` (state after a delivered index within the log) so that the log may later be trimmed up to it and
    /// delivery may start there.
    fn save_checkpoint(&mut self, base: &Base) -> Result<(), StoreError>;
    /// The newest kept state (base included) whose seqno is at most `seqno`.
    fn checkpoint_before(&self, seqno: Seqno) -> Option<Base>;
}
