//! The node's own threads.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::slot::Slot;

/// A thread that works off jobs until it is told to end.
pub struct Helper {
    name: &'static str,
    handle: JoinHandle<()>,
    ended: Arc<Slot<()>>,
}

impl Helper {
    /// `work`: returns when the thread is to end. Each time that it panics instead, `failed` is called with what was said, and it is
    /// called again for the jobs that are left: somebody may wait for one of them.
    pub fn start(
        name: &'static str,
        work: impl Fn() + Send + 'static,
        failed: impl Fn(&str) + Send + 'static,
    ) -> Helper {
        let ended = Arc::new(Slot::default());
        let mark = ended.clone();
        let body = move || {
            while let Err(payload) = catch_unwind(AssertUnwindSafe(&work)) {
                failed(panic_text(&*payload));
            }
            mark.fill(());
        };
        Helper { name, handle: spawn(name, body), ended }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Waits for its end. **Errors:** it is still at work at the deadline, most likely for a disk that does not answer.
    pub fn join(self, deadline: Instant) -> Result<(), Helper> {
        match self.ended.wait_until(deadline) {
            Some(()) => {
                // What it panicked of was told by itself.
                let _ = self.handle.join();
                Ok(())
            }
            None => Err(self),
        }
    }
}

/// What a panic said.
pub fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let said = payload.downcast_ref::<&str>().copied();
    said.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no text)")
}

/// Starts a named thread that no signal of the process is delivered to: the server has a thread for them.
pub fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    thread::Builder::new()
        .name(name.to_string())
        .spawn(move || {
            block_signals();
            body()
        })
        .expect("the process may start threads")
}

fn block_signals() {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set that it is given; pthread_sigmask reads it, and takes null for "do not tell the
    // former mask". Only the calling thread is affected.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}

/// Ends the process without the server's crash report: what ends here is a server that could not get its data, and the
/// reason is in the log already.
pub fn end_process() -> ! {
    // SAFETY: SIG_DFL is a valid disposition for SIGABRT; the process ends at once.
    unsafe {
        libc::signal(libc::SIGABRT, libc::SIG_DFL);
    }
    std::process::abort()
}
