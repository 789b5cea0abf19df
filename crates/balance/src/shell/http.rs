//! A small HTTP server for monitors and orchestrators, and what the balancer answers: `/metrics`, `/ready`, `/health` and `/state`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::address::Address;
use crate::shell::listen::Listener;
use crate::shell::run::Service;
use crate::shell::stream::Stream;

/// A request must be here within this time, and the answer be read; each event, too.
const LIMIT: Duration = Duration::from_secs(5);
const HEAD_MAX: usize = 8 * 1024;
/// Of requests, and of clients that watch.
const CONNECTIONS_MAX: usize = 64;

/// A request as far as it is read: its first line and two headers.
pub struct Request<'a> {
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The token of `Authorization: Bearer`, or the password of `Authorization: Basic`, which is how a browser asks people
    /// for it.
    pub token: Option<&'a str>,
    /// The kinds of answer that the client can show.
    pub accept: Option<&'a str>,
}

pub struct Answer {
    /// Number and words.
    pub status: &'static str,
    pub kind: &'static str,
    /// Further lines of the head, each with its line end.
    pub headers: &'static str,
    pub body: Body,
}

pub enum Body {
    Bytes(Vec<u8>),
    Static(&'static [u8]),
    /// All that is published from now on, as server-sent events, until the client goes. A client that reads slowly misses
    /// some.
    Events(Events),
}

impl From<String> for Body {
    fn from(text: String) -> Body {
        Body::Bytes(text.into_bytes())
    }
}

/// One client's end of a [`Feed`].
pub struct Events(watch::Receiver<Arc<str>>);

/// All that is published here goes to everybody who watches. Only the latest is kept.
pub struct Feed(watch::Sender<Arc<str>>);

impl Default for Feed {
    fn default() -> Feed {
        Feed(watch::Sender::new("".into()))
    }
}

impl Feed {
    /// `text`: one or several events as they go to the client, with the empty line behind each.
    pub fn publish(&self, text: String) {
        self.0.send_replace(text.into());
    }

    /// Begins with the latest.
    pub fn watch(&self) -> Events {
        let mut events = self.0.subscribe();
        events.mark_changed();
        Events(events)
    }

    pub fn watchers(&self) -> usize {
        self.0.receiver_count()
    }
}

/// Answers at once: it must not wait for anything.
pub type Respond = dyn Fn(&Request<'_>) -> Answer + Send + Sync;

/// Of the balancer.
pub fn of(service: Arc<Service>) -> Arc<Respond> {
    Arc::new(move |request: &Request<'_>| respond(&service, request.target.split('?').next().unwrap_or_default()))
}

/// For another command: answers at `listen`, and writes a line to everybody who connects to `line` (HAProxy's agent-check). Returns only
/// with an error.
pub fn serve_monitor(
    listen: &Address,
    respond: Arc<Respond>,
    line: Option<(Address, Arc<dyn Fn() -> String + Send + Sync>)>,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let listener = Arc::new(Listener::open(listen, SOCKET_MODE)?);
        if let Some((address, text)) = line {
            let listener = Listener::open(&address, SOCKET_MODE)?;
            tokio::spawn(async move {
                loop {
                    let Ok((mut stream, _)) = listener.accept().await else {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    };
                    let text = text();
                    let _ = timeout(LIMIT, async {
                        stream.write_all(text.as_bytes()).await?;
                        stream.shutdown().await
                    })
                    .await;
                }
            });
        }
        accept(respond, listener).await;
        Ok(())
    })
}

/// Of a socket's file.
const SOCKET_MODE: u32 = 0o660;

/// In the order in which they came. One too many ends the oldest, so whoever opens many and says nothing keeps nobody out.
#[derive(Default)]
struct Connections(VecDeque<AbortHandle>);

impl Connections {
    fn add(&mut self, task: AbortHandle) {
        self.0.retain(|task| !task.is_finished());
        if self.0.len() >= CONNECTIONS_MAX
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.abort();
        }
        self.0.push_back(task);
    }
}

/// Until it is aborted.
pub async fn accept(respond: Arc<Respond>, listener: Arc<Listener>) {
    let mut requests = Connections::default();
    let watching = Arc::new(Mutex::new(Connections::default()));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (respond, watching) = (respond.clone(), watching.clone());
        let request = tokio::spawn(async move {
            if let Ok(Ok(Some((stream, events)))) = timeout(LIMIT, answer(&*respond, stream)).await {
                let task = tokio::spawn(stream_events(stream, events));
                watching.lock().expect("only added to").add(task.abort_handle());
            }
        });
        requests.add(request.abort_handle());
    }
}

/// `Some`: events are to be sent.
async fn answer(respond: &Respond, mut stream: Stream) -> std::io::Result<Option<(Stream, Events)>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if head.len() >= HEAD_MAX || stream.read_buf(&mut head).await? == 0 {
            return Ok(None);
        }
    }
    let text = String::from_utf8_lossy(&head);
    let mut words = text.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let header = |wanted: &str| {
        text.lines().skip(1).find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case(wanted).then(|| value.trim())
        })
    };
    let token = header("authorization").and_then(token);
    let request = Request { method, target, token: token.as_deref(), accept: header("accept") };
    let Answer { status, kind, headers, body } = match method {
        // OPTIONS is what HAProxy asks by default.
        "GET" | "HEAD" | "OPTIONS" => respond(&request),
        _ => Answer {
            status: "405 Method Not Allowed",
            kind: "text/plain",
            headers: "",
            body: "only GET\n".to_owned().into(),
        },
    };
    let length = match &body {
        Body::Bytes(bytes) => format!("Content-Length: {}\r\n", bytes.len()),
        Body::Static(bytes) => format!("Content-Length: {}\r\n", bytes.len()),
        Body::Events(_) => String::new(),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{length}{headers}Connection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    match body {
        _ if method == "HEAD" => {}
        Body::Bytes(bytes) => stream.write_all(&bytes).await?,
        Body::Static(bytes) => stream.write_all(bytes).await?,
        Body::Events(events) => return Ok(Some((stream, events))),
    }
    stream.shutdown().await?;
    Ok(None)
}

/// Until the client goes, or reads nothing for [`LIMIT`].
async fn stream_events(mut stream: Stream, mut events: Events) {
    let mut ignored = [0; 256];
    loop {
        let changed = tokio::select! {
            changed = events.0.changed() => changed.is_ok(),
            // Nothing more is expected from a client but its end.
            read = stream.read(&mut ignored) => {
                if read.is_ok_and(|n| n > 0) { continue } else { false }
            }
        };
        if !changed {
            return;
        }
        let text = events.0.borrow_and_update().clone();
        if !matches!(timeout(LIMIT, stream.write_all(text.as_bytes())).await, Ok(Ok(()))) {
            return;
        }
    }
}

/// The token or password in an `Authorization` header.
fn token(value: &str) -> Option<String> {
    let (scheme, rest) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().to_owned());
    }
    let pair = openssl::base64::decode_block(rest.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let (_, password) = std::str::from_utf8(&pair).ok()?.split_once(':')?;
    Some(password.to_owned())
}

fn respond(service: &Arc<Service>, path: &str) -> Answer {
    let view = service.view();
    let (status, kind, body) = match path {
        "/metrics" => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", view.metrics()),
        // The process answers, whatever the servers do: a restart would mend nothing.
        "/health" => ("200 OK", "text/plain", "alive\n".to_owned()),
        "/ready" if view.ready() => ("200 OK", "text/plain", "ready\n".to_owned()),
        "/ready" => {
            let missing: Vec<&str> = view.listeners.iter().filter(|l| !l.serves).map(|l| l.address.as_str()).collect();
            let why = if view.leaving { "leaving".to_owned() } else { format!("no server for {}", missing.join(", ")) };
            ("503 Service Unavailable", "text/plain", why + "\n")
        }
        "/state" => ("200 OK", "application/json", service.status()),
        _ => ("404 Not Found", "text/plain", "there are /metrics, /ready, /health and /state\n".to_owned()),
    };
    Answer { status, kind, headers: "", body: body.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_programs_and_of_browsers() {
        assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
        // printf 'me:a:b' | base64
        assert_eq!(token("Basic bWU6YTpi").as_deref(), Some("a:b"));
        for bad in ["", "Bearer", "Basic !!!", "Basic bWU=", "Digest abc"] {
            assert_eq!(token(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn clients_that_say_nothing_or_watch_for_ever_keep_nobody_out() {
        let path = std::env::temp_dir().join(format!("trireme-http-{}", std::process::id()));
        let listener = Arc::new(Listener::open(&Address::Unix(path.clone()), 0o600).unwrap());
        let feed = Arc::new(Feed::default());
        feed.publish("event".to_owned());
        let watched = feed.clone();
        let respond: Arc<Respond> = Arc::new(move |request: &Request<'_>| Answer {
            status: "200 OK",
            kind: "text/plain",
            headers: "",
            body: if request.target == "/watch" { Body::Events(watched.watch()) } else { "alive".to_owned().into() },
        });
        let accepting = tokio::spawn(accept(respond, listener));
        let connect = || tokio::net::UnixStream::connect(path.clone());
        let mut open = Vec::new();
        for request in ["", "GET /watch HTTP/1.1\r\n\r\n"] {
            for _ in 0..=CONNECTIONS_MAX {
                let mut client = connect().await.unwrap();
                client.write_all(request.as_bytes()).await.unwrap();
                if !request.is_empty() {
                    // It watches from here on.
                    client.read_exact(&mut [0; 15]).await.unwrap();
                }
                open.push(client);
            }
            let mut client = connect().await.unwrap();
            client.write_all(b"GET /health HTTP/1.1\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert!(answer.ends_with("alive"), "{answer}");
        }
        while feed.watchers() > CONNECTIONS_MAX {
            tokio::task::yield_now().await;
        }
        accepting.abort();
        std::fs::remove_file(path).unwrap();
    }

    #[tokio::test]
    async fn who_watches_gets_the_latest_first_and_then_what_comes() {
        let feed = Feed::default();
        feed.publish("old".to_owned());
        feed.publish("new".to_owned());
        let mut events = feed.watch();
        events.0.changed().await.unwrap();
        assert_eq!(&**events.0.borrow_and_update(), "new");
        feed.publish("newer".to_owned());
        events.0.changed().await.unwrap();
        assert_eq!((&**events.0.borrow_and_update(), feed.watchers()), ("newer", 1));
        drop(events);
        assert_eq!(feed.watchers(), 0);
    }
}
