//! The command line.

use clap::{Args as ClapArgs, Parser, Subcommand};
use std::path::PathBuf;
use trireme_chaos::{Durability, Nemesis, Through, Workload};
use trireme_cluster::{NodeId, Settings, SstMethod};
use trireme_history::Isolation;

#[derive(Debug, Parser)]
#[command(
    name = "trireme",
    version = crate::VERSION,
    about = "Synchronous multi-master replication for stock MariaDB servers",
    after_help = EXAMPLES
)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed; one line on stderr says why and what to do
  2    wrong usage
  3    `cluster status`: not every node is Synced and serving clients
  130  interrupted by Ctrl-C; what was being started is stopped again";

const EXAMPLES: &str = "\
Examples:
  trireme up                               three servers to try; Ctrl-C ends them
  trireme status --host db1                who is there, who votes, what can still be lost
  trireme doctor --host db1                what is wrong, or will be
  trireme secret new /etc/mysql/trireme.secret
  trireme log inspect /var/lib/mysql

Exit codes of all commands:
  0    done, and all is well
  1    failed; one line on stderr says why and what to do
  2    wrong usage
  3    done, and something is not well: a node is missing, something was found
  4    done, and it is bad: clients are not served, a promise was broken
  130  interrupted by Ctrl-C

More of each command: trireme COMMAND --help";

const UP_NOTES: &str = "\
While it runs, lines are read: the commands of `trireme cluster`, as in

  sql 1 CREATE DATABASE shop
  kill 3
  partition 2
  heal

Networks can be cut for root, and where user namespaces are allowed. Ctrl-C, `quit` or the end of the input ends all servers
and removes their files.

Exit codes:
  0    it was started, and ended by you
  1    failed; one line on stderr says why and what to do
  2    wrong usage
  130  interrupted by Ctrl-C before all servers were there; they are stopped again";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start three servers on this machine, to try; ends, with everything, by Ctrl-C
    #[command(name = "up", after_help = UP_NOTES)]
    Trial {
        /// Directory for the time of the trial. Default: that of `trireme cluster`, with `-up` behind it
        #[arg(long, value_name = "PATH")]
        dir: Option<PathBuf>,
        #[command(flatten)]
        up: Box<Up>,
    },
    /// Show every server of a cluster, who votes, who is behind, and what it can still lose
    Status(trireme_observe::status::Status),
    /// Find what is wrong with a cluster, or will be, each with its reason and its remedy
    Doctor(trireme_observe::examine::Doctor),
    /// Pack what support needs into one archive: status, settings, logs; no rows, no secrets
    Bundle(trireme_observe::bundle::Bundle),
    /// Watch a cluster in the terminal: rates, latency, who waits for whom
    Top(crate::top::Top),
    /// Serve a dashboard, /metrics for Prometheus and /health for load balancers
    Monitor(trireme_observe::monitor::Monitor),
    /// Say what a line of a server's error log means, and what to do
    Explain(trireme_observe::explain::Explain),
    /// Show what happened, from the error logs of all nodes
    Events(trireme_observe::explain::Events),
    /// Show the flight recorders of all nodes, also of dead ones, on one time line
    Flight(trireme_observe::flight::Flight),
    /// Start and drive a cluster of real servers on this machine
    #[command(after_help = EXIT_CODES)]
    Cluster {
        /// Directory that holds the cluster: data, sockets, logs. Default: $TRIREME_CLUSTER_DIR, else
        /// /var/tmp/trireme-UID
        #[arg(long, global = true, value_name = "PATH")]
        dir: Option<PathBuf>,
        #[command(subcommand)]
        action: Action,
    },
    /// Break a cluster of real servers under load, and judge what clients saw
    #[command(after_help = CHAOS_HELP, args_conflicts_with_subcommands = true)]
    Chaos {
        #[command(subcommand)]
        action: Option<ChaosAction>,
        #[command(flatten)]
        run: Box<ChaosRun>,
    },
    /// Measure on real servers, beside every rival: the experiments by which such systems are judged
    Bench(Box<trireme_bench::Bench>),
    /// Make or change the secret that the members of a cluster share
    ///
    /// It lies in the file that `repl.secret_file` names.
    Secret {
        #[command(subcommand)]
        action: SecretAction,
    },
    /// Run an arbitrator: a voter without data. Called as garbd it takes the same options
    Arbitrate(trireme_arbitrator::Arbitrate),
    /// Run a load balancer: clients find the writer or a reader
    Balance(trireme_balance::Balance),
    /// Print the servers of a group, the writer first, as connectors want them
    Hosts(trireme_balance::Hosts),
    /// Look into a node's write-set log, or change it
    ///
    /// Its files are `trireme.*.galera.cache`, in the data directory or in `gcache.dir`.
    #[command(after_help = LOG_EXIT_CODES)]
    Log {
        #[command(subcommand)]
        action: LogAction,
    },
    /// Print a script with which a shell completes these commands
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// Which shell
        #[arg(value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
    /// Write a manual page for each command into a directory
    #[command(hide = true)]
    Manual { dir: PathBuf },
}

const COMPLETIONS_HELP: &str = "\
Packages install them. By hand, for bash:
  trireme completions bash > ~/.local/share/bash-completion/completions/trireme";

#[derive(Debug, Subcommand)]
pub enum SecretAction {
    /// Make a file with a new secret, readable for its owner only
    New {
        /// The file to make
        file: PathBuf,
    },
    /// Put a new secret before the one in the file; nodes that have read the file accept both
    Rotate {
        /// The file with the secret (`repl.secret_file`)
        file: PathBuf,
    },
    /// Take all secrets but the first out of the file
    Retire {
        /// The file with the secret (`repl.secret_file`)
        file: PathBuf,
    },
    /// Make the files with which the server's scripts protect full copies (rsync, mariabackup) from the secret, and print what to put into my.cnf
    Transfer {
        /// The file with the secret (`repl.secret_file`)
        file: PathBuf,
        /// An existing directory; key.pem, cert.pem and ca.pem in it are replaced
        dir: PathBuf,
    },
}

const LOG_EXIT_CODES: &str = "\
Exit codes:
  0  done; `verify`: the log is sound
  1  failed, with one line on stderr; `verify`: damage was found
  2  wrong usage";

const CHAOS_HELP: &str = "\
Without a subcommand one run is made: a cluster of its own, clients on all nodes, faults, recovery, comparison of all
nodes, and a verdict. Slow or hung disks and cuts of power need root; cuts of the
network root or a user namespace, which is entered by itself.

Exit codes:
  0    done, and everything promised was kept
  1    the run could not be made; one line on stderr
  2    wrong usage
  4    a promise was broken: an anomaly that counts, different data, a cluster that did not come back by itself, a gap between commits
  130  interrupted by Ctrl-C; the servers are stopped again";

#[derive(Debug, Subcommand)]
pub enum ChaosAction {
    /// Judge the history of an earlier run again
    Check {
        /// `history.jsonl` of the run
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run every nemesis on our provider and on Galera, and print a table in Markdown
    Matrix {
        /// Nemeses to run, separated by commas; default: all
        #[arg(long, value_delimiter = ',', value_name = "NEMESIS")]
        only: Vec<Nemesis>,
        #[command(flatten)]
        run: Box<ChaosRun>,
    },
    /// Run faults with clients that go straight, through `trireme balance` and through HAProxy, and print a table in Markdown
    Compare {
        /// Nemeses to run, separated by commas; default: kill-one, pause, partition-whole, donor, rolling-restart
        #[arg(long, value_delimiter = ',', value_name = "NEMESIS")]
        only: Vec<Nemesis>,
        #[command(flatten)]
        run: Box<ChaosRun>,
    },
}

#[derive(Clone, Debug, ClapArgs)]
pub struct ChaosRun {
    /// Provider library: a path, or `galera` for the installed Galera. Default: the installed libtrireme.so,
    /// or the one that was built beside this command
    #[arg(long, value_name = "PATH", conflicts_with = "galera")]
    pub provider: Option<PathBuf>,
    /// The same as `--provider galera`
    #[arg(long)]
    pub galera: bool,
    /// One plain server without a provider: shows which anomalies are the server's own
    #[arg(long, conflicts_with_all = ["provider", "galera", "nodes"])]
    pub single: bool,
    /// Number of nodes
    #[arg(short, long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=32))]
    pub nodes: u8,
    /// The work of the clients: list-append or bank
    #[arg(long, default_value_t = Workload::ListAppend, value_name = "WORKLOAD")]
    pub workload: Workload,
    /// Faults: none, kill-one, kill-all, stop-kill, pause, partition-whole, partition-one-way, partition-ring, hung-disk, slow-disk,
    /// power-one, power-all, stop-power, start-power, locked-tables, small-log, kill-joiner, donor, rolling-restart, mix
    #[arg(long, default_value_t = Nemesis::None, value_name = "NEMESIS")]
    pub nemesis: Nemesis,
    /// How clients reach the servers: direct (spread over all nodes), balance (`trireme balance`, at its writer's listener) or
    /// haproxy (one server and the others as backups, checked as Galera nodes usually are). Faults hit the clients' node first
    #[arg(long, default_value_t = Through::Direct, value_name = "WAY")]
    pub through: Through,
    /// Clients
    #[arg(long, default_value_t = 6, value_name = "N")]
    pub clients: u32,
    /// Operations per second of all clients together
    #[arg(long, default_value_t = 600, value_name = "N")]
    pub rate: u32,
    /// Seconds of load
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub duration: u64,
    /// Number of faults; replaces --duration
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    pub rounds: Option<u32>,
    /// Mean seconds without a fault between two
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS", value_parser = seconds)]
    pub quiet: f64,
    /// Mean seconds that a fault lasts
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS", value_parser = seconds)]
    pub fault: f64,
    /// Random seed: repeats which faults come, not their exact timing. Default: random, printed
    #[arg(long)]
    pub seed: Option<u64>,
    /// Isolation of the clients: read-committed, repeatable-read, snapshot (repeatable-read with
    /// innodb_snapshot_isolation=ON) or serializable
    #[arg(long, default_value_t = Isolation::Snapshot, value_name = "LEVEL")]
    pub isolation: Isolation,
    /// wsrep_sync_wait of the clients; with 0 stale reads are allowed and only counted
    #[arg(long, default_value_t = 15, value_name = "MASK", value_parser = clap::value_parser!(u8).range(0..=15))]
    pub sync_wait: u8,
    /// innodb_flush_log_at_trx_commit of the servers
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=2))]
    pub flush: u8,
    /// Where the servers find their settings: file (my.cnf), command-line (as in containers) or mixed (every second
    /// server). Default: file or command-line, drawn
    #[arg(long, value_name = "PLACE")]
    pub settings: Option<Settings>,
    /// Start servers as MariaDB's service unit does: a run with --wsrep-recover first, whose position they are told.
    /// Galera's always are
    #[arg(long)]
    pub unit: bool,
    /// repl.durability of our provider: disk or process
    #[arg(long, value_name = "MODE")]
    pub durability: Option<Durability>,
    /// Seconds that a node which no fault hits may go without a commit. Default for our provider: 1 when the sequencer was hit,
    /// else 0.5; Galera's gaps are reported only
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub gap_limit: Option<f64>,
    /// wsrep_provider_options beyond the addresses, as `key=value;key=value`
    #[arg(long, default_value = "", value_name = "OPTIONS")]
    pub provider_options: String,
    #[command(flatten)]
    pub options: ServerOptions,
    /// Directory of the cluster while it runs. Default: /var/tmp/trireme-chaos-PORT
    #[arg(long, value_name = "PATH")]
    pub dir: Option<PathBuf>,
    /// First TCP port; each node takes 10 from there on
    #[arg(long, default_value_t = 20500, value_name = "PORT")]
    pub base_port: u16,
    /// Receives history.jsonl, report.txt, report.json and the servers' logs. Default: the cluster's directory with
    /// `-report` behind it
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..1e6).contains(&seconds) => Ok(seconds),
        _ => Err("write seconds, for instance 2.5".to_owned()),
    }
}

/// The directory is first everywhere, since it is what differs between nodes.
#[derive(Debug, Subcommand)]
pub enum LogAction {
    /// Show files, range, gaps and statistics, or one entry; takes no lock, so the node may run
    Inspect {
        /// Directory with the log: the data directory, or `gcache.dir`
        dir: PathBuf,
        /// Show the entry at this index
        #[arg(long, value_name = "INDEX", conflicts_with = "seqno")]
        entry: Option<u64>,
        /// Show the entry that took this seqno
        #[arg(long, value_name = "N")]
        seqno: Option<u64>,
        /// File with the keys of an encrypted log (`repl.log_key_file`)
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Check every record and judge the log as its node would at its next start; takes no lock, changes nothing
    Verify {
        /// Directory with the log: the data directory, or `gcache.dir`
        dir: PathBuf,
        /// File with the keys of an encrypted log (`repl.log_key_file`)
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the term that a node has promised, or raise that of a stopped one. For nodes that do not believe each other's terms: their error
    /// logs name the command
    Term {
        /// Directory with the log: the data directory, or `gcache.dir`
        dir: PathBuf,
        /// The new term; the highest that any node of the cluster has
        #[arg(long, value_name = "TERM")]
        raise: Option<u64>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Free disk space: delete the oldest files of a node's log. A node that needs them later gets a full copy. A running node
    /// does it itself, and keeps what its own server and the members that are there still need
    Trim {
        /// Directory with the log: the data directory, or `gcache.dir`
        dir: PathBuf,
        /// Oldest seqno to keep. Segments go as a whole, so more than that may stay
        #[arg(long, value_name = "SEQNO")]
        keep_from: u64,
        /// Of a stopped node: also a log that its last user did not close. The engine may lack something of the part that
        /// goes, and may then need a full copy
        #[arg(long)]
        force: bool,
        /// How long a node that runs may take to notice; it looks every second
        #[arg(long, value_name = "SECONDS", default_value_t = 10)]
        wait: u64,
        /// File with the keys of an encrypted log (`repl.log_key_file`)
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make or change the file with the keys that a node's log is encrypted with (`repl.log_key_file`)
    Key {
        #[command(subcommand)]
        action: LogKeyAction,
    },
}

#[derive(Debug, Subcommand)]
pub enum LogKeyAction {
    /// Make a file with a new key, readable for its owner only
    New {
        /// The file to make
        file: PathBuf,
    },
    /// Put a new key before those in the file; the next segment of the log is encrypted with it
    Rotate {
        /// The file with the keys (`repl.log_key_file`)
        file: PathBuf,
    },
    /// Take the keys out of the file that no file of the log in DIR needs any more, the first one excepted
    Retire {
        /// The file with the keys (`repl.log_key_file`)
        file: PathBuf,
        /// Directory with the log: the data directory, or `gcache.dir`
        dir: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub enum Action {
    /// Start a cluster, or start a stopped one again with its data
    Up(Up),
    /// Show every node: state, position, queue, role
    Status {
        /// Print JSON, with every wsrep status variable
        #[arg(long)]
        json: bool,
    },
    /// Run statements on a node, or open an interactive client
    Sql {
        /// Node: 1, 2, …
        node: NodeId,
        /// Statements, run one after another in one session until one fails; one argument may hold several, separated by
        /// semicolons. Without any the interactive `mariadb` client starts
        statements: Vec<String>,
        /// Print JSON: an object with columns, rows, affected; for several answers a list of them
        #[arg(long, requires = "statements")]
        json: bool,
    },
    /// End a node at once (SIGKILL), as a crash would
    Kill {
        /// Node: 1, 2, …
        node: NodeId,
    },
    /// Stop a node cleanly (SIGTERM): it leaves the group. Waits up to 60 s
    Stop {
        /// Node: 1, 2, …
        node: NodeId,
    },
    /// Freeze a node (SIGSTOP): it stays connected and answers nothing
    Pause {
        /// Node: 1, 2, …
        node: NodeId,
    },
    /// Wake a frozen node up again (SIGCONT)
    Resume {
        /// Node: 1, 2, …
        node: NodeId,
    },
    /// Cut nodes off the network; needs a cluster started with --netns
    #[command(after_help = "Packets vanish silently, as with a broken switch; connections stay open.\n\
        Examples:\n  trireme cluster partition 1         node1 alone, the others together\n  \
        trireme cluster partition 1,2 3,4   two halves\n  trireme cluster partition --from 1 --to 2   one way only")]
    Partition {
        /// Groups of nodes that can still talk to each other, each a comma-separated list; nodes not named form one
        /// group more
        #[arg(required_unless_present = "from", conflicts_with_all = ["from", "to"], value_name = "NODES")]
        groups: Vec<NodeList>,
        /// One-way cut: packets sent by this node …
        #[arg(long, requires = "to", value_name = "NODE")]
        from: Option<NodeId>,
        /// … to this node are lost
        #[arg(long, requires = "from", value_name = "NODE")]
        to: Option<NodeId>,
    },
    /// Undo every cut
    Heal,
    /// Start nodes again, all at the same time; those that run are stopped in order first
    Restart(Restart),
    /// Add nodes to the running cluster; they receive their data by state transfer
    Add {
        /// How many
        #[arg(default_value_t = 1)]
        count: u8,
        #[command(flatten)]
        options: ServerOptions,
    },
    /// Stop a node in order, forget it and remove its files
    Remove {
        /// Node: 1, 2, …
        node: NodeId,
    },
    /// Stop every node and remove the cluster's files
    Down {
        /// Keep data and logs, so that `up` can start the cluster again; nodes are stopped in order
        #[arg(long)]
        keep: bool,
    },
    /// Show a node's error log
    Logs {
        /// Node: 1, 2, …
        node: NodeId,
        /// How many lines from the end
        #[arg(short = 'n', long, default_value_t = 50, value_name = "LINES")]
        lines: usize,
        /// Go on showing new lines until Ctrl-C
        #[arg(short, long)]
        follow: bool,
    },
}

#[derive(Debug, ClapArgs)]
pub struct Up {
    /// Number of nodes
    #[arg(short, long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=32))]
    pub nodes: u8,
    /// Provider library: a path, or `galera` for the installed Galera. Default: the installed libtrireme.so,
    /// or the one that was built beside this command
    #[arg(long, value_name = "PATH")]
    pub provider: Option<PathBuf>,
    /// First TCP port; each node takes 10 from there on (SQL, group, IST, SST, six spare)
    #[arg(long, default_value_t = trireme_cluster::DEFAULT_BASE_PORT, value_name = "PORT")]
    pub base_port: u16,
    /// How joining nodes receive their data: rsync, mariabackup or mysqldump
    #[arg(long, default_value_t = SstMethod::Rsync, value_name = "METHOD")]
    pub sst: SstMethod,
    /// Where the servers find their settings: file (my.cnf), command-line (as in containers) or mixed (every second server)
    #[arg(long, default_value_t = Settings::File, value_name = "PLACE")]
    pub settings: Settings,
    /// wsrep_cluster_name
    #[arg(long, default_value = "trireme", value_name = "NAME")]
    pub name: String,
    /// wsrep_provider_options beyond the addresses, as `key=value;key=value`
    #[arg(long, default_value = "", value_name = "OPTIONS")]
    pub provider_options: String,
    /// Start an arbitrator beside the servers, as the last node: it votes and has no data. It is stopped, killed, paused and
    /// cut by its number like any node
    #[arg(long)]
    pub arbitrator: bool,
    /// Encrypt the group's traffic: makes an authority and a certificate for each node (docs/operations/tls.md)
    #[arg(long)]
    pub tls: bool,
    /// Leave the group's traffic in clear text, open to everybody who reaches the ports. Without this and --tls the nodes share a
    /// secret (docs/security.md)
    #[arg(long, conflicts_with = "tls")]
    pub clear: bool,
    /// Give every node a network namespace (root only), so that single nodes can be cut off
    #[arg(long)]
    pub netns: bool,
    /// Seconds one node may take to become Synced
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    pub timeout: u64,
    #[command(flatten)]
    pub options: ServerOptions,
    /// Server option for one node, as `NODE:name=value`; may be repeated
    #[arg(long, value_name = "NODE:OPTION")]
    pub node_option: Vec<NodeOption>,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct ServerOptions {
    /// Server option, as it would stand in my.cnf (`wsrep_slave_threads=8`); may be repeated
    #[arg(long = "option", value_name = "OPTION")]
    pub option: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub struct Restart {
    /// Nodes: 1, 2, …
    #[arg(required = true)]
    pub nodes: Vec<NodeId>,
    /// Found a new group with this node (--wsrep-new-cluster): for a group that has no member left
    #[arg(long, conflicts_with = "plain")]
    pub bootstrap: bool,
    /// Do not ask the storage engine for the node's position first, as a bare `mariadbd` start
    #[arg(long)]
    pub plain: bool,
    /// End a running node by SIGKILL instead of in order
    #[arg(long)]
    pub kill: bool,
}

/// `1,2,3`
#[derive(Clone, Debug)]
pub struct NodeList(pub Vec<NodeId>);

impl std::str::FromStr for NodeList {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        s.split(',').map(str::parse).collect::<Result<_, _>>().map(NodeList)
    }
}

/// `2:wsrep_slave_threads=8`
#[derive(Clone, Debug)]
pub struct NodeOption {
    pub node: NodeId,
    pub line: String,
}

impl std::str::FromStr for NodeOption {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let (node, line) = s.split_once(':').ok_or("write NODE:name=value, for instance 2:wsrep_slave_threads=8")?;
        Ok(NodeOption { node: node.parse()?, line: line.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definition_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn reads_partitions() {
        let args = Args::try_parse_from(["trireme", "cluster", "partition", "1,2", "3"]).unwrap();
        let Command::Cluster { action: Action::Partition { groups, .. }, .. } = args.command else { panic!() };
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[0].0.len(), 2);
        assert!(Args::try_parse_from(["trireme", "cluster", "partition"]).is_err());
        assert!(Args::try_parse_from(["trireme", "cluster", "partition", "--from", "1"]).is_err());
        assert!(Args::try_parse_from(["trireme", "cluster", "partition", "--from", "1", "--to", "2"]).is_ok());
    }

    #[test]
    fn refuses_bad_nodes_and_options() {
        assert!(Args::try_parse_from(["trireme", "cluster", "kill", "0"]).is_err());
        assert!(Args::try_parse_from(["trireme", "cluster", "up", "--node-option", "x=1"]).is_err());
        assert!(Args::try_parse_from(["trireme", "cluster", "up", "--sst", "ftp"]).is_err());
    }
}
