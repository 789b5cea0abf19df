//! Listens to the monitors of the servers (`trireme monitor`, `/watch?node`), which say at once what their nodes see of the order.
//!
//! Their reports are taken beside the servers' own answers and never in their place: where no monitor answers, nothing is missing but time.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::address::Address;
use crate::config::{Check, Config, Monitors};
use crate::report::Pushed;
use crate::shell::balancer::Balancer;
use crate::shell::stream::{Stream, Tuning};

/// Between two looks at which monitors there should be.
const REVIEW: Duration = Duration::from_secs(1);
/// For a connection, and for the head of the answer.
const LIMIT: Duration = Duration::from_secs(2);
/// A monitor repeats itself twice a second.
const QUIET: Duration = Duration::from_secs(3);
/// Until one that went is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// The same, where none is, or it does not let us in.
const SELDOM: Duration = Duration::from_secs(10);
/// A line of an answer. Longer ones are of something else.
const LINE_MAX: u64 = 64 * 1024;
const LINES_MAX: usize = 64;

/// Keeps a task for each monitor, until it is aborted.
pub async fn supervise(balancer: Arc<Balancer>) {
    let mut tasks: HashMap<Address, AbortHandle> = HashMap::new();
    loop {
        let config = balancer.config();
        let wanted = wanted(&balancer, &config);
        tasks.retain(|address, task| {
            let stays = wanted.contains(address);
            if !stays {
                task.abort();
            }
            stays
        });
        for address in wanted {
            let listen = || tokio::spawn(listen(balancer.clone(), address.clone())).abort_handle();
            tasks.entry(address.clone()).or_insert_with(listen);
        }
        sleep(REVIEW).await;
    }
}

fn wanted(balancer: &Arc<Balancer>, config: &Config) -> BTreeSet<Address> {
    match (&config.check, &config.monitors) {
        // Without logins nobody knows which server has which name.
        (Check::Exec(_) | Check::Passive, _) | (Check::Login, Monitors::Off) => BTreeSet::new(),
        (Check::Login, Monitors::At(addresses)) => addresses.iter().cloned().collect(),
        (Check::Login, Monitors::Beside(port)) => {
            let servers: Vec<Address> = balancer.with(|pool, _| pool.nodes().map(|n| n.address.clone()).collect());
            let beside = |address| match address {
                Address::Tcp { host, .. } => Some(Address::Tcp { host, port: *port }),
                Address::Unix(_) => Some(Address::Tcp { host: "127.0.0.1".to_owned(), port: *port }),
            };
            servers.into_iter().filter_map(beside).collect()
        }
    }
}

async fn listen(balancer: Arc<Balancer>, address: Address) {
    // The last news to the operator.
    let mut told: Option<String> = None;
    loop {
        let mut heard = false;
        let outcome = events(&balancer, &address, &mut heard).await;
        if heard {
            balancer.log(&format!("monitor at {address}: gone; its server is asked, as before"));
            told = None;
        } else if let Err(Trouble::Wrong(reason)) = outcome {
            // That there is none is the usual case.
            if told.as_ref() != Some(&reason) {
                balancer.log(&format!("monitor at {address}: {reason}; its server is asked instead"));
                told = Some(reason);
            }
        }
        sleep(balancer.jitter(if heard { AGAIN } else { SELDOM })).await;
    }
}

enum Trouble {
    Gone,
    /// Something is there, and does not tell.
    Wrong(String),
}

impl From<io::Error> for Trouble {
    fn from(_: io::Error) -> Trouble {
        Trouble::Gone
    }
}

/// Until it ends. `heard`: it has told something.
async fn events(balancer: &Arc<Balancer>, address: &Address, heard: &mut bool) -> Result<(), Trouble> {
    let late = |_| Trouble::Gone;
    let tuning = Tuning { nodelay: true, keepalive: true };
    let mut stream = timeout(LIMIT, Stream::connect(address, tuning)).await.map_err(late)??;
    let token = balancer.config().monitor_token.clone();
    let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    let request = format!("GET /watch?node HTTP/1.1\r\nHost: monitor\r\nAccept: text/event-stream\r\n{token}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut stream = BufReader::new(stream);
    let status = timeout(LIMIT, head(&mut stream)).await.map_err(late)??;
    match status.as_str() {
        "200" => {}
        "401" => return Err(Trouble::Wrong("it asks for a token: use --monitor-token-file".to_owned())),
        other => return Err(Trouble::Wrong(format!("no monitor that knows /watch?node (status {other})"))),
    }
    loop {
        let line = timeout(QUIET, line(&mut stream)).await.map_err(late)??;
        let Some(pushed) = line.strip_prefix("data:").and_then(|json| Pushed::parse(json.trim())) else { continue };
        if !std::mem::replace(heard, true) {
            balancer.log(&format!("monitor at {address}: tells at once what {} sees", pushed.name));
        }
        balancer.pushed(&pushed);
    }
}

/// Reads to the end of the head. The number in its first line.
async fn head(stream: &mut BufReader<Stream>) -> io::Result<String> {
    let first = line(stream).await?;
    let status = first.split(' ').nth(1).unwrap_or_default().chars().take(16).collect();
    for _ in 0..LINES_MAX {
        if line(stream).await?.is_empty() {
            return Ok(status);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Without its end.
async fn line(stream: &mut BufReader<Stream>) -> io::Result<String> {
    let mut bytes = Vec::new();
    let read = stream.take(LINE_MAX).read_until(b'\n', &mut bytes).await?;
    if !bytes.ends_with(b"\n") {
        let kind = if read as u64 == LINE_MAX { io::ErrorKind::InvalidData } else { io::ErrorKind::UnexpectedEof };
        return Err(kind.into());
    }
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}
