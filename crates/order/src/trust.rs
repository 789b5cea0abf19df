//! The right to say something (rule 35). A link says which node speaks; what its word counts for is decided here, once for every kind of message.
//!
//! A peer is *named* when it is in a set of voters that decides here, or in the newest view of the own log; *remembered* when it was so
//! ever, as far as this log tells. It is *vouched for* when one of those says that it follows it, has promised it its vote, or has left to it
//! what is gone on with.
//!
//! A member of a primary component believes whom it follows, and those who are named or whom they vouch for. A member without one
//! believes whoever is linked: a newcomer knows nobody, and what an old log says of who decides may be old, so there is nobody to ask.
//! But what cannot be taken back (log and data are given up, a fork is made) takes somebody who is remembered, or vouched for by one. A state
//! that continues what is committed here takes nothing back: whoever slept while all others were replaced knows nobody any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use trireme_types::{Base, Kinship, Lineage, NodeId, SessionMark, TERM_MAX, Term, Timestamp};

use crate::chain::Chain;
use crate::group::Group;
use crate::mutant::Mutant;
use crate::told::OfStrangers;
use crate::{Content, LogStore, Message, Phase};

/// Terms rise by one with every election: no group ever held so many in a second. So the time tells how high a term may be, to all members
/// alike: wherever a liar leads one of them, the others can follow, and there is room for elections above it a moment later.
const TERMS_PER_SECOND: u64 = 1 << 10;
/// No member is so far ahead of another, unless somebody has driven it up, or raised it. More than clocks differ, in terms.
const TERM_JUMP_MAX: u64 = 1 << 20;
/// The highest that an operator may raise a term to: there is room above it for elections without end, and below [`TERM_MAX`].
pub const TERM_RAISED_MAX: Term = Term(7 << 60);
/// A newcomer may know a later term than the group, and has to be let in all the same. It costs an election, so not often.
const FOREIGN_TERM_EVERY: Duration = Duration::from_secs(5);
/// Nor does one newcomer keep the others out by coming again and again.
const FOREIGN_TERM_OF_ONE_EVERY: Duration = Duration::from_secs(60);
/// Between two lines about the same peer.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);
/// Lines about strangers in that time, whoever they are: there may be any number of them.
const COMPLAINTS_MAX: u32 = 16;
/// Nodes remembered at most: more than a history ever has, but for one that a liar made.
const REMEMBERED_MAX: usize = 4096;

/// A sender has to be this for its word to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Needs {
    /// Anybody that is linked: the word decides nothing by itself, or asks for something.
    Link,
    /// A member of the newest view.
    Member,
    /// In a set that decides here: its answer is one of those that are counted.
    Voter,
    /// Remembered, or vouched for by one that is: what it asks for can't be taken back.
    Remembered,
    /// The sequencer that is followed.
    Sequencer,
    /// The sequencer that is followed; to a member without a primary component, whoever is of its cluster.
    Leader,
    /// See above.
    Believed,
}

fn needs(message: &Message) -> Needs {
    match message {
        Message::InTerm(envelope) => needs_in_term(&envelope.content),
        Message::Evicted => Needs::Leader,
        // It says what was committed.
        Message::Snapshot { .. } | Message::VotersHeard { .. } => Needs::Believed,
        // A forced change.
        Message::Force => Needs::Remembered,
        Message::Submit { .. }
        | Message::Leave { .. }
        | Message::SetWeight { .. }
        | Message::SetDurability { .. }
        | Message::Signal { .. } => Needs::Member,
        // Joiners say these too.
        Message::Join(_) | Message::Presence(_) | Message::LevelLimit { .. } | Message::Unknown { .. } => Needs::Link,
    }
}

fn needs_in_term(content: &Content) -> Needs {
    match content {
        // They say who leads, or what was committed.
        Content::Append(_) | Content::Heartbeat(_) | Content::Vote { .. } | Content::Recall { .. } => Needs::Believed,
        // They are counted.
        Content::PreVoteReply { .. } | Content::VoteReply { .. } => Needs::Voter,
        // They follow from all promises being in one hand.
        Content::Entrust | Content::BeginFromData { .. } => Needs::Remembered,
        Content::TimeoutNow | Content::ReadReply { .. } => Needs::Sequencer,
        Content::ReadRequest { .. } => Needs::Member,
        // Joiners say these too, and acknowledgements are looked up by who is in the sets. The answer to a question before an election
        // promises nothing, and who asks may be a voter that this log has not heard of yet.
        Content::PreVote { .. }
        | Content::Reject { .. }
        | Content::NeedBodies { .. }
        | Content::Ack { .. }
        | Content::HeartbeatAck { .. } => Needs::Link,
    }
}

/// Peers beside those that the sets of voters and the view name.
#[derive(Default)]
pub(crate) struct Acquaintances {
    /// Everybody whom the log has named, as far as it was read: those are of this cluster, whatever became of them.
    remembered: BTreeSet<NodeId>,
    /// Newcomers whose terms ended the own one in the last minute, and when.
    foreign_terms: BTreeMap<NodeId, Timestamp>,
}

impl Acquaintances {
    /// The log is read anew.
    pub fn forget_all(&mut self) {
        self.remembered.clear();
    }

    /// The log, up to this state, names these.
    pub fn remember(&mut self, state: &Chain) {
        let voters = state.voters.voters.iter().chain(&state.voters_before.voters).map(|v| v.node);
        let named = voters.chain(state.view.members.iter().map(|m| m.node));
        let room = REMEMBERED_MAX.saturating_sub(self.remembered.len());
        self.remembered.extend(named.take(room));
    }

    fn may_end_term(&mut self, now: Timestamp, newcomer: NodeId) -> bool {
        self.foreign_terms.retain(|_, at| now.since(*at) <= FOREIGN_TERM_OF_ONE_EVERY);
        let rested = self.foreign_terms.values().all(|at| now.since(*at) > FOREIGN_TERM_EVERY);
        let may = rested && !self.foreign_terms.contains_key(&newcomer);
        if may {
            self.foreign_terms.insert(newcomer, now);
        }
        may
    }
}

impl<S: LogStore> Group<S> {
    /// In a set of voters that decides, or may decide, here; or in the newest view of the own log.
    pub(crate) fn is_named(&self, node: NodeId) -> bool {
        self.is_asked(node) || self.is_member(node)
    }

    fn is_member(&self, node: NodeId) -> bool {
        self.own.tail().view.get(node).is_some() || self.done.view.get(node).is_some()
    }

    /// In one of the two newest sets of voters.
    pub(crate) fn is_asked(&self, node: NodeId) -> bool {
        self.own.tail().voters.contains(node) || self.own.tail().voters_before.contains(node)
    }

    /// Named now or before, as far as the log tells: whoever had anything ordered is in its table of sessions for ever.
    fn is_remembered(&self, node: NodeId) -> bool {
        self.is_named(node)
            || self.acquaintances.remembered.contains(&node)
            || self.own.tail().sessions.contains_key(&node)
    }

    /// Does one of these say that it follows this peer, has promised it its vote, or has left the decision to it?
    fn is_vouched_for(&self, node: NodeId, counts: impl Fn(NodeId) -> bool) -> bool {
        let says = |(by, peer): (&NodeId, &crate::group::Peer)| {
            *by != node && counts(*by) && peer.told().is_some_and(|p| p.sequencer == Some(node))
        };
        self.peers.iter().any(says)
    }

    /// The one that this member follows, has promised its vote in the present term, or left the decision to: it vouches for that one.
    pub(crate) fn vouches_for(&self) -> Option<NodeId> {
        let promised = Some(self.own.voted_for()).filter(|n| *n != NodeId::default() && *n != self.me());
        let decides = || self.own.entrusted_in(self.own.term()).filter(|_| !self.is_inside());
        self.sequencer().or(promised).or_else(decides)
    }

    /// Of this cluster, as far as the log here and those whom it remembers can say?
    pub(crate) fn is_of_cluster(&self, node: NodeId) -> bool {
        self.is_remembered(node) || self.is_vouched_for(node, |by| self.is_remembered(by))
    }

    fn is_inside(&self) -> bool {
        matches!(self.phase(), Phase::Primary | Phase::Leaving) || self.leads()
    }

    /// Does this member take this peer's word about who leads and what was committed? For tests.
    pub fn believes(&self, node: NodeId) -> bool {
        self.is_believed(node)
    }

    fn is_believed(&self, node: NodeId) -> bool {
        !self.is_inside()
            || self.is_named(node)
            || self.sequencer() == Some(node)
            || self.is_vouched_for(node, |by| self.is_named(by))
            // The log of an old disk may name nobody else any more, or not yet.
            || self.is_alone() && self.is_remembered(node)
    }

    /// Is nobody else in the view, and nobody else to decide?
    pub(crate) fn is_alone(&self) -> bool {
        let me = self.me();
        let voters = self.deciding().flat_map(|set| &set.voters).map(|v| v.node);
        let members = self.own.tail().view.members.iter().chain(&self.done.view.members).map(|m| m.node);
        voters.chain(members).all(|n| n == me)
    }

    pub(crate) fn knows_nobody(&self) -> bool {
        let me = self.me();
        self.acquaintances.remembered.iter().chain(self.own.tail().sessions.keys()).all(|n| *n == me)
    }

    /// Has this state a line of everybody whom the log here has named? Lines stay when nodes go, so the state of an old disk lacks those that came
    /// later.
    pub(crate) fn is_known_by(&self, base: &Base) -> bool {
        let there: BTreeSet<NodeId> = base.sessions.iter().map(|mark| mark.session.node).collect();
        self.own.tail().sessions.keys().all(|node| there.contains(node))
    }

    /// Does this state go on from what is committed here? Then nothing is given up by taking it: it is no older than the log here, as in an
    /// election, so what was acknowledged here and committed lies below it, and what the data hold does, or follows in that one's log.
    /// It comes from this cluster, whoever offers it, if its table of sessions has a line of everybody in the own one, none of them older:
    /// lines stay when nodes go.
    pub(crate) fn continues_here(&self, from: NodeId, lineage: &Lineage, base: &Base) -> bool {
        let may_follow = |theirs: &Lineage| match self.own.tail().lineage.kinship(theirs) {
            Kinship::Same => true,
            Kinship::Descendant(fork) => self.can_follow(&fork),
            Kinship::Ancestor | Kinship::Sibling => false,
        };
        let done = &self.done;
        // Data that outlived the end of the log hold what was committed on that branch. As long as the log is there, it says more of them.
        let lost_end = self.own.store().suspect().is_some() && base.index > self.own.tail().index;
        let beyond = base.history == self.own.tail().history
            && base.index > self.commit
            && (base.term, base.index) >= (self.own.tail().term, self.own.tail().index)
            && base.seqno >= done.seqno
            && (base.seqno >= self.data.applied || lost_end)
            && !self.data_contradict(base)
            && base.voters_at >= done.voters_at
            && base.view.number >= done.view.number;
        let theirs: BTreeMap<NodeId, SessionMark> = base.sessions.iter().map(|m| (m.session.node, *m)).collect();
        // The end of the own log may be lost to the others, and what it says of numbers with it.
        let has_all = self.is_known_by(base)
            && done.sessions.iter().all(|(n, mark)| theirs.get(n).is_some_and(|newer| newer >= mark));
        // The own line says little: everybody that is linked knows the name of this node. A log that knows nobody else may have lost the
        // end, by which this member itself, or a person here, chose whoever offers the state to decide what is gone on with.
        let chosen = self.own.entrusted() == from || self.has_passed_word_to(from);
        let tells = chosen || self.own.tail().sessions.keys().any(|n| *n != self.me());
        !self.standing().is_doubled() && beyond && may_follow(lineage) && may_follow(&base.lineage) && has_all && tells
    }

    /// May this peer's state replace log and data here, or its branch the own one? A line says why not.
    pub(crate) fn may_overrule(&mut self, now: Timestamp, from: NodeId) -> bool {
        // A log that knows nobody else gives nobody to ask.
        let newcomer = self.phase() == Phase::Joining && self.knows_nobody();
        if from == self.me() || newcomer || self.is_of_cluster(from) || self.is(Mutant::StrangerOverrules) {
            return true;
        }
        let what = "has a state that would replace the one here, but the write-set log here has never named it, and nobody whom it has \
                    named follows it: log and data are kept. If it is of this cluster, and its state is the one to go on with, remove \
                    the write-set log and grastate.dat of this node; it takes a full copy then";
        self.complain(now, from, what);
        false
    }

    /// Does this peer's word count? Otherwise it is as if it had not been said; a line names the peer now and then.
    pub(crate) fn may_say(&mut self, now: Timestamp, from: NodeId, message: &Message) -> bool {
        if from == self.me() {
            return message.term() <= TERM_MAX;
        }
        // Where somebody stands is good to know, whatever its term: it is what makes a jump believable.
        if !self.is_plausible(now, from, message.term()) && !matches!(message, Message::Presence(_)) {
            return false;
        }
        let needs = if self.is(Mutant::StrangerBelieved) { Needs::Link } else { needs(message) };
        let allowed = match needs {
            Needs::Link => true,
            Needs::Member => self.is_member(from),
            Needs::Voter => self.is_asked(from),
            Needs::Remembered => {
                self.is_of_cluster(from) || matches!(message, Message::Force) && self.may_decline(now, from)
            }
            Needs::Sequencer => self.sequencer() == Some(from),
            Needs::Leader if self.is_inside() => self.sequencer() == Some(from),
            Needs::Leader => self.knows_nobody() || self.is_of_cluster(from),
            Needs::Believed => self.is_believed(from),
        };
        if !allowed && needs == Needs::Remembered {
            let what = "asks this node to form the primary component. The write-set log here has never named it, and nobody whom it has \
                        named has promised it its vote, so that is ignored. To do it, set pc.bootstrap=1 on this node";
            self.complain(now, from, what);
        } else if !allowed
            && matches!(needs, Needs::Believed | Needs::Leader)
            && !matches!(message.content(), Some(Content::Recall { .. }))
            && !matches!(message, Message::VotersHeard { .. })
        {
            let what = "is not a member, and nobody who is follows it: what it says about the order is ignored";
            self.complain(now, from, what);
        }
        allowed
    }

    // --- terms ----------------------------------------------------------------------------------------------------

    /// Terms are promises, and on disk before anything else: one that nobody can have reached would be the last one of the cluster.
    fn is_plausible(&mut self, now: Timestamp, from: NodeId, term: Term) -> bool {
        let own = self.own.term();
        if term <= own {
            return true;
        }
        if self.is_believable(now, term) {
            if Self::is_driven_up(term, own) && !self.own.tail().history.is_nil() {
                let what = format!("speaks of term {term}, and this node is in term {own}: somebody has driven it up");
                self.complain(now, from, &what);
            }
            return true;
        }
        let limit = self.term_limit(now);
        let advice = if !Self::is_driven_up(term, limit) {
            let seconds = (term.0 - limit.0).div_ceil(TERMS_PER_SECOND);
            format!(". Its clock and the one here differ, and it is believed in {seconds} s")
        } else if term <= TERM_RAISED_MAX {
            format!(
                ". If all nodes stay apart, stop this one and run trireme log term --raise {term} on its write-set log"
            )
        } else {
            String::new()
        };
        let text = format!(
            "speaks of term {term}, and this node is in term {own}: no election leads there, so that is ignored{advice}"
        );
        self.complain(now, from, &text);
        false
    }

    /// Can elections have led to this term by now? Beyond that a member goes with a majority of the voters, or with an operator who has raised the
    /// terms.
    fn is_believable(&self, now: Timestamp, term: Term) -> bool {
        if term <= self.own.term() {
            return true;
        }
        let limit = self.term_limit(now);
        if term <= limit {
            return true;
        }
        // A log of no history has no terms of its own, and takes over those of the group that it joins.
        if term > TERM_MAX || self.own.tail().history.is_nil() || self.is(Mutant::TermsUnbounded) {
            return term <= TERM_MAX;
        }
        let of_majority = if self.is(Mutant::AwayStaysOut) { Term::ZERO } else { self.term_of_majority() };
        let reached = self.own.term().max(of_majority);
        // Nobody is led so far beyond the limit alone. A member that is there goes on by elections.
        let raised = Self::is_driven_up(reached, limit);
        term <= reached || raised && !Self::is_driven_up(term, reached)
    }

    /// The highest term that elections can have led to by now, wherever they were held.
    fn term_limit(&self, now: Timestamp) -> Term {
        let time = self.cfg.unix_at_zero + Duration::from_nanos(now.0);
        let parts = u128::from(TERMS_PER_SECOND) * time.as_nanos() / 1_000_000_000;
        Term(u64::try_from(parts).unwrap_or(u64::MAX)).min(TERM_RAISED_MAX)
    }

    /// The wall clock was set, or the machine slept.
    pub fn set_unix_at_zero(&mut self, unix_at_zero: Duration) {
        self.cfg.unix_at_zero = unix_at_zero;
    }

    /// Sequencer: is this peer in a term that no election leads to from here, nor any time soon? Somebody whose clock is far ahead was driven
    /// up, or an operator raised the term of it alone.
    pub(crate) fn has_unreachable_term(&self, now: Timestamp, node: NodeId) -> bool {
        let Some(term) = self.peers.get(&node).and_then(|p| p.told()).map(|p| p.term) else { return false };
        Self::is_driven_up(term, self.own.term())
            && Self::is_driven_up(term, self.term_limit(now))
            && !self.is_believable(now, term)
            && !self.is(Mutant::DrivenUpStaysOut)
    }

    /// The highest term that a majority of the voters has reached, as far as they told.
    fn term_of_majority(&self) -> Term {
        let told = |n: NodeId| self.peers.get(&n).and_then(|p| p.told()).map(|p| p.term).filter(|t| *t <= TERM_MAX);
        let reached = |n: NodeId| if n == self.me() { self.own.term() } else { told(n).unwrap_or_default() };
        let terms = self.deciding().flat_map(|set| &set.voters).map(|v| reached(v.node));
        terms.filter(|term| self.quorum(|n| reached(n) >= *term)).max().unwrap_or_default()
    }

    /// Is the first term beyond what elections can have led to from the second?
    pub(crate) fn is_driven_up(term: Term, from: Term) -> bool {
        term.0 > from.0.saturating_add(TERM_JUMP_MAX)
    }

    /// May this answer's higher term end the present one? A voter's does. A newcomer's does when it has asked to be let in, and seldom.
    pub(crate) fn may_end_term(&mut self, now: Timestamp, from: NodeId) -> bool {
        let Some(s) = self.role.leading() else { return false };
        if self.is_named(from) {
            return true;
        }
        let asked = s.joiners.contains_key(&from) || s.progress.contains_key(&from);
        asked && self.acquaintances.may_end_term(now, from)
    }

    /// Terms of peers that count when this member takes one above all that it has heard of.
    pub(crate) fn plausible_term_heard(&self, now: Timestamp) -> Term {
        let told = self.peers.values().filter_map(|p| Some(p.told()?.term));
        told.filter(|term| self.is_believable(now, *term)).max().unwrap_or_default()
    }

    pub(crate) fn complain(&mut self, now: Timestamp, from: NodeId, what: &str) {
        if let Some(left_out) = self.room_for_a_line(now, from) {
            let name = self.names_of(&[from]);
            self.log(true, format!("{name} {what}{left_out}"));
        }
    }

    /// May a line be written that this peer's word has brought about? One a minute for each, and few for all that nobody has named. Gives what is
    /// to stand behind it: how many were left out before.
    pub(crate) fn room_for_a_line(&mut self, now: Timestamp, from: NodeId) -> Option<String> {
        let peer = self.peers.get_mut(&from)?;
        if peer.complained_at.is_some_and(|at| now.since(at) < COMPLAIN_EVERY) {
            return None;
        }
        peer.complained_at = Some(now);
        let mut left_out = String::new();
        if !self.is_named(from) {
            let told = &mut self.told.strangers;
            if now.since(told.since) >= COMPLAIN_EVERY {
                if told.lines > COMPLAINTS_MAX {
                    left_out = format!("; {} lines about others were left out", told.lines - COMPLAINTS_MAX);
                }
                *told = OfStrangers { since: now, lines: 0 };
            }
            told.lines = told.lines.saturating_add(1);
            if told.lines > COMPLAINTS_MAX {
                return None;
            }
        }
        Some(left_out)
    }
}
