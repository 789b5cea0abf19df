//! Flow control: who cannot keep up slows the others, and never for ever.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use trireme_node::{Code, StatValue, TrxId};

use crate::cluster::{Cluster, Host, agree, block};
use crate::fake::{End, Hook, Tables, until};

fn set(host: &Host, options: &str) {
    assert_eq!(host.node().options_set(options), Code::Ok);
}

fn flag(host: &Host, name: &str) -> bool {
    match host.stat(name) {
        StatValue::Text(text) => text == "true",
        other => panic!("{name}: {other:?}"),
    }
}

fn paused(host: &Host) -> f64 {
    match host.stat("flow_control_paused") {
        StatValue::Double(part) => part,
        other => panic!("{other:?}"),
    }
}

fn paused_for(host: &Host) -> Duration {
    Duration::from_nanos(host.int("flow_control_paused_ns") as u64)
}

#[test]
fn the_interval_is_told_and_follows_the_options() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    let told = |host: &Host, interval: &'static str| {
        let line = format!("Flow-control interval: {interval}");
        host.wait(interval, |s| s.log.iter().any(|(_, text)| *text == line));
    };
    told(&hosts[0], "[16, 16]");
    told(&hosts[0], "[23, 23]");
    set(&hosts[0], "gcs.fc_factor=0.5");
    told(&hosts[0], "[12, 23]");
    set(&hosts[0], "gcs.fc_limit=1");
    told(&hosts[0], "[1, 1]");
    agree(hosts);
}

#[test]
fn writers_wait_for_a_node_that_cannot_keep_up() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    set(&hosts[1], "gcs.fc_limit=1; gcs.fc_patience=PT0S");
    let release = block(&hosts[1]);
    hosts[0].node().stats_reset();
    let writer = {
        let fake = hosts[0].fake.clone();
        thread::spawn(move || (0..50).map(|i| fake.commit(&format!("{i}"), &format!("{i}"))).max())
    };
    until("a writer to be held back", || hosts[0].int("local_send_queue") == 1);
    let ddl = {
        let fake = hosts[0].fake.clone();
        thread::spawn(move || fake.toi(9, "t", "alter", b"").unwrap())
    };
    until("the statement to be held back", || hosts[0].int("local_send_queue") == 2);
    assert!(flag(&hosts[0], "flow_control_active"));
    assert!(flag(&hosts[1], "flow_control_active") && flag(&hosts[1], "flow_control_requested"));
    assert!(!flag(&hosts[0], "flow_control_requested"));
    assert!(paused(&hosts[0]) > 0.0);
    // The permitted rate follows what node 1 applied lately, so a few may pass before it is zero. Then nothing passes, for
    // longer than a stop is in force without being repeated.
    let look = || (hosts[0].lock().tables.position(), paused_for(&hosts[0]));
    let (mut at, mut since) = look();
    until("a pause in which nothing passes", || {
        let (position, now) = look();
        if position != at {
            (at, since) = (position, now);
        }
        now - since > Duration::from_millis(1500)
    });
    assert_eq!(hosts[0].int("local_send_queue"), 2);
    drop(release);
    let last = writer.join().unwrap().unwrap().max(ddl.join().unwrap());
    hosts[1].reach(last);
    until("the end of the pause", || {
        !flag(&hosts[0], "flow_control_active") && !flag(&hosts[1], "flow_control_requested")
    });
    let (sent, received) = (hosts[1].int("flow_control_sent"), hosts[0].int("flow_control_recv"));
    assert!(sent >= 1 && received >= 1, "{sent} sent, {received} received");
    assert_eq!(hosts[0].int("flow_control_sent"), 0);
    let total = paused_for(&hosts[0]);
    hosts[0].node().stats_reset();
    assert_eq!((paused(&hosts[0]), hosts[0].int("flow_control_recv")), (0.0, 0));
    assert_eq!(paused_for(&hosts[0]), total, "is not reset");
    agree(hosts);
}

#[test]
fn a_node_that_never_gets_on_stops_counting() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    set(&hosts[1], "gcs.fc_limit=1; gcs.fc_patience=PT1S");
    let release = block(&hosts[1]);
    for i in 0..50 {
        hosts[0].commit(&format!("{i}"), &format!("{i}"));
    }
    assert!(paused_for(&hosts[0]) >= Duration::from_millis(900), "{:?}", paused_for(&hosts[0]));
    assert!(hosts[1].int("local_recv_queue") > 40);
    assert!(!flag(&hosts[0], "flow_control_active"));
    drop(release);
    agree(hosts);
}

#[test]
fn a_dead_node_holds_nobody_up() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    set(&hosts[2], "gcs.fc_limit=1; gcs.fc_patience=PT0S");
    let release = block(&hosts[2]);
    let writer = {
        let fake = hosts[0].fake.clone();
        thread::spawn(move || (0..20).map(|i| fake.commit(&format!("{i}"), &format!("{i}"))).max())
    };
    until("a writer to be held back", || hosts[0].int("local_send_queue") == 1);
    // It goes silent while its stop is in force.
    set(&hosts[2], "gmcast.isolate=1");
    writer.join().unwrap();
    assert!(!flag(&hosts[0], "flow_control_active"));
    drop(release);
    set(&hosts[2], "gmcast.isolate=0");
    hosts[0].wait("all in", |s| s.size() == 3);
    let third = hosts.remove(2);
    agree(vec![hosts.remove(0), hosts.remove(0), third]);
}

#[test]
fn a_desynced_node_slows_nobody_and_keeps_little_in_memory() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    set(&hosts[1], "gcs.fc_limit=1; gcs.fc_patience=PT0S");
    assert_eq!(hosts[1].node().desync(), Code::Ok);
    let release = block(&hosts[1]);
    // More than the queue keeps in memory: what is above comes back from the log.
    let padding = "x".repeat(1 << 20);
    for i in 0..40 {
        hosts[0].commit(&format!("{i}"), &format!("{i}{padding}"));
    }
    assert_eq!((hosts[0].int("flow_control_recv"), hosts[1].int("flow_control_sent")), (0, 0));
    drop(release);
    assert_eq!(hosts[1].node().resync(), Code::Ok);
    agree(hosts);
}

#[test]
fn a_joiner_slows_nobody_while_it_receives_its_state() {
    let cluster = Cluster::new(2);
    let first = cluster.bootstrap();
    let mut joiner = cluster.host(1, Tables::default(), None, "gcs.fc_limit=1; gcs.fc_patience=PT0S");
    let (release, gate) = mpsc::channel();
    *joiner.copy_gate.lock().unwrap() = Some(gate);
    assert_eq!(joiner.connect(&cluster.url(), false), Code::Ok);
    joiner.serve(2);
    until("the copy to be under way", || first.lock().donations == 1);
    // More than is kept in memory: what is above comes back from the log.
    let padding = "x".repeat(1 << 20);
    for i in 0..40 {
        first.commit(&format!("{i}"), &format!("{i}{padding}"));
    }
    assert_eq!((first.int("flow_control_recv"), joiner.int("flow_control_sent")), (0, 0));
    drop(release);
    joiner.wait("synced", |s| s.synced == 1);
    agree(vec![first, joiner]);
}

/// Else the applier would wait for its locks, and it for the applier.
#[test]
fn a_victim_that_is_held_back_lets_go_at_once() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    set(&hosts[1], "gcs.fc_limit=1; gcs.fc_patience=PT0S");
    let (go, gate) = mpsc::channel::<TrxId>();
    let gate = Mutex::new(gate);
    let hook: Hook = Box::new(move |fake, meta, data| {
        if data == b"first" {
            let victim = gate.lock().unwrap().recv().unwrap();
            assert_eq!(fake.node().abort_certification(Some(meta.seqno), victim), (Code::Ok, None));
        }
    });
    *hosts[1].hook.lock().unwrap() = Some(Arc::new(hook));
    let enough = Arc::new(AtomicBool::new(false));
    let writer = {
        let (fake, enough) = (hosts[0].fake.clone(), enough.clone());
        thread::spawn(move || {
            let mut last = fake.commit("k", "first");
            while !enough.load(Relaxed) {
                last = fake.commit("k", "row").max(last);
            }
            last
        })
    };
    // On a machine that is too busy for heartbeats a stop may be lifted for a moment: what passes then is no victim.
    let mut passed = Vec::new();
    let (trx, victim) = loop {
        until("the own stop", || flag(&hosts[1], "flow_control_requested"));
        let mut handle = hosts[1].begin(&format!("local-{}", passed.len()), "victim");
        let trx = handle.trx;
        let fake = hosts[1].fake.clone();
        let certifier = thread::spawn(move || {
            let answer = fake.certify(&mut handle);
            (handle, answer)
        });
        until("an answer", || certifier.is_finished() || hosts[1].int("local_send_queue") == 1);
        if !certifier.is_finished() {
            break (trx, certifier);
        }
        passed.push(certifier.join().unwrap());
    };
    go.send(trx).unwrap();
    let (mut handle, answer) = victim.join().unwrap();
    assert_eq!(answer, (Code::ConnFail, None));
    assert_eq!(hosts[1].node().release(&mut handle), Code::Ok);
    enough.store(true, Relaxed);
    for (handle, answer) in passed {
        assert!(matches!(hosts[1].conclude(handle, answer, "victim"), End::Committed(_)));
    }
    let last = writer.join().unwrap();
    hosts[1].reach(last);
    hosts[1].commit("local", "next");
    agree(hosts);
}

#[test]
fn writers_go_at_the_pace_of_a_slow_node() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    // The load, not something to wait for.
    let slow: Hook = Box::new(|_, _, _| thread::sleep(Duration::from_millis(4)));
    *hosts[1].hook.lock().unwrap() = Some(Arc::new(slow));
    let writers = 8;
    let most = |round: usize| {
        hosts[1].node().stats_reset();
        thread::scope(|scope| {
            for writer in 0..writers {
                let host = &hosts[0];
                scope.spawn(move || {
                    for i in 0..100 {
                        host.commit(&format!("{round}-{writer}-{i}"), "row");
                    }
                });
            }
        });
        hosts[1].int("local_recv_queue_max")
    };
    // Without flow control it would be several hundred. A node that the machine keeps from hearing the others catches up first, and stops nobody for 2 s: then
    // another round counts.
    let allowed = 24..=46 + writers;
    let mut seen = Vec::new();
    while seen.len() < 5 && !seen.last().is_some_and(|most| allowed.contains(most)) {
        seen.push(most(seen.len()));
    }
    assert!(seen.last().is_some_and(|most| allowed.contains(most)), "at most {seen:?} were waiting at [23, 23]");
    assert!(hosts[1].int("flow_control_sent") >= 1);
    agree(hosts);
}
