//! Histograms of times, from 10 µs to 10 s.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the buckets in nanoseconds, each included: 1, 2.5 and 5 of every power of ten. A longer time goes into
/// one bucket more.
pub const BOUNDS_NS: [u64; 19] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];
pub const BUCKETS: usize = BOUNDS_NS.len() + 1;

/// By the number of bits of a time: the first bucket that it may belong to. The search from there takes two steps at most.
const FIRST: [u8; 65] = {
    let mut out = [0; 65];
    let mut bits = 1;
    while bits < 65 {
        let least = 1u64 << (bits - 1);
        let mut bucket = 0;
        while bucket < BOUNDS_NS.len() && BOUNDS_NS[bucket] < least {
            bucket += 1;
        }
        out[bits] = bucket as u8;
        bits += 1;
    }
    out
};

fn bucket(ns: u64) -> usize {
    let mut bucket = usize::from(FIRST[64 - ns.leading_zeros() as usize]);
    while bucket < BOUNDS_NS.len() && BOUNDS_NS[bucket] < ns {
        bucket += 1;
    }
    bucket
}

/// Threads are spread over so many copies, so that two that record at the same time seldom meet in a cache line.
const STRIPES: usize = 8;

/// Two cache lines apart: processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Stripe {
    counts: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// Any thread may record at any time.
#[derive(Default)]
pub struct Histogram {
    stripes: [Stripe; STRIPES],
}
/// Counts and sums, and no lock.
const _: () = assert!(size_of::<Stripe>() == (8 * (BUCKETS + 1)).next_multiple_of(128));
const _: () = assert!(size_of::<Histogram>() == STRIPES * size_of::<Stripe>());

impl Histogram {
    /// Two additions in memory. A thread is told by where its stack lies, which costs nothing to find out.
    pub fn record(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let here = std::ptr::from_ref(&ns).addr();
        // Stacks are some hundred KiB apart.
        let stripe = &self.stripes[(here >> 17).wrapping_mul(0x9e37_79b9) >> 13 & (STRIPES - 1)];
        stripe.counts[bucket(ns)].fetch_add(1, Relaxed);
        stripe.sum_ns.fetch_add(ns, Relaxed);
    }

    /// The counts so far. A time that is recorded meanwhile may be in the counts and not yet in the sum.
    pub fn snapshot(&self) -> Snapshot {
        let mut out = Snapshot::default();
        for stripe in &self.stripes {
            for (sum, count) in out.counts.iter_mut().zip(&stripe.counts) {
                *sum += count.load(Relaxed);
            }
            out.sum_ns = out.sum_ns.wrapping_add(stripe.sum_ns.load(Relaxed));
        }
        out
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    pub counts: [u64; BUCKETS],
    pub sum_ns: u64,
}

impl Snapshot {
    /// For what one thread alone records.
    pub fn record(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(ns)] += 1;
        self.sum_ns = self.sum_ns.wrapping_add(ns);
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The times since an earlier one of the same histogram.
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        let mut out = self.clone();
        for (now, then) in out.counts.iter_mut().zip(&earlier.counts) {
            *now = now.saturating_sub(*then);
        }
        out.sum_ns = out.sum_ns.saturating_sub(earlier.sum_ns);
        out
    }

    /// Upper bound of the bucket in which this part of all lies: 0.5, 0.99. `None`: nothing was recorded; more than the largest bound is
    /// told as that.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let all = self.count();
        if all == 0 {
            return None;
        }
        let rank = ((all as f64 * part).ceil() as u64).clamp(1, all);
        let mut below = 0;
        let found = self.counts.iter().position(|count| {
            below += count;
            below >= rank
        })?;
        Some(Duration::from_nanos(BOUNDS_NS[found.min(BOUNDS_NS.len() - 1)]))
    }
}

/// The figures of `wsrep_evs_repl_latency`, from the times in a histogram since the last reset. A sample costs two looks in
/// memory: how many, and their sum, are the histogram's.
pub struct Moments {
    min_ns: AtomicU64,
    max_ns: AtomicU64,
    /// The histogram at the last reset.
    before: Mutex<Snapshot>,
}

impl Default for Moments {
    fn default() -> Moments {
        Moments { min_ns: AtomicU64::new(u64::MAX), max_ns: AtomicU64::new(0), before: Mutex::default() }
    }
}

impl Moments {
    /// Beside [`Histogram::record`] of the same time.
    pub fn record(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // Seldom: the extremes are found early.
        if ns < self.min_ns.load(Relaxed) {
            self.min_ns.fetch_min(ns, Relaxed);
        }
        if ns > self.max_ns.load(Relaxed) {
            self.max_ns.fetch_max(ns, Relaxed);
        }
    }

    pub fn reset(&self, histogram: &Histogram) {
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = histogram.snapshot();
        self.max_ns.store(0, Relaxed);
        self.min_ns.store(u64::MAX, Relaxed);
    }

    /// Least, mean, greatest, standard deviation in seconds, and how many; zeros when nothing was recorded. The deviation is as exact as the buckets are:
    /// each time counts as the middle of its bucket.
    pub fn take(&self, histogram: &Histogram) -> (f64, f64, f64, f64, u64) {
        let seen = histogram.snapshot().since(&self.before.lock().unwrap_or_else(PoisonError::into_inner));
        let (min, max) = (self.min_ns.load(Relaxed), self.max_ns.load(Relaxed));
        let count = seen.count();
        // The counts may be ahead of the extremes.
        if count == 0 || min > max {
            return (0.0, 0.0, 0.0, 0.0, 0);
        }
        let mean = seen.sum_ns as f64 / count as f64;
        let mut squares = 0.0;
        let mut lower = 0;
        for (bucket, n) in seen.counts.iter().enumerate() {
            let upper = BOUNDS_NS.get(bucket).copied().unwrap_or(max);
            let middle = (lower.clamp(min, max) as f64 + upper.clamp(min, max) as f64) / 2.0;
            squares += *n as f64 * (middle - mean).powi(2);
            lower = upper;
        }
        (min as f64 / 1e9, mean / 1e9, max as f64 / 1e9, (squares / count as f64).sqrt() / 1e9, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The dumb way.
    fn linear(ns: u64) -> usize {
        BOUNDS_NS.iter().position(|bound| ns <= *bound).unwrap_or(BOUNDS_NS.len())
    }

    #[test]
    fn every_time_is_in_the_bucket_of_a_linear_search() {
        let mut times: Vec<u64> = BOUNDS_NS.iter().flat_map(|b| [b - 1, *b, b + 1]).collect();
        times.extend((0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]));
        times.extend([0, u64::MAX]);
        for ns in times {
            assert_eq!(bucket(ns), linear(ns), "{ns}");
        }
    }

    #[test]
    fn threads_lose_nothing() {
        let histogram = Histogram::default();
        std::thread::scope(|scope| {
            for n in 0..8 {
                let histogram = &histogram;
                scope.spawn(move || (0..1000).for_each(|i| histogram.record(Duration::from_micros(n * 100 + i))));
            }
        });
        let seen = histogram.snapshot();
        assert_eq!(seen.count(), 8000);
        let sum: u64 = (0..8).flat_map(|n| (0..1000).map(move |i| (n * 100 + i) * 1000)).sum();
        assert_eq!(seen.sum_ns, sum);
    }

    #[test]
    fn quantiles_and_differences() {
        let histogram = Histogram::default();
        assert_eq!(histogram.snapshot().quantile(0.5), None);
        for _ in 0..99 {
            histogram.record(Duration::from_micros(70));
        }
        let before = histogram.snapshot();
        histogram.record(Duration::from_secs(20));
        let all = histogram.snapshot();
        assert_eq!(all.quantile(0.5), Some(Duration::from_micros(100)));
        assert_eq!(all.quantile(0.99), Some(Duration::from_micros(100)));
        assert_eq!(all.quantile(1.0), Some(Duration::from_secs(10)));
        assert_eq!(all.since(&before).count(), 1);
        let mut alone = before.clone();
        alone.record(Duration::from_secs(20));
        assert_eq!(alone, all);
    }

    #[test]
    fn moments() {
        let (histogram, moments) = (Histogram::default(), Moments::default());
        assert_eq!(moments.take(&histogram), (0.0, 0.0, 0.0, 0.0, 0));
        let record = |us| {
            histogram.record(Duration::from_micros(us));
            moments.record(Duration::from_micros(us));
        };
        (0..50).for_each(|_| record(1000));
        (0..50).for_each(|_| record(3000));
        let (min, mean, max, deviation, count) = moments.take(&histogram);
        assert_eq!((min, max, count), (0.001, 0.003, 100));
        assert!((mean - 0.002).abs() < 1e-9, "{mean}");
        assert!((deviation - 0.001).abs() < 0.0004, "{deviation}");
        moments.reset(&histogram);
        assert_eq!(moments.take(&histogram).4, 0);
        record(20_000_000);
        let (min, mean, max, deviation, count) = moments.take(&histogram);
        assert_eq!((min, mean, max, deviation, count), (20.0, 20.0, 20.0, 0.0, 1), "beyond the buckets too");
    }
}
