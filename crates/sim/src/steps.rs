//! Starts and stops, step by step. Between any two steps the process may die, and its machine may lose its power.
//!
//! A start: the log is opened, the engine is asked for its position, the node joins its group, the server gets its first view, which opens
//! the engine, and the engine is compared. A stop: the node leaves, its server applies what is left, the state file gets the position as
//! soon as the engine has it on disk, the log is closed, and the engine ends last.

use trireme_order::LogStore;
use trireme_replicator::Position;
use trireme_replicator::position::{self, Reason, Stop as Recorded, Stopping, Strict, Told, Word};
use trireme_replicator::retention::EngineLog;
use trireme_types::Seqno;

use crate::cluster::{Cluster, Event, Slot};
use crate::database::Database;
use crate::disk::Store;
use crate::options::{MS, SEC, Sabotage};
use crate::outage::Sickness;
use crate::rng::mix;
use crate::situations::Situation;
use crate::watch::Stage;

/// How long a stop waits for the engine's log, and how often it looks, as a node's.
const FLUSH_MAX: u64 = 5 * SEC;
const LOOK_EVERY: u64 = 20 * MS;

/// A server whose node has left the group, and which has not ended yet.
pub(crate) struct Ending {
    boot: u32,
    next: Step,
}

/// The steps of a stop.
enum Step {
    /// The state file gets the position, if it is known in time.
    Record {
        stopping: Result<Stopping, Recorded>,
        until: u64,
    },
    CloseLog,
    CloseEngine,
}

fn plain((history, seqno): (trireme_types::Uuid, u64)) -> Position {
    Position { history, seqno: Seqno(seqno) }
}

impl Slot {
    /// Where the engine says that it is.
    pub fn engine_at(&self) -> Option<Position> {
        self.db.recovered().map(plain)
    }

    /// The engine's word on its log.
    pub fn engine_log(&self, silent: bool) -> EngineLog {
        match &self.process {
            Some(p) if p.comparing.is_some() => EngineLog::Closed,
            _ if silent => EngineLog::Silent,
            _ => EngineLog::At { written: self.db.now.position, durable: self.db.said_durable() },
        }
    }
}

impl Cluster {
    // --- start ------------------------------------------------------------------------------------------------------

    /// Somebody starts the server in this place. The start may not come far.
    pub(crate) fn begin_start(&mut self, slot: usize) {
        if !self.is_tempted(Stage::Starting) {
            return self.join(slot);
        }
        let power = self.strikes.chance(0.4);
        if !self.may_forget() || power && !self.may_lose_power(slot) {
            return self.join(slot);
        }
        if self.strikes.chance(0.3) {
            // Within the first steps of the node.
            self.join(slot);
            let after = self.strikes.below(6) as u32;
            if let Some(p) = &mut self.slots[slot].process {
                p.crash_after = Some(after);
            }
            return;
        }
        let asked = self.strikes.chance(0.5);
        let cleanly = self.strikes.chance(0.5);
        self.log(|| {
            format!("n{slot} dies in its start, {} its engine", if asked { "after it has asked" } else { "before" })
        });
        self.faults_done += 1;
        self.arose(Situation::StruckStart);
        let s = &mut self.slots[slot];
        s.incarnation += 1;
        if asked && cleanly {
            // The run that asks the engine opens and closes it.
            s.db.flush();
        }
        if power {
            self.lose_power_down(slot);
        }
        self.restart_later(slot);
    }

    /// Decides where the server that is started here goes on from. The word of the state file is weighed against the engine, which cannot
    /// be asked in some starts.
    pub(crate) fn settle(&mut self, slot: usize) {
        let s = &mut self.slots[slot];
        (s.begins_at, s.unheard) = (None, false);
        if self.options.is_arbitrator(slot) || !s.db.valid {
            // The state file says that the data here are of no use.
            return;
        }
        let claim = s.claim.map(plain);
        let history = claim.map_or(s.db.now.history, |at| at.history);
        if claim.is_none() && !position::continues(history, s.store().base()) {
            return;
        }
        // After a crash nobody claims anything. An engine that cannot be asked then costs a full copy, or an operator's time.
        let told = match s.engine_at() {
            _ if claim.is_some() && self.starts.chance(self.options.unheard_share) => Told::Unheard(()),
            Some(found) => Told::At(found),
            None => Told::Nowhere(()),
        };
        // No draw of its own: whether an engine runs before its node must not change anything else of a run.
        s.engine_runs = mix(self.options.seed ^ slot as u64).is_multiple_of(2);
        if !s.engine_runs && told != Told::Unheard(()) {
            s.db.flush();
        }
        let trusted = claim.filter(|_| self.options.sabotage == Some(Sabotage::PositionTrusted));
        let told = trusted.map_or(told, |_| Told::Unheard(()));
        let Ok(weighed) = position::weigh(claim, history, told, Strict::No) else { return };
        s.begins_at = weighed.position;
        match weighed.reason {
            Reason::Unheard(()) => s.unheard = true,
            Reason::Corrected { .. } => self.arose(Situation::ClaimCorrected),
            Reason::NoEngine | Reason::Confirmed | Reason::Found(_) | Reason::Beginning => {}
            Reason::Foreign(_) | Reason::Nowhere(()) => {}
        }
    }

    /// The server is told where it goes on from, which opens its engine.
    pub(crate) fn open_engine(&mut self, slot: usize, at: Position) {
        let mean = self.options.db_apply_mean;
        let delay = self.starts.exp(mean);
        let s = &mut self.slots[slot];
        // From here on the state file says that a server runs on these data.
        s.claim = None;
        let Some(p) = &mut s.process else { return };
        let word = p.word.take().filter(|_| at.seqno != Seqno::ZERO);
        match word {
            Some(_) => {
                p.comparing = Some(at);
                let boot = p.server;
                self.after(delay, Event::Compare { slot, boot });
                self.tempt(slot, Stage::Starting);
            }
            None if s.engine_at() == Some(at) => {}
            None => {
                let found = s.engine_at();
                self.fail(format!("n{slot} is fed from {at:?}, its data are at {found:?}"));
            }
        }
    }

    /// The engine runs: is it where its server goes on from?
    pub(crate) fn compare_engine(&mut self, slot: usize, server: u32) {
        let s = &mut self.slots[slot];
        if s.paused {
            return self.after(10 * MS, Event::Compare { slot, boot: server });
        }
        let found = s.engine_at();
        let Some(p) = s.process.as_mut().filter(|p| p.server == server) else { return };
        let Some(at) = p.comparing.take() else { return };
        if !s.db.valid {
            // They were given up meanwhile.
            return;
        }
        if position::compare(found, true, at, Word::Engine).is_err() {
            // Only a claim that nobody has asked the engine about may turn out to be wrong.
            if !s.unheard || s.begins_at != Some(at) {
                return self.fail(format!("n{slot} is fed from {at:?}, its data are at {found:?}"));
            }
            self.situations.arose(Situation::ClaimRefused);
            if self.options.sabotage == Some(Sabotage::PositionTrusted) {
                s.db.pretend(at.seqno.0);
            } else {
                self.log(|| format!("n{slot} ends: the state file is ahead of the engine"));
                return self.restart_server(slot);
            }
        }
        let boot = p.boot;
        self.tempt(slot, Stage::Starting);
        self.donate(slot);
        self.read_values(slot);
        self.start_apply(slot, boot);
    }

    // --- stop -------------------------------------------------------------------------------------------------------

    /// The node has left its group. Its server applies what is left and ends.
    pub(crate) fn stop(&mut self, slot: usize) {
        self.log(|| format!("n{slot} has left"));
        // Write sets that it cannot apply are left to the next life, and all of them where its engine has not been compared yet.
        let compared = self.slots[slot].process.as_ref().is_none_or(|p| p.comparing.is_none());
        let applies = |db: &Database| compared && db.valid && db.queue.front().is_some_and(|c| c.fails.is_none());
        let goes = |c: &Cluster| applies(&c.slots[slot].db);
        while self.failure.is_none() && goes(self) {
            if let Err(e) = self.slots[slot].db.apply_one(self.options.db_flush) {
                self.fail(format!("n{slot}: {e}"));
            }
        }
        self.close_conns(slot);
        let until = self.now + FLUSH_MAX;
        let s = &mut self.slots[slot];
        let left = Seqno(s.db.now.position);
        let first = s.process.as_ref().and_then(|p| p.engine.first_look());
        let stopping = Stopping::begin(s.db.now.history, left, left, s.engine_at(), true, first);
        let unsynced = self.options.sabotage == Some(Sabotage::StopUnsynced);
        let stopping = if unsynced && s.db.valid { Err(Recorded::OnDisk(left)) } else { stopping };
        // A server that was told nothing of its engine yet leaves the state file as it is.
        let known = s.process.as_ref().is_some_and(|p| p.replicator.is_connected() && p.comparing.is_none());
        let next = if known { Step::Record { stopping, until } } else { Step::CloseLog };
        let boot = s.boot;
        s.ending = Some(Ending { boot, next });
        let Some(mut p) = s.process.take() else { return };
        let mut store = std::mem::replace(p.group.store_mut(), Store::nothing());
        store.process_died(false, &mut self.rng);
        s.disk = Some(store);
        (s.paused, s.hangs) = (false, false);
        s.sick = Sickness::default();
        if std::mem::take(&mut s.at_risk) {
            s.db.invalidate();
        }
        self.note_end(slot);
        self.note_opened(slot);
        self.hear_complaint(slot);
        self.go_on_ending(slot, boot, 0);
    }

    fn go_on_ending(&mut self, slot: usize, boot: u32, delay: u64) {
        let delay = delay + self.starts.exp(MS);
        self.after(delay, Event::Ending { slot, boot });
        self.tempt(slot, Stage::Stopping);
    }

    /// The next step of a stop.
    pub(crate) fn end_server(&mut self, slot: usize, boot: u32) {
        let silent = self.options.silent;
        let s = &mut self.slots[slot];
        let log = s.engine_log(silent);
        let now = s.local(self.now);
        let Some(ending) = s.ending.as_mut().filter(|e| e.boot == boot) else { return };
        match &mut ending.next {
            Step::Record { stopping, until } => {
                let last = self.now >= *until;
                let stop = match stopping {
                    Ok(stopping) => stopping.look(log, now, last),
                    Err(at_once) => Some(*at_once),
                };
                let Some(stop) = stop else {
                    // It flushes now and then.
                    let rest = until.saturating_sub(self.now);
                    let flush = self.starts.exp(self.options.db_flush_mean);
                    if flush <= rest {
                        s.db.flush();
                    }
                    return self.go_on_ending(slot, boot, LOOK_EVERY.max(flush.min(rest)));
                };
                ending.next = Step::CloseLog;
                self.record_position(slot, stop);
                self.go_on_ending(slot, boot, 0);
            }
            Step::CloseLog => {
                ending.next = Step::CloseEngine;
                if let Some(disk) = &mut s.disk {
                    disk.sync_all();
                }
                // Killed before the engine's end, perhaps: by preference where the state file is ahead of it.
                if self.starts.chance(if silent { 0.6 } else { 0.3 }) {
                    return self.crash(slot, false);
                }
                self.go_on_ending(slot, boot, 0);
            }
            Step::CloseEngine => {
                s.db.flush();
                self.server_ended(slot, false);
            }
        }
    }

    /// The stop's words in the state file are true already, whatever happens next.
    fn record_position(&mut self, slot: usize, stop: Recorded) {
        let s = &mut self.slots[slot];
        let history = s.db.now.history;
        let on_disk = s.db.on_disk().position;
        s.claim = match stop {
            Recorded::OnDisk(seqno) | Recorded::Claimed(seqno) => Some((history, seqno.0)),
            Recorded::Unknown => None,
        };
        if let Recorded::OnDisk(seqno) = stop
            && seqno.0 > on_disk
        {
            self.fail(format!("n{slot} records {seqno} as on disk, where {on_disk} is"));
        }
    }

    /// The last process in this place is gone, if its stop was under way, or it is over; `power`: with its machine.
    pub(crate) fn server_ended(&mut self, slot: usize, power: bool) {
        let s = &mut self.slots[slot];
        if s.ending.take().is_none() {
            return;
        }
        s.db.crash(power, &mut self.rng);
        s.out = true;
        if self.calm {
            let boot = self.slots[slot].boot;
            self.after(MS, Event::Restart { slot, boot });
        }
    }
}
