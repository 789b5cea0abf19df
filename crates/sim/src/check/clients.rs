//! The clients' questions and the answers to them: intent before, result after, kept outside of the nodes.

use std::collections::BTreeMap;

use super::Histories;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Asked, and not answered yet, or never: the origin died or gave up. May be in the history or not.
    Unknown,
    /// Refused before anything was sent: must never appear.
    Refused,
    /// Told "certainly not ordered" after it had been taken: must never appear.
    Withdrawn,
    /// Told "rolled back", perhaps while a part of it was under way: must never appear as committed.
    RolledBack,
    /// Told "committed" with this seqno.
    Committed(u64),
    /// Told "failed certification"; ordered at this seqno.
    Conflict(u64),
}

#[derive(Clone, Copy, Debug)]
pub struct ReadRecord {
    /// Newest acknowledged seqno anywhere when the read began.
    pub floor: u64,
    /// How many answers had been given where histories may fork.
    pub acks: usize,
    /// When it began.
    pub begun: u64,
}

/// How the operations of a run ended.
#[derive(Clone, Copy, Default, Debug)]
pub struct Share {
    pub committed: u64,
    pub conflict: u64,
    pub refused: u64,
    pub withdrawn: u64,
    pub rolled_back: u64,
    pub unknown: u64,
    pub unknown_ordered: u64,
    pub reads: u64,
    pub reads_failed: u64,
}

#[derive(Default)]
pub struct Clients {
    ops: BTreeMap<u64, Outcome>,
    next: u64,
    /// Newest seqno acknowledged to any client.
    pub acknowledged: u64,
    pub reads: u64,
    pub reads_failed: u64,
}

impl Clients {
    pub fn begin(&mut self) -> u64 {
        self.next += 1;
        self.ops.insert(self.next, Outcome::Unknown);
        self.next
    }

    pub fn refused(&mut self, op: u64) {
        self.ops.insert(op, Outcome::Refused);
    }

    pub fn withdrawn(&mut self, op: u64) {
        self.ops.insert(op, Outcome::Withdrawn);
    }

    pub fn rolled_back(&mut self, op: u64) {
        self.ops.insert(op, Outcome::RolledBack);
    }

    pub fn answered(&mut self, op: u64, seqno: u64, verdict: bool) -> Result<(), String> {
        let outcome = if verdict { Outcome::Committed(seqno) } else { Outcome::Conflict(seqno) };
        match self.ops.insert(op, outcome) {
            Some(Outcome::Unknown) => {}
            other => return Err(format!("operation {op} answered {outcome:?} after {other:?}")),
        }
        if verdict {
            self.acknowledged = self.acknowledged.max(seqno);
        }
        Ok(())
    }

    pub fn outcome(&self, op: u64) -> Option<Outcome> {
        self.ops.get(&op).copied()
    }

    pub fn begin_read(&self, acks: usize, begun: u64) -> ReadRecord {
        ReadRecord { floor: self.acknowledged, acks, begun }
    }

    /// `floor`: what had been acknowledged when it began, on the branch of the reader.
    pub fn read_at(&mut self, floor: u64, seqno: u64) -> Result<(), String> {
        self.reads += 1;
        if seqno < floor {
            return Err(format!("causal read was sent to {seqno}, but {floor} was acknowledged before it began"));
        }
        Ok(())
    }

    /// Every promise against the history. `survivors`: (who, seqno) that every node's data has reached at the end.
    pub fn check(&self, histories: &Histories, data_at: u64) -> Result<(), String> {
        for (op, outcome) in &self.ops {
            let found = histories.find(*op);
            match (*outcome, found) {
                (Outcome::Unknown, _) | (Outcome::Refused | Outcome::Withdrawn, None) => {}
                (Outcome::RolledBack, None | Some((_, false))) => {}
                (Outcome::RolledBack, Some((seqno, true))) => {
                    return Err(format!("operation {op} was rolled back, yet is committed at {seqno}"));
                }
                (Outcome::Refused, Some((seqno, _))) => {
                    return Err(format!("operation {op} was refused, yet is ordered at {seqno}"));
                }
                (Outcome::Withdrawn, Some((seqno, _))) => {
                    return Err(format!("operation {op} was withdrawn, yet is ordered at {seqno}"));
                }
                (Outcome::Committed(at), Some((seqno, true))) | (Outcome::Conflict(at), Some((seqno, false)))
                    if at == seqno =>
                {
                    if seqno > data_at {
                        return Err(format!("operation {op} was answered {outcome:?}, but the data ends at {data_at}"));
                    }
                }
                (Outcome::Committed(_) | Outcome::Conflict(_), found) => {
                    return Err(format!("operation {op} was answered {outcome:?}, the history has {found:?}"));
                }
            }
        }
        Ok(())
    }

    pub fn share(&self, histories: &Histories) -> Share {
        let mut s = Share { reads: self.reads, reads_failed: self.reads_failed, ..Share::default() };
        for (op, outcome) in &self.ops {
            match outcome {
                Outcome::Committed(_) => s.committed += 1,
                Outcome::Conflict(_) => s.conflict += 1,
                Outcome::Refused => s.refused += 1,
                Outcome::Withdrawn => s.withdrawn += 1,
                Outcome::RolledBack => s.rolled_back += 1,
                Outcome::Unknown => {
                    s.unknown += 1;
                    s.unknown_ordered += u64::from(histories.find(*op).is_some());
                }
            }
        }
        s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_acknowledged_commit_is_found() {
        let mut c = Clients::default();
        let op = c.begin();
        c.answered(op, 3, true).unwrap();
        assert!(c.check(&Histories::default(), 10).is_err());
    }

    #[test]
    fn a_withdrawn_operation_that_is_ordered_is_found() {
        use trireme_types::{LogIndex, NodeId, Seqno, Session, Uuid};

        use crate::check::{Delivered, What};
        use crate::judge::Part;

        for withdrawn in [false, true] {
            let mut c = Clients::default();
            let op = c.begin();
            if withdrawn {
                c.withdrawn(op);
            }
            let session = Session { node: NodeId(Uuid([1; 16])), number: 1 };
            let what = What::WriteSet {
                session,
                number: trireme_types::ProposalNumber(1),
                op,
                part: Part::Whole,
                origin: Uuid::NIL,
                verdict: true,
            };
            let mut histories = Histories::default();
            histories.reset(Uuid::NIL, LogIndex(0), Seqno(0), 0).unwrap();
            histories.deliver(Uuid::NIL, &Delivered { index: LogIndex(1), seqno: Seqno(1), what, chain: 0 }).unwrap();
            assert_eq!(c.check(&histories, 10).is_err(), withdrawn);
        }
    }

    #[test]
    fn a_read_below_an_acknowledged_commit_is_found() {
        let mut c = Clients::default();
        let op = c.begin();
        c.answered(op, 3, true).unwrap();
        let read = c.begin_read(0, 0);
        assert!(c.read_at(read.floor, 2).is_err());
        assert!(c.read_at(read.floor, 3).is_ok());
    }
}
