//! Runs in which machines lose their power together in mode `process`. Commits may be lost there, but only those that are on no voter's
//! disk afterwards, neither in its log nor in its data (rules 16, 18). The mode may be switched in between: then none may be lost that was
//! acknowledged in mode `disk`, or before a switch to that was committed (rule 15).

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
    /// A majority had it on disk.
    on_disk: bool,
}

#[derive(Default)]
pub struct Losses {
    acknowledged: Vec<Acknowledged>,
    /// For each loss of power, the reach of the voters' disks afterwards.
    left: Vec<Vec<Reach>>,
    /// Switches to mode `disk`: the reach of the entries before them, and how many losses there had been when they were committed.
    switches: Vec<(Reach, usize)>,
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

    /// `on_disk`: in mode `disk`.
    pub fn acknowledged(&mut self, op: u64, at: Reach, on_disk: bool) {
        self.acknowledged.push(Acknowledged { op, at, losses: self.left.len(), on_disk });
    }

    /// A switch to mode `disk` behind `before` is committed.
    pub fn switched_to_disk(&mut self, before: Reach) {
        self.switches.push((before, self.left.len()));
    }

    /// After so many losses it could not be lost any more.
    fn safe_after(&self, a: &Acknowledged) -> usize {
        if a.on_disk {
            return a.losses;
        }
        let covers = self.switches.iter().filter(|(before, _)| before.covers(&a.at));
        covers.map(|(_, losses)| *losses).min().unwrap_or(self.left.len()).max(a.losses)
    }

    pub fn power_lost(&mut self, left: Vec<Reach>) {
        self.left.push(left);
    }

    pub fn count(&self) -> usize {
        self.left.len()
    }

    /// `end`: the reach of the cluster when everything has healed. Says how many commits are lost that may be.
    pub fn check(&self, end: &Reach) -> Result<u64, String> {
        let mut gone = 0;
        for a in self.acknowledged.iter().filter(|a| !end.covers(&a.at)) {
            let until = self.safe_after(a);
            let lost = self.left[a.losses..until].iter().any(|left| !left.iter().any(|disk| disk.covers(&a.at)));
            if !lost {
                return Err(format!(
                    "operation {} was acknowledged at {:?} and is gone ({end:?}), although it was on a voter's disk after each of \
                     the {} losses of power in which it could be lost ({} since)",
                    a.op,
                    a.at,
                    until - a.losses,
                    self.left.len() - a.losses
                ));
            }
            gone += 1;
        }
        Ok(gone)
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
        l.acknowledged(1, reach(&[], 7), false);
        assert!(l.check(&reach(&[(5, 1)], 9)).is_err(), "no power was lost");
        l.power_lost(vec![reach(&[], 6), reach(&[], 7)]);
        assert!(l.check(&reach(&[(5, 1)], 9)).is_err(), "one still had it");
        assert!(l.check(&reach(&[(7, 1)], 9)).is_ok());
        l.power_lost(vec![reach(&[], 6)]);
        assert_eq!(l.check(&reach(&[(6, 1)], 9)), Ok(1), "nobody had it");
    }

    #[test]
    fn what_was_acknowledged_in_mode_disk_or_before_a_switch_to_it_may_not_be_lost() {
        let end = reach(&[(6, 1)], 9);
        let mut l = Losses::default();
        l.acknowledged(1, reach(&[], 7), true);
        l.power_lost(vec![reach(&[], 6)]);
        assert!(l.check(&end).is_err(), "in mode disk");
        let lost_and_switched = |first: bool, before: u64| {
            let mut l = Losses::default();
            l.acknowledged(1, reach(&[], 7), false);
            if first {
                l.power_lost(vec![reach(&[], 6)]);
            }
            l.switched_to_disk(reach(&[], before));
            l.power_lost(vec![reach(&[], 6)]);
            l.check(&end)
        };
        assert!(lost_and_switched(false, 7).is_err(), "the switch covers it");
        assert_eq!(lost_and_switched(false, 6), Ok(1), "it came after the switch to disk, and another one back");
        assert_eq!(lost_and_switched(true, 7), Ok(1), "it was gone before");
    }
}
