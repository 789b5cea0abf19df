//! Who may say what (rule 35): a stranger with a link, a newcomer that is too heavy, and too many of them.

use std::time::Duration;

use bytes::Bytes;
use trireme_order::{Event, JoinState, LogStore, MemStore, Message, Phase};
use trireme_types::{
    Base, Durability, EntryHeader, EntryKind, Lineage, LogIndex, Member, Seqno, Session, Term, Weight,
};

use crate::net::*;

const STRANGER: u8 = 9;

/// The honest three elect, order and are as they were within 10 s.
fn all_is_well(net: &mut Net, after: &str) {
    let durability = Durability::Process;
    net.run(Duration::from_secs(10));
    for n in 1..=3 {
        let status = net.nodes[&n].group.status();
        assert_eq!(status.phase, Phase::Primary, "node {n} after {after}: {status:?}");
        assert_eq!(status.durability, durability, "node {n} after {after}");
        let out = |e: &Event| matches!(e, Event::Evicted | Event::DataDiverged | Event::Failed { .. });
        assert!(!net.nodes[&n].events.iter().any(out), "node {n} after {after}");
    }
    for n in 1..=3 {
        net.propose(n, &format!("from {n} after {after}"));
    }
    net.run(Duration::from_secs(1));
    for n in 1..=3 {
        let got = net.bodies(n).iter().filter(|b| b.ends_with(after)).count();
        assert_eq!(got, 3, "node {n} after {after}");
    }
}

/// One of each kind that could do harm, of this term.
fn harmful(term: Term, last: LogIndex) -> Vec<Message> {
    let branch = HISTORY;
    let session = Session { node: node(STRANGER), number: 1 };
    let body = Bytes::from_static(b"forged");
    let (index, prev_index) = (last.next(), last);
    let header =
        EntryHeader { index, term, seqno: Seqno(1000), voters: LogIndex(1), session, number: 1, kind: EntryKind::App };
    let base = Base { history: HISTORY, index: LogIndex(500), term, seqno: Seqno(400), ..Base::default() };
    vec![
        Message::Append {
            branch,
            term,
            prev_index,
            prev_term: term,
            commit: index,
            entries: vec![(header, Some(body))],
        },
        Message::Append { branch, term, prev_index, prev_term: term, commit: index, entries: vec![] },
        Message::Reject { branch, term, prev_index: last, last: LogIndex(0) },
        Message::NeedBodies { branch, term, from: LogIndex(1) },
        Message::Ack { branch, term, index },
        Message::Heartbeat { branch, term, commit: index, last: index, round: 1, majority: true },
        Message::HeartbeatAck { branch, term, round: 1 },
        Message::PreVote { branch, term, last_term: term, last_index: index },
        Message::PreVoteReply { branch, term, granted: false, whole: true },
        Message::PreVoteReply { branch, term, granted: true, whole: true },
        Message::Vote { branch, term, last_term: term, last_index: index, transfer: false },
        Message::Vote { branch, term, last_term: term, last_index: index, transfer: true },
        Message::VoteReply { branch, term, granted: false, whole: true },
        Message::VoteReply { branch, term, granted: true, whole: true },
        Message::TimeoutNow { branch, term },
        Message::Snapshot { term, lineage: Lineage::default(), base: Box::new(base) },
        Message::Recall { branch, term, index },
        Message::Force,
        Message::Entrust { branch, term },
        Message::BeginFromData { branch, term, index, seqno: Seqno(900) },
        Message::Evicted,
        Message::Leave { incarnation: 1 },
        Message::SetWeight { weight: Weight(255) },
        Message::SetDurability { durability: Durability::Disk },
        Message::ReadRequest { branch, term, batch: 1 },
        Message::ReadReply { branch, term, batch: 1, seqno: Seqno(0) },
    ]
}

#[test]
fn nothing_that_a_linked_stranger_says_stops_the_group() {
    let mut net = Net::cluster(3);
    let stranger = Member { node: node(STRANGER), name: "stranger".into(), ..Member::default() };
    let status = net.nodes[&1].group.status();
    let highest = Term((1 << 62) - 1);
    let kinds = harmful(status.term, status.last).len();
    for far in [false, true] {
        for kind in 0..kinds {
            let status = net.nodes[&1].group.status();
            let term = if far { highest } else { status.term.next() };
            let message = harmful(term, status.last).swap_remove(kind);
            let after = format!("{kind} {far} {:?}", std::mem::discriminant(&message));
            for n in 1..=3 {
                let now = net.now;
                let group = &mut net.nodes.get_mut(&n).unwrap().group;
                group.handle_link_up(now, stranger.clone());
                group.handle_message(now, node(STRANGER), message.clone());
            }
            net.settle();
            for n in 1..=3 {
                assert_eq!(net.nodes[&n].group.status().term, status.term, "node {n} after {after}");
                let now = net.now;
                net.nodes.get_mut(&n).unwrap().group.handle_link_down(now, node(STRANGER));
            }
            all_is_well(&mut net, &after);
        }
    }
    assert!(net.warned(1, "no election leads there"), "the jump is named");
    assert!(net.warned(1, "is not a member"), "the stranger is named");
}

#[test]
fn a_member_cannot_drive_the_terms_up_either() {
    let mut net = Net::cluster(3);
    let term = Term((1 << 62) - 1);
    let now = net.now;
    for message in harmful(term, LogIndex(3)) {
        if matches!(
            message,
            Message::SetDurability { .. } | Message::SetWeight { .. } | Message::Leave { .. } | Message::Evicted
        ) {
            continue;
        }
        net.nodes.get_mut(&1).unwrap().group.handle_message(now, node(2), message);
        net.settle();
    }
    assert!(net.nodes[&1].group.status().term < Term(1 << 20));
    all_is_well(&mut net, "a member's jump");
}

/// A newcomer that is heavier than all others together, and is gone as soon as it votes.
#[test]
fn a_heavy_newcomer_takes_the_majority_from_nobody() {
    let mut net = Net::cluster(3);
    let mut cfg = Net::config(4);
    cfg.me.weight = Weight(255);
    net.start(4, cfg, MemStore::new(), None);
    let now = net.now;
    net.nodes.get_mut(&4).unwrap().group.join(now, JoinState { position: None });
    let votes = |net: &Net| net.nodes[&1].group.status().voters.weight(node(4));
    for _ in 0..2000 {
        if votes(&net) > 0 {
            break;
        }
        net.run(Duration::from_millis(1));
    }
    assert!((1..=2).contains(&votes(&net)), "{}", votes(&net));
    net.kill(4);
    all_is_well(&mut net, "it was gone");
}

#[test]
fn no_more_members_are_let_in_than_a_view_can_name() {
    let mut net = Net::cluster(3);
    for n in 1..=3 {
        net.nodes.get_mut(&n).unwrap().group.set_config(|c| c.limits.members_max = 4);
    }
    let seq = net.sequencer();
    for n in 4..=8 {
        net.start(n, Net::config(n), MemStore::new(), None);
        let now = net.now;
        net.nodes.get_mut(&n).unwrap().group.join(now, JoinState { position: None });
    }
    net.run(Duration::from_secs(5));
    let view = net.nodes[&seq].group.status().view;
    assert_eq!(view.members.len(), 4, "{view:?}");
    assert!(
        net.nodes[&seq].events.iter().any(|e| matches!(e, Event::Log { text, .. } if text.contains("no more than 4")))
    );
    for n in 4..=8 {
        net.nodes.remove(&n);
    }
    net.update_links();
    all_is_well(&mut net, "they were gone");
}

/// Entries are taken only if each is the next one of its origin, whoever sends them.
#[test]
fn a_number_out_of_order_is_not_taken_from_the_sequencer_either() {
    let mut net = Net::cluster(3);
    let seq = net.sequencer();
    let to = (1..=3).find(|n| *n != seq).unwrap();
    let status = net.nodes[&to].group.status();
    let newest = net.nodes[&to].group.store().read(status.last, 1).unwrap().remove(0).header;
    let voters = if newest.kind == EntryKind::Voters { newest.index } else { newest.voters };
    let session = Session { node: node(seq), number: u64::MAX };
    let header = EntryHeader {
        index: status.last.next(),
        term: status.term,
        seqno: newest.seqno,
        voters,
        session,
        number: 7,
        kind: EntryKind::App,
    };
    let message = Message::Append {
        branch: HISTORY,
        term: status.term,
        prev_index: status.last,
        prev_term: status.term,
        commit: status.last,
        entries: vec![(header, Some(Bytes::from_static(b"forged")))],
    };
    let now = net.now;
    net.nodes.get_mut(&to).unwrap().group.handle_message(now, node(seq), message);
    assert_eq!(net.nodes[&to].group.status().last, status.last);
    all_is_well(&mut net, "it was ignored");
}
