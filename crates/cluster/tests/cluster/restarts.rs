//! Stops, kills and starts in any order, as they come: plain starts, no step by hand, nothing lost.
//!
//! `SEQUENCES` (default 2), `NODES` (default 3) and `SEED` in the environment.

use std::collections::BTreeSet;

use trireme_cluster::{Cluster, Dice, Liveness, LogCursor, NodeId, Start, Stop};

use crate::support::{
    Bed, Load, assert_equal, assert_no_copy, await_status, dice, eventually, from_environment, missing, node, schema,
    start_all,
};

/// Steps of one sequence, before everything is started again.
const STEPS: u64 = 8;

pub fn restarts_in_random_order(bed: &Bed) {
    let nodes: u8 = from_environment("NODES").unwrap_or(3);
    let mut dice = dice("restarts_in_random_order");
    let mut spec = bed.spec();
    spec.nodes = nodes;
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    let all: Vec<NodeId> = (1..=nodes).map(node).collect();
    let endpoints = cluster.endpoints();
    Load::start(&endpoints).finish(); // makes the table
    let mut kept = BTreeSet::new();
    for sequence in 1..=from_environment("SEQUENCES").unwrap_or(2u64) {
        let when = format!("sequence {sequence}, SEED={}", dice.seed);
        let load = Load::resume(&endpoints, &format!("s{sequence}"));
        let mut told = String::new();
        for _ in 0..STEPS {
            told.push_str(&step(&mut cluster, &all, &load, &mut dice));
            told.push(' ');
        }
        println!("{when}: {told}");
        let mut down: Vec<NodeId> = all.iter().copied().filter(|id| !runs(&cluster, *id)).collect();
        dice.shuffle(&mut down);
        for id in &down {
            cluster.launch(*id, Start::Plain).unwrap_or_else(|error| panic!("{when}: {error}"));
        }
        for id in &all {
            cluster.wait_synced(*id, &mut |_| {}).unwrap_or_else(|error| panic!("{when}: {error}"));
        }
        load.await_progress(20);
        kept.extend(load.finish());
        for n in 1..=nodes {
            let gone = missing(&cluster, n, &kept);
            let (lost, of, one) = (gone.len(), kept.len(), gone.first());
            assert!(gone.is_empty(), "{when}: node{n} lost {lost} of {of} acknowledged rows, for instance {one:?}");
        }
        assert_equal(&cluster);
    }
    println!("restarts_in_random_order: {} rows kept", kept.len());
}

fn runs(cluster: &Cluster, id: NodeId) -> bool {
    cluster.liveness(id).is_ok_and(|liveness| liveness != Liveness::Gone)
}

/// One thing happens to one node, or to all; then, perhaps, some commits.
fn step(cluster: &mut Cluster, all: &[NodeId], load: &Load, dice: &mut Dice) -> String {
    let id = all[dice.below(all.len() as u64) as usize];
    let what = if !runs(cluster, id) {
        cluster.launch(id, Start::Plain).unwrap_or_else(|error| panic!("{error}"));
        format!("start-{}", id.raw())
    } else {
        match dice.below(10) {
            0 => {
                cluster.kill_all().unwrap_or_else(|error| panic!("{error}"));
                "kill-all".to_owned()
            }
            1..=4 => {
                cluster.stop(id, Stop::Kill).unwrap_or_else(|error| panic!("{error}"));
                format!("kill-{}", id.raw())
            }
            _ => {
                cluster.stop(id, Stop::Graceful).unwrap_or_else(|error| panic!("{error}"));
                format!("stop-{}", id.raw())
            }
        }
    };
    // Some steps follow at once, some after more commits, where there is anybody to commit.
    if dice.below(2) == 0 && cluster.status().iter().any(trireme_cluster::NodeStatus::is_synced) {
        let before = load.acknowledged();
        eventually("commits go on, or the majority is lost", || {
            let somebody = cluster.status().iter().any(trireme_cluster::NodeStatus::is_synced);
            if load.acknowledged() > before + 20 || !somebody { Ok(()) } else { Err(format!("{what}: no commit")) }
        });
    }
    what
}

/// The rules of docs/durability.md for who may begin, one case after the other.
pub fn who_may_begin_is_decided_by_the_last_voters(bed: &Bed) {
    let mut cluster = bed.up(&bed.spec());
    schema(&cluster, 1);
    let mut kept = Load::start(&cluster.endpoints()).finish();

    // All killed at once: any majority of the last voters suffices.
    cluster.kill_all().unwrap();
    start_all(&mut cluster, &[node(3), node(2)], "two of three");
    kept.extend(Load::resume(&cluster.endpoints(), "two").finish());
    let logs = start_all(&mut cluster, &[node(1)], "the third");
    assert_no_copy(&logs, "the third");
    await_status(&cluster, 1, "wsrep_cluster_size", "3");

    // Stopped one after another: only the last one may begin. The others wait, and say for whom.
    for n in [2, 3, 1] {
        kept.extend(Load::resume(&cluster.endpoints(), &format!("before-stop-{n}")).finish());
        cluster.stop(node(n), Stop::Graceful).unwrap();
    }
    for n in [3, 2] {
        let mut log = LogCursor::at_end(&cluster.node(node(n)).unwrap().log());
        cluster.launch(node(n), Start::Plain).unwrap();
        let mut seen = Vec::new();
        let line = eventually(&format!("node{n} says for whom it waits"), || {
            seen.extend(log.lines());
            let line = seen.iter().find(|line| line.contains("waiting for peers to form the group again"));
            line.cloned().ok_or_else(|| seen.last().cloned().unwrap_or_default())
        });
        assert!(line.contains("node1"), "node{n} does not name the node it waits for: {line}");
    }
    // They know each other by now, and are a majority of what the group once was.
    for (n, other) in [(2, 3), (3, 2)] {
        let name = format!("('node{other}')");
        eventually(&format!("node{n} meets node{other}"), || {
            let log = std::fs::read(cluster.node(node(n)).unwrap().log()).unwrap();
            let log = String::from_utf8_lossy(&log).into_owned();
            let run = log.rfind("Start replication").map_or("", |at| &log[at..]);
            let met = run.lines().any(|line| line.contains("connection established") && line.contains(&name));
            if met { Ok(()) } else { Err("not connected".to_owned()) }
        });
    }
    for status in cluster.status() {
        assert!(!status.is_synced(), "{} serves clients without the last voter", status.node);
    }
    start_all(&mut cluster, &[node(1)], "the last voter");
    for n in [2, 3] {
        cluster.wait_synced(node(n), &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    }
    for n in 1..=3 {
        let gone = missing(&cluster, n, &kept);
        assert!(gone.is_empty(), "node{n} lost {:?}", gone.first());
    }
    assert_equal(&cluster);
}
