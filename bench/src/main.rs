//! `trireme-bench`: drives any wsrep provider through its C interface, as a server would, and compares several in one run.
//!
//! `provider` and `stages` have no server and no engine: what is measured is the provider alone. `server` measures real ones. Rounds
//! are interleaved (A, B, A, B, …) so that a noisy minute hits all alike.

mod cluster;
mod hist;
mod host;
mod load;
mod perf;
mod provider;
mod servers;
mod stages;
mod stages_table;
mod table;
mod threads;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use cluster::{Cluster, Fault, Shape, Subject};
use load::{Load, Report};
use stages_table::Column;
use table::{Cell, Setting};

/// Measures wsrep providers
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

#[derive(Subcommand)]
enum Cmd {
    /// Commits per second, latency and CPU of one or more providers
    Provider(ProviderArgs),
    /// Where the time of one commit goes: each call of a lone client, who is woken for it on every node, and memory at rest
    #[command(after_help = STAGES_HELP)]
    Stages(StagesArgs),
    /// Commits per second, latency and CPU of real servers, by how a commit is kept: ours, Galera, one server
    #[command(after_help = servers::HELP)]
    Server(servers::ServerArgs),
    /// One node of a cluster (started by the above)
    #[command(hide = true)]
    Node(NodeArgs),
}

#[derive(Args)]
struct ProviderArgs {
    /// Provider to measure: [label=]path[#options]; give it several times to compare, ratios are to the first
    #[arg(long = "provider", required = true)]
    providers: Vec<Subject>,
    /// Nodes in each cluster
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Client threads on each writing node, one run for each number
    #[arg(long, value_delimiter = ',', default_value = "1,8,32")]
    clients: Vec<usize>,
    /// Which nodes write: `one` (the first), `all`, or the number of a node; one run for each
    #[arg(long, value_delimiter = ',', default_value = "one")]
    writers: Vec<Writers>,
    /// Bytes of data in each write set
    #[arg(long, default_value_t = 200)]
    size: usize,
    /// Keys in each write set
    #[arg(long, default_value_t = 1)]
    keys: usize,
    /// Rows that keys are drawn from: fewer rows, more conflicts
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Measured seconds in each round
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Seconds before measuring in each round
    #[arg(long, default_value_t = 1.0)]
    warmup: f64,
    /// Rounds of each provider, interleaved
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Applier threads of each node
    #[arg(long, default_value_t = 4)]
    appliers: usize,
    /// One node without group communication (dummy://)
    #[arg(long)]
    dummy: bool,
    /// All nodes as instances in this process instead of a process for each
    #[arg(long)]
    in_process: bool,
    /// Stop this node (SIGSTOP) from a tenth of the measured time to its end, in every round
    #[arg(long, conflicts_with_all = ["kill", "in_process"])]
    freeze: Option<usize>,
    /// Kill this node (SIGKILL) after a tenth of the measured time; one setting and one round only
    #[arg(long, conflicts_with = "in_process")]
    kill: Option<usize>,
    /// One JSON object per line instead of a table
    #[arg(long)]
    json: bool,
    /// Print everything that the providers log
    #[arg(long)]
    verbose: bool,
}

/// What the columns of `stages` mean.
const STAGES_HELP: &str = "\
Per commit and node: `wake-ups` are voluntary context switches, so times that a thread slept and was woken; `preempted` are the
involuntary ones; `syscalls` are counted with perf(1) in a run of their own and left out where it does not work. A commit goes
client -> group thread -> the sequencer's group thread -> group thread -> client. The client's thread is called `client`, those that
apply are `recv`, the rest have the names that the provider gives them. Node 0 bootstraps. Idle memory is VmRSS once all nodes have
joined, less what the process had before it loaded the provider; `anonymous` is the part of it that is no page of a file.";

#[derive(Args)]
struct StagesArgs {
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
    /// Print everything that the providers log
    #[arg(long)]
    verbose: bool,
}

#[derive(Args)]
struct NodeArgs {
    #[arg(long)]
    library: PathBuf,
    #[arg(long)]
    name: String,
    #[arg(long)]
    port: u16,
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

/// Which nodes run clients.
#[derive(Clone, Copy, Debug)]
enum Writers {
    All,
    Only(usize),
}

impl std::str::FromStr for Writers {
    type Err = String;
    fn from_str(text: &str) -> Result<Writers, String> {
        match text {
            "all" => Ok(Writers::All),
            "one" => Ok(Writers::Only(0)),
            number => number.parse().map(Writers::Only).map_err(|_| String::from("not one, all or a node number")),
        }
    }
}

impl Writers {
    fn contains(self, node: usize) -> bool {
        match self {
            Writers::All => true,
            Writers::Only(only) => only == node,
        }
    }
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Cmd::Provider(args) => compare(&args),
        Cmd::Stages(args) => dissect(&args),
        Cmd::Server(args) => servers::run(&args),
        Cmd::Node(args) => {
            host::set_verbose(args.verbose);
            cluster::serve(&host::NodeConfig {
                library: args.library,
                name: args.name,
                port: args.port,
                url: args.url,
                options: args.options,
                dir: args.dir,
                appliers: args.appliers,
            });
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("trireme-bench: {e}");
            ExitCode::FAILURE
        }
    }
}

fn compare(args: &ProviderArgs) -> Result<(), String> {
    let nodes = if args.dummy { 1 } else { args.nodes.max(1) };
    if let Some(bad) = args.writers.iter().find(|w| matches!(w, Writers::Only(n) if *n >= nodes)) {
        return Err(format!("{bad:?} with {nodes} nodes"));
    }
    let fault = args.freeze.map(Fault::Freeze).or(args.kill.map(Fault::Kill));
    if fault.is_some_and(|f| f.node() >= nodes) {
        return Err(format!("no such node to fail: {nodes} nodes"));
    }
    if args.kill.is_some() && (args.rounds > 1 || args.clients.len() * args.writers.len() > 1) {
        return Err(String::from("--kill needs --rounds 1, one number of clients and one choice of writers"));
    }
    host::set_verbose(args.verbose);
    let shape =
        Shape { nodes, appliers: args.appliers, dummy: args.dummy, in_process: args.in_process, verbose: args.verbose };
    let mut clusters = args.providers.iter().map(|s| Cluster::start(s, shape)).collect::<Result<Vec<_>, _>>()?;
    if !args.json {
        println!(
            "{nodes} node(s), {} byte(s) and {} key(s) of {} rows per write set, {} round(s) of {} s, {} appliers\n",
            args.size, args.keys, args.rows, args.rounds, args.seconds, args.appliers
        );
        println!("{}", table::HEADER);
    }
    for writers in &args.writers {
        for &clients in &args.clients {
            let mut cells: Vec<Cell> = clusters.iter().map(|c| Cell::new(&c.subject.label)).collect();
            for round in 0..args.rounds.max(1) {
                let load = Load {
                    clients,
                    size: args.size,
                    keys: args.keys,
                    rows: args.rows,
                    warmup: Duration::from_secs_f64(args.warmup),
                    measure: Duration::from_secs_f64(args.seconds),
                    seed: round as u64 + 1,
                };
                for (cluster, cell) in clusters.iter_mut().zip(&mut cells) {
                    let reports = cluster.run(load, |node| writers.contains(node), fault)?;
                    cell.add_round(&sum(&reports, cluster.shares_process()));
                    match (cluster.converge(), fault) {
                        (Err(e), None) => return Err(e),
                        (Err(e), Some(_)) => eprintln!("{e}"), // expelled; the others are what was measured
                        (Ok(()), _) => {}
                    }
                }
            }
            let setting = Setting { nodes, clients, writers: if matches!(writers, Writers::All) { nodes } else { 1 } };
            if args.json {
                cells.iter().for_each(|cell| println!("{}", cell.json(setting)));
            } else {
                table::print(setting, &cells);
            }
        }
    }
    Ok(())
}

fn dissect(args: &StagesArgs) -> Result<(), String> {
    let nodes = args.nodes.max(1);
    if let Some(bad) = args.writers.iter().find(|w| **w >= nodes) {
        return Err(format!("no node {bad}: {nodes} nodes, counted from 0"));
    }
    host::set_verbose(args.verbose);
    let shape = Shape { nodes, appliers: args.appliers, dummy: false, in_process: false, verbose: args.verbose };
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

fn sum(reports: &[Report], one_process: bool) -> Report {
    let mut total = Report::default();
    reports.iter().for_each(|r| total.add(r));
    if one_process {
        total.cpu = reports.iter().map(|r| r.cpu).max().unwrap_or_default();
    }
    total
}
