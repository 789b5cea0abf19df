//! Nodes that die, freeze, stop.

use crate::support::{
    Bed, Load, assert_all_there, assert_equal, await_status, client_in_d, dice, eventually, from_environment, node,
    schema,
};
use std::fs;
use std::time::{Duration, Instant};
use trireme_cluster::{Liveness, LogCursor, Start, Stop};

pub fn killed_nodes_come_back_without_loss(bed: &Bed) {
    let mut cluster = bed.up(&bed.spec().option("innodb_flush_log_at_trx_commit=1"));
    schema(&cluster, 1);
    let load = Load::start(&cluster.endpoints());
    for n in [2, 1, 3] {
        cluster.kill(node(n)).unwrap();
        // The others go on, whichever node it was.
        for other in (1..=3).filter(|other| *other != n) {
            await_status(&cluster, other, "wsrep_cluster_size", "2");
        }
        load.await_progress(50);
        let mut log = LogCursor::at_end(&cluster.node(node(n)).unwrap().log());
        cluster.start(node(n), Start::Recover, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
        load.await_progress(50);
        speaks_of_now(&log.lines());
    }
    // Without its position the node has to take a copy; data must be equal all the same.
    cluster.kill(node(2)).unwrap();
    cluster.start(node(2), Start::Plain, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    let acknowledged = load.finish();
    for n in 1..=3 {
        assert_all_there(&cluster, n, &acknowledged);
    }
    assert_equal(&cluster);
}

/// A node tells in one line that it has replayed its own log, and not as if that happened now: the views of three from before the death come
/// again only as the one that the node joined.
fn speaks_of_now(lines: &[String]) {
    let count = |wanted: &str| lines.iter().filter(|line| line.contains(wanted)).count();
    assert_eq!(count("entries of the write-set log in "), 1, "{lines:#?}");
    assert_eq!(count("memb_num = 3"), 1, "{lines:#?}");
    assert_eq!(count("memb_num = 1") + count("State transfer from"), 0, "{lines:#?}");
}

/// A service manager loses patience: SIGTERM under load, SIGKILL while the server still ends. The engine has not got everything on
/// disk then, whatever the state file says.
pub fn a_stop_that_is_cut_short_loses_nothing(bed: &Bed) {
    let rounds: u32 = from_environment("ROUNDS").unwrap_or(3);
    let mut dice = dice("a_stop_that_is_cut_short_loses_nothing");
    let mut cluster = bed.up(&bed.spec().option("innodb_flush_log_at_trx_commit=0"));
    schema(&cluster, 1);
    let load = Load::start(&cluster.endpoints());
    let third = cluster.node(node(3)).unwrap().clone();
    for round in 0..rounds {
        for n in 1..=3 {
            let flush = dice.below(3);
            client_in_d(&cluster, n)
                .run(&format!("SET GLOBAL innodb_flush_log_at_trx_commit = {}", [0, 0, 2][flush as usize]));
        }
        load.await_progress(100);
        cluster.ask_to_stop(third.id).unwrap();
        let told = Instant::now();
        // As soon as the state file has a position, or at any moment.
        let moment = if dice.below(2) == 0 { None } else { Some(Duration::from_millis(dice.below(4000))) };
        eventually("the moment to kill it", || {
            let state = fs::read_to_string(third.data().join("grastate.dat")).unwrap_or_default();
            let stopped = !state.contains("seqno:   -1") || cluster.liveness(third.id).unwrap() == Liveness::Gone;
            if moment.map_or(stopped, |moment| told.elapsed() >= moment) { Ok(()) } else { Err(state) }
        });
        cluster.stop(third.id, Stop::Kill).unwrap();
        let how = if dice.below(2) == 0 { Start::Plain } else { Start::Recover };
        let mut log = LogCursor::at_end(&third.log());
        cluster.start(third.id, how, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
        let lines = log.lines();
        let copied = lines.iter().any(|line| line.contains("State transfer required"));
        let asked = lines.iter().any(|line| line.contains("recovered position"));
        println!("round {round}: killed {moment:?}, started {how:?}, engine asked: {asked}, full copy: {copied}");
        assert!(!copied, "its log holds what its engine lost: {lines:#?}");
    }
    let acknowledged = load.finish();
    for n in 1..=3 {
        assert_all_there(&cluster, n, &acknowledged);
    }
    assert_equal(&cluster);
}

pub fn whole_cluster_stops_and_starts_again(bed: &Bed) {
    let mut cluster = bed.up(&bed.spec().option("innodb_flush_log_at_trx_commit=1"));
    schema(&cluster, 1);
    let mut load = Load::start(&cluster.endpoints());
    for (round, how) in [("b", Stop::Graceful), ("c", Stop::Kill)] {
        load.await_progress(100);
        if how == Stop::Graceful {
            // Under load: whatever was acknowledged before the last node went must be there.
            for n in [1, 2] {
                cluster.stop(node(n), how).unwrap();
            }
        }
        let acknowledged = load.finish();
        cluster.down(how, false).unwrap();
        cluster.revive(&mut |_| {}).unwrap_or_else(|error| panic!("after {how:?}: {error}"));
        for n in 1..=3 {
            assert_all_there(&cluster, n, &acknowledged);
        }
        assert_equal(&cluster);
        load = Load::resume(&cluster.endpoints(), round);
    }
    let acknowledged = load.finish();
    assert_all_there(&cluster, 2, &acknowledged);

    // As a server leaves it that is killed while it starts. Without the provider none starts with it.
    cluster.stop(node(3), Stop::Graceful).unwrap();
    let transactions = cluster.node(node(3)).unwrap().data().join("tc.log");
    assert!(!transactions.exists(), "a server that stops in order removes it");
    fs::write(transactions, []).unwrap();
    cluster.launch(node(3), Start::Plain).unwrap();
    await_status(&cluster, 3, "wsrep_local_state_comment", "Synced");
}

pub fn paused_node_catches_up(bed: &Bed) {
    let mut cluster = bed.up(&bed.spec());
    schema(&cluster, 1);
    let load = Load::start(&cluster.endpoints()[..2]);
    // Shorter than any failure detector, then longer than all of them.
    cluster.pause(node(3)).unwrap();
    cluster.resume(node(3)).unwrap();
    load.await_progress(20);
    cluster.pause(node(3)).unwrap();
    for n in 1..=2 {
        await_status(&cluster, n, "wsrep_cluster_size", "2");
    }
    load.await_progress(50);
    cluster.resume(node(3)).unwrap();
    await_status(&cluster, 1, "wsrep_cluster_size", "3");
    await_status(&cluster, 3, "wsrep_local_state_comment", "Synced");
    let acknowledged = load.finish();
    assert_all_there(&cluster, 3, &acknowledged);
    assert_equal(&cluster);
}

pub fn seven_nodes_form_one_group(bed: &Bed) {
    let mut spec = bed.spec();
    spec.nodes = 5;
    let mut cluster = bed.up(&spec);
    schema(&cluster, 3);
    let load = Load::start(&cluster.endpoints());
    for _ in 0..2 {
        cluster.add(Vec::new(), &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    }
    for n in 1..=7 {
        await_status(&cluster, n, "wsrep_cluster_size", "7");
        await_status(&cluster, n, "wsrep_local_state_comment", "Synced");
    }
    assert_eq!(client_in_d(&cluster, 7).number("SELECT @@auto_increment_increment"), 7);
    // Two leave, one dies: four are a majority of every group on the way.
    cluster.remove(node(7)).unwrap();
    cluster.stop(node(1), Stop::Graceful).unwrap();
    cluster.kill(node(2)).unwrap();
    await_status(&cluster, 3, "wsrep_cluster_size", "4");
    load.await_progress(50);
    cluster.start(node(1), Start::Recover, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    cluster.start(node(2), Start::Recover, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    let acknowledged = load.finish();
    for n in 1..=6 {
        assert_all_there(&cluster, n, &acknowledged);
    }
    assert_equal(&cluster);
}
