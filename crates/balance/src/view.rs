//! The picture of a balancer that operators see. It is written in three ways: as JSON, as GLB's table, as metrics.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::health::Fitness;
use crate::pool::{Counters, Node, Pool, Role};
use crate::report::Report;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct View {
    pub version: String,
    pub uptime_seconds: f64,
    /// Name of the server that gets the writes.
    pub writer: Option<String>,
    pub writer_changes: u64,
    pub clients: usize,
    pub clients_max: usize,
    pub leaving: bool,
    pub listeners: Vec<ListenerView>,
    pub nodes: Vec<NodeView>,
    pub totals: TotalsView,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListenerView {
    pub address: String,
    pub role: String,
    pub policy: String,
    /// A client would get a server.
    pub serves: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeView {
    pub address: String,
    pub name: String,
    /// `ready`, `last-choice` or `out`.
    pub state: String,
    /// Why it is not ready, in a word and in full.
    pub reason: String,
    pub detail: String,
    pub writer: bool,
    pub sequencer: bool,
    pub drained: bool,
    pub given: bool,
    pub weight: f64,
    pub connections: usize,
    pub connecting: usize,
    pub opened: u64,
    pub failed: u64,
    pub closed: u64,
    pub outages: u64,
    pub to_server_bytes: u64,
    pub to_client_bytes: u64,
    pub latency_ms: Option<f64>,
    pub backlog: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TotalsView {
    pub accepted: u64,
    pub refused_limit: u64,
    pub refused_unfit: u64,
    pub held: u64,
    pub held_served: u64,
    pub broken: u64,
    pub accept_errors: u64,
    /// Events of monitors.
    pub pushed: u64,
    /// Of `--split`: statements that readers answered, those of them that waited for nothing, clients joined to the writer for good, clients that went on with another writer,
    /// statements that were sent once more.
    pub split_reads: u64,
    pub split_unasked: u64,
    pub split_pinned: u64,
    pub split_moved: u64,
    pub split_repeated: u64,
    pub to_server_bytes: u64,
    pub to_client_bytes: u64,
    pub reads: u64,
    pub writes: u64,
}

impl NodeView {
    pub fn of(pool: &Pool, node: &Node) -> NodeView {
        let state = match &node.fitness {
            Fitness::Ready => "ready",
            Fitness::LastChoice(_) => "last-choice",
            Fitness::Out(_) => "out",
        };
        let why = node.fitness.why();
        let member = node.health.report().and_then(Report::member);
        let Counters { opened, failed, closed, outages } = node.counters;
        NodeView {
            address: node.address.to_string(),
            name: node.name(),
            state: state.to_owned(),
            reason: why.map_or(String::new(), |why| why.word().to_owned()),
            detail: why.map_or(String::new(), ToString::to_string),
            writer: pool.writer() == Some(node.id),
            sequencer: member.and_then(|m| m.order.as_ref()).is_some_and(|order| order.sequencer)
                && !node.fitness.is_out(),
            drained: node.drained,
            given: node.is_given(),
            weight: node.weight,
            connections: node.connections,
            connecting: node.connecting,
            opened,
            failed,
            closed,
            outages,
            to_server_bytes: 0,
            to_client_bytes: 0,
            latency_ms: node.latency.map(|latency| latency.as_secs_f64() * 1e3),
            backlog: member.map_or(0, |m| m.backlog),
        }
    }
}

impl View {
    /// Every listener has a server for its clients.
    pub fn ready(&self) -> bool {
        !self.leaving && self.listeners.iter().all(|listener| listener.serves)
    }

    /// GLB's `getinfo`. Usage is the part of a server's weight that connections take, as its policy `least` has it.
    pub fn getinfo(&self) -> String {
        let rule = "-".repeat(54);
        let mut out = format!("Router:\n{rule}\n        Address       :   weight   usage    map  conns\n");
        for node in &self.nodes {
            // Out is what GLB calls weight 0 or removed.
            let weight = if node.state == "out" || node.drained { 0.0 } else { node.weight };
            let usage = 1.0 - 1.0 / (node.connections as f64 + 1.0);
            let _ = writeln!(out, "{:<21} : {weight:8.3} {usage:7.3}    N/A  {:5}", node.address, node.connections);
        }
        let _ = writeln!(
            out,
            "{rule}\nDestinations: {}, total connections: {} of {} max",
            self.nodes.len(),
            self.clients,
            self.clients_max
        );
        out
    }

    /// The table of `trireme balance top`.
    pub fn table(&self) -> String {
        let t = &self.totals;
        let mut out = format!(
            "writer {}   clients {} of {}   held {}   refused {}   up {:.0} s{}\n\n",
            self.writer.as_deref().unwrap_or("none"),
            self.clients,
            self.clients_max,
            t.held,
            t.refused_limit + t.refused_unfit,
            self.uptime_seconds,
            if self.leaving { "   leaving" } else { "" }
        );
        let _ = writeln!(
            out,
            "{:<24} {:<12} {:<12} {:<10} {:>7} {:>7} {:>9} {:>7} {:>9} {:>11} {:>11}",
            "SERVER",
            "NAME",
            "STATE",
            "ROLE",
            "WEIGHT",
            "CONNS",
            "OPENED",
            "FAILED",
            "LOOK ms",
            "TO SERVER",
            "TO CLIENT"
        );
        for n in &self.nodes {
            let state = match (n.drained, n.reason.as_str()) {
                (true, _) => "drained",
                (false, "") => "ready",
                (false, reason) => reason,
            };
            let role = match (n.writer, n.sequencer) {
                (true, true) => "writer*",
                (true, false) => "writer",
                (false, true) => "reader*",
                (false, false) => "reader",
            };
            let _ = writeln!(
                out,
                "{:<24} {:<12} {:<12} {:<10} {:>7.2} {:>7} {:>9} {:>7} {:>9} {:>11} {:>11}",
                n.address,
                n.name,
                state,
                role,
                n.weight,
                n.connections,
                n.opened,
                n.failed,
                n.latency_ms.map_or("-".to_owned(), |ms| format!("{ms:.1}")),
                size(n.to_server_bytes),
                size(n.to_client_bytes)
            );
        }
        let _ = writeln!(out);
        for l in &self.listeners {
            let serves = if l.serves { "" } else { "   NO SERVER" };
            let _ = writeln!(out, "{:<24} {:<7} {}{serves}", l.address, l.role, l.policy);
        }
        out
    }

    /// Prometheus' text format.
    pub fn metrics(&self) -> String {
        let mut out = String::new();
        let mut family = |name: &str, kind: &str, help: &str, rows: Vec<(String, f64)>| {
            let _ = writeln!(out, "# HELP trireme_balance_{name} {help}\n# TYPE trireme_balance_{name} {kind}");
            for (labels, value) in rows {
                let _ = writeln!(out, "trireme_balance_{name}{labels} {value}");
            }
        };
        let one = |value: f64| vec![(String::new(), value)];
        let t = &self.totals;
        family("build_info", "gauge", "Version.", vec![(labels(&[("version", &self.version)]), 1.0)]);
        family("uptime_seconds", "gauge", "Since the start.", one(self.uptime_seconds));
        family("ready", "gauge", "1: every listener has a server for its clients.", one(flag(self.ready())));
        family("clients", "gauge", "Clients that are connected.", one(self.clients as f64));
        family("clients_max", "gauge", "Clients that may be connected.", one(self.clients_max as f64));
        family("has_writer", "gauge", "1: there is a server for the writes.", one(flag(self.writer.is_some())));
        family(
            "writer_changes_total",
            "counter",
            "How often another server got the writes.",
            one(self.writer_changes as f64),
        );
        family("clients_accepted_total", "counter", "Clients that came.", one(t.accepted as f64));
        family(
            "clients_refused_total",
            "counter",
            "Clients that got an error packet.",
            vec![
                (labels(&[("reason", "limit")]), t.refused_limit as f64),
                (labels(&[("reason", "unfit")]), t.refused_unfit as f64),
            ],
        );
        family("clients_held_total", "counter", "Clients that waited for a server.", one(t.held as f64));
        family("clients_held_served_total", "counter", "Clients that waited and got one.", one(t.held_served as f64));
        family(
            "clients_broken_total",
            "counter",
            "Clients that left or broke the protocol before they had a server.",
            one(t.broken as f64),
        );
        family(
            "accept_errors_total",
            "counter",
            "Failures to accept, such as too many open files.",
            one(t.accept_errors as f64),
        );
        family("monitor_events_total", "counter", "Events that monitors of servers pushed.", one(t.pushed as f64));
        let split = "Of --split: statements that readers answered; those of them that waited for nothing; clients pinned to the writer; clients that went on with another \
                     writer; statements sent once more.";
        family(
            "split_total",
            "counter",
            split,
            [
                ("reads", t.split_reads),
                ("unasked", t.split_unasked),
                ("pinned", t.split_pinned),
                ("moved", t.split_moved),
                ("repeated", t.split_repeated),
            ]
            .map(|(what, n)| (labels(&[("event", what)]), n as f64))
            .to_vec(),
        );
        let per_node = |value: &dyn Fn(&NodeView) -> f64| -> Vec<(String, f64)> {
            self.nodes.iter().map(|n| (labels(&[("address", &n.address), ("node", &n.name)]), value(n))).collect()
        };
        family(
            "node_state",
            "gauge",
            "1: ready, 0.5: last choice, 0: out; the label says why.",
            self.nodes
                .iter()
                .map(|n| {
                    let value = match n.state.as_str() {
                        "ready" => 1.0,
                        "last-choice" => 0.5,
                        _ => 0.0,
                    };
                    (labels(&[("address", &n.address), ("node", &n.name), ("reason", &n.reason)]), value)
                })
                .collect(),
        );
        family("node_writer", "gauge", "1: it gets the writes.", per_node(&|n| flag(n.writer)));
        family("node_drained", "gauge", "1: drained.", per_node(&|n| flag(n.drained)));
        family("node_weight", "gauge", "Its weight.", per_node(&|n| n.weight));
        family("node_connections", "gauge", "Sessions on it.", per_node(&|n| n.connections as f64));
        family("node_connections_opened_total", "counter", "Sessions that it got.", per_node(&|n| n.opened as f64));
        family(
            "node_connections_failed_total",
            "counter",
            "Connections to it that failed.",
            per_node(&|n| n.failed as f64),
        );
        family(
            "node_connections_closed_total",
            "counter",
            "Sessions ended as it was out or no writer.",
            per_node(&|n| n.closed as f64),
        );
        family("node_outages_total", "counter", "How often it went out.", per_node(&|n| n.outages as f64));
        family("node_to_server_bytes_total", "counter", "Bytes from clients.", per_node(&|n| n.to_server_bytes as f64));
        family("node_to_client_bytes_total", "counter", "Bytes to clients.", per_node(&|n| n.to_client_bytes as f64));
        family("node_backlog", "gauge", "Write sets that it has to apply.", per_node(&|n| n.backlog as f64));
        family(
            "node_look_seconds",
            "gauge",
            "Time of an answer, smoothed.",
            per_node(&|n| n.latency_ms.unwrap_or(0.0) / 1e3),
        );
        out
    }
}

/// One of `Role`'s names, and how it chooses.
pub fn listener(address: String, role: Role, policy: String, serves: bool) -> ListenerView {
    ListenerView { address, role: role.name().to_owned(), policy, serves }
}

fn flag(yes: bool) -> f64 {
    f64::from(u8::from(yes))
}

fn labels(pairs: &[(&str, &str)]) -> String {
    let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let words: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
    format!("{{{}}}", words.join(","))
}

fn size(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} B"),
        10_000..=9_999_999 => format!("{} kB", bytes / 1000),
        10_000_000..=9_999_999_999 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{} GB", bytes / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(address: &str, connections: usize) -> NodeView {
        NodeView {
            address: address.into(),
            name: "n\"1".into(),
            state: "ready".into(),
            reason: String::new(),
            detail: String::new(),
            writer: true,
            sequencer: true,
            drained: false,
            given: true,
            weight: 1.0,
            connections,
            connecting: 0,
            opened: 5,
            failed: 0,
            closed: 0,
            outages: 0,
            to_server_bytes: 1,
            to_client_bytes: 2,
            latency_ms: Some(1.5),
            backlog: 0,
        }
    }

    fn view() -> View {
        View {
            version: "1".into(),
            uptime_seconds: 2.0,
            writer: Some("n1".into()),
            writer_changes: 1,
            clients: 1,
            clients_max: 493,
            leaving: false,
            listeners: vec![listener("[::]:3307".into(), Role::Writer, "least".into(), true)],
            nodes: vec![node("192.168.0.1:3306", 1), node("192.168.0.2:3306", 0)],
            totals: TotalsView::default(),
        }
    }

    #[test]
    fn getinfo_has_the_shape_that_scripts_parse() {
        let text = view().getinfo();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Router:");
        assert_eq!(lines[2], "        Address       :   weight   usage    map  conns");
        assert_eq!(lines[3], "192.168.0.1:3306      :    1.000   0.500    N/A      1");
        assert_eq!(lines[6], "Destinations: 2, total connections: 1 of 493 max");
    }

    #[test]
    fn metrics_are_well_formed() {
        let text = view().metrics();
        let mut names = std::collections::BTreeSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let name = rest.split(' ').next().unwrap().to_owned();
                assert!(rest.ends_with(" counter") == name.ends_with("_total"), "{line}");
                assert!(names.insert(name), "{line} twice");
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').unwrap();
                value.parse::<f64>().unwrap();
                assert!(names.contains(series.split('{').next().unwrap()), "{line}");
            }
        }
        assert!(text.contains(r#"node="n\"1""#));
    }

    #[test]
    fn a_listener_without_server_or_a_leaving_balancer_is_not_ready() {
        assert!(view().ready());
        assert!(!View { leaving: true, ..view() }.ready());
        let mut one = view();
        one.listeners[0].serves = false;
        assert!(!one.ready() && one.table().contains("NO SERVER"));
    }

    #[test]
    fn json_survives_a_round_trip() {
        let text = serde_json::to_string(&view()).unwrap();
        let back: View = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
    }
}
