//! A thread of a node panics: the node leaves in order, says why, and nobody waits for it.

use std::net::TcpStream;

use trireme_node::Code;

use crate::cluster::{Cluster, Host, agree, write_much};
use crate::fake::{End, Tables, until};
use crate::flight::{BY_A_PANIC, recorded};

/// Three nodes; the last one's thread panics during `provoke`, in which the first one writes.
fn goes_out(thread: &str, provoke: impl Fn(&Cluster, &Host)) {
    let cluster = Cluster::new(3);
    let hosts = vec![cluster.bootstrap(), cluster.join(1)];
    let mut third = cluster.join(2);
    for host in hosts.iter().chain([&third]) {
        host.wait("all in", |s| s.size() == 3);
    }
    third.node().panic_in(thread);
    provoke(&cluster, &hosts[0]);
    third.wait("says why", |s| {
        let line = format!("Internal error in thread {thread}: injected in {thread}.");
        s.log.iter().any(|(_, text)| text.starts_with(&line))
    });
    third.wait("tells its server", |s| s.finals == 1);
    recorded(&[&cluster.sites[2].dir], BY_A_PANIC);
    hosts[0].wait("two left", |s| s.size() == 2);
    hosts[1].commit("b", "goes on");
    assert!(matches!(third.run("c", "refused"), End::Failed(_)), "it takes no commits");
    third.disconnect();
    assert_eq!(third.connect(&cluster.url(), false), Code::NodeFail, "out of service until the server is restarted");
    third.stop();
    agree(hosts);
}

/// Which syncs a new segment also where it does not sync each commit.
#[test]
fn the_sync_thread_panics() {
    goes_out("trireme-sync", |_, writer| write_much(writer, 8_000_000));
}

#[test]
fn the_space_thread_panics() {
    goes_out("trireme-space", |_, writer| write_much(writer, 8_000_000));
}

/// A write set with very many keys is judged there.
#[test]
fn the_index_thread_panics() {
    goes_out("trireme-index", |_, writer| {
        let mut handle = writer.begin("a", "many keys");
        for i in 0..300_000u32 {
            let key = i.to_le_bytes();
            let code = writer.node().append_key(&mut handle, &[b"db", b"t", &key], trireme_node::KeyKind::Exclusive);
            assert_eq!(code, Code::Ok);
        }
        let answer = writer.certify(&mut handle);
        assert!(matches!(writer.conclude(handle, answer, "many keys"), End::Committed(_)));
    });
}

/// Which asks the engine by itself, as long as it has not heard of it.
#[test]
fn the_engine_thread_panics() {
    goes_out("trireme-engine", |_, writer| write_much(writer, 20_000_000));
}

/// A node with a helper that is stuck in the server is not dropped, and its log is closed all the same.
#[test]
fn a_thread_that_is_stuck_in_the_server_does_not_keep_the_log_open() {
    let cluster = Cluster::new(1);
    let mut host = cluster.host(0, Tables::default(), None, "");
    host.node().stall_in("trireme-engine", true);
    assert_eq!(host.connect("gcomm://", true), Code::Ok);
    host.serve(1);
    host.commit("a", "one");
    until("it asks the engine", || host.node().is_stalled_in("trireme-engine"));
    host.disconnect();
    assert!(!host.node().close(), "a thread is left");
    let said = |text: &str| host.lock().log.iter().any(|(_, line)| line.contains(text));
    assert!(said("the storage engine has not answered for 6s"));
    assert!(said("trireme-engine still waits for the server"));
    assert!(!said("not closed in order"));
    let tables = host.lock().tables.clone();
    let mut next = cluster.host(0, tables, None, "");
    {
        let s = next.lock();
        assert!(!s.log.iter().any(|(_, text)| text.contains("not closed by its last user")), "{:#?}", s.log);
    }
    assert_eq!(next.connect("gcomm://", true), Code::Ok);
    next.serve(1);
    next.commit("a", "goes on");
    next.stop();
    host.node().stall_in("trireme-engine", false);
    assert_eq!(host.lock().violations, Vec::<String>::new());
}

#[test]
fn the_thread_for_the_servers_services_panics() {
    goes_out("trireme-services", |cluster, _| drop(TcpStream::connect(&cluster.sites[2].address).unwrap()));
}

#[test]
fn the_thread_for_log_lines_panics() {
    goes_out("trireme-chores", |_, writer| {
        let node = writer.node();
        assert_eq!((node.desync(), node.resync()), (Code::Ok, Code::Ok));
    });
}

#[test]
fn the_group_thread_panics() {
    goes_out("trireme-group", |_, writer| {
        writer.commit("a", "wakes it");
    });
}
