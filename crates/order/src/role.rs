//! The part of this member in the present term (docs/protocol.md, section 1): the only writer of the role, and what each change brings
//! with it.
//!
//! The role says who the sequencer is. So nobody follows one while it asks for votes, and the sequencer follows itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use trireme_types::{EntryKind, Level, Lineage, LogIndex, Member, NodeId, Seqno, Timestamp, Uuid, VoterSet, Weight};

use crate::group::Group;
use crate::level::encode_term;
use crate::proposals::Proposed;
use crate::reads::PendingRead;
use crate::replication::Progress;
use crate::timers::Timer;
use crate::{Content, Event, LogStore, Output};

/// Does this member lead, follow, or ask to lead?
pub(crate) enum Role {
    /// `of`: whom it follows, never itself. `None`: nobody orders, as far as is known here, or this member takes no part.
    Follower { of: Option<NodeId> },
    /// Asks whether an election would be welcome.
    PreCandidate(Ballot),
    /// Has voted for itself, and asks for the votes of the others.
    Candidate(Ballot),
    /// Orders.
    Sequencer(Box<Sequencer>),
}

/// Changed below and nowhere else.
pub(crate) struct CurrentRole(Role);

impl CurrentRole {
    pub const START: CurrentRole = CurrentRole(Role::Follower { of: None });

    /// The sequencer's state, if this member is the sequencer.
    pub fn leading(&self) -> Option<&Sequencer> {
        match &self.0 {
            Role::Sequencer(s) => Some(s),
            Role::Follower { .. } | Role::PreCandidate(_) | Role::Candidate(_) => None,
        }
    }

    pub fn leading_mut(&mut self) -> Option<&mut Sequencer> {
        match &mut self.0 {
            Role::Sequencer(s) => Some(s),
            Role::Follower { .. } | Role::PreCandidate(_) | Role::Candidate(_) => None,
        }
    }

    /// The answers so far, if it asks whether an election would be welcome.
    pub fn asking_mut(&mut self) -> Option<&mut Ballot> {
        match &mut self.0 {
            Role::PreCandidate(ballot) => Some(ballot),
            Role::Follower { .. } | Role::Candidate(_) | Role::Sequencer(_) => None,
        }
    }

    /// The votes so far, if it stands.
    pub fn standing_mut(&mut self) -> Option<&mut Ballot> {
        match &mut self.0 {
            Role::Candidate(ballot) => Some(ballot),
            Role::Follower { .. } | Role::PreCandidate(_) | Role::Sequencer(_) => None,
        }
    }

    /// Either of the two.
    pub fn ballot_mut(&mut self) -> Option<&mut Ballot> {
        match &mut self.0 {
            Role::PreCandidate(ballot) | Role::Candidate(ballot) => Some(ballot),
            Role::Follower { .. } | Role::Sequencer(_) => None,
        }
    }
}

/// May a member go from the first to the second? Anything else is a mistake of ours. Asserted in every build, as the phase is.
fn is_legal(from: &Role, to: &Role) -> bool {
    use Role::{Candidate, Follower, PreCandidate, Sequencer};
    match (from, to) {
        // The sequencer is lost, a higher term is seen, an election is lost or given up, or this member takes no part any more.
        (Follower { .. } | PreCandidate(_) | Candidate(_) | Sequencer(_), Follower { of: None }) => true,
        // The first word of a sequencer.
        (Follower { .. } | PreCandidate(_) | Candidate(_), Follower { of: Some(_) }) => true,
        // Two sequencers of one term cannot be: for that of a later one it gives up its own term first, or its log.
        (Sequencer(_), Follower { of: Some(_) }) => false,
        // Nobody asks for another's place while it follows somebody. An attempt ends before the next one begins.
        (Follower { of: None }, PreCandidate(_) | Candidate(_)) => true,
        (Follower { of: Some(_) } | PreCandidate(_) | Candidate(_) | Sequencer(_), PreCandidate(_) | Candidate(_)) => {
            false
        }
        // Elected. Without asking: a bootstrap, a person's word, or that of one who has the promises of all.
        (Candidate(_) | Follower { of: None }, Sequencer(_)) => true,
        (Follower { of: Some(_) } | PreCandidate(_) | Sequencer(_), Sequencer(_)) => false,
    }
}

impl Role {
    fn name(&self) -> &'static str {
        match self {
            Role::Follower { of: None } => "a follower of nobody",
            Role::Follower { of: Some(_) } => "a follower",
            Role::PreCandidate(_) => "a pre-candidate",
            Role::Candidate(_) => "a candidate",
            Role::Sequencer(_) => "the sequencer",
        }
    }
}

/// The members that have granted, and whether their logs are whole.
pub(crate) type Votes = BTreeMap<NodeId, bool>;

/// Answers so far, the own one included.
#[derive(Default)]
pub(crate) struct Ballot {
    /// Grows with each answer. The own log may turn out not to be whole meanwhile (`begin_to_doubt`).
    pub granted: Votes,
    /// Grows with each answer: when those that are left are no majority, it asks again soon.
    pub refused: BTreeSet<NodeId>,
    /// One with a smaller id asks for the same term at the same time. Noted while this member only asks.
    pub rivalled: bool,
}

/// State that only the sequencer has, from its election to the end of its term. Written by the handlers of the sequencer.
pub(crate) struct Sequencer {
    /// The peers that it replicates to. They come when they are linked and vote here, are in the view or join (`track`, `on_join`), and go with
    /// their link if they are neither voters nor in the view, or when they turn out to be on another branch.
    pub progress: BTreeMap<NodeId, Progress>,
    /// Index of this term's `Term` entry. Never changes.
    pub term_start: LogIndex,
    /// Never changes.
    pub elected_at: Timestamp,
    /// The `Term` entry is committed: everything before it is, too. Before that nobody is let in, and no view or voters change. Set when that
    /// entry is delivered.
    pub established: bool,
    /// The last round of heartbeats. Counted up by `send_heartbeats`.
    pub round: u64,
    /// Rounds and when they were sent, the newest last and the others at least [`ROUNDS_APART`] apart: which answers are newer than something
    /// else? At most [`ROUNDS_MAX`].
    pub rounds: VecDeque<(u64, Timestamp)>,
    /// Proposals that wait for a voter change to commit, in the order in which they came. Emptied by `order_blocked`.
    pub blocked: VecDeque<Proposed>,
    /// Nodes that ask to be let in. They come by `on_join`, and go with their link, or when a view lets them in.
    pub joiners: BTreeMap<NodeId, Joiner>,
    /// Members that want to leave, and since when that is known. They come by `on_leave`, and go with the view that lacks them.
    pub leavers: BTreeMap<NodeId, Timestamp>,
    /// Members that turned non-primary and want a view of their own. They come by `on_join`; the next step to a view answers all of them.
    pub want_view: BTreeSet<NodeId>,
    /// Voters that came back with a log of another branch, or in a term that nobody reaches: their vote goes before they get this log. They
    /// come by `on_join`; the next step answers all of them.
    pub of_other_branches: BTreeSet<NodeId>,
    /// Weights that members wish for and that no step has answered yet.
    pub weights: BTreeMap<NodeId, Weight>,
    /// The moments from which those vote that got their votes from this sequencer: until `inactive` is over a newcomer's weight has a limit.
    pub voting_since: BTreeMap<NodeId, Timestamp>,
    /// Members of the view that are not linked, and the moments of their last words. They come with the end of the link, or at the election, and
    /// go when they are linked again.
    pub missing_since: BTreeMap<NodeId, Timestamp>,
    /// Causal reads that wait for a round of heartbeats. Written by `reads.rs`.
    pub reads: Vec<PendingRead>,
    /// When the heir was last told to stand. It is told again after an election timeout.
    pub handed_over_at: Option<Timestamp>,
    /// An operator was told that nobody else is let in. Taken back by the first joiner for whom there is room.
    pub is_full: bool,
    /// The last ones with data want to leave, and wait for a copy to be complete. Judged by each `step_leave`.
    pub last_waits: bool,
    /// Judged by each `step_leave`.
    pub handover: Handover,
}

/// The way from a sequencer that is to go to its heir.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Handover {
    /// It stays, or there is no heir.
    #[default]
    Nobody,
    /// Nothing more is ordered, so that the heir can have the whole log; and since when.
    Holds(Timestamp),
    /// It was evicted, and the heir did not get there in time: it orders on for a while. Since when.
    Lapsed(Timestamp),
}

/// A node that asks to be let in, as its last request says.
pub(crate) struct Joiner {
    pub member: Member,
    /// Where its data are. `None`: it takes a full copy in any case.
    pub position: Option<(Uuid, Seqno)>,
}

/// Of the rounds that are remembered; more are sent while many read.
const ROUNDS_APART: Duration = Duration::from_millis(10);
const ROUNDS_MAX: usize = 64;

impl Sequencer {
    pub fn begin_round(&mut self, now: Timestamp) -> u64 {
        self.round += 1;
        // The newest one stays, be it ever so near.
        let mut newest = self.rounds.iter().rev().map(|(_, at)| *at);
        if let (Some(last), Some(before)) = (newest.next(), newest.next())
            && last.since(before) < ROUNDS_APART
        {
            self.rounds.pop_back();
        }
        self.rounds.push_back((self.round, now));
        if self.rounds.len() > ROUNDS_MAX {
            self.rounds.pop_front();
        }
        self.round
    }

    /// Has this member answered a heartbeat that was not sent before that? The moment at which an answer is read says less: this member may
    /// have stood still, and reads what was said before.
    pub fn has_answered_since(&self, node: NodeId, since: Timestamp) -> bool {
        let later = self.rounds.iter().find(|(_, at)| *at >= since);
        later.is_some_and(|(round, _)| self.progress.get(&node).is_some_and(|p| p.round >= *round))
    }

    fn new(term_start: LogIndex, elected_at: Timestamp) -> Sequencer {
        Sequencer {
            progress: BTreeMap::new(),
            term_start,
            elected_at,
            established: false,
            round: 0,
            rounds: VecDeque::new(),
            blocked: VecDeque::new(),
            joiners: BTreeMap::new(),
            leavers: BTreeMap::new(),
            want_view: BTreeSet::new(),
            of_other_branches: BTreeSet::new(),
            weights: BTreeMap::new(),
            voting_since: BTreeMap::new(),
            missing_since: BTreeMap::new(),
            reads: Vec::new(),
            handed_over_at: None,
            is_full: false,
            last_waits: false,
            handover: Handover::Nobody,
        }
    }
}

impl<S: LogStore> Group<S> {
    pub(crate) fn role(&self) -> &Role {
        &self.role.0
    }

    /// The one that orders, as far as this member knows.
    pub fn sequencer(&self) -> Option<NodeId> {
        match self.role() {
            Role::Follower { of } => *of,
            Role::PreCandidate(_) | Role::Candidate(_) => None,
            Role::Sequencer(_) => Some(self.me()),
        }
    }

    /// Does this member order?
    pub(crate) fn leads(&self) -> bool {
        self.role.leading().is_some()
    }

    fn assume(&mut self, to: Role) {
        assert!(is_legal(&self.role.0, &to), "from {} to {}", self.role.0.name(), to.name());
        self.role.0 = to;
    }

    /// Nobody is followed from here on, and nothing else changes.
    pub(crate) fn become_leaderless(&mut self) {
        self.assume(Role::Follower { of: None });
    }

    /// `sequencer`: whom to follow, and on which branch.
    pub(crate) fn become_follower(&mut self, now: Timestamp, sequencer: Option<(NodeId, Lineage)>) {
        let before = self.sequencer();
        let (sequencer, lineage) = match sequencer {
            Some((node, lineage)) => (Some(node), lineage),
            None => (None, self.own.tail().lineage.clone()),
        };
        let changed = before != sequencer;
        self.assume(Role::Follower { of: sequencer });
        self.timers.disarm(Timer::Heartbeat);
        self.timers.disarm(Timer::Bodies);
        self.hear_anew();
        self.enter_era(lineage);
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

    fn announce_term(&mut self) {
        let (term, sequencer) = (self.own.term(), self.sequencer());
        // Not a link that was lost and came back.
        if sequencer.is_some() {
            self.led_terms.note(term);
        }
        self.out.push_back(Output::Event(Event::TermChanged { term, sequencer }));
    }

    /// Asks whether an election would be welcome. `votes`: the own one.
    pub(crate) fn become_pre_candidate(&mut self, votes: Votes) {
        self.assume(Role::PreCandidate(Ballot { granted: votes, ..Ballot::default() }));
    }

    /// Begins a term of its own. `transfer`: the sequencer itself wants it.
    pub(crate) fn become_candidate(&mut self, now: Timestamp, transfer: bool) {
        let me = self.me();
        if !self.promise(self.own.term().next(), me) {
            return;
        }
        self.become_follower(now, None);
        let votes = Votes::from([(me, self.is_whole())]);
        self.assume(Role::Candidate(Ballot { granted: votes.clone(), ..Ballot::default() }));
        if self.try_take_office(now, &votes) {
            return;
        }
        let message =
            Content::Vote { last: self.own.tail().end(), transfer }.in_term(self.own.tail().branch(), self.own.term());
        self.to_voters(message);
    }

    /// Takes over without asking: a bootstrap, or a forced primary component. `voters`, if any, are written first and
    /// alone decide about themselves.
    pub(crate) fn take_over(&mut self, now: Timestamp, voters: Option<VoterSet>) {
        let highest = self.plausible_term_heard(now);
        // Two sides of a cut may do this at the same time and choose the same term: the fork's id tells them apart (rule 13).
        if self.promise(self.own.term().max(highest).next(), self.me()) {
            self.become_follower(now, None);
            self.become_sequencer(now, voters);
        }
    }

    /// Orders from here on, by a vote or without. `voters` as in [`take_over`](Group::take_over).
    pub(crate) fn become_sequencer(&mut self, now: Timestamp, voters: Option<VoterSet>) {
        assert_eq!(self.own.voted_for(), self.me());
        if voters.as_ref().is_some_and(|v| !v.fork.is_nil()) && self.is_forked_out() {
            self.log(true, "not forced: this history has been forced too often; bootstrap a new one".into());
            return self.become_follower(now, None);
        }
        let me = self.me();
        self.timers.disarm(Timer::Election);
        self.timers.disarm(Timer::Bodies);
        let before = self.own.tail().index;
        self.lead_era(before);
        self.candidacy.won();
        self.good_at = now;
        let start = if voters.is_some() { before.next().next() } else { before.next() };
        let mut state = Sequencer::new(start, now);
        for m in &self.own.tail().view.members {
            if m.node != me && !self.peers.contains_key(&m.node) {
                state.missing_since.insert(m.node, self.gone.get(&m.node).copied().unwrap_or(now));
            }
        }
        self.assume(Role::Sequencer(Box::new(state)));
        if let Some(voters) = voters {
            if !self.append_voters(&voters) {
                return;
            }
            self.enter_era(self.own.tail().lineage.clone());
            self.era.note_own_end(self.own.tail().index);
            // Before anything that carries the new branch's name.
            self.send_presence(now);
        }
        let named = if self.own.tail().level >= Level::NAMED_TERMS { encode_term(&self.cfg.me) } else { Bytes::new() };
        if !self.append_own(EntryKind::Term, None, named) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [Role; 5] {
        let of = Some(NodeId(Uuid([1; 16])));
        [
            Role::Follower { of: None },
            Role::Follower { of },
            Role::PreCandidate(Ballot::default()),
            Role::Candidate(Ballot::default()),
            Role::Sequencer(Box::new(Sequencer::new(LogIndex(1), Timestamp(1)))),
        ]
    }

    #[test]
    fn a_member_asks_and_stands_only_while_it_follows_nobody() {
        for from in all() {
            for to in [Role::PreCandidate(Ballot::default()), Role::Candidate(Ballot::default())] {
                let free = matches!(from, Role::Follower { of: None });
                assert_eq!(is_legal(&from, &to), free, "from {} to {}", from.name(), to.name());
            }
        }
    }

    #[test]
    fn the_sequencer_gives_up_its_term_before_anything_else() {
        let [_, _, _, _, sequencer] = all();
        for to in all() {
            assert_eq!(is_legal(&sequencer, &to), matches!(to, Role::Follower { of: None }), "to {}", to.name());
        }
    }
}
