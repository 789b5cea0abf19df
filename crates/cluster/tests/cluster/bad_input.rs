//! Mistakes of operators, and strangers at the group port.

use crate::support::{Bed, assert_equal, await_status, client, client_in_d, eventually, node, schema};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use trireme_cluster::{Cluster, Error, Liveness, Start, Stop};

/// A stranger must not make a server grow by more than this.
const GROWTH_MAX_KB: u64 = 64 * 1024;

pub fn strangers_and_mistakes_are_refused(bed: &Bed) {
    let mut spec = bed.spec();
    // Group options are refused at once, but a node that finds no group keeps trying for this long.
    spec.provider_options = "pc.wait_prim_timeout=PT5S".to_owned();
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    client_in_d(&cluster, 1).all(&["CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY)", "INSERT INTO t VALUES (1)"]);

    // Other users of this machine reach neither sockets nor data, whose accounts have no password.
    let mode = std::fs::metadata(cluster.dir()).unwrap().permissions().mode();
    assert_eq!(mode & 0o007, 0, "{} has mode {mode:o}", cluster.dir().display());

    // Strangers at the group port, on every node.
    let before = memory_kb(&cluster);
    let mut silent = Vec::new();
    for n in 1..=3 {
        let target = cluster.node(node(n)).unwrap().group_endpoint();
        for bytes in strange_bytes() {
            talk(&target, &bytes);
        }
        // Some connect and say nothing, for as long as we keep them.
        for _ in 0..20 {
            silent.push(TcpStream::connect(&target).unwrap());
        }
    }
    for n in 1..=3 {
        await_status(&cluster, n, "wsrep_local_state_comment", "Synced");
        await_status(&cluster, n, "wsrep_cluster_size", "3");
        client_in_d(&cluster, n).run("INSERT INTO t VALUES ()");
    }
    for (n, (before, after)) in before.into_iter().zip(memory_kb(&cluster)).enumerate() {
        assert!(after < before + GROWTH_MAX_KB, "node{} grew from {before} to {after} kB", n + 1);
    }
    drop(silent);

    // Options changed at run time: unknown and bad ones are refused, good ones work.
    let mut one = client(&cluster, 1);
    assert_eq!(one.refused("SET GLOBAL wsrep_provider_options = 'no.such.option=1'"), 1210);
    assert_eq!(one.refused("SET GLOBAL wsrep_provider_options = 'gcs.fc_limit=many'"), 1210);
    one.run("SET GLOBAL wsrep_provider_options = 'gcs.fc_limit=32'");
    assert!(one.text("SELECT @@wsrep_provider_options").contains("gcs.fc_limit = 32"));

    // A node started with a mistake refuses, says why, and the others do not notice. Each mistake: the line in
    // my.cnf, and what the log must speak of (one of them; Galera sometimes hides a taken port behind a thread that
    // ended too early).
    let group_port_taken = cluster.node(node(1)).unwrap().group_endpoint();
    let mistakes = [
        ("no_such_server_option=1".to_owned(), &["no_such_server_option"][..]),
        ("wsrep_cluster_name=another".to_owned(), &["another"]),
        ("wsrep_cluster_address=gcomm://host.invalid:4567".to_owned(), &["host.invalid"]),
        ("wsrep_provider_options=no.such.option=1".to_owned(), &["no.such.option"]),
        (
            format!("wsrep_provider_options=gmcast.listen_addr=tcp://{group_port_taken}"),
            &["in use", "thread schedparams"],
        ),
    ];
    cluster.stop(node(3), Stop::Graceful).unwrap();
    await_status(&cluster, 1, "wsrep_cluster_size", "2");
    for (line, named) in mistakes {
        let log = cluster.node(node(3)).unwrap().log();
        std::fs::write(&log, "").unwrap();
        // A remembered group would let it wait for its old peers without end, which is another matter.
        let _ = std::fs::remove_file(cluster.node(node(3)).unwrap().data().join("gvwstate.dat"));
        cluster.set_options(node(3), vec![line.clone()]).unwrap();
        cluster.launch(node(3), Start::Plain).unwrap_or_else(|error| panic!("{line}: {error}"));
        eventually(&format!("node3 refuses `{line}`"), || match cluster.liveness(node(3)).unwrap() {
            Liveness::Gone => Ok(()),
            other => Err(format!("{other:?}")),
        });
        let text = String::from_utf8_lossy(&std::fs::read(&log).unwrap()).into_owned();
        assert!(
            text.lines().any(|l| named.iter().any(|n| l.contains(n))),
            "`{line}`: nothing about {named:?} in its log:\n{text}"
        );
        assert!(!text.contains("got signal 11"), "`{line}`: the server crashed:\n{text}");
        cluster.stop(node(3), Stop::Kill).unwrap();
        // The two others stayed, and serve.
        await_status(&cluster, 1, "wsrep_cluster_size", "2");
        client_in_d(&cluster, 2).run("INSERT INTO t VALUES ()");
    }
    // The library's own check comes before the server's.
    cluster.set_options(node(3), Vec::new()).unwrap();
    let port = cluster.node(node(3)).unwrap().ports.ist;
    let address = cluster.node(node(3)).unwrap().address.clone();
    let squatter = std::net::TcpListener::bind((address.as_str(), port)).unwrap();
    let refused = cluster.launch(node(3), Start::Plain);
    assert!(matches!(refused, Err(Error::PortInUse { port: p, .. }) if p == port), "{refused:?}");
    drop(squatter);

    // Without the mistakes it comes back.
    cluster.start(node(3), Start::Recover, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    assert_equal(&cluster);
}

/// The bytes that port scanners and lost clients send, and that an attacker would try first.
fn strange_bytes() -> Vec<Vec<u8>> {
    let mut noise = 12345u64;
    let random: Vec<u8> = (0..100_000)
        .map(|_| {
            noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (noise >> 56) as u8
        })
        .collect();
    let mut huge_little = vec![0xff, 0xff, 0xff, 0x7f];
    huge_little.extend([0; 64]);
    let mut huge_big = vec![0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    huge_big.extend([0x41; 64]);
    vec![
        Vec::new(),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        vec![0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03], // the beginning of TLS
        vec![0; 4096],
        vec![0xff; 4096],
        huge_little,
        huge_big,
        random,
    ]
}

/// Sends what it can and listens for a moment; a closed connection is a fine answer.
fn talk(target: &str, bytes: &[u8]) {
    let mut stream = TcpStream::connect(target).unwrap_or_else(|error| panic!("{target}: {error}"));
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let _ = stream.write_all(bytes);
    let mut answer = [0; 256];
    let _ = stream.read(&mut answer);
}

/// Resident memory of each node's server.
fn memory_kb(cluster: &Cluster) -> Vec<u64> {
    cluster
        .nodes()
        .iter()
        .map(|node| {
            let pid = node.pid.expect("runs");
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("runs");
            let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("has VmRSS");
            line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
        })
        .collect()
}
