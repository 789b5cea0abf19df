//! The façade: one member's decisions.
//!
//! Inputs are what the order delivers ([`Replicator::handle_reset`], [`handle_view`](Replicator::handle_view),
//! [`handle_ordered`](Replicator::handle_ordered), [`handle_message`](Replicator::handle_message)), what the order says beside that
//! (`handle_non_primary`, `handle_diverged`, `handle_found`), what the server says (`handle_state_*`), and time ([`Replicator::handle_tick`]).
//! Effects are values that [`Replicator::poll_effect`] yields; they are carried out in order, all of them before the next input.
//!
//! The driver keeps what the server is not to be given yet ([`Offer::Keep`]), in the order in which it came, and hands it
//! over at [`Effect::GoLive`].

mod inputs;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use trireme_surface::texts;
use trireme_types::{
    DecodeError, Incarnation, Level, LogIndex, Member, NodeId, Reader, Seqno, Timestamp, Uuid, View, VoterSet, Writer,
};

use crate::failures::Failures;
use crate::feed::{Copying, Feed, Flaw, HalfDone, Idle, Offer, Position, Request, Stage, Start, is_trivial};
use crate::message::AppMessage;
use crate::mutant::Mutant;
use crate::retention::Growth;
use crate::roster::{self, DECIDED_MAX, NodeState, Roster};
use crate::votes::{ErrorClass, OUTCOMES_MAX};

/// Write sets between two reports of the committed position (Galera's 127).
const REPORT_EVERY: u64 = 128;
/// How often members that are waited for are looked at.
const HURRY_EVERY: Duration = Duration::from_secs(1);
/// How long an inconsistency vote waits for a majority.
const VOTE_PATIENCE: Duration = Duration::from_secs(10);
/// A member counts as lagging when another one has committed so much more. Several reports.
const LAG_MIN: u64 = 8 * REPORT_EVERY;
/// Before a donor is asked for again when there is none, and when the order did not take the request.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const SEND_AGAIN: Duration = Duration::from_millis(200);

/// This member's vote on a write set that it was done with in an earlier life.
fn vote_of_the_past(seqno: Seqno, class: ErrorClass) -> AppMessage {
    let text = if class == ErrorClass::SUCCESS { "Success" } else { "failed before this node came back" };
    AppMessage::Vote { seqno, class, text: text.into() }
}

/// Alike on all members. A simulated cluster, which runs for less long and writes less, has them smaller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Write sets between two reports of the committed position.
    pub report_every: u64,
    /// A member counts as lagging when another one has committed so much more.
    pub lag_min: u64,
    /// How long an inconsistency vote waits for a majority.
    pub vote_patience: Duration,
    /// How many decided votes the members remember.
    pub decided_max: usize,
    /// How many outcomes a server keeps of votes on what it has not applied yet.
    pub outcomes_max: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            report_every: REPORT_EVERY,
            lag_min: LAG_MIN,
            vote_patience: VOTE_PATIENCE,
            decided_max: DECIDED_MAX,
            outcomes_max: OUTCOMES_MAX,
        }
    }
}

/// By the reader's action, as in the server's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    Error,
    Warn,
    Info,
}

/// How the server learns that it is connected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Connect {
    /// At this view, which nothing comes before.
    AtView { seqno: Seqno, view: View },
    /// At its own position: a private view, so that a server whose storage engine starts inside the view callback replays what it missed
    /// without a donor (rule 20).
    AtPosition { seqno: Seqno, view: View },
}

/// Why no server carries out a request.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoDonor {
    #[error("not connected to a group")]
    NotConnected,
    #[error("the group was left before a server had been chosen")]
    Left,
    #[error("only an arbitrator asks a server on behalf of others")]
    NotAnArbitrator,
    /// None of those that it names can, now or later; as the log says it.
    #[error("{0}")]
    Unreachable(String),
}

/// The consequences of an input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    Log(Severity, String),
    /// The same about something that was ordered: of interest when it is new.
    News(Severity, String),
    /// To be ordered. When the order does not take it: [`Replicator::handle_refused`]. A request for a copy that it took, and that will not be
    /// ordered: [`Replicator::handle_lost`].
    Propose(AppMessage),
    /// An arbitrator is connected.
    ConnectNobody {
        seqno: Seqno,
        view: View,
    },
    /// The server is connected, and has to say which copy it wants; `data`: it needs one.
    AskServer {
        seqno: Seqno,
        view: View,
        data: bool,
    },
    /// Everything beyond `position` goes to the server from here on, what was kept back first. `connect`: unless it was told before.
    GoLive {
        position: Position,
        connect: Option<Connect>,
    },
    /// The same for a server that was fed before: its commit order stands where it is. Before what closes `seqno` it is told `view`, without
    /// itself: an earlier incarnation of it is gone.
    Resume {
        position: Position,
        seqno: Seqno,
        view: View,
    },
    /// In commit order, behind what was handed so far.
    Synced {
        at: Seqno,
    },
    Donate {
        joiner: NodeId,
        request: Vec<u8>,
        position: Option<Seqno>,
        at: Seqno,
    },
    /// A full copy is asked for: the data may be replaced from here on.
    DataAtRisk,
    /// It was refused: they are as they were.
    DataSafe,
    /// All servers here lack data, and these voters are missing.
    NobodyHasData {
        absent: Vec<NodeId>,
    },
    /// For an arbitrator: which server carries out the request.
    Answer(Result<String, NoDonor>),
    /// All that was delivered has to be on this node's disk; [`Replicator::handle_log_synced`] says that it is.
    SyncLog,
    /// The data that the log goes on from are here.
    DataArrived,
    /// The server cannot go on: it ends, saying this.
    Die(String),
    /// This member cannot go on in this group.
    Fail(String),
    /// The same, and its data are not the group's.
    Inconsistent(String),
    /// Certification forgets what lies at or below.
    Purge(Seqno),
    /// [`Roster::evicted`] has changed.
    Evictions,
    VoteBegun {
        seqno: Seqno,
    },
    /// `applied`: what the server has applied counts; its position is not known otherwise.
    VoteDone {
        seqno: Seqno,
        winner: ErrorClass,
        applied: bool,
    },
    /// The same from a state, which is never a repetition of what an earlier life has done. It may have been told in this one.
    ResultKnown {
        seqno: Seqno,
        winner: ErrorClass,
    },
    /// `lost`: this member's error is among those that nobody confirmed, and its data are those in which it failed.
    VoteDismissed {
        seqno: Seqno,
        lost: bool,
    },
    /// To be on disk before anything that follows: with it this member is started next time, and with what fails meanwhile.
    Remember(Failures),
    /// The data hold at `seqno`, since they were found here, something else than the group has decided: they are not the
    /// group's. `held`: how it went here.
    Contradicted {
        seqno: Seqno,
        held: ErrorClass,
    },
}

/// The state around a member when time passes.
#[derive(Clone, Copy)]
pub struct Sight<'a> {
    /// Up to where the server has committed in memory.
    pub left: Seqno,
    /// The write sets that wait to be applied.
    pub backlog: u64,
    /// A member with no more than this is synced.
    pub backlog_small: u64,
    /// This member orders.
    pub orders: bool,
    /// The certification index takes so much memory that a member that lags is not to keep keys in it.
    pub index_large: bool,
    /// Asked for by a member that waits for whole data.
    pub voters: &'a dyn Fn() -> VoterSet,
}

/// Whether the server takes clients, as far as it was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Clients {
    /// It was never told that it is synced.
    NotYet,
    /// It was, before the majority was lost.
    Refused,
    Taken,
}

/// A vote without a result.
#[derive(Debug)]
struct VoteWatch {
    seen: Timestamp,
    /// It may be dismissed, and no end was proposed since.
    since: Timestamp,
    /// Its end was proposed: those that have failed are about to leave.
    ends: bool,
    /// The log says for whom it waits.
    told: bool,
}

impl VoteWatch {
    fn new(now: Timestamp) -> VoteWatch {
        VoteWatch { seen: now, since: now, ends: false, told: false }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Replicator {
    /// As it is named in views, with this incarnation.
    me: Member,
    /// `wsrep_sst_donor`.
    donors: String,
    bounds: Bounds,
    /// All members, as ordered so far. Moved by each view, message and level (`on_view`, `on_message`); set anew by a state (`on_reset`).
    roster: Roster,
    /// The server's side, for the life of this member. Its kind changes in `begin_feed`, `begin_outvoted`, `await_copy`,
    /// `go_live`, `resume` and `end`.
    feed: Feed,
    /// The failures in the data that were found at the start. Of a server that goes on beside a new incarnation of its member also those
    /// beyond the floor. Votes of this life settle the failures that are not here.
    failures: Option<Failures>,
    /// The data up to here came as a copy in this life. Zero: none came.
    copied: Seqno,
    /// Where delivery began: what lies below no log of ours has.
    base: Position,
    /// The newest fork that the order has come by; the history's own id before any.
    branch: Uuid,
    /// Seqno of the newest delivery. Set by `on_ordered` and `on_view`, and by `on_reset`.
    delivered: Seqno,
    /// Index of the newest delivery: what `is_repeated` is asked about. Set by `on_ordered`, `on_view` and `on_message`. Not by `on_reset`: a
    /// state is no delivery, and the next delivery sets this before `is_repeated` is asked.
    delivered_index: LogIndex,
    /// An earlier life of this member has done what follows from deliveries up to here.
    heard_upto: LogIndex,
    /// The newest primary view names this incarnation.
    member: bool,
    /// The own leave was asked for: the view without this member is not for the server, which will hear a final one.
    leaving: bool,
    /// Those that views here have named: an absent one of them is not waited for, as it has no data.
    arbitrators: BTreeSet<NodeId>,
    /// Does the server take clients? Set where it is told so.
    clients: Clients,
    /// A Joined or Synced of ours is on its way.
    announced: bool,
    /// A NoData of ours is on its way.
    disclaimed: bool,
    /// The member that the server was asked to give a copy, until the end of that is ordered.
    giving: Option<NodeId>,
    /// A DonorDone for a copy that this server was never asked for is on its way.
    disowned: bool,
    /// The position is to be told however near the last one it is: what an older session left unsaid is known to be lost only when
    /// something of the new one is ordered (rule 23), and nobody else may have anything to say.
    speak: bool,
    /// The newest committed position that the others were told.
    reported: Seqno,
    /// The votes that are open, as this member watches them. Looked at by a timer; a result takes its vote away, a state or a lost majority all.
    votes: BTreeMap<Seqno, VoteWatch>,
    /// Members that lost a vote and have not left yet, in the life in which they did: their data are not the group's.
    outvoted: Vec<(NodeId, Incarnation)>,
    /// When those that are waited for were last looked at.
    hurried: Timestamp,
    /// Not polled yet, in order. Everybody appends.
    effects: VecDeque<Effect>,
    #[cfg(feature = "mutants")]
    pub(crate) mutant: Option<Mutant>,
}

impl Replicator {
    /// `me`: as it is named in views, with this incarnation.
    pub fn new(me: &Member, start: Start, donors: String, bounds: Bounds) -> Replicator {
        let (heard_upto, failures, clients) = match &start {
            Start::Return { heard_upto, failures, synced, .. } => {
                let clients = if *synced { Clients::Refused } else { Clients::NotYet };
                (*heard_upto, failures.clone(), clients)
            }
            Start::Server { failures, .. } => (LogIndex::ZERO, failures.clone(), Clients::NotYet),
            Start::Nobody => (LogIndex::ZERO, None, Clients::NotYet),
        };
        Replicator {
            me: me.clone(),
            donors,
            bounds,
            roster: Roster::remembering(bounds.decided_max),
            feed: Feed::new(start),
            failures,
            copied: Seqno::ZERO,
            base: Position { history: Uuid::NIL, seqno: Seqno::ZERO },
            branch: Uuid::NIL,
            delivered: Seqno::ZERO,
            delivered_index: LogIndex::ZERO,
            heard_upto,
            member: false,
            leaving: false,
            arbitrators: BTreeSet::new(),
            clients,
            announced: false,
            disclaimed: false,
            giving: None,
            disowned: false,
            speak: false,
            reported: Seqno::ZERO,
            votes: BTreeMap::new(),
            outvoted: Vec::new(),
            hurried: Timestamp::ZERO,
            effects: VecDeque::new(),
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    pub fn delivered(&self) -> Seqno {
        self.delivered
    }

    /// Index of the newest delivery, in whichever life of this member.
    pub fn heard_upto(&self) -> LogIndex {
        self.delivered_index.max(self.heard_upto)
    }

    /// The newest primary view names this incarnation, and no loss of the majority came after it.
    pub fn is_member(&self) -> bool {
        self.member
    }

    pub fn is_live(&self) -> bool {
        self.feed.is_live()
    }

    /// There is a server with good data that goes on whatever becomes of the group.
    pub fn serves(&self) -> bool {
        matches!(self.feed, Feed::Live { .. } | Feed::Returning { .. })
    }

    /// The server was told that it is connected: it has to be told of the end.
    pub fn is_connected(&self) -> bool {
        match &self.feed {
            Feed::Nobody { connected, .. } | Feed::Ended { connected, .. } => *connected,
            Feed::Idle(_) | Feed::HalfDone(_) => false,
            Feed::Returning { .. } | Feed::Copying(_) | Feed::Live { .. } => true,
        }
    }

    /// Has the server data, or is there none behind this node?
    pub fn has_data(&self) -> bool {
        match &self.feed {
            Feed::Idle(idle) => idle.position.is_some(),
            Feed::Copying(copying) => copying.own.is_some(),
            Feed::Nobody { .. } | Feed::Returning { .. } | Feed::HalfDone(_) | Feed::Live { .. } => true,
            Feed::Ended { .. } => false,
        }
    }

    /// The server waits for its first data, and has been given nothing yet.
    pub fn is_unfed(&self) -> bool {
        matches!(self.feed, Feed::Idle(_) | Feed::HalfDone(_) | Feed::Copying(_))
    }

    /// It does so without a copy under way, perhaps for ever, and cannot be heard meanwhile.
    pub fn is_stranded(&self) -> bool {
        let rests = |request: &Request| request.in_flight == 0 && matches!(request.stage, Stage::AskAt(_));
        match &self.feed {
            Feed::Idle(_) | Feed::HalfDone(_) => true,
            Feed::Copying(copying) => copying.told.is_some() || copying.request.as_ref().is_some_and(rests),
            Feed::Nobody { .. } | Feed::Returning { .. } | Feed::Live { .. } | Feed::Ended { .. } => false,
        }
    }

    /// A full copy was asked for and is not here.
    pub fn is_requesting(&self) -> bool {
        match &self.feed {
            Feed::Nobody { request, .. } | Feed::Copying(Copying { request, .. }) => request.is_some(),
            Feed::Idle(_) | Feed::Returning { .. } | Feed::HalfDone(_) | Feed::Live { .. } | Feed::Ended { .. } => {
                false
            }
        }
    }

    /// Member with its state, on the way to synced.
    pub fn is_settling(&self) -> bool {
        self.is_fed() && !matches!(self.roster.state(self.me.node), Some(NodeState::Synced | NodeState::Donor))
    }

    /// Highest seqno that the server's side was given (queued, or owned by a client), or what it will go on from.
    pub fn handed(&self) -> Seqno {
        match &self.feed {
            Feed::Nobody { .. } => self.delivered,
            Feed::Idle(_) | Feed::HalfDone(_) | Feed::Copying(_) => Seqno::ZERO,
            Feed::Returning { position, .. } => position.seqno,
            Feed::Live { handed, .. } | Feed::Ended { handed, .. } => *handed,
        }
    }

    /// How this member would be started again beside a server that runs on. `failures`: the server's, those of this life among them. Nobody may
    /// have heard of these.
    pub fn to_return(&self, history: Uuid, failures: Option<Failures>) -> Start {
        let floor = match &self.feed {
            Feed::Live { floor, .. } | Feed::Returning { floor, .. } => *floor,
            Feed::Nobody { .. } => return Start::Nobody,
            Feed::Idle(_) | Feed::HalfDone(_) | Feed::Copying(_) | Feed::Ended { .. } => Seqno::ZERO,
        };
        let position = Position { history, seqno: self.handed() };
        let synced = self.clients != Clients::NotYet;
        Start::Return { position, floor, failures, heard_upto: self.heard_upto(), synced }
    }

    fn has_server(&self) -> bool {
        !matches!(self.feed, Feed::Nobody { .. })
    }

    fn log(&mut self, severity: Severity, text: impl Into<String>) {
        self.effects.push_back(Effect::Log(severity, text.into()));
    }

    fn emit(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// This member cannot go on, as `effect` says.
    fn end(&mut self, effect: Effect) {
        self.feed = Feed::Ended { connected: self.is_connected(), handed: self.handed() };
        self.emit(effect);
    }

    // --- what the order delivers ------------------------------------------------------------------------------------

    fn on_reset<'a>(
        &mut self,
        base: Position,
        branch: Uuid,
        level: Level,
        state: &'a [u8],
    ) -> Result<&'a [u8], DecodeError> {
        let (roster, rest) = if state.is_empty() {
            (Roster::default(), state)
        } else {
            let mut reader = Reader::new(state);
            let roster = Roster::decode(&mut reader)?;
            (roster, &state[state.len() - reader.remaining()..])
        };
        let was_synced = self.is_synced();
        self.roster = roster;
        self.meet_arbitrators();
        self.roster.set_decided_max(self.bounds.decided_max);
        self.on_level(level);
        self.base = base;
        self.branch = branch;
        self.delivered = base.seqno;
        self.votes.clear();
        self.emit(Effect::Evictions);
        let fits = |p: &Position| p.history == base.history && p.seqno >= base.seqno;
        let gap = match &mut self.feed {
            Feed::Nobody { .. } | Feed::Ended { .. } => false,
            Feed::Idle(idle) => {
                // The own log may begin behind the end of the data. A peer may give another one in its place, which begins before that end.
                idle.position = idle.started_at.filter(fits);
                false
            }
            Feed::Returning { position, .. } => !fits(position),
            Feed::HalfDone(half_done) => {
                if half_done.position < base.seqno {
                    // The entries behind these data are in no log here.
                    self.need_copy();
                }
                false
            }
            // With a position the server was told that it needs no data. Without one the copy is compared when it is here.
            Feed::Copying(Copying { own, .. }) => {
                own.is_some_and(|seqno| !fits(&Position { history: base.history, seqno }))
            }
            Feed::Live { handed, .. } => *handed < base.seqno,
        };
        self.settle_request();
        // The part that is skipped may hold what it has said of itself. That may be ordered twice, and counts once.
        self.announced = false;
        self.disclaimed = false;
        self.disowned = false;
        if self.roster.served_by(&self.me).is_none() {
            self.giving = None;
        }
        if gap {
            self.end(Effect::Fail(
                "what this node missed is no longer kept by any member: restart it to get a full copy".into(),
            ));
        } else if !was_synced && self.is_synced() {
            self.tell_synced(base.seqno);
        }
        // The part that is skipped may hold them.
        let results: Vec<(Seqno, ErrorClass)> = self.roster.results().collect();
        self.hear_results(results);
        self.answer_open_votes();
        Ok(rest)
    }

    fn on_engine_awaited(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        if !state.is_empty() {
            let roster = Roster::decode(&mut Reader::new(state))?;
            self.hear_results(roster.results().collect());
        }
        Ok(())
    }

    /// These came with a state, and some of them may have been heard before.
    fn hear_results(&mut self, results: Vec<(Seqno, ErrorClass)>) {
        let (Feed::Live { floor, .. } | Feed::Returning { floor, .. }) = self.feed else { return };
        for (seqno, winner) in results {
            if seqno > floor {
                self.emit(Effect::ResultKnown { seqno, winner });
            } else {
                self.compare(seqno, winner);
            }
        }
    }

    /// Fed, and in the state in which the server takes clients.
    fn is_synced(&self) -> bool {
        self.is_fed() && self.roster.state(self.me.node) == Some(NodeState::Synced)
    }

    /// A member whose server gets what is ordered.
    fn is_fed(&self) -> bool {
        self.member && self.feed.is_live()
    }

    /// How many desyncs of this server the group counts, once this is a member with its state.
    pub fn counted_desyncs(&self) -> Option<u32> {
        let me = self.me.node;
        let has_state = self.roster.state(me).is_some_and(|state| state >= NodeState::Donor);
        let counted = self.roster.desyncs(me).saturating_sub(u32::from(self.roster.served_by(&self.me).is_some()));
        (self.is_fed() && has_state).then_some(counted)
    }

    fn tell_synced(&mut self, at: Seqno) {
        self.clients = Clients::Taken;
        self.emit(Effect::Synced { at });
    }

    /// The others know what became of the own request in the part of the history that a new base skips.
    fn settle_request(&mut self) {
        let gives = self.roster.donor_of(&self.me);
        let arrived = self.has_arrived();
        let stays = |donor| self.roster.view().get(donor).is_some();
        let Some(request) = self.feed.request_mut() else { return };
        match (request.stage, gives) {
            (Stage::Said, Some(donor)) => self.on_given(donor),
            // It was ordered after all, before a loss of the majority. Nobody is asked again, and whoever gives is waited for.
            (Stage::AskAt(_), Some(donor)) if arrived || request.said_in.is_some() => self.on_given(donor),
            (Stage::Said | Stage::AskAt(_), None) if arrived && request.said_in.is_some() => self.refuse_copy(None),
            // It was refused, or is still to be ordered. It may be ordered twice, and is served once.
            (Stage::Said, None) => request.stage = Stage::AskAt(Timestamp::ZERO),
            // That donor was done before the base, and has not failed: the copy is here. It is a member of this branch.
            (Stage::Given { donor, branch }, gives) if gives != Some(donor) && arrived && stays(donor) => {
                request.stage = Stage::Done { branch };
                self.take_copy();
            }
            // If it has not failed.
            (Stage::Given { donor, .. }, gives) if gives != Some(donor) => self.refuse_copy(None),
            (Stage::Given { .. } | Stage::Done { .. } | Stage::AskAt(_), _) => {}
        }
    }

    /// The state that every member has here, for a snapshot.
    pub fn encode(&self, w: &mut Writer) {
        self.roster.encode(w);
    }

    fn on_ordered(&mut self, index: LogIndex, seqno: Seqno, owned: bool) -> Offer {
        self.delivered = seqno;
        self.delivered_index = index;
        let offer = self.feed.offer(seqno);
        if owned { Offer::Skip } else { offer }
    }

    fn on_view(&mut self, now: Timestamp, index: LogIndex, seqno: Seqno, view: &View) -> Offer {
        self.delivered = seqno;
        self.delivered_index = index;
        let effects = self.roster.apply_view(view);
        self.meet_arbitrators();
        let own = view.get(self.me.node).is_some_and(|m| m.uuid() == self.me.uuid());
        let again = own && !self.member;
        self.member |= own;
        let offer = if own || !self.leaving { self.feed.offer(seqno) } else { Offer::Skip };
        if own {
            self.on_own_view(seqno, view, again);
        }
        self.on_roster(now, effects, seqno);
        offer
    }

    fn meet_arbitrators(&mut self) {
        for m in &self.roster.view().members {
            if m.kind.is_arbitrator() {
                self.arbitrators.insert(m.node);
            } else {
                // A server was put on the directory.
                self.arbitrators.remove(&m.node);
            }
        }
    }

    fn on_own_view(&mut self, seqno: Seqno, view: &View, again: bool) {
        match &mut self.feed {
            Feed::Idle(_) => return self.begin_feed(seqno, view),
            Feed::Returning { position, floor } => {
                let (position, floor) = (*position, *floor);
                return self.resume(position, floor, seqno, view);
            }
            Feed::Nobody { connected, .. } if !*connected => {
                *connected = true;
                return self.emit(Effect::ConnectNobody { seqno, view: view.clone() });
            }
            Feed::Nobody { .. } | Feed::HalfDone(_) | Feed::Copying(_) | Feed::Live { .. } | Feed::Ended { .. } => {}
        }
        if !again {
            return;
        }
        if self.is_synced() {
            // The loss of the majority took "synced" from the server, but not from the member.
            self.tell_synced(seqno);
        }
        self.answer_open_votes();
    }

    /// Votes may have begun while nobody could hear this member, or in a part of the history that a new base skips. Without its word the
    /// one that failed alone would be right. It says it again where it has voted: an error of an earlier life may be a success in this one.
    fn answer_open_votes(&mut self) {
        if self.is(Mutant::OpenVotesIgnored) {
            return;
        }
        for seqno in self.roster.open_votes() {
            self.on_vote_begun(seqno);
        }
    }

    fn on_message(&mut self, now: Timestamp, index: LogIndex, seqno: Seqno, from: NodeId, message: AppMessage) {
        self.delivered_index = index;
        if from == self.me.node {
            self.take_back(&message);
            if let AppMessage::DonorDone { joiner, .. } = &message {
                self.giving = self.giving.filter(|to| to != joiner);
            }
        }
        let effects = self.roster.apply(from, message, seqno);
        self.on_roster(now, effects, seqno);
    }

    fn on_level(&mut self, level: Level) {
        let level = if self.is(Mutant::NewcomersUnasked) { level.min(Level::FIRST) } else { level };
        self.roster.set_level(level);
    }

    fn on_branch(&mut self, branch: Uuid) {
        self.branch = branch;
    }

    fn on_roster(&mut self, now: Timestamp, effects: Vec<roster::Effect>, seqno: Seqno) {
        for effect in effects {
            match effect {
                roster::Effect::Note(text) => self.emit(Effect::News(Severity::Info, text)),
                roster::Effect::Warn(text) => self.emit(Effect::News(Severity::Warn, text)),
                roster::Effect::Shift { node, from, to } if node == self.me.node && self.member => {
                    self.log(Severity::Info, texts::shifting(from.name(), to.name(), Some(seqno)));
                    if to == NodeState::Synced && self.feed.is_live() {
                        self.tell_synced(seqno);
                    }
                    if from < NodeState::Donor && to >= NodeState::Donor {
                        // Counted from here on, so those who vote wait for this node too.
                        self.answer_open_votes();
                    }
                }
                roster::Effect::Shift { .. } => {}
                roster::Effect::DonorChosen { joiner, donor, request, position } => {
                    self.on_donor_chosen(joiner, donor, request, position, seqno);
                }
                roster::Effect::GoesOnHalfDone { node } if node == self.me.node => self.go_on_half_done(),
                roster::Effect::GoesOnHalfDone { .. } => self.on_overtaken(seqno),
                roster::Effect::NoDonor { joiner, retry, reason } if joiner == self.me.node => {
                    self.on_no_donor(now, retry, reason);
                }
                roster::Effect::NoDonor { .. } => {}
                roster::Effect::TransferDone { joiner, donor, ok } => {
                    if joiner == self.me.node {
                        self.on_transfer_done(donor, ok);
                    }
                }
                roster::Effect::Cut(cut) => self.emit(Effect::Purge(cut)),
                // An evicted member stays until the others do not need its vote any more; then it is told.
                roster::Effect::Evictions => self.emit(Effect::Evictions),
                roster::Effect::VoteBegun { seqno } => {
                    // After a dismissal it has its whole time once more.
                    self.votes.remove(&seqno);
                    self.on_vote_begun(seqno);
                }
                roster::Effect::VoteDone { seqno, winner, losers } => {
                    self.note_outvoted(&losers);
                    match &self.feed {
                        Feed::Nobody { .. } | Feed::Ended { .. } => {}
                        // A write set below the floor came with the data, and its result is compared with what is known of them.
                        Feed::Live { floor, .. } | Feed::Returning { floor, .. } => {
                            if seqno > *floor {
                                self.emit(Effect::VoteDone { seqno, winner, applied: true });
                            } else {
                                self.compare(seqno, winner);
                            }
                        }
                        Feed::Idle(_) | Feed::HalfDone(_) | Feed::Copying(_) => {
                            self.emit(Effect::VoteDone { seqno, winner, applied: false });
                        }
                    }
                }
                roster::Effect::VoteDismissed { seqno, losers } => {
                    self.note_outvoted(&losers);
                    let lost = losers.contains(&self.me.node);
                    match &self.feed {
                        // Nobody has confirmed an error of an earlier life.
                        Feed::Live { floor, .. } | Feed::Returning { floor, .. } if seqno <= *floor => {
                            if lost && self.held(seqno).is_some_and(|class| class != ErrorClass::SUCCESS) {
                                self.compare(seqno, ErrorClass::SUCCESS);
                            }
                        }
                        Feed::Live { .. } | Feed::Returning { .. } | Feed::Ended { .. } => {
                            self.emit(Effect::VoteDismissed { seqno, lost });
                        }
                        // The data in which it failed are gone.
                        Feed::Nobody { .. } | Feed::Idle(_) | Feed::HalfDone(_) | Feed::Copying(_) => {
                            self.emit(Effect::VoteDismissed { seqno, lost: false });
                        }
                    }
                }
            }
        }
    }

    fn note_outvoted(&mut self, losers: &[NodeId]) {
        let lives = losers.iter().filter_map(|node| self.roster.view().get(*node)).map(|m| (m.node, m.incarnation));
        self.outvoted.extend(lives);
        let view = self.roster.view();
        self.outvoted.retain(|(node, life)| view.get(*node).is_some_and(|m| m.incarnation == *life));
    }

    /// An earlier life of this member has done what follows from the newest delivery, as far as its server has applied.
    pub fn is_repeated(&self) -> bool {
        self.delivered_index <= self.heard_upto
    }

    fn on_vote_begun(&mut self, seqno: Seqno) {
        match self.feed {
            Feed::Live { floor, .. } if self.member && seqno <= floor => {
                let held = self.held(seqno);
                let class = held.unwrap_or(ErrorClass::SUCCESS);
                // A vote of an earlier life is another's if a copy is here since. Without notes nothing is known that contradicts it.
                let stands = |said| said == class || held.is_none() && seqno > self.copied;
                let said = self.roster.voted(self.me.node, seqno).is_some_and(stands);
                // One vote may have been enough.
                if !said && self.roster.decided(seqno).is_none() {
                    self.emit(Effect::Propose(vote_of_the_past(seqno, class)));
                }
            }
            Feed::Live { .. } if self.member => self.emit(Effect::VoteBegun { seqno }),
            Feed::Nobody { .. }
            | Feed::Idle(_)
            | Feed::Returning { .. }
            | Feed::HalfDone(_)
            | Feed::Copying(_)
            | Feed::Live { .. }
            | Feed::Ended { .. } => {}
        }
    }

    /// How `seqno`, which was in the data when they were found, went here, as far as that is known.
    fn held(&self, seqno: Seqno) -> Option<ErrorClass> {
        self.failures.as_ref().and_then(|f| f.held(seqno))
    }

    /// The vote on `seqno`, which was in the data when they were found, had this result.
    fn compare(&mut self, seqno: Seqno, winner: ErrorClass) {
        if self.is(Mutant::ContradictionIgnored) {
            return;
        }
        if let Some(held) = self.held(seqno).filter(|held| *held != winner) {
            self.emit(Effect::Contradicted { seqno, held });
        }
    }

    /// A result that data at this position contradict.
    fn contradicted(&self, position: Seqno) -> Option<Seqno> {
        let failures = self.failures.as_ref().filter(|_| !self.is(Mutant::ContradictionIgnored))?;
        self.roster.results().find(|(s, winner)| *s <= position && failures.contradict(*s, *winner)).map(|(s, _)| s)
    }

    /// Votes once more on each failure of an earlier life that has no result known here: nobody may have heard of it, and
    /// the data lack it.
    fn vote_again(&mut self) {
        if !matches!(self.feed, Feed::Live { .. }) {
            return;
        }
        if self.outvoted().is_some() {
            return; // It has no say behind that, and is about to end.
        }
        let me = self.me.node;
        let again: Vec<(Seqno, ErrorClass)> =
            self.unsettled().filter(|(seqno, _)| self.roster.voted(me, *seqno).is_none()).collect();
        for (seqno, class) in again {
            self.emit(Effect::Propose(vote_of_the_past(seqno, class)));
        }
    }

    /// A failure of an earlier life that the group has another result for.
    fn outvoted(&self) -> Option<(Seqno, ErrorClass)> {
        let lost = |(seqno, class): &(Seqno, ErrorClass)| self.roster.decided(*seqno).is_some_and(|w| w != *class);
        self.failures.iter().flat_map(Failures::iter).find(lost)
    }

    /// The failures of an earlier life that have no result.
    fn unsettled(&self) -> impl Iterator<Item = (Seqno, ErrorClass)> {
        self.failures.iter().flat_map(Failures::iter).filter(|(seqno, _)| !self.roster.is_settled(*seqno))
    }

    /// This member has failed at `seqno` and has voted, and its word is in no open vote and on its way no more: is the vote over without a result? A
    /// state skips the end of it.
    pub fn is_dismissed(&self, seqno: Seqno) -> bool {
        self.roster.voted(self.me.node, seqno).is_none() && self.roster.decided(seqno).is_none()
    }

    /// The group has not decided yet whether these data are its own.
    pub fn awaits_result(&self) -> bool {
        self.unsettled().next().is_some()
    }

    fn on_donor_chosen(
        &mut self,
        joiner: NodeId,
        donor: NodeId,
        request: Vec<u8>,
        position: Option<Seqno>,
        seqno: Seqno,
    ) {
        // Not what an earlier incarnation of this node was asked for. A donor that has just lost its majority gives all the same: it is a
        // member as far as the order knows, and the joiner waits for it.
        let chosen = self.roster.view().get(donor).is_some_and(|m| m.uuid() == self.me.uuid());
        if chosen && matches!(&self.feed, Feed::Live { handed, .. } if seqno >= *handed) {
            self.giving = Some(joiner);
            self.emit(Effect::Donate { joiner, request, position, at: seqno });
        }
        if joiner == self.me.node {
            self.on_given(donor);
        }
    }

    fn on_given(&mut self, donor: NodeId) {
        let branch = self.branch;
        match &mut self.feed {
            Feed::Nobody { request, .. } => {
                if request.take().is_some() {
                    let label = self.roster.label(donor);
                    self.emit(Effect::Answer(Ok(label)));
                }
            }
            Feed::Copying(copying) => {
                // One that was said twice is ordered twice: the first donor counts.
                if let Some(request) = &mut copying.request
                    && matches!(request.stage, Stage::AskAt(_) | Stage::Said)
                {
                    request.stage = Stage::Given { donor, branch };
                }
            }
            Feed::Idle(_) | Feed::Returning { .. } | Feed::HalfDone(_) | Feed::Live { .. } | Feed::Ended { .. } => {}
        }
    }

    fn on_transfer_done(&mut self, donor: NodeId, ok: bool) {
        let Some(request) = self.feed.request_mut() else { return };
        let Stage::Given { donor: giver, branch } = request.stage else { return };
        if giver != donor {
            return;
        }
        if ok {
            request.stage = Stage::Done { branch };
            return self.take_copy();
        }
        self.log(Severity::Info, format!("donor {} failed", self.roster.label(donor)));
        self.end(Effect::Die(texts::NEVER_RECEIVE_STATE.into()));
    }

    fn on_no_donor(&mut self, now: Timestamp, retry: bool, reason: String) {
        let Some(request) = self.feed.request_mut() else { return };
        if matches!(request.stage, Stage::Given { .. } | Stage::Done { .. }) {
            return; // Said twice: the first one was granted.
        }
        if retry {
            request.stage = Stage::AskAt(now.after(ASK_AGAIN));
            // Nobody will send anything, unless for what was said later.
            self.note_answered();
            return self.take_copy();
        }
        if let Feed::Nobody { request, .. } = &mut self.feed {
            *request = None;
            self.emit(Effect::Answer(Err(NoDonor::Unreachable(reason))));
        } else {
            self.log(Severity::Error, texts::request_failed(&reason));
            self.end(Effect::Die(texts::NEVER_RECEIVE_STATE.into()));
        }
    }

    // --- what else the order says -----------------------------------------------------------------------------------

    fn on_non_primary(&mut self) -> bool {
        let was = std::mem::replace(&mut self.member, false);
        if self.clients == Clients::Taken {
            self.clients = Clients::Refused;
        }
        // Nobody could answer meanwhile: an open vote has its whole time once more.
        self.votes.clear();
        self.on_abandoned();
        was
    }

    fn on_leave(&mut self) {
        self.leaving = true;
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    fn on_abandoned(&mut self) {
        self.announced = false;
        self.disclaimed = false;
        self.disowned = false;
        self.speak = true;
        if let Feed::HalfDone(half_done) = &mut self.feed {
            half_done.said = false;
        }
        if let Some(request) = self.feed.request_mut().filter(|r| r.stage == Stage::Said) {
            // It may be ordered twice, and is served once.
            request.stage = Stage::AskAt(Timestamp::ZERO);
        }
    }

    fn on_found(&mut self, history: Uuid) {
        if let Feed::Idle(idle) = &mut self.feed {
            idle.position = Some(Position { history, seqno: Seqno::ZERO });
            idle.started_at = idle.position;
        }
    }

    fn on_diverged(&mut self) {
        // A node that starts is made good by itself; one that serves has to be looked at.
        let severity = if matches!(self.feed, Feed::Live { .. }) { Severity::Warn } else { Severity::Info };
        if self.has_server() {
            self.log(severity, "local data are not the group's history: a full copy is needed");
        }
        let served = match &mut self.feed {
            // Its log is replaced, and that is all there is.
            Feed::Nobody { .. } | Feed::Ended { .. } => return,
            Feed::Idle(idle) => {
                *idle = Idle { script: idle.script, position: None, started_at: None, fallback: None };
                false
            }
            Feed::HalfDone(_) => {
                self.need_copy();
                false
            }
            // With data the server was told that it needs none; and a donor may be writing.
            Feed::Copying(Copying { own, request, .. }) => own.is_some() || request.is_some(),
            Feed::Returning { .. } | Feed::Live { .. } => true,
        };
        if served {
            self.end(Effect::Inconsistent(
                "the group went on without this node's last commits; restart it to get a full copy".into(),
            ));
        }
    }

    fn on_refused(&mut self, now: Timestamp, message: &AppMessage) {
        self.take_back(message);
        if !matches!(message, AppMessage::StateRequest { .. }) {
            return;
        }
        self.ask_later(now);
        self.take_copy();
    }

    fn on_lost(&mut self, now: Timestamp, message: &AppMessage) {
        self.take_back(message);
        if !matches!(message, AppMessage::StateRequest { .. }) {
            return;
        }
        // A newer one may be on its way.
        if self.feed.request_mut().is_some_and(|r| r.in_flight == 0) {
            self.ask_later(now);
        }
        if matches!(&self.feed, Feed::Copying(Copying { told: Some(_), .. })) {
            self.note_answered();
        }
        self.take_copy();
    }

    fn ask_later(&mut self, now: Timestamp) {
        if let Some(request) = self.feed.request_mut().filter(|r| r.stage == Stage::Said) {
            request.stage = Stage::AskAt(now.after(SEND_AGAIN));
        }
    }

    /// A message of this member is not on its way any more: it was ordered, or never will be.
    fn take_back(&mut self, message: &AppMessage) {
        match message {
            AppMessage::Joined | AppMessage::Synced => self.announced = false,
            AppMessage::DonorDone { .. } => self.disowned = false,
            AppMessage::NoData => self.disclaimed = false,
            AppMessage::HalfDone { .. } | AppMessage::GoOnHalfDone => {
                if let Feed::HalfDone(half_done) = &mut self.feed {
                    half_done.said = false;
                }
            }
            AppMessage::StateRequest { request: bytes, .. } => {
                // An arbitrator may have been asked for another one since.
                if let Some(request) = self.feed.request_mut().filter(|r| r.bytes == *bytes) {
                    request.in_flight = request.in_flight.saturating_sub(1);
                }
            }
            // Nothing here waits for them. A member that needs one says it again.
            AppMessage::Desync
            | AppMessage::Resync
            | AppMessage::LastCommitted { .. }
            | AppMessage::Vote { .. }
            | AppMessage::Evict { .. }
            | AppMessage::Lagging { .. }
            | AppMessage::CloseVote { .. } => {}
        }
    }

    // --- how the server begins --------------------------------------------------------------------------------------

    /// The first own view: does the server continue from its own position, or does it need a full copy?
    fn begin_feed(&mut self, own_view: Seqno, view: &View) {
        let Feed::Idle(idle) = &mut self.feed else { return };
        if let Some(Position { history, seqno }) = idle.position.take_if(|p| p.seqno >= own_view) {
            // The group's next entries would be taken for applied already (rule 18).
            idle.started_at = None;
            self.log(
                Severity::Warn,
                format!(
                    "the data are at {history}:{seqno}, beyond {own_view}, where the group goes on: it has lost its newest \
                     commits, and a full copy is needed here. If no node can give one, start the cluster anew from the node with \
                     the highest position: safe_to_bootstrap: 1 in its grastate.dat, then galera_new_cluster"
                ),
            );
        }
        let Feed::Idle(Idle { position, fallback, script, .. }) = self.feed else { return };
        let fallback = fallback.filter(|(at, _)| *at < own_view && *at >= self.base.seqno);
        if let Some(position) = position {
            self.failures = Some(Failures::of_data_at(self.failures.as_ref(), position));
            if let Some(voted) = self.contradicted(position.seqno) {
                return self.begin_outvoted(position.seqno, voted, own_view, view);
            }
        }
        match (position, fallback) {
            // The log has all that this server missed, but not what a donor's script tells it. Without anybody who could run that now (all
            // nodes were down) the server goes on without.
            (Some(position), _) if script && self.roster.ready_donor(self.me.node, &self.donors).is_ok() => {
                self.log(
                    Severity::Info,
                    "wsrep_gtid_mode: asking a donor's script for wsrep_gtid_domain_id, not for data",
                );
                self.await_copy(own_view, view, Some(position.seqno));
            }
            (Some(position), _) => self.go_live(position, Some((own_view, view))),
            (None, Some((position, flaw))) if !self.roster.anyone_has_state() => {
                self.feed = Feed::HalfDone(HalfDone::new(flaw, position, own_view, view.clone()));
            }
            (None, _) => {
                self.say_copy_needed(own_view);
                self.await_copy(own_view, view, None);
            }
        }
    }

    /// The group has decided that `voted` went otherwise than in these data. They are gone on with only if nobody has others.
    fn begin_outvoted(&mut self, position: Seqno, voted: Seqno, own_view: Seqno, view: &View) {
        self.log(
            Severity::Warn,
            format!(
                "the data here contradict what the group decided about write set {voted} while this node was away: a full copy is needed. Find \
                 out who wrote with wsrep_on=OFF or sql_log_bin=0, here or on the others"
            ),
        );
        self.feed = Feed::HalfDone(HalfDone::new(Flaw::Outvoted(voted), position, own_view, view.clone()));
        if self.roster.anyone_has_state() {
            self.need_copy();
        }
    }

    fn say_copy_needed(&mut self, own_view: Seqno) {
        let group = (self.base.history, Some(own_view));
        self.log(Severity::Info, texts::state_transfer_required(group, (Uuid::NIL, None)));
    }

    /// Somebody has whole data, or what is here is of no use.
    fn need_copy(&mut self) {
        let Feed::HalfDone(HalfDone { own_view, view, .. }) = &self.feed else { return };
        let (own_view, view) = (*own_view, view.clone());
        self.say_copy_needed(own_view);
        self.await_copy(own_view, &view, None);
    }

    fn await_copy(&mut self, own_view: Seqno, view: &View, own: Option<Seqno>) {
        self.feed = Feed::Copying(Copying { joined_at: own_view, own, request: None, arrived: None, told: None });
        self.emit(Effect::AskServer { seqno: own_view, view: view.clone(), data: own.is_none() });
        // The server may take long to say what it wants.
        self.disclaim();
    }

    /// Says that nothing of use is here, until that is ordered. A view without this member makes all forget it. A vote of others would wait for an
    /// answer that cannot come before the copy, and the copy, where the donor stands still at that write set, for the vote.
    fn disclaim(&mut self) {
        let lacks = matches!(&self.feed, Feed::Copying(Copying { own: None, .. }));
        let unknown =
            self.roster.state(self.me.node) == Some(NodeState::Primary) && !self.roster.lacks_state(self.me.node);
        if lacks && unknown && self.roster.waits_for_all() {
            self.say_no_data();
        }
    }

    fn say_no_data(&mut self) {
        if !std::mem::replace(&mut self.disclaimed, true) {
            self.emit(Effect::Propose(AppMessage::NoData));
        }
    }

    /// Everything after `position` goes to the server from here on.
    fn go_live(&mut self, position: Position, connect: Option<(Seqno, &View)>) {
        let connect = connect.map(|(own_view, view)| {
            let view = view.clone();
            if position.seqno.next() == own_view {
                Connect::AtView { seqno: own_view, view }
            } else {
                Connect::AtPosition { seqno: position.seqno, view }
            }
        });
        self.feed = Feed::Live { handed: self.delivered.max(position.seqno), floor: position.seqno };
        self.reported = position.seqno;
        let failures = Failures::of_data_at(self.failures.as_ref(), position);
        self.failures = Some(failures.clone());
        self.emit(Effect::Remember(failures));
        self.emit(Effect::GoLive { position, connect });
        // Decided while a script brought something beside the data.
        if let Some(voted) = self.contradicted(position.seqno)
            && let Some(held) = self.held(voted)
        {
            self.emit(Effect::Contradicted { seqno: voted, held });
        }
    }

    fn resume(&mut self, position: Position, floor: Seqno, own_view: Seqno, view: &View) {
        if position.seqno >= own_view {
            self.end(Effect::Fail("the running server cannot take a full copy: restart it".into()));
            return;
        }
        // An earlier incarnation is gone. The others have rolled back what it streamed, and the server does it when it sees
        // a view without itself; after the loss of all sequencers the history has none.
        let me = self.me.node;
        let members = view.members.iter().filter(|m| m.node != me).cloned().collect();
        let others = View { members, ..*view };
        self.feed = Feed::Live { handed: self.delivered.max(position.seqno), floor };
        self.reported = position.seqno;
        self.emit(Effect::Resume { position, seqno: own_view, view: others });
    }

    /// While this member was away, another one went on from data with a flaw; that was ordered behind `at`. No log says what
    /// it did to them, so data from before are not the group's (rule 26). They are gone on with only if nobody has others.
    fn on_overtaken(&mut self, at: Seqno) {
        let history = self.base.history;
        if self.is(Mutant::OvertakenTrusted) {
            return;
        }
        match &mut self.feed {
            Feed::Idle(idle) => {
                let Some(own) = idle.position.take_if(|own| own.history == history && own.seqno < at) else { return };
                idle.fallback = Some((own.seqno, Flaw::Overtaken));
                self.log(
                    Severity::Info,
                    format!(
                        "the data here are at {}; before {at} another member went on from data in which a statement was cut off, so a full copy of \
                         those is needed",
                        own.seqno
                    ),
                );
            }
            // It has executed the statement as the log has it.
            Feed::Live { floor: own, .. }
            | Feed::Returning { floor: own, .. }
            | Feed::Copying(Copying { own: Some(own), .. })
                if *own < at =>
            {
                self.end(Effect::Inconsistent(
                    "while this node was away another member went on from data in which a statement was cut off; restart it to get a full copy"
                        .into(),
                ));
            }
            Feed::Nobody { .. }
            | Feed::Returning { .. }
            | Feed::HalfDone(_)
            | Feed::Copying(_)
            | Feed::Live { .. }
            | Feed::Ended { .. } => {}
        }
    }

    fn go_on_half_done(&mut self) {
        let Feed::HalfDone(half_done) = &mut self.feed else { return };
        half_done.chosen = true;
        let (flaw, seqno) = (half_done.flaw, half_done.position);
        let text = match flaw {
            Flaw::CutOff => format!(
                "a statement was cut off on all members: this one goes on from {seqno} and executes it again, the others copy from here"
            ),
            Flaw::Overtaken => format!(
                "nobody has the data that the group went on from: this member goes on from {seqno} with those it has, the others copy from here"
            ),
            Flaw::Outvoted(voted) => format!(
                "nobody has data in which write set {voted} went as the group decided: this member goes on from {seqno} with those it has, the \
                 others copy from here"
            ),
        };
        self.log(Severity::Warn, text);
        // From here on nothing but the log tells that older data are not the group's.
        self.emit(Effect::SyncLog);
    }

    /// The answer to [`Effect::SyncLog`]. Without it nothing is gone on with.
    pub fn handle_log_synced(&mut self) {
        let Feed::HalfDone(HalfDone { chosen: true, flaw, position, own_view, view, .. }) = &self.feed else { return };
        let (flaw, seqno, own_view, view) = (*flaw, *position, *own_view, view.clone());
        match flaw {
            Flaw::CutOff | Flaw::Overtaken => {}
            // From here on they are the group's.
            Flaw::Outvoted(_) => self.failures = None,
        }
        self.emit(Effect::DataArrived);
        self.go_live(Position { history: self.base.history, seqno }, Some((own_view, &view)));
    }

    // --- what the server says ---------------------------------------------------------------------------------------

    fn on_state_request(&mut self, now: Timestamp, bytes: Vec<u8>) {
        let Feed::Copying(copying) = &mut self.feed else {
            return self.log(Severity::Info, "a full copy was asked for by a server that needs none: ignored");
        };
        if is_trivial(&bytes) {
            let before = copying.own.unwrap_or(copying.joined_at.prev());
            return self.on_state_received(Some(before));
        }
        copying.request = Some(Request::new(bytes, now));
    }

    fn on_ask_donor(&mut self, now: Timestamp, bytes: Vec<u8>) {
        match &mut self.feed {
            Feed::Nobody { request, .. } => *request = Some(Request::new(bytes, now)),
            Feed::Idle(_)
            | Feed::Returning { .. }
            | Feed::HalfDone(_)
            | Feed::Copying(_)
            | Feed::Live { .. }
            | Feed::Ended { .. } => {
                self.emit(Effect::Answer(Err(NoDonor::NotAnArbitrator)));
            }
        }
    }

    fn on_state_received(&mut self, position: Option<Seqno>) {
        let Feed::Copying(copying) = &mut self.feed else {
            return self.log(Severity::Info, "a state transfer was reported to a node that waits for none: ignored");
        };
        copying.arrived = position;
        if position.is_none() {
            return self
                .end(Effect::Die("State transfer failed: the server has no usable data. Need to abort.".into()));
        }
        self.take_copy();
    }

    /// The copy is here, or the donor is done. It takes both: the position of a copy does not tell of which branch it is.
    fn take_copy(&mut self) {
        let Feed::Copying(Copying { own, request, arrived: Some(seqno), .. }) = &self.feed else { return };
        let (own, seqno) = (*own, *seqno);
        let forked = request.as_ref().is_some_and(|r| r.is_forked(self.branch));
        // Its own data are not the donor's.
        let done = own.is_some() || request.as_ref().is_none_or(Request::is_done);
        let in_vain = request.as_ref().is_some_and(Request::is_in_vain);
        if own.is_some_and(|own| own != seqno) {
            self.end(Effect::Die(format!(
                "The script of the donor brought position {seqno} to a server that needs no data."
            )));
        } else if (seqno < self.base.seqno || forked) && !self.is(Mutant::CopyUnchecked) {
            self.refuse_copy(Some(seqno));
        } else if done || self.is(Mutant::CopyUnchecked) {
            if own.is_none() {
                // Its failures are known where it comes from.
                self.failures = None;
                self.copied = seqno;
            }
            self.emit(Effect::DataArrived);
            self.go_live(Position { history: self.base.history, seqno }, None);
        } else if in_vain {
            self.end(Effect::Die(
                "A full copy is here, and nothing that was ordered on this side of the group says who gave it. Start the server again, and it asks \
                 for another copy."
                    .into(),
            ));
        } else {
            self.log(
                Severity::Info,
                "The full copy is here. It is taken once the group has ordered that its donor is done.",
            );
        }
    }

    /// `end`: where the copy ends, unless the server has not said that it is here.
    fn refuse_copy(&mut self, end: Option<Seqno>) {
        let what = end.map_or_else(
            || "The donor is done with the full copy".into(),
            |end| format!("The full copy ends at {end}"),
        );
        let base = self.base.seqno;
        self.end(Effect::Die(format!(
            "{what}, but this node's write-set log has begun anew after {base} meanwhile: what lies between is kept by nobody here. Start the \
             server again, and it asks for another copy."
        )));
    }

    fn on_no_room(&mut self, growth: Growth) {
        if self.is(Mutant::RoomIgnored) {
            return;
        }
        match &self.feed {
            Feed::Copying(_) | Feed::HalfDone(_) => {}
            Feed::Nobody { .. } | Feed::Idle(_) | Feed::Returning { .. } | Feed::Live { .. } | Feed::Ended { .. } => {
                return;
            }
        }
        let Growth { held, free, .. } = growth;
        self.end(Effect::Die(format!(
            "The write-set log holds {held} bytes and only {free} are free on its disk. Nothing of it can be dropped before the full copy is here, so \
             this node stops before the disk is full. Free space, or put gcache.dir on a larger file system, and start the server again. If the log \
             itself takes the space, remove all files named trireme.*.galera.cache first: the node joins as a new member."
        )));
    }

    // --- time ---------------------------------------------------------------------------------------------------------

    fn on_tick(&mut self, now: Timestamp, sight: Sight<'_>) {
        if !self.member {
            return;
        }
        self.step_half_done(&sight);
        self.ask_for_state(now, &sight);
        self.disclaim();
        self.announce(&sight);
        self.take_clients_again();
        self.disown();
        self.hurry(now, &sight);
        self.report(sight.left);
    }

    /// With data that have a flaw: a full copy as soon as somebody has whole ones. If nobody has, and no voter is absent who might, one
    /// member goes on from its own. A statement that was cut off it executes again.
    fn step_half_done(&mut self, sight: &Sight<'_>) {
        let early = self.is(Mutant::GoesOnEarly);
        let Feed::HalfDone(half_done) = &mut self.feed else { return };
        if self.roster.anyone_has_state() {
            return self.need_copy();
        }
        if half_done.said {
            return;
        }
        if !self.roster.lacks_state(self.me.node) {
            half_done.said = true;
            let position = half_done.position;
            return self.emit(Effect::Propose(AppMessage::HalfDone { position }));
        }
        if !self.roster.nobody_has_state() {
            return;
        }
        let absent = self.absent_with_data(sight);
        let Feed::HalfDone(half_done) = &mut self.feed else { return };
        if absent.is_empty() || early {
            half_done.said = true;
            self.emit(Effect::Propose(AppMessage::GoOnHalfDone));
        } else if !std::mem::replace(&mut half_done.explained, true) {
            let what = match half_done.flaw {
                Flaw::CutOff => "a statement was cut off on all members that are here".to_owned(),
                Flaw::Overtaken => "no member that is here has the data that the group went on from".to_owned(),
                Flaw::Outvoted(voted) => {
                    format!("no member that is here has data in which write set {voted} went as the group decided")
                }
            };
            self.log(
                Severity::Warn,
                format!(
                    "{what}; waiting for those that may have whole data: {}. If they are \
                     lost for good, stop this server, set safe_to_bootstrap: 1 in its grastate.dat and start it with galera_new_cluster",
                    absent.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ")
                ),
            );
        }
    }

    /// The voters that are not here and may have data.
    fn absent_with_data(&self, sight: &Sight<'_>) -> Vec<NodeId> {
        let present = self.roster.view();
        let may = |node: &NodeId| present.get(*node).is_none() && !self.arbitrators.contains(node);
        (sight.voters)().voters.iter().map(|v| v.node).filter(may).collect()
    }

    /// The server says that a copy is here.
    fn has_arrived(&self) -> bool {
        matches!(self.feed, Feed::Copying(Copying { arrived: Some(_), .. }))
    }

    /// A full copy of data is awaited, not only a script's answer.
    fn needs_data(&self) -> bool {
        matches!(self.feed, Feed::Copying(Copying { own: None, .. }))
    }

    /// Nobody is here who could be asked for data, or all have as little as this one.
    fn asks_in_vain(&self) -> bool {
        let me = self.me.node;
        let alone = !self.roster.view().members.iter().any(|m| m.node != me && m.kind.has_state());
        self.needs_data() && (alone || self.roster.lacks_state(me) && self.roster.nobody_has_state())
    }

    /// Says, once for each set of missing voters, that nobody here has data. A member that asked all the same would be
    /// refused without end.
    fn tell_nobody_has_data(&mut self, sight: &Sight<'_>) {
        let absent = self.absent_with_data(sight);
        let Feed::Copying(copying) = &mut self.feed else { return };
        if copying.told.as_ref() != Some(&absent) {
            copying.told = Some(absent.clone());
            // They count as at risk since the server has prepared for a copy. Nobody will send one, unless for what was said before.
            self.note_answered();
            self.emit(Effect::NobodyHasData { absent });
        }
        self.speak_again();
    }

    /// A former request is known to be lost only when something of the new session is ordered.
    fn speak_again(&mut self) {
        let waits = self.needs_data() && self.feed.request_mut().is_some_and(|r| r.in_flight > 0);
        if waits && self.roster.waits_for_all() && std::mem::take(&mut self.speak) {
            // All builds of this group level know it.
            self.say_no_data();
        }
    }

    /// The data are as they were, once nobody can give in answer to what was said.
    fn note_answered(&mut self) {
        let branch = self.branch;
        if self.feed.request_mut().is_some_and(|r| r.is_answered(branch)) && self.needs_data() && !self.has_arrived() {
            self.emit(Effect::DataSafe);
        }
    }

    fn ask_for_state(&mut self, now: Timestamp, sight: &Sight<'_>) {
        let waits = |r: &mut Request| matches!(r.stage, Stage::AskAt(_));
        if !self.feed.request_mut().is_some_and(waits) {
            return;
        }
        if self.has_arrived() {
            // Another donor would overwrite it. A request that was said before is waited for.
            return self.speak_again();
        }
        if self.asks_in_vain() {
            return self.tell_nobody_has_data(sight);
        }
        if let Feed::Copying(copying) = &mut self.feed {
            copying.told = None;
        }
        let needs_data = self.needs_data();
        let own = match &self.feed {
            Feed::Copying(copying) => copying.own,
            Feed::Nobody { .. }
            | Feed::Idle(_)
            | Feed::Returning { .. }
            | Feed::HalfDone(_)
            | Feed::Live { .. }
            | Feed::Ended { .. } => None,
        };
        let Some(request) = self.feed.request_mut() else { return };
        match request.stage {
            Stage::AskAt(at) if at <= now => {
                request.stage = Stage::Said;
                request.in_flight += 1;
                request.said_in.get_or_insert(self.branch);
                let request = request.bytes.clone();
                let message = AppMessage::StateRequest { donors: self.donors.clone(), request, position: own };
                if needs_data {
                    self.emit(Effect::DataAtRisk);
                }
                self.emit(Effect::Propose(message));
            }
            Stage::AskAt(_) | Stage::Said | Stage::Given { .. } | Stage::Done { .. } => {}
        }
    }

    /// Joined once the server has its state, synced once the queue is short.
    fn announce(&mut self, sight: &Sight<'_>) {
        if !self.is_settling() || self.announced {
            return;
        }
        let message = match self.roster.state(self.me.node) {
            Some(NodeState::Primary | NodeState::Joiner) => AppMessage::Joined,
            // Nobody reads here, nor copies from here, what may turn out to be wrong.
            Some(NodeState::Joined) if sight.backlog <= sight.backlog_small && !self.awaits_result() => {
                AppMessage::Synced
            }
            Some(NodeState::Joined | NodeState::Donor | NodeState::Synced) | None => return,
        };
        self.announced = true;
        self.emit(Effect::Propose(message));
    }

    /// A server that desynced while it took clients does so after a loss of the majority as well: "synced" is not ordered before its resync.
    fn take_clients_again(&mut self) {
        let me = self.me.node;
        let gives = self.giving.is_some() || self.roster.served_by(&self.me).is_some();
        let desynced = self.roster.state(me) == Some(NodeState::Donor) && !gives;
        if self.clients == Clients::Refused && self.is_fed() && desynced && !self.awaits_result() {
            self.tell_synced(self.delivered);
        }
    }

    /// A base that skips the choice of this donor leaves a member as a donor whose server was never asked. Nobody else would
    /// end that: the joiner waits, and no other member may serve it.
    fn disown(&mut self) {
        if !self.member || self.disowned {
            return;
        }
        if let Some(joiner) = self.roster.served_by(&self.me).filter(|joiner| self.giving != Some(*joiner)) {
            self.disowned = true;
            self.emit(Effect::Propose(AppMessage::DonorDone { joiner, ok: false }));
        }
    }

    /// The sequencer sees to it that nobody is waited for without end. Only a proposal: what comes of it is decided where it
    /// is ordered, by all members alike. One that gets lost is repeated.
    fn hurry(&mut self, now: Timestamp, sight: &Sight<'_>) {
        if now.since(self.hurried) < HURRY_EVERY {
            return;
        }
        self.hurried = now;
        self.watch_votes(now);
        self.vote_again();
        if !sight.orders {
            return;
        }
        self.end_votes(now);
        if sight.index_large {
            for (node, seqno) in self.roster.laggards(self.bounds.lag_min) {
                let message = AppMessage::Lagging { node, seqno };
                if self.is(Mutant::LagUnordered) {
                    let effects = self.roster.apply(self.me.node, message, self.delivered);
                    self.on_roster(now, effects, self.delivered);
                } else {
                    self.emit(Effect::Propose(message));
                }
            }
        }
    }

    /// The time of a vote begins when it may be dismissed.
    fn watch_votes(&mut self, now: Timestamp) {
        let open = self.roster.open_votes();
        self.votes.retain(|seqno, _| open.contains(seqno));
        for seqno in open {
            let vote = self.votes.entry(seqno).or_insert(VoteWatch::new(now));
            if self.roster.may_be_dismissed(seqno, &[], &self.outvoted) {
                continue;
            }
            vote.since = now;
            let overdue = now.since(vote.seen) > self.bounds.vote_patience;
            if overdue && !std::mem::replace(&mut vote.told, true) {
                let silent = self.roster.silent_in(seqno).join(", ");
                self.log(
                    Severity::Warn,
                    format!("Vote over {seqno} waits for {silent}: those that failed are the last that serve"),
                );
            }
        }
    }

    fn end_votes(&mut self, now: Timestamp) {
        let is_late = |(_, vote): &(&Seqno, &VoteWatch)| now.since(vote.since) > self.bounds.vote_patience;
        let late: Vec<Seqno> = self.votes.iter().filter(is_late).map(|(seqno, _)| *seqno).collect();
        for seqno in late {
            let others: Vec<Seqno> =
                self.votes.iter().filter(|(s, vote)| **s != seqno && vote.ends).map(|(s, _)| *s).collect();
            if !self.roster.may_be_dismissed(seqno, &others, &self.outvoted) {
                continue;
            }
            // Below the level from which on it names who failed, a second one that is on its way would end a vote that begins anew behind the first.
            self.votes.insert(seqno, VoteWatch { ends: true, ..VoteWatch::new(now) });
            self.emit(Effect::Propose(self.roster.closing(seqno)));
        }
    }

    fn report(&mut self, left: Seqno) {
        let due = self.speak || left.0 >= self.reported.0 + self.bounds.report_every;
        if matches!(self.feed, Feed::Live { .. }) && due {
            self.speak = false;
            self.reported = left;
            // A lost one is made good by the next.
            self.emit(Effect::Propose(AppMessage::LastCommitted { seqno: left }));
        }
    }

    // --- what holds at all times ------------------------------------------------------------------------------------

    /// Checked after every input, in builds with debug assertions: tests, the simulator, and the library that chaos runs are made with.
    fn check_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let fits = |seqno: Seqno| seqno >= self.base.seqno;
        match &self.feed {
            Feed::Nobody { .. } | Feed::Returning { .. } | Feed::Ended { .. } => {}
            Feed::Idle(idle) => {
                let kept = idle.position.is_none() || idle.position == idle.started_at;
                assert!(kept, "a server begins where it is, or nowhere: {idle:?}");
            }
            Feed::HalfDone(half_done) => {
                assert!(
                    half_done.position < half_done.own_view,
                    "half done data lie before the own view: {half_done:?}"
                );
                assert!(fits(half_done.position), "the log reaches down to half done data: {half_done:?}");
            }
            Feed::Copying(copying) => {
                let kept = copying.own.is_none_or(fits);
                assert!(kept, "a server that was told that it needs no data needs none: {copying:?}");
            }
            Feed::Live { handed, floor } => {
                assert!(handed >= floor, "what came with the data is not handed again: {handed} {floor}");
            }
        }
        assert!(self.roster.cut() <= self.delivered.max(self.base.seqno), "nobody has committed what is not ordered");
    }
}
