//! `server`: what a durable commit costs on real servers. Five ways to keep a commit, all running at the same time and loaded
//! in turn, so that ratios hold also where the machine is noisy.

mod load;
mod probe;
mod report;
mod usage;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use trireme_cluster::{Cancel, ClusterGuard, Spec, galera_provider};

use load::{Cell, Load};
use report::Row;

/// What the columns mean and what is promised.
pub const HELP: &str = "\
Every client inserts rows of its own with a prepared statement, one row and one commit each, through the server's unix socket; the
clients are spread over the nodes. All clusters run during the whole benchmark, only one is loaded at a time; the order is every way in turn,
then the next round. `CPU us/commit` is that of the loaded servers; `others` is the share of the machine that neither they nor the clients
used, so work of other programs. `fdatasync` is measured beside the servers' own files right before each cell, with as many writers at the
same time as there are nodes, since all logs share one disk here.

Targets: `process` at least Galera with flush=0; `disk` at least twice Galera with flush=1 from 8 clients on; at 1 client the median of
`disk` within one fdatasync of that of `process`. A target is judged by the whole run; the range of the rounds' own ratios says how sure that is.";

#[derive(Args)]
pub struct ServerArgs {
    /// Our library
    #[arg(long)]
    provider: PathBuf,
    /// Galera's library; default: the installed one, without it only ours and the plain server are measured
    #[arg(long)]
    galera: Option<PathBuf>,
    /// Nodes in each cluster
    #[arg(long, default_value_t = 3)]
    nodes: u8,
    /// Clients in all, one run for each number
    #[arg(long, value_delimiter = ',', default_value = "1,8,32")]
    clients: Vec<usize>,
    /// Bytes of text in each row
    #[arg(long, default_value_t = 200)]
    size: usize,
    /// Measured seconds in each cell
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Seconds before measuring in each cell
    #[arg(long, default_value_t = 1.0)]
    warmup: f64,
    /// Rounds, interleaved
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Only these ways (`disk`, `process`, `galera-0`, `galera-1`, `plain`)
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Where the servers live: must be readable for their user; removed at the end
    #[arg(long, default_value = "/var/tmp/trireme-bench")]
    dir: PathBuf,
    /// First port
    #[arg(long, default_value_t = 22000)]
    base_port: u16,
    /// Lines `option=value` for every server
    #[arg(long = "option")]
    options: Vec<String>,
    /// More of `wsrep_provider_options` for the servers of every cluster, `key=value;key=value`
    #[arg(long, default_value = "")]
    provider_options: String,
    /// One JSON object per cell instead of a table
    #[arg(long)]
    json: bool,
}

/// One way to keep a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Disk,
    Process,
    GaleraUnflushed,
    GaleraFlushed,
    Plain,
}

impl Way {
    const ALL: [Way; 5] = [Way::Disk, Way::Process, Way::GaleraUnflushed, Way::GaleraFlushed, Way::Plain];

    fn name(self) -> &'static str {
        match self {
            Way::Disk => "disk",
            Way::Process => "process",
            Way::GaleraUnflushed => "galera-0",
            Way::GaleraFlushed => "galera-1",
            Way::Plain => "plain",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Way::Disk => "Trireme disk, flush=0",
            Way::Process => "Trireme process, flush=0",
            Way::GaleraUnflushed => "Galera, flush=0",
            Way::GaleraFlushed => "Galera, flush=1",
            Way::Plain => "one server, flush=1",
        }
    }

    fn flush(self) -> u8 {
        match self {
            Way::Disk | Way::Process | Way::GaleraUnflushed => 0,
            Way::GaleraFlushed | Way::Plain => 1,
        }
    }

    fn is_galera(self) -> bool {
        matches!(self, Way::GaleraUnflushed | Way::GaleraFlushed)
    }
}

/// Servers that keep commits in one way.
struct Subject {
    way: Way,
    cluster: ClusterGuard,
}

pub fn run(args: &ServerArgs) -> Result<(), String> {
    let galera = args.galera.as_deref().or_else(|| galera_provider());
    let wanted = |way: &Way| {
        (args.only.is_empty() || args.only.iter().any(|o| o == way.name())) && (!way.is_galera() || galera.is_some())
    };
    if let Some(bad) = args.only.iter().find(|o| Way::ALL.iter().all(|way| way.name() != *o)) {
        return Err(format!("no way `{bad}`; there are {}", Way::ALL.map(Way::name).join(", ")));
    }
    let cancel = Cancel::default();
    let mut subjects = Vec::new();
    for (at, way) in Way::ALL.into_iter().filter(wanted).enumerate() {
        eprintln!("starting {}", way.title());
        let provider = if way.is_galera() { galera.unwrap_or(Path::new("")) } else { &args.provider };
        subjects.push(start(args, way, provider, at, &cancel)?);
    }
    let mut rows: Vec<Row> = Vec::new();
    for &clients in &args.clients {
        let mut cells: Vec<Row> = subjects.iter().map(|s| Row::new(s.way, clients)).collect();
        for _ in 0..args.rounds.max(1) {
            for (subject, row) in subjects.iter().zip(&mut cells) {
                row.add(cell(args, subject, clients)?);
            }
        }
        for row in cells {
            if args.json {
                println!("{}", row.json());
            }
            rows.push(row);
        }
    }
    if !args.json {
        println!(
            "{} nodes, rows of {} bytes, {} round(s) of {} s for each cell",
            args.nodes, args.size, args.rounds, args.seconds
        );
        report::print(&rows);
    }
    Ok(())
}

fn start(args: &ServerArgs, way: Way, provider: &Path, at: usize, cancel: &Cancel) -> Result<Subject, String> {
    let mut spec = Spec::new(provider, args.dir.join(way.name()));
    // As the rivals do it: what encryption costs is measured apart.
    spec.secret = false;
    spec.nodes = if way == Way::Plain { 1 } else { args.nodes };
    spec.plain = way == Way::Plain;
    // Room for ten nodes each.
    spec.base_port = args.base_port + 60 * at as u16;
    spec.name = format!("bench-{}", way.name());
    spec.cancel = cancel.clone();
    let durability = match way {
        Way::Disk => "repl.durability=disk;",
        Way::Process => "repl.durability=process;",
        Way::GaleraUnflushed | Way::GaleraFlushed | Way::Plain => "",
    };
    spec.provider_options = format!("{durability}{}", args.provider_options);
    spec = spec.option(format!("innodb-flush-log-at-trx-commit={}", way.flush()));
    if way != Way::Plain {
        spec = spec.option("wsrep-slave-threads=4");
    }
    for option in &args.options {
        spec = spec.option(option);
    }
    let cluster = ClusterGuard::up(&spec, &mut |line| eprintln!("  {line}")).map_err(|e| e.to_string())?;
    let first = cluster.nodes()[0].id;
    for statement in [
        "CREATE DATABASE bench",
        "CREATE TABLE bench.t (id BIGINT AUTO_INCREMENT PRIMARY KEY, text VARCHAR(10000)) ENGINE=InnoDB",
    ] {
        cluster.sql(first, statement).map_err(|e| e.to_string())?;
    }
    Ok(Subject { way, cluster })
}

/// The disk alone, then the load, from an empty table on.
fn cell(args: &ServerArgs, subject: &Subject, clients: usize) -> Result<Cell, String> {
    let cluster = &subject.cluster;
    cluster.sql(cluster.nodes()[0].id, "TRUNCATE TABLE bench.t").map_err(|e| e.to_string())?;
    settle(subject)?;
    let dirs: Vec<PathBuf> = cluster.nodes().iter().map(|node| node.data()).collect();
    let sync = probe::fdatasync(&dirs, Duration::from_millis(700)).map_err(|e| format!("fdatasync: {e}"))?;
    let load = Load {
        clients,
        size: args.size,
        warmup: Duration::from_secs_f64(args.warmup),
        measure: Duration::from_secs_f64(args.seconds),
    };
    let cell = load.run(cluster, sync)?;
    settle(subject)?;
    Ok(cell)
}

/// Waits until every node has applied everything.
fn settle(subject: &Subject) -> Result<(), String> {
    if subject.way == Way::Plain {
        return Ok(());
    }
    for node in subject.cluster.nodes() {
        let mut session = subject.cluster.session(node.id).map_err(|e| e.to_string())?;
        for statement in ["SET wsrep_sync_wait=1", "SELECT 1 FROM bench.t LIMIT 1"] {
            session.query(statement).map_err(|e| format!("{}: {e}", node.id))?;
        }
    }
    Ok(())
}
