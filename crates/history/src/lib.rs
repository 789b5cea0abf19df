//! Judges what clients of a database saw: whether they may have seen it.
//!
//! A [`History`] is a list of operations, each with the time of the question, the time of the answer, and one of three
//! outcomes: done, not done, unknown. [`check`] judges it against what the isolation level promises. It knows nothing
//! of the cluster that was asked, so a history from a file can be judged again ([`History::read`]).
//!
//! Two kinds of operations are understood. *List-append* (`lists.rs`, `graph.rs`, `cycles.rs`): every write appends a
//! unique element to a list, every read returns the whole list, so that a read tells which writes came before it and in
//! which order. From that follows the graph of dependencies between transactions, and anomalies are cycles in it. The
//! method is Elle's: Kingsbury and Alvaro, *Elle: Inferring Isolation Anomalies from Experimental Observations*, VLDB
//! 2020; the classes of anomalies are those of Adya, Liskov and O'Neil, *Generalized Isolation Level Definitions*, ICDE
//! 2000. Deviations: no predicates; a write that nobody read is known from the reads at the end of the run, which see
//! every key on every node. *Bank* (`bank.rs`): money moves between accounts and none may appear or vanish.
//!
//! **Invariant:** pure. The findings are a function of the history.

#![forbid(unsafe_code)]

mod bank;
mod cycles;
mod file;
mod finding;
mod graph;
mod lists;
mod operation;

pub use file::ReadError;
pub use finding::{Class, Finding, Findings, Tally};
pub use operation::{
    Account, BankRules, Body, Element, FORMAT, Header, History, Isolation, Key, Micros, OpId, Operation, Outcome, Step,
    Transfer, TransferId,
};

/// Judges a history by the promises that its header names.
pub fn check(history: &History) -> Findings {
    let mut findings = Findings::new(&history.header);
    let lists = lists::Lists::infer(history, &mut findings);
    lists.check(&mut findings);
    cycles::check(&lists, &mut findings);
    bank::check(history, &mut findings);
    findings
}
