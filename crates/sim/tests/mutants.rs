//! The checkers can fail: mutants are noticed. `trireme-sim --mutants` looks for all of them, and counts how often. Here are those that an
//! ordinary run notices often, and the scenarios of those that no ordinary run notices.

use trireme_sim::mutants::{Form, HEAD, KNOWN, Known, OF, Runs};

/// At least so many of [`OF`] runs.
const OFTEN: u64 = OF / 20;

fn expect_noticed(which: impl Fn(&&Known) -> bool) {
    std::panic::set_hook(Box::new(|_| {}));
    let mut tried = 0;
    for known in KNOWN.iter().filter(which) {
        let found = known.search(Form::Short).expect("one of the simulator's").unwrap_or_else(|text| panic!("{text}"));
        println!("{} is noticed in {} of {} runs: {}", known.name, found.noticed, found.runs, found.text);
        assert!(found.enough, "{} is noticed in {} of {} runs", known.name, found.noticed, found.runs);
        tried += 1;
    }
    assert!(tried > 0, "no mutant was looked for");
}

#[test]
fn mutants_that_come_up_often_are_noticed() {
    expect_noticed(|known| matches!(known.runs, Runs::Drawn { floor, .. } if floor >= OFTEN));
}

#[test]
fn scenarios_notice_their_mutants() {
    expect_noticed(|known| matches!(known.runs, Runs::Directed { .. }));
}

/// The measured values in it are not measured again here; they have to be above the floor.
#[test]
fn the_table_of_mutants_in_the_documents_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/testing.md");
    let text = std::fs::read_to_string(path).unwrap();
    let made = "`trireme-sim --mutants --long --table docs/testing.md` writes it anew";
    let table = text.split_once(HEAD).unwrap_or_else(|| panic!("no table of mutants in {path}: {made}")).1;
    let rows: Vec<&str> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), KNOWN.len(), "rows of the table: {made}");
    for (row, known) in rows.into_iter().zip(KNOWN) {
        let (begin, end) = known.row_around();
        let measured = row.strip_prefix(&begin).and_then(|rest| rest.strip_suffix(&end));
        let measured = measured.unwrap_or_else(|| panic!("{row}\nis not the row of {}: {made}", known.name));
        let number = |text: &str| text.trim().parse::<u64>().unwrap_or_else(|_| panic!("no number: {text} in {row}"));
        let counts = || measured.split_once('|').and_then(|(counts, rate)| Some((counts.split_once(" of ")?, rate)));
        let ((noticed, runs), rate) = match known.runs {
            Runs::TestOfOrder | Runs::TestOfReplicator => continue,
            Runs::Drawn { .. } | Runs::Directed { .. } => counts().unwrap_or_else(|| panic!("no counts in {row}")),
        };
        let (noticed, runs) = (number(noticed), number(runs));
        match known.runs {
            Runs::Drawn { floor, .. } => {
                assert_eq!(number(rate), noticed * OF / runs, "{row}");
                assert!(noticed * OF >= floor * runs, "below its floor: {row}");
            }
            Runs::Directed { floor, .. } => assert!(noticed >= floor, "below its floor: {row}"),
            Runs::TestOfOrder | Runs::TestOfReplicator => {}
        }
    }
}
