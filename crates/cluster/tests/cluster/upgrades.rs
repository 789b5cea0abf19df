//! Two versions of the library in one cluster. `$FORMER_PROVIDER` names that of the former release, which `scripts/former-provider` builds.

use std::path::PathBuf;

use trireme_cluster::{Cluster, LogCursor, NodeId, Start, Stop};

use crate::support::{
    Bed, Load, assert_all_there, assert_equal, assert_no_copy, await_status, client, node, schema, start_all,
};

const LEVEL: &str = "wsrep_trireme_group_level";

/// One node after the other under load, a death of all in the middle, one step back, the rise, and a step back that comes too late.
pub fn a_rolling_upgrade_under_load(bed: &Bed) {
    let Some(former) = std::env::var_os("FORMER_PROVIDER").filter(|path| !path.is_empty()) else {
        return bed.skip("needs the former release: FORMER_PROVIDER=$(scripts/former-provider)");
    };
    let former = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(former);
    let newer = bed.provider().to_owned();
    let mut spec = bed.spec();
    spec.provider.clone_from(&former);
    spec.provider_options = "repl.status_extended=yes".to_owned();
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    let endpoints = cluster.endpoints();
    let load = Load::start(&endpoints);
    load.await_progress(50);

    cluster.set_provider(&newer).unwrap();
    for n in [3, 2] {
        again(&mut cluster, n, &load);
        await_status(&cluster, n, LEVEL, "1");
    }
    let waits = client(&cluster, 3).text(
        "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'wsrep_trireme_group_level_waits_for'",
    );
    assert!(waits.contains("node1") && waits.contains("supports level 1 at most"), "{waits}");

    // All die while two versions are in. Node 1's library is still the former one when it starts.
    let mut kept = load.finish();
    cluster.kill_all().unwrap();
    let order: Vec<NodeId> = [2, 3].map(node).to_vec();
    for id in &order {
        cluster.launch(*id, Start::Plain).unwrap();
    }
    cluster.set_provider(&former).unwrap();
    let logs = start_all(&mut cluster, &[node(1)], "after the death of all");
    assert_no_copy(&logs, "after the death of all");
    for n in 1..=3 {
        await_status(&cluster, n, "wsrep_cluster_size", "3");
        assert_all_there(&cluster, n, &kept);
    }
    await_status(&cluster, 2, LEVEL, "1");

    // One step back, and on again.
    let load = Load::resume(&endpoints, "back");
    again(&mut cluster, 2, &load);
    cluster.set_provider(&newer).unwrap();
    again(&mut cluster, 2, &load);
    await_status(&cluster, 2, LEVEL, "1");

    // The last one: the level rises by itself.
    again(&mut cluster, 1, &load);
    for n in 1..=3 {
        await_status(&cluster, n, LEVEL, "3");
    }
    load.await_progress(50);

    // Too late to go back: refused, and it costs nothing.
    cluster.set_provider(&former).unwrap();
    cluster.stop(node(3), Stop::Graceful).unwrap();
    let mut log = LogCursor::at_end(&cluster.node(node(3)).unwrap().log());
    let error = cluster.start(node(3), Start::Plain, &mut |_| {}).expect_err("the former version came back");
    println!("a_rolling_upgrade_under_load: refused: {error}");
    let said = log.lines().join("\n");
    assert!(said.contains("group level 3") || said.contains("this version cannot read it"), "{said}");
    cluster.set_provider(&newer).unwrap();
    let logs = start_all(&mut cluster, &[node(3)], "with the newer version again");
    assert_no_copy(&logs, "with the newer version again");
    await_status(&cluster, 3, LEVEL, "3");

    kept.extend(load.finish());
    for n in 1..=3 {
        assert_all_there(&cluster, n, &kept);
    }
    assert_equal(&cluster);
    println!("a_rolling_upgrade_under_load: {} rows kept", kept.len());
}

/// Stops in order and starts with the library that is set, while the others commit.
fn again(cluster: &mut Cluster, n: u8, load: &Load) {
    cluster.stop(node(n), Stop::Graceful).unwrap();
    load.await_progress(20);
    let mut log = LogCursor::at_end(&cluster.node(node(n)).unwrap().log());
    cluster.start(node(n), Start::Plain, &mut |_| {}).unwrap_or_else(|error| panic!("node{n}: {error}"));
    cluster.wait_synced(node(n), &mut |_| {}).unwrap_or_else(|error| panic!("node{n}: {error}"));
    assert_no_copy(&[(node(n), log.lines())], &format!("node{n} with another version"));
    await_status(cluster, n, "wsrep_cluster_size", "3");
    load.await_progress(20);
}
