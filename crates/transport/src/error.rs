//! Why a transport cannot be had as it was configured. The text of each is the operator's: it names what is at fault, and what to do.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

/// Why there is no transport.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    #[error("cannot create an event queue: {0}")]
    Queue(#[source] io::Error),
    #[error("cannot create a wake-up descriptor: {0}")]
    WakeUp(#[source] io::Error),
    #[error(transparent)]
    Address(#[from] BadAddress),
    #[error("cannot listen on '{address}': the name does not resolve: {source}")]
    NameUnknown { address: String, source: io::Error },
    #[error("cannot listen on '{address}': the name has no address")]
    NameWithoutAddress { address: String },
    /// `place`: with its scheme.
    #[error("cannot listen on {place}: {source}{}", hint(source.kind()))]
    Listen { place: String, source: io::Error },
    #[error(
        "cannot join the multicast group {group} on the interface of {interface}: {source}; check gmcast.mcast_addr, gmcast.mcast_port and \
         wsrep_node_address, or leave gmcast.mcast_addr out: then bodies go over the links"
    )]
    Multicast { group: SocketAddrV4, interface: Ipv4Addr, source: io::Error },
}

fn hint(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::AddrInUse => {
            " (Address already in use): another process listens there, perhaps another node or a previous server that \
             is still stopping; stop it, or choose another port with gmcast.listen_addr or base_port"
        }
        io::ErrorKind::AddrNotAvailable => {
            ": this host has no such address; check gmcast.listen_addr and wsrep_node_address"
        }
        io::ErrorKind::PermissionDenied => {
            ": not permitted; ports below 1024 need privileges, and SELinux or AppArmor may forbid others"
        }
        _ => "",
    }
}

/// No place to dial or to listen on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{text}' is not an address of the form host:port ({why})")]
pub struct BadAddress {
    pub text: String,
    pub why: &'static str,
}

/// Why nothing can be shown to peers.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("there is no secret")]
    NoSecret,
    /// OpenSSL lacks what is needed, for these reasons.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
    #[error("socket.ssl_cipher='{list}': {why}")]
    Ciphers { list: String, why: String },
    /// A file, which `option` names, cannot be read or does not fit the others.
    #[error("{option}='{}': {why}", path.display())]
    File { option: &'static str, path: PathBuf, why: String },
}

/// `socket.ssl_peer_names` has a part that is neither a name nor a fingerprint.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadPeerNames {
    #[error("'{0}' is no fingerprint: write SHA256: and 64 hexadecimal digits")]
    Fingerprint(String),
    #[error("'{0}' is no name: separate names by commas")]
    Name(String),
}

/// The first line, counted from one, of what was kept of the peers' certificates that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {0} is not a node id, a fingerprint and names")]
pub struct BadShown(pub usize);
