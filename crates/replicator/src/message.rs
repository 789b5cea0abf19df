//! The messages of members to all in the order, without a seqno.

use trireme_types::{DecodeError, NodeId, Reader, Seqno, Uuid, Writer};

use crate::votes::ErrorClass;

/// An open vote as the member saw it that proposed its end. In another view, after it has begun anew, or after another one has failed, that proposal
/// says nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenVote {
    /// The number of the view.
    pub view: u64,
    /// Those that have failed, in order.
    pub failed: Vec<NodeId>,
}

/// A member's ordered message that takes no seqno.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AppMessage {
    /// The sender has the state up to its own position and catches up.
    Joined,
    /// The sender has caught up.
    Synced,
    Desync,
    Resync,
    /// The sender needs a full copy, or with a `position`, where its own data are, only what a donor's script brings beside one.
    /// `donors`: `wsrep_sst_donor`; `request`: the server's opaque bytes.
    StateRequest {
        donors: String,
        request: Vec<u8>,
        position: Option<Seqno>,
    },
    /// The sender, a donor, is done with `joiner`.
    DonorDone {
        joiner: NodeId,
        ok: bool,
    },
    /// The sender has committed everything up to here.
    LastCommitted {
        seqno: Seqno,
    },
    /// How `seqno` went at the sender.
    Vote {
        seqno: Seqno,
        class: ErrorClass,
        text: String,
    },
    /// Throw the member with this UUID out, and do not let it in again (`evs.evict`); nil: forget all evictions.
    Evict {
        member: Uuid,
    },
    /// The sender's data have a statement cut off in them, at this position. It waits for somebody with whole data.
    HalfDone {
        position: Seqno,
    },
    /// All voters are here, and none has whole data: let one of them go on with what it has.
    GoOnHalfDone,
    /// `node` has reported nothing beyond `seqno`, and the memory that this pins is needed (rule 24).
    Lagging {
        node: NodeId,
        seqno: Seqno,
    },
    /// The vote on `seqno` has been open for long enough (rule 28). `as_of`: from [`trireme_types::Level::WAITS_FOR_ALL`] on; before that it ends the
    /// vote however that stands.
    CloseVote {
        seqno: Seqno,
        as_of: Option<OpenVote>,
    },
    /// The sender has no data, and no vote waits for it. From [`trireme_types::Level::WAITS_FOR_ALL`] on.
    NoData,
}

impl AppMessage {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        match self {
            AppMessage::Joined => w.u8(1),
            AppMessage::Synced => w.u8(2),
            AppMessage::Desync => w.u8(3),
            AppMessage::Resync => w.u8(4),
            AppMessage::StateRequest { donors, request, position } => {
                w.u8(5);
                w.str(donors);
                w.bytes(request);
                w.bool(position.is_some());
                position.iter().for_each(|p| w.u64(p.0));
            }
            AppMessage::DonorDone { joiner, ok } => {
                w.u8(6);
                w.uuid(joiner.0);
                w.bool(*ok);
            }
            AppMessage::LastCommitted { seqno } => {
                w.u8(7);
                w.u64(seqno.0);
            }
            AppMessage::Vote { seqno, class, text } => {
                w.u8(8);
                w.u64(seqno.0);
                w.u64(class.0);
                w.str(text);
            }
            AppMessage::Evict { member } => {
                w.u8(9);
                w.uuid(*member);
            }
            AppMessage::HalfDone { position } => {
                w.u8(10);
                w.u64(position.0);
            }
            AppMessage::GoOnHalfDone => w.u8(11),
            AppMessage::Lagging { node, seqno } => {
                w.u8(12);
                w.uuid(node.0);
                w.u64(seqno.0);
            }
            AppMessage::CloseVote { seqno, as_of: None } => {
                w.u8(13);
                w.u64(seqno.0);
            }
            AppMessage::NoData => w.u8(14),
            AppMessage::CloseVote { seqno, as_of: Some(OpenVote { view, failed }) } => {
                w.u8(15);
                w.u64(seqno.0);
                w.u64(*view);
                w.u32(failed.len() as u32);
                failed.iter().for_each(|node| w.uuid(node.0));
            }
        }
        w.buf
    }

    pub fn decode(bytes: &[u8]) -> Result<AppMessage, DecodeError> {
        let mut r = Reader::new(bytes);
        let message = match r.u8()? {
            1 => AppMessage::Joined,
            2 => AppMessage::Synced,
            3 => AppMessage::Desync,
            4 => AppMessage::Resync,
            5 => AppMessage::StateRequest {
                donors: r.str(1 << 16)?,
                request: r.bytes(1 << 24)?.to_vec(),
                position: if r.bool()? { Some(r.seqno()?) } else { None },
            },
            6 => AppMessage::DonorDone { joiner: NodeId(r.uuid()?), ok: r.bool()? },
            7 => AppMessage::LastCommitted { seqno: r.seqno()? },
            8 => AppMessage::Vote { seqno: r.seqno()?, class: ErrorClass(r.u64()?), text: r.str(1 << 16)? },
            9 => AppMessage::Evict { member: r.uuid()? },
            10 => AppMessage::HalfDone { position: r.seqno()? },
            11 => AppMessage::GoOnHalfDone,
            12 => AppMessage::Lagging { node: NodeId(r.uuid()?), seqno: r.seqno()? },
            13 => AppMessage::CloseVote { seqno: r.seqno()?, as_of: None },
            14 => AppMessage::NoData,
            15 => AppMessage::CloseVote {
                seqno: r.seqno()?,
                as_of: Some(OpenVote {
                    view: r.u64()?,
                    failed: (0..r.count(1024)?).map(|_| r.uuid().map(NodeId)).collect::<Result<_, _>>()?,
                }),
            },
            _ => return Err(DecodeError::Invalid("member message")),
        };
        r.finish()?;
        Ok(message)
    }
}
