//! A client at the group's port that wishes no good. It knows the formats from the documents, and uses nothing of the transport's code.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::support::PATIENCE;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, setsockopt, socket, sockopt};
use nix::sys::time::TimeVal;
use openssl::ssl::{Ssl, SslContext, SslMethod};
use trireme_order::Message;
use trireme_types::{Incarnation, Member, MemberKind, NodeId, Reader, Uuid, Weight, Writer};

pub const SECOND: Duration = Duration::from_secs(1);

/// Source number `n` of very many on this machine. No member has such an address.
pub fn source(n: u64) -> Ipv4Addr {
    let [.., b, c, d] = ((n % (64 << 16)) as u32).to_be_bytes();
    Ipv4Addr::new(127, 64 + b, c, d)
}

/// Connects from an address of its own choice; gives up, also in the middle of a message, after a second.
pub fn dial(from: Ipv4Addr, to: SocketAddrV4) -> io::Result<TcpStream> {
    let fd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let second = TimeVal::new(1, 0);
    setsockopt(&fd, sockopt::SendTimeout, &second)?;
    setsockopt(&fd, sockopt::ReceiveTimeout, &second)?;
    bind(fd.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(from, 0)))?;
    connect(fd.as_raw_fd(), &SockaddrIn::from(to))?;
    Ok(TcpStream::from(fd))
}

/// The same for one attempt whose answer counts, however slow the machine is.
pub fn dial_and_await(from: Ipv4Addr, to: SocketAddrV4) -> io::Result<TcpStream> {
    let stream = dial(from, to)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A member that is none. Its id is below every other that is drawn, so that it decides about a link.
pub fn stranger(n: u64) -> Member {
    let mut id = [0; 16];
    id[8..].copy_from_slice(&(n + 1).to_be_bytes());
    Member {
        node: NodeId(Uuid(id)),
        incarnation: Incarnation(1),
        // As long as a name may be and more.
        name: format!("stranger{}", "-".repeat(107)),
        incoming: String::new(),
        address: String::new(),
        segment: 0,
        weight: Weight(1),
        kind: MemberKind::Data,
    }
}

/// Hello and Confirm, in one go.
pub fn handshake(cluster: &str, n: u64) -> Vec<u8> {
    [hello(cluster, &stranger(n), n + 77), confirm(n + 1)].concat()
}

/// `instance`: tells one process of the member from another.
pub fn hello(cluster: &str, member: &Member, instance: u64) -> Vec<u8> {
    let mut hello = Writer::new();
    hello.u8(1);
    hello.u16(2);
    hello.u16(2);
    hello.str(cluster);
    hello.u64(instance);
    member.encode(&mut hello);
    // A build that says nothing of levels is refused as an old one.
    let levels = trireme_order::SUPPORTED;
    for level in [levels.min, levels.max, levels.min] {
        hello.u16(level.0);
    }
    step(&hello.buf)
}

pub fn confirm(link: u64) -> Vec<u8> {
    let mut confirm = Writer::new();
    confirm.u8(4);
    confirm.u64(link);
    step(&confirm.buf)
}

fn step(body: &[u8]) -> Vec<u8> {
    let mut out = b"TRIREME\x01".to_vec();
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    let mut sum = crc32fast::Hasher::new();
    sum.update(&out);
    sum.update(body);
    out.extend_from_slice(&sum.finalize().to_le_bytes());
    out.extend_from_slice(body);
    out
}

/// The answer to a hello.
#[derive(Debug)]
pub enum Answer {
    Hello(Member),
    Refused(String),
    /// The beginning of an agreement: the peer would be linked.
    Goes,
    /// Closed, or nothing within a second.
    Silence,
}

/// Reads one step of a handshake.
pub fn answer(stream: &mut impl Read) -> Answer {
    let mut head = [0; 16];
    if stream.read_exact(&mut head).is_err() {
        return Answer::Silence;
    }
    let len = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
    assert!(head.starts_with(b"TRIREME\x01") && len <= 4096, "no step of a handshake: {head:?}");
    let mut body = vec![0; len];
    if stream.read_exact(&mut body).is_err() {
        return Answer::Silence;
    }
    let mut r = Reader::new(&body);
    match r.u8().unwrap() {
        1 => {
            let _versions = (r.u16().unwrap(), r.u16().unwrap());
            let _cluster = r.str(256).unwrap();
            let _instance = r.u64().unwrap();
            Answer::Hello(Member::decode(&mut r).unwrap())
        }
        2 => {
            let _why = (r.u8().unwrap(), r.u64().unwrap());
            Answer::Refused(r.str(1024).unwrap())
        }
        _ => Answer::Goes,
    }
}

/// The first bytes of a dialler, as OpenSSL writes them.
pub fn client_hello() -> Vec<u8> {
    struct Caught(Vec<u8>);
    impl Read for Caught {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }
    impl Write for Caught {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let context = SslContext::builder(SslMethod::tls()).unwrap().build();
    let waits = Ssl::new(&context).unwrap().connect(Caught(Vec::new()));
    match waits {
        Err(openssl::ssl::HandshakeError::WouldBlock(waits)) => waits.get_ref().0.clone(),
        _ => panic!("nobody has answered"),
    }
}

pub fn encoded(message: &Message) -> Vec<u8> {
    let mut parts = Vec::new();
    message.encode_vectored(&mut parts);
    parts.concat()
}

/// One chunk: a whole control message, or the first of a bulk message of `total` bytes.
pub fn frame(payload: &[u8], total: Option<u64>) -> Vec<u8> {
    let mut body = total.map_or_else(Vec::new, |total| total.to_le_bytes().to_vec());
    body.extend_from_slice(payload);
    let mut out = (body.len() as u32).to_le_bytes().to_vec();
    // First, and last unless there is more; the lane.
    out.push(if total.is_some() { 1 | 4 } else { 4 | 8 });
    out.extend_from_slice(&[0; 3]);
    out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
    out.extend_from_slice(&body);
    out
}
