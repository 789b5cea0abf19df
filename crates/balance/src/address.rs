//! Where a server or a listener is: a host and a port, or a unix socket.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// MariaDB's own port, for addresses that name none.
pub const MYSQL_PORT: u16 = 3306;

/// Names are kept as they were given: they are resolved at every connection, so that a changed DNS entry counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl Address {
    /// A server: `HOST[:PORT]`, `[IPV6][:PORT]`, an IPv6 address alone, or the absolute path of a socket.
    pub fn server(text: &str, default_port: u16) -> Result<Address, String> {
        let text = text.trim();
        if text.starts_with('/') {
            return Ok(Address::Unix(PathBuf::from(text)));
        }
        let (host, port) = split(text)?;
        let host = host.ok_or_else(|| format!("`{text}` names no host: write HOST:PORT, [IPV6]:PORT or /PATH"))?;
        Ok(Address::Tcp { host, port: port.unwrap_or(default_port) })
    }

    /// A listener: `[HOST:]PORT`, or the absolute path of a socket. Without a host it is `default_host`.
    pub fn listener(text: &str, default_host: &str) -> Result<Address, String> {
        let text = text.trim();
        if text.starts_with('/') {
            return Ok(Address::Unix(PathBuf::from(text)));
        }
        if let Ok(port) = text.parse() {
            return Ok(Address::Tcp { host: default_host.to_owned(), port });
        }
        match split(text)? {
            (host, Some(port)) => Ok(Address::Tcp { host: host.unwrap_or_else(|| default_host.to_owned()), port }),
            (_, None) => Err(format!("`{text}` names no port: write PORT, HOST:PORT, [IPV6]:PORT or /PATH")),
        }
    }

    /// An element of `wsrep_incoming_addresses`. `None`: it says nothing (`AUTO`, `unspecified`, an arbitrator's empty one).
    pub fn incoming(text: &str) -> Option<Address> {
        let text = text.trim();
        if text.is_empty() || text.starts_with("AUTO") || text.starts_with("unspecified") || text.starts_with('/') {
            return None;
        }
        let (host, port) = split(text).ok()?;
        let port = port.filter(|port| *port != 0).unwrap_or(MYSQL_PORT);
        Some(Address::Tcp { host: host?, port })
    }

    /// The same number for the same address in every process and on every machine.
    pub fn hash(&self) -> u64 {
        hash(self.to_string().as_bytes())
    }

    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Address::Tcp { host, .. } => host.parse().ok(),
            Address::Unix(_) => None,
        }
    }
}

/// A number that depends on these bytes alone (64 bits of FNV-1a, mixed).
pub fn hash(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    trireme_types::mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// Host and port of what is no path. An address of IPv6 without brackets has no port.
fn split(text: &str) -> Result<(Option<String>, Option<u16>), String> {
    let port_of = |digits: &str| {
        digits.parse::<u16>().map_err(|_| format!("`{text}`: `{digits}` is no port between 0 and 65535"))
    };
    if text.contains('/') {
        return Err(format!("`{text}`: write the path of a socket from the root on, as /PATH"));
    }
    let named = |host: &str| match host.chars().find(|c| !(c.is_alphanumeric() || "-._%:".contains(*c))) {
        Some(c) => Err(format!("`{text}`: a host has no `{c}` in it")),
        None => Ok((!host.is_empty()).then(|| host.to_owned())),
    };
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(|| format!("`{text}`: the bracket is not closed"))?;
        return match rest.strip_prefix(':') {
            Some(digits) => Ok((named(host)?, Some(port_of(digits)?))),
            None if rest.is_empty() => Ok((named(host)?, None)),
            None => Err(format!("`{text}`: only :PORT may follow the bracket")),
        };
    }
    match text.rsplit_once(':') {
        Some((host, _)) if host.contains(':') => Ok((named(text)?, None)),
        Some((host, digits)) => Ok((named(host)?, Some(port_of(digits)?))),
        None => Ok((named(text)?, None)),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn servers() {
        assert_eq!(Address::server("db1", 3306), Ok(tcp("db1", 3306)));
        assert_eq!(Address::server("db1:3307", 3306), Ok(tcp("db1", 3307)));
        assert_eq!(Address::server("[::1]:3307", 3306), Ok(tcp("::1", 3307)));
        assert_eq!(Address::server("::1", 3306), Ok(tcp("::1", 3306)));
        assert_eq!(Address::server("/run/s.sock", 3306), Ok(Address::Unix("/run/s.sock".into())));
        for bad in ["", ":3306", "a:b", "a:70000", "[::1", "[::1]x", "a b", "a,b"] {
            assert!(Address::server(bad, 3306).is_err(), "{bad}");
        }
    }

    #[test]
    fn listeners() {
        assert_eq!(Address::listener("3307", "::"), Ok(tcp("::", 3307)));
        assert_eq!(Address::listener(":3307", "::"), Ok(tcp("::", 3307)));
        assert_eq!(Address::listener("127.0.0.1:3307", "::"), Ok(tcp("127.0.0.1", 3307)));
        assert!(Address::listener("localhost", "::").is_err());
    }

    #[test]
    fn incoming_addresses_that_lead_nowhere_are_skipped() {
        assert_eq!(Address::incoming("10.0.0.1:3306"), Some(tcp("10.0.0.1", 3306)));
        assert_eq!(Address::incoming("10.0.0.1:0"), Some(tcp("10.0.0.1", 3306)));
        assert_eq!(Address::incoming("10.0.0.1"), Some(tcp("10.0.0.1", 3306)));
        for nothing in ["", "AUTO", "AUTO:3306", "unspecified", ":3306", "/x"] {
            assert_eq!(Address::incoming(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn what_is_printed_can_be_read() {
        for text in ["db1:3307", "[::1]:3307", "/run/s.sock"] {
            assert_eq!(Address::server(text, 1).unwrap().to_string(), text);
        }
    }
}
