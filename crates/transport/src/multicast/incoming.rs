//! One peer's stream of datagrams, as it is heard here.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use openssl::error::ErrorStack;

use super::datagram::{Guard, Key, Text, Use};

/// Messages of which parts are missing, of one peer: then the oldest is given up. With [`PARTS_MAX`](super::datagram::PARTS_MAX) half a megabyte.
const PARTIAL_MAX: usize = 8;
/// A number that is so far above what the sender announced last is not the sender's: several times what a network carries between two
/// announcements.
const AHEAD: u64 = 1 << 20;
/// A datagram that is so far behind the newest one comes too late.
const WINDOW: u64 = 1024;
/// Bytes of messages that are not whole, of one peer.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) const HELD_MAX: usize = PARTIAL_MAX * super::datagram::MESSAGE_MAX;
const WORDS: usize = WINDOW as usize / 64;

pub(crate) struct Incoming {
    pub stream: u64,
    guard: Guard,
    window: Window,
    /// Datagrams that were heard.
    pub heard: u64,
    /// The oldest first.
    partial: VecDeque<Partial>,
}

/// A message in parts. They are sent one after the other.
struct Partial {
    /// Number of the datagram with the first part. No other message of the stream has the same.
    first: u64,
    parts: Vec<Option<Bytes>>,
    missing: usize,
}

impl Incoming {
    /// `from`: number of the first datagram that counts.
    pub fn new(stream: u64, key: Option<&Key>, from: u64) -> Result<Incoming, ErrorStack> {
        let window = Window { from, next: from, announced: from, seen: [0; WORDS] };
        Ok(Incoming { stream, guard: Guard::new(key, Use::Open)?, window, heard: 0, partial: VecDeque::new() })
    }

    /// Takes a datagram of this stream; gives what became whole by it to `out`. False for one that nobody sent, or not now.
    pub fn receive(&mut self, number: u64, datagram: &[u8], out: &mut dyn FnMut(Bytes)) -> bool {
        if !self.window.wants(number) {
            return false;
        }
        let Some(text) = self.guard.open(number, datagram).and_then(|text| Text::decode(&text)) else { return false };
        self.window.mark(number);
        self.heard += 1;
        match text {
            Text::Whole(messages) => messages.into_iter().for_each(out),
            Text::Part { at, of, bytes } => {
                let whole = number.checked_sub(at as u64).and_then(|first| self.assemble(first, at, of, bytes));
                if let Some(whole) = whole {
                    out(whole);
                }
            }
        }
        true
    }

    /// The sender says over its link how many it has sent.
    pub fn announced(&mut self, sent: u64) {
        self.window.announced = self.window.announced.max(sent);
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub fn held(&self) -> usize {
        let parts = self.partial.iter().flat_map(|partial| partial.parts.iter().flatten());
        parts.map(Bytes::len).sum()
    }

    fn assemble(&mut self, first: u64, at: usize, of: usize, bytes: Bytes) -> Option<Bytes> {
        let place = self.partial.iter().position(|partial| partial.first == first && partial.parts.len() == of);
        let place = place.unwrap_or_else(|| {
            if self.partial.len() == PARTIAL_MAX {
                self.partial.pop_front();
            }
            self.partial.push_back(Partial { first, parts: vec![None; of], missing: of });
            self.partial.len() - 1
        });
        let partial = &mut self.partial[place];
        if partial.parts[at].replace(bytes).is_none() {
            partial.missing -= 1;
        }
        if partial.missing > 0 {
            return None;
        }
        let whole = self.partial.remove(place)?;
        let mut body = BytesMut::with_capacity(whole.parts.iter().flatten().map(Bytes::len).sum());
        whole.parts.iter().flatten().for_each(|part| body.extend_from_slice(part));
        Some(body.freeze())
    }
}

/// Which numbers were seen: none counts twice.
struct Window {
    from: u64,
    /// Above the highest that was seen.
    next: u64,
    /// The number that the sender had sent by its own account.
    announced: u64,
    seen: [u64; WORDS],
}

impl Window {
    fn wants(&self, number: u64) -> bool {
        let late = number < self.from || self.next > number && self.next - number > WINDOW;
        let ahead = number > self.announced.saturating_add(AHEAD);
        !late && !ahead && (number >= self.next || !self.is_seen(number))
    }

    fn is_seen(&self, number: u64) -> bool {
        self.seen[(number % WINDOW / 64) as usize] & 1 << (number % 64) != 0
    }

    fn mark(&mut self, number: u64) {
        if number >= self.next {
            // The places of those between are those of numbers that are too old now.
            for passed in self.next.max(number.saturating_sub(WINDOW - 1))..=number {
                self.seen[(passed % WINDOW / 64) as usize] &= !(1 << (passed % 64));
            }
            self.next = number + 1;
        }
        self.seen[(number % WINDOW / 64) as usize] |= 1 << (number % 64);
    }
}
