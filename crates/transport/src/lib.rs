//! Sockets between members: who may connect, one link per pair, framing, queues, reconnecting.
//!
//! [`Transport`] is the façade and is driven by one thread, the node's group thread:
//!
//! ```text
//! loop {
//!     transport.poll(timeout, &mut events);      // the only place that waits
//!     for event in events.drain(..) { feed it to the group }
//!     while let Some(output) = group.poll_output(now) { transport.send(to, class, &message) }
//!     transport.flush();                         // one vectored write per link with something to say
//! }
//! ```
//!
//! Other threads reach it through a [`Waker`] only. Two threads are started here when they are first needed: one resolves host names
//! ([`resolver`]), since `getaddrinfo` may block for seconds, and one computes TLS handshakes ([`handshaker`]). Both are a [`helper`].
//!
//! **Invariants.** Between the `LinkUp` and the `LinkDown` of a peer every message that the peer sent in a class arrives once
//! and in order, unless it was droppable: that may be missing, and by [`multicast`] come in another order; what was sent before a `LinkDown` may or may not have arrived. There is at most one link to a
//! node at any time, and both ends agree on which ([`handshake`]). Nothing that arrives on a socket can panic.

mod address;
mod book;
mod budget;
mod config;
mod conn;
mod dialing;
mod error;
mod event;
mod frame;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gossip;
mod handshake;
mod handshaker;
mod helper;
mod identity;
mod inspect;
mod isolation;
mod jitter;
mod limiter;
mod multicast;
mod peering;
mod probe;
mod queue;
mod resolver;
mod socket;
mod sync;
mod tls;
mod transport;
mod waker;

pub use config::{Limits, NetConfig, OtherCertificate, Versions};
pub use error::{BadAddress, BadPeerNames, BadShown, TlsError, TransportError};
pub use event::{AdmitToken, DownCause, NetEvent};
pub use identity::{CERTIFICATES_FILE, Fingerprint, Identity, PeerNames, ShownBy, parse_shown, print_shown};
pub use inspect::{LinkInfo, PeerInfo, Protection, Sent, Stats};
pub use isolation::{InvalidIsolation, Isolation, Registration, isolate_all, isolation_of_process};
pub use multicast::{MulticastConfig, MulticastStats};
pub use queue::Encoded;
pub use socket::with_signals_blocked;
pub use tls::{SECRET_LEN, Shows, TlsContext, TlsFiles};
pub use transport::Transport;
pub use waker::Waker;

/// With the feature `fuzzing`, which no server needs.
pub const TEST_BUILD: bool = cfg!(feature = "fuzzing");
