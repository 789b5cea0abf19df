//! Streaming transactions: their fragments follow each other.

use trireme_certification::{Certifier, KeyKind, flags};
use trireme_types::{Seqno, Uuid};

use crate::model::*;

fn fragment(node: u8, trx_id: u64, bits: u32, row: &str) -> Trx {
    let mut t = trx(node, 1, &[key(row, KeyKind::Exclusive)]);
    t.head.flags = bits;
    t.head.trx = trx_id;
    t
}

fn depends_on(index: &mut Certifier, seqno: u64, t: &Trx) -> u64 {
    let v = index.certify(Seqno(seqno), &t.encode(), t.session);
    assert!(v.ok(), "{seqno}");
    v.depends_on.0
}

#[test]
fn each_fragment_depends_on_the_one_before_and_the_stream_ends_with_the_last() {
    let mut index = Certifier::new();
    index.note_view(Seqno(1));
    assert_eq!(depends_on(&mut index, 2, &fragment(1, 7, flags::TRX_START, "d.t.1")), 1);
    assert_eq!(depends_on(&mut index, 3, &fragment(1, 8, flags::TRX_START, "d.t.2")), 1);
    assert_eq!(depends_on(&mut index, 4, &fragment(2, 7, flags::TRX_START, "d.t.3")), 1);
    assert_eq!(depends_on(&mut index, 5, &fragment(1, 7, 0, "d.t.4")), 2);
    assert_eq!(depends_on(&mut index, 6, &fragment(1, 7, 0, "d.t.5")), 5);
    let first: Vec<_> = index.streams().map(|s| (s.trx, s.first.0, s.last.0)).collect();
    assert_eq!(first, [(7, 2, 6), (8, 3, 3), (7, 4, 4)]);
    assert_eq!(depends_on(&mut index, 7, &fragment(1, 7, flags::TRX_END, "d.t.6")), 6);
    assert_eq!(index.streams().count(), 2);
    let mut rollback = fragment(1, 8, flags::ROLLBACK | flags::PA_UNSAFE, "");
    rollback.keys.clear();
    assert_eq!(depends_on(&mut index, 8, &rollback), 7);
    assert_eq!(index.streams().count(), 1);
    index.retain_streams(|origin| origin != Uuid([2; 16]));
    assert_eq!(index.streams().count(), 0);
}

#[test]
fn a_middle_fragment_without_a_beginning_is_accepted() {
    let mut index = Certifier::new();
    index.note_view(Seqno(1));
    assert_eq!(depends_on(&mut index, 2, &fragment(1, 7, 0, "d.t.1")), 1);
    assert_eq!(depends_on(&mut index, 3, &fragment(1, 7, 0, "d.t.2")), 2);
    index.end_stream(Uuid([1; 16]), 7);
    assert_eq!(index.streams().count(), 0);
}

#[test]
fn a_rollback_never_fails() {
    let mut index = Certifier::new();
    index.purge(Seqno(20));
    let mut rollback = fragment(1, 7, flags::ROLLBACK | flags::PA_UNSAFE, "");
    rollback.keys.clear();
    assert_eq!(depends_on(&mut index, 21, &rollback), 20);
}

#[test]
fn a_failed_fragment_does_not_move_its_stream() {
    let mut index = Certifier::new();
    index.note_view(Seqno(1));
    assert_eq!(depends_on(&mut index, 2, &fragment(1, 7, flags::TRX_START, "d.t.1")), 1);
    assert_eq!(depends_on(&mut index, 3, &trx(2, 2, &[key("d.t.9", KeyKind::Exclusive)])), 1);
    let failing = fragment(1, 7, 0, "d.t.9");
    assert!(!index.certify(Seqno(4), &failing.encode(), failing.session).ok());
    assert_eq!(index.streams().next().map(|s| s.last), Some(Seqno(2)));
}
