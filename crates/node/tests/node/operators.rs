//! An operator's changes to a running group, and what the status says of them.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use trireme_node::{Code, Gtid, StatValue, ViewStatus, Wait};
use trireme_surface::texts;
use trireme_types::{Seqno, Uuid};
use trireme_wslog::{DirStorage, TrimAnswer, TrimWish, inspect};

use crate::cluster::{Cluster, Host, agree, copy, crash_image, restore_image, write_much};
use crate::fake::{Closed, Hook, PATIENCE, Tables, until};

fn set(host: &Host, options: &str) {
    assert_eq!(host.node().options_set(options), Code::Ok, "{options}");
}

fn text(host: &Host, name: &str) -> String {
    match host.stat(name) {
        StatValue::Text(text) => text,
        other => panic!("{name}: {other:?}"),
    }
}

/// The server does not get on with applying `what` until the returned sender is dropped.
pub fn block(host: &Host, what: &'static [u8]) -> mpsc::Sender<()> {
    let (release, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let hook: Hook = Box::new(move |_, _, data| {
        if data == what {
            let _ = gate.lock().unwrap().recv();
        }
    });
    *host.hook.lock().unwrap() = Some(Arc::new(hook));
    release
}

/// Lines are logged by a thread of their own.
fn await_line(host: &Host, line: &str) {
    host.wait(line, |s| s.log.iter().any(|(_, text)| text == line));
}

/// A loss of power in mode `process` costs what came after the last of these syncs.
#[test]
fn in_mode_process_the_log_is_synced_in_the_background() {
    let cluster = Cluster::new(1);
    let host = cluster.bootstrap();
    let disk = DirStorage::read_only(&cluster.sites[0].dir).unwrap();
    let look = || inspect::summary(&disk, None).unwrap();
    set(&host, "repl.durability=process");
    until("mode process", || look().meta.is_some_and(|meta| meta.process));
    for n in 0..3 {
        host.fake.commit(&format!("key {n}"), "data");
    }
    let last = look().segments.iter().filter_map(|segment| segment.range).map(|range| range.to).max().unwrap();
    assert!(last.0 > 3);
    until("the last commit to be synced", || look().meta.is_some_and(|meta| meta.synced >= last));
    host.stop();
}

#[test]
fn the_durability_mode_is_the_clusters_whoever_sets_it() {
    let cluster = Cluster::new(2);
    let first = cluster.bootstrap();
    let mut second = cluster.host(1, Tables::default(), None, "repl.durability=process");
    assert_eq!(second.connect(&cluster.url(), false), Code::Ok);
    second.serve(2);
    second.wait("synced", |s| s.synced > 0);
    second.wait("is told", |s| {
        s.log.iter().any(|(_, text)| text.contains("repl.durability=process was set on this node"))
    });
    let shown = |host: &Host| host.node().options_get().contains("repl.durability = process");
    let hosts = [first, second];
    assert!(!hosts.iter().any(shown), "the mode is the first node's");
    for setter in [1, 0] {
        set(&hosts[setter], "repl.durability=process");
        hosts.iter().for_each(|host| until("process", || shown(host)));
        await_line(&hosts[1 - setter], "repl.durability is now process, on all members");
        // The value that the other one showed until then must not make it think that there is nothing to do.
        set(&hosts[1 - setter], "repl.durability=disk");
        hosts.iter().for_each(|host| until("disk", || !shown(host)));
    }
    agree(hosts.into());
}

/// In force at once, though the mode that this node shows is an old one.
#[test]
fn a_mode_that_another_node_has_changed_can_be_set_back_at_once() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    let disk = DirStorage::read_only(&cluster.sites[0].dir).unwrap();
    let process = || inspect::summary(&disk, None).unwrap().meta.is_some_and(|meta| meta.process);
    for round in 0..5 {
        set(&hosts[0], "repl.durability=process");
        until("mode process", process);
        set(&hosts[1], "repl.durability=disk");
        hosts[1].commit_patiently("a", &format!("{round}"));
        until("mode disk", || !process());
    }
    agree(hosts);
}

#[test]
fn history_beyond_the_size_can_be_kept_from_now_on() {
    let cluster = Cluster::new(1);
    let mut host = cluster.host(0, Tables::default(), None, "gcache.size=2M");
    assert_eq!(host.connect("gcomm://", true), Code::Ok);
    host.serve(2);
    write_much(&host, 6 << 20);
    until("trimmed", || host.int("local_cached_downto") > 1);
    set(&host, "gcache.keep_pages_size=64M");
    let line = "an operator wished to trim";
    // Two rounds of housekeeping: the first with the old bound may be under way.
    for round in 1..=2 {
        TrimWish { id: 1, keep_from: Seqno(1) }.put(&DirStorage::new(&cluster.sites[0].dir).unwrap()).unwrap();
        host.wait("a round", |s| s.log.iter().filter(|(_, text)| text.contains(line)).count() == round);
    }
    let first = host.int("local_cached_downto");
    write_much(&host, 12 << 20);
    TrimWish { id: 1, keep_from: Seqno(1) }.put(&DirStorage::new(&cluster.sites[0].dir).unwrap()).unwrap();
    host.wait("a round", |s| s.log.iter().filter(|(_, text)| text.contains(line)).count() == 3);
    assert_eq!(host.int("local_cached_downto"), first);
    set(&host, "gcache.keep_pages_size=0");
    until("trimmed again", || host.int("local_cached_downto") > first);
    host.stop();
}

/// Asks the node that has the log of `disk` open, as `trireme log trim` does.
fn ask_to_trim(disk: &DirStorage, id: u64, keep_from: u64) -> Result<(u64, String), String> {
    TrimWish { id, keep_from: Seqno(keep_from) }.put(disk).unwrap();
    let mut answer = None;
    until("an answer", || {
        answer = TrimAnswer::take(disk, id).unwrap();
        answer.is_some()
    });
    answer.unwrap().outcome
}

#[test]
fn nothing_leaves_the_log_before_the_engine_has_it_on_disk() {
    let cluster = Cluster::new(1);
    let mut host = cluster.host(0, Tables::default(), None, "gcache.size=2M");
    host.lock().engine.lazy = true;
    assert_eq!(host.connect("gcomm://", true), Code::Ok);
    host.serve(2);
    write_much(&host, 6 << 20);
    let disk = DirStorage::new(&cluster.sites[0].dir).unwrap();
    let last = host.lock().tables.position();
    // By the answer, the housekeeping has had its turns as well.
    let (freed, kept) = ask_to_trim(&disk, 1, last).unwrap();
    assert!(freed == 0 && kept.contains("storage engine"), "{freed} {kept}");
    assert_eq!(host.int("local_cached_downto"), 1);
    host.flush();
    write_much(&host, 2 << 20);
    until("trimmed", || host.int("local_cached_downto") > 1);
    let (_, kept) = ask_to_trim(&disk, 2, host.lock().tables.position()).unwrap();
    assert!(kept.contains("storage engine"), "{kept}");
    let (first, flushed) = (host.int("local_cached_downto"), host.lock().engine.flushed);
    assert!(first <= flushed as i64 + 1, "the log begins at {first}, a crash leaves {flushed}");
    // A crash now: the log replays what the engine loses.
    let left = host.lock().durable_tables();
    crash_image(&cluster.sites[0]);
    let whole = host.stop();
    restore_image(&cluster.sites[0]);
    cluster.allow_bootstrap(0);
    let position = left.gtid();
    assert!(left.position() < whole.position());
    let mut host = cluster.host(0, left, Some(position), "");
    assert_eq!(host.connect("gcomm://", true), Code::Ok);
    host.serve(2);
    host.reach(whole.position());
    let replayed = host.stop();
    for (seqno, closed) in &whole.closed {
        if matches!(closed, Closed::Data(_)) {
            assert_eq!(replayed.closed.get(seqno), Some(closed));
        }
    }
}

#[test]
fn a_server_that_does_not_tell_what_its_engine_has_on_disk_is_given_time() {
    let cluster = Cluster::new(1);
    let mut host = cluster.host(0, Tables::default(), None, "gcache.size=2M");
    host.lock().engine.silent = true;
    assert_eq!(host.connect("gcomm://", true), Code::Ok);
    host.serve(2);
    write_much(&host, 6 << 20);
    let disk = DirStorage::new(&cluster.sites[0].dir).unwrap();
    let (freed, kept) = ask_to_trim(&disk, 1, host.lock().tables.position()).unwrap();
    assert!(freed == 0 && kept.contains("storage engine"), "{freed} {kept}");
    host.stop();
}

#[test]
fn an_operator_may_trim_the_log_of_a_node_that_runs() {
    let mut cluster = Cluster::new(2);
    // Without an explicit size the log keeps what members that are away lack, and an operator may decide otherwise.
    cluster.sites[0].options.clear();
    let mut hosts = cluster.start();
    let second = hosts.pop().unwrap();
    let name = second.name.clone();
    let kept = second.stop();
    hosts[0].wait("alone", |s| s.size() == 1);
    write_much(&hosts[0], 40 << 20);
    let disk = DirStorage::new(&cluster.sites[0].dir).unwrap();
    let ask = |id, keep_from| ask_to_trim(&disk, id, keep_from);
    let last = hosts[0].lock().tables.position();
    assert!(ask(1, last + 1).unwrap_err().contains("is not in the log"));
    assert_eq!(ask(2, 1), Ok((0, String::new())));
    let (freed, note) = ask(3, last).unwrap();
    assert!(freed > 4 << 20 && note.contains(&format!("{name} needs a full copy")), "{freed} {note}");
    let first = hosts[0].int("local_cached_downto");
    assert!(first > 1 && first <= last as i64, "{first} of {last}");
    let mut second = cluster.host(1, kept, None, "");
    assert_eq!(second.connect(&cluster.url(), false), Code::Ok);
    second.serve(2);
    second.wait("synced", |s| s.synced > 0);
    assert_eq!(second.lock().sst_requests, 1, "what it lacked is gone");
    hosts.push(second);
    agree(hosts);
}

#[test]
fn an_evicted_node_leaves_and_may_come_back_after_a_new_start() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    let third = hosts.pop().unwrap();
    let uuid = text(&third, "gcomm_uuid");
    set(&hosts[1], &format!("evs.evict={uuid}"));
    third.wait("the final view", |s| s.finals == 1);
    await_line(&third, texts::EVICTED);
    for host in &hosts {
        host.wait("two left", |s| s.size() == 2);
        assert_eq!(text(host, "evs_evict_list"), uuid);
    }
    assert!(!cluster.sites[2].dir.join("gvwstate.dat").exists());
    hosts[0].commit("a", "without it");
    let mut third = third;
    third.disconnect();
    assert_eq!(third.connect(&cluster.url(), false), Code::Ok);
    third.serve(2);
    third.wait("in again", |s| s.size() == 3);
    assert_ne!(text(&third, "gcomm_uuid"), uuid);
    assert_eq!(text(&third, "evs_evict_list"), uuid, "who joins learns of it");
    third.commit("a", "back");
    hosts.push(third);
    set(&hosts[2], "evs.evict=");
    for host in &hosts {
        until("nobody is evicted", || text(host, "evs_evict_list").is_empty());
    }
    agree(hosts);
}

/// A machine is cloned, and the copy is started beside it.
#[test]
fn the_copy_of_a_running_node_leaves_and_the_original_stays() {
    let cluster = Cluster::new(3);
    let hosts = vec![cluster.bootstrap(), cluster.join(1)];
    hosts[1].wait("both in", |s| s.size() == 2 && s.synced > 0);
    hosts[0].commit("a", "before");
    copy(&cluster.sites[1].dir, &cluster.sites[2].dir);
    let views = hosts[0].lock().views.len();
    let twin = cluster.host(2, Tables::default(), None, "");
    let _ = twin.connect(&cluster.url(), false);
    twin.wait("the reason", |s| {
        s.log.iter().any(|(_, text)| text.contains("trireme.*.galera.cache, which makes it a new member"))
    });
    hosts[1].commit("b", "after");
    assert_eq!(hosts[0].lock().views.len(), views, "the others have not noticed");
    twin.stop();
    agree(hosts);
}

#[test]
fn an_eviction_outlives_the_sequencer_and_is_lifted_by_an_empty_value() {
    for lifted in [false, true] {
        let cluster = Cluster::new(4);
        let mut hosts = cluster.start();
        let cut = hosts.pop().unwrap();
        let uuid = text(&cut, "gcomm_uuid");
        set(&cut, "gmcast.isolate=1");
        cut.wait("non-primary", |s| s.views.last().is_some_and(|v| v.status == ViewStatus::NonPrimary));
        set(&hosts[1], &format!("evs.evict={uuid}"));
        hosts[0].wait("three left", |s| s.size() == 3);
        // The first node of a group is its sequencer; the others remember what it ordered.
        hosts.remove(0).stop();
        hosts[0].wait("two left", |s| s.size() == 2);
        if lifted {
            set(&hosts[0], "evs.evict=");
        }
        set(&cut, "gmcast.isolate=0");
        if lifted {
            hosts[0].wait("it is let in", |s| s.size() == 3);
            hosts.push(cut);
        } else {
            cut.wait("refused", |s| s.finals == 1);
            await_line(&cut, texts::EVICTED);
            assert_eq!(hosts[0].lock().size(), 2);
            cut.stop();
        }
        agree(hosts);
    }
}

#[test]
fn a_node_without_majority_evicts_nobody() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    let uuid = text(&hosts[1], "gcomm_uuid");
    assert_eq!(hosts[0].node().options_set("evs.evict=nonsense"), Code::NodeFail);
    set(&hosts[0], "gmcast.isolate=1");
    for host in &hosts {
        host.wait("non-primary", |s| s.views.last().is_some_and(|v| v.status == ViewStatus::NonPrimary));
    }
    assert_eq!(hosts[0].node().options_set(&format!("evs.evict={uuid}")), Code::NodeFail);
    set(&hosts[0], "gmcast.isolate=0");
    for host in &hosts {
        host.wait("primary again", |s| s.size() == 2);
    }
    assert_eq!(text(&hosts[0], "evs_evict_list"), "");
    agree(hosts);
}

#[test]
fn a_forced_quit_ends_the_connection_and_a_new_one_is_possible() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    set(&hosts[2], "gmcast.isolate=2");
    hosts[2].wait("the final view", |s| s.finals == 1);
    await_line(&hosts[2], texts::FORCED_QUIT);
    assert_eq!(hosts[2].state(), 0);
    hosts[0].wait("two left", |s| s.size() == 2);
    hosts[0].commit("a", "meanwhile");
    hosts[2].disconnect();
    assert_eq!(hosts[2].connect(&cluster.url(), false), Code::Ok);
    hosts[2].serve(2);
    hosts[2].wait("in again", |s| s.size() == 3);
    hosts[2].commit("a", "again");
    agree(hosts);
}

#[test]
fn the_extended_status_says_who_slows_whom_and_appears_only_on_request() {
    let cluster = Cluster::new(3);
    let hosts = cluster.start();
    let names = |host: &Host| -> Vec<String> { host.node().stats().into_iter().map(|(name, _)| name).collect() };
    let default = names(&hosts[0]);
    assert!(!default.iter().any(|n| n.starts_with("trireme")), "{default:?}");
    set(&hosts[0], "repl.status_extended=yes");
    let extended = names(&hosts[0]);
    let percona = ["flow_control_interval_high", "flow_control_interval_low", "flow_control_status"];
    assert!(percona.iter().all(|name| extended.iter().any(|n| n == name)), "{extended:?}");
    let more = |n: &&String| n.starts_with("trireme_") || percona.contains(&n.as_str());
    assert_eq!(extended.iter().filter(|n| !more(n)).cloned().collect::<Vec<_>>(), default);
    let sequencer = text(&hosts[0], "trireme_sequencer");
    assert!(["n1", "n2", "n3"].contains(&sequencer.as_str()), "{sequencer}");
    assert_eq!(text(&hosts[0], "trireme_voters"), "n1:1,n2:1,n3:1");
    assert!(hosts[0].int("trireme_term_changes") >= 1, "the first term is one");
    assert_eq!(hosts[0].int("trireme_unknown_outcomes"), 0);
    assert!(["sequencer", "voter"].contains(&text(&hosts[0], "trireme_role").as_str()));
    let before = hosts[0].int("trireme_log_committed");
    hosts[0].commit("a", "one");
    assert!(hosts[0].int("trireme_log_committed") > before);
    // The others may be the majority: the own disk follows.
    let committed = hosts[0].int("trireme_log_committed");
    until("the own log to be durable", || hosts[0].int("trireme_log_durable") >= committed);

    set(&hosts[1], "gcs.fc_limit=1; gcs.fc_patience=PT0S");
    let release = block(&hosts[1], b"x");
    let writer = {
        let fake = hosts[0].fake.clone();
        thread::spawn(move || (0..20).map(|i| fake.commit(&format!("{i}"), "x")).max())
    };
    until("n2 to be named", || text(&hosts[0], "trireme_flow_control_by") == "n2");
    until("the reason", || text(&hosts[0], "trireme_flow_control_reason").starts_with("n2 stands still with "));
    assert!(text(&hosts[0], "trireme_flow_control_members").starts_with("n2:0.0:"));
    drop(release);
    writer.join().unwrap();
    until("nobody slows anybody", || text(&hosts[0], "trireme_flow_control_by").is_empty());
    set(&hosts[0], "repl.status_extended=no");
    assert_eq!(names(&hosts[0]), default);
    agree(hosts);
}

#[test]
fn a_wait_for_a_position_ends_when_it_is_reached_or_in_time() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    let at = hosts[0].commit("a", "one");
    hosts[1].reach(at);
    let history = hosts[1].node().last_committed().history;
    let upto = move |n: u64| Some(Gtid { history, seqno: Some(Seqno(n)) });
    let second = Wait::For(Duration::from_secs(1));
    // The tables have it a moment before it leaves commit order.
    assert_eq!(hosts[1].node().sync_wait(upto(at), Wait::For(Duration::from_secs(60))).0, Code::Ok);
    assert_eq!(hosts[1].node().sync_wait(upto(at), Wait::For(Duration::ZERO)).0, Code::Ok, "reached already");
    let begun = Instant::now();
    assert_eq!(hosts[1].node().sync_wait(upto(at + 1), second).0, Code::TrxFail);
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let foreign = Gtid { history: Uuid([7; 16]), seqno: Some(Seqno(1)) };
    assert_eq!(hosts[1].node().sync_wait(Some(foreign), second).0, Code::TrxMissing);
    let waiting = {
        let node = hosts[1].node();
        thread::spawn(move || node.sync_wait(upto(at + 1), Wait::For(PATIENCE)))
    };
    hosts[0].commit("a", "two");
    let (code, reached) = waiting.join().unwrap();
    assert_eq!((code, reached.seqno >= Some(Seqno(at + 1))), (Code::Ok, true));
    agree(hosts);
}

#[test]
fn without_optimistic_appliers_a_write_set_waits_for_all_that_its_origin_had_seen() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    set(&hosts[1], "cert.optimistic_pa=no");
    let release = block(&hosts[1], b"first");
    hosts[0].commit("a", "first");
    let waits = hosts[1].int("apply_waits");
    let last = hosts[0].commit("b", "unrelated");
    until("the second to wait for the first", || hosts[1].int("apply_waits") > waits);
    drop(release);
    hosts[1].reach(last);
    agree(hosts);
}
