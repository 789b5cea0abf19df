//! A distance between nodes: a relay before each of them, through which all connections to it go. A byte leaves the relay half a round trip
//! after it came, whichever way it goes.
//!
//! A node listens at one loopback address and is known by another one, where its relay listens, at the same port. A link has one end that
//! connected and so goes through one relay. The node behind it sees it come from the address that the other node is known by: providers that
//! learn addresses from connections then learn relays.
//!
//! **Invariant:** bytes keep their order, and a relay holds back no byte because of those before it: the distance costs time and no bandwidth.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::load::sleep_until;

/// Largest piece that is read at once.
const PIECE: usize = 16 * 1024;
/// Pieces of one direction on their way. Beyond that the sender is held back, as a network does when its buffers are full.
const UNDER_WAY: usize = 16 * 1024;

/// Where a node is: the address where it listens, and the one that the others know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub listens: Ipv4Addr,
    pub known: Ipv4Addr,
}

impl Place {
    /// Without a relay.
    pub const DIRECT: Place = Place { listens: Ipv4Addr::LOCALHOST, known: Ipv4Addr::LOCALHOST };

    /// Of node `number`, behind its relay.
    pub fn relayed(number: usize) -> Place {
        let last = u8::try_from(number + 1).expect("few nodes");
        Place { listens: Ipv4Addr::new(127, 77, 1, last), known: Ipv4Addr::new(127, 77, 2, last) }
    }
}

/// The address that the others know a node by, of an address that it connects from.
fn known(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(v4) => match v4.octets() {
            [127, 77, 1, last] => Ipv4Addr::new(127, 77, 2, last).into(),
            _ => ip,
        },
        IpAddr::V6(_) => ip,
    }
}

/// One connection through a relay.
struct Pipe {
    /// From the other node.
    outer: TcpStream,
    /// To the node behind the relay.
    inner: TcpStream,
}

struct Inside {
    node: SocketAddr,
    delay: Duration,
    pipes: Mutex<Vec<Pipe>>,
    stopped: AtomicBool,
}

impl Inside {
    fn pipes(&self) -> MutexGuard<'_, Vec<Pipe>> {
        self.pipes.lock().expect("no panic while held")
    }
}

pub struct Relay {
    inside: Arc<Inside>,
    at: SocketAddr,
    doorman: Option<JoinHandle<()>>,
}

impl Relay {
    /// Before the node that listens at `place.listens`, or will.
    pub fn start(place: Place, port: u16, rtt: Duration) -> io::Result<Relay> {
        let listener = TcpListener::bind((place.known, port))?;
        let at = listener.local_addr()?;
        let node = SocketAddrV4::new(place.listens, port).into();
        let inside =
            Arc::new(Inside { node, delay: rtt / 2, pipes: Mutex::default(), stopped: AtomicBool::new(false) });
        let doorman = {
            let inside = Arc::clone(&inside);
            std::thread::Builder::new().name("relay".into()).spawn(move || admit(&listener, &inside))?
        };
        Ok(Relay { inside, at, doorman: Some(doorman) })
    }

    /// Connections to the node that did not come through the relay: the ends from which they came.
    pub fn bypassed_by(&self) -> io::Result<Vec<SocketAddr>> {
        let pipes = self.inside.pipes();
        let ours: HashSet<SocketAddr> = pipes.iter().filter_map(|pipe| pipe.inner.local_addr().ok()).collect();
        let all = peers_of(self.inside.node, &std::fs::read_to_string("/proc/net/tcp")?);
        Ok(all.into_iter().filter(|peer| !ours.contains(peer)).collect())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.inside.stopped.store(true, Ordering::SeqCst);
        // The thread waits for a connection: this is one.
        let woken = TcpStream::connect(self.at).is_ok();
        if let Some(doorman) = self.doorman.take().filter(|_| woken) {
            let _ = doorman.join();
        }
        for pipe in self.inside.pipes().drain(..) {
            let _ = pipe.outer.shutdown(Shutdown::Both);
            let _ = pipe.inner.shutdown(Shutdown::Both);
        }
    }
}

fn admit(listener: &TcpListener, inside: &Inside) {
    for outer in listener.incoming() {
        if inside.stopped.load(Ordering::SeqCst) {
            return;
        }
        // A node that is not there yet: the other one sees its connection closed, and tries again.
        let Ok(outer) = outer else { continue };
        if let Err(error) = join(outer, inside) {
            eprintln!("relay to {}: {error}", inside.node);
        }
    }
}

/// Connects to the node and starts what carries bytes both ways.
fn join(outer: TcpStream, inside: &Inside) -> io::Result<()> {
    let source = known(outer.peer_addr()?.ip());
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(source, 0).into())?;
    socket.connect(&inside.node.into())?;
    let inner = TcpStream::from(socket);
    // Bytes are written when they are due: they must not wait for an acknowledgement.
    outer.set_nodelay(true)?;
    inner.set_nodelay(true)?;
    // It is known before the first byte goes through.
    inside.pipes().push(Pipe { outer: outer.try_clone()?, inner: inner.try_clone()? });
    carry(outer.try_clone()?, inner.try_clone()?, inside.delay)?;
    carry(inner, outer, inside.delay)
}

/// Bytes, and when they are due.
type Piece = (Instant, Vec<u8>);

/// One direction of a connection: a thread reads and notes when each piece is due, another one waits for that and writes. The end of what is
/// sent is passed on as late as bytes are.
fn carry(mut from: TcpStream, mut to: TcpStream, delay: Duration) -> io::Result<()> {
    let (sender, pieces) = mpsc::sync_channel::<Piece>(UNDER_WAY);
    let broken = from.try_clone()?;
    std::thread::Builder::new().name("relay-in".into()).spawn(move || {
        let mut room = vec![0; PIECE];
        loop {
            let read = from.read(&mut room).unwrap_or(0);
            let due = Instant::now() + delay;
            if sender.send((due, room[..read].to_vec())).is_err() || read == 0 {
                return;
            }
        }
    })?;
    std::thread::Builder::new().name("relay-out".into()).spawn(move || {
        wake_in_time();
        for (due, bytes) in pieces {
            sleep_until(due);
            if bytes.is_empty() || to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
        // Nobody takes what comes now.
        let _ = broken.shutdown(Shutdown::Read);
    })?;
    Ok(())
}

/// Of this thread: without it the kernel may let it sleep 50 µs longer than asked.
fn wake_in_time() {
    // SAFETY: no pointers; it concerns the calling thread's timers only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// The other ends of all connections that are open to `node`, in the text of `/proc/net/tcp`.
fn peers_of(node: SocketAddr, table: &str) -> Vec<SocketAddr> {
    let address = |text: &str| {
        let (ip, port) = text.split_once(':')?;
        let ip = Ipv4Addr::from(u32::from_str_radix(ip, 16).ok()?.to_ne_bytes());
        Some(SocketAddr::new(ip.into(), u16::from_str_radix(port, 16).ok()?))
    };
    let peer = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, local, remote, state, ..] = words[..] else { return None };
        let is_open = state == "01";
        (is_open && address(local)? == node).then(|| address(remote))?
    };
    table.lines().filter_map(peer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server behind a relay, at addresses that no other test uses.
    fn behind(number: usize, rtt: Duration) -> (TcpListener, Relay, SocketAddr) {
        let place = Place::relayed(number);
        let server = TcpListener::bind((place.listens, 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        (server, Relay::start(place, port, rtt).unwrap(), SocketAddr::new(place.known.into(), port))
    }

    fn echo(server: TcpListener) -> JoinHandle<()> {
        std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut copy = stream.try_clone().unwrap();
            io::copy(&mut stream, &mut copy).unwrap();
        })
    }

    #[test]
    fn a_relayed_link_has_its_round_trip_and_no_more() {
        let rtt = Duration::from_millis(20);
        let (server, _relay, at) = behind(100, rtt);
        let served = echo(server);
        let mut client = TcpStream::connect(at).unwrap();
        client.set_nodelay(true).unwrap();
        let ping = |client: &mut TcpStream| {
            let begun = Instant::now();
            client.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
            begun.elapsed()
        };
        let all: Vec<Duration> = (0..20).map(|_| ping(&mut client)).collect();
        let least = *all.iter().min().unwrap();
        // A busy machine makes single ones longer, and not all of them.
        assert!(least >= rtt && least < rtt + Duration::from_millis(2), "{all:?}");
        drop(client);
        served.join().unwrap();
    }

    #[test]
    fn bytes_keep_their_order_and_do_not_wait_for_each_other() {
        let rtt = Duration::from_millis(200);
        let (server, _relay, at) = behind(101, rtt);
        let served = echo(server);
        let mut client = TcpStream::connect(at).unwrap();
        let mut reader = client.try_clone().unwrap();
        let sent: Vec<u8> = (0..4_000_000u32).map(|n| (n * 7 + n / 251) as u8).collect();
        let begun = Instant::now();
        let got = std::thread::spawn(move || {
            let mut got = Vec::new();
            reader.read_to_end(&mut got).unwrap();
            got
        });
        client.write_all(&sent).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert!(got.join().unwrap() == sent, "other bytes came back");
        // One after another the pieces would take this many round trips.
        let pieces = sent.len().div_ceil(PIECE);
        assert!(begun.elapsed() < rtt * u32::try_from(pieces).unwrap() / 4, "{:?}", begun.elapsed());
        served.join().unwrap();
    }

    #[test]
    fn an_end_of_one_direction_leaves_the_other() {
        let (server, _relay, at) = behind(102, Duration::from_millis(4));
        let mut client = TcpStream::connect(at).unwrap();
        let (mut serving, _) = server.accept().unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(serving.read(&mut [0]).unwrap(), 0, "the end came through");
        serving.write_all(b"yes").unwrap();
        let mut answer = [0; 3];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"yes");
        drop(serving);
        assert_eq!(client.read(&mut answer).unwrap(), 0, "and the other one too");
    }

    #[test]
    fn a_node_is_seen_at_the_address_that_the_others_know() {
        let (server, _relay, at) = behind(103, Duration::from_millis(1));
        let from = Place::relayed(104);
        for source in [from.listens, from.known] {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.bind(&SocketAddr::new(source.into(), 0).into()).unwrap();
            socket.connect(&at.into()).unwrap();
            let (_, seen) = server.accept().unwrap();
            assert_eq!(seen.ip(), IpAddr::from(from.known));
        }
    }

    #[test]
    fn a_connection_beside_the_relay_is_found() {
        let (server, relay, at) = behind(105, Duration::from_millis(1));
        let mut through = TcpStream::connect(at).unwrap();
        let (mut accepted, _) = server.accept().unwrap();
        through.write_all(b"x").unwrap();
        accepted.read_exact(&mut [0]).unwrap();
        assert_eq!(relay.bypassed_by().unwrap(), []);
        let beside = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        assert_eq!(relay.bypassed_by().unwrap(), [beside.local_addr().unwrap()]);
    }

    #[test]
    fn with_the_relay_its_connections_end() {
        let (server, relay, at) = behind(106, Duration::from_millis(1));
        let mut client = TcpStream::connect(at).unwrap();
        let (mut serving, _) = server.accept().unwrap();
        // Once a byte has come through, both directions are there.
        client.write_all(b"x").unwrap();
        serving.read_exact(&mut [0]).unwrap();
        drop(relay);
        assert_eq!(serving.read(&mut [0]).unwrap(), 0);
        // A process that another test starts has a copy of the listening socket until it executes its program.
        let begun = Instant::now();
        while TcpStream::connect(at).is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(10), "somebody listens");
            std::thread::yield_now();
        }
    }
}
