//! The node's own threads.

use std::thread::{self, JoinHandle};

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
