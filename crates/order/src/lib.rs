//! Total order without I/O: terms, majority acknowledgement, views, voters, catch-up.
//!
//! See `docs/protocol.md` for the protocol and its safety argument. [`Group`] is the façade.
#![forbid(unsafe_code)]

mod group;
mod io;
mod message;
mod store;

pub use group::Group;
pub use io::{Config, Delivery, Event, JoinState, Output, Phase, ProposeError, ReadId, SnapshotRequest, Status, Timeouts};
pub use message::{Class, Message};
pub use store::{LogStore, StoreError};
