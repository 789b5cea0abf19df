//! The messages of one that lies, with fields that are changed by their meaning, and the harm that they can do to the honest by
//! docs/protocol.md (section 2, *What a lie can take*).
//!
//! Shared by the order's own tests, the fuzz target `order_liar` and the simulator.

use std::time::Duration;

use bytes::Bytes;
use trireme_order::{Append, Content, Envelope, Evidence, Heartbeat, LogEnd, Message, Presence};
use trireme_types::{
    Base, Durability, EntryHeader, EntryKind, Fork, Level, Lineage, LogIndex, Member, NodeId, ProposalNumber, Seqno,
    Session, Term, Uuid, Weight,
};

/// The wall clock at the zero of all that lie or hear lies.
pub const UNIX_AT_ZERO: Duration = Duration::from_secs(1_800_000_000);

/// A number below the given one.
pub type Choose<'a> = &'a mut dyn FnMut(u64) -> u64;

/// The facts that a lie refers to.
pub struct Scene {
    pub history: Uuid,
    pub liar: Member,
    /// Others that it can name.
    pub others: Vec<NodeId>,
}

/// A place in a message, by its meaning.
pub enum Field<'a> {
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
    Evidence(&'a mut Evidence),
}

fn fields_of_header(h: &mut EntryHeader) -> Vec<Field<'_>> {
    vec![
        Field::Index(&mut h.index),
        Field::Term(&mut h.term),
        Field::Seqno(&mut h.seqno),
        Field::Index(&mut h.voters),
        Field::Number(&mut h.session.number),
        Field::Number(&mut h.number.0),
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
        Field::Evidence(&mut p.evidence),
        Field::Data(&mut p.data),
        Field::Holds(&mut p.holds),
        Field::Node(&mut p.sequencer),
    ]
}

pub fn fields(message: &mut Message) -> Vec<Field<'_>> {
    use Field as F;
    match message {
        Message::Submit { session, number, app, .. } => {
            vec![F::Number(&mut session.number), F::Number(&mut number.0), F::Flag(app)]
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
        Message::VotersHeard { branch, term, index } => vec![F::Branch(branch), F::Term(term), F::Index(index)],
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

/// Also a term to which elections can have led by this time, and a little behind that.
fn later_term(choose: Choose<'_>, now: u64) -> u64 {
    let limit = UNIX_AT_ZERO.as_secs() << 10;
    match choose(6) {
        0 => limit + choose(1 << 20),
        1 => limit + (1 << 20) + choose(1 << 20),
        _ => number(choose, now),
    }
}

pub fn change(choose: Choose<'_>, scene: &Scene, field: Field<'_>) {
    let fork = |n: u64| Fork { index: LogIndex(n), seqno: Seqno(n), id: Uuid([n as u8 | 1; 16]) };
    match field {
        Field::Term(term) => term.0 = later_term(choose, term.0),
        Field::Index(index) => index.0 = number(choose, index.0),
        Field::Seqno(seqno) => seqno.0 = number(choose, seqno.0),
        Field::Number(n) => *n = number(choose, *n),
        Field::Weight(weight) => weight.0 = [0, 1, 2, 255][choose(4) as usize],
        Field::Flag(flag) => *flag = !*flag,
        Field::Evidence(evidence) => {
            *evidence = [Evidence::Nothing, Evidence::Voters, Evidence::Everything][choose(3) as usize]
        }
        Field::Branch(branch) => *branch = [scene.history, Uuid::NIL, Uuid([7; 16])][choose(3) as usize],
        Field::Lineage(lineage) => {
            *lineage = match choose(3) {
                0 => Lineage::default(),
                _ => lineage.with(fork(1 + choose(100) + lineage.newest().map_or(0, |f| f.index.0))),
            };
        }
        Field::Node(of) => {
            let at = choose(scene.others.len() as u64 + 2) as usize;
            *of = match at {
                0 => None,
                1 => Some(scene.liar.node),
                _ => scene.others.get(at - 2).copied(),
            };
        }
        Field::Data(data) => {
            *data = [None, Some((scene.history, Seqno(0))), Some((scene.history, Seqno(1 << 40)))][choose(3) as usize]
        }
        Field::Holds(holds) => *holds = [None, Some(Seqno(0)), Some(Seqno(1 << 40))][choose(3) as usize],
        Field::Durability(durability) => {
            *durability = [Durability::Disk, Durability::Process][choose(2) as usize];
        }
        Field::Level(level) => level.0 = choose(1 << 16) as u16,
    }
}

/// The harm of a lie to those who hear it: one row each of the table in docs/protocol.md.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Harm {
    Order,
    Count,
    Doubt,
    Branch,
    Eviction,
    Weight,
}

impl Harm {
    pub const ALL: [Harm; 6] = [Harm::Order, Harm::Count, Harm::Doubt, Harm::Branch, Harm::Eviction, Harm::Weight];

    /// The row's first words in docs/protocol.md.
    pub fn row(self) -> &'static str {
        match self {
            Harm::Order => "It says that it orders",
            Harm::Count => "It says that it holds, hears or votes what it does not",
            Harm::Doubt => "It says that a log lacks something",
            Harm::Branch => "It asks for a branch",
            Harm::Eviction => "It says that somebody was evicted",
            Harm::Weight => "It is heavier than all others together",
        }
    }
}

/// The truth at the moment when a lie is heard.
pub struct Truth {
    /// The one who hears it.
    pub hearer: NodeId,
    pub hearer_term: Term,
    /// The entries that the liar has acknowledged, and to whom it has given its vote in which term.
    pub acked: (Term, LogIndex),
    pub voted: (Term, NodeId),
}

/// The row under which this lie falls, if it is a member's. Lies of strangers and newcomers fall under none.
pub fn harm(message: &Message, truth: &Truth) -> Option<Harm> {
    match message {
        Message::InTerm(Envelope { term, content, .. }) => harm_in_term(*term, content, truth),
        // Also in an older term: terms that were driven up go back by a state.
        Message::Snapshot { .. } => Some(Harm::Order),
        Message::Force => Some(Harm::Branch),
        Message::Evicted => Some(Harm::Eviction),
        Message::VotersHeard { .. } => Some(Harm::Doubt),
        Message::SetWeight { weight }
        | Message::Join(trireme_order::JoinRequest { member: Member { weight, .. }, .. }) => {
            (weight.0 > 1).then_some(Harm::Weight)
        }
        Message::Submit { .. }
        | Message::Leave { .. }
        | Message::Presence(_)
        | Message::SetDurability { .. }
        | Message::Signal { .. }
        | Message::LevelLimit { .. }
        | Message::Unknown { .. } => None,
    }
}

fn harm_in_term(term: Term, content: &Content, truth: &Truth) -> Option<Harm> {
    let here = term == truth.hearer_term;
    let (harmful, harm) = match content {
        // Of an older term nobody orders any more.
        Content::Append(_) | Content::Heartbeat(_) => (term >= truth.hearer_term, Harm::Order),
        Content::ReadReply { .. } => (here, Harm::Order),
        Content::Ack { index } => (here && !(term == truth.acked.0 && *index <= truth.acked.1), Harm::Count),
        Content::HeartbeatAck { .. } => (here, Harm::Count),
        Content::VoteReply { granted, .. } => (here && *granted && truth.voted != (term, truth.hearer), Harm::Count),
        Content::Recall { .. } => (true, Harm::Doubt),
        Content::Entrust | Content::BeginFromData { .. } => (true, Harm::Branch),
        Content::Reject { .. }
        | Content::NeedBodies { .. }
        | Content::PreVote { .. }
        | Content::PreVoteReply { .. }
        | Content::Vote { .. }
        | Content::TimeoutNow
        | Content::ReadRequest { .. } => (false, Harm::Order),
    };
    harmful.then_some(harm)
}

/// Messages that a quiet group does not send by itself.
pub fn invented(scene: &Scene) -> Vec<Message> {
    let (branch, term, index, seqno) = (scene.history, Term(2), LogIndex(5), Seqno(3));
    let me = scene.liar.node;
    let session = Session { node: me, number: 1 };
    let header = EntryHeader {
        index,
        term,
        seqno,
        voters: LogIndex(1),
        session,
        number: ProposalNumber(1),
        kind: EntryKind::App,
    };
    let base = Base { history: branch, index, term, seqno, ..Base::default() };
    let presence = Presence {
        history: branch,
        lineage: Lineage::default(),
        term,
        last_term: term,
        last_index: index,
        base: Seqno::ZERO,
        seqno,
        primary: true,
        evidence: Evidence::Everything,
        data: None,
        holds: Some(seqno),
        founding: None,
        sequencer: Some(me),
    };
    let join = trireme_order::JoinRequest {
        member: scene.liar.clone(),
        history: branch,
        lineage: Lineage::default(),
        usable: true,
        last_index: index,
        last_term: term,
        position: None,
        view: 1,
    };
    let entries = vec![(header, Some(Bytes::from_static(b"lie")))];
    vec![
        Message::Submit { session, number: ProposalNumber(1), app: false, body: Bytes::from_static(b"lie") },
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
        Message::VotersHeard { branch, term, index },
        Message::Unknown { kind: 255 },
    ]
}
