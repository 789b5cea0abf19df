//! The one who does harm. At random moments it draws an enabled fault, does it, and plans its end.

use std::collections::BTreeSet;

use trireme_order::{LogStore, Phase};
use trireme_replicator::message::AppMessage;
use trireme_types::{
    Durability, EntryKind, Fork, Lineage, LogIndex, Member, NodeId, Reader, Seqno, Term, Uuid, View, VoterSet, Weight,
};

use crate::check::Reach;
use crate::cluster::{Cluster, Event, Process, Slot};
use crate::disk::Store;
use crate::driver::{voters_at, voters_in_doubt, voters_index};
use crate::options::{Fault, Kind, MS, SEC};
use crate::rng::Rng;
use crate::situations::Situation;

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
    /// A disk hangs no more.
    Answer(usize),
    Step(usize),
    Flap {
        a: usize,
        b: usize,
        left: u32,
    },
    Return(usize),
    /// An old disk is put back as soon as it may. Those in `apart`, who alone hold what it forgot, hear nobody but each other.
    PutBack {
        slot: usize,
        apart: Vec<usize>,
        cuts: Vec<(usize, usize)>,
        tries: u32,
    },
    /// A commit order goes on.
    Pause {
        slot: usize,
        server: u32,
    },
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
        (MS + self.rng.exp(self.options.fault_duration)).min(self.options.fault_max)
    }

    pub(crate) fn pause_for_a_while(&mut self, slot: usize) {
        if !self.slots[slot].paused {
            self.pause(slot);
            let delay = self.duration();
            self.after(delay, Event::Undo(Undo::Resume(slot)));
        }
    }

    /// A harmless run shakes one node at a time, and lets it come to itself: else the harm adds up to more than timeouts cover.
    fn may_shake(&self) -> bool {
        let quiet = |s: &Slot| !s.stands_still() && s.process.as_ref().is_none_or(|p| p.stall_after.is_none());
        self.options.kind != Kind::Harmless || self.slots.iter().all(|s| quiet(s) && self.now >= s.shaken + 3 * SEC)
    }

    fn any_slot(&mut self) -> usize {
        self.rng.below(self.slots.len() as u64) as usize
    }

    fn any_pair(&mut self) -> Option<(usize, usize)> {
        let a = self.any_slot();
        let b = self.any_slot();
        (a != b).then_some((a, b))
    }

    pub(crate) fn restart_later(&mut self, slot: usize) {
        let boot = self.slots[slot].boot;
        let delay = self.duration();
        self.after(delay, Event::Restart { slot, boot });
    }

    pub(crate) fn cut_for_a_while(&mut self, cuts: Vec<(usize, usize)>) {
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
                if self.may_forget() {
                    self.crash(slot, false);
                    self.restart_later(slot);
                }
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
                if self.may_shake() {
                    self.pause_for_a_while(slot);
                }
            }
            Fault::WriteStall => {
                let slot = self.any_slot();
                let after = self.rng.range(0, 6) as u32;
                let shake = self.may_shake();
                if let Some(p) = self.slots[slot].process.as_mut().filter(|_| shake) {
                    p.stall_after = Some(after);
                }
            }
            Fault::CutRing => {
                let mut order: Vec<(u64, usize)> = (0..n).map(|slot| (self.rng.next(), slot)).collect();
                order.sort_unstable();
                let near = |a: usize, b: usize| (a + 1) % n == b || (b + 1) % n == a;
                let at = |x: usize| order.iter().position(|(_, o)| *o == x).unwrap_or(0);
                let cuts = (0..n)
                    .flat_map(|a| (0..n).map(move |b| (a, b)))
                    .filter(|&(a, b)| a != b && !near(at(a), at(b)))
                    .collect();
                self.cut_for_a_while(cuts);
            }
            Fault::HangByAThread => {
                if let Some((a, b)) = self.any_pair() {
                    let others = (0..n).filter(|&o| o != a && o != b);
                    self.cut_for_a_while(others.flat_map(|o| [(a, o), (o, a)]).collect());
                }
            }
            Fault::ClockDrift => {
                let slot = self.any_slot();
                let ppm = self.rng.below(200_000);
                self.set_drift(slot, ppm);
            }
            Fault::PowerLoss => {
                let slot = self.any_slot();
                if self.may_lose_power(slot) {
                    self.crash(slot, true);
                    self.restart_later(slot);
                }
            }
            Fault::PowerLossAll => {
                // In a run about that alone some may be spared.
                let all = !self.options.dark || self.rng.chance(0.6);
                let voters = self.voters_on_disk();
                let dark: Vec<usize> = (0..n).filter(|_| all || self.rng.chance(0.6)).collect();
                if !self.is_reached_without_power(&dark) {
                    return;
                }
                for slot in dark {
                    self.crash(slot, true);
                    self.restart_later(slot);
                }
                if self.options.dark {
                    self.see_what_is_left(&voters);
                }
                if self.watch.has_switched() {
                    self.arose(Situation::PowerAfterSwitch);
                }
            }
            Fault::CutPair => {
                if let Some((a, b)) = self.any_pair() {
                    self.cut_for_a_while(vec![(a, b), (b, a)]);
                }
            }
            Fault::MidRecord => self.strike_a_writer(),
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
            Fault::DiskOutage => {
                let slot = self.outages.below(n as u64) as usize;
                self.break_disk_for_a_while(slot);
            }
            Fault::DiskHangs => {
                let slot = self.outages.below(n as u64) as usize;
                self.hang(slot);
                let delay = MS + self.outages.exp(self.options.outage_mean).min(self.options.fault_max);
                self.after(delay, Event::Undo(Undo::Answer(slot)));
            }
            Fault::SlowNode => {
                let slot = self.any_slot();
                self.slots[slot].step_factor = match self.options.kind {
                    Kind::Swarm | Kind::Restored | Kind::Large | Kind::Hostile => self.rng.range(2, 300),
                    Kind::Harmless => self.rng.range(2, 5),
                };
                let delay = self.duration();
                self.after(delay, Event::Undo(Undo::Step(slot)));
            }
            Fault::ClockJump => {
                let slot = self.any_slot();
                let jump = self.rng.exp(2_000 * MS).min(self.options.fault_max);
                if !self.may_shake() {
                    return;
                }
                self.slots[slot].shaken = self.now;
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
            Fault::Damage => {
                let slot = self.any_slot();
                if self.can_lose(slot) {
                    self.crash(slot, false);
                    self.log(|| format!("n{slot} has a damaged log"));
                    self.slots[slot].disk.as_mut().expect("no process").damage(&mut self.rng);
                    self.begin_doubt(slot);
                    self.hear_complaint(slot);
                    self.restart_later(slot);
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
                // Somebody must keep a weight: else nobody could ever be elected.
                let others = (0..n).any(|s| s != slot && self.slots[s].weight > 0 && self.slots[s].process.is_some());
                if (weight > 0 || others) && self.slots[slot].process.is_some() {
                    self.slots[slot].wished = weight;
                    self.with_group(slot, |g, now| g.set_weight(now, Weight(weight)));
                }
            }
            Fault::Durability => {
                let slot = self.any_slot();
                let to = if self.rng.chance(0.5) { Durability::Disk } else { Durability::Process };
                self.set_durability(slot, to);
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
            Fault::Evict => self.evict_somebody(),
            Fault::CopyDisk => {
                let slot = self.any_slot();
                if self.may_copy(slot) {
                    self.copy_disk(slot);
                }
            }
            Fault::PutBack => {
                let slot = self.any_slot();
                if self.rng.chance(0.5) {
                    self.let_some_fall_behind(slot);
                } else if self.may_put_back(slot) {
                    self.put_back(slot);
                    self.restart_later(slot);
                }
            }
            Fault::Force => {
                // The others may do anything: an operator may be wrong about them, and may do it on both sides of a cut. But nobody goes on
                // with a node without data while another one has some.
                let slot = self.any_slot();
                if !self.slots[slot].db.valid && self.slots.iter().any(|s| s.db.valid) {
                    return;
                }
                if self.with_group(slot, |g, now| g.force_primary(now)).is_some() {
                    self.arose(Situation::ForcedRun);
                }
            }
        }
    }

    /// Most likely the one that orders; if nobody writes, that one begins to, and hears of it in the middle.
    fn strike_a_writer(&mut self) {
        let writes = |s: &Slot| !s.stands_still() && s.process.is_some() && s.store().wants_write_on();
        let sequencer = self.sequencer();
        let mut writers: Vec<usize> = (0..self.slots.len()).filter(|&slot| writes(&self.slots[slot])).collect();
        writers.extend(sequencer.filter(|s| writers.contains(s) || writers.is_empty()));
        let Some(&slot) = self.rng.pick(&writers) else { return };
        if !writes(&self.slots[slot]) {
            self.write(slot);
        }
        match self.rng.below(4) {
            0 if self.may_forget() => {
                self.crash(slot, false);
                self.restart_later(slot);
            }
            1 if self.may_forget() && self.may_lose_power(slot) => {
                self.crash(slot, true);
                self.restart_later(slot);
            }
            _ => {
                let cuts: Vec<(usize, usize)> =
                    (0..self.slots.len()).filter(|&o| o != slot).flat_map(|o| [(slot, o), (o, slot)]).collect();
                for &(a, b) in &cuts {
                    self.cut(a, b);
                }
                let record = self.options.pieces_max * self.options.piece_mean;
                let delay = self.options.timeouts.election.as_nanos() as u64 + self.rng.below(record + 1);
                self.after(delay, Event::Undo(Undo::Mend(cuts)));
            }
        }
    }

    /// A majority goes on without the rest, whom only `slot`, which is in it, still reaches. Then an old disk is put back there. The
    /// entries that it forgot are with the others of that majority, who are away from now on, and the rest has only heard of them.
    fn let_some_fall_behind(&mut self, slot: usize) {
        let n = self.slots.len();
        let Some(orders) = self.sequencer().filter(|s| *s != slot) else { return };
        if self.may_copy(slot) && (self.slots[slot].copy.is_none() || self.rng.chance(0.5)) {
            self.copy_disk(slot);
        }
        let more = (0..n).filter(|o| ![slot, orders].contains(o)).take(n / 2 - 1);
        let apart: Vec<usize> = std::iter::once(orders).chain(more).collect();
        let rest = (0..n).filter(|o| *o != slot && !apart.contains(o));
        let cuts: Vec<(usize, usize)> = rest.flat_map(|r| apart.iter().flat_map(move |&a| [(a, r), (r, a)])).collect();
        for &(a, b) in &cuts {
            self.cut(a, b);
        }
        for _ in 0..self.rng.range(1, 10) {
            self.write(orders);
        }
        let delay = self.duration();
        self.after(delay, Event::Undo(Undo::PutBack { slot, apart, cuts, tries: 100 }));
    }

    /// Any member orders it, of any other or itself; but somebody with data stays.
    fn evict_somebody(&mut self) {
        let slot = self.any_slot();
        let lift = self.rng.chance(0.2);
        let Some(p) = self.slots[slot].process.as_ref().filter(|p| p.primary) else { return };
        let Some(view) = &p.view else { return };
        let stays = |m: &&Member| {
            let other = self.slot_of(m.node);
            !p.replicator.roster().evicted().contains(&m.uuid())
                && !self.told_to_go.contains(&m.uuid())
                && other.is_some_and(|o| self.is_primary(o) && self.slots[o].db.valid)
        };
        let weighs =
            |m: &Member| self.slot_of(m.node).is_some_and(|o| self.slots[o].wished.min(self.slots[o].weight) > 0);
        let staying: Vec<&Member> = view.members.iter().filter(stays).collect();
        let members: Vec<Uuid> = view.members.iter().map(Member::uuid).collect();
        // Where those that stay have no votes the evicted ones are needed for ever.
        if !lift && (staying.len() < 3 || staying.iter().filter(|m| weighs(m)).count() < 2) {
            return;
        }
        let who = if lift { Some(Uuid::NIL) } else { self.rng.pick(&members).copied() };
        let Some(who) = who else { return };
        self.log(|| format!("n{slot} evicts {who}"));
        if !lift {
            self.told_to_go.insert(who);
        }
        self.propose_app(slot, AppMessage::Evict { member: who });
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
                // With their machines, where that may be: the long tail is the oldest part of all, and so the likeliest to be on disk.
                let power = self.options.dark && self.rng.chance(0.5);
                let voters = self.voters_on_disk();
                for slot in 0..self.slots.len() {
                    self.crash(slot, power);
                    let boot = self.slots[slot].boot;
                    let delay = self.rng.exp(100 * MS);
                    self.after(delay, Event::Restart { slot, boot });
                }
                if power {
                    self.see_what_is_left(&voters);
                }
                for (a, b) in cuts {
                    self.mend(a, b);
                }
            }
            Undo::PutBack { slot, apart, mut cuts, tries } => {
                if !self.may_put_back(slot) && tries > 0 {
                    return self.after(10 * MS, Event::Undo(Undo::PutBack { slot, apart, cuts, tries: tries - 1 }));
                }
                if self.may_put_back(slot) {
                    self.put_back(slot);
                    let boot = self.slots[slot].boot;
                    self.after(MS, Event::Restart { slot, boot });
                    let more: Vec<(usize, usize)> = apart.iter().flat_map(|&a| [(a, slot), (slot, a)]).collect();
                    for &(a, b) in &more {
                        self.cut(a, b);
                    }
                    cuts.extend(more);
                }
                let delay = self.duration() + 2 * self.options.timeouts.election.as_nanos() as u64;
                self.after(delay, Event::Undo(Undo::Mend(cuts)));
            }
            Undo::Pause { slot, server } => {
                if self.slots[slot].process.as_ref().is_some_and(|p| p.server == server) {
                    self.resume_order(slot);
                }
            }
            Undo::Resume(slot) => self.resume(slot),
            Undo::Fast { from, to } => self.net.slow[from][to] = 1,
            Undo::Sync(slot) => self.end_sync_stall(slot),
            Undo::Answer(slot) => {
                let breaks = self.outages.chance(0.3);
                self.end_hang(slot, breaks);
            }
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
                } else if self.is_running(slot) {
                    self.after(100 * MS, Event::Undo(Undo::Return(slot)));
                }
            }
        }
    }

    /// From here on the clock of `slot` runs at another speed; it shows the same time as before.
    fn set_drift(&mut self, slot: usize, ppm: u64) {
        let s = &mut self.slots[slot];
        let shown = s.local(self.now).0;
        s.ppm = ppm;
        let (boot, without) = (s.boot, s.local(self.now).0 - s.offset);
        // It may have to leap, but never goes back.
        s.offset = shown.saturating_sub(without);
        if let Some(p) = self.life(slot, boot) {
            p.wake_at = None;
        }
        self.schedule_step(slot);
    }

    /// May this disk be lost without losing what was promised? Every configuration that any disk knows of must keep a
    /// majority without it and without those lost before; and some other node must hold data that all can go on with.
    fn can_lose(&self, slot: usize) -> bool {
        let node = self.slots[slot].node;
        let whole = |i: usize| self.slots[i].node != node && self.is_evidence(i);
        // The entries that another has dropped, or took a state in place of, count as lost with this disk, unless the one with the data has just
        // these, and not those of a deposed sequencer in their place.
        let others = || (0..self.slots.len()).filter(|i| *i != slot);
        let mut with_data = others().filter(|i| self.has_data_to_go_on_with(*i));
        let data = with_data.any(|i| others().all(|x| x == i || self.goes_on_with(i, x, &[slot])));
        let orders = |n: NodeId| n != node && self.slot_of(n).is_some_and(|s| !self.options.is_arbitrator(s));
        // A node that is just being added would never answer, and its addition could never commit. Arbitrators alone order nothing.
        data && self.every_configuration(|set| {
            set.contains(node)
                && set.majority(|n| (0..self.slots.len()).any(|i| self.slots[i].node == n && whole(i)))
                && set.voters.iter().any(|v| v.weight.0 > 0 && orders(v.node))
        })
    }

    /// Does this log hold what it acknowledged, and will it after a death? One that meets a disk which refused does not know what the kernel has
    /// kept, and in mode disk it may find a record whose parts were not written in order. So may one that is cut off in an operation of its own.
    fn is_evidence(&self, slot: usize) -> bool {
        let s = &self.slots[slot];
        s.is_whole() && !self.sits_out(slot) && s.sick.works_at == 0 && !s.store().is_fused()
    }

    pub(crate) fn may_lose_power(&self, slot: usize) -> bool {
        let harmless = self.options.durability == Durability::Disk && !self.options.switches_durability();
        if harmless { self.is_reached_without_power(&[slot]) } else { self.may_doubt(slot) }
    }

    /// Does some server's log still reach to where that of each bounded arbitrator begins, once these lose their power? The arbitrator drops what
    /// one server has synced. After that one's disk is damaged, the others may have it in their page cache only.
    fn is_reached_without_power(&self, dark: &[usize]) -> bool {
        let servers =
            || (0..self.slots.len()).filter(|i| !self.options.is_arbitrator(*i) && self.has_data_to_go_on_with(*i));
        (0..self.slots.len()).filter(|x| self.may_drop(*x)).all(|x| {
            let begins = self.arbitrator_begins(x);
            servers().any(|i| {
                let log = self.slots[i].store();
                let reach = if dark.contains(&i) { log.synced().min(log.written()) } else { log.written() };
                reach.max(log.base().index) >= begins
            })
        })
    }

    /// May this log lose its end without losing what was promised? Then the other whole logs must be evidence enough; promises
    /// survive.
    pub(crate) fn may_doubt(&self, slot: usize) -> bool {
        let node = self.slots[slot].node;
        let evidence = self.every_configuration(|set| {
            let others = (0..self.slots.len()).filter(|i| self.slots[*i].node != node && self.is_evidence(*i));
            2 * others.map(|i| set.weight(self.slots[i].node)).sum::<u32>() >= set.total()
        });
        // An arbitrator past its bound drops entries that a server has acknowledged, on its disk or not. Some may be on their way to it.
        let n = self.slots.len();
        let servers = || (0..n).filter(|&i| i != slot && !self.options.is_arbitrator(i));
        let mut bounded = (0..n).filter(|&i| i != slot && self.may_drop(i));
        let has_ends = |i: usize, x: usize| self.has_end_of(i, x) && self.has_end_of(i, slot);
        let kept = bounded.all(|x| servers().any(|i| self.has_data_to_go_on_with(i) && has_ends(i, x)));
        // The only data are of use as far as the log beside them reaches to where the others begin.
        let reaches = |end: LogIndex| (0..n).all(|i| i == slot || self.slots[i].store().base().index <= end);
        let reached = servers().any(|i| self.has_data_to_go_on_with(i)) || reaches(self.slots[slot].store().synced());
        evidence && (kept && reached || self.options.is_arbitrator(slot))
    }

    /// Is this an arbitrator with a bound?
    fn may_drop(&self, slot: usize) -> bool {
        self.options.is_arbitrator(slot) && self.options.arbitrator_keep < u64::MAX
    }

    /// Where the log of this arbitrator begins, once it has dropped what it may.
    fn arbitrator_begins(&self, slot: usize) -> LogIndex {
        let base = self.slots[slot].store().base().index;
        let drops = self.slots[slot].process.as_ref().filter(|_| self.may_drop(slot));
        drops.map_or(base, |p| p.group.held_by_servers().1.max(base))
    }

    /// Can the log in the first place be gone on with by the one in the second, now and until that one notices who is dead? An
    /// arbitrator past its bound drops entries that some server has acknowledged, dead or not, also those that are on their way from the dead.
    fn goes_on_with(&self, slot: usize, other: usize, dead: &[usize]) -> bool {
        let (log, o) = (self.slots[slot].store(), &self.slots[other]);
        let base = o.store().base();
        let meets = gets_to(log, base.index, Some(base.term));
        let drops = self.may_drop(other) && o.process.is_some();
        let passed = |ended: usize| log.base().index >= self.slots[ended].store().last();
        let has_all_of = |ended: usize| passed(ended) || self.has_end_of(slot, ended);
        meets && (!drops || self.has_end_of(slot, other) && dead.iter().all(|ended| has_all_of(*ended)))
    }

    /// Does the log in the first place hold the end of the one in the second?
    fn has_end_of(&self, slot: usize, other: usize) -> bool {
        let (log, other) = (self.slots[slot].store(), self.slots[other].store());
        let end = other.last();
        log.written() >= end && log.term_at(end) == other.term_at(end)
    }

    /// May a process die, and with it its memory of others? Not while one of those needs it, because an old copy of its disk was put back.
    pub(crate) fn may_forget(&self) -> bool {
        (0..self.slots.len()).all(|slot| !self.is_short(slot) || self.slots[slot].forgot == Default::default())
    }

    /// May the log be copied? Only that of a member among others. An empty log that comes back is a disk that was lost, which two voters do
    /// not survive. And by a log from the time when its owner decided alone, that owner asks nobody.
    fn may_copy(&self, slot: usize) -> bool {
        let (node, store) = (self.slots[slot].node, self.slots[slot].store());
        let among_others = |set: VoterSet| set.majority(|n| n != node) || 2 * set.weight(node) <= set.total();
        !self.is_short(slot) && voters_at(store, store.last()).is_some_and(among_others)
    }

    /// May this member's disk be replaced by an old copy? Its peers have to be up, and to have heard its promises and acknowledgements. A
    /// peer that has not heard of one cannot remind it (docs/protocol.md, section 8).
    fn may_put_back(&self, slot: usize) -> bool {
        let s = &self.slots[slot];
        let acked = s.newest_ack();
        let heard = |p: &Process| p.heard.get(&s.node).is_some_and(|heard| *heard >= acked);
        // One old disk after the other: by two of them nobody may know any more who decides, and a person has to.
        let others = self.slots.iter().enumerate().filter(|(i, _)| *i != slot);
        s.copy.is_some()
            && s.process.is_some()
            && !s.stands_still()
            && s.store().hard_state().term == acked.0
            && self.may_forget()
            && others.into_iter().all(|(i, o)| o.process.as_ref().is_some_and(heard) && self.stays(i) && o.is_whole())
    }

    /// A server that waits for a copy ends when its donor does, and with it what it remembers of others.
    fn stays(&self, slot: usize) -> bool {
        self.options.is_arbitrator(slot) || self.slots[slot].process.as_ref().is_some_and(|p| p.fed)
    }

    /// The voters of the best log that there is, by whom the others judge what was committed.
    fn voters_on_disk(&self) -> VoterSet {
        let of = |store: &Store| {
            let base = store.base();
            if store.last() > base.index { voters_at(store, store.last()) } else { Some(base.voters.clone()) }
        };
        self.best_log().and_then(of).unwrap_or_default()
    }

    fn best_log(&self) -> Option<&Store> {
        self.slots.iter().map(Slot::store).max_by_key(|store| rank_of(store))
    }

    /// The voters before the newest change in that log, if it was never committed.
    fn voters_before_a_change(&self) -> Option<VoterSet> {
        let store = self.best_log()?;
        let at = voters_index(store, store.last())?;
        let branch = lineage_of(store).branch_at(store.base().history, at);
        let committed = self.losses.is_committed(branch, at, store.term_at(at)?);
        voters_in_doubt(store, store.last(), LogIndex::ZERO).filter(|_| !committed)
    }

    /// Power was lost: how far do the logs and the data of the nodes reach that voted before and still do? A log that begins beyond all
    /// data, and beyond every log that goes on from them, is of no use to anybody. An arbitrator's is given to a server, and not to another
    /// arbitrator: the best one of those that begin in some server's log or data counts.
    fn see_what_is_left(&mut self, voters: &VoterSet) {
        let now = self.voters_on_disk();
        // A change that was not committed gives nobody a vote: those from before it go on alone where their logs have lost it.
        let before = self.voters_before_a_change();
        let newcomer = |node: NodeId| before.as_ref().is_some_and(|set| set.weight(node) == 0);
        let mut left = Vec::new();
        let mut logs = Vec::new();
        let mut arbitrators = Vec::new();
        for (slot, s) in self.slots.iter().enumerate() {
            if voters.weight(s.node) == 0 || now.weight(s.node) == 0 || newcomer(s.node) {
                continue;
            }
            if s.db.valid {
                let data = s.db.on_disk();
                left.push(Reach { history: data.history, lineage: data.lineage.clone(), seqno: data.position });
            }
            let store = s.store();
            let history = store.base().history;
            let lineage = lineage_of(store);
            let committed = (store.base().index.0 + 1..=store.last().0).rev().map(LogIndex).find(|index| {
                let term = store.term_at(*index).unwrap_or_default();
                self.losses.is_committed(lineage.branch_at(history, *index), *index, term)
            });
            let index = committed.unwrap_or(store.base().index);
            let seqno = committed.map_or(store.base().seqno, |index| seqno_at(store, index));
            let lineage = lineage.forks().iter().copied().filter(|fork| fork.index <= index).collect();
            let reach = Reach { history, lineage, seqno: seqno.0 };
            let base = store.base();
            if self.options.is_arbitrator(slot) {
                // Past its bound it drops all that some server has acknowledged, also one that has just lost it.
                let begins = self.arbitrator_begins(slot);
                arbitrators.push(((store.term_at(store.last()), store.last()), (store, begins), reach));
            } else {
                logs.push((base.seqno.0, store, reach));
            }
        }
        logs.sort_by_key(|(base, ..)| *base);
        // Where no voter has data, the others' decide which logs are of use.
        let of_others = || self.slots.iter().filter(|s| s.db.valid).map(|s| s.db.on_disk().position).max();
        let data_end = left.iter().map(|data| data.seqno).max().or_else(of_others).unwrap_or(u64::MAX);
        let (mut end, mut of_use) = (data_end, Vec::new());
        for (base, log, reach) in logs {
            if base <= end {
                end = end.max(reach.seqno);
                of_use.push(log);
                left.push(reach);
            }
        }
        // Entries of a term that came to nothing do not lead to the arbitrator's log. Others without a seqno may lie between the end of a log
        // and the beginning of that one.
        let is_met = |store: &Store, begins| {
            let term = store.term_at(begins);
            seqno_at(store, begins).0 <= data_end || of_use.iter().any(|log| gets_to(log, begins, term))
        };
        let given = arbitrators
            .into_iter()
            .filter(|(_, (store, begins), _)| is_met(store, *begins))
            .max_by_key(|(end, ..)| *end);
        left.extend(given.map(|(_, _, log)| log));
        self.losses.power_lost(left);
    }

    /// Holds `fits` for the voters that decide by any log, and are there any?
    pub(crate) fn every_configuration(&self, fits: impl Fn(&VoterSet) -> bool) -> bool {
        let mut known = false;
        for s in &self.slots {
            let store = s.store();
            let index = store.last();
            if store.read(index, 0).is_err() {
                return false; // Nobody knows the end of a log in an outage.
            }
            // The newest of each log, and those before them while that change is in doubt: older ones decide nothing any more.
            let sets = if index > store.base().index {
                [voters_at(store, index), voters_in_doubt(store, index, s.settled)]
            } else {
                [Some(store.base().voters.clone()), None]
            };
            for set in sets.into_iter().flatten() {
                if set.voters.is_empty() {
                    continue;
                }
                known = true;
                if !fits(&set) {
                    return false;
                }
            }
        }
        known
    }

    /// The nodes that are dead for good: no more than the voters of every log can do without. Drawn apart from all else.
    fn draw_dead(&self) -> Vec<usize> {
        let mut r = Rng::new(self.options.seed ^ 0x0064_6561_u64.rotate_left(32));
        if !self.options.leaves_dead {
            return Vec::new();
        }
        let n = self.slots.len();
        let most = r.range(1, (n as u64).saturating_sub(1).max(1)) as usize;
        let mut order: Vec<(u64, usize)> = (0..n).map(|slot| (r.next(), slot)).collect();
        order.sort_unstable();
        let mut dead = Vec::new();
        for (_, slot) in order {
            dead.push(slot);
            if dead.len() > most || !self.may_do_without(&dead) {
                dead.pop();
            }
        }
        dead
    }

    /// Has the server in this place data that the log beside it goes on from, and keeps them? One that is on its way to a copy may find
    /// that nobody is left to give one. A state that is on its way to it takes the place of its log.
    fn has_data_to_go_on_with(&self, slot: usize) -> bool {
        let s = &self.slots[slot];
        let goes_on = match &s.process {
            Some(p) => p.fed && !self.is_sent_a_state(slot),
            None => s.goes_on_from_data(),
        };
        // Data that a statement is, or may be, cut off in are gone on with by a copy, or when all voters are there.
        let whole = !s.db.half_done && !s.db.in_statement();
        s.db.valid && whole && !s.at_risk && goes_on && s.db.now.position >= self.watch.overtaken
    }

    /// Do the others hold all that was promised, and can they go on? They need a majority of the voters of every configuration that any
    /// disk knows of, whose logs are evidence, and data from which every log of theirs can be gone on with.
    fn may_do_without(&self, dead: &[usize]) -> bool {
        let alive = || self.slots.iter().enumerate().filter(|(i, _)| !dead.contains(i));
        let goes_on_from = |slot: usize| alive().all(|(other, _)| self.goes_on_with(slot, other, dead));
        let data = alive().any(|(slot, _)| self.has_data_to_go_on_with(slot) && goes_on_from(slot));
        let server = |n: NodeId| self.slot_of(n).is_some_and(|s| !dead.contains(&s) && !self.options.is_arbitrator(s));
        let is_evidence =
            |n: NodeId| self.slot_of(n).is_some_and(|slot| !dead.contains(&slot) && self.is_evidence(slot));
        data && self.may_forget()
            && self.every_configuration(|set| {
                set.majority(is_evidence)
                    && set.voters.iter().any(|v| v.weight.0 > 0 && server(v.node))
                    && self.outweigh(set, dead)
            })
    }

    /// Are the others a majority still if `set` changes once more before anybody has noticed who is dead? Each may have the weight by then
    /// that it wants, or starts with. A node that is about to get a vote may have it, and one that leaves has none. Besides, the sequencer
    /// may leave out those that are away for the moment, as in `may_leave_out`.
    fn outweigh(&self, set: &VoterSet, dead: &[usize]) -> bool {
        let slots: Vec<(Option<usize>, u8)> = set.voters.iter().map(|v| (self.slot_of(v.node), v.weight.0)).collect();
        let leaves = |slot: usize| self.is_going(slot);
        let strangers = dead.iter().map(|slot| &self.slots[*slot]).filter(|s| !set.contains(s.node));
        let strangers: u8 = strangers.map(|s| s.wished.max(s.weight)).sum();
        let outweighed_without = |out: &[usize]| {
            let (mut here, mut gone) = (0, strangers);
            for (slot, weight) in &slots {
                match slot.map(|slot| (slot, &self.slots[slot])) {
                    Some((slot, _)) if out.contains(&slot) => {}
                    Some((slot, s)) if !dead.contains(&slot) => here += (*weight).min(s.wished).min(s.weight),
                    Some((_, s)) => gone += (*weight).max(s.wished),
                    None => gone += weight,
                }
            }
            here <= gone
        };
        let leavers: Vec<usize> = (0..self.slots.len()).filter(|slot| leaves(*slot) && !dead.contains(slot)).collect();
        let away: Vec<usize> = slots
            .iter()
            .filter_map(|(slot, _)| *slot)
            .filter(|slot| !dead.contains(slot) && !leavers.contains(slot) && self.is_away(*slot))
            .collect();
        (0..1_usize << away.len()).all(|choice| {
            let out = away.iter().enumerate().filter(|(i, _)| (choice >> i) & 1 == 1).map(|(_, slot)| *slot);
            let out: Vec<usize> = out.collect();
            let left_out = |n: NodeId| self.slot_of(n).is_none_or(|slot| out.contains(&slot));
            let possible = out.is_empty() || !leavers.is_empty() || may_leave_out(set, left_out);
            !possible || !outweighed_without(&[leavers.clone(), out].concat())
        })
    }

    /// Is the member in this place asked to go, or has it asked for that itself? Its words may be unread still after it has ended.
    fn is_going(&self, slot: usize) -> bool {
        let s = &self.slots[slot];
        let me = self.member(slot);
        let is_back = || {
            let view = s.process.as_ref().filter(|p| p.primary && !p.leaving).and_then(|p| p.view.as_ref());
            view.and_then(|view| view.get(s.node)).is_some_and(|m| m.incarnation == me.incarnation)
        };
        self.told_to_go.contains(&me.uuid()) || s.left && !is_back()
    }

    /// May others take the node in this place for dead now, or in a moment, although it is not meant to be?
    fn is_away(&self, slot: usize) -> bool {
        let s = &self.slots[slot];
        // One that sits out takes nobody for dead.
        let hears = |p: &Process| p.outage.is_some() || p.links.contains_key(&s.node);
        let linked = |other: usize| self.slots[other].process.as_ref().is_none_or(hears);
        let cut = |other: usize| self.net.is_blocked(slot, other) || self.net.is_blocked(other, slot) || !linked(other);
        // A sequencer takes nobody for alive who is not in the view as it was started last: it may be linked, and still on its way in.
        let views = self.slots.iter().filter_map(|s| s.process.as_ref()?.view.as_ref());
        let newest = views.max_by_key(|view| view.number);
        let here = newest.and_then(|view| view.get(s.node));
        let is_inside = here.is_some_and(|m| m.incarnation == self.member(slot).incarnation);
        s.process.is_none()
            || s.stands_still()
            || self.is_former(slot)
            || self.sits_out(slot)
            || !is_inside
            || (0..self.slots.len()).any(|other| other != slot && cut(other))
    }

    /// Ends every fault at once and starts all nodes that are down, but for those that are dead for good.
    pub fn heal(&mut self) {
        self.calm = true;
        self.log(|| "everything heals".into());
        let dead = self.draw_dead();
        self.mend_disks();
        if !dead.is_empty() {
            self.arose(Situation::DeadMinority);
        }
        for slot in dead {
            self.log(|| format!("n{slot} stays dead"));
            self.crash(slot, false);
            self.slots[slot].dead = true;
        }
        for slot in 0..self.slots.len() {
            self.end_sync_stall(slot);
            self.resume_order(slot);
            self.slots[slot].step_factor = 1;
            let s = &mut self.slots[slot];
            if let Some(p) = &mut s.process {
                p.group.store_mut().clear_fuse();
                p.stall_after = None;
                if p.crash_after.is_some() {
                    self.crash(slot, false);
                }
            }
            if self.slots[slot].process.is_some() {
                self.resume(slot);
            }
        }
        self.finish_upgrade();
        self.heal_network();
        // A log that failed answers nothing before it is opened again.
        for slot in 0..self.slots.len() {
            let failed = |p: &Process| p.outage.is_none() && p.group.status().phase == Phase::Failed;
            if self.slots[slot].process.as_ref().is_some_and(failed) {
                self.crash(slot, false);
            }
        }
        // The founder died before its first configuration was written: an operator begins once more.
        let unformed = |store: &crate::disk::Store| {
            store.base().voters.voters.is_empty()
                && store.read(store.last(), 0).is_ok()
                && voters_at(store, store.last()).is_none_or(|v| v.voters.is_empty())
        };
        if !self.options.founded && self.slots.iter().all(|s| unformed(s.store())) {
            self.crash(0, false);
            self.bootstrap(0);
        }
        for slot in 0..self.slots.len() {
            if !self.slots[slot].dead && self.knows_nobody(slot) {
                self.log(|| format!("n{slot} is begun anew by a person, as its log asks"));
                self.wipe(slot);
            }
        }
        for slot in 0..self.slots.len() {
            if self.slots[slot].process.is_none() && !self.slots[slot].dead {
                // A stop is cut short.
                self.server_ended(slot, false);
                self.join(slot);
            }
        }
    }

    /// Has nobody a disk any more of those whom the log in this place names, while the others decide without it and have data? Rule 35
    /// leaves such a node to a person.
    fn knows_nobody(&self, slot: usize) -> bool {
        let me = self.slots[slot].node;
        let Some(Named { mut members, speakers }) = named_by(self.slots[slot].store()) else { return false };
        // By a line of somebody else in its table of sessions it knows the others' state for its own cluster's.
        if speakers.iter().any(|n| *n != me) {
            return false;
        }
        members.remove(&me);
        let decide_without = self.voters_on_disk().majority(|n| n != me && self.slot_of(n).is_some());
        let data = (0..self.slots.len()).any(|i| i != slot && self.has_data_to_go_on_with(i));
        !members.is_empty() && members.iter().all(|n| self.slot_of(*n).is_none()) && decide_without && data
    }
}

/// The nodes that a log names.
pub(crate) struct Named {
    /// In its voters and views.
    pub members: BTreeSet<NodeId>,
    /// In its sessions.
    pub speakers: BTreeSet<NodeId>,
}

/// `None`: it cannot be read.
pub(crate) fn named_by(store: &impl LogStore) -> Option<Named> {
    let base = store.base();
    let entries = store.read(base.index.next(), usize::MAX).ok()?;
    let mut members: BTreeSet<NodeId> = base.voters.voters.iter().map(|v| v.node).collect();
    members.extend(base.view.members.iter().map(|m| m.node));
    let sessions = base.sessions.iter().map(|m| m.session).chain(entries.iter().map(|e| e.header.session));
    let speakers = sessions.map(|session| session.node).filter(|n| !n.0.is_nil()).collect();
    for e in entries {
        let mut r = Reader::new(&e.payload);
        match e.header.kind {
            EntryKind::Voters => {
                members.extend(VoterSet::decode(&mut r).iter().flat_map(|s| &s.voters).map(|v| v.node))
            }
            EntryKind::View => members.extend(View::decode(&mut r).iter().flat_map(|v| &v.members).map(|m| m.node)),
            EntryKind::Term | EntryKind::WriteSet | EntryKind::App | EntryKind::Setting => {}
        }
    }
    Some(Named { members, speakers })
}

/// Could a majority of `set` survive more failures if these had no votes? Then the sequencer may take their votes away (rule 9).
fn may_leave_out(set: &VoterSet, out: impl Fn(NodeId) -> bool) -> bool {
    let mut alive: Vec<u32> = set.voters.iter().filter(|v| !out(v.node)).map(|v| u32::from(v.weight.0)).collect();
    alive.sort_unstable_by(|a, b| b.cmp(a));
    let sum: u32 = alive.iter().sum();
    // The heaviest fail first.
    let survived = |total: u32| {
        let mut left = sum;
        let enough = alive.iter().take_while(|weight| {
            left -= **weight;
            2 * left > total
        });
        enough.count()
    };
    2 * sum > set.total() && survived(sum) > survived(set.total())
}

/// The seqno of the entry at `index`, or of the base.
pub(crate) fn seqno_at(store: &Store, index: LogIndex) -> Seqno {
    let entry = store.read(index, 0).ok();
    entry.and_then(|e| e.first().map(|e| e.header.seqno)).unwrap_or(store.base().seqno)
}

/// Does this log hold the entry of that term at `index`, also after a death, or begin behind it?
fn gets_to(log: &Store, index: LogIndex, term: Option<Term>) -> bool {
    log.base().index >= index || term.is_some() && log.written() >= index && log.term_at(index) == term
}

/// By what one log goes before another in an election: the greater one does.
pub(crate) fn rank_of(store: &Store) -> (usize, Option<Term>, LogIndex) {
    (lineage_of(store).forks().len(), store.term_at(store.last()), store.last())
}

/// Every fork that led to this log. Each change of the voters names the one before.
pub(crate) fn lineage_of(store: &Store) -> Lineage {
    let base = store.base();
    let mut forks = Vec::new();
    let mut at = voters_index(store, store.last());
    while let Some(index) = at.filter(|index| *index > base.index) {
        let Some(e) = store.read(index, 0).ok().and_then(|entries| entries.into_iter().next()) else { break };
        if let Some(set) = VoterSet::decode(&mut Reader::new(&e.payload)).ok().filter(|set| !set.fork.is_nil()) {
            forks.push(Fork { index, seqno: e.header.seqno, id: set.fork });
        }
        at = Some(e.header.voters).filter(|before| *before < index);
    }
    base.lineage.forks().iter().copied().chain(forks.into_iter().rev()).collect()
}

/// The branch that this log belongs to.
pub(crate) fn branch_of(store: &Store) -> Uuid {
    lineage_of(store).branch(store.base().history)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    /// Seeds 5650, 12262 and 13416: a new disk's vote was ordered, not committed, and a second disk was taken away. Nobody can go on then
    /// without a person, and the cluster is not to blame for that.
    #[test]
    fn no_second_disk_is_taken_before_the_vote_of_the_first_ones_successor_is_committed() {
        let mut o = Options::calm(1, 3);
        o.durability = Durability::Process;
        let mut c = Cluster::formed(o);
        let s = c.the_sequencer();
        let (first, second) = ((s + 1) % 3, (s + 2) % 3);
        assert!(c.can_lose(first) && c.can_lose(second));
        // A change of the voters is acknowledged only when it is synced.
        c.stall_syncs(second, 1_000_000);
        c.wipe(first);
        c.join(first);
        c.expect(120 * SEC, "its vote is ordered", |c| c.voters().contains(&first));
        assert!(!c.can_lose(second) && !c.may_doubt(second));
        c.end_sync_stall(second);
        c.expect(SEC, "and committed", |c| c.can_lose(second));
        c.conclude();
    }

    /// Two servers, and an arbitrator that keeps so many entries.
    fn with_an_arbitrator(keep: u64) -> Cluster {
        let mut o = Options::calm(1, 3);
        (o.arbitrators, o.arbitrator_keep) = (1, keep);
        Cluster::formed(o)
    }

    /// Seeds 5424 and 7656: the arbitrator held all that the returning server lacked. It dropped that, as its bound demands, in the moment
    /// before it noticed that the other server was dead. Then that one has to come back, and nobody promised otherwise.
    #[test]
    fn no_server_stays_dead_whose_log_only_an_arbitrator_with_a_bound_has_beside_it() {
        for (keep, may) in [(u64::MAX, true), (10, false)] {
            let mut c = with_an_arbitrator(keep);
            c.crash(1, false);
            c.run_for(SEC);
            assert!(c.may_do_without(&[1]), "keeping {keep}");
            for _ in 0..3 {
                c.write(0);
                c.run_for(SEC);
            }
            assert!(c.store(0).last() > c.store(1).last());
            assert_eq!(c.may_do_without(&[0]), may, "keeping {keep}");
            assert_eq!(c.may_doubt(0), may, "keeping {keep}: a loss of power would cost the same");
            c.join(1);
            c.conclude();
        }
    }

    /// Seed 76559788: the arbitrator held no more than the other server, until what the dead one had sent to it alone arrived.
    #[test]
    fn no_server_stays_dead_whose_newest_entries_may_be_on_their_way_to_an_arbitrator_with_a_bound() {
        for (keep, may) in [(u64::MAX, true), (10, false)] {
            let mut c = with_an_arbitrator(keep);
            c.run_for(SEC);
            assert!(c.may_do_without(&[0]), "keeping {keep}");
            c.write(0);
            let sent = |c: &Cluster| c.store(0).last() > c.store(1).last() && c.store(1).last() == c.store(2).last();
            c.expect(SEC, "the entry is on its way", sent);
            assert_eq!(c.may_do_without(&[0]), may, "keeping {keep}");
            assert_eq!(c.may_doubt(0), may, "keeping {keep}");
            c.conclude();
        }
    }

    /// A write past the page cache that fails has arrived in part, and the log that is opened after a death in it cannot tell that from damage.
    #[test]
    fn nobody_stays_dead_without_whom_a_log_that_may_end_in_a_torn_record_has_to_be_evidence() {
        let mut o = Options::calm(1, 3);
        o.store = crate::options::StoreKind::Real;
        let mut c = Cluster::formed(o);
        assert!(c.may_do_without(&[2]));
        let p = c.slots[1].process.as_mut().expect("it runs");
        p.crash_after = Some(u32::MAX);
        p.group.store_mut().set_fuse(0);
        assert!(!c.may_do_without(&[2]) && c.may_do_without(&[1]));
        c.write(0);
        c.expect(SEC, "it has died", |c| !c.is_running(1));
        assert!(!c.may_do_without(&[2]), "what it wrote last may look like damage");
        c.expect(60 * SEC, "it has on disk what the sequencer has", |c| c.may_do_without(&[2]));
        c.conclude();
    }

    /// Seed 8710: the only server that voted was lost. Two arbitrators were a majority, but they do not order for a node without a vote.
    #[test]
    fn the_last_server_that_votes_is_not_taken_from_its_arbitrators() {
        let mut o = Options::calm(1, 4);
        o.arbitrators = 2;
        let mut c = Cluster::formed(o);
        assert!(c.can_lose(0) && c.can_lose(1));
        c.leave(1);
        c.expect(30 * SEC, "it has left", |c| c.voters() == [0, 2, 3] && !c.is_running(1));
        assert!(!c.can_lose(0));
        c.conclude();
    }

    /// The sequencer may order the leave before it notices that one of the two that are left has died.
    #[test]
    fn nobody_stays_dead_without_whom_those_that_stay_after_a_leave_are_no_majority() {
        let mut c = Cluster::formed(Options::calm(1, 3));
        assert!(c.may_do_without(&[0]));
        c.leave(2);
        assert!(!c.may_do_without(&[0]));
        c.expect(30 * SEC, "it has left", |c| !c.is_running(2));
        c.conclude();
    }

    /// A node starts with the weight of its configuration, not with the last one that an operator gave it.
    #[test]
    fn nobody_stays_dead_without_whom_a_majority_rests_on_a_weight_that_goes_with_a_restart() {
        let mut c = Cluster::formed(Options::calm(1, 4));
        c.slots[1].wished = 3;
        c.with_group(1, |g, now| g.set_weight(now, Weight(3)));
        c.expect(30 * SEC, "it weighs three", |c| c.status(0).is_some_and(|s| s.voters.total() == 6));
        assert!(c.may_do_without(&[2]) && !c.may_do_without(&[2, 3]));
        c.conclude();
    }

    /// Of five voters two are away for the moment and two die for good: the sequencer may have taken the votes of the first two by then.
    #[test]
    fn nobody_stays_dead_without_whom_the_others_are_no_majority_if_those_that_are_away_lose_their_votes() {
        let mut c = Cluster::formed(Options::calm(1, 5));
        let s = c.the_sequencer();
        let [a, b, x, y] = [1, 2, 3, 4].map(|i| (s + i) % 5);
        assert!(c.may_do_without(&[x, y]));
        c.crash(a, false);
        c.crash(b, false);
        assert!(c.may_do_without(&[x]) && !c.may_do_without(&[x, y]));
        for slot in [a, b] {
            c.join(slot);
        }
        c.conclude();
    }

    /// All five come back. Three may be in a view, and take the votes of the other two, which are linked and on their way in.
    #[test]
    fn nobody_stays_dead_without_whom_the_others_are_no_majority_if_those_that_are_not_in_yet_lose_their_votes() {
        let mut c = Cluster::formed(Options::calm(1, 5));
        let voters = c.status(0).unwrap().voters.clone();
        (0..5).for_each(|slot| c.crash(slot, false));
        (0..5).for_each(|slot| c.join(slot));
        let linked = |c: &Cluster| c.slots.iter().all(|s| s.process.as_ref().is_some_and(|p| p.links.len() == 4));
        c.catch(30 * SEC, "all are linked", linked);
        assert!((0..5).all(|slot| !c.is_primary(slot)));
        assert!(c.outweigh(&voters, &[3]) && !c.outweigh(&voters, &[3, 4]));
        c.expect(30 * SEC, "all are in", |c| (0..5).all(|slot| c.is_primary(slot)));
        assert!(c.outweigh(&voters, &[3, 4]) && c.may_do_without(&[3, 4]));
        c.conclude();
    }

    /// Data that a server is about to replace by a copy are valid until the copy begins, and of no use to anybody.
    #[test]
    fn data_that_the_log_beside_them_does_not_go_on_from_are_not_counted_on() {
        let mut o = Options::calm(1, 3);
        (o.checkpoint_every, o.retain, o.db_flush) = (5, 0, crate::options::DbFlush::Each);
        let mut c = Cluster::formed(o);
        let s = c.the_sequencer();
        let away = (s + 1) % 3;
        assert!(c.has_data_to_go_on_with(away));
        c.crash(away, false);
        assert!(c.has_data_to_go_on_with(away));
        for _ in 0..60 {
            c.write_committed(s);
        }
        let waits = |s: &Slot| {
            let feed = s.process.as_ref().map(|p| p.replicator.feed());
            s.db.valid && matches!(feed, Some(trireme_replicator::Feed::Copying(_)))
        };
        c.join(away);
        c.expect(60 * SEC, "it waits for a copy", |c| waits(&c.slots[away]));
        assert!(!c.has_data_to_go_on_with(away));
        c.conclude();
    }
}
