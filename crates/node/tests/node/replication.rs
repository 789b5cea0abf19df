//! Commits, conflicts, statements in total order, waiting, pausing.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use trireme_node::{Code, ConnId, Gtid, Handle, KeyKind, Source, StatValue, Wait, flags};
use trireme_types::{Seqno, Uuid};

use crate::cluster::{Cluster, Host, agree};
use crate::fake::End;

#[test]
fn commits_of_all_nodes_are_in_one_order() {
    let cluster = Cluster::new(3);
    let hosts = cluster.start();
    thread::scope(|scope| {
        for host in &hosts {
            for client in 0..3 {
                scope.spawn(move || {
                    for i in 0..40 {
                        host.commit(&format!("{}-{client}", host.name), &format!("{}-{client}-{i}", host.name));
                    }
                });
            }
        }
    });
    assert_eq!(hosts.iter().map(|h| h.int("local_commits")).sum::<i64>(), 360);
    for host in &hosts {
        assert_eq!(host.int("replicated"), 120);
    }
    agree(hosts);
}

#[test]
fn transactions_that_meet_on_a_key_do_not_both_commit() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    // Both see the same state and send before either hears of the other: hold back what node 2 applies.
    let (release, gate) = mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let hook: Box<dyn Fn(&crate::fake::Fake, &trireme_node::Meta, &[u8]) + Send + Sync> =
        Box::new(move |_, _, data| {
            if data == b"winner" {
                let _ = gate.lock().unwrap().recv();
            }
        });
    *hosts[1].hook.lock().unwrap() = Some(std::sync::Arc::new(hook));
    let winner = hosts[0].commit("hot", "winner");
    let mut handle = hosts[1].begin("hot", "loser");
    let (code, meta) = hosts[1].certify(&mut handle);
    assert_eq!(code, Code::TrxFail);
    assert!(meta.unwrap().seqno.0 > winner);
    release.send(()).unwrap();
    assert_eq!(hosts[1].conclude(handle, (code, meta), "loser"), End::Conflict(meta.unwrap().seqno.0));
    assert_eq!(hosts[1].int("local_cert_failures"), 1);
    drop(release);
    agree(hosts);
}

#[test]
fn statements_in_total_order_run_alone_everywhere() {
    let cluster = Cluster::new(3);
    let hosts = cluster.start();
    thread::scope(|scope| {
        for (n, host) in hosts.iter().enumerate() {
            scope.spawn(move || {
                for i in 0..10 {
                    host.commit(&format!("{n}-{i}"), "row");
                }
            });
            scope.spawn(move || {
                for i in 0..5 {
                    host.toi(100 + n as u64, &format!("t{i}"), "alter", b"").unwrap();
                }
            });
        }
    });
    agree(hosts);
}

/// The server's commit leaves the order when it is queued for the binary log; what stores a position by itself waits for its end.
#[test]
fn statements_and_views_wait_for_commits_that_are_queued() {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    let queued = |host: &Host, key: &str| {
        let (handle, meta) = host.patiently(|| {
            let mut handle = host.begin(key, "row");
            match host.certify(&mut handle) {
                (Code::Ok, Some(meta)) => Ok((handle, meta)),
                (code, _) => Err(code),
            }
        });
        host.queue_commit(handle, &meta, "row");
        (handle, meta)
    };
    let first = queued(&hosts[0], "a");
    let (own, foreign) = thread::scope(|scope| {
        let own = scope.spawn(|| hosts[0].patiently(|| hosts[0].toi(1, "t", "alter", b"")));
        let ordered = first.1.seqno.0 + 1;
        hosts[1].reach(ordered);
        hosts[0].end_commit(first.0, &first.1);
        let own = own.join().unwrap();
        let second = queued(&hosts[0], "b");
        let foreign = hosts[1].patiently(|| hosts[1].toi(2, "t", "drop", b""));
        hosts[2].reach(foreign);
        hosts[0].end_commit(second.0, &second.1);
        (own, foreign)
    });
    assert!(own < foreign);
    hosts[0].reach(foreign);
    // It has left commit order too: a write set that has not seen it would fail.
    assert_eq!(hosts[0].node().sync_wait(None, trireme_node::Wait::Default).0, Code::Ok);
    let third = queued(&hosts[0], "c");
    hosts.pop().unwrap().stop();
    hosts[1].wait("the view without the third", |s| s.size() == 2);
    hosts[0].end_commit(third.0, &third.1);
    hosts[0].wait("the view without the third", |s| s.size() == 2);
    agree(hosts);
}

#[test]
fn a_transaction_that_has_not_seen_a_statement_in_total_order_fails() {
    let cluster = Cluster::new(1);
    let hosts = cluster.start();
    let mut handle = hosts[0].begin("row", "late");
    let keys = trireme_node::ToiKeys { keys: vec![vec![b"db", b"t"]], action: "alter".into() };
    let (code, meta) = hosts[0].node().toi_start(ConnId(1), keys, flags::TRX_START | flags::TRX_END);
    assert_eq!(code, Code::Ok);
    let fake = &hosts[0];
    thread::scope(|scope| {
        let certifying = scope.spawn(move || fake.certify(&mut handle).0);
        assert_eq!(certifying.join().unwrap(), Code::TrxFail);
    });
    let seqno = meta.unwrap().seqno;
    assert_eq!(hosts[0].node().last_committed().seqno, Some(seqno.prev()));
    assert_eq!(hosts[0].node().toi_end(ConnId(1), b""), Code::Ok);
    assert_eq!(hosts[0].node().last_committed().seqno, Some(seqno));
    // The client of the failed transaction does not come back: the harness's tables have no use for the rest.
    let node = hosts[0].node();
    let before = node.last_committed();
    let meta = trireme_node::Meta {
        gtid_history: before.history,
        seqno: seqno.next(),
        origin: Uuid::NIL,
        source: Source { trx: handle.trx, conn: ConnId(7) },
        depends_on: None,
    };
    assert_eq!(node.commit_order_enter(handle, &meta), Code::Ok);
    assert_eq!(node.commit_order_leave(handle, &meta, b""), Code::Ok);
    assert_eq!(node.release(&mut handle), Code::Ok);
    drop(node);
    for host in hosts {
        host.stop();
    }
}

#[test]
fn other_kinds_of_statements_are_refused() {
    let cluster = Cluster::new(1);
    let hosts = cluster.start();
    let keys = trireme_node::ToiKeys { keys: vec![], action: "x".into() };
    assert_eq!(hosts[0].node().toi_start(ConnId(1), keys, flags::TRX_START), (Code::NotImplemented, None));
    agree(hosts);
}

#[test]
fn too_large_write_sets_are_refused_and_remembered() {
    let cluster = Cluster::new(1);
    let hosts = cluster.start();
    let node = hosts[0].node();
    assert_eq!(node.options_set("repl.max_ws_size=1000"), Code::Ok);
    let mut handle = Handle { trx: hosts[0].next_trx(), opaque: 0 };
    assert_eq!(node.append_key(&mut handle, &[b"k"], KeyKind::Exclusive), Code::Ok);
    assert_eq!(node.append_data(&mut handle, &[0; 2000]), Code::SizeExceeded);
    assert_eq!(hosts[0].certify(&mut handle), (Code::SizeExceeded, None));
    assert_eq!(node.release(&mut handle), Code::Ok);
    assert_eq!(node.options_set("repl.max_ws_size=2147483647"), Code::Ok);
    drop(node);
    hosts[0].commit("a", "fits");
    agree(hosts);
}

/// As Galera: what it reserves for the header of each set counts, used or not.
#[test]
fn the_limit_of_a_write_set_counts_the_headers_of_all_sets() {
    let cluster = Cluster::new(1);
    let hosts = cluster.start();
    let node = hosts[0].node();
    let try_with = |limit: usize, handle: &mut Handle| {
        assert_eq!(node.options_set(&format!("repl.max_ws_size={limit}")), Code::Ok);
        assert_eq!(node.append_key(handle, &[b"k"], KeyKind::Exclusive), Code::Ok);
        node.append_data(handle, &[0; 100])
    };
    let size = 64 + 3 * 40 + 4 * 8 + 100;
    let mut small = Handle { trx: hosts[0].next_trx(), opaque: 0 };
    assert_eq!(try_with(size - 1, &mut small), Code::SizeExceeded);
    assert_eq!(node.release(&mut small), Code::Ok);
    let mut enough = Handle { trx: hosts[0].next_trx(), opaque: 0 };
    assert_eq!(try_with(size, &mut enough), Code::Ok);
    assert_eq!(node.release(&mut enough), Code::Ok);
    assert_eq!(node.options_set("repl.max_ws_size=2147483647"), Code::Ok);
    drop(node);
    agree(hosts);
}

#[test]
fn a_causal_read_sees_what_was_committed_elsewhere() {
    let cluster = Cluster::new(3);
    let hosts = cluster.start();
    for i in 0..30 {
        let seqno = hosts[0].commit("a", &format!("{i}"));
        let (code, at) = hosts[1 + i % 2].node().sync_wait(None, Wait::Default);
        assert_eq!(code, Code::Ok);
        assert!(at.seqno.unwrap().0 >= seqno, "read at {at:?} after {seqno}");
    }
    let history = hosts[0].node().last_committed().history;
    let upto = |history, n| Some(Gtid { history, seqno: Some(Seqno(n)) });
    let node = hosts[0].node();
    let second = Wait::For(Duration::from_millis(100));
    assert_eq!(node.sync_wait(upto(history, 1), second).0, Code::Ok);
    assert_eq!(node.sync_wait(upto(history, 1_000_000), second).0, Code::TrxFail);
    assert_eq!(node.sync_wait(upto(Uuid([9; 16]), 1), second).0, Code::TrxMissing);
    drop(node);
    agree(hosts);
}

#[test]
fn waiting_for_the_future_ends_at_disconnect() {
    let cluster = Cluster::new(1);
    let mut hosts = cluster.start();
    let node = hosts[0].node();
    let upto = Gtid { history: node.last_committed().history, seqno: Some(Seqno(1_000_000)) };
    let (tell, told) = mpsc::channel();
    let waiting = thread::spawn(move || {
        tell.send(()).unwrap();
        node.sync_wait(Some(upto), Wait::For(Duration::from_secs(100_000))).0
    });
    told.recv().unwrap();
    hosts[0].disconnect();
    assert_eq!(waiting.join().unwrap(), Code::ConnFail);
    hosts.remove(0).stop();
}

#[test]
fn a_paused_node_stands_still_and_goes_on() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    hosts[0].commit("a", "one");
    let last = hosts[0].lock().tables.position();
    hosts[1].reach(last);
    assert_eq!(hosts[1].node().desync(), Code::Ok);
    assert_eq!(hosts[1].state(), 2);
    assert_eq!(hosts[1].stat("local_state_comment"), StatValue::Text("Donor/Desynced".into()));
    let at = hosts[1].node().pause().unwrap();
    assert_eq!(at.0, last);
    assert!(hosts[1].grastate(&cluster.sites[1]).contains(&format!("seqno:   {last}\n")));
    for i in 0..20 {
        hosts[0].commit("a", &format!("{i}"));
    }
    let fake = hosts[1].fake.clone();
    let local = thread::spawn(move || fake.commit("b", "waits"));
    hosts[0].reach(last + 21);
    assert_eq!(hosts[1].node().last_committed().seqno, Some(at));
    assert_eq!(hosts[1].lock().tables.position(), last);
    let synced = hosts[1].lock().synced;
    assert_eq!(hosts[1].node().resume(), Code::Ok);
    assert_eq!(hosts[1].node().resume(), Code::Ok);
    assert_eq!(local.join().unwrap(), last + 21);
    assert_eq!(hosts[1].node().resync(), Code::Ok);
    hosts[1].wait("synced after the resync", |s| s.synced > synced);
    assert_eq!(hosts[1].state(), 4);
    agree(hosts);
}

#[test]
fn an_applier_leaves_on_demand_and_the_others_go_on() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    hosts[1].lock().exit_next = true;
    let seqno = hosts[0].commit("a", "one");
    hosts[1].reach(seqno);
    hosts[1].wait("one applier left", |s| s.appliers == 1);
    let seqno = hosts[0].commit("a", "two");
    hosts[1].reach(seqno);
    agree(hosts);
}

#[test]
fn a_streaming_transaction_is_delivered_in_pieces_and_rolled_back_everywhere() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    let node = hosts[0].node();
    let mut handle = Handle { trx: hosts[0].next_trx(), opaque: 0 };
    for (n, ws_flags) in [flags::TRX_START, 0].into_iter().enumerate() {
        assert_eq!(node.append_key(&mut handle, &[b"db", b"t", &[n as u8]], KeyKind::Exclusive), Code::Ok);
        assert_eq!(node.append_data(&mut handle, format!("piece{n}").as_bytes()), Code::Ok);
        let (code, meta) = node.certify(ConnId(1), &mut handle, ws_flags, &mut || {});
        assert_eq!(code, Code::Ok);
        hosts[0].finish_fragment(handle, &meta.unwrap(), &format!("piece{n}"));
        assert_eq!(node.release(&mut handle), Code::Ok);
        assert_ne!(handle.opaque, 0, "the transaction goes on");
    }
    assert_eq!(node.rollback(handle.trx), Code::Ok);
    let after = hosts[0].commit("other", "after");
    for host in &hosts {
        host.reach(after);
        let closed = host.lock().tables.closed.get(&(after - 1)).cloned();
        assert_eq!(closed, Some(crate::fake::Closed::Data(Vec::new())), "the rollback was applied on {}", host.name);
    }
    assert_eq!(node.release(&mut handle), Code::Ok);
    drop(node);
    agree(hosts);
}

#[test]
fn options_are_checked_and_take_effect() {
    let cluster = Cluster::new(1);
    let hosts = cluster.start();
    let node = hosts[0].node();
    assert_eq!(node.options_set(" "), Code::Ok);
    assert_eq!(node.options_set("no.such=1"), Code::NodeFail);
    assert_eq!(node.options_set("pc.weight=3"), Code::Ok);
    assert_eq!(hosts[0].stat("cluster_weight"), StatValue::Text("3".into()));
    assert!(node.options_get().contains("pc.weight = 3; "));
    // Nobody would decide. The server lets nobody see a variable while it waits for the answer.
    assert_eq!(node.options_set("pc.weight=0"), Code::Ok);
    assert_eq!(hosts[0].stat("cluster_weight"), StatValue::Text("3".into()));
    assert_eq!(node.options_set("pc.weight=3"), Code::Ok);
    assert_eq!(node.options_set("gcache.size=1M"), Code::NodeFail);
    drop(node);
    agree(hosts);
}
