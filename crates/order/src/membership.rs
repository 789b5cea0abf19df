//! Joining, leaving, views, voters, and what happens without a majority.

use std::collections::BTreeSet;

use trireme_types::{
    Base, Durability, EntryKind, Incarnation, Kinship, LogIndex, Member, NodeId, Seqno, Session, Setting, Term,
    Timestamp, Uuid, View, Voter, VoterSet, Weight, Writer,
};

use bytes::Bytes;

use crate::election::{Era, Joiner, Role};
use crate::group::{CHECK_EVERY, Group};
use crate::message::{JoinRequest, Presence};
use crate::mutant::Mutant;
use crate::replication::Progress;
use crate::standing::{Offer, Rival, Standing};
use crate::timers::Timer;
use crate::voters::{after_leave, next_voters};
use crate::{Content, Event, LogEnd, LogStore, Message, Output, Phase};

/// What a voter weighs next that wishes for another weight: more only as far as the limit goes. A limit that has come down meanwhile, as
/// others went, takes away nothing: that could be the majority.
fn granted(has: Weight, wish: Weight, limit: Option<Weight>) -> Weight {
    limit.map_or(wish, |limit| wish.min(limit.max(has)))
}

impl<S: LogStore> Group<S> {
    // --- asking to be let in --------------------------------------------------------------------------------------

    pub(crate) fn send_join(&mut self) {
        let nodes: Vec<NodeId> = self.peers.keys().copied().collect();
        for node in nodes {
            self.send_join_to(node);
        }
    }

    pub(crate) fn send_join_to(&mut self, node: NodeId) {
        if self.begins_apart_from(node) {
            return;
        }
        let request = JoinRequest {
            member: self.cfg.me.clone(),
            history: self.tail.history,
            lineage: self.tail.lineage.clone(),
            usable: self.standing().keeps_log(),
            last_index: self.tail.index,
            last_term: self.tail.term,
            position: self.join_state.as_ref().and_then(|j| j.position),
            view: self.done.view.number,
        };
        self.send(node, Message::Join(request));
    }

    /// Whoever orders, if only itself so far, has a history to go on with: it asks to be let into no other one, and is not taken
    /// into one. A bootstrap beside another cluster would else end in that cluster.
    fn begins_apart_from(&self, node: NodeId) -> bool {
        let theirs = self.peers.get(&node).and_then(|p| Some(p.told()?.history));
        matches!(self.role, Role::Sequencer(_)) && theirs != Some(self.tail.history)
    }

    pub(crate) fn on_join(&mut self, now: Timestamp, from: NodeId, request: JoinRequest) {
        let same_history = request.history == self.tail.history;
        let kinship =
            if self.is(Mutant::ForkMerged) { Kinship::Same } else { request.lineage.kinship(&self.tail.lineage) };
        // Up to where its log can be this one's.
        let common = match kinship {
            Kinship::Same => Some(self.tail.index),
            Kinship::Descendant(fork) => Some(fork.index.prev()),
            Kinship::Ancestor | Kinship::Sibling => None,
        };
        let usable = same_history && request.usable && common.is_some();
        let tail = self.tail.index;
        if request.member.node != from {
            return;
        }
        if self.evicted.contains(&request.member.uuid()) {
            return self.send(from, Message::Evicted);
        }
        let arbitrates = self.arbitrates();
        let answers = self.answered(from).is_some_and(|at| now.since(at) <= self.cfg.timeouts.election * 2);
        let settled = self.tail.voters_at <= self.commit.max(self.hard.voters_committed);
        let votes = self.tail.voters.contains(from) || !settled && self.tail.voters_before.contains(from);
        let heard = self.majority_heard(now);
        let Role::Sequencer(s) = &mut self.role else { return };
        if !s.established || arbitrates {
            return;
        }
        if !request.history.is_nil() && same_history && kinship != Kinship::Same {
            // It has been on another branch since it voted here, and does not remember what it promised (rules 12, 13). One that has only
            // lost the fork does, and follows again.
            if votes && !usable {
                s.strangers.insert(from);
                return self.step_membership(now);
            }
            if !heard {
                // Nobody gives up a branch for a component that may be gone.
                return;
            }
        }
        let inside = self.tail.view.get(from).is_some_and(|m| m.incarnation == request.member.incarnation);
        let mut usable = usable;
        if self.has_unreachable_term(now, from) {
            // Its promises are of terms in which nobody here can ever ask for them. Without a vote they bind it no more, and it begins anew.
            if votes && heard {
                if let Role::Sequencer(s) = &mut self.role {
                    s.strangers.insert(from);
                }
                return self.step_membership(now);
            }
            if votes || inside {
                return;
            }
            usable = false;
        }
        if self.is_behind_only_data(now, from, request.position) {
            return;
        }
        let members_max = self.cfg.limits.members_max;
        let Role::Sequencer(s) = &mut self.role else { return };
        let mut others = s.joiners.keys().filter(|n| **n != from && self.tail.view.get(**n).is_none());
        if !inside
            && self.tail.view.get(from).is_none()
            && self.tail.view.members.len() + others.by_ref().count() >= members_max
        {
            let is_known = std::mem::replace(&mut s.is_full, true);
            if let Some(left_out) = Some(()).filter(|()| !is_known).and_then(|()| self.room_for_a_line(now, from)) {
                let text = format!("no more than {members_max} members: others that ask are not let in{left_out}");
                self.log(true, text);
            }
            return;
        }
        s.is_full = false;
        if inside {
            // One that has not delivered the newest view yet will find itself in it; one that hears nothing never would.
            if request.view == self.tail.view.number && answers {
                s.fresh.insert(from);
            }
        } else {
            let incarnation = request.member.incarnation;
            let before = s.joiners.insert(from, Joiner { member: request.member, position: request.position });
            if before.is_none_or(|j| j.member.incarnation != incarnation) {
                self.tell_of_gap(now, from, request.position);
            }
        }
        let Role::Sequencer(s) = &mut self.role else { return };
        match s.progress.get(&from) {
            Some(p) if usable || p.snapshot_since.is_some() => {}
            // One is under way. (Probes say nothing here: a log of no history does not answer them.)
            Some(p) if p.rests_from_snapshots(now) => {}
            None if usable => {
                let next = request.last_index.min(common.unwrap_or(tail)).min(tail).next();
                s.progress.insert(from, Progress::new(next, tail, now));
            }
            before => {
                let snapshots = before.map_or(0, |p| p.snapshots);
                s.progress.insert(from, Progress { snapshots, ..Progress::new(tail.next(), tail, now) });
                self.need_snapshot_for(now, from);
            }
        }
        self.step_membership(now);
    }

    /// A joiner with data that the kept log does not reach back to. In Galera's words, and as there on the side that keeps the log:
    /// they are looked for.
    fn tell_of_gap(&mut self, now: Timestamp, from: NodeId, position: Option<(Uuid, Seqno)>) {
        let base = self.store.base();
        let Some((_, at)) = position.filter(|(history, at)| *history == base.history && *at < base.seqno) else {
            return;
        };
        let first = at.next();
        if let Some(left_out) = self.room_for_a_line(now, from) {
            self.log(false, format!("IST first seqno {first} not found from cache, falling back to SST{left_out}"));
        }
    }

    /// The peer's log can't be continued: give it a state to begin with, as old as its data need and we still have.
    pub(crate) fn need_snapshot_for(&mut self, now: Timestamp, node: NodeId) {
        if self.arbitrates() && !self.is(Mutant::ArbitratorForgets) {
            return self.bring_up_by_state(now, node);
        }
        let history = self.tail.history;
        let Role::Sequencer(s) = &mut self.role else { return };
        let Some(p) = s.progress.get_mut(&node) else { return };
        if p.rests_from_snapshots(now) {
            // It did not help, or has not arrived.
            return self.defer_snapshot_for(now, node);
        }
        p.snapshot_since = Some(now);
        let position = s.joiners.get(&node).and_then(|j| j.position).filter(|(h, _)| *h == history);
        // A log of another branch is replaced by one that lies on this one, never by a part of the past that both have: whoever
        // forgets what it acknowledged there must not be taken for one who has never left.
        let branch = self.tail.branch();
        let same = self.kinship_of(node) == Some(Kinship::Same);
        // A member is bound no more by what it has promised only by a state in which it has no vote.
        let renews = self.has_unreachable_term(now, node);
        let fits = |base: &Base| {
            (same || base.lineage.branch(base.history) == branch) && !(renews && base.voters_at < self.tail.voters_at)
        };
        let kept = position.and_then(|(_, seqno)| self.store.checkpoint_before(seqno));
        if let Some(base) = kept.filter(fits) {
            return self.send_snapshot(now, node, base);
        }
        if let Some(data) = self.only_data(node) {
            // From a position that it has not asked from yet, perhaps; or from the past that both have, if it forgets nothing by that.
            let fits = |base: &Base| same || self.has_nothing_behind(node, base);
            return match self.store.checkpoint_before(data).filter(fits) {
                Some(base) => self.send_snapshot(now, node, base),
                None => {
                    self.spare_data_of(now, node, data);
                    self.defer_snapshot_for(now, node);
                }
            };
        }
        self.ask_for_snapshot(Some(node));
    }

    /// Can this peer, which lacks the fork at which the own branch began, take this base of the past before it without losing an entry?
    fn has_nothing_behind(&self, node: NodeId, base: &Base) -> bool {
        let Some(theirs) = self.peers.get(&node).and_then(|p| p.told()) else { return false };
        match theirs.lineage.kinship(&self.tail.lineage) {
            Kinship::Descendant(fork) => {
                base.lineage == theirs.lineage && base.index < fork.index && theirs.last_index <= base.index
            }
            Kinship::Same | Kinship::Ancestor | Kinship::Sibling => false,
        }
    }

    /// Wait, don't repeat it at the speed of the network.
    pub(crate) fn defer_snapshot_for(&mut self, now: Timestamp, node: NodeId) {
        let next = self.tail.index.next();
        if let Some(p) = self.progress_of(node) {
            p.snapshot_since = None;
            p.probing = true;
            p.probed_at = Some(now);
            p.next = next;
        }
    }

    pub(crate) fn send_snapshot(&mut self, now: Timestamp, node: NodeId, base: Base) {
        let tail = self.tail.index;
        let term = self.hard.term;
        let Some(p) = self.progress_of(node) else { return };
        p.snapshot_since = None;
        p.snapshot_sent = Some(now);
        p.snapshots = p.snapshots.saturating_add(1);
        p.matched = LogIndex::ZERO;
        p.restart(base.index.next(), tail);
        p.probed_at = Some(now);
        let lineage = self.tail.lineage.clone();
        self.send(node, Message::Snapshot { term, lineage, base: Box::new(base) });
        // The probe comes behind it.
        if let Some(p) = self.progress_of(node) {
            p.probed_at = None;
        }
    }

    pub(crate) fn on_snapshot(&mut self, now: Timestamp, offer: Offer) {
        let Offer { from, term, lineage, base } = offer;
        let same = base.history == self.tail.history;
        if !same && self.begins_apart_from(from) || self.is_beyond_level(now, from, base.level) {
            return;
        }
        let kinship = match self.tail.lineage.kinship(&lineage) {
            _ if self.is(Mutant::ForkMerged) => Kinship::Same,
            kinship => kinship,
        };
        let of_branch = same && kinship == Kinship::Same;
        // Its sequencer has let the others take this member's vote: what was promised in terms that nobody reaches binds it no more.
        // A state from before that may come late, and this member may have voted since.
        let without_vote = !base.voters.contains(self.me()) && base.index >= self.tail.voters_at;
        let renewed = same && Self::is_driven_up(self.hard.term, term) && without_vote;
        // Shorter than the base, or with a tail that was never committed where the group has something else.
        let behind = base.index > self.tail.index
            || base.index > self.commit && self.store.term_at(base.index) != Some(base.term);
        let keeps_log = self.standing().keeps_log();
        let wanted = !keeps_log || !of_branch || behind || renewed;
        // A member so far behind that nobody keeps what it lacks is told so too: its driver sees the reset and leaves.
        let lagging = self.sequencer == Some(from) && (behind || !of_branch);
        if !matches!(self.phase(), Phase::Joining | Phase::NonPrimary) && keeps_log && !lagging || !wanted {
            return;
        }
        if self.is_strange_state(same) && !self.continues_here(&lineage, &base) && !self.may_overrule(now, from) {
            return;
        }
        // A log of which nothing is left does not say whose promises these are: they are kept. Nor do they go with the branch.
        let promised = (same || self.tail.history.is_nil()) && !renewed;
        if term < self.hard.term && promised {
            let (branch, term) = (lineage.branch(base.history), self.hard.term);
            return self.send(from, Content::HeartbeatAck { round: 0 }.in_term(branch, term));
        }
        let contradicts = match kinship {
            Kinship::Same => self.standing().is_doubled(),
            Kinship::Descendant(fork) => !self.can_follow(&fork),
            Kinship::Ancestor | Kinship::Sibling => true,
        };
        let data_go_first = match self.standing() {
            Standing::Keeps | Standing::OutOfReach | Standing::GivesWay { .. } => same && contradicts,
            Standing::Diverged { .. } => true,
            Standing::Discarded { .. } => false,
        };
        if data_go_first {
            // Rule 13.
            return self.become_diverged(Some(Offer { from, term, lineage, base }));
        }
        if !promised || term > self.hard.term {
            // Terms of another history mean nothing here. Its sequencer has this member's vote now.
            self.hard.term = term;
            self.hard.voted_for = from;
        }
        // The base need not reach what the old log acknowledged: no evidence of that any more (rules 10, 12). One of a later term does: its
        // sequencer held all that was committed before, and of that term itself the old log has nothing.
        let reaches = of_branch && LogEnd { term: base.term, index: base.index } >= self.tail.end();
        if !self.tail.history.is_nil() && !reaches && !self.begin_to_doubt() {
            return;
        }
        let forgotten = self.suspicion.acknowledged_before();
        let view = base.view.clone();
        if !self.replace_log(base) {
            return;
        }
        self.data.applied = Seqno::ZERO;
        self.become_follower(now, Some((from, lineage)));
        self.suspicion.keep_acknowledged(forgotten);
        if matches!(self.phase(), Phase::Primary | Phase::Leaving) {
            // The view that threw this member out may be among what was skipped.
            self.on_view_delivered(now, &view);
        }
    }

    /// Would a state of this, or another, history replace what only the own cluster may replace? Who has a log of voters belongs to them;
    /// only one that was started with it may be meant to join another cluster.
    fn is_strange_state(&self, same: bool) -> bool {
        let belongs = !self.tail.history.is_nil() && !self.tail.voters.voters.is_empty();
        belongs && (same || self.phase() != Phase::Joining)
    }

    /// From here on the log begins at `base`. `false`: it could not be replaced.
    pub(crate) fn replace_log(&mut self, base: Base) -> bool {
        // Data that no log here reached may fit this one. Those that end below it are of no use from here on.
        let found =
            self.data.position.filter(|data| self.join_state.as_ref().is_some_and(|j| j.position == Some(*data)));
        let found = found.filter(|(history, _)| *history == base.history).map(|(_, seqno)| seqno);
        let held = if self.data.stocked { self.holds() } else { found };
        self.data.stocked = held.is_some_and(|held| held >= base.seqno) && !self.arbitrates();
        self.data.position = self.data.position.filter(|_| self.data.stocked);
        // First: positions of the old log must not be taken for committed ones of the new, whenever this stops.
        if let Err(e) = self.forget_committed().and_then(|()| self.store.reset(base.clone())) {
            self.fail(e);
            return false;
        }
        self.hard.voters_committed = base.voters_at;
        self.hard.committed = base.index;
        if !self.save_hard() {
            return false;
        }
        self.synced = self.store.synced();
        self.become_keeping();
        self.begin_at(base);
        self.renew_session();
        self.sequencer = None;
        // Another log: what was known of the old one is void, in the same term too.
        self.era = Era::default();
        true
    }

    /// After a fork this side may not know the numbers that the other side ordered: what comes next would wait for them for
    /// ever. What is pending is given up, as in `abandon_pending`.
    fn renew_session(&mut self) {
        let first = self.proposals.first_number();
        let ordered = match self.done.sessions.get(&self.me()) {
            Some((session, last)) if *session == self.proposals.session().number => *last,
            Some(_) | None => 0,
        };
        if ordered + 1 < first {
            self.proposals.give_up();
        }
    }

    // --- leaving --------------------------------------------------------------------------------------------------

    pub(crate) fn continue_leave(&mut self, now: Timestamp) {
        let incarnation = self.cfg.me.incarnation;
        self.to_sequencer(now, Message::Leave { incarnation });
    }

    pub(crate) fn on_leave(&mut self, now: Timestamp, from: NodeId, incarnation: Incarnation) {
        let inside = self.tail.view.get(from).is_some_and(|m| m.incarnation == incarnation);
        if let Role::Sequencer(s) = &mut self.role {
            if inside {
                if let std::collections::btree_map::Entry::Vacant(first) = s.leavers.entry(from) {
                    first.insert(now);
                    // Those that stay are asked whether they are there.
                    self.timers.arm(Timer::Heartbeat, now);
                }
                self.step_membership(now);
            }
        }
    }

    pub(crate) fn on_set_weight(&mut self, now: Timestamp, from: NodeId, weight: Weight) {
        if let Role::Sequencer(s) = &mut self.role {
            s.weights.insert(from, weight);
            self.step_membership(now);
        }
    }

    pub(crate) fn on_set_durability(&mut self, durability: Durability) {
        if matches!(self.role, Role::Sequencer(_)) && self.tail.durability != durability && !self.arbitrates() {
            let mut w = Writer::new();
            Setting::Durability(durability).encode(&mut w);
            self.append_own(EntryKind::Setting, Session::default(), 0, Bytes::from(w.buf));
        }
    }

    // --- what follows from silence --------------------------------------------------------------------------------

    pub(crate) fn on_check(&mut self, now: Timestamp) {
        if matches!(self.phase(), Phase::Primary | Phase::Leaving)
            && now.since(self.good_at) > self.cfg.timeouts.suspect
        {
            // A member that may go on alone was never without a primary component.
            if self.phase() == Phase::Leaving || !self.maybe_force(now) {
                self.lose_component(now);
            }
        }
        match self.phase() {
            Phase::Joining | Phase::NonPrimary => {
                self.found(now);
                self.give_up_unheard_branch(now);
                self.send_presence(now);
                self.send_join();
                self.explain_waiting(now);
                self.stop_yielding(now);
                if self.phase() == Phase::NonPrimary {
                    self.maybe_force(now);
                }
            }
            Phase::Leaving => self.continue_leave(now),
            Phase::Primary => {
                self.press_wishes(now);
                if now.since(self.good_at) > self.cfg.timeouts.election * 2 {
                    // Whoever may have to go on alone wants to know the others' logs first.
                    self.send_presence(now);
                } else {
                    self.tell_other_branches(now);
                }
            }
            Phase::Idle | Phase::Failed => {}
        }
        if !self.standing().keeps_log() && self.phase() == Phase::Primary {
            self.send_join();
        }
        if !self.timers.is_armed(Timer::Election) && !matches!(self.role, Role::Sequencer(_)) {
            self.arm_election(now);
        }
        self.readmit(now);
        self.restart_stalled(now);
        self.note_silence(now);
        self.step_membership(now);
        self.hand_over(now);
    }

    /// What this member wants ordered and does not see in force yet: a request may get lost with a sequencer.
    pub(crate) fn press_wishes(&mut self, now: Timestamp) {
        if self.phase() != Phase::Primary {
            return;
        }
        let weight = self.cfg.me.weight;
        if self.done.view.get(self.me()).is_some_and(|m| m.weight != weight) {
            self.to_sequencer(now, Message::SetWeight { weight });
        }
        if let Some(durability) = self.want_durability {
            if self.done.durability == durability {
                self.want_durability = None;
            } else {
                self.to_sequencer(now, Message::SetDurability { durability });
            }
        }
    }

    fn note_silence(&mut self, now: Timestamp) {
        let limit = self.cfg.timeouts.election * 2;
        let mut newly = Vec::new();
        for (node, peer) in &mut self.peers {
            if !peer.silent && now.since(peer.heard) > limit && self.tail.view.get(*node).is_some() {
                // Members have no reason to speak unless they follow or lead; only the sequencer judges.
                if self.sequencer == Some(*node) || self.sequencer == Some(self.cfg.me.node) {
                    peer.silent = true;
                    newly.push(*node);
                }
            }
        }
        for node in newly {
            self.out.push_back(Output::Event(Event::Silent { node, silent: true }));
        }
    }

    // --- where everybody stands -----------------------------------------------------------------------------------

    fn presence(&self, now: Timestamp) -> Presence {
        let keeps_log = self.standing().keeps_log();
        Presence {
            // Who has given up its branch speaks for none.
            history: if self.standing().gives_up_data() { Uuid::NIL } else { self.tail.history },
            lineage: self.tail.lineage.clone(),
            term: self.hard.term,
            // A log that is to be replaced is no better than none.
            last_term: if keeps_log { self.tail.term } else { Term::ZERO },
            last_index: if keeps_log { self.tail.index } else { LogIndex::ZERO },
            base: self.store.base().seqno,
            seqno: self.tail.seqno,
            primary: self.goes_on(now),
            whole: self.is_whole(),
            data: self.data.position.filter(|_| self.phase() == Phase::Joining),
            holds: self.holds(),
            founding: self.founding(now),
            sequencer: self.vouches_for(),
        }
    }

    /// In a primary component that has a majority at this moment. Who has given its vote away does not speak for the old one any more,
    /// and not yet for the next one.
    fn goes_on(&self, now: Timestamp) -> bool {
        self.phase() == Phase::Primary
            && self.standing().keeps_log()
            && self.led_terms.newest == self.hard.term
            && now.since(self.good_at) <= self.cfg.timeouts.election * 2
    }

    pub(crate) fn send_presence(&mut self, now: Timestamp) {
        self.told.branch = self.tail.branch();
        self.told.sequencer = self.vouches_for();
        self.told.stocked = self.data.stocked;
        self.told.base = self.store.base().seqno;
        let message = Message::Presence(self.presence(now));
        let nodes: Vec<NodeId> = self.peers.keys().copied().collect();
        for node in nodes {
            self.send(node, message.clone());
        }
    }

    pub(crate) fn send_presence_to(&mut self, now: Timestamp, node: NodeId) {
        let message = Message::Presence(self.presence(now));
        self.send(node, message);
    }

    /// Two primary components of one history: both have to find out, whenever they meet.
    fn tell_other_branches(&mut self, now: Timestamp) {
        let nodes: Vec<NodeId> = self
            .peers
            .keys()
            .copied()
            .filter(|node| self.kinship_of(*node).is_some_and(|k| k != Kinship::Same))
            .collect();
        for node in nodes {
            self.send_presence_to(now, node);
        }
    }

    pub(crate) fn on_presence(&mut self, now: Timestamp, from: NodeId, presence: Presence) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        let branch = presence.lineage.branch(presence.history);
        let log = Some(presence.end()).filter(|_| !presence.primary);
        let before = peer.presence.replace((now, presence)).map(|(_, p)| p.lineage.branch(p.history));
        if !self.running() {
            return;
        }
        let kinship = self.kinship_of(from);
        if kinship == Some(Kinship::Same) {
            if let Some(last) = log {
                self.hear_of_log(now, from, last);
            }
        }
        if before != Some(branch) {
            if kinship != Some(Kinship::Same) {
                // What it acknowledged, it acknowledged with another log.
                self.acks.remove(&from);
                self.suspicion.forget_peer(from);
                if let Role::Sequencer(s) = &mut self.role {
                    s.progress.remove(&from);
                }
            }
            self.track(now, from);
        }
        self.meet(now, from);
    }

    /// A peer of another branch that is in a primary component, as this member is: one of the two has to go.
    fn meet(&mut self, now: Timestamp, from: NodeId) {
        self.meet_double(now, from);
        let Some(theirs) = self.peers.get(&from).and_then(|p| p.told()) else { return };
        let other = !matches!(self.kinship_of(from), Some(Kinship::Same) | None);
        if !other || !theirs.primary {
            return;
        }
        let lesser = self.tail.lineage.precedence(&theirs.lineage) == std::cmp::Ordering::Less;
        let theirs = theirs.lineage.branch(theirs.history);
        if !self.may_overrule(now, from) {
            return;
        }
        if lesser {
            self.hear_of_rival(now);
        }
        if !self.goes_on(now) {
            return;
        }
        if lesser {
            self.log(
                true,
                "another primary component of this cluster runs, separated from this one by a forced change (pc.bootstrap, \
                 pc.ignore_sb, pc.ignore_quorum or a bootstrap). It goes on; this node leaves. What was committed on this side \
                 since is not part of it: save it from here before you restart this node, which then gets a full copy"
                    .into(),
            );
            self.give_way(now, Rival::Branch);
        } else if self.told.met != theirs {
            self.told.met = theirs;
            self.log(
                true,
                "another primary component of this cluster runs, separated from this one by a forced change. This one goes on; \
                 the nodes of the other leave and get a full copy when they are restarted"
                    .into(),
            );
        }
    }

    /// A primary component of the own branch, with another sequencer, while this member goes on alone: it was started with an old disk,
    /// which names nobody else any more, or nobody yet.
    fn meet_double(&mut self, now: Timestamp, from: NodeId) {
        let me = self.me();
        let Some(theirs) = self.peers.get(&from).and_then(|p| p.told()) else { return };
        let leads = theirs.sequencer.is_some_and(|s| s != me) && theirs.primary;
        if !leads || self.kinship_of(from) != Some(Kinship::Same) || !self.is_alone() {
            return;
        }
        if self.standing().is_doubled() {
            self.hear_of_rival(now);
        }
        if !matches!(self.role, Role::Sequencer(_)) || !self.goes_on(now) || !self.may_overrule(now, from) {
            return;
        }
        let name = self.names_of(&[from]);
        let text = format!(
            "{name} is in a primary component of this cluster, while this node went on alone: an old copy of the data directory was put \
             back. That component goes on; this node leaves. What was committed here since is not part of it, and is replaced by a \
             full copy"
        );
        self.log(true, text);
        self.give_way(now, Rival::Double);
    }

    fn give_way(&mut self, now: Timestamp, rival: Rival) {
        self.become_follower(now, None);
        self.become_non_primary(vec![self.cfg.me.clone()]);
        self.become_yielding(now, rival);
    }

    fn stop_yielding(&mut self, now: Timestamp) {
        let timeouts = &self.cfg.timeouts;
        let Standing::GivesWay { rival, heard } = self.standing() else { return };
        let patience = match rival {
            // It says where it stands every 100 ms. A lie of one that is gone keeps nobody here for longer.
            Rival::Branch => timeouts.suspect.max(timeouts.inactive / 3),
            Rival::Double => timeouts.inactive,
        };
        if now.since(*heard) <= patience {
            return;
        }
        self.log(
            true,
            "the primary component that this node gave way to is not heard of any more: this node goes on with its own branch".into(),
        );
        self.become_keeping();
        self.become_follower(now, None);
    }

    fn reachable(&self, now: Timestamp) -> Vec<Member> {
        let mut members = vec![self.cfg.me.clone()];
        for m in &self.tail.view.members {
            if self.heard_recently(now, m.node) {
                members.push(m.clone());
            }
        }
        members
    }

    fn heard_recently(&self, now: Timestamp, node: NodeId) -> bool {
        node != self.me() && self.peers.get(&node).is_some_and(|p| now.since(p.heard) <= self.cfg.timeouts.suspect)
    }

    /// No majority, for too long.
    fn lose_component(&mut self, now: Timestamp) {
        if self.phase() == Phase::Leaving {
            return self.become_left();
        }
        self.become_non_primary(self.reachable(now));
    }

    /// `pc.ignore_sb`, `pc.ignore_quorum`: go on with what is left (rule 13).
    fn maybe_force(&mut self, now: Timestamp) -> bool {
        if now.since(self.good_at) <= self.cfg.timeouts.suspect
            || self.arbitrates()
            || !self.may_stand()
            || !self.is_whole()
            || self.serves_nobody(now).is_some()
        {
            return false;
        }
        let me = self.me();
        let voters = &self.tail.voters;
        let alive: Vec<Voter> = voters
            .voters
            .iter()
            .filter(|v| {
                let unheard = self.peers.get(&v.node).is_some_and(|p| p.presence.is_none());
                let same = || unheard || self.kinship_of(v.node) == Some(Kinship::Same);
                v.node == me || self.heard_recently(now, v.node) && same()
            })
            .copied()
            .collect();
        let weight: u32 = alive.iter().map(|v| u32::from(v.weight.0)).sum();
        let half = 2 * weight == voters.total();
        let text = if half && self.cfg.ignore_sb {
            "Ignoring possible split-brain (allowed by configuration) from view:"
        } else if self.cfg.ignore_quorum && 2 * weight <= voters.total() {
            "Ignoring lack of quorum"
        } else {
            return false;
        };
        // The best log goes on, and only one of the members may do it (rule 1).
        let mine = (self.tail.term, self.tail.index, std::cmp::Reverse(me));
        for v in alive.iter().filter(|v| v.node != me) {
            let log = self
                .peers
                .get(&v.node)
                .and_then(|p| p.presence.as_ref())
                .filter(|(at, _)| now.since(*at) < CHECK_EVERY * 10);
            match log {
                Some((_, p)) if (p.last_term, p.last_index, std::cmp::Reverse(v.node)) < mine => {}
                // Better than this one, or not known yet.
                Some(_) | None => return false,
            }
        }
        self.log(true, text.into());
        self.force(now, me);
        true
    }

    /// `pc.bootstrap`: make the reachable non-primary members primary (fork record). No effect when primary.
    pub fn force_primary(&mut self, now: Timestamp) {
        self.input(|group| group.on_force(now));
    }

    pub(crate) fn on_force(&mut self, now: Timestamp) {
        if !matches!(self.phase(), Phase::NonPrimary | Phase::Joining)
            || self.tail.history.is_nil()
            || !self.standing().may_be_forced()
        {
            return;
        }
        // A log that goes on from nobody's data serves nobody, however long it is (rule 10).
        let reach = self.reach_of_data(now).unwrap_or(Seqno(u64::MAX));
        let useful = self.arbitrates() || self.store.base().seqno <= reach;
        let mine = if useful { (0, self.tail.term, self.tail.index) } else { Default::default() };
        let mut best: Option<((usize, Term, LogIndex), NodeId)> = None;
        let mut alive = Vec::new();
        for (node, peer) in &self.peers {
            let Some(p) = peer.told_lately(now).filter(|p| !p.primary) else { continue };
            // A branch that grew from this one was forced later, and knows more of what was meant to last.
            let forks = match self.kinship_of(*node) {
                Some(Kinship::Same) if p.base > reach || !self.is_of_use(now, *node) => continue,
                Some(Kinship::Same) => 0,
                Some(Kinship::Descendant(fork)) if self.is_bare_branch(now, p, &fork) => continue,
                Some(Kinship::Descendant(_)) => p.lineage.forks().len(),
                Some(Kinship::Ancestor | Kinship::Sibling) | None => continue,
            };
            let log = (forks, p.last_term, p.last_index);
            alive.push(Voter { node: *node, weight: peer.member.weight });
            if log > mine && best.is_none_or(|(best, _)| log > best) {
                best = Some((log, *node));
            }
        }
        match best {
            Some((_, node)) => self.send(node, Message::Force),
            None if self.arbitrates() => match self.someone_to_bring_up(&alive) {
                Some(server) => self.force(now, server),
                None => {
                    let text = "not made primary: this arbitrator has the newest log, but what the servers lack of it is dropped; stop \
                                the arbitrator to go on without it"
                        .into();
                    self.log(true, text);
                }
            },
            None => {
                self.tell_what_is_given_up(now);
                let me = self.me();
                self.force(now, me);
            }
        }
    }

    /// Begins a branch of its own, with this member as the only voter: nobody else has it yet, so nobody else can have promised anything
    /// in it. Whoever is linked follows and gets its vote back as any joiner does. An arbitrator does it for a server.
    fn force(&mut self, now: Timestamp, voter: NodeId) {
        if self.is_forked_out() {
            self.log(true, "not forced: this history has been forced too often; bootstrap a new one".into());
            return;
        }
        if let Some(why) = self.serves_nobody(now) {
            let text = format!(
                "not made primary: {why}, so nobody could use the write-set log of this node. Do it on a node \
                 with data, or bootstrap this one"
            );
            return self.log(true, text);
        }
        self.become_keeping();
        if voter == self.me() && self.force_from_own_data(now) {
            return;
        }
        let id = self.draw_fork();
        self.log(
            false,
            format!("primary component forced by this node alone: branch {id} begins after seqno {}", self.tail.seqno),
        );
        let voters = self.alone(voter, id);
        self.take_over(now, Some(voters));
    }

    /// This member, or a linked one, as the only voter.
    pub(crate) fn alone(&self, voter: NodeId, fork: Uuid) -> VoterSet {
        let member = self.peers.get(&voter).map_or(&self.cfg.me, |p| &p.member);
        // Somebody must be able to decide.
        VoterSet { voters: vec![Voter { node: voter, weight: Weight(member.weight.0.max(1)) }], fork }
    }

    // --- views and voters, by the sequencer -----------------------------------------------------------------------

    pub(crate) fn on_commit_moved(&mut self, now: Timestamp) {
        self.order_blocked();
        self.step_membership(now);
    }

    pub(crate) fn on_term_delivered(&mut self, now: Timestamp, term: Term) {
        let current = term == self.hard.term;
        if let Role::Sequencer(s) = &mut self.role {
            if current {
                s.established = true;
                self.settle_suspicion();
                self.step_membership(now);
            }
        }
    }

    pub(crate) fn on_voters_delivered(&mut self, now: Timestamp) {
        self.step_membership(now);
        self.arm_election(now);
    }

    pub(crate) fn on_view_delivered(&mut self, now: Timestamp, view: &View) {
        self.leavers.on_view(now, view);
        let mine = view.get(self.me()).is_some_and(|m| m.incarnation == self.cfg.me.incarnation);
        match self.phase() {
            Phase::Joining | Phase::NonPrimary if mine && self.data.applied > self.done.seqno => {
                // This history ends before these data do: they are of another past (rule 18).
                self.log(
                    true,
                    format!(
                        "the data of this node reach seqno {}, the history of the group only {}: they hold commits that the group \
                         has lost, and are replaced by a full copy",
                        self.data.applied, self.done.seqno
                    ),
                );
                self.become_diverged(None);
            }
            Phase::Joining | Phase::NonPrimary if mine => {
                self.become_primary(now);
            }
            Phase::Primary if !mine => self.become_non_primary(self.reachable(now)),
            Phase::Leaving if !mine => self.become_left(),
            Phase::Joining | Phase::NonPrimary | Phase::Primary | Phase::Leaving | Phase::Idle | Phase::Failed => {}
        }
        if let Role::Sequencer(s) = &mut self.role {
            s.leavers.retain(|n, _| view.get(*n).is_some());
            // Those that are out hear at once that it is committed.
            self.timers.arm(Timer::Heartbeat, now);
            self.step_membership(now);
        }
    }

    /// Sequencer: when a linked peer last answered. One that speaks but does not hear this member (a cut in one direction)
    /// is as good as gone: it follows nobody, and acknowledges nothing.
    fn answered(&self, node: NodeId) -> Option<Timestamp> {
        let heard = self.peers.get(&node)?.heard;
        match &self.role {
            Role::Sequencer(s) => Some(s.progress.get(&node).map_or(heard, |p| p.heard.min(heard))),
            Role::Follower | Role::PreCandidate(_) | Role::Candidate(_) => Some(heard),
        }
    }

    fn alive(&self, now: Timestamp, m: &Member) -> bool {
        m.node == self.me() && m.incarnation == self.cfg.me.incarnation
            || self.answered(m.node).is_some_and(|at| now.since(at) <= self.cfg.timeouts.suspect)
                && self.peers.get(&m.node).is_some_and(|p| p.member.incarnation == m.incarnation)
    }

    /// One change at a time: whatever the view and the voters lack most.
    pub(crate) fn step_membership(&mut self, now: Timestamp) {
        let Role::Sequencer(s) = &self.role else { return };
        let quiet = self.tail.view.number == self.done.view.number && self.tail.voters_at <= self.done.index;
        if !s.established || !quiet || self.phase() == Phase::Failed || self.phase() == Phase::Idle || self.arbitrates()
        {
            return;
        }
        if self.step_leave(now)
            || self.phase() == Phase::Idle
            || self.step_strangers()
            || self.step_weight(now)
            || self.step_view(now)
        {
            return;
        }
        self.step_voters(now);
        self.step_level(now);
    }

    fn step_leave(&mut self, now: Timestamp) -> bool {
        let me = self.me();
        let Role::Sequencer(s) = &self.role else { return false };
        let view = &self.tail.view;
        // Who has come back is somebody else than who was to leave; the old incarnation goes with the next view.
        let replaced = |m: &Member| match self.peers.get(&m.node) {
            _ if m.node == me => m.incarnation != self.cfg.me.incarnation,
            Some(peer) => peer.member.incarnation != m.incarnation,
            None => false,
        };
        let leaves =
            |m: &&Member| !replaced(m) && (s.leavers.contains_key(&m.node) || self.evicted.contains(&m.uuid()));
        let mut leavers: Vec<NodeId> = view.members.iter().filter(leaves).map(|m| m.node).collect();
        let last = self.last_with_data(now, &leavers);
        leavers.retain(|n| !last.contains(n));
        if !last.is_empty() && !self.last_waits {
            let text = format!(
                "{} leaves, but nobody else has data yet: that waits for a copy to be complete, at most for pc.linger",
                self.names_of(&last)
            );
            self.log(true, text);
        }
        self.last_waits = !last.is_empty();
        let Role::Sequencer(s) = &self.role else { return false };
        let view = &self.tail.view;
        if leavers.is_empty() {
            return false;
        }
        if leavers.len() == view.members.len() && view.get(me).is_none() {
            // Formed again by voters that are not in the view yet: they enter first, or it would be empty.
            return false;
        }
        let staying: Vec<NodeId> =
            view.members.iter().filter(|m| !leavers.contains(&m.node) && self.alive(now, m)).map(|m| m.node).collect();
        if leavers.contains(&me) {
            // A leaving sequencer hands over first; the last one out writes nothing (rule 11).
            let heir = staying
                .iter()
                .filter(|n| self.tail.voters.weight(**n) > 0 && !self.kind_of(**n).is_arbitrator())
                .filter_map(|n| s.progress.get(n).map(|p| (p.matched, *n)))
                .max();
            match heir {
                None if staying.is_empty() => self.become_left(),
                // The last one with data writes nothing either: its arbitrators alone could never go on.
                None if staying.iter().all(|n| self.kind_of(*n).is_arbitrator()) => {
                    if self.commit == self.tail.index {
                        self.become_left();
                    }
                }
                // Nobody left that could order: after linger this counts as a failure.
                None => return false,
                // It would stand with a shorter log and could not win. Nothing new is ordered, so it gets there.
                Some((matched, _)) if matched < self.tail.index => {}
                Some((_, heir)) => {
                    if s.handed_over_at.is_none_or(|at| now.since(at) > self.cfg.timeouts.election) {
                        if let Role::Sequencer(s) = &mut self.role {
                            s.handed_over_at = Some(now);
                        }
                        self.send_in_term(heir, Content::TimeoutNow);
                    }
                }
            }
            return true;
        }
        if leavers.iter().any(|n| self.tail.voters.contains(*n)) {
            // Who died just before has not been missed yet: with its vote and without the leaver's, the rest may be no majority.
            let asked = leavers.iter().filter_map(|n| s.leavers.get(n)).max();
            let heard = |n: &NodeId| *n == me || asked.is_none_or(|at| self.answered(*n) > Some(*at));
            if !staying.iter().filter(|n| self.tail.voters.contains(**n)).all(heard) {
                return true;
            }
            if let Some(voters) = after_leave(&self.tail.voters, &staying, &leavers).filter(|v| self.can_order(v)) {
                self.append_voters(&voters);
                return true;
            }
        }
        if leavers.len() == view.members.len() {
            // All others have come back under new names and are not in yet: a view needs a member.
            return false;
        }
        let evicted = |m: &&Member| leavers.contains(&m.node) && self.evicted.contains(&m.uuid());
        for node in view.members.iter().filter(evicted).map(|m| m.node).collect::<Vec<_>>() {
            self.send(node, Message::Evicted);
        }
        let mut next = self.tail.view.clone();
        next.number += 1;
        next.members.retain(|m| !leavers.contains(&m.node));
        if next.members.is_empty() {
            // The last member leaves before this new incarnation was let in.
            next.members.push(self.cfg.me.clone());
        }
        self.append_view(&next);
        true
    }

    /// Those of the leavers that have data while none of the servers that stay has any (rule 10): if the group went on without them,
    /// nobody could complete the copies that are under way. After `linger` they are gone all the same, but keep their votes.
    fn last_with_data(&self, now: Timestamp, leavers: &[NodeId]) -> Vec<NodeId> {
        let has_data = |n: NodeId| {
            let told = || self.peers.get(&n).and_then(|p| p.told()).is_some_and(|p| p.holds.is_some());
            if n == self.me() { self.data.stocked } else { told() }
        };
        let evicted = |n: NodeId| self.tail.view.get(n).is_some_and(|m| self.evicted.contains(&m.uuid()));
        let stays =
            |m: &&Member| !leavers.contains(&m.node) && !self.kind_of(m.node).is_arbitrator() && self.alive(now, m);
        let staying: Vec<NodeId> = self.tail.view.members.iter().filter(stays).map(|m| m.node).collect();
        if staying.is_empty() || staying.iter().any(|n| has_data(*n)) || self.is(Mutant::DataIgnored) {
            return Vec::new();
        }
        leavers.iter().copied().filter(|n| has_data(*n) && !evicted(*n)).collect()
    }

    /// Votes that belong to logs of other branches.
    fn step_strangers(&mut self) -> bool {
        let Role::Sequencer(s) = &mut self.role else { return false };
        let strangers = std::mem::take(&mut s.strangers);
        let stay: Vec<Voter> =
            self.tail.voters.voters.iter().filter(|v| !strangers.contains(&v.node)).copied().collect();
        // Without any weight nobody could decide.
        if stay.len() == self.tail.voters.voters.len() || stay.iter().all(|v| v.weight.0 == 0) {
            return false;
        }
        self.append_voters(&VoterSet { voters: stay, fork: Uuid::NIL })
    }

    /// The operator wonders why the weight stays what it is.
    fn tell_of_wait(&mut self, node: NodeId, weight: Weight, wish: Weight, here: &BTreeSet<NodeId>) {
        if self.told.weight_waits.replace((node, wish)) == Some((node, wish)) {
            return;
        }
        let name = self.names_of(&[node]);
        let away: Vec<NodeId> = self.tail.voters.voters.iter().map(|v| v.node).filter(|n| !here.contains(n)).collect();
        let text = format!(
            "{name} keeps its weight {weight} for now: with {wish} the nodes that are here would be no majority without {}. It changes when \
             they are back, or others have taken their places",
            self.names_of(&away)
        );
        self.log(false, text);
    }

    fn step_weight(&mut self, now: Timestamp) -> bool {
        let mut voters = self.tail.voters.clone();
        voters.fork = Uuid::NIL;
        let here = self.tail.view.members.iter().filter(|m| self.alive(now, m)).map(|m| m.node);
        let here: BTreeSet<NodeId> = here.collect();
        let me = self.me();
        let mut nodes: Vec<NodeId> = voters.voters.iter().map(|v| v.node).collect();
        nodes.sort_by_key(|n| *n == me);
        for node in nodes {
            let weight_max = self.weight_max_of(now, node);
            let Role::Sequencer(s) = &mut self.role else { return false };
            let Some(wish) = s.weights.remove(&node) else { continue };
            let Some(at) = voters.voters.iter().position(|v| v.node == node) else { continue };
            let before = voters.voters[at].weight;
            voters.voters[at].weight = granted(before, wish, weight_max);
            if voters.majority(|n| here.contains(&n)) {
                continue;
            }
            // Those that are away would be needed. Without their votes this member may be a majority alone, as it was. Else they keep them,
            // since somebody else would be needed instead; the wish is repeated.
            let mut rest = voters.clone();
            rest.voters.retain(|v| here.contains(&v.node));
            if node == me && rest.majority(|n| n == me) {
                voters = rest;
            } else {
                voters.voters[at].weight = before;
                self.tell_of_wait(node, before, wish, &here);
            }
        }
        if voters.voters == self.tail.voters.voters {
            return false;
        }
        if !self.can_order(&voters) {
            // No set of voters without a server that has weight: never again would anything be ordered.
            self.log(true, "ignoring a change of weights that would leave nobody to decide".into());
            return false;
        }
        self.append_voters(&voters)
    }

    fn step_view(&mut self, now: Timestamp) -> bool {
        let suspect = self.cfg.timeouts.suspect;
        let me = self.me();
        // Formed again after all were down: nobody is there under an old name.
        let reforming = self.tail.view.get(me).is_none_or(|m| m.incarnation != self.cfg.me.incarnation);
        let twice = self.is(Mutant::TwoIncarnations);
        let Role::Sequencer(s) = &self.role else { return false };
        let mut next = self.tail.view.clone();
        let evicted = &self.evicted;
        next.members.retain(|m| {
            if self.alive(now, m) {
                return true;
            }
            if twice && s.joiners.contains_key(&m.node) {
                return true;
            }
            let replaced = s.joiners.contains_key(&m.node) || m.node == me;
            let other = self.peers.get(&m.node).is_some_and(|p| p.member.incarnation != m.incarnation);
            let since = s.gone.get(&m.node).copied().or_else(|| self.answered(m.node));
            let dead = since.is_none_or(|at| now.since(at) > suspect) || reforming && !self.peers.contains_key(&m.node);
            !(replaced || other || dead)
        });
        let ready: Vec<NodeId> = s
            .joiners
            .keys()
            .copied()
            .filter(|n| self.peers.contains_key(n))
            .filter(|n| s.joiners.get(n).is_some_and(|j| !evicted.contains(&j.member.uuid())))
            .filter(|n| s.progress.get(n).is_some_and(|p| !p.probing && p.snapshot_since.is_none()))
            .filter(|n| self.answered(*n).is_some_and(|at| now.since(at) <= suspect))
            // History holds a view without the old incarnation before the new one enters (rule 12).
            .filter(|n| self.tail.view.get(*n).is_none() || twice)
            .collect();
        let mut newcomers: Vec<Member> = Vec::new();
        // The same for the sequencer itself, unless nobody is left who remembers its old incarnation.
        let remembered = self.tail.view.get(me).is_some() && next.members.iter().any(|m| m.node != me);
        if reforming && !remembered {
            newcomers.push(self.cfg.me.clone());
        }
        newcomers.extend(ready.iter().filter_map(|n| s.joiners.get(n)).map(|j| j.member.clone()));
        for m in newcomers {
            next.members.retain(|old| old.node != m.node || twice);
            next.members.push(m);
        }
        for m in &mut next.members {
            if let Some(v) = self.tail.voters.voters.iter().find(|v| v.node == m.node) {
                m.weight = v.weight;
            } else if m.node != me {
                let wanted = s.weights.get(&m.node).copied().unwrap_or(m.weight);
                m.weight = wanted.min(self.newcomer_weight_max(now, m.node));
            }
        }
        let fresh = s.fresh.iter().any(|n| next.get(*n).is_some()) || self.needs_view_itself(now);
        let changed = next.members != self.tail.view.members;
        if let Role::Sequencer(s) = &mut self.role {
            s.joiners.retain(|n, _| !ready.contains(n));
            s.fresh.clear();
            s.weights.clear();
        }
        if !changed && !fresh {
            return false;
        }
        next.number += 1;
        self.append_view(&next)
    }

    /// A member that is not primary asks for a view until it has one. The sequencer is such a member too, whatever made it so: it may
    /// have been elected so, or have missed its majority for a while within its term.
    fn needs_view_itself(&self, now: Timestamp) -> bool {
        matches!(self.phase(), Phase::Joining | Phase::NonPrimary)
            && !self.standing().gives_up_data()
            && self.majority_heard(now)
    }

    fn step_voters(&mut self, now: Timestamp) {
        let me = self.me();
        let Role::Sequencer(s) = &self.role else { return };
        let tail = self.tail.index;
        let caught_up = self.cfg.limits.caught_up;
        // Who votes in a branch has its beginning.
        let begun = self.tail.lineage.newest().map_or(LogIndex::ZERO, |f| f.index);
        let complete: Vec<Voter> = self
            .tail
            .view
            .members
            .iter()
            .filter(|m| self.alive(now, m))
            .filter_map(|m| {
                let current = self.tail.voters.voters.iter().find(|v| v.node == m.node);
                let near = m.node == me
                    || s.progress
                        .get(&m.node)
                        .is_some_and(|p| !p.probing && p.matched >= begun && p.matched.0 + caught_up >= tail.0);
                match current {
                    Some(v) => Some(*v),
                    None if near => {
                        let weight = m.weight.min(self.newcomer_weight_max(now, m.node));
                        Some(Voter { node: m.node, weight })
                    }
                    None => None,
                }
            })
            .collect();
        if let Some(voters) = next_voters(&self.tail.voters, &complete).filter(|v| self.can_order(v)) {
            let new: Vec<NodeId> =
                voters.voters.iter().map(|v| v.node).filter(|n| !self.tail.voters.contains(*n)).collect();
            if let Role::Sequencer(s) = &mut self.role {
                s.voting_since.extend(new.into_iter().map(|n| (n, now)));
            }
            self.append_voters(&voters);
        }
    }

    /// What a newcomer may weigh: no more than the heaviest of the other present voters, or less than all of them together. So its going
    /// takes the majority away only where anybody's would.
    fn newcomer_weight_max(&self, now: Timestamp, node: NodeId) -> Weight {
        if self.is(Mutant::HeavyNewcomer) {
            return Weight(u8::MAX);
        }
        let others = self.tail.voters.voters.iter().filter(|v| v.node != node);
        let present = others.filter(|v| self.tail.view.get(v.node).is_some_and(|m| self.alive(now, m)));
        let (total, heaviest) = present
            .fold((0, 1), |(total, heaviest), v| (total + u32::from(v.weight.0), u32::from(v.weight.0).max(heaviest)));
        Weight(u8::try_from(heaviest.max(total.saturating_sub(1))).unwrap_or(u8::MAX))
    }

    /// The limit of a voter's weight, for as long as it has one: whoever has just come may be gone as fast.
    fn weight_max_of(&self, now: Timestamp, node: NodeId) -> Option<Weight> {
        let Role::Sequencer(s) = &self.role else { return None };
        let since = s.voting_since.get(&node).filter(|at| now.since(**at) <= self.cfg.timeouts.inactive);
        since.map(|_| self.newcomer_weight_max(now, node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_for_more_never_takes_away() {
        let granted = |has, wish, limit: Option<u8>| super::granted(Weight(has), Weight(wish), limit.map(Weight)).0;
        assert_eq!(granted(1, 255, Some(1)), 1);
        assert_eq!(granted(1, 255, Some(3)), 3);
        assert_eq!(granted(2, 3, Some(1)), 2, "others have gone since it got two");
        assert_eq!(granted(2, 1, Some(1)), 1);
        assert_eq!(granted(2, 0, Some(9)), 0);
        assert_eq!(granted(1, 255, None), 255);
    }
}
