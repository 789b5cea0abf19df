//! Old disks that are put back (section 8, *Restored disks*): with forks, later changes of the voters and promises since, and what is no old disk.

use std::time::Duration;

use trireme_order::{Content, JoinState, LogStore, MemStore, Message, Phase, Presence};
use trireme_types::{Entry, EntryKind, HardState, LogIndex, Reader, Seqno, Term, Uuid, VoterSet, Weight};

use crate::net::*;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A cluster of so many, and a copy of node 1's disk from that time. `rebooted`: [`Net::copy_disk`].
fn with_a_copy(nodes: u8, rebooted: bool) -> (Net, MemStore) {
    let mut net = Net::cluster(nodes);
    net.propose(1, "in the backup");
    net.settle();
    let disk = net.copy_disk(1, rebooted);
    (net, disk)
}

/// Node 4 takes the place of node 1, which died.
fn replace_the_dead_one(net: &mut Net) {
    net.run(secs(10));
    net.join(4);
    net.run(secs(5));
    assert_eq!(voters(net, 2), [2, 3, 4]);
}

fn voters(net: &Net, n: u8) -> Vec<u8> {
    let mut all: Vec<u8> = net.nodes[&n].group.status().voters.voters.iter().map(|v| v.node.0.0[0]).collect();
    all.sort_unstable();
    all
}

/// Node 1 was the only voter when its disk was copied. Nodes 2 and 3 got votes, which node 1 acknowledged. It died, and node 4 took its place. The
/// copy is put back on another boot and told by all.
fn an_old_copy_is_told() -> (Net, MemStore) {
    let (mut net, disk) = with_a_copy(1, true);
    (2..=3).for_each(|n| net.join(n));
    net.propose(1, "not in the backup");
    net.settle();
    net.kill(1);
    replace_the_dead_one(&mut net);
    let disk = net.put_back_and_tell(1, disk, tells_of_a_lack);
    assert!(disk.suspect().is_some());
    (net, disk)
}

/// It is started again where it hears nobody, while the others go on.
fn decides_nothing_by_the_voters_of_then(mut net: Net, disk: MemStore) {
    let outdated = disk.is_outdated();
    net.restart(1, disk, 3, Seqno(0));
    net.isolate(1);
    net.run(secs(20));
    assert_eq!(net.phase(2), Phase::Primary);
    assert!(
        net.phase(1) != Phase::Primary && !net.forked(1),
        "two primary components: {:?} with voters {:?} beside {:?}; marked as outdated: {outdated}",
        net.phase(1),
        voters(&net, 1),
        voters(&net, 2)
    );
}

#[test]
fn a_later_change_of_the_voters_does_not_hide_the_one_that_was_acknowledged() {
    let (net, disk) = an_old_copy_is_told();
    decides_nothing_by_the_voters_of_then(net, disk);
}

/// The same without any restart: the copy hears one member, which is cut off from the other two.
#[test]
fn an_old_copy_and_a_member_that_is_cut_off_form_no_group_beside_the_others() {
    for rebooted in [false, true] {
        let (mut net, disk) = with_a_copy(1, rebooted);
        (2..=3).for_each(|n| net.join(n));
        net.propose(1, "not in the backup");
        net.settle();
        net.kill(1);
        replace_the_dead_one(&mut net);
        net.cut = vec![(2, 3), (2, 4), (1, 3), (1, 4)];
        net.restart(1, disk, 2, Seqno(0));
        net.run(secs(20));
        assert!([3, 4].iter().all(|n| net.phase(*n) == Phase::Primary));
        let beside: Vec<u8> =
            [1, 2].into_iter().filter(|n| net.phase(*n) == Phase::Primary || net.forked(*n)).collect();
        assert!(beside.is_empty(), "rebooted {rebooted}: {beside:?} beside 3 and 4");
    }
}

/// The promise is on disk in both modes: no loss of power takes it back. So a copy in an older term is an old disk, whoever tells so. The peer's
/// build knows no `VotersHeard`.
#[test]
fn a_copy_that_forgot_a_promise_is_an_old_disk_on_another_boot_too() {
    let (mut net, disk) = with_a_copy(1, true);
    (2..=3).for_each(|n| net.join(n));
    let running = net.kill(1);
    net.run(secs(5));
    net.restart(1, running, 2, Seqno(0));
    net.run(secs(5));
    net.propose(1, "not in the backup");
    net.settle();
    let term = net.nodes[&2].group.status().term;
    assert!(term > disk.hard_state().term);
    net.kill(1);
    let disk = net.put_back_and_tell(1, disk, is_recall);
    assert_eq!(disk.hard_state().term, term, "it knows that it had promised this");
    net.run(secs(3));
    decides_nothing_by_the_voters_of_then(net, disk);
}

/// Node 1 was the only voter when its disk was copied. Afterwards it was forced once, and came back to be one voter of three. Gives the copy, and the
/// one that orders without node 1.
fn a_disk_from_before_a_fork() -> (Net, MemStore, u8) {
    let (mut net, disk) = with_a_copy(1, false);
    net.join(2);
    net.isolate(2);
    net.run(secs(10));
    net.force(1);
    net.run(secs(1));
    assert_eq!((net.phase(1), voters(&net, 1)), (Phase::Primary, vec![1]));
    net.propose(1, "alone");
    net.settle();
    net.heal();
    net.run(secs(10));
    net.join(3);
    assert_eq!(voters(&net, 1), [1, 2, 3]);
    assert!(net.forked(3));
    net.propose(1, "acknowledged");
    net.settle();
    net.kill(1);
    net.run(secs(3));
    assert!([2, 3].iter().all(|n| net.phase(*n) == Phase::Primary));
    let orders = net.sequencer();
    (net, disk, orders)
}

/// It hears the other member of the primary component, and not the one that orders.
#[test]
fn a_disk_from_before_a_fork_takes_nothing_from_the_others() {
    let (mut net, disk, orders) = a_disk_from_before_a_fork();
    net.cut = vec![(1, orders)];
    net.restart(1, disk, 2, Seqno(0));
    net.run(secs(20));
    assert_ne!(net.phase(1), Phase::Primary, "an old disk went on alone beside the others, one of which it heard");
    net.heal();
    net.run(secs(40));
    let lost: Vec<u8> = [2, 3].into_iter().filter(|n| net.gave_way(*n)).collect();
    assert!(lost.is_empty(), "{lost:?} gave up what was acknowledged for an old disk");
    assert!(net.bodies(1).contains(&"acknowledged".to_string()));
}

/// Everything goes on, one message after the other, until node `n` has got so far. It gets one entry at a time.
fn step_until(net: &mut Net, is_there: impl Fn(&Net) -> bool) {
    for one in net.nodes.values_mut() {
        one.group.set_config(|c| c.batch_bytes_max = 1);
    }
    for _ in 0..100_000 {
        net.drain_all();
        if is_there(net) {
            return;
        }
        if let Some((from, to, message)) = net.next_message() {
            let now = net.now;
            net.nodes.get_mut(&to).unwrap().group.handle_message(now, node(from), message);
        }
    }
    panic!("it never gets there");
}

/// Its link ends while it decides alone by the part of the log that it has got, and the others go on.
fn decides_nothing_in_the_middle(net: &mut Net, is_there: impl Fn(&Net) -> bool) {
    step_until(net, is_there);
    assert_eq!(voters(net, 1), [1]);
    net.isolate(1);
    net.run(secs(20));
    assert!([2, 3].iter().all(|n| net.phase(*n) == Phase::Primary));
    let store = net.nodes[&1].group.store();
    let (suspect, outdated) = (store.suspect(), store.is_outdated());
    assert_ne!(net.phase(1), Phase::Primary, "two primary components; suspect {suspect:?}, outdated {outdated}");
}

/// It follows the fork, at which it decided alone, and its link ends before it hears of the voters that came later.
#[test]
fn a_disk_from_before_a_fork_decides_nothing_by_the_voters_of_the_fork() {
    let (mut net, disk, _) = a_disk_from_before_a_fork();
    net.restart(1, disk, 2, Seqno(0));
    decides_nothing_in_the_middle(&mut net, |net| net.forked(1));
}

/// The same; the copy is from a time when its node was one voter of three. No log or disk but this one is old, and all others are up and linked.
#[test]
fn a_disk_of_one_of_three_from_before_a_fork_decides_nothing_by_the_voters_of_the_fork() {
    let (mut net, disk) = with_a_copy(3, false);
    net.isolate(1);
    net.cut.push((2, 3));
    net.run(secs(10));
    net.force(1);
    net.run(secs(1));
    net.propose(1, "alone");
    net.settle();
    net.heal();
    net.run(secs(10));
    assert!((1..=3).all(|n| voters(&net, n) == [1, 2, 3] && net.forked(n)));
    net.propose(1, "acknowledged");
    net.settle();
    net.kill(1);
    net.run(secs(3));
    net.restart(1, disk, 2, Seqno(0));
    decides_nothing_in_the_middle(&mut net, |net| net.forked(1));
}

/// The same without anybody's command: all lost their power in mode `process`, and the best log began the branch.
#[test]
fn a_disk_from_before_a_loss_of_power_decides_nothing_by_the_voters_of_the_fork() {
    let (mut net, disk) = with_a_copy(3, false);
    for i in 0..5 {
        net.propose(1, &i.to_string());
    }
    net.settle();
    let logs: Vec<MemStore> = (1..=3)
        .map(|n| {
            let mut log = net.kill(n);
            let end = LogIndex(log.last().0 - if n == 1 { 1 } else { 2 });
            log.truncate_after(end).unwrap();
            log.set_suspect(Some(end)).unwrap();
            log
        })
        .collect();
    for (n, log) in (1..).zip(logs) {
        net.restart(n, log, 2, Seqno(0));
    }
    net.run(secs(10));
    assert!((1..=3).all(|n| voters(&net, n) == [1, 2, 3] && net.forked(n) && net.phase(n) == Phase::Primary));
    net.propose(1, "acknowledged");
    net.settle();
    net.kill(1);
    net.run(secs(3));
    net.restart(1, disk, 3, Seqno(0));
    decides_nothing_in_the_middle(&mut net, |net| net.forked(1) && voters(net, 1) == [1]);
}

/// Since the copy was made the cluster was stopped node after node, the last one decided alone, and the others came back. Then node 1 died, and node 4
/// took its place.
#[test]
fn an_old_copy_of_the_last_one_of_a_rolling_stop_decides_nothing_while_it_catches_up() {
    let (mut net, disk) = with_a_copy(3, true);
    for n in 2..=3 {
        let now = net.now;
        net.nodes.get_mut(&n).unwrap().group.leave(now);
        net.run(secs(2));
    }
    assert_eq!(voters(&net, 1), [1]);
    let logs: Vec<(u8, MemStore)> = (2..=3).map(|n| (n, net.kill(n))).collect();
    net.propose(1, "alone");
    net.settle();
    for (n, log) in logs {
        net.restart(n, log, 2, Seqno(0));
        net.run(secs(3));
    }
    assert_eq!(voters(&net, 1), [1, 2, 3]);
    net.propose(1, "acknowledged");
    net.settle();
    net.kill(1);
    replace_the_dead_one(&mut net);
    net.restart(1, disk, 2, Seqno(0));
    decides_nothing_in_the_middle(&mut net, |net| voters(net, 1) == [1]);
}

/// The node dies before its server has heard of it.
#[test]
fn a_person_decides_once() {
    let (mut net, mut disk) = with_a_copy(1, false);
    net.kill(1);
    // As the others had told it.
    disk.set_suspect(Some(LogIndex::ZERO)).unwrap();
    disk.set_outdated(true).unwrap();
    net.restart(1, disk, 2, Seqno(0));
    net.run(secs(10));
    assert_ne!(net.phase(1), Phase::Primary);
    let now = net.now;
    let group = &mut net.nodes.get_mut(&1).unwrap().group;
    // The server is busy with an entry that takes long.
    group.pause_delivery(true);
    group.force_primary(now);
    net.run(secs(2));
    let status = net.nodes[&1].group.status();
    assert!(net.forked(1) && status.committed == status.last, "the fork is committed: {status:?}");
    let disk = net.kill(1);
    assert!(disk.synced() == disk.last());
    net.restart(1, disk, 3, Seqno(0));
    net.run(secs(60));
    assert_eq!(net.phase(1), Phase::Primary, "{:?}", net.nodes[&1].events);
}

/// Its log was suspect already, because it was replaced, or followed a fork. It loses entries with its power, and no change of the voters.
#[test]
fn whoever_was_suspect_and_lost_entries_with_its_power_is_not_outdated() {
    for before in [LogIndex(1), LogIndex::ZERO] {
        let mut net = Net::cluster(3);
        let orders = net.sequencer();
        let lost = (1..=3).find(|n| *n != orders).unwrap();
        net.propose(orders, "lost");
        net.settle();
        let mut log = net.nodes[&lost].group.store().clone();
        let end = LogIndex(log.last().0 - 1);
        log.truncate_after(end).unwrap();
        log.set_suspect(Some(before)).unwrap();
        net.kill(lost);
        let log = net.put_back_and_tell(lost, log, tells_of_a_lack);
        assert!(log.suspect().is_some() && !log.is_outdated(), "suspect after {before}: it knows all voters");
    }
}

/// The consequence: all are here, nothing is cut, and they wait for a person.
#[test]
fn all_voters_are_here_after_a_loss_of_power() {
    for before in [LogIndex(1), LogIndex::ZERO] {
        let mut net = Net::cluster(3);
        let orders = net.sequencer();
        let lost = (1..=3).find(|n| *n != orders).unwrap();
        for i in 0..5 {
            net.propose(orders, &i.to_string());
        }
        net.settle();
        let mut log = without_end(net.kill(lost), 1);
        log.set_suspect(Some(before)).unwrap();
        let log = net.put_back_and_tell(lost, log, tells_of_a_lack);
        let others: Vec<u8> = (1..=3).filter(|n| *n != lost).collect();
        let mut logs = vec![(lost, log)];
        for n in others {
            let log = without_end(net.kill(n), 3);
            logs.push((n, log));
        }
        for (n, log) in logs {
            net.restart(n, log, 3, Seqno(0));
        }
        net.run(secs(60));
        for n in 1..=3 {
            assert_eq!(net.phase(n), Phase::Primary, "suspect after {before}, node {n}: {:?}", net.nodes[&n].events);
        }
    }
}

/// Suspect, and it took the place of a damaged log.
fn outdated(log: MemStore) -> MemStore {
    let mut log = without_end(log, 0);
    log.set_outdated(true).unwrap();
    log
}

/// Three that lost power. The best log that is left is outdated. The two others say that they lack no change of the voters, and give it their votes, so it
/// names the newest ones. `apart`: the sequencer holds an entry at its end that was committed nowhere.
#[test]
fn an_outdated_log_is_gone_on_with_when_the_others_lack_no_change_of_the_voters() {
    for apart in [false, true] {
        let mut net = Net::cluster(3);
        let orders = net.sequencer();
        let (best, third) = ((1..=3).find(|n| *n != orders).unwrap(), (1..=3).rfind(|n| *n != orders).unwrap());
        let before = net.nodes[&orders].group.store().last();
        if apart {
            net.lost = [best, third].into_iter().flat_map(|n| [(orders, n), (n, orders)]).collect();
            net.propose(orders, "nowhere else");
            net.drain_all();
            net.isolate(orders);
            net.lost.clear();
            net.run(secs(5));
        }
        net.propose(best, "kept");
        net.settle();
        assert!(net.bodies(third).contains(&"kept".to_string()));
        let best_log = outdated(net.kill(best));
        let former = without_end(net.kill(orders), u64::from(!apart));
        let behind = net.nodes[&third].group.store().last().0 - before.0;
        let third_log = without_end(net.kill(third), behind);
        if apart {
            let ends = |log: &MemStore| (log.term_at(log.last()), log.last());
            assert!(ends(&third_log) < ends(&former) && ends(&former) < ends(&best_log));
        }
        net.heal();
        for (n, log) in [(best, best_log), (orders, former), (third, third_log)] {
            net.restart(n, log, 2, Seqno(0));
        }
        net.run(secs(60));
        for n in 1..=3 {
            assert_eq!(net.phase(n), Phase::Primary, "apart: {apart}, node {n}: {:?}", net.nodes[&n].events);
            assert!(net.bodies(n).contains(&"kept".to_string()), "apart: {apart}, node {n}");
        }
    }
}

/// The log of node 1 is the best one, outdated, and of no use here, as its server has data of another history. Nothing that it holds is given up for that.
#[test]
fn the_best_log_is_outdated_and_cannot_be_gone_on_with() {
    let mut net = Net::cluster(3);
    net.propose(1, "kept");
    net.settle();
    let best = outdated(net.kill(1));
    for n in 2..=3 {
        let log = without_end(net.kill(n), 1);
        net.restart(n, log, 2, Seqno(0));
    }
    let now = net.now;
    let position = Some((Uuid([0xbb; 16]), Seqno(5)));
    net.reopen(1, best, 2, Some(Seqno(5))).join(now, JoinState { position });
    net.run(secs(60));
    for n in 2..=3 {
        let kept = net.bodies(n).contains(&"kept".to_string());
        assert!(net.phase(n) != Phase::Primary || kept, "node {n} went on without: {:?}", net.nodes[&n].events);
    }
}

/// The log of node 2 is the best one, outdated, and begins behind what the others of then can go on from. Node 4 has no vote, and its data go that far.
#[test]
fn the_best_log_is_outdated_and_begins_behind_the_others() {
    for late in [false, true] {
        let mut net = Net::cluster(3);
        net.join_without_a_vote(4);
        net.checkpoint_always([2]);
        for n in 0..30 {
            net.propose(1, &format!("commit {n}"));
            net.settle();
        }
        let at = end_of(net.nodes[&4].group.store());
        let mut best = outdated(net.kill(2));
        best.trim(LogIndex(best.last().0 - 5));
        assert!(best.base().index.0 > best.last().0 - 8, "{:?}", best.base().index);
        let logs = [(1, without_end(net.kill(1), 15)), (3, without_end(net.kill(3), 20))];
        let spare = net.kill(4);
        for (n, log) in logs {
            net.restart(n, log, 2, Seqno(0));
        }
        net.restart_without_data(2, best, 2);
        if late {
            net.run(secs(60));
        }
        let now = net.now;
        net.reopen(4, spare, 2, Some(at)).join(now, JoinState { position: Some((HISTORY, at)) });
        net.run(secs(60));
        assert!(!net.gave_way(4), "late: {late}. It gave up what nobody else has: {:?}", net.nodes[&4].events);
    }
}

/// Node 1 outweighs node 2, which is cut off, and goes on. `behind`: how many entries node 2 orders that reach nobody.
fn one_that_outweighs(behind: usize) -> Net {
    let mut net = Net::new();
    let mut heavy = Net::config(1);
    heavy.me.weight = Weight(3);
    net.bootstrap_as(1, heavy);
    net.join(2);
    net.run(secs(25));
    net.propose(1, "both");
    net.settle();
    if behind > 0 {
        net.hand_order_to(2);
        net.lost = vec![(1, 2), (2, 1)];
        for k in 0..behind {
            net.propose(2, &format!("nowhere {k}"));
            net.drain_all();
        }
    }
    net.isolate(2);
    net.lost.clear();
    net.run(secs(20));
    assert_eq!(net.phase(1), Phase::Primary);
    net.propose(1, "after the cut");
    net.settle();
    net
}

/// Nodes 3 and 4 come in, node 1 gets the weight of each of them, and node 2 loses its vote.
fn others_come(net: &mut Net) {
    net.cut = vec![(1, 2), (2, 3), (2, 4)];
    net.join(3);
    net.join(4);
    let now = net.now;
    net.nodes.get_mut(&1).unwrap().group.set_weight(now, Weight(1));
    net.run(secs(30));
    assert_eq!(voters(net, 1), [1, 3, 4]);
    net.propose(1, "of the newer voters");
    net.settle();
}

/// `nodes` hear each other, and none of those that decide by now.
fn decide_nothing_apart(net: &mut Net, nodes: &[u8], now_voters: &[u8], disks: Vec<(u8, MemStore)>) {
    net.cut = nodes.iter().flat_map(|a| now_voters.iter().map(|b| (*a.min(b), *a.max(b)))).collect();
    for (n, disk) in disks {
        assert!(disk.is_outdated(), "node {n} was told");
        net.restart(n, disk, 3, Seqno(0));
    }
    net.run(secs(60));
    assert!(now_voters.iter().all(|n| net.phase(*n) == Phase::Primary));
    for n in nodes {
        assert!(
            net.phase(*n) != Phase::Primary && !net.forked(*n),
            "two primary components: {:?}",
            net.nodes[n].events
        );
    }
}

/// Node 1 outweighed all when it was copied. The copy has a better log than node 2, which was cut off before, and no newer voters.
#[test]
fn an_outdated_log_of_one_that_decided_alone_decides_nothing() {
    let mut net = one_that_outweighs(0);
    let copy = net.copy_disk(1, true);
    others_come(&mut net);
    net.kill(1);
    net.run(secs(10));
    let disk = net.put_back_and_tell(1, copy, tells_of_a_lack);
    net.run(secs(10));
    decide_nothing_apart(&mut net, &[1, 2], &[3, 4], vec![(1, disk)]);
}

/// The same without a backup: the log lost its end by damage, and its marks say that a change of the voters is missing. Node 2 has more entries than
/// that, of an older term.
#[test]
fn an_outdated_log_that_knows_of_newer_voters_decides_nothing() {
    let mut net = one_that_outweighs(200);
    let end = net.nodes[&1].group.store().last();
    others_come(&mut net);
    let mut log = net.kill(1);
    let change = log.hard_state().voters_committed;
    assert!(change > end && net.nodes[&2].group.store().last() >= change);
    log.damage(end).unwrap();
    net.run(secs(10));
    let disk = net.put_back_and_tell(1, log, tells_of_a_lack);
    net.run(secs(10));
    decide_nothing_apart(&mut net, &[1, 2], &[3, 4], vec![(1, disk)]);
}

/// Node 3 is cut off, for good, and the other two go on. `before`: what is done before that.
fn one_is_cut_off<T>(before: impl FnOnce(&Net) -> T) -> (Net, T) {
    let mut net = Net::cluster(3);
    net.propose(1, "before the cut");
    net.settle();
    let found = before(&net);
    net.isolate(3);
    net.run(secs(20));
    net.propose(1, "after the cut");
    net.settle();
    net.cut = (1..=6).filter(|n| *n != 3).map(|n| (n.min(3), n.max(3))).collect();
    (net, found)
}

/// Others took the place of all three since. The disks of nodes 1 and 2 are put back and told, and meet node 3 only.
fn two_outdated_logs(first_is_older: bool) {
    let (mut net, older) = one_is_cut_off(|net| net.copy_disk(1, true));
    let first = if first_is_older { older } else { net.copy_disk(1, true) };
    let copies = [(1, first), (2, net.copy_disk(2, true))];
    net.join(4);
    net.join(5);
    net.run(secs(20));
    net.kill(1);
    net.run(secs(20));
    net.join(6);
    net.run(secs(20));
    net.kill(2);
    net.run(secs(20));
    assert_eq!(voters(&net, 4), [4, 5, 6]);
    net.propose(4, "of the newer voters");
    net.settle();
    let tell = |(n, copy)| (n, net.put_back_and_tell(n, copy, tells_of_a_lack));
    let disks: Vec<(u8, MemStore)> = copies.into_iter().map(tell).collect();
    decide_nothing_apart(&mut net, &[1, 2, 3], &[4, 5, 6], disks);
}

#[test]
fn two_outdated_logs_decide_nothing() {
    two_outdated_logs(false);
}

#[test]
fn two_outdated_logs_of_different_age_decide_nothing() {
    two_outdated_logs(true);
}

/// Node 4 votes in the place of node 3 since, which node 3 has not heard. Nodes 1 and 2 acknowledged that. The disk of node 1 is an older one, and node 4
/// is away. `of_second`: what becomes of the disk of node 2, which is given as it was before that change, and as it is.
fn an_outdated_log_beside(of_second: impl FnOnce(&MemStore, MemStore) -> MemStore) {
    let (mut net, ()) = one_is_cut_off(|_| ());
    let (copy, second) = (net.copy_disk(1, true), net.copy_disk(2, false));
    net.join(4);
    net.run(secs(20));
    assert_eq!(voters(&net, 1), [1, 2, 4]);
    net.propose(1, "of the newer voters");
    net.settle();
    net.kill(1);
    let disk = net.put_back_and_tell(1, copy, tells_of_a_lack);
    let second = of_second(&second, net.kill(2));
    net.kill(4);
    net.restart(2, second, 2, Seqno(0));
    decide_nothing_apart(&mut net, &[1, 2, 3], &[], vec![(1, disk)]);
}

#[test]
fn an_outdated_log_and_a_lost_one_decide_nothing() {
    an_outdated_log_beside(|_, log| damaged_from_its_beginning(log.hard_state()));
}

/// It lost its end, and with that the change, of which it had not heard that it is committed. It is as good as the disk of node 1, or not quite.
#[test]
fn an_outdated_log_and_a_damaged_one_decide_nothing() {
    for as_good in [false, true] {
        an_outdated_log_beside(|then, mut log| {
            let end = then.last();
            log.damage(if as_good { end } else { end.prev() }).unwrap();
            let HardState { voters_committed, committed, .. } = then.hard_state();
            log.save_hard_state(HardState { voters_committed, committed, ..log.hard_state() }).unwrap();
            log
        });
    }
}

/// A founder that gave others votes lost its end by damage, and the change with it. It did not know that the change is committed.
#[test]
fn a_damaged_log_that_names_one_voter_decides_alone_only_if_it_has_never_named_others() {
    let mut net = Net::cluster(1);
    net.propose(1, "of one");
    net.settle();
    let mut alone = net.copy_disk(1, false);
    alone.damage(alone.last().prev()).unwrap();
    for n in 2..=3 {
        net.enter(n, Net::config(n), MemStore::new(), None);
    }
    let change = net.deliver_until(|net| {
        let of_all = net.nodes.keys().all(|n| voters(net, *n) == [1, 2, 3]);
        (net.nodes.len() == 3 && of_all).then(|| net.nodes[&1].group.store().last())
    });
    let mut log = net.copy_disk(1, false);
    assert!(log.hard_state().voters_committed < change);
    log.damage(change.prev()).unwrap();
    net.run(secs(5));
    net.kill(1);
    net.run(secs(5));
    net.isolate(1);
    net.restart(1, log, 2, Seqno(0));
    net.isolate(1);
    net.run(secs(20));
    assert_eq!(net.phase(2), Phase::Primary);
    assert!(net.phase(1) != Phase::Primary, "two primary components");
    net.heal();
    net.run(secs(20));
    assert!((1..=3).all(|n| net.phase(n) == Phase::Primary && !net.forked(n)));

    let mut net = Net::new();
    net.restart(1, alone, 2, Seqno(0));
    net.run(secs(20));
    assert_eq!(net.phase(1), Phase::Primary, "the only node that there ever was");
}

/// As `a_log_without_its_end_is_suspect_before_a_fork_lowers_its_marks`, but the log was suspect before: it lost its end with its power, or by damage. It
/// knows by its marks that a change of the voters is missing. They are lowered for a fork that never gets to its disk.
#[test]
fn a_suspect_log_without_its_end_knows_that_it_lacks_voters_when_its_marks_are_lowered() {
    for suspect in [false, true] {
        let mut net = Net::cluster(1);
        net.propose(1, "before");
        net.settle();
        let end = net.nodes[&1].group.store().last();
        net.join(2);
        let mut store = net.kill(1);
        net.kill(2);
        let is_change = |e: &&Entry| e.header.kind == EntryKind::Voters;
        let entries = store.read(store.first(), usize::MAX).unwrap();
        let change = entries.iter().rfind(is_change).unwrap();
        assert_eq!(VoterSet::decode(&mut Reader::new(&change.payload)).unwrap().voters.len(), 2);
        let hard = HardState { voters_committed: change.header.index, ..store.hard_state() };
        store.truncate_after(end).unwrap();
        store.set_suspect(Some(end).filter(|_| suspect)).unwrap();
        store.save_hard_state(hard).unwrap();
        store.full = true;
        net.restart(1, store, 2, Seqno(0));
        net.run(secs(20));
        assert_ne!(net.phase(1), Phase::Primary, "it knows that it lacks a change of the voters");
        net.force(1);
        net.settle();
        assert_eq!(net.phase(1), Phase::Failed);
        let mut store = net.kill(1);
        assert!(store.hard_state().voters_committed <= end && store.last() == end);
        store.full = false;
        net.restart(1, store, 3, Seqno(0));
        net.run(secs(20));
        assert_ne!(net.phase(1), Phase::Primary, "suspect before: {suspect}. It decides by the voters of then");
    }
}

/// Node `n` comes in, the other one leaves, and it commits alone.
fn takes_over(net: &mut Net, n: u8, other: u8) {
    net.join(n);
    net.run(secs(5));
    net.stop(other);
    assert_eq!((net.phase(n), net.sequencer()), (Phase::Primary, n));
    for k in 0..10 {
        net.propose(n, &format!("of the last one {k}"));
        net.settle();
    }
}

/// An old disk of node `n` is put back where it hears nobody. It goes on alone, as it knows that nobody else decides.
fn goes_on_apart(net: &mut Net, n: u8, disk: MemStore, incarnation: u32, at: Seqno) {
    net.cut = vec![(1, 2)];
    net.restart(n, disk, incarnation, at);
    net.run(secs(20));
    assert_eq!(net.phase(n), Phase::Primary, "nobody else decides, by its log");
}

/// A cluster of one, a copy of its disk, and another one that took over, is alone since, and has committed.
fn a_copy_and_the_last_one() -> (Net, MemStore, Seqno) {
    let mut net = Net::new();
    net.bootstrap(1);
    net.propose(1, "before");
    net.settle();
    let copy = net.copy_disk(1, false);
    let at = end_of(&copy);
    takes_over(&mut net, 2, 1);
    (net, copy, at)
}

#[test]
fn the_last_one_does_not_give_way_to_an_old_copy_that_went_on_alone() {
    let (mut net, copy, at) = a_copy_and_the_last_one();
    goes_on_apart(&mut net, 1, copy, 2, at);
    net.cut.clear();
    net.run(secs(60));
    assert!(net.phase(2) == Phase::Primary && !net.warned(2, "this node leaves"), "{:?}", net.nodes[&2].events);
    assert!(net.warned(2, "is the longer one"), "a person hears of it: {:?}", net.nodes[&2].events);
}

/// The old copy went on for so long that its log is the longer one. Nobody can say by that which of the two is to go on, so nobody's data go.
#[test]
fn the_last_one_keeps_its_data_from_an_old_copy_with_a_longer_log() {
    for restarts in 0..3 {
        let (mut net, copy, at) = a_copy_and_the_last_one();
        goes_on_apart(&mut net, 1, copy, 2, at);
        for n in 0..restarts {
            let store = net.kill(1);
            net.restart(1, store, 3 + n, at);
            net.run(secs(20));
        }
        for n in 0..50 {
            net.propose(1, &format!("of the old copy {n}"));
            net.settle();
        }
        net.cut.clear();
        net.run(secs(120));
        assert!(net.warned(2, "this node leaves"), "{:?}", net.nodes[&2].events);
        assert!(net.warned(2, "does not name all"), "a person decides: {:?}", net.nodes[&2].events);
        assert!(!net.gave_way(2), "after {restarts} restarts");
        assert_eq!((net.phase(1), net.phase(2)), (Phase::Primary, Phase::NonPrimary), "two may not order side by side");
        // A person stops it.
        net.kill(1);
        net.run(secs(60));
        assert_eq!(net.phase(2), Phase::Primary);
        assert_eq!(net.bodies(2).last().unwrap(), "of the last one 9");
    }
}

/// Both say again where they stand as long as they lead side by side.
#[test]
fn two_that_lead_alone_are_compared_again_when_one_has_grown() {
    let (mut net, copy, at) = a_copy_and_the_last_one();
    goes_on_apart(&mut net, 1, copy, 2, at);
    net.cut.clear();
    net.run(secs(20));
    assert_eq!((net.phase(1), net.phase(2)), (Phase::Primary, Phase::Primary));
    for n in 0..50 {
        net.propose(1, &format!("of the old copy {n}"));
        net.settle();
    }
    net.run(secs(5));
    assert_eq!((net.phase(1), net.phase(2)), (Phase::Primary, Phase::NonPrimary), "two may not order side by side");
    assert!(!net.gave_way(2));
}

/// The other way round: the copy is of the one that was alone for a time, and the other has come back since and is the last one.
#[test]
fn an_old_copy_that_went_on_alone_gives_way_to_the_last_one() {
    let (mut net, _, at) = a_copy_and_the_last_one();
    let copy = net.copy_disk(2, false);
    let at_copy = end_of(&copy);
    assert!(at_copy > at);
    takes_over(&mut net, 1, 2);
    goes_on_apart(&mut net, 2, copy, 9, at_copy);
    net.cut.clear();
    net.run(secs(60));
    assert!(net.gave_way(2), "{:?}", net.nodes[&2].events);
    assert!(!net.warned(1, "this node leaves") && net.phase(1) == Phase::Primary, "{:?}", net.nodes[&1].events);
    assert_eq!(net.phase(2), Phase::Primary, "it takes a copy of the other's data");
}

/// Swarm seed 78321930. It was cut off from the one that went on, and still says what the one that left had told it. That is no old disk.
#[test]
fn the_last_one_does_not_give_way_to_one_that_was_left_behind() {
    let mut net = Net::cluster(2);
    net.join_without_a_vote(3);
    net.run(secs(3));
    assert_eq!(net.sequencer(), 1);
    net.cut = vec![(2, 3)];
    net.update_links();
    let now = net.now;
    net.nodes.get_mut(&1).unwrap().group.leave(now);
    let alone = |net: &Net| net.nodes[&2].group.status().view.members.len() == 1;
    while !alone(&net) {
        net.run(Duration::from_millis(10));
    }
    let behind = net.nodes[&3].group.status();
    assert_eq!((behind.phase, behind.sequencer), (Phase::Primary, Some(node(1))), "it has not noticed yet");
    net.heal();
    net.run(secs(20));
    assert!(net.phase(2) == Phase::Primary && !net.warned(2, "this node leaves"), "{:?}", net.nodes[&2].events);
}

/// The first one hands over to the second, and back, and leaves. So the second one is alone, with entries of all those terms. Gives what the third
/// one, which has no vote and is cut off, says of itself meanwhile.
fn the_last_one_and_what_one_that_was_left_behind_says() -> (Net, Presence) {
    let mut net = Net::cluster(2);
    net.join_without_a_vote(3);
    net.run(secs(3));
    assert_eq!(net.sequencer(), 1);
    for (from, to) in [(1, 2), (2, 1)] {
        let term = net.nodes[&from].group.status().term;
        net.queue.push_back((from, to, Content::TimeoutNow.in_term(HISTORY, term)));
        net.run(secs(3));
        assert_eq!(net.sequencer(), to);
        net.propose(to, "of each term");
        net.settle();
    }
    net.cut = vec![(2, 3)];
    net.update_links();
    let now = net.now;
    net.nodes.get_mut(&1).unwrap().group.leave(now);
    while net.nodes[&2].group.status().view.members.len() > 1 {
        net.run(Duration::from_millis(10));
    }
    net.heal();
    let says = |(from, to, message): &(u8, u8, Message)| match message {
        Message::Presence(presence) if (*from, *to) == (3, 2) => Some(presence.clone()),
        _ => None,
    };
    net.drain_all();
    let presence = Presence { primary: true, ..net.queue.iter().find_map(says).unwrap() };
    assert_eq!((presence.sequencer, presence.last_term), (Some(node(1)), presence.term));
    assert!(presence.term < net.nodes[&2].group.status().term);
    (net, presence)
}

/// It stood still as a sequencer, with entries that it gave to nobody. Now it has read who came after it, and not yet that one's entries.
#[test]
fn the_last_one_does_not_give_way_to_one_that_hears_only_now_of_a_term_before() {
    let (mut net, presence) = the_last_one_and_what_one_that_was_left_behind_says();
    let last_term = Term(presence.term.0 - 1);
    let own = |index| net.nodes[&2].group.store().term_at(index);
    for beyond in [0, 100] {
        let last_index = LogIndex(presence.last_index.0 + beyond);
        assert_ne!(own(last_index), Some(last_term), "its log is no part of the one here");
        net.queue.push_front((3, 2, Message::Presence(Presence { last_term, last_index, ..presence.clone() })));
    }
    net.settle();
    net.run(secs(20));
    assert!(net.phase(2) == Phase::Primary && !net.warned(2, "this node leaves"), "{:?}", net.nodes[&2].events);
}

/// The same of a term of which nothing is here: others have gone on without this one, so its disk is an old one.
#[test]
fn the_last_one_gives_way_to_one_that_hears_of_a_term_which_passed_it_by() {
    let (mut net, presence) = the_last_one_and_what_one_that_was_left_behind_says();
    let (last_term, term) = (presence.term, Term(presence.term.0 + 3));
    net.queue.clear();
    let raised = Content::HeartbeatAck { round: 0 }.in_term(HISTORY, Term(term.0 + 3));
    net.queue.push_front((3, 2, raised));
    net.settle();
    net.cut = vec![(2, 3)];
    net.update_links();
    net.run(secs(5));
    assert!(net.phase(2) == Phase::Primary && net.nodes[&2].group.status().term > term);
    net.heal();
    let last_index = LogIndex(presence.last_index.0 + 1);
    net.queue.push_front((3, 2, Message::Presence(Presence { term, last_term, last_index, ..presence })));
    net.settle();
    assert!(net.warned(2, "this node leaves"), "{:?}", net.nodes[&2].events);
}
