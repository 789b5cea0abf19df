//! One member decides with the promises of all what is gone on with (section 8): the others must not be able to elect somebody without it.

use std::time::Duration;

use trireme_order::{Content, LogStore, MemStore, Message, Phase};
use trireme_types::Seqno;

use crate::net::*;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn voters(net: &Net, n: u8) -> Vec<u8> {
    let mut all: Vec<u8> = net.nodes[&n].group.status().voters.voters.iter().map(|v| v.node.0.0[0]).collect();
    all.sort_unstable();
    all
}

/// Hands over the next message that gets through.
fn deliver_one(net: &mut Net) {
    net.drain_all();
    let Some((from, to, message)) = net.next_message() else { return };
    let now = net.now;
    net.nodes.get_mut(&to).unwrap().group.handle_message(now, node(from), message);
    net.drain_all();
}

/// Only the timers of node `n` run, until it is so: nobody else stands.
fn only_timers_of(net: &mut Net, n: u8, found: impl Fn(&Net) -> bool) {
    for _ in 0..20_000 {
        net.drain_all();
        while !net.queue.is_empty() && !found(net) {
            deliver_one(net);
        }
        if found(net) {
            return;
        }
        net.now = net.now.after(Duration::from_millis(1));
        let now = net.now;
        net.nodes.get_mut(&n).unwrap().group.handle_timeout(now);
    }
    panic!("it never gets there: {:?}", net.nodes[&n].events);
}

/// Node `alone` has gone on by itself, and is cut off from the others. There is one primary component at most, and one history when they meet.
fn one_history_beside(mut net: Net, alone: u8, others: &[u8]) {
    net.isolate(alone);
    net.run(secs(20));
    let primary: Vec<u8> = others.iter().copied().filter(|n| net.phase(*n) == Phase::Primary).collect();
    assert!(
        net.phase(alone) != Phase::Primary || primary.is_empty(),
        "two primary components: {alone} and {primary:?}"
    );
    let acknowledged = match primary.first() {
        Some(n) => *n,
        None => alone,
    };
    net.propose(acknowledged, "while they were apart");
    net.settle();
    net.heal();
    net.run(secs(60));
    let all: Vec<u8> = net.nodes.keys().copied().collect();
    for n in all {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert!(!net.gave_way(n), "node {n} gave something up");
        assert!(net.bodies(n).contains(&"while they were apart".into()) || n != acknowledged);
    }
    let ends: Vec<_> = net.nodes.values().map(|one| (one.group.store().last(), one.group.lineage().clone())).collect();
    assert!(ends.windows(2).all(|two| two[0] == two[1]), "{ends:?}");
}

/// Node 1 was the only voter, and nodes 2 and 3 have got votes by one change. All hold it. Nodes 2 and 3 know that it is committed, node 1 does not. Then
/// node 1 lost its power, though nothing with it, and the processes of the others died. All are back.
fn a_founder_that_does_not_know() -> Net {
    let mut net = Net::new();
    net.bootstrap(1);
    net.propose(1, "before");
    net.settle();
    for n in 2..=3 {
        net.enter(n, Net::config(n), MemStore::new(), None);
    }
    net.deliver_until(|net| {
        let have = |n: u8| net.nodes.contains_key(&n) && voters(net, n) == [1, 2, 3];
        (have(2) && have(3)).then_some(())
    });
    let change = net.nodes[&1].group.store().last();
    let knows = |net: &Net, n: u8| net.nodes[&n].group.store().hard_state().voters_committed == change;
    net.lost = vec![(2, 1), (3, 1)];
    while !(knows(&net, 2) && knows(&net, 3)) {
        deliver_one(&mut net);
    }
    assert!(!knows(&net, 1));
    let mut logs = vec![(1, without_end(net.kill(1), 0))];
    logs.extend((2..=3).map(|n| (n, net.kill(n))));
    net.lost.clear();
    net.queue.clear();
    for (n, log) in logs {
        net.restart(n, log, 2, Seqno(0));
    }
    net
}

#[test]
fn those_who_know_more_of_the_voters_elect_nobody_beside_a_branch() {
    let mut net = a_founder_that_does_not_know();
    only_timers_of(&mut net, 1, |net| net.forked(1));
    assert_eq!(voters(&net, 1), [1, 2, 3], "all of them have to agree");
    one_history_beside(net, 1, &[2, 3]);
}

/// As before, but nobody is cut off.
#[test]
fn a_branch_of_several_voters_is_gone_on_with_by_all() {
    let mut net = a_founder_that_does_not_know();
    only_timers_of(&mut net, 1, |net| net.forked(1));
    net.run(secs(20));
    for n in 1..=3 {
        assert_eq!((net.phase(n), net.forked(n)), (Phase::Primary, true), "node {n}");
        assert_eq!(net.nodes[&n].group.store().last(), net.nodes[&1].group.store().last());
    }
}

/// The maker of the branch dies before anybody has heard of it.
#[test]
fn a_branch_of_which_its_voters_have_not_heard_is_given_up() {
    let mut net = a_founder_that_does_not_know();
    only_timers_of(&mut net, 1, |net| net.forked(1));
    let log = net.kill(1);
    net.queue.clear();
    net.restart(1, log, 3, Seqno(0));
    net.run(secs(20));
    assert!((1..=3).all(|n| net.phase(n) == Phase::Primary), "{:?}", (1..=3).map(|n| net.phase(n)).collect::<Vec<_>>());
    assert_eq!(net.bodies(2), net.bodies(3));
}

/// Nodes 4 and 5 were about to get votes. They hold that change, as node 1 does, and nodes 2 and 3 do not. Nodes 1, 4 and 5 lost their power, though
/// nothing with it.
#[test]
fn those_who_lack_a_change_of_the_voters_elect_nobody_beside_a_branch() {
    let mut net = Net::cluster(3);
    for n in 4..=5 {
        net.enter(n, Net::config(n), MemStore::new(), None);
    }
    net.deliver_until(|net| (net.nodes.len() == 5 && voters(net, 1) == [1, 2, 3, 4, 5]).then_some(()));
    net.lost = vec![(1, 2), (1, 3)];
    while !(voters(&net, 4).len() == 5 && voters(&net, 5).len() == 5) {
        deliver_one(&mut net);
    }
    assert!([2, 3].iter().all(|n| voters(&net, *n) == [1, 2, 3]));
    let mut logs: Vec<(u8, MemStore)> = [1, 4, 5].map(|n| (n, without_end(net.kill(n), 0))).into();
    logs.extend((2..=3).map(|n| (n, net.kill(n))));
    net.lost.clear();
    net.queue.clear();
    for (n, log) in logs {
        net.restart(n, log, 2, Seqno(0));
    }
    only_timers_of(&mut net, 1, |net| net.forked(1));
    assert_eq!(voters(&net, 1), [1, 2, 3]);
    // Nodes 4 and 5 never had a vote: they may be linked to either side.
    for n in 4..=5 {
        net.kill(n);
    }
    one_history_beside(net, 1, &[2, 3]);
}

/// Node 2 lost the end of its log, has been given it again, and waits for its disk. Node 1 lost its power. Node 3 is whole.
#[test]
fn a_log_that_is_about_to_be_whole_gives_no_vote() {
    let mut net = Net::cluster(3);
    net.hand_order_to(3);
    for k in 0..5 {
        net.propose(3, &format!("{k}"));
        net.settle();
    }
    let log = without_end(net.kill(2), 2);
    net.stalled = vec![2];
    net.restart(2, log, 2, Seqno(0));
    net.run(secs(3));
    assert!(net.nodes[&2].group.store().suspect().is_some());
    let one = without_end(net.kill(1), 0);
    let three = net.kill(3);
    net.drain_all();
    net.restart(1, one, 2, Seqno(0));
    net.restart(3, three, 2, Seqno(0));
    net.run(secs(5));
    assert!((1..=3).all(|n| !net.forked(n)), "what its disk is about to have is left out");
    net.stalled.clear();
    net.run(secs(20));
    assert!((1..=3).all(|n| net.phase(n) == Phase::Primary && !net.forked(n)));
}

/// All voters have lost their power. Node 4 has no vote and the best log, and node 2 does not hear it. Node 1 leaves the decision to it, and that word is
/// long on its way. Node 2 gets all promises of the next term meanwhile, and is cut off.
#[test]
fn a_late_word_begins_no_branch_beside_another() {
    let mut net = Net::cluster(3);
    net.join_without_a_vote(4);
    for k in 0..5 {
        net.propose(1, &format!("{k}"));
        net.settle();
    }
    let logs: Vec<(u8, MemStore)> =
        (1..=4).map(|n| (n, without_end(net.kill(n), if n == 4 { 0 } else { 2 }))).collect();
    net.cut = vec![(2, 4)];
    for (n, log) in logs {
        net.restart(n, log, 2, Seqno(0));
    }
    let is_word = |to: u8, m: &Message| to == 4 && matches!(m.content(), Some(Content::Entrust));
    // It stays in the queue, behind whatever is handed over.
    let find = |net: &Net| net.queue.iter().position(|(_, to, m)| is_word(*to, m));
    let mut word = None;
    for _ in 0..20_000 {
        net.drain_all();
        if let Some(at) = find(&net) {
            word = net.queue.remove(at);
            break;
        }
        if net.queue.is_empty() {
            net.now = net.now.after(Duration::from_millis(1));
            let now = net.now;
            net.nodes.get_mut(&1).unwrap().group.handle_timeout(now);
        }
        deliver_one(&mut net);
    }
    let (from, to, word) = word.expect("node 1 leaves the decision to node 4");
    only_timers_of(&mut net, 2, |net| net.forked(2));
    net.isolate(2);
    let now = net.now;
    net.nodes.get_mut(&to).unwrap().group.handle_message(now, node(from), word);
    net.run(secs(20));
    let primary: Vec<u8> = (1..=4).filter(|n| net.phase(*n) == Phase::Primary).collect();
    assert_eq!(primary, [2], "one primary component");
    net.heal();
    net.run(secs(60));
    assert!((1..=4).all(|n| net.phase(n) == Phase::Primary));
}
