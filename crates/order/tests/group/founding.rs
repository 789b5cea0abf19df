//! The first start without anybody chosen (`pc.bootstrap_expect`).

use std::time::Duration;

use trireme_order::{Event, JoinState, LogStore, MemStore, Message, Output, Phase};
use trireme_types::{Base, LogIndex, Seqno, Uuid};

use crate::net::*;

fn start(net: &mut Net, n: u8, expect: u8, store: MemStore) {
    let mut cfg = Net::config(n);
    cfg.expect = expect;
    net.start(n, cfg, store, None);
    let now = net.now;
    net.nodes.get_mut(&n).unwrap().group.join(now, JoinState { position: None });
}

fn founders(net: &Net) -> Vec<u8> {
    let found = |e: &Event| matches!(e, Event::Found { .. });
    net.nodes.iter().filter(|(_, n)| n.events.iter().any(found)).map(|(n, _)| *n).collect()
}

#[test]
fn all_that_are_expected_begin_together_and_the_lowest_id_founds() {
    let mut net = Net::new();
    for n in [3, 1] {
        start(&mut net, n, 3, MemStore::new());
    }
    net.run(Duration::from_secs(20));
    assert_eq!(founders(&net), [], "one is missing");
    start(&mut net, 2, 3, MemStore::new());
    net.run(Duration::from_secs(5));
    assert_eq!(founders(&net), [1]);
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary);
        assert_eq!(net.nodes[&n].group.status().view.members.len(), 3);
        assert_eq!(net.nodes[&n].group.store().base().history, net.nodes[&1].group.store().base().history);
    }
}

#[test]
fn nobody_founds_while_two_do_not_hear_each_other() {
    let mut net = Net::new();
    net.cut = vec![(2, 3)];
    for n in 1..=3 {
        start(&mut net, n, 3, MemStore::new());
    }
    net.run(Duration::from_secs(10));
    assert_eq!(founders(&net), []);
    net.cut.clear();
    net.run(Duration::from_secs(5));
    assert_eq!(founders(&net), [1]);
}

#[test]
fn other_numbers_and_one_too_many_found_nothing() {
    let mut net = Net::new();
    start(&mut net, 1, 2, MemStore::new());
    start(&mut net, 2, 3, MemStore::new());
    net.run(Duration::from_secs(5));
    assert_eq!(founders(&net), [], "the numbers differ");
    let mut net = Net::new();
    for n in 1..=3 {
        start(&mut net, n, 2, MemStore::new());
    }
    net.run(Duration::from_secs(5));
    let told = |n: &Node| {
        n.events.iter().any(|e| matches!(e, Event::Log { warn: true, text } if text.contains("more than expected")))
    };
    assert_eq!(founders(&net), [], "one too many");
    assert!(net.nodes.values().all(told));
}

#[test]
fn a_node_with_state_is_joined_not_passed_over() {
    let mut net = Net::new();
    net.bootstrap(3);
    for n in 1..=2 {
        start(&mut net, n, 2, MemStore::new());
    }
    net.run(Duration::from_secs(5));
    assert_eq!(founders(&net), []);
    for n in 1..=2 {
        assert_eq!(net.phase(n), Phase::Primary);
        assert_eq!(net.nodes[&n].group.store().base().history, HISTORY);
    }
}

/// The founder dies as soon as its vote is in its log: it comes back and forms the group alone; the others have not begun another.
#[test]
fn a_founder_that_died_goes_on_with_what_it_began() {
    let mut net = Net::new();
    for n in 1..=3 {
        start(&mut net, n, 3, MemStore::new());
    }
    while founders(&net).is_empty() {
        net.run(Duration::from_millis(10));
    }
    let store = net.kill(1);
    let history = store.base().history;
    net.run(Duration::from_secs(10));
    assert_eq!(founders(&net), []);
    let mut cfg = Net::config(1);
    cfg.expect = 3;
    net.start(1, cfg, store, Some(Seqno(0)));
    let now = net.now;
    net.nodes.get_mut(&1).unwrap().group.join(now, JoinState { position: Some((history, Seqno(0))) });
    net.run(Duration::from_secs(5));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary);
        assert_eq!(net.nodes[&n].group.store().base().history, history);
    }
}

/// A bootstrap beside a cluster that it knows. That cluster reaches it before it has begun, since to begin takes a sync of the log.
#[test]
fn who_begins_a_history_is_drawn_into_no_other() {
    let other = Uuid([0xbb; 16]);
    let mut net = Net::cluster(2);
    net.start(3, Net::config(3), MemStore::new(), None);
    let members: Vec<_> = (1..=2).map(|n| net.nodes[&n].cfg.me.clone()).collect();
    let (now, sequencer) = (net.now, net.sequencer());
    let status = net.nodes[&sequencer].group.status();
    let group = &mut net.nodes.get_mut(&3).unwrap().group;
    group.bootstrap(now, other, Seqno(0)).unwrap();
    members.into_iter().for_each(|m| group.handle_link_up(now, m, trireme_order::SUPPORTED));
    group.handle_timeout(now.after(Duration::from_secs(1)));
    while let Some(output) = group.poll_output(now) {
        assert!(!matches!(output, Output::Send { message: Message::Join(_), .. }), "{output:?}");
    }
    let base = Base { history: HISTORY, index: LogIndex(9), term: status.term, ..Base::default() };
    let theirs = Message::Snapshot { term: status.term, lineage: base.lineage.clone(), base: Box::new(base) };
    assert_ne!(group.status().phase, Phase::Primary, "not begun yet");
    group.handle_message(now, node(sequencer), theirs);
    net.run(Duration::from_secs(2));
    assert_eq!(net.phase(3), Phase::Primary);
    for (n, size, history) in [(1, 2, HISTORY), (2, 2, HISTORY), (3, 1, other)] {
        let group = &net.nodes[&n].group;
        assert_eq!((group.status().view.members.len(), group.store().base().history), (size, history), "node {n}");
    }
}
