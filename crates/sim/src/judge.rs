//! The write sets of clients, and the real certification index with a running hash over every verdict.
//!
//! It travels in `Base::app` behind the replicator's state, so that a node whose delivery begins at a snapshot must come to the same hash
//! as one that saw everything.

use std::collections::BTreeSet;

use bytes::Bytes;
use trireme_certification::{Certifier, Head, KeyKind, Verdict, WriteSet as Body, WriteSetBuilder, flags};
use trireme_types::{DecodeError, LogIndex, ProposalNumber, Reader, Seqno, Session, Uuid, View, Writer};

use crate::rng::{hash_bytes, mix};

/// The part that a write set is of a client's operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// All of it.
    Whole,
    /// All of it, in total-order isolation: a statement that nothing runs beside.
    Isolated,
    /// A part of a streaming transaction, behind so many fragments.
    Fragment(u32),
    /// The end of one: all of it is committed.
    Commit(u32),
    /// The end of one: nothing of it ever was.
    Rollback,
}

impl Part {
    fn flags(self) -> u32 {
        match self {
            Part::Whole => flags::TRX_START | flags::TRX_END,
            Part::Isolated => flags::ISOLATION | flags::TRX_START | flags::TRX_END,
            Part::Fragment(0) => flags::TRX_START,
            Part::Fragment(_) => 0,
            Part::Commit(_) => flags::TRX_END,
            Part::Rollback => flags::ROLLBACK | flags::PA_UNSAFE,
        }
    }

    /// Does its client wait for the outcome however long that takes? There is no other truthful answer for a statement in isolation.
    pub fn is_patient(self) -> bool {
        self == Part::Isolated
    }

    /// Does it end its operation? `effect`: it was certified.
    pub fn decides(self, effect: bool) -> bool {
        match self {
            Part::Whole | Part::Isolated | Part::Commit(_) => true,
            Part::Fragment(_) => !effect,
            Part::Rollback => false,
        }
    }

    fn encode(self, w: &mut Writer) {
        let (tag, number) = match self {
            Part::Whole => (0, 0),
            Part::Isolated => (1, 0),
            Part::Fragment(n) => (2, n),
            Part::Commit(n) => (3, n),
            Part::Rollback => (4, 0),
        };
        w.u8(tag);
        w.u32(number);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Part, DecodeError> {
        let (tag, number) = (r.u8()?, r.u32()?);
        Ok(match tag {
            0 => Part::Whole,
            1 => Part::Isolated,
            2 => Part::Fragment(number),
            3 => Part::Commit(number),
            4 => Part::Rollback,
            _ => return Err(DecodeError::Invalid("part")),
        })
    }
}

/// A write set of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteSet {
    pub op: u64,
    pub part: Part,
    pub last_seen: u64,
    pub keys: Vec<(u16, KeyKind)>,
    pub padding: u64,
}

impl WriteSet {
    pub fn encode(&self, origin: Uuid) -> Bytes {
        let mut b = WriteSetBuilder::new();
        let mut w = Writer::new();
        w.u64(self.op);
        self.part.encode(&mut w);
        w.u32(self.keys.len() as u32);
        for (k, kind) in &self.keys {
            w.u16(*k);
            w.u8(*kind as u8);
            let row = k.to_le_bytes();
            b.add_key([&b"db"[..], &b"t"[..], &row[..]], *kind).expect("three parts");
        }
        w.bytes(&self.filling());
        b.add_data(&w.buf);
        let head = Head {
            flags: self.part.flags(),
            last_seen: Seqno(self.last_seen),
            origin,
            trx: if self.part == Part::Isolated { u64::MAX } else { self.op },
            conn: 1,
        };
        b.finish(&head).into_bytes()
    }

    /// No two parts of it are equal, and none equals that of another operation.
    fn filling(&self) -> Vec<u8> {
        let words = (0..self.padding.div_ceil(8)).flat_map(|at| ((self.op << 32) + at).to_le_bytes());
        words.take(self.padding as usize).collect()
    }

    /// The body that it would be without isolation.
    pub fn shared(&self, origin: Uuid) -> Body {
        Body::parse(WriteSet { part: Part::Whole, ..self.clone() }.encode(origin)).expect("encoded here")
    }

    pub fn decode(body: &Body) -> Result<WriteSet, DecodeError> {
        let data = body.data();
        let mut r = Reader::new(&data);
        let op = r.u64()?;
        let part = Part::decode(&mut r)?;
        let count = r.count(1 << 10)?;
        let keys = (0..count)
            .map(|_| Ok((r.u16()?, KeyKind::from_u8(r.u8()?).ok_or(DecodeError::Invalid("key kind"))?)))
            .collect::<Result<_, DecodeError>>()?;
        let filling = r.bytes(1 << 24)?;
        r.finish()?;
        let ws = WriteSet { op, part, last_seen: body.head().last_seen.0, keys, padding: filling.len() as u64 };
        if filling == ws.filling() { Ok(ws) } else { Err(DecodeError::Invalid("filling")) }
    }
}

#[derive(Default)]
pub struct Judge {
    /// Hash over everything delivered since the beginning of the history.
    pub chain: u64,
    certifier: Certifier,
}

impl Judge {
    pub fn decode(bytes: &[u8]) -> Result<Judge, DecodeError> {
        if bytes.is_empty() {
            return Ok(Judge::default());
        }
        let mut r = Reader::new(bytes);
        let chain = r.u64()?;
        let certifier = Certifier::restore(r.bytes(usize::MAX)?)?;
        r.finish()?;
        Ok(Judge { chain, certifier })
    }

    /// Equal states give equal bytes.
    pub fn encode(&self, w: &mut Writer) {
        w.u64(self.chain);
        w.bytes(&self.certifier.snapshot());
    }

    /// The verdict, and whether the write set has an effect. A part that goes on with a streaming transaction that a view has ended has
    /// none.
    pub fn certify(&mut self, seqno: Seqno, session: Session, body: &Body, part: Part) -> (Verdict, bool) {
        let (origin, trx) = (body.head().origin, body.head().trx);
        let open = self.certifier.streams().any(|s| (s.origin, s.trx) == (origin, trx));
        let verdict = self.certifier.certify(seqno, body, session);
        let orphan = matches!(part, Part::Fragment(1..) | Part::Commit(_)) && !open;
        if orphan {
            self.certifier.end_stream(origin, trx);
        }
        let effect = verdict.ok() && !orphan;
        (verdict, effect)
    }

    /// Operations whose streaming transactions have not ended.
    pub fn streams(&self) -> BTreeSet<u64> {
        self.certifier.streams().map(|s| s.trx).collect()
    }

    /// The servers roll back the streaming transactions of origins that are not in the view.
    pub fn end_streams(&mut self, view: &View) {
        self.certifier.retain_streams(|origin| view.members.iter().any(|m| m.uuid() == origin));
    }

    pub fn view(&mut self, seqno: Seqno) {
        self.certifier.note_view(seqno);
    }

    /// Uses of keys that the index holds.
    pub fn retained(&self) -> usize {
        self.certifier.retained()
    }

    /// Forgets all at or below `cut`.
    pub fn purge(&mut self, cut: Seqno) {
        self.certifier.purge(cut);
    }

    /// Adds a delivery to the running hash.
    pub fn link(&mut self, index: LogIndex, seqno: Seqno, content: u64) {
        self.chain = mix(self.chain ^ mix(index.0 ^ mix(seqno.0 ^ mix(content ^ mix(self.certifier.cut().0)))));
    }

    pub fn hash_of(session: Session, number: ProposalNumber, body: &[u8], verdict: Option<&Verdict>) -> u64 {
        let v = verdict.map_or(0, |v| mix(v.depends_on.0 * 2 + u64::from(v.ok())));
        hash_bytes(mix(number.0 ^ mix(session.number ^ v)), body) ^ hash_bytes(1, &session.node.0.0)
    }
}

#[cfg(test)]
mod tests {
    use trireme_types::NodeId;

    use super::*;

    #[test]
    fn the_first_committer_wins_except_within_one_session_and_a_copy_judges_alike() {
        let session = |n| Session { node: NodeId(Uuid([n; 16])), number: 0 };
        let body = |op, last_seen| {
            let ws = WriteSet { op, part: Part::Whole, last_seen, keys: vec![(5, KeyKind::Exclusive)], padding: 3 };
            let body = Body::parse(ws.encode(Uuid([1; 16]))).unwrap();
            assert_eq!(WriteSet::decode(&body).unwrap(), ws);
            body
        };
        let ok = |app: &mut Judge, op, from, last_seen| {
            app.certify(Seqno(op), session(from), &body(op, last_seen), Part::Whole).1
        };
        let mut app = Judge::default();
        assert!(ok(&mut app, 1, 1, 0));
        assert!(!ok(&mut app, 2, 2, 0));
        assert!(ok(&mut app, 3, 1, 0));
        let encoded = |judge: &Judge| {
            let mut w = Writer::new();
            judge.encode(&mut w);
            w.buf
        };
        let mut copy = Judge::decode(&encoded(&app)).unwrap();
        for app in [&mut app, &mut copy] {
            assert!(!ok(app, 4, 2, 2));
            assert!(ok(app, 5, 2, 3));
        }
        assert_eq!(encoded(&app), encoded(&copy));
    }
}
