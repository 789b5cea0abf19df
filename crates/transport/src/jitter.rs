//! Pauses between attempts, spread so that members that lost each other together do not dial in step.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(50);
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// xorshift64*: spread, not secrecy.
pub(crate) struct Jitter(u64);

impl Jitter {
    pub fn new() -> Jitter {
        // The standard library's only public source of process-unique randomness.
        Jitter(RandomState::new().build_hasher().finish() | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// The pause after so many failures in a row: doubles from `BACKOFF_MIN` to `max`, times 0.75 to 1.25.
    pub fn backoff(&mut self, failures: u32, max: Duration) -> Duration {
        let pause = BACKOFF_MIN.saturating_mul(1 << failures.min(16)).min(max);
        pause.mul_f64(0.75 + (self.next() >> 11) as f64 / (1u64 << 53) as f64 / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_to_its_limit() {
        let mut jitter = Jitter::new();
        for failures in 0..100 {
            let pause = jitter.backoff(failures, BACKOFF_MAX);
            let expected = BACKOFF_MIN.saturating_mul(1 << failures.min(16)).min(BACKOFF_MAX);
            assert!(pause >= expected.mul_f64(0.74) && pause <= expected.mul_f64(1.26), "{failures}: {pause:?}");
        }
    }
}
