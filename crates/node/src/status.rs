//! Counters and the group's published state, for the status variables.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use trireme_certification::WriteSet;
use trireme_surface::status::LocalState;
use trireme_transport::Protection;
use trireme_types::{Seqno, Uuid};

use trireme_replicator::roster::NodeState;

use crate::threads::lock;

/// The sources of the status variables, but for what others own.
pub struct Status {
    /// Any thread counts.
    pub counters: Counters,
    /// Changed by the group thread.
    group: Mutex<GroupStatus>,
    /// Changed by the group thread, and by a client that resets it.
    flow: Mutex<FlowFigures>,
}

impl Default for Status {
    fn default() -> Self {
        Status {
            counters: Counters::default(),
            group: Mutex::default(),
            flow: Mutex::new(FlowFigures::new(Instant::now())),
        }
    }
}

impl Status {
    pub fn set_group(&self, status: GroupStatus) {
        *lock(&self.group) = status;
    }

    pub fn group(&self) -> GroupStatus {
        lock(&self.group).clone()
    }

    /// The member UUID of this node in its group.
    pub fn own_uuid(&self) -> Uuid {
        lock(&self.group).uuid
    }

    pub fn flow(&self) -> FlowFigures {
        lock(&self.flow).clone()
    }

    pub fn change_flow(&self, change: impl FnOnce(&mut FlowFigures)) {
        change(&mut lock(&self.flow));
    }
}

/// The figures that the group thread publishes for others to read.
#[derive(Clone, Debug, Default)]
pub struct GroupStatus {
    pub member: bool,
    pub state: Option<NodeState>,
    /// The server has not got its state yet.
    pub receiving: bool,
    pub desyncs: u32,
    pub incoming: Vec<String>,
    /// Of the members, in the same order.
    pub names: Vec<String>,
    /// Name of the group.
    pub cluster: String,
    pub evicted: Vec<Uuid>,
    /// As they are shown: `uuid:address:count`.
    pub delayed: Vec<String>,
    pub weight: u32,
    pub uuid: Uuid,
    pub segment: u8,
    pub first_seqno: Seqno,
    /// The proof that peers must show; `None` before the node has listened.
    pub protection: Option<Protection>,
}

impl GroupStatus {
    /// As far as the group knows.
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

/// For `wsrep_flow_control_*`. The group thread tells of changes; whoever asks does so with the time, so that the figures
/// grow during a pause.
#[derive(Clone, Debug)]
pub struct FlowFigures {
    /// Pauses that are over.
    paused: Duration,
    paused_since: Option<Instant>,
    /// Does this node ask for a stop?
    pub requested: bool,
    // Since the last reset:
    pub sent: u64,
    pub received: u64,
    reset_at: Instant,
    paused_at_reset: Duration,
}

impl FlowFigures {
    pub fn new(now: Instant) -> FlowFigures {
        FlowFigures {
            paused: Duration::ZERO,
            paused_since: None,
            requested: false,
            sent: 0,
            received: 0,
            reset_at: now,
            paused_at_reset: Duration::ZERO,
        }
    }

    pub fn request(&mut self, stop: bool) {
        self.requested = stop;
        self.sent += u64::from(stop);
    }

    pub fn pause(&mut self, now: Instant, paused: bool) {
        self.paused = self.paused(now);
        self.paused_since = paused.then_some(now);
    }

    pub fn active(&self) -> bool {
        self.paused_since.is_some()
    }

    /// Since the start.
    pub fn paused(&self, now: Instant) -> Duration {
        self.paused + self.paused_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// As a part of the time since the last reset.
    pub fn paused_part(&self, now: Instant) -> f64 {
        let time = now.saturating_duration_since(self.reset_at).as_secs_f64();
        let paused = self.paused(now).saturating_sub(self.paused_at_reset).as_secs_f64();
        if time > 0.0 { (paused / time).min(1.0) } else { 0.0 }
    }

    pub fn reset(&mut self, now: Instant) {
        self.sent = 0;
        self.received = 0;
        self.reset_at = now;
        self.paused_at_reset = self.paused(now);
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
    unknown_outcomes,
    // Since the last reset:
    certified_count,
    deps_distance_sum,
    interval_sum,
    // Levels, not counts:
    cert_index_size,
    held_back,
    delivered,
);

impl Counters {
    /// `bytes`: of the whole body.
    pub fn replicated(&self, bytes: usize, write_set: &WriteSet) {
        self.replicated_count.fetch_add(1, Relaxed);
        self.replicated_bytes.fetch_add(bytes as u64, Relaxed);
        self.repl_keys.fetch_add(write_set.key_count() as u64, Relaxed);
        self.repl_keys_bytes.fetch_add(write_set.key_bytes() as u64, Relaxed);
        self.repl_data_bytes.fetch_add(write_set.data_bytes() as u64, Relaxed);
    }

    pub fn received(&self, bytes: usize) {
        self.received_count.fetch_add(1, Relaxed);
        self.received_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub fn certified(&self, seqno: Seqno, depends_on: Seqno, last_seen: Seqno, index_size: usize) {
        self.cert_index_size.store(index_size as u64, Relaxed);
        self.delivered.store(seqno.0, Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paused_part_grows_during_a_pause_and_begins_anew_at_a_reset() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut figures = FlowFigures::new(start);
        assert_eq!(figures.paused_part(start), 0.0);
        figures.pause(at(5), true);
        assert!(figures.active());
        assert_eq!((figures.paused_part(at(5)), figures.paused_part(at(10))), (0.0, 0.5));
        figures.request(true);
        figures.reset(at(10));
        assert_eq!((figures.sent, figures.requested), (0, true));
        assert_eq!((figures.paused_part(at(10)), figures.paused_part(at(20))), (0.0, 1.0));
        figures.pause(at(20), false);
        assert_eq!((figures.paused_part(at(30)), figures.paused(at(30))), (0.5, Duration::from_secs(15)));
    }
}
