//! The world: nodes, network, disks, databases, one clock and one queue of events.
//!
//! Nothing here decides anything about the protocol. `driver.rs` is the part that behaves like a node's group thread,
//! `faults.rs` does harm, `run.rs` strings a run together. Scenarios in `tests/` use the same vocabulary: `bootstrap`,
//! `join`, `crash`, `cut`, `run_for`, `run_until`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

use trireme_order::{
    BootstrapError, Class, Config, Event as GroupEvent, Group, JoinState, LogStore, Message, Output, Phase, ReadId,
    SnapshotRequest,
};
use trireme_replicator::absent::Absent;
use trireme_replicator::desyncs::Desyncs;
use trireme_replicator::message::AppMessage;
use trireme_replicator::position::{self, Word};
use trireme_replicator::retention::EngineDisk;
use trireme_replicator::votes::Ballots;
use trireme_replicator::{self as replicator, Position, Replicator};
use trireme_types::{Durability, Level, Levels, Lineage, LogIndex, Member, NodeId, Seqno, Term, Timestamp, Uuid, View};

use crate::check::{Branches, Clients, Histories, Isolation, Logs, Losses, ReadRecord};
use crate::database::{Change, Database};
use crate::disk::Store;
use crate::faults::Undo;
use crate::hostile::{Hostile, UNIX_AT_ZERO};
use crate::judge::{Judge, Part};
use crate::locals::Trx;
use crate::net::{Network, Payload};
use crate::options::{MS, Options, Sabotage, US};
use crate::outage::{Outage, Sickness};
use crate::pauses::Pause;
use crate::proposals::OwnProposals;
use crate::rng::{Rng, mix};
use crate::server::Transfer;
use crate::situations::{Situation, Situations};
use crate::steps::Ending;
use crate::store::Appended;
use crate::streaming::OwnStream;
use crate::throttle::Throttle;
use crate::values::{Values, Waiting};
use crate::watch::{Acks, Doubt, Stage, Strike, Watch, Words};

/// How often a node does things that depend on time.
pub(crate) const TICK: u64 = 50 * MS;
/// Of one run, which has some ten thousand, and never had two hundred thousand.
const EVENTS_MAX: u64 = 3_000_000;

/// Inputs that wake a node's group thread, apart from time.
pub(crate) enum Input {
    Up {
        conn: u64,
        peer: Member,
    },
    Down {
        conn: u64,
        node: NodeId,
    },
    Message {
        conn: u64,
        from: NodeId,
        payload: Payload,
    },
    Synced {
        generation: u64,
        upto: LogIndex,
    },
    Snapshot {
        request: SnapshotRequest,
        app: bytes::Bytes,
    },
    /// A thread of the server asks the group for this, and waits for the answer.
    Ask(AppMessage),
}

impl Input {
    /// The message, if a thread asks for one.
    pub fn asks(self) -> Option<AppMessage> {
        match self {
            Input::Ask(message) => Some(message),
            Input::Up { .. }
            | Input::Down { .. }
            | Input::Message { .. }
            | Input::Synced { .. }
            | Input::Snapshot { .. } => None,
        }
    }
}

/// A large write set that is judged by a thread of its own, with the certification index.
pub(crate) struct Errand {
    pub judges: Output,
    pub at: LogIndex,
    pub done: bool,
    /// The outputs that need the index, in order.
    pub waiting: VecDeque<Output>,
    /// That of the log which it was delivered from.
    pub lineage: Lineage,
}

/// One life of a node: everything that dies with the process.
pub(crate) struct Process {
    pub group: Group<Store>,
    /// Of this incarnation: one that returns from an outage has a new one.
    pub boot: u32,
    /// In which the server began.
    pub server: u32,
    /// It sits out.
    pub outage: Option<Outage>,
    /// When it last returned from an outage, and after how long it had first looked.
    pub returned: Option<(u64, u64)>,
    pub judge: Judge,
    /// The real one, which a node's group thread asks, too.
    pub replicator: Replicator,
    /// The server was told where it goes on from, and is fed from there.
    pub fed: bool,
    /// A full copy is here, and the server does not go on from it yet.
    pub copied: bool,
    /// Changes that the server is not to be given yet.
    pub kept: VecDeque<Change>,
    /// The copies that the server is to give: to whom, and the seqno that it has to reach before.
    pub donations: Vec<(NodeId, u64)>,
    /// The log began here when it was opened. Damage may have taken what was before. Or it was replaced while the engine waited for a vote.
    pub opened_at: Seqno,
    /// The node's knowledge of the engine's disk.
    pub engine: EngineDisk,
    /// On whose word the server goes on from its own data, as long as that has not been compared with the engine.
    pub word: Option<Word>,
    /// The log waits for the server's data, and was told that its disk has no room.
    pub short_of_room: bool,
    /// Its engine is being opened, to be compared with this. Nothing is applied meanwhile.
    pub comparing: Option<Position>,
    /// The members that are away, and the entries that the log keeps for them.
    pub absent: Absent,
    pub ballots: Ballots<()>,
    /// The server waits for the outcome of the vote on this.
    pub voting: Option<Seqno>,
    /// Statements that failed and went on, because nobody could hear that, and have no result yet.
    pub outlived: BTreeSet<Seqno>,
    pub history: Uuid,
    pub last_index: LogIndex,
    pub last_seqno: Seqno,
    pub delivering: bool,
    pub view: Option<View>,
    /// In the newest view, and not told otherwise since.
    pub primary: bool,
    /// Since when it has no majority.
    pub non_primary_since: Option<u64>,
    /// Since when a state waits for the engine, or when clients were last told not to wait for what the engine may wait for.
    pub engine_awaited_since: Option<u64>,
    /// An operator's wish: the log is to begin with this, as far as that may be; and since when.
    pub wish: Option<(Seqno, u64)>,
    /// As an arbitrator: it was told to have a server give a copy, and has no answer.
    pub asks_donor: bool,
    /// The durability mode that this member was told to want.
    pub durability: Durability,
    /// The server was told so, and not of the end since: only then it takes clients.
    pub synced: bool,
    pub leaving: bool,
    pub inbox: VecDeque<Input>,
    pub step_at: Option<u64>,
    /// It writes a piece of a record until then.
    pub writes_until: u64,
    pub wake_at: Option<u64>,
    pub links: BTreeMap<NodeId, u64>,
    /// The group levels of the build behind each link, as this process was told.
    pub builds: BTreeMap<NodeId, Levels>,
    pub sync: Option<Sync>,
    /// Own proposals that it has not heard of yet.
    pub proposals: OwnProposals,
    /// How often its server has desynced.
    pub desyncs: Desyncs,
    /// Rows that own clients have changed, by operation that has not ended here.
    pub locks: BTreeMap<u64, Vec<u16>>,
    /// Transactions of own clients that lock rows and wait for locks, by operation.
    pub trxs: BTreeMap<u64, Trx>,
    /// Of these: they want to commit, and nothing is sent for now.
    pub held_back: VecDeque<u64>,
    /// Flow control, where the run has it.
    pub throttle: Option<Box<Throttle>>,
    /// The thread that pauses its commit order.
    pub pause: Option<Pause>,
    /// Write sets that appliers have begun with, and that wait for locks.
    pub blocked: BTreeSet<u64>,
    /// Causal reads that know their position, and the server is not there.
    pub waiting_reads: Vec<Waiting>,
    /// Streaming transactions of own clients, by operation.
    pub streams: BTreeMap<u64, OwnStream>,
    pub reads: BTreeMap<ReadId, ReadRecord>,
    /// Until its end nothing that needs the certification index is carried out.
    pub errand: Option<Errand>,
    /// The lineage of the log that is delivered to its end after it was replaced.
    pub former: Option<Lineage>,
    /// Requests and the application's state at the moment they were made.
    pub snapshots: Vec<(SnapshotRequest, bytes::Bytes)>,
    /// The newest acknowledgement that has come from each member.
    pub heard: BTreeMap<NodeId, (Term, LogIndex)>,
    /// Peers that violated the protocol.
    pub refuses: BTreeSet<NodeId>,
    /// The newest incarnation of each node that was linked.
    pub newest: BTreeMap<NodeId, u32>,
    /// Die after this many more outputs.
    pub crash_after: Option<u32>,
    /// Stand still after this many more outputs.
    pub stall_after: Option<u32>,
    pub stopped: Option<Stop>,
}

/// An operation whose outcome a client waits for.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub op: u64,
    pub part: Part,
}

/// A sync of the log that is under way.
#[derive(Clone, Copy)]
pub(crate) struct Sync {
    pub due: u64,
    pub generation: u64,
    pub upto: LogIndex,
}

/// Why a process wants to end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    Left,
    Evicted,
    Failed(BootstrapError),
    /// The server cannot go on; it is started again.
    Server(String),
}

/// A place for a node: what survives the process.
pub(crate) struct Slot {
    pub node: NodeId,
    pub incarnation: u32,
    pub boot: u32,
    pub wipes: u32,
    pub weight: u8,
    /// The weight that it wants, since it was last told.
    pub wished: u8,
    /// `None` while a process holds it.
    pub disk: Option<Store>,
    pub db: Database,
    /// The position that the state file claims since the provider's end, which comes before the engine's.
    pub claim: Option<(Uuid, u64)>,
    /// Its engine ran before the node was started, as with some methods of full copies. Otherwise a run of its own has asked the engine for its
    /// position, and closed it in order.
    pub engine_runs: bool,
    /// From where the process in this place goes on, as it was decided at its start.
    pub begins_at: Option<Position>,
    /// That is a claim about which the engine could not be asked.
    pub unheard: bool,
    /// Its node has left the group, and its server has not ended.
    pub ending: Option<Ending>,
    /// The state file says that a donor may be replacing the data.
    pub at_risk: bool,
    pub process: Option<Process>,
    pub paused: bool,
    /// The group thread stands still in the log's disk, and the server goes on.
    pub hangs: bool,
    pub sick: Sickness,
    /// When it last stood still, or its clock leapt.
    pub shaken: u64,
    pub offset: u64,
    pub ppm: u64,
    pub sync_factor: u64,
    pub step_factor: u64,
    /// It has asked the others to let it go, in this life or before.
    pub left: bool,
    /// Left in order and is not meant to come back by itself.
    pub out: bool,
    /// A copy of the disk, as it was some time ago.
    pub copy: Option<Copy>,
    /// Its acknowledgements, in all its lives.
    pub acked: Acks,
    /// An old copy was put back, or a state that ends earlier took its place: so far the log reached before.
    pub held_once: LogIndex,
    /// An old copy was put back: what it had acknowledged.
    pub forgot: (Term, LogIndex),
    /// The newest entry that landed in its log.
    pub appended: LogIndex,
    /// The entries behind that which landed and are not looked at yet, each with its branch.
    pub landed: Vec<(Uuid, Appended)>,
    /// The last candidate that asked it for its vote, and has no answer.
    pub asked: Option<(NodeId, Term)>,
    /// Its log may lack what it had acknowledged.
    pub doubt: Option<Doubt>,
    /// Its log may not count as evidence for a while: what it had acknowledged before.
    pub mending: Option<Acks>,
    /// Of the process that is there, or was there last.
    pub words: Words,
    /// The newest change of the voters in its log, and up to where it knows what is committed.
    pub changed_at: LogIndex,
    pub settled: LogIndex,
    /// Its log was under suspicion when it was last looked at.
    pub suspected: bool,
    /// Its process never comes back.
    pub dead: bool,
    /// The group levels of the build that is installed, and whether the former build was refused here.
    pub levels: Levels,
    pub refused: bool,
}

/// A copy of a node's directory: its log and its data.
pub(crate) struct Copy {
    pub log: Store,
    pub db: Database,
}

impl Slot {
    fn new(node: NodeId, disk: Store) -> Slot {
        Slot {
            node,
            incarnation: 0,
            boot: 0,
            wipes: 0,
            weight: 1,
            wished: 1,
            disk: Some(disk),
            db: Database::default(),
            claim: None,
            engine_runs: false,
            begins_at: None,
            unheard: false,
            ending: None,
            at_risk: false,
            process: None,
            paused: false,
            hangs: false,
            sick: Sickness::default(),
            shaken: 0,
            offset: 0,
            ppm: 0,
            sync_factor: 1,
            step_factor: 1,
            left: false,
            out: false,
            copy: None,
            acked: Acks::new(),
            held_once: LogIndex::ZERO,
            forgot: Default::default(),
            appended: LogIndex::ZERO,
            landed: Vec::new(),
            asked: None,
            doubt: None,
            mending: None,
            words: Words::default(),
            changed_at: LogIndex::ZERO,
            settled: LogIndex::ZERO,
            suspected: false,
            dead: false,
            levels: crate::upgrades::NEWER,
            refused: false,
        }
    }

    /// Transactions of own clients are over, but for those that are ordered: these keep their locks until they are committed.
    pub(crate) fn end_unordered(&mut self) {
        let Some(p) = &mut self.process else { return };
        let ordered = |op: &u64| self.db.queue.iter().any(|change| change.ends().any(|ended| ended == *op));
        p.locks.retain(|op, _| ordered(op));
        p.trxs.retain(|op, _| ordered(op));
    }

    /// The end of its data, once all that it was told is applied.
    pub(crate) fn holds(&self) -> Option<(Uuid, u64)> {
        // After an outage it is told nothing until it is fed again.
        let told = self.process.as_ref().filter(|p| p.replicator.serves()).map_or(0, |p| p.replicator.handed().0);
        self.db.recovered().map(|(history, at)| (history, at.max(told)))
    }

    /// The same as its server tells the others: where the engine could not be asked, that is what the state file claims. The engine may have less.
    /// As long as nobody knows, its log stays.
    pub(crate) fn says_it_holds(&self) -> Option<(Uuid, u64)> {
        let claimed = self.begins_at.filter(|_| self.unheard).map(|at| (at.history, at.seqno.0));
        let held = self.holds()?;
        Some(claimed.filter(|claimed| claimed.0 == held.0 && claimed.1 > held.1).unwrap_or(held))
    }

    /// Its group thread takes nothing.
    pub fn stands_still(&self) -> bool {
        self.paused || self.hangs
    }

    pub fn local(&self, t: u64) -> Timestamp {
        Timestamp(self.offset + t + (u128::from(t) * u128::from(self.ppm) / 1_000_000) as u64)
    }

    /// Wall clocks differ by a little.
    fn unix_at_zero(&self, slot: usize) -> Duration {
        UNIX_AT_ZERO + Duration::from_millis(700) * slot as u32 - Duration::from_nanos(self.offset)
    }

    /// First global time at which the local clock shows at least `local`.
    pub fn global(&self, local: Timestamp) -> u64 {
        let elapsed = u128::from(local.0.saturating_sub(self.offset));
        let mut t = (elapsed * 1_000_000 / u128::from(1_000_000 + self.ppm)) as u64;
        while self.local(t) < local {
            t += 1;
        }
        t
    }

    pub fn store(&self) -> &Store {
        match &self.process {
            Some(p) => p.group.store(),
            None => self.disk.as_ref().expect("a slot without a process has its disk"),
        }
    }

    /// Does the log go on from the data? A state of the log may have come in the place of one that did.
    pub(crate) fn goes_on_from_data(&self) -> bool {
        self.store().base().seqno.0 <= self.db.now.position
    }
}

pub(crate) enum Event {
    Step {
        slot: usize,
        boot: u32,
    },
    Wake {
        slot: usize,
        boot: u32,
    },
    Lane {
        conn: u64,
        end: usize,
        lane: usize,
    },
    Connect {
        a: usize,
        b: usize,
    },
    SideUp {
        conn: u64,
        end: usize,
    },
    SideDown {
        conn: u64,
        end: usize,
    },
    DeadPeer {
        conn: u64,
        from: usize,
        to: usize,
    },
    Synced {
        slot: usize,
        boot: u32,
    },
    Snapshot {
        slot: usize,
        boot: u32,
        request: SnapshotRequest,
        app: bytes::Bytes,
    },
    /// The certification index is back from the write set there.
    Judged {
        slot: usize,
        boot: u32,
        at: LogIndex,
    },
    /// An applier, or an own client's thread, is done with this.
    Applied {
        slot: usize,
        server: u32,
        seqno: u64,
    },
    /// An applier has begun with this, or a lock that it waits for is free.
    Applying {
        slot: usize,
        server: u32,
        seqno: u64,
    },
    /// The next step of an own client's transaction.
    Local {
        slot: usize,
        server: u32,
        op: u64,
    },
    Flush {
        slot: usize,
        boot: u32,
    },
    /// Time passes for flow control.
    Flow {
        slot: usize,
        boot: u32,
    },
    /// Time passes for the replicator.
    Tick {
        slot: usize,
        boot: u32,
    },
    /// The server has said what it wants.
    Asks {
        slot: usize,
        boot: u32,
    },
    Copied(Box<Transfer>),
    /// A node that sits out looks at its disk.
    Look {
        slot: usize,
        boot: u32,
    },
    Client,
    Fault,
    /// Somebody's commit order is paused.
    PauseOrder,
    /// The liar's turn.
    Lie,
    Undo(Undo),
    Strike {
        slot: usize,
        boot: u32,
        stage: Stage,
        strike: Strike,
    },
    Restart {
        slot: usize,
        boot: u32,
    },
    /// The engine that a start has opened is compared.
    Compare {
        slot: usize,
        boot: u32,
    },
    /// The next step of a stop.
    Ending {
        slot: usize,
        boot: u32,
    },
}

struct Queued {
    at: u64,
    seq: u64,
    event: Event,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Queued) -> bool {
        (self.at, self.seq) == (other.at, other.seq)
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Queued) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    fn cmp(&self, other: &Queued) -> std::cmp::Ordering {
        (self.at, self.seq).cmp(&(other.at, other.seq))
    }
}

/// A scenario's verdict on a message about to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Pass,
    Drop,
    /// Keep until [`Cluster::release`].
    Hold,
}

pub(crate) type Filter = Box<dyn FnMut(usize, usize, &Message) -> Verdict>;

pub struct Cluster {
    pub options: Options,
    pub(crate) rng: Rng,
    pub now: u64,
    seq: u64,
    queue: BinaryHeap<Reverse<Queued>>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) net: Network,
    pub histories: Histories,
    pub(crate) branches: Branches,
    pub(crate) logs: Logs,
    pub(crate) losses: Losses,
    pub clients: Clients,
    pub(crate) values: Values,
    pub(crate) isolation: BTreeMap<Uuid, Isolation>,
    /// Everybody whose eviction was ever asked for.
    pub(crate) told_to_go: BTreeSet<Uuid>,
    /// Everybody whose eviction was ever ordered.
    pub(crate) evicted: BTreeSet<Uuid>,
    /// First violation found; the run stops.
    pub failure: Option<String>,
    pub trace: bool,
    pub events: u64,
    pub outputs: u64,
    pub messages: u64,
    pub faults_done: u64,
    pub copies: u64,
    pub terms: u64,
    pub situations: Situations,
    pub(crate) watch: Watch,
    /// Decides on harm by stage.
    pub(crate) strikes: Rng,
    pub(crate) strikes_done: u32,
    /// Decides on outages of disks.
    pub(crate) outages: Rng,
    /// Decides on the steps of starts and stops.
    pub(crate) starts: Rng,
    /// Decides how long appliers and clients work.
    pub(crate) appliers: Rng,
    /// Decides on pauses of commit orders.
    pub(crate) pauses: Rng,
    /// Decides what operators want.
    pub(crate) operators: Rng,
    /// Client operations still to be begun.
    pub(crate) operations_left: u64,
    pub(crate) next_read: u64,
    pub(crate) calm: bool,
    pub(crate) hostile: Option<Hostile>,
    /// The levels that entries put in force, by branch.
    pub(crate) raised: BTreeMap<(Uuid, LogIndex), Level>,
    /// Entries that were to do so, by term, branch and index: the first sight of each is judged.
    pub(crate) raises: BTreeSet<(Term, Uuid, LogIndex)>,
    /// From now on a view, a loss of the majority or a refusal is a violation.
    pub(crate) undisturbed: bool,
    pub(crate) filter: Option<Filter>,
    pub(crate) held: Vec<(usize, usize, u64, Class, Message)>,
    pub(crate) histories_made: u64,
}

impl Cluster {
    pub fn new(options: Options) -> Cluster {
        let mut rng = Rng::new(options.seed);
        let strikes = Rng::new(options.seed ^ 0x0073_7472_u64.rotate_left(32));
        let outages = Rng::new(options.seed ^ 0x006f_7574_u64.rotate_left(32));
        let starts = Rng::new(options.seed ^ 0x0073_7461_u64.rotate_left(32));
        let appliers = Rng::new(options.seed ^ 0x0061_7070_u64.rotate_left(32));
        let pauses = Rng::new(options.seed ^ 0x0070_6175_u64.rotate_left(32));
        let operators = Rng::new(options.seed ^ 0x006f_7065_u64.rotate_left(32));
        let mut slots = Vec::new();
        for i in 0..options.nodes {
            let disk = Store::create(&options.of_slot(i), node_id(i, 0), mix(options.seed ^ i as u64));
            slots.push(Slot {
                offset: rng.below(1_000_000) * MS,
                ppm: rng.below(options.drift_ppm + 1),
                ..Slot::new(node_id(i, 0), disk)
            });
        }
        Cluster {
            options,
            rng,
            now: 0,
            seq: 0,
            queue: BinaryHeap::new(),
            slots,
            net: Network::default(),
            histories: Histories::default(),
            branches: Branches::default(),
            logs: Logs::default(),
            losses: Losses::default(),
            clients: Clients::default(),
            values: Values::default(),
            isolation: BTreeMap::new(),
            told_to_go: BTreeSet::new(),
            evicted: BTreeSet::new(),
            failure: None,
            trace: false,
            events: 0,
            outputs: 0,
            messages: 0,
            faults_done: 0,
            copies: 0,
            terms: 0,
            situations: Situations::default(),
            watch: Watch::default(),
            strikes,
            strikes_done: 0,
            outages,
            starts,
            appliers,
            pauses,
            operators,
            operations_left: 0,
            next_read: 0,
            calm: false,
            hostile: None,
            raised: BTreeMap::new(),
            raises: BTreeSet::new(),
            undisturbed: false,
            filter: None,
            held: Vec::new(),
            histories_made: 0,
        }
    }

    pub(crate) fn fail(&mut self, text: String) {
        if self.failure.is_none() {
            self.log(|| format!("VIOLATION {text}"));
            self.failure = Some(text + &self.who_lies());
        }
    }

    pub(crate) fn check(&mut self, slot: usize, result: Result<(), String>) {
        if let Err(text) = result {
            self.fail(format!("n{slot}: {text}"));
        }
    }

    pub(crate) fn log(&mut self, text: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{:>12.6} {}", self.now as f64 / 1e9, text());
        }
    }

    pub(crate) fn at(&mut self, at: u64, event: Event) {
        self.seq += 1;
        self.queue.push(Reverse(Queued { at: at.max(self.now), seq: self.seq, event }));
    }

    pub(crate) fn after(&mut self, delay: u64, event: Event) {
        self.at(self.now.saturating_add(delay), event);
    }

    // --- time -----------------------------------------------------------------------------------------------------

    /// Carries out events up to and including time `until`, or until a checker objects.
    pub fn run_to(&mut self, until: u64) {
        while self.failure.is_none() {
            match self.queue.peek() {
                Some(Reverse(q)) if q.at <= until => {}
                _ => break,
            }
            let Some(Reverse(q)) = self.queue.pop() else { break };
            self.now = q.at;
            self.events += 1;
            if self.events > EVENTS_MAX {
                return self.fail(format!("{EVENTS_MAX} events: something goes round and round"));
            }
            self.dispatch(q.event);
        }
        self.now = self.now.max(until);
    }

    pub fn run_for(&mut self, duration: u64) {
        self.run_to(self.now + duration);
    }

    /// Runs until `done` or for `bound`; says whether `done` came true. Looks every 10 ms of virtual time.
    pub fn run_until(&mut self, bound: u64, done: impl FnMut(&Cluster) -> bool) -> bool {
        self.run_until_every(10 * MS, bound, done)
    }

    /// The same, with a look after each `step`.
    pub(crate) fn run_until_every(&mut self, step: u64, bound: u64, mut done: impl FnMut(&Cluster) -> bool) -> bool {
        let end = self.now + bound;
        loop {
            if self.failure.is_some() {
                return false;
            }
            if done(self) {
                return true;
            }
            if self.now >= end {
                return false;
            }
            self.run_for(step);
        }
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Step { slot, boot } => self.step(slot, boot),
            Event::Wake { slot, boot } => {
                if let Some(p) = self.life(slot, boot) {
                    p.wake_at = None;
                    self.schedule_step(slot);
                }
            }
            Event::Lane { conn, end, lane } => self.lane(conn, end, lane),
            Event::Connect { a, b } => self.connect(a, b),
            Event::SideUp { conn, end } => self.side_up(conn, end),
            Event::SideDown { conn, end } => self.side_down(conn, end),
            Event::DeadPeer { conn, from, to } => {
                if self.net.is_blocked(from, to) && self.net.conns.get(&conn).is_some_and(|c| c.open) {
                    self.reset_conn(conn);
                }
            }
            Event::Synced { slot, boot } if self.slots[slot].hangs => {
                self.after(10 * MS, Event::Synced { slot, boot });
            }
            Event::Synced { slot, boot } => {
                let now = self.now;
                if let Some(p) = self.life(slot, boot) {
                    // The end of a stall has brought it forward, perhaps.
                    let Some(Sync { generation, upto, .. }) = p.sync.take_if(|s| s.due <= now) else { return };
                    if p.group.store_mut().complete_sync(generation, upto) {
                        p.inbox.push_back(Input::Synced { generation, upto });
                        self.schedule_step(slot);
                    } else if p.group.store().failed() {
                        self.on_log_failed(slot); // A failed sync is final.
                    }
                }
            }
            Event::Snapshot { slot, boot, request, app } => {
                if let Some(p) = self.life(slot, boot) {
                    p.inbox.push_back(Input::Snapshot { request, app });
                    self.schedule_step(slot);
                }
            }
            Event::Judged { slot, boot, at } => {
                if let Some(errand) = self.life(slot, boot).and_then(|p| p.errand.as_mut()).filter(|e| e.at == at) {
                    errand.done = true;
                    self.schedule_step(slot);
                }
            }
            Event::Applied { slot, server, seqno } => self.applied(slot, server, seqno),
            Event::Applying { slot, server, seqno } => self.applying(slot, server, seqno),
            Event::Local { slot, server, op } => self.local(slot, server, op),
            Event::Flush { slot, boot } => self.flush(slot, boot),
            Event::Flow { slot, boot } => self.look_at_flow(slot, boot),
            Event::Tick { slot, boot } => self.tick(slot, boot),
            Event::Asks { slot, boot } => self.server_asks(slot, boot),
            Event::Copied(transfer) => self.copied(*transfer),
            Event::Look { slot, boot } => self.look(slot, boot),
            Event::Client => self.client(),
            Event::Fault => self.fault(),
            Event::PauseOrder => self.pause_order(),
            Event::Lie => self.lie(),
            Event::Undo(undo) => self.undo(undo),
            Event::Strike { slot, boot, stage, strike } => self.strike(slot, boot, stage, strike),
            Event::Restart { slot, boot } => {
                let s = &self.slots[slot];
                if s.boot != boot || s.process.is_some() || s.ending.is_some() || s.dead {
                    return;
                }
                match s.sick.works_at {
                    // Its server ends at once.
                    at if at > self.now => self.at(at, Event::Restart { slot, boot }),
                    _ => self.begin_start(slot),
                }
            }
            Event::Compare { slot, boot } => self.compare_engine(slot, boot),
            Event::Ending { slot, boot } => self.end_server(slot, boot),
        }
    }

    /// The process, when it is still the one of `boot`.
    pub(crate) fn life(&mut self, slot: usize, boot: u32) -> Option<&mut Process> {
        self.slots[slot].process.as_mut().filter(|p| p.boot == boot)
    }

    // --- processes ------------------------------------------------------------------------------------------------

    pub fn bootstrap(&mut self, slot: usize) {
        self.histories_made += 1;
        let history = Uuid(*b"history-\0\0\0\0\0\0\0\0").with(self.histories_made);
        self.begin_history(slot, history);
        self.start(slot);
        let s = &mut self.slots[slot];
        let now = s.local(self.now);
        let p = s.process.as_mut().expect("just started");
        if let Err(e) = p.group.bootstrap(now, history, Seqno(0)) {
            self.fail(format!("n{slot}: bootstrap refused: {e}"));
        }
        self.schedule_step(slot);
    }

    /// Empty data are the beginning of a history, and the state file says so.
    pub(crate) fn begin_history(&mut self, slot: usize, history: Uuid) {
        self.slots[slot].db.begin(history, 0);
        self.slots[slot].claim = Some((history, 0));
    }

    /// Starts a process that looks for its group.
    pub fn join(&mut self, slot: usize) {
        self.start(slot);
        let s = &mut self.slots[slot];
        let now = s.local(self.now);
        let position = position::with_log(s.begins_at, s.store().base()).map(Into::into);
        let group = &mut s.process.as_mut().expect("just started").group;
        if s.engine_runs || s.unheard {
            group.note_engine_disk(now, Seqno::ZERO);
        }
        group.join(now, JoinState { position });
        self.schedule_step(slot);
    }

    /// Starts a process that is linked, and takes no part.
    pub(crate) fn start_idle(&mut self, slot: usize) {
        self.start(slot);
        self.schedule_step(slot);
    }

    pub(crate) fn config(&self, slot: usize) -> Config {
        let options = &self.options;
        Config {
            me: self.member(slot),
            timeouts: options.timeouts.clone(),
            unix_at_zero: self.slots[slot].unix_at_zero(slot),
            ignore_sb: options.ignore_sb,
            ignore_quorum: options.ignore_quorum,
            expect: if options.founded { options.nodes as u8 } else { 0 },
            durability: options.durability,
            levels: self.slots[slot].levels,
            level_hold: Level(u16::MAX),
            batch_bytes_max: options.batch_bytes_max,
            inflight_bytes_max: options.inflight_bytes_max,
            cache_bytes_max: options.cache_bytes_max,
            limits: options.limits.clone(),
        }
    }

    fn start(&mut self, slot: usize) {
        let incarnation = self.slots[slot].incarnation + 1;
        self.log(|| format!("n{slot} starts, incarnation {incarnation}"));
        let options = self.options.clone();
        let seed = self.rng.next();
        self.slots[slot].incarnation = incarnation;
        self.slots[slot].wished = self.slots[slot].weight;
        self.install(slot);
        self.settle(slot);
        let config = self.config(slot);
        let arbitrates = options.is_arbitrator(slot);
        let s = &mut self.slots[slot];
        assert!(s.process.is_none() && s.ending.is_none(), "slot {slot} already runs");
        s.boot += 1;
        (s.paused, s.hangs) = (false, false);
        s.sick = Sickness::default();
        s.out = false;
        let store = s.disk.take().expect("a stopped slot has its disk");
        let base = store.base();
        let position = s.begins_at;
        let half_done = s.db.half_done_at().map(|at| Position { history: base.history, seqno: Seqno(at) });
        let fallback = position::of_half_done(base.history, half_done.filter(|_| position.is_none()), base);
        let start = position::with_log(position, base).or(fallback).map(|at| at.seqno);
        let suspect = store.suspect().is_some();
        let opened_at = base.seqno;
        let now = s.local(self.now);
        let (boot, node) = (s.boot, s.node);
        let begins = if arbitrates {
            replicator::Start::Nobody
        } else {
            let fallback = fallback.map(|at| at.seqno);
            let forgotten = options.sabotage == Some(Sabotage::FailureForgotten);
            let failures = s.db.failures.clone().filter(|_| !forgotten);
            replicator::Start::Server { position, fallback, script: false, failures }
        };
        let mut replicator = Replicator::new(&config.me, begins, String::new(), options.bounds);
        replicator.set_mutant(options.replicator_mutant);
        let mut group = Group::new(config, store, start, seed, now);
        group.set_mutant(options.mutant);
        group.note_half_done(fallback.map(|at| at.seqno));
        s.process = Some(Process {
            group,
            boot,
            server: boot,
            outage: None,
            returned: None,
            judge: Judge::default(),
            replicator,
            fed: false,
            copied: false,
            kept: VecDeque::new(),
            donations: Vec::new(),
            opened_at,
            engine: EngineDisk::new(0),
            word: start.map(|_| Word::Engine),
            short_of_room: false,
            comparing: None,
            absent: Absent::default(),
            ballots: Ballots::remembering(options.bounds.outcomes_max),
            outlived: BTreeSet::new(),
            voting: None,
            history: Uuid::NIL,
            last_index: LogIndex::ZERO,
            last_seqno: Seqno::ZERO,
            delivering: false,
            view: None,
            primary: false,
            non_primary_since: None,
            engine_awaited_since: None,
            wish: None,
            asks_donor: false,
            durability: options.durability,
            synced: false,
            leaving: false,
            inbox: VecDeque::new(),
            step_at: None,
            writes_until: 0,
            wake_at: None,
            links: BTreeMap::new(),
            builds: BTreeMap::new(),
            sync: None,
            proposals: OwnProposals::default(),
            desyncs: Desyncs::default(),
            locks: BTreeMap::new(),
            trxs: BTreeMap::new(),
            held_back: VecDeque::new(),
            throttle: Throttle::new(node, &options),
            pause: None,
            blocked: BTreeSet::new(),
            waiting_reads: Vec::new(),
            streams: BTreeMap::new(),
            reads: BTreeMap::new(),
            errand: None,
            former: None,
            snapshots: Vec::new(),
            heard: BTreeMap::new(),
            refuses: BTreeSet::new(),
            newest: BTreeMap::new(),
            crash_after: None,
            stall_after: None,
            stopped: None,
        });
        if suspect {
            self.arose(Situation::Suspect);
        }
        self.note_begin(slot, suspect);
        for other in 0..self.slots.len() {
            self.schedule_connect(slot, other);
        }
        let delay = self.rng.exp(options.db_flush_mean);
        self.after(delay, Event::Flush { slot, boot });
        self.after(TICK, Event::Tick { slot, boot });
    }

    /// The process dies; `power`: with its machine.
    pub fn crash(&mut self, slot: usize, power: bool) {
        self.note_struck(slot);
        let sat_out = self.sits_out(slot);
        // The only data, once a statement is cut off in them, do not keep others from going on without data (rule 26).
        let others_have_data =
            (0..self.slots.len()).any(|i| i != slot && !self.slots[i].dead && self.may_go_on_from(i));
        let drops = sat_out && self.slots[slot].sick.drops && self.may_lose_power(slot) && self.may_forget();
        let Some(mut p) = self.slots[slot].process.take() else {
            self.server_ended(slot, power);
            if power {
                self.lose_power_down(slot);
            }
            return;
        };
        self.log(|| format!("n{slot} dies{}", if power { " with its machine" } else { "" }));
        if p.group.store().wants_write_on() {
            self.situations.arose(Situation::TornRecord);
        }
        if p.group.store().writes_past_cache() {
            self.situations.arose(Situation::PastCacheCut);
        }
        self.close_conns(slot);
        let mut store = std::mem::replace(p.group.store_mut(), Store::nothing());
        let lost = store.process_died(drops, &mut self.rng);
        let unnoted = self.options.sabotage == Some(Sabotage::DoubtUnnoted) && !self.slots[slot].suspected;
        if lost && drops && unnoted {
            let _ = store.set_suspect(None);
        }
        let s = &mut self.slots[slot];
        s.disk = Some(store);
        (s.paused, s.hangs) = (false, false);
        s.sick.drops = false;
        if p.outage.is_none() {
            s.sick = Sickness::default();
        }
        let in_statement = others_have_data && s.db.in_statement();
        if p.voting.is_some_and(|at| s.db.queue.front().is_some_and(|c| Seqno(c.seqno) == at)) && self.rng.chance(0.5) {
            let stored = s.db.skip_one();
            debug_assert_eq!(stored, Ok(true), "it was next");
            self.situations.arose(Situation::DeathInVote);
        }
        s.db.crash(power, &mut self.rng);
        if std::mem::take(&mut s.at_risk) {
            // So the state file says: the position of these data is unknown.
            s.db.invalidate();
        }
        if in_statement && self.rng.chance(0.3) {
            s.db.cut_off(&mut self.rng);
            if self.options.sabotage == Some(Sabotage::HalfDoneTrusted) {
                s.db.trust();
            }
            self.situations.arose(Situation::HalfDone);
        }
        if lost && drops {
            self.arose(Situation::OutageLost);
        }
        // The last process wrote to a disk that refused. The next one does not know which of these writes the kernel has kept.
        if sat_out && self.doubts_what_is_lost() {
            self.begin_doubt(slot);
        }
        if power {
            self.lose_power_down(slot);
        }
        self.note_end(slot);
        self.note_opened(slot);
        self.hear_complaint(slot);
    }

    /// Are there data in this place, with a flaw or without, and does the log beside them reach to where the others begin?
    fn may_go_on_from(&self, slot: usize) -> bool {
        let s = &self.slots[slot];
        let end = s.store().last();
        (s.db.valid || s.db.half_done) && self.slots.iter().all(|other| other.store().base().index <= end)
    }

    pub(crate) fn hear_complaint(&mut self, slot: usize) {
        if let Some(text) = self.slots[slot].disk.as_mut().and_then(|d| d.take_complaint()) {
            self.fail(format!("n{slot}: {text}"));
        }
    }

    pub(crate) fn lose_power_down(&mut self, slot: usize) {
        let s = &mut self.slots[slot];
        let disk = s.disk.as_mut().expect("no process");
        let before = disk.last();
        disk.lose_power(&mut self.rng);
        let lost = disk.last() < before;
        if lost && self.options.sabotage == Some(Sabotage::PowerTrusted) {
            let _ = disk.set_suspect(None);
        }
        s.db.crash(true, &mut self.rng);
        if self.doubts_what_is_lost() {
            self.begin_doubt(slot);
        }
        if lost {
            self.arose(Situation::EntriesLost);
        }
    }

    pub fn pause(&mut self, slot: usize) {
        if self.slots[slot].process.is_some() {
            self.note_struck(slot);
            self.log(|| format!("n{slot} stops (SIGSTOP)"));
            self.slots[slot].paused = true;
        }
    }

    pub fn resume(&mut self, slot: usize) {
        if self.slots[slot].paused {
            self.log(|| format!("n{slot} continues (SIGCONT)"));
            self.slots[slot].paused = false;
            self.move_again(slot);
        }
    }

    /// It stands still no more.
    pub(crate) fn move_again(&mut self, slot: usize) {
        self.slots[slot].shaken = self.now;
        self.schedule_step(slot);
        for other in 0..self.slots.len() {
            self.schedule_connect(slot, other);
        }
    }

    pub fn leave(&mut self, slot: usize) {
        let stands_still = self.slots[slot].stands_still() || self.sits_out(slot);
        if !stands_still {
            self.drop_held(slot);
        }
        let s = &mut self.slots[slot];
        let now = s.local(self.now);
        if let Some(p) = s.process.as_mut().filter(|_| !stands_still) {
            p.leaving = true;
            s.left = true;
            p.replicator.handle_leave();
            p.group.leave(now);
            self.log(|| format!("n{slot} leaves"));
            self.schedule_step(slot);
        }
    }

    /// The disk is replaced; the node comes back as a new one.
    pub fn wipe(&mut self, slot: usize) {
        self.crash(slot, false);
        self.arose(Situation::NewDisk);
        self.log(|| format!("n{slot} is wiped"));
        let seed = self.rng.next();
        let node = node_id(slot, self.slots[slot].wipes + 1);
        let disk = Store::create(&self.options.of_slot(slot), node, seed);
        let s = &mut self.slots[slot];
        s.wipes += 1;
        s.node = node;
        s.disk = Some(disk);
        s.db = Database::default();
        s.claim = None;
        s.at_risk = false;
        s.incarnation = 0;
        s.left = false;
        s.weight = 1;
        s.copy = None;
        s.acked.clear();
        s.held_once = LogIndex::ZERO;
        s.forgot = Default::default();
        (s.doubt, s.mending) = (None, None);
        (s.changed_at, s.settled) = Default::default();
    }

    /// Somebody copies a node's directory.
    pub fn copy_disk(&mut self, slot: usize) {
        self.log(|| format!("n{slot} is copied"));
        let s = &mut self.slots[slot];
        s.copy = Some(Copy { log: s.store().copy(), db: s.db.copy() });
    }

    /// The process dies; its log and data are replaced by the copy that was made of them.
    pub fn put_back(&mut self, slot: usize) {
        let Some(copy) = self.slots[slot].copy.take() else { return };
        self.crash(slot, false);
        self.arose(Situation::OldDisk);
        let s = &mut self.slots[slot];
        s.held_once = s.held_once.max(s.store().last());
        s.forgot = s.newest_ack();
        s.disk = Some(copy.log);
        s.db = copy.db;
        s.doubt = None;
        (s.changed_at, s.settled) = Default::default();
        s.claim = None;
        s.at_risk = false;
        let last = s.store().last();
        self.begin_mending(slot);
        self.log(|| format!("n{slot} gets its old disk back, with a log up to {last}"));
        self.hear_complaint(slot);
    }

    /// A copy of a node's directory is carried to a new place, which is returned.
    pub fn clone_disk(&mut self, slot: usize) -> usize {
        let twin = self.slots.len();
        self.log(|| format!("n{slot} is cloned as n{twin}"));
        let s = &self.slots[slot];
        let (node, log, db, incarnation) = (s.node, s.store().copy(), s.db.copy(), s.incarnation);
        self.slots.push(Slot { db, incarnation, ..Slot::new(node, log) });
        self.options.nodes = self.slots.len();
        twin
    }

    /// Does its log still lack some of what it had acknowledged before an old copy was put back?
    pub(crate) fn is_short(&self, slot: usize) -> bool {
        let s = &self.slots[slot];
        let store = s.store();
        let end = (store.term_at(store.last()).unwrap_or_default(), store.last());
        s.forgot > end || s.forgot.0 > store.hard_state().term || s.doubt.is_some()
    }

    pub fn is_running(&self, slot: usize) -> bool {
        self.slots[slot].process.is_some() || self.slots[slot].ending.is_some()
    }

    pub fn status(&self, slot: usize) -> Option<trireme_order::Status> {
        self.slots[slot].process.as_ref().map(|p| p.group.status())
    }

    pub fn node(&self, slot: usize) -> NodeId {
        self.slots[slot].node
    }

    pub fn slot_of(&self, node: NodeId) -> Option<usize> {
        self.slots.iter().position(|s| s.node == node)
    }

    /// Slot of the sequencer that most nodes name, when it runs.
    pub fn sequencer(&self) -> Option<usize> {
        (0..self.slots.len()).find(|&i| {
            self.status(i).is_some_and(|s| s.phase == Phase::Primary && s.sequencer == Some(self.slots[i].node))
        })
    }

    pub fn database_position(&self, slot: usize) -> Option<u64> {
        self.slots[slot].db.recovered().map(|(_, p)| p)
    }

    pub fn store(&self, slot: usize) -> &Store {
        self.slots[slot].store()
    }

    /// Hands `change` the group itself, for calls that have no word of their own here. Drains afterwards. A process that stands still takes
    /// nothing: it may be in the midst of a drain.
    pub fn with_group<T>(&mut self, slot: usize, change: impl FnOnce(&mut Group<Store>, Timestamp) -> T) -> Option<T> {
        let s = &mut self.slots[slot];
        let now = s.local(self.now);
        let out = change(&mut s.process.as_mut().filter(|p| !s.paused && !s.hangs && p.outage.is_none())?.group, now);
        self.schedule_step(slot);
        Some(out)
    }

    pub(crate) fn schedule_step(&mut self, slot: usize) {
        let mean = self.options.step_mean.saturating_mul(self.slots[slot].step_factor);
        if self.slots[slot].stands_still() || self.sits_out(slot) {
            return;
        }
        let mut delay = self.rng.exp(mean);
        if self.slots[slot].step_factor > 1 {
            delay += self.rng.exp(US * 100 * self.slots[slot].step_factor);
        }
        let at = self.now + delay;
        let Some(p) = &mut self.slots[slot].process else { return };
        let at = at.max(p.writes_until);
        if p.step_at.is_none() {
            p.step_at = Some(at);
            let boot = p.boot;
            self.at(at, Event::Step { slot, boot });
        }
    }

    /// Every node's own account, for a failure's report.
    pub fn dump(&self) -> String {
        use std::fmt::Write;
        let mut out = String::new();
        for (i, s) in self.slots.iter().enumerate() {
            let _ = writeln!(
                out,
                "n{i} {} {} db {:?} queue {} feed {:?} log {}..={} synced {} suspect {:?} hard {:?}",
                s.node,
                if s.ending.is_some() {
                    "ending"
                } else if s.process.is_none() {
                    "down"
                } else if s.paused {
                    "paused"
                } else if s.hangs {
                    "hanging"
                } else if s.process.as_ref().is_some_and(|p| p.outage.is_some()) {
                    "out"
                } else {
                    "up"
                },
                s.db.recovered().map(|r| r.1),
                s.db.queue.len(),
                s.process.as_ref().map(|p| p.replicator.feed()),
                s.store().first(),
                s.store().last(),
                s.store().synced(),
                s.store().suspect(),
                s.store().hard_state(),
            );
            if let Some(p) = &s.process {
                let links: Vec<String> = p
                    .links
                    .iter()
                    .map(|(n, c)| {
                        format!(
                            "{}{}",
                            self.slot_of(*n).map_or("?".into(), |s| format!("n{s}")),
                            if self.net.conns.get(c).is_some_and(|c| c.open) { "" } else { "(dead)" }
                        )
                    })
                    .collect();
                let _ = writeln!(
                    out,
                    "   local time {} links [{}] delivered {}/{} pending {} timeout {:?}\n   applies {:?}, waiting {:?}, locals {:?}, held {:?} {}\n   {:?}",
                    s.local(self.now),
                    links.join(" "),
                    p.last_index,
                    p.last_seqno,
                    p.proposals.clients().count(),
                    p.group.poll_timeout(),
                    s.db.applies(),
                    p.blocked,
                    p.trxs,
                    p.held_back,
                    Cluster::flow_words(p),
                    p.group.status(),
                );
            }
        }
        out
    }

    pub(crate) fn note_event(&mut self, slot: usize, event: &GroupEvent) {
        if self.trace {
            let text = match event {
                GroupEvent::Log { warn, text } => format!("n{slot} {}: {text}", if *warn { "warns" } else { "says" }),
                other => format!("n{slot} event {other:?}"),
            };
            self.log(|| text);
        }
    }
}

/// Identity of the `wipes`-th disk in a slot.
pub fn node_id(slot: usize, wipes: u32) -> NodeId {
    let mut bytes = [0u8; 16];
    bytes[0] = slot as u8 + 1;
    bytes[1] = wipes as u8;
    // Elections and ties may look at the id: it must not grow with the slot.
    bytes[2..10].copy_from_slice(&mix(slot as u64 * 64 + u64::from(wipes)).to_le_bytes());
    NodeId(Uuid(bytes))
}

trait With {
    fn with(self, n: u64) -> Uuid;
}

impl With for Uuid {
    fn with(mut self, n: u64) -> Uuid {
        self.0[8..].copy_from_slice(&n.to_be_bytes());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Swarm seed 78792618: a stop has written down a commit that its engine did not have on disk, and the next start could not ask.
    #[test]
    fn a_server_whose_engine_could_not_be_asked_says_what_the_state_file_claims() {
        let history = Uuid([7; 16]);
        let mut slot = Slot::new(NodeId::default(), Store::nothing());
        slot.db.begin(history, 47);
        assert_eq!(slot.says_it_holds(), Some((history, 47)));
        slot.begins_at = Some(Position { history, seqno: Seqno(51) });
        assert_eq!(slot.says_it_holds(), Some((history, 47)), "the engine has been asked");
        slot.unheard = true;
        assert_eq!((slot.holds(), slot.says_it_holds()), (Some((history, 47)), Some((history, 51))));
        slot.db.valid = false;
        assert_eq!(slot.says_it_holds(), None, "the data were given up");
    }
}
