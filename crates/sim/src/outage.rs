//! The disk with a node's log fails: it is full, read-only, or refuses writes or syncs. The node sits out of the group, and its server goes
//! on applying what it was given. When the disk works again the log is opened anew, and the node joins where its server stands, as a new
//! incarnation. It does the same as `crates/node/src/core/outage.rs`, with the same calls of `Group` and `Replicator`.
//!
//! A disk that has failed may also have lost entries that were not synced: the kernel drops the pages that it could not write. It does so
//! here only where the others make up for it, as with a loss of power (`may_lose_power`).

use trireme_order::{Group, JoinState, LogStore};
use trireme_replicator::absent::Absent;
use trireme_replicator::message::AppMessage;
use trireme_replicator::retention::EngineDisk;
use trireme_replicator::{Position, Replicator};
use trireme_types::{Durability, LogIndex, Seqno};

use crate::cluster::{Cluster, Event, Input, TICK};
use crate::disk::Store;
use crate::judge::Judge;
use crate::options::{Fault, MS, SEC, Sabotage};
use crate::situations::Situation;
use crate::watch::Stage;

/// The behaviour of a disk that has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sick {
    /// No space is left, but written blocks can be overwritten.
    Full,
    ReadOnly,
    Writes,
    Syncs,
}

impl Sick {
    pub const ALL: [Sick; 4] = [Sick::Full, Sick::ReadOnly, Sick::Writes, Sick::Syncs];
}

/// When a node looks at its disk: the same times as in the real one.
const FIRST_LOOK: u64 = SEC;
pub(crate) const FIRST_LOOK_MAX: u64 = 60 * SEC;
const LOOKS_APART_MAX: u64 = 10 * SEC;
const MENDED_AFTER: u64 = 60 * SEC;

/// A node that sits out.
pub(crate) struct Outage {
    /// From the beginning to the first look.
    first: u64,
    /// To the next one.
    pause: u64,
    /// An applier waits for a body that lies in the log.
    pub holds_up: bool,
}

/// The disk of a place.
#[derive(Default)]
pub(crate) struct Sickness {
    /// From then on it works. A log that failed before stays failed until it is opened again.
    pub works_at: u64,
    /// The kernel drops pages that it could not write.
    pub drops: bool,
}

impl Cluster {
    /// The disk in this place fails soon, and works again later.
    pub fn break_disk(&mut self, slot: usize, sick: Sick, operations: u32, works_at: u64, drops: bool) {
        self.log(|| format!("the disk of n{slot} is to fail: {sick:?}"));
        let s = &mut self.slots[slot];
        if let Some(p) = s.process.as_mut().filter(|p| p.outage.is_none()) {
            p.group.store_mut().break_soon(sick, operations);
            s.sick = Sickness { works_at, drops };
        }
    }

    /// The same as a fault: the death of a node that sits this out puts its log in doubt.
    pub(crate) fn let_disk_refuse(&mut self, slot: usize, sick: Sick, operations: u32, works_at: u64, drops: bool) {
        if self.may_doubt(slot) {
            self.break_disk(slot, sick, operations, works_at, drops);
        }
    }

    pub(crate) fn break_disk_for_a_while(&mut self, slot: usize) {
        let sick = self.any_sickness();
        let operations = self.outages.range(0, 20) as u32;
        let drops = self.outages.chance(0.3);
        let works_at = self.now + self.outages.exp(self.options.outage_mean);
        self.let_disk_refuse(slot, sick, operations, works_at, drops);
    }

    /// A client's statement in total-order isolation is on its way. The disk with the log is out before that comes back, perhaps.
    pub(crate) fn break_behind_statement(&mut self, slot: usize) {
        let may_fail = self.options.faults.iter().any(|(fault, _)| *fault == Fault::DiskOutage);
        if may_fail && !self.calm && self.outages.chance(0.1) {
            let sick = self.any_sickness();
            let works_at = self.now + self.outages.exp(self.options.outage_mean);
            self.let_disk_refuse(slot, sick, 0, works_at, false);
        }
    }

    pub(crate) fn any_sickness(&mut self) -> Sick {
        self.outages.pick(&Sick::ALL).copied().expect("not empty")
    }

    /// The group thread stands still in the log's disk, as do its syncs. The server goes on.
    pub fn hang(&mut self, slot: usize) {
        if self.slots[slot].process.is_some() && !self.sits_out(slot) {
            self.note_struck(slot);
            self.arose(Situation::DiskHung);
            self.log(|| format!("the disk of n{slot} hangs"));
            self.slots[slot].hangs = true;
        }
    }

    /// `breaks`: the operations that have waited fail.
    pub fn end_hang(&mut self, slot: usize, breaks: bool) {
        if !std::mem::take(&mut self.slots[slot].hangs) {
            return;
        }
        self.log(|| format!("the disk of n{slot} answers"));
        if breaks {
            let works_at = self.now + self.outages.exp(self.options.outage_mean);
            let sick = self.any_sickness();
            self.let_disk_refuse(slot, sick, 0, works_at, false);
        }
        self.move_again(slot);
    }

    pub fn sits_out(&self, slot: usize) -> bool {
        self.slots[slot].process.as_ref().is_some_and(|p| p.outage.is_some())
    }

    /// The log in this place has failed, and its node notices.
    pub(crate) fn on_log_failed(&mut self, slot: usize) {
        let Some(p) = &self.slots[slot].process else { return };
        // Without a log a server whose data are good only needs to wait. In some runs the operator kills it.
        if self.options.outage_mean > 0 && p.replicator.serves() && !p.replicator.is_leaving() {
            self.sit_out(slot);
        } else {
            self.die(slot);
        }
    }

    fn sit_out(&mut self, slot: usize) {
        self.log(|| format!("n{slot} sits out"));
        self.arose(Situation::Outage);
        self.close_conns(slot);
        self.note_end(slot);
        // As at a loss of the majority.
        self.withdraw(slot);
        if let Some(p) = &mut self.slots[slot].process {
            (p.primary, p.synced) = (false, false);
            // The next incarnation has an index of its own.
            p.errand = None;
            p.replicator.handle_non_primary();
        }
        self.drop_held(slot);
        self.abort_streams(slot);
        let holds_up = self.outages.chance(0.3);
        let now = self.now;
        // In a new session all is certified against these.
        self.slots[slot].end_unordered();
        let Some(p) = &mut self.slots[slot].process else { return };
        p.streams.clear();
        p.held_back.clear();
        self.clients.reads_failed += p.waiting_reads.len() as u64;
        p.waiting_reads.clear();
        self.clients.reads_failed += p.reads.len() as u64;
        p.reads.clear();
        let inputs = std::mem::take(&mut p.inbox).into_iter();
        let unheard: Vec<AppMessage> = inputs.filter_map(Input::asks).collect();
        p.links.clear();
        p.snapshots.clear();
        (p.sync, p.step_at, p.wake_at, p.stopped) = (None, None, None, None);
        (p.non_primary_since, p.engine_awaited_since, p.wish) = (None, None, None);
        (p.writes_until, p.crash_after, p.stall_after) = (0, None, None);
        let again = p.returned.filter(|(when, _)| now < when + MENDED_AFTER);
        let first = again.map_or(FIRST_LOOK, |(_, before)| (before * 2).min(FIRST_LOOK_MAX));
        p.outage = Some(Outage { first, pause: first, holds_up });
        p.group.store_mut().doubt();
        let boot = p.boot;
        // The outcome of operations that were sent stays open. Only statements in total-order isolation wait on.
        if self.options.sabotage == Some(Sabotage::StatementAbandoned) {
            p.proposals.end();
        } else {
            p.proposals.retire();
        }
        self.settle_proposals(slot);
        unheard.iter().for_each(|message| self.unheard(slot, message));
        if !self.abandon_vote_in_outage(slot) {
            return;
        }
        self.wake_waiting(slot);
        self.after(first, Event::Look { slot, boot });
        self.tempt(slot, Stage::Outage);
    }

    /// A node that sits out looks at its disk.
    pub(crate) fn look(&mut self, slot: usize, boot: u32) {
        let works = self.now >= self.slots[slot].sick.works_at;
        let paused = self.slots[slot].paused;
        let drops = works && self.slots[slot].sick.drops && self.may_lose_power(slot) && self.may_forget();
        let Some(p) = self.slots[slot].process.as_mut().filter(|p| p.boot == boot) else { return };
        let Some(outage) = &mut p.outage else { return };
        if paused {
            return self.after(10 * MS, Event::Look { slot, boot });
        }
        let first = outage.first;
        match p.group.store_mut().come_back(works, drops, &mut self.outages) {
            Some(lost) => {
                self.note_opened(slot);
                self.come_back(slot, first, lost);
            }
            None => {
                outage.pause = (outage.pause * 2).min(LOOKS_APART_MAX.max(first));
                let pause = outage.pause;
                self.after(pause, Event::Look { slot, boot });
            }
        }
        self.hear_complaint(slot);
    }

    /// The log is open again; `lost`: without some of what was written to it. The node looks for its group, as a new incarnation beside the
    /// same server.
    fn come_back(&mut self, slot: usize, first: u64, lost: bool) {
        self.log(|| format!("the disk of n{slot} works{}", if lost { ", and has lost entries" } else { "" }));
        self.arose(Situation::OutageEnded);
        let doubts = self.doubts_what_is_lost();
        let seed = self.outages.next();
        let s = &mut self.slots[slot];
        s.sick = Sickness::default();
        s.incarnation += 1;
        s.boot += 1;
        let config = self.config(slot);
        let s = &mut self.slots[slot];
        let (boot, now) = (s.boot, s.local(self.now));
        let Some(p) = &mut s.process else { return };
        p.durability = config.durability;
        let mut store = std::mem::replace(p.group.store_mut(), Store::nothing());
        if lost && self.options.sabotage == Some(Sabotage::OutageTrusted) {
            let _ = store.set_suspect(None);
        }
        let suspect = store.suspect().is_some();
        let position = Position { history: p.history, seqno: p.replicator.handed() };
        let forgotten = self.options.sabotage == Some(Sabotage::OutlivedForgotten);
        let begins = p.replicator.to_return(position.history, s.db.failures.clone().filter(|_| !forgotten));
        // A position counts only together with the log that led there.
        let with_log = Some(position).filter(|at| at.history == store.base().history);
        p.replicator = Replicator::new(&config.me, begins, String::new(), self.options.bounds);
        p.replicator.set_mutant(self.options.replicator_mutant);
        (p.fed, p.copied) = (false, false);
        let mut group = Group::new(config, store, with_log.map(|at| at.seqno), seed, now);
        group.set_mutant(self.options.mutant);
        group.note_data(Some((position.history, position.seqno)));
        let engine = std::mem::replace(&mut p.engine, EngineDisk::new(0)).under_other_clock(now);
        group.note_engine_disk(now, engine.upto());
        group.join(now, JoinState { position: with_log.map(|at| (at.history, at.seqno)) });
        p.group = group;
        p.absent = Absent::default();
        p.boot = boot;
        p.judge = Judge::default();
        p.opened_at = p.group.store().base().seqno;
        p.engine = engine;
        // The group knows nothing of what the last incarnation was in the middle of.
        p.kept.clear();
        (p.last_index, p.last_seqno, p.delivering) = (LogIndex::ZERO, Seqno::ZERO, false);
        (p.view, p.primary) = (None, false);
        p.heard.clear();
        p.newest.clear();
        p.outage = None;
        p.returned = Some((self.now, first));
        let desynced = p.desyncs.count() > 0;
        self.renew_flow(slot);
        if desynced {
            self.arose(Situation::DesyncedInOutage);
        }
        if suspect {
            self.arose(Situation::Suspect);
        }
        if lost {
            self.arose(Situation::OutageLost);
            if doubts {
                self.begin_doubt(slot);
            }
        }
        self.note_begin(slot, suspect);
        for other in 0..self.slots.len() {
            self.schedule_connect(slot, other);
        }
        let delay = self.outages.exp(self.options.db_flush_mean);
        self.after(delay, Event::Flush { slot, boot });
        self.after(TICK, Event::Tick { slot, boot });
        self.start_apply(slot, boot);
        self.schedule_step(slot);
    }

    /// May an entry that was written and not synced have been acknowledged?
    pub(crate) fn doubts_what_is_lost(&self) -> bool {
        self.options.durability == Durability::Process || self.options.switches_durability()
    }

    /// The server is fed again from where it stands. Before that it is told a view without itself. The model has no use for that one: a
    /// change of the model that carries a view names the transactions that end with it.
    pub(crate) fn resume_feed(&mut self, slot: usize, position: Position) {
        let s = &mut self.slots[slot];
        let Some(p) = &mut s.process else { return };
        if p.stopped.is_some() {
            // It was outvoted meanwhile.
            return;
        }
        self.situations.arose(Situation::Resumed);
        p.fed = true;
        let stands = (s.db.now.history, s.db.queued_to());
        if stands != (position.history, position.seqno.0) || !s.db.valid {
            return self.fail(format!("n{slot} is fed again from {position:?}, its server stands at {stands:?}"));
        }
        s.db.queue.extend(p.kept.drain(..).filter(|c| c.seqno > position.seqno.0));
        let boot = p.boot;
        p.proposals.release();
        self.settle_proposals(slot);
        self.keep_log(slot);
        self.start_apply(slot, boot);
    }

    /// For the end of all harm.
    pub(crate) fn mend_disks(&mut self) {
        for slot in 0..self.slots.len() {
            self.end_hang(slot, false);
            self.slots[slot].sick.works_at = self.now;
        }
    }
}
