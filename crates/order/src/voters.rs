//! The members that should vote (rules 9, 10, 11): pure functions over weights.

use trireme_types::{NodeId, Uuid, Voter, VoterSet};

/// How many of `alive` may fail one after another, the heaviest first, with the rest still a majority of `set`?
/// `None`: not even now.
fn survivable(set: &[Voter], alive: &[NodeId]) -> Option<usize> {
    let total: u32 = set.iter().map(|v| u32::from(v.weight.0)).sum();
    let mut weights: Vec<u32> = set.iter().filter(|v| alive.contains(&v.node)).map(|v| u32::from(v.weight.0)).collect();
    weights.sort_unstable();
    let mut left: u32 = weights.iter().sum();
    if 2 * left <= total {
        return None;
    }
    let mut failures = 0;
    while let Some(heaviest) = weights.pop() {
        left -= heaviest;
        if 2 * left <= total {
            break;
        }
        failures += 1;
    }
    Some(failures)
}

/// The voters wanted, given those that vote now and the members of the view that are complete and alive (present voters
/// among them). Failed voters go only where that raises the number of further failures survived. `None`: no change.
pub(crate) fn next_voters(current: &VoterSet, alive: &[Voter]) -> Option<VoterSet> {
    let nodes: Vec<NodeId> = alive.iter().map(|v| v.node).collect();
    let without: Vec<Voter> = alive.to_vec();
    let mut with = without.clone();
    with.extend(current.voters.iter().filter(|v| !nodes.contains(&v.node)).copied());
    if without.is_empty() {
        return None;
    }
    // Without a majority now there is nobody to decide a change.
    let now = survivable(&with, &nodes)?;
    let chosen = if survivable(&without, &nodes) > Some(now) { without } else { with };
    change(current, chosen)
}

/// The voters after graceful leaves: those of the present voters that are in the view and stay. Failed voters drop out
/// too: the old majority commits it, so what remains decides alone (Galera's rule for graceful leavers).
pub(crate) fn after_leave(current: &VoterSet, in_view: &[NodeId], leavers: &[NodeId]) -> Option<VoterSet> {
    let stay: Vec<Voter> =
        current.voters.iter().filter(|v| in_view.contains(&v.node) && !leavers.contains(&v.node)).copied().collect();
    // Nobody, or nobody with weight: never again would there be a majority.
    if stay.iter().all(|v| v.weight.0 == 0) {
        return None;
    }
    change(current, stay)
}

fn change(current: &VoterSet, mut voters: Vec<Voter>) -> Option<VoterSet> {
    voters.sort_by_key(|v| v.node);
    let mut old = current.voters.clone();
    old.sort_by_key(|v| v.node);
    (voters != old).then_some(VoterSet { voters, fork: Uuid::NIL })
}

#[cfg(test)]
mod tests {
    use super::*;
    use trireme_types::Weight;

    fn voter(n: u8, weight: u8) -> Voter {
        Voter { node: NodeId(Uuid([n; 16])), weight: Weight(weight) }
    }

    fn set(n: u8) -> VoterSet {
        VoterSet { voters: (1..=n).map(|i| voter(i, 1)).collect(), fork: Uuid::NIL }
    }

    fn next(total: u8, alive: u8) -> usize {
        let alive: Vec<Voter> = (1..=alive).map(|i| voter(i, 1)).collect();
        next_voters(&set(total), &alive).map_or(total as usize, |s| s.voters.len())
    }

    #[test]
    fn failed_voters_go_only_where_that_survives_more() {
        assert_eq!(next(5, 4), 5);
        assert_eq!(next(5, 3), 3);
        assert_eq!(next(4, 3), 3);
        assert_eq!(next(3, 2), 3);
        assert_eq!(next(2, 1), 2);
        assert_eq!(next(7, 5), 5);
        assert_eq!(next(7, 6), 7);
    }

    #[test]
    fn a_newcomer_replaces_a_dead_voter() {
        let got = next_voters(&set(3), &[voter(1, 1), voter(2, 1), voter(9, 1)]).unwrap();
        assert_eq!(got.voters.len(), 3);
        assert!(!got.contains(NodeId(Uuid([3; 16]))));
    }

    #[test]
    fn a_newcomer_is_added() {
        assert_eq!(next_voters(&set(1), &[voter(1, 1), voter(2, 1)]).unwrap().voters.len(), 2);
    }

    #[test]
    fn leavers_and_the_dead_go_together() {
        let view = [NodeId(Uuid([1; 16])), NodeId(Uuid([2; 16]))];
        let got = after_leave(&set(3), &view, &view[1..]).unwrap();
        assert_eq!(got.voters, [voter(1, 1)]);
        assert_eq!(after_leave(&set(1), &view[..1], &view[..1]), None, "the last one out writes nothing");
    }

    #[test]
    fn a_leave_never_leaves_voters_without_weight() {
        let current = VoterSet { voters: vec![voter(1, 0), voter(2, 2)], fork: Uuid::NIL };
        let members = [voter(1, 0).node];
        assert_eq!(after_leave(&current, &members, &[voter(2, 2).node]), None);
    }
}
