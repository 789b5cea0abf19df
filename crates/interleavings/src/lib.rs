//! The state that the threads of a node share, for a scheduler that tries their interleavings one after the other (loom).
//!
//! The files are those of the node, the transport and the provider themselves. Only [`sync`] is another one: its locks and conditions belong
//! to the scheduler; and [`eventfd`] stands for mio. `tests/models.rs` has the models; a thread that would wait for ever is found by the
//! scheduler itself. docs/threads.md says what has a model, and what needs none.
//!
//! **Invariant:** nothing that runs in a server depends on it.
// The unit tests of these files run where they belong: here they would take locks without a scheduler.
#![cfg(not(test))]
// Public here, private there.
#![allow(clippy::len_without_is_empty)]

// The transport's waker names the crate that it is made of.
extern crate self as mio;

pub mod eventfd;
pub use eventfd::{Registry, Token, Waker};

pub mod sync {
    pub use loom::sync::atomic;
    pub use loom::sync::{Condvar, Mutex, MutexGuard};
}

#[path = "../../node/src/backlog.rs"]
pub mod backlog;
#[path = "../../provider/src/gate.rs"]
pub mod gate;
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
#[path = "../../transport/src/waker.rs"]
pub mod waker;

/// Items of the queue carry these, and nobody looks into them here.
#[derive(Clone, Debug)]
pub struct ServerView;
