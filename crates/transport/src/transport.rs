//! The façade and its loop.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use trireme_order::{Class, Message};
use trireme_types::{Incarnation, Level, Member, NodeId};

use crate::address::{Address, Host, plain};
use crate::book::Book;
use crate::conn::{Channel, Conn, Phase, READ_TURN, READ_TURN_STRANGER, ReadResult, Shown};
use crate::error::TransportError;
use crate::frame::Lane;
use crate::gossip::Gossip;
use crate::handshake::{Handshake, clip};
use crate::handshaker::{Handshaker, Stepped, handshaker};
use crate::inspect::LinkInfo;
use crate::isolation::Registration;
use crate::jitter::Jitter;
use crate::limiter::Limiter;
use crate::multicast::{Multicast, ON_LINK, Turn};
use crate::peering::printable;
use crate::queue::{Encoded, Flushed};
use crate::resolver::{Resolver, resolver};
use crate::socket::{self, SocketOptions};
use crate::tls::HANDSHAKE_RECORD;
use crate::{
    AdmitToken, DownCause, Isolation, MulticastConfig, NetConfig, NetEvent, PeerInfo, Protection, Sent, ShownBy, Shows,
    Stats, TlsContext, Waker, isolation_of_process,
};

const WAKER: Token = Token(usize::MAX);
/// A descriptor of the caller's.
const WATCHED: Token = Token(usize::MAX - 1);
const MULTICAST: Token = Token(usize::MAX - 2);
/// Tokens from here on are listeners, those below are connections.
const LISTENER: usize = usize::MAX / 2;
/// Ready sockets taken from the kernel at once.
const EVENTS: usize = 256;
/// Attempts to speak TLS to a node without it, from one host in a minute, that are not worth a warning.
const TLS_TRIES: u32 = 4;
/// Read in one poll from all connections together: what it is turned into waits in memory until the caller has dealt with it.
const POLL_BYTES: usize = 8 << 20;
/// A message counts as this much at least: the smallest take twenty times their length while they wait.
const EVENT_BYTES: usize = std::mem::size_of::<NetEvent>();
/// Connections accepted in one poll. The others wait in the kernel's backlog while what is linked gets its turn.
const ACCEPT_TURN: usize = 128;
/// Connections being opened from one address of members. A member needs two at a time, and several may share a host.
const KNOWN_SHARE: usize = 16;
/// So many questions to the allow list wait for the server; then strangers are turned away unasked.
const ASKED_MAX: usize = 256;
/// Longest time between two looks at what nobody reports: the isolation mode of the process, dead listeners.
const TICK: Duration = Duration::from_secs(1);

/// Links to all other members that can be found. See the crate's documentation for the loop that drives it.
///
/// One thread only. All calls but [`new`](Transport::new), [`poll`](Transport::poll) and [`close`](Transport::close) return at once.
pub struct Transport {
    pub(crate) cfg: NetConfig,
    pub(crate) me: Member,
    pub(crate) instance: u64,
    poll: Poll,
    ready: Events,
    waker: Waker,
    listeners: Vec<Listener>,
    pub(crate) conns: Vec<Option<Conn>>,
    free: Vec<usize>,
    /// Freed since the last wait; events that the kernel has already reported may still name them.
    freed: Vec<usize>,
    /// Connections that are up, by node. A few dozen at most.
    pub(crate) links: Vec<(NodeId, usize)>,
    /// Connections that were left with data in the socket, and whether the kernel has told that their stream ends.
    unread: Vec<(usize, bool)>,
    /// Bytes that may still be read in this poll.
    poll_bytes_left: usize,
    /// Listeners with connections that wait to be accepted.
    unaccepted: Vec<usize>,
    /// Connections with something to write.
    dirty: Vec<usize>,
    /// Connections whose turn to write was over before all was written.
    unsent: Vec<usize>,
    pub(crate) pending: Vec<NetEvent>,
    pub(crate) book: Book,
    pub(crate) resolver: Resolver,
    pub(crate) handshaker: Handshaker,
    pub(crate) multicast: Option<Multicast>,
    pub(crate) jitter: Jitter,
    pub(crate) limiter: Limiter,
    /// Last link id given and last number put into a `Ready` or `Ack`.
    pub(crate) last_link: u64,
    pub(crate) last_number: u64,
    last_admit: u64,
    /// Questions to the allow list that have no answer yet, also those about connections that are gone.
    open_admits: usize,
    pub(crate) forgotten: Vec<(NodeId, Incarnation, Instant)>,
    /// Nodes that get no link, whatever their incarnation.
    pub(crate) barred: BTreeSet<NodeId>,
    /// The newest incarnation of each node that is linked, or was until when it is forgotten: an older one that is alive beside it is a
    /// clone.
    pub(crate) newest: BTreeMap<NodeId, (Incarnation, Option<Instant>)>,
    /// Set by `isolate`; the process-wide mode counts as well.
    own_isolation: Isolation,
    isolated: bool,
    /// When `on_time` has something to do.
    timer: Instant,
    /// Of the newest view. Empty before the first one: then nobody can be told from a member.
    pub(crate) members: BTreeSet<NodeId>,
    /// Nodes that were in any view given to [`set_peers`](Transport::set_peers), with their newest incarnation there. They may vote, and
    /// come back.
    pub(crate) known: BTreeMap<NodeId, Incarnation>,
    /// Whose certificate each node showed last. Of members, and no more than there can be.
    pub(crate) shown: ShownBy,
    /// `members` is the newest view, as far as this node can know.
    pub(crate) settled: bool,
    pub(crate) stats: Stats,
    closed: bool,
}

struct Listener {
    _registration: Option<Registration>,
    /// `None` after it died, until it is bound again.
    socket: Option<TcpListener>,
    addr: SocketAddr,
}

impl Transport {
    /// Listens, and is ready to dial at the first `poll`.
    ///
    /// **Errors:** an address that cannot be listened on, an unusable seed. Host names to *listen* on are resolved here and may block.
    pub fn new(cfg: NetConfig) -> Result<Transport, TransportError> {
        let now = Instant::now();
        let poll = Poll::new().map_err(TransportError::Queue)?;
        let waker = Waker::new(poll.registry(), WAKER).map_err(TransportError::WakeUp)?;
        let mut jitter = Jitter::new();
        let instance = jitter.next();
        let mut transport = Transport {
            me: cfg.me.clone(),
            instance,
            poll,
            ready: Events::with_capacity(EVENTS),
            resolver: resolver(waker.clone()),
            handshaker: handshaker(waker.clone()),
            multicast: None,
            waker,
            listeners: Vec::new(),
            conns: Vec::new(),
            free: Vec::new(),
            freed: Vec::new(),
            links: Vec::new(),
            unread: Vec::new(),
            poll_bytes_left: POLL_BYTES,
            unaccepted: Vec::new(),
            dirty: Vec::new(),
            unsent: Vec::new(),
            pending: Vec::new(),
            book: Book::default(),
            // Drawn, so that ids of two incarnations of an arbiter differ.
            last_link: jitter.next() >> 1,
            jitter,
            limiter: Limiter::new(now),
            last_number: 0,
            last_admit: 0,
            open_admits: 0,
            forgotten: Vec::new(),
            barred: BTreeSet::new(),
            newest: BTreeMap::new(),
            own_isolation: Isolation::Off,
            isolated: false,
            timer: now,
            members: BTreeSet::new(),
            known: BTreeMap::new(),
            shown: cfg.shown.clone(),
            settled: false,
            stats: Stats::default(),
            closed: false,
            cfg,
        };
        for text in transport.cfg.listen.clone() {
            transport.listen(&text)?;
        }
        if let Some(cfg) = transport.cfg.multicast {
            transport.multicast = Some(transport.join(&cfg, now).map_err(|source| TransportError::Multicast {
                group: cfg.group,
                interface: cfg.interface,
                source,
            })?);
        }
        let me = transport.cfg.me.clone();
        transport.set_me(me);
        for text in transport.cfg.seeds.clone() {
            transport.add_peer(&text)?;
        }
        Ok(transport)
    }

    fn listen(&mut self, text: &str) -> Result<(), TransportError> {
        let address = Address::parse(text)?;
        let addr = match &address.host {
            Host::Ip(ip) => SocketAddr::new(*ip, address.port),
            Host::Name(name) => (name.as_str(), address.port)
                .to_socket_addrs()
                .map_err(|source| TransportError::NameUnknown { address: text.to_owned(), source })?
                .next()
                .ok_or_else(|| TransportError::NameWithoutAddress { address: text.to_owned() })?,
        };
        let listener = self
            .bind(addr, self.listeners.len())
            .map_err(|source| TransportError::Listen { place: format!("{}://{address}", self.scheme()), source })?;
        self.listeners.push(listener);
        Ok(())
    }

    fn bind(&self, addr: SocketAddr, at: usize) -> io::Result<Listener> {
        let mut socket = TcpListener::bind(addr)?;
        socket::deepen_backlog(socket.as_raw_fd());
        let registration = Registration::new(socket.as_raw_fd());
        self.poll.registry().register(&mut socket, Token(LISTENER + at), Interest::READABLE)?;
        let addr = socket.local_addr()?;
        Ok(Listener { _registration: registration, socket: Some(socket), addr })
    }

    fn join(&self, cfg: &MulticastConfig, now: Instant) -> io::Result<Multicast> {
        let mut multicast = Multicast::open(cfg, self.cfg.tls.is_some(), now)?;
        self.poll.registry().register(multicast.socket(), MULTICAST, Interest::READABLE)?;
        Ok(multicast)
    }

    /// Ends `poll` from other threads.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// `poll` also ends when this descriptor, of the caller's, has become readable; what that means is the caller's business. It stays so until the
    /// descriptor is closed.
    pub fn watch(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.poll.registry().register(&mut SourceFd(&descriptor.as_raw_fd()), WATCHED, Interest::READABLE)
    }

    /// The port of the first listening socket; 0 when there is none.
    pub fn listen_port(&self) -> u16 {
        self.listeners.first().map_or(0, |listener| listener.addr.port())
    }

    /// Where it listens, as addresses are written.
    pub fn listens(&self) -> String {
        let places: Vec<String> =
            self.listeners.iter().map(|listener| format!("{}://{}", self.scheme(), listener.addr)).collect();
        places.join(", ")
    }

    /// The proof that peers must show to be linked.
    pub fn protection(&self) -> Protection {
        let loopback = self.listeners.iter().all(|listener| listener.addr.ip().is_loopback());
        match self.cfg.tls.as_ref().map(TlsContext::shows) {
            Some(Shows::Secret) if !self.cfg.clear_too => Protection::Secret,
            Some(Shows::Certificates) if !self.cfg.clear_too => Protection::Certificates,
            Some(_) | None if loopback => Protection::Loopback,
            Some(_) => Protection::Optional,
            None => Protection::None,
        }
    }

    pub fn stats(&self) -> Stats {
        let half_open =
            self.conns.iter().flatten().filter(|conn| conn.dialled.is_none() && conn.up().is_none()).count();
        let strangers = self.links.iter().filter(|(node, _)| self.settled && !self.members.contains(node)).count();
        let multicast = self.multicast.as_ref().map(Multicast::stats).unwrap_or_default();
        Stats { half_open: half_open as u64, stranger_links: strangers as u64, multicast, ..self.stats }
    }

    /// The member as peers are told, its address completed.
    pub fn me(&self) -> &Member {
        &self.me
    }

    /// The facts that peers are told in handshakes from now on.
    pub fn set_me(&mut self, me: Member) {
        // A text longer than the decoder's limits would make every handshake fail.
        let cut = |text: &str, max| clip(text, max).to_owned();
        self.me = Member {
            name: cut(&me.name, 256),
            incoming: cut(&me.incoming, 1024),
            address: cut(&me.address, 1024),
            ..me
        };
        let port = self.listen_port();
        if self.me.address.is_empty() {
            self.me.address = format!("0.0.0.0:{port}");
        } else if let Ok(mut address) = Address::parse(&self.me.address) {
            if address.port == 0 {
                address.port = port;
            }
            self.me.address = address.to_string();
        }
    }

    // --- the loop -------------------------------------------------------------------------------------------------

    /// Waits until something happens, a [`Waker`] is used or `timeout` is over, does what is due, and appends what came of it
    /// to `events`. May return early with nothing.
    pub fn poll(&mut self, timeout: Option<Duration>, events: &mut Vec<NetEvent>) {
        self.free.append(&mut self.freed);
        let mut heard = self.multicast.as_ref().is_some_and(|multicast| multicast.unread);
        let idle = self.unread.is_empty() && self.unsent.is_empty() && self.unaccepted.is_empty() && !heard;
        let wait = if idle && self.pending.is_empty() {
            let due = self.timer.saturating_duration_since(Instant::now());
            timeout.map_or(due, |timeout| timeout.min(due))
        } else {
            Duration::ZERO
        };
        let mut ready = std::mem::replace(&mut self.ready, Events::with_capacity(0));
        if let Err(error) = self.poll.poll(&mut ready, Some(wait)) {
            if error.kind() != ErrorKind::Interrupted {
                let now = Instant::now();
                self.log_limited(now, "poll", true, format!("waiting for the network failed: {error}"));
            }
            ready.clear();
        }
        let now = Instant::now();
        self.check_isolation(now);
        self.poll_bytes_left = POLL_BYTES;
        for (unread, to_end) in std::mem::take(&mut self.unread) {
            self.read(unread, now, to_end);
        }
        for unsent in std::mem::take(&mut self.unsent) {
            self.mark_dirty(unsent);
        }
        for listener in std::mem::take(&mut self.unaccepted) {
            self.accept(listener, now);
        }
        for event in &ready {
            match event.token() {
                WAKER => self.waker.consume(),
                WATCHED => {}
                MULTICAST => heard = true,
                Token(at) if at >= LISTENER => self.accept(at - LISTENER, now),
                Token(slot) => {
                    let closed = event.is_read_closed() || event.is_write_closed() || event.is_error();
                    self.on_socket(slot, event.is_readable(), event.is_writable(), closed, now);
                }
            }
        }
        self.ready = ready;
        while let Some(answer) = self.resolver.poll() {
            self.on_resolved(answer, now);
        }
        while let Some(answer) = self.handshaker.poll() {
            self.on_stepped(answer, now);
        }
        for (thread, said) in [self.resolver.take_panic(), self.handshaker.take_panic()].into_iter().flatten() {
            self.pending.push(NetEvent::Broken { thread, said });
        }
        self.read_multicast(heard);
        if now >= self.timer {
            self.on_time(now);
        }
        self.flush_at(now);
        events.append(&mut self.pending);
    }

    /// Behind the links: what was announced there can be counted.
    fn read_multicast(&mut self, heard: bool) {
        let Transport { multicast: Some(multicast), pending, poll_bytes_left, .. } = self else { return };
        multicast.begin_turn();
        if heard {
            multicast.receive(|from, message| {
                *poll_bytes_left = poll_bytes_left.saturating_sub(EVENT_BYTES);
                pending.push(NetEvent::Message { from, message });
            });
        }
        for (node, answer) in multicast.answers() {
            self.gossip_to(node, &answer);
        }
    }

    fn tell_hearing(&mut self, slot: usize, turn: Turn, now: Instant) {
        let Some(up) = self.conns[slot].as_ref().and_then(Conn::up) else { return };
        let (node, name) = (up.hello.member.node, printable(&up.hello.member.name));
        let (key, text) = match turn {
            Turn::Hears => (
                format!("hears {node}"),
                format!("{node} ('{name}') hears the multicast group: bodies go to it that way"),
            ),
            Turn::Misses { missed, of } => {
                let text = format!(
                    "{node} ('{name}') misses {missed} of {of} datagrams of the multicast group: bodies go over its link for {} s or longer",
                    ON_LINK.as_secs()
                );
                (format!("misses {node}"), text)
            }
        };
        self.log_limited(now, &key, false, text);
    }

    fn gossip_to(&mut self, node: NodeId, gossip: &Gossip) {
        if let Some(slot) = self.link_slot(node) {
            self.push_raw(slot, gossip.encode());
        }
    }

    /// Tells those in the view what is sent by multicast: they alone are sent bodies.
    fn announce_multicast(&mut self, now: Instant) {
        let Some(multicast) = self.multicast.as_mut().filter(|multicast| multicast.due <= now) else { return };
        let error = multicast.take_error();
        let said = multicast.announce(now);
        let tell: Vec<(NodeId, usize)> =
            self.links.iter().copied().filter(|(node, _)| self.settled && self.members.contains(node)).collect();
        for (node, slot) in tell {
            let by_tls = matches!(self.conns[slot].as_ref().map(|conn| &conn.channel), Some(Channel::Tls(_)));
            if let (Some(multicast), Some(said)) = (&mut self.multicast, &said)
                && multicast.tells(node, by_tls, now)
            {
                self.push_raw(slot, said.encode());
            }
        }
        if let Some(error) = error {
            let text = format!("cannot send to the multicast group: {error}; bodies go over the links meanwhile");
            self.log_limited(now, "multicast", false, text);
        }
    }

    fn on_socket(&mut self, slot: usize, readable: bool, writable: bool, closed: bool, now: Instant) {
        let Some(conn) = self.conn(slot) else { return };
        match conn.phase {
            Phase::Connecting => {
                if writable || closed {
                    self.on_connected(slot, now);
                }
                // A stranger may speak first, and a peer may close at once.
                let connected = self.conn(slot).is_some_and(|conn| matches!(conn.phase, Phase::Hello));
                if connected && (readable || closed) {
                    self.read(slot, now, closed);
                }
            }
            // Read when it is admitted.
            Phase::Admission(_) => {}
            Phase::Hello | Phase::Ready(_) | Phase::Ack(..) | Phase::Confirm(_) | Phase::Contest(_) | Phase::Up(_) => {
                if writable && conn.blocked {
                    self.write(slot, now);
                }
                if !(readable || closed) {
                    return;
                }
                if self.unread.iter().any(|(unread, _)| *unread == slot) {
                    // It has had its turn in this poll.
                    self.read_later(slot, closed);
                } else {
                    self.read(slot, now, closed);
                }
            }
        }
    }

    /// Reads what has arrived, as far as the connection's turn goes; the next poll reads on. `to_end`: the kernel has told that the
    /// stream ends, or that there is something to read, and tells so only once.
    pub(crate) fn read(&mut self, slot: usize, now: Instant, to_end: bool) {
        let mut total = 0;
        loop {
            let Some(conn) = self.conn(slot) else { return };
            let turn = match conn.up().map(|up| up.hello.member.node) {
                Some(node) if self.is_member(node) => READ_TURN,
                Some(_) | None => READ_TURN_STRANGER,
            };
            if total >= turn || self.poll_bytes_left == 0 {
                return self.read_later(slot, to_end);
            }
            let Some(conn) = self.conn(slot) else { return };
            let result = conn.read(turn);
            self.stats.reads += 1;
            match result {
                Ok(ReadResult::End) => {
                    let bye = self.conn(slot).and_then(|conn| conn.up()).is_some_and(|up| up.bye);
                    let cause = if bye { DownCause::Bye } else { DownCause::Reset };
                    let unheard = self.conn(slot).is_some_and(|conn| conn.ended_tls_unheard());
                    let why = match unheard {
                        true => {
                            "the peer closed the connection without an answer to TLS (is socket.ssl on at one end only?)"
                        }
                        false => "the peer closed the connection",
                    };
                    return self.lose(slot, cause, why, now);
                }
                // The bytes cannot be decrypted: before the link is up, this is the peer's refusal of the own certificate
                // (TLS 1.3 tells late).
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    let why = error.to_string();
                    return match self.conn(slot).is_some_and(|conn| conn.up().is_some()) {
                        true => self.lose(slot, DownCause::Garbage, &why, now),
                        false => self.tls_failed(slot, &why, now),
                    };
                }
                Err(error) => return self.lose(slot, cause_of(&error), &error.to_string(), now),
                Ok(ReadResult::Drained(n)) => {
                    self.received(slot, n, now);
                    if n == 0 || !to_end {
                        return;
                    }
                    total += n;
                }
                Ok(ReadResult::More(n)) => {
                    self.received(slot, n, now);
                    total += n;
                }
            }
        }
    }

    fn read_later(&mut self, slot: usize, to_end: bool) {
        match self.unread.iter_mut().find(|(unread, _)| *unread == slot) {
            Some((_, ends)) => *ends |= to_end,
            None => self.unread.push((slot, to_end)),
        }
    }

    /// Is this peer in the newest view, or was it in an earlier one? One that a cut has thrown out sends what is pending as soon as it is
    /// back. As long as this node does not know the newest view, everybody counts as a member.
    pub(crate) fn is_member(&self, node: NodeId) -> bool {
        !self.settled || self.known.contains_key(&node)
    }

    /// The sequencer, if this node is in the primary component, else `None`. While that is a member of the view given to
    /// [`set_peers`](Transport::set_peers), that view is taken for the newest one, and peers outside of it get less.
    pub fn set_sequencer(&mut self, sequencer: Option<NodeId>) {
        self.settled = sequencer.is_some_and(|node| node == self.me.node || self.members.contains(&node));
        if let Some(multicast) = &mut self.multicast {
            multicast.orders = sequencer == Some(self.me.node);
        }
    }

    fn received(&mut self, slot: usize, n: usize, now: Instant) {
        self.stats.bytes_received += n as u64;
        self.poll_bytes_left = self.poll_bytes_left.saturating_sub(n);
        if n == 0 {
            return;
        }
        // Asked for only while it matters.
        let shaking = self.conn(slot).is_some_and(|conn| !matches!(conn.channel, Channel::Clear | Channel::Tls(_)));
        let known = shaking && {
            let known = self.known_ips();
            self.conn(slot).is_some_and(|conn| conn.dialled.is_some() || known.contains(&conn.remote.ip()))
        };
        let Transport { conns, handshaker, .. } = self;
        let Some(conn) = conns.get_mut(slot).and_then(Option::as_mut) else { return };
        match conn.go_on(handshaker, known) {
            Ok(()) => {
                // Reading can make TLS answer.
                let answers = !conn.blocked && conn.has_unsent();
                self.process(slot, now);
                if answers {
                    self.mark_dirty(slot);
                }
            }
            Err(why) => self.tls_failed(slot, &why.to_string(), now),
        }
    }

    /// The handshaker is done with a step.
    fn on_stepped(&mut self, answer: Stepped, now: Instant) {
        let waits = |conn: &Conn| matches!(&conn.channel, Channel::Away(ticket) if answer.answers(ticket));
        let Some(slot) = self.conns.iter().position(|conn| conn.as_ref().is_some_and(waits)) else { return };
        let Some(conn) = self.conn(slot) else { return };
        let stepped = conn.stepped(answer).map_err(|why| why.to_string());
        if let Err(why) = stepped.and_then(|_| conn.decrypt().map_err(|error| error.to_string())) {
            return self.tls_failed(slot, &why, now);
        }
        self.mark_dirty(slot);
        self.process(slot, now);
        // Messages that came while nobody read are not reported again, nor is the end.
        self.read(slot, now, true);
    }

    /// Takes whole messages out of what was read.
    fn process(&mut self, slot: usize, now: Instant) {
        loop {
            let peer = self.conns[slot].as_ref().and_then(Conn::up).map(|up| up.hello.member.node);
            let member = peer.is_none_or(|node| self.is_member(node));
            let Transport { conns, cfg, .. } = self;
            let Some(conn) = conns[slot].as_mut() else { return };
            let Phase::Up(up) = &mut conn.phase else {
                match Handshake::take(&mut conn.buf) {
                    Ok(None) => return,
                    Ok(Some(message)) => self.on_handshake(slot, message, now),
                    Err(what) => {
                        let tls_from = (conn.buf.first() == Some(&HANDSHAKE_RECORD)).then(|| conn.remote.ip());
                        // A peer with socket.dynamic tries TLS once and goes on in clear text. A peer that comes with TLS
                        // again and again has a mistake in its configuration.
                        let tried = |ip| {
                            (0..TLS_TRIES).any(|n| self.limiter.allow_stranger(now, &format!("TLS {n} from {ip}")))
                        };
                        match tls_from.is_some_and(tried) {
                            true => self.lose(slot, DownCause::Local, &what.to_string(), now),
                            false => self.reject(slot, &format!("it sent {what}"), now),
                        }
                    }
                }
                continue;
            };
            let from = up.hello.member.node;
            conn.frames.message_max = if member { cfg.limits.message_bytes } else { cfg.limits.stranger_message_bytes };
            let problem = match conn.frames.next(&mut conn.buf) {
                Ok(None) if member => return,
                Ok(None) => return self.bound_stranger(slot, from, now),
                Ok(Some((Lane::Own, body))) => {
                    let remote = conn.remote;
                    match Gossip::decode(&body) {
                        Ok(Some(Gossip::Bye)) => up.bye = true,
                        Ok(Some(Gossip::Ping(number))) => self.push_raw(slot, Gossip::Pong(number).encode()),
                        Ok(Some(Gossip::Pong(number))) => {
                            if !self.on_probed(slot, from, number) {
                                self.on_pong(from, number, now);
                            }
                        }
                        Ok(Some(Gossip::Addresses(addresses))) if member => self.learn(addresses, remote, now),
                        // A stranger could make this node dial, and look up, anything.
                        Ok(Some(Gossip::Addresses(_))) => {}
                        Ok(Some(Gossip::Stream { stream, key, sent })) => {
                            let by_tls = matches!(conn.channel, Channel::Tls(_));
                            if let Some(multicast) = self.multicast.as_mut().filter(|_| member) {
                                multicast.on_stream(from, stream, key, sent, by_tls);
                            }
                        }
                        Ok(Some(Gossip::Heard { stream, sent, heard })) => {
                            let multicast = self.multicast.as_mut();
                            if let Some(turn) = multicast.and_then(|m| m.on_heard(from, stream, sent, heard, now)) {
                                self.tell_hearing(slot, turn, now);
                            }
                        }
                        Ok(None) => {}
                        Err(error) => {
                            let why = format!("received addresses that cannot be decoded: {error}");
                            return self.lose(slot, DownCause::Garbage, &why, now);
                        }
                    }
                    continue;
                }
                Ok(Some((Lane::Class(_), body))) => match Message::decode(&body) {
                    Ok(message) => {
                        self.stats.messages_received += 1;
                        self.poll_bytes_left = self.poll_bytes_left.saturating_sub(EVENT_BYTES);
                        self.pending.push(NetEvent::Message { from, message });
                        continue;
                    }
                    Err(error) => format!("a message that cannot be decoded: {error}"),
                },
                Err(error) => error.to_string(),
            };
            return self.lose(slot, DownCause::Garbage, &format!("received {problem}"), now);
        }
    }

    // --- sending --------------------------------------------------------------------------------------------------

    /// Queues a message. Nothing is written before `flush`.
    pub fn send(&mut self, to: NodeId, class: Class, message: &Message) -> Sent {
        if self.multicast.as_mut().is_some_and(|multicast| multicast.takes(to, class, message)) {
            return Sent::Queued;
        }
        match self.link_slot(to) {
            Some(_) => self.send_encoded(to, Encoded::new(class, message, self.cfg.checksum)),
            None => Sent::NotLinked,
        }
    }

    /// The same with a message that was encoded before.
    pub fn send_encoded(&mut self, to: NodeId, message: Encoded) -> Sent {
        let Some(slot) = self.link_slot(to) else { return Sent::NotLinked };
        let limits = &self.cfg.limits;
        let (droppable_max, queue_max) = (limits.droppable_bytes, limits.queue_bytes);
        let Some(conn) = self.conn(slot) else { return Sent::NotLinked };
        let after = conn.queued_bytes() + message.wire_bytes();
        if message.class() == Class::Droppable && after > droppable_max {
            self.stats.dropped += 1;
            return Sent::Dropped;
        }
        if after > queue_max {
            let why = format!("{} bytes wait to be sent, more than the limit of {queue_max}", conn.queued_bytes());
            self.lose(slot, DownCause::Local, &why, Instant::now());
            return Sent::NotLinked;
        }
        let bytes = message.wire_bytes() as u64;
        conn.queue.push(message);
        let cost = conn.queue.control_cost();
        self.stats.messages_sent += 1;
        self.stats.bytes_sent += bytes;
        self.mark_dirty(slot);
        if cost > self.cfg.limits.stranger_queue_bytes && !self.is_member(to) {
            let why = "it is no member and does not read the answers to what it sends";
            self.lose(slot, DownCause::Local, why, Instant::now());
            return Sent::NotLinked;
        }
        Sent::Queued
    }

    /// Writes what was queued, as far as the sockets take it; `poll` writes the rest.
    pub fn flush(&mut self) {
        if let Some(multicast) = &mut self.multicast {
            // Before the place of a body in the order.
            multicast.flush();
        }
        if !self.dirty.is_empty() {
            self.flush_at(Instant::now());
        }
    }

    fn flush_at(&mut self, now: Instant) {
        // Writing can end a connection, which can make another one write.
        while !self.dirty.is_empty() {
            let mut dirty = std::mem::take(&mut self.dirty);
            for slot in dirty.drain(..) {
                if let Some(conn) = self.conn(slot) {
                    conn.dirty = false;
                    if !conn.blocked {
                        self.write(slot, now);
                    }
                }
            }
            if self.dirty.is_empty() {
                // Keeps its memory.
                self.dirty = dirty;
                return;
            }
        }
    }

    fn write(&mut self, slot: usize, now: Instant) {
        self.stats.flushes += 1;
        let Some(conn) = self.conn(slot) else { return };
        let error = match conn.flush() {
            Ok(Flushed::Empty | Flushed::Blocked) => return,
            Ok(Flushed::TurnOver) => return self.unsent.push(slot),
            Err(error) => error,
        };
        // The bytes that the peer wrote before it went are still there to be read.
        self.read(slot, now, true);
        self.lose(slot, cause_of(&error), &error.to_string(), now);
    }

    pub(crate) fn mark_dirty(&mut self, slot: usize) {
        let Some(conn) = self.conn(slot) else { return };
        if !conn.dirty {
            conn.dirty = true;
            self.dirty.push(slot);
        }
    }

    /// Bytes queued for a node and not yet taken by the kernel; 0 without a link.
    pub fn queue_bytes(&self, node: NodeId) -> usize {
        self.link_slot(node).and_then(|slot| self.conns[slot].as_ref()).map_or(0, Conn::queued_bytes)
    }

    // --- incoming connections -------------------------------------------------------------------------------------

    fn accept(&mut self, at: usize, now: Instant) {
        for _ in 0..ACCEPT_TURN {
            let Some(listener) = self.listeners.get_mut(at) else { return };
            let Some(socket) = &listener.socket else { return };
            let (stream, remote) = match socket.accept() {
                Ok(accepted) => accepted,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => continue,
                    // Shut down by the isolation of the process: bound anew later.
                    ErrorKind::InvalidInput => {
                        *listener = Listener { _registration: None, socket: None, addr: listener.addr };
                        return;
                    }
                    _ => {
                        // Out of descriptors, mostly. The kernel does not report what it has reported, so ask again later.
                        let text = format!("cannot accept a connection: {error}; trying again");
                        return self.log_limited(now, "accept", true, text);
                    }
                },
            };
            if self.isolated || self.closed {
                continue;
            }
            self.on_accepted(stream, plain(remote), now);
        }
        if !self.unaccepted.contains(&at) {
            self.unaccepted.push(at);
        }
    }

    fn on_accepted(&mut self, stream: mio::net::TcpStream, remote: SocketAddr, now: Instant) {
        if self.cfg.ask_admission && self.open_admits >= ASKED_MAX && !self.known_ips().contains(&remote.ip()) {
            // The server does not keep up with its answers. Members come through; others come again.
            self.stats.refused += 1;
            return;
        }
        self.limit_half_open(remote.ip(), now);
        socket::tune(stream.as_raw_fd(), &self.socket_options());
        let token = self.cfg.ask_admission.then(|| self.next_admit());
        let phase = token.map_or(Phase::Hello, Phase::Admission);
        let deadline = now + self.cfg.peer_timeout;
        let channel = match &self.cfg.tls {
            Some(context) => Channel::Accepted { context: context.clone(), clear_too: self.cfg.clear_too },
            None => Channel::Clear,
        };
        let narrowed = socket::narrow(stream.as_raw_fd());
        let conn = Conn::new(stream, remote, phase, channel, deadline, self.cfg.limits.message_bytes);
        let conn = conn.and_then(|mut conn| {
            conn.narrowed = narrowed;
            self.insert(conn)
        });
        match conn {
            Ok(_) => {
                if let Some(token) = token {
                    self.pending.push(NetEvent::Admission { token, address: remote.ip().to_string() });
                }
            }
            Err(error) => {
                self.log_limited(now, "accept", true, format!("cannot use a connection from {remote}: {error}"))
            }
        }
    }

    /// Makes room for one more connection from `ip` that has not shown whose it is.
    ///
    /// An address where members are has a share of its own, which only that address can use up. All others share `half_open` places; when
    /// these are taken, the source that has most of them loses the connection that has shown least, the oldest of those.
    fn limit_half_open(&mut self, ip: IpAddr, now: Instant) {
        let half_open = |conn: &Conn| conn.dialled.is_none() && conn.up().is_none();
        let mut waiting: Vec<(IpAddr, Shown, Option<Instant>, usize)> = Vec::new();
        for (slot, conn) in self.conns.iter().enumerate() {
            if let Some(conn) = conn.as_ref().filter(|conn| half_open(conn)) {
                waiting.push((conn.remote.ip(), conn.shown(), conn.deadline, slot));
            }
        }
        if waiting.len() < KNOWN_SHARE.min(self.cfg.limits.half_open) {
            return;
        }
        let known = self.known_ips();
        if known.contains(&ip) {
            waiting.retain(|(from, ..)| *from == ip);
            if waiting.len() < KNOWN_SHARE.min(self.cfg.limits.half_open) {
                return;
            }
        } else {
            waiting.retain(|(from, ..)| !known.contains(from));
            if waiting.len() < self.cfg.limits.half_open {
                return;
            }
            let mut per_source: BTreeMap<IpAddr, usize> = BTreeMap::new();
            waiting.iter().for_each(|(from, ..)| *per_source.entry(*from).or_default() += 1);
            let most = per_source.values().copied().max().unwrap_or(0);
            waiting.retain(|(from, ..)| per_source[from] == most);
        }
        if let Some((.., slot)) = waiting.into_iter().min_by_key(|(_, shown, deadline, _)| (*shown, *deadline)) {
            self.reject(slot, "too many connections are being opened", now);
        }
    }

    /// Where members are or should be: the hosts of configured addresses and of the newest view, and what members are linked from.
    pub(crate) fn known_ips(&self) -> BTreeSet<IpAddr> {
        let book = self.book.iter().filter(|(_, entry)| entry.seed || entry.current).flat_map(|(_, entry)| entry.ips());
        let linked = self.links.iter().filter(|(node, _)| self.members.contains(node));
        let linked = linked.filter_map(|(_, slot)| Some(self.conns[*slot].as_ref()?.remote.ip()));
        book.chain(linked).collect()
    }

    /// Names what waits for `admit` next.
    pub(crate) fn next_admit(&mut self) -> AdmitToken {
        self.last_admit += 1;
        self.open_admits += 1;
        AdmitToken(self.last_admit)
    }

    /// The allow list's answer to [`NetEvent::Admission`]. Ignored when what was asked about is gone.
    pub fn admit(&mut self, token: AdmitToken, allowed: bool) {
        let now = Instant::now();
        self.open_admits = self.open_admits.saturating_sub(1);
        let waits = |conn: &Conn| matches!(conn.phase, Phase::Admission(waiting) if waiting == token);
        let Some(slot) = self.conns.iter().position(|conn| conn.as_ref().is_some_and(waits)) else {
            return self.admit_dial(token, allowed, now);
        };
        if !allowed {
            return self.not_allowed(slot, now);
        }
        if let Some(conn) = self.conn(slot) {
            conn.phase = Phase::Hello;
            // Messages that came while nobody read are not reported again, nor is the end.
            self.read(slot, now, true);
        }
    }

    /// Certificates for connections made from now on (`socket.ssl_reload`). Without TLS from the start nothing changes: it is
    /// not switched on while peers are linked in clear text. Links stay, except those whose certificate has been revoked or is no longer
    /// among those that are taken.
    pub fn set_tls(&mut self, context: TlsContext) {
        let Some(current) = &mut self.cfg.tls else { return };
        *current = context.clone();
        for (_, slot) in self.links.clone() {
            let Some(Channel::Tls(session)) = self.conn(slot).map(|conn| &conn.channel) else { continue };
            if let Err(why) = session.still_taken(&context) {
                self.lose(slot, DownCause::Garbage, &why.to_string(), Instant::now());
            }
        }
    }

    // --- connections ----------------------------------------------------------------------------------------------

    pub(crate) fn conn(&mut self, slot: usize) -> Option<&mut Conn> {
        self.conns.get_mut(slot)?.as_mut()
    }

    pub(crate) fn link_slot(&self, node: NodeId) -> Option<usize> {
        self.links.iter().find(|(linked, _)| *linked == node).map(|(_, slot)| *slot)
    }

    pub(crate) fn insert(&mut self, mut conn: Conn) -> io::Result<usize> {
        let slot = self.free.pop().unwrap_or(self.conns.len());
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(&mut conn.stream, Token(slot), interest) {
            if slot < self.conns.len() {
                self.free.push(slot);
            }
            return Err(error);
        }
        if let Some(deadline) = conn.deadline {
            self.wake_at(deadline);
        }
        if slot == self.conns.len() {
            self.conns.push(None);
        }
        self.conns[slot] = Some(conn);
        Ok(slot)
    }

    /// Takes a connection out of all tables. It closes when the caller drops it.
    pub(crate) fn take(&mut self, slot: usize) -> Option<Conn> {
        let mut conn = self.conns.get_mut(slot)?.take()?;
        let _ = self.poll.registry().deregister(&mut conn.stream);
        self.links.retain(|(_, linked)| *linked != slot);
        self.unread.retain(|(unread, _)| *unread != slot);
        self.dirty.retain(|dirty| *dirty != slot);
        self.freed.push(slot);
        Some(conn)
    }

    pub(crate) fn socket_options(&self) -> SocketOptions {
        SocketOptions {
            dead_after: self.cfg.dead_after,
            send_buffer: self.cfg.send_buffer,
            recv_buffer: self.cfg.recv_buffer,
        }
    }

    pub(crate) fn log(&mut self, warn: bool, text: String) {
        self.pending.push(NetEvent::Log { warn, text });
    }

    /// Of addresses, as Galera writes them.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.cfg.tls.is_some() { "ssl" } else { "tcp" }
    }

    /// A line about something that may happen again and again.
    pub(crate) fn log_limited(&mut self, now: Instant, key: &str, warn: bool, text: String) {
        if self.limiter.allow(now, key) {
            self.log(warn, text);
        }
    }

    // --- time and isolation ---------------------------------------------------------------------------------------

    pub(crate) fn wake_at(&mut self, at: Instant) {
        self.timer = self.timer.min(at);
    }

    pub(crate) fn on_time(&mut self, now: Instant) {
        self.timer = now + TICK;
        for slot in 0..self.conns.len() {
            match self.conns[slot].as_ref().and_then(|conn| conn.deadline) {
                Some(deadline) if deadline <= now => self.on_deadline(slot, now),
                Some(deadline) => self.wake_at(deadline),
                None => {}
            }
        }
        self.forgotten.retain(|(_, _, until)| *until > now);
        let (known, authentic) = (&self.known, self.cfg.tls.is_some() && !self.cfg.clear_too);
        self.newest.retain(|node, (_, kept_until)| {
            (authentic && known.contains_key(node)) || kept_until.is_none_or(|until| until > now)
        });
        self.bound_memory(now);
        if let Some(left_out) = self.limiter.left_out(now) {
            self.log(false, format!("{left_out} more lines about connections of strangers were left out"));
        }
        if !self.isolated && !self.closed {
            self.probe(now);
            self.announce_multicast(now);
            if let Some(due) = self.multicast.as_ref().map(|multicast| multicast.due) {
                self.wake_at(due);
            }
            self.dial_due(now);
            self.revive_listeners(now);
        }
    }

    /// Binds listeners that died, and asks those that had errors again.
    fn revive_listeners(&mut self, now: Instant) {
        for at in 0..self.listeners.len() {
            if self.listeners[at].socket.is_none() {
                match self.bind(self.listeners[at].addr, at) {
                    Ok(listener) => self.listeners[at] = listener,
                    Err(error) => {
                        let addr = self.listeners[at].addr;
                        let text = format!("cannot listen on {}://{addr} again: {error}; trying again", self.scheme());
                        self.log_limited(now, "listen", true, text);
                    }
                }
            }
            self.accept(at, now);
        }
    }

    /// Closes and refuses all connections, or allows them again (`gmcast.isolate`).
    pub fn isolate(&mut self, isolation: Isolation) {
        self.own_isolation = isolation;
        self.check_isolation(Instant::now());
    }

    /// Own or process-wide, whichever is on.
    pub fn isolation(&self) -> Isolation {
        if self.own_isolation.is_on() { self.own_isolation } else { isolation_of_process() }
    }

    fn check_isolation(&mut self, now: Instant) {
        let isolated = self.isolation().is_on();
        if isolated == self.isolated || self.closed {
            return;
        }
        self.isolated = isolated;
        if isolated {
            for slot in 0..self.conns.len() {
                self.lose(slot, DownCause::Local, "isolated", now);
            }
        } else {
            let Transport { book, jitter, .. } = self;
            book.restart(now, jitter);
            self.timer = now;
        }
    }

    // --- peers ----------------------------------------------------------------------------------------------------

    /// The group is at this level. Links with peers that do not support it end, and when they call again they are refused by name.
    pub fn set_level(&mut self, level: Level) {
        if self.cfg.level == level {
            return;
        }
        self.cfg.level = level;
        let fits = |slot: &usize| {
            let hello = self.conns[*slot].as_ref().and_then(|conn| conn.up()).map(|up| &up.hello);
            hello.is_none_or(|hello| hello.levels.contains(level))
        };
        let below: Vec<usize> = self.links.iter().map(|(_, slot)| *slot).filter(|slot| !fits(slot)).collect();
        for slot in below {
            self.lose(slot, DownCause::Local, "it does not support the group level", Instant::now());
        }
    }

    /// Closes the link to a node, if there is one; it may come up again.
    pub fn kill_link(&mut self, node: NodeId) {
        if let Some(slot) = self.link_slot(node) {
            self.lose(slot, DownCause::Local, "closed by request", Instant::now());
        }
    }

    /// Closes the link to a node, and makes and takes none until this is called with `false`. The number of those is the caller's to bound.
    pub fn bar(&mut self, node: NodeId, barred: bool) {
        if !barred {
            self.barred.remove(&node);
            return;
        }
        self.barred.insert(node);
        if let Some(slot) = self.link_slot(node) {
            self.lose(slot, DownCause::Local, "it is refused for now", Instant::now());
        }
    }

    /// All addresses that are dialled, or would be if their node were not linked.
    pub fn known_peers(&self) -> Vec<PeerInfo> {
        let info = self.book.iter().map(|(_, entry)| PeerInfo {
            address: entry.address.to_string(),
            node: entry.node,
            linked: entry.node.is_some_and(|node| self.link_slot(node).is_some()),
            seed: entry.seed,
            problem: entry.problem.clone(),
        });
        info.collect()
    }

    /// Linked peers that get bodies by multicast.
    pub fn hear_multicast(&self) -> BTreeSet<NodeId> {
        let Some(multicast) = &self.multicast else { return BTreeSet::new() };
        self.links.iter().map(|(node, _)| *node).filter(|node| multicast.hears(*node)).collect()
    }

    pub fn links(&self) -> Vec<LinkInfo> {
        let now = Instant::now();
        let links = self.links.iter().filter_map(|(node, slot)| {
            let conn = self.conns[*slot].as_ref()?;
            let dialled = conn.dialled.is_some();
            let (queued_bytes, tls) = (conn.queued_bytes(), conn.tls());
            let round_trip = conn.up().and_then(|up| up.probe.round_trip(now));
            Some(LinkInfo { node: *node, remote: conn.remote, dialled, queued_bytes, tls, round_trip })
        });
        links.collect()
    }

    /// Says goodbye, closes everything and waits for the resolver thread, which may be in the middle of a lookup. The
    /// transport does nothing afterwards. `LinkDown`s are not reported.
    pub fn close(&mut self) {
        if self.closed {
            return;
        }
        self.flush();
        self.closed = true;
        let bye = Gossip::Bye.encode();
        for slot in 0..self.conns.len() {
            let Some(mut conn) = self.take(slot) else { continue };
            if conn.up().is_some() {
                conn.queue.push_raw(bye.clone());
                // Best effort: without it the peer sees a reset.
                let _ = conn.flush();
                let _ = conn.stream.shutdown(std::net::Shutdown::Write);
            }
        }
        self.listeners.clear();
        self.multicast = None;
        self.resolver.stop();
        self.handshaker.stop();
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        self.close();
    }
}

/// Did the peer go, or is nothing heard of it?
pub(crate) fn cause_of(error: &io::Error) -> DownCause {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => DownCause::Silent,
        _ => DownCause::Reset,
    }
}
