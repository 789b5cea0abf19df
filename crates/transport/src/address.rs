//! `host:port` texts.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::error::BadAddress;

/// A place to dial or to listen on. The same place written the same way compares equal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Address {
    pub host: Host,
    pub port: u16,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Host {
    Ip(IpAddr),
    Name(String),
}

impl Address {
    /// Accepts `host:port`, `1.2.3.4:port`, `[v6]:port`, each with an optional `tcp://` or `ssl://` in front.
    pub fn parse(text: &str) -> Result<Address, BadAddress> {
        let bad = |why| BadAddress { text: text.to_owned(), why };
        let rest = text.trim();
        let rest = rest.strip_prefix("tcp://").or_else(|| rest.strip_prefix("ssl://")).unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, tail) = rest.split_once(']').ok_or_else(|| bad("no closing bracket"))?;
                let host: Ipv6Addr = host.parse().map_err(|_| bad("no IPv6 address between the brackets"))?;
                (Host::Ip(IpAddr::V6(host)), tail.strip_prefix(':').ok_or_else(|| bad("no port"))?)
            }
            None => {
                let (host, port) = rest.rsplit_once(':').ok_or_else(|| bad("no port"))?;
                if host.contains(':') {
                    return Err(bad("IPv6 addresses need brackets"));
                }
                (Host::parse(host).ok_or_else(|| bad("no host"))?, port)
            }
        };
        let port = port.parse().map_err(|_| bad("the port is not a number from 0 to 65535"))?;
        Ok(Address { host, port })
    }

    /// An address that a peer gave us, seen from here: a peer that only knows "any address" means the one it speaks from.
    pub fn seen_from(self, remote: IpAddr) -> Address {
        match self.host {
            Host::Ip(ip) if ip.is_unspecified() => Address { host: Host::Ip(remote), port: self.port },
            Host::Ip(_) | Host::Name(_) => self,
        }
    }
}

impl Host {
    fn parse(text: &str) -> Option<Host> {
        // 253 is the limit of a DNS name.
        let plain = |c: char| !c.is_control() && !c.is_whitespace() && !matches!(c, '/' | ',' | '[' | ']');
        if text.is_empty() || text.len() > 253 || !text.chars().all(plain) {
            return None;
        }
        Some(text.parse().map_or_else(|_| Host::Name(text.to_ascii_lowercase()), Host::Ip))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
            Host::Ip(IpAddr::V4(ip)) => write!(f, "{ip}:{}", self.port),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// An IPv4 peer of a dual-stack listener is an IPv4 peer: allow lists and people know it by that address.
pub(crate) fn plain(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_it_parses() {
        for (text, printed) in [
            ("127.0.0.1:4567", "127.0.0.1:4567"),
            ("tcp://10.0.0.1:1", "10.0.0.1:1"),
            ("ssl://[::1]:4567", "[::1]:4567"),
            ("[fe80::1]:0", "[fe80::1]:0"),
            (" Db1.example.com:4567 ", "db1.example.com:4567"),
        ] {
            assert_eq!(Address::parse(text).unwrap().to_string(), printed);
        }
    }

    #[test]
    fn rejects_what_cannot_be_dialled() {
        for text in [
            "",
            ":",
            "host",
            "host:",
            ":4567",
            "host:65536",
            "::1:4567",
            "[::1]",
            "[::1]4567",
            "[x]:1",
            "a b:1",
            "a/b:1",
        ] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn any_address_becomes_the_one_it_was_seen_from() {
        let remote = "10.1.2.3".parse().unwrap();
        let seen = |text| Address::parse(text).unwrap().seen_from(remote).to_string();
        assert_eq!(seen("0.0.0.0:4567"), "10.1.2.3:4567");
        assert_eq!(seen("[::]:4567"), "10.1.2.3:4567");
        assert_eq!(seen("10.9.9.9:4567"), "10.9.9.9:4567");
    }
}
