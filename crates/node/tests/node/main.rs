//! Nodes in one process, over real sockets and logs, with fake servers that check the contract.

mod aborts;
mod cluster;
mod failed_statements;
mod fake;
mod flight;
mod flow;
mod lifecycle;
mod metrics;
mod multicast;
mod operators;
mod outage;
mod panics;
mod positions;
mod replication;
mod state_files;
mod tls;
