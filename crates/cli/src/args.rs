//! What can be typed.

use clap::{Args as ClapArgs, Parser, Subcommand};
use std::path::PathBuf;
use trireme_cluster::{NodeId, SstMethod};

#[derive(Debug, Parser)]
#[command(
    name = "trireme",
    version,
    about = "Synchronous multi-master replication for stock MariaDB servers",
    after_help = EXIT_CODES
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

#[derive(Debug, Subcommand)]
pub enum Command {
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
    /// Look into a node's write-set log: its files `trireme.*.galera.cache` in the data directory or `gcache.dir`
    #[command(after_help = LOG_EXIT_CODES)]
    Log {
        #[command(subcommand)]
        action: LogAction,
    },
}

const LOG_EXIT_CODES: &str = "\
Exit codes:
  0  done; `verify`: the log is sound
  1  failed, with one line on stderr; `verify`: damage was found
  2  wrong usage";

/// The directory is first everywhere, since it is what differs between nodes.
#[derive(Debug, Subcommand)]
pub enum LogAction {
    /// Show files, range, gaps and statistics, or one entry; takes no lock, so the node may run
    Inspect {
        dir: PathBuf,
        /// Show the entry at this index
        #[arg(long, value_name = "INDEX", conflicts_with = "seqno")]
        entry: Option<u64>,
        /// Show the entry that took this seqno
        #[arg(long, value_name = "N")]
        seqno: Option<u64>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Check every record and judge the log as its node would at its next start; takes no lock, changes nothing
    Verify {
        dir: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Drop old segments of a stopped node's log, to free space. What a peer lacks of them it must get by a full copy
    Trim {
        dir: PathBuf,
        /// Oldest seqno to keep. Segments go as a whole, so more than that may stay
        #[arg(long, value_name = "SEQNO")]
        keep_from: u64,
        /// Also a log that its last user did not close. What its engine lacks may be in what goes, and it may then need
        /// a full copy
        #[arg(long)]
        force: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
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
    /// Run a statement on a node, or open an interactive client
    Sql {
        /// Node: 1, 2, …
        node: NodeId,
        /// Statement; without it the interactive `mariadb` client starts
        statement: Option<String>,
        /// Print JSON: one object with columns, rows, affected
        #[arg(long, requires = "statement")]
        json: bool,
    },
    /// End a node at once (SIGKILL), as a crash would
    Kill { node: NodeId },
    /// End a node orderly (SIGTERM); it leaves the group. Waits up to 60 s
    Stop { node: NodeId },
    /// Freeze a node (SIGSTOP): it stays connected and answers nothing
    Pause { node: NodeId },
    /// Let a frozen node go on (SIGCONT)
    Resume { node: NodeId },
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
    /// Start a node again; one that runs is stopped orderly first
    Restart(Restart),
    /// Add nodes to the running cluster; they receive their data by state transfer
    Add {
        /// How many
        #[arg(default_value_t = 1)]
        count: u8,
        #[command(flatten)]
        options: ServerOptions,
    },
    /// Stop a node orderly, forget it and remove its files
    Remove { node: NodeId },
    /// Stop every node and remove the cluster's files
    Down {
        /// Keep data and logs, so that `up` can start the cluster again; nodes are stopped orderly
        #[arg(long)]
        keep: bool,
    },
    /// Show a node's error log
    Logs {
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
    /// Number of nodes (1 to 32)
    #[arg(short, long, default_value_t = 3)]
    pub nodes: u8,
    /// Provider library: a path, or `galera` for the installed Galera. Default: libtrireme.so beside this
    /// command, then target/release/libtrireme.so
    #[arg(long, value_name = "PATH")]
    pub provider: Option<PathBuf>,
    /// First TCP port; each node takes 10 from there on (SQL, group, IST, SST, six spare)
    #[arg(long, default_value_t = trireme_cluster::DEFAULT_BASE_PORT, value_name = "PORT")]
    pub base_port: u16,
    /// How joining nodes receive their data: rsync, mariabackup or mysqldump
    #[arg(long, default_value_t = SstMethod::Rsync, value_name = "METHOD")]
    pub sst: SstMethod,
    /// wsrep_cluster_name
    #[arg(long, default_value = "trireme", value_name = "NAME")]
    pub name: String,
    /// wsrep_provider_options beyond the addresses, as `key=value;key=value`
    #[arg(long, default_value = "", value_name = "OPTIONS")]
    pub provider_options: String,
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

#[derive(Debug, ClapArgs)]
pub struct ServerOptions {
    /// Server option, as it would stand in my.cnf (`wsrep_slave_threads=8`); may be repeated
    #[arg(long = "option", value_name = "OPTION")]
    pub option: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub struct Restart {
    pub node: NodeId,
    /// Found a new group with this node (--wsrep-new-cluster): for a group that has no member left
    #[arg(long, conflicts_with = "plain")]
    pub bootstrap: bool,
    /// Do not ask the storage engine for the node's position first, as a bare `mariadbd` start
    #[arg(long)]
    pub plain: bool,
    /// End a running node by SIGKILL instead of orderly
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
