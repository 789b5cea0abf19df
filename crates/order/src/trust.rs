//! Who may say what (rule 35). A link says which node speaks; what its word counts for is decided here, once for every kind of message.
//!
//! A peer is *named* when it is in a set of voters that decides here, or in the newest view of the own log. It is *vouched for* when a
//! named peer says that it follows it. A member of a primary component believes those, and whom it follows, and nobody else. A member
//! without one believes whoever is linked: a newcomer knows nobody, and what an old log says of who decides may be old, so there is
//! nobody to ask.

use std::time::Duration;

use trireme_types::{NodeId, Term, Timestamp};

use crate::election::Role;
use crate::group::Group;
use crate::{LogStore, Message, Phase};

/// No group gets here by counting. A term from outside has to leave room for the next ones.
const TERM_MAX: Term = Term(1 << 62);
/// Terms rise by one with every election: no member is so far ahead of another.
const TERM_JUMP_MAX: u64 = 1 << 20;
/// A newcomer may know a later term than the group, and has to be let in all the same. It costs an election, so not often.
const FOREIGN_TERM_EVERY: Duration = Duration::from_secs(5);
/// Between two lines about the same peer.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// What a sender has to be for its word to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Needs {
    /// Anybody that is linked: the word decides nothing by itself, or asks for something.
    Link,
    /// A member of the newest view.
    Member,
    /// In a set that decides here: its answer is one of those that are counted.
    Voter,
    /// Named by the sets or the view.
    Named,
    /// The sequencer that is followed.
    Sequencer,
    /// See above.
    Believed,
}

fn needs(message: &Message) -> Needs {
    match message {
        // They say who leads, what was committed, or what became of this member.
        Message::Append { .. }
        | Message::Heartbeat { .. }
        | Message::Snapshot { .. }
        | Message::PreVote { .. }
        | Message::Vote { .. }
        | Message::Recall { .. }
        | Message::Evicted => Needs::Believed,
        // They are counted.
        Message::PreVoteReply { .. } | Message::VoteReply { .. } => Needs::Voter,
        // Forced changes, and what follows from all promises being in one hand.
        Message::Force | Message::Entrust { .. } | Message::BeginFromData { .. } => Needs::Named,
        Message::TimeoutNow { .. } | Message::ReadReply { .. } => Needs::Sequencer,
        Message::Leave { .. }
        | Message::ReadRequest { .. }
        | Message::SetWeight { .. }
        | Message::SetDurability { .. }
        | Message::Signal { .. } => Needs::Member,
        // Joiners say these too. Votes and acknowledgements are looked up by who is in the sets, submissions by who is in the view.
        Message::Submit { .. }
        | Message::Reject { .. }
        | Message::NeedBodies { .. }
        | Message::Ack { .. }
        | Message::HeartbeatAck { .. }
        | Message::Join(_)
        | Message::Presence(_) => Needs::Link,
    }
}

impl<S: LogStore> Group<S> {
    /// In a set of voters that decides, or may decide, here; or in the newest view of the own log.
    pub(crate) fn is_named(&self, node: NodeId) -> bool {
        self.is_asked(node) || self.tail.view.get(node).is_some() || self.done.view.get(node).is_some()
    }

    fn is_asked(&self, node: NodeId) -> bool {
        self.tail.voters.contains(node) || self.tail.voters_before.contains(node)
    }

    /// Does a named peer say that it follows this one?
    fn is_vouched_for(&self, node: NodeId) -> bool {
        let says = |(by, peer): (&NodeId, &crate::group::Peer)| {
            *by != node && self.is_named(*by) && peer.told().is_some_and(|p| p.sequencer == Some(node))
        };
        self.peers.iter().any(says)
    }

    pub(crate) fn is_believed(&self, node: NodeId) -> bool {
        let inside = matches!(self.phase, Phase::Primary | Phase::Leaving) || matches!(self.role, Role::Sequencer(_));
        !inside || self.is_named(node) || self.sequencer == Some(node) || self.is_vouched_for(node)
    }

    /// Does this peer's word count? Otherwise it is as if it had not been said; a line names the peer now and then.
    pub(crate) fn may_say(&mut self, now: Timestamp, from: NodeId, message: &Message) -> bool {
        if from == self.me() {
            return message.term() < TERM_MAX;
        }
        if !self.is_plausible(now, from, message.term()) {
            return false;
        }
        let allowed = match needs(message) {
            Needs::Link => true,
            Needs::Member => self.tail.view.get(from).is_some() || self.done.view.get(from).is_some(),
            Needs::Voter => self.is_asked(from),
            Needs::Named => self.is_named(from),
            Needs::Sequencer => self.sequencer == Some(from),
            Needs::Believed => self.is_believed(from),
        };
        let harmful =
            matches!(needs(message), Needs::Believed | Needs::Named) && !matches!(message, Message::Recall { .. });
        if !allowed && harmful {
            self.complain(
                now,
                from,
                "is not a member, and nobody who is follows it: what it says about the order is ignored",
            );
        }
        allowed
    }

    /// Terms are promises, and on disk before anything else: one that nobody can have reached would be the last one of the cluster.
    fn is_plausible(&mut self, now: Timestamp, from: NodeId, term: Term) -> bool {
        // A log of no history has no terms of its own, and takes over those of the group that it joins.
        let base = if self.tail.history.is_nil() { TERM_MAX.0 - 1 } else { self.hard.term.0 + TERM_JUMP_MAX };
        if term < TERM_MAX && term.0 <= base {
            return true;
        }
        let own = self.hard.term;
        let text = format!(
            "speaks of term {term}, and this node is in term {own}: no election leads there, so that is ignored"
        );
        self.complain(now, from, &text);
        false
    }

    /// May this answer's higher term end the present one? A voter's does. A newcomer's does when it has asked to be let in, and seldom.
    pub(crate) fn may_end_term(&mut self, now: Timestamp, from: NodeId) -> bool {
        if self.is_named(from) {
            return true;
        }
        let Role::Sequencer(s) = &self.role else { return self.is_believed(from) };
        let rested = self.foreign_term_at.is_none_or(|at| now.since(at) > FOREIGN_TERM_EVERY);
        let may = rested && (s.joiners.contains_key(&from) || s.progress.contains_key(&from));
        if may {
            self.foreign_term_at = Some(now);
        }
        may
    }

    /// Terms of peers that count when this member takes one above all that it has heard of.
    pub(crate) fn plausible_term_heard(&self) -> Term {
        let limit = Term(self.hard.term.0.saturating_add(TERM_JUMP_MAX));
        let terms = self.peers.values().filter_map(|p| Some(p.told()?.term));
        terms.filter(|t| *t <= limit && *t < TERM_MAX).max().unwrap_or_default()
    }

    fn complain(&mut self, now: Timestamp, from: NodeId, what: &str) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        if peer.complained_at.is_some_and(|at| now.since(at) < COMPLAIN_EVERY) {
            return;
        }
        peer.complained_at = Some(now);
        let name = self.names_of(&[from]);
        self.log(true, format!("{name} {what}"));
    }
}
