//! A voter without data (rule 14): what it must do, and what it must never do.

use trireme_order::Phase;
use trireme_sim::{Cluster, MS, Options, SEC};
use trireme_types::Durability;

const A: usize = 0;
const B: usize = 1;
/// The arbitrator of two servers.
const X: usize = 2;

fn two_and_an_arbitrator(change: impl FnOnce(&mut Options)) -> Cluster {
    let mut o = Options::calm(1, 3);
    o.arbitrators = 1;
    change(&mut o);
    Cluster::formed(o)
}

/// A has committed something with the arbitrator alone, and is dead now.
fn only_the_arbitrator_has_it(c: &mut Cluster) -> Vec<u64> {
    c.isolate(B);
    let with = c.other_sequencer(B);
    assert_eq!(with, A);
    let ops = (0..20).map(|_| c.write_committed(A)).collect();
    c.crash(A, true);
    c.pass(SEC);
    c.heal_network();
    ops
}

#[test]
fn either_server_dies_and_the_other_goes_on_within_a_second() {
    for dies in [A, B] {
        let mut c = two_and_an_arbitrator(|_| {});
        c.write_committed(A);
        c.crash(dies, false);
        let survivor = A + B - dies;
        let op = c.write(survivor);
        c.expect(SEC, "the survivor commits", |c| c.committed(op));
        c.conclude();
    }
}

#[test]
fn what_only_the_arbitrator_holds_is_brought_to_the_other_server() {
    let mut c = two_and_an_arbitrator(|_| {});
    let ops = only_the_arbitrator_has_it(&mut c);
    c.expect(5 * SEC, "the other server orders", |c| c.is_primary(B) && c.sequencer() == Some(B));
    for op in ops {
        assert!(c.histories.find(op).is_some());
    }
    c.write_committed(B);
    c.conclude();
}

#[test]
fn the_other_server_gets_it_after_the_death_of_all_in_any_order_of_starting() {
    for order in [[A, B, X], [A, X, B], [B, A, X], [B, X, A], [X, A, B], [X, B, A]] {
        let mut c = two_and_an_arbitrator(|_| {});
        let ops = only_the_arbitrator_has_it(&mut c);
        c.crash(B, true);
        c.crash(X, true);
        for slot in order {
            c.join(slot);
            c.pass(10 * SEC);
        }
        assert!(ops.iter().all(|op| c.histories.find(*op).is_some()), "{order:?}");
        c.write_committed(B);
        c.conclude();
    }
}

#[test]
fn an_arbitrator_orders_only_until_a_server_can() {
    let mut c = two_and_an_arbitrator(|_| {});
    only_the_arbitrator_has_it(&mut c);
    // Much later: a second arbitrator term would show as one more.
    let knows = |c: &Cluster, slot| c.status(slot).is_some_and(|s| s.sequencer == Some(c.node(B)));
    c.expect(5 * SEC, "the other server orders", |c| knows(c, B) && knows(c, X));
    let terms = c.terms;
    c.pass(20 * SEC);
    assert_eq!(c.sequencer(), Some(B));
    assert_eq!(c.terms, terms, "nobody asks for another term");
    c.conclude();
}

#[test]
fn without_the_arbitrator_two_servers_go_on_and_one_alone_does_not() {
    let mut c = two_and_an_arbitrator(|_| {});
    c.crash(X, true);
    c.write_committed(A);
    c.write_committed(B);
    c.crash(A, false);
    c.pass(20 * SEC);
    assert!(!c.is_primary(B));
    c.join(X);
    c.expect(5 * SEC, "the server that is left goes on with it", |c| c.is_primary(B));
    c.conclude();
}

#[test]
fn what_was_dropped_is_not_led_for() {
    // The bound is nothing: an entry that one server has is dropped, although the other lacks it.
    let mut c = two_and_an_arbitrator(|o| {
        o.arbitrator_keep = 0;
        o.durability = Durability::Disk;
    });
    let ops = only_the_arbitrator_has_it(&mut c);
    let base = c.base(X);
    assert!(base > c.last(B), "the log of the arbitrator begins at {base:?}, the server's ends at {:?}", c.last(B));
    let held = c.last(B);
    c.pass(30 * SEC);
    assert!(!c.is_primary(B));
    assert_eq!(c.status(B).map(|s| s.phase), Some(Phase::NonPrimary));
    assert_eq!(c.last(B), held, "its log and data are left as they are");
    c.join(A);
    c.expect(10 * SEC, "with who has more they go on", |c| c.is_primary(A) && c.is_primary(B));
    assert!(ops.iter().all(|op| c.committed(*op)));
    c.conclude();
}

#[test]
fn an_arbitrator_whose_directory_was_lost_votes_only_after_it_has_caught_up() {
    let mut c = two_and_an_arbitrator(|_| {});
    c.write_committed(A);
    c.wipe(X);
    c.write_committed(B);
    c.isolate(B);
    c.join(X);
    // The old voter is gone for good, and the new one is none yet: no majority.
    c.pass(20 * SEC);
    assert!(!c.is_primary(A) && !c.is_primary(B) && !c.is_primary(X));
    c.heal_network();
    c.expect(30 * SEC, "it votes again", |c| c.voters() == [A, B, X]);
    c.conclude();
}

#[test]
fn the_last_server_that_leaves_does_not_leave_the_group_to_the_arbitrator() {
    let mut c = two_and_an_arbitrator(|_| {});
    let last = c.the_sequencer();
    let first = A + B - last;
    c.leave(first);
    c.expect(10 * SEC, "one has left", |c| !c.is_running(first));
    let op = c.write_committed(last);
    c.leave(last);
    c.expect(10 * SEC, "the other has left", |c| !c.is_running(last));
    c.pass(20 * SEC);
    assert!(!c.is_primary(X));
    c.join(last);
    c.expect(10 * SEC, "the last one forms the group again", |c| c.is_primary(last));
    assert!(c.histories.find(op).is_some());
    c.join(first);
    c.conclude();
}

#[test]
fn of_two_halves_the_one_with_the_arbitrator_goes_on() {
    let mut o = Options::calm(1, 5);
    o.arbitrators = 1;
    let mut c = Cluster::formed(o);
    // Slots 0 and 1 against 2, 3 and the arbitrator.
    c.partition(&[0, 1]);
    c.expect(10 * SEC, "the side with the arbitrator goes on", |c| {
        c.is_primary(2) && c.sequencer().is_some_and(|s| s == 2 || s == 3)
    });
    c.write_committed(3);
    c.expect(10 * SEC, "the other side stops", |c| !c.is_primary(0) && !c.is_primary(1));
    c.heal_network();
    c.conclude();
}

#[test]
fn two_arbitrators_do_not_stand_against_each_other_for_ever() {
    let mut o = Options::calm(1, 4);
    o.arbitrators = 2;
    let mut c = Cluster::formed(o);
    let ops = only_the_arbitrator_has_it(&mut c);
    c.expect(10 * SEC, "the other server orders", |c| c.is_primary(B) && c.sequencer() == Some(B));
    assert!(ops.iter().all(|op| c.histories.find(*op).is_some()));
    c.pass(100 * MS);
    c.conclude();
}
