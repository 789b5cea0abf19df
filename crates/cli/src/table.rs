//! Plain aligned tables.

use crate::run::print_line;
use trireme_cluster::NodeStatus;

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

fn lines(head: &[String], rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .chain(head.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    std::iter::once(head)
        .chain(rows.iter().map(Vec::as_slice))
        .map(|row| {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            cells.join("  ").trim_end().to_owned()
        })
        .collect()
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align() {
        let lines = lines(&["A".into(), "B".into()], &[vec!["long".into(), "x".into()], vec!["é".into(), "yy".into()]]);
        assert_eq!(lines, ["A     B", "long  x", "é     yy"]);
    }
}
