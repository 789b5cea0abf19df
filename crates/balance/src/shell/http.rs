//! A small HTTP server for monitors and orchestrators, and what the balancer answers: `/metrics`, `/ready`, `/health` and `/state`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::address::Address;
use crate::shell::listen::Listener;
use crate::shell::run::Service;
use crate::shell::stream::Stream;

/// A request must be here within this time, and the answer be read.
const LIMIT: Duration = Duration::from_secs(5);
const HEAD_MAX: usize = 8 * 1024;
const CONNECTIONS_MAX: usize = 64;

/// A request as far as it is read: its first line and one header.
pub struct Request<'a> {
    /// Path and query.
    pub target: &'a str,
    /// What `Authorization: Bearer` brought.
    pub bearer: Option<&'a str>,
}

pub struct Answer {
    /// Number and words.
    pub status: &'static str,
    pub kind: &'static str,
    pub body: String,
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

/// Until it is aborted.
pub async fn accept(respond: Arc<Respond>, listener: Arc<Listener>) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        if open.fetch_add(1, Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Relaxed);
            continue;
        }
        let (respond, open) = (respond.clone(), open.clone());
        tokio::spawn(async move {
            let _ = timeout(LIMIT, answer(&*respond, stream)).await;
            open.fetch_sub(1, Relaxed);
        });
    }
}

async fn answer(respond: &Respond, mut stream: Stream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if head.len() >= HEAD_MAX || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let text = String::from_utf8_lossy(&head);
    let mut words = text.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let header = |line: &'_ str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("authorization").then(|| value.trim().strip_prefix("Bearer ").map(str::to_owned))?
    };
    let bearer = text.lines().skip(1).find_map(header);
    let Answer { status, kind, body } = match method {
        // OPTIONS is what HAProxy asks by default.
        "GET" | "HEAD" | "OPTIONS" => respond(&Request { target, bearer: bearer.as_deref() }),
        _ => Answer { status: "405 Method Not Allowed", kind: "text/plain", body: "only GET\n".to_owned() },
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    if method != "HEAD" {
        stream.write_all(body.as_bytes()).await?;
    }
    stream.shutdown().await
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
    Answer { status, kind, body }
}
