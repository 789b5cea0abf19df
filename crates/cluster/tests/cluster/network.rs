//! Nodes cut off from each other; needs root for network namespaces.

use crate::support::{
    Bed, Load, assert_all_there, assert_equal, await_status, client, client_in_d, eventually, node, schema,
};

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

/// An applier that stands (here behind a lock, elsewhere in a long statement or a vote) does not keep the server from knowing.
pub fn the_loss_of_the_majority_is_told_behind_an_applier(bed: &Bed) {
    let cluster = bed.up(&bed.spec());
    schema(&cluster, 1);
    client_in_d(&cluster, 1).run("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY)");
    let mut holder = client_in_d(&cluster, 3);
    eventually("the table is there", || holder.session.query("SELECT * FROM t").map(drop).map_err(|e| e.to_string()));
    holder.run("LOCK TABLES t WRITE");
    client_in_d(&cluster, 1).all(&["INSERT INTO t VALUES ()", "INSERT INTO t VALUES ()"]);
    let mut third = client(&cluster, 3);
    let applying =
        "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'system user' AND state LIKE 'Waiting%'";
    eventually("an applier stands", || if third.number(applying) > 0 { Ok(()) } else { Err("none".to_owned()) });
    third.run("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'");
    await_status(&cluster, 3, "wsrep_cluster_status", "non-Primary");
    await_status(&cluster, 3, "wsrep_ready", "OFF");
    assert!(third.number(applying) > 0, "it stands yet");
    assert_eq!(client(&cluster, 3).refused("SELECT * FROM d.t"), NOT_PREPARED);
    third.run("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=0'");
    await_status(&cluster, 1, "wsrep_cluster_size", "3");
    drop(holder);
    await_status(&cluster, 3, "wsrep_local_state_comment", "Synced");
    await_status(&cluster, 3, "wsrep_ready", "ON");
    client_in_d(&cluster, 3).run("INSERT INTO t VALUES ()");
    assert_equal(&cluster);
}
