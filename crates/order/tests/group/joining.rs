//! Newcomers and those that come back: how they get in and catch up.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use trireme_order::{
    Append, Content, Envelope, Event, Evidence, Heartbeat, JoinState, LogStore, MemStore, Message, Phase, Presence,
};
use trireme_types::{Base, Seqno, Timestamp};

use crate::net::*;

/// The joiner has the same position and no log; the bootstrap's base is at index 0.
#[test]
fn joiner_at_the_bootstrap_position_gets_in() {
    let mut net = Net::new();
    net.start(1, Net::config(1), MemStore::new(), None);
    net.nodes.get_mut(&1).unwrap().group.bootstrap(net.now, HISTORY, Seqno(100)).unwrap();
    net.settle();
    net.start(2, Net::config(2), MemStore::new(), Some(Seqno(100)));
    let now = net.now;
    net.nodes.get_mut(&2).unwrap().group.join(now, JoinState { position: Some((HISTORY, Seqno(100))) });
    net.run(Duration::from_secs(10));
    assert_eq!(net.phase(2), Phase::Primary, "{:?}", net.nodes[&2].group.status());
}

/// View followed view while a joiner lagged.
#[test]
fn a_lagging_joiner_causes_no_storm_of_views() {
    let mut net = Net::cluster(2);
    net.start(3, Net::config(3), MemStore::new(), None);
    let now = net.now;
    net.nodes.get_mut(&3).unwrap().group.join(now, JoinState { position: None });
    // Entries for node 3 are dropped after its probe was answered.
    let end = net.now.after(Duration::from_secs(3));
    while net.now < end {
        for _ in 0..10000 {
            net.update_links();
            for n in 1..=3u8 {
                net.drain(n);
            }
            let Some((from, to, message)) = net.queue.pop_front() else { break };
            if to == 3
                && matches!(&message, Message::InTerm(Envelope { content: Content::Append(Append { entries, .. }), .. }) if !entries.is_empty())
            {
                continue;
            }
            let now = net.now;
            if net.links.contains(&(to, from)) {
                net.nodes.get_mut(&to).unwrap().group.handle_message(now, node(from), message);
                net.drain(to);
            }
        }
        let next = net.nodes.values().filter_map(|n| n.group.poll_timeout()).map(|(at, _)| at).min();
        net.now = next.unwrap_or(end).max(Timestamp(net.now.0 + 1)).min(end);
        for n in net.nodes.values_mut() {
            n.group.handle_timeout(net.now);
        }
    }
    let n = net.nodes[&1].views.len();
    assert!(n < 6, "{n} views");
}

/// All die and come back. No view names a node twice, and each old incarnation has left before the new one enters (rule 12).
#[test]
fn old_incarnations_leave_before_the_new_ones_enter() {
    let mut net = Net::cluster(3);
    let stores: Vec<MemStore> = (1..=3).map(|n| net.kill(n)).collect();
    for (i, s) in stores.into_iter().enumerate() {
        net.restart(i as u8 + 1, s, 2, Seqno(0));
    }
    net.run(Duration::from_secs(5));
    let seq = net.sequencer();
    for n in 1..=3u8 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        let views = &net.nodes[&n].views;
        for view in views {
            let names: BTreeSet<_> = view.iter().collect();
            assert_eq!(names.len(), view.len(), "node {n} sees two incarnations at once: {views:?}");
        }
        let (last, before) = views.split_last().unwrap();
        assert_eq!(last.len(), 3, "node {n}: {views:?}");
        let of_old = before.iter().position(|view| view.len() == 3).unwrap();
        // The new sequencer changes places with its old incarnation in one view.
        for other in (1..=3).filter(|other| *other != seq) {
            let out = before[of_old..].iter().any(|view| !view.contains(&node(other)));
            assert!(out, "node {n} sees no view without {other}: {views:?}");
        }
    }
}

/// A member is back whose log has a tail that was never committed. The sequencer, the second one, has dropped what lies before its base, the
/// state that it will offer.
fn back_with_an_uncommitted_tail() -> (Net, u8, u8, Base) {
    let mut net = Net::cluster(3);
    let seq = net.sequencer();
    net.mute(seq);
    for i in 0..20 {
        net.propose(seq, &format!("never committed {i}"));
    }
    net.settle();
    net.lost.clear();
    net.cut = (1..=3).filter(|n| *n != seq).map(|n| (seq, n)).collect();
    let at = Seqno(net.nodes[&seq].group.status().delivered.0.min(3));
    let old = net.kill(seq);
    let tail = old.last();
    net.run(Duration::from_secs(3));
    let new = net.sequencer();
    net.propose(new, "won");
    net.settle();
    let chain = net.nodes[&new].group.status();
    assert!(chain.committed < tail);
    net.cut.clear();
    net.restart(seq, old, 2, at);
    let base = Base {
        history: HISTORY,
        index: chain.committed,
        term: chain.term,
        seqno: Seqno(net.nodes[&new].delivered.last().unwrap().0),
        voters: chain.voters,
        view: chain.view,
        ..Base::default()
    };
    net.update_links();
    (net, seq, new, base)
}

/// The sequencer is heard, and offers its state.
fn offer(net: &mut Net, to: u8, from: u8, base: &Base) {
    let heard = Heartbeat { commit: base.index, last: base.index, round: 1, majority: true };
    let heartbeat = Content::Heartbeat(heard).in_term(HISTORY, base.term);
    let state = Message::Snapshot { term: base.term, lineage: base.lineage.clone(), base: Box::new(base.clone()) };
    for message in [heartbeat, state] {
        net.nodes.get_mut(&to).unwrap().group.handle_message(net.now, node(from), message);
    }
}

/// The joiner's log is longer than the base it is offered, by a tail that was never committed: it must take the base.
#[test]
fn a_snapshot_below_an_uncommitted_tail_is_taken() {
    let (mut net, back, orders, base) = back_with_an_uncommitted_tail();
    offer(&mut net, back, orders, &base);
    let group = &net.nodes[&back].group;
    assert_eq!(group.store().base().index, base.index);
    assert_eq!(group.status().last, base.index);
}

/// The own log can replay the commits that its engine has in memory only, and the state cannot: the log stays until the engine has all of them on disk
/// (rule 32).
#[test]
pub fn a_snapshot_waits_for_the_engine_of_a_server_that_keeps_its_data() {
    let (mut net, back, orders, base) = back_with_an_uncommitted_tail();
    let kept = Base { seqno: Seqno(1), ..base };
    let engine = |net: &mut Net, upto: u64| {
        let now = net.now;
        net.nodes.get_mut(&back).unwrap().group.note_engine_disk(now, Seqno(upto));
    };
    engine(&mut net, 0);
    offer(&mut net, back, orders, &kept);
    let group = &net.nodes[&back].group;
    assert!(group.status().last > kept.index, "the log was replaced");
    assert!(group.awaits_engine_disk());
    assert_eq!(group.state_awaits_engine(), Some(Seqno(1)));
    // A later state, which begins behind the data, would cost them.
    offer(&mut net, back, orders, &Base { seqno: Seqno(100), ..kept.clone() });
    assert!(net.nodes[&back].group.status().last > kept.index, "the data were given up");
    engine(&mut net, 1);
    assert!(!net.nodes[&back].group.awaits_engine_disk());
    assert_eq!(net.nodes[&back].group.store().base().index, kept.index, "the state that was offered first");
}

#[test]
fn an_application_hears_what_is_in_a_state_that_waits() {
    let (mut net, back, orders, base) = back_with_an_uncommitted_tail();
    let kept = Base { seqno: Seqno(1), app: Bytes::from_static(b"state"), ..base };
    let now = net.now;
    net.nodes.get_mut(&back).unwrap().group.note_engine_disk(now, Seqno(0));
    offer(&mut net, back, orders, &kept);
    net.run(Duration::ZERO);
    assert!(net.nodes[&back].events.contains(&Event::EngineAwaited { app: kept.app }), "its server may wait for that");
}

/// The result of a vote that the engine waits for is behind the state. The next state waits as any other.
#[test]
fn a_state_is_taken_at_once_where_the_engine_waits_for_what_is_behind_it() {
    let (mut net, back, orders, base) = back_with_an_uncommitted_tail();
    let kept = Base { seqno: Seqno(2), ..base };
    let now = net.now;
    net.nodes.get_mut(&back).unwrap().group.note_engine_disk(now, Seqno(1));
    offer(&mut net, back, orders, &kept);
    let group = &mut net.nodes.get_mut(&back).unwrap().group;
    assert_eq!(group.state_awaits_engine(), Some(Seqno(2)));
    group.note_engine_stuck(now);
    assert_eq!(group.store().base().index, kept.index);
    assert_eq!((group.awaits_engine_disk(), group.state_awaits_engine()), (false, None));
    group.note_engine_stuck(now);
}

/// An engine that gets nowhere is not waited for without end: its applier may wait for a vote, and the vote for this member. One of which nothing
/// is known may have less than is claimed, which costs nothing where the sequencer has data.
#[test]
fn a_snapshot_waits_for_an_engine_for_some_minutes_at_most() {
    for known in [true, false] {
        let (mut net, back, orders, base) = back_with_an_uncommitted_tail();
        let kept = Base { seqno: Seqno(2), ..base };
        let group = &mut net.nodes.get_mut(&back).unwrap().group;
        group.note_engine_disk(net.now, Seqno(u64::from(known)));
        if !known {
            let has_data = Presence {
                history: HISTORY,
                lineage: kept.lineage.clone(),
                term: kept.term,
                last_term: kept.term,
                last_index: kept.index,
                base: Seqno(0),
                seqno: Seqno(1),
                primary: true,
                evidence: Evidence::Everything,
                data: None,
                holds: Some(Seqno(1)),
                founding: None,
                sequencer: Some(node(orders)),
            };
            group.handle_message(net.now, node(orders), Message::Presence(has_data));
        }
        offer(&mut net, back, orders, &kept);
        net.now = net.now.after(Duration::from_secs(149));
        offer(&mut net, back, orders, &kept);
        assert!(net.nodes[&back].group.status().last > kept.index);
        net.now = net.now.after(Duration::from_secs(2));
        offer(&mut net, back, orders, &kept);
        assert_eq!(net.nodes[&back].group.store().base().index, kept.index);
    }
}

/// Data that end below the state are replaced in any case: nothing waits for their engine.
#[test]
fn a_snapshot_beyond_the_data_waits_for_no_engine() {
    let (mut net, back, orders, base) = back_with_an_uncommitted_tail();
    let beyond = Base { seqno: Seqno(100), ..base };
    net.nodes.get_mut(&back).unwrap().group.note_engine_disk(net.now, Seqno(0));
    offer(&mut net, back, orders, &beyond);
    assert_eq!(net.nodes[&back].group.store().base().index, beyond.index);
}
