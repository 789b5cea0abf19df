//! At most so many log lines, whatever strangers do.
//!
//! Lines about strangers and lines about this node itself have budgets of their own: else a stranger could hush those that
//! matter.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The same line again is worth saying after this.
const REPEAT_AFTER: Duration = Duration::from_secs(60);
/// Different lines within `WINDOW`.
const LINES_PER_WINDOW: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);
/// Lines remembered; beyond it all are forgotten, and the window still bounds them.
const REMEMBERED: usize = 512;
/// How often it is said that lines were left out.
const TELL_EVERY: Duration = Duration::from_secs(60);

struct Budget {
    said: BTreeMap<String, Instant>,
    window: Instant,
    lines: u32,
    left_out: u64,
}

impl Budget {
    fn new(now: Instant) -> Budget {
        Budget { said: BTreeMap::new(), window: now, lines: 0, left_out: 0 }
    }

    fn allow(&mut self, now: Instant, key: &str) -> bool {
        let allowed = self.is_allowed(now, key);
        self.left_out += u64::from(!allowed);
        allowed
    }

    fn is_allowed(&mut self, now: Instant, key: &str) -> bool {
        if self.said.get(key).is_some_and(|&at| now.duration_since(at) < REPEAT_AFTER) {
            return false;
        }
        if now.duration_since(self.window) >= WINDOW {
            self.window = now;
            self.lines = 0;
        }
        if self.lines >= LINES_PER_WINDOW {
            return false;
        }
        self.lines += 1;
        if self.said.len() >= REMEMBERED {
            self.said.clear();
        }
        self.said.insert(key.to_owned(), now);
        true
    }
}

pub(crate) struct Limiter {
    own: Budget,
    strangers: Budget,
    told: Instant,
}

impl Limiter {
    pub fn new(now: Instant) -> Limiter {
        Limiter { own: Budget::new(now), strangers: Budget::new(now), told: now }
    }

    /// May a line about `key`, a matter of this node, be written now?
    pub fn allow(&mut self, now: Instant, key: &str) -> bool {
        self.own.allow(now, key)
    }

    /// The same for what peers bring about that nothing is known of.
    pub fn allow_stranger(&mut self, now: Instant, key: &str) -> bool {
        self.strangers.allow(now, key)
    }

    /// As [`allow_stranger`](Limiter::allow_stranger), `times` times before the same line counts as repeated.
    pub fn allow_stranger_often(&mut self, now: Instant, key: &str, times: u32) -> bool {
        let allowed = (0..times).any(|n| self.strangers.is_allowed(now, &format!("{key} {n}")));
        self.strangers.left_out += u64::from(!allowed);
        allowed
    }

    /// The matter is settled: should it come up again, say so at once.
    pub fn settle(&mut self, key: &str) {
        self.own.said.remove(key);
    }

    /// How many lines about strangers were left out, when it is time to say so.
    pub fn left_out(&mut self, now: Instant) -> Option<u64> {
        if self.strangers.left_out == 0 || now.duration_since(self.told) < TELL_EVERY {
            return None;
        }
        self.told = now;
        Some(std::mem::take(&mut self.strangers.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_and_floods_are_cut() {
        let start = Instant::now();
        let mut limiter = Limiter::new(start);
        assert!(limiter.allow(start, "a"));
        assert!(!limiter.allow(start, "a"));
        assert!(limiter.allow(start + REPEAT_AFTER, "a"));
        let allowed = (0..10_000).filter(|n| limiter.allow(start + REPEAT_AFTER, &format!("b{n}"))).count();
        assert_eq!(allowed as u32, LINES_PER_WINDOW - 1);
        assert!(limiter.allow(start + REPEAT_AFTER + WINDOW, "c"));
        assert!(limiter.own.said.len() <= REMEMBERED);
    }

    #[test]
    fn strangers_hush_nothing_but_each_other_and_are_counted() {
        let start = Instant::now();
        let mut limiter = Limiter::new(start);
        let said = (0..1000).filter(|n| limiter.allow_stranger(start, &format!("stranger {n}"))).count();
        assert_eq!(said as u32, LINES_PER_WINDOW);
        assert!(limiter.allow(start, "the own certificate expires"));
        assert_eq!(limiter.left_out(start), None);
        assert_eq!(limiter.left_out(start + TELL_EVERY), Some(1000 - u64::from(LINES_PER_WINDOW)));
        assert_eq!(limiter.left_out(start + TELL_EVERY * 3), None);
    }
}
