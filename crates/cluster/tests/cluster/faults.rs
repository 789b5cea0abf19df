//! The promises to clients and operators in faults (docs/operations/faults.md), kept by real servers.

use crate::support::{Bed, assert_equal, await_status, client, client_in_d, eventually, node, schema};
use trireme_cluster::{Start, Stop};

/// Commits and a statement in total order that a minority cannot finish, waiting for a position, eviction.
pub fn clients_are_told_the_truth_in_faults(bed: &Bed) {
    let Some(spec) = bed.spec_with_networks() else { return };
    let mut spec = spec.option("wsrep_gtid_mode=ON").option("wsrep_gtid_domain_id=7");
    spec.provider_options = "evs.suspect_timeout=PT2S;repl.status_extended=yes".into();
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    client_in_d(&cluster, 1).run("CREATE TABLE t (id INT PRIMARY KEY)");

    // Waiting for a position.
    let (mut one, mut two) = (client_in_d(&cluster, 1), client_in_d(&cluster, 2));
    two.run("SET SESSION wsrep_sync_wait = 0");
    one.run("INSERT INTO t VALUES (1)");
    let written = one.text("SELECT WSREP_LAST_WRITTEN_GTID()");
    assert_eq!(two.number(&format!("SELECT WSREP_SYNC_WAIT_UPTO_GTID('{written}', 30)")), 1);
    assert_eq!(two.number("SELECT COUNT(*) FROM t"), 1, "visible without a causal read");
    let (head, number) = written.rsplit_once('-').expect("a GTID has three parts");
    let next = format!("{head}-{}", number.parse::<u64>().expect("a number") + 1);
    assert_eq!(two.refused(&format!("SELECT WSREP_SYNC_WAIT_UPTO_GTID('{next}', 1)")), 1205, "in time");
    assert_eq!(two.refused("SELECT WSREP_SYNC_WAIT_UPTO_GTID('nonsense', 1)"), 1941);
    two.session.send(&format!("SELECT WSREP_SYNC_WAIT_UPTO_GTID('{next}', 60)")).unwrap();
    one.run("INSERT INTO t VALUES (2)");
    assert_eq!(two.session.receive().unwrap().text().as_deref(), Some("1"), "ends when the position is reached");
    assert_eq!(one.text("SELECT WSREP_LAST_SEEN_GTID()"), next);

    // A minority with work in hand.
    let mut writers: Vec<_> = (0..4).map(|_| client_in_d(&cluster, 3)).collect();
    for writer in &mut writers {
        writer.run("SET SESSION wsrep_sync_wait = 0");
    }
    let mut ddl = client_in_d(&cluster, 3);
    let mut look = client(&cluster, 3);
    cluster.partition(&[vec![node(3)]]).unwrap();
    for (n, writer) in writers.iter_mut().enumerate() {
        writer.session.send(&format!("INSERT INTO t VALUES ({})", 100 + n)).unwrap();
    }
    ddl.session.send("CREATE TABLE made_in_a_minority (id INT PRIMARY KEY)").unwrap();
    one.run("INSERT INTO t VALUES (3)");
    for writer in &mut writers {
        let error = writer.session.receive().expect_err("a minority commits nothing");
        assert_eq!(error.code(), Some(1180), "the outcome is unknown: {error}");
    }
    await_status(&cluster, 3, "wsrep_trireme_unknown_outcomes", "4");
    await_status(&cluster, 3, "wsrep_cluster_status", "non-Primary");
    assert_eq!(look.refused("INSERT INTO d.t VALUES (4)"), 1047);
    await_status(&cluster, 1, "wsrep_cluster_size", "2");
    let uuid = look.run("SHOW STATUS LIKE 'wsrep_gcomm_uuid'").texts()[0][1].clone();
    assert_eq!(look.refused(&format!("SET GLOBAL wsrep_provider_options = 'evs.evict={uuid}'")), 1210);
    cluster.heal().unwrap();
    await_status(&cluster, 3, "wsrep_local_state_comment", "Synced");
    let told = ddl.session.receive();
    let made = !client_in_d(&cluster, 3).run("SHOW TABLES LIKE 'made_in_a_minority'").rows.is_empty();
    match told {
        Ok(_) => assert!(made, "the statement succeeded"),
        Err(error) => {
            assert_eq!(error.code(), Some(1205), "{error}");
            assert!(!made, "what was said not to have run did run");
        }
    }
    assert_equal(&cluster);

    // Thrown out, and back after a restart.
    one.run(&format!("SET GLOBAL wsrep_provider_options = 'evs.evict={uuid}'"));
    await_status(&cluster, 3, "wsrep_cluster_status", "Disconnected");
    for n in 1..=2 {
        await_status(&cluster, n, "wsrep_cluster_size", "2");
        await_status(&cluster, n, "wsrep_evs_evict_list", &uuid);
    }
    one.run("INSERT INTO t VALUES (5)");
    cluster.stop(node(3), Stop::Graceful).unwrap();
    cluster.start(node(3), Start::Recover, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    await_status(&cluster, 1, "wsrep_cluster_size", "3");
    one.run("SET GLOBAL wsrep_provider_options = 'evs.evict='");
    eventually("evictions are lifted", || {
        match client(&cluster, 3).run("SHOW STATUS LIKE 'wsrep_evs_evict_list'").texts()[0][1].as_str() {
            "" => Ok(()),
            list => Err(list.to_owned()),
        }
    });
    assert_equal(&cluster);
}
