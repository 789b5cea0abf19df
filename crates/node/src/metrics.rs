//! The measurements of a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use trireme_metrics::{Histogram, Moments};
use trireme_wslog::WriteWatch;

use crate::command::Outcome;
use crate::slot::Slot;
use crate::stages::{Recent, Since, Slowest, Stages, Worst};

/// A write that no disk held up takes less.
const WRITE_TOLD: Duration = Duration::from_millis(1);

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
    /// See [`Metrics::slowest_of_disk`].
    recent: Recent,
    // For the flight recorder, since it last looked:
    pub slowest: Slowest,
    /// Of syncs and writes of the log.
    pub disk: Worst,
    /// The sync that is under way.
    pub sync_since: Since,
    /// The write of the group thread that is under way.
    write_since: Since,
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
        self.note_disk(now, took);
    }

    fn note_write(&self, began: Instant) {
        let now = Instant::now();
        let took = now.saturating_duration_since(began);
        self.write_since.end();
        if took >= WRITE_TOLD {
            self.note_disk(now, took);
        }
    }

    fn note_disk(&self, now: Instant, took: Duration) {
        self.disk.record(took);
        self.recent.record(now, took);
    }

    /// Since when the disk has not answered to a sync or a write of the log. `None`: nothing is under way.
    pub fn disk_since(&self) -> Option<Instant> {
        self.sync_since.get().into_iter().chain(self.write_since.get()).min()
    }

    /// The longest sync or write of the log that ended in the last ten seconds, or is under way.
    pub fn slowest_of_disk(&self, now: Instant) -> Duration {
        let under_way = self.disk_since().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.recent.longest(now).max(under_way)
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
        // A write set that was let through at once was not held.
        if held > Duration::from_micros(10) {
            self.hold.record(held);
        }
        Stages { send, hold: held, order, wait: Duration::ZERO }
    }
}

/// The group thread's writes into the log.
pub struct Writes(pub Arc<Metrics>);

impl WriteWatch for Writes {
    fn began(&self, at: Instant) {
        self.0.write_since.begin(at);
    }

    fn ended(&self, began: Instant) {
        self.0.note_write(began);
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
    fn a_disk_is_slow_by_writes_and_by_syncs() {
        let ms = Duration::from_millis;
        let (metrics, start) = (Metrics::new(true), Instant::now());
        let ago = |time| start.checked_sub(time).unwrap();
        // Under way at the same time: the one that has waited for longer counts.
        metrics.sync_since.begin(start);
        metrics.write_since.begin(start + ms(50));
        assert_eq!(metrics.disk_since(), Some(start));
        metrics.sync_since.end();
        assert_eq!(metrics.slowest_of_disk(start + ms(250)), ms(200));
        metrics.note_write(ago(ms(300)));
        assert_eq!(metrics.disk_since(), None);
        assert!(metrics.slowest_of_disk(start) >= ms(300) && metrics.disk.take() >= ms(300));
        metrics.note_sync(ago(ms(400)));
        assert!(metrics.slowest_of_disk(start) >= ms(400) && metrics.disk.take() >= ms(400));
        // As a rule the page cache takes a write at once.
        metrics.note_write(Instant::now());
        assert_eq!(metrics.disk.take(), Duration::ZERO);
    }

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
