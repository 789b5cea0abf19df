//! `libtrireme_connect.so`, for `LD_PRELOAD`: what a program connects to at the address in `GLB_BIND` is connected to one of the servers in
//! `GLB_TARGETS` instead. Nothing stands between the two afterwards.
//!
//! A guest in somebody else's process: it starts no thread, opens nothing that stays open, and whatever goes wrong inside, `connect` is what it was
//! without it.

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use trireme_balance::{Address, Candidate, Chooser, NodeId, Targets};

/// A server that does not take a connection within this time is passed over.
const LIMIT: Duration = Duration::from_secs(1);
/// One that failed is not tried again for so long, unless all have.
const AVOID: Duration = Duration::from_secs(2);
/// Another thread chooses in microseconds. More means that we were called in a signal handler, or that it did not survive a fork.
const TRIES: u32 = 1000;

/// The settings, and the state of the servers.
struct State {
    host: Option<IpAddr>,
    port: u16,
    servers: Vec<Server>,
    /// Stands for this machine where the policy asks for the client's address.
    source: IpAddr,
    chooser: Chooser,
}

struct Server {
    address: SocketAddr,
    /// Of the address as it was written.
    key: u64,
    weight: f64,
    failed: Option<Instant>,
}

static STATE: OnceLock<Option<Mutex<State>>> = OnceLock::new();

thread_local! {
    /// Resolving names connects too.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

type Connect = unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;

/// The C library's `connect`, or the next one before it.
///
/// # Safety
/// As connect(2).
unsafe fn real_connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let mut next = NEXT.load(Ordering::Relaxed);
    if next == 0 {
        // SAFETY: a constant name, looked up behind this library.
        next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"connect".as_ptr()) } as usize;
        NEXT.store(next, Ordering::Relaxed);
    }
    if next == 0 {
        // SAFETY: the caller's promise.
        return unsafe { libc::syscall(libc::SYS_connect, fd, address, len) as c_int };
    }
    // SAFETY: a symbol of this name has this type; the rest is the caller's promise.
    unsafe { std::mem::transmute::<usize, Connect>(next)(fd, address, len) }
}

/// Programs call this instead of the C library's.
///
/// # Safety
/// As connect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    if INSIDE.try_with(|inside| inside.replace(true)).unwrap_or(true) {
        // SAFETY: the caller's promise.
        return unsafe { real_connect(fd, address, len) };
    }
    // SAFETY: the caller's promise: `len` bytes can be read.
    let asked = unsafe { read_address(address, len) };
    let led = catch_unwind(AssertUnwindSafe(|| asked.and_then(|asked| lead(fd, asked)))).unwrap_or(None);
    let _ = INSIDE.try_with(|inside| inside.set(false));
    match led {
        // SAFETY: the caller's promise.
        None => unsafe { real_connect(fd, address, len) },
        Some(Ok(())) => 0,
        Some(Err(error)) => {
            // SAFETY: errno of this thread.
            unsafe { *libc::__errno_location() = error };
            -1
        }
    }
}

/// `None`: not ours. An error is an errno.
fn lead(fd: c_int, asked: SocketAddr) -> Option<Result<(), c_int>> {
    let state = STATE.get_or_init(|| set_up().map(Mutex::new)).as_ref()?;
    let (host, port) = {
        let state = lock(state)?;
        (state.host, state.port)
    };
    let ip = plain(asked.ip());
    if asked.port() != port || !host.map_or(ip.is_loopback(), |host| host == ip) || !is_stream(fd) {
        return None;
    }
    let mut tried = Vec::new();
    let mut error = libc::ECONNREFUSED;
    while let Some((n, server)) = lock(state).and_then(|mut state| state.choose(&tried, asked.is_ipv6())) {
        tried.push(n);
        match attempt(fd, server, asked.is_ipv6()) {
            Ok(()) => {
                if let Some(mut state) = lock(state) {
                    state.servers[n].failed = None;
                }
                return Some(Ok(()));
            }
            Err(why) => error = why,
        }
        if let Some(mut state) = lock(state) {
            state.servers[n].failed = Some(Instant::now());
        }
    }
    Some(Err(error))
}

fn lock(state: &Mutex<State>) -> Option<std::sync::MutexGuard<'_, State>> {
    for _ in 0..TRIES {
        if let Ok(guard) = state.try_lock() {
            return Some(guard);
        }
        std::thread::yield_now();
    }
    None
}

impl State {
    /// Those that failed lately come last.
    fn choose(&mut self, tried: &[usize], six: bool) -> Option<(usize, SocketAddr)> {
        let now = Instant::now();
        let usable = |n: &usize| !tried.contains(n) && (six || self.servers[*n].address.is_ipv4());
        let all: Vec<usize> = (0..self.servers.len()).filter(usable).collect();
        let avoided = |n: &usize| self.servers[*n].failed.is_some_and(|at| now.duration_since(at) < AVOID);
        let good: Vec<usize> = all.iter().copied().filter(|n| !avoided(n)).collect();
        let from = if good.is_empty() { all } else { good };
        let candidates: Vec<Candidate> = from
            .iter()
            .map(|n| {
                let Server { key, weight, .. } = self.servers[*n];
                Candidate { id: NodeId(*n as u32), key, weight, connections: 0 }
            })
            .collect();
        let n = self.chooser.choose(&candidates, Some(self.source))?.0 as usize;
        Some((n, self.servers[n].address))
    }
}

fn set_up() -> Option<State> {
    let targets = match Targets::from_variables(|name| std::env::var(name).ok()) {
        Ok(targets) => targets?,
        Err(reason) => {
            eprintln!("libtrireme_connect: {reason}; connections are left as they are");
            return None;
        }
    };
    if !targets.ignored.is_empty() {
        eprintln!("libtrireme_connect: without effect: {}", targets.ignored.join(", "));
    }
    let host = match &targets.host {
        None => None,
        Some(text) => match text.parse() {
            Ok(ip) => Some(ip),
            Err(_) => {
                eprintln!("libtrireme_connect: {text} is no IP address; connections are left as they are");
                return None;
            }
        },
    };
    let mut servers = Vec::new();
    for (named, weight) in &targets.nodes {
        let Address::Tcp { host, port } = named else {
            eprintln!("libtrireme_connect: {named} is left out: only TCP");
            continue;
        };
        match (host.as_str(), *port).to_socket_addrs().ok().and_then(|mut all| all.next()) {
            Some(address) => servers.push(Server { address, key: named.hash(), weight: *weight, failed: None }),
            None => eprintln!("libtrireme_connect: {named} is left out: the name has no address"),
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = trireme_types::mix(u64::from(std::process::id()) ^ now.as_nanos() as u64);
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let source = identity(&machine, &host_name(), std::process::id());
    let chooser = Chooser::new(targets.policy, targets.top, seed);
    let mut state = State { host, port: targets.port, servers, source, chooser };
    // Programs that connect once would all begin with the first.
    for _ in 0..seed % (state.servers.len() as u64).max(1) {
        let _ = state.choose(&[], true);
    }
    Some(state)
}

/// The same for all programs of a machine, and another one on each machine. Copies of a machine may have the same id, and containers none: then
/// the host's name tells them apart, and without both the process.
fn identity(machine: &str, host: &str, process: u32) -> IpAddr {
    let text = match (machine.trim(), host) {
        ("", "") => process.to_string(),
        (machine, host) => format!("{machine} {host}"),
    };
    IpAddr::V6(Ipv6Addr::from(u128::from(trireme_balance::hash(text.as_bytes())) << 64))
}

/// Empty: it is not known.
fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: so many bytes may be written there. The last one stays 0.
    let done = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    if done == 0 { String::from_utf8_lossy(&name[..end]).into_owned() } else { String::new() }
}

fn plain(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}

/// # Safety
/// `len` bytes can be read at `address`.
unsafe fn read_address(address: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    if address.is_null() || (len as usize) < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: so many bytes are there; the structures have no alignment that a byte-wise read needs.
    let family = c_int::from(unsafe { (&raw const (*address).sa_family).read_unaligned() });
    if family == libc::AF_INET && len as usize >= size_of::<sockaddr_in>() {
        // SAFETY: the family and the length say that it is one.
        let four = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
        let ip = IpAddr::from(four.sin_addr.s_addr.to_ne_bytes());
        return Some(SocketAddr::new(ip, u16::from_be(four.sin_port)));
    }
    if family == libc::AF_INET6 && len as usize >= size_of::<sockaddr_in6>() {
        // SAFETY: as above.
        let six = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
        let ip = IpAddr::from(six.sin6_addr.s6_addr);
        return Some(SocketAddr::new(ip, u16::from_be(six.sin6_port)));
    }
    None
}

fn is_stream(fd: c_int) -> bool {
    option(fd, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
}

fn option(fd: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: both point to variables of the right size.
    let done = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut len) };
    (done == 0).then_some(value)
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)
}

/// Waits for the outcome also on a socket that does not block, since only then another server can be tried. The socket is then as it was.
fn attempt(fd: c_int, server: SocketAddr, six: bool) -> Result<(), c_int> {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 {
        return Err(errno());
    }
    // SAFETY: no pointers.
    unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) };
    let outcome = start(fd, server, six).and_then(|()| finish(fd));
    // One that was connected before, or is connecting, is left so.
    if outcome.is_err_and(|error| error != libc::EISCONN && error != libc::EALREADY) {
        // SAFETY: all zero is a valid `sockaddr`, and means: no peer. Without it the next attempt would meet this one.
        unsafe {
            let nobody: sockaddr = zeroed();
            real_connect(fd, &raw const nobody, size_of::<sockaddr>() as socklen_t);
        }
    }
    // SAFETY: no pointers.
    unsafe { libc::fcntl(fd, libc::F_SETFL, flags) };
    outcome
}

fn start(fd: c_int, server: SocketAddr, six: bool) -> Result<(), c_int> {
    let port = server.port().to_be();
    let done = if six {
        let ip: Ipv6Addr = match server.ip() {
            IpAddr::V4(four) => four.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        // SAFETY: all zero is valid for it.
        let mut address: sockaddr_in6 = unsafe { zeroed() };
        address.sin6_family = libc::AF_INET6 as libc::sa_family_t;
        address.sin6_port = port;
        address.sin6_addr.s6_addr = ip.octets();
        // SAFETY: address and length belong together.
        unsafe { real_connect(fd, (&raw const address).cast(), size_of::<sockaddr_in6>() as socklen_t) }
    } else {
        let IpAddr::V4(ip) = server.ip() else { return Err(libc::EAFNOSUPPORT) };
        // SAFETY: all zero is valid for it.
        let mut address: sockaddr_in = unsafe { zeroed() };
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_port = port;
        address.sin_addr.s_addr = u32::from_ne_bytes(ip.octets());
        // SAFETY: address and length belong together.
        unsafe { real_connect(fd, (&raw const address).cast(), size_of::<sockaddr_in>() as socklen_t) }
    };
    match done {
        0 => Ok(()),
        _ => match errno() {
            libc::EINPROGRESS | libc::EINTR => Ok(()),
            error => Err(error),
        },
    }
}

fn finish(fd: c_int) -> Result<(), c_int> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
        // SAFETY: one structure.
        match unsafe { libc::poll(&raw mut poll, 1, left.as_millis() as c_int) } {
            0 => return Err(libc::ETIMEDOUT),
            1 => {
                return match option(fd, libc::SO_ERROR) {
                    Some(0) => Ok(()),
                    Some(error) => Err(error),
                    None => Err(errno()),
                };
            }
            _ => match errno() {
                libc::EINTR => {}
                error => return Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use trireme_balance::Policy;

    use super::*;

    fn chosen(source: IpAddr) -> Option<usize> {
        let server = |n: u8| Server {
            address: SocketAddr::from(([10, 0, 0, n], 3306)),
            key: trireme_balance::hash(&[n]),
            weight: 1.0,
            failed: None,
        };
        let servers = (1..=3).map(server).collect();
        let chooser = Chooser::new(Policy::Source, false, 1);
        let mut state = State { host: None, port: 3306, servers, source, chooser };
        let first = state.choose(&[], false).map(|(n, _)| n);
        assert!((0..10).all(|_| state.choose(&[], false).map(|(n, _)| n) == first), "always the same");
        first
    }

    #[test]
    fn machines_are_spread_over_the_targets_and_each_keeps_its_own() {
        let ids = (0..60).map(|n| identity(&format!("{n:032x}\n"), "db", 1));
        let names = (0..60).map(|n| identity("", &format!("web{n}"), 1));
        let copies = (0..60).map(|n| identity("0123456789abcdef", &format!("web{n}"), 1));
        for way in [ids.collect::<Vec<_>>(), names.collect(), copies.collect()] {
            let mut counts = [0; 3];
            for one in way {
                counts[chosen(one).unwrap()] += 1;
            }
            assert!(counts.iter().all(|count| *count >= 8), "{counts:?}");
        }
    }

    #[test]
    fn programs_of_one_machine_are_one_client() {
        assert_eq!(identity("id", "web1", 7), identity("id\n", "web1", 8));
        assert_ne!(identity("", "", 7), identity("", "", 8));
        assert!(!host_name().is_empty());
    }
}
