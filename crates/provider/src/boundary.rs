//! The panic boundary, and what the server's `ctx` pointer points at.
//!
//! A panic never leaves an entry point and never turns into a plausible answer. The first one *poisons* the instance: it is
//! logged, and the node leaves the group (which wakes everybody who waits inside). From then on nothing new is begun; calls that end
//! what was begun, and those that ask, still go to the node, as the server cannot do without their answers: see the table in the
//! README. The server goes on without replication until somebody restarts it, as after any other fatal error of a node.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use trireme_node::{Gtid, Level, Node, Server, with_signals_blocked};
use trireme_types::panic_text;
use trireme_wsrep_sys::Wsrep;

use crate::server::CServer;

/// How long `free` waits for a question to the storage engine whose thread the node has waited for already.
const ENGINES_END: Duration = Duration::from_secs(1);

/// One provider instance.
pub struct Instance {
    pub node: Arc<Node>,
    boundary: Boundary,
    known: Mutex<Known>,
}

/// The newest answers to calls after whose failure wsrep-lib throws an exception that nobody catches.
struct Known {
    last_committed: Gtid,
    options: String,
}

// Entries are called from any thread.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Instance>();
};

impl Instance {
    pub fn new(node: Node, server: Arc<CServer>) -> Instance {
        let known = Known { last_committed: Gtid::default(), options: node.options_get() };
        Instance { node: Arc::new(node), boundary: Boundary::new(server), known: Mutex::new(known) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Both fields are only ever replaced as a whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the node, and remembers the answer.
    pub fn last_committed(&self) -> Gtid {
        let gtid = self.node.last_committed();
        self.known().last_committed = gtid;
        gtid
    }

    /// The last answer of [`Instance::last_committed`].
    pub fn last_committed_known(&self) -> Gtid {
        self.known().last_committed
    }

    /// Asks the node, and remembers the answer.
    pub fn options(&self) -> String {
        let options = self.node.options_get();
        self.known().options.clone_from(&options);
        options
    }

    /// The last answer of [`Instance::options`]; there is one.
    pub fn options_known(&self) -> String {
        self.known().options.clone()
    }

    /// Ends every thread of the node. Returns false when that panicked, or a thread waits for a disk, or the server, that does not answer: then
    /// nothing of the instance may be dropped, because threads may still use it.
    pub fn close(&self) -> bool {
        self.boundary.join();
        let close = || {
            #[cfg(feature = "panics")]
            self.node.panic_if_asked("free");
            self.node.close()
        };
        let ended = catch_unwind(AssertUnwindSafe(close)).unwrap_or_else(|payload| {
            log_panic(&self.boundary.server, "free", &*payload);
            false
        });
        let left = self.boundary.server.leave_engines(Instant::now() + ENGINES_END);
        ended && left
    }
}

/// Where panics stop.
struct Boundary {
    server: Arc<CServer>,
    poisoned: AtomicBool,
    /// Entries of which a panic was logged: one that panics each time it is asked must not flood the log.
    logged: Mutex<BTreeSet<String>>,
    /// Takes a poisoned node out of the group; ends by itself, joined by [`Boundary::join`].
    leaving: Mutex<Option<JoinHandle<()>>>,
}

impl Boundary {
    fn new(server: Arc<CServer>) -> Boundary {
        Boundary { server, poisoned: AtomicBool::new(false), logged: Mutex::default(), leaving: Mutex::new(None) }
    }

    /// Runs `call`; a poisoned instance runs only what [`Purpose::Ends`]. `None` where it did not run, or panicked. The first panic
    /// starts `leave`, which may block, on a thread of its own: the thread that panicked may be one that others wait for.
    fn run<T>(
        &self,
        entry: &str,
        purpose: Purpose,
        call: impl FnOnce() -> T,
        leave: impl FnOnce() + Send + 'static,
    ) -> Option<T> {
        if purpose == Purpose::Begins && self.poisoned.load(Ordering::SeqCst) {
            return None;
        }
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(answer) => Some(answer),
            Err(payload) => {
                if self.logged.lock().unwrap_or_else(PoisonError::into_inner).insert(entry.to_owned()) {
                    log_panic(&self.server, entry, &*payload);
                }
                if !self.poisoned.swap(true, Ordering::SeqCst) {
                    self.start(leave);
                }
                None
            }
        }
    }

    fn start(&self, leave: impl FnOnce() + Send + 'static) {
        let server = Arc::clone(&self.server);
        let thread = std::thread::Builder::new().name("trireme-leave".into());
        let leave = move || {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(leave)) {
                log_panic(&server, "disconnect", &*payload);
            }
        };
        // The server has a thread for signals.
        match with_signals_blocked(|| thread.spawn(leave)) {
            Ok(handle) => *self.leaving.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle),
            Err(e) => {
                self.server.log(Level::Fatal, &format!("A poisoned node could not be taken out of the group: {e}"))
            }
        }
    }

    fn join(&self) {
        let leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A panic inside that thread was caught and logged there.
        leaving.map(JoinHandle::join);
    }
}

/// The purpose of a call, as far as a poisoned instance cares.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Something new: not any more.
    Begins,
    /// The end of something that was begun, or a question.
    Ends,
}

/// Runs an entry that begins something: `failed` is the answer without an instance, after a panic, and from a poisoned instance.
///
/// # Safety
/// `wsrep` is null or a table from `wsrep_loader` (clause **table**).
pub unsafe fn guard<T>(wsrep: *mut Wsrep, entry: &str, failed: T, call: impl FnOnce(&Instance) -> T) -> T {
    // SAFETY: the caller's promise.
    let Some(instance) = (unsafe { instance(wsrep) }) else { return failed };
    run(instance, entry, Purpose::Begins, call).unwrap_or(failed)
}

/// Runs an entry that ends something or asks, also in a poisoned instance: `failed` is the answer without an instance and after a panic
/// in this very call. It may ask the instance for what is known, and must not panic.
///
/// # Safety
/// As [`guard`].
pub unsafe fn guard_end<T>(
    wsrep: *mut Wsrep,
    entry: &str,
    failed: impl FnOnce(Option<&Instance>) -> T,
    call: impl FnOnce(&Instance) -> T,
) -> T {
    // SAFETY: the caller's promise.
    let Some(instance) = (unsafe { instance(wsrep) }) else { return failed(None) };
    run(instance, entry, Purpose::Ends, call).unwrap_or_else(|| failed(Some(instance)))
}

/// # Safety
/// As [`guard`]. The instance lives until `free`.
unsafe fn instance<'a>(wsrep: *mut Wsrep) -> Option<&'a Instance> {
    if wsrep.is_null() {
        return None;
    }
    // SAFETY: table: not null, so valid. ctx: null or the instance that `init` stored, which lives until `free`.
    unsafe { (*wsrep).ctx.cast::<Instance>().as_ref() }
}

fn run<T>(instance: &Instance, entry: &str, purpose: Purpose, call: impl FnOnce(&Instance) -> T) -> Option<T> {
    let node = Arc::clone(&instance.node);
    let call = || {
        #[cfg(feature = "panics")]
        instance.node.panic_if_asked(entry);
        call(instance)
    };
    instance.boundary.run(entry, purpose, call, move || node.leave_after_panic())
}

/// Logs what a panic said. Must not panic itself: the logger is the server's, and the text is made without unwrapping.
pub fn log_panic(server: &CServer, entry: &str, payload: &(dyn Any + Send)) {
    let said = panic_text(payload);
    let text = format!("Internal error in {entry}: {said}. This node is out of service until the server is restarted.");
    server.log(Level::Fatal, &text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::ffi::{CStr, c_char, c_int};
    use std::sync::mpsc;

    thread_local! {
        static LOGGED: RefCell<Vec<(c_int, String)>> = const { RefCell::new(Vec::new()) };
    }

    unsafe extern "C-unwind" fn log(level: c_int, text: *const c_char) {
        // SAFETY: the provider logs C strings.
        let text = unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned();
        LOGGED.with_borrow_mut(|lines| lines.push((level, text)));
    }

    fn boundary() -> Boundary {
        // SAFETY: null pointers and no callbacks, all of which the structure may hold.
        let mut args: trireme_wsrep_sys::InitArgs = unsafe { std::mem::zeroed() };
        args.logger_cb = Some(log);
        Boundary::new(Arc::new(CServer::new(&args)))
    }

    #[test]
    fn a_panic_is_logged_once_and_nothing_is_begun_after_it() {
        let boundary = boundary();
        let (left, leaves) = mpsc::channel();
        let leave = || {
            let left = left.clone();
            move || left.send(()).unwrap()
        };
        assert_eq!(boundary.run("certify", Purpose::Begins, || 5, leave()), Some(5));
        assert_eq!(boundary.run("certify", Purpose::Begins, || panic!("seqno {} is gone", 7), leave()), None::<i32>);
        let begun = || unreachable!("a poisoned instance begins nothing");
        assert_eq!(boundary.run("certify", Purpose::Begins, begun, leave()), None::<i32>);
        assert_eq!(boundary.run("release", Purpose::Ends, || 6, leave()), Some(6));
        for _ in 0..2 {
            assert_eq!(boundary.run("stats_get", Purpose::Ends, || panic!("again"), leave()), None::<i32>);
        }
        boundary.join();
        assert_eq!(leaves.try_iter().count(), 1, "leaves the group once");
        let lines = LOGGED.take();
        assert_eq!(lines.len(), 2, "one line for each entry");
        assert_eq!(lines[0].0, trireme_wsrep_sys::LOG_FATAL);
        assert!(lines[0].1.starts_with("Internal error in certify: seqno 7 is gone."), "{}", lines[0].1);
    }

    #[test]
    fn a_panic_while_leaving_stays_in_its_thread() {
        let boundary = boundary();
        assert_eq!(boundary.run("recv", Purpose::Ends, || panic!("first"), || panic!("second")), None::<i32>);
        boundary.join();
    }

    #[test]
    fn leaving_does_not_hold_up_the_call_that_panicked() {
        let boundary = boundary();
        let (go, wait) = mpsc::channel::<()>();
        boundary.run("recv", Purpose::Ends, || panic!("first"), move || wait.recv().unwrap());
        go.send(()).unwrap(); // only possible because `run` has returned
        boundary.join();
    }
}
