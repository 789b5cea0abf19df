//! The settings of a transport at its start.

use std::net::IpAddr;
use std::time::Duration;

use trireme_types::{Level, Levels, Member};

use crate::{MulticastConfig, ShownBy, TlsContext};

/// Protocol versions that this build speaks, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versions {
    pub min: u16,
    pub max: u16,
}

impl Versions {
    pub const CURRENT: Versions = Versions { min: 2, max: 2 };

    /// The newest version that both speak.
    pub(crate) fn common(self, other: Versions) -> Option<u16> {
        let version = self.max.min(other.max);
        (version >= self.min.max(other.min)).then_some(version)
    }
}

impl std::fmt::Display for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.min == self.max { write!(f, "{}", self.max) } else { write!(f, "{}..{}", self.min, self.max) }
    }
}

/// Bounds on what peers and strangers can make us hold.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Accepted connections whose handshake is not finished. One more closes the oldest of them: a member needs two round
    /// trips, a stranger may keep silent for all of `peer_timeout`.
    pub half_open: usize,
    /// Bytes queued on a link above which droppable messages are dropped. A few round trips of a fast network.
    pub droppable_bytes: usize,
    /// Bytes queued on a link above which it is closed. The protocol bounds what it sends; this catches its mistakes, so it
    /// is above the largest write set (2 GiB) and everything else together.
    pub queue_bytes: usize,
    /// Largest message accepted from a peer; a larger one closes the link.
    pub message_bytes: u64,
    /// Links of peers that are neither members nor at an address of members, together and from one source. A cluster that grows needs one
    /// for each node that is about to join.
    pub stranger_links: usize,
    pub stranger_links_per_source: usize,
    /// Largest message accepted from a peer that is no member. A joiner has nothing large to say before it is one.
    pub stranger_message_bytes: u64,
    /// Memory that small messages to one such peer may take while it does not read them.
    pub stranger_queue_bytes: usize,
    /// Memory that all such peers together may make this node hold in messages that are not whole and answers that they do not read.
    pub stranger_bytes: usize,
    /// A message that was begun has to go on within this.
    pub unfinished_within: Duration,
    /// Memory that all links together may make this node hold, looked at once a second: messages that are not whole, and what waits to be
    /// sent (that for several peers counted once). Beyond it the link that holds most is closed. Room for four of the largest write sets.
    pub memory_bytes: usize,
    /// Addresses remembered; beyond it, addresses learned from peers are ignored.
    pub addresses: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            half_open: 64,
            droppable_bytes: 16 << 20,
            queue_bytes: 6 << 30,
            message_bytes: 4 << 30,
            stranger_links: 64,
            stranger_links_per_source: 32,
            stranger_message_bytes: 16 << 20,
            stranger_queue_bytes: 4 << 20,
            stranger_bytes: 64 << 20,
            unfinished_within: Duration::from_secs(30),
            memory_bytes: 8 << 30,
            addresses: 256,
        }
    }
}

/// The treatment of a node id that comes with a certificate of other names than before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OtherCertificate {
    /// It is linked, and a line warns.
    Warn,
    Refuse,
}

#[derive(Clone, Debug)]
pub struct NetConfig {
    /// `me.address` is what other members dial. Port 0 in it stands for the port listened on; an empty one for "the address I
    /// speak from, at the port I listen on".
    pub me: Member,
    /// `wsrep_cluster_name`: peers of another cluster are refused.
    pub cluster: String,
    /// `host:port`; none: dial only.
    pub listen: Vec<String>,
    /// `host:port` of `wsrep_cluster_address`; may contain the own address.
    pub seeds: Vec<String>,
    /// Local address of outgoing connections.
    pub bind_source: Option<IpAddr>,
    /// `gmcast.peer_timeout`: for connecting, and again for the handshake.
    pub peer_timeout: Duration,
    /// `gmcast.time_wait`: how long a member thrown out by `forget` is refused.
    pub time_wait: Duration,
    /// Sent data unacknowledged for this long closes the link (TCP_USER_TIMEOUT): after a cut a new connection gets through
    /// long before TCP's growing retransmission pauses do. A stopped process acknowledges until its buffers are full.
    pub dead_after: Duration,
    /// How often each member is asked for the time of a round trip.
    pub probe_every: Duration,
    pub versions: Versions,
    /// The group levels that this build supports, and the one that the group is at: peers that do not support it are refused.
    pub levels: Levels,
    pub level: Level,
    /// Ask who may be linked: [`NetEvent::Admission`](crate::NetEvent::Admission).
    pub ask_admission: bool,
    /// `socket.checksum`: CRC-32 over message bodies. Headers and control messages always have one.
    pub checksum: bool,
    /// `socket.send_buf_size`, `socket.recv_buf_size`; `None`: the kernel's own tuning.
    pub send_buffer: Option<usize>,
    pub recv_buffer: Option<usize>,
    /// Connections are encrypted with this; `None`: in clear text.
    pub tls: Option<TlsContext>,
    /// `socket.dynamic`: with TLS, peers that speak in clear text are accepted too, and one that ends a TLS handshake
    /// without a word is dialled again in clear text. An attacker who controls the network can then make any link a clear
    /// one.
    pub clear_too: bool,
    pub other_certificate: OtherCertificate,
    /// The names that [`NetEvent::Certificates`](crate::NetEvent::Certificates) told last, in this process or one before.
    pub shown: ShownBy,
    pub limits: Limits,
    /// Bodies for all go to this group where they are heard.
    pub multicast: Option<MulticastConfig>,
}

impl NetConfig {
    /// Galera's defaults; listens nowhere and knows nobody.
    pub fn new(me: Member, cluster: &str) -> NetConfig {
        NetConfig {
            me,
            cluster: cluster.to_owned(),
            listen: Vec::new(),
            seeds: Vec::new(),
            bind_source: None,
            peer_timeout: Duration::from_secs(3),
            time_wait: Duration::from_secs(5),
            dead_after: Duration::from_secs(10),
            probe_every: Duration::from_millis(500),
            versions: Versions::CURRENT,
            levels: trireme_order::SUPPORTED,
            level: Level::FIRST,
            ask_admission: false,
            checksum: true,
            send_buffer: None,
            recv_buffer: None,
            tls: None,
            clear_too: false,
            other_certificate: OtherCertificate::Warn,
            shown: ShownBy::new(),
            limits: Limits::default(),
            multicast: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Versions;

    #[test]
    fn common_version_is_the_newest_that_both_speak() {
        let v = |min, max| Versions { min, max };
        assert_eq!(v(1, 3).common(v(2, 5)), Some(3));
        assert_eq!(v(2, 5).common(v(1, 3)), Some(3));
        assert_eq!(v(1, 1).common(v(1, 1)), Some(1));
        assert_eq!(v(1, 2).common(v(3, 4)), None);
    }
}
