//! Times without a commit.

use trireme_history::Micros;

/// From `from` to `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub from: Micros,
    pub to: Micros,
}

/// The longest time within `span` without one of these commits; they are sorted.
pub(crate) fn longest_gap(commits: &[Micros], span: Span) -> Micros {
    let first = commits.partition_point(|time| *time <= span.from);
    let mut before = span.from;
    let mut longest = 0;
    for time in commits[first..].iter().copied().take_while(|time| *time < span.to).chain([span.to]) {
        longest = longest.max(time.0.saturating_sub(before.0));
        before = time;
    }
    Micros(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: u64, to: u64) -> Span {
        Span { from: Micros(from), to: Micros(to) }
    }

    #[test]
    fn a_gap_may_touch_either_end() {
        let commits = [10, 20, 50].map(Micros);
        assert_eq!(longest_gap(&commits, span(0, 60)), Micros(30));
        assert_eq!(longest_gap(&commits, span(0, 100)), Micros(50));
        assert_eq!(longest_gap(&commits, span(12, 18)), Micros(6));
        assert_eq!(longest_gap(&[], span(5, 9)), Micros(4));
    }
}
