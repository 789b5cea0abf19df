//! The thread that turns host names into addresses.
//!
//! That a dead name server delays all names does not matter, since then all names are dead.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use crate::Waker;
use crate::helper::Helper;

/// Asked for a host and a port.
pub(crate) type Resolver = Helper<(String, u16), Resolved>;

/// The answer for one name: its addresses, or why there are none.
pub(crate) struct Resolved {
    pub host: String,
    pub port: u16,
    pub result: io::Result<Vec<SocketAddr>>,
}

pub(crate) fn resolver(waker: Waker) -> Resolver {
    Helper::new(waker, "trireme-dns", "the resolver thread", |(host, port)| {
        let result = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        Some(Resolved { host, port, result })
    })
}
