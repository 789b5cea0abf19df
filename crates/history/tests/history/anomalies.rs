//! One history by hand for every class.

use crate::support::{append, read, script};
use trireme_history::{Class, Findings, Isolation, OpId, Outcome};

/// Exactly this class, once, and it counts or not.
fn assert_only(findings: &Findings, class: Class, counts: bool) {
    let found: Vec<_> = findings.classes.keys().collect();
    assert_eq!(found, [&class], "{findings:#?}");
    assert_eq!(findings.of(class), 1, "{findings:#?}");
    assert_eq!(findings.counted(), u64::from(counts), "{findings:#?}");
}

fn assert_found(findings: &Findings, class: Class) {
    assert!(findings.classes.get(&class).is_some_and(|tally| tally.counted > 0), "{findings:#?}");
}

#[test]
fn nothing_in_an_empty_or_correct_history() {
    assert!(script(Isolation::Snapshot).check().classes.is_empty());
    let findings = script(Isolation::Snapshot)
        .causal()
        .ok(1, 0..10, vec![append(1, 1), append(2, 2)])
        .ok(2, 20..30, vec![read(1, &[1]), append(1, 3), read(1, &[1, 3])])
        .last(1, vec![read(1, &[1, 3]), read(2, &[2])])
        .last(2, vec![read(1, &[1, 3]), read(2, &[2])])
        .check();
    assert!(findings.classes.is_empty(), "{findings:#?}");
}

#[test]
fn lost_acknowledged_write() {
    let history = script(Isolation::Snapshot)
        .ok(1, 0..10, vec![append(1, 1)])
        .ok(2, 20..30, vec![append(1, 2)])
        .last(1, vec![read(1, &[2])])
        .last(2, vec![read(1, &[2])]);
    let findings = history.check();
    assert_only(&findings, Class::LostWrite, true);
    assert_eq!(findings.classes[&Class::LostWrite].examples[0].operations, [OpId(0)]);
}

#[test]
fn an_unknown_write_may_be_there_or_not() {
    for list in [&[1][..], &[1, 2]] {
        let findings = script(Isolation::Snapshot)
            .ok(1, 0..10, vec![append(1, 1)])
            .add(2, 20..30, Outcome::Unknown, vec![append(1, 2)])
            .last(1, vec![read(1, list)])
            .check();
        assert!(findings.classes.is_empty(), "{findings:#?}");
    }
}

#[test]
fn aborted_read() {
    let findings = script(Isolation::ReadCommitted)
        .add(1, 0..10, Outcome::Failed, vec![append(1, 1)])
        .last(1, vec![read(1, &[1])])
        .check();
    assert_only(&findings, Class::AbortedRead, true);
}

#[test]
fn intermediate_read() {
    let findings = script(Isolation::ReadCommitted)
        .ok(1, 0..10, vec![append(1, 1), append(1, 2)])
        .ok(2, 5..15, vec![read(1, &[1])])
        .last(1, vec![read(1, &[1, 2])])
        .check();
    assert_found(&findings, Class::IntermediateRead);
}

#[test]
fn nodes_that_differ() {
    let findings = script(Isolation::Snapshot)
        .ok(1, 0..10, vec![append(1, 1)])
        .ok(1, 20..30, vec![append(1, 2)])
        .last(1, vec![read(1, &[1, 2])])
        .last(2, vec![read(1, &[1])])
        .check();
    assert_found(&findings, Class::Divergence);
    assert_eq!(findings.of(Class::LostWrite), 0);
}

#[test]
fn incompatible_orders() {
    let findings = script(Isolation::Snapshot)
        .ok(1, 0..10, vec![append(1, 1)])
        .ok(2, 0..10, vec![append(1, 2)])
        .ok(3, 5..20, vec![read(1, &[2, 1])])
        .ok(4, 5..20, vec![read(1, &[1, 2])])
        .check();
    assert_only(&findings, Class::IncompatibleOrder, true);
}

#[test]
fn duplicate() {
    let findings = script(Isolation::Snapshot).ok(1, 0..10, vec![append(1, 1)]).last(1, vec![read(1, &[1, 1])]).check();
    assert_found(&findings, Class::Duplicate);
}

#[test]
fn value_that_nobody_wrote() {
    let findings = script(Isolation::Snapshot).ok(1, 0..10, vec![read(1, &[7])]).check();
    assert_only(&findings, Class::InventedValue, true);
}

#[test]
fn own_writes_not_seen() {
    let history =
        |level| script(level).ok(1, 0..10, vec![append(1, 1), read(1, &[])]).last(1, vec![read(1, &[1])]).check();
    assert_only(&history(Isolation::Snapshot), Class::Internal, true);
    assert_only(&history(Isolation::RepeatableRead), Class::Internal, false);
}

#[test]
fn read_that_does_not_repeat() {
    let history = |level| {
        script(level)
            .ok(1, 5..10, vec![append(1, 1)])
            .ok(2, 0..20, vec![read(1, &[]), read(1, &[1])])
            .last(1, vec![read(1, &[1])])
            .check()
    };
    assert_found(&history(Isolation::RepeatableRead), Class::Internal);
    assert_eq!(history(Isolation::ReadCommitted).counted(), 0);
}

#[test]
fn write_cycle() {
    // T0 before T1 in list 1, T1 before T0 in list 2.
    let findings = script(Isolation::ReadCommitted)
        .ok(1, 0..20, vec![append(1, 1), append(2, 2)])
        .ok(2, 0..20, vec![append(1, 3), append(2, 4)])
        .last(1, vec![read(1, &[1, 3]), read(2, &[4, 2])])
        .check();
    assert_only(&findings, Class::WriteCycle, true);
    assert_eq!(findings.classes[&Class::WriteCycle].examples[0].operations.len(), 2);
}

#[test]
fn circular_information_flow() {
    let findings = script(Isolation::ReadCommitted)
        .ok(1, 0..20, vec![append(1, 1), read(2, &[2])])
        .ok(2, 0..20, vec![append(2, 2), read(1, &[1])])
        .check();
    assert_only(&findings, Class::CircularFlow, true);
}

#[test]
fn order_against_real_time() {
    // T0 was acknowledged before T1 began, and yet comes after it.
    let findings = script(Isolation::ReadCommitted)
        .ok(1, 0..10, vec![append(1, 1)])
        .ok(2, 20..30, vec![append(1, 2)])
        .last(1, vec![read(1, &[2, 1])])
        .check();
    assert_only(&findings, Class::TimeTravel, true);
}

#[test]
fn an_unknown_write_may_take_effect_late() {
    let findings = script(Isolation::Snapshot)
        .causal()
        .add(1, 0..10, Outcome::Unknown, vec![append(1, 1)])
        .ok(2, 20..30, vec![append(1, 2), read(1, &[2])])
        .last(1, vec![read(1, &[2, 1])])
        .check();
    assert!(findings.classes.is_empty(), "{findings:#?}");
}

#[test]
fn lost_update() {
    let history = |level| {
        script(level)
            .ok(1, 0..20, vec![read(1, &[]), append(1, 1)])
            .ok(2, 0..20, vec![read(1, &[]), append(1, 2)])
            .last(1, vec![read(1, &[1, 2])])
            .check()
    };
    assert_only(&history(Isolation::Snapshot), Class::LostUpdate, true);
    assert_only(&history(Isolation::Serializable), Class::LostUpdate, true);
    assert_only(&history(Isolation::RepeatableRead), Class::LostUpdate, false);
    assert_only(&history(Isolation::ReadCommitted), Class::LostUpdate, false);
}

#[test]
fn read_skew() {
    // T1 misses T0 in list 1 and sees it in list 2.
    let history = |level| {
        script(level)
            .ok(1, 0..20, vec![append(1, 1), append(2, 2)])
            .ok(2, 0..20, vec![read(1, &[]), read(2, &[2])])
            .last(1, vec![read(1, &[1]), read(2, &[2])])
            .check()
    };
    assert_only(&history(Isolation::Snapshot), Class::ReadSkew, true);
    // It reads only, so that no write of its own excuses it.
    assert_only(&history(Isolation::RepeatableRead), Class::ReadSkew, true);
    assert_only(&history(Isolation::ReadCommitted), Class::ReadSkew, false);
}

#[test]
fn read_skew_of_a_writer_is_innodbs() {
    let findings = script(Isolation::RepeatableRead)
        .ok(1, 0..20, vec![append(1, 1), append(2, 2)])
        .ok(2, 0..20, vec![read(1, &[]), append(2, 3)])
        .last(1, vec![read(1, &[1]), read(2, &[2, 3])])
        .check();
    assert_only(&findings, Class::ReadSkew, false);
}

#[test]
fn write_skew() {
    let history = |level, single| {
        let mut script = script(level)
            .ok(1, 0..20, vec![read(1, &[]), append(2, 2)])
            .ok(2, 0..20, vec![read(2, &[]), append(1, 1)])
            .last(1, vec![read(1, &[1]), read(2, &[2])]);
        script.0.header.single = single;
        script.check()
    };
    assert_only(&history(Isolation::Snapshot, false), Class::WriteSkew, false);
    assert_only(&history(Isolation::Serializable, false), Class::WriteSkew, false);
    assert_only(&history(Isolation::Serializable, true), Class::WriteSkew, true);
}

#[test]
fn stale_read() {
    let history = || {
        script(Isolation::Snapshot)
            .ok(1, 0..10, vec![append(1, 1)])
            .ok(2, 20..30, vec![read(1, &[])])
            .last(1, vec![read(1, &[1])])
    };
    assert_only(&history().causal().check(), Class::StaleRead, true);
    assert_only(&history().check(), Class::StaleRead, false);
}

#[test]
fn session_order() {
    // A client forgets its own write, and what it has read.
    for first in [append(1, 1), read(1, &[1])] {
        let findings = script(Isolation::ReadCommitted)
            .ok(2, 0..30, vec![append(1, 1)])
            .ok(1, 0..10, vec![first])
            .ok(1, 20..30, vec![read(1, &[])])
            .last(1, vec![read(1, &[1])])
            .check();
        assert_found(&findings, Class::SessionOrder);
    }
}

#[test]
fn session_order_over_two_lists() {
    // The second transaction of process 1 follows one that saw T0, and misses another part of T0.
    let findings = script(Isolation::Snapshot)
        .ok(2, 0..30, vec![append(1, 1), append(2, 2)])
        .ok(1, 0..10, vec![read(1, &[1])])
        .ok(1, 20..30, vec![read(2, &[])])
        .last(1, vec![read(1, &[1]), read(2, &[2])])
        .check();
    assert_only(&findings, Class::ReadSkew, true);
}

#[test]
fn the_smallest_cycle_is_shown() {
    // A cycle of three and one of two in one component.
    let findings = script(Isolation::ReadCommitted)
        .ok(1, 0..20, vec![append(1, 1), append(3, 6), append(4, 7)])
        .ok(2, 0..20, vec![append(1, 2), append(2, 3), append(4, 8)])
        .ok(3, 0..20, vec![append(2, 4), append(3, 5)])
        .last(1, vec![read(1, &[1, 2]), read(2, &[3, 4]), read(3, &[5, 6]), read(4, &[8, 7])])
        .check();
    assert_eq!(findings.classes[&Class::WriteCycle].examples[0].operations.len(), 2, "{findings:#?}");
}

/// One transaction depends on the other, through all of a long run.
#[test]
fn a_long_history_needs_no_deep_stack() {
    let judge = || {
        let appended: Vec<u64> = (1..=5000).collect();
        let history = appended.iter().fold(script(Isolation::Snapshot).causal(), |history, element| {
            history.ok(1, 10 * element..10 * element + 5, vec![append(1, *element)])
        });
        history.last(1, vec![read(1, &appended)]).check()
    };
    let thread = std::thread::Builder::new().stack_size(128 << 10).spawn(judge).unwrap();
    let findings = thread.join().unwrap();
    assert!(findings.classes.is_empty(), "{findings:#?}");
}
