//! The disk with a node's log fails, hangs, or forgets, and works again: who goes on, and where the server goes on from.

use trireme_order::LogStore;
use trireme_sim::check::Outcome;
use trireme_sim::{Cluster, MS, Options, SEC, Sick, Situation, StoreKind};
use trireme_types::Durability;

fn cluster(seed: u64, durability: Durability) -> Cluster {
    let mut o = Options::calm(seed, 3);
    o.store = if seed.is_multiple_of(2) { StoreKind::Real } else { StoreKind::Fast };
    o.durability = durability;
    o.outage_mean = SEC;
    Cluster::formed(o)
}

fn goes_out(c: &mut Cluster, slot: usize, works_in: u64, drops: bool) {
    let works_at = c.now + works_in;
    c.break_disk(slot, Sick::Writes, 0, works_at, drops);
    for other in 0..c.options.nodes {
        c.write(other);
    }
    c.expect(5 * SEC, "it sits out", |c| c.sits_out(slot));
}

/// Writes on `slot`, and waits until the client is told how that ended. Others write beside it, so it may fail certification.
fn write_decided(c: &mut Cluster, slot: usize) -> u64 {
    let op = c.write(slot);
    let decided = |c: &Cluster| matches!(c.clients.outcome(op), Some(Outcome::Committed(_) | Outcome::Conflict(_)));
    c.expect(30 * SEC, "a write set is decided", decided);
    op
}

fn is_back(c: &mut Cluster, slot: usize) {
    c.expect(30 * SEC, "it is back", |c| c.is_primary(slot) && c.settled());
}

#[test]
fn a_server_goes_on_from_where_it_stood_and_the_others_go_on_without_it() {
    for seed in 1..=20 {
        for orders in [false, true] {
            let mut c = cluster(seed, Durability::Disk);
            let copies = c.copies;
            let sequencer = c.the_sequencer();
            let slot = if orders { sequencer } else { (sequencer + 1) % 3 };
            goes_out(&mut c, slot, 3 * SEC, false);
            let stood = c.database_position(slot);
            assert!(!c.is_primary(slot));
            for _ in 0..20 {
                write_decided(&mut c, (slot + 1) % 3);
            }
            let (here, there) = (c.database_position(slot), c.database_position((slot + 1) % 3));
            assert!(here >= stood && here < there, "its server is given nothing meanwhile");
            is_back(&mut c, slot);
            assert!(c.is_running(slot) && c.copies == copies, "no copy");
            assert_eq!(c.situations.times(Situation::Resumed), 1);
            write_decided(&mut c, slot);
            c.conclude();
        }
    }
}

#[test]
fn two_of_three_out_are_no_majority_and_all_three_come_back_alone() {
    for seed in 1..=20 {
        let mut c = cluster(seed, Durability::Disk);
        for slot in [0, 1] {
            goes_out(&mut c, slot, 20 * SEC, false);
        }
        c.expect(60 * SEC, "the majority is lost", |c| !c.is_primary(2));
        c.expect(90 * SEC, "they are back", |c| (0..3).all(|slot| c.is_primary(slot)) && c.settled());
        write_decided(&mut c, 0);
        c.conclude();
    }
}

/// In mode `process` a disk drops pages that it could not write. Then its log may lack entries that its member acknowledged.
#[test]
fn what_the_disk_forgot_the_others_bring_back() {
    let mut forgot = 0;
    for seed in 1..=20 {
        let mut c = cluster(seed, Durability::Process);
        let sequencer = c.the_sequencer();
        let (slot, third) = ((sequencer + 1) % 3, (sequencer + 2) % 3);
        c.stall_syncs(slot, 1_000_000);
        let ops: Vec<u64> = (0..20).map(|_| write_decided(&mut c, slot)).collect();
        goes_out(&mut c, slot, 2 * SEC, true);
        // Two of three have it, and one of these is away.
        c.crash(third, false);
        c.expect(20 * SEC, "its disk works", |c| !c.sits_out(slot));
        forgot += c.situations.times(Situation::OutageLost);
        c.stall_syncs(slot, 1);
        c.pass(5 * SEC);
        c.join(third);
        is_back(&mut c, slot);
        assert!(ops.iter().any(|op| c.committed(*op)));
        c.conclude();
    }
    assert!(forgot >= 5, "{forgot} of 20 disks forgot something");
}

#[test]
fn a_disk_that_hangs_costs_nobody_else_more_than_a_second() {
    for seed in 1..=20 {
        let mut c = cluster(seed, Durability::Disk);
        let slot = c.the_sequencer();
        c.hang(slot);
        let others: Vec<usize> = (0..3).filter(|s| *s != slot).collect();
        let gap = c.longest_gap(&others, 3 * SEC);
        assert!(gap < SEC, "{} ms", gap / MS);
        // Then it fails, or not.
        c.end_hang(slot, seed.is_multiple_of(3));
        c.expect(60 * SEC, "it is back", |c| c.is_primary(slot) && c.settled());
        c.conclude();
    }
}

#[test]
fn a_server_that_dies_in_an_outage_starts_when_the_disk_works() {
    for seed in 1..=20 {
        let mut c = cluster(seed, Durability::Disk);
        let slot = (c.the_sequencer() + 1) % 3;
        goes_out(&mut c, slot, 10 * SEC, seed.is_multiple_of(2));
        let last = c.store(slot).synced();
        c.crash(slot, false);
        assert!(c.store(slot).last() >= last, "what was acknowledged is there");
        c.pass(SEC);
        c.join(slot);
        is_back(&mut c, slot);
        c.conclude();
    }
}

/// The others order it while its node is out. Its client is told in its turn, and executes it; no applier does.
#[test]
fn a_statement_that_is_ordered_in_an_outage_is_executed_by_its_client() {
    for seed in 1..=20 {
        let mut c = cluster(seed, Durability::Disk);
        let sequencer = c.the_sequencer();
        let slot = (sequencer + 1) % 3;
        let works_at = c.now + 2 * SEC;
        c.break_disk(slot, Sick::Writes, 0, works_at, false);
        c.options.isolated_share = 1.0;
        let statement = c.write(slot);
        c.options.isolated_share = 0.0;
        c.expect(5 * SEC, "it sits out", |c| c.sits_out(slot));
        c.expect(5 * SEC, "the others have it", |c| c.is_ordered(statement));
        assert_eq!(c.clients.outcome(statement), Some(Outcome::Unknown));
        assert!(c.waits_for(slot, statement), "its client waits");
        is_back(&mut c, slot);
        assert!(matches!(c.clients.outcome(statement), Some(Outcome::Committed(_))));
        assert_eq!(c.situations.times(Situation::OrderedUnfed), 1);
        c.conclude();
    }
}

/// A backup desyncs its server before an outage, in it, or in the one before. The group knows when the node is back, and of the end as well.
#[test]
fn a_backup_that_outlasts_an_outage_stays_desynced_and_is_resynced_once() {
    for seed in 1..=20 {
        let mut c = cluster(seed, Durability::Disk);
        let sequencer = c.the_sequencer();
        let slot = (sequencer + 1) % 3;
        let in_it = seed.is_multiple_of(2);
        if !in_it {
            assert!(c.hold_order(slot, true));
            c.expect(SEC, "it has desynced", |c| c.desyncs(sequencer, slot) == 1);
        }
        goes_out(&mut c, slot, 3 * SEC, false);
        if in_it {
            assert!(c.hold_order(slot, true));
        }
        for _ in 0..2 {
            c.expect(30 * SEC, "it is back", |c| !c.sits_out(slot) && c.is_primary(slot));
            c.expect(SEC, "it has desynced", |c| c.desyncs(sequencer, slot) == 1);
            goes_out(&mut c, slot, 3 * SEC, false);
        }
        if in_it {
            // Nobody can hear it.
            c.resume_order(slot);
            is_back(&mut c, slot);
        } else {
            c.expect(30 * SEC, "it is back", |c| c.is_primary(slot));
            c.expect(SEC, "it has desynced", |c| c.desyncs(sequencer, slot) == 1);
            c.resume_order(slot);
        }
        c.expect(SEC, "it counts again", |c| c.desyncs(sequencer, slot) == 0);
        c.conclude();
    }
}

/// It ends as soon as its node is a member again, which is before the node has told the group of the desync. The group hears of the end behind that,
/// or else would count the node as desynced for ever.
#[test]
fn a_backup_that_ends_as_its_node_comes_back_is_not_desynced_behind_that() {
    for seed in 1..=20 {
        let mut c = cluster(seed, Durability::Disk);
        let sequencer = c.the_sequencer();
        let slot = (sequencer + 1) % 3;
        goes_out(&mut c, slot, 3 * SEC, false);
        assert!(c.hold_order(slot, true));
        c.catch(30 * SEC, "it is back", |c| !c.sits_out(slot) && c.is_primary(slot));
        assert_eq!(c.desyncs(sequencer, slot), 0);
        c.resume_order(slot);
        c.run_for(SEC);
        assert_eq!(c.desyncs(sequencer, slot), 0, "seed {seed}");
        c.conclude();
    }
}
