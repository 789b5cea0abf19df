//! Rounds summed up, as a table for people and as JSON for scripts.

use std::time::Duration;

use crate::load::Report;

/// What the rounds of one cell had in common.
#[derive(Clone, Copy)]
pub struct Setting {
    pub nodes: usize,
    pub clients: usize,
    pub writers: usize,
}

/// All rounds of one provider in one setting.
pub struct Cell {
    label: String,
    rates: Vec<f64>,
    total: Report,
    elapsed: Duration,
}

pub const HEADER: &str = "writers clients  provider       commits/s   (min .. max)       p50 us    p99 us  p99.9 us    max us  gap ms  CPU us/commit  applied  conflicts  errors";

impl Cell {
    pub fn new(label: &str) -> Cell {
        Cell { label: label.to_owned(), rates: Vec::new(), total: Report::default(), elapsed: Duration::ZERO }
    }

    pub fn add_round(&mut self, round: &Report) {
        self.rates.push(round.commits as f64 / round.elapsed.as_secs_f64());
        self.elapsed += round.elapsed;
        let out_of_order = round.out_of_order; // counted since the start of the node, not of the round
        self.total.add(&Report { out_of_order: 0, ..round.clone() });
        self.total.out_of_order = out_of_order;
    }

    fn rate(&self) -> f64 {
        self.total.commits as f64 / self.elapsed.as_secs_f64()
    }

    fn micros(&self, q: f64) -> f64 {
        self.total.latency.quantile(q) as f64 / 1000.0
    }

    fn cpu(&self) -> f64 {
        self.total.cpu.as_secs_f64() * 1e6 / self.total.commits.max(1) as f64
    }

    /// Share of the commits that the other nodes applied in the same time: below 100 % they were falling behind.
    fn applied(&self, s: Setting) -> f64 {
        let expected = (self.total.commits + self.total.conflicts) * (s.nodes as u64 - 1);
        if expected == 0 { 100.0 } else { self.total.applied as f64 * 100.0 / expected as f64 }
    }

    fn bounds(&self) -> (f64, f64) {
        self.rates.iter().fold((f64::INFINITY, 0.0), |(lo, hi), r| (r.min(lo), r.max(hi)))
    }

    pub fn json(&self, s: Setting) -> String {
        let (lo, hi) = self.bounds();
        let label = self.label.replace(['"', '\\'], "_");
        format!(
            "{{\"provider\":\"{label}\",\"nodes\":{},\"writers\":{},\"clients\":{},\"commits_per_s\":{:.1},\"min\":{lo:.1},\"max\":{hi:.1},\
             \"p50_us\":{:.1},\"p99_us\":{:.1},\"p999_us\":{:.1},\"max_us\":{:.1},\"gap_ms\":{:.1},\"cpu_us_per_commit\":{:.1},\"applied_percent\":{:.1},\"conflicts\":{},\"errors\":{},\
             \"out_of_order\":{}}}",
            s.nodes,
            s.writers,
            s.clients,
            self.rate(),
            self.micros(0.5),
            self.micros(0.99),
            self.micros(0.999),
            self.total.latency.max() as f64 / 1000.0,
            self.total.gap.as_secs_f64() * 1000.0,
            self.cpu(),
            self.applied(s),
            self.total.conflicts,
            self.total.errors,
            self.total.out_of_order
        )
    }
}

/// One line per provider, and one with the ratio to the first for each further one.
pub fn print(s: Setting, cells: &[Cell]) {
    for cell in cells {
        let (lo, hi) = cell.bounds();
        println!(
            "{:>7} {:>7}  {:<14} {:>9.0}   {:>17}  {:>8.1}  {:>8.1}  {:>8.1}  {:>8.0}  {:>6.1}  {:>13.1}  {:>6.1}%  {:>9}  {:>6}{}{}",
            s.writers,
            s.clients,
            cell.label,
            cell.rate(),
            format!("({lo:.0} .. {hi:.0})"),
            cell.micros(0.5),
            cell.micros(0.99),
            cell.micros(0.999),
            cell.total.latency.max() as f64 / 1000.0,
            cell.total.gap.as_secs_f64() * 1000.0,
            cell.cpu(),
            cell.applied(s),
            cell.total.conflicts,
            cell.total.errors,
            if cell.total.errors > 0 { format!("  (status {})", cell.total.error_code) } else { String::new() },
            if cell.total.out_of_order > 0 {
                format!("  OUT OF ORDER: {}", cell.total.out_of_order)
            } else {
                String::new()
            },
        );
    }
    if let Some((first, others)) = cells.split_first() {
        for other in others {
            let ratio = |b: f64, a: f64| if a > 0.0 { format!("x{:.2}", b / a) } else { String::from("-") };
            println!(
                "{:>16} {:<14} {:>9}   {:>17}  {:>8}  {:>8}  {:>8}  {:>8}  {:>6}  {:>13}",
                "",
                format!("{}/{}", other.label, first.label),
                ratio(other.rate(), first.rate()),
                "",
                ratio(other.micros(0.5), first.micros(0.5)),
                ratio(other.micros(0.99), first.micros(0.99)),
                ratio(other.micros(0.999), first.micros(0.999)),
                "",
                "",
                ratio(other.cpu(), first.cpu()),
            );
        }
        println!();
    }
}
