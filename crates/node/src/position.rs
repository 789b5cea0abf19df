//! Where the server's data are, and who says so (rule 31).
//!
//! The state file, the command line and the log make claims. Only the storage engine knows, and it ends at another time than the provider. So
//! a stop records what the engine has on disk, and a start goes on from a position only if the engine confirms it: before the connection where
//! the engine can be asked then, else after the first view, which opens the engine, and before anything behind the position is handed out.

use std::time::{Duration, Instant};

use trireme_order::LogStore;
use trireme_types::{Seqno, Uuid};

use crate::core::Log;
use crate::node::Shared;
use crate::recover::{self, Unknown};
use crate::saved::Saved;
use crate::{EngineLog, Level, Server};

// --- at the start ------------------------------------------------------------------------------------------------------------------

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
    /// It holds no position; in words.
    None(String),
    /// There is no engine in this process, as in a test host.
    Nobody,
    /// It could not be asked, and the last lines of the attempt.
    Failed {
        reason: String,
        said: Vec<String>,
    },
}

/// The position of the server's data. The engine is asked in any case, before the first view: on files that are not of this history, the
/// server makes the view's position the engine's own, and nothing could be compared any more.
/// May take as long as the engine's crash recovery.
///
/// **Errors:** the cluster is to begin from a position that the engine could not be asked about.
pub fn settle(shared: &Shared, log: &Log, saved: &mut Saved, bootstrap: bool) -> Result<Settled, String> {
    let claim = saved.position();
    // A nil history in the state file says that there are no usable data: nothing was there yet, the data were left half
    // changed, or an operator has removed the file to get a full copy.
    let history = claim.map_or(saved.history(), |(history, _)| history);
    if claim.is_none() && !continues(log, saved, history) {
        return Ok(Settled::default());
    }
    let opened = shared.server.engine_position();
    if claim.is_none() {
        let text = "the position of the data is not known (unclean stop): asking the storage engine for it";
        shared.log(Level::Info, text.into());
    }
    let told = opened.map_or_else(|| ask(shared), |(history, seqno)| Told::At(history, seqno));
    // What a stop found on disk, or somebody has just read from the engine for this start, is good enough where it cannot be asked.
    let vouched_for = saved.is_on_disk() || saved.given() == claim;
    let position = weigh(claim, history, told, bootstrap && !vouched_for, &|level, text| shared.log(level, text))?;
    saved.set_position(position);
    Ok(Settled { position, unconfirmed: opened.is_none() })
}

/// The claim against what the engine says. `strict`: a claim that cannot be compared is an error.
fn weigh(
    claim: Option<(Uuid, Seqno)>,
    history: Uuid,
    told: Told,
    strict: bool,
    say: &dyn Fn(Level, String),
) -> Result<Option<(Uuid, Seqno)>, String> {
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
                None => say(Level::Info, format!("the position could not be recovered: {reason}")),
            }
            None
        }
        Told::Failed { reason, said } => {
            // What an operator can mend is a warning.
            for line in said {
                say(Level::Warn, format!("the recovery run said: {line}"));
            }
            match (claim, beginning) {
                (Some((_, claimed)), None) if strict => {
                    return Err(format!(
                        "the storage engine could not be asked whether its data are at {history}:{claimed}: {reason}. Find out why with \
                         mariadbd --wsrep-recover; or remove grastate.dat to begin a new history with these data"
                    ));
                }
                _ => say(Level::Warn, format!("the position could not be recovered: {reason}")),
            }
            claim
        }
    })
}

/// Is there something in the log with which data of this history could be gone on with, wherever they stand?
fn continues(log: &Log, saved: &Saved, history: Uuid) -> bool {
    !history.is_nil() && !saved.is_damaged() && log.base().history == history && log.last() != log.base().index
}

fn ask(shared: &Shared) -> Told {
    if shared.server.process().is_none() {
        return Told::Nobody;
    }
    match recover::position(&shared.args.data_dir, &*shared.server) {
        Ok((history, seqno)) => Told::At(history, seqno),
        Err(Unknown::Untold(reason)) => Told::None(reason),
        Err(Unknown::Failed { reason, said }) => Told::Failed { reason, said },
    }
}

/// Where data with a statement cut off in them are. They are good for nothing as long as anybody has whole ones; if nobody has,
/// one member executes the statement again (rule 26).
pub fn of_half_done(shared: &Shared, log: &Log, saved: &Saved) -> Option<(Uuid, Seqno)> {
    let history = saved.unfinished();
    if !continues(log, saved, history) {
        return None;
    }
    shared.log(
        Level::Info,
        "a statement was being executed when this server ended: asking the storage engine for its position, in case that no \
         member has whole data"
            .into(),
    );
    let found = match ask(shared) {
        Told::At(history, seqno) => Some((history, seqno)),
        Told::None(reason) | Told::Failed { reason, said: _ } => {
            shared.log(Level::Warn, format!("the position could not be recovered: {reason}"));
            saved.given()
        }
        Told::Nobody => saved.given(),
    };
    found.filter(|(h, seqno)| *h == history && *seqno >= log.base().seqno)
}

/// To join, a position counts only together with the log that led there: nothing else says on which branch of the history it
/// lies (rule 18).
pub fn with_log(shared: &Shared, log: &Log, position: Option<(Uuid, Seqno)>) -> Option<(Uuid, Seqno)> {
    let (history, seqno) = position?;
    if log.base().history == history {
        return Some((history, seqno));
    }
    shared.log(
        Level::Info,
        format!("local state {history}:{seqno} has no write-set log that belongs to it: a full copy is needed"),
    );
    None
}

// --- when the engine runs ----------------------------------------------------------------------------------------------------------

/// On whose word a node goes on from a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// The storage engine has to hold it.
    Engine,
    /// The operator says that the data are the group's (`wsrep_sst_method=skip`). An engine that was in this history contradicts that if it
    /// is elsewhere in it; one that was not has nothing to say.
    Operator,
}

/// Compares a position with that of the engine, which runs. Where no engine is in the process there is nothing to compare with. May wait
/// for the engine.
///
/// **Errors:** where the engine is instead, in words.
pub fn compare(server: &dyn Server, (history, seqno): (Uuid, Seqno), word: Word) -> Result<(), String> {
    match (server.engine_position(), word) {
        (Some(found), _) if found == (history, seqno) => Ok(()),
        (Some((found, at)), _) if found == history => Err(format!("at {at}")),
        (Some(_) | None, Word::Operator) => Ok(()),
        (Some((found, at)), Word::Engine) => Err(format!("at {found}:{at}")),
        (None, Word::Engine) if server.process().is_some() => Err("without a position".into()),
        (None, Word::Engine) => Ok(()),
    }
}

// --- at the stop -------------------------------------------------------------------------------------------------------------------

/// How long a stop waits for the engine to flush its log. InnoDB does so every second unless told otherwise.
const FLUSH_MAX: Duration = Duration::from_secs(5);
/// How often the engine is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a stop may say of the position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The storage engine has it on disk.
    OnDisk(Seqno),
    /// The node closed everything up to there; no engine tells what it has on disk. The next start asks.
    Claimed(Seqno),
    /// A crash from here on leaves the engine somewhere else. The next start asks.
    Unknown,
}

/// The position of data that nobody changes any more. `left`: what has left commit order. Waits for the engine's log, a few seconds at most:
/// for a thread that may.
pub fn at_stop(server: &dyn Server, history: Uuid, left: Seqno) -> Stop {
    let Some((found, seqno)) = server.engine_position() else {
        return if server.process().is_some() { Stop::Unknown } else { Stop::Claimed(left) };
    };
    if found != history {
        return Stop::Unknown;
    }
    let until = Instant::now() + FLUSH_MAX;
    let mut end = None;
    loop {
        match server.engine_log() {
            EngineLog::At { written, durable } if durable >= *end.get_or_insert(written) => return Stop::OnDisk(seqno),
            EngineLog::At { .. } if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
            EngineLog::At { .. } | EngineLog::Closed => return Stop::Unknown,
            EngineLog::Silent => return Stop::Claimed(seqno),
        }
    }
}
