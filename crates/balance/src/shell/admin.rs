//! The control socket, and GLB's FIFO.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::time::timeout;

use crate::control::{self, Command, HELP, LINE_MAX};
use crate::shell::listen::Listener;
use crate::shell::run::Service;
use crate::shell::stream::Stream;
use crate::shell::{handover, notify, upgrade};

/// Connections at the same time, as GLB has it.
const CONNECTIONS_MAX: usize = 32;
/// Without a command for so long, a connection is closed, so that forgotten ones do not fill the places.
const IDLE: Duration = Duration::from_secs(300);
/// One who does not read the answer.
const WRITE_LIMIT: Duration = Duration::from_secs(5);

/// Until it is aborted.
pub async fn accept(service: Arc<Service>, listener: Listener) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        if open.fetch_add(1, Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Relaxed);
            let _ = timeout(WRITE_LIMIT, stream.write_all(b"Error: too many control connections\n")).await;
            continue;
        }
        let (service, open) = (service.clone(), open.clone());
        tokio::spawn(async move {
            let _ = converse(&service, stream).await;
            open.fetch_sub(1, Relaxed);
        });
    }
}

async fn converse(service: &Arc<Service>, stream: Stream) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let line = timeout(IDLE, read_line(&mut stream)).await.ok()??;
        match control::parse(&line, service.default_port()) {
            Ok(Command::Handover) => return hand_over(service, stream.into_inner()).await,
            Ok(Command::Upgrade) => {
                let answer = match upgrade::run(service).await {
                    Ok(answer) => answer,
                    Err(reason) => format!("Error: {reason}\n"),
                };
                timeout(WRITE_LIMIT, stream.get_mut().write_all(answer.as_bytes())).await.ok()?.ok()?;
            }
            command => {
                let answer = match command.and_then(|command| service.execute(command)) {
                    Ok(answer) => answer,
                    Err(reason) => format!("Error: {reason}\n"),
                };
                timeout(WRITE_LIMIT, stream.get_mut().write_all(answer.as_bytes())).await.ok()?.ok()?;
            }
        }
    }
}

/// `None`: the end, or a line without one.
async fn read_line(stream: &mut (impl AsyncBufReadExt + AsyncRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    let mut limited = stream.take(LINE_MAX as u64);
    limited.read_until(b'\n', &mut line).await.ok()?;
    if line.is_empty() || line.len() == LINE_MAX {
        return None;
    }
    Some(String::from_utf8_lossy(&line).into_owned())
}

async fn hand_over(service: &Arc<Service>, stream: Stream) -> Option<()> {
    let Stream::Unix(stream) = stream else { return None };
    let next = stream.peer_cred().ok().and_then(|peer| u32::try_from(peer.pid()?).ok()).filter(|pid| *pid > 0);
    let stream = stream.into_std().ok()?;
    stream.set_nonblocking(false).ok()?;
    let listeners = service.listeners();
    let given = tokio::task::spawn_blocking(move || {
        let named: Vec<_> = listeners.iter().map(|(name, l)| (name.clone(), l.as_fd().as_raw_fd())).collect();
        let given = handover::give(&stream, &named);
        // Before this process may end: its end must not pass for the end of the service.
        let told = match (&given, next) {
            (Ok(()), Some(next)) => notify::hand_on(next),
            (Ok(()), None) | (Err(_), _) => Ok(()),
        };
        (given, told)
    });
    let (given, told) = given.await.ok()?;
    if let Err(reason) = told {
        service.balancer.log(&format!("the next process was not made known as the service: {reason}"));
    }
    match given {
        Ok(()) => service.leave("another process has taken the listeners over", true),
        Err(reason) => service.balancer.log(&format!("the listeners were not handed over: {reason}")),
    }
    Some(())
}

/// Commands without answers.
pub async fn read_fifo(service: Arc<Service>, path: &Path) {
    let receiver = match pipe::OpenOptions::new().read_write(true).open_receiver(path) {
        Ok(receiver) => receiver,
        Err(error) => return service.balancer.log(&format!("cannot open {}: {error}", path.display())),
    };
    let mut reader = BufReader::new(receiver);
    loop {
        let Some(line) = read_line(&mut reader).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        match control::parse(&line, service.default_port()) {
            Ok(Command::Handover | Command::Upgrade) => {}
            command => {
                if let Err(reason) = command.and_then(|command| service.execute(command)) {
                    service.balancer.log(&format!("{}: {}: {reason}", path.display(), line.trim()));
                }
            }
        }
    }
}

/// The text that `help` prints.
pub fn help() -> String {
    HELP.to_owned()
}
