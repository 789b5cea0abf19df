//! The way from many threads to one that sleeps in a poll.

use crate::sync::{Mutex, MutexGuard};

/// Somebody may wait for what becomes of it.
pub trait Letter {
    /// Nobody will read it.
    fn refuse(self);
}

/// Gets the reader out of its sleep. All that was put into the mailbox before is seen after it.
pub trait Wake: Clone {
    fn wake(&self);
}

struct State<L, W> {
    letters: Vec<L>,
    /// `None` while nobody reads: letters are refused.
    reader: Option<W>,
}

/// See the module.
pub struct Mailbox<L, W> {
    state: Mutex<State<L, W>>,
}

impl<L, W> Default for Mailbox<L, W> {
    fn default() -> Self {
        Mailbox { state: Mutex::new(State { letters: Vec::new(), reader: None }) }
    }
}

impl<L: Letter, W: Wake> Mailbox<L, W> {
    fn lock(&self) -> MutexGuard<'_, State<L, W>> {
        self.state.lock().expect("no holder of a mailbox panics")
    }

    /// Somebody reads from here on.
    pub fn open(&self, reader: W) {
        self.lock().reader = Some(reader);
    }

    pub fn is_open(&self) -> bool {
        self.lock().reader.is_some()
    }

    /// False when nobody reads: the letter was refused.
    pub fn push(&self, letter: L) -> bool {
        let mut s = self.lock();
        match s.reader.clone() {
            Some(reader) => {
                let first = s.letters.is_empty();
                s.letters.push(letter);
                drop(s);
                // A sender that finds other letters waiting knows that a wake-up is under way.
                if first {
                    reader.wake();
                }
                true
            }
            None => {
                drop(s);
                letter.refuse();
                false
            }
        }
    }

    /// By the reader: moves what waits into `into`, which is empty.
    pub fn take(&self, into: &mut Vec<L>) {
        std::mem::swap(&mut self.lock().letters, into);
    }

    /// Refuses everything from here on; what still waits is handed out.
    pub fn close(&self, rest: &mut Vec<L>) {
        let mut s = self.lock();
        s.reader = None;
        std::mem::swap(&mut s.letters, rest);
    }
}
