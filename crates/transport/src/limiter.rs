//! At most so many log lines, whatever strangers do.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The same line again is worth saying after this.
const REPEAT_AFTER: Duration = Duration::from_secs(60);
/// Different lines within `WINDOW`.
const LINES_PER_WINDOW: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);
/// Lines remembered; beyond it all are forgotten, and the window still bounds them.
const REMEMBERED: usize = 512;

pub(crate) struct Limiter {
    said: BTreeMap<String, Instant>,
    window: Instant,
    lines: u32,
}

impl Limiter {
    pub fn new(now: Instant) -> Limiter {
        Limiter { said: BTreeMap::new(), window: now, lines: 0 }
    }

    /// May a line about `key` be written now?
    pub fn allow(&mut self, now: Instant, key: &str) -> bool {
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

    /// The matter is settled: should it come up again, say so at once.
    pub fn settle(&mut self, key: &str) {
        self.said.remove(key);
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
        assert!(limiter.said.len() <= REMEMBERED);
    }
}
