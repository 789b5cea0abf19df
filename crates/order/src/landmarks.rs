//! Entries that have to be on the own disk in mode `process` too, before anything from them on is acknowledged, or anything at all that is
//! not on disk is given to the server: changes of the voters, and the first entry of each term (rules 14, 16).
//!
//! A member that has lost unsynced entries with the power must still know whose majority decides. It must not take the end of an older
//! term's log, which nobody committed, for committed. Entries before the first landmark that is not synced are acknowledged.

use std::collections::VecDeque;

use trireme_types::LogIndex;

/// Those that are not synced, in order: first and last index of each group of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Landmarks {
    unsynced: VecDeque<(LogIndex, LogIndex)>,
}

/// Groups at most. Beyond it landmarks join the newest group, which is synced when its last one is. A disk has to hang for as many
/// changes of term or voters.
const GROUPS_MAX: usize = 256;

impl Landmarks {
    /// The entry at `index`, which lies behind all others, is one.
    pub fn note(&mut self, index: LogIndex) {
        self.note_between(index, index);
    }

    /// Each of the entries from `first` to `last`, which lie behind all others, may be one.
    pub fn note_between(&mut self, first: LogIndex, last: LogIndex) {
        debug_assert!(self.last().is_none_or(|last| last < first), "landmarks are noted in the order of the log");
        let is_full = self.unsynced.len() >= GROUPS_MAX;
        match self.unsynced.back_mut().filter(|_| is_full) {
            Some(newest) => newest.1 = last,
            None => self.unsynced.push_back((first, last)),
        }
    }

    /// The log is on disk up to here.
    pub fn synced(&mut self, upto: LogIndex) {
        while self.unsynced.front().is_some_and(|(_, last)| *last <= upto) {
            self.unsynced.pop_front();
        }
    }

    /// The log ends here by now.
    pub fn truncate_after(&mut self, index: LogIndex) {
        while self.unsynced.back().is_some_and(|(first, _)| *first > index) {
            self.unsynced.pop_back();
        }
        if let Some(newest) = self.unsynced.back_mut() {
            newest.1 = newest.1.min(index);
        }
    }

    /// Before this one nothing waits for a landmark. `None`: all are synced.
    pub fn first(&self) -> Option<LogIndex> {
        self.unsynced.front().map(|(first, _)| *first)
    }

    /// Up to here the log is to be synced, whatever the mode.
    pub fn last(&self) -> Option<LogIndex> {
        self.unsynced.back().map(|(_, last)| *last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(indexes: impl IntoIterator<Item = u64>) -> Landmarks {
        let mut landmarks = Landmarks::default();
        for index in indexes {
            landmarks.note(LogIndex(index));
        }
        landmarks
    }

    fn ends(landmarks: &Landmarks) -> (Option<u64>, Option<u64>) {
        (landmarks.first().map(|i| i.0), landmarks.last().map(|i| i.0))
    }

    #[test]
    fn the_first_one_that_is_not_synced_counts() {
        let mut landmarks = of([3, 7, 9]);
        assert_eq!(ends(&landmarks), (Some(3), Some(9)));
        landmarks.synced(LogIndex(6));
        assert_eq!(ends(&landmarks), (Some(7), Some(9)));
        landmarks.synced(LogIndex(9));
        assert_eq!(ends(&landmarks), (None, None));
    }

    #[test]
    fn those_of_a_tail_that_is_gone_do_not_count() {
        let mut landmarks = of([3, 7, 9]);
        landmarks.truncate_after(LogIndex(8));
        assert_eq!(ends(&landmarks), (Some(3), Some(7)));
        landmarks.truncate_after(LogIndex(2));
        assert_eq!(ends(&landmarks), (None, None));
    }

    #[test]
    fn where_any_entry_may_be_one_the_first_counts_until_the_last_is_synced() {
        let mut landmarks = Landmarks::default();
        landmarks.note_between(LogIndex(3), LogIndex(7));
        landmarks.note(LogIndex(9));
        landmarks.synced(LogIndex(6));
        assert_eq!(ends(&landmarks), (Some(3), Some(9)));
        landmarks.synced(LogIndex(7));
        assert_eq!(ends(&landmarks), (Some(9), Some(9)));
    }

    #[test]
    fn beyond_the_limit_the_newest_ones_are_synced_together() {
        let beyond = GROUPS_MAX as u64 + 10;
        let mut landmarks = of(1..=beyond);
        assert_eq!(ends(&landmarks), (Some(1), Some(beyond)));
        landmarks.synced(LogIndex(beyond - 1));
        assert_eq!(ends(&landmarks), (Some(GROUPS_MAX as u64), Some(beyond)));
        landmarks.synced(LogIndex(beyond));
        assert_eq!(ends(&landmarks), (None, None));
    }
}
