//! What the flight recorder's file says of what happened.

use std::path::Path;

use trireme_flight::{Event, FILE_NAME, Lane, Reading, Record, Timeline};
use trireme_node::Code;

use crate::cluster::{Cluster, agree, kill};
use crate::fake::{End, until};

fn read(dir: &Path) -> Vec<Record> {
    std::fs::read(dir.join(FILE_NAME)).ok().and_then(|bytes| Reading::decode(&bytes).ok()).map_or(vec![], |r| r.records)
}

fn has(dir: &Path, wanted: impl Fn(&Event) -> bool) -> bool {
    read(dir).iter().any(|record| wanted(&record.event))
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
    hosts[0].node().panic_in("trireme-flight");
    hosts[0].wait("says so", |s| s.log.iter().any(|(_, text)| text.starts_with("the flight recorder ended")));
    hosts[0].commit("a", "goes on");
    agree(hosts);
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
