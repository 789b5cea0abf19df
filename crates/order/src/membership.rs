//! Leaving, views, voters, and what happens without a majority.

use std::collections::BTreeSet;

use bytes::Bytes;
use trireme_types::{
    Durability, EntryKind, Incarnation, LogIndex, Member, NodeId, Setting, Term, Timestamp, Uuid, View, Voter,
    VoterSet, Weight, Writer,
};

use crate::group::Group;
use crate::mutant::Mutant;
use crate::replication::Progress;
use crate::role::Handover;
use crate::timers::Timer;
use crate::voters::{after_leave, next_voters};
use crate::{Content, Event, LogStore, Message, Output, Phase};

/// The next weight of a voter that wishes for another one: more only as far as the limit goes. A limit that has come down meanwhile, as
/// others went, takes away nothing: that could be the majority.
fn granted(has: Weight, wish: Weight, limit: Option<Weight>) -> Weight {
    limit.map_or(wish, |limit| wish.min(limit.max(has)))
}

/// The next step of a sequencer that is to go.
enum OwnLeave {
    /// Nothing else changes before it has handed over, or is out.
    Waits,
    /// Nobody else could order.
    NoHeir,
    /// Its heir does not get on. Other changes need not wait for that.
    GoesOn,
}

impl<S: LogStore> Group<S> {
    // --- leaving --------------------------------------------------------------------------------------------------

    pub(crate) fn continue_leave(&mut self, now: Timestamp) {
        let incarnation = self.cfg.me.incarnation;
        self.to_sequencer(now, Message::Leave { incarnation });
    }

    pub(crate) fn on_leave(&mut self, now: Timestamp, from: NodeId, incarnation: Incarnation) {
        let inside = self.own.tail().view.get(from).is_some_and(|m| m.incarnation == incarnation);
        if let Some(s) = self.role.leading_mut() {
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
        if let Some(s) = self.role.leading_mut() {
            s.weights.insert(from, weight);
            self.step_membership(now);
        }
    }

    pub(crate) fn on_set_durability(&mut self, durability: Durability) {
        if self.leads() && self.own.tail().durability != durability && !self.arbitrates() {
            let mut w = Writer::new();
            Setting::Durability(durability).encode(&mut w);
            self.append_own(EntryKind::Setting, None, Bytes::from(w.buf));
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
                    // A member that may have to go on alone wants to know the others' logs first.
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
        if !self.timers.is_armed(Timer::Election) && !self.leads() {
            self.arm_election(now);
        }
        self.readmit(now);
        self.restart_stalled(now);
        self.note_silence(now);
        self.step_membership(now);
        self.hand_over(now);
    }

    fn note_silence(&mut self, now: Timestamp) {
        let limit = self.cfg.timeouts.election * 2;
        let (sequencer, leads) = (self.sequencer(), self.leads());
        let mut newly = Vec::new();
        for (node, peer) in &mut self.peers {
            if !peer.silent && now.since(peer.heard) > limit && self.own.tail().view.get(*node).is_some() {
                // Members have no reason to speak unless they follow or lead; only the sequencer judges.
                if sequencer == Some(*node) || leads {
                    peer.silent = true;
                    newly.push(*node);
                }
            }
        }
        for node in newly {
            self.out.push_back(Output::Event(Event::Silent { node, silent: true }));
        }
    }

    fn reachable(&self, now: Timestamp) -> Vec<Member> {
        let mut members = vec![self.own_member()];
        for m in &self.own.tail().view.members {
            if self.heard_recently(now, m.node) {
                members.push(m.clone());
            }
        }
        members
    }

    pub(crate) fn heard_recently(&self, now: Timestamp, node: NodeId) -> bool {
        node != self.me() && self.peers.get(&node).is_some_and(|p| now.since(p.heard) <= self.cfg.timeouts.suspect)
    }

    /// No majority, for too long.
    fn lose_component(&mut self, now: Timestamp) {
        if self.phase() == Phase::Leaving {
            return self.become_left();
        }
        self.become_non_primary(self.reachable(now));
    }

    // --- views and voters, by the sequencer -----------------------------------------------------------------------

    pub(crate) fn on_commit_moved(&mut self, now: Timestamp) {
        self.order_blocked();
        self.step_membership(now);
    }

    pub(crate) fn on_term_delivered(&mut self, now: Timestamp, term: Term) {
        // Where nobody knows the term of the data, those that a member brings, the view that lets it in tells.
        if self.data.applied_term > Term::ZERO && self.ends_before_data() {
            self.give_up_data_beyond();
        }
        let current = term == self.own.term();
        if let Some(s) = self.role.leading_mut() {
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

    /// Does the history end before these data do? They are of another past then (rule 18). An entry that may be among them does not say so: more
    /// of them follow, since all of a term come from one log.
    fn ends_before_data(&self) -> bool {
        self.data.applied > self.done.seqno
            && self.done.term > self.data.applied_term
            && !self.standing().gives_up_data()
    }

    fn give_up_data_beyond(&mut self) {
        self.log(
            true,
            format!(
                "the data of this node reach seqno {}, the history of the group only {}: they hold commits that the group has lost, and \
                 are replaced by a full copy",
                self.data.applied, self.done.seqno
            ),
        );
        self.become_diverged(None);
    }

    pub(crate) fn on_view_delivered(&mut self, now: Timestamp, view: &View) {
        self.leavers.on_view(now, view);
        let mine = view.get(self.me()).is_some_and(|m| m.incarnation == self.cfg.me.incarnation);
        match self.phase() {
            Phase::Joining | Phase::NonPrimary | Phase::Primary if mine && self.ends_before_data() => {
                self.give_up_data_beyond();
            }
            Phase::Joining | Phase::NonPrimary if mine => {
                self.become_primary(now);
            }
            Phase::Primary if !mine => self.become_non_primary(self.reachable(now)),
            Phase::Leaving if !mine => self.become_left(),
            Phase::Joining | Phase::NonPrimary | Phase::Primary | Phase::Leaving | Phase::Idle | Phase::Failed => {}
        }
        if let Some(s) = self.role.leading_mut() {
            s.leavers.retain(|n, _| view.get(*n).is_some());
            // Those that are out hear at once that it is committed.
            self.timers.arm(Timer::Heartbeat, now);
            self.step_membership(now);
        }
    }

    /// Sequencer: when a linked peer last answered. One that speaks but does not hear this member (a cut in one direction)
    /// is as good as gone: it follows nobody, and acknowledges nothing.
    pub(crate) fn answered(&self, node: NodeId) -> Option<Timestamp> {
        let heard = self.peers.get(&node)?.heard;
        let answer = self.role.leading().and_then(|s| s.progress.get(&node)).map(|p| p.heard);
        Some(answer.map_or(heard, |at| at.min(heard)))
    }

    fn alive(&self, now: Timestamp, m: &Member) -> bool {
        m.node == self.me() && m.incarnation == self.cfg.me.incarnation
            || self.answered(m.node).is_some_and(|at| now.since(at) <= self.cfg.timeouts.suspect)
                && self.peers.get(&m.node).is_some_and(|p| p.member.incarnation == m.incarnation)
    }

    /// One change at a time: whatever the view and the voters lack most.
    pub(crate) fn step_membership(&mut self, now: Timestamp) {
        let Some(s) = self.role.leading() else { return };
        let quiet =
            self.own.tail().view.number == self.done.view.number && self.own.tail().voters_at <= self.done.index;
        if !s.established || !quiet || self.phase() == Phase::Failed || self.phase() == Phase::Idle || self.arbitrates()
        {
            return;
        }
        if self.step_leave(now)
            || self.phase() == Phase::Idle
            || self.step_evicted_outside(now)
            || self.step_other_branches()
            || self.step_weight(now)
            || self.step_view(now)
        {
            return;
        }
        self.step_voters(now);
        self.step_level(now);
    }

    fn step_leave(&mut self, now: Timestamp) -> bool {
        let Some(s) = self.role.leading_mut() else { return false };
        let before = std::mem::take(&mut s.handover);
        let stepped = self.step_leavers(now, before);
        if before != Handover::Nobody {
            // Where its heir is gone, or does not get on, it orders again.
            self.order_blocked();
        }
        stepped
    }

    /// `handover`: as the last step left it.
    fn step_leavers(&mut self, now: Timestamp, handover: Handover) -> bool {
        let me = self.me();
        let Some(s) = self.role.leading() else { return false };
        let view = &self.own.tail().view;
        // A member that has come back is another one than the one that was to leave; the old incarnation goes with the next view.
        let replaced = |m: &Member| match self.peers.get(&m.node) {
            _ if m.node == me => m.incarnation != self.cfg.me.incarnation,
            Some(peer) => peer.member.incarnation != m.incarnation,
            None => false,
        };
        let leaves = |m: &&Member| !replaced(m) && self.is_to_go_since(m).is_some();
        let mut leavers: Vec<NodeId> = view.members.iter().filter(leaves).map(|m| m.node).collect();
        let last = self.last_with_data(now, &leavers);
        leavers.retain(|n| !last.contains(n));
        if !last.is_empty() && !s.last_waits {
            let text = format!(
                "{} leaves, but nobody else has data yet: that waits for a copy to be complete, at most for pc.linger",
                self.names_of(&last)
            );
            self.log(true, text);
        }
        if let Some(s) = self.role.leading_mut() {
            s.last_waits = !last.is_empty();
        }
        let view = &self.own.tail().view;
        if leavers.len() == view.members.len() && view.get(me).is_none() {
            // Formed again by voters that are not in the view yet: they enter first, or it would be empty.
            return false;
        }
        if leavers.contains(&me) {
            match self.step_own_leave(now, &leavers, handover) {
                OwnLeave::Waits => return true,
                OwnLeave::NoHeir => return false,
                OwnLeave::GoesOn => leavers.retain(|n| *n != me),
            }
        }
        if leavers.is_empty() {
            return false;
        }
        let view = &self.own.tail().view;
        let staying = self.staying(now, &leavers);
        if leavers.iter().any(|n| self.own.tail().voters.contains(*n)) {
            let asked = leavers.iter().filter_map(|n| view.get(*n)).filter_map(|m| self.is_to_go_since(m)).max();
            if !asked.is_none_or(|at| self.voters_have_answered(&staying, at)) {
                return true;
            }
            if let Some(voters) = after_leave(&self.own.tail().voters, &staying, &leavers).filter(|v| self.can_order(v))
            {
                self.append_voters(&voters);
                return true;
            }
        }
        if leavers.len() == view.members.len() {
            // All others have come back under new names and are not in yet: a view needs a member.
            return false;
        }
        let evicted = |m: &&Member| {
            leavers.contains(&m.node) && self.evicted.contains_key(&m.uuid()) && !self.is_needed(now, m.node)
        };
        for node in view.members.iter().filter(evicted).map(|m| m.node).collect::<Vec<_>>() {
            self.send(node, Message::Evicted);
        }
        let mut next = self.own.tail().view.clone();
        next.number += 1;
        next.members.retain(|m| !leavers.contains(&m.node));
        if next.members.is_empty() {
            // The last member leaves before this new incarnation was let in.
            next.members.push(self.own_member());
        }
        self.append_view(&next);
        true
    }

    /// Have the voters among them answered since then? One that died just before has not been missed yet: with its vote, and without the one that
    /// goes, the rest may be no majority.
    fn voters_have_answered(&self, staying: &[NodeId], since: Timestamp) -> bool {
        let (voters, me) = (&self.own.tail().voters, self.me());
        let Some(s) = self.role.leading() else { return false };
        staying.iter().filter(|n| voters.contains(**n)).all(|n| *n == me || s.has_answered_since(*n, since))
    }

    /// A linked voter was evicted while it was out of the view, and nothing is ordered without its vote. It gives that up once those that stay have
    /// answered, as one in the view does.
    fn step_evicted_outside(&mut self, now: Timestamp) -> bool {
        let Some(s) = self.role.leading() else { return false };
        let (voters, view, me) = (&self.own.tail().voters, &self.own.tail().view, self.me());
        let evicted = |n: NodeId| self.peers.get(&n).and_then(|p| self.evicted.get(&p.member.uuid()));
        let is_outside =
            |n: &NodeId| *n != me && view.get(*n).is_none() && evicted(*n).is_some() && self.is_needed(now, *n);
        let gone: Vec<NodeId> = voters.voters.iter().map(|v| v.node).filter(is_outside).collect();
        let Some(heard_of) = gone.iter().filter_map(|n| evicted(*n)).max() else { return false };
        let asked = s.elected_at.max(*heard_of);
        let staying: Vec<NodeId> = view.members.iter().filter(|m| self.alive(now, m)).map(|m| m.node).collect();
        if !self.voters_have_answered(&staying, asked) {
            return false;
        }
        match after_leave(voters, &staying, &gone).filter(|v| self.can_order(v)) {
            Some(next) => self.append_voters(&next),
            None => false,
        }
    }

    /// Is an evicted member in the view still?
    pub(crate) fn evicts_a_member(&self) -> bool {
        self.own.tail().view.members.iter().any(|m| self.evicted.contains_key(&m.uuid()))
    }

    /// The members of the newest view that are alive, without these.
    fn staying(&self, now: Timestamp, leavers: &[NodeId]) -> Vec<NodeId> {
        let stays = |m: &&Member| !leavers.contains(&m.node) && self.alive(now, m);
        self.own.tail().view.members.iter().filter(stays).map(|m| m.node).collect()
    }

    /// A leaving sequencer hands over first; the last one out writes nothing (rule 11). So does one that was evicted.
    fn step_own_leave(&mut self, now: Timestamp, leavers: &[NodeId], handover: Handover) -> OwnLeave {
        let staying = self.staying(now, leavers);
        let Some(s) = self.role.leading() else { return OwnLeave::NoHeir };
        let leaves = s.leavers.contains_key(&self.me());
        let heir = staying
            .iter()
            .filter(|n| self.own.tail().voters.weight(**n) > 0 && !self.kind_of(**n).is_arbitrator())
            .filter_map(|n| s.progress.get(n).map(|p| (self.may_be_whole(*n), p.held(), *n)))
            // An evicted one votes for its heir, and is whole.
            .max_by_key(|(whole, held, n)| (leaves && *whole, *held, *whole, *n));
        let Some((whole, held, heir)) = heir else {
            if staying.is_empty() {
                self.become_left();
                return OwnLeave::Waits;
            }
            // The last one with data writes nothing either: its arbitrators alone could never go on.
            if staying.iter().all(|n| self.kind_of(*n).is_arbitrator()) {
                if self.commit == self.own.tail().index {
                    self.become_left();
                }
                return OwnLeave::Waits;
            }
            // Nobody left that could order: after linger this counts as a failure.
            return OwnLeave::NoHeir;
        };
        let suspect = self.cfg.timeouts.suspect;
        // A shorter log could not win. One that may lack what it acknowledged needs this one as evidence, which is gone once it has left.
        let is_ready = held == Some(self.own.tail().index) && (whole || !leaves);
        let next = match handover {
            Handover::Nobody => Handover::Holds(now),
            // A leave ends with `linger`. Nothing says how long an evicted one would stand still for an heir whose disk hangs.
            Handover::Holds(since) if !leaves && now.since(since) > suspect => Handover::Lapsed(now),
            Handover::Lapsed(since) if now.since(since) > 10 * suspect => Handover::Holds(now),
            Handover::Holds(_) | Handover::Lapsed(_) => handover,
        };
        if handover == Handover::Nobody && !is_ready {
            let name = self.names_of(&[heir]);
            self.log(false, format!("{name} is to order from here on, once its write-set log has all that is in this one, and is on disk"));
        }
        if let Some(s) = self.role.leading_mut() {
            s.handover = next;
        }
        if is_ready {
            self.call_heir(now, heir);
        }
        if matches!(next, Handover::Lapsed(_)) { OwnLeave::GoesOn } else { OwnLeave::Waits }
    }

    /// Sequencer: this one is to stand now. It is told again after an election timeout. Was it told?
    pub(crate) fn call_heir(&mut self, now: Timestamp, heir: NodeId) -> bool {
        let patience = self.cfg.timeouts.election;
        let Some(s) = self.role.leading_mut() else { return false };
        if s.handed_over_at.is_some_and(|at| now.since(at) <= patience) {
            return false;
        }
        s.handed_over_at = Some(now);
        self.send_in_term(heir, Content::TimeoutNow);
        true
    }

    /// Sequencer: since when is it known that this member is to go? An eviction is older than the term, perhaps, and those that stay answer
    /// within the term.
    fn is_to_go_since(&self, m: &Member) -> Option<Timestamp> {
        let s = self.role.leading()?;
        let evicted = self.evicted.get(&m.uuid()).map(|heard| s.elected_at.max(*heard));
        s.leavers.get(&m.node).copied().max(evicted)
    }

    /// Has this node a vote without which the voters that are heard are no majority?
    fn is_needed(&self, now: Timestamp, node: NodeId) -> bool {
        let others = |n: NodeId| n != node && (n == self.me() || self.heard_recently(now, n));
        self.deciding().any(|set| set.weight(node) > 0) && !self.quorum(others)
    }

    /// Is the eviction of this member in force: is it to hear that it is out? Not while it is in a view that counts here, or needed: whoever orders
    /// puts it out in order, and until there is such a one it takes its vote, perhaps, to have one.
    pub(crate) fn is_evicted(&self, now: Timestamp, member: &Member) -> bool {
        let inside = |view: &View| view.get(member.node).is_some_and(|m| m.incarnation == member.incarnation);
        self.evicted.contains_key(&member.uuid())
            && !inside(&self.own.tail().view)
            && !inside(&self.done.view)
            && !self.is_needed(now, member.node)
    }

    /// Those of the leavers that have data while none of the servers that stay has any (rule 10): if the group went on without them,
    /// nobody could complete the copies that are under way. After `linger` they are gone all the same, but keep their votes.
    fn last_with_data(&self, now: Timestamp, leavers: &[NodeId]) -> Vec<NodeId> {
        let has_data = |n: NodeId| {
            let told = || self.peers.get(&n).and_then(|p| p.told()).is_some_and(|p| p.holds.is_some());
            if n == self.me() { self.data.stocked } else { told() }
        };
        let evicted = |n: NodeId| self.own.tail().view.get(n).is_some_and(|m| self.evicted.contains_key(&m.uuid()));
        let stays =
            |m: &&Member| !leavers.contains(&m.node) && !self.kind_of(m.node).is_arbitrator() && self.alive(now, m);
        let staying: Vec<NodeId> = self.own.tail().view.members.iter().filter(stays).map(|m| m.node).collect();
        if staying.is_empty() || staying.iter().any(|n| has_data(*n)) || self.is(Mutant::DataIgnored) {
            return Vec::new();
        }
        leavers.iter().copied().filter(|n| has_data(*n) && !evicted(*n)).collect()
    }

    /// Votes that belong to logs of other branches.
    fn step_other_branches(&mut self) -> bool {
        let Some(s) = self.role.leading_mut() else { return false };
        let others = std::mem::take(&mut s.of_other_branches);
        let stay: Vec<Voter> =
            self.own.tail().voters.voters.iter().filter(|v| !others.contains(&v.node)).copied().collect();
        // Without any weight nobody could decide.
        if stay.len() == self.own.tail().voters.voters.len() || stay.iter().all(|v| v.weight.0 == 0) {
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
        let away: Vec<NodeId> =
            self.own.tail().voters.voters.iter().map(|v| v.node).filter(|n| !here.contains(n)).collect();
        let text = format!(
            "{name} keeps its weight {weight} for now: with {wish} the nodes that are here would be no majority without {}. It changes when \
             they are back, or others have taken their places",
            self.names_of(&away)
        );
        self.log(false, text);
    }

    /// A member repeats its wish.
    fn tell_of_refusal(&mut self, node: NodeId, weight: Weight, wish: Weight) {
        if self.told.weight_refused.replace((node, wish)) != Some((node, wish)) {
            let name = self.names_of(&[node]);
            self.log(true, format!("{name} keeps its weight {weight}: with {wish} nobody would be left to decide"));
        }
    }

    fn step_weight(&mut self, now: Timestamp) -> bool {
        let mut voters = self.own.tail().voters.clone();
        voters.fork = Uuid::NIL;
        let here = self.own.tail().view.members.iter().filter(|m| self.alive(now, m)).map(|m| m.node);
        let here: BTreeSet<NodeId> = here.collect();
        let me = self.me();
        let mut nodes: Vec<NodeId> = voters.voters.iter().map(|v| v.node).collect();
        nodes.sort_by_key(|n| *n == me);
        for node in nodes {
            let weight_max = self.weight_max_of(now, node);
            let Some(s) = self.role.leading_mut() else { return false };
            let Some(wish) = s.weights.remove(&node) else { continue };
            let Some(at) = voters.voters.iter().position(|v| v.node == node) else { continue };
            let before = voters.voters[at].weight;
            voters.voters[at].weight = granted(before, wish, weight_max);
            if !self.can_order(&voters) {
                // No set of voters without a server that has weight: never again would anything be ordered.
                voters.voters[at].weight = before;
                self.tell_of_refusal(node, before, wish);
                continue;
            }
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
        if voters.voters == self.own.tail().voters.voters {
            return false;
        }
        self.told.weight_refused = None;
        self.append_voters(&voters)
    }

    fn step_view(&mut self, now: Timestamp) -> bool {
        let suspect = self.cfg.timeouts.suspect;
        let me = self.me();
        // Formed again after all were down: nobody is there under an old name.
        let reforming = self.own.tail().view.get(me).is_none_or(|m| m.incarnation != self.cfg.me.incarnation);
        let twice = self.is(Mutant::TwoIncarnations);
        let Some(s) = self.role.leading() else { return false };
        let mut next = self.own.tail().view.clone();
        let evicted = &self.evicted;
        // A level that is on its way counts as well (rule 37).
        let level = self.own.tail().level;
        next.members.retain(|m| {
            if self.alive(now, m) {
                return true;
            }
            if twice && s.joiners.contains_key(&m.node) {
                return true;
            }
            let replaced = s.joiners.contains_key(&m.node) || m.node == me;
            let other = self.peers.get(&m.node).is_some_and(|p| p.member.incarnation != m.incarnation);
            let since = s.missing_since.get(&m.node).copied().or_else(|| self.answered(m.node));
            let dead = since.is_none_or(|at| now.since(at) > suspect) || reforming && !self.peers.contains_key(&m.node);
            !(replaced || other || dead)
        });
        let ready: Vec<NodeId> = s
            .joiners
            .keys()
            .copied()
            .filter(|n| self.peers.get(n).is_some_and(|p| p.levels.contains(level)))
            .filter(|n| s.joiners.get(n).is_some_and(|j| !evicted.contains_key(&j.member.uuid())))
            .filter(|n| s.progress.get(n).is_some_and(|p| !p.probing && p.snapshot_since.is_none()))
            .filter(|n| self.answered(*n).is_some_and(|at| now.since(at) <= suspect))
            // History holds a view without the old incarnation before the new one enters (rule 12).
            .filter(|n| self.own.tail().view.get(*n).is_none() || twice)
            .collect();
        let mut newcomers: Vec<Member> = Vec::new();
        // The same for the sequencer itself, unless nobody is left who remembers its old incarnation.
        let remembered = self.own.tail().view.get(me).is_some() && next.members.iter().any(|m| m.node != me);
        if reforming && !remembered {
            newcomers.push(self.own_member());
        }
        newcomers.extend(ready.iter().filter_map(|n| s.joiners.get(n)).map(|j| j.member.clone()));
        for m in newcomers {
            next.members.retain(|old| old.node != m.node || twice);
            next.members.push(m);
        }
        for m in &mut next.members {
            if let Some(v) = self.own.tail().voters.voters.iter().find(|v| v.node == m.node) {
                m.weight = v.weight;
            } else if m.node != me {
                let wanted = s.weights.get(&m.node).copied().unwrap_or(m.weight);
                m.weight = wanted.min(self.newcomer_weight_max(now, m.node));
            }
        }
        let fresh = s.want_view.iter().any(|n| next.get(*n).is_some()) || self.needs_view_itself(now);
        let changed = next.members != self.own.tail().view.members;
        if let Some(s) = self.role.leading_mut() {
            s.joiners.retain(|n, _| !ready.contains(n));
            s.want_view.clear();
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
        let Some(s) = self.role.leading() else { return };
        let tail = self.own.tail().index;
        let caught_up = self.cfg.limits.caught_up;
        // A voter of a branch has its beginning.
        let begun = self.own.tail().lineage.newest().map_or(LogIndex::ZERO, |f| f.index);
        let complete: Vec<Voter> = self
            .own
            .tail()
            .view
            .members
            .iter()
            .filter(|m| self.alive(now, m))
            .filter_map(|m| {
                let current = self.own.tail().voters.voters.iter().find(|v| v.node == m.node);
                let near = m.node == me
                    || s.progress
                        .get(&m.node)
                        .filter(|p| !p.probing)
                        .and_then(Progress::held)
                        .is_some_and(|held| held >= begun && held.0 + caught_up >= tail.0);
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
        if let Some(voters) = next_voters(&self.own.tail().voters, &complete).filter(|v| self.can_order(v)) {
            let new: Vec<NodeId> =
                voters.voters.iter().map(|v| v.node).filter(|n| !self.own.tail().voters.contains(*n)).collect();
            if let Some(s) = self.role.leading_mut() {
                s.voting_since.extend(new.into_iter().map(|n| (n, now)));
            }
            self.append_voters(&voters);
        }
    }

    /// The highest weight of a newcomer: no more than the heaviest of the other present voters, or less than all of them together. So its going
    /// takes the majority away only where anybody's would.
    fn newcomer_weight_max(&self, now: Timestamp, node: NodeId) -> Weight {
        if self.is(Mutant::HeavyNewcomer) {
            return Weight(u8::MAX);
        }
        let others = self.own.tail().voters.voters.iter().filter(|v| v.node != node);
        let present = others.filter(|v| self.own.tail().view.get(v.node).is_some_and(|m| self.alive(now, m)));
        let (total, heaviest) = present
            .fold((0, 1), |(total, heaviest), v| (total + u32::from(v.weight.0), u32::from(v.weight.0).max(heaviest)));
        Weight(u8::try_from(heaviest.max(total.saturating_sub(1))).unwrap_or(u8::MAX))
    }

    /// The limit of a voter's weight, for as long as it has one: whoever has just come may be gone as fast.
    fn weight_max_of(&self, now: Timestamp, node: NodeId) -> Option<Weight> {
        let s = self.role.leading()?;
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
