//! `trireme balance` as a process: in front of servers that only greet and echo, and, on demand, of real ones.

mod bytes;
mod clients;
mod examples;
#[path = "../../../connect/tests/free_port/mod.rs"]
mod free_port;
mod glbd;
mod hosts;
mod operation;
mod pushes;
mod servers;
mod split;
mod storms;
mod support;
