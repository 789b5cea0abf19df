//! Nodes in one process, over real sockets and logs, with fake servers that check the contract.

mod cluster;
mod fake;
mod aborts;
mod flow;
mod lifecycle;
mod replication;
