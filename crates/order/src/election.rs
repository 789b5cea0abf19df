//! Elections: heartbeats, pre-vote, votes, terms.
//!
//! Raft's election (Ongaro, Ousterhout 2014, sections 5.2, 5.4 and the thesis' 9.6 pre-vote) over the log of
//! Viewstamped Replication's shape: the first entry of every term is a `Term` entry, so comparing (last entry's term,
//! length) is comparing (last-normal term, length), which is rule 1.

use std::collections::BTreeSet;
use std::time::Duration;

use trireme_types::{Kinship, Lineage, NodeId, TERM_MAX, Term, Timestamp, Uuid, VoterSet};

use crate::group::Group;
use crate::mutant::Mutant;
use crate::replication::Progress;
use crate::role::{Role, Votes};
use crate::standing::Rival;
use crate::suspicion::Lack;
use crate::timers::Timer;
use crate::{Content, Envelope, Heartbeat, LogEnd, LogStore, Message, Phase};

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
    /// A voter whose log is worse asked for this member's vote, which this member's own log does not name any more, or not yet.
    called: bool,
}

impl Candidacy {
    pub fn new(now: Timestamp) -> Candidacy {
        Candidacy { not_before: now, refusals: 0, gave_way: false, called: false }
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

    pub fn won(&mut self) {
        self.refusals = 0;
        self.called = false;
    }

    /// Somebody else was elected.
    pub fn ended(&mut self) {
        self.refusals = 0;
        self.gave_way = false;
        self.called = false;
    }
}

/// Terms in which this member knew a sequencer.
#[derive(Default)]
pub(crate) struct LedTerms {
    /// Since the start. For operators, who are told of changes by it.
    pub count: u64,
    /// The newest of them: a member of a primary component in an earlier term than the promised one does not go on.
    pub newest: Term,
}

impl LedTerms {
    /// A link that was lost and came back is no change.
    pub fn note(&mut self, term: Term) {
        if term != self.newest {
            self.newest = term;
            self.count += 1;
        }
    }
}

impl<S: LogStore> Group<S> {
    // --- timers ---------------------------------------------------------------------------------------------------

    pub(crate) fn arm_election(&mut self, now: Timestamp) {
        let base = self.cfg.timeouts.election;
        let jitter = self.random_below(base);
        let waits = self.may_stand() && !self.leads();
        if waits {
            self.timers.arm(Timer::Election, now.after(base + jitter));
        } else {
            self.timers.disarm(Timer::Election);
        }
    }

    /// A voter with a usable log, in a phase in which it may order; an arbitrator only for somebody else. One without a vote only if it is
    /// called (Ongaro's thesis, 4.2.2).
    pub(crate) fn may_stand(&self) -> bool {
        let me = self.me();
        let votes = |set: &VoterSet| set.weight(me) > 0;
        // A leaver too: with the better log it is the only one that can lead the others to it before it hands over.
        matches!(self.phase(), Phase::Joining | Phase::Primary | Phase::NonPrimary | Phase::Leaving)
            && self.standing().keeps_log()
            && !self.own.tail().history.is_nil()
            // The next term has to be one that others can read.
            && self.own.term() < TERM_MAX
            && !self.own.lacks_committed_voters()
            && (votes(&self.own.tail().voters) || votes(&self.own.tail().voters_before) || self.candidacy.called)
            && (!self.arbitrates() || self.arbiter.stands())
    }

    pub(crate) fn on_election_timer(&mut self, now: Timestamp) {
        self.timers.disarm(Timer::Election);
        if self.leads() || !self.may_stand() || self.is(Mutant::NeverStands) {
            return;
        }
        if !self.candidacy.may_begin(now) || self.defers(now) || self.waits_for_data(now) {
            return self.arm_election(now);
        }
        self.become_leaderless();
        self.arm_election(now);
        self.enter_era(self.own.tail().lineage.clone());
        let votes = Votes::from([(self.me(), self.is_whole())]);
        if self.mandate(now, &votes).is_some() {
            return self.become_candidate(now, false);
        }
        self.become_pre_candidate(votes);
        let message =
            Content::PreVote { last: self.own.tail().end() }.in_term(self.own.tail().branch(), self.own.term().next());
        self.to_voters(message);
    }

    pub(crate) fn to_voters(&mut self, message: Message) {
        let me = self.me();
        let mut nodes: BTreeSet<NodeId> = self.own.tail().voters.voters.iter().map(|v| v.node).collect();
        nodes.extend(self.own.tail().voters_before.voters.iter().map(|v| v.node));
        for node in nodes.into_iter().filter(|n| *n != me) {
            self.send(node, message.clone());
        }
    }

    // --- votes ----------------------------------------------------------------------------------------------------

    /// Is a sequencer heard that itself hears a majority (rule 6)?
    pub(crate) fn hears_sequencer(&self, now: Timestamp) -> bool {
        self.sequencer().is_some() && now.since(self.good_at) < self.cfg.timeouts.election
    }

    pub(crate) fn log_is_as_good(&self, last: LogEnd) -> bool {
        if self.is(Mutant::LongestLog) {
            return last.index >= self.own.tail().index;
        }
        last >= self.own.tail().end()
    }

    pub(crate) fn on_pre_vote(&mut self, now: Timestamp, from: NodeId, branch: Uuid, term: Term, last: LogEnd) {
        let lost = self.lost_branch_of(now, from, branch);
        if !lost && !self.is_own_branch(branch) {
            return;
        }
        self.remind(from, last);
        let as_good = lost || self.log_is_as_good(last);
        // A sequencer that asks is none any more.
        let led = self.hears_sequencer(now) && self.sequencer() != Some(from);
        let granted =
            term > self.own.term() && as_good && !led && !self.would_lose_half_done(from) && !self.awaits_own_disk();
        let (term, whole) = (self.own.term(), !lost && self.is_whole());
        let votes = self.is_asked(from);
        if let Some(ballot) = self.role.asking_mut() {
            ballot.rivalled |= granted && votes && from < self.cfg.me.node;
        }
        self.send(from, Content::PreVoteReply { granted, whole }.in_term(branch, term));
        if !lost {
            self.hear_of_log(now, from, last);
        }
        if !as_good && !led && votes {
            self.be_called();
        }
    }

    /// A voter asks for a vote that this member has by the voter's log and not by its own, which is the better one. So the voter cannot be elected
    /// without this member, which refuses, and the others may not be elected for the voter's log. This member can be, by the votes of those
    /// whom its own log names. It stands no sooner than others do: where one of these wins, its log is not needed.
    ///
    /// Or the sequencer hands over to it.
    pub(crate) fn be_called(&mut self) {
        if !self.may_stand() {
            self.candidacy.called = true;
            self.candidacy.called = self.may_stand();
        }
    }

    pub(crate) fn on_pre_vote_reply(&mut self, now: Timestamp, from: NodeId, term: Term, granted: bool, whole: bool) {
        if term > self.own.term() && !granted {
            self.adopt_term(now, term);
            return;
        }
        let Some(ballot) = self.role.asking_mut() else { return };
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
            self.become_leaderless();
            return self.arm_election(now);
        }
        self.become_candidate(now, false);
    }

    /// Those that are left are no majority: somebody else stands at the same moment, has not noticed yet that the sequencer
    /// is gone, or has the better log. Asking again must not wait for a whole timeout, whose purpose is to notice silence;
    /// nor may it go on at that speed while somebody hears a sequencer that this member does not.
    fn retry_if_lost(&mut self, now: Timestamp) {
        let lost = match self.role() {
            Role::PreCandidate(ballot) | Role::Candidate(ballot) => !self.quorum(|n| !ballot.refused.contains(&n)),
            Role::Follower { .. } | Role::Sequencer(_) => false,
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
        if term < self.own.term() {
            let term = self.own.term();
            return self.send(from, Content::VoteReply { granted: false, whole: false }.in_term(branch, term));
        }
        if !transfer && self.hears_sequencer(now) && self.sequencer() != Some(from) {
            return;
        }
        if term > self.own.term() {
            self.adopt_term(now, term);
        }
        self.remind(from, last);
        let free = self.own.voted_for() == NodeId::default() || self.own.voted_for() == from;
        let granted = free
            && self.sequencer().is_none()
            && (lost || self.log_is_as_good(last))
            && !self.would_lose_half_done(from)
            && !self.awaits_own_disk()
            // A log that lost its end may have lost the newest voters with it.
            && last.index >= self.own.voters_committed();
        if granted {
            if lost && self.own.store().suspect().is_none() && !self.begin_to_doubt(Lack::Entries) {
                return;
            }
            // The promise is on disk before it is given (rule 1).
            if !self.promise(self.own.term(), from) {
                return;
            }
            if matches!(self.role(), Role::PreCandidate(_)) {
                // Answers that are still on their way would make it stand against the one that has its vote.
                self.become_leaderless();
            }
            self.arm_election(now);
        }
        let (term, whole) = (self.own.term(), !lost && self.is_whole());
        self.send(from, Content::VoteReply { granted, whole }.in_term(branch, term));
    }

    pub(crate) fn on_vote_reply(&mut self, now: Timestamp, from: NodeId, term: Term, granted: bool, whole: bool) {
        if term > self.own.term() {
            return self.adopt_term(now, term);
        }
        let Some(ballot) = self.role.standing_mut() else { return };
        if term != self.own.term() {
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
        assert!(term > self.own.term());
        let ordered = self.leads();
        if self.promise(term, NodeId::default()) {
            self.become_follower(now, None);
            if ordered {
                // Unless that term has a sequencer, which is heard of then, nobody is better placed than this one; and it knows without any
                // silence that nobody orders.
                let jitter = self.random_below(RETRY_AFTER);
                self.timers.hasten(Timer::Election, now.after(jitter));
            }
        }
    }

    /// Sequencer: replicate to a linked peer that votes or is in the view.
    pub(crate) fn track(&mut self, now: Timestamp, node: NodeId) {
        let belongs = self.own.tail().voters.contains(node)
            || self.own.tail().voters_before.contains(node)
            || self.own.tail().view.get(node).is_some();
        let (tail, first) = (self.own.tail().index, self.own.store().first());
        let Some(s) = self.role.leading() else { return };
        let next = s.term_start.min(tail.next());
        // Its log must be known to be of this branch, or of one that this one grew from: it may have lost the fork that it voted behind.
        // One that votes here and has another log comes back as a joiner without a vote.
        let (belongs, next) = match self.kinship_of(node) {
            Some(Kinship::Same) => (belongs, next),
            Some(Kinship::Ancestor) => {
                let theirs = self.peers.get(&node).and_then(|p| p.told());
                let fork = theirs.and_then(|p| match p.lineage.kinship(&self.own.tail().lineage) {
                    Kinship::Descendant(fork) => Some(fork.index.min(p.last_index.next())),
                    Kinship::Same | Kinship::Ancestor | Kinship::Sibling => None,
                });
                (belongs && fork.is_some(), fork.unwrap_or(next).min(next))
            }
            Some(Kinship::Descendant(_) | Kinship::Sibling) | None => (false, next),
        };
        if let Some(s) = self.role.leading_mut() {
            s.missing_since.remove(&node);
            match s.progress.get_mut(&node) {
                Some(p) => {
                    let heard_of = p.matched.next().min(p.next);
                    // It may hold more than was heard of. It is asked, before a state is offered that would replace its log and
                    // its data, which may be the only ones (rule 10).
                    let next = if heard_of < first { p.next.max(first).min(tail.next()) } else { heard_of };
                    p.relink(now, next, tail);
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
            self.own.tail().lineage.clone()
        } else if let Some(lineage) = self.may_change_to(now, from, branch, term) {
            lineage
        } else {
            return false;
        };
        if term < self.own.term() {
            // A deposed sequencer learns of its successor's term.
            let term = self.own.term();
            self.send(from, Content::HeartbeatAck { round: 0 }.in_term(branch, term));
            return false;
        }
        if from == self.me() {
            return false;
        }
        if term > self.own.term() {
            self.adopt_term(now, term);
            if self.phase() == Phase::Failed {
                return false;
            }
        }
        if self.sequencer() != Some(from) || self.era.branch() != lineage.branch(self.own.tail().history) {
            if self.leads() {
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
        if theirs.history != self.own.tail().history || theirs.lineage.branch(theirs.history) != branch {
            return None;
        }
        let lineage = theirs.lineage.clone();
        let Kinship::Descendant(fork) = self.own.tail().lineage.kinship(&lineage) else { return None };
        let led = self.era.branch() == self.own.tail().branch() && self.hears_sequencer(now);
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
                if term == self.own.term() && self.only_data_keep_it_from(from, &fork) {
                    self.become_diverged(None);
                } else {
                    self.become_yielding(now, Rival::Branch);
                }
            }
            return None;
        }
        Some(lineage)
    }

    /// Does a linked peer stand on a branch that was forced while this member was away? That peer was in the primary component that this
    /// member last knew of, so this member does not stand for the branch of the old voters. But not for ever: the voters of the forced branch may
    /// never come.
    fn defers(&self, now: Timestamp) -> bool {
        now.since(self.good_at) < self.cfg.timeouts.inactive
            && self.peers.keys().any(|node| {
                self.own.tail().view.get(*node).is_some()
                    && matches!(self.kinship_of(*node), Some(Kinship::Descendant(_)))
            })
    }

    pub(crate) fn on_heartbeat(&mut self, now: Timestamp, from: NodeId, heartbeat: Envelope<Heartbeat>) {
        let Envelope { branch, term, content: Heartbeat { commit, last, round, majority } } = heartbeat;
        if !self.follow(now, from, branch, term) {
            if self.lost_all() && self.own.voted_for() == from && self.own.term() == term {
                // It follows once it has a state, however long that takes. Its promise holds meanwhile.
                self.send(from, Content::HeartbeatAck { round }.in_term(branch, term));
            }
            return;
        }
        // It was elected by evidence, whether or not a majority hears it now.
        self.plan_repair(term, last);
        if majority {
            self.good_at = now;
            if self.standing().is_doubled() {
                // On its own branch a member that gives way may follow the other before that one's state is here, or is taken.
                self.hear_of_rival(now);
            }
        }
        self.era.claim_commit(commit);
        self.advance_commit(now);
        self.send(from, Content::HeartbeatAck { round }.in_term(branch, term));
    }

    pub(crate) fn on_heartbeat_ack(&mut self, now: Timestamp, from: NodeId, term: Term, round: u64) {
        if term > self.own.term() {
            if self.may_end_term(now, from) {
                self.adopt_term(now, term);
            }
            return;
        }
        if term < self.own.term() {
            return;
        }
        if let Some(p) = self.progress_of(from) {
            p.heard = now;
            p.round = p.round.max(round);
            self.answer_reads(now);
        }
        if self.role.leading().is_some_and(|s| !s.leavers.is_empty()) || self.leads() && self.evicts_a_member() {
            self.step_membership(now);
        }
    }

    /// Was a majority in touch with this member's sequencer within the last election timeout, as far as is heard here? A sequencer that hears none
    /// goes on for one timeout more, and then steps down: who asks from outside learns of it before.
    pub fn hears_majority(&self, now: Timestamp) -> bool {
        if self.leads() { self.majority_heard(now) } else { self.hears_sequencer(now) }
    }

    /// Does the sequencer hear a majority?
    pub(crate) fn majority_heard(&self, now: Timestamp) -> bool {
        let Some(s) = self.role.leading() else { return false };
        let limit = self.cfg.timeouts.election;
        let me = self.me();
        self.quorum(|n| n == me || s.progress.get(&n).is_some_and(|p| now.since(p.heard) < limit))
    }

    pub(crate) fn on_heartbeat_timer(&mut self, now: Timestamp) {
        if !self.leads() {
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
        let (commit, last) = (self.commit, self.own.tail().index);
        let mute_after = self.cfg.timeouts.election * 2;
        let Some(s) = self.role.leading_mut() else { return };
        let round = s.begin_round(now);
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
        if self.leads() {
            self.forget_reads_of(node);
            self.track(now, node);
            // The newcomer hears of its sequencer at once.
            self.timers.arm(Timer::Heartbeat, now);
        } else if self.sequencer() == Some(node) {
            // A new connection under an old one's name: what was sent may be lost.
            self.era.drop_held();
            self.resend_pending();
            self.resend_reads(now);
        }
        if matches!(self.phase(), Phase::Joining | Phase::NonPrimary) {
            self.send_join_to(node);
        }
    }

    pub(crate) fn on_link_down(&mut self, now: Timestamp, node: NodeId) {
        if let Some(s) = self.role.leading_mut() {
            s.missing_since.insert(node, self.gone.get(&node).copied().unwrap_or(now));
            s.joiners.remove(&node);
            if !self.own.tail().voters.contains(node) && self.own.tail().view.get(node).is_none() {
                if let Some(s) = self.role.leading_mut() {
                    s.progress.remove(&node);
                }
            }
        }
        if self.sequencer() == Some(node) {
            self.become_leaderless();
            self.era.drop_held();
            if self.may_stand() {
                // A dead connection needs no patience; pre-vote guards against mistakes.
                let jitter = self.random_below(Duration::from_millis(50));
                self.timers.arm(Timer::Election, now.after(jitter));
            }
        }
    }
}
