//! Where the server's data are, and whose word that is (rule 31): what a start goes on from, what an engine that runs confirms, and what a
//! stop may record.
//!
//! The state file, the command line and the log make claims. Only the storage engine knows. It is asked by a node, or by the simulator;
//! here it is decided what the answer means.

use std::fmt;

use trireme_types::{Base, Seqno, Timestamp, Uuid};

use crate::Position;
use crate::retention::{EngineLog, FirstLook};

impl From<(Uuid, Seqno)> for Position {
    fn from((history, seqno): (Uuid, Seqno)) -> Position {
        Position { history, seqno }
    }
}

impl From<Position> for (Uuid, Seqno) {
    fn from(position: Position) -> (Uuid, Seqno) {
        (position.history, position.seqno)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.history, self.seqno)
    }
}

/// The storage engine's answer when it is asked before the server begins. `N`: why it holds no position; `U`: why it could
/// not be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told<N = (), U = ()> {
    At(Position),
    Nowhere(N),
    /// There is no engine, as in a test host.
    Nobody,
    Unheard(U),
}

/// The findings that are an error and not only a reason to take a full copy: for a bootstrap, there is nobody to take one
/// from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strict {
    No,
    /// An engine that says something else, or a position that nobody knows.
    Contradiction,
    /// Also an engine that could not be asked.
    Silence,
}

impl Strict {
    /// `vouched_for`: a stop found the claim on disk, or somebody has just read it from the engine for this start. That is good enough
    /// where the engine cannot be asked.
    pub fn of(bootstrap: bool, vouched_for: bool) -> Strict {
        match (bootstrap, vouched_for) {
            (false, _) => Strict::No,
            (true, true) => Strict::Contradiction,
            (true, false) => Strict::Silence,
        }
    }
}

/// Why a position is gone on from, or is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason<N = (), U = ()> {
    /// There is no engine that could say otherwise.
    NoEngine,
    /// The engine is where the claim says.
    Confirmed,
    /// The engine is elsewhere in the same history: it goes before every claim.
    Corrected { found: Position, claimed: Seqno },
    /// Nobody had claimed anything, and the engine knows.
    Found(Position),
    /// A history begins with the data, whatever they are.
    Beginning,
    /// The engine is in another history.
    Foreign(Position),
    /// The engine holds no position.
    Nowhere(N),
    /// The engine could not be asked: the claim stands until the engine runs.
    Unheard(U),
}

/// From where a server goes on. No position: its data are of no use, or nobody knows where they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weighed<N = (), U = ()> {
    pub position: Option<Position>,
    pub reason: Reason<N, U>,
}

/// Why no history is begun with these data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal<N = (), U = ()> {
    /// The engine is there.
    Elsewhere(Position),
    /// The engine holds no position.
    Nowhere(N),
    /// Nobody claims to know, and the engine could not be asked.
    Unknown(U),
    /// It could not be asked whether the data are at this seqno.
    Unconfirmed(Seqno, U),
}

/// The claim against what the engine says. `history`: which one the data are of, as far as the claim or the state file says.
///
/// **Errors:** a history is to begin with these data, and it is not known that they are where it would go on.
pub fn weigh<N, U>(
    claim: Option<Position>,
    history: Uuid,
    told: Told<N, U>,
    strict: Strict,
) -> Result<Weighed<N, U>, Refusal<N, U>> {
    let begins = claim.is_some_and(|at| at.seqno == Seqno::ZERO);
    let (position, reason) = match (told, claim) {
        (Told::Nobody, _) => (claim, Reason::NoEngine),
        (Told::At(found), claim) if found.history == history => {
            let reason = match claim {
                None => Reason::Found(found),
                Some(claim) if claim.seqno == found.seqno => Reason::Confirmed,
                Some(claim) => Reason::Corrected { found, claimed: claim.seqno },
            };
            (Some(found), reason)
        }
        (Told::At(_) | Told::Nowhere(_), _) if begins => (claim, Reason::Beginning),
        (Told::At(found), _) if strict != Strict::No => return Err(Refusal::Elsewhere(found)),
        (Told::Nowhere(why), _) if strict != Strict::No => return Err(Refusal::Nowhere(why)),
        (Told::At(found), _) => (None, Reason::Foreign(found)),
        (Told::Nowhere(why), _) => (None, Reason::Nowhere(why)),
        (Told::Unheard(why), None) if strict != Strict::No => return Err(Refusal::Unknown(why)),
        (Told::Unheard(why), Some(claim)) if strict == Strict::Silence && !begins => {
            return Err(Refusal::Unconfirmed(claim.seqno, why));
        }
        (Told::Unheard(why), _) => (claim, Reason::Unheard(why)),
    };
    Ok(Weighed { position, reason })
}

/// Could data of this history be gone on with by the log that begins behind `base`, wherever they stand? If not, nobody asks the engine about
/// data that nobody claims anything of. A log without entries counts as well: it has just begun behind a full copy, or behind the
/// data from which a new branch begins, and these may be the only ones.
pub fn continues(history: Uuid, base: &Base) -> bool {
    !history.is_nil() && base.history == history
}

/// To join, a position counts only together with the log that led there: nothing else says on which branch of the history it lies
/// (rule 18).
pub fn with_log(position: Option<Position>, base: &Base) -> Option<Position> {
    position.filter(|at| at.history == base.history)
}

/// Data of `history` with a statement cut off in them, which the engine, or the command line, says to be `at`: the place from which a log
/// goes on with them, if nobody has whole data (rule 26).
pub fn of_half_done(history: Uuid, at: Option<Position>, base: &Base) -> Option<Position> {
    at.filter(|at| at.history == history && at.seqno >= base.seqno)
}

/// On whose word a node goes on from a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// The storage engine has to hold it.
    Engine,
    /// The operator says that the data are the group's (`wsrep_sst_method=skip`). An engine that was in this history contradicts that if it
    /// is elsewhere in it; one that was not has nothing to say.
    Operator,
}

/// Where an engine is that is not where it is to be gone on from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Elsewhere {
    #[error("at {0}")]
    At(Seqno),
    /// In another history.
    #[error("at {0}")]
    In(Position),
    #[error("without a position")]
    Nowhere,
}

/// Compares a position with that of the engine, which runs. `engine`: is there one that could tell? If not, there is nothing to compare
/// with.
///
/// **Errors:** where the engine is instead.
pub fn compare(found: Option<Position>, engine: bool, at: Position, word: Word) -> Result<(), Elsewhere> {
    match (found, word) {
        (Some(found), _) if found == at => Ok(()),
        (Some(found), _) if found.history == at.history => Err(Elsewhere::At(found.seqno)),
        (Some(_) | None, Word::Operator) => Ok(()),
        (Some(found), Word::Engine) => Err(Elsewhere::In(found)),
        (None, Word::Engine) if engine => Err(Elsewhere::Nowhere),
        (None, Word::Engine) => Ok(()),
    }
}

/// The position that a stop may write down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The storage engine has it on disk.
    OnDisk(Seqno),
    /// The node closed everything up to there; no engine tells what it has on disk, or none has shown that it is true. The next start asks.
    Claimed(Seqno),
    /// A crash from here on leaves the engine somewhere else. The next start asks.
    Unknown,
}

/// A stop that waits until the engine has on disk what it has in memory.
#[derive(Clone, Copy, Debug)]
pub struct Stopping {
    seqno: Seqno,
    /// The end of the engine's log at the first look of this stop.
    end: Option<u64>,
    /// The first one of this process, as far as there was one.
    first: Option<FirstLook>,
}

impl Stopping {
    /// The position of data that nobody changes any more. `left`: what has left commit order; `ended`: what of that has ended. With a binary
    /// log a commit leaves first and reaches the engine later, and where the engine is meanwhile is not where it will be. `found`: where it
    /// is; `engine`: there is one that could tell; `first`: the first look at its log in this process.
    ///
    /// **Errors:** there is nothing to wait for.
    pub fn begin(
        history: Uuid,
        left: Seqno,
        ended: Seqno,
        found: Option<Position>,
        engine: bool,
        first: Option<FirstLook>,
    ) -> Result<Stopping, Stop> {
        match found {
            _ if ended < left => Err(Stop::Unknown),
            Some(found) if found.history == history => Ok(Stopping { seqno: found.seqno, end: None, first }),
            Some(_) => Err(Stop::Unknown),
            None if engine => Err(Stop::Unknown),
            None => Err(Stop::Claimed(left)),
        }
    }

    /// The engine's log was looked at; `last`: it is not waited for any longer. `None`: it is to be looked at again.
    pub fn look(&mut self, log: EngineLog, now: Timestamp, last: bool) -> Option<Stop> {
        match log {
            EngineLog::At { written, durable } => {
                let proved = self.first.get_or_insert(FirstLook::new(durable, now)).proves(durable, now);
                match durable >= *self.end.get_or_insert(written) {
                    true if proved => Some(Stop::OnDisk(self.seqno)),
                    true => Some(Stop::Claimed(self.seqno)),
                    false => last.then_some(Stop::Unknown),
                }
            }
            EngineLog::Closed => Some(Stop::Unknown),
            EngineLog::Silent => Some(Stop::Claimed(self.seqno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use trireme_types::LogIndex;

    use super::*;

    const HERE: Uuid = Uuid([1; 16]);
    const ELSEWHERE: Uuid = Uuid([2; 16]);
    const ALL: [Strict; 3] = [Strict::No, Strict::Contradiction, Strict::Silence];

    fn at(seqno: u64) -> Position {
        Position { history: HERE, seqno: Seqno(seqno) }
    }

    fn there(seqno: u64) -> Position {
        Position { history: ELSEWHERE, seqno: Seqno(seqno) }
    }

    fn weighed(claim: Option<Position>, told: Told, strict: Strict) -> Result<(Option<Position>, Reason), Refusal> {
        weigh(claim, HERE, told, strict).map(|weighed| (weighed.position, weighed.reason))
    }

    #[test]
    fn the_engine_goes_before_every_claim() {
        for strict in ALL {
            assert_eq!(weighed(Some(at(9)), Told::At(at(9)), strict), Ok((Some(at(9)), Reason::Confirmed)));
            let corrected = Reason::Corrected { found: at(7), claimed: Seqno(9) };
            assert_eq!(weighed(Some(at(9)), Told::At(at(7)), strict), Ok((Some(at(7)), corrected)));
            assert_eq!(weighed(None, Told::At(at(7)), strict), Ok((Some(at(7)), Reason::Found(at(7)))));
        }
    }

    #[test]
    fn a_joiner_takes_a_copy_where_the_engine_contradicts() {
        assert_eq!(weighed(Some(at(9)), Told::At(there(9)), Strict::No), Ok((None, Reason::Foreign(there(9)))));
        assert_eq!(weighed(Some(at(9)), Told::Nowhere(()), Strict::No), Ok((None, Reason::Nowhere(()))));
        assert_eq!(weighed(None, Told::Unheard(()), Strict::No), Ok((None, Reason::Unheard(()))));
        assert_eq!(
            weighed(Some(at(9)), Told::Unheard(()), Strict::No),
            Ok((Some(at(9)), Reason::Unheard(()))),
            "compared later"
        );
    }

    #[test]
    fn a_bootstrap_is_refused_where_the_engine_contradicts() {
        for vouched_for in [true, false] {
            let strict = Strict::of(true, vouched_for);
            for claim in [Some(at(9)), None] {
                assert_eq!(weighed(claim, Told::At(there(9)), strict), Err(Refusal::Elsewhere(there(9))));
                assert_eq!(weighed(claim, Told::Nowhere(()), strict), Err(Refusal::Nowhere(())));
            }
            assert_eq!(weighed(None, Told::Unheard(()), strict), Err(Refusal::Unknown(())));
        }
        assert_eq!(
            weighed(Some(at(9)), Told::Unheard(()), Strict::of(true, false)),
            Err(Refusal::Unconfirmed(Seqno(9), ()))
        );
        let vouched_for = weighed(Some(at(9)), Told::Unheard(()), Strict::of(true, true));
        assert_eq!(vouched_for, Ok((Some(at(9)), Reason::Unheard(()))));
    }

    #[test]
    fn a_history_begins_with_whatever_data_there_are() {
        for strict in ALL {
            for told in [Told::At(there(9)), Told::Nowhere(()), Told::Unheard(()), Told::Nobody] {
                assert_eq!(weighed(Some(at(0)), told, strict).map(|w| w.0), Ok(Some(at(0))), "{told:?}");
            }
        }
    }

    #[test]
    fn a_position_counts_together_with_a_log_that_goes_on_from_there() {
        let base = Base { history: HERE, index: LogIndex(5), seqno: Seqno(4), ..Base::default() };
        assert!(continues(HERE, &base), "whatever is in it");
        assert!(!continues(ELSEWHERE, &base) && !continues(Uuid::NIL, &Base::default()));
        assert_eq!(with_log(Some(at(9)), &base), Some(at(9)));
        assert_eq!(with_log(Some(there(9)), &base), None);
        assert_eq!(of_half_done(HERE, Some(at(4)), &base), Some(at(4)));
        assert_eq!(of_half_done(HERE, Some(at(3)), &base), None, "the log begins behind it");
        assert_eq!(of_half_done(HERE, Some(there(9)), &base), None);
    }

    #[test]
    fn a_stop_records_what_the_engine_has_on_disk_and_nothing_that_the_next_start_could_not_rely_on() {
        let begin = |found, ended, engine| Stopping::begin(HERE, Seqno(9), Seqno(ended), found, engine, None);
        let look = |stop: &mut Stopping, written, durable, last| {
            stop.look(EngineLog::At { written, durable }, Timestamp::ZERO, last)
        };
        let mut stop = begin(Some(at(9)), 9, true).unwrap();
        assert_eq!(look(&mut stop, 100, 50, false), None);
        assert_eq!(look(&mut stop, 120, 99, false), None);
        assert_eq!(look(&mut stop, 130, 100, false), Some(Stop::OnDisk(Seqno(9))), "up to where it was at first");
        let begun = || begin(Some(at(9)), 9, true).unwrap();
        assert_eq!(look(&mut begun(), 100, 99, true), Some(Stop::Unknown), "too late");
        assert_eq!(begun().look(EngineLog::Closed, Timestamp::ZERO, false), Some(Stop::Unknown));
        assert_eq!(begun().look(EngineLog::Silent, Timestamp::ZERO, false), Some(Stop::Claimed(Seqno(9))));
        let at_once = |found, ended, engine| begin(found, ended, engine).unwrap_err();
        assert_eq!(at_once(Some(at(8)), 8, true), Stop::Unknown, "a commit is under way");
        assert_eq!(at_once(Some(there(9)), 9, true), Stop::Unknown);
        assert_eq!(at_once(None, 9, true), Stop::Unknown);
        assert_eq!(at_once(None, 9, false), Stop::Claimed(Seqno(9)), "nobody to ask");
    }

    #[test]
    fn a_stop_does_not_vouch_for_what_the_engine_only_read_back() {
        let look = |first: Option<FirstLook>, durable, now| {
            let mut stop = Stopping::begin(HERE, Seqno(9), Seqno(9), Some(at(9)), true, first).unwrap();
            stop.look(EngineLog::At { written: 100, durable }, now, false)
        };
        let first = Some(FirstLook::new(100, Timestamp::ZERO));
        assert_eq!(look(first, 100, Timestamp::ZERO), Some(Stop::Claimed(Seqno(9))), "a killed process wrote it");
        assert_eq!(look(None, 100, Timestamp::ZERO), Some(Stop::Claimed(Seqno(9))), "nobody has looked before");
        assert_eq!(look(first, 101, Timestamp::ZERO), Some(Stop::OnDisk(Seqno(9))), "a sync of this one");
        let later = Timestamp::ZERO.after(crate::retention::UNSEEN_FLUSH_MAX);
        assert_eq!(look(first, 100, later), Some(Stop::OnDisk(Seqno(9))), "the kernel has written it");
    }

    #[test]
    fn an_engine_that_runs_confirms_or_contradicts() {
        assert_eq!(compare(Some(at(9)), true, at(9), Word::Engine), Ok(()));
        assert_eq!(compare(Some(at(8)), true, at(9), Word::Engine), Err(Elsewhere::At(Seqno(8))));
        assert_eq!(compare(Some(at(8)), true, at(9), Word::Operator), Err(Elsewhere::At(Seqno(8))));
        assert_eq!(compare(Some(there(9)), true, at(9), Word::Engine), Err(Elsewhere::In(there(9))));
        assert_eq!(compare(None, true, at(9), Word::Engine), Err(Elsewhere::Nowhere));
        assert_eq!(compare(None, true, at(9), Word::Operator), Ok(()));
        assert_eq!(compare(None, false, at(9), Word::Engine), Ok(()), "nobody to ask");
    }
}
