//! Rule 35, who may say what: a stranger with a link, a newcomer that is too heavy, and too many of them.

use std::time::Duration;

use bytes::Bytes;
use trireme_order::{
    Append, Content, Event, Evidence, Heartbeat, JoinState, LogEnd, LogStore, MemStore, Message, Phase, Presence,
};
use trireme_types::{
    Base, Durability, EntryHeader, EntryKind, Fork, Lineage, LogIndex, Member, NodeId, ProposalNumber, Seqno, Session,
    Term, Uuid, Voter, VoterSet, Weight,
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
        let out = |e: &Event| matches!(e, Event::Evicted | Event::DataDiverged | Event::Failed(_));
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

/// One of each kind that could do harm, of this term. None of them proves a lie by itself.
fn harmful(term: Term, last: LogIndex) -> Vec<Message> {
    let branch = HISTORY;
    let session = Session { node: node(STRANGER), number: 1 };
    let body = Bytes::from_static(b"forged");
    let (index, prev_index) = (last.next(), last);
    let end = LogEnd { term: Term(term.0 - 1), index };
    let header = EntryHeader {
        index,
        term,
        seqno: Seqno(1000),
        voters: LogIndex(1),
        session,
        number: ProposalNumber(1),
        kind: EntryKind::App,
    };
    let base = Base { history: HISTORY, index: LogIndex(500), term, seqno: Seqno(400), ..Base::default() };
    vec![
        Content::Append(Append { prev_index, prev_term: term, commit: index, entries: vec![(header, Some(body))] })
            .in_term(branch, term),
        Content::Append(Append { prev_index, prev_term: term, commit: index, entries: vec![] }).in_term(branch, term),
        Content::Reject { prev_index: last, last: LogIndex(0) }.in_term(branch, term),
        Content::NeedBodies { from: LogIndex(1) }.in_term(branch, term),
        Content::Ack { index }.in_term(branch, term),
        Content::Heartbeat(Heartbeat { commit: index, last: index, round: 1, majority: true }).in_term(branch, term),
        Content::HeartbeatAck { round: 1 }.in_term(branch, term),
        Content::PreVote { last: end }.in_term(branch, term),
        Content::PreVoteReply { granted: false, whole: true }.in_term(branch, term),
        Content::PreVoteReply { granted: true, whole: true }.in_term(branch, term),
        Content::Vote { last: end, transfer: false }.in_term(branch, term),
        Content::Vote { last: end, transfer: true }.in_term(branch, term),
        Content::VoteReply { granted: false, whole: true }.in_term(branch, term),
        Content::VoteReply { granted: true, whole: true }.in_term(branch, term),
        Content::TimeoutNow.in_term(branch, term),
        Message::Snapshot { term, lineage: Lineage::default(), base: Box::new(base) },
        Content::Recall { index }.in_term(branch, term),
        Message::Force,
        Content::Entrust.in_term(branch, term),
        Content::BeginFromData { index, seqno: Seqno(900) }.in_term(branch, term),
        Message::Evicted,
        Message::Leave { incarnation: trireme_types::Incarnation(1) },
        Message::SetWeight { weight: Weight(255) },
        Message::SetDurability { durability: Durability::Disk },
        Content::ReadRequest { batch: 1 }.in_term(branch, term),
        Content::ReadReply { batch: 1, seqno: Seqno(0) }.in_term(branch, term),
    ]
}

#[test]
pub fn nothing_that_a_linked_stranger_says_stops_the_group() {
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
                group.handle_link_up(now, stranger.clone(), trireme_order::SUPPORTED);
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
pub fn a_member_cannot_drive_the_terms_up_either() {
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

/// A newcomer is heavier than all others together, and is gone some time after it got its vote. Until then it gets only as much weight as
/// makes no difference. The views do not show that it asks again and again.
#[test]
pub fn a_heavy_newcomer_takes_the_majority_from_nobody() {
    for stays in [0, 4, 20] {
        let mut net = Net::cluster(3);
        let views = net.nodes[&1].views.len();
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
        net.run(Duration::from_secs(stays));
        if stays == 20 {
            assert_eq!(votes(&net), 255, "it has stayed");
            continue;
        }
        assert!((1..=2).contains(&votes(&net)), "{}", votes(&net));
        assert_eq!(net.nodes[&1].views.len(), views + 1, "one view, in which it came");
        net.kill(4);
        all_is_well(&mut net, "it was gone");
    }
}

/// Everybody may be as heavy as the others from the beginning.
#[test]
fn a_newcomer_as_heavy_as_the_others_is_so_at_once() {
    let mut net = Net::new();
    for n in 1..=3 {
        let mut cfg = Net::config(n);
        cfg.me.weight = Weight(2);
        net.start(n, cfg, MemStore::new(), None);
        let now = net.now;
        let group = &mut net.nodes.get_mut(&n).unwrap().group;
        if n == 1 {
            group.bootstrap(now, HISTORY, Seqno(0)).unwrap();
        } else {
            group.join(now, JoinState { position: None });
        }
        net.run(Duration::from_secs(2));
    }
    assert_eq!(net.nodes[&1].views.len(), 3);
    assert_eq!(net.nodes[&1].group.status().voters.total(), 6);
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

/// The sequencer sends a follower an entry that is the next one by all its numbers but those given here. It is not taken.
fn is_not_taken(kind: EntryKind, session: impl FnOnce(NodeId) -> Session, number: u64, payload: &'static [u8]) {
    let mut net = Net::cluster(3);
    let seq = net.sequencer();
    let to = (1..=3).find(|n| *n != seq).unwrap();
    let status = net.nodes[&to].group.status();
    let newest = net.nodes[&to].group.store().read(status.last, 1).unwrap().remove(0).header;
    let voters = if newest.kind == EntryKind::Voters { newest.index } else { newest.voters };
    let seqno = if kind.takes_seqno() { newest.seqno.next() } else { newest.seqno };
    let (index, term, session) = (status.last.next(), status.term, session(node(seq)));
    let header = EntryHeader { index, term, seqno, voters, session, number: ProposalNumber(number), kind };
    let message = Content::Append(Append {
        prev_index: status.last,
        prev_term: newest.term,
        commit: status.last,
        entries: vec![(header, Some(Bytes::from_static(payload)))],
    })
    .in_term(HISTORY, term);
    let now = net.now;
    net.nodes.get_mut(&to).unwrap().group.handle_message(now, node(seq), message);
    assert_eq!(net.nodes[&to].group.status().last, status.last, "{kind:?}");
    all_is_well(&mut net, "it was ignored");
}

/// Entries are taken only if each is the next one of its origin, whoever sends them.
#[test]
fn a_number_out_of_order_is_not_taken_from_the_sequencer_either() {
    is_not_taken(EntryKind::App, |node| Session { node, number: u64::MAX }, 7, b"forged");
}

// --- what cannot be taken back --------------------------------------------------------------------------------------------------------

/// A stranger that says to be in a primary component of this branch.
fn stranger_on(net: &Net, n: u8, lineage: Lineage) -> Presence {
    let status = net.nodes[&n].group.status();
    Presence {
        history: HISTORY,
        lineage,
        term: status.term,
        last_term: status.term,
        last_index: LogIndex(status.last.0 + 100),
        base: Seqno::ZERO,
        seqno: Seqno(1000),
        primary: true,
        evidence: Evidence::Everything,
        data: None,
        holds: Some(Seqno(1000)),
        founding: None,
        sequencer: Some(node(STRANGER)),
    }
}

/// All that a stranger can say to be given log and data of this member.
fn claim(net: &mut Net, n: u8, lineage: Lineage, history: Uuid) {
    let presence = stranger_on(net, n, lineage.clone());
    let term = presence.term;
    let base =
        Base { history, index: LogIndex(500), term, seqno: Seqno(400), lineage: lineage.clone(), ..Base::default() };
    let branch = lineage.branch(HISTORY);
    let (commit, last) = (LogIndex(500), LogIndex(500));
    let now = net.now;
    let group = &mut net.nodes.get_mut(&n).unwrap().group;
    group.handle_link_up(now, Net::config(STRANGER).me, trireme_order::SUPPORTED);
    group.handle_message(now, node(STRANGER), Message::Presence(presence));
    let heartbeat =
        Content::Heartbeat(Heartbeat { commit, last, round: 1, majority: true }).in_term(branch, term.next());
    group.handle_message(now, node(STRANGER), heartbeat);
    for prev in [1, 2, 3] {
        let append =
            Content::Append(Append { prev_index: LogIndex(prev), prev_term: Term(77), commit, entries: vec![] })
                .in_term(branch, term.next());
        group.handle_message(now, node(STRANGER), append);
    }
    let snapshot = Message::Snapshot { term: term.next(), lineage, base: Box::new(base) };
    group.handle_message(now, node(STRANGER), snapshot);
    net.drain(n);
}

fn keeps_its_data(net: &mut Net, n: u8, last: LogIndex) {
    let node = &net.nodes[&n];
    assert!(!node.events.contains(&Event::DataDiverged), "node {n}: {:?}", node.events);
    assert!(node.group.store().base().index < LogIndex(500) && node.group.status().last >= last, "node {n}");
}

/// The side that was not forced goes first, but a stranger is no side.
#[test]
pub fn a_member_that_was_forced_once_gives_way_to_no_stranger() {
    let mut net = Net::cluster(3);
    net.isolate(3);
    net.run(Duration::from_secs(10));
    net.force(3);
    net.run(Duration::from_secs(1));
    assert_eq!(net.phase(3), Phase::Primary);
    let last = net.nodes[&3].group.status().last;
    claim(&mut net, 3, Lineage::default(), HISTORY);
    assert_eq!(net.phase(3), Phase::Primary);
    keeps_its_data(&mut net, 3, last);
    assert!(net.warned(3, "has never named it"));
    // It believes those whom it knows, also after a restart.
    let at = Seqno(net.nodes[&3].group.status().view.number);
    let store = net.kill(3);
    net.restart(3, store, 2, at);
    net.run(Duration::from_secs(10));
    assert_eq!(net.phase(3), Phase::Primary);
    net.heal();
    net.run(Duration::from_secs(20));
    assert!(net.nodes[&3].events.contains(&Event::DataDiverged));
    all_are_in(&mut net);
}

fn all_are_in(net: &mut Net) {
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "{n}: {:?}", net.nodes[&n].group.status());
    }
}

#[test]
fn a_stranger_gets_nobody_to_give_up_its_data() {
    let fork = Fork { index: LogIndex(2), seqno: Seqno(1), id: Uuid([7; 16]) };
    for restarted in [false, true] {
        for (lineage, history) in [
            (Lineage::default(), HISTORY),
            (Lineage::default().with(fork), HISTORY),
            (Lineage::default(), Uuid([0xbb; 16])),
        ] {
            if restarted && history != HISTORY {
                // It may be meant to join another cluster.
                continue;
            }
            let mut net = Net::cluster(3);
            let at = Seqno(net.nodes[&3].group.status().view.number);
            net.isolate(3);
            if restarted {
                let store = net.kill(3);
                net.restart(3, store, 2, at);
            } else {
                net.run(Duration::from_secs(10));
                assert_eq!(net.phase(3), Phase::NonPrimary);
            }
            let last = net.nodes[&3].group.status().last;
            claim(&mut net, 3, lineage, history);
            net.run(Duration::from_secs(1));
            keeps_its_data(&mut net, 3, last);
            let now = net.now;
            net.nodes.get_mut(&3).unwrap().group.handle_link_down(now, node(STRANGER));
            net.heal();
            net.run(Duration::from_secs(30));
            keeps_its_data(&mut net, 3, last);
            all_are_in(&mut net);
        }
    }
}

/// The last one out is the only voter; its disk was copied then. When it is started beside the cluster, and alone at first, it does not
/// stay alone.
#[test]
fn an_old_disk_that_was_primary_alone_finds_its_cluster() {
    let mut net = Net::cluster(3);
    let mut leavers = 3;
    while leavers > 1 {
        let now = net.now;
        net.nodes.get_mut(&leavers).unwrap().group.leave(now);
        net.run(Duration::from_secs(3));
        net.kill(leavers);
        leavers -= 1;
    }
    assert_eq!(net.nodes[&1].group.status().voters.voters.len(), 1);
    let at = Seqno(net.nodes[&1].group.status().view.number);
    let backup = net.nodes[&1].group.store().clone();
    (2..=3).for_each(|n| net.join(n));
    for n in 1..=3 {
        net.propose(n, "not in the backup");
        net.settle();
    }
    net.kill(1);
    net.run(Duration::from_secs(1));
    net.cut = vec![(1, 2), (1, 3)];
    net.restart(1, backup, 9, at);
    net.run(Duration::from_secs(20));
    assert_eq!(net.phase(1), Phase::Primary, "it knows no better");
    net.propose(1, "known to the old disk only");
    net.settle();
    net.heal();
    net.run(Duration::from_secs(30));
    all_are_in(&mut net);
    assert!(
        net.nodes[&1].events.contains(&Event::DataDiverged),
        "its data hold what nobody else has: {:?}",
        net.nodes[&1].events
    );
    assert_eq!(net.nodes[&1].group.status().sequencer, net.nodes[&2].group.status().sequencer);
    assert!(net.bodies(2).contains(&"not in the backup".to_string()));
}

/// Its log ends before the one that asks came in. The promise of a voter that this log does name is enough.
#[test]
fn a_member_with_an_old_log_is_entrusted_by_whom_its_voters_promised() {
    for vouched in [false, true] {
        let mut net = Net::cluster(3);
        let at = Seqno(net.nodes[&3].group.status().view.number);
        let store = net.kill(3);
        net.kill(1);
        net.kill(2);
        net.restart(3, store, 2, at);
        net.settle();
        let status = net.nodes[&3].group.status();
        let mut presence = stranger_on(&net, 3, Lineage::default());
        (presence.primary, presence.holds, presence.last_index) = (false, None, status.last);
        presence.sequencer = vouched.then_some(node(STRANGER));
        let now = net.now;
        let group = &mut net.nodes.get_mut(&3).unwrap().group;
        for n in [1, STRANGER] {
            group.handle_link_up(now, Net::config(n).me, trireme_order::SUPPORTED);
        }
        group.handle_message(now, node(1), Message::Presence(presence));
        group.handle_message(now, node(STRANGER), Content::Entrust.in_term(HISTORY, status.term.next()));
        net.drain(3);
        let forked = net.nodes[&3].group.lineage().newest().is_some();
        assert_eq!(forked, vouched, "{:?}", net.nodes[&3].events);
        assert_eq!(net.warned(3, "set pc.bootstrap=1 on this node"), !vouched);
    }
}

/// Four vote; one of them has not heard yet that the fourth does. When the sequencer dies the fourth has the best log, and needs that vote.
#[test]
fn a_voter_of_whom_a_member_has_not_heard_is_elected_without_delay() {
    let mut net = Net::cluster(3);
    let old = net.sequencer();
    let others: Vec<u8> = (1..=3).filter(|n| *n != old).collect();
    let (lagging, knows) = (others[0], others[1]);
    net.lost = vec![(old, lagging)];
    net.start(4, Net::config(4), MemStore::new(), None);
    let now = net.now;
    net.nodes.get_mut(&4).unwrap().group.join(now, JoinState { position: None });
    net.run(Duration::from_secs(1));
    assert_eq!(net.nodes[&4].group.status().voters.voters.len(), 4);
    net.lost.push((old, knows));
    net.propose(old, "held by the newest voter only");
    net.settle();
    net.kill(old);
    net.lost.clear();
    net.run(Duration::from_secs(3));
    for n in [lagging, knows, 4] {
        let status = net.nodes[&n].group.status();
        assert_eq!((status.phase, status.sequencer), (Phase::Primary, Some(node(4))), "node {n}");
        assert!(!net.nodes[&n].events.iter().any(|e| matches!(e, Event::NonPrimary { .. })), "node {n}");
    }
}

/// It could never be read again. An attempt must not leave half a sequencer.
#[test]
fn a_history_that_was_forced_too_often_is_not_forced_again() {
    let fork = |i: u64| Fork { index: LogIndex(i), seqno: Seqno(i), id: Uuid((u128::from(i) + 1).to_be_bytes()) };
    let lineage: Lineage = (1..=Lineage::FORKS_MAX as u64).map(fork).collect();
    let voters =
        VoterSet { voters: (1..=2).map(|n| Voter { node: node(n), weight: Weight(1) }).collect(), fork: Uuid::NIL };
    let end = Lineage::FORKS_MAX as u64 + 1;
    let (index, seqno) = (LogIndex(end), Seqno(end));
    let base = Base { history: HISTORY, index, seqno, lineage, voters, term: Term(3), ..Base::default() };
    let mut store = MemStore::new();
    store.reset(base).unwrap();
    let hard = trireme_types::HardState { term: Term(3), ..store.hard_state() };
    store.save_hard_state(hard).unwrap();
    // By a bootstrap, which is refused and changes nothing.
    let mut net = Net::new();
    net.start(1, Net::config(1), store.clone(), Some(seqno));
    let now = net.now;
    let group = &mut net.nodes.get_mut(&1).unwrap().group;
    assert_eq!(group.bootstrap(now, HISTORY, seqno), Err(trireme_order::BootstrapError::ForkedTooOften));
    assert_eq!((group.status().phase, group.status().term), (Phase::Idle, Term(3)));
    // By a person, and by all voters together, whose logs may lack something.
    for suspect in [false, true] {
        let mut net = Net::new();
        for n in 1..=2 {
            let mut store = store.clone();
            store.set_suspect(suspect.then_some(index)).unwrap();
            net.restart(n, store, 2, seqno);
        }
        if !suspect {
            net.cut = vec![(1, 2)];
        }
        net.run(Duration::from_secs(10));
        net.force(1);
        net.run(Duration::from_secs(2));
        let told = |n| net.warned(n, "forced too often");
        assert!(told(1) || told(2));
        for n in 1..=2 {
            assert_eq!(net.nodes[&n].group.lineage().forks().len(), Lineage::FORKS_MAX);
            assert!(net.nodes[&n].group.poll_timeout().is_some());
            assert_eq!(net.phase(n), Phase::Joining);
        }
    }
}

/// A body that nobody can order is not kept.
#[test]
fn bodies_of_strangers_are_not_kept() {
    let mut net = Net::cluster(3);
    let follower = (1..=3).find(|n| *n != net.sequencer()).unwrap();
    let now = net.now;
    let group = &mut net.nodes.get_mut(&follower).unwrap().group;
    group.handle_link_up(now, Net::config(STRANGER).me, trireme_order::SUPPORTED);
    let session = Session { node: node(STRANGER), number: 1 };
    for number in 1..100 {
        let (number, body) = (ProposalNumber(number), Bytes::from(vec![0; 10_000]));
        group.handle_message(now, node(STRANGER), Message::Submit { session, number, app: false, body });
    }
    assert_eq!(group.status().pending_bytes, 0);
    all_is_well(&mut net, "a stranger's bodies");
}

/// Flow control speaks by these: one of them can stop all writers.
#[test]
fn signals_of_strangers_are_not_heard() {
    let mut net = Net::cluster(3);
    let body = Bytes::from_static(b"stop");
    for (from, heard) in [(2, true), (STRANGER, false)] {
        let now = net.now;
        let group = &mut net.nodes.get_mut(&1).unwrap().group;
        if !heard {
            group.handle_link_up(now, Net::config(STRANGER).me, trireme_order::SUPPORTED);
        }
        group.handle_message(now, node(from), Message::Signal { body: body.clone() });
        net.drain(1);
        let is_from = |e: &Event| matches!(e, Event::Signal { from: said, .. } if *said == node(from));
        assert_eq!(net.nodes[&1].events.iter().any(is_from), heard, "{from}");
    }
}

#[test]
fn one_member_cannot_throw_the_others_out() {
    let mut net = Net::cluster(3);
    let liar = (1..=3).find(|n| *n != net.sequencer()).unwrap();
    for n in (1..=3).filter(|n| *n != liar) {
        let now = net.now;
        net.nodes.get_mut(&n).unwrap().group.handle_message(now, node(liar), Message::Evicted);
    }
    all_is_well(&mut net, "an eviction by one");
}

/// Each seed is one liar: a stranger or a member, and up to sixty steps.
#[test]
fn when_a_liar_is_gone_the_others_order_within_ten_seconds() {
    let only = std::env::var("LIAR_SEED").ok().and_then(|s| s.parse::<u64>().ok());
    let (mut strict, mut left, seeds) = (0, 0, only.map_or(0..1200, |seed| seed..seed + 1));
    for seed in seeds.clone() {
        let mut random = trireme_types::SplitMix(seed);
        let mut choose = |below: u64| random.next() % below.max(1);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut world = crate::liar::World::new(&mut choose);
            for _ in 0..choose(60) {
                world.step(&mut choose);
            }
            world.end()
        }));
        let Ok(end) = outcome else { panic!("seed {seed}") };
        strict += u32::from(!end.excused);
        left += u32::from(end.left);
    }
    if only.is_none() {
        assert!(u64::from(strict) * 3 > seeds.end * 2, "only {strict} are judged without an excuse");
        assert!(left > 50, "only {left} are left");
    }
}

/// The page names each excuse.
#[test]
fn the_page_has_a_row_for_each_harm_and_a_line_for_each_rule() {
    let page = include_str!("../../../../docs/protocol.md");
    for harm in crate::lies::Harm::ALL {
        assert!(page.contains(&format!("| {}", harm.row())), "{harm:?}");
    }
    for rule in trireme_order::Violation::ALL {
        assert!(page.contains(&format!("it {rule}")), "{rule:?}");
    }
}

/// The sequencer that is followed lies. Its entries are the next ones by all their numbers, but for their content.
#[test]
pub fn an_entry_that_nobody_could_read_is_not_written() {
    for kind in [EntryKind::View, EntryKind::Voters, EntryKind::Setting] {
        is_not_taken(kind, |_| Session::default(), 0, b"\xff\xff\xff\xff\xff");
    }
}

#[test]
fn strangers_without_end_do_not_fill_the_log() {
    let mut net = Net::cluster(3);
    let begun = |net: &Net| {
        let is_told = |e: &&Event| matches!(e, Event::Log { warn: true, text } if text.contains("is ignored"));
        net.nodes[&1].events.iter().filter(is_told).count()
    };
    let lie = |net: &mut Net, id: u16| {
        let [high, low] = id.to_be_bytes();
        let stranger =
            Member { node: NodeId(Uuid([9, high, low, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9])), ..Member::default() };
        let (now, from) = (net.now, stranger.node);
        let term = Term((1 << 62) - 1);
        let group = &mut net.nodes.get_mut(&1).unwrap().group;
        group.handle_link_up(now, stranger, trireme_order::SUPPORTED);
        group.handle_message(now, from, Content::HeartbeatAck { round: 1 }.in_term(HISTORY, term));
        group.handle_link_down(now, from);
        net.drain(1);
    };
    (0..1000).for_each(|id| lie(&mut net, id));
    assert_eq!(begun(&net), 16);
    net.run(Duration::from_secs(61));
    lie(&mut net, 1000);
    assert_eq!(begun(&net), 17);
    assert!(net.warned(1, "984 lines about others were left out"));
}

/// Hundreds of liars come, each with a lie of its own that is worth a line. They lie to one that orders, and to one that is cut off and
/// believes everybody who is linked. When the time is over for which liars are left, they are let in again as silently.
#[test]
fn strangers_bring_about_few_lines_whatever_they_say() {
    let mut net = Net::cluster(3);
    let sequencer = net.sequencer();
    let alone = (1..=3).find(|n| *n != sequencer).unwrap();
    net.isolate(alone);
    net.run(Duration::from_secs(10));
    assert_eq!(net.phase(alone), Phase::NonPrimary);
    for to in [sequencer, alone] {
        let before = lines(&net, to);
        for stranger in 20..=220 {
            let status = net.nodes[&to].group.status();
            let (term, last) = (status.term, status.last);
            let session = Session { node: node(stranger), number: 1 };
            let out_of_line = EntryHeader {
                index: last.next(),
                term,
                seqno: Seqno(1 << 30),
                voters: LogIndex(1),
                session,
                number: ProposalNumber(1),
                kind: EntryKind::App,
            };
            let last_term = net.nodes[&to].group.store().term_at(last).unwrap();
            let entries = vec![(out_of_line, Some(Bytes::from_static(b"forged")))];
            let append = Append { prev_index: last, prev_term: last_term, commit: last, entries };
            let now = net.now;
            let group = &mut net.nodes.get_mut(&to).unwrap().group;
            let member = Member { node: node(stranger), name: format!("s{stranger}"), ..Member::default() };
            group.handle_link_up(now, member, trireme_order::SUPPORTED);
            group.handle_message(now, node(stranger), Content::Append(append).in_term(HISTORY, term));
            group.handle_message(now, node(stranger), Content::TimeoutNow.in_term(HISTORY, Term(1 << 62)));
            // No build says this level.
            let proof = Message::Submit {
                session: Session { node: node(77), number: 1 },
                number: ProposalNumber(1),
                app: false,
                body: Bytes::new(),
            };
            group.handle_message(now, node(stranger), proof);
            group.handle_link_down(now, node(stranger));
            net.settle();
        }
        net.run(Duration::from_secs(70));
        let more = lines(&net, to) - before;
        assert!((3..=40).contains(&more), "node {to}: {more} lines");
    }
}

fn lines(net: &Net, n: u8) -> usize {
    net.nodes[&n].events.iter().filter(|event| matches!(event, Event::Log { .. })).count()
}
