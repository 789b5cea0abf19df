//! The node's own threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use trireme_transport::with_signals_blocked;
use trireme_types::panic_text;

use crate::slot::Slot;

/// The things that a helper's job may wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// The disk with the write-set log.
    LogDisk,
    /// The same disk, for a file that is not the log's.
    BesideLog,
    /// The disk with the server's data directory.
    DataDisk,
    /// The server, or something of it.
    Server,
    /// It computes.
    Nothing,
}

/// A thread that works off jobs until it is told to end.
pub struct Helper {
    name: &'static str,
    waits: Waits,
    handle: JoinHandle<()>,
    ended: Arc<Slot<()>>,
}

impl Helper {
    /// `work`: returns when the thread is to end. Each time that it panics instead, `failed` is called with what was said, and it is
    /// called again for the jobs that are left: somebody may wait for one of them. A panic must cost it a job, or there is no end.
    pub fn start(
        name: &'static str,
        waits: Waits,
        work: impl Fn() + Send + 'static,
        failed: impl Fn(&str) + Send + 'static,
    ) -> Helper {
        Helper::run(name, waits, move || while !ends(&work, &failed) {})
    }

    /// One that nobody waits for: a panic ends it.
    pub fn once(
        name: &'static str,
        waits: Waits,
        work: impl FnOnce() + Send + 'static,
        failed: impl Fn(&str) + Send + 'static,
    ) -> Helper {
        Helper::run(name, waits, move || _ = ends(work, &failed))
    }

    fn run(name: &'static str, waits: Waits, body: impl FnOnce() + Send + 'static) -> Helper {
        let ended = Arc::new(Slot::default());
        let mark = ended.clone();
        let body = move || {
            body();
            mark.fill(());
        };
        Helper { name, waits, handle: spawn(name, body), ended }
    }

    pub fn waits(&self) -> Waits {
        self.waits
    }

    /// Why it has not ended, for the log.
    pub fn excuse(&self) -> String {
        let name = self.name;
        match self.waits {
            Waits::LogDisk => format!(
                "thread {name} still waits for the disk with the write-set log: the log is not closed in order, and is checked at the next start"
            ),
            Waits::BesideLog => {
                format!("thread {name} still waits for the disk with the write-set log; the log is closed without it")
            }
            Waits::DataDisk => {
                format!(
                    "thread {name} still waits for the disk with the data directory; the write-set log is closed without it"
                )
            }
            Waits::Server => {
                format!("thread {name} still waits for the server; the write-set log is closed without it")
            }
            Waits::Nothing => format!("thread {name} is still at work; the write-set log is closed without it"),
        }
    }

    /// Waits for its end. **Errors:** it is still at work at the deadline.
    pub fn join(self, deadline: Instant) -> Result<(), Helper> {
        match self.ended.wait_until(deadline) {
            Some(()) => {
                // Its panic was told by the thread itself.
                let _ = self.handle.join();
                Ok(())
            }
            None => Err(self),
        }
    }
}

/// False when it panics, after `failed` has been told.
fn ends(work: impl FnOnce(), failed: &impl Fn(&str)) -> bool {
    let ended = catch_unwind(AssertUnwindSafe(work));
    if let Err(payload) = &ended {
        failed(panic_text(&**payload));
    }
    ended.is_ok()
}

/// For what is held for a few instructions only.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of a node's lock panics")
}

/// Is it still so early?
pub fn within(limit: Duration) -> impl Fn() -> bool {
    let deadline = Instant::now() + limit;
    move || Instant::now() < deadline
}

/// Starts a named thread that no signal of the process is delivered to: the server has a thread for them.
pub fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let thread = thread::Builder::new().name(name.to_string());
    with_signals_blocked(|| thread.spawn(body)).expect("the process may start threads")
}
