//! A mistake of the provider costs a node its place in the group, never its server.
//!
//! Needs a library that panics on purpose (`cargo build -p trireme-provider --features panics`), named by `$PANICKING_PROVIDER`.

use crate::support::{Bed, Client, assert_equal, await_status, client, client_in_d, eventually, node, schema};
use std::path::PathBuf;
use trireme_cluster::{Cluster, ClusterGuard, LogCursor, Start, Stop};

/// What is done on the node, whatever comes of it; the node's provider panics in the middle.
type Provocation = fn(&mut Client);

const CALLS: &[(&str, Provocation)] = &[
    ("stats_get", |c| attempt(c, "SHOW GLOBAL STATUS LIKE 'wsrep%'")),
    ("last_committed_id", |c| attempt(c, "SHOW GLOBAL STATUS LIKE 'wsrep%'")),
    ("options_set", |c| attempt(c, "SET GLOBAL wsrep_provider_options = 'gcs.fc_limit=33'")),
    ("options_get", |c| attempt(c, "SET GLOBAL wsrep_provider_options = 'gcs.fc_limit=34'")),
    ("append_key", |c| attempt(c, "INSERT INTO t VALUES (NULL)")),
    ("append_data", |c| attempt(c, "INSERT INTO t VALUES (NULL)")),
    ("certify", |c| attempt(c, "INSERT INTO t VALUES (NULL)")),
    ("commit_order_enter", |c| attempt(c, "INSERT INTO t VALUES (NULL)")),
    ("commit_order_leave", |c| attempt(c, "INSERT INTO t VALUES (NULL)")),
    ("release", |c| attempt(c, "INSERT INTO t VALUES (NULL)")),
    ("to_execute_start", |c| attempt(c, "CREATE TABLE d.u (id INT PRIMARY KEY)")),
    ("to_execute_end", |c| attempt(c, "CREATE TABLE d.v (id INT PRIMARY KEY)")),
    ("sync_wait", |c| {
        attempt(c, "SET SESSION wsrep_sync_wait = 1");
        attempt(c, "SELECT COUNT(*) FROM t");
    }),
    ("desync", |c| attempt(c, "SET GLOBAL wsrep_desync = ON")),
    ("resync", |c| {
        attempt(c, "SET GLOBAL wsrep_desync = ON");
        attempt(c, "SET GLOBAL wsrep_desync = OFF");
    }),
    ("pause", |c| {
        attempt(c, "FLUSH TABLES WITH READ LOCK");
        // The server lets one session pause at a time, and `c` stays open.
        attempt(c, "UNLOCK TABLES");
    }),
    ("resume", |c| {
        attempt(c, "FLUSH TABLES WITH READ LOCK");
        attempt(c, "UNLOCK TABLES");
    }),
    ("connect", |c| {
        let address = c.text("SELECT @@wsrep_cluster_address");
        attempt(c, &format!("SET GLOBAL wsrep_cluster_address = '{address}'"));
    }),
    ("disconnect", |c| attempt(c, "SET GLOBAL wsrep_cluster_address = ''")),
];

/// Work of the node's own threads; `work` on another node, or time alone, brings it about.
const ITEMS: &[&str] = &["item-apply", "item-view", "item-synced"];

pub fn a_panic_costs_the_node_and_not_the_server(bed: &Bed) {
    let Some(mut cluster) = up(bed) else { return };
    for (place, provoke) in chosen(CALLS, |(place, _)| place) {
        let (mut log, mut third) = armed(&cluster, place);
        provoke(&mut third);
        out_of_service(&mut cluster, place, &mut log);
    }
    for place in chosen(ITEMS, |place| place) {
        let (mut log, mut third) = armed(&cluster, place);
        // Takes the name of the place from the file.
        attempt(&mut third, "SHOW GLOBAL STATUS LIKE 'wsrep%'");
        match *place {
            "item-apply" => attempt(&mut client_in_d(&cluster, 1), "INSERT INTO t VALUES (NULL)"),
            "item-synced" => {
                attempt(&mut third, "SET GLOBAL wsrep_desync = ON");
                attempt(&mut third, "SET GLOBAL wsrep_desync = OFF");
            }
            _ => {
                cluster.stop(node(2), Stop::Graceful).unwrap();
                cluster.start(node(2), Start::Plain, &mut |_| {}).unwrap();
            }
        }
        out_of_service(&mut cluster, place, &mut log);
    }
    assert_equal(&cluster);
}

/// Three nodes with the library that panics; `None`, and the scenario is skipped, without one.
fn up(bed: &Bed) -> Option<ClusterGuard> {
    let Some(panicking) = std::env::var_os("PANICKING_PROVIDER") else {
        bed.skip("needs a library built with the feature `panics`, named by $PANICKING_PROVIDER");
        return None;
    };
    let mut spec = bed.spec();
    spec.provider = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(panicking);
    let cluster = bed.up(&spec);
    schema(&cluster, 1);
    client_in_d(&cluster, 1).all(&["CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY)"]);
    Some(cluster)
}

/// Those that `$PANIC_IN` names, separated by commas; without it, or with `all`, every one.
fn chosen<'a, T>(all: &'a [T], name: impl Fn(&'a T) -> &'a str) -> Vec<&'a T> {
    let wanted = std::env::var("PANIC_IN").ok();
    let is_wanted = |place: &str| wanted.as_ref().is_none_or(|w| w == "all" || w.split(',').any(|w| w == place));
    all.iter().filter(|t| is_wanted(name(t))).collect()
}

fn armed(cluster: &Cluster, place: &str) -> (LogCursor, Client) {
    println!("  {place}");
    let third = client_in_d(cluster, 3);
    let log = LogCursor::at_end(&cluster.node(node(3)).unwrap().log());
    let data = cluster.node(node(3)).unwrap().data();
    std::fs::write(data.join("panic-in"), format!("{place}\n")).unwrap();
    (log, third)
}

fn attempt(client: &mut Client, sql: &str) {
    // What the client is told depends on the place; that the server lives is what counts.
    let _ = client.session.query(sql);
}

/// The third node is out of the group, the others go on, its server answers, and it stops and starts in order.
fn out_of_service(cluster: &mut Cluster, place: &str, log: &mut LogCursor) {
    let mut seen = String::new();
    eventually(&format!("{place}: the panic is in the log"), || {
        seen.extend(log.lines().into_iter().map(|line| line + "\n"));
        let entry = if place.starts_with("item-") { "recv" } else { place };
        if seen.contains(&format!("Internal error in {entry}: injected in {place}")) {
            Ok(())
        } else {
            Err(seen.clone())
        }
    });
    await_status(cluster, 1, "wsrep_cluster_size", "2");
    client_in_d(cluster, 1).run("INSERT INTO t VALUES (NULL)");
    let mut third = client(cluster, 3);
    for _ in 0..3 {
        third.run("SHOW GLOBAL STATUS LIKE 'wsrep%'");
        assert!(third.text("SELECT @@wsrep_provider_options").contains("gcs.fc_limit"), "{place}");
        attempt(&mut third, "SET GLOBAL wsrep_provider_options = 'gcs.fc_limit=35'");
        attempt(&mut third, "SET GLOBAL wsrep_desync = ON");
        attempt(&mut third, "SET GLOBAL wsrep_desync = OFF");
        attempt(&mut third, "FLUSH TABLES WITH READ LOCK");
        attempt(&mut third, "UNLOCK TABLES");
        attempt(&mut third, "CREATE TABLE d.w (id INT)");
        attempt(&mut third, "INSERT INTO d.t VALUES (NULL)");
    }
    await_status(cluster, 3, "wsrep_cluster_status", "Disconnected");
    assert_eq!(third.refused("SELECT COUNT(*) FROM d.t"), 1047, "{place}");
    third.run("SET SESSION wsrep_on = OFF");
    assert!(third.number("SELECT COUNT(*) FROM d.t") >= 0, "{place}");
    cluster.stop(node(3), Stop::Graceful).unwrap_or_else(|error| panic!("{place}: {error}"));
    seen.extend(log.lines().into_iter().map(|line| line + "\n"));
    assert!(!seen.contains("got signal") && !seen.contains("terminate called"), "{place}: {seen}");
    assert!(seen.contains("Shutdown complete"), "{place}: {seen}");
    cluster.start(node(3), Start::Plain, &mut |_| {}).unwrap_or_else(|error| panic!("{place}: {error}"));
    await_status(cluster, 1, "wsrep_cluster_size", "3");
}
