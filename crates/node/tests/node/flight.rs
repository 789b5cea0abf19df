//! The flight recorder's file tells what happened. Each kind of record has a test that brings it about, see
//! [`every_kind_is_recorded_by_one_of_these`].

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;

use trireme_flight::{Event, FILE_NAME, Lane, Reading, Record, Timeline, event};
use trireme_node::{Code, StatValue};

use crate::cluster::{Cluster, Host, abort_behind, agree, block, give_way, kill};
use crate::fake::{End, State, until};
use crate::metrics::sequencer;

fn read(dir: &Path) -> Vec<Record> {
    std::fs::read(dir.join(FILE_NAME)).ok().and_then(|bytes| Reading::decode(&bytes).ok()).map_or(vec![], |r| r.records)
}

fn has(dir: &Path, wanted: impl Fn(&Event) -> bool) -> bool {
    read(dir).iter().any(|record| wanted(&record.event))
}

/// The files of these nodes hold a record of each kind, all of them together.
#[track_caller]
pub fn recorded(dirs: &[impl AsRef<Path>], kinds: &[&str]) {
    for kind in kinds {
        let one = |dir: &Path| has(dir, |event| event.word() == *kind);
        until(&format!("a record of {kind}"), || dirs.iter().any(|dir| one(dir.as_ref())));
    }
}

fn set(host: &Host, options: &str) {
    assert_eq!(host.node().options_set(options), Code::Ok, "{options}");
}

const BY_A_START: &[&str] = &["started", "connecting", "link-up", "view", "term", "synced"];
const BY_TAKING_A_COPY: &[&str] = &["asks-for-state", "state-received"];
const BY_GIVING_A_COPY: &[&str] = &["donates", "donated"];
const BY_A_STOP: &[&str] = &["left", "stopped"];

#[test]
fn a_start_a_full_copy_and_a_stop() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    let dirs = [&*cluster.sites[0].dir, &*cluster.sites[1].dir];
    recorded(&dirs[..1], BY_GIVING_A_COPY);
    recorded(&dirs[1..], BY_TAKING_A_COPY);
    recorded(&dirs[1..], BY_A_START);
    agree(hosts);
    recorded(&dirs[..1], BY_A_STOP);
}

const BY_A_RETURN: &[&str] = &["catches-up", "caught-up"];

#[test]
fn a_return_by_the_log() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    let tables = hosts.pop().unwrap().stop();
    hosts[0].wait("two left", |s| s.size() == 2);
    for n in 0..20 {
        hosts[0].commit("a", &format!("{n}"));
    }
    let back = cluster.rejoin(2, tables);
    back.is_synced_without_a_copy();
    recorded(&[&cluster.sites[2].dir], BY_A_RETURN);
    hosts.push(back);
    agree(hosts);
}

const BY_BEING_CUT_OFF: &[&str] = &["option", "link-down", "non-primary"];
/// On those who are left.
const BY_AN_ELECTION: &[&str] = &["stands", "voted"];

#[test]
fn a_sequencer_that_is_cut_off_and_the_election_without_it() {
    let cluster = Cluster::new(3);
    let hosts = cluster.start();
    let dirs: Vec<&Path> = cluster.sites.iter().map(|site| &*site.dir).collect();
    let first = sequencer(&dirs);
    let others: Vec<&Path> = (0..3).filter(|site| *site != first).map(|site| dirs[site]).collect();
    set(&hosts[first], "gmcast.isolate=1");
    recorded(&[dirs[first]], BY_BEING_CUT_OFF);
    recorded(&others, BY_AN_ELECTION);
    set(&hosts[first], "gmcast.isolate=0");
    hosts.iter().for_each(|host| host.wait("all in", |s| s.size() == 3));
    agree(hosts);
}

const BY_AN_EVICTION: &[&str] = &["evicted", "error"];

#[test]
fn a_node_that_is_thrown_out() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    let third = hosts.pop().unwrap();
    let StatValue::Text(uuid) = third.stat("gcomm_uuid") else { panic!("no text") };
    set(&hosts[1], &format!("evs.evict={uuid}"));
    third.wait("the final view", |s| s.finals == 1);
    recorded(&[&cluster.sites[2].dir], BY_AN_EVICTION);
    third.stop();
    agree(hosts);
}

const BY_A_CONFLICT: &[&str] = &["conflict"];
const BY_GIVING_WAY: &[&str] = &["aborted"];

#[test]
fn a_conflict_and_a_transaction_that_gives_way() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    let dir = &*cluster.sites[1].dir;
    let go = abort_behind(&hosts[1], b"remote");
    let remote = hosts[0].commit("r", "remote");
    until("it to be applied", || hosts[1].lock().is_applying());
    // It was certified before, and is not applied yet: who has not seen it loses.
    let late = {
        let fake = hosts[1].fake.clone();
        thread::spawn(move || fake.run("r", "late"))
    };
    recorded(&[dir], BY_A_CONFLICT);
    let lost = read(dir).into_iter().find_map(|record| match record.event {
        Event::Conflict { with, key, .. } => Some((with.0, key != 0)),
        _ => None,
    });
    assert_eq!(lost, Some((remote, true)));
    let End::Replayed(last) = give_way(&hosts[1], &go) else { panic!("it gave way") };
    assert!(matches!(late.join().unwrap(), End::Conflict(_)));
    recorded(&[dir], BY_GIVING_WAY);
    hosts[0].reach(last);
    agree(hosts);
}

const BY_AN_APPLIER_THAT_STANDS: &[&str] = &["applies-nothing"];
const BY_ITS_END: &[&str] = &["applies-again", "slow-commit"];

#[test]
fn an_applier_that_stands_and_the_commit_that_waits_behind_it() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    let dir = &*cluster.sites[1].dir;
    let release = block(&hosts[1]);
    let remote = hosts[0].commit("r", "remote");
    until("it to be applied", || hosts[1].lock().is_applying());
    let local = hosts[1].fake.clone();
    let client = thread::spawn(move || local.run("l", "local"));
    recorded(&[dir], BY_AN_APPLIER_THAT_STANDS);
    drop(release);
    assert_eq!(client.join().unwrap(), End::Committed(remote + 1));
    recorded(&[dir], BY_ITS_END);
    assert!(has(dir, |event| matches!(event, Event::SlowCommit { wait, total, .. } if *wait * 2 > *total)));
    agree(hosts);
}

const BY_BEING_SLOW: &[&str] = &["asks-to-stop", "gave-up"];
const BY_WAITING_FOR_IT: &[&str] = &["slowed-by", "held-back", "unslowed"];

#[test]
fn a_node_that_is_waited_for_and_gives_up() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    // Longer than the time between two looks.
    set(&hosts[1], "gcs.fc_limit=1; gcs.fc_patience=PT4S");
    let release = block(&hosts[1]);
    let writer = {
        let fake = hosts[0].fake.clone();
        thread::spawn(move || (0..50).map(|i| fake.commit(&format!("{i}"), &format!("{i}"))).max())
    };
    recorded(&[&cluster.sites[1].dir], BY_BEING_SLOW);
    recorded(&[&cluster.sites[0].dir], BY_WAITING_FOR_IT);
    drop(release);
    writer.join().unwrap();
    agree(hosts);
}

const BY_A_VOTE: &[&str] = &["vote-begun", "vote-cast", "vote-done"];
const BY_LOSING_IT: &[&str] = &["inconsistent"];

#[test]
fn a_vote_and_the_node_that_loses_it() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    let third = hosts.pop().unwrap();
    third.lock().failing.insert(b"bad".to_vec(), b" Can't find record, Error_code: 1032;\0".to_vec());
    hosts[0].commit("a", "bad");
    third.wait("the final view", |s| s.finals == 1);
    recorded(&[&cluster.sites[2].dir], BY_LOSING_IT);
    for site in &cluster.sites {
        recorded(&[&site.dir], BY_A_VOTE);
    }
    let mut third = third;
    third.disconnect();
    third.node().close();
    agree(hosts);
}

const BY_A_MODE: &[&str] = &["durability"];
const BY_STRANGERS: &[&str] = &["refused", "warned"];
const BY_A_STORM: &[&str] = &["more"];

#[test]
fn a_mode_a_stranger_and_more_aborts_than_are_told() {
    let cluster = Cluster::new(1);
    let host = cluster.bootstrap();
    let dir = &*cluster.sites[0].dir;
    set(&host, "repl.durability=process");
    recorded(&[dir], BY_A_MODE);
    let mut stranger = TcpStream::connect(&cluster.sites[0].address).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let _ = stranger.read_to_end(&mut Vec::new());
    recorded(&[dir], BY_STRANGERS);
    let mut victim = host.begin("a", "victim");
    for _ in 0..100 {
        assert_eq!(host.node().abort_certification(None, victim.trx), (Code::Ok, None));
    }
    recorded(&[dir], BY_A_STORM);
    assert_eq!(host.node().release(&mut victim), Code::Ok);
    host.stop();
}

/// In [`crate::metrics`]: on the sequencer, and on the member whose thread stands.
pub const BY_SILENCE: &[&str] = &["silent", "heard"];
pub const BY_STANDING: &[&str] = &["group-late"];
pub const BY_AN_OPEN_OUTCOME: &[&str] = &["unknown-outcome"];
/// In [`crate::panics`], for each thread.
pub const BY_A_PANIC: &[&str] = &["panicked"];
/// In [`crate::outage`].
pub const BY_A_BROKEN_LOG: &[&str] = &["log-failed", "log-works"];
/// Kinds that cannot be had here without another clock, disk or process: the tests of these files have it.
const ELSEWHERE: &[(&str, &str)] = &[
    ("stood-still", "crates/node/src/flight.rs"),
    ("clock-set", "crates/node/src/flight.rs"),
    ("slow-sync", "crates/node/src/flight.rs"),
    ("sync-hangs", "crates/node/src/flight.rs"),
    ("dropped", "crates/flight/src/keeper.rs"),
];

#[test]
fn every_kind_is_recorded_by_one_of_these() {
    let lists = [
        BY_A_START,
        BY_TAKING_A_COPY,
        BY_GIVING_A_COPY,
        BY_A_STOP,
        BY_A_RETURN,
        BY_BEING_CUT_OFF,
        BY_AN_ELECTION,
        BY_AN_EVICTION,
        BY_A_CONFLICT,
        BY_GIVING_WAY,
        BY_AN_APPLIER_THAT_STANDS,
        BY_ITS_END,
        BY_BEING_SLOW,
        BY_WAITING_FOR_IT,
        BY_A_VOTE,
        BY_LOSING_IT,
        BY_A_MODE,
        BY_STRANGERS,
        BY_A_STORM,
        BY_SILENCE,
        BY_STANDING,
        BY_AN_OPEN_OUTCOME,
        BY_A_PANIC,
        BY_A_BROKEN_LOG,
    ];
    let mut recorded: BTreeSet<&str> = lists.concat().into_iter().collect();
    for (kind, file) in ELSEWHERE {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
        let tests = text.split_once("mod tests {").unwrap_or_else(|| panic!("{file} has no tests")).1;
        assert!(tests.contains(&format!("\"{kind}\"")), "{file} has no test for {kind}");
        recorded.insert(kind);
    }
    let known: BTreeSet<&str> = event::kinds().iter().map(|(_, kind, _)| *kind).collect();
    assert_eq!(recorded, known);
}

#[test]
fn what_happened_is_told_after_the_death_of_the_process() {
    let cluster = Cluster::new(3);
    let hosts = cluster.start();
    let dirs: Vec<_> = cluster.sites.iter().map(|site| site.dir.clone()).collect();
    for (dir, site) in dirs.iter().zip(&cluster.sites) {
        until("a start", || has(dir, |e| matches!(e, Event::Started { name, .. } if *name == site.name)));
        until("a view of three", || has(dir, |e| matches!(e, Event::View { members, .. } if members.len() == 3)));
        until("a sequencer", || has(dir, |e| matches!(e, Event::Term { sequencer } if !sequencer.is_empty())));
        until("links", || read(dir).iter().filter(|r| matches!(r.event, Event::LinkUp { .. })).count() >= 2);
    }
    // A conflict: the second has not seen the first.
    let mut first = hosts[0].begin("k", "first");
    let mut second = hosts[1].begin("k", "second");
    let answer = hosts[0].certify(&mut first);
    let lost = hosts[1].certify(&mut second);
    assert!(matches!(hosts[0].conclude(first, answer, "first"), End::Committed(_)));
    if lost.0 == Code::TrxFail {
        until("the conflict", || {
            has(&dirs[1], |e| matches!(e, Event::Conflict { with, key, .. } if with.0 > 0 && *key != 0))
        });
    }
    hosts[1].conclude(second, lost, "second");
    let mode = Event::Option { name: "evs.suspect_timeout".into(), value: "PT2S".into() };
    assert_eq!(hosts[0].node().options_set("evs.suspect_timeout=PT2S"), Code::Ok);
    until("an option", || has(&dirs[0], |e| *e == mode));
    // Nobody stops in order.
    kill(&cluster.sites, hosts);
    let lanes: Vec<Lane> =
        dirs.iter().map(|dir| Lane { name: dir.display().to_string(), records: read(dir) }).collect();
    let timeline = Timeline::of(&lanes);
    assert!(timeline.order.len() > 20);
    // One clock: whatever the order of looking was, the views tell that they agree.
    let off = timeline.clocks.iter().filter_map(|clock| match clock {
        trireme_flight::timeline::Clock::Ahead { ns, entries } => Some((ns.unsigned_abs(), *entries)),
        _ => None,
    });
    for (ns, entries) in off {
        assert!(ns < 5_000_000_000 && entries > 0, "{ns} {entries}");
    }
}

#[test]
fn a_stop_in_order_is_the_last_word_and_a_restart_goes_on() {
    let cluster = Cluster::new(1);
    let dir = &cluster.sites[0].dir;
    let tables = cluster.bootstrap().stop();
    let first = read(dir);
    assert_eq!(first.last().map(|record| &record.event), Some(&Event::Stopped {}));
    cluster.allow_bootstrap(0);
    let host = cluster.host(0, tables, None, "");
    until("the next start", || read(dir).len() > first.len());
    let second = read(dir);
    assert_eq!(second[..first.len()], first);
    assert!(matches!(second[first.len()].event, Event::Started { .. }));
    host.stop();
}

#[test]
fn without_a_size_there_is_no_file() {
    let cluster = Cluster::new(1);
    let host = cluster.host(0, Default::default(), None, "repl.flight_size=0");
    host.stop();
    assert!(!cluster.sites[0].dir.join(FILE_NAME).exists());
}

/// The node goes on, and says so.
#[test]
fn a_panic_of_the_recorder_costs_the_record_only() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    let fake = hosts[0].fake.clone();
    let told = |s: &State| s.log.iter().filter(|(_, text)| text.starts_with("the flight recorder ended")).count();
    hosts[0].node().panic_in("trireme-flight");
    hosts[0].wait("says so", |s| told(s) > 0);
    hosts[0].commit("a", "goes on");
    agree(hosts);
    assert_eq!(told(&fake.lock()), 1);
}

/// A file in the place of its directory, as a disk that takes nothing would be.
#[test]
fn a_disk_that_takes_nothing_is_told_of_once_and_stops_nobody() {
    let cluster = Cluster::new(1);
    std::fs::create_dir(cluster.sites[0].dir.join("trireme.flight.tmp.galera.cache")).unwrap();
    let host = cluster.bootstrap();
    let told = |text: &str| text.starts_with("the flight recorder cannot write");
    host.wait("says so", |s| s.log.iter().any(|(_, text)| told(text)));
    for n in 0..20 {
        host.commit("a", &n.to_string());
    }
    assert_eq!(host.lock().log.iter().filter(|(_, text)| told(text)).count(), 1);
    host.stop();
}
