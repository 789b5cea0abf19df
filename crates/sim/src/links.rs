//! The part of the world between nodes: connections that come, break and are noticed to break; messages under way; cuts.

use trireme_order::{Class, Message};
use trireme_types::{Incarnation, Member, MemberKind, NodeId, Weight};

use crate::cluster::{Cluster, Event, Filter, Input, Slot, Verdict};
use crate::net::{Conn, Payload, lane_of, pair};
use crate::options::{Sabotage, US};

impl Cluster {
    // --- network --------------------------------------------------------------------------------------------------

    pub(crate) fn schedule_connect(&mut self, a: usize, b: usize) {
        if a == b || self.net.connecting.contains(&pair(a, b)) || self.net.pairs.contains_key(&pair(a, b)) {
            return;
        }
        let (a, b) = pair(a, b);
        self.net.connecting.insert((a, b));
        let delay = US + self.rng.exp(self.options.connect_mean);
        self.after(delay, Event::Connect { a, b });
    }

    pub(crate) fn connect(&mut self, a: usize, b: usize) {
        self.net.connecting.remove(&(a, b));
        if self.net.pairs.contains_key(&(a, b)) {
            return;
        }
        let able = |s: &Slot| s.process.as_ref().is_some_and(|p| p.outage.is_none());
        if !able(&self.slots[a]) || !able(&self.slots[b]) {
            return; // `start` and `come_back` schedule the next attempt.
        }
        if self.slots[a].stands_still()
            || self.slots[b].stands_still()
            || self.net.is_blocked(a, b)
            || self.net.is_blocked(b, a)
        {
            self.schedule_connect(a, b);
            return;
        }
        if self.slots[a].node == self.slots[b].node {
            return; // Each refuses the other.
        }
        if self.refuses(a, b) || self.refuses(b, a) {
            self.schedule_connect(a, b);
            return;
        }
        self.take_over(a, b);
        self.take_over(b, a);
        let id =
            self.net.open(a, b, [self.slots[a].boot, self.slots[b].boot], [self.slots[a].node, self.slots[b].node]);
        for end in 0..2 {
            let delay = self.delay(a, b);
            self.after(delay, Event::SideUp { conn: id, end });
        }
    }

    /// The handshake refuses a peer that violated the protocol, and an older incarnation than one that was linked before: that runs on a
    /// disk that was cloned.
    fn refuses(&self, slot: usize, peer: usize) -> bool {
        let Some(p) = &self.slots[slot].process else { return false };
        let (node, incarnation) = (self.slots[peer].node, self.slots[peer].incarnation);
        let forgets = self.options.sabotage == Some(Sabotage::TwinReturns) && !p.links.contains_key(&node);
        p.refuses.contains(&node) || !forgets && p.newest.get(&node).is_some_and(|newest| incarnation < *newest)
    }

    /// `slot` links `peer`, and no other one of that identity any more.
    fn take_over(&mut self, slot: usize, peer: usize) {
        let (node, incarnation) = (self.slots[peer].node, self.slots[peer].incarnation);
        let is_twin = |c: &Conn| c.open && c.ends.contains(&slot) && c.nodes[1 - c.end_of(slot)] == node;
        let twins: Vec<u64> = self.net.conns.iter().filter(|(_, c)| is_twin(c)).map(|(id, _)| *id).collect();
        for id in twins {
            self.reset_conn(id);
        }
        if let Some(p) = &mut self.slots[slot].process {
            p.newest.insert(node, incarnation);
        }
    }

    pub(crate) fn side_up(&mut self, id: u64, end: usize) {
        let Some(c) = self.net.conns.get_mut(&id) else { return };
        if c.closed[end] {
            return;
        }
        c.up[end] = true;
        let (slot, boot, peer) = (c.ends[end], c.boots[end], c.ends[1 - end]);
        let peer_boot = c.boots[1 - end];
        // The handshake has carried the peer's words about itself from its beginning.
        if self.slots[peer].boot != peer_boot {
            return;
        }
        let member = self.member(peer);
        if let Some(p) = self.life(slot, boot) {
            p.inbox.push_back(Input::Up { conn: id, peer: member });
            self.schedule_step(slot);
        }
        for lane in 0..3 {
            self.lane(id, 1 - end, lane);
        }
    }

    pub(crate) fn member(&self, slot: usize) -> Member {
        let s = &self.slots[slot];
        Member {
            node: s.node,
            incarnation: Incarnation(s.incarnation),
            name: format!("n{slot}"),
            incoming: String::new(),
            address: format!("n{slot}:4567"),
            segment: 0,
            // An operator's setting lasts as long as the process.
            weight: Weight(s.wished),
            kind: if self.options.is_arbitrator(slot) { MemberKind::Arbitrator } else { MemberKind::Data },
        }
    }

    pub(crate) fn side_down(&mut self, id: u64, end: usize) {
        let Some(c) = self.net.conns.get_mut(&id) else { return };
        if c.closed[end] {
            return;
        }
        c.closed[end] = true;
        let (slot, boot, was_up) = (c.ends[end], c.boots[end], c.up[end]);
        let (a, b) = (c.ends[0], c.ends[1]);
        let node = c.nodes[1 - end];
        self.net.sweep(id);
        if was_up {
            if let Some(p) = self.life(slot, boot) {
                p.inbox.push_back(Input::Down { conn: id, node });
                self.schedule_step(slot);
            }
        }
        if !self.net.conns.contains_key(&id) {
            self.schedule_connect(a, b);
        }
    }

    /// The connection breaks. Messages that are sent from now on are lost; those under way arrive until the receiver notices.
    pub(crate) fn reset_conn(&mut self, id: u64) {
        let Some(c) = self.net.conns.get_mut(&id) else { return };
        if !c.open {
            return;
        }
        c.open = false;
        let (a, b) = (c.ends[0], c.ends[1]);
        self.net.pairs.remove(&(a, b));
        for end in 0..2 {
            let delay = self.rng.exp(self.options.notice_mean);
            self.after(delay, Event::SideDown { conn: id, end });
        }
        // A new connection may be there before the old one is noticed to be gone.
        if self.rng.chance(0.3) {
            self.schedule_connect(a, b);
        }
    }

    pub fn reset_link(&mut self, a: usize, b: usize) {
        if let Some(id) = self.net.pairs.get(&pair(a, b)).copied() {
            self.log(|| format!("connection n{a} n{b} is reset"));
            self.reset_conn(id);
        }
    }

    /// The process of `slot` is gone: its own ends close at once, the others notice.
    pub(crate) fn close_conns(&mut self, slot: usize) {
        let ids: Vec<u64> = self.net.conns.iter().filter(|(_, c)| c.ends.contains(&slot)).map(|(id, _)| *id).collect();
        for id in ids {
            self.reset_conn(id);
            if let Some(c) = self.net.conns.get_mut(&id) {
                let end = c.end_of(slot);
                c.closed[end] = true;
                self.net.sweep(id);
            }
        }
    }

    fn delay(&mut self, from: usize, to: usize) -> u64 {
        let base = self.options.delay_min + self.rng.exp(self.options.delay_mean);
        (base * self.net.slow[from][to].max(1)).min(self.options.delay_max)
    }

    pub(crate) fn send(&mut self, from: usize, to: NodeId, class: Class, message: Message) {
        if let Some(message) = self.pass_liar(from, to, class, message) {
            self.send_on(from, to, class, message);
        }
    }

    pub(crate) fn send_on(&mut self, from: usize, to: NodeId, class: Class, message: Message) {
        let Some(p) = &self.slots[from].process else { return };
        let Some(&conn) = p.links.get(&to) else { return };
        if self.filter.is_some() {
            let Some(target) = self.slot_of(to) else { return };
            let verdict = self.filter.as_mut().expect("checked")(from, target, &message);
            match verdict {
                Verdict::Pass => {}
                Verdict::Drop => return,
                Verdict::Hold => {
                    self.held.push((from, target, conn, class, message));
                    return;
                }
            }
        }
        self.put(from, conn, class, message);
    }

    fn put(&mut self, from: usize, conn: u64, class: Class, message: Message) {
        self.messages += 1;
        let lane = lane_of(class);
        let limit = self.options.droppable_limit;
        let (end, to) = match self.net.conns.get(&conn) {
            Some(c) if c.open => (c.end_of(from), c.ends[1 - c.end_of(from)]),
            _ => return,
        };
        if class == Class::Droppable {
            let full = self.net.conns[&conn].lanes[end][lane].queue.len() >= limit;
            if full || (self.options.droppable_loss > 0.0 && !self.calm && self.rng.chance(self.options.droppable_loss))
            {
                return;
            }
        }
        let mut delay = self.delay(from, to);
        let payload = if self.options.codec {
            let mut w = trireme_types::Writer::new();
            message.encode(&mut w);
            if class != Class::Control {
                delay += (w.buf.len() as u64).saturating_mul(1_000_000_000) / self.options.bandwidth;
            }
            Payload::Encoded(w.buf.into())
        } else {
            Payload::Plain(message)
        };
        let Some(c) = self.net.conns.get_mut(&conn) else { return };
        let l = &mut c.lanes[end][lane];
        let at = (self.now + delay).max(l.last);
        l.last = at;
        l.queue.push_back((at, payload));
        let backlog = l.queue.len();
        self.at(at, Event::Lane { conn, end, lane });
        if backlog > 100_000 {
            self.fail(format!("n{from} has {backlog} messages under way to n{to}: memory grows without bound"));
        }
    }

    /// Messages that `end` has sent on `lane` and that are due arrive, unless the way is cut or the receiver not there yet.
    pub(crate) fn lane(&mut self, id: u64, end: usize, lane: usize) {
        let Some(c) = self.net.conns.get(&id) else { return };
        let (from, to) = (c.ends[end], c.ends[1 - end]);
        let blocked = self.net.is_blocked(from, to);
        let Some(c) = self.net.conns.get_mut(&id) else { return };
        if c.closed[1 - end] {
            c.lanes[end][lane].queue.clear();
            return;
        }
        if !c.up[1 - end] || blocked {
            return;
        }
        let boot = c.boots[1 - end];
        let node = c.nodes[end];
        let mut due = Vec::new();
        while c.lanes[end][lane].queue.front().is_some_and(|m| m.0 <= self.now) {
            due.extend(c.lanes[end][lane].queue.pop_front());
        }
        if due.is_empty() {
            return;
        }
        if let Some(p) = self.life(to, boot) {
            for (_, payload) in due {
                p.inbox.push_back(Input::Message { conn: id, from: node, payload });
            }
            self.schedule_step(to);
        }
    }

    pub fn cut(&mut self, from: usize, to: usize) {
        if !self.net.is_blocked(from, to) {
            self.note_struck(from);
        }
        self.net.block(from, to);
        self.log(|| format!("cut n{from} -> n{to}"));
        let dead = self.options.dead_peer;
        if dead > 0 {
            if let Some(&conn) = self.net.pairs.get(&pair(from, to)) {
                let delay = dead / 2 + self.rng.below(dead);
                self.after(delay, Event::DeadPeer { conn, from, to });
            }
        }
    }

    pub fn cut_both(&mut self, a: usize, b: usize) {
        self.cut(a, b);
        self.cut(b, a);
    }

    pub fn mend(&mut self, from: usize, to: usize) {
        if self.net.unblock(from, to) {
            self.log(|| format!("mend n{from} -> n{to}"));
            self.flow(from, to);
        }
    }

    fn flow(&mut self, from: usize, to: usize) {
        let ids: Vec<(u64, usize)> = self
            .net
            .conns
            .iter()
            .filter(|(_, c)| c.ends == [from.min(to), from.max(to)])
            .map(|(id, c)| (*id, c.end_of(from)))
            .collect();
        for (id, end) in ids {
            for lane in 0..3 {
                self.lane(id, end, lane);
            }
        }
    }

    /// Cuts every link between a member of `group` and the rest.
    pub fn partition(&mut self, group: &[usize]) {
        for a in 0..self.slots.len() {
            for b in 0..self.slots.len() {
                if group.contains(&a) && !group.contains(&b) {
                    self.cut_both(a, b);
                }
            }
        }
    }

    pub fn heal_network(&mut self) {
        self.log(|| "the network heals".into());
        self.net.heal_all();
        for a in 0..self.slots.len() {
            for b in 0..self.slots.len() {
                if a != b {
                    self.flow(a, b);
                    self.schedule_connect(a, b);
                }
            }
        }
    }

    /// From now on `filter` decides over each message; `None` lets all pass.
    pub fn set_filter(&mut self, filter: Option<Filter>) {
        self.filter = filter;
    }

    /// Sends what the filter held back, in order, if the connections still exist.
    pub fn release(&mut self) {
        for (from, _, conn, class, message) in std::mem::take(&mut self.held) {
            self.put(from, conn, class, message);
        }
    }

    pub fn held(&self) -> usize {
        self.held.len()
    }
}
