//! The body of an ordered write set: header, data, keys.
//!
//! Data comes before the keys so that the builder can copy the server's bytes to their final place at once; keys are hashes, collected
//! beside it and appended at the end. The last-seen seqno sits at a fixed offset, because it is worth more the later it is taken.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | version, 1 |
//! | 1 | 3 | zero |
//! | 4 | 4 | flags of the C API |
//! | 8 | 8 | last-seen seqno |
//! | 16 | 16 | member UUID of the origin |
//! | 32 | 8 | transaction id |
//! | 40 | 8 | connection id |
//! | 48 | 8 | length of the data |
//! | 56 | 4 | number of key groups |
//! | 60 | 4 | number of keys in all groups |
//! | 64 | … | data |
//! | … | … | key groups |
//!
//! A group holds the keys below one prefix: number of prefixes (u8), number of keys (u32, not 0), the hash of each prefix from the
//! shortest (u64), the keys (u64: hash, the low two bits are the kind). Integers are little-endian.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;

use bytes::Bytes;
use trireme_types::{DecodeError, Reader, Seqno, Uuid, Writer};

use crate::key::{KIND_BITS, KeyError, KeyHash, KeyHasher, KeyKind, MAX_KEY_PARTS};

/// Write-set flags of the C API, as far as they mean something to certification.
pub mod flags {
    /// Last or only fragment.
    pub const TRX_END: u32 = 0x001;
    /// Takes back the fragments sent so far.
    pub const ROLLBACK: u32 = 0x002;
    /// Executed in total-order isolation (TOI).
    pub const ISOLATION: u32 = 0x004;
    /// May only be applied when everything before it has committed.
    pub const PA_UNSAFE: u32 = 0x008;
    /// First or only fragment.
    pub const TRX_START: u32 = 0x040;
}

const VERSION: u8 = 1;
const LAST_SEEN_AT: usize = 8;
const HEADER: usize = 64;
/// Up to here looking through a group beats a hash map.
const SCAN_KEYS_MAX: usize = 24;

/// Everything about a write set but its keys and data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Head {
    pub flags: u32,
    /// Last seqno that had left commit order at the origin when the write set was sent: the first seqno that can conflict is the next one.
    pub last_seen: Seqno,
    /// Member UUID of the origin (it contains the incarnation).
    pub origin: Uuid,
    /// Transaction id at the origin; `u64::MAX` for TOI.
    pub trx: u64,
    pub conn: u64,
}

impl Head {
    pub fn is_toi(&self) -> bool {
        self.flags & flags::ISOLATION != 0
    }
    pub fn is_rollback(&self) -> bool {
        self.flags & flags::ROLLBACK != 0
    }
    pub fn is_start(&self) -> bool {
        self.flags & flags::TRX_START != 0
    }
    pub fn is_end(&self) -> bool {
        self.flags & flags::TRX_END != 0
    }
    /// A piece of a streaming transaction, its rollback included.
    pub fn is_fragment(&self) -> bool {
        !self.is_toi() && (self.is_rollback() || !(self.is_start() && self.is_end()))
    }
}

/// Keys below one prefix while the transaction runs.
struct Group {
    prefixes: [KeyHash; MAX_KEY_PARTS - 1],
    depth: usize,
    /// Hash and kind, as encoded.
    leaves: Vec<u64>,
}

impl Group {
    fn prefixes(&self) -> &[KeyHash] {
        &self.prefixes[..self.depth]
    }
}

/// Collects one write set.
pub struct WriteSetBuilder {
    /// Room for the header, then the data.
    buf: Vec<u8>,
    groups: Vec<Group>,
    keys: usize,
    /// Leaf hash to group and position in it, once there are more than [`SCAN_KEYS_MAX`] keys. Should two groups share a hash, one of the
    /// two keys is not looked for: at worst it is encoded twice.
    positions: HashMap<u64, (usize, usize), BuildHasherDefault<KeyHasher>>,
}

impl Default for WriteSetBuilder {
    fn default() -> Self {
        WriteSetBuilder { buf: vec![0; HEADER], groups: Vec::new(), keys: 0, positions: HashMap::default() }
    }
}

impl WriteSetBuilder {
    pub fn new() -> WriteSetBuilder {
        WriteSetBuilder::default()
    }

    /// Adds a key. The same key added twice counts once, with the stronger kind.
    ///
    /// **Errors:** no parts or too many; the write set is then unchanged.
    pub fn add_key<'p>(&mut self, parts: impl IntoIterator<Item = &'p [u8]>, kind: KeyKind) -> Result<(), KeyError> {
        let mut hashes = [KeyHash(0); MAX_KEY_PARTS];
        let mut count = 0;
        for hash in KeyHash::chain(parts) {
            *hashes.get_mut(count).ok_or(KeyError::TooManyParts)? = hash;
            count += 1;
        }
        let (leaf, prefixes) = hashes[..count].split_last().ok_or(KeyError::NoParts)?;
        let group = self.group(prefixes);
        match self.position(group, *leaf) {
            Some(at) => {
                let known = &mut self.groups[group].leaves[at];
                if KeyHash::split(*known).1 < kind {
                    *known = leaf.with_kind(kind);
                }
            }
            None => {
                let leaves = &mut self.groups[group].leaves;
                leaves.push(leaf.with_kind(kind));
                let at = leaves.len() - 1;
                self.keys += 1;
                if self.keys > SCAN_KEYS_MAX {
                    self.positions.insert(leaf.0, (group, at));
                }
                if self.keys == SCAN_KEYS_MAX + 1 {
                    self.index_all();
                }
            }
        }
        Ok(())
    }

    /// Appends to the data.
    pub fn add_data(&mut self, data: &[u8]) {
        // Keys usually come first: leave room for them, so that finishing does not move the data.
        self.buf.reserve(data.len() + self.key_bytes());
        self.buf.extend_from_slice(data);
    }

    /// Distinct keys so far.
    pub fn key_count(&self) -> usize {
        self.keys
    }

    /// Bytes that the keys take in the encoded form.
    pub fn key_bytes(&self) -> usize {
        self.groups.iter().map(|g| 5 + 8 * (g.depth + g.leaves.len())).sum()
    }

    pub fn data_bytes(&self) -> usize {
        self.buf.len() - HEADER
    }

    /// Size of the encoded form if it were finished now.
    pub fn encoded_bytes(&self) -> usize {
        self.buf.len() + self.key_bytes()
    }

    pub fn is_empty(&self) -> bool {
        self.keys == 0 && self.data_bytes() == 0
    }

    /// Encodes. The last-seen seqno can still be replaced in the result.
    pub fn finish(self, head: &Head) -> Encoded {
        let data_bytes = self.data_bytes();
        let key_bytes = self.key_bytes();
        let mut w = Writer { buf: Vec::with_capacity(HEADER) };
        w.u8(VERSION);
        w.raw(&[0; 3]);
        w.u32(head.flags);
        w.u64(head.last_seen.0);
        w.uuid(head.origin);
        w.u64(head.trx);
        w.u64(head.conn);
        w.u64(data_bytes as u64);
        w.u32(self.groups.len() as u32);
        w.u32(self.keys as u32);
        let header = w.buf;
        let mut w = Writer { buf: self.buf };
        w.buf[..HEADER].copy_from_slice(&header);
        w.buf.reserve_exact(key_bytes);
        for group in &self.groups {
            w.u8(group.depth as u8);
            w.u32(group.leaves.len() as u32);
            group.prefixes().iter().for_each(|p| w.u64(p.0));
            group.leaves.iter().for_each(|l| w.u64(*l));
        }
        debug_assert_eq!(w.buf.len(), HEADER + data_bytes + key_bytes);
        Encoded { bytes: w.buf }
    }

    /// The group below `prefixes`. Rows of one table come in runs, so the newest group is looked at first.
    fn group(&mut self, prefixes: &[KeyHash]) -> usize {
        if let Some(at) = self.groups.iter().rposition(|g| g.prefixes() == prefixes) {
            return at;
        }
        let mut padded = [KeyHash(0); MAX_KEY_PARTS - 1];
        padded[..prefixes.len()].copy_from_slice(prefixes);
        self.groups.push(Group { prefixes: padded, depth: prefixes.len(), leaves: Vec::new() });
        self.groups.len() - 1
    }

    fn position(&self, group: usize, leaf: KeyHash) -> Option<usize> {
        if self.keys > SCAN_KEYS_MAX {
            return self.positions.get(&leaf.0).filter(|p| p.0 == group).map(|p| p.1);
        }
        self.groups[group].leaves.iter().position(|l| KeyHash::split(*l).0 == leaf)
    }

    fn index_all(&mut self) {
        for (group, g) in self.groups.iter().enumerate() {
            for (at, leaf) in g.leaves.iter().enumerate() {
                self.positions.insert(KeyHash::split(*leaf).0.0, (group, at));
            }
        }
    }
}

/// A finished write set that is about to be sent.
pub struct Encoded {
    bytes: Vec<u8>,
}

impl Encoded {
    /// Replaces the last-seen seqno: call it as late as possible, each seqno less in the window is one chance of a conflict less.
    pub fn set_last_seen(&mut self, last_seen: Seqno) {
        self.bytes[LAST_SEEN_AT..LAST_SEEN_AT + 8].copy_from_slice(&last_seen.0.to_le_bytes());
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    /// No copy is made.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from(self.bytes)
    }
}

/// A write set as received: a view into the entry's payload.
#[derive(Clone, Debug)]
pub struct WriteSet {
    bytes: Bytes,
    head: Head,
    data: Range<usize>,
    keys: usize,
}

/// Keys below one prefix.
pub struct KeyGroup<'a> {
    prefixes: &'a [u8],
    leaves: &'a [u8],
}

impl<'a> KeyGroup<'a> {
    /// For people: every key as the hashes of its parts' chain (database, table, row), and how it was used. The names themselves are
    /// not in a write set.
    pub fn hashed(&self) -> impl Iterator<Item = (Vec<u64>, KeyKind)> + use<'a> {
        let prefixes: Vec<u64> = self.prefixes().map(|hash| hash.0).collect();
        self.leaves().map(move |(leaf, kind)| (prefixes.iter().copied().chain([leaf.0]).collect(), kind))
    }
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = KeyHash> + use<'a> {
        words(self.prefixes).map(KeyHash)
    }
    pub(crate) fn leaves(&self) -> impl Iterator<Item = (KeyHash, KeyKind)> + use<'a> {
        words(self.leaves).map(KeyHash::split)
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + use<'_> {
    bytes.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("chunks of 8 bytes")))
}

impl WriteSet {
    /// Reads what [`WriteSetBuilder::finish`] wrote.
    ///
    /// **Errors:** anything else. The verdict on such a body is [`crate::Verdict::malformed`].
    pub fn parse(bytes: Bytes) -> Result<WriteSet, DecodeError> {
        let mut r = Reader::new(&bytes);
        if r.u8()? != VERSION {
            return Err(DecodeError::Invalid("write set version"));
        }
        if r.take(3)? != [0; 3] {
            return Err(DecodeError::Invalid("reserved bytes of a write set"));
        }
        let head =
            Head { flags: r.u32()?, last_seen: Seqno(r.u64()?), origin: r.uuid()?, trx: r.u64()?, conn: r.u64()? };
        let data_bytes = usize::try_from(r.u64()?).map_err(|_| DecodeError::Truncated)?;
        let groups = r.u32()?;
        let keys = r.u32()? as usize;
        debug_assert_eq!(bytes.len() - r.remaining(), HEADER);
        r.take(data_bytes)?;
        let mut seen = 0usize;
        for _ in 0..groups {
            let group = read_group(&mut r)?;
            seen += group.leaves.len() / 8;
        }
        if seen != keys {
            return Err(DecodeError::Invalid("number of keys"));
        }
        r.finish()?;
        let data = HEADER..HEADER + data_bytes;
        Ok(WriteSet { bytes, head, data, keys })
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Shares the memory of the entry.
    pub fn data(&self) -> Bytes {
        self.bytes.slice(self.data.clone())
    }

    pub fn has_data(&self) -> bool {
        !self.data.is_empty()
    }

    pub fn key_count(&self) -> usize {
        self.keys
    }

    pub fn key_bytes(&self) -> usize {
        self.bytes.len() - self.data.end
    }

    pub fn data_bytes(&self) -> usize {
        self.data.len()
    }

    pub fn encoded_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub fn groups(&self) -> impl Iterator<Item = KeyGroup<'_>> {
        let mut r = Reader::new(&self.bytes[self.data.end..]);
        std::iter::from_fn(move || if r.remaining() == 0 { None } else { read_group(&mut r).ok() })
    }
}

fn read_group<'a>(r: &mut Reader<'a>) -> Result<KeyGroup<'a>, DecodeError> {
    let depth = usize::from(r.u8()?);
    if depth >= MAX_KEY_PARTS {
        return Err(DecodeError::TooLong("key prefix"));
    }
    let keys = r.u32()? as usize;
    if keys == 0 {
        return Err(DecodeError::Invalid("empty key group"));
    }
    let prefixes = r.take(8 * depth)?;
    if words(prefixes).any(|hash| hash & KIND_BITS != 0) {
        return Err(DecodeError::Invalid("key prefix with a kind"));
    }
    let leaves = r.take(keys.checked_mul(8).ok_or(DecodeError::Truncated)?)?;
    Ok(KeyGroup { prefixes, leaves })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head { flags: 0x41, last_seen: Seqno(7), origin: Uuid([3; 16]), trx: 11, conn: 5 }
    }

    fn keys(ws: &WriteSet) -> Vec<(Vec<KeyHash>, KeyHash, KeyKind)> {
        ws.groups()
            .flat_map(|g| {
                let prefixes: Vec<_> = g.prefixes().collect();
                g.leaves().map(|(hash, kind)| (prefixes.clone(), hash, kind)).collect::<Vec<_>>()
            })
            .collect()
    }

    /// Found by the fuzzer: such a key was remembered, and a snapshot that held it was refused by every joiner.
    #[test]
    fn a_prefix_with_a_kind_is_refused() {
        let mut b = WriteSetBuilder::new();
        b.add_key([&b"db"[..], b"t"], KeyKind::Shared).unwrap();
        let mut bytes = b.finish(&head()).into_bytes().to_vec();
        assert!(WriteSet::parse(Bytes::from(bytes.clone())).is_ok());
        bytes[HEADER + 5] |= 1;
        assert_eq!(WriteSet::parse(Bytes::from(bytes)).err(), Some(DecodeError::Invalid("key prefix with a kind")));
    }

    #[test]
    fn round_trips_with_data_in_pieces_and_a_later_last_seen() {
        let mut b = WriteSetBuilder::new();
        b.add_key([&b"db"[..], b"t", b"row"], KeyKind::Exclusive).unwrap();
        b.add_data(b"one ");
        b.add_key([&b"db"[..], b"t"], KeyKind::Shared).unwrap();
        b.add_data(b"two");
        let (key_bytes, size) = (b.key_bytes(), b.encoded_bytes());
        let mut encoded = b.finish(&head());
        encoded.set_last_seen(Seqno(9));
        assert_eq!(encoded.len(), size);
        let ws = WriteSet::parse(encoded.into_bytes()).unwrap();
        assert_eq!(*ws.head(), Head { last_seen: Seqno(9), ..head() });
        assert_eq!(ws.data(), &b"one two"[..]);
        assert_eq!((ws.key_count(), ws.key_bytes(), ws.data_bytes()), (2, key_bytes, 7));
        let chain: Vec<_> = KeyHash::chain([&b"db"[..], b"t", b"row"]).collect();
        assert_eq!(
            keys(&ws),
            [(chain[..2].to_vec(), chain[2], KeyKind::Exclusive), (chain[..1].to_vec(), chain[1], KeyKind::Shared)]
        );
    }

    #[test]
    fn duplicate_keys_are_merged_to_the_strongest_kind_below_and_above_the_scan_limit() {
        for rows in [3u32, 100] {
            let mut b = WriteSetBuilder::new();
            for kind in [KeyKind::Reference, KeyKind::Exclusive, KeyKind::Shared] {
                for row in 0..rows {
                    b.add_key([&b"db"[..], b"t", &row.to_le_bytes()], kind).unwrap();
                }
            }
            assert_eq!(b.key_count(), rows as usize);
            let ws = WriteSet::parse(b.finish(&head()).into_bytes()).unwrap();
            assert!(keys(&ws).iter().all(|k| k.2 == KeyKind::Exclusive));
            assert_eq!(ws.groups().count(), 1);
        }
    }

    #[test]
    fn refuses_keys_without_parts_and_with_too_many() {
        let mut b = WriteSetBuilder::new();
        assert_eq!(b.add_key([], KeyKind::Shared), Err(KeyError::NoParts));
        assert_eq!(b.add_key([&b"x"[..]; MAX_KEY_PARTS + 1], KeyKind::Shared), Err(KeyError::TooManyParts));
        assert!(b.is_empty());
        assert_eq!(b.add_key([&b"x"[..]; MAX_KEY_PARTS], KeyKind::Shared), Ok(()));
        let ws = WriteSet::parse(b.finish(&head()).into_bytes()).unwrap();
        assert_eq!(keys(&ws)[0].0.len(), MAX_KEY_PARTS - 1);
    }

    #[test]
    fn every_truncation_and_every_trailing_byte_is_refused() {
        let mut b = WriteSetBuilder::new();
        b.add_key([&b"db"[..], b"t", b"row"], KeyKind::Update).unwrap();
        b.add_data(b"data");
        let whole = b.finish(&head()).into_bytes();
        for len in 0..whole.len() {
            assert!(WriteSet::parse(whole.slice(..len)).is_err(), "{len}");
        }
        let mut longer = whole.to_vec();
        longer.push(0);
        assert!(WriteSet::parse(longer.into()).is_err());
    }

    proptest::proptest! {
        #[test]
        fn damaged_bytes_never_panic(changes in proptest::collection::vec((0usize..140, proptest::num::u8::ANY), 1..6)) {
            let mut b = WriteSetBuilder::new();
            for row in 0..4u8 {
                b.add_key([&b"db"[..], b"t", &[row]], KeyKind::Update).unwrap();
            }
            b.add_data(b"data");
            let mut bytes = b.finish(&head()).into_bytes().to_vec();
            for (at, value) in changes {
                let at = at % bytes.len();
                bytes[at] = value;
            }
            if let Ok(ws) = WriteSet::parse(bytes.into()) {
                assert_eq!(ws.groups().map(|g| g.leaves().count()).sum::<usize>(), ws.key_count());
            }
        }
    }
}
