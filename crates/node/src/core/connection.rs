//! The state that the group thread keeps as long as the server is connected, through outages of the log's disk.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use trireme_certification::Encoded;
use trireme_metrics::Snapshot;
use trireme_replicator::NoDonor;
use trireme_replicator::message::AppMessage;
use trireme_replicator::position::Word;
use trireme_types::{Durability, NodeId, Seqno, Session, Weight};
use trireme_wslog::TrimWish;

use super::ending::CurrentEnding;
use crate::command::Outcome;
use crate::exposure::Reminder;
use crate::shared::Shared;
use crate::slot::Slot;
use crate::startup::{ConnectError, Plan};
use crate::trx::Trx;

/// A proposal of this node, in the order of sending.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct ProposalId {
    /// The number of the own session.
    pub(super) session: u64,
    /// Within the session.
    pub(super) number: u64,
}

impl ProposalId {
    /// `session`: an own one.
    pub(super) fn of(session: Session, number: u64) -> ProposalId {
        ProposalId { session: session.number, number }
    }
}

/// A write set of this node that is not ordered yet.
pub(super) enum Pending {
    Owned { slot: Arc<Slot<Outcome>>, patient: bool },
    Unowned { body: Bytes },
}

/// The answer to a write set that was ordered while the feed was held: to be given when what lies before it goes to the server.
pub(super) struct HeldAnswer {
    pub(super) key: ProposalId,
    pub(super) slot: Arc<Slot<Outcome>>,
    pub(super) patient: bool,
    pub(super) outcome: Outcome,
}

/// A write set that flow control has not let pass yet.
pub(super) struct HeldBack {
    pub(super) body: Encoded,
    pub(super) patient: bool,
    pub(super) trx: Option<Arc<Trx>>,
    pub(super) slot: Arc<Slot<Outcome>>,
}

impl HeldBack {
    pub(super) fn recalled(&self) -> bool {
        self.trx.as_ref().is_some_and(|trx| trx.is_aborted())
    }
}

/// A message of this node that is not ordered yet.
pub(super) struct PendingApp {
    pub(super) message: AppMessage,
    pub(super) slot: Option<Arc<Slot<bool>>>,
}

/// Changed by the group thread alone.
pub(super) struct Connection {
    // How it was made.
    /// Where the group was looked for, for the case that it has to be looked for again.
    pub(super) cluster: String,
    pub(super) peers: Option<Vec<String>>,
    pub(super) donor_list: String,
    /// For an arbitrator: the most that its log may take.
    pub(super) log_max: Option<u64>,
    /// Answers `connect`: filled at the first own view or at failure.
    pub(super) connected: Option<Arc<Slot<Result<(), ConnectError>>>>,
    // Debts to the server, and to those who wait for the group through it.
    /// On whose word the server goes on from its position, as long as that has not been compared with the storage engine's (rule 31).
    pub(super) word: Option<Word>,
    /// By session and number.
    pub(super) pending: HashMap<ProposalId, Pending>,
    /// Only of a core that returns to a server: what its clients waited for through the outage.
    pub(super) held_answers: Vec<HeldAnswer>,
    /// In the order of sending. Bounded by the server's threads: each waits for one.
    pub(super) held_back: VecDeque<HeldBack>,
    pub(super) pending_app: HashMap<ProposalId, PendingApp>,
    pub(super) reads: HashMap<u64, Arc<Slot<Option<Seqno>>>>,
    pub(super) next_read: u64,
    pub(super) weight_waiters: Vec<(Weight, Arc<Slot<bool>>)>,
    /// The thread to tell which server carries out the request.
    pub(super) asked: Option<Arc<Slot<Result<String, NoDonor>>>>,
    /// An operator's wish to trim the log that waits for the engine, and since when.
    pub(super) wish: Option<(TrimWish, Instant)>,
    // Facts that hold whoever this node is in the group at the moment.
    /// Names of all members there ever were, since one that is looked for may not be in the view.
    pub(super) names: HashMap<NodeId, String>,
    /// How often each of them fell silent.
    pub(super) silences: HashMap<NodeId, u64>,
    /// Of the members that were ever linked, as many as there are names.
    pub(super) round_trips: HashMap<NodeId, Snapshot>,
    /// The durability mode that was last seen in force.
    pub(super) durability: Option<Durability>,
    /// When it last came back, and how long it waits before the next look at the disk.
    pub(super) returned: Option<(Instant, Duration)>,
    // Times at which the operator was told something.
    pub(super) reminder: Reminder,
    /// When the operator was last told that this node no longer slows the others.
    pub(super) gave_up_told: Option<Instant>,
    /// When the operator was last told that the log holds more than it should for the engine's sake.
    pub(super) engine_told: Option<Instant>,
    /// When the operator was last told that the disk gets short for the log of a server that waits for its data.
    pub(super) growth_told: Option<Instant>,
    /// It was told that this is not enough for a server that is away.
    pub(super) told_of_bound: bool,
    /// When it was last looked whether a server that cannot be heard was told to stop.
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
        connected: Arc<Slot<Result<(), ConnectError>>>,
    ) -> Connection {
        Connection {
            cluster: plan.cluster.clone(),
            peers: plan.peers.clone(),
            donor_list,
            log_max: shared.host.args.arbitrator.as_ref().map(|a| a.log_max),
            connected: Some(connected),
            word: plan.unconfirmed.then_some(Word::Engine),
            pending: HashMap::new(),
            held_answers: Vec::new(),
            held_back: VecDeque::new(),
            pending_app: HashMap::new(),
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
