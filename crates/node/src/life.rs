//! How far the end of this node, or of its connection, has come, as all threads may ask. Each mark is set once; a connection takes back its own.
//! The group thread keeps how far the end of its connection has come (`core/ending.rs`).

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// See the module.
#[derive(Default)]
pub struct Life {
    server_gone: AtomicBool,
    halted: AtomicBool,
    failed: AtomicBool,
    closed: AtomicBool,
}

impl Life {
    /// A connection begins.
    pub fn begin(&self) {
        self.halted.store(false, Relaxed);
    }

    /// The server refused a view: it is on its way out, and parts of it that a callback would need are gone already.
    pub fn is_server_gone(&self) -> bool {
        self.server_gone.load(Relaxed)
    }

    pub fn note_server_gone(&self) {
        self.server_gone.store(true, Relaxed);
    }

    /// This connection hands the server nothing more but its final view: the data are not where they have to be for what comes next.
    pub fn is_halted(&self) -> bool {
        self.halted.load(Relaxed)
    }

    pub fn halt(&self) {
        self.halted.store(true, Relaxed);
    }

    /// A thread of this node panicked.
    pub fn is_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    pub fn note_failed(&self) {
        self.failed.store(true, Relaxed);
    }

    /// `Node::close` was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    pub fn close(&self) {
        self.closed.store(true, Relaxed);
    }
}
