//! Bytes, addresses, limits, and clients that misbehave.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::*;

#[test]
fn bytes_pass_by_every_kind_of_listener() {
    let (place, server) = (Place::new(), Server::start("one", Manner::Echo));
    let socket = place.path("any");
    let six = TcpListener::bind("[::1]:0").is_ok();
    let listeners = if six { "--any [::1]:0" } else { "" };
    let balancer = Balancer::start(
        &place,
        &format!("--nodes {} --writer 127.0.0.1:0 --any {socket} {listeners} --hold 20s", server.address),
    );
    balancer.await_ready();
    let large: Vec<u8> = (0..5_000_000u32).map(|i| (i >> 3) as u8).collect();
    for n in 0..if six { 3 } else { 2 } {
        let address = balancer.address(n);
        if address.starts_with('/') {
            let stream = UnixStream::connect(&address).unwrap();
            carry(stream.try_clone().unwrap(), stream, &large, |s| s.shutdown(Shutdown::Write).unwrap());
        } else {
            let stream = TcpStream::connect(&address).unwrap();
            carry(stream.try_clone().unwrap(), stream, &large, |s| s.shutdown(Shutdown::Write).unwrap());
        }
    }
    await_that("the sessions are over", || balancer.status()["clients"] == 0);
    await_that("the server sees that", || server.clients.load(Ordering::Relaxed) == 0);
}

/// Sends everything, ends its half, and expects everything back and then the end.
fn carry<S: Read + Write + Send + 'static>(
    mut read: S,
    mut write: S,
    bytes: &[u8],
    end: impl FnOnce(&S) + Send + 'static,
) {
    assert_eq!(greeted(&mut read), Ok("one".to_owned()));
    let sent = bytes.to_vec();
    let sender = thread::spawn(move || {
        write.write_all(&sent).unwrap();
        end(&write);
    });
    let mut back = Vec::new();
    read.read_to_end(&mut back).unwrap();
    sender.join().unwrap();
    assert!(back == bytes, "{} of {} bytes came back", back.len(), bytes.len());
}

#[test]
fn a_server_learns_who_the_client_is() {
    let (place, server) = (Place::new(), Server::start("one", Manner::Proxied));
    let inner = Balancer::start_as(
        &place,
        "inner",
        &format!("--nodes {} --any 127.0.0.1:0 --send-proxy --accept-proxy 127.0.0.0/8", server.address),
        None,
    );
    inner.await_ready();
    // In front of it something that says that the client is 192.0.2.1.
    let mut client = inner.connect(0);
    client.write_all(b"PROXY TCP4 192.0.2.1 192.0.2.2 4000 3306\r\n").unwrap();
    greeted(&mut client).unwrap();
    assert_echo(&mut client, &packet(7, b"hello"));
    let headers = server.headers.lock().unwrap().clone();
    assert_eq!(headers.len(), 1);
    assert_eq!(headers[0][16..20], [192, 0, 2, 1]);
    assert_eq!(headers[0][24..26], 4000u16.to_be_bytes());
    // A client that does not say it is sent away.
    let mut liar = inner.connect(0);
    liar.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(liar.read(&mut [0; 16]).unwrap_or(0), 0);
}

#[test]
fn clients_beyond_the_limit_get_an_error_that_they_understand() {
    let (place, server) = (Place::new(), Server::start("one", Manner::Echo));
    let words = format!("--nodes {} --any 127.0.0.1:0 --max-connections 2", server.address);
    let balancer = Balancer::start(&place, &words);
    balancer.await_ready();
    let (mut first, mut second) = (balancer.connect(0), balancer.connect(0));
    greeted(&mut first).unwrap();
    greeted(&mut second).unwrap();
    let (code, text) = greeted(&mut balancer.connect(0)).unwrap_err();
    assert_eq!(code, 1040, "{text}");
    drop(first);
    await_that("a place is free", || greeted(&mut balancer.connect(0)).is_ok());
}

#[test]
fn a_full_server_makes_clients_wait_and_hands_them_on() {
    let (place, server) = (Place::new(), Server::start("one", Manner::Echo));
    let words = format!("--nodes {} --any 127.0.0.1:0 --node-limit 1 --hold 20s", server.address);
    let balancer = Balancer::start(&place, &words);
    balancer.await_ready();
    let mut first = balancer.connect(0);
    greeted(&mut first).unwrap();
    let mut second = balancer.connect(0);
    await_that("the second waits", || balancer.status()["totals"]["held"] == 1);
    drop(first);
    greeted(&mut second).unwrap();
}

#[test]
fn clients_are_held_while_nobody_is_there_and_refused_after_it() {
    let place = Place::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let balancer = Balancer::start(&place, &format!("--nodes {free} --writer 127.0.0.1:0 --hold 1500ms"));
    let began = Instant::now();
    let (code, text) = greeted(&mut balancer.connect(0)).unwrap_err();
    assert_eq!(code, 1047, "{text}");
    assert!(began.elapsed() >= Duration::from_millis(1500), "{:?}", began.elapsed());
    let mut held = balancer.connect(0);
    await_that("it waits", || balancer.status()["totals"]["held"] == 2);
    let _server = Server::start_at("late", Manner::Echo, &free);
    assert_eq!(greeted(&mut held), Ok("late".to_owned()));
}

#[test]
fn a_server_that_takes_nobody_is_passed_over() {
    let place = Place::new();
    let (full, good) = (Server::start("full", Manner::Full), Server::start("good", Manner::Echo));
    let words = format!("--nodes {},{} --listen 127.0.0.1:0=any:round", full.address, good.address);
    let balancer = Balancer::start(&place, &words);
    await_that("both answer", || balancer.status()["nodes"].as_array().unwrap().iter().all(|n| n["state"] == "ready"));
    for _ in 0..6 {
        assert_eq!(greeted(&mut balancer.connect(0)), Ok("good".to_owned()));
    }
    let failed = balancer.status()["nodes"][0]["failed"].as_u64().unwrap();
    assert!(failed >= 2, "{failed}");
}

#[test]
fn a_server_that_never_greets_is_passed_over() {
    let place = Place::new();
    let (mute, good) = (Server::start("mute", Manner::Mute), Server::start("good", Manner::Echo));
    let words = format!("--nodes {},{} --any 127.0.0.1:0", mute.address, good.address);
    let balancer = Balancer::start(&place, &words);
    balancer.await_ready();
    for _ in 0..3 {
        assert_eq!(greeted(&mut balancer.connect(0)), Ok("good".to_owned()));
    }
    await_that("the mute one is called silent", || {
        balancer.status()["nodes"].as_array().unwrap().iter().any(|n| n["reason"] == "silent")
    });
}

/// Such a client would lose what it has said if it went to a server before that has accepted.
#[test]
fn who_speaks_first_is_led_past_a_server_that_is_not_there() {
    use std::os::unix::fs::PermissionsExt;
    let (place, good) = (Place::new(), Server::start("good", Manner::Echo));
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // It says that both are ready.
    let script = place.path("dog");
    std::fs::write(&script, "#!/bin/sh\nwhile read line; do echo 3; done\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let words = format!(
        "--nodes {dead},{} --no-discover --listen 127.0.0.1:0=any:round --interval 20ms --exec {script}",
        good.address
    );
    let balancer = Balancer::start(&place, &words);
    balancer.await_ready();
    let refusals =
        || balancer.status()["nodes"].as_array().unwrap().iter().map(|n| n["outages"].as_u64().unwrap()).sum();
    await_that("some were led there", || {
        let mut client = balancer.connect(0);
        client.write_all(&packet(7, b"before the greeting")).unwrap();
        assert_eq!(greeted(&mut client), Ok("good".to_owned()));
        assert_eq!(read_packet(&mut client).unwrap(), b"before the greeting");
        let refusals: u64 = refusals();
        refusals >= 3
    });
}

#[test]
fn clients_that_misbehave_harm_nobody_else() {
    let (place, server) = (Place::new(), Server::start("one", Manner::Echo));
    let balancer = Balancer::start(&place, &format!("--nodes {} --any 127.0.0.1:0", server.address));
    balancer.await_ready();
    let address = balancer.address(0);
    let mut good = balancer.connect(0);
    greeted(&mut good).unwrap();
    assert_echo(&mut good, &packet(7, b"before"));
    let mut keep = Vec::new();
    for i in 0..300u32 {
        let mut bad = TcpStream::connect(&address).unwrap();
        match i % 4 {
            // Garbage at once.
            0 => drop(bad.write_all(&[0xff; 3000])),
            // Half a packet, and silence.
            1 => {
                let _ = bad.write_all(&[200, 0]);
                keep.push(bad);
            }
            // Nothing at all.
            2 => keep.push(bad),
            // Comes and goes.
            _ => drop(bad),
        }
    }
    assert_echo(&mut good, &packet(7, &[7; 10_000]));
    let mut another = balancer.connect(0);
    greeted(&mut another).unwrap();
    drop(keep);
    await_that("they are gone", || balancer.status()["clients"] == 2);
}

#[test]
fn a_reader_that_does_not_read_costs_little_memory() {
    let (place, server) = (Place::new(), Server::start("one", Manner::Echo));
    let balancer = Balancer::start(&place, &format!("--nodes {} --any 127.0.0.1:0", server.address));
    balancer.await_ready();
    let mut client = balancer.connect(0);
    greeted(&mut client).unwrap();
    let before = resident_kb(balancer.pid());
    client.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    client.write_all(&packet(7, b"")).unwrap();
    let mut sent = 0;
    // Until every buffer on the way there and back is full.
    while let Ok(n) = client.write(&[1; 65536]) {
        sent += n;
        assert!(sent < 200 << 20, "{sent} bytes went somewhere");
    }
    let grown = resident_kb(balancer.pid()).saturating_sub(before);
    assert!(grown < 4096, "{grown} kB for one client that does not read");
}

#[test]
fn servers_that_answer_wrongly_or_late_are_left_out() {
    for (manner, reason) in
        [(Manner::Garbage, "wrong"), (Manner::Half, "silent"), (Manner::Late, "silent"), (Manner::Endless, "wrong")]
    {
        let place = Place::new();
        let (bad, good) = (Server::start("bad", manner), Server::start("good", Manner::Echo));
        let words = format!("--nodes {},{} --listen 127.0.0.1:0=any:round", bad.address, good.address);
        let balancer = Balancer::start(&place, &words);
        balancer.await_ready();
        let before = resident_kb(balancer.pid());
        await_that(&format!("the bad one is out as {reason}"), || {
            let status = balancer.status();
            let nodes = status["nodes"].as_array().unwrap();
            nodes.iter().any(|n| n["address"] == bad.address.as_str() && n["state"] == "out" && n["reason"] == reason)
        });
        for _ in 0..4 {
            assert_eq!(greeted(&mut balancer.connect(0)), Ok("good".to_owned()), "{reason}");
        }
        let grown = resident_kb(balancer.pid()).saturating_sub(before);
        assert!(grown < 8192, "{grown} kB for a server that answers wrongly");
    }
}

/// Set in a process that is nothing but a server: its sessions count against its own limit of open files.
const PLAYS: &str = "TRIREME_PLAYS_A_SERVER";

#[test]
#[ignore = "part of another test"]
fn plays_a_server() {
    if std::env::var_os(PLAYS).is_none() {
        return;
    }
    raise_limit();
    let server = Server::start("one", Manner::Echo);
    println!("\nlistens at {}", server.address);
    // Until the other test ends.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

struct ServerProcess {
    child: Child,
    address: String,
}

impl ServerProcess {
    fn start() -> ServerProcess {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "bytes::plays_a_server", "--ignored", "--nocapture"])
            .env(PLAYS, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines.find_map(|line| line.unwrap().strip_prefix("listens at ").map(str::to_owned));
        // Nobody reads what comes later, which is little.
        ServerProcess { child, address: said.expect("it says where it listens") }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Each takes two descriptors of the balancer. Where those do not suffice, as many are served as it has room for, and each of the others is told so.
#[test]
fn ten_thousand_that_do_nothing_cost_little_and_others_go_on() {
    const CLIENTS: usize = 10_000;
    raise_limit();
    if soft_limit() < CLIENTS as u64 + 200 {
        eprintln!("skipped: the limit of open files is {}", soft_limit());
        return;
    }
    let (place, server) = (Place::new(), ServerProcess::start());
    let balancer = Balancer::start(&place, &format!("--nodes {} --any 127.0.0.1:0 --hold 25s", server.address));
    balancer.await_ready();
    let room = balancer.status()["clients_max"].as_u64().unwrap() as usize;
    let address = balancer.address(0);
    let mut one = balancer.connect(0);
    greeted(&mut one).unwrap();
    let before = resident_kb(balancer.pid());
    let mut idle: Vec<TcpStream> = (0..CLIENTS).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let limit = format!("{room} clients are connected, which is the limit");
    idle.retain_mut(|stream| {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        match greeted(stream) {
            Ok(_) => true,
            Err((1040, text)) if text.contains(&limit) => false,
            Err(other) => panic!("{other:?}"),
        }
    });
    assert_eq!(idle.len(), CLIENTS.min(room - 1), "everybody for whom there is room");
    println!("{} of {CLIENTS} clients are served, the others know why not", idle.len());
    let each = (resident_kb(balancer.pid()) - before) / idle.len() as u64;
    assert!(each < 16, "{each} kB for a client that does nothing");
    assert_echo(&mut one, &packet(7, b"still here"));
    // The place of one that goes is the next one's.
    let gone = idle.len() / 2;
    idle.swap_remove(gone);
    await_that("another one is served", || greeted(&mut balancer.connect(0)).is_ok());
}

#[test]
fn descriptors_that_run_out_come_back() {
    let (place, server) = (Place::new(), Server::start("one", Manner::Echo));
    let log = place.path("log");
    let words = format!("--nodes {} --any 127.0.0.1:0 --hold 300ms 2>{log}", server.address);
    let balancer = Balancer::start_as(&place, "control", &words, Some(40));
    balancer.await_ready();
    let address = balancer.address(0);
    let mut good = balancer.connect(0);
    greeted(&mut good).unwrap();
    let flood: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(&address).unwrap()).collect();
    // Meanwhile it serves those that it has.
    assert_echo(&mut good, &packet(7, b"during"));
    await_that("it says what is wrong", || {
        std::fs::read_to_string(&log).unwrap().contains("cannot accept clients: Too many open files")
    });
    drop(flood);
    await_that("new clients are served", || {
        let mut client = TcpStream::connect(&address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = [0; 5];
        client.read_exact(&mut head).is_ok() && head[4] == 10
    });
    assert_echo(&mut good, &packet(7, b"after"));
}

fn resident_kb(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// To what ten thousand take, or to the hard limit of this process. Its children inherit it.
fn raise_limit() {
    for wanted in ["20600:20600", "20600:", ":"] {
        let soft = if wanted == ":" { hard_limit() } else { wanted.to_owned() };
        let arguments = [format!("--pid={}", std::process::id()), format!("--nofile={soft}")];
        let done = std::process::Command::new("prlimit").args(arguments).stderr(std::process::Stdio::null()).status();
        if done.is_ok_and(|status| status.success()) {
            return;
        }
    }
}

fn hard_limit() -> String {
    let text = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = text.lines().find(|line| line.starts_with("Max open files")).unwrap();
    format!("{}:", line.split_whitespace().nth(4).unwrap())
}

fn soft_limit() -> u64 {
    let text = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = text.lines().find(|line| line.starts_with("Max open files")).unwrap();
    line.split_whitespace().nth(3).unwrap().parse().unwrap_or(u64::MAX)
}
