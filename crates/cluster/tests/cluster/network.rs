//! Nodes cut off from each other; needs root for network namespaces.

use crate::support::{Bed, Load, assert_all_there, assert_equal, await_status, client, node, schema};

/// "WSREP has not yet prepared node for application use".
const NOT_PREPARED: u16 = 1047;

pub fn minority_refuses_and_heals(bed: &Bed) {
    let Some(spec) = bed.spec_with_networks() else { return };
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    let load = Load::start(&cluster.endpoints());

    // One alone: it refuses, the others go on.
    cluster.partition(&[vec![node(3)]]).unwrap();
    await_status(&cluster, 3, "wsrep_cluster_status", "non-Primary");
    assert_eq!(client(&cluster, 3).refused("INSERT INTO d.load_rows VALUES ('lost', 0, '')"), NOT_PREPARED);
    assert_eq!(client(&cluster, 3).refused("SELECT COUNT(*) FROM d.load_rows"), NOT_PREPARED);
    await_status(&cluster, 1, "wsrep_cluster_size", "2");
    load.await_progress(50);
    cluster.heal().unwrap();
    await_status(&cluster, 1, "wsrep_cluster_size", "3");
    await_status(&cluster, 3, "wsrep_local_state_comment", "Synced");

    // Everybody alone: nobody commits; afterwards all find together without help.
    cluster.partition(&[vec![node(1)], vec![node(2)], vec![node(3)]]).unwrap();
    for n in 1..=3 {
        await_status(&cluster, n, "wsrep_cluster_status", "non-Primary");
    }
    cluster.heal().unwrap();
    for n in 1..=3 {
        await_status(&cluster, n, "wsrep_cluster_size", "3");
        await_status(&cluster, n, "wsrep_local_state_comment", "Synced");
    }
    load.await_progress(50);

    // One direction only: whoever is left in the primary component, the cluster commits again and heals.
    cluster.cut(node(1), node(2)).unwrap();
    load.await_progress(20);
    cluster.heal().unwrap();
    for n in 1..=3 {
        await_status(&cluster, n, "wsrep_cluster_size", "3");
        await_status(&cluster, n, "wsrep_local_state_comment", "Synced");
    }
    let acknowledged = load.finish();
    for n in 1..=3 {
        assert_all_there(&cluster, n, &acknowledged);
    }
    assert_equal(&cluster);
}
