//! Write-set logs that are set smaller than what the engines have in memory only.

use trireme_cluster::{Cluster, Disks, Liveness, LogCursor, NodeId, Spec, SstMethod, Start, disks_available};

use crate::support::{
    Bed, assert_equal, assert_no_copy, await_status, client_in_d, dice, eventually, fill, from_environment, node,
    schema, start_all,
};

const NODES: u8 = 3;
/// Bytes of one row, and rows of a round: several times the log's size.
const ROW: usize = 200_000;
const ROWS: u64 = 100;

/// All nodes die at once while the engines hold most of what was committed in memory only, since they never flush by themselves. The
/// logs, however small they are set, have kept it.
pub fn small_logs_keep_what_the_engines_would_lose(bed: &Bed) {
    // Killed processes lose what the engine has not written, machines without power what it has not synced.
    run(bed, &bed.spec().option("innodb_flush_log_at_trx_commit=0"), |cluster, _| cluster.kill_all());
    if let Err(error) = disks_available() {
        println!("small_logs_keep_what_the_engines_would_lose: no loss of power here: {error}");
        return;
    }
    let mut spec = bed.spec().option("innodb_flush_log_at_trx_commit=2");
    spec.disks = Some(Disks::of_data());
    run(bed, &spec, |cluster, all| cluster.cut_power(all));
}

fn run(bed: &Bed, spec: &Spec, die: impl Fn(&mut Cluster, &[NodeId]) -> trireme_cluster::Result<()>) {
    let mut spec = spec.clone().option("innodb_flush_log_at_timeout=2700").option("innodb_log_buffer_size=64M");
    spec.provider_options = "gcache.size=4M".to_owned();
    let mut dice = dice("small_logs_keep_what_the_engines_would_lose");
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    client_in_d(&cluster, 1).run("CREATE TABLE large (id INT PRIMARY KEY, pad LONGBLOB)");
    let mut rows = 0;
    for round in 1..=from_environment("ROUNDS").unwrap_or(1u64) {
        let when = format!("round {round}, SEED={}", dice.seed);
        let mut writer = client_in_d(&cluster, 1);
        for _ in 0..ROWS {
            rows += 1;
            writer.run(&format!("INSERT INTO large VALUES ({rows}, REPEAT('x', {ROW}))"));
        }
        // Applied everywhere, and the housekeeping has had a second for it.
        for n in 1..=NODES {
            assert_eq!(client_in_d(&cluster, n).number("SELECT COUNT(*) FROM large"), rows);
        }
        std::thread::sleep(std::time::Duration::from_millis(2500));
        let mut order: Vec<NodeId> = (1..=NODES).map(node).collect();
        die(&mut cluster, &order).unwrap_or_else(|error| panic!("{when}: {error}"));
        dice.shuffle(&mut order);
        let logs = start_all(&mut cluster, &order, &when);
        assert_no_copy(&logs, &when);
        for n in 1..=NODES {
            assert_eq!(client_in_d(&cluster, n).number("SELECT COUNT(*) FROM large"), rows, "{when}: node{n}");
        }
        assert_equal(&cluster);
    }
}

/// Entries that the engine has on disk go, as the size says.
pub fn small_logs_stay_small(bed: &Bed) {
    let mut spec = bed.spec();
    spec.provider_options = "gcache.size=4M".to_owned();
    let cluster = bed.up(&spec);
    schema(&cluster, 1);
    let mut writer = client_in_d(&cluster, 1);
    writer.run("CREATE TABLE large (id INT PRIMARY KEY, pad LONGBLOB)");
    let before: Vec<i64> = (1..=NODES).map(|n| kept_from(&cluster, n)).collect();
    for row in 0..ROWS {
        writer.run(&format!("INSERT INTO large VALUES ({row}, REPEAT('x', {ROW}))"));
    }
    for n in 1..=NODES {
        await_kept_from(&cluster, n, before[usize::from(n - 1)] + ROWS as i64 * 2 / 3);
    }
}

/// The first seqno in the log of a node.
fn kept_from(cluster: &Cluster, n: u8) -> i64 {
    let mut client = client_in_d(cluster, n);
    client.run("SET SESSION wsrep_sync_wait = 0");
    client.number(
        "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'wsrep_local_cached_downto'",
    )
}

/// With the writing over, the next flush of the engine is a second away at most.
fn await_kept_from(cluster: &Cluster, n: u8, seqno: i64) {
    eventually(&format!("the log of node{n} begins behind {seqno}"), || match kept_from(cluster, n) {
        now if now > seqno => Ok(()),
        now => Err(format!("it begins at {now}")),
    });
}

/// A node is frozen while it prepares its full copy, and the small logs of the others leave behind what it lacks. The copy ends below the log
/// that it meets: it is refused, and the next start takes another one.
pub fn a_copy_that_the_log_has_outrun_is_asked_for_again(bed: &Bed) {
    let mut spec = bed.spec();
    spec.provider_options = "gcache.size=4M;evs.suspect_timeout=PT2S;evs.inactive_timeout=PT4S".to_owned();
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    fill(&cluster, 60_000);
    client_in_d(&cluster, 1).run("CREATE TABLE large (id INT PRIMARY KEY, pad LONGBLOB)");
    let joiner = node(NODES);
    cluster.kill(joiner).unwrap();
    // Nothing that counts is left there.
    let _ = std::fs::remove_file(cluster.node(joiner).unwrap().data().join("grastate.dat"));
    // The only script that works on for a while when it has everything.
    cluster.set_options(joiner, vec![format!("wsrep-sst-method={}", SstMethod::Mariabackup)]).unwrap();
    let mut log = LogCursor::at_end(&cluster.node(joiner).unwrap().log());
    cluster.launch(joiner, Start::Plain).unwrap();
    let donors = |cluster: &Cluster| cluster.status().into_iter().filter(|s| s.state.starts_with("Donor")).count();
    eventually("a donor is at work", || if donors(&cluster) > 0 { Ok(()) } else { Err(String::new()) });
    // It would take the copy as soon as its script is done.
    cluster.pause(joiner).unwrap();
    eventually("the donor has sent all", || if donors(&cluster) == 0 { Ok(()) } else { Err(String::new()) });
    cluster.pause_transfer(joiner).unwrap();
    let writer = 1;
    await_status(&cluster, writer, "wsrep_cluster_size", "2");
    let mut client = client_in_d(&cluster, writer);
    client.run("SET SESSION wsrep_sync_wait = 0");
    let copied = client.number(
        "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'wsrep_last_committed'",
    );
    for row in 0..ROWS {
        client.run(&format!("INSERT INTO large VALUES ({row}, REPEAT('x', {ROW}))"));
    }
    // Both have dropped what was ordered while the copy began.
    for n in (1..=NODES).filter(|n| node(*n) != joiner) {
        await_kept_from(&cluster, n, copied + 1);
    }
    cluster.resume(joiner).unwrap();
    // It knows from the group's state that the donor is done, or waits for the script to tell it.
    let gone = |cluster: &Cluster| matches!(cluster.liveness(joiner), Ok(Liveness::Gone));
    let three = "SHOW STATUS LIKE 'wsrep_cluster_size'";
    eventually("the joiner is back in the view, or has ended", || {
        let rows = cluster.sql(node(writer), three).map_err(|error| error.to_string())?.texts();
        if gone(&cluster) || rows.iter().flatten().any(|text| text == "3") { Ok(()) } else { Err(format!("{rows:?}")) }
    });
    cluster.resume_transfer(joiner).unwrap();
    eventually("the joiner refuses its copy and ends", || if gone(&cluster) { Ok(()) } else { Err(String::new()) });
    let lines = log.lines();
    let refused = lines
        .iter()
        .find(|line| line.contains("The full copy ends at") || line.contains("The donor is done with the full copy"));
    assert!(refused.is_some(), "no word of why: {:#?}", &lines[lines.len().saturating_sub(30)..]);
    cluster.start(joiner, Start::Plain, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    assert_equal(&cluster);
}
