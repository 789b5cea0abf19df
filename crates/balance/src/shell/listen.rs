//! Listening sockets: opened, taken over, and accepted from.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use nix::errno::Errno;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};
use tokio::net::{TcpListener, UnixListener};

use crate::address::Address;
use crate::pool::ListenerId;
use crate::shell::balancer::Balancer;
use crate::shell::session::{Arrival, serve};
use crate::shell::stream::{Nodelay, Stream, Tuning};

/// Connections that the kernel keeps until we accept them. It lowers this to its own limit.
const BACKLOG: i32 = 4096;
/// Without free descriptors, somebody has to leave first.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// `mode`: of a unix socket's file.
    pub fn open(address: &Address, mode: u32) -> Result<Listener, String> {
        let opened = match address {
            Address::Unix(path) => open_unix(path, mode),
            Address::Tcp { host, port } => open_tcp(host, *port),
        };
        opened.map_err(|error| format!("cannot listen at {address}: {error}"))
    }

    /// One that another process opened.
    pub fn adopt(address: &Address, descriptor: OwnedFd) -> Result<Listener, String> {
        let adopted = match address {
            Address::Unix(_) => {
                let std = std::os::unix::net::UnixListener::from(descriptor);
                std.set_nonblocking(true).and_then(|()| UnixListener::from_std(std)).map(Listener::Unix)
            }
            Address::Tcp { .. } => {
                let std = std::net::TcpListener::from(descriptor);
                std.set_nonblocking(true).and_then(|()| TcpListener::from_std(std)).map(Listener::Tcp)
            }
        };
        adopted.map_err(|error| format!("cannot take over {address}: {error}"))
    }

    /// Of all that are accepted from now on: they inherit it, which saves six system calls for each.
    pub fn tune(&self, tuning: Tuning) {
        if let Listener::Tcp(listener) = self {
            tuning.apply(SockRef::from(listener));
        }
    }

    pub async fn accept(&self) -> io::Result<(Stream, Option<SocketAddr>)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                let ip = match peer.ip() {
                    IpAddr::V6(ip) => ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4),
                    v4 => v4,
                };
                Ok((Stream::Tcp(stream, Nodelay::Settled), Some(SocketAddr::new(ip, peer.port()))))
            }
            Listener::Unix(listener) => listener.accept().await.map(|(stream, _)| (Stream::Unix(stream), None)),
        }
    }

    /// With the port that the kernel gave, if 0 was asked for.
    pub fn address(&self, asked: &Address) -> Address {
        match (self, asked) {
            (Listener::Tcp(listener), Address::Tcp { host, port: 0 }) => {
                let port = listener.local_addr().map_or(0, |a| a.port());
                Address::Tcp { host: host.clone(), port }
            }
            _ => asked.clone(),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }
}

fn open_tcp(host: &str, port: u16) -> io::Result<Listener> {
    let address = (host, port)
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))?;
    match open_at(address, host == "::") {
        Err(error) if host == "::" && lacks_ipv6(&error) => {
            open_at(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port), false)
        }
        outcome => outcome,
    }
}

/// The machine has no IPv6, or it is switched off.
fn lacks_ipv6(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::EAFNOSUPPORT, Errno::EADDRNOTAVAIL].iter().any(|errno| code == Some(*errno as i32))
}

/// `both`: IPv4 as well.
fn open_at(address: SocketAddr, both: bool) -> io::Result<Listener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!both)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into()).map(Listener::Tcp)
}

fn open_unix(path: &Path, mode: u32) -> io::Result<Listener> {
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
        if is_taken(path) {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there"));
        }
        // Left behind by one that was killed.
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok(Listener::Unix(listener))
}

/// Somebody has this unix socket. A refused connection says that nobody has, and so does a file that is not there. One that is busy answers with
/// other errors.
pub fn is_taken(path: &Path) -> bool {
    let connect = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        socket.connect(&SockAddr::unix(path)?)
    };
    match connect() {
        Ok(()) => true,
        Err(error) => !matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound),
    }
}

/// Until it is aborted. Each client gets a task of its own.
pub async fn accept(balancer: Arc<Balancer>, listener: Arc<Listener>, id: ListenerId) {
    let mut spare = fs::File::open("/dev/null").ok();
    let mut trouble = false;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                tokio::spawn(serve(balancer.clone(), Arrival { stream, listener: id, peer }));
                if spare.is_none() {
                    spare = fs::File::open("/dev/null").ok();
                }
                trouble &= spare.is_none();
            }
            Err(error) => {
                balancer.totals.accept_errors.fetch_add(1, Relaxed);
                if !std::mem::replace(&mut trouble, true) {
                    balancer
                        .log(&format!("cannot accept clients: {error}; further ones are refused until this is over"));
                }
                // The client would wait in the kernel's queue without a word. With the spare descriptor it is let in and sent away.
                if spare.take().is_some() {
                    let _ = tokio::time::timeout(PAUSE, listener.accept()).await;
                    spare = fs::File::open("/dev/null").ok();
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Removes a unix socket's file when its listener ends, unless it was handed over.
#[derive(Debug, Default)]
pub struct SocketFile(Option<PathBuf>);

impl SocketFile {
    pub fn of(address: &Address) -> SocketFile {
        let mut file = SocketFile::default();
        file.own(address);
        file
    }

    /// Removes the file of this address from now on, and no other.
    pub fn own(&mut self, address: &Address) {
        self.0 = match address {
            Address::Unix(path) => Some(path.clone()),
            Address::Tcp { .. } => None,
        };
    }

    /// Gives the socket another name in place of whatever has it.
    pub fn rename(&mut self, name: &Path) -> io::Result<()> {
        if let Some(path) = &self.0 {
            fs::rename(path, name)?;
            self.0 = Some(name.to_owned());
        }
        Ok(())
    }

    pub fn keep(&mut self) {
        self.0 = None;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_is_accepted_is_tuned_as_the_listener_is() {
        let listener = Listener::open(&Address::Tcp { host: "127.0.0.1".into(), port: 0 }, 0).unwrap();
        listener.tune(Tuning { nodelay: true, keepalive: true });
        let Listener::Tcp(tcp) = &listener else { panic!("{listener:?}") };
        let _client = std::net::TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let (Stream::Tcp(accepted, _), _) = listener.accept().await.unwrap() else { panic!("not by TCP") };
        let (accepted, tuned) = (SockRef::from(&accepted), SockRef::from(tcp));
        assert!(accepted.tcp_nodelay().unwrap() && accepted.keepalive().unwrap());
        assert_eq!(accepted.tcp_user_timeout().unwrap(), tuned.tcp_user_timeout().unwrap());
        assert!(accepted.tcp_user_timeout().unwrap().is_some());
        assert_eq!(accepted.tcp_keepalive_time().unwrap(), tuned.tcp_keepalive_time().unwrap());
    }

    #[tokio::test]
    async fn a_socket_that_somebody_has_is_left_to_him() {
        let path = std::env::temp_dir().join(format!("trireme-listen-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let address = Address::Unix(path.clone());
        // Busy: its queue is full.
        let busy = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        busy.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        busy.listen(0).unwrap();
        let _waits = std::os::unix::net::UnixStream::connect(&path).unwrap();
        assert!(Listener::open(&address, 0o600).is_err());
        assert!(path.exists());
        drop(busy);
        Listener::open(&address, 0o600).unwrap();
        fs::remove_file(&path).unwrap();
        // Of another kind.
        let other = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        assert!(Listener::open(&address, 0o600).is_err());
        assert!(path.exists());
        drop(other);
        fs::remove_file(&path).unwrap();
    }

    #[tokio::test]
    async fn a_port_that_is_in_use_is_no_lack_of_ipv6() {
        assert!(lacks_ipv6(&io::Error::from_raw_os_error(Errno::EAFNOSUPPORT as i32)));
        // A machine without IPv6 has nothing to test here.
        let Ok(other) = std::net::TcpListener::bind("[::1]:0") else { return };
        let port = other.local_addr().unwrap().port();
        let opened = Listener::open(&Address::Tcp { host: "::".into(), port }, 0);
        assert!(opened.is_err(), "{opened:?}");
    }
}
