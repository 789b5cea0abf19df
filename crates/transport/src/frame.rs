//! Chunks on the wire.
//!
//! ```text
//! offset size
//!      0    4  payload length, at most CHUNK_MAX
//!      4    1  bits 0-1 lane (0 control, 1 bulk, 2 droppable, 3 the transport's own), FIRST, LAST, PAYLOAD_SUMMED
//!      5    3  zero
//!      8    4  CRC-32 of bytes 0..8 and, when PAYLOAD_SUMMED, of the payload
//!     12       payload; that of a FIRST chunk which is not LAST begins with the message's length (u64)
//! ```
//!
//! A message is cut into chunks of its lane. Chunks of different lanes interleave, those of one lane do not, so a control
//! message waits for at most one chunk of anything else (rule 7).

use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use trireme_order::Class;

use crate::budget::{PACE, Progress};

/// Largest payload of a chunk.
pub(crate) const CHUNK_MAX: usize = 64 << 10;
pub(crate) const HEADER: usize = 12;
/// The message length in the first of several chunks.
pub(crate) const TOTAL: usize = 8;

const LANE_MASK: u8 = 0b11;
const FIRST: u8 = 1 << 2;
const LAST: u8 = 1 << 3;
const PAYLOAD_SUMMED: u8 = 1 << 4;
const UNUSED: u8 = !(LANE_MASK | FIRST | LAST | PAYLOAD_SUMMED);

/// Memory set aside at once for a message because its first chunk says so; beyond it memory follows what has arrived.
const TRUSTED: u64 = 32 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    Class(Class),
    /// Between transports: [`Gossip`](crate::gossip::Gossip), always in one chunk.
    Own,
}

impl Lane {
    fn bits(self) -> u8 {
        match self {
            Lane::Class(Class::Control) => 0,
            Lane::Class(Class::Bulk) => 1,
            Lane::Class(Class::Droppable) => 2,
            Lane::Own => 3,
        }
    }

    fn of(flags: u8) -> Lane {
        match flags & LANE_MASK {
            0 => Lane::Class(Class::Control),
            1 => Lane::Class(Class::Bulk),
            2 => Lane::Class(Class::Droppable),
            _ => Lane::Own,
        }
    }
}

/// Place of a chunk in its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub first: bool,
    pub last: bool,
}

/// The header of a chunk with the payload `parts`.
pub(crate) fn header(lane: Lane, place: Place, sum_payload: bool, parts: &[impl AsRef<[u8]>]) -> [u8; HEADER] {
    let len: usize = parts.iter().map(|part| part.as_ref().len()).sum();
    debug_assert!(len <= CHUNK_MAX, "chunks are cut to size before");
    let mut out = [0; HEADER];
    out[..4].copy_from_slice(&(len as u32).to_le_bytes());
    out[4] = lane.bits()
        | if place.first { FIRST } else { 0 }
        | if place.last { LAST } else { 0 }
        | if sum_payload { PAYLOAD_SUMMED } else { 0 };
    let mut crc = crc32fast::Hasher::new();
    crc.update(&out[..8]);
    if sum_payload {
        parts.iter().for_each(|part| crc.update(part.as_ref()));
    }
    out[8..].copy_from_slice(&crc.finalize().to_le_bytes());
    out
}

/// Why a stream of chunks cannot be read on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameError {
    Header,
    Checksum,
    Oversized(u64),
    /// A chunk that belongs to no message, or more or less of a message than announced.
    Sequence,
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FrameError::Header => f.write_str("a chunk header that nobody writes"),
            FrameError::Checksum => f.write_str("a checksum does not match: the data was damaged on the way"),
            FrameError::Oversized(bytes) => write!(f, "a message of {bytes} bytes is over the limit"),
            FrameError::Sequence => f.write_str("chunks that make no message"),
        }
    }
}

/// A message in several chunks that is being put together.
struct Assembly {
    total: u64,
    body: BytesMut,
    progress: Option<Progress>,
}

/// Turns received bytes into messages. Bodies are slices of the buffer they were received into, unless a message came in
/// several chunks.
pub(crate) struct FrameReader {
    /// Checked when a message begins.
    pub message_max: u64,
    /// One per lane that carries messages.
    assembling: [Option<Assembly>; 3],
}

impl FrameReader {
    pub fn new(message_max: u64) -> FrameReader {
        FrameReader { message_max, assembling: [None, None, None] }
    }

    /// Bytes of messages that are not whole yet.
    pub fn held(&self) -> usize {
        self.assembling.iter().flatten().map(|assembly| assembly.body.len()).sum()
    }

    /// Has a message that is not whole stood still for `within`? To be asked now and then.
    pub fn stands(&mut self, now: Instant, within: Duration) -> bool {
        let mut begun = self.assembling.iter_mut().flatten();
        begun.any(|assembly| Progress::stands(&mut assembly.progress, assembly.body.len(), PACE, now, within))
    }

    /// Takes the next whole message from the front of `buf`; `None` when more must arrive first.
    pub fn next(&mut self, buf: &mut BytesMut) -> Result<Option<(Lane, Bytes)>, FrameError> {
        loop {
            let Some((flags, payload)) = take_chunk(buf)? else { return Ok(None) };
            let lane = Lane::of(flags);
            let (first, last) = (flags & FIRST != 0, flags & LAST != 0);
            let slot = match lane {
                Lane::Own if first && last => return Ok(Some((lane, payload.freeze()))),
                Lane::Own => return Err(FrameError::Sequence),
                Lane::Class(class) => &mut self.assembling[class as usize],
            };
            if first && slot.is_some() {
                return Err(FrameError::Sequence);
            }
            if first && last {
                return Ok(Some((lane, payload.freeze())));
            }
            if first {
                *slot = Some(begin(payload, self.message_max)?);
            } else {
                let assembly = slot.as_mut().ok_or(FrameError::Sequence)?;
                assembly.append(&payload)?;
                if last {
                    if assembly.body.len() as u64 != assembly.total {
                        return Err(FrameError::Sequence);
                    }
                    let whole = slot.take().expect("borrowed above");
                    return Ok(Some((lane, whole.body.freeze())));
                }
            }
        }
    }
}

fn take_chunk(buf: &mut BytesMut) -> Result<Option<(u8, BytesMut)>, FrameError> {
    if buf.len() < HEADER {
        return Ok(None);
    }
    let word = |at: usize| u32::from_le_bytes([buf[at], buf[at + 1], buf[at + 2], buf[at + 3]]);
    let (len, flags, crc) = (word(0) as usize, buf[4], word(8));
    if len > CHUNK_MAX || flags & UNUSED != 0 || buf[5..8] != [0; 3] {
        return Err(FrameError::Header);
    }
    if buf.len() < HEADER + len {
        return Ok(None);
    }
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&buf[..8]);
    if flags & PAYLOAD_SUMMED != 0 {
        hasher.update(&buf[HEADER..HEADER + len]);
    }
    if hasher.finalize() != crc {
        return Err(FrameError::Checksum);
    }
    buf.advance(HEADER);
    Ok(Some((flags, buf.split_to(len))))
}

/// Makes the headers of a damaged stream right, as far as its chunks follow each other.
#[cfg(feature = "fuzzing")]
pub(crate) fn seal(wire: &mut [u8]) {
    let mut at = 0;
    while let Some(head) = wire.get_mut(at..at + HEADER) {
        // Lengths that a test can fill; flags and reserved bytes that exist.
        (head[2], head[3], head[4]) = (0, 0, head[4] & !UNUSED);
        head[5..8].fill(0);
        let len = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let sum = head[4] & PAYLOAD_SUMMED != 0;
        let Some(chunk) = wire.get_mut(at..at + HEADER + len) else { return };
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&chunk[..8]);
        if sum {
            hasher.update(&chunk[HEADER..]);
        }
        chunk[8..HEADER].copy_from_slice(&hasher.finalize().to_le_bytes());
        at += HEADER + len;
    }
}

fn begin(mut payload: BytesMut, message_max: u64) -> Result<Assembly, FrameError> {
    if payload.len() < TOTAL {
        return Err(FrameError::Sequence);
    }
    let total = payload.get_u64_le();
    if total > message_max {
        return Err(FrameError::Oversized(total));
    }
    let mut assembly = Assembly { total, body: BytesMut::with_capacity(total.min(TRUSTED) as usize), progress: None };
    assembly.append(&payload)?;
    Ok(assembly)
}

impl Assembly {
    fn append(&mut self, payload: &[u8]) -> Result<(), FrameError> {
        // An empty chunk brings a message no further: a peer could send them for ever.
        if payload.is_empty() || self.body.len() as u64 + payload.len() as u64 > self.total {
            return Err(FrameError::Sequence);
        }
        self.body.extend_from_slice(payload);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::queue::{Encoded, SendQueue};

    fn read_all(wire: &[u8], cuts: &[usize]) -> Result<Vec<(Lane, Bytes)>, FrameError> {
        let mut reader = FrameReader::new(1 << 30);
        let mut buf = BytesMut::new();
        let mut out = Vec::new();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (wire.len() + 1)).collect();
        cuts.extend([0, wire.len()]);
        cuts.sort_unstable();
        for pair in cuts.windows(2) {
            buf.extend_from_slice(&wire[pair[0]..pair[1]]);
            while let Some(frame) = reader.next(&mut buf)? {
                out.push(frame);
            }
        }
        assert!(buf.is_empty(), "nothing is left of whole messages");
        Ok(out)
    }

    fn class() -> impl Strategy<Value = Class> {
        prop_oneof![Just(Class::Control), Just(Class::Bulk), Just(Class::Droppable)]
    }

    fn body() -> impl Strategy<Value = Vec<u8>> {
        let near = |n: usize| n.saturating_sub(20)..n + 20;
        let len = prop_oneof![0..200usize, near(CHUNK_MAX), near(3 * CHUNK_MAX), near(4096)];
        (len, any::<u8>()).prop_map(|(len, seed)| (0..len).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_class_arrives_whole_and_in_order_however_it_is_cut(
            messages in prop::collection::vec((class(), body(), any::<bool>()), 0..12),
            cuts in prop::collection::vec(any::<usize>(), 0..20),
        ) {
            let mut queue = SendQueue::default();
            for (class, body, sum) in &messages {
                // In parts, large, small and empty, so that cutting across them is covered.
                let (a, b) = body.split_at(body.len() / 3);
                let (b, c) = b.split_at(b.len().min(2));
                let parts = [a, &[], b, &c[..c.len() / 2], &c[c.len() / 2..]].map(Bytes::copy_from_slice);
                queue.push(Encoded::from_parts(*class, parts.to_vec(), *sum));
            }
            let wire = queue.drain_for_test();
            prop_assert_eq!(queue.bytes(), 0);
            let got = read_all(&wire, &cuts).unwrap();
            for class in [Class::Control, Class::Bulk, Class::Droppable] {
                let sent: Vec<&[u8]> = messages.iter().filter(|m| m.0 == class).map(|m| m.1.as_slice()).collect();
                let got: Vec<&[u8]> = got.iter().filter(|m| m.0 == Lane::Class(class)).map(|m| m.1.as_ref()).collect();
                prop_assert!(sent == got, "{:?} differs", class);
            }
        }

        #[test]
        fn garbage_never_panics(wire in prop::collection::vec(any::<u8>(), 0..4096)) {
            let mut buf = BytesMut::from(&wire[..]);
            let mut reader = FrameReader::new(1 << 20);
            while let Ok(Some(_)) = reader.next(&mut buf) {}
        }

        #[test]
        fn valid_headers_in_any_sequence_never_panic(
            chunks in prop::collection::vec((0u8..32, prop::collection::vec(any::<u8>(), 0..24)), 0..40),
        ) {
            let mut buf = BytesMut::new();
            for (flags, payload) in &chunks {
                let place = Place { first: flags & FIRST != 0, last: flags & LAST != 0 };
                buf.extend_from_slice(&header(Lane::of(*flags), place, flags & PAYLOAD_SUMMED != 0, &[payload]));
                buf.extend_from_slice(payload);
            }
            let mut reader = FrameReader::new(64);
            while let Ok(Some((_, body))) = reader.next(&mut buf) {
                prop_assert!(body.len() <= 64);
            }
        }

        #[test]
        fn a_flipped_bit_is_noticed(body in prop::collection::vec(any::<u8>(), 0..300), at in any::<usize>(), bit in 0u8..8) {
            let mut queue = SendQueue::default();
            queue.push(Encoded::from_parts(Class::Bulk, vec![Bytes::from(body)], true));
            let mut wire = queue.drain_for_test();
            let at = at % wire.len();
            wire[at] ^= 1 << bit;
            let got = FrameReader::new(1 << 20).next(&mut BytesMut::from(&wire[..]));
            // A longer length makes it wait for more instead.
            prop_assert!(matches!(got, Err(_) | Ok(None)), "{:?}", got);
        }
    }

    #[test]
    fn an_announced_length_is_not_believed() {
        let total = (1u64 << 40).to_le_bytes();
        let place = Place { first: true, last: false };
        let mut buf = BytesMut::from(&header(Lane::Class(Class::Bulk), place, true, &[&total])[..]);
        buf.extend_from_slice(&total);
        assert_eq!(FrameReader::new(4 << 30).next(&mut buf), Err(FrameError::Oversized(1 << 40)));
    }
}
