//! The errors, each as one line that says what to do.

use crate::node::NodeId;
use crate::sql::SqlError;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug)]
pub enum Error {
    /// The request itself makes no sense (too many nodes, a path too long for a socket, …).
    BadSpec(String),
    /// A program or user that the machine lacks.
    Missing {
        what: String,
        advice: String,
    },
    /// No cluster was ever started in this directory.
    NoCluster(PathBuf),
    /// `up` found servers that already run.
    AlreadyRunning {
        dir: PathBuf,
        nodes: Vec<NodeId>,
    },
    NoSuchNode {
        asked: NodeId,
        have: Vec<NodeId>,
    },
    PortInUse {
        node: NodeId,
        what: &'static str,
        address: String,
        port: u16,
    },
    /// The node is not running although the operation needs it.
    NotRunning(NodeId),
    /// The node is an arbitrator: there is nothing to talk SQL to.
    NoServer(NodeId),
    /// The node runs although the operation needs it stopped.
    StillRunning(NodeId),
    /// The server ended while we waited for it; `cause` is taken from its error log.
    Died {
        node: NodeId,
        cause: String,
        log: PathBuf,
    },
    /// A condition did not become true in time.
    Timeout {
        what: String,
        after: Duration,
        last: String,
    },
    /// Single nodes can be cut off only when each has a network namespace.
    NoNamespaces,
    /// The network namespace of this node is not one that this process sees.
    NetworkElsewhere(NodeId),
    Sql {
        node: NodeId,
        error: SqlError,
    },
    /// A helper program (mariadb-install-db, ip, cp …) failed.
    Command {
        command: String,
        output: String,
    },
    Io {
        what: String,
        error: std::io::Error,
    },
    /// The state file is there but cannot be understood.
    BadState {
        path: PathBuf,
        why: String,
    },
    /// A directory or file that another user owns or can change.
    NotOurs(String),
    /// Another `trireme` command is at work in the same directory.
    Busy(PathBuf),
    /// Ctrl-C.
    Interrupted,
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::BadSpec(why) => f.write_str(why),
            Error::Missing { what, advice } => write!(f, "{what} is missing: {advice}"),
            Error::NoCluster(dir) => write!(
                f,
                "no cluster in {}: start one with `trireme cluster up`, or name its directory with --dir",
                dir.display()
            ),
            Error::AlreadyRunning { dir, nodes } => write!(
                f,
                "a cluster already runs in {} ({}): see `trireme cluster status`, end it with `trireme cluster down`, or choose another --dir and --base-port",
                dir.display(),
                list(nodes)
            ),
            Error::NoSuchNode { asked, have } => {
                write!(f, "there is no {asked}; the cluster has {}", list(have))
            }
            Error::PortInUse { node, what, address, port } => write!(
                f,
                "port {port} on {address} ({what} port of {node}) is in use by another program: choose other ports with --base-port"
            ),
            Error::NotRunning(node) => {
                write!(f, "{node} is not running: start it with `trireme cluster restart {}`", node.raw())
            }
            Error::NoServer(node) => write!(f, "{node} is an arbitrator: it has no data and takes no statements"),
            Error::StillRunning(node) => {
                write!(f, "{node} is still running: stop it first with `trireme cluster stop {}`", node.raw())
            }
            Error::Died { node, cause, log } => {
                write!(f, "{node} ended: {cause} (whole log: {})", log.display())
            }
            Error::Timeout { what, after, last } => {
                write!(f, "{what}: not within {:.0} s", after.as_secs_f64())?;
                if !last.is_empty() {
                    write!(f, "; last seen: {last}")?;
                }
                Ok(())
            }
            Error::NoNamespaces => f.write_str(
                "this cluster has no network namespaces, so single nodes cannot be cut off: try it in `trireme up`, or start the cluster as root with `trireme cluster up --netns`",
            ),
            Error::NetworkElsewhere(node) => write!(
                f,
                "the network of {node} cannot be reached from here: type the command where `trireme up` runs; after a reboot `trireme cluster up` makes the networks again"
            ),
            Error::Sql { node, error } => write!(f, "{node}: {error}"),
            Error::Command { command, output } => write!(f, "`{command}` failed: {output}"),
            Error::Io { what, error } => write!(f, "{what}: {error}"),
            Error::BadState { path, why } => write!(
                f,
                "{} cannot be read ({why}): if no server of it runs any more, remove the directory",
                path.display()
            ),
            Error::NotOurs(why) => f.write_str(why),
            Error::Busy(dir) => write!(
                f,
                "another trireme command is changing the cluster in {}: wait for it to end",
                dir.display()
            ),
            Error::Interrupted => f.write_str("interrupted"),
        }
    }
}

fn list(nodes: &[NodeId]) -> String {
    if nodes.is_empty() {
        return "no nodes".to_owned();
    }
    nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ")
}

/// Names what was being done when an I/O error struck.
pub(crate) trait During<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> During<T> for std::io::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::Io { what: what(), error })
    }
}
