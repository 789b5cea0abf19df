//! Terms that somebody has driven up: a member that is far behind or far ahead comes back, and nothing is lost.

use std::time::Duration;

use trireme_order::{Content, Heartbeat, LogEnd, LogStore, MemStore, Message, Phase};
use trireme_types::{HardState, Lineage, LogIndex, Seqno, Term};

use crate::net::*;

const FAR: Term = Term(1 << 40);

/// The highest term that a member is led to at once, when a test begins.
const LIMIT: Term = Term(UNIX_AT_ZERO.as_secs() << 10);

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
    let hard = HardState { term, ..store.hard_state() };
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
    for (away, far) in (1..=3u8).flat_map(|away| [FAR, Term(LIMIT.0 << 10)].map(|far| (away, far))) {
        let (mut net, mut stores, at) = stopped(3);
        for (i, store) in stores.iter_mut().enumerate() {
            if i + 1 != usize::from(away) {
                drive_up(store, far);
            }
        }
        for (i, store) in stores.into_iter().enumerate() {
            net.restart(i as u8 + 1, store, 2, at);
        }
        net.run(Duration::from_secs(10));
        all_order(&mut net, 3);
    }
}

/// Its clock was wrong, or somebody has raised its term alone. The others do not follow it to where no room would be left. It comes back
/// without a vote, and gets one.
#[test]
pub fn a_voter_that_was_driven_up_comes_back_to_the_terms_of_the_others() {
    for far in [Term(LIMIT.0 << 1), Term(1 << 50), Term((1 << 63) - 1)] {
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

#[test]
fn two_voters_that_are_far_apart_find_together() {
    let (mut net, mut stores, at) = stopped(2);
    drive_up(&mut stores[1], FAR);
    for (i, store) in stores.into_iter().enumerate() {
        net.restart(i as u8 + 1, store, 2, at);
    }
    net.run(Duration::from_secs(3));
    all_order(&mut net, 2);
    assert!(net.warned(1, "somebody has driven it up"));
}

/// Both are needed, and the other one does not follow there. An operator raises its term.
#[test]
fn two_voters_that_are_too_far_apart_find_together_when_an_operator_raises_the_lower_term() {
    let far = Term(1 << 50);
    let (mut net, mut stores, at) = stopped(2);
    drive_up(&mut stores[1], far);
    for (i, store) in stores.into_iter().enumerate() {
        net.restart(i as u8 + 1, store, 2, at);
    }
    net.run(Duration::from_secs(30));
    assert_ne!(net.phase(1), Phase::Primary);
    assert!(net.warned(1, "trireme log term --raise"));
    let mut store = net.kill(1);
    drive_up(&mut store, far);
    net.restart(1, store, 3, at);
    net.run(Duration::from_secs(10));
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

/// A stranger leads a member that is starting into the next term, and the others have to go there with it. The sequencer has lost nothing
/// but its term: nobody waits for the silence of a sequencer that asks for votes itself.
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

/// One of three voters was driven up. Another one is the liar that did it, and goes at some moment. The rest is a majority of the three, as
/// long as nobody has taken a vote from the honest one.
#[test]
pub fn a_voter_that_was_driven_up_keeps_its_vote_and_its_majority() {
    let moments = [1, 20, 50, 100, 150, 200, 250, 300, 400, 600, 1000, 2000, 5000, 8000];
    for (far, after) in [FAR, LIMIT].into_iter().flat_map(|far| moments.map(|after| (far, after))) {
        let (mut net, mut stores, at) = stopped(3);
        drive_up(&mut stores[2], far);
        for (i, store) in stores.into_iter().enumerate() {
            net.restart(i as u8 + 1, store, 2, at);
        }
        for _ in 0..after {
            net.run(Duration::from_millis(1));
            for n in 1..=3 {
                let voters = net.nodes[&n].group.status().voters.clone();
                assert_eq!(voters.weight(node(3)), 1, "node {n} after {after} ms: {voters:?}");
            }
        }
        net.kill(2);
        net.run(Duration::from_secs(9));
        for n in [1, 3] {
            assert_eq!(net.phase(n), Phase::Primary, "after {after} ms: {:?}", net.nodes[&n].group.status());
            net.propose(n, &format!("after from {n}"));
        }
        net.run(Duration::from_secs(1));
        for n in [1, 3] {
            let written = net.bodies(n).iter().filter(|b| b.starts_with("after")).count();
            assert_eq!(written, 2, "node {n}, after {after} ms");
        }
    }
}

/// A liar leads a lone member as high as it can for a long time, in every way that a term can be said, and is gone. It has not led it to
/// where the others do not follow.
#[test]
pub fn nobody_is_driven_up_alone_beyond_what_others_follow() {
    let mut net = Net::cluster(3);
    let victim = (1..=3).find(|n| *n != net.sequencer()).unwrap();
    let liar = (1..=3).find(|n| *n != victim && *n != net.sequencer()).unwrap();
    net.isolate(victim);
    net.run(Duration::from_secs(10));
    let limit = |net: &Net| Term(LIMIT.0 + (u128::from(net.now.0) * 1024 / 1_000_000_000) as u64);
    for round in 0..200 {
        let (now, limit) = (net.now, limit(&net));
        let group = &mut net.nodes.get_mut(&victim).unwrap().group;
        group.handle_link_up(now, Net::config(liar).me, trireme_order::SUPPORTED);
        let (last, own) = (group.status().last, group.status().term);
        let end = LogEnd { term: group.store().term_at(last).unwrap(), index: last };
        let mut terms = vec![limit.next(), Term(limit.0 + (1 << 20)), Term(1 << 62), Term((1 << 63) - 1)];
        terms.extend([own.next(), Term(own.0 + (1 << 20)), limit]);
        for term in terms {
            let heartbeat = Heartbeat { commit: last, last, round, majority: false };
            group.handle_message(now, node(liar), Content::Vote { last: end, transfer: true }.in_term(HISTORY, term));
            group.handle_message(now, node(liar), Content::Heartbeat(heartbeat).in_term(HISTORY, term));
            let refused = Content::PreVoteReply { granted: false, whole: true };
            group.handle_message(now, node(liar), refused.in_term(HISTORY, term));
        }
        let term = group.status().term;
        assert!(term <= Term(limit.0 + 200), "{term:?} is above {limit:?}");
        assert!(term >= limit, "{term:?} is below {limit:?}");
        group.handle_link_down(now, node(liar));
        net.run(Duration::from_millis(100));
    }
    net.heal();
    net.kill(liar);
    net.run(Duration::from_secs(9));
    for n in (1..=3).filter(|n| *n != liar) {
        assert_eq!(net.phase(n), Phase::Primary, "{:?}", net.nodes[&n].group.status());
    }
}

/// A state that was sent before this member was led to a later term arrives after it has voted there: the promise holds.
#[test]
fn a_state_that_comes_late_takes_no_promise_back() {
    let mut net = Net::cluster(3);
    let seq = net.sequencer();
    let member = (1..=3).find(|n| *n != seq).unwrap();
    let candidate = 6 - seq - member;
    net.propose(seq, "before");
    net.isolate(member);
    net.run(Duration::from_secs(10));
    let (base, term) = (net.nodes[&seq].group.store().base().clone(), net.nodes[&seq].group.status().term);
    assert!(base.voters.contains(node(member)) || base.index == LogIndex::ZERO);
    let now = net.now;
    let group = &mut net.nodes.get_mut(&member).unwrap().group;
    for n in [seq, candidate] {
        group.handle_link_up(now, Net::config(n).me, trireme_order::SUPPORTED);
    }
    let last = group.status().last;
    let end = LogEnd { term: group.store().term_at(last).unwrap(), index: last };
    group.handle_message(now, node(candidate), Content::Vote { last: end, transfer: true }.in_term(HISTORY, LIMIT));
    let promised = group.store().hard_state();
    assert_eq!((promised.term, promised.voted_for()), (LIMIT, node(candidate)));
    group.handle_message(now, node(seq), Message::Snapshot { term, lineage: Lineage::default(), base: Box::new(base) });
    assert_eq!(group.store().hard_state(), promised);
}
