//! A network namespace per node, joined by one bridge, and cuts between nodes.
//!
//! A cut is one-way and silent: in the sender's namespace the receiver's address gets a permanent neighbour entry
//! with a hardware address nobody has. Packets leave and are never seen again, as with a broken switch; no
//! error reaches either side, connections stay open. Dropping routes instead would answer the sender with
//! "unreachable", which is a much kinder fault.

use crate::error::{Error, Result};
use crate::node::NodeId;
use crate::process::run;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;

/// Where `ip netns` keeps the names.
const NAMED: &str = "/var/run/netns";
/// Nobody's address: locally administered, unicast.
const NOBODY: &str = "02:74:72:69:00:00";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Network {
    /// Part of every interface and namespace name; interface names have at most 15 bytes.
    tag: String,
    /// First three bytes of the addresses.
    subnet: String,
    /// Cuts in force: packets from the first to the second vanish.
    pub cuts: Vec<(NodeId, NodeId)>,
}

impl Network {
    /// Names follow from the base port, which no two clusters on a machine can share.
    pub fn new(base_port: u16) -> Network {
        Network {
            tag: format!("tr{base_port}"),
            // 198.18.0.0/15 is set aside for tests between networks; ports 10 apart differ in the third byte often
            // enough, and two clusters that collide there are refused by `ip`.
            subnet: format!("198.{}.{}", 18 + (base_port / 10) / 256 % 2, (base_port / 10) % 256),
            cuts: Vec::new(),
        }
    }

    pub fn address(&self, node: NodeId) -> String {
        format!("{}.{}", self.subnet, 10 + node.raw())
    }

    pub fn namespace(&self, node: NodeId) -> String {
        format!("{}n{}", self.tag, node.raw())
    }

    fn bridge(&self) -> String {
        format!("{}br", self.tag)
    }

    fn outer(&self, node: NodeId) -> String {
        format!("{}v{}", self.tag, node.raw())
    }

    /// Creates the bridge; the machine itself gets an address on it so that clients can reach every node.
    pub fn create(&self) -> Result<()> {
        // Left over from a run that was killed: remove, as the name is ours.
        let _ = ip(&["link", "del", &self.bridge()]);
        ip(&["link", "add", &self.bridge(), "type", "bridge"])?;
        ip(&["addr", "add", &format!("{}.1/24", self.subnet), "dev", &self.bridge()])?;
        ip(&["link", "set", &self.bridge(), "up"])
    }

    pub fn add_node(&self, node: NodeId) -> Result<()> {
        let (namespace, outer) = (self.namespace(node), self.outer(node));
        let _ = ip(&["netns", "del", &namespace]);
        let _ = ip(&["link", "del", &outer]);
        ip(&["netns", "add", &namespace])?;
        ip(&["link", "add", &outer, "type", "veth", "peer", "name", "eth0", "netns", &namespace])?;
        ip(&["link", "set", &outer, "master", &self.bridge(), "up"])?;
        ip(&["-n", &namespace, "addr", "add", &format!("{}/24", self.address(node)), "dev", "eth0"])?;
        ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
        ip(&["-n", &namespace, "link", "set", "eth0", "up"])
    }

    /// Whether this process sees the node's namespace. One that another user's namespace holds is seen in there only.
    pub fn is_here(&self, node: NodeId) -> bool {
        Path::new(NAMED).join(self.namespace(node)).exists()
    }

    /// Best effort: what is already gone is fine.
    pub fn remove_node(&mut self, node: NodeId) {
        self.cuts.retain(|(from, to)| *from != node && *to != node);
        let _ = ip(&["netns", "del", &self.namespace(node)]);
        let _ = ip(&["link", "del", &self.outer(node)]);
    }

    pub fn remove(&self) {
        let _ = ip(&["link", "del", &self.bridge()]);
    }

    /// Lets packets from `from` to `to` vanish. Cutting twice is the same as once.
    pub fn cut(&mut self, from: NodeId, to: NodeId) -> Result<()> {
        ip(&[
            "-n",
            &self.namespace(from),
            "neigh",
            "replace",
            &self.address(to),
            "lladdr",
            NOBODY,
            "nud",
            "permanent",
            "dev",
            "eth0",
        ])?;
        if !self.cuts.contains(&(from, to)) {
            self.cuts.push((from, to));
        }
        Ok(())
    }

    /// Undoes every cut.
    pub fn heal(&mut self) -> Result<()> {
        while let Some((from, to)) = self.cuts.last().copied() {
            ip(&["-n", &self.namespace(from), "neigh", "del", &self.address(to), "dev", "eth0"])?;
            self.cuts.pop();
        }
        Ok(())
    }
}

/// Whether namespaces can be had: root, and the `ip` command with the rights to use it.
pub fn check() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::BadSpec("--netns needs root: run the command with sudo, or leave --netns out".to_owned()));
    }
    let probe = format!("trprobe{}", std::process::id());
    ip(&["netns", "add", &probe])?;
    ip(&["netns", "del", &probe])
}

fn ip(arguments: &[&str]) -> Result<()> {
    run(Command::new("ip").args(arguments).env("PATH", crate::process::search_path())).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_names_fit_the_kernel() {
        let network = Network::new(65000);
        let node = NodeId::new(NodeId::MAX).unwrap();
        for name in [network.bridge(), network.outer(node)] {
            assert!(name.len() <= 15, "{name}");
        }
    }
}
