//! Inconsistency votes between the group thread and the applying threads: [`Ballots`] behind a lock, with a slot for each thread that waits.

use std::sync::Arc;

use trireme_replicator::votes::{Ballots, ErrorClass, Settled};
use trireme_types::Seqno;

use crate::slot::Slot;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard};

type Waiter = Arc<Slot<Option<ErrorClass>>>;

#[derive(Default)]
pub struct Votes {
    ballots: Mutex<Ballots<Waiter>>,
    /// [`Ballots::any`], for those that leave commit order: nearly always there is nothing.
    any: AtomicBool,
}

impl Votes {
    fn lock(&self) -> MutexGuard<'_, Ballots<Waiter>> {
        self.ballots.lock().expect("no holder of the votes panics")
    }

    fn note(&self, ballots: &Ballots<Waiter>) {
        self.any.store(ballots.any(), Ordering::SeqCst);
    }

    /// This node failed at `seqno`, and votes by `cast`, which is false when there is no group to vote in. The slot is filled with the winner
    /// (`None`: no result, the node left).
    pub fn failed(&self, seqno: Seqno, cast: impl FnOnce() -> bool) -> Waiter {
        let mut ballots = self.lock();
        let (slot, outcome) = ballots.failed(seqno, Waiter::default);
        // Under the lock: when this node is heard again, a vote that was not cast must not be taken for one whose result is on its way.
        let is_cast = cast();
        if outcome.is_none() && !is_cast {
            let _ = ballots.unheard(seqno);
        }
        if outcome.is_some() || !is_cast {
            slot.fill(outcome);
        }
        slot
    }

    /// Somebody voted on `seqno`. True when this node should answer now.
    pub fn begun(&self, seqno: Seqno, left: impl Fn() -> Seqno) -> bool {
        let mut ballots = self.lock();
        if !ballots.begun(seqno) {
            return false;
        }
        self.any.store(true, Ordering::SeqCst);
        // A thread that leaves from here on sees the debt.
        left() >= seqno && ballots.repay(seqno)
    }

    /// `seqno` has left, and nobody here waits for the result of a vote on it.
    pub fn settle(&self, seqno: Seqno) -> Settled {
        if !self.any.load(Ordering::SeqCst) {
            return Settled::Nothing;
        }
        let mut ballots = self.lock();
        let settled = ballots.settle(seqno);
        self.note(&ballots);
        settled
    }

    /// The vote on `seqno` is over. True when this node has left it behind and nobody here waits for the result. `left`: up to where this
    /// node has applied, zero when that is not known.
    pub fn decided(&self, seqno: Seqno, winner: ErrorClass, left: impl Fn() -> Seqno) -> bool {
        let mut ballots = self.lock();
        let behind = match ballots.decided(seqno, winner) {
            Some(slot) => {
                slot.fill(Some(winner));
                false
            }
            None => {
                self.any.store(true, Ordering::SeqCst);
                left() >= seqno && ballots.settle(seqno) == Settled::Decided(winner)
            }
        };
        self.note(&ballots);
        behind
    }

    /// The vote on `seqno` found no majority in time. `lost`: this node's error is among those that nobody confirmed. True when it is, and
    /// nobody here waits for the result.
    pub fn dismissed(&self, seqno: Seqno, lost: bool) -> bool {
        let mut ballots = self.lock();
        let waiter = ballots.dismissed(seqno, lost);
        self.note(&ballots);
        drop(ballots);
        match waiter {
            Some(slot) => {
                slot.fill(Some(ErrorClass::SUCCESS));
                false
            }
            None => lost,
        }
    }

    /// The results up to here came with the data.
    pub fn forget(&self, upto: Seqno) {
        let mut ballots = self.lock();
        ballots.forget(upto);
        self.note(&ballots);
    }

    pub fn end(&self) {
        self.lock().end().into_iter().for_each(|slot| slot.fill(None));
    }

    /// Nobody can hear this node: who waits for a result gets none. A vote that was decided before stays decided.
    pub fn abandon(&self) {
        self.lock().abandon().into_iter().for_each(|slot| slot.fill(None));
    }

    /// See [`Ballots::waiting`].
    pub fn waiting(&self) -> Vec<Seqno> {
        self.lock().waiting().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(!votes.decided(Seqno(5), ErrorClass(77), || Seqno(4)));
        assert!(!votes.decided(Seqno(6), ErrorClass(77), || Seqno(4)));
        assert!(!votes.decided(Seqno(7), ErrorClass::SUCCESS, || Seqno(4)));
        assert_eq!(votes.settle(Seqno(5)), Settled::Decided(ErrorClass(77)));
        assert_eq!(votes.failed(Seqno(6), || true).wait(), Some(ErrorClass(77)));
        assert_eq!(votes.settle(Seqno(6)), Settled::Nothing, "it failed as the others did");
        assert_eq!(votes.settle(Seqno(7)), Settled::Decided(ErrorClass::SUCCESS));
    }

    #[test]
    fn an_error_that_nobody_confirmed_loses_and_one_that_is_still_to_be_ordered_does_not() {
        let votes = Votes::default();
        let mine = votes.failed(Seqno(5), || true);
        votes.dismissed(Seqno(5), true);
        assert_eq!(mine.wait(), Some(ErrorClass::SUCCESS));
        let late = votes.failed(Seqno(6), || true);
        votes.dismissed(Seqno(6), false);
        assert!(!votes.decided(Seqno(6), ErrorClass(77), || Seqno(5)));
        assert_eq!(late.wait(), Some(ErrorClass(77)), "its own vote came after the dismissal and began another one");
        assert!(!votes.begun(Seqno(7), || Seqno(6)));
        votes.dismissed(Seqno(7), false);
        assert_eq!(votes.settle(Seqno(7)), Settled::Nothing, "nobody waits for it any more");
    }

    /// As in an outage of the log's disk. The others may begin a vote on it later.
    #[test]
    fn a_vote_that_nobody_heard_leaves_nothing_behind() {
        let votes = Votes::default();
        assert_eq!(votes.failed(Seqno(5), || false).wait(), None);
        assert!(votes.begun(Seqno(5), || Seqno(5)), "its word is asked for");
        assert!(votes.decided(Seqno(5), ErrorClass(77), || Seqno(5)), "the result is compared");
        assert_eq!(votes.failed(Seqno(6), || false).wait(), None);
        assert!(votes.dismissed(Seqno(6), true), "so is that there is none");
        assert!(!votes.decided(Seqno(7), ErrorClass(77), || Seqno(6)));
        assert_eq!(votes.failed(Seqno(7), || false).wait(), Some(ErrorClass(77)), "it came before");
    }

    #[test]
    fn success_against_a_decided_error_is_noticed_once() {
        let votes = Votes::default();
        assert!(votes.decided(Seqno(5), ErrorClass(77), || Seqno(5)));
        assert_eq!(votes.settle(Seqno(5)), Settled::Nothing);
        assert!(!votes.decided(Seqno(6), ErrorClass(77), || Seqno(5)));
        votes.forget(Seqno(6));
        assert_eq!(votes.settle(Seqno(6)), Settled::Nothing, "it came with a state transfer");
    }
}
