//! Where the server's data are, and who says so (rule 31).
//!
//! The state file, the command line and the log make claims. Only the storage engine knows, and it ends at another time than the provider. So
//! a stop records what the engine has on disk, and a start goes on from a position only if the engine confirms it: before the connection where
//! the engine can be asked then, else after the first view, which opens the engine, and before anything behind the position is handed out.

use std::fmt;

use trireme_order::LogStore;
use trireme_types::{Seqno, Uuid};

use crate::Level;
use crate::host::Host;
use crate::log::Log;
use crate::recover::{self, RunError, Unknown, Untold};
use crate::saved::Saved;

/// Where a node begins.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Settled {
    /// `None`: the data are of no use, or nobody knows where they are.
    pub position: Option<(Uuid, Seqno)>,
    /// The engine that will run has not confirmed it yet.
    pub unconfirmed: bool,
}

/// What the storage engine says.
enum Told {
    At(Uuid, Seqno),
    /// It holds no position.
    None(Untold),
    /// There is no engine in this process, as in a test host.
    Nobody,
    /// It could not be asked, and the last lines of the attempt.
    Failed {
        reason: RunError,
        said: Vec<String>,
    },
}

/// The position of the server's data. The engine is asked in any case, before the first view: on files that are not of this history, the
/// server makes the view's position the engine's own, and nothing could be compared any more.
/// May take as long as the engine's crash recovery.
///
/// **Errors:** the cluster is to begin here, and these data are not known to be where the history would go on.
pub fn settle(host: &Host, log: &Log, saved: &mut Saved, bootstrap: bool) -> Result<Settled, NoBeginning> {
    let claim = saved.position();
    // A nil history in the state file says that there are no usable data: nothing was there yet, the data were left half
    // changed, or an operator has removed the file to get a full copy.
    let history = claim.map_or(saved.history(), |(history, _)| history);
    if claim.is_none() && !continues(log, saved, history) {
        return Ok(Settled::default());
    }
    let opened = host.server.engine_position();
    if claim.is_none() {
        let text = "the position of the data is not known (unclean stop): asking the storage engine for it";
        host.log(Level::Info, text.into());
    }
    let told = opened.map_or_else(|| ask(host), |(history, seqno)| Told::At(history, seqno));
    // What a stop found on disk, or somebody has just read from the engine for this start, is good enough where it cannot be asked.
    let vouched_for = saved.is_on_disk() || saved.given() == claim;
    let strict = match (bootstrap, vouched_for) {
        (false, _) => Strict::No,
        (true, true) => Strict::Contradiction,
        (true, false) => Strict::Silence,
    };
    let position = weigh(claim, history, told, strict, &|level, text| host.log(level, text))?;
    saved.set_position(position);
    Ok(Settled { position, unconfirmed: opened.is_none() })
}

/// What is an error and not only a reason to take a full copy: for a bootstrap, there is nobody to take one from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Strict {
    No,
    /// An engine that says something else, or a position that nobody knows.
    Contradiction,
    /// Also an engine that could not be asked.
    Silence,
}

/// Why a bootstrap is refused on data that belong to a history and are not where it could go on.
#[derive(Debug, thiserror::Error)]
pub enum NoBeginning {
    #[error("{}", refusal(history, format_args!("the storage engine is at {found}:{seqno}")))]
    Elsewhere { history: Uuid, found: Uuid, seqno: Seqno },
    #[error("{}", refusal(history, format_args!("{untold}")))]
    Nowhere { history: Uuid, untold: Untold },
    #[error(
        "{}. If you know the position, add --wsrep-start-position={history}:SEQNO",
        refusal(history, format_args!("their position could not be recovered: {error}"))
    )]
    Unknown { history: Uuid, error: RunError },
    #[error(
        "the storage engine could not be asked whether its data are at {history}:{claimed}: {error}. Find out why with mariadbd \
         --wsrep-recover; or remove grastate.dat to begin a new history with these data"
    )]
    Unconfirmed { history: Uuid, claimed: Seqno, error: RunError },
    #[error(
        "{}",
        refusal(history, format_args!("a statement was being executed when this server ended, and their position is not known"))
    )]
    HalfDone { history: Uuid },
}

fn refusal(history: &Uuid, why: fmt::Arguments<'_>) -> String {
    format!(
        "the data here belong to history {history}, but {why}. A bootstrap would begin a new history, and the other nodes would throw away what \
         they have of this one. To take the data from a node that has them, start this server without --wsrep-new-cluster (or \
         gcomm://). To begin a new history with the data that are here, remove grastate.dat and start it again"
    )
}

/// The claim against what the engine says.
fn weigh(
    claim: Option<(Uuid, Seqno)>,
    history: Uuid,
    told: Told,
    strict: Strict,
    say: &dyn Fn(Level, String),
) -> Result<Option<(Uuid, Seqno)>, NoBeginning> {
    // Whatever the data are, a history begins with them.
    let beginning = claim.filter(|(_, seqno)| *seqno == Seqno::ZERO);
    Ok(match told {
        Told::Nobody => claim,
        Told::At(found, seqno) if found == history => {
            match claim {
                Some((_, claimed)) if claimed != seqno => say(
                    Level::Warn,
                    format!(
                        "the storage engine is at {found}:{seqno}, not at {claimed} as grastate.dat or --wsrep-start-position has it: \
                         going on from where the engine is"
                    ),
                ),
                Some(_) => {}
                None => say(Level::Info, format!("recovered position {found}:{seqno}")),
            }
            Some((found, seqno))
        }
        Told::At(..) | Told::None(_) if beginning.is_some() => beginning,
        Told::At(found, seqno) if strict != Strict::No => {
            return Err(NoBeginning::Elsewhere { history, found, seqno });
        }
        Told::None(untold) if strict != Strict::No => return Err(NoBeginning::Nowhere { history, untold }),
        Told::At(found, seqno) => {
            say(Level::Info, format!("recovered position {found}:{seqno} is not of history {history}: not used"));
            None
        }
        Told::None(reason) => {
            match claim {
                Some((_, claimed)) => say(
                    Level::Warn,
                    format!(
                        "the position {history}:{claimed}, as grastate.dat or --wsrep-start-position has it, is not used: {reason}"
                    ),
                ),
                None => say(Level::Info, unrecovered(&reason)),
            }
            None
        }
        Told::Failed { reason, said } => {
            repeat(said, say);
            match (claim, beginning) {
                (None, _) if strict != Strict::No => {
                    return Err(NoBeginning::Unknown { history, error: reason });
                }
                (Some((_, claimed)), None) if strict == Strict::Silence => {
                    return Err(NoBeginning::Unconfirmed { history, claimed, error: reason });
                }
                _ => say(Level::Warn, unrecovered(&reason)),
            }
            claim
        }
    })
}

/// Is there something in the log with which data of this history could be gone on with, wherever they stand?
fn continues(log: &Log, saved: &Saved, history: Uuid) -> bool {
    !history.is_nil() && !saved.is_damaged() && log.base().history == history && log.last() != log.base().index
}

fn ask(host: &Host) -> Told {
    if host.server.process().is_none() {
        return Told::Nobody;
    }
    match recover::position(&host.args.data_dir, &*host.server, |text| host.log(Level::Info, text)) {
        Ok((history, seqno)) => Told::At(history, seqno),
        Err(Unknown::Untold(untold)) => Told::None(untold),
        Err(Unknown::Failed { reason, said }) => Told::Failed { reason, said },
    }
}

/// As warnings: an operator may be able to mend the cause.
fn repeat(said: Vec<String>, say: &dyn Fn(Level, String)) {
    for line in said {
        say(Level::Warn, format!("the recovery run said: {line}"));
    }
}

fn unrecovered(why: &dyn fmt::Display) -> String {
    format!("the position could not be recovered: {why}")
}

/// Where data with a statement cut off in them are. They are good for nothing as long as anybody has whole ones; if nobody has,
/// one member executes the statement again (rule 26).
pub fn of_half_done(host: &Host, log: &Log, saved: &Saved) -> Option<(Uuid, Seqno)> {
    let history = saved.unfinished();
    if !continues(log, saved, history) {
        return None;
    }
    host.log(
        Level::Info,
        "a statement was being executed when this server ended: asking the storage engine for its position, in case that no \
         member has whole data"
            .into(),
    );
    let found = match ask(host) {
        Told::At(history, seqno) => Some((history, seqno)),
        Told::None(untold) => {
            host.log(Level::Warn, unrecovered(&untold));
            saved.given()
        }
        Told::Failed { reason, said } => {
            repeat(said, &|level, text| host.log(level, text));
            host.log(Level::Warn, unrecovered(&reason));
            saved.given()
        }
        Told::Nobody => saved.given(),
    };
    found.filter(|(h, seqno)| *h == history && *seqno >= log.base().seqno)
}

/// **Errors:** a statement was cut off in the data, and nobody knows where they are: no history can go on with them.
pub fn refuse_half_done(log: &Log, saved: &Saved) -> Result<(), NoBeginning> {
    let history = saved.unfinished();
    if continues(log, saved, history) { Err(NoBeginning::HalfDone { history }) } else { Ok(()) }
}

/// To join, a position counts only together with the log that led there: nothing else says on which branch of the history it
/// lies (rule 18).
pub fn with_log(host: &Host, log: &Log, position: Option<(Uuid, Seqno)>) -> Option<(Uuid, Seqno)> {
    let (history, seqno) = position?;
    if log.base().history == history {
        return Some((history, seqno));
    }
    host.log(
        Level::Info,
        format!("local state {history}:{seqno} has no write-set log that belongs to it: a full copy is needed"),
    );
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const HERE: Uuid = Uuid([1; 16]);
    const ELSEWHERE: Uuid = Uuid([2; 16]);

    fn at(seqno: u64) -> Option<(Uuid, Seqno)> {
        Some((HERE, Seqno(seqno)))
    }

    fn failed() -> Told {
        Told::Failed { reason: RunError::ToldNothing, said: vec!["no tablespace".into()] }
    }

    /// What it comes to, and whether the operator hears of it.
    fn weighed(
        claim: Option<(Uuid, Seqno)>,
        told: Told,
        strict: Strict,
    ) -> (Result<Option<(Uuid, Seqno)>, String>, bool) {
        let warned = RefCell::new(false);
        let say = |level: Level, _: String| *warned.borrow_mut() |= level == Level::Warn;
        let result = weigh(claim, HERE, told, strict, &say).map_err(|why| why.to_string());
        (result, warned.into_inner())
    }

    #[test]
    fn the_engine_goes_before_every_claim() {
        for strict in [Strict::No, Strict::Contradiction, Strict::Silence] {
            assert_eq!(weighed(at(9), Told::At(HERE, Seqno(9)), strict), (Ok(at(9)), false));
            assert_eq!(weighed(at(9), Told::At(HERE, Seqno(7)), strict), (Ok(at(7)), true));
            assert_eq!(weighed(None, Told::At(HERE, Seqno(7)), strict), (Ok(at(7)), false));
        }
    }

    #[test]
    fn a_joiner_takes_a_copy_where_the_engine_contradicts() {
        for told in [Told::At(ELSEWHERE, Seqno(9)), Told::None(Untold::NoPosition)] {
            assert_eq!(weighed(at(9), told, Strict::No).0, Ok(None));
        }
        assert_eq!(weighed(None, failed(), Strict::No), (Ok(None), true));
        assert_eq!(weighed(at(9), failed(), Strict::No), (Ok(at(9)), true), "compared once the engine runs");
    }

    #[test]
    fn a_bootstrap_is_refused_where_the_engine_contradicts() {
        for strict in [Strict::Contradiction, Strict::Silence] {
            for claim in [at(9), None] {
                for told in [Told::At(ELSEWHERE, Seqno(9)), Told::None(Untold::NoPosition)] {
                    let why = weighed(claim, told, strict).0.unwrap_err();
                    assert!(
                        why.contains("remove grastate.dat") && why.contains("without --wsrep-new-cluster"),
                        "{why}"
                    );
                }
            }
            let why = weighed(None, failed(), strict).0.unwrap_err();
            assert!(why.contains(&format!("--wsrep-start-position={HERE}:SEQNO")), "{why}");
        }
        assert!(weighed(at(9), failed(), Strict::Silence).0.is_err());
        assert_eq!(weighed(at(9), failed(), Strict::Contradiction).0, Ok(at(9)), "somebody vouches for it");
    }

    #[test]
    fn a_history_begins_with_whatever_data_there_are() {
        let beginning = at(0);
        for strict in [Strict::No, Strict::Contradiction, Strict::Silence] {
            for told in [Told::At(ELSEWHERE, Seqno(9)), Told::None(Untold::NoPosition), failed(), Told::Nobody] {
                assert_eq!(weighed(beginning, told, strict).0, Ok(beginning));
            }
        }
    }
}
