//! The options of the command line. The same names stand in a configuration file, one `name = value` a line.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

const NOTES: &str = "\
Each listener leads to the servers of one role: the writer (in a Trireme group the member that orders, so that all balancers agree),
the readers (all others), or any. Addresses: PORT, HOST:PORT, [IPV6]:PORT, or the path of a unix socket. The servers are asked for
their state with a login; an account that needs no rights but USAGE is enough, and REPLICATION or SUPER rights are not used for serving.

Signals: SIGHUP reads the file of --config again; SIGTERM and SIGINT end it; after SIGUSR1 it takes no new clients and ends with the
last session.

Exit codes:
  0  ended by a signal or a command
  1  it could not start, and the last line says why; `top` and `control`: no answer, or the command was refused
  2  wrong usage";

/// `trireme balance`: a subcommand for a running balancer, or else a balancer.
#[derive(Clone, Debug, Args)]
#[command(after_help = NOTES, args_conflicts_with_subcommands = true)]
pub struct Balance {
    #[command(subcommand)]
    pub action: Option<Action>,
    #[command(flatten)]
    pub serve: Box<Serve>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Action {
    /// Show servers and sessions of a running balancer, again and again
    Top {
        /// Its control socket
        #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_CONTROL)]
        control: String,
        /// Print once and end
        #[arg(long)]
        once: bool,
    },
    /// Send a command to a running balancer and print its answer; `help` lists the commands
    Control {
        /// Its control socket
        #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_CONTROL)]
        control: String,
        /// The command and its words
        #[arg(required = true, value_name = "WORD")]
        words: Vec<String>,
    },
}

pub const DEFAULT_CONTROL: &str = "/run/trireme-balance/control";

#[derive(Clone, Debug, Default, Args)]
pub struct Serve {
    /// Servers, HOST[:PORT[:WEIGHT]] or a socket's path, with commas between; one is enough in a group, the others are found
    #[arg(long, value_name = "SERVERS", value_delimiter = ',', action = ArgAction::Append)]
    pub nodes: Vec<String>,
    /// Listen here for clients that write
    #[arg(long, value_name = "ADDRESS")]
    pub writer: Vec<String>,
    /// Listen here for clients that only read
    #[arg(long, value_name = "ADDRESS")]
    pub reader: Vec<String>,
    /// Listen here for clients that may go to any server
    #[arg(long, value_name = "ADDRESS")]
    pub any: Vec<String>,
    /// Listen here for clients whose statements are read: writes go to the writer and reads to a reader that has caught up with them
    #[arg(long, value_name = "ADDRESS")]
    pub split: Vec<String>,
    /// The writes that a read of --split has seen: all (every commit before it), or own (what this client wrote and read before, in this session). With own
    /// a reader that is known to be up to date answers at once
    #[arg(long, value_name = "CAUSALITY", default_value = "all")]
    pub causal: String,
    /// A listener with a policy of its own: ADDRESS=ROLE[:POLICY[:top]], for instance 3310=any:source
    #[arg(long, value_name = "LISTENER")]
    pub listen: Vec<String>,
    /// How --reader and --any choose: least (connections by weight), round, single, random, source (the client's address)
    #[arg(long, value_name = "POLICY", default_value = "least")]
    pub policy: String,
    /// Use only the servers of the highest weight
    #[arg(long)]
    pub top: bool,
    /// Host that listeners without one use [default: all addresses, IPv6 and IPv4]
    #[arg(long, value_name = "HOST", default_value = "::")]
    pub bind: String,
    /// Account that asks the servers for their state
    #[arg(long, value_name = "NAME", default_value = "root")]
    pub user: String,
    /// File whose first line is that account's password
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// That account logs in by TLS, to servers whose certificate was signed by one in this file; without it, by TLS where a server insists
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Time between two looks at a server
    #[arg(long, value_name = "TIME", default_value = "250ms")]
    pub interval: String,
    /// A server that has not answered for so long is out, whatever the others say
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub timeout: String,
    /// A server must greet a client within this time, else the next one is tried
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub connect_timeout: String,
    /// Keep new clients waiting for so long while no server is fit
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub hold: String,
    /// Sessions of a former writer that lives end after this time
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub grace: String,
    /// A server that comes back gets its whole share after this time
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub ramp: String,
    /// Clients at most [default: as the limit of open files allows]
    #[arg(long, value_name = "NUMBER")]
    pub max_connections: Option<usize>,
    /// Sessions on one server at most
    #[arg(long, value_name = "NUMBER")]
    pub node_limit: Option<usize>,
    /// Connections to one server that are being made, at most
    #[arg(long, value_name = "NUMBER", default_value_t = 64)]
    pub connecting_limit: usize,
    /// Use the servers that are named, and no others
    #[arg(long)]
    pub no_discover: bool,
    /// Prefer servers of this gmcast.segment for readers and any
    #[arg(long, value_name = "NUMBER")]
    pub segment: Option<u8>,
    /// Correct the weights by how fast the servers answer
    #[arg(long)]
    pub by_latency: bool,
    /// Ask this program instead of the servers: it gets HOST:PORT as its first argument, and for each line `poll` answers 0 to 3 (GLB's watchdog)
    #[arg(long, value_name = "COMMAND")]
    pub exec: Option<String>,
    /// Where `trireme monitor` is listened to, which says at once what its node sees: a port, at each server's host; or HOST[:PORT] or sockets,
    /// with commas between; or `off`. The servers are asked besides, and alone where no monitor answers
    #[arg(long, value_name = "MONITORS", value_delimiter = ',', default_value = "9105")]
    pub monitors: Vec<String>,
    /// File whose first line the monitors ask for (their --token-file)
    #[arg(long, value_name = "FILE")]
    pub monitor_token_file: Option<PathBuf>,
    /// Tell the servers who the client is, by the PROXY protocol (the servers must allow it: proxy_protocol_networks)
    #[arg(long)]
    pub send_proxy: bool,
    /// Expect the PROXY protocol from clients of these networks: ADDRESS[/BITS] or *, with commas between
    #[arg(long, value_name = "NETWORKS", value_delimiter = ',')]
    pub accept_proxy: Vec<String>,
    /// Take commands here: a unix socket (mode 0600), or [HOST:]PORT on loopback
    #[arg(long, value_name = "ADDRESS")]
    pub control: Option<String>,
    /// Serve /metrics, /ready, /health and /state here; without a host on loopback
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<String>,
    /// Take the listeners over from the balancer with this control socket, which then ends with its last session
    #[arg(long, value_name = "PATH")]
    pub takeover: Option<PathBuf>,
    /// Threads [default: one for each core]
    #[arg(long, value_name = "NUMBER")]
    pub threads: Option<usize>,
    /// Read options from this file; what is typed counts too, and wins
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Reads the words of a file and of a command line together.
#[derive(Debug, Parser)]
#[command(name = "trireme balance", no_binary_name = true, args_override_self = true)]
pub struct Words {
    #[command(flatten)]
    pub serve: Serve,
}

impl Words {
    /// Nothing typed.
    pub fn default_serve() -> Serve {
        Words::parse_from(Vec::<String>::new()).serve
    }
}
