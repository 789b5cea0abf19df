//! A wait that does not sleep at once, for answers that mostly come within microseconds.
//!
//! To sleep and to be woken costs two changes of the running thread. Where a processor has gone idle meanwhile it also costs an interrupt: some
//! 30 µs on virtual machines, more than all other work for a commit. A thread that lingers gives its processor to everybody who wants it, and
//! looks again when it has it back.
//!
//! Lingering is in vain where the answer takes longer anyway (a disk, a far network). It is worse than sleep where others compute for long: the
//! scheduler lets them have their whole slice, some milliseconds, and a sleeper that is woken would come before them. Both are noticed, and
//! then nobody lingers for a while.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// A wait lingers for so long at most. Twice what a commit takes between processes on one machine.
const LIMIT: Duration = Duration::from_micros(150);
/// The processor was away for so long: somebody computes on it.
const HELD_UP: Duration = Duration::from_millis(1);
/// So many more waits may be in vain than are worth it.
const IN_VAIN: u32 = 16;
/// The first rest. Each one doubles the next, and each wait that was worth it takes a part of that back.
const REST: u64 = 10_000_000;
const REST_MAX: u64 = 500_000_000;
const TAKEN_BACK: u64 = 32;

/// Threads that wait for the same kind of thing. All of them change it, without a lock: it holds hints.
pub struct Linger {
    created: Instant,
    /// Nobody lingers before, in nanoseconds from `created`.
    rests_until: AtomicU64,
    /// How long the next rest is, in nanoseconds.
    rest: AtomicU64,
    /// Waits in vain, less those that were worth it.
    in_vain: AtomicU32,
}

impl Default for Linger {
    fn default() -> Self {
        let rest = AtomicU64::new(REST);
        Linger { created: Instant::now(), rests_until: AtomicU64::new(0), rest, in_vain: AtomicU32::new(0) }
    }
}

impl Linger {
    /// Waits until `is_there`, for a while or not at all: the caller looks, and sleeps if it has to.
    pub fn until(&self, is_there: impl Fn() -> bool) {
        if is_there() {
            return;
        }
        let begun = Instant::now();
        if self.age(begun) < self.rests_until.load(Relaxed) {
            return;
        }
        let mut looked = begun;
        loop {
            thread::yield_now();
            let there = is_there();
            let now = Instant::now();
            if now - looked > HELD_UP {
                return self.rest(now);
            } else if there {
                return self.note_worth();
            } else if now - begun > LIMIT {
                return self.note_in_vain(now);
            }
            looked = now;
        }
    }

    fn age(&self, now: Instant) -> u64 {
        (now - self.created).as_nanos() as u64
    }

    fn note_worth(&self) {
        let in_vain = self.in_vain.load(Relaxed);
        self.in_vain.store(in_vain.saturating_sub(1), Relaxed);
        let rest = self.rest.load(Relaxed);
        if rest > REST {
            self.rest.store((rest - rest / TAKEN_BACK).max(REST), Relaxed);
        }
    }

    fn note_in_vain(&self, now: Instant) {
        if self.in_vain.fetch_add(1, Relaxed) >= IN_VAIN {
            self.rest(now);
        }
    }

    fn rest(&self, now: Instant) {
        let rest = self.rest.load(Relaxed);
        self.rests_until.store(self.age(now) + rest, Relaxed);
        self.rest.store((2 * rest).min(REST_MAX), Relaxed);
        self.in_vain.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// How often somebody looks who waits for what never comes.
    fn looks(linger: &Linger) -> u32 {
        let looks = Cell::new(0);
        linger.until(|| {
            looks.set(looks.get() + 1);
            false
        });
        looks.get()
    }

    #[test]
    fn waits_in_vain_end_the_lingering_for_a_while() {
        let linger = Linger::default();
        // A machine that holds up this thread makes it rest sooner.
        let lingered = (0..=IN_VAIN + 1).take_while(|_| looks(&linger) > 1).count();
        assert!(lingered as u32 <= IN_VAIN + 1, "{lingered}");
        assert_eq!(looks(&linger), 1, "it rests");
        assert!(linger.rest.load(Relaxed) >= 2 * REST, "and longer the next time");
    }

    #[test]
    fn waits_that_are_worth_it_make_the_next_rest_shorter() {
        let linger = Linger::default();
        linger.rest.store(REST_MAX, Relaxed);
        for _ in 0..1000 {
            linger.note_worth();
        }
        assert_eq!(linger.rest.load(Relaxed), REST);
    }

    #[test]
    fn what_is_there_is_seen_at_once() {
        let linger = Linger::default();
        linger.until(|| true);
        assert_eq!(linger.rests_until.load(Relaxed), 0);
    }
}
