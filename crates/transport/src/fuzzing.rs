//! For the fuzzers: what reads bytes from a socket.

use bytes::{Bytes, BytesMut};
use trireme_types::{Member, NodeId, Uuid};

use crate::frame::{self, FrameReader, Lane};
use crate::gossip::Gossip;
use crate::handshake::{Handshake, Hello};
use crate::tls::{SECRET_LEN, Session, SessionError, Side};
use crate::{TlsContext, Versions};

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

/// The dialler's first words once it is in.
const SAID: &[u8] = b"what one member says to the other, and nobody else knows";

/// Two ends that show each other a secret, and somebody between them. The first byte chooses whose secrets they have, its upper half in what pieces
/// bytes arrive; then four bytes for each thing that is done to the stream: which flight, where (two), and what.
///
/// Nobody is in without the secret, and what comes out was put in.
pub fn secret(data: &[u8]) {
    let Some((&how, rest)) = data.split_first() else { return };
    let secret = |n: u8| [n; SECRET_LEN];
    let context = |secrets: &[u8]| {
        let secrets: Vec<_> = secrets.iter().map(|n| secret(*n)).collect();
        TlsContext::of_secrets(&secrets).expect("OpenSSL knows what is needed")
    };
    // The same; another; in the middle of a change, when the second attempt shows the old one.
    let (dials, accepts, attempt, alike) = match how & 3 {
        0 => (context(&[1]), context(&[1]), 0, true),
        1 => (context(&[2]), context(&[1]), 0, false),
        2 => (context(&[2, 1]), context(&[1]), 1, true),
        _ => (context(&[1]), context(&[2, 1]), 0, true),
    };
    let mut dialler = Session::new(&dials, Side::Dialler { attempt }).expect("a session");
    let mut acceptor = Session::new(&accepts, Side::Acceptor).expect("a session");
    let harm: Vec<[u8; 4]> = rest.chunks_exact(4).map(|c| [c[0], c[1], c[2], c[3]]).collect();
    let step = usize::from(how >> 4) * 97 + 1;
    let (mut dialled, mut accepted, mut heard) = (Ok(false), Ok(false), BytesMut::new());
    let mut said = false;
    for flight in 0..8u8 {
        let from_dialler = flight % 2 == 0;
        let (from, to) = if from_dialler { (&mut dialler, &mut acceptor) } else { (&mut acceptor, &mut dialler) };
        let from_state = if from_dialler { &mut dialled } else { &mut accepted };
        if *from_state == Ok(false) {
            *from_state = from.handshake();
        }
        if from_dialler && *from_state == Ok(true) && !said {
            said = true;
            let sealed = from.encrypt(&[std::io::IoSlice::new(SAID)]);
            assert!(sealed.is_ok_and(|taken| taken == SAID.len()));
        }
        let mut wire = Vec::new();
        let sent = from.flush(|parts| {
            parts.iter().for_each(|part| wire.extend_from_slice(part));
            Ok(parts.iter().map(|part| part.len()).sum())
        });
        assert!(sent.is_ok_and(|all| all), "the wire takes everything");
        for [which, high, low, what] in harm.iter().filter(|[which, ..]| which % 8 == flight) {
            let at = usize::from(u16::from_be_bytes([*high, *low]));
            match (which / 8 % 4, wire.is_empty()) {
                (0 | 1, false) => {
                    let at = at % wire.len();
                    wire[at] ^= what;
                }
                (2, false) => wire.truncate(at % wire.len()),
                _ => wire.extend(std::iter::repeat_n(*what, at % 64)),
            }
        }
        let to_state = if from_dialler { &mut accepted } else { &mut dialled };
        for piece in wire.chunks(step) {
            to.incoming().extend_from_slice(piece);
            if *to_state == Ok(false) {
                *to_state = to.handshake();
            }
            let mut text = BytesMut::new();
            while *to_state == Ok(true) {
                match to.decrypt(&mut text) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) => *to_state = Err(SessionError::Failed { why: error.to_string() }),
                }
            }
            heard.extend_from_slice(&text);
        }
        if dialled.is_err() && accepted.is_err() {
            break;
        }
    }
    if !alike {
        assert_ne!((&dialled, &accepted), (&Ok(true), &Ok(true)), "in without the secret");
        assert!(accepted != Ok(true), "in without the secret");
    }
    assert!(SAID.starts_with(&heard), "what nobody said");
    if harm.is_empty() && alike {
        assert_eq!((dialled, accepted, &heard[..]), (Ok(true), Ok(true), SAID));
    }
}

pub fn secret_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = (0..4).flat_map(|how| [0, 0x10, 0xf0].map(|pieces| vec![how | pieces])).collect();
    // A bit of each flight turned, cut off, and something behind it.
    for flight in 0..4 {
        seeds.extend([0, 16, 24].map(|kind| vec![0xf0, flight + kind, 0, 90, 1]));
    }
    seeds
}

/// Drops so many of a thousand datagrams that arrive in this process, drawn from `seed`.
pub fn lose_datagrams(per_mille: u64, seed: u64) {
    crate::multicast::loss::set(per_mille, seed);
}

/// Datagrams of a peer. Two bytes before each say how long it is, and what is made right before it is read: with the first bit of the upper one the
/// stream, with the second one the number, with the third one the sum.
pub fn datagrams(data: &[u8]) {
    crate::multicast::fuzz(data);
}

pub fn datagram_seeds() -> Vec<Vec<u8>> {
    crate::multicast::fuzz_seeds()
}
