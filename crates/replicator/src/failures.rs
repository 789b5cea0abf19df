//! The write sets that a server's data lack because it failed to apply them there (rule 28). An engine stores its position
//! before a vote has a result, and the result may come in another life of the node; so this is kept on disk beside the data,
//! and compared with every result that comes.

use std::collections::BTreeMap;
use std::fmt::Write;

use trireme_types::{Seqno, Uuid};

use crate::feed::Position;
use crate::votes::ErrorClass;

/// Write sets that failed, as far as they are remembered: as many as the group remembers results.
pub const FAILURES_MAX: usize = 256;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failures {
    history: Uuid,
    /// The data up to here came from elsewhere, and it is not known whether anything failed there.
    since: Seqno,
    /// Beyond `since`: with which error. A seqno that is not among them was applied.
    failed: BTreeMap<Seqno, ErrorClass>,
}

impl Failures {
    /// Of data that have just come to be at `position`: empty ones, or a copy.
    pub fn begin(position: Position) -> Failures {
        Failures { history: position.history, since: position.seqno, failed: BTreeMap::new() }
    }

    /// The failures of data that are found at `position`, as far as they are known. The engine may have lost what was noted
    /// here, and applies that once more.
    pub fn of_data_at(found: Option<&Failures>, position: Position) -> Failures {
        let known = found.filter(|f| f.history == position.history && f.since <= position.seqno);
        known.map_or_else(
            || Failures::begin(position),
            |known| {
                let mut known = known.clone();
                drop(known.failed.split_off(&position.seqno.next()));
                known
            },
        )
    }

    /// To be on disk before anybody hears of it.
    pub fn note(&mut self, seqno: Seqno, class: ErrorClass) {
        if seqno <= self.since {
            return;
        }
        self.failed.insert(seqno, class);
        while self.failed.len() > FAILURES_MAX
            && let Some((oldest, _)) = self.failed.pop_first()
        {
            self.since = oldest;
        }
    }

    /// How `seqno`, which the data hold, went here. `None`: that is not known.
    pub fn held(&self, seqno: Seqno) -> Option<ErrorClass> {
        (seqno > self.since).then(|| self.failed.get(&seqno).copied().unwrap_or(ErrorClass::SUCCESS))
    }

    /// Do data that hold `seqno` contradict the result of the vote on it?
    pub fn contradict(&self, seqno: Seqno, winner: ErrorClass) -> bool {
        self.held(seqno).is_some_and(|held| held != winner)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Seqno, ErrorClass)> {
        self.failed.iter().map(|(seqno, class)| (*seqno, *class))
    }

    /// The content of its file.
    pub fn print(&self) -> String {
        let mut out = format!("{FIRST_LINE}\nhistory: {}\nsince: {}\n", self.history, self.since);
        for (seqno, class) in &self.failed {
            let _ = writeln!(out, "failed: {seqno} {class}");
        }
        out
    }

    /// `None`: it is none of ours, and then nothing is known.
    pub fn parse(content: &str) -> Option<Failures> {
        let mut lines = content.lines();
        if lines.next()? != FIRST_LINE {
            return None;
        }
        let history = Uuid::parse(lines.next()?.strip_prefix("history: ")?)?;
        let since = parse_seqno(lines.next()?.strip_prefix("since: ")?)?;
        let failed = lines
            .map(|line| {
                let (seqno, class) = line.strip_prefix("failed: ")?.split_once(' ')?;
                Some((parse_seqno(seqno)?, ErrorClass(u64::from_str_radix(class, 16).ok()?)))
            })
            .collect::<Option<BTreeMap<Seqno, ErrorClass>>>()?;
        Some(Failures { history, since, failed })
    }
}

const FIRST_LINE: &str = "# write sets that failed here, each with the class of its error; the data lack them";

fn parse_seqno(text: &str) -> Option<Seqno> {
    Seqno::from_outside(text.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTORY: Uuid = Uuid([7; 16]);

    fn at(seqno: u64) -> Position {
        Position { history: HISTORY, seqno: Seqno(seqno) }
    }

    #[test]
    fn a_result_is_compared_with_what_the_data_hold() {
        let mut f = Failures::begin(at(4));
        f.note(Seqno(6), ErrorClass(77));
        f.note(Seqno(3), ErrorClass(77));
        let contradicted = |seqno, winner| f.contradict(Seqno(seqno), ErrorClass(winner));
        assert!(!contradicted(4, 77) && !contradicted(3, 0), "it came with the data");
        assert!(contradicted(5, 77) && !contradicted(5, 0));
        assert!(contradicted(6, 0) && contradicted(6, 78) && !contradicted(6, 77));
    }

    #[test]
    fn what_the_engine_lost_is_applied_again() {
        let mut f = Failures::begin(at(4));
        f.note(Seqno(6), ErrorClass(77));
        assert_eq!(Failures::of_data_at(Some(&f), at(6)), f);
        assert_eq!(Failures::of_data_at(Some(&f), at(5)), Failures::begin(at(4)));
    }

    #[test]
    fn notes_on_other_data_say_nothing() {
        let f = Failures::begin(at(4));
        assert_eq!(Failures::of_data_at(Some(&f), at(3)), Failures::begin(at(3)));
        let other = Position { history: Uuid([8; 16]), seqno: Seqno(9) };
        assert_eq!(Failures::of_data_at(Some(&f), other), Failures::begin(other));
        assert_eq!(Failures::of_data_at(None, at(9)), Failures::begin(at(9)));
    }

    #[test]
    fn of_what_is_forgotten_nothing_is_known() {
        let mut f = Failures::begin(at(0));
        (1..=FAILURES_MAX as u64 + 1).for_each(|n| f.note(Seqno(n), ErrorClass(77)));
        assert_eq!((f.held(Seqno(1)), f.held(Seqno(2))), (None, Some(ErrorClass(77))));
        assert_eq!(f.iter().count(), FAILURES_MAX);
    }

    #[test]
    fn is_read_as_it_was_written() {
        let mut f = Failures::begin(at(4));
        assert_eq!(Failures::parse(&f.print()), Some(f.clone()));
        f.note(Seqno(6), ErrorClass(1 << 63 | 5));
        assert_eq!(Failures::parse(&f.print()), Some(f.clone()));
        for broken in ["", "# something else\n", &f.print().replace("since: 4", "since: -1")] {
            assert_eq!(Failures::parse(broken), None);
        }
    }
}
