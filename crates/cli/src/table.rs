//! Tables on stdout.

use crate::run::print_line;
use trireme_cluster::NodeStatus;
use trireme_observe::table::lines;
pub use trireme_observe::table::or_dash;

pub fn print_status(nodes: &[NodeStatus]) {
    let head = ["NODE", "STATE", "SEQNO", "QUEUE", "ROLE", "MEMBERS", "ADDRESS", "PID"].map(str::to_owned);
    let rows: Vec<Vec<String>> = nodes
        .iter()
        .map(|n| {
            let state =
                if n.ready || n.state != "Synced" { n.state.clone() } else { format!("{} (not ready)", n.state) };
            vec![
                n.node.to_string(),
                state,
                or_dash(n.seqno),
                or_dash(n.queue),
                or_dash(n.role.as_ref()),
                or_dash(n.members),
                format!("{}:{}", n.address, n.port),
                or_dash(n.pid),
            ]
        })
        .collect();
    print(&head, &rows);
}

pub fn print(head: &[String], rows: &[Vec<String>]) {
    for line in lines(head, rows) {
        print_line(&line);
    }
}
