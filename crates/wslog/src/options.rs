//! The caller's options at open, and the report that it gets.

use trireme_types::{LogIndex, NodeId};

use crate::seal::LogKeys;

/// Longest boot id text kept.
pub const BOOT_ID_MAX: usize = 200;

/// How to open a log.
#[derive(Clone, Debug)]
pub struct Options {
    /// `gcache.size` in bytes: bound on the bytes of all segments together, and through [`Options::segment_size`] their size.
    pub size: u64,
    /// `gcache.keep_pages_size` in bytes: history that may be kept beyond `size`.
    pub keep_pages_size: u64,
    /// `gcache.recover`. `false`: start with an empty log. The identity and its promises stay, so the member is suspect
    /// ([`OpenReport::suspect`]) until it holds a log again.
    pub recover: bool,
    /// Voter id for a directory that has none yet: a fresh random UUID. `None`: there must be a log.
    pub new_node: Option<NodeId>,
    /// A string that changes when the page cache was lost: kernel boot id, and the host. At most [`BOOT_ID_MAX`] bytes
    /// count. Empty: unknown, treated as changed.
    pub boot_id: String,
    /// The keys that the log is encrypted with; `None`: it is in clear text. A log that was sealed is not opened without its
    /// keys.
    pub keys: Option<LogKeys>,
    /// Overrides the segment size derived from `size` (the simulator's small disks).
    pub segment_size_override: Option<u64>,
    /// Overrides the most bytes of payload that one call writes (the simulator's small records).
    pub slice_override: Option<usize>,
}

/// Most bytes of payload that one call writes: at the pace of a slow disk (25 MB/s) it takes 20 ms, a fifth of a heartbeat.
const SLICE: usize = 512 << 10;

impl Options {
    pub fn new(new_node: impl Into<Option<NodeId>>, boot_id: impl Into<String>) -> Options {
        Options {
            size: 128 << 20,
            keep_pages_size: 0,
            recover: true,
            new_node: new_node.into(),
            boot_id: boot_id.into(),
            keys: None,
            segment_size_override: None,
            slice_override: None,
        }
    }

    pub(crate) fn slice(&self) -> usize {
        self.slice_override.unwrap_or(SLICE).max(1)
    }

    /// An eighth of `size`, within 1 … 64 MiB: dropping one segment frees an eighth of the history, and a small gcache still
    /// has segments that hold more than a handful of write sets.
    pub fn segment_size(&self) -> u64 {
        let size = self.segment_size_override.unwrap_or((self.size / 8).clamp(1 << 20, 64 << 20));
        size.max(4096).next_multiple_of(512)
    }
}

/// The kernel's boot id and this machine's id; empty when unknown.
pub fn read_boot_id() -> String {
    let read = |path: &str| std::fs::read_to_string(path).map(|s| s.trim().to_string()).unwrap_or_default();
    let boot = read("/proc/sys/kernel/random/boot_id");
    if boot.is_empty() { boot } else { format!("{boot}/{}", read("/etc/machine-id")) }
}

/// Indexes `from..=to`, never empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexRange {
    pub from: LogIndex,
    pub to: LogIndex,
}

impl std::fmt::Display for IndexRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.from, self.to)
    }
}

/// The findings of recovery. The log is usable in every case; what it may claim to the group is the caller's decision.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OpenReport {
    /// The directory held no log: the voter id is new.
    pub created: bool,
    /// The last user did not close the log.
    pub unclean: bool,
    /// The page cache is not the one that the last user wrote to: the boot id differs, or one of the two is unknown.
    pub rebooted: bool,
    /// The durable watermark as found: the highest position of which any trace says that it was synced.
    pub watermark: LogIndex,
    /// Entries above the watermark that were not whole and were cut: they were never acknowledged as durable.
    pub torn_tail_cut: bool,
    /// These entries were synced once (or cannot have been torn) and are gone or damaged; the log ends before them.
    pub hole: Option<IndexRange>,
    /// History below the base that could not be kept because of damage. Harmless for what was acknowledged.
    pub lost_history: Option<IndexRange>,
    /// Entries above this index may be missing although this member acknowledged them (rules 16, 17): no vote until a
    /// majority of others has confirmed or repaired the log. Kept in the metadata, over restarts, until
    /// `LogStore::set_suspect(None)`.
    pub suspect: Option<LogIndex>,
    /// One of the two copies of the metadata was unreadable; the other was used.
    pub metadata_copy_lost: bool,
    /// A line per thing an operator would want to know.
    pub notes: Vec<String>,
}

/// How far the log may be trimmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trim {
    /// Nothing from here on may go: what appliers, the certification cut and open streaming fragments still need.
    pub keep_from: LogIndex,
    /// Bound on the bytes of all segments; `None`: `gcache.size + gcache.keep_pages_size`.
    pub bytes_max: Option<u64>,
}
