//! Who orders: heartbeats, pre-vote, votes, terms.
//!
//! Raft's election (Ongaro, Ousterhout 2014, sections 5.2, 5.4 and the thesis' 9.6 pre-vote) over the log of
//! Viewstamped Replication's shape: the first entry of every term is a `Term` entry, so comparing (last entry's term,
//! length) is comparing (last-normal term, length), which is SAFETY 1.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use trireme_types::{EntryKind, LogIndex, Member, NodeId, Session, Term, Timestamp, Uuid, VoterSet, Weight};

use crate::group::Group;
use crate::mutant::Mutant;
use crate::reads::PendingRead;
use crate::replication::Progress;
use crate::{Event, LogStore, Message, Output, Phase};

/// What this member does in the present term.
pub(crate) enum Role {
    Follower,
    /// Asks whether an election would be welcome.
    PreCandidate(BTreeSet<NodeId>),
    Candidate(BTreeSet<NodeId>),
    Sequencer(Box<Sequencer>),
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
    pub leavers: BTreeSet<NodeId>,
    /// Members that turned non-primary and want a view of their own.
    pub fresh: BTreeSet<NodeId>,
    pub weights: BTreeMap<NodeId, Weight>,
    /// Since when an unlinked member is gone.
    pub gone: BTreeMap<NodeId, Timestamp>,
    pub reads: Vec<PendingRead>,
    pub handed_over_at: Option<Timestamp>,
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
            leavers: BTreeSet::new(),
            fresh: BTreeSet::new(),
            weights: BTreeMap::new(),
            gone: BTreeMap::new(),
            reads: Vec::new(),
            handed_over_at: None,
        }
    }
}

impl<S: LogStore> Group<S> {
    // --- timers ---------------------------------------------------------------------------------------------------

    pub(crate) fn arm_election(&mut self, now: Timestamp) {
        let base = self.cfg.timeouts.election;
        let jitter = self.random_below(base);
        self.at_election = self.may_stand().then(|| now.after(base + jitter));
    }

    /// A voter with a usable log, in a phase in which it may order.
    pub(crate) fn may_stand(&self) -> bool {
        let me = self.me();
        let votes = |set: &VoterSet| set.weight(me) > 0;
        // A leaver too: with the better log it is the only one that can lead the others to it before it hands over.
        matches!(self.phase, Phase::Joining | Phase::Primary | Phase::NonPrimary | Phase::Leaving)
            && !self.needs_snapshot
            && !self.tail.history.is_nil()
            && (votes(&self.tail.voters) || votes(&self.tail.voters_before))
    }

    pub(crate) fn on_election_timer(&mut self, now: Timestamp) {
        self.at_election = None;
        if matches!(self.role, Role::Sequencer(_)) || !self.may_stand() {
            return;
        }
        self.sequencer = None;
        self.arm_election(now);
        let me = self.me();
        let granted = BTreeSet::from([me]);
        if self.quorum(|n| granted.contains(&n)) {
            return self.become_candidate(now, false);
        }
        self.role = Role::PreCandidate(granted);
        let message = Message::PreVote {
            history: self.tail.history,
            term: self.hard.term.next(),
            last_term: self.tail.term,
            last_index: self.tail.index,
        };
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

    /// Is a sequencer heard that itself hears a majority (SAFETY 6)?
    pub(crate) fn hears_sequencer(&self, now: Timestamp) -> bool {
        self.sequencer.is_some() && now.since(self.good_at) < self.cfg.timeouts.election
    }

    fn log_is_as_good(&self, last_term: Term, last_index: LogIndex) -> bool {
        if self.is(Mutant::LongestLog) {
            return last_index >= self.tail.index;
        }
        (last_term, last_index) >= (self.tail.term, self.tail.index)
    }

    pub(crate) fn on_pre_vote(
        &mut self,
        now: Timestamp,
        from: NodeId,
        history: Uuid,
        term: Term,
        last_term: Term,
        last_index: LogIndex,
    ) {
        if !self.is_own_history(history) {
            return;
        }
        let granted = term > self.hard.term && self.log_is_as_good(last_term, last_index) && !self.hears_sequencer(now);
        let term = self.hard.term;
        self.send(from, Message::PreVoteReply { term, granted });
    }

    pub(crate) fn on_pre_vote_reply(&mut self, now: Timestamp, from: NodeId, term: Term, granted: bool) {
        if term > self.hard.term && !granted {
            self.adopt_term(now, term);
            return;
        }
        let Role::PreCandidate(votes) = &mut self.role else { return };
        if granted {
            votes.insert(from);
            let votes = votes.clone();
            if self.quorum(|n| votes.contains(&n)) && self.may_stand() {
                self.become_candidate(now, false);
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn on_vote(
        &mut self,
        now: Timestamp,
        from: NodeId,
        history: Uuid,
        term: Term,
        last_term: Term,
        last_index: LogIndex,
        transfer: bool,
    ) {
        if !self.is_own_history(history) {
            return;
        }
        if term < self.hard.term {
            let term = self.hard.term;
            return self.send(from, Message::VoteReply { term, granted: false });
        }
        if !transfer && self.hears_sequencer(now) && self.sequencer != Some(from) {
            return;
        }
        if term > self.hard.term {
            self.adopt_term(now, term);
        }
        let free = self.hard.voted_for == NodeId::default() || self.hard.voted_for == from;
        let granted = free && self.sequencer.is_none() && self.log_is_as_good(last_term, last_index);
        if granted {
            self.hard.voted_for = from;
            // The promise is on disk before it is given (SAFETY 1).
            if !self.save_hard() {
                return;
            }
            self.arm_election(now);
        }
        let term = self.hard.term;
        self.send(from, Message::VoteReply { term, granted });
    }

    pub(crate) fn on_vote_reply(&mut self, now: Timestamp, from: NodeId, term: Term, granted: bool) {
        if term > self.hard.term {
            return self.adopt_term(now, term);
        }
        let Role::Candidate(votes) = &mut self.role else { return };
        if term == self.hard.term && granted {
            votes.insert(from);
            let votes = votes.clone();
            if self.quorum(|n| votes.contains(&n)) {
                self.become_sequencer(now, None);
            }
        }
    }

    /// A higher term was seen: whatever this member did in the old one is over.
    pub(crate) fn adopt_term(&mut self, now: Timestamp, term: Term) {
        debug_assert!(term > self.hard.term);
        self.hard.term = term;
        self.hard.voted_for = NodeId::default();
        if self.save_hard() {
            self.become_follower(now, None);
        }
    }

    // --- roles ----------------------------------------------------------------------------------------------------

    pub(crate) fn become_follower(&mut self, now: Timestamp, sequencer: Option<NodeId>) {
        self.role = Role::Follower;
        self.at_heartbeat = None;
        self.at_bodies = None;
        self.held.clear();
        self.acked = None;
        if self.facts_of != self.hard.term {
            // Nothing is known of the new sequencer's log before it was compared; after a fork not even what is committed
            // here. Within one term, what was compared stays compared: its sequencer would not send it again.
            self.facts_of = self.hard.term;
            if !self.is(Mutant::AcksKept) {
                self.acks.clear();
            }
            self.verified = LogIndex::ZERO;
            self.claimed_commit = self.commit;
        }
        let changed = self.sequencer != sequencer;
        self.sequencer = sequencer;
        self.arm_election(now);
        if changed {
            self.announce_term();
            if sequencer.is_some() {
                self.resend_pending();
                self.resend_reads(now);
            }
        }
    }

    fn announce_term(&mut self) {
        if self.sequencer.is_some() {
            self.term_changes += 1;
        }
        let (term, sequencer) = (self.hard.term, self.sequencer);
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
        let votes = BTreeSet::from([me]);
        if self.quorum(|n| votes.contains(&n)) {
            return self.become_sequencer(now, None);
        }
        self.role = Role::Candidate(votes);
        let message = Message::Vote {
            history: self.tail.history,
            term: self.hard.term,
            last_term: self.tail.term,
            last_index: self.tail.index,
            transfer,
        };
        self.to_voters(message);
    }

    /// Takes over without asking: a bootstrap, or a forced primary component. `voters`, if any, are written first and
    /// alone decide about themselves.
    pub(crate) fn take_over(&mut self, now: Timestamp, voters: Option<VoterSet>) {
        let highest = self.peers.values().filter_map(|p| p.presence.map(|_| p.presence_term)).max().unwrap_or_default();
        // Two sides of a cut may do this at the same time: a random step keeps their terms, and with them their entries,
        // apart. Without it two histories with equal (index, term) would merge silently (SAFETY 13).
        let step = self.random() & 0xffff_ffff;
        self.hard.term = Term(self.hard.term.max(highest).0 + 1 + step);
        self.hard.voted_for = self.me();
        if self.save_hard() {
            self.become_follower(now, None);
            self.become_sequencer(now, voters);
        }
    }

    pub(crate) fn become_sequencer(&mut self, now: Timestamp, voters: Option<VoterSet>) {
        debug_assert_eq!(self.hard.voted_for, self.me());
        let me = self.me();
        self.at_election = None;
        self.at_bodies = None;
        self.held.clear();
        if !self.is(Mutant::AcksKept) {
            self.acks.clear();
        }
        self.acked = None;
        self.sequencer = Some(me);
        self.good_at = now;
        let before = self.tail.index;
        let start = if voters.is_some() { before.next().next() } else { before.next() };
        let mut state = Sequencer::new(start);
        for m in &self.tail.view.members {
            if m.node != me && !self.peers.contains_key(&m.node) {
                state.gone.insert(m.node, self.gone.get(&m.node).copied().unwrap_or(now));
            }
        }
        if self.phase == Phase::NonPrimary {
            // The server was told of the loss and must be told of the return.
            state.fresh.insert(me);
        }
        self.role = Role::Sequencer(Box::new(state));
        self.verified = before;
        if let Some(voters) = voters {
            if !self.append_voters(&voters) {
                return;
            }
        }
        if !self.append_own(EntryKind::Term, Session::default(), 0, Bytes::new()) {
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
        let tail = self.tail.index;
        let next = match &self.role {
            Role::Sequencer(s) => s.term_start.min(tail.next()),
            Role::Follower | Role::PreCandidate(_) | Role::Candidate(_) => return,
        };
        if let Role::Sequencer(s) = &mut self.role {
            s.gone.remove(&node);
            match s.progress.get_mut(&node) {
                Some(p) => {
                    let next = p.matched.next().min(p.next);
                    p.heard = now;
                    p.snapshot_since = None;
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
    pub(crate) fn follow(&mut self, now: Timestamp, from: NodeId, history: Uuid, term: Term) -> bool {
        if !self.is_own_history(history) {
            return false;
        }
        if term < self.hard.term {
            // A deposed sequencer learns of its successor's term.
            let term = self.hard.term;
            self.send(from, Message::HeartbeatAck { term, round: 0 });
            return false;
        }
        if from == self.me() {
            return false;
        }
        if term > self.hard.term {
            self.adopt_term(now, term);
            if self.phase == Phase::Failed {
                return false;
            }
        }
        if self.sequencer != Some(from) {
            if matches!(self.role, Role::Sequencer(_)) {
                // Two sequencers of one term cannot be; whoever says so is not believed.
                return false;
            }
            self.become_follower(now, Some(from));
        }
        self.arm_election(now);
        true
    }

    pub(crate) fn on_heartbeat(
        &mut self,
        now: Timestamp,
        from: NodeId,
        history: Uuid,
        term: Term,
        commit: LogIndex,
        round: u64,
        majority: bool,
    ) {
        if !self.follow(now, from, history, term) {
            return;
        }
        if majority {
            self.good_at = now;
        }
        self.claimed_commit = self.claimed_commit.max(commit);
        self.advance_commit(now);
        self.send(from, Message::HeartbeatAck { term, round });
    }

    pub(crate) fn on_heartbeat_ack(&mut self, now: Timestamp, from: NodeId, term: Term, round: u64) {
        if term > self.hard.term {
            return self.adopt_term(now, term);
        }
        if term < self.hard.term {
            return;
        }
        if let Some(p) = self.progress_of(from) {
            p.heard = now;
            p.round = p.round.max(round);
            self.answer_reads(now);
        }
    }

    /// Does the sequencer hear a majority?
    fn majority_heard(&self, now: Timestamp) -> bool {
        let Role::Sequencer(s) = &self.role else { return false };
        let limit = self.cfg.timeouts.election;
        let me = self.me();
        self.quorum(|n| n == me || s.progress.get(&n).is_some_and(|p| now.since(p.heard) < limit))
    }

    pub(crate) fn on_heartbeat_timer(&mut self, now: Timestamp) {
        if !matches!(self.role, Role::Sequencer(_)) {
            self.at_heartbeat = None;
            return;
        }
        let majority = self.majority_heard(now);
        if majority {
            self.good_at = now;
        } else if now.since(self.good_at) > self.cfg.timeouts.election {
            // It sends and hears nothing: somebody else may do better (SAFETY 6).
            self.become_follower(now, None);
            return;
        }
        self.at_heartbeat = Some(now.after(self.cfg.timeouts.heartbeat));
        self.send_heartbeats(majority);
    }

    pub(crate) fn send_heartbeats(&mut self, majority: bool) {
        let (history, term, commit) = (self.tail.history, self.hard.term, self.commit);
        let Role::Sequencer(s) = &mut self.role else { return };
        s.round += 1;
        let round = s.round;
        let nodes: Vec<NodeId> = s.progress.keys().copied().collect();
        for node in nodes {
            self.send(node, Message::Heartbeat { history, term, commit, round, majority });
        }
    }

    // --- links ----------------------------------------------------------------------------------------------------

    pub(crate) fn on_link_up(&mut self, now: Timestamp, node: NodeId) {
        if matches!(self.role, Role::Sequencer(_)) {
            self.track(now, node);
            // The newcomer hears of its sequencer at once.
            self.at_heartbeat = Some(now);
        } else if self.sequencer == Some(node) {
            // A new connection under an old one's name: what was sent may be lost.
            self.held.clear();
            self.resend_pending();
            self.resend_reads(now);
        }
        if matches!(self.phase, Phase::Joining | Phase::NonPrimary) {
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
                let jitter = self.random_below(std::time::Duration::from_millis(50));
                self.at_election = Some(now.after(jitter));
            }
        }
    }
}
