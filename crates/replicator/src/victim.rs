//! Brute-force aborts: a write set that is being applied wants a lock that a local transaction holds. The decisions on that
//! transaction are here, and on one that is ordered already.

use trireme_types::Seqno;

/// Where a local transaction stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Gathers keys and data; also between the fragments of a streaming transaction.
    Collecting,
    /// Sent, not yet ordered.
    Certifying,
    /// Ordered and certified; waits for or is inside its commit order.
    Certified(Seqno),
    /// Ordered, certification failed; its own thread closes the seqno.
    Failed(Seqno),
    /// Ordered, certified, hit by an applier; being applied again by its own thread.
    Replaying(Seqno),
}

impl Stage {
    /// For the flight recorder.
    pub fn words(self) -> &'static str {
        match self {
            Stage::Collecting => "not sent yet",
            Stage::Certifying => "sent",
            Stage::Certified(_) => "ordered",
            Stage::Failed(_) => "failed",
            Stage::Replaying(_) => "applied again",
        }
    }

    /// The position, once it is ordered.
    pub fn seqno(self) -> Option<Seqno> {
        match self {
            Stage::Collecting | Stage::Certifying => None,
            Stage::Certified(seqno) | Stage::Failed(seqno) | Stage::Replaying(seqno) => Some(seqno),
        }
    }
}

/// Is the victim marked?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    No,
    /// Unless it has entered its turn to commit, or is past it.
    BeforeTurn(Seqno),
    /// Wherever it is; one that waits for this turn is woken.
    Anyway(Option<Seqno>),
}

/// May the caller count on the victim's locks?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gives {
    Yes,
    No,
    IfMarked,
}

/// The treatment of a transaction that is in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    pub mark: Mark,
    /// It is taken back if it is not sent: flow control may be holding it until the very applier that wants the locks has got on.
    pub recall: bool,
    gives: Gives,
    /// Of the victim, once it is ordered.
    pub seqno: Option<Seqno>,
}

impl Hit {
    /// `marked`: it was. `true`: the victim rolls back, and gives up its locks.
    pub fn gives_way(self, marked: bool) -> bool {
        match self.gives {
            Gives::Yes => true,
            Gives::No => false,
            Gives::IfMarked => marked,
        }
    }
}

/// `by`, which is being applied (`None`: it has no place in the order), wants a lock of a transaction at this stage. `ends`: what that one
/// asked for last ends it.
pub fn hit(stage: Stage, ends: bool, by: Option<Seqno>) -> Hit {
    let seqno = stage.seqno();
    let hit = |mark, gives| Hit { mark, recall: false, gives, seqno };
    match stage {
        Stage::Collecting => hit(Mark::Anyway(None), Gives::Yes),
        Stage::Certifying => Hit { recall: true, ..hit(Mark::Anyway(None), Gives::Yes) },
        // A fragment may be past it, and older; its transaction is not, and keeps the locks that somebody is in want of.
        Stage::Certified(_) if !ends => hit(Mark::Anyway(seqno), Gives::Yes),
        Stage::Certified(seqno) => {
            let is_older = by.is_some_and(|by| by > Seqno::ZERO && seqno < by);
            if is_older { hit(Mark::No, Gives::No) } else { hit(Mark::BeforeTurn(seqno), Gives::IfMarked) }
        }
        // It rolls back by itself; it is woken if it waits for the end of a pause meanwhile.
        Stage::Failed(seqno) => hit(Mark::BeforeTurn(seqno), Gives::No),
        Stage::Replaying(_) => hit(Mark::No, Gives::No),
    }
}

/// The fate of an ordered victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The group counts on it: it rolls back here, and is applied again when its turn comes.
    Replay,
    /// Its transaction rolls back, and its own thread closes the seqno as after a failed certification.
    RollBack,
}

/// `ends`: what was certified ends its transaction. A fragment before the last one does not.
pub fn fate(ends: bool) -> Fate {
    if ends { Fate::Replay } else { Fate::RollBack }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY: Option<Seqno> = Some(Seqno(5));

    #[test]
    fn what_is_not_ordered_gives_way_to_everybody() {
        for by in [BY, None] {
            let collecting = hit(Stage::Collecting, false, by);
            assert_eq!((collecting.mark, collecting.recall), (Mark::Anyway(None), false));
            assert!(collecting.gives_way(true));
            let sent = hit(Stage::Certifying, true, by);
            assert_eq!((sent.mark, sent.recall, sent.seqno), (Mark::Anyway(None), true, None));
            assert!(sent.gives_way(true));
        }
    }

    #[test]
    fn what_is_ordered_gives_way_to_what_is_ordered_before_it() {
        let newer = hit(Stage::Certified(Seqno(9)), true, BY);
        assert_eq!((newer.mark, newer.seqno), (Mark::BeforeTurn(Seqno(9)), Some(Seqno(9))));
        assert!(newer.gives_way(true) && !newer.gives_way(false), "it is in its turn already");
        let older = hit(Stage::Certified(Seqno(4)), true, BY);
        assert!(older.mark == Mark::No && !older.gives_way(false));
        for nowhere in [None, Some(Seqno::ZERO)] {
            assert_eq!(hit(Stage::Certified(Seqno(4)), true, nowhere).mark, Mark::BeforeTurn(Seqno(4)));
        }
    }

    #[test]
    fn a_streaming_transaction_gives_way_wherever_its_newest_fragment_is() {
        for at in [4, 9] {
            let fragment = hit(Stage::Certified(Seqno(at)), false, BY);
            assert_eq!(fragment.mark, Mark::Anyway(Some(Seqno(at))));
            assert!(fragment.gives_way(true));
        }
        assert_eq!((fate(true), fate(false)), (Fate::Replay, Fate::RollBack));
    }

    #[test]
    fn who_rolls_back_already_or_is_applied_again_is_left_alone() {
        let failed = hit(Stage::Failed(Seqno(9)), true, BY);
        assert!(failed.mark == Mark::BeforeTurn(Seqno(9)) && !failed.gives_way(true));
        let again = hit(Stage::Replaying(Seqno(9)), true, BY);
        assert!(again.mark == Mark::No && !again.gives_way(false));
    }
}
