//! Joining, leaving, views, voters, and what happens without a majority.

use std::time::Duration;

use trireme_types::{
    Base, Durability, EntryKind, LogIndex, Member, NodeId, Seqno, Session, Term, Timestamp, View, Voter, VoterSet,
    Weight,
};

use bytes::Bytes;

use crate::election::{Joiner, Role};
use crate::group::{CHECK_EVERY, Group};
use crate::message::JoinRequest;
use crate::mutant::Mutant;
use crate::replication::Progress;
use crate::voters::{after_leave, next_voters};
use crate::{Event, LogStore, Message, Output, Phase};

/// A newcomer within this many entries of the end counts as complete.
const CAUGHT_UP: u64 = 64;
/// Between two snapshots to one peer.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(2);

impl<S: LogStore> Group<S> {
    // --- asking to be let in --------------------------------------------------------------------------------------

    pub(crate) fn send_join(&mut self, _now: Timestamp) {
        let nodes: Vec<NodeId> = self.peers.keys().copied().collect();
        for node in nodes {
            self.send_join_to(node);
        }
    }

    pub(crate) fn send_join_to(&mut self, node: NodeId) {
        let request = JoinRequest {
            member: self.cfg.me.clone(),
            history: if self.needs_snapshot { Default::default() } else { self.tail.history },
            last_index: self.tail.index,
            last_term: self.tail.term,
            position: self.join_state.as_ref().and_then(|j| j.position),
            view: self.done.view.number,
        };
        self.send(node, Message::Join(request));
    }

    pub(crate) fn on_join(&mut self, now: Timestamp, from: NodeId, request: JoinRequest) {
        let usable = request.history == self.tail.history;
        let tail = self.tail.index;
        if request.member.node != from {
            return;
        }
        if self.evicted.contains(&from) {
            return self.send(from, Message::Evicted);
        }
        let Role::Sequencer(s) = &mut self.role else { return };
        if !s.established {
            return;
        }
        let inside = self.tail.view.get(from).is_some_and(|m| m.incarnation == request.member.incarnation);
        if inside {
            // One that has not delivered the newest view yet will find itself in it.
            if request.view == self.tail.view.number {
                s.fresh.insert(from);
            }
        } else {
            s.joiners.insert(from, Joiner { member: request.member, position: request.position });
        }
        match s.progress.get(&from) {
            Some(p) if usable || p.snapshot_since.is_some() => {}
            // One is under way. (Probes say nothing here: a log of no history does not answer them.)
            Some(p) if p.snapshot_sent.is_some_and(|at| now.since(at) < SNAPSHOT_EVERY) => {}
            None if usable => {
                let next = request.last_index.min(tail).next();
                s.progress.insert(from, Progress::new(next, tail, now));
            }
            Some(_) | None => {
                s.progress.insert(from, Progress::new(tail.next(), tail, now));
                self.need_snapshot_for(now, from);
            }
        }
        self.step_membership(now);
    }

    /// The peer's log can't be continued: give it a state to begin with, as old as its data need and we still have.
    pub(crate) fn need_snapshot_for(&mut self, now: Timestamp, node: NodeId) {
        let history = self.tail.history;
        let tail = self.tail.index;
        let Role::Sequencer(s) = &mut self.role else { return };
        let Some(p) = s.progress.get_mut(&node) else { return };
        if p.snapshot_sent.is_some_and(|at| now.since(at) < SNAPSHOT_EVERY) {
            // It did not help, or has not arrived: wait, don't repeat it at the speed of the network.
            p.probing = true;
            p.probed_at = Some(now);
            p.next = tail.next();
            return;
        }
        p.snapshot_since = Some(now);
        let position = s.joiners.get(&node).and_then(|j| j.position).filter(|(h, _)| *h == history);
        if let Some(base) = position.and_then(|(_, seqno)| self.store.checkpoint_before(seqno)) {
            return self.send_snapshot(now, node, base);
        }
        self.ask_for_snapshot(Some(node));
    }

    pub(crate) fn send_snapshot(&mut self, now: Timestamp, node: NodeId, base: Base) {
        let tail = self.tail.index;
        let term = self.hard.term;
        let Some(p) = self.progress_of(node) else { return };
        p.snapshot_since = None;
        p.snapshot_sent = Some(now);
        p.matched = LogIndex::ZERO;
        p.restart(base.index.next(), tail);
        p.probed_at = Some(now);
        self.send(node, Message::Snapshot { term, base: Box::new(base) });
        // The probe comes behind it.
        if let Some(p) = self.progress_of(node) {
            p.probed_at = None;
        }
    }

    pub(crate) fn on_snapshot(&mut self, now: Timestamp, from: NodeId, term: Term, base: Base) {
        let same = base.history == self.tail.history;
        // Shorter than the base, or with a tail that was never committed where the group has something else.
        let behind = base.index > self.tail.index
            || base.index > self.commit && self.store.term_at(base.index) != Some(base.term);
        let wanted = self.needs_snapshot || !same || behind;
        // A member so far behind that nobody keeps what it lacks is told so too: its driver sees the reset and leaves.
        let lagging = self.sequencer == Some(from) && behind;
        if !matches!(self.phase, Phase::Joining | Phase::NonPrimary) && !self.needs_snapshot && !lagging || !wanted {
            return;
        }
        if term < self.hard.term && same {
            return;
        }
        if !same || term > self.hard.term {
            // Terms of another history mean nothing here.
            self.hard.term = term;
            self.hard.voted_for = NodeId::default();
        }
        // First: positions of the old log must not be taken for committed ones of the new, whenever this stops.
        if let Err(e) = self.forget_committed().and_then(|()| self.store.reset(base.clone())) {
            return self.fail(e);
        }
        self.hard.voters_committed = base.voters_at;
        self.hard.committed = base.index;
        if !self.save_hard() {
            return;
        }
        self.synced = self.store.synced();
        if same && base.fork > LogIndex::ZERO && !self.needs_snapshot {
            // Nothing tells whether the data lie on this side of the fork (SAFETY 13).
            self.out.push_back(Output::Event(Event::DataDiverged));
        }
        self.needs_snapshot = false;
        self.applied = Seqno::ZERO;
        let view = base.view.clone();
        self.begin_at(base);
        self.renew_session();
        self.sequencer = None;
        // Another log: what was known of the old one is void, in the same term too.
        self.facts_of = Term::ZERO;
        self.become_follower(now, Some(from));
        if matches!(self.phase, Phase::Primary | Phase::Leaving) {
            // The view that threw this member out may be among what was skipped.
            self.on_view_delivered(now, &view);
        }
    }

    /// After a fork this side may not know the numbers that the other side ordered: what comes next would wait for them for
    /// ever. What is pending is given up, as in `abandon_pending`.
    fn renew_session(&mut self) {
        let first = self.pending.front().map_or(self.next_number, |p| p.number);
        let ordered = match self.done.sessions.get(&self.me()) {
            Some((session, last)) if *session == self.session.number => *last,
            Some(_) | None => 0,
        };
        if ordered + 1 < first {
            self.pending.clear();
            self.pending_bytes = 0;
            self.session = self.session.following();
            self.next_number = 1;
        }
    }

    // --- leaving --------------------------------------------------------------------------------------------------

    pub(crate) fn continue_leave(&mut self, now: Timestamp) {
        let incarnation = self.cfg.me.incarnation.0;
        self.to_sequencer(now, Message::Leave { incarnation });
    }

    pub(crate) fn on_leave(&mut self, now: Timestamp, from: NodeId, incarnation: u32) {
        let inside = self.tail.view.get(from).is_some_and(|m| m.incarnation.0 == incarnation);
        if let Role::Sequencer(s) = &mut self.role {
            if inside {
                s.leavers.insert(from);
                self.step_membership(now);
            }
        }
    }

    pub(crate) fn on_evict(&mut self, now: Timestamp, node: NodeId) {
        if let Role::Sequencer(s) = &mut self.role {
            s.leavers.insert(node);
            self.evicted.insert(node);
            self.step_membership(now);
        }
    }

    pub(crate) fn on_evicted(&mut self) {
        self.phase = Phase::Idle;
        self.role = Role::Follower;
        self.disarm();
        let reason = "this node has been evicted from the cluster; restart it to join again".into();
        self.out.push_back(Output::Event(Event::Rejected { reason }));
    }

    pub(crate) fn on_set_weight(&mut self, now: Timestamp, from: NodeId, weight: Weight) {
        if let Role::Sequencer(s) = &mut self.role {
            s.weights.insert(from, weight);
            self.step_membership(now);
        }
    }

    pub(crate) fn on_set_durability(&mut self, durability: Durability) {
        if matches!(self.role, Role::Sequencer(_)) && self.tail.durability != durability {
            let byte = u8::from(durability == Durability::Process);
            self.append_own(EntryKind::Durability, Session::default(), 0, Bytes::copy_from_slice(&[byte]));
        }
    }

    // --- what follows from silence --------------------------------------------------------------------------------

    pub(crate) fn on_check(&mut self, now: Timestamp) {
        if matches!(self.phase, Phase::Primary | Phase::Leaving) && now.since(self.good_at) > self.cfg.timeouts.suspect
        {
            // A member that may go on alone was never without a primary component.
            if self.phase == Phase::Leaving || !self.maybe_force(now) {
                self.become_non_primary(now);
            }
        }
        match self.phase {
            Phase::Joining | Phase::NonPrimary => {
                self.send_presence();
                self.send_join(now);
                if self.phase == Phase::NonPrimary {
                    self.maybe_force(now);
                }
            }
            Phase::Leaving => self.continue_leave(now),
            Phase::Primary => {
                self.press_wishes(now);
                if now.since(self.good_at) > self.cfg.timeouts.election * 2 {
                    // Whoever may have to go on alone wants to know the others' logs first.
                    self.send_presence();
                }
            }
            Phase::Idle | Phase::Failed => {}
        }
        if self.needs_snapshot && self.phase == Phase::Primary {
            self.send_join(now);
        }
        if self.at_election.is_none() && !matches!(self.role, Role::Sequencer(_)) {
            self.arm_election(now);
        }
        self.restart_stalled(now);
        self.note_silence(now);
        self.step_membership(now);
    }

    /// What this member wants ordered and does not see in force yet: a request may get lost with a sequencer.
    pub(crate) fn press_wishes(&mut self, now: Timestamp) {
        if self.phase != Phase::Primary {
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

    fn send_presence(&mut self) {
        let message = Message::Presence {
            history: self.tail.history,
            term: self.hard.term,
            last_term: self.tail.term,
            last_index: self.tail.index,
            primary: false,
        };
        let nodes: Vec<NodeId> = self.peers.keys().copied().collect();
        for node in nodes {
            self.send(node, message.clone());
        }
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

    pub(crate) fn become_non_primary(&mut self, now: Timestamp) {
        if self.phase == Phase::Leaving {
            return self.become_left();
        }
        self.phase = Phase::NonPrimary;
        self.fail_reads();
        let reachable = self.reachable(now);
        self.out.push_back(Output::Event(Event::NonPrimary { reachable }));
    }

    /// `pc.ignore_sb`, `pc.ignore_quorum`: go on with what is left (SAFETY 13).
    fn maybe_force(&mut self, now: Timestamp) -> bool {
        if now.since(self.good_at) <= self.cfg.timeouts.suspect || !self.may_stand() {
            return false;
        }
        let me = self.me();
        let voters = &self.tail.voters;
        let alive: Vec<Voter> =
            voters.voters.iter().filter(|v| v.node == me || self.heard_recently(now, v.node)).copied().collect();
        let weight: u32 = alive.iter().map(|v| u32::from(v.weight.0)).sum();
        let half = 2 * weight == voters.total();
        let text = if half && self.cfg.ignore_sb {
            "Ignoring possible split-brain (allowed by configuration) from view:"
        } else if self.cfg.ignore_quorum && 2 * weight <= voters.total() {
            "Ignoring lack of quorum"
        } else {
            return false;
        };
        // The best log goes on, and only one of the members may do it (SAFETY 1).
        let mine = (self.tail.term, self.tail.index, std::cmp::Reverse(me));
        for v in alive.iter().filter(|v| v.node != me) {
            let log =
                self.peers.get(&v.node).and_then(|p| p.presence).filter(|(at, ..)| now.since(*at) < CHECK_EVERY * 10);
            match log {
                Some((_, term, index, _)) if (term, index, std::cmp::Reverse(v.node)) < mine => {}
                // Better than this one, or not known yet.
                Some(_) | None => return false,
            }
        }
        self.log(true, text.into());
        self.force(now, alive);
        true
    }

    /// `pc.bootstrap`: make the reachable non-primary members primary (fork record). No effect when primary.
    pub fn force_primary(&mut self, now: Timestamp) {
        if !matches!(self.phase, Phase::NonPrimary | Phase::Joining)
            || self.tail.history.is_nil()
            || self.needs_snapshot
        {
            return;
        }
        let fresh = |at: Timestamp| now.since(at) < CHECK_EVERY * 30;
        let mine = (self.tail.term, self.tail.index);
        let mut alive = vec![Voter { node: self.me(), weight: self.cfg.me.weight }];
        let mut best: Option<((Term, LogIndex), NodeId)> = None;
        for (node, peer) in &self.peers {
            if let Some((at, term, index, false)) = peer.presence.filter(|(at, ..)| fresh(*at)) {
                let _ = at;
                alive.push(Voter { node: *node, weight: peer.member.weight });
                if (term, index) > mine && best.is_none_or(|(log, _)| (term, index) > log) {
                    best = Some(((term, index), *node));
                }
            }
        }
        match best {
            Some((_, node)) => self.send(node, Message::Force),
            None => self.force(now, alive),
        }
    }

    fn force(&mut self, now: Timestamp, alive: Vec<Voter>) {
        let names: Vec<String> = alive.iter().map(|v| v.node.to_string()).collect();
        self.log(false, format!("primary component forced with voters {}", names.join(", ")));
        self.take_over(now, Some(VoterSet { voters: alive, forced: true }));
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
                self.step_membership(now);
            }
        }
    }

    pub(crate) fn on_voters_delivered(&mut self, now: Timestamp, _index: LogIndex) {
        self.step_membership(now);
        self.arm_election(now);
    }

    pub(crate) fn on_view_delivered(&mut self, now: Timestamp, view: &View) {
        let mine = view.get(self.me()).is_some_and(|m| m.incarnation == self.cfg.me.incarnation);
        match self.phase {
            Phase::Joining | Phase::NonPrimary if mine => {
                self.phase = Phase::Primary;
                self.join_state = None;
                self.good_at = now;
                // While it was out, the sequencer dropped what it sent.
                self.resend_pending();
            }
            Phase::Primary if !mine => {
                self.phase = Phase::NonPrimary;
                self.fail_reads();
                let reachable = self.reachable(now);
                self.out.push_back(Output::Event(Event::NonPrimary { reachable }));
            }
            Phase::Leaving if !mine => self.become_left(),
            Phase::Joining | Phase::NonPrimary | Phase::Primary | Phase::Leaving | Phase::Idle | Phase::Failed => {}
        }
        if let Role::Sequencer(s) = &mut self.role {
            s.leavers.retain(|n| view.get(*n).is_some());
            // Those that are out hear at once that it is committed.
            self.at_heartbeat = Some(now);
            self.step_membership(now);
        }
    }

    fn alive(&self, now: Timestamp, m: &Member) -> bool {
        m.node == self.me() && m.incarnation == self.cfg.me.incarnation
            || self.heard_recently(now, m.node)
                && self.peers.get(&m.node).is_some_and(|p| p.member.incarnation == m.incarnation)
    }

    /// One change at a time: whatever the view and the voters lack most.
    pub(crate) fn step_membership(&mut self, now: Timestamp) {
        let Role::Sequencer(s) = &self.role else { return };
        let quiet = self.tail.view.number == self.done.view.number && self.tail.voters_at <= self.done.index;
        if !s.established || !quiet || self.phase == Phase::Failed || self.phase == Phase::Idle {
            return;
        }
        if self.step_leave(now) || self.phase == Phase::Idle || self.step_weight() || self.step_view(now) {
            return;
        }
        self.step_voters(now);
    }

    fn step_leave(&mut self, now: Timestamp) -> bool {
        let me = self.me();
        let Role::Sequencer(s) = &self.role else { return false };
        let view = &self.tail.view;
        let leavers: Vec<NodeId> = s.leavers.iter().copied().filter(|n| view.get(*n).is_some()).collect();
        if leavers.is_empty() {
            return false;
        }
        let staying: Vec<NodeId> =
            view.members.iter().filter(|m| !leavers.contains(&m.node) && self.alive(now, m)).map(|m| m.node).collect();
        if leavers.contains(&me) {
            // A leaving sequencer hands over first; the last one out writes nothing (SAFETY 11).
            let heir = staying
                .iter()
                .filter(|n| self.tail.voters.weight(**n) > 0)
                .filter_map(|n| s.progress.get(n).map(|p| (p.matched, *n)))
                .max();
            match heir {
                None if staying.is_empty() => self.become_left(),
                // Nobody left that could order: after linger this counts as a failure.
                None => return false,
                // It would stand with a shorter log and could not win. Nothing new is ordered, so it gets there.
                Some((matched, _)) if matched < self.tail.index => {}
                Some((_, heir)) => {
                    if s.handed_over_at.is_none_or(|at| now.since(at) > self.cfg.timeouts.election) {
                        let term = self.hard.term;
                        if let Role::Sequencer(s) = &mut self.role {
                            s.handed_over_at = Some(now);
                        }
                        self.send(heir, Message::TimeoutNow { term });
                    }
                }
            }
            return true;
        }
        if leavers.iter().any(|n| self.tail.voters.contains(*n)) {
            if let Some(voters) = after_leave(&self.tail.voters, &staying, &leavers) {
                self.append_voters(&voters);
                return true;
            }
        }
        for node in leavers.iter().filter(|n| self.evicted.contains(n)).copied().collect::<Vec<_>>() {
            self.send(node, Message::Evicted);
        }
        let mut next = self.tail.view.clone();
        next.number += 1;
        next.members.retain(|m| !leavers.contains(&m.node));
        self.append_view(&next);
        true
    }

    fn step_weight(&mut self) -> bool {
        let Role::Sequencer(s) = &mut self.role else { return false };
        let mut voters = self.tail.voters.clone();
        voters.forced = false;
        for v in &mut voters.voters {
            if let Some(weight) = s.weights.remove(&v.node) {
                v.weight = weight;
            }
        }
        if voters.voters == self.tail.voters.voters {
            return false;
        }
        if voters.total() == 0 {
            // No set of voters without weight: never again would there be a majority.
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
            let since = s.gone.get(&m.node).copied().or_else(|| self.peers.get(&m.node).map(|p| p.heard));
            let dead = since.is_none_or(|at| now.since(at) > suspect) || reforming && !self.peers.contains_key(&m.node);
            !(replaced || other || dead)
        });
        let ready: Vec<NodeId> = s
            .joiners
            .keys()
            .copied()
            .filter(|n| self.peers.contains_key(n) && !evicted.contains(n))
            .filter(|n| s.progress.get(n).is_some_and(|p| !p.probing && p.snapshot_since.is_none()))
            // History holds a view without the old incarnation before the new one enters (SAFETY 12).
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
            } else if let Some(weight) = s.weights.get(&m.node) {
                m.weight = *weight;
            }
        }
        let fresh = s.fresh.iter().any(|n| next.get(*n).is_some());
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

    fn step_voters(&mut self, now: Timestamp) {
        let me = self.me();
        let Role::Sequencer(s) = &self.role else { return };
        let tail = self.tail.index;
        let complete: Vec<Voter> = self
            .tail
            .view
            .members
            .iter()
            .filter(|m| self.alive(now, m))
            .filter_map(|m| {
                let current = self.tail.voters.voters.iter().find(|v| v.node == m.node);
                let near = m.node == me
                    || s.progress.get(&m.node).is_some_and(|p| !p.probing && p.matched.0 + CAUGHT_UP >= tail.0);
                match current {
                    Some(v) => Some(*v),
                    None if near => Some(Voter { node: m.node, weight: m.weight }),
                    None => None,
                }
            })
            .collect();
        if let Some(voters) = next_voters(&self.tail.voters, &complete) {
            self.append_voters(&voters);
        }
    }
}
