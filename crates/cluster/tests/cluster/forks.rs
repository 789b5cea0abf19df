//! The right to begin, and the fate of two sides that were forced apart.

use std::collections::BTreeSet;

use trireme_cluster::{Cluster, Liveness, Start, Stop};

use crate::support::{Bed, assert_equal, await_status, client, client_in_d, eventually, history, node, schema};

/// Nobody is chosen: all are started at once, blank. Later the wrong one is told to begin, and names the right one.
pub fn who_begins(bed: &Bed) {
    let mut spec = bed.spec();
    spec.provider_options = "pc.bootstrap_expect=3".to_owned();
    let mut cluster = bed.up(&spec);
    for n in 1..=3 {
        await_status(&cluster, n, "wsrep_cluster_size", "3");
    }
    let history: BTreeSet<String> = (1..=3).map(|n| history(&cluster, n)).collect();
    assert_eq!(history.len(), 1, "{history:?}");
    schema(&cluster, 1);
    client_in_d(&cluster, 2).all(&["CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)"]);
    cluster.kill(node(3)).unwrap();
    await_status(&cluster, 1, "wsrep_cluster_size", "2");
    client_in_d(&cluster, 1).run("INSERT INTO t VALUES (2)");
    cluster.kill_all().unwrap();

    cluster.launch(node(2), Start::Plain).unwrap();
    await_log(&cluster, 2, "waiting for peers to form the group again");
    edit_state(&cluster, 3, |text| text.replace("safe_to_bootstrap: 0", "safe_to_bootstrap: 1"));
    cluster.launch(node(3), Start::Bootstrap).unwrap();
    eventually("node3 refuses to begin", || match cluster.liveness(node(3)).unwrap() {
        Liveness::Gone => Ok(()),
        other => Err(format!("{other:?}")),
    });
    await_log(&cluster, 3, "Bootstrap node2 (");

    for n in [3, 1] {
        cluster.launch(node(n), Start::Plain).unwrap();
    }
    for n in 1..=3 {
        cluster.wait_synced(node(n), &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    }
    assert_eq!(client_in_d(&cluster, 3).number("SELECT COUNT(*) FROM t"), 2);
    assert_equal(&cluster);
}

/// A minority is forced while the majority goes on. When they meet, the forced one leaves, and nothing is merged.
pub fn forced_sides_do_not_merge(bed: &Bed) {
    let Some(spec) = bed.spec_with_networks() else { return };
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    client_in_d(&cluster, 1).run("CREATE TABLE t (id INT PRIMARY KEY)");
    cluster.partition(&[vec![node(3)]]).unwrap();
    await_status(&cluster, 3, "wsrep_cluster_status", "non-Primary");
    await_status(&cluster, 1, "wsrep_cluster_size", "2");
    client(&cluster, 3).run("SET GLOBAL wsrep_provider_options = 'pc.bootstrap=1'");
    await_status(&cluster, 3, "wsrep_cluster_status", "Primary");
    // The same positions, other contents.
    client_in_d(&cluster, 3).run("INSERT INTO t VALUES (3)");
    client_in_d(&cluster, 1).run("INSERT INTO t VALUES (1)");
    cluster.heal().unwrap();
    await_log(&cluster, 3, "It goes on; this node leaves");
    client_in_d(&cluster, 2).run("INSERT INTO t VALUES (2)");
    cluster.kill(node(3)).unwrap();
    cluster.start(node(3), Start::Plain, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    for n in 1..=3 {
        await_status(&cluster, n, "wsrep_cluster_size", "3");
        let ids = client_in_d(&cluster, n).text("SELECT GROUP_CONCAT(id ORDER BY id) FROM t");
        assert_eq!(ids, "1,2", "node{n}");
    }
    assert_equal(&cluster);
}

/// The node that lost a vote is the only one left. Its files say that its data are void, and a person says otherwise.
pub fn the_loser_of_a_vote_has_the_only_data(bed: &Bed) {
    let mut cluster = bed.up(&bed.spec());
    schema(&cluster, 1);
    client_in_d(&cluster, 1).all(&["CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)"]);
    await_rows(&cluster, 3, "1,2");
    client_in_d(&cluster, 3).all(&["SET SESSION wsrep_on = OFF", "INSERT INTO t VALUES (3)"]);
    client_in_d(&cluster, 1).all(&["INSERT INTO t VALUES (3)", "INSERT INTO t VALUES (4)"]);
    await_log(&cluster, 3, "Inconsistency detected: Inconsistent by consensus on ");
    await_status(&cluster, 1, "wsrep_cluster_size", "2");
    let history = history(&cluster, 1);
    cluster.kill(node(1)).unwrap();
    cluster.kill(node(2)).unwrap();
    cluster.stop(node(3), Stop::Graceful).unwrap();

    edit_state(&cluster, 3, |text| {
        let void = "00000000-0000-0000-0000-000000000000";
        assert!(text.contains(void), "{text}");
        text.replace(void, &history).replace("safe_to_bootstrap: 0", "safe_to_bootstrap: 1")
    });
    cluster.start(node(3), Start::Bootstrap, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    // Also those of the log that its engine has not.
    await_rows(&cluster, 3, "1,2,3,4");
    client_in_d(&cluster, 3).run("INSERT INTO t VALUES (5)");
    for n in [1, 2] {
        cluster.start(node(n), Start::Plain, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
        await_rows(&cluster, n, "1,2,3,4,5");
    }
    assert_equal(&cluster);
}

/// Changes the state file of a node that does not run.
fn edit_state(cluster: &Cluster, n: u8, edit: impl FnOnce(String) -> String) {
    let state = cluster.node(node(n)).unwrap().data().join("grastate.dat");
    let text = std::fs::read_to_string(&state).unwrap();
    std::fs::write(&state, edit(text)).unwrap();
}

fn await_rows(cluster: &Cluster, n: u8, wanted: &str) {
    eventually(&format!("node{n} has {wanted}"), || {
        match client_in_d(cluster, n).text("SELECT GROUP_CONCAT(id ORDER BY id) FROM t") {
            rows if rows == wanted => Ok(()),
            rows => Err(rows),
        }
    });
}

fn await_log(cluster: &Cluster, n: u8, wanted: &str) {
    let log = cluster.node(node(n)).unwrap().log();
    eventually(&format!("node{n} says `{wanted}`"), || {
        let text = std::fs::read(&log).map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&text);
        if text.contains(wanted) { Ok(()) } else { Err("not yet".into()) }
    });
}
