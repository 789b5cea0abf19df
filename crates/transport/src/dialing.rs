//! Finding peers: which address to dial when, names, and what becomes of an attempt.

use std::net::SocketAddr;
use std::time::Instant;

use trireme_types::{Member, NodeId};

use crate::address::{Address, Host};
use crate::book::{Attempt, EntryId};
use crate::conn::{Channel, Conn, Phase};
use crate::error::BadAddress;
use crate::handshake::Handshake;
use crate::helper::Turn;
use crate::resolver::Resolved;
use crate::socket;
use crate::{AdmitToken, NetEvent, Transport};

/// Nodes that count as known: many times what a cluster has in years. Those beyond it are treated as strangers while they are in no view.
pub(crate) const KNOWN_MAX: usize = 4096;

impl Transport {
    /// Dials `host:port` from now on (`gmcast.peer_addr=add:…`).
    pub fn add_peer(&mut self, address: &str) -> Result<(), BadAddress> {
        let address = Address::parse(address)?;
        let now = Instant::now();
        // An address that a person asked for has room in any case.
        if let Some(entry) = self.book.add(address, now, usize::MAX).and_then(|at| self.book.get_mut(at)) {
            entry.seed = true;
        }
        self.wake_at(now);
        Ok(())
    }

    /// The members of the current view: their addresses are dialled at full rate until the next call.
    pub fn set_peers(&mut self, members: &[Member]) {
        let now = Instant::now();
        self.book.iter_mut().for_each(|(_, entry)| entry.current = false);
        self.members = members.iter().map(|member| member.node).collect();
        for member in members {
            if self.known.len() < KNOWN_MAX || self.known.contains_key(&member.node) {
                let newest = self.known.entry(member.node).or_insert(member.incarnation);
                *newest = member.incarnation.max(*newest);
            }
        }
        if let Some(multicast) = &mut self.multicast {
            multicast.keep_only(&self.members, now);
        }
        for member in members.iter().filter(|member| member.node != self.me.node) {
            let Ok(address) = Address::parse(&member.address) else { continue };
            if matches!(address.host, Host::Ip(ip) if ip.is_unspecified()) {
                continue;
            }
            let at = self.book.add(address, now, self.cfg.limits.addresses);
            if let Some(entry) = at.and_then(|at| self.book.get_mut(at)) {
                entry.current = true;
                entry.node = entry.node.or(Some(member.node));
            }
        }
        self.wake_at(now);
    }

    /// Closes the link to a node that was thrown out, refuses this incarnation of it for `time_wait`, and stops dialling its
    /// addresses unless they are configured.
    pub fn forget(&mut self, node: NodeId) {
        let now = Instant::now();
        let slot = self.link_slot(node);
        let incarnation =
            slot.and_then(|slot| self.conn(slot)).and_then(|conn| conn.hello()).map(|hello| hello.member.incarnation);
        if let Some(incarnation) = incarnation {
            self.forgotten.push((node, incarnation, now + self.cfg.time_wait));
        }
        self.kill_link(node);
        self.book.forget(node);
    }

    /// Addresses that a peer gave us.
    pub(crate) fn learn(&mut self, addresses: Vec<String>, from: SocketAddr, now: Instant) {
        for text in addresses {
            let Ok(address) = Address::parse(&text) else { continue };
            let foreign_loopback = matches!(address.host, Host::Ip(ip) if ip.is_loopback()) && !from.ip().is_loopback();
            let unspecified = matches!(address.host, Host::Ip(ip) if ip.is_unspecified());
            if unspecified || foreign_loopback || address.port == 0 || address.to_string() == self.me.address {
                continue;
            }
            self.book.add(address, now, self.cfg.limits.addresses);
        }
        self.wake_at(now);
    }

    /// The address of a peer itself, as seen from here.
    pub(crate) fn learn_peer(&mut self, member: &Member, remote: SocketAddr, now: Instant) -> Option<String> {
        let address = Address::parse(&member.address).ok().filter(|address| address.port != 0)?.seen_from(remote.ip());
        let text = address.to_string();
        let at = self.book.add(address, now, self.cfg.limits.addresses)?;
        self.book.found(at, member.node);
        Some(text)
    }

    /// The addresses for peers: where the members of the view and all linked peers listen.
    pub(crate) fn addresses_to_tell(&self) -> Vec<String> {
        let linked = |node: Option<NodeId>| node.is_some_and(|node| self.link_slot(node).is_some());
        let told = self.book.iter().filter(|(_, entry)| entry.current || linked(entry.node));
        told.map(|(_, entry)| entry.address.to_string()).collect()
    }

    /// Starts what is due and sets the timer for the rest.
    pub(crate) fn dial_due(&mut self, now: Instant) {
        let mut due = Vec::new();
        let mut next = None;
        for (at, entry) in self.book.iter() {
            let linked = entry.node.is_some_and(|node| node != self.me.node && self.link_slot(node).is_some());
            if entry.attempt != Attempt::None || linked {
                continue;
            }
            if entry.next <= now {
                due.push(at);
            } else {
                next = Some(next.map_or(entry.next, |next: Instant| next.min(entry.next)));
            }
        }
        if let Some(next) = next {
            self.wake_at(next);
        }
        due.into_iter().for_each(|at| self.dial(at, now));
    }

    fn dial(&mut self, at: EntryId, now: Instant) {
        let Some(entry) = self.book.get_mut(at) else { return };
        if entry.candidates.is_empty() {
            let port = entry.address.port;
            match &entry.address.host {
                Host::Ip(ip) => entry.candidates.push(SocketAddr::new(*ip, port)),
                Host::Name(name) => {
                    entry.attempt = Attempt::Resolving;
                    if let Err(error) = self.resolver.ask((name.clone(), port), Turn::Second) {
                        self.dial_failed(at, &error.to_string(), now);
                    }
                    return;
                }
            }
        }
        self.dial_candidate(at, now);
    }

    pub(crate) fn on_resolved(&mut self, answer: Resolved, now: Instant) {
        let Resolved { host, port, result } = answer;
        let address = Address { host: Host::Name(host), port };
        let Some(at) = self.book.find(&address) else { return };
        let key = format!("resolve {address}");
        match result {
            Ok(candidates) if !candidates.is_empty() => {
                self.limiter.settle(&key);
                if let Some(entry) = self.book.get_mut(at) {
                    entry.attempt = Attempt::None;
                    entry.resolved = candidates.iter().map(|place| place.ip()).collect();
                    entry.candidates = candidates;
                }
                if !self.isolation().is_on() {
                    self.dial_candidate(at, now);
                }
            }
            Ok(_) => self.resolve_failed(at, &key, "the name has no address", now),
            Err(error) => self.resolve_failed(at, &key, &error.to_string(), now),
        }
    }

    fn resolve_failed(&mut self, at: EntryId, key: &str, error: &str, now: Instant) {
        let Some(entry) = self.book.get(at) else { return };
        // A warning the first time; repeated, as a note, as long as it lasts.
        let first = entry.problem.is_none();
        let address = &entry.address;
        let text = format!("cannot resolve the host of address '{}://{address}': {error}; trying again", self.scheme());
        self.log_limited(now, key, first, text);
        self.fail(at, format!("cannot resolve: {error}"), now);
    }

    /// Connects to the next place that the entry's name stands for.
    fn dial_candidate(&mut self, at: EntryId, now: Instant) {
        let book = &mut self.book;
        let own = std::mem::take(&mut book.own);
        let next = book.get_mut(at).and_then(|entry| {
            entry.candidates.retain(|addr| !own.contains(addr));
            (!entry.candidates.is_empty()).then(|| entry.candidates.remove(0))
        });
        book.own = own;
        let Some(remote) = next else { return self.book.found_own(at, now) };
        if self.cfg.ask_admission && self.book.get(at).is_some_and(|entry| !entry.seed) {
            // Peers told where it is. Without this, a member that the list no longer has would be turned away, and called back.
            let token = self.next_admit();
            if let Some(entry) = self.book.get_mut(at) {
                entry.attempt = Attempt::Asked(token, remote);
            }
            return self.pending.push(NetEvent::Admission { token, address: remote.ip().to_string() });
        }
        self.connect(at, remote, now);
    }

    /// The allow list's answer about a place that was to be dialled. Ignored when nobody asked.
    pub(crate) fn admit_dial(&mut self, token: AdmitToken, allowed: bool, now: Instant) {
        let asked = self.book.iter().find_map(|(at, entry)| match entry.attempt {
            Attempt::Asked(asked, remote) if asked == token => Some((at, remote)),
            Attempt::None | Attempt::Resolving | Attempt::Asked(..) | Attempt::Connecting => None,
        });
        let Some((at, remote)) = asked else { return };
        if let Some(entry) = self.book.get_mut(at) {
            entry.attempt = Attempt::None;
        }
        if !allowed {
            self.dial_failed(at, &format!("IP {} is not in the allowlist", remote.ip()), now);
        } else if !self.isolation().is_on() {
            self.connect(at, remote, now);
        }
    }

    fn connect(&mut self, at: EntryId, remote: SocketAddr, now: Instant) {
        let options = self.socket_options();
        let source = self.cfg.bind_source;
        let deadline = now + self.cfg.peer_timeout;
        let message_max = self.cfg.limits.message_bytes;
        let conn = socket::connect(remote, source, &options)
            .and_then(|stream| Conn::new(stream, remote, Phase::Connecting, Channel::Clear, deadline, message_max))
            .and_then(|mut conn| {
                conn.dialled = Some(at);
                self.insert(conn)
            });
        match conn {
            Ok(_) => {
                if let Some(entry) = self.book.get_mut(at) {
                    entry.attempt = Attempt::Connecting;
                }
            }
            Err(error) => self.dial_failed(at, &error.to_string(), now),
        }
    }

    /// The kernel has finished connecting, one way or the other.
    pub(crate) fn on_connected(&mut self, slot: usize, now: Instant) {
        let deadline = now + self.cfg.peer_timeout;
        let hello = Handshake::Hello(self.hello()).encode();
        let Transport { conns, book, cfg, handshaker, .. } = self;
        let Some(conn) = conns.get_mut(slot).and_then(Option::as_mut) else { return };
        if let Some(error) = conn.stream.take_error().ok().flatten() {
            return self.lose(slot, crate::DownCause::Reset, &error.to_string(), now);
        }
        if conn.stream.peer_addr().is_err() {
            // Not yet; a spurious event.
            return;
        }
        conn.phase = Phase::Hello;
        conn.deadline = Some(deadline);
        conn.queue.push_raw(hello);
        let entry = conn.dialled.and_then(|at| book.get(at));
        let (clear, attempt) = entry.map_or((false, 0), |entry| (entry.clear, entry.tls_failures));
        if let Some(context) = cfg.tls.as_ref().filter(|_| !clear)
            && let Err(why) = conn.dial_tls(context, attempt, handshaker)
        {
            return self.tls_failed(slot, &why.to_string(), now);
        }
        self.mark_dirty(slot);
        self.wake_at(deadline);
    }

    /// An attempt failed for a reason that lies with the network or the peer's host.
    pub(crate) fn dial_failed(&mut self, at: EntryId, why: &str, now: Instant) {
        let Some(entry) = self.book.get(at) else { return };
        let address = entry.address.to_string();
        let text = format!("connection to '{}://{address}' failed: {why}; trying again", self.scheme());
        self.log_limited(now, &format!("dial {address}"), false, text);
        self.fail(at, why.to_owned(), now);
    }

    /// The attempt is over without a line in the log.
    pub(crate) fn fail(&mut self, at: EntryId, why: String, now: Instant) {
        let Transport { book, jitter, .. } = self;
        book.fail(at, now, why, jitter);
        if let Some(next) = book.get(at).map(|entry| entry.next) {
            self.wake_at(next);
        }
    }
}
