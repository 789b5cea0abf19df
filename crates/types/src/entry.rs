//! Log entries and the durable state around them.

use bytes::Bytes;

use crate::{
    DecodeError, Durability, Level, Lineage, LogIndex, NodeId, ProposalNumber, Reader, Seqno, Session, Term, Uuid,
    View, Weight, Writer,
};

/// The kind of an entry. Only `WriteSet` and `View` take a seqno (rule 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum EntryKind {
    /// First entry of every term. Payload: nothing; from level 2 on who orders in this term (its id and its name).
    Term = 0,
    /// A write set or a total-order-isolated statement. Payload: opaque to the order. Takes a seqno.
    WriteSet = 1,
    /// Payload: [`View`]. Takes a seqno.
    View = 2,
    /// A change of the voters. Payload: [`VoterSet`].
    Voters = 3,
    /// A member's ordered message that takes no seqno (state transfer, joined, synced, votes). Payload: opaque to the order.
    App = 4,
    /// A setting that is in force in the whole group from here on. Payload: [`Setting`](crate::Setting).
    Setting = 5,
}

impl EntryKind {
    pub fn from_u8(b: u8) -> Option<EntryKind> {
        Some(match b {
            0 => EntryKind::Term,
            1 => EntryKind::WriteSet,
            2 => EntryKind::View,
            3 => EntryKind::Voters,
            4 => EntryKind::App,
            5 => EntryKind::Setting,
            _ => return None,
        })
    }

    pub fn takes_seqno(self) -> bool {
        matches!(self, EntryKind::WriteSet | EntryKind::View)
    }
}

/// Everything about an entry but its payload (rule 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryHeader {
    pub index: LogIndex,
    pub term: Term,
    /// Seqno after this entry: the entry's own one when its kind takes one, else that of the last entry that did.
    pub seqno: Seqno,
    /// Index of the `Voters` entry in force *before* this entry.
    pub voters: LogIndex,
    /// The proposer and its number for the entry; (node nil, 0) for the sequencer's own internal entries.
    pub session: Session,
    /// Rises by one from 1 within a session; 0 for internal entries.
    pub number: ProposalNumber,
    pub kind: EntryKind,
}

impl EntryHeader {
    pub const ENCODED: usize = 8 * 4 + 16 + 8 + 8 + 1;

    /// The place of this entry among the proposals of its origin.
    pub fn mark(&self) -> SessionMark {
        SessionMark { session: self.session, number: self.number }
    }

    pub fn encode(&self, w: &mut Writer) {
        w.u64(self.index.0);
        w.u64(self.term.0);
        w.u64(self.seqno.0);
        w.u64(self.voters.0);
        w.uuid(self.session.node.0);
        w.u64(self.session.number);
        w.u64(self.number.0);
        w.u8(self.kind as u8);
    }

    pub fn decode(r: &mut Reader<'_>) -> Result<EntryHeader, DecodeError> {
        Ok(EntryHeader {
            index: r.index()?,
            term: r.term()?,
            seqno: r.seqno()?,
            voters: r.index()?,
            session: Session { node: NodeId(r.uuid()?), number: r.u64()? },
            number: r.proposal_number()?,
            kind: EntryKind::from_u8(r.u8()?).ok_or(DecodeError::Invalid("entry kind"))?,
        })
    }
}

/// One entry of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub header: EntryHeader,
    pub payload: Bytes,
}

/// One voter and its weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Voter {
    pub node: NodeId,
    pub weight: Weight,
}

/// The durable members whose weighted majority commits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VoterSet {
    pub voters: Vec<Voter>,
    /// The id that a forced change draws (`pc.bootstrap`, `pc.ignore_sb`, forced bootstrap): a fork record (rule 13). Nil for all
    /// others.
    pub fork: Uuid,
}

impl VoterSet {
    pub fn contains(&self, node: NodeId) -> bool {
        self.voters.iter().any(|v| v.node == node)
    }

    pub fn weight(&self, node: NodeId) -> u32 {
        self.voters.iter().find(|v| v.node == node).map_or(0, |v| u32::from(v.weight.0))
    }

    pub fn total(&self) -> u32 {
        self.voters.iter().map(|v| u32::from(v.weight.0)).sum()
    }

    /// Does `holds` say yes for more than half of the weight?
    pub fn majority(&self, holds: impl Fn(NodeId) -> bool) -> bool {
        let sum: u32 = self.voters.iter().filter(|v| holds(v.node)).map(|v| u32::from(v.weight.0)).sum();
        2 * sum > self.total()
    }

    pub fn encode(&self, w: &mut Writer) {
        w.uuid(self.fork);
        w.u32(self.voters.len() as u32);
        for v in &self.voters {
            w.uuid(v.node.0);
            w.u8(v.weight.0);
        }
    }

    pub fn decode(r: &mut Reader<'_>) -> Result<VoterSet, DecodeError> {
        let fork = r.uuid()?;
        let count = r.count(1024)?;
        let voters = (0..count)
            .map(|_| Ok(Voter { node: NodeId(r.uuid()?), weight: Weight(r.u8()?) }))
            .collect::<Result<_, DecodeError>>()?;
        Ok(VoterSet { voters, fork })
    }
}

/// A place among the proposals of an origin: those of one session after the other, numbered from 1 in each. The newest one that is ordered is
/// the origin's line in the duplicate table (rule 4), a function of the log.
///
/// Marks of one origin are compared by session, then by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionMark {
    pub session: Session,
    pub number: ProposalNumber,
}

impl SessionMark {
    /// May this one be ordered next for its origin, whose newest ordered one is `last`? The one function that says so (rules 4, 23).
    pub fn follows(self, last: Option<SessionMark>) -> bool {
        let first = self.number == ProposalNumber::ZERO.next();
        match last {
            Some(last) if last.session.number == self.session.number => self.number == last.number.next(),
            Some(last) => last.session.number < self.session.number && first,
            None => first,
        }
    }

    /// Was this one ordered already, or given up for a later session, if `last` is the newest ordered one of its origin?
    pub fn is_covered_by(self, last: SessionMark) -> bool {
        (self.session.number, self.number) <= (last.session.number, last.number)
    }
}

/// The state of the order just after entry `index`: what a log that begins at `index + 1` must know.
/// A function of the log up to `index`; travels with state transfer and is kept as a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Base {
    /// The history (`wsrep_cluster_state_uuid`).
    pub history: Uuid,
    pub index: LogIndex,
    pub term: Term,
    pub seqno: Seqno,
    /// Voters in force after `index` and the index of the entry that set them.
    pub voters: VoterSet,
    pub voters_at: LogIndex,
    pub view: View,
    pub durability: Durability,
    /// Sorted by origin.
    pub sessions: Vec<SessionMark>,
    /// Every fork up to `index`.
    pub lineage: Lineage,
    /// In force after `index`.
    pub level: Level,
    /// The application's own deterministic state after `index` (member states, certification index).
    pub app: Bytes,
}

impl Base {
    /// The newest proposal of this node that was ordered up to here.
    pub fn newest_of(&self, node: NodeId) -> Option<SessionMark> {
        self.sessions.iter().find(|mark| mark.session.node == node).copied()
    }

    pub fn encode(&self, w: &mut Writer) {
        w.uuid(self.history);
        w.u64(self.index.0);
        w.u64(self.term.0);
        w.u64(self.seqno.0);
        self.voters.encode(w);
        w.u64(self.voters_at.0);
        self.view.encode(w);
        // The state of a group whose level was never raised is that of builds that know no levels.
        let process = u8::from(self.durability == Durability::Process);
        if self.level > Level::FIRST {
            w.u8(process | LEVEL_FOLLOWS);
            w.u16(self.level.0);
        } else {
            w.u8(process);
        }
        w.u32(self.sessions.len() as u32);
        for s in &self.sessions {
            w.uuid(s.session.node.0);
            w.u64(s.session.number);
            w.u64(s.number.0);
        }
        self.lineage.encode(w);
        w.bytes(&self.app);
    }

    pub fn decode(r: &mut Reader<'_>) -> Result<Base, DecodeError> {
        let (base, app_len) = Base::decode_head(r)?;
        let len = usize::try_from(app_len).map_err(|_| DecodeError::Truncated)?;
        Ok(Base { app: Bytes::copy_from_slice(r.take(len)?), ..base })
    }

    /// Everything but the application's part, which is the large one and comes last; and how long that is.
    pub fn decode_head(r: &mut Reader<'_>) -> Result<(Base, u64), DecodeError> {
        let mut base = Base {
            history: r.uuid()?,
            index: r.index()?,
            term: r.term()?,
            seqno: r.seqno()?,
            voters: VoterSet::decode(r)?,
            voters_at: r.index()?,
            view: View::decode(r)?,
            ..Base::default()
        };
        (base.durability, base.level) = decode_modes(r)?;
        let count = r.count(1 << 20)?;
        base.sessions = (0..count)
            .map(|_| {
                Ok(SessionMark {
                    session: Session { node: NodeId(r.uuid()?), number: r.u64()? },
                    number: r.proposal_number()?,
                })
            })
            .collect::<Result<_, DecodeError>>()?;
        base.lineage = Lineage::decode(r)?;
        Ok((base, r.u64()?))
    }
}

/// In the byte that says the mode of durability.
const LEVEL_FOLLOWS: u8 = 2;

fn decode_modes(r: &mut Reader<'_>) -> Result<(Durability, Level), DecodeError> {
    let byte = r.u8()?;
    let durability = match byte & !LEVEL_FOLLOWS {
        0 => Durability::Disk,
        1 => Durability::Process,
        _ => return Err(DecodeError::Invalid("durability")),
    };
    let level = if byte & LEVEL_FOLLOWS == 0 { Level::FIRST } else { Level(r.u16()?) };
    // One state has one encoding.
    let said = byte & LEVEL_FOLLOWS != 0;
    if said && level <= Level::FIRST { Err(DecodeError::Invalid("group level")) } else { Ok((durability, level)) }
}

/// A member that was chosen, and in which term; nil: nobody was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Choice {
    pub term: Term,
    pub of: NodeId,
}

/// The state that must be on disk before a promise, in both durability modes (rule 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HardState {
    /// Highest term promised or taken part in.
    pub term: Term,
    /// The newest vote that this member gave. A later term may have been heard of without one.
    pub vote: Choice,
    /// To whom this member left the decision last what is gone on with. All voters had promised that term; it decides in the next.
    pub entrusted: Choice,
    /// Newest `Voters` entry known to be committed (rule 8).
    pub voters_committed: LogIndex,
    /// A position known to be committed; lazily updated, may lag.
    pub committed: LogIndex,
    /// The newest fork in the log, or its history before any. On disk before anything behind that fork is acknowledged. Outlives the log: nil
    /// only where there never was one, or where a build wrote it that did not know this field.
    pub branch: Uuid,
}

impl HardState {
    /// To whom this member gave its vote in `term`; nil when to nobody.
    pub fn voted_for(&self) -> NodeId {
        if self.vote.term == self.term { self.vote.of } else { NodeId::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposals_of_an_origin_follow_each_other_without_a_gap() {
        let mark = |session, number| SessionMark {
            session: Session { node: NodeId(Uuid([1; 16])), number: session },
            number: ProposalNumber(number),
        };
        let last = mark(5, 7);
        let next = |session, number| mark(session, number).follows(Some(last));
        assert!(next(5, 8) && next(6, 1), "the next one of the session, or the first one of a later session");
        assert!(!next(5, 7) && !next(5, 9) && !next(6, 2) && !next(4, 8) && !next(4, 1));
        assert!(mark(5, 1).follows(None) && !mark(5, 2).follows(None));
        let covered = |session, number| mark(session, number).is_covered_by(last);
        assert!(covered(5, 7) && covered(5, 1) && covered(4, 9), "a session that is over has no more to say");
        assert!(!covered(5, 8) && !covered(6, 1));
    }

    fn encoded(base: &Base) -> Vec<u8> {
        let mut w = Writer::new();
        base.encode(&mut w);
        w.buf
    }

    #[test]
    fn a_state_says_its_level_only_when_that_was_raised() {
        let state = |level, durability| Base {
            level: Level(level),
            durability,
            index: LogIndex(7),
            app: Bytes::from_static(b"application"),
            ..Base::default()
        };
        for durability in [Durability::Disk, Durability::Process] {
            for level in [1, 2, 300] {
                let base = state(level, durability);
                assert_eq!(Base::decode(&mut Reader::new(&encoded(&base))), Ok(base));
            }
            assert_eq!(encoded(&state(1, durability)).len() + 2, encoded(&state(2, durability)).len());
        }
        // The first level is said by saying nothing.
        let mut bytes = encoded(&state(2, Durability::Disk));
        let place = encoded(&state(1, Durability::Disk)).iter().zip(&bytes).position(|(a, b)| a != b).unwrap() + 1;
        bytes[place] = 1;
        assert_eq!(Base::decode(&mut Reader::new(&bytes)), Err(DecodeError::Invalid("group level")));
    }
}
