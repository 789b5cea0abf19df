//! The `trireme` command: parse → resolve → run. Parsing has no effects; everything real happens in
//! `trireme-cluster` and `trireme-wslog`. Tables go to stdout, progress and errors to stderr.

#![forbid(unsafe_code)]

mod args;
mod ask;
mod bench;
mod chaos;
mod follow;
mod help;
mod log;
mod manual;
mod monitor;
mod outage;
mod resolve;
mod run;
mod secret;
mod table;
mod top;
mod trial;

use clap::FromArgMatches;
use std::path::Path;
use std::process::ExitCode;
use trireme_cluster::{Cancel, Error};

/// With the commit, under every name of the program.
const VERSION: &str = env!("TRIREME_VERSION");
/// As in every error: the command was understood, doing it failed.
const FAILED: u8 = 1;
/// `status`: not every node is Synced.
const DEGRADED: u8 = 3;
/// `bench`: a point failed; the others are in the report.
const INCOMPLETE: u8 = 3;
/// `chaos`: a promise was broken.
const BROKEN: u8 = 4;
/// 128 + SIGINT, as shells report it.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let called = std::env::args_os().next().unwrap_or_default();
    match Path::new(&called).file_name().and_then(|name| name.to_str()) {
        Some("garbd") => return trireme_arbitrator::garbd(VERSION, std::env::args_os()),
        Some("glbd") => return trireme_balance::glbd(VERSION, std::env::args_os()),
        Some(_) | None => {}
    }
    let typed = help::command().get_matches(); // wrong usage ends here with 2
    let args = args::Args::from_arg_matches(&typed).unwrap_or_else(|error| error.exit());
    let (dir, action) = match args.command {
        args::Command::Cluster { dir, action } => (dir, action),
        args::Command::Trial { dir, up } => {
            trial::enter_namespace();
            return exit(handle_ctrl_c().and_then(|cancel| trial::run(*up, dir, &cancel)), DEGRADED);
        }
        args::Command::Status(status) => return trireme_observe::status::run(&status),
        args::Command::Monitor(asked) => return monitor::run(&asked),
        args::Command::Top(asked) => return top::run(&asked),
        args::Command::Doctor(asked) if !asked.outage.is_empty() => return outage::run(&asked.outage, asked.json),
        args::Command::Doctor(asked) => return trireme_observe::examine::run(&asked),
        args::Command::Bundle(asked) => return trireme_observe::bundle::run(&asked),
        args::Command::Explain(explain) => return trireme_observe::explain::explain(&explain),
        args::Command::Events(events) => return trireme_observe::explain::events(&events),
        args::Command::Flight(flight) => return trireme_observe::flight::run(&flight),
        args::Command::Arbitrate(arbitrate) => return trireme_arbitrator::run(arbitrate),
        args::Command::Balance(balance) => return trireme_balance::run(balance),
        args::Command::Hosts(hosts) => return trireme_balance::run_hosts(hosts),
        args::Command::Log { action } => return log_exit(log::run(action)),
        args::Command::Secret { action } => return log_exit(secret::run(action).map(|()| log::Outcome::Done)),
        args::Command::Completions { shell } => {
            return log_exit(manual::completions(shell).map(|()| log::Outcome::Done));
        }
        args::Command::Manual { dir } => return log_exit(manual::write(&dir).map(|()| log::Outcome::Done)),
        args::Command::Bench(asked) => return bench::run(&asked),
        args::Command::Chaos { action, run } => {
            let outcome = chaos::enter_namespace(action.as_ref(), &run)
                .and_then(|()| handle_ctrl_c())
                .and_then(|cancel| chaos::run(action, *run, cancel));
            return exit(outcome, BROKEN);
        }
    };
    // A statement that hangs is ended with the process, by the signal itself: the server notices.
    let cancel = match &action {
        args::Action::Sql { .. } => Ok(Cancel::default()),
        _ => handle_ctrl_c(),
    };
    exit(cancel.and_then(|cancel| resolve::resolve(dir, action, cancel)).and_then(run::run), DEGRADED)
}

fn handle_ctrl_c() -> Result<Cancel, Error> {
    let cancel = Cancel::default();
    let handler = cancel.clone();
    ctrlc::set_handler(move || handler.set())
        .map_err(|error| Error::BadSpec(format!("cannot handle Ctrl-C: {error}")))?;
    Ok(cancel)
}

/// `degraded`: the code for done, but not well.
fn exit(outcome: Result<run::Outcome, Error>, degraded: u8) -> ExitCode {
    match outcome {
        Ok(run::Outcome::Done) => ExitCode::SUCCESS,
        Ok(run::Outcome::Degraded) => ExitCode::from(degraded),
        Err(Error::Interrupted) => {
            eprintln!("trireme: interrupted");
            ExitCode::from(INTERRUPTED)
        }
        Err(error) => {
            run::say(&format!("trireme: {error}"));
            ExitCode::from(FAILED)
        }
    }
}

fn log_exit(outcome: Result<log::Outcome, String>) -> ExitCode {
    match outcome {
        Ok(log::Outcome::Done) => ExitCode::SUCCESS,
        Ok(log::Outcome::Damaged) => ExitCode::from(FAILED),
        Err(reason) => {
            run::say(&format!("trireme: {reason}"));
            ExitCode::from(FAILED)
        }
    }
}
