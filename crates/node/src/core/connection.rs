//! The state that the group thread keeps as long as the server is connected, through outages of the log's disk.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use trireme_certification::Encoded;
use trireme_metrics::Snapshot;
use trireme_replicator::NoDonor;
use trireme_replicator::message::AppMessage;
use trireme_replicator::position::Word;
use trireme_types::{Durability, NodeId, ProposalNumber, Seqno, Session, SessionMark, Weight};
use trireme_wslog::TrimWish;

use super::ending::CurrentEnding;
use crate::command::Outcome;
use crate::exposure::Reminder;
use crate::held_back::{HeldBack, WriteSet};
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
    pub(super) number: ProposalNumber,
}

impl ProposalId {
    /// `session`: an own one.
    pub(super) fn of(session: Session, number: ProposalNumber) -> ProposalId {
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

/// A message of this node that is not ordered yet.
pub(super) struct PendingApp {
    pub(super) message: AppMessage,
    pub(super) awaited_by: AwaitedBy,
}

/// The one that the outcome of a message concerns.
pub(super) enum AwaitedBy {
    /// This thread. It hears that the message was delivered here (true), or that it was not within the time that was given to it (false).
    Thread(Arc<Slot<bool>>),
    /// Nobody. It is sent again until it is ordered.
    Nobody,
    /// The replicator, which sends it again itself. It hears that it will not be ordered, as it counts what is on its way.
    Replicator,
    /// The server was told that its desync failed. If it is ordered all the same, a resync has to follow it.
    GivenUp,
}

impl PendingApp {
    /// Its thread, if one waits, is told that it failed. Something may be left to do: a server that ends a desync goes on without it whatever
    /// it is told, and a desync that it was refused must not come into force behind its back.
    pub(super) fn give_up(self) -> Option<PendingApp> {
        let PendingApp { message, awaited_by } = self;
        let AwaitedBy::Thread(slot) = awaited_by else { return Some(PendingApp { message, awaited_by }) };
        slot.fill(false);
        let awaited_by = match message {
            AppMessage::Resync => AwaitedBy::Nobody,
            AppMessage::Desync => AwaitedBy::GivenUp,
            _ => return None,
        };
        Some(PendingApp { message, awaited_by })
    }
}

/// Takes out the messages that the log has skipped, if it begins anew with a state in which `last` is the newest proposal of this node: they
/// were ordered, their effect is in the state, and nobody delivers them any more. Those of a session that was over before are not known to have
/// been ordered.
pub(super) fn take_skipped(pending: &mut HashMap<ProposalId, PendingApp>, last: SessionMark) -> Vec<PendingApp> {
    let skipped = |id: &ProposalId| id.session == last.session.number && id.number <= last.number;
    pending.extract_if(|id, _| skipped(id)).map(|(_, message)| message).collect()
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
    // Debts to the server, and to those who wait for the group through it. An end, or an outage, answers every thread that waits (`hang_up`).
    /// On whose word the server goes on from its position, as long as that has not been compared with the storage engine's (rule 31): from
    /// the plan or a state request (`on_command`) to the first item for the server (`go_live`).
    pub(super) word: Option<Word>,
    /// Write sets without an outcome, by session and number: from `propose` and `propose_rollback` to their delivery, to the proof that
    /// they never will be ordered (`never_ordered`), or to the end of patience (`give_up_waiting`). Those of statements in total-order
    /// isolation outlive an outage of the log's disk.
    pub(super) pending: HashMap<ProposalId, Pending>,
    /// Outcomes that came while the feed was held, after an outage: from `on_verdict` to the server's return (`catch_up_from`).
    pub(super) held_answers: Vec<HeldAnswer>,
    /// Write sets that flow control holds: from `on_command` to `release_held_back`, `recall` or `drop_held_back`.
    pub(super) held_back: HeldBack<Held>,
    /// Messages of this node without an outcome, by session and number: from `propose_owed` or `on_command` to their delivery or the proof
    /// that they never will be ordered. Where a thread waits, the end of patience takes most of them out (`give_up_waiting`).
    pub(super) pending_app: HashMap<ProposalId, PendingApp>,
    /// Causal reads that the group has not placed yet, by id: from `on_command` to the group's answer or the loss of the majority.
    pub(super) reads: HashMap<u64, Arc<Slot<Option<Seqno>>>>,
    /// The id of the next one. Only rises, so that a late answer is never another read's.
    pub(super) next_read: u64,
    /// Threads that wait for a view in which this node has that weight: from `on_command` to that view (`on_own_view`) or the loss of the
    /// majority.
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
            held_back: HeldBack::default(),
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

#[cfg(test)]
mod tests {
    use trireme_types::{Incarnation, Uuid};

    use super::*;

    #[test]
    fn of_messages_that_a_thread_gives_up_those_about_a_desync_are_kept() {
        let given_up = |message| {
            let slot = Arc::new(Slot::default());
            let left = PendingApp { message, awaited_by: AwaitedBy::Thread(slot.clone()) }.give_up();
            assert!(!slot.wait(), "the thread is told");
            left
        };
        assert!(matches!(given_up(AppMessage::Desync), Some(PendingApp { awaited_by: AwaitedBy::GivenUp, .. })));
        let resync = given_up(AppMessage::Resync).unwrap();
        assert!(matches!(resync.awaited_by, AwaitedBy::Nobody));
        assert!(
            matches!(resync.give_up(), Some(PendingApp { awaited_by: AwaitedBy::Nobody, .. })),
            "as often as it likes"
        );
        assert!(given_up(AppMessage::Evict { member: Uuid::NIL }).is_none());
        let message = AppMessage::StateRequest { donors: String::new(), request: Vec::new(), position: None };
        let request = PendingApp { message, awaited_by: AwaitedBy::Replicator }.give_up();
        assert!(matches!(request, Some(PendingApp { awaited_by: AwaitedBy::Replicator, .. })), "it may be ordered yet");
    }

    #[test]
    fn what_a_state_covers_is_answered_and_the_rest_waits_on() {
        let mut session = Session::first(NodeId(Uuid([1; 16])), Incarnation(1));
        let before = ProposalId::of(session, ProposalNumber(9));
        session = session.following();
        let [covered, newest, later] = [3, 4, 5].map(|n| ProposalId::of(session, ProposalNumber(n)));
        let message = || PendingApp { message: AppMessage::Desync, awaited_by: AwaitedBy::Nobody };
        let mut pending: HashMap<_, _> = [before, covered, newest, later].map(|id| (id, message())).into();
        let taken = take_skipped(&mut pending, SessionMark { session, number: ProposalNumber(4) });
        assert_eq!(taken.len(), 2);
        let mut left: Vec<_> = pending.into_keys().collect();
        left.sort();
        assert_eq!(left, [before, later]);
    }
}
