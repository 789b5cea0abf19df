//! The checkers can fail: each sabotage must be caught within a stated number of seeds.

use trireme_sim::{Fault, Options, Sabotage, run};
use trireme_types::Durability;

/// First seed that fails, among `seeds` from 1 on.
fn caught(seeds: u64, prepare: impl Fn(&mut Options)) -> Option<(u64, String)> {
    // A panic (an assertion of the core) counts as well.
    std::panic::set_hook(Box::new(|_| {}));
    (1..=seeds).find_map(|seed| {
        let mut o = Options::draw(seed);
        o.forced = false;
        (o.ignore_sb, o.ignore_quorum, o.founded) = (false, false, false);
        o.arbitrators = 0;
        o.store = trireme_sim::StoreKind::Fast;
        o.faults.retain(|f| !matches!(f.0, Fault::Force | Fault::Durability));
        prepare(&mut o);
        // The same run unharmed must hold: else something other than the sabotage was caught.
        let control = Options { sabotage: None, ..o.clone() };
        let sound = std::panic::catch_unwind(|| run(control, false).failure);
        assert!(matches!(sound, Ok(None)), "seed {seed} fails without sabotage: {sound:?}");
        match std::panic::catch_unwind(|| run(o, false)) {
            Ok(report) => report.failure.map(|f| (seed, f.text)),
            Err(_) => Some((seed, "panic".into())),
        }
    })
}

fn expect_caught(seeds: u64, prepare: impl Fn(&mut Options)) {
    match caught(seeds, prepare) {
        Some((seed, text)) => println!("caught by seed {seed}: {text}"),
        None => panic!("not caught within {seeds} seeds"),
    }
}

#[test]
fn canary_a_disk_that_lies_about_syncs_is_caught() {
    expect_caught(30, |o| {
        o.sabotage = Some(Sabotage::LyingDisk);
        o.nodes = 3;
        o.durability = Durability::Disk;
        o.faults.push((Fault::PowerLossAll, 20));
    });
}

#[test]
fn a_promise_that_does_not_survive_the_process_is_caught() {
    expect_caught(100, |o| {
        o.sabotage = Some(Sabotage::ForgottenPromise);
        o.nodes = 5;
        o.faults.push((Fault::Crash, 40));
    });
}

#[test]
fn written_entries_that_do_not_survive_the_process_are_caught() {
    expect_caught(30, |o| {
        o.sabotage = Some(Sabotage::LostWrites);
        o.nodes = 3;
        o.durability = Durability::Process;
        // Drawn for mode `disk`, perhaps: when all lose their power, logs may end below the data, and then a person decides (rule 18).
        o.faults.retain(|f| !matches!(f.0, Fault::PowerLoss | Fault::PowerLossAll));
        o.faults.push((Fault::CrashMany, 20));
    });
}
