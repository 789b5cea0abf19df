//! Transactions of own clients, as the engine and the node see them: they lock rows one after the other, wait for the locks of others, are
//! sent and ordered, and give way to appliers by the node's own decision (`trireme_replicator::victim`). One that is ordered already is
//! rolled back and applied again in its turn.
//!
//! A changed row is locked for all others, a referenced one for those who change it. Certification does not tell the second from no use at
//! all, so appliers meet such locks also of transactions that nothing is wrong with.
//!
//! A streaming transaction (`streaming.rs`) locks the rows of one fragment, sends it, and keeps them for the next one. So an applier hits
//! it also while it asks for nothing.

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
    /// The part that it sends when it has its locks, or has sent. `None`: it is a streaming transaction between two fragments.
    part: Option<Part>,
    keys: Vec<(u16, KeyKind)>,
    /// So many of these are locked.
    locked: usize,
    /// So many of these belong to fragments that are committed here.
    settled: usize,
    /// For a lock, and until when.
    waits: bool,
    until: Option<u64>,
}

/// How long a client waits for a lock. Streaming transactions keep theirs for longer.
const LOCK_WAIT_MAX: u64 = 2 * SEC;

impl Trx {
    fn new() -> Trx {
        let (stage, keys) = (Stage::Collecting, Vec::new());
        Trx { stage, marked: false, part: None, keys, locked: 0, settled: 0, waits: false, until: None }
    }

    /// Its client asks for this part, which needs more rows.
    fn begin(&mut self, part: Part, mut keys: Vec<(u16, KeyKind)>) {
        // In one order, so that clients wait in a circle only for what earlier fragments hold.
        keys.sort_unstable_by(|a, b| (a.0, b.1).cmp(&(b.0, a.1)));
        keys.dedup_by_key(|key| key.0);
        self.keys.extend(keys);
        self.part = Some(part);
    }

    /// A fragment is committed here. The rows stay locked.
    fn rest(&mut self) {
        (self.stage, self.part, self.settled) = (Stage::Collecting, None, self.keys.len());
    }

    pub fn rests(&self) -> bool {
        self.part.is_none()
    }

    /// Is this the end of it?
    fn ends(&self) -> bool {
        matches!(self.part, Some(Part::Whole | Part::Commit(_)))
    }

    /// Rows that it has locked to change them.
    pub fn changed(&self) -> impl Iterator<Item = u16> {
        self.keys[..self.locked].iter().filter(|key| changes(key.1)).map(|key| key.0)
    }

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
        self.holds_back(op) || self.trxs.contains_key(&op) || self.has_asked_for(op)
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
        if !self.go_on_trx(slot, op, Part::Whole) {
            self.clients.refused(op);
        }
        op
    }

    /// The client asks for this part, for which the transaction locks more rows. `false`: there is no server.
    pub(crate) fn go_on_trx(&mut self, slot: usize, op: u64, part: Part) -> bool {
        let keys = self.draw_keys();
        let Some(p) = &mut self.slots[slot].process else { return false };
        p.trxs.entry(op).or_insert_with(Trx::new).begin(part, keys);
        let server = p.server;
        self.local(slot, server, op);
        true
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
        // Its rows stay as it has read them, but for a statement in isolation, which certification holds against fragments one by one.
        let reads = self.options.isolated_share == 0.0 || trx.part == Some(Part::Whole);
        let part = trx.part.filter(|_| !reads).unwrap_or(Part::Whole);
        match trx.stage {
            Stage::Collecting if trx.marked => self.refuse_trx(slot, op),
            Stage::Collecting if !trx.rests() => match trx.keys.get(trx.locked).copied() {
                Some((row, kind)) if self.must_wait(slot, op, row, kind) => self.wait_for_lock(slot, server, op),
                Some(key) => {
                    if let Some(trx) = self.trx(slot, op) {
                        trx.locked += 1;
                        trx.until = None;
                    }
                    if changes(key.1) {
                        self.values.asked(slot, self.now, op, part, &[key], &self.slots[slot].db.now);
                    }
                    let delay = self.appliers.exp(self.options.think_mean);
                    self.after(delay, Event::Local { slot, server, op });
                }
                None => self.certify_trx(slot, op),
            },
            Stage::Certified(seqno) if trx.marked => {
                self.roll_back(slot, op, seqno);
            }
            // Between two fragments, or not its own thread's turn.
            Stage::Collecting | Stage::Certifying | Stage::Certified(_) | Stage::Failed(_) | Stage::Replaying(_) => {}
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
        let Some(part) = trx.part else { return };
        let keys = trx.keys[trx.settled..].to_vec();
        let sent = self.send_part(slot, op, part, &keys);
        if sent && let Some(stream) = self.own_stream(slot, op) {
            stream.sent = Some(part);
        }
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
        if self.own_stream(slot, op).is_some() {
            return self.give_up_stream(slot, op);
        }
        self.clients.refused(op);
        self.values.answered(op, self.now, None);
        self.end_trx(slot, op);
    }

    /// It is over here, or given up: its locks go.
    pub(crate) fn end_trx(&mut self, slot: usize, op: u64) {
        if let Some(p) = &mut self.slots[slot].process
            && p.trxs.remove(&op).is_some()
        {
            p.held_back.retain(|held| *held != op);
            self.wake_waiting(slot);
        }
    }

    /// The same for a streaming transaction of which fragments were sent. Here its rows are free for appliers. The model stages what it
    /// changed as other nodes do, until the end of it is ordered, and no client may come in between.
    pub(crate) fn leave_trx(&mut self, slot: usize, op: u64) {
        if let Some(p) = &mut self.slots[slot].process
            && let Some(trx) = p.trxs.get(&op)
        {
            p.locks.entry(op).or_default().extend(trx.changed());
            self.end_trx(slot, op);
        }
    }

    /// A fragment of it is about to be committed here.
    pub(crate) fn rest_trx(&mut self, slot: usize, op: u64) {
        if let Some(trx) = self.trx(slot, op) {
            trx.rest();
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

    /// An ordered victim has noticed. Says who commits it.
    fn roll_back(&mut self, slot: usize, op: u64, seqno: Seqno) -> By {
        let by = self.hit_ordered(slot, op, seqno);
        if by == By::Replay {
            self.slots[slot].db.replay(seqno.0);
        }
        if let Some(p) = &self.slots[slot].process {
            let boot = p.boot;
            self.start_apply(slot, boot);
        }
        by
    }

    fn hit_ordered(&mut self, slot: usize, op: u64, seqno: Seqno) -> By {
        let ends = self.trx(slot, op).is_none_or(|trx| trx.ends());
        match victim::fate(ends) {
            Fate::RollBack => {
                self.give_up_stream(slot, op);
                By::Client
            }
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

    /// Is the client's own thread to give way, which has the turn to commit this? It then does so. `true`: and commits it later.
    pub(crate) fn gives_way(&mut self, slot: usize) -> bool {
        let Some(next) = self.slots[slot].db.queue.front().filter(|c| c.by == By::Client) else { return false };
        let (op, seqno) = (next.op, Seqno(next.seqno));
        let hit = self.trx(slot, op).is_some_and(|trx| trx.marked && trx.stage == Stage::Certified(seqno));
        hit && self.roll_back(slot, op, seqno) == By::Replay
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
            let hit = victim::hit(trx.stage, trx.ends(), Some(Seqno(seqno)));
            trx.marked = match hit.mark {
                Mark::No => false,
                Mark::BeforeTurn(at) => at.0 > s.db.now.position,
                Mark::Anyway(_) => true,
            };
            recalls |= hit.recall;
            if trx.marked {
                marked.push(*op);
                if trx.stage == Stage::Collecting && trx.settled > 0 {
                    self.situations.arose(Situation::StreamHit);
                }
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
