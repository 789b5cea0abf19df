//! One that lies: a stranger with a link, or a member that says what it could sign. Its messages are those of the group, with fields that
//! are changed by what they mean. When it is gone, the others elect and commit within 10 s.
//!
//! Shared with the fuzz target `order_liar`, which chooses by the fuzzer's bytes.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use trireme_order::{Append, Content, Envelope, Heartbeat, LogEnd, Message, Phase, Presence};
use trireme_types::{
    Base, Durability, EntryHeader, EntryKind, Fork, Level, Lineage, LogIndex, NodeId, Seqno, Session, Term, Uuid,
    Weight,
};

use super::net::{HISTORY, Net, node};

/// A number below the given one.
pub type Choose<'a> = &'a mut dyn FnMut(u64) -> u64;

const STRANGER: u8 = 9;
/// Time in which the others have to be back.
const BACK_WITHIN: Duration = Duration::from_secs(10);

/// A place in a message, by its meaning.
enum Field<'a> {
    Term(&'a mut Term),
    Index(&'a mut LogIndex),
    Seqno(&'a mut Seqno),
    Number(&'a mut u64),
    Weight(&'a mut Weight),
    Flag(&'a mut bool),
    Branch(&'a mut Uuid),
    Lineage(&'a mut Lineage),
    Node(&'a mut Option<NodeId>),
    Data(&'a mut Option<(Uuid, Seqno)>),
    Holds(&'a mut Option<Seqno>),
    Durability(&'a mut Durability),
    Level(&'a mut Level),
}

fn fields_of_header(h: &mut EntryHeader) -> Vec<Field<'_>> {
    vec![
        Field::Index(&mut h.index),
        Field::Term(&mut h.term),
        Field::Seqno(&mut h.seqno),
        Field::Index(&mut h.voters),
        Field::Number(&mut h.session.number),
        Field::Number(&mut h.number),
    ]
}

fn fields_of_presence(p: &mut Presence) -> Vec<Field<'_>> {
    vec![
        Field::Branch(&mut p.history),
        Field::Lineage(&mut p.lineage),
        Field::Term(&mut p.term),
        Field::Term(&mut p.last_term),
        Field::Index(&mut p.last_index),
        Field::Seqno(&mut p.base),
        Field::Seqno(&mut p.seqno),
        Field::Flag(&mut p.primary),
        Field::Flag(&mut p.whole),
        Field::Data(&mut p.data),
        Field::Holds(&mut p.holds),
        Field::Node(&mut p.sequencer),
    ]
}

fn fields(message: &mut Message) -> Vec<Field<'_>> {
    use Field as F;
    match message {
        Message::Submit { session, number, app, .. } => {
            vec![F::Number(&mut session.number), F::Number(number), F::Flag(app)]
        }
        Message::InTerm(Envelope { branch, term, content }) => {
            let mut all = vec![F::Branch(branch), F::Term(term)];
            all.extend(fields_of_content(content));
            all
        }
        Message::Join(j) => vec![
            F::Branch(&mut j.history),
            F::Lineage(&mut j.lineage),
            F::Flag(&mut j.usable),
            F::Index(&mut j.last_index),
            F::Term(&mut j.last_term),
            F::Data(&mut j.position),
            F::Number(&mut j.view),
            F::Weight(&mut j.member.weight),
        ],
        Message::Snapshot { term, lineage, base } => vec![
            F::Term(term),
            F::Lineage(lineage),
            F::Branch(&mut base.history),
            F::Lineage(&mut base.lineage),
            F::Index(&mut base.index),
            F::Term(&mut base.term),
            F::Seqno(&mut base.seqno),
            F::Index(&mut base.voters_at),
        ],
        Message::Presence(p) => fields_of_presence(p),
        Message::SetWeight { weight } => vec![F::Weight(weight)],
        Message::SetDurability { durability } => vec![F::Durability(durability)],
        Message::LevelLimit { limit } => vec![F::Level(limit)],
        Message::Leave { .. }
        | Message::Force
        | Message::Evicted
        | Message::Signal { .. }
        | Message::Unknown { .. } => vec![],
    }
}

fn fields_of_content(content: &mut Content) -> Vec<Field<'_>> {
    use Field as F;
    match content {
        Content::Append(Append { prev_index, prev_term, commit, entries }) => {
            let mut all = vec![F::Index(prev_index), F::Term(prev_term), F::Index(commit)];
            all.extend(entries.iter_mut().flat_map(|(h, _)| fields_of_header(h)));
            all
        }
        Content::Reject { prev_index, last } => vec![F::Index(prev_index), F::Index(last)],
        Content::NeedBodies { from: index } | Content::Ack { index } | Content::Recall { index } => {
            vec![F::Index(index)]
        }
        Content::Heartbeat(Heartbeat { commit, last, round, majority }) => {
            vec![F::Index(commit), F::Index(last), F::Number(round), F::Flag(majority)]
        }
        Content::HeartbeatAck { round } => vec![F::Number(round)],
        Content::PreVote { last } => vec![F::Term(&mut last.term), F::Index(&mut last.index)],
        Content::PreVoteReply { granted, whole } | Content::VoteReply { granted, whole } => {
            vec![F::Flag(granted), F::Flag(whole)]
        }
        Content::Vote { last, transfer } => {
            vec![F::Term(&mut last.term), F::Index(&mut last.index), F::Flag(transfer)]
        }
        Content::TimeoutNow | Content::Entrust => vec![],
        Content::ReadRequest { batch } => vec![F::Number(batch)],
        Content::ReadReply { batch, seqno } => vec![F::Number(batch), F::Seqno(seqno)],
        Content::BeginFromData { index, seqno } => vec![F::Index(index), F::Seqno(seqno)],
    }
}

/// Another number of the same kind: next to it, at a bound of the code, or far away.
fn number(choose: Choose<'_>, now: u64) -> u64 {
    match choose(10) {
        0 => now.wrapping_add(1),
        1 => now.wrapping_sub(1),
        2 => now.wrapping_add(1 << 20),
        3 => now.wrapping_add((1 << 20) + 1),
        4 => 0,
        5 => 1 << 40,
        6 => (1 << 62) - 1,
        7 => (1 << 63) - 1,
        8 => u64::MAX,
        _ => now.wrapping_add(choose(200)).wrapping_sub(100),
    }
}

fn change(choose: Choose<'_>, field: Field<'_>) {
    let fork = |n: u64| Fork { index: LogIndex(n), seqno: Seqno(n), id: Uuid([n as u8 | 1; 16]) };
    match field {
        Field::Term(term) => term.0 = number(choose, term.0),
        Field::Index(index) => index.0 = number(choose, index.0),
        Field::Seqno(seqno) => seqno.0 = number(choose, seqno.0),
        Field::Number(n) => *n = number(choose, *n),
        Field::Weight(weight) => weight.0 = [0, 1, 2, 255][choose(4) as usize],
        Field::Flag(flag) => *flag = !*flag,
        Field::Branch(branch) => *branch = [HISTORY, Uuid::NIL, Uuid([7; 16])][choose(3) as usize],
        Field::Lineage(lineage) => {
            *lineage = match choose(3) {
                0 => Lineage::default(),
                _ => lineage.with(fork(1 + choose(100) + lineage.newest().map_or(0, |f| f.index.0))),
            };
        }
        Field::Node(of) => *of = [None, Some(node(1)), Some(node(2)), Some(node(STRANGER))][choose(4) as usize],
        Field::Data(data) => {
            *data = [None, Some((HISTORY, Seqno(0))), Some((HISTORY, Seqno(1 << 40)))][choose(3) as usize]
        }
        Field::Holds(holds) => *holds = [None, Some(Seqno(0)), Some(Seqno(1 << 40))][choose(3) as usize],
        Field::Durability(durability) => {
            *durability = [Durability::Disk, Durability::Process][choose(2) as usize];
        }
        Field::Level(level) => level.0 = choose(1 << 16) as u16,
    }
}

/// The group that is lied to.
pub struct World {
    net: Net,
    liar: u8,
    /// One of each kind that was ever sent, the newest.
    heard: BTreeMap<u8, Message>,
    told: u32,
}

impl World {
    pub fn new(choose: Choose<'_>) -> World {
        let net = Net::cluster(3);
        let liar = if choose(2) == 0 { STRANGER } else { 1 + choose(3) as u8 };
        let mut world = World { net, liar, heard: BTreeMap::new(), told: 0 };
        world.note(invented());
        world
    }

    fn note(&mut self, messages: Vec<Message>) {
        for message in messages {
            let mut w = trireme_types::Writer::new();
            message.encode(&mut w);
            if self.sayable(&message) {
                self.heard.insert(w.buf[0], message);
            }
        }
    }

    /// A stranger may try everything, but to become a member. Of a member it is known what it can bring about: it can write what it likes as a sequencer, throw
    /// another one out, give it a state, and take away the vote of its log (docs/protocol.md, section 2, *What stays possible*).
    fn sayable(&self, message: &Message) -> bool {
        let beyond = matches!(
            message,
            Message::InTerm(Envelope { content: Content::Append(_), .. })
                | Message::Snapshot { .. }
                | Message::Evicted
                | Message::InTerm(Envelope { content: Content::Recall { .. }, .. })
                | Message::Force
                | Message::InTerm(Envelope { content: Content::Entrust, .. })
                | Message::InTerm(Envelope { content: Content::BeginFromData { .. }, .. })
                | Message::SetWeight { .. }
        );
        if self.liar == STRANGER { !matches!(message, Message::Join(_)) } else { !beyond }
    }

    fn honest(&self) -> Vec<u8> {
        (1..=3).filter(|n| *n != self.liar).collect()
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
                Field::Node(_) | Field::Data(_) | Field::Holds(_) | Field::Durability(_) | Field::Level(_) => {}
            }
        }
        for _ in 0..choose(4) {
            let mut all = fields(&mut message);
            let at = choose(all.len().max(1) as u64) as usize;
            if at < all.len() {
                change(choose, all.swap_remove(at));
            }
        }
        if let Message::Join(j) = &mut message {
            j.member.node = node(self.liar);
        }
        if let Message::Submit { session, .. } = &mut message {
            session.node = node(self.liar);
        }
        let now = self.net.now;
        let target = &mut self.net.nodes.get_mut(&to).expect("the honest ones run").group;
        if !target.is_linked(node(self.liar)) {
            target.handle_link_up(now, Net::config(self.liar).me, trireme_order::SUPPORTED);
        }
        target.handle_message(now, node(self.liar), message);
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
            13 => self.net.settle(),
            14 => self.net.run(Duration::from_millis(choose(700))),
            _ => self.net.run(Duration::from_millis(20)),
        }
        self.note(newest);
    }

    fn all(&self) -> String {
        let one = |n: u8| {
            let node = &self.net.nodes[&n];
            let s = node.group.status();
            let state = (s.phase, s.term, s.sequencer, s.last, s.committed, s.delivered);
            format!("\n{n} {state:?} {:?} {:#?}", s.lineage, node.events)
        };
        self.honest().into_iter().map(one).collect()
    }

    /// The liar goes, or is left.
    pub fn end(mut self) {
        let honest = self.honest();
        let now = self.net.now;
        for n in &honest {
            self.net.nodes.get_mut(n).expect("the honest ones run").group.handle_link_down(now, node(self.liar));
        }
        if self.liar != STRANGER {
            self.net.kill(self.liar);
        }
        self.net.run(BACK_WITHIN);
        for n in &honest {
            let status = self.net.nodes[n].group.status();
            assert_eq!(status.phase, Phase::Primary, "node {n}, liar {}: {}", self.liar, self.all());
            self.net.propose(*n, &format!("in the end from {n}"));
        }
        self.net.run(Duration::from_secs(1));
        for n in &honest {
            let bodies = self.net.bodies(*n);
            let got = bodies.iter().filter(|b| b.starts_with("in the end")).count();
            assert_eq!(got, honest.len(), "node {n}, liar {}: {}", self.liar, self.all());
            let of_first = self.net.bodies(honest[0]);
            assert_eq!(bodies, of_first, "node {n}, liar {}", self.liar);
        }
    }
}

/// What a quiet group does not say by itself.
fn invented() -> Vec<Message> {
    let (branch, term, index, seqno) = (HISTORY, Term(2), LogIndex(5), Seqno(3));
    let session = Session { node: node(STRANGER), number: 1 };
    let header = EntryHeader { index, term, seqno, voters: LogIndex(1), session, number: 1, kind: EntryKind::App };
    let base = Base { history: HISTORY, index, term, seqno, ..Base::default() };
    let presence = Presence {
        history: HISTORY,
        lineage: Lineage::default(),
        term,
        last_term: term,
        last_index: index,
        base: Seqno::ZERO,
        seqno,
        primary: true,
        whole: true,
        data: None,
        holds: Some(seqno),
        founding: None,
        sequencer: Some(node(STRANGER)),
    };
    let join = trireme_order::JoinRequest {
        member: Net::config(STRANGER).me,
        history: HISTORY,
        lineage: Lineage::default(),
        usable: true,
        last_index: index,
        last_term: term,
        position: None,
        view: 1,
    };
    let entries = vec![(header, Some(Bytes::from_static(b"lie")))];
    vec![
        Message::Submit { session, number: 1, app: false, body: Bytes::from_static(b"lie") },
        Content::Append(Append { prev_index: index, prev_term: term, commit: index, entries }).in_term(branch, term),
        Content::Reject { prev_index: index, last: index }.in_term(branch, term),
        Content::NeedBodies { from: index }.in_term(branch, term),
        Content::Ack { index }.in_term(branch, term),
        Content::Heartbeat(Heartbeat { commit: index, last: index, round: 1, majority: true }).in_term(branch, term),
        Content::HeartbeatAck { round: 1 }.in_term(branch, term),
        Content::PreVote { last: LogEnd { term, index } }.in_term(branch, term),
        Content::PreVoteReply { granted: true, whole: true }.in_term(branch, term),
        Content::Vote { last: LogEnd { term, index }, transfer: true }.in_term(branch, term),
        Content::VoteReply { granted: true, whole: true }.in_term(branch, term),
        Content::TimeoutNow.in_term(branch, term),
        Message::Join(join),
        Message::Snapshot { term, lineage: Lineage::default(), base: Box::new(base) },
        Message::Leave { incarnation: trireme_types::Incarnation(1) },
        Content::ReadRequest { batch: 1 }.in_term(branch, term),
        Content::ReadReply { batch: 1, seqno }.in_term(branch, term),
        Message::Presence(presence),
        Content::Recall { index }.in_term(branch, term),
        Message::Force,
        Content::Entrust.in_term(branch, term),
        Content::BeginFromData { index, seqno }.in_term(branch, term),
        Message::Evicted,
        Message::SetWeight { weight: Weight(255) },
        Message::SetDurability { durability: Durability::Disk },
        Message::Signal { body: Bytes::from_static(b"lie") },
        Message::LevelLimit { limit: Level(u16::MAX) },
        Message::Unknown { kind: 255 },
    ]
}
