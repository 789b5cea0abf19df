//! Cutting the network of the whole process from a signal handler.
//!
//! The server's crash handler calls in while the process is dying: peers should see the connections close now, not after a
//! core of many gigabytes has been written. So nothing here locks, allocates or waits: the descriptors of all open sockets
//! stand in a fixed table. It is the one process-wide state of this crate, because the call names no instance.

use std::fmt;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicUsize, Ordering};

/// `gmcast.isolate`, and the modes of the server's node isolation call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    #[default]
    Off,
    /// All connections closed, none made.
    On,
    /// The same here; the node also gives up its group.
    ForceQuit,
}

impl Isolation {
    pub fn is_on(self) -> bool {
        self != Isolation::Off
    }
}

/// The mode is none of 0, 1, 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidIsolation(pub i32);

impl fmt::Display for InvalidIsolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "isolation mode {} is none of 0, 1, 2", self.0)
    }
}

impl std::error::Error for InvalidIsolation {}

impl TryFrom<i32> for Isolation {
    type Error = InvalidIsolation;
    fn try_from(mode: i32) -> Result<Isolation, InvalidIsolation> {
        match mode {
            0 => Ok(Isolation::Off),
            1 => Ok(Isolation::On),
            2 => Ok(Isolation::ForceQuit),
            _ => Err(InvalidIsolation(mode)),
        }
    }
}

/// Sockets of all instances, state transfer included. A member has a few per peer; a socket that finds no slot is not opened.
const SLOTS: usize = 4096;
const FREE: i32 = -1;
static SOCKETS: [AtomicI32; SLOTS] = [const { AtomicI32::new(FREE) }; SLOTS];
/// Slots at and above this one were never used.
static USED: AtomicUsize = AtomicUsize::new(0);
static MODE: AtomicU8 = AtomicU8::new(0);

/// Sets the mode for every transport of the process and, unless it is 0, shuts all registered sockets down.
///
/// Async-signal-safe. May run before the first transport exists and after the last is gone. Transports notice by
/// their sockets, or at their next poll.
pub fn isolate_all(mode: i32) -> Result<(), InvalidIsolation> {
    let isolation = Isolation::try_from(mode)?;
    MODE.store(mode as u8, Ordering::SeqCst);
    if isolation.is_on() {
        for slot in &SOCKETS[..USED.load(Ordering::SeqCst).min(SLOTS)] {
            shutdown(slot.load(Ordering::SeqCst));
        }
    }
    Ok(())
}

/// The mode last set by [`isolate_all`].
pub fn isolation_of_process() -> Isolation {
    Isolation::try_from(i32::from(MODE.load(Ordering::SeqCst))).unwrap_or_default()
}

fn shutdown(fd: RawFd) {
    if fd >= 0 {
        // SAFETY: shutdown takes any number as a descriptor and touches no memory of ours.
        unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
    }
}

/// A socket's place in the table. Drop it before the socket is closed: a number out of the table may be somebody else's.
#[derive(Debug)]
pub struct Registration {
    slot: usize,
}

impl Registration {
    /// Enters a socket; `None` when the table is full. While the process is isolated the socket is shut down at once.
    pub fn new(fd: RawFd) -> Option<Registration> {
        let slot = SOCKETS
            .iter()
            .position(|slot| slot.compare_exchange(FREE, fd, Ordering::SeqCst, Ordering::SeqCst).is_ok())?;
        USED.fetch_max(slot + 1, Ordering::SeqCst);
        // Either this load sees the mode, or isolate_all, which stores it first, sees the slot.
        if isolation_of_process().is_on() {
            shutdown(fd);
        }
        Some(Registration { slot })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        SOCKETS[self.slot].store(FREE, Ordering::SeqCst);
    }
}
