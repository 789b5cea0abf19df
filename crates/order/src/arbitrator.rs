//! A voter without data (rule 14). It decides who may go on, keeps the tail of the log for those that lack it, and orders only
//! in order to hand over.
//!
//! It never stands by its own timer. It stands for a *server*: when one asks for a vote (or shows its log while it is without a
//! primary component) that must be refused because its log lacks what this one holds. Elected, it brings that server's log up to
//! its own and tells it to stand. So an election that a server can win is left to the servers, and what only the arbitrator
//! holds is not lost.
//!
//! What it has dropped it cannot give, and a snapshot from it would have no data behind it: a server whose log ends below its
//! base is not stood for, and if that shows only after the election, the arbitrator steps down. Then the group waits for
//! somebody who holds more.

use std::collections::BTreeMap;
use std::time::Duration;

use trireme_types::{Kinship, LogIndex, MemberKind, NodeId, Timestamp, Voter, VoterSet};

use crate::election::Role;
use crate::group::Group;
use crate::mutant::Mutant;
use crate::timers::Timer;
use crate::{Content, LogEnd, LogStore, Phase};

/// A server's log, as it told.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Heard {
    last: LogEnd,
    /// It needs what was dropped here.
    beyond: bool,
}

/// What only an arbitrator keeps; empty on all others.
#[derive(Default)]
pub(crate) struct Arbiter {
    stands_for: Option<NodeId>,
    heard: BTreeMap<NodeId, Heard>,
}

impl Arbiter {
    pub fn stands(&self) -> bool {
        self.stands_for.is_some()
    }

    /// Somebody orders: there is nobody to stand for.
    pub fn sit(&mut self) {
        self.stands_for = None;
    }
}

/// Longest wait before it asks for votes; drawn, so that two arbitrators do not do it at the same moment for ever.
const STAND_WITHIN: Duration = Duration::from_millis(20);

impl<S: LogStore> Group<S> {
    pub(crate) fn arbitrates(&self) -> bool {
        self.cfg.me.kind.is_arbitrator()
    }

    /// As the handshake or the newest view says; a voter that nobody remembers is taken for a server.
    pub(crate) fn kind_of(&self, node: NodeId) -> MemberKind {
        if node == self.me() {
            return self.cfg.me.kind;
        }
        let linked = self.peers.get(&node).map(|p| p.member.kind);
        linked.or_else(|| self.tail.view.get(node).map(|m| m.kind)).unwrap_or_default()
    }

    /// Is there one among these voters that could be their sequencer?
    pub(crate) fn can_order(&self, voters: &VoterSet) -> bool {
        voters.voters.iter().any(|v| v.weight.0 > 0 && !self.kind_of(v.node).is_arbitrator())
    }

    fn is_heir(&self, node: NodeId) -> bool {
        self.tail.voters.weight(node) > 0 && !self.kind_of(node).is_arbitrator()
    }

    /// A member tells where its log ends, because it hears nobody order.
    pub(crate) fn hear_of_log(&mut self, now: Timestamp, from: NodeId, last: LogEnd) {
        if !self.arbitrates()
            || matches!(self.role, Role::Sequencer(_))
            || self.hears_sequencer(now)
            || self.log_is_as_good(last)
            || !self.is_heir(from)
        {
            return;
        }
        let known = self.arbiter.heard.get(&from);
        if known.is_none_or(|h| h.last != last) {
            self.arbiter.heard.insert(from, Heard { last, beyond: false });
            if last.index < self.store.base().index {
                self.cannot_bring_up(from);
            }
        }
        if !self.can_bring_up(from) && !self.decides_what_is_left() {
            return;
        }
        self.arbiter.stands_for = Some(from);
        if !self.timers.is_armed(Timer::Election) && self.may_stand() {
            let at = now.after(self.random_below(STAND_WITHIN));
            self.timers.arm(Timer::Election, at);
        }
    }

    /// Are the logs such that all voters together have to say what is left, and are they here? The best log decides that, and its
    /// owner asks for the promises although it can give its log to nobody.
    fn decides_what_is_left(&self) -> bool {
        let whole = |n: NodeId| {
            let told = || self.peers.get(&n).and_then(|p| p.told()).is_some_and(|p| p.whole);
            if n == self.me() { self.is_whole() } else { self.kinship_of(n) == Some(Kinship::Same) && told() }
        };
        self.all_voters(|n| self.is_here(n)) && !self.is_evidence(whole)
    }

    /// Does the log here go on where that one ends, as far as is known?
    fn can_bring_up(&self, node: NodeId) -> bool {
        self.is(Mutant::ArbitratorForgets) || self.arbiter.heard.get(&node).is_some_and(|h| !h.beyond)
    }

    /// The same, of servers that were heard lately, whatever their votes.
    pub(crate) fn someone_to_bring_up(&self, alive: &[Voter]) -> Option<NodeId> {
        let base = self.store.base().index;
        let log = |v: &Voter| self.peers.get(&v.node).and_then(|p| p.told());
        let server = |v: &&Voter| {
            v.weight.0 > 0
                && !self.kind_of(v.node).is_arbitrator()
                && log(v).is_some_and(|p| p.last_index >= base)
                && self.arbiter.heard.get(&v.node).is_none_or(|h| !h.beyond)
        };
        alive.iter().filter(server).max_by_key(|v| log(v).map(|p| p.end())).map(|v| v.node)
    }

    /// This server lacks what the log here has dropped.
    pub(crate) fn cannot_bring_up(&mut self, node: NodeId) {
        if let Some(p) = self.progress_of(node) {
            p.beyond = true;
        }
        let Some(heard) = self.arbiter.heard.get_mut(&node).filter(|h| !h.beyond) else { return };
        heard.beyond = true;
        let (first, last) = (self.store.first(), heard.last.index);
        self.log(
            true,
            format!(
                "this arbitrator cannot help {node} to go on: its log ends at {last}, the log here begins at {first}; waiting for a \
                 server that has more"
            ),
        );
    }

    /// Arbitrator as sequencer: to the server whose log is complete; to one that is being completed later; back to nobody if there
    /// is no such server.
    pub(crate) fn hand_over(&mut self, now: Timestamp) {
        if !self.arbitrates() || self.phase() == Phase::Failed {
            return;
        }
        let patience = self.cfg.timeouts.election;
        let Role::Sequencer(s) = &self.role else { return };
        let heirs = s.progress.iter().filter(|(n, p)| {
            self.peers.contains_key(n) && self.is_heir(**n) && !p.beyond && now.since(p.heard) < 2 * patience
        });
        let Some((matched, heir)) = heirs.map(|(n, p)| (p.matched, *n)).max() else {
            self.arbiter.sit();
            return self.become_follower(now, None);
        };
        if matched == self.tail.index && s.handed_over_at.is_none_or(|at| now.since(at) > patience) {
            if let Role::Sequencer(s) = &mut self.role {
                s.handed_over_at = Some(now);
            }
            self.send_in_term(heir, Content::TimeoutNow);
        }
    }

    /// A branch begun here for the vote of a server that has not got it was never more than an intention: its only voter is still on the
    /// old one, and this log goes back there. It is no evidence then: it may have followed such a branch instead of making it, and taken off
    /// what it had acknowledged before.
    pub(crate) fn give_up_unheard_branch(&mut self, now: Timestamp) {
        let Some(fork) = self.tail.lineage.newest().copied() else { return };
        let begun = fork.index == self.tail.voters_at && fork.index > self.commit;
        if !begun || matches!(self.role, Role::Sequencer(_)) {
            return;
        }
        let unheard = |v: &Voter| v.node != self.me() && self.kinship_of(v.node) == Some(Kinship::Ancestor);
        if self.tail.voters.voters.iter().all(unheard)
            && (self.arbitrates() || self.begin_to_doubt())
            && self.truncate_after(fork.index.prev())
        {
            self.become_follower(now, None);
        }
    }

    /// For an arbitrator's retention: every server that votes has acknowledged up to the first, at least one of them up to the
    /// second (in this term, as far as was heard).
    pub fn held_by_servers(&self) -> (LogIndex, LogIndex) {
        let sets = [&self.tail.voters, &self.tail.voters_before];
        let held: Vec<LogIndex> = sets
            .into_iter()
            .flat_map(|set| &set.voters)
            .filter(|v| !self.kind_of(v.node).is_arbitrator())
            .map(|v| self.acks.get(&v.node).copied().unwrap_or_default().min(self.verified))
            .collect();
        (held.iter().copied().min().unwrap_or_default(), held.into_iter().max().unwrap_or_default())
    }
}
