//! The only source of chance in a run: xoshiro256++ seeded through splitmix64. Written here so that a seed means the same
//! run whatever happens to a dependency.

pub use trireme_types::mix;

pub struct Rng {
    s: [u64; 4],
}

/// Order-dependent hash of bytes; not for adversaries, only for comparing what two nodes delivered.
pub fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    let mut h = mix(seed ^ bytes.len() as u64);
    for chunk in bytes.chunks(8) {
        let mut word = [0u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        h = mix(h ^ u64::from_le_bytes(word));
    }
    h
}

impl Rng {
    pub fn new(seed: u64) -> Rng {
        let mut x = seed;
        let mut s = [0; 4];
        for word in &mut s {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            *word = mix(x);
        }
        Rng { s }
    }

    pub fn next(&mut self) -> u64 {
        let out = self.s[0].wrapping_add(self.s[3]).rotate_left(23).wrapping_add(self.s[0]);
        let t = self.s[1] << 17;
        self.s[2] ^= self.s[0];
        self.s[3] ^= self.s[1];
        self.s[1] ^= self.s[2];
        self.s[0] ^= self.s[3];
        self.s[2] ^= t;
        self.s[3] = self.s[3].rotate_left(45);
        out
    }

    /// Uniform in `0..n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { ((u128::from(self.next()) * u128::from(n)) >> 64) as u64 }
    }

    /// Uniform in `lo..=hi`.
    pub fn range(&mut self, lo: u64, hi: u64) -> u64 {
        lo + self.below(hi.saturating_sub(lo) + 1)
    }

    pub fn chance(&mut self, p: f64) -> bool {
        ((self.next() >> 11) as f64) < p * (1u64 << 53) as f64
    }

    /// Exponentially distributed with the given mean, cut at twenty times the mean.
    pub fn exp(&mut self, mean: u64) -> u64 {
        let u = ((self.next() >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        ((-u.ln()).min(20.0) * mean as f64) as u64
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len() as u64) as usize)
    }

    /// Index drawn in proportion to `weights`; `None` when all are zero.
    pub fn weighted(&mut self, weights: &[u32]) -> Option<usize> {
        let total: u64 = weights.iter().map(|w| u64::from(*w)).sum();
        if total == 0 {
            return None;
        }
        let mut at = self.below(total);
        for (i, w) in weights.iter().enumerate() {
            if at < u64::from(*w) {
                return Some(i);
            }
            at -= u64::from(*w);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_seed_others() {
        let draw = |seed| (0..8).map(|_| 0).scan(Rng::new(seed), |r, _| Some(r.next())).collect::<Vec<_>>();
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn exp_has_about_its_mean() {
        let mut r = Rng::new(1);
        let sum: u64 = (0..20_000).map(|_| r.exp(1000)).sum();
        assert!((900..1100).contains(&(sum / 20_000)), "{}", sum / 20_000);
    }
}
