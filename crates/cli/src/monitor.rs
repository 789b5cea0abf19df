//! `trireme monitor`: reads the node's state file, or asks its server, asks the monitors of the other nodes, and answers.
//! `trireme-observe` decides the answer.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use trireme_balance::{Address, Answer, Body, Feed, Request, serve_monitor};
use trireme_metrics::State;
use trireme_metrics::state::{FILE_NAME, LEN};
use trireme_observe::client::Connect;
use trireme_observe::dashboard::HEADERS;
use trireme_observe::monitor::{Content, Look, Monitor};
use trireme_observe::station::{Peer, Station, TICK};
use trireme_observe::status;
use trireme_observe::survey::Target;
use trireme_observe::table::printable;

use crate::ask::ask;

/// Of another monitor's reason, in characters.
const SAID_MAX: usize = 300;
/// Between two looks at the file.
const EVERY: Duration = Duration::from_millis(250);
/// The same while somebody wants to know at once. The node writes it as often.
const AT_ONCE: Duration = Duration::from_millis(50);
/// Between two questions to a server without such a file.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// For another monitor to answer.
const PEER_LIMIT: Duration = Duration::from_millis(900);
/// The servers of others are asked as long as somebody looked within this time.
const WATCHED: Duration = Duration::from_secs(60);

pub fn run(asked: &Monitor) -> ExitCode {
    match serve(asked) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("trireme monitor: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Shared by the threads.
struct Shared {
    asked: Monitor,
    token: Option<String>,
    station: Mutex<Station>,
    feed: Feed,
    /// The order as this node sees it.
    order: Feed,
    /// When somebody last asked for the whole cluster.
    watched: Mutex<Option<Instant>>,
}

impl Shared {
    fn station(&self) -> MutexGuard<'_, Station> {
        self.station.lock().expect("no holder of the station panics")
    }

    fn is_watched(&self) -> bool {
        let asked = *self.watched.lock().expect("no holder panics");
        self.feed.watchers() > 0 || asked.is_some_and(|at| at.elapsed() < WATCHED)
    }

    fn respond(&self, request: &Request<'_>) -> Answer {
        if self.token.as_deref().is_some_and(|token| !same(token, request.token.unwrap_or_default())) {
            return Answer {
                status: "401 Unauthorized",
                kind: "text/plain",
                // A browser asks its user then: any name, and the token as the password.
                headers: "WWW-Authenticate: Basic realm=\"trireme monitor\"\r\n",
                body: "the token is missing or wrong\n".to_owned().into(),
            };
        }
        if request.target == "/watch?node" {
            let body = Body::Events(self.order.watch());
            return Answer { status: "200 OK", kind: "text/event-stream", headers: HEADERS, body };
        }
        let path = request.target.split('?').next().unwrap_or_default();
        if matches!(path, "/cluster" | "/state" | "/history") {
            *self.watched.lock().expect("no holder panics") = Some(Instant::now());
        }
        // Load balancers ask with OPTIONS, or say nothing of what they accept: they get clustercheck's answer at the root.
        let page = request.method == "GET" && request.accept.is_some();
        let answer = self.station().respond(request.target, page, Instant::now());
        let body = match answer.body {
            Content::Text(text) => text.into(),
            Content::Bytes(bytes) => Body::Bytes(bytes),
            Content::Asset(bytes) => Body::Static(bytes),
            Content::Watch => Body::Events(self.feed.watch()),
        };
        Answer { status: answer.status, kind: answer.kind, headers: HEADERS, body }
    }
}

fn serve(asked: &Monitor) -> Result<(), String> {
    let listen = Address::listener(&asked.listen, "127.0.0.1")?;
    let agent = asked.agent.as_ref().map(|text| Address::listener(text, "127.0.0.1")).transpose()?;
    let token = asked.token_file.as_deref().map(token).transpose()?;
    for address in [Some(&listen), agent.as_ref()].into_iter().flatten() {
        if token.is_none() && !is_near(address) {
            return Err(format!(
                "whoever reaches {address} could read it: listen at 127.0.0.1 (and let a proxy with TLS stand before it), or give --token-file"
            ));
        }
    }
    asked.connect.targets()?.first().ok_or("no server is named")?;
    let port = match &listen {
        Address::Tcp { port, .. } => Some(*port),
        Address::Unix(_) => None,
    };
    let named = asked.peers.iter().map(|text| Peer::named(text, port.unwrap_or(DEFAULT_PORT)));
    let named = named.collect::<Result<Vec<Peer>, String>>()?;
    let shared = Arc::new(Shared {
        asked: asked.clone(),
        token,
        station: Mutex::new(Station::new(port, named, Instant::now())),
        feed: Feed::default(),
        order: Feed::default(),
        watched: Mutex::new(None),
    });
    for work in [watch_own, tick] {
        let shared = shared.clone();
        thread::spawn(move || work(&shared));
    }
    let for_agent = shared.clone();
    let line: Arc<dyn Fn() -> String + Send + Sync> =
        Arc::new(move || for_agent.station().own().health(Instant::now()).agent().to_owned());
    let respond = Arc::new(move |request: &Request<'_>| shared.respond(request));
    serve_monitor(&listen, respond, agent.map(|address| (address, line)))
}

const DEFAULT_PORT: u16 = 9105;

fn watch_own(shared: &Arc<Shared>) {
    let connect = &shared.asked.connect;
    let target = connect.targets().ok().and_then(|targets| targets.into_iter().next());
    let mut told = Told::default();
    loop {
        let at_once = shared.order.watchers() > 0;
        let (look, pause) = match (read(&shared.asked.data_dir), &target) {
            (Some(look), _) => (look, if at_once { AT_ONCE } else { EVERY }),
            (None, Some(target)) => (ask_server(shared, connect, target), ASK_EVERY),
            (None, None) => return,
        };
        let process = match &look {
            Look::File(Ok(state)) => Some((state.process, runs(state.process))),
            Look::File(Err(_)) | Look::Unreadable(_) | Look::Answer(_) => None,
        };
        let now = Instant::now();
        let order = {
            let mut station = shared.station();
            station.handle_own(look, process, now);
            station.own().order(now)
        };
        if let Some(order) = order.filter(|order| !at_once || told.is_due(order, now)) {
            shared.order.publish(format!("event: node\ndata: {order}\n\n"));
        }
        thread::sleep(pause);
    }
}

/// The last report to those who want to know at once.
#[derive(Default)]
struct Told(Option<(serde_json::Value, Instant)>);

impl Told {
    /// Whether there is news, or nothing was told for a while. Notes that it is told now.
    fn is_due(&mut self, order: &serde_json::Value, now: Instant) -> bool {
        let mut content = order.clone();
        content["age"] = serde_json::Value::Null;
        let due = self.0.as_ref().is_none_or(|(old, at)| *old != content || now.duration_since(*at) >= TICK);
        if due {
            self.0 = Some((content, now));
        }
        due
    }
}

/// Where there is no state file.
fn ask_server(shared: &Shared, connect: &Connect, target: &Target) -> Look {
    status::ask(connect, target, false).map_or_else(
        |trouble| {
            let file = shared.asked.data_dir.join(FILE_NAME);
            // A wrong directory is as likely as a Galera node.
            Look::Unreadable(format!("there is no {}, and the server: {trouble}", file.display()))
        },
        |facts| Look::Answer(Ok(Box::new(facts))),
    )
}

/// Puts all together, and tells those who watch.
fn tick(shared: &Arc<Shared>) {
    let mut asked = BTreeSet::new();
    loop {
        let begun = Instant::now();
        let frame = {
            let mut station = shared.station();
            station.tick(begun, status::unix_time());
            let peers = station.peers(begun);
            // One that was forgotten has ended its thread.
            asked.retain(|peer| peers.contains(peer));
            for peer in peers {
                if asked.insert(peer.clone()) {
                    let shared = shared.clone();
                    thread::spawn(move || watch_peer(&shared, &peer));
                }
            }
            station.frame()
        };
        shared.feed.publish(frame);
        thread::sleep(TICK.saturating_sub(begun.elapsed()));
    }
}

/// Until it is forgotten.
fn watch_peer(shared: &Shared, peer: &Peer) {
    loop {
        let begun = Instant::now();
        if !shared.station().peers(begun).contains(peer) {
            return;
        }
        let look = ask_monitor(peer, shared.token.as_deref());
        let mut look = shared.station().checked(peer, look);
        let mut pause = TICK;
        // Where no monitor answers for the node, its server is asked before anything is told: else the node would look lost in between.
        if let (Look::Unreadable(_), Some(server), true) = (&look, &peer.server, shared.is_watched()) {
            // Of two reasons the first says what to do.
            if let Ok(answer) = status::ask(&shared.asked.connect, server, false) {
                look = Look::Answer(Ok(Box::new(answer)));
            }
            pause = ASK_EVERY;
        }
        shared.station().handle_peer(peer, look, Instant::now());
        thread::sleep(pause.saturating_sub(begun.elapsed()).max(TICK / 5));
    }
}

/// The node of another monitor, as that one knows it.
fn ask_monitor(peer: &Peer, token: Option<&str>) -> Look {
    let why = |what: String| Look::Unreadable(format!("its monitor at {}:{} {what}", peer.host, peer.port));
    let reply = match ask(peer, "/node", token, PEER_LIMIT, 4 * LEN as u64) {
        Ok(Some(reply)) => reply,
        Ok(None) => return why("gave no answer".to_owned()),
        Err(error) => {
            return match error.kind() {
                ErrorKind::ConnectionRefused => why(
                    "is not there: start `trireme monitor` beside that node with --listen at an address that this machine reaches".to_owned(),
                ),
                ErrorKind::WouldBlock | ErrorKind::TimedOut => why("does not answer".to_owned()),
                _ => why(format!("is not reached: {error}")),
            };
        }
    };
    match reply.status() {
        "200" => match State::decode(&reply.body) {
            Ok(state) => Look::File(Ok(state)),
            Err(bad) => why(format!("tells what is not understood: {bad}")),
        },
        "401" => why("refuses the token: all monitors need the same --token-file".to_owned()),
        "503" => {
            let body = String::from_utf8_lossy(&reply.body);
            let said: String = body.lines().next().unwrap_or_default().chars().take(SAID_MAX).collect();
            why(format!("knows nothing of its node: {}", printable(&said)))
        }
        other => {
            why(format!("is none that knows of /node (status {other}): it is of an older version, or another program"))
        }
    }
}

/// The state file. `None`: there is none.
fn read(data_dir: &Path) -> Option<Look> {
    let path = data_dir.join(FILE_NAME);
    let mut bytes = Vec::new();
    let outcome = File::open(&path).and_then(|file| file.take(2 * LEN as u64).read_to_end(&mut bytes));
    match outcome {
        Ok(_) => Some(Look::File(State::decode(&bytes))),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let text = format!("{}: {error}: run this as the user of the server", path.display());
            Some(Look::Unreadable(text))
        }
        Err(error) => Some(Look::Unreadable(format!("{}: {error}", path.display()))),
    }
}

/// A process that has ended and is not waited for yet does not run.
fn runs(process: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    // The name in brackets may hold anything.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}

/// This machine only.
fn is_near(address: &Address) -> bool {
    match address {
        Address::Unix(_) => true,
        Address::Tcp { host, .. } => {
            host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
    }
}

/// The first line of a file that nobody else can read.
pub fn token(path: &Path) -> Result<String, String> {
    let text = trireme_private::read_secret(path)?.ok_or_else(|| format!("there is no {}", path.display()))?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next().unwrap_or_default().trim();
    if line.is_empty() { Err(format!("{} holds no token", path.display())) } else { Ok(line.to_owned()) }
}

/// Takes as long whatever is wrong.
fn same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |wrong, (a, b)| wrong | (a ^ b)) == 0
}
