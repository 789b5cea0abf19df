//! Pauses of the commit order, as by `FLUSH TABLES WITH READ LOCK` or a backup: nothing begins any more on one server, and what has begun
//! ends (`Monitor::pause` of the node). Write sets go on being ordered and gather, and certified ones of own clients wait with their locks.
//!
//! In half of the pauses the node desyncs before, as a backup does: then it slows nobody.

use trireme_replicator::message::AppMessage;

use crate::cluster::{Cluster, Event, Process};
use crate::faults::Undo;
use crate::options::{MS, Options};
use crate::rng::Rng;
use crate::situations::Situation;

/// Of a server whose order is paused, or that has still to tell the group of its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Desync {
    /// It has said that it desyncs, and the pause lasts.
    Said,
    /// The pause is over: it says so as soon as the group has heard of its beginning.
    Owed,
}

impl Cluster {
    pub(crate) fn plan_pause(&mut self) {
        if self.options.pause_every > 0 {
            let delay = self.pauses.exp(self.options.pause_every);
            self.after(delay, Event::PauseOrder);
        }
    }

    /// The commit order of some server is paused for a while.
    pub(crate) fn pause_order(&mut self) {
        if self.calm {
            return;
        }
        self.plan_pause();
        let slot = self.pauses.below(self.slots.len() as u64) as usize;
        let desyncs = self.pauses.chance(0.5);
        let lasts = (MS + self.pauses.exp(self.options.pause_mean)).min(self.options.fault_max);
        if let Some(server) = self.hold_order(slot, desyncs) {
            self.after(lasts, Event::Undo(Undo::Pause { slot, server }));
        }
    }

    /// The commit order of the server in this place is paused. `None`: not now.
    pub(crate) fn hold_order(&mut self, slot: usize, desyncs: bool) -> Option<u32> {
        let s = &mut self.slots[slot];
        let me = s.node;
        // The end of the one before is ordered: a server waits for that.
        let idle = |p: &Process| p.desync.is_none() && p.replicator.roster().desyncs(me) == 0;
        let p = s.process.as_mut().filter(|p| p.serves() && idle(p))?;
        if !s.db.pause() {
            return None;
        }
        if desyncs {
            p.desync = Some(Desync::Said);
            p.owed.say(AppMessage::Desync);
        }
        let server = p.server;
        self.arose(Situation::OrderPaused);
        self.log(|| format!("n{slot} pauses its commit order{}", if desyncs { ", and desyncs" } else { "" }));
        Some(server)
    }

    pub(crate) fn resume_order(&mut self, slot: usize) {
        let s = &mut self.slots[slot];
        if !s.db.resume() {
            return;
        }
        let Some(p) = &mut s.process else { return };
        p.desync = p.desync.map(|_| Desync::Owed);
        let boot = p.boot;
        self.log(|| format!("n{slot} goes on with its commit order"));
        self.start_apply(slot, boot);
    }
}

impl Process {
    /// The end of a desync is said once its beginning is ordered. The count of its desyncs does not tell: a donor has one more.
    pub(crate) fn resync(&mut self) {
        if self.desync == Some(Desync::Owed) && !self.owed.holds(&AppMessage::Desync) {
            self.desync = None;
            self.owed.say(AppMessage::Resync);
        }
    }
}

impl Options {
    /// From a stream of its own.
    pub(crate) fn draw_pauses(&mut self) {
        let mut r = Rng::new(self.seed ^ 0x0070_6175_u64.rotate_left(24));
        if r.chance(if self.flow_limit > 0 { 0.6 } else { 0.15 }) {
            self.pause_mean = r.range(50, 2_000) * MS;
            self.pause_every = r.range(300, 3_000) * MS;
        }
    }
}
