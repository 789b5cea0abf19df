//! The model of a server's data: a durable position and a content, applied with a lag and lost in its own way.
//!
//! It demands what InnoDB under the wsrep contract demands: seqnos one after the other, each exactly once, never one at or
//! below the position.

use std::collections::BTreeMap;

use trireme_replicator::votes::ErrorClass;
use trireme_replicator::{Failures, Position};
use trireme_types::{Lineage, Seqno, Uuid};

use crate::judge::{Part, WriteSet};
use crate::options::DbFlush;
use crate::rng::{Rng, mix};
use crate::values::{List, changes};

/// Content of the data after `position`. Cheap to copy: keys are few.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    pub history: Uuid,
    pub position: u64,
    /// The forks behind it.
    pub lineage: Lineage,
    /// Hash over everything applied.
    pub chain: u64,
    /// Committed operations per key.
    pub rows: BTreeMap<u16, List>,
    /// Streaming transactions that have not ended: fragments applied, and what they wrote.
    pub staged: BTreeMap<u64, (u32, Vec<(u16, u64)>)>,
}

/// What a change does with its rows.
#[derive(Clone, Debug)]
pub enum Staging {
    /// They are committed.
    Rows,
    /// They wait for the end of this operation; so many fragments of it came before.
    Keep(u64, u32),
    /// They are committed together with those that wait: so many fragments.
    Publish(u64, u32),
    /// What waits of these operations never was.
    Drop(Vec<u64>),
}

impl State {
    fn commit(&mut self, stage: Staging, mut rows: Vec<(u16, u64)>) -> Result<(), String> {
        let fragments = |op: &u64, staged: &BTreeMap<u64, (u32, Vec<(u16, u64)>)>| staged.get(op).map_or(0, |s| s.0);
        match stage {
            Staging::Rows => {}
            Staging::Drop(ops) => self.staged.retain(|op, _| !ops.contains(op)),
            Staging::Keep(op, before) | Staging::Publish(op, before) if fragments(&op, &self.staged) != before => {
                let held = fragments(&op, &self.staged);
                return Err(format!("operation {op} goes on after {before} fragments, {held} are here"));
            }
            Staging::Keep(op, _) => {
                let staged = self.staged.entry(op).or_default();
                staged.0 += 1;
                staged.1.append(&mut rows);
            }
            Staging::Publish(op, _) => {
                let (_, mut all) = self.staged.remove(&op).unwrap_or_default();
                all.append(&mut rows);
                rows = all;
            }
        }
        for (key, op) in rows {
            self.rows.entry(key).or_default().append(op);
        }
        Ok(())
    }
}

/// One position to be applied.
#[derive(Clone, Debug)]
pub struct Change {
    pub seqno: u64,
    /// Whose it is; zero for a view.
    pub op: u64,
    pub hash: u64,
    pub lineage: Lineage,
    /// Lists and the operation that appends to them; empty for views and failed certification.
    pub rows: Vec<(u16, u64)>,
    pub stage: Staging,
    /// The server fails to apply it, with this error.
    pub fails: Option<ErrorClass>,
    /// A statement in total-order isolation: a death in the middle leaves its beginnings.
    pub isolated: bool,
}

impl Change {
    /// What a write set does. Without an effect it only takes its place.
    pub fn of(ws: &WriteSet, seqno: u64, hash: u64, lineage: Lineage, effect: bool) -> Change {
        let (rows, stage) = match ws.part {
            Part::Rollback => (Vec::new(), Staging::Drop(vec![ws.op])),
            _ if !effect => (Vec::new(), Staging::Rows),
            part => {
                let rows = ws.keys.iter().filter(|k| changes(k.1)).map(|k| (k.0, ws.op)).collect();
                let stage = match part {
                    Part::Fragment(n) => Staging::Keep(ws.op, n),
                    Part::Commit(n) => Staging::Publish(ws.op, n),
                    Part::Whole | Part::Isolated | Part::Rollback => Staging::Rows,
                };
                (rows, stage)
            }
        };
        Change {
            seqno,
            op: ws.op,
            hash,
            lineage,
            rows,
            stage,
            fails: None,
            isolated: ws.part == Part::Isolated && effect,
        }
    }

    /// Operations that are over when it is applied.
    pub fn ends(&self) -> impl Iterator<Item = u64> {
        let (own, others) = match &self.stage {
            Staging::Keep(..) => (None, [].iter()),
            Staging::Rows | Staging::Publish(..) => (Some(self.op), [].iter()),
            Staging::Drop(ops) => (None, ops.iter()),
        };
        own.into_iter().chain(others.copied())
    }
}

#[derive(Clone, Debug, Default)]
pub struct Database {
    pub now: State,
    durable: State,
    /// With the kernel, survives the process.
    kernel: State,
    /// Where the data were when the engine was opened: read back, be it from the disk or from the kernel's memory.
    read_back: u64,
    /// A statement was cut off in them: they are no data, unless nobody has better ones (rule 26).
    pub half_done: bool,
    /// Position unknown: no data yet, or a state transfer was interrupted.
    pub valid: bool,
    pub queue: std::collections::VecDeque<Change>,
    /// What a node keeps on disk beside the data, synced.
    pub failures: Option<Failures>,
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

    /// What survives whatever happens to process and machine.
    pub fn on_disk(&self) -> &State {
        &self.durable
    }

    /// What the engine says that the disk has. What it read back when it was opened it takes for that.
    pub fn said_durable(&self) -> u64 {
        self.durable.position.max(self.read_back)
    }

    /// Where data are that a statement was cut off in.
    pub fn half_done_at(&self) -> Option<u64> {
        self.half_done.then_some(self.now.position)
    }

    /// It goes on from data that a statement was cut off in.
    pub fn trust(&mut self) {
        self.half_done = false;
        self.valid = true;
    }

    /// Its position is taken from elsewhere than from the engine.
    pub fn pretend(&mut self, position: u64) {
        self.now.position = position;
    }

    /// The process dies in the middle of a statement, whose beginnings are in the data, as nowhere else.
    pub fn cut_off(&mut self, rng: &mut Rng) {
        self.valid = false;
        self.half_done = true;
        self.now.chain = mix(self.now.chain ^ rng.next());
        self.durable = self.now.clone();
        self.kernel = self.now.clone();
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
        self.now.lineage = change.lineage;
        self.now.chain = mix(self.now.chain ^ change.hash);
        self.now.commit(change.stage, change.rows)?;
        match flush {
            DbFlush::Lazy => {}
            DbFlush::Each => self.flush(),
            DbFlush::Kernel => self.kernel = self.now.clone(),
        }
        Ok(true)
    }

    /// The server fails to apply what is next, and its node notes that.
    pub fn note_failure(&mut self, code: ErrorClass) {
        let Some(next) = self.queue.front() else { return };
        let found = Position { history: self.now.history, seqno: Seqno(self.now.position) };
        self.failures.get_or_insert_with(|| Failures::begin(found)).note(Seqno(next.seqno), code);
    }

    /// The engine stores that it is done with what the server has failed to apply.
    pub fn skip_one(&mut self) -> Result<bool, String> {
        if let Some(change) = self.queue.front_mut() {
            change.rows.clear();
        }
        self.apply_one(DbFlush::Each)
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
        self.kernel = self.now.clone();
        self.read_back = self.now.position;
    }

    /// What a server finds that is started on a copy of what is on disk.
    pub fn copy(&self) -> Database {
        let state = self.durable.clone();
        Database {
            now: state.clone(),
            durable: state.clone(),
            kernel: state,
            valid: self.valid,
            half_done: self.half_done,
            failures: self.failures.clone(),
            ..Database::default()
        }
    }

    pub fn invalidate(&mut self) {
        self.valid = false;
        self.half_done = false;
        self.read_back = 0;
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
        self.half_done = false;
        self.valid = true;
        self.flush();
        Ok(())
    }
}
