//! Frames between members. Encoded by `Message::encode`, decoded by `Message::decode`; decoding never panics.

use bytes::Bytes;
use trireme_types::{DecodeError, Reader, Writer};

/// Which queue of a link a message takes. FIFO within a class only (SAFETY 7).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Small and urgent: never waits behind bodies.
    Control,
    /// Appends, write sets, snapshots. Never dropped while the link is up.
    Bulk,
    /// Dissemination that somebody else can repeat: dropped when the link's queue is over its limit.
    Droppable,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Placeholder until the protocol is written.
    Signal { body: Bytes },
}

impl Message {
    pub fn encode(&self, w: &mut Writer) {
        match self {
            Message::Signal { body } => w.bytes(body),
        }
    }

    pub fn decode(bytes: &Bytes) -> Result<Message, DecodeError> {
        let mut r = Reader::new(bytes);
        Ok(Message::Signal { body: Bytes::copy_from_slice(r.bytes(usize::MAX)?) })
    }
}
