//! A place where one thread waits for one answer.

use std::sync::OnceLock;
use std::time::Instant;

use crate::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use crate::sync::{Condvar, Mutex, MutexGuard};

struct State<T> {
    value: Option<T>,
    /// Somebody sleeps until it is filled. To call nobody costs a system call, too.
    awaited: bool,
}

/// Filled once, taken once.
pub struct Slot<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    /// It has been filled, for those who look without the lock.
    full: AtomicBool,
    /// When the other thread took it in hand, and when it sent what is asked for; only where that is measured.
    taken: OnceLock<Instant>,
    sent: OnceLock<Instant>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        let state = Mutex::new(State { value: None, awaited: false });
        let full = AtomicBool::new(false);
        Slot { state, filled: Condvar::new(), full, taken: OnceLock::new(), sent: OnceLock::new() }
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

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("no holder of a slot panics")
    }

    /// The first answer counts.
    pub fn fill(&self, value: T) {
        let mut s = self.lock();
        if self.full.load(Acquire) {
            return;
        }
        s.value = Some(value);
        self.full.store(true, Release);
        let awaited = s.awaited;
        drop(s);
        if awaited {
            self.filled.notify_one();
        }
    }

    pub fn is_full(&self) -> bool {
        self.full.load(Acquire)
    }

    pub fn wait(&self) -> T {
        let mut s = self.lock();
        loop {
            match s.value.take() {
                Some(value) => return value,
                None => {
                    s.awaited = true;
                    s = self.filled.wait(s).expect("no holder of a slot panics");
                }
            }
        }
    }

    /// `None` when the deadline passes first.
    pub fn wait_until(&self, deadline: Instant) -> Option<T> {
        let mut s = self.lock();
        loop {
            if let Some(value) = s.value.take() {
                return Some(value);
            }
            let now = Instant::now();
            if now >= deadline {
                return None;
            }
            s.awaited = true;
            s = self.filled.wait_timeout(s, deadline - now).expect("no holder of a slot panics").0;
        }
    }
}
