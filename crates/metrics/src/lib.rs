//! The measurements of a node, and the file by which it tells them: [`histogram`], the names in [`names`], the file in
//! [`state`].
//!
//! The provider writes the file and listens nowhere; whoever wants to know reads it, also while the server hangs or is dead.
//!
//! **Invariant:** recording takes no lock, allocates nothing and cannot fail.

#![forbid(unsafe_code)]

pub mod histogram;
pub mod names;
pub mod state;

pub use histogram::{Histogram, Moments, Snapshot};
pub use state::{Bad, Body, State};
