//! GLB's watchdog: a program for each server that answers `poll` with a state and the other members.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::address::Address;
use crate::health::{Heard, Verdict};
use crate::pool::NodeId;
use crate::shell::balancer::Balancer;

/// The longest line that is read.
const LINE_MAX: u64 = 64 * 1024;
/// A program that ends, or that answers nothing, is started again after this many intervals.
const PAUSE: u32 = 10;

/// Until the program fails; then after a pause.
pub async fn watch(balancer: &Arc<Balancer>, id: NodeId, address: &Address, command: &str) {
    let config = balancer.config();
    let reason = match run(balancer, id, address, command).await {
        Ok(never) => match never {},
        Err(reason) => reason,
    };
    balancer.log(&format!("{address}: watchdog `{command}`: {reason}"));
    balancer.heard(id, Heard::Watchdog(Verdict::NotFound, None));
    sleep(config.interval.max(Duration::from_millis(100)) * PAUSE).await;
}

enum Never {}

async fn run(balancer: &Arc<Balancer>, id: NodeId, address: &Address, command: &str) -> Result<Never, String> {
    let config = balancer.config();
    let mut child = start(address, command).map_err(|e| format!("cannot be started: {e}"))?;
    let mut input = child.stdin.take().expect("piped");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    loop {
        let began = Instant::now();
        input.write_all(b"poll\n").await.map_err(|e| format!("takes no commands: {e}"))?;
        let mut line = Vec::new();
        let limit = config.timeout.max(config.interval);
        let mut limited = (&mut output).take(LINE_MAX);
        match timeout(limit, limited.read_until(b'\n', &mut line)).await {
            Err(_) => return Err(format!("no answer within {} ms", limit.as_millis())),
            Ok(Err(error)) => return Err(format!("{error}")),
            Ok(Ok(0)) => return Err("it ended".to_owned()),
            Ok(Ok(_)) => {}
        }
        let took = began.elapsed();
        let (verdict, members) = parse(&String::from_utf8_lossy(&line))?;
        balancer.heard(id, Heard::Watchdog(verdict, Some(took)));
        if verdict == Verdict::Ready {
            balancer.members(members);
        }
        sleep(balancer.jitter(config.interval)).await;
    }
}

/// The first word is the program; the address comes before its other words.
fn start(address: &Address, command: &str) -> std::io::Result<Child> {
    let command = command.strip_prefix("exec:").unwrap_or(command).trim_matches('"').trim();
    let (program, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    Command::new("/bin/sh")
        .arg("-c")
        .arg(format!("exec {program} \"$0\" {rest}"))
        .arg(address.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()
}

/// `<state> [members]`, the members with commas or blanks between.
fn parse(line: &str) -> Result<(Verdict, Vec<Address>), String> {
    let mut words = line.split([' ', '\t', ',', '\r', '\n']).filter(|word| !word.is_empty());
    let verdict = match words.next() {
        Some("0") => Verdict::NotFound,
        Some("1") => Verdict::NotReady,
        Some("2") => Verdict::Avoid,
        Some("3") => Verdict::Ready,
        _ => return Err(format!("`{}` does not begin with a number from 0 to 3", line.trim())),
    };
    Ok((verdict, words.filter_map(Address::incoming).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let (verdict, members) = parse("3 10.0.0.1:3306,AUTO,10.0.0.2\n").unwrap();
        assert_eq!(verdict, Verdict::Ready);
        assert_eq!(members.iter().map(Address::to_string).collect::<Vec<_>>(), ["10.0.0.1:3306", "10.0.0.2:3306"]);
        assert_eq!(parse("0").unwrap().0, Verdict::NotFound);
        assert!(parse("4").is_err() && parse("").is_err() && parse("ready").is_err());
    }
}
