//! `trireme-model [--large]`: explores every schedule within the bounds of `runs.rs`. Prints a line for each run, and for a
//! promise that was broken the steps that led there. Exit code 1 when one was broken, or when a broken rule was not found.

use std::process::ExitCode;

use trireme_model::{Search, explore, runs};

fn main() -> ExitCode {
    let large = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--large") => true,
        Some(other) => {
            eprintln!("trireme-model: unknown argument {other}; there is --large");
            return ExitCode::from(2);
        }
    };
    let mut sound = true;
    let small = runs::small().into_iter().map(|run| (run, Search::Broad));
    let large = if large { runs::large() } else { Vec::new() }.into_iter().map(|run| (run, Search::Deep));
    for ((name, rules), search) in small.chain(large) {
        let found = explore(rules, search);
        println!("{name}: {} states, {}", found.states, found.broken.as_ref().map_or("nothing broken", |b| &b.promise));
        for step in found.broken.iter().flat_map(|b| &b.steps) {
            println!("    {step:?}");
        }
        sound &= found.broken.is_none();
    }
    for (name, rules) in runs::mutants() {
        let found = explore(rules, Search::Broad);
        let verdict = found.broken.as_ref().map_or("NOT FOUND".into(), |b| format!("found in {} steps", b.steps.len()));
        println!("broken rule, {name}: {} states, {verdict}", found.states);
        sound &= found.broken.is_some();
    }
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
