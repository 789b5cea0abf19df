//! Scenarios for rules whose steps in a row come up too seldom by chance. Each returns the words of the checkers, for a sound cluster or
//! with something broken (`mutants.rs`).

use trireme_certification::KeyKind;
use trireme_order::{Content, LogStore, Message};
use trireme_types::Durability;

use crate::ballots::fails_alone;
use crate::cluster::{Cluster, Verdict};
use crate::options::{DbFlush, MS, Options, SEC};
use crate::outage::Sick;
use crate::situations::Situation;

/// A calm cluster in which `broken` is.
fn options(seed: u64, nodes: usize, broken: Option<&str>) -> Options {
    let mut options = Options::calm(seed, nodes);
    if let Some(name) = broken {
        assert!(options.break_by_name(name), "no mutant {name}");
    }
    options
}

fn except(nodes: usize, out: &[usize]) -> Vec<usize> {
    (0..nodes).filter(|i| !out.contains(i)).collect()
}

/// Five nodes. An entry of an older term reaches a majority in a later one, whose own entries reach nobody; then a node with a newer last
/// term wins and replaces it. Returns the words of the checkers.
pub fn figure_8(seed: u64, broken: Option<&str>) -> Option<String> {
    let mut o = options(seed, 5, broken);
    // One entry per message.
    o.batch_bytes_max = 1;
    let mut c = Cluster::formed(o);
    let old = (0..5).filter_map(|i| c.status(i)).map(|s| s.term.0).max().unwrap_or(0);
    let first = c.the_sequencer();
    let friend = (first + 1) % 5;
    let rest = except(5, &[first, friend]);
    // An entry that only two hold.
    for &r in &rest {
        c.cut_both(first, r);
        c.cut_both(friend, r);
    }
    let op = c.write(first);
    let held = |c: &Cluster, slot: usize| c.store(slot).last();
    let at = held(&c, friend).next();
    c.expect(SEC, "two hold it", |c| held(c, first) >= at && held(c, friend) >= at);
    c.crash(first, false);
    // Of the rest one begins a term, which nobody else hears of.
    let new_terms = move |m: &Message| match m.content() {
        Some(Content::Append(append)) => append.entries.iter().any(|(h, _)| h.term.0 > old),
        _ => false,
    };
    let hide = move |c: &mut Cluster| {
        c.set_filter(Some(Box::new(move |_, _, m| if new_terms(m) { Verdict::Drop } else { Verdict::Pass })));
    };
    hide(&mut c);
    let stands = |c: &Cluster| {
        let orders = |i: &usize| c.status(*i).is_some_and(|s| s.sequencer == Some(c.node(*i)) && s.last >= at);
        rest.iter().copied().find(orders)
    };
    c.expect(10 * SEC, "one of the three orders", |c| stands(c).is_some());
    let third = stands(&c).unwrap();
    c.crash(third, false);
    let rest = except(5, &[first, friend, third]);
    // The first two come back with their entry and bring it to the others, but nothing of their own term.
    c.heal_network();
    for &r in &rest {
        // Only they may order: the others' logs are worse.
        assert!(held(&c, r) < at);
    }
    c.join(first);
    let reached = c.run_until(20 * SEC, |c| rest.iter().all(|&r| held(c, r) >= at));
    if c.failure.is_some() {
        return c.failure;
    }
    assert!(reached, "the old entry reaches a majority\n{}", c.dump());
    c.run_for(500 * MS);
    let committed = c.histories.find(op).is_some();
    assert!(broken.is_some() || !committed, "held by a majority, and not decided");
    c.crash(first, false);
    c.crash(friend, false);
    // Now only the third can win: the others hear nobody but it.
    c.cut_both(rest[0], rest[1]);
    c.set_filter(None);
    c.join(third);
    c.run_until(20 * SEC, |c| c.status(third).is_some_and(|s| s.committed > at));
    c.heal_network();
    c.join(first);
    c.join(friend);
    judged(c)
}

/// Three nodes whose engines flush each commit. One is left alone with an entry that nobody has. The others go on in a new term and lose
/// their power, and with it the entries that their logs had not synced. The log of the first one must not pass for theirs.
pub fn an_older_end(seed: u64, broken: Option<&str>) -> Option<String> {
    let mut o = options(seed, 3, broken);
    o.durability = Durability::Process;
    o.db_flush = DbFlush::Each;
    // A log that goes on from data is another branch.
    o.dark = true;
    let mut c = Cluster::formed(o);
    let alone = c.the_sequencer();
    let rest = except(3, &[alone]);
    c.isolate(alone);
    c.write(alone);
    let orders = |c: &Cluster| {
        rest.iter()
            .copied()
            .find(|&i| c.status(i).is_some_and(|s| s.sequencer == Some(c.node(i)) && s.committed == s.last))
    };
    c.expect(10 * SEC, "another one orders", |c| orders(c).is_some());
    let second = orders(&c).unwrap();
    let committed = |c: &Cluster, node| c.status(node).map(|s| s.committed);
    let before = committed(&c, second);
    c.write(second);
    c.expect(SEC, "both have it", |c| rest.iter().all(|&node| committed(c, node) > before));
    c.run_for(20 * MS);
    for &node in &rest {
        c.crash(node, true);
    }
    c.crash(alone, false);
    c.heal_network();
    for node in 0..3 {
        c.join(node);
    }
    judged(c)
}

/// Three nodes in mode `process`, whose disks stand still. The mode is switched to `disk`, and a client commits behind that. Nobody may
/// tell the client that it has committed before the disks work again.
pub fn a_switch_to_disk(seed: u64, broken: Option<&str>) -> Option<String> {
    let mut o = options(seed, 3, broken);
    o.durability = Durability::Process;
    let mut c = Cluster::formed(o);
    for node in 0..3 {
        c.stall_syncs(node, 1_000_000);
    }
    let orders = c.the_sequencer();
    c.with_group(orders, |group, now| group.set_durability(now, Durability::Disk));
    let op = c.write(orders);
    c.run_for(SEC);
    assert!(broken.is_some() || !c.committed(op), "nobody can know that it is durable");
    judged(c)
}

/// Three nodes in mode `process`, whose clients never pause. The mode is switched to `disk`. At the end of each sync there is something newer
/// that is not synced, and the logs have to say `disk` all the same. The power fails everywhere, and no log may be in doubt for that.
pub fn a_switch_under_load(seed: u64, broken: Option<&str>) -> Option<String> {
    let mut o = options(seed, 3, broken);
    o.durability = Durability::Process;
    let mut c = Cluster::formed(o);
    let orders = c.the_sequencer();
    for node in 0..3 {
        c.stall_syncs(node, 20);
    }
    c.with_group(orders, |group, now| group.set_durability(now, Durability::Disk));
    for _ in 0..200 {
        c.write(orders);
        c.run_for(MS);
    }
    for node in 0..3 {
        c.stall_syncs(node, 1);
        c.crash(node, true);
    }
    let doubts = (0..3).find(|&node| c.store(node).suspect().is_some());
    if let Some(node) = doubts {
        return Some(c.failure.unwrap_or(format!("the log of n{node} is in doubt, and has lost nothing that counts")));
    }
    for node in 0..3 {
        c.join(node);
    }
    judged(c)
}

/// A copy of a member's directory is started beside the member, which loses its links to it. Later the sequencer is cut from all but the
/// member that the copy replaced. As a voter that one would help it to commit entries of which the others, with the copy, know nothing.
pub fn cloned(seed: u64, broken: Option<&str>) -> Option<String> {
    let mut c = Cluster::formed(options(seed, 3, broken));
    let orders = c.the_sequencer();
    let (original, third) = ((orders + 1) % 3, (orders + 2) % 3);
    let clone = c.clone_disk(original);
    c.write_committed(original);
    c.join(clone);
    c.expect(10 * SEC, "the copy takes the member's place", |c| c.is_primary(clone) && !c.is_primary(original));
    for other in [clone, third] {
        c.cut_both(orders, other);
        c.reset_link(orders, other);
    }
    c.run_for(100 * MS);
    c.write(orders);
    let goes_on = |c: &Cluster| [clone, third].iter().all(|&i| c.is_primary(i) && c.view_size(i) == 2);
    if !c.run_until(30 * SEC, goes_on) {
        return Some(c.failure.unwrap_or("the others do not go on".into()));
    }
    c.write(third);
    c.run_for(SEC);
    c.heal_network();
    // The message in the log asks for this.
    c.wipe(original);
    c.join(original);
    judged(c)
}

/// A node gets its disk back from the time when it alone decided, and hears from the others that it is an old one. It dies before they have
/// repaired it, and is started again where it hears nobody. By the voters that its log names it may decide alone. The others go on without it.
pub fn an_old_disk(seed: u64, broken: Option<&str>) -> Option<String> {
    let mut c = Cluster::new(options(seed, 3, broken));
    c.bootstrap(0);
    c.write_committed(0);
    c.copy_disk(0);
    (1..3).for_each(|node| c.join(node));
    c.expect(60 * SEC, "all vote", |c| c.one_view() && c.voters().len() == 3 && c.settled());
    c.write_committed(1);
    c.put_back(0);
    c.set_filter(Some(Box::new(|_, to, m| {
        let first_words = matches!(m, Message::Presence(_)) || matches!(m.content(), Some(Content::Recall { .. }));
        if to == 0 && !first_words { Verdict::Drop } else { Verdict::Pass }
    })));
    c.join(0);
    c.expect(10 * SEC, "it is told so", |c| c.store(0).is_outdated());
    c.crash(0, false);
    c.isolate(0);
    c.set_filter(None);
    c.join(0);
    c.write_committed(1);
    c.run_for(30 * SEC);
    if c.is_primary(0) {
        return Some("an old disk decides by the voters of then".into());
    }
    c.heal_network();
    judged(c)
}

/// A client's statement in total-order isolation is on its way when the log's disk of its node fails. The others order it. Nobody may have
/// told the client that it was not executed.
pub fn a_statement_in_an_outage(seed: u64, broken: Option<&str>) -> Option<String> {
    let mut o = options(seed, 3, broken);
    o.outage_mean = SEC;
    let mut c = Cluster::formed(o);
    let slot = (c.the_sequencer() + 1) % 3;
    // Its log has to write nothing before the sequencer sends that back.
    let works_at = c.now + 2 * SEC;
    c.break_disk(slot, Sick::Writes, 0, works_at, false);
    c.options.isolated_share = 1.0;
    let op = c.write(slot);
    c.options.isolated_share = 0.0;
    let out = c.run_until(SEC, |c| c.sits_out(slot));
    let waits = c.slots[slot].process.as_ref().is_some_and(|p| p.is_busy_with(op));
    assert!(broken.is_some() || out && waits, "its client waits for the outcome\n{}", c.dump());
    judged(c)
}

/// Three nodes in mode `process`. The disk of one takes no more, and the kernel drops what no sync has covered, some of which was
/// acknowledged. The process dies, and is started again on the same boot. Its log may not count as evidence.
pub fn a_failed_sync(seed: u64, broken: Option<&str>) -> Option<String> {
    let mut o = options(seed, 3, broken);
    o.durability = Durability::Process;
    o.outage_mean = SEC;
    let mut c = Cluster::formed(o);
    let orders = c.the_sequencer();
    let slot = (orders + 1) % 3;
    c.stall_syncs(slot, 1_000_000);
    for _ in 0..5 {
        c.write_committed(orders);
    }
    let end = c.store(orders).last();
    c.expect(SEC, "it has acknowledged all", |c| c.slots[slot].newest_ack().1 >= end);
    let works_at = c.now + SEC;
    c.break_disk(slot, Sick::Full, 0, works_at, true);
    c.write(orders);
    c.expect(SEC, "it sits out", |c| c.sits_out(slot));
    c.crash(slot, false);
    let whole = c.store(slot).suspect().is_none();
    assert!(broken.is_some() || !whole, "its log says what it may have lost");
    c.stall_syncs(slot, 1);
    c.join(slot);
    judged(c)
}

/// A client's statement in total-order isolation fails, at its own server alone. The log's disk is out before the vote is ordered, so the
/// statement goes on. Nobody else has a reason to ask how it went.
pub fn a_failed_statement_in_an_outage(seed: u64, broken: Option<&str>) -> Option<String> {
    let mut o = options(seed, 3, broken);
    o.outage_mean = SEC;
    let mut c = Cluster::formed(o);
    let slot = (c.the_sequencer() + 1) % 3;
    c.options.seed = (seed..).find(|seed| fails_alone(*seed, 3) == slot).unwrap_or(seed);
    (c.options.error_share, c.options.isolated_share) = (1.0, 1.0);
    c.set_filter(Some(Box::new(move |from, _, m| {
        let votes = from == slot && matches!(m, Message::Submit { app: true, .. });
        if votes { Verdict::Hold } else { Verdict::Pass }
    })));
    c.write(slot);
    c.expect(10 * SEC, "it fails", |c| c.is_voting(slot));
    (c.options.error_share, c.options.isolated_share) = (0.0, 0.0);
    let works_at = c.now + 2 * SEC;
    c.break_disk(slot, Sick::Writes, 0, works_at, false);
    c.write((slot + 1) % 3);
    c.expect(10 * SEC, "it sits out", |c| c.sits_out(slot));
    c.set_filter(None);
    c.release();
    c.run_for(10 * SEC);
    let outvoted = c.situations.times(Situation::VoteLost) == 1;
    assert!(broken.is_some() || outvoted, "{}", c.dump());
    judged(c)
}

/// A server waits for a full copy, and its node is cut off. The others go on and drop the entries behind the copy from their logs. So the
/// log that the node gets when it is back begins behind the copy, which arrives then.
pub fn an_old_copy(seed: u64, broken: Option<&str>) -> Option<String> {
    let mut o = options(seed, 3, broken);
    (o.checkpoint_every, o.retain, o.db_flush) = (5, 0, DbFlush::Each);
    let mut c = Cluster::formed(o);
    let orders = c.the_sequencer();
    let away = (orders + 1) % 3;
    let write_until_gone = |c: &mut Cluster, seqno: u64| {
        while c.store(orders).base().seqno.0 <= seqno {
            c.write_committed(orders);
        }
    };
    c.crash(away, false);
    let at = c.database_position(away).unwrap_or(0);
    write_until_gone(&mut c, at);
    c.options.transfer_mean = 100 * SEC;
    c.join(away);
    let is_copied = |c: &Cluster| c.watch.copies.iter().any(|(_, to)| *to == away);
    c.expect(10 * SEC, "a copy is under way", is_copied);
    c.options.transfer_mean = 50 * MS;
    let at = c.database_position(orders).unwrap_or(0);
    c.sever(away);
    write_until_gone(&mut c, at);
    c.heal_network();
    c.expect(10 * SEC, "its log begins behind the copy", |c| c.store(away).base().seqno.0 > at);
    c.run_until(1000 * SEC, |c| !is_copied(c));
    judged(c)
}

/// A server's backlog makes it stop all writers, its own clients as well. One of these holds a row that the oldest write set of the backlog
/// changes, and waits behind another one to be sent. It has to give way, or the backlog and the stop last for ever.
pub fn a_lock_in_a_stop(seed: u64, broken: Option<&str>) -> Option<String> {
    let mut o = options(seed, 3, broken);
    (o.flow_limit, o.keys) = (2, 1);
    let mut c = Cluster::formed(o);
    // The write sets that come to a newcomer count as missed for a while.
    c.run_for(3 * SEC);
    let writer = c.the_sequencer();
    let slot = (writer + 1) % 3;
    assert!(c.hold_order(slot, false), "its commit order is paused");
    // Twice the upper limit, and more: then nothing may be sent at all.
    let behind_a_change =
        |c: &Cluster| c.slots[slot].db.queue.iter().skip_while(|change| change.rows.is_empty()).count();
    for _ in 0..30 {
        c.write(writer);
    }
    c.expect(SEC, "the server has much to apply", |c| behind_a_change(c) > 10);
    let held = |c: &Cluster, op: u64| c.slots[slot].process.as_ref().is_some_and(|p| p.holds_back(op));
    let first = c.write(slot);
    assert!(held(&c, first), "no client may send anything");
    // From here on clients lock rows.
    c.options.think_mean = MS;
    let locks =
        |c: &Cluster| c.slots[slot].process.as_ref().is_some_and(|p| p.is_claimed_by_trx(0, KeyKind::Exclusive));
    let mut last = first;
    while !locks(&c) {
        last = c.write(slot);
        c.run_for(50 * MS);
    }
    assert!(held(&c, last), "it has its locks, and may not send anything");
    c.resume_order(slot);
    judged(c)
}

/// One server fails at a write set that the two others have applied. Before their votes are ordered these die, one after the other, and come
/// back: members of the view that have said nothing yet. The word of the first one alone decides nothing.
pub fn a_vote_of_one(seed: u64, broken: Option<&str>) -> Option<String> {
    let mut c = Cluster::formed(options(seed, 3, broken));
    c.expect(60 * SEC, "the newest level", |c| c.all_at_newest_level());
    let alone = c.the_sequencer();
    let others = except(3, &[alone]);
    c.options.seed = (seed..).find(|seed| fails_alone(*seed, 3) == alone).unwrap_or(seed);
    c.options.error_share = 1.0;
    c.set_filter(Some(Box::new(move |from, _, m| {
        let votes = from != alone && matches!(m, Message::Submit { app: true, .. });
        if votes { Verdict::Hold } else { Verdict::Pass }
    })));
    let op = c.write(others[0]);
    let open = |c: &Cluster, slot: usize| {
        c.slots[slot].process.as_ref().is_some_and(|p| !p.replicator.roster().open_votes().is_empty())
    };
    c.expect(10 * SEC, "it has voted, and its client has its answer", |c| {
        (0..3).all(|slot| open(c, slot)) && !c.slots[others[0]].process.as_ref().is_some_and(|p| p.is_busy_with(op))
    });
    c.options.error_share = 0.0;
    for slot in others {
        c.crash(slot, false);
        c.expect(60 * SEC, "it is out", |c| c.view_size(alone) == 2);
        c.join(slot);
        c.expect(60 * SEC, "it is back", |c| c.view_size(alone) == 3);
    }
    if !open(&c, alone) {
        return Some("a vote is decided by one member, and two that have data have said nothing".into());
    }
    c.set_filter(None);
    c.release();
    judged(c)
}

/// Everything heals, and every promise is checked.
fn judged(mut c: Cluster) -> Option<String> {
    c.liveness_phase();
    if c.failure.is_none() {
        c.final_check();
    }
    c.failure
}
