//! Binary log and GTIDs beside replication.

use crate::support::{Bed, Load, assert_all_there, assert_equal, client_in_d, eventually, schema};
use trireme_cluster::Start;

pub fn binlog_and_gtid_agree_on_all_nodes(bed: &Bed) {
    let spec = [
        "log_bin=binlog",
        "log_slave_updates=ON",
        "wsrep_gtid_mode=ON",
        "wsrep_gtid_domain_id=9",
        "server_id=7",
        "wsrep_slave_threads=4",
    ]
    .into_iter()
    .fold(bed.spec(), |spec, line| spec.option(line));
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    client_in_d(&cluster, 1).run("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)");
    for round in 0..20 {
        for n in 1..=3 {
            client_in_d(&cluster, n).run(&format!("INSERT INTO t (v) VALUES ({round})"));
        }
    }
    same_gtid_position(&cluster);
    // On every node, whoever wrote: all 60 rows.
    for n in 1..=3 {
        assert_eq!(changes_logged(&cluster, n, "d.t"), 60, "node{n}");
    }

    // A joiner continues the numbering; so does everybody after it.
    cluster.add(Vec::new(), &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    for n in 1..=4 {
        client_in_d(&cluster, n).run("INSERT INTO t (v) VALUES (99)");
    }
    same_gtid_position(&cluster);
    assert_equal(&cluster);
}

/// The promises of docs/durability.md to those who replicate from a node: nothing is missing in its binary log after a crash
/// of all, and nothing stands there twice.
pub fn binary_log_is_exact_after_a_crash(bed: &Bed) {
    let spec = ["log_bin=binlog", "log_slave_updates=ON", "sync_binlog=1", "wsrep_slave_threads=4"]
        .into_iter()
        .fold(bed.spec(), |spec, line| spec.option(line))
        // The later line counts.
        .option("innodb_flush_log_at_trx_commit=1");
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    let load = Load::start(&cluster.endpoints());
    load.await_progress(500);
    cluster.kill_all().unwrap_or_else(|error| panic!("{error}"));
    let acknowledged = load.finish();
    // As the stock service unit does: the position is found with the binary log open.
    for id in cluster.ids() {
        cluster.launch(id, Start::Recover).unwrap_or_else(|error| panic!("{error}"));
    }
    for id in cluster.ids() {
        cluster.wait_synced(id, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    }
    assert_equal(&cluster);
    for n in 1..=3 {
        assert_all_there(&cluster, n, &acknowledged);
        let rows = client_in_d(&cluster, n).number("SELECT COUNT(*) FROM load_rows");
        assert_eq!(changes_logged(&cluster, n, "d.load_rows") as i64, rows, "node{n}");
    }
}

/// How many row events for this table stand in a node's binary log. (A donor starts a new file, so all files count.)
fn changes_logged(cluster: &trireme_cluster::Cluster, n: u8, table: &str) -> usize {
    let mut client = client_in_d(cluster, n);
    let files = client.run("SHOW BINARY LOGS").texts();
    files
        .iter()
        .flat_map(|file| client.run(&format!("SHOW BINLOG EVENTS IN '{}'", file[0])).texts())
        .filter(|event| event[2] == "Table_map" && event[5].ends_with(&format!("({table})")))
        .count()
}

fn same_gtid_position(cluster: &trireme_cluster::Cluster) {
    eventually("all nodes have the same GTID position", || {
        let positions: Vec<String> = cluster
            .ids()
            .into_iter()
            .map(|id| client_in_d(cluster, id.raw()).text("SELECT @@gtid_binlog_pos"))
            .collect();
        let first = &positions[0];
        if first.contains("9-7-") && positions.iter().all(|p| p == first) { Ok(()) } else { Err(positions.join(" | ")) }
    });
}
