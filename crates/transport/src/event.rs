//! The reports of a poll.

use std::time::Duration;

use trireme_order::Message;
use trireme_types::{Levels, Member, NodeId};

use crate::ShownBy;

/// Names a connection, or an attempt at one, that waits for [`Transport::admit`](crate::Transport::admit). Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AdmitToken(pub u64);

/// Why a link went down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownCause {
    /// The peer's process closed the connection or died, or its host says that nobody is there: it is not slow, it is gone.
    Reset,
    /// The peer said goodbye first: it stops on purpose.
    Bye,
    /// Nothing was heard for too long: the peer or the way to it.
    Silent,
    /// A newer connection to the same node takes over.
    Replaced,
    /// The peer sent what no member sends.
    Garbage,
    /// Closed from this side: `kill_link`, `forget`, isolation, a full queue.
    Local,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NetEvent {
    /// The handshake is done. `protocol` is the version spoken with this peer, `levels` the group levels that its build supports.
    LinkUp {
        member: Member,
        protocol: u16,
        levels: Levels,
    },
    LinkDown {
        node: NodeId,
        cause: DownCause,
    },
    Message {
        from: NodeId,
        message: Message,
    },
    /// So long a word to a member and back took, from the thread that polls here to the one that polls there.
    RoundTrip {
        node: NodeId,
        time: Duration,
    },
    /// A line for the log.
    Log {
        warn: bool,
        text: String,
    },
    /// A peer belongs to another cluster, or speaks no version in common: a mistake in somebody's configuration.
    Unwelcome {
        reason: String,
    },
    /// A peer that was called gives this node no link, now or for a time: it lives, and is of this cluster.
    Shunned {
        reason: String,
    },
    /// A peer refuses this process because an older incarnation of its node id lives and is linked there: this one runs on a copy of the
    /// other's disk. Two that vote under one id are a danger to all data, so this one has to go.
    Twin {
        reason: String,
    },
    /// May somebody at `address` (an IP without port) be linked? Answer with `admit`. Only with `ask_admission`: about each connection that
    /// is accepted (closed after `peer_timeout` without an answer), and before each that is made to a place which peers told and nobody
    /// here configured.
    Admission {
        token: AdmitToken,
        address: String,
    },
    /// A node has shown a certificate that it did not show before: whose each node showed last, all of them. To be kept for
    /// [`NetConfig::shown`](crate::NetConfig::shown).
    Certificates(ShownBy),
    /// A thread of the transport panicked: what it should have answered is never answered. The transport is to be closed.
    Broken {
        thread: &'static str,
        said: String,
    },
    /// An incoming connection was turned away. Rate-limited; wants a warning in the log.
    Refused {
        address: String,
        reason: String,
    },
}
