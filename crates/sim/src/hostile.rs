//! A node that turns hostile: a member with a valid secret, a newcomer that is linked and not in the view, or one that comes under name
//! after name. It says anything that it could sign, to some and not to others, and drops, repeats and delays messages that it should send.
//! Then it is gone, or is caught and left.
//!
//! The honest core of its node runs beside the liar, so it stays a member. All checkers are at work. Lies whose harm docs/protocol.md
//! excuses (section 2, *What a lie can take*) are not told here. Nothing else is left out but proposals, which may be anything.

use std::collections::{BTreeMap, BTreeSet};

use trireme_order::{Class, LogStore, Message, violation};
use trireme_types::{Entry, EntryKind, LogIndex, NodeId, Reader, View, Writer};

use crate::check::Outcome;
use crate::cluster::{Cluster, Event, Input};
use crate::driver::{voters_at, voters_in_doubt};
use crate::net::Payload;
use crate::options::{MS, SEC};
use crate::rng::Rng;
use crate::situations::Situation;

#[path = "../../order/tests/group/lies.rs"]
#[allow(dead_code)]
mod lies;

pub(crate) use lies::UNIX_AT_ZERO;
use lies::{Field, Harm, Scene, Truth, change, fields, harm, invented};

/// In this time the majority of the others elects and commits when the liar is gone.
const BACK_WITHIN: u64 = 10 * SEC;

/// The liar of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Liar {
    Nobody,
    Member,
    /// Linked, with the secret, and not in the view; it may ask to be let in.
    Newcomer,
    /// The same under one name after the other.
    ManyNames,
}

/// The state of the liar.
pub(crate) struct Hostile {
    slot: usize,
    /// All names that it has had.
    names: BTreeSet<NodeId>,
    /// One of each kind of message that it has sent or been sent, the newest.
    heard: BTreeMap<u8, Message>,
    /// Own messages that it kept back when it should have sent them.
    withheld: Vec<(NodeId, Class, Message)>,
    rng: Rng,
    /// It says nothing that proves it a liar.
    careful: bool,
    over: bool,
    /// The others were no majority of the voters without it when it went.
    needed: bool,
}

impl Cluster {
    /// A cluster forms, one of its nodes or a newcomer lies for a while, and is gone.
    pub(crate) fn hostile_phase(&mut self) {
        self.bootstrap(0);
        self.run_for(SEC);
        let newcomer = self.options.liar != Liar::Member;
        let members = self.slots.len() - usize::from(newcomer);
        for slot in 1..members {
            self.join(slot);
        }
        let bound = self.options.liveness_bound();
        if !self.run_until(bound, |c| c.one_view() && c.voters().len() == members && c.settled()) {
            return self.fail(format!("{members} nodes do not form a cluster"));
        }
        let mut rng = Rng::new(self.options.seed ^ 0x006c_6961_u64.rotate_left(24));
        let slot = if newcomer { members } else { rng.below(members as u64) as usize };
        let careful = rng.chance(0.8);
        let leaves_by_proof = rng.chance(0.3);
        if newcomer {
            self.start_idle(slot);
        }
        let names = BTreeSet::from([self.slots[slot].node]);
        self.hostile = Some(Hostile {
            slot,
            names,
            heard: BTreeMap::new(),
            withheld: Vec::new(),
            rng,
            careful,
            over: false,
            needed: false,
        });
        self.invent();
        let liar = self.options.liar;
        self.log(|| format!("n{slot} turns hostile: {liar:?}"));
        self.operations_left = self.options.operations;
        self.client();
        self.after(SEC, Event::Fault);
        self.after(0, Event::Lie);
        self.run_for(self.options.safety);
        self.end_of_lies(leaves_by_proof);
    }

    pub(crate) fn lies(&self, slot: usize) -> bool {
        self.hostile.as_ref().is_some_and(|h| h.slot == slot)
    }

    /// It is gone, or proves itself a liar to everybody and is left.
    fn end_of_lies(&mut self, by_proof: bool) {
        if self.failure.is_some() {
            return;
        }
        let Some(liar) = self.hostile.as_ref().map(|h| h.slot) else { return };
        self.calm = true;
        if by_proof && self.options.liar == Liar::Member {
            self.prove_itself();
            self.run_for(SEC);
        }
        let suffice = |h: &Hostile| self.every_configuration(|set| set.majority(|n| !h.names.contains(&n)));
        let needed = self.hostile.as_ref().is_some_and(|h| !suffice(h));
        if let Some(h) = &mut self.hostile {
            (h.over, h.needed) = (true, needed);
        }
        self.log(|| format!("n{liar} is gone"));
        self.crash(liar, false);
        self.slots[liar].dead = true;
        self.heal_network();
        let begun = self.now;
        let done = self.majority_commits(BACK_WITHIN);
        if !done && needed {
            self.arose(Situation::LiarNeeded);
        } else if !done && self.failure.is_none() {
            let why = self.why_not_one_view();
            self.fail(format!("the liar is gone, and after 10 s no majority of the others commits: {why}"));
        }
        let took = (self.now - begun) / MS;
        self.log(|| format!("the others commit after {took} ms"));
    }

    /// Has each honest member whose server runs committed something within the bound? A server whose log was replaced by a state, as after
    /// terms that were driven up, is started again and begins with a copy. That takes longer; at the end of the run it is there, too.
    fn majority_commits(&mut self, bound: u64) -> bool {
        let end = self.now + bound;
        let mut writes: Vec<Option<(u64, u32)>> = vec![None; self.slots.len()];
        while self.now < end && self.failure.is_none() {
            let (mut done, mut waiting) = (0, 0);
            for (slot, write) in writes.iter_mut().enumerate() {
                if !self.is_honest(slot) {
                    continue;
                }
                let outcome = write.and_then(|(op, _)| self.clients.outcome(op));
                if matches!(outcome, Some(Outcome::Committed(_) | Outcome::Conflict(_))) {
                    done += 1;
                    continue;
                }
                let s = &self.slots[slot];
                let Some(p) = s.process.as_ref().filter(|_| s.db.valid) else { continue };
                waiting += 1;
                let waits = write.is_some_and(|(op, boot)| boot == p.boot && p.has_asked_for(op));
                if !waits {
                    let boot = p.boot;
                    *write = Some((self.write(slot), boot));
                }
            }
            if done > 0 && waiting == 0 {
                return true;
            }
            self.run_for(20 * MS);
        }
        false
    }

    pub(crate) fn is_liar_needed(&self) -> bool {
        self.hostile.as_ref().is_some_and(|h| h.needed)
    }

    fn is_honest(&self, slot: usize) -> bool {
        self.hostile.as_ref().is_none_or(|h| h.slot != slot)
    }

    /// A message to a node that everybody can see through.
    fn prove_itself(&mut self) {
        let Some(liar) = self.hostile.as_ref().map(|h| h.slot) else { return };
        let session = trireme_types::Session { node: NodeId::default(), number: 1 };
        for to in (0..self.slots.len()).filter(|to| *to != liar) {
            let lie = Message::Submit {
                session,
                number: trireme_types::ProposalNumber(1),
                app: true,
                body: bytes::Bytes::new(),
            };
            self.tell(to, lie);
        }
    }

    fn scene(&self, slot: usize) -> Scene {
        let others = (0..self.slots.len()).filter(|s| *s != slot).map(|s| self.slots[s].node).collect();
        let history = self.slots[0].store().base().history;
        Scene { history, liar: self.member(slot), others }
    }

    fn invent(&mut self) {
        let Some(slot) = self.hostile.as_ref().map(|h| h.slot) else { return };
        let scene = self.scene(slot);
        for message in invented(&scene) {
            self.note_for_lies(slot, &message);
        }
    }

    fn note_for_lies(&mut self, slot: usize, message: &Message) {
        let Some(h) = self.hostile.as_mut().filter(|h| h.slot == slot && !h.over) else { return };
        // A member's proposals may be anything, and say nothing about the order.
        if matches!(message, Message::Submit { .. }) {
            return;
        }
        let mut w = Writer::new();
        message.encode(&mut w);
        h.heard.insert(w.buf[0], message.clone());
    }

    /// On its way to be sent: the liar may keep it, repeat it, or say something else. `None`: it is dealt with.
    pub(crate) fn pass_liar(&mut self, from: usize, to: NodeId, class: Class, message: Message) -> Option<Message> {
        if self.hostile.is_none() {
            return Some(message);
        }
        let target = self.slot_of(to);
        if let Some(target) = target {
            self.note_for_lies(target, &message);
        }
        self.note_for_lies(from, &message);
        let Some(h) = self.hostile.as_mut().filter(|h| h.slot == from && !h.over) else { return Some(message) };
        match h.rng.below(40) {
            0 | 1 => None,
            2 => {
                h.withheld.push((to, class, message));
                None
            }
            3 => {
                h.withheld.push((to, class, message.clone()));
                Some(message)
            }
            4 if !matches!(message, Message::Submit { .. }) => {
                let other = self.mutate(message);
                if let (Some(target), Some(other)) = (target, other) {
                    self.tell(target, other);
                }
                None
            }
            _ => Some(message),
        }
    }

    /// The liar's turn.
    pub(crate) fn lie(&mut self) {
        let mean = self.options.lie_mean;
        let (count, liar) = match &mut self.hostile {
            Some(h) if !h.over => (1 + h.rng.below(4), h.slot),
            Some(_) | None => return,
        };
        let delay = self.hostile.as_mut().map_or(0, |h| h.rng.exp(mean));
        self.after(delay, Event::Lie);
        if self.options.liar == Liar::ManyNames && self.chance(0.1) {
            self.take_another_name(liar);
        }
        if self.chance(0.3) {
            let late = self.hostile.as_mut().map(|h| std::mem::take(&mut h.withheld)).unwrap_or_default();
            for (to, class, message) in late {
                self.send_on(liar, to, class, message);
            }
        }
        for _ in 0..count {
            let Some(h) = &mut self.hostile else { return };
            let at = h.rng.below(h.heard.len().max(1) as u64) as usize;
            let Some(message) = h.heard.values().nth(at).cloned() else { return };
            let to = h.rng.below(self.slots.len() as u64) as usize;
            if to == liar {
                continue;
            }
            let message = self.renew(to, message);
            if let Some(message) = self.mutate(message) {
                self.tell(to, message);
            }
        }
    }

    fn chance(&mut self, p: f64) -> bool {
        self.hostile.as_mut().is_some_and(|h| h.rng.chance(p))
    }

    fn take_another_name(&mut self, liar: usize) {
        self.wipe(liar);
        self.start_idle(liar);
        let name = self.slots[liar].node;
        if let Some(h) = &mut self.hostile {
            h.names.insert(name);
        }
        self.invent();
    }

    /// As new as it can be, before it is changed.
    fn renew(&mut self, to: usize, mut message: Message) -> Message {
        let Some(status) = self.status(to) else { return message };
        let history = self.slots[to].store().base().history;
        let ahead = self.hostile.as_mut().map_or(0, |h| h.rng.below(2));
        for field in fields(&mut message) {
            match field {
                Field::Term(term) => term.0 = status.term.0 + ahead,
                Field::Index(index) => *index = status.last,
                Field::Branch(branch) => *branch = status.lineage.branch(history),
                Field::Seqno(_) | Field::Number(_) | Field::Weight(_) | Field::Flag(_) | Field::Lineage(_) => {}
                Field::Node(_) | Field::Data(_) | Field::Holds(_) | Field::Durability(_) => {}
                Field::Level(_) | Field::Evidence(_) => {}
            }
        }
        message
    }

    /// Up to three fields change their meaning. `None`: a careful liar does not say that.
    fn mutate(&mut self, mut message: Message) -> Option<Message> {
        let slot = self.hostile.as_ref()?.slot;
        let scene = self.scene(slot);
        let h = self.hostile.as_mut()?;
        let mut choose = |below: u64| h.rng.below(below.max(1));
        for _ in 0..choose(4) {
            let mut all = fields(&mut message);
            let at = choose(all.len() as u64) as usize;
            if at < all.len() {
                change(&mut choose, &scene, all.swap_remove(at));
            }
        }
        if let Message::Join(j) = &mut message {
            j.member.node = scene.liar.node;
            j.member.incarnation = scene.liar.incarnation;
        }
        // A link carries nothing that does not decode.
        let mut w = Writer::new();
        message.encode(&mut w);
        let message = Message::decode(&w.buf.into()).ok()?;
        let proof = violation(scene.liar.node, &message).is_some();
        (!proof || !h.careful).then_some(message)
    }

    /// For the text of a failure.
    pub(crate) fn who_lies(&self) -> String {
        self.hostile.as_ref().map_or_else(String::new, |h| format!(" (n{} lies)", h.slot))
    }

    /// The lie is heard as soon as the other one listens.
    fn tell(&mut self, to: usize, message: Message) {
        let Some(liar) = self.hostile.as_ref().map(|h| self.slots[h.slot].node) else { return };
        let Some(p) = &mut self.slots[to].process else { return };
        let Some(&conn) = p.links.get(&liar) else { return };
        p.inbox.push_back(Input::Message { conn, from: liar, payload: Payload::Lie(message) });
        self.schedule_step(to);
    }

    /// A lie has come. One that could do harm which docs/protocol.md names is left out, judged by the truth at this moment.
    pub(crate) fn hear_lie(&mut self, slot: usize, from: NodeId, message: Message) {
        let Some(liar) = self.hostile.as_ref().map(|h| h.slot) else { return };
        let hard = self.slots[liar].store().hard_state();
        let truth = Truth {
            hearer: self.slots[slot].node,
            hearer_term: self.slots[slot].store().hard_state().term,
            acked: self.slots[liar].newest_ack(),
            voted: (hard.term, hard.voted_for()),
        };
        // Also from a liar that was a member once. A newcomer's words count when it has been let in.
        let always = |h: &Harm| matches!(h, Harm::Weight | Harm::Branch | Harm::Count);
        let found = harm(&message, &truth).filter(|h| always(h) || self.may_believe(slot, from));
        if found.is_some() || matches!(message, Message::Join(_)) && self.would_be_a_crowd(slot) {
            self.arose(Situation::HarmfulLie);
            return;
        }
        self.arose(Situation::Lie);
        if self.trace {
            let text = format!("n{slot} <- LIE {message:?}");
            self.log(|| text);
        }
        let now = self.slots[slot].local(self.now);
        if let Some(p) = &mut self.slots[slot].process {
            p.group.handle_message(now, from, message);
        }
    }

    /// May the member in this place take this node's word about the order? One that is in no primary view takes anybody's, as does one that is
    /// alone. Others believe those that a log or a view has named, and whom one of these follows.
    fn may_believe(&self, slot: usize, node: NodeId) -> bool {
        let others = |view: &View| view.members.iter().any(|m| m.node != self.slots[slot].node);
        let p = self.slots[slot].process.as_ref();
        let inside = p.is_some_and(|p| p.primary && p.view.as_ref().is_some_and(others));
        !inside || (0..self.slots.len()).any(|other| self.is_honest(other) && self.names(other, node))
    }

    /// Is this node in the newest view that the member in this place was told, in a later one in its log, or in a set of voters that may decide
    /// there?
    fn names(&self, slot: usize, node: NodeId) -> bool {
        let s = &self.slots[slot];
        let store = s.store();
        let sets = [voters_at(store, store.last()), voters_in_doubt(store, store.last(), LogIndex::ZERO)];
        let votes = sets.iter().flatten().chain([&store.base().voters]).any(|set| set.contains(node));
        let is_in = |view: &View| view.get(node).is_some();
        let Some(p) = &s.process else { return votes || is_in(&store.base().view) };
        let later = store.read(p.last_index.max(store.base().index).next(), usize::MAX).unwrap_or_default();
        let mut views = later.iter().filter(|e| e.header.kind == EntryKind::View);
        let names = |e: &Entry| View::decode(&mut Reader::new(&e.payload)).is_ok_and(|view| is_in(&view));
        votes || p.view.as_ref().is_some_and(is_in) || views.any(names)
    }

    /// Would one name more of the liar make the honest half of the voters?
    fn would_be_a_crowd(&self, slot: usize) -> bool {
        let Some(h) = &self.hostile else { return false };
        let store = self.slots[slot].store();
        let voters = voters_at(store, store.last()).unwrap_or_else(|| store.base().voters.clone());
        let honest: u32 =
            (0..self.slots.len()).filter(|s| self.is_honest(*s)).map(|s| voters.weight(self.slots[s].node)).sum();
        let liars = h.names.iter().filter(|n| self.names(slot, **n)).count();
        honest <= liars as u32 + 1
    }

    /// A node has left a peer, or takes it back.
    pub(crate) fn on_refuse(&mut self, slot: usize, node: NodeId, refused: bool) {
        let caught = self.hostile.as_ref().is_some_and(|h| h.names.contains(&node));
        if refused && !caught {
            return self.fail(format!("n{slot} calls {node} a liar, and it is none"));
        }
        let Some(p) = &mut self.slots[slot].process else { return };
        if !refused {
            p.refuses.remove(&node);
            return;
        }
        self.arose(Situation::LiarLeft);
        let Some(p) = &mut self.slots[slot].process else { return };
        p.refuses.insert(node);
        if let Some(conn) = p.links.remove(&node) {
            p.builds.remove(&node);
            self.reset_conn(conn);
        }
    }
}
