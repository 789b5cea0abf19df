//! Commands, reloading, handing over, HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::*;

#[test]
fn commands_of_glb_and_ours() {
    let place = Place::new();
    let (one, two) = (Server::start("one", Manner::Echo), Server::start("two", Manner::Echo));
    let balancer = Balancer::start(&place, &format!("--nodes {} --any 127.0.0.1:0", one.address));
    balancer.await_ready();
    assert_eq!(balancer.ask(&format!("{}:2", two.address)), "Ok\n");
    await_that("the new one is used", || greeted(&mut balancer.connect(0)) == Ok("two".to_owned()));
    let table = balancer.ask("getinfo");
    assert!(table.contains(&two.address) && table.contains("Destinations: 2, total connections:"), "{table}");
    let stat = balancer.ask("getstat");
    assert!(stat.starts_with("in: ") && stat.contains(" elapsed: "), "{stat}");

    // Drained: its session goes on, new ones go elsewhere.
    let mut kept = balancer.connect(0);
    let on = greeted(&mut kept).unwrap();
    let (drained, other) = if on == "one" { (&one, "two") } else { (&two, "one") };
    assert_eq!(balancer.ask(&format!("drain {}", drained.address)), "Ok\n");
    for _ in 0..5 {
        assert_eq!(greeted(&mut balancer.connect(0)), Ok(other.to_owned()));
    }
    assert_echo(&mut kept, &packet(7, b"goes on"));
    assert_eq!(balancer.ask(&format!("undrain {}", drained.address)), "Ok\n");
    // Removed: its session ends.
    assert_eq!(balancer.ask(&format!("remove {}", drained.address)), "Ok\n");
    assert_eq!(kept.read(&mut [0; 16]).unwrap_or(0), 0);
    for bad in ["drain 10.1.2.3:4", "set", "nonsense", "handover_", "set 127.0.0.1:1 -x"] {
        assert!(balancer.ask(bad).starts_with("Error: "), "{bad}");
    }
}

#[test]
fn the_control_socket_stands_abuse() {
    use std::os::unix::fs::PermissionsExt;
    let (place, server) = (Place::new(), Server::start("one", Manner::Echo));
    let balancer = Balancer::start(&place, &format!("--nodes {} --any 127.0.0.1:0", server.address));
    balancer.await_ready();
    let mode = std::fs::metadata(&balancer.control).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut long = UnixStream::connect(&balancer.control).unwrap();
    // The other side closes in the middle of it.
    let _ = long.write_all(&vec![b'x'; 1 << 20]);
    assert_eq!(long.read(&mut [0; 16]).unwrap_or(0), 0);
    let mut binary = UnixStream::connect(&balancer.control).unwrap();
    binary.write_all(b"\xff\xfe\0\n").unwrap();
    let many: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(&balancer.control).unwrap()).collect();
    greeted(&mut balancer_client(&balancer, &many)).unwrap();
    drop(many);
    await_that("commands are taken again", || {
        try_ask(balancer.control.as_ref(), "getinfo").is_ok_and(|table| table.starts_with("Router:"))
    });
}

/// A client while the control socket is full, so that its address cannot be asked for.
fn balancer_client(balancer: &Balancer, _full: &[UnixStream]) -> TcpStream {
    let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", balancer.pid())).unwrap();
    let inodes: Vec<String> = std::fs::read_dir(format!("/proc/{}/fd", balancer.pid()))
        .unwrap()
        .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok()?.to_str().map(str::to_owned))
        .collect();
    let port = table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ours = words[3] == "0A" && inodes.contains(&format!("socket:[{}]", words[9]));
        ours.then(|| u16::from_str_radix(words[1].split(':').nth(1).unwrap(), 16).unwrap())
    });
    let stream = TcpStream::connect(("127.0.0.1", port.expect("it listens"))).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn a_configuration_is_read_again_without_losing_a_session() {
    let place = Place::new();
    let (one, two) = (Server::start("one", Manner::Echo), Server::start("two", Manner::Echo));
    let (file, socket, extra) = (place.path("conf"), place.path("clients"), place.path("more"));
    std::fs::write(&file, format!("nodes = {},{}\nany = {socket}\n", one.address, two.address)).unwrap();
    let balancer = Balancer::start(&place, &format!("--config {file}"));
    balancer.await_ready();
    let mut kept = UnixStream::connect(&socket).unwrap();
    kept.set_read_timeout(Some(PATIENCE)).unwrap();
    let on = greeted(&mut kept).unwrap();
    let (goes, stays) = if on == "one" { (&one, &two) } else { (&two, &one) };
    let added = Server::start("added", Manner::Echo);
    assert_eq!(balancer.ask(&format!("add {}", added.address)), "Ok\n");

    // The server of the session is not in the file any more.
    std::fs::write(&file, format!("nodes = {}\nany = {socket}\nany = {extra}\n", stays.address)).unwrap();
    balancer.signal("HUP");
    await_that("the new listener is there", || UnixStream::connect(&extra).is_ok());
    let servers = || {
        let status = balancer.status();
        let addresses = status["nodes"].as_array().unwrap().iter().map(|node| node["address"].as_str().unwrap());
        addresses.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(servers().len(), 3);
    for _ in 0..6 {
        let mut client = UnixStream::connect(&extra).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_ne!(greeted(&mut client).unwrap(), on, "no new clients");
    }
    assert_echo(&mut kept, &packet(7, b"goes on"));
    drop(kept);
    await_that("it is gone with its last session", || !servers().contains(&goes.address));
    assert_eq!(servers(), [stays.address.clone(), added.address.clone()]);
}

#[test]
fn a_wrong_configuration_changes_nothing() {
    let (place, one) = (Place::new(), Server::start("one", Manner::Echo));
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap();
    let (file, socket, extra) = (place.path("conf"), place.path("clients"), place.path("more"));
    let right = format!("nodes = {}\nany = {socket}\n", one.address);
    std::fs::write(&file, &right).unwrap();
    let balancer = Balancer::start(&place, &format!("--config {file}"));
    balancer.await_ready();
    let mut kept = UnixStream::connect(&socket).unwrap();
    kept.set_read_timeout(Some(PATIENCE)).unwrap();
    greeted(&mut kept).unwrap();
    let many: Vec<String> = (0..200).map(|n| format!("10.0.0.{n}")).collect();
    for wrong in [
        "nonsense = 1\n".to_owned(),
        format!("nodes = {}\nany = {socket}\nany = {extra}\nhttp = {taken}\n", one.address),
        format!("nodes = 127.0.0.1:1\nany = {socket}\nany = {extra}\nany = {taken}\n"),
        format!("nodes = {}\nany = {extra}\n", many.join(",")),
    ] {
        std::fs::write(&file, &wrong).unwrap();
        let answer = balancer.ask("reload");
        assert!(answer.starts_with("Error: "), "{wrong}: {answer}");
        assert!(!std::path::Path::new(&extra).exists(), "{wrong}");
        let status = balancer.status();
        assert_eq!(status["nodes"].as_array().unwrap().len(), 1, "{wrong}");
        assert_eq!(status["nodes"][0]["address"], one.address.as_str(), "{wrong}");
        assert_eq!(status["listeners"].as_array().unwrap().len(), 1, "{wrong}");
        assert_echo(&mut kept, &packet(7, b"goes on"));
    }
    std::fs::write(&file, format!("{right}any = {extra}\n")).unwrap();
    assert!(balancer.ask("reload").starts_with("Ok: "));
    greeted(&mut UnixStream::connect(&extra).unwrap()).unwrap();
}

#[test]
fn a_reset_before_the_greeting_is_a_refusal() {
    let (place, one) = (Place::new(), Server::start("one", Manner::Reset));
    let balancer = Balancer::start(
        &place,
        &format!(
            "--nodes {} --no-discover --any 127.0.0.1:0 --send-proxy --hold 0 --interval 1h --timeout 1h",
            one.address
        ),
    );
    balancer.await_ready();
    greeted(&mut balancer.connect(0)).unwrap_err();
    let node = &balancer.status()["nodes"][0];
    assert_eq!(node["outages"], 1, "{node}");
}

/// A server would refuse our host after a hundred of them.
#[test]
fn clients_that_leave_in_the_middle_of_their_login_do_not_block_us() {
    let (place, one) = (Place::new(), Server::start("one", Manner::Echo));
    let balancer = Balancer::start(&place, &format!("--nodes {} --any 127.0.0.1:0", one.address));
    balancer.await_ready();
    let logins = || one.logins.load(Ordering::Relaxed);
    assert_eq!(logins(), 1);
    for n in 1..=3 {
        for _ in 0..20 {
            greeted(&mut balancer.connect(0)).unwrap();
        }
        await_that("it logs in again", || logins() == 1 + n);
    }
    // Those that are answered are none of them.
    for _ in 0..25 {
        let mut client = balancer.connect(0);
        greeted(&mut client).unwrap();
        assert_echo(&mut client, &packet(7, b"a question"));
    }
    await_that("they have gone", || balancer.status()["clients"] == 0);
    assert_eq!(logins(), 4);
}

#[test]
fn a_server_that_refuses_our_host_is_out_though_its_old_connection_answers() {
    let (place, one) = (Place::new(), Server::start("one", Manner::Blocked));
    let balancer = Balancer::start(&place, &format!("--nodes {} --any 127.0.0.1:0 --hold 0", one.address));
    balancer.await_ready();
    let (code, text) = greeted(&mut balancer.connect(0)).unwrap_err();
    assert!(code == 1129 && text.contains("is blocked"), "{code} {text}");
    await_that("it is out", || balancer.status()["nodes"][0]["state"] == "out");
    let status = balancer.status();
    let detail = status["nodes"][0]["detail"].as_str().unwrap();
    assert!(detail.contains("FLUSH HOSTS"), "{detail}");
}

#[test]
fn the_next_process_takes_over_without_refusing_a_client() {
    let (place, server) = (Place::new(), Server::start("one", Manner::Echo));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let words = format!("--nodes {} --any 127.0.0.1:{port} --any {} --hold 20s", server.address, place.path("clients"));
    let mut old = Balancer::start(&place, &words);
    old.await_ready();
    let mut kept = old.connect(0);
    greeted(&mut kept).unwrap();
    // Clients that come all the time.
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (stopped, count) = (stop.clone(), served.clone());
    let clients = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            let mut client = TcpStream::connect(("127.0.0.1", port)).expect("never refused");
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            greeted(&mut client).expect("never sent away");
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    await_that("the old one serves", || served.load(Ordering::Relaxed) > 20);
    let new = Balancer::start(&place, &format!("{words} --takeover {}", old.control));
    new.await_ready();
    await_that("the new one serves", || new.status()["totals"]["accepted"].as_u64().unwrap() > 20);
    stop.store(true, Ordering::Relaxed);
    clients.join().unwrap();
    // The old session goes on, and the old process ends with it.
    assert_echo(&mut kept, &packet(7, b"goes on"));
    assert!(old.child.try_wait().unwrap().is_none());
    drop(kept);
    await_that("the old process ends", || old.child.try_wait().unwrap().is_some());
    greeted(&mut new.connect(0)).unwrap();
    greeted(&mut UnixStream::connect(place.path("clients")).unwrap()).unwrap();
}

/// Ends a process that is not our child.
struct Next(u32);

impl Drop for Next {
    fn drop(&mut self) {
        let _ = std::process::Command::new("kill").arg(self.0.to_string()).status();
    }
}

/// As under systemd: it is told when we serve, and which process is the service after an upgrade, before the old one can end.
#[test]
fn an_upgrade_starts_the_next_process_and_makes_it_known_as_the_service() {
    let (place, server) = (Place::new(), Server::start("one", Manner::Echo));
    let path = place.path("notify");
    let notify = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    notify.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut bytes = [0; 256];
        let len = notify.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let words = format!("--nodes {} --any 127.0.0.1:{port} --hold 20s", server.address);
    let mut old = Balancer::start_after(&place, "control", &format!("export NOTIFY_SOCKET={path};"), &words);
    assert_eq!(told(), "READY=1");
    old.await_ready();
    let mut kept = old.connect(0);
    greeted(&mut kept).unwrap();
    let control = old.control.clone();
    let answer = std::thread::spawn(move || ask(control.as_ref(), "upgrade"));
    // Two of the new one come from it, and say nothing to a service manager that listens to the main process only.
    let main = std::iter::repeat_with(told).find(|text| text.starts_with("MAINPID=")).unwrap();
    let (process, rest) = main["MAINPID=".len()..].split_once('\n').unwrap();
    let next = Next(process.parse().unwrap());
    assert_eq!(rest, "READY=1");
    assert_ne!(next.0, old.pid());
    std::iter::repeat_with(told).find(|text| text == "BARRIER=1").unwrap();
    assert!(answer.join().unwrap().starts_with("Ok: "));
    // It is nobody's child here: it was handed to the system's first process, or to what stands for it.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", next.0)).unwrap();
    let parent: u32 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(parent != old.pid() && parent != std::process::id(), "{stat}");
    await_that("the new one takes commands at the same place", || {
        try_ask(old.control.as_ref(), "status").is_ok_and(|status| status.contains("\"leaving\":false"))
    });
    assert_echo(&mut kept, &packet(7, b"goes on"));
    greeted(&mut TcpStream::connect(("127.0.0.1", port)).unwrap()).unwrap();
    assert!(old.child.try_wait().unwrap().is_none());
    drop(kept);
    await_that("the old process ends", || old.child.try_wait().unwrap().is_some());
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    greeted(&mut client).unwrap();
}

/// The program on disk does not start: nothing is lost.
#[test]
fn an_upgrade_that_fails_leaves_everything_as_it_is() {
    let (place, server) = (Place::new(), Server::start("one", Manner::Echo));
    let file = place.path("conf");
    std::fs::write(&file, format!("nodes = {}\nany = 127.0.0.1:0\n", server.address)).unwrap();
    let balancer = Balancer::start(&place, &format!("--config {file}"));
    balancer.await_ready();
    std::fs::write(&file, "nonsense = 1\n").unwrap();
    let mut stream = UnixStream::connect(&balancer.control).unwrap();
    stream.write_all(b"upgrade\n").unwrap();
    greeted(&mut balancer.connect(0)).unwrap();
    let mut answer = [0; 7];
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"Error: ");
    greeted(&mut balancer.connect(0)).unwrap();
}

#[test]
fn metrics_and_readiness() {
    let place = Place::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let balancer = Balancer::start(&place, &format!("--nodes {free} --writer 127.0.0.1:0 --http {port}"));
    let get = |path: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    assert!(get("/ready").starts_with("HTTP/1.1 503"));
    assert!(get("/health").starts_with("HTTP/1.1 200"));
    let _server = Server::start_at("one", Manner::Echo, &free);
    balancer.await_ready();
    assert!(get("/ready").starts_with("HTTP/1.1 200"));
    let metrics = get("/metrics");
    assert!(metrics.contains("\ntrireme_balance_ready 1\n"), "{metrics}");
    assert!(metrics.contains(&format!("trireme_balance_node_state{{address=\"{free}\"")), "{metrics}");
    assert!(get("/state").contains("\"listeners\""));
    assert!(get("/nonsense").starts_with("HTTP/1.1 404"));
}

#[test]
fn a_watchdog_decides() {
    use std::os::unix::fs::PermissionsExt;
    let (place, server) = (Place::new(), Server::start("one", Manner::Echo));
    let (script, state) = (place.path("dog"), place.path("state"));
    std::fs::write(&state, "3").unwrap();
    // It is given the address first, and then what stands behind its name.
    std::fs::write(
        &script,
        format!("#!/bin/sh\n[ \"$1\" = {} ] || exit 1\nwhile read line; do cat \"$2\"; echo; done\n", server.address),
    )
    .unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let balancer = Balancer::start(
        &place,
        &format!("--nodes {} --any 127.0.0.1:0 --hold 200ms --exec 'exec:\"{script} {state}\"'", server.address),
    );
    balancer.await_ready();
    let mut kept = balancer.connect(0);
    greeted(&mut kept).unwrap();
    std::fs::write(&state, "1").unwrap();
    await_that("nobody serves", || balancer.status()["listeners"][0]["serves"] == false);
    assert_eq!(greeted(&mut balancer.connect(0)).unwrap_err().0, 1047);
    assert_eq!(kept.read(&mut [0; 16]).unwrap_or(0), 0, "its sessions end, as with GLB");
    std::fs::write(&state, "2").unwrap();
    await_that("it is the last choice", || balancer.status()["nodes"][0]["state"] == "last-choice");
    let mut kept = balancer.connect(0);
    greeted(&mut kept).unwrap();
    assert!(balancer.status()["nodes"][0]["latency_ms"].as_f64().unwrap() > 0.0);
    std::fs::write(&state, "0").unwrap();
    assert_eq!(kept.read(&mut [0; 16]).unwrap_or(0), 0, "its sessions end");
}
