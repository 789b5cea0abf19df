//! Runs in which machines lose their power together in mode `process`: commits may be lost there, but only those that are on no voter's
//! disk afterwards, neither in its log nor in its data (rules 16, 18).

use std::collections::HashMap;

use trireme_types::{Lineage, LogIndex, Term, Uuid};

/// How far something reaches: up to a seqno, by these forks of the history.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reach {
    pub history: Uuid,
    pub lineage: Lineage,
    pub seqno: u64,
}

impl Reach {
    /// Is everything up to `other` a part of this past?
    pub fn covers(&self, other: &Reach) -> bool {
        let forks = self.lineage.forks();
        let common = other.lineage.forks();
        // Where this past left the other's branch, if it did.
        let end = forks.get(common.len()).map_or(self.seqno, |fork| fork.seqno.0);
        let same_past = forks.iter().zip(common).all(|(a, b)| a.id == b.id) && forks.len() >= common.len();
        self.history == other.history && same_past && other.seqno <= end
    }
}

struct Acknowledged {
    op: u64,
    at: Reach,
    /// How many losses there had been.
    losses: usize,
}

#[derive(Default)]
pub struct Losses {
    acknowledged: Vec<Acknowledged>,
    /// For each loss of power what was left on the voters' disks.
    left: Vec<Vec<Reach>>,
    /// Whose entry was delivered at an index of a branch.
    committed: HashMap<(Uuid, LogIndex), Term>,
}

impl Losses {
    pub fn delivered(&mut self, branch: Uuid, index: LogIndex, term: Term) {
        self.committed.insert((branch, index), term);
    }

    pub fn is_committed(&self, branch: Uuid, index: LogIndex, term: Term) -> bool {
        self.committed.get(&(branch, index)) == Some(&term)
    }

    pub fn acknowledged(&mut self, op: u64, at: Reach) {
        self.acknowledged.push(Acknowledged { op, at, losses: self.left.len() });
    }

    pub fn power_lost(&mut self, left: Vec<Reach>) {
        self.left.push(left);
    }

    pub fn count(&self) -> usize {
        self.left.len()
    }

    /// `end`: what the cluster holds when everything has healed.
    pub fn check(&self, end: &Reach) -> Result<(), String> {
        for a in self.acknowledged.iter().filter(|a| !end.covers(&a.at)) {
            let lost = self.left[a.losses..].iter().any(|left| !left.iter().any(|disk| disk.covers(&a.at)));
            if !lost {
                return Err(format!(
                    "operation {} was acknowledged at {:?} and is gone ({end:?}), although it was on a voter's disk after each of \
                     the {} losses of power since",
                    a.op,
                    a.at,
                    self.left.len() - a.losses
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trireme_types::{Fork, Seqno};

    fn reach(forks: &[(u64, u8)], seqno: u64) -> Reach {
        let fork = |(at, id): &(u64, u8)| Fork { index: LogIndex(*at), seqno: Seqno(*at), id: Uuid([*id; 16]) };
        Reach { history: Uuid([9; 16]), lineage: forks.iter().map(fork).collect(), seqno }
    }

    #[test]
    fn a_past_covers_what_came_before_its_forks() {
        let end = reach(&[(5, 1), (9, 2)], 20);
        for inside in [reach(&[], 5), reach(&[(5, 1)], 9), reach(&[(5, 1), (9, 2)], 20)] {
            assert!(end.covers(&inside), "{inside:?}");
        }
        for outside in [reach(&[], 6), reach(&[(5, 1)], 10), reach(&[(5, 3)], 7), reach(&[(5, 1), (9, 2), (11, 4)], 12)]
        {
            assert!(!end.covers(&outside), "{outside:?}");
        }
    }

    #[test]
    fn what_a_disk_held_may_not_be_lost() {
        let mut l = Losses::default();
        l.acknowledged(1, reach(&[], 7));
        assert!(l.check(&reach(&[(5, 1)], 9)).is_err(), "no power was lost");
        l.power_lost(vec![reach(&[], 6), reach(&[], 7)]);
        assert!(l.check(&reach(&[(5, 1)], 9)).is_err(), "one still had it");
        assert!(l.check(&reach(&[(7, 1)], 9)).is_ok());
        l.power_lost(vec![reach(&[], 6)]);
        assert!(l.check(&reach(&[(6, 1)], 9)).is_ok(), "nobody had it");
    }
}
