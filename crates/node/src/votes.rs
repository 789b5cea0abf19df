//! Inconsistency votes as the applying threads see them: who has failed, who owes an answer, who waits for the result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use trireme_types::Seqno;

use crate::slot::Slot;

#[derive(Default)]
struct State {
    /// Seqnos that failed here, with the waiter for the outcome.
    failed: BTreeMap<u64, Arc<Slot<Option<u64>>>>,
    /// Votes that wait for this node to get there.
    owed: BTreeSet<u64>,
    /// Outcomes of votes on what this node has not applied yet: a laggard takes the historic result (SAFETY 28). The
    /// oldest go first when there are too many.
    outcomes: BTreeMap<u64, u64>,
}

impl State {
    fn any(&self) -> bool {
        !self.owed.is_empty() || !self.outcomes.is_empty()
    }
}

/// What follows from having applied something without error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    Nothing,
    /// The others wait for this node's vote: success.
    Owed,
    /// The group has decided that it was an error.
    Lost,
}

/// Outcomes remembered.
const OUTCOMES_MAX: usize = 256;

#[derive(Default)]
pub struct Votes {
    state: Mutex<State>,
    any: AtomicBool,
}

/// The class of an error: the MariaDB error numbers in its text, never the wording (which depends on language and
/// privileges). Zero is success, so a failure has the top bit set.
pub fn error_class(error: &[u8]) -> u64 {
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
    class | 1 << 63
}

impl Votes {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the votes panics")
    }

    /// This node failed at `seqno`: the slot is filled with the winner (`None`: no result, the node left).
    pub fn failed(&self, seqno: Seqno) -> Arc<Slot<Option<u64>>> {
        let mut s = self.lock();
        s.owed.remove(&seqno.0);
        let slot = s.failed.entry(seqno.0).or_default().clone();
        if let Some(winner) = s.outcomes.remove(&seqno.0) {
            s.failed.remove(&seqno.0);
            slot.fill(Some(winner));
        }
        slot
    }

    /// Somebody voted on `seqno`. True when this node should answer "success" now.
    pub fn begun(&self, seqno: Seqno, left: impl Fn() -> Seqno) -> bool {
        let mut s = self.lock();
        if s.failed.contains_key(&seqno.0) || s.outcomes.contains_key(&seqno.0) {
            return false;
        }
        s.owed.insert(seqno.0);
        self.any.store(true, Ordering::SeqCst);
        // A thread that leaves from here on sees the debt.
        if left() >= seqno {
            s.owed.remove(&seqno.0);
            return true;
        }
        false
    }

    /// `seqno` has left without error.
    pub fn settle(&self, seqno: Seqno) -> Settled {
        if !self.any.load(Ordering::SeqCst) {
            return Settled::Nothing;
        }
        let mut s = self.lock();
        let owed = s.owed.remove(&seqno.0);
        let outcome = s.outcomes.remove(&seqno.0);
        self.any.store(s.any(), Ordering::SeqCst);
        match outcome {
            Some(winner) if winner != 0 => Settled::Lost,
            Some(_) => Settled::Nothing,
            None if owed => Settled::Owed,
            None => Settled::Nothing,
        }
    }

    /// The vote on `seqno` is over. True when this node applied it without error and the group says that it is one. `left`: up
    /// to where this node has applied, zero when that is not known.
    pub fn decided(&self, seqno: Seqno, winner: u64, left: impl Fn() -> Seqno) -> bool {
        let mut s = self.lock();
        s.owed.remove(&seqno.0);
        let lost = match s.failed.remove(&seqno.0) {
            Some(slot) => {
                slot.fill(Some(winner));
                false
            }
            None => {
                s.outcomes.insert(seqno.0, winner);
                if s.outcomes.len() > OUTCOMES_MAX {
                    s.outcomes.pop_first();
                }
                self.any.store(true, Ordering::SeqCst);
                let applied = left() >= seqno;
                applied && s.outcomes.remove(&seqno.0).is_some_and(|w| w != 0)
            }
        };
        self.any.store(s.any(), Ordering::SeqCst);
        lost
    }

    /// The vote on `seqno` found no majority in time. `lost`: this node's error is among those that nobody confirmed. Without an
    /// ordered error of its own it owes nothing any more, and what it may find there later begins another vote.
    pub fn dismissed(&self, seqno: Seqno, lost: bool) {
        let mut s = self.lock();
        s.owed.remove(&seqno.0);
        if lost && let Some(slot) = s.failed.remove(&seqno.0) {
            slot.fill(Some(0));
        }
        self.any.store(s.any(), Ordering::SeqCst);
    }

    /// What was decided up to here came with the data.
    pub fn forget(&self, upto: Seqno) {
        let mut s = self.lock();
        s.outcomes = s.outcomes.split_off(&upto.next().0);
        s.owed = s.owed.split_off(&upto.next().0);
        self.any.store(s.any(), Ordering::SeqCst);
    }

    pub fn end(&self) {
        let mut s = self.lock();
        s.owed.clear();
        s.outcomes.clear();
        drop(s);
        self.abandon();
    }

    /// Nobody can hear this node: who waits for a result gets none. What was decided before stays decided.
    pub fn abandon(&self) {
        for (_, slot) in std::mem::take(&mut self.lock().failed) {
            slot.fill(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_error_numbers_are_equal_votes_whatever_the_wording() {
        let english = b" Can't find record in 't1', Error_code: 1032;\0";
        let german = b" Kann Datensatz in 't1' nicht finden, Error_code: 1032;\0";
        assert_eq!(error_class(english), error_class(german));
        assert_ne!(error_class(english), error_class(b" Duplicate entry, Error_code: 1062;\0"));
        assert_ne!(error_class(b"x"), 0);
    }

    #[test]
    fn a_late_applier_answers_when_it_gets_there() {
        let votes = Votes::default();
        assert!(!votes.begun(Seqno(5), || Seqno(4)));
        assert_eq!(votes.settle(Seqno(4)), Settled::Nothing);
        assert_eq!(votes.settle(Seqno(5)), Settled::Owed);
        assert_eq!(votes.settle(Seqno(5)), Settled::Nothing);
        assert!(votes.begun(Seqno(6), || Seqno(6)));
    }

    #[test]
    fn a_laggard_takes_the_historic_result() {
        let votes = Votes::default();
        assert!(!votes.decided(Seqno(5), 77, || Seqno(4)));
        assert!(!votes.decided(Seqno(6), 77, || Seqno(4)));
        assert!(!votes.decided(Seqno(7), 0, || Seqno(4)));
        assert_eq!(votes.settle(Seqno(5)), Settled::Lost);
        assert_eq!(votes.failed(Seqno(6)).wait(), Some(77));
        assert_eq!(votes.settle(Seqno(6)), Settled::Nothing, "it failed as the others did");
        assert_eq!(votes.settle(Seqno(7)), Settled::Nothing);
    }

    #[test]
    fn an_error_that_nobody_confirmed_loses_and_one_that_is_still_to_be_ordered_does_not() {
        let votes = Votes::default();
        let mine = votes.failed(Seqno(5));
        votes.dismissed(Seqno(5), true);
        assert_eq!(mine.wait(), Some(0));
        let late = votes.failed(Seqno(6));
        votes.dismissed(Seqno(6), false);
        assert!(!votes.decided(Seqno(6), 77, || Seqno(5)));
        assert_eq!(late.wait(), Some(77), "its own vote came after the dismissal and began another one");
        assert!(!votes.begun(Seqno(7), || Seqno(6)));
        votes.dismissed(Seqno(7), false);
        assert_eq!(votes.settle(Seqno(7)), Settled::Nothing, "nobody waits for it any more");
    }

    #[test]
    fn success_against_a_decided_error_is_noticed_once() {
        let votes = Votes::default();
        assert!(votes.decided(Seqno(5), 77, || Seqno(5)));
        assert_eq!(votes.settle(Seqno(5)), Settled::Nothing);
        assert!(!votes.decided(Seqno(6), 77, || Seqno(5)));
        votes.forget(Seqno(6));
        assert_eq!(votes.settle(Seqno(6)), Settled::Nothing, "it came with a state transfer");
    }
}
