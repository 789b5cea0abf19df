//! Many clients at once: servers are not run over, those who find no place wait, and a server that comes back is not flooded.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::*;

/// A greeting takes it so long.
const TAKES: Duration = Duration::from_millis(10);

/// A server that is slow to greet, and counts.
struct Slow {
    address: String,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    /// Connections that are not greeted yet, and the most that there were.
    greeting: AtomicUsize,
    greeting_most: AtomicUsize,
    greeted: AtomicUsize,
    /// Sessions of clients, and the most that there were.
    sessions: AtomicUsize,
    sessions_most: AtomicUsize,
    stopped: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Slow {
    fn start(name: &'static str) -> Slow {
        Slow::start_at(name, "127.0.0.1:0")
    }

    fn start_at(name: &'static str, address: &str) -> Slow {
        let listener = TcpListener::bind(address).unwrap();
        let slow = Slow { address: listener.local_addr().unwrap().to_string(), counts: Arc::default() };
        let counts = slow.counts.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if counts.stopped.load(SeqCst) {
                    return;
                }
                counts.streams.lock().unwrap().push(stream.try_clone().unwrap());
                let counts = counts.clone();
                let serve = move || drop(counts.serve(stream, name));
                thread::Builder::new().stack_size(64 * 1024).spawn(serve).unwrap();
            }
        });
        slow
    }

    /// It dies: nobody listens there any more, and its sessions end.
    fn die(&self) {
        self.counts.stopped.store(true, SeqCst);
        let _ = TcpStream::connect(&self.address);
        await_that("its port is closed", || TcpStream::connect(&self.address).is_err());
        for stream in self.counts.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    fn forget(&self) {
        self.counts.greeting_most.store(0, SeqCst);
        self.counts.greeted.store(0, SeqCst);
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.counts.stopped.store(true, SeqCst);
        let _ = TcpStream::connect(&self.address);
    }
}

impl Counts {
    fn serve(&self, mut stream: TcpStream, name: &str) -> std::io::Result<()> {
        self.greeting_most.fetch_max(self.greeting.fetch_add(1, SeqCst) + 1, SeqCst);
        thread::sleep(TAKES);
        self.greeting.fetch_sub(1, SeqCst);
        self.greeted.fetch_add(1, SeqCst);
        stream.write_all(&greeting(name))?;
        let mut head = [0; 4];
        stream.read_exact(&mut head)?;
        let mut body = vec![0; usize::from(head[0])];
        stream.read_exact(&mut body)?;
        if head[3] == 1 {
            // A login: the balancer looks at us.
            loop {
                stream.write_all(&packet(2, b"\0\0\0\x02\0\0\0"))?;
                read_packet(&mut stream)?;
            }
        }
        self.sessions_most.fetch_max(self.sessions.fetch_add(1, SeqCst) + 1, SeqCst);
        let echoed = (|| {
            stream.write_all(&[&head[..], &body].concat())?;
            std::io::copy(&mut stream.try_clone()?, &mut stream)
        })();
        self.sessions.fetch_sub(1, SeqCst);
        stream.shutdown(std::net::Shutdown::Both)?;
        echoed.map(drop)
    }
}

/// All at once; each with its session begun.
fn storm(balancer: &Balancer, many: usize) -> Vec<TcpStream> {
    let mut clients: Vec<TcpStream> = (0..many).map(|_| balancer.connect(0)).collect();
    for client in &mut clients {
        greeted(client).unwrap();
        assert_echo(client, &packet(7, b"I am here"));
    }
    clients
}

fn connections(balancer: &Balancer) -> Vec<u64> {
    let status = balancer.status();
    status["nodes"].as_array().unwrap().iter().map(|node| node["connections"].as_u64().unwrap()).collect()
}

#[test]
fn clients_of_a_server_that_died_come_to_the_next_one_at_its_own_pace() {
    const CLIENTS: usize = 200;
    const AT_ONCE: usize = 4;
    let (place, one, two) = (Place::new(), Slow::start("one"), Slow::start("two"));
    let words = "--any 127.0.0.1:0 --policy single --hold 30s";
    let words = format!("--nodes {},{} {words} --connecting-limit {AT_ONCE}", one.address, two.address);
    let balancer = Balancer::start(&place, &words);
    balancer.await_ready();
    one.forget();
    let mut clients = storm(&balancer, CLIENTS);
    let (first, next) = if one.counts.sessions.load(SeqCst) > 0 { (&one, &two) } else { (&two, &one) };
    assert_eq!(first.counts.sessions.load(SeqCst), CLIENTS);
    let most = first.counts.greeting_most.load(SeqCst);
    assert!((2..=AT_ONCE + 1).contains(&most), "{most} at once, with one that looks");
    next.forget();
    first.die();
    for client in &mut clients {
        assert_eq!(client.read(&mut [0; 16]).unwrap_or(0), 0, "their sessions end");
    }
    drop(clients);
    let clients = storm(&balancer, CLIENTS);
    assert_eq!(next.counts.sessions.load(SeqCst), CLIENTS);
    let most = next.counts.greeting_most.load(SeqCst);
    assert!((2..=AT_ONCE + 1).contains(&most), "{most} at once, with one that looks");
    assert_eq!(balancer.status()["totals"]["refused_unfit"], 0);
    drop(clients);
}

#[test]
fn who_finds_no_place_waits_for_one_and_is_told_if_none_comes() {
    const PLACES: usize = 10;
    let (place, one, two) = (Place::new(), Slow::start("one"), Slow::start("two"));
    let words = format!(
        "--nodes {},{} --any 127.0.0.1:0 --hold 20s --node-limit {PLACES} --max-connections {}",
        one.address,
        two.address,
        3 * PLACES
    );
    let balancer = Balancer::start(&place, &words);
    balancer.await_ready();
    await_that("both are ready", || {
        balancer.status()["nodes"].as_array().unwrap().iter().all(|n| n["state"] == "ready")
    });
    let mut seated = storm(&balancer, 2 * PLACES);
    assert_eq!(connections(&balancer), [PLACES as u64; 2]);
    let mut waiting: Vec<TcpStream> = (0..PLACES).map(|_| balancer.connect(0)).collect();
    await_that("they wait", || balancer.status()["totals"]["held"].as_u64().unwrap() >= PLACES as u64);
    // One more than there may be is not even kept waiting.
    await_that("all are counted", || balancer.status()["clients"] == 3 * PLACES);
    assert_eq!(greeted(&mut balancer.connect(0)).unwrap_err().0, 1040);
    seated.drain(..PLACES);
    for client in &mut waiting {
        greeted(client).unwrap();
        assert_echo(client, &packet(7, b"I am here"));
    }
    for server in [&one, &two] {
        assert!(server.counts.sessions_most.load(SeqCst) <= PLACES);
    }
    drop((seated, waiting));

    let place = Place::new();
    let words = format!("--nodes {} --any 127.0.0.1:0 --hold 200ms --node-limit 1", one.address);
    let balancer = Balancer::start(&place, &words);
    balancer.await_ready();
    let _seated = storm(&balancer, 1);
    let (code, text) = greeted(&mut balancer.connect(0)).unwrap_err();
    assert!(code == 1040 && text.contains("as many connections as it may"), "{code} {text}");
}

#[test]
fn a_server_that_comes_back_begins_with_a_small_share() {
    const CLIENTS: usize = 20;
    for (ramp, range) in [("1h", 1..=3), ("0", 8..=CLIENTS)] {
        let (place, one, two) = (Place::new(), Slow::start("one"), Slow::start("two"));
        let nodes = format!("{},{}", one.address, two.address);
        let balancer = Balancer::start(&place, &format!("--nodes {nodes} --any 127.0.0.1:0 --ramp {ramp}"));
        balancer.await_ready();
        let status = || balancer.status()["nodes"].as_array().unwrap().clone();
        let ready = || status().iter().filter(|n| n["state"] == "ready").count();
        await_that("both are ready", || ready() == 2);
        two.die();
        await_that("it is out", || ready() == 1);
        let first = storm(&balancer, CLIENTS);
        let again = Slow::start_at("two", &two.address);
        await_that("it is back", || ready() == 2);
        let second = storm(&balancer, CLIENTS);
        let got = again.counts.sessions.load(SeqCst);
        assert!(range.contains(&got), "{got} of {CLIENTS} with --ramp {ramp}");
        drop((first, second));
    }
}
