//! A server that has opened its engine before `connect` loses a race with its own first view (docs/wsrep-contract.md, 3.2): its main thread begins the
//! first applier, and then waits for a state through which the view takes the server. Too late, it waits for ever. So the first view waits for the
//! main thread, as long as that is on its way.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::recover::engine_runs_here;

/// On a machine where the main thread gets no processor for so long, the view comes too early as it does without this.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks. A thread that sleeps on the way is woken within this.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The thread that starts the server.
#[derive(Default)]
pub struct MainThread {
    /// It has called `connect`, and no view was delivered since.
    is_awaited: AtomicBool,
}

impl MainThread {
    /// `connect` was called, by this thread.
    pub fn connects(&self) {
        self.is_awaited.store(thread_id() == std::process::id() && engine_runs_here(), Relaxed);
    }

    /// The server is asked for its request: it stays in the state that it waits for.
    pub fn is_joiner(&self) {
        self.is_awaited.store(false, Relaxed);
    }

    /// By an applier, before it delivers a view.
    pub fn await_sleep(&self) {
        if self.is_awaited.swap(false, Relaxed) {
            await_sleep(std::process::id(), PATIENCE);
        }
    }
}

fn thread_id() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }.unsigned_abs()
}

/// Waits until this thread of the process has slept from one look to the next, or has ended. `false`: it did not within `longest`.
fn await_sleep(thread: u32, longest: Duration) -> bool {
    let until = Instant::now() + longest;
    let mut before = None;
    loop {
        let Some(now) = Sleep::of(thread) else { return true };
        if now.sleeps && before.replace(now) == Some(now) {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Sleep {
    sleeps: bool,
    /// How often it has begun to.
    begun: u64,
}

impl Sleep {
    /// `None`: there is no such thread, or the system tells nothing of it.
    fn of(thread: u32) -> Option<Sleep> {
        let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let begun = field("voluntary_ctxt_switches:")?.parse().ok()?;
        Some(Sleep { sleeps: field("State:")?.starts_with('S'), begun })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_that_is_on_its_way_is_waited_for_until_it_sleeps_or_ends() {
        let (tell, told) = mpsc::channel();
        let (wake, woken) = mpsc::channel::<()>();
        let on_its_way = std::sync::Arc::new(AtomicBool::new(true));
        let runs = on_its_way.clone();
        let other = thread::spawn(move || {
            tell.send(thread_id()).unwrap();
            while runs.load(Relaxed) {
                std::hint::spin_loop();
            }
            woken.recv().unwrap_err();
        });
        let id = told.recv().unwrap();
        assert!(!await_sleep(id, Duration::from_millis(100)));
        on_its_way.store(false, Relaxed);
        assert!(await_sleep(id, Duration::from_secs(3600)), "it sleeps");
        drop(wake);
        other.join().unwrap();
        assert!(await_sleep(id, Duration::from_secs(3600)), "it has ended");
    }

    #[test]
    fn no_other_thread_than_the_main_one_is_waited_for() {
        let main = MainThread::default();
        main.connects();
        assert!(!main.is_awaited.load(Relaxed), "tests run in threads of their own");
    }
}
