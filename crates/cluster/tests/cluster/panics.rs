//! A mistake of the provider costs a node its place in the group, never its server: shown for a panic in every call of the interface.
//!
//! Needs a library that panics on purpose (`cargo build -p trireme-provider --features panics`), named by `$PANICKING_PROVIDER`. `$PANIC_IN` names
//! some of the places, separated by commas; without it, or with `all`, it is every one.

use crate::support::{
    Bed, Client, assert_equal, await_status, client, client_in_d, eventually, handed_on, node, schema,
};
use std::path::PathBuf;
use std::thread;
use trireme_cluster::{Cluster, ClusterGuard, Liveness, LogCursor, Start, Stop};
use trireme_wsrep_sys::Call;

/// The first node stays; on each of the others a panic comes at the same time.
const NODES: u8 = 5;

/// How a server comes to make a call.
enum Way {
    /// It runs. The work that is done with it, with any result.
    Running(fn(&mut Scene)),
    /// It starts: the start ends in order, and the next one succeeds.
    Starting,
    /// It takes a full copy at its start, and lives on with it.
    Receiving,
    /// It gives a full copy. The joiner, which nobody tells that its copy is whole, ends its start too.
    Giving,
    /// It stops.
    Stopping,
    /// Not at all, or nothing runs in it that could panic.
    Never,
}

fn way(call: Call) -> Way {
    match call {
        Call::init => Way::Starting,
        Call::capabilities => Way::Running(|s| s.attempt("SET SESSION wsrep_trx_fragment_size = 1000")),
        Call::options_set => Way::Running(|s| s.attempt("SET GLOBAL wsrep_provider_options = 'gcs.fc_limit=33'")),
        Call::options_get => Way::Running(|s| s.attempt("SET GLOBAL wsrep_provider_options = 'gcs.fc_limit=34'")),
        Call::connect => Way::Running(|s| s.reconnect()),
        Call::disconnect => Way::Running(|s| s.attempt("SET GLOBAL wsrep_cluster_address = ''")),
        // By one more applier.
        Call::recv => Way::Running(|s| s.attempt("SET GLOBAL wsrep_slave_threads = 3")),
        Call::certify
        | Call::commit_order_enter
        | Call::commit_order_leave
        | Call::release
        | Call::append_key
        | Call::append_data => Way::Running(|s| s.attempt("INSERT INTO t VALUES (NULL)")),
        Call::replay_trx => Way::Running(|s| s.replay()),
        Call::abort_certification => Way::Running(|s| s.abort()),
        Call::rollback => Way::Running(|s| {
            s.attempt("SET SESSION wsrep_trx_fragment_size = 1");
            s.attempt("BEGIN");
            s.attempt("INSERT INTO t VALUES (NULL)");
            s.attempt("INSERT INTO t VALUES (NULL)");
            s.attempt("ROLLBACK");
        }),
        Call::sync_wait => Way::Running(|s| {
            s.attempt("SET SESSION wsrep_sync_wait = 1");
            s.attempt("SELECT COUNT(*) FROM t");
        }),
        Call::last_committed_id | Call::stats_get => Way::Running(|s| s.attempt("SHOW GLOBAL STATUS LIKE 'wsrep%'")),
        Call::stats_reset => Way::Running(|s| s.attempt("FLUSH STATUS")),
        Call::to_execute_start | Call::to_execute_end => Way::Running(|s| {
            s.attempt(&format!("CREATE TABLE d.u{} (id INT PRIMARY KEY)", s.n));
        }),
        Call::sst_sent => Way::Giving,
        Call::sst_received => Way::Receiving,
        Call::pause | Call::resume => Way::Running(|s| {
            s.attempt("FLUSH TABLES WITH READ LOCK");
            // The server lets one session pause at a time, and this one stays open.
            s.attempt("UNLOCK TABLES");
        }),
        Call::desync | Call::resync => Way::Running(|s| s.desync()),
        Call::free => Way::Stopping,
        // Servers keep snapshots of their own, and have no use for the others.
        Call::assign_read_view
        | Call::enc_set_key
        | Call::free_connection
        | Call::preordered_collect
        | Call::preordered_commit
        | Call::snapshot
        | Call::lock
        | Call::unlock
        | Call::is_locked => Way::Never,
        // Gives memory back, with or without a node.
        Call::stats_free => Way::Never,
    }
}

/// Work of the server's appliers inside of `recv`.
const ITEMS: &[(&str, fn(&mut Scene))] = &[
    ("item-apply", |s| drop(client_in_d(s.cluster, 1).run("INSERT INTO t VALUES (NULL)"))),
    ("item-view", |s| s.reconnect()),
    ("item-synced", |s| s.desync()),
];

pub fn a_panic_costs_the_node_and_not_the_server(bed: &Bed) {
    let Some(mut cluster) = up(bed) else { return };
    let running = Call::ALL.iter().filter_map(|call| match way(*call) {
        Way::Running(provoke) => Some((call.name(), provoke)),
        Way::Starting | Way::Receiving | Way::Giving | Way::Stopping | Way::Never => None,
    });
    let running: Vec<_> = running.chain(ITEMS.iter().copied()).filter(|(place, _)| is_chosen(place)).collect();
    for together in running.chunks(usize::from(NODES) - 1) {
        while_running(&mut cluster, together);
    }
    for call in Call::ALL.iter().filter(|call| is_chosen(call.name())) {
        match way(*call) {
            Way::Starting => while_starting(&mut cluster, call.name()),
            Way::Receiving => while_receiving(&mut cluster, call.name()),
            Way::Giving => while_giving(&mut cluster, call.name()),
            Way::Stopping => while_stopping(&mut cluster, call.name()),
            Way::Running(_) | Way::Never => {}
        }
    }
    assert_equal(&cluster);
}

/// `None`, and the scenario is skipped, without the library that panics.
fn up(bed: &Bed) -> Option<ClusterGuard> {
    let Some(panicking) = std::env::var_os("PANICKING_PROVIDER") else {
        bed.skip("needs a library built with the feature `panics`, named by $PANICKING_PROVIDER");
        return None;
    };
    let mut spec = bed.spec();
    spec.nodes = NODES;
    spec.provider = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(panicking);
    let cluster = bed.up(&spec);
    schema(&cluster, 1);
    client_in_d(&cluster, 1).all(&[
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY)",
        "CREATE TABLE r (id INT PRIMARY KEY, v INT)",
        "INSERT INTO r SELECT seq, 0 FROM seq_1_to_20",
    ]);
    assert_equal(&cluster);
    Some(cluster)
}

fn is_chosen(place: &str) -> bool {
    std::env::var("PANIC_IN").map_or(true, |wanted| wanted == "all" || wanted.split(',').any(|w| w == place))
}

/// One server whose provider panics.
struct Scene<'a> {
    cluster: &'a Cluster,
    n: u8,
    place: &'static str,
    client: Client,
    log: LogCursor,
    seen: String,
    /// Sessions that stay open, as those of applications do.
    kept: Vec<Client>,
}

impl<'a> Scene<'a> {
    /// The next time that the server comes by `place` its provider panics.
    fn armed(cluster: &'a Cluster, n: u8, place: &'static str) -> Scene<'a> {
        let log = LogCursor::at_end(&cluster.node(node(n)).unwrap().log());
        let client = client_in_d(cluster, n);
        let mut scene = Scene { cluster, n, place, client, log, seen: String::new(), kept: Vec::new() };
        scene.wish(place);
        scene
    }

    /// The provider takes the file at its next call.
    fn wish(&mut self, lines: &str) {
        let file = wish(self.cluster, self.n, lines);
        eventually("the provider has read what is wished", || {
            attempt(&mut client(self.cluster, self.n), "SHOW GLOBAL STATUS LIKE 'wsrep%'");
            if file.exists() { Err("the file is there".to_owned()) } else { Ok(()) }
        });
    }

    fn attempt(&mut self, sql: &str) {
        attempt(&mut self.client, sql);
    }

    fn reconnect(&mut self) {
        let address = self.client.text("SELECT @@wsrep_cluster_address");
        self.attempt(&format!("SET GLOBAL wsrep_cluster_address = '{address}'"));
    }

    fn desync(&mut self) {
        self.attempt("SET GLOBAL wsrep_desync = ON");
        self.attempt("SET GLOBAL wsrep_desync = OFF");
    }

    /// An applier finds a local transaction in its way.
    fn abort(&mut self) {
        let mut holder = client_in_d(self.cluster, self.n);
        holder.all(&["BEGIN", &format!("UPDATE r SET v = v + 1 WHERE id = {}", self.n)]);
        self.kept.push(holder);
        client_in_d(self.cluster, 1).run(&format!("UPDATE r SET v = v + 1 WHERE id = {}", self.n));
    }

    /// A transaction that is ordered holds a lock which an applier with an earlier place needs: it is rolled back, and replayed.
    fn replay(&mut self) {
        let (own, others) = (self.n, self.n + 10);
        let mut local = client_in_d(self.cluster, self.n);
        local.all(&[
            "BEGIN",
            &format!("UPDATE r SET v = 77 WHERE id = {own}"),
            &format!("SELECT v FROM r WHERE id = {others} FOR UPDATE"),
        ]);
        self.wish("stall item-apply");
        client_in_d(self.cluster, 1).run(&format!("UPDATE r SET v = v + 1 WHERE id = {others}"));
        thread::scope(|scope| {
            let commit = scope.spawn(|| attempt(&mut local, "COMMIT"));
            eventually("the transaction is ordered", || {
                match client_in_d(self.cluster, 1).number(&format!("SELECT v FROM r WHERE id = {own}")) {
                    77 => Ok(()),
                    other => Err(format!("it is {other} elsewhere")),
                }
            });
            self.wish("pass item-apply");
            handed_on(commit.join());
        });
        self.kept.push(local);
    }

    fn read_log(&mut self) {
        let fresh = self.log.lines();
        self.seen.extend(fresh.into_iter().map(|line| line + "\n"));
    }

    fn await_panic(&mut self) {
        let entry = if self.place.starts_with("item-") { "recv" } else { self.place };
        let said = format!("Internal error in {entry}: injected in {}", self.place);
        eventually(&format!("{}: the panic is in the log", self.place), || {
            self.read_log();
            if self.seen.contains(&said) { Ok(()) } else { Err(self.seen.clone()) }
        });
    }

    /// The node is out of the group, and its server answers everything.
    fn out_of_service(&mut self) {
        self.await_panic();
        let place = self.place;
        let mut client = client(self.cluster, self.n);
        for _ in 0..2 {
            client.run("SHOW GLOBAL STATUS LIKE 'wsrep%'");
            assert!(client.text("SELECT @@wsrep_provider_options").contains("gcs.fc_limit"), "{place}");
            for sql in [
                "SET GLOBAL wsrep_provider_options = 'gcs.fc_limit=35'",
                "SET GLOBAL wsrep_desync = ON",
                "SET GLOBAL wsrep_desync = OFF",
                "FLUSH TABLES WITH READ LOCK",
                "UNLOCK TABLES",
                "CREATE TABLE d.w (id INT)",
                "INSERT INTO d.t VALUES (NULL)",
                "FLUSH STATUS",
            ] {
                attempt(&mut client, sql);
            }
        }
        await_status(self.cluster, self.n, "wsrep_cluster_status", "Disconnected");
        assert_eq!(client.refused("SELECT COUNT(*) FROM d.t"), 1047, "{place}");
        client.run("SET SESSION wsrep_on = OFF");
        assert!(client.number("SELECT COUNT(*) FROM d.t") >= 0, "{place}");
    }
}

/// The answer to the client depends on the place; the server has to live.
fn attempt(client: &mut Client, sql: &str) {
    let _ = client.session.query(sql);
}

fn wish(cluster: &Cluster, n: u8, lines: &str) -> PathBuf {
    let file = cluster.node(node(n)).unwrap().data().join("panic-in");
    std::fs::write(&file, format!("{lines}\n")).unwrap();
    file
}

/// A panic on each of several nodes at once: the first goes on, their servers answer, and stop and start in order.
fn while_running(cluster: &mut Cluster, places: &[(&'static str, fn(&mut Scene))]) {
    println!("  {}", places.iter().map(|(place, _)| *place).collect::<Vec<_>>().join(", "));
    let victims: Vec<u8> = (2..).take(places.len()).collect();
    let shared: &Cluster = cluster;
    let mut open = Vec::new();
    let checked: Vec<(LogCursor, String)> = thread::scope(|scope| {
        let begun: Vec<_> = victims
            .iter()
            .zip(places)
            .map(|(n, (place, provoke))| {
                scope.spawn(move || {
                    let mut scene = Scene::armed(shared, *n, place);
                    provoke(&mut scene);
                    scene.out_of_service();
                    scene
                })
            })
            .collect();
        let scenes: Vec<Scene> = begun.into_iter().map(|scene| handed_on(scene.join())).collect();
        await_status(shared, 1, "wsrep_cluster_size", &(usize::from(NODES) - victims.len()).to_string());
        client_in_d(shared, 1).run("INSERT INTO t VALUES (NULL)");
        let checked = scenes.into_iter().map(|Scene { log, seen, client, kept, .. }| {
            open.extend(kept.into_iter().chain([client]));
            (log, seen)
        });
        checked.collect()
    });
    for n in &victims {
        cluster.ask_to_stop(node(*n)).unwrap();
    }
    for ((n, (place, _)), (mut log, seen)) in victims.iter().zip(places).zip(checked) {
        cluster.stop(node(*n), Stop::Graceful).unwrap_or_else(|error| panic!("{place}: {error}"));
        ended_in_order(place, &(seen + &log.lines().join("\n")));
    }
    drop(open);
    for n in &victims {
        cluster.launch(node(*n), Start::Plain).unwrap();
    }
    all_in(cluster);
}

fn all_in(cluster: &Cluster) {
    for id in cluster.ids() {
        cluster.wait_synced(id, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    }
    await_status(cluster, 1, "wsrep_cluster_size", &NODES.to_string());
}

fn ended_in_order(place: &str, seen: &str) {
    assert!(!seen.contains("got signal") && !seen.contains("terminate called"), "{place}: {seen}");
    assert!(seen.contains("Shutdown complete"), "{place}: {seen}");
}

/// The next start needs a full copy.
fn lose_data(cluster: &Cluster) {
    std::fs::remove_file(cluster.node(node(2)).unwrap().data().join("grastate.dat")).unwrap();
}

/// A server does not start without its provider, and says so; the next start succeeds.
fn while_starting(cluster: &mut Cluster, place: &'static str) {
    println!("  {place}, at a start");
    cluster.stop(node(2), Stop::Graceful).unwrap();
    let mut log = LogCursor::at_end(&cluster.node(node(2)).unwrap().log());
    wish(cluster, 2, place);
    cluster.launch(node(2), Start::Plain).unwrap();
    ends_by_itself(cluster, place);
    let seen = log.lines().join("\n");
    assert!(seen.contains(&format!("Internal error in {place}: injected in {place}")), "{place}: {seen}");
    assert!(!seen.contains("got signal") && !seen.contains("terminate called"), "{place}: {seen}");
    cluster.launch(node(2), Start::Plain).unwrap();
    all_in(cluster);
}

/// The server has its data, and is out of the group.
fn while_receiving(cluster: &mut Cluster, place: &'static str) {
    println!("  {place}, of a joiner");
    cluster.stop(node(2), Stop::Graceful).unwrap();
    lose_data(cluster);
    wish(cluster, 2, place);
    let log = LogCursor::at_end(&cluster.node(node(2)).unwrap().log());
    cluster.launch(node(2), Start::Plain).unwrap();
    let endpoint = cluster.endpoint(node(2)).unwrap();
    let session = eventually("it serves clients", || endpoint.session().map_err(|error| error.to_string()));
    let client = Client { session, node: node(2) };
    let mut joiner = Scene { cluster, n: 2, place, client, log, seen: String::new(), kept: Vec::new() };
    joiner.out_of_service();
    let Scene { mut log, seen, .. } = joiner;
    cluster.stop(node(2), Stop::Graceful).unwrap_or_else(|error| panic!("{place}: {error}"));
    ended_in_order(place, &(seen + &log.lines().join("\n")));
    cluster.launch(node(2), Start::Plain).unwrap();
    all_in(cluster);
}

/// Donor and joiner are out, and come back in order.
fn while_giving(cluster: &mut Cluster, place: &'static str) {
    println!("  {place}, of a donor");
    cluster.stop(node(2), Stop::Graceful).unwrap();
    lose_data(cluster);
    cluster.set_options(node(2), vec!["wsrep-sst-donor=node3".to_owned()]).unwrap();
    let Scene { client, log, seen, .. } = Scene::armed(cluster, 3, place);
    let mut joiner = LogCursor::at_end(&cluster.node(node(2)).unwrap().log());
    cluster.launch(node(2), Start::Plain).unwrap();
    ends_by_itself(cluster, place);
    let said = joiner.lines().join("\n");
    assert!(said.contains("Will never receive state") && !said.contains("got signal"), "{place}: {said}");
    cluster.set_options(node(2), Vec::new()).unwrap();
    let mut donor = Scene { cluster, n: 3, place, client, log, seen, kept: Vec::new() };
    donor.out_of_service();
    let Scene { mut log, seen, .. } = donor;
    cluster.stop(node(3), Stop::Graceful).unwrap_or_else(|error| panic!("{place}: {error}"));
    ended_in_order(place, &(seen + &log.lines().join("\n")));
    for n in [2, 3] {
        cluster.launch(node(n), Start::Plain).unwrap();
    }
    all_in(cluster);
}

/// The second node's server.
fn ends_by_itself(cluster: &mut Cluster, place: &str) {
    eventually(&format!("{place}: the start ends"), || match cluster.liveness(node(2)).unwrap() {
        Liveness::Gone => Ok(()),
        other => Err(format!("{other:?}")),
    });
    cluster.stop(node(2), Stop::Graceful).unwrap();
}

fn while_stopping(cluster: &mut Cluster, place: &'static str) {
    println!("  {place}, at a stop");
    let mut log = Scene::armed(cluster, 2, place).log;
    cluster.stop(node(2), Stop::Graceful).unwrap_or_else(|error| panic!("{place}: {error}"));
    let seen = log.lines().join("\n");
    assert!(seen.contains(&format!("Internal error in {place}: injected in {place}")), "{place}: {seen}");
    ended_in_order(place, &seen);
    cluster.launch(node(2), Start::Plain).unwrap();
    all_in(cluster);
}
