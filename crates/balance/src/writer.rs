//! Which server gets the writes. In a Trireme group it is the sequencer, so that all balancers agree without talking to each
//! other. Elsewhere it is the first by index or order of naming, and stays so until it fails.
//!
//! There is no failback: the order does not move back by itself, and neither does a choice of ours.

use std::time::{Duration, Instant};

use crate::pool::NodeId;

/// One server that may get clients.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    pub id: NodeId,
    /// Term in which it says that it orders.
    pub orders: Option<u64>,
    /// It is a member of a Trireme group that tells who orders.
    pub tells: bool,
    /// Ready, rather than the last choice.
    pub ready: bool,
    /// It has not answered for longer than an answer takes.
    pub late: bool,
    /// `wsrep_local_index`; a server without one comes after those with one.
    pub index: Option<u32>,
    /// `read_only` servers are nobody's writer while there is another.
    pub read_only: bool,
}

/// The choice and what is remembered for the next.
#[derive(Debug, Default)]
pub struct Writer {
    current: Option<NodeId>,
    /// Another server orders while the current one still serves, seen since then.
    successor: Option<(NodeId, Instant)>,
    /// Nobody says that he orders, since then.
    vacant: Option<Instant>,
}

/// A successor must have ordered for so long before it takes the writes of a living writer: terms may change twice in a row.
pub const SETTLE: Duration = Duration::from_secs(1);
/// While a successor is being elected, nobody is named for so long. A group that takes longer has other troubles.
pub const ELECTION: Duration = Duration::from_secs(1);

impl Writer {
    pub fn current(&self) -> Option<NodeId> {
        self.current
    }

    /// `candidates` in the order in which they were named. Answers when to ask again, though nothing was heard.
    pub fn decide(&mut self, candidates: &[Candidate], now: Instant) -> Option<Instant> {
        let able = |c: &&Candidate| !c.read_only || candidates.iter().all(|c| c.read_only);
        let sequencer =
            candidates.iter().filter(|c| c.orders.is_some() && !c.read_only).max_by_key(|c| c.orders).map(|c| c.id);
        let serves = |id: NodeId| candidates.iter().filter(able).any(|c| c.id == id);
        let current = self.current.filter(|id| serves(*id));
        if let Some(sequencer) = sequencer {
            self.vacant = None;
            let late = current.is_some_and(|id| candidates.iter().any(|c| c.id == id && c.late));
            return self.follow(current.filter(|_| !late), sequencer, now);
        }
        self.successor = None;
        if current.is_some() {
            self.vacant = None;
            return None;
        }
        self.current = None;
        if candidates.iter().any(|c| c.tells) {
            let since = *self.vacant.get_or_insert(now);
            if now < since + ELECTION {
                return Some(since + ELECTION);
            }
        }
        self.current = candidates
            .iter()
            .enumerate()
            .filter(|(_, c)| able(c))
            .min_by_key(|(place, c)| (!c.ready, c.index.unwrap_or(u32::MAX), *place))
            .map(|(_, c)| c.id);
        None
    }

    fn follow(&mut self, current: Option<NodeId>, sequencer: NodeId, now: Instant) -> Option<Instant> {
        if current.is_none_or(|id| id == sequencer) {
            self.current = Some(sequencer);
            self.successor = None;
            return None;
        }
        let since = match self.successor {
            Some((id, since)) if id == sequencer => since,
            Some(_) | None => now,
        };
        if now >= since + SETTLE {
            self.current = Some(sequencer);
            self.successor = None;
            return None;
        }
        self.current = current;
        self.successor = Some((sequencer, since));
        Some(since + SETTLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trireme(n: u32, orders: Option<u64>) -> Candidate {
        Candidate { id: NodeId(n), orders, tells: true, ready: true, late: false, index: Some(n), read_only: false }
    }

    fn galera(n: u32, index: u32) -> Candidate {
        Candidate {
            id: NodeId(n),
            orders: None,
            tells: false,
            ready: true,
            late: false,
            index: Some(index),
            read_only: false,
        }
    }

    #[test]
    fn two_balancers_that_saw_different_pasts_agree() {
        let now = Instant::now();
        let (mut old, mut new) = (Writer::default(), Writer::default());
        old.decide(&[trireme(1, Some(1)), trireme(2, None)], now);
        let later = [trireme(1, None), trireme(2, Some(2))];
        let again = old.decide(&later, now).unwrap();
        assert_eq!(old.current(), Some(NodeId(1)));
        old.decide(&later, again);
        new.decide(&later, again);
        assert_eq!((old.current(), new.current()), (Some(NodeId(2)), Some(NodeId(2))));
    }

    #[test]
    fn a_dead_writer_is_followed_by_the_next_sequencer_without_delay() {
        let now = Instant::now();
        let mut writer = Writer::default();
        writer.decide(&[trireme(1, Some(1)), trireme(2, None), trireme(3, None)], now);
        // The election runs.
        assert_eq!(writer.decide(&[trireme(2, None), trireme(3, None)], now), Some(now + ELECTION));
        assert_eq!(writer.current(), None);
        assert_eq!(writer.decide(&[trireme(2, None), trireme(3, Some(2))], now), None);
        assert_eq!(writer.current(), Some(NodeId(3)));
        // The dead one comes back: nothing moves.
        writer.decide(&[trireme(1, None), trireme(2, None), trireme(3, Some(2))], now);
        assert_eq!(writer.current(), Some(NodeId(3)));
    }

    #[test]
    fn an_old_claim_loses_against_a_later_term() {
        let mut writer = Writer::default();
        writer.decide(&[trireme(1, Some(1)), trireme(2, Some(3))], Instant::now());
        assert_eq!(writer.current(), Some(NodeId(2)));
    }

    #[test]
    fn terms_that_go_back_and_forth_move_nobody() {
        let now = Instant::now();
        let mut writer = Writer::default();
        let (first, second) = ([trireme(1, Some(1)), trireme(2, None)], [trireme(1, None), trireme(2, Some(2))]);
        writer.decide(&first, now);
        for ms in [0, 600, 1200, 1800] {
            writer.decide(&second, now + Duration::from_millis(ms));
            writer.decide(&first, now + Duration::from_millis(ms + 300));
        }
        assert_eq!(writer.current(), Some(NodeId(1)));
    }

    #[test]
    fn without_a_word_on_the_order_the_first_one_stays_until_it_fails() {
        let now = Instant::now();
        let mut writer = Writer::default();
        writer.decide(&[galera(1, 2), galera(2, 1)], now);
        assert_eq!(writer.current(), Some(NodeId(2)));
        writer.decide(&[galera(1, 0), galera(2, 1)], now);
        assert_eq!(writer.current(), Some(NodeId(2)), "no failback");
        writer.decide(&[galera(1, 0)], now);
        assert_eq!(writer.current(), Some(NodeId(1)));
        writer.decide(&[], now);
        assert_eq!(writer.current(), None);
    }

    #[test]
    fn an_election_without_end_does_not_hold_the_clients_for_ever() {
        let now = Instant::now();
        let mut writer = Writer::default();
        let nobody = [trireme(1, None), trireme(2, None)];
        let again = writer.decide(&nobody, now).unwrap();
        writer.decide(&nobody, again);
        assert_eq!(writer.current(), Some(NodeId(1)));
    }

    #[test]
    fn a_writer_that_is_late_and_has_a_successor_is_not_waited_for() {
        let now = Instant::now();
        let mut writer = Writer::default();
        writer.decide(&[trireme(1, Some(1)), trireme(2, None)], now);
        let mut late = trireme(1, Some(1));
        late.late = true;
        writer.decide(&[late, trireme(2, None)], now);
        assert_eq!(writer.current(), Some(NodeId(1)), "late alone is nothing");
        writer.decide(&[late, trireme(2, Some(2))], now);
        assert_eq!(writer.current(), Some(NodeId(2)));
    }

    #[test]
    fn a_read_only_server_writes_only_if_all_are_so() {
        let now = Instant::now();
        let mut writer = Writer::default();
        let mut first = galera(1, 0);
        first.read_only = true;
        writer.decide(&[first, galera(2, 1)], now);
        assert_eq!(writer.current(), Some(NodeId(2)));
        writer.decide(&[first], now);
        assert_eq!(writer.current(), Some(NodeId(1)));
    }

    #[test]
    fn a_donor_is_chosen_only_if_nobody_is_ready() {
        let now = Instant::now();
        let mut writer = Writer::default();
        let mut donor = galera(1, 0);
        donor.ready = false;
        writer.decide(&[donor, galera(2, 1)], now);
        assert_eq!(writer.current(), Some(NodeId(2)));
    }
}
