//! Flow control as the group thread carries it out.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use trireme_flight as flight;
use trireme_surface::texts;

use super::Core;
use crate::Level;
use trireme_replicator::flow::{Act, Limits};
use trireme_replicator::roster::NodeState;

/// Between two complaints of the same kind.
const TELL_AGAIN: Duration = Duration::from_secs(60);

impl Core {
    /// Looks at the backlog, does what flow control asks for, and sends what it lets pass.
    pub(super) fn regulate(&mut self) {
        let now = self.now();
        let backlog = self.shared.queue.len() as u64;
        if backlog == 0 && self.conn.held_back.is_empty() && self.inc.flow.at_rest() {
            return self.inc.flow.rest(now);
        }
        self.inc.flow.observe(now, backlog, self.shared.monitor.left());
        let mark = self.inc.flow.watch(now).map(|mark| mark as usize);
        if mark.is_some() || self.inc.watching {
            self.inc.watching = mark.is_some();
            if !self.shared.queue.watch(mark) {
                // It sank between the two looks.
                self.inc.flow.observe(now, self.shared.queue.len() as u64, self.shared.monitor.left());
            }
        }
        let mut acted = false;
        while let Some(act) = self.inc.flow.poll() {
            acted = true;
            self.on_flow(act);
        }
        if self.conn.held_back.is_empty() && !acted {
            return;
        }
        self.release_held_back();
        self.drain();
    }

    pub(super) fn on_flow(&mut self, act: Act) {
        match act {
            Act::Signal(body) => self.inc.group.signal(body),
            Act::Requested(stop) => {
                self.shared.host.flight.note_often(None, || flight::Event::AsksToStop { stop });
                self.shared.status.change_flow(|f| f.request(stop));
            }
            Act::Received => self.shared.status.change_flow(|f| f.received += 1),
            Act::Paused(paused) => self.shared.status.change_flow(|f| f.pause(Instant::now(), paused)),
            Act::HeldUpBy { node, rate } => {
                let label = self.inc.replicator.roster().label(node);
                self.shared.host.log(
                    Level::Info,
                    format!(
                        "flow control: {label} has more to apply than it can; the group may write {rate:.0} per second"
                    ),
                );
            }
            Act::GaveUp { patience } => {
                self.shared.host.flight.note_often(None, || flight::Event::GaveUp { patience });
                // A node that applies large transactions may give up again and again.
                if self.conn.gave_up_told.is_none_or(|at| at.elapsed() >= TELL_AGAIN) {
                    self.conn.gave_up_told = Some(Instant::now());
                    self.shared.host.log(
                        Level::Info,
                        format!(
                            "flow control: nothing was applied here for {patience:?} (a lock, a huge transaction, a full \
                             disk?): this node no longer slows the others, and lags until it gets on"
                        ),
                    );
                }
            }
        }
    }

    pub(super) fn release_held_back(&mut self) {
        loop {
            let now = self.now();
            let Some(held) = self.conn.held_back.next(|| self.inc.flow.admit(now)) else { break };
            self.propose(held.body, held.patient, held.slot);
        }
        self.shared.status.counters.held_back.store(self.conn.held_back.len() as u64, Relaxed);
    }

    /// A held-back write set that an applier has aborted lets go of its locks: the applier may be what everybody waits for.
    pub(super) fn recall(&mut self) {
        self.conn.held_back.recall();
        self.shared.status.counters.held_back.store(self.conn.held_back.len() as u64, Relaxed);
    }

    pub(super) fn drop_held_back(&mut self) {
        self.conn.held_back.refuse_all();
        self.shared.status.counters.held_back.store(0, Relaxed);
    }

    /// The options or the number of members may have changed.
    pub(super) fn set_flow_options(&mut self) {
        let options = self.shared.host.settings.flow();
        self.inc.flow.set_patience(options.patience);
        let member = self.inc.replicator.is_member();
        let state = if member { self.inc.replicator.roster().state(self.inc.me.node) } else { None };
        self.inc.donors_count = options.donors_count;
        self.set_flow_counts(state);
        let members = self.inc.replicator.roster().view().members.len();
        let limits = Limits::new(options.limit, options.factor, members, options.single_primary);
        if members > 0 {
            self.inc.flow.set_limits(limits);
            self.shared.host.log(Level::Info, texts::flow_control_interval(limits.lower, limits.upper));
        }
    }

    pub(super) fn set_flow_counts(&mut self, state: Option<NodeState>) {
        let counts = match state {
            Some(_) if self.arbitrates() => false,
            Some(NodeState::Synced | NodeState::Joined) => self.inc.replicator.is_live(),
            Some(NodeState::Donor) => self.inc.replicator.is_live() && self.inc.donors_count,
            Some(NodeState::Primary | NodeState::Joiner) | None => false,
        };
        self.inc.flow.set_counts(counts, self.shared.queue.len() as u64);
    }
}
