//! What transports tell each other on a link, besides messages: goodbye, where others listen, and that a link lives.
//!
//! Addresses travel here and not in the handshake, because two members may join through a third at the same moment: whoever
//! is linked later is told to those who were there before.

use bytes::{Bytes, BytesMut};
use trireme_types::{DecodeError, Reader, Writer};

use crate::frame::{self, Lane, Place};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Gossip {
    /// The sender stops on purpose and is about to close.
    Bye,
    Addresses(Vec<String>),
    /// To be answered with the same number at once: it is measured how long that takes, or somebody claims that this link is gone.
    Ping(u64),
    Pong(u64),
}

const BYE: u8 = 1;
const ADDRESSES: u8 = 2;
const PING: u8 = 3;
const PONG: u8 = 4;
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
        for gossip in [Gossip::Bye, addresses, Gossip::Ping(7), Gossip::Pong(u64::MAX)] {
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
