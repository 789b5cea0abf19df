//! `trireme balance`: clients find the right server of a group, and do not hang when it dies.
//!
//! The deciding part is pure: [`pool`] (servers, sessions, who gets the next client) with [`health`], [`writer`] and [`policy`], and the
//! formats [`packet`], [`proxy`], [`report`], [`control`], [`view`]. `shell` owns sockets, tasks and clocks, and decides nothing.
//!
//! **Invariant:** bytes between a client and its server are not interpreted after the server's first packet, but for clients of a `--split`
//! listener ([`split`]), and theirs are not changed.

#![deny(unsafe_code)] // but for received descriptors, see `shell::handover`, and for forks, see `glbd` and `shell::upgrade`

mod address;
mod config;
mod control;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod glbd;
mod health;
mod hosts;
mod options;
mod packet;
mod policy;
mod pool;
mod proxy;
mod report;
mod shell;
mod split;
mod targets;
mod view;
mod writer;

use std::process::ExitCode;

pub use address::{Address, hash};
pub use glbd::glbd;
pub use hosts::{Hosts, run as run_hosts};
use options::Action;
pub use options::Balance;
pub use policy::{Candidate, Chooser, Policy};
pub use pool::NodeId;
use shell::Extra;
pub use shell::{Answer, Body, Feed, Request, serve_monitor};
pub use targets::Targets;

/// `trireme balance`. Until it ends; the exit code is documented in the command's help.
pub fn run(asked: Balance) -> ExitCode {
    let outcome = match asked.action {
        None => shell::serve(*asked.serve, Extra::default()),
        Some(Action::Top { control, once }) => shell::top(&control, once),
        Some(Action::Control { control, words }) => shell::control(&control, &words),
    };
    exit(outcome)
}

fn exit(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("trireme balance: {reason}");
            ExitCode::FAILURE
        }
    }
}
