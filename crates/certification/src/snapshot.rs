//! The whole index as a value: what a joiner must know of the history before its first write set.
//!
//! The bytes are canonical: equal histories with equal cuts give equal bytes, whatever was released from memory when.

use std::collections::BTreeMap;

use trireme_types::{DecodeError, NodeId, Reader, Session, Writer};

use crate::index::{Certifier, Stream};
use crate::key::KIND_BITS;
use crate::records::{Record, Records, SessionSlot, Use};

const VERSION: u8 = 1;
/// In the place of a session number: none (a TOI).
const NO_SESSION: u32 = u32::MAX;
/// A key holds at most two records per use; more are damage.
const RECORDS_MAX: usize = 64;

impl Certifier {
    /// Everything that later verdicts depend on.
    pub fn snapshot(&self) -> Vec<u8> {
        let live = |r: &Record| r.seqno > self.cut.0;
        let mut keys: Vec<(u64, &Records)> =
            self.keys.iter().map(|(k, r)| (*k, r)).filter(|(_, r)| r.newest() > self.cut.0).collect();
        keys.sort_unstable_by_key(|(key, _)| *key);

        // Slots are numbered by when a session came up; in the snapshot by the session itself.
        let mut sessions: BTreeMap<Session, u32> = BTreeMap::new();
        for record in keys.iter().flat_map(|(_, r)| r.iter()).filter(live) {
            if let Some(session) = self.session_of(record) {
                sessions.insert(session, 0);
            }
        }
        sessions.values_mut().zip(0..).for_each(|(number, at)| *number = at);

        let mut w = Writer::new();
        w.u8(VERSION);
        w.u64(self.cut.0);
        w.u64(self.last.0);
        w.u64(self.last_toi.0);
        w.u64(self.last_view.0);
        w.bool(self.max_length.is_some());
        w.u64(self.max_length.unwrap_or(0));
        w.u32(sessions.len() as u32);
        for session in sessions.keys() {
            w.uuid(session.node.0);
            w.u64(session.number);
        }
        w.u32(self.streams.len() as u32);
        for stream in self.streams.values() {
            w.uuid(stream.origin);
            w.u64(stream.trx);
            w.u64(stream.first.0);
            w.u64(stream.last.0);
        }
        w.u64(keys.len() as u64);
        for (key, records) in keys {
            w.u64(key);
            w.u8(records.iter().filter(live).count() as u8);
            for record in records.iter().filter(live) {
                w.u64(record.seqno);
                w.u8(record.used().code());
                w.u32(self.session_of(record).map_or(NO_SESSION, |s| sessions[&s]));
            }
        }
        w.buf
    }

    /// The index that [`Certifier::snapshot`] described.
    ///
    /// **Errors:** bytes that no snapshot has.
    pub fn restore(bytes: &[u8]) -> Result<Certifier, DecodeError> {
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return Err(DecodeError::Invalid("certification snapshot version"));
        }
        let mut index = Certifier {
            cut: r.seqno()?,
            last: r.seqno()?,
            last_toi: r.seqno()?,
            last_view: r.seqno()?,
            ..Certifier::default()
        };
        let limited = r.bool()?;
        let max_length = r.u64()?;
        index.max_length = limited.then_some(max_length);

        let mut sessions = Vec::new();
        for _ in 0..r.count(usize::MAX)? {
            sessions.push(Session { node: NodeId(r.uuid()?), number: r.u64()? });
        }
        for _ in 0..r.count(usize::MAX)? {
            let stream = Stream { origin: r.uuid()?, trx: r.u64()?, first: r.seqno()?, last: r.seqno()? };
            index.streams.insert((stream.origin, stream.trx), stream);
        }

        let mut by_age: Vec<(u64, u64)> = Vec::new();
        let mut previous = None;
        for _ in 0..r.u64()? {
            let key = r.u64()?;
            if key & KIND_BITS != 0 || previous.is_some_and(|p| p >= key) {
                return Err(DecodeError::Invalid("order of certification keys"));
            }
            previous = Some(key);
            let records = index.restore_records(&mut r, &sessions)?;
            by_age.push((records.newest(), key));
            index.keys.insert(key, records);
        }
        r.finish()?;

        // One mention per key is enough: a key goes when its newest record does.
        by_age.sort_unstable();
        for (seqno, key) in by_age {
            index.touched.push_back(key);
            match index.purge_queue.back_mut() {
                Some((newest, count)) if *newest == seqno => *count += 1,
                Some(_) | None => index.purge_queue.push_back((seqno, 1)),
            }
        }
        Ok(index)
    }

    fn restore_records(&mut self, r: &mut Reader<'_>, sessions: &[Session]) -> Result<Records, DecodeError> {
        let count = usize::from(r.u8()?);
        if count == 0 || count > RECORDS_MAX {
            return Err(DecodeError::Invalid("number of certification records"));
        }
        let mut newest_first = Vec::with_capacity(count);
        for _ in 0..count {
            let seqno = r.seqno()?.0;
            let used = Use::from_code(r.u8()?).ok_or(DecodeError::Invalid("use of a certification key"))?;
            let session = r.u32()?;
            let in_order = newest_first.last().is_none_or(|r: &Record| r.seqno >= seqno);
            if seqno <= self.cut.0 || seqno > self.last.0 || !in_order {
                return Err(DecodeError::Invalid("seqno of a certification record"));
            }
            let slot = if used.is_toi() {
                SessionSlot::NOBODY
            } else {
                let session =
                    *sessions.get(session as usize).ok_or(DecodeError::Invalid("session of a certification record"))?;
                self.sessions.use_until(session, seqno)
            };
            newest_first.push(Record::new(seqno, used, slot));
        }
        let mut oldest_first = newest_first.into_iter().rev();
        let mut records = Records::new(oldest_first.next().ok_or(DecodeError::Truncated)?);
        oldest_first.for_each(|record| records.add(record, 0));
        Ok(records)
    }

    fn session_of(&self, record: Record) -> Option<Session> {
        if record.used().is_toi() { None } else { self.sessions.get(record.session()) }
    }
}
