//! The eyes of other programs: Prometheus' own checker, and Grafana's dashboard.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use trireme_metrics::names::METRICS;

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
