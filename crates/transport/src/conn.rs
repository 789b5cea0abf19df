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
use crate::isolation::Registration;
use crate::queue::{Flushed, SendQueue};
use crate::{AdmitToken, socket};

/// Room offered to one read while reads fill it: four chunks of a large message.
const READ_ROOM: usize = 256 << 10;
/// Below this much room a new buffer is taken. A buffer lives as long as a body that was received into it.
const READ_ROOM_MIN: usize = 16 << 10;
/// Room while reads do not fill it.
const READ_ROOM_FIRST: usize = 64 << 10;
/// Read from one link before the others get their turn.
pub(crate) const READ_TURN: usize = 2 << 20;

/// Legal ways: Connecting or Admission -> Hello -> (Ready -> Ack | Confirm) -> Up.
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
    Up(Up),
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
}

pub(crate) struct Conn {
    // Before the socket: it must leave the table before it is closed.
    _registration: Registration,
    pub stream: TcpStream,
    pub remote: SocketAddr,
    /// For which entry of the address book, when dialled.
    pub dialled: Option<EntryId>,
    pub phase: Phase,
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
}

/// What a read came to.
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
            deadline: Some(deadline),
            buf: BytesMut::new(),
            frames: FrameReader::new(message_max),
            queue: SendQueue::default(),
            blocked: false,
            dirty: false,
            read_room: READ_ROOM_FIRST,
        })
    }

    /// The peer, once it has said who it is.
    pub fn hello(&self) -> Option<&Hello> {
        match &self.phase {
            Phase::Connecting | Phase::Admission(_) | Phase::Hello => None,
            Phase::Ready(hello) | Phase::Ack(hello, _) | Phase::Confirm(hello) => Some(hello),
            Phase::Up(up) => Some(&up.hello),
        }
    }

    pub fn up(&self) -> Option<&Up> {
        match &self.phase {
            Phase::Up(up) => Some(up),
            _ => None,
        }
    }

    /// One system call.
    pub fn read(&mut self) -> io::Result<ReadResult> {
        match self.phase {
            Phase::Up(_) => {
                if self.buf.capacity() - self.buf.len() < READ_ROOM_MIN {
                    self.buf.reserve(self.read_room);
                }
            }
            // A stranger gets the room of one handshake and no more.
            _ => self.buf.reserve(WHOLE_MAX - self.buf.len().min(WHOLE_MAX - 1)),
        }
        let room = self.buf.capacity() - self.buf.len();
        let n = match socket::recv(&self.stream, &mut self.buf) {
            Ok(0) => return Ok(ReadResult::End),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(ReadResult::Drained(0)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(ReadResult::More(0)),
            Err(error) => return Err(error),
        };
        if n < room {
            // Less than asked for: the socket is empty, and what comes later is a new edge.
            self.read_room = READ_ROOM_FIRST;
            return Ok(ReadResult::Drained(n));
        }
        self.read_room = READ_ROOM;
        Ok(ReadResult::More(n))
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.blocked = self.queue.flush(&self.stream)? == Flushed::Blocked;
        Ok(())
    }
}
