//! The state that the group thread keeps as long as the server is connected, through outages of the log's disk.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trireme_certification::Encoded;
use trireme_metrics::Snapshot;
use trireme_replicator::NoDonor;
use trireme_replicator::position::Word;
use trireme_replicator::proposals::Proposals;
use trireme_types::{Durability, NodeId, Seqno, Weight};
use trireme_wslog::TrimWish;

use super::ending::CurrentEnding;
use crate::command::Outcome;
use crate::exposure::Reminder;
use crate::held_back::{HeldBack, WriteSet};
use crate::shared::Shared;
use crate::slot::Slot;
use crate::startup::{ConnectError, Plan};
use crate::trx::Trx;

/// Own proposals: threads wait for the outcome of a write set, or to hear that their message was ordered.
pub(super) type OwnProposals = Proposals<Arc<Slot<Outcome>>, Arc<Slot<bool>>, Outcome>;

/// A write set that flow control has not let pass yet.
pub(super) struct Held {
    pub(super) body: Encoded,
    pub(super) patient: bool,
    pub(super) trx: Option<Arc<Trx>>,
    pub(super) slot: Arc<Slot<Outcome>>,
}

impl WriteSet for Held {
    fn is_recalled(&self) -> bool {
        self.trx.as_ref().is_some_and(|trx| trx.is_aborted())
    }

    fn refuse(self) {
        self.slot.fill(Outcome::NotSent);
    }
}

/// Made when the server connects, changed by the group thread alone, and dropped with it. Each field names the functions that change it.
pub(super) struct Connection {
    // How it was made.
    /// The name of the group, as `connect` was told (`come_back` keeps it).
    pub(super) cluster: String,
    /// Addresses at which the group was looked for, for the case that it has to be looked for again; `None`: a node without network.
    /// `come_back` adds those of the last view.
    pub(super) peers: Option<Vec<String>>,
    /// Donors that the server prefers (`wsrep_sst_donor`). Never changed.
    pub(super) donor_list: String,
    /// For an arbitrator: the most bytes that its log may take. `None`: there is a server. Never changed.
    pub(super) log_max: Option<u64>,
    /// Answers `connect`. Taken once: at the first view as a member (`on_view`), at a failure (`fail`) or at the end (`answer_all`).
    pub(super) connected: Option<Arc<Slot<Result<(), ConnectError>>>>,
    /// The server may be starting with this connection, and its main thread wait for the first data (`end_start`). Never changed.
    pub(super) starts: bool,
    // Debts to the server, and to those who wait for the group through it. An end, or an outage, answers every thread that waits (`hang_up`).
    /// On whose word the server goes on from its position, as long as that has not been compared with the storage engine's (rule 31): from
    /// the plan or a state request (`on_command`) to the first item for the server (`go_live`).
    pub(super) word: Option<Word>,
    /// Own proposals without an outcome, and what has to be proposed again. Those of statements in total-order isolation outlive an outage of
    /// the log's disk. `settle_proposals` tells their fates.
    pub(super) proposals: OwnProposals,
    /// Write sets that flow control holds: from `on_command` to `release_held_back`, `recall` or `drop_held_back`.
    pub(super) held_back: HeldBack<Held>,
    /// Causal reads that the group has not placed yet, by id: from `on_command` to the group's answer or the loss of the majority.
    pub(super) reads: HashMap<u64, Arc<Slot<Option<Seqno>>>>,
    /// The id of the next one. Only rises, so that a late answer is never another read's.
    pub(super) next_read: u64,
    /// Threads that wait for a view in which this node has that weight: from `on_command` to that view (`on_own_view`) or an end
    /// (`hang_up`). They wait 5 s at most.
    pub(super) weight_waiters: Vec<(Weight, Arc<Slot<bool>>)>,
    /// The thread to tell which server carries out an arbitrator's request: from `on_command` to the replicator's answer (`carry_out`).
    pub(super) asked: Option<Arc<Slot<Result<String, NoDonor>>>>,
    /// An operator's wish to trim the log that waits for the engine, and since when (`trim_as_wished`).
    pub(super) wish: Option<(TrimWish, Instant)>,
    // Facts that hold whoever this node is in the group at the moment.
    /// Names of all members there ever were, since one that is looked for may not be in the view. Added to at each view.
    pub(super) names: HashMap<NodeId, String>,
    /// How often each of them fell silent (`on_event`).
    pub(super) silences: HashMap<NodeId, u64>,
    /// Times of round trips to each member that was ever linked, as many as there are names (`on_net`).
    pub(super) round_trips: HashMap<NodeId, Snapshot>,
    /// The durability mode that was last seen in force; `None`: none yet (`look_at_durability`).
    pub(super) durability: Option<Durability>,
    /// When this node last came back from an outage, and how long it had waited before its first look at the disk (`come_back`).
    pub(super) returned: Option<(Instant, Duration)>,
    // Times at which the operator was told something.
    /// That peers need to show nothing.
    pub(super) reminder: Reminder,
    /// That this node no longer slows the others (`throttle.rs`).
    pub(super) gave_up_told: Option<Instant>,
    /// That the log holds more than it should for the engine's sake (`house.rs`).
    pub(super) engine_told: Option<Instant>,
    /// That the disk gets short for the log of a server that waits for its data (`house.rs`).
    pub(super) growth_told: Option<Instant>,
    /// The bound of an arbitrator's log is not enough for a server that is away, and the operator was told. Looked at anew each time the log
    /// reaches its bound (`keep_log`).
    pub(super) told_of_bound: bool,
    /// When it was last looked whether a server that cannot be heard was told to stop (`look_for_stop`).
    pub(super) looked_for_stop: Instant,
    // How it ends.
    /// How far the end has come. Changed in `ending.rs` alone.
    pub(super) ending: CurrentEnding,
}

impl Connection {
    pub(super) fn begin(
        shared: &Shared,
        plan: &Plan,
        donor_list: String,
        connected: Option<Arc<Slot<Result<(), ConnectError>>>>,
        starts: bool,
    ) -> Connection {
        Connection {
            cluster: plan.cluster.clone(),
            peers: plan.peers.clone(),
            donor_list,
            log_max: shared.host.args.arbitrator.as_ref().map(|a| a.log_max),
            starts,
            connected,
            word: plan.unconfirmed.then_some(Word::Engine),
            proposals: OwnProposals::default(),
            held_back: HeldBack::default(),
            reads: HashMap::new(),
            next_read: 0,
            weight_waiters: Vec::new(),
            asked: None,
            wish: None,
            names: HashMap::new(),
            silences: HashMap::new(),
            round_trips: HashMap::new(),
            durability: None,
            returned: None,
            reminder: Reminder::default(),
            gave_up_told: None,
            engine_told: None,
            growth_told: None,
            told_of_bound: false,
            looked_for_stop: Instant::now(),
            ending: CurrentEnding::START,
        }
    }
}
