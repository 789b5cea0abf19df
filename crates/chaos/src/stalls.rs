//! How long the machine itself keeps a thread waiting that has work to do: servers beside it wait no less.

use crate::client::Clients;
use crate::timeline::Span;
use std::time::{Duration, Instant};
use trireme_history::Micros;

/// From one look at the clock to the next.
const TICK: Duration = Duration::from_millis(5);
/// Less is no stall.
const NOTABLE: Duration = Duration::from_millis(10);

/// Looks at the clock until the clients stop.
pub(crate) fn watch(clients: &Clients) -> Vec<Span> {
    let mut stalls = Vec::new();
    while !clients.stopped() {
        let began = Instant::now();
        std::thread::sleep(TICK);
        let late = began.elapsed().saturating_sub(TICK);
        if late >= NOTABLE {
            let to = clients.now();
            stalls.push(Span { from: Micros(to.0.saturating_sub(late.as_micros() as u64)), to });
        }
    }
    stalls
}

/// The longest that reaches into `span`.
pub(crate) fn longest(stalls: &[Span], span: Span) -> Micros {
    let inside = stalls.iter().filter(|stall| stall.from < span.to && stall.to > span.from);
    Micros(inside.map(|stall| stall.to.0 - stall.from.0).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_where_it_reaches() {
        let span = |from, to| Span { from: Micros(from), to: Micros(to) };
        let stalls = [span(10, 20), span(30, 33), span(40, 90)];
        assert_eq!(longest(&stalls, span(0, 100)), Micros(50));
        assert_eq!(longest(&stalls, span(15, 40)), Micros(10));
        assert_eq!(longest(&stalls, span(34, 40)), Micros(0));
    }
}
