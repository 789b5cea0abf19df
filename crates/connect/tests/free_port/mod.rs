//! Ports for tests that have to name one before anybody listens there.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// A port of this machine that nobody listens on, and that no call in this process names again. It lies below those that the system gives
/// to connections and to listeners that ask for none in particular: from there another test would be given the same.
pub fn free_port() -> u16 {
    const FIRST: u16 = 12_000;
    const COUNT: u16 = 4_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Another process begins elsewhere.
    let begin = (std::process::id() * 50 % u32::from(COUNT)) as u16;
    (0..COUNT)
        .map(|_| FIRST + (begin + NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}
