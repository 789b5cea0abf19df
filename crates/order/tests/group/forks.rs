//! Branches of a history: who follows, who gives way, who has no vote any more (rule 13), and data ahead of every log (18).

use std::time::Duration;

use trireme_order::{
    Append, Content, Envelope, Event, Evidence, JoinState, LogEnd, LogStore, MemStore, Message, Output, Phase, Presence,
};
use trireme_types::{Base, Fork, HardState, Lineage, LogIndex, Seqno, Term, Uuid};

use crate::net::*;

fn branch(net: &Net, n: u8) -> Uuid {
    net.nodes[&n].group.lineage().branch(HISTORY)
}

fn force(net: &mut Net, n: u8) {
    net.force(n);
    net.run(Duration::from_secs(1));
    assert_eq!(net.phase(n), Phase::Primary);
}

/// The old voters never heard of the fork. When the two primary components meet, the side that was not forced stays.
#[test]
fn a_forced_minority_gives_way_to_the_old_majority() {
    let mut net = Net::cluster(3);
    net.cut = vec![(1, 3), (2, 3)];
    net.run(Duration::from_secs(10));
    force(&mut net, 3);
    net.propose(1, "majority");
    net.propose(3, "forced");
    net.settle();
    net.cut.clear();
    net.run(Duration::from_secs(10));
    assert!(net.gave_way(3) && !net.gave_way(1) && !net.gave_way(2));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary);
        assert_eq!(branch(&net, n), HISTORY);
        assert_eq!(net.nodes[&n].group.status().voters.voters.len(), 3);
    }
}

/// They were away, and hold nothing beyond the fork: they follow with the data that they have.
#[test]
fn members_that_were_away_follow_a_fork() {
    let mut net = Net::cluster(3);
    net.propose(1, "before");
    net.settle();
    let at = Seqno(net.nodes[&3].delivered.last().unwrap().0);
    let stores = [net.kill(1), net.kill(2)];
    net.run(Duration::from_secs(10));
    force(&mut net, 3);
    net.propose(3, "alone");
    net.settle();
    for (n, store) in [1, 2].into_iter().zip(stores) {
        net.restart(n, store, 2, at);
    }
    net.run(Duration::from_secs(10));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "{n}");
        assert_eq!(branch(&net, n), branch(&net, 3));
        assert!(!net.gave_way(n));
        assert_eq!(net.bodies(n).last().unwrap(), "alone");
    }
}

/// All start at once after a fork: the old majority does not form beside the forced one, although it could.
#[test]
fn the_forced_side_goes_first_when_all_come_back() {
    let mut net = Net::cluster(3);
    let at = Seqno(net.nodes[&3].group.status().view.number);
    let stores = [net.kill(1), net.kill(2)];
    net.run(Duration::from_secs(10));
    force(&mut net, 3);
    let alone = Seqno(net.nodes[&3].group.status().view.number);
    let third = net.kill(3);
    for (n, store) in [1, 2].into_iter().zip(stores) {
        net.restart(n, store, 2, at);
    }
    net.restart(3, third, 2, alone);
    net.run(Duration::from_secs(20));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary);
        assert_ne!(branch(&net, n), HISTORY);
        assert!(!net.gave_way(n));
    }
}

/// Its engine holds an entry that no log here has, and the third voter may have it. Nobody may go on as if that had never been.
#[test]
fn nobody_forms_the_group_below_the_data_of_a_present_member() {
    let mut net = Net::cluster(3);
    let at = Seqno(net.nodes[&1].group.status().view.number);
    let stores = [net.kill(1), net.kill(2)];
    net.kill(3);
    for (n, store) in [1, 2].into_iter().zip(stores) {
        net.restart(n, store, 2, if n == 2 { Seqno(at.0 + 5) } else { at });
    }
    net.run(Duration::from_secs(30));
    let told = |e: &Event| matches!(e, Event::Log { warn: true, text } if text.contains("the data of n2 reach seqno"));
    assert!(net.nodes[&1].events.iter().any(told));
    assert_ne!(net.phase(1), Phase::Primary);
    assert_ne!(net.phase(2), Phase::Primary);
    // A person decides to go on without.
    force(&mut net, 1);
    net.run(Duration::from_secs(10));
    assert_eq!(net.phase(2), Phase::Primary);
    assert!(net.gave_way(2), "its data are not of this branch");
}

/// The first of `dead` is about to say that it is in a primary component. All of them die, and that word is the last that this member hears of them.
fn give_way_to_the_dead(net: &mut Net, n: u8, dead: &[u8]) {
    let first = dead[0];
    net.drain(first);
    let word = net.queue.iter().find(|(from, to, m)| (*from, *to) == (first, n) && matches!(m, Message::Presence(_)));
    let word = word.unwrap().2.clone();
    let member = net.nodes[&first].cfg.me.clone();
    dead.iter().for_each(|n| drop(net.kill(*n)));
    let now = net.now;
    let group = &mut net.nodes.get_mut(&n).unwrap().group;
    group.handle_link_up(now, member, trireme_order::SUPPORTED);
    group.handle_message(now, node(first), word);
    group.handle_link_down(now, node(first));
    net.settle();
    assert_eq!(net.phase(n), Phase::NonPrimary);
}

/// Swarm seed 93954: each of three forced branches gave way to a claim that another one had made before it was cut off and forced itself.
/// All marked their data as void, and nobody had any.
#[test]
fn who_gives_way_to_a_component_that_is_gone_keeps_its_data_and_goes_on() {
    for by_hand in [false, true] {
        let mut net = Net::cluster(3);
        net.cut = vec![(1, 3), (2, 3)];
        net.run(Duration::from_secs(10));
        force(&mut net, 3);
        net.propose(3, "forced");
        net.settle();
        net.cut.clear();
        net.update_links();
        give_way_to_the_dead(&mut net, 3, &[1, 2]);
        assert!(!net.gave_way(3), "nobody has offered it anything");
        if by_hand {
            force(&mut net, 3);
        } else {
            net.run(Duration::from_secs(20));
        }
        net.propose(3, "after");
        net.settle();
        assert_eq!(net.bodies(3), ["forced", "after"]);
    }
}

/// Swarm seed 98796: a member that had given its vote to a member of a new branch still said that the old component ran.
#[test]
fn who_has_given_its_vote_away_speaks_for_no_primary_component() {
    let mut net = Net::cluster(3);
    let dead = net.sequencer();
    let voter = if dead == 1 { 2 } else { 1 };
    let stands = 6 - dead - voter;
    net.kill(dead);
    let speaks = |net: &mut Net| {
        let (now, stranger) = (net.now, Net::config(9).me);
        net.nodes.get_mut(&voter).unwrap().group.handle_link_up(now, stranger, trireme_order::SUPPORTED);
        net.drain(voter);
        let word = net.queue.drain(..).rev().find_map(|(_, to, m)| match m {
            Message::Presence(p) if to == 9 => Some(p.primary),
            _ => None,
        });
        word.unwrap()
    };
    assert!(speaks(&mut net), "its connection has just ended");
    let status = net.nodes[&voter].group.status();
    let vote = Content::Vote { last: LogEnd { term: status.term, index: status.last }, transfer: true }
        .in_term(HISTORY, status.term.next());
    let now = net.now;
    net.nodes.get_mut(&voter).unwrap().group.handle_message(now, node(stands), vote);
    assert!(!speaks(&mut net));
}

/// Its log is of no use for its data, and begins behind a fork that it does not know. It holds nothing of the branch behind that fork, so
/// it acknowledges nothing, although nothing below the beginning of a log can be compared.
#[test]
fn a_log_that_begins_behind_a_fork_is_not_taken_for_one_of_that_branch() {
    for fork in [15, 25] {
        let mut net = Net::new();
        let mut store = MemStore::new();
        let (index, seqno) = (LogIndex(20), Seqno(13));
        store.reset(Base { history: HISTORY, index, seqno, term: Term(1), ..Base::default() }).unwrap();
        store.save_hard_state(HardState { term: Term(1), ..HardState::default() }).unwrap();
        net.start(1, Net::config(1), store, Some(Seqno(5)));
        let lineage = Lineage::default().with(Fork { index: LogIndex(fork), seqno: Seqno(10), id: Uuid([7; 16]) });
        let branch = lineage.branch(HISTORY);
        let (now, term) = (net.now, Term(5));
        let presence = Presence {
            history: HISTORY,
            lineage,
            term,
            last_term: term,
            last_index: LogIndex(30),
            base: Seqno::ZERO,
            seqno: Seqno(20),
            primary: true,
            evidence: Evidence::Everything,
            data: None,
            holds: Some(Seqno(20)),
            founding: None,
            sequencer: None,
        };
        let append = Content::Append(Append {
            prev_index: LogIndex::ZERO,
            prev_term: Term::ZERO,
            commit: LogIndex::ZERO,
            entries: vec![],
        })
        .in_term(branch, term);
        let group = &mut net.nodes.get_mut(&1).unwrap().group;
        group.join(now, JoinState { position: Some((HISTORY, Seqno(5))) });
        group.handle_link_up(now, Net::config(2).me, trireme_order::SUPPORTED);
        group.handle_message(now, node(2), Message::Presence(presence));
        group.handle_message(now, node(2), append);
        net.drain(1);
        let acknowledged = net
            .queue
            .iter()
            .any(|(_, _, m)| matches!(m, Message::InTerm(Envelope { branch: b, content: Content::Ack { index: i, .. }, .. }) if *b == branch && *i >= index));
        assert_eq!(acknowledged, fork > index.0, "the fork is at {fork}");
    }
}

/// Its log lost its end to damage, and a person goes on with it. The mark of its committed end speaks of entries that are gone.
#[test]
pub fn marks_of_what_was_committed_do_not_outlive_a_fork_below_them() {
    let mut net = Net::cluster(3);
    for i in 0..30 {
        net.propose(1, &i.to_string());
        net.settle();
    }
    let at = Seqno(net.nodes[&1].delivered[0].0);
    let mut stores: Vec<MemStore> = (1..=3).map(|n| net.kill(n)).collect();
    let mut store = stores.remove(0);
    let (end, last) = (store.index_of(at).unwrap(), store.last());
    store.truncate_after(end).unwrap();
    store.set_suspect(Some(end)).unwrap();
    let before = HardState { committed: last, voters_committed: last, ..store.hard_state() };
    store.save_hard_state(before).unwrap();
    net.restart(1, store, 2, at);
    net.run(Duration::from_secs(5));
    force(&mut net, 1);
    net.settle();
    assert_eq!(net.phase(1), Phase::Primary);
    let hard = net.nodes[&1].group.store().hard_state();
    assert!(hard.committed < last && hard.voters_committed < last, "{hard:?}");
    let at = Seqno(net.nodes[&1].group.status().view.number.max(at.0));
    let store = net.kill(1);
    net.restart(1, store, 3, at);
    net.run(Duration::from_secs(20));
    assert_eq!(net.phase(1), Phase::Primary, "it decides alone on its branch: {:?}", net.nodes[&1].group.status());
}

/// The own end of the log goes before the fork's entry comes. A node that dies between the two is no evidence of what it has lost.
#[test]
pub fn a_log_that_follows_a_fork_with_an_end_of_its_own_is_suspect_before_that_goes() {
    let mut net = Net::cluster(3);
    let old = net.sequencer();
    let forcing = (1..=3).find(|n| *n != old).unwrap();
    net.lost = (1..=3).filter(|n| *n != old).map(|n| (old, n)).collect();
    net.propose(old, "known to nobody else");
    net.settle();
    net.isolate(old);
    net.lost.clear();
    net.kill(6 - old - forcing);
    net.run(Duration::from_secs(10));
    force(&mut net, forcing);
    net.heal();
    net.run(Duration::from_secs(10));
    assert_eq!(branch(&net, old), branch(&net, forcing));
    assert!(!net.gave_way(old), "it followed");
    let whole = "the write-set log is whole again";
    let said = net.nodes[&old].events.iter().any(|e| matches!(e, Event::Log { text, .. } if text.contains(whole)));
    assert!(said, "{:?}", net.nodes[&old].events);
}

/// Only the marks tell of the lost end. They are lowered before the fork is written, so the log says first that it is no evidence.
#[test]
fn a_log_without_its_end_is_suspect_before_a_fork_lowers_its_marks() {
    let mut net = Net::cluster(3);
    let at = Seqno(net.nodes[&1].group.status().view.number);
    let mut store = net.kill(1);
    net.kill(2);
    net.kill(3);
    let end = LogIndex(store.last().0 - 1);
    let before = HardState { voters_committed: store.last(), ..store.hard_state() };
    store.truncate_after(end).unwrap();
    store.save_hard_state(before).unwrap();
    store.full = true;
    net.restart(1, store, 2, at);
    net.run(Duration::from_secs(5));
    net.force(1);
    net.settle();
    let store = net.nodes[&1].group.store();
    assert_eq!(net.phase(1), Phase::Failed);
    assert!(store.hard_state().voters_committed <= end && store.last() == end);
    assert!(store.suspect().is_some(), "it would vote as if it knew the newest voters");
}

/// A side that was forced gives way to the side that was not, when a member that it knows tells of it. If nothing more is heard of that
/// side, because that member lied and is gone, the forced side goes on within seconds.
#[test]
fn a_claim_of_another_primary_component_that_ends_is_given_way_to_for_seconds_only() {
    let mut net = Net::cluster(3);
    net.isolate(3);
    net.run(Duration::from_secs(10));
    net.force(3);
    net.run(Duration::from_secs(1));
    assert_eq!(net.phase(3), Phase::Primary);
    for _ in 0..5 {
        let (now, status) = (net.now, net.nodes[&3].group.status());
        let claim = Presence {
            history: HISTORY,
            lineage: Lineage::default(),
            term: status.term,
            last_term: Term(1),
            last_index: status.last,
            base: Seqno(0),
            seqno: Seqno(0),
            primary: true,
            evidence: Evidence::Everything,
            data: None,
            holds: Some(Seqno(0)),
            founding: None,
            sequencer: None,
        };
        let group = &mut net.nodes.get_mut(&3).unwrap().group;
        group.handle_link_up(now, Net::config(2).me, trireme_order::SUPPORTED);
        group.handle_message(now, node(2), Message::Presence(claim));
        group.handle_link_down(now, node(2));
        net.settle();
        assert_eq!(net.phase(3), Phase::NonPrimary, "it gives way");
        net.run(Duration::from_secs(7));
        assert_eq!(net.phase(3), Phase::Primary, "{:?}", net.nodes[&3].group.status());
    }
}

/// The sequencer is cut off with a write set that nobody else has, and the view of the others without it takes the same seqno. Then it is
/// forced. Data of the other side that end there lack the write set: no comparison of seqnos shows it.
#[test]
fn data_of_the_other_side_are_no_past_of_a_fork_because_their_seqno_is_none_beyond_it() {
    let mut net = Net::cluster(3);
    let forced = net.sequencer();
    let [other, third] = [1, 2, 3].into_iter().filter(|n| *n != forced).collect::<Vec<_>>()[..] else { panic!() };
    net.checkpoint_always(1..=3);
    net.propose(forced, "common");
    net.settle();
    net.mute(forced);
    net.propose(forced, "never committed, then forced");
    net.settle();
    net.isolate(forced);
    net.lost.clear();
    net.run(Duration::from_secs(10));
    let end = |net: &Net, n: u8| end_of(net.nodes[&n].group.store());
    let data = end(&net, forced);
    while end(&net, other) < data {
        net.propose(other, "of the others");
        net.settle();
    }
    let held = net.bodies(other);
    let log = net.kill(other);
    net.kill(third);
    net.heal();
    net.force(forced);
    net.run(Duration::from_secs(3));
    assert_eq!(net.phase(forced), Phase::Primary);
    net.restart(other, log, 2, data);
    net.run(Duration::from_secs(20));
    net.propose(forced, "after");
    net.settle();
    let all: Vec<String> = held.into_iter().chain(net.bodies(other)).collect();
    let copied = net.nodes[&other].events.contains(&Event::DataDiverged);
    assert!(copied || all == net.bodies(forced), "{all:?} against {:?}", net.bodies(forced));
}

/// Both halves are forced, and have the same term.
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
    assert_ne!(branch(&net, 1), branch(&net, 2));
    net.cut.clear();
    net.run(Duration::from_secs(10));
    assert_eq!(branch(&net, 1), branch(&net, 2));
    let gone: Vec<u8> = (1..=2).filter(|n| net.gave_way(*n)).collect();
    assert_eq!(gone.len(), 1, "one of the two goes, never both and never none");
    let stayed = 3 - gone[0];
    net.propose(stayed, "after");
    net.propose(gone[0], "too");
    net.settle();
    for n in 1..=2 {
        assert_eq!(net.phase(n), Phase::Primary);
        let mut newest = net.bodies(n).split_off(net.bodies(n).len() - 2);
        newest.sort();
        assert_eq!(newest, ["after", "too"]);
    }
}

/// Two of four go on by `pc.ignore_sb`, and one of them misses what the other one has committed.
#[test]
fn a_forced_half_keeps_what_one_of_it_had_committed() {
    let mut net = Net::cluster(4);
    for n in 1..=4 {
        net.nodes.get_mut(&n).unwrap().group.set_config(|c| c.ignore_sb = true);
    }
    let seq = net.sequencer();
    let rest: Vec<u8> = (1..=4).filter(|n| *n != seq).collect();
    let (behind, with, far) = (rest[0], rest[1], rest[2]);
    // Nothing arrives at `behind`, but its links stand: it stays a voter.
    net.lost = (1..=4u8).filter(|n| *n != behind).map(|n| (n, behind)).collect();
    net.propose(with, "acknowledged");
    net.settle();
    assert_eq!(net.bodies(with), ["acknowledged"]);
    assert!(net.bodies(behind).is_empty());
    let branch_before = branch(&net, with);
    // The halves are {behind, with} and {seq, far} from here on.
    net.cut = vec![(behind, seq), (behind, far), (with, seq), (with, far)];
    net.update_links();
    net.lost.clear();
    net.run(Duration::from_secs(12));
    assert_ne!(branch(&net, with), branch_before, "the half was forced");
    for n in [behind, with] {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert_eq!(branch(&net, n), branch(&net, with), "node {n}");
        assert_eq!(net.nodes[&n].views.last().unwrap().len(), 2, "node {n}");
        assert_eq!(net.bodies(n), ["acknowledged"], "node {n}");
        assert!(!net.gave_way(n), "node {n}");
    }
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
    net.force(3);
    net.run(Duration::from_secs(1));
    net.propose(3, "on this side");
    net.settle();
    net.cut.clear();
    net.restart(2, store, 2, at);
    net.run(Duration::from_secs(10));
    assert_eq!(net.phase(2), Phase::Primary);
    assert!(net.nodes[&2].events.contains(&Event::DataDiverged), "{:?}", net.nodes[&2].events);
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
        let base = Base {
            history: HISTORY,
            index: LogIndex(100),
            term,
            seqno: Seqno(50),
            lineage: lineage.clone(),
            ..Base::default()
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
            evidence: Evidence::Everything,
            data: None,
            holds: Some(Seqno(50)),
            founding: None,
            sequencer: None,
        };
        let group = &mut net.nodes.get_mut(&follower).unwrap().group;
        group.handle_message(now, node(other), Message::Presence(presence));
        group.handle_message(now, node(other), Message::Snapshot { term, lineage, base: Box::new(base) });
        let diverged = outputs(group, now).contains(&Output::Event(Event::DataDiverged));
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
    net.force(3);
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

/// Swarm seed 75472919: a member that had come back was elected, and had not reached its voters again when it heard of a branch that begins
/// below its data. It gave way, and went on ordering.
#[test]
fn a_sequencer_outside_of_a_component_that_gives_way_orders_no_more() {
    let mut net = Net::cluster(3);
    net.cut = vec![(1, 3), (2, 3)];
    net.update_links();
    net.run(Duration::from_secs(10));
    let leader = [1, 2].into_iter().find(|n| net.phase(*n) == Phase::Primary).unwrap();
    net.propose(leader, "beyond the fork");
    net.settle();
    net.force(3);
    net.run(Duration::from_secs(1));
    assert_eq!(net.phase(3), Phase::Primary);
    let logs = [1, 2].map(|n| net.kill(n));
    for (n, log) in (1..).zip(logs) {
        let end = end_of(&log);
        net.restart(n, log, 2, end);
    }
    let leads = |net: &Net, n: u8| net.nodes[&n].group.status().sequencer == Some(node(n));
    let elected = net.deliver_until(|net| [1, 2].into_iter().find(|n| leads(net, *n)));
    assert_eq!(net.phase(elected), Phase::Joining);
    net.cut = vec![(1, 2), (3 - elected, 3)];
    net.update_links();
    net.run(Duration::from_secs(1));
    let status = net.nodes[&elected].group.status();
    assert_ne!(status.sequencer, Some(node(elected)), "{status:?}");
    net.heal();
    net.run(Duration::from_secs(10));
    for n in 1..=3 {
        assert!(net.forked(n), "node {n} is on the branch that was forced");
    }
}

/// The second one of a forced branch of four has given way to the old majority, which is gone by now. Where its data end, and the logs of the others from
/// just before that: they name it in their newest view, and have a checkpoint before it.
fn gave_way_to_a_component_that_is_gone() -> (Net, Seqno, Vec<(u8, MemStore)>) {
    let mut net = Net::cluster(7);
    net.cut = [1, 5, 6, 7].into_iter().flat_map(|old| [2, 3, 4, 8].map(|forced| (old, forced))).collect();
    net.run(Duration::from_secs(10));
    force(&mut net, 2);
    net.run(Duration::from_secs(10));
    net.checkpoint_always([3, 4]);
    net.propose(2, "kept by a checkpoint");
    net.settle();
    for n in [3, 4] {
        net.nodes.get_mut(&n).unwrap().group.store_mut().checkpoint_every = 0;
    }
    // One more view, and something behind it.
    net.join(8);
    net.run(Duration::from_secs(1));
    let logs = [3, 4, 8].into_iter().map(|n| (n, net.nodes[&n].group.store().clone())).collect();
    net.propose(2, "on the forced branch");
    net.run(Duration::from_secs(1));
    let data = end_of(net.nodes[&2].group.store());
    // A word of the old majority arrives at the second one alone, and late.
    net.cut.retain(|cut| *cut != (1, 2));
    net.update_links();
    give_way_to_the_dead(&mut net, 2, &[1, 5, 6, 7]);
    (net, data, logs)
}

/// Swarm seed 86503210: a member that gave way to a forced component, which was gone by then, was given a state of its own branch, from before the end
/// of its data. A view of its own past came first in what it delivered anew. It took that for its return, and its data for more than the group has.
#[test]
fn a_view_from_before_the_end_of_the_data_does_not_say_that_the_history_ends_there() {
    let (mut net, data, _) = gave_way_to_a_component_that_is_gone();
    net.run(Duration::from_secs(20));
    let base = net.nodes[&2].group.store().base().seqno;
    assert!((Seqno(1)..data).contains(&base), "it was given a state from before the end of its data");
    assert!(!net.gave_way(2), "the history goes on behind it");
    assert!([2, 3, 4, 8].into_iter().all(|n| net.phase(n) == Phase::Primary));
}

/// It loses the others before its new log reaches its data. A person's word would make a branch that begins behind that log, and give the rest of the data
/// up. Once it has started anew its data can be gone on with.
#[test]
fn a_running_member_is_not_forced_while_its_new_log_does_not_reach_its_data() {
    let (mut net, data, _) = gave_way_to_a_component_that_is_gone();
    let base = net.deliver_a_state_to(2);
    assert!((Seqno(1)..data).contains(&base.seqno));
    net.isolate(2);
    net.run(Duration::from_secs(10));
    net.force(2);
    net.run(Duration::from_secs(1));
    assert!(net.warned(2, "Stop all nodes that are left and bootstrap this node"));
    assert_eq!(net.phase(2), Phase::NonPrimary);
    let log = net.kill(2);
    net.restart(2, log, 2, data);
    force(&mut net, 2);
    assert_eq!(net.nodes[&2].group.store().base().seqno, data);
}

/// The same with another one beside it, whose log is longer than the new one, and ends before those data as well. The word is not passed on to that one:
/// it would begin a branch that gives them up, also once this server has started anew.
#[test]
fn a_person_s_word_does_not_go_to_a_log_that_ends_before_the_data_here() {
    let (mut net, data, logs) = gave_way_to_a_component_that_is_gone();
    let base = net.deliver_a_state_to(2);
    assert!((Seqno(1)..data).contains(&base.seqno));
    [3, 4, 8].into_iter().for_each(|n| drop(net.kill(n)));
    net.run(Duration::from_secs(10));
    let (third, log) = logs.into_iter().find(|(n, _)| *n == 3).unwrap();
    let end = end_of(&log);
    assert!(end < data && log.last() > net.nodes[&2].group.store().last());
    net.restart(third, log, 2, end);
    net.run(Duration::from_secs(2));
    net.force(2);
    net.run(Duration::from_secs(2));
    assert!(net.warned(2, "Stop all nodes that are left and bootstrap this node"));
    assert!([2, third].into_iter().all(|n| net.phase(n) != Phase::Primary));
    let log = net.kill(2);
    net.restart(2, log, 2, data);
    net.run(Duration::from_secs(2));
    force(&mut net, 2);
    net.run(Duration::from_secs(10));
    assert_eq!(net.phase(third), Phase::Primary);
    assert!(!net.gave_way(2) && net.nodes[&third].group.lineage().newest().unwrap().seqno == data);
}

/// The disks of the others have lied: their logs end before those data, and go on in another way.
#[test]
fn a_term_that_begins_before_the_end_of_the_data_says_that_the_history_ends_there() {
    let (mut net, data, logs) = gave_way_to_a_component_that_is_gone();
    net.isolate(2);
    [3, 4, 8].into_iter().for_each(|n| drop(net.kill(n)));
    for (n, log) in logs {
        let end = end_of(&log);
        assert!(end < data);
        net.restart(n, log, 2, end);
    }
    net.run(Duration::from_secs(3));
    net.propose(3, "in its place");
    net.settle();
    net.heal();
    net.run(Duration::from_secs(20));
    assert!(net.warned(2, "they hold commits that the group has lost"));
    assert!(net.gave_way(2));
    assert!([2, 3, 4, 8].into_iter().all(|n| net.phase(n) == Phase::Primary));
}
