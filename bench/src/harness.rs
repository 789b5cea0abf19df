//! Any wsrep provider, driven through its C interface as a server would: no server and no engine, what is measured is the provider alone.
//!
//! **Invariant:** the only place that loads a rival's library.

mod cluster;
mod host;
mod load;
mod perf;
mod provider;
mod relay;
mod stages;
mod stages_table;
mod threads;

use clap::Args;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

pub use cluster::{Cluster, Shape, Subject};
pub use load::{Load, Report};
use stages_table::Column;

/// The meaning of the columns of `stages`.
pub const STAGES_HELP: &str = "\
Per commit and node: `wake-ups` are voluntary context switches, so times that a thread slept and was woken; `preempted` are the
involuntary ones; `syscalls` are counted with perf(1) in a run of their own and left out where it does not work. A commit goes
client -> group thread -> the sequencer's group thread -> group thread -> client. The client's thread is called `client`, those that
apply are `recv`, the rest have the names that the provider gives them. Node 0 bootstraps. Idle memory is VmRSS once all nodes have
joined, less what the process had before it loaded the provider; `anonymous` is the part of it that is no page of a file.";

#[derive(Debug, Args)]
pub struct Stages {
    /// Provider to measure: [label=]path[#options]; give it several times to compare
    #[arg(long = "provider", required = true)]
    providers: Vec<Subject>,
    /// Nodes in each cluster
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Which node the client runs on, from 0; one table for each
    #[arg(long = "writer", value_delimiter = ',', default_value = "0,1")]
    writers: Vec<usize>,
    /// Bytes of data in each write set
    #[arg(long, default_value_t = 200)]
    size: usize,
    /// Measured seconds in each round
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Rounds of each provider, interleaved
    #[arg(long, default_value_t = 2)]
    rounds: u64,
    /// Applier threads of each node
    #[arg(long, default_value_t = 4)]
    appliers: usize,
    /// First of the 180 TCP ports from which the nodes take theirs
    #[arg(long, default_value_t = 22000, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1024..=65_000))]
    base_port: u16,
    /// Print everything that the providers log
    #[arg(long)]
    verbose: bool,
}

#[derive(Debug, Args)]
pub struct NodeArgs {
    #[arg(long)]
    library: PathBuf,
    #[arg(long)]
    name: String,
    #[arg(long)]
    port: u16,
    #[arg(long)]
    listens: Ipv4Addr,
    #[arg(long)]
    known: Ipv4Addr,
    #[arg(long)]
    url: String,
    #[arg(long)]
    options: String,
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    appliers: usize,
    #[arg(long)]
    verbose: bool,
}

/// `trireme bench node`: serves one node until its pipe closes.
pub fn serve(args: &NodeArgs) {
    host::set_verbose(args.verbose);
    cluster::serve(&host::NodeConfig {
        library: args.library.clone(),
        name: args.name.clone(),
        port: args.port,
        place: relay::Place { listens: args.listens, known: args.known },
        url: args.url.clone(),
        options: args.options.clone(),
        dir: args.dir.clone(),
        appliers: args.appliers,
    });
}

/// Prints where the time of one commit goes.
pub fn dissect(args: &Stages) -> Result<(), String> {
    let nodes = args.nodes.max(1);
    if let Some(bad) = args.writers.iter().find(|w| **w >= nodes) {
        return Err(format!("no node {bad}: {nodes} nodes, counted from 0"));
    }
    host::set_verbose(args.verbose);
    let (appliers, base_port, verbose) = (args.appliers, args.base_port, args.verbose);
    let shape = Shape { nodes, appliers, dummy: false, rtt: Duration::ZERO, base_port, verbose };
    let mut clusters = args.providers.iter().map(|s| Cluster::start(s, shape)).collect::<Result<Vec<_>, _>>()?;
    println!(
        "{nodes} nodes, one client, {} bytes and one key per write set, {} round(s) of {} s\n",
        args.size, args.rounds, args.seconds
    );
    for cluster in &mut clusters {
        stages_table::print_memory(&cluster.subject.label.clone(), &cluster.memory()?);
    }
    for &writer in &args.writers {
        let mut columns: Vec<Column> = clusters.iter().map(|c| Column::new(&c.subject.label, nodes)).collect();
        let load = |seed| Load {
            clients: 1,
            size: args.size,
            keys: 1,
            rows: 1_000_000,
            warmup: Duration::from_millis(500),
            measure: Duration::from_secs_f64(args.seconds),
            seed,
        };
        for round in 0..args.rounds.max(1) {
            for (cluster, column) in clusters.iter_mut().zip(&mut columns) {
                let reports = cluster.stages(load(round + 1), writer)?;
                column.nodes.iter_mut().zip(&reports).for_each(|(sum, report)| sum.add(report));
                cluster.converge()?;
            }
        }
        for (cluster, column) in clusters.iter_mut().zip(&mut columns) {
            // A run of its own: counting takes time. Without a warm-up, since all system calls of the run are counted.
            let counting = cluster.pids().into_iter().map(perf::Counting::start).collect::<Result<Vec<_>, _>>();
            match counting {
                Ok(counting) => {
                    let measure = Duration::from_secs(1);
                    let reports = cluster.stages(Load { warmup: Duration::ZERO, measure, ..load(99) }, writer)?;
                    let counts = counting.into_iter().map(perf::Counting::finish);
                    column.syscalls = Ok(counts.zip(&reports).map(|(calls, r)| (calls, r.passed)).collect());
                }
                Err(e) => column.syscalls = Err(e),
            }
            cluster.converge()?;
        }
        stages_table::print(writer, &columns);
    }
    Ok(())
}

/// The work of all nodes together.
pub fn sum(reports: &[Report]) -> Report {
    let mut total = Report::default();
    reports.iter().for_each(|r| total.add(r));
    total
}
