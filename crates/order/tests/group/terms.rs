//! Terms that somebody has driven up: whoever is far behind or far ahead comes back, and nothing is lost.

use std::time::Duration;

use trireme_order::{Content, Heartbeat, LogEnd, LogStore, MemStore, Message, Phase};
use trireme_types::{HardState, LogIndex, Seqno, Term};

use crate::net::*;

const FAR: Term = Term(1 << 40);

/// A cluster of `n` that is down, with a write set in every log, and the position of the data.
fn stopped(n: u8) -> (Net, Vec<MemStore>, Seqno) {
    let mut net = Net::cluster(n);
    net.propose(1, "before");
    net.run(Duration::from_secs(1));
    let at = Seqno(net.nodes[&1].delivered.last().unwrap().0);
    let stores = (1..=n).map(|i| net.kill(i)).collect();
    (net, stores, at)
}

fn drive_up(store: &mut MemStore, term: Term) {
    let hard = HardState { term, voted_for: Default::default(), ..store.hard_state() };
    store.save_hard_state(hard).unwrap();
}

fn all_order(net: &mut Net, n: u8) {
    for i in 1..=n {
        assert_eq!(net.phase(i), Phase::Primary, "node {i}: {:?}", net.nodes[&i].group.status());
        assert!(!net.nodes[&i].events.contains(&trireme_order::Event::DataDiverged), "node {i}");
        let voters = &net.nodes[&i].group.status().voters;
        assert_eq!(voters.voters.len(), usize::from(n), "node {i}: {voters:?}");
        net.propose(i, &format!("after from {i}"));
    }
    net.run(Duration::from_secs(1));
    for i in 1..=n {
        let after = net.bodies(i).iter().filter(|b| b.starts_with("after")).count();
        assert_eq!(after, usize::from(n), "node {i}");
    }
}

#[test]
pub fn a_member_that_was_away_while_the_terms_were_driven_up_comes_back() {
    for away in 1..=3u8 {
        let (mut net, mut stores, at) = stopped(3);
        for (i, store) in stores.iter_mut().enumerate() {
            if i + 1 != usize::from(away) {
                drive_up(store, FAR);
            }
        }
        for (i, store) in stores.into_iter().enumerate() {
            net.restart(i as u8 + 1, store, 2, at);
        }
        net.run(Duration::from_secs(10));
        all_order(&mut net, 3);
    }
}

/// The others do not follow it there: one that lies could do that again and again. It comes back without a vote, and gets one.
#[test]
pub fn a_voter_that_was_driven_up_comes_back_to_the_terms_of_the_others() {
    for far in [FAR, Term((1 << 63) - 1)] {
        let (mut net, mut stores, at) = stopped(3);
        drive_up(&mut stores[2], far);
        for (i, store) in stores.into_iter().enumerate() {
            net.restart(i as u8 + 1, store, 2, at);
        }
        net.run(Duration::from_secs(20));
        all_order(&mut net, 3);
        assert!(net.nodes[&3].group.status().term < Term(1 << 20), "{:?}", net.nodes[&3].group.status().term);
        assert!(net.warned(1, "no election leads there"));
    }
}

/// A stranger does it step by step while the member is cut off from the others; nobody restarts.
#[test]
fn a_member_that_a_stranger_has_driven_up_while_it_was_cut_off_comes_back() {
    let mut net = Net::cluster(3);
    let victim = (1..=3).find(|n| *n != net.sequencer()).unwrap();
    net.isolate(victim);
    net.run(Duration::from_secs(10));
    assert_eq!(net.phase(victim), Phase::NonPrimary);
    let (now, stranger) = (net.now, Net::config(9).me);
    let group = &mut net.nodes.get_mut(&victim).unwrap().group;
    group.handle_link_up(now, stranger, trireme_order::SUPPORTED);
    for _ in 0..64 {
        let status = group.status();
        let message = Content::Vote { last: LogEnd { term: status.term, index: status.last }, transfer: true }
            .in_term(HISTORY, Term(status.term.0 + (1 << 20)));
        group.handle_message(now, node(9), message);
    }
    assert!(group.status().term >= Term(64 << 20));
    group.handle_link_down(now, node(9));
    net.heal();
    net.run(Duration::from_secs(20));
    all_order(&mut net, 3);
}

/// Both are needed, so the other one has to go there; it waits for a while before it believes that.
#[test]
fn two_voters_that_are_far_apart_find_together() {
    let (mut net, mut stores, at) = stopped(2);
    drive_up(&mut stores[1], FAR);
    for (i, store) in stores.into_iter().enumerate() {
        net.restart(i as u8 + 1, store, 2, at);
    }
    net.run(Duration::from_secs(4));
    assert_ne!(net.phase(1), Phase::Primary, "not at once");
    net.run(Duration::from_secs(6));
    all_order(&mut net, 2);
}

#[test]
fn three_voters_that_are_all_far_apart_find_together() {
    let (mut net, mut stores, at) = stopped(3);
    drive_up(&mut stores[1], Term(1 << 30));
    drive_up(&mut stores[2], Term(1 << 50));
    for (i, store) in stores.into_iter().enumerate() {
        net.restart(i as u8 + 1, store, 2, at);
    }
    net.run(Duration::from_secs(40));
    all_order(&mut net, 3);
}

/// An older version took any term below 2^62 from anybody, and nobody could stand after that.
#[test]
fn a_cluster_that_was_driven_to_the_old_end_of_terms_goes_on() {
    let (mut net, mut stores, at) = stopped(3);
    for (i, store) in stores.iter_mut().enumerate() {
        drive_up(store, Term((1 << 62) - 1 + i as u64));
    }
    for (i, store) in stores.into_iter().enumerate() {
        net.restart(i as u8 + 1, store, 2, at);
    }
    net.run(Duration::from_secs(10));
    all_order(&mut net, 3);
}

/// One newcomer after the other ends a term and is let in. One that comes again and again ends no more of them, and keeps nobody out.
#[test]
fn a_newcomer_with_a_later_term_is_let_in_beside_one_that_pesters() {
    let mut net = Net::cluster(3);
    let seq = net.sequencer();
    let pest = |net: &mut Net| {
        let (now, member) = (net.now, Net::config(9).me);
        let group = &mut net.nodes.get_mut(&seq).unwrap().group;
        if !matches!(group.sequencer(), Some(n) if n == node(seq)) {
            return;
        }
        let status = group.status();
        let request = trireme_order::JoinRequest {
            member: member.clone(),
            history: Default::default(),
            lineage: Default::default(),
            usable: false,
            last_index: LogIndex::ZERO,
            last_term: Term::ZERO,
            position: None,
            view: 0,
        };
        if !group.is_linked(node(9)) {
            group.handle_link_up(now, member, trireme_order::SUPPORTED);
        }
        group.handle_message(now, node(9), Message::Join(request));
        let (branch, term) = (HISTORY, Term(status.term.0 + 1));
        group.handle_message(now, node(9), Content::HeartbeatAck { round: 0 }.in_term(branch, term));
    };
    let before = net.nodes[&1].group.status().term;
    for _ in 0..600 {
        pest(&mut net);
        net.run(Duration::from_millis(100));
    }
    let risen = net.nodes[&1].group.status().term.0 - before.0;
    assert!((1..=4).contains(&risen), "a term a minute, not one every five seconds: {risen}");
}

/// A stranger leads a member that is starting into the next term, and the others have to go there with it. The one that orders has lost nothing but
/// its term: nobody waits for the silence of a sequencer that asks for votes itself.
#[test]
fn a_sequencer_that_a_voter_has_brought_a_later_term_orders_again_at_once() {
    for other in [1, 2] {
        let mut net = Net::cluster(3);
        let seq = net.sequencer();
        let victim = (1..=3).filter(|n| *n != seq).nth(other - 1).unwrap();
        net.propose(seq, "before");
        net.run(Duration::from_secs(1));
        let at = Seqno(net.nodes[&victim].delivered.last().unwrap().0);
        let store = net.kill(victim);
        net.cut.extend((1..=3).filter(|n| *n != victim).map(|n| (victim, n)));
        net.restart(victim, store, 2, at);
        let (now, stranger) = (net.now, Net::config(9).me);
        let group = &mut net.nodes.get_mut(&victim).unwrap().group;
        let status = group.status();
        let lie = Heartbeat { commit: status.last, last: status.last, round: 1, majority: true };
        group.handle_link_up(now, stranger, trireme_order::SUPPORTED);
        group.handle_message(now, node(9), Content::Heartbeat(lie).in_term(HISTORY, status.term.next()));
        assert_eq!(group.status().term, status.term.next(), "it knows nobody better");
        group.handle_link_down(now, node(9));

        // In the midst of an election timeout, as far as the others are concerned.
        net.run(Duration::from_millis(30));
        net.heal();
        let mut waited = Duration::ZERO;
        let step = Duration::from_millis(5);
        while net.nodes[&seq].group.status().term < status.term.next().next() || net.bodies(seq).len() < 2 {
            net.run(step);
            waited += step;
            if waited == step {
                net.propose(seq, "meanwhile");
            }
            assert!(waited < Duration::from_secs(5), "{:?}", net.nodes[&seq].group.status());
        }
        assert!(waited <= Duration::from_millis(100), "nothing was ordered for {waited:?}");
        net.run(Duration::from_secs(5));
        all_order(&mut net, 3);
    }
}
