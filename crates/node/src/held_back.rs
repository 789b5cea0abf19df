//! The write sets that flow control holds back, in the order in which they came.
//!
//! One of them may be a transaction whose locks an applier is in want of. It lets go of them at once: the applier may be what flow control
//! waits for.

use std::collections::VecDeque;

/// Of a transaction that may be aborted meanwhile, by another thread.
pub trait WriteSet {
    /// It was aborted.
    fn is_recalled(&self) -> bool;
    /// Tells its client that it was not sent.
    fn refuse(self);
}

/// See the module. Each of the server's threads has at most one here.
pub struct HeldBack<W> {
    held: VecDeque<W>,
}

impl<W> Default for HeldBack<W> {
    fn default() -> Self {
        HeldBack { held: VecDeque::new() }
    }
}

impl<W: WriteSet> HeldBack<W> {
    pub fn len(&self) -> usize {
        self.held.len()
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub fn hold(&mut self, write_set: W) {
        // The word that it was aborted may have come before it.
        if write_set.is_recalled() {
            write_set.refuse();
        } else {
            self.held.push_back(write_set);
        }
    }

    /// Some of them were aborted.
    pub fn recall(&mut self) {
        let (recalled, held): (VecDeque<W>, _) = self.held.drain(..).partition(W::is_recalled);
        self.held = held;
        recalled.into_iter().for_each(W::refuse);
    }

    /// The next one, if flow control lets it pass: `admit` is asked once, and only where one waits.
    pub fn next(&mut self, admit: impl FnOnce() -> bool) -> Option<W> {
        while self.held.front().is_some_and(W::is_recalled)
            && let Some(recalled) = self.held.pop_front()
        {
            recalled.refuse();
        }
        if self.is_empty() || !admit() { None } else { self.held.pop_front() }
    }

    pub fn refuse_all(&mut self) {
        self.held.drain(..).for_each(W::refuse);
    }
}
