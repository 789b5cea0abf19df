//! The runs: bounds within which nothing may break, and broken rules that must be found.

use crate::{Mutant, Rules, Set};

/// A name for people, and the bounds.
pub type Run = (&'static str, Rules);

const NOTHING: Rules = Rules {
    synced_acks: false,
    first_voters: Set::ALL,
    begun: true,
    terms: 2,
    log: 3,
    restarts: 0,
    power_losses: 0,
    damages: 0,
    voter_changes: 0,
    forks: 0,
    hints: 0,
    broken: None,
};

/// Two voters and a member without a vote.
const TWO: Set = Set(0b011);

/// One voter and two members without a vote.
const ONE: Set = Set(0b001);

fn shared() -> Rules {
    Rules { first_voters: ONE, terms: 3, voter_changes: 1, power_losses: 1, forks: 1, ..NOTHING }
}

/// Seconds each.
pub fn small() -> Vec<Run> {
    let disk = Rules { synced_acks: true, ..NOTHING };
    vec![
        ("elections, mode disk", Rules { begun: false, log: 4, ..disk.clone() }),
        (
            "three losses of power and a fork, mode process",
            Rules { begun: false, power_losses: 3, forks: 1, ..NOTHING },
        ),
        ("a change of voters, mode disk", Rules { voter_changes: 1, log: 4, ..disk.clone() }),
        ("damage, mode disk", Rules { damages: 1, restarts: 1, power_losses: 1, ..disk }),
        (
            "a change of voters, two losses of power and a fork, mode process",
            Rules { voter_changes: 1, power_losses: 2, forks: 1, ..NOTHING },
        ),
        ("a founder that has shared its vote loses its power, mode process", shared()),
    ]
}

/// Minutes to hours each.
pub fn large() -> Vec<Run> {
    let disk = Rules { synced_acks: true, ..NOTHING };
    let lossy = Rules { power_losses: 2, forks: 1, ..NOTHING };
    vec![
        ("marks of what is committed, mode process", Rules { restarts: 1, hints: 1, ..lossy.clone() }),
        (
            "a newcomer gets a vote, mode process",
            Rules { first_voters: TWO, voter_changes: 1, log: 4, ..lossy.clone() },
        ),
        ("voters change and power is lost, mode process", Rules { voter_changes: 1, log: 4, ..lossy.clone() }),
        ("three terms, a fork, mode process", Rules { terms: 3, log: 4, power_losses: 3, ..lossy }),
        (
            "three terms, a change of voters, mode disk",
            Rules { terms: 3, log: 5, voter_changes: 1, restarts: 1, ..disk },
        ),
    ]
}

/// Each has to be found.
pub fn mutants() -> Vec<Run> {
    let begin = Rules { begun: false, ..NOTHING };
    let broken = |mutant, rules: Rules| Rules { broken: Some(mutant), ..rules };
    let lossy = Rules { power_losses: 3, forks: 1, ..begin.clone() };
    let disk = Rules { synced_acks: true, ..begin };
    vec![
        ("a suspect log is evidence", broken(Mutant::SuspectVotes, lossy.clone())),
        ("promises are enough", broken(Mutant::NoEvidence, lossy.clone())),
        (
            "a log counts as whole before it is repaired",
            broken(Mutant::RepairedAtOnce, Rules { begun: true, terms: 3, log: 4, ..lossy.clone() }),
        ),
        (
            "marks outlive a fork",
            broken(Mutant::MarksKept, Rules { begun: true, power_losses: 2, restarts: 1, hints: 1, ..lossy }),
        ),
        ("new voters decide alone", broken(Mutant::NewVotersAlone, Rules { log: 4, voter_changes: 1, ..disk.clone() })),
        ("the longest log is the best", broken(Mutant::LongestLog, Rules { terms: 3, log: 4, ..disk.clone() })),
        ("an older term's entry commits", broken(Mutant::OlderTermCommits, Rules { terms: 4, ..disk })),
        ("a branch is one member's", broken(Mutant::ForkedAlone, shared())),
    ]
}
