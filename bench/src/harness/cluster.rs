//! A cluster of one provider: each node is a process of its own, so that nothing is shared and each has its own account of processor time.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::host::{Node, NodeConfig};
use super::load::{Load, Report, run};
use super::relay::{Place, Relay};
use super::stages::{self, Stages};
use super::threads::Memory;

/// A provider under test.
#[derive(Clone, Debug)]
pub struct Subject {
    pub label: String,
    pub library: PathBuf,
    pub options: String,
}

impl std::str::FromStr for Subject {
    type Err = String;

    /// `[label=]path[#options]`
    fn from_str(text: &str) -> Result<Subject, String> {
        let (place, options) = text.split_once('#').unwrap_or((text, ""));
        let (label, path) = match place.split_once('=') {
            Some((label, path)) => (label.to_owned(), path),
            None => {
                let stem = Path::new(place).file_stem().ok_or("no file name")?;
                let stem = stem.to_string_lossy();
                (stem.trim_start_matches("lib").trim_end_matches("_smm").to_owned(), place)
            }
        };
        Ok(Subject { label, library: PathBuf::from(path), options: options.to_owned() })
    }
}

/// How to set a cluster up.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub nodes: usize,
    pub appliers: usize,
    pub dummy: bool,
    /// Round trip between any two nodes. Zero: they are connected directly.
    pub rtt: Duration,
    /// The first of the ports that are for its nodes, of which [`PORTS`] are.
    pub base_port: u16,
    pub verbose: bool,
}

/// Ports in which two free ones are looked for, for each node.
pub const PORTS: u16 = 180;

/// Formation and shutdown of one node take at most this long; a rival's state exchange may need several seconds.
const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// A node process: one command per line in, one answer per line out.
struct Remote {
    child: Child,
    commands: Option<ChildStdin>,
    answers: mpsc::Receiver<String>,
}

pub struct Cluster {
    pub subject: Subject,
    members: Vec<Remote>,
    /// One before each member, or none.
    relays: Vec<Relay>,
    dir: PathBuf,
}

impl Cluster {
    /// Starts the nodes one after another and waits until all are synced.
    pub fn start(subject: &Subject, shape: Shape) -> Result<Cluster, String> {
        let base = std::env::temp_dir();
        let dir = trireme_private::fresh_dir(&base, &format!("trireme-bench-{}", subject.label))
            .map_err(|e| format!("{}: {e}", base.display()))?;
        let mut cluster = Cluster { subject: subject.clone(), members: Vec::new(), relays: Vec::new(), dir };
        let mut url = String::from(if shape.dummy { "dummy://" } else { "gcomm://" });
        let fail = |number: usize, e: String| format!("{} node {number}: {e}", subject.label);
        for number in 0..shape.nodes {
            let place = if shape.rtt.is_zero() { Place::DIRECT } else { Place::relayed(number) };
            let port = free_ports(place, shape.base_port)?;
            if !shape.rtt.is_zero() {
                let relay = Relay::start(place, port, shape.rtt).map_err(|e| fail(number, e.to_string()))?;
                cluster.relays.push(relay);
            }
            let dir = cluster.dir.join(format!("node{number}"));
            std::fs::create_dir(&dir).map_err(|e| fail(number, e.to_string()))?;
            let config = NodeConfig {
                library: subject.library.clone(),
                name: format!("node{number}"),
                port,
                place,
                url: url.clone(),
                options: subject.options.clone(),
                dir,
                appliers: shape.appliers,
            };
            let mut member = Remote::start(&config, shape).map_err(|e| fail(number, e))?;
            let synced = member.wait_members(number + 1).map_err(|e| fail(number, e));
            cluster.members.push(member);
            synced?;
            if number == 0 {
                url = format!("gcomm://{}:{port}", place.known);
            }
        }
        for (number, member) in cluster.members.iter_mut().enumerate() {
            member.wait_members(shape.nodes).map_err(|e| fail(number, e))?;
        }
        Ok(cluster)
    }

    /// Runs `load` on the nodes for which `writes` says yes; the others only apply. Returns one report per node.
    pub fn run(&mut self, load: Load, writes: impl Fn(usize) -> bool) -> Result<Vec<Report>, String> {
        let limit = load.warmup + load.measure + START_LIMIT;
        std::thread::scope(|scope| {
            let running: Vec<_> = (self.members.iter_mut().enumerate())
                .map(|(n, member)| {
                    let clients = if writes(n) { load.clients } else { 0 };
                    let load = Load { clients, seed: load.seed.wrapping_add(n as u64 * 7919), ..load };
                    scope.spawn(move || member.run(load, limit))
                })
                .collect();
            running
                .into_iter()
                .map(|r| r.join().unwrap_or_else(|_| Err(String::from("node thread panicked"))))
                .collect()
        })
    }

    /// One client on node `writer` and nothing else; one report per node. Needs node processes.
    pub fn stages(&mut self, load: Load, writer: usize) -> Result<Vec<Stages>, String> {
        let limit = load.warmup + load.measure + START_LIMIT;
        std::thread::scope(|scope| {
            let running: Vec<_> = (self.members.iter_mut().enumerate())
                .map(|(n, member)| {
                    let line = load_line("stages", Load { clients: usize::from(n == writer), ..load });
                    scope.spawn(move || {
                        let answer = member.ask(&line, limit)?;
                        Stages::from_text(&answer).ok_or_else(|| format!("unreadable report: {answer}"))
                    })
                })
                .collect();
            running
                .into_iter()
                .map(|r| r.join().unwrap_or_else(|_| Err(String::from("node thread panicked"))))
                .collect()
        })
    }

    /// Memory that each node has taken since before it loaded the provider. Needs node processes.
    pub fn memory(&mut self) -> Result<Vec<Memory>, String> {
        let ask = |member: &mut Remote| {
            let answer = member.ask("memory", STOP_LIMIT)?;
            let numbers = answer.split_once(' ').and_then(|(r, a)| Some((r.parse().ok()?, a.parse().ok()?)));
            numbers.map(|(resident_kib, anonymous_kib)| Memory { resident_kib, anonymous_kib }).ok_or(answer)
        };
        self.members.iter_mut().map(ask).collect()
    }

    /// The node processes.
    pub fn pids(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.child.id()).collect()
    }

    /// Fails where a link between nodes goes past their relays.
    pub fn check_distance(&self) -> Result<(), String> {
        for (number, relay) in self.relays.iter().enumerate() {
            let beside = relay.bypassed_by().map_err(|e| e.to_string())?;
            if !beside.is_empty() {
                return Err(format!("{}: links to node {number} go past its relay: {beside:?}", self.subject.label));
            }
        }
        Ok(())
    }

    /// Waits until all nodes have committed the same position.
    pub fn converge(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let positions: Vec<i64> = self.members.iter_mut().map(Remote::position).collect::<Result<_, _>>()?;
            if positions.iter().all(|p| *p == positions[0]) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("{}: nodes stay apart: {positions:?}", self.subject.label));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        while let Some(mut member) = self.members.pop() {
            member.stop();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Remote {
    fn start(config: &NodeConfig, shape: Shape) -> Result<Remote, String> {
        let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
        command.args(["bench", "node", "--library"]).arg(&config.library).arg("--dir").arg(&config.dir);
        command.args(["--name", &config.name, "--url", &config.url, "--options", &config.options]);
        command.args(["--port", &config.port.to_string(), "--appliers", &config.appliers.to_string()]);
        let Place { listens, known } = config.place;
        command.args(["--listens", &listens.to_string(), "--known", &known.to_string()]);
        if shape.verbose {
            command.arg("--verbose");
        }
        // A Ctrl-C at the terminal reaches only us, and we decide what ends.
        command.process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|e| e.to_string())?;
        let commands = child.stdin.take();
        let output = child.stdout.take().ok_or("no pipe")?;
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || forward(output, &sender));
        let mut remote = Remote { child, commands, answers };
        remote.answer(START_LIMIT)?;
        Ok(remote)
    }

    fn wait_members(&mut self, count: usize) -> Result<(), String> {
        self.ask(&format!("wait {count}"), START_LIMIT + STOP_LIMIT).map(drop)
    }

    fn run(&mut self, load: Load, limit: Duration) -> Result<Report, String> {
        let answer = self.ask(&load_line("run", load), limit)?;
        Report::from_text(&answer).ok_or_else(|| format!("unreadable report: {answer}"))
    }

    fn position(&mut self) -> Result<i64, String> {
        self.ask("position", START_LIMIT)?.parse().map_err(|_| String::from("no position"))
    }

    fn stop(&mut self) {
        let gone = matches!(self.child.try_wait(), Ok(Some(_)));
        if !gone && self.ask("stop", STOP_LIMIT).is_err() {
            eprintln!("a node did not stop in time");
            let _ = self.child.kill();
        }
        drop(self.commands.take());
        let _ = self.child.wait();
    }
}

fn forward(output: ChildStdout, answers: &mpsc::Sender<String>) {
    for line in BufReader::new(output).lines() {
        let Ok(line) = line else { return };
        if answers.send(line).is_err() {
            return;
        }
    }
}

impl Remote {
    fn ask(&mut self, command: &str, limit: Duration) -> Result<String, String> {
        let pipe = self.commands.as_mut().ok_or("stopped")?;
        writeln!(pipe, "{command}").and_then(|()| pipe.flush()).map_err(|e| format!("node process: {e}"))?;
        self.answer(limit)
    }

    fn answer(&mut self, limit: Duration) -> Result<String, String> {
        let line = self.answers.recv_timeout(limit).map_err(|_| String::from("node process died or hangs"))?;
        match line.split_once(' ') {
            Some(("ok", rest)) => Ok(rest.to_owned()),
            _ => Err(line),
        }
    }
}

/// The other end of [`Remote`]: serves one node until told to stop or the pipe closes.
pub fn serve(config: &NodeConfig) {
    let node = match Node::start(config) {
        Ok(node) => node,
        Err(e) => return println!("failed: {e}"),
    };
    println!("ok {}", node.shared.provider().version());
    for line in std::io::stdin().lines() {
        let Ok(line) = line else { break };
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[..] {
            ["wait", count] => count
                .parse()
                .map_err(|_| String::from("count"))
                .and_then(|c| node.wait_members(c, START_LIMIT).map(|()| String::new())),
            ["position"] => node
                .shared
                .provider()
                .last_committed()
                .map(|p| p.to_string())
                .ok_or_else(|| String::from("no position")),
            ["run", ref args @ ..] => {
                parse_load(args).map(|load| run(node.shared, load).to_text()).ok_or_else(|| String::from("load"))
            }
            ["stages", ref args @ ..] => parse_load(args)
                .map(|load| stages::run(node.shared, load).to_text())
                .ok_or_else(|| String::from("load")),
            ["memory"] => {
                let taken = Memory::now().since(node.bare);
                Ok(format!("{} {}", taken.resident_kib, taken.anonymous_kib))
            }
            ["stop"] => {
                node.stop();
                println!("ok stopped");
                return;
            }
            _ => Err(format!("unknown command {line}")),
        };
        match answer {
            Ok(text) => println!("ok {text}"),
            Err(e) => println!("failed: {e}"),
        }
    }
    node.stop();
}

fn load_line(command: &str, load: Load) -> String {
    let Load { clients, size, keys, rows, warmup, measure, seed } = load;
    format!("{command} {clients} {size} {keys} {rows} {} {} {seed}", warmup.as_nanos(), measure.as_nanos())
}

fn parse_load(args: &[&str]) -> Option<Load> {
    let [clients, size, keys, rows, warmup, measure, seed] = args else { return None };
    Some(Load {
        clients: clients.parse().ok()?,
        size: size.parse().ok()?,
        keys: keys.parse().ok()?,
        rows: rows.parse().ok()?,
        warmup: Duration::from_nanos(warmup.parse().ok()?),
        measure: Duration::from_nanos(measure.parse().ok()?),
        seed: seed.parse().ok()?,
    })
}

/// Two neighbouring ports that are free now. Each call goes on where the last one ended, so that no two nodes are given the same.
fn free_ports(place: Place, base: u16) -> Result<u16, String> {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    for _ in 0..PORTS / 2 {
        let port = base + NEXT.fetch_add(1, Ordering::Relaxed) % (PORTS / 2) * 2;
        let free = |ip: Ipv4Addr, p: u16| TcpListener::bind((ip, p)).is_ok();
        let is_free = [place.listens, place.known].into_iter().all(|ip| free(ip, port));
        if is_free && free(Ipv4Addr::LOCALHOST, port + 1) {
            return Ok(port);
        }
    }
    Err(format!("no free ports from {base} to {}", base + PORTS - 1))
}
