//! The façade: state, inputs, outputs. The handlers live in the modules that ARCHITECTURE.md lists, one for each family of messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use trireme_types::{
    Base, DecodeError, Durability, Entry, EntryHeader, EntryKind, Fork, Level, Levels, Lineage, LogIndex, Member,
    NodeId, ProposalNumber, Reader, Seqno, Session, SessionMark, Term, Timestamp, Uuid, View, Voter, VoterSet, Weight,
    Writer,
};

use crate::arbitrator::Arbiter;
use crate::cache::Memory;
use crate::chain::Chain;
use crate::election::{Candidacy, LedTerms};
use crate::envelope::{Counts, counts};
use crate::era::Era;
use crate::from_data::ServerData;
use crate::io::{Delivery, Event, SnapshotRequest};
use crate::level::Leavers;
use crate::mutant::Mutant;
use crate::own_log::{OwnLog, READ_BYTES, Reading, TermsCount};
use crate::phase::CurrentPhase;
use crate::proposals::{Proposals, Proposed};
use crate::reads::Reads;
use crate::role::CurrentRole;
use crate::standing::{CurrentStanding, Offer, Standing};
use crate::suspicion::{Lack, Suspicion};
use crate::timers::{Timer, Timers};
use crate::told::Told;
use crate::trust::Acquaintances;
use crate::violation::Violators;
use crate::wishes::Wishes;
use crate::{
    BootstrapError, Class, Config, Content, Envelope, Failure, JoinState, LogEnd, LogStore, Message, Output, Phase,
    Presence, ProposeError, ReadId, Status, StoreError,
};

/// A linked peer, as far as it is known.
pub(crate) struct Peer {
    /// As its last handshake says. A view that is delivered may say otherwise of its weight.
    pub member: Member,
    /// When anything was heard of it last. Moved by every message.
    pub heard: Timestamp,
    /// Its last word about itself, and when that came. `None` until the first one on this link.
    pub presence: Option<(Timestamp, Presence)>,
    /// It was said that this one is silent (`Event::Silent`). Judged by the check, taken back by its next word.
    pub silent: bool,
    /// An operator was last told then that its word does not count.
    pub complained_at: Option<Timestamp>,
    /// The group levels that its build supports, as its handshake says.
    pub levels: Levels,
    /// How far it lets the level rise. Unknown until it says so.
    pub level_limit: Option<Level>,
}

impl Peer {
    /// Its last word about itself.
    pub fn told(&self) -> Option<&Presence> {
        self.presence.as_ref().map(|(_, p)| p)
    }

    /// The same while it counts: whoever has no primary component says it again at every check.
    pub fn told_lately(&self, now: Timestamp) -> Option<&Presence> {
        self.presence.as_ref().filter(|(at, _)| now.since(*at) < CHECK_EVERY * 30).map(|(_, p)| p)
    }

    /// The same, and since `good_at`. Before that this member heard of a majority, whose logs have grown since, and a member of a primary component
    /// does not go on telling.
    pub fn told_since(&self, good_at: Timestamp, now: Timestamp) -> Option<&Presence> {
        let later = self.presence.as_ref().is_some_and(|(at, _)| *at >= good_at);
        self.told_lately(now).filter(|_| later)
    }
}

/// One member of a group.
///
/// Inputs are `handle_*` and the commands; outputs come from [`poll_output`](Group::poll_output).
///
/// **The rule:** after one or more inputs, poll until `None`, and carry the outputs out *in order*. Appends to the log and
/// the hard state happen inside (through [`LogStore`]) before the outputs that depend on them are queued. Several inputs
/// before one drain are batched: that is how load turns into bigger messages, and idleness into none.
///
/// Time is an argument and never goes backwards. No clock, socket, thread or randomness inside; `seed` feeds the
/// election jitter.
pub struct Group<S: LogStore> {
    // --- itself
    /// Identity, options and limits, as the driver set them last (`set_config`, `set_unix_at_zero`). `me.weight` counts at the start only:
    /// see `wishes`.
    pub(crate) cfg: Config,
    /// State of the generator that election jitter and ids of forks are drawn from; never zero. Moved on by `random`.
    pub(crate) rng: u64,
    /// Where this member stands with the server. Written by `phase.rs`.
    pub(crate) phase: CurrentPhase,
    /// Effects that the driver has not polled yet, in order. Everybody appends; emptied by `poll_output`, and thrown away by a failure and by
    /// a bootstrap that begins another log: nothing of the old one counts then.
    pub(crate) out: VecDeque<Output>,
    /// When it acts by itself. Armed and disarmed beside each change of phase or role, with the first body that is missing, and again where one
    /// has run down.
    pub(crate) timers: Timers,
    /// Things that were said already. Decides nothing; written where they are said.
    pub(crate) told: Told,
    // --- the log, and how far it counts
    /// The log, and the promises beside it. Written by `own_log.rs`.
    pub(crate) own: OwnLog<S>,
    /// The state after the last delivered entry. Moves with each delivery (`deliver`); set anew where delivery begins (`begin_at`).
    pub(crate) done: Chain,
    /// Highest index that is known to be committed: never below `done`, never above the own log. Raised by `advance_commit`; set anew where
    /// delivery begins (`begin_at`).
    pub(crate) commit: LogIndex,
    /// Bodies and entries on their way into the log, and out of it. Bodies come with `Submit` and go when they are ordered; entries are read
    /// ahead by `next_to_deliver`, and dropped when the log is truncated or begins anew.
    pub(crate) memory: Memory,
    /// The application wants no entry now. Written by `pause_delivery`.
    pub(crate) delivery_paused: bool,
    /// States that the application was asked for and has not given yet, each with the state of the order at that point. Written by
    /// `ask_for_snapshot` and by the answers; void where delivery begins anew.
    pub(crate) snapshots: Vec<(SnapshotRequest, Chain)>,
    // --- who orders
    /// The part of this member in the present term, and with it the sequencer. Written by `role.rs`.
    pub(crate) role: CurrentRole,
    /// The present term of the present branch, and all that is known in it. Written by `era.rs`.
    pub(crate) era: Era,
    /// The attempts of this member to be elected. Noted by `election.rs` and `role.rs`; its delay is set at a join, and where data are waited for (`from_data.rs`).
    pub(crate) candidacy: Candidacy,
    /// Terms in which a sequencer was known. Noted when one is announced (`announce_term`).
    pub(crate) led_terms: LedTerms,
    /// The last moment at which a sequencer that hears a majority was heard, or at which this one, as sequencer, heard one. Silence counts from
    /// there. Set by `on_heartbeat` and `on_heartbeat_timer`, and at the moments from which patience counts anew: a join, an election, a view
    /// with this member.
    pub(crate) good_at: Timestamp,
    /// An arbitrator's own; empty on all others. Written by `arbitrator.rs`, and by `role.rs` when somebody orders.
    pub(crate) arbiter: Arbiter,
    // --- its own data, and its place beside others
    /// May log and data be gone on with? Written by `standing.rs`.
    pub(crate) standing: CurrentStanding,
    /// Doubts about the own log, and what others were heard to acknowledge. Written by `suspicion.rs`, and forgotten by `era.rs`.
    pub(crate) suspicion: Suspicion,
    /// The server's data, as its driver told, and as far as delivery has moved them. Written at a join, with a copy (`data_arrived`,
    /// `data_discarded`), and when the log is replaced.
    pub(crate) data: ServerData,
    /// Proposals of this member that are not delivered. Written by `propose`, `send_unsent`, `deliver` and the commands that take them back.
    pub(crate) proposals: Proposals,
    /// Causal reads of this member. Written by `reads.rs`.
    pub(crate) reads: Reads,
    /// Its weight, and the mode of durability that it wants. Written by `wishes.rs`.
    pub(crate) wishes: Wishes,
    // --- the others
    /// Linked peers. Come with `handle_link_up` and go with `handle_link_down`, or when they are left or refused.
    pub(crate) peers: BTreeMap<NodeId, Peer>,
    /// Named nodes whose links are down, and when each was heard last. Comes and goes with the links (`on_unlinked`, `on_linked`).
    pub(crate) gone: BTreeMap<NodeId, Timestamp>,
    /// Linked members that get bodies of proposals by multicast, as the driver says. Written by `set_hear_multicast`.
    pub(crate) hear_multicast: BTreeSet<NodeId>,
    /// Nodes that the log has named so far. Written by `trust.rs` as the log grows, forgotten with the history.
    pub(crate) acquaintances: Acquaintances,
    /// Peers that violate the protocol. Written by `violation.rs`.
    pub(crate) violators: Violators,
    /// Incarnations that were thrown out, as the application knows from the log, and when this member heard of each. Written by `set_evicted`.
    pub(crate) evicted: BTreeMap<Uuid, Timestamp>,
    /// Nodes that were in the view a short while ago: the group level waits for them. Written by `level.rs` with each delivered view.
    pub(crate) leavers: Leavers,
    /// The rule that this build breaks on purpose.
    #[cfg(feature = "mutants")]
    pub(crate) mutant: Option<Mutant>,
}

/// Spacing of the checks that depend on silence.
pub(crate) const CHECK_EVERY: Duration = Duration::from_millis(100);

impl<S: LogStore> Group<S> {
    /// `start` is the server's recovered seqno: delivery starts at the newest checkpoint at or below it, or at the log's
    /// base; `None` (unknown) starts at the newest checkpoint. The group is `Idle` until `bootstrap` or `join`.
    pub fn new(config: Config, store: S, start: Option<Seqno>, seed: u64, now: Timestamp) -> Group<S> {
        let session = Session::first(config.me.node, config.me.incarnation);
        let mut group = Group {
            wishes: Wishes::new(config.me.weight),
            cfg: config,
            rng: seed | 1,
            phase: CurrentPhase::START,
            out: VecDeque::new(),
            own: OwnLog::new(store),
            done: Chain::default(),
            commit: LogIndex::ZERO,
            era: Era::default(),
            memory: Memory::default(),
            delivery_paused: false,
            role: CurrentRole::START,
            peers: BTreeMap::new(),
            gone: BTreeMap::new(),
            proposals: Proposals::new(session),
            hear_multicast: BTreeSet::new(),
            standing: CurrentStanding::START,
            suspicion: Suspicion::default(),
            data: ServerData::with_applied(start.unwrap_or_default()),
            acquaintances: Acquaintances::default(),
            violators: Violators::default(),
            candidacy: Candidacy::new(now),
            reads: Reads::default(),
            led_terms: LedTerms::default(),
            evicted: BTreeMap::new(),
            leavers: Leavers::default(),
            arbiter: Arbiter::default(),
            snapshots: Vec::new(),
            timers: Timers::default(),
            told: Told::default(),
            good_at: now,
            #[cfg(feature = "mutants")]
            mutant: None,
        };
        let base = group
            .store()
            .checkpoint_before(start.unwrap_or(Seqno(u64::MAX)))
            .unwrap_or_else(|| group.store().base().clone());
        group.begin_at(base);
        let read = group.own.tail().term;
        if group.own.term() < read {
            // The end came between the promise of a lower term and the log that was to go with it. In the log's term this member may have
            // voted already.
            group.own.promise_with_next(read, group.me());
        }
        group.commit = group.commit.max(group.own.committed().min(group.store().written()));
        // Acknowledgements of peers are remembered before a sequencer is found, too (rule 12).
        group.enter_era(group.own.tail().lineage.clone());
        group
    }

    /// Delivery begins at `base`, which lies within the log.
    pub(crate) fn begin_at(&mut self, base: Base) {
        if base.history != self.own.tail().history {
            self.acquaintances.forget_all();
        }
        self.done = Chain::from_base(&base);
        self.leavers.begin(&base.view);
        self.commit = base.index;
        self.memory.ahead.clear();
        self.snapshots.clear();
        self.own.begin_at(base.index);
        self.out.push_back(Output::Deliver(Delivery::Reset { base }));
        self.rebuild_tail();
        self.keep_durability();
    }

    /// The log is told what an acknowledgement means: `Process` before the first one of that kind, `Disk` only when nothing
    /// that was acknowledged otherwise is left unsynced.
    pub(crate) fn keep_durability(&mut self) {
        let wanted = self.done.durability;
        // Entries behind the change are acknowledged only when they are synced; under load there is always a newer one that is not.
        let all_before = if self.is(Mutant::ProcessKept) { self.own.store().last() } else { self.done.durability_at };
        let unsynced = self.own.tail().durability == Durability::Process || self.own.synced() < all_before;
        if wanted == Durability::Disk && unsynced || self.phase() == Phase::Failed {
            return;
        }
        let saved = self.own.store_mut().set_durability(wanted);
        self.worked(saved);
    }

    /// The tail state, anew from what is delivered and what follows in the log.
    pub(crate) fn rebuild_tail(&mut self) {
        let (terms, known) = (self.terms_count(), &mut self.acquaintances);
        match self.own.rebuild(&self.done, terms, |named| known.remember(named)) {
            Ok(Reading::Complete) => self.check_level_of_log(),
            Ok(Reading::Unreadable { index, error }) => self.cut_unreadable(index, error),
            Err(e) => self.fail(e),
        }
    }

    /// The log ends before an entry that no member can read. Nothing like it is written (rule 36), so an older build wrote it. It may have
    /// been acknowledged, so the log is no evidence until others have repaired it. An entry that is known to be committed is not cut: another
    /// build can read it, perhaps.
    fn cut_unreadable(&mut self, index: LogIndex, error: DecodeError) {
        if index <= self.commit.max(self.own.committed()) {
            return self.fail(Failure::Unreadable { index, error });
        }
        let last = index.prev();
        let suspect = self.own.store().suspect().map_or(last, |before| before.min(last));
        let cut = self.own.store_mut().set_suspect(Some(suspect)).and_then(|()| self.own.truncate_after(last));
        if !self.worked(cut) {
            return;
        }
        self.era.truncate_after(last);
        self.spoil_repair(last);
        self.log(true, format!("log entry {index} can be read by no member ({error}): the log was cut before it, and others have to repair it"));
    }

    pub fn store(&self) -> &S {
        self.own.store()
    }
    pub fn store_mut(&mut self) -> &mut S {
        self.own.store_mut()
    }
    /// The forks that led to the log, its uncommitted end included.
    pub fn lineage(&self) -> &Lineage {
        &self.own.tail().lineage
    }
    pub fn into_store(self) -> S {
        self.own.into_store()
    }

    /// Every change from outside goes through here: whatever it was, afterwards the invariants hold.
    pub(crate) fn input<T>(&mut self, change: impl FnOnce(&mut Self) -> T) -> T {
        let result = change(self);
        self.check_invariants();
        result
    }

    // --- commands -------------------------------------------------------------------------------------------------

    /// Begin or continue a history alone. `history`/`position` as known; with a log that covers it the log is kept and a
    /// forced voter set (fork record) is written, else the log is reset to `position`.
    pub fn bootstrap(&mut self, now: Timestamp, history: Uuid, position: Seqno) -> Result<(), BootstrapError> {
        self.input(|group| group.begin_history(now, history, position))
    }

    fn begin_history(&mut self, now: Timestamp, history: Uuid, position: Seqno) -> Result<(), BootstrapError> {
        if self.phase() == Phase::Failed {
            return Err(self.why_it_failed());
        }
        let base = self.own.store().base();
        let level = if base.history == history { self.own.tail().level } else { self.cfg.levels.min };
        let covered = base.history == history && base.seqno <= position && self.own.tail().seqno >= position;
        let forced = covered && !self.decides_alone() && !self.own.tail().voters.voters.is_empty();
        if forced && self.is_forked_out() {
            return Err(BootstrapError::ForkedTooOften);
        }
        if !covered {
            // The history goes on without the log that led here: whoever has that log is on another branch.
            let lineage = if position == Seqno::ZERO {
                Lineage::default()
            } else {
                Lineage::default().with(Fork { index: LogIndex::ZERO, seqno: position, id: self.draw_fork() })
            };
            let base = Base {
                lineage,
                level,
                history,
                term: self.own.term(),
                seqno: position,
                durability: self.cfg.durability,
                ..Base::default()
            };
            self.own.reset(base.clone())?;
            self.out.clear();
            self.begin_at(base);
        }
        if self.phase() == Phase::Failed {
            return Err(self.why_it_failed());
        }
        self.become_keeping();
        self.become_joining(now.after(CHECK_EVERY));
        self.data.stocked = !self.arbitrates();
        let me = Voter { node: self.me(), weight: self.wishes.weight() };
        let fork = if forced { self.draw_fork() } else { Uuid::NIL };
        let voters = (!self.decides_alone()).then(|| VoterSet { voters: vec![me], fork });
        self.take_over(now, voters);
        self.send_presence(now);
        if self.phase() == Phase::Failed { Err(self.why_it_failed()) } else { Ok(()) }
    }

    fn why_it_failed(&self) -> BootstrapError {
        let failure = self.out.iter().find_map(|output| match output {
            Output::Event(Event::Failed(failure)) => Some(failure.clone()),
            Output::Event(_) | Output::Send { .. } | Output::Deliver(_) => None,
        });
        failure.map_or(BootstrapError::FailedBefore, BootstrapError::Failed)
    }

    /// Is this member a majority by itself? A log that may lack its end, or is an old copy, does not say: others may have a vote by now.
    fn decides_alone(&self) -> bool {
        let me = self.me();
        let mine = |set: &VoterSet| set.majority(|n| n == me);
        let settled = self.own.tail().voters_at <= self.own.voters_committed().max(self.commit);
        let whole = self.is_whole() && !self.own.lacks_committed_voters();
        whole && mine(&self.own.tail().voters) && (settled || mine(&self.own.tail().voters_before))
    }

    /// Has this log so many forks that no reader would take one more?
    pub(crate) fn is_forked_out(&self) -> bool {
        self.own.tail().lineage.forks().len() >= Lineage::FORKS_MAX
    }

    /// Look for a primary component among the linked peers, or form one again with the voters of the own log.
    pub fn join(&mut self, now: Timestamp, state: JoinState) {
        self.input(|group| group.look_for_component(now, state));
    }

    fn look_for_component(&mut self, now: Timestamp, state: JoinState) {
        if self.phase() == Phase::Failed {
            return;
        }
        if self.is(Mutant::VotersForgotten) {
            let forgotten = self.own.store_mut().set_outdated(false);
            self.worked(forgotten);
        }
        self.data.stocked = state.position.is_some() && !self.is_out_of_reach(&state) && !self.arbitrates();
        let useless = self.is_useless(&state);
        self.settle_reach(useless);
        self.data.position = self.data.position.or(state.position);
        self.data.brings = Some(state);
        self.become_joining(now);
        self.good_at = now;
        let me = self.me();
        let doubtful = self.own.tail().lineage.newest().is_some() || !self.is_whole() || self.data_ahead(now).is_some();
        if doubtful && self.quorum(|n| n == me) {
            // It needs nobody's vote, but the others may have gone on without it, or hold what it has lost.
            self.candidacy.wait_until(now.after(self.cfg.timeouts.suspect));
        }
        self.arm_election(now);
    }

    /// A log that does not reach down to the server's position can't replay from it.
    fn is_out_of_reach(&self, state: &JoinState) -> bool {
        let base = self.own.store().base();
        state.position.is_some_and(|(history, seqno)| history != base.history || seqno < base.seqno)
    }

    /// Is the own log to be replaced by one that goes on from the server's data? A voter keeps its log all the same: votes follow the log
    /// (rule 10).
    fn is_useless(&self, state: &JoinState) -> bool {
        let votes = self.own.tail().voters.contains(self.me());
        let related = state.position.is_some_and(|(history, _)| history == self.own.store().base().history);
        self.is_out_of_reach(state) && !(votes && related)
    }

    /// The log has grown, and may say by now that this member votes: it did, and has lost the end of the log.
    pub(crate) fn keep_log_of_voter(&mut self) {
        if matches!(self.standing(), Standing::OutOfReach) {
            let useless = self.data.brings.as_ref().is_some_and(|state| self.is_useless(state));
            self.settle_reach(useless);
        }
    }

    /// Before `join`: where the server's data are, although nothing vouches for them. They count as evidence only (rule 18).
    pub fn note_data(&mut self, data: Option<(Uuid, Seqno)>) {
        self.input(|group| group.data.position = data);
    }

    /// Before `join`: the server's data end here, and a statement was cut off in them.
    pub fn note_half_done(&mut self, end: Option<Seqno>) {
        self.input(|group| group.data.half_done = end);
    }

    /// The server's engine has its data on disk up to here; what lies behind may be in memory only. Before the first call they count as on disk,
    /// where the server has found them.
    pub fn note_engine_disk(&mut self, now: Timestamp, upto: Seqno) {
        self.input(|group| group.on_engine_disk(now, upto));
    }

    /// Does something wait for [`Group::note_engine_disk`] to reach further?
    pub fn awaits_engine_disk(&self) -> bool {
        self.data.awaited.is_some()
    }

    /// The engine does not get there before this member goes on: an applier waits for the result of a vote. The state is taken at once. A crash before the
    /// engine gets there may cost this node its data (rule 32), and nobody else anything.
    pub fn note_engine_stuck(&mut self, now: Timestamp) {
        self.input(|group| group.on_engine_stuck(now));
    }

    /// Answer to `Event::DataDiverged`: the data are marked as void, durably, so the log may be replaced.
    pub fn data_discarded(&mut self, now: Timestamp) {
        self.input(|group| group.on_data_discarded(now));
    }

    fn on_data_discarded(&mut self, now: Timestamp) {
        let offer = self.become_discarded();
        self.data.stocked = false;
        (self.data.applied, self.data.applied_term) = (Seqno::ZERO, Term::ZERO);
        self.data.position = None;
        self.data.half_done = None;
        (self.data.on_disk, self.data.awaited) = (None, None);
        self.data.brings = Some(JoinState { position: None });
        if !self.running() {
            return;
        }
        if self.leads() {
            // Its log is the history: what it needs is a copy of the data, not a snapshot, and a view, which it did not take.
            self.become_keeping();
            return self.step_membership(now);
        }
        match offer {
            Some(offer) => self.on_snapshot(now, offer),
            None => {
                if self.follows_by_promise() {
                    self.become_keeping();
                }
                self.send_join();
            }
        }
    }

    /// A full copy is here, durably; the log goes on where it ends.
    pub fn data_arrived(&mut self) {
        self.input(|group| group.data.stocked = !group.arbitrates());
    }

    /// How far the server's data reach at least, if the log goes on where they end. Until it is in a view it is given nothing: what was
    /// delivered goes with the log, if that is replaced.
    pub(crate) fn holds(&self) -> Option<Seqno> {
        let held = match &self.data.brings {
            Some(found) => found.position.map(|p| p.1).unwrap_or_default(),
            // A log that was replaced by one that begins earlier delivers some of it anew.
            None => self.done.seqno.max(self.data.applied),
        };
        self.data.stocked.then_some(held)
    }

    /// An id for a fork: no two members draw the same, because their own ids are part of it, nor does one draw the same twice.
    pub(crate) fn draw_fork(&mut self) -> Uuid {
        let drawn = (u128::from(self.random()) << 64) | u128::from(self.random());
        let own = u128::from_be_bytes(self.cfg.me.uuid().0);
        Uuid((own ^ drawn).max(1).to_be_bytes())
    }

    /// Leave in order; ends with `Event::Left`.
    pub fn leave(&mut self, now: Timestamp) {
        self.input(|group| group.begin_leave(now));
    }

    fn begin_leave(&mut self, now: Timestamp) {
        match self.phase() {
            Phase::Primary => {
                self.become_leaving(now);
                self.continue_leave(now);
            }
            Phase::Leaving => {}
            Phase::Idle | Phase::Joining | Phase::NonPrimary | Phase::Failed => self.become_left(),
        }
    }

    /// Send a write set. The answer comes as a `Delivery` with the same session and number. While nobody could order it, it is kept
    /// back, and may be withdrawn.
    pub fn propose(&mut self, now: Timestamp, body: Bytes) -> Result<(Session, ProposalNumber), ProposeError> {
        self.input(|group| group.propose_any(now, false, body))
    }
    /// The same for an ordered message that takes no seqno.
    pub fn propose_app(&mut self, now: Timestamp, body: Bytes) -> Result<(Session, ProposalNumber), ProposeError> {
        self.input(|group| group.propose_any(now, true, body))
    }

    fn propose_any(
        &mut self,
        now: Timestamp,
        app: bool,
        body: Bytes,
    ) -> Result<(Session, ProposalNumber), ProposeError> {
        if self.phase() != Phase::Primary {
            return Err(ProposeError::NotPrimary);
        }
        let number = self.proposals.add(app, body);
        self.send_unsent(now);
        Ok((self.proposals.session(), number))
    }

    /// Takes back what was proposed and not given to anybody: it will certainly never be ordered. The answer names it, in the order of
    /// the proposals. Its numbers are given again: nobody else has seen them in this session (rule 23).
    pub fn withdraw_unsent(&mut self) -> Vec<(Session, ProposalNumber)> {
        self.input(Self::take_back_unsent)
    }

    fn take_back_unsent(&mut self) -> Vec<(Session, ProposalNumber)> {
        let session = self.proposals.session();
        let withdrawn = self.proposals.withdraw(self.is(Mutant::WithdrawSent));
        withdrawn.into_iter().map(|number| (session, number)).collect()
    }

    /// Give up everything proposed and not delivered, or not heard of by the application: a new session begins (rules 22, 23). A proposal that
    /// was given up may still be ordered, and then arrives under its old session.
    pub fn abandon_pending(&mut self) {
        self.input(Self::give_up_pending);
    }

    fn give_up_pending(&mut self) {
        if self.is(Mutant::SessionKept) {
            self.proposals.withdraw(true);
        } else {
            self.proposals.give_up();
        }
    }

    /// While paused no entry is delivered, and everything else goes on: for an application that is busy with the one before for longer
    /// than a group can wait for a member's voice. Entries that are committed meanwhile are delivered afterwards, in order. A reset is delivered
    /// all the same.
    pub fn pause_delivery(&mut self, paused: bool) {
        self.input(|group| group.delivery_paused = paused);
    }

    /// Ask for a position that covers every commit acknowledged anywhere before now (rule 25). Many may wait at once.
    pub fn read(&mut self, now: Timestamp, read: ReadId) {
        self.input(|group| group.begin_read(now, read));
    }

    /// Unordered, best-effort message to all linked members of the view.
    pub fn signal(&mut self, body: Bytes) {
        self.input(|group| {
            for node in group.linked_members() {
                group.send(node, Message::Signal { body: body.clone() });
            }
        });
    }

    /// Change the vote weight (ordered: a `Voters` entry and a view). Ignored outside a primary view.
    pub fn set_weight(&mut self, now: Timestamp, weight: Weight) {
        self.input(|group| group.wish_for_weight(now, weight));
    }

    pub fn set_durability(&mut self, now: Timestamp, durability: Durability) {
        self.input(|group| group.wish_for_durability(now, durability));
    }

    /// Has this member asked for a durability mode that it has not seen in force yet?
    pub fn is_durability_wished(&self) -> bool {
        self.wishes.durability().is_some()
    }

    pub fn set_config(&mut self, change: impl FnOnce(&mut Config)) {
        self.input(|group| {
            let held = group.cfg.level_hold;
            change(&mut group.cfg);
            let (hold, level) = (group.cfg.level_hold, group.done.level);
            if hold != held && hold < level && group.running() {
                let text = format!(
                    "repl.proto_max={hold} comes too late: the group level is {level}, and it is never lowered"
                );
                group.log(true, text);
            }
        });
    }

    /// These members get the bodies that are sent to all (`Class::Droppable`) by multicast: from here on a sequencer sends them its own
    /// bodies that way, and their place in the order without them.
    pub fn set_hear_multicast(&mut self, members: BTreeSet<NodeId>) {
        if self.hear_multicast != members {
            self.input(|group| group.hear_multicast = members);
        }
    }

    /// The members that are thrown out (`evs.evict`), by the UUID of their incarnation. The application keeps this list as
    /// a function of the log and hands it over whenever it changes, so every sequencer knows it: such a member leaves view
    /// and voters, once those that stay have answered, and is not let in again.
    pub fn set_evicted(&mut self, now: Timestamp, members: BTreeSet<Uuid>) {
        self.input(|group| {
            let heard = |uuid: &Uuid| group.evicted.get(uuid).copied().unwrap_or(now);
            group.evicted = members.into_iter().map(|uuid| (uuid, heard(&uuid))).collect();
            if group.leads() && group.evicts_a_member() {
                // Those that stay are asked whether they are there.
                group.timers.arm(Timer::Heartbeat, now);
            }
            if group.running() {
                group.step_membership(now);
            }
        });
    }

    /// Says this in the present term of the present branch.
    pub(crate) fn send_in_term(&mut self, node: NodeId, content: Content) {
        let message = content.in_term(self.era.branch(), self.own.term());
        self.send(node, message);
    }

    /// Hands a message to the sequencer, which may be this member.
    pub(crate) fn to_sequencer(&mut self, now: Timestamp, message: Message) {
        let me = self.me();
        match self.sequencer() {
            Some(node) if node == me => self.on_message(now, me, message),
            Some(node) => self.send(node, message),
            None => {}
        }
    }

    /// The answer may come late: the state of the order at the time of asking is kept.
    pub(crate) fn ask_for_snapshot(&mut self, peer: Option<NodeId>) {
        let request = SnapshotRequest { at: self.done.index, peer };
        self.snapshots.retain(|(r, _)| r.peer != peer);
        self.snapshots.push((request.clone(), self.done.clone()));
        self.out.push_back(Output::Event(Event::NeedSnapshot(request)));
    }

    /// Answer to `Event::NeedSnapshot`.
    pub fn provide_snapshot(&mut self, now: Timestamp, request: SnapshotRequest, app: Bytes) {
        self.input(|group| group.on_snapshot_provided(now, request, app));
    }

    fn on_snapshot_provided(&mut self, now: Timestamp, request: SnapshotRequest, app: Bytes) {
        let Some(at) = self.snapshots.iter().position(|(r, _)| *r == request) else { return };
        let (_, chain) = self.snapshots.remove(at);
        let base = chain.to_base(app);
        match request.peer {
            // The log may have been trimmed beyond it since.
            None if self.own.store().term_at(base.index) != Some(base.term) => {}
            None => {
                let saved = self.own.store_mut().save_checkpoint(&base);
                self.worked(saved);
            }
            Some(peer) => self.send_snapshot(now, peer, base),
        }
    }

    /// Is the answer to this `Event::NeedSnapshot` still waited for? It may have been asked for anew, or not be of use any more.
    pub fn wants_snapshot(&self, request: &SnapshotRequest) -> bool {
        self.snapshots.iter().any(|(asked, _)| asked == request)
    }

    /// Instead of an answer, where the store does not want the checkpoint any more. It is asked for again when it does.
    pub fn decline_snapshot(&mut self, request: &SnapshotRequest) {
        self.input(|group| group.snapshots.retain(|(asked, _)| asked != request));
    }

    // --- events ---------------------------------------------------------------------------------------------------

    /// A link to `peer` is up and the handshake is done. Repeated with new data when the peer reconnects: that ends the former link, also where
    /// the new one does not count.
    /// `levels`: what its build supports.
    pub fn handle_link_up(&mut self, now: Timestamp, peer: Member, levels: Levels) {
        self.input(|group| group.on_linked(now, peer, levels));
    }

    fn on_linked(&mut self, now: Timestamp, peer: Member, levels: Levels) {
        let node = peer.node;
        self.forget_queued(node);
        if node == self.me() || self.is_refused(node) || !self.fits_level(&peer, levels) {
            // The former link has ended all the same, though nobody may have said so yet: what comes now comes over this one.
            return self.on_unlinked(now, node);
        }
        self.gone.remove(&node);
        // It may have restarted and hold less than it acknowledged; it will say again what it holds.
        self.era.forget_ack_of(node);
        self.data.out_of_reach.remove(&node);
        let peer = Peer {
            member: peer,
            heard: now,
            presence: None,
            silent: false,
            complained_at: None,
            levels,
            level_limit: None,
        };
        self.peers.insert(node, peer);
        if self.running() {
            self.on_link_up(now, node);
        }
    }

    /// The link is gone. Nothing sent on it before may be assumed to have arrived.
    pub fn handle_link_down(&mut self, now: Timestamp, peer: NodeId) {
        self.input(|group| group.on_unlinked(now, peer));
    }

    /// The link is gone, and with it what waits to be sent: over the next one it would come to a process that it is not meant for.
    fn forget_queued(&mut self, peer: NodeId) {
        self.out.retain(|output| !matches!(output, Output::Send { to, .. } if *to == peer));
        self.snapshots.retain(|(asked, _)| asked.peer != Some(peer));
    }

    pub(crate) fn on_unlinked(&mut self, now: Timestamp, peer: NodeId) {
        self.forget_queued(peer);
        let Some(lost) = self.peers.remove(&peer) else { return };
        // Silence counts from the last word. Of strangers nothing is kept.
        if self.is_named(peer) {
            self.gone.insert(peer, lost.heard);
        }
        if self.running() {
            self.on_link_down(now, peer);
        }
    }

    pub fn handle_message(&mut self, now: Timestamp, from: NodeId, message: Message) {
        self.input(|group| group.on_message(now, from, message));
    }

    fn on_message(&mut self, now: Timestamp, from: NodeId, message: Message) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.heard = now;
            if peer.silent {
                peer.silent = false;
                self.out.push_back(Output::Event(Event::Silent { node: from, silent: false }));
            }
        } else if from != self.me() {
            return;
        }
        if self.is_violation(now, from, &message) || !self.may_say(now, from, &message) {
            return;
        }
        if let Message::Presence(presence) = message {
            return self.on_presence(now, from, presence);
        }
        if let Message::LevelLimit { limit } = message {
            return self.on_level_limit(from, limit);
        }
        if !self.running() {
            return;
        }
        match message {
            Message::Submit { session, number, app, body } => {
                let mark = SessionMark { session, number };
                self.on_submit(now, from, Proposed { mark, app, body });
            }
            Message::InTerm(envelope) => self.on_envelope(now, from, envelope),
            Message::Join(request) => self.on_join(now, from, request),
            Message::Snapshot { term, lineage, base } => {
                self.on_snapshot(now, Offer { from, term, lineage, base: *base });
            }
            Message::Leave { incarnation } => self.on_leave(now, from, incarnation),
            Message::Presence(_) | Message::LevelLimit { .. } | Message::Unknown { .. } => {}
            Message::VotersHeard { branch, term, index } => self.on_voters_heard(branch, LogEnd { term, index }),
            Message::Force => self.on_force(now, Some(from)),
            Message::Evicted => self.become_evicted(),
            Message::SetWeight { weight } => self.on_set_weight(now, from, weight),
            Message::SetDurability { durability } => self.on_set_durability(durability),
            Message::Signal { body } => self.out.push_back(Output::Event(Event::Signal { from, body })),
        }
    }

    /// Nothing is opened that does not count here ([`counts`]).
    fn on_envelope(&mut self, now: Timestamp, from: NodeId, envelope: Envelope) {
        let here = envelope.branch == self.era.branch() || self.is(Mutant::ForkMerged);
        let counts = match counts(&envelope.content) {
            Counts::Anywhere => true,
            Counts::InBranch => here,
            Counts::InTerm => here && envelope.term == self.own.term(),
        };
        if !counts {
            return;
        }
        let Envelope { branch, term, content } = envelope;
        match content {
            Content::Append(content) => self.on_append(now, from, Envelope { branch, term, content }),
            Content::Reject { prev_index, last } => self.on_reject(from, prev_index, last),
            Content::NeedBodies { from: index } => self.on_need_bodies(from, index),
            Content::Ack { index } => self.on_ack(now, term, from, index),
            Content::Heartbeat(content) => self.on_heartbeat(now, from, Envelope { branch, term, content }),
            Content::HeartbeatAck { round } => self.on_heartbeat_ack(now, from, term, round),
            Content::PreVote { last } => self.on_pre_vote(now, from, branch, term, last),
            Content::PreVoteReply { granted, whole } => self.on_pre_vote_reply(now, from, term, granted, whole),
            Content::Vote { last, transfer } => self.on_vote(now, from, branch, term, last, transfer),
            Content::VoteReply { granted, whole } => self.on_vote_reply(now, from, term, granted, whole),
            Content::TimeoutNow => {
                self.be_called();
                if self.may_stand() {
                    self.become_candidate(now, true);
                }
            }
            Content::ReadRequest { batch } => self.on_read_request(from, batch),
            Content::ReadReply { batch, seqno } => self.on_read_reply(now, batch, seqno),
            Content::Recall { index } => self.on_recall(now, from, branch, term, index),
            Content::Entrust => self.on_entrust(now, branch, term),
            Content::BeginFromData { index, seqno } => self.on_begin_from_data(now, from, branch, term, index, seqno),
        }
    }

    /// The driver synced the log up to `upto` while it was at `generation`.
    pub fn handle_synced(&mut self, now: Timestamp, generation: u64, upto: LogIndex) {
        self.input(|group| group.on_synced(now, generation, upto));
    }

    /// The driver has synced the whole log by itself. No sync is left to begin, whose end would tell of that.
    pub fn handle_all_synced(&mut self, now: Timestamp) {
        self.input(|group| group.on_synced(now, group.own.store().generation(), group.own.store().synced()));
    }

    fn on_synced(&mut self, now: Timestamp, generation: u64, upto: LogIndex) {
        if generation != self.own.store().generation() && !self.is(Mutant::StaleSync) {
            return;
        }
        self.own.synced_to(upto);
        self.note_own_ack(now);
        self.keep_durability();
        self.settle_suspicion();
    }

    /// Call when the time of `poll_timeout` has come. Spurious calls do nothing.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.input(|group| group.on_timeout(now));
    }

    fn on_timeout(&mut self, now: Timestamp) {
        for timer in Timer::ALL {
            if self.timers.is_due(timer, now) {
                self.on_timer(now, timer);
            }
        }
        if self.is_writing() {
            self.write_on(now);
        }
    }

    fn on_timer(&mut self, now: Timestamp, timer: Timer) {
        match timer {
            Timer::Heartbeat => self.on_heartbeat_timer(now),
            Timer::Bodies => {
                self.timers.disarm(Timer::Bodies);
                self.ask_for_bodies();
            }
            Timer::Election => self.on_election_timer(now),
            Timer::Check => {
                self.check_again(now);
                self.on_check(now);
            }
            Timer::Linger => {
                self.log(true, "the leave could not be ordered within pc.linger; leaving all the same".into());
                self.become_left();
            }
        }
    }

    // --- outputs --------------------------------------------------------------------------------------------------

    pub fn poll_output(&mut self, now: Timestamp) -> Option<Output> {
        self.input(|group| group.next_output(now))
    }

    fn next_output(&mut self, now: Timestamp) -> Option<Output> {
        loop {
            if let Some(output) = self.out.pop_front() {
                return Some(output);
            }
            if !self.running() {
                return None;
            }
            let due = self.done.index < self.commit && !self.delivery_paused;
            if due && self.deliver_next(now) {
                continue;
            }
            self.send_unsent(now);
            self.replicate(now);
            self.begin_read_round(now);
            // Where nobody has data it matters whose log goes on from those of a member that comes.
            let base_moved =
                !self.data.stocked && !self.arbitrates() && self.told.base != self.own.store().base().seqno;
            let vouches = self.told.sequencer != self.vouches_for();
            if self.told.branch != self.own.tail().branch()
                || self.told.stocked != self.data.stocked
                || self.told.evidence != self.own_evidence()
                || base_moved
                || vouches
            {
                self.send_presence(now);
            }
            if self.owes_level_limit() {
                self.send_level_limit();
            }
            // An acknowledgement of the own log may have committed something.
            let delivered = due || self.done.index == self.commit || self.delivery_paused;
            if self.out.is_empty() && (delivered || self.phase() == Phase::Idle) {
                return None;
            }
        }
    }

    /// When to call `handle_timeout`, and why.
    pub fn poll_timeout(&self) -> Option<(Timestamp, &'static str)> {
        if self.is_writing() {
            return Some((Timestamp::ZERO, "a large entry to be written on"));
        }
        self.timers.next().map(|(at, timer)| (at, timer.name()))
    }

    pub fn status(&self) -> Status {
        Status {
            phase: self.phase(),
            term: self.own.term(),
            sequencer: self.sequencer(),
            last: self.own.store().last(),
            committed: self.commit,
            delivered: self.done.index,
            view: self.done.view.clone(),
            voters: self.own.tail().voters.clone(),
            lineage: self.own.tail().lineage.clone(),
            durability: self.done.durability,
            level: self.done.level,
            term_changes: self.led_terms.count,
            durable: self.durable(),
            read_requests: self.reads.requests(),
            pending_bytes: self.proposals.bytes() + self.memory.unordered.bytes(),
        }
    }

    /// Should the driver sync the log now (durability `disk`, or a switch to it is under way)?
    pub fn wants_sync(&self) -> bool {
        let landmark = self.own.last_landmark().unwrap_or_default();
        let wanted = if self.syncs() { self.own.store().last() } else { landmark.max(self.repaired_to()) };
        self.own.synced() < wanted.min(self.own.store().last()) && self.phase() != Phase::Failed
    }

    // --- shared helpers -------------------------------------------------------------------------------------------

    pub(crate) fn me(&self) -> NodeId {
        self.cfg.me.node
    }

    /// Does an acknowledgement mean `synced`? As long as anything in the log that is not delivered was ordered in mode `disk`, be it between two
    /// changes of the mode that are both under way.
    pub(crate) fn syncs(&self) -> bool {
        let begun = self.own.tail().durability == Durability::Disk && !self.is(Mutant::SwitchUnsynced);
        begun || self.done.durability == Durability::Disk || self.own.tail().left_disk_at > self.done.index
    }

    /// Held, and durable in the mode in force.
    pub(crate) fn durable(&self) -> LogIndex {
        if self.is(Mutant::AckUnsynced) {
            self.own.store().last()
        } else if self.syncs() {
            self.own.synced()
        } else {
            let bound =
                self.own.first_landmark().map_or(LogIndex(u64::MAX), |first| first.prev().max(self.own.synced()));
            self.written().min(bound)
        }
    }

    /// Held so that it survives the death of the process.
    pub(crate) fn written(&self) -> LogIndex {
        if self.is(Mutant::AckUnwritten) { self.own.store().last() } else { self.own.store().written() }
    }

    /// Held so that it may be delivered when the others have committed it.
    pub(crate) fn held(&self) -> LogIndex {
        if self.syncs() { self.written().max(self.own.store().held()) } else { self.written() }
    }

    /// May the server be given this entry, which is committed? Before every term and voter change of the log is on the own disk only what
    /// is there too, in both modes: the server may keep what it is given, whatever becomes of the log. So the log always names the newest
    /// term and the newest branch that the data hold anything of (rules 14, 16). That is not enough for what lies before such a landmark
    /// either: an entry of an older term, or from before a fork, may be committed by nothing but the landmark behind it, and another one
    /// stands at its place in the logs of others. It counts as committed before, and what has no place in the data is carried out: a
    /// sequencer whose disk hangs goes on for the others.
    fn may_give(&self, header: &EntryHeader) -> bool {
        match header.kind {
            EntryKind::WriteSet | EntryKind::App | EntryKind::View => {
                header.index <= self.own.synced() || self.own.first_landmark().is_none()
            }
            EntryKind::Term | EntryKind::Voters | EntryKind::Setting => true,
        }
    }

    fn is_writing(&self) -> bool {
        let unwritten = !self.syncs() && self.own.store().written() < self.own.store().last();
        self.running() && (unwritten || self.own.store().wants_write_on())
    }

    /// The next piece of a large entry. Between two of them everything else gets its turn: a gigabyte takes seconds, and whoever
    /// is not heard for so long is taken for dead.
    fn write_on(&mut self, now: Timestamp) {
        let written = self.own.store_mut().write_on();
        if !self.worked(written) {
            return;
        }
        self.note_own_ack(now);
    }

    pub(crate) fn random(&mut self) -> u64 {
        // xorshift64*: seeded, so that a run can be repeated.
        self.rng ^= self.rng >> 12;
        self.rng ^= self.rng << 25;
        self.rng ^= self.rng >> 27;
        self.rng.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn random_below(&mut self, limit: Duration) -> Duration {
        let nanos = limit.as_nanos().max(1) as u64;
        Duration::from_nanos(self.random() % nanos)
    }

    pub(crate) fn send(&mut self, to: NodeId, message: Message) {
        if self.peers.contains_key(&to) {
            self.out.push_back(Output::Send { to, class: message.class(), message });
        }
    }

    pub(crate) fn send_droppable(&mut self, to: NodeId, message: Message) {
        self.out.push_back(Output::Send { to, class: Class::Droppable, message });
    }

    pub(crate) fn log(&mut self, warn: bool, text: String) {
        self.out.push_back(Output::Event(Event::Log { warn, text }));
    }

    /// Linked members of the newest view, without this one.
    pub(crate) fn linked_members(&self) -> Vec<NodeId> {
        let me = self.me();
        self.own.tail().view.members.iter().map(|m| m.node).filter(|n| *n != me && self.peers.contains_key(n)).collect()
    }

    /// False: the log has failed.
    pub(crate) fn worked(&mut self, result: Result<(), StoreError>) -> bool {
        match result {
            Ok(()) => true,
            Err(e) => {
                self.fail(e);
                false
            }
        }
    }

    /// The promise is on disk when this returns (rule 1). False: it is not, and the log has failed.
    pub(crate) fn promise(&mut self, term: Term, to: NodeId) -> bool {
        if term > self.own.term() {
            self.keep_repair();
        }
        let saved = self.own.promise(term, to);
        self.worked(saved)
    }

    pub(crate) fn save_committed(&mut self) {
        if self.phase() != Phase::Failed {
            let saved = self.own.save_committed(self.commit);
            self.worked(saved);
        }
    }

    /// Consecutive entries, from memory where possible, no more than fit into a message.
    pub(crate) fn entries(&self, from: LogIndex, max_bytes: usize) -> Result<Vec<Entry>, StoreError> {
        self.own.entries(from, max_bytes, self.cfg.limits.entries_max)
    }

    fn terms_count(&self) -> TermsCount {
        TermsCount(!self.is(Mutant::TermUnsynced))
    }

    /// Appends entries that are checked to follow.
    pub(crate) fn append(&mut self, entries: Vec<Entry>) -> bool {
        let unread = self.is(Mutant::UnreadableWritten);
        let mut level = self.own.tail().level;
        for entry in &entries {
            match self.own.tail().reads(entry, level) {
                Ok(behind) => level = behind,
                Err(_) if unread => {}
                Err(e) => {
                    let (index, kind) = (entry.header.index, entry.header.kind);
                    self.log(true, format!("not writing entry {index} ({kind:?}), which no member could read: {e}"));
                    return false;
                }
            }
        }
        if !self.lower_marks_below_fork(&entries) {
            return false;
        }
        let cached = (self.done.index, self.cfg.cache_bytes_max);
        let (terms, known) = (self.terms_count(), &mut self.acquaintances);
        match self.own.append(entries, cached, terms, |named| known.remember(named)) {
            Ok(()) => true,
            Err(e) => {
                self.fail(e);
                false
            }
        }
    }

    /// A fork undoes everywhere: an index from there on names another entry now, so nothing is known of it any more. Saved
    /// before the fork's entry is written, whoever made it.
    fn lower_marks_below_fork(&mut self, entries: &[Entry]) -> bool {
        let forked = |e: &&Entry| {
            let voters = || VoterSet::decode(&mut Reader::new(&e.payload));
            e.header.kind == EntryKind::Voters && voters().is_ok_and(|v| !v.fork.is_nil())
        };
        if self.is(Mutant::MarksOverFork) {
            return true;
        }
        let Some(fork) = entries.iter().find(forked).map(|e| e.header.index) else { return true };
        let below = fork.prev();
        if !self.own.knows_committed_behind(below) {
            return true;
        }
        // A log that ends below what it knows to be committed has lost its end. That it did must outlive the marks that tell, if the fork's
        // entry never gets here.
        if self.own.lacks_committed_voters() && !self.begin_to_doubt(Lack::Voters) {
            return false;
        }
        let saved = self.own.lower_marks_to(below);
        self.worked(saved)
    }

    /// Sequencer: one entry of its own making at the end of the log. `proposal`: whose it is, if a member proposed it.
    pub(crate) fn append_own(&mut self, kind: EntryKind, proposal: Option<SessionMark>, payload: Bytes) -> bool {
        let (session, number) = proposal.map(|mark| (mark.session, mark.number)).unwrap_or_default();
        let header = EntryHeader {
            index: self.own.tail().index.next(),
            term: self.own.term(),
            seqno: if kind.takes_seqno() { self.own.tail().seqno.next() } else { self.own.tail().seqno },
            voters: self.own.tail().voters_at,
            session,
            number,
            kind,
        };
        let ok = self.append(vec![Entry { header, payload }]);
        self.era.note_own_end(self.own.tail().index);
        ok
    }

    pub(crate) fn append_view(&mut self, view: &View) -> bool {
        let mut w = Writer::new();
        view.encode(&mut w);
        self.append_own(EntryKind::View, None, Bytes::from(w.buf))
    }

    pub(crate) fn append_voters(&mut self, voters: &VoterSet) -> bool {
        let mut w = Writer::new();
        voters.encode(&mut w);
        self.append_own(EntryKind::Voters, None, Bytes::from(w.buf))
    }

    // --- delivery -------------------------------------------------------------------------------------------------

    /// False: the next one has to wait for the own disk.
    fn deliver_next(&mut self, now: Timestamp) -> bool {
        let Some(entry) = self.next_to_deliver() else { return true };
        if !self.may_give(&entry.header) {
            self.memory.ahead.push_front(entry);
            return false;
        }
        self.deliver(now, entry);
        true
    }

    /// `None`: the log has failed.
    fn next_to_deliver(&mut self) -> Option<Entry> {
        let index = self.done.index.next();
        Some(match self.memory.ahead.pop_front().filter(|e| e.header.index == index) {
            Some(entry) => entry,
            None => {
                self.memory.ahead.clear();
                match self.own.cached(index) {
                    Some(entry) => entry.clone(),
                    None => match self.own.store().read(index, READ_BYTES) {
                        Ok(entries) => {
                            self.memory.ahead.extend(entries);
                            match self.memory.ahead.pop_front() {
                                Some(entry) => entry,
                                None => {
                                    self.fail(Failure::Missing { index });
                                    return None;
                                }
                            }
                        }
                        Err(e) => {
                            self.fail(e);
                            return None;
                        }
                    },
                }
            }
        })
    }

    fn deliver(&mut self, now: Timestamp, entry: Entry) {
        let index = entry.header.index;
        if !self.done.accepts(&entry) {
            return self.fail(Failure::DoesNotFollow { index });
        }
        if let Err(error) = self.done.apply(&entry) {
            return self.fail(Failure::Unreadable { index, error });
        }
        let h = entry.header;
        match h.kind {
            EntryKind::WriteSet | EntryKind::App => {
                if h.session == self.proposals.session() {
                    self.proposals.delivered(h.mark().number);
                }
                self.memory.unordered.remove(h.mark());
                let body = entry.payload;
                self.out.push_back(Output::Deliver(if h.kind == EntryKind::WriteSet {
                    Delivery::WriteSet { index, seqno: h.seqno, session: h.session, number: h.number, body }
                } else {
                    Delivery::App { index, seqno: h.seqno, session: h.session, number: h.number, body }
                }));
            }
            EntryKind::View => match View::decode(&mut Reader::new(&entry.payload)) {
                Ok(view) => {
                    self.out.push_back(Output::Deliver(Delivery::View { index, seqno: h.seqno, view: view.clone() }));
                    self.on_view_delivered(now, &view);
                }
                Err(error) => self.fail(Failure::Unreadable { index, error }),
            },
            EntryKind::Voters => self.on_voters_delivered(now),
            EntryKind::Term => self.on_term_delivered(now, h.term),
            EntryKind::Setting => match Self::level_of_entry(&h, &entry.payload) {
                Some(level) => {
                    self.out.push_back(Output::Deliver(Delivery::Level { index, level }));
                    self.on_level_delivered(now, level);
                }
                None => {
                    self.settle_wishes();
                    self.keep_durability();
                }
            },
        }
        if self.commit.0 >= self.own.committed().0 + self.cfg.limits.committed_every {
            self.save_committed();
        }
        if self.own.store().wants_checkpoint() && self.snapshots.iter().all(|(r, _)| r.peer.is_some()) {
            self.ask_for_snapshot(None);
        }
    }
}
