//! Findings of reviews of the protocol: each was a way to lose, fork or hang.

use std::time::Duration;

use bytes::Bytes;
use trireme_order::{
    Append, Content, Envelope, Event, Group, Heartbeat, JoinState, LogStore, MemStore, Message, Output, Phase, Presence,
};
use trireme_types::{Entry, EntryHeader, EntryKind, Fork, HardState, Lineage, LogIndex, Seqno, Timestamp, Uuid};

use crate::net::*;

#[test]
fn left_under_load_poll_ends() {
    let mut net = Net::cluster(2);
    let seq = net.sequencer();
    let leaver = if seq == 1 { 2 } else { 1 };
    let now = net.now;
    net.nodes.get_mut(&leaver).unwrap().group.leave(now);
    // Delivered by hand, so that the leaver receives commits beyond its view in one drain.
    let mut to_leaver: Vec<(u8, Message)> = vec![];
    for _ in 0..200 {
        // Messages to the leaver are put aside, the others are delivered.
        let mut out = vec![];
        for n in [seq, leaver] {
            let node = net.nodes.get_mut(&n).unwrap();
            let mut count = 0;
            while let Some(o) = {
                count += 1;
                if count > 100000 { None } else { node.group.poll_output(now) }
            } {
                if let Output::Send { to, message, .. } = o {
                    out.push((n, to.0.0[0], message));
                }
            }
            let (g, u) = node.group.store_mut().sync();
            node.group.handle_synced(now, g, u);
        }
        if out.is_empty() {
            break;
        }
        for (f, t, m) in out {
            if t == leaver {
                to_leaver.push((f, m));
            } else {
                net.nodes.get_mut(&t).unwrap().group.handle_message(now, node(f), m);
            }
        }
        // Now the leaver gets those that were put aside.
        if !to_leaver.is_empty() {
            for (f, m) in to_leaver.drain(..) {
                net.nodes.get_mut(&leaver).unwrap().group.handle_message(now, node(f), m);
            }
        }
        let _ = net.nodes.get_mut(&seq).unwrap().group.propose(now, Bytes::from_static(b"w"));
    }
    let s = net.nodes[&leaver].group.status();
    println!("leaver {:?} committed {} delivered {}", s.phase, s.committed, s.delivered);
    if s.phase == Phase::Idle && s.committed > s.delivered {
        // The drain would never end.
        let node = net.nodes.get_mut(&leaver).unwrap();
        let (tx, rx) = std::sync::mpsc::channel();
        std::thread::scope(|sc| {
            sc.spawn(move || {
                let _ = node.group.poll_output(now);
                tx.send(()).unwrap();
            });
            if rx.recv_timeout(Duration::from_secs(3)).is_err() {
                println!("SPINS");
                std::process::exit(3);
            }
        });
    }
}

// The same for a group that is idle with a mark of what is committed.
#[test]
fn idle_with_hint_poll_ends() {
    let mut net = Net::cluster(1);
    for i in 0..5 {
        net.propose(1, &i.to_string());
        net.settle();
    }
    let now = net.now;
    net.nodes.get_mut(&1).unwrap().group.leave(now);
    net.settle();
    let store = net.kill(1);
    let mut g = Group::new(Net::config(1), store, Some(Seqno(0)), 7, now);
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::scope(|sc| {
        sc.spawn(move || {
            while g.poll_output(now).is_some() {}
            tx.send(()).unwrap();
        });
        if rx.recv_timeout(Duration::from_secs(3)).is_err() {
            println!("SPINS");
            std::process::exit(3);
        }
    });
}

// The joiner has the same position and no log; the bootstrap's base is at index 0.
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

// Both halves are forced, and have the same term.
#[test]
fn two_forced_halves_do_not_merge_silently() {
    let mut net = Net::cluster(2);
    for n in 1..=2 {
        net.nodes.get_mut(&n).unwrap().group.set_config(|c| c.ignore_sb = true);
    }
    net.cut = vec![(1, 2)];
    net.run(Duration::from_secs(10));
    assert_eq!(net.nodes[&1].group.status().term, net.nodes[&2].group.status().term, "terms do not tell them apart");
    for i in 0..5 {
        net.propose(1, &format!("one{i}"));
        net.propose(2, &format!("two{i}"));
        net.settle();
    }
    let branch = |net: &Net, n: u8| net.nodes[&n].group.lineage().branch(HISTORY);
    assert_ne!(branch(&net, 1), branch(&net, 2));
    net.cut.clear();
    net.run(Duration::from_secs(10));
    assert_eq!(branch(&net, 1), branch(&net, 2));
    let gave_way: Vec<u8> = (1..=2).filter(|n| net.nodes[n].events.contains(&Event::DataDiverged)).collect();
    assert_eq!(gave_way.len(), 1, "one of the two goes, never both and never none");
    let stayed = 3 - gave_way[0];
    net.propose(stayed, "after");
    net.propose(gave_way[0], "too");
    net.settle();
    for n in 1..=2 {
        assert_eq!(net.phase(n), Phase::Primary);
        let mut newest = net.bodies(n).split_off(net.bodies(n).len() - 2);
        newest.sort();
        assert_eq!(newest, ["after", "too"]);
    }
}

// View followed view while a joiner lagged.
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

// The proposals are pending when their member is thrown out, and let in again by the same sequencer.
#[test]
fn proposals_survive_leaving_and_returning_to_the_view() {
    let mut net = Net::cluster(3);
    let seq = net.sequencer();
    let me = (1..=3).find(|n| *n != seq).unwrap();
    let others: Vec<u8> = (1..=3).filter(|n| *n != me).collect();
    net.mute(me);
    net.propose(me, "on its way");
    net.settle();
    net.lost.clear();
    net.cut = others.iter().map(|o| (me, *o)).collect();
    net.settle();
    net.propose(me, "cut off");
    net.run(Duration::from_secs(8));
    assert_eq!(net.phase(me), Phase::NonPrimary);
    net.cut.clear();
    net.run(Duration::from_secs(5));
    assert_eq!(net.phase(me), Phase::Primary);
    net.propose(me, "later");
    net.run(Duration::from_secs(5));
    assert_eq!(net.bodies(me), ["on its way", "cut off", "later"]);
}

// A bootstrap resets the log. The hard state must not be that of the old one.
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
    println!("hard {:?}", store.hard_state());
    net.start(1, Net::config(1), store, None);
    net.nodes.get_mut(&1).unwrap().group.bootstrap(net.now, Uuid([0xbb; 16]), Seqno(0)).unwrap();
    net.settle();
    let hard = net.nodes[&1].group.store().hard_state();
    println!("hard {:?} last {}", hard, net.nodes[&1].group.store().last());
    assert!(hard.committed <= net.nodes[&1].group.store().last());
    assert!(hard.voters_committed <= net.nodes[&1].group.store().last());
}

// The laggard is primary, and its log ends below the kept one.
#[test]
fn a_laggard_below_the_kept_log_recovers() {
    let mut net = Net::cluster(3);
    let seq = net.sequencer();
    let lag = (1..=3).find(|n| *n != seq).unwrap();
    net.nodes.get_mut(&seq).unwrap().group.store_mut().checkpoint_every = 10;
    // The cut is shorter than the suspect timeout. Much is ordered and trimmed meanwhile.
    net.cut = (1..=3).filter(|o| *o != lag).map(|o| (lag, o)).collect();
    net.settle();
    for i in 0..60 {
        net.propose(seq, &i.to_string());
        net.settle();
    }
    let last = net.nodes[&seq].group.store().last();
    net.nodes.get_mut(&seq).unwrap().group.store_mut().trim(last);
    net.run(Duration::from_secs(1));
    net.cut.clear();
    net.run(Duration::from_secs(20));
    let (a, b) = (net.nodes[&seq].group.status(), net.nodes[&lag].group.status());
    assert_eq!(a.delivered, b.delivered, "{:?} {:?}", b.phase, b.sequencer);
}

// Calculations with numbers from the wire must not overflow.
#[test]
fn numbers_from_the_wire_do_not_panic() {
    let mut net = Net::cluster(2);
    let seq = net.sequencer();
    let other = 3 - seq;
    let term = net.nodes[&seq].group.status().term;
    let now = net.now;
    let g = &mut net.nodes.get_mut(&seq).unwrap().group;
    g.handle_message(
        now,
        node(other),
        Content::Reject { prev_index: trireme_types::LogIndex(1), last: trireme_types::LogIndex(u64::MAX) }
            .in_term(HISTORY, term),
    );
}
#[test]
fn terms_from_the_wire_do_not_panic() {
    let mut net = Net::cluster(2);
    let seq = net.sequencer();
    let other = 3 - seq;
    let now = net.now;
    let g = &mut net.nodes.get_mut(&seq).unwrap().group;
    g.handle_message(
        now,
        node(other),
        Content::HeartbeatAck { round: 0 }.in_term(HISTORY, trireme_types::Term(u64::MAX)),
    );
    net.run(Duration::from_secs(3));
}
// The old incarnations leave in a view of their own.
#[test]
fn history_holds_a_view_without_the_old_incarnation() {
    let mut net = Net::cluster(3);
    let stores: Vec<MemStore> = (1..=3).map(|n| net.kill(n)).collect();
    for (i, s) in stores.into_iter().enumerate() {
        net.restart(i as u8 + 1, s, 2, Seqno(0));
    }
    net.run(Duration::from_secs(5));
    for n in 1..=3u8 {
        println!("{:?}", net.nodes[&n].views);
    }
}
// Two of four go on by `pc.ignore_sb`. The half keeps its committed entries.
#[test]
fn a_forced_half_keeps_what_one_of_it_had_committed() {
    let mut net = Net::cluster(4);
    for n in 1..=4 {
        net.nodes.get_mut(&n).unwrap().group.set_config(|c| c.ignore_sb = true);
    }
    let seq = net.sequencer();
    let rest: Vec<u8> = (1..=4).filter(|n| *n != seq).collect();
    let (behind, with, far) = (rest[0], rest[1], rest[2]);
    // `behind` misses the commits of the other three.
    net.cut = (1..=4u8).filter(|n| *n != behind).map(|n| (behind, n)).collect();
    net.settle();
    net.propose(with, "acknowledged");
    net.settle();
    assert_eq!(net.bodies(with), ["acknowledged"]);
    // The halves are {behind, with} and {seq, far} now.
    net.cut = vec![(behind, seq), (behind, far), (with, seq), (with, far)];
    net.run(Duration::from_secs(30));
    println!("behind {:?} {:?}", net.nodes[&behind].group.status(), net.bodies(behind));
    println!("with {:?} {:?}", net.nodes[&with].group.status(), net.bodies(with));
    assert!(!net.nodes[&with].events.contains(&Event::DataDiverged));
}
// The leaver's link is slow: the view without it and later commits arrive together.
#[test]
fn leaver_with_a_slow_link_ends() {
    let mut net = Net::cluster(3);
    let seq = net.sequencer();
    let leaver = (1..=3).find(|n| *n != seq).unwrap();
    let other = 6 - seq - leaver;
    let now = net.now;
    net.nodes.get_mut(&leaver).unwrap().group.leave(now);
    net.drain(leaver);
    let mut late: Vec<(u8, u8, Message)> = vec![];
    for i in 0..2000 {
        for n in [seq, other] {
            net.drain(n);
        }
        if i == 1000 || i == 1500 {
            net.propose(seq, "y");
        }
        let Some((f, t, m)) = net.queue.pop_front() else { continue };
        if t == leaver {
            late.push((f, t, m));
            continue;
        }
        net.nodes.get_mut(&t).unwrap().group.handle_message(now, node(f), m);
    }
    println!(
        "late {}: {:?}",
        late.len(),
        late.iter().map(|(f, _, m)| format!("{f} {m:?}").chars().take(160).collect::<String>()).collect::<Vec<_>>()
    );
    println!(
        "seq {:?}",
        (net.nodes[&seq].group.status().last, net.nodes[&seq].group.status().committed, net.queue.len())
    );
    let mut l = net.nodes.remove(&leaver).unwrap().group;
    for (f, _, m) in late {
        l.handle_message(now, node(f), m);
    }
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::scope(|sc| {
        sc.spawn(move || {
            let mut left = false;
            while let Some(o) = l.poll_output(now) {
                left |= o == Output::Event(Event::Left);
                if left {
                    println!("left {:?}", (l.status().committed, l.status().delivered));
                }
            }
            tx.send(()).unwrap();
        });
        if rx.recv_timeout(Duration::from_secs(3)).is_err() {
            println!("SPINS");
            std::process::exit(3);
        }
    });
}
// Only the link between one follower and the sequencer is cut.
#[test]
fn a_single_cut_pair_does_not_disturb() {
    let mut net = Net::cluster(3);
    let seq = net.sequencer();
    let a = (1..=3).find(|n| *n != seq).unwrap();
    net.cut = vec![(seq, a)];
    net.run(Duration::from_secs(20));
    println!("phases {:?}", (1..=3).map(|n| (n, net.phase(n), net.nodes[&n].group.status().term)).collect::<Vec<_>>());
}
// The sequencer is cut off with an entry that nobody else has.
#[test]
fn diverged_tail_of_uncommitted_is_dropped() {
    let mut net = Net::cluster(3);
    let seq = net.sequencer();
    net.mute(seq);
    net.propose(seq, "lost?");
    net.settle();
    net.lost.clear();
    net.cut = (1..=3).filter(|n| *n != seq).map(|n| (seq, n)).collect();
    net.run(Duration::from_secs(3));
    let o = (1..=3).find(|n| *n != seq).unwrap();
    net.propose(o, "won");
    net.settle();
    net.cut.clear();
    net.run(Duration::from_secs(3));
    println!("{:?}", (1..=3).map(|n| net.bodies(n)).collect::<Vec<_>>());
}

/// The sequencer does not send again what was compared in its term. A follower that lost sight of it and finds it again must not forget
/// that: else the last entry stays uncommitted there until somebody writes.
#[test]
fn a_follower_that_finds_its_sequencer_again_commits_the_last_entry() {
    let mut net = Net::cluster(3);
    let seq = net.sequencer();
    let follower = (1..=3).find(|n| *n != seq).unwrap();
    let mut late = vec![];
    net.propose(seq, "last");
    // The follower holds the entry and acknowledges it, but does not hear that it is committed.
    let run = |net: &mut Net, late: &mut Vec<(u8, Message)>| {
        for _ in 0..10_000 {
            for n in 1..=3 {
                net.drain(n);
            }
            let Some((from, to, message)) = net.queue.pop_front() else { return };
            if to == follower
                && !matches!(message, Message::InTerm(Envelope { content: Content::Append(Append { ref entries, .. }), .. }) if !entries.is_empty())
            {
                late.push((from, message));
            } else {
                net.nodes.get_mut(&to).unwrap().group.handle_message(net.now, node(from), message);
            }
        }
    };
    run(&mut net, &mut late);
    assert!(net.bodies(seq).contains(&"last".to_string()));
    assert!(!net.bodies(follower).contains(&"last".to_string()));
    // Its election timer fires, and nobody grants it anything.
    let until = net.now.after(Duration::from_secs(2));
    net.now = until;
    net.nodes.get_mut(&follower).unwrap().group.handle_timeout(until);
    net.drain(follower);
    net.queue.clear();
    assert_eq!(net.nodes[&follower].group.status().sequencer, None);
    // The same sequencer is heard again, in the same term; nothing is ordered.
    let term = net.nodes[&seq].group.status().term;
    let commit = net.nodes[&seq].group.status().committed;
    let heartbeat =
        Content::Heartbeat(Heartbeat { commit, last: commit, round: 99, majority: true }).in_term(HISTORY, term);
    net.nodes.get_mut(&follower).unwrap().group.handle_message(until, node(seq), heartbeat);
    net.drain(follower);
    assert_eq!(net.nodes[&follower].group.status().sequencer, Some(node(seq)));
    assert!(net.bodies(follower).contains(&"last".to_string()), "{:?}", net.nodes[&follower].group.status());
}

/// After a restart only the data know that an entry was committed. A log that a fork replaced must not be cut back under them.
#[test]
fn data_beyond_a_fork_need_a_full_copy_after_a_restart_too() {
    let mut net = Net::cluster(3);
    net.cut = vec![(1, 3), (2, 3)];
    net.run(Duration::from_secs(10));
    net.propose(1, "on the other side");
    net.settle();
    assert_eq!(net.bodies(2), ["on the other side"]);
    let at = Seqno(net.nodes[&2].delivered.last().unwrap().0);
    net.kill(1);
    let store = net.kill(2);
    let now = net.now;
    net.nodes.get_mut(&3).unwrap().group.force_primary(now);
    net.run(Duration::from_secs(1));
    net.propose(3, "on this side");
    net.settle();
    net.cut.clear();
    net.restart(2, store, 2, at);
    net.run(Duration::from_secs(10));
    assert_eq!(net.phase(2), Phase::Primary);
    assert!(net.nodes[&2].events.contains(&Event::DataDiverged), "{:?}", net.nodes[&2].events);
}

/// The joiner's log is longer than the base it is offered, by a tail that was never committed: it must take the base.
#[test]
fn a_snapshot_below_an_uncommitted_tail_is_taken() {
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
    // The new sequencer's log is cut off at the base it will offer: what is committed now, below the joiner's tail.
    let request = net.nodes[&new].group.status().delivered;
    assert!(request < tail);
    let chain = net.nodes[&new].group.status();
    assert_eq!(chain.committed, request);
    net.cut.clear();
    net.restart(seq, old, 2, at);
    let now = net.now;
    let base = trireme_types::Base {
        history: HISTORY,
        index: request,
        term: chain.term,
        seqno: Seqno(net.nodes[&new].delivered.last().unwrap().0),
        voters: chain.voters,
        view: chain.view,
        ..trireme_types::Base::default()
    };
    net.update_links();
    let group = &mut net.nodes.get_mut(&seq).unwrap().group;
    let heartbeat = Content::Heartbeat(Heartbeat { commit: request, last: request, round: 1, majority: true })
        .in_term(HISTORY, chain.term);
    group.handle_message(now, node(new), heartbeat);
    group.handle_message(
        now,
        node(new),
        Message::Snapshot { term: chain.term, lineage: base.lineage.clone(), base: Box::new(base) },
    );
    assert_eq!(group.store().base().index, request);
    assert_eq!(group.status().last, request);
}

/// Data behind the point where the sequencer's branch begins are of another branch. They go before its base is taken.
#[test]
fn a_snapshot_of_a_branch_that_left_before_the_data_replaces_them() {
    for fork in [None, Some(2), Some(1000)] {
        let mut net = Net::cluster(2);
        let follower = 3 - net.sequencer();
        let at = Seqno(net.nodes[&follower].group.status().view.number);
        let store = net.kill(follower);
        net.restart(follower, store, 2, at);
        let (now, term) = (net.now, net.nodes[&follower].group.status().term);
        let lineage: Lineage =
            fork.map(|at| Fork { index: LogIndex(at), seqno: Seqno(at), id: Uuid([7; 16]) }).into_iter().collect();
        let base = trireme_types::Base {
            history: HISTORY,
            index: trireme_types::LogIndex(100),
            term,
            seqno: Seqno(50),
            lineage: lineage.clone(),
            ..trireme_types::Base::default()
        };
        let other = 3 - follower;
        net.update_links();
        let presence = Presence {
            history: HISTORY,
            lineage: lineage.clone(),
            term,
            last_term: term,
            last_index: LogIndex(100),
            base: Seqno(50),
            seqno: Seqno(50),
            primary: false,
            whole: true,
            data: None,
            holds: Some(Seqno(50)),
            founding: None,
            sequencer: None,
        };
        let group = &mut net.nodes.get_mut(&follower).unwrap().group;
        group.handle_message(now, node(other), Message::Presence(presence));
        group.handle_message(now, node(other), Message::Snapshot { term, lineage, base: Box::new(base) });
        let mut diverged = false;
        while let Some(output) = group.poll_output(now) {
            diverged |= output == Output::Event(Event::DataDiverged);
        }
        assert_eq!(diverged, fork == Some(2), "{fork:?}");
        assert_eq!(group.store().base().index == LogIndex(100), fork != Some(2), "the data go first");
    }
}

/// Numbers that only the other side of a fork ordered are a gap on this side: a new session begins.
#[test]
fn a_member_whose_log_was_replaced_after_a_fork_can_write_again() {
    let mut net = Net::cluster(3);
    net.cut = vec![(1, 3), (2, 3)];
    net.run(Duration::from_secs(10));
    net.propose(2, "on the other side");
    net.settle();
    let now = net.now;
    net.nodes.get_mut(&3).unwrap().group.force_primary(now);
    net.run(Duration::from_secs(1));
    net.propose(3, "on this side");
    net.settle();
    net.kill(1);
    net.run(Duration::from_secs(10));
    net.cut.clear();
    net.run(Duration::from_secs(10));
    assert_eq!(net.phase(2), Phase::Primary, "{:?}", net.nodes[&2].group.status());
    assert!(net.nodes[&2].events.contains(&Event::DataDiverged));
    net.propose(2, "after");
    net.run(Duration::from_secs(5));
    assert_eq!(net.bodies(3), ["on this side", "after"]);
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
