//! A connection, by TCP or a unix socket.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::address::Address;
use crate::shell::names;

#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Settings of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    pub nodelay: bool,
    pub keepalive: bool,
}

impl Tuning {
    /// Best effort. What is set on a listening socket those have that are accepted from it.
    pub fn apply(self, socket: SockRef<'_>) {
        let _ = socket.set_tcp_nodelay(self.nodelay);
        if self.keepalive {
            let _ = socket.set_tcp_keepalive(
                &TcpKeepalive::new()
                    .with_time(KEEPALIVE_IDLE)
                    .with_interval(KEEPALIVE_EVERY)
                    .with_retries(KEEPALIVE_PROBES),
            );
            let _ = socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
        }
    }
}

/// A peer whose machine died is noticed after about 60 s.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
/// Or when it has not acknowledged what was sent for so long.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

impl Stream {
    /// Connects to the first address of a name that accepts.
    pub async fn connect(address: &Address, tuning: Tuning) -> io::Result<Stream> {
        match address {
            Address::Unix(path) => Stream::connect_unix(path).await,
            Address::Tcp { host, port } => {
                let stream = Stream::Tcp(TcpStream::connect(&names::resolve(host, *port).await?[..]).await?);
                stream.tune(tuning);
                Ok(stream)
            }
        }
    }

    async fn connect_unix(path: &Path) -> io::Result<Stream> {
        UnixStream::connect(path).await.map(Stream::Unix)
    }

    /// Best effort: a connection that cannot be tuned still works.
    pub fn tune(&self, tuning: Tuning) {
        if let Stream::Tcp(stream) = self {
            tuning.apply(SockRef::from(stream));
        }
    }

    /// Until there is something to read, or its end. It may be a false alarm.
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.readable().await,
            Stream::Unix(stream) => stream.readable().await,
        }
    }

    /// The other one's; `None` for unix sockets.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(stream) => stream.peer_addr().ok(),
            Stream::Unix(_) => None,
        }
    }

    /// Ours; `None` for unix sockets.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(stream) => stream.local_addr().ok(),
            Stream::Unix(_) => None,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
