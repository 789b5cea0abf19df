//! A node that was away while all whom it knew were replaced: who vouches for those that are there now (rule 35)?

use std::time::Duration;

use trireme_order::{Config, Event, LogStore, MemStore, Message, Phase};
use trireme_types::{
    Base, HardState, Lineage, LogIndex, Member, MemberKind, NodeId, ProposalNumber, Seqno, Session, SessionMark, Term,
    View, Voter, VoterSet, Weight,
};

use crate::net::*;

/// The one that sleeps.
const SLEEPER: u8 = 3;

fn config(n: u8, arbitrator: bool) -> Config {
    let mut cfg = Net::config(n);
    if arbitrator {
        cfg.me.kind = MemberKind::Arbitrator;
    }
    cfg
}

/// Three, of which all servers have proposed something, as servers do when they join.
fn three(arbitrator: bool) -> Net {
    let mut net = Net::new();
    net.bootstrap(1);
    net.join(2);
    net.enter(SLEEPER, config(SLEEPER, arbitrator), MemStore::new(), None);
    net.run(Duration::from_secs(2));
    for n in 1..=if arbitrator { 2 } else { 3 } {
        net.propose(n, &format!("hello of {n}"));
        net.settle();
    }
    net
}

fn position(net: &Net, n: u8) -> Seqno {
    let node = &net.nodes[&n];
    let sets = node.delivered.last().map_or(0, |(at, _)| *at);
    Seqno(sets.max(node.group.status().view.number))
}

/// A new node with an empty disk for each old one, one after the other. Their logs begin where they came in.
fn replace(net: &mut Net, gracefully: bool) {
    net.propose(1, "ordered without the sleeper");
    net.run(Duration::from_secs(1));
    for (new, old) in [(4, 1), (5, 2)] {
        net.join(new);
        net.propose(new, &format!("hello of {new}"));
        net.run(Duration::from_secs(15));
        if gracefully {
            net.stop(old);
        } else {
            net.kill(old);
            net.run(Duration::from_secs(15));
        }
    }
    both_order(net);
}

fn both_order(net: &mut Net) {
    for n in [4, 5] {
        assert_eq!(net.phase(n), Phase::Primary, "{n}: {:?}", net.nodes[&n].group.status());
        net.propose(n, &format!("newest of {n}"));
        net.settle();
    }
}

fn has_come_back(net: &mut Net, how: &str) {
    net.run(Duration::from_secs(20));
    let status = net.nodes[&SLEEPER].group.status();
    assert_eq!(status.phase, Phase::Primary, "{how}: {status:?} {:?}", net.nodes[&SLEEPER].events);
    assert_eq!(status.view.members.len(), 3, "{how}");
    let from = |n: u8| net.nodes[&n].group.store().base().index;
    assert!(from(SLEEPER) >= from(4) && from(4) > LogIndex::ZERO, "{how}: its log was replaced");
    net.propose(4, "to the one that came back");
    net.run(Duration::from_secs(1));
    assert_eq!(net.bodies(SLEEPER).last().unwrap(), "to the one that came back", "{how}");
    assert!(!net.warned(SLEEPER, "has never named it"), "{how}");
}

#[test]
fn who_slept_while_all_others_were_replaced_comes_back_by_itself() {
    for arbitrator in [false, true] {
        for left in [false, true] {
            for gracefully in [true, false] {
                let how = format!("arbitrator {arbitrator}, it had left {left}, the others had {gracefully}");
                let mut net = three(arbitrator);
                let at = position(&net, SLEEPER);
                if left {
                    let now = net.now;
                    net.nodes.get_mut(&SLEEPER).unwrap().group.leave(now);
                    net.run(Duration::from_secs(3));
                }
                let store = net.kill(SLEEPER);
                net.run(Duration::from_secs(15));
                replace(&mut net, gracefully);
                let mut cfg = config(SLEEPER, arbitrator);
                cfg.me.incarnation.0 = 2;
                net.enter(SLEEPER, cfg, store, (!arbitrator).then_some(at));
                has_come_back(&mut net, &how);
            }
        }
    }
}

/// It runs, and hears nobody for so long.
#[test]
fn who_was_cut_off_while_all_others_were_replaced_comes_back_by_itself() {
    let mut net = three(false);
    net.cut = [1, 2, 4, 5].map(|n| (SLEEPER, n)).to_vec();
    net.run(Duration::from_secs(15));
    replace(&mut net, true);
    assert_eq!(net.phase(SLEEPER), Phase::NonPrimary);
    net.heal();
    has_come_back(&mut net, "cut off");
}

/// The disk is older than the later work of this node itself.
#[test]
fn a_backup_from_before_the_others_were_replaced_is_brought_up() {
    let mut net = three(false);
    let at = position(&net, SLEEPER);
    let backup = net.nodes[&SLEEPER].group.store().clone();
    net.propose(SLEEPER, "not in the backup");
    net.run(Duration::from_secs(1));
    let store = net.kill(SLEEPER);
    net.run(Duration::from_secs(15));
    let now_at = end_of(&store);
    net.restart(SLEEPER, store, 2, now_at);
    net.run(Duration::from_secs(15));
    net.propose(SLEEPER, "by the next incarnation");
    net.run(Duration::from_secs(1));
    net.stop(SLEEPER);
    replace(&mut net, true);
    net.restart(SLEEPER, backup, 9, at);
    has_come_back(&mut net, "backup");
}

/// Swarm seed 75040126: its log has lost the end, and with it the names of all who are left. Its data reach further than the state begins that
/// they send. They are a part of what that state's log holds, so nothing is given up.
#[test]
fn who_lost_the_end_of_its_log_comes_back_with_data_that_reach_beyond_the_state() {
    let mut net = three(false);
    net.join(4);
    net.propose(4, "hello of 4");
    net.propose(1, "in the data of the sleeper");
    net.run(Duration::from_secs(1));
    let at = position(&net, SLEEPER);
    let mut store = net.kill(SLEEPER);
    net.run(Duration::from_secs(15));
    net.kill(1);
    net.run(Duration::from_secs(15));
    net.join(5);
    net.propose(5, "hello of 5");
    net.run(Duration::from_secs(15));
    net.stop(2);
    both_order(&mut net);
    let base = net.nodes[&4].group.store().base().clone();
    assert!(base.seqno < at, "the data reach beyond the state");
    store.truncate_after(base.index.prev()).unwrap();
    store.set_suspect(Some(store.last())).unwrap();
    net.restart(SLEEPER, store, 2, at);
    has_come_back(&mut net, "without the end of its log");
    assert!(!net.nodes[&SLEEPER].events.contains(&Event::DataDiverged));
    let bodies = net.bodies(SLEEPER);
    assert!(bodies.contains(&"in the data of the sleeper".to_string()), "the log meets the data: {bodies:?}");
}

/// An old disk was put back and went on alone, on the same branch, with other entries than this node holds in its log and in its data. A newcomer
/// replaces it, and its state contradicts them.
#[test]
fn a_state_that_contradicts_the_data_is_not_taken() {
    // By its seqno the second one would go on behind all that the data hold.
    for (words, sets) in [(0, 1), (40, 25)] {
        let mut net = Net::new();
        net.bootstrap(1);
        net.join(2);
        net.propose(2, "hello of 2");
        net.settle();
        net.stop(2);
        let backup = net.nodes[&1].group.store().clone();
        net.join(2);
        for _ in 0..words {
            net.say(1, "without a seqno");
            net.settle();
        }
        for n in 0..15 {
            net.propose(1, &format!("held by {n}"));
            net.settle();
        }
        let at = position(&net, 2);
        let mut store = net.kill(2);
        // It knows little of what is committed, as after any death.
        let hard = HardState { committed: backup.last(), voters_committed: backup.last(), ..store.hard_state() };
        store.save_hard_state(hard).unwrap();
        net.kill(1);
        net.restart(1, backup.clone(), 9, end_of(&backup));
        net.run(Duration::from_secs(10));
        assert_eq!(net.phase(1), Phase::Primary, "it knows nobody else");
        for n in 0..sets {
            net.propose(1, &format!("of the old disk {n}"));
            net.settle();
        }
        net.join(4);
        net.propose(4, "hello of 4");
        net.run(Duration::from_secs(15));
        net.stop(1);
        for n in 0..20 {
            net.propose(4, &format!("of the newcomer {n}"));
            net.settle();
        }
        let base = net.nodes[&4].group.store().base().clone();
        assert!(base.index < store.last(), "the state begins in the middle of its log");
        assert_eq!(base.seqno < at, words == 0);
        let last = store.last();
        net.restart(2, store, 2, at);
        net.run(Duration::from_secs(60));
        assert_eq!(net.phase(2), Phase::Joining);
        assert!(net.warned(2, "has never named it"), "a person decides: {:?}", net.nodes[&2].events);
        assert_eq!(net.nodes[&2].group.store().last(), last, "nothing is given up before");
    }
}

/// An old disk without data was put back, and went on alone on the same branch. Two with the only data come back to it. Each would give up its own
/// as the other has some, and nobody would have any.
#[test]
fn two_with_the_only_data_do_not_give_them_up_for_each_others_sake() {
    let mut net = Net::new();
    net.copies = false;
    net.bootstrap(1);
    net.propose(1, "before");
    net.settle();
    let backup = net.nodes[&1].group.store().clone();
    (2..=4).for_each(|n| net.join(n));
    for n in 0..5 {
        net.propose(1, &format!("held by {n}"));
        net.settle();
    }
    let at = position(&net, 2);
    let held = [2, 3].map(|n| (n, net.kill(n)));
    net.kill(4);
    net.kill(1);
    net.restart_without_data(1, backup, 9);
    net.run(Duration::from_secs(10));
    assert_eq!(net.phase(1), Phase::Primary, "it knows nobody else");
    for n in 0..20 {
        net.propose(1, &format!("of the old disk {n}"));
        net.settle();
    }
    for (n, store) in held {
        net.restart(n, store, 2, at);
    }
    net.run(Duration::from_secs(60));
    for n in [2, 3] {
        assert!(!net.nodes[&n].events.contains(&Event::DataDiverged), "node {n} keeps its data");
        assert!(net.warned(n, "nobody in it has data"), "a person decides: {:?}", net.nodes[&n].events);
    }
}

/// Its commits are not in the branch that is left, and nobody whom it knows is in that one: a person decides. Until then it costs the
/// others next to nothing.
#[test]
fn who_committed_beyond_a_fork_waits_for_a_person() {
    let mut net = three(false);
    // 1 goes on alone; the other two order, and have it in their data.
    net.cut = vec![(1, 2), (1, SLEEPER)];
    net.run(Duration::from_secs(15));
    net.propose(SLEEPER, "beyond the fork");
    net.run(Duration::from_secs(1));
    let at = position(&net, SLEEPER);
    let store = net.kill(SLEEPER);
    net.kill(2);
    net.cut.clear();
    net.force(1);
    net.run(Duration::from_secs(1));
    for new in [4, 5] {
        net.join(new);
        net.propose(new, &format!("hello of {new}"));
        net.run(Duration::from_secs(15));
    }
    net.stop(1);
    both_order(&mut net);
    let last = store.last();
    net.restart(SLEEPER, store, 2, at);
    net.encoded = 0;
    net.run(Duration::from_secs(300));
    assert_eq!(net.phase(SLEEPER), Phase::Joining);
    assert!(net.warned(SLEEPER, "has never named it"), "{:?}", net.nodes[&SLEEPER].events);
    assert!(!net.nodes[&SLEEPER].events.contains(&Event::DataDiverged));
    assert_eq!(net.nodes[&SLEEPER].group.store().last(), last);
    assert!(net.encoded <= 15, "the state was encoded {} times in 300 s", net.encoded);
    // The log and grastate.dat are gone.
    net.kill(SLEEPER);
    net.join(SLEEPER);
    has_come_back(&mut net, "without its log");
}

/// A stranger that has read nothing of this cluster, but knows its history and those who are linked.
#[test]
fn a_state_that_does_not_continue_the_own_one_is_not_taken() {
    let marks = |numbers: &[(u8, u64)]| -> Vec<SessionMark> {
        let session = |n: u8| Session { node: node(n), number: 1 << 40 };
        numbers
            .iter()
            .map(|(n, number)| SessionMark { session: session(*n), number: ProposalNumber(*number) })
            .collect()
    };
    let mut net = three(false);
    let older: Vec<SessionMark> = (1..=3)
        .map(|n| SessionMark { session: Session { node: node(n), number: 0 }, number: ProposalNumber(1) })
        .collect();
    let at = position(&net, SLEEPER);
    // As after a stop in good order, it knows what is committed.
    let now = net.now;
    net.nodes.get_mut(&SLEEPER).unwrap().group.leave(now);
    net.run(Duration::from_secs(3));
    let store = net.kill(SLEEPER);
    let all = [(1, 1), (2, 1), (3, 1)];
    for (sessions, index, base_term, taken) in [
        (vec![], 500, 1, false),
        (marks(&[(3, 1)]), 500, 1, false),
        (marks(&[(2, 1), (3, 1), (9, 1)]), 500, 1, false),
        (older, 500, 1, false),
        (marks(&all), 2, 1, false),
        (marks(&all), 500, 0, false),
        (marks(&all), 500, 1, true),
    ] {
        let mut net = Net::new();
        net.restart(SLEEPER, store.clone(), 2, at);
        net.settle();
        let term = net.nodes[&SLEEPER].group.status().term.next();
        let me = Member { node: node(9), ..Member::default() };
        let view = View { number: 50, members: vec![me.clone()] };
        let voters =
            VoterSet { voters: vec![Voter { node: NodeId(me.node.0), weight: Weight(1) }], ..Default::default() };
        let base = Base {
            history: HISTORY,
            index: LogIndex(index),
            term: Term(base_term),
            seqno: Seqno(400),
            view,
            voters,
            voters_at: LogIndex(index),
            sessions: sessions.clone(),
            ..Base::default()
        };
        let now = net.now;
        let group = &mut net.nodes.get_mut(&SLEEPER).unwrap().group;
        group.handle_link_up(now, me, trireme_order::SUPPORTED);
        let snapshot = Message::Snapshot { term, lineage: Lineage::default(), base: Box::new(base) };
        group.handle_message(now, node(9), snapshot);
        net.drain(SLEEPER);
        let begins = net.nodes[&SLEEPER].group.store().base().index;
        assert_eq!(begins == LogIndex(500), taken, "{sessions:?} at {index} of {base_term}");
        assert_eq!(
            net.warned(SLEEPER, "has never named it"),
            !taken && index == 500,
            "{sessions:?} at {index} of {base_term}"
        );
    }
}
