//! Cells summed up, and the targets.

use std::time::Duration;

use super::Way;
use super::load::Cell;
use crate::hist::Histogram;

/// All rounds of one way with one number of clients.
pub struct Row {
    way: Way,
    clients: usize,
    rates: Vec<f64>,
    commits: u64,
    errors: u64,
    elapsed: Duration,
    latency: Histogram,
    servers: Duration,
    own: Duration,
    others: Vec<f64>,
    fdatasync: Histogram,
}

impl Row {
    pub fn new(way: Way, clients: usize) -> Row {
        Row {
            way,
            clients,
            rates: Vec::new(),
            commits: 0,
            errors: 0,
            elapsed: Duration::ZERO,
            latency: Histogram::default(),
            servers: Duration::ZERO,
            own: Duration::ZERO,
            others: Vec::new(),
            fdatasync: Histogram::default(),
        }
    }

    pub fn add(&mut self, cell: Cell) {
        self.rates.push(cell.commits as f64 / cell.elapsed.as_secs_f64());
        self.commits += cell.commits;
        self.errors += cell.errors;
        self.elapsed += cell.elapsed;
        self.latency.merge(&cell.latency);
        self.servers += cell.servers;
        self.own += cell.clients;
        self.others.push(cell.others_percent);
        self.fdatasync.merge(&cell.fdatasync);
    }

    fn rate(&self) -> f64 {
        self.commits as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    fn micros(&self, q: f64) -> f64 {
        self.latency.quantile(q) as f64 / 1000.0
    }

    /// Microseconds per commit.
    fn cpu(&self, used: Duration) -> f64 {
        used.as_secs_f64() * 1e6 / self.commits.max(1) as f64
    }

    fn others(&self) -> f64 {
        self.others.iter().sum::<f64>() / self.others.len().max(1) as f64
    }

    fn sync_micros(&self, q: f64) -> f64 {
        self.fdatasync.quantile(q) as f64 / 1000.0
    }

    pub fn json(&self) -> String {
        let rates: Vec<String> = self.rates.iter().map(|r| format!("{r:.1}")).collect();
        format!(
            "{{\"way\":\"{}\",\"clients\":{},\"commits_per_s\":{:.1},\"rounds\":[{}],\"p50_us\":{:.1},\"p95_us\":{:.1},\"p99_us\":{:.1},\
             \"cpu_us_per_commit\":{:.1},\"client_cpu_us_per_commit\":{:.1},\"others_percent\":{:.1},\"errors\":{},\"fdatasync_p50_us\":{:.1},\"fdatasync_p95_us\":{:.1}}}",
            self.way.name(),
            self.clients,
            self.rate(),
            rates.join(","),
            self.micros(0.5),
            self.micros(0.95),
            self.micros(0.99),
            self.cpu(self.servers),
            self.cpu(self.own),
            self.others(),
            self.errors,
            self.sync_micros(0.5),
            self.sync_micros(0.95)
        )
    }
}

pub fn print(rows: &[Row]) {
    println!(
        "\nclients  way                        commits/s   (min .. max)      p50 us    p95 us    p99 us  CPU us/commit, clients'  others  errors  fdatasync p50/p95 us"
    );
    let mut clients = 0;
    for row in rows {
        if clients != 0 && clients != row.clients {
            println!();
        }
        clients = row.clients;
        let (low, high) = bounds(row.rates.iter().copied());
        println!(
            "{:>7}  {:<25} {:>10.0}  {:>17}  {:>8.0}  {:>8.0}  {:>8.0}  {:>13.0} {:>9.0}  {:>5.0}%  {:>6}  {:>10}",
            row.clients,
            row.way.title(),
            row.rate(),
            format!("({low:.0} .. {high:.0})"),
            row.micros(0.5),
            row.micros(0.95),
            row.micros(0.99),
            row.cpu(row.servers),
            row.cpu(row.own),
            row.others(),
            row.errors,
            format!("{:.0}/{:.0}", row.sync_micros(0.5), row.sync_micros(0.95)),
        );
    }
    println!();
    for line in verdicts(rows) {
        println!("{line}");
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(low, high), v| (v.min(low), v.max(high)))
}

fn verdicts(rows: &[Row]) -> Vec<String> {
    let find = |way: Way, clients: usize| rows.iter().find(|r| r.way == way && r.clients == clients);
    let mut numbers: Vec<usize> = rows.iter().map(|r| r.clients).collect();
    numbers.dedup();
    let mut out = Vec::new();
    for clients in numbers {
        if let (Some(ours), Some(theirs)) = (find(Way::Process, clients), find(Way::GaleraUnflushed, clients)) {
            out.push(ratio("process / Galera flush=0", clients, ours, theirs, 1.0));
        }
        if let (Some(ours), Some(theirs)) = (find(Way::Disk, clients), find(Way::GaleraFlushed, clients))
            && clients >= 8
        {
            out.push(ratio("disk / Galera flush=1", clients, ours, theirs, 2.0));
        }
        if let (Some(disk), Some(process)) = (find(Way::Disk, clients), find(Way::Process, clients))
            && clients == 1
        {
            let (more, sync) = (disk.micros(0.5) - process.micros(0.5), disk.sync_micros(0.5));
            out.push(format!(
                "target: median of disk less that of process, 1 client: {more:.0} us, at most one fdatasync ({sync:.0} us): {}",
                met(more <= sync)
            ));
        }
    }
    out
}

fn ratio(what: &str, clients: usize, ours: &Row, theirs: &Row, least: f64) -> String {
    let all = ours.rate() / theirs.rate().max(1e-9);
    let (low, high) = bounds(ours.rates.iter().zip(&theirs.rates).map(|(a, b)| a / b.max(1e-9)));
    format!(
        "target: {what}, {clients} client(s): x{all:.2} (rounds x{low:.2} .. x{high:.2}), at least x{least:.1}: {}",
        met(all >= least)
    )
}

fn met(yes: bool) -> &'static str {
    if yes { "met" } else { "MISSED" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(way: Way, clients: usize, commits: u64, micros: u64, sync: u64) -> Row {
        let mut row = Row::new(way, clients);
        let (mut latency, mut fdatasync) = (Histogram::default(), Histogram::default());
        (0..commits).for_each(|_| latency.record(micros * 1000));
        fdatasync.record(sync * 1000);
        let second = Duration::from_secs(1);
        row.add(Cell {
            commits,
            errors: 0,
            elapsed: second,
            latency,
            servers: second,
            clients: second,
            others_percent: 0.0,
            fdatasync,
        });
        row
    }

    #[test]
    fn targets_are_judged_by_ratio_and_by_one_sync() {
        let rows = [
            row(Way::Disk, 1, 300, 3000, 1000),
            row(Way::Process, 1, 1000, 1000, 1000),
            row(Way::GaleraUnflushed, 1, 900, 1100, 1000),
            row(Way::Disk, 8, 1900, 4000, 1000),
            row(Way::GaleraFlushed, 8, 1000, 8000, 1000),
        ];
        let verdicts = verdicts(&rows);
        assert_eq!(verdicts.len(), 3);
        assert!(verdicts[0].contains("x1.11") && verdicts[0].ends_with(": met"), "{verdicts:?}");
        assert!(verdicts[1].contains("1 client") && verdicts[1].ends_with(": MISSED"), "{verdicts:?}");
        assert!(verdicts[2].contains("x1.90") && verdicts[2].ends_with(": MISSED"), "{verdicts:?}");
    }
}
