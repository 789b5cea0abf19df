//! Bodies by multicast, with datagrams that get lost.

use std::time::{Duration, Instant};

use trireme_node::{Code, StatValue};
use trireme_transport::fuzzing::lose_datagrams;

use crate::cluster::{Cluster, Host, agree};
use crate::fake::until;

fn hears(host: &Host) -> String {
    match host.stat("trireme_multicast_members") {
        StatValue::Text(text) => text,
        other => panic!("{other:?}"),
    }
}

fn commit_everywhere(hosts: &[Host], what: &str, rounds: usize) {
    std::thread::scope(|scope| {
        for (n, host) in hosts.iter().enumerate() {
            scope.spawn(move || {
                // Some of one datagram, some of many.
                for round in 0..rounds {
                    host.commit(&format!("{n}-{round}"), &what.repeat([1, 1, 1, 2000][round % 4]));
                }
            });
        }
    });
}

/// The fourth one hears nothing: it is as if its firewall let no datagram in.
#[test]
fn bodies_by_multicast_get_lost_and_commits_go_on() {
    let mut cluster = Cluster::new(4);
    let [part, group, ..] = std::process::id().to_le_bytes();
    for (n, site) in cluster.sites.iter_mut().enumerate() {
        let port = if n == 3 { 5001 } else { 5000 };
        site.options = format!("gmcast.mcast_addr=239.254.{group}.{part}; gmcast.mcast_port={port}");
    }
    let hosts = cluster.start();
    for host in &hosts {
        assert_eq!(host.node().options_set("repl.status_extended=yes"), Code::Ok);
    }
    let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    for (n, host) in hosts.iter().enumerate().take(3) {
        let others: Vec<&str> = (0..3).filter(|other| *other != n).map(|other| names[other]).collect();
        until("two to hear", || hears(host) == others.join(","));
    }
    let bytes = |host: &Host| host.int("trireme_multicast_bytes");
    // A busy machine loses some by itself, and a member is on its link for a while then.
    until("all bodies to go by multicast", || {
        let before: i64 = hosts.iter().map(bytes).sum();
        commit_everywhere(&hosts, "all arrive ", 40);
        hosts.iter().map(bytes).sum::<i64>() - before > 3 * 10 * 22_000
    });

    // One in thirty: less than what sends a member back to its link.
    lose_datagrams(30, 7);
    commit_everywhere(&hosts, "some arrive ", 100);
    until("members to tell of it", || hosts.iter().take(3).all(|host| host.int("trireme_multicast_missed") > 0));

    // Half of all.
    lose_datagrams(500, 8);
    let begun = Instant::now();
    commit_everywhere(&hosts, "few arrive ", 40);
    until("nobody to count on it", || hosts.iter().all(|host| hears(host).is_empty()));
    let quiet = hosts.iter().map(bytes).sum::<i64>();
    commit_everywhere(&hosts, "by links ", 40);
    let probes = hosts.iter().map(bytes).sum::<i64>() - quiet;
    assert!(begun.elapsed() > Duration::from_secs(9) || probes < 100_000, "{probes}");

    lose_datagrams(0, 0);
    for host in &hosts[..3] {
        until("two to hear again", || hears(host).split(',').count() == 2);
    }
    commit_everywhere(&hosts, "all arrive again ", 8);
    assert_eq!(hears(&hosts[3]), "");
    agree(hosts);
}
