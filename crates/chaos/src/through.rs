//! The way from the clients to the servers: straight, through `trireme balance`, or through HAProxy with its usual check of a Galera node.

use crate::options::Options;
use std::fmt;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use trireme_cluster::{Cluster, Endpoint, Error, NodeId, Result, Session, until};

/// Where the clients of a run connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// Each to a node of its own.
    Direct,
    /// To the writer's listener of `trireme balance`.
    Balance,
    /// To HAProxy, with one server and the others as backups.
    Haproxy,
}

impl Through {
    pub const ALL: [Through; 3] = [Through::Direct, Through::Balance, Through::Haproxy];
}

impl fmt::Display for Through {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Through::Direct => "direct",
            Through::Balance => "balance",
            Through::Haproxy => "haproxy",
        })
    }
}

impl FromStr for Through {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let found = Through::ALL.into_iter().find(|way| way.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is no way to the servers: direct, balance or haproxy"))
    }
}

/// A balancer leads clients to a node within this time after its start.
const READY: Duration = Duration::from_secs(20);
/// For one question through it.
const PATIENCE: Duration = Duration::from_secs(3);
/// Debian's HAProxy is not in every user's `PATH`.
const HAPROXY: [&str; 2] = ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy"];
/// The tenth port of each node is spare: its check answers there.
const CHECK_PORT: u16 = 9;

/// A running balancer, which ends with this.
pub(crate) struct Front {
    child: Child,
    socket: PathBuf,
    _checks: Vec<CheckServer>,
}

impl Front {
    /// `None` for clients that go straight. Returns when clients are led to a node.
    pub fn start(options: &Options, cluster: &Cluster) -> Result<Option<Front>> {
        let socket = cluster.dir().join("front.sock");
        let log = options.file(format!("{}.log", options.through));
        let (mut command, checks) = match options.through {
            Through::Direct => return Ok(None),
            Through::Balance => (balance(options, cluster, &socket)?, Vec::new()),
            Through::Haproxy => haproxy(options, cluster, &socket)?,
        };
        let output = std::fs::File::create(&log).map_err(|error| io("cannot write a balancer's log", error))?;
        let errors = output.try_clone().map_err(|error| io("cannot write a balancer's log", error))?;
        let child = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn();
        let child = child.map_err(|error| io("cannot start the balancer", error))?;
        let mut front = Front { child, socket, _checks: checks };
        until("the balancer leads clients to a node", READY, cluster.cancel(), || {
            if front.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(Error::BadSpec(format!("the balancer ended: {}", said.trim())));
            }
            Ok(front.node_behind().map(drop))
        })?;
        Ok(Some(front))
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The node that a new client gets.
    pub fn node_behind(&self) -> std::result::Result<NodeId, String> {
        let mut session = Session::open(&self.socket, None, PATIENCE).map_err(|error| error.to_string())?;
        node_of(&mut session).map_err(|error| error.to_string())
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// The node that a session has come to.
pub(crate) fn node_of(session: &mut Session) -> std::result::Result<NodeId, trireme_cluster::SqlError> {
    let name = session.query("SELECT @@wsrep_node_name")?.text().unwrap_or_default();
    name.parse().map_err(|_| trireme_cluster::SqlError::Protocol("a node without a name of ours"))
}

/// By the servers' own sockets: they can be reached also while the nodes' network is cut.
fn balance(options: &Options, cluster: &Cluster, socket: &Path) -> Result<Command> {
    let Some(program) = &options.balancer else {
        return Err(Error::BadSpec("the `trireme` command is not known, so there is no balancer".to_owned()));
    };
    let nodes: Vec<String> = cluster.endpoints().iter().map(|node| node.socket().display().to_string()).collect();
    let mut command = Command::new(program);
    command.args(["balance", "--no-discover", "--threads", "2", "--nodes"]).arg(nodes.join(","));
    command.arg("--writer").arg(socket).arg("--control").arg(cluster.dir().join("front.control"));
    Ok(command)
}

fn haproxy(options: &Options, cluster: &Cluster, socket: &Path) -> Result<(Command, Vec<CheckServer>)> {
    let Some(program) = HAPROXY.iter().find(|path| Path::new(path).exists()) else {
        return Err(Error::BadSpec("HAProxy is not installed: apt-get install haproxy".to_owned()));
    };
    let mut text = format!(
        "global\n    maxconn 4096\ndefaults\n    mode tcp\n    timeout connect 5s\n    timeout client 1h\n    timeout server 1h\n    \
         option redispatch\n    retries 3\nlisten galera\n    bind unix@{}\n    option httpchk\n    \
         default-server inter 1s fall 2 rise 2 on-marked-down shutdown-sessions\n",
        socket.display()
    );
    let mut checks = Vec::new();
    for (i, endpoint) in cluster.endpoints().into_iter().enumerate() {
        let port = cluster.node(endpoint.node)?.ports.sql + CHECK_PORT;
        let (name, path) = (endpoint.node, endpoint.socket().display().to_string());
        let backup = if i == 0 { "" } else { " backup" };
        text.push_str(&format!("    server {name} unix@{path} check addr 127.0.0.1 port {port}{backup}\n"));
        checks.push(CheckServer::start(endpoint, port)?);
    }
    let file = options.file("haproxy.cfg");
    std::fs::write(&file, text).map_err(|error| io("cannot write HAProxy's configuration", error))?;
    let mut command = Command::new(program);
    command.args(["-db", "-f"]).arg(file);
    Ok((command, checks))
}

/// A stand-in for `clustercheck` behind xinetd: each HTTP request is a login to the node and a look at its state, and 200 is
/// the answer of a Synced one.
struct CheckServer {
    stop: Arc<AtomicBool>,
    port: u16,
    thread: Option<JoinHandle<()>>,
}

/// xinetd starts a script for each request; HAProxy has gone by then if it takes longer.
const CHECK_LIMIT: Duration = Duration::from_secs(5);

impl CheckServer {
    fn start(endpoint: Endpoint, port: u16) -> Result<CheckServer> {
        let listener = TcpListener::bind(("127.0.0.1", port)).map_err(|error| io("cannot listen for checks", error))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), endpoint) = (stream, endpoint.clone()) else { continue };
                // A frozen node keeps one waiting; the next request is not to wait behind it. Each ends by itself.
                std::thread::spawn(move || drop(answer(stream, &endpoint)));
            }
        });
        Ok(CheckServer { stop, port, thread: Some(thread) })
    }
}

impl Drop for CheckServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(mut stream: TcpStream, endpoint: &Endpoint) -> std::io::Result<()> {
    stream.set_read_timeout(Some(CHECK_LIMIT))?;
    let _ = stream.read(&mut [0; 1024])?;
    let state = Session::open(endpoint.socket(), None, CHECK_LIMIT)
        .and_then(|mut session| session.query("SHOW STATUS LIKE 'wsrep_local_state'"));
    let synced = state.is_ok_and(|answer| answer.texts().first().and_then(|row| row.get(1)).is_some_and(|n| n == "4"));
    let (status, text) = match synced {
        true => ("200 OK", "Galera cluster node is synced.\r\n"),
        false => ("503 Service Unavailable", "Galera cluster node is not synced.\r\n"),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    )
}

fn io(what: &str, error: std::io::Error) -> Error {
    Error::Io { what: what.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for way in Through::ALL {
            assert_eq!(way.to_string().parse(), Ok(way));
        }
        assert!("proxysql".parse::<Through>().unwrap_err().contains("haproxy"));
    }
}
