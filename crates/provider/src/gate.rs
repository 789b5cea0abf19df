//! A way into the server that is closed before the server goes.

use std::sync::PoisonError;
use std::time::Instant;

use crate::sync::{Condvar, Mutex, MutexGuard};

#[derive(Default)]
struct State {
    closed: bool,
    inside: usize,
}

/// Lets calls through until it is closed. The call may wait, so no lock is held meanwhile.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    left: Condvar,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Changed by single steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` once it is closed.
    pub fn pass<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        {
            let mut state = self.lock();
            if state.closed {
                return None;
            }
            state.inside += 1;
        }
        let _inside = Inside(self);
        Some(call())
    }

    /// Nobody passes any more, and when this returns true nobody is inside. False: somebody still is, at the deadline.
    #[must_use]
    pub fn close(&self, deadline: Instant) -> bool {
        let mut state = self.lock();
        state.closed = true;
        while state.inside > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.left.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// Also when the call panics.
struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.lock().inside -= 1;
        self.0.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    fn in_a_minute() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn closing_waits_for_those_inside_and_lets_nobody_else_in() {
        let gate = Gate::default();
        let (enter, entered) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let passing = &gate;
            let inside = scope.spawn(move || {
                passing.pass(|| {
                    enter.send(()).unwrap();
                    wait.recv().unwrap();
                    7
                })
            });
            entered.recv().unwrap();
            let closing = scope.spawn(|| gate.close(in_a_minute()));
            while !gate.lock().closed {
                thread::yield_now();
            }
            assert!(!closing.is_finished(), "one is inside");
            assert_eq!(gate.pass(|| 8), None);
            go.send(()).unwrap();
            assert_eq!(inside.join().unwrap(), Some(7));
            assert!(closing.join().unwrap());
        });
    }

    #[test]
    fn who_stays_inside_is_not_waited_for_without_end() {
        let gate = Gate::default();
        gate.pass(|| {
            assert!(!gate.close(Instant::now()), "one is inside");
            assert_eq!(gate.pass(|| 8), None);
        });
        assert!(gate.close(Instant::now()));
    }

    #[test]
    fn who_panics_inside_is_out() {
        let gate = Gate::default();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| gate.pass(|| panic!("inside")))).is_err());
        assert!(gate.close(in_a_minute()));
    }
}
