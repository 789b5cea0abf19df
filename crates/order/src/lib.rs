//! Total order without I/O: terms, majority acknowledgement, views, voters, catch-up.
//!
//! See `docs/protocol.md` for the protocol and its safety argument. [`Group`] is the façade.
#![forbid(unsafe_code)]

mod arbitrator;
mod branches;
mod cache;
mod chain;
mod election;
mod envelope;
mod era;
mod failure;
mod founding;
mod from_data;
mod group;
mod invariants;
mod io;
mod joining;
mod landmarks;
mod level;
mod mem_store;
mod membership;
mod message;
mod mutant;
mod own_log;
mod phase;
mod proposals;
mod reads;
mod replication;
mod role;
mod standing;
mod store;
mod suspicion;
mod timers;
mod told;
mod trust;
mod violation;
mod voters;
mod wishes;

pub use chain::LogCheck;
pub use envelope::{Append, Content, Envelope, Heartbeat, LogEnd};
pub use failure::{BootstrapError, Failure, Unread};
pub use group::Group;
pub use io::{
    Config, Delivery, Event, JoinState, Limits, Output, Phase, ProposeError, ReadId, SnapshotRequest, Status, Timeouts,
};
pub use level::SUPPORTED;
pub use mem_store::MemStore;
pub use message::{Class, Evidence, Founding, JoinRequest, Message, Presence, WireEntry};
#[cfg(feature = "mutants")]
pub use mutant::Mutant;
pub use store::{DiskFault, LogStore, StoreError};
pub use trust::TERM_RAISED_MAX;
pub use violation::{Violation, violation};

/// With the feature `mutants`, which no server needs.
pub const TEST_BUILD: bool = cfg!(feature = "mutants");
