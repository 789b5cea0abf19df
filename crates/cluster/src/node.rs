//! One node: its number, addresses, ports and files. No behaviour beyond naming things.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use trireme_certificates::Files;

/// 1, 2, 3 …: what users type. Numbers of removed nodes are not used again while the cluster lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(u8);

impl NodeId {
    /// Each node takes [`Ports::PER_NODE`] ports and one loopback address, so the number stays small.
    pub const MAX: u8 = 32;

    /// `None` for 0 and beyond [`NodeId::MAX`].
    pub fn new(n: u8) -> Option<NodeId> {
        (1..=Self::MAX).contains(&n).then_some(NodeId(n))
    }
    pub fn raw(self) -> u8 {
        self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node{}", self.0)
    }
}

impl FromStr for NodeId {
    type Err = String;
    /// Accepts `2` and `node2`.
    fn from_str(s: &str) -> Result<Self, String> {
        s.strip_prefix("node")
            .unwrap_or(s)
            .parse()
            .ok()
            .and_then(NodeId::new)
            .ok_or_else(|| format!("`{s}` is not a node: write 1, 2, … or node1, node2, … (at most {})", Self::MAX))
    }
}

/// The TCP ports of one node. They differ between nodes although the addresses differ too, because the scripts of
/// some transfer methods listen on every address of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    pub sql: u16,
    pub group: u16,
    pub ist: u16,
    pub sst: u16,
}

impl Ports {
    /// Ports set aside per node. More than used, so that a node's ports can be read off its number.
    pub const PER_NODE: u16 = 10;

    /// The ports of node `id` in a cluster whose first port is `base`; `None` when they would exceed 65535.
    pub fn of(base: u16, id: NodeId) -> Option<Ports> {
        let first = base.checked_add((u16::from(id.raw()) - 1).checked_mul(Self::PER_NODE)?)?;
        first.checked_add(Self::PER_NODE - 1)?;
        Some(Ports { sql: first, group: first + 1, ist: first + 2, sst: first + 3 })
    }

    pub fn named(self) -> [(&'static str, u16); 4] {
        [("SQL", self.sql), ("group", self.group), ("IST", self.ist), ("SST", self.sst)]
    }
}

/// One node as the state file keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    pub address: String,
    pub ports: Ports,
    /// Everything of this node lies below.
    pub dir: PathBuf,
    /// The server as last started; meaningful only if the process still is ours, see `process`.
    pub pid: Option<i32>,
    /// Lines `name=value` appended to its `my.cnf`, so they win over everything before them.
    pub options: Vec<String>,
    /// It is no server: it votes, and nothing else.
    #[serde(default)]
    pub arbitrator: bool,
}

impl Node {
    pub fn name(&self) -> String {
        self.id.to_string()
    }
    pub fn config(&self) -> PathBuf {
        self.dir.join(if self.arbitrator { "garb.cnf" } else { "my.cnf" })
    }
    /// The word of its command line that names its configuration, and no other process's.
    pub fn config_word(&self) -> String {
        let option = if self.arbitrator { "--cfg" } else { "--defaults-file" };
        format!("{option}={}", self.config().display())
    }
    /// Where an arbitrator says how it stands.
    pub fn status_file(&self) -> PathBuf {
        self.dir.join("status.json")
    }
    /// The copy of the command that an arbitrator runs.
    pub fn program(&self) -> PathBuf {
        self.dir.join("garbd")
    }
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }
    /// For temporary tables. A server that starts removes those of any other one with the same directory, which then may crash.
    pub fn temporary(&self) -> PathBuf {
        self.dir.join("tmp")
    }
    pub fn socket(&self) -> PathBuf {
        self.dir.join("mysqld.sock")
    }
    pub fn pid_file(&self) -> PathBuf {
        self.dir.join("mysqld.pid")
    }
    /// Server and provider write here; it survives restarts (appended to).
    pub fn log(&self) -> PathBuf {
        self.dir.join("error.log")
    }
    /// The write-set log (`gcache.dir`), where it has a disk of its own.
    pub fn log_dir(&self) -> PathBuf {
        self.dir.join("wslog")
    }
    /// The copy of the provider that this node loads.
    pub fn provider(&self, source: &Path) -> PathBuf {
        self.dir.join(source.file_name().unwrap_or_default())
    }
    /// Key, certificate and authority, where the group is encrypted.
    pub fn tls_files(&self) -> Files {
        Files::below(&self.dir)
    }
    /// The secret that all nodes share, where the group is encrypted with it.
    pub fn secret_file(&self) -> PathBuf {
        self.dir.join("secret")
    }
    pub fn group_endpoint(&self) -> String {
        format!("{}:{}", self.address, self.ports.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_spellings() {
        assert_eq!("3".parse::<NodeId>().unwrap().to_string(), "node3");
        assert_eq!("node3".parse::<NodeId>().unwrap().raw(), 3);
        for bad in ["0", "33", "256", "", "node", "n3", "-1"] {
            assert!(bad.parse::<NodeId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ports_of_nodes_never_overlap() {
        let mut seen = std::collections::BTreeSet::new();
        for n in 1..=NodeId::MAX {
            for (_, port) in Ports::of(21000, NodeId::new(n).unwrap()).unwrap().named() {
                assert!(seen.insert(port), "port {port} twice");
            }
        }
    }

    #[test]
    fn refuses_ports_beyond_the_range() {
        assert_eq!(Ports::of(65530, NodeId::new(1).unwrap()), None);
        assert_eq!(Ports::of(65500, NodeId::new(9).unwrap()), None);
        assert!(Ports::of(65500, NodeId::new(1).unwrap()).is_some());
    }
}
