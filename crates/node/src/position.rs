//! Where the server's data are, and who says so (rule 31).
//!
//! The state file, the command line and the log make claims. Only the storage engine knows, and it ends at another time than the provider. So
//! a stop records what the engine has on disk, and a start goes on from a position only if the engine confirms it: before the connection where
//! the engine can be asked then, else after the first view, which opens the engine, and before anything behind the position is handed out.

use std::fmt;

use trireme_order::LogStore;
use trireme_replicator::Position;
use trireme_replicator::position::{self, Reason, Refusal, Strict};
use trireme_types::{Seqno, Uuid};

use crate::Level;
use crate::host::Host;
use crate::log::Log;
use crate::recover::{self, Answer, Engine, RunError, Unknown, Untold};
use crate::saved::Saved;

/// Where a node begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settled {
    /// `None`: the data are of no use, or nobody knows where they are.
    pub position: Option<(Uuid, Seqno)>,
    pub engine: Engine,
}

impl Settled {
    /// Without data, or without anybody who asked for them.
    pub const NOTHING: Settled = Settled { position: None, engine: Engine::Left };
}

/// The storage engine's answer, and why there is none: with the last lines of the attempt to ask it.
type Told = position::Told<Untold, (RunError, Vec<String>)>;

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
        return Ok(Settled::NOTHING);
    }
    let opened = host.server.engine_position();
    if claim.is_none() {
        let text = "the position of the data is not known (unclean stop): asking the storage engine for it";
        host.log(Level::Info, text.into());
    }
    let (told, engine) = opened.map_or_else(|| ask(host), |found| (Told::At(found.into()), Engine::Runs));
    let strict = Strict::of(bootstrap, saved.is_on_disk() || saved.given() == claim);
    let position =
        weigh(claim.map(Into::into), history, told, strict, &|level, text| host.log(level, text))?.map(Into::into);
    saved.set_position(position);
    Ok(Settled { position, engine })
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

/// The claim against what the engine says. The operator is told what that comes to.
fn weigh(
    claim: Option<Position>,
    history: Uuid,
    told: Told,
    strict: Strict,
    say: &dyn Fn(Level, String),
) -> Result<Option<Position>, NoBeginning> {
    let weighed = position::weigh(claim, history, told, strict).map_err(|refusal| match refusal {
        Refusal::Elsewhere(Position { history: found, seqno }) => NoBeginning::Elsewhere { history, found, seqno },
        Refusal::Nowhere(untold) => NoBeginning::Nowhere { history, untold },
        Refusal::Unknown((error, said)) => {
            repeat(said, say);
            NoBeginning::Unknown { history, error }
        }
        Refusal::Unconfirmed(claimed, (error, said)) => {
            repeat(said, say);
            NoBeginning::Unconfirmed { history, claimed, error }
        }
    })?;
    match (weighed.reason, claim) {
        (Reason::NoEngine | Reason::Confirmed | Reason::Beginning, _) => {}
        (Reason::Corrected { found, claimed }, _) => say(
            Level::Warn,
            format!(
                "the storage engine is at {found}, not at {claimed} as grastate.dat or --wsrep-start-position has it: going on from where the \
                 engine is"
            ),
        ),
        (Reason::Found(found), _) => say(Level::Info, format!("recovered position {found}")),
        (Reason::Foreign(found), _) => {
            say(Level::Info, format!("recovered position {found} is not of history {history}: not used"));
        }
        (Reason::Nowhere(untold), Some(claim)) => say(
            Level::Warn,
            format!("the position {claim}, as grastate.dat or --wsrep-start-position has it, is not used: {untold}"),
        ),
        (Reason::Nowhere(untold), None) => say(Level::Info, unrecovered(&untold)),
        (Reason::Unheard((error, said)), _) => {
            repeat(said, say);
            say(Level::Warn, unrecovered(&error));
        }
    }
    Ok(weighed.position)
}

fn continues(log: &Log, saved: &Saved, history: Uuid) -> bool {
    !saved.is_damaged() && position::continues(history, log.base())
}

fn ask(host: &Host) -> (Told, Engine) {
    if host.server.process().is_none() {
        return (Told::Nobody, Engine::Closed);
    }
    match recover::position(&host.args.data_dir, &*host.server, &|text| host.log(Level::Info, text)) {
        Ok(Answer { position, engine }) => (Told::At(position.into()), engine),
        Err(Unknown::Untold(untold)) => (Told::Nowhere(untold), Engine::Left),
        Err(Unknown::Failed { reason, said }) => (Told::Unheard((reason, said)), Engine::Left),
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
pub fn of_half_done(host: &Host, log: &Log, saved: &Saved) -> Settled {
    let history = saved.unfinished();
    if !continues(log, saved, history) {
        return Settled::NOTHING;
    }
    host.log(
        Level::Info,
        "a statement was being executed when this server ended: asking the storage engine for its position, in case that no \
         member has whole data"
            .into(),
    );
    let (told, engine) = ask(host);
    let found = match told {
        Told::At(found) => Some(found),
        Told::Nowhere(untold) => {
            host.log(Level::Warn, unrecovered(&untold));
            saved.given().map(Into::into)
        }
        Told::Unheard((reason, said)) => {
            repeat(said, &|level, text| host.log(level, text));
            host.log(Level::Warn, unrecovered(&reason));
            saved.given().map(Into::into)
        }
        Told::Nobody => saved.given().map(Into::into),
    };
    Settled { position: position::of_half_done(history, found, log.base()).map(Into::into), engine }
}

/// **Errors:** a statement was cut off in the data, and nobody knows where they are: no history can go on with them.
pub fn refuse_half_done(log: &Log, saved: &Saved) -> Result<(), NoBeginning> {
    let history = saved.unfinished();
    if continues(log, saved, history) { Err(NoBeginning::HalfDone { history }) } else { Ok(()) }
}

/// The position as far as it counts for a node that joins: see [`position::with_log`].
pub fn with_log(host: &Host, log: &Log, position: Option<(Uuid, Seqno)>) -> Option<(Uuid, Seqno)> {
    let position = position.map(Position::from);
    let counts = position::with_log(position, log.base());
    if let (Some(position), None) = (position, counts) {
        host.log(
            Level::Info,
            format!("local state {position} has no write-set log that belongs to it: a full copy is needed"),
        );
    }
    counts.map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const HERE: Uuid = Uuid([1; 16]);
    const ELSEWHERE: Uuid = Uuid([2; 16]);

    fn at(seqno: u64) -> Option<Position> {
        Some(Position { history: HERE, seqno: Seqno(seqno) })
    }

    fn elsewhere() -> Told {
        Told::At(Position { history: ELSEWHERE, seqno: Seqno(9) })
    }

    fn failed() -> Told {
        Told::Unheard((RunError::ToldNothing, vec!["no tablespace".into()]))
    }

    /// The conclusion, and whether the operator hears of it.
    fn weighed(claim: Option<Position>, told: Told, strict: Strict) -> (Result<Option<Position>, String>, bool) {
        let warned = RefCell::new(false);
        let say = |level: Level, _: String| *warned.borrow_mut() |= level == Level::Warn;
        let result = weigh(claim, HERE, told, strict, &say).map_err(|why| why.to_string());
        (result, warned.into_inner())
    }

    #[test]
    fn the_operator_is_warned_where_a_claim_is_not_what_counts() {
        let told = |seqno| Told::At(Position { history: HERE, seqno: Seqno(seqno) });
        assert_eq!(weighed(at(9), told(9), Strict::No), (Ok(at(9)), false));
        assert_eq!(weighed(at(9), told(7), Strict::No), (Ok(at(7)), true));
        assert_eq!(weighed(None, told(7), Strict::No), (Ok(at(7)), false));
        assert_eq!(weighed(at(9), Told::Nowhere(Untold::NoPosition), Strict::No), (Ok(None), true));
        assert_eq!(weighed(None, failed(), Strict::No), (Ok(None), true));
        assert_eq!(weighed(at(9), failed(), Strict::No), (Ok(at(9)), true));
    }

    #[test]
    fn a_bootstrap_that_is_refused_says_what_can_be_done() {
        for strict in [Strict::Contradiction, Strict::Silence] {
            for claim in [at(9), None] {
                for told in [elsewhere(), Told::Nowhere(Untold::NoPosition)] {
                    let why = weighed(claim, told, strict).0.unwrap_err();
                    assert!(
                        why.contains("remove grastate.dat") && why.contains("without --wsrep-new-cluster"),
                        "{why}"
                    );
                }
            }
            let (why, warned) = weighed(None, failed(), strict);
            let why = why.unwrap_err();
            assert!(warned && why.contains(&format!("--wsrep-start-position={HERE}:SEQNO")), "{why}");
        }
        assert!(weighed(at(9), failed(), Strict::Silence).0.is_err());
    }
}
