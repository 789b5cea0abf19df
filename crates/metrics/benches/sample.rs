//! The cost of a sample: `cargo bench -p trireme-metrics`. On as many processors as there are, a sample has to cost 10 ns at most.

use std::hint::black_box;
use std::time::{Duration, Instant};

use trireme_metrics::{Histogram, Moments};

/// Of each thread, in each measurement.
const SAMPLES: u64 = 20_000_000;
/// The least of them is told: what is more is the machine's other work.
const ROUNDS: usize = 5;

/// Nanoseconds of one of `threads` threads for one of its samples.
fn cost(threads: usize, samples: u64, record: impl Fn(Duration) + Sync) -> f64 {
    let round = |_| {
        let started = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads as u64 {
                let record = &record;
                scope.spawn(move || {
                    // Over all buckets, as times are that the processor cannot foresee.
                    let mut random = thread + 1;
                    for _ in 0..samples {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        record(black_box(Duration::from_nanos((random >> 32) >> (random & 15))));
                    }
                });
            }
        });
        started.elapsed().as_secs_f64() * 1e9 / samples as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

fn main() {
    // `cargo test --benches` shows that it runs, and no more.
    let samples = if std::env::args().any(|word| word == "--bench") { SAMPLES } else { 1000 };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    for threads in [1, processors, 4 * processors] {
        let nothing = cost(threads, samples, |time| {
            black_box(time);
        });
        let (histogram, moments) = (Histogram::default(), Moments::default());
        let in_histogram = cost(threads, samples, |time| histogram.record(time)) - nothing;
        let in_moments = cost(threads, samples, |time| moments.record(time)) - nothing;
        let clock = cost(threads, samples, |_| {
            black_box(Instant::now());
        }) - nothing;
        assert_eq!(histogram.snapshot().count(), (ROUNDS * threads) as u64 * samples);
        // Threads beyond the processors take turns: each waits for the others as long as it works itself.
        let turns = threads.div_ceil(processors) as f64;
        println!(
            "{threads} threads on {processors} processors, ns: histogram {:.1}, moments {:.1}, and a look at the clock {:.1}",
            in_histogram / turns,
            in_moments / turns,
            clock / turns
        );
    }
}
