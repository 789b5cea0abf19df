//! Asks a monitor of a node, as `trireme top` and the monitors of other nodes do: one connection for each question.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use trireme_observe::station::Peer;

/// An answer, whatever it says.
pub struct Reply {
    /// `HTTP/1.1 200 OK`.
    pub line: String,
    pub body: Vec<u8>,
}

impl Reply {
    /// `200`; empty when the first line has no such word.
    pub fn status(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }
}

/// `limit`: for the connection, and for each wait for bytes. `most`: bytes of an answer that are read. `None`: what came is no answer.
///
/// **Errors:** the network's, with the kind that the operating system gave.
pub fn ask(peer: &Peer, path: &str, token: Option<&str>, limit: Duration, most: u64) -> io::Result<Option<Reply>> {
    let Peer { host, port, .. } = peer;
    let mut stream = connect(host.trim_matches(['[', ']']), *port, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    let authorization = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    // In one piece: a server that has read a whole request may answer and close before another one arrives.
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n{authorization}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream.take(most).read_to_end(&mut bytes)?;
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let body = bytes.split_off(end + 4);
    let head = String::from_utf8_lossy(&bytes);
    Ok(Some(Reply { line: head.lines().next().unwrap_or_default().to_owned(), body }))
}

/// By the first of the name's addresses that answers.
fn connect(host: &str, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
