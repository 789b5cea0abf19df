//! A thread for what would hold up the group thread.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crate::Waker;

/// Started with the first request. Requests are worked off one after the other.
pub(crate) struct Helper<Q, A> {
    waker: Waker,
    /// The thread's name, as the system shows it.
    name: &'static str,
    /// The thread in our own words, for errors.
    title: &'static str,
    work: Work<Q, A>,
    thread: Option<Running<Q, A>>,
}

/// `None`: nobody waits for the answer any more.
type Work<Q, A> = fn(Q) -> Option<A>;

struct Running<Q, A> {
    requests: Sender<Q>,
    answers: Receiver<A>,
    handle: JoinHandle<()>,
}

impl<Q: Send + 'static, A: Send + 'static> Helper<Q, A> {
    pub fn new(waker: Waker, name: &'static str, title: &'static str, work: Work<Q, A>) -> Helper<Q, A> {
        Helper { waker, name, title, work, thread: None }
    }

    /// The answer comes out of `poll` after a wake-up.
    pub fn ask(&mut self, request: Q) -> Result<(), String> {
        if self.thread.is_none() {
            self.thread = Some(self.start()?);
        }
        let running = self.thread.as_ref().expect("started above");
        running.requests.send(request).map_err(|_| format!("{} is gone", self.title))
    }

    fn start(&self) -> Result<Running<Q, A>, String> {
        let (requests, inbox) = channel();
        let (outbox, answers) = channel();
        let (work, waker) = (self.work, self.waker.clone());
        let run = move || {
            while let Ok(request) = inbox.recv() {
                let Some(answer) = work(request) else { continue };
                if outbox.send(answer).is_err() {
                    return;
                }
                waker.wake();
            }
        };
        // The server has a thread of its own for signals, so none may be delivered here; the mask is inherited.
        let spawned =
            crate::socket::with_signals_blocked(|| std::thread::Builder::new().name(self.name.to_owned()).spawn(run));
        let handle = spawned.map_err(|error| format!("cannot start {}: {error}", self.title))?;
        Ok(Running { requests, answers, handle })
    }
}

impl<Q, A> Helper<Q, A> {
    pub fn poll(&mut self) -> Option<A> {
        self.thread.as_ref()?.answers.try_recv().ok()
    }

    /// Waits for the request under way: a thread that outlives the library's unloading would take the server down.
    pub fn stop(&mut self) {
        if let Some(Running { requests, answers, handle }) = self.thread.take() {
            drop((requests, answers));
            let _ = handle.join();
        }
    }
}

impl<Q, A> Drop for Helper<Q, A> {
    fn drop(&mut self) {
        self.stop();
    }
}
