//! Members and views.

use crate::printable;
use crate::{DecodeError, Incarnation, NodeId, Reader, Uuid, Weight, Writer};

/// The facts of a member that every other one knows. Travels in the handshake and in view entries.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Member {
    pub node: NodeId,
    pub incarnation: Incarnation,
    /// `wsrep_node_name`, at most 31 bytes.
    pub name: String,
    /// Client address (`wsrep_node_incoming_address`), may be empty.
    pub incoming: String,
    /// `host:port` that other members dial.
    pub address: String,
    pub segment: u8,
    pub weight: Weight,
    pub kind: MemberKind,
}

/// The purpose of a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum MemberKind {
    /// A server with the cluster's data.
    #[default]
    Data,
    /// A server that counts for no state transfer, no vote on inconsistency and no commit cut (`gcs.stateless`). Its log is
    /// like any other's.
    Stateless,
    /// No server at all: as above, and it orders only to hand over (rule 14).
    Arbitrator,
}

impl MemberKind {
    /// May it be a donor, does it count in the commit cut and in votes on inconsistency?
    pub fn has_state(self) -> bool {
        self == MemberKind::Data
    }

    pub fn is_arbitrator(self) -> bool {
        self == MemberKind::Arbitrator
    }

    fn from_u8(byte: u8) -> Option<MemberKind> {
        [MemberKind::Data, MemberKind::Stateless, MemberKind::Arbitrator].into_iter().find(|k| *k as u8 == byte)
    }
}

impl Member {
    /// The member UUID that the server sees: voter id + incarnation, new at every start (rule 12).
    pub fn uuid(&self) -> Uuid {
        let mut bytes = self.node.0.0;
        let tail = u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]).wrapping_add(self.incarnation.0);
        bytes[12..].copy_from_slice(&tail.to_be_bytes());
        Uuid(bytes)
    }

    pub fn encode(&self, w: &mut Writer) {
        w.uuid(self.node.0);
        w.u32(self.incarnation.0);
        w.str(&self.name);
        w.str(&self.incoming);
        w.str(&self.address);
        w.u8(self.segment);
        w.u8(self.weight.0);
        w.u8(self.kind as u8);
    }

    pub fn decode(r: &mut Reader<'_>) -> Result<Member, DecodeError> {
        Ok(Member {
            node: NodeId(r.uuid()?),
            incarnation: Incarnation(r.u32()?),
            // Shown in logs and status of every node: cleaned here, where they enter, so alike everywhere.
            name: printable(&r.str(256)?),
            incoming: printable(&r.str(1024)?),
            address: printable(&r.str(1024)?),
            segment: r.u8()?,
            weight: Weight(r.u8()?),
            kind: MemberKind::from_u8(r.u8()?).ok_or(DecodeError::Invalid("member kind"))?,
        })
    }
}

/// The members, as the server and operators see them. An ordered entry that takes one seqno.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// Rises by one with every view of a history.
    pub number: u64,
    /// In join order, the same on every member: `auto_increment_offset` comes from the position.
    pub members: Vec<Member>,
}

impl View {
    pub fn position(&self, node: NodeId) -> Option<usize> {
        self.members.iter().position(|m| m.node == node)
    }

    pub fn get(&self, node: NodeId) -> Option<&Member> {
        self.members.iter().find(|m| m.node == node)
    }

    pub fn encode(&self, w: &mut Writer) {
        w.u64(self.number);
        w.u32(self.members.len() as u32);
        for m in &self.members {
            m.encode(w);
        }
    }

    pub fn decode(r: &mut Reader<'_>) -> Result<View, DecodeError> {
        let number = r.number("view number")?;
        let count = r.count(1024)?;
        let members = (0..count).map(|_| Member::decode(r)).collect::<Result<_, _>>()?;
        Ok(View { number, members })
    }
}

/// The meaning of an acknowledgement (`repl.durability`): one ordered, cluster-wide setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// After fdatasync: survives power loss of all nodes.
    #[default]
    Disk,
    /// After the write: survives the death of all processes.
    Process,
}
