//! Frames between members.
//!
//! Encoded as a kind byte and fields in little-endian order; bodies come last so that a decoder can slice them out of the
//! frame without copying. Decoding never panics and allocates no more than the frame's own length.

use bytes::Bytes;
use trireme_types::{
    Base, DecodeError, Durability, EntryHeader, LogIndex, Member, NodeId, Reader, Seqno, Session, Term, Uuid, Weight,
    Writer,
};

/// Which queue of a link a message takes. FIFO within a class only (SAFETY 7).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Small and urgent: never waits behind bodies.
    Control,
    /// Appends, write sets, snapshots. Never dropped while the link is up.
    Bulk,
    /// Dissemination that somebody else can repeat: dropped when the link's queue is over its limit.
    Droppable,
}

/// What a joiner brings along.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinRequest {
    pub member: Member,
    /// History of the joiner's log; nil when it has none that is of use.
    pub history: Uuid,
    pub last_index: LogIndex,
    pub last_term: Term,
    /// Position of the server's data.
    pub position: Option<(Uuid, Seqno)>,
    /// Number of the newest view it has delivered.
    pub view: u64,
}

/// One entry on the wire: without its body when the receiver has that from the origin.
pub type WireEntry = (EntryHeader, Option<Bytes>);

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Origin to everybody: a body to be ordered. `app`: takes no seqno.
    Submit {
        session: Session,
        number: u64,
        app: bool,
        body: Bytes,
    },
    /// Sequencer to a peer: entries after `prev`.
    Append {
        history: Uuid,
        term: Term,
        prev_index: LogIndex,
        prev_term: Term,
        commit: LogIndex,
        entries: Vec<WireEntry>,
    },
    /// The peer's log does not hold `prev`; `last` is a position from which to look further back.
    Reject {
        term: Term,
        prev_index: LogIndex,
        last: LogIndex,
    },
    /// The peer lacks bodies from `from` on.
    NeedBodies {
        term: Term,
        from: LogIndex,
    },
    /// Member to everybody: I hold the log of `term`'s sequencer up to here (durably, in mode `disk`).
    Ack {
        term: Term,
        index: LogIndex,
    },
    Heartbeat {
        history: Uuid,
        term: Term,
        commit: LogIndex,
        round: u64,
        majority: bool,
    },
    HeartbeatAck {
        term: Term,
        round: u64,
    },
    PreVote {
        history: Uuid,
        term: Term,
        last_term: Term,
        last_index: LogIndex,
    },
    PreVoteReply {
        term: Term,
        granted: bool,
    },
    /// `transfer`: the sequencer itself asked for this election.
    Vote {
        history: Uuid,
        term: Term,
        last_term: Term,
        last_index: LogIndex,
        transfer: bool,
    },
    VoteReply {
        term: Term,
        granted: bool,
    },
    /// Sequencer to its successor: stand now.
    TimeoutNow {
        term: Term,
    },
    Join(JoinRequest),
    /// Sequencer to a joiner whose log is of no use.
    Snapshot {
        term: Term,
        base: Box<Base>,
    },
    /// Member to sequencer: leave in order.
    Leave {
        incarnation: u32,
    },
    ReadRequest {
        term: Term,
        batch: u64,
    },
    ReadReply {
        term: Term,
        batch: u64,
        seqno: Seqno,
    },
    /// Non-primary members tell each other where they stand.
    Presence {
        history: Uuid,
        term: Term,
        last_term: Term,
        last_index: LogIndex,
        primary: bool,
    },
    /// To the member with the best log: make the reachable ones primary.
    Force,
    Evict {
        node: NodeId,
    },
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
}

impl Message {
    pub fn class(&self) -> Class {
        match self {
            Message::Submit { .. } | Message::Append { .. } | Message::Snapshot { .. } => Class::Bulk,
            _ => Class::Control,
        }
    }

    /// The term it speaks of; zero when of none.
    pub fn term(&self) -> Term {
        match self {
            Message::Append { term, .. }
            | Message::Reject { term, .. }
            | Message::NeedBodies { term, .. }
            | Message::Ack { term, .. }
            | Message::Heartbeat { term, .. }
            | Message::HeartbeatAck { term, .. }
            | Message::PreVote { term, .. }
            | Message::PreVoteReply { term, .. }
            | Message::Vote { term, .. }
            | Message::VoteReply { term, .. }
            | Message::TimeoutNow { term }
            | Message::Snapshot { term, .. }
            | Message::ReadRequest { term, .. }
            | Message::ReadReply { term, .. }
            | Message::Presence { term, .. } => *term,
            Message::Submit { .. }
            | Message::Join(_)
            | Message::Leave { .. }
            | Message::Force
            | Message::Evict { .. }
            | Message::Evicted
            | Message::SetWeight { .. }
            | Message::SetDurability { .. }
            | Message::Signal { .. } => Term::ZERO,
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
                w.u64(*number);
                w.bool(*app);
                out.push(Bytes::from(w.buf));
                out.push(body.clone());
                return;
            }
            Message::Append { history, term, prev_index, prev_term, commit, entries } => {
                w.u8(2);
                w.uuid(*history);
                w.u64(term.0);
                w.u64(prev_index.0);
                w.u64(prev_term.0);
                w.u64(commit.0);
                w.u32(entries.len() as u32);
                for (header, body) in entries {
                    header.encode(&mut w);
                    // Length plus one; zero: no body.
                    w.u64(body.as_ref().map_or(0, |b| b.len() as u64 + 1));
                }
                out.push(Bytes::from(w.buf));
                out.extend(entries.iter().filter_map(|(_, body)| body.clone()));
                return;
            }
            Message::Reject { term, prev_index, last } => {
                w.u8(3);
                w.u64(term.0);
                w.u64(prev_index.0);
                w.u64(last.0);
            }
            Message::NeedBodies { term, from } => {
                w.u8(4);
                w.u64(term.0);
                w.u64(from.0);
            }
            Message::Ack { term, index } => {
                w.u8(5);
                w.u64(term.0);
                w.u64(index.0);
            }
            Message::Heartbeat { history, term, commit, round, majority } => {
                w.u8(6);
                w.uuid(*history);
                w.u64(term.0);
                w.u64(commit.0);
                w.u64(*round);
                w.bool(*majority);
            }
            Message::HeartbeatAck { term, round } => {
                w.u8(7);
                w.u64(term.0);
                w.u64(*round);
            }
            Message::PreVote { history, term, last_term, last_index } => {
                w.u8(8);
                w.uuid(*history);
                w.u64(term.0);
                w.u64(last_term.0);
                w.u64(last_index.0);
            }
            Message::PreVoteReply { term, granted } => {
                w.u8(9);
                w.u64(term.0);
                w.bool(*granted);
            }
            Message::Vote { history, term, last_term, last_index, transfer } => {
                w.u8(10);
                w.uuid(*history);
                w.u64(term.0);
                w.u64(last_term.0);
                w.u64(last_index.0);
                w.bool(*transfer);
            }
            Message::VoteReply { term, granted } => {
                w.u8(11);
                w.u64(term.0);
                w.bool(*granted);
            }
            Message::TimeoutNow { term } => {
                w.u8(12);
                w.u64(term.0);
            }
            Message::Join(j) => {
                w.u8(13);
                j.member.encode(&mut w);
                w.uuid(j.history);
                w.u64(j.last_index.0);
                w.u64(j.last_term.0);
                w.bool(j.position.is_some());
                let (history, seqno) = j.position.unwrap_or_default();
                w.uuid(history);
                w.u64(seqno.0);
                w.u64(j.view);
            }
            Message::Snapshot { term, base } => {
                w.u8(14);
                w.u64(term.0);
                base.encode(&mut w);
            }
            Message::Leave { incarnation } => {
                w.u8(15);
                w.u32(*incarnation);
            }
            Message::ReadRequest { term, batch } => {
                w.u8(16);
                w.u64(term.0);
                w.u64(*batch);
            }
            Message::ReadReply { term, batch, seqno } => {
                w.u8(17);
                w.u64(term.0);
                w.u64(*batch);
                w.u64(seqno.0);
            }
            Message::Presence { history, term, last_term, last_index, primary } => {
                w.u8(18);
                w.uuid(*history);
                w.u64(term.0);
                w.u64(last_term.0);
                w.u64(last_index.0);
                w.bool(*primary);
            }
            Message::Force => w.u8(19),
            Message::Evict { node } => {
                w.u8(20);
                w.uuid(node.0);
            }
            Message::Evicted => w.u8(21),
            Message::SetWeight { weight } => {
                w.u8(22);
                w.u8(weight.0);
            }
            Message::SetDurability { durability } => {
                w.u8(23);
                w.bool(*durability == Durability::Process);
            }
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
        let message = match r.u8()? {
            1 => {
                let session = take_session(&mut r)?;
                let number = r.u64()?;
                let app = r.bool()?;
                return Ok(Message::Submit { session, number, app, body: rest(&r) });
            }
            2 => {
                let history = r.uuid()?;
                let term = Term(r.u64()?);
                let prev_index = LogIndex(r.u64()?);
                let prev_term = Term(r.u64()?);
                let commit = LogIndex(r.u64()?);
                let count = r.count(1 << 24)?;
                let mut heads = Vec::with_capacity(count.min(r.remaining() / EntryHeader::ENCODED + 1));
                for _ in 0..count {
                    heads.push((EntryHeader::decode(&mut r)?, r.u64()?));
                }
                let mut entries = Vec::with_capacity(heads.len());
                for (header, length) in heads {
                    let body = match length.checked_sub(1) {
                        None => None,
                        Some(n) => {
                            let at = bytes.len() - r.remaining();
                            let n = usize::try_from(n).map_err(|_| DecodeError::Truncated)?;
                            r.take(n)?;
                            Some(bytes.slice(at..at + n))
                        }
                    };
                    entries.push((header, body));
                }
                Message::Append { history, term, prev_index, prev_term, commit, entries }
            }
            3 => Message::Reject { term: Term(r.u64()?), prev_index: LogIndex(r.u64()?), last: LogIndex(r.u64()?) },
            4 => Message::NeedBodies { term: Term(r.u64()?), from: LogIndex(r.u64()?) },
            5 => Message::Ack { term: Term(r.u64()?), index: LogIndex(r.u64()?) },
            6 => Message::Heartbeat {
                history: r.uuid()?,
                term: Term(r.u64()?),
                commit: LogIndex(r.u64()?),
                round: r.u64()?,
                majority: r.bool()?,
            },
            7 => Message::HeartbeatAck { term: Term(r.u64()?), round: r.u64()? },
            8 => Message::PreVote {
                history: r.uuid()?,
                term: Term(r.u64()?),
                last_term: Term(r.u64()?),
                last_index: LogIndex(r.u64()?),
            },
            9 => Message::PreVoteReply { term: Term(r.u64()?), granted: r.bool()? },
            10 => Message::Vote {
                history: r.uuid()?,
                term: Term(r.u64()?),
                last_term: Term(r.u64()?),
                last_index: LogIndex(r.u64()?),
                transfer: r.bool()?,
            },
            11 => Message::VoteReply { term: Term(r.u64()?), granted: r.bool()? },
            12 => Message::TimeoutNow { term: Term(r.u64()?) },
            13 => {
                let member = Member::decode(&mut r)?;
                let history = r.uuid()?;
                let last_index = LogIndex(r.u64()?);
                let last_term = Term(r.u64()?);
                let known = r.bool()?;
                let position = (r.uuid()?, Seqno(r.u64()?));
                let view = r.u64()?;
                Message::Join(JoinRequest {
                    member,
                    history,
                    last_index,
                    last_term,
                    position: known.then_some(position),
                    view,
                })
            }
            14 => Message::Snapshot { term: Term(r.u64()?), base: Box::new(Base::decode(&mut r)?) },
            15 => Message::Leave { incarnation: r.u32()? },
            16 => Message::ReadRequest { term: Term(r.u64()?), batch: r.u64()? },
            17 => Message::ReadReply { term: Term(r.u64()?), batch: r.u64()?, seqno: Seqno(r.u64()?) },
            18 => Message::Presence {
                history: r.uuid()?,
                term: Term(r.u64()?),
                last_term: Term(r.u64()?),
                last_index: LogIndex(r.u64()?),
                primary: r.bool()?,
            },
            19 => Message::Force,
            20 => Message::Evict { node: NodeId(r.uuid()?) },
            21 => Message::Evicted,
            22 => Message::SetWeight { weight: Weight(r.u8()?) },
            23 => Message::SetDurability { durability: if r.bool()? { Durability::Process } else { Durability::Disk } },
            24 => return Ok(Message::Signal { body: rest(&r) }),
            _ => return Err(DecodeError::Invalid("message kind")),
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

#[cfg(test)]
mod tests {
    use super::*;
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
            number: 4,
            kind: EntryKind::WriteSet,
        };
        round_trip(Message::Submit { session, number: 4, app: true, body: Bytes::from_static(b"body") });
        round_trip(Message::Append {
            history: Uuid([1; 16]),
            term: Term(2),
            prev_index: LogIndex(2),
            prev_term: Term(1),
            commit: LogIndex(1),
            entries: vec![(header, None), (header, Some(Bytes::new())), (header, Some(Bytes::from_static(b"x")))],
        });
        round_trip(Message::Snapshot { term: Term(1), base: Box::default() });
        round_trip(Message::Join(JoinRequest {
            member: Member { name: "n1".into(), ..Member::default() },
            history: Uuid::NIL,
            last_index: LogIndex(0),
            last_term: Term(0),
            position: Some((Uuid([2; 16]), Seqno(5))),
            view: 3,
        }));
        round_trip(Message::Signal { body: Bytes::from_static(b"s") });
        round_trip(Message::Heartbeat {
            history: Uuid::NIL,
            term: Term(1),
            commit: LogIndex(2),
            round: 3,
            majority: true,
        });
    }

    proptest! {
        #[test]
        fn decoding_anything_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Message::decode(&Bytes::from(bytes));
        }

        #[test]
        fn decoding_a_damaged_append_never_panics(kind in 1u8..26, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut all = vec![kind];
            all.extend(bytes);
            let _ = Message::decode(&Bytes::from(all));
        }
    }
}
