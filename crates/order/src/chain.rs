//! The state of the order after an entry: what every member computes alike from the log.

use std::collections::BTreeMap;

use bytes::Bytes;
use trireme_types::{
    Base, DecodeError, Durability, Entry, EntryKind, Fork, Level, Lineage, LogIndex, NodeId, Reader, Seqno,
    SessionMark, Setting, Term, Uuid, View, VoterSet,
};

use crate::{LogEnd, Unread};

/// Origins whose sessions are remembered: many times what a cluster has in years, and far below what a reader of a [`Base`] accepts. Beyond it
/// the one that started first among those that are neither in the view nor voters is forgotten: a node with a new identity at each start,
/// or one that joins under one name after the other, would make every snapshot larger for ever.
const SESSIONS_MAX: usize = 1 << 14;

/// [`Base`] in a form that entries can be applied to. All of it moves with each entry (`apply`), and nobody else changes it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Chain {
    /// The base's, for good.
    pub history: Uuid,
    /// Of the last entry, and its term.
    pub index: LogIndex,
    pub term: Term,
    /// First entry of that term in this log.
    pub term_from: LogIndex,
    /// The last one given, by a write set or a view.
    pub seqno: Seqno,
    /// The newest set, and the entry that holds it.
    pub voters: VoterSet,
    pub voters_at: LogIndex,
    /// The set before `voters`: both count while the newest is not known to be committed (rule 8).
    pub voters_before: VoterSet,
    pub view: View,
    pub durability: Durability,
    /// The entry that set it, or the base that says so.
    pub durability_at: LogIndex,
    /// The entry that last ended mode `disk`; zero: none since the base.
    pub left_disk_at: LogIndex,
    /// Newest session of each origin and its last ordered number (rule 4).
    pub sessions: BTreeMap<NodeId, SessionMark>,
    /// Every fork up to `index`.
    pub lineage: Lineage,
    /// In force after `index`.
    pub level: Level,
}

/// Reads a log as a member does that opens it: for tools.
pub struct LogCheck {
    chain: Chain,
}

impl LogCheck {
    pub fn from_base(base: &Base) -> LogCheck {
        LogCheck { chain: Chain::from_base(base) }
    }

    /// The next entry. **Errors:** no member goes on with a log that has it, and why; nothing behind it can be judged.
    pub fn take(&mut self, entry: &Entry) -> Result<(), Unread> {
        self.chain.take(entry)
    }
}

impl Chain {
    pub fn from_base(base: &Base) -> Chain {
        Chain {
            history: base.history,
            index: base.index,
            term: base.term,
            term_from: base.index,
            seqno: base.seqno,
            voters: base.voters.clone(),
            voters_at: base.voters_at,
            voters_before: base.voters.clone(),
            view: base.view.clone(),
            durability: base.durability,
            durability_at: base.index,
            left_disk_at: LogIndex::ZERO,
            sessions: base.sessions.iter().map(|mark| (mark.session.node, *mark)).collect(),
            lineage: base.lineage.clone(),
            level: base.level,
        }
    }

    /// The branch that the log up to `index` belongs to.
    pub fn branch(&self) -> Uuid {
        self.lineage.branch(self.history)
    }

    pub fn end(&self) -> LogEnd {
        LogEnd { term: self.term, index: self.index }
    }

    pub fn to_base(&self, app: Bytes) -> Base {
        Base {
            history: self.history,
            index: self.index,
            term: self.term,
            seqno: self.seqno,
            voters: self.voters.clone(),
            voters_at: self.voters_at,
            view: self.view.clone(),
            durability: self.durability,
            sessions: self.sessions.values().copied().collect(),
            lineage: self.lineage.clone(),
            level: self.level,
            app,
        }
    }

    /// Does this entry follow, by index, seqno and number? (A peer's or a disk's claim is checked before it is applied.)
    pub fn accepts(&self, entry: &Entry) -> bool {
        let h = &entry.header;
        let seqno = if h.kind.takes_seqno() { self.seqno.next() } else { self.seqno };
        h.index == self.index.next() && h.seqno == seqno && h.term >= self.term
    }

    /// [`Chain::apply`] for what comes from a log. The chain is unchanged by what is refused.
    pub fn take(&mut self, entry: &Entry) -> Result<(), Unread> {
        if !self.accepts(entry) {
            return Err(Unread::DoesNotFollow);
        }
        Ok(self.apply(entry)?)
    }

    /// Will a reader of the log accept this entry's payload? Asked before it is written: a committed entry that nobody can read ends the
    /// cluster (rule 36).
    ///
    /// `level` is the one in force before the entry, which may stand behind others that are not applied yet; returns the one behind it.
    pub fn reads(&self, entry: &Entry, level: Level) -> Result<Level, DecodeError> {
        match entry.header.kind {
            EntryKind::View => View::decode(&mut Reader::new(&entry.payload)).map(|_| level),
            EntryKind::Voters => {
                let voters = VoterSet::decode(&mut Reader::new(&entry.payload))?;
                let full = self.lineage.forks().len() >= Lineage::FORKS_MAX;
                if full && !voters.fork.is_nil() { Err(DecodeError::TooLong("lineage")) } else { Ok(level) }
            }
            EntryKind::Setting => match reads_setting(&entry.payload, level)? {
                Setting::Level(raised) => Ok(raised),
                Setting::Durability(_) => Ok(level),
            },
            EntryKind::Term => reads_term(&entry.payload, level).map(|()| level),
            EntryKind::WriteSet | EntryKind::App => Ok(level),
        }
    }

    /// **Errors:** a payload that does not decode; the chain is unchanged.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), DecodeError> {
        let h = &entry.header;
        match h.kind {
            EntryKind::Term => reads_term(&entry.payload, self.level)?,
            EntryKind::View => self.view = View::decode(&mut Reader::new(&entry.payload))?,
            EntryKind::Voters => {
                let voters = VoterSet::decode(&mut Reader::new(&entry.payload))?;
                let forced = !voters.fork.is_nil();
                if forced {
                    if self.lineage.forks().len() >= Lineage::FORKS_MAX {
                        return Err(DecodeError::TooLong("lineage"));
                    }
                    self.lineage = self.lineage.with(Fork { index: h.index, seqno: h.seqno, id: voters.fork });
                }
                // The first set of a history, and a forced one, decide alone.
                if forced || self.voters.voters.is_empty() {
                    self.voters_before = voters.clone();
                } else {
                    self.voters_before = self.voters.clone();
                }
                self.voters = voters;
                self.voters_at = h.index;
            }
            EntryKind::Setting => match reads_setting(&entry.payload, self.level)? {
                Setting::Durability(durability) => {
                    if self.durability == Durability::Disk && durability == Durability::Process {
                        self.left_disk_at = h.index;
                    }
                    self.durability = durability;
                    self.durability_at = h.index;
                }
                Setting::Level(level) => self.level = level,
            },
            EntryKind::WriteSet | EntryKind::App => {
                self.sessions.insert(h.session.node, h.mark());
                if self.sessions.len() > SESSIONS_MAX {
                    self.forget_an_origin();
                }
            }
        }
        if h.term != self.term {
            self.term_from = h.index;
        }
        self.index = h.index;
        self.term = h.term;
        self.seqno = h.seqno;
        Ok(())
    }

    /// Alike on every member: it follows from the log alone.
    fn forget_an_origin(&mut self) {
        let present = |node: NodeId| {
            self.view.position(node).is_some()
                || [&self.voters, &self.voters_before].into_iter().any(|set| set.contains(node))
        };
        let absent = self.sessions.iter().filter(|(node, _)| !present(**node));
        if let Some(oldest) = absent.min_by_key(|(node, newest)| (newest.session.number, **node)).map(|(node, _)| *node)
        {
            self.sessions.remove(&oldest);
        }
    }

    /// May this proposal be ordered next for its origin? (rules 4, 23)
    pub fn is_next(&self, mark: SessionMark) -> bool {
        mark.follows(self.sessions.get(&mark.session.node).copied())
    }

    /// Was it ordered already?
    pub fn is_ordered(&self, mark: SessionMark) -> bool {
        self.sessions.get(&mark.session.node).is_some_and(|last| mark.is_covered_by(*last))
    }
}

fn reads_setting(payload: &[u8], before: Level) -> Result<Setting, DecodeError> {
    match Setting::decode(payload)? {
        Setting::Level(level) if level <= before => Err(DecodeError::Invalid("group level")),
        setting @ (Setting::Level(_) | Setting::Durability(_)) => Ok(setting),
    }
}

fn reads_term(payload: &[u8], level: Level) -> Result<(), DecodeError> {
    let mut r = Reader::new(payload);
    if level >= Level::NAMED_TERMS {
        r.uuid()?;
        r.str(256)?;
    }
    r.finish()
}

#[cfg(test)]
mod tests {
    use trireme_types::{EntryHeader, Member, ProposalNumber, Session};

    use super::*;

    fn node(n: u128) -> NodeId {
        NodeId(Uuid(n.to_be_bytes()))
    }

    #[test]
    fn origins_that_come_and_go_are_not_remembered_for_ever() {
        let mut chain = Chain::default();
        chain.view.members = vec![Member { node: node(1), ..Member::default() }];
        for n in 1..=SESSIONS_MAX as u128 + 500 {
            let header = EntryHeader {
                kind: EntryKind::App,
                index: chain.index.next(),
                session: Session { node: node(n), number: n as u64 },
                number: ProposalNumber(1),
                term: chain.term,
                seqno: chain.seqno,
                voters: chain.voters_at,
            };
            chain.apply(&Entry { header, payload: Bytes::new() }).unwrap();
        }
        assert_eq!(chain.sessions.len(), SESSIONS_MAX);
        let is_ordered = |n: u64| {
            let session = Session { node: node(n.into()), number: n };
            chain.is_ordered(SessionMark { session, number: ProposalNumber(1) })
        };
        assert!(is_ordered(1), "a member is never forgotten");
        assert!(!is_ordered(2) && is_ordered(502));
        let mut wire = trireme_types::Writer::new();
        chain.to_base(Bytes::new()).encode(&mut wire);
        assert!(Base::decode(&mut Reader::new(&wire.buf)).is_ok());
    }
}
