//! `/metrics`, `/ready`, `/health` and `/state` for monitors and orchestrators.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::shell::listen::Listener;
use crate::shell::run::Service;
use crate::shell::stream::Stream;

/// A request must be here within this time, and the answer be read.
const LIMIT: Duration = Duration::from_secs(5);
const HEAD_MAX: usize = 8 * 1024;
const CONNECTIONS_MAX: usize = 64;

/// Until it is aborted.
pub async fn accept(service: Arc<Service>, listener: Arc<Listener>) {
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
        let (service, open) = (service.clone(), open.clone());
        tokio::spawn(async move {
            let _ = timeout(LIMIT, answer(&service, stream)).await;
            open.fetch_sub(1, Relaxed);
        });
    }
}

async fn answer(service: &Arc<Service>, mut stream: Stream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if head.len() >= HEAD_MAX || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let text = String::from_utf8_lossy(&head);
    let mut words = text.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let (status, kind, body) = match method {
        "GET" | "HEAD" => respond(service, path),
        _ => ("405 Method Not Allowed", "text/plain", "only GET\n".to_owned()),
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

fn respond(service: &Arc<Service>, path: &str) -> (&'static str, &'static str, String) {
    let view = service.view();
    match path {
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
    }
}
