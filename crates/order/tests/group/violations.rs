//! A member that says what no build says is named and left, and the others go on (rule 38).

use std::time::Duration;

use bytes::Bytes;
use trireme_order::{Append, Content, Event, Heartbeat, LogEnd, LogStore, Message, Phase, violation};
use trireme_types::{EntryHeader, EntryKind, HardState, LogIndex, NodeId, ProposalNumber, Seqno, Session, Term};

use crate::net::*;

/// One of each rule, by `from`, in this term.
fn proofs(term: Term, last: LogIndex) -> Vec<Message> {
    let session = |n: u8| Session { node: node(n), number: 1 };
    let header = |index: u64, term: Term| EntryHeader {
        index: LogIndex(index),
        term,
        seqno: Seqno(1),
        voters: LogIndex(1),
        session: session(2),
        number: ProposalNumber(1),
        kind: EntryKind::App,
    };
    let append = |prev_term: Term, entries: Vec<EntryHeader>| {
        let entries = entries.into_iter().map(|h| (h, Some(Bytes::from_static(b"x")))).collect();
        Content::Append(Append { prev_index: last, prev_term, commit: last, entries }).in_term(HISTORY, term)
    };
    let next = last.0 + 1;
    vec![
        Message::Submit { session: session(77), number: ProposalNumber(1), app: false, body: Bytes::from_static(b"x") },
        Content::Vote { last: LogEnd { term, index: last }, transfer: true }.in_term(HISTORY, term),
        Content::PreVote { last: LogEnd { term: term.next(), index: last } }.in_term(HISTORY, term),
        append(term.next(), vec![]),
        append(term, vec![header(next + 1, term)]),
        append(term, vec![header(next, term.next())]),
        append(term, vec![header(next, term), header(next + 1, Term::ZERO)]),
        Content::Heartbeat(Heartbeat { commit: last.next(), last, round: 1, majority: true }).in_term(HISTORY, term),
    ]
}

fn refusals(net: &Net, n: u8) -> Vec<(NodeId, bool)> {
    let one = |event: &Event| match event {
        Event::Refuse { node, refused } => Some((*node, *refused)),
        _ => None,
    };
    net.nodes[&n].events.iter().filter_map(one).collect()
}

fn say(net: &mut Net, to: u8, from: u8, message: Message) {
    let now = net.now;
    net.nodes.get_mut(&to).unwrap().group.handle_message(now, node(from), message);
    net.drain(to);
    for event in refusals(net, to) {
        // The link goes at both ends, as a transport does it.
        let pair = (to, event.0.0.0[0]);
        if event.1 && !net.cut.contains(&pair) {
            net.cut.push(pair);
        }
    }
    net.settle();
}

/// A cluster of three: it, its sequencer, the member that the sequencer has caught in a lie, and the third.
fn caught() -> (Net, u8, u8, u8) {
    let mut net = Net::cluster(3);
    let sequencer = net.sequencer();
    let others: Vec<u8> = (1..=3).filter(|n| *n != sequencer).collect();
    let status = net.nodes[&sequencer].group.status();
    say(&mut net, sequencer, others[0], proofs(status.term, status.last).swap_remove(0));
    (net, sequencer, others[0], others[1])
}

/// Everybody to whom it lies leaves it. The view drops it after the time for one that died, and the rest commits all the while.
#[test]
pub fn a_member_that_lies_to_all_is_left_and_the_others_go_on() {
    let term = Net::cluster(3).nodes[&1].group.status().term;
    for kind in 0..proofs(term, LogIndex(1)).len() {
        for of_sequencer in [false, true] {
            let mut net = Net::cluster(3);
            let sequencer = net.sequencer();
            let liar = if of_sequencer { sequencer } else { (1..=3).find(|n| *n != sequencer).unwrap() };
            let honest: Vec<u8> = (1..=3).filter(|n| *n != liar).collect();
            let status = net.nodes[&honest[0]].group.status();
            let message = proofs(status.term, status.last).swap_remove(kind);
            for n in &honest {
                say(&mut net, *n, liar, message.clone());
            }
            for n in &honest {
                assert_eq!(refusals(&net, *n), [(node(liar), true)], "kind {kind}");
                assert_eq!(net.nodes[n].group.left_peers(), [node(liar)], "kind {kind}");
                assert!(net.warned(*n, "violates the protocol"), "kind {kind}");
            }
            net.run(Duration::from_secs(2));
            net.propose(honest[0], "at once");
            net.run(Duration::from_secs(8));
            for n in &honest {
                let status = net.nodes[n].group.status();
                assert_eq!(status.phase, Phase::Primary, "kind {kind}: {status:?}");
                assert_eq!(status.view.members.len(), 2, "kind {kind}: {status:?}");
                assert!(net.bodies(*n).contains(&"at once".to_string()), "kind {kind}");
                let left = net.nodes[n].events.iter().any(|e| matches!(e, Event::NonPrimary { .. }));
                assert!(!left, "kind {kind}: no client of node {n} hears of it");
            }
        }
    }
}

/// When the time is over it is let in again. The next time it is left for twice as long.
#[test]
fn it_may_come_back_after_a_minute_and_after_two_the_next_time() {
    let mut net = Net::cluster(3);
    let liar = (1..=3).find(|n| *n != net.sequencer()).unwrap();
    let honest: Vec<u8> = (1..=3).filter(|n| *n != liar).collect();
    for (time, earlier) in [(60, 0), (120, 1)] {
        let status = net.nodes[&honest[0]].group.status();
        for n in &honest {
            say(&mut net, *n, liar, proofs(status.term, status.last).swap_remove(0));
        }
        net.run(Duration::from_secs(time - 2));
        for n in &honest {
            assert_eq!(net.nodes[n].group.left_peers(), [node(liar)]);
            assert_eq!(refusals(&net, *n).len(), 2 * earlier + 1);
        }
        net.run(Duration::from_secs(3));
        for n in &honest {
            assert_eq!(refusals(&net, *n).last(), Some(&(node(liar), false)));
        }
        net.heal();
        net.run(Duration::from_secs(10));
        for n in 1..=3 {
            assert_eq!(net.nodes[&n].group.status().view.members.len(), 3, "node {n}");
        }
    }
}

/// Of two voters, neither leaves the other: its lies are named, and not heard.
#[test]
fn nobody_is_left_whom_the_majority_needs() {
    let mut net = Net::cluster(2);
    let liar = if net.sequencer() == 1 { 2 } else { 1 };
    let honest = 3 - liar;
    let status = net.nodes[&honest].group.status();
    for message in proofs(status.term, status.last) {
        say(&mut net, honest, liar, message);
    }
    assert_eq!(refusals(&net, honest), []);
    assert!(net.warned(honest, "violates the protocol") && net.warned(honest, "no majority without it"));
    net.propose(honest, "on");
    net.run(Duration::from_secs(1));
    assert!(net.bodies(honest).contains(&"on".to_string()));
}

/// One that was left is taken back when the rest is no majority any more. Here another one of three died.
#[test]
fn who_was_left_is_taken_back_when_it_is_needed() {
    let (mut net, sequencer, liar, dies) = caught();
    assert_eq!(net.nodes[&sequencer].group.left_peers(), [node(liar)]);
    net.kill(dies);
    net.run(Duration::from_secs(4));
    assert_eq!(refusals(&net, sequencer).last(), Some(&(node(liar), false)));
    net.heal();
    net.run(Duration::from_secs(10));
    assert_eq!(net.phase(sequencer), Phase::Primary);
}

/// Neither a link that comes up in between is heard, nor messages that are still on their way.
#[test]
fn nothing_is_heard_of_who_was_left() {
    let (mut net, sequencer, liar, _) = caught();
    let now = net.now;
    let group = &mut net.nodes.get_mut(&sequencer).unwrap().group;
    group.handle_link_up(now, Net::config(liar).me, trireme_order::SUPPORTED);
    assert!(!group.is_linked(node(liar)));
    group.handle_message(now, node(liar), Message::Signal { body: Bytes::from_static(b"stop") });
    net.drain(sequencer);
    assert!(!net.nodes[&sequencer].events.iter().any(|e| matches!(e, Event::Signal { .. })));
    assert_eq!(refusals(&net, sequencer), [(node(liar), true); 2]);
}

/// Thousands of names are forgotten again, and few of them get a line.
#[test]
fn many_names_that_lie_take_little_room_and_few_lines() {
    let mut net = Net::cluster(3);
    for n in 0..3000_u32 {
        let mut id = [9; 16];
        id[..4].copy_from_slice(&n.to_le_bytes());
        let mut member = Net::config(9).me;
        member.node = NodeId(trireme_types::Uuid(id));
        let now = net.now;
        let group = &mut net.nodes.get_mut(&1).unwrap().group;
        group.handle_link_up(now, member.clone(), trireme_order::SUPPORTED);
        let lie = proofs(Term(1), LogIndex(1)).swap_remove(0);
        group.handle_message(now, member.node, lie);
        net.drain(1);
    }
    let events = &net.nodes[&1].events;
    assert!(net.nodes[&1].group.left_peers().len() <= 1024);
    let named = |e: &&Event| matches!(e, Event::Log { warn: true, text } if text.contains("violates the protocol"));
    assert_eq!(events.iter().filter(named).count(), 1);
    let forgiven = events.iter().filter(|e| matches!(e, Event::Refuse { refused: false, .. })).count();
    assert_eq!(forgiven, 3000 - net.nodes[&1].group.left_peers().len(), "a transport keeps no more than are left");
}

/// Nothing that a group says in its life, with elections, joins, leaves and copies, is a violation.
#[test]
fn nothing_that_the_honest_say_is_a_violation() {
    let mut net = Net::cluster(3);
    let mut said = 0;
    for round in 0..40_u8 {
        let n = 1 + round % 3;
        match round % 4 {
            0 => net.isolate(n),
            1 => net.heal(),
            2 => {
                let incarnation = net.nodes[&n].cfg.me.incarnation.0 + 1;
                let at = Seqno(net.nodes[&n].group.status().view.number);
                let store = net.kill(n);
                net.restart(n, store, incarnation, at);
            }
            _ => net.nodes.get_mut(&n).unwrap().group.set_weight(net.now, trireme_types::Weight(1 + round % 2)),
        }
        for _ in 0..20 {
            let names: Vec<u8> = net.nodes.keys().copied().collect();
            net.update_links();
            for n in names {
                net.drain(n);
            }
            for (from, _, message) in &net.queue {
                assert_eq!(violation(node(*from), message), None, "{message:?}");
                said += 1;
            }
            net.run(Duration::from_millis(97));
        }
    }
    assert!(said > 100, "{said}");
    for one in net.nodes.values() {
        assert_eq!(one.group.left_peers(), []);
    }
}

/// A frozen member's link stands, and it answers nothing: then the member that was left is needed.
#[test]
fn whoever_is_needed_by_those_that_answer_is_taken_back() {
    let (mut net, sequencer, liar, frozen) = caught();
    assert_eq!(refusals(&net, sequencer), [(node(liar), true)]);
    net.mute(frozen);
    net.run(Duration::from_secs(12));
    assert_eq!(refusals(&net, sequencer), [(node(liar), true), (node(liar), false)]);
    net.cut.retain(|(a, b)| ![*a, *b].contains(&liar));
    net.run(Duration::from_secs(10));
    assert_eq!(net.phase(sequencer), Phase::Primary);
}

/// It was to forget its old log for another history's, and its disk refused in between.
#[test]
fn a_log_beyond_the_promised_term_is_no_violation() {
    let mut net = Net::cluster(3);
    let n = (1..=3).find(|n| *n != net.sequencer()).unwrap();
    let mut store = net.kill(n);
    net.run(Duration::from_secs(10));
    let hard = HardState { term: Term::ZERO, ..store.hard_state() };
    store.save_hard_state(hard).unwrap();
    net.restart(n, store, 2, Seqno(0));
    net.run(Duration::from_secs(20));
    for m in 1..=3 {
        assert!(refusals(&net, m).is_empty(), "node {m}");
        assert_eq!(net.phase(m), Phase::Primary, "node {m}");
    }
}
