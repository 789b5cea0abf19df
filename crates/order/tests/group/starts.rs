//! Starts on a log of before: of another history, or with an end that nobody can read.

use std::time::Duration;

use bytes::Bytes;
use trireme_order::{JoinState, LogStore, MemStore, Phase};
use trireme_types::{Entry, EntryHeader, EntryKind, HardState, Incarnation, LogIndex, Seqno, Uuid};

use crate::net::*;

/// A bootstrap resets the log. The hard state must not be that of the old one.
#[test]
fn bootstrap_of_another_history_forgets_the_old_committed_hint() {
    let mut net = Net::cluster(1);
    for i in 0..50 {
        net.propose(1, &i.to_string());
        net.settle();
    }
    let now = net.now;
    net.nodes.get_mut(&1).unwrap().group.leave(now);
    net.settle();
    let store = net.kill(1);
    let hint = store.hard_state().committed;
    net.start(1, Net::config(1), store, None);
    net.nodes.get_mut(&1).unwrap().group.bootstrap(net.now, Uuid([0xbb; 16]), Seqno(0)).unwrap();
    net.settle();
    let store = net.nodes[&1].group.store();
    assert!(store.last() < hint, "the old hint lies behind the end of the new log");
    let hard = store.hard_state();
    assert!(hard.committed <= store.last(), "{hard:?}");
    assert!(hard.voters_committed <= store.last(), "{hard:?}");
}

/// A log of a build that wrote entries that it could not decode: four entries, the last one a view that nobody can read.
fn with_unreadable_end(committed: u64) -> (Net, u64) {
    let mut net = Net::cluster(3);
    net.propose(1, "one");
    net.settle();
    let mut store = net.kill(3);
    let last = store.read(store.last(), 0).unwrap()[0].header;
    let header = EntryHeader { index: last.index.next(), seqno: last.seqno.next(), kind: EntryKind::View, ..last };
    store.append(&[Entry { header, payload: Bytes::from_static(&[0xff; 40]) }]).unwrap();
    store.sync();
    let hard = store.hard_state();
    store.save_hard_state(HardState { committed: LogIndex(last.index.0 + committed), ..hard }).unwrap();
    net.restart(3, store, 2, Seqno(0));
    (net, last.index.0)
}

#[test]
fn an_end_that_nobody_can_read_is_cut_and_the_log_repaired() {
    let (mut net, last) = with_unreadable_end(0);
    let store = net.nodes[&3].group.store();
    assert_eq!(
        (store.last(), store.suspect()),
        (LogIndex(last), Some(LogIndex(last))),
        "it may have acknowledged that"
    );
    net.run(Duration::from_secs(10));
    net.propose(3, "two");
    net.run(Duration::from_secs(1));
    assert_eq!((net.phase(3), net.nodes[&3].group.store().suspect()), (Phase::Primary, None));
    assert_eq!(net.bodies(1).last().unwrap(), "two");
}

#[test]
fn what_is_committed_is_not_cut_though_this_build_cannot_read_it() {
    let (net, last) = with_unreadable_end(1);
    assert_eq!(net.phase(3), Phase::Failed);
    assert_eq!(net.nodes[&3].group.store().last(), LogIndex(last + 1), "another build may read it");
}

/// Its log goes on from its data, and both are of a cluster of before. Their seqno there says nothing of the history here.
#[test]
fn data_of_another_history_are_not_taken_for_what_the_group_has_lost() {
    let mut before = Net::new();
    before.start(2, Net::config(2), MemStore::new(), None);
    let now = before.now;
    before.nodes.get_mut(&2).unwrap().group.bootstrap(now, Uuid([9; 16]), Seqno(0)).unwrap();
    before.settle();
    for n in 0..20 {
        before.propose(2, &format!("of before {n}"));
        before.settle();
    }
    let store = before.kill(2);
    let end = end_of(&store);
    let mut net = Net::new();
    net.bootstrap(1);
    let mut cfg = Net::config(2);
    cfg.me.incarnation = Incarnation(2);
    net.start(2, cfg, store, Some(end));
    let now = net.now;
    net.nodes.get_mut(&2).unwrap().group.join(now, JoinState { position: Some((Uuid([9; 16]), end)) });
    net.run(Duration::from_secs(5));
    assert_eq!(net.phase(2), Phase::Primary, "{:?}", net.nodes[&2].events);
    assert!(!net.gave_way(2) && !net.warned(2, "the group has lost"), "{:?}", net.nodes[&2].events);
}

/// In its log this member votes alone. It was damaged, or is an old copy, or its own notes name a change of the voters behind its end.
#[test]
fn a_bootstrap_by_a_log_that_may_lack_its_end_begins_a_branch() {
    let cases: [fn(&mut MemStore); 3] = [
        |store| store.set_suspect(Some(store.last())).unwrap(),
        |store| {
            store.set_suspect(Some(store.last())).unwrap();
            store.set_outdated(true).unwrap();
        },
        |store| {
            let hard = store.hard_state();
            store.save_hard_state(HardState { voters_committed: store.last().next(), ..hard }).unwrap();
        },
    ];
    for lose in cases {
        let mut net = Net::cluster(1);
        net.propose(1, "alone");
        net.settle();
        let mut old = net.nodes[&1].group.store().clone();
        let seqno = end_of(&old);
        net.join(2);
        net.propose(2, "together");
        net.settle();
        net.kill(1);
        lose(&mut old);
        net.start(1, Net::config(1), old, Some(seqno));
        net.nodes.get_mut(&1).unwrap().group.bootstrap(net.now, HISTORY, seqno).unwrap();
        net.settle();
        let fork = net.nodes[&1].group.lineage().newest();
        assert!(fork.is_some(), "the other member goes on in the same branch");
    }
}
