//! The one who does harm. At random moments it draws an enabled fault, does it, and plans its end.

use trireme_order::{LogStore, Phase};
use trireme_types::{Durability, Weight};

use crate::cluster::{Cluster, Event};
use crate::driver::voters_at;
use crate::options::{Fault, MS};

/// The end of a fault.
#[derive(Clone, Debug)]
pub enum Undo {
    Mend(Vec<(usize, usize)>),
    Resume(usize),
    Fast {
        from: usize,
        to: usize,
    },
    Sync(usize),
    Step(usize),
    Flap {
        a: usize,
        b: usize,
        left: u32,
    },
    Return(usize),
    /// All processes die, and the links are whole again.
    Perish(Vec<(usize, usize)>),
}

impl Cluster {
    pub(crate) fn fault(&mut self) {
        if self.calm {
            return;
        }
        let delay = self.rng.exp(self.options.fault_mean);
        self.after(delay, Event::Fault);
        let weights: Vec<u32> = self.options.faults.iter().map(|f| f.1).collect();
        let Some(which) = self.rng.weighted(&weights) else { return };
        let fault = self.options.faults[which].0;
        self.faults_done += 1;
        self.log(|| format!("fault {fault:?}"));
        self.inflict(fault);
    }

    fn duration(&mut self) -> u64 {
        MS + self.rng.exp(self.options.fault_duration)
    }

    fn any_slot(&mut self) -> usize {
        self.rng.below(self.slots.len() as u64) as usize
    }

    fn any_pair(&mut self) -> Option<(usize, usize)> {
        let a = self.any_slot();
        let b = self.any_slot();
        (a != b).then_some((a, b))
    }

    fn restart_later(&mut self, slot: usize) {
        let boot = self.slots[slot].boot;
        let delay = self.duration();
        self.after(delay, Event::Restart { slot, boot });
    }

    fn cut_for_a_while(&mut self, cuts: Vec<(usize, usize)>) {
        for &(a, b) in &cuts {
            self.cut(a, b);
        }
        let delay = self.duration();
        self.after(delay, Event::Undo(Undo::Mend(cuts)));
    }

    fn inflict(&mut self, fault: Fault) {
        let n = self.slots.len();
        match fault {
            Fault::Crash => {
                let slot = self.any_slot();
                self.crash(slot, false);
                self.restart_later(slot);
            }
            Fault::CrashMidStep => {
                let slot = self.any_slot();
                let after = self.rng.range(0, 6) as u32;
                if let Some(p) = &mut self.slots[slot].process {
                    p.crash_after = Some(after);
                }
            }
            Fault::CrashInStore => {
                let slot = self.any_slot();
                let after = self.rng.range(0, 6) as u32;
                if let Some(p) = &mut self.slots[slot].process {
                    p.crash_after = Some(u32::MAX);
                    p.group.store_mut().set_fuse(after);
                }
            }
            Fault::CrashMany => {
                let all = self.rng.chance(0.5);
                let together = self.rng.chance(0.3);
                let delay = self.duration();
                for slot in 0..n {
                    if all || self.rng.chance(0.6) {
                        self.crash(slot, false);
                        if together {
                            let boot = self.slots[slot].boot;
                            self.after(delay, Event::Restart { slot, boot });
                        } else {
                            self.restart_later(slot);
                        }
                    }
                }
            }
            Fault::Pause => {
                let slot = self.any_slot();
                if !self.slots[slot].paused {
                    self.pause(slot);
                    let delay = self.duration();
                    self.after(delay, Event::Undo(Undo::Resume(slot)));
                }
            }
            Fault::PowerLoss => {
                let slot = self.any_slot();
                self.crash(slot, true);
                self.restart_later(slot);
            }
            Fault::PowerLossAll => {
                for slot in 0..n {
                    self.crash(slot, true);
                    self.restart_later(slot);
                }
            }
            Fault::CutPair => {
                if let Some((a, b)) = self.any_pair() {
                    self.cut_for_a_while(vec![(a, b), (b, a)]);
                }
            }
            Fault::CutOneWay => {
                if let Some((a, b)) = self.any_pair() {
                    self.cut_for_a_while(vec![(a, b)]);
                }
            }
            Fault::Partition => {
                let side: Vec<bool> = (0..n).map(|_| self.rng.chance(0.5)).collect();
                let cuts =
                    (0..n).flat_map(|a| (0..n).map(move |b| (a, b))).filter(|&(a, b)| side[a] != side[b]).collect();
                self.cut_for_a_while(cuts);
            }
            Fault::CutSome => {
                let p = self.rng.below(70) as f64 / 100.0;
                let mut cuts = Vec::new();
                for a in 0..n {
                    for b in 0..n {
                        if a != b && self.rng.chance(p) {
                            cuts.push((a, b));
                        }
                    }
                }
                self.cut_for_a_while(cuts);
            }
            Fault::Isolate => {
                let slot = self.any_slot();
                let how = self.rng.below(3);
                let mut cuts = Vec::new();
                for other in (0..n).filter(|&o| o != slot) {
                    if how != 0 {
                        cuts.push((slot, other));
                    }
                    if how != 1 {
                        cuts.push((other, slot));
                    }
                }
                self.cut_for_a_while(cuts);
            }
            Fault::ResetOne => {
                if let Some((a, b)) = self.any_pair() {
                    self.reset_link(a, b);
                }
            }
            Fault::Flap => {
                if let Some((a, b)) = self.any_pair() {
                    let left = self.rng.range(3, 30) as u32;
                    self.undo(Undo::Flap { a, b, left });
                }
            }
            Fault::ResetAll => {
                for a in 0..n {
                    for b in a + 1..n {
                        self.reset_link(a, b);
                    }
                }
            }
            Fault::SlowLink => {
                if let Some((from, to)) = self.any_pair() {
                    self.net.slow[from][to] = self.rng.range(2, 200);
                    let delay = self.duration();
                    self.after(delay, Event::Undo(Undo::Fast { from, to }));
                }
            }
            Fault::SyncStall => {
                let slot = self.any_slot();
                self.slots[slot].sync_factor = self.rng.range(10, 2_000);
                let delay = self.duration();
                self.after(delay, Event::Undo(Undo::Sync(slot)));
            }
            Fault::DiskFails => {
                let slot = self.any_slot();
                let after = self.rng.range(0, 20) as u32;
                if let Some(p) = &mut self.slots[slot].process {
                    p.group.store_mut().set_fuse(after);
                }
            }
            Fault::SlowNode => {
                let slot = self.any_slot();
                self.slots[slot].step_factor = self.rng.range(2, 300);
                let delay = self.duration();
                self.after(delay, Event::Undo(Undo::Step(slot)));
            }
            Fault::ClockJump => {
                let slot = self.any_slot();
                let jump = self.rng.exp(2_000 * MS);
                self.slots[slot].offset += jump;
                let boot = self.slots[slot].boot;
                if let Some(p) = self.life(slot, boot) {
                    p.wake_at = None;
                }
                self.schedule_step(slot);
            }
            Fault::Leave => {
                let slot = self.any_slot();
                if self.slots[slot].process.as_ref().is_some_and(|p| !p.leaving) {
                    self.leave(slot);
                    let delay = self.duration();
                    self.after(delay, Event::Undo(Undo::Return(slot)));
                }
            }
            Fault::Wipe => {
                let slot = self.any_slot();
                if self.can_lose(slot) {
                    self.wipe(slot);
                    self.restart_later(slot);
                }
            }
            Fault::Weight => {
                let slot = self.any_slot();
                let weight = self.rng.range(0, 3) as u8;
                // Somebody must keep a weight, or nobody could ever be elected.
                let others = (0..n).any(|s| s != slot && self.slots[s].weight > 0 && self.slots[s].process.is_some());
                if (weight > 0 || others) && self.slots[slot].process.is_some() {
                    self.with_group(slot, |g, now| g.set_weight(now, Weight(weight)));
                }
            }
            Fault::Durability => {
                let slot = self.any_slot();
                let to = if self.rng.chance(0.5) { Durability::Disk } else { Durability::Process };
                self.with_group(slot, |g, now| g.set_durability(now, to));
            }
            Fault::Abandon => {
                let slot = self.any_slot();
                self.abandon(slot);
            }
            Fault::LongTail => {
                let orders = |slot: &usize| {
                    let status = self.slots[*slot].process.as_ref().map(|p| p.group.status());
                    status.is_some_and(|s| s.phase == Phase::Primary && s.sequencer == Some(self.slots[*slot].node))
                };
                let Some(slot) = (0..n).find(orders).filter(|_| n >= 3) else { return };
                let cuts: Vec<(usize, usize)> =
                    (0..n).filter(|&o| o != slot).flat_map(|o| [(slot, o), (o, slot)]).collect();
                for &(a, b) in &cuts {
                    self.cut(a, b);
                }
                for _ in 0..self.rng.range(10, 40) {
                    self.write(slot);
                }
                // Long enough for a successor, often too short for it to commit as much.
                let election = self.options.timeouts.election.as_nanos() as u64;
                let delay = 2 * election + self.rng.exp(2 * election);
                self.after(delay, Event::Undo(Undo::Perish(cuts)));
            }
            Fault::Force => {
                let slot = self.any_slot();
                // An operator sees to it that only one side is forced: whoever runs is reachable.
                let sees_all = (0..self.slots.len()).all(|other| {
                    self.slots[other].process.is_none()
                        || !self.net.is_blocked(slot, other) && !self.net.is_blocked(other, slot)
                });
                if sees_all && !(0..self.slots.len()).any(|other| self.is_primary(other)) {
                    self.with_group(slot, |g, now| g.force_primary(now));
                }
            }
        }
    }

    pub(crate) fn undo(&mut self, undo: Undo) {
        if self.calm {
            return; // The liveness phase has undone everything.
        }
        match undo {
            Undo::Mend(cuts) => {
                for (a, b) in cuts {
                    self.mend(a, b);
                }
            }
            Undo::Perish(cuts) => {
                for slot in 0..self.slots.len() {
                    self.crash(slot, false);
                    let boot = self.slots[slot].boot;
                    let delay = self.rng.exp(100 * MS);
                    self.after(delay, Event::Restart { slot, boot });
                }
                for (a, b) in cuts {
                    self.mend(a, b);
                }
            }
            Undo::Resume(slot) => self.resume(slot),
            Undo::Fast { from, to } => self.net.slow[from][to] = 1,
            Undo::Sync(slot) => self.slots[slot].sync_factor = 1,
            Undo::Step(slot) => self.slots[slot].step_factor = 1,
            Undo::Flap { a, b, left } => {
                self.reset_link(a, b);
                if left > 0 {
                    let delay = self.rng.exp(100 * MS);
                    self.after(delay, Event::Undo(Undo::Flap { a, b, left: left - 1 }));
                }
            }
            Undo::Return(slot) => {
                if self.slots[slot].out {
                    let boot = self.slots[slot].boot;
                    self.after(0, Event::Restart { slot, boot });
                } else if self.slots[slot].process.is_some() {
                    self.after(100 * MS, Event::Undo(Undo::Return(slot)));
                }
            }
        }
    }

    /// May this disk be lost without losing what was promised? Every configuration that any disk knows of must keep a
    /// majority without it and without those lost before; and some other node must hold data.
    fn can_lose(&self, slot: usize) -> bool {
        let node = self.slots[slot].node;
        let mut known = false;
        let data = self.slots.iter().enumerate().any(|(i, s)| i != slot && s.db.valid);
        for s in &self.slots {
            let store = s.store();
            let mut sets = vec![store.base().voters.clone()];
            let index = store.last();
            if index > store.base().index {
                sets.clear();
            }
            // The newest configuration of each log: older ones decide nothing any more.
            if index > store.base().index {
                sets.extend(voters_at(store, index));
            }
            for set in sets {
                if set.voters.is_empty() {
                    continue;
                }
                known = true;
                let alive = |n| n != node && self.slots.iter().any(|s| s.node == n);
                // One that is just being added would never answer, and its addition could never commit.
                if !set.contains(node) || !set.majority(alive) {
                    return false;
                }
            }
        }
        known && data
    }

    /// Ends every fault at once and starts whatever is down.
    pub fn heal(&mut self) {
        self.calm = true;
        self.log(|| "everything heals".into());
        for slot in 0..self.slots.len() {
            self.slots[slot].sync_factor = 1;
            self.slots[slot].step_factor = 1;
            let s = &mut self.slots[slot];
            if let Some(p) = &mut s.process {
                p.group.store_mut().clear_fuse();
                if p.crash_after.is_some() {
                    self.crash(slot, false);
                }
            }
            if self.slots[slot].process.is_some() {
                self.resume(slot);
            }
        }
        self.heal_network();
        // The founder died before its first configuration was written: an operator begins once more.
        let unformed = |store: &crate::disk::Store| {
            store.base().voters.voters.is_empty() && voters_at(store, store.last()).is_none_or(|v| v.voters.is_empty())
        };
        if self.slots.iter().all(|s| unformed(s.store())) {
            self.crash(0, false);
            self.bootstrap(0);
        }
        for slot in 0..self.slots.len() {
            if self.slots[slot].process.is_none() {
                self.join(slot);
            }
        }
    }
}
