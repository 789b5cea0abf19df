//! Forced runs: histories may fork, but every branch is one history. The first node to deliver at an index of a branch sets the entry:
//! every other node of that branch delivers the same there, with the same past behind it (rule 13). A client's answer holds on the branch
//! that survives, if it was given there or before that branch began.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use trireme_types::{Fork, LogIndex, Seqno, Uuid};

use super::{Clients, Delivered, Outcome, Reach, What};

#[derive(Default)]
pub struct Branches {
    delivered: HashMap<(Uuid, LogIndex), Delivered>,
    /// The index of the entry that has a seqno on a branch.
    indexes: HashMap<(Uuid, Seqno), LogIndex>,
    /// Where an operation ended, on all branches, and whether it took effect there. Here as for answers the delivering member's forks
    /// count, those behind its delivery as well.
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
                if !matches!(d.what, What::App { .. }) {
                    self.indexes.insert((branch, d.seqno), d.index);
                }
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
        self.decided.entry(op).or_default().push((at, effect));
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
            .filter(|at| self.is_past_of(reader, at))
            .map(|at| at.seqno)
            .max()
            .unwrap_or(0)
    }

    /// The entry with this seqno, as members that know these forks have delivered it.
    fn entry(&self, history: Uuid, forks: &[Fork], seqno: u64) -> Option<&Delivered> {
        let branch = forks.last().map_or(history, |fork| fork.id);
        self.delivered.get(&(branch, *self.indexes.get(&(branch, Seqno(seqno)))?))
    }

    /// Is what a member has at `at`, with all forks that it knows, a part of that past? An entry below a fork may have been committed only
    /// by members that went on behind the fork. So it is of their branch, and of an earlier one only if members that know no more than that
    /// have delivered the same. And it is of no branch that has another one in its place.
    pub fn is_past_of(&self, end: &Reach, at: &Reach) -> bool {
        let forks = at.lineage.forks();
        let entry = |n: usize| self.entry(at.history, &forks[..n], at.seqno);
        let first = forks.iter().take_while(|fork| fork.seqno.0 < at.seqno).count();
        let own = (first..=forks.len()).rev().find_map(entry);
        let mut alike = (first..=forks.len()).filter(|n| *n == forks.len() || entry(*n) == own);
        let covered = alike.any(|n| {
            let lineage = forks[..n].iter().copied().collect();
            end.covers(&Reach { lineage, ..at.clone() })
        });
        covered && !self.is_replaced(end, at, own)
    }

    /// A branch may be forced by a member whose log ends in entries that were never committed, while the others have committed `own` in
    /// the place of one of them. Has a branch that led to `end`, and not to `at`, delivered another one there?
    fn is_replaced(&self, end: &Reach, at: &Reach, own: Option<&Delivered>) -> bool {
        let forks = end.lineage.forks();
        let common = forks.iter().zip(at.lineage.forks()).take_while(|(a, b)| a.id == b.id).count();
        let mut there = (common + 1..=forks.len()).filter_map(|n| self.entry(end.history, &forks[..n], at.seqno));
        own.is_some() && there.any(|entry| Some(entry) != own)
    }

    /// Every promise to a client, as far as it is about the branch that survives. `end`: where that ends.
    pub fn check(&self, end: &Reach, clients: &Clients) -> Result<(), String> {
        let here = |op: &u64| -> Vec<(u64, bool)> {
            // Entries before a fork are delivered by members of both branches.
            let places = self.decided.get(op).into_iter().flatten().filter(|(at, _)| self.is_past_of(end, at));
            let places: BTreeSet<(u64, bool)> = places.map(|(at, effect)| (at.seqno, *effect)).collect();
            places.into_iter().collect()
        };
        for op in self.decided.keys() {
            let places = here(op);
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
        for (op, at) in self.acknowledged.iter().filter(|(_, at)| self.is_past_of(end, at)) {
            let told = clients.outcome(*op);
            let holds = here(op).into_iter().any(|(seqno, effect)| {
                let outcome = if effect { Outcome::Committed(seqno) } else { Outcome::Conflict(seqno) };
                seqno == at.seqno && told == Some(outcome)
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
    use trireme_types::{Fork, Lineage, ProposalNumber, Session, View};

    /// At seqno and index `at`.
    fn view(at: u64, chain: u64) -> Delivered {
        let what = What::View(View::default());
        Delivered { index: LogIndex(at), seqno: Seqno(at), what, chain }
    }

    #[test]
    fn another_past_on_the_same_branch_is_found() {
        let d = |chain| Delivered {
            index: LogIndex(3),
            seqno: Seqno(2),
            what: What::App { session: Session::default(), number: ProposalNumber(1) },
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

    /// A fork that begins behind an entry may commit it alone, while the others of the old branch put another one in its place.
    #[test]
    fn what_only_those_behind_a_fork_have_delivered_is_no_part_of_the_branch_before() {
        let history = Uuid([9; 16]);
        let fork = Fork { index: LogIndex(8), seqno: Seqno(8), id: Uuid([1; 16]) };
        let at = Reach { seqno: 7, history, lineage: Lineage::default().with(fork) };
        let old = Reach { history, lineage: Lineage::default(), seqno: 20 };
        let new = Reach { lineage: at.lineage.clone(), ..old.clone() };
        for (there, shared) in [(None, false), (Some(3), false), (Some(2), true)] {
            let mut b = Branches::default();
            b.deliver(fork.id, &view(7, 2)).unwrap();
            if let Some(chain) = there {
                b.deliver(history, &view(7, chain)).unwrap();
            }
            assert_eq!(b.is_past_of(&old, &at), shared, "{there:?}");
            assert!(b.is_past_of(&new, &at));
        }
    }

    /// The other way round: the one who forces a branch has an entry that was never committed, at an index below the fork.
    #[test]
    fn what_a_fork_has_put_another_entry_in_the_place_of_is_no_part_of_its_branch() {
        let history = Uuid([9; 16]);
        let fork = Fork { index: LogIndex(8), seqno: Seqno(8), id: Uuid([1; 16]) };
        let old = Reach { history, lineage: Lineage::default(), seqno: 20 };
        let new = Reach { lineage: Lineage::default().with(fork), ..old.clone() };
        let at = Reach { seqno: 7, ..old.clone() };
        let elsewhere = Delivered { index: LogIndex(6), ..view(7, 2) };
        for (there, shared) in
            [(None, true), (Some(view(7, 2)), true), (Some(view(7, 3)), false), (Some(elsewhere), false)]
        {
            let mut b = Branches::default();
            b.deliver(history, &view(7, 2)).unwrap();
            if let Some(there) = &there {
                b.deliver(fork.id, there).unwrap();
            }
            assert_eq!(b.is_past_of(&new, &at), shared, "{there:?}");
            assert!(b.is_past_of(&old, &at));
            let mut clients = Clients::default();
            let op = clients.begin();
            clients.answered(op, 7, true).unwrap();
            b.acknowledged(op, at.clone());
            assert_eq!(b.check(&new, &clients).is_err(), shared, "a promise that is not kept: {there:?}");
        }
    }

    /// Data may be older than the newest fork that their owner knows.
    #[test]
    fn data_are_a_part_of_the_branch_on_which_their_newest_entry_was_delivered() {
        let history = Uuid([9; 16]);
        let fork = |id| Fork { index: LogIndex(8), seqno: Seqno(8), id: Uuid([id; 16]) };
        let reach = |id, seqno| Reach { history, lineage: Lineage::default().with(fork(id)), seqno };
        let mut b = Branches::default();
        b.deliver(history, &view(7, 2)).unwrap();
        assert!(b.is_past_of(&reach(2, 9), &reach(1, 7)));
        b.deliver(fork(2).id, &view(7, 3)).unwrap();
        assert!(!b.is_past_of(&reach(2, 9), &reach(1, 7)));
        assert!(b.is_past_of(&reach(1, 9), &reach(1, 7)));
    }
}
