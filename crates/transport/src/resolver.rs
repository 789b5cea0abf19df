//! The thread that turns host names into addresses.
//!
//! That a dead name server delays all names does not matter, since then all names are dead.

use std::net::{SocketAddr, ToSocketAddrs};

use crate::Waker;
use crate::helper::Helper;

/// Asked for a host and a port.
pub(crate) type Resolver = Helper<(String, u16), Resolved>;

/// The answer for one name: its addresses, or why there are none.
pub(crate) struct Resolved {
    pub host: String,
    pub port: u16,
    pub result: Result<Vec<SocketAddr>, String>,
}

pub(crate) fn resolver(waker: Waker) -> Resolver {
    Helper::new(waker, "trireme-dns", "the resolver thread", |(host, port)| {
        let result = match (host.as_str(), port).to_socket_addrs() {
            Ok(found) => Ok(found.collect()),
            Err(error) => Err(error.to_string()),
        };
        Some(Resolved { host, port, result })
    })
}
