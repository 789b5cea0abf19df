//! What a node measures.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use trireme_metrics::{Histogram, Moments};

use crate::command::Outcome;
use crate::slot::Slot;
use crate::stages::{Recent, Since, Slowest, Stages, Worst};

/// Any thread may record; nothing here waits for a lock.
#[derive(Default)]
pub struct Metrics {
    /// `repl.metrics`.
    on: bool,
    pub send: Histogram,
    pub hold: Histogram,
    pub order: Histogram,
    pub turn: Histogram,
    pub engine: Histogram,
    pub total: Histogram,
    pub log_sync: Histogram,
    pub apply: Histogram,
    pub causal_read: Histogram,
    pub apply_lag: Histogram,
    pub delay: Histogram,
    /// Of `order`, from sending to knowing the place: `wsrep_evs_repl_latency`.
    pub latency: Moments,
    /// Length of the queue behind flow control at each write set, see [`SendQueue`].
    pub send_queue: SendQueue,
    /// See [`Metrics::longest_sync`].
    recent_syncs: Recent,
    // For the flight recorder, since it last looked:
    pub slowest: Slowest,
    pub slowest_sync: Worst,
    /// The sync that is under way.
    pub sync_since: Since,
}

impl Metrics {
    pub fn new(on: bool) -> Metrics {
        Metrics { on, ..Metrics::default() }
    }

    pub fn is_on(&self) -> bool {
        self.on
    }

    /// The time, for what is measured with it. `None`: nothing is measured.
    pub fn clock(&self) -> Option<Instant> {
        self.on.then(Instant::now)
    }

    /// The sync of the log that has been under way since `begun` has ended.
    pub fn note_sync(&self, begun: Instant) {
        let now = Instant::now();
        let took = now.saturating_duration_since(begun);
        self.sync_since.end();
        self.log_sync.record(took);
        self.slowest_sync.record(took);
        self.recent_syncs.record(now, took);
    }

    /// The longest sync of the log that ended in the last ten seconds, or is under way.
    pub fn longest_sync(&self, now: Instant) -> Duration {
        let under_way = self.sync_since.get().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.recent_syncs.longest(now).max(under_way)
    }

    /// A local write set was ordered. `slot`: what its thread waited at since `begun`.
    /// Where it has spent its time so far.
    pub fn ordered(&self, begun: Option<Instant>, slot: &Slot<Outcome>) -> Stages {
        let (taken, sent) = slot.stamps();
        let (Some(begun), Some(taken), Some(sent)) = (begun, taken, sent) else { return Stages::default() };
        let held = sent.saturating_duration_since(taken);
        let order = sent.elapsed();
        let send = sent.saturating_duration_since(begun).saturating_sub(held);
        self.send.record(send);
        self.order.record(order);
        self.latency.record(order);
        // What was let through at once was not held.
        if held > Duration::from_micros(10) {
            self.hold.record(held);
        }
        Stages { send, hold: held, order, wait: Duration::ZERO }
    }
}

/// For `wsrep_local_send_queue_*`. Only the group thread adds to it.
#[derive(Default)]
pub struct SendQueue {
    samples: AtomicU64,
    sum: AtomicU64,
    max: AtomicU64,
}

impl SendQueue {
    pub fn sample(&self, len: usize) {
        self.samples.fetch_add(1, Relaxed);
        self.sum.fetch_add(len as u64, Relaxed);
        self.max.fetch_max(len as u64, Relaxed);
    }

    pub fn reset(&self) {
        for cell in [&self.samples, &self.sum, &self.max] {
            cell.store(0, Relaxed);
        }
    }

    /// Greatest and mean length since the last reset.
    pub fn take(&self) -> (u64, f64) {
        let samples = self.samples.load(Relaxed);
        let mean = if samples == 0 { 0.0 } else { self.sum.load(Relaxed) as f64 / samples as f64 };
        (self.max.load(Relaxed), mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_of_senders() {
        let queue = SendQueue::default();
        assert_eq!(queue.take(), (0, 0.0));
        for len in [0, 4, 2] {
            queue.sample(len);
        }
        assert_eq!(queue.take(), (4, 2.0));
        queue.reset();
        assert_eq!(queue.take(), (0, 0.0));
    }
}
