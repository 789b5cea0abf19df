//! A place where one thread waits for one answer.

use std::sync::OnceLock;
use std::time::Instant;

use crate::sync::{Condvar, Mutex};

/// Filled once, taken once.
pub struct Slot<T> {
    value: Mutex<Option<T>>,
    filled: Condvar,
    /// When the other thread took it in hand, and when it sent what is asked for; only where that is measured.
    taken: OnceLock<Instant>,
    sent: OnceLock<Instant>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Slot { value: Mutex::new(None), filled: Condvar::new(), taken: OnceLock::new(), sent: OnceLock::new() }
    }
}

impl<T> Slot<T> {
    /// The first time counts, for each of both. `None`: it is not measured.
    pub fn stamp_taken(&self, now: Option<Instant>) {
        if let Some(now) = now {
            let _ = self.taken.set(now);
        }
    }

    pub fn stamp_sent(&self, now: Option<Instant>) {
        if let Some(now) = now {
            let _ = self.sent.set(now);
        }
    }

    pub fn stamps(&self) -> (Option<Instant>, Option<Instant>) {
        (self.taken.get().copied(), self.sent.get().copied())
    }

    /// The first answer counts.
    pub fn fill(&self, value: T) {
        let mut slot = self.value.lock().expect("no holder of a slot panics");
        if slot.is_none() {
            *slot = Some(value);
            self.filled.notify_one();
        }
    }

    pub fn wait(&self) -> T {
        let mut slot = self.value.lock().expect("no holder of a slot panics");
        loop {
            match slot.take() {
                Some(value) => return value,
                None => slot = self.filled.wait(slot).expect("no holder of a slot panics"),
            }
        }
    }

    /// `None` when the deadline passes first.
    pub fn wait_until(&self, deadline: Instant) -> Option<T> {
        let mut slot = self.value.lock().expect("no holder of a slot panics");
        loop {
            if let Some(value) = slot.take() {
                return Some(value);
            }
            let now = Instant::now();
            if now >= deadline {
                return None;
            }
            slot = self.filled.wait_timeout(slot, deadline - now).expect("no holder of a slot panics").0;
        }
    }
}
