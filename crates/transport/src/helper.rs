//! A thread for what would hold up the group thread.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use trireme_types::panic_text;

use crate::{Waker, with_signals_blocked};

/// Which request comes next when several wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Before all others, in the order in which they came.
    First,
    /// In the order in which they came.
    Second,
    /// After all others, the newest first; the oldest are dropped where many wait, without an answer.
    Last,
}

/// So many requests of [`Turn::Last`] wait. Where more come than can be worked off, the oldest are never reached, and each holds memory.
const LAST_MAX: usize = 256;

/// Requests that wait.
struct Inbox<Q> {
    first: VecDeque<Q>,
    second: VecDeque<Q>,
    last: VecDeque<Q>,
    /// The asker, or the thread, is gone.
    closed: bool,
    /// The text of the thread's panic. Nobody gets an answer any more.
    panicked: Option<String>,
}

impl<Q> Inbox<Q> {
    fn new() -> Inbox<Q> {
        Inbox { first: VecDeque::new(), second: VecDeque::new(), last: VecDeque::new(), closed: false, panicked: None }
    }

    fn next(&mut self) -> Option<Q> {
        self.first.pop_front().or_else(|| self.second.pop_front()).or_else(|| self.last.pop_back())
    }

    fn add(&mut self, request: Q, turn: Turn) {
        match turn {
            Turn::First => self.first.push_back(request),
            Turn::Second => self.second.push_back(request),
            Turn::Last => {
                self.last.push_back(request);
                if self.last.len() > LAST_MAX {
                    self.last.pop_front();
                }
            }
        }
    }
}

struct Requests<Q> {
    inbox: Mutex<Inbox<Q>>,
    filled: Condvar,
}

impl<Q> Requests<Q> {
    fn lock(&self) -> MutexGuard<'_, Inbox<Q>> {
        // Nobody panics while holding it.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits; `None` when the asker is gone.
    fn take(&self) -> Option<Q> {
        let mut inbox = self.lock();
        loop {
            if inbox.closed {
                return None;
            }
            if let Some(request) = inbox.next() {
                return Some(request);
            }
            inbox = self.filled.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Tells the asker that the thread has ended, however it did.
struct Ends<Q>(Arc<Requests<Q>>);

impl<Q> Drop for Ends<Q> {
    fn drop(&mut self) {
        self.0.lock().closed = true;
    }
}

/// Why a request is not worked off. Each names the thread.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HelperError {
    #[error("cannot start {title}: {source}")]
    Start { title: &'static str, source: io::Error },
    /// It panicked.
    #[error("{title} is gone")]
    Gone { title: &'static str },
}

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
    requests: Arc<Requests<Q>>,
    answers: Receiver<A>,
    handle: JoinHandle<()>,
}

impl<Q: Send + 'static, A: Send + 'static> Helper<Q, A> {
    pub fn new(waker: Waker, name: &'static str, title: &'static str, work: Work<Q, A>) -> Helper<Q, A> {
        Helper { waker, name, title, work, thread: None }
    }

    /// The answer comes out of `poll` after a wake-up.
    pub fn ask(&mut self, request: Q, turn: Turn) -> Result<(), HelperError> {
        if self.thread.is_none() {
            self.thread = Some(self.start()?);
        }
        let running = self.thread.as_ref().expect("started above");
        let mut inbox = running.requests.lock();
        if inbox.closed {
            return Err(HelperError::Gone { title: self.title });
        }
        inbox.add(request, turn);
        drop(inbox);
        running.requests.filled.notify_one();
        Ok(())
    }

    fn start(&self) -> Result<Running<Q, A>, HelperError> {
        let requests = Arc::new(Requests { inbox: Mutex::new(Inbox::new()), filled: Condvar::new() });
        let (outbox, answers) = channel();
        let inbox = requests.clone();
        let (work, waker) = (self.work, self.waker.clone());
        let run = move || {
            let ends = Ends(inbox);
            while let Some(request) = ends.0.take() {
                let done = catch_unwind(AssertUnwindSafe(|| work(request)));
                let answer = match done {
                    Ok(Some(answer)) => answer,
                    Ok(None) => continue,
                    Err(payload) => {
                        ends.0.lock().panicked = Some(panic_text(&*payload).to_owned());
                        drop(ends);
                        return waker.wake();
                    }
                };
                if outbox.send(answer).is_err() {
                    return;
                }
                waker.wake();
            }
        };
        // The server has a thread of its own for signals, so none may be delivered here; the mask is inherited.
        let spawned = with_signals_blocked(|| std::thread::Builder::new().name(self.name.to_owned()).spawn(run));
        let handle = spawned.map_err(|source| HelperError::Start { title: self.title, source })?;
        Ok(Running { requests, answers, handle })
    }
}

impl<Q, A> Helper<Q, A> {
    pub fn poll(&mut self) -> Option<A> {
        self.thread.as_ref()?.answers.try_recv().ok()
    }

    /// Once: the thread's name and what it said, if it panicked.
    pub fn take_panic(&mut self) -> Option<(&'static str, String)> {
        let said = self.thread.as_ref()?.requests.lock().panicked.take()?;
        Some((self.name, said))
    }

    /// Waits for the request under way: a thread that outlives the library's unloading would take the server down.
    pub fn stop(&mut self) {
        if let Some(Running { requests, answers, handle }) = self.thread.take() {
            requests.lock().closed = true;
            requests.filled.notify_one();
            drop(answers);
            let _ = handle.join();
        }
    }
}

impl<Q, A> Drop for Helper<Q, A> {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_last_ones_delays_nobody_else_and_starves_not_itself() {
        let mut inbox = Inbox::new();
        inbox.last.extend(0..1000);
        inbox.second.extend([2001, 2002]);
        inbox.first.extend([3001, 3002]);
        let order: Vec<i32> = std::iter::from_fn(|| inbox.next()).take(6).collect();
        assert_eq!(order, [3001, 3002, 2001, 2002, 999, 998]);
    }

    #[test]
    fn a_flood_that_nobody_works_off_keeps_no_more_than_its_newest() {
        let mut inbox = Inbox::new();
        (0..10_000).for_each(|n| inbox.add(n, Turn::Last));
        inbox.add(-1, Turn::First);
        let kept: Vec<i32> = std::iter::from_fn(|| inbox.next()).collect();
        assert_eq!((kept.len(), kept[0], kept[1], kept[LAST_MAX]), (LAST_MAX + 1, -1, 9_999, 10_000 - LAST_MAX as i32));
    }

    #[test]
    fn a_panic_is_told_to_whoever_asks_and_ends_the_thread() {
        let mut poll = mio::Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), mio::Token(0)).unwrap();
        let mut helper: Helper<u8, u8> = Helper::new(waker, "trireme-test", "the thread", |n| {
            assert!(n > 0, "asked for {n}");
            Some(n)
        });
        assert_eq!(helper.take_panic(), None);
        helper.ask(0, Turn::First).unwrap();
        poll.poll(&mut mio::Events::with_capacity(1), None).unwrap();
        assert_eq!(helper.take_panic(), Some(("trireme-test", "asked for 0".to_owned())));
        assert_eq!(helper.take_panic(), None, "once");
        let gone = helper.ask(1, Turn::First).unwrap_err();
        assert_eq!(gone.to_string(), "the thread is gone");
    }
}
