//! Forks of a history: which branch of it a log belongs to (rule 13).

use std::cmp::Ordering;
use std::sync::Arc;

use crate::{DecodeError, LogIndex, Reader, Seqno, Uuid, Writer};

/// A forced change: from `index` on the log belongs to a branch of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fork {
    /// Of the forced `Voters` entry; zero when a log was begun anew at a position without its past.
    pub index: LogIndex,
    /// Seqno there: data up to it are common to both sides.
    pub seqno: Seqno,
    /// Drawn by whoever forced it; no two are alike.
    pub id: Uuid,
}

/// All forks that led to a log, the oldest first. Empty as long as nothing was ever forced.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lineage(Arc<[Fork]>);

/// How another lineage of the same history relates to one's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kinship {
    Same,
    /// The other goes on from this one by a fork that is not known here.
    Descendant(Fork),
    /// This one goes on from the other.
    Ancestor,
    /// Both were forced, each without the other.
    Sibling,
}

impl Lineage {
    /// Each fork is somebody's decision; a log with more is not one of ours.
    pub const FORKS_MAX: usize = 4096;

    pub fn forks(&self) -> &[Fork] {
        &self.0
    }

    pub fn newest(&self) -> Option<&Fork> {
        self.0.last()
    }

    /// This lineage after one more fork.
    pub fn with(&self, fork: Fork) -> Lineage {
        Lineage(self.0.iter().copied().chain([fork]).collect())
    }

    /// One id for the branch: equal on two logs exactly when their history and all their forks are.
    pub fn branch(&self, history: Uuid) -> Uuid {
        self.newest().map_or(history, |f| f.id)
    }

    /// The branch to which the entry at `index` of a log with this lineage belongs.
    pub fn branch_at(&self, history: Uuid, index: LogIndex) -> Uuid {
        self.0.iter().rev().find(|f| f.index <= index).map_or(history, |f| f.id)
    }

    pub fn kinship(&self, other: &Lineage) -> Kinship {
        let common = self.0.iter().zip(other.0.iter()).take_while(|(a, b)| a.id == b.id).count();
        match (common == self.0.len(), common == other.0.len()) {
            (true, true) => Kinship::Same,
            (true, false) => Kinship::Descendant(other.0[common]),
            (false, true) => Kinship::Ancestor,
            (false, false) => Kinship::Sibling,
        }
    }

    /// Of two primary components of one history the one with the greater lineage stays: at the first fork that they do not
    /// share, the side that was not forced is the greater, then the one that kept more of the common past, then the higher id. The
    /// same answer on both sides, whatever either has done since.
    pub fn precedence(&self, other: &Lineage) -> Ordering {
        for at in 0.. {
            return match (self.0.get(at), other.0.get(at)) {
                (None, None) => Ordering::Equal,
                (None, Some(_)) => Ordering::Greater,
                (Some(_), None) => Ordering::Less,
                (Some(a), Some(b)) if a.id == b.id => continue,
                (Some(a), Some(b)) => a.index.cmp(&b.index).then(a.id.cmp(&b.id)),
            };
        }
        Ordering::Equal
    }

    pub fn encode(&self, w: &mut Writer) {
        w.u32(self.0.len() as u32);
        for fork in self.0.iter() {
            w.u64(fork.index.0);
            w.u64(fork.seqno.0);
            w.uuid(fork.id);
        }
    }

    pub fn decode(r: &mut Reader<'_>) -> Result<Lineage, DecodeError> {
        let count = r.count(Lineage::FORKS_MAX)?;
        let forks = (0..count)
            .map(|_| Ok(Fork { index: r.index()?, seqno: r.seqno()?, id: r.uuid()? }))
            .collect::<Result<Vec<_>, DecodeError>>()?;
        Ok(Lineage(forks.into()))
    }
}

impl FromIterator<Fork> for Lineage {
    fn from_iter<I: IntoIterator<Item = Fork>>(forks: I) -> Lineage {
        Lineage(forks.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fork(index: u64, id: u8) -> Fork {
        Fork { index: LogIndex(index), seqno: Seqno(index / 2), id: Uuid([id; 16]) }
    }

    fn lineage(forks: &[(u64, u8)]) -> Lineage {
        forks.iter().map(|(index, id)| fork(*index, *id)).collect()
    }

    #[test]
    fn kinship_is_told_by_ids_alone() {
        let none = lineage(&[]);
        let one = lineage(&[(5, 1)]);
        let both = lineage(&[(5, 1), (9, 2)]);
        assert_eq!(none.kinship(&none), Kinship::Same);
        assert_eq!(none.kinship(&both), Kinship::Descendant(fork(5, 1)));
        assert_eq!(one.kinship(&both), Kinship::Descendant(fork(9, 2)));
        assert_eq!(both.kinship(&one), Kinship::Ancestor);
        assert_eq!(one.kinship(&lineage(&[(5, 3)])), Kinship::Sibling);
    }

    #[test]
    fn a_branch_is_named_by_its_newest_fork() {
        let history = Uuid([9; 16]);
        assert_eq!(lineage(&[]).branch(history), history);
        assert_eq!(lineage(&[(5, 1), (9, 2)]).branch(history), Uuid([2; 16]));
    }

    #[test]
    fn precedence_is_a_total_order() {
        let all = [
            lineage(&[]),
            lineage(&[(5, 1)]),
            lineage(&[(5, 2)]),
            lineage(&[(7, 5)]),
            lineage(&[(5, 1), (9, 2)]),
            lineage(&[(5, 1), (9, 3)]),
            lineage(&[(7, 5), (8, 4)]),
        ];
        for a in &all {
            for b in &all {
                assert_eq!(a.precedence(b), b.precedence(a).reverse());
                assert_eq!(a.precedence(b) == Ordering::Equal, a == b);
                for c in &all {
                    if a.precedence(b) == Ordering::Less && b.precedence(c) == Ordering::Less {
                        assert_eq!(a.precedence(c), Ordering::Less);
                    }
                }
            }
        }
        assert_eq!(all[0].precedence(&all[1]), Ordering::Greater, "not forced goes before forced");
        assert_eq!(all[3].precedence(&all[2]), Ordering::Greater, "more of the common past goes before less");
        assert_eq!(all[1].precedence(&all[4]), Ordering::Greater);
    }

    #[test]
    fn lineages_round_trip() {
        let mut w = Writer::new();
        let value = lineage(&[(5, 1), (9, 2)]);
        value.encode(&mut w);
        assert_eq!(Lineage::decode(&mut Reader::new(&w.buf)), Ok(value));
    }
}
