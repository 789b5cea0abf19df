//! Chance from a seed: SplitMix64. The same seed makes the same choices, though on real servers not the same run.

use std::time::Duration;
use trireme_types::SplitMix;

#[derive(Debug)]
pub struct Dice {
    /// The seed that they began with.
    pub seed: u64,
    random: SplitMix,
}

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice { seed, random: SplitMix(seed) }
    }

    /// Other dice, for a thread of its own.
    pub fn split(&mut self) -> Dice {
        Dice::new(self.random.next())
    }

    /// From 0 to `limit` − 1; `limit` is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.random.below(limit)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// From a tenth of `mean` to nearly twice as long.
    pub fn around(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(0.1 + self.below(180) as f64 / 100.0)
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}
