//! One connection, from its socket to the link it may become.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Instant;

use bytes::BytesMut;
use mio::net::TcpStream;

use crate::book::EntryId;
use crate::frame::FrameReader;
use crate::handshake::{Hello, LinkId, WHOLE_MAX};
use crate::handshaker::{Handshaker, Stepped, Ticket};
use crate::helper::{HelperError, Turn};
use crate::identity::Identity;
use crate::isolation::Registration;
use crate::probe::Probe;
use crate::queue::{Flushed, SendQueue};
use crate::socket::Room;
use crate::tls::{ALERT_VERSION, HANDSHAKE_RECORD, Session, SessionError, Side};
use crate::{AdmitToken, TlsContext, socket};

/// Room offered to one read while reads fill it, at most: four chunks of a large message. A stranger gets no more than its turn.
const READ_ROOM: usize = 256 << 10;
/// Below this much room a new buffer is taken. A buffer lives as long as a body that was received into it.
const READ_ROOM_MIN: usize = 16 << 10;
/// Room while reads do not fill it.
const READ_ROOM_FIRST: usize = 64 << 10;
/// Room for a stranger who speaks TLS: its largest record, so that certificates come in one or two reads.
const READ_ROOM_TLS: usize = 17 << 10;
/// Read from one link before the others get their turn.
pub(crate) const READ_TURN: usize = 512 << 10;
/// The same where nobody of the view is known to be: small messages are cheap to send and cost most to deal with.
pub(crate) const READ_TURN_STRANGER: usize = 64 << 10;
/// Written to one link before the others, and everything else, get their turn: a peer that reads as fast as this end writes would
/// keep it at a large message for as long as that lasts.
const WRITE_TURN: usize = 512 << 10;

/// Legal ways: Connecting or Admission -> Hello -> (Ready -> [Contest] -> Ack | Confirm -> [Contest]) -> Up.
pub(crate) enum Phase {
    /// Dialled; waits for the kernel.
    Connecting,
    /// Accepted; waits for the allow list. Nothing is read.
    Admission(AdmitToken),
    /// Waits for the peer's hello.
    Hello,
    /// Arbiter; waits to be told what link the peer has.
    Ready(Hello),
    /// Arbiter; has confirmed.
    Ack(Hello, LinkId),
    /// Not the arbiter; waits for its decision.
    Confirm(Hello),
    /// Says that the link which the same node has here is gone; waits for that link's answer.
    Contest(Contest),
    Up(Up),
}

/// How bytes go over the socket.
///
/// Legal ways: Clear for ever; Accepted -> Clear or Shaking; Shaking -> Away -> Shaking or Tls. A dialler begins as Clear or Shaking.
pub(crate) enum Channel {
    Clear,
    /// The first byte will tell whether the peer speaks TLS. `clear_too`: and it need not.
    Accepted {
        context: TlsContext,
        clear_too: bool,
    },
    /// In the TLS handshake; waits for the peer.
    Shaking(Session),
    /// In the TLS handshake, with the [`Handshaker`]. Nothing is read.
    Away(Ticket),
    Tls(Session),
}

/// The progress of the peer of a connection that is not up, least first. A peer that has done more can be kept out less
/// easily.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Shown {
    Nothing,
    /// Some bytes.
    Something,
    /// A TLS handshake, to its end.
    Tls,
    /// The identity that it claims.
    Hello,
}

/// Why a connection has no TLS, or has it no more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsFailed {
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Nobody computes handshakes here.
    #[error(transparent)]
    Helper(#[from] HelperError),
}

/// A connection that takes the place of the link in its way, if that does not answer.
pub(crate) struct Contest {
    pub hello: Hello,
    pub claim: Claim,
    /// In the ping that the link was sent.
    pub number: u64,
}

/// Which step of the handshake is due then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// The arbiter confirms.
    Ready,
    /// The other end acknowledges this link.
    Confirm(LinkId),
}

/// A link.
pub(crate) struct Up {
    pub hello: Hello,
    pub link: LinkId,
    /// Number of the `Ack`; only used by the arbiter.
    pub ack: u64,
    pub since: Instant,
    /// The peer said goodbye.
    pub bye: bool,
    pub probe: Probe,
}

pub(crate) struct Conn {
    // Before the socket: it must leave the table before it is closed.
    _registration: Registration,
    pub stream: TcpStream,
    pub remote: SocketAddr,
    /// For which entry of the address book, when dialled.
    pub dialled: Option<EntryId>,
    pub phase: Phase,
    pub channel: Channel,
    /// When the phase has to be over; `None` once up.
    pub deadline: Option<Instant>,
    pub buf: BytesMut,
    pub frames: FrameReader,
    pub queue: SendQueue,
    /// The socket took less than it was given; wait for it.
    pub blocked: bool,
    /// In the list of connections to flush.
    pub dirty: bool,
    read_room: usize,
    /// Accepted, and its peer has not said who it is: what the kernel keeps for it is little, and was this.
    pub narrowed: Option<Room>,
}

/// The result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadResult {
    /// So many bytes came and there may be more.
    More(usize),
    /// All that had arrived, possibly nothing.
    Drained(usize),
    End,
}

impl Conn {
    pub fn new(
        stream: TcpStream,
        remote: SocketAddr,
        phase: Phase,
        channel: Channel,
        deadline: Instant,
        message_max: u64,
    ) -> io::Result<Conn> {
        let registration = Registration::new(stream.as_raw_fd())
            .ok_or_else(|| io::Error::other("too many sockets are open in this process"))?;
        Ok(Conn {
            _registration: registration,
            stream,
            remote,
            dialled: None,
            phase,
            channel,
            deadline: Some(deadline),
            buf: BytesMut::new(),
            frames: FrameReader::new(message_max),
            queue: SendQueue::default(),
            blocked: false,
            dirty: false,
            read_room: READ_ROOM_FIRST,
            narrowed: None,
        })
    }

    /// The peer, once it has said who it is.
    pub fn hello(&self) -> Option<&Hello> {
        match &self.phase {
            Phase::Connecting | Phase::Admission(_) | Phase::Hello => None,
            Phase::Ready(hello) | Phase::Ack(hello, _) | Phase::Confirm(hello) => Some(hello),
            Phase::Contest(contest) => Some(&contest.hello),
            Phase::Up(up) => Some(&up.hello),
        }
    }

    pub fn up(&self) -> Option<&Up> {
        if let Phase::Up(up) = &self.phase { Some(up) } else { None }
    }

    pub fn up_mut(&mut self) -> Option<&mut Up> {
        if let Phase::Up(up) = &mut self.phase { Some(up) } else { None }
    }

    /// One system call, and the decryption of what it brought. `turn`: what this peer is read at a time.
    pub fn read(&mut self, turn: usize) -> io::Result<ReadResult> {
        let up = matches!(self.phase, Phase::Up(_));
        let (into, room_first) = match &mut self.channel {
            Channel::Away(_) => return Ok(ReadResult::Drained(0)),
            Channel::Clear | Channel::Accepted { .. } => (&mut self.buf, WHOLE_MAX),
            Channel::Shaking(session) | Channel::Tls(session) => (session.incoming(), READ_ROOM_TLS),
        };
        if !up {
            // A stranger gets the room of one handshake and no more.
            into.reserve(room_first - into.len().min(room_first - 1));
        } else if into.capacity() - into.len() < READ_ROOM_MIN {
            into.reserve(self.read_room);
        }
        let room = into.capacity() - into.len();
        let n = match socket::recv(&self.stream, into) {
            Ok(0) => return Ok(ReadResult::End),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(ReadResult::Drained(0)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(ReadResult::More(0)),
            Err(error) => return Err(error),
        };
        self.decrypt()?;
        if n < room {
            // Less than asked for: the socket is empty, and what comes later is a new edge.
            self.read_room = READ_ROOM_FIRST;
            return Ok(ReadResult::Drained(n));
        }
        self.read_room = READ_ROOM.min(turn);
        Ok(ReadResult::More(n))
    }

    /// Moves what has arrived encrypted into `buf`.
    pub fn decrypt(&mut self) -> io::Result<()> {
        let Channel::Tls(session) = &mut self.channel else { return Ok(()) };
        loop {
            if self.buf.capacity() - self.buf.len() < READ_ROOM_MIN {
                self.buf.reserve(self.read_room);
            }
            if session.decrypt(&mut self.buf)? == 0 {
                return Ok(());
            }
        }
    }

    /// Writes until everything is written, the socket is full, or the turn is over.
    pub fn flush(&mut self) -> io::Result<Flushed> {
        let Conn { channel, queue, stream, .. } = self;
        let blocked_unless = |sent_all| if sent_all { Flushed::Empty } else { Flushed::Blocked };
        let flushed = match channel {
            // Nothing to say before the peer has shown how it speaks, and nothing at hand.
            Channel::Accepted { .. } | Channel::Away(_) => Flushed::Empty,
            Channel::Clear => queue.flush(stream, WRITE_TURN)?,
            Channel::Shaking(session) => blocked_unless(session.flush(|parts| socket::send(stream, parts))?),
            Channel::Tls(session) => {
                let enough = queue.bytes().saturating_sub(WRITE_TURN);
                loop {
                    if !session.flush(|parts| socket::send(stream, parts))? {
                        break Flushed::Blocked;
                    }
                    if queue.bytes() == 0 {
                        break Flushed::Empty;
                    }
                    if queue.bytes() <= enough {
                        break Flushed::TurnOver;
                    }
                    queue.write_with(|parts| session.encrypt(parts))?;
                }
            }
        };
        self.blocked = flushed == Flushed::Blocked;
        Ok(flushed)
    }

    /// Bytes not yet taken by the kernel.
    pub fn queued_bytes(&self) -> usize {
        match &self.channel {
            Channel::Shaking(session) | Channel::Tls(session) => self.queue.bytes() + session.unsent(),
            Channel::Clear | Channel::Accepted { .. } | Channel::Away(_) => self.queue.bytes(),
        }
    }

    /// Is something encrypted that the socket was not offered?
    pub fn has_unsent(&self) -> bool {
        matches!(&self.channel, Channel::Tls(session) if session.unsent() > 0)
    }

    pub fn scheme(&self) -> &'static str {
        if matches!(self.channel, Channel::Clear) { "tcp" } else { "ssl" }
    }

    /// Version and cipher.
    pub fn tls(&self) -> Option<String> {
        match &self.channel {
            Channel::Tls(session) => Some(session.description()),
            Channel::Clear | Channel::Accepted { .. } | Channel::Shaking(_) | Channel::Away(_) => None,
        }
    }

    /// Whose certificate the peer has shown.
    pub fn identity(&self) -> Option<&Identity> {
        match &self.channel {
            Channel::Tls(session) => session.peer(),
            Channel::Clear | Channel::Accepted { .. } | Channel::Shaking(_) | Channel::Away(_) => None,
        }
    }

    /// Begins TLS as the dialler. `attempt` counts those that failed before.
    pub fn dial_tls(
        &mut self,
        context: &TlsContext,
        attempt: u32,
        handshaker: &mut Handshaker,
    ) -> Result<(), TlsFailed> {
        self.channel = Channel::Shaking(Session::new(context, Side::Dialler { attempt })?);
        self.go_on(handshaker, true)
    }

    /// The progress of its peer while it is not up.
    pub fn shown(&self) -> Shown {
        match (&self.channel, self.hello()) {
            (_, Some(_)) => Shown::Hello,
            (Channel::Tls(_), None) => Shown::Tls,
            (Channel::Shaking(_) | Channel::Away(_), None) => Shown::Something,
            (Channel::Clear | Channel::Accepted { .. }, None) if self.buf.is_empty() => Shown::Nothing,
            (Channel::Clear | Channel::Accepted { .. }, None) => Shown::Something,
        }
    }

    /// Does what the channel needs before `buf` can be looked at; call it when bytes have arrived. `known`: the peer's address is a
    /// member's, as far as one can tell.
    ///
    /// **Errors:** why the connection is to be closed.
    pub fn go_on(&mut self, handshaker: &mut Handshaker, known: bool) -> Result<(), TlsFailed> {
        if let Channel::Accepted { context, clear_too } = &self.channel
            && let Some(&first) = self.buf.first()
        {
            self.channel = if first == HANDSHAKE_RECORD {
                let mut session = Session::new(context, Side::Acceptor)?;
                session.incoming().unsplit(self.buf.split());
                Channel::Shaking(session)
            } else if *clear_too {
                Channel::Clear
            } else {
                // Best effort: the closed connection says as much to those who know.
                let _ = socket::send(&self.stream, &[io::IoSlice::new(&ALERT_VERSION)]);
                return Err(SessionError::InClear.into());
            };
        }
        self.channel = match std::mem::replace(&mut self.channel, Channel::Clear) {
            Channel::Shaking(session) => {
                let turn = match (known, session.heard()) {
                    (true, _) => Turn::First,
                    (false, true) => Turn::Second,
                    (false, false) => Turn::Last,
                };
                Channel::Away(handshaker.step(session, turn)?)
            }
            other => other,
        };
        Ok(())
    }

    /// Takes the session back from the handshaker. True when the handshake is done.
    ///
    /// **Errors:** why the connection is to be closed; the peer has been told.
    pub fn stepped(&mut self, answer: Stepped) -> Result<bool, SessionError> {
        let Stepped { mut session, result, .. } = answer;
        if result.is_err() {
            let _ = session.flush(|parts| socket::send(&self.stream, parts));
        }
        self.channel = match result {
            Ok(true) => Channel::Tls(session),
            Ok(false) | Err(_) => Channel::Shaking(session),
        };
        result
    }

    /// The peer has ended a TLS handshake, in which it was dialled, without a word.
    pub fn ended_tls_unheard(&self) -> bool {
        matches!(&self.channel, Channel::Shaking(session) if self.dialled.is_some() && !session.heard())
    }

    /// Is it in the middle of a TLS handshake?
    pub fn is_shaking(&self) -> bool {
        matches!(self.channel, Channel::Shaking(_) | Channel::Away(_))
    }
}
