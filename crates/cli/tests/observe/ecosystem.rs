//! The eyes of other programs: Prometheus' own checker, Grafana's dashboard, and what exporters and dashboards for Galera ask.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use trireme_cluster::NodeId;
use trireme_metrics::names::METRICS;

use crate::dashboard::{monitors, schema};
use crate::{Process, cluster_of_three, free_port, get, until};

fn packaged(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging")).join(name)
}

/// `false`: it is not on this machine, and that is told.
fn there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    if !found {
        println!("SKIPPED what needs {program}: scripts/install-deps.sh --browser");
    }
    found
}

/// Names of metrics in an expression.
fn names(expression: &str) -> Vec<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("trireme_")).collect()
}

fn is_served(name: &str) -> bool {
    let bare = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    ["trireme_up", "trireme_state_age_seconds", "trireme_build_info"].contains(&name)
        || METRICS.iter().any(|metric| metric.name == name || metric.name == bare)
}

#[test]
fn alerts_are_rules_and_ask_for_what_is_served() {
    let rules = packaged("prometheus/trireme.rules.yml");
    let text = std::fs::read_to_string(&rules).unwrap();
    let expressions: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    assert!(expressions.len() > 5);
    for name in expressions.iter().flat_map(|expression| names(expression)) {
        assert!(is_served(name), "{name}");
    }
    if there("promtool") {
        let output = Command::new("promtool").args(["check", "rules"]).arg(&rules).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Each alert fires for what it is meant for, and for nothing else that is played there.
#[test]
fn alerts_fire_when_they_should() {
    let cases = packaged("../crates/cli/tests/observe/alerts.yml");
    let text = std::fs::read_to_string(packaged("prometheus/trireme.rules.yml")).unwrap();
    let played = std::fs::read_to_string(&cases).unwrap();
    let alerts: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 5);
    for alert in alerts {
        let marks = played.lines().filter(|line| line.trim() == format!("alertname: {alert}")).count();
        assert!(marks >= 2, "{alert} is to be played once when it fires, and once when it does not");
    }
    if there("promtool") {
        let output = Command::new("promtool").args(["test", "rules"]).arg(&cases).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}

#[test]
fn grafanas_dashboard_asks_for_what_is_served() {
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(packaged("grafana/trireme.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let of = |panel: &Value| -> Vec<String> {
        panel["targets"].as_array().unwrap().iter().map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
    };
    let expressions: Vec<String> = panels.iter().flat_map(of).collect();
    assert!(panels.len() > 10);
    for expression in &expressions {
        let asked = names(expression);
        assert!(!asked.is_empty(), "{expression}");
        for name in asked {
            assert!(is_served(name), "{name}");
        }
    }
    if there("promtool") {
        // As rules, in which the variables have values.
        let rule = |(n, expression): (usize, &String)| {
            let expression = expression.replace("$instance", ".*").replace("$__rate_interval", "1m");
            format!("      - record: panel:{n}\n        expr: >-\n          {expression}\n")
        };
        let rules: String = expressions.iter().enumerate().map(rule).collect();
        let file = std::env::temp_dir().join(format!("trireme-panels-{}.yml", std::process::id()));
        std::fs::write(&file, format!("groups:\n  - name: panels\n    rules:\n{rules}")).unwrap();
        let output = Command::new("promtool").args(["check", "rules"]).arg(&file).output().unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The variables that `myq_status` reads for its wsrep view.
const MYQ: [&str; 16] = [
    "wsrep_cluster_conf_id",
    "wsrep_cluster_size",
    "wsrep_local_index",
    "wsrep_replicated",
    "wsrep_received",
    "wsrep_replicated_bytes",
    "wsrep_received_bytes",
    "wsrep_local_send_queue",
    "wsrep_local_recv_queue",
    "wsrep_flow_control_paused_ns",
    "wsrep_flow_control_sent",
    "wsrep_local_cert_failures",
    "wsrep_local_bf_aborts",
    "wsrep_last_committed",
    "wsrep_local_cached_downto",
    "wsrep_apply_window",
];

/// The metrics that PMM's dashboards for Galera ask of `mysqld_exporter`, and the exporter's own alerts.
const PMM: [&str; 29] = [
    "mysql_global_status_wsrep_cluster_size",
    "mysql_global_status_wsrep_cluster_status",
    "mysql_global_status_wsrep_ready",
    "mysql_global_status_wsrep_connected",
    "mysql_global_status_wsrep_local_state",
    "mysql_global_variables_wsrep_desync",
    "mysql_global_status_wsrep_flow_control_paused_ns",
    "mysql_global_status_wsrep_flow_control_sent",
    "mysql_global_status_wsrep_flow_control_recv",
    // Of Percona XtraDB Cluster; where `repl.status_extended=yes` is set.
    "mysql_global_status_wsrep_flow_control_interval_low",
    "mysql_global_status_wsrep_flow_control_interval_high",
    "mysql_global_status_wsrep_flow_control_status",
    "mysql_global_status_wsrep_received",
    "mysql_global_status_wsrep_received_bytes",
    "mysql_global_status_wsrep_replicated",
    "mysql_global_status_wsrep_replicated_bytes",
    "mysql_global_status_wsrep_local_recv_queue",
    "mysql_global_status_wsrep_local_send_queue",
    "mysql_global_status_wsrep_local_cert_failures",
    "mysql_global_status_wsrep_local_bf_aborts",
    "mysql_global_status_wsrep_apply_window",
    "mysql_global_status_wsrep_commit_window",
    "mysql_global_status_wsrep_cert_deps_distance",
    "mysql_galera_status_info",
    "mysql_galera_variables_info",
    "mysql_galera_gcache_size_bytes",
    "mysql_galera_evs_repl_latency_avg_seconds",
    "mysql_galera_evs_repl_latency_max_seconds",
    "mysql_galera_evs_repl_latency_sample_size",
];

#[test]
#[ignore = "starts real servers: PROVIDER=… cargo test -p trireme-cli --test observe -- --ignored"]
fn tools_for_galera_read_a_cluster() {
    let cluster = cluster_of_three("ecosystem", 200);
    schema(&cluster);
    let first = NodeId::new(1).unwrap();
    for n in 0..20 {
        cluster.sql(first, &format!("UPDATE d.load_ SET n = {} WHERE id = 1", n + 1)).unwrap();
    }
    cluster.sql(first, "CREATE USER look@'%' IDENTIFIED BY 'look'").unwrap();
    cluster.sql(first, "SET GLOBAL wsrep_provider_options='repl.status_extended=yes'").unwrap();
    for name in MYQ {
        let rows = cluster.sql(first, &format!("SHOW GLOBAL STATUS LIKE '{name}'")).unwrap().texts();
        let value = rows.first().and_then(|row| row.get(1)).cloned().unwrap_or_default();
        assert!(value.parse::<f64>().is_ok(), "{name}: {value:?}");
    }
    let node = &cluster.nodes()[0];
    let port = node.ports.sql + 50;
    let _monitors = monitors(&cluster, port);
    until("a monitor", || get((&*node.address, port), "/ready").is_some_and(|(status, _)| status.contains("200")));
    if there("promtool") {
        let metrics = get((&*node.address, port), "/metrics").unwrap().1;
        let mut check = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        check.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
        let output = check.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    if !there("prometheus-mysqld-exporter") {
        return;
    }
    let listen = format!("127.0.0.1:{}", free_port());
    let _exporter = Process(
        Command::new("prometheus-mysqld-exporter")
            .arg(format!("--web.listen-address={listen}"))
            .env("DATA_SOURCE_NAME", format!("look:look@({}:{})/", node.address, node.ports.sql))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let scrape = || get(&*listen, "/metrics").map(|(_, body)| body).filter(|body| body.contains("\nmysql_up 1"));
    until("the exporter", || scrape().is_some());
    let text = scrape().unwrap();
    let value = |name: &str| -> Option<f64> {
        let line = text.lines().find(|line| line.split(['{', ' ']).next() == Some(name))?;
        line.rsplit(' ').next()?.parse().ok()
    };
    for name in PMM {
        assert!(value(name).is_some(), "{name} is missing");
    }
    // Its alerts are silent on a cluster that is well.
    assert_eq!(value("mysql_global_status_wsrep_ready"), Some(1.0));
    assert_eq!(value("mysql_global_status_wsrep_local_state"), Some(4.0));
    assert_eq!(value("mysql_global_variables_wsrep_desync"), Some(0.0));
    assert!(value("mysql_global_status_wsrep_local_recv_queue") < Some(100.0));
    assert_eq!(value("mysql_global_status_wsrep_cluster_status"), Some(1.0));
    // And what is drawn moves.
    assert!(
        value("mysql_galera_evs_repl_latency_sample_size") > Some(0.0)
            && value("mysql_galera_evs_repl_latency_avg_seconds") > Some(0.0)
    );
    assert!(value("mysql_global_status_wsrep_replicated") >= Some(20.0));
}
