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

use trireme_node::{Level, Node, Server};
use trireme_wsrep_sys::Wsrep;

use crate::server::CServer;

/// One provider instance.
pub struct Instance {
    pub node: Arc<Node>,
    server: Arc<CServer>,
    poisoned: AtomicBool,
    /// Takes a poisoned node out of the group; joined by [`Instance::close`].
    leaving: Mutex<Option<JoinHandle<()>>>,
}

// Entries are called from any thread.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Instance>();
};

impl Instance {
    pub fn new(node: Node, server: Arc<CServer>) -> Instance {
        Instance { node: Arc::new(node), server, poisoned: AtomicBool::new(false), leaving: Mutex::new(None) }
    }

    /// Ends every thread of the node. Returns false when that panicked: then nothing of the instance may be dropped, because
    /// threads may still use it.
    pub fn close(&self) -> bool {
        let leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A panic inside that thread was caught and logged there.
        leaving.map(JoinHandle::join);
        match catch_unwind(AssertUnwindSafe(|| self.node.close())) {
            Ok(()) => true,
            Err(payload) => {
                log_panic(&self.server, "free", &*payload);
                false
            }
        }
    }

    fn poison(&self, entry: &str, payload: &(dyn Any + Send)) {
        log_panic(&self.server, entry, payload);
        if self.poisoned.swap(true, Ordering::SeqCst) {
            return;
        }
        // Leaving can wait for others, and the thread that panicked may be one that others wait for: so a thread of its own.
        let (node, server) = (Arc::clone(&self.node), Arc::clone(&self.server));
        let thread = std::thread::Builder::new().name("trireme-leave".into()).spawn(move || {
            block_signals();
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| node.disconnect())) {
                log_panic(&server, "disconnect", &*payload);
            }
        });
        match thread {
            Ok(handle) => *self.leaving.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle),
            Err(e) => log(&self.server, &format!("A poisoned node could not be taken out of the group: {e}")),
        }
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
    if instance.poisoned.load(Ordering::SeqCst) {
        return failed;
    }
    match catch_unwind(AssertUnwindSafe(|| call(instance))) {
        Ok(answer) => answer,
        Err(payload) => {
            instance.poison(entry, &*payload);
            failed
        }
    }
}

/// Logs what a panic said. Must not panic itself: the logger is the server's, and the text is made without unwrapping.
pub fn log_panic(server: &CServer, entry: &str, payload: &(dyn Any + Send)) {
    let said = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no text)");
    log(server, &format!("Internal error in {entry}: {said}. This node is out of service until the server is restarted."));
}

fn log(server: &CServer, text: &str) {
    server.log(Level::Fatal, text);
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
