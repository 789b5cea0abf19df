//! Forced runs: histories may fork, but every branch is one history. What the first node delivers at an index of a branch,
//! every other node of that branch delivers there too, with the same past behind it (rule 13). What clients were told holds on the branch
//! that survives, as far as it was told there or before that branch began.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use trireme_types::{LogIndex, Uuid};

use super::{Clients, Delivered, Outcome, Reach};

#[derive(Default)]
pub struct Branches {
    delivered: HashMap<(Uuid, LogIndex), Delivered>,
    /// Where an operation ended, on whichever branches, and whether it took effect there.
    decided: BTreeMap<u64, Vec<(Reach, bool)>>,
    /// Answers to clients, in the order in which they were given.
    acknowledged: Vec<(u64, Reach)>,
}

impl Branches {
    /// Says whether it is the first delivery there.
    pub fn deliver(&mut self, branch: Uuid, d: &Delivered) -> Result<bool, String> {
        match self.delivered.entry((branch, d.index)) {
            Entry::Vacant(place) => {
                place.insert(d.clone());
                Ok(true)
            }
            Entry::Occupied(known) if known.get() == d => Ok(false),
            Entry::Occupied(known) => {
                let known = known.get();
                Err(format!("branch {branch} has two contents at index {}: first {known:?}, now {d:?}", d.index))
            }
        }
    }

    pub fn decided(&mut self, op: u64, at: Reach, effect: bool) {
        // What comes before a fork is delivered by members of both branches.
        let places = self.decided.entry(op).or_default();
        if !places.contains(&(at.clone(), effect)) {
            places.push((at, effect));
        }
    }

    pub fn acknowledged(&mut self, op: u64, at: Reach) {
        self.acknowledged.push((op, at));
    }

    /// Answers given so far.
    pub fn acks(&self) -> usize {
        self.acknowledged.len()
    }

    /// The newest of the first `acks` answers that belong to the past of a reader, up to wherever it reads.
    pub fn floor(&self, reader: &Reach, acks: usize) -> u64 {
        self.acknowledged[..acks]
            .iter()
            .map(|(_, at)| at)
            .filter(|at| reader.covers(at))
            .map(|at| at.seqno)
            .max()
            .unwrap_or(0)
    }

    /// Every promise to a client, as far as it is about the branch that survives. `end`: where that ends.
    pub fn check(&self, end: &Reach, clients: &Clients) -> Result<(), String> {
        let none = Vec::new();
        let here = |op: &u64| self.decided.get(op).unwrap_or(&none).iter().filter(|(at, _)| end.covers(at));
        for op in self.decided.keys() {
            let places: Vec<&(Reach, bool)> = here(op).collect();
            let wrong = match (clients.outcome(*op), &places[..]) {
                (_, []) => false,
                (_, [_, _, ..]) => true,
                (Some(Outcome::Refused | Outcome::Withdrawn) | None, [_]) => true,
                (Some(Outcome::RolledBack), [(_, effect)]) => *effect,
                (Some(Outcome::Unknown | Outcome::Committed(_) | Outcome::Conflict(_)), [_]) => false,
            };
            if wrong {
                return Err(format!(
                    "operation {op} was answered {:?}, the branch that survives has {places:?}",
                    clients.outcome(*op)
                ));
            }
        }
        for (op, at) in self.acknowledged.iter().filter(|(_, at)| end.covers(at)) {
            let told = clients.outcome(*op);
            let holds = here(op).any(|(there, effect)| {
                let outcome = if *effect { Outcome::Committed(there.seqno) } else { Outcome::Conflict(there.seqno) };
                there == at && told == Some(outcome)
            });
            if !holds {
                return Err(format!(
                    "operation {op} was answered {told:?} at {at:?}, which the branch that survives has not"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::What;
    use trireme_types::{Fork, Seqno, Session};

    #[test]
    fn another_past_on_the_same_branch_is_found() {
        let d = |chain| Delivered {
            index: LogIndex(3),
            seqno: Seqno(2),
            what: What::App { session: Session::default(), number: 1 },
            chain,
        };
        let mut b = Branches::default();
        assert_eq!(b.deliver(Uuid([1; 16]), &d(7)), Ok(true));
        assert_eq!(b.deliver(Uuid([1; 16]), &d(7)), Ok(false));
        assert_eq!(b.deliver(Uuid([2; 16]), &d(8)), Ok(true));
        assert!(b.deliver(Uuid([1; 16]), &d(8)).is_err());
    }

    #[test]
    fn promises_are_held_on_the_branch_that_survives_and_on_no_other() {
        let reach = |forks: &[(u64, u8)], seqno: u64| {
            let fork = |(at, id): &(u64, u8)| Fork { index: LogIndex(*at), seqno: Seqno(*at), id: Uuid([*id; 16]) };
            Reach { history: Uuid([9; 16]), lineage: forks.iter().map(fork).collect(), seqno }
        };
        let (mut b, mut clients) = (Branches::default(), Clients::default());
        let op = clients.begin();
        clients.answered(op, 7, true).unwrap();
        b.acknowledged(op, reach(&[], 7));
        let (lost, kept) = (reach(&[(5, 1)], 9), reach(&[(8, 2)], 9));
        assert_eq!(b.floor(&kept, 1), 7);
        assert_eq!(b.floor(&lost, 1), 0);
        assert_eq!(b.floor(&kept, 0), 0, "answered later");
        assert!(b.check(&lost, &clients).is_ok(), "the operator gave it up");
        assert!(b.check(&kept, &clients).is_err(), "it is nowhere");
        b.decided(op, reach(&[], 7), true);
        assert_eq!(b.check(&kept, &clients), Ok(()));
        b.decided(op, reach(&[(8, 2)], 9), true);
        assert!(b.check(&kept, &clients).is_err(), "it is there twice");
        let withdrawn = clients.begin();
        clients.withdrawn(withdrawn);
        b.decided(withdrawn, reach(&[(5, 1)], 8), true);
        assert!(b.check(&lost, &clients).is_err());
    }
}
