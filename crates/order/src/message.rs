//! Frames between members.
//!
//! Encoded as a kind byte and fields in little-endian order; bodies come last so that a decoder can slice them out of the
//! frame without copying. Decoding never panics and allocates no more than the frame's own length.

use bytes::Bytes;
use trireme_types::{
    Base, DecodeError, Durability, EntryHeader, Incarnation, Level, Lineage, LogIndex, Member, NodeId, ProposalNumber,
    Reader, Seqno, Session, Term, Uuid, Weight, Writer,
};

use crate::envelope::{Content, Envelope, LogEnd};

/// The queue of a link that a message takes. FIFO within a class only (rule 7).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Small and urgent: never waits behind bodies.
    Control,
    /// Appends, write sets, snapshots. Never dropped while the link is up.
    Bulk,
    /// Dissemination that somebody else can repeat: dropped when the link's queue is over its limit.
    Droppable,
}

/// Where a member stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Presence {
    /// History of its log; nil when it has none.
    pub history: Uuid,
    pub lineage: Lineage,
    pub term: Term,
    pub last_term: Term,
    pub last_index: LogIndex,
    /// Seqnos before its first and of its last entry.
    pub base: Seqno,
    pub seqno: Seqno,
    /// In a primary view, and hears a majority.
    pub primary: bool,
    pub evidence: Evidence,
    /// Where the server's data were found at the start, log or no log: evidence that everything up to there was committed (rule 18).
    pub data: Option<(Uuid, Seqno)>,
    /// How far the server's data reach at least, if its log goes on where they end: it can serve, and give copies.
    pub holds: Option<Seqno>,
    /// Waits, without any state, for others that have none either.
    pub founding: Option<Founding>,
    /// The one that it follows, or itself: those who know it believe that one.
    pub sequencer: Option<NodeId>,
}

/// The things of which a member's log is evidence: of these, nothing is missing there that it acknowledged (rules 12, 16).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Evidence {
    #[default]
    Nothing,
    /// Changes of the voters. Only a peer that knows [`Level::WAITS_FOR_ALL`] can read this; others are told `Nothing`.
    Voters,
    /// All entries.
    Everything,
}

impl Evidence {
    fn encode(self, w: &mut Writer) {
        w.u8(match self {
            Evidence::Nothing => 0,
            Evidence::Everything => 1,
            Evidence::Voters => 2,
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Evidence, DecodeError> {
        match r.u8()? {
            0 => Ok(Evidence::Nothing),
            1 => Ok(Evidence::Everything),
            2 => Ok(Evidence::Voters),
            _ => Err(DecodeError::Invalid("evidence")),
        }
    }
}

impl Presence {
    /// Is its log evidence of everything that was committed with it?
    pub fn is_whole(&self) -> bool {
        self.evidence == Evidence::Everything
    }

    pub fn end(&self) -> LogEnd {
        LogEnd { term: self.last_term, index: self.last_index }
    }
}

/// `pc.bootstrap_expect`, as one of those sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Founding {
    /// How many it waits for, itself included.
    pub expect: u8,
    /// Those it hears, itself included, sorted.
    pub seen: Vec<NodeId>,
}

/// The state that a joiner brings along.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinRequest {
    pub member: Member,
    /// Of the joiner's log.
    pub history: Uuid,
    pub lineage: Lineage,
    /// May the log be continued, or does it have to be replaced?
    pub usable: bool,
    pub last_index: LogIndex,
    pub last_term: Term,
    /// Position of the server's data.
    pub position: Option<(Uuid, Seqno)>,
    /// Number of the newest view it has delivered.
    pub view: u64,
}

/// More cannot be expected.
const FOUNDERS_MAX: usize = 255;

/// One entry on the wire: without its body when the receiver has that from the origin.
pub type WireEntry = (EntryHeader, Option<Bytes>);

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Origin to everybody: a body to be ordered. `app`: takes no seqno.
    Submit {
        session: Session,
        number: ProposalNumber,
        app: bool,
        body: Bytes,
    },
    /// Counts in one term of one branch.
    InTerm(Envelope),
    Join(JoinRequest),
    /// Sequencer to a joiner whose log is of no use.
    /// `lineage`: the sequencer's.
    Snapshot {
        term: Term,
        lineage: Lineage,
        base: Box<Base>,
    },
    /// Member to sequencer: leave in order.
    Leave {
        incarnation: Incarnation,
    },
    /// Where a member stands: the first word on every link, again when its branch changes, and while it has no majority.
    Presence(Presence),
    /// To the member with the best log: make the reachable ones primary.
    Force,
    /// To a member that was thrown out.
    Evicted,
    SetWeight {
        weight: Weight,
    },
    SetDurability {
        durability: Durability,
    },
    Signal {
        body: Bytes,
    },
    /// How far the sender lets the group level rise. Optional.
    LevelLimit {
        limit: Level,
    },
    /// To a peer that has just been linked, behind `Recall`: the newest change of the voters that the sender knows it to have acknowledged.
    /// `branch`, `term`: those of its entry. Optional.
    VotersHeard {
        branch: Uuid,
        term: Term,
        index: LogIndex,
    },
    /// An optional message of a later version. It is ignored.
    Unknown {
        kind: u8,
    },
}

/// Kinds from here on are optional: whoever does not know one ignores it. Below, an unknown kind is a mistake, and ends the link.
const OPTIONAL: u8 = 128;

impl Message {
    pub fn class(&self) -> Class {
        match self {
            Message::InTerm(envelope) => envelope.content.class(),
            Message::Submit { .. } | Message::Snapshot { .. } => Class::Bulk,
            Message::Join(_)
            | Message::Leave { .. }
            | Message::Presence(_)
            | Message::Force
            | Message::Evicted
            | Message::SetWeight { .. }
            | Message::SetDurability { .. }
            | Message::Signal { .. }
            | Message::LevelLimit { .. }
            | Message::VotersHeard { .. }
            | Message::Unknown { .. } => Class::Control,
        }
    }

    /// The term it speaks of; zero when of none.
    pub fn term(&self) -> Term {
        match self {
            Message::InTerm(envelope) => envelope.term,
            Message::Snapshot { term, .. }
            | Message::Presence(Presence { term, .. })
            | Message::VotersHeard { term, .. } => *term,
            Message::Submit { .. }
            | Message::Join(_)
            | Message::Leave { .. }
            | Message::Force
            | Message::Evicted
            | Message::SetWeight { .. }
            | Message::SetDurability { .. }
            | Message::Signal { .. }
            | Message::LevelLimit { .. }
            | Message::Unknown { .. } => Term::ZERO,
        }
    }

    /// The content that is said in a term, if it is of that kind.
    pub fn content(&self) -> Option<&Content> {
        match self {
            Message::InTerm(envelope) => Some(&envelope.content),
            Message::Submit { .. }
            | Message::Join(_)
            | Message::Snapshot { .. }
            | Message::Leave { .. }
            | Message::Presence(_)
            | Message::Force
            | Message::Evicted
            | Message::SetWeight { .. }
            | Message::SetDurability { .. }
            | Message::Signal { .. }
            | Message::LevelLimit { .. }
            | Message::VotersHeard { .. }
            | Message::Unknown { .. } => None,
        }
    }

    pub fn encode(&self, w: &mut Writer) {
        let mut chunks = Vec::new();
        self.encode_vectored(&mut chunks);
        for c in chunks {
            w.raw(&c);
        }
    }

    /// Appends the encoding as chunks: fields in buffers of their own, bodies shared, not copied.
    pub fn encode_vectored(&self, out: &mut Vec<Bytes>) {
        let mut w = Writer { buf: Vec::with_capacity(128) };
        match self {
            Message::Submit { session, number, app, body } => {
                w.u8(1);
                put_session(&mut w, session);
                w.u64(number.0);
                w.bool(*app);
                out.push(Bytes::from(w.buf));
                out.push(body.clone());
                return;
            }
            Message::InTerm(envelope) => return envelope.encode(w, out),
            Message::Join(j) => {
                w.u8(13);
                j.member.encode(&mut w);
                w.uuid(j.history);
                j.lineage.encode(&mut w);
                w.bool(j.usable);
                w.u64(j.last_index.0);
                w.u64(j.last_term.0);
                encode_position(&mut w, j.position);
                w.u64(j.view);
            }
            Message::Snapshot { term, lineage, base } => {
                w.u8(14);
                w.u64(term.0);
                lineage.encode(&mut w);
                base.encode(&mut w);
            }
            Message::Leave { incarnation } => {
                w.u8(15);
                w.u32(incarnation.0);
            }
            Message::Presence(p) => {
                w.u8(18);
                w.uuid(p.history);
                p.lineage.encode(&mut w);
                w.u64(p.term.0);
                w.u64(p.last_term.0);
                w.u64(p.last_index.0);
                w.u64(p.base.0);
                w.u64(p.seqno.0);
                w.bool(p.primary);
                p.evidence.encode(&mut w);
                encode_position(&mut w, p.data);
                w.bool(p.holds.is_some());
                w.u64(p.holds.unwrap_or_default().0);
                let founding = p.founding.as_ref();
                w.u8(founding.map_or(0, |f| f.expect));
                let seen = founding.map_or(&[][..], |f| &f.seen);
                w.u32(seen.len() as u32);
                for node in seen {
                    w.uuid(node.0);
                }
                w.bool(p.sequencer.is_some());
                w.uuid(p.sequencer.unwrap_or_default().0);
            }
            Message::Force => w.u8(19),
            Message::Evicted => w.u8(21),
            Message::SetWeight { weight } => {
                w.u8(22);
                w.u8(weight.0);
            }
            Message::SetDurability { durability } => {
                w.u8(23);
                w.bool(*durability == Durability::Process);
            }
            Message::LevelLimit { limit } => {
                w.u8(OPTIONAL);
                w.u16(limit.0);
            }
            Message::VotersHeard { branch, term, index } => {
                w.u8(OPTIONAL + 1);
                w.uuid(*branch);
                w.u64(term.0);
                w.u64(index.0);
            }
            Message::Unknown { kind } => w.u8((*kind).max(OPTIONAL)),
            Message::Signal { body } => {
                w.u8(24);
                out.push(Bytes::from(w.buf));
                out.push(body.clone());
                return;
            }
        }
        out.push(Bytes::from(w.buf));
    }

    /// Bodies are slices of `bytes`.
    pub fn decode(bytes: &Bytes) -> Result<Message, DecodeError> {
        let mut r = Reader::new(bytes);
        let rest = |r: &Reader<'_>| bytes.slice(bytes.len() - r.remaining()..);
        let kind = r.u8()?;
        if let Some(envelope) = Envelope::decode(kind, bytes, &mut r)? {
            r.finish()?;
            return Ok(Message::InTerm(envelope));
        }
        let message = match kind {
            1 => {
                let session = take_session(&mut r)?;
                let number = r.proposal_number()?;
                let app = r.bool()?;
                return Ok(Message::Submit { session, number, app, body: rest(&r) });
            }
            13 => {
                let member = Member::decode(&mut r)?;
                let history = r.uuid()?;
                let lineage = Lineage::decode(&mut r)?;
                let usable = r.bool()?;
                let last_index = r.index()?;
                let last_term = r.term()?;
                let position = decode_position(&mut r)?;
                let view = r.number("view number")?;
                Message::Join(JoinRequest { member, history, lineage, usable, last_index, last_term, position, view })
            }
            14 => Message::Snapshot {
                term: r.term()?,
                lineage: Lineage::decode(&mut r)?,
                base: Box::new(Base::decode(&mut r)?),
            },
            15 => Message::Leave { incarnation: Incarnation(r.u32()?) },
            18 => Message::Presence(Presence {
                history: r.uuid()?,
                lineage: Lineage::decode(&mut r)?,
                term: r.term()?,
                last_term: r.term()?,
                last_index: r.index()?,
                base: r.seqno()?,
                seqno: r.seqno()?,
                primary: r.bool()?,
                evidence: Evidence::decode(&mut r)?,
                data: decode_position(&mut r)?,
                holds: {
                    let known = r.bool()?;
                    let seqno = r.seqno()?;
                    known.then_some(seqno)
                },
                founding: {
                    let expect = r.u8()?;
                    let count = r.count(FOUNDERS_MAX)?;
                    let seen = (0..count).map(|_| Ok(NodeId(r.uuid()?))).collect::<Result<_, DecodeError>>()?;
                    (expect > 0).then_some(Founding { expect, seen })
                },
                sequencer: {
                    let known = r.bool()?;
                    let node = NodeId(r.uuid()?);
                    known.then_some(node)
                },
            }),
            19 => Message::Force,
            21 => Message::Evicted,
            22 => Message::SetWeight { weight: Weight(r.u8()?) },
            23 => Message::SetDurability { durability: if r.bool()? { Durability::Process } else { Durability::Disk } },
            24 => return Ok(Message::Signal { body: rest(&r) }),
            OPTIONAL => Message::LevelLimit { limit: Level(r.u16()?) },
            129 => Message::VotersHeard { branch: r.uuid()?, term: r.term()?, index: r.index()? },
            // Its content is for later versions.
            kind @ 130.. => return Ok(Message::Unknown { kind }),
            0 | 2..=12 | 16 | 17 | 20 | 25..=127 => return Err(DecodeError::Invalid("message kind")),
        };
        r.finish()?;
        Ok(message)
    }
}

fn put_session(w: &mut Writer, session: &Session) {
    w.uuid(session.node.0);
    w.u64(session.number);
}

fn take_session(r: &mut Reader<'_>) -> Result<Session, DecodeError> {
    Ok(Session { node: NodeId(r.uuid()?), number: r.u64()? })
}

/// A history and where a node's data stand in it, or that they stand nowhere: the same bytes either way.
fn encode_position(w: &mut Writer, position: Option<(Uuid, Seqno)>) {
    w.bool(position.is_some());
    let (history, seqno) = position.unwrap_or_default();
    w.uuid(history);
    w.u64(seqno.0);
}

fn decode_position(r: &mut Reader<'_>) -> Result<Option<(Uuid, Seqno)>, DecodeError> {
    let known = r.bool()?;
    let position = (r.uuid()?, r.seqno()?);
    Ok(known.then_some(position))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{Append, Heartbeat};
    use proptest::prelude::*;
    use trireme_types::EntryKind;

    fn round_trip(message: Message) {
        let mut w = Writer::new();
        message.encode(&mut w);
        assert_eq!(Message::decode(&Bytes::from(w.buf)).unwrap(), message);
    }

    #[test]
    fn messages_round_trip() {
        let session = Session { node: NodeId(Uuid([7; 16])), number: 9 };
        let header = EntryHeader {
            index: LogIndex(3),
            term: Term(2),
            seqno: Seqno(1),
            voters: LogIndex(1),
            session,
            number: ProposalNumber(4),
            kind: EntryKind::WriteSet,
        };
        round_trip(Message::Submit {
            session,
            number: ProposalNumber(4),
            app: true,
            body: Bytes::from_static(b"body"),
        });
        round_trip(
            Content::Append(Append {
                prev_index: LogIndex(2),
                prev_term: Term(1),
                commit: LogIndex(1),
                entries: vec![(header, None), (header, Some(Bytes::new())), (header, Some(Bytes::from_static(b"x")))],
            })
            .in_term(Uuid([1; 16]), Term(2)),
        );
        round_trip(Message::Snapshot { term: Term(1), lineage: Lineage::default(), base: Box::default() });
        round_trip(Message::Join(JoinRequest {
            member: Member { name: "n1".into(), ..Member::default() },
            history: Uuid::NIL,
            lineage: Lineage::default(),
            usable: true,
            last_index: LogIndex(0),
            last_term: Term(0),
            position: Some((Uuid([2; 16]), Seqno(5))),
            view: 3,
        }));
        round_trip(Message::Presence(Presence {
            history: Uuid([1; 16]),
            lineage: Lineage::default(),
            term: Term(2),
            last_term: Term(1),
            last_index: LogIndex(9),
            base: Seqno(3),
            seqno: Seqno(8),
            primary: true,
            evidence: Evidence::Voters,
            data: Some((Uuid([1; 16]), Seqno(4))),
            holds: Some(Seqno(4)),
            founding: Some(Founding { expect: 2, seen: vec![NodeId(Uuid([1; 16])), NodeId(Uuid([2; 16]))] }),
            sequencer: Some(NodeId(Uuid([1; 16]))),
        }));
        round_trip(Message::Signal { body: Bytes::from_static(b"s") });
        round_trip(
            Content::Heartbeat(Heartbeat { commit: LogIndex(2), last: LogIndex(4), round: 3, majority: true })
                .in_term(Uuid::NIL, Term(1)),
        );
        round_trip(Content::Recall { index: LogIndex(2) }.in_term(Uuid([1; 16]), Term(1)));
        round_trip(Message::VotersHeard { branch: Uuid([1; 16]), term: Term(1), index: LogIndex(2) });
        round_trip(Content::Entrust.in_term(Uuid([1; 16]), Term(1)));
        round_trip(Content::BeginFromData { index: LogIndex(2), seqno: Seqno(3) }.in_term(Uuid([1; 16]), Term(1)));
        round_trip(Content::VoteReply { granted: true, whole: false }.in_term(Uuid([1; 16]), Term(1)));
    }

    /// Builds of level 1 read and write these bytes: kind, branch, term, and what is said.
    #[test]
    fn what_is_said_in_a_term_has_the_bytes_of_level_1() {
        let (branch, term) = (Uuid([0x11; 16]), Term(2));
        let all = [
            (
                Content::Append(Append {
                    prev_index: LogIndex(3),
                    prev_term: Term(1),
                    commit: LogIndex(4),
                    entries: Vec::new(),
                })
                .in_term(branch, term),
                0x02,
                "03000000000000000100000000000000040000000000000000000000",
            ),
            (
                Content::Reject { prev_index: LogIndex(3), last: LogIndex(4) }.in_term(branch, term),
                0x03,
                "03000000000000000400000000000000",
            ),
            (Content::NeedBodies { from: LogIndex(3) }.in_term(branch, term), 0x04, "0300000000000000"),
            (Content::Ack { index: LogIndex(3) }.in_term(branch, term), 0x05, "0300000000000000"),
            (
                Content::Heartbeat(Heartbeat { commit: LogIndex(3), last: LogIndex(4), round: 5, majority: true })
                    .in_term(branch, term),
                0x06,
                "03000000000000000400000000000000050000000000000001",
            ),
            (Content::HeartbeatAck { round: 5 }.in_term(branch, term), 0x07, "0500000000000000"),
            (
                Content::PreVote { last: LogEnd { term: Term(1), index: LogIndex(3) } }.in_term(branch, term),
                0x08,
                "01000000000000000300000000000000",
            ),
            (Content::PreVoteReply { granted: true, whole: false }.in_term(branch, term), 0x09, "0100"),
            (
                Content::Vote { last: LogEnd { term: Term(1), index: LogIndex(3) }, transfer: true }
                    .in_term(branch, term),
                0x0a,
                "0100000000000000030000000000000001",
            ),
            (Content::VoteReply { granted: false, whole: true }.in_term(branch, term), 0x0b, "0001"),
            (Content::TimeoutNow.in_term(branch, term), 0x0c, ""),
            (Content::ReadRequest { batch: 6 }.in_term(branch, term), 0x10, "0600000000000000"),
            (
                Content::ReadReply { batch: 6, seqno: Seqno(7) }.in_term(branch, term),
                0x11,
                "06000000000000000700000000000000",
            ),
            (Content::Recall { index: LogIndex(3) }.in_term(branch, term), 0x19, "0300000000000000"),
            (
                Content::BeginFromData { index: LogIndex(3), seqno: Seqno(7) }.in_term(branch, term),
                0x1a,
                "03000000000000000700000000000000",
            ),
            (Content::Entrust.in_term(branch, term), 0x1b, ""),
        ];
        for (message, kind, said) in all {
            let mut w = Writer::new();
            message.encode(&mut w);
            let text: String = w.buf.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(text, format!("{kind:02x}{}0200000000000000{said}", "11".repeat(16)), "{message:?}");
            assert_eq!(Message::decode(&Bytes::from(w.buf)), Ok(message));
        }
    }

    proptest! {
        #[test]
        fn decoding_anything_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Message::decode(&Bytes::from(bytes));
        }

        #[test]
        fn decoding_a_damaged_append_never_panics(kind in 1u8..27, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut all = vec![kind];
            all.extend(bytes);
            let _ = Message::decode(&Bytes::from(all));
        }
    }
}
