//! A thread of a node panics: the node leaves in order, says why, and nobody waits for it.

use trireme_node::Code;

use crate::cluster::{Cluster, Host, agree, write_much};
use crate::fake::End;

/// Three nodes; the last one's thread panics during `provoke`, in which the first one writes.
fn goes_out(thread: &str, provoke: impl Fn(&Host)) {
    let cluster = Cluster::new(3);
    let hosts = vec![cluster.bootstrap(), cluster.join(1)];
    let mut third = cluster.join(2);
    for host in hosts.iter().chain([&third]) {
        host.wait("all in", |s| s.size() == 3);
    }
    third.node().panic_in(thread);
    provoke(&hosts[0]);
    third.wait("says why", |s| {
        let line = format!("Internal error in thread {thread}: injected in {thread}.");
        s.log.iter().any(|(_, text)| text.starts_with(&line))
    });
    third.wait("tells its server", |s| s.finals == 1);
    hosts[0].wait("two left", |s| s.size() == 2);
    hosts[1].commit("b", "goes on");
    assert!(matches!(third.run("c", "refused"), End::Failed(_)), "it takes no commits");
    third.disconnect();
    assert_eq!(third.connect(&cluster.url(), false), Code::NodeFail, "out of service until the server is restarted");
    third.stop();
    agree(hosts);
}

#[test]
fn the_sync_thread_panics() {
    goes_out("trireme-sync", |writer| {
        writer.commit("a", "to be synced");
    });
}

#[test]
fn the_space_thread_panics() {
    goes_out("trireme-space", |writer| write_much(writer, 8_000_000));
}

#[test]
fn the_thread_for_log_lines_panics() {
    goes_out("trireme-chores", |writer| {
        let node = writer.node();
        assert_eq!((node.desync(), node.resync()), (Code::Ok, Code::Ok));
    });
}

#[test]
fn the_group_thread_panics() {
    goes_out("trireme-group", |writer| {
        writer.commit("a", "wakes it");
    });
}
