//! Transactions of own clients, as the engine and the node see them: they lock rows one after the other, wait for the locks of others, are
//! sent and ordered, and give way to appliers by the node's own decision (`trireme_replicator::victim`). One that is ordered already is
//! rolled back and applied again in its turn.
//!
//! A changed row is locked for all others, a referenced one for those who change it. Certification does not tell the second from no use at
//! all, so appliers meet such locks also of transactions that nothing is wrong with.

use trireme_certification::KeyKind;
use trireme_replicator::victim::{self, Fate, Mark, Stage};
use trireme_types::Seqno;

use crate::cluster::{Cluster, Event, Process};
use crate::database::By;
use crate::judge::Part;
use crate::options::{MS, SEC, Sabotage, US};
use crate::situations::Situation;
use crate::throttle::Held;
use crate::values::changes;

/// A transaction of an own client that is not over here.
#[derive(Debug)]
pub(crate) struct Trx {
    stage: Stage,
    /// An applier wants its locks.
    marked: bool,
    keys: Vec<(u16, KeyKind)>,
    /// So many of these are locked.
    locked: usize,
    /// For a lock, and until when.
    waits: bool,
    until: Option<u64>,
}

/// How long a client waits for a lock. Streaming transactions keep theirs for longer.
const LOCK_WAIT_MAX: u64 = 2 * SEC;

impl Trx {
    /// Does it hold a lock that keeps others from using the row like this?
    fn holds(&self, row: u16, kind: KeyKind) -> bool {
        self.keys[..self.locked].iter().any(|own| own.0 == row && clash(own.1, kind))
    }

    pub fn is_marked(&self) -> bool {
        self.marked
    }

    fn replays(&self) -> bool {
        matches!(self.stage, Stage::Replaying(_))
    }
}

fn clash(one: KeyKind, other: KeyKind) -> bool {
    let (weaker, stronger) = (one.min(other), one.max(other));
    weaker >= KeyKind::Reference && changes(stronger)
}

impl Process {
    /// Does a client wait for its outcome?
    pub fn is_busy_with(&self, op: u64) -> bool {
        self.holds_back(op) || self.trxs.contains_key(&op) || self.pending.values().any(|asked| asked.op == op)
    }

    /// Does a transaction of an own client, other than `op`, keep a row from being used like this?
    fn is_locked_by_trx(&self, op: u64, row: u16, kind: KeyKind) -> bool {
        self.trxs.iter().any(|(other, trx)| *other != op && trx.holds(row, kind))
    }

    /// The same, or will it lock the row again?
    pub fn is_claimed_by_trx(&self, row: u16, kind: KeyKind) -> bool {
        let again = |trx: &Trx| trx.replays() && trx.keys.iter().any(|own| own.0 == row && clash(own.1, kind));
        self.trxs.values().any(|trx| trx.holds(row, kind) || again(trx))
    }

    /// An ordered victim has given up its locks, and has not got them back.
    fn is_replaying(&self) -> bool {
        self.trxs.values().any(Trx::replays)
    }
}

impl Cluster {
    /// A client begins a transaction that commits as soon as it has its locks.
    pub(crate) fn begin_trx(&mut self, slot: usize) -> u64 {
        let op = self.clients.begin();
        let mut keys: Vec<(u16, KeyKind)> = self.draw_keys();
        // In one order, so that clients never wait in a circle.
        keys.sort_unstable_by(|a, b| (a.0, b.1).cmp(&(b.0, a.1)));
        keys.dedup_by_key(|key| key.0);
        let Some(p) = &mut self.slots[slot].process else {
            self.clients.refused(op);
            return op;
        };
        let server = p.server;
        p.trxs.insert(op, Trx { stage: Stage::Collecting, marked: false, keys, locked: 0, waits: false, until: None });
        self.local(slot, server, op);
        op
    }

    /// The next step of a client's own thread.
    pub(crate) fn local(&mut self, slot: usize, server: u32, op: u64) {
        let s = &mut self.slots[slot];
        let Some(p) = s.process.as_mut().filter(|p| p.server == server) else { return };
        let Some(trx) = p.trxs.get_mut(&op) else { return };
        if s.paused {
            return self.after(10 * MS, Event::Local { slot, server, op });
        }
        trx.waits = false;
        match trx.stage {
            Stage::Collecting if trx.marked => self.refuse_trx(slot, op),
            Stage::Collecting => match trx.keys.get(trx.locked).copied() {
                Some((row, kind)) if self.must_wait(slot, op, row, kind) => self.wait_for_lock(slot, server, op),
                Some(key) => {
                    if let Some(trx) = self.trx(slot, op) {
                        trx.locked += 1;
                        trx.until = None;
                    }
                    if changes(key.1) {
                        self.values.asked(slot, self.now, op, Part::Whole, &[key], &self.slots[slot].db.now);
                    }
                    let delay = self.appliers.exp(self.options.think_mean);
                    self.after(delay, Event::Local { slot, server, op });
                }
                None => self.certify_trx(slot, op),
            },
            Stage::Certified(seqno) if trx.marked => self.roll_back(slot, op, seqno),
            Stage::Certifying | Stage::Certified(_) | Stage::Failed(_) | Stage::Replaying(_) => {}
        }
    }

    fn trx(&mut self, slot: usize, op: u64) -> Option<&mut Trx> {
        self.slots[slot].process.as_mut()?.trxs.get_mut(&op)
    }

    fn wait_for_lock(&mut self, slot: usize, server: u32, op: u64) {
        let now = self.now;
        let Some(trx) = self.trx(slot, op) else { return };
        match trx.until {
            Some(until) if until <= now => self.refuse_trx(slot, op),
            Some(_) => trx.waits = true,
            None => {
                (trx.waits, trx.until) = (true, Some(now + LOCK_WAIT_MAX));
                self.arose(Situation::LockWait);
                self.after(LOCK_WAIT_MAX, Event::Local { slot, server, op });
            }
        }
    }

    /// It waits for a transaction before it, for one that is applied, or for rows of a streaming transaction.
    fn must_wait(&self, slot: usize, op: u64, row: u16, kind: KeyKind) -> bool {
        let s = &self.slots[slot];
        if kind < KeyKind::Reference {
            return false;
        }
        s.process.as_ref().is_some_and(|p| p.is_locked_by_trx(op, row, kind))
            || s.db.is_applied_now(row)
            || self.locked(slot, op).contains(&row)
    }

    /// Its client commits. The server lets no client certify while another one's transaction is to be applied again (wsrep-lib,
    /// `wait_for_replayers`): it may have taken the rows that this one gets back, and certification within one session does not see that.
    fn certify_trx(&mut self, slot: usize, op: u64) {
        let Some(p) = &mut self.slots[slot].process else { return };
        let overtakes = self.options.sabotage == Some(Sabotage::ReplayOvertaken);
        let waits = !overtakes && (p.is_replaying() || !p.held_back.is_empty());
        match p.trxs.get_mut(&op) {
            Some(trx) if waits => {
                trx.stage = Stage::Certifying;
                p.held_back.push_back(op);
                self.arose(Situation::HeldBack);
            }
            Some(_) => self.pass_flow(slot, op),
            None => {}
        }
    }

    /// It is sent, or held back by flow control.
    fn pass_flow(&mut self, slot: usize, op: u64) {
        if let Some(trx) = self.trx(slot, op) {
            trx.stage = Stage::Certifying;
        }
        if !self.is_held_back(slot, Held::Trx(op)) {
            self.send_trx(slot, op);
        }
    }

    /// All that may be sent is sent.
    pub(crate) fn release_held_back(&mut self, slot: usize) {
        while let Some(p) = self.slots[slot].process.as_mut().filter(|p| !p.is_replaying()) {
            let Some(op) = p.held_back.pop_front() else { return };
            self.pass_flow(slot, op);
        }
    }

    /// A transaction that is marked while it is held back lets go of its locks.
    fn recall(&mut self, slot: usize) {
        let Some(p) = &mut self.slots[slot].process else { return };
        let marked = |op: &u64| p.trxs.get(op).is_some_and(|trx| trx.marked);
        let recalled: Vec<u64> = p.held_back.iter().copied().filter(marked).collect();
        p.held_back.retain(|op| !recalled.contains(op));
        for op in recalled {
            self.arose(Situation::Recalled);
            self.refuse_trx(slot, op);
        }
        self.recall_held(slot);
    }

    pub(crate) fn send_trx(&mut self, slot: usize, op: u64) {
        let Some(trx) = self.trx(slot, op) else { return };
        let keys = trx.keys.clone();
        let sent = self.send_part(slot, op, Part::Whole, &keys);
        match self.trx(slot, op) {
            Some(trx) if sent => trx.stage = Stage::Certifying,
            Some(_) => {
                if self.undisturbed {
                    self.fail(format!("n{slot}: refuses a write set although nothing serious happened"));
                }
                self.refuse_trx(slot, op);
            }
            None => {}
        }
    }

    /// It rolls back, and its client is told that nothing of it happened.
    pub(crate) fn refuse_trx(&mut self, slot: usize, op: u64) {
        self.clients.refused(op);
        self.values.answered(op, self.now, None);
        self.end_trx(slot, op);
    }

    /// It is over here, or given up: its locks go.
    pub(crate) fn end_trx(&mut self, slot: usize, op: u64) {
        if let Some(p) = &mut self.slots[slot].process
            && p.trxs.remove(&op).is_some()
        {
            self.wake_waiting(slot);
        }
    }

    /// It is ordered. Says who commits it.
    pub(crate) fn trx_ordered(&mut self, slot: usize, op: u64, seqno: Seqno, certified: bool) -> By {
        let Some(trx) = self.trx(slot, op) else { return By::Client };
        if !certified {
            // It rolls back at once, and its own thread closes the seqno.
            self.end_trx(slot, op);
            return By::Client;
        }
        trx.stage = Stage::Certified(seqno);
        if trx.marked { self.hit_ordered(slot, op, seqno) } else { By::Client }
    }

    /// An ordered victim has noticed.
    fn roll_back(&mut self, slot: usize, op: u64, seqno: Seqno) {
        if self.hit_ordered(slot, op, seqno) == By::Replay {
            self.slots[slot].db.replay(seqno.0);
        }
        if let Some(p) = &self.slots[slot].process {
            let boot = p.boot;
            self.start_apply(slot, boot);
        }
    }

    fn hit_ordered(&mut self, slot: usize, op: u64, seqno: Seqno) -> By {
        match victim::fate(true) {
            Fate::RollBack => By::Client,
            Fate::Replay => {
                self.arose(Situation::Replayed);
                self.log(|| format!("n{slot} rolls operation {op} back, to apply it again at {seqno}"));
                if let Some(trx) = self.trx(slot, op) {
                    (trx.stage, trx.marked, trx.locked) = (Stage::Replaying(seqno), false, 0);
                }
                self.wake_waiting(slot);
                By::Replay
            }
        }
    }

    /// Is the client's own thread to give way, which has the turn to commit this? It then does so.
    pub(crate) fn gives_way(&mut self, slot: usize) -> bool {
        let Some(next) = self.slots[slot].db.queue.front().filter(|c| c.by == By::Client) else { return false };
        let (op, seqno) = (next.op, Seqno(next.seqno));
        let hit = self.trx(slot, op).is_some_and(|trx| trx.marked && trx.stage == Stage::Certified(seqno));
        if hit {
            self.roll_back(slot, op, seqno);
        }
        hit
    }

    /// An applier, or a replay, locks the rows that the write set at `seqno` changes. `false`: it waits for those whom it has hit.
    pub(crate) fn lock_rows(&mut self, slot: usize, seqno: u64) -> bool {
        let s = &mut self.slots[slot];
        let Some(change) = s.db.change(seqno).filter(|c| c.by != By::Client) else { return true };
        let Some(p) = &mut s.process else { return true };
        let in_the_way = |trx: &Trx| match change.isolated {
            // The table is locked.
            true => trx.locked > 0,
            false => change.rows.iter().any(|row| trx.holds(row.0, KeyKind::Exclusive)),
        };
        let mut marked = Vec::new();
        let mut recalls = false;
        let mut free = true;
        for (op, trx) in p.trxs.iter_mut().filter(|(op, trx)| **op != change.op && in_the_way(trx)) {
            if self.options.sabotage == Some(Sabotage::VictimSpared) {
                continue;
            }
            free = false;
            if trx.marked {
                continue;
            }
            let hit = victim::hit(trx.stage, true, Some(Seqno(seqno)));
            trx.marked = match hit.mark {
                Mark::No => false,
                Mark::BeforeTurn(at) => at.0 > s.db.now.position,
                Mark::Anyway(_) => true,
            };
            recalls |= hit.recall;
            if trx.marked {
                marked.push(*op);
            }
        }
        let server = p.server;
        for op in marked {
            self.situations.arose(Situation::GaveWay);
            let delay = self.appliers.exp(100 * US);
            self.after(delay, Event::Local { slot, server, op });
        }
        if recalls {
            self.recall(slot);
        }
        free
    }

    /// Locks are free: those who wait for some look again, appliers first.
    pub(crate) fn wake_waiting(&mut self, slot: usize) {
        let Some(p) = &mut self.slots[slot].process else { return };
        let server = p.server;
        let waiting: Vec<u64> = p.trxs.iter().filter(|(_, trx)| trx.waits).map(|(op, _)| *op).collect();
        for seqno in std::mem::take(&mut p.blocked) {
            self.after(0, Event::Applying { slot, server, seqno });
        }
        for op in waiting {
            let delay = 1 + self.appliers.exp(10 * US);
            if let Some(trx) = self.trx(slot, op) {
                trx.waits = false;
            }
            self.after(delay, Event::Local { slot, server, op });
        }
    }

    /// An applier has begun with this: it locks the rows, and works.
    pub(crate) fn applying(&mut self, slot: usize, server: u32, seqno: u64) {
        let s = &self.slots[slot];
        if s.process.as_ref().is_none_or(|p| p.server != server) || !s.db.is_running(seqno) {
            return;
        }
        if s.paused {
            return self.after(10 * MS, Event::Applying { slot, server, seqno });
        }
        // Before the locks: a transaction that is recalled gives up its locks at once, and wakes all that wait for them.
        if let Some(p) = &mut self.slots[slot].process {
            p.blocked.insert(seqno);
        }
        if !self.lock_rows(slot, seqno) {
            return;
        }
        if let Some(p) = &mut self.slots[slot].process {
            p.blocked.remove(&seqno);
        }
        let mean = if self.appliers.chance(0.5) { self.options.db_apply_mean / 10 } else { self.options.db_apply_mean };
        let delay = self.appliers.exp(mean);
        self.after(delay, Event::Applied { slot, server, seqno });
    }
}
