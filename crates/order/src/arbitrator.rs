//! A voter without data (rule 14). It decides who may go on, keeps the tail of the log for those that lack it, and orders only
//! to hand over.
//!
//! It never stands by its own timer. It stands for a *server*: when one asks for a vote (or shows its log while it is without a
//! primary component) that must be refused because its log lacks what this one holds. Elected, it brings that server's log up to
//! its own and tells it to stand. So an election that a server can win is left to the servers, and what only the arbitrator
//! holds is not lost. Where it can bring up no server with weight, it does so with one without.
//!
//! It cannot give what it has dropped. A server whose log ends below its base is stood for only if that one's *data* hold what was
//! dropped: then the state at the beginning of the log here is all that the server needs, and no copy is. A server that has neither is not stood
//! for, and if that shows only after the election, the arbitrator steps down. Then the group waits for somebody who holds more, or for all voters.
//!
//! Where an arbitrator differs outside this file (the rest of the code treats it as any member):
//!
//! - In office: `order` of `replication.rs` gives no place to a write set. `step_membership` and `on_set_durability` of `membership.rs` change
//!   nothing. `on_join` of `joining.rs` lets nobody in.
//! - For office: `may_stand` of `election.rs` needs somebody to stand for. `mandate`, `go_on_with_what_is_left`, `best_log_here` and
//!   `on_entrust` of `suspicion.rs` ask whom its log can bring up.
//! - To others: `need_snapshot_for` of `joining.rs` gives a state only to a server whose data reach it.
//! - Forced changes: `maybe_force` of `branches.rs` does nothing. `on_force` makes a server the voter of the new branch.
//! - Without data: `would_keep_data` of `joining.rs`, `begin_history`, `look_for_component` and `data_arrived` of `group.rs`. `serves_nobody`,
//!   `waits_for_a_copy`, `data_at_stake`, `data_of` and `heirs_for` of `from_data.rs` weigh data, and count none of its own.
//! - As seen by others: `step_voters`, `step_weight` and `step_evicted_outside` of `membership.rs` leave no voters of which none can order, by
//!   `can_order`. `step_own_leave` and `last_with_data` do not leave arbitrators alone. `found` of `founding.rs` does not ask it.
//! - In the node: `core/house.rs` (`own_need`, `look_for_absent`, `keep_log`, `trim_to`, `waits_for_engine`: how long the log is kept), `core/delivery.rs` (`on_reset`),
//!   `core.rs` (`on_event`), `core/throttle.rs` (`set_flow_counts`), `startup.rs` (`prepare`), `saved.rs` (`open`). In the replicator it is `Feed::Nobody`.

use std::collections::BTreeMap;
use std::time::Duration;

use trireme_types::{Base, Kinship, LogIndex, MemberKind, NodeId, Seqno, Timestamp, Voter, VoterSet};

use crate::group::{Group, Peer};
use crate::mutant::Mutant;
use crate::suspicion::Lack;
use crate::timers::Timer;
use crate::{LogEnd, LogStore, Phase};

/// A server's log, as it told.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Heard {
    last: LogEnd,
    /// It needs what was dropped here.
    beyond: bool,
}

/// State that only an arbitrator has; empty on all others.
#[derive(Default)]
pub(crate) struct Arbiter {
    /// The server that it would be elected for. Set by that one's word about its log, until somebody orders.
    stands_for: Option<NodeId>,
    /// The logs that servers told of while nobody ordered.
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
        linked.or_else(|| self.own.tail().view.get(node).map(|m| m.kind)).unwrap_or_default()
    }

    /// Is there one among these voters that could be their sequencer?
    pub(crate) fn can_order(&self, voters: &VoterSet) -> bool {
        voters.voters.iter().any(|v| v.weight.0 > 0 && !self.kind_of(v.node).is_arbitrator())
    }

    /// May the log here be handed over to this server? One of the voters, if need be without weight.
    fn is_heir(&self, node: NodeId) -> bool {
        self.own.tail().voters.contains(node) && !self.kind_of(node).is_arbitrator()
    }

    fn has_weight(&self, node: NodeId) -> bool {
        self.own.tail().voters.weight(node) > 0
    }

    /// Is a server with weight here that the log here can be given to?
    fn reaches_heir_with_weight(&self, now: Timestamp) -> bool {
        self.someone_to_bring_up(&self.voters_heard(now)).is_some()
    }

    /// A member tells where its log ends, because it hears nobody order. One without weight cannot be elected unless it is called, so with data it
    /// is stood for whatever its log holds.
    pub(crate) fn hear_of_log(&mut self, now: Timestamp, from: NodeId, last: LogEnd) {
        if !self.arbitrates()
            || self.leads()
            || self.hears_sequencer(now)
            || !self.is_heir(from)
            // It can win by itself, or has nothing to order with; or another one is in reach that can win.
            || self.log_is_as_good(last) && (self.has_weight(from) || self.data_of(from).is_none())
            || !self.has_weight(from) && self.reaches_heir_with_weight(now)
        {
            return;
        }
        let known = self.arbiter.heard.get(&from);
        let by_data = self.state_for(from).is_some();
        if known.is_none_or(|h| h.last != last || h.beyond && by_data) {
            self.arbiter.heard.insert(from, Heard { last, beyond: false });
            if last.index < self.own.store().base().index && !by_data {
                self.cannot_bring_up(from);
            }
        }
        if !self.can_bring_up(from) && !self.decides_what_is_left(now) {
            return;
        }
        // One that it can bring up is not forgotten for one that it cannot.
        if self.can_bring_up(from) || !self.stands_for_one_in_reach() {
            self.arbiter.stands_for = Some(from);
        }
        if !self.timers.is_armed(Timer::Election) && self.may_stand() {
            let at = now.after(self.random_below(STAND_WITHIN));
            self.timers.arm(Timer::Election, at);
        }
    }

    /// Have all voters together to say what is left, and are they here? So it is when there are too few whole logs, and also when this log
    /// holds everything, but only behind what it has dropped, and nobody gets so far. The best log decides that, and its owner asks for the
    /// promises although it can give its log to nobody.
    fn decides_what_is_left(&self, now: Timestamp) -> bool {
        let whole = |n: NodeId| {
            if n == self.me() {
                self.is_whole()
            } else {
                self.kinship_of(n) == Some(Kinship::Same) && self.says_whole(n)
            }
        };
        let no_use = || self.all_have_told(now) && !self.reaches_anyone(now);
        // Without any data there is nothing to go on with.
        self.all_voters(|n| self.is_here(n))
            && (!self.is_evidence(whole) || no_use())
            && self.reach_of_data(now).is_some()
    }

    /// Does this arbitrator stand although it can give its log to nobody, as far as is known here?
    pub(crate) fn leads_nobody(&self, now: Timestamp) -> bool {
        self.arbitrates() && !self.stands_for_one_in_reach() && !self.reaches_anyone(now)
    }

    fn stands_for_one_in_reach(&self) -> bool {
        self.arbiter.stands_for.is_some_and(|server| self.can_bring_up(server))
    }

    /// Does the log here go on from that of any linked server, or from its data, whatever its vote?
    fn reaches_anyone(&self, now: Timestamp) -> bool {
        let lately = |node: NodeId, peer: &Peer| peer.told_lately(now).is_some() && self.kinship_of(node).is_some();
        self.peers.iter().any(|(node, peer)| lately(*node, peer) && self.reaches(*node))
    }

    /// The state from which this server could go on with the log here, although its own log ends before: its data hold all that lies
    /// below. They are no log, so what they hold has to be proven the same as what was dropped here:
    ///
    /// - The state is one that was delivered here: what lies below was committed on this branch.
    /// - The server's log is of the branch to which that state belongs, so its data hold what was committed there, up to where they reach.
    /// - They reach no further than this log, or the fork at which it left that branch. So they are a part of this log's past.
    /// - The server's log ends at or before the state: it forgets nothing that it acknowledged.
    fn state_for(&self, node: NodeId) -> Option<Base> {
        let theirs = self.peers.get(&node)?.told()?;
        let data = self.data_of(node)?;
        let end = match theirs.lineage.kinship(&self.own.tail().lineage) {
            Kinship::Same => self.own.tail().seqno,
            Kinship::Descendant(fork) => fork.seqno,
            Kinship::Ancestor | Kinship::Sibling => return None,
        };
        let state = self.own.store().checkpoint_before(data)?;
        let meets = state.lineage == theirs.lineage && theirs.last_index <= state.index;
        (meets && data <= end).then_some(state)
    }

    /// Arbitrator as sequencer: this server lacks what the log here has dropped. If its data hold that, it begins where the log does.
    pub(crate) fn bring_up_by_state(&mut self, now: Timestamp, node: NodeId) {
        let Some(state) = self.state_for(node) else { return self.cannot_bring_up(node) };
        if self.progress_of(node).is_none_or(|p| p.rests_from_snapshots(now)) {
            return self.defer_snapshot_for(now, node);
        }
        let text = format!(
            "the data of {} hold all that this arbitrator has dropped: it gets the log from seqno {} on",
            self.names_of(&[node]),
            state.seqno.next()
        );
        self.log(false, text);
        self.send_snapshot(now, node, state);
    }

    /// Does the log here go on where that one ends, as far as is known?
    fn can_bring_up(&self, node: NodeId) -> bool {
        self.is(Mutant::ArbitratorForgets) || self.arbiter.heard.get(&node).is_some_and(|h| !h.beyond)
    }

    /// The same, of a peer that may not have asked for anything, by the log that it has told of.
    fn reaches_by_log(&self, node: NodeId) -> bool {
        let meets = self.arbiter.heard.get(&node).is_none_or(|h| !h.beyond);
        let told = self.peers.get(&node).and_then(|p| p.told());
        meets && told.is_some_and(|p| p.last_index >= self.own.store().base().index)
    }

    /// Could the log here be given to this peer, which is a server then, by its log or by its data?
    fn reaches(&self, node: NodeId) -> bool {
        !self.kind_of(node).is_arbitrator() && (self.reaches_by_log(node) || self.state_for(node).is_some())
    }

    /// The one of these voters, which were heard lately, that the log here can best be given to. A server without data is of less use than any
    /// other: its log has nothing that is not in the one here, and the data of the others may not be reached by it.
    pub(crate) fn someone_to_bring_up(&self, alive: &[Voter]) -> Option<NodeId> {
        let servers = alive.iter().filter(|v| v.weight.0 > 0 && self.reaches(v.node)).map(|v| v.node);
        let end = |node: NodeId| self.peers.get(&node).and_then(|p| p.told()).map(|p| p.end());
        servers.max_by_key(|node| (self.data_of(*node).is_some(), self.reaches_by_log(*node), end(*node)))
    }

    /// Could this member's log be gone on with, as far as is known here? An arbitrator gives its log to a server or to nobody.
    pub(crate) fn is_of_use(&self, now: Timestamp, node: NodeId) -> bool {
        let Some(peer) = self.peers.get(&node).filter(|p| p.member.kind.is_arbitrator()) else { return true };
        let Some(log) = peer.told() else { return true };
        let meets = |end: Seqno, data: Option<Seqno>| {
            end >= log.base || data.is_some_and(|data| (log.base..=log.seqno).contains(&data))
        };
        !self.arbitrates() && meets(self.own.tail().seqno, self.holds())
            || self.servers_here(now).iter().any(|(_, p)| meets(p.seqno, p.holds))
    }

    /// Server, before it goes on alone: what only an arbitrator has kept, and nobody here can go on with, is given up.
    pub(crate) fn tell_what_is_given_up(&mut self, now: Timestamp) {
        let end = self.data.position.map_or(self.own.tail().seqno, |(_, data)| data.max(self.own.tail().seqno));
        let of_arbitrators = self.peers.iter().filter(|(node, peer)| {
            let same = self.kinship_of(**node) == Some(Kinship::Same);
            peer.member.kind.is_arbitrator() && same && !self.is_of_use(now, **node)
        });
        let kept = of_arbitrators.filter_map(|(node, peer)| Some((*node, peer.told_lately(now)?)));
        let best = kept.filter(|(_, log)| log.seqno > end).max_by_key(|(_, log)| log.end());
        let Some((node, base, seqno)) = best.map(|(node, log)| (node, log.base, log.seqno)) else { return };
        let text = format!(
            "{} holds write sets up to seqno {seqno}, but only those behind {base}, and nothing that is here reaches that: what was \
             committed behind seqno {end} is lost",
            self.names_of(&[node])
        );
        self.log(true, text);
    }

    /// This server lacks what the log here has dropped.
    pub(crate) fn cannot_bring_up(&mut self, node: NodeId) {
        if let Some(p) = self.progress_of(node) {
            p.beyond = true;
        }
        let Some(heard) = self.arbiter.heard.get_mut(&node).filter(|h| !h.beyond) else { return };
        heard.beyond = true;
        let (first, last) = (self.own.store().first(), heard.last.index);
        self.log(
            true,
            format!(
                "this arbitrator cannot help {node} to go on: its log ends at {last} and its data lack what lies between, the log here \
                 begins at {first}; waiting for a server that has more"
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
        let Some(s) = self.role.leading() else { return };
        let heirs = s.progress.iter().filter(|(n, p)| {
            self.peers.contains_key(n) && self.is_heir(**n) && !p.beyond && now.since(p.heard) < 2 * patience
        });
        let Some((_, held, heir)) = heirs.map(|(n, p)| (self.has_weight(*n), p.held(), *n)).max() else {
            self.arbiter.sit();
            return self.become_follower(now, None);
        };
        // One that was given a state is whole when it has heard of this term. Before that it may be bound to wait for other voters.
        if held == Some(self.own.tail().index) && self.may_be_whole(heir) {
            self.call_heir(now, heir);
        }
    }

    /// A branch of which so many of its voters have not heard that the others cannot commit anything there was never more than an intention: those are still
    /// on the old one, and this log goes back there. It is no evidence then: it may have followed such a branch instead of making it, and taken off
    /// what it had acknowledged before.
    pub(crate) fn give_up_unheard_branch(&mut self, now: Timestamp) {
        let Some(fork) = self.own.tail().lineage.newest().copied() else { return };
        let begun = fork.index == self.own.tail().voters_at && fork.index > self.commit;
        if !begun || self.leads() {
            return;
        }
        let end = self.own.tail().end();
        let unheard = |n: NodeId| n != self.me() && self.kinship_of(n) == Some(Kinship::Ancestor);
        if !self.own.tail().voters.majority(|n| !unheard(n))
            && (self.arbitrates() || self.begin_to_doubt(Lack::Entries))
            && self.truncate_after(fork.index.prev())
        {
            self.suspicion.note_given_up(end);
            self.become_follower(now, None);
        }
    }

    /// For an arbitrator's retention: every server that votes has acknowledged up to the first, at least one of them up to the
    /// second (in this term, as far as was heard).
    pub fn held_by_servers(&self) -> (LogIndex, LogIndex) {
        let sets = [&self.own.tail().voters, &self.own.tail().voters_before];
        let held: Vec<LogIndex> = sets
            .into_iter()
            .flat_map(|set| &set.voters)
            .filter(|v| !self.kind_of(v.node).is_arbitrator())
            .map(|v| self.era.ack_of(v.node).unwrap_or_default().min(self.era.verified()))
            .collect();
        (held.iter().copied().min().unwrap_or_default(), held.into_iter().max().unwrap_or_default())
    }
}
