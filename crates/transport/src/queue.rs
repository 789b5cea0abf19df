//! The bytes that wait to be written on a link.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use mio::net::TcpStream;
use trireme_order::{Class, Message};

use crate::budget::Progress;
use crate::frame::{self, CHUNK_MAX, HEADER, Lane, Place, TOTAL};
use crate::socket;

/// Messages up to this size are copied behind their header: cheaper than another entry in the vector.
const CONTIGUOUS_MAX: usize = 4 << 10;
/// Parts below this size are copied together.
const SMALL_PART: usize = 1 << 10;
/// Chunks of the two body lanes that are cut ahead of the socket.
const STAGED_MAX: usize = 256 << 10;
/// Memory that one small part in a queue takes: the entry and its allocation.
const PIECE_COST: usize = 160;
/// Entries of one vectored write.
const WRITE_PARTS: usize = 128;

/// A message ready for any number of links.
#[derive(Clone, Debug)]
pub struct Encoded {
    class: Class,
    form: Form,
    /// On the wire, headers included.
    wire_bytes: usize,
}

#[derive(Clone, Debug)]
enum Form {
    /// Header and payload in one piece.
    Small(Bytes),
    /// One chunk: the header, then the payload.
    Chunk(Bytes, Arc<[Bytes]>),
    /// Cut into chunks when its turn comes, so that a write set of a gigabyte does not occupy the thread all at once.
    Large(Arc<[Bytes]>, Summed),
}

/// Is the payload in the checksum?
type Summed = bool;

impl Encoded {
    /// `checksum` as in [`NetConfig`](crate::NetConfig).
    pub fn new(class: Class, message: &Message, checksum: bool) -> Encoded {
        let mut parts = Vec::with_capacity(2);
        message.encode_vectored(&mut parts);
        Encoded::from_parts(class, parts, checksum)
    }

    pub(crate) fn from_parts(class: Class, parts: Vec<Bytes>, checksum: bool) -> Encoded {
        let sum = checksum || class == Class::Control;
        let len: usize = parts.iter().map(Bytes::len).sum();
        let lane = Lane::Class(class);
        let whole = Place { first: true, last: true };
        if len <= CONTIGUOUS_MAX {
            let mut out = BytesMut::with_capacity(HEADER + len);
            out.extend_from_slice(&frame::header(lane, whole, sum, &parts));
            parts.iter().for_each(|part| out.extend_from_slice(part));
            return Encoded { class, form: Form::Small(out.freeze()), wire_bytes: HEADER + len };
        }
        let parts = merge_small(parts);
        if len <= CHUNK_MAX {
            let header = Bytes::copy_from_slice(&frame::header(lane, whole, sum, &parts));
            return Encoded { class, form: Form::Chunk(header, parts.into()), wire_bytes: HEADER + len };
        }
        let wire_bytes = TOTAL + len + (TOTAL + len).div_ceil(CHUNK_MAX) * HEADER;
        Encoded { class, form: Form::Large(parts.into(), sum), wire_bytes }
    }

    pub fn class(&self) -> Class {
        self.class
    }

    /// The bytes that it adds to a link's queue.
    pub fn wire_bytes(&self) -> usize {
        self.wire_bytes
    }
}

/// Drops empty parts and copies neighbours that are small into one: fewer entries for the kernel to walk.
fn merge_small(parts: Vec<Bytes>) -> Vec<Bytes> {
    let mut out: Vec<Bytes> = Vec::with_capacity(parts.len());
    let mut run = BytesMut::new();
    for part in parts {
        if part.len() < SMALL_PART {
            run.extend_from_slice(&part);
            continue;
        }
        if !run.is_empty() {
            out.push(run.split().freeze());
        }
        out.push(part);
    }
    if !run.is_empty() {
        out.push(run.freeze());
    }
    out
}

/// A part of a chunk.
struct Piece {
    bytes: Bytes,
    ends_chunk: bool,
}

/// A message of a body lane that waits for its turn.
enum Waiting {
    Small(Bytes),
    Chunk(Bytes, Arc<[Bytes]>),
    Large(Cutter),
}

/// Cuts a large message into chunks.
struct Cutter {
    lane: Lane,
    parts: Arc<[Bytes]>,
    summed: Summed,
    /// The next byte: part and offset in it.
    at: (usize, usize),
    left: usize,
    first: bool,
}

impl Cutter {
    fn new(class: Class, parts: Arc<[Bytes]>, summed: Summed) -> Cutter {
        let left = parts.iter().map(Bytes::len).sum();
        Cutter { lane: Lane::Class(class), parts, summed, at: (0, 0), left, first: true }
    }

    /// Appends the next chunk to `out`; returns its size and whether it was the last.
    fn cut(&mut self, out: &mut VecDeque<Piece>) -> (usize, bool) {
        let mut payload: Vec<Bytes> = Vec::with_capacity(4);
        let mut room = CHUNK_MAX;
        if self.first {
            payload.push(Bytes::copy_from_slice(&(self.left as u64).to_le_bytes()));
            room -= TOTAL;
        }
        while room > 0 && self.left > 0 {
            let (part, from) = self.at;
            let bytes = &self.parts[part];
            let n = room.min(bytes.len() - from);
            if n > 0 {
                payload.push(bytes.slice(from..from + n));
            }
            self.at = if from + n == bytes.len() { (part + 1, 0) } else { (part, from + n) };
            room -= n;
            self.left -= n;
        }
        let place = Place { first: self.first, last: self.left == 0 };
        self.first = false;
        let header = frame::header(self.lane, place, self.summed, &payload);
        let len = HEADER + payload.iter().map(Bytes::len).sum::<usize>();
        out.push_back(Piece { bytes: Bytes::copy_from_slice(&header), ends_chunk: false });
        push_chunk_parts(out, &payload);
        (len, place.last)
    }
}

fn push_chunk_parts(out: &mut VecDeque<Piece>, parts: &[Bytes]) {
    let last = parts.len() - 1;
    out.extend(parts.iter().enumerate().map(|(at, part)| Piece { bytes: part.clone(), ends_chunk: at == last }));
}

/// The result of a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flushed {
    Empty,
    /// The socket is full; it will say when it is not.
    Blocked,
    /// The socket would take more, but it is the turn of others.
    TurnOver,
}

/// The queues of one link, in the order in which they are written: the rest of a chunk that was begun, control messages, then chunks of
/// bulk and droppable messages in turn.
#[derive(Default)]
pub(crate) struct SendQueue {
    begun: VecDeque<Piece>,
    control: VecDeque<Piece>,
    staged: VecDeque<Piece>,
    staged_bytes: usize,
    bulk: VecDeque<Waiting>,
    droppable: VecDeque<Waiting>,
    droppable_next: bool,
    bytes: usize,
    taken: usize,
    progress: Option<Progress>,
}

impl SendQueue {
    /// Bytes not yet given to the kernel, or to encryption.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Has less than `pace` bytes of what waits been taken for `within`? To be asked now and then.
    pub fn stands(&mut self, pace: usize, now: Instant, within: Duration) -> bool {
        if self.bytes == 0 {
            self.progress = None;
            return false;
        }
        Progress::stands(&mut self.progress, self.taken, pace, now, within)
    }

    /// Memory that waiting control messages take, about. Small ones take more than they are long.
    pub fn control_cost(&self) -> usize {
        if self.control.is_empty() { 0 } else { self.control.len() * PIECE_COST }
    }

    pub fn push(&mut self, message: Encoded) {
        self.bytes += message.wire_bytes;
        let lane = match message.class {
            Class::Control => return self.push_control(message),
            Class::Bulk => &mut self.bulk,
            Class::Droppable => &mut self.droppable,
        };
        lane.push_back(match message.form {
            Form::Small(bytes) => Waiting::Small(bytes),
            Form::Chunk(header, parts) => Waiting::Chunk(header, parts),
            Form::Large(parts, summed) => Waiting::Large(Cutter::new(message.class, parts, summed)),
        });
    }

    fn push_control(&mut self, message: Encoded) {
        match message.form {
            Form::Small(bytes) => self.control.push_back(Piece { bytes, ends_chunk: true }),
            Form::Chunk(header, parts) => {
                self.control.push_back(Piece { bytes: header, ends_chunk: false });
                push_chunk_parts(&mut self.control, &parts);
            }
            Form::Large(parts, summed) => {
                let mut cutter = Cutter::new(message.class, parts, summed);
                while !cutter.cut(&mut self.control).1 {}
            }
        }
    }

    /// Bytes that are no message (handshakes), or a whole chunk of the transport's own; with the control messages.
    pub fn push_raw(&mut self, bytes: Bytes) {
        self.bytes += bytes.len();
        self.control.push_back(Piece { bytes, ends_chunk: true });
    }

    /// Cuts chunks until enough are there for the next write.
    fn stage(&mut self) {
        while self.staged_bytes < STAGED_MAX {
            let droppable = if self.bulk.is_empty() || self.droppable.is_empty() {
                self.bulk.is_empty()
            } else {
                self.droppable_next
            };
            self.droppable_next = !droppable;
            let lane = if droppable { &mut self.droppable } else { &mut self.bulk };
            let Some(front) = lane.front_mut() else { return };
            let (bytes, done) = match front {
                Waiting::Small(bytes) => {
                    self.staged.push_back(Piece { bytes: bytes.clone(), ends_chunk: true });
                    (bytes.len(), true)
                }
                Waiting::Chunk(header, parts) => {
                    self.staged.push_back(Piece { bytes: header.clone(), ends_chunk: false });
                    push_chunk_parts(&mut self.staged, parts);
                    (header.len() + parts.iter().map(Bytes::len).sum::<usize>(), true)
                }
                Waiting::Large(cutter) => cutter.cut(&mut self.staged),
            };
            self.staged_bytes += bytes;
            if done {
                lane.pop_front();
            }
        }
    }

    /// Tells of all that waits where it is in memory, and its size: what goes to several peers waits in several queues and is there once.
    pub fn for_each_body(&self, mut see: impl FnMut(*const u8, usize)) {
        let mut see = |bytes: &Bytes| see(bytes.as_ptr(), bytes.len());
        self.begun.iter().chain(&self.control).chain(&self.staged).for_each(|piece| see(&piece.bytes));
        for waiting in self.bulk.iter().chain(&self.droppable) {
            match waiting {
                Waiting::Small(bytes) => see(bytes),
                Waiting::Chunk(header, parts) => {
                    see(header);
                    parts.iter().for_each(&mut see);
                }
                Waiting::Large(cutter) => cutter.parts.iter().for_each(&mut see),
            }
        }
    }

    /// Writes until everything is written, the socket is full, or `turn` bytes are written.
    pub fn flush(&mut self, stream: &TcpStream, turn: usize) -> io::Result<Flushed> {
        let enough = self.bytes.saturating_sub(turn);
        while self.bytes > 0 {
            if self.bytes <= enough {
                return Ok(Flushed::TurnOver);
            }
            let result = self.write_with(|parts| socket::send(stream, parts));
            match result {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Flushed::Blocked),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Flushed::Empty)
    }

    /// Offers what comes next to `write`, which says how much of it it took. Not with an empty queue.
    pub fn write_with(&mut self, write: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>) -> io::Result<usize> {
        self.stage();
        let mut parts = [IoSlice::new(&[]); WRITE_PARTS];
        let mut n = 0;
        for (slot, piece) in parts.iter_mut().zip(self.begun.iter().chain(&self.control).chain(&self.staged)) {
            *slot = IoSlice::new(&piece.bytes);
            n += 1;
        }
        let written = write(&parts[..n])?;
        self.advance(written);
        Ok(written)
    }

    /// Forgets `written` bytes in writing order. A chunk left in its middle is the one that must go on next.
    fn advance(&mut self, mut written: usize) {
        debug_assert!(written <= self.bytes, "the kernel takes no more than it is given");
        self.bytes -= written;
        self.taken += written;
        while written > 0 {
            if let Some(piece) = self.begun.front_mut() {
                let n = written.min(piece.bytes.len());
                written -= n;
                if n == piece.bytes.len() {
                    self.begun.pop_front();
                } else {
                    piece.bytes.advance(n);
                }
                continue;
            }
            let from_control = !self.control.is_empty();
            let lane = if from_control { &mut self.control } else { &mut self.staged };
            let Some(piece) = lane.pop_front() else { return };
            let mut taken = piece.bytes.len();
            if taken <= written && piece.ends_chunk {
                written -= taken;
            } else {
                let mut ends = piece.ends_chunk;
                self.begun.push_back(piece);
                while !ends {
                    let Some(next) = lane.pop_front() else { break };
                    ends = next.ends_chunk;
                    taken += next.bytes.len();
                    self.begun.push_back(next);
                }
            }
            if !from_control {
                self.staged_bytes -= taken;
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn drain_for_test(&mut self) -> Vec<u8> {
        let mut wire = Vec::new();
        // Awkward sizes, so that writes end everywhere in a chunk.
        let mut size = 1;
        while self.bytes > 0 {
            size = size * 7 % 50_021;
            self.write_with(|parts| {
                let mut left = size;
                for part in parts {
                    let n = left.min(part.len());
                    wire.extend_from_slice(&part[..n]);
                    left -= n;
                }
                Ok(size - left)
            })
            .unwrap();
        }
        wire
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(class: Class, fill: u8, len: usize) -> Encoded {
        Encoded::from_parts(class, vec![Bytes::from(vec![fill; len])], false)
    }

    /// The lanes of the chunks in `wire`, in order.
    fn lanes(mut wire: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        while !wire.is_empty() {
            let len = u32::from_le_bytes(wire[..4].try_into().unwrap()) as usize;
            out.push(wire[4] & 3);
            wire = &wire[HEADER + len..];
        }
        out
    }

    #[test]
    fn control_waits_for_the_begun_chunk_only() {
        let mut queue = SendQueue::default();
        queue.push(message(Class::Bulk, 1, 1 << 20));
        let mut wire = Vec::new();
        let take = |queue: &mut SendQueue, wire: &mut Vec<u8>, n: usize| {
            queue
                .write_with(|parts| {
                    let all: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
                    wire.extend_from_slice(&all[..n.min(all.len())]);
                    Ok(n.min(all.len()))
                })
                .unwrap()
        };
        take(&mut queue, &mut wire, 100);
        queue.push(message(Class::Control, 2, 10));
        while queue.bytes() > 0 {
            take(&mut queue, &mut wire, 70_001);
        }
        let lanes = lanes(&wire);
        assert_eq!(lanes[..2], [1, 0]);
        assert_eq!(lanes.iter().filter(|&&lane| lane == 0).count(), 1);
    }

    #[test]
    fn a_large_bulk_message_does_not_hold_up_droppable_ones() {
        let mut queue = SendQueue::default();
        queue.push(message(Class::Bulk, 1, 3 * CHUNK_MAX));
        queue.push(message(Class::Droppable, 2, 10));
        queue.push(message(Class::Bulk, 3, 10));
        assert_eq!(lanes(&queue.drain_for_test()), [1, 2, 1, 1, 1, 1]);
    }
}
