//! Links that are cut for a while, and what is on its way meanwhile.

use std::time::Duration;

use trireme_order::{Append, Content, Envelope, Heartbeat, LogStore, Message, Phase};

use trireme_types::ProposalNumber;

use crate::net::*;

/// The proposals are pending when their member is thrown out, and let in again by the same sequencer.
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

/// Swarm seed 88134745: a write set was delivered, and the application gave it up before it came to it. In the same session the next one of its origin
/// would not conflict with it, although its server had let go of the rows (rule 23).
#[test]
fn what_is_proposed_after_something_was_given_up_is_of_another_session() {
    let mut net = Net::cluster(3);
    net.propose(2, "delivered");
    net.run(Duration::from_secs(1));
    assert_eq!(net.bodies(2), ["delivered"]);
    let now = net.now;
    let group = &mut net.nodes.get_mut(&2).unwrap().group;
    let (before, _) = group.propose(now, "given up".into()).unwrap();
    group.abandon_pending();
    let (then, first) = group.propose(now, "last of its session".into()).unwrap();
    assert!(then > before && first == ProposalNumber(1));
    net.run(Duration::from_secs(1));
    assert_eq!(net.bodies(2), ["delivered", "given up", "last of its session"]);
    let now = net.now;
    let group = &mut net.nodes.get_mut(&2).unwrap().group;
    group.abandon_pending();
    group.abandon_pending();
    let (last, first) = group.propose(now, "after".into()).unwrap();
    assert!(last > then && first == ProposalNumber(1));
    net.run(Duration::from_secs(1));
    assert_eq!(net.bodies(1).last().map(String::as_str), Some("after"));
}

/// The sequencer is cut off with an entry that nobody else has. Another entry takes its place, and the proposal comes once, behind that.
#[test]
fn an_uncommitted_tail_gives_way_and_its_proposal_is_ordered_again() {
    let mut net = Net::cluster(3);
    let seq = net.sequencer();
    net.mute(seq);
    net.propose(seq, "not committed");
    net.settle();
    let tail = net.nodes[&seq].group.store().last();
    let old_term = net.nodes[&seq].group.status().term;
    let term_at_tail = |net: &Net, n: u8| net.nodes[&n].group.store().term_at(tail);
    net.lost.clear();
    net.cut = (1..=3).filter(|n| *n != seq).map(|n| (seq, n)).collect();
    net.run(Duration::from_secs(3));
    let other = (1..=3).find(|n| *n != seq).unwrap();
    net.propose(other, "won");
    net.settle();
    assert_eq!(net.bodies(other), ["won"]);
    assert_eq!(term_at_tail(&net, seq), Some(old_term));
    net.cut.clear();
    net.run(Duration::from_secs(3));
    for n in 1..=3 {
        assert!(term_at_tail(&net, n) > Some(old_term), "node {n}");
        assert_eq!(net.bodies(n), ["won", "not committed"], "node {n}");
    }
}

/// The laggard is primary, and its log ends below the kept one.
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
