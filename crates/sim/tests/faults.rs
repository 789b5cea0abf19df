//! Sick members and partial connectivity: who goes on, how long anybody waits, how many terms it costs.

use std::ops::RangeInclusive;

use trireme_order::{Content, LogStore, Message};
use trireme_sim::{Cluster, DbFlush, Kind, MS, Mutant, Options, SEC, Sabotage, StoreKind, run};
use trireme_types::Durability;

/// What comes of a scenario in which a rule is broken: one of the seeds has to notice, by a verdict or a panic.
fn expect_caught(
    mutant: &str,
    mut seeds: RangeInclusive<u64>,
    broken: impl Fn(u64) -> Option<String> + std::panic::RefUnwindSafe,
) {
    let verdict = |seed| std::panic::catch_unwind(|| broken(seed)).unwrap_or_else(|_| Some("panic".into()));
    let caught = seeds.find_map(|seed| verdict(seed).map(|text| (seed, text)));
    println!("{mutant} is caught: {caught:?}");
    assert!(caught.is_some());
}

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
    for seed in 1..=25 {
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

/// The others decide who votes, and write on: a change of voters and a view wait on the sequencer's own disk for its own data only.
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
        // What it had sent and was not ordered is not lost: it waits for the way back.
        let op = c.write(cut);
        let before = term(&c);
        c.longest_gap(&except(nodes, &[cut]), 12 * SEC);
        assert!(!c.is_primary(cut));
        assert_eq!(term(&c), before, "nobody follows it into another term");
        c.heal_network();
        // With what verdict does not matter: much was written meanwhile.
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

/// Five nodes. An entry of an older term reaches a majority in a later one, whose own entries reach nobody; then one with a
/// newer last term wins and replaces it. Says what the checkers say.
fn figure_8(mutant: Option<Mutant>) -> Option<String> {
    let mut o = Options::calm(3, 5);
    // One entry per message.
    o.batch_bytes_max = 1;
    o.mutant = mutant;
    let mut c = Cluster::formed(o);
    let old = term(&c);
    let first = c.the_sequencer();
    let friend = (first + 1) % 5;
    let rest = except(5, &[first, friend]);
    // An entry that only two hold.
    for &r in &rest {
        c.cut_both(first, r);
        c.cut_both(friend, r);
    }
    let op = c.write(first);
    let held = |c: &Cluster, slot: usize| c.store(slot).last();
    let at = held(&c, friend).next();
    c.expect(SEC, "two hold it", |c| held(c, first) >= at && held(c, friend) >= at);
    c.crash(first, false);
    // Of the rest one begins a term, which nobody else hears of.
    let new_terms = move |m: &Message| match m.content() {
        Some(Content::Append(append)) => append.entries.iter().any(|(h, _)| h.term.0 > old),
        _ => false,
    };
    let hide = move |c: &mut Cluster| {
        c.set_filter(Some(Box::new(move |_, _, m| {
            if new_terms(m) { trireme_sim::Verdict::Drop } else { trireme_sim::Verdict::Pass }
        })));
    };
    hide(&mut c);
    let stands = |c: &Cluster| {
        let orders = |i: &usize| c.status(*i).is_some_and(|s| s.sequencer == Some(c.node(*i)) && s.last >= at);
        rest.iter().copied().find(orders)
    };
    c.expect(10 * SEC, "one of the three orders", |c| stands(c).is_some());
    let third = stands(&c).unwrap();
    c.crash(third, false);
    let rest = except(5, &[first, friend, third]);
    // The first two come back with their entry and bring it to the others, but nothing of their own term.
    c.heal_network();
    for &r in &rest {
        // Only they may order: the others' logs are worse.
        assert!(held(&c, r) < at);
    }
    c.join(first);
    let reached = c.run_until(20 * SEC, |c| rest.iter().all(|&r| held(c, r) >= at));
    if c.failure.is_some() {
        return c.failure;
    }
    assert!(reached, "the old entry reaches a majority\n{}", c.dump());
    c.run_for(500 * MS);
    let committed = c.histories.find(op).is_some();
    assert!(mutant.is_some() || !committed, "held by a majority, and not decided");
    c.crash(first, false);
    c.crash(friend, false);
    // Now only the third can win: the others hear nobody but it.
    c.cut_both(rest[0], rest[1]);
    c.set_filter(None);
    c.join(third);
    c.run_until(20 * SEC, |c| c.status(third).is_some_and(|s| s.committed > at));
    c.heal_network();
    c.join(first);
    c.join(friend);
    c.liveness_phase();
    if c.failure.is_none() {
        c.final_check();
    }
    c.failure
}

#[test]
fn an_entry_of_an_older_term_is_not_committed_by_counting() {
    assert_eq!(figure_8(None), None);
}

#[test]
fn committing_it_by_counting_is_noticed() {
    expect_caught("older-term-commits", 0..=0, |_| figure_8(Some(Mutant::OlderTermCommits)));
}

// --- the first entry of a term, in mode `process` ---------------------------------------------------------------------

/// Three nodes whose engines flush each commit. One is left alone with an entry that nobody has; the others go on in a new term and
/// lose their power, and with it what their logs had not synced. What the first one holds must not pass for what they had.
fn an_older_end(seed: u64, mutant: Option<Mutant>) -> Option<String> {
    let mut o = Options::calm(seed, 3);
    o.durability = Durability::Process;
    o.db_flush = DbFlush::Each;
    // What goes on from data is another branch.
    o.dark = true;
    o.mutant = mutant;
    let mut c = Cluster::formed(o);
    let alone = c.the_sequencer();
    let rest = except(3, &[alone]);
    c.isolate(alone);
    c.write(alone);
    let orders = |c: &Cluster| {
        rest.iter()
            .copied()
            .find(|&i| c.status(i).is_some_and(|s| s.sequencer == Some(c.node(i)) && s.committed == s.last))
    };
    c.expect(10 * SEC, "another one orders", |c| orders(c).is_some());
    let second = orders(&c).unwrap();
    let committed = |c: &Cluster, node| c.status(node).map(|s| s.committed);
    let before = committed(&c, second);
    c.write(second);
    c.expect(SEC, "both have it", |c| rest.iter().all(|&node| committed(c, node) > before));
    c.run_for(20 * MS);
    for &node in &rest {
        c.crash(node, true);
    }
    c.crash(alone, false);
    c.heal_network();
    for node in 0..3 {
        c.join(node);
    }
    c.liveness_phase();
    if c.failure.is_none() {
        c.final_check();
    }
    c.failure
}

#[test]
fn the_end_of_an_older_term_does_not_pass_for_what_was_lost() {
    for seed in 1..=40 {
        assert_eq!(an_older_end(seed, None), None, "seed {seed}");
    }
}

#[test]
fn to_acknowledge_the_first_entry_of_a_term_unsynced_is_noticed() {
    expect_caught("term-unsynced", 1..=40, |seed| an_older_end(seed, Some(Mutant::TermUnsynced)));
}

// --- a cloned disk ----------------------------------------------------------------------------------------------------

/// A copy of a member's directory is started beside the member, which loses its links to it. Later the sequencer is cut from all but the
/// member that the copy replaced: as a voter that one would help it to commit what the others, with the copy, know nothing of.
fn cloned(seed: u64, sabotage: Option<Sabotage>) -> Option<String> {
    let mut o = Options::calm(seed, 3);
    o.sabotage = sabotage;
    let mut c = Cluster::formed(o);
    let orders = c.the_sequencer();
    let (original, third) = ((orders + 1) % 3, (orders + 2) % 3);
    let clone = c.clone_disk(original);
    c.write_committed(original);
    c.join(clone);
    c.expect(10 * SEC, "the copy takes the member's place", |c| c.is_primary(clone) && !c.is_primary(original));
    for other in [clone, third] {
        c.cut_both(orders, other);
        c.reset_link(orders, other);
    }
    c.run_for(100 * MS);
    c.write(orders);
    let goes_on = |c: &Cluster| [clone, third].iter().all(|&i| c.is_primary(i) && c.view_size(i) == 2);
    if !c.run_until(30 * SEC, goes_on) {
        return Some(c.failure.unwrap_or("the others do not go on".into()));
    }
    c.write(third);
    c.run_for(SEC);
    c.heal_network();
    // What the message in the log asks for.
    c.wipe(original);
    c.join(original);
    c.liveness_phase();
    if c.failure.is_none() {
        c.final_check();
    }
    c.failure
}

#[test]
fn who_was_replaced_by_a_clone_does_not_come_back_beside_it() {
    for seed in 1..=20 {
        assert_eq!(cloned(seed, None), None, "seed {seed}");
    }
}

#[test]
fn to_let_it_come_back_is_noticed() {
    expect_caught("twin-returns", 1..=20, |seed| cloned(seed, Some(Sabotage::TwinReturns)));
}

/// `--kind harmless`, seeds 1122 and 2553: a sync that had begun on a stalled disk took as long as the stall had made it, long
/// after the stall, so that what is called healed was not.
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
