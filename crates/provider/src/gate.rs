//! A way into the server that is closed before the server goes.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct State {
    closed: bool,
    inside: usize,
}

/// Lets calls through until it is closed. What is called may wait, so no lock is held meanwhile.
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

    /// Nobody passes any more, and nobody is inside when this returns.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        while state.inside > 0 {
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
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
            let closing = scope.spawn(|| gate.close());
            while !gate.lock().closed {
                thread::yield_now();
            }
            assert!(!closing.is_finished(), "one is inside");
            assert_eq!(gate.pass(|| 8), None);
            go.send(()).unwrap();
            assert_eq!(inside.join().unwrap(), Some(7));
            closing.join().unwrap();
        });
    }

    #[test]
    fn who_panics_inside_is_out() {
        let gate = Gate::default();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| gate.pass(|| panic!("inside")))).is_err());
        gate.close();
    }
}
