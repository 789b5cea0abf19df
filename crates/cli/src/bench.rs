//! `trireme bench`: the library finds its provider, and its outcome becomes an exit code.

use crate::resolve::provider;
use crate::run::{print_line, say};
use crate::{FAILED, INCOMPLETE, INTERRUPTED, handle_ctrl_c};
use std::process::ExitCode;
use trireme_bench::{Bench, Outcome};

pub fn run(asked: &Bench) -> ExitCode {
    let find = |given| provider(given).map_err(|error| error.to_string());
    let outcome = handle_ctrl_c()
        .map_err(|error| error.to_string())
        .and_then(|cancel| trireme_bench::run(asked, find, cancel, &mut say, &mut print_line));
    match outcome {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Broken) => ExitCode::from(INCOMPLETE),
        Ok(Outcome::Interrupted) => ExitCode::from(INTERRUPTED),
        Err(reason) => {
            say(&format!("trireme bench: {reason}"));
            ExitCode::from(FAILED)
        }
    }
}
