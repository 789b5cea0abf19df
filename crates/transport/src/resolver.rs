//! The thread that turns host names into addresses.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crate::Waker;

/// The answer for one name: its addresses, or why there are none.
pub(crate) struct Resolved {
    pub host: String,
    pub port: u16,
    pub result: Result<Vec<SocketAddr>, String>,
}

/// Started with the first name. Names are looked up one after the other; that a dead name server delays them all does not
/// matter, since then all names are dead.
pub(crate) struct Resolver {
    waker: Waker,
    thread: Option<Running>,
}

struct Running {
    requests: Sender<(String, u16)>,
    answers: Receiver<Resolved>,
    handle: JoinHandle<()>,
}

impl Resolver {
    pub fn new(waker: Waker) -> Resolver {
        Resolver { waker, thread: None }
    }

    /// The answer comes out of `poll` after a wake-up.
    pub fn ask(&mut self, host: &str, port: u16) -> Result<(), String> {
        if self.thread.is_none() {
            self.thread = Some(start(self.waker.clone())?);
        }
        let running = self.thread.as_ref().expect("started above");
        running.requests.send((host.to_owned(), port)).map_err(|_| "the resolver thread is gone".to_owned())
    }

    pub fn poll(&mut self) -> Option<Resolved> {
        self.thread.as_ref()?.answers.try_recv().ok()
    }

    /// Waits for the lookup under way: a thread that outlives the library's unloading would take the server down.
    pub fn stop(&mut self) {
        if let Some(Running { requests, answers, handle }) = self.thread.take() {
            drop((requests, answers));
            let _ = handle.join();
        }
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.stop();
    }
}

fn start(waker: Waker) -> Result<Running, String> {
    let (requests, inbox) = channel::<(String, u16)>();
    let (outbox, answers) = channel();
    let run = move || {
        while let Ok((host, port)) = inbox.recv() {
            let result = match (host.as_str(), port).to_socket_addrs() {
                Ok(found) => Ok(found.collect()),
                Err(error) => Err(error.to_string()),
            };
            if outbox.send(Resolved { host, port, result }).is_err() {
                return;
            }
            waker.wake();
        }
    };
    // The server has a thread of its own for signals, so none may be delivered here; the mask is inherited.
    let spawned =
        crate::socket::with_signals_blocked(|| std::thread::Builder::new().name("trireme-dns".to_owned()).spawn(run));
    let handle = spawned.map_err(|error| format!("cannot start the resolver thread: {error}"))?;
    Ok(Running { requests, answers, handle })
}
