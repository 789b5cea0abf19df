//! Two servers and an arbitrator: either server may be lost, and nothing that was acknowledged is.

use crate::support::{
    Bed, Load, Watch, assert_equal, await_status, bounded, client, client_in_d, eventually, from_environment, node,
    schema,
};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use trireme_cluster::{Cluster, ClusterGuard, LogCursor, Start, Stop, sample};

const ARBITRATOR: u8 = 3;
/// `evs.suspect_timeout` as it is by default.
const VIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// The command beside the provider. Galera's library has none, and no log that its own could hold.
pub fn command(bed: &Bed) -> Option<PathBuf> {
    let command = bed.provider().with_file_name("trireme");
    if bed.is_galera() {
        return None;
    }
    assert!(command.is_file(), "{}: build it with cargo build --release -p trireme-cli", command.display());
    Some(command)
}

fn two_servers_and_an_arbitrator(bed: &Bed) -> Option<ClusterGuard> {
    let mut spec = bed.spec();
    spec.nodes = 2;
    spec.arbitrator = command(bed);
    if spec.arbitrator.is_none() {
        bed.skip("Galera's arbitrator holds no log");
        return None;
    }
    Some(bed.up(&spec))
}

/// How long a client has to wait at most for a commit on this node from here on, retrying as applications do.
fn gap(cluster: &Cluster, n: u8, id: i64) -> Duration {
    let begun = Instant::now();
    eventually(&format!("node{n} commits"), || {
        let mut session = cluster.endpoint(node(n)).unwrap().session_in(Some("d")).map_err(|e| e.to_string())?;
        let insert = format!("INSERT INTO marks VALUES ({id}) ON DUPLICATE KEY UPDATE id = id");
        session.query(&insert).map(drop).map_err(|e| e.to_string())
    });
    begun.elapsed()
}

fn wait_synced(cluster: &Cluster, n: u8) {
    cluster.wait_synced(node(n), &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
}

fn has_all(cluster: &Cluster, n: u8, acknowledged: &BTreeSet<String>) {
    let mut client = client_in_d(cluster, n);
    let rows: BTreeSet<String> =
        client.run("SELECT id FROM load_rows").texts().into_iter().filter_map(|r| r.into_iter().next()).collect();
    let missing: Vec<&String> = acknowledged.difference(&rows).collect();
    assert!(missing.is_empty(), "node{n} lacks {} acknowledged rows, among them {:?}", missing.len(), missing.first());
}

/// Kill and freeze each server in turn: the other commits with the arbitrator. Kill the arbitrator: both go on.
pub fn arbitrator_keeps_one_of_two_servers_going(bed: &Bed) {
    let Some(mut cluster) = two_servers_and_an_arbitrator(bed) else { return };
    schema(&cluster, 1);
    await_status(&cluster, 1, "wsrep_cluster_size", "3");
    client_in_d(&cluster, 1).run("CREATE TABLE marks (id INT PRIMARY KEY)");
    let addresses = client(&cluster, 1).text(
        "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'wsrep_incoming_addresses'",
    );
    let empty = addresses.split(',').filter(|address| address.is_empty()).count();
    assert_eq!((addresses.split(',').count(), empty), (3, 1), "{addresses}");
    for (round, victim) in [1, 2].into_iter().enumerate() {
        let survivor = 3 - victim;
        cluster.kill(node(victim)).unwrap();
        let id = round as i64 * 10;
        println!(
            "  node{victim} killed: the other commits again after {:.2} s",
            gap(&cluster, survivor, id).as_secs_f64()
        );
        cluster.start(node(victim), Start::Recover, &mut |_| {}).unwrap();
        // The survivor orders now, so this is the harder case: its connections stay open and nothing comes.
        cluster.pause(node(survivor)).unwrap();
        let gap_frozen = gap(&cluster, victim, id + 1);
        println!("  node{survivor} frozen: the other commits again after {:.2} s", gap_frozen.as_secs_f64());
        assert!(gap_frozen < VIEW_TIMEOUT, "nobody waits until the view drops it");
        await_status(&cluster, victim, "wsrep_cluster_size", "2");
        gap(&cluster, victim, id + 2);
        cluster.resume(node(survivor)).unwrap();
        wait_synced(&cluster, survivor);
        await_status(&cluster, victim, "wsrep_cluster_size", "3");
    }
    cluster.kill(node(ARBITRATOR)).unwrap();
    for n in [1, 2] {
        gap(&cluster, n, 100 + i64::from(n));
    }
    cluster.start(node(ARBITRATOR), Start::Plain, &mut |_| {}).unwrap();
    await_status(&cluster, 1, "wsrep_cluster_size", "3");
    // In order: the group is told, and nobody waits for a vote.
    cluster.stop(node(ARBITRATOR), Stop::Graceful).unwrap();
    await_status(&cluster, 1, "wsrep_cluster_size", "2");
    assert_equal(&cluster);
}

/// Commits of one server with the arbitrator alone are on the other server before the first is back; also when all three
/// died in between.
pub fn arbitrator_brings_what_only_it_holds(bed: &Bed) {
    let Some(mut cluster) = two_servers_and_an_arbitrator(bed) else { return };
    schema(&cluster, 1);
    let rows = from_environment("ROWS").unwrap_or(200);
    let first = Load::start(&cluster.endpoints());
    first.await_progress(20);
    let mut acknowledged = first.finish();
    for (round, (alone, behind)) in [(1, 2), (2, 1)].into_iter().enumerate() {
        let all_die = round == 1;
        cluster.kill(node(behind)).unwrap();
        let load = Load::resume(&[cluster.endpoint(node(alone)).unwrap()], &format!("round{round}"));
        load.await_progress(rows);
        if all_die {
            cluster.kill_all().unwrap();
        } else {
            cluster.kill(node(alone)).unwrap();
        }
        acknowledged.extend(load.finish());
        if all_die {
            cluster.launch(node(ARBITRATOR), Start::Plain).unwrap();
        }
        cluster.start(node(behind), Start::Plain, &mut |_| {}).unwrap();
        assert_eq!(sample(cluster.node(node(alone)).unwrap()).state, "stopped");
        has_all(&cluster, behind, &acknowledged);
        cluster.start(node(alone), Start::Plain, &mut |_| {}).unwrap();
        wait_synced(&cluster, ARBITRATOR);
    }
    has_all(&cluster, 1, &acknowledged);
    has_all(&cluster, 2, &acknowledged);
    assert_equal(&cluster);
}

/// Under load, on servers and arbitrator: nobody notices, and in the end the new one alone links them.
pub fn a_secret_is_changed_beside_an_arbitrator(bed: &Bed) {
    let Some(mut cluster) = two_servers_and_an_arbitrator(bed) else { return };
    schema(&cluster, 1);
    only_its_user_reads(&cluster);
    let command = command(bed).expect("there is an arbitrator");
    let load = Load::start(&cluster.endpoints());
    let watch = Watch::start(&load);
    let shared = cluster.dir().join("secret");
    for step in ["rotate", "retire"] {
        let said = bounded(&command).args(["secret", step]).arg(&shared).output().unwrap();
        assert!(said.status.success(), "{said:?}");
        let mut log = LogCursor::at_end(&cluster.node(node(ARBITRATOR)).unwrap().log());
        let secret = std::fs::read(&shared).unwrap();
        for id in cluster.ids() {
            // Owner and mode stay.
            std::fs::write(cluster.node(id).unwrap().secret_file(), &secret).unwrap();
        }
        for n in [1, 2] {
            client(&cluster, n).run("SET GLOBAL wsrep_provider_options = 'repl.secret_reload=1'");
        }
        let mut seen = Vec::new();
        eventually("the arbitrator reads its file again", || {
            seen.extend(log.lines());
            let is_read = seen.iter().any(|line| line.contains("repl.secret_reload: the secrets were read again"));
            if is_read { Ok(()) } else { Err(seen.join("\n")) }
        });
    }
    load.await_progress(20);
    let gap = watch.longest();
    assert_eq!(load.errors(), 0, "a change of the secret is seen by clients");
    let acknowledged = load.finish();
    println!("  the secret was changed and the old one taken out; longest gap {gap:?}");
    // Each server that starts knows the new one only, and needs the arbitrator when the other one is gone.
    for (back, gone) in [(2, 1), (1, 2)] {
        cluster.stop(node(back), Stop::Graceful).unwrap();
        cluster.start(node(back), Start::Plain, &mut |_| {}).unwrap();
        await_status(&cluster, back, "wsrep_cluster_size", "3");
        cluster.kill(node(gone)).unwrap();
        client_in_d(&cluster, back).run(&format!("CREATE TABLE without_{gone} (id INT PRIMARY KEY)"));
        cluster.start(node(gone), Start::Recover, &mut |_| {}).unwrap();
        await_status(&cluster, back, "wsrep_cluster_size", "3");
    }
    has_all(&cluster, 1, &acknowledged);
    assert_equal(&cluster);
}

/// Its log holds rows, and statements with the passwords in them.
fn only_its_user_reads(cluster: &Cluster) {
    client(cluster, 1).run("CREATE USER 'somebody'@'localhost' IDENTIFIED BY 'in the statement'");
    let dir = cluster.node(node(ARBITRATOR)).unwrap().data();
    let files: Vec<PathBuf> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.iter().any(|path| path.to_string_lossy().ends_with("galera.cache")), "{files:?}");
    for path in files.iter().chain([&dir]) {
        let mode = std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
    }
}
