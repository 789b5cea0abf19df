//! Bodies to all at once: one series of datagrams to a multicast group in place of one copy for each peer.
//!
//! Only bodies that may get lost go this way, those that an origin hands to members other than the sequencer
//! ([`Message::Submit`] in the droppable class). A member that lacks one asks the sequencer for it over the link, as always;
//! so nothing waits for what is lost here, and there is no repair of its own. All else stays on the links.
//!
//! [`hearing`] decides for each peer whether it gets bodies this way. Four times a second this node tells each member over
//! its link which stream it sends, with the key, and how many datagrams it has sent ([`Gossip::Stream`]); the answer is how
//! many were heard ([`Gossip::Heard`]). A probe sees to it that there is something to hear. A peer that misses much, or
//! answers no more, gets bodies over its link.
//!
//! When a link ends, or a member leaves the view, a new stream begins, with a new key: whoever has gone can read and write no more.
//!
//! **Invariants.** A datagram counts only from a peer that is linked, and only in the stream that it announced over that
//! link. A datagram counts once. A stranger's datagram costs a look at its first 16 bytes, and at most its seal. The
//! sequencer takes no body from here: what is put in order came over the link of its origin.

mod datagram;
mod edge;
mod hearing;
mod incoming;
mod outgoing;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mio::net::UdpSocket;
use trireme_order::{Class, Message};
use trireme_types::{NodeId, ProposalNumber, Session};

use crate::gossip::Gossip;
pub(crate) use datagram::Key;
use datagram::MESSAGE_MAX;
use edge::Edge;
use hearing::Hearing;
pub(crate) use hearing::{ON_LINK, Turn};
use incoming::Incoming;
use outgoing::Outgoing;

/// How often peers are told what was sent.
pub(crate) const ANNOUNCE_EVERY: Duration = Duration::from_millis(250);
/// Sent between two polls at most; what is more goes over the links. Receivers' buffers may be small, and nothing here waits for them.
const BURST_MAX: usize = 128 << 10;
/// Datagrams read in one poll.
const READ_TURN: usize = 256;
/// So many turns an answer waits for what is not read yet.
const TURNS_HELD_MAX: u32 = 16;
/// Peers that are heard: many times what a cluster has.
const STREAMS_MAX: usize = 64;
/// Above [`DATAGRAM_MAX`](datagram::DATAGRAM_MAX): what is longer is cut off, and refused.
const READ_ROOM: usize = 2048;

/// `gmcast.mcast_addr`, `gmcast.mcast_port` and `gmcast.mcast_ttl`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MulticastConfig {
    pub group: SocketAddrV4,
    pub ttl: u8,
    /// Own address on the network of the others; 0.0.0.0: the kernel chooses.
    pub interface: Ipv4Addr,
}

/// The bodies that went by multicast, and how they got there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MulticastStats {
    /// Bodies that were sent so, and bytes of all datagrams.
    pub sent: u64,
    pub bytes_sent: u64,
    /// Bodies of others that were heard.
    pub received: u64,
    /// Datagrams that members say they missed.
    pub missed: u64,
}

pub(crate) struct Multicast {
    edge: Edge,
    /// Links have TLS: so keys can be told.
    sealed: bool,
    /// `None`: a new one is due.
    out: Option<Outgoing>,
    /// The peers that the present stream was announced to over a link that still stands.
    peers: Vec<(NodeId, Hearing)>,
    streams: Vec<(NodeId, Incoming)>,
    /// Announcements that want an answer: of whom, and how many it had sent.
    asked: Vec<(NodeId, u64)>,
    /// Sent since the last flush, so that it is sent once whoever it is for.
    last: Option<(Session, ProposalNumber)>,
    /// May still be sent before the next poll.
    room: usize,
    /// A datagram could not be sent: the links do it until the next announcement.
    failed: Option<io::Error>,
    paused: bool,
    /// This node puts bodies in order. It gets all of them over links: only there can nobody speak in another's name.
    pub orders: bool,
    /// The turn was over before all was read.
    pub unread: bool,
    /// Turns for which answers have waited for what is still unread.
    turns_held: u32,
    pub due: Instant,
    stats: MulticastStats,
}

impl Multicast {
    /// `sealed`: links have TLS.
    pub fn open(cfg: &MulticastConfig, sealed: bool, now: Instant) -> io::Result<Multicast> {
        Ok(Multicast {
            edge: Edge::open(cfg)?,
            sealed,
            out: None,
            peers: Vec::new(),
            streams: Vec::new(),
            asked: Vec::new(),
            last: None,
            room: 0,
            failed: None,
            paused: false,
            orders: false,
            unread: false,
            turns_held: 0,
            due: now,
            stats: MulticastStats::default(),
        })
    }

    pub fn socket(&mut self) -> &mut UdpSocket {
        &mut self.edge.socket
    }

    pub fn stats(&self) -> MulticastStats {
        let missed = self.peers.iter().fold(self.stats.missed, |sum, (_, peer)| sum.saturating_add(peer.missed));
        MulticastStats { missed, ..self.stats }
    }

    pub fn hears(&self, node: NodeId) -> bool {
        self.peers.iter().any(|(peer, hearing)| *peer == node && hearing.hears())
    }

    /// Another poll: as much can be sent again.
    pub fn begin_turn(&mut self) {
        self.room = BURST_MAX;
    }

    /// Sends it to all, once, if it may go this way and `to` hears. False: it has to go over the link.
    pub fn takes(&mut self, to: NodeId, class: Class, message: &Message) -> bool {
        let Message::Submit { session, number, .. } = message else { return false };
        if class != Class::Droppable || self.paused || !self.hears(to) {
            return false;
        }
        if self.last == Some((*session, *number)) {
            return true;
        }
        let mut parts = Vec::with_capacity(2);
        message.encode_vectored(&mut parts);
        let len: usize = parts.iter().map(Bytes::len).sum();
        if len > MESSAGE_MAX || len > self.room {
            return false;
        }
        self.room -= len;
        self.last = Some((*session, *number));
        self.stats.sent += 1;
        self.with_out(|out, send| out.push(&parts, send));
        true
    }

    fn with_out(&mut self, act: impl FnOnce(&mut Outgoing, &mut dyn FnMut(&[u8]))) {
        let Multicast { edge, out, stats, failed, .. } = self;
        let Some(out) = out else { return };
        act(out, &mut |datagram| match edge.send(datagram) {
            Ok(()) => stats.bytes_sent += datagram.len() as u64,
            Err(error) => *failed = Some(error),
        });
        self.paused |= self.failed.is_some();
    }

    pub fn flush(&mut self) {
        if self.last.take().is_some() {
            self.with_out(Outgoing::flush);
        }
    }

    /// Reads a turn's worth of datagrams, and gives what came whole.
    pub fn receive(&mut self, mut deliver: impl FnMut(NodeId, Message)) {
        let mut datagram = [0; READ_ROOM];
        self.unread = false;
        for _ in 0..READ_TURN {
            match self.edge.receive(&mut datagram) {
                Ok(n) => self.hear(&datagram[..n], &mut deliver),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // Of a datagram that was sent before, perhaps.
                Err(_) => {}
            }
        }
        self.unread = true;
    }

    fn hear(&mut self, datagram: &[u8], deliver: &mut impl FnMut(NodeId, Message)) {
        let Some((stream, number)) = datagram::address(datagram) else { return };
        let Some((from, incoming)) = self.streams.iter_mut().find(|(_, incoming)| incoming.stream == stream) else {
            return;
        };
        #[cfg(feature = "fuzzing")]
        if loss::strikes() {
            return;
        }
        let (from, stats, orders) = (*from, &mut self.stats, self.orders);
        incoming.receive(number, datagram, &mut |body| match Message::decode(&body) {
            // A member that has the key could say anything in another's name: here it can say no more than the sender could lie, and nothing
            // that is put in order.
            Ok(message @ Message::Submit { session, .. }) if session.node == from && !orders => {
                stats.received += 1;
                deliver(from, message);
            }
            Ok(_) | Err(_) => {}
        });
    }

    /// The announcement for peers, after something to hear. `None`: a stream could not be begun.
    pub fn announce(&mut self, now: Instant) -> Option<Gossip> {
        self.due = now + ANNOUNCE_EVERY;
        self.paused = false;
        if self.out.is_none() {
            self.out = Outgoing::new(self.sealed).ok();
        }
        self.with_out(Outgoing::probe);
        let out = self.out.as_ref()?;
        Some(Gossip::Stream { stream: out.stream, key: out.key, sent: out.number })
    }

    /// `node` is told over its link. Those on whose links nobody else can read are told a key.
    pub fn tells(&mut self, node: NodeId, by_tls: bool, now: Instant) -> bool {
        if by_tls != self.sealed {
            return false;
        }
        match self.peers.iter_mut().find(|(peer, _)| *peer == node) {
            Some((_, hearing)) => hearing.on_announced(now),
            None => self.peers.push((node, Hearing::new())),
        }
        true
    }

    /// Why datagrams could not be sent recently.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.failed.take()
    }

    /// A peer has announced what it sends.
    pub fn on_stream(&mut self, from: NodeId, stream: u64, key: Option<Key>, sent: u64, by_tls: bool) {
        if key.is_some() != by_tls {
            return;
        }
        if !self.streams.iter().any(|(node, incoming)| *node == from && incoming.stream == stream) {
            self.streams.retain(|(node, _)| *node != from);
            let taken = self.streams.iter().any(|(_, incoming)| incoming.stream == stream);
            let Ok(incoming) = Incoming::new(stream, key.as_ref(), sent) else { return };
            if taken || self.streams.len() >= STREAMS_MAX {
                return;
            }
            self.streams.push((from, incoming));
        }
        if let Some((_, incoming)) = self.streams.iter_mut().find(|(node, _)| *node == from) {
            incoming.announced(sent);
        }
        self.asked.retain(|(node, _)| *node != from);
        self.asked.push((from, sent));
    }

    /// The answers that are due, after what had arrived was read. They wait while more is there to be read, and not for ever: strangers may
    /// send without end.
    pub fn answers(&mut self) -> Vec<(NodeId, Gossip)> {
        if self.unread && self.turns_held < TURNS_HELD_MAX {
            self.turns_held += 1;
            return Vec::new();
        }
        self.turns_held = 0;
        let mut answers = Vec::new();
        for (node, sent) in self.asked.drain(..) {
            if let Some((_, incoming)) = self.streams.iter().find(|(from, _)| *from == node) {
                answers.push((node, Gossip::Heard { stream: incoming.stream, sent, heard: incoming.heard }));
            }
        }
        answers
    }

    /// A peer's answer, and what changes by it.
    pub fn on_heard(&mut self, from: NodeId, stream: u64, sent: u64, heard: u64, now: Instant) -> Option<Turn> {
        if self.out.as_ref().is_none_or(|out| out.stream != stream || out.number < sent) {
            return None;
        }
        let (_, peer) = self.peers.iter_mut().find(|(node, _)| *node == from)?;
        peer.on_answer(sent, heard, now)
    }

    /// A link has ended.
    pub fn on_link_down(&mut self, node: NodeId, now: Instant) {
        self.streams.retain(|(from, _)| *from != node);
        if self.peers.iter().any(|(peer, _)| *peer == node) {
            self.begin_anew(now);
        }
    }

    /// The members of the view: who is none of them reads no more.
    pub fn keep_only(&mut self, members: &BTreeSet<NodeId>, now: Instant) {
        if self.peers.iter().any(|(peer, _)| !members.contains(peer)) {
            self.begin_anew(now);
        }
    }

    /// A new stream with a new key, for those to whom it is announced.
    fn begin_anew(&mut self, now: Instant) {
        self.stats.missed = self.stats().missed;
        self.peers.clear();
        self.out = None;
        self.last = None;
        self.due = now;
    }
}

/// For tests: datagrams that get lost on their way here.
#[cfg(feature = "fuzzing")]
pub(crate) mod loss {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use trireme_types::mix;

    static PER_MILLE: AtomicU64 = AtomicU64::new(0);
    static DRAWN: AtomicU64 = AtomicU64::new(0);

    pub fn set(per_mille: u64, seed: u64) {
        DRAWN.store(seed, Relaxed);
        PER_MILLE.store(per_mille, Relaxed);
    }

    pub fn strikes() -> bool {
        let per_mille = PER_MILLE.load(Relaxed);
        per_mille > 0 && mix(DRAWN.fetch_add(1, Relaxed)) % 1000 < per_mille
    }
}

/// See [`fuzzing`](crate::fuzzing).
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(mut data: &[u8]) {
    const STREAM: u64 = 7;
    let Ok(mut incoming) = Incoming::new(STREAM, None, 3) else { return };
    let (mut number, mut heard) = (3, 0);
    while let Some((&[low, high], rest)) = data.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes([low, high & 7])).min(rest.len());
        let (piece, later) = rest.split_at(len);
        data = later;
        let mut datagram = piece.to_vec();
        if let (true, Some(place)) = (high & 0x80 != 0, datagram.get_mut(8..16)) {
            place.copy_from_slice(&u64::to_le_bytes(number));
        }
        if let (true, Some(at)) = (high & 0x40 != 0, datagram.len().checked_sub(4)) {
            let sum = crc32fast::hash(&datagram[..at]);
            datagram[at..].copy_from_slice(&sum.to_le_bytes());
        }
        let Some((_, at)) = datagram::address(&datagram) else { continue };
        let mut out = |whole: Bytes| assert!(whole.len() <= MESSAGE_MAX.max(READ_ROOM), "longer than anybody sends");
        let taken = incoming.receive(at, &datagram, &mut out);
        heard += u64::from(taken);
        number = number.wrapping_add(u64::from(taken && at == number));
        assert!(!taken || !incoming.receive(at, &datagram, &mut out), "a datagram counts once");
        assert_eq!(incoming.heard, heard);
        assert!(incoming.held() <= incoming::HELD_MAX);
    }
}

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz_seeds() -> Vec<Vec<u8>> {
    let (mut number, mut wire) = (0u16, Vec::new());
    let mut guard = datagram::Guard::Clear;
    let mut put = |text: &dyn Fn(&mut Vec<u8>)| {
        let mut one = Vec::new();
        text(&mut one);
        if guard.seal(7, 3 + u64::from(number), &mut one).is_ok() {
            number += 1;
            wire.extend_from_slice(&(0xc000 | one.len() as u16).to_le_bytes());
            wire.extend_from_slice(&one);
        }
    };
    put(&datagram::begin);
    put(&|one| {
        datagram::begin(one);
        datagram::add(one, &[Bytes::from_static(b"small"), Bytes::from_static(b" one")]);
        datagram::add(one, &[]);
    });
    for at in [0, 1] {
        put(&|one| {
            datagram::begin_part(one, at, 2);
            one.extend_from_slice(b"a part");
        });
    }
    vec![wire]
}
