//! The socket: it joins the group, sends to it and hears it.

use std::io;
use std::mem::size_of_val;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::{c_int, socklen_t};
use mio::net::UdpSocket;

use super::MulticastConfig;

/// The bytes that the kernel may keep while the thread is at something else. It gives less where `net.core.rmem_max` is
/// lower.
const RECEIVE_BUFFER: c_int = 4 << 20;
const SEND_BUFFER: c_int = 1 << 20;

pub(crate) struct Edge {
    pub socket: UdpSocket,
    group: SocketAddr,
}

impl Edge {
    pub fn open(cfg: &MulticastConfig) -> io::Result<Edge> {
        // SAFETY: no pointers; the result is checked before it is used.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // Several nodes of one host listen to one group.
        set(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        // To the address of the group, so that nothing else that is sent to the port comes here.
        let addr = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: cfg.group.port().to_be(),
            sin_addr: libc::in_addr { s_addr: number(*cfg.group.ip()) },
            sin_zero: [0; 8],
        };
        // SAFETY: `addr` is a socket address of that size and outlives the call.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const addr).cast(), size_of_val(&addr) as socklen_t) };
        if bound < 0 {
            return Err(io::Error::last_os_error());
        }
        let interface = libc::in_addr { s_addr: number(cfg.interface) };
        set_to(&fd, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &interface)?;
        set(&fd, libc::IPPROTO_IP, libc::IP_MULTICAST_TTL, c_int::from(cfg.ttl))?;
        // Datagrams of groups that other sockets of this host have joined do not come here. A path with a smaller MTU cuts
        // datagrams. Best effort, both, and the sizes.
        let _ = set(&fd, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0);
        let _ = set(&fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT);
        let _ = set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER);
        let _ = set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BUFFER);
        let socket = std::net::UdpSocket::from(fd);
        socket.join_multicast_v4(cfg.group.ip(), &cfg.interface)?;
        Ok(Edge { socket: UdpSocket::from_std(socket), group: SocketAddr::V4(cfg.group) })
    }

    pub fn send(&self, datagram: &[u8]) -> io::Result<()> {
        self.socket.send_to(datagram, self.group).map(|_| ())
    }

    pub fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.recv(into)
    }
}

/// As the kernel wants an address.
fn number(ip: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(ip.octets())
}

fn set(fd: &OwnedFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    set_to(fd, level, name, &value)
}

fn set_to<T>(fd: &OwnedFd, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    let at: *const T = value;
    // SAFETY: `value` is as long as is said and outlives the call; the kernel only reads it.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, at.cast(), size_of_val(value) as socklen_t) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
