//! The nodes that went on committing while a fault was in force, and how long anybody may have had to wait.

use crate::fault::Fault;
use crate::timeline::{Span, longest_gap};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use trireme_cluster::NodeId;
use trireme_history::Micros;

/// When a node falls silent, the others agree within this time to go on without it (`docs/operations/flow-control.md`), and
/// need no one's leave when it dies or lags.
pub(crate) const OTHERS: Duration = Duration::from_millis(500);
/// Its appliers alone stand still, or its disk is slow: it is waited for until it gives up, and then comes the next commit.
pub(crate) const LAGGARD: Duration = Duration::from_millis(750);
/// When it was the sequencer they also elect another one.
pub(crate) const SEQUENCER: Duration = Duration::from_secs(1);

/// How long the nodes that `faults` leave alone may go without a commit on any of them; `sequencers` says for each of them who ordered when it
/// struck, as far as that was known. `None`: no majority need be left, or all must start again.
pub(crate) fn limit(faults: &[Fault], sequencers: &[Vec<NodeId>], all: &[NodeId]) -> Option<Duration> {
    // One node has no data, and its donor may be killed or waits for its script: no majority need serve.
    if faults.iter().any(|fault| matches!(fault, Fault::DisturbCopy(..) | Fault::TakeCopy(_) | Fault::RestartAll)) {
        return None;
    }
    let hit: BTreeSet<NodeId> = faults.iter().flat_map(|fault| fault.hit(all)).collect();
    let alone = faults.len() == 1 && faults[0].kills(all).len() < all.len();
    if !alone && 2 * (all.len() - hit.len()) <= all.len() {
        return None;
    }
    let of_one = |(fault, ordered): (&Fault, &Vec<NodeId>)| match fault {
        // The sequencer goes on.
        Fault::LockTables(_) => LAGGARD,
        Fault::SlowDisk(node) if !ordered.contains(node) => LAGGARD,
        _ if ordered.is_empty() || fault.hit(all).iter().any(|node| ordered.contains(node)) => SEQUENCER,
        _ => OTHERS,
    };
    faults.iter().zip(sequencers).map(of_one).max()
}

/// A single node may go without one for so much longer: its few clients may all be refused for a conflict, several times over.
pub(crate) const SINGLE_MORE: Duration = Duration::from_millis(1500);

/// A client behind `trireme balance` may go without an answer for so long, whatever happens to one server.
pub(crate) const THROUGH: Duration = Duration::from_secs(1);

/// A commit passes so many threads, any of which the machine may keep from running.
pub(crate) const THREADS: u64 = 5;

/// From one fault to the next.
pub(crate) struct Round {
    pub from: Micros,
    /// When everything was whole again.
    pub back: Micros,
    pub hit: BTreeSet<NodeId>,
}

/// Longest times without a commit, in the round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gaps {
    /// On all nodes together that were not hit; where all were, on all.
    pub healthy: Micros,
    /// On one node alone while it was to serve: one that was not hit, or one that was back.
    pub single: Micros,
    /// On all nodes together.
    pub anywhere: Micros,
}

impl Round {
    /// `until` is when the next one begins.
    pub fn gaps(&self, commits: &BTreeMap<NodeId, Vec<Micros>>, until: Micros) -> Gaps {
        let span = Span { from: self.from, to: until };
        let together = |on: &dyn Fn(&NodeId) -> bool| {
            let mut times: Vec<Micros> =
                commits.iter().filter(|(node, _)| on(node)).flat_map(|(_, times)| times).copied().collect();
            times.sort_unstable();
            longest_gap(&times, span)
        };
        let alone = |(node, times): (&NodeId, &Vec<Micros>)| {
            let from = if self.hit.contains(node) { self.back } else { self.from };
            longest_gap(times, Span { from: from.min(until), to: until })
        };
        let all_hit = commits.keys().all(|node| self.hit.contains(node));
        Gaps {
            healthy: together(&|node| all_hit || !self.hit.contains(node)),
            single: commits.iter().map(alone).max().unwrap_or(Micros(0)),
            anywhere: together(&|_| true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(n: u8) -> Vec<NodeId> {
        (1..=n).filter_map(NodeId::new).collect()
    }

    #[test]
    fn who_orders_may_be_missed_for_longer() {
        let all = nodes(3);
        let one = all[0];
        let of = |faults: &[Fault], sequencer: &[NodeId]| limit(faults, &vec![sequencer.to_vec(); faults.len()], &all);
        assert_eq!(of(&[Fault::Pause(one)], &all[1..2]), Some(OTHERS));
        assert_eq!(of(&[Fault::Pause(one)], &all[..1]), Some(SEQUENCER));
        assert_eq!(of(&[Fault::Pause(one)], &[]), Some(SEQUENCER), "nobody is known to order");
        assert_eq!(of(&[Fault::LockTables(one)], &all[..1]), Some(LAGGARD));
        assert_eq!(of(&[Fault::KillAll], &all[..1]), None);
        assert_eq!(of(&[Fault::CutPower(all.clone())], &all[..1]), None);
        // One of both ends has to go, not both.
        let cut = Fault::Cut(vec![(all[0], all[1])], String::new());
        assert_eq!(of(std::slice::from_ref(&cut), &all[2..]), Some(OTHERS));
        assert_eq!(of(&[cut, Fault::Pause(all[2])], &all[2..]), None, "no majority need be left");
        assert_eq!(of(&[Fault::Pause(one), Fault::FreezeDisk(one)], &all[1..2]), Some(OTHERS));
    }

    #[test]
    fn who_is_hit_counts_when_it_is_back() {
        let all = nodes(3);
        let times = |list: &[u64]| list.iter().copied().map(Micros).collect::<Vec<_>>();
        let gaps = |commits: [&[u64]; 3], hit: &[NodeId]| {
            let commits = all.iter().copied().zip(commits.map(times)).collect();
            let round = Round { from: Micros(10), back: Micros(38), hit: hit.iter().copied().collect() };
            let Gaps { healthy, single, anywhere } = round.gaps(&commits, Micros(70));
            [healthy.0, single.0, anywhere.0]
        };
        let commits: [&[u64]; 3] = [&[5, 33, 60], &[8, 20, 40, 61], &[12, 30, 50, 69]];
        // 40 to 50, and on a single one 33 to 60.
        assert_eq!(gaps(commits, &[]), [10, 27, 10]);
        // Without the first: still 40 to 50, and 50 to 61. It is back at 38.
        assert_eq!(gaps(commits, &all[..1]), [11, 22, 10]);
        assert_eq!(gaps(commits, &all), [10, 22, 10]);
        assert_eq!(gaps([&[], &[], &[]], &all), [60, 32, 60]);
    }
}
