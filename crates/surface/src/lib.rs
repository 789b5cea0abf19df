//! The provider as operators, scripts and the server's test suites see it: options, addresses, state files, status variables
//! and the wording of log lines.
//!
//! Everything here is a compatibility surface: names, formats and texts follow Galera 26.4.23, because configuration files,
//! monitoring and MariaDB's own test suites read them. No threads, no sockets, no clock; only the two state files touch the
//! file system.
#![forbid(unsafe_code)]

pub mod address;
pub mod grastate;
pub mod gvwstate;
pub mod options;
pub mod secret;
pub mod status;
pub mod texts;

#[cfg(test)]
mod testdir;

pub use options::{Defaults, OptionError, Options};
