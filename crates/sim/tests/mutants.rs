//! The checkers can fail: each of these breaks one rule of the order (docs/protocol.md, section 9), and the ordinary
//! seeds must notice. docs/testing.md says how many seeds each one takes from 0 on.

use trireme_sim::{Mutant, Options, Sabotage, run};

/// The verdict on a run; a panic (an assertion of the core) counts as well.
fn verdict(options: Options) -> Option<String> {
    match std::panic::catch_unwind(|| run(options, false)) {
        Ok(report) => report.failure.map(|f| f.text),
        Err(_) => Some("panic".into()),
    }
}

/// Where to look: a little before the first seed that is known to notice, and for long enough that another one may take over
/// when seeds change their meaning.
fn expect_caught(name: &str, draw: fn(u64) -> Options, seeds: std::ops::Range<u64>) {
    std::panic::set_hook(Box::new(|_| {}));
    let (last, first) = (seeds.end, seeds.start);
    for seed in seeds {
        let mut broken = draw(seed);
        assert!(broken.break_by_name(name), "no mutant {name}");
        if let Some(text) = verdict(broken) {
            // The same run unharmed must hold: else it is not the mutant that was caught.
            assert_eq!(verdict(draw(seed)), None, "seed {seed} fails without {name}");
            println!("{name} is caught by seed {seed}: {text}");
            return;
        }
    }
    panic!("{name} is not caught by the seeds {first} to {last}");
}

/// Name, and where the search begins.
const KNOWN: &[(&str, u64)] = &[
    ("longest-log", 590),
    ("acks-of-any-term", 0),
    ("acks-kept", 0),
    ("stale-sync", 0),
    ("ack-unsynced", 0),
    ("bodies-withheld", 0),
    ("duplicates", 0),
    ("never-stands", 0),
    ("new-voters-alone", 0),
    ("fork-merged", 0),
    ("two-incarnations", 0),
    ("arbitrator-forgets", 150),
    ("suspect-votes", 0),
    ("data-ignored", 0),
    ("hole-trusted", 1300),
    ("session-kept", 0),
    ("withdraw-sent", 0),
    ("read-committed", 0),
    ("read-without-round", 0),
    ("local-cut", 0),
    ("isolation-ignored", 0),
    ("streams-kept", 0),
    ("eviction-forgotten", 0),
    ("lying-disk", 0),
    ("forgotten-promise", 0),
    ("lost-writes", 0),
    ("trimmed-in-memory", 0),
    ("position-trusted", 0),
    ("vote-ignored", 0),
    ("failure-forgotten", 500),
    ("half-done-trusted", 0),
];

/// Caught where old disks are put back.
const RESTORED: &[&str] = &["short-log-votes"];

/// Caught where records are written in pieces.
const LARGE: &[&str] = &["ack-unwritten", "sync-unwritten", "pieces-mixed"];

/// Caught by scenarios of their own, in `faults.rs`: their steps in a row come up too seldom by chance.
const DIRECTED: &[&str] = &["older-term-commits", "term-unsynced", "twin-returns"];

/// Caught by the order's own tests (`crates/order/tests/group/mutants.rs`): they take somebody who lies, and nobody does here.
const BY_LIES: &[&str] = &[
    "stranger-believed",
    "stranger-overrules",
    "terms-unbounded",
    "driven-up-stays-out",
    "away-stays-out",
    "heavy-newcomer",
    "marks-over-fork",
    "unreadable-written",
    "level-alone",
    "violator-kept",
];

#[test]
fn every_mutant_is_caught() {
    for &(name, first) in KNOWN {
        expect_caught(name, Options::draw, first..first + 2000);
    }
    for name in RESTORED {
        expect_caught(name, Options::restored, 0..100);
    }
    for name in LARGE {
        expect_caught(name, Options::large, 0..500);
    }
}

#[test]
fn no_mutant_is_forgotten() {
    let named = |name: &str| {
        KNOWN.iter().any(|(known, _)| *known == name) || [RESTORED, LARGE, DIRECTED, BY_LIES].concat().contains(&name)
    };
    for mutant in Mutant::ALL {
        assert!(named(mutant.name()), "{mutant:?}");
    }
    for sabotage in Sabotage::ALL {
        assert!(named(sabotage.name()), "{sabotage:?}");
    }
}
