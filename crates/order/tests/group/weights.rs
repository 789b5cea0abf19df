//! A member that is heavier than all others together, and goes.

use std::time::Duration;

use trireme_order::{Event, JoinState, MemStore, Phase};
use trireme_types::{Uuid, Weight};

use crate::net::*;

const HEAVY: u8 = 4;

/// Three members of weight 1, and one of 200 that came later and has stayed.
fn with_a_heavy_member() -> Net {
    let mut net = Net::cluster(3);
    let mut cfg = Net::config(HEAVY);
    cfg.me.weight = Weight(200);
    net.start(HEAVY, cfg, MemStore::new(), None);
    let now = net.now;
    net.nodes.get_mut(&HEAVY).unwrap().group.join(now, JoinState { position: None });
    net.run(Duration::from_secs(25));
    assert_eq!(net.nodes[&1].group.status().voters.weight(node(HEAVY)), 200, "it has stayed");
    net
}

fn all_commit(net: &mut Net, members: &[u8], what: &str) {
    for n in members {
        assert_eq!(net.phase(*n), Phase::Primary, "{what}: {:?}", net.nodes[n].group.status());
        net.propose(*n, &format!("{what} {n}"));
    }
    net.run(Duration::from_secs(1));
    for n in members {
        let got = net.bodies(*n).iter().filter(|b| b.starts_with(what)).count();
        assert_eq!(got, members.len(), "{what}, node {n}");
    }
}

/// It leaves in order: it gives its vote up before it goes, and no client of the others notices.
#[test]
fn a_heavy_member_that_leaves_takes_the_majority_from_nobody() {
    let mut net = with_a_heavy_member();
    let now = net.now;
    net.nodes.get_mut(&HEAVY).unwrap().group.leave(now);
    net.run(Duration::from_secs(3));
    assert!(net.nodes[&HEAVY].events.contains(&Event::Left));
    net.kill(HEAVY);
    net.run(Duration::from_secs(1));
    for n in 1..=3 {
        let lost = net.nodes[&n].events.iter().any(|e| matches!(e, Event::NonPrimary { .. }));
        assert!(!lost, "node {n}");
        assert_eq!(net.nodes[&n].group.status().voters.total(), 3, "node {n}");
    }
    all_commit(&mut net, &[1, 2, 3], "after the leave");
}

/// It takes its weight back before it goes without a word.
#[test]
fn a_heavy_member_that_became_light_takes_the_majority_from_nobody() {
    let mut net = with_a_heavy_member();
    let now = net.now;
    net.nodes.get_mut(&HEAVY).unwrap().group.set_weight(now, Weight(1));
    net.run(Duration::from_secs(2));
    net.kill(HEAVY);
    net.run(Duration::from_secs(10));
    all_commit(&mut net, &[1, 2, 3], "after it was light");
}

/// It dies: the others are no majority, say whom they wait for, and serve nobody. When it is back all is as before, or a person decides for
/// the others.
#[test]
fn a_heavy_member_that_dies_is_waited_for_by_name_and_a_person_can_decide() {
    for returns in [true, false] {
        let mut net = with_a_heavy_member();
        all_commit(&mut net, &[1, 2, 3], "before");
        let at = trireme_types::Seqno(net.nodes[&HEAVY].delivered.last().map_or(0, |(seqno, _)| *seqno));
        let store = net.kill(HEAVY);
        net.run(Duration::from_secs(20));
        for n in 1..=3 {
            assert_eq!(net.phase(n), Phase::NonPrimary, "node {n}");
            assert!(said(&net, n, "n4"), "node {n} says for whom it waits: {:?}", net.nodes[&n].events);
        }
        if returns {
            let mut cfg = Net::config(HEAVY);
            cfg.me.weight = Weight(200);
            cfg.me.incarnation = trireme_types::Incarnation(2);
            net.start(HEAVY, cfg, store, Some(at));
            let now = net.now;
            let position = Some((HISTORY, at));
            net.nodes.get_mut(&HEAVY).unwrap().group.join(now, JoinState { position });
            net.run(Duration::from_secs(10));
            all_commit(&mut net, &[1, 2, 3, HEAVY], "after it returned");
        } else {
            let now = net.now;
            net.nodes.get_mut(&1).unwrap().group.force_primary(now);
            net.run(Duration::from_secs(10));
            all_commit(&mut net, &[1, 2, 3], "after a person decided");
            assert_ne!(net.nodes[&1].group.status().lineage.branch(HISTORY), Uuid::NIL);
        }
        for n in 1..=3 {
            let before = net.bodies(n).iter().filter(|b| b.starts_with("before")).count();
            assert_eq!(before, 3, "node {n}");
        }
    }
}

fn said(net: &Net, n: u8, words: &str) -> bool {
    net.nodes[&n].events.iter().any(|e| matches!(e, Event::Log { text, .. } if text.contains(words)))
}

/// A member gives its weight away while another one is not there, takes it back, and is gone. The one that was away keeps its vote: with it
/// the rest is a majority.
#[test]
fn a_member_that_makes_itself_light_and_heavy_again_takes_no_vote_from_one_that_is_away() {
    for away in [0, 3, 10] {
        let mut net = Net::cluster(3);
        let seq = net.sequencer();
        let (liar, other) = if seq == 1 { (2, 3) } else { (seq % 3 + 1, 6 - seq - (seq % 3 + 1)) };
        net.isolate(other);
        net.run(Duration::from_secs(away));
        for weight in [0, 1] {
            let now = net.now;
            net.nodes.get_mut(&liar).unwrap().group.set_weight(now, Weight(weight));
            net.run(Duration::from_secs(7));
        }
        net.kill(liar);
        net.heal();
        net.run(Duration::from_secs(10));
        all_commit(&mut net, &[seq, other], "after it was gone");
    }
}

/// Members repeat their wishes, and the log of the one that orders does not.
#[test]
fn a_weight_that_would_leave_nobody_to_decide_is_refused_and_that_is_told_once() {
    let mut net = Net::cluster(3);
    for n in 1..=3 {
        let now = net.now;
        net.nodes.get_mut(&n).unwrap().group.set_weight(now, Weight(0));
        net.run(Duration::from_secs(3));
    }
    let told = |n: u8| {
        let says = |e: &&Event| matches!(e, Event::Log { text, .. } if text.contains("nobody would be left to decide"));
        net.nodes[&n].events.iter().filter(says).count()
    };
    assert_eq!((1..=3).map(told).sum::<usize>(), 1);
    assert!(net.nodes[&1].group.status().voters.total() > 0);
}

/// The wish is granted when the one that was away is back.
#[test]
fn a_lower_weight_is_granted_when_the_rest_can_go_on_with_it() {
    let mut net = Net::cluster(3);
    let seq = net.sequencer();
    let light = (1..=3).find(|n| *n != seq).unwrap();
    let other = 6 - seq - light;
    net.isolate(other);
    net.run(Duration::from_secs(10));
    let now = net.now;
    net.nodes.get_mut(&light).unwrap().group.set_weight(now, Weight(0));
    net.run(Duration::from_secs(3));
    let weight = |net: &Net, n: u8| net.nodes[&seq].group.status().voters.weight(node(n));
    assert_eq!((weight(&net, light), weight(&net, other)), (1, 1), "both are needed");
    net.heal();
    net.run(Duration::from_secs(10));
    assert_eq!((weight(&net, light), weight(&net, other)), (0, 1));
    all_commit(&mut net, &[1, 2, 3], "in the end");
}
