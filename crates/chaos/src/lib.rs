//! Faults on a cluster of real servers while clients write to all of them, and a verdict on what the clients saw.
//!
//! [`run`] starts a cluster ([`Options`]), lets clients work on every node or through a balancer (`workload`, `client.rs`, `through.rs`), injects and undoes
//! faults (`nemesis.rs`, `fault.rs`, `interruption.rs`), waits for the cluster to come back by itself (`recovery.rs`), compares all nodes, judges the
//! gaps between commits (`gaps.rs`) and the history with `trireme-history`, and gives a [`Report`]. Everything that happened is written to a directory, so that the
//! history can be judged again.
//!
//! **Invariant:** what counts as acknowledged is only what a client was told over its own connection; nothing of the
//! verdict comes from the provider.

#![forbid(unsafe_code)]

mod client;
mod fault;
mod gaps;
mod interruption;
mod nemesis;
mod options;
mod recovery;
mod report;
mod run;
mod stalls;
mod through;
mod timeline;
mod workload;

pub use interruption::{Attempt, Course, CourseEnd};
pub use nemesis::Nemesis;
pub use options::{Durability, Options, Workload};
pub use report::{Recovery, Report, describe};
pub use run::run;
pub use through::Through;
