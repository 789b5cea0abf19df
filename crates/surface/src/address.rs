//! Addresses as operators write them: the cluster address, `host:port`, and addresses with a scheme.

use std::fmt;

/// Where a node listens when nothing says otherwise.
pub const DEFAULT_PORT: u16 = 4567;

/// A text that is no address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadAddress {
    pub text: String,
}

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Invalid address '{}'", self.text)
    }
}

impl std::error::Error for BadAddress {}

// --- host and port -------------------------------------------------------------------------------------------------------

/// A host, without brackets, and perhaps a port. Printed with brackets where the host has colons.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct HostPort {
    pub host: String,
    pub port: Option<u16>,
}

impl HostPort {
    /// `host`, `host:port`, `[v6]`, `[v6]:port`, or a bare IPv6 literal.
    pub fn parse(text: &str) -> Result<HostPort, BadAddress> {
        let bad = || BadAddress { text: text.to_owned() };
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, after) = rest.split_once(']').ok_or_else(bad)?;
            let port = if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or_else(bad)?) };
            (host, port)
        } else if text.matches(':').count() > 1 {
            (text, None)
        } else {
            text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)))
        };
        if host.chars().any(|c| c.is_whitespace() || matches!(c, '/' | '[' | ']' | '?' | '&' | ',' | '=')) {
            return Err(bad());
        }
        let port = match port {
            Some(digits) if digits.bytes().all(|c| c.is_ascii_digit()) => Some(digits.parse().map_err(|_| bad())?),
            Some(_) => return Err(bad()),
            None => None,
        };
        Ok(HostPort { host: host.to_owned(), port })
    }

    /// No host, or one that stands for every interface.
    pub fn is_any(&self) -> bool {
        matches!(self.host.as_str(), "" | "0.0.0.0" | "::" | "*")
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

// --- with a scheme ---------------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    Tcp,
    Ssl,
    Udp,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scheme::Tcp => "tcp",
            Scheme::Ssl => "ssl",
            Scheme::Udp => "udp",
        })
    }
}

/// `[scheme://]host[:port]`, as in `gmcast.listen_addr` and `ist.recv_addr`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Endpoint {
    pub scheme: Option<Scheme>,
    pub host: String,
    pub port: Option<u16>,
}

impl Endpoint {
    pub fn parse(text: &str) -> Result<Endpoint, BadAddress> {
        let (scheme, rest) = match text.split_once("://") {
            None => (None, text),
            Some(("tcp", rest)) => (Some(Scheme::Tcp), rest),
            Some(("ssl", rest)) => (Some(Scheme::Ssl), rest),
            Some(("udp", rest)) => (Some(Scheme::Udp), rest),
            Some(_) => return Err(BadAddress { text: text.to_owned() }),
        };
        let HostPort { host, port } = HostPort::parse(rest).map_err(|_| BadAddress { text: text.to_owned() })?;
        Ok(Endpoint { scheme, host, port })
    }
}

// --- cluster address -------------------------------------------------------------------------------------------------------

/// The way in which the members are connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backend {
    /// The network.
    Gcomm,
    /// Nothing: a group of one node, without sockets.
    Dummy,
}

/// A parsed `wsrep_cluster_address`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterAddress {
    pub backend: Backend,
    /// Without duplicates, in the order given. May contain the node itself: one list serves all nodes.
    pub peers: Vec<HostPort>,
    /// `?name=value&…`, not checked: see `Options::set_from_uri`.
    pub options: Vec<(String, String)>,
}

/// Why a cluster address is refused. `Display` is the first line of Galera's chain of log lines;
/// [`crate::texts::connect_failed`] makes the rest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClusterAddressError {
    /// No scheme, and no plain list either.
    NoScheme {
        text: String,
    },
    UnknownBackend {
        scheme: String,
    },
    BadPeer {
        peer: String,
    },
    BadOption {
        text: String,
    },
}

impl ClusterAddressError {
    /// The number that Galera reports, as a positive `errno`.
    pub fn errno(&self) -> i32 {
        match self {
            ClusterAddressError::UnknownBackend { .. } => 94, // ESOCKTNOSUPPORT
            ClusterAddressError::NoScheme { .. }
            | ClusterAddressError::BadPeer { .. }
            | ClusterAddressError::BadOption { .. } => 22, // EINVAL
        }
    }
}

impl fmt::Display for ClusterAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterAddressError::NoScheme { text } => write!(f, "Invalid backend URI: {text}"),
            ClusterAddressError::UnknownBackend { scheme } => write!(f, "Backend not supported: {scheme}"),
            ClusterAddressError::BadPeer { peer } => write!(f, "Invalid backend URI: address '{peer}'"),
            ClusterAddressError::BadOption { text } => write!(f, "Invalid URI query part: '{text}'"),
        }
    }
}

impl std::error::Error for ClusterAddressError {}

impl ClusterAddress {
    /// `gcomm://h1[:p1],h2?name=value`, `dummy://`, or a plain list `h1:p1,h2:p2` in which every element names a port (the
    /// form that test hosts use; a word without a port is rather a mistyped address).
    pub fn parse(text: &str) -> Result<ClusterAddress, ClusterAddressError> {
        let text = text.trim();
        let (backend, rest) = match text.split_once("://") {
            Some(("gcomm", rest)) => (Backend::Gcomm, rest),
            Some(("dummy", rest)) => (Backend::Dummy, rest),
            Some((scheme, _)) => return Err(ClusterAddressError::UnknownBackend { scheme: scheme.to_owned() }),
            None => {
                let peers = parse_peers(text).ok().filter(|p| !p.is_empty() && p.iter().all(|h| h.port.is_some()));
                let peers = peers.ok_or_else(|| ClusterAddressError::NoScheme { text: text.to_owned() })?;
                return Ok(ClusterAddress { backend: Backend::Gcomm, peers, options: Vec::new() });
            }
        };
        let (list, query) = rest.split_once('?').unwrap_or((rest, ""));
        let options = query.split('&').filter(|o| !o.is_empty()).map(parse_option).collect::<Result<_, _>>()?;
        Ok(ClusterAddress { backend, peers: parse_peers(list.trim_end_matches('/'))?, options })
    }

    /// The port that stands in for a missing base port: that of the first peer which names one.
    pub fn port(&self) -> Option<u16> {
        self.peers.iter().find_map(|p| p.port)
    }
}

fn parse_peers(list: &str) -> Result<Vec<HostPort>, ClusterAddressError> {
    let mut peers: Vec<HostPort> = Vec::new();
    for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let peer = HostPort::parse(item).map_err(|e| ClusterAddressError::BadPeer { peer: e.text })?;
        if !peers.contains(&peer) {
            peers.push(peer);
        }
    }
    Ok(peers)
}

fn parse_option(item: &str) -> Result<(String, String), ClusterAddressError> {
    match item.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.trim().to_owned(), value.trim().to_owned())),
        _ => Err(ClusterAddressError::BadOption { text: item.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn peers(text: &str) -> Vec<String> {
        ClusterAddress::parse(text).unwrap().peers.iter().map(HostPort::to_string).collect()
    }
    fn error(text: &str) -> String {
        ClusterAddress::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn hosts_and_ports() {
        for (text, host, port) in [
            ("a", "a", None),
            ("a:1", "a", Some(1)),
            ("[::1]:2", "::1", Some(2)),
            ("[::1]", "::1", None),
            ("::1", "::1", None),
            ("", "", None),
            ("0.0.0.0:0", "0.0.0.0", Some(0)),
        ] {
            assert_eq!(HostPort::parse(text), Ok(HostPort { host: host.into(), port }), "{text}");
        }
        for bad in ["a:x", "a:", "a:65536", "[::1", "[::1]2", "a b", "a/b", "a:+1", "a,b"] {
            assert!(HostPort::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_cluster_address_lists_peers_and_options() {
        let address = ClusterAddress::parse("gcomm://h1:1, h2,[::1]:3 ?pc.weight=2&evs.suspect_timeout=PT1S").unwrap();
        assert_eq!(address.backend, Backend::Gcomm);
        assert_eq!(peers("gcomm://h1:1, h2,[::1]:3 ,h2"), ["h1:1", "h2", "[::1]:3"]);
        assert_eq!(address.options, [("pc.weight".into(), "2".into()), ("evs.suspect_timeout".into(), "PT1S".into())]);
        assert_eq!(address.port(), Some(1));
    }

    #[test]
    fn an_empty_list_or_any_host_names_nobody() {
        for text in ["gcomm://", "gcomm://0.0.0.0", "gcomm://0.0.0.0:4567", "gcomm://?pc.weight=1", "dummy://"] {
            assert!(ClusterAddress::parse(text).unwrap().peers.iter().all(HostPort::is_any), "{text}");
        }
    }

    #[test]
    fn a_plain_list_needs_ports() {
        assert_eq!(peers("127.0.0.1:10010,127.0.0.1:10020"), ["127.0.0.1:10010", "127.0.0.1:10020"]);
        assert_eq!(error("NULL"), "Invalid backend URI: NULL");
        assert_eq!(error(""), "Invalid backend URI: ");
        assert_eq!(ClusterAddress::parse("NULL").unwrap_err().errno(), 22);
    }

    #[test]
    fn other_schemes_are_refused_in_galeras_words() {
        assert_eq!(error("foo://"), "Backend not supported: foo");
        assert_eq!(ClusterAddress::parse("foo://").unwrap_err().errno(), 94);
        assert_eq!(error("gcomm://h?x"), "Invalid URI query part: 'x'");
        assert!(error("gcomm://h:port").contains("h:port"));
    }

    #[test]
    fn endpoints_have_an_optional_scheme() {
        let e = Endpoint::parse("ssl://[::]:4567").unwrap();
        assert_eq!((e.scheme, e.host.as_str(), e.port), (Some(Scheme::Ssl), "::", Some(4567)));
        assert_eq!(Endpoint::parse("h:1").unwrap().scheme, None);
        assert!(Endpoint::parse("http://h").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = ClusterAddress::parse(&text);
            let _ = Endpoint::parse(&text);
        }
    }
}
