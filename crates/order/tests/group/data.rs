//! Data that reach beyond every log (rules 16, 18): all voters together go on from those that reach furthest.

use std::time::Duration;

use trireme_order::{Config, Content, Event, JoinState, LogStore, MemStore, Message, Phase};
use trireme_types::{EntryKind, HardState, Incarnation, LogIndex, MemberKind, Seqno, Weight};

use crate::net::*;

/// All have acknowledged so many; then all machines lose their power, and of each log so many entries are left out at the end.
fn all_lose_power(commits: u64, lost: [u64; 3]) -> (Net, Seqno, Vec<MemStore>) {
    let mut net = Net::cluster(3);
    for n in 0..commits {
        net.propose(1, &format!("commit {n}"));
        net.settle();
    }
    let end = Seqno(net.nodes[&1].delivered.last().unwrap().0);
    let logs = (1..=3).zip(lost).map(|(n, lost)| {
        let mut log = net.kill(n);
        let end = LogIndex(log.last().0 - lost);
        log.truncate_after(end).unwrap();
        log.set_suspect(Some(end)).unwrap();
        log
    });
    let logs: Vec<MemStore> = logs.collect();
    (net, end, logs)
}

fn base_of(net: &Net, n: u8) -> Seqno {
    net.nodes[&n].group.store().base().seqno
}

#[test]
fn the_history_goes_on_from_the_data_that_reach_furthest_once_all_voters_are_back() {
    let (mut net, end, logs) = all_lose_power(10, [5, 9, 7]);
    // The best log is the first one's; the second and the third have applied everything, the first has not.
    let data = [Seqno(end.0 - 6), end, end];
    for n in [1, 2] {
        net.restart(n, logs[usize::from(n) - 1].clone(), 2, data[usize::from(n) - 1]);
    }
    net.run(Duration::from_secs(20));
    assert!([1, 2].iter().all(|n| net.phase(*n) != Phase::Primary), "the third may have more");
    assert!(net.warned(1, "When all voters are back"));
    net.restart(3, logs[2].clone(), 2, data[2]);
    net.run(Duration::from_secs(10));
    let branch = net.nodes[&1].group.lineage().branch(HISTORY);
    assert_ne!(branch, HISTORY);
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert_eq!(net.nodes[&n].group.lineage().branch(HISTORY), branch, "node {n}");
        assert_eq!(net.nodes[&n].group.status().voters.voters.len(), 3);
        assert_eq!(net.nodes[&n].group.store().suspect(), None);
        assert!(!net.nodes[&n].events.contains(&Event::DataDiverged), "node {n}");
    }
    // Data that end at the very position of the new branch go on, those that end before it are replaced.
    assert_eq!([base_of(&net, 2), base_of(&net, 3)], [end, end]);
    assert!(base_of(&net, 1) > data[0]);
    let fork = *net.nodes[&1].group.lineage().newest().unwrap();
    assert_eq!(fork.seqno, end);
    net.propose(1, "after");
    net.settle();
    for n in 1..=3 {
        assert_eq!(net.bodies(n).last().unwrap(), "after");
        assert!(net.nodes[&n].delivered.last().unwrap().0 > end.0);
    }
}

/// A candidate is frozen, and reads the last promises before the words that were said meanwhile.
#[test]
fn what_a_voter_told_before_the_candidate_stood_still_decides_nothing() {
    let (mut net, end, logs) = all_lose_power(10, [5, 9, 7]);
    let data = [Seqno(end.0 - 6), end, Seqno(end.0 - 6)];
    for (n, (log, data)) in (1..).zip(logs.into_iter().zip(data)) {
        net.restart(n, log, 2, data);
    }
    let mut late = 0;
    while late < 2 {
        net.drain_all();
        let Some((from, to, message)) = net.next_message() else { continue };
        if matches!(message.content(), Some(Content::VoteReply { .. })) {
            net.now = net.now.after(Duration::from_secs(4));
            late += 1;
        }
        let now = net.now;
        net.nodes.get_mut(&to).unwrap().group.handle_message(now, node(from), message);
    }
    net.run(Duration::from_secs(20));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert_eq!(net.nodes[&n].group.lineage().newest().unwrap().seqno, end, "the data of node 2 go on");
    }
}

#[test]
fn a_log_that_covers_all_data_goes_before_any_data() {
    let (mut net, end, logs) = all_lose_power(10, [0, 9, 7]);
    let bases: Vec<Seqno> = logs.iter().map(|log| log.base().seqno).collect();
    for (n, log) in (1..=3).zip(logs) {
        net.restart(n, log, 2, if n == 2 { end } else { Seqno(0) });
    }
    net.run(Duration::from_secs(10));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert_eq!(net.bodies(n).len(), 10, "node {n}");
        assert_eq!(base_of(&net, n), bases[usize::from(n) - 1], "nobody needs a copy");
        assert!(!net.nodes[&n].events.contains(&Event::DataDiverged), "node {n}");
    }
}

fn arbitrator() -> Config {
    let mut cfg = Net::config(3);
    cfg.me.kind = MemberKind::Arbitrator;
    cfg
}

/// Two servers, and as the third an arbitrator that has joined them.
fn two_and_an_arbitrator() -> Net {
    let mut net = Net::cluster(2);
    net.start(3, arbitrator(), MemStore::new(), None);
    let third = net.nodes.get_mut(&3).unwrap();
    third.group.store_mut().checkpoint_every = 5;
    third.group.join(net.now, JoinState { position: None });
    net.run(Duration::from_secs(2));
    net
}

/// Two servers and an arbitrator, with 30 commits, before all lose their power. Gives their logs: the servers' without so many entries at
/// the end, the arbitrator's without most of what lies more than `kept` entries below the end.
fn two_servers_and_an_arbitrator(lost: [u64; 2], kept: u64) -> (Net, Vec<MemStore>) {
    let mut net = two_and_an_arbitrator();
    assert_eq!(net.nodes[&1].group.status().voters.voters.len(), 3);
    for n in 0..30 {
        net.propose(1, &format!("commit {n}"));
        net.settle();
    }
    let mut logs: Vec<MemStore> = (1..=3).map(|n| net.kill(n)).collect();
    let end = logs[0].last();
    for (log, lost) in logs.iter_mut().zip([lost[0], lost[1], 0]) {
        let kept = LogIndex(end.0 - lost);
        log.truncate_after(kept).unwrap();
        log.set_suspect(Some(kept)).unwrap();
    }
    logs[2].trim(LogIndex(end.0 - kept));
    assert!(logs[2].base().index > LogIndex(end.0 - kept - 7), "the arbitrator has dropped the rest");
    (net, logs)
}

fn start_arbitrator(net: &mut Net, log: MemStore) {
    let mut cfg = arbitrator();
    cfg.me.incarnation = Incarnation(2);
    net.enter(3, cfg, log, None);
}

/// Two servers and an arbitrator lose their power. The arbitrator has kept the most, but only the end of it. The data reach the beginning
/// of a server's log, and that log reaches the beginning of the arbitrator's.
#[test]
fn what_only_an_arbitrator_has_kept_is_brought_to_a_server_whose_log_reaches_it() {
    let (mut net, mut logs) = two_servers_and_an_arbitrator([4, 9], 5);
    let third = logs.pop().unwrap();
    for (n, log) in (1..=2).zip(logs) {
        net.restart(n, log, 2, Seqno(0));
    }
    start_arbitrator(&mut net, third);
    net.run(Duration::from_secs(20));
    for n in 1..=2 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert_eq!(net.bodies(n).last().unwrap(), "commit 29", "node {n}");
        assert_eq!(net.bodies(n).len(), 30, "node {n}");
    }
}

/// No server's log reaches the beginning of the arbitrator's, but the data of one do.
#[test]
fn what_only_an_arbitrator_has_kept_is_brought_to_a_server_whose_data_reach_it() {
    for beyond in [0, 3] {
        let (mut net, logs) = two_servers_and_an_arbitrator([15, 20], 5);
        let (base, end) = (logs[2].base().clone(), end_of(&logs[2]));
        assert!(logs[0].last() < base.index && logs[1].last() < base.index);
        let data = Seqno(base.seqno.0 + beyond);
        net.restart(1, logs[0].clone(), 2, Seqno(3));
        net.restart(2, logs[1].clone(), 2, data);
        start_arbitrator(&mut net, logs[2].clone());
        net.run(Duration::from_secs(20));
        for n in 1..=2 {
            assert_eq!(net.phase(n), Phase::Primary, "node {n}");
            assert_eq!(net.nodes[&n].group.store().suspect(), None, "node {n}");
            assert!(!net.nodes[&n].events.contains(&Event::DataDiverged), "node {n}");
        }
        assert_eq!(base_of(&net, 2), base.seqno, "it needs no copy");
        let given: Vec<u64> = net.nodes[&2].delivered.iter().map(|(seqno, _)| *seqno).collect();
        assert_eq!(given, (base.seqno.0 + 1..=end.0).collect::<Vec<_>>());
        assert_eq!(net.bodies(2).last().unwrap(), "commit 29");
        assert_eq!(net.nodes[&1].group.lineage().newest().unwrap().seqno, end, "nothing is lost");
    }
}

/// Swarm seed 78792618: those data are where a state file claims, and the engine could not be asked. They may end before, and then only the log here
/// goes on from them. Nobody else has any that reach so far, so it stays however long that takes.
#[test]
fn data_that_are_only_claimed_do_not_cost_the_log_that_would_replay_them() {
    let (mut net, logs) = two_servers_and_an_arbitrator([15, 20], 5);
    let (base, own) = (logs[2].base().clone(), logs[1].last());
    net.restart(1, logs[0].clone(), 2, Seqno(3));
    restart_unheard(&mut net, 2, logs[1].clone(), base.seqno);
    start_arbitrator(&mut net, logs[2].clone());
    net.run(Duration::from_secs(300));
    assert!(net.nodes[&2].group.awaits_engine_disk());
    assert_eq!(net.nodes[&2].group.store().last(), own, "its log was replaced");
    assert!(net.warned(2, "the write-set log here stays"));
    net.nodes.get_mut(&2).unwrap().group.note_engine_disk(net.now, base.seqno);
    net.run(Duration::from_secs(20));
    assert_eq!(base_of(&net, 2), base.seqno, "it needs no copy");
    assert_eq!(net.bodies(2).last().unwrap(), "commit 29");
}

/// Swarm seed 75095654: an arbitrator has joined, of which the logs of both servers have lost every trace. The one without data leaves the
/// decision to it; the other one, whose data it can go on from, takes its state because the first vouches for it.
#[test]
fn whoever_leaves_the_decision_to_an_arbitrator_vouches_for_it() {
    let mut net = Net::cluster(2);
    for n in 0..10 {
        net.propose(1, &format!("commit {n}"));
        net.settle();
    }
    let mut cfg = arbitrator();
    cfg.me.weight = Weight(0);
    net.enter(3, cfg.clone(), MemStore::new(), None);
    net.run(Duration::from_secs(2));
    let mut logs: Vec<MemStore> = (1..=3).map(|n| net.kill(n)).collect();
    let base = logs[2].base().clone();
    for (log, lost) in logs.iter_mut().zip([4, 2]) {
        let kept = LogIndex(base.index.0 - lost);
        log.truncate_after(kept).unwrap();
        log.set_suspect(Some(kept)).unwrap();
        let hard = HardState { voters_committed: base.voters_at, committed: base.voters_at, ..log.hard_state() };
        log.save_hard_state(hard).unwrap();
    }
    net.restart(1, logs[0].clone(), 2, base.seqno);
    net.restart(2, logs[1].clone(), 2, Seqno(0));
    cfg.me.incarnation = Incarnation(2);
    net.enter(3, cfg, logs[2].clone(), None);
    net.run(Duration::from_secs(60));
    assert!(net.warned(2, "decides what is gone on with"));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
    }
    assert!(!net.warned(1, "has never named it"), "it does not wait until the other one follows");
    assert_eq!(base_of(&net, 1), base.seqno, "it needs no copy");
}

/// Swarm seed 75176897: an arbitrator has most of the weight, and has dropped what the server with the rest of it lacks. The server without
/// weight has all of it, and is handed the order.
#[test]
fn an_arbitrator_hands_over_to_a_server_without_weight_where_it_can_bring_up_no_other() {
    let weighing = |n: u8, weight: u8, incarnation: u32| {
        let mut cfg = if n == 3 { arbitrator() } else { Net::config(n) };
        (cfg.me.weight, cfg.me.incarnation) = (Weight(weight), Incarnation(incarnation));
        cfg
    };
    let mut net = Net::new();
    net.bootstrap(1);
    for (n, weight) in [(2, 0), (3, 2)] {
        net.start(n, weighing(n, weight, 1), MemStore::new(), None);
        net.nodes.get_mut(&n).unwrap().group.store_mut().checkpoint_every = 5;
        net.nodes.get_mut(&n).unwrap().group.join(net.now, JoinState { position: None });
        net.run(Duration::from_secs(2));
    }
    for n in 0..30 {
        net.propose(1, &format!("commit {n}"));
        net.settle();
    }
    let mut logs: Vec<MemStore> = (1..=3).map(|n| net.kill(n)).collect();
    let end = logs[2].last();
    for (log, lacks) in logs.iter_mut().zip([15, 1]) {
        log.truncate_after(LogIndex(end.0 - lacks)).unwrap();
    }
    logs[2].trim(LogIndex(end.0 - 5));
    assert!(logs[2].base().index > logs[0].last() && logs[2].base().index < logs[1].last());
    for (n, weight) in [(1, 1), (2, 0), (3, 2)] {
        let server = Some(Seqno(0)).filter(|_| n < 3);
        net.enter(n, weighing(n, weight, 2), logs[usize::from(n) - 1].clone(), server);
    }
    net.run(Duration::from_secs(20));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
    }
    for n in 1..=2 {
        assert_eq!(net.bodies(n).last().unwrap(), "commit 29", "node {n}");
        assert_eq!(net.bodies(n).len(), 30, "node {n}");
    }
    // And once more, when it has all that the arbitrator has.
    net.kill(1);
    net.run(Duration::from_secs(20));
    assert_eq!(net.phase(2), Phase::Primary);
    let log = net.kill(2);
    net.run(Duration::from_secs(20));
    let end = end_of(&log);
    net.enter(2, weighing(2, 0, 3), log, Some(end));
    net.run(Duration::from_secs(20));
    assert_eq!(net.phase(2), Phase::Primary);
}

/// The arbitrator has begun a branch for one of the servers and says what it acknowledges there, but is cut off before anybody has the branch. It
/// gives that up, and nobody takes its log for an old one for want of it.
#[test]
fn a_branch_that_an_arbitrator_has_given_up_is_not_missed() {
    let (mut net, mut logs) = two_servers_and_an_arbitrator([15, 20], 5);
    let data = Seqno(logs[2].base().seqno.0 + 1);
    net.restart(1, logs[0].clone(), 2, Seqno(3));
    net.restart(2, logs[1].clone(), 2, data);
    logs[2].set_suspect(None).unwrap();
    start_arbitrator(&mut net, logs[2].clone());
    let branch_of = |m: &Message| match m.content() {
        Some(Content::Append(append)) => append.entries.iter().any(|(header, _)| header.kind == EntryKind::Voters),
        _ => false,
    };
    let mut told = false;
    let mut until = net.now.after(Duration::from_secs(20));
    while net.now < until {
        net.drain_all();
        let Some((from, to, message)) = net.next_message() else { continue };
        if from == 3 && net.forked(3) && branch_of(&message) {
            continue;
        }
        if (from, to) == (3, 2) && net.forked(3) && matches!(message.content(), Some(Content::Ack { .. })) && !told {
            told = true;
            net.cut = vec![(1, 2), (1, 3)];
            net.lost = vec![(2, 3)];
            net.update_links();
            until = net.now.after(Duration::from_secs(3));
        }
        net.nodes.get_mut(&to).unwrap().group.handle_message(net.now, node(from), message);
    }
    assert!(told, "the arbitrator has not decided");
    assert!(!net.forked(3), "it has given the branch up");
    net.lost.clear();
    net.heal();
    net.run(Duration::from_secs(30));
    assert!(!net.warned(3, "an old copy"), "it acknowledged the beginning of the branch");
    assert!((1..=3).all(|n| net.phase(n) == Phase::Primary));
    assert_eq!(net.bodies(2).last().unwrap(), "commit 29");
}

#[test]
fn a_person_who_decides_for_a_server_whose_data_reach_the_arbitrators_log_gets_both() {
    let (mut net, logs) = two_servers_and_an_arbitrator([15, 20], 5);
    let base = logs[2].base().clone();
    net.restart(2, logs[1].clone(), 2, Seqno(base.seqno.0 + 1));
    start_arbitrator(&mut net, logs[2].clone());
    net.run(Duration::from_secs(20));
    assert!([2, 3].iter().all(|n| net.phase(*n) != Phase::Primary), "the first one may have more");
    net.force(2);
    net.run(Duration::from_secs(5));
    assert_eq!(net.phase(2), Phase::Primary);
    assert_eq!(base_of(&net, 2), base.seqno);
    assert_eq!(net.bodies(2).last().unwrap(), "commit 29");
    net.restart(1, logs[0].clone(), 2, Seqno(3));
    net.run(Duration::from_secs(10));
    assert_eq!(net.phase(1), Phase::Primary);
}

#[test]
fn what_an_arbitrator_has_kept_and_no_data_reach_is_lost_in_words() {
    for forced in [false, true] {
        let (mut net, logs) = two_servers_and_an_arbitrator([15, 20], 5);
        let data = Seqno(logs[2].base().seqno.0 - 1);
        start_arbitrator(&mut net, logs[2].clone());
        net.restart(2, logs[1].clone(), 2, data);
        if !forced {
            net.restart(1, logs[0].clone(), 2, Seqno(3));
        }
        net.run(Duration::from_secs(20));
        assert_eq!(net.phase(2) == Phase::Primary, !forced);
        net.force(2);
        net.run(Duration::from_secs(10));
        assert_eq!(net.phase(2), Phase::Primary);
        let words = format!("behind seqno {data} is lost");
        let others = format!("from seqno {data}, and what was committed behind it is lost");
        assert!(net.warned(2, &words) || net.warned(3, &others), "{:?}", net.nodes[&3].events);
        net.propose(2, "after");
        net.settle();
        assert_eq!(net.bodies(2).last().unwrap(), "after");
    }
}

/// One server has lost the end of its log with its power. The arbitrator has dropped that end, since that server had acknowledged it. The
/// other server lags. The two whole logs are evidence of everything, and of no use to each other.
#[test]
fn what_an_arbitrator_has_dropped_and_the_only_server_that_had_it_has_lost_is_waited_for_until_all_voters_are_there() {
    let (mut net, mut logs) = two_servers_and_an_arbitrator([15, 20], 5);
    for log in &mut logs[1..] {
        log.set_suspect(None).unwrap();
    }
    start_arbitrator(&mut net, logs[2].clone());
    net.restart(2, logs[1].clone(), 2, Seqno(3));
    net.run(Duration::from_secs(20));
    assert!([2, 3].iter().all(|n| net.phase(*n) != Phase::Primary), "the first one may have more");
    net.restart(1, logs[0].clone(), 2, Seqno(3));
    net.run(Duration::from_secs(20));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}: {:?}", net.nodes[&n].events);
    }
    assert!(net.warned(3, "and what was committed behind it is lost"), "{:?}", net.nodes[&3].events);
    let best = end_of(&logs[0]);
    assert_eq!(net.nodes[&2].group.lineage().newest().unwrap().seqno, best, "the better one of the two");
    net.propose(2, "after");
    net.settle();
    assert_eq!(net.bodies(1).last().unwrap(), "after");
}

/// The sequencer has lost its majority for a moment, and holds everything. It takes itself for primary, so it stops telling how far it
/// gets. The arbitrator therefore knows nothing newer than what it heard long ago.
#[test]
fn an_arbitrator_gives_up_nothing_before_all_have_told_how_far_they_get() {
    // It differs by this time which one asks first afterwards.
    for outage in (600..2000).step_by(50) {
        let mut net = two_and_an_arbitrator();
        let (orders, lags) = (net.sequencer(), 3 - net.sequencer());
        net.isolate(lags);
        for n in 0..30 {
            net.propose(orders, &format!("commit {n}"));
            net.settle();
        }
        net.run(Duration::from_secs(10));
        let end = net.nodes[&3].group.store().last();
        net.nodes.get_mut(&3).unwrap().group.store_mut().trim(LogIndex(end.0 - 5));
        assert!(net.nodes[&3].group.store().base().index > net.nodes[&lags].group.store().last());
        net.lost = vec![(orders, 3), (3, orders), (orders, lags), (lags, orders)];
        net.heal();
        net.run(Duration::from_millis(outage));
        net.lost.clear();
        net.run(Duration::from_secs(10));
        for n in 1..=3 {
            assert_eq!(net.phase(n), Phase::Primary, "node {n} after {outage} ms");
            assert!(
                net.nodes[&n].group.lineage().newest().is_none(),
                "node {n} after {outage} ms: nothing is given up"
            );
        }
        assert_eq!(net.bodies(lags).last().unwrap(), "commit 29");
    }
}

/// One was forced, and has lost its data since. The other one's data end where the log of that branch has been dropped. It is told to
/// decide for its own data, and that is done.
#[test]
fn a_person_decides_for_the_only_data_also_where_they_cannot_follow_a_later_branch() {
    for dropped in [false, true] {
        let mut net = Net::cluster(2);
        net.propose(1, "in both");
        net.settle();
        let mut logs: Vec<MemStore> = (1..=2).map(|n| net.kill(n)).collect();
        let end = end_of(&logs[0]);
        logs[0].checkpoint_every = 5;
        net.restart(1, logs[0].clone(), 2, end);
        net.settle();
        net.force(1);
        net.run(Duration::from_secs(2));
        for n in 0..20 {
            net.propose(1, &format!("of the branch {n}"));
            net.settle();
        }
        let mut first = net.kill(1);
        if dropped {
            first.trim(LogIndex(first.last().0 - 3));
            assert!(first.base().seqno > end);
        }
        let mut cfg = Net::config(1);
        cfg.me.incarnation = Incarnation(3);
        net.enter(1, cfg, first, None);
        net.restart(2, logs[1].clone(), 2, end);
        net.run(Duration::from_secs(60));
        if dropped {
            assert_ne!(net.phase(2), Phase::Primary);
            net.force(2);
            net.run(Duration::from_secs(20));
        }
        for n in 1..=2 {
            assert_eq!(net.phase(n), Phase::Primary, "node {n}, {dropped}: {:?}", net.nodes[&2].events);
        }
        assert!(!net.nodes[&2].events.contains(&Event::DataDiverged), "its data are the only ones");
        assert_eq!(net.bodies(2).iter().any(|body| body.starts_with("of the branch")), !dropped);
    }
}

/// The arbitrator's log is of a branch that was forced without a server. That server's data that lie behind the fork are of another past,
/// wherever they end.
#[test]
fn data_behind_a_fork_are_not_those_that_an_arbitrator_of_the_branch_has_dropped() {
    let (mut net, logs) = two_servers_and_an_arbitrator([0, 0], 0);
    let now = net.now;
    // The second one goes on alone with the arbitrator.
    start_arbitrator(&mut net, logs[2].clone());
    net.restart(2, logs[1].clone(), 2, Seqno(0));
    net.settle();
    net.nodes.get_mut(&2).unwrap().group.force_primary(now);
    net.nodes.get_mut(&3).unwrap().group.store_mut().checkpoint_every = 5;
    net.run(Duration::from_secs(5));
    assert_eq!(net.phase(2), Phase::Primary);
    let fork = *net.nodes[&2].group.lineage().newest().expect("forced");
    for n in 0..20 {
        net.propose(2, &format!("of the branch {n}"));
        net.settle();
    }
    net.kill(2);
    let mut third = net.kill(3);
    third.trim(LogIndex(third.last().0 - 5));
    assert!(third.base().lineage.newest().is_some());
    let data = Seqno(third.base().seqno.0 + 1);
    assert!(data > fork.seqno);
    start_arbitrator(&mut net, third);
    net.restart(1, logs[0].clone(), 2, data);
    net.run(Duration::from_secs(20));
    net.force(1);
    net.run(Duration::from_secs(20));
    let first = &net.nodes[&1];
    assert!(
        first.group.lineage().newest().is_none_or(|f| f.id != fork.id) || first.events.contains(&Event::DataDiverged)
    );
    assert!(!net.bodies(1).iter().any(|body| body.starts_with("of the branch")));
}

#[test]
fn a_single_node_goes_on_from_its_data() {
    let mut net = Net::cluster(1);
    net.propose(1, "a");
    net.propose(1, "b");
    net.settle();
    let end = Seqno(net.nodes[&1].delivered.last().unwrap().0);
    let mut log = net.kill(1);
    let kept = LogIndex(log.last().0 - 2);
    log.truncate_after(kept).unwrap();
    log.set_suspect(Some(kept)).unwrap();
    net.restart(1, log, 2, end);
    net.run(Duration::from_secs(20));
    assert_eq!(net.phase(1), Phase::Primary);
    assert_eq!(base_of(&net, 1), end);
}

/// Killed right after the log was replaced, it forms the group again from what it has written down.
#[test]
fn whoever_began_from_data_and_died_does_it_again() {
    let (mut net, end, logs) = all_lose_power(10, [5, 9, 7]);
    for (n, log) in (1..=3).zip(logs) {
        net.restart(n, log, 2, if n == 2 { end } else { Seqno(0) });
    }
    while base_of(&net, 2) != end {
        net.run(Duration::from_millis(1));
        assert!(net.nodes[&2].events.iter().all(|e| !matches!(e, Event::Failed(_))));
    }
    let mut log = net.kill(2);
    // Nothing of the new branch but its beginning has reached the disk.
    log.truncate_after(log.base().index).unwrap();
    net.run(Duration::from_secs(5));
    net.restart(2, log, 3, end);
    net.run(Duration::from_secs(20));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert!(base_of(&net, n) >= end);
    }
}

#[test]
fn data_without_a_log_are_for_a_person_to_judge() {
    let (mut net, end, logs) = all_lose_power(10, [5, 9, 7]);
    for (n, log) in (1..=3).zip(logs) {
        net.restart(n, log, 2, Seqno(0));
    }
    let mut cfg = Net::config(4);
    cfg.me.incarnation = Incarnation(1);
    net.start(4, cfg, MemStore::new(), None);
    let now = net.now;
    let group = &mut net.nodes.get_mut(&4).unwrap().group;
    group.note_data(Some((HISTORY, end)));
    group.join(now, JoinState { position: None });
    net.run(Duration::from_secs(20));
    assert!((1..=4).all(|n| net.phase(n) != Phase::Primary));
    assert!((1..=3).any(|n| net.warned(n, "a person has to decide")));
}

// --- who has data (rule 10) --------------------------------------------------------------------------------------

/// Two members in, one of them still without data.
fn one_of_two_with_data() -> Net {
    let mut net = Net::new();
    net.copies = false;
    net.bootstrap(1);
    net.join(2);
    net.propose(1, "a");
    net.settle();
    assert_eq!(net.nodes[&2].group.status().voters.voters.len(), 2);
    net
}

fn leave(net: &mut Net, n: u8) {
    let now = net.now;
    net.nodes.get_mut(&n).unwrap().group.leave(now);
}

#[test]
fn the_last_one_with_data_leaves_when_a_copy_of_them_is_complete() {
    let mut net = one_of_two_with_data();
    leave(&mut net, 1);
    net.run(Duration::from_secs(5));
    assert!(!net.nodes[&1].events.contains(&Event::Left), "the other one could never complete its copy");
    net.nodes.get_mut(&2).unwrap().group.data_arrived();
    net.run(Duration::from_secs(1));
    assert!(net.nodes[&1].events.contains(&Event::Left));
    net.kill(1);
    net.propose(2, "b");
    net.settle();
    assert_eq!(net.bodies(2), ["a", "b"]);
}

/// It counts as failed then, with its vote: nobody goes on without data, and the group waits for it alone.
#[test]
fn the_last_one_with_data_is_gone_after_linger_and_is_waited_for() {
    let mut net = one_of_two_with_data();
    leave(&mut net, 1);
    net.run(Duration::from_secs(25));
    assert!(net.nodes[&1].events.contains(&Event::Left));
    let log = net.kill(1);
    net.run(Duration::from_secs(10));
    assert_eq!(net.phase(2), Phase::NonPrimary);
    net.restart(1, log, 2, Seqno(2));
    net.run(Duration::from_secs(5));
    assert!((1..=2).all(|n| net.phase(n) == Phase::Primary));
}

#[test]
fn a_member_without_data_leaves_at_once() {
    let mut net = one_of_two_with_data();
    leave(&mut net, 2);
    net.run(Duration::from_millis(500));
    assert!(net.nodes[&2].events.contains(&Event::Left));
}

/// A log that begins behind all data that are here would lead to a group in which nobody has any.
#[test]
fn nobody_forms_a_group_around_a_log_that_no_data_reach() {
    let mut net = Net::cluster(3);
    net.nodes.get_mut(&1).unwrap().group.store_mut().checkpoint_every = 5;
    let behind = net.nodes[&2].group.store().clone();
    for n in 0..20 {
        net.propose(1, &format!("commit {n}"));
        net.settle();
    }
    let end_of_second = end_of(&behind);
    // The first one's data are gone, and so is the beginning of its log. The second one is back where it was before all that.
    let mut whole = net.kill(1);
    (2..=3).for_each(|n| drop(net.kill(n)));
    whole.trim(LogIndex(whole.last().0 - 5));
    assert!(whole.base().index > behind.last());
    net.copies = false;
    net.restart_without_data(1, whole, 2);
    net.restart(2, behind, 2, Seqno(1));
    net.run(Duration::from_secs(20));
    assert!((1..=2).all(|n| net.phase(n) != Phase::Primary));
    assert!(net.warned(1, "no data that are here reach further"));
    assert!(!net.nodes[&2].events.contains(&Event::DataDiverged));
    // A person cannot do it there either: a node that has data goes on.
    net.force(1);
    net.run(Duration::from_secs(5));
    assert_eq!(net.phase(2), Phase::Primary);
    assert_eq!(net.nodes[&2].group.lineage().newest().unwrap().seqno, end_of_second, "its own log, not the longer one");
}

#[test]
fn a_member_without_data_is_not_made_primary_where_nobody_has_any() {
    let mut net = one_of_two_with_data();
    net.kill(1);
    net.run(Duration::from_secs(10));
    net.force(2);
    net.run(Duration::from_secs(5));
    assert_eq!(net.phase(2), Phase::NonPrimary);
    assert!(net.warned(2, "no node here has data"));
}

/// Swarm seed 52796: a node whose log had lost its end was forced, formed the group below its own data, and gave them up. It waited for a
/// snapshot as the sequencer that would have had to send it, and let nobody in.
#[test]
fn who_is_forced_and_has_lost_the_end_of_its_log_goes_on_from_its_data() {
    let (mut net, end, logs) = all_lose_power(10, [5, 0, 0]);
    for (n, log) in (1..=3).zip(logs) {
        if n == 1 {
            net.restart(n, log, 2, end);
            net.run(Duration::from_secs(6));
            net.force(1);
            net.run(Duration::from_secs(2));
            assert_eq!(net.phase(1), Phase::Primary);
            assert_eq!(base_of(&net, 1), end);
        } else {
            net.restart(n, log, 2, end);
        }
    }
    net.run(Duration::from_secs(20));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert!(!net.nodes[&1].events.contains(&Event::DataDiverged));
    }
    net.propose(1, "after");
    net.settle();
    assert!((1..=3).all(|n| net.bodies(n).last().unwrap() == "after"));
}

/// Its log was removed, not its data: it gets a log that goes on from them, and needs no copy.
#[test]
fn data_beside_a_log_that_is_new_count_when_that_log_goes_on_from_them() {
    let mut net = Net::cluster(2);
    net.propose(1, "a");
    net.settle();
    let at = Seqno(net.nodes[&2].delivered.last().unwrap().0);
    leave(&mut net, 2);
    net.run(Duration::from_secs(1));
    net.kill(2);
    net.copies = false;
    net.restart(2, MemStore::new(), 2, at);
    net.run(Duration::from_secs(2));
    assert_eq!(net.nodes[&1].group.status().voters.voters.len(), 2);
    leave(&mut net, 1);
    net.run(Duration::from_secs(1));
    assert!(net.nodes[&1].events.contains(&Event::Left), "the other one has data");
}

// --- nobody takes the only data there are (rule 10) ---------------------------------------------------------------

/// Of three voters only the first has data, up to `Seqno`, and it is away with them. The others have gone on; their logs begin behind
/// the given numbers of commits, and the third orders.
fn without_the_only_data(trimmed: [u64; 2]) -> (Net, MemStore, Seqno) {
    let (mut net, log, data) = ten_commits();
    let behind = |keep: u64| LogIndex(log.last().0 - 5 + keep);
    restart_without_data(&mut net, trimmed.map(behind));
    (net, log, data)
}

/// Three voters of which only the first has data, with its log after five of ten commits, and where the data are then.
fn ten_commits() -> (Net, MemStore, Seqno) {
    let mut net = one_with_data();
    let mut log = MemStore::new();
    for n in 0..10 {
        if n == 5 {
            log = net.nodes[&1].group.store().clone();
        }
        net.propose(1, &format!("commit {n}"));
        net.settle();
    }
    let data = end_of(&log);
    (net, log, data)
}

/// Three voters of which only the first has data.
fn one_with_data() -> Net {
    let mut net = Net::new();
    net.copies = false;
    net.bootstrap(1);
    net.join(2);
    net.join(3);
    assert_eq!(net.nodes[&1].group.status().voters.voters.len(), 3);
    net.checkpoint_always(1..=3);
    net
}

/// All die. The second and the third go on without the first, with logs that begin behind these entries; the third orders.
fn restart_without_data(net: &mut Net, behind: [LogIndex; 2]) {
    let mut logs: Vec<MemStore> = (1..=3).map(|n| net.kill(n)).skip(1).collect();
    for (n, (log, behind)) in (2..=3).zip(logs.iter_mut().zip(behind)) {
        log.trim(behind);
        net.restart_without_data(n, log.clone(), 2);
    }
    net.run(Duration::from_secs(5));
    net.hand_order_to(3);
}

/// A server that is not in a view yet has not been given the entries of its own log. A state at the end of that log replaces the log, and
/// with it the entries that its data lack.
#[test]
fn the_only_data_are_not_given_up_for_a_state_at_the_end_of_their_own_log() {
    let mut net = one_with_data();
    let mut data = Seqno::ZERO;
    for n in 0..10 {
        net.propose(1, &format!("commit {n}"));
        net.settle();
        if n == 4 {
            data = Seqno(net.nodes[&1].delivered.last().unwrap().0);
        }
    }
    let mut log = net.nodes[&1].group.store().clone();
    // So it delivers all of it when it starts.
    let mut hard = log.hard_state();
    hard.committed = log.last();
    log.save_hard_state(hard).unwrap();
    for text in ["takes no seqno", "nor does this"] {
        net.say(1, text);
        net.settle();
    }
    let end = net.nodes[&1].group.store().last();
    assert!(end > log.last());
    restart_without_data(&mut net, [LogIndex(log.last().0 - 2), end]);
    assert!(base_of(&net, 3) <= end_of(&log), "by seqnos its log goes on");
    net.restart(1, log, 2, data);
    net.run(Duration::from_secs(5));
    assert_eq!(base_of(&net, 1), Seqno(0), "it keeps its log");
    assert_eq!(net.sequencer(), 2, "its log goes on from that one");
    assert!((1..=3).all(|n| net.phase(n) == Phase::Primary));
}

/// The only server with data, whose log ends without what takes no seqno behind the last write set, and two without data whose logs begin `gap`
/// entries behind that end. All but the second one have lost power. Gives the end of the second one's log.
fn after_a_gap(gap: u64) -> (Net, LogIndex) {
    let mut net = one_with_data();
    net.propose(1, "acknowledged");
    net.settle();
    let mut whole = net.nodes[&1].group.store().clone();
    for text in ["takes no seqno", "nor does this", "nor this"] {
        net.say(1, text);
        net.settle();
    }
    let mut log = net.nodes[&2].group.store().clone();
    (1..=3).for_each(|n| drop(net.kill(n)));
    whole.set_suspect(Some(whole.last())).unwrap();
    log.trim(LogIndex(whole.last().0 + gap));
    assert_eq!((log.base().index.0, log.base().seqno), (whole.last().0 + gap, end_of(&whole)));
    let end = log.last();
    // The third one's log is like that of the first.
    for (n, log) in [(2, log), (3, whole.clone())] {
        net.restart_without_data(n, log, 2);
    }
    net.restart(1, whole, 2, Seqno(0));
    net.run(Duration::from_secs(30));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
    }
    assert_eq!(net.bodies(1), ["acknowledged"]);
    (net, end)
}

/// Swarm seed 76660627: all lost their power while a server without data came in. Its log was the best one, and began where that of the only server
/// with data ended, by seqnos: some entries without one lay between. It was to decide, and nobody could go on with its log.
#[test]
fn a_log_that_adds_no_write_set_and_that_no_data_may_reach_does_not_decide() {
    after_a_gap(2);
}

#[test]
fn a_log_that_adds_no_write_set_decides_if_it_meets_the_data_all_the_same() {
    let (net, end) = after_a_gap(0);
    let fork = net.nodes[&1].group.lineage().newest().copied().unwrap();
    assert!(fork.index > end, "what takes no seqno is not lost");
}

/// Swarm seed 86440953: what lay between the only data and the logs of those that came later was in one log that was given up for theirs.
#[test]
fn where_nobody_has_data_those_that_come_are_given_the_whole_log() {
    let (mut net, log, data) = without_the_only_data([2, 2]);
    for text in ["takes no seqno", "nor does this"] {
        net.say(3, text);
        net.settle();
    }
    net.join(4);
    assert_eq!(base_of(&net, 4), base_of(&net, 3));
    assert_eq!(net.nodes[&4].group.store().last(), net.nodes[&3].group.store().last());
    // With data in the group it is a state of the present that is given.
    net.restart(1, log, 2, data);
    net.run(Duration::from_secs(5));
    assert_eq!(net.phase(1), Phase::Primary);
    net.join(5);
    assert!(base_of(&net, 5) > base_of(&net, 4));
}

/// Swarm seeds 78835 and 96527: the log of the sequencer began behind the only data, and their owner got a snapshot in their place.
#[test]
fn the_only_data_are_brought_up_by_the_log_that_goes_on_from_them() {
    let (mut net, log, data) = without_the_only_data([2, 8]);
    assert!(base_of(&net, 2) < data && base_of(&net, 3) > data);
    net.restart(1, log, 2, data);
    net.run(Duration::from_secs(5));
    assert_eq!(net.sequencer(), 2, "its log goes on from those data");
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
    }
    assert_eq!(base_of(&net, 1), Seqno(0), "it needed nothing but entries");
    assert_eq!(net.bodies(1), ["commit 5", "commit 6", "commit 7", "commit 8", "commit 9"]);
}

/// An arbitrator's log goes on from the only data. A third one has no data and no vote. Its log is the longest, and begins where only the arbitrator's
/// reaches. Each of these two took the other for the one to decide, until the server with data decided without either.
#[test]
fn what_an_arbitrator_can_give_is_no_way_to_another_log() {
    let mut net = Net::new();
    net.copies = false;
    net.bootstrap(1);
    let config = |n: u8| {
        let mut cfg = Net::config(n);
        cfg.me.incarnation = Incarnation(2);
        if n == 2 {
            cfg.me.kind = MemberKind::Arbitrator;
        } else {
            cfg.me.weight = Weight(0);
        }
        cfg
    };
    for n in [2, 3] {
        net.enter(n, config(n), MemStore::new(), None);
        net.run(Duration::from_secs(2));
    }
    net.checkpoint_always(1..=3);
    let mut held = None;
    for n in 0..10 {
        if n == 5 {
            held = Some(net.nodes[&1].group.store().clone());
        }
        net.propose(1, &format!("commit {n}"));
        net.settle();
    }
    let mut held = held.unwrap();
    let mut arbitrators = net.nodes[&2].group.store().clone();
    net.say(1, "takes no seqno");
    net.settle();
    let mut longest = net.nodes[&3].group.store().clone();
    assert!(longest.last() > arbitrators.last());
    (1..=3).for_each(|n| drop(net.kill(n)));
    let (end, data) = (held.last(), end_of(&held));
    held.set_suspect(Some(end)).unwrap();
    arbitrators.trim(end.prev());
    arbitrators.set_suspect(Some(arbitrators.last())).unwrap();
    longest.trim(LogIndex(end.0 + 3));
    for (n, log) in [(2, arbitrators), (3, longest)] {
        let mut cfg = config(n);
        cfg.me.incarnation = Incarnation(3);
        net.enter(n, cfg, log, None);
    }
    net.restart(1, held, 3, data);
    net.run(Duration::from_secs(60));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
    }
    assert_eq!(net.bodies(1).last().map(String::as_str), Some("commit 9"), "the arbitrator held all of it");
}

/// Swarm seed 72222004: of two servers with data each was given a state, since the other had data. The log of the sequencer began behind both,
/// and that of a third went on from them.
#[test]
fn two_servers_whose_data_are_out_of_reach_do_not_stand_in_for_each_other() {
    let mut net = Net::new();
    net.copies = false;
    net.bootstrap(1);
    (2..=4).for_each(|n| net.join(n));
    net.run(Duration::from_secs(2));
    net.checkpoint_always(1..=4);
    let mut held = Vec::new();
    for n in 0..10 {
        if n == 5 {
            held = [1, 4].map(|n| (n, net.nodes[&n].group.store().clone())).into();
        }
        net.propose(1, &format!("commit {n}"));
        net.settle();
    }
    let mut logs: Vec<MemStore> = (1..=4).map(|n| net.kill(n)).collect();
    let behind = |keep: u64| LogIndex(held[0].1.last().0 + keep);
    logs[1].trim(LogIndex(behind(0).0 - 2));
    logs[1].truncate_after(behind(4)).unwrap();
    logs[1].set_suspect(Some(behind(4))).unwrap();
    logs[2].trim(behind(3));
    let bases = [1, 4].map(|n| (n, logs[n - 1].base().seqno));
    for (n, mut log) in held {
        let data = end_of(&log);
        log.set_suspect(Some(log.last())).unwrap();
        net.restart(n, log, 2, data);
    }
    for n in [2, 3] {
        net.restart_without_data(n, logs[usize::from(n) - 1].clone(), 2);
    }
    net.run(Duration::from_secs(30));
    for n in 1..=4 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
    }
    assert_eq!(net.sequencer(), 2, "its log goes on from those data");
    for (n, base) in bases {
        let n = n as u8;
        assert_eq!(base_of(&net, n), base, "node {n} needed nothing but entries");
        assert_eq!(net.bodies(n).last().map(String::as_str), Some("commit 9"), "node {n}");
    }
}

/// Two servers have data, and the logs of all others begin where those end, by seqnos: behind some entries without one, which these two never got.
/// The one lost its power, the other one runs. Neither has asked to be let in when it needs a state. Each was given one behind its data, as the other
/// one had some.
#[test]
fn two_servers_whose_data_a_state_reaches_do_not_lose_them_for_each_others_sake() {
    let mut net = Net::new();
    net.copies = false;
    net.bootstrap(1);
    (2..=5).for_each(|n| net.join(n));
    net.checkpoint_always(1..=5);
    net.nodes.get_mut(&2).unwrap().group.data_arrived();
    net.propose(1, "held by both");
    net.settle();
    let mut held = net.nodes[&1].group.store().clone();
    let data = end_of(&held);
    net.lost = vec![(1, 2)];
    for text in ["takes no seqno", "nor does this", "nor this"] {
        net.say(1, text);
        net.settle();
    }
    net.propose(1, "held by neither");
    net.settle();
    net.kill(1);
    let logs = [3, 4, 5].map(|n| (n, net.kill(n)));
    net.lost.clear();
    net.run(Duration::from_secs(10));
    assert_eq!(net.phase(2), Phase::NonPrimary);
    assert_eq!(net.nodes[&2].group.store().last(), held.last());
    for (n, mut log) in logs {
        log.trim(LogIndex(held.last().0 + 2));
        assert_eq!((log.base().index.0, log.base().seqno), (held.last().0 + 2, data));
        net.restart_without_data(n, log, 2);
    }
    held.set_suspect(Some(held.last())).unwrap();
    net.restart(1, held, 2, data);
    net.run(Duration::from_secs(30));
    assert!((1..=5).all(|n| net.phase(n) == Phase::Primary));
    for n in [1, 2] {
        assert!(base_of(&net, n) <= data, "node {n} goes on with its data");
        assert_eq!(net.bodies(n).last().map(String::as_str), Some("held by neither"), "node {n}");
    }
}

/// The same where those data are from before the fork at which the branch of the others began, and can follow it.
#[test]
fn the_only_data_are_brought_up_by_the_log_that_goes_on_from_them_also_over_a_fork() {
    let mut net = one_with_data();
    for n in 0..5 {
        net.propose(1, &format!("commit {n}"));
        net.settle();
    }
    let log = net.nodes[&1].group.store().clone();
    let data = end_of(&log);
    for n in 1..=3 {
        net.isolate(n);
    }
    net.run(Duration::from_secs(10));
    let now = net.now;
    let second = &mut net.nodes.get_mut(&2).unwrap().group;
    second.data_arrived();
    second.force_primary(now);
    net.run(Duration::from_secs(2));
    net.cut = vec![(1, 2), (1, 3)];
    net.update_links();
    net.run(Duration::from_secs(5));
    for n in 5..10 {
        net.propose(2, &format!("commit {n}"));
        net.settle();
    }
    assert!((2..=3).all(|n| net.phase(n) == Phase::Primary));
    let mut logs: Vec<MemStore> = (1..=3).map(|n| net.kill(n)).skip(1).collect();
    // The second lost the end of its log, so only the third can be elected, and brings it up first.
    let end = LogIndex(logs[0].last().0 - 2);
    logs[0].truncate_after(end).unwrap();
    logs[0].set_suspect(Some(end)).unwrap();
    for (log, behind) in logs.iter_mut().zip([log.last().0 - 3, log.last().0 + 5]) {
        log.trim(LogIndex(behind));
    }
    net.heal();
    net.restart(1, log, 2, data);
    for (n, log) in (2..=3).zip(logs) {
        net.restart_without_data(n, log, 2);
    }
    assert!(base_of(&net, 2) < data && base_of(&net, 3) > data);
    net.run(Duration::from_secs(10));
    assert_eq!(net.sequencer(), 2, "its log goes on from those data");
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
    }
    assert_eq!(base_of(&net, 1), Seqno(0), "it needed nothing but entries");
    assert_eq!(net.bodies(1).last().unwrap(), "commit 9");
}

/// The only server with data ordered until all lost their power, and its log ends with entries that nobody else has. The others had gone on in a later
/// term, of which nothing came to it; their logs begin where its data end. Its entries beyond were never committed, so it may take that beginning.
#[test]
fn the_only_data_go_on_from_the_past_of_a_branch_though_their_log_has_a_tail_of_an_earlier_term() {
    let mut net = one_with_data();
    net.propose(1, "committed");
    net.settle();
    let (data, first) = (end_of(net.nodes[&1].group.store()), net.nodes[&1].group.status().term);
    net.mute(1);
    for n in 0..20 {
        net.propose(1, &format!("never committed {n}"));
        net.settle();
    }
    let tail = net.kill(1);
    net.lost.clear();
    net.run(Duration::from_secs(20));
    let mut logs = [tail, net.kill(2), net.kill(3)];
    let begins = (1..=logs[1].last().0).map(LogIndex).find(|index| logs[1].term_at(*index) > Some(first)).unwrap();
    for log in &mut logs {
        log.set_suspect(Some(log.last())).unwrap();
    }
    for log in &mut logs[1..] {
        log.trim(begins);
        assert_eq!((log.base().index, log.base().seqno), (begins, data));
        assert!(log.base().term > first);
    }
    let ends: Vec<_> = logs.iter().map(|log| (log.term_at(log.last()).unwrap(), log.last())).collect();
    assert!(ends[0].0 == first && ends[0].1 > ends[1].1, "{first} {ends:?}");
    for (n, log) in (2..=3).zip(&logs[1..]) {
        net.restart_without_data(n, log.clone(), 2);
    }
    net.restart(1, logs[0].clone(), 2, data);
    net.run(Duration::from_secs(60));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}: {:?}", net.nodes[&n].events);
    }
    assert_eq!(base_of(&net, 1), data, "it keeps its data");
    assert!(!net.nodes[&1].events.contains(&Event::DataDiverged));
    assert!(net.nodes[&1].group.lineage().newest().is_some());
}

#[test]
fn a_group_without_data_or_a_log_for_the_only_ones_ends_and_a_person_decides() {
    let (mut net, log, data) = without_the_only_data([8, 8]);
    assert!(base_of(&net, 2) > data && base_of(&net, 3) > data);
    net.restart(1, log, 2, data);
    net.run(Duration::from_secs(20));
    assert!((1..=3).all(|n| net.phase(n) != Phase::Primary));
    assert_eq!(base_of(&net, 1), Seqno(0), "its log and data are as they were");
    assert!(net.warned(3, "set pc.bootstrap=1 there"));
    net.force(1);
    net.run(Duration::from_secs(10));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert_eq!(net.nodes[&n].group.lineage().newest().unwrap().seqno, data, "node {n}");
    }
    assert!(!net.nodes[&1].events.contains(&Event::DataDiverged));
}

/// The side that was not forced stays, but not where nobody has data: not even if its logs reach back to where the data end by number.
#[test]
fn data_on_another_branch_are_not_given_up_to_a_group_without_any() {
    for trimmed in [[2, 8], [2, 2]] {
        for restarted in [false, true] {
            branch_with_the_only_data_meets_a_group_without_any(trimmed, restarted);
        }
    }
}

fn branch_with_the_only_data_meets_a_group_without_any(trimmed: [u64; 2], restarted: bool) {
    let (mut net, log, data) = without_the_only_data(trimmed);
    for n in 2..=3 {
        net.cut.push((1, n));
    }
    net.restart(1, log, 2, data);
    net.run(Duration::from_secs(5));
    net.force(1);
    net.run(Duration::from_secs(5));
    net.propose(1, "on the other branch");
    net.settle();
    assert!((1..=3).all(|n| net.phase(n) == Phase::Primary));
    let end = net.nodes[&1].delivered.last().unwrap().0;
    if restarted {
        let log = net.kill(1);
        net.heal();
        net.restart(1, log, 3, Seqno(end));
    } else {
        net.heal();
    }
    net.run(Duration::from_secs(60));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}, {trimmed:?}, restarted {restarted}");
        assert_eq!(net.nodes[&n].group.lineage().newest().unwrap().seqno, data, "node {n}");
    }
    assert!(!net.nodes[&1].events.contains(&Event::DataDiverged));
    net.propose(1, "later");
    net.settle();
    assert_eq!(net.bodies(2).last().unwrap(), "later");
}

/// The first was forced while it was away from the others, which went on. Then the power went in the middle of a statement that no engine takes
/// back: the others have data, and no log vouches for them. They go on with those once one of them has looked, and so they are not a group
/// without data, whether the first is there before they form it or comes later.
#[test]
fn a_group_that_may_go_on_with_half_done_data_is_none_without_data() {
    for (every, late) in [(0, false), (0, true), (1, false), (1, true)] {
        for noted in [false, true] {
            half_done_data_beside_a_forced_branch(every, late, noted);
        }
    }
}

fn half_done_data_beside_a_forced_branch(checkpoint_every: u64, late: bool, noted: bool) {
    let case = format!("checkpoints every {checkpoint_every}, late {late}, noted as half done {noted}");
    let mut net = Net::cluster(3);
    net.copies = false;
    if checkpoint_every > 0 {
        for n in 1..=3 {
            net.nodes.get_mut(&n).unwrap().group.store_mut().checkpoint_every = checkpoint_every;
        }
    }
    net.propose(1, "common");
    net.settle();
    net.isolate(1);
    net.run(Duration::from_secs(10));
    net.force(1);
    net.run(Duration::from_secs(2));
    assert!((1..=3).all(|n| net.phase(n) == Phase::Primary));
    net.propose(1, "beside");
    for n in 0..5 {
        net.propose(2, &format!("acknowledged {n}"));
    }
    net.settle();
    let ends: Vec<Seqno> = (1..=3).map(|n| Seqno(net.nodes[&n].delivered.last().unwrap().0)).collect();
    let logs: Vec<MemStore> = (1..=3).map(|n| net.kill(n)).collect();
    net.heal();
    if late {
        net.cut = vec![(1, 2), (1, 3)];
    }
    for (n, (log, at)) in (1..).zip(logs.into_iter().zip(ends)) {
        if n == 1 {
            net.restart(n, log, 2, at);
            continue;
        }
        let now = net.now;
        let group = net.reopen(n, log, 2, Some(at));
        if noted {
            group.note_half_done(Some(at));
        } else {
            group.note_data(Some((HISTORY, at)));
        }
        group.join(now, JoinState { position: None });
    }
    // The second goes on with its data after three seconds in a primary component, and is copied then.
    let mut primary = 0;
    for _ in 0..600 {
        net.run(Duration::from_millis(100));
        primary = if net.phase(2) == Phase::Primary { primary + 1 } else { 0 };
        if primary == 10 {
            net.heal();
        }
        if primary == 30 && !net.copies {
            net.nodes.get_mut(&2).unwrap().group.data_arrived();
            net.copies = true;
        }
    }
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "{case}, node {n}");
        assert!(net.nodes[&n].group.lineage().newest().is_none(), "{case}: the side that was not forced goes on");
    }
    for n in 2..=3 {
        assert!(!net.nodes[&n].events.contains(&Event::DataDiverged), "{case}, node {n}: commits were acknowledged");
    }
}

/// The second was forced, then the third on top of that, and both have lost their data; the fourth, which votes in both branches, is gone. The log
/// of the second goes on from the data that are left, that of the third does not. A person's word is of no use to a member that refuses it,
/// however late its branch began.
#[test]
fn a_person_is_obeyed_by_a_member_whose_log_goes_on_from_the_data_that_are_left() {
    let mut net = Net::cluster(4);
    net.checkpoint_always(2..=3);
    net.propose(1, "common");
    net.settle();
    let common = Seqno(net.nodes[&1].delivered.last().unwrap().0);
    let [first, third, fourth] = [1, 3, 4].map(|n| net.kill(n));
    force_after_a_while(&mut net, 2);
    net.restart(3, third, 2, common);
    net.restart(4, fourth, 2, common);
    net.run(Duration::from_secs(5));
    net.propose(2, "on the second's branch");
    net.settle();
    let here = Seqno(net.nodes[&4].delivered.last().unwrap().0);
    let [second, fourth] = [2, 4].map(|n| net.kill(n));
    force_after_a_while(&mut net, 3);
    net.restart(4, fourth, 3, here);
    net.run(Duration::from_secs(5));
    assert_eq!(net.nodes[&3].group.status().voters.voters.len(), 2);
    for n in 0..5 {
        net.propose(3, &format!("on the third's branch {n}"));
        net.settle();
    }
    let mut third = net.kill(3);
    net.kill(4);
    third.trim(LogIndex(third.last().0 - 2));
    net.copies = false;
    for (n, log) in [(2, second), (3, third)] {
        let mut cfg = Net::config(n);
        cfg.me.incarnation = Incarnation(3);
        net.start(n, cfg, log, None);
        let now = net.now;
        net.nodes.get_mut(&n).unwrap().group.join(now, JoinState { position: None });
    }
    net.restart(1, first, 2, common);
    net.run(Duration::from_secs(20));
    assert!((1..=3).all(|n| net.phase(n) != Phase::Primary), "a person decides");
    force_after_a_while(&mut net, 1);
    for n in 1..=2 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert_eq!(
            net.nodes[&n].group.lineage().forks().len(),
            2,
            "node {n}: the second's branch was forced once more"
        );
    }
    assert!(!net.nodes[&1].events.contains(&Event::DataDiverged));
}

/// The links are not transitive: each of two finds the log of the other better, since one of them hears of data that the other does not.
#[test]
fn a_persons_word_does_not_go_round_between_two_that_hear_of_different_data() {
    let mut net = one_with_data();
    net.join(4);
    net.checkpoint_always([4]);
    let mut early = MemStore::new();
    for n in 0..10 {
        if n == 5 {
            early = net.nodes[&1].group.store().clone();
        }
        net.propose(1, &format!("commit {n}"));
        net.settle();
    }
    let seqno_at = |log: &MemStore, index: LogIndex| log.read(index, 0).unwrap()[0].header.seqno;
    let data = seqno_at(&early, early.last());
    let mut logs: Vec<MemStore> = (1..=4).map(|n| net.kill(n)).collect();
    let [mut third, mut second] = [logs.remove(2), logs.remove(1)];
    // The longest log has no data. The third's data reach to where it begins, but only the first hears of them.
    let end = second.last();
    second.trim(LogIndex(end.0 - 2));
    third.truncate_after(end.prev()).unwrap();
    third.trim(LogIndex(end.0 - 2));
    let reached = seqno_at(&third, third.last());
    net.cut = vec![(2, 3)];
    net.restart(1, early, 2, data);
    net.restart(3, third, 2, reached);
    net.restart_without_data(2, second, 2);
    net.run(Duration::from_secs(8));
    assert!((1..=3).all(|n| net.phase(n) != Phase::Primary));
    net.force(2);
    net.run(Duration::from_secs(5));
    assert!((1..=3).any(|n| net.phase(n) == Phase::Primary), "it has come to rest, and somebody obeys");
}

/// A command that does nothing says why.
#[test]
fn a_member_that_cannot_be_forced_tells_the_person_why() {
    let mut net = Net::new();
    net.start(1, Net::config(1), MemStore::new(), None);
    let now = net.now;
    net.nodes.get_mut(&1).unwrap().group.join(now, JoinState { position: None });
    force_after_a_while(&mut net, 1);
    assert_eq!(net.phase(1), Phase::Joining);
    let told = |net: &Net| net.nodes[&1].events.iter().filter(|e| matches!(e, Event::Log { warn: true, .. })).count();
    assert!(net.warned(1, "not made primary: this node has no write-set log of any cluster"));
    // The word of a peer that says it over and over is told of once in a while.
    let (before, peer) = (told(&net), Net::config(2).me);
    let now = net.now;
    let group = &mut net.nodes.get_mut(&1).unwrap().group;
    group.handle_link_up(now, peer, trireme_order::SUPPORTED);
    for _ in 0..100 {
        group.handle_message(now, node(2), Message::Force);
    }
    net.drain(1);
    assert_eq!(told(&net) - before, 1);
}

fn force_after_a_while(net: &mut Net, n: u8) {
    net.run(Duration::from_secs(10));
    net.force(n);
    net.run(Duration::from_secs(5));
}

/// With an arbitrator in the group without data, too.
#[test]
fn the_only_data_are_not_given_up_to_an_arbitrator_and_servers_without_any() {
    let mut net = Net::new();
    net.copies = false;
    net.bootstrap(1);
    net.join(2);
    net.join(3);
    let fourth = |incarnation: u32| {
        let mut cfg = Net::config(4);
        cfg.me.kind = MemberKind::Arbitrator;
        cfg.me.incarnation = Incarnation(incarnation);
        cfg
    };
    net.start(4, fourth(1), MemStore::new(), None);
    let now = net.now;
    net.nodes.get_mut(&4).unwrap().group.join(now, JoinState { position: None });
    net.run(Duration::from_secs(3));
    assert_eq!(net.nodes[&1].group.status().voters.voters.len(), 4);
    for n in 0..5 {
        net.propose(1, &format!("commit {n}"));
        net.settle();
    }
    let at = Seqno(net.nodes[&1].delivered.last().unwrap().0);
    let logs: Vec<MemStore> = (1..=4).map(|n| net.kill(n)).collect();
    for n in 2..=4 {
        net.cut.push((1, n));
    }
    for (n, log) in (1..).zip(logs) {
        if n == 1 {
            net.restart(n, log, 2, at);
            continue;
        }
        let mut cfg = Net::config(n);
        cfg.me.incarnation = Incarnation(2);
        net.start(n, if n == 4 { fourth(2) } else { cfg }, log, None);
        let now = net.now;
        net.nodes.get_mut(&n).unwrap().group.join(now, JoinState { position: None });
    }
    net.run(Duration::from_secs(5));
    net.force(1);
    net.run(Duration::from_secs(5));
    net.propose(1, "on the other branch");
    net.settle();
    assert!((1..=4).all(|n| net.phase(n) == Phase::Primary));
    net.heal();
    net.run(Duration::from_secs(60));
    assert!((1..=4).all(|n| net.phase(n) == Phase::Primary));
    assert!(!net.nodes[&1].events.contains(&Event::DataDiverged));
}

/// Nor if the servers of that group have data from long ago, from which no log goes on: they wait for a copy themselves.
#[test]
fn the_only_data_are_not_given_up_to_servers_whose_data_are_out_of_reach() {
    let (mut net, log, data) = ten_commits();
    let old = Some((HISTORY, Seqno(1)));
    let mut logs: Vec<MemStore> = (1..=3).map(|n| net.kill(n)).skip(1).collect();
    for (n, other) in (2..=3).zip(logs.iter_mut()) {
        other.trim(LogIndex(log.last().0 - 3));
        assert!(other.base().seqno > Seqno(1));
        let now = net.now;
        let group = net.reopen(n, other.clone(), 2, Some(Seqno(1)));
        group.note_data(old);
        group.join(now, JoinState { position: old });
    }
    net.run(Duration::from_secs(5));
    assert!((2..=3).all(|n| net.phase(n) == Phase::Primary));
    net.cut = vec![(1, 2), (1, 3)];
    net.restart(1, log, 2, data);
    net.run(Duration::from_secs(5));
    net.force(1);
    net.run(Duration::from_secs(5));
    assert!((1..=3).all(|n| net.phase(n) == Phase::Primary));
    net.heal();
    net.run(Duration::from_secs(60));
    assert!(!net.nodes[&1].events.contains(&Event::DataDiverged));
    assert!((1..=3).all(|n| net.phase(n) == Phase::Primary));
}

/// Nor to a forced branch without data that they would fit: their own log has more that is committed. It takes a person, who gets through.
#[test]
fn the_only_data_are_not_stuck_between_a_forced_branch_and_their_own_log() {
    let mut net = Net::cluster(4);
    net.propose(1, "before");
    net.settle();
    let at = end_of(net.nodes[&1].group.store());
    net.isolate(2);
    net.run(Duration::from_secs(20));
    net.propose(1, "on the old branch");
    net.run(Duration::from_secs(1));
    net.checkpoint_always([2]);
    net.force(2);
    net.run(Duration::from_secs(5));
    assert!((1..=4).all(|n| net.phase(n) == Phase::Primary));
    let fork = *net.nodes[&2].group.lineage().newest().unwrap();
    assert_eq!(fork.seqno, at);
    let mut logs: Vec<MemStore> = (1..=4).map(|n| net.kill(n)).collect();
    // The server of the forced branch has lost its data, and its log begins there. The engine of the first has lost its end.
    logs[1].trim(fork.index.next());
    assert!(logs[1].base().index >= fork.index);
    assert_eq!(logs[1].base().seqno, at);
    net.copies = false;
    net.restart_without_data(2, logs[1].clone(), 2);
    for n in 3..=4 {
        let log = &logs[usize::from(n) - 1];
        net.restart(n, log.clone(), 2, end_of(log));
    }
    net.restart(1, logs[0].clone(), 2, at);
    net.nodes.get_mut(&1).unwrap().group.pause_delivery(true);
    net.run(Duration::from_secs(20));
    assert_eq!(net.phase(2), Phase::Primary);
    assert!(net.nodes[&1].group.status().committed >= fork.index);
    net.kill(3);
    net.kill(4);
    net.run(Duration::from_secs(20));
    net.heal();
    net.run(Duration::from_secs(60));
    assert_eq!(net.phase(2), Phase::NonPrimary, "what it could offer costs what is committed there");
    net.nodes.get_mut(&1).unwrap().group.pause_delivery(false);
    net.force(1);
    net.run(Duration::from_secs(20));
    assert!((1..=2).all(|n| net.phase(n) == Phase::Primary));
    assert!(net.bodies(1).contains(&"on the old branch".into()));
    assert!(!net.nodes[&1].events.contains(&Event::DataDiverged));
}

/// The disks of the others had lied about their last syncs, or the three lost more than is promised.
#[test]
fn the_only_data_are_not_given_up_to_a_group_whose_logs_end_before_them() {
    let (mut net, log, data) = without_the_only_data([0, 0]);
    let short = LogIndex(log.last().0 + 2);
    let mut logs: Vec<MemStore> = (2..=3).map(|n| net.kill(n)).collect();
    let whole = logs[1].clone();
    let end = end_of(&whole);
    assert!(end.0 > data.0 + 2);
    for (n, log) in (2..=3).zip(&mut logs) {
        log.truncate_after(short).unwrap();
        let mut cfg = Net::config(n);
        cfg.me.incarnation = Incarnation(3);
        net.enter(n, cfg, log.clone(), None);
    }
    net.run(Duration::from_secs(5));
    assert!((2..=3).all(|n| net.phase(n) == Phase::Primary));
    net.restart(1, whole, 2, end);
    net.run(Duration::from_secs(20));
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
        assert_eq!(net.nodes[&n].group.lineage().newest().unwrap().seqno, end, "node {n}");
    }
    assert!(!net.nodes[&1].events.contains(&Event::DataDiverged));
}

/// With most of the weight, an arbitrator has committed with a server without any, and dropped the beginning of that. The other server is away.
fn arbitrator_with_most_of_the_weight() -> Net {
    let mut net = two_and_an_arbitrator();
    // As long as one is new it cannot outweigh the others.
    net.run(Duration::from_secs(20));
    for (n, weight) in [(3, 2), (2, 0)] {
        let now = net.now;
        net.nodes.get_mut(&n).unwrap().group.set_weight(now, Weight(weight));
        net.run(Duration::from_secs(1));
    }
    let weights: Vec<u32> = (1..=3).map(|n| net.nodes[&2].group.status().voters.weight(node(n))).collect();
    assert_eq!(weights, [1, 0, 2]);
    net.propose(2, "on all");
    net.settle();
    net.isolate(1);
    net.run(Duration::from_secs(10));
    for n in 0..30 {
        net.propose(2, &format!("commit {n}"));
        net.settle();
    }
    let third = net.nodes.get_mut(&3).unwrap().group.store_mut();
    third.trim(LogIndex(third.last().0 - 5));
    let dropped = third.base().index;
    assert!(dropped > net.nodes[&1].group.store().last());
    net
}

/// Swarm seed 10021030. It gives up nothing that the server without weight has, only because all who have weight are there. So it is also when it has
/// lost its power.
#[test]
fn an_arbitrator_gives_up_nothing_that_a_server_without_weight_may_have() {
    for lost_power in [false, true] {
        let mut net = arbitrator_with_most_of_the_weight();
        if lost_power {
            let mut log = net.kill(3);
            log.set_suspect(Some(log.last())).unwrap();
            net.cut = vec![(1, 2), (2, 3)];
            let mut cfg = arbitrator();
            cfg.me.weight = Weight(2);
            cfg.me.incarnation = Incarnation(2);
            net.start(3, cfg, log, None);
            let now = net.now;
            net.nodes.get_mut(&3).unwrap().group.join(now, JoinState { position: None });
        } else {
            net.heal();
            net.isolate(2);
        }
        net.run(Duration::from_secs(20));
        assert!((1..=3).all(|n| net.phase(n) != Phase::Primary), "the second one may have more, {lost_power}");
        net.heal();
        net.run(Duration::from_secs(10));
        for n in 1..=3 {
            assert_eq!(net.phase(n), Phase::Primary, "node {n}: {:?}", net.nodes[&n].group.status());
        }
        assert!(!net.nodes[&2].events.contains(&Event::DataDiverged));
        assert_eq!(net.bodies(1).last().unwrap(), "commit 29", "{lost_power}");
    }
}

/// It comes back with an empty disk, so nobody will ever have more.
#[test]
fn an_arbitrator_does_not_wait_for_a_server_that_has_nothing_any_more() {
    let mut net = arbitrator_with_most_of_the_weight();
    net.kill(2);
    net.heal();
    let mut cfg = Net::config(2);
    cfg.me.weight = Weight(0);
    cfg.me.incarnation = Incarnation(2);
    net.start(2, cfg, MemStore::new(), None);
    let now = net.now;
    net.nodes.get_mut(&2).unwrap().group.join(now, JoinState { position: None });
    net.run(Duration::from_secs(60));
    assert!((1..=3).all(|n| net.phase(n) == Phase::Primary), "all are here, and have said what they have");
}

/// Two servers, an arbitrator, and a server whose weight is raised from zero by the newest change of voters, which nobody knows to be
/// committed. Only that one's log reaches the beginning of the arbitrator's, so the arbitrator can help no other. Says whether the last
/// commit was kept.
fn server_whose_vote_is_in_doubt(order: [u8; 4], step: u64) -> bool {
    let mut net = two_and_an_arbitrator();
    net.join_without_a_vote(4);
    for n in 0..32 {
        net.propose(1, &format!("commit {n}"));
        net.settle();
    }
    let before = net.nodes[&3].group.status().voters.clone();
    let change = net.nodes[&3].group.store().last().next();
    let now = net.now;
    net.nodes.get_mut(&4).unwrap().group.set_weight(now, Weight(1));
    while net.nodes[&3].group.status().voters == before {
        net.run(Duration::from_millis(1));
    }
    let mut logs: Vec<MemStore> = (1..=4).map(|n| net.kill(n)).collect();
    // The first has lost its end with its power, the second lags far, the fourth by two commits and the change.
    let keep = [LogIndex(change.0 - 16), LogIndex(change.0 - 21), change, LogIndex(change.0 - 3)];
    for (log, keep) in logs.iter_mut().zip(keep) {
        log.truncate_after(keep).unwrap();
        let mut hard = log.hard_state();
        hard.voters_committed = hard.voters_committed.min(change.prev());
        hard.committed = hard.committed.min(change.prev());
        log.save_hard_state(hard).unwrap();
    }
    logs[0].set_suspect(Some(keep[0])).unwrap();
    logs[2].trim(LogIndex(change.0 - 6));
    assert!(logs[2].base().index <= keep[3] && logs[2].base().index > keep[0]);
    for n in order {
        let mut cfg = if n == 3 { arbitrator() } else { Net::config(n) };
        cfg.me.incarnation = Incarnation(2);
        let at = (n != 3).then_some(Seqno(3));
        net.start(n, cfg, logs[usize::from(n) - 1].clone(), at);
        let position = at.map(|at| (HISTORY, at));
        net.nodes.get_mut(&n).unwrap().group.join(net.now, JoinState { position });
        net.run(Duration::from_millis(step));
    }
    net.run(Duration::from_secs(20));
    net.bodies(4).contains(&"commit 31".to_string())
}

/// Its vote may count or not: it is given the entries that the arbitrator holds, and they are not given up.
#[test]
fn an_arbitrator_gives_up_nothing_that_a_server_with_a_vote_in_doubt_can_take() {
    for order in [[3, 4, 1, 2], [4, 1, 3, 2]] {
        for step in [1, 3, 7, 13, 23, 31, 37, 47, 53, 60] {
            assert!(server_whose_vote_is_in_doubt(order, step), "order {order:?}, {step} ms apart");
        }
    }
}

/// Nobody has data: there is nothing to decide.
#[test]
fn an_arbitrator_that_is_of_use_to_nobody_asks_for_no_terms_where_nobody_has_data() {
    let (mut net, logs) = two_servers_and_an_arbitrator([15, 20], 5);
    net.copies = false;
    start_arbitrator(&mut net, logs[2].clone());
    for n in 1..=2 {
        net.restart_without_data(n, logs[usize::from(n) - 1].clone(), 2);
    }
    net.run(Duration::from_secs(5));
    let before = net.nodes[&3].group.status().term;
    net.run(Duration::from_secs(20));
    let after = net.nodes[&3].group.status().term;
    assert!(after.0 - before.0 < 3, "terms {before:?} to {after:?}");
}

/// Power is lost in the middle of a statement that no engine takes back, and the logs lose their ends: the data that reach furthest cannot be
/// gone on with. Nobody gives up the commits in them before a person says so.
#[test]
fn commits_in_data_with_a_statement_cut_off_are_given_up_by_a_person_alone() {
    for owner in 1..=3u8 {
        let (mut net, end, logs) = all_lose_power(10, [5, 9, 7]);
        for (n, log) in (1..).zip(logs) {
            if n != owner {
                net.restart(n, log, 2, Seqno(end.0 - 9));
                continue;
            }
            let now = net.now;
            let group = net.reopen(n, log, 2, Some(end));
            group.note_half_done(Some(end));
            group.join(now, JoinState { position: None });
        }
        net.run(Duration::from_secs(30));
        assert!((1..=3).all(|n| net.phase(n) != Phase::Primary), "they are node {owner}'s, and were given up");
        assert!(net.warned(owner, "a person has to decide"));
        let other = owner % 3 + 1;
        net.force(other);
        net.run(Duration::from_secs(20));
        assert!((1..=3).all(|n| net.phase(n) == Phase::Primary), "they are node {owner}'s, and a person has decided");
    }
}

/// The only data end, with the log beside them, at the very seqno at which another log begins, and entries without a seqno lie between: that
/// log does not go on from them. Nobody hands the order over to its member again and again.
#[test]
fn a_log_that_begins_with_the_seqno_of_the_only_data_need_not_go_on_from_them() {
    let mut net = Net::cluster(3);
    net.checkpoint_always(1..=3);
    for n in 0..5 {
        net.propose(1, &format!("commit {n}"));
        net.settle();
    }
    let former = net.sequencer();
    let owner = former % 3 + 1;
    net.mute(former);
    net.run(Duration::from_secs(3));
    net.lost.clear();
    net.run(Duration::from_secs(3));
    let at = net.nodes[&owner].group.status().last;
    for n in 0..5 {
        net.propose(owner, &format!("later {n}"));
        net.settle();
    }
    let log = net.nodes[&owner].group.store();
    let entries = log.read(log.base().index.next(), usize::MAX).unwrap();
    let begins = entries.iter().rfind(|e| e.header.kind == EntryKind::Term && e.header.index <= at).unwrap().header;
    let others: Vec<u8> = (1..=3).filter(|n| *n != owner).collect();
    let mut logs: Vec<MemStore> = (1..=3).map(|n| net.kill(n)).collect();
    // The owner's ends before the entry of a term, another one's begins behind it, and the last one's later.
    logs[usize::from(owner) - 1].truncate_after(begins.index.prev()).unwrap();
    logs[usize::from(others[0]) - 1].trim(begins.index);
    let end = logs[usize::from(others[1]) - 1].last();
    logs[usize::from(others[1]) - 1].trim(end.prev());
    let bases: Vec<Seqno> = logs.iter().map(|log| log.base().seqno).collect();
    assert_eq!(bases[usize::from(others[0]) - 1], begins.seqno);
    assert!(bases[usize::from(others[1]) - 1] > begins.seqno);
    for (n, log) in (1..).zip(logs) {
        if n == owner {
            net.restart(n, log, 2, begins.seqno.prev());
            continue;
        }
        net.restart_without_data(n, log, 2);
    }
    net.run(Duration::from_secs(10));
    let before = net.nodes.values().map(|n| n.group.store().hard_state().term).max();
    net.run(Duration::from_secs(30));
    let after = net.nodes.values().map(|n| n.group.store().hard_state().term).max();
    assert_eq!(before, after, "they elect again and again");
    assert!((1..=3).all(|n| net.phase(n) != Phase::Primary));
    assert!(others.iter().any(|n| net.warned(*n, "set pc.bootstrap=1 on that node")));
    net.force(owner);
    net.run(Duration::from_secs(10));
    assert!((1..=3).all(|n| net.phase(n) == Phase::Primary), "a person has decided for the only data");
    assert!(!net.nodes[&owner].events.contains(&Event::DataDiverged));
    assert_eq!(net.nodes[&owner].delivered.last().unwrap().1, b"commit 4");
}

/// The log beside the only data has entries of a deposed sequencer, and ends by its numbers where a forced branch begins without data. That one
/// has tried, and knows that it does not go on from there. So it gives the person's word back.
#[test]
fn a_person_decides_for_the_only_data_also_beside_entries_that_nobody_ordered() {
    let mut net = one_with_data();
    let before = Seqno(net.nodes[&1].delivered.last().map_or(0, |(seqno, _)| *seqno));
    assert_eq!(net.sequencer(), 1);
    net.mute(1);
    for n in 0..9 {
        net.propose(1, &format!("of a deposed sequencer {n}"));
    }
    net.settle();
    net.isolate(1);
    net.lost.clear();
    net.run(Duration::from_secs(8));
    for n in 0..3 {
        net.propose(2, &format!("ordered {n}"));
    }
    net.settle();
    let own = net.kill(1);
    for n in 2..=3 {
        let mut log = net.kill(n);
        log.trim(log.last());
        net.restart_without_data(n, log, 2);
    }
    net.run(Duration::from_secs(5));
    force_after_a_while(&mut net, 2);
    let base = net.nodes[&2].group.store().base().clone();
    assert!(own.last() > base.index && end_of(&own) >= base.seqno && before < base.seqno, "the numbers meet");
    assert_ne!(own.term_at(base.index), Some(base.term), "the entries do not");
    net.heal();
    net.restart(1, own, 2, before);
    net.run(Duration::from_secs(20));
    assert!((1..=3).all(|n| net.phase(n) != Phase::Primary));
    assert!((2..=3).any(|n| net.warned(n, "set pc.bootstrap=1 there")));
    // The one that has not ordered yet may not know it, and tries once.
    for _ in 0..2 {
        net.force(1);
        net.run(Duration::from_secs(20));
    }
    for n in 1..=3 {
        assert_eq!(net.phase(n), Phase::Primary, "node {n}");
    }
    assert!(!net.nodes[&1].events.contains(&Event::DataDiverged));
}

/// With data up to `at`. Its engine has not said that it has any of them on disk.
fn restart_unheard(net: &mut Net, n: u8, log: MemStore, at: Seqno) {
    let now = net.now;
    let group = net.reopen(n, log, 2, Some(at));
    group.note_engine_disk(now, Seqno(0));
    group.join(now, JoinState { position: Some((HISTORY, at)) });
}

/// The same with all; the data of the second reach furthest.
fn restart_second_ahead(net: &mut Net, end: Seqno, logs: impl IntoIterator<Item = MemStore>) {
    for (n, log) in (1..).zip(logs) {
        restart_unheard(net, n, log, if n == 2 { end } else { Seqno(end.0 - 6) });
    }
}

/// A person decides for a server whose log lost its end. As long as its engine has the data that reach further in memory only, nothing is given
/// up for them, nor they for the log.
#[test]
fn a_person_who_decides_for_data_in_memory_is_asked_to_wait() {
    let (mut net, end, logs) = all_lose_power(10, [5, 9, 7]);
    let log = logs.into_iter().next().unwrap();
    let before = log.last();
    restart_unheard(&mut net, 1, log, end);
    net.force(1);
    net.run(Duration::from_secs(1));
    assert!(net.warned(1, "not made primary yet"));
    assert_ne!(net.phase(1), Phase::Primary);
    assert_eq!(net.nodes[&1].group.store().last(), before);
    assert!(net.nodes[&1].group.awaits_engine_disk());
    net.nodes.get_mut(&1).unwrap().group.note_engine_disk(net.now, end);
    net.force(1);
    net.run(Duration::from_secs(1));
    assert_eq!(net.phase(1), Phase::Primary);
    assert_eq!(base_of(&net, 1), end, "its data go on");
}

/// The engine with the data that reach furthest has not been asked, and they may end before. No branch is begun behind them.
#[test]
fn data_that_are_only_claimed_begin_no_branch() {
    let (mut net, end, logs) = all_lose_power(10, [5, 9, 7]);
    let ends: Vec<LogIndex> = logs.iter().map(LogStore::last).collect();
    restart_second_ahead(&mut net, end, logs);
    net.run(Duration::from_secs(300));
    assert_eq!(net.nodes[&2].group.store().last(), ends[1], "its log was replaced");
    net.nodes.get_mut(&2).unwrap().group.note_engine_disk(net.now, end);
    net.run(Duration::from_secs(10));
    assert!((1..=3).all(|n| net.phase(n) == Phase::Primary));
    assert_eq!(base_of(&net, 2), end, "its data go on");
}

/// The data that reach furthest are in the memory of their engine for some seconds. Nobody elects again and again meanwhile.
#[test]
fn data_that_the_engine_does_not_have_on_disk_yet_are_waited_for_in_few_terms() {
    let (mut net, end, logs) = all_lose_power(10, [5, 9, 7]);
    restart_second_ahead(&mut net, end, logs);
    let term = |net: &Net| net.nodes.values().map(|n| n.group.status().term.0).max().unwrap();
    let before = term(&net);
    net.run(Duration::from_secs(20));
    assert!((1..=3).all(|n| net.phase(n) != Phase::Primary));
    assert!(term(&net) < before + 20, "{} terms in 20 s", term(&net) - before);
    for n in 1..=3 {
        net.nodes.get_mut(&n).unwrap().group.note_engine_disk(net.now, end);
    }
    net.run(Duration::from_secs(10));
    assert!((1..=3).all(|n| net.phase(n) == Phase::Primary));
    assert_eq!(base_of(&net, 2), end, "its data go on");
}

/// Swarm seed 83020085. After a loss of power the log beside the only data has never named a member that came later, and whose log is longer. So the
/// word of a person goes there. That one decides, and its state is taken; or its log is of no use for these data, and it gives the word back.
#[test]
fn a_person_decides_for_the_only_data_also_where_a_stranger_has_the_longer_log() {
    for on_disk in [true, false] {
        let mut net = Net::cluster(2);
        net.propose(1, "before");
        net.settle();
        let disk = net.copy_disk(1, true);
        let end = end_of(&disk);
        for n in 0..3 {
            net.say(1, &format!("takes no seqno {n}"));
            net.settle();
        }
        net.join(3);
        net.run(Duration::from_secs(5));
        let later = (1..=3).map(|n| net.kill(n)).last().unwrap();
        assert!(later.base().index > disk.last() && later.base().seqno == end, "{:?}", later.base());
        net.restart_without_data(3, later, 2);
        net.restart(1, disk, 2, if on_disk { end } else { Seqno(1) });
        net.run(Duration::from_secs(20));
        assert_ne!(net.phase(1), Phase::Primary);
        net.force(1);
        net.run(Duration::from_secs(5));
        assert_eq!(net.phase(1), Phase::Primary, "{on_disk}: {:?}", net.nodes[&1].events);
        assert_eq!(net.sequencer(), if on_disk { 3 } else { 1 });
        assert!(!net.gave_way(1));
    }
}
