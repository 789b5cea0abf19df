//! One situation per test.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use trireme_order::{
    Config, Content, Envelope, Event, Group, JoinRequest, JoinState, LogStore, MemStore, Message, Output, Phase, ReadId,
};
use trireme_types::{
    Durability, Entry, EntryHeader, EntryKind, HardState, Incarnation, Lineage, LogIndex, MemberKind, NodeId,
    ProposalNumber, Seqno, Session, Term, Uuid, Voter, VoterSet, Weight, Writer,
};

use crate::net::*;

#[test]
fn first_view_of_a_fresh_history_takes_seqno_one() {
    let mut net = Net::new();
    net.bootstrap(1);
    assert_eq!(net.phase(1), Phase::Primary);
    net.propose(1, "a");
    net.settle();
    assert_eq!(net.nodes[&1].delivered, [(2, b"a".to_vec())]);
}

#[test]
fn three_nodes_commit_what_any_of_them_proposes() {
    let mut net = Net::cluster(3);
    for n in 1..=3 {
        net.propose(n, &format!("from {n}"));
        net.propose(n, &format!("again {n}"));
    }
    net.settle();
    let all = net.bodies(1);
    assert_eq!(all.len(), 6);
    assert_eq!(net.bodies(2), all);
    assert_eq!(net.bodies(3), all);
}

/// A member whose application is busy is not silent: it acknowledges, heartbeats and votes.
#[test]
fn members_that_pause_delivery_keep_their_term_and_lose_nothing() {
    let mut net = Net::cluster(3);
    let terms = net.nodes[&1].group.status().term_changes;
    for n in 1..=3 {
        net.nodes.get_mut(&n).unwrap().group.pause_delivery(true);
        net.propose(n, &format!("from {n}"));
    }
    net.run(Duration::from_secs(10));
    for n in 1..=3 {
        let node = &net.nodes[&n];
        let status = node.group.status();
        assert!(status.committed.0 >= status.delivered.0 + 3, "node {n}: {status:?}");
        assert!(net.bodies(n).is_empty(), "node {n}");
        assert_eq!(status.term_changes, terms, "node {n}");
        assert!(!node.events.iter().any(|e| matches!(e, Event::NonPrimary { .. })), "node {n}");
    }
    for n in 1..=3 {
        net.nodes.get_mut(&n).unwrap().group.pause_delivery(false);
    }
    net.settle();
    let all = net.bodies(1);
    assert_eq!(all.len(), 3);
    assert_eq!((net.bodies(2), net.bodies(3)), (all.clone(), all));
}

#[test]
fn death_of_the_sequencer_costs_no_proposal_and_doubles_none() {
    let mut net = Net::cluster(3);
    let dead = net.sequencer();
    let origin = (1..=3).find(|n| *n != dead).unwrap();
    let other = (1..=3).find(|n| *n != dead && *n != origin).unwrap();
    net.propose(origin, "before");
    net.drain(origin);
    net.kill(dead);
    net.propose(origin, "after");
    net.run(Duration::from_secs(2));
    assert_eq!(net.bodies(origin), ["before", "after"]);
    assert_eq!(net.bodies(other), ["before", "after"]);
    assert!(
        net.nodes[&origin].events.iter().all(|e| !matches!(e, Event::NonPrimary { .. })),
        "a change of term is silent"
    );
}

#[test]
fn a_dead_member_leaves_the_view_after_the_suspect_timeout_and_nobody_waits() {
    let mut net = Net::cluster(3);
    let dead = (1..=3).find(|n| *n != net.sequencer()).unwrap();
    net.kill(dead);
    let alive = (1..=3).find(|n| *n != dead).unwrap();
    net.propose(alive, "x");
    net.settle();
    assert_eq!(net.bodies(alive), ["x"]);
    assert_eq!(net.nodes[&alive].views.last().unwrap().len(), 3);
    net.run(Duration::from_secs(6));
    assert_eq!(net.nodes[&alive].views.last().unwrap().len(), 2);
    assert_eq!(net.nodes[&alive].group.status().voters.voters.len(), 3, "3 -> 2 survives no more failures");
}

#[test]
fn one_of_two_killed_makes_the_other_non_primary_and_left_does_not() {
    for graceful in [false, true] {
        let mut net = Net::cluster(2);
        if graceful {
            let now = net.now;
            net.nodes.get_mut(&2).unwrap().group.leave(now);
            net.run(Duration::from_millis(500));
            assert!(net.nodes[&2].events.contains(&Event::Left));
        }
        net.kill(2);
        net.run(Duration::from_secs(8));
        assert_eq!(net.phase(1), if graceful { Phase::Primary } else { Phase::NonPrimary });
    }
}

#[test]
fn a_leaving_sequencer_hands_over() {
    let mut net = Net::cluster(3);
    let leaver = net.sequencer();
    let now = net.now;
    net.nodes.get_mut(&leaver).unwrap().group.leave(now);
    net.run(Duration::from_secs(2));
    assert!(net.nodes[&leaver].events.contains(&Event::Left));
    let rest: Vec<u8> = (1..=3).filter(|n| *n != leaver).collect();
    net.propose(rest[0], "x");
    net.settle();
    assert_eq!(net.bodies(rest[1]), ["x"]);
    assert_eq!(net.nodes[&rest[0]].group.status().voters.voters.len(), 2);
}

#[test]
fn a_restarted_member_catches_up_from_its_own_log() {
    let mut net = Net::cluster(3);
    let victim = (1..=3).find(|n| *n != net.sequencer()).unwrap();
    let alive = (1..=3).find(|n| *n != victim).unwrap();
    net.propose(alive, "a");
    net.settle();
    let store = net.kill(victim);
    net.propose(alive, "b");
    net.settle();
    net.restart(victim, store, 2, Seqno(0));
    net.run(Duration::from_secs(2));
    assert_eq!(net.phase(victim), Phase::Primary);
    assert_eq!(net.bodies(victim), ["a", "b"]);
}

#[test]
fn all_killed_and_restarted_form_the_group_again() {
    let mut net = Net::cluster(3);
    net.propose(2, "a");
    net.settle();
    let stores: Vec<MemStore> = (1..=3).map(|n| net.kill(n)).collect();
    net.run(Duration::from_secs(1));
    for (i, store) in stores.into_iter().enumerate().skip(1) {
        net.restart(i as u8 + 1, store, 2, Seqno(0));
    }
    net.run(Duration::from_secs(3));
    assert_eq!(net.phase(2), Phase::Primary, "a majority of the last voters suffices");
    net.propose(3, "b");
    net.settle();
    assert_eq!(net.bodies(2), ["a", "b"]);
}

#[test]
fn a_minority_turns_non_primary_and_comes_back_by_itself() {
    let mut net = Net::cluster(3);
    let alone = net.sequencer();
    let others: Vec<u8> = (1..=3).filter(|n| *n != alone).collect();
    net.cut = others.iter().map(|o| (alone, *o)).collect();
    net.run(Duration::from_secs(8));
    assert_eq!(net.phase(alone), Phase::NonPrimary);
    net.propose(others[0], "x");
    net.settle();
    net.cut.clear();
    net.run(Duration::from_secs(3));
    assert_eq!(net.phase(alone), Phase::Primary);
    assert_eq!(net.bodies(alone), ["x"]);
    assert_eq!(net.nodes[&alone].views.last().unwrap().len(), 3);
}

#[test]
fn one_and_one_is_nobody_and_with_ignore_sb_goes_on() {
    for ignore in [false, true] {
        let mut net = Net::cluster(2);
        net.nodes.get_mut(&1).unwrap().group.set_config(|c| c.ignore_sb = ignore);
        net.cut = vec![(1, 2)];
        net.run(Duration::from_secs(8));
        assert_eq!(net.phase(2), Phase::NonPrimary);
        assert_eq!(net.phase(1), if ignore { Phase::Primary } else { Phase::NonPrimary });
        if ignore {
            net.propose(1, "x");
            net.settle();
            net.cut.clear();
            net.run(Duration::from_secs(8));
            assert_eq!(net.phase(2), Phase::Primary);
            assert_eq!(net.bodies(2), ["x"]);
        }
    }
}

/// The log beside them is lost, so they are of no voter of the branch. Behind the log of the one that goes on they would be given up.
#[test]
fn data_beyond_the_own_log_are_not_given_up_for_ignore_quorum() {
    for beyond in [0, 20] {
        let mut net = Net::cluster(3);
        net.propose(1, "x");
        net.settle();
        net.kill(2);
        net.kill(3);
        net.run(Duration::from_secs(8));
        assert_eq!(net.phase(1), Phase::NonPrimary);
        let seqno = end_of(net.nodes[&1].group.store());
        net.restart(2, MemStore::new(), 2, Seqno(seqno.0 + beyond));
        net.run(Duration::from_secs(1));
        net.nodes.get_mut(&1).unwrap().group.set_config(|c| c.ignore_quorum = true);
        net.run(Duration::from_secs(20));
        assert_eq!(net.phase(1) == Phase::Primary, beyond == 0, "{beyond}");
    }
}

/// The sequencer's half of 4 nodes, and the other one, cut from each other from now on.
fn cut_in_halves(net: &mut Net) -> ([u8; 2], [u8; 2]) {
    let s = net.sequencer();
    let rest: Vec<u8> = (1..=4).filter(|n| *n != s).collect();
    let (one, other) = ([s, rest[0]], [rest[1], rest[2]]);
    net.cut = one.iter().flat_map(|a| other.map(|b| (*a, b))).collect();
    net.update_links();
    (one, other)
}

/// Both are primary, in a view of the two of them.
fn is_a_component(net: &Net, half: [u8; 2]) -> bool {
    let members = |n| net.nodes[n].views.last().unwrap().iter().copied().collect::<BTreeSet<_>>();
    half.iter().all(|n| net.phase(*n) == Phase::Primary && members(n) == half.map(node).into())
}

/// The one half is a component and commits; the other one is not primary.
fn one_half_goes_on(net: &mut Net, on: [u8; 2], off: [u8; 2], case: &str) {
    assert!(is_a_component(net, on), "{case}");
    for n in off {
        assert_eq!(net.phase(n), Phase::NonPrimary, "{case}: node {n}");
    }
    net.propose(on[1], "x");
    net.settle();
    for n in on {
        assert_eq!(net.bodies(n), ["x"], "{case}: node {n}");
    }
}

#[test]
fn two_and_two_is_nobody() {
    let mut net = Net::cluster(4);
    let (one, other) = cut_in_halves(&mut net);
    for n in [one, other].concat() {
        net.propose(n, &format!("from {n}"));
    }
    net.run(Duration::from_secs(30));
    for n in 1..=4 {
        assert_eq!(net.phase(n), Phase::NonPrimary, "node {n}");
        assert!(net.bodies(n).is_empty(), "node {n}: nothing was committed");
    }
    net.heal();
    net.run(Duration::from_secs(5));
    let all = net.bodies(1);
    for n in 1..=4 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert_eq!(net.nodes[&n].views.last().unwrap().len(), 4, "node {n}");
        assert_eq!(net.bodies(n), all, "node {n}");
        assert_eq!(
            all.iter().filter(|b| **b == format!("from {n}")).count(),
            1,
            "what was asked for comes once: {all:?}"
        );
    }
}

/// A half goes on, with the sequencer or without it, when its members are told to. The other one gives way when it is back.
#[test]
fn of_two_and_two_the_half_with_ignore_sb_goes_on() {
    for with_sequencer in [true, false] {
        let mut net = Net::cluster(4);
        let (one, other) = cut_in_halves(&mut net);
        let (on, off) = if with_sequencer { (one, other) } else { (other, one) };
        for n in on {
            net.nodes.get_mut(&n).unwrap().group.set_config(|c| c.ignore_sb = true);
        }
        net.run(Duration::from_secs(12));
        one_half_goes_on(&mut net, on, off, &format!("with the sequencer: {with_sequencer}"));
        net.heal();
        net.run(Duration::from_secs(8));
        for n in 1..=4 {
            assert_eq!(net.phase(n), Phase::Primary, "{with_sequencer}: node {n}");
            assert_eq!(net.bodies(n), ["x"], "{with_sequencer}: node {n}");
            assert_eq!(net.nodes[&n].views.last().unwrap().len(), 4, "{with_sequencer}: node {n}");
        }
    }
}

/// The description of the option says this: set on all nodes, it gives two components.
#[test]
fn with_ignore_sb_on_all_of_two_and_two_both_halves_go_on() {
    let mut net = Net::cluster(4);
    for n in 1..=4 {
        net.nodes.get_mut(&n).unwrap().group.set_config(|c| c.ignore_sb = true);
    }
    let (one, other) = cut_in_halves(&mut net);
    net.run(Duration::from_secs(12));
    for half in [one, other] {
        assert!(is_a_component(&net, half), "{half:?}");
        net.propose(half[0], &format!("of {}", half[0]));
        net.settle();
        for n in half {
            assert_eq!(net.bodies(n), [format!("of {}", half[0])]);
        }
    }
}

#[test]
fn of_two_and_two_the_half_with_weight_two_goes_on() {
    for with_sequencer in [true, false] {
        for which in 0..2 {
            let mut net = Net::cluster(4);
            let s = net.sequencer();
            let heavy = match (with_sequencer, which) {
                (true, 0) => s,
                _ => *(1..=4)
                    .filter(|n| *n != s)
                    .collect::<Vec<u8>>()
                    .get(if with_sequencer { 0 } else { 1 + which })
                    .unwrap(),
            };
            let now = net.now;
            net.nodes.get_mut(&heavy).unwrap().group.set_weight(now, Weight(2));
            net.run(Duration::from_secs(1));
            assert_eq!((net.sequencer(), net.nodes[&s].group.status().voters.weight(node(heavy))), (s, 2));
            let (one, other) = cut_in_halves(&mut net);
            let (on, off) = if with_sequencer { (one, other) } else { (other, one) };
            assert!(on.contains(&heavy));
            net.propose(off[1], "of no majority");
            net.run(Duration::from_secs(8));
            one_half_goes_on(&mut net, on, off, &format!("heavy {heavy}, sequencer {s}"));
            net.heal();
            net.run(Duration::from_secs(5));
            for n in 1..=4 {
                assert_eq!(net.phase(n), Phase::Primary, "heavy {heavy}, sequencer {s}: node {n}");
                assert_eq!(net.bodies(n), ["x", "of no majority"], "heavy {heavy}, sequencer {s}: node {n}");
            }
        }
    }
}

#[test]
fn bootstrapping_a_non_primary_component_makes_it_primary() {
    let mut net = Net::cluster(2);
    net.kill(2);
    net.run(Duration::from_secs(8));
    assert_eq!(net.phase(1), Phase::NonPrimary);
    net.force(1);
    net.run(Duration::from_secs(1));
    assert_eq!(net.phase(1), Phase::Primary);
    net.propose(1, "x");
    net.settle();
    assert_eq!(net.bodies(1), ["x"]);
}

#[test]
fn a_joiner_beyond_the_kept_log_gets_a_snapshot() {
    let mut net = Net::new();
    net.bootstrap(1);
    net.nodes.get_mut(&1).unwrap().group.store_mut().checkpoint_every = 10;
    for i in 0..50 {
        net.propose(1, &i.to_string());
        net.settle();
    }
    let last = net.nodes[&1].group.store().last();
    net.nodes.get_mut(&1).unwrap().group.store_mut().trim(last);
    assert!(net.nodes[&1].group.store().base().index.0 > 20);
    net.join(2);
    assert_eq!(net.phase(2), Phase::Primary);
    net.propose(2, "x");
    net.settle();
    assert_eq!(net.bodies(1).last().unwrap(), "x");
    assert_eq!(net.bodies(2).last().unwrap(), "x");
}

/// A member that stays away too long gets a full copy where a catch-up was hoped for. Operators look for the reason on the side that keeps
/// the log.
#[test]
fn that_data_are_older_than_the_kept_log_is_told() {
    let mut net = Net::cluster(3);
    net.propose(1, "before");
    net.settle();
    let at = Seqno(net.nodes[&3].delivered.last().unwrap().0);
    let store = net.kill(3);
    net.run(Duration::from_secs(8));
    (1..=2).for_each(|n| net.nodes.get_mut(&n).unwrap().group.store_mut().checkpoint_every = 10);
    for i in 0..50 {
        net.propose(1, &i.to_string());
        net.settle();
    }
    for n in 1..=2 {
        let store = net.nodes.get_mut(&n).unwrap().group.store_mut();
        let last = store.last();
        store.trim(last);
        assert!(store.base().seqno > at);
    }
    net.restart(3, store, 2, at);
    net.run(Duration::from_secs(2));
    assert_eq!(net.phase(3), Phase::Primary);
    let text = format!("IST first seqno {} not found from cache, falling back to SST", at.next());
    let events = &net.nodes[&net.sequencer()].events;
    let told = events.iter().filter(|e| matches!(e, Event::Log { warn: false, text: t } if *t == text)).count();
    assert_eq!(told, 1, "{events:?}");
}

#[test]
fn a_causal_read_covers_what_was_committed_before() {
    let mut net = Net::cluster(3);
    net.propose(1, "a");
    net.settle();
    let committed = net.nodes[&1].delivered.last().unwrap().0;
    for n in 1..=3 {
        let now = net.now;
        net.nodes.get_mut(&n).unwrap().group.read(now, ReadId(9));
        net.settle();
        let got = net.nodes[&n].events.iter().find_map(|e| match e {
            Event::ReadAt { read: ReadId(9), seqno } => Some(seqno.0),
            _ => None,
        });
        assert!(got.unwrap() >= committed, "node {n}");
    }
}

#[test]
fn a_heavy_member_that_is_alone_can_become_light_again() {
    let mut net = Net::cluster(3);
    let weigh = |net: &mut Net, weight| {
        let now = net.now;
        net.nodes.get_mut(&1).unwrap().group.set_weight(now, Weight(weight));
        net.run(Duration::from_secs(20));
        let status = net.nodes[&1].group.status();
        assert_eq!((status.phase, status.view.get(node(1)).unwrap().weight), (Phase::Primary, Weight(weight)));
    };
    weigh(&mut net, 3);
    net.isolate(1);
    net.run(Duration::from_secs(20));
    assert_eq!((net.phase(1), net.phase(2)), (Phase::Primary, Phase::NonPrimary));
    weigh(&mut net, 1);
    net.heal();
    net.run(Duration::from_secs(5));
    assert_eq!(net.nodes[&2].group.status().voters.voters.len(), 3);
}

#[test]
fn weights_decide() {
    let mut net = Net::cluster(3);
    let now = net.now;
    net.nodes.get_mut(&1).unwrap().group.set_weight(now, Weight(3));
    net.run(Duration::from_secs(1));
    assert_eq!(net.nodes[&2].group.status().view.get(node(1)).unwrap().weight, Weight(3));
    net.kill(2);
    net.kill(3);
    net.run(Duration::from_secs(8));
    assert_eq!(net.phase(1), Phase::Primary, "3 of 5");
}

#[test]
fn five_shrink_to_three_after_two_failures() {
    let mut net = Net::cluster(5);
    let dead: Vec<u8> = (1..=5).filter(|n| *n != net.sequencer()).take(2).collect();
    for d in &dead {
        net.kill(*d);
    }
    net.run(Duration::from_secs(8));
    let alive = (1..=5).find(|n| !dead.contains(n)).unwrap();
    assert_eq!(net.nodes[&alive].group.status().voters.voters.len(), 3);
    assert_eq!(net.phase(alive), Phase::Primary);
}

#[test]
fn disk_mode_commits_only_what_a_majority_has_synced() {
    let mut net = Net::new();
    let mut cfg = Net::config(1);
    cfg.durability = Durability::Disk;
    net.start(1, cfg, MemStore::new(), None);
    net.nodes.get_mut(&1).unwrap().group.bootstrap(net.now, HISTORY, Seqno(0)).unwrap();
    let now = net.now;
    let group = &mut net.nodes.get_mut(&1).unwrap().group;
    while group.poll_output(now).is_some() {}
    assert_eq!(group.status().committed.0, 0);
    assert!(group.wants_sync());
    let stale = group.store().generation() + 1;
    let last = group.store().last();
    group.handle_synced(now, stale, last);
    assert_eq!(group.status().committed.0, 0, "a completion of another generation counts for nothing");
    let (generation, upto) = group.store_mut().sync();
    group.handle_synced(now, generation, upto);
    while group.poll_output(now).is_some() {}
    assert!(group.status().committed.0 > 0);
}

#[test]
fn the_leaving_sequencer_of_two_hands_over_also_with_an_entry_under_way() {
    for busy in [false, true] {
        let mut net = Net::cluster(2);
        let leaver = net.sequencer();
        let other = 3 - leaver;
        let now = net.now;
        if busy {
            net.propose(leaver, "x");
            net.propose(other, "y");
            net.drain(leaver);
        }
        net.nodes.get_mut(&leaver).unwrap().group.leave(now);
        net.run(Duration::from_secs(3));
        assert!(net.nodes[&leaver].events.contains(&Event::Left), "busy {busy}");
        assert_eq!(net.phase(other), Phase::Primary, "busy {busy}");
        assert_eq!(net.nodes[&other].views.last().unwrap().len(), 1);
    }
}

#[test]
fn an_evicted_member_stays_out_whoever_orders_and_comes_back_with_a_new_incarnation() {
    for evicted in 1..=3u8 {
        let mut net = Net::cluster(3);
        let uuid = Net::config(evicted).me.uuid();
        let evict = |net: &mut Net, n: u8| {
            let now = net.now;
            net.nodes.get_mut(&n).unwrap().group.set_evicted(now, [uuid].into());
        };
        // As after the delivery of an ordered entry: every member knows, in any order.
        for n in [3, 1, 2] {
            evict(&mut net, n);
            net.settle();
        }
        net.run(Duration::from_secs(3));
        assert!(net.nodes[&evicted].events.contains(&Event::Evicted), "{evicted}: {:?}", net.nodes[&evicted].events);
        let others: Vec<u8> = (1..=3).filter(|n| *n != evicted).collect();
        for n in &others {
            assert_eq!(net.phase(*n), Phase::Primary);
            assert_eq!(net.nodes[n].views.last().unwrap().len(), 2);
            assert_eq!(net.nodes[n].group.status().voters.voters.len(), 2, "an evicted member has no vote");
        }
        // Another sequencer refuses the same incarnation too.
        let heir = others.iter().copied().find(|n| *n != net.sequencer()).unwrap();
        let now = net.now;
        let first = net.sequencer();
        net.nodes.get_mut(&first).unwrap().group.leave(now);
        net.run(Duration::from_secs(3));
        net.kill(first);
        assert_eq!(net.sequencer(), heir);
        let store = net.kill(evicted);
        net.restart(evicted, store, 1, Seqno(0));
        // Under its old name it finds itself in an old view first, and believes nobody until it has missed its majority.
        net.run(Duration::from_secs(8));
        assert!(net.nodes[&evicted].events.contains(&Event::Evicted));
        let store = net.kill(evicted);
        net.restart(evicted, store, 2, Seqno(0));
        net.run(Duration::from_secs(3));
        assert_eq!(net.phase(evicted), Phase::Primary);
    }
}

fn evict(net: &mut Net, evicted: u8, hear: &[u8]) {
    let (uuid, now) = (net.nodes[&evicted].cfg.me.uuid(), net.now);
    for n in hear {
        net.nodes.get_mut(n).unwrap().group.set_evicted(now, [uuid].into());
    }
}

/// It has no quiet moment: before it hears what its peers have got, it has ordered more.
#[test]
fn an_evicted_sequencer_hands_over_under_load() {
    let mut net = Net::cluster(3);
    let evicted = net.sequencer();
    let leads = |net: &Net| net.nodes[&evicted].group.status().sequencer == Some(node(evicted));
    net.propose(evicted, "x");
    net.drain(evicted);
    evict(&mut net, evicted, &[1, 2, 3]);
    for _ in 0..2_000 {
        let Some((from, to, message)) = net.next_message() else { continue };
        if to == evicted && leads(&net) {
            net.propose(evicted, "x");
            net.drain(evicted);
        }
        let now = net.now;
        net.nodes.get_mut(&to).unwrap().group.handle_message(now, node(from), message);
        net.drain(to);
    }
    assert!(!leads(&net));
    net.run(Duration::from_secs(3));
    assert!(net.nodes[&evicted].events.contains(&Event::Evicted));
}

/// The only one that could order in its place has a disk that hangs.
#[test]
fn an_evicted_sequencer_does_not_stand_still_for_an_heir_that_does_not_get_on() {
    let mut net = Net::new();
    let config = |n: u8, weight: u8| {
        let mut cfg = Config { durability: Durability::Disk, ..Net::config(n) };
        cfg.me.weight = Weight(weight);
        cfg
    };
    net.bootstrap_as(1, config(1, 2));
    net.enter(2, config(2, 1), MemStore::new(), None);
    net.run(Duration::from_secs(2));
    assert_eq!((net.sequencer(), net.phase(2)), (1, Phase::Primary));
    net.stalled.push(2);
    net.propose(1, "before");
    net.drain(1);
    evict(&mut net, 1, &[1, 2]);
    net.run(Duration::from_secs(1));
    net.propose(1, "after");
    net.run(Duration::from_secs(10));
    assert_eq!(net.bodies(1), ["before", "after"]);
    net.stalled.clear();
    net.run(Duration::from_secs(60));
    assert!(net.nodes[&1].events.contains(&Event::Evicted), "its heir gets on again");
}

/// Swarm seed 40000654: a machine was lost for good just before another member was evicted. Without the evicted one the rest was half of the
/// voters, and waited for ever.
#[test]
fn who_died_unnoticed_before_an_eviction_keeps_no_vote_in_the_smaller_set() {
    let mut net = Net::cluster(3);
    let sequencer = net.sequencer();
    let evicted = (1..=3).find(|n| *n != sequencer).unwrap();
    let dead = (1..=3).find(|n| ![sequencer, evicted].contains(n)).unwrap();
    net.mute(dead);
    evict(&mut net, evicted, &[sequencer, evicted]);
    net.run(Duration::from_millis(200));
    assert!(!net.nodes[&evicted].events.contains(&Event::Evicted), "nobody has heard the dead one since");
    net.kill(dead);
    net.run(Duration::from_millis(500));
    assert!(net.nodes[&evicted].events.contains(&Event::Evicted));
    net.kill(evicted);
    net.propose(sequencer, "alone");
    net.settle();
    assert_eq!(net.bodies(sequencer), ["alone"]);
}

/// The same where the one that is lost ordered, and nobody does yet: whoever heard of the eviction sends nobody away whose vote it needs.
#[test]
fn an_evicted_member_without_which_nobody_can_order_is_put_out_by_whoever_orders_next() {
    let mut net = Net::cluster(3);
    let lost = net.sequencer();
    let evicted = (1..=3).find(|n| *n != lost).unwrap();
    let stays = (1..=3).find(|n| ![lost, evicted].contains(n)).unwrap();
    net.cut = vec![(1, 2), (1, 3), (2, 3)];
    net.run(Duration::from_secs(20));
    assert!((1..=3).all(|n| net.phase(n) == Phase::NonPrimary));
    net.kill(lost);
    evict(&mut net, evicted, &[stays, evicted]);
    net.heal();
    net.run(Duration::from_secs(20));
    assert!(net.nodes[&evicted].events.contains(&Event::Evicted));
    net.kill(evicted);
    net.run(Duration::from_secs(20));
    assert_eq!(net.phase(stays), Phase::Primary, "{:?}", net.nodes[&stays].group.status());
    net.propose(stays, "alone");
    net.settle();
    assert_eq!(net.bodies(stays), ["alone"]);
}

/// One was away, left the view, and was evicted then; its vote stays (rule 9). Another one is lost for good, and the first comes back: its vote is
/// needed once more, to take that vote from it.
#[test]
fn an_evicted_voter_outside_the_view_votes_itself_out_and_no_more() {
    let mut net = Net::cluster(3);
    let sequencer = net.sequencer();
    let evicted = (1..=3).find(|n| *n != sequencer).unwrap();
    let lost = (1..=3).find(|n| ![sequencer, evicted].contains(n)).unwrap();
    net.isolate(evicted);
    net.run(Duration::from_secs(10));
    assert_eq!(net.nodes[&sequencer].group.status().view.members.len(), 2);
    evict(&mut net, evicted, &[sequencer, lost]);
    net.run(Duration::from_secs(2));
    net.kill(lost);
    net.run(Duration::from_secs(10));
    net.heal();
    net.run(Duration::from_secs(10));
    assert!(net.nodes[&evicted].events.contains(&Event::Evicted));
    net.kill(evicted);
    net.run(Duration::from_secs(30));
    assert_eq!(net.phase(sequencer), Phase::Primary);
    let sizes: Vec<usize> = net.nodes[&sequencer].views.iter().map(Vec::len).collect();
    assert!(sizes.ends_with(&[3, 2, 1]), "it was not let in again: {sizes:?}");
}

#[test]
fn readers_that_wait_at_the_same_time_share_a_round() {
    let mut net = Net::cluster(3);
    let reader = (1..=3).find(|n| *n != net.sequencer()).unwrap();
    let before = net.nodes[&reader].group.status().read_requests;
    let now = net.now;
    for id in 0..1000 {
        net.nodes.get_mut(&reader).unwrap().group.read(now, ReadId(id));
    }
    // No time passes: messages that are there are enough.
    net.settle();
    let answered = net.nodes[&reader].events.iter().filter(|e| matches!(e, Event::ReadAt { .. })).count();
    assert_eq!(answered, 1000);
    let requests = net.nodes[&reader].group.status().read_requests - before;
    assert_eq!(requests, 2, "the first one's own, and one for all that came while it was under way");
}

/// Between two looks at the network a member can die and come back. Nothing that was meant for its former life may come to the next one: it could be
/// told that it was evicted, or be given a state that it has no need of.
#[test]
fn nothing_that_waits_for_a_link_goes_over_the_next_one() {
    let mut net = Net::cluster(2);
    let peer = 3 - net.sequencer();
    let now = net.now;
    let mut back = net.nodes[&peer].cfg.clone();
    back.me.incarnation = Incarnation(2);
    net.settle();
    let group = &mut net.nodes.get_mut(&(3 - peer)).unwrap().group;
    let sent = |group: &mut Group<MemStore>| {
        let to_peer = |o| if let Output::Send { message, .. } = o { Some(message) } else { None };
        outputs(group, now).into_iter().filter_map(to_peer).collect::<Vec<_>>()
    };
    let relink = |group: &mut Group<MemStore>| {
        group.handle_link_down(now, node(peer));
        group.handle_link_up(now, back.me.clone(), back.levels);
    };
    group.signal(Bytes::from_static(b"for the former life"));
    relink(group);
    let first = sent(group).remove(0);
    assert!(matches!(first, Message::Presence(_)), "{first:?}");

    let join = JoinRequest {
        member: back.me.clone(),
        history: Uuid::NIL,
        lineage: Lineage::default(),
        usable: false,
        last_index: LogIndex(0),
        last_term: Term(0),
        position: None,
        view: 0,
    };
    group.handle_message(now, node(peer), Message::Join(join));
    let needs = outputs(group, now).into_iter().find_map(|o| match o {
        Output::Event(Event::NeedSnapshot(request)) => Some(request),
        _ => None,
    });
    relink(group);
    sent(group);
    group.provide_snapshot(now, needs.unwrap(), Bytes::new());
    let state = sent(group).into_iter().find(|m| matches!(m, Message::Snapshot { .. }));
    assert_eq!(state, None);
}

/// Swarm seed 88012379: the new life counts its batches anew, and took an answer from before the newest commits for that to its own request.
#[test]
fn a_read_of_a_former_life_is_not_answered() {
    let mut net = Net::cluster(2);
    let sequencer = net.sequencer();
    let reader = 3 - sequencer;
    net.settle();
    let now = net.now;
    net.nodes.get_mut(&reader).unwrap().group.read(now, ReadId(1));
    net.drain_all();
    assert!(matches!(net.queue.back().unwrap().2.content(), Some(Content::ReadRequest { .. })), "{:?}", net.queue);
    net.deliver_until(|net| {
        let asks = net.queue.iter().any(|(_, to, m)| *to == reader && is_heartbeat(m));
        asks.then_some(())
    });
    let log = net.kill(reader);
    let at = end_of(&log);
    net.queue.clear();
    net.restart(reader, log, 2, at);
    net.update_links();
    // Rounds are confirmed again.
    let end = net.now.after(Duration::from_secs(1));
    net.deliver_until(|net| {
        let reply = net.queue.iter().find(|(_, _, message)| is_read_reply(message));
        assert_eq!(reply, None);
        (net.now >= end).then_some(())
    });
    assert_eq!(net.phase(reader), Phase::Primary);
}

/// Two disks of three were lost, the second before the first one's successor was known to vote: a person has to say that they are gone.
#[test]
fn a_change_of_voters_in_doubt_waits_for_a_majority_of_those_before_it_and_says_so() {
    let mut net = Net::cluster(3);
    net.propose(1, "kept");
    net.settle();
    let mut log = net.kill(1);
    net.kill(2);
    net.kill(3);
    let last = log.read(log.last(), 0).unwrap()[0].header;
    let voters = [1, 3, 4].map(|n| Voter { node: node(n), weight: Weight(1) }).to_vec();
    let mut w = Writer::new();
    VoterSet { voters, fork: Uuid::NIL }.encode(&mut w);
    let header = EntryHeader {
        index: last.index.next(),
        session: Session::default(),
        number: ProposalNumber::ZERO,
        kind: EntryKind::Voters,
        ..last
    };
    log.append(&[Entry { header, payload: w.buf.into() }]).unwrap();
    // The fourth is the second's successor.
    net.restart(1, log.clone(), 2, Seqno(0));
    net.restart(4, log, 2, Seqno(0));
    net.run(Duration::from_secs(20));
    for n in [1, 4] {
        assert_ne!(net.phase(n), Phase::Primary);
        assert!(net.warned(n, "those before the change"), "{:?}", net.nodes[&n].events);
    }
    net.force(4);
    net.run(Duration::from_secs(10));
    for n in [1, 4] {
        assert_eq!(net.phase(n), Phase::Primary);
        assert_eq!(net.bodies(n), ["kept"]);
    }
}

/// The log of the first alone has a change of voters that names the fourth, and the fourth has the best log, which does not name it (of a later
/// term, whose sequencer is gone for good). The first needs the fourth's vote and is refused; the third may not be elected for the first one's
/// log (Ongaro's thesis, 4.2.2: a server that its own log does not name may have to lead).
#[test]
fn a_member_without_a_vote_leads_those_who_cannot_be_elected_for_its_log() {
    for arbitrator in [false, true] {
        let mut net = Net::cluster(3);
        net.propose(1, "before");
        net.settle();
        let at = Seqno(net.nodes[&1].delivered.last().unwrap().0);
        let mut logs: Vec<MemStore> = (1..=3).map(|n| net.kill(n)).collect();
        let last = logs[0].read(logs[0].last(), 0).unwrap()[0].header;
        let next =
            EntryHeader { index: last.index.next(), session: Session::default(), number: ProposalNumber::ZERO, ..last };
        let mut fourth = logs[2].clone();
        let header = EntryHeader { term: last.term.next(), kind: EntryKind::Term, ..next };
        fourth.save_hard_state(HardState { term: header.term, ..fourth.hard_state() }).unwrap();
        let mut w = Writer::new();
        w.uuid(Uuid([2; 16]));
        w.str("n2");
        fourth.append(&[Entry { header, payload: w.buf.into() }]).unwrap();
        let voters = [1, 2, 3, 4].map(|n| Voter { node: node(n), weight: Weight(1) }).to_vec();
        let mut w = Writer::new();
        VoterSet { voters, fork: Uuid::NIL }.encode(&mut w);
        let header = EntryHeader { kind: EntryKind::Voters, ..next };
        logs[0].append(&[Entry { header, payload: w.buf.into() }]).unwrap();
        for (n, log) in [(1, logs[0].clone()), (3, logs[2].clone())] {
            net.restart(n, log, 2, at);
        }
        let mut cfg = Net::config(4);
        cfg.me.incarnation = Incarnation(2);
        cfg.me.kind = if arbitrator { MemberKind::Arbitrator } else { MemberKind::Data };
        net.start(4, cfg, fourth, Some(at).filter(|_| !arbitrator));
        let position = Some((HISTORY, at)).filter(|_| !arbitrator);
        let now = net.now;
        net.nodes.get_mut(&4).unwrap().group.join(now, JoinState { position });
        net.run(Duration::from_secs(20));
        for n in [1, 3, 4] {
            assert_eq!(net.phase(n), Phase::Primary, "arbitrator {arbitrator}: {:?}", net.nodes[&n].group.status());
            assert!(net.nodes[&n].group.status().voters.contains(node(4)), "it has joined");
        }
        net.propose(1, "after");
        net.settle();
        assert!([1, 3, 4].iter().all(|n| net.bodies(*n).last().is_some_and(|b| b == "after")));
    }
}

/// `pc.ignore_quorum`. The last has left and come back, and is in the view without a vote when the sequencer and the third die. The first lacks
/// that view, so the last has the better log. `hears_of_it`: the first one's log has the set without the last, too.
fn ignore_quorum_beside_a_member_without_a_vote(hears_of_it: bool) {
    let mut net = Net::cluster(4);
    for n in 1..=4 {
        net.nodes.get_mut(&n).unwrap().group.set_config(|c| c.ignore_quorum = true);
    }
    net.propose(1, "before");
    net.settle();
    let orders = net.sequencer();
    let last = (1..=4).rev().find(|n| *n != orders).unwrap();
    let now = net.now;
    net.nodes.get_mut(&last).unwrap().group.leave(now);
    net.run(Duration::from_secs(1));
    assert!(net.nodes[&last].events.contains(&Event::Left));
    let at = Seqno(net.nodes[&last].delivered.last().unwrap().0);
    let log = net.kill(last);
    let first = (1..=4).find(|n| *n != orders && *n != last).unwrap();
    let third = (1..=4).find(|n| ![orders, last, first].contains(n)).unwrap();
    net.run(Duration::from_secs(1));
    assert_eq!(net.sequencer(), orders);
    assert_eq!(net.nodes[&first].group.status().voters.voters.len(), 3);
    net.lost.push((orders, first));
    if !hears_of_it {
        let now = net.now;
        net.nodes.get_mut(&first).unwrap().group.set_weight(now, Weight(0));
        net.run(Duration::from_millis(300));
        assert_eq!(net.nodes[&orders].group.status().voters.total(), 2);
        assert_eq!(net.nodes[&first].group.status().voters.total(), 3);
    }
    // It gives no vote before it has delivered the view with the last.
    net.nodes.get_mut(&orders).unwrap().group.pause_delivery(true);
    net.restart(last, log, 2, at);
    net.nodes.get_mut(&last).unwrap().group.set_config(|c| c.ignore_quorum = true);
    for _ in 0..100 {
        net.run(Duration::from_millis(10));
        if net.phase(last) == Phase::Primary {
            break;
        }
    }
    assert_eq!(net.phase(last), Phase::Primary, "{:?}", net.nodes[&last].group.status());
    assert!(!net.nodes[&last].group.status().voters.contains(node(last)));
    net.kill(orders);
    net.kill(third);
    net.run(Duration::from_secs(20));
    let forced = |n: u8| net.warned(n, "Ignoring lack of quorum");
    assert!(!forced(last), "a member without a vote decides nothing");
    assert!(forced(first));
    assert_eq!(net.phase(first), Phase::Primary);
}

#[test]
fn a_member_that_had_a_vote_ignores_no_lack_of_quorum() {
    ignore_quorum_beside_a_member_without_a_vote(true);
}

#[test]
fn a_member_that_is_called_ignores_no_lack_of_quorum() {
    ignore_quorum_beside_a_member_without_a_vote(false);
}

/// Swarm seed 3705: members that were evicted came back before a view without them was ordered. The one that was elected took itself for
/// the one that had to go, and left.
#[test]
fn who_comes_back_after_an_eviction_is_welcome_and_may_order() {
    for nodes in [1, 3] {
        let mut net = Net::cluster(nodes);
        net.propose(1, "before");
        net.settle();
        let evicted: BTreeSet<Uuid> = (1..=nodes).map(|n| net.nodes[&n].cfg.me.uuid()).collect();
        let stores: Vec<MemStore> = (1..=nodes).map(|n| net.kill(n)).collect();
        for (n, store) in (1..=nodes).zip(stores) {
            net.restart(n, store, 2, Seqno(0));
            let now = net.now;
            net.nodes.get_mut(&n).unwrap().group.set_evicted(now, evicted.clone());
        }
        net.run(Duration::from_secs(10));
        for n in 1..=nodes {
            assert_eq!(net.phase(n), Phase::Primary, "node {n} of {nodes}: {:?}", net.nodes[&n].events);
            assert!(!net.nodes[&n].events.iter().any(|e| matches!(e, Event::Evicted | Event::Left)), "node {n}");
            assert_eq!(net.nodes[&n].group.status().voters.voters.len(), nodes as usize);
        }
    }
}

/// Swarm seeds 29949 and 80770: a machine was lost for good just before another member left. The set without the leaver still had the dead
/// one, so the remaining one was half of it, and waited for ever.
#[test]
fn who_died_unnoticed_before_a_leave_keeps_no_vote_in_the_smaller_set() {
    let mut net = Net::cluster(3);
    let sequencer = net.sequencer();
    let leaver = (1..=3).find(|n| *n != sequencer).unwrap();
    let dead = (1..=3).find(|n| ![sequencer, leaver].contains(n)).unwrap();
    net.mute(dead);
    let now = net.now;
    net.nodes.get_mut(&leaver).unwrap().group.leave(now);
    net.run(Duration::from_millis(200));
    assert!(!net.nodes[&leaver].events.contains(&Event::Left), "nobody has heard the dead one since");
    net.kill(dead);
    net.run(Duration::from_millis(500));
    assert!(net.nodes[&leaver].events.contains(&Event::Left));
    net.kill(leaver);
    net.propose(sequencer, "alone");
    net.settle();
    assert_eq!(net.bodies(sequencer), ["alone"]);
}

/// It hears only those whom it needs least: nobody orders through the others, and their word is no sign of life of the sequencer.
#[test]
fn who_hears_all_but_the_sequencer_is_out_of_touch() {
    // The connection to the sequencer is gone; or it stands, and its messages are lost, in either direction or in both.
    for how in ["cut", "deaf", "unheard", "both"] {
        let mut net = Net::cluster(3);
        let s = net.sequencer();
        let lonely = (1..=3).find(|n| *n != s).unwrap();
        let other = (1..=3).find(|n| ![s, lonely].contains(n)).unwrap();
        let term = net.nodes[&other].group.status().term;
        match how {
            "cut" => net.cut.push((s, lonely)),
            "deaf" => net.lost.push((s, lonely)),
            "unheard" => net.lost.push((lonely, s)),
            _ => net.lost.extend([(s, lonely), (lonely, s)]),
        }
        net.update_links();
        net.propose(lonely, "sent in vain");
        let now = net.now;
        net.nodes.get_mut(&lonely).unwrap().group.read(now, ReadId(7));
        net.run(Duration::from_secs(4));
        assert_eq!(net.phase(lonely), Phase::Primary, "{how}: not before the suspect timeout");
        net.propose(other, "ordered meanwhile");
        net.run(Duration::from_secs(3));
        assert_eq!(net.phase(lonely), Phase::NonPrimary, "{how}");
        assert!(net.nodes[&lonely].events.contains(&Event::ReadFailed { read: ReadId(7) }), "{how}");
        assert_ne!(net.nodes[&lonely].group.sequencer(), Some(node(other)), "{how}");
        for n in [s, other] {
            assert_eq!(net.phase(n), Phase::Primary, "{how}: node {n}");
            assert_eq!(net.nodes[&n].views.last().unwrap().len(), 2, "{how}: node {n}");
            assert_eq!(net.nodes[&n].group.status().term, term, "{how}: nobody changes the term for it");
            assert!(net.bodies(n).contains(&"ordered meanwhile".to_string()), "{how}: node {n}");
        }
        net.cut.clear();
        net.lost.clear();
        net.run(Duration::from_secs(3));
        for n in 1..=3 {
            assert_eq!(net.phase(n), Phase::Primary, "{how}: node {n}");
            assert_eq!(net.nodes[&n].group.sequencer(), Some(node(s)), "{how}");
            let sent: Vec<String> = net.bodies(n).into_iter().filter(|b| b == "sent in vain").collect();
            assert_eq!(sent.len(), 1, "{how}: node {n} has it once");
        }
    }
}

/// A body that nobody was given can be withdrawn, and never comes. One that was sent before cannot, and its outcome stays open.
#[test]
fn what_is_proposed_without_links_to_a_majority_can_be_withdrawn() {
    for alone_orders in [true, false] {
        let mut net = Net::cluster(3);
        let alone = (1..=3).find(|n| (*n == net.sequencer()) == alone_orders).unwrap();
        let other = (1..=3).find(|n| *n != alone).unwrap();
        net.propose(alone, "sent");
        net.isolate(alone);
        net.propose(alone, "one");
        net.propose(alone, "two");
        let last = net.nodes[&alone].group.store().last();
        net.drain(alone);
        let group = &mut net.nodes.get_mut(&alone).unwrap().group;
        assert_eq!(group.store().last(), last, "the own log was not given it either");
        let bytes = group.status().pending_bytes;
        let withdrawn: Vec<ProposalNumber> = group.withdraw_unsent().into_iter().map(|(_, number)| number).collect();
        assert_eq!(withdrawn, [2, 3].map(ProposalNumber), "{alone_orders}");
        assert_eq!(group.status().pending_bytes, bytes - 6);
        assert_eq!(group.withdraw_unsent(), []);
        net.run(Duration::from_secs(8));
        assert_eq!(net.phase(alone), Phase::NonPrimary);
        net.heal();
        net.run(Duration::from_secs(3));
        net.propose(alone, "again");
        net.settle();
        assert_eq!(net.bodies(alone), ["sent", "again"], "{alone_orders}");
        assert_eq!(net.bodies(other), ["sent", "again"], "{alone_orders}");
    }
}

#[test]
fn what_was_kept_back_goes_out_in_order_when_the_links_return() {
    for alone_orders in [true, false] {
        let mut net = Net::cluster(3);
        let alone = (1..=3).find(|n| (*n == net.sequencer()) == alone_orders).unwrap();
        let other = (1..=3).find(|n| *n != alone).unwrap();
        net.isolate(alone);
        net.propose(alone, "one");
        net.propose(alone, "two");
        net.run(Duration::from_secs(1));
        net.heal();
        net.propose(alone, "three");
        net.run(Duration::from_secs(2));
        assert_eq!(net.nodes.get_mut(&alone).unwrap().group.withdraw_unsent(), [], "all of it is sent");
        assert_eq!(net.bodies(other), ["one", "two", "three"], "{alone_orders}");
        assert_eq!(net.bodies(alone), ["one", "two", "three"], "{alone_orders}");
        assert!(!net.nodes[&alone].events.iter().any(|e| matches!(e, Event::NonPrimary { .. })));
    }
}

/// It was told of the loss, and nobody withdrew: the body that it kept back goes out when it is a member again, not before.
#[test]
fn what_was_kept_back_survives_a_time_without_a_majority() {
    let mut net = Net::cluster(2);
    net.isolate(1);
    net.propose(1, "kept");
    net.run(Duration::from_secs(8));
    assert_eq!(net.phase(1), Phase::NonPrimary);
    net.heal();
    net.drain(1);
    assert!(!net.queue.iter().any(|(_, _, m)| matches!(m, Message::Submit { .. })));
    net.run(Duration::from_secs(3));
    assert_eq!(net.phase(1), Phase::Primary);
    assert_eq!((net.bodies(1), net.bodies(2)), (vec!["kept".into()], vec!["kept".into()]));
}

/// Links to a majority do not count where a sequencer is heard that has them: else this member would wait for ever.
#[test]
fn a_member_with_a_link_to_the_sequencer_alone_is_served() {
    let mut net = Net::cluster(5);
    let sequencer = net.sequencer();
    let member = (1..=5).find(|n| *n != sequencer).unwrap();
    net.cut = (1..=5).filter(|n| ![sequencer, member].contains(n)).map(|n| (member, n)).collect();
    net.run(Duration::from_secs(1));
    net.propose(member, "x");
    net.run(Duration::from_secs(1));
    assert_eq!(net.bodies(member), ["x"]);
    assert_eq!(net.phase(member), Phase::Primary);
}

/// Its link to the sequencer is gone, those to a majority stand: the others get the body, and order it in the next term.
#[test]
fn a_proposal_without_a_sequencer_counts_as_sent_when_a_majority_is_linked() {
    let mut net = Net::cluster(3);
    let dead = net.sequencer();
    let origin = (1..=3).find(|n| *n != dead).unwrap();
    net.kill(dead);
    net.propose(origin, "x");
    assert_eq!(net.nodes.get_mut(&origin).unwrap().group.withdraw_unsent(), []);
    net.run(Duration::from_secs(2));
    assert_eq!(net.bodies(origin), ["x"]);
}

/// A member without a vote does not count itself. One that goes on alone by `pc.ignore_sb` is a majority then.
#[test]
fn keeping_back_follows_the_voters() {
    let mut net = Net::cluster(2);
    net.nodes.get_mut(&1).unwrap().group.set_config(|c| c.ignore_sb = true);
    net.isolate(1);
    net.propose(1, "kept");
    net.run(Duration::from_secs(8));
    assert_eq!(net.phase(1), Phase::Primary);
    assert_eq!(net.bodies(1), ["kept"]);

    let mut net = Net::cluster(2);
    let now = net.now;
    net.nodes.get_mut(&2).unwrap().group.set_weight(now, Weight(0));
    net.run(Duration::from_secs(1));
    net.isolate(2);
    net.propose(1, "one");
    net.propose(2, "two");
    net.settle();
    assert_eq!(net.bodies(1), ["one"]);
    assert_eq!(net.nodes.get_mut(&2).unwrap().group.withdraw_unsent().len(), 1);
}

/// A member repeats its wish until it sees it in force. It must not repeat one that was in force and was changed by another member since.
#[test]
fn the_last_wish_for_a_durability_mode_holds() {
    let mut net = Net::cluster(3);
    for (first, second) in [(1, 2), (2, 3), (3, 1)] {
        let now = net.now;
        net.nodes.get_mut(&first).unwrap().group.set_durability(now, Durability::Process);
        net.settle();
        net.nodes.get_mut(&second).unwrap().group.set_durability(now, Durability::Disk);
        net.run(Duration::from_secs(2));
        for n in 1..=3 {
            assert_eq!(net.nodes[&n].group.status().durability, Durability::Disk, "{n} after {first} and {second}");
        }
    }
}

/// Both changes of the mode are under way when the entry between them is acknowledged: it is one of mode `disk`.
#[test]
fn what_is_ordered_between_two_changes_of_the_mode_is_synced_before_it_is_acknowledged() {
    let mut net = Net::cluster(3);
    let seq = net.sequencer();
    let now = net.now;
    net.stalled = vec![1, 2, 3];
    net.propose(seq, "in mode process");
    net.settle();
    let group = &mut net.nodes.get_mut(&seq).unwrap().group;
    group.set_durability(now, Durability::Disk);
    group.propose(now, "in mode disk".into()).unwrap();
    group.set_durability(now, Durability::Process);
    group.propose(now, "in mode process again".into()).unwrap();
    net.run(Duration::from_secs(1));
    for n in 1..=3 {
        assert_eq!(net.bodies(n), ["in mode process"], "no disk holds what was ordered in mode disk");
    }
    net.stalled.clear();
    net.run(Duration::from_secs(1));
    for n in 1..=3 {
        assert_eq!(net.bodies(n), ["in mode process", "in mode disk", "in mode process again"]);
    }
    net.stalled = vec![1, 2, 3];
    net.propose(seq, "not synced");
    net.settle();
    assert_eq!(net.bodies(seq).len(), 4, "the mode is process");
}

#[test]
fn a_sequencer_that_lost_and_found_its_majority_within_its_term_is_primary_again() {
    let ms = Duration::from_millis;
    let mut net = Net::cluster(3);
    let seq = net.sequencer();
    let others: Vec<u8> = (1..=3).filter(|n| *n != seq).collect();
    // It looks for its majority at heartbeats. Between two of them it may turn non-primary without stepping down.
    net.nodes.get_mut(&seq).unwrap().group.set_config(|c| {
        c.timeouts.suspect = ms(400);
        c.timeouts.heartbeat = ms(330);
    });
    net.run(Duration::from_secs(2));
    let beat = (0..1000).find_map(|_| {
        net.run(ms(1));
        net.nodes[&seq].group.poll_timeout().filter(|(_, why)| *why == "heartbeat")
    });
    let beat = beat.unwrap().0.after(ms(330));
    net.run(beat.since(net.now) - ms(71));
    net.propose(others[0], "last heard");
    net.settle();
    net.lost = others.iter().map(|n| (*n, seq)).collect();
    net.run(beat.since(net.now) + ms(329));
    // The answers to the next heartbeat come, but at that one it heard nobody.
    net.lost.clear();
    net.run(ms(170));
    let status = net.nodes[&seq].group.status();
    assert!(net.nodes[&seq].events.iter().any(|e| matches!(e, Event::NonPrimary { .. })));
    net.run(Duration::from_secs(5));
    assert_eq!(net.nodes[&seq].group.status().term, status.term, "it did not step down");
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
    }
}

/// Under load there is always something that is not synced yet.
#[test]
pub fn after_a_switch_to_disk_the_log_stops_saying_process_although_there_is_no_pause() {
    let mut net = Net::cluster(1);
    net.propose(1, "in mode process");
    net.settle();
    let now = net.now;
    let group = &mut net.nodes.get_mut(&1).unwrap().group;
    group.set_durability(now, Durability::Disk);
    for i in 0..5u8 {
        // Each sync is done when the next entry is there already.
        let (generation, upto) = group.store_mut().sync();
        group.propose(now, vec![i].into()).unwrap();
        while group.poll_output(now).is_some() {}
        group.handle_synced(now, generation, upto);
        while group.poll_output(now).is_some() {}
    }
    let mut store = net.kill(1);
    store.lose_unsynced();
    assert_eq!(store.suspect(), None, "what was acknowledged is on disk");
}

/// How long clients wait at most when the sequencer is cut off follows from this: docs/operations/balance.md.
#[test]
fn a_sequencer_that_is_cut_off_says_so_after_one_timeout_and_has_a_successor_after_two() {
    let timeout = Net::config(1).timeouts.election;
    for phase in 0..40 {
        let mut net = Net::cluster(3);
        net.run(Duration::from_millis(7 * phase));
        let old = net.sequencer();
        let others: Vec<u8> = (1..=3).filter(|n| *n != old).collect();
        assert!((1..=3).all(|n| net.nodes[&n].group.hears_majority(net.now)), "{phase}");
        // The links stand, and nothing arrives.
        net.lost = others.iter().flat_map(|n| [(old, *n), (*n, old)]).collect();
        net.run(timeout);
        let status = net.nodes[&old].group.status();
        assert_eq!(status.sequencer, Some(node(old)), "{phase}: it does not give up yet");
        assert!(!net.nodes[&old].group.hears_majority(net.now), "{phase}");
        net.run(timeout);
        for n in &others {
            let group = &net.nodes[n].group;
            let found = group.status().sequencer.filter(|n| *n != node(old));
            assert!(found.is_some() && group.hears_majority(net.now), "{phase}: {:?}", group.status());
        }
        assert!(!net.nodes[&old].group.hears_majority(net.now), "{phase}");
    }
}

/// How often a body is on its way from this node, alone and with a place in the order.
fn on_its_way(net: &Net, from: u8, body: &[u8]) -> (usize, usize) {
    let sent = || net.queue.iter().filter(|(by, _, _)| *by == from).map(|(_, _, message)| message);
    let alone = sent().filter(|m| matches!(m, Message::Submit { body: b, .. } if b == body)).count();
    let carries = |m: &&Message| match m {
        Message::InTerm(Envelope { content: Content::Append(append), .. }) => {
            append.entries.iter().any(|(_, b)| b.as_ref().is_some_and(|b| b == body))
        }
        _ => false,
    };
    (alone, sent().filter(carries).count())
}

/// To those that hear multicast it goes alone, for the transport to send once. They ask for bodies that get lost there.
#[test]
fn what_the_sequencer_proposes_goes_to_each_member_once() {
    let mut net = Net::cluster(3);
    let s = net.sequencer();
    net.propose(s, "by links");
    net.drain(s);
    assert_eq!(on_its_way(&net, s, b"by links"), (0, 2));
    net.settle();
    let others: BTreeSet<NodeId> = (1..=3).filter(|n| *n != s).map(node).collect();
    net.nodes.get_mut(&s).unwrap().group.set_hear_multicast(others);
    net.propose(s, "by multicast");
    net.drain(s);
    assert_eq!(on_its_way(&net, s, b"by multicast"), (2, 0));
    net.settle();
    net.propose(s, "lost");
    net.drain(s);
    net.queue.retain(|(_, _, m)| !matches!(m, Message::Submit { .. }));
    net.run(Duration::from_secs(1));
    for n in 1..=3 {
        assert_eq!(net.bodies(n), ["by links", "by multicast", "lost"], "node {n}");
    }
}

/// `pc.ignore_quorum`, with a short `evs.suspect_timeout`. Of the three only the first has data, and it falls silent as soon as there is a primary
/// component: what it told while there was none is still fresh.
#[test]
fn ignore_quorum_needs_data_of_somebody_who_is_there() {
    let mut net = Net::cluster(3);
    net.propose(1, "before");
    net.settle();
    let at = Seqno(net.nodes[&1].delivered.last().unwrap().0);
    let logs: Vec<MemStore> = (1..=3).map(|n| net.kill(n)).collect();
    net.copies = false;
    net.restart(1, logs[0].clone(), 2, at);
    for n in 2..=3 {
        let mut cfg = Net::config(n);
        cfg.me.incarnation = Incarnation(2);
        cfg.ignore_quorum = true;
        cfg.timeouts.suspect = Duration::from_millis(300);
        net.enter(n, cfg, logs[usize::from(n) - 1].clone(), None);
    }
    for _ in 0..200 {
        net.run(Duration::from_millis(10));
        if net.phase(2) == Phase::Primary {
            break;
        }
    }
    assert_eq!(net.phase(2), Phase::Primary);
    net.mute(1);
    net.mute(3);
    net.run(Duration::from_secs(10));
    assert!(!net.warned(2, "Ignoring lack of quorum"), "nobody who is there has data");
    assert_eq!(net.phase(2), Phase::NonPrimary);
}
