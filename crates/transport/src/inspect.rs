//! Answers for status variables and tools.

use std::net::SocketAddr;
use std::time::Duration;

use trireme_types::NodeId;

use crate::MulticastStats;

/// The fate of a message given to `send`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    Queued,
    /// Droppable, and the queue is over its limit.
    Dropped,
    /// There is no link to that node, or it has just been closed because its queue was over the hard limit.
    NotLinked,
}

/// The proof that a peer must show to be linked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    /// That it knows the secret of the cluster.
    Secret,
    /// A certificate of one of the authorities.
    Certificates,
    /// Nothing, but only this host can connect.
    Loopback,
    /// Nothing, if it likes: clear text is taken too.
    Optional,
    /// Nothing.
    None,
}

/// One address that is dialled, or would be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerInfo {
    /// As written in the configuration or told by a peer.
    pub address: String,
    /// The node that answered there last.
    pub node: Option<NodeId>,
    pub linked: bool,
    /// From the configuration (as opposed to learned from peers and views).
    pub seed: bool,
    /// Why the last attempt failed; `None` after a success or before the first.
    pub problem: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    pub links_up: u64,
    pub links_down: u64,
    pub refused: u64,
    /// Accepted connections that are being opened now.
    pub half_open: u64,
    /// Links of peers that are no members, now.
    pub stranger_links: u64,
    pub dropped: u64,
    pub messages_sent: u64,
    pub messages_received: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// System calls that read or write on links, for counting what a message costs.
    pub reads: u64,
    pub flushes: u64,
    pub multicast: MulticastStats,
}

/// A link as `Transport::links` shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkInfo {
    pub node: NodeId,
    pub remote: SocketAddr,
    /// Did this side dial?
    pub dialled: bool,
    pub queued_bytes: usize,
    /// Version and cipher of TLS; `None` in clear text.
    pub tls: Option<String>,
    /// How long the latest word to the peer and back took; or how long the next one has been under way, if that is longer already. `None`
    /// before the first answer.
    pub round_trip: Option<Duration>,
}
