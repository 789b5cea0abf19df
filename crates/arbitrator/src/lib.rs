//! `trireme arbitrate`, also called `garbd`: a member of the group without a server. It is a [`trireme_node::Node`] that is told so,
//! with nobody behind it.
//!
//! **Invariant:** everything that decides lives in `order` and `node`; here is a command line, a log and a process.
#![forbid(unsafe_code)]

mod args;
mod config;
mod log;
mod nobody;
mod place;
mod run;
mod status;
mod watch;

pub use args::{Arbitrate, garbd};
pub use run::run;
