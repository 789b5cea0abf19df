//! TLS with a server, for logins of ours. Clients' TLS goes through the balancer unread.
//!
//! The library works on two buffers; what has to be sent and received is moved between them and the socket here, so that nothing blocks.

use std::io::{self, Read, Write};
use std::path::Path;

use openssl::ssl::{Error, ErrorCode, Ssl, SslContext, SslMethod, SslStream, SslVerifyMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::shell::stream::Stream;

/// Read at once.
const READ: usize = 16 * 1024;

pub struct Tls {
    stream: Stream,
    session: SslStream<Buffers>,
}

/// Encrypted bytes.
#[derive(Default)]
struct Buffers {
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

impl Read for Buffers {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.incoming.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let len = into.len().min(self.incoming.len());
        into[..len].copy_from_slice(&self.incoming[..len]);
        self.incoming.drain(..len);
        Ok(len)
    }
}

impl Write for Buffers {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Can be used to check servers' certificates.
pub fn check_ca(file: &Path) -> Result<(), String> {
    context(Some(file)).map(drop)
}

/// `ca`: the server must show a certificate that this one signed. `None`: any will do, as with a client that checks nothing.
fn context(ca: Option<&Path>) -> Result<SslContext, String> {
    let build = || {
        let mut builder = SslContext::builder(SslMethod::tls_client())?;
        if let Some(file) = ca {
            builder.set_ca_file(file)?;
            builder.set_verify(SslVerifyMode::PEER);
        }
        Ok(builder.build())
    };
    build().map_err(|e: openssl::error::ErrorStack| match ca {
        Some(file) => format!("{}: no certificates to check servers by: {e}", file.display()),
        None => format!("TLS: {e}"),
    })
}

impl Tls {
    /// After the request for TLS, which the caller has sent.
    pub async fn begin(stream: Stream, ca: Option<&Path>) -> io::Result<Tls> {
        let session = context(ca).and_then(|context| {
            let ssl = Ssl::new(&context).map_err(|e| e.to_string())?;
            SslStream::new(ssl, Buffers::default()).map_err(|e| e.to_string())
        });
        let mut tls = Tls { stream, session: session.map_err(io::Error::other)? };
        tls.drive(|session| session.connect()).await?;
        Ok(tls)
    }

    pub async fn read_exact(&mut self, into: &mut [u8]) -> io::Result<()> {
        let mut at = 0;
        while at < into.len() {
            let read = self.drive(|session| session.ssl_read(&mut into[at..])).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            at += read;
        }
        Ok(())
    }

    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            at += self.drive(|session| session.ssl_write(&bytes[at..])).await?;
        }
        Ok(())
    }

    /// Acts until that needs no more bytes.
    async fn drive<T>(&mut self, mut act: impl FnMut(&mut SslStream<Buffers>) -> Result<T, Error>) -> io::Result<T> {
        loop {
            let outcome = act(&mut self.session);
            // Also after an error: the other side learns of it.
            let outgoing = std::mem::take(&mut self.session.get_mut().outgoing);
            self.stream.write_all(&outgoing).await?;
            match outcome {
                Ok(value) => return Ok(value),
                Err(error) if error.code() == ErrorCode::WANT_READ => {
                    let mut bytes = [0; READ];
                    let read = self.stream.read(&mut bytes).await?;
                    if read == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    self.session.get_mut().incoming.extend_from_slice(&bytes[..read]);
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {error}"))),
            }
        }
    }
}
