//! Who orders: heartbeats, pre-vote, votes, terms.
//!
//! Raft's election (Ongaro, Ousterhout 2014, sections 5.2, 5.4 and the thesis' 9.6 pre-vote) over the log of
//! Viewstamped Replication's shape: the first entry of every term is a `Term` entry, so comparing (last entry's term,
//! length) is comparing (last-normal term, length), which is rule 1.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use trireme_types::{
    EntryKind, Kinship, Level, Lineage, LogIndex, Member, NodeId, Session, TERM_MAX, Term, Timestamp, Uuid, VoterSet,
    Weight,
};

use crate::group::Group;
use crate::level::encode_term;
use crate::mutant::Mutant;
use crate::reads::PendingRead;
use crate::replication::Progress;
use crate::standing::Rival;
use crate::timers::Timer;
use crate::{Content, Envelope, Event, Heartbeat, LogEnd, LogStore, Message, Output, Phase};

/// What this member does in the present term.
pub(crate) enum Role {
    Follower,
    /// Asks whether an election would be welcome.
    PreCandidate(Ballot),
    Candidate(Ballot),
    Sequencer(Box<Sequencer>),
}

/// Who has granted, and whether its log is whole.
pub(crate) type Votes = BTreeMap<NodeId, bool>;

/// Answers so far, the own one included.
#[derive(Default)]
pub(crate) struct Ballot {
    pub granted: Votes,
    pub refused: BTreeSet<NodeId>,
    /// One with a smaller id asks for the same term at the same time.
    pub rivalled: bool,
}

/// First delay after which one that was refused asks again; it doubles from refusal to refusal, up to the election timeout.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// How this member's attempts to be elected went, one after the other.
pub(crate) struct Candidacy {
    /// Not to stand before then: whoever is alone on a branch that was forced looks for others first.
    not_before: Timestamp,
    /// Elections refused in a row since a sequencer was known.
    refusals: u32,
    /// Let a rival go first when it last could have stood.
    gave_way: bool,
}

impl Candidacy {
    pub fn new(now: Timestamp) -> Candidacy {
        Candidacy { not_before: now, refusals: 0, gave_way: false }
    }

    pub fn wait_until(&mut self, at: Timestamp) {
        self.not_before = at;
    }

    fn may_begin(&self, now: Timestamp) -> bool {
        now >= self.not_before
    }

    /// Does it let a rival go first that it knows of? Never twice in a row.
    fn gives_way(&mut self, rivalled: bool) -> bool {
        self.gave_way = rivalled && !self.gave_way;
        self.gave_way
    }

    fn refused(&mut self) {
        self.refusals += 1;
    }

    /// The more refusals, the longer.
    fn retry_delay(&self) -> Duration {
        RETRY_AFTER * (1 << self.refusals.min(16))
    }

    fn won(&mut self) {
        self.refusals = 0;
    }

    /// Somebody else was elected.
    fn ended(&mut self) {
        self.refusals = 0;
        self.gave_way = false;
    }
}

/// Terms in which this member knew a sequencer.
#[derive(Default)]
pub(crate) struct LedTerms {
    pub count: u64,
    pub newest: Term,
}

impl LedTerms {
    /// A link that was lost and came back is no change.
    fn note(&mut self, term: Term) {
        if term != self.newest {
            self.newest = term;
            self.count += 1;
        }
    }
}

/// Whose words count now: a branch and a term of it.
#[derive(Clone, Default)]
pub(crate) struct Era {
    pub branch: Uuid,
    /// Of that branch.
    pub lineage: Lineage,
    pub term: Term,
}

/// What only the sequencer keeps.
pub(crate) struct Sequencer {
    pub progress: BTreeMap<NodeId, Progress>,
    /// Index of this term's `Term` entry.
    pub term_start: LogIndex,
    /// The `Term` entry is committed: everything before it is, too.
    pub established: bool,
    /// Heartbeat round.
    pub round: u64,
    /// Proposals that wait for a voter change to commit.
    pub blocked: VecDeque<(Session, u64, bool, Bytes)>,
    pub joiners: BTreeMap<NodeId, Joiner>,
    /// Members that want to leave, and since when that is known.
    pub leavers: BTreeMap<NodeId, Timestamp>,
    /// Members that turned non-primary and want a view of their own.
    pub fresh: BTreeSet<NodeId>,
    /// Voters that came back with a log of another branch: their vote goes before they get this one's log.
    pub strangers: BTreeSet<NodeId>,
    pub weights: BTreeMap<NodeId, Weight>,
    /// Since when those vote who got their votes from this sequencer.
    pub voting_since: BTreeMap<NodeId, Timestamp>,
    /// Since when an unlinked member is gone.
    pub gone: BTreeMap<NodeId, Timestamp>,
    pub reads: Vec<PendingRead>,
    pub handed_over_at: Option<Timestamp>,
    /// An operator was told that nobody else is let in.
    pub is_full: bool,
}

pub(crate) struct Joiner {
    pub member: Member,
    pub position: Option<(Uuid, trireme_types::Seqno)>,
}

impl Sequencer {
    fn new(term_start: LogIndex) -> Sequencer {
        Sequencer {
            progress: BTreeMap::new(),
            term_start,
            established: false,
            round: 0,
            blocked: VecDeque::new(),
            joiners: BTreeMap::new(),
            leavers: BTreeMap::new(),
            fresh: BTreeSet::new(),
            strangers: BTreeSet::new(),
            weights: BTreeMap::new(),
            voting_since: BTreeMap::new(),
            gone: BTreeMap::new(),
            reads: Vec::new(),
            handed_over_at: None,
            is_full: false,
        }
    }
}

impl<S: LogStore> Group<S> {
    // --- timers ---------------------------------------------------------------------------------------------------

    pub(crate) fn arm_election(&mut self, now: Timestamp) {
        let base = self.cfg.timeouts.election;
        let jitter = self.random_below(base);
        let waits = self.may_stand() && !matches!(self.role, Role::Sequencer(_));
        if waits {
            self.timers.arm(Timer::Election, now.after(base + jitter));
        } else {
            self.timers.disarm(Timer::Election);
        }
    }

    /// A voter with a usable log, in a phase in which it may order; an arbitrator only for somebody else.
    pub(crate) fn may_stand(&self) -> bool {
        let me = self.me();
        let votes = |set: &VoterSet| set.weight(me) > 0;
        // A leaver too: with the better log it is the only one that can lead the others to it before it hands over.
        matches!(self.phase(), Phase::Joining | Phase::Primary | Phase::NonPrimary | Phase::Leaving)
            && self.standing().keeps_log()
            && !self.tail.history.is_nil()
            // The next term has to be one that others can read.
            && self.hard.term < TERM_MAX
            // A log that lost its end may have lost the newest voters with it: it does not know who decides.
            && self.tail.index >= self.hard.voters_committed
            && (votes(&self.tail.voters) || votes(&self.tail.voters_before))
            && (!self.arbitrates() || self.arbiter.stands())
    }

    pub(crate) fn on_election_timer(&mut self, now: Timestamp) {
        self.timers.disarm(Timer::Election);
        if matches!(self.role, Role::Sequencer(_)) || !self.may_stand() || self.is(Mutant::NeverStands) {
            return;
        }
        if !self.candidacy.may_begin(now) || self.defers(now) || self.waits_for_data(now) {
            return self.arm_election(now);
        }
        self.sequencer = None;
        self.arm_election(now);
        self.enter_era(self.tail.lineage.clone());
        let me = self.me();
        let ballot = Ballot { granted: Votes::from([(me, self.is_whole())]), ..Ballot::default() };
        if self.mandate(now, &ballot.granted).is_some() {
            return self.become_candidate(now, false);
        }
        self.role = Role::PreCandidate(ballot);
        let message = Content::PreVote { last: self.tail.end() }.in_term(self.tail.branch(), self.hard.term.next());
        self.to_voters(message);
    }

    fn to_voters(&mut self, message: Message) {
        let me = self.me();
        let mut nodes: BTreeSet<NodeId> = self.tail.voters.voters.iter().map(|v| v.node).collect();
        nodes.extend(self.tail.voters_before.voters.iter().map(|v| v.node));
        for node in nodes.into_iter().filter(|n| *n != me) {
            self.send(node, message.clone());
        }
    }

    // --- votes ----------------------------------------------------------------------------------------------------

    /// Is a sequencer heard that itself hears a majority (rule 6)?
    pub(crate) fn hears_sequencer(&self, now: Timestamp) -> bool {
        self.sequencer.is_some() && now.since(self.good_at) < self.cfg.timeouts.election
    }

    pub(crate) fn log_is_as_good(&self, last: LogEnd) -> bool {
        if self.is(Mutant::LongestLog) {
            return last.index >= self.tail.index;
        }
        last >= self.tail.end()
    }

    pub(crate) fn on_pre_vote(&mut self, now: Timestamp, from: NodeId, branch: Uuid, term: Term, last: LogEnd) {
        let lost = self.lost_branch_of(now, from, branch);
        if !lost && !self.is_own_branch(branch) {
            return;
        }
        self.remind(from, last);
        let as_good = lost || self.log_is_as_good(last);
        // A sequencer that asks is none any more.
        let led = self.hears_sequencer(now) && self.sequencer != Some(from);
        let granted = term > self.hard.term && as_good && !led;
        let (term, whole) = (self.hard.term, !lost && self.is_whole());
        let votes = self.is_asked(from);
        if let Role::PreCandidate(ballot) = &mut self.role {
            ballot.rivalled |= granted && votes && from < self.cfg.me.node;
        }
        self.send(from, Content::PreVoteReply { granted, whole }.in_term(branch, term));
        if !lost {
            self.hear_of_log(now, from, last);
        }
    }

    pub(crate) fn on_pre_vote_reply(&mut self, now: Timestamp, from: NodeId, term: Term, granted: bool, whole: bool) {
        if term > self.hard.term && !granted {
            self.adopt_term(now, term);
            return;
        }
        let Role::PreCandidate(ballot) = &mut self.role else { return };
        if !granted {
            ballot.refused.insert(from);
            return self.retry_if_lost(now);
        }
        ballot.granted.insert(from, whole);
        let (votes, rivalled) = (ballot.granted.clone(), ballot.rivalled);
        if self.mandate(now, &votes).is_none() || !self.may_stand() {
            return;
        }
        // Both would vote for themselves, and could do so again and again where messages take long. Never twice in a row: the
        // other may be one that cannot win.
        if self.candidacy.gives_way(rivalled) {
            // Answers that are still on their way would make it stand all the same.
            self.role = Role::Follower;
            return self.arm_election(now);
        }
        self.become_candidate(now, false);
    }

    /// Those that are left are no majority: somebody else stands at the same moment, has not noticed yet that the sequencer
    /// is gone, or has the better log. Asking again must not wait for a whole timeout, whose purpose is to notice silence;
    /// nor may it go on at that speed while somebody hears a sequencer that this member does not.
    fn retry_if_lost(&mut self, now: Timestamp) {
        let lost = match &self.role {
            Role::PreCandidate(ballot) | Role::Candidate(ballot) => !self.quorum(|n| !ballot.refused.contains(&n)),
            Role::Follower | Role::Sequencer(_) => false,
        };
        let delay = self.candidacy.retry_delay();
        if !lost || delay > self.cfg.timeouts.election {
            return;
        }
        self.candidacy.refused();
        let at = now.after(delay / 2 + self.random_below(delay / 2));
        self.timers.hasten(Timer::Election, at);
    }

    pub(crate) fn on_vote(
        &mut self,
        now: Timestamp,
        from: NodeId,
        branch: Uuid,
        term: Term,
        last: LogEnd,
        transfer: bool,
    ) {
        let lost = self.lost_branch_of(now, from, branch);
        if !lost && !self.is_own_branch(branch) {
            return;
        }
        if term < self.hard.term {
            let term = self.hard.term;
            return self.send(from, Content::VoteReply { granted: false, whole: false }.in_term(branch, term));
        }
        if !transfer && self.hears_sequencer(now) && self.sequencer != Some(from) {
            return;
        }
        if term > self.hard.term {
            self.adopt_term(now, term);
        }
        self.remind(from, last);
        let free = self.hard.voted_for == NodeId::default() || self.hard.voted_for == from;
        let granted = free
            && self.sequencer.is_none()
            && (lost || self.log_is_as_good(last))
            // A log that lost its end may have lost the newest voters with it.
            && last.index >= self.hard.voters_committed;
        if granted {
            if lost && self.store.suspect().is_none() && !self.begin_to_doubt() {
                return;
            }
            self.hard.voted_for = from;
            // The promise is on disk before it is given (rule 1).
            if !self.save_hard() {
                return;
            }
            if matches!(self.role, Role::PreCandidate(_)) {
                // Answers that are still on their way would make it stand against the one that has its vote.
                self.role = Role::Follower;
            }
            self.arm_election(now);
        }
        let (term, whole) = (self.hard.term, !lost && self.is_whole());
        self.send(from, Content::VoteReply { granted, whole }.in_term(branch, term));
    }

    pub(crate) fn on_vote_reply(&mut self, now: Timestamp, from: NodeId, term: Term, granted: bool, whole: bool) {
        if term > self.hard.term {
            return self.adopt_term(now, term);
        }
        let Role::Candidate(ballot) = &mut self.role else { return };
        if term != self.hard.term {
            return;
        }
        if !granted {
            ballot.refused.insert(from);
            return self.retry_if_lost(now);
        }
        ballot.granted.insert(from, whole);
        let votes = ballot.granted.clone();
        self.try_take_office(now, &votes);
    }

    /// A higher term was seen: whatever this member did in the old one is over.
    pub(crate) fn adopt_term(&mut self, now: Timestamp, term: Term) {
        assert!(term > self.hard.term);
        let ordered = matches!(self.role, Role::Sequencer(_));
        self.hard.term = term;
        self.hard.voted_for = NodeId::default();
        if self.save_hard() {
            self.become_follower(now, None);
            if ordered {
                // Unless that term has a sequencer, which is heard of then, nobody is better placed than this one; and it knows without any
                // silence that nobody orders.
                let jitter = self.random_below(RETRY_AFTER);
                self.timers.hasten(Timer::Election, now.after(jitter));
            }
        }
    }

    // --- roles ----------------------------------------------------------------------------------------------------

    /// `sequencer`: whom to follow, and on which branch.
    pub(crate) fn become_follower(&mut self, now: Timestamp, sequencer: Option<(NodeId, Lineage)>) {
        self.role = Role::Follower;
        self.timers.disarm(Timer::Heartbeat);
        self.timers.disarm(Timer::Bodies);
        self.held.clear();
        self.acked = None;
        let (sequencer, lineage) = match sequencer {
            Some((node, lineage)) => (Some(node), lineage),
            None => (None, self.tail.lineage.clone()),
        };
        self.enter_era(lineage);
        let changed = self.sequencer != sequencer;
        self.sequencer = sequencer;
        if sequencer.is_some() {
            self.arbiter.sit();
        }
        self.arm_election(now);
        if changed {
            self.announce_term();
            if sequencer.is_some() {
                self.candidacy.ended();
                self.resend_pending();
                self.resend_reads(now);
            }
        }
    }

    /// From now on the own branch, or the one of the sequencer that is followed, counts, in the present term.
    pub(crate) fn enter_era(&mut self, lineage: Lineage) {
        let branch = lineage.branch(self.tail.history);
        if (self.era.branch, self.era.term) != (branch, self.hard.term) {
            // Nothing is known of the new sequencer's log before it was compared; after a fork not even what is committed
            // here. Within one term, what was compared stays compared: its sequencer would not send it again.
            if !self.is(Mutant::AcksKept) {
                self.acks.clear();
            }
            self.acked = None;
            self.verified = LogIndex::ZERO;
            self.suspicion.forget_acknowledged();
            self.claimed_commit = self.commit;
        }
        if self.era.branch != branch {
            self.suspicion.forget_all_of_peers();
        }
        self.era = Era { branch, lineage, term: self.hard.term };
    }

    fn announce_term(&mut self) {
        let (term, sequencer) = (self.hard.term, self.sequencer);
        // Not a link that was lost and came back.
        if sequencer.is_some() {
            self.led_terms.note(term);
        }
        self.out.push_back(Output::Event(Event::TermChanged { term, sequencer }));
    }

    pub(crate) fn become_candidate(&mut self, now: Timestamp, transfer: bool) {
        let me = self.me();
        self.hard.term = self.hard.term.next();
        self.hard.voted_for = me;
        if !self.save_hard() {
            return;
        }
        self.become_follower(now, None);
        let votes = Votes::from([(me, self.is_whole())]);
        self.role = Role::Candidate(Ballot { granted: votes.clone(), ..Ballot::default() });
        if self.try_take_office(now, &votes) {
            return;
        }
        let message = Content::Vote { last: self.tail.end(), transfer }.in_term(self.tail.branch(), self.hard.term);
        self.to_voters(message);
    }

    /// Takes over without asking: a bootstrap, or a forced primary component. `voters`, if any, are written first and
    /// alone decide about themselves.
    pub(crate) fn take_over(&mut self, now: Timestamp, voters: Option<VoterSet>) {
        let highest = self.plausible_term_heard(now);
        // Two sides of a cut may do this at the same time and choose the same term: the fork's id tells them apart (rule 13).
        self.hard.term = self.hard.term.max(highest).next();
        self.hard.voted_for = self.me();
        if self.save_hard() {
            self.become_follower(now, None);
            self.become_sequencer(now, voters);
        }
    }

    pub(crate) fn become_sequencer(&mut self, now: Timestamp, voters: Option<VoterSet>) {
        assert_eq!(self.hard.voted_for, self.me());
        if voters.as_ref().is_some_and(|v| !v.fork.is_nil()) && self.is_forked_out() {
            self.log(true, "not forced: this history has been forced too often; bootstrap a new one".into());
            return self.become_follower(now, None);
        }
        let me = self.me();
        self.timers.disarm(Timer::Election);
        self.timers.disarm(Timer::Bodies);
        self.held.clear();
        if !self.is(Mutant::AcksKept) {
            self.acks.clear();
        }
        self.acked = None;
        self.sequencer = Some(me);
        self.candidacy.won();
        self.good_at = now;
        let before = self.tail.index;
        let start = if voters.is_some() { before.next().next() } else { before.next() };
        let mut state = Sequencer::new(start);
        for m in &self.tail.view.members {
            if m.node != me && !self.peers.contains_key(&m.node) {
                state.gone.insert(m.node, self.gone.get(&m.node).copied().unwrap_or(now));
            }
        }
        self.role = Role::Sequencer(Box::new(state));
        self.verified = before;
        if let Some(voters) = voters {
            if !self.append_voters(&voters) {
                return;
            }
            self.enter_era(self.tail.lineage.clone());
            self.verified = self.tail.index;
            // Before anything that carries the new branch's name.
            self.send_presence(now);
        }
        let named = if self.tail.level >= Level::NAMED_TERMS { encode_term(&self.cfg.me) } else { Bytes::new() };
        if !self.append_own(EntryKind::Term, Session::default(), 0, named) {
            return;
        }
        let linked: Vec<NodeId> = self.peers.keys().copied().collect();
        for node in linked {
            self.track(now, node);
        }
        self.announce_term();
        self.on_heartbeat_timer(now);
        self.resend_pending();
        self.resend_reads(now);
        self.note_own_ack(now);
    }

    /// Sequencer: replicate to a linked peer that votes or is in the view.
    pub(crate) fn track(&mut self, now: Timestamp, node: NodeId) {
        let belongs = self.tail.voters.contains(node)
            || self.tail.voters_before.contains(node)
            || self.tail.view.get(node).is_some();
        let (tail, first) = (self.tail.index, self.store.first());
        let next = match &self.role {
            Role::Sequencer(s) => s.term_start.min(tail.next()),
            Role::Follower | Role::PreCandidate(_) | Role::Candidate(_) => return,
        };
        // Its log must be known to be of this branch, or of one that this one grew from: it may have lost the fork that it voted behind.
        // One that votes here and has another log comes back as a joiner without a vote.
        let (belongs, next) = match self.kinship_of(node) {
            Some(Kinship::Same) => (belongs, next),
            Some(Kinship::Ancestor) => {
                let theirs = self.peers.get(&node).and_then(|p| p.told());
                let fork = theirs.and_then(|p| match p.lineage.kinship(&self.tail.lineage) {
                    Kinship::Descendant(fork) => Some(fork.index.min(p.last_index.next())),
                    Kinship::Same | Kinship::Ancestor | Kinship::Sibling => None,
                });
                (belongs && fork.is_some(), fork.unwrap_or(next).min(next))
            }
            Some(Kinship::Descendant(_) | Kinship::Sibling) | None => (false, next),
        };
        if let Role::Sequencer(s) = &mut self.role {
            s.gone.remove(&node);
            match s.progress.get_mut(&node) {
                Some(p) => {
                    let heard_of = p.matched.next().min(p.next);
                    // It may hold more than was heard of. It is asked, before a state is offered that would replace its log and
                    // its data, which may be the only ones (rule 10).
                    let next = if heard_of < first { p.next.max(first).min(tail.next()) } else { heard_of };
                    p.heard = now;
                    p.snapshot_since = None;
                    p.snapshots = 0;
                    p.restart(next, tail);
                }
                None if belongs => {
                    s.progress.insert(node, Progress::new(next, tail, now));
                }
                None => {}
            }
        }
    }

    // --- heartbeats -----------------------------------------------------------------------------------------------

    /// Is this the sequencer of the newest term? Then this member follows it.
    pub(crate) fn follow(&mut self, now: Timestamp, from: NodeId, branch: Uuid, term: Term) -> bool {
        let lineage = if self.is_own_branch(branch) {
            self.tail.lineage.clone()
        } else if let Some(lineage) = self.may_change_to(now, from, branch, term) {
            lineage
        } else {
            return false;
        };
        if term < self.hard.term {
            // A deposed sequencer learns of its successor's term.
            let term = self.hard.term;
            self.send(from, Content::HeartbeatAck { round: 0 }.in_term(branch, term));
            return false;
        }
        if from == self.me() {
            return false;
        }
        if term > self.hard.term {
            self.adopt_term(now, term);
            if self.phase() == Phase::Failed {
                return false;
            }
        }
        if self.sequencer != Some(from) || self.era.branch != lineage.branch(self.tail.history) {
            if matches!(self.role, Role::Sequencer(_)) {
                // Two sequencers of one term cannot be; whoever says so is not believed.
                return false;
            }
            self.become_follower(now, Some((from, lineage)));
            if self.phase() == Phase::Leaving {
                // Before anything is acknowledged, and so before that one can take this member for its heir: it may leave as well.
                self.continue_leave(now);
            }
        }
        self.arm_election(now);
        true
    }

    /// The lineage of the sequencer of another branch, if that one may be followed: this log's branch grew into it by a fork, nothing was
    /// committed beyond that here, and the own branch has nobody who leads it.
    fn may_change_to(&mut self, now: Timestamp, from: NodeId, branch: Uuid, term: Term) -> Option<Lineage> {
        let theirs = self.peers.get(&from)?.told()?;
        if theirs.history != self.tail.history || theirs.lineage.branch(theirs.history) != branch {
            return None;
        }
        let lineage = theirs.lineage.clone();
        let Kinship::Descendant(fork) = self.tail.lineage.kinship(&lineage) else { return None };
        let led = self.era.branch == self.tail.branch() && self.hears_sequencer(now);
        if led || !matches!(self.phase(), Phase::Joining | Phase::NonPrimary) {
            return None;
        }
        if !self.standing().keeps_log() {
            // It hears of the term, which it has to be above.
            self.hear_of_rival(now);
            return Some(lineage);
        }
        if !self.can_follow(&fork) {
            if self.may_overrule(now, from) {
                if term == self.hard.term && self.only_data_keep_it_from(from, &fork) {
                    self.become_diverged(None);
                } else {
                    self.become_yielding(now, Rival::Branch);
                }
            }
            return None;
        }
        Some(lineage)
    }

    /// Does a linked peer stand on a branch that was forced while this member was away? It was in the primary component that this
    /// member last knew of, so its branch goes before the old voters' one; but not for ever, since its own voters may never come.
    fn defers(&self, now: Timestamp) -> bool {
        now.since(self.good_at) < self.cfg.timeouts.inactive
            && self.peers.keys().any(|node| {
                self.tail.view.get(*node).is_some() && matches!(self.kinship_of(*node), Some(Kinship::Descendant(_)))
            })
    }

    pub(crate) fn on_heartbeat(&mut self, now: Timestamp, from: NodeId, heartbeat: Envelope<Heartbeat>) {
        let Envelope { branch, term, content: Heartbeat { commit, last, round, majority } } = heartbeat;
        if !self.follow(now, from, branch, term) {
            return;
        }
        if majority {
            self.good_at = now;
            self.plan_repair(term, last);
        }
        self.claimed_commit = self.claimed_commit.max(commit);
        self.advance_commit(now);
        self.send(from, Content::HeartbeatAck { round }.in_term(branch, term));
    }

    pub(crate) fn on_heartbeat_ack(&mut self, now: Timestamp, from: NodeId, term: Term, round: u64) {
        if term > self.hard.term {
            if self.may_end_term(now, from) {
                self.adopt_term(now, term);
            }
            return;
        }
        if term < self.hard.term {
            return;
        }
        if let Some(p) = self.progress_of(from) {
            p.heard = now;
            p.round = p.round.max(round);
            self.answer_reads(now);
        }
        if matches!(&self.role, Role::Sequencer(s) if !s.leavers.is_empty()) {
            self.step_membership(now);
        }
    }

    /// Was a majority in touch with this member's sequencer within the last election timeout, as far as is heard here? A sequencer that hears none
    /// goes on for one timeout more, and then steps down: who asks from outside learns of it before.
    pub fn hears_majority(&self, now: Timestamp) -> bool {
        match &self.role {
            Role::Sequencer(_) => self.majority_heard(now),
            Role::Follower | Role::PreCandidate(_) | Role::Candidate(_) => self.hears_sequencer(now),
        }
    }

    /// Does the sequencer hear a majority?
    pub(crate) fn majority_heard(&self, now: Timestamp) -> bool {
        let Role::Sequencer(s) = &self.role else { return false };
        let limit = self.cfg.timeouts.election;
        let me = self.me();
        self.quorum(|n| n == me || s.progress.get(&n).is_some_and(|p| now.since(p.heard) < limit))
    }

    pub(crate) fn on_heartbeat_timer(&mut self, now: Timestamp) {
        if !matches!(self.role, Role::Sequencer(_)) {
            self.timers.disarm(Timer::Heartbeat);
            return;
        }
        let majority = self.majority_heard(now);
        if majority {
            self.good_at = now;
        } else if now.since(self.good_at) > self.cfg.timeouts.election {
            // It sends and hears nothing: somebody else may do better (rule 6).
            self.become_follower(now, None);
            return;
        }
        self.timers.arm(Timer::Heartbeat, now.after(self.cfg.timeouts.heartbeat));
        self.send_heartbeats(now, majority);
    }

    pub(crate) fn send_heartbeats(&mut self, now: Timestamp, majority: bool) {
        let (commit, last) = (self.commit, self.tail.index);
        let mute_after = self.cfg.timeouts.election * 2;
        let Role::Sequencer(s) = &mut self.role else { return };
        s.round += 1;
        let round = s.round;
        let nodes: Vec<(NodeId, bool)> =
            s.progress.iter().map(|(n, p)| (*n, now.since(p.heard) < mute_after)).collect();
        for (node, heard) in nodes {
            // One that is not heard can have nothing ordered, and must not believe that it is served.
            let heartbeat = Heartbeat { commit, last, round, majority: majority && heard };
            self.send_in_term(node, Content::Heartbeat(heartbeat));
        }
    }

    // --- links ----------------------------------------------------------------------------------------------------

    pub(crate) fn on_link_up(&mut self, now: Timestamp, node: NodeId) {
        // The first word: on which branch of which history this member stands (rule 13).
        self.send_presence_to(now, node);
        self.send_recall(node);
        self.send_level_limit_to(node);
        if matches!(self.role, Role::Sequencer(_)) {
            self.track(now, node);
            // The newcomer hears of its sequencer at once.
            self.timers.arm(Timer::Heartbeat, now);
        } else if self.sequencer == Some(node) {
            // A new connection under an old one's name: what was sent may be lost.
            self.held.clear();
            self.resend_pending();
            self.resend_reads(now);
        }
        if matches!(self.phase(), Phase::Joining | Phase::NonPrimary) {
            self.send_join_to(node);
        }
    }

    pub(crate) fn on_link_down(&mut self, now: Timestamp, node: NodeId) {
        if let Role::Sequencer(s) = &mut self.role {
            s.gone.insert(node, self.gone.get(&node).copied().unwrap_or(now));
            s.joiners.remove(&node);
            if !self.tail.voters.contains(node) && self.tail.view.get(node).is_none() {
                if let Role::Sequencer(s) = &mut self.role {
                    s.progress.remove(&node);
                }
            }
        }
        if self.sequencer == Some(node) {
            self.sequencer = None;
            self.held.clear();
            if self.may_stand() {
                // A dead connection needs no patience; pre-vote guards against mistakes.
                let jitter = self.random_below(Duration::from_millis(50));
                self.timers.arm(Timer::Election, now.after(jitter));
            }
        }
    }
}
