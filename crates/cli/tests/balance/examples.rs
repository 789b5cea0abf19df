//! The worked examples of docs/operations/balance.md, as they stand there, in a network of their own: `10.0.0.1` to `.3` are servers that greet.
//!
//! They need root, and for the second one keepalived; what is missing is named, and its example skipped.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::*;

/// Set in the process that has the network.
const INSIDE: &str = "TRIREME_EXAMPLE_NETWORK";
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations/balance.md");

/// The indented blocks below a heading.
fn blocks(heading: &str) -> Vec<String> {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let section = page.split(&format!("### {heading}\n")).nth(1).expect("the heading");
    let section = section.split("\n#").next().unwrap();
    let mut blocks: Vec<String> = Vec::new();
    let mut within = false;
    for line in section.lines() {
        match (line.strip_prefix("    "), within) {
            (Some(code), true) => blocks.last_mut().unwrap().push_str(&format!("{code}\n")),
            (Some(code), false) => blocks.push(format!("{code}\n")),
            // A blank line goes on with what is before it, if that goes on.
            (None, _) => {}
        }
        within = line.starts_with("    ") || within && line.is_empty();
    }
    blocks
}

fn run(line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Runs this test once more in a network and with a `/run` of its own. `true`: this is that run, and the network is there.
fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        run("mount -t tmpfs tmpfs /run");
        run("ip link set lo up");
        run("ip link add br0 type bridge");
        for n in 1..=3 {
            run(&format!("ip addr add 10.0.0.{n}/24 dev br0"));
        }
        run("ip link set br0 up");
        return true;
    }
    let can = Command::new("unshare").args(["-n", "-m", "true"]).output().is_ok_and(|output| output.status.success());
    if !can {
        eprintln!("skipped: networks of one's own need root");
        return false;
    }
    let program = std::env::current_exe().unwrap();
    let mut again = Command::new("unshare");
    again.args(["-n", "-m"]).arg(program).args(["--exact", test, "--ignored", "--nocapture"]).env(INSIDE, "1");
    assert!(again.status().unwrap().success(), "{test}");
    false
}

/// A machine of its own in this network: `10.0.0.11`, `.12`.
fn machine(n: usize) {
    run(&format!("ip netns add m{n}"));
    run(&format!("ip link add veth{n} type veth peer name eth0 netns m{n}"));
    run(&format!("ip link set veth{n} master br0 up"));
    run(&format!("ip -n m{n} addr add 10.0.0.1{n}/24 dev eth0"));
    run(&format!("ip -n m{n} link set eth0 up"));
    run(&format!("ip -n m{n} link set lo up"));
}

fn on_machine(n: usize, program: &Command) -> Running {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &format!("m{n}")]).arg(program.get_program()).args(program.get_args());
    Running::start(&mut command)
}

/// A process that ends with the test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Running {
        Running(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn balancer(config: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trireme"));
    command.args(["balance", "--config", config]);
    command
}

fn servers(manner: Manner) -> Vec<Server> {
    (1..=3).map(|n| Server::start_at(&format!("n{n}"), manner, &format!("10.0.0.{n}:3306"))).collect()
}

fn is_ready(http: &str) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(http)?;
        stream.write_all(b"GET /ready HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains(" 200 "))
}

fn file(place: &Place, name: &str, text: &str) -> String {
    let path = place.path(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
#[ignore = "needs root"]
fn on_the_applications_own_machine() {
    if !is_inside("examples::on_the_applications_own_machine") {
        return;
    }
    let place = Place::new();
    let mut servers = servers(Manner::Echo);
    std::fs::create_dir("/run/trireme-balance").unwrap();
    let _balancer =
        Running::start(&mut balancer(&file(&place, "balance.conf", &blocks("On the application's own machine")[0])));
    await_that("it is ready", || is_ready("127.0.0.1:9307"));
    let name = |socket: &str| greeted(&mut UnixStream::connect(format!("/run/trireme-balance/{socket}.sock")).unwrap());
    await_that("another one than the writer reads", || {
        let (writer, reader) = (name("writer"), name("reader"));
        writer.is_ok() && reader.is_ok() && writer != reader
    });
    // It goes, and the application's next connection finds another.
    let writer = name("writer").unwrap();
    let place: usize = writer[1..].parse().unwrap();
    drop(servers.remove(place - 1));
    await_that("another one is the writer", || name("writer").is_ok_and(|name| name != writer));
}

#[test]
#[ignore = "needs root and keepalived"]
fn two_balancers_with_keepalived() {
    if !Path::new("/usr/sbin/keepalived").exists() {
        eprintln!("skipped: apt-get install keepalived");
        return;
    }
    if !is_inside("examples::two_balancers_with_keepalived") {
        return;
    }
    let place = Place::new();
    let _servers = servers(Manner::Proxied);
    let [vrrp, config] = &blocks("Two balancers with keepalived")[..] else { panic!("two files") };
    let (vrrp, config) = (file(&place, "keepalived.conf", vrrp), file(&place, "balance.conf", config));
    let mut machines: Vec<(Running, Running)> = Vec::new();
    for n in 1..=2 {
        machine(n);
        let served = on_machine(n, &balancer(&config));
        let mut keepalived = Command::new("/usr/sbin/keepalived");
        keepalived.args(["--dont-fork", "--log-console", "--use-file", &vrrp]);
        keepalived.args([format!("--pid=/run/keepalived{n}"), format!("--vrrp_pid=/run/vrrp{n}")]);
        machines.push((served, on_machine(n, &keepalived)));
    }
    let greets = |port: u16| {
        let at = std::net::SocketAddr::from(([10, 0, 0, 100], port));
        let stream = TcpStream::connect_timeout(&at, std::time::Duration::from_secs(1));
        stream.is_ok_and(|mut stream| {
            stream.set_read_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
            let mut head = [0; 5];
            stream.read_exact(&mut head).is_ok() && head[4] == 10
        })
    };
    let holder = || {
        (0..2usize).find(|n| {
            let output = Command::new("ip").args(["-n", &format!("m{}", n + 1), "addr"]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).contains("10.0.0.100/24")
        })
    };
    await_that("the address serves writers and readers", || greets(3306) && greets(3307));
    let first = holder().expect("somebody has the address");
    // Its balancer dies; keepalived itself goes on there.
    machines[first].0.0.kill().unwrap();
    await_that("the other one has the address, and serves", || holder() == Some(1 - first) && greets(3306));
}

#[test]
#[ignore = "needs root"]
fn kubernetes() {
    let [manifest] = &blocks("Kubernetes")[..] else { panic!("one file") };
    let place = Place::new();
    let path = file(&place, "balance.yaml", manifest);
    // The types of every field, by the schemas of Kubernetes.
    match Command::new("kubernetes-validate").args(["--strict", &path]).output() {
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
        }
        Err(_) => eprintln!("not validated: pip install kubernetes-validate"),
    }
    if !is_inside("examples::kubernetes") {
        return;
    }
    let _servers = servers(Manner::Echo);
    let hosts = file(&place, "hosts", "127.0.0.1 localhost\n10.0.0.1 mariadb-0.mariadb\n");
    run(&format!("mount --bind {hosts} /etc/hosts"));
    file(&place, "password", "secret\n");
    // The container's command, with its two places in ours.
    let command = manifest.split("command: [").nth(1).unwrap().split(']').next().unwrap();
    let command = command.replace("/secret/", &place.path("")).replace("/tmp/control", &place.path("control"));
    let words: Vec<String> = command.split(',').map(|word| word.trim().trim_matches('"').to_owned()).collect();
    assert_eq!(words[0], "trireme");
    machine(1);
    let mut balancer = on_machine(1, Command::new(env!("CARGO_BIN_EXE_trireme")).args(&words[1..]));
    await_that("it is ready", || is_ready("10.0.0.11:9307"));
    let connect = |port: u16| TcpStream::connect(("10.0.0.11", port)).unwrap();
    let (mut writer, mut reader) = (connect(3306), connect(3307));
    assert_eq!((greeted(&mut writer), greeted(&mut reader)), (Ok("n1".into()), Ok("n1".into())));
    // The pod is to end: sessions go on, and the process ends with the last one.
    let leave = manifest.split("trireme balance control ").nth(1).unwrap().split(';').next().unwrap();
    let leave = leave.replace("/tmp/control", &place.path("control"));
    let output = Command::new(env!("CARGO_BIN_EXE_trireme"))
        .args(["balance", "control"])
        .args(leave.split_whitespace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    await_that("no more clients are sent to it", || !is_ready("10.0.0.11:9307"));
    assert_echo(&mut writer, &packet(7, b"still here"));
    drop((writer, reader));
    await_that("it ends", || balancer.0.try_wait().unwrap().is_some_and(|status| status.success()));
}
