//! All servers die at once, and nothing that was acknowledged may be missing afterwards.
//!
//! The engines do not flush at commit here, so each comes back at a position of its own, some of what it acknowledged
//! gone. Each is started like after a reboot: the bare server, in no particular order, nobody chosen to begin.
//!
//! `ROUNDS` (default 2) and `SEED` (default: of the moment; printed) in the environment. With Galera's library the
//! nodes are started as its operators do, the most advanced one bootstrapped, and losses are only counted.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use trireme_cluster::{Cluster, LogCursor, NodeId, Start};

use crate::support::{Bed, Load, assert_equal, from_environment, missing, node, schema};

const NODES: u8 = 3;
/// Loads of one writer per node: with several, a commit is always on its way somewhere.
const LOADS: u64 = 3;
/// A round ends within so many acknowledged rows: from an engine that flushed nothing yet to one that did several times.
const ROWS_MAX: u64 = 4000;

pub fn killed_all(bed: &Bed) {
    let rounds: u64 = from_environment("ROUNDS").unwrap_or(2);
    let seed = from_environment("SEED")
        .unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64));
    println!("killed_all: SEED={seed}");
    let mut dice = Dice(seed);
    let mut spec = bed.spec();
    // With a binary log the server settles prepared transactions by another way. One node has one in any case.
    let first = node(1 + dice.below(u64::from(NODES)) as u8);
    for id in (1..=NODES).map(node).filter(|id| *id == first || dice.below(2) == 0) {
        let lines = ["log-bin", "log-slave-updates", "sync-binlog=0"];
        spec.node_options.insert(id, lines.map(str::to_owned).to_vec());
    }
    println!("killed_all: with a binary log: {:?}", spec.node_options.keys().collect::<Vec<_>>());
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    Load::start(&cluster.endpoints()).finish(); // makes the table
    let mut kept = BTreeSet::new();
    let (mut total, mut lost) = (0, 0);
    for round in 1..=rounds {
        let acknowledged = write_until_killed(&mut cluster, round, &mut dice);
        if bed.is_galera() {
            cluster.revive(&mut |_| {}).unwrap_or_else(|error| panic!("round {round}, SEED={seed}: {error}"));
            let gone = missing(&cluster, 1, &acknowledged).len();
            println!("round {round}: acknowledged {}, lost {gone}", acknowledged.len());
            total += acknowledged.len();
            lost += gone;
            continue;
        }
        restart_in_any_order(&mut cluster, &mut dice, &format!("round {round}, SEED={seed}"));
        total += acknowledged.len();
        kept.extend(acknowledged);
        for n in 1..=NODES {
            let gone = missing(&cluster, n, &kept);
            assert!(
                gone.is_empty(),
                "round {round}, SEED={seed}: node{n} lost {} of {} acknowledged rows, for instance {:?}",
                gone.len(),
                kept.len(),
                gone.first()
            );
        }
        assert_equal(&cluster);
    }
    println!("killed_all: {rounds} rounds, acknowledged {total}, lost {lost}");
}

/// The ids of the rows that were acknowledged before every server was dead.
fn write_until_killed(cluster: &mut Cluster, round: u64, dice: &mut Dice) -> BTreeSet<String> {
    let loads: Vec<Load> = (0..LOADS).map(|n| Load::resume(&cluster.endpoints(), &format!("r{round}l{n}"))).collect();
    loads[0].await_progress(1 + dice.below(ROWS_MAX / LOADS));
    cluster.kill_all().unwrap_or_else(|error| panic!("{error}"));
    loads.into_iter().flat_map(Load::finish).collect()
}

fn restart_in_any_order(cluster: &mut Cluster, dice: &mut Dice, when: &str) {
    let mut order: Vec<NodeId> = (1..=NODES).map(node).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, dice.below(i as u64 + 1) as usize);
    }
    let mut logs: Vec<(NodeId, LogCursor)> =
        order.iter().map(|id| (*id, LogCursor::at_end(&cluster.node(*id).expect("node exists").log()))).collect();
    for id in &order {
        cluster.launch(*id, Start::Plain).unwrap_or_else(|error| panic!("{when}: {error}"));
    }
    for id in &order {
        cluster.wait_synced(*id, &mut |_| {}).unwrap_or_else(|error| panic!("{when}: {error}"));
    }
    // A full copy would hide what is to be shown: that engine and log of each node together hold everything.
    for (id, log) in &mut logs {
        let lines = log.lines();
        assert!(lines.iter().any(|line| line.contains("recovered position")), "{when}: {id} did not find its position");
        let copied = lines.iter().find(|line| line.contains("SST received"));
        assert!(copied.is_none(), "{when}: {id} took a full copy: {copied:?}");
    }
}

/// SplitMix64: the same seed throws the same numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}
