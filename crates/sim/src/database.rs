//! The model of a server's data: a durable position and a content, applied with a lag and lost in its own way.
//!
//! It demands what InnoDB under the wsrep contract demands: seqnos one after the other, each exactly once, never one at or
//! below the position.

use std::collections::BTreeMap;

use trireme_types::Uuid;

use crate::options::DbFlush;
use crate::rng::{Rng, mix};

/// Content of the data after `position`. Cheap to copy: keys are few.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    pub history: Uuid,
    pub position: u64,
    /// Hash over everything applied.
    pub chain: u64,
    /// Newest committed operation per key.
    pub rows: BTreeMap<u16, u64>,
}

/// One position to be applied.
#[derive(Clone, Debug)]
pub struct Change {
    pub seqno: u64,
    pub hash: u64,
    /// Keys and the operation that wrote them; empty for views and failed certification.
    pub rows: Vec<(u16, u64)>,
}

#[derive(Clone, Debug, Default)]
pub struct Database {
    pub now: State,
    durable: State,
    /// With the kernel, survives the process.
    kernel: State,
    /// Position unknown: no data yet, or a state transfer was interrupted.
    pub valid: bool,
    pub queue: std::collections::VecDeque<Change>,
}

impl Database {
    /// An empty database at the beginning of `history`.
    pub fn begin(&mut self, history: Uuid, position: u64) {
        let state = State { history, position, ..State::default() };
        *self =
            Database { now: state.clone(), durable: state.clone(), kernel: state, valid: true, ..Database::default() };
    }

    /// What `--wsrep-recover` would say.
    pub fn recovered(&self) -> Option<(Uuid, u64)> {
        self.valid.then_some((self.now.history, self.now.position))
    }

    /// Last seqno applied or waiting to be.
    pub fn queued_to(&self) -> u64 {
        self.queue.back().map_or(self.now.position, |c| c.seqno)
    }

    pub fn durable_position(&self) -> u64 {
        self.durable.position
    }

    pub fn apply_one(&mut self, flush: DbFlush) -> Result<bool, String> {
        if !self.valid {
            return Ok(false);
        }
        let Some(change) = self.queue.pop_front() else { return Ok(false) };
        if change.seqno != self.now.position + 1 {
            return Err(format!("database at {} is given {}", self.now.position, change.seqno));
        }
        self.now.position = change.seqno;
        self.now.chain = mix(self.now.chain ^ change.hash);
        for (key, op) in change.rows {
            self.now.rows.insert(key, op);
        }
        match flush {
            DbFlush::Lazy => {}
            DbFlush::Each => self.flush(),
            DbFlush::Kernel => self.kernel = self.now.clone(),
        }
        Ok(true)
    }

    pub fn flush(&mut self) {
        if self.valid {
            self.durable = self.now.clone();
            self.kernel = self.now.clone();
        }
    }

    pub fn crash(&mut self, power: bool, rng: &mut Rng) {
        self.queue.clear();
        if !self.valid {
            return;
        }
        if power {
            self.now = self.durable.clone();
        } else if self.kernel.position > self.durable.position || rng.chance(0.5) {
            self.now = self.kernel.clone();
        } else {
            self.now = self.durable.clone();
        }
        self.durable = self.now.clone();
        self.kernel = self.now.clone();
    }

    pub fn invalidate(&mut self) {
        self.valid = false;
        self.now = State::default();
        self.durable = State::default();
        self.kernel = State::default();
    }

    /// A state transfer has ended: the data is the donor's.
    pub fn load(&mut self, state: State) -> Result<(), String> {
        while self.queue.front().is_some_and(|c| c.seqno <= state.position) {
            self.queue.pop_front();
        }
        if let Some(next) = self.queue.front() {
            if next.seqno != state.position + 1 {
                return Err(format!("copy ends at {}, next delivered is {}", state.position, next.seqno));
            }
        }
        self.now = state;
        self.valid = true;
        self.flush();
        Ok(())
    }
}
