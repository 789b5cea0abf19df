//! The system calls that the standard library and mio do not offer: connecting from a chosen address without waiting,
//! socket options, and reading and writing without copies or signals. All of this crate's `unsafe` but the isolation
//! table's `shutdown` is here.

use std::io::{self, IoSlice};
use std::mem::size_of;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use libc::{c_int, c_void, socklen_t};
use mio::net::TcpStream;

/// Bytes that the kernel may hold unsent. A control message cannot overtake them; this is 0.2 ms at 10 Gbit/s. It does not
/// limit what is in flight.
const UNSENT_MAX: c_int = 256 << 10;
/// An idle link is probed after this, at this spacing, and is dead after so many unanswered probes.
const KEEPALIVE_IDLE_SECONDS: c_int = 5;
const KEEPALIVE_SPACING_SECONDS: c_int = 2;
const KEEPALIVE_PROBES: c_int = 3;

/// Per-connection socket options.
#[derive(Clone, Debug)]
pub(crate) struct SocketOptions {
    pub dead_after: Duration,
    pub send_buffer: Option<usize>,
    pub recv_buffer: Option<usize>,
}

/// Starts to connect, from `source` when it is of the same family. The stream is writable once that has ended either way.
pub(crate) fn connect(remote: SocketAddr, source: Option<IpAddr>, options: &SocketOptions) -> io::Result<TcpStream> {
    let family = if remote.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: no pointers; the result is checked before it is used.
    let fd = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
    check(fd)?;
    // SAFETY: just opened and nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // Before connecting: the receive buffer's size decides the window scaling.
    tune(fd.as_raw_fd(), options);
    if let Some(source) = source.filter(|source| source.is_ipv4() == remote.is_ipv4()) {
        // Let the kernel choose the port only when the whole connection is known: else a source address runs out of ports
        // while connections to other places hold them.
        set(fd.as_raw_fd(), libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
        let (addr, len) = raw(SocketAddr::new(source, 0));
        // SAFETY: `addr` is a socket address of `len` bytes that outlives the call.
        check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const addr).cast(), len) })?;
    }
    let (addr, len) = raw(remote);
    // SAFETY: as above.
    match check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const addr).cast(), len) }) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(TcpStream::from_std(std::net::TcpStream::from(fd)))
}

/// Sets what makes a connection quick and its death noticed. Best effort: a kernel that lacks an option does without.
pub(crate) fn tune(fd: RawFd, options: &SocketOptions) {
    set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    set(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT_MAX);
    set(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, KEEPALIVE_IDLE_SECONDS);
    set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, KEEPALIVE_SPACING_SECONDS);
    set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, KEEPALIVE_PROBES);
    let dead_after = options.dead_after.as_millis().min(c_int::MAX as u128) as c_int;
    set(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, dead_after);
    if let Some(bytes) = options.send_buffer {
        set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes.min(c_int::MAX as usize) as c_int);
    }
    if let Some(bytes) = options.recv_buffer {
        set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes.min(c_int::MAX as usize) as c_int);
    }
}

/// `SO_RCVBUF` of an accepted connection whose peer has not said who it is: a hello and a TLS handshake fit. The kernel doubles it.
const STRANGERS_ROOM: c_int = 16 << 10;
/// Linux 5.14: which buffers a program has fixed. Not in all versions of `libc`.
const SO_BUF_LOCK: c_int = 72;

/// Gives the peer little of the kernel's memory, until [`widen`] gives it back. Its answer is what `widen` needs; `None` where nothing is changed,
/// since an operator has chosen the size, or since the kernel is too old to leave the choice to itself again.
///
/// A member sends one hello and waits for an answer, so nothing of it is dropped meanwhile.
pub(crate) fn narrow(fd: RawFd) -> Option<Room> {
    let room = get(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)?;
    if get(fd, libc::SOL_SOCKET, SO_BUF_LOCK) != Some(0) || room <= 2 * STRANGERS_ROOM {
        return None;
    }
    set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, STRANGERS_ROOM);
    Some(Room(room))
}

/// The room that the kernel gave a connection to begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room(c_int);

/// From here on the kernel decides again how much it keeps.
pub(crate) fn widen(fd: RawFd, room: Room) {
    set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, room.0 / 2);
    set(fd, libc::SOL_SOCKET, SO_BUF_LOCK, 0);
}

/// Connections that the kernel keeps until they are accepted. With the usual 128 a burst of strangers costs others a second each: that is when
/// the kernel asks again. Best effort; `net.core.somaxconn` bounds it.
const BACKLOG: c_int = 4096;

pub(crate) fn deepen_backlog(listener: RawFd) {
    // SAFETY: no pointers. Listening again on a socket that listens changes its backlog only.
    unsafe { libc::listen(listener, BACKLOG) };
}

/// Reads into the spare room of `buf`, which must have some. `Ok(0)` is the end of the stream.
pub(crate) fn recv(stream: &TcpStream, buf: &mut BytesMut) -> io::Result<usize> {
    let room = buf.spare_capacity_mut();
    debug_assert!(!room.is_empty(), "reading nothing looks like the end of the stream");
    // SAFETY: the kernel writes at most `room.len()` bytes into `room`, which is ours.
    let n = unsafe { libc::recv(stream.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), 0) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has initialised that many bytes.
    unsafe { buf.advance_mut(n) };
    Ok(n)
}

/// Writes as much of `parts` as the kernel takes. `sendmsg` and not `writev`, because a vanished peer must not raise
/// SIGPIPE in a process that is not ours.
pub(crate) fn send(stream: &TcpStream, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    // SAFETY: all-zero is a valid msghdr: no name, no control data, nothing to write.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // IoSlice is documented to have the layout of iovec; the kernel does not write through it.
    message.msg_iov = parts.as_ptr().cast_mut().cast();
    message.msg_iovlen = parts.len() as _;
    // SAFETY: `message` points to `parts`, which outlive the call.
    let n = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Runs `start`, which starts a thread, so that no signal of the process is delivered to the thread.
pub fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are ours and initialised before use; pthread_sigmask only changes this thread's mask, which is put back.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

fn set(fd: RawFd, level: c_int, name: c_int, value: c_int) {
    let value_at: *const c_void = (&raw const value).cast();
    // SAFETY: `value` is an int that outlives the call.
    unsafe { libc::setsockopt(fd, level, name, value_at, size_of::<c_int>() as socklen_t) };
}

fn get(fd: RawFd, level: c_int, name: c_int) -> Option<c_int> {
    let (mut value, mut len): (c_int, _) = (0, size_of::<c_int>() as socklen_t);
    // SAFETY: `value` is an int, as long as `len` says, and both outlive the call.
    let result = unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    (result == 0).then_some(value)
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn raw(addr: SocketAddr) -> (libc::sockaddr_storage, socklen_t) {
    // SAFETY: all-zero is a valid sockaddr_storage.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let at = &raw mut storage;
    let len = match addr {
        SocketAddr::V4(v4) => {
            // SAFETY: sockaddr_storage is as large and as aligned as any socket address.
            let to = unsafe { &mut *at.cast::<libc::sockaddr_in>() };
            to.sin_family = libc::AF_INET as libc::sa_family_t;
            to.sin_port = v4.port().to_be();
            to.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            // SAFETY: as above.
            let to = unsafe { &mut *at.cast::<libc::sockaddr_in6>() };
            to.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            to.sin6_port = v6.port().to_be();
            to.sin6_addr.s6_addr = v6.ip().octets();
            to.sin6_flowinfo = v6.flowinfo();
            to.sin6_scope_id = v6.scope_id();
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, len as socklen_t)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    fn state(fd: RawFd) -> (Option<c_int>, Option<c_int>) {
        (get(fd, libc::SOL_SOCKET, libc::SO_RCVBUF), get(fd, libc::SOL_SOCKET, SO_BUF_LOCK))
    }

    #[test]
    fn what_is_narrowed_is_the_kernels_again_once_widened() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let fd = accepted.as_raw_fd();
        let before = state(fd);
        if before.1.is_none() {
            // A kernel before 5.14.
            assert_eq!((narrow(fd), state(fd)), (None, before));
            return;
        }
        let room = narrow(fd).unwrap();
        assert_eq!(state(fd).0, Some(2 * STRANGERS_ROOM));
        widen(fd, room);
        assert_eq!(state(fd), before);
        // A size that an operator has chosen stays.
        set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 100_000);
        assert_eq!((narrow(fd), state(fd).0), (None, Some(200_000)));
    }
}
