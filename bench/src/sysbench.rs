//! sysbench's `oltp_read_write`: one transaction is 14 selects, 2 updates, 1 delete and 1 insert.

use crate::field::Context;
use crate::plan::Settings;
use crate::record::Measured;
use crate::tool::{command, run};
use std::process::Command;
use std::time::Duration;

/// Where the clients go.
pub enum Door {
    /// Sockets; clients take them in turn.
    Sockets(Vec<std::path::PathBuf>),
    Tcp(String, u16),
}

/// It takes whole seconds.
pub fn seconds(settings: &Settings) -> f64 {
    settings.duration.ceil().max(1.0)
}

pub struct Load<'a> {
    pub context: &'a Context,
    pub door: Door,
    pub tables: u32,
    /// Rows of each table.
    pub size: u64,
}

impl Load<'_> {
    fn command(&self) -> Command {
        let mut sysbench = command("sysbench");
        sysbench.args([
            "oltp_read_write",
            "--db-driver=mysql",
            "--mysql-user=root",
            "--mysql-db=bench",
            "--mysql-ssl=off",
        ]);
        // With hundreds of clients and many tables there would be more prepared statements than a server allows.
        sysbench.args(["--db-ps-mode=disable", "--auto_inc=off", "--rand-type=uniform"]);
        sysbench.arg(format!("--tables={}", self.tables)).arg(format!("--table-size={}", self.size));
        match &self.door {
            Door::Sockets(sockets) => {
                let all: Vec<String> = sockets.iter().map(|s| s.display().to_string()).collect();
                sysbench.arg(format!("--mysql-socket={}", all.join(",")));
            }
            Door::Tcp(host, port) => {
                sysbench.arg(format!("--mysql-host={host}")).arg(format!("--mysql-port={port}"));
            }
        }
        sysbench
    }

    pub fn prepare(&self) -> Result<(), String> {
        let mut sysbench = self.command();
        sysbench.args(["--threads=1", "prepare"]);
        run(sysbench, Duration::from_secs(4 * 3600), &self.context.cancel).map(drop)
    }

    pub fn run(&self, threads: u32, measured: &mut Measured) -> Result<u64, String> {
        let duration = self.context.settings.duration;
        let mut sysbench = self.command();
        sysbench.arg(format!("--threads={threads}")).arg(format!("--time={}", seconds(&self.context.settings))).args([
            "--histogram",
            "--percentile=95",
            "run",
        ]);
        let said = run(sysbench, Duration::from_secs_f64(duration * 2.0 + 300.0), &self.context.cancel)?;
        parse(&said, measured).ok_or_else(|| format!("sysbench's answer is not understood: {said}"))
    }
}

/// Number of transactions; the rest goes to `measured`.
fn parse(said: &str, measured: &mut Measured) -> Option<u64> {
    let line = |name: &str| said.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
    // `transactions:   1234   (411.11 per sec.)`
    let counted = |name: &str| -> Option<(f64, f64)> {
        let (number, rest) = line(name)?.split_once('(')?;
        Some((number.trim().parse().ok()?, rest.split(' ').next()?.parse().ok()?))
    };
    let (transactions, rate) = counted("transactions:")?;
    let (aborted, _) = counted("ignored errors:")?;
    measured.set("transactions_per_s", rate);
    measured.set("transactions", transactions);
    measured.set("aborted_percent", 100.0 * aborted / (transactions + aborted).max(1.0));
    measured.set("mean_ms", line("avg:")?.parse().ok()?);
    measured.set("max_ms", line("max:")?.parse().ok()?);
    for (name, part) in [("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99)] {
        measured.set(name, quantile(said, part)?);
    }
    Some(transactions as u64)
}

/// From the lines `  12.345 |*****   67`: milliseconds, and how many took that long.
fn quantile(said: &str, part: f64) -> Option<f64> {
    let bars: Vec<(f64, f64)> = said
        .lines()
        .filter_map(|line| {
            let (value, rest) = line.split_once('|')?;
            Some((value.trim().parse().ok()?, rest.trim_start_matches(['*', ' ']).trim().parse().ok()?))
        })
        .collect();
    let all: f64 = bars.iter().map(|(_, count)| count).sum();
    let mut sum = 0.0;
    bars.iter()
        .find(|(_, count)| {
            sum += count;
            sum >= all * part
        })
        .map(|(value, _)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
       2.000 |****************************************   60
       3.000 |**********                                 30
      10.000 |***                                        10

SQL statistics:
    transactions:                        100    (49.90 per sec.)
    queries:                             2000   (998.00 per sec.)
    ignored errors:                      25     (0.00 per sec.)
    reconnects:                          0      (0.00 per sec.)

Latency (ms):
         min:                                    1.50
         avg:                                    3.10
         max:                                   10.20
         95th percentile:                       10.00
";

    #[test]
    fn reads_what_sysbench_prints() {
        let mut measured = Measured::default();
        assert_eq!(parse(SAID, &mut measured), Some(100));
        let value = |name: &str| measured.values[name];
        assert_eq!((value("transactions_per_s"), value("aborted_percent")), (49.9, 20.0));
        assert_eq!((value("p50_ms"), value("p95_ms"), value("max_ms")), (2.0, 10.0, 10.2));
        assert_eq!(parse("FATAL: no connection", &mut Measured::default()), None);
    }
}
