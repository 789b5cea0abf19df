//! Binary log and GTIDs beside replication.

use crate::support::{Bed, assert_equal, client_in_d, eventually, schema};

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
    // On every node, whoever wrote: all 60 rows. (A donor starts a new file, so all files count.)
    for n in 1..=3 {
        let mut client = client_in_d(&cluster, n);
        let files = client.run("SHOW BINARY LOGS").texts();
        let events: usize = files
            .iter()
            .flat_map(|file| client.run(&format!("SHOW BINLOG EVENTS IN '{}'", file[0])).texts())
            .filter(|event| event[2].starts_with("Write_rows"))
            .count();
        assert!(events >= 60, "node{n}: {events} rows in its binary log");
    }

    // A joiner continues the numbering; so does everybody after it.
    cluster.add(Vec::new(), &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    for n in 1..=4 {
        client_in_d(&cluster, n).run("INSERT INTO t (v) VALUES (99)");
    }
    same_gtid_position(&cluster);
    assert_equal(&cluster);
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
