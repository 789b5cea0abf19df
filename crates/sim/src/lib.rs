//! Whole clusters in one thread from one seed: the real ordering core under a simulated network, disk, clock and database.
//!
//! A run has two phases. In the *safety* phase clients work and everything that can go wrong does; checkers object at the first broken
//! promise. In the *liveness* phase all harm ends, and the cluster has a bounded virtual time to become one primary component with equal
//! data again.
//!
//! Reading order: `options` (the draws of a seed), `cluster` (the world and its events), `driver` (a node's group thread), `links` and
//! `net` (between nodes), `faults` (harm), `hostile` (a node that lies), `outage` (a node whose disk fails), `steps` (starts and stops), `throttle` (flow control), `pauses` (of the commit order),
//! `watch` (where the protocol stands, by the simulator's own account), `situations` (the situations that a run met), `check/` (the
//! promises), `run` (the phases), `mutants` (rules broken on purpose). `store` and `database` are the models of what survives.
//!
//! The output line of a run: virtual time; time from healing to convergence; events carried out; messages sent; changes of term seen by all
//! nodes; faults done; full copies; seqno at the end; then how the clients' operations ended. *Withdrawn* operations had been given to
//! nobody when their node lost the primary component. *Unknown* operations were begun and never answered (the origin died or gave up);
//! *(ordered)* says how many of those are in the history all the same.
#![forbid(unsafe_code)]

mod ballots;
pub mod check;
mod cluster;
mod database;
pub mod directed;
mod disk;
mod driver;
mod faults;
mod hostile;
pub mod judge;
mod links;
mod locals;
pub mod mutants;
mod net;
mod operators;
mod options;
mod outage;
mod pauses;
mod proposals;
mod real;
mod rng;
mod run;
mod server;
mod situations;
mod steps;
mod store;
mod streaming;
mod throttle;
mod upgrades;
mod values;
mod watch;
mod words;

pub use cluster::{Cluster, Verdict, node_id};
pub use database::{Database, State};
pub use disk::Store;
pub use hostile::Liar;
pub use options::{DbFlush, Fault, Kind, MS, Options, SEC, Sabotage, StoreKind, US};
pub use outage::Sick;
pub use rng::Rng;
pub use run::{Failure, Report, run, run_seed};
pub use situations::{Census, Situation, Situations};
pub use store::FastStore;
pub use trireme_order::Mutant;
pub use watch::Stage;
