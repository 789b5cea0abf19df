//! The measurements of a node, and the file by which it tells them. Each metric has a test here that moves it.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use trireme_metrics::names::{self, METRICS};
use trireme_metrics::state::{FILE_NAME, State};
use trireme_node::{Code, StatValue};

use crate::cluster::{Cluster, Host, abort_behind, agree, block, give_way, write_much};
use crate::fake::{End, until};
use crate::flight::{BY_AN_OPEN_OUTCOME, BY_SILENCE, BY_STANDING, recorded};

/// The newest whole content.
fn read(dir: &Path) -> Option<State> {
    State::decode(&std::fs::read(dir.join(FILE_NAME)).ok()?).ok()
}

/// Of all labels together: the sum of numbers, the samples of histograms.
fn value(state: &State, name: &str) -> Option<f64> {
    let is = |full: &str| full.split('{').next() == Some(name);
    let numbers = state.numbers.iter().filter(|(full, _)| is(full)).map(|(_, number)| *number);
    let samples = state.histograms.iter().filter(|(full, _)| is(full)).map(|(_, times)| times.count() as f64);
    numbers.chain(samples).reduce(|sum, more| sum + more)
}

fn metric(dir: &Path, name: &str) -> Option<f64> {
    read(dir).and_then(|state| value(&state, name))
}

/// Place of the node that orders.
pub fn sequencer(dirs: &[&Path]) -> usize {
    let mut first = None;
    until("a sequencer", || {
        first = dirs.iter().position(|dir| metric(dir, "trireme_is_sequencer") == Some(1.0));
        first.is_some()
    });
    first.unwrap()
}

/// All that a node told before something happened.
struct Before<'a> {
    dir: &'a Path,
    state: State,
}

impl<'a> Before<'a> {
    /// Once it tells everything that it knows of its group.
    fn of(dir: &'a Path) -> Before<'a> {
        let mut state = None;
        until("the state file to tell of the group", || {
            state = read(dir).filter(|state| state.number("trireme_term").is_some());
            state.is_some()
        });
        Before { dir, state: state.unwrap() }
    }

    #[track_caller]
    fn have_moved(&self, names: &[&str]) {
        for name in names {
            until(name, || metric(self.dir, name) != value(&self.state, name));
        }
    }
}

fn set(host: &Host, options: &str) {
    assert_eq!(host.node().options_set(options), Code::Ok, "{options}");
}

const BY_COMMITS: &[&str] = &[
    "trireme_commit_seconds",
    "trireme_log_sync_seconds",
    "trireme_log_sync_longest_seconds",
    "trireme_commits_total",
    "trireme_write_sets_sent_total",
    "trireme_write_sets_sent_bytes_total",
    "trireme_write_sets_received_total",
    "trireme_write_sets_received_bytes_total",
    "trireme_last_committed_seqno",
    "trireme_delivered_seqno",
    "trireme_log_last_index",
    "trireme_log_durable_index",
    "trireme_log_committed_index",
    "trireme_certification_keys",
];
const BY_APPLYING: &[&str] = &["trireme_apply_seconds", "trireme_apply_lag_seconds"];
const BY_A_READ: &[&str] = &["trireme_causal_read_seconds", "trireme_causal_reads_total"];
const BY_TIME: &[&str] = &[
    "trireme_group_thread_delay_seconds",
    "trireme_group_thread_silent_seconds",
    "trireme_peer_round_trip_seconds",
    "trireme_peer_round_trip_latest_seconds",
];

#[test]
fn commits_move_the_metrics_and_the_state_file_tells_them() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    let dirs = [&*cluster.sites[0].dir, &*cluster.sites[1].dir];
    let before = dirs.map(Before::of);
    for n in 0..20 {
        hosts[0].commit("a", &format!("{n}"));
    }
    hosts[1].node().sync_wait(None, trireme_node::Wait::Default);
    before[0].have_moved(BY_COMMITS);
    before[1].have_moved(BY_APPLYING);
    before[1].have_moved(BY_A_READ);
    before.iter().for_each(|before| before.have_moved(BY_TIME));
    let count = |site: usize, name: &str| {
        read(dirs[site]).and_then(|state| Some(state.histograms.get(name)?.count())).unwrap_or(0)
    };
    for stage in ["send", "order", "wait", "engine", "total"] {
        let name = format!("trireme_commit_seconds{{stage=\"{stage}\"}}");
        until("the stages of 20 commits", || count(0, &name) >= 20);
        assert_eq!(count(1, &name), 0, "{name} of a node without clients");
    }
    until("applied", || count(1, "trireme_apply_seconds") >= 20);
    let number = |site: usize, name: &str| read(dirs[site]).and_then(|state| state.number(name));
    until("levels", || number(0, "trireme_status") == Some(0.0) && number(0, "trireme_has_sequencer") == Some(1.0));
    assert_eq!(number(0, "trireme_commits_total"), Some(20.0));
    assert_eq!(number(0, "trireme_is_sequencer").unwrap() + number(1, "trireme_is_sequencer").unwrap(), 1.0);
    for (site, peer) in ["n2", "n1"].into_iter().enumerate() {
        assert!(count(site, &format!("trireme_peer_round_trip_seconds{{peer=\"{peer}\"}}")) > 0);
        let latest = number(site, &format!("trireme_peer_round_trip_latest_seconds{{peer=\"{peer}\"}}"));
        assert!(latest.is_some_and(|seconds| seconds > 0.0), "{latest:?}");
        set(&hosts[site], "repl.status_extended=yes");
        let StatValue::Text(told) = hosts[site].stat("trireme_round_trips") else { panic!("no text") };
        assert!(told.starts_with(&format!("{peer}:0.")) || told.starts_with(&format!("{peer}:1.")), "{told}");
    }
    // Every name is in the table.
    let state = read(dirs[0]).unwrap();
    for name in state.numbers.keys().chain(state.histograms.keys()) {
        let bare = name.split('{').next().unwrap();
        assert!(names::find(bare).is_some(), "{bare} is not described");
    }
    // And so are those that the server shows.
    let StatValue::Text(latency) = hosts[0].stat("evs_repl_latency") else { panic!("no text") };
    let parts: Vec<f64> = latency.split('/').map(|part| part.parse().unwrap()).collect();
    assert!(parts.len() == 5 && 0.0 < parts[0] && parts[0] <= parts[1] && parts[1] <= parts[2], "{latency}");
    assert_eq!(parts[4], 20.0);
    let window = |name: &str| match hosts[1].stat(name) {
        StatValue::Double(value) => value,
        other => panic!("{name}: {other:?}"),
    };
    assert!(window("apply_window") >= 1.0 && window("commit_window") >= 1.0);
    agree(hosts);
    until("closed", || read(dirs[0]).is_some_and(|state| state.closed));
}

const BY_A_SLOW_NODE: &[&str] = &[
    "trireme_flow_control_seconds_total",
    "trireme_flow_control_stops_received_total",
    "trireme_flow_control_rate",
    "trireme_flow_control_backlog",
    "trireme_flow_control_paused",
    "trireme_send_queue",
];
/// Of itself.
const BY_BEING_SLOW: &[&str] = &["trireme_flow_control_stops_sent_total", "trireme_apply_queue"];

#[test]
fn a_node_that_applies_nothing_is_told_of_by_itself_and_by_those_who_wait() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    let dirs = [&*cluster.sites[0].dir, &*cluster.sites[1].dir];
    set(&hosts[1], "gcs.fc_limit=1; gcs.fc_patience=PT0S");
    let before = dirs.map(Before::of);
    let release = block(&hosts[1]);
    let writer = {
        let fake = hosts[0].fake.clone();
        thread::spawn(move || (0..50).map(|i| fake.commit(&format!("{i}"), &format!("{i}"))).max())
    };
    before[0].have_moved(BY_A_SLOW_NODE);
    before[1].have_moved(BY_BEING_SLOW);
    let by = "trireme_flow_control_seconds_total{by=\"n2\",reason=\"stands\"}";
    until("the one that stands to be named", || {
        read(dirs[0]).and_then(|state| state.number(by)).is_some_and(|seconds| seconds > 0.0)
    });
    drop(release);
    writer.join().unwrap();
    agree(hosts);
}

const BY_LOSING: &[&str] = &["trireme_open_transactions", "trireme_certification_failures_total"];

#[test]
fn conflicts_are_counted() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    let before = Before::of(&cluster.sites[1].dir);
    let release = block(&hosts[1]);
    let first = hosts[0].commit("k", "first");
    // Not before it was delivered there, and while it is not applied.
    until("it to be delivered", || metric(&cluster.sites[1].dir, "trireme_delivered_seqno") == Some(first as f64));
    let late = {
        let fake = hosts[1].fake.clone();
        thread::spawn(move || fake.run("k", "late"))
    };
    before.have_moved(BY_LOSING);
    drop(release);
    assert!(matches!(late.join().unwrap(), End::Conflict(_)));
    agree(hosts);
}

const BY_GIVING_UP: &[&str] = &["trireme_flow_control_gave_up"];

#[test]
fn a_node_that_gives_up_says_so() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    set(&hosts[1], "gcs.fc_limit=1; gcs.fc_patience=PT1S");
    let before = Before::of(&cluster.sites[1].dir);
    let release = block(&hosts[1]);
    for n in 0..20 {
        hosts[0].commit(&format!("{n}"), "row");
    }
    before.have_moved(BY_GIVING_UP);
    let held = "trireme_commit_seconds{stage=\"hold\"}";
    until("the stage of what was held", || {
        read(&cluster.sites[0].dir).and_then(|state| Some(state.histograms.get(held)?.count())).is_some_and(|n| n > 0)
    });
    drop(release);
    agree(hosts);
}

const BY_A_REPLAY: &[&str] = &["trireme_replays_total"];

#[test]
fn replays_are_counted() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    let before = Before::of(&cluster.sites[1].dir);
    let go = abort_behind(&hosts[1], b"remote");
    let remote = hosts[0].commit("r", "remote");
    until("it to be applied", || hosts[1].lock().is_applying());
    assert_eq!(give_way(&hosts[1], &go), End::Replayed(remote + 1));
    before.have_moved(BY_A_REPLAY);
    hosts[0].reach(remote + 1);
    agree(hosts);
}

/// On the one that is cut off, which was the sequencer.
const BY_BEING_CUT_OFF: &[&str] = &[
    "trireme_status",
    "trireme_primary",
    "trireme_local_state",
    "trireme_is_sequencer",
    "trireme_has_sequencer",
    "trireme_cluster_size",
];
/// On the others.
const BY_AN_ELECTION: &[&str] = &["trireme_term", "trireme_term_changes_total"];

#[test]
fn a_sequencer_that_is_cut_off_and_the_election_without_it() {
    let cluster = Cluster::new(3);
    let hosts = cluster.start();
    let dirs: Vec<&Path> = cluster.sites.iter().map(|site| &*site.dir).collect();
    let before: Vec<Before<'_>> = dirs.iter().map(|dir| Before::of(dir)).collect();
    let first = sequencer(&dirs);
    let other = (first + 1) % 3;
    set(&hosts[first], "gmcast.isolate=1");
    before[first].have_moved(BY_BEING_CUT_OFF);
    before[other].have_moved(BY_AN_ELECTION);
    // `trireme events` finds it: one line for the term, with the name of who orders now.
    let told = || -> Vec<String> {
        let lines = hosts[other].lock().log.clone();
        lines
            .into_iter()
            .map(|(_, text)| text)
            .filter(|text| text.starts_with("term ") && text.contains(", sequencer "))
            .collect()
    };
    until("the new term in the log", || told().len() > 1);
    let mut terms: Vec<String> = told().iter().map(|line| line.split(',').next().unwrap().to_owned()).collect();
    let count = terms.len();
    terms.dedup();
    assert_eq!(terms.len(), count, "a term is told once: {:?}", told());
    until("the log to name who orders", || {
        let state = read(dirs[other]);
        let name = state.as_ref().and_then(|state| state.text("sequencer")).filter(|name| !name.is_empty());
        name.is_some_and(|name| told().last().unwrap().ends_with(&format!("sequencer {name}")))
    });
    set(&hosts[first], "gmcast.isolate=0");
    hosts.iter().for_each(|host| host.wait("all in", |s| s.size() == 3));
    agree(hosts);
}

/// On the sequencer, which judges the others.
const BY_A_SILENCE: &[&str] = &["trireme_member_silent", "trireme_silences_total"];

/// As in a process that is frozen. A link that ends is no silence.
#[test]
fn a_member_whose_thread_stands_is_silent() {
    let cluster = Cluster::new(3);
    let hosts = cluster.start();
    let dirs: Vec<&Path> = cluster.sites.iter().map(|site| &*site.dir).collect();
    // It is in the view for as long as this takes.
    hosts.iter().for_each(|host| set(host, "evs.inactive_timeout=PT30S; evs.suspect_timeout=PT20S"));
    let first = sequencer(&dirs);
    let silent = (first + 1) % 3;
    let before = Before::of(dirs[first]);
    hosts[silent].node().stall_in("trireme-group", true);
    before.have_moved(BY_A_SILENCE);
    let name = format!("trireme_member_silent{{member=\"{}\"}}", cluster.sites[silent].name);
    let told = || read(dirs[first]).and_then(|state| state.number(&name));
    until("it to be named", || told() == Some(1.0));
    until("its own file to tell how long its thread has stood", || {
        metric(dirs[silent], "trireme_group_thread_silent_seconds").is_some_and(|seconds| seconds > 0.5)
    });
    hosts[silent].node().stall_in("trireme-group", false);
    until("it to be heard", || told() == Some(0.0));
    recorded(&[dirs[first]], BY_SILENCE);
    recorded(&[dirs[silent]], BY_STANDING);
    agree(hosts);
}

const BY_OPTIONS: &[&str] = &["trireme_durability_disk", "trireme_voter_weight"];
const BY_STRANGERS: &[&str] = &["trireme_connections_refused_total"];

#[test]
fn options_and_strangers() {
    let cluster = Cluster::new(1);
    let host = cluster.bootstrap();
    let before = Before::of(&cluster.sites[0].dir);
    set(&host, "repl.durability=process");
    set(&host, "pc.weight=3");
    before.have_moved(BY_OPTIONS);
    let mut stranger = TcpStream::connect(&cluster.sites[0].address).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let _ = stranger.read_to_end(&mut Vec::new());
    before.have_moved(BY_STRANGERS);
    host.stop();
}

const BY_MUCH: &[&str] = &["trireme_log_bytes", "trireme_log_first_index"];
/// It is what the options say.
const BOUND: &str = "trireme_log_max_bytes";

#[test]
fn a_log_grows_to_its_bound_and_is_trimmed() {
    let cluster = Cluster::new(1);
    let mut host = cluster.host(0, Default::default(), None, "gcache.size=2M");
    assert_eq!(host.connect(&cluster.url(), true), Code::Ok);
    host.serve(2);
    let dir = &*cluster.sites[0].dir;
    let before = Before::of(dir);
    assert_eq!(metric(dir, BOUND), Some(f64::from(2 << 20)));
    write_much(&host, 6 << 20);
    before.have_moved(BY_MUCH);
    host.stop();
}

const BY_A_STOP_IN_THE_MIDDLE: &[&str] = &["trireme_unknown_outcomes_total"];

#[test]
fn an_outcome_that_is_left_open_is_counted() {
    let cluster = Cluster::new(2);
    let mut hosts = cluster.start();
    let dirs: Vec<&Path> = cluster.sites.iter().map(|site| &*site.dir).collect();
    let before: Vec<Before<'_>> = dirs.iter().map(|dir| Before::of(dir)).collect();
    let first = dirs.iter().position(|dir| metric(dir, "trireme_is_sequencer") == Some(1.0)).unwrap();
    let writer = loop {
        let (tell, told) = mpsc::channel();
        let fake = hosts[first].fake.clone();
        let writer = thread::spawn(move || {
            let failed = (0..).find_map(|n| match fake.run(&format!("{n}"), "row") {
                End::Committed(_) | End::Replayed(_) => None,
                End::Conflict(_) => unreachable!("nobody else writes"),
                End::Failed(code) => Some(code),
            });
            let _ = tell.send(());
            failed
        });
        set(&hosts[1 - first], "gmcast.isolate=1");
        until("the majority to be lost", || metric(dirs[first], "trireme_primary") == Some(0.0));
        // One that has an answer was between two write sets just then.
        if told.recv_timeout(Duration::from_secs(1)).is_err() {
            break writer;
        }
        assert_eq!(writer.join().unwrap(), Some(Code::ConnFail));
        set(&hosts[1 - first], "gmcast.isolate=0");
        until("the majority to be back", || dirs.iter().all(|dir| metric(dir, "trireme_primary") == Some(1.0)));
    };
    hosts[first].disconnect();
    assert_eq!(writer.join().unwrap(), Some(Code::NodeFail));
    before[first].have_moved(BY_A_STOP_IN_THE_MIDDLE);
    recorded(&[dirs[first]], BY_AN_OPEN_OUTCOME);
    hosts.into_iter().for_each(|host| drop(host.stop()));
}

#[test]
fn every_metric_is_moved_by_one_of_these() {
    let lists = [
        BY_COMMITS,
        BY_APPLYING,
        BY_A_READ,
        BY_TIME,
        BY_A_SLOW_NODE,
        BY_BEING_SLOW,
        BY_LOSING,
        BY_GIVING_UP,
        BY_A_REPLAY,
        BY_BEING_CUT_OFF,
        BY_AN_ELECTION,
        BY_A_SILENCE,
        BY_OPTIONS,
        BY_STRANGERS,
        BY_MUCH,
        &[BOUND],
        BY_A_STOP_IN_THE_MIDDLE,
    ];
    let moved: BTreeSet<&str> = lists.concat().into_iter().collect();
    let known: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(moved, known);
}

#[test]
fn without_metrics_there_is_no_state_file_and_the_recorder_goes_on() {
    let cluster = Cluster::new(1);
    let file = cluster.sites[0].dir.join(FILE_NAME);
    std::fs::write(&file, "of an earlier start").unwrap();
    let mut host = cluster.host(0, Default::default(), None, "repl.metrics=no");
    assert_eq!(host.connect(&cluster.url(), true), Code::Ok);
    host.serve(2);
    host.commit("a", "b");
    until("the old file to be gone", || !file.exists());
    assert_eq!(host.stat("evs_repl_latency"), StatValue::Text("0/0/0/0/0".to_owned()));
    assert_eq!(host.int("local_commits"), 1);
    host.stop();
    assert!(!file.exists());
    assert!(cluster.sites[0].dir.join(trireme_flight::FILE_NAME).exists());
}
