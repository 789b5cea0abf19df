//! Histories of a correct database have no anomalies; broken on purpose, they do.

use proptest::prelude::*;
use std::collections::BTreeMap;
use trireme_history::{
    Body, Class, Element, Findings, Header, History, Isolation, Key, Micros, Operation, Outcome, Step, check,
};

/// The wish of one transaction: a key per step, and whether to append.
type Wish = (Vec<(u64, bool)>, u8, u64, u64);

const KEYS: u64 = 3;

fn wishes() -> impl Strategy<Value = Vec<Wish>> {
    let steps = prop::collection::vec((0..KEYS, any::<bool>()), 1..5);
    prop::collection::vec((steps, 0..10u8, 0..30u64, 0..30u64), 5..60)
}

/// Runs the wishes one after the other on a map of lists, each at one instant between question and answer. One in ten is
/// rolled back, one in ten gets no answer, and then every other one takes effect.
fn run(wishes: &[Wish]) -> History {
    let mut header = Header::new(Isolation::Serializable);
    header.causal = true;
    header.single = true;
    let mut history = History { header, operations: Vec::new() };
    let mut lists: BTreeMap<Key, Vec<Element>> = BTreeMap::new();
    let mut free_from: Vec<u64> = Vec::new();
    let mut next = 0;
    for (i, (wish, fate, before, after)) in wishes.iter().enumerate() {
        let now = 100 + 10 * i as u64;
        let (invoked, completed) = (now - before, now + after);
        let outcome = match fate {
            0 => Outcome::Failed,
            1 | 2 => Outcome::Unknown,
            _ => Outcome::Ok,
        };
        let mut state = lists.clone();
        let mut steps = Vec::new();
        for (key, append) in wish {
            let list = state.entry(Key(*key)).or_default();
            if *append {
                next += 1;
                list.push(Element(next));
                steps.push(Step::Append(Key(*key), Element(next)));
            } else {
                steps.push(Step::Read(Key(*key), (outcome == Outcome::Ok).then(|| list.clone())));
            }
        }
        if !matches!(fate, 0 | 1) {
            lists = state;
        }
        let process = match free_from.iter().position(|free| *free < invoked) {
            Some(process) => process,
            None => {
                free_from.push(0);
                free_from.len() - 1
            }
        };
        free_from[process] = if outcome == Outcome::Unknown { u64::MAX } else { completed };
        history.operations.push(operation(process as u32, invoked, completed, outcome, steps));
    }
    let all: Vec<Step> =
        (0..KEYS).map(|key| Step::Read(Key(key), Some(lists.get(&Key(key)).cloned().unwrap_or_default()))).collect();
    for node in 1..=3 {
        let mut last = operation(1000 + node, 1_000_000, 1_000_001, Outcome::Ok, all.clone());
        last.last = true;
        last.node = node as u8;
        history.operations.push(last);
    }
    history
}

fn operation(process: u32, invoked: u64, completed: u64, outcome: Outcome, steps: Vec<Step>) -> Operation {
    Operation {
        process,
        node: 1 + (process % 3) as u8,
        invoked: Micros(invoked),
        completed: (outcome != Outcome::Unknown).then_some(Micros(completed)),
        outcome,
        error: None,
        last: false,
        body: Body::Transaction(steps),
    }
}

fn steps_of(operation: &mut Operation) -> &mut Vec<Step> {
    let Body::Transaction(steps) = &mut operation.body else { panic!("only transactions here") };
    steps
}

/// Every complete read.
fn reads(history: &mut History) -> Vec<&mut Vec<Element>> {
    let steps = history.operations.iter_mut().flat_map(|operation| steps_of(operation).iter_mut());
    steps.filter_map(|step| if let Step::Read(_, Some(list)) = step { Some(list) } else { None }).collect()
}

/// The appends of all operations with this outcome that are there at the end.
fn appended(history: &History, outcome: Outcome) -> Vec<(usize, Element)> {
    let there: Vec<Element> =
        history.operations.last().into_iter().flat_map(|op| op.steps().to_vec()).fold(Vec::new(), |mut all, step| {
            if let Step::Read(_, Some(list)) = step {
                all.extend(list);
            }
            all
        });
    let of = |(i, operation): (usize, &Operation)| -> Vec<(usize, Element)> {
        let steps = operation.steps().iter();
        steps.filter_map(|step| if let Step::Append(_, e) = step { Some((i, *e)) } else { None }).collect()
    };
    let right = history.operations.iter().enumerate().filter(|(_, operation)| operation.outcome == outcome);
    right.flat_map(of).filter(|(_, element)| there.contains(element)).collect()
}

fn counts(findings: &Findings, class: Class) -> bool {
    findings.classes.get(&class).is_some_and(|tally| tally.counted > 0)
}

proptest! {
    #[test]
    fn a_serializable_history_has_no_anomaly(wishes in wishes()) {
        let findings = check(&run(&wishes));
        prop_assert!(findings.classes.is_empty(), "{findings:#?}");
    }

    #[test]
    fn a_dropped_append_is_found(wishes in wishes(), pick in any::<prop::sample::Index>()) {
        let mut history = run(&wishes);
        let candidates = appended(&history, Outcome::Ok);
        prop_assume!(!candidates.is_empty());
        let (_, lost) = candidates[pick.index(candidates.len())];
        for list in reads(&mut history) {
            list.retain(|element| *element != lost);
        }
        prop_assert!(counts(&check(&history), Class::LostWrite));
    }

    #[test]
    fn an_append_answered_with_rolled_back_is_found(wishes in wishes(), pick in any::<prop::sample::Index>()) {
        let mut history = run(&wishes);
        let candidates = appended(&history, Outcome::Ok);
        prop_assume!(!candidates.is_empty());
        let (i, _) = candidates[pick.index(candidates.len())];
        history.operations[i].outcome = Outcome::Failed;
        prop_assert!(counts(&check(&history), Class::AbortedRead));
    }

    #[test]
    fn two_swapped_appends_in_one_read_are_found(wishes in wishes(), pick in any::<prop::sample::Index>()) {
        let mut history = run(&wishes);
        let mut long: Vec<_> = reads(&mut history).into_iter().filter(|list| list.len() > 1).collect();
        prop_assume!(!long.is_empty());
        let i = pick.index(long.len());
        let end = long[i].len();
        long[i].swap(end - 2, end - 1);
        prop_assert!(counts(&check(&history), Class::IncompatibleOrder));
    }

    #[test]
    fn a_node_that_lacks_the_end_is_found(wishes in wishes()) {
        let mut history = run(&wishes);
        let last = history.operations.last_mut().unwrap();
        let mut changed = false;
        for step in steps_of(last) {
            if let Step::Read(_, Some(list)) = step {
                changed |= list.pop().is_some();
            }
        }
        prop_assume!(changed);
        prop_assert!(counts(&check(&history), Class::Divergence));
    }

    #[test]
    fn a_read_of_the_past_is_found(wishes in wishes(), pick in any::<prop::sample::Index>()) {
        let mut history = run(&wishes);
        // A read-only transaction with one read, whose newest append was acknowledged before it began.
        let known: BTreeMap<Element, Option<Micros>> = history
            .operations
            .iter()
            .flat_map(|op| op.steps().iter().map(move |step| (op, step)))
            .filter_map(|(op, step)| if let Step::Append(_, e) = step { Some((*e, op.completed)) } else { None })
            .collect();
        let mut candidates: Vec<&mut Operation> = history
            .operations
            .iter_mut()
            .filter(|op| !op.last && op.outcome == Outcome::Ok)
            .filter(|op| match op.steps() {
                [Step::Read(_, Some(list))] => list
                    .last()
                    .and_then(|e| known[e])
                    .is_some_and(|completed| completed < op.invoked),
                _ => false,
            })
            .collect();
        prop_assume!(!candidates.is_empty());
        let i = pick.index(candidates.len());
        if let Some(Step::Read(_, Some(list))) = steps_of(candidates[i]).first_mut() {
            list.pop();
        }
        let findings = check(&history);
        prop_assert!(counts(&findings, Class::StaleRead), "{findings:#?}");
    }
}
