//! Hand-written scenarios: one situation each, with the simulator's vocabulary.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use trireme_order::{Content, Envelope, LogStore, Message, Phase};
use trireme_sim::check::Outcome;
use trireme_sim::{Cluster, DbFlush, Kind, MS, Options, SEC, Situation, StoreKind, Verdict};
use trireme_types::{Durability, EntryKind};

fn cluster(nodes: usize) -> Cluster {
    Cluster::formed(Options::calm(1, nodes))
}

fn with(nodes: usize, change: impl FnOnce(&mut Options)) -> Cluster {
    let mut o = Options::calm(1, nodes);
    change(&mut o);
    Cluster::formed(o)
}

#[test]
fn a_single_node_forms_commits_and_recovers_alone() {
    let mut c = cluster(1);
    let op = c.write_committed(0);
    c.crash(0, true);
    c.join(0);
    c.expect(10 * SEC, "primary again", |c| c.is_primary(0));
    assert!(c.committed(op));
    c.write_committed(0);
    c.conclude();
}

#[test]
fn every_member_originates() {
    let mut c = cluster(3);
    for slot in 0..3 {
        c.write_committed(slot);
    }
    c.conclude();
}

#[test]
fn what_was_ordered_holds_its_rows_when_clients_are_given_up() {
    let mut c = with(1, |o| (o.keys, o.db_apply_mean) = (1, SEC));
    let ops: Vec<u64> = (0..10).map(|_| c.write(0)).collect();
    c.expect(SEC, "ordered", |c| ops.iter().all(|op| c.histories.find(*op).is_some()));
    c.abandon(0);
    for _ in 0..10 {
        c.write(0);
    }
    c.conclude();
}

#[test]
fn a_node_that_stands_still_gives_up_no_client() {
    let mut c = with(1, |o| (o.keys, o.step_mean) = (1, 10 * MS));
    for _ in 0..10 {
        c.write(0);
    }
    c.pause(0);
    c.abandon(0);
    c.resume(0);
    for _ in 0..10 {
        c.write(0);
    }
    c.conclude();
}

#[test]
fn a_statement_in_isolation_waits_until_it_is_certain_and_other_clients_do_not() {
    // rule 22: the sequencer is cut off with both, and the others go on without them.
    let mut c = with(3, |o| o.non_primary_patience = SEC);
    let s = c.the_sequencer();
    c.isolate(s);
    let ordinary = c.write(s);
    c.options.isolated_share = 1.0;
    let statement = c.write(s);
    c.options.isolated_share = 0.0;
    let new = c.other_sequencer(s);
    c.write_committed(new);
    c.expect(60 * SEC, "patience is over", |c| !c.waits_for(s, ordinary));
    assert!(c.waits_for(s, statement), "there is no truthful answer");
    c.heal_network();
    c.expect(60 * SEC, "it is certain", |c| !c.waits_for(s, statement));
    assert_eq!(c.clients.outcome(ordinary), Some(Outcome::Unknown));
    assert_eq!(c.clients.outcome(statement), Some(Outcome::Withdrawn));
    c.conclude();
}

#[test]
fn a_founder_begins_in_the_mode_that_it_was_told_last() {
    for (usual, told) in [(Durability::Disk, Durability::Process), (Durability::Process, Durability::Disk)] {
        let mut o = Options::calm(1, 3);
        (o.founded, o.durability, o.sync_mean) = (true, usual, 100 * MS);
        let mut c = Cluster::new(o);
        c.join(0);
        c.set_durability(0, told);
        for slot in 1..3 {
            c.join(slot);
        }
        c.expect(60 * SEC, "a cluster", |c| c.one_view() && c.settled());
        c.write_committed(0);
        c.conclude();
    }
}

#[test]
fn a_server_takes_no_clients_before_it_is_synced() {
    // rule 28: until then its data may turn out to be wrong.
    let mut c = cluster(3);
    c.crash(2, false);
    c.join(2);
    c.expect(10 * SEC, "a member", |c| c.is_primary(2));
    assert!(!c.is_synced(2));
    let early = c.write(2);
    assert!(matches!(c.clients.outcome(early), Some(Outcome::Refused)));
    c.write_committed(2);
    c.conclude();
}

#[test]
fn a_sequencer_that_dies_with_an_uncommitted_tail_comes_back_without_it() {
    let mut c = cluster(3);
    let s = c.the_sequencer();
    c.isolate(s);
    let lost: Vec<u64> = (0..5).map(|_| c.write(s)).collect();
    let new = c.other_sequencer(s);
    let kept = c.write_committed(new);
    c.crash(s, false);
    // Long enough for the others to notice that the connections are gone: else messages under way would still arrive.
    c.pass(SEC);
    c.heal_network();
    c.join(s);
    c.expect(60 * SEC, "one view", |c| c.one_view() && c.settled());
    assert!(c.committed(kept));
    assert!(lost.iter().all(|op| c.histories.find(*op).is_none()));
    c.conclude();
}

#[test]
fn a_deposed_sequencer_with_the_longer_log_is_not_chosen() {
    // rule 1: the last-normal term decides, not the length.
    let mut c = cluster(3);
    let s = c.the_sequencer();
    c.isolate(s);
    for _ in 0..50 {
        c.write(s);
    }
    let new = c.other_sequencer(s);
    let kept = c.write_committed(new);
    let third = 3 - s - new;
    for slot in 0..3 {
        c.crash(slot, true);
    }
    c.heal_network();
    c.join(s);
    c.join(new);
    c.expect(60 * SEC, "two of three form again", |c| c.is_primary(s) && c.is_primary(new));
    c.write_committed(new);
    assert!(c.histories.find(kept).is_some());
    c.join(third);
    c.conclude();
}

#[test]
fn what_only_the_old_sequencer_and_the_origin_saw_is_ordered_once() {
    // rule 4: the origin sends again to the new sequencer, whose log has it already.
    let mut c = cluster(3);
    let s = c.the_sequencer();
    let origin = (s + 1) % 3;
    c.hold(Some(s), Some(origin), |_| true);
    let op = c.write(origin);
    c.expect(10 * SEC, "ordered by the others", |c| c.histories.find(op).is_some());
    c.crash(s, false);
    c.set_filter(None);
    c.expect(60 * SEC, "the origin hears of its write set", |c| c.committed(op));
    c.join(s);
    c.conclude();
}

#[test]
fn held_back_acknowledgements_of_an_older_term_count_for_nothing() {
    // rule 2. The followers' messages of term t reach the deposed sequencer only after term t + 1 has begun.
    let mut c = cluster(3);
    let s = c.the_sequencer();
    c.hold(None, Some(s), |_| true);
    for _ in 0..3 {
        c.write(s);
    }
    let new = c.other_sequencer(s);
    c.isolate(s);
    c.set_filter(None);
    c.write_committed(new);
    c.release();
    c.pass(2 * SEC);
    c.heal_network();
    c.pass(2 * SEC);
    c.conclude();
}

#[test]
fn a_sync_that_completes_after_the_tail_was_replaced_acknowledges_nothing() {
    let mut c = with(3, |_| {});
    let s = c.the_sequencer();
    c.stall_syncs(s, 50_000);
    c.isolate(s);
    for _ in 0..10 {
        c.write(s);
    }
    let new = c.other_sequencer(s);
    for _ in 0..10 {
        c.write_committed(new);
    }
    c.heal_network();
    c.pass(20 * SEC);
    for slot in 0..3 {
        c.crash(slot, true);
    }
    for slot in 0..3 {
        c.join(slot);
    }
    c.conclude();
}

#[test]
fn of_two_nodes_the_survivor_of_a_kill_stops_and_goes_on_when_the_other_is_back() {
    let mut c = cluster(2);
    c.crash(1, false);
    c.expect(60 * SEC, "the survivor is not primary", |c| c.status(0).is_some_and(|s| s.phase == Phase::NonPrimary));
    c.join(1);
    c.expect(60 * SEC, "both primary", |c| c.one_view());
    c.write_committed(0);
    c.conclude();
}

#[test]
fn of_two_nodes_the_one_that_stays_goes_on_after_a_leave() {
    for leaver in 0..2 {
        let mut c = cluster(2);
        c.leave(leaver);
        c.expect(60 * SEC, "the leaver is gone", |c| !c.is_running(leaver));
        c.expect(60 * SEC, "the other is alone in its view", |c| {
            c.is_primary(1 - leaver) && c.view_size(1 - leaver) == 1
        });
        c.write_committed(1 - leaver);
        c.join(leaver);
        c.conclude();
    }
}

#[test]
fn five_voters_become_three_when_two_fail_and_then_survive_a_third() {
    let mut c = cluster(5);
    let s = c.the_sequencer();
    let others: Vec<usize> = (0..5).filter(|&i| i != s).collect();
    c.crash(others[0], false);
    c.crash(others[1], false);
    c.expect(120 * SEC, "three voters", |c| c.voters().len() == 3 && c.view_size(s) == 3);
    c.crash(others[2], false);
    c.expect(120 * SEC, "two in the view", |c| c.view_size(s) == 2 && c.is_primary(s));
    c.write_committed(s);
    c.conclude();
}

#[test]
fn three_voters_stay_three_when_one_fails() {
    // rule 9: 3 -> 2 would lower the number of failures that the group survives next.
    let mut c = cluster(3);
    let s = c.the_sequencer();
    c.crash((s + 1) % 3, false);
    c.expect(60 * SEC, "two in the view", |c| c.view_size(s) == 2 && c.is_primary(s));
    c.pass(5 * SEC);
    assert_eq!(c.voters().len(), 3);
    c.conclude();
}

#[test]
fn a_joiner_that_dies_in_the_middle_of_its_copy_starts_over() {
    let mut c = with(3, |o| {
        o.transfer_mean = 2 * SEC;
        o.checkpoint_every = 5;
        o.retain = 0;
    });
    c.wipe(2);
    for _ in 0..30 {
        c.write_committed(0);
    }
    for _ in 0..3 {
        c.join(2);
        c.pass(300 * MS);
        c.crash(2, false);
    }
    c.join(2);
    c.expect(120 * SEC, "the copy is there", |c| c.database_position(2).is_some() && c.settled());
    c.conclude();
}

/// Server and node are one process. Both hear of a copy that is complete while it stands still when it moves again.
#[test]
fn a_copy_that_ends_while_its_joiner_stands_still_counts_when_that_one_goes_on() {
    let mut c = with(3, |o| {
        (o.checkpoint_every, o.retain, o.db_flush) = (5, 0, DbFlush::Each);
        o.transfer_mean = SEC;
        o.timeouts.suspect = Duration::from_secs(60);
    });
    let s = c.the_sequencer();
    let joiner = (s + 1) % 3;
    c.crash(joiner, false);
    for _ in 0..60 {
        c.write_committed(s);
    }
    let copies = c.copies;
    c.join(joiner);
    c.expect(60 * SEC, "its data are being replaced", |c| c.database_position(joiner).is_none());
    c.pause(joiner);
    c.pass(20 * SEC);
    assert_eq!(c.copies, copies);
    c.resume(joiner);
    c.expect(60 * SEC, "equal data", |c| c.one_view() && c.settled());
    assert_eq!(c.copies, copies + 1);
    // The group knows of the data as well: it is formed again with them alone.
    let others = [(joiner + 1) % 3, (joiner + 2) % 3];
    c.write_committed(joiner);
    c.crash(others[0], false);
    c.expect(60 * SEC, "the other two go on", |c| c.sequencer().is_some());
    c.write_committed(joiner);
    c.join(others[0]);
    c.conclude();
}

#[test]
fn after_a_rolling_stop_only_the_last_one_out_may_begin() {
    let mut c = cluster(3);
    c.write_committed(0);
    for slot in 0..3 {
        c.leave(slot);
        c.expect(60 * SEC, "it is gone", |c| !c.is_running(slot));
        if slot < 2 {
            c.write_committed(2);
        }
    }
    c.join(0);
    c.join(1);
    c.pass(30 * SEC);
    assert!(!c.is_primary(0) && !c.is_primary(1), "those who left earlier began without the last one\n{}", c.dump());
    c.join(2);
    c.conclude();
}

#[test]
fn loss_of_power_everywhere_loses_no_acknowledged_commit_with_durability_disk() {
    let mut c = with(3, |o| o.db_flush = DbFlush::Lazy);
    let mut ops = Vec::new();
    for slot in 0..3 {
        ops.push(c.write_committed(slot));
    }
    for slot in 0..3 {
        c.crash(slot, true);
    }
    for slot in 0..3 {
        c.join(slot);
    }
    c.expect(60 * SEC, "formed again", |c| c.one_view());
    assert!(ops.iter().all(|op| c.histories.find(*op).is_some()));
    c.conclude();
}

#[test]
fn a_kill_of_all_processes_loses_no_acknowledged_commit_with_durability_process() {
    let mut c = with(3, |o| o.durability = Durability::Process);
    for slot in 0..3 {
        c.write_committed(slot);
    }
    for slot in 0..3 {
        c.crash(slot, false);
    }
    for slot in 0..3 {
        c.join(slot);
    }
    c.conclude();
}

#[test]
fn a_sequencer_that_sends_but_hears_nothing_steps_down() {
    // rule 6.
    let mut c = cluster(3);
    let s = c.the_sequencer();
    for other in (0..3).filter(|&o| o != s) {
        c.cut(other, s);
    }
    let new = c.other_sequencer(s);
    c.write_committed(new);
    c.conclude();
}

#[test]
fn two_nodes_that_cannot_hear_each_other_but_both_hear_the_third_make_progress() {
    let mut c = cluster(3);
    let s = c.the_sequencer();
    let (a, b) = ((s + 1) % 3, (s + 2) % 3);
    c.cut_both(a, b);
    for slot in [a, b, s] {
        c.write_committed(slot);
    }
    let terms = c.terms;
    c.pass(20 * SEC);
    assert_eq!(c.terms, terms, "a cut between followers changes no term");
    c.conclude();
}

#[test]
fn a_follower_that_loses_only_the_sequencer_does_not_stop_the_others() {
    let mut c = cluster(3);
    let s = c.the_sequencer();
    let (a, b) = ((s + 1) % 3, (s + 2) % 3);
    c.cut_both(s, a);
    c.pass(10 * SEC);
    c.write_committed(b);
    c.conclude();
}

#[test]
fn a_sequencer_that_was_stopped_and_continues_disturbs_nobody() {
    let mut c = cluster(3);
    let s = c.the_sequencer();
    c.write(s);
    c.pause(s);
    let new = c.other_sequencer(s);
    c.write_committed(new);
    c.pass(20 * SEC);
    c.resume(s);
    c.expect(60 * SEC, "one view again", |c| c.one_view());
    c.conclude();
}

#[test]
fn an_origin_that_died_after_reaching_only_the_sequencer_stops_nobody() {
    // rule 3: others get the body from the sequencer.
    let mut c = cluster(3);
    let s = c.the_sequencer();
    let (origin, third) = ((s + 1) % 3, (s + 2) % 3);
    c.cut_both(origin, third);
    let op = c.write(origin);
    c.pass(300 * trireme_sim::US);
    c.crash(origin, false);
    let later = c.write_committed(third);
    assert!(c.committed(later));
    let _ = op;
    c.conclude();
}

#[test]
fn a_node_with_a_new_disk_comes_back_as_a_new_voter() {
    let mut c = cluster(3);
    let s = c.the_sequencer();
    let wiped = (s + 1) % 3;
    c.write_committed(s);
    c.wipe(wiped);
    c.join(wiped);
    c.expect(120 * SEC, "three in the view and all voters", |c| c.one_view() && c.voters().len() == 3);
    c.conclude();
}

#[test]
fn a_read_on_a_sequencer_that_was_deposed_without_knowing_is_not_stale() {
    // rule 25: no answer from memory alone.
    let mut c = cluster(3);
    let s = c.the_sequencer();
    c.pause(s);
    let new = c.other_sequencer(s);
    c.write_committed(new);
    c.resume(s);
    c.read(s);
    c.pass(5 * SEC);
    c.conclude();
}

#[test]
fn a_member_that_restarts_quickly_leaves_history_before_it_enters_again() {
    // rule 12; the views themselves are judged by the checker of histories.
    let mut c = cluster(3);
    let s = c.the_sequencer();
    let other = (s + 1) % 3;
    for _ in 0..3 {
        c.crash(other, false);
        c.join(other);
        c.expect(60 * SEC, "one view", |c| c.one_view());
    }
    c.conclude();
}

#[test]
fn a_member_that_was_away_for_long_catches_up_by_a_copy_when_the_log_is_gone() {
    let mut c = with(3, |o| {
        o.checkpoint_every = 5;
        o.retain = 0;
        o.db_flush = DbFlush::Each;
    });
    let s = c.the_sequencer();
    let away = (s + 1) % 3;
    c.crash(away, false);
    for _ in 0..60 {
        c.write_committed(s);
    }
    let copies = c.copies;
    c.join(away);
    c.expect(120 * SEC, "one view and equal data", |c| c.one_view() && c.settled());
    assert!(c.copies > copies);
    c.conclude();
}

#[test]
fn a_member_that_was_away_for_a_short_time_needs_no_copy() {
    let mut c = cluster(3);
    let s = c.the_sequencer();
    let away = (s + 1) % 3;
    c.crash(away, false);
    for _ in 0..60 {
        c.write_committed(s);
    }
    let copies = c.copies;
    c.join(away);
    c.expect(120 * SEC, "one view and equal data", |c| c.one_view() && c.settled());
    assert_eq!(c.copies, copies);
    c.conclude();
}

/// Swarm seed 75624: the link came back before the new sequencer had heard an acknowledgement, and it took the member for empty.
#[test]
fn a_member_is_asked_what_it_holds_before_it_is_offered_a_state() {
    let mut c = with(3, |o| {
        o.checkpoint_every = 5;
        o.retain = 5;
        o.db_flush = DbFlush::Each;
    });
    let old = c.the_sequencer();
    for _ in 0..60 {
        c.write_committed(old);
    }
    let (offers, deaf) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(true)));
    let (offered, drops) = (offers.clone(), deaf.clone());
    c.set_filter(Some(Box::new(move |_, _, m| match m {
        Message::InTerm(Envelope { content: Content::Ack { .. }, .. }) if drops.get() => Verdict::Drop,
        Message::Snapshot { .. } => {
            offered.set(offered.get() + 1);
            Verdict::Pass
        }
        _ => Verdict::Pass,
    })));
    c.crash(old, false);
    let new = c.other_sequencer(old);
    let member = 3 - old - new;
    assert!(c.base(new).0 > 0, "its log has lost its beginning");
    for _ in 0..5 {
        c.reset_link(new, member);
        c.pass(100 * MS);
    }
    deaf.set(false);
    c.reset_link(new, member);
    c.write_committed(member);
    assert_eq!(offers.get(), 0);
    c.join(old);
    c.conclude();
}

#[test]
fn a_minority_refuses_and_its_majority_commits() {
    let mut c = cluster(5);
    let s = c.the_sequencer();
    let friend = (s + 1) % 5;
    c.partition(&[s, friend]);
    c.expect(60 * SEC, "the minority is not primary", |c| !c.is_primary(s) && !c.is_primary(friend));
    let op = c.write(s);
    assert_eq!(c.clients.outcome(op), Some(trireme_sim::check::Outcome::Refused));
    let new = c.other_sequencer(s);
    c.write_committed(new);
    c.conclude();
}

/// Write sets of up to four hundred pieces, which take some seconds to be written, on either log: nearly each has many pieces.
fn large_records(check: fn(Cluster)) {
    for store in [StoreKind::Fast, StoreKind::Real] {
        let mut o = Options::calm(2, 3);
        (o.store, o.piece_bytes) = (store, 500);
        (o.pieced_share, o.pieces_max, o.piece_mean) = (1.0, 400, 25 * MS);
        check(Cluster::formed(o));
    }
}

fn is_writing(c: &Cluster, slot: usize) -> bool {
    c.store(slot).written() < c.store(slot).last()
}

#[test]
fn a_large_record_commits_when_a_majority_has_its_last_piece() {
    large_records(|mut c| {
        let s = c.the_sequencer();
        let op = c.write(s);
        c.expect(SEC, "it is being written everywhere", |c| (0..3).all(|slot| is_writing(c, slot)));
        assert!(!c.committed(op));
        c.expect(60 * SEC, "it commits", |c| c.committed(op));
        assert!((0..3).filter(|slot| !is_writing(&c, *slot)).count() >= 2);
        c.conclude();
    });
}

#[test]
fn a_record_that_is_taken_back_in_the_middle_leaves_nothing_behind() {
    large_records(|mut c| {
        let s = c.the_sequencer();
        c.isolate(s);
        let first = c.write(s);
        let new = c.other_sequencer(s);
        let second = c.write(new);
        assert!(is_writing(&c, s));
        c.heal_network();
        // It writes the other record in that place, and its own one is sent again. Whether that commits is a matter of the rows that both write.
        c.expect(60 * SEC, "both are ordered", |c| c.histories.find(first).is_some() && c.committed(second));
        assert!(c.histories.find(second) < c.histories.find(first));
        c.conclude();
    });
}

#[test]
fn a_member_that_dies_in_the_middle_of_a_record_has_the_whole_of_it_when_it_is_back() {
    large_records(|mut c| {
        let s = c.the_sequencer();
        let other = (s + 1) % 3;
        let op = c.write(s);
        c.expect(SEC, "it is being written", |c| is_writing(c, other));
        let written = c.store(other).written();
        c.crash(other, false);
        assert_eq!((c.store(other).last(), c.store(other).written()), (written, written));
        c.join(other);
        c.expect(120 * SEC, "all have it", |c| c.committed(op) && c.one_view() && c.settled());
        c.conclude();
    });
}

/// Three members that keep no more of their logs than they need, and wait long for one that is cut off. A log that begins at the last write set does not
/// move before the next one, so `checkpoint_every` is such that none begins there.
fn with_short_logs(checkpoint_every: u64, change: impl FnOnce(&mut Options)) -> Cluster {
    with(3, |o| {
        (o.checkpoint_every, o.retain, o.db_flush) = (checkpoint_every, 0, DbFlush::Each);
        o.timeouts.suspect = Duration::from_secs(60);
        change(o);
    })
}

/// Entries that take no seqno are ordered without this member, which stays in the view, and are in the sequencer's log no more.
fn leave_behind(c: &mut Cluster, behind: usize, away: u64) {
    let orders = c.the_sequencer();
    let lacks = c.store(behind).last().next();
    c.sever(behind);
    c.pass(away);
    for _ in 0..4 {
        assert!(c.hold_order(orders, true));
        c.expect(SEC, "it has desynced for a backup", |c| c.desyncs(orders, orders) == 1);
        c.resume_order(orders);
        c.expect(SEC, "the backup is over", |c| c.desyncs(orders, orders) == 0);
    }
    c.expect(5 * SEC, "the sequencer does not keep what it lacks", |c| c.store(orders).first() > lacks);
}

/// Swarm seed 88678635: a state waits for the engine, its applier for the result of a vote, and that is in the part of the log that the state skips.
#[test]
fn a_state_tells_the_result_for_which_the_engine_waits() {
    let mut c = with_short_logs(3, |_| {});
    c.write_committed(0);
    c.options.kind = Kind::Harmless;
    c.options.error_share = 1.0;
    let orders = c.the_sequencer();
    let behind = (orders + 1) % 3;
    c.set_filter(Some(Box::new(move |_, to, m| match m.content() {
        Some(Content::Append(append))
            if to == behind && append.entries.iter().any(|(h, _)| h.kind == EntryKind::App) =>
        {
            Verdict::Drop
        }
        _ => Verdict::Pass,
    })));
    let op = c.write(orders);
    c.expect(SEC, "it fails there", |c| c.is_voting(behind));
    c.options.error_share = 0.0;
    c.run_for(SEC);
    c.set_filter(None);
    leave_behind(&mut c, behind, 0);
    let (seqno, _) = c.histories.find(op).expect("it is ordered");
    assert_eq!(c.database_position(behind), Some(seqno - 1));
    c.heal_network();
    c.expect(5 * SEC, "it goes on", |c| c.database_position(behind) == Some(seqno));
    c.conclude();
}

/// Swarm seed 88482707: a state waits for the engine, its applier for the locks of a client, and that one for its write set, of which the group has not
/// heard.
#[test]
fn a_client_that_the_engine_waits_for_is_given_up() {
    let mut c = with_short_logs(3, |o| o.keys = 1);
    let orders = c.the_sequencer();
    let behind = (orders + 1) % 3;
    let sends = move |from, m: &Message| from == behind && matches!(m, Message::Submit { app: false, .. });
    c.set_filter(Some(Box::new(move |from, _, m| if sends(from, m) { Verdict::Drop } else { Verdict::Pass })));
    // Clients lock rows.
    c.options.think_mean = MS;
    let own: Vec<u64> = (0..5).map(|_| c.write(behind)).collect();
    c.run_for(100 * MS);
    c.options.think_mean = 0;
    for _ in 0..5 {
        c.write_committed(orders);
    }
    let end = c.database_position(orders);
    let delivered = |c: &Cluster, slot| c.status(slot).map(|s| s.delivered);
    c.expect(SEC, "all is delivered", |c| delivered(c, behind) == delivered(c, orders));
    c.run_for(SEC);
    let waits = c.database_position(behind);
    assert!(waits < end);
    leave_behind(&mut c, behind, 0);
    c.set_filter(None);
    c.heal_network();
    c.expect(c.options.non_primary_patience / 2, "linked again", |c| {
        c.status(behind).is_some_and(|s| s.sequencer.is_some())
    });
    c.run_for(SEC);
    assert_eq!(c.database_position(behind), waits, "clients have their time");
    assert!(own.iter().any(|op| c.waits_for(behind, *op)));
    c.expect(2 * c.options.non_primary_patience, "it goes on", |c| c.database_position(behind) >= end);
    c.conclude();
}

/// An applier has failed alone and waits for the result of the vote, and the engine of its server for the applier. The result comes behind the state that
/// waits for the engine; or the vote has found no majority, and its end is in the part that the state skips.
#[test]
fn a_vote_without_a_result_in_a_state_does_not_hold_up_that_state() {
    for away in [0, 30 * SEC] {
        // The seed says who fails alone. It is not the sequencer.
        let mut c = with_short_logs(4, |o| o.seed = 2);
        c.write_committed(0);
        c.options.error_share = 1.0;
        let orders = c.the_sequencer();
        let votes = |m: &Message| matches!(m, Message::Submit { app: true, .. });
        let silence = |c: &mut Cluster, who: Option<usize>| {
            let held = move |from, m: &Message| from != orders && who.is_none_or(|who| from == who) && votes(m);
            c.set_filter(Some(Box::new(move |from, _, m| if held(from, m) { Verdict::Hold } else { Verdict::Pass })));
        };
        silence(&mut c, None);
        c.write(orders);
        c.expect(SEC, "one fails", |c| (0..3).any(|slot| c.is_voting(slot)));
        let behind = (0..3).find(|slot| c.is_voting(*slot)).unwrap_or(orders);
        assert_ne!(behind, orders);
        c.options.error_share = 0.0;
        // Its own vote is ordered, and the third one's answer is not.
        silence(&mut c, Some(3 - orders - behind));
        c.release();
        c.run_for(300 * MS);
        leave_behind(&mut c, behind, away);
        c.heal_network();
        let lacks = c.store(behind).last().next();
        let taken = |c: &Cluster| c.store(behind).first() > lacks || c.situations.times(Situation::VoteLost) == 1;
        c.expect(3 * c.options.non_primary_patience, "it takes the state", taken);
        c.set_filter(None);
        c.release();
        c.expect(60 * SEC, "it is outvoted", |c| c.situations.times(Situation::VoteLost) == 1);
        c.conclude();
    }
}
