//! One client, from its arrival to its end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::config::Config;
use crate::packet::{self, ServerError};
use crate::pool::{ListenerId, Nobody, NodeId, Role, TICK};
use crate::proxy::{self, Header, Origin};
use crate::shell::balancer::{Balancer, Session};
use crate::shell::pump::Pump;
use crate::shell::split;
use crate::shell::stream::{Stream, Tuning};

/// A client must have said who it is by the PROXY protocol within this time.
const PROXY_LIMIT: Duration = Duration::from_secs(5);
/// Bytes that a client may send before its server is known. A MariaDB client sends none.
const EARLY_MAX: usize = 16 * 1024;
/// The first packet of a server is a greeting or an error, and both are far smaller.
const GREETING_MAX: usize = 16 * 1024;
/// A session that lasts longer is watched for a server whose machine died: with keepalive, which takes five system calls.
const LONG: Duration = Duration::from_secs(5);
/// So long the server alone is listened to. Nearly all greet before, and a client says nothing before it is greeted: to look what it says
/// would be a system call. The thread that waits is woken for each timer that is due before its next one, so this one comes later.
const ALONE: Duration = TICK;
/// A client that waits asks again after this, also without a sign.
pub const ASK_AGAIN: Duration = Duration::from_millis(250);

/// A client that came in, and its listener.
pub struct Arrival {
    pub stream: Stream,
    pub listener: ListenerId,
    /// `None`: by a unix socket.
    pub peer: Option<SocketAddr>,
}

struct Guest {
    stream: Stream,
    listener: ListenerId,
    /// As the PROXY protocol or else the connection says.
    from: Option<SocketAddr>,
    to: Option<SocketAddr>,
    /// The bytes that it has sent so far.
    early: Vec<u8>,
}

/// The outcome of an attempt with one server.
enum Attempt {
    /// The server's first bytes, for the client.
    Greeted(Stream, Vec<u8>),
    /// The client spoke first: not MariaDB's protocol, or not one that we know. So be it.
    Spoken(Stream),
    /// It did not greet; with its own words, if it had some.
    Hindered(Hindrance, Option<Vec<u8>>),
    /// The client has gone, or the session was ended.
    Over,
}

/// Until one of the two has gone.
pub async fn serve(balancer: Arc<Balancer>, arrival: Arrival) {
    balancer.totals.accepted.fetch_add(1, Relaxed);
    let config = balancer.config();
    let Some(_place) = balancer.take_place() else {
        balancer.totals.refused_limit.fetch_add(1, Relaxed);
        let text = format!("trireme balance: {} clients are connected, which is the limit", balancer.clients_max());
        // At once: whoever is refused here must not take a place by lingering.
        let mut stream = arrival.stream;
        let _ = timeout(Duration::from_millis(100), stream.write_all(&packet::error_packet(&too_many(text)))).await;
        return;
    };
    // A system call for each client, and asked for by nobody else.
    let to = if config.send_proxy { arrival.stream.local_address() } else { None };
    let mut guest =
        Guest { stream: arrival.stream, listener: arrival.listener, from: arrival.peer, to, early: Vec::new() };
    if config.accept_proxy.iter().any(|network| arrival.peer.is_none_or(|peer| network.contains(peer.ip()))) {
        if !matches!(timeout(PROXY_LIMIT, read_proxy(&mut guest)).await, Ok(Ok(()))) {
            balancer.totals.broken.fetch_add(1, Relaxed);
            return;
        }
    }
    let Some((session, mut server, first)) = find_server(&balancer, &config, &mut guest).await else { return };
    // A client that spoke first speaks another protocol.
    let split = !first.is_empty() && guest.early.is_empty();
    if split && balancer.with(|pool, _| pool.role_of(guest.listener)) == Some(Role::Split) {
        let source = guest.from.map(|from| from.ip());
        server.tune(tuning(&config));
        return split::serve(&balancer, &config, guest.stream, guest.listener, source, session, server, first).await;
    }
    session.greeted();
    let (mut pump, greeted) = (Pump::default(), !first.is_empty());
    let whole = async {
        guest.stream.write_all(&first).await?;
        session.traffic.to_client_bytes.fetch_add(first.len() as u64, Relaxed);
        server.write_all(&guest.early).await?;
        session.traffic.to_server_bytes.fetch_add(guest.early.len() as u64, Relaxed);
        (guest.early, _) = (Vec::new(), first);
        // Most connections of those who connect often are over by then, and have cost less.
        if timeout(LONG, pump.run(&mut guest.stream, &mut server, &session.traffic)).await.is_err() {
            server.tune(tuning(&config));
            pump.run(&mut guest.stream, &mut server, &session.traffic).await;
        }
        io::Result::Ok(())
    };
    tokio::select! {
        _ = whole => {}
        () = session.end.notified() => return,
    }
    // Such as the check of a machine that only tries whether somebody listens.
    if greeted && !pump.is_answered() {
        balancer.with(|pool, _| pool.handle_broken_login(session.node));
    }
}

/// Of connections that last.
pub fn tuning(config: &Config) -> Tuning {
    Tuning { nodelay: config.nodelay, keepalive: config.keepalive }
}

/// Tries servers until one greets. `None`: the client has gone, or was refused.
async fn find_server(
    balancer: &Arc<Balancer>,
    config: &Config,
    guest: &mut Guest,
) -> Option<(Session, Stream, Vec<u8>)> {
    let deadline = Instant::now() + config.hold;
    let mut tried: Vec<NodeId> = Vec::new();
    let mut words: Option<Vec<u8>> = None;
    let mut held = false;
    loop {
        let mut sign = std::pin::pin!(balancer.changed().notified());
        sign.as_mut().enable();
        let nobody = match balancer.begin(guest.listener, guest.from.map(|from| from.ip()), &tried) {
            Ok(session) => {
                match attempt(config, &session, guest).await {
                    Attempt::Greeted(server, first) => {
                        balancer.totals.held_served.fetch_add(u64::from(held), Relaxed);
                        return Some((session, server, first));
                    }
                    Attempt::Spoken(server) => return Some((session, server, Vec::new())),
                    Attempt::Hindered(why, said) => {
                        why.tell(balancer, session.node);
                        words = said.or(words);
                    }
                    Attempt::Over => {
                        balancer.with(|pool, _| pool.handle_broken_login(session.node));
                        balancer.totals.broken.fetch_add(1, Relaxed);
                        return None;
                    }
                }
                tried.push(session.node);
                continue;
            }
            Err(nobody) => nobody,
        };
        if Instant::now() >= deadline {
            refuse_unserved(balancer, config, guest, nobody, words).await;
            return None;
        }
        if !std::mem::replace(&mut held, true) {
            balancer.totals.held.fetch_add(1, Relaxed);
        }
        tokio::select! {
            () = sign => {}
            () = sleep_until(deadline.min(Instant::now() + balancer.jitter(ASK_AGAIN))) => {}
            () = gone(guest) => {
                balancer.totals.broken.fetch_add(1, Relaxed);
                return None;
            }
        }
        if nobody == Nobody::Left {
            // A server that could not take it may be able to now. Those that wait do not hammer: each tries once in this time.
            let _ = timeout_at(deadline, sleep(balancer.jitter(ASK_AGAIN))).await;
            tried.clear();
        }
    }
}

async fn attempt(config: &Config, session: &Session, guest: &mut Guest) -> Attempt {
    let connect = async {
        let mut server = Stream::begin(&session.address, config.nodelay).await?;
        if config.send_proxy {
            let origin = match (guest.from, guest.to) {
                (Some(from), Some(to)) => Origin::Client { from, to },
                (Some(from), None) => Origin::Client { from, to: from },
                (None, _) => Origin::Local,
            };
            server.write_all(&proxy::encode(origin)).await?;
        }
        io::Result::Ok(server)
    };
    let deadline = Instant::now() + config.connect_timeout;
    let mut server = tokio::select! {
        outcome = timeout_at(deadline, connect) => match outcome {
            Ok(Ok(server)) => server,
            Ok(Err(error)) => return Hindrance::from(error).into(),
            Err(_) => return Hindrance::Failed.into(),
        },
        () = session.end.notified() => return Hindrance::Failed.into(),
    };
    if !guest.early.is_empty() {
        return spoken(server, deadline).await;
    }
    let mut first = Vec::with_capacity(256);
    let alone = deadline.min(Instant::now() + ALONE);
    loop {
        let mut early = [0; 1024];
        let is_alone = Instant::now() < alone;
        let got = tokio::select! {
            got = timeout_at(if is_alone { alone } else { deadline }, server.read_buf(&mut first)) => got,
            got = guest.stream.read(&mut early), if !is_alone => match got {
                Ok(n) if n > 0 => {
                    guest.early.extend_from_slice(&early[..n]);
                    // It was in the middle of reading the greeting: both get what the other said.
                    return match first.is_empty() {
                        true => spoken(server, deadline).await,
                        false => Attempt::Greeted(server, first),
                    };
                }
                Ok(_) | Err(_) => return Attempt::Over,
            },
            () = session.end.notified() => return Hindrance::Failed.into(),
        };
        match got {
            Ok(Ok(n)) if n > 0 => {}
            Err(_) if is_alone && alone < deadline => continue,
            Ok(Err(error)) => return Hindrance::from(error).into(),
            Ok(Ok(_)) | Err(_) => return Hindrance::Failed.into(),
        }
        if let Some((head, body)) = first.split_first_chunk::<{ packet::HEADER }>() {
            let (len, _) = packet::header(*head);
            if body.len() >= len.min(GREETING_MAX) {
                return match packet::parse_error(body) {
                    Some(error) => Attempt::Hindered(Hindrance::from(&error), Some(first)),
                    None => Attempt::Greeted(server, first),
                };
            }
        }
    }
}

impl From<Hindrance> for Attempt {
    fn from(why: Hindrance) -> Attempt {
        Attempt::Hindered(why, None)
    }
}

/// The reason why a server did not greet.
pub enum Hindrance {
    /// Nobody listens there, or the connection was reset: as when the server's process has gone.
    Refused(io::Error),
    /// It refuses our host.
    Blocked,
    /// It is no good at present, or the fault is ours.
    Failed,
}

impl From<io::Error> for Hindrance {
    fn from(error: io::Error) -> Hindrance {
        match error.kind() {
            io::ErrorKind::ConnectionRefused
            | io::ErrorKind::NotFound
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => Hindrance::Refused(error),
            // Such as too many open files, which is not the server's fault.
            _ => Hindrance::Failed,
        }
    }
}

/// In the place of a greeting.
impl From<&ServerError> for Hindrance {
    fn from(error: &ServerError) -> Hindrance {
        match error.code {
            packet::HOST_BLOCKED => Hindrance::Blocked,
            // Full, or shutting down: perhaps the next one takes the client.
            _ => Hindrance::Failed,
        }
    }
}

impl Hindrance {
    /// The pool hears what this says of the server.
    pub fn tell(&self, balancer: &Arc<Balancer>, node: NodeId) {
        match self {
            Hindrance::Refused(error) => {
                let text = error.to_string();
                balancer.with(|pool, now| pool.handle_refusal(node, text, now));
            }
            Hindrance::Blocked => balancer.with(|pool, _| pool.handle_blocked(node)),
            Hindrance::Failed => {}
        }
    }
}

/// For a client that does not wait for the greeting: whether its server is there.
async fn spoken(server: Stream, deadline: Instant) -> Attempt {
    match timeout_at(deadline, server.connected()).await {
        Ok(Ok(())) => Attempt::Spoken(server),
        Ok(Err(error)) => Hindrance::from(error).into(),
        Err(_) => Hindrance::Failed.into(),
    }
}

/// Until the client has gone. The bytes that it sends meanwhile are kept, as long as they are few.
async fn gone(guest: &mut Guest) {
    loop {
        if guest.early.len() >= EARLY_MAX {
            return std::future::pending().await;
        }
        match guest.stream.read_buf(&mut guest.early).await {
            Ok(n) if n > 0 => {}
            Ok(_) | Err(_) => return,
        }
    }
}

async fn read_proxy(guest: &mut Guest) -> io::Result<()> {
    loop {
        match proxy::decode(&guest.early) {
            Header::Whole(len, client) => {
                guest.early.drain(..len);
                guest.from = client.or(guest.from);
                return Ok(());
            }
            Header::Bad => return Err(io::ErrorKind::InvalidData.into()),
            Header::More => {
                if guest.stream.read_buf(&mut guest.early).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
}

async fn refuse_unserved(
    balancer: &Arc<Balancer>,
    config: &Config,
    guest: &mut Guest,
    nobody: Nobody,
    words: Option<Vec<u8>>,
) {
    balancer.totals.refused_unfit.fetch_add(1, Relaxed);
    let waited = format!("trireme balance: {nobody}, and none became so within {} ms", config.hold.as_millis());
    let bytes = match (words, nobody) {
        // The server's own reason says more.
        (Some(words), Nobody::Left) => words,
        (_, Nobody::Free) => packet::error_packet(&too_many(waited)),
        (_, Nobody::Fit | Nobody::Left) => {
            let code = packet::NOT_PREPARED;
            packet::error_packet(&ServerError { code, state: "08S01".into(), text: waited })
        }
    };
    say_and_close(&mut guest.stream, &bytes).await;
}

fn too_many(text: String) -> ServerError {
    ServerError {
        code: packet::TOO_MANY_CONNECTIONS,
        state: "08004".into(),
        text: format!("Too many connections: {text}"),
    }
}

/// A close with unread bytes would be a reset, and the client would not see what was said.
async fn say_and_close(stream: &mut Stream, bytes: &[u8]) {
    let say = async {
        stream.write_all(bytes).await?;
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(Duration::from_secs(1), say).await;
}
