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

/// The effect of a change on its rows.
#[derive(Clone, Debug)]
pub enum Staging {
    /// They are committed.
    Rows,
    /// They wait for the end of this operation; so many fragments of it came before.
    Keep(u64, u32),
    /// They are committed together with those that wait: so many fragments.
    Publish(u64, u32),
    /// The waiting rows of these operations never were.
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

/// The owner of the thread that commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    Applier,
    /// An own client's, which has done the work already.
    Client,
    /// The same, and it does the work again.
    Replay,
    /// The same, and it does the work in its turn: a statement in total-order isolation.
    Statement,
}

/// One position to be applied.
#[derive(Clone, Debug)]
pub struct Change {
    pub seqno: u64,
    /// An applier may begin with it once everything up to here is committed.
    pub depends_on: u64,
    pub by: By,
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
    /// The change of a write set. Without an effect it only takes its place.
    pub fn of(ws: &WriteSet, seqno: u64, depends_on: u64, hash: u64, lineage: Lineage, effect: bool) -> Change {
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
            depends_on,
            by: By::Applier,
            op: ws.op,
            hash,
            lineage,
            rows,
            stage,
            fails: None,
            isolated: ws.part == Part::Isolated && effect,
        }
    }

    /// A view. The server stores its position by itself, with nothing beside it.
    pub fn view(seqno: u64, hash: u64, lineage: Lineage, ended: Vec<u64>) -> Change {
        Change {
            seqno,
            depends_on: seqno - 1,
            by: By::Applier,
            op: 0,
            hash,
            lineage,
            rows: Vec::new(),
            stage: Staging::Drop(ended),
            fails: None,
            isolated: false,
        }
    }

    /// Why it may not run together with `other`, if so.
    fn clash(&self, other: &Change) -> Option<String> {
        if self.by == By::Client && other.by == By::Client && self.op == other.op {
            // A streaming transaction changes its own rows again.
            return None;
        }
        let both = format!("{} and {} are applied together", other.seqno, self.seqno);
        let row = self.rows.iter().map(|row| row.0).find(|row| other.rows.iter().any(|o| o.0 == *row));
        match row {
            Some(row) => Some(format!("{both}, and both change row {row}")),
            // A client of this server has done its work, and only waits for its turn.
            None if self.by == By::Client || other.by == By::Client => None,
            None if self.isolated || other.isolated => Some(format!("{both}, and one is a statement in isolation")),
            None if self.op == 0 || other.op == 0 => Some(format!("{both}, and one is a view")),
            None => None,
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
    /// They lost a vote, and were given up for that.
    pub outvoted: bool,
    /// Position unknown: no data yet, or a state transfer was interrupted.
    pub valid: bool,
    pub queue: std::collections::VecDeque<Change>,
    /// Those of them that have been begun, and whether that is done and only waits for its turn to commit.
    running: BTreeMap<u64, bool>,
    /// The commit order is paused: nothing behind this begins.
    paused_at: Option<u64>,
    /// The node's note of failures, which it keeps on disk beside the data, synced.
    pub failures: Option<Failures>,
}

impl Database {
    /// An empty database at the beginning of `history`.
    pub fn begin(&mut self, history: Uuid, position: u64) {
        let state = State { history, position, ..State::default() };
        *self =
            Database { now: state.clone(), durable: state.clone(), kernel: state, valid: true, ..Database::default() };
    }

    /// The answer that `--wsrep-recover` would give.
    pub fn recovered(&self) -> Option<(Uuid, u64)> {
        self.valid.then_some((self.now.history, self.now.position))
    }

    /// Last seqno applied or waiting to be.
    pub fn queued_to(&self) -> u64 {
        self.queue.back().map_or(self.now.position, |c| c.seqno)
    }

    /// A client of this server is to commit this. Others may be queued already that come after it.
    ///
    /// **Errors:** somebody else has it, or has committed it.
    pub fn take_in(&mut self, change: Change) -> Result<(), String> {
        let at = self.queue.partition_point(|other| other.seqno < change.seqno);
        if change.seqno <= self.now.position || self.queue.get(at).is_some_and(|other| other.seqno == change.seqno) {
            return Err(format!("a client and an applier are given {}", change.seqno));
        }
        self.queue.insert(at, change);
        Ok(())
    }

    /// The state that survives every death of process and machine.
    pub fn on_disk(&self) -> &State {
        &self.durable
    }

    /// The position that the engine says is on disk. It takes the one that it read back when it was opened for that.
    pub fn said_durable(&self) -> u64 {
        self.durable.position.max(self.read_back)
    }

    /// The position of data that a statement was cut off in.
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

    /// The process dies in the middle of a statement. Its beginnings are in the data here, and nowhere else.
    pub fn cut_off(&mut self, rng: &mut Rng) {
        self.valid = false;
        self.half_done = true;
        self.now.chain = mix(self.now.chain ^ rng.next());
        self.durable = self.now.clone();
        self.kernel = self.now.clone();
    }

    /// Appliers take the queued changes, one after the other. Each begins as soon as what its write set depends on is committed; with
    /// `free`, as soon as no view or statement in isolation is before it. Says which were begun now.
    ///
    /// **Errors:** two run together that must not.
    pub fn begin_some(&mut self, appliers: usize, free: bool) -> Result<Vec<u64>, String> {
        let mut begun = Vec::new();
        let mut taken = 0;
        let mut alone = false;
        for at in 0..if self.valid { self.queue.len() } else { 0 } {
            let change = &self.queue[at];
            if self.paused_at.is_some_and(|paused| change.seqno > paused) {
                break;
            }
            if change.by == By::Applier {
                if taken == appliers {
                    break;
                }
                taken += 1;
            }
            alone |= change.isolated || change.op == 0;
            let ready = change.by == By::Client || change.depends_on <= self.now.position || free && !alone;
            if !ready || self.running.contains_key(&change.seqno) {
                continue;
            }
            let last = self.running.last_key_value().map_or(0, |(last, _)| *last);
            let mut others = self.queue.iter().take_while(|c| c.seqno <= last);
            let clash = others.find_map(|o| change.clash(o).filter(|_| self.running.contains_key(&o.seqno)));
            if let Some(text) = clash {
                return Err(text);
            }
            begun.push(change.seqno);
            self.running.insert(change.seqno, false);
        }
        Ok(begun)
    }

    pub fn change(&self, seqno: u64) -> Option<&Change> {
        let first = self.queue.front()?.seqno;
        self.queue.get(seqno.checked_sub(first)? as usize)
    }

    /// The work of a client that waits for its turn is rolled back, and done again in its turn.
    pub fn replay(&mut self, seqno: u64) {
        let at = self.queue.front().map_or(0, |first| seqno.saturating_sub(first.seqno)) as usize;
        if let Some(change) = self.queue.get_mut(at).filter(|c| c.seqno == seqno) {
            (change.by, change.depends_on) = (By::Replay, seqno - 1);
            self.running.remove(&seqno);
        }
    }

    /// Does an applier change this row now, or a statement in isolation anything?
    pub fn is_applied_now(&self, row: u16) -> bool {
        let running = self.running.keys().filter_map(|seqno| self.change(*seqno));
        let mut others = running.filter(|c| c.by != By::Client);
        others.any(|c| c.isolated || c.rows.iter().any(|own| own.0 == row))
    }

    /// Nothing begins any more. `false`: so it was already.
    pub fn pause(&mut self) -> bool {
        let begun = self.running.last_key_value().map_or(0, |(last, _)| *last);
        self.paused_at.replace(begun.max(self.now.position)).is_none()
    }

    /// `false`: there was no pause.
    pub fn resume(&mut self) -> bool {
        self.paused_at.take().is_some()
    }

    /// The changes that have been begun, and those of them that only wait for their turn.
    pub fn applies(&self) -> &BTreeMap<u64, bool> {
        &self.running
    }

    /// How many have begun with something that is not committed.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    pub fn is_running(&self, seqno: u64) -> bool {
        self.running.contains_key(&seqno)
    }

    /// The work on it is done: it waits for its turn.
    pub fn finish(&mut self, seqno: u64) {
        if let Some(done) = self.running.get_mut(&seqno) {
            *done = true;
        }
    }

    /// Is the work done on what is next?
    pub fn may_commit(&self) -> bool {
        self.valid && self.queue.front().is_some_and(|next| self.running.get(&next.seqno) == Some(&true))
    }

    /// A statement in total-order isolation is being executed.
    pub fn in_statement(&self) -> bool {
        self.valid && self.queue.front().is_some_and(|c| c.isolated && self.running.contains_key(&c.seqno))
    }

    pub fn apply_one(&mut self, flush: DbFlush) -> Result<bool, String> {
        if !self.valid {
            return Ok(false);
        }
        let Some(change) = self.queue.pop_front() else { return Ok(false) };
        if change.seqno != self.now.position + 1 {
            return Err(format!("database at {} is given {}", self.now.position, change.seqno));
        }
        self.running.remove(&change.seqno);
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

    /// How `seqno` went here, as its node notes it. `None`: nothing is known.
    pub fn noted(&self, seqno: Seqno) -> Option<ErrorClass> {
        self.failures.as_ref()?.held(seqno)
    }

    /// The engine stores that it is done with the change that the server has failed to apply.
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
        // Changes that were begun and not committed are rolled back: the data are a prefix of the history.
        self.queue.clear();
        self.running.clear();
        self.paused_at = None;
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

    /// The database of a server that is started on a copy of the disk.
    pub fn copy(&self) -> Database {
        let state = self.durable.clone();
        Database {
            now: state.clone(),
            durable: state.clone(),
            kernel: state,
            valid: self.valid,
            half_done: self.half_done,
            outvoted: self.outvoted,
            failures: self.failures.clone(),
            ..Database::default()
        }
    }

    /// The queue, and how far the appliers got, are of another order.
    pub fn forget_order(&mut self) {
        self.queue.clear();
        self.now.position = 0;
    }

    pub fn invalidate(&mut self) {
        self.valid = false;
        self.half_done = false;
        self.running.clear();
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
        self.running.clear();
        self.half_done = false;
        self.valid = true;
        self.flush();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTORY: Uuid = Uuid([1; 16]);

    /// A write set that changes this row.
    fn change(seqno: u64, depends_on: u64, row: u16) -> Change {
        let rows = vec![(row, seqno)];
        Change { rows, depends_on, op: seqno, ..Change::view(seqno, seqno, Lineage::default(), Vec::new()) }
    }

    fn database(queue: impl IntoIterator<Item = Change>) -> Database {
        let mut db = Database::default();
        db.begin(HISTORY, 0);
        db.queue.extend(queue);
        db
    }

    #[test]
    fn appliers_work_together_commit_in_order_and_leave_a_prefix_when_they_die() {
        let mut db = database([change(1, 0, 1), change(2, 0, 2), change(3, 1, 1), change(4, 0, 4)]);
        assert_eq!(db.begin_some(3, false), Ok(vec![1, 2]), "the third waits for the first, the fourth for an applier");
        db.finish(2);
        assert!(!db.may_commit(), "not its turn");
        db.finish(1);
        assert!(db.may_commit());
        assert_eq!(db.apply_one(DbFlush::Each), Ok(true));
        assert_eq!(db.begin_some(3, false), Ok(vec![3, 4]));
        db.finish(4);
        assert_eq!(db.apply_one(DbFlush::Each), Ok(true));
        db.crash(true, &mut Rng::new(1));
        assert_eq!((db.recovered(), db.now.rows.len()), (Some((HISTORY, 2)), 2), "the fourth was done, and is gone");
        assert!(db.begin_some(3, false) == Ok(vec![]) && db.running() == 0);
    }

    #[test]
    fn a_client_of_this_server_needs_no_applier() {
        let local = |seqno, row| Change { by: By::Client, ..change(seqno, seqno - 1, row) };
        let mut db = database([change(1, 0, 1), local(2, 2), change(3, 0, 3), local(4, 4)]);
        assert_eq!(db.begin_some(1, false), Ok(vec![1, 2]));
        assert_eq!(db.begin_some(2, false), Ok(vec![3, 4]));
    }

    #[test]
    fn two_that_must_not_run_together_are_found() {
        let mut db = database([change(1, 0, 7), change(2, 0, 7)]);
        assert!(db.begin_some(2, false).unwrap_err().contains("change row 7"));
        let mut db = database([change(1, 0, 7), change(2, 1, 7)]);
        assert!(db.begin_some(2, true).unwrap_err().contains("change row 7"));
        let mut db = database([change(1, 0, 1), Change { isolated: true, ..change(2, 0, 2) }]);
        assert!(db.begin_some(2, false).unwrap_err().contains("isolation"));
        let mut db = database([change(1, 0, 1), Change { op: 0, ..change(2, 0, 2) }]);
        assert!(db.begin_some(2, false).unwrap_err().contains("view"));
        let mut db = database([change(1, 0, 7), change(2, 1, 7)]);
        assert_eq!(db.begin_some(2, false), Ok(vec![1]));
    }
}
