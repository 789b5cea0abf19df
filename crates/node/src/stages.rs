//! Where the time goes: of a commit by stage, and of what is slow for the flight recorder.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use trireme_types::Seqno;

/// Where a commit spends its time before it enters the commit order.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stages {
    pub send: Duration,
    pub hold: Duration,
    pub order: Duration,
    pub wait: Duration,
}

/// A commit, by stage.
#[derive(Clone, Copy, Debug)]
pub struct SlowCommit {
    pub seqno: Seqno,
    pub total: Duration,
    pub stages: Stages,
    pub engine: Duration,
}

/// The slowest commit. For any thread: a comparison, and no more for all but the slowest. That one tries a lock, once, and goes on without it
/// where another thread has it: nobody waits here.
#[derive(Default)]
pub struct Slowest {
    total_ns: AtomicU64,
    commit: Mutex<Option<SlowCommit>>,
}

impl Slowest {
    pub fn record(&self, commit: SlowCommit) {
        let ns = nanos(commit.total);
        if ns <= self.total_ns.load(Relaxed) {
            return;
        }
        // Nobody waits: where two meet, one of them is as good as the other.
        if let Ok(mut slowest) = self.commit.try_lock()
            && ns > self.total_ns.load(Relaxed)
        {
            self.total_ns.store(ns, Relaxed);
            *slowest = Some(commit);
        }
    }

    /// Takes it if it is `wanted`.
    pub fn take_if(&self, wanted: impl Fn(Duration) -> bool) -> Option<SlowCommit> {
        let mut slowest = self.commit.try_lock().ok()?;
        let taken = slowest.take_if(|commit| wanted(commit.total));
        if taken.is_some() {
            self.total_ns.store(0, Relaxed);
        }
        taken
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The longest of some times.
#[derive(Default)]
pub struct Worst(AtomicU64);

impl Worst {
    pub fn record(&self, time: Duration) {
        let ns = nanos(time);
        if ns > self.0.load(Relaxed) {
            self.0.fetch_max(ns, Relaxed);
        }
    }

    pub fn take(&self) -> Duration {
        Duration::from_nanos(self.0.swap(0, Relaxed))
    }
}

/// Seconds that [`Recent`] looks back.
const RECENT: u32 = 10;
/// More than that: one that is written now is never read as one of long ago.
const SLOTS: usize = 16;
const _: () = assert!(SLOTS > RECENT as usize);

/// The longest of the times of the last ten seconds.
pub struct Recent {
    start: Instant,
    /// By the second after `start`: it stands in the upper half, the longest of its times, in steps of 10 µs, in the lower. So the greater value
    /// is the one to keep, whether it is of a later second or longer.
    slots: [AtomicU64; SLOTS],
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { start: Instant::now(), slots: Default::default() }
    }
}

impl Recent {
    fn second(&self, now: Instant) -> u32 {
        u32::try_from(now.saturating_duration_since(self.start).as_secs()).unwrap_or(u32::MAX)
    }

    pub fn record(&self, now: Instant, time: Duration) {
        let second = self.second(now);
        let steps = u32::try_from(time.as_micros() / 10).unwrap_or(u32::MAX);
        self.slots[second as usize % SLOTS].fetch_max(u64::from(second) << 32 | u64::from(steps), Relaxed);
    }

    pub fn longest(&self, now: Instant) -> Duration {
        let now = self.second(now);
        let slots = self.slots.iter().map(|slot| slot.load(Relaxed));
        let recent =
            slots.filter(|slot| ((slot >> 32) as u32).saturating_add(RECENT) > now).map(|slot| u64::from(slot as u32));
        Duration::from_micros(recent.max().unwrap_or(0) * 10)
    }
}

/// When something began that has not ended.
pub struct Since {
    start: Instant,
    /// Nanoseconds after `start`; zero: nothing is under way.
    ns: AtomicU64,
}

impl Default for Since {
    fn default() -> Since {
        Since { start: Instant::now(), ns: AtomicU64::new(0) }
    }
}

impl Since {
    pub fn begin(&self, now: Instant) {
        self.ns.store(nanos(now.saturating_duration_since(self.start)).max(1), Relaxed);
    }

    pub fn end(&self) {
        self.ns.store(0, Relaxed);
    }

    pub fn get(&self) -> Option<Instant> {
        Some(self.ns.load(Relaxed)).filter(|ns| *ns > 0).map(|ns| self.start + Duration::from_nanos(ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_commit_is_kept_until_it_is_taken() {
        let slowest = Slowest::default();
        let commit = |seqno, ms| SlowCommit {
            seqno: Seqno(seqno),
            total: Duration::from_millis(ms),
            stages: Stages::default(),
            engine: Duration::ZERO,
        };
        assert!(slowest.take_if(|_| true).is_none());
        for (seqno, ms) in [(1, 5), (2, 80), (3, 20)] {
            slowest.record(commit(seqno, ms));
        }
        assert!(slowest.take_if(|total| total > Duration::from_millis(100)).is_none());
        assert_eq!(slowest.take_if(|_| true).map(|commit| commit.seqno), Some(Seqno(2)));
        slowest.record(commit(4, 1));
        assert_eq!(slowest.take_if(|_| true).map(|commit| commit.seqno), Some(Seqno(4)));
    }

    #[test]
    fn the_longest_of_the_last_ten_seconds() {
        let recent = Recent::default();
        let at = |seconds| recent.start + Duration::from_secs(seconds);
        assert_eq!(recent.longest(at(0)), Duration::ZERO);
        for (second, ms) in [(0, 70), (5, 300), (5, 200), (8, 40)] {
            recent.record(at(second), Duration::from_millis(ms));
        }
        for (second, ms) in [(8, 300), (14, 300), (15, 40), (17, 40), (18, 0), (4000, 0)] {
            assert_eq!(recent.longest(at(second)), Duration::from_millis(ms), "after {second} s");
        }
        // The slot of a second long ago is taken by a later one, though that brought shorter times.
        recent.record(at(21), Duration::from_millis(1));
        assert_eq!(recent.longest(at(21)), Duration::from_millis(1));
    }

    #[test]
    fn what_is_under_way_and_what_was_worst() {
        let since = Since::default();
        assert_eq!(since.get(), None);
        let now = Instant::now();
        since.begin(now);
        assert_eq!(since.get(), Some(now));
        since.end();
        assert_eq!(since.get(), None);
        let worst = Worst::default();
        worst.record(Duration::from_millis(3));
        worst.record(Duration::from_millis(2));
        assert_eq!((worst.take(), worst.take()), (Duration::from_millis(3), Duration::ZERO));
    }
}
