//! Pauses of the commit order, as by `FLUSH TABLES WITH READ LOCK` or a backup: nothing begins any more on one server, and what has begun
//! ends (`Monitor::pause` of the node). Write sets go on being ordered and gather, and certified ones of own clients wait with their locks.
//!
//! In half of the pauses the node desyncs before, as a backup does: then it slows nobody. The server's thread waits for the group's answer before
//! it pauses, and for that to its resync afterwards. It goes on whatever it is told. A pause may begin, last and end while the disk with the log is out.

use trireme_replicator::message::AppMessage;

use crate::cluster::{Cluster, Event, Input, Process};
use crate::faults::Undo;
use crate::options::{MS, Options};
use crate::rng::Rng;
use crate::situations::Situation;

/// How far the thread of a server is that pauses its commit order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// It has asked to be desynced, and waits for the answer. `lasts`: the pause after that, if not for ever.
    Desyncs { lasts: Option<u64> },
    /// `desynced`: so it was told.
    Lasts { desynced: bool },
    /// It has asked to be resynced, and waits for the answer.
    Resyncs,
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
        self.begin_pause(slot, desyncs, Some(lasts));
    }

    /// The commit order of the server in this place is paused until somebody ends that. `false`: not now.
    pub fn hold_order(&mut self, slot: usize, desyncs: bool) -> bool {
        self.begin_pause(slot, desyncs, None)
    }

    fn begin_pause(&mut self, slot: usize, desyncs: bool, lasts: Option<u64>) -> bool {
        // One at a time.
        let may = |p: &&mut Process| (p.serves() || p.outage.is_some() && p.comparing.is_none()) && p.pause.is_none();
        let Some(p) = self.slots[slot].process.as_mut().filter(may) else { return false };
        if desyncs {
            p.pause = Some(Pause::Desyncs { lasts });
            self.ask(slot, AppMessage::Desync);
        } else {
            self.stop_order(slot, false, lasts);
        }
        true
    }

    fn stop_order(&mut self, slot: usize, desynced: bool, lasts: Option<u64>) {
        let s = &mut self.slots[slot];
        let Some(p) = &mut s.process else { return };
        p.pause = Some(Pause::Lasts { desynced });
        let server = p.server;
        s.db.pause();
        self.arose(Situation::OrderPaused);
        self.log(|| format!("n{slot} pauses its commit order{}", if desynced { ", and has desynced" } else { "" }));
        if self.calm {
            return self.resume_order(slot);
        }
        if let Some(lasts) = lasts {
            self.after(lasts, Event::Undo(Undo::Pause { slot, server }));
        }
    }

    pub fn resume_order(&mut self, slot: usize) {
        let s = &mut self.slots[slot];
        if !s.db.resume() {
            return;
        }
        let Some(p) = &mut s.process else { return };
        let boot = p.boot;
        let resyncs = p.pause == Some(Pause::Lasts { desynced: true });
        p.pause = resyncs.then_some(Pause::Resyncs);
        self.log(|| format!("n{slot} goes on with its commit order"));
        if resyncs {
            self.ask(slot, AppMessage::Resync);
        }
        self.start_apply(slot, boot);
    }

    /// A thread asks the group for this, and waits for the answer. In an outage of the log's disk nobody hears it.
    fn ask(&mut self, slot: usize, message: AppMessage) {
        let Some(p) = &mut self.slots[slot].process else { return };
        p.desyncs.asked(&message);
        if p.outage.is_some() {
            return self.unheard(slot, &message);
        }
        p.inbox.push_back(Input::Ask(message));
        self.schedule_step(slot);
    }

    /// The thread has the answer to what it asked for.
    pub(crate) fn thread_goes_on(&mut self, slot: usize, message: &AppMessage, granted: bool) {
        let Some(p) = &mut self.slots[slot].process else { return };
        match (p.pause, message) {
            (Some(Pause::Desyncs { lasts }), AppMessage::Desync) => self.stop_order(slot, granted, lasts),
            (Some(Pause::Resyncs), AppMessage::Resync) => p.pause = None,
            (pause, message) => {
                self.fail(format!("n{slot}: an answer to {message:?}, which nobody waits for ({pause:?})"))
            }
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
