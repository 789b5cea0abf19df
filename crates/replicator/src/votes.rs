//! Inconsistency votes as the appliers see them: who has failed, who owes an answer, who waits for the result.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use trireme_types::Seqno;

/// How a write set went at a member, as far as votes tell errors apart: members vote alike that have the same class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ErrorClass(pub u64);

impl ErrorClass {
    /// No error. Below all others.
    pub const SUCCESS: ErrorClass = ErrorClass(0);

    /// Of an error's text: the MariaDB error numbers in it, never the wording (which depends on language and privileges). Never
    /// [`ErrorClass::SUCCESS`].
    pub fn of(error: &[u8]) -> ErrorClass {
        const MARK: &[u8] = b"Error_code: ";
        let mut class: u64 = 0xcbf2_9ce4_8422_2325;
        let mut mix = |byte: u8| class = (class ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let mut found = false;
        let mut rest = error;
        while let Some(at) = rest.windows(MARK.len()).position(|w| w == MARK) {
            rest = &rest[at + MARK.len()..];
            found = true;
            rest.iter().take_while(|b| b.is_ascii_digit()).for_each(|b| mix(*b));
            mix(b';');
        }
        if !found {
            mix(1);
        }
        ErrorClass(class | 1 << 63)
    }
}

/// As log lines and files show it.
impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// `W`: whom to tell the result.
#[derive(Debug)]
pub struct Ballots<W> {
    /// Seqnos that failed here, with the waiter for the outcome.
    failed: BTreeMap<Seqno, W>,
    /// Votes that wait for this node to get there.
    owed: BTreeSet<Seqno>,
    /// Outcomes of votes on what this node has not applied yet: a laggard takes the historic result (rule 28). The oldest go first when
    /// there are too many.
    outcomes: BTreeMap<Seqno, ErrorClass>,
    outcomes_max: usize,
}

/// The consequence of having got somewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    Nothing,
    /// The others wait for this node's vote.
    Owed,
    /// The group has decided so.
    Decided(ErrorClass),
}

/// Outcomes remembered.
pub(crate) const OUTCOMES_MAX: usize = 256;

impl<W> Default for Ballots<W> {
    fn default() -> Ballots<W> {
        Ballots::remembering(OUTCOMES_MAX)
    }
}

impl<W> Ballots<W> {
    /// With this bound on the outcomes.
    pub fn remembering(outcomes_max: usize) -> Ballots<W> {
        Ballots { failed: BTreeMap::new(), owed: BTreeSet::new(), outcomes: BTreeMap::new(), outcomes_max }
    }
}

impl<W: Clone> Ballots<W> {
    /// Something is to be looked at when an applier is done.
    pub fn any(&self) -> bool {
        !self.owed.is_empty() || !self.outcomes.is_empty()
    }

    /// This node failed at `seqno`, and `waiter` wants the outcome (the one that waits already does, if there is one, which is returned).
    /// With the outcome if that is known already.
    pub fn failed(&mut self, seqno: Seqno, waiter: impl FnOnce() -> W) -> (W, Option<ErrorClass>) {
        self.owed.remove(&seqno);
        let waiter = self.failed.entry(seqno).or_insert_with(waiter).clone();
        let outcome = self.outcomes.remove(&seqno);
        if outcome.is_some() {
            self.failed.remove(&seqno);
        }
        (waiter, outcome)
    }

    /// Somebody voted on `seqno`. True when this node will have to say what it found, once it gets there: see [`Ballots::repay`].
    pub fn begun(&mut self, seqno: Seqno) -> bool {
        if self.failed.contains_key(&seqno) || self.outcomes.contains_key(&seqno) {
            return false;
        }
        self.owed.insert(seqno);
        true
    }

    /// This node got to `seqno` without error, perhaps before anybody voted on it. True when it has to say so.
    pub fn repay(&mut self, seqno: Seqno) -> bool {
        self.owed.remove(&seqno)
    }

    /// `seqno` has left, and nobody here waits for the result of a vote on it.
    pub fn settle(&mut self, seqno: Seqno) -> Settled {
        let owed = self.owed.remove(&seqno);
        match self.outcomes.remove(&seqno) {
            Some(winner) => Settled::Decided(winner),
            None if owed => Settled::Owed,
            None => Settled::Nothing,
        }
    }

    /// The vote on `seqno` is over. Returns the one that waits for the outcome here. With nobody, the outcome is kept for
    /// [`Ballots::settle`].
    pub fn decided(&mut self, seqno: Seqno, winner: ErrorClass) -> Option<W> {
        self.owed.remove(&seqno);
        let waiter = self.failed.remove(&seqno);
        if waiter.is_none() {
            self.outcomes.insert(seqno, winner);
            if self.outcomes.len() > self.outcomes_max {
                self.outcomes.pop_first();
            }
        }
        waiter
    }

    /// The vote on `seqno` found no majority in time. `lost`: this node's error is among those that nobody confirmed; whoever waits for
    /// the outcome. Without an ordered error of its own it owes nothing any more, and what it may find there later begins another vote.
    pub fn dismissed(&mut self, seqno: Seqno, lost: bool) -> Option<W> {
        self.owed.remove(&seqno);
        if lost { self.failed.remove(&seqno) } else { None }
    }

    /// This node failed at `seqno`, and nobody will hear that. Returns the waiter, if the outcome has not come meanwhile.
    pub fn unheard(&mut self, seqno: Seqno) -> Option<W> {
        self.failed.remove(&seqno)
    }

    /// The results up to here came with the data.
    pub fn forget(&mut self, upto: Seqno) {
        self.outcomes = self.outcomes.split_off(&upto.next());
        self.owed = self.owed.split_off(&upto.next());
    }

    /// Nobody can hear this node: those who wait for a result get none. A vote that was decided before stays decided.
    pub fn abandon(&mut self) -> Vec<W> {
        std::mem::take(&mut self.failed).into_values().collect()
    }

    /// The failures of this node for whose results somebody waits.
    pub fn waiting(&self) -> impl Iterator<Item = Seqno> {
        self.failed.keys().copied()
    }

    pub fn end(&mut self) -> Vec<W> {
        self.owed.clear();
        self.outcomes.clear();
        self.abandon()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_error_numbers_are_equal_votes_whatever_the_wording() {
        let english = b" Can't find record in 't1', Error_code: 1032;\0";
        let german = b" Kann Datensatz in 't1' nicht finden, Error_code: 1032;\0";
        assert_eq!(ErrorClass::of(english), ErrorClass::of(german));
        assert_ne!(ErrorClass::of(english), ErrorClass::of(b" Duplicate entry, Error_code: 1062;\0"));
        assert_ne!(ErrorClass::of(b"x"), ErrorClass::SUCCESS);
    }

    #[test]
    fn the_oldest_outcomes_go_first() {
        let mut ballots = Ballots::<()>::remembering(2);
        let error = ErrorClass(7);
        for seqno in [5, 3, 4] {
            assert_eq!(ballots.decided(Seqno(seqno), error), None);
        }
        assert_eq!(ballots.settle(Seqno(3)), Settled::Nothing, "it is forgotten");
        assert_eq!(ballots.settle(Seqno(4)), Settled::Decided(error));
        assert_eq!(ballots.settle(Seqno(5)), Settled::Decided(error));
    }
}
