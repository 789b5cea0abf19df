//! The facts that reads of lists show: the order of appends to each key, and every anomaly that shows without a graph.

use crate::finding::{Class, Findings, Reader};
use crate::operation::{Element, History, Key, Micros, OpId, Outcome, Step};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) struct Lists<'a> {
    pub history: &'a History,
    /// The transaction that appends an element.
    pub writers: BTreeMap<(Key, Element), OpId>,
    pub orders: BTreeMap<Key, Order>,
    /// Reads of committed transactions before their own appends to the key, which agree with the key's order.
    pub reads: Vec<Read>,
}

/// The appends to one key, oldest first: its longest read.
#[derive(Default)]
pub(crate) struct Order {
    pub elements: Vec<Element>,
    place: BTreeMap<Element, usize>,
    /// When the first of the appends from a place on was acknowledged.
    acknowledged_from: Vec<Option<Micros>>,
}

/// A read that saw the first `seen` appends of a key.
#[derive(Clone, Copy)]
pub(crate) struct Read {
    pub op: OpId,
    pub key: Key,
    pub seen: usize,
}

/// A complete read in a committed transaction.
struct Seen<'a> {
    op: OpId,
    key: Key,
    list: &'a [Element],
    /// Whether the transaction had appended to the key before.
    after_own: bool,
}

impl<'a> Lists<'a> {
    pub fn infer(history: &'a History, findings: &mut Findings) -> Lists<'a> {
        let mut writers = BTreeMap::new();
        for (id, operation) in history.each() {
            for step in operation.steps() {
                if let Step::Append(key, element) = step {
                    writers.insert((*key, *element), id);
                }
            }
        }
        let mut lists = Lists { history, writers, orders: BTreeMap::new(), reads: Vec::new() };
        let seen = lists.seen();
        for read in &seen {
            let order = lists.orders.entry(read.key).or_default();
            if read.list.len() > order.elements.len() {
                order.elements = read.list.to_vec();
            }
        }
        for (key, order) in &mut lists.orders {
            order.index(*key, history, &lists.writers);
        }
        lists.compare(&seen, findings);
        lists
    }

    fn seen(&self) -> Vec<Seen<'a>> {
        let mut seen = Vec::new();
        for (op, operation) in self.history.each().filter(|(_, operation)| operation.outcome == Outcome::Ok) {
            let mut own = BTreeSet::new();
            for step in operation.steps() {
                match step {
                    Step::Append(key, _) => {
                        own.insert(*key);
                    }
                    Step::Read(key, Some(list)) => {
                        seen.push(Seen { op, key: *key, list, after_own: own.contains(key) });
                    }
                    Step::Read(_, None) => {}
                }
            }
        }
        seen
    }

    /// Reads against the order of their key.
    fn compare(&mut self, seen: &[Seen<'a>], findings: &mut Findings) {
        let mut disputed = BTreeSet::new();
        for read in seen {
            let Some(order) = self.orders.get(&read.key) else { continue };
            if !order.elements.starts_with(read.list) {
                if disputed.insert(read.key) {
                    let differ = read.list.iter().zip(&order.elements).take_while(|(a, b)| a == b).count();
                    let show = |list: &[Element]| numbers(&list[differ.saturating_sub(1)..list.len().min(differ + 3)]);
                    let text = format!(
                        "list {}: from place {} on, {} reads [{}], another [{}]",
                        read.key.0,
                        differ.saturating_sub(1),
                        self.describe(read.op),
                        show(read.list),
                        show(&order.elements)
                    );
                    findings.add(Class::IncompatibleOrder, Reader::ReadOnly, vec![read.op], text);
                }
                continue;
            }
            if !read.after_own {
                self.reads.push(Read { op: read.op, key: read.key, seen: read.list.len() });
            }
        }
    }

    /// Everything but cycles.
    pub fn check(&self, findings: &mut Findings) {
        let seen = self.seen();
        self.check_elements(&seen, findings);
        self.check_intermediate(&seen, findings);
        self.check_internal(findings);
        self.check_final(findings);
        self.check_stale(findings);
        self.check_sessions(findings);
    }

    /// Each element of each list: written, once, and by somebody who was not told "rolled back".
    fn check_elements(&self, seen: &[Seen<'_>], findings: &mut Findings) {
        let mut known = BTreeSet::new();
        for read in seen {
            let mut here = BTreeSet::new();
            for element in read.list {
                let what = format!("{} in list {}", element.0, read.key.0);
                let reader = self.describe(read.op);
                if !here.insert(*element) && known.insert((Class::Duplicate, read.key, *element)) {
                    findings.add(
                        Class::Duplicate,
                        Reader::ReadOnly,
                        vec![read.op],
                        format!("{what} is there twice, read by {reader}"),
                    );
                }
                match self.writers.get(&(read.key, *element)) {
                    None => {
                        if known.insert((Class::InventedValue, read.key, *element)) {
                            let text = format!("nobody wrote {what}, read by {reader}");
                            findings.add(Class::InventedValue, Reader::ReadOnly, vec![read.op], text);
                        }
                    }
                    Some(writer) if self.history.get(*writer).outcome == Outcome::Failed => {
                        if known.insert((Class::AbortedRead, read.key, *element)) {
                            let text = format!("{what} of {} is read by {reader}", self.describe(*writer));
                            findings.add(Class::AbortedRead, Reader::ReadOnly, vec![*writer, read.op], text);
                        }
                    }
                    Some(_) => {}
                }
            }
        }
    }

    fn check_intermediate(&self, seen: &[Seen<'_>], findings: &mut Findings) {
        // The last append of each transaction to each key.
        let mut finished = BTreeMap::new();
        for (id, operation) in self.history.each() {
            for step in operation.steps() {
                if let Step::Append(key, element) = step {
                    finished.insert((id, *key), *element);
                }
            }
        }
        for read in seen.iter().filter(|read| !read.after_own) {
            let Some(last) = read.list.last() else { continue };
            let Some(writer) = self.writers.get(&(read.key, *last)).filter(|writer| **writer != read.op) else {
                continue;
            };
            if finished.get(&(*writer, read.key)) != Some(last) {
                let text = format!(
                    "{} ends list {} with {}, in the midst of {}",
                    self.describe(read.op),
                    read.key.0,
                    last.0,
                    self.describe(*writer)
                );
                findings.add(Class::IntermediateRead, Reader::ReadOnly, vec![*writer, read.op], text);
            }
        }
    }

    /// A transaction's reads against its own earlier steps.
    fn check_internal(&self, findings: &mut Findings) {
        for (id, operation) in self.history.each().filter(|(_, operation)| operation.outcome == Outcome::Ok) {
            // The list that a key must read as; before its first read only its end.
            let mut expected: BTreeMap<Key, (bool, Vec<Element>)> = BTreeMap::new();
            for step in operation.steps() {
                match step {
                    Step::Append(key, element) => expected.entry(*key).or_default().1.push(*element),
                    Step::Read(key, Some(list)) => {
                        let fits = match expected.get(key) {
                            None => true,
                            Some((true, whole)) => whole == list,
                            Some((false, end)) => list.ends_with(end),
                        };
                        if !fits {
                            let reader = if operation.writes() { Reader::Writes } else { Reader::ReadOnly };
                            let text = format!("{} reads list {} otherwise than before", self.describe(id), key.0);
                            findings.add(Class::Internal, reader, vec![id], text);
                        }
                        expected.insert(*key, (true, list.clone()));
                    }
                    Step::Read(_, None) => {}
                }
            }
        }
    }

    /// The reads after everything: all nodes alike, and every acknowledged append there.
    fn check_final(&self, findings: &mut Findings) {
        let mut last: BTreeMap<Key, Vec<(OpId, &[Element])>> = BTreeMap::new();
        for read in self.seen().into_iter().filter(|read| self.history.get(read.op).last) {
            last.entry(read.key).or_default().push((read.op, read.list));
        }
        for (key, reads) in &last {
            let (first, list) = reads[0];
            for (other, different) in reads.iter().filter(|(_, other)| *other != list) {
                let text = format!(
                    "list {} has {} appends on node{} and {} on node{}",
                    key.0,
                    list.len(),
                    self.history.get(first).node,
                    different.len(),
                    self.history.get(*other).node
                );
                findings.add(Class::Divergence, Reader::ReadOnly, vec![first, *other], text);
            }
        }
        for ((key, element), writer) in &self.writers {
            let Some(reads) = last.get(key).filter(|_| self.history.get(*writer).outcome == Outcome::Ok) else {
                continue;
            };
            if !reads.iter().any(|(_, list)| list.contains(element)) {
                let text = format!("{} in list {}, acknowledged to {}", element.0, key.0, self.describe(*writer));
                findings.add(Class::LostWrite, Reader::Writes, vec![*writer], text);
            }
        }
    }

    fn check_stale(&self, findings: &mut Findings) {
        // An element that the final reads miss is lost, not late.
        for read in self.reads.iter().filter(|read| !self.history.get(read.op).last) {
            let began = self.history.get(read.op).invoked;
            let Some(missed) = self.orders[&read.key].acknowledged_from(read.seen).filter(|time| *time < began) else {
                continue;
            };
            let text = format!(
                "{} sees {} appends of list {}; one more was acknowledged {} ms before it began",
                self.describe(read.op),
                read.seen,
                read.key.0,
                (began.0 - missed.0) / 1000
            );
            findings.add(Class::StaleRead, Reader::ReadOnly, vec![read.op], text);
        }
    }

    /// Each client sees at least what it saw and wrote before.
    fn check_sessions(&self, findings: &mut Findings) {
        let mut known: BTreeMap<(u32, Key), usize> = BTreeMap::new();
        let mut reads: BTreeMap<OpId, Vec<&Read>> = BTreeMap::new();
        for read in &self.reads {
            reads.entry(read.op).or_default().push(read);
        }
        let mut ids: Vec<OpId> = self.history.each().map(|(id, _)| id).collect();
        ids.sort_by_key(|id| self.history.get(*id).invoked);
        for id in ids {
            let operation = self.history.get(id);
            if operation.outcome != Outcome::Ok {
                continue;
            }
            for read in reads.get(&id).into_iter().flatten() {
                let before = known.entry((operation.process, read.key)).or_default();
                if read.seen < *before {
                    let text = format!(
                        "{} sees {} appends of list {}, and saw or wrote number {} before",
                        self.describe(id),
                        read.seen,
                        read.key.0,
                        *before
                    );
                    findings.add(Class::SessionOrder, Reader::ReadOnly, vec![id], text);
                }
                *before = read.seen.max(*before);
            }
            for step in operation.steps() {
                if let Step::Append(key, element) = step
                    && let Some(place) = self.orders.get(key).and_then(|order| order.place(*element))
                {
                    let before = known.entry((operation.process, *key)).or_default();
                    *before = (place + 1).max(*before);
                }
            }
        }
    }

    /// A transaction in words.
    pub fn describe(&self, id: OpId) -> String {
        let operation = self.history.get(id);
        let outcome = match (operation.outcome, &operation.error) {
            (Outcome::Ok, _) => String::new(),
            (Outcome::Failed, Some(error)) => format!(", rolled back: {error}"),
            (Outcome::Failed, None) => ", rolled back".to_owned(),
            (Outcome::Unknown, _) => ", unknown outcome".to_owned(),
        };
        format!("T{} (node{}, {:.3} s{outcome})", id.0, operation.node, operation.invoked.0 as f64 / 1e6)
    }
}

impl Order {
    fn index(&mut self, key: Key, history: &History, writers: &BTreeMap<(Key, Element), OpId>) {
        for (i, element) in self.elements.iter().enumerate() {
            self.place.entry(*element).or_insert(i);
        }
        let mut earliest: Option<Micros> = None;
        self.acknowledged_from = vec![None; self.elements.len()];
        for (i, element) in self.elements.iter().enumerate().rev() {
            let writer = writers.get(&(key, *element)).map(|id| history.get(*id));
            let acknowledged = writer.filter(|op| op.outcome == Outcome::Ok).and_then(|op| op.completed);
            earliest = match (earliest, acknowledged) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            self.acknowledged_from[i] = earliest;
        }
    }

    pub fn place(&self, element: Element) -> Option<usize> {
        self.place.get(&element).copied()
    }

    fn acknowledged_from(&self, place: usize) -> Option<Micros> {
        self.acknowledged_from.get(place).copied().flatten()
    }
}

fn numbers(list: &[Element]) -> String {
    list.iter().map(|element| element.0.to_string()).collect::<Vec<_>>().join(" ")
}
