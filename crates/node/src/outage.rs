//! The time in which the disk with the log does not work, as other threads than the group thread see it.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

#[derive(Default)]
struct State {
    /// The connection is to end, or has ended: nobody waits for the disk any more.
    ended: bool,
    /// The node is out of its group because of its disk.
    out: bool,
    /// How often the log was opened again.
    returns: u64,
}

#[derive(Default)]
pub struct Outage {
    state: Mutex<State>,
    changed: Condvar,
}

impl Outage {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the outage panics")
    }

    /// A connection begins.
    pub fn begin(&self) {
        let mut state = self.lock();
        state.ended = false;
        state.out = false;
    }

    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// The log has failed, and the group was left.
    pub fn out(&self) {
        self.lock().out = true;
    }

    pub fn is_out(&self) -> bool {
        self.lock().out
    }

    /// The log has been opened again.
    pub fn returned(&self) {
        let mut state = self.lock();
        state.out = false;
        state.returns += 1;
        self.changed.notify_all();
    }

    /// The connection has ended.
    pub fn over(&self) {
        self.lock().out = false;
        self.end();
    }

    /// How often the log was opened again.
    pub fn returns(&self) -> u64 {
        self.lock().returns
    }

    /// Waits for the end of the connection, but no longer than this; true when it came.
    pub fn await_end(&self, longest: Duration) -> bool {
        let deadline = Instant::now() + longest;
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            if state.ended || now >= deadline {
                return state.ended;
            }
            state = self.changed.wait_timeout(state, deadline - now).expect("no holder of the outage panics").0;
        }
    }

    /// Waits until the log has been opened more often than `seen` times; false when the connection ended instead.
    pub fn await_return(&self, seen: u64) -> bool {
        let mut state = self.lock();
        while !state.ended && state.returns == seen {
            state = self.changed.wait(state).expect("no holder of the outage panics");
        }
        state.returns != seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_hears_of_the_return_or_of_the_end() {
        let outage = Outage::default();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| outage.await_return(0));
            outage.returned();
            assert!(waiter.join().unwrap());
            let waiter = s.spawn(|| outage.await_return(1));
            outage.end();
            assert!(!waiter.join().unwrap());
        });
        assert!(outage.await_end(Duration::from_secs(3600)));
        outage.begin();
        assert!(!outage.await_end(Duration::ZERO));
    }
}
