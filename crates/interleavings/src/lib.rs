//! The state that the threads of a node share, for a scheduler that tries their interleavings one after the other (loom).
//!
//! The files are the node's own. Only [`sync`] is another one: its locks and conditions belong to the scheduler. `tests/models.rs` has the
//! models; a thread that would wait for ever is found by the scheduler itself.
//!
//! **Invariant:** nothing that runs in a server depends on it.
// The unit tests of these files run where they belong: here they would take locks without a scheduler.
#![cfg(not(test))]
// Public here, private there.
#![allow(clippy::len_without_is_empty)]

pub mod sync {
    pub use loom::sync::atomic;
    pub use loom::sync::{Condvar, Mutex, MutexGuard};
}

#[path = "../../node/src/backlog.rs"]
pub mod backlog;
#[path = "../../node/src/held_back.rs"]
pub mod held_back;
#[path = "../../node/src/item.rs"]
pub mod item;
#[path = "../../node/src/mailbox.rs"]
pub mod mailbox;
#[path = "../../node/src/monitor.rs"]
pub mod monitor;
#[path = "../../node/src/outage.rs"]
pub mod outage;
#[path = "../../node/src/queue.rs"]
pub mod queue;
#[path = "../../node/src/slot.rs"]
pub mod slot;

#[path = "../../node/src/votes.rs"]
pub mod votes;

/// Items of the queue carry these, and nobody looks into them here.
#[derive(Clone, Debug)]
pub struct ServerView;
