//! The application on top of the order, as far as it is a function of the order alone: certification and a running hash.
//!
//! It travels in `Base::app`, so that a node whose delivery begins at a snapshot must come to the same hash as one that saw
//! everything.

use bytes::Bytes;
use trireme_types::{DecodeError, LogIndex, Reader, Seqno, Session, Writer};

use crate::rng::{hash_bytes, mix};

/// What a client puts into the body of a write set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteSet {
    pub op: u64,
    pub last_seen: u64,
    pub keys: Vec<u16>,
    pub padding: u64,
}

impl WriteSet {
    pub fn encode(&self) -> Bytes {
        let mut w = Writer::new();
        w.u64(self.op);
        w.u64(self.last_seen);
        w.u32(self.keys.len() as u32);
        for k in &self.keys {
            w.u16(*k);
        }
        w.bytes(&vec![self.op as u8; self.padding as usize]);
        w.buf.into()
    }

    pub fn decode(body: &[u8]) -> Result<WriteSet, DecodeError> {
        let mut r = Reader::new(body);
        let op = r.u64()?;
        let last_seen = r.u64()?;
        let count = r.count(1 << 10)?;
        let keys = (0..count).map(|_| r.u16()).collect::<Result<_, _>>()?;
        let padding = r.bytes(1 << 24)?.len() as u64;
        r.finish()?;
        Ok(WriteSet { op, last_seen, keys, padding })
    }
}

/// Newest writer of a key: seqno and session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Row {
    seqno: u64,
    session: Session,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct App {
    /// Hash over everything delivered since the beginning of the history.
    pub chain: u64,
    rows: std::collections::BTreeMap<u16, Row>,
}

impl App {
    pub fn decode(bytes: &[u8]) -> Result<App, DecodeError> {
        if bytes.is_empty() {
            return Ok(App::default());
        }
        let mut r = Reader::new(bytes);
        let mut app = App { chain: r.u64()?, ..App::default() };
        let count = r.count(1 << 17)?;
        for _ in 0..count {
            let key = r.u16()?;
            let row = Row {
                seqno: r.u64()?,
                session: Session { node: trireme_types::NodeId(r.uuid()?), number: r.u64()? },
            };
            app.rows.insert(key, row);
        }
        r.finish()?;
        Ok(app)
    }

    pub fn encode(&self) -> Bytes {
        let mut w = Writer::new();
        w.u64(self.chain);
        w.u32(self.rows.len() as u32);
        for (key, row) in &self.rows {
            w.u16(*key);
            w.u64(row.seqno);
            w.uuid(row.session.node.0);
            w.u64(row.session.number);
        }
        w.buf.into()
    }

    /// First committer wins; write sets of one session never conflict (SAFETY 23).
    pub fn certify(&mut self, seqno: Seqno, session: Session, ws: &WriteSet) -> bool {
        let conflict = ws
            .keys
            .iter()
            .filter_map(|k| self.rows.get(k))
            .any(|row| row.seqno > ws.last_seen && row.session != session);
        if !conflict {
            for k in &ws.keys {
                self.rows.insert(*k, Row { seqno: seqno.0, session });
            }
        }
        !conflict
    }

    /// Adds a delivery to the running hash.
    pub fn link(&mut self, index: LogIndex, seqno: Seqno, content: u64) {
        self.chain = mix(self.chain ^ mix(index.0 ^ mix(seqno.0 ^ mix(content))));
    }

    pub fn hash_of(session: Session, number: u64, body: &[u8], verdict: bool) -> u64 {
        hash_bytes(mix(number ^ mix(session.number ^ u64::from(verdict))), body) ^ hash_bytes(1, &session.node.0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trireme_types::{NodeId, Uuid};

    #[test]
    fn the_first_committer_wins_except_within_one_session() {
        let session = |n| Session { node: NodeId(Uuid([n; 16])), number: 0 };
        let ws = |op, last_seen| WriteSet { op, last_seen, keys: vec![5], padding: 0 };
        let mut app = App::default();
        assert!(app.certify(Seqno(1), session(1), &ws(1, 0)));
        assert!(!app.certify(Seqno(2), session(2), &ws(2, 0)));
        assert!(app.certify(Seqno(3), session(1), &ws(3, 0)));
        assert!(app.certify(Seqno(4), session(2), &ws(4, 3)));
        assert_eq!(App::decode(&app.encode()).unwrap(), app);
    }
}
