//! Nodes cut off from each other, and multicast between them; needs root for network namespaces.

use trireme_cluster::Cluster;

use crate::support::{
    Bed, Client, Load, assert_all_there, assert_equal, await_status, client, client_in_d, eventually, node, schema,
    status_of,
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

/// An applier that stands (here behind a lock, elsewhere in a vote) does not keep the server from knowing: neither one among others, nor a
/// statement beside which nothing is applied.
pub fn the_loss_of_the_majority_is_told_behind_an_applier(bed: &Bed) {
    let cluster = bed.up(&bed.spec());
    schema(&cluster, 1);
    client_in_d(&cluster, 1).run("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY)");
    is_told_behind(&cluster, &["INSERT INTO t VALUES ()", "INSERT INTO t VALUES ()"]);
    is_told_behind(&cluster, &["ALTER TABLE t ADD COLUMN c INT", "INSERT INTO t VALUES ()"]);
    client_in_d(&cluster, 3).run("INSERT INTO t VALUES ()");
    assert_equal(&cluster);
}

/// The appliers of node 3 stand in these statements when it loses the majority.
fn is_told_behind(cluster: &Cluster, statements: &[&str]) {
    let mut holder = client_in_d(cluster, 3);
    eventually("the table is there", || holder.session.query("SELECT * FROM t").map(drop).map_err(|e| e.to_string()));
    holder.run("LOCK TABLES t WRITE");
    client_in_d(cluster, 1).all(statements);
    let mut third = client(cluster, 3);
    let applying =
        "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'system user' AND state LIKE 'Waiting%'";
    eventually("an applier stands", || if third.number(applying) > 0 { Ok(()) } else { Err("none".to_owned()) });
    third.run("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'");
    await_status(cluster, 3, "wsrep_cluster_status", "non-Primary");
    await_status(cluster, 3, "wsrep_ready", "OFF");
    assert!(third.number(applying) > 0, "it stands yet");
    assert_eq!(client(cluster, 3).refused("SELECT * FROM d.t"), NOT_PREPARED);
    third.run("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=0'");
    await_status(cluster, 1, "wsrep_cluster_size", "3");
    drop(holder);
    await_status(cluster, 3, "wsrep_local_state_comment", "Synced");
    await_status(cluster, 3, "wsrep_ready", "ON");
}

/// The bytes that a node has sent since it is in the group.
#[derive(Clone, Copy)]
struct Sent {
    links: i64,
    multicast: i64,
    /// Of everything, as the other end of its cable counts it.
    cable: i64,
}

impl Sent {
    fn by(cluster: &Cluster, base_port: u16, n: u8) -> Sent {
        let status = |name: &str| {
            let value = status_of(cluster, n, &format!("wsrep_trireme_{name}"));
            value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("node{n} says no {name}"))
        };
        let file = format!("/sys/class/net/tr{base_port}v{n}/statistics/rx_bytes");
        let cable = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        Sent { links: status("link_bytes"), multicast: status("multicast_bytes"), cable: cable.trim().parse().unwrap() }
    }

    fn since(self, before: Sent) -> Sent {
        Sent {
            links: self.links - before.links,
            multicast: self.multicast - before.multicast,
            cable: self.cable - before.cable,
        }
    }
}

/// Bodies leave a node once for all that hear them. One that hears none gets them by its link, and so does one that was cut off meanwhile:
/// the cut stops what is addressed to it, and no multicast.
pub fn bodies_by_multicast_between_machines(bed: &Bed) {
    const BODY: i64 = 36 * 111;
    const ROWS: i64 = 300;
    let Some(mut spec) = bed.spec_with_networks() else { return };
    spec.provider_options = "gmcast.mcast_addr=239.192.0.11; repl.status_extended=yes".to_owned();
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    let hears = |cluster: &Cluster, n: u8, names: &str| {
        await_status(cluster, n, "wsrep_trireme_multicast_members", names);
    };
    let all_hear = |cluster: &Cluster| {
        hears(cluster, 1, "node2,node3");
        hears(cluster, 2, "node1,node3");
        hears(cluster, 3, "node1,node2");
    };
    all_hear(&cluster);
    let mut one = client_in_d(&cluster, 1);
    one.run("CREATE TABLE bodies (id INT AUTO_INCREMENT PRIMARY KEY, body VARBINARY(4000))");
    let write = |client: &mut Client, rows: i64| {
        for _ in 0..rows {
            client.run("INSERT INTO bodies (body) VALUES (REPEAT(UUID(), 111))");
        }
    };
    let before = Sent::by(&cluster, spec.base_port, 1);
    write(&mut one, ROWS);
    let sent = Sent::by(&cluster, spec.base_port, 1).since(before);
    let bodies = ROWS * BODY;
    assert!(sent.multicast >= bodies, "{} by multicast, of {bodies}", sent.multicast);
    assert!(sent.links < bodies / 2, "{} over links, of {bodies}", sent.links);
    assert!(sent.cable < 2 * bodies, "{} on the cable, and two copies are {}", sent.cable, 2 * bodies);

    // The switch lets no multicast through to one of them.
    let lets_through = format!("/sys/class/net/tr{}v3/brport/multicast_flood", spec.base_port);
    std::fs::write(&lets_through, "0").unwrap_or_else(|error| panic!("{lets_through}: {error}"));
    eventually("node3 is counted on no longer", || {
        write(&mut one, 20);
        match status_of(&cluster, 1, "wsrep_trireme_multicast_members").as_deref() {
            Some("node2") => Ok(()),
            other => Err(format!("{other:?} hear")),
        }
    });
    assert_equal(&cluster);
    std::fs::write(&lets_through, "1").unwrap();
    hears(&cluster, 1, "node2,node3");

    // Cut off, and back.
    let load = Load::start(&cluster.endpoints());
    cluster.partition(&[vec![node(3)]]).unwrap();
    await_status(&cluster, 3, "wsrep_cluster_status", "non-Primary");
    write(&mut one, ROWS);
    load.await_progress(50);
    cluster.heal().unwrap();
    await_status(&cluster, 3, "wsrep_local_state_comment", "Synced");
    all_hear(&cluster);
    let acknowledged = load.finish();
    for n in 1..=3 {
        assert_all_there(&cluster, n, &acknowledged);
    }
    assert_equal(&cluster);
}
