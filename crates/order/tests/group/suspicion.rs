//! Logs that may lack what they acknowledged (rules 12, 16, 17).

use std::collections::BTreeSet;
use std::time::Duration;

use trireme_order::{
    Config, Content, Envelope, Event, JoinState, LogEnd, LogStore, MemStore, Message, Phase, Timeouts,
};
use trireme_types::{
    Base, Choice, Entry, EntryKind, HardState, Incarnation, Level, LogIndex, Reader, Seqno, Uuid, VoterSet,
};

use crate::net::*;

fn other(than: &[u8]) -> u8 {
    (1..=3).find(|n| !than.contains(n)).unwrap()
}

/// A commit on two of three nodes, one of which then loses it. Returns the one that has it, the one that lost it, and the one
/// that never had it, with the logs of the first two.
fn commit_on_two_lost_by_one() -> (Net, [u8; 3], [MemStore; 2]) {
    let mut net = Net::cluster(3);
    let keeper = net.sequencer();
    let loser = other(&[keeper]);
    let lagging = other(&[keeper, loser]);
    net.isolate(lagging);
    net.propose(keeper, "acknowledged");
    net.settle();
    assert_eq!(net.bodies(keeper), ["acknowledged"]);
    let kept = net.kill(keeper);
    let lost = without_end(net.kill(loser), 1);
    (net, [keeper, loser, lagging], [kept, lost])
}

#[test]
fn a_suspect_log_and_one_that_lags_form_no_group_until_the_one_that_holds_all_is_back() {
    let (mut net, [keeper, loser, lagging], [kept, lost]) = commit_on_two_lost_by_one();
    net.restart(loser, lost, 2, Seqno(0));
    net.heal();
    net.run(Duration::from_secs(20));
    assert_ne!(net.phase(loser), Phase::Primary);
    assert_ne!(net.phase(lagging), Phase::Primary);
    assert!(net.warned(loser, "Waiting for"), "{:?}", net.nodes[&loser].events);
    net.restart(keeper, kept, 2, Seqno(0));
    net.run(Duration::from_secs(10));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert!(net.bodies(n).contains(&"acknowledged".to_string()), "node {n}");
        assert!(!net.forked(n));
        assert_eq!(net.nodes[&n].group.store().suspect(), None, "node {n} has been repaired");
    }
}

/// This member loses the commit "acknowledged" with its power, and gets it back from the sequencer, on a disk that hangs.
fn lose_and_copy_unsynced(net: &mut Net, sequencer: u8, loser: u8) {
    net.propose(sequencer, "acknowledged");
    net.settle();
    let mut cfg = net.nodes[&loser].cfg.clone();
    cfg.me.incarnation = Incarnation(2);
    let lost = without_end(net.kill(loser), 1);
    net.stalled.push(loser);
    net.enter(loser, cfg, lost, Some(Seqno(0)));
    net.run(Duration::from_secs(1));
}

/// The sequencer has said up to where the log is to be complete, and has sent it. Then it dies before the disk is done, and its term may be over
/// (swarm seed 84023527).
#[test]
fn a_log_that_was_repaired_counts_once_it_is_synced_although_its_sequencer_is_gone() {
    for is_over in [false, true] {
        let mut net = Net::cluster(3);
        let sequencer = net.sequencer();
        let loser = other(&[sequencer]);
        lose_and_copy_unsynced(&mut net, sequencer, loser);
        if is_over {
            let term = net.nodes[&loser].group.status().term.next();
            let last = net.nodes[&sequencer].group.store().last();
            let last = LogEnd { term: net.nodes[&sequencer].group.store().term_at(last).unwrap(), index: last };
            net.queue.push_front((sequencer, loser, Content::Vote { last, transfer: true }.in_term(HISTORY, term)));
            net.settle();
            assert_eq!(net.nodes[&loser].group.status().term, term);
        }
        net.kill(sequencer);
        net.run(Duration::from_secs(20));
        let left = other(&[sequencer, loser]);
        assert!(net.nodes[&loser].group.store().suspect().is_some(), "nothing of it is synced");
        assert_ne!(net.phase(left), Phase::Primary, "one whole log of three");
        net.stalled.clear();
        net.run(Duration::from_secs(2));
        for n in [loser, left] {
            assert_eq!(net.phase(n), Phase::Primary, "node {n}, the term is over: {is_over}");
            assert_eq!(net.bodies(n), ["acknowledged"]);
            assert_eq!(net.nodes[&n].group.store().suspect(), None);
        }
    }
}

/// A build of before does not say when its log becomes whole. The leaver is there to vote for it.
#[test]
fn a_leaver_does_not_wait_for_a_word_that_its_heir_does_not_know() {
    let before = |n: u8| {
        let mut cfg = Config { level_hold: Level::NAMED_TERMS, ..Net::config(n) };
        cfg.levels.max = if n == 2 { Level::NAMED_TERMS } else { cfg.levels.max };
        cfg
    };
    let (sequencer, heir) = (1, 2);
    let mut net = Net::new();
    net.bootstrap_as(sequencer, before(sequencer));
    net.enter(heir, before(heir), MemStore::new(), None);
    net.run(Duration::from_secs(2));
    lose_and_copy_unsynced(&mut net, sequencer, heir);
    let now = net.now;
    net.nodes.get_mut(&sequencer).unwrap().group.leave(now);
    net.drain(sequencer);
    net.run(Duration::from_secs(1));
    assert_ne!(net.nodes[&sequencer].group.status().sequencer, Some(node(sequencer)), "it has handed over");
    net.stalled.clear();
    net.run(Duration::from_secs(2));
    assert!(net.nodes[&sequencer].events.contains(&Event::Left));
    assert_eq!(net.nodes[&heir].group.status().sequencer, Some(node(heir)));
}

/// Its sequencer has all that makes the log whole, and need not be heard by a majority now (seed 700284 of kind large).
#[test]
fn a_log_is_repaired_by_a_sequencer_without_a_majority() {
    let mut net = Net::cluster(5);
    let sequencer = net.sequencer();
    let loser = other(&[sequencer]);
    net.propose(sequencer, "acknowledged");
    net.settle();
    let lost = without_end(net.kill(loser), 1);
    let others: Vec<u8> = (1..=5).filter(|n| ![sequencer, loser].contains(n)).collect();
    others.into_iter().for_each(|n| drop(net.kill(n)));
    // It hears nobody any more, and goes on for one timeout more.
    net.run(Timeouts::default().election + Timeouts::default().heartbeat);
    net.restart(loser, lost, 2, Seqno(0));
    net.run(Duration::from_millis(250));
    assert_eq!(net.nodes[&loser].group.store().suspect(), None);
}

/// The heir has the sequencer's log, but not on disk, so its own vote is no evidence. The leaver's would be, but it is gone (swarm seed 84023527).
#[test]
fn a_leaver_hands_over_once_its_heir_has_the_log_on_disk() {
    let mut net = Net::cluster(2);
    let sequencer = net.sequencer();
    let heir = 3 - sequencer;
    lose_and_copy_unsynced(&mut net, sequencer, heir);
    let now = net.now;
    net.nodes.get_mut(&sequencer).unwrap().group.leave(now);
    net.drain(sequencer);
    net.run(Duration::from_secs(1));
    assert_eq!(net.sequencer(), sequencer, "the heir's log is not on disk");
    net.stalled.clear();
    while !net.nodes[&sequencer].events.contains(&Event::Left) {
        net.run(Duration::from_millis(10));
    }
    net.kill(sequencer);
    net.run(Duration::from_secs(2));
    assert_eq!(net.phase(heir), Phase::Primary);
    assert_eq!(net.bodies(heir), ["acknowledged"]);
}

#[test]
fn half_of_the_weight_in_whole_logs_is_enough_when_the_others_promise() {
    let mut net = Net::cluster(2);
    net.propose(1, "acknowledged");
    net.settle();
    let lost = without_end(net.kill(2), 1);
    net.restart(2, lost, 2, Seqno(0));
    net.run(Duration::from_secs(10));
    for n in 1..=2 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert_eq!(net.bodies(n), ["acknowledged"]);
        assert!(!net.forked(n), "nothing can be missing: every commit needed both");
    }
}

#[test]
fn when_all_logs_are_suspect_the_best_of_all_goes_on_and_says_so() {
    let mut net = Net::cluster(3);
    net.propose(1, "a");
    net.propose(1, "b");
    net.settle();
    let logs: Vec<MemStore> = (1..=3).map(|n| without_end(net.kill(n), u64::from(n) - 1)).collect();
    for (n, log) in (1..=2).zip(logs.iter().cloned()) {
        net.restart(n, log, 2, Seqno(0));
    }
    net.run(Duration::from_secs(20));
    assert!((1..=2).all(|n| net.phase(n) != Phase::Primary), "the third may have more");
    net.restart(3, logs[2].clone(), 2, Seqno(0));
    net.run(Duration::from_secs(10));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert_eq!(net.bodies(n), ["a", "b"]);
        assert_eq!(net.nodes[&n].group.store().suspect(), None);
    }
    assert!((1..=3).any(|n| net.warned(n, "going on with the best log of all")));
}

/// Found by the simulator: the owner of the best log had no vote. It began the branch as its only voter, committed there for clients of its
/// own, and died. The two voters had not received the fork yet, and went on without it.
#[test]
fn whoever_has_the_best_log_and_no_vote_commits_nothing_before_a_voter_has_it() {
    let mut net = Net::cluster(2);
    net.join_without_a_vote(3);
    net.propose(1, "acknowledged");
    net.settle();
    assert_eq!(net.bodies(3), ["acknowledged"]);
    let lost = [1, 2].map(|n| without_end(net.kill(n), 1));
    net.run(Duration::from_secs(10));
    for (n, log) in (1..=2).zip(lost) {
        net.restart(n, log, 2, Seqno(0));
    }
    net.run(Duration::from_secs(10));
    assert!((1..=2).any(|n| net.warned(n, "has the best log, and decides")));
    let log = net.nodes[&3].group.store();
    let entries = log.read(log.first(), usize::MAX).unwrap();
    let sets = entries.iter().filter(|e| e.header.kind == EntryKind::Voters);
    let fork = sets.map(|e| VoterSet::decode(&mut Reader::new(&e.payload)).unwrap()).find(|set| !set.fork.is_nil());
    let voters = fork.unwrap().voters;
    assert!(voters.len() == 1 && voters[0].node != node(3), "{voters:?}");
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert!(net.bodies(n).contains(&"acknowledged".to_string()), "node {n}");
        assert_eq!(net.nodes[&n].group.store().suspect(), None);
    }
}

/// The only voter lost the end of its log with its power, and was back before the link of its former self was seen to end. The one that had
/// followed it has no vote to be asked for. So that one still took the voter for the sequencer, and did not do what it was entrusted with.
#[test]
fn whoever_takes_the_one_that_entrusts_it_for_the_sequencer_of_an_earlier_term_obeys() {
    let mut net = Net::new();
    net.bootstrap(1);
    net.join_without_a_vote(2);
    net.propose(1, "acknowledged");
    net.settle();
    net.run(Duration::from_secs(1));
    let lost = without_end(net.nodes.remove(&1).unwrap().group.into_store(), 1);
    // Each sees a link to the other that is newer than the last one, and no end of that one.
    net.links.clear();
    net.queue.clear();
    net.restart(1, lost, 2, Seqno(0));
    net.run(Duration::from_secs(20));
    for n in 1..=2 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}: {:?}", net.nodes[&n].group.status());
        assert!(net.bodies(n).contains(&"acknowledged".to_string()), "node {n}");
    }
}

/// Swarm seed 87712346: the only voter entrusted one without a vote, was given a state of its own branch by it, and both lost their power before the fork was
/// anywhere else. The voter took its log for one that names former voters, and both waited for a person.
#[test]
fn who_is_given_a_state_of_the_own_branch_by_the_one_that_it_entrusted_decides_again() {
    let mut net = Net::new();
    net.bootstrap(1);
    for body in ["first", "second"] {
        net.propose(1, body);
        net.settle();
    }
    net.enter(2, Net::config(2), MemStore::new(), None);
    // The power fails when the joiner has a log, and before it has a vote.
    let given = net.deliver_a_state_to(2);
    let (log, kept) = (net.kill(1), net.kill(2));
    let data = end_of(&log);
    let lost = without_end(log.clone(), log.last().0 - given.index.0 + 1);
    net.restart(1, lost, 2, data);
    net.restart_without_data(2, kept.clone(), 2);
    assert_eq!(net.deliver_a_state_to(1), given);
    assert!(net.warned(1, "has the best log, and decides"));
    let log = net.kill(1);
    net.kill(2);
    net.restart(1, log, 3, data);
    net.restart_without_data(2, kept, 3);
    net.run(Duration::from_secs(20));
    for n in 1..=2 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}: {:?}", net.nodes[&n].group.status());
    }
}

/// Two voters have lost the ends of their logs, which the third member has: a state, and no vote and no data yet. Returned beside it.
fn two_voters_without_the_end_of_the_third() -> (Net, Base) {
    let mut net = Net::cluster(2);
    for body in ["first", "second"] {
        net.propose(1, body);
        net.settle();
    }
    net.enter(3, Net::config(3), MemStore::new(), None);
    let given = net.deliver_a_state_to(3);
    let kept = net.kill(3);
    for n in 1..=2 {
        let log = net.kill(n);
        let data = end_of(&log);
        let lost = without_end(log.clone(), log.last().0 - given.index.0 + u64::from(n));
        net.restart(n, lost, 2, data);
    }
    net.restart_without_data(3, kept, 2);
    (net, given)
}

/// Swarm seed 88012437: the same of two voters. The other one had heard of the new term before it was given the state, and did not remember whom it had
/// given its vote in the term before.
#[test]
fn a_voter_that_has_promised_the_one_that_entrusted_knows_its_voters_in_the_next_term_as_well() {
    let (mut net, given) = two_voters_without_the_end_of_the_third();
    assert_eq!(net.deliver_a_state_to(2), given);
    assert!(net.warned(1, "has the best log, and decides"));
    let log = net.nodes[&2].group.store();
    assert!(log.suspect().is_some() && !log.is_outdated());
}

/// The voter that entrusted, or the other one, is started again while the third decides, when it has heard of its term and got nothing yet.
#[test]
fn a_restart_forgets_neither_the_vote_nor_the_one_that_was_entrusted() {
    for n in 1..=2 {
        let (mut net, given) = two_voters_without_the_end_of_the_third();
        net.deliver_until(|net| {
            let hard = net.nodes[&n].group.store().hard_state();
            (net.nodes[&3].group.status().sequencer == Some(node(3)) && hard.vote.term < hard.term).then_some(())
        });
        assert!(net.warned(1, "has the best log, and decides"));
        let log = net.kill(n);
        let data = end_of(&log);
        net.restart(n, log, 3, data);
        assert_eq!(net.deliver_a_state_to(n), given);
        let log = net.nodes[&n].group.store();
        assert!(log.suspect().is_some() && !log.is_outdated(), "node {n}");
    }
}

/// A sequencer that was deposed has a longer log than the others, of an earlier term, and is too far behind to get theirs entry by entry. The
/// beginning of their state holds all that it acknowledged and that was committed.
#[test]
fn a_state_of_a_later_term_forgets_nothing_that_counts() {
    let mut net = Net::cluster(3);
    let deposed = net.sequencer();
    net.mute(deposed);
    for i in 0..9 {
        net.propose(deposed, &format!("uncommitted {i}"));
    }
    net.settle();
    net.isolate(deposed);
    net.lost.clear();
    net.run(Duration::from_secs(10));
    let new = net.nodes[&other(&[deposed])].group.status().sequencer.unwrap().0.0[0];
    let status = net.nodes[&new].group.status();
    assert!(status.committed < net.nodes[&deposed].group.status().last && status.committed == status.last);
    let base = trireme_types::Base {
        history: HISTORY,
        index: status.committed,
        term: status.term,
        seqno: Seqno(status.view.number),
        voters: status.voters,
        voters_at: status.committed,
        view: status.view,
        ..trireme_types::Base::default()
    };
    let state = Message::Snapshot { term: status.term, lineage: base.lineage.clone(), base: Box::new(base) };
    net.cut.clear();
    net.update_links();
    let now = net.now;
    let group = &mut net.nodes.get_mut(&deposed).unwrap().group;
    group.handle_message(now, node(new), state);
    assert_eq!(group.store().base().index, status.committed);
    assert_eq!(group.store().suspect(), None);
}

/// Swarm seed 7634: it died before that voter heard of the branch, and came back with a log on a branch that nobody could lead. Its own
/// vote was about to be added, so the others needed it.
#[test]
fn whoever_made_a_branch_for_a_voter_that_never_heard_of_it_goes_back() {
    let mut net = Net::cluster(3);
    let entries = |log: &MemStore| log.read(log.first(), usize::MAX).unwrap();
    let mut logs: Vec<MemStore> = (1..=3).map(|n| net.kill(n)).collect();
    let whole = entries(&logs[0]);
    let mut sets = whole.iter().filter(|e| e.header.kind == EntryKind::Voters).map(|e| e.header.index).rev();
    let (added, before) = (sets.next().unwrap(), sets.next().unwrap());
    // The first one has lost the entry that adds the third voter, and nobody knows whether it was committed.
    for (n, log) in logs.iter_mut().enumerate() {
        let end = [added.prev(), added, log.last()][n];
        log.truncate_after(end).unwrap();
        log.set_suspect(Some(end)).unwrap();
        let hard = HardState { voters_committed: before, committed: before, ..log.hard_state() };
        log.save_hard_state(hard).unwrap();
    }
    for (n, log) in (1..=3).zip(&logs) {
        net.restart(n, log.clone(), 2, Seqno(0));
    }
    net.run(Duration::from_secs(5));
    let mut third = net.kill(3);
    (1..=2).for_each(|n| drop(net.kill(n)));
    let fork = entries(&third).iter().find(|e| is_fork(e)).expect("it began a branch").header;
    // As it was when nothing of that had left it: the others had given their promises.
    third.truncate_after(fork.index).unwrap();
    third.set_suspect(Some(fork.index.prev())).unwrap();
    logs[2] = third;
    for (n, log) in (1..=3).zip(&mut logs) {
        let (term, vote) = (fork.term, Choice { term: fork.term, of: node(3) });
        let hard = HardState { term, vote, voters_committed: before, committed: before, ..log.hard_state() };
        log.save_hard_state(hard).unwrap();
        net.restart(n, log.clone(), 3, Seqno(0));
    }
    net.run(Duration::from_secs(60));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
    }
}

fn is_fork(e: &Entry) -> bool {
    e.header.kind == EntryKind::Voters && !VoterSet::decode(&mut Reader::new(&e.payload)).unwrap().fork.is_nil()
}

/// The server keeps all that it is given, also where the log loses its end. So the log names the newest term, and the newest branch, from
/// which the data hold anything.
#[test]
fn nothing_of_a_term_is_delivered_before_its_first_entry_is_on_the_own_disk() {
    let mut net = Net::cluster(5);
    let before = net.sequencer();
    let hangs = (1..=5).find(|n| *n != before).unwrap();
    net.stalled.push(hangs);
    net.kill(before);
    net.run(Duration::from_secs(2));
    let writer = (1..=5).find(|n| ![before, hangs].contains(n)).unwrap();
    net.propose(writer, "of the new term");
    net.run(Duration::from_secs(2));
    assert_eq!(net.bodies(writer), ["of the new term"], "the others are a majority");
    assert_eq!(net.phase(hangs), Phase::Primary);
    assert!(net.bodies(hangs).is_empty());
    let mut log = net.nodes[&hangs].group.store().clone();
    log.lose_unsynced();
    let held = end_of(&log);
    let given = net.nodes[&hangs].delivered.last().map_or(0, |(seqno, _)| *seqno);
    assert!(given <= held.0, "given up to {given}, and the log ends at {held}");
    net.stalled.clear();
    net.run(Duration::from_secs(1));
    assert_eq!(net.bodies(hangs), ["of the new term"]);
}

/// Entries before the first one of a term may be committed only by that one. The server gets them once the own disk names the term.
#[test]
fn what_lies_before_a_new_term_is_not_delivered_before_its_first_entry_is_on_the_own_disk() {
    let mut net = Net::cluster(5);
    let before = net.sequencer();
    let hangs = (1..=5).find(|n| *n != before).unwrap();
    net.stalled.push(hangs);
    net.nodes.get_mut(&hangs).unwrap().group.pause_delivery(true);
    net.propose(before, "of the old term");
    net.run(Duration::from_secs(1));
    net.kill(before);
    net.run(Duration::from_secs(2));
    net.nodes.get_mut(&hangs).unwrap().group.pause_delivery(false);
    net.run(Duration::from_secs(1));
    assert!(net.bodies(hangs).is_empty(), "its disk does not name the new term");
    net.stalled.clear();
    net.run(Duration::from_secs(1));
    assert_eq!(net.bodies(hangs), ["of the old term"]);
}

/// A later change of voters is not synced either. That does not get the first entry of the term acknowledged.
#[test]
fn the_first_of_two_landmarks_that_are_not_synced_bounds_what_is_acknowledged() {
    let without_sequencer = |hangs: u8| {
        let mut net = Net::cluster(5);
        let before = net.sequencer();
        let synced = net.nodes[&hangs].group.store().synced();
        net.stalled.push(hangs);
        net.kill(before);
        net.run(Duration::from_secs(2));
        (net.sequencer() != hangs).then_some((net, hangs, synced))
    };
    let before = Net::cluster(5).sequencer();
    let (mut net, hangs, synced) = (1..=5).filter(|n| *n != before).find_map(without_sequencer).unwrap();
    let seq = net.sequencer();
    let term = net.nodes[&seq].group.status().term;
    net.join(6);
    net.run(Duration::from_secs(8));
    let log = net.nodes[&hangs].group.store();
    let first = (synced.0..=log.last().0).map(LogIndex).find(|i| log.term_at(*i) == Some(term)).unwrap();
    let voters = net.nodes[&hangs].group.status().voters;
    assert!(voters.contains(node(6)), "a change of the voters: {voters:?}");
    assert!(synced < first && log.synced() == synced, "neither is synced: {first} {synced} {}", log.synced());
    let acked = net.nodes[&seq].group.held_by(node(hangs)).unwrap_or_default();
    assert!(acked < first, "it acknowledged {acked}, and has not synced {first}");
    net.stalled.clear();
    net.run(Duration::from_secs(1));
    let acked = net.nodes[&seq].group.held_by(node(hangs)).unwrap_or_default();
    assert_eq!(acked, net.nodes[&seq].group.store().last());
}

#[test]
fn a_single_node_goes_on_with_what_it_has() {
    let mut net = Net::cluster(1);
    net.propose(1, "a");
    net.settle();
    let lost = without_end(net.kill(1), 1);
    net.restart(1, lost, 2, Seqno(0));
    net.run(Duration::from_secs(10));
    assert_eq!(net.phase(1), Phase::Primary);
    assert!(net.warned(1, "may lack entries"));
}

#[test]
fn a_log_shorter_than_what_peers_heard_acknowledged_is_suspect() {
    let mut net = Net::cluster(3);
    let orders = net.sequencer();
    let restored = other(&[orders]);
    net.propose(orders, "in the backup");
    net.settle();
    let backup = net.nodes[&restored].group.store().clone();
    net.propose(orders, "not in the backup");
    net.settle();
    net.kill(restored);
    net.restart(restored, backup, 2, Seqno(0));
    net.update_links();
    for n in 1..=3 {
        net.drain(n);
    }
    assert_eq!(net.nodes[&restored].group.store().suspect(), None);
    // The first word of each peer, before it sends anything else.
    let at = net
        .queue
        .iter()
        .position(|(_, to, m)| {
            *to == restored && matches!(m, Message::InTerm(Envelope { content: Content::Recall { .. }, .. }))
        })
        .unwrap();
    let (from, _, recall) = net.queue.remove(at).unwrap();
    let now = net.now;
    net.nodes.get_mut(&restored).unwrap().group.handle_message(now, node(from), recall);
    assert!(net.nodes[&restored].group.store().suspect().is_some());
    net.run(Duration::from_secs(5));
    assert_eq!(net.bodies(restored), ["in the backup", "not in the backup"]);
    assert_eq!(net.nodes[&restored].group.store().suspect(), None);
}

/// Restored seed 976: an old disk from the time when its node was the only voter, and so "all voters" by itself.
#[test]
fn who_was_the_only_voter_on_an_old_disk_decides_nothing_alone() {
    let mut net = Net::cluster(1);
    net.propose(1, "in the backup");
    net.settle();
    let backup = net.nodes[&1].group.store().clone();
    (2..=3).for_each(|n| net.join(n));
    net.propose(1, "not in the backup");
    net.settle();
    net.kill(1);
    // Nobody else can be elected meanwhile.
    net.cut.push((2, 3));
    net.restart(1, backup, 2, Seqno(0));
    net.run(Duration::from_secs(20));
    assert!((1..=3).all(|n| net.phase(n) != Phase::Primary && !net.forked(n)), "the other one may have more");
    net.heal();
    net.run(Duration::from_secs(10));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert!(!net.forked(n));
    }
    assert!(net.bodies(2).contains(&"not in the backup".to_string()));
    assert_eq!(net.nodes[&1].group.status().delivered, net.nodes[&2].group.status().delivered);
}

/// Nodes `1..=then` were all voters once, and a third one is by now, which holds what their old disks lack. Each of these was told, and is
/// started again where the third one is not. By the voters that their logs name they are all there. `rebooted`: the copies are of running
/// members in mode `process` and are started on another boot, so they are suspect before anybody says anything.
fn old_disks_decide_nothing_by_the_voters_of_then(rebooted: bool) {
    for then in 1..=2u8 {
        let mut net = Net::cluster(then);
        net.propose(1, "in the backup");
        net.settle();
        let backups: Vec<MemStore> = (1..=then).map(|n| net.copy_disk(n, rebooted)).collect();
        (then + 1..=3).for_each(|n| net.join(n));
        net.propose(1, "not in the backup");
        net.settle();
        let told: Vec<MemStore> =
            (1..).zip(backups).map(|(n, old)| net.put_back_and_tell(n, old, tells_of_a_lack)).collect();
        let others = (1..=then).flat_map(|n| (then + 1..=3).map(move |other| (n, other)));
        net.cut.extend(others.chain([(2, 3)].into_iter().filter(|_| then == 1)));
        for (n, old) in (1..).zip(told) {
            assert!(old.suspect().is_some());
            net.restart(n, old, 3, Seqno(0));
        }
        net.run(Duration::from_secs(20));
        for n in 1..=then {
            assert!(net.phase(n) != Phase::Primary && !net.forked(n), "node {n}, one of {then} voters then");
            assert!(net.warned(n, "is an old copy"), "node {n}: {:?}", net.nodes[&n].events);
        }
        net.heal();
        net.run(Duration::from_secs(20));
        for n in 1..=3 {
            assert_eq!(net.phase(n), Phase::Primary, "node {n}");
            assert!(net.bodies(3).contains(&"not in the backup".to_string()));
            let store = net.nodes[&n].group.store();
            assert_eq!((store.suspect(), store.is_outdated()), (None, false), "node {n} has been repaired");
            assert_eq!(net.nodes[&n].group.status().delivered, net.nodes[&3].group.status().delivered);
        }
    }
}

#[test]
pub fn old_disks_that_were_told_so_decide_nothing_by_the_voters_of_then_after_a_restart() {
    old_disks_decide_nothing_by_the_voters_of_then(false);
}

#[test]
fn old_copies_on_another_boot_decide_nothing_by_the_voters_of_then() {
    old_disks_decide_nothing_by_the_voters_of_then(true);
}

/// No change of the voters gets lost with the power in mode `process`: such a member decides with all voters that its log names.
#[test]
fn whoever_lost_entries_with_its_power_is_told_of_them_and_is_not_outdated() {
    let mut net = Net::cluster(3);
    let orders = net.sequencer();
    let lost = other(&[orders]);
    net.propose(orders, "lost");
    net.settle();
    let log = without_end(net.nodes[&lost].group.store().clone(), 1);
    let told = net.put_back_and_tell(lost, log, tells_of_a_lack);
    assert!(told.suspect().is_some() && !told.is_outdated());
}

/// Restored seed 49: the third one heard of the commits of the other two, but followed nobody, and did not remember.
#[test]
fn who_follows_nobody_remembers_what_others_acknowledge() {
    for restarted in [false, true] {
        let mut net = Net::cluster(3);
        let orders = net.sequencer();
        let restored = other(&[orders]);
        let third = other(&[orders, restored]);
        net.propose(orders, "in the backup");
        net.settle();
        let backup = net.nodes[&restored].group.store().clone();
        net.cut.push((orders, third));
        if restarted {
            let store = net.kill(third);
            net.restart(third, store, 2, Seqno(0));
        }
        net.settle();
        net.propose(orders, "not in the backup");
        net.settle();
        assert!(!net.bodies(third).contains(&"not in the backup".to_string()));
        net.kill(restored);
        net.cut.push((orders, restored));
        net.restart(restored, backup, 2, Seqno(0));
        net.run(Duration::from_secs(20));
        assert!([restored, third].iter().all(|n| net.phase(*n) != Phase::Primary), "the first one has more");
        net.heal();
        net.run(Duration::from_secs(10));
        for n in 1..=3 {
            assert_eq!(net.phase(n), Phase::Primary, "node {n}");
            assert!(net.bodies(n).contains(&"not in the backup".to_string()), "node {n}");
        }
    }
}

/// Swarm seed 54570: a server lost with its power the end of what it had acknowledged. The peers had heard the acknowledgement and had
/// nothing of that end. They refused it their votes for ever, although their logs together prove that nothing committed is missing.
#[test]
fn the_best_log_that_is_left_gets_the_votes_of_those_that_heard_more_of_it_acknowledged() {
    let mut net = Net::cluster(3);
    let best = net.sequencer();
    let others = [other(&[best]), other(&[best, other(&[best])])];
    for body in ["only here", "only here and lost"] {
        net.propose(best, body);
        net.drain(best);
        net.queue.retain(|(_, _, m)| {
            !matches!(m, Message::InTerm(Envelope { content: Content::Append(_), .. }) | Message::Submit { .. })
        });
        net.settle();
    }
    assert!(others.iter().all(|n| net.bodies(*n).is_empty()));
    let log = without_end(net.kill(best), 1);
    net.settle();
    // Nobody else can be elected.
    net.cut.push((others[0], others[1]));
    net.restart(best, log, 2, Seqno(0));
    net.run(Duration::from_secs(5));
    for n in 1..=3 {
        assert_eq!(net.bodies(n), ["only here"]);
        assert!(!net.forked(n));
    }
}

/// A group of `size` on a branch that was forced. The last one's log has lost so much that the fork is gone, too.
fn fork_lost_by_the_last(size: u8) -> (Net, Vec<MemStore>) {
    let mut net = Net::cluster(size);
    net.propose(1, "before");
    net.settle();
    (2..=size).for_each(|n| net.isolate(n));
    net.run(Duration::from_secs(8));
    net.force(1);
    net.heal();
    net.run(Duration::from_secs(8));
    assert_eq!(net.nodes[&1].group.status().voters.voters.len(), usize::from(size));
    net.propose(1, "behind the fork");
    net.settle();
    let fork = *net.nodes[&1].group.lineage().newest().unwrap();
    let mut logs: Vec<MemStore> = (1..=size).map(|n| net.kill(n)).collect();
    let last = logs.last_mut().unwrap();
    last.truncate_after(fork.index.prev()).unwrap();
    last.set_suspect(Some(fork.index.prev())).unwrap();
    (net, logs)
}

/// Swarm seeds 70593 and 98022: a voter whose fork was lost with the power took questions of the branch for somebody else's. Its promise
/// was needed, and nobody could go on.
#[test]
fn a_voter_that_lost_the_fork_promises_to_those_who_have_it_and_follows_again() {
    let (mut net, logs) = fork_lost_by_the_last(2);
    for (n, log) in (1..).zip(logs) {
        net.restart(n, log, 2, Seqno(0));
    }
    net.run(Duration::from_secs(10));
    for n in 1..=2 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert_eq!(net.bodies(n), ["before", "behind the fork"], "node {n}");
        assert_eq!(net.nodes[&n].group.lineage().forks().len(), 1, "the whole log is half of all voters");
        assert_eq!(net.nodes[&n].group.store().suspect(), None, "node {n} has been repaired");
        assert_eq!(net.nodes[&n].group.status().voters.voters.len(), 2, "it never lost its vote");
    }
}

/// A group of `size` that is started again, but for the third one, whose log is given. The second one's log is damaged from its beginning on.
fn second_lost_all(size: u8, hard: impl Fn(HardState) -> HardState) -> (Net, Option<MemStore>) {
    let mut net = Net::cluster(size);
    net.propose(1, "before");
    net.settle();
    let mut logs: Vec<MemStore> = (1..=size).map(|n| net.kill(n)).collect();
    let empty = damaged_from_its_beginning(hard(logs[1].hard_state()));
    net.restart(1, logs.remove(0), 2, Seqno(0));
    net.restart_without_data(2, empty, 2);
    net.run(Duration::from_secs(20));
    (net, logs.into_iter().nth(1))
}

fn second_of_two_lost_all() -> (Net, [MemStore; 2]) {
    let mut net = Net::cluster(2);
    net.propose(1, "before");
    net.settle();
    let (whole, second) = (net.kill(1), net.kill(2));
    (net, [whole, damaged_from_its_beginning(second.hard_state())])
}

/// Swarm seed 71034642: an arbitrator whose log was damaged from its beginning on did not answer. It was one of two voters, and nobody could go
/// on.
#[test]
fn a_voter_that_lost_its_whole_log_promises_and_is_brought_up() {
    let (net, _) = second_lost_all(2, |hard| hard);
    for n in 1..=2 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert_eq!(net.nodes[&n].group.store().suspect(), None, "node {n} counts again");
        assert_eq!(net.nodes[&n].group.status().voters.voters.len(), 2, "it never lost its vote");
        assert!(net.nodes[&n].group.lineage().forks().is_empty(), "the whole log is half of all voters");
    }
    assert_eq!(net.bodies(1), ["before"]);
}

/// The state that a voter is given is from when it voted alone, since its data end there. It is cut off before it hears of the others. Nothing is left of
/// its log, or a beginning that ends before that state, and of the marks that told of the others nothing is left in the new log.
#[test]
fn a_voter_that_is_given_a_state_of_former_voters_does_not_decide_alone() {
    for is_empty in [true, false] {
        let mut net = Net::new();
        net.bootstrap(1);
        for body in ["a", "b", "c"] {
            net.propose(1, body);
            net.settle();
        }
        net.join(2);
        net.join(3);
        let alone = net.nodes[&2].group.store().base().clone();
        assert_eq!(alone.voters.voters.len(), 1);
        let (log, others) = (net.kill(1), [2, 3].map(|n| (n, net.kill(n))));
        let kept = match is_empty {
            true => damaged_from_its_beginning(log.hard_state()),
            false => without_end(log.clone(), log.last().0 - alone.index.0 + 2),
        };
        // Nobody remembers who acknowledged what.
        for (n, log) in others {
            let data = end_of(&log);
            net.restart(n, log, 2, data);
        }
        net.run(Duration::from_secs(5));
        net.hand_order_to(2);
        net.restart(1, kept, 2, alone.seqno);
        assert_eq!(net.deliver_a_state_to(1), alone);
        net.isolate(1);
        net.run(Duration::from_secs(30));
        assert_ne!(net.phase(1), Phase::Primary, "the others decide without it");
        assert!((2..=3).all(|n| net.phase(n) == Phase::Primary));
        net.heal();
        net.run(Duration::from_secs(10));
        for n in 1..=3 {
            assert_eq!(net.phase(n), Phase::Primary, "node {n}");
            assert!(net.nodes[&n].group.lineage().forks().is_empty());
            assert_eq!(net.nodes[&n].group.store().suspect(), None, "node {n} counts again");
        }
    }
}

/// A state takes longer than an election: the sequencer hears meanwhile that the promise holds, and does not begin anew.
#[test]
fn the_state_for_a_voter_that_lost_its_whole_log_may_take_long() {
    let (mut net, [whole, empty]) = second_of_two_lost_all();
    net.restart(1, whole, 2, Seqno(0));
    net.restart_without_data(2, empty, 2);
    let (mut held, mut terms) = (None, BTreeSet::new());
    let end = net.now.after(Duration::from_secs(60));
    while net.now < end {
        net.drain_all();
        match net.next_message() {
            Some((_, _, state @ Message::Snapshot { term, .. })) => {
                terms.insert(term);
                held.get_or_insert(state);
            }
            Some((from, to, message)) => {
                let now = net.now;
                net.nodes.get_mut(&to).unwrap().group.handle_message(now, node(from), message);
            }
            None => {}
        }
    }
    assert_eq!(terms.len(), 1, "the sequencer of one term sends all states: {terms:?}");
    let (now, state) = (net.now, held.expect("a state was sent"));
    net.nodes.get_mut(&2).unwrap().group.handle_message(now, node(1), state);
    net.run(Duration::from_secs(5));
    assert!([1, 2].iter().all(|n| net.phase(*n) == Phase::Primary));
    assert_eq!(net.bodies(1), ["before"]);
}

/// Nobody else has anything: the best log of all is gone on with.
#[test]
fn where_one_lost_its_whole_log_and_the_others_are_suspect_all_together_go_on() {
    let (mut net, [whole, empty]) = second_of_two_lost_all();
    net.restart(1, without_end(whole, 0), 2, Seqno(0));
    net.restart_without_data(2, empty, 2);
    net.run(Duration::from_secs(20));
    assert!([1, 2].iter().all(|n| net.phase(*n) == Phase::Primary));
    assert_eq!(net.bodies(1), ["before"]);
    assert_eq!(net.nodes[&1].group.lineage().forks().len(), 1, "something may be gone");
}

#[test]
fn a_voter_whose_build_did_not_note_the_branch_gives_its_vote() {
    let (net, _) = second_lost_all(2, |hard| HardState { branch: Uuid::NIL, ..hard });
    assert!([1, 2].iter().all(|n| net.phase(*n) == Phase::Primary));
}

/// It may have acknowledged on the branch that it went over to what the first one never had.
#[test]
fn a_voter_that_lost_a_log_of_another_branch_gives_no_vote() {
    let (net, _) = second_lost_all(2, |hard| HardState { branch: Uuid([77; 16]), ..hard });
    assert!([1, 2].iter().all(|n| net.phase(*n) != Phase::Primary));
    assert!(net.warned(1, "nothing is left of the write-set logs of"));
}

/// The third one may hold what the second lost and the first never had.
#[test]
fn a_voter_that_lost_its_whole_log_is_no_evidence() {
    let (mut net, third) = second_lost_all(3, |hard| hard);
    assert!([1, 2].iter().all(|n| net.phase(*n) != Phase::Primary));
    net.restart(3, third.unwrap(), 2, Seqno(0));
    net.run(Duration::from_secs(20));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert!(net.nodes[&n].group.lineage().forks().is_empty(), "node {n}: two whole logs");
    }
}

/// Swarm seed 72112783: the log of the only voter had lost the end, and named nobody else any more. It left the decision to the one with the
/// best log, and refused what that one went on with as a stranger's.
#[test]
fn a_voter_whose_log_names_nobody_else_follows_whom_it_left_the_decision_to() {
    let mut net = Net::new();
    net.bootstrap(1);
    net.join(3);
    net.run(Duration::from_secs(2));
    let now = net.now;
    net.nodes.get_mut(&3).unwrap().group.leave(now);
    net.run(Duration::from_secs(10));
    net.kill(3);
    net.propose(1, "before");
    net.settle();
    net.say(1, "without a seqno");
    net.settle();
    net.join(2);
    net.run(Duration::from_secs(2));
    let (mut first, mut second) = (net.kill(1), net.kill(2));
    let base = second.base().clone();
    second.truncate_after(base.index).unwrap();
    first.truncate_after(base.index.prev()).unwrap();
    for log in [&mut first, &mut second] {
        log.set_suspect(Some(log.last())).unwrap();
        let hard = HardState { voters_committed: base.voters_at, committed: base.voters_at, ..log.hard_state() };
        log.save_hard_state(hard).unwrap();
    }
    net.restart(1, first, 2, base.seqno);
    net.restart(2, second, 2, base.seqno);
    net.run(Duration::from_secs(30));
    for n in 1..=2 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
    }
    assert!(net.warned(1, "decides what is gone on with"));
}

/// It is evidence of nothing: the third one may hold what the second lost and the first never had.
#[test]
fn a_voter_that_lost_the_fork_is_no_evidence() {
    let (mut net, logs) = fork_lost_by_the_last(3);
    let [first, second, third]: [MemStore; 3] = logs.try_into().ok().unwrap();
    let (first, second) = (without_end(first, 2), without_end(second, 1));
    net.restart(1, first, 2, Seqno(0));
    net.restart(3, third, 2, Seqno(0));
    net.run(Duration::from_secs(20));
    assert!([1, 3].iter().all(|n| net.phase(*n) != Phase::Primary), "the second may have more");
    net.restart(2, second, 2, Seqno(0));
    net.run(Duration::from_secs(10));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert_eq!(net.bodies(n)[0], "before", "node {n}");
        assert_eq!(net.nodes[&n].group.lineage().forks().len(), 2, "node {n}: all were suspect");
    }
}

/// Its data have outlived the end of its log, and nobody can tell on which branch they are. So it cannot follow, and needs a copy. But it
/// kept its promise back as well, and without that nobody could go on.
#[test]
fn a_voter_whose_data_lie_behind_the_fork_that_it_lost_promises_all_the_same() {
    let (mut net, logs) = fork_lost_by_the_last(3);
    let end = end_of(&logs[0]);
    let [first, second, third]: [MemStore; 3] = logs.try_into().ok().unwrap();
    net.restart(1, first, 2, Seqno(0));
    net.restart(2, without_end(second, 1), 2, Seqno(0));
    net.restart(3, third, 2, end);
    net.run(Duration::from_secs(20));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert_eq!(net.nodes[&n].group.status().voters.voters.len(), 3, "it never lost its vote");
    }
    assert_eq!(net.bodies(1), ["before", "behind the fork"]);
    assert!(
        net.nodes[&3].events.contains(&Event::DataDiverged),
        "its data are marked as void before its log is replaced"
    );
}

/// Without its acknowledgement nothing is committed, and so no state is offered to it: its log goes on, and its data go before.
#[test]
fn of_two_voters_the_log_follows_although_the_data_lie_behind_the_fork_that_it_lost() {
    let (mut net, logs) = fork_lost_by_the_last(2);
    let end = end_of(&logs[0]);
    let [first, second]: [MemStore; 2] = logs.try_into().ok().unwrap();
    net.restart(1, first, 2, Seqno(0));
    net.restart(2, second, 2, end);
    net.run(Duration::from_secs(20));
    for n in 1..=2 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert_eq!(net.nodes[&n].group.lineage().forks().len(), 1, "the whole log is half of all voters");
        assert_eq!(net.nodes[&n].group.status().voters.voters.len(), 2, "it never lost its vote");
        assert_eq!(net.nodes[&n].group.store().suspect(), None, "node {n} has been repaired");
    }
    assert_eq!(net.bodies(1), ["before", "behind the fork"]);
    assert!(net.nodes[&2].events.contains(&Event::DataDiverged), "its data are void");
}

/// The other one has no data that could be copied.
#[test]
fn of_two_voters_the_only_data_are_not_given_up_for_the_log() {
    let (mut net, logs) = fork_lost_by_the_last(2);
    let end = end_of(&logs[0]);
    let [first, second]: [MemStore; 2] = logs.try_into().ok().unwrap();
    net.copies = false;
    let mut cfg = Net::config(1);
    cfg.me.incarnation = trireme_types::Incarnation(2);
    net.start(1, cfg, first, None);
    let now = net.now;
    net.nodes.get_mut(&1).unwrap().group.join(now, JoinState { position: None });
    net.restart(2, second, 2, end);
    net.run(Duration::from_secs(20));
    assert!(!net.nodes[&2].events.contains(&Event::DataDiverged), "nobody else has any");
}

/// Swarm seed 76271: with the end of its log it lost that it votes, and its data end before its log begins. It must not wait for another
/// log: only a sequencer gives one, and there is none without its acknowledgement.
#[test]
fn a_voter_that_lost_its_vote_is_brought_up_before_it_gets_another_log() {
    for suspect in [true, false] {
        let mut net = Net::new();
        net.copies = false;
        net.bootstrap(1);
        for n in 0..10 {
            net.propose(1, &format!("before {n}"));
            net.settle();
        }
        net.join(2);
        assert_eq!(net.nodes[&1].group.status().voters.voters.len(), 2);
        net.propose(1, "acknowledged");
        net.settle();
        let kept = net.kill(1);
        let mut lost = net.kill(2);
        let base = lost.base().clone();
        assert!(base.seqno > Seqno(5) && !base.voters.contains(node(2)));
        lost.truncate_after(base.index).unwrap();
        lost.set_suspect(suspect.then_some(base.index)).unwrap();
        net.restart(1, kept, 2, Seqno(11));
        net.restart(2, lost, 2, Seqno(5));
        net.run(Duration::from_secs(10));
        for n in 1..=2 {
            assert_eq!(net.phase(n), Phase::Primary, "node {n}, suspect {suspect}");
            assert_eq!(net.nodes[&n].group.status().voters.voters.len(), 2, "node {n}, suspect {suspect}");
        }
        assert_eq!(net.nodes[&2].group.store().base().index, base.index, "votes follow the log (rule 10)");
        net.propose(2, "after");
        net.settle();
        assert_eq!(net.bodies(1).last().unwrap(), "after");
        assert!(net.bodies(2).contains(&"acknowledged".to_string()));
    }
}

/// It had acknowledged an entry that a later term has replaced. It was interrupted when it had taken its own entry off, before it had got
/// the other one.
#[test]
fn an_acknowledgement_of_what_a_later_term_has_replaced_is_held_against_nobody() {
    let mut net = Net::cluster(3);
    let s = net.sequencer();
    let [v, w] = [1, 2, 3].into_iter().filter(|n| *n != s).collect::<Vec<_>>()[..] else { panic!() };
    net.propose(s, "common");
    net.settle();
    let common = net.nodes[&s].group.store().last();
    // Only the one has it on disk, and the other one hears it say so.
    net.stalled.push(s);
    net.lost = vec![(s, w)];
    net.propose(s, "replaced");
    net.settle();
    let (mut lost, mut cut_short) = (net.kill(s), net.kill(v));
    assert_eq!(cut_short.last(), common.next());
    net.lost.clear();
    net.stalled.clear();
    lost.truncate_after(common).unwrap();
    net.restart(s, lost, 2, Seqno(2));
    net.run(Duration::from_secs(5));
    net.propose(s, "of the later term");
    net.settle();
    assert!(net.nodes[&w].group.store().last() > common.next());
    cut_short.truncate_after(common).unwrap();
    net.restart(v, cut_short, 2, Seqno(2));
    net.run(Duration::from_secs(5));
    assert_eq!(net.phase(v), Phase::Primary);
    assert!(!net.warned(v, "a peer has seen this node acknowledge"), "{:?}", net.nodes[&v].events);
}
