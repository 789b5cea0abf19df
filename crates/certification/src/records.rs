//! The memory of the index for one key: the write sets that used it or something below it.
//!
//! A record is forgotten as soon as newer ones give every later write set the same answer:
//! * a newer record of the same session that is at least as strong, or
//! * two newer records of different sessions, both at least as strong: a later write set is foreign to at least one of them, or
//! * a newer TOI, which is foreign to everybody.
//!
//! The records that are left do not depend on the order in which others were forgotten, so equal histories leave equal
//! records. A row that one member writes holds one record, a row that many write holds two.

use crate::key::KeyKind;

/// Number of an origin session in the index's own table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SessionSlot(pub(crate) u32);

impl SessionSlot {
    /// Of a TOI: equal to no session that is asked for.
    pub(crate) const NOBODY: SessionSlot = SessionSlot(u32::MAX >> 4);
}

/// How the key was used. Ordered by strength among uses of the key itself, and among uses below it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Use {
    /// A longer key was used; of what kind makes no difference.
    Below,
    /// A longer key was used by a TOI.
    BelowToi,
    Own(KeyKind),
    OwnToi,
}

impl Use {
    pub(crate) fn code(self) -> u8 {
        match self {
            Use::Below => 0,
            Use::BelowToi => 1,
            Use::Own(kind) => 2 + kind as u8,
            Use::OwnToi => 6,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Use> {
        Some(match code {
            0 => Use::Below,
            1 => Use::BelowToi,
            6 => Use::OwnToi,
            n => Use::Own(KeyKind::from_u8(n.checked_sub(2)?)?),
        })
    }

    pub(crate) fn is_toi(self) -> bool {
        matches!(self, Use::BelowToi | Use::OwnToi)
    }

    fn is_below(self) -> bool {
        matches!(self, Use::Below | Use::BelowToi)
    }

    /// Says at least what `other` says to every later write set that is foreign to both.
    fn covers(self, other: Use) -> bool {
        self.is_below() == other.is_below() && self >= other
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) seqno: u64,
    /// Session slot and use in one word: an index holds millions of these.
    tag: u32,
}

impl Record {
    pub(crate) fn new(seqno: u64, used: Use, session: SessionSlot) -> Record {
        let session = if used.is_toi() { SessionSlot::NOBODY } else { session };
        debug_assert!(session.0 <= SessionSlot::NOBODY.0);
        Record { seqno, tag: session.0 << 4 | u32::from(used.code()) }
    }

    pub(crate) fn used(self) -> Use {
        Use::from_code((self.tag & 15) as u8).expect("written by new()")
    }

    pub(crate) fn session(self) -> SessionSlot {
        SessionSlot(self.tag >> 4)
    }
}

/// All records of one key, newest first; the usual single one without a second allocation.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    first: Record,
    #[allow(clippy::box_collection)] // one word instead of three in every entry; few entries have it
    rest: Option<Box<Vec<Record>>>,
}

impl Records {
    pub(crate) fn new(first: Record) -> Records {
        Records { first, rest: None }
    }

    /// Newest first. Records at or below the cut may still be among them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Record> + use<'_> {
        std::iter::once(self.first).chain(self.rest.iter().flat_map(|r| r.iter().copied()))
    }

    pub(crate) fn newest(&self) -> u64 {
        self.first.seqno
    }

    /// Adds a record that is not older than any other and forgets what need not be remembered above `cut`.
    pub(crate) fn add(&mut self, new: Record, cut: u64) {
        debug_assert!(new.seqno >= self.first.seqno);
        let old = std::mem::replace(&mut self.first, new);
        match self.rest.take() {
            None => {
                if old.seqno > cut && !covered(old, &[new]) {
                    self.rest = Some(Box::new(vec![old]));
                }
            }
            Some(mut rest) => {
                let mut kept = vec![new];
                for record in std::iter::once(old).chain(rest.iter().copied()) {
                    if record.seqno > cut && !covered(record, &kept) {
                        kept.push(record);
                    }
                }
                rest.clear();
                rest.extend_from_slice(&kept[1..]);
                if !rest.is_empty() {
                    self.rest = Some(rest);
                }
            }
        }
    }
}

/// Do `newer` records say everything that `old` does?
fn covered(old: Record, newer: &[Record]) -> bool {
    let mut foreign: Option<SessionSlot> = None;
    for record in newer.iter().filter(|n| n.used().covers(old.used())) {
        if record.used().is_toi() || record.session() == old.session() {
            return true;
        }
        match foreign {
            Some(other) if other != record.session() => return true,
            _ => foreign = Some(record.session()),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seqno: u64, kind: KeyKind, session: u32) -> Record {
        Record::new(seqno, Use::Own(kind), SessionSlot(session))
    }

    #[test]
    fn an_entry_stays_small() {
        assert_eq!(size_of::<Records>(), 24);
    }

    #[test]
    fn one_writer_leaves_one_record_and_many_leave_two() {
        let mut records = Records::new(row(1, KeyKind::Exclusive, 1));
        for seqno in 2..10 {
            records.add(row(seqno, KeyKind::Exclusive, 1), 0);
        }
        assert_eq!(records.iter().count(), 1);
        for seqno in 10..20 {
            records.add(row(seqno, KeyKind::Exclusive, (seqno % 3) as u32), 0);
        }
        assert_eq!(records.iter().map(|r| r.seqno).collect::<Vec<_>>(), [19, 18]);
    }

    #[test]
    fn a_weaker_record_does_not_hide_a_stronger_one() {
        let mut records = Records::new(row(1, KeyKind::Exclusive, 1));
        records.add(row(2, KeyKind::Shared, 1), 0);
        records.add(row(3, KeyKind::Reference, 2), 0);
        assert_eq!(records.iter().map(|r| r.seqno).collect::<Vec<_>>(), [3, 2, 1]);
    }

    #[test]
    fn records_at_the_cut_are_dropped_with_the_next_addition() {
        let mut records = Records::new(row(1, KeyKind::Exclusive, 1));
        records.add(row(2, KeyKind::Shared, 2), 0);
        records.add(row(3, KeyKind::Shared, 3), 1);
        assert_eq!(records.iter().map(|r| r.seqno).collect::<Vec<_>>(), [3, 2]);
    }

    #[test]
    fn a_toi_replaces_everything_of_its_place() {
        let mut records = Records::new(row(1, KeyKind::Exclusive, 1));
        records.add(Record::new(2, Use::Below, SessionSlot(1)), 0);
        records.add(Record::new(3, Use::OwnToi, SessionSlot(1)), 0);
        assert_eq!(records.iter().map(|r| r.seqno).collect::<Vec<_>>(), [3, 2]);
    }

    #[test]
    fn use_codes_round_trip() {
        for code in 0..=6 {
            assert_eq!(Use::from_code(code).map(Use::code), Some(code));
        }
        assert_eq!(Use::from_code(7), None);
    }
}
