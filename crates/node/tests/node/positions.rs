//! The storage engine confirms every position: what files and options say is a claim (rule 31).

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use trireme_node::{Code, Gtid, Level};
use trireme_types::Seqno;

use crate::cluster::{Cluster, Host, agree, goes_on_with};
use crate::fake::Tables;

/// Three nodes; the third was stopped in order, and its tables as they were.
fn stopped(cluster: &Cluster) -> (Vec<Host>, Tables) {
    let mut hosts = cluster.start();
    for i in 0..10 {
        hosts[2].commit(&format!("k{i}"), "before");
    }
    let third = hosts.pop().unwrap();
    third.reach(hosts[0].lock().tables.position());
    let tables = third.stop();
    hosts[0].wait("two left", |s| s.size() == 2);
    hosts[0].commit("a", "missed");
    (hosts, tables)
}

/// The engine died after the provider had ended in order, and its disk lacks what the state file counts.
#[test]
fn an_engine_that_lost_its_last_commits_is_not_gone_on_with() {
    let cluster = Cluster::new(3);
    let (hosts, mut tables) = stopped(&cluster);
    tables.lose(5);
    let before = tables.position();
    let mut back = cluster.host(2, tables, None, "");
    assert_eq!(back.connect(&cluster.url(), false), Code::Ok);
    back.serve(2);
    back.wait("the final view", |s| s.finals == 1);
    {
        let s = back.lock();
        let refused = |(level, text): &(Level, String)| {
            *level == Level::Error && text.contains(&format!("the storage engine is at {before}, not at"))
        };
        assert!(s.log.iter().any(refused), "{:#?}", s.log);
        assert_eq!((s.tables.position(), s.synced), (before, 0), "nothing was applied");
    }
    let tables = back.stop();
    assert!(fs::read_to_string(cluster.sites[2].dir.join("grastate.dat")).unwrap().contains("seqno:   -1"));
    // No claim is left, and a test host has no binary to ask.
    let back = cluster.rejoin(2, tables);
    back.wait("synced", |s| s.synced == 1);
    assert_eq!(back.lock().sst_requests, 1);
    goes_on_with(back, hosts);
}

/// The view that lets it in comes right behind the position that it claims: nothing is missed but what its engine lost.
#[test]
fn an_engine_behind_is_noticed_when_nothing_else_was_missed() {
    let cluster = Cluster::new(1);
    let host = cluster.bootstrap();
    host.commit("a", "one");
    host.commit("a", "two");
    let mut tables = host.stop();
    tables.lose(1);
    let before = tables.position();
    let mut back = cluster.host(0, tables, None, "");
    assert_eq!(back.connect(&cluster.url(), false), Code::Ok);
    back.serve(2);
    back.wait("the final view", |s| s.finals == 1);
    assert_eq!(back.lock().tables.position(), before);
    back.stop();
}

/// Commits are in the engine's memory only: a stop waits for its disk, and if that takes long it does not name a position.
#[test]
fn a_stop_names_a_position_only_when_the_engine_has_it_on_disk() {
    let cluster = Cluster::new(1);
    let host = cluster.bootstrap();
    let file = cluster.sites[0].dir.join("grastate.dat");
    host.commit("a", "one");
    host.lock().engine.lazy = true;
    let last = host.commit("a", "two");
    let history = host.lock().tables.history;
    let tables = host.stop();
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(&history.to_string()) && text.contains("seqno:   -1"), "{text}");
    // A log that was closed in order does not make it known either.
    let mut host = cluster.host(0, tables, None, "");
    host.lock().opened = true;
    assert_eq!(host.connect("gcomm://", true), Code::Ok);
    host.serve(2);
    host.wait("synced", |s| s.synced == 1);
    assert_eq!(host.commit("a", "three"), last + 2, "in the same history, from where the engine was");
    host.stop();
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(&format!("# on disk {history}:{}", last + 2)), "{text}");
}

/// With a logical transfer method the engine runs before the connection, and is simply asked.
#[test]
fn an_engine_that_runs_already_says_where_to_go_on() {
    let cluster = Cluster::new(3);
    let (hosts, mut tables) = stopped(&cluster);
    tables.lose(5);
    let mut back = cluster.host(2, tables, None, "");
    back.lock().opened = true;
    assert_eq!(back.connect(&cluster.url(), false), Code::Ok);
    back.serve(2);
    back.wait("synced", |s| s.synced == 1);
    assert_eq!(back.lock().sst_requests, 0, "its log holds the rest");
    assert!(back.lock().log.iter().any(|(_, text)| text.contains("going on from where the engine is")));
    goes_on_with(back, hosts);
}

#[test]
fn a_position_on_the_command_line_is_a_claim_too() {
    let cluster = Cluster::new(3);
    let (hosts, tables) = stopped(&cluster);
    for wrong in [tables.position() - 3, tables.position() + 1] {
        let given = Gtid { history: tables.history, seqno: Some(Seqno(wrong)) };
        let mut back = cluster.host(2, tables.clone(), Some(given), "");
        assert_eq!(back.connect(&cluster.url(), false), Code::Ok);
        back.serve(2);
        back.wait("the final view", |s| s.finals == 1);
        assert_eq!(back.lock().tables.position(), tables.position(), "nothing was applied");
        assert!(back.lock().log.iter().any(|(_, text)| text.contains("not at") && text.contains("remove it")));
        back.stop();
    }
    agree(hosts);
}

/// `wsrep_sst_method=skip`: the operator says that the data are the group's. The engine knows better.
#[test]
fn a_trivial_transfer_does_not_skip_what_the_engine_lacks() {
    let cluster = Cluster::new(2);
    let mut hosts = cluster.start();
    let second = hosts.pop().unwrap();
    second.reach(hosts[0].commit("a", "one"));
    let tables = second.stop();
    hosts[0].commit("a", "two");
    // A backup, say: data of this history, without the log.
    fs::remove_dir_all(&cluster.sites[1].dir).unwrap();
    fs::create_dir(&cluster.sites[1].dir).unwrap();
    let mut back = cluster.host(1, tables.clone(), None, "");
    {
        let mut s = back.lock();
        (s.opened, s.trivial) = (true, true);
    }
    assert_eq!(back.connect(&cluster.url(), false), Code::Ok);
    back.serve(2);
    back.wait("the final view", |s| s.finals == 1);
    assert_eq!(back.lock().tables.position(), tables.position());
    assert!(back.lock().log.iter().any(|(_, text)| text.contains("that brings a full copy")));
    back.stop();
    agree(hosts);
}

/// A state file that takes nothing: as on a disk without room, or one that became read-only.
fn break_state_file(cluster: &Cluster, site: usize) {
    let file = cluster.sites[site].dir.join("grastate.dat");
    let _ = fs::remove_file(&file);
    symlink("/dev/full", file).unwrap();
}

#[test]
fn a_statement_that_cannot_be_marked_is_refused() {
    let cluster = Cluster::new(1);
    break_state_file(&cluster, 0);
    let host = cluster.bootstrap();
    host.wait("synced", |s| s.synced == 1);
    let before = host.lock().tables.position();
    assert_eq!(host.toi(1, "t", "ALTER", b""), Err(Code::ConnFail));
    host.wait("the reason", |s| {
        s.log.iter().any(|(level, text)| *level == Level::Error && text.contains("no DDL is executed here"))
    });
    assert_eq!(host.commit("a", "a commit needs no mark"), before + 1);
    // The reason is gone.
    let file = cluster.sites[0].dir.join("grastate.dat");
    fs::remove_file(&file).unwrap();
    fs::write(&file, "").unwrap();
    host.stop();
}

/// Ends its process: see the next one.
#[test]
#[ignore = "for a process of its own"]
fn in_a_process_of_its_own() {
    let cluster = Cluster::new(2);
    break_state_file(&cluster, 1);
    let hosts = cluster.start();
    let seqno = hosts[0].toi(1, "t", "ALTER", b"").unwrap();
    hosts[1].reach(seqno);
}

#[test]
fn a_statement_of_others_that_cannot_be_marked_ends_the_server() {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "positions::in_a_process_of_its_own", "--ignored", "--nocapture"]);
    let ended = child.env("TRIREME_TEST_LOG", "1").output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(said.contains("cannot be marked in grastate.dat"), "{said}");
}
