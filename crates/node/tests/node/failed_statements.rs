//! A node's own statement in total-order isolation fails, and the disk with its log is out of service before the vote on the error is
//! ordered. The statement goes on, since nobody can hear the node. Its outcome is compared with the group's result all the same.

use std::fs;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use trireme_node::{Code, ViewStatus};

use crate::cluster::{Cluster, Host, goes_on_with, needs_a_copy};
use crate::fake::{End, State, until};
use crate::operators::block;
use crate::outage::{Disk, MORE_THAN_A_SEGMENT, await_out, three};

/// The connection of the statement, and what it executes.
const CONN: u64 = 9;
const ACTION: &[u8] = b"create";
const EXISTS: &[u8] = b" Table 't' already exists, Error_code: 1050;\0";
const NO_ROOM: &[u8] = b" The table 't' is full, Error_code: 1114;\0";

/// When the statement fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fails {
    /// The majority is lost, so that the vote waits for it. It comes back, but the disk is out before the node is a member again.
    BeforeTheOutage,
    InTheOutage,
}

/// When the servers of the others are done with the statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    /// While the third one's still executes it, and can hear that.
    Before,
    /// While it can hear nobody.
    Meanwhile,
    /// When it is back.
    Afterwards,
    /// When the vote that it has begun then was dismissed.
    TooLate,
}

fn has_a_result(s: &State) -> bool {
    s.log.iter().any(|(_, line)| line.contains("Winner: "))
}

struct Story {
    cluster: Cluster,
    hosts: Vec<Host>,
    third: Host,
    disk: Disk,
}

/// The third one's statement fails with [`EXISTS`], at the others with `error` or not at all, and the outage is over.
fn tell(fails: Fails, others: Others, error: &[u8]) -> Story {
    let cluster = Cluster::new(3);
    let (hosts, third, disk) = three(&cluster);
    if !error.is_empty() {
        hosts.iter().for_each(|host| drop(host.lock().failing.insert(ACTION.to_vec(), error.to_vec())));
    }
    let mut stand = Some(hosts.iter().map(|host| block(host, ACTION)).collect::<Vec<_>>());
    let seqno = third.toi_begin(CONN, "t", std::str::from_utf8(ACTION).unwrap()).unwrap();
    if others == Others::Before {
        stand = None;
        third.wait("the result", has_a_result);
    }
    let notes = disk.there().join("trireme.failed.galera.cache");
    let is_noted = || fs::read_to_string(&notes).is_ok_and(|text| text.contains(&format!("failed: {seqno} ")));
    let fake = third.fake.clone();
    let (go, gate) = mpsc::channel::<()>();
    let client = thread::spawn(move || {
        let _ = gate.recv();
        fake.toi_end(CONN, EXISTS);
    });
    if fails == Fails::BeforeTheOutage {
        assert_eq!(third.node().options_set("gmcast.isolate=1"), Code::Ok);
        third.wait("no majority", |s| s.views.last().is_some_and(|v| v.status == ViewStatus::NonPrimary));
        go.send(()).unwrap();
        until("it has failed", is_noted);
    }
    disk.fail();
    let writer = order_behind_the_statement(&hosts[0]);
    let decide = |stand: &mut Option<Vec<mpsc::Sender<()>>>| {
        if others == Others::Meanwhile {
            *stand = None;
            hosts[0].wait("the end", |s| s.tables.position() >= seqno && (error.is_empty() || has_a_result(s)));
        }
    };
    if fails == Fails::BeforeTheOutage {
        decide(&mut stand);
        assert!(!client.is_finished(), "it waits for the result");
        assert_eq!(third.node().options_set("gmcast.isolate=0"), Code::Ok);
        await_out(&third);
    } else {
        await_out(&third);
        decide(&mut stand);
    }
    drop(go);
    client.join().unwrap();
    disk.mend();
    if others != Others::Before {
        // It goes on at least until it knows the result.
        until("the disk has it", is_noted);
    }
    match others {
        Others::Before | Others::Meanwhile => {}
        // It is not synced while nobody has confirmed its error.
        Others::Afterwards => third.wait("a member again", |s| {
            s.views.last().is_some_and(|v| v.status == ViewStatus::Primary && v.own.is_some())
        }),
        Others::TooLate => third.wait("the final view", |s| s.finals == 1),
    }
    drop(stand);
    writer.join().unwrap();
    Story { cluster, hosts, third, disk }
}

/// A client whose write set is ordered. It waits for the statement before it commits, or knows that it does not.
fn order_behind_the_statement(host: &Host) -> JoinHandle<End> {
    let large = "x".repeat(MORE_THAN_A_SEGMENT);
    let mut handle = host.begin("behind", &large);
    let answer = host.certify(&mut handle);
    assert!(answer.1.is_some(), "{answer:?}");
    let fake = host.fake.clone();
    thread::spawn(move || fake.conclude(handle, answer, &large))
}

impl Story {
    /// It went at the third one as at the others.
    #[track_caller]
    fn goes_on(self) {
        let Story { cluster: _cluster, hosts, third, disk: _ } = self;
        third.wait("synced again", |s| s.synced == 2);
        for host in hosts.iter().chain([&third]) {
            host.wait("all in", |s| s.size() == 3);
            assert_eq!(host.lock().finals, 0, "{}: {:#?}", host.name, host.lock().log);
        }
        assert_eq!(third.lock().sst_requests, 1, "no copy but the first");
        goes_on_with(third, hosts);
    }

    /// It did not: the third one leaves, and comes back with a copy.
    #[track_caller]
    fn leaves(self) {
        let Story { cluster, hosts, third, disk } = self;
        needs_a_copy(&cluster, third, &disk.option(), hosts);
    }
}

#[test]
fn alone_with_its_error_it_leaves() {
    tell(Fails::BeforeTheOutage, Others::Meanwhile, b"").leaves();
}

#[test]
fn alone_with_an_error_in_the_outage_it_leaves() {
    tell(Fails::InTheOutage, Others::Meanwhile, b"").leaves();
}

#[test]
fn with_the_error_that_the_others_decided_meanwhile_it_goes_on() {
    tell(Fails::BeforeTheOutage, Others::Meanwhile, EXISTS).goes_on();
    tell(Fails::InTheOutage, Others::Meanwhile, EXISTS).goes_on();
}

#[test]
fn with_another_error_than_they_decided_meanwhile_it_leaves() {
    tell(Fails::BeforeTheOutage, Others::Meanwhile, NO_ROOM).leaves();
    tell(Fails::InTheOutage, Others::Meanwhile, NO_ROOM).leaves();
}

#[test]
fn a_result_from_before_the_outage_is_compared_with_an_error_in_it() {
    tell(Fails::InTheOutage, Others::Before, EXISTS).goes_on();
    tell(Fails::InTheOutage, Others::Before, NO_ROOM).leaves();
}

#[test]
fn asked_afterwards_it_says_its_error() {
    tell(Fails::BeforeTheOutage, Others::Afterwards, EXISTS).goes_on();
}

#[test]
fn asked_afterwards_it_says_an_error_in_the_outage() {
    tell(Fails::InTheOutage, Others::Afterwards, EXISTS).goes_on();
}

#[test]
fn nobody_confirms_its_error_in_time_and_it_leaves() {
    tell(Fails::InTheOutage, Others::TooLate, EXISTS).leaves();
}
