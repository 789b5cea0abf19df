//! Brute-force aborts at every stage of a victim (contract 4.6, 4.7).

use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use trireme_node::{Code, ConnId, Handle, Meta, TrxId, flags};
use trireme_types::Seqno;

use crate::cluster::{Cluster, Host, agree};
use crate::fake::{End, Fake};

/// Runs inside `apply` of `data`.
fn on_apply(host: &Host, data: &'static str, act: impl Fn(&Fake, &Meta) + Send + Sync + 'static) {
    let hook: Box<dyn Fn(&Fake, &Meta, &[u8]) + Send + Sync> = Box::new(move |fake, meta, found| {
        if found == data.as_bytes() {
            act(fake, meta);
        }
    });
    *host.hook.lock().unwrap() = Some(Arc::new(hook));
}

#[test]
fn unknown_and_unsent_victims_are_marked_or_forgotten() {
    let cluster = Cluster::new(1);
    let hosts = cluster.start();
    let node = hosts[0].node();
    assert_eq!(node.abort_certification(Some(Seqno(5)), TrxId(4711)), (Code::Ok, None));
    let mut handle = hosts[0].begin("a", "victim");
    for bf in [None, Some(Seqno(0)), Some(Seqno(9))] {
        assert_eq!(node.abort_certification(bf, handle.trx), (Code::Ok, None));
    }
    assert_eq!(hosts[0].certify(&mut handle), (Code::ConnFail, None));
    assert_eq!(node.release(&mut handle), Code::Ok);
    drop(node);
    hosts[0].commit("a", "next");
    agree(hosts);
}

/// A local transaction, certified after a remote write set that is still being applied and that finds it in its way.
fn victim_behind_an_applier(waits_in_enter: bool) {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    let (begun, remote_applies) = mpsc::channel::<Seqno>();
    let (go, gate) = mpsc::channel::<TrxId>();
    let (begun, gate) = (Mutex::new(begun), Mutex::new(gate));
    let (verdict, heard) = mpsc::channel();
    let verdict = Mutex::new(verdict);
    on_apply(&hosts[1], "remote", move |fake, meta| {
        begun.lock().unwrap().send(meta.seqno).unwrap();
        let victim = gate.lock().unwrap().recv().unwrap();
        let answer = fake.node().abort_certification(Some(meta.seqno), victim);
        verdict.lock().unwrap().send(answer).unwrap();
    });
    let remote = hosts[0].commit("r", "remote");
    assert_eq!(remote_applies.recv().unwrap().0, remote);
    let mut handle = hosts[1].begin("l", "local");
    let (code, meta) = hosts[1].certify(&mut handle);
    let meta = meta.unwrap();
    assert_eq!((code, meta.seqno.0), (Code::Ok, remote + 1));
    let local = hosts[1].fake.clone();
    let end = if waits_in_enter {
        let client = thread::spawn(move || local.conclude(handle, (code, Some(meta)), "local"));
        go.send(handle.trx).unwrap();
        client.join().unwrap()
    } else {
        // The mark comes before the client asks for its turn.
        go.send(handle.trx).unwrap();
        assert_eq!(heard.recv().unwrap(), (Code::Ok, Some(meta.seqno)));
        let client = thread::spawn(move || local.conclude(handle, (code, Some(meta)), "local"));
        client.join().unwrap()
    };
    assert_eq!(end, End::Replayed(meta.seqno.0));
    assert_eq!(hosts[1].int("local_replays"), 1);
    hosts[0].reach(meta.seqno.0);
    agree(hosts);
}

#[test]
fn a_victim_waiting_for_its_turn_is_woken_and_replays() {
    victim_behind_an_applier(true);
}

#[test]
fn a_victim_marked_after_certification_replays() {
    victim_behind_an_applier(false);
}

#[test]
fn an_older_or_committing_victim_is_left_alone() {
    let cluster = Cluster::new(1);
    let hosts = cluster.start();
    let node = hosts[0].node();
    let mut handle = hosts[0].begin("a", "victim");
    let (code, meta) = hosts[0].certify(&mut handle);
    let meta = meta.unwrap();
    assert_eq!(code, Code::Ok);
    let newer = Some(meta.seqno.next());
    assert_eq!(node.abort_certification(newer, handle.trx), (Code::NotAllowed, Some(meta.seqno)));
    assert_eq!(node.commit_order_enter(handle, &meta), Code::Ok);
    for bf in [None, Some(Seqno(1))] {
        assert_eq!(node.abort_certification(bf, handle.trx), (Code::NotAllowed, Some(meta.seqno)));
    }
    assert_eq!(node.commit_order_leave(handle, &meta, b""), Code::Ok);
    assert_eq!(node.abort_certification(None, handle.trx), (Code::NotAllowed, Some(meta.seqno)));
    assert_eq!(node.release(&mut handle), Code::Ok);
    assert_eq!(node.abort_certification(None, handle.trx), (Code::Ok, None));
    drop(node);
    // The tables were left out.
    let mut hosts = hosts;
    let host = hosts.remove(0);
    host.lock().floor = meta.seqno.0;
    host.commit("a", "next");
    host.stop();
}

#[test]
fn a_paused_victim_does_not_hold_the_applier_that_needs_its_locks() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    let (begun, remote_applies) = mpsc::channel::<()>();
    let (go, gate) = mpsc::channel::<TrxId>();
    let (begun, gate) = (Mutex::new(begun), Mutex::new(gate));
    on_apply(&hosts[1], "remote", move |fake, meta| {
        begun.lock().unwrap().send(()).unwrap();
        let victim = gate.lock().unwrap().recv().unwrap();
        let (code, _) = fake.node().abort_certification(Some(meta.seqno), victim);
        assert_eq!(code, Code::Ok);
    });
    let remote = hosts[0].commit("r", "remote");
    remote_applies.recv().unwrap();
    let node = hosts[1].node();
    let pausing = thread::spawn(move || node.pause());
    // Certified above the pause: waits inside certify, until the applier below the pause hits it.
    let local = hosts[1].fake.clone();
    let mut handle = local.begin("l", "local");
    let victim: Handle = handle;
    let (tell, told) = mpsc::channel();
    let client = thread::spawn(move || {
        let answer = local.certify(&mut handle);
        tell.send(answer.0).unwrap();
        local.conclude(handle, answer, "local")
    });
    hosts[0].reach(remote + 1);
    go.send(victim.trx).unwrap();
    // Before the pause took hold it may have got through; then its turn ends the same way.
    let code = told.recv().unwrap();
    assert!(matches!(code, Code::BfAbort | Code::Ok), "{code:?}");
    let at = pausing.join().unwrap().unwrap();
    assert!(at.0 == remote || at.0 == remote + 1);
    assert_eq!(hosts[1].node().resume(), Code::Ok);
    assert_eq!(client.join().unwrap(), End::Replayed(remote + 1));
    agree(hosts);
}

/// A fragment of a streaming transaction that an applier or a statement in total order hits: it is not replayed, and its own
/// thread can close its seqno, else nothing commits here any more.
#[test]
fn a_fragment_that_is_hit_rolls_back_and_closes_its_seqno() {
    for while_paused in [false, true] {
        let cluster = Cluster::new(1);
        let hosts = cluster.start();
        let node = hosts[0].node();
        // Both orders: hit in `certify`, which waits during a pause, and while waiting for its turn.
        let mut first = hosts[0].begin("a", "before it");
        let held = (!while_paused).then(|| hosts[0].certify(&mut first));
        if while_paused {
            assert!(node.pause().is_some());
        }
        let mut handle = hosts[0].begin("b", "fragment");
        let (victim, sent) = (handle.trx, hosts[0].int("replicated"));
        let fake = hosts[0].fake.clone();
        let (tell, certified) = mpsc::channel();
        let client = thread::spawn(move || {
            let node = fake.node();
            let (mut code, meta) = node.certify(ConnId(7), &mut handle, flags::TRX_START, &mut || {});
            let meta = meta.unwrap();
            tell.send(()).unwrap();
            if code == Code::Ok {
                code = node.commit_order_enter(handle, &meta);
            }
            assert_eq!(code, Code::TrxFail);
            (handle, meta)
        });
        if while_paused {
            // A mark before it is sent would end it there.
            while hosts[0].int("replicated") == sent {
                thread::yield_now();
            }
        } else {
            certified.recv().unwrap();
        }
        assert_eq!(node.abort_certification(Some(Seqno(0)), victim).0, Code::Ok);
        let (mut handle, meta) = client.join().unwrap();
        if while_paused {
            assert_eq!(node.resume(), Code::Ok);
        }
        if let Some(answer) = held {
            hosts[0].conclude(first, answer, "before it");
        }
        if while_paused {
            hosts[0].close_failed(handle, &meta);
        } else {
            // The server does not ask for the turn a second time; `release` closes the seqno.
            hosts[0].lock().floor = meta.seqno.0;
        }
        assert_eq!(node.rollback(victim), Code::Ok);
        assert_eq!(node.release(&mut handle), Code::Ok);
        if while_paused {
            assert_eq!(node.release(&mut first), Code::Ok);
        }
        drop(node);
        hosts[0].commit("b", "next");
        agree(hosts);
    }
}

/// A fragment that was ordered before the write set in want of its locks goes on, and its transaction, which keeps the locks, does
/// not: else the two would wait for each other.
#[test]
fn a_streaming_transaction_is_hit_also_where_its_fragment_is_older() {
    for steps in 0..3 {
        let cluster = Cluster::new(1);
        let hosts = cluster.start();
        let node = hosts[0].node();
        let mut handle = hosts[0].begin("a", "fragment");
        let (code, meta) = node.certify(ConnId(7), &mut handle, flags::TRX_START, &mut || {});
        let meta = meta.unwrap();
        assert_eq!(code, Code::Ok);
        if steps > 0 {
            assert_eq!(node.commit_order_enter(handle, &meta), Code::Ok);
        }
        if steps > 1 {
            assert_eq!(node.commit_order_leave(handle, &meta, b""), Code::Ok);
        }
        let newer = Some(meta.seqno.next());
        assert_eq!(node.abort_certification(newer, handle.trx), (Code::Ok, Some(meta.seqno)), "{steps}");
        match steps {
            0 => assert_eq!(node.commit_order_enter(handle, &meta), Code::TrxFail),
            1 => assert_eq!(node.commit_order_leave(handle, &meta, b""), Code::Ok),
            _ => {}
        }
        if steps > 0 {
            assert_eq!(node.release(&mut handle), Code::Ok);
            assert_eq!(node.append_data(&mut handle, b"rest"), Code::Ok);
            assert_eq!(node.certify(ConnId(7), &mut handle, flags::TRX_END, &mut || {}).0, Code::ConnFail);
        }
        // Past the doubles of the server's tables.
        hosts[0].lock().floor = meta.seqno.0;
        assert_eq!(node.rollback(handle.trx), Code::Ok);
        assert_eq!(node.release(&mut handle), Code::Ok);
        drop(node);
        hosts[0].commit("a", "next");
        agree(hosts);
    }
}

#[test]
fn storms_of_aborts_leave_equal_data() {
    let cluster = Cluster::new(3);
    let hosts = cluster.start();
    for host in &hosts {
        // Every applier hits whatever local transactions it finds.
        let hook: Box<dyn Fn(&Fake, &Meta, &[u8]) + Send + Sync> = Box::new(|fake, meta, _| {
            for back in 0..4 {
                let newest = fake.next_trx();
                let _ = fake.node().abort_certification(Some(meta.seqno), TrxId(newest.0.saturating_sub(back)));
            }
        });
        *host.hook.lock().unwrap() = Some(Arc::new(hook));
    }
    let ends: Vec<End> = thread::scope(|scope| {
        let clients: Vec<_> = hosts
            .iter()
            .flat_map(|host| (0..3).map(move |client| (host, client)))
            .map(|(host, client)| {
                scope.spawn(move || {
                    (0..60)
                        .map(|i| host.run(&format!("hot{}", (i + client) % 4), &format!("{}-{client}-{i}", host.name)))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        clients.into_iter().flat_map(|c| c.join().unwrap()).collect()
    });
    let count = |wanted: fn(&End) -> bool| ends.iter().filter(|e| wanted(e)).count();
    assert!(count(|e| matches!(e, End::Committed(_))) > 0);
    assert_eq!(count(|e| matches!(e, End::Failed(code) if *code != Code::ConnFail)), 0, "{ends:?}");
    agree(hosts);
}
