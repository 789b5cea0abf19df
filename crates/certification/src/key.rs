//! Key kinds, what they do to each other, and how a key becomes a number.
//!
//! The tables are those of Galera 4 as measured (first = lower seqno). They are nested: each kind conflicts with, and orders, at least
//! what the weaker kinds do. [`crate::records`] relies on that to forget records that a newer and stronger one covers; the tests below
//! check it.

use std::hash::Hasher;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// How a transaction uses a row, table or database. Ordered by strength.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum KeyKind {
    /// The row was relied on, weakly (a child table of a changed parent).
    Shared = 0,
    /// The row is referenced by a new or changed child row.
    Reference = 1,
    /// The row was changed, this key of it was not.
    Update = 2,
    /// The row was added or removed under this key.
    Exclusive = 3,
}

impl KeyKind {
    pub const ALL: [KeyKind; 4] = [KeyKind::Shared, KeyKind::Reference, KeyKind::Update, KeyKind::Exclusive];

    /// The kind that the C API numbers `n`.
    pub fn from_u8(n: u8) -> Option<KeyKind> {
        Self::ALL.get(usize::from(n)).copied()
    }

    fn from_low_bits(n: u64) -> KeyKind {
        Self::ALL[(n & KIND_BITS) as usize]
    }
}

/// Where the first key lies relative to the second one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Same parts.
    Same,
    /// The first key is a proper prefix of the second.
    Above,
    /// The second key is a proper prefix of the first.
    Below,
}

/// Does `second` fail when it had not seen `first` and comes from elsewhere? (Neither is a TOI.)
pub(crate) fn conflicts(first: KeyKind, place: Place, second: KeyKind) -> bool {
    use KeyKind::{Exclusive, Reference, Shared, Update};
    match place {
        Place::Same => match first {
            Shared => false,
            Reference => second == Exclusive,
            Update => second >= Update,
            Exclusive => true,
        },
        Place::Above => first == Exclusive,
        Place::Below => second == Exclusive,
    }
}

/// Must `first` have committed before `second` may be applied?
pub(crate) fn orders(first: KeyKind, place: Place, second: KeyKind) -> bool {
    use KeyKind::Update;
    match place {
        Place::Same => first >= Update || second >= Update,
        Place::Above => first >= Update,
        Place::Below => second >= Update,
    }
}

/// The server uses at most three; the rest is headroom.
pub const MAX_KEY_PARTS: usize = 8;

/// Why a key was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyError {
    /// A key without parts would be a prefix of every other one.
    NoParts,
    /// More than [`MAX_KEY_PARTS`].
    TooManyParts,
}

impl std::fmt::Display for KeyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeyError::NoParts => f.write_str("key without parts"),
            KeyError::TooManyParts => write!(f, "key with more than {MAX_KEY_PARTS} parts"),
        }
    }
}

impl std::error::Error for KeyError {}

/// The low bits of an encoded leaf hold its kind; hashes are used without them.
pub(crate) const KIND_BITS: u64 = 3;

/// Identifies a key or a prefix: a hash of its parts. Two keys may share one; that costs an abort or a wait, never correctness, because
/// every member hashes alike (the origin hashes, the others read).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct KeyHash(pub(crate) u64);

impl KeyHash {
    /// Start of every chain. A number of our own, so that hashes differ from plain xxh3 of the same bytes.
    const ROOT: u64 = 0x5472_6972_656d_6531;

    /// The hash of `parts` up to each of them, in order. Each part is hashed with the hash of what precedes it as the seed, so that part
    /// boundaries and their number matter.
    pub(crate) fn chain<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> impl Iterator<Item = KeyHash> {
        parts.into_iter().scan(Self::ROOT, |seed, part| {
            *seed = xxh3_64_with_seed(part, *seed);
            Some(KeyHash(*seed & !KIND_BITS))
        })
    }

    pub(crate) fn with_kind(self, kind: KeyKind) -> u64 {
        self.0 | kind as u64
    }

    pub(crate) fn split(leaf: u64) -> (KeyHash, KeyKind) {
        (KeyHash(leaf & !KIND_BITS), KeyKind::from_low_bits(leaf))
    }
}

/// Keys are hashes already; only the low bits, where the kind used to be, need filling.
#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*b);
        }
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = n ^ (n >> 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: [Place; 3] = [Place::Same, Place::Above, Place::Below];

    #[test]
    fn a_stronger_first_key_covers_a_weaker_one() {
        for place in PLACES {
            for second in KeyKind::ALL {
                for pair in KeyKind::ALL.windows(2) {
                    assert!(
                        !conflicts(pair[0], place, second) || conflicts(pair[1], place, second),
                        "{pair:?} {place:?} {second:?}"
                    );
                    assert!(
                        !orders(pair[0], place, second) || orders(pair[1], place, second),
                        "{pair:?} {place:?} {second:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn below_a_prefix_the_kind_of_the_first_key_does_not_matter() {
        for second in KeyKind::ALL {
            for first in KeyKind::ALL {
                assert_eq!(conflicts(first, Place::Below, second), conflicts(KeyKind::Shared, Place::Below, second));
                assert_eq!(orders(first, Place::Below, second), orders(KeyKind::Shared, Place::Below, second));
            }
        }
    }

    #[test]
    fn what_conflicts_is_also_ordered() {
        for place in PLACES {
            for first in KeyKind::ALL {
                for second in KeyKind::ALL {
                    assert!(!conflicts(first, place, second) || orders(first, place, second));
                }
            }
        }
    }

    #[test]
    fn part_boundaries_and_count_matter() {
        let hash = |parts: &[&[u8]]| KeyHash::chain(parts.iter().copied()).last().unwrap();
        let keys: [&[&[u8]]; 6] =
            [&[b"ab", b"c"], &[b"a", b"bc"], &[b"abc"], &[b"abc", b""], &[b"", b"abc"], &[b"ab", b"c", b""]];
        for (at, a) in keys.iter().enumerate() {
            for b in &keys[at + 1..] {
                assert_ne!(hash(a), hash(b), "{a:?} {b:?}");
            }
        }
    }

    /// Hashes are stored in logs and travel between versions: this number must not change.
    #[test]
    fn hash_of_a_known_key_is_stable() {
        let known = KeyHash::chain([&b"db"[..], b"table", b"\x00\x0b\x00\x00\x00"]).last().unwrap();
        assert_eq!(known.0 & KIND_BITS, 0);
        assert_eq!(known.0, 0xf53b_b0d1_46b5_5dac);
    }
}
