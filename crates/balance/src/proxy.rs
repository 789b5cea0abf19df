//! The PROXY protocol: who the client is, said before its first byte. Written in version 2; versions 1 and 2 are read.
//! (Source: the specification at haproxy.org, proxy-protocol.txt.)

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const FIXED: usize = 16;
/// Longest line of version 1, with its end.
const LINE_MAX: usize = 107;
/// Addresses of unix sockets take 216 bytes, and extensions follow. More is an attack.
const BODY_MAX: usize = 4096;

/// A client as the balancer describes it to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The balancer itself speaks, or the client came by a unix socket: the connection counts as it is.
    Local,
    Client {
        from: SocketAddr,
        to: SocketAddr,
    },
}

/// A header of version 2.
pub fn encode(origin: Origin) -> Vec<u8> {
    let mut out = SIGNATURE.to_vec();
    match origin {
        Origin::Local => out.extend_from_slice(&[0x20, 0, 0, 0]),
        Origin::Client { from, to } => {
            let (family, addresses) = match (from.ip(), to.ip()) {
                (IpAddr::V4(from), IpAddr::V4(to)) => (0x11, [from.octets(), to.octets()].concat()),
                // Mixed families come from a listener for both.
                (from, to) => (0x21, [mapped(from).octets(), mapped(to).octets()].concat()),
            };
            out.extend_from_slice(&[0x21, family]);
            out.extend_from_slice(&(addresses.len() as u16 + 4).to_be_bytes());
            out.extend_from_slice(&addresses);
            out.extend_from_slice(&from.port().to_be_bytes());
            out.extend_from_slice(&to.port().to_be_bytes());
        }
    }
    out
}

fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// A header at the beginning of what a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Header {
    /// So far it may become one.
    More,
    /// The header's length in bytes, and the client's address. `None`: the sender speaks for itself.
    Whole(usize, Option<SocketAddr>),
    /// It is none, or a broken one.
    Bad,
}

pub fn decode(bytes: &[u8]) -> Header {
    let head = &bytes[..bytes.len().min(SIGNATURE.len())];
    if SIGNATURE.starts_with(head) {
        return if bytes.len() < FIXED { Header::More } else { decode_binary(bytes) };
    }
    if b"PROXY ".starts_with(&bytes[..bytes.len().min(6)]) {
        return decode_line(bytes);
    }
    Header::Bad
}

fn decode_binary(bytes: &[u8]) -> Header {
    let len = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    if bytes[12] >> 4 != 2 || len > BODY_MAX {
        return Header::Bad;
    }
    let Some(body) = bytes.get(FIXED..FIXED + len) else { return Header::More };
    let whole = |client| Header::Whole(FIXED + len, client);
    let port = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    match (bytes[12] & 0xf, bytes[13]) {
        (0, _) => whole(None),
        (1, 0x11) if len >= 12 => {
            let ip = Ipv4Addr::new(body[0], body[1], body[2], body[3]);
            whole(Some(SocketAddr::new(ip.into(), port(8))))
        }
        (1, 0x21) if len >= 36 => {
            let mut ip = [0; 16];
            ip.copy_from_slice(&body[..16]);
            whole(Some(SocketAddr::new(Ipv6Addr::from(ip).into(), port(32))))
        }
        // Unspecified, datagrams, unix sockets: nothing that we could hand on.
        (1, family) if !matches!(family, 0x11 | 0x21) => whole(None),
        _ => Header::Bad,
    }
}

fn decode_line(bytes: &[u8]) -> Header {
    let Some(end) = bytes.iter().take(LINE_MAX).position(|byte| *byte == b'\n') else {
        return if bytes.len() >= LINE_MAX { Header::Bad } else { Header::More };
    };
    let Some(line) = std::str::from_utf8(&bytes[..end]).ok().and_then(|line| line.strip_suffix('\r')) else {
        return Header::Bad;
    };
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["PROXY", "UNKNOWN", ..] => Header::Whole(end + 1, None),
        ["PROXY", "TCP4" | "TCP6", from, to, from_port, to_port] => {
            let (from, to): (Result<IpAddr, _>, Result<IpAddr, _>) = (from.parse(), to.parse());
            match (from, to, from_port.parse(), to_port.parse::<u16>()) {
                (Ok(from), Ok(_), Ok(port), Ok(_)) => Header::Whole(end + 1, Some(SocketAddr::new(from, port))),
                _ => Header::Bad,
            }
        }
        _ => Header::Bad,
    }
}

/// A range of addresses, as `proxy_protocol_networks` has them: `10.0.0.0/8`, `::1`, `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    base: u128,
    mask: u128,
}

impl Network {
    pub fn parse(text: &str) -> Result<Network, String> {
        if text == "*" {
            return Ok(Network { base: 0, mask: 0 });
        }
        let wrong = || format!("`{text}` is no network: write ADDRESS, ADDRESS/BITS or *");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u32>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let ip: IpAddr = address.parse().map_err(|_| wrong())?;
        let width = if ip.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(width);
        if bits > width {
            return Err(wrong());
        }
        let mask = u128::MAX.checked_shl(width - bits).unwrap_or(0);
        Ok(Network { base: u128::from(mapped(ip)) & mask, mask })
    }

    pub fn contains(&self, ip: IpAddr) -> bool {
        u128::from(mapped(ip)) & self.mask == self.base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        for (from, to) in [("1.2.3.4:5", "6.7.8.9:10"), ("[1::2]:3", "[4::5]:6")] {
            let bytes = encode(Origin::Client { from: at(from), to: at(to) });
            assert_eq!(decode(&bytes), Header::Whole(bytes.len(), Some(at(from))));
            for end in 0..bytes.len() {
                assert_eq!(decode(&bytes[..end]), Header::More, "{end}");
            }
        }
        let mixed = encode(Origin::Client { from: at("1.2.3.4:5"), to: at("[::1]:6") });
        assert_eq!(decode(&mixed), Header::Whole(mixed.len(), Some(at("[::ffff:1.2.3.4]:5"))));
        let local = encode(Origin::Local);
        assert_eq!(decode(&local), Header::Whole(16, None));
    }

    #[test]
    fn lines_of_version_one() {
        let line = b"PROXY TCP4 1.2.3.4 5.6.7.8 9 10\r\nrest";
        assert_eq!(decode(line), Header::Whole(line.len() - 4, Some(at("1.2.3.4:9"))));
        assert_eq!(decode(b"PROXY UNKNOWN\r\n"), Header::Whole(15, None));
        assert_eq!(decode(b"PROXY TCP4 1.2"), Header::More);
        assert_eq!(decode(b"PROXY TCP4 x 5.6.7.8 9 10\r\n"), Header::Bad);
        assert_eq!(decode(&[b"PROXY ".as_slice(), &[b'x'; 200]].concat()), Header::Bad);
    }

    #[test]
    fn everything_else_is_bad() {
        assert_eq!(decode(b"GET / HTTP/1.1"), Header::Bad);
        assert_eq!(decode(&[0; 20]), Header::Bad);
        let mut version = encode(Origin::Local);
        version[12] = 0x31;
        assert_eq!(decode(&version), Header::Bad);
        let mut long = encode(Origin::Local);
        long[14] = 0xff;
        assert_eq!(decode(&long), Header::Bad);
        let mut short = encode(Origin::Client { from: at("1.2.3.4:5"), to: at("6.7.8.9:10") });
        short[15] = 3;
        assert_eq!(decode(&short), Header::Bad);
    }

    #[test]
    fn networks() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let ten = Network::parse("10.0.0.0/8").unwrap();
        assert!(ten.contains(ip("10.255.0.1")) && ten.contains(ip("::ffff:10.0.0.1")));
        assert!(!ten.contains(ip("11.0.0.1")) && !ten.contains(ip("::1")));
        assert!(Network::parse("*").unwrap().contains(ip("::1")));
        assert!(Network::parse("::/0").unwrap().contains(ip("1.2.3.4")));
        assert!(Network::parse("::1").unwrap().contains(ip("::1")));
        for bad in ["", "10.0.0.0/33", "x", "1.2.3.4/x"] {
            assert!(Network::parse(bad).is_err(), "{bad}");
        }
    }
}
