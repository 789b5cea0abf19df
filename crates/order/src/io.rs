//! Inputs and outputs of a [`Group`](crate::Group), apart from messages.

use std::time::Duration;

use bytes::Bytes;
use trireme_types::{
    Base, Durability, Level, Levels, Lineage, LogIndex, Member, NodeId, ProposalNumber, Seqno, Session, Term, Uuid,
    View, VoterSet,
};

use crate::level::ABSENCE;
use crate::{Class, Failure, Message};

/// Identifies a causal read to its caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReadId(pub u64);

#[derive(Clone, Debug)]
pub struct Timeouts {
    /// The sequencer's heartbeat spacing.
    pub heartbeat: Duration,
    /// Silence of the sequencer after which a change of term is tried; drawn between one and two times this.
    pub election: Duration,
    /// Silence after which a member leaves the view (`evs.suspect_timeout`), and after which a member that hears no
    /// sequencer with a majority turns non-primary.
    pub suspect: Duration,
    /// `evs.inactive_timeout`.
    pub inactive: Duration,
    /// How long a leaver waits to have its leave ordered (`pc.linger`).
    pub linger: Duration,
    /// How long a member waits for a body from its origin before it asks the sequencer.
    pub body_wait: Duration,
    /// How long the group level does not rise without a node that has left the view.
    pub level_absence: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            heartbeat: Duration::from_millis(100),
            election: Duration::from_millis(400),
            suspect: Duration::from_secs(5),
            inactive: Duration::from_secs(15),
            linger: Duration::from_secs(20),
            body_wait: Duration::from_millis(10),
            level_absence: ABSENCE,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Config {
    pub me: Member,
    pub timeouts: Timeouts,
    /// The Unix time at the zero of all [`Timestamp`]s. It need not be exact: it tells which terms elections can have led to (rule 35).
    pub unix_at_zero: Duration,
    /// `pc.ignore_sb`: an exact half goes on (writes a fork record).
    pub ignore_sb: bool,
    /// `pc.ignore_quorum`: goes on whatever happens (writes a fork record).
    pub ignore_quorum: bool,
    /// `pc.bootstrap_expect`: as many members without any state begin a history together; 0: never.
    pub expect: u8,
    /// Durability of a history begun by this member.
    pub durability: Durability,
    /// The group levels that this build supports: [`SUPPORTED`](crate::SUPPORTED), but for tests.
    pub levels: Levels,
    /// `repl.proto_max`: higher than this the level does not rise while this member is in.
    pub level_hold: Level,
    /// Most payload bytes in one `Append` to one peer, and most unacknowledged ones in flight.
    pub batch_bytes_max: usize,
    pub inflight_bytes_max: usize,
    /// Most payload bytes kept in memory: of entries that are delivered, so that a peer that lags a little need not be served from the
    /// log; and twice as many of bodies that are not ordered yet.
    pub cache_bytes_max: usize,
    pub limits: Limits,
}

/// Numbers that no operator needs to know. The simulator draws small ones, so that what happens at them happens often.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The committed position on disk is a hint, and may lag by this many entries.
    pub committed_every: u64,
    /// Entries in one message at most.
    pub entries_max: usize,
    /// Appends held back while bodies are missing; beyond it they are dropped and asked for again.
    pub held_max: usize,
    /// Messages in flight to one peer at most, so that a silent one costs no memory.
    pub inflight_messages_max: usize,
    /// A newcomer within this many entries of the end counts as complete.
    pub caught_up: u64,
    /// Members of a view at most. Far below what a reader of the log accepts.
    pub members_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            committed_every: 1 << 16,
            entries_max: 4096,
            held_max: 1024,
            inflight_messages_max: 256,
            caught_up: 64,
            members_max: 256,
        }
    }
}

/// State that this member brings along when it wants in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinState {
    /// History and seqno of the server's data; `None` when unknown (a full copy is needed).
    pub position: Option<(Uuid, Seqno)>,
}

/// Where this member stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Started, not asked to join yet, or left.
    Idle,
    /// Looks for a primary component to join, or for its old peers to form one again.
    Joining,
    /// Member of the current primary view.
    Primary,
    /// Was a member; hears no majority.
    NonPrimary,
    /// Asked to leave, waits for it to be ordered.
    Leaving,
    /// The log failed or an invariant broke: nothing works any more.
    Failed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProposeError {
    /// Not a member of a primary view; nothing was sent.
    NotPrimary,
}

/// A committed entry, in log order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delivery {
    WriteSet {
        index: LogIndex,
        seqno: Seqno,
        session: Session,
        number: ProposalNumber,
        body: Bytes,
    },
    View {
        index: LogIndex,
        seqno: Seqno,
        view: View,
    },
    /// `seqno` is that of the last event before it.
    App {
        index: LogIndex,
        seqno: Seqno,
        session: Session,
        number: ProposalNumber,
        body: Bytes,
    },
    /// The group level is `level` from here on.
    Level {
        index: LogIndex,
        level: Level,
    },
    /// Delivery begins (anew) with the state `base`: forget all application state and load `base.app`.
    /// First delivery after start, and whenever a peer's snapshot replaced the log.
    Reset {
        base: Base,
    },
}

/// A peer needs a state from which delivery can start; answer by `Group::provide_snapshot`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotRequest {
    /// Every delivery up to `at` has been polled: the application's state is exactly that after `at`.
    pub at: LogIndex,
    /// For a peer, or for the own log's checkpoint when `None`.
    pub peer: Option<NodeId>,
}

/// Things that are not ordered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The majority is lost; `reachable` lists the members that can still be heard, this one included.
    NonPrimary {
        reachable: Vec<Member>,
    },
    /// This member's leave is ordered and committed (or `linger` is over): the driver may stop.
    Left,
    /// A causal read may be served once `seqno` has been committed here.
    ReadAt {
        read: ReadId,
        seqno: Seqno,
    },
    ReadFailed {
        read: ReadId,
    },
    /// The own log or data contradict the group's history in a way that only a full copy heals (a fork). The driver marks the
    /// data as void, durably, and says so by `Group::data_discarded`; only then is the log replaced, so that no crash can leave the
    /// group's log beside another branch's data.
    DataDiverged,
    /// A state is not taken before the engine has its data on disk up to there (rule 32), and this is what the application put into it. The engine may
    /// wait for what was ordered in the part that the state skips: the driver uses what the state tells of that.
    EngineAwaited {
        app: Bytes,
    },
    /// This member is to begin `history` for all that wait with it (`pc.bootstrap_expect`): the driver writes down, durably, that its
    /// data, which are empty, are those of seqno 0 of that history, and calls `Group::bootstrap`.
    Found {
        history: Uuid,
    },
    /// A message sent by `Group::signal` on another member.
    Signal {
        from: NodeId,
        body: Bytes,
    },
    NeedSnapshot(SnapshotRequest),
    /// The term changed. The server is not told; counted in a status variable.
    TermChanged {
        term: Term,
        sequencer: Option<NodeId>,
    },
    /// A member stopped being heard, or is heard again. Advisory.
    Silent {
        node: NodeId,
        silent: bool,
    },
    /// The link to this peer, which violates the protocol, is to be closed, and none of this node is to be made or taken until the same
    /// comes with `refused: false`.
    Refuse {
        node: NodeId,
        refused: bool,
    },
    /// This member was thrown out. The phase is `Idle`.
    Evicted,
    /// A line for the log. `warn` for what an operator would want to know.
    Log {
        warn: bool,
        text: String,
    },
    /// The phase is `Failed`.
    Failed(Failure),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    Send { to: NodeId, class: Class, message: Message },
    Deliver(Delivery),
    Event(Event),
}

/// A look inside, for status variables, `trireme` and the simulator's checkers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    pub phase: Phase,
    pub term: Term,
    pub sequencer: Option<NodeId>,
    pub last: LogIndex,
    pub committed: LogIndex,
    pub delivered: LogIndex,
    pub view: View,
    pub voters: VoterSet,
    /// Of the log, its uncommitted end included.
    pub lineage: Lineage,
    pub durability: Durability,
    /// The group level in force where delivery stands.
    pub level: Level,
    pub term_changes: u64,
    /// How far this member's log is as durable as the mode in force demands.
    pub durable: LogIndex,
    /// Requests for causal reads sent; each is shared by all readers that waited then.
    pub read_requests: u64,
    /// Bytes of proposals and bodies held in memory.
    pub pending_bytes: usize,
}
