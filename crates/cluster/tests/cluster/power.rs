//! Machines lose their power: what no disk has got is gone, engine and write-set log alike.
//!
//! Each node has a disk of its own, and its processes see another boot after a cut. `ROUNDS` (default 1) and `SEED` in the
//! environment.

use std::collections::BTreeSet;

use trireme_cluster::{Cluster, Dice, Disks, NodeId, Spec, disks_available};

use crate::support::{
    Bed, Load, assert_equal, assert_no_copy, await_status, client, client_in_d, dice, from_environment, history,
    log_io_of, missing, node, schema, start_all,
};

const NODES: u8 = 3;
/// Loads of one writer per node: with several, a commit is always on its way somewhere.
const LOADS: u64 = 3;
/// A round ends within so many acknowledged rows.
const ROWS_MAX: u64 = 1500;

/// Engines that do not flush at commit, or this scenario cannot run here.
fn spec(bed: &Bed) -> Option<Spec> {
    match disks_available() {
        Ok(()) => {
            let mut spec = bed.spec();
            spec.disks = Some(Disks::of_data());
            Some(spec)
        }
        Err(error) => {
            bed.skip(error);
            None
        }
    }
}

/// The whole data centre goes dark while all nodes write: nothing acknowledged is lost, and plain starts are enough.
pub fn power_loss_in_mode_disk(bed: &Bed) {
    lose_power_in_mode_disk(bed, "power_loss_in_mode_disk", "threads");
}

/// The same, where the log is written past the page cache.
pub fn power_loss_past_the_page_cache(bed: &Bed) {
    lose_power_in_mode_disk(bed, "power_loss_past_the_page_cache", "uring");
}

fn lose_power_in_mode_disk(bed: &Bed, name: &str, log_io: &str) {
    let Some(mut spec) = spec(bed) else { return };
    spec.provider_options = format!("repl.log_io={log_io}; repl.status_extended=yes");
    let mut dice = dice(name);
    let mut cluster = bed.up(&spec);
    if log_io_of(&cluster, 1).as_deref() != Some(log_io) {
        return bed.skip("this machine has no io_uring");
    }
    schema(&cluster, 1);
    Load::start(&cluster.endpoints()).finish(); // makes the table
    let mut kept = BTreeSet::new();
    for round in 1..=from_environment("ROUNDS").unwrap_or(1u64) {
        let when = format!("round {round}, SEED={}", dice.seed);
        let boots = boots_seen(&cluster);
        let all: Vec<NodeId> = (1..=NODES).map(node).collect();
        kept.extend(write_until_dark(&mut cluster, &all, round, &mut dice));
        let mut order = all;
        dice.shuffle(&mut order);
        let logs = start_all(&mut cluster, &order, &when);
        assert_no_copy(&logs, &when);
        for (before, after) in boots.iter().zip(boots_seen(&cluster)) {
            assert_ne!(*before, after, "{when}: a server still sees the old boot");
        }
        assert_kept(&cluster, &kept, &when);
    }
    println!("{name}: {} rows kept", kept.len());
}

/// A client has its word on a statement that does something else when it is executed twice, and the power goes at once. The engine, which does
/// not flush at commit, has synced the effect; it has to know that, too.
pub fn power_loss_behind_ddl(bed: &Bed) {
    let Some(spec) = spec(bed) else { return };
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    let all: Vec<NodeId> = (1..=NODES).map(node).collect();
    let tables = ["odd", "even"];
    for (value, table) in tables.iter().enumerate() {
        client_in_d(&cluster, 1).run(&format!("CREATE TABLE {table} (id INT PRIMARY KEY)"));
        client_in_d(&cluster, 1).run(&format!("INSERT INTO {table} VALUES ({value})"));
    }
    for round in 1..=from_environment("ROUNDS").unwrap_or(3u64) {
        let when = format!("round {round}");
        let mut writer = client_in_d(&cluster, 1);
        writer.run("RENAME TABLE odd TO swap, even TO odd, swap TO even");
        cluster.cut_power(&all).unwrap_or_else(|error| panic!("{when}: {error}"));
        drop(writer);
        start_all(&mut cluster, &all, &when);
        for n in 1..=NODES {
            let here = tables.map(|table| client_in_d(&cluster, n).number(&format!("SELECT id FROM {table}")));
            let first = i64::from(round % 2 == 1);
            assert_eq!(here, [first, 1 - first], "{when}: node{n}");
        }
        assert_equal(&cluster);
    }
}

/// Commits wait for no disk here. A machine that loses its power alone takes nothing with it, whether its engine is ahead of
/// its log (flush=1) or behind.
pub fn power_loss_in_mode_process(bed: &Bed) {
    let Some(mut spec) = spec(bed) else { return };
    spec.provider_options = "repl.durability=process".to_owned();
    spec.node_options
        .insert(node(2), ["innodb_flush_log_at_trx_commit=1", "wsrep_slave_threads=8"].map(str::to_owned).to_vec());
    let mut dice = dice("power_loss_in_mode_process");
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    Load::start(&cluster.endpoints()).finish();
    let mut kept = BTreeSet::new();
    for round in 1..=from_environment("ROUNDS").unwrap_or(1u64) {
        for n in 1..=NODES {
            let when = format!("round {round}, node{n}, SEED={}", dice.seed);
            let load = Load::resume(&cluster.endpoints(), &format!("r{round}n{n}"));
            load.await_progress(1 + dice.below(ROWS_MAX / 3));
            cluster.cut_power(&[node(n)]).unwrap_or_else(|error| panic!("{when}: {error}"));
            for other in (1..=NODES).filter(|other| *other != n) {
                await_status(&cluster, other, "wsrep_cluster_size", "2");
            }
            load.await_progress(50);
            // An engine with flush=1 takes a while to catch up.
            kept.extend(load.finish());
            let logs = start_all(&mut cluster, &[node(n)], &when);
            for line in logs.iter().flat_map(|(_, lines)| lines).filter(|line| interesting(line)) {
                println!("{when}: {line}");
            }
            kept.extend(Load::resume(&cluster.endpoints(), &format!("r{round}n{n}-again")).finish());
            assert_kept(&cluster, &kept, &when);
        }
    }
    println!("power_loss_in_mode_process: {} rows kept", kept.len());
}

/// All machines at once in mode `process`, and engines that flush each commit: they are ahead of the logs, which end where the kernel
/// had got to. Plain starts in any order are enough: the cluster goes on from the engine that reaches furthest, the others copy
/// from it, and nothing is lost that was on a disk.
pub fn all_without_power_in_mode_process(bed: &Bed) {
    let Some(mut spec) = spec(bed) else { return };
    spec.provider_options = "repl.durability=process".to_owned();
    let spec = spec.option("innodb_flush_log_at_trx_commit=1").option("wsrep_slave_threads=4");
    let mut dice = dice("all_without_power_in_mode_process");
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    Load::start(&cluster.endpoints()).finish();
    let all: Vec<NodeId> = (1..=NODES).map(node).collect();
    let begun = history(&cluster, 1);
    let mut kept = BTreeSet::new();
    for round in 1..=from_environment("ROUNDS").unwrap_or(1u64) {
        let when = format!("round {round}, SEED={}", dice.seed);
        let mut acknowledged = kept.clone();
        acknowledged.extend(write_until_dark(&mut cluster, &all, round, &mut dice));
        let engines: Vec<i64> = all.iter().map(|id| cluster.position(*id).expect("can be asked").seqno).collect();
        let mut order = all.clone();
        dice.shuffle(&mut order);
        let logs = start_all(&mut cluster, &order, &when);
        let went_on =
            |line: &&String| line.contains("going on from the data of") || line.contains("going on with the best log");
        let lines = logs.iter().flat_map(|(_, lines)| lines);
        let how = lines.clone().find(went_on).unwrap_or_else(|| panic!("{when}: nobody says what is gone on with"));
        assert_equal(&cluster);
        let committed = || (1..=NODES).map(|n| client(&cluster, n).number(COMMITTED)).min();
        let furthest = engines.iter().max().copied();
        assert!(committed() > furthest, "{when}: engines had reached {engines:?}, the cluster is at {:?}", committed());
        assert_eq!(history(&cluster, 1), begun, "{when}");
        let lost = missing(&cluster, 1, &acknowledged);
        let (gone, all) = (lost.len(), acknowledged.len());
        println!("{when}: engines at {engines:?}; {gone} of {all} acknowledged rows lost; {how}");
        kept = acknowledged.difference(&lost).cloned().collect();
        kept.extend(Load::resume(&cluster.endpoints(), &format!("after{round}")).finish());
        assert_kept(&cluster, &kept, &when);
        assert_equal(&cluster);
    }
}

const COMMITTED: &str =
    "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'wsrep_last_committed'";

fn interesting(line: &str) -> bool {
    ["write-set log:", "recovered position", "machine restarted", "SST received", "full copy", "Receiving IST"]
        .iter()
        .any(|mark| line.contains(mark))
}

/// The ids of the rows that were acknowledged before the power of these nodes was gone.
fn write_until_dark(cluster: &mut Cluster, ids: &[NodeId], round: u64, dice: &mut Dice) -> BTreeSet<String> {
    let loads: Vec<Load> = (0..LOADS).map(|n| Load::resume(&cluster.endpoints(), &format!("r{round}l{n}"))).collect();
    loads[0].await_progress(1 + dice.below(ROWS_MAX / LOADS));
    cluster.cut_power(ids).unwrap_or_else(|error| panic!("{error}"));
    loads.into_iter().flat_map(Load::finish).collect()
}

fn assert_kept(cluster: &Cluster, kept: &BTreeSet<String>, when: &str) {
    for n in 1..=NODES {
        let gone = missing(cluster, n, kept);
        let (lost, all, one) = (gone.len(), kept.len(), gone.first());
        assert!(gone.is_empty(), "{when}: node{n} lost {lost} of {all} acknowledged rows, for instance {one:?}");
    }
    assert_equal(cluster);
}

/// The id of this boot as the servers see it.
fn boots_seen(cluster: &Cluster) -> Vec<String> {
    let file = |pid: i32| format!("/proc/{pid}/root/proc/sys/kernel/random/boot_id");
    let pids = cluster.nodes().iter().map(|node| node.pid.expect("runs"));
    pids.map(|pid| std::fs::read_to_string(file(pid)).expect("can be read")).collect()
}
