//! The application on top of the order, as far as it is a function of the order alone: the real certification index, the
//! ordered cut, and a running hash over every verdict.
//!
//! It travels in `Base::app`, so that a node whose delivery begins at a snapshot must come to the same hash as one that saw
//! everything.

use std::collections::BTreeMap;

use bytes::Bytes;
use trireme_certification::{Certifier, Head, KeyKind, Verdict, WriteSet as Body, WriteSetBuilder, flags};
use trireme_types::{DecodeError, LogIndex, NodeId, Reader, Seqno, Session, Uuid, View, Writer};

use crate::rng::{hash_bytes, mix};

/// What a client commits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteSet {
    pub op: u64,
    pub last_seen: u64,
    pub keys: Vec<(u16, KeyKind)>,
    pub padding: u64,
}

impl WriteSet {
    pub fn encode(&self, origin: Uuid) -> Bytes {
        let mut b = WriteSetBuilder::new();
        let mut w = Writer::new();
        w.u64(self.op);
        w.u32(self.keys.len() as u32);
        for (k, kind) in &self.keys {
            w.u16(*k);
            w.u8(*kind as u8);
            let row = k.to_le_bytes();
            b.add_key([&b"db"[..], &b"t"[..], &row[..]], *kind).expect("three parts");
        }
        w.bytes(&vec![self.op as u8; self.padding as usize]);
        b.add_data(&w.buf);
        let head = Head {
            flags: flags::TRX_START | flags::TRX_END,
            last_seen: Seqno(self.last_seen),
            origin,
            trx: self.op,
            conn: 1,
        };
        b.finish(&head).into_bytes()
    }

    pub fn decode(body: &Body) -> Result<WriteSet, DecodeError> {
        let data = body.data();
        let mut r = Reader::new(&data);
        let op = r.u64()?;
        let count = r.count(1 << 10)?;
        let keys = (0..count)
            .map(|_| Ok((r.u16()?, KeyKind::from_u8(r.u8()?).ok_or(DecodeError::Invalid("key kind"))?)))
            .collect::<Result<_, DecodeError>>()?;
        let padding = r.bytes(1 << 24)?.len() as u64;
        r.finish()?;
        Ok(WriteSet { op, last_seen: body.head().last_seen.0, keys, padding })
    }
}

#[derive(Default)]
pub struct App {
    /// Hash over everything delivered since the beginning of the history.
    pub chain: u64,
    certifier: Certifier,
    /// Below what last-seen seqno no write set of a member will come, as the member said.
    reports: BTreeMap<NodeId, u64>,
    /// Members of the newest view.
    members: Vec<NodeId>,
}

impl App {
    pub fn decode(bytes: &[u8]) -> Result<App, DecodeError> {
        if bytes.is_empty() {
            return Ok(App::default());
        }
        let mut r = Reader::new(bytes);
        let chain = r.u64()?;
        let certifier = Certifier::restore(r.bytes(usize::MAX)?)?;
        let count = r.count(1 << 10)?;
        let reports = (0..count).map(|_| Ok((NodeId(r.uuid()?), r.u64()?))).collect::<Result<_, DecodeError>>()?;
        let count = r.count(1 << 10)?;
        let members = (0..count).map(|_| Ok(NodeId(r.uuid()?))).collect::<Result<_, DecodeError>>()?;
        r.finish()?;
        Ok(App { chain, certifier, reports, members })
    }

    /// Equal states give equal bytes.
    pub fn encode(&self) -> Bytes {
        let mut w = Writer::new();
        w.u64(self.chain);
        w.bytes(&self.certifier.snapshot());
        w.u32(self.reports.len() as u32);
        for (node, seqno) in &self.reports {
            w.uuid(node.0);
            w.u64(*seqno);
        }
        w.u32(self.members.len() as u32);
        for node in &self.members {
            w.uuid(node.0);
        }
        w.buf.into()
    }

    pub fn certify(&mut self, seqno: Seqno, session: Session, body: &Body) -> Verdict {
        self.certifier.certify(seqno, body, session)
    }

    pub fn view(&mut self, seqno: Seqno, view: &View) {
        self.certifier.note_view(seqno);
        self.members = view.members.iter().map(|m| m.node).collect();
        let members = &self.members;
        self.reports.retain(|node, _| members.contains(node));
    }

    /// An ordered message: its origin promises to send no last-seen seqno below the one inside. The cut is the lowest of
    /// the members' promises, and a function of the order alone (SAFETY 24).
    pub fn report(&mut self, session: Session, body: &[u8]) {
        let Ok(seqno) = Reader::new(body).u64() else { return };
        if self.members.contains(&session.node) {
            self.reports.insert(session.node, seqno);
        }
        if self.members.iter().all(|n| self.reports.contains_key(n)) {
            if let Some(cut) = self.reports.values().min() {
                self.certifier.purge(Seqno(*cut));
            }
        }
    }

    /// What `report` must never do: drops by what this node alone knows.
    pub fn cut_at(&mut self, position: u64) {
        self.certifier.purge(Seqno(position));
    }

    /// Adds a delivery to the running hash.
    pub fn link(&mut self, index: LogIndex, seqno: Seqno, content: u64) {
        self.chain = mix(self.chain ^ mix(index.0 ^ mix(seqno.0 ^ mix(content ^ mix(self.certifier.cut().0)))));
    }

    pub fn hash_of(session: Session, number: u64, body: &[u8], verdict: Option<&Verdict>) -> u64 {
        let v = verdict.map_or(0, |v| mix(v.depends_on.0 * 2 + u64::from(v.ok())));
        hash_bytes(mix(number ^ mix(session.number ^ v)), body) ^ hash_bytes(1, &session.node.0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_committer_wins_except_within_one_session_and_a_copy_judges_alike() {
        let session = |n| Session { node: NodeId(Uuid([n; 16])), number: 0 };
        let body = |op, last_seen| {
            let ws = WriteSet { op, last_seen, keys: vec![(5, KeyKind::Exclusive)], padding: 3 };
            let body = Body::parse(ws.encode(Uuid([1; 16]))).unwrap();
            assert_eq!(WriteSet::decode(&body).unwrap(), ws);
            body
        };
        let mut app = App::default();
        assert!(app.certify(Seqno(1), session(1), &body(1, 0)).ok());
        assert!(!app.certify(Seqno(2), session(2), &body(2, 0)).ok());
        assert!(app.certify(Seqno(3), session(1), &body(3, 0)).ok());
        let mut copy = App::decode(&app.encode()).unwrap();
        for app in [&mut app, &mut copy] {
            assert!(!app.certify(Seqno(4), session(2), &body(4, 2)).ok());
            assert!(app.certify(Seqno(5), session(2), &body(5, 3)).ok());
        }
        assert_eq!(app.encode(), copy.encode());
    }
}
