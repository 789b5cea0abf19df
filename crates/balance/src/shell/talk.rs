//! `trireme balance control` and `top`: the other end of the control socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::address::Address;
use crate::shell::upgrade;
use crate::view::View;

const LIMIT: Duration = Duration::from_secs(5);
/// The answer comes when the next process has the listeners, or has had its time.
const UPGRADE_LIMIT: Duration = upgrade::LIMIT.saturating_add(LIMIT);
const EVERY: Duration = Duration::from_secs(1);

/// Sends one command and prints the answer.
pub fn control(socket: &str, words: &[String]) -> Result<(), String> {
    let answer = ask(socket, &words.join(" "))?;
    // A closed pipe (`| head`) is no error.
    let _ = write!(std::io::stdout(), "{answer}");
    match answer.strip_prefix("Error: ") {
        Some(_) => Err("the command was refused".to_owned()),
        None => Ok(()),
    }
}

/// Shows the table each second, until it is interrupted or the balancer ends.
pub fn top(socket: &str, once: bool) -> Result<(), String> {
    loop {
        let text = ask(socket, "status")?;
        let view: View = serde_json::from_str(&text).map_err(|e| format!("{socket}: not a balancer's answer: {e}"))?;
        if once {
            let _ = write!(std::io::stdout(), "{}", view.table());
            return Ok(());
        }
        // Clears the screen and begins at its top.
        let mut screen = std::io::stdout();
        if write!(screen, "\x1b[2J\x1b[H{}", view.table()).and_then(|()| screen.flush()).is_err() {
            return Ok(()); // Nobody looks any more.
        }
        std::thread::sleep(EVERY);
    }
}

fn ask(socket: &str, command: &str) -> Result<String, String> {
    let address = Address::listener(socket, "127.0.0.1")?;
    exchange(&address, command, limit(command))
        .map_err(|e| format!("{socket}: {e} (is a balancer running with --control {socket}?)"))
}

fn limit(command: &str) -> Duration {
    match command.trim() {
        "upgrade" => UPGRADE_LIMIT,
        _ => LIMIT,
    }
}

/// Answers have several lines, and none says which is the last: the end of our side makes the balancer close its own.
fn exchange(address: &Address, command: &str, limit: Duration) -> std::io::Result<String> {
    let line = format!("{command}\n");
    let mut answer = String::new();
    match address {
        Address::Unix(path) => {
            let mut stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(limit))?;
            stream.write_all(line.as_bytes())?;
            stream.shutdown(std::net::Shutdown::Write)?;
            BufReader::new(stream).read_to_string(&mut answer)?;
        }
        Address::Tcp { host, port } => {
            let mut stream = TcpStream::connect((host.as_str(), *port))?;
            stream.set_read_timeout(Some(limit))?;
            stream.write_all(line.as_bytes())?;
            stream.shutdown(std::net::Shutdown::Write)?;
            let mut reader = BufReader::new(stream);
            while reader.read_line(&mut answer)? > 0 {}
        }
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_is_waited_for_as_long_as_it_may_take() {
        assert!(limit("upgrade") > upgrade::LIMIT);
        assert_eq!(limit("status"), LIMIT);
    }
}
