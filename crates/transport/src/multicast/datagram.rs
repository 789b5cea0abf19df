//! One datagram: who sends it and which it is, and a text that is sealed or summed.
//!
//! ```text
//! offset size
//!      0    8  stream, drawn by the sender
//!      8    8  number, from 0 on in each stream
//!     16       text: 0, then messages, each behind its length (u16); none in a probe
//!              text: 1, fragment u16, fragments u16, then a part of a message; the numbers of its datagrams follow each other
//!   last   16  tag of AES-256-GCM over all before it; in clear text instead 4 bytes, CRC-32
//! ```
//!
//! The nonce is the number. A stream has a key of its own and repeats no number.

use bytes::Bytes;
use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;
use openssl::error::ErrorStack;
use trireme_types::Reader;

/// On the wire, without the headers of UDP and IP: these, and those of a usual tunnel, fit into 1500 bytes with it.
pub(crate) const DATAGRAM_MAX: usize = 1400;
/// Stream and number.
pub(crate) const HEADER: usize = 16;
const TAG: usize = 16;
const SUM: usize = 4;
/// Longest text.
pub(crate) const TEXT_MAX: usize = DATAGRAM_MAX - HEADER - TAG;
/// In a text before a part of a message.
const FRAGMENT_HEADER: usize = 1 + 2 + 2;
/// Longest part of a message.
pub(crate) const PART_MAX: usize = TEXT_MAX - FRAGMENT_HEADER;
/// A message has no more parts: what is larger goes over the links, where the receiver's pace counts.
pub(crate) const PARTS_MAX: usize = 48;
/// Largest message.
pub(crate) const MESSAGE_MAX: usize = PARTS_MAX * PART_MAX;
/// Largest message that is sent in one datagram with others.
pub(crate) const WHOLE_MAX: usize = TEXT_MAX - 1 - 2;

const WHOLE: u8 = 0;
const FRAGMENT: u8 = 1;

pub(crate) type Key = [u8; 32];

/// How the datagrams of a stream are protected: as the link is over which it was announced.
pub(crate) enum Guard {
    Clear,
    Sealed(Box<CipherCtx>),
}

/// The use of a guard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    Seal,
    Open,
}

impl Guard {
    pub fn new(key: Option<&Key>, what: Use) -> Result<Guard, ErrorStack> {
        let Some(key) = key else { return Ok(Guard::Clear) };
        let mut ctx = CipherCtx::new()?;
        match what {
            Use::Seal => ctx.encrypt_init(Some(Cipher::aes_256_gcm()), Some(key), None)?,
            Use::Open => ctx.decrypt_init(Some(Cipher::aes_256_gcm()), Some(key), None)?,
        }
        Ok(Guard::Sealed(Box::new(ctx)))
    }

    /// `datagram` is room for the header, and the text.
    pub fn seal(&mut self, stream: u64, number: u64, datagram: &mut Vec<u8>) -> Result<(), ErrorStack> {
        datagram[..8].copy_from_slice(&stream.to_le_bytes());
        datagram[8..HEADER].copy_from_slice(&number.to_le_bytes());
        let Guard::Sealed(ctx) = self else {
            datagram.extend_from_slice(&crc32fast::hash(datagram).to_le_bytes());
            return Ok(());
        };
        ctx.encrypt_init(None, None, Some(&nonce(number)))?;
        let (header, text) = datagram.split_at_mut(HEADER);
        ctx.cipher_update(header, None)?;
        let len = text.len();
        ctx.cipher_update_inplace(text, len)?;
        ctx.cipher_final(&mut [])?;
        let mut tag = [0; TAG];
        ctx.tag(&mut tag)?;
        datagram.extend_from_slice(&tag);
        Ok(())
    }

    /// The text, if nobody has changed it. `datagram` has a header.
    pub fn open(&mut self, number: u64, datagram: &[u8]) -> Option<Bytes> {
        let Guard::Sealed(ctx) = self else {
            let (summed, sum) = datagram.split_at_checked(datagram.len().checked_sub(SUM)?)?;
            let right = crc32fast::hash(summed).to_le_bytes() == *sum;
            return summed.get(HEADER..).filter(|_| right).map(Bytes::copy_from_slice);
        };
        let (header, sealed) = datagram.split_at_checked(HEADER)?;
        let (text, tag) = sealed.split_at_checked(sealed.len().checked_sub(TAG)?)?;
        let mut text = text.to_vec();
        let len = text.len();
        ctx.decrypt_init(None, None, Some(&nonce(number))).ok()?;
        ctx.cipher_update(header, None).ok()?;
        ctx.cipher_update_inplace(&mut text, len).ok()?;
        ctx.set_tag(tag).ok()?;
        ctx.cipher_final(&mut []).ok()?;
        Some(Bytes::from(text))
    }
}

fn nonce(number: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    nonce
}

/// Stream and number; `None` for what is too short.
pub(crate) fn address(datagram: &[u8]) -> Option<(u64, u64)> {
    let mut r = Reader::new(datagram);
    Some((r.u64().ok()?, r.u64().ok()?))
}

/// The content of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Text {
    /// Messages; none in a probe.
    Whole(Vec<Bytes>),
    Part {
        at: usize,
        of: usize,
        bytes: Bytes,
    },
}

impl Text {
    /// `None` for what nobody writes.
    pub fn decode(text: &Bytes) -> Option<Text> {
        let mut r = Reader::new(text);
        match r.u8().ok()? {
            WHOLE => {
                let mut all = Vec::new();
                while r.remaining() > 0 {
                    let bytes = usize::from(r.u16().ok()?);
                    all.push(text.slice_ref(r.take(bytes).ok()?));
                }
                Some(Text::Whole(all))
            }
            FRAGMENT => {
                let (at, of) = (usize::from(r.u16().ok()?), usize::from(r.u16().ok()?));
                let bytes = text.slice_ref(r.take(r.remaining()).ok()?);
                (at < of && of <= PARTS_MAX && bytes.len() <= PART_MAX).then_some(Text::Part { at, of, bytes })
            }
            _ => None,
        }
    }
}

/// A datagram that is being filled, behind room for its header.
pub(crate) fn begin(datagram: &mut Vec<u8>) {
    datagram.clear();
    datagram.resize(HEADER, 0);
    datagram.push(WHOLE);
}

/// Behind [`begin`].
pub(crate) fn add(datagram: &mut Vec<u8>, message: &[Bytes]) {
    let len: usize = message.iter().map(Bytes::len).sum();
    debug_assert!(len <= WHOLE_MAX, "larger ones are cut");
    datagram.extend_from_slice(&(len as u16).to_le_bytes());
    message.iter().for_each(|part| datagram.extend_from_slice(part));
}

/// A part of a message follows.
pub(crate) fn begin_part(datagram: &mut Vec<u8>, at: usize, of: usize) {
    datagram.clear();
    datagram.resize(HEADER, 0);
    datagram.push(FRAGMENT);
    datagram.extend_from_slice(&(at as u16).to_le_bytes());
    datagram.extend_from_slice(&(of as u16).to_le_bytes());
}
