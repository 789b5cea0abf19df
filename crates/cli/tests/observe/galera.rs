//! The same on servers with Galera: by what their status gives.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use trireme_cluster::NodeId;

use crate::dashboard::{Load, schema};
use crate::{Process, cluster_of, get, trireme, trireme_command, until};

const GALERA: &str = "/usr/lib/galera/libgalera_smm.so";

#[test]
#[ignore = "starts real servers: PROVIDER=… cargo test -p trireme-cli --test observe -- --ignored"]
fn galera_is_seen_by_status_top_and_monitor() {
    let provider = PathBuf::from(GALERA);
    if !provider.is_file() {
        println!("SKIPPED Galera: there is no {GALERA} (package galera-4)");
        return;
    }
    let cluster = cluster_of(provider, "galera", 300);
    let first = NodeId::new(1).unwrap();
    schema(&cluster);
    cluster.sql(first, "CREATE USER look@'%' IDENTIFIED BY 'look'").unwrap();
    let host = format!("{}:{}", cluster.nodes()[0].address, cluster.nodes()[0].ports.sql);
    let (code, out, err) = trireme(&["status", "--host", &host, "--user", "look"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(
        out.contains(", Galera ") && out.contains("the primary component has 3 members: any one of them may fail."),
        "{out}"
    );

    // Two findings before a switch: an option that has no effect in Trireme, and a table that does not replicate.
    cluster.sql(first, "CREATE TABLE d.heap_of_rows (a INT PRIMARY KEY) ENGINE=MyISAM").unwrap();
    cluster.sql(first, "GRANT SELECT ON *.* TO look@'%'").unwrap();
    cluster.sql(first, "SET GLOBAL wsrep_provider_options='evs.send_window=9'").unwrap();
    let (code, out, err) = trireme(&["doctor", "--from-galera", "--host", &host, "--user", "look", "--json"]);
    assert_eq!(code, 3, "{out}{err}");
    let findings: Value = serde_json::from_str(&out).unwrap();
    let found = |check: &str, words: &str| {
        let mut list = findings["findings"].as_array().unwrap().iter();
        list.any(|f| f["check"] == check && f["what"].as_str().is_some_and(|what| what.contains(words)))
    };
    assert!(found("no-effect", "evs.send_window=9"), "{out}");
    assert!(found("not-transactional", "d.heap_of_rows"), "{out}");
    // The servers of the test flush once a second; of Galera that is worth a word.
    assert!(found("flush", "innodb_flush_log_at_trx_commit is 0"), "{out}");

    let _load = Load::start(cluster.endpoints());
    let (code, out, err) = trireme(&["top", "--once", "--host", &host, "--user", "look", "--json"]);
    let json: Value = serde_json::from_str(&out).unwrap_or_default();
    assert_eq!(code, 0, "{out}{err}");
    let nodes = json["nodes"].as_array().unwrap();
    assert!(nodes.len() == 3 && nodes.iter().any(|node| node["rates"]["commits"].as_f64() > Some(0.0)), "{out}");

    let port = cluster.nodes()[0].ports.sql + 50;
    let data = cluster.nodes()[0].data();
    let listen = format!("{}:{port}", cluster.nodes()[0].address);
    let _monitor = Process(
        trireme_command(&[
            "monitor",
            "--data-dir",
            data.to_str().unwrap(),
            "--listen",
            &listen,
            "--host",
            &host,
            "--user",
            "look",
        ])
        .stdout(Stdio::null())
        .spawn()
        .unwrap(),
    );
    let all = || {
        get(&*listen, "/cluster").and_then(|(_, body)| serde_json::from_str::<Value>(&body).ok()).unwrap_or_default()
    };
    // The others have no monitor: their servers are asked.
    until("all three", || {
        std::thread::sleep(Duration::from_millis(200));
        let all = all();
        all["nodes"].as_array().is_some_and(|nodes| {
            nodes.len() == 3 && nodes.iter().all(|node| node["source"] == "server" && node["health"] == "synced")
        })
    });
    assert_eq!((all()["level"].as_str(), all()["clusters"][0]["provider"].as_str()), (Some("well"), Some("Galera")));
    assert!(get(&*listen, "/metrics").unwrap().1.contains("\ntrireme_commits_total "));
    assert!(get(&*listen, "/ready").unwrap().0.contains("200"));
}
