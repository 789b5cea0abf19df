//! The group level: who is asked before it rises, and who is kept out when it has.

use std::time::Duration;

use trireme_order::{Config, Content, Event, Failure, JoinState, LogEnd, LogStore, MemStore, Output, Phase};
use trireme_types::{Durability, Incarnation, Level, Levels, Seqno, Term};

use crate::net::{HISTORY, Net, node, outputs};

const FORMER: Levels = Levels { min: Level(1), max: Level(1) };
const NEWER: Levels = Levels { min: Level(1), max: Level(2) };

fn config(n: u8, incarnation: u32, levels: Levels) -> Config {
    let mut cfg = Config { levels, ..Net::config(n) };
    cfg.me.incarnation = Incarnation(incarnation);
    cfg.timeouts.level_absence = Duration::from_secs(60);
    cfg
}

fn cluster(levels: &[Levels]) -> Net {
    let mut net = Net::new();
    for (n, levels) in (1..).zip(levels) {
        net.start(n, config(n, 1, *levels), MemStore::new(), None);
        let group = &mut net.nodes.get_mut(&n).unwrap().group;
        if n == 1 {
            group.bootstrap(net.now, HISTORY, Seqno(0)).unwrap();
        } else {
            group.join(net.now, JoinState { position: None });
        }
        net.run(Duration::from_secs(2));
        assert_eq!(net.phase(n), Phase::Primary);
    }
    net
}

fn level(net: &Net, n: u8) -> u16 {
    net.nodes[&n].group.level().0
}

fn levels(net: &Net) -> Vec<u16> {
    net.nodes.keys().map(|n| level(net, *n)).collect()
}

/// It leaves in order, and comes back with another build.
fn replace(net: &mut Net, n: u8, incarnation: u32, levels: Levels) {
    net.nodes.get_mut(&n).unwrap().group.leave(net.now);
    net.run(Duration::from_secs(2));
    assert!(net.nodes[&n].events.contains(&Event::Left));
    let at = net.nodes[&n].group.status().view;
    assert!(!at.members.is_empty());
    start_again(net, n, incarnation, levels);
}

fn start_again(net: &mut Net, n: u8, incarnation: u32, levels: Levels) {
    let at = Seqno(net.nodes[&n].delivered.last().map_or(0, |(seqno, _)| *seqno));
    let store = net.kill(n);
    let position = Some((HISTORY, at)).filter(|_| at > Seqno(0));
    net.start(n, config(n, incarnation, levels), store, position.map(|p| p.1));
    net.nodes.get_mut(&n).unwrap().group.join(net.now, JoinState { position });
    net.run(Duration::from_secs(3));
}

#[test]
fn it_rises_by_itself_where_all_support_it() {
    let mut net = cluster(&[NEWER, NEWER, NEWER]);
    assert_eq!(levels(&net), [2, 2, 2]);
    net.propose(2, "a");
    net.run(Duration::from_secs(1));
    assert_eq!(net.bodies(3), ["a"]);
}

#[test]
pub fn a_rolling_upgrade_goes_one_step_back_until_the_last_one_is_done() {
    let mut net = cluster(&[FORMER, FORMER, FORMER]);
    net.propose(1, "before");
    replace(&mut net, 3, 2, NEWER);
    replace(&mut net, 2, 2, NEWER);
    net.run(Duration::from_secs(100));
    assert_eq!(levels(&net), [1, 1, 1]);
    // A second thought.
    replace(&mut net, 2, 3, FORMER);
    net.propose(2, "back");
    replace(&mut net, 2, 4, NEWER);
    assert_eq!(levels(&net), [1, 1, 1]);
    // While the last one is away the level stays, as that one may come back as it was.
    net.nodes.get_mut(&1).unwrap().group.leave(net.now);
    net.run(Duration::from_secs(50));
    assert_eq!((level(&net, 2), level(&net, 3)), (1, 1));
    start_again(&mut net, 1, 2, NEWER);
    net.run(Duration::from_secs(5));
    assert_eq!(levels(&net), [2, 2, 2]);
    net.propose(1, "after");
    net.run(Duration::from_secs(1));
    for n in 2..=3 {
        assert_eq!(net.bodies(n).last().map(String::as_str), Some("after"));
    }
}

#[test]
fn one_that_left_for_good_is_not_waited_for_without_end() {
    let mut net = cluster(&[FORMER, NEWER, NEWER]);
    net.nodes.get_mut(&1).unwrap().group.leave(net.now);
    net.run(Duration::from_secs(30));
    assert_eq!((level(&net, 2), level(&net, 3)), (1, 1));
    assert_eq!(net.nodes[&2].group.level_waits_for(net.now), ["n1 has left a short while ago"]);
    net.run(Duration::from_secs(60));
    assert_eq!((level(&net, 2), level(&net, 3)), (2, 2));
}

#[test]
fn a_voter_that_is_away_holds_it_however_long() {
    let mut net = cluster(&[FORMER, NEWER, NEWER]);
    let store = net.kill(1);
    net.run(Duration::from_secs(200));
    assert_eq!(levels(&net), [1, 1]);
    assert!(net.nodes[&2].group.level_waits_for(net.now).iter().any(|why| why.contains("is not linked")));
    net.start(1, config(1, 2, FORMER), store, None);
    net.nodes.get_mut(&1).unwrap().group.join(net.now, JoinState { position: None });
    net.run(Duration::from_secs(5));
    assert_eq!(net.phase(1), Phase::Primary);
}

/// The level is on its way, and not in force yet, when a member of an old build is ready to enter.
#[test]
fn nobody_enters_who_does_not_support_a_level_that_is_on_its_way() {
    let mut net = Net::new();
    let held = Config { level_hold: Level(1), durability: Durability::Disk, ..config(1, 1, NEWER) };
    net.start(1, held, MemStore::new(), None);
    net.start(2, config(2, 1, FORMER), MemStore::new(), None);
    net.nodes.get_mut(&1).unwrap().group.bootstrap(net.now, HISTORY, Seqno(0)).unwrap();
    net.run(Duration::from_secs(1));
    net.stalled.push(1);
    let group = &mut net.nodes.get_mut(&1).unwrap().group;
    group.set_config(|c| c.level_hold = Level(2));
    net.run(Duration::from_secs(1));
    assert_eq!(level(&net, 1), 1, "its disk hangs");
    net.nodes.get_mut(&2).unwrap().group.join(net.now, JoinState { position: None });
    net.run(Duration::from_millis(200));
    net.stalled.clear();
    net.run(Duration::from_secs(3));
    assert_eq!(level(&net, 1), 2);
    assert!(net.nodes[&1].views.iter().all(|view| !view.contains(&crate::net::node(2))), "it entered");
}

#[test]
fn one_member_holds_it_for_all_until_it_lets_go() {
    let mut net = Net::new();
    for n in 1..=3 {
        let hold = Level(if n == 2 { 1 } else { 2 });
        let cfg = Config { level_hold: hold, ..config(n, 1, NEWER) };
        net.start(n, cfg, MemStore::new(), None);
        // It is linked before it takes part. The others' words about it are kept all the same.
        net.settle();
    }
    net.nodes.get_mut(&2).unwrap().group.bootstrap(net.now, HISTORY, Seqno(0)).unwrap();
    net.run(Duration::from_secs(1));
    for n in [1, 3] {
        net.nodes.get_mut(&n).unwrap().group.join(net.now, JoinState { position: None });
        net.run(Duration::from_secs(2));
    }
    assert_eq!(levels(&net), [1, 1, 1]);
    assert_eq!(net.nodes[&1].group.level_waits_for(net.now), ["n2 () is held at level 1 by repl.proto_max"]);
    net.nodes.get_mut(&2).unwrap().group.set_config(|c| c.level_hold = Level(11));
    net.run(Duration::from_secs(1));
    assert_eq!(levels(&net), [2, 2, 2]);
    // It is held too late: the level is never lowered, and the member that holds it stays in.
    net.nodes.get_mut(&2).unwrap().group.set_config(|c| c.level_hold = Level(1));
    net.run(Duration::from_secs(2));
    assert_eq!((levels(&net), net.phase(2)), (vec![2, 2, 2], Phase::Primary));
}

#[test]
fn a_newcomer_below_it_is_refused_by_name() {
    let mut net = cluster(&[NEWER, NEWER]);
    net.start(3, config(3, 1, FORMER), MemStore::new(), None);
    net.nodes.get_mut(&3).unwrap().group.join(net.now, JoinState { position: None });
    net.run(Duration::from_secs(5));
    assert_eq!(net.phase(3), Phase::Joining);
    assert!(net.warned(1, "n3 () is refused: it supports group level 1, and this group is at level 2"));
    // With the right build it comes in.
    start_again(&mut net, 3, 2, NEWER);
    assert_eq!(net.phase(3), Phase::Primary);
}

#[test]
fn a_step_back_after_it_rose_is_refused_and_costs_nothing() {
    let mut net = cluster(&[NEWER, NEWER, NEWER]);
    net.propose(1, "a");
    net.run(Duration::from_secs(1));
    let last = net.nodes[&3].group.status().last;
    let store = net.kill(3);
    net.start(3, config(3, 2, FORMER), store, Some(Seqno(1)));
    let group = &mut net.nodes.get_mut(&3).unwrap().group;
    group.join(net.now, JoinState { position: Some((HISTORY, Seqno(1))) });
    net.settle();
    assert_eq!(net.phase(3), Phase::Failed);
    let failed = |e: &Event| matches!(e, Event::Failed(Failure::LevelUnsupported { level, supported }) if *level == NEWER.max && *supported == FORMER);
    assert!(net.nodes[&3].events.iter().any(failed), "{:?}", net.nodes[&3].events);
    let store = net.kill(3);
    net.restart(3, store, 3, Seqno(4));
    net.run(Duration::from_secs(3));
    assert_eq!(net.phase(3), Phase::Primary);
    assert!(net.nodes[&3].group.status().last >= last);
}

/// Its new link is there before anybody has said that the former one is gone.
#[test]
fn a_step_back_that_takes_the_place_of_the_former_link_has_no_vote() {
    let mut net = cluster(&[NEWER, NEWER]);
    let (now, former) = (net.now, config(2, 2, FORMER));
    let end = net.nodes[&1].group.store().last();
    let group = &mut net.nodes.get_mut(&1).unwrap().group;
    group.handle_link_up(now, former.me, FORMER);
    net.run(Duration::from_secs(1));
    assert!(net.warned(1, "n2 () is refused: it supports group level 1"));
    net.run(Duration::from_secs(10));
    assert_ne!(net.phase(1), Phase::Primary, "a build below the level makes up its majority");
    let now = net.now;
    let group = &mut net.nodes.get_mut(&1).unwrap().group;
    let vote = Content::PreVote { last: LogEnd { term: Term(1), index: end.prev() } };
    group.handle_message(now, node(2), vote.in_term(HISTORY, Term(2)));
    let to_it = |o: &Output| matches!(o, Output::Send { to, .. } if *to == node(2));
    assert!(!outputs(group, now).iter().any(to_it), "it gets an answer");
}

#[test]
fn a_bootstrap_with_a_build_below_the_log_is_refused_and_the_log_stays() {
    let mut net = cluster(&[NEWER]);
    let store = net.kill(1);
    let mut group = trireme_order::Group::new(config(1, 2, FORMER), store, None, 1, net.now);
    let last = group.status().last;
    let error = group.bootstrap(net.now, HISTORY, Seqno(99)).unwrap_err();
    assert!(error.to_string().contains("group level 2"), "{error}");
    assert_eq!(group.status().last, last);
    net.restart(1, group.into_store(), 3, Seqno(0));
    net.run(Duration::from_secs(3));
    assert_eq!((net.phase(1), level(&net, 1)), (Phase::Primary, trireme_order::SUPPORTED.max.0));
}

#[test]
fn all_die_in_the_middle_of_an_upgrade_and_come_back_mixed() {
    let mut net = cluster(&[FORMER, FORMER, FORMER]);
    net.propose(1, "a");
    net.run(Duration::from_secs(1));
    replace(&mut net, 3, 2, NEWER);
    replace(&mut net, 2, 2, NEWER);
    let at: Vec<Seqno> = (1..=3).map(|n| net.nodes[&n].group.status().view).map(|_| Seqno(0)).collect();
    let stores: Vec<MemStore> = (1..=3).map(|n| net.kill(n)).collect();
    for ((n, store), at) in (1..=3).zip(stores).zip(at) {
        net.start(n, config(n, 5, if n == 1 { FORMER } else { NEWER }), store, Some(at));
        net.nodes.get_mut(&n).unwrap().group.join(net.now, JoinState { position: Some((HISTORY, at)) });
    }
    net.run(Duration::from_secs(100));
    for n in 1..=3 {
        assert_eq!((net.phase(n), level(&net, n)), (Phase::Primary, 1), "node {n}");
    }
    replace(&mut net, 1, 6, NEWER);
    net.run(Duration::from_secs(5));
    assert_eq!(levels(&net), [2, 2, 2]);
}

#[test]
fn a_new_history_on_a_node_with_a_raised_log_begins_at_its_level() {
    let mut net = cluster(&[NEWER]);
    let store = net.kill(1);
    let mut group = trireme_order::Group::new(config(1, 2, NEWER), store, None, 1, net.now);
    group.bootstrap(net.now, HISTORY, Seqno(99)).unwrap();
    assert_eq!(group.level(), Level(2));
}

#[test]
fn one_that_was_away_takes_the_rise_and_what_it_brings_in_one_message() {
    let mut net = cluster(&[FORMER, FORMER, FORMER]);
    // It hears nothing of the following, and is asked for nothing: the others remember it as one that left.
    replace(&mut net, 3, 2, NEWER);
    net.nodes.get_mut(&3).unwrap().group.leave(net.now);
    net.run(Duration::from_secs(2));
    let behind = net.kill(3);
    for n in [2, 1] {
        replace(&mut net, n, 2, NEWER);
    }
    net.run(Duration::from_secs(70));
    assert_eq!(levels(&net), [2, 2]);
    // A term of the new level, behind the rise.
    let first = net.sequencer();
    replace(&mut net, first, 3, NEWER);
    net.propose(first, "a");
    net.run(Duration::from_secs(1));
    net.start(3, config(3, 3, NEWER), behind, None);
    net.nodes.get_mut(&3).unwrap().group.join(net.now, JoinState { position: Some((HISTORY, Seqno(0))) });
    net.run(Duration::from_secs(5));
    assert_eq!((net.phase(3), level(&net, 3)), (Phase::Primary, 2));
    assert!(!net.warned(3, "which no member could read"));
}
