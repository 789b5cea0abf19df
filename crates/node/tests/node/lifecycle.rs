//! Start, stop, loss, return.

use std::fs;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use trireme_node::{Code, Gtid, TrxId, ViewStatus};
use trireme_order::LogStore;
use trireme_types::Seqno;
use trireme_wslog::{DirStorage, Options, WriteSetLog, read_boot_id};

use crate::cluster::{Cluster, Host, Site, agree, crash_image, goes_on_with, kill, restore_image, write_much};
use crate::fake::{Closed, End, PATIENCE, State, Tables, until};
use crate::operators::block;

#[test]
fn one_node_bootstraps_commits_and_stops() {
    let cluster = Cluster::new(1);
    let host = cluster.bootstrap();
    host.wait("synced", |s| s.synced == 1);
    {
        let s = host.lock();
        assert_eq!(s.connected.as_ref().unwrap().seqno, Some(Seqno(1)));
        assert_eq!((s.views.len(), s.views[0].seqno, s.views[0].own), (1, Some(Seqno(1)), Some(0)));
    }
    assert_eq!(host.commit("a", "one"), 2);
    assert_eq!(host.state(), 4);
    assert!(host.grastate(&cluster.sites[0]).contains("seqno:   -1"));
    let state = cluster.sites[0].dir.join("grastate.dat");
    let tables = host.stop();
    assert_eq!(tables.position(), 2);
    let text = fs::read_to_string(state).unwrap();
    assert!(text.contains("seqno:   2\n") && text.contains("safe_to_bootstrap: 1"), "{text}");
    assert!(text.contains(&tables.history.to_string()));
}

#[test]
fn a_restarted_node_goes_on_in_its_history() {
    let cluster = Cluster::new(1);
    let host = cluster.bootstrap();
    host.commit("a", "one");
    let tables = host.stop();
    let mut host = cluster.host(0, tables.clone(), None, "");
    assert_eq!(host.connect("gcomm://", false), Code::Ok);
    host.serve(1);
    host.wait("synced", |s| s.synced == 1);
    assert_eq!(host.lock().tables.history, tables.history);
    assert_eq!(host.commit("a", "two"), 4, "2 was the first commit, 3 the view");
    host.stop();
}

#[test]
fn a_node_without_data_gets_a_full_copy_and_everything_after_it() {
    let cluster = Cluster::new(3);
    let hosts = cluster.start();
    for host in &hosts {
        host.commit("a", &host.name);
    }
    for joiner in &hosts[1..] {
        let s = joiner.lock();
        assert_eq!((s.sst_requests, s.synced), (1, 1), "{}", joiner.name);
    }
    assert!(hosts.iter().map(|h| h.lock().donations).sum::<u64>() == 2);
    for host in &hosts {
        host.wait("the donors back", |_| host.state() == 4);
    }
    agree(hosts);
}

#[test]
fn a_node_that_asks_for_a_trivial_transfer_joins_without_data() {
    let cluster = Cluster::new(2);
    let first = cluster.bootstrap();
    first.commit("a", "one");
    let mut second = cluster.host(1, Tables::default(), None, "");
    second.lock().trivial = true;
    assert_eq!(second.connect(&cluster.url(), false), Code::Ok);
    second.serve(1);
    second.wait("synced", |s| s.synced == 1);
    assert_eq!(second.lock().views[0].seqno, Some(Seqno(3)));
    second.commit("b", "two");
    first.reach(4);
    agree(vec![first, second]);
}

#[test]
fn a_cleanly_stopped_node_catches_up_without_a_copy() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    hosts[2].commit("a", "before");
    let tables = hosts.pop().unwrap().stop();
    hosts[0].wait("two left", |s| s.size() == 2);
    for i in 0..50 {
        hosts[i % 2].commit(&format!("k{i}"), "missed");
    }
    let back = cluster.rejoin(2, tables);
    back.is_synced_without_a_copy();
    // 50 write sets, and the views of the leave and the return.
    let end = r#"{ "from": 1, "to": 4, "total": 52, "done": 52, "indefinite": -1 }"#;
    back.wait("the end of the catch-up among the events", |s| {
        s.events.iter().any(|e| e == &("progress".into(), end.into()))
    });
    goes_on_with(back, hosts);
}

/// Without `gcache.size` the log keeps what a member that left lacks, however much it is, as long as there is room; with it that is a bound.
#[test]
fn a_member_that_was_away_for_long_catches_up_without_a_copy() {
    let mut cluster = Cluster::new(3);
    cluster.sites[0].options.clear();
    let mut hosts = cluster.start();
    let tables = hosts.pop().unwrap().stop();
    hosts[0].wait("two left", |s| s.size() == 2);
    let first = hosts[0].int("local_cached_downto");
    // More than the log's usual 128 MiB. The other one trims its log meanwhile: the housekeeping works.
    let large = "x".repeat(1 << 20);
    for i in 0..150 {
        hosts[i % 2].commit_patiently(&format!("k{i}"), &large);
    }
    for round in 0..2 {
        let before = hosts[1].int("local_cached_downto");
        for i in 0..10 {
            hosts[1].commit_patiently(&format!("round {round} {i}"), &large);
        }
        until("the bounded log to be trimmed", || hosts[1].int("local_cached_downto") > before);
    }
    assert_eq!(hosts[0].int("local_cached_downto"), first);
    let back = cluster.rejoin(2, tables);
    back.is_synced_without_a_copy();
    // Nobody is away any more.
    let late = &hosts[0];
    late.commit_patiently("after", &large);
    until("the log to be trimmed", || late.int("local_cached_downto") > first);
    goes_on_with(back, hosts);
}

#[test]
fn the_same_instance_connects_again() {
    let cluster = Cluster::new(2);
    let mut hosts = cluster.start();
    hosts[1].disconnect();
    assert_eq!(hosts[1].lock().finals, 1);
    assert_eq!(hosts[1].state(), 0);
    hosts[0].wait("alone", |s| s.size() == 1);
    hosts[0].commit("a", "meanwhile");
    assert_eq!(hosts[1].node().disconnect(), Code::Ok);
    assert_eq!(hosts[1].connect(&cluster.url(), false), Code::Ok);
    hosts[1].serve(2);
    hosts[1].wait("synced again", |s| s.synced == 2);
    assert_eq!(hosts[1].lock().sst_requests, 1);
    hosts[1].commit("a", "again");
    agree(hosts);
}

#[test]
fn all_nodes_stop_and_the_last_one_starts_the_cluster_again() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    hosts[1].commit("a", "one");
    for host in &hosts {
        host.reach(4);
    }
    let third = hosts.pop().unwrap().stop();
    let second = hosts.pop().unwrap().stop();
    let first = hosts.pop().unwrap().stop();
    assert!(first.position() >= second.position() && second.position() >= third.position());
    let refused = cluster.host(2, third.clone(), None, "");
    assert_eq!(refused.connect("gcomm://", true), Code::NodeFail, "it was not the last one");
    assert!(refused.lock().log.iter().any(|(_, t)| t.contains("It may not be safe to bootstrap the cluster")));
    refused.stop();
    let mut host = cluster.host(0, first, None, "");
    assert_eq!(host.connect(&cluster.url(), true), Code::Ok);
    host.serve(2);
    let mut hosts = vec![host];
    for (site, tables) in [(1, second), (2, third)] {
        let back = cluster.rejoin(site, tables);
        back.is_synced_without_a_copy();
        hosts.push(back);
    }
    hosts[2].commit("a", "two");
    agree(hosts);
}

/// Its server would go on serving reads of old data for as long as that takes.
#[test]
fn the_loss_of_the_majority_is_told_also_behind_an_applier_that_stands() {
    let cluster = Cluster::new(3);
    let hosts = cluster.start();
    let third = &hosts[2];
    let release = block(third, b"stands");
    hosts[0].commit("a", "stands");
    hosts[0].commit("b", "behind it");
    third.wait("stands", |s| s.is_applying());
    let before = third.lock().synced;
    assert_eq!(third.node().options_set("gmcast.isolate=1"), Code::Ok);
    third.wait("non-primary", |s| s.views.last().is_some_and(|v| v.status == ViewStatus::NonPrimary));
    assert!(third.lock().is_applying(), "it stands yet");
    assert_eq!(third.node().options_set("gmcast.isolate=0"), Code::Ok);
    hosts[0].wait("three again", |s| s.size() == 3);
    release.send(()).unwrap();
    third.wait("synced again", |s| s.synced > before);
    hosts[1].commit("c", "after");
    agree(hosts);
}

#[test]
fn a_killed_node_with_a_known_position_replays_from_the_log() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    for i in 0..10 {
        hosts[2].commit(&format!("k{i}"), "before");
    }
    let third = hosts.pop().unwrap();
    third.reach(hosts[0].lock().tables.position());
    assert_eq!(third.node().options_set("gmcast.isolate=1"), Code::Ok);
    crash_image(&cluster.sites[2]);
    let tables = third.lock().tables.clone();
    third.wait("non-primary", |s| s.views.last().is_some_and(|v| v.status == ViewStatus::NonPrimary));
    third.stop();
    restore_image(&cluster.sites[2]);
    hosts[0].wait("two left", |s| s.size() == 2);
    hosts[0].commit("a", "missed");
    // The engine lost its last commits: they come from the log.
    let mut old = tables.clone();
    for _ in 0..5 {
        old.closed.pop_last();
    }
    let position = old.gtid();
    let mut back = cluster.host(2, old, Some(position), "");
    back.comes_back_without_a_copy(&cluster);
    goes_on_with(back, hosts);
}

#[test]
fn a_killed_node_with_an_unknown_position_gets_a_full_copy() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    hosts[2].commit("a", "before");
    let third = hosts.pop().unwrap();
    assert_eq!(third.node().options_set("gmcast.isolate=1"), Code::Ok);
    crash_image(&cluster.sites[2]);
    third.wait("non-primary", |s| s.views.last().is_some_and(|v| v.status == ViewStatus::NonPrimary));
    third.stop();
    restore_image(&cluster.sites[2]);
    hosts[0].wait("two left", |s| s.size() == 2);
    hosts[1].commit("a", "missed");
    let back = cluster.rejoin(2, Tables::default());
    back.wait("synced", |s| s.synced == 1);
    assert_eq!(back.lock().sst_requests, 1);
    goes_on_with(back, hosts);
}

/// Nobody can give a copy: the cluster says so, once, and touches nothing. The positions that an operator finds are enough.
#[test]
fn when_nobody_knows_its_position_the_cluster_says_so_and_changes_nothing() {
    let cluster = Cluster::new(3);
    let hosts = cluster.start();
    let last = hosts[1].commit("a", "before");
    hosts.iter().for_each(|host| host.reach(last));
    let kept = kill(&cluster.sites, hosts);
    let told = |host: &crate::cluster::Host, what: &str| {
        host.lock().log.iter().filter(|(_, t)| t.contains("no member that is here knows") && t.contains(what)).count()
    };
    let state = |site: &crate::cluster::Site| fs::read_to_string(site.dir.join("grastate.dat")).unwrap();
    let history = kept[0].history.to_string();

    let mut lost: Vec<_> =
        kept.iter().enumerate().map(|(i, tables)| cluster.host(i, tables.clone(), None, "")).collect();
    cluster.connect_all(&mut lost[..2]);
    lost[0].wait("it waits for the third", |s| {
        s.log.iter().any(|(_, t)| t.contains("waits for voters that may have data: n3"))
    });
    cluster.connect_all(&mut lost[2..]);
    for (i, host) in lost.iter().enumerate() {
        host.wait("it says that nobody has data", |s| {
            s.log.iter().any(|(_, t)| {
                t.contains("all servers with a vote are here") && t.contains("--wsrep-start-position=UUID:SEQNO")
            })
        });
        until("the state file to be as it was", || state(&cluster.sites[i]).contains(&history));
    }
    let asked = |host: &crate::cluster::Host| {
        host.lock().log.iter().filter(|(_, t)| t.contains("it is impossible to select State Transfer donor")).count()
    };
    let before = asked(&lost[0]);
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(asked(&lost[0]), before, "nobody asks in vain");
    for host in &lost {
        assert_eq!(told(host, "all servers with a vote are here"), 1, "{}", host.name);
    }
    // The servers' scripts wait for a copy.
    kill(&cluster.sites, lost);

    let mut back = cluster.hosts(kept, "");
    cluster.connect_all(&mut back);
    for host in &back {
        host.wait("synced", |s| s.synced > 0);
        assert_eq!(host.lock().sst_requests, 0, "{}", host.name);
    }
    agree(back);
}

/// The log of a server speaks of now, though the node reads its whole past again at each start.
#[test]
fn a_restart_does_not_report_the_past() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    hosts[1].commit("a", "before");
    let passing = hosts.pop().unwrap();
    passing.stop();
    hosts[0].wait("two left", |s| s.size() == 2);
    let second = hosts.pop().unwrap();
    second.reach(hosts[0].lock().tables.position());
    let tables = second.stop();
    hosts[0].wait("one left", |s| s.size() == 1);
    hosts[0].commit("a", "missed");

    let back = cluster.rejoin(1, tables);
    back.wait("synced", |s| s.synced == 1);
    let log: Vec<String> = back.lock().log.iter().map(|(_, text)| text.clone()).collect();
    for past in ["requested state transfer", "State transfer from", "(n3)", "memb_num = 3", "memb_num = 1"] {
        assert!(!log.iter().any(|line| line.contains(past)), "{past}: {log:#?}");
    }
    let told: Vec<&String> = log.iter().filter(|line| line.starts_with("replayed ")).collect();
    assert_eq!(told.len(), 1, "{log:#?}");
    assert!(told[0].contains(": seqnos ") && told[0].contains(" 2 write sets, "), "{}", told[0]);
    assert!(log.iter().any(|line| line.contains("memb_num = 2")), "the view that it comes back in: {log:#?}");
    goes_on_with(back, hosts);
}

/// Old data beside a log that begins beyond them: the group's log reaches down to them, and takes its place.
#[test]
fn data_that_the_own_log_does_not_reach_are_brought_up_by_the_others_log() {
    let cluster = Cluster::new(2);
    let mut first = cluster.host(0, Tables::default(), None, "gcache.keep_pages_size=64M");
    assert_eq!(first.connect(&cluster.url(), true), Code::Ok);
    first.serve(2);
    let mut second = cluster.host(1, Tables::default(), None, "gcache.size=2M");
    assert_eq!(second.connect(&cluster.url(), false), Code::Ok);
    second.serve(2);
    second.wait("synced", |s| s.synced == 1);
    first.commit("a", "old");
    second.reach(first.lock().tables.position());
    let old = second.lock().tables.clone();
    write_much(&first, 10_000_000);
    until("its log to begin beyond the old data", || second.int("local_cached_downto") > old.position() as i64 + 1);
    second.stop();
    let at = old.gtid();
    let mut second = cluster.host(1, old, Some(at), "gcache.size=2M");
    second.comes_back_without_a_copy(&cluster);
    goes_on_with(second, vec![first]);
}

/// With `wsrep_gtid_mode` a donor's script brings the domain of the others' numbers, whether or not data come with it.
#[test]
fn with_gtid_mode_a_returning_node_hears_a_script_and_copies_nothing() {
    // A server that runs already, or was told to skip the transfer, hears no script and goes on all the same.
    let answers: [(fn(&mut State), u32); 3] = [(|_| {}, 7), (|s| s.no_copy = true, 0), (|s| s.trivial = true, 0)];
    for (answer, domain) in answers {
        let cluster = Cluster::new(2);
        let mut hosts = cluster.start();
        let copies = {
            let mut s = hosts[0].lock();
            s.domain = 7;
            s.donations
        };
        let kept = hosts.pop().unwrap().stop();
        let floor = kept.position();
        hosts[0].commit("a", "missed");
        let mut second = cluster.host(1, kept, None, "");
        second.lock().gtid_mode = true;
        answer(&mut second.lock());
        assert_eq!(second.connect(&cluster.url(), false), Code::Ok, "{:#?}", second.lock().log);
        second.serve(2);
        second.wait("synced", |s| s.synced == 1);
        assert_eq!(hosts[0].lock().donations, copies + u64::from(domain > 0));
        {
            let s = second.lock();
            assert_eq!((s.sst_requests, s.domain, s.floor), (1, domain, floor), "{:#?}", s.log);
        }
        goes_on_with(second, hosts);
    }
}

#[test]
fn with_gtid_mode_nodes_that_return_together_do_not_wait_for_each_other() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    let kept = kill(&cluster.sites, hosts);
    let mut back = cluster.hosts(kept, "");
    back.iter().for_each(|host| host.lock().gtid_mode = true);
    cluster.connect_all(&mut back);
    for host in &back {
        host.wait("synced", |s| s.synced > 0);
    }
    // The one that is quicker may serve the other.
    assert!(back.iter().map(|host| host.lock().sst_requests).sum::<u64>() < 2);
    back[1].commit("a", "after");
    agree(back);
}

#[test]
fn data_beyond_the_groups_history_are_not_gone_on_with() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    hosts[2].commit("a", "before");
    let third = hosts.pop().unwrap();
    let mut ahead = third.stop();
    // An engine that flushed what the group's logs then lost with the power.
    let end = ahead.position() + 1000;
    ahead.closed.insert(end, Closed::Data(b"lost".to_vec()));
    fs::remove_file(cluster.sites[2].dir.join("grastate.dat")).unwrap();
    let position = Gtid { history: ahead.history, seqno: Some(Seqno(end)) };
    let mut back = cluster.host(2, ahead, Some(position), "");
    assert_eq!(back.connect(&cluster.url(), false), Code::Ok);
    back.serve(2);
    back.wait("synced", |s| s.synced == 1);
    assert_eq!(back.lock().sst_requests, 1);
    goes_on_with(back, hosts);
}

#[test]
fn a_node_does_not_bootstrap_beside_a_primary_component() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    let seqno = hosts[2].commit("a", "one");
    let third = hosts.pop().unwrap();
    third.reach(seqno);
    assert_eq!(third.node().options_set("gmcast.isolate=1"), Code::Ok);
    crash_image(&cluster.sites[2]);
    third.wait("non-primary", |s| s.views.last().is_some_and(|v| v.status == ViewStatus::NonPrimary));
    third.stop();
    restore_image(&cluster.sites[2]);
    cluster.allow_bootstrap(2);
    let forced = cluster.host(2, Tables::default(), None, "");
    assert_eq!(forced.connect("gcomm://", true), Code::NodeFail);
    assert!(
        forced.lock().log.iter().any(|(_, t)| t.contains("a second one would split it")),
        "{:#?}",
        forced.lock().log
    );
    forced.stop();
    agree(hosts);
}

/// Galera's way to begin a cluster of its own with what a node has.
#[test]
fn a_node_without_its_state_file_bootstraps_a_history_of_its_own() {
    let cluster = Cluster::new(2);
    let mut hosts = cluster.start();
    hosts[0].commit("a", "one");
    let history = hosts[0].lock().tables.history;
    let second = hosts.pop().unwrap();
    second.stop();
    fs::remove_file(cluster.sites[1].dir.join("grastate.dat")).unwrap();
    let mut apart = cluster.host(1, Tables::default(), None, "");
    assert_eq!(apart.connect(&cluster.url(), true), Code::Ok, "{:#?}", apart.lock().log);
    apart.serve(2);
    apart.wait("synced", |s| s.synced == 1);
    {
        let s = apart.lock();
        assert_ne!(s.connected.as_ref().unwrap().history, history, "{:#?}", s.log);
    }
    apart.stop();
    agree(hosts);
}

#[test]
fn all_killed_nodes_form_the_group_again_without_a_bootstrap() {
    let cluster = Cluster::new(3);
    let hosts = cluster.start();
    for (i, host) in hosts.iter().enumerate() {
        host.commit(&format!("k{i}"), "before");
    }
    let last = hosts.iter().map(|h| h.lock().tables.position()).max().unwrap();
    for host in &hosts {
        host.reach(last);
        // The vote is a matter of the log, which may lag behind the view.
        assert_eq!(host.node().sync_wait(None, trireme_node::Wait::Default).0, Code::Ok);
    }
    let mut kept = kill(&cluster.sites, hosts);
    // One engine lost its last commit.
    kept[1].closed.pop_last();
    let mut back = cluster.hosts(kept, "pc.wait_prim_timeout=PT0.1S");
    cluster.connect_all(&mut back);
    for host in &back {
        host.wait("synced", |s| s.synced > 0);
        host.wait("all in", |s| s.size() == 3);
        assert_eq!(host.lock().sst_requests, 0);
    }
    back[0].commit("a", "after");
    agree(back);
}

/// All servers died while each executed the same statement.
#[test]
fn with_a_statement_cut_off_everywhere_one_goes_on_and_the_others_copy() {
    cut_off_everywhere(0);
}

/// Delivery begins at a checkpoint, and that has to lie before the data that are gone on from.
#[test]
fn a_statement_that_was_cut_off_everywhere_is_gone_on_from_behind_data_older_than_the_newest_checkpoint() {
    // Segments of the log begin with checkpoints, and are a fraction of `gcache.size`.
    cut_off_everywhere(4 << 20);
}

/// `lost`: bytes of write sets that every engine had in memory only.
fn cut_off_everywhere(lost: usize) {
    let cluster = Cluster::new(3);
    let hosts = cluster.start();
    let flushed = hosts[1].commit("a", "flushed");
    write_much(&hosts[0], lost);
    let last = hosts[1].commit("a", "before");
    for host in &hosts {
        host.reach(last);
        assert_eq!(host.node().sync_wait(None, trireme_node::Wait::Default).0, Code::Ok);
    }
    let mut kept = kill(&cluster.sites, hosts);
    // The engines lost something too, one less than the others.
    for (i, tables) in kept.iter_mut().enumerate() {
        tables.closed.pop_last();
        if lost > 0 {
            tables.closed.retain(|seqno, _| *seqno <= flushed);
        }
        if i != 1 {
            tables.closed.pop_last();
        }
    }
    let history = kept[0].history;
    let mut back: Vec<_> = kept
        .into_iter()
        .enumerate()
        .map(|(i, tables)| {
            let nobody = trireme_types::Uuid::NIL;
            let text = format!(
                "# GALERA saved state\nversion: 2.1\nuuid:    {nobody}\nseqno:   -1\nsafe_to_bootstrap: 0\n# unfinished statement in \
                 {history}\n"
            );
            fs::write(cluster.sites[i].dir.join("grastate.dat"), text).unwrap();
            let position = Gtid { history, seqno: Some(Seqno(tables.position())) };
            cluster.host(i, tables, Some(position), "")
        })
        .collect();
    // A majority, but the one that is absent may have whole data.
    cluster.connect_all(&mut back[..2]);
    back[0].wait("it says for whom it waits", |s| {
        s.log.iter().any(|(_, t)| t.contains("cut off on all members that are here"))
    });
    assert!(back.iter().all(|host| host.lock().connected.is_none()));
    cluster.connect_all(&mut back[2..]);
    for host in &back {
        host.wait("synced", |s| s.synced > 0);
    }
    let copies: Vec<u64> = back.iter().map(|host| host.lock().sst_requests).collect();
    assert_eq!(copies, [1, 0, 1], "the one whose engine is furthest ahead goes on");
    back[2].commit("a", "after");
    agree(back);
}

#[test]
fn a_node_joins_under_load() {
    let cluster = Cluster::new(3);
    let mut hosts = vec![cluster.bootstrap(), cluster.join(1)];
    hosts[1].wait("synced", |s| s.synced == 1);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let joined = std::thread::scope(|scope| {
        for host in &hosts {
            let stop = &stop;
            scope.spawn(move || {
                let mut i = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    host.commit(&host.name, &format!("{}", i));
                    i += 1;
                }
            });
        }
        let joined = cluster.join(2);
        joined.wait("synced", |s| s.synced == 1);
        for i in 0..20 {
            joined.commit("third", &format!("{i}"));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        joined
    });
    hosts.push(joined);
    agree(hosts);
}

#[test]
fn a_cut_node_is_non_primary_and_comes_back_synced() {
    let cluster = Cluster::new(3);
    let hosts = cluster.start();
    let synced = hosts[2].lock().synced;
    assert_eq!(hosts[2].node().options_set("gmcast.isolate=1"), Code::Ok);
    hosts[2].wait("non-primary", |s| s.views.last().is_some_and(|v| v.status == ViewStatus::NonPrimary));
    assert_eq!(hosts[2].state(), 0);
    assert_eq!(hosts[2].stat("cluster_weight"), trireme_node::StatValue::Text("0".into()));
    let (code, _) = hosts[2].node().sync_wait(None, trireme_node::Wait::Default);
    assert_eq!(code, Code::ConnFail);
    assert_eq!(hosts[2].run("a", "refused"), End::Failed(Code::ConnFail));
    hosts[0].commit("a", "goes on");
    assert_eq!(hosts[2].node().options_set("gmcast.isolate=0"), Code::Ok);
    hosts[2].wait("synced again", |s| s.synced > synced);
    hosts[2].commit("a", "again");
    agree(hosts);
}

/// Proposed after the links were lost and before the loss of the majority was noticed: nobody has it, so nobody has to wait until the
/// links return. A rollback, which must not get lost, is repeated then.
#[test]
fn what_was_given_to_nobody_has_certainly_not_happened() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    // Not those of a donor that becomes synced again: it may, late.
    let primary_views = |s: &State| s.views.iter().filter(|view| view.status == ViewStatus::Primary).count();
    for cut in &hosts {
        let before = primary_views(&cut.lock());
        assert_eq!(cut.node().options_set("gmcast.isolate=1"), Code::Ok);
        cut.wait("the link to be gone", |s| s.log.iter().any(|(_, text)| text.ends_with("closed: isolated")));
        assert_eq!(cut.node().rollback(TrxId(1)), Code::Ok);
        thread::scope(|scope| {
            let commit = scope.spawn(|| cut.run("a", "lost"));
            let ddl = scope.spawn(|| cut.toi(1, "t", "lost", b""));
            let message = scope.spawn(|| cut.node().desync());
            assert_eq!(commit.join().unwrap(), End::Failed(Code::ConnFail));
            assert_eq!(ddl.join().unwrap(), Err(Code::ConnFail));
            assert_eq!(message.join().unwrap(), Code::ConnFail);
        });
        let last = cut.lock().tables.position();
        assert_eq!(cut.node().options_set("gmcast.isolate=0"), Code::Ok);
        cut.wait("a primary view", |s| primary_views(s) > before);
        let next = cut.commit("a", "again");
        {
            // How many views there are on a busy machine is another matter.
            let s = cut.lock();
            let behind = s.tables.closed.range(last + 1..).map(|(_, closed)| closed);
            let data: Vec<_> = behind.filter(|closed| !matches!(closed, Closed::View(_))).collect();
            assert_eq!(
                data,
                [&Closed::Data(Vec::new()), &Closed::Data(b"again".to_vec())],
                "the rollback, and no other"
            );
        }
        assert_eq!(cut.node().options_set("repl.status_extended=yes"), Code::Ok);
        assert_eq!(cut.int("trireme_unknown_outcomes"), 0, "somebody waited for the time that unknown outcomes get");
        hosts.iter().for_each(|host| host.reach(next));
    }
    agree(hosts);
}

/// The server goes on as if it were synced with the group, whatever it is told.
#[test]
fn a_desync_that_ends_without_a_majority_ends_for_the_group_too() {
    let cluster = Cluster::new(3);
    let hosts = cluster.start();
    let cut = &hosts[2];
    assert_eq!(cut.node().desync(), Code::Ok);
    assert_eq!(cut.node().options_set("gmcast.isolate=1"), Code::Ok);
    cut.wait("non-primary", |s| s.views.last().is_some_and(|v| v.status == ViewStatus::NonPrimary));
    let synced = cut.lock().synced;
    assert_eq!(cut.node().resync(), Code::Ok);
    assert_eq!(cut.node().options_set("gmcast.isolate=0"), Code::Ok);
    cut.wait("synced, with nothing written", |s| s.synced > synced);
    let is_synced = || (cut.state(), cut.stat("desync_count")) == (4, trireme_node::StatValue::Text("0".into()));
    until("the end of the desync", is_synced);
    agree(hosts);
}

#[test]
fn connecting_to_nobody_ends_in_time_and_can_be_interrupted() {
    let cluster = Cluster::new(2);
    let host = cluster.host(1, Tables::default(), None, "pc.wait_prim_timeout=PT0.5S");
    assert_eq!(host.connect(&cluster.url(), false), Code::NodeFail);
    assert!(host.lock().log.iter().any(|(_, t)| t.contains("failed to reach primary view: 110")));
    assert_eq!(host.lock().finals, 0);
    host.stop();
    let host = cluster.host(1, Tables::default(), None, "pc.wait_prim_timeout=PT1000S");
    let (node, url) = (host.node(), cluster.url());
    let connecting = std::thread::spawn(move || node.connect("test", &url, "", false));
    while !matches!(host.stat("local_state_comment"), trireme_node::StatValue::Text(t) if t == "Initialized")
        || !connecting_began(&host)
    {
        std::thread::yield_now();
    }
    assert_eq!(host.node().disconnect(), Code::Ok);
    assert_eq!(connecting.join().unwrap(), Code::NodeFail);
    host.stop();
}

fn connecting_began(host: &crate::cluster::Host) -> bool {
    // Group variables appear with the connection.
    host.node().stats().iter().any(|(name, _)| name == "evs_state")
}

#[test]
fn without_waiting_for_a_primary_view_the_node_connects_later() {
    let cluster = Cluster::new(2);
    let mut second = cluster.host(1, Tables::default(), None, "pc.wait_prim=no");
    assert_eq!(second.connect(&cluster.url(), false), Code::Ok);
    second.serve(1);
    let first = cluster.bootstrap();
    second.wait("synced", |s| s.synced == 1);
    second.commit("a", "one");
    agree(vec![first, second]);
}

#[test]
fn a_node_is_closed_without_any_recv_thread() {
    let cluster = Cluster::new(1);
    let host = cluster.host(0, Tables::default(), None, "");
    assert_eq!(host.connect("gcomm://", true), Code::Ok);
    host.stop();
    let text = fs::read_to_string(cluster.sites[0].dir.join("grastate.dat")).unwrap();
    assert!(text.contains("seqno:   0\n"), "{text}");
}

#[test]
fn dummy_needs_no_network() {
    let cluster = Cluster::new(1);
    let mut host = cluster.host(0, Tables::default(), None, "");
    assert_eq!(host.connect("dummy://", false), Code::Ok);
    host.serve(1);
    host.wait("synced", |s| s.synced == 1);
    host.commit("a", "one");
    host.stop();
}

#[test]
fn an_inconsistent_node_leaves_with_a_final_view_and_needs_a_copy() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    let third = hosts.pop().unwrap();
    third.lock().failing.insert(b"bad".to_vec(), b" Can't find record, Error_code: 1032;\0".to_vec());
    let seqno = hosts[0].commit("a", "bad");
    third.wait("the final view", |s| s.finals == 1);
    assert_eq!(third.lock().leave_codes.get(&seqno), Some(&Code::NodeFail));
    assert_eq!(third.state(), 5);
    let text = third.grastate(&cluster.sites[2]);
    assert!(text.contains("00000000-0000-0000-0000-000000000000"), "{text}");
    let mut third = third;
    third.disconnect();
    third.node().close();
    drop(third);
    hosts[0].wait("two left", |s| s.size() == 2);
    let back = cluster.rejoin(2, Tables::default());
    back.wait("synced", |s| s.synced == 1);
    assert_eq!(back.lock().sst_requests, 1);
    hosts.push(back);
    agree(hosts);
}

#[test]
fn a_failure_that_all_appliers_share_throws_the_origin_out() {
    let cluster = Cluster::new(3);
    let hosts = cluster.start();
    for host in &hosts[1..] {
        host.lock().failing.insert(b"bad".to_vec(), b" Can't find record, Error_code: 1032;\0".to_vec());
    }
    let seqno = hosts[0].commit("a", "bad");
    hosts[0].wait("the final view", |s| s.finals == 1);
    for host in &hosts[1..] {
        host.wait("the vote", |s| s.leave_codes.get(&seqno) == Some(&Code::Ok));
        host.wait("two left", |s| s.size() == 2);
    }
    hosts[1].commit("a", "goes on");
    let mut hosts = hosts;
    hosts.remove(0).stop();
    agree(hosts);
}

#[test]
fn a_statement_that_lost_its_vote_ends_when_its_server_knows_that_it_has_left() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    let seqno = hosts[0].toi(1, "t", "create", b" Table 't' already exists, Error_code: 1050;\0").unwrap();
    assert_eq!(
        hosts[0].lock().finals,
        1,
        "the next statement would be refused by the provider, for a reason that no client understands"
    );
    assert_eq!(hosts[0].state(), 5);
    for host in &hosts[1..] {
        host.reach(seqno);
        host.wait("two left", |s| s.size() == 2);
    }
    hosts.remove(0).stop();
    agree(hosts);
}

/// Its server may need what the statement holds, to hear of the end. Neither a pause of the server nor the end of the connection waits for it.
#[test]
fn a_statement_that_lost_its_vote_does_not_wait_for_a_server_that_hears_nothing() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    let mut loser = hosts.remove(0);
    let node = loser.node();
    node.stall_in("item-final", true);
    let fake = loser.fake.clone();
    let (tell, told) = mpsc::channel();
    let client = thread::spawn(move || {
        fake.toi(1, "t", "create", b" Table 't' already exists, Error_code: 1050;\0").unwrap();
        tell.send(fake.lock().finals).unwrap();
    });
    until("the server is about to hear of the end", || node.is_stalled_in("item-final"));
    assert!(node.pause().is_some(), "what the statement was is over");
    assert_eq!(node.resume(), Code::Ok);
    assert_eq!(node.disconnect(), Code::Ok);
    assert_eq!(told.recv_timeout(PATIENCE), Ok(0), "it ended before the server heard of the end");
    client.join().unwrap();
    node.stall_in("item-final", false);
    drop(node);
    loser.wait("the final view", |s| s.finals == 1);
    loser.disconnect();
    loser.stop();
    agree(hosts);
}

#[test]
fn a_bootstrap_names_the_node_that_holds_more() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    let seqno = hosts[2].commit("a", "one");
    let third = hosts.pop().unwrap();
    third.reach(seqno);
    let stale = kill(&cluster.sites[2..], vec![third]).remove(0);
    hosts[0].wait("two left", |s| s.size() == 2);
    let last = hosts[0].commit("a", "two");
    hosts[1].reach(last);
    let mut kept = kill(&cluster.sites[..2], hosts);
    // The second waits for the first; the third is to begin anew, as an operator said who did not look.
    let url = cluster.url();
    let second = kept.pop().unwrap();
    let position = second.gtid();
    let waiting = cluster.host(1, second, Some(position), "pc.wait_prim=no");
    assert_eq!(waiting.connect(&url, false), Code::Ok);
    cluster.allow_bootstrap(2);
    let position = stale.gtid();
    let wrong = cluster.host(2, stale.clone(), Some(position), "");
    assert_eq!(wrong.connect(&url, true), Code::NodeFail);
    assert!(wrong.lock().log.iter().any(|(_, t)| t.contains("Bootstrap n2 (")), "{:#?}", wrong.lock().log);
    wrong.stop();
    // Nobody to ask: the edited file counts, and the log says whose commits may be lost.
    waiting.stop();
    let mut forced = cluster.host(2, stale, Some(position), "");
    assert_eq!(forced.connect(&url, true), Code::Ok);
    forced.serve(1);
    assert!(forced.lock().log.iter().any(|(_, t)| t.contains("bootstrap without an answer from n1 (")));
    forced.commit("a", "three");
    forced.stop();
}

/// It has lost its log, and nothing but its data says what was committed.
#[test]
fn a_bootstrap_names_the_node_whose_data_reach_further() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    let third = hosts.pop().unwrap();
    third.reach(hosts[0].commit("a", "one"));
    let stale = kill(&cluster.sites[2..], vec![third]).remove(0);
    hosts[0].wait("two left", |s| s.size() == 2);
    hosts[1].reach(hosts[0].commit("a", "two"));
    let second = kill(&cluster.sites[..2], hosts).pop().unwrap();
    cluster.sites[1].log_files().iter().for_each(|file| fs::remove_file(file).unwrap());
    let position = second.gtid();
    let without_log = cluster.host(1, second.clone(), Some(position), "pc.wait_prim=no");
    without_log.lock().opened = true;
    assert_eq!(without_log.connect(&cluster.url(), false), Code::Ok);
    let bootstraps = |tables: Tables, code: Code| {
        cluster.allow_bootstrap(2);
        let position = tables.gtid();
        let third = cluster.host(2, tables, Some(position), "");
        assert_eq!(third.connect(&cluster.url(), true), code, "{:#?}", third.lock().log);
        third
    };
    let refused = bootstraps(stale, Code::NodeFail);
    let says =
        |s: &State| s.log.iter().any(|(_, t)| t.contains("Bootstrap n2 (") && t.contains("has data up to seqno"));
    assert!(says(&refused.lock()), "{:#?}", refused.lock().log);
    refused.stop();
    // Its own data reach beyond its log too, and as far: the history goes on where they end.
    let mut first = bootstraps(second, Code::Ok);
    first.serve(1);
    first.stop();
    without_log.stop();
}

/// In its log this node votes alone. But that may lack its end, and others may have a vote by now.
#[test]
fn a_bootstrap_by_a_log_that_may_lack_its_end_asks_all_known_members() {
    let cluster = Cluster::new(2);
    let mut hosts = cluster.start();
    hosts.pop().unwrap().stop();
    let first = hosts.pop().unwrap();
    first.wait("alone", |s| s.size() == 1);
    let tables = first.stop();
    let asks = |tables: Tables| {
        cluster.allow_bootstrap(0);
        let mut host = cluster.host(0, tables, None, "");
        assert_eq!(host.connect(&cluster.url(), true), Code::Ok, "{:#?}", host.lock().log);
        host.serve(1);
        let asked = host.lock().log.iter().any(|(_, t)| t.contains("bootstrap without an answer from n2 ("));
        (host.stop(), asked)
    };
    let (tables, asked) = asks(tables);
    assert!(!asked, "nobody else voted when it stopped");
    lose_trust(&cluster.sites[0]);
    let (_, asked) = asks(tables);
    assert!(asked);
}

fn log_of(site: &Site) -> WriteSetLog<DirStorage> {
    let storage = DirStorage::new(&site.dir).unwrap();
    WriteSetLog::open(storage, &Options::new(None, read_boot_id())).unwrap().0
}

fn lose_trust(site: &Site) {
    let mut log = log_of(site);
    log.set_suspect(Some(log.last())).unwrap();
}

/// The log is from before the other one came in. That one is found by its address.
#[test]
fn a_bootstrap_by_a_log_that_lost_its_end_asks_those_that_came_behind_it() {
    for copy in [false, true] {
        let cluster = Cluster::new(2);
        let site = &cluster.sites[0];
        let begin = |tables: Tables, code: Code| {
            cluster.allow_bootstrap(0);
            let mut host = cluster.host(0, tables, None, "");
            assert_eq!(host.connect(&cluster.url(), true), code, "{:#?}", host.lock().log);
            if code == Code::Ok {
                host.serve(1);
            }
            host
        };
        let first = cluster.bootstrap();
        first.commit("a", "alone");
        let tables = first.stop();
        let end = log_of(site).last();
        crash_image(site);
        let first = begin(tables.clone(), Code::Ok);
        let second = cluster.join(1);
        second.wait("synced", |s| s.synced == 1);
        first.stop();
        second.wait("alone", |s| s.size() == 1);
        if copy {
            restore_image(site);
        } else {
            log_of(site).truncate_after(end).unwrap();
            lose_trust(site);
        }
        let refused = begin(tables, Code::NodeFail);
        let why =
            if copy { "A member of this cluster runs, and refuses this node" } else { "a second one would split it" };
        assert!(refused.lock().log.iter().any(|(_, t)| t.contains(why)), "{:#?}", refused.lock().log);
        refused.stop();
        second.stop();
    }
}

/// One of the addresses is another cluster's by now. A node gives up for that only if it finds nobody else.
#[test]
fn a_wrong_address_does_not_end_those_that_wait_for_each_other() {
    let (cluster, other) = (Cluster::new(4), Cluster::new(1));
    let mut foreign = other.host(0, Tables::default(), None, "");
    assert_eq!(foreign.node().connect("another", "gcomm://", "", true), Code::Ok);
    foreign.serve(1);
    let hosts = cluster.start();
    let last = hosts[0].commit("a", "one");
    hosts.iter().for_each(|host| host.reach(last));
    let kept = kill(&cluster.sites, hosts);
    let limit = Duration::from_secs(3);
    let mut back = cluster.hosts(kept, "pc.wait_prim_timeout=PT3S");
    let url = format!("{},{}", cluster.url(), other.sites[0].address);
    let codes = thread::scope(|scope| {
        let url = &url;
        let connect = |host| scope.spawn(move || Host::connect(host, url, false));
        let mut waiting: Vec<_> = back[..2].iter().map(connect).collect();
        for host in &back[..2] {
            host.wait("both addresses answered", |s| {
                let said = |text: &str| s.log.iter().any(|(_, t)| t.contains(text));
                said("connection established") && said("was refused")
            });
        }
        // Nothing may happen.
        thread::sleep(limit + limit / 2);
        waiting.extend(back[2..].iter().map(connect));
        waiting.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(codes, [Code::Ok; 4]);
    back.iter_mut().for_each(|host| host.serve(1));
    agree(back);
    foreign.stop();
}

#[test]
fn nodes_without_state_begin_a_cluster_together() {
    let cluster = Cluster::new(3);
    let url = cluster.url();
    let mut hosts: Vec<_> = (0..3).map(|i| cluster.host(i, Tables::default(), None, "pc.bootstrap_expect=3")).collect();
    cluster.connect_all(&mut hosts);
    for host in &hosts {
        host.wait("synced", |s| s.synced > 0);
        host.wait("all in", |s| s.size() == 3);
    }
    let copies: u64 = hosts.iter().map(|h| h.lock().sst_requests).sum();
    assert_eq!(copies, 2, "one began, two joined");
    let history = hosts[0].lock().tables.history;
    for host in &hosts {
        assert_eq!(host.lock().tables.history, history);
    }
    hosts[1].commit("a", "one");
    // With state the option means nothing: the same nodes come back as any others.
    let third = hosts.pop().unwrap().stop();
    hosts[0].wait("two left", |s| s.size() == 2);
    let mut back = cluster.host(2, third, None, "pc.bootstrap_expect=3");
    assert_eq!(back.connect(&url, false), Code::Ok);
    back.serve(2);
    back.wait("synced", |s| s.synced == 1);
    hosts.push(back);
    agree(hosts);
}

/// No thread, and nothing that one of them had, keeps the server of a node that is closed.
#[test]
fn nothing_is_left_of_a_node_that_is_closed() {
    let cluster = Cluster::new(2);
    let first = cluster.bootstrap();
    let mut second = cluster.join(1);
    for _ in 0..3 {
        second.wait("synced", |s| s.synced > 0);
        second.commit("a", "one");
        second.disconnect();
        second.lock().synced = 0;
        assert_eq!(second.connect(&cluster.url(), false), Code::Ok);
        second.serve(2);
    }
    second.wait("synced", |s| s.synced > 0);
    let servers = [&first, &second].map(|host| Arc::downgrade(&host.fake));
    agree(vec![first, second]);
    // The script of the full copy may still be on its way out.
    until("nobody has them", || servers.iter().all(|server| server.upgrade().is_none()));
}
