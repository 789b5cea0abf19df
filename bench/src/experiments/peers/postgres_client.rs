//! A client of PostgreSQL over its unix socket: version 3 of its protocol, as far as one prepared statement needs it.

use std::fmt;
use std::io::{BufReader, Error, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Version 3.0 of the protocol.
const VERSION: u32 = 3 << 16;
/// An answer that is longer is none of a server's.
const LENGTH_MAX: usize = 1 << 20;

pub struct Client(BufReader<UnixStream>);

#[derive(Debug)]
pub enum Failure {
    /// The server answered with an error.
    Refused(String),
    /// There was no answer.
    Gone(Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(reason) => f.write_str(reason),
            Failure::Gone(error) => error.fmt(f),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Gone(error)
    }
}

/// A message: its kind, its length, its body.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 4).to_be_bytes();
    [&[kind][..], &length, body].concat()
}

impl Client {
    /// Logs in as `bench`, whom the server trusts. Every answer has to come within `limit`.
    pub fn open(socket: &Path, limit: Duration) -> Result<Client, Failure> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(limit))?;
        let mut client = Client(BufReader::new(stream));
        let body = [&VERSION.to_be_bytes()[..], b"user\0bench\0database\0postgres\0\0"].concat();
        let length = (body.len() as u32 + 4).to_be_bytes();
        client.0.get_mut().write_all(&[&length[..], &body].concat())?;
        client.finish().map(|()| client)
    }

    /// The statement that [`Client::execute`] runs.
    pub fn prepare(&mut self, sql: &str) -> Result<(), Failure> {
        // Without a name, and the server guesses the types of its parameters.
        let parse = message(b'P', &[b"\0", sql.as_bytes(), b"\0\0\0"].concat());
        self.0.get_mut().write_all(&[parse, message(b'S', b"")].concat())?;
        self.finish()
    }

    /// Runs the prepared statement in a transaction of its own. Parameters are text.
    pub fn execute(&mut self, parameters: &[&str]) -> Result<(), Failure> {
        // Portal and statement without names, all formats text.
        let mut bind = vec![0, 0, 0, 0];
        bind.extend((parameters.len() as u16).to_be_bytes());
        for parameter in parameters {
            bind.extend((parameter.len() as u32).to_be_bytes());
            bind.extend(parameter.as_bytes());
        }
        bind.extend([0, 0]);
        let all = [message(b'B', &bind), message(b'E', &[0; 5]), message(b'S', b"")].concat();
        self.0.get_mut().write_all(&all)?;
        self.finish()
    }

    /// Reads until the server is ready again. An error on the way is the outcome.
    fn finish(&mut self) -> Result<(), Failure> {
        let mut outcome = Ok(());
        loop {
            let mut head = [0; 5];
            self.0.read_exact(&mut head)?;
            let [kind, length @ ..] = head;
            let length = (u32::from_be_bytes(length) as usize).saturating_sub(4);
            if length > LENGTH_MAX {
                return Err(Error::other("an answer that is too long").into());
            }
            let mut body = vec![0; length];
            self.0.read_exact(&mut body)?;
            match kind {
                b'Z' => return outcome,
                b'E' => outcome = Err(Failure::Refused(reason(&body))),
                // Anything but "trusted" is a question that we have no answer for.
                b'R' if body != [0; 4] => return Err(Error::other("the server asks for a password").into()),
                _ => {}
            }
        }
    }
}

/// The text of an error: the field `M`.
fn reason(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    fields
        .filter_map(|field| field.strip_prefix('M').map(str::to_owned))
        .next()
        .unwrap_or_else(|| "an error".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn an_error_is_told_and_the_connection_goes_on() {
        let dir = trireme_private::fresh_dir(&std::env::temp_dir(), "trireme-bench-pg").unwrap();
        let path = dir.join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut seen = vec![0; 38];
            stream.read_exact(&mut seen).unwrap();
            let ready = message(b'Z', b"I");
            stream.write_all(&[message(b'R', &[0; 4]), ready.clone()].concat()).unwrap();
            let answers = [message(b'E', b"SERROR\0Mread-only transaction\0\0"), ready.clone()].concat();
            let _ = stream.read(&mut [0; 1000]).unwrap();
            stream.write_all(&answers).unwrap();
            let _ = stream.read(&mut [0; 1000]).unwrap();
            stream.write_all(&[message(b'C', b"INSERT 0 1\0"), ready].concat()).unwrap();
            seen
        });
        let mut client = Client::open(&path, Duration::from_secs(10)).unwrap();
        assert!(matches!(client.execute(&["1"]), Err(Failure::Refused(reason)) if reason == "read-only transaction"));
        client.execute(&["1"]).unwrap();
        let seen = server.join().unwrap();
        assert_eq!(&seen[..8], &[0, 0, 0, 38, 0, 3, 0, 0]);
        assert!(matches!(client.execute(&["1"]), Err(Failure::Gone(_))));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
