//! Counters and the group's published state, for the status variables.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use trireme_surface::status::LocalState;
use trireme_types::{Seqno, Uuid};

use crate::roster::NodeState;

/// What the group thread publishes for others to read.
#[derive(Clone, Debug, Default)]
pub struct GroupStatus {
    pub member: bool,
    pub state: Option<NodeState>,
    /// The server has not got its state yet.
    pub receiving: bool,
    pub desyncs: u32,
    pub incoming: Vec<String>,
    pub weight: u32,
    pub uuid: Uuid,
    pub segment: u8,
    pub first_seqno: Seqno,
}

impl GroupStatus {
    /// As far as the group knows (surface 2.3).
    pub fn local_state(&self) -> LocalState {
        match (self.member, self.state) {
            (false, _) | (true, None) => LocalState::Initialized,
            (true, Some(NodeState::Primary | NodeState::Joiner)) if self.receiving => LocalState::JoiningReceiving,
            (true, Some(NodeState::Primary | NodeState::Joiner)) => LocalState::Joining,
            (true, Some(NodeState::Donor)) => LocalState::Donor,
            (true, Some(NodeState::Joined)) => LocalState::Joined,
            (true, Some(NodeState::Synced)) => LocalState::Synced,
        }
    }
}

macro_rules! counters {
    ($($name:ident),* $(,)?) => {
        #[derive(Default)]
        pub struct Counters {
            $(pub $name: AtomicU64,)*
        }
    };
}

counters!(
    replicated_count,
    replicated_bytes,
    repl_keys,
    repl_keys_bytes,
    repl_data_bytes,
    received_count,
    received_bytes,
    local_commits,
    local_cert_failures,
    local_replays,
    causal_reads,
    // Since the last reset:
    certified_count,
    deps_distance_sum,
    interval_sum,
    // A level, not a count:
    cert_index_size,
);

impl Counters {
    pub fn replicated(&self, bytes: usize, keys: usize, key_bytes: usize, data_bytes: usize) {
        self.replicated_count.fetch_add(1, Relaxed);
        self.replicated_bytes.fetch_add(bytes as u64, Relaxed);
        self.repl_keys.fetch_add(keys as u64, Relaxed);
        self.repl_keys_bytes.fetch_add(key_bytes as u64, Relaxed);
        self.repl_data_bytes.fetch_add(data_bytes as u64, Relaxed);
    }

    pub fn received(&self, bytes: usize) {
        self.received_count.fetch_add(1, Relaxed);
        self.received_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub fn certified(&self, seqno: Seqno, depends_on: Seqno, last_seen: Seqno, index_size: usize) {
        self.cert_index_size.store(index_size as u64, Relaxed);
        self.certified_count.fetch_add(1, Relaxed);
        self.deps_distance_sum.fetch_add(seqno.0.saturating_sub(depends_on.0), Relaxed);
        self.interval_sum.fetch_add(seqno.0.saturating_sub(last_seen.0 + 1), Relaxed);
    }

    pub fn reset(&self) {
        for counter in [&self.certified_count, &self.deps_distance_sum, &self.interval_sum] {
            counter.store(0, Relaxed);
        }
    }

    /// Mean over what was certified since the last reset.
    pub fn mean(&self, sum: &AtomicU64) -> f64 {
        match self.certified_count.load(Relaxed) {
            0 => 0.0,
            n => sum.load(Relaxed) as f64 / n as f64,
        }
    }
}
