//! One cluster member: the shell around the pure crates. Owns the threads, the commit order, the appliers, state
//! transfer and the status variables.
//!
//! **Invariant:** the group thread ([`core`]) calls nothing of the server and, while it is in the group, waits for no other thread; whoever
//! waits for it is answered on every path, its own failure included.
#![deny(unsafe_op_in_unsafe_fn)]

mod api;
mod asking;
mod backlog;
mod command;
mod copying;
mod core;
mod data;
mod engine;
mod exposure;
mod failures;
mod flight;
mod group_thread;
mod held_back;
mod helpers;
mod host;
mod identity;
mod index;
mod item;
mod jobs;
mod life;
mod linger;
mod log;
mod mailbox;
mod main_thread;
mod metrics;
mod monitor;
mod node;
mod outage;
mod panics;
mod picture;
mod position;
mod prompt;
mod queue;
mod recover;
mod saved;
mod settings;
mod shared;
mod slot;
mod space;
mod stages;
#[cfg(feature = "panics")]
mod stalled;
mod startup;
mod state_file;
mod stats;
mod status;
mod stop_signal;
mod sync;
mod threads;
mod trx;
mod votes;

/// Some part is built for a test: it can be broken or fed on purpose.
pub const TEST_BUILD: bool = cfg!(feature = "panics")
    || trireme_order::TEST_BUILD
    || trireme_wslog::TEST_BUILD
    || trireme_transport::TEST_BUILD
    || trireme_replicator::TEST_BUILD;

pub use api::*;
pub use log::LogError;
pub use node::{Node, StartError};
pub use saved::StateFileError;
pub use settings::SettingsError;
pub use space::free_space;
pub use trireme_replicator::NoDonor;
pub use trireme_transport::with_signals_blocked;
