//! Every cell of the tables, and each further rule by itself.

use trireme_certification::{Certifier, Failure, Found, KeyKind, Verdict};
use trireme_types::Seqno;

use crate::model::*;

/// The verdict on `second` (seqno 11) after `first` (seqno 10), with the cut at 0 and nothing else in the index.
fn after(first: &Trx, second: &Trx) -> Verdict {
    let mut index = Certifier::new();
    assert!(index.certify(Seqno(10), &first.encode(), first.session).ok());
    index.certify(Seqno(11), &second.encode(), second.session)
}

#[test]
fn every_cell_of_the_tables() {
    let cases = [
        ("d.t.r", "d.t.r", SAME_FAILS, SAME_ORDERS),
        ("d.t", "d.t", SAME_FAILS, SAME_ORDERS),
        ("d", "d", SAME_FAILS, SAME_ORDERS),
        ("d.t", "d.t.r", FIRST_ABOVE_FAILS, FIRST_ABOVE_ORDERS),
        ("d", "d.t.r", FIRST_ABOVE_FAILS, FIRST_ABOVE_ORDERS),
        ("d", "d.t", FIRST_ABOVE_FAILS, FIRST_ABOVE_ORDERS),
        ("d.t.r", "d.t", FIRST_BELOW_FAILS, FIRST_BELOW_ORDERS),
        ("d.t.r", "d", FIRST_BELOW_FAILS, FIRST_BELOW_ORDERS),
        ("d.t", "d", FIRST_BELOW_FAILS, FIRST_BELOW_ORDERS),
    ];
    for (a, b, fails, orders) in cases {
        for x in KeyKind::ALL {
            for y in KeyKind::ALL {
                let (fails, orders) = (fails[x as usize][y as usize] == 1, orders[x as usize][y as usize] == 1);
                let what = format!("{a} {x:?} then {b} {y:?}");
                let first = trx(1, 9, &[key(a, x)]);
                let unseen = after(&first, &trx(2, 9, &[key(b, y)]));
                assert_eq!(unseen.ok(), !fails, "{what}, unseen");
                let seen = after(&first, &trx(2, 10, &[key(b, y)]));
                assert_eq!(verdict(&seen), (true, if orders { 10 } else { 0 }), "{what}, seen");
                let own = after(&first, &trx(1, 9, &[key(b, y)]));
                assert_eq!(verdict(&own), (true, if orders { 10 } else { 0 }), "{what}, same session");
                if unseen.ok() {
                    assert_eq!(unseen.depends_on, own.depends_on, "{what}, unseen but passing");
                }
            }
        }
    }
}

#[test]
fn siblings_do_not_meet() {
    for (a, b) in [("d.t.r", "d.t.s"), ("d.t.r", "d.u.r"), ("d.t", "e.t"), ("d.t.r", "d.u"), ("d", "e.d")] {
        let v = after(&trx(1, 0, &[key(a, KeyKind::Exclusive)]), &trx(2, 0, &[key(b, KeyKind::Exclusive)]));
        assert_eq!(verdict(&v), (true, 0), "{a} {b}");
    }
}

#[test]
fn the_conflict_is_named() {
    let first = trx(1, 9, &[key("d.t.r", KeyKind::Update)]);
    let same = after(&first, &trx(2, 9, &[key("d.t.r", KeyKind::Exclusive)])).conflict().unwrap();
    assert_eq!((same.with, same.found, same.new), (Seqno(10), Found::Key(KeyKind::Update), KeyKind::Exclusive));
    let above = after(&first, &trx(2, 9, &[key("d", KeyKind::Exclusive)])).conflict().unwrap();
    assert_eq!((above.with, above.found), (Seqno(10), Found::Below));
    let toi = after(&toi(1, 9, &[key("d", KeyKind::Exclusive)]), &trx(1, 9, &[key("d.t", KeyKind::Shared)]))
        .conflict()
        .unwrap();
    assert_eq!((toi.with, toi.found), (Seqno(10), Found::Toi));
}

#[test]
fn a_later_session_of_the_same_node_is_foreign() {
    let mut second = trx(1, 9, &[key("d.t.r", KeyKind::Exclusive)]);
    let first = second.clone();
    assert!(after(&first, &second).ok());
    second.session = session(1, 2);
    assert!(!after(&first, &second).ok());
}

#[test]
fn an_own_newer_write_does_not_hide_a_foreign_one() {
    let row = |kind| [key("d.t.r", kind)];
    let mut index = Certifier::new();
    for (seqno, t, passes) in [
        (1, trx(2, 0, &row(KeyKind::Exclusive)), true),
        (2, trx(1, 1, &row(KeyKind::Exclusive)), true),
        (3, trx(1, 0, &row(KeyKind::Shared)), false),
        (4, trx(1, 1, &row(KeyKind::Shared)), true),
        (5, trx(3, 1, &row(KeyKind::Shared)), false),
    ] {
        assert_eq!(index.certify(Seqno(seqno), &t.encode(), t.session).ok(), passes, "{seqno}");
    }
}

#[test]
fn a_toi_fails_every_overlapping_transaction_that_had_not_seen_it() {
    for (a, b) in [("d.t", "d.t.r"), ("d", "d.t.r"), ("d.t", "d"), ("d.t", "d.t")] {
        for kind in KeyKind::ALL {
            for node in [1, 2] {
                let first = toi(1, 9, &[key(a, KeyKind::Exclusive)]);
                assert!(!after(&first, &trx(node, 9, &[key(b, kind)])).ok(), "{a} {b} {kind:?} node {node}");
                assert_eq!(
                    verdict(&after(&first, &trx(node, 10, &[key(b, kind)]))),
                    (true, 10),
                    "{a} {b} {kind:?} node {node}"
                );
            }
        }
    }
    assert_eq!(
        verdict(&after(&toi(1, 9, &[key("d.t", KeyKind::Exclusive)]), &trx(2, 9, &[key("d.u.r", KeyKind::Exclusive)]))),
        (true, 10)
    );
}

#[test]
fn a_toi_never_fails() {
    let ddl = toi(2, 0, &[key("d.t", KeyKind::Exclusive)]);
    for first in [trx(1, 9, &[key("d.t.r", KeyKind::Exclusive)]), toi(1, 9, &[key("d", KeyKind::Exclusive)])] {
        assert_eq!(verdict(&after(&first, &ddl)), (true, 10));
    }
    let mut index = Certifier::new();
    index.purge(Seqno(8));
    assert!(index.certify(Seqno(9), &ddl.encode(), ddl.session).ok(), "below the cut");
    let keyless = toi(2, 0, &[]);
    assert_eq!(verdict(&index.certify(Seqno(10), &keyless.encode(), keyless.session)), (true, 9));
}

#[test]
fn a_failed_write_set_leaves_no_trace() {
    let mut index = Certifier::new();
    let (a, b) = (key("d.t.r", KeyKind::Exclusive), key("d.t.s", KeyKind::Exclusive));
    let first = trx(1, 0, std::slice::from_ref(&a));
    let failing = trx(2, 0, &[b.clone(), a]);
    let third = trx(3, 0, &[b]);
    assert!(index.certify(Seqno(1), &first.encode(), first.session).ok());
    let before = index.len();
    assert_eq!(verdict(&index.certify(Seqno(2), &failing.encode(), failing.session)), (false, 1));
    assert_eq!(index.len(), before);
    assert_eq!(verdict(&index.certify(Seqno(3), &third.encode(), third.session)), (true, 0));
}

#[test]
fn last_seen_outside_the_window_fails_whatever_the_keys() {
    let mut index = Certifier::new();
    index.note_view(Seqno(1));
    index.purge(Seqno(5));
    let lone = |last_seen| trx(1, last_seen, &[key("x.y.z", KeyKind::Exclusive)]);
    let failure = |index: &mut Certifier, seqno, t: Trx| index.certify(Seqno(seqno), &t.encode(), t.session).failure;
    assert_eq!(failure(&mut index, 10, lone(4)), Some(Failure::LastSeenBelowCut));
    assert_eq!(failure(&mut index, 11, lone(5)), None);
    assert_eq!(failure(&mut index, 12, lone(12)), Some(Failure::LastSeenAhead));
    assert_eq!(failure(&mut index, 13, lone(u64::MAX)), Some(Failure::LastSeenAhead));
    assert_eq!(failure(&mut index, 14, lone(13)), None);
}

#[test]
fn too_long_an_interval_fails_and_its_keys_are_forgotten() {
    let mut index = Certifier::with_max_length(10);
    let lone = |n: u64, last_seen| trx(1, last_seen, &[key(&format!("x.y.{n}"), KeyKind::Exclusive)]);
    for seqno in 1..=100 {
        let t = lone(seqno, seqno.saturating_sub(10));
        assert!(index.certify(Seqno(seqno), &t.encode(), t.session).ok());
    }
    assert_eq!(index.len(), 12, "ten rows and their two prefixes");
    let late = lone(0, 90);
    assert_eq!(index.certify(Seqno(101), &late.encode(), late.session).failure, Some(Failure::LastSeenBelowCut));
}

#[test]
fn purge_drops_what_the_cut_passed_and_keeps_the_rest() {
    let mut index = Certifier::new();
    for seqno in 1..=4u64 {
        let t = trx(1, seqno - 1, &[key(&format!("d.t.{}", seqno % 3), KeyKind::Exclusive)]);
        assert!(index.certify(Seqno(seqno), &t.encode(), t.session).ok());
    }
    assert_eq!(index.len(), 5);
    index.purge(Seqno(2));
    assert!(!index.release(usize::MAX));
    assert_eq!(index.len(), 4, "row 2 is gone, row 1 was written again");
    index.purge(Seqno(1));
    assert_eq!(index.cut(), Seqno(2), "the cut never goes back");
    let t = trx(2, 2, &[key("d.t.2", KeyKind::Exclusive)]);
    assert_eq!(verdict(&index.certify(Seqno(5), &t.encode(), t.session)), (true, 2), "nothing starts before the cut");
    let t = trx(2, 3, &[key("d.t.1", KeyKind::Exclusive)]);
    assert!(!index.certify(Seqno(6), &t.encode(), t.session).ok());
    index.purge(Seqno(6));
    assert!(!index.release(usize::MAX));
    assert!(index.is_empty());
}

#[test]
fn a_large_write_set_is_released_in_pieces_and_forgotten_at_once() {
    let mut index = Certifier::new();
    let rows = |n: std::ops::Range<u32>| n.map(|n| key(&format!("d.t.{n}"), KeyKind::Exclusive)).collect::<Vec<_>>();
    let large = trx(1, 0, &rows(0..10_000));
    assert!(index.certify(Seqno(1), &large.encode(), large.session).ok());
    assert_eq!((index.len(), index.retained()), (10_002, 10_002));
    index.purge(Seqno(1));
    assert_eq!((index.len(), index.retained()), (10_002, 0), "nothing is given back by the purge itself");
    let unseen = trx(2, 1, &rows(0..1));
    assert_eq!(verdict(&index.certify(Seqno(2), &unseen.encode(), unseen.session)), (true, 1));
    assert_eq!(index.len(), 10_002 - 3, "twice as many as it has itself, but for those that it uses again");
    assert!(index.release(1000));
    assert_eq!(index.len(), 10_002 - 3 - 1000);
    while index.release(1000) {}
    assert_eq!((index.len(), index.retained()), (3, 3));
}

#[test]
fn what_cannot_be_compared_runs_alone() {
    let mut index = Certifier::new();
    index.note_view(Seqno(1));
    let row = [key("d.t.r", KeyKind::Exclusive)];
    let mut unsafe_to_apply = trx(1, 0, &row);
    unsafe_to_apply.head.flags |= trireme_certification::flags::PA_UNSAFE;
    let mut keyless = trx(1, 0, &[]);
    for (seqno, t, depends_on) in [
        (2, trx(1, 0, &[key("a.b.c", KeyKind::Shared)]), 1),
        (3, unsafe_to_apply, 2),
        (4, trx(1, 0, &[key("a.b.d", KeyKind::Shared)]), 1),
        (5, keyless.clone(), 4),
        (
            6,
            {
                keyless.data = false;
                keyless
            },
            5,
        ),
        (7, trx(1, 0, &row), 3),
    ] {
        assert_eq!(verdict(&index.certify(Seqno(seqno), &t.encode(), t.session)), (true, depends_on), "{seqno}");
    }
    index.note_malformed(Seqno(8));
    assert_eq!(verdict(&Verdict::malformed(Seqno(8))), (false, 7));
    index.note_view(Seqno(9));
    let t = trx(1, 0, &row);
    assert_eq!(verdict(&index.certify(Seqno(10), &t.encode(), t.session)), (true, 9));
}

#[test]
fn session_slots_are_reused_without_mixing_sessions() {
    let mut index = Certifier::new();
    let row = [key("d.t.r", KeyKind::Exclusive)];
    for seqno in 1..=50u64 {
        let mut t = trx(1, seqno - 1, &row);
        t.session = session(1, seqno as u32);
        assert!(index.certify(Seqno(seqno), &t.encode(), t.session).ok());
        let mut unseen = t.clone();
        unseen.session = session(2, seqno as u32);
        index.purge(Seqno(seqno - 1));
        let mut other = Certifier::restore(&index.snapshot()).unwrap();
        assert!(!other.certify(Seqno(seqno + 1), &unseen.encode(), unseen.session).ok());
    }
    assert_eq!(index.len(), 3);
}
