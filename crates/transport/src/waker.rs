//! Getting the group thread out of its poll.

use std::io;
use std::sync::Arc;

use mio::{Registry, Token};

use crate::sync::atomic::{AtomicBool, Ordering};

/// Ends the current or the next `poll` of its transport. Any thread, any time, also after the transport is gone.
#[derive(Clone, Debug)]
pub struct Waker {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    waker: mio::Waker,
    /// A wake-up that the loop has not consumed yet: further ones are already served by it and cost no system call.
    pending: AtomicBool,
}

impl Waker {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Waker> {
        Ok(Waker {
            inner: Arc::new(Inner { waker: mio::Waker::new(registry, token)?, pending: AtomicBool::new(false) }),
        })
    }

    /// All that was made visible to other threads before this call is seen after the `poll` that it ends.
    pub fn wake(&self) {
        if !self.inner.pending.swap(true, Ordering::SeqCst) {
            // Writing to an eventfd fails only when its counter is full, and then it is readable anyway.
            let _ = self.inner.waker.wake();
        }
    }

    /// By the loop, before it looks at what it was woken for.
    pub(crate) fn consume(&self) {
        self.inner.pending.store(false, Ordering::SeqCst);
    }
}
