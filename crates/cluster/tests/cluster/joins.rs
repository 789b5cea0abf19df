//! Nodes that come and come back.

use crate::support::{
    Bed, Load, assert_all_there, assert_equal, await_status, client, client_in_d, eventually, fill, node, schema,
};
use trireme_cluster::{Cluster, SstMethod, Start, Stop};

pub fn joins_by_rsync_under_load(bed: &Bed) {
    join_under_load(bed, SstMethod::Rsync);
}

pub fn joins_by_mariabackup_under_load(bed: &Bed) {
    join_under_load(bed, SstMethod::Mariabackup);
}

pub fn joins_by_mysqldump_under_load(bed: &Bed) {
    join_under_load(bed, SstMethod::Mysqldump);
}

fn join_under_load(bed: &Bed, method: SstMethod) {
    let mut spec = bed.spec();
    spec.nodes = 2;
    spec.sst = method;
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    fill(&cluster, 10_000);
    let load = Load::start(&cluster.endpoints());
    cluster.add(Vec::new(), &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    load.await_progress(50);
    let acknowledged = load.finish();
    for n in 1..=3 {
        assert_all_there(&cluster, n, &acknowledged);
        await_status(&cluster, n, "wsrep_cluster_size", "3");
    }
    assert_equal(&cluster);
    // The new node is a full master.
    client_in_d(&cluster, 3).run("INSERT INTO bulk VALUES (0, 'from the joiner')");
    assert_eq!(client_in_d(&cluster, 1).number("SELECT COUNT(*) FROM bulk WHERE id=0"), 1);
    assert_equal(&cluster);
}

pub fn returning_node_catches_up_without_a_copy(bed: &Bed) {
    let mut cluster = bed.up(&bed.spec());
    schema(&cluster, 1);
    fill(&cluster, 1000);
    assert_equal(&cluster);
    for (round, how, start) in
        [("b", Stop::Graceful, Start::Plain), ("c", Stop::Graceful, Start::Recover), ("d", Stop::Kill, Start::Recover)]
    {
        cluster.stop(node(3), how).unwrap();
        await_status(&cluster, 1, "wsrep_cluster_size", "2");
        // A copy by rsync replaces the schema directories: one that nobody else has would be gone.
        let marker = cluster.node(node(3)).unwrap().data().join("marker");
        std::fs::create_dir_all(&marker).unwrap();
        let before = cluster.endpoints();
        let load = if round == "b" { Load::start(&before) } else { Load::resume(&before, round) };
        load.await_progress(200);
        client_in_d(&cluster, 1).run(&format!("CREATE TABLE while_away_{round} (id INT PRIMARY KEY)"));
        cluster.start(node(3), start, &mut |_| {}).unwrap_or_else(|error| panic!("after {how:?}: {error}"));
        let acknowledged = load.finish();
        assert!(marker.is_dir(), "node3 took a full copy after {how:?}, {start:?}");
        std::fs::remove_dir(&marker).unwrap();
        assert_all_there(&cluster, 3, &acknowledged);
        assert_equal(&cluster);
    }
}

pub fn joiner_killed_in_mid_transfer(bed: &Bed) {
    let mut spec = bed.spec();
    spec.nodes = 2;
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    fill(&cluster, 40_000);
    let load = Load::start(&cluster.endpoints());

    // Node 3 joins once, so that it is known; then it loses its data, and is killed while it gets them anew.
    cluster.add(Vec::new(), &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    for _ in 0..2 {
        cluster.stop(node(3), Stop::Kill).unwrap();
        let _ = std::fs::remove_file(cluster.node(node(3)).unwrap().data().join("grastate.dat"));
        cluster.launch(node(3), Start::Plain).unwrap();
        eventually("a donor is at work", || {
            let states: Vec<String> = cluster.status().into_iter().map(|s| s.state).collect();
            if states.iter().any(|s| s.starts_with("Donor")) { Ok(()) } else { Err(states.join(", ")) }
        });
        cluster.kill(node(3)).unwrap();
        for n in 1..=2 {
            await_status(&cluster, n, "wsrep_local_state_comment", "Synced");
            await_status(&cluster, n, "wsrep_cluster_size", "2");
        }
        load.await_progress(20);
    }
    cluster.start(node(3), Start::Plain, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    let acknowledged = load.finish();
    assert_all_there(&cluster, 3, &acknowledged);
    assert_equal(&cluster);
}

pub fn donor_is_chosen_by_name(bed: &Bed) {
    let mut cluster = bed.up(&bed.spec());
    schema(&cluster, 1);
    fill(&cluster, 1000);
    for (donors, expected) in [("node2", 2), ("node9,node3", 3), ("node9,", 0)] {
        let donations_before = donations(&cluster);
        let id = cluster
            .add(vec![format!("wsrep_sst_donor={donors}")], &mut |_| {})
            .unwrap_or_else(|error| panic!("donor list {donors}: {error}"));
        let donated: Vec<u8> = donations(&cluster)
            .into_iter()
            .zip(donations_before)
            .filter(|((_, after), (_, before))| after > before)
            .map(|((n, _), _)| n)
            .collect();
        if expected == 0 {
            assert_eq!(donated.len(), 1, "donor list {donors}: donated {donated:?}");
        } else {
            assert_eq!(donated, [expected], "donor list {donors}");
        }
        cluster.remove(id).unwrap();
        await_status(&cluster, 1, "wsrep_cluster_size", "3");
    }
    assert_equal(&cluster);
    // Clients of a donor are served all the time.
    assert_eq!(client(&cluster, 1).number("SELECT COUNT(*) FROM d.bulk"), 1000);
}

/// How often each of the first three nodes ran the donor's script.
fn donations(cluster: &Cluster) -> Vec<(u8, usize)> {
    (1..=3)
        .map(|n| {
            let log = std::fs::read(cluster.node(node(n)).unwrap().log()).unwrap();
            let count = String::from_utf8_lossy(&log)
                .lines()
                .filter(|line| line.contains("Running: 'wsrep_sst_") && line.contains("--role 'donor'"))
                .count();
            (n, count)
        })
        .collect()
}
