//! Members that leave: at about the same time, and while others go on writing.

use std::time::Duration;

use trireme_order::{Append, Content, Delivery, Envelope, Event, Group, MemStore, Message, Output, Phase, Timeouts};
use trireme_types::{EntryKind, Seqno};

use crate::net::{Net, node, outputs};

/// The leavers leave in this order, each when so many messages have been delivered since the one before. One that is out hangs up, as its
/// driver does. Gives the time until all are out.
fn time_to_leave(members: u8, leavers: &[u8], messages: usize, busy: bool) -> Duration {
    let mut net = Net::cluster(members);
    let begun = net.now;
    if busy {
        (1..=members).for_each(|n| net.propose(n, "x"));
    }
    for n in leavers {
        let now = net.now;
        net.nodes.get_mut(n).unwrap().group.leave(now);
        net.drain(*n);
        for _ in 0..messages {
            let Some((from, to, message)) = net.queue.pop_front() else { break };
            net.nodes.get_mut(&to).unwrap().group.handle_message(now, node(from), message);
            net.drain(to);
        }
    }
    let mut left: Vec<u8> = leavers.to_vec();
    while !left.is_empty() {
        net.run(Duration::from_millis(10));
        let out: Vec<u8> = left.iter().copied().filter(|n| net.nodes[n].events.contains(&Event::Left)).collect();
        for n in out {
            assert!(!net.warned(n, "could not be ordered"), "{leavers:?} of {members}, {messages} messages apart");
            net.kill(n);
            left.retain(|l| *l != n);
        }
    }
    net.now.since(begun)
}

#[test]
fn whoever_leaves_beside_others_is_out_soon() {
    let mut slow = Vec::new();
    for (members, leavers) in [
        (2, vec![1, 2]),
        (2, vec![2, 1]),
        (3, vec![1, 2]),
        (3, vec![2, 1]),
        (3, vec![2, 3]),
        (3, vec![1, 2, 3]),
        (3, vec![3, 2, 1]),
        (5, vec![1, 2, 3, 4]),
        (5, vec![4, 3, 2, 1]),
        (5, vec![1, 2, 3, 4, 5]),
    ] {
        for messages in 0..40 {
            for busy in [false, true] {
                let took = time_to_leave(members, &leavers, messages, busy);
                // Where nobody is left to order it, a leave ends as the loss of a majority does.
                if took > Timeouts::default().suspect + Duration::from_secs(1) {
                    slow.push((members, leavers.clone(), messages, busy, took));
                }
            }
        }
    }
    assert!(slow.is_empty(), "{} slow: {slow:?}", slow.len());
}

fn brings_a_view(message: &Message) -> bool {
    matches!(message, Message::InTerm(Envelope { content: Content::Append(Append { entries, .. }), .. })
        if entries.iter().any(|(header, _)| header.kind == EntryKind::View))
}

/// Messages to the leaver arrive late: from `first` on it is held back until the others have ordered more without it. Gives what the
/// leaver says when it gets all of it at once.
fn hears_of_later_commits(members: u8, first: fn(&Message) -> bool) -> (Group<MemStore>, Vec<Output>) {
    let mut net = Net::cluster(members);
    let seq = net.sequencer();
    let leaver = (1..=members).find(|n| *n != seq).unwrap();
    let mut held: Vec<(u8, Message)> = vec![];
    net.nodes.get_mut(&leaver).unwrap().group.leave(net.now);
    net.drain(leaver);
    let mut proposed = 0;
    for _ in 0..100 {
        let out = net.nodes[&seq].views.last().unwrap().iter().all(|n| *n != node(leaver));
        if out && proposed < 3 {
            net.propose(seq, "after the leave");
            proposed += 1;
        }
        net.now = net.now.after(Duration::from_millis(1));
        for n in 1..=members {
            net.nodes.get_mut(&n).unwrap().group.handle_timeout(net.now);
            net.drain(n);
        }
        while let Some((from, to, message)) = net.queue.pop_front() {
            if to == leaver && (!held.is_empty() || first(&message)) {
                held.push((from, message));
            } else {
                net.nodes.get_mut(&to).unwrap().group.handle_message(net.now, node(from), message);
                net.drain(to);
            }
        }
    }
    assert_eq!(net.bodies(seq).len(), 3, "the others go on");
    let mut group = net.nodes.remove(&leaver).unwrap().group;
    assert_eq!(group.status().phase, Phase::Leaving);
    for (from, message) in held {
        group.handle_message(net.now, node(from), message);
    }
    let (generation, upto) = group.store_mut().sync();
    group.handle_synced(net.now, generation, upto);
    let said = outputs(&mut group, net.now);
    (group, said)
}

/// The view without it is the last that a leaver delivers, whatever else it knows to be committed.
fn has_left_at_its_view(group: &Group<MemStore>, said: &[Output]) {
    let status = group.status();
    assert_eq!(status.phase, Phase::Idle);
    assert!(status.committed > status.delivered, "the situation is another one: {status:?}");
    let left = said.iter().position(|o| *o == Output::Event(Event::Left)).expect("it leaves");
    let delivers = |o: &&Output| matches!(o, Output::Deliver(_));
    assert!(matches!(said[..left].iter().rfind(delivers), Some(Output::Deliver(Delivery::View { .. }))), "{said:?}");
    assert_eq!(said[left..].iter().find(delivers), None);
}

#[test]
fn a_leaver_that_hears_of_later_commits_with_its_leave_ends_there() {
    let (group, said) = hears_of_later_commits(2, brings_a_view);
    has_left_at_its_view(&group, &said);
}

/// All messages since it asked to leave arrive together.
#[test]
fn a_leaver_with_a_slow_link_ends_there() {
    let (group, said) = hears_of_later_commits(3, |_| true);
    has_left_at_its_view(&group, &said);
}

/// It starts, takes no part yet, and remembers that more was committed than the data of the server hold.
#[test]
fn a_member_that_has_not_joined_delivers_nothing_of_what_it_knows_to_be_committed() {
    let mut net = Net::cluster(1);
    for i in 0..5 {
        net.propose(1, &i.to_string());
        net.settle();
    }
    net.nodes.get_mut(&1).unwrap().group.leave(net.now);
    net.settle();
    let mut group = Group::new(Net::config(1), net.kill(1), Some(Seqno(0)), 7, net.now);
    let status = group.status();
    assert!(status.committed > status.delivered, "{status:?}");
    let said = outputs(&mut group, net.now);
    assert!(matches!(said[..], [Output::Deliver(Delivery::Reset { .. })]), "{said:?}");
}

/// A sequencer that stood still reads old answers first. By one of those a voter that has died since was counted among those that stay, the
/// leaver gave its vote up, and what was left was no majority.
#[test]
fn an_answer_from_before_a_leave_shows_nobody_alive() {
    let mut net = Net::cluster(3);
    let orders = net.sequencer();
    let (dies, leaves) = match orders {
        1 => (2, 3),
        2 => (1, 3),
        _ => (1, 2),
    };
    let is_answer = |m: &Message| matches!(m, Message::InTerm(e) if matches!(e.content, Content::HeartbeatAck { .. }));
    let mut old = None;
    while old.is_none() {
        net.drain_all();
        match net.next_message() {
            Some((from, _, message)) if from == dies && is_answer(&message) => old = Some(message),
            Some((from, to, message)) => {
                let now = net.now;
                net.nodes.get_mut(&to).unwrap().group.handle_message(now, node(from), message);
            }
            None => {}
        }
    }
    net.mute(dies);
    net.now = net.now.after(Duration::from_millis(1));
    let now = net.now;
    net.nodes.get_mut(&leaves).unwrap().group.leave(now);
    net.settle();
    net.nodes.get_mut(&orders).unwrap().group.handle_message(now, node(dies), old.unwrap());
    net.settle();
    let voters = net.nodes[&orders].group.status().voters;
    assert!(voters.contains(node(leaves)), "the two others are not known to be there: {voters:?}");
}
