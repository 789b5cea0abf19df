//! The `trireme` command: parse → resolve → run. Parsing has no effects; everything real happens in
//! `trireme-cluster` and `trireme-wslog`. Tables go to stdout, progress and errors to stderr.

#![forbid(unsafe_code)]

mod args;
mod follow;
mod log;
mod resolve;
mod run;
mod table;

use clap::Parser;
use std::process::ExitCode;
use trireme_cluster::{Cancel, Error};

/// As in every error: the command was understood, doing it failed.
const FAILED: u8 = 1;
/// `status`: not every node is Synced.
const DEGRADED: u8 = 3;
/// 128 + SIGINT, as shells report it.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let args = args::Args::parse(); // wrong usage ends here with 2
    let (dir, action) = match args.command {
        args::Command::Cluster { dir, action } => (dir, action),
        args::Command::Log { action } => return log_exit(log::run(action)),
    };
    let cancel = Cancel::default();
    let handler = cancel.clone();
    if let Err(error) = ctrlc::set_handler(move || handler.set()) {
        eprintln!("trireme: cannot handle Ctrl-C: {error}");
        return ExitCode::from(FAILED);
    }
    let outcome = resolve::resolve(dir, action, cancel).and_then(run::run);
    match outcome {
        Ok(run::Outcome::Done) => ExitCode::SUCCESS,
        Ok(run::Outcome::Degraded) => ExitCode::from(DEGRADED),
        Err(Error::Interrupted) => {
            eprintln!("trireme: interrupted");
            ExitCode::from(INTERRUPTED)
        }
        Err(error) => {
            eprintln!("trireme: {error}");
            ExitCode::from(FAILED)
        }
    }
}

fn log_exit(outcome: Result<log::Outcome, String>) -> ExitCode {
    match outcome {
        Ok(log::Outcome::Done) => ExitCode::SUCCESS,
        Ok(log::Outcome::Damaged) => ExitCode::from(FAILED),
        Err(reason) => {
            eprintln!("trireme: {reason}");
            ExitCode::from(FAILED)
        }
    }
}
