//! Sockets, tasks and clocks around the pool. Nothing is decided here.

mod admin;
mod balancer;
mod client;
mod handover;
mod http;
mod listen;
mod lookout;
mod monitors;
mod names;
mod notify;
mod output;
mod proof;
mod pump;
mod run;
mod session;
mod split;
mod stream;
mod talk;
mod tls;
mod upgrade;
mod watchdog;

pub use client::look_once;
pub use http::{Answer, Body, Feed, Request, serve_monitor};
pub use run::{Extra, Starter, serve};
pub use talk::{control, top};
pub use tls::check_ca;
