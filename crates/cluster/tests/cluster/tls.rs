//! An encrypted group: nothing readable on the wire, and new certificates without a stop.

use crate::arbitrator;
use crate::support::{Bed, assert_equal, await_status, client, client_in_d, eventually, node, schema};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, setsockopt, socket, sockopt};
use nix::sys::time::TimeVal;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use trireme_certificates::Authority;
use trireme_cluster::{Cluster, Start, Stop};

/// In every row, and nowhere else.
const MARK: &str = "row-for-no-eyes ";
const CANARY: &str = "seen by the tap  ";

/// Everything that goes over TCP from or to some ports of this machine.
struct Tap {
    seen: Arc<Mutex<Vec<u8>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tap {
    /// `None` for those who may not listen to others.
    fn of(ports: Vec<u16>) -> Option<Tap> {
        let raw = socket(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), SockProtocol::Tcp).ok()?;
        setsockopt(&raw, sockopt::ReceiveTimeout, &TimeVal::new(0, 100_000)).unwrap();
        // Packets that the kernel has no room for are not seen.
        let _ = setsockopt(&raw, sockopt::RcvBufForce, &(64 << 20));
        let (seen, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (keep, over) = (seen.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut socket = File::from(raw);
            let mut packet = vec![0; 70_000];
            while !over.load(Ordering::Relaxed) {
                let Ok(n) = socket.read(&mut packet) else { continue };
                // The packet begins with its IPv4 header, whose length is in its first byte.
                let tcp = &packet[usize::from(packet[0] & 15) * 4..n];
                let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
                if ports.contains(&port(0)) || ports.contains(&port(2)) {
                    keep.lock().unwrap().extend_from_slice(&tcp[usize::from(tcp[12] >> 4) * 4..]);
                }
            }
        });
        Some(Tap { seen, stop, thread: Some(thread) })
    }

    fn has(&self, text: &str) -> bool {
        self.seen.lock().unwrap().windows(text.len()).any(|some| some == text.as_bytes())
    }

    /// A tap that sees nothing would prove nothing.
    fn check(&self, port: u16) {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        TcpStream::connect(("127.0.0.1", port)).unwrap().write_all(CANARY.as_bytes()).unwrap();
        drop(listener);
        eventually("the tap sees what is sent in clear text", || match self.has(CANARY) {
            true => Ok(()),
            false => Err("not yet".to_owned()),
        });
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn write_everywhere(cluster: &Cluster, round: u32) {
    for n in 1..=3 {
        let mut client = client_in_d(cluster, n);
        for i in 0..50 {
            let id = round * 1000 + u32::from(n) * 100 + i;
            client.run(&format!("INSERT INTO t VALUES ({id}, REPEAT('{MARK}', 20))"));
        }
    }
    assert_equal(cluster);
}

pub fn an_encrypted_group_takes_new_certificates(bed: &Bed) {
    let mut spec = bed.spec();
    spec.tls = true;
    spec.arbitrator = arbitrator::command(bed);
    let own_port = spec.base_port + 90;
    // The second port of each node's ten.
    let tap = Tap::of((0..4).map(|n| spec.base_port + 10 * n + 1).chain([own_port]).collect());
    match &tap {
        Some(tap) => tap.check(own_port),
        None => println!("  without root nobody listens on the wire"),
    }
    let mut cluster = bed.up(&spec);
    let size = cluster.ids().len().to_string();
    schema(&cluster, 1);
    client_in_d(&cluster, 1).run("CREATE TABLE t (id INT PRIMARY KEY, pad TEXT)");
    write_everywhere(&cluster, 1);

    // A file that does not fit is refused, and harms nobody.
    let reload = "SET GLOBAL wsrep_provider_options = 'socket.ssl_reload=1'";
    let key = cluster.node(node(1)).unwrap().tls_files().key;
    let good = std::fs::read(&key).unwrap();
    std::fs::write(&key, "no key").unwrap();
    assert_eq!(client(&cluster, 1).refused(reload), 1210);
    std::fs::write(&key, good).unwrap();
    client(&cluster, 1).run(reload);

    // Another authority, while all run; then every link is made anew, one node after the other.
    let fresh = Authority::new("the next one").unwrap();
    for id in cluster.ids() {
        cluster.certify(id, &fresh).unwrap();
    }
    for n in 1..=3 {
        client(&cluster, n).run(reload);
    }
    write_everywhere(&cluster, 2);
    // An arbitrator reads its files when it starts.
    for id in cluster.ids().into_iter().rev() {
        cluster.stop(id, Stop::Graceful).unwrap();
        cluster.start(id, Start::Recover, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
        for other in 1..=3 {
            await_status(&cluster, other, "wsrep_cluster_size", &size);
        }
    }
    write_everywhere(&cluster, 3);

    if let Some(tap) = tap {
        let bytes = tap.seen.lock().unwrap().len();
        // 450 rows of 320 bytes to two others each.
        assert!(bytes > 450 * 320 * 2, "only {bytes} bytes were seen");
        assert!(!tap.has(MARK) && !tap.has("node1"), "clear text among {bytes} bytes");
    }
    drop(cluster);
    assert!(!spec.dir.exists(), "the authority goes with its cluster");
}
