//! SplitMix64 (Steele, Lea, Flood: *Fast Splittable Pseudorandom Number Generators*, 2014): small, and the same everywhere, so
//! that a seed means the same whatever happens to a dependency.

/// The first number of the generator whose seed is `x`. A permutation, so it serves as a hash of small integers too.
pub fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(GAMMA);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The generator; what it holds at first is the seed.
#[derive(Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    pub fn next(&mut self) -> u64 {
        let number = mix(self.0);
        self.0 = self.0.wrapping_add(GAMMA);
        number
    }

    /// From 0 to `limit` − 1; `limit` is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds in committed corpora and in reports of failures depend on it.
    #[test]
    fn gives_the_numbers_of_the_reference_implementation() {
        let mut random = SplitMix(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(expected.map(|_| random.next()), expected);
    }
}
