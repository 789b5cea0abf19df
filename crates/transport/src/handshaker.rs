//! The thread that computes TLS handshakes.
//!
//! A handshake costs milliseconds of public-key arithmetic before the peer has shown anything, so a stranger could keep the
//! group thread busy by opening connections. Here it delays other handshakes only.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use crate::Waker;
use crate::tls::Session;

/// Names a step that was asked for. The step is skipped once the asker has dropped it: then its connection is gone, and
/// strangers who come and go in a hurry leave no work behind.
#[derive(Clone)]
pub(crate) struct Ticket(Arc<()>);

/// The answer for one step.
pub(crate) struct Stepped {
    ticket: Weak<()>,
    pub session: Session,
    /// Is the handshake done? The error says why it failed.
    pub result: Result<bool, String>,
}

impl Stepped {
    pub fn answers(&self, ticket: &Ticket) -> bool {
        std::ptr::eq(self.ticket.as_ptr(), Arc::as_ptr(&ticket.0))
    }
}

/// Started with the first handshake.
pub(crate) struct Handshaker {
    waker: Waker,
    thread: Option<Running>,
}

struct Running {
    requests: Sender<(Weak<()>, Session)>,
    answers: Receiver<Stepped>,
    handle: JoinHandle<()>,
}

impl Handshaker {
    pub fn new(waker: Waker) -> Handshaker {
        Handshaker { waker, thread: None }
    }

    /// Goes on with the handshake of `session`; the answer comes out of `poll` after a wake-up.
    pub fn step(&mut self, session: Session) -> Result<Ticket, String> {
        if self.thread.is_none() {
            self.thread = Some(start(self.waker.clone())?);
        }
        let running = self.thread.as_ref().expect("started above");
        let ticket = Ticket(Arc::new(()));
        let sent = running.requests.send((Arc::downgrade(&ticket.0), session));
        sent.map(|()| ticket).map_err(|_| "the thread for TLS handshakes is gone".to_owned())
    }

    pub fn poll(&mut self) -> Option<Stepped> {
        self.thread.as_ref()?.answers.try_recv().ok()
    }

    /// Waits for the step under way: a thread that outlives the library's unloading would take the server down.
    pub fn stop(&mut self) {
        if let Some(Running { requests, answers, handle }) = self.thread.take() {
            drop((requests, answers));
            let _ = handle.join();
        }
    }
}

impl Drop for Handshaker {
    fn drop(&mut self) {
        self.stop();
    }
}

fn start(waker: Waker) -> Result<Running, String> {
    let (requests, inbox) = channel::<(Weak<()>, Session)>();
    let (outbox, answers) = channel();
    let run = move || {
        while let Ok((ticket, mut session)) = inbox.recv() {
            if ticket.strong_count() == 0 {
                continue;
            }
            let result = session.handshake();
            if outbox.send(Stepped { ticket, session, result }).is_err() {
                return;
            }
            waker.wake();
        }
    };
    // As for names: no signals here.
    let spawned =
        crate::socket::with_signals_blocked(|| std::thread::Builder::new().name("trireme-tls".to_owned()).spawn(run));
    let handle = spawned.map_err(|error| format!("cannot start the thread for TLS handshakes: {error}"))?;
    Ok(Running { requests, answers, handle })
}
