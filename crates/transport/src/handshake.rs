//! How two members agree on one link.
//!
//! Both may dial each other at once, and one end may lose a link that the other still believes in. So that both always keep
//! the same connection, the node with the smaller id is the *arbiter* of the pair and decides alone:
//!
//! ```text
//! dialler   -> Hello                        who I am, which cluster, which versions
//! acceptor  -> Hello        or Refuse
//! other end -> Ready                        "my link with you is <id>" (0: none)
//! arbiter   -> Confirm      or Refuse       "this connection is link <id>"
//! other end -> Ack                          here its link is up; messages follow
//! arbiter      (on Ack)                     here its link is up
//! ```
//!
//! The arbiter refuses a second connection while the other end has the arbiter's link, and replaces its link when the other
//! end says it has none. A `Ready` may have been written before an `Ack` that the arbiter has read already, so both carry a
//! number that rises at the sender, and an older `Ready` counts for nothing.
//!
//! A stranger gets no answer before it has sent a whole, valid `Hello`.
//!
//! ```text
//! offset size
//!      0    8  "TRIREME\x01"
//!      8    4  length of the body, at most BODY_MAX
//!     12    4  CRC-32 of bytes 0..12 and the body
//!     16       body: kind (1), then its fields; fields may be appended by later versions and are then ignored by earlier ones
//! ```

use bytes::{Buf, Bytes, BytesMut};
use trireme_types::{DecodeError, Level, Levels, Member, NodeId, Reader, Writer};

use crate::Versions;

pub(crate) const MAGIC: &[u8; 8] = b"TRIREME\x01";
const HEADER: usize = 16;
/// All a stranger can make us hold.
pub(crate) const BODY_MAX: usize = 4 << 10;
/// Enough for any handshake message.
pub(crate) const WHOLE_MAX: usize = HEADER + BODY_MAX;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Handshake {
    Hello(Hello),
    Refuse { refusal: Refusal, instance: u64, text: String },
    Ready { link: LinkId, number: u64 },
    Confirm { link: LinkId },
    Ack { number: u64 },
}

/// Named by the arbiter; zero is "none".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LinkId(pub u64);

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub versions: Versions,
    pub cluster: String,
    /// Drawn anew by every transport: tells the own reflection from a second process with the same id.
    pub instance: u64,
    pub member: Member,
    /// The group levels that its build supports, and the one that its group is at. A build that says nothing knows the first one only.
    pub levels: Levels,
    pub level: Level,
}

/// Why a connection is refused; decides what the dialler does about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    Cluster = 1,
    Versions = 2,
    /// The dialler's own listening address.
    Own = 3,
    /// The same node id is alive elsewhere.
    Cloned = 4,
    /// A newer incarnation of the node is linked.
    Stale = 5,
    /// There is a link already.
    Duplicate = 6,
    /// Thrown out not long ago.
    Forgotten = 7,
    /// An older incarnation of the node is linked, and has just answered.
    Alive = 8,
}

impl Refusal {
    fn from_u8(b: u8) -> Option<Refusal> {
        Some(match b {
            1 => Refusal::Cluster,
            2 => Refusal::Versions,
            3 => Refusal::Own,
            4 => Refusal::Cloned,
            5 => Refusal::Stale,
            6 => Refusal::Duplicate,
            7 => Refusal::Forgotten,
            8 => Refusal::Alive,
            _ => return None,
        })
    }
}

/// The bytes that a peer sent instead of a handshake. The texts go on from "it sent".
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NoHandshake {
    /// Another protocol's first bytes, named as far as they can be.
    #[error("{0}")]
    Foreign(&'static str),
    #[error("a handshake of {0} bytes")]
    TooLong(usize),
    #[error("a damaged handshake")]
    Damaged,
    #[error("an unreadable handshake: {0}")]
    Unreadable(#[from] DecodeError),
}

/// Is `me` the one who decides about links with `peer`?
pub(crate) fn is_arbiter(me: NodeId, peer: NodeId) -> bool {
    me < peer
}

impl Handshake {
    pub fn encode(&self) -> Bytes {
        let mut w = Writer::new();
        w.raw(MAGIC);
        w.raw(&[0; 8]);
        match self {
            Handshake::Hello(hello) => {
                w.u8(1);
                w.u16(hello.versions.min);
                w.u16(hello.versions.max);
                w.str(clip(&hello.cluster, CLUSTER_MAX));
                w.u64(hello.instance);
                hello.member.encode(&mut w);
                w.u16(hello.levels.min.0);
                w.u16(hello.levels.max.0);
                w.u16(hello.level.0);
            }
            Handshake::Refuse { refusal, instance, text } => {
                w.u8(2);
                w.u8(*refusal as u8);
                w.u64(*instance);
                w.str(clip(text, TEXT_MAX));
            }
            Handshake::Ready { link, number } => {
                w.u8(3);
                w.u64(link.0);
                w.u64(*number);
            }
            Handshake::Confirm { link } => {
                w.u8(4);
                w.u64(link.0);
            }
            Handshake::Ack { number } => {
                w.u8(5);
                w.u64(*number);
            }
        }
        let len = (w.buf.len() - HEADER) as u32;
        debug_assert!(len as usize <= BODY_MAX, "every field has a limit");
        w.buf[8..12].copy_from_slice(&len.to_le_bytes());
        let crc = checksum(&w.buf[..12], &w.buf[HEADER..]);
        w.buf[12..16].copy_from_slice(&crc.to_le_bytes());
        w.buf.into()
    }

    /// Takes one from the front of `buf`; `None` when more must arrive first.
    pub fn take(buf: &mut BytesMut) -> Result<Option<Handshake>, NoHandshake> {
        let n = buf.len().min(MAGIC.len());
        if buf[..n] != MAGIC[..n] {
            return Err(NoHandshake::Foreign(guess(buf)));
        }
        if buf.len() < HEADER {
            return Ok(None);
        }
        let word = |at: usize| u32::from_le_bytes([buf[at], buf[at + 1], buf[at + 2], buf[at + 3]]);
        let (len, crc) = (word(8) as usize, word(12));
        if len > BODY_MAX {
            return Err(NoHandshake::TooLong(len));
        }
        if buf.len() < HEADER + len {
            return Ok(None);
        }
        if checksum(&buf[..12], &buf[HEADER..HEADER + len]) != crc {
            return Err(NoHandshake::Damaged);
        }
        buf.advance(HEADER);
        let body = buf.split_to(len);
        Ok(Some(Handshake::decode(&body)?))
    }

    fn decode(body: &[u8]) -> Result<Handshake, DecodeError> {
        let mut r = Reader::new(body);
        Ok(match r.u8()? {
            1 => {
                let mut hello = Hello {
                    versions: Versions { min: r.u16()?, max: r.u16()? },
                    cluster: r.str(CLUSTER_MAX)?,
                    instance: r.u64()?,
                    member: Member::decode(&mut r)?,
                    levels: Levels::UNSAID,
                    level: Level::FIRST,
                };
                if r.remaining() > 0 {
                    hello.levels = Levels { min: Level(r.u16()?), max: Level(r.u16()?) };
                    hello.level = Level(r.u16()?);
                }
                // Where a node is named the nil id says "none".
                if hello.member.node.0.is_nil() {
                    return Err(DecodeError::Invalid("node id"));
                }
                Handshake::Hello(hello)
            }
            2 => Handshake::Refuse {
                refusal: Refusal::from_u8(r.u8()?).ok_or(DecodeError::Invalid("refusal"))?,
                instance: r.u64()?,
                text: r.str(TEXT_MAX)?,
            },
            3 => Handshake::Ready { link: LinkId(r.u64()?), number: r.u64()? },
            4 => Handshake::Confirm { link: LinkId(r.u64()?) },
            5 => Handshake::Ack { number: r.u64()? },
            _ => return Err(DecodeError::Invalid("handshake kind")),
        })
    }

    pub fn name(&self) -> &'static str {
        match self {
            Handshake::Hello(_) => "Hello",
            Handshake::Refuse { .. } => "Refuse",
            Handshake::Ready { .. } => "Ready",
            Handshake::Confirm { .. } => "Confirm",
            Handshake::Ack { .. } => "Ack",
        }
    }
}

const CLUSTER_MAX: usize = 256;
const TEXT_MAX: usize = 1024;

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(head);
    crc.update(body);
    crc.finalize()
}

/// Makes magic and checksum of a damaged handshake right.
#[cfg(feature = "fuzzing")]
pub(crate) fn seal(wire: &mut [u8]) {
    if wire.len() < HEADER {
        return;
    }
    wire[..8].copy_from_slice(MAGIC);
    let len = wire.len() - HEADER;
    wire[8..12].copy_from_slice(&(len as u32).to_le_bytes());
    let crc = checksum(&wire[..12], &wire[HEADER..]);
    wire[12..16].copy_from_slice(&crc.to_le_bytes());
}

/// At most `max` bytes of `text`, cut between characters.
pub(crate) fn clip(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The protocol that a stranger seems to speak: says more to the reader of the log than "bad magic".
fn guess(bytes: &[u8]) -> &'static str {
    let starts = |text: &str| {
        let n = text.len().min(bytes.len());
        n >= 2 && bytes[..n] == text.as_bytes()[..n]
    };
    if ["GET ", "POST ", "PUT ", "HEAD ", "OPTIONS ", "CONNECT ", "PRI * HTTP"].into_iter().any(starts) {
        "an HTTP request"
    } else if matches!(bytes, [0x15 | 0x16, 0x03, ..]) {
        "TLS (is socket.ssl on at one end only?)"
    } else if starts("SSH-") {
        "an SSH client"
    } else {
        "something that is not this protocol (a port scanner, or a member that runs other software)"
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use trireme_types::{Incarnation, MemberKind, Uuid, Weight};

    use super::*;

    #[test]
    fn a_member_without_an_id_is_refused() {
        let versions = Versions { min: 1, max: 1 };
        let hello = Hello {
            versions,
            cluster: "c".into(),
            instance: 1,
            member: Member::default(),
            levels: Levels::UNSAID,
            level: Level::FIRST,
        };
        let mut wire = BytesMut::from(&Handshake::Hello(hello).encode()[..]);
        assert!(Handshake::take(&mut wire).unwrap_err().to_string().contains("node id"));
    }

    fn all() -> Vec<Handshake> {
        let long = |n| "x".repeat(n);
        let member = Member {
            node: NodeId(Uuid([7; 16])),
            incarnation: Incarnation(3),
            name: long(31),
            incoming: long(256),
            address: long(256),
            segment: 1,
            weight: Weight(2),
            kind: MemberKind::Data,
        };
        let versions = Versions { min: 1, max: 4 };
        let levels = Levels { min: Level(2), max: Level(5) };
        vec![
            Handshake::Hello(Hello { versions, cluster: long(32), instance: 9, member, levels, level: Level(3) }),
            Handshake::Refuse { refusal: Refusal::Cluster, instance: 4, text: long(100) },
            Handshake::Ready { link: LinkId(5), number: 6 },
            Handshake::Confirm { link: LinkId(7) },
            Handshake::Ack { number: 8 },
        ]
    }

    #[test]
    fn round_trips_byte_by_byte() {
        for message in all() {
            let wire = message.encode();
            let mut buf = BytesMut::new();
            for (at, byte) in wire.iter().enumerate() {
                buf.extend_from_slice(&[*byte]);
                let got = Handshake::take(&mut buf).unwrap();
                assert_eq!(got, (at + 1 == wire.len()).then(|| message.clone()));
            }
            assert!(buf.is_empty());
        }
    }

    #[test]
    fn fields_of_later_versions_are_ignored() {
        let wire = all()[0].encode();
        let mut longer = wire[..].to_vec();
        longer.extend_from_slice(b"more");
        longer[8..12].copy_from_slice(&((wire.len() - HEADER + 4) as u32).to_le_bytes());
        let crc = checksum(&longer[..12], &longer[HEADER..]);
        longer[12..16].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Handshake::take(&mut BytesMut::from(&longer[..])), Ok(Some(all()[0].clone())));
    }

    #[test]
    fn a_build_that_says_nothing_of_levels_knows_the_first_one() {
        let Handshake::Hello(mut hello) = all().swap_remove(0) else { panic!("the first one is a hello") };
        let wire = Handshake::Hello(hello.clone()).encode();
        let mut shorter = wire[..wire.len() - 6].to_vec();
        shorter[8..12].copy_from_slice(&((wire.len() - HEADER - 6) as u32).to_le_bytes());
        let crc = checksum(&shorter[..12], &shorter[HEADER..]);
        shorter[12..16].copy_from_slice(&crc.to_le_bytes());
        (hello.levels, hello.level) = (Levels::UNSAID, Level::FIRST);
        assert_eq!(Handshake::take(&mut BytesMut::from(&shorter[..])), Ok(Some(Handshake::Hello(hello))));
    }

    #[test]
    fn strangers_are_named() {
        for (sent, named) in [
            (&b"GET / HTTP/1.1\r\n"[..], "HTTP"),
            (&[0x16, 0x03, 0x01, 0x02, 0x00][..], "TLS"),
            (&[0x15, 0x03, 0x01, 0x00, 0x02][..], "TLS"),
            (b"SSH-2.0-x", "SSH"),
            (b"\0\0\0\0", "not this protocol"),
            (b"TRIREME\x01\xff\xff\xff\xff\0\0\0\0", "4294967295 bytes"),
        ] {
            let error = Handshake::take(&mut BytesMut::from(sent)).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn damage_never_panics_and_is_noticed(which in 0usize..5, at in any::<usize>(), bit in 0u8..8) {
            let mut wire = all()[which].encode().to_vec();
            let at = at % wire.len();
            wire[at] ^= 1 << bit;
            prop_assert!(matches!(Handshake::take(&mut BytesMut::from(&wire[..])), Ok(None) | Err(_)));
        }

        #[test]
        fn any_body_never_panics(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Handshake::decode(&body);
        }
    }
}
