//! One that lies: a stranger with a link, a newcomer under one name or many, or a member that says what it could sign. Its messages are
//! those of the group, with fields that are changed by their meaning. When it is gone, the others elect and commit within 10 s. Nothing
//! committed is lost, unless a lie has had one of the effects that docs/protocol.md names.
//!
//! Shared with the fuzz target `order_liar`, which chooses by the fuzzer's bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use trireme_order::{Event, LogStore, Message, Phase, violation};
use trireme_types::{LogIndex, Member, NodeId, Term, Writer};

use super::lies::{Choose, Field, Harm, Scene, Truth, change, fields, harm, invented};
use super::net::{HISTORY, Net, node};

const STRANGER: u8 = 9;
/// Names of one that has many, `STRANGER` the first of them.
const NAMES: u8 = 12;
/// Time in which the others have to be back.
const BACK_WITHIN: Duration = Duration::from_secs(10);

/// The place of the liar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Liar {
    /// Linked, and does not ask to be let in.
    Stranger,
    Newcomer,
    /// One after the other comes and asks, but none of them for long.
    ManyNames,
    Member(u8),
}

/// The effects of a lie among the honest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Effect {
    /// Somebody followed it, and took or committed what it said.
    Led,
    /// Its word was one of those that were counted.
    Counted,
    /// A log counts no more as evidence.
    Doubted,
    /// A log or data were given up.
    GaveUp,
    Branched,
    ThrownOut,
    /// The others are no majority without it.
    Outweighed,
}

impl Effect {
    /// The rows of docs/protocol.md of which this is the effect.
    fn rows(self) -> &'static [Harm] {
        match self {
            Effect::Led => &[Harm::Order],
            Effect::Counted => &[Harm::Count],
            Effect::Doubted => &[Harm::Doubt, Harm::Order, Harm::Branch],
            Effect::GaveUp => &[Harm::Order, Harm::Count, Harm::Branch],
            Effect::Branched => &[Harm::Branch, Harm::Order, Harm::Doubt],
            Effect::ThrownOut => &[Harm::Eviction],
            Effect::Outweighed => &[Harm::Weight, Harm::Order],
        }
    }

    /// May something that was committed be gone?
    fn may_lose(self) -> bool {
        matches!(self, Effect::Led | Effect::Counted | Effect::GaveUp | Effect::Branched | Effect::ThrownOut)
    }

    /// May the others be unable to go on without a person?
    fn may_stop(self) -> bool {
        matches!(self, Effect::Doubted | Effect::GaveUp | Effect::Branched | Effect::ThrownOut | Effect::Outweighed)
    }
}

/// How a world ended.
pub struct End {
    /// Something that docs/protocol.md names was brought about, so that less was asserted.
    pub excused: bool,
    /// The liar was caught, and left.
    pub left: bool,
}

/// The group that is lied to.
pub struct World {
    net: Net,
    liar: Liar,
    /// The name that it has at present.
    name: u8,
    /// It says nothing that proves it a liar.
    careful: bool,
    /// It says nothing that could have an effect which docs/protocol.md names.
    harmless: bool,
    /// One of each kind that was ever sent, the newest.
    heard: BTreeMap<u8, Message>,
    told: u32,
    /// Where the logs began.
    bases: BTreeMap<u8, LogIndex>,
    said: BTreeSet<Harm>,
    effects: BTreeSet<Effect>,
    left: bool,
}

impl World {
    pub fn new(choose: Choose<'_>) -> World {
        let net = Net::cluster(3);
        let (liar, name) = match choose(6) {
            0 => (Liar::Stranger, STRANGER),
            1 => (Liar::Newcomer, STRANGER),
            2 => (Liar::ManyNames, STRANGER),
            _ => {
                let n = 1 + choose(3) as u8;
                (Liar::Member(n), n)
            }
        };
        let bases = net.nodes.iter().map(|(n, one)| (*n, one.group.store().base().index)).collect();
        let mut world = World {
            net,
            bases,
            liar,
            name,
            careful: choose(8) > 0,
            harmless: choose(2) == 0,
            heard: BTreeMap::new(),
            told: 0,
            said: BTreeSet::new(),
            effects: BTreeSet::new(),
            left: false,
        };
        world.note(invented(&world.scene()));
        world
    }

    fn scene(&self) -> Scene {
        let others = (1..=3).map(node).filter(|n| *n != node(self.name)).collect();
        Scene { history: HISTORY, liar: self.member(), others }
    }

    fn member(&self) -> Member {
        Net::config(self.name).me
    }

    fn note(&mut self, messages: Vec<Message>) {
        for message in messages {
            let mut w = Writer::new();
            message.encode(&mut w);
            if self.liar != Liar::Stranger || !matches!(message, Message::Join(_)) {
                self.heard.insert(w.buf[0], message);
            }
        }
    }

    fn honest(&self) -> Vec<u8> {
        (1..=3).filter(|n| self.liar != Liar::Member(*n)).collect()
    }

    /// Every name that it ever had.
    fn names(&self) -> Vec<u8> {
        match self.liar {
            Liar::Stranger | Liar::Newcomer => vec![STRANGER],
            Liar::ManyNames => (STRANGER..STRANGER + NAMES).collect(),
            Liar::Member(n) => vec![n],
        }
    }

    fn truth(&self, to: u8) -> Truth {
        let status = self.net.nodes[&to].group.status();
        let me = node(self.name);
        let own = self.net.nodes.get(&self.name).map(|n| &n.group);
        let (acked, voted) = match own {
            Some(group) => {
                let hard = group.store().hard_state();
                let held = group.held_by(me).unwrap_or_default();
                ((hard.term, held), (hard.term, hard.voted_for()))
            }
            None => ((Term::ZERO, LogIndex::ZERO), (Term::ZERO, NodeId::default())),
        };
        Truth { hearer: node(to), hearer_term: status.term, acked, voted }
    }

    /// The row under which this lie falls. A lie by somebody who is not believed falls under none, if the hearer is in a primary component.
    fn harm(&self, to: u8, message: &Message) -> Option<Harm> {
        let status = self.net.nodes[&to].group.status();
        let believed = self.net.nodes[&to].group.believes(node(self.name));
        let comes = matches!(self.liar, Liar::Newcomer | Liar::ManyNames);
        let always = |harm: &Harm| match harm {
            Harm::Weight | Harm::Branch => true,
            // Once it has been let in.
            Harm::Count => comes,
            Harm::Order | Harm::Doubt | Harm::Eviction => false,
        };
        harm(message, &self.truth(to)).filter(|h| believed || status.phase != Phase::Primary || always(h))
    }

    fn lie(&mut self, choose: Choose<'_>) {
        let Some(message) = self.heard.values().nth(choose(self.heard.len() as u64) as usize) else { return };
        let mut message = message.clone();
        let to = self.honest()[choose(self.honest().len() as u64) as usize];
        let status = self.net.nodes[&to].group.status();
        // As new as it can be, before it is changed.
        for field in fields(&mut message) {
            match field {
                Field::Term(term) => *term = Term(status.term.0 + choose(2)),
                Field::Index(index) => *index = status.last,
                Field::Branch(branch) => *branch = HISTORY,
                Field::Seqno(_) | Field::Number(_) | Field::Weight(_) | Field::Flag(_) | Field::Lineage(_) => {}
                Field::Node(_) | Field::Data(_) | Field::Holds(_) | Field::Durability(_) => {}
                Field::Level(_) | Field::Evidence(_) => {}
            }
        }
        let scene = self.scene();
        for _ in 0..choose(4) {
            let mut all = fields(&mut message);
            let at = choose(all.len().max(1) as u64) as usize;
            if at < all.len() {
                change(choose, &scene, all.swap_remove(at));
            }
        }
        let me = node(self.name);
        if let Message::Join(j) = &mut message
            && (self.careful || choose(4) > 0)
        {
            j.member.node = me;
        }
        if let Message::Submit { session, .. } = &mut message
            && (self.careful || choose(4) > 0)
        {
            session.node = me;
        }
        // A link carries nothing that does not decode.
        let mut w = Writer::new();
        message.encode(&mut w);
        let Ok(message) = Message::decode(&w.buf.into()) else { return };
        let proof = violation(me, &message).is_some();
        let harm = self.harm(to, &message);
        if self.careful && proof || self.harmless && harm.is_some() {
            return;
        }
        self.say(to, message, harm);
    }

    fn say(&mut self, to: u8, message: Message, harm: Option<Harm>) {
        let (me, now) = (node(self.name), self.net.now);
        let member = self.member();
        self.said.extend(harm);
        let target = &mut self.net.nodes.get_mut(&to).expect("the honest ones run").group;
        if !target.is_linked(me) {
            target.handle_link_up(now, member, trireme_order::SUPPORTED);
        }
        target.handle_message(now, me, message);
        self.left |= target.left_peers().contains(&me);
        if harm == Some(Harm::Order) && target.status().sequencer == Some(me) {
            self.effects.insert(Effect::Led);
        }
        if harm == Some(Harm::Count) {
            self.effects.insert(Effect::Counted);
        }
        self.look();
    }

    /// The fate of the honest.
    fn look(&mut self) {
        for n in self.honest() {
            let one = &self.net.nodes[&n];
            let status = one.group.status();
            let had = |event: &Event| one.events.contains(event);
            let found = [
                (Effect::Doubted, one.group.store().suspect().is_some()),
                (Effect::GaveUp, had(&Event::DataDiverged) || one.group.store().base().index != self.bases[&n]),
                (Effect::Branched, status.lineage.newest().is_some()),
                (Effect::ThrownOut, had(&Event::Evicted)),
            ];
            self.effects.extend(found.iter().filter(|(_, is)| *is).map(|(effect, _)| *effect));
            let liars: Vec<NodeId> = self.names().into_iter().map(node).collect();
            for left in one.group.left_peers() {
                assert!(liars.contains(&left), "node {n} calls {left} a liar");
            }
        }
    }

    fn is_outweighed(&self) -> bool {
        let outweighs = |n: u8| {
            let voters = self.net.nodes[&n].group.status().voters;
            let honest: u32 = self.honest().iter().map(|n| voters.weight(node(*n))).sum();
            2 * honest <= voters.total()
        };
        self.honest().into_iter().any(outweighs)
    }

    pub fn step(&mut self, choose: Choose<'_>) {
        let mut newest = Vec::new();
        match choose(16) {
            0..=10 => self.lie(choose),
            11..=12 => {
                let n = self.honest()[choose(self.honest().len() as u64) as usize];
                let now = self.net.now;
                self.told += 1;
                let body = Bytes::from(format!("step {}", self.told));
                let _ = self.net.nodes.get_mut(&n).expect("the honest ones run").group.propose(now, body);
                self.net.drain(n);
                newest = self.net.queue.iter().map(|(_, _, m)| m.clone()).collect();
                self.net.settle();
            }
            13 if self.liar == Liar::ManyNames => {
                self.name = STRANGER + choose(u64::from(NAMES)) as u8;
                newest = invented(&self.scene());
            }
            13 => self.net.settle(),
            14 => self.net.run(Duration::from_millis(choose(700))),
            _ => self.net.run(Duration::from_millis(20)),
        }
        self.look();
        self.note(newest);
    }

    fn all(&self) -> String {
        let one = |n: u8| {
            let node = &self.net.nodes[&n];
            let s = node.group.status();
            let state = (s.phase, s.term, s.sequencer, s.last, s.committed, s.delivered);
            format!("\n{n} {state:?} {:?} {:?} {:#?}", s.lineage, s.voters, node.events)
        };
        let honest: String = self.honest().into_iter().map(one).collect();
        format!("liar {:?}, said {:?}, effects {:?}: {honest}", self.liar, self.said, self.effects)
    }

    /// The liar goes, or is left.
    pub fn end(mut self) -> End {
        let honest = self.honest();
        let now = self.net.now;
        for n in &honest {
            for name in self.names() {
                self.net.nodes.get_mut(n).expect("the honest ones run").group.handle_link_down(now, node(name));
            }
        }
        if let Liar::Member(n) = self.liar {
            self.net.kill(n);
        }
        if self.is_outweighed() {
            self.effects.insert(Effect::Outweighed);
        }
        self.net.run(BACK_WITHIN);
        self.look();
        for effect in &self.effects {
            let crowd = *effect == Effect::Outweighed && self.liar == Liar::ManyNames;
            let is_said = effect.rows().iter().any(|row| self.said.contains(row));
            assert!(is_said || crowd, "{effect:?} without a lie that brings it: {}", self.all());
        }
        let end = End { excused: !self.effects.is_empty(), left: self.left };
        if self.effects.iter().any(|e| e.may_stop()) {
            return end;
        }
        for n in &honest {
            let status = self.net.nodes[n].group.status();
            assert_eq!(status.phase, Phase::Primary, "node {n}: {}", self.all());
            self.net.propose(*n, &format!("in the end from {n}"));
        }
        self.net.run(Duration::from_secs(1));
        for n in &honest {
            let bodies = self.net.bodies(*n);
            let got = bodies.iter().filter(|b| b.starts_with("in the end")).count();
            assert_eq!(got, honest.len(), "node {n}: {}", self.all());
            // All have every entry that one has committed.
            let of_first = self.net.bodies(honest[0]);
            let may_lose = self.effects.iter().any(|e| e.may_lose());
            assert!(may_lose || bodies == of_first, "node {n}: {bodies:?}, {of_first:?}: {}", self.all());
        }
        end
    }
}
