//! Monitors beside the servers: what they push is known at once, and the servers' own answers are enough where none does.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::split::Member;
use crate::support::*;

/// Pushes what it is told to everybody who asked with its token.
struct Monitor {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Monitor {
    fn start(token: &'static str) -> Monitor {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let monitor = Monitor {
            address: listener.local_addr().unwrap().to_string(),
            asked: Arc::default(),
            streams: Arc::default(),
        };
        let (asked, streams) = (monitor.asked.clone(), monitor.streams.clone());
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n > 0) {
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let right = head.contains(&format!("Authorization: Bearer {token}\r\n"));
                let status = if right { "200 OK" } else { "401 Unauthorized" };
                let answer = format!("HTTP/1.1 {status}\r\nContent-Type: text/event-stream\r\n\r\n");
                asked.lock().unwrap().push(head);
                if stream.write_all(answer.as_bytes()).is_ok() && right {
                    streams.lock().unwrap().push(stream);
                }
            }
        });
        monitor
    }

    fn push(&self, text: &str) {
        self.streams.lock().unwrap().retain_mut(|stream| stream.write_all(text.as_bytes()).is_ok());
    }

    /// As the reader's own monitor, which does not hear these.
    fn misses(&self, silent: &[&str]) {
        let event = serde_json::json!({
            "name": "reader", "alive": true, "age": 0.05, "role": "voter", "sequencer": "writer", "term": 2, "silent": silent,
        });
        self.push(&format!("event: node\ndata: {event}\n\n"));
    }
}

/// Two members whose answers never say that one misses the other, and a balancer that waits for answers far longer than a test.
fn stage(place: &Place, words: &str) -> (Member, Member, Balancer) {
    let (writer, reader) = (Member::start("writer", true), Member::start("reader", false));
    let words = format!("--nodes {},{} --writer 127.0.0.1:0 --timeout 10m {words}", writer.address, reader.address);
    let balancer = Balancer::start(place, &words);
    balancer.await_ready();
    await_that("both have answered", || {
        balancer.status()["nodes"].as_array().unwrap().iter().all(|node| node["state"] == "ready")
    });
    (writer, reader, balancer)
}

fn open_until_it_ends(kept: &mut TcpStream, mut meanwhile: impl FnMut()) {
    kept.set_nonblocking(true).unwrap();
    await_that("the session ends", || {
        meanwhile();
        !matches!(kept.read(&mut [0; 16]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    });
}

#[test]
fn a_frozen_server_is_left_by_what_a_monitor_pushes() {
    let place = Place::new();
    let (monitor, token) = (Monitor::start("word"), place.path("token"));
    std::fs::write(&token, "word\n").unwrap();
    let words = format!("--monitors {} --monitor-token-file {token}", monitor.address);
    let (writer, _reader, balancer) = stage(&place, &words);
    await_that("the monitor is listened to", || {
        monitor.misses(&[]);
        balancer.status()["totals"]["pushed"].as_u64().unwrap() > 0
    });
    assert!(monitor.asked.lock().unwrap()[0].starts_with("GET /watch?node HTTP/1.1\r\n"));
    let mut kept = balancer.connect(0);
    greeted(&mut kept).unwrap();
    writer.freeze();
    open_until_it_ends(&mut kept, || monitor.misses(&["writer"]));
}

#[test]
fn a_monitor_that_is_none_or_goes_changes_nothing() {
    let place = Place::new();
    let (strict, wrong) = (Monitor::start("another word"), Monitor::start("word"));
    let (token, down) = (place.path("token"), TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    std::fs::write(&token, "word\n").unwrap();
    let words = format!("--monitors {},{},{down} --monitor-token-file {token}", strict.address, wrong.address);
    let (_writer, _reader, balancer) = stage(&place, &words);
    await_that("both are asked", || {
        !strict.asked.lock().unwrap().is_empty() && !wrong.asked.lock().unwrap().is_empty()
    });
    // Not an event, an event of another kind, one of an unknown member, and then a line without an end.
    wrong.push("data: {\"nodes\": [1, {}]}\n\ndata: nonsense\n\n\x00\n: comment\n");
    wrong.push("data: {\"name\": \"x\", \"alive\": true, \"age\": 0.0, \"role\": \"voter\", \"sequencer\": \"x\", \"term\": 9, \"silent\": [\"reader\"]}\n\n");
    await_that("what can be read is", || balancer.status()["totals"]["pushed"].as_u64().unwrap() == 1);
    let long = "x".repeat(1 << 20);
    await_that("it is left", || {
        wrong.push(&long);
        wrong.streams.lock().unwrap().is_empty()
    });
    greeted(&mut balancer.connect(0)).unwrap();
    let status = balancer.status();
    assert!(status["nodes"].as_array().unwrap().iter().all(|node| node["state"] == "ready" && node["outages"] == 0));
}

/// `trireme monitor`, with a state file that the test writes as a node does.
struct Beside {
    child: Child,
    address: String,
    dir: String,
    written: u64,
}

impl Beside {
    fn start(place: &Place) -> Beside {
        let dir = place.path("data");
        std::fs::create_dir(&dir).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut beside = Beside { child: Command::new("true").spawn().unwrap(), address, dir, written: 0 };
        beside.write("");
        beside.child = Command::new(env!("CARGO_BIN_EXE_trireme"))
            .args(["monitor", "--data-dir", &beside.dir, "--listen", &beside.address])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        beside
    }

    fn write(&mut self, silent: &str) {
        self.written += 1;
        let mut body = trireme_metrics::Body::default();
        for (name, number) in [("trireme_primary", 1.0), ("trireme_local_state", 4.0), ("trireme_term", 2.0)] {
            body.number(name, number);
        }
        for (name, text) in [("name", "reader"), ("role", "voter"), ("sequencer", "writer"), ("silent", silent)] {
            body.text(name, text);
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let bytes = body.encode(self.written, now.as_nanos() as u64, std::process::id(), false);
        // In place, as a node writes it; one that is read in between has a wrong checksum.
        std::fs::write(format!("{}/{}", self.dir, trireme_metrics::state::FILE_NAME), bytes).unwrap();
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn our_monitor_pushes_what_its_node_writes() {
    let place = Place::new();
    let mut beside = Beside::start(&place);
    let (writer, _reader, balancer) = stage(&place, &format!("--monitors {}", beside.address));
    await_that("the monitor is listened to", || {
        beside.write("");
        balancer.status()["totals"]["pushed"].as_u64().unwrap() > 0
    });
    let mut kept = balancer.connect(0);
    greeted(&mut kept).unwrap();
    writer.freeze();
    open_until_it_ends(&mut kept, || beside.write("writer"));
}
