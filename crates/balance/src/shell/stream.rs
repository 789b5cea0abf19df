//! A connection, by TCP or a unix socket.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use nix::errno::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::address::Address;
use crate::shell::names;

#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream, Nodelay),
    Unix(UnixStream),
}

/// TCP_NODELAY of a connection. Without it bytes wait for the answer to those before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodelay {
    /// As it was set, or not.
    Settled,
    /// It is set as soon as bytes would wait. A short session has one question at a time and saves the system call.
    Awaited { unanswered: bool },
}

/// Settings of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    pub nodelay: bool,
    pub keepalive: bool,
}

impl Tuning {
    /// Best effort. A socket inherits them from the listening one that it is accepted from.
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
                let stream = TcpStream::connect(&names::resolve(host, *port).await?[..]).await?;
                tuning.apply(SockRef::from(&stream));
                Ok(Stream::Tcp(stream, Nodelay::Settled))
            }
        }
    }

    /// The same for a peer that speaks first. Where it has one address only, this returns before it has accepted, and what hinders it is the
    /// error of the first read or write. That saves two system calls, and to be woken up once.
    pub async fn begin(address: &Address, nodelay: bool) -> io::Result<Stream> {
        let Address::Tcp { host, port } = address else {
            return Stream::connect(address, Tuning { nodelay, keepalive: false }).await;
        };
        let addresses = names::resolve(host, *port).await?;
        let stream = match addresses[..] {
            [one] => {
                let socket = Socket::new(Domain::for_address(one), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
                match socket.connect(&one.into()) {
                    Err(error) if error.raw_os_error() != Some(Errno::EINPROGRESS as i32) => return Err(error),
                    Ok(()) | Err(_) => TcpStream::from_std(socket.into())?,
                }
            }
            _ => TcpStream::connect(&addresses[..]).await?,
        };
        let nodelay = if nodelay { Nodelay::Awaited { unanswered: false } } else { Nodelay::Settled };
        Ok(Stream::Tcp(stream, nodelay))
    }

    /// Until a peer that was [begun](Stream::begin) with has accepted, or an error says that it does not.
    pub async fn connected(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream, _) => {
                stream.writable().await?;
                stream.take_error()?.map_or(Ok(()), Err)
            }
            Stream::Unix(_) => Ok(()),
        }
    }

    async fn connect_unix(path: &Path) -> io::Result<Stream> {
        UnixStream::connect(path).await.map(Stream::Unix)
    }

    /// Best effort: a connection that cannot be tuned still works.
    pub fn tune(&mut self, tuning: Tuning) {
        if let Stream::Tcp(stream, nodelay) = self {
            tuning.apply(SockRef::from(&*stream));
            *nodelay = Nodelay::Settled;
        }
    }

    /// Until there is something to read, or its end. It may be a false alarm.
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream, _) => stream.readable().await,
            Stream::Unix(stream) => stream.readable().await,
        }
    }

    /// The other one's; `None` for unix sockets.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(stream, _) => stream.peer_addr().ok(),
            Stream::Unix(_) => None,
        }
    }

    /// Ours; `None` for unix sockets.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(stream, _) => stream.local_addr().ok(),
            Stream::Unix(_) => None,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream, nodelay) => {
                ready!(Pin::new(stream).poll_read(cx, buf))?;
                if let Nodelay::Awaited { unanswered } = nodelay {
                    *unanswered = false;
                }
                Poll::Ready(Ok(()))
            }
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream, nodelay) => {
                if *nodelay == (Nodelay::Awaited { unanswered: true }) {
                    let _ = stream.set_nodelay(true);
                    *nodelay = Nodelay::Settled;
                }
                let written = ready!(Pin::new(stream).poll_write(cx, bytes))?;
                if let Nodelay::Awaited { unanswered } = nodelay {
                    *unanswered = true;
                }
                Poll::Ready(Ok(written))
            }
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream, _) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn at(listener: &TcpListener) -> Address {
        Address::Tcp { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() }
    }

    fn has_nodelay(stream: &Stream) -> bool {
        let Stream::Tcp(stream, _) = stream else { panic!("{stream:?}") };
        stream.nodelay().unwrap()
    }

    #[tokio::test]
    async fn bytes_that_follow_unanswered_ones_do_not_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = Stream::begin(&at(&listener), true).await.unwrap();
        let mut peer = listener.accept().await.unwrap().0;
        for _ in 0..3 {
            peer.write_all(b"answer").await.unwrap();
            stream.read_exact(&mut [0; 6]).await.unwrap();
            stream.write_all(b"question").await.unwrap();
            assert!(!has_nodelay(&stream), "one at a time");
        }
        stream.write_all(b"another").await.unwrap();
        assert!(has_nodelay(&stream));
        let mut all = vec![0; 3 * 8 + 7];
        peer.read_exact(&mut all).await.unwrap();
        assert_eq!(&all[16..], b"questionanother");
    }

    #[tokio::test]
    async fn it_stays_as_it_is_where_nobody_wants_it_otherwise() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = Stream::begin(&at(&listener), false).await.unwrap();
        for _ in 0..3 {
            stream.write_all(b"question").await.unwrap();
        }
        assert!(!has_nodelay(&stream));
        stream.tune(Tuning { nodelay: true, keepalive: true });
        assert!(has_nodelay(&stream));
    }

    #[tokio::test]
    async fn who_does_not_accept_is_known_by_the_first_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = at(&listener);
        let accepts = Stream::begin(&address, true).await.unwrap();
        accepts.connected().await.unwrap();
        drop(listener);
        let mut refused = Stream::begin(&address, true).await.unwrap();
        assert_eq!(refused.read(&mut [0; 8]).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let refused = Stream::begin(&address, true).await.unwrap();
        assert_eq!(refused.connected().await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
