//! One history: the first node to deliver at an index sets the entry. Every other node and every later life of the same node must deliver
//! the same there (rules 3, 4, 5, 12).

use std::collections::{BTreeMap, BTreeSet};

use super::Streams;
use crate::judge::Part;
use trireme_types::{LogIndex, NodeId, ProposalNumber, Seqno, Session, Uuid, View};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    WriteSet { session: Session, number: ProposalNumber, op: u64, part: Part, origin: Uuid, verdict: bool },
    App { session: Session, number: ProposalNumber },
    View(View),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivered {
    pub index: LogIndex,
    pub seqno: Seqno,
    pub what: What,
    /// Running hash after this delivery: stands for everything before it and for the body.
    pub chain: u64,
}

#[derive(Default)]
struct History {
    /// By log index.
    entries: BTreeMap<u64, Delivered>,
    last: Option<(LogIndex, Seqno)>,
    /// Newest session of each origin and its last number.
    sessions: BTreeMap<NodeId, (u64, ProposalNumber)>,
    view: Option<View>,
    /// Seqno and verdict of every operation.
    ops: BTreeMap<u64, (u64, bool)>,
    seqno_zero: u64,
    streams: Streams,
}

#[derive(Default)]
pub struct Histories {
    all: BTreeMap<Uuid, History>,
}

impl Histories {
    /// Delivery on some node begins in the state after `index`, with running hash `chain`.
    pub fn reset(&mut self, history: Uuid, index: LogIndex, seqno: Seqno, chain: u64) -> Result<(), String> {
        let h = self.all.entry(history).or_default();
        let Some((last_index, last_seqno)) = h.last else {
            // The first node of a history: it begins here.
            h.seqno_zero = seqno.0;
            h.last = Some((index, seqno));
            return Ok(());
        };
        match h.entries.range(..=index.0).next_back() {
            Some((_, before)) => {
                if before.seqno != seqno {
                    return Err(format!(
                        "base at index {index} claims seqno {seqno}, history has {} there",
                        before.seqno
                    ));
                }
                if before.chain != chain {
                    return Err(format!("base at index {index} (seqno {seqno}) carries another application state"));
                }
            }
            None if seqno.0 != h.seqno_zero => {
                return Err(format!("base at index {index} claims seqno {seqno}, history begins at {}", h.seqno_zero));
            }
            None => {}
        }
        if seqno > last_seqno {
            return Err(format!(
                "base at index {index} seqno {seqno} is beyond all that was delivered ({last_index}, {last_seqno})"
            ));
        }
        Ok(())
    }

    /// Returns whether this is the first delivery of the entry anywhere.
    pub fn deliver(&mut self, history: Uuid, d: &Delivered) -> Result<bool, String> {
        let h = self.all.entry(history).or_default();
        if let Some(known) = h.entries.get(&d.index.0) {
            if known == d {
                return Ok(false);
            }
            return Err(format!("two histories at index {}: first {known:?}, now {d:?}", d.index));
        }
        let (last_index, last_seqno) = h.last.ok_or("delivery before any base")?;
        if d.index <= last_index {
            return Err(format!(
                "delivery at index {} which the history skipped (it is at {last_index}): {d:?}",
                d.index
            ));
        }
        let due = if matches!(d.what, What::App { .. }) { last_seqno } else { last_seqno.next() };
        if d.seqno != due {
            return Err(format!("seqno {} delivered at index {}, due was {due}: {d:?}", d.seqno, d.index));
        }
        match &d.what {
            What::WriteSet { session, number, op, part, origin, verdict } => {
                h.session(*session, *number)?;
                h.streams.part(*origin, *op, *part, *verdict)?;
                let before = if part.decides(*verdict) { h.ops.insert(*op, (d.seqno.0, *verdict)) } else { None };
                if let Some((at, _)) = before {
                    return Err(format!("operation {op} delivered twice, at seqnos {at} and {}", d.seqno));
                }
            }
            What::App { session, number } => h.session(*session, *number)?,
            What::View(view) => {
                h.view(view)?;
                h.streams.view(view);
            }
        }
        h.last = Some((d.index, d.seqno));
        h.entries.insert(d.index.0, d.clone());
        Ok(true)
    }

    /// `open`: the streams that a member takes to be open after the newest entry.
    pub fn compare_streams(&self, history: Uuid, open: &BTreeSet<u64>) -> Result<(), String> {
        self.all.get(&history).map_or(Ok(()), |h| h.streams.compare(open))
    }

    /// Seqno and verdict of an operation, in any history.
    pub fn find(&self, op: u64) -> Option<(u64, bool)> {
        self.all.values().find_map(|h| h.ops.get(&op).copied())
    }

    pub fn last_seqno(&self, history: Uuid) -> u64 {
        self.all.get(&history).and_then(|h| h.last).map_or(0, |l| l.1.0)
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Histories of which anything was ever delivered.
    pub fn formed(&self) -> usize {
        self.all.values().filter(|h| !h.entries.is_empty()).count()
    }
}

impl History {
    fn session(&mut self, session: Session, number: ProposalNumber) -> Result<(), String> {
        let (newest, last) = self.sessions.get(&session.node).copied().unwrap_or_default();
        let fits = if session.number == newest {
            number == last.next()
        } else {
            session.number > newest && number == ProposalNumber(1)
        };
        if !fits {
            return Err(format!(
                "session {}:{} number {number} delivered after session {newest} number {last} of the same origin",
                session.node, session.number
            ));
        }
        self.sessions.insert(session.node, (session.number, number));
        Ok(())
    }

    fn view(&mut self, view: &View) -> Result<(), String> {
        let nodes: BTreeSet<NodeId> = view.members.iter().map(|m| m.node).collect();
        if nodes.len() != view.members.len() {
            return Err(format!("a node twice in view {}", view.number));
        }
        if view.members.is_empty() {
            return Err(format!("view {} is empty", view.number));
        }
        if let Some(before) = &self.view {
            if view.number != before.number + 1 {
                return Err(format!("view {} follows view {}", view.number, before.number));
            }
            // When no member of the old view is left, nobody remembers the old incarnations.
            let left =
                view.members.iter().any(|m| before.get(m.node).is_some_and(|old| old.incarnation == m.incarnation));
            for m in view.members.iter().filter(|_| left) {
                if let Some(old) = before.get(m.node) {
                    if old.incarnation != m.incarnation {
                        return Err(format!(
                            "view {} replaces incarnation {} of {} by {} in one step",
                            view.number, old.incarnation, m.node, m.incarnation
                        ));
                    }
                }
            }
        }
        self.view = Some(view.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ws(index: u64, seqno: u64, number: u64, chain: u64) -> Delivered {
        let session = Session { node: NodeId(Uuid([1; 16])), number: 1 };
        Delivered {
            index: LogIndex(index),
            seqno: Seqno(seqno),
            what: What::WriteSet {
                session,
                number: ProposalNumber(number),
                op: number,
                part: Part::Whole,
                origin: Uuid::NIL,
                verdict: true,
            },
            chain,
        }
    }

    fn begun() -> (Histories, Uuid) {
        let (mut h, id) = (Histories::default(), Uuid([9; 16]));
        h.reset(id, LogIndex(0), Seqno(0), 0).unwrap();
        assert_eq!(h.deliver(id, &ws(2, 1, 1, 11)), Ok(true));
        (h, id)
    }

    #[test]
    fn accepts_the_same_again_and_what_follows() {
        let (mut h, id) = begun();
        assert_eq!(h.deliver(id, &ws(2, 1, 1, 11)), Ok(false));
        assert_eq!(h.deliver(id, &ws(3, 2, 2, 12)), Ok(true));
        assert_eq!(h.reset(id, LogIndex(2), Seqno(1), 11), Ok(()));
    }

    #[test]
    fn rejects_other_content_gaps_duplicates_and_foreign_bases() {
        for bad in [ws(2, 1, 1, 12), ws(3, 3, 2, 12), ws(3, 2, 1, 12), ws(3, 2, 3, 12), ws(1, 2, 2, 12)] {
            let (mut h, id) = begun();
            assert!(h.deliver(id, &bad).is_err(), "{bad:?}");
        }
        let (mut h, id) = begun();
        assert!(h.reset(id, LogIndex(2), Seqno(1), 12).is_err());
        assert!(h.reset(id, LogIndex(2), Seqno(2), 11).is_err());
        assert!(h.reset(id, LogIndex(3), Seqno(2), 11).is_err());
    }
}
