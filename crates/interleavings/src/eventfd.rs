//! The parts of mio that the transport's waker is made of, and the poll that it ends.

use std::io;
use std::sync::Arc;

use crate::mailbox::Wake;
use crate::sync::{Condvar, Mutex};
use crate::waker;

/// An eventfd, as the poll sees it: it was written to.
#[derive(Clone, Debug, Default)]
pub struct Registry(Arc<(Mutex<bool>, Condvar)>);

#[derive(Clone, Copy, Debug)]
pub struct Token;

#[derive(Debug)]
pub struct Waker(Registry);

impl Waker {
    pub fn new(registry: &Registry, _: Token) -> io::Result<Waker> {
        Ok(Waker(registry.clone()))
    }

    pub fn wake(&self) -> io::Result<()> {
        let (written, sleeps) = &*self.0.0;
        *written.lock().expect("no model goes on after a panic") = true;
        sleeps.notify_one();
        Ok(())
    }
}

/// The transport, as far as it sleeps.
pub struct Poll {
    registry: Registry,
    waker: waker::Waker,
}

impl Default for Poll {
    fn default() -> Poll {
        let registry = Registry::default();
        let waker = waker::Waker::new(&registry, Token).expect("nothing fails here");
        Poll { registry, waker }
    }
}

impl Poll {
    pub fn waker(&self) -> waker::Waker {
        self.waker.clone()
    }

    /// Sleeps until it is woken. As `Transport::poll` without sockets.
    pub fn poll(&self) {
        let (written, sleeps) = &*self.registry.0;
        let mut is_written = written.lock().expect("no model goes on after a panic");
        while !*is_written {
            is_written = sleeps.wait(is_written).expect("no model goes on after a panic");
        }
        *is_written = false;
        drop(is_written);
        self.waker.consume();
    }
}

impl Wake for waker::Waker {
    fn wake(&self) {
        waker::Waker::wake(self);
    }
}
