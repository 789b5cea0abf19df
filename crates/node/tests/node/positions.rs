//! The storage engine confirms every position: what files and options say is a claim (rule 31).

use std::fs;
use std::os::unix::fs::symlink;
use std::thread;

use trireme_node::{Code, Gtid, Level};
use trireme_types::{Seqno, Uuid};

use crate::cluster::{Cluster, Host, agree, block, goes_on_with, kill};
use crate::fake::{ENGINE_SAYS, Tables, until};

/// A commit that has left commit order waits for the binary log yet. Where the engine is meanwhile is not where it will be.
#[test]
fn a_stop_waits_for_a_commit_that_is_queued_for_the_binary_log() {
    let cluster = Cluster::new(1);
    let mut host = cluster.bootstrap();
    host.wait("synced", |s| s.synced == 1);
    let mut handle = host.begin("a", "queued");
    let (code, meta) = host.certify(&mut handle);
    assert_eq!(code, Code::Ok);
    let meta = meta.unwrap();
    host.queue_commit(handle, &meta, "queued");
    let fake = host.fake.clone();
    thread::scope(|scope| {
        let stopping = scope.spawn(|| host.disconnect());
        // The final view is taken from the queue.
        until("the last item", || fake.node().stats().iter().all(|(name, _)| name != "evs_state"));
        fake.end_commit(handle, &meta);
        stopping.join().unwrap();
    });
    let history = host.lock().tables.history;
    host.stop();
    let text = fs::read_to_string(cluster.sites[0].dir.join("grastate.dat")).unwrap();
    assert!(text.contains(&format!("# on disk {history}:{}", meta.seqno)), "{text}");
}

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
    back.wait("the end", |s| s.ended.is_some() && s.finals == 1);
    {
        let s = back.lock();
        let refused = |(level, text): &(Level, String)| {
            *level == Level::Fatal && text.contains(&format!("the storage engine is at {before}, not at"))
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

/// With a logical transfer method the engine runs before the connection, and is asked.
#[test]
fn an_engine_that_runs_already_says_where_to_go_on() {
    let cluster = Cluster::new(3);
    let (hosts, mut tables) = stopped(&cluster);
    tables.lose(5);
    let mut back = cluster.host(2, tables, None, "");
    back.lock().opened = true;
    back.comes_back_without_a_copy(&cluster);
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

/// The unit gives the position at each start. An operator who removes the state file wants a copy all the same, as with Galera.
#[test]
fn a_position_on_the_command_line_does_not_stand_against_a_removed_state_file() {
    let cluster = Cluster::new(3);
    let (hosts, tables) = stopped(&cluster);
    fs::remove_file(cluster.sites[2].dir.join("grastate.dat")).unwrap();
    let given = tables.gtid();
    let mut back = cluster.host(2, tables, Some(given), "");
    assert_eq!(back.connect(&cluster.url(), false), Code::Ok);
    back.serve(2);
    back.wait("a copy", |s| s.synced == 1 && s.sst_requests == 1);
    agree(hosts.into_iter().chain([back]).collect());
}

/// A full copy that would not be noticed when it is cut short does not begin.
#[test]
fn a_copy_that_cannot_be_marked_does_not_begin() {
    let cluster = Cluster::new(3);
    let (hosts, tables) = stopped(&cluster);
    break_state_file(&cluster, 2);
    let mut back = cluster.host(2, tables.clone(), None, "");
    assert_eq!(back.connect(&cluster.url(), false), Code::Ok);
    back.serve(2);
    back.wait("the end", |s| s.ended.as_ref().is_some_and(|why| why.contains("cannot be marked in grastate.dat")));
    assert_eq!(back.lock().tables.position(), tables.position(), "nothing was replaced");
    back.stop();
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

/// An ordered statement cannot be taken back, and what comes behind it would be committed without it: the server ends, and
/// executes the statement when it is back.
#[test]
fn a_statement_of_others_that_cannot_be_marked_ends_the_server() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    let before = hosts[0].commit("a", "stands");
    hosts[1].reach(before);
    break_state_file(&cluster, 1);
    hosts[0].toi(1, "t", "ALTER", b"").unwrap();
    hosts[1].wait("the end", |s| s.ended.as_ref().is_some_and(|why| why.contains("cannot be marked in grastate.dat")));
    assert_eq!(hosts[1].lock().tables.position(), before, "it was not executed");
    for host in hosts {
        host.stop();
    }
}

/// The same for one of its own that is ordered when the file breaks.
#[test]
fn a_statement_that_cannot_be_marked_once_it_is_ordered_ends_the_server() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    let release = block(&hosts[1]);
    let before = hosts[0].commit("a", "stands");
    hosts[1].wait("stands", |s| s.is_applying());
    thread::scope(|scope| {
        let told = scope.spawn(|| hosts[1].toi(1, "t", "ALTER", b""));
        hosts[0].reach(before + 1);
        break_state_file(&cluster, 1);
        release.send(()).unwrap();
        assert_eq!(told.join().unwrap(), Err(Code::NodeFail));
    });
    hosts[1].wait("the end", |s| s.ended.as_ref().is_some_and(|why| why.contains("cannot be marked in grastate.dat")));
    assert_eq!(hosts[1].lock().tables.position(), before, "it was not executed");
    for host in hosts {
        host.stop();
    }
}

// --- with a server that can be asked before its engine runs ----------------------------------------------------------------------------

/// Not a test: the server's program in a recovery run, see [`crate::fake::ENGINE_SAYS`].
#[test]
#[ignore = "a process that others start"]
fn the_recovery_run() {
    let words: Vec<String> = std::env::args().collect();
    assert!(words.iter().any(|word| word == "--wsrep-recover"), "{words:?}");
    let dir = words.iter().find_map(|word| word.strip_prefix("--datadir=")).expect("the data directory is named");
    let says = fs::read_to_string(std::path::Path::new(dir).join(ENGINE_SAYS)).expect("what the engine says");
    eprintln!("{says}");
    if says.starts_with("[ERROR]") {
        std::process::exit(1);
    }
}

impl Cluster {
    /// A server that is started with these tables. `says`: what the recovery run says in the place of where they are.
    fn server(&self, site: usize, tables: Tables, says: Option<&str>) -> Host {
        let dir = self.sites[site].dir.clone();
        let _ = fs::remove_file(dir.join(ENGINE_SAYS));
        if let Some(says) = says {
            fs::write(dir.join(ENGINE_SAYS), says).unwrap();
        }
        let host = self.host(site, tables, None, "");
        host.lock().process = Some(dir);
        host
    }
}

/// The position is asked for before the engine runs, and compared once it does.
#[test]
fn a_killed_server_goes_on_from_where_its_engine_says() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    for i in 0..10 {
        hosts[2].commit_patiently(&format!("k{i}"), "before");
    }
    let third = hosts.pop().unwrap();
    third.reach(hosts[0].lock().tables.position());
    let mut tables = kill(&cluster.sites[2..], vec![third]).remove(0);
    tables.lose(4);
    hosts[0].wait("two left", |s| s.size() == 2);
    hosts[0].commit("a", "missed");
    let mut back = cluster.server(2, tables, None);
    back.comes_back_without_a_copy(&cluster);
    assert!(back.lock().log.iter().any(|(_, text)| text.contains("recovered position")));
    goes_on_with(back, hosts);
}

/// The engine is opened by the first view, and then it is too late to ask it for another answer: the process ends.
#[test]
fn an_engine_that_is_not_where_its_recovery_run_said_ends_the_server() {
    let cluster = Cluster::new(3);
    let (hosts, mut tables) = stopped(&cluster);
    let (history, said) = (tables.history, tables.position());
    tables.lose(5);
    let before = tables.position();
    let mut back = cluster.server(2, tables, Some(&format!("WSREP: Recovered position: {history}:{said}")));
    assert_eq!(back.connect(&cluster.url(), false), Code::Ok);
    back.serve(2);
    let why = format!("the storage engine is at {history}:{before}, not at {history}:{said}");
    let short = format!("the storage engine is at {before}, not at {history}:{said}");
    back.wait("the end", |s| s.ended.as_ref().is_some_and(|told| told.contains(&why) || told.contains(&short)));
    {
        let s = back.lock();
        assert_eq!((s.tables.position(), s.synced), (before, 0), "nothing was applied");
    }
    let tables = back.stop();
    // The next start gives a node that goes on.
    let mut back = cluster.server(2, tables, None);
    back.comes_back_without_a_copy(&cluster);
    goes_on_with(back, hosts);
}

/// Its engine would take the first view's position for its own, and nothing could be compared any more.
#[test]
fn data_of_another_history_are_not_adopted() {
    let cluster = Cluster::new(3);
    let (hosts, tables) = stopped(&cluster);
    let foreign = Tables { history: Uuid([7; 16]), ..tables };
    let mut back = cluster.server(2, foreign, None);
    assert_eq!(back.connect(&cluster.url(), false), Code::Ok);
    back.serve(2);
    back.wait("synced", |s| s.synced == 1);
    {
        let s = back.lock();
        assert_eq!((s.sst_requests, s.adopted), (1, false), "{:#?}", s.log);
    }
    goes_on_with(back, hosts);
}

/// Data that belong to a history do not begin another one unless an operator says so.
#[test]
fn a_bootstrap_on_data_that_are_nowhere_says_what_to_do() {
    let cluster = Cluster::new(1);
    let host = cluster.bootstrap();
    host.commit("a", "one");
    let tables = kill(&cluster.sites, vec![host]).remove(0);
    let nobody = Uuid::NIL;
    let elsewhere = Uuid([7; 16]);
    for says in [
        format!("WSREP: Recovered position: {nobody}:-1"),
        format!("WSREP: Recovered position: {elsewhere}:3"),
        "[ERROR] InnoDB: the tablespace is gone".to_owned(),
    ] {
        let back = cluster.server(0, tables.clone(), Some(&says));
        assert_eq!(back.connect("gcomm://", true), Code::NodeFail, "{says}");
        let advice = "remove grastate.dat and start it again";
        let told = |(level, text): &(Level, String)| *level == Level::Error && text.contains(advice);
        assert!(back.lock().log.iter().any(told), "{says}: {:#?}", back.lock().log);
        back.stop();
    }
    // In the same history, once the engine answers.
    let mut back = cluster.server(0, tables.clone(), None);
    assert_eq!(back.connect("gcomm://", true), Code::Ok, "{:#?}", back.lock().log);
    back.serve(1);
    back.wait("synced", |s| s.synced == 1);
    assert_eq!(back.commit("a", "two"), tables.position() + 2);
    let tables = back.stop();
    // The operator follows the advice.
    fs::remove_file(cluster.sites[0].dir.join("grastate.dat")).unwrap();
    let says = format!("WSREP: Recovered position: {nobody}:-1");
    let mut anew = cluster.server(0, tables.clone(), Some(&says));
    assert_eq!(anew.connect("gcomm://", true), Code::Ok, "{:#?}", anew.lock().log);
    anew.serve(1);
    anew.wait("synced", |s| s.synced == 1);
    assert_ne!(anew.lock().tables.history, tables.history);
    anew.stop();
}
