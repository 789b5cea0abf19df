//! For the fuzzers: what reads bytes from a socket.

use bytes::{Bytes, BytesMut};
use trireme_types::{Member, NodeId, Uuid};

use crate::Versions;
use crate::frame::{self, FrameReader, Lane};
use crate::gossip::Gossip;
use crate::handshake::{Handshake, Hello};

/// Messages are at most this long here, so that the limit is met.
const MESSAGE_MAX: u64 = 1 << 16;

/// A stream of chunks. With the first byte odd the headers' checksums are made right, as far as the chunks can be followed;
/// its upper half says in what pieces the stream arrives.
pub fn frames(data: &[u8]) {
    let Some((&how, wire)) = data.split_first() else { return };
    let mut wire = wire.to_vec();
    if how & 1 == 1 {
        frame::seal(&mut wire);
    }
    let step = usize::from(how >> 4) * 37 + 1;
    let whole = read(&wire, wire.len().max(1));
    let pieces = read(&wire, step);
    assert_eq!(whole, pieces, "how the bytes arrive makes no difference");
}

type Read = (Vec<(Lane, Bytes)>, bool);

fn read(wire: &[u8], step: usize) -> Read {
    let mut reader = FrameReader::new(MESSAGE_MAX);
    let mut buf = BytesMut::new();
    let mut out = Vec::new();
    for piece in wire.chunks(step) {
        buf.extend_from_slice(piece);
        loop {
            match reader.next(&mut buf) {
                Ok(Some((lane, body))) => {
                    assert!(body.len() as u64 <= MESSAGE_MAX.max(frame::CHUNK_MAX as u64));
                    out.push((lane, body));
                }
                Ok(None) => break,
                Err(_) => return (out, true),
            }
        }
    }
    (out, false)
}

pub fn frame_seeds() -> Vec<Vec<u8>> {
    use trireme_order::Class::{Bulk, Control, Droppable};
    let mut wire = Vec::new();
    for (class, len, sum) in [(Control, 9, true), (Bulk, 300, false), (Droppable, 0, true), (Control, 40, false)] {
        let (place, body) = (frame::Place { first: true, last: true }, vec![7; len]);
        wire.extend_from_slice(&frame::header(Lane::Class(class), place, sum, &[&body]));
        wire.extend_from_slice(&body);
    }
    // A message in three chunks.
    let mut long = Vec::new();
    let total = 24u64.to_le_bytes();
    for (at, part) in [&total[..], &[1; 12], &[2; 12]].into_iter().enumerate() {
        let place = frame::Place { first: at == 0, last: at == 2 };
        long.extend_from_slice(&frame::header(Lane::Class(Bulk), place, true, &[part]));
        long.extend_from_slice(part);
    }
    [wire, long].into_iter().flat_map(|wire| [0u8, 1, 0x31].map(|how| [&[how][..], &wire].concat())).collect()
}

/// The first bytes of a connection. With the first byte odd the checksum is made right.
pub fn handshake(data: &[u8]) {
    let Some((&how, wire)) = data.split_first() else { return };
    let mut buf = BytesMut::from(wire);
    if how & 1 == 1 {
        crate::handshake::seal(&mut buf);
    }
    while let Ok(Some(one)) = Handshake::take(&mut buf) {
        let mut again = BytesMut::from(&one.encode()[..]);
        assert_eq!(Handshake::take(&mut again), Ok(Some(one)));
        assert!(again.is_empty());
    }
}

pub fn handshake_seeds() -> Vec<Vec<u8>> {
    use crate::handshake::{LinkId, Refusal};
    let hello = Hello {
        versions: Versions { min: 1, max: 1 },
        cluster: "c".into(),
        instance: 3,
        member: Member { node: NodeId(Uuid([7; 16])), name: "n1".into(), address: "a:1".into(), ..Member::default() },
        levels: trireme_types::Levels::UNSAID,
        level: trireme_types::Level::FIRST,
    };
    [
        Handshake::Hello(hello),
        Handshake::Refuse { refusal: Refusal::Cluster, instance: 1, text: "no".into() },
        Handshake::Ready { link: LinkId(5), number: 6 },
        Handshake::Confirm { link: LinkId(7) },
        Handshake::Ack { number: 8 },
    ]
    .into_iter()
    .flat_map(|one| [0u8, 1].map(|how| [&[how][..], &one.encode()].concat()))
    .collect()
}

pub fn gossip(data: &[u8]) {
    if let Ok(Some(gossip)) = Gossip::decode(data) {
        let again = gossip.encode();
        assert_eq!(Gossip::decode(&again[frame::HEADER..]), Ok(Some(gossip)));
    }
}

pub fn gossip_seeds() -> Vec<Vec<u8>> {
    [Gossip::Bye, Gossip::Addresses(vec!["a:1".into(), "[::1]:4567".into()])]
        .into_iter()
        .map(|one| one.encode()[frame::HEADER..].to_vec())
        .collect()
}
