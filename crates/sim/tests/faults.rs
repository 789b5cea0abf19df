//! Sick members and partial connectivity: who goes on, how long anybody waits, how many terms it costs. `FAULT_SEEDS` says in how many runs the
//! longest wait is looked for.

use trireme_order::LogStore;
use trireme_sim::directed::{a_switch_to_disk, an_old_disk, an_older_end, cloned, figure_8};
use trireme_sim::{Cluster, Kind, MS, Options, SEC, StoreKind, run};
use trireme_types::Durability;

fn with(seed: u64, nodes: usize, change: impl FnOnce(&mut Options)) -> Cluster {
    let mut o = Options::calm(seed, nodes);
    // A disk that needs its time.
    o.sync_min = MS;
    o.sync_mean = 2 * MS;
    change(&mut o);
    Cluster::formed(o)
}

fn cluster(seed: u64, nodes: usize) -> Cluster {
    with(seed, nodes, |_| {})
}

fn term(c: &Cluster) -> u64 {
    (0..c.options.nodes).filter_map(|i| c.status(i)).map(|s| s.term.0).max().unwrap_or(0)
}

fn except(nodes: usize, out: &[usize]) -> Vec<usize> {
    (0..nodes).filter(|i| !out.contains(i)).collect()
}

// --- how long anybody waits -------------------------------------------------------------------------------------------

/// The worst of many, in milliseconds.
fn worst(nodes: usize, harm: impl Fn(&mut Cluster, usize, usize) -> usize) -> u64 {
    let mut worst = 0;
    let seeds = std::env::var("FAULT_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    for seed in 1..=seeds {
        let mut c = cluster(seed, nodes);
        let s = c.the_sequencer();
        let other = (s + 1 + seed as usize % (nodes - 1)) % nodes;
        let harmed = harm(&mut c, s, other);
        worst = worst.max(c.longest_gap(&except(nodes, &[harmed]), 3 * SEC) / MS);
    }
    worst
}

#[test]
fn a_sequencer_that_stands_still_is_replaced_within_a_second() {
    for nodes in [3, 5] {
        let gap = worst(nodes, |c, s, _| {
            c.pause(s);
            s
        });
        assert!(gap < 1000, "{nodes} nodes: {gap} ms");
        let gap = worst(nodes, |c, s, _| {
            c.isolate(s);
            s
        });
        assert!(gap < 1000, "{nodes} nodes, cut off: {gap} ms");
    }
}

#[test]
fn a_sequencer_that_dies_is_replaced_within_200_ms() {
    for nodes in [3, 5] {
        let gap = worst(nodes, |c, s, _| {
            c.crash(s, false);
            s
        });
        assert!(gap < 200, "{nodes} nodes: {gap} ms");
    }
}

#[test]
fn nobody_waits_for_any_other_member() {
    for nodes in [3, 5] {
        let paused = worst(nodes, |c, _, other| {
            c.pause(other);
            other
        });
        let dead = worst(nodes, |c, _, other| {
            c.crash(other, false);
            other
        });
        let isolated = worst(nodes, |c, _, other| {
            c.isolate(other);
            other
        });
        for gap in [paused, dead, isolated] {
            assert!(gap < 60, "{nodes} nodes: {paused} {dead} {isolated} ms");
        }
    }
}

#[test]
fn a_disk_that_hangs_is_waited_for_by_nobody() {
    // Its syncs do not return. A sequencer goes on ordering: the others' disks are a majority.
    for nodes in [3, 5] {
        let gap = |of_sequencer: bool| {
            worst(nodes, |c, s, other| {
                let hung = if of_sequencer { s } else { other };
                c.stall_syncs(hung, 1_000_000);
                hung
            })
        };
        let gaps = [gap(true), gap(false)];
        assert!(gaps.iter().all(|gap| *gap < 60), "{nodes} nodes: {gaps:?} ms");
    }
}

/// The others decide who votes, and write on. A change of voters and a view wait on the sequencer's own disk for its own data only.
#[test]
fn a_sequencer_whose_disk_hangs_takes_part_in_a_change_of_voters() {
    for seed in 1..=10 {
        let mut c = cluster(seed, 5);
        let s = c.the_sequencer();
        c.stall_syncs(s, 1_000_000);
        let leaver = (s + 1) % 5;
        c.leave(leaver);
        // They alone are a majority of the four that are left.
        let others = except(5, &[s, leaver]);
        let gap = c.longest_gap(&others, 10 * SEC) / MS;
        assert!(gap < 1000, "seed {seed}: {gap} ms\n{}", c.dump());
        assert!(!c.status(others[0]).unwrap().voters.contains(c.node(leaver)), "{}", c.dump());
    }
}

// --- partial connectivity -----------------------------------------------------------------------------------------------

/// After some time with these cuts: those in `going` commit without waiting, the others are out, and few terms have passed.
fn goes_on(mut c: Cluster, going: &[usize], out: &[usize]) {
    let before = term(&c);
    c.longest_gap(going, 12 * SEC);
    assert!(going.iter().all(|&i| c.is_primary(i)), "{}", c.dump());
    assert!(out.iter().all(|&i| !c.is_primary(i)), "who cannot commit must not seem to be a member\n{}", c.dump());
    assert_eq!(c.view_size(going[0]), going.len(), "{}", c.dump());
    let gap = c.longest_gap(going, 20 * SEC);
    assert!(gap < 100 * MS, "{} ms", gap / MS);
    assert!(term(&c) <= before + 2, "{} terms", term(&c) - before);
    c.conclude();
}

#[test]
fn a_follower_cut_from_the_sequencer_alone_leaves_and_comes_back() {
    for nodes in [3, 4, 5] {
        let mut c = cluster(7, nodes);
        let s = c.the_sequencer();
        let cut = (s + 1) % nodes;
        c.cut_both(s, cut);
        // A write set that it had sent and that was not ordered is not lost: it waits for the way back.
        let op = c.write(cut);
        let before = term(&c);
        c.longest_gap(&except(nodes, &[cut]), 12 * SEC);
        assert!(!c.is_primary(cut));
        assert_eq!(term(&c), before, "nobody follows it into another term");
        c.heal_network();
        // Its verdict does not matter: much was written meanwhile.
        c.expect(10 * SEC, "it is back and its write set is ordered", |c| {
            c.histories.find(op).is_some() && c.one_view() && c.settled()
        });
        let mut c = cluster(8, nodes);
        let s = c.the_sequencer();
        let cut = (s + 1) % nodes;
        c.cut_both(s, cut);
        goes_on(c, &except(nodes, &[cut]), &[cut]);
    }
}

#[test]
fn a_cut_between_followers_costs_nothing() {
    for nodes in [3, 5] {
        let mut c = cluster(7, nodes);
        let s = c.the_sequencer();
        let (a, b) = ((s + 1) % nodes, (s + 2) % nodes);
        c.cut_both(a, b);
        let before = term(&c);
        let gap = c.longest_gap(&except(nodes, &[]), 20 * SEC);
        assert!(gap < 100 * MS, "{nodes} nodes: {} ms", gap / MS);
        assert_eq!(term(&c), before);
        assert!((0..nodes).all(|i| c.is_primary(i) && c.view_size(i) == nodes));
        c.conclude();
    }
}

#[test]
fn one_way_cuts_take_out_the_one_that_is_deaf_or_mute() {
    for nodes in [3, 5] {
        for deaf in [true, false] {
            let mut c = cluster(9, nodes);
            let s = c.the_sequencer();
            let other = (s + 1) % nodes;
            if deaf {
                c.cut(s, other)
            } else {
                c.cut(other, s)
            }
            goes_on(c, &except(nodes, &[other]), &[other]);
        }
    }
}

#[test]
fn a_sequencer_that_is_deaf_or_mute_is_replaced() {
    for nodes in [3, 5] {
        for deaf in [true, false] {
            let mut c = cluster(11, nodes);
            let s = c.the_sequencer();
            for other in except(nodes, &[s]) {
                if deaf { c.cut(other, s) } else { c.cut(s, other) }
            }
            goes_on(c, &except(nodes, &[s]), &[s]);
        }
    }
}

#[test]
fn in_a_ring_of_five_one_orders_for_its_neighbours() {
    for seed in 1..=10 {
        let mut c = cluster(seed, 5);
        let before = term(&c);
        for a in 0..5 {
            c.cut_both(a, (a + 2) % 5);
        }
        let s = {
            c.pass(20 * SEC);
            c.the_sequencer()
        };
        let near = [s, (s + 1) % 5, (s + 4) % 5];
        assert!(near.iter().all(|&i| c.is_primary(i)), "{}", c.dump());
        let gap = c.longest_gap(&near, 20 * SEC);
        assert!(gap < 100 * MS, "{} ms", gap / MS);
        assert!(term(&c) <= before + 2, "{} terms", term(&c) - before);
        c.conclude();
    }
}

#[test]
fn whoever_sees_a_majority_goes_on_when_the_sequencer_sees_none() {
    // A chain b - a - c and nothing else: only a can order.
    for sequencer_in_the_middle in [true, false] {
        let mut c = cluster(13, 3);
        let s = c.the_sequencer();
        let middle = if sequencer_in_the_middle { s } else { (s + 1) % 3 };
        let ends = except(3, &[middle]);
        c.cut_both(ends[0], ends[1]);
        let before = term(&c);
        c.pass(10 * SEC);
        let gap = c.longest_gap(&[middle], 20 * SEC);
        assert!(gap < 100 * MS, "{} ms", gap / MS);
        assert!(term(&c) <= before + 2);
        c.conclude();
    }
}

#[test]
fn a_flapping_link_changes_no_term_and_no_view() {
    let mut c = cluster(15, 3);
    let s = c.the_sequencer();
    let other = (s + 1) % 3;
    let (before, counted) = (term(&c), c.status(other).unwrap().term_changes);
    for _ in 0..100 {
        c.reset_link(s, other);
        c.longest_gap(&except(3, &[other]), 150 * MS);
    }
    assert_eq!(term(&c), before);
    assert_eq!(c.status(other).unwrap().term_changes, counted, "a lost link is no change of term");
    assert!((0..3).all(|i| c.is_primary(i) && c.view_size(i) == 3));
    c.conclude();
}

#[test]
fn the_last_member_of_the_view_leaves_while_the_others_come_back() {
    for seed in 1..=20 {
        let mut c = cluster(seed, 3);
        let s = c.the_sequencer();
        let others = except(3, &[s]);
        for &o in &others {
            c.crash(o, false);
        }
        c.pass(seed * 100 * MS);
        c.leave(s);
        for &o in &others {
            c.join(o);
        }
        c.expect(60 * SEC, "it has left", |c| !c.is_running(s));
        c.expect(60 * SEC, "the others go on", |c| others.iter().all(|&o| c.is_primary(o) && c.view_size(o) == 2));
        c.conclude();
    }
}

// --- no false alarms ------------------------------------------------------------------------------------------------------

#[test]
fn nothing_serious_passes_unnoticed() {
    for seed in 0..60 {
        let report = run(Options::harmless(seed), false);
        assert!(report.failure.is_none(), "{report}");
    }
}

#[test]
fn the_checker_of_false_alarms_can_fail() {
    let caught = (0..60).find(|&seed| {
        let mut o = Options::harmless(seed);
        assert_eq!(o.kind, Kind::Harmless);
        // As much as one pause.
        o.timeouts.suspect = std::time::Duration::from_secs(2);
        run(o, false).failure.is_some()
    });
    assert!(caught.is_some());
}

// --- Raft's figure 8 --------------------------------------------------------------------------------------------------------

#[test]
fn an_entry_of_an_older_term_is_not_committed_by_counting() {
    assert_eq!(figure_8(3, None), None);
}

// --- the first entry of a term, in mode `process` ---------------------------------------------------------------------

#[test]
fn the_end_of_an_older_term_does_not_pass_for_what_was_lost() {
    for seed in 1..=40 {
        assert_eq!(an_older_end(seed, None), None, "seed {seed}");
    }
}

// --- a switch of the durability ---------------------------------------------------------------------------------------

#[test]
fn nothing_is_committed_behind_a_switch_to_disk_before_it_is_there() {
    for seed in 1..=20 {
        assert_eq!(a_switch_to_disk(seed, None), None, "seed {seed}");
    }
}

/// One of three has a disk that hangs, and a tail in mode `disk` that the others have on theirs. The mode goes to `process` and back. The way
/// back comes together with what lies before it: the acknowledgement of that is sent when the log says `disk` again, and is none for less.
#[test]
fn what_was_acknowledged_before_a_switch_to_disk_is_said_behind_it_too() {
    for seed in 1..=20 {
        let mut c = with(seed, 3, |o| (o.durability, o.batch_bytes_max) = (Durability::Disk, 1));
        let orders = c.the_sequencer();
        let slow = (orders + 1) % 3;
        c.stall_syncs(slow, 1_000_000);
        c.write_committed(orders);
        let unsynced = c.store(slow).last();
        assert!(c.store(slow).synced() < unsynced);
        c.set_durability(orders, Durability::Process);
        let mode = |c: &Cluster, slot| c.status(slot).map(|s| s.durability);
        c.expect(SEC, "its disk counts no more", |c| mode(c, slow) == Some(Durability::Process));
        c.pause(slow);
        c.write_committed(orders);
        c.set_durability(orders, Durability::Disk);
        c.expect(SEC, "the others are back", |c| mode(c, orders) == Some(Durability::Disk));
        let end = c.store(orders).last();
        c.resume(slow);
        c.expect(SEC, "it has all", |c| c.store(slow).last() >= end);
        assert!(c.store(slow).synced() < unsynced, "its disk still hangs");
        c.conclude();
    }
}

// --- an old disk ------------------------------------------------------------------------------------------------------

#[test]
fn whoever_was_told_that_its_disk_is_old_knows_it_at_the_next_start() {
    for seed in 1..=20 {
        assert_eq!(an_old_disk(seed, None), None, "seed {seed}");
    }
}

// --- a cloned disk ----------------------------------------------------------------------------------------------------

#[test]
fn who_was_replaced_by_a_clone_does_not_come_back_beside_it() {
    for seed in 1..=20 {
        assert_eq!(cloned(seed, None), None, "seed {seed}");
    }
}

/// `--kind harmless`, seeds 1122 and 2553: a sync that had begun on a stalled disk took as long as the stall had made it, long after the
/// stall. So a cluster that was called healed was not.
#[test]
fn a_sync_that_a_stall_has_caught_ends_with_the_stall() {
    for store in [StoreKind::Fast, StoreKind::Real] {
        let mut c = with(1, 2, |o| o.store = store);
        c.stall_syncs(0, 1_000_000);
        let op = c.write(1);
        c.pass(10 * SEC);
        assert!(!c.committed(op), "nobody can know that it is durable on both");
        c.heal();
        c.expect(SEC, "the stall is over", |c| c.committed(op));
        c.conclude();
    }
}
