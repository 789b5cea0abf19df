//! The stream of datagrams that this node sends.

use bytes::Bytes;
use openssl::error::ErrorStack;
use openssl::rand::rand_bytes;

use super::datagram::{self, DATAGRAM_MAX, Guard, HEADER, Key, PART_MAX, TEXT_MAX, Use, WHOLE_MAX};

pub(crate) struct Outgoing {
    pub stream: u64,
    pub key: Option<Key>,
    guard: Guard,
    /// Of the next datagram: so many were sent.
    pub number: u64,
    /// Small messages that wait for company.
    open: Vec<u8>,
}

impl Outgoing {
    /// Under a key that nobody has yet, or in clear text.
    pub fn new(sealed: bool) -> Result<Outgoing, ErrorStack> {
        let (mut stream, mut key) = ([0; 8], [0; 32]);
        rand_bytes(&mut stream)?;
        rand_bytes(&mut key)?;
        let key = sealed.then_some(key);
        let guard = Guard::new(key.as_ref(), Use::Seal)?;
        let open = Vec::with_capacity(DATAGRAM_MAX);
        Ok(Outgoing { stream: u64::from_le_bytes(stream), key, guard, number: 0, open })
    }

    /// Adds a message of at most [`MESSAGE_MAX`](datagram::MESSAGE_MAX) bytes, in parts; what is full goes to `send`.
    pub fn push(&mut self, message: &[Bytes], send: &mut dyn FnMut(&[u8])) {
        let len: usize = message.iter().map(Bytes::len).sum();
        if len > WHOLE_MAX {
            self.flush(send);
            return self.cut(message, len, send);
        }
        if !self.open.is_empty() && self.open.len() + 2 + len > HEADER + TEXT_MAX {
            self.flush(send);
        }
        if self.open.is_empty() {
            datagram::begin(&mut self.open);
        }
        datagram::add(&mut self.open, message);
    }

    fn cut(&mut self, message: &[Bytes], len: usize, send: &mut dyn FnMut(&[u8])) {
        let of = len.div_ceil(PART_MAX);
        let mut rest = message.iter().flat_map(|bytes| bytes.chunks(PART_MAX));
        let mut piece: &[u8] = &[];
        for at in 0..of {
            datagram::begin_part(&mut self.open, at, of);
            let mut room = PART_MAX;
            while room > 0 {
                if piece.is_empty() {
                    let Some(next) = rest.next() else { break };
                    piece = next;
                }
                let (now, later) = piece.split_at(room.min(piece.len()));
                self.open.extend_from_slice(now);
                room -= now.len();
                piece = later;
            }
            self.flush(send);
        }
    }

    /// Something that peers can hear.
    pub fn probe(&mut self, send: &mut dyn FnMut(&[u8])) {
        self.flush(send);
        datagram::begin(&mut self.open);
        self.flush(send);
    }

    pub fn flush(&mut self, send: &mut dyn FnMut(&[u8])) {
        if self.open.is_empty() {
            return;
        }
        // A datagram that cannot be sealed is lost, and asked for again.
        if self.guard.seal(self.stream, self.number, &mut self.open).is_ok() {
            send(&self.open);
        }
        self.number += 1;
        self.open.clear();
    }
}
