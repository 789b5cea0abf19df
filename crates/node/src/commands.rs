//! The way from other threads to the group thread.

use std::sync::Mutex;

use trireme_transport::Waker;

use crate::core::{Command, refuse};

#[derive(Default)]
struct State {
    commands: Vec<Command>,
    /// `None` while no group thread runs: commands are refused.
    waker: Option<Waker>,
}

/// Bounded by what the server's threads can have under way: each has at most one command at a time.
#[derive(Default)]
pub struct CommandQueue {
    state: Mutex<State>,
}

impl CommandQueue {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the command queue panics")
    }

    pub fn open(&self, waker: Waker) {
        self.lock().waker = Some(waker);
    }

    /// Does a group thread run?
    pub fn is_open(&self) -> bool {
        self.lock().waker.is_some()
    }

    /// False when no group thread runs: the command is refused.
    pub fn push(&self, command: Command) -> bool {
        let mut s = self.lock();
        match s.waker.clone() {
            Some(waker) => {
                let first = s.commands.is_empty();
                s.commands.push(command);
                drop(s);
                // Whoever finds the queue non-empty knows that a wake-up is under way.
                if first {
                    waker.wake();
                }
                true
            }
            None => {
                drop(s);
                refuse(command);
                false
            }
        }
    }

    /// Moves what is queued into `into`.
    pub fn take(&self, into: &mut Vec<Command>) {
        std::mem::swap(&mut self.lock().commands, into);
    }

    /// Refuses everything from here on; what is still queued is handed out.
    pub fn close(&self, rest: &mut Vec<Command>) {
        let mut s = self.lock();
        s.waker = None;
        std::mem::swap(&mut s.commands, rest);
    }
}
