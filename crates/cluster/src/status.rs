//! The state of a node by its own account.

use crate::node::{Node, NodeId};
use crate::process::{Liveness, liveness};
use crate::sql::{Session, SqlError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// A server that does not answer a status question within this time is shown as not answering.
const PATIENCE: Duration = Duration::from_secs(3);

/// One look at one node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeStatus {
    pub node: NodeId,
    pub address: String,
    pub port: u16,
    pub pid: Option<i32>,
    /// `wsrep_local_state_comment`, or `stopped`, `paused`, `starting` (runs, takes no connections), `no answer`.
    pub state: String,
    /// `wsrep_last_committed`.
    pub seqno: Option<i64>,
    /// `wsrep_local_recv_queue`: write sets received and not yet applied.
    pub queue: Option<u64>,
    /// Whether the node belongs to the part that may commit (`wsrep_cluster_status`), or what the provider calls
    /// the node's part in the group, where it says so.
    pub role: Option<String>,
    /// `wsrep_cluster_size`.
    pub members: Option<u32>,
    /// `wsrep_ready`: whether clients are served.
    pub ready: bool,
    /// Every `wsrep_%` status variable.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
}

impl NodeStatus {
    /// In the primary component, caught up, and open for clients.
    pub fn is_synced(&self) -> bool {
        self.ready
            && self.state == "Synced"
            && self.variables.get("wsrep_cluster_status").is_some_and(|status| status == "Primary")
    }

    /// Frozen by SIGSTOP.
    pub fn is_paused(&self) -> bool {
        self.state == "paused"
    }

    /// The node that slows the group and why, where the provider says so (`repl.status_extended=yes`).
    pub fn slowed_because(&self) -> Option<&str> {
        let reason = self.variables.get("wsrep_trireme_flow_control_reason")?;
        Some(reason.as_str()).filter(|r| !r.is_empty())
    }

    /// A status variable as a number; `None` when it is absent or no number.
    pub fn number(&self, variable: &str) -> Option<f64> {
        self.variables.get(variable)?.parse().ok()
    }
}

/// Looks at one node; takes [`PATIENCE`] at most. Never fails: what cannot be asked is part of the answer.
pub fn sample(node: &Node) -> NodeStatus {
    let mut status = NodeStatus {
        node: node.id,
        address: node.address.clone(),
        port: node.ports.sql,
        pid: None,
        state: String::new(),
        seqno: None,
        queue: None,
        role: None,
        members: None,
        ready: false,
        variables: BTreeMap::new(),
    };
    match liveness(node) {
        Liveness::Gone => {
            status.state = "stopped".to_owned();
            return status;
        }
        Liveness::Paused => {
            status.pid = node.pid;
            status.state = "paused".to_owned();
            return status;
        }
        Liveness::Running => status.pid = node.pid,
    }
    if node.arbitrator {
        match arbitrator(node) {
            Some(report) => report.fill(&mut status),
            None => status.state = "starting".to_owned(),
        }
        return status;
    }
    match variables(node) {
        Ok(variables) => {
            let get = |name: &str| variables.get(name);
            status.state = get("wsrep_local_state_comment").cloned().unwrap_or_else(|| "no wsrep".to_owned());
            status.seqno = get("wsrep_last_committed").and_then(|v| v.parse().ok());
            status.queue = get("wsrep_local_recv_queue").and_then(|v| v.parse().ok());
            status.members = get("wsrep_cluster_size").and_then(|v| v.parse().ok());
            status.ready = get("wsrep_ready").is_some_and(|v| v == "ON");
            status.role = get("wsrep_trireme_role").or(get("wsrep_cluster_status")).cloned();
            status.variables = variables;
        }
        // No socket yet, or closed during shutdown.
        Err(SqlError::Connection(error))
            if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused) =>
        {
            status.state = "starting".to_owned();
        }
        Err(SqlError::Connection(_) | SqlError::Server { .. } | SqlError::Protocol(_)) => {
            status.state = "no answer".to_owned();
        }
    }
    status
}

/// The content of an arbitrator's status file.
#[derive(Deserialize)]
struct Report {
    pid: i32,
    cluster_status: String,
    cluster_size: u32,
    state: String,
    last_committed: Option<i64>,
}

impl Report {
    fn fill(self, status: &mut NodeStatus) {
        status.ready = self.cluster_status == "Primary";
        status.variables.insert("wsrep_cluster_status".to_owned(), self.cluster_status);
        status.variables.insert("wsrep_cluster_size".to_owned(), self.cluster_size.to_string());
        status.variables.insert("wsrep_local_state_comment".to_owned(), self.state.clone());
        status.members = Some(self.cluster_size);
        status.state = self.state;
        status.seqno = self.last_committed;
        status.role = Some("arbitrator".to_owned());
    }
}

/// `None`: nothing yet from the process that runs.
fn arbitrator(node: &Node) -> Option<Report> {
    let report: Report = serde_json::from_slice(&std::fs::read(node.status_file()).ok()?).ok()?;
    // One that was killed leaves its file behind.
    (Some(report.pid) == node.pid).then_some(report)
}

fn variables(node: &Node) -> Result<BTreeMap<String, String>, SqlError> {
    let mut session = Session::open(&node.socket(), None, PATIENCE)?;
    let answer = session.query("SHOW GLOBAL STATUS LIKE 'wsrep%'")?;
    Ok(answer
        .texts()
        .into_iter()
        .filter_map(|row| <[String; 2]>::try_from(row).ok())
        .map(|[name, value]| (name, value))
        .collect())
}
