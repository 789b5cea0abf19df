//! The group thread: owns the sockets, the ordering core and the certification index; turns deliveries into answers for
//! waiting clients and items for the appliers. It never calls the server (SAFETY 29).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::Bytes;
use trireme_certification::{Encoded, Head, Verdict, WriteSet};
use trireme_order::{Config, Delivery, Event, Group, JoinState, LogStore, Message, Output, Phase, ReadId, StoreError};
use trireme_surface::texts;
use trireme_transport::{AdmitToken, Isolation, NetEvent, TlsContext, Transport};
use trireme_types::{
    Base, DecodeError, Durability, LogIndex, Member, NodeId, Reader, Seqno, Session, Timestamp, Uuid, View, Weight,
    Writer,
};
use trireme_wslog::{DirStorage, SpareReady, Synced, Trim, WriteSetLog};

use crate::backlog::Backlog;
use crate::flow::{Act, Flow, Limits};
use crate::index::{Delivered, Found, Index, Lost, Work};
use crate::node::Shared;
use crate::picture::Picture;
use crate::progress::CatchUp;
use crate::queue::{ApplyItem, Item};
use crate::roster::{AppMessage, Effect, NodeState, Roster};
use crate::slot::Slot;
use crate::startup::Plan;
use crate::status::GroupStatus;
use crate::stop_signal;
use crate::trx::Trx;
use crate::{Level, ServerView, ViewMember, ViewStatus};

pub type Log = WriteSetLog<DirStorage>;

/// What became of a proposal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing was sent, or what was sent will certainly never be ordered.
    NotSent,
    /// Given up; it may still be ordered, and is then closed by an applier (SAFETY 22).
    Abandoned,
    /// `body`: as ordered, kept for a replay.
    Ordered { seqno: Seqno, ok: bool, depends_on: Seqno, body: Bytes },
}

/// What other threads ask of the group thread.
pub enum Command {
    /// `patient`: waits through a loss of the majority however long it lasts. There is no truthful answer for a statement in
    /// total-order isolation whose order is not known (SAFETY 22).
    /// `trx`: whose it is, if it can be aborted while it waits to be sent.
    Propose {
        body: Encoded,
        patient: bool,
        trx: Option<Arc<Trx>>,
        slot: Arc<Slot<Outcome>>,
    },
    /// A transaction that may still wait to be sent was aborted: do not send it.
    Recall,
    /// The backlog has fallen to what flow control waits for.
    BacklogSank,
    /// Options of flow control have changed.
    FlowOptions,
    /// The rollback of a streaming transaction: ordered sooner or later, an applier closes its seqno.
    ProposeUnowned {
        body: Bytes,
    },
    /// The slot, if any, is filled when the message has been delivered here (true) or could not be sent (false). Without one
    /// the message is sent again until it is ordered.
    App {
        message: AppMessage,
        slot: Option<Arc<Slot<bool>>>,
    },
    /// A causal read: the position to wait for.
    Read {
        slot: Arc<Slot<Option<Seqno>>>,
    },
    Synced(Result<Synced, StoreError>),
    SpareReady(SpareReady<DirStorage>),
    /// The certification index is back from an errand.
    IndexBack,
    /// The server's script wants this full copy.
    StateRequest {
        request: Vec<u8>,
    },
    /// An arbitrator wants a server to carry out this request; the answer names it.
    AskDonor {
        request: Vec<u8>,
        slot: Arc<Slot<Result<String, String>>>,
    },
    /// The full copy is here (or failed, `None`).
    StateReceived {
        position: Option<Seqno>,
    },
    ForcePrimary,
    Weight {
        weight: Weight,
        slot: Arc<Slot<bool>>,
    },
    Durability(Durability),
    /// What the extended status shows.
    Describe {
        slot: Arc<Slot<Option<Picture>>>,
    },
    Configure(Box<dyn FnOnce(&mut Config) + Send>),
    Isolate(Isolation),
    /// Certificates for connections made from now on.
    Tls(TlsContext),
    Admit {
        token: AdmitToken,
        allowed: bool,
    },
    /// Leave at once, drop what is not applied yet. `corrupt`: this node's data are not the group's any more.
    GiveUp {
        reason: String,
        corrupt: bool,
    },
    /// Leave in order and end.
    Leave,
}

/// How to begin.
#[derive(Clone, Debug)]
pub enum Start {
    Bootstrap {
        history: Uuid,
        position: Seqno,
    },
    /// `data`: where the data are, although perhaps no log vouches for them. `fallback`: where data with a statement cut off in them
    /// are, when there are no others.
    Join {
        position: Option<(Uuid, Seqno)>,
        data: Option<(Uuid, Seqno)>,
        fallback: Option<Seqno>,
    },
    /// `dummy://`: a group of one that talks to nobody.
    Alone {
        history: Uuid,
        position: Seqno,
    },
}

/// Deliveries between start and the moment the server has its state.
enum Feed {
    /// Kept back: the server's position is not settled yet.
    Held(Backlog),
    Live,
}

impl Feed {
    fn held() -> Feed {
        Feed::Held(Backlog::default())
    }
    fn is_live(&self) -> bool {
        matches!(self, Feed::Live)
    }
}

/// A write set of this node that is not ordered yet.
enum Pending {
    Owned { slot: Arc<Slot<Outcome>>, patient: bool },
    Unowned { body: Bytes },
}

/// A write set that flow control has not let pass yet.
struct HeldBack {
    body: Encoded,
    patient: bool,
    trx: Option<Arc<Trx>>,
    slot: Arc<Slot<Outcome>>,
}

impl HeldBack {
    fn recalled(&self) -> bool {
        self.trx.as_ref().is_some_and(|trx| trx.is_aborted())
    }
}

/// A message of this node that is not ordered yet.
struct PendingApp {
    message: AppMessage,
    slot: Option<Arc<Slot<bool>>>,
}

/// What has to be ordered once this node is a member again.
enum Owed {
    App(AppMessage),
    Rollback(Bytes),
}

pub struct Core {
    shared: Arc<Shared>,
    group: Group<Log>,
    transport: Transport,
    index: Index,
    /// Deliveries and requests for snapshots that came while the index was away, in order: few, as the group delivers no entry then.
    waiting: VecDeque<Output>,
    roster: Roster,
    me: Member,
    started: Instant,
    feed: Feed,
    /// The server's own position when the core began; `None`: unknown, needs a full copy.
    position: Option<(Uuid, Seqno)>,
    /// A donor's script brings something even to a server that needs no data.
    script: bool,
    /// Highest seqno handed to the server's side (queued, or owned by a client thread).
    handed: Seqno,
    /// What came up to here was in the server's data when the feed went live.
    floor: Seqno,
    /// The server has been told that it is connected, or of its need for a full copy.
    told: bool,
    /// Seqno of the first view with this incarnation.
    joined_at: Seqno,
    delivered: Seqno,
    /// The current primary view contains this incarnation.
    member: bool,
    non_primary_since: Option<Instant>,
    /// By session and number.
    pending: HashMap<(u64, u64), Pending>,
    pending_app: HashMap<(u64, u64), PendingApp>,
    /// Newest own session of which something was ordered.
    session: u64,
    owed: VecDeque<Owed>,
    flow: Flow,
    /// The queue is to say when it has sunk.
    watching: bool,
    /// When the operator was last told that this node no longer slows the others.
    gave_up_told: Option<Instant>,
    /// When the sequencer was last heard.
    heard: Timestamp,
    /// In the order of sending. Bounded by the server's threads: each waits for one.
    held_back: VecDeque<HeldBack>,
    /// Names of all members there ever were, since one that is looked for may not be in the view.
    names: HashMap<NodeId, String>,
    /// Members that are not heard at the moment, as far as this one judges, and how often one fell silent.
    silent: BTreeSet<NodeId>,
    silences: u64,
    reads: HashMap<u64, Arc<Slot<Option<Seqno>>>>,
    next_read: u64,
    weight_waiters: Vec<(Weight, Arc<Slot<bool>>)>,
    /// What the server missed is being applied.
    catch_up: Option<CatchUp>,
    /// A Joined or Synced of ours is on its way.
    announced: Option<(u64, u64)>,
    /// The full copy asked for, until it is here.
    request: Option<StateRequest>,
    reported: Seqno,
    syncing: bool,
    /// The own leave was asked for: the view without this member is not for the server, which will hear a final one.
    leaving: bool,
    /// This node's data are wrong: nothing more goes to the server while the leave is being ordered.
    dropping: bool,
    /// `gcs.sync_donor`: a donor slows the others as any member does.
    donors_count: bool,
    /// Votes without a result, and since when they were seen.
    votes_since: BTreeMap<Seqno, Instant>,
    /// When those that are waited for were last looked at.
    hurried: Instant,
    /// When the log's housekeeping was last done.
    log_kept: Instant,
    ended: bool,
    /// Answers `connect`: filled at the first own view or at failure.
    connected: Option<Arc<Slot<Result<(), String>>>>,
    /// When, and why, a peer first refused this node for what waiting does not mend.
    unwelcome: Option<(Instant, String)>,
    unwelcome_max: Duration,
    /// Where half done data are that could be gone on with if no member has whole ones (SAFETY 26).
    fallback: Option<Seqno>,
    half_done: Option<HalfDone>,
    donor_list: String,
    /// Whom to tell which server carries out the request.
    asked: Option<Arc<Slot<Result<String, String>>>>,
    /// For an arbitrator: the most that its log may take.
    log_max: Option<u64>,
    /// Large bodies that were delivered, until nobody else needs them: so that this thread is never the last to let go of one.
    large: Vec<Bytes>,
    /// It was told that this is not enough for a server that is away.
    told_of_bound: bool,
}

/// The server has not been told anything yet: whether it needs a full copy depends on what the others have.
struct HalfDone {
    own_view: Seqno,
    view: View,
    /// The newest message about it on its way.
    said: Option<(u64, u64)>,
    /// The operator knows for whom this waits.
    explained: bool,
    /// When it was last looked whether the server was told to stop.
    looked: Instant,
}

struct StateRequest {
    request: Vec<u8>,
    retry_at: Option<Instant>,
    /// Chosen donor, once there is one.
    donor: Option<NodeId>,
}

/// Write sets between two reports of the committed position (Galera's 127).
const REPORT_EVERY: u64 = 128;
/// How often the log's housekeeping is looked at.
const KEEP_LOG_EVERY: Duration = Duration::from_secs(1);
/// Bodies from here on are let go of by another thread: giving back the memory of a gigabyte takes tenths of a second.
const LARGE_BODY: usize = 16 << 20;
/// Bytes beyond `gcache.size` that are kept for members that have not received them: two of the largest write sets. A member that lags
/// further behind would need a full copy, as one that was away too long does.
const KEEP_FOR_MEMBERS_MAX: u64 = 4 << 30;
/// Log between two checkpoints of a large index: two of the largest write sets, as above.
const CHECKPOINT_SPACING: u64 = 4 << 30;
/// How often a node whose server cannot hear it looks whether that was told to stop.
const LOOK_FOR_STOP: Duration = Duration::from_millis(500);
/// Acknowledgements are not queued behind more than this.
const ACKS_BEHIND_MAX: usize = 1 << 20;
/// How often members that are waited for are looked at.
const HURRY_EVERY: Duration = Duration::from_secs(1);
/// How long an inconsistency vote waits for a majority.
const VOTE_PATIENCE: Duration = Duration::from_secs(10);
/// Uses of keys in the certification index (a hundred bytes each at worst) beyond which a member that lags does not keep them there.
const INDEX_KEYS_MAX: usize = 1 << 21;
/// A member counts as lagging when another one has committed so much more. Several reports.
const LAG_MIN: u64 = 8 * REPORT_EVERY;
/// Between two complaints of the same kind.
const TELL_AGAIN: Duration = Duration::from_secs(60);
/// How long a sent, undecided commit waits in a non-primary component before it is given up.
const NON_PRIMARY_PATIENCE: Duration = Duration::from_secs(10);
/// Who has not heard the sequencer for so long, several heartbeats, was frozen or cut off from it.
const OUT_OF_TOUCH_AFTER: Duration = Duration::from_millis(300);

impl Core {
    pub fn new(
        shared: Arc<Shared>,
        plan: Plan,
        log: Log,
        donor_list: String,
        connected: Arc<Slot<Result<(), String>>>,
    ) -> Core {
        let Plan { transport, unwelcome_max, config, start, script, seed, .. } = plan;
        let started = Instant::now();
        let position = match &start {
            Start::Bootstrap { history, position } | Start::Alone { history, position } => Some((*history, *position)),
            Start::Join { position, .. } => *position,
        };
        let fallback = match &start {
            Start::Join { fallback, .. } => *fallback,
            Start::Bootstrap { .. } | Start::Alone { .. } => None,
        };
        let same_history = position.filter(|(h, _)| *h == log.base().history);
        let me = config.me.clone();
        let me_node = me.node;
        let log_max = shared.args.arbitrator.as_ref().map(|a| a.log_max);
        let mut group = Group::new(config, log, same_history.map(|(_, s)| s), seed, Timestamp::ZERO);
        let failure = match start {
            Start::Bootstrap { history, position } | Start::Alone { history, position } => {
                group.bootstrap(Timestamp::ZERO, history, position).err()
            }
            Start::Join { position, data, .. } => {
                group.note_data(data);
                group.join(Timestamp::ZERO, JoinState { position });
                None
            }
        };
        let mut core = Core {
            shared,
            group,
            transport,
            index: Index::default(),
            waiting: VecDeque::new(),
            roster: Roster::default(),
            me,
            started,
            feed: Feed::held(),
            position,
            script,
            handed: Seqno::ZERO,
            floor: Seqno::ZERO,
            told: false,
            joined_at: Seqno::ZERO,
            delivered: Seqno::ZERO,
            member: false,
            non_primary_since: None,
            pending: HashMap::new(),
            pending_app: HashMap::new(),
            session: 0,
            owed: VecDeque::new(),
            flow: Flow::new(me_node),
            watching: false,
            gave_up_told: None,
            heard: Timestamp::ZERO,
            held_back: VecDeque::new(),
            names: HashMap::new(),
            silent: BTreeSet::new(),
            silences: 0,
            reads: HashMap::new(),
            next_read: 0,
            weight_waiters: Vec::new(),
            catch_up: None,
            announced: None,
            request: None,
            reported: Seqno::ZERO,
            syncing: false,
            leaving: false,
            dropping: false,
            donors_count: false,
            votes_since: BTreeMap::new(),
            hurried: started,
            log_kept: started,
            ended: false,
            connected: Some(connected),
            unwelcome: None,
            unwelcome_max,
            fallback,
            half_done: None,
            donor_list,
            asked: None,
            log_max,
            large: Vec::new(),
            told_of_bound: false,
        };
        if let Some(reason) = failure {
            core.fail(reason);
        }
        core
    }

    /// Is there no server behind this node?
    fn arbitrates(&self) -> bool {
        self.log_max.is_some()
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.started.elapsed().as_nanos() as u64)
    }

    /// Runs until left; gives the log back, unless its state is unknown because of a mistake in this program.
    pub fn run(mut self) -> Option<Log> {
        let ended = catch_unwind(AssertUnwindSafe(|| self.work()));
        if ended.is_err() {
            // Whoever waits for this thread would wait for ever.
            self.shared.log(Level::Error, "the group thread failed: leaving the group; restart the server".into());
        }
        let finished = catch_unwind(AssertUnwindSafe(|| self.finish()));
        self.transport.close();
        if ended.is_err() || finished.is_err() {
            return None;
        }
        Some(self.group.into_store())
    }

    fn work(&mut self) {
        let mut events = Vec::new();
        let mut commands = Vec::new();
        let mut releasing = false;
        self.drain();
        while !self.ended {
            let timeout = if releasing { Duration::ZERO } else { self.next_timeout() };
            self.transport.poll(Some(timeout), &mut events);
            for event in events.drain(..) {
                self.on_net(event);
            }
            self.shared.commands.take(&mut commands);
            for command in commands.drain(..) {
                self.on_command(command);
            }
            self.fetch_index();
            let now = self.now();
            if self.group.poll_timeout().is_some_and(|(at, _)| at <= now) {
                self.group.handle_timeout(now);
            }
            self.drain();
            self.keep_house();
            self.regulate();
            releasing = self.index.release();
            self.space_checkpoints();
        }
    }

    fn next_timeout(&self) -> Duration {
        let now = self.now();
        let mut wait = self.group.poll_timeout().map_or(Duration::from_millis(500), |(at, _)| at.since(now));
        // Waiting for the appliers to catch up, or for a retry.
        if self.request.is_some() || self.settling() || self.non_primary_since.is_some() {
            wait = wait.min(Duration::from_millis(20));
        }
        if let Some(flow) = self.flow.wait(!self.held_back.is_empty()) {
            wait = wait.min(flow);
        }
        wait.min(Duration::from_millis(500))
    }

    /// Member with its state, on the way to synced.
    fn settling(&self) -> bool {
        self.member
            && self.feed.is_live()
            && !matches!(self.roster.state(self.me.node), Some(NodeState::Synced | NodeState::Donor))
    }

    // --- inputs ---------------------------------------------------------------------------------------------------

    fn on_net(&mut self, event: NetEvent) {
        let now = self.now();
        match event {
            NetEvent::LinkUp { member, .. } => self.group.handle_link_up(now, member),
            NetEvent::LinkDown { node, .. } => self.group.handle_link_down(now, node),
            NetEvent::Message { from, message } => {
                self.group.handle_message(now, from, message);
                // Only the sequencer's word counts: who hears the others but not it misses what is ordered as well.
                if self.group.sequencer() == Some(from) {
                    if now.since(self.heard) >= OUT_OF_TOUCH_AFTER {
                        self.flow.out_of_touch(now);
                    }
                    self.heard = now;
                }
            }
            NetEvent::Log { warn, text } => self.shared.log(if warn { Level::Warn } else { Level::Info }, text),
            NetEvent::Unwelcome { reason } => {
                self.unwelcome.get_or_insert_with(|| (Instant::now(), reason));
            }
            NetEvent::Accepted { token, address } => self.shared.ask_allowed(token, address),
            NetEvent::Refused { address, reason } => {
                self.shared.log(Level::Warn, format!("connection from {address} refused: {reason}"));
            }
        }
    }

    fn on_command(&mut self, command: Command) {
        let now = self.now();
        match command {
            Command::Propose { body, patient, trx, slot } => {
                if self.flow.is_stopped() || !self.held_back.is_empty() {
                    self.held_back.push_back(HeldBack { body, patient, trx, slot });
                    self.release_held_back();
                } else {
                    self.propose(body, patient, slot);
                }
            }
            Command::Recall => self.recall(),
            // Looked at after every round of commands.
            Command::BacklogSank | Command::IndexBack => {}
            Command::FlowOptions => self.set_flow_options(),
            Command::ProposeUnowned { body } => self.propose_rollback(body),
            Command::App { message, slot: None } => self.propose_owed(message),
            Command::App { message, slot: Some(slot) } => match self.propose_app(&message) {
                Some(key) => {
                    self.pending_app.insert(key, PendingApp { message, slot: Some(slot) });
                }
                None => slot.fill(false),
            },
            Command::Read { slot } if !self.member => slot.fill(None),
            Command::Read { slot } => {
                let id = self.next_read;
                self.next_read += 1;
                self.reads.insert(id, slot);
                self.group.read(now, ReadId(id));
            }
            Command::Synced(outcome) => {
                self.syncing = false;
                let done = outcome.and_then(|synced| {
                    self.group.store_mut().finish_sync(synced)?;
                    Ok(synced)
                });
                match done {
                    Ok(synced) => self.group.handle_synced(now, synced.generation, synced.upto),
                    Err(error) => self.fail(error.to_string()),
                }
            }
            Command::SpareReady(ready) => {
                if let Err(error) = self.group.store_mut().finish_spare(ready) {
                    self.shared.log(Level::Info, format!("no log segment could be prepared ahead: {error}"));
                }
            }
            Command::StateRequest { request } => self.on_state_request(request),
            Command::AskDonor { request, slot } => {
                self.asked = Some(slot);
                self.request = Some(StateRequest { request, retry_at: Some(Instant::now()), donor: None });
            }
            Command::StateReceived { position } => self.on_state_received(position),
            Command::ForcePrimary => self.group.force_primary(now),
            Command::Weight { weight, slot } => {
                if self.member {
                    self.group.set_weight(now, weight);
                    self.weight_waiters.push((weight, slot));
                } else {
                    slot.fill(false);
                }
            }
            Command::Durability(mode) => self.group.set_durability(now, mode),
            Command::Describe { slot } => slot.fill(Some(self.picture())),
            Command::Configure(change) => self.group.set_config(change),
            Command::Isolate(mode) => {
                self.transport.isolate(mode);
                if mode == Isolation::ForceQuit {
                    self.shared.log(Level::Error, texts::FORCED_QUIT.into());
                    self.end_now();
                }
            }
            Command::Tls(context) => self.transport.set_tls(context),
            Command::Admit { token, allowed } => self.transport.admit(token, allowed),
            Command::GiveUp { reason, corrupt } => {
                self.shared.log(Level::Error, reason);
                if corrupt {
                    self.shared.mark_inconsistent();
                }
                self.shared.queue.clear();
                self.shared.monitor.set_closed(true);
                // In order, so that the others need not take this node for failed: two nodes would lose their majority.
                self.dropping = true;
                self.leaving = true;
                self.abandon_all();
                self.group.leave(now);
            }
            Command::Leave => match self.group.status().phase {
                // Nobody is there to order the leave.
                Phase::Idle | Phase::Joining | Phase::Failed => self.end_now(),
                Phase::NonPrimary => {
                    self.group.leave(now);
                    self.drain();
                    self.end_now();
                }
                Phase::Primary => {
                    self.leaving = true;
                    self.drop_held_back();
                    self.group.leave(now);
                }
                Phase::Leaving => {}
            },
        }
    }

    fn propose(&mut self, mut body: Encoded, patient: bool, slot: Arc<Slot<Outcome>>) {
        // Here, in the order of sending, so that no report of a later position (which moves the cut) can be ordered before a
        // write set that has seen less.
        body.set_last_seen(self.shared.monitor.left());
        let now = self.now();
        match self.group.propose(now, body.into_bytes()) {
            Ok((session, number)) => {
                self.pending.insert((session.number, number), Pending::Owned { slot, patient });
            }
            Err(_) => slot.fill(Outcome::NotSent),
        }
    }

    fn propose_rollback(&mut self, body: Bytes) {
        let now = self.now();
        match self.group.propose(now, body.clone()) {
            Ok((session, number)) => {
                self.pending.insert((session.number, number), Pending::Unowned { body });
            }
            Err(_) => self.owed.push_back(Owed::Rollback(body)),
        }
    }

    fn propose_owed(&mut self, message: AppMessage) {
        match self.propose_app(&message) {
            Some(key) => {
                self.pending_app.insert(key, PendingApp { message, slot: None });
            }
            None => self.owed.push_back(Owed::App(message)),
        }
    }

    /// Something of the own session `number` was ordered: what belongs to an older session and was not ordered before never
    /// will be (SAFETY 4, 23).
    fn note_session(&mut self, number: u64) {
        if number <= self.session {
            return;
        }
        self.session = number;
        let lost: Vec<_> = self.pending.keys().copied().filter(|(session, _)| *session < number).collect();
        for key in lost {
            match self.pending.remove(&key) {
                Some(Pending::Owned { slot, .. }) => slot.fill(Outcome::NotSent),
                Some(Pending::Unowned { body }) => self.owed.push_back(Owed::Rollback(body)),
                None => {}
            }
        }
        let lost: Vec<_> = self.pending_app.keys().copied().filter(|(session, _)| *session < number).collect();
        for key in lost {
            match self.pending_app.remove(&key) {
                Some(PendingApp { slot: Some(slot), .. }) => slot.fill(false),
                Some(PendingApp { slot: None, message }) => self.owed.push_back(Owed::App(message)),
                None => {}
            }
        }
    }

    fn propose_app(&mut self, message: &AppMessage) -> Option<(u64, u64)> {
        let now = self.now();
        let (session, number) = self.group.propose_app(now, Bytes::from(message.encode())).ok()?;
        Some((session.number, number))
    }

    // --- outputs --------------------------------------------------------------------------------------------------

    fn drain(&mut self) {
        loop {
            let now = self.now();
            let Some(output) = self.group.poll_output(now) else { break };
            match output {
                Output::Send { to, message: Message::Ack { .. }, .. } if self.reads_nothing(to) => {}
                Output::Deliver(_) | Output::Event(Event::NeedSnapshot(_)) if self.index.is_away() => {
                    self.waiting.push_back(output);
                }
                // What cannot be sent now is the protocol's own business: it hears of the link's end.
                Output::Send { to, class, message } => drop(self.transport.send(to, class, &message)),
                Output::Deliver(delivery) => self.on_delivery(delivery),
                Output::Event(event) => self.on_event(event),
            }
        }
        self.transport.flush();
        if self.group.wants_sync() {
            self.begin_sync();
        }
    }

    fn begin_sync(&mut self) {
        if !self.syncing
            && let Some(ticket) = self.group.store_mut().begin_sync()
        {
            self.syncing = true;
            self.shared.sync(ticket);
        }
    }

    /// A frozen peer's acknowledgements would pile up without bound. It does not need them: the sequencer tells it what is
    /// committed. To the sequencer they go in any case: it counts them, and is not frozen for longer than its term.
    fn reads_nothing(&self, peer: NodeId) -> bool {
        self.transport.queue_bytes(peer) > ACKS_BEHIND_MAX && self.group.sequencer() != Some(peer)
    }

    fn on_event(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::NonPrimary { reachable } => self.on_non_primary(reachable),
            Event::Left => self.end_now(),
            Event::ReadAt { read, seqno } => {
                if let Some(slot) = self.reads.remove(&read.0) {
                    slot.fill(Some(seqno));
                }
            }
            Event::ReadFailed { read } => {
                if let Some(slot) = self.reads.remove(&read.0) {
                    slot.fill(None);
                }
            }
            // Its log is replaced, and that is all there is.
            Event::DataDiverged if self.arbitrates() => {}
            Event::DataDiverged => {
                // A node that starts is made good by itself; one that serves has to be looked at.
                let level = if self.feed.is_live() { Level::Warn } else { Level::Info };
                self.shared.log(level, "local data are not the group's history: a full copy is needed".into());
                let data = self.position.take().is_some();
                // Before the log is replaced: no crash may leave the group's log beside these data.
                self.shared.discard_data();
                self.group.data_discarded(now);
                // With data the server may have been told that it needs none.
                if self.feed.is_live() || self.request.is_some() || self.told && data {
                    self.shared.mark_inconsistent();
                    self.fail(
                        "the group went on without this node's last commits; restart it to get a full copy".into(),
                    );
                }
            }
            Event::Found { history } => {
                self.position = Some((history, Seqno::ZERO));
                self.shared.found(history);
                if let Err(reason) = self.group.bootstrap(now, history, Seqno::ZERO) {
                    self.fail(reason);
                }
            }
            Event::Signal { from, body } => self.flow.on_signal(now, from, &body),
            Event::NeedSnapshot(request) if request.peer.is_none() && self.puts_off_checkpoint() => {
                self.group.decline_snapshot(&request);
            }
            Event::NeedSnapshot(request) => {
                let mut before = Writer::new();
                self.roster.encode(&mut before);
                self.begin_work(Work::Describe { request, before });
            }
            Event::TermChanged { term, sequencer } => {
                self.shared.log(
                    Level::Debug,
                    format!("term {term}, sequencer {}", sequencer.map_or("none".into(), |s| s.to_string())),
                );
            }
            Event::Silent { node, silent } => {
                if silent {
                    self.silences += 1;
                    self.silent.insert(node);
                } else {
                    self.silent.remove(&node);
                }
                let state = if silent { "is silent" } else { "is heard again" };
                self.shared.log(Level::Info, format!("member {} {state}", self.name(node)));
            }
            Event::Evicted => self.fail(texts::EVICTED.into()),
            Event::Log { warn, text } => self.shared.log(if warn { Level::Warn } else { Level::Info }, text),
            Event::Failed { reason } => self.fail(reason),
        }
    }

    /// This node cannot go on in this group.
    fn fail(&mut self, reason: String) {
        self.shared.log(Level::Error, reason.clone());
        if let Some(slot) = self.connected.take() {
            slot.fill(Err(reason));
        }
        self.end_now();
    }

    fn end_now(&mut self) {
        self.ended = true;
    }

    /// The last words to the server and to everybody who waits.
    fn finish(&mut self) {
        if let Some(slot) = self.connected.take() {
            slot.fill(Err("the connection was closed before a primary view was reached".into()));
        }
        self.abandon_all();
        self.shared.change_flow_figures(|f| {
            f.pause(Instant::now(), false);
            f.requested = false;
        });
        for (_, pending) in self.pending_app.drain() {
            if let Some(slot) = pending.slot {
                slot.fill(false);
            }
        }
        for (_, slot) in self.reads.drain() {
            slot.fill(None);
        }
        for (_, slot) in self.weight_waiters.drain(..) {
            slot.fill(false);
        }
        if let Some(slot) = self.asked.take() {
            slot.fill(Err("the group was left before a server had been chosen".into()));
        }
        // Commands that came too late.
        let mut rest = Vec::new();
        self.shared.commands.close(&mut rest);
        rest.into_iter().for_each(refuse);
        self.shared.end_votes();
        self.shared.settings.with(|o| o.set_group_connected(false));
        self.member = false;
        self.shared.set_group_status(GroupStatus { uuid: self.me.uuid(), ..GroupStatus::default() });
        if self.told {
            let view = self.server_view(ViewStatus::NonPrimary, None, &View::default());
            self.shared.set_last(self.handed);
            self.shared.queue.push(Item::Final { view, last: self.handed });
        } else {
            // To a server that was never connected a final view would be a mistake.
            self.shared.queue.clear();
        }
        self.shared.queue.close();
    }

    // --- delivery -------------------------------------------------------------------------------------------------

    fn on_delivery(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::WriteSet { index, seqno, session, number, body } => {
                self.on_write_set(index, seqno, session, number, body);
            }
            Delivery::View { seqno, view, .. } => self.on_view(seqno, view),
            Delivery::App { seqno, session, number, body, .. } => self.on_app(seqno, session, number, &body),
            Delivery::Reset { base } => self.on_reset(base),
        }
    }

    fn on_reset(&mut self, base: Base) {
        self.delivered = base.seqno;
        self.index = Index::default();
        if base.app.is_empty() {
            self.roster = Roster::default();
            self.index.here().purge(base.seqno);
        } else {
            let mut reader = Reader::new(&base.app);
            match Roster::decode(&mut reader) {
                Ok(roster) => self.roster = roster,
                Err(error) => return self.fail(unreadable(&error)),
            }
            let state = base.app.slice(base.app.len() - reader.remaining()..);
            self.begin_work(Work::Load { state });
        }
        self.set_evicted();
        if self.arbitrates() {
            self.pass(base.seqno);
            return self.shared.set_history(base.history);
        }
        let gap = match &mut self.feed {
            Feed::Held(items) => {
                items.clear();
                let useless = self.position.is_some_and(|(h, p)| h != base.history || p < base.seqno);
                if useless {
                    self.position = None;
                }
                // With a position the server was told that it needs no data.
                useless && self.told
            }
            Feed::Live => self.handed < base.seqno,
        };
        if gap {
            self.fail("what this node missed is no longer kept by any member: restart it to get a full copy".into());
        }
        self.shared.set_history(base.history);
    }

    // --- the certification index ------------------------------------------------------------------------------------------

    fn begin_work(&mut self, work: Work) {
        let shared = &self.shared;
        match self.index.begin(work, |errand| shared.run_errand(errand)) {
            Some(found) => self.on_found(found),
            None => self.group.pause_delivery(true),
        }
    }

    /// Asked again here, since the request may be older than what made the index large.
    fn puts_off_checkpoint(&mut self) -> bool {
        self.space_checkpoints();
        !self.group.store().wants_checkpoint()
    }

    fn space_checkpoints(&mut self) {
        let spacing = if self.index.is_large() { CHECKPOINT_SPACING } else { 0 };
        self.group.store_mut().space_checkpoints(spacing);
    }

    fn on_found(&mut self, found: Found) {
        match found {
            Found::Verdict { delivered, write_set, verdict } => self.on_verdict(delivered, Some(&write_set), verdict),
            Found::State { request, state } => {
                let now = self.now();
                self.group.provide_snapshot(now, request, state);
            }
            Found::Loaded(Ok(())) => {}
            Found::Loaded(Err(error)) => self.fail(unreadable(&error)),
        }
    }

    /// Goes on where the index left for an errand, if that has ended.
    fn fetch_index(&mut self) {
        match self.index.fetch() {
            Ok(None) => return,
            Ok(Some(found)) => {
                self.group.pause_delivery(false);
                self.on_found(found);
            }
            Err(Lost) => return self.fail("the certification index was lost: restart the server".into()),
        }
        while !self.index.is_away()
            && let Some(output) = self.waiting.pop_front()
        {
            match output {
                Output::Deliver(delivery) => self.on_delivery(delivery),
                Output::Event(event) => self.on_event(event),
                Output::Send { .. } => {}
            }
        }
    }

    /// To the server, unless it is not to be told anything more.
    fn tell(&self, item: Item) {
        if !self.dropping {
            self.shared.queue.push(item);
        }
    }

    /// Without a server everything is done as soon as it is delivered.
    fn pass(&mut self, seqno: Seqno) {
        self.handed = seqno;
        self.shared.monitor.reset(seqno);
    }

    fn hand(&mut self, item: Item) {
        if self.arbitrates() {
            if let Some(seqno) = item.seqno() {
                self.pass(seqno);
            }
            return match item {
                Item::View { view, .. } if self.told => self.tell(Item::View { view, closes: None }),
                Item::View { .. } | Item::Apply(_) => {}
                other => self.tell(other),
            };
        }
        match &mut self.feed {
            Feed::Held(items) => items.push(item),
            Feed::Live => {
                if let Some(seqno) = item.seqno() {
                    if seqno <= self.handed {
                        return;
                    }
                    self.handed = seqno;
                }
                self.tell(item);
            }
        }
    }

    fn on_write_set(&mut self, index: LogIndex, seqno: Seqno, session: Session, number: u64, body: Bytes) {
        self.delivered = seqno;
        if body.len() >= LARGE_BODY {
            self.large.push(body.clone());
        }
        let delivered = Delivered { index, seqno, session, number, body };
        match WriteSet::parse(delivered.body.clone()) {
            Ok(write_set) => self.begin_work(Work::Judge { delivered, write_set }),
            Err(_) => {
                self.index.here().note_malformed(seqno);
                self.on_verdict(delivered, None, Verdict::malformed(seqno));
            }
        }
    }

    /// `ws`: unless the body is none.
    fn on_verdict(&mut self, delivered: Delivered, ws: Option<&WriteSet>, verdict: Verdict) {
        let Delivered { index, seqno, session, number, body } = delivered;
        let bytes = body.len();
        let head = ws.map_or_else(Head::default, |ws| *ws.head());
        let counters = &self.shared.counters;
        counters.certified(seqno, verdict.depends_on, head.last_seen, self.index.here().len());
        counters.received(bytes);
        self.flow.count(session.node == self.me.node);
        if session.node == self.me.node {
            self.note_session(session.number);
            if let Some(Pending::Owned { slot, .. }) = self.pending.remove(&(session.number, number)) {
                self.handed = self.handed.max(seqno);
                if let Some(ws) = ws {
                    self.shared.counters.replicated(bytes, ws.key_count(), ws.key_bytes(), ws.data_bytes());
                }
                if !verdict.ok() {
                    self.shared.counters.local_cert_failures.fetch_add(1, Relaxed);
                    self.note_conflict(seqno, &verdict);
                }
                slot.fill(Outcome::Ordered { seqno, ok: verdict.ok(), depends_on: verdict.depends_on, body });
                return;
            }
        }
        let depends_on = if verdict.ok() {
            let seen = if self.shared.settings.optimistic_pa() { Seqno::ZERO } else { head.last_seen };
            verdict.depends_on.max(seen.min(seqno.prev()))
        } else {
            seqno.prev()
        };
        let item = ApplyItem { seqno, index, depends_on, ok: verdict.ok(), body: Some(body) };
        self.hand(Item::Apply(item));
    }

    fn note_conflict(&self, seqno: Seqno, verdict: &Verdict) {
        if self.shared.log_conflicts() {
            self.shared.log(Level::Info, format!("certification conflict: {seqno} fails: {:?}", verdict.failure));
        }
    }

    fn on_view(&mut self, seqno: Seqno, mut view: View) {
        // By UUID, as the server reads them back from its own tables after a full copy: the position in this list is its
        // auto_increment_offset, and two orders would let two nodes draw the same numbers.
        view.members.sort_by_key(Member::uuid);
        self.delivered = seqno;
        self.index.here().note_view(seqno);
        self.index.here().retain_streams(|origin| view.members.iter().any(|m| m.uuid() == origin));
        self.transport.set_peers(&view.members);
        self.names.extend(view.members.iter().map(|m| (m.node, m.name.clone())));
        let effects = self.roster.apply_view(&view, seqno);
        let server_view = self.server_view(ViewStatus::Primary, Some(seqno), &view);
        let own = view.get(self.me.node).filter(|m| m.incarnation == self.me.incarnation);
        if let Some(me) = own {
            // Before the server is told of the view: scripts read the file as soon as the cluster size shows.
            self.shared.on_primary_view(&view, me, self.group.store().base().history);
        }
        let again = own.is_some() && !self.member;
        self.member |= own.is_some();
        // Whoever is told of the view can also read it.
        self.publish();
        if own.is_some() || !self.leaving {
            self.hand(Item::View { view: server_view, closes: Some(seqno) });
        }
        self.log_view(&view, seqno);
        if let Some(weight) = own.map(|m| m.weight) {
            self.on_own_view(seqno, &view, weight, again);
        }
        self.apply_effects(effects, seqno);
        self.publish();
        if self.member {
            if let Some(slot) = self.connected.take() {
                slot.fill(Ok(()));
            }
        }
    }

    fn on_own_view(&mut self, seqno: Seqno, view: &View, weight: Weight, again: bool) {
        self.non_primary_since = None;
        self.me.weight = weight;
        self.flow.set_members(view.members.iter().map(|m| m.node).collect());
        self.set_flow_options();
        self.weight_waiters.retain(|(wanted, slot)| {
            if *wanted == weight {
                slot.fill(true);
            }
            *wanted != weight
        });
        self.shared.monitor.set_last(None);
        if !self.told && self.half_done.is_none() {
            self.joined_at = seqno;
            self.begin_feed(seqno, view);
        } else if again {
            if self.feed.is_live() && self.roster.state(self.me.node) == Some(NodeState::Synced) {
                // The loss of the majority took "synced" from the server, but not from the member.
                self.tell(Item::Synced { at: seqno });
            }
            if let Some(request) = self.request.as_mut().filter(|r| r.donor.is_none()) {
                request.retry_at = Some(Instant::now());
            }
        }
    }

    fn log_view(&self, view: &View, seqno: Seqno) {
        let names: Vec<String> = view.members.iter().map(|m| m.name.clone()).collect();
        let component = texts::new_component(true, view.position(self.me.node), view.members.len());
        self.shared.log(Level::Info, format!("{component}: {} (TO: {seqno})", names.join(", ")));
    }

    /// The first own view: does the server continue from its own position, or does it need a full copy?
    fn begin_feed(&mut self, own_view: Seqno, view: &View) {
        self.told = true;
        if self.arbitrates() {
            self.feed = Feed::Live;
            let first = self.server_view(ViewStatus::Primary, Some(own_view), view);
            self.tell(Item::Connected(first.clone()));
            self.tell(Item::View { view: first, closes: None });
            return;
        }
        if let Some((history, position)) = self.position.filter(|(_, position)| *position >= own_view) {
            // What the group orders next would be taken for applied already (SAFETY 18).
            self.shared.log(
                Level::Warn,
                format!(
                    "the data are at {history}:{position}, beyond {own_view}, where the group goes on: it has lost its newest \
                     commits, and a full copy is needed here. If no node can give one, start the cluster anew from the node with \
                     the highest position: safe_to_bootstrap: 1 in its grastate.dat, then galera_new_cluster"
                ),
            );
            self.position = None;
        }
        match self.position {
            Some(_) if self.script && self.roster.ready_donor(self.me.node, &self.donor_list).is_ok() => {
                self.need_script(own_view, view);
            }
            Some((_, position)) => self.go_live(position, Some((own_view, view))),
            None if self.fallback.is_some_and(|at| at < own_view) && !self.roster.anyone_has_state() => {
                self.told = false;
                self.half_done = Some(HalfDone {
                    own_view,
                    view: view.clone(),
                    said: None,
                    explained: false,
                    looked: Instant::now(),
                });
            }
            None => self.need_copy(own_view, view),
        }
    }

    fn need_copy(&mut self, own_view: Seqno, view: &View) {
        let history = self.shared.history();
        self.shared.log(Level::Info, texts::state_transfer_required((history, Some(own_view)), (Uuid::NIL, None)));
        let connected = self.server_view(ViewStatus::Primary, Some(own_view), view);
        self.tell(Item::Connected(connected));
        self.tell(Item::SstRequest { data: true });
    }

    /// The log has all that this server missed, but not what a donor's script tells it. Without anybody who could run that now
    /// (all nodes were down) the server goes on without.
    fn need_script(&mut self, own_view: Seqno, view: &View) {
        self.shared
            .log(Level::Info, "wsrep_gtid_mode: asking a donor's script for wsrep_gtid_domain_id, not for data".into());
        let connected = self.server_view(ViewStatus::Primary, Some(own_view), view);
        self.tell(Item::Connected(connected));
        self.tell(Item::SstRequest { data: false });
    }

    /// With half done data: a full copy as soon as somebody has whole ones. If nobody has, and no voter is absent who might, one
    /// member goes on from its half done data and executes the statement again.
    fn step_half_done(&mut self) {
        let Some(waiting) = &self.half_done else { return };
        if self.roster.anyone_has_state() {
            if let Some(HalfDone { own_view, view, .. }) = self.half_done.take() {
                self.told = true;
                self.need_copy(own_view, &view);
            }
            return;
        }
        if waiting.looked.elapsed() > LOOK_FOR_STOP {
            if stop_signal::is_pending() {
                return self.shared.die("The server was told to stop while it waited for whole data.".into());
            }
            if let Some(waiting) = &mut self.half_done {
                waiting.looked = Instant::now();
            }
        }
        if self.half_done.as_ref().is_some_and(|waiting| waiting.said.is_some()) {
            return;
        }
        let said = if !self.roster.lacks_state(self.me.node) {
            let Some(position) = self.fallback else { return };
            self.propose_app(&AppMessage::HalfDone { position })
        } else if !self.roster.nobody_has_state() {
            return;
        } else {
            let present = self.roster.view();
            let absent: Vec<String> = self
                .group
                .status()
                .voters
                .voters
                .iter()
                .filter(|v| present.get(v.node).is_none())
                .map(|v| v.node.to_string())
                .collect();
            if absent.is_empty() {
                self.propose_app(&AppMessage::GoOnHalfDone)
            } else {
                if self.half_done.as_ref().is_some_and(|waiting| !waiting.explained) {
                    self.shared.log(
                        Level::Warn,
                        format!(
                            "a statement was cut off on all members that are here; waiting for those that may have whole data: \
                             {}. If they are lost for good, stop this server, set safe_to_bootstrap: 1 in its grastate.dat and \
                             start it with galera_new_cluster",
                            absent.join(", ")
                        ),
                    );
                }
                if let Some(waiting) = &mut self.half_done {
                    waiting.explained = true;
                }
                return;
            }
        };
        if let Some(waiting) = &mut self.half_done {
            waiting.said = said;
        }
        self.drain();
    }

    fn go_on_half_done(&mut self) {
        let (Some(HalfDone { own_view, view, .. }), Some(position)) = (self.half_done.take(), self.fallback) else {
            return;
        };
        self.shared.log(
            Level::Warn,
            format!(
                "a statement was cut off on all members: this one goes on from {position} and executes it again, the others copy \
                 from here"
            ),
        );
        self.told = true;
        self.position = Some((self.group.store().base().history, position));
        self.group.data_arrived();
        self.go_live(position, Some((own_view, &view)));
        self.publish();
    }

    /// Everything after `position` goes to the server from here on. With a view, the server is first told that it is
    /// connected: at that view when nothing comes before it, else at a private view at its own position, so that a
    /// server whose storage engine starts inside the view callback replays what it missed without a donor (SAFETY 20).
    fn go_live(&mut self, position: Seqno, connect: Option<(Seqno, &View)>) {
        let Feed::Held(mut items) = std::mem::replace(&mut self.feed, Feed::Live) else { return };
        self.shared.monitor.reset(position);
        self.shared.votes.forget(position);
        self.handed = position;
        self.floor = position;
        self.reported = position;
        if let Some((own_view, view)) = connect {
            if position.next() == own_view {
                let first = self.server_view(ViewStatus::Primary, Some(own_view), view);
                self.tell(Item::Connected(first));
            } else {
                let private = self.server_view(ViewStatus::Primary, Some(position), view);
                self.tell(Item::Connected(private.clone()));
                self.tell(Item::View { view: private, closes: None });
            }
        }
        if self.delivered.0.saturating_sub(position.0) > 1 {
            self.shared.log(Level::Info, texts::receiving_ist(position.next(), self.delivered));
        }
        self.catch_up = CatchUp::begin(position, self.delivered, Instant::now());
        self.shared.mark_running(self.group.store().base().history);
        while let Some(item) = items.pop() {
            self.hand(item);
        }
    }

    fn on_state_request(&mut self, request: Vec<u8>) {
        let words = request.strip_suffix(b"\0").unwrap_or(&request);
        if words == b"trivial" || words == b"none" || words.is_empty() {
            // The server says that it needs no data, or will get them by other means, or (empty) can run no script any more.
            let before = self.position.map_or(self.joined_at.prev(), |(_, own)| own);
            return self.on_state_received(Some(before));
        }
        self.request = Some(StateRequest { request, retry_at: Some(Instant::now()), donor: None });
    }

    fn on_state_received(&mut self, position: Option<Seqno>) {
        self.request = None;
        if self.feed.is_live() {
            self.shared.log(Level::Info, "a state transfer was reported to a node that waits for none: ignored".into());
            return;
        }
        let own = self.position.map(|(_, own)| own);
        match position {
            Some(position) if own.is_some_and(|own| own != position) => {
                self.shared.die(format!(
                    "The script of the donor brought position {position} to a server that needs no data."
                ));
            }
            Some(position) => {
                self.position = Some((self.group.store().base().history, position));
                self.group.data_arrived();
                self.go_live(position, None);
                self.publish();
            }
            None => self.shared.die("State transfer failed: the server has no usable data. Need to abort.".into()),
        }
    }

    fn on_app(&mut self, seqno: Seqno, session: Session, number: u64, body: &Bytes) {
        if session.node == self.me.node {
            self.note_session(session.number);
            if self.announced == Some((session.number, number)) {
                self.announced = None;
            }
            if let Some(waiting) = self.half_done.as_mut().filter(|w| w.said == Some((session.number, number))) {
                waiting.said = None;
            }
        }
        let Ok(message) = AppMessage::decode(body) else { return };
        let effects = self.roster.apply(session.node, message, seqno);
        // Whoever is told of the new state can also read it.
        self.publish();
        self.apply_effects(effects, seqno);
        if session.node == self.me.node {
            if let Some(PendingApp { slot: Some(slot), .. }) = self.pending_app.remove(&(session.number, number)) {
                slot.fill(true);
            }
        }
    }

    fn apply_effects(&mut self, effects: Vec<Effect>, seqno: Seqno) {
        for effect in effects {
            match effect {
                Effect::Note(text) => self.shared.log(Level::Info, text),
                Effect::Warn(text) => self.shared.log(Level::Warn, text),
                Effect::Shift { node, from, to } if node == self.me.node && self.member => {
                    self.shared.log(Level::Info, texts::shifting(from.name(), to.name(), Some(seqno)));
                    if to == NodeState::Synced && self.feed.is_live() {
                        self.tell(Item::Synced { at: seqno });
                    }
                    if to == NodeState::Joined {
                        // Counted from here on, so those who vote wait for this node too.
                        for seqno in self.roster.open_votes() {
                            self.on_vote_begun(seqno);
                        }
                    }
                }
                Effect::Shift { .. } => {}
                Effect::DonorChosen { joiner, donor, request, position } => {
                    // Not what an earlier incarnation of this node was asked for. A donor that has just lost its majority gives all
                    // the same: it is a member as far as the order knows, and the joiner waits for it.
                    let chosen = self.roster.view().get(donor).is_some_and(|m| m.uuid() == self.me.uuid());
                    if chosen && self.feed.is_live() && seqno >= self.handed {
                        self.shared.monitor.raise_barrier(seqno);
                        self.tell(Item::Donate { joiner, request, position, at: seqno });
                    }
                    if joiner == self.me.node {
                        if let Some(slot) = self.asked.take() {
                            self.request = None;
                            slot.fill(Ok(self.roster.label(donor)));
                        }
                        if let Some(r) = &mut self.request {
                            r.donor = Some(donor);
                        }
                    }
                }
                Effect::GoesOnHalfDone { node } if node == self.me.node => self.go_on_half_done(),
                Effect::GoesOnHalfDone { .. } => {}
                Effect::NoDonor { joiner, retry, reason } if joiner == self.me.node => {
                    if let Some(r) = self.request.as_mut().filter(|_| retry) {
                        r.retry_at = Some(Instant::now() + Duration::from_secs(1));
                    } else if let Some(slot) = self.asked.take() {
                        self.request = None;
                        slot.fill(Err(reason));
                    } else if self.request.is_some() {
                        self.shared.log(Level::Error, texts::request_failed(&reason));
                        self.shared.die(texts::NEVER_RECEIVE_STATE.into());
                    }
                }
                Effect::NoDonor { .. } => {}
                Effect::TransferDone { joiner, donor, ok } => {
                    if joiner == self.me.node && !ok && self.request.as_ref().is_some_and(|r| r.donor == Some(donor)) {
                        self.shared.log(Level::Info, format!("donor {} failed", self.roster.label(donor)));
                        self.shared.die(texts::NEVER_RECEIVE_STATE.into());
                    }
                }
                Effect::Cut(cut) => self.index.here().purge(cut),
                // An evicted member stays until the others do not need its vote any more; then it is told.
                Effect::Evictions => self.set_evicted(),
                Effect::VoteBegun { seqno } => self.on_vote_begun(seqno),
                Effect::VoteDone { .. } if self.arbitrates() => {}
                Effect::VoteDone { seqno, winner, .. } => {
                    // What lies below the floor came with the data, whatever the vote was.
                    let left = || if self.feed.is_live() { self.shared.monitor.left() } else { Seqno::ZERO };
                    if seqno > self.floor && self.shared.votes.decided(seqno, winner, left) {
                        self.shared.lost_vote(seqno);
                    }
                }
                Effect::VoteDismissed { seqno, losers } => {
                    self.shared.votes.dismissed(seqno, losers.contains(&self.me.node));
                }
            }
        }
    }

    fn set_evicted(&mut self) {
        let now = self.now();
        self.group.set_evicted(now, self.roster.evicted().iter().copied().collect());
    }

    fn on_vote_begun(&self, seqno: Seqno) {
        if self.member && self.feed.is_live() && !self.arbitrates() {
            self.shared.on_vote_begun(seqno);
        }
    }

    fn on_non_primary(&mut self, reachable: Vec<Member>) {
        if !self.member {
            return;
        }
        self.member = false;
        self.announced = None;
        if let Some(waiting) = &mut self.half_done {
            waiting.said = None;
        }
        self.non_primary_since = Some(Instant::now());
        self.flow.set_members(Vec::new());
        for (_, slot) in self.reads.drain() {
            slot.fill(None);
        }
        for (_, slot) in self.weight_waiters.drain(..) {
            slot.fill(false);
        }
        let own = reachable.iter().position(|m| m.node == self.me.node).unwrap_or(0);
        self.shared.log(Level::Info, texts::new_component(false, Some(own), reachable.len()));
        self.publish();
        if self.feed.is_live() {
            self.shared.monitor.set_last(Some(self.handed));
            let view = self.server_view(ViewStatus::NonPrimary, None, &View { number: 0, members: reachable });
            self.tell(Item::View { view, closes: None });
        }
    }

    // --- what depends on state rather than on one event --------------------------------------------------------------

    fn keep_house(&mut self) {
        if self.non_primary_since.is_some_and(|since| since.elapsed() > NON_PRIMARY_PATIENCE) {
            self.non_primary_since = None;
            self.give_up_waiting();
        }
        if self.connected.is_some()
            && let Some((since, reason)) = &self.unwelcome
            && since.elapsed() > self.unwelcome_max
        {
            let reason = format!("{reason}; nobody else formed the group within {:?}", self.unwelcome_max);
            return self.fail(reason);
        }
        if self.log_kept.elapsed() >= KEEP_LOG_EVERY {
            self.log_kept = Instant::now();
            self.keep_log();
        }
        self.tell_progress();
        if !self.member {
            return;
        }
        self.pay_owed();
        self.step_half_done();
        self.ask_for_state();
        self.announce();
        self.hurry();
        let left = self.shared.monitor.left();
        if self.feed.is_live() && !self.arbitrates() && left.0 >= self.reported.0 + REPORT_EVERY {
            self.reported = left;
            // A lost one is made good by the next.
            self.propose_app(&AppMessage::LastCommitted { seqno: left });
            self.drain();
        }
    }

    fn tell_progress(&mut self) {
        let Some(catch_up) = &mut self.catch_up else { return };
        let Some(progress) = catch_up.look(self.shared.monitor.left(), Instant::now()) else { return };
        self.shared.event("progress", progress.json());
        if progress.line {
            self.shared.log(Level::Info, texts::receiving_ist_progress(progress.done, progress.total));
        }
        if progress.done == progress.total {
            self.catch_up = None;
        }
    }

    /// Whoever orders sees to it that nobody is waited for without end. Only a proposal: what comes of it is decided where it
    /// is ordered, by all members alike. One that gets lost is repeated.
    fn hurry(&mut self) {
        if self.hurried.elapsed() < HURRY_EVERY {
            return;
        }
        self.hurried = Instant::now();
        let open = self.roster.open_votes();
        self.votes_since.retain(|seqno, _| open.contains(seqno));
        for seqno in &open {
            self.votes_since.entry(*seqno).or_insert_with(Instant::now);
        }
        if self.group.sequencer() != Some(self.me.node) {
            return;
        }
        let late: Vec<Seqno> =
            self.votes_since.iter().filter(|(_, since)| since.elapsed() > VOTE_PATIENCE).map(|(s, _)| *s).collect();
        for seqno in late {
            self.propose_app(&AppMessage::CloseVote { seqno });
        }
        if self.index.retained().is_some_and(|uses| uses > INDEX_KEYS_MAX) {
            for (node, seqno) in self.roster.laggards(LAG_MIN) {
                self.propose_app(&AppMessage::Lagging { node, seqno });
            }
        }
        self.drain();
    }

    /// No majority for long: who can be given a truthful answer gets it (SAFETY 22). Rollbacks and messages that must not get
    /// lost are repeated once it is certain that they were not ordered.
    fn give_up_waiting(&mut self) {
        if self.pending.is_empty() && self.pending_app.is_empty() {
            return;
        }
        let now = self.now();
        self.group.abandon_pending(now);
        self.announced = None;
        let impatient = |p: &Pending| matches!(p, Pending::Owned { patient: false, .. });
        let keys: Vec<_> = self.pending.iter().filter(|(_, p)| impatient(p)).map(|(key, _)| *key).collect();
        for key in keys {
            if let Some(Pending::Owned { slot, .. }) = self.pending.remove(&key) {
                self.abandon(&slot);
            }
        }
        let keys: Vec<_> = self.pending_app.iter().filter(|(_, p)| p.slot.is_some()).map(|(key, _)| *key).collect();
        for key in keys {
            if let Some(PendingApp { slot: Some(slot), .. }) = self.pending_app.remove(&key) {
                slot.fill(false);
            }
        }
        self.drain();
    }

    fn pay_owed(&mut self) {
        if self.owed.is_empty() || self.group.status().phase != Phase::Primary {
            return;
        }
        for owed in std::mem::take(&mut self.owed) {
            match owed {
                Owed::App(message) => self.propose_owed(message),
                Owed::Rollback(body) => self.propose_rollback(body),
            }
        }
        self.drain();
    }

    fn keep_log(&mut self) {
        let left = self.shared.monitor.left();
        let live = self.feed.is_live();
        let held_by_servers = self.group.held_by_servers();
        let held_by_members = self.group.held_by_members();
        let log_max = self.log_max;
        let log = self.group.store_mut();
        let mut result = Ok(());
        // Until the server's position is known nothing says what it will need.
        if live && log.wants_trim() {
            let mut keep_from = log.index_of(left.next()).unwrap_or(log.last().next());
            if log.excess() <= KEEP_FOR_MEMBERS_MAX {
                keep_from = keep_from.min(held_by_members.next());
            }
            let (all, some) = held_by_servers;
            if log_max.is_some() {
                keep_from = keep_from.min(all.next());
            }
            result = log.trim(Trim { keep_from, bytes_max: None }).map(drop);
            if let Some(bytes_max) = log_max.filter(|max| result.is_ok() && log.bytes_held() > *max) {
                // Never what no server has: with more weight than they, this member alone could have committed it.
                result = log.trim(Trim { keep_from: some.next(), bytes_max: Some(bytes_max) }).map(drop);
                let first = log.first();
                let told = std::mem::replace(&mut self.told_of_bound, first > all.next());
                if self.told_of_bound && !told {
                    self.shared.log(
                        Level::Warn,
                        format!(
                            "the log has reached its bound of {bytes_max} bytes and now begins at {first}: a server that has not \
                             acknowledged what was dropped can go on only with another server that has it"
                        ),
                    );
                }
            }
        }
        let log = self.group.store_mut();
        let removed = log.take_removed();
        if !removed.is_empty() {
            self.shared.drop_elsewhere(removed);
        }
        let unused: Vec<Bytes> = self.large.extract_if(.., |body| body.is_unique()).collect();
        if !unused.is_empty() {
            self.shared.drop_elsewhere(unused);
        }
        match (result, log.begin_spare()) {
            (Err(error), _) => return self.fail(error.to_string()),
            (Ok(()), Some(ticket)) => self.shared.prepare_space(ticket),
            (Ok(()), None) => {}
        }
        // In mode `process` nobody waits for it: a loss of power costs the last second and no more.
        self.begin_sync();
    }

    fn ask_for_state(&mut self) {
        let Some(request) = &mut self.request else { return };
        if request.retry_at.is_some_and(|at| at <= Instant::now()) {
            request.retry_at = None;
            let message = AppMessage::StateRequest {
                donors: self.donor_list.clone(),
                request: request.request.clone(),
                position: self.position.map(|(_, own)| own),
            };
            if self.propose_app(&message).is_none() {
                if let Some(r) = &mut self.request {
                    r.retry_at = Some(Instant::now() + Duration::from_millis(200));
                }
            }
            self.drain();
        }
    }

    /// Joined once the server has its state, synced once the queue is short.
    fn announce(&mut self) {
        if !self.settling() || self.announced.is_some() {
            return;
        }
        let message = match self.roster.state(self.me.node) {
            Some(NodeState::Primary | NodeState::Joiner) => AppMessage::Joined,
            Some(NodeState::Joined) if self.shared.queue.len() as u64 <= self.flow.limits().lower => AppMessage::Synced,
            _ => return,
        };
        self.announced = self.propose_app(&message);
        self.drain();
    }

    // --- flow control -----------------------------------------------------------------------------------------------------

    /// Looks at the backlog, does what flow control asks for, and sends what it lets pass.
    fn regulate(&mut self) {
        let now = self.now();
        let backlog = self.shared.queue.len() as u64;
        if backlog == 0 && self.held_back.is_empty() && self.flow.at_rest() {
            return self.flow.rest(now);
        }
        self.flow.observe(now, backlog, self.shared.monitor.left());
        let mark = self.flow.watch(now).map(|mark| mark as usize);
        if mark.is_some() || self.watching {
            self.watching = mark.is_some();
            if !self.shared.queue.watch(mark) {
                // It sank between the two looks.
                self.flow.observe(now, self.shared.queue.len() as u64, self.shared.monitor.left());
            }
        }
        let mut acted = false;
        while let Some(act) = self.flow.poll() {
            acted = true;
            self.on_flow(act);
        }
        if self.held_back.is_empty() && !acted {
            return;
        }
        self.release_held_back();
        self.drain();
    }

    fn on_flow(&mut self, act: Act) {
        let now = self.now();
        match act {
            Act::Signal(body) => self.group.signal(now, body),
            Act::Requested(stop) => self.shared.change_flow_figures(|f| f.request(stop)),
            Act::Received => self.shared.change_flow_figures(|f| f.received += 1),
            Act::Paused(paused) => self.shared.change_flow_figures(|f| f.pause(Instant::now(), paused)),
            Act::HeldUpBy { node, rate } => {
                let label = self.roster.label(node);
                self.shared.log(
                    Level::Info,
                    format!(
                        "flow control: {label} has more to apply than it can; the group may write {rate:.0} per second"
                    ),
                );
            }
            Act::GaveUp { patience } => {
                // A node that applies large transactions may give up again and again.
                if self.gave_up_told.is_none_or(|at| at.elapsed() >= TELL_AGAIN) {
                    self.gave_up_told = Some(Instant::now());
                    self.shared.log(
                        Level::Info,
                        format!(
                            "flow control: nothing was applied here for {patience:?} (a lock, a huge transaction, a full \
                             disk?): this node no longer slows the others, and lags until it gets on"
                        ),
                    );
                }
            }
        }
    }

    fn release_held_back(&mut self) {
        while !self.held_back.is_empty() {
            let now = self.now();
            if self.held_back.front().is_some_and(|h| !h.recalled() && !self.flow.admit(now)) {
                break;
            }
            let Some(held) = self.held_back.pop_front() else { break };
            if held.recalled() {
                held.slot.fill(Outcome::NotSent);
            } else {
                self.propose(held.body, held.patient, held.slot);
            }
        }
        self.shared.counters.held_back.store(self.held_back.len() as u64, Relaxed);
    }

    /// Who was aborted by an applier while held back lets go of its locks: the applier may be what everybody waits for.
    fn recall(&mut self) {
        self.held_back.retain(|held| {
            if held.recalled() {
                held.slot.fill(Outcome::NotSent);
            }
            !held.recalled()
        });
        self.shared.counters.held_back.store(self.held_back.len() as u64, Relaxed);
    }

    fn drop_held_back(&mut self) {
        for held in self.held_back.drain(..) {
            held.slot.fill(Outcome::NotSent);
        }
        self.shared.counters.held_back.store(0, Relaxed);
    }

    /// The options or the number of members may have changed.
    fn set_flow_options(&mut self) {
        let options = self.shared.settings.flow();
        self.flow.set_patience(options.patience);
        let state = if self.member { self.roster.state(self.me.node) } else { None };
        self.donors_count = options.donors_count;
        self.set_flow_counts(state);
        let members = self.roster.view().members.len();
        let limits = Limits::new(options.limit, options.factor, members, options.single_primary);
        if members > 0 {
            self.flow.set_limits(limits);
            self.shared.log(Level::Info, texts::flow_control_interval(limits.lower, limits.upper));
        }
    }

    fn set_flow_counts(&mut self, state: Option<NodeState>) {
        let counts = match state {
            Some(_) if self.arbitrates() => false,
            Some(NodeState::Synced | NodeState::Joined) => self.feed.is_live(),
            Some(NodeState::Donor) => self.feed.is_live() && self.donors_count,
            Some(NodeState::Primary | NodeState::Joiner) | None => false,
        };
        self.flow.set_counts(counts, self.shared.queue.len() as u64);
    }

    fn publish(&mut self) {
        let state = if self.member { self.roster.state(self.me.node) } else { None };
        self.set_flow_counts(state);
        // What decides; without the majority nobody does.
        let decides = if self.member { &self.roster.view().members[..] } else { &[] };
        let total: u32 = decides.iter().map(|m| u32::from(m.weight.0)).sum();
        self.shared.set_group_status(GroupStatus {
            member: self.member,
            state,
            receiving: !self.feed.is_live(),
            desyncs: self.roster.desyncs(self.me.node),
            evicted: self.roster.evicted().to_vec(),
            incoming: self.roster.view().members.iter().map(|m| m.incoming.clone()).collect(),
            weight: total,
            uuid: self.me.uuid(),
            segment: self.me.segment,
            first_seqno: self.group.store().base().seqno.next(),
        });
    }

    fn name(&self, node: NodeId) -> String {
        self.names.get(&node).map_or_else(|| node.to_string(), String::clone)
    }

    /// This node's part in the group.
    fn role(&self) -> &'static str {
        let order = self.group.status();
        if !self.member {
            "non-primary"
        } else if order.sequencer == Some(self.me.node) {
            "sequencer"
        } else if order.voters.contains(self.me.node) {
            "voter"
        } else {
            "member"
        }
    }

    fn picture(&self) -> Picture {
        let order = self.group.status();
        let name = |node: NodeId| self.name(node);
        Picture {
            term: order.term.0,
            term_changes: order.term_changes,
            sequencer: order.sequencer.map_or_else(String::new, name),
            voters: order.voters.voters.iter().map(|v| (name(v.node), v.weight.0)).collect(),
            durability: order.durability,
            log_first: self.group.store().first(),
            log_last: order.last,
            log_durable: order.durable,
            log_committed: order.committed,
            read_requests: order.read_requests,
            slow: self.flow.slow().into_iter().map(|s| (name(s.node), s.rate, s.backlog)).collect(),
            role: self.role(),
            flow_gave_up: self.flow.gave_up(),
            silent: self.silent.iter().map(|n| name(*n)).collect(),
            silences: self.silences,
            commit_cut: self.roster.cut(),
            unknown_outcomes: self.shared.counters.unknown_outcomes.load(Relaxed),
        }
    }

    /// Whoever waits for a write set is answered.
    fn abandon_all(&mut self) {
        for (_, pending) in std::mem::take(&mut self.pending) {
            if let Pending::Owned { slot, .. } = pending {
                self.abandon(&slot);
            }
        }
        self.drop_held_back();
    }

    /// The outcome of what was sent is left open (SAFETY 22).
    fn abandon(&self, slot: &Slot<Outcome>) {
        self.shared.counters.unknown_outcomes.fetch_add(1, Relaxed);
        slot.fill(Outcome::Abandoned);
    }

    fn server_view(&self, status: ViewStatus, seqno: Option<Seqno>, view: &View) -> ServerView {
        let own_uuid = self.me.uuid();
        let members: Vec<ViewMember> = view
            .members
            .iter()
            .map(|m| ViewMember { uuid: m.uuid(), name: m.name.clone(), incoming: m.incoming.clone() })
            .collect();
        ServerView {
            history: self.shared.history(),
            seqno: seqno.or(Some(self.shared.monitor.left())),
            number: (status == ViewStatus::Primary).then_some(view.number),
            status,
            capabilities: self.shared.capabilities,
            own: members.iter().position(|m| m.uuid == own_uuid),
            members,
            protocol: self.shared.protocol,
        }
    }
}

fn unreadable(error: &DecodeError) -> String {
    format!("the group's state could not be read: {error}")
}

/// Answers a command that nobody will carry out.
pub fn refuse(command: Command) {
    match command {
        Command::Propose { slot, .. } => slot.fill(Outcome::NotSent),
        Command::App { slot: Some(slot), .. } => slot.fill(false),
        Command::Read { slot } => slot.fill(None),
        Command::Weight { slot, .. } => slot.fill(false),
        Command::Describe { slot } => slot.fill(None),
        Command::AskDonor { slot, .. } => slot.fill(Err("not connected to a group".into())),
        Command::App { slot: None, .. }
        | Command::ProposeUnowned { .. }
        | Command::Recall
        | Command::BacklogSank
        | Command::FlowOptions
        | Command::Synced(_)
        | Command::SpareReady(_)
        | Command::IndexBack
        | Command::StateRequest { .. }
        | Command::StateReceived { .. }
        | Command::ForcePrimary
        | Command::Durability(_)
        | Command::Configure(_)
        | Command::Isolate(_)
        | Command::Tls(_)
        | Command::Admit { .. }
        | Command::GiveUp { .. }
        | Command::Leave => {}
    }
}
