//! A latency histogram with 3 % resolution that two threads or two processes can add up.

/// Sub-buckets per power of two.
const SUB_BITS: u32 = 5;
const SUB: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB;

#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS], total: 0, max: 0 }
    }
}

impl Histogram {
    pub fn record(&mut self, nanos: u64) {
        self.counts[bucket(nanos)] += 1;
        self.total += 1;
        self.max = self.max.max(nanos);
    }

    pub fn merge(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a += b);
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    /// The value below which the share `q` of all lies, to 3 %; zero when nothing was recorded.
    pub fn quantile(&self, q: f64) -> u64 {
        let rank = ((self.total as f64 * q).ceil() as u64).max(1);
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper(at).min(self.max);
            }
        }
        self.max
    }

    /// `max,bucket:count,…` of the buckets in use.
    pub fn to_text(&self) -> String {
        let mut text = self.max.to_string();
        for (at, count) in self.counts.iter().enumerate().filter(|(_, c)| **c > 0) {
            text.push_str(&format!(",{at}:{count}"));
        }
        text
    }

    pub fn from_text(text: &str) -> Option<Histogram> {
        let mut fields = text.split(',');
        let mut out = Histogram { max: fields.next()?.parse().ok()?, ..Histogram::default() };
        for field in fields {
            let (at, count) = field.split_once(':')?;
            let count: u64 = count.parse().ok()?;
            *out.counts.get_mut(at.parse::<usize>().ok()?)? += count;
            out.total += count;
        }
        Some(out)
    }
}

fn bucket(value: u64) -> usize {
    if value < SUB as u64 {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - SUB_BITS;
    (shift as usize + 1) * SUB + ((value >> shift) as usize - SUB)
}

/// Highest value of a bucket.
fn upper(bucket: usize) -> u64 {
    if bucket < SUB {
        return bucket as u64;
    }
    let shift = (bucket / SUB - 1) as u32;
    let base = (SUB + bucket % SUB) as u64;
    (base << shift) + ((1u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_a_bucket_that_is_at_most_a_thirtieth_wide() {
        for value in (0..64).flat_map(|s| [(1u64 << s) - 1, 1 << s, (1u64 << s) | (1 << s >> 1)]).chain([u64::MAX]) {
            let at = bucket(value);
            assert!(at < BUCKETS);
            assert!(upper(at) >= value && upper(at) - value <= value / 30 + 1, "{value}");
            assert!(at == 0 || upper(at - 1) < value, "{value}");
        }
    }

    #[test]
    fn quantiles_survive_the_way_through_text_and_merging() {
        let (mut a, mut b) = (Histogram::default(), Histogram::default());
        (1..=500u64).for_each(|v| a.record(v * 1000));
        (501..=1000u64).for_each(|v| b.record(v * 1000));
        a.merge(&Histogram::from_text(&b.to_text()).unwrap());
        assert_eq!(a.max(), 1_000_000);
        for (q, exact) in [(0.5, 500_000.0), (0.99, 990_000.0), (1.0, 1_000_000.0)] {
            let got = a.quantile(q) as f64;
            assert!((got - exact).abs() <= exact * 0.04, "{q}: {got}");
        }
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }
}
