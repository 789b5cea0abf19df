//! etcd: a log held by a majority, with keys and values and no database. The clients put values over its JSON interface.

use super::{FAULT_CLIENTS, SIZE, dead_for, numbers_of_clients};
use crate::field::{Context, pass_until};
use crate::hist::Histogram;
use crate::plan::Point;
use crate::record::Measured;
use crate::tool::{Tool, command};
use crate::usage::{self, Usage};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

struct Etcd<'a> {
    context: &'a Context,
    dir: PathBuf,
    nodes: u8,
    servers: Vec<Option<Tool>>,
}

pub fn run(context: &Context, point: &Point) -> Result<Measured, String> {
    let dir = context.dir.join("etcd");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut all = Etcd { context, dir, nodes: point.nodes, servers: Vec::new() };
    all.servers.resize_with(usize::from(point.nodes), || None);
    all.start_all()?;
    let mut measured = Measured::default();
    for clients in numbers_of_clients(&context.settings) {
        all.measure(clients, &mut measured)?;
    }
    all.faults(&mut measured)?;
    Ok(measured)
}

impl Etcd<'_> {
    fn port(&self, number: u8) -> u16 {
        self.context.base_port + 10 * (u16::from(number) - 1)
    }

    fn start(&mut self, number: u8) -> Result<(), String> {
        let (client, peer) = (self.port(number), self.port(number) + 1);
        let everybody: Vec<String> =
            (1..=self.nodes).map(|n| format!("node{n}=http://127.0.0.1:{}", self.port(n) + 1)).collect();
        let mut etcd = command("etcd");
        etcd.args([
            "--name",
            &format!("node{number}"),
            "--initial-cluster",
            &everybody.join(","),
            "--log-level",
            "error",
        ])
        .arg(format!("--data-dir={}", self.dir.join(format!("node{number}")).display()))
        .args(["--initial-advertise-peer-urls", "--listen-peer-urls"].map(|o| format!("{o}=http://127.0.0.1:{peer}")))
        .args(["--advertise-client-urls", "--listen-client-urls"].map(|o| format!("{o}=http://127.0.0.1:{client}")));
        self.servers[usize::from(number) - 1] = Some(Tool::start(etcd)?);
        Ok(())
    }

    fn start_all(&mut self) -> Result<(), String> {
        for number in 1..=self.nodes {
            self.start(number)?;
        }
        for number in 1..=self.nodes {
            self.await_answer(number)?;
        }
        Ok(())
    }

    fn await_answer(&self, number: u8) -> Result<(), String> {
        let began = Instant::now();
        loop {
            match Client::open(self.port(number)).and_then(|mut client| client.put("ready", "yes")) {
                Ok(()) => return Ok(()),
                Err(error) if began.elapsed() > LIMIT => {
                    return Err(format!("etcd node{number} does not answer: {error}"));
                }
                Err(_) => pass_until(Instant::now() + Duration::from_millis(100), &self.context.cancel)?,
            }
        }
    }

    fn measure(&self, clients: u32, measured: &mut Measured) -> Result<(), String> {
        let pids: Vec<i32> = self.servers.iter().flatten().map(Tool::pid).collect();
        let (counts, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        let latency = Mutex::new(Histogram::default());
        let text = "x".repeat(SIZE);
        let (used, elapsed) = std::thread::scope(|scope| {
            for n in 0..clients {
                let (counts, stop, latency, text) = (&counts, &stop, &latency, &text);
                let port = self.port((n % u32::from(self.nodes)) as u8 + 1);
                scope.spawn(move || {
                    let (mut own, mut k) = (Histogram::default(), 0u64);
                    if let Ok(mut client) = Client::open(port) {
                        while !stop.load(Ordering::Relaxed) {
                            let began = Instant::now();
                            k += 1;
                            if client.put(&format!("{clients}/{n}/{k}"), text).is_ok() && counts.load(Ordering::Relaxed)
                            {
                                own.record(began.elapsed().as_nanos() as u64);
                            }
                        }
                    }
                    latency.lock().unwrap_or_else(std::sync::PoisonError::into_inner).merge(&own);
                });
            }
            let warm = pass_until(Instant::now() + self.context.warmup(), &self.context.cancel);
            let (before, began) = (Usage::of(&pids), Instant::now());
            counts.store(true, Ordering::Relaxed);
            let measured = warm.and_then(|()| pass_until(began + self.context.duration(), &self.context.cancel));
            let elapsed = began.elapsed();
            let used = usage::between(&before, &Usage::of(&pids));
            stop.store(true, Ordering::Relaxed);
            measured.map(|()| (used, elapsed))
        })?;
        let latency = latency.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        measured.set(format!("commits_per_s_{clients}"), latency.total() as f64 / elapsed.as_secs_f64());
        for (name, q) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)] {
            measured.set(format!("{name}_ms_{clients}"), latency.quantile(q) as f64 / 1e6);
        }
        measured.set(format!("cpu_us_{clients}"), used.servers.as_secs_f64() * 1e6 / latency.total().max(1) as f64);
        Ok(())
    }

    /// The last member dies under load and comes back, then all die.
    fn faults(&mut self, measured: &mut Measured) -> Result<(), String> {
        let dead_for = dead_for(&self.context.settings);
        let stop = AtomicBool::new(false);
        let commits: Mutex<Vec<Instant>> = Mutex::default();
        let acknowledged: Mutex<Vec<String>> = Mutex::default();
        let ports: Vec<u16> = (1..self.nodes.max(2)).map(|n| self.port(n)).collect();
        let (struck, over) = std::thread::scope(|scope| {
            for n in 0..FAULT_CLIENTS {
                let (stop, commits, acknowledged, port) =
                    (&stop, &commits, &acknowledged, ports[n as usize % ports.len()]);
                scope.spawn(move || {
                    let mut k = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        let Ok(mut client) = Client::open(port) else {
                            std::thread::sleep(Duration::from_millis(20));
                            continue;
                        };
                        while !stop.load(Ordering::Relaxed) {
                            k += 1;
                            let key = format!("acknowledged/{n}/{k}");
                            if client.put(&key, "x").is_err() {
                                break;
                            }
                            commits.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(Instant::now());
                            acknowledged.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(key);
                        }
                    }
                });
            }
            let mut body = || {
                pass_until(Instant::now() + dead_for, &self.context.cancel)?;
                let at = Instant::now();
                // Dropping kills it.
                if self.nodes >= 3 {
                    self.servers[usize::from(self.nodes) - 1] = None;
                }
                pass_until(Instant::now() + dead_for, &self.context.cancel)?;
                let over = Instant::now();
                if self.nodes >= 3 {
                    self.start(self.nodes)?;
                    self.await_answer(self.nodes)?;
                }
                self.servers.iter_mut().for_each(|server| drop(server.take()));
                self.start_all()?;
                Ok::<_, String>((at, over))
            };
            let outcome = body();
            stop.store(true, Ordering::Relaxed);
            outcome
        })?;
        let mut at = commits.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        at.retain(|at| (struck..over).contains(at));
        at.sort_unstable();
        let edges = [struck].into_iter().chain(at.iter().copied()).zip(at.iter().copied().chain([over]));
        let gap = edges.map(|(from, to)| to - from).max().unwrap_or_default();
        if self.nodes >= 3 {
            measured.set("gap_one_s", gap.as_secs_f64());
        }
        let acknowledged = acknowledged.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut client = Client::open(self.port(1)).map_err(|e| e.to_string())?;
        let mut lost = 0;
        for key in &acknowledged {
            lost += u64::from(!client.has(key).map_err(|e| e.to_string())?);
        }
        measured.set("acknowledged", acknowledged.len() as f64);
        measured.set("lost", lost as f64);
        Ok(())
    }
}

impl Drop for Etcd<'_> {
    fn drop(&mut self) {
        self.servers.clear();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// One connection that is kept open.
struct Client(BufReader<TcpStream>);

impl Client {
    fn open(port: u16) -> std::io::Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Client(BufReader::new(stream)))
    }

    fn put(&mut self, key: &str, value: &str) -> std::io::Result<()> {
        self.post("/v3/kv/put", &format!("{{\"key\":\"{}\",\"value\":\"{}\"}}", base64(key), base64(value))).map(drop)
    }

    fn has(&mut self, key: &str) -> std::io::Result<bool> {
        let said = self.post("/v3/kv/range", &format!("{{\"key\":\"{}\",\"count_only\":true}}", base64(key)))?;
        Ok(said.contains("\"count\":\"1\""))
    }

    fn post(&mut self, path: &str, body: &str) -> std::io::Result<String> {
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let well = line.split(' ').nth(1) == Some("200");
        let mut length = None;
        loop {
            line.clear();
            if self.0.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            match line.trim_end().split_once(':') {
                None => break,
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().ok()
                }
                Some(_) => {}
            }
        }
        let mut answer = vec![0; length.ok_or_else(|| std::io::Error::other("an answer without a length"))?];
        self.0.read_exact(&mut answer)?;
        if well {
            Ok(String::from_utf8_lossy(&answer).into_owned())
        } else {
            Err(std::io::Error::other(String::from_utf8_lossy(&answer).into_owned()))
        }
    }
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in text.as_bytes().chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for n in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * n) & 63) as usize];
            out.push(if n <= three.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_is_the_standards() {
        for (text, code) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(super::base64(text), code);
        }
    }
}
