//! Which terms get a line in the error log.

use std::time::Duration;

use trireme_types::{Term, Timestamp};

/// Beyond so many lines in this time terms pass without one: whoever is linked to a node without a primary component can lead it from term to
/// term. The flight recorder has them all.
const LINES_MAX: u32 = 16;
const WINDOW: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct ToldTerms {
    newest: Option<Term>,
    since: Timestamp,
    lines: u32,
}

impl ToldTerms {
    /// A sequencer of this term is known. Once, and not each time that a link comes back.
    pub(super) fn is_worth_a_line(&mut self, now: Timestamp, term: Term) -> bool {
        if self.newest == Some(term) {
            return false;
        }
        if now.since(self.since) > WINDOW {
            (self.since, self.lines) = (now, 0);
        }
        let room = self.lines < LINES_MAX;
        if room {
            self.newest = Some(term);
            self.lines += 1;
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_told_once_and_a_thousand_of_them_are_not_told() {
        let mut told = ToldTerms::default();
        let begun = Timestamp(1).after(WINDOW);
        assert!(told.is_worth_a_line(begun, Term(1)));
        assert!(!told.is_worth_a_line(begun, Term(1)));
        let lines = (2..1000).filter(|term| told.is_worth_a_line(begun, Term(*term))).count();
        assert_eq!(lines as u32, LINES_MAX - 1);
        assert!(told.is_worth_a_line(begun.after(WINDOW * 2), Term(999)), "the one that stays is told in the end");
    }
}
