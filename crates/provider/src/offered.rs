//! A service that the server offers to all instances in the process.

use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Every instance initialises the service; it ends with the last one.
pub struct Offered<S> {
    /// And how many instances use it.
    service: Mutex<Option<(S, usize)>>,
}

impl<S: Copy> Offered<S> {
    pub const fn new() -> Offered<S> {
        Offered { service: Mutex::new(None) }
    }

    /// # Safety
    /// `service` is null or valid during the call.
    pub unsafe fn init(&self, service: *const S) -> c_int {
        // SAFETY: the caller's promise.
        let Some(service) = (unsafe { service.as_ref() }).copied() else { return libc::EINVAL };
        let mut slot = self.lock();
        let users = slot.map_or(0, |(_, users)| users) + 1;
        *slot = Some((service, users));
        0
    }

    pub fn deinit(&self) {
        let mut slot = self.lock();
        *slot = slot.take().filter(|(_, users)| *users > 1).map(|(service, users)| (service, users - 1));
    }

    /// Copied out, because a callback may block and must not be called under a lock.
    pub fn get(&self) -> Option<S> {
        self.lock().map(|(service, _)| service)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(S, usize)>> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
