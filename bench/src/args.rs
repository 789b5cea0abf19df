//! The arguments of `trireme bench`.

use crate::plan::Experiment;
use crate::systems::System;
use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The usual value of `--rows`.
pub const ROWS: u64 = 1_000_000;

pub const HELP: &str = "\
Examples:
  trireme bench all --preset quick --out results      every experiment once, less than half an hour
  trireme bench all --preset report --out results     fewer systems, most points twice, as long
  trireme bench oltp --systems plain,trireme-disk,galera-1 --threads 1,8,32 --repeat 3
  trireme bench faults --systems trireme-disk,galera-0 --out faults
  trireme bench all --preset quick --plan              what would be measured, and how long that takes
  trireme bench report results other-results           compares two runs

The same command with the same --out goes on where it was interrupted. docs/benchmarks/README.md says what each experiment is.

Exit codes:
  0  every point was measured
  1  failed; one line on stderr says why and what to do
  2  wrong usage
  3  a point failed; the others are in the report";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Bench {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Rows per second, by rows per transaction (16 clients that only insert)
    Insert(Measure),
    /// Transactions per second, by the ratio of reads and writes
    Ratio(Measure),
    /// sysbench's read/write load: throughput and latency, by threads and by nodes that take writes
    Oltp(Measure),
    /// A load in the manner of TPC-C: new orders per minute, rollbacks, durations
    Tpcc(Measure),
    /// sysbench through a balancer over three nodes, by sync_binlog and innodb_flush_log_at_trx_commit
    Durability(Measure),
    /// One-row commits: ours beside what one would take instead, and what is lost when all die
    Peers(Measure),
    /// Commits per second over time while nodes are frozen, killed and cut off
    Faults(Measure),
    /// Providers alone, through their C interface: no server, no engine
    Provider(Measure),
    /// All of these
    All(Measure),
    /// Writes the report of a run again, or compares several runs by the ratios within each
    Report {
        /// Directories of runs (--out)
        #[arg(required = true, value_name = "DIR")]
        dirs: Vec<PathBuf>,
        /// Write the comparison to this file instead of the terminal
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Where the time of one commit goes in a provider: each call, and who is woken for it on every node
    #[command(after_help = crate::harness::STAGES_HELP)]
    Stages(crate::harness::Stages),
    /// The real disk and those of `--disks separate`, measured the same ways
    Disks(CheckDisks),
    /// One node of a provider's cluster (started by `provider` and `stages`)
    #[command(hide = true)]
    Node(crate::harness::NodeArgs),
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// Shape and consistency only: a minute for all experiments
    Tiny,
    /// Every experiment in the shape of the published one, with short points and fewer numbers of threads: less than half an hour for all
    Quick,
    /// For a report that others read: fewer systems than `quick`, most points twice: less than half an hour for all
    Report,
    /// Long points, three repeats, all numbers of nodes: for all experiments a night and longer
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Disks {
    /// All nodes on one file system: the syncs of one slow the others, as they would not on machines of their own
    Shared,
    /// A disk per node, in RAM, with the sync time of the real disk or a given one (root only)
    Separate,
}

#[derive(Clone, Debug, Args)]
pub struct CheckDisks {
    /// Modelled disks that are measured at the same time
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    pub nodes: u8,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = positive)]
    pub duration: f64,
    /// Modelled microseconds of one sync [default: the median of the real disk's fdatasync]
    #[arg(long, value_name = "MICROSECONDS", value_parser = positive)]
    pub disk_sync: Option<f64>,
    /// Modelled microseconds more for each MiB written since the last sync [default: as measured on the real disk]
    #[arg(long, value_name = "MICROSECONDS", value_parser = not_negative)]
    pub disk_per_mib: Option<f64>,
    /// A directory on the real disk; made, and removed at the end [default: below /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// One JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct Measure {
    /// Systems to measure, with commas between [default: all that the experiment knows]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub systems: Vec<System>,
    /// Numbers of nodes, with commas between
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=9))]
    pub nodes: Vec<u8>,
    /// Size of tables and number of rows, as a part of the published experiments' (1: theirs)
    #[arg(long, value_parser = positive)]
    pub scale: Option<f64>,
    /// Measured seconds of each point
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    pub duration: Option<f64>,
    /// Numbers of client threads, with commas between, where an experiment varies them
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: Vec<u32>,
    /// Give every node this share of a processor, and the lone server too (0.5: half a core; root only)
    #[arg(long, value_name = "CORES", value_parser = positive)]
    pub cpu_per_node: Option<f64>,
    /// How often each point is measured; the systems take turns
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: Option<u32>,
    /// Whether nodes share a disk; `trireme bench disks` shows what `separate` gives
    #[arg(long, value_enum, default_value = "shared")]
    pub disks: Disks,
    /// With `--disks separate`: modelled microseconds of one sync [default: the median of the real disk's fdatasync]
    #[arg(long, value_name = "MICROSECONDS", value_parser = positive)]
    pub disk_sync: Option<f64>,
    /// With `--disks separate`: microseconds more for each MiB written since the last sync [default: as measured on the real disk]
    #[arg(long, value_name = "MICROSECONDS", value_parser = not_negative)]
    pub disk_per_mib: Option<f64>,
    /// How much is measured; the other options change single numbers of it
    #[arg(long, value_enum, default_value = "quick")]
    pub preset: Preset,
    /// In `ratio`: how write sets travel, `rows` or `statements` (wsrep_forced_binlog_format), with commas between [default: rows; in the
    /// presets tiny and full both]
    #[arg(long, value_delimiter = ',', value_parser = ["rows", "statements"])]
    pub write_sets: Vec<String>,
    /// In `provider`: a further library as LABEL=PATH[#OPTIONS], beside the --systems; may be repeated
    #[arg(long, value_name = "LIBRARY")]
    pub library: Vec<crate::harness::Subject>,
    /// In `provider`: each of our systems also without metrics and flight recorder, as SYSTEM-unmeasured; the report says what measuring costs
    #[arg(long)]
    pub unmeasured: bool,
    /// In `provider`: bytes of data in each write set, with commas between
    #[arg(long, value_delimiter = ',', value_name = "BYTES")]
    pub sizes: Vec<usize>,
    /// In `provider`: milliseconds of a round trip between any two nodes, with commas between, made by relays; 0: none. The report compares the
    /// model of docs/scaling.md with them where 0 is among them [default: 0]
    #[arg(long, value_delimiter = ',', value_name = "MS", value_parser = not_negative)]
    pub rtt: Vec<f64>,
    /// In `provider`: rows that keys are drawn from; fewer rows, more conflicts
    #[arg(long, default_value_t = ROWS)]
    pub rows: u64,
    /// Where everything is written [default: trireme-bench-TIME in this directory]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Our library [default: libtrireme.so beside this command, then target/release/libtrireme.so]
    #[arg(long, value_name = "PATH")]
    pub provider: Option<PathBuf>,
    /// Galera's library [default: the installed one]
    #[arg(long, value_name = "PATH")]
    pub galera: Option<PathBuf>,
    /// In `peers`: the tree with MySQL's programs. It is made there when a system of MySQL is named, and kept (root, debootstrap, network, 700 MB)
    /// [default: /var/cache/trireme-bench/mysql]
    #[arg(long, value_name = "DIR")]
    pub mysql_root: Option<PathBuf>,
    /// First of the 200 TCP ports that the servers use
    #[arg(long, default_value_t = 22000, value_name = "PORT")]
    pub base_port: u16,
    /// Where the servers live; removed at the end
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Server option for all MariaDB servers, as it would stand in my.cnf; may be repeated
    #[arg(long = "option", value_name = "OPTION")]
    pub options: Vec<String>,
    /// More of wsrep_provider_options for our servers, `key=value;key=value`
    #[arg(long, default_value = "", value_name = "OPTIONS")]
    pub provider_options: String,
    /// Only show what would be measured, and about how long it takes
    #[arg(long)]
    pub plan: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("write a number above 0".to_owned()),
    }
}

fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok(number),
        _ => Err("write a number of at least 0".to_owned()),
    }
}

impl Command {
    /// The experiments that are asked for; `None` for what measures none.
    pub fn experiments(&self) -> Option<(Vec<Experiment>, &Measure)> {
        use Experiment as E;
        Some(match self {
            Command::Insert(m) => (vec![E::Insert], m),
            Command::Ratio(m) => (vec![E::Ratio], m),
            Command::Oltp(m) => (vec![E::Oltp], m),
            Command::Tpcc(m) => (vec![E::Tpcc], m),
            Command::Durability(m) => (vec![E::Durability], m),
            Command::Peers(m) => (vec![E::Peers], m),
            Command::Faults(m) => (vec![E::Faults], m),
            Command::Provider(m) => (vec![E::Provider], m),
            Command::All(m) => (E::ALL.to_vec(), m),
            Command::Report { .. } | Command::Stages(_) | Command::Disks(_) | Command::Node(_) => return None,
        })
    }
}
