//! The messages of transports to each other on a link, besides those of the order: goodbye, where others listen, that a link
//! lives, and what is sent by multicast.
//!
//! Addresses travel here and not in the handshake, because two members may join through a third at the same moment: whoever
//! is linked later is told to those who were there before.

use bytes::{Bytes, BytesMut};
use trireme_types::{DecodeError, Reader, Writer};

use crate::frame::{self, Lane, Place};
use crate::multicast::Key;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Gossip {
    /// The sender stops on purpose and is about to close.
    Bye,
    Addresses(Vec<String>),
    /// To be answered with the same number at once: it is measured how long that takes, or somebody claims that this link is gone.
    Ping(u64),
    Pong(u64),
    /// By multicast the sender sends this stream, under this key (none: in clear text), and has sent so many datagrams. To be answered by `Heard`.
    Stream {
        stream: u64,
        key: Option<Key>,
        sent: u64,
    },
    /// When the other had sent so many, so many had been heard, since the stream was first announced on this link.
    Heard {
        stream: u64,
        sent: u64,
        heard: u64,
    },
}

const BYE: u8 = 1;
const ADDRESSES: u8 = 2;
const PING: u8 = 3;
const PONG: u8 = 4;
const STREAM: u8 = 5;
const HEARD: u8 = 6;
/// 253 for the host, and room for brackets and port.
const ADDRESS_MAX: usize = 272;
/// In one message: fits into a chunk whatever the addresses are. More members than a cluster has.
const COUNT_MAX: usize = 200;
const _: () = assert!(1 + 4 + COUNT_MAX * (8 + ADDRESS_MAX) <= frame::CHUNK_MAX);

impl Gossip {
    /// One whole chunk.
    pub fn encode(&self) -> Bytes {
        let mut w = Writer::new();
        match self {
            Gossip::Bye => w.u8(BYE),
            Gossip::Addresses(addresses) => {
                w.u8(ADDRESSES);
                let fitting: Vec<&String> =
                    addresses.iter().filter(|text| text.len() <= ADDRESS_MAX).take(COUNT_MAX).collect();
                w.u32(fitting.len() as u32);
                fitting.into_iter().for_each(|text| w.str(text));
            }
            Gossip::Ping(number) => {
                w.u8(PING);
                w.u64(*number);
            }
            Gossip::Pong(number) => {
                w.u8(PONG);
                w.u64(*number);
            }
            Gossip::Stream { stream, key, sent } => {
                w.u8(STREAM);
                w.u64(*stream);
                w.u64(*sent);
                w.bytes(key.as_ref().map_or(&[], |key| &key[..]));
            }
            Gossip::Heard { stream, sent, heard } => {
                w.u8(HEARD);
                [stream, sent, heard].into_iter().for_each(|n| w.u64(*n));
            }
        }
        let mut out = BytesMut::new();
        out.extend_from_slice(&frame::header(Lane::Own, Place { first: true, last: true }, true, &[&w.buf]));
        out.extend_from_slice(&w.buf);
        out.freeze()
    }

    /// `None` for what only later versions know.
    pub fn decode(body: &[u8]) -> Result<Option<Gossip>, DecodeError> {
        let mut r = Reader::new(body);
        Ok(match r.u8()? {
            BYE => Some(Gossip::Bye),
            ADDRESSES => {
                let count = r.count(COUNT_MAX)?;
                Some(Gossip::Addresses((0..count).map(|_| r.str(ADDRESS_MAX)).collect::<Result<_, _>>()?))
            }
            PING => Some(Gossip::Ping(r.u64()?)),
            PONG => Some(Gossip::Pong(r.u64()?)),
            STREAM => {
                let (stream, sent, key) = (r.u64()?, r.u64()?, r.bytes(size_of::<Key>())?);
                let key = match key.len() {
                    0 => None,
                    _ => Some(Key::try_from(key).map_err(|_| DecodeError::Invalid("key"))?),
                };
                Some(Gossip::Stream { stream, key, sent })
            }
            HEARD => Some(Gossip::Heard { stream: r.u64()?, sent: r.u64()?, heard: r.u64()? }),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn round_trips() {
        let addresses = Gossip::Addresses(vec!["a:1".to_owned(), "b:2".to_owned()]);
        let stream = |key| Gossip::Stream { stream: 5, key, sent: 6 };
        let heard = Gossip::Heard { stream: 5, sent: 6, heard: 7 };
        let more = [stream(None), stream(Some([7; 32])), heard];
        for gossip in [Gossip::Bye, addresses, Gossip::Ping(7), Gossip::Pong(u64::MAX)].into_iter().chain(more) {
            assert_eq!(Gossip::decode(&gossip.encode()[frame::HEADER..]), Ok(Some(gossip)));
        }
        assert_eq!(Gossip::decode(&[77, 1, 2]), Ok(None));
    }

    #[test]
    fn too_many_addresses_are_cut_to_fit() {
        let gossip = Gossip::Addresses((0..1000).map(|n| format!("{n:0>270}:1")).collect());
        let wire = gossip.encode();
        assert!(wire.len() <= frame::HEADER + frame::CHUNK_MAX);
        let Ok(Some(Gossip::Addresses(got))) = Gossip::decode(&wire[frame::HEADER..]) else { panic!() };
        assert_eq!(got.len(), COUNT_MAX);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn garbage_never_panics(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Gossip::decode(&body);
        }
    }
}
