//! etcd: a log held by a majority, with keys and values and no database. The clients put values over its JSON interface.

use super::deaths::{self, Mortal};
use super::{SIZE, numbers_of_clients};
use crate::disks::OwnDisk;
use crate::field::{Context, pass_until};
use crate::plan::Point;
use crate::quota::Quotas;
use crate::record::Measured;
use crate::survivors::{Door, Doors, Row, Said, Writer};
use crate::systems::System;
use crate::tool::{Tool, command};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

struct Etcd<'a> {
    context: &'a Context,
    dir: PathBuf,
    nodes: u8,
    system: System,
    servers: Vec<Option<Tool>>,
    quotas: Option<Quotas>,
    /// With `--disks separate`; after the servers, which use them.
    disks: Vec<OwnDisk>,
}

pub fn run(context: &Context, point: &Point) -> Result<Measured, String> {
    let dir = context.dir.join("etcd");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut all = Etcd {
        context,
        dir,
        nodes: point.nodes,
        system: point.system()?,
        servers: Vec::new(),
        disks: Vec::new(),
        quotas: context.quotas()?,
    };
    all.servers.resize_with(usize::from(point.nodes), || None);
    for number in 1..=point.nodes {
        let disk = context.own_disk(&all.data(number))?;
        all.disks.extend(disk);
    }
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

    fn data(&self, number: u8) -> PathBuf {
        self.dir.join(format!("node{number}"))
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
        .arg(format!("--data-dir={}", self.data(number).display()))
        .args(["--initial-advertise-peer-urls", "--listen-peer-urls"].map(|o| format!("{o}=http://127.0.0.1:{peer}")))
        .args(["--advertise-client-urls", "--listen-client-urls"].map(|o| format!("{o}=http://127.0.0.1:{client}")));
        if self.system == System::EtcdFast {
            etcd.arg("--unsafe-no-fsync");
        }
        let words: Vec<String> = etcd.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        let server = Tool::start(etcd)?;
        if let Some(quotas) = &mut self.quotas {
            quotas.limit(number, server.pid())?;
        }
        if number == 1 {
            self.context
                .keep_settings(&format!("{}.txt", self.system.name()), &format!("etcd {}\n", words.join(" ")))?;
        }
        self.servers[usize::from(number) - 1] = Some(server);
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
        let text = "x".repeat(SIZE);
        let open = |client: u32| {
            let port = self.port((client % u32::from(self.nodes)) as u8 + 1);
            let mut connection = Client::open(port).map_err(|e| e.to_string())?;
            let text = text.clone();
            Ok(move |n| connection.put(&format!("{clients}/{client}/{n}"), &text).map_err(|e| e.to_string()))
        };
        let pids = || self.servers.iter().flatten().map(Tool::pid).collect();
        super::drive(self.context, clients, open, pids, measured)
    }

    fn faults(&mut self, measured: &mut Measured) -> Result<(), String> {
        let door = |number: u8| -> Door {
            let port = self.port(number);
            Box::new(move || -> Option<Box<dyn Writer>> { Some(Box::new(Client::open(port).ok()?)) })
        };
        let doors = Doors::moving((1..=self.nodes).map(door).collect());
        deaths::run(self.context, self, &doors, measured)
    }
}

fn key((client, n): Row) -> String {
    format!("acknowledged/{client}/{n}")
}

impl Writer for Client {
    /// After a refusal a client tries another member, as etcd's own clients do.
    fn write(&mut self, row: Row) -> Said {
        if self.put(&key(row), "x").is_ok() { Said::Acknowledged } else { Said::Gone }
    }
}

impl Mortal for Etcd<'_> {
    fn nodes(&self) -> u8 {
        self.nodes
    }

    fn survives_one(&self) -> bool {
        self.nodes >= 3
    }

    fn chief(&self) -> Result<u8, String> {
        let leads = |number: u8| {
            let said =
                Client::open(self.port(number)).and_then(|mut client| client.post("/v3/maintenance/status", "{}"));
            said.is_ok_and(|said| is_leader(&said))
        };
        let began = Instant::now();
        loop {
            if let Some(number) = (1..=self.nodes).find(|number| leads(*number)) {
                return Ok(number);
            }
            if began.elapsed() > LIMIT {
                return Err("etcd has no leader".to_owned());
            }
            pass_until(Instant::now() + Duration::from_millis(100), &self.context.cancel)?;
        }
    }

    fn primary(&self) -> Option<u8> {
        None
    }

    fn kill(&mut self, number: u8) -> Result<(), String> {
        // Dropping kills it.
        self.servers[usize::from(number) - 1] = None;
        Ok(())
    }

    fn bring_back(&mut self, number: u8) -> Result<(), String> {
        self.start(number)?;
        self.await_answer(number)
    }

    fn kill_all(&mut self) -> Result<(), String> {
        self.servers.iter_mut().for_each(|server| drop(server.take()));
        Ok(())
    }

    fn start_all(&mut self) -> Result<(), String> {
        Etcd::start_all(self)
    }

    fn take_over(&mut self, _dead: u8) -> Result<Option<u8>, String> {
        Ok(None)
    }

    fn lacks(&self, number: u8, rows: &BTreeSet<Row>) -> Result<BTreeSet<Row>, String> {
        let mut client = Client::open(self.port(number)).map_err(|e| e.to_string())?;
        let mut lacking = BTreeSet::new();
        for row in rows {
            if !client.has(&key(*row)).map_err(|e| e.to_string())? {
                lacking.insert(*row);
            }
        }
        Ok(lacking)
    }
}

/// Whether the member that says so about itself leads.
fn is_leader(said: &str) -> bool {
    let id = |name: &str| {
        let (_, rest) = said.split_once(&format!("\"{name}\":\""))?;
        rest.split('"').next().filter(|id| *id != "0")
    };
    id("leader").is_some_and(|leader| id("member_id") == Some(leader))
}

impl Drop for Etcd<'_> {
    fn drop(&mut self) {
        self.servers.clear();
        self.disks.clear();
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
    fn a_leader_is_known_by_its_own_words() {
        let said = |leader: &str| format!("{{\"header\":{{\"member_id\":\"17\"}},\"leader\":\"{leader}\"}}");
        assert!(super::is_leader(&said("17")));
        assert!(!super::is_leader(&said("18")) && !super::is_leader(&said("0")) && !super::is_leader("{}"));
    }

    #[test]
    fn base64_is_the_standards() {
        for (text, code) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(super::base64(text), code);
        }
    }
}
