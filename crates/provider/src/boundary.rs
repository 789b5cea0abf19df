//! The panic boundary, and what the server's `ctx` pointer points at.
//!
//! A panic never leaves an entry point and never turns into a plausible answer. The first one *poisons* the instance: it is
//! logged, the node leaves the group (which wakes everybody who waits inside), and every later call fails alike. The server
//! goes on without replication until somebody restarts it, as after any other fatal error of a node.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use trireme_node::{Code, Level, Node, Server};
use trireme_wsrep_sys::Wsrep;

use crate::server::CServer;

/// One provider instance.
pub struct Instance {
    pub node: Arc<Node>,
    boundary: Boundary,
}

// Entries are called from any thread.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Instance>();
};

impl Instance {
    pub fn new(node: Node, server: Arc<CServer>) -> Instance {
        Instance { node: Arc::new(node), boundary: Boundary::new(server) }
    }

    /// Ends every thread of the node. Returns false when that panicked: then nothing of the instance may be dropped, because
    /// threads may still use it.
    pub fn close(&self) -> bool {
        self.boundary.join();
        match catch_unwind(AssertUnwindSafe(|| self.node.close())) {
            Ok(()) => true,
            Err(payload) => {
                log_panic(&self.boundary.server, "free", &*payload);
                false
            }
        }
    }
}

/// Where panics stop.
struct Boundary {
    server: Arc<CServer>,
    poisoned: AtomicBool,
    /// Takes a poisoned node out of the group; ends by itself, joined by [`Boundary::join`].
    leaving: Mutex<Option<JoinHandle<()>>>,
}

impl Boundary {
    fn new(server: Arc<CServer>) -> Boundary {
        Boundary { server, poisoned: AtomicBool::new(false), leaving: Mutex::new(None) }
    }

    /// Runs `call`. After a panic, and ever after, the answer is `failed`. The first panic starts `leave`, which may block, on
    /// a thread of its own: the thread that panicked may be one that others wait for.
    fn run<T>(&self, entry: &str, failed: T, call: impl FnOnce() -> T, leave: impl FnOnce() + Send + 'static) -> T {
        if self.poisoned.load(Ordering::SeqCst) {
            return failed;
        }
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(answer) => answer,
            Err(payload) => {
                log_panic(&self.server, entry, &*payload);
                if !self.poisoned.swap(true, Ordering::SeqCst) {
                    self.start(leave);
                }
                failed
            }
        }
    }

    fn start(&self, leave: impl FnOnce() + Send + 'static) {
        let server = Arc::clone(&self.server);
        let thread = std::thread::Builder::new().name("trireme-leave".into()).spawn(move || {
            block_signals();
            if let Err(payload) = catch_unwind(AssertUnwindSafe(leave)) {
                log_panic(&server, "disconnect", &*payload);
            }
        });
        match thread {
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

/// Runs one entry: `failed` is the answer without an instance, after a panic, and from a poisoned instance.
///
/// # Safety
/// `wsrep` is null or a table from `wsrep_loader` (clause **table**).
pub unsafe fn guard<T>(wsrep: *mut Wsrep, entry: &str, failed: T, call: impl FnOnce(&Instance) -> T) -> T {
    if wsrep.is_null() {
        return failed;
    }
    // SAFETY: table: not null, so valid. ctx: null or the instance that `init` stored, which lives until `free`.
    let Some(instance) = (unsafe { (*wsrep).ctx.cast::<Instance>().as_ref() }) else { return failed };
    let node = Arc::clone(&instance.node);
    let leave = move || {
        // Its answer would only say that there was no group to leave.
        let _: Code = node.disconnect();
    };
    instance.boundary.run(entry, failed, || call(instance), leave)
}

/// Logs what a panic said. Must not panic itself: the logger is the server's, and the text is made without unwrapping.
pub fn log_panic(server: &CServer, entry: &str, payload: &(dyn Any + Send)) {
    let said = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no text)");
    let text = format!("Internal error in {entry}: {said}. This node is out of service until the server is restarted.");
    server.log(Level::Fatal, &text);
}

/// The server has a thread for signals; ours must not take them.
fn block_signals() {
    // SAFETY: plain calls of libc on a set that lives on this stack.
    unsafe {
        let mut all = std::mem::MaybeUninit::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
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
    fn a_panic_is_logged_once_and_answered_alike_ever_after() {
        let boundary = boundary();
        let (left, leaves) = mpsc::channel();
        let leave = || {
            let left = left.clone();
            move || left.send(()).unwrap()
        };
        assert_eq!(boundary.run("certify", -1, || 5, leave()), 5);
        assert_eq!(boundary.run("certify", -1, || panic!("seqno {} is gone", 7), leave()), -1);
        assert_eq!(boundary.run("release", -1, || unreachable!("a poisoned instance calls nothing"), leave()), -1);
        boundary.join();
        assert_eq!(leaves.try_iter().count(), 1, "leaves the group once");
        let lines = LOGGED.take();
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].0, trireme_wsrep_sys::LOG_FATAL);
        assert!(lines[0].1.starts_with("Internal error in certify: seqno 7 is gone."), "{}", lines[0].1);
    }

    #[test]
    fn a_panic_while_leaving_stays_in_its_thread() {
        let boundary = boundary();
        assert_eq!(boundary.run("recv", -1, || panic!("first"), || panic!("second")), -1);
        boundary.join();
    }

    #[test]
    fn leaving_does_not_hold_up_the_call_that_panicked() {
        let boundary = boundary();
        let (go, wait) = mpsc::channel::<()>();
        boundary.run("recv", (), || panic!("first"), move || wait.recv().unwrap());
        go.send(()).unwrap(); // only possible because `run` has returned
        boundary.join();
    }
}
