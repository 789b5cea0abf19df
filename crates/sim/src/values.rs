//! The data as clients saw them, as `trireme-history` judges them: lists, to which transactions append the number of their operation. A
//! transaction reads each list that it appends to, on its own node and as of that moment. A causal read waits for its position and reads
//! then. Their values come from the models of databases, their outcomes from the clients' record, and the verdict is on the whole run.
//!
//! A row that a client changes is locked on its node, as InnoDB does it: by transactions of that node that have not ended there, and by
//! streaming transactions of others that have come here. So two write sets of one node, which are not certified against each other (rule
//! 23), never change the same row at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use trireme_certification::KeyKind;
use trireme_history::{Body, Element, Header, History, Isolation, Key, Micros, Operation, Step};

use crate::check::{Branches, Outcome, Reach};
use crate::cluster::{Cluster, Process};
use crate::database::{Staging, State};
use crate::judge::Part;
use crate::rng::mix;

/// A list of operations, the newest first. Cheap to copy.
#[derive(Clone, Default)]
pub struct List(Option<Rc<Appended>>);

struct Appended {
    op: u64,
    len: usize,
    /// Over the whole list.
    hash: u64,
    before: List,
}

impl List {
    /// Once more of the same operation is nothing new.
    pub fn append(&mut self, op: u64) {
        if self.0.as_ref().is_some_and(|newest| newest.op == op) {
            return;
        }
        let before = self.clone();
        let (len, hash) = before.0.as_ref().map_or((0, 0), |b| (b.len, b.hash));
        self.0 = Some(Rc::new(Appended { op, len: len + 1, hash: mix(hash ^ mix(op)), before }));
    }

    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |newest| newest.len)
    }

    fn elements(&self) -> Vec<Element> {
        let mut elements = Vec::with_capacity(self.len());
        let mut at = self;
        while let List(Some(appended)) = at {
            elements.push(Element(appended.op));
            at = &appended.before;
        }
        elements.reverse();
        elements
    }
}

impl PartialEq for List {
    fn eq(&self, other: &List) -> bool {
        let mark = |list: &List| list.0.as_ref().map(|newest| (newest.len, newest.hash));
        mark(self) == mark(other)
    }
}

impl Eq for List {}

impl std::fmt::Debug for List {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.elements().iter().map(|e| e.0)).finish()
    }
}

/// Does a key of this kind change the row?
pub fn changes(kind: KeyKind) -> bool {
    kind >= KeyKind::Update
}

/// A transaction, or a read.
struct Seen {
    /// `None`: a read.
    op: Option<u64>,
    slot: usize,
    client: u32,
    invoked: u64,
    completed: Option<u64>,
    /// The past that it is a part of. `None`: not answered, or by the node alone.
    at: Option<Reach>,
    /// A read: whatever is on the branch that gave it its position.
    reader: Option<Reach>,
    steps: Vec<Step>,
}

/// A causal read that waits for its position.
pub struct Waiting {
    pub seqno: u64,
    reader: Reach,
    invoked: u64,
    id: u64,
}

#[derive(Default)]
pub struct Values {
    seen: Vec<Seen>,
    /// Place of an operation there.
    places: BTreeMap<u64, usize>,
    /// Committed, and all servers failed alike to apply them.
    without_effect: BTreeSet<u64>,
    /// So many elements were read.
    elements: usize,
    /// Of each node: clients that wait for nothing, and how many there are.
    idle: BTreeMap<usize, Vec<u32>>,
    clients: u32,
}

/// Elements that are read in one run: the cost grows with the square of a list's length.
const ELEMENTS_MAX: usize = 4_000;
/// Lists that a causal read looks at.
const LISTS_READ: u64 = 2;

impl Values {
    fn client(&mut self, slot: usize) -> u32 {
        self.idle.entry(slot).or_default().pop().unwrap_or_else(|| {
            self.clients += 1;
            self.clients
        })
    }

    fn read(&mut self, state: &State, key: u16) -> Option<Step> {
        let list = state.rows.get(&key).cloned().unwrap_or_default();
        self.elements += list.len() + 1;
        (self.elements <= ELEMENTS_MAX).then(|| Step::Read(Key(u64::from(key)), Some(list.elements())))
    }

    /// A client has asked for this at `now`. `state`: the data that it sees.
    pub fn asked(&mut self, slot: usize, now: u64, op: u64, part: Part, keys: &[(u16, KeyKind)], state: &State) {
        let changed: BTreeSet<u16> = keys.iter().filter(|k| changes(k.1)).map(|k| k.0).collect();
        let place = match self.places.get(&op) {
            Some(place) => *place,
            None => {
                let client = self.client(slot);
                self.seen.push(Seen {
                    op: Some(op),
                    slot,
                    client,
                    invoked: now,
                    completed: None,
                    at: None,
                    reader: None,
                    steps: Vec::new(),
                });
                self.places.insert(op, self.seen.len() - 1);
                self.seen.len() - 1
            }
        };
        for key in changed {
            // A transaction that waits for its turn reads nothing. Nor do fragments, which may be certified long before the end.
            let reads = if part == Part::Whole { self.read(state, key) } else { None };
            let append = Step::Append(Key(u64::from(key)), Element(op));
            let steps = &mut self.seen[place].steps;
            if !steps.contains(&append) {
                steps.extend(reads);
                steps.push(append);
            }
        }
    }

    /// The client was told how it ended; `at`: where that was decided, if by the order.
    pub fn answered(&mut self, op: u64, now: u64, at: Option<Reach>) {
        let Some(seen) = self.places.get(&op).map(|place| &mut self.seen[*place]) else { return };
        if seen.completed.is_none() {
            (seen.completed, seen.at) = (Some(now), at);
            self.idle.entry(seen.slot).or_default().push(seen.client);
        }
    }

    pub fn no_effect(&mut self, op: u64) {
        self.without_effect.insert(op);
    }

    /// The server in this place has lost a vote over `seqno`, which it had applied. Nobody promises that what it showed from there on is the
    /// group's (rule 28).
    pub fn disown(&mut self, slot: usize, seqno: u64) {
        let shown = |seen: &&mut Seen| seen.slot == slot && seen.at.as_ref().is_none_or(|at| at.seqno >= seqno);
        for seen in self.seen.iter_mut().filter(shown) {
            seen.steps.retain(|step| !matches!(step, Step::Read(..)));
        }
    }

    /// `reader`: the branch that says so, without an end.
    pub fn wait(seqno: u64, reader: Reach, invoked: u64, id: u64) -> Waiting {
        Waiting { seqno, reader, invoked, id }
    }

    /// Its position is reached, in this past.
    fn performed(&mut self, waiting: &Waiting, slot: usize, now: u64, keys: u64, (state, at): (&State, Reach)) {
        let wanted: BTreeSet<u16> = (0..LISTS_READ).map(|n| (mix(waiting.id * LISTS_READ + n) % keys) as u16).collect();
        let steps: Vec<Step> = wanted.into_iter().filter_map(|key| self.read(state, key)).collect();
        // It may have begun before another one that was answered meanwhile.
        self.clients += 1;
        let client = self.clients;
        let (invoked, completed) = (waiting.invoked, Some(now));
        let reader = Some(waiting.reader.clone());
        let seen = Seen { op: None, slot, client, invoked, completed, at: Some(at), reader, steps };
        if !seen.steps.is_empty() {
            self.seen.push(seen);
        }
    }

    /// A read need not show what was acknowledged on other branches than its own, before it began as well: what it shows may be a past of
    /// theirs nevertheless. So it counts as begun when the first of those answers was given.
    fn begun(&self, seen: &Seen, end: &Reach, branches: &Branches) -> u64 {
        let Some(reader) = seen.reader.as_ref().filter(|reader| reader.lineage != end.lineage) else {
            return seen.invoked;
        };
        let elsewhere = |at: &Reach| branches.is_past_of(end, at) && !branches.is_past_of(reader, at);
        let answers = self.seen.iter().filter(|s| s.op.is_some() && s.at.as_ref().is_some_and(elsewhere));
        answers.filter_map(|s| s.completed).fold(seen.invoked, u64::min)
    }

    /// The whole run, as far as it is a part of the past of what is left, and the data of all who are left. Nobody promises the outcome of
    /// an operation outside of that past: other checkers judge it.
    fn history(
        &self,
        end: &Reach,
        branches: &Branches,
        last: &[(usize, &State)],
        told: impl Fn(u64) -> Option<Outcome>,
        now: u64,
    ) -> History {
        use trireme_history::Outcome as To;
        let mut header = Header::new(Isolation::Snapshot);
        header.causal = true;
        let micros = |ns: u64| Micros(ns / 1_000);
        let mut operations = Vec::new();
        for seen in &self.seen {
            let kept = seen.at.as_ref().is_none_or(|at| branches.is_past_of(end, at));
            let outcome = match seen.op.map(&told) {
                None if !kept || seen.steps.is_empty() => continue,
                None => To::Ok,
                Some(_) if seen.op.is_some_and(|op| self.without_effect.contains(&op)) => To::Unknown,
                Some(Some(Outcome::Committed(_))) if kept => To::Ok,
                // An answer of a lost branch says nothing of the one that survives.
                Some(Some(Outcome::Committed(_))) => To::Unknown,
                Some(Some(Outcome::Conflict(_) | Outcome::RolledBack)) if !kept => To::Unknown,
                Some(Some(Outcome::Unknown) | None) => To::Unknown,
                Some(Some(Outcome::Refused | Outcome::Withdrawn | Outcome::RolledBack | Outcome::Conflict(_))) => {
                    To::Failed
                }
            };
            operations.push(Operation {
                process: seen.client,
                node: seen.slot as u8 + 1,
                invoked: micros(self.begun(seen, end, branches)),
                completed: seen.completed.filter(|_| outcome != To::Unknown).map(micros),
                outcome,
                error: None,
                last: false,
                body: Body::Transaction(seen.steps.clone()),
            });
        }
        for (slot, state) in last {
            let read = |(key, list): (&u16, &List)| Step::Read(Key(u64::from(*key)), Some(list.elements()));
            operations.push(Operation {
                process: u32::MAX - *slot as u32,
                node: *slot as u8 + 1,
                invoked: micros(now),
                completed: Some(micros(now)),
                outcome: To::Ok,
                error: None,
                last: true,
                body: Body::Transaction(state.rows.iter().map(read).collect()),
            });
        }
        History { header, operations }
    }
}

impl Cluster {
    /// Rows that no client of this node may change now, but for those of `op` itself.
    pub(crate) fn locked(&self, slot: usize, op: u64) -> BTreeSet<u16> {
        let s = &self.slots[slot];
        let own =
            s.process.iter().flat_map(|p| &p.locks).filter(|(holder, _)| **holder != op).flat_map(|(_, keys)| keys);
        let staged = s.db.now.staged.iter().filter(|(holder, _)| **holder != op).flat_map(|(_, (_, rows))| rows);
        own.copied().chain(staged.map(|row| row.0)).collect()
    }

    /// A client picks rows of which it need not wait for any: it only refers to the others.
    pub(crate) fn free_keys(
        &self,
        slot: usize,
        op: u64,
        part: Part,
        mut keys: Vec<(u16, KeyKind)>,
    ) -> Vec<(u16, KeyKind)> {
        if keys.iter().any(|k| changes(k.1)) {
            let locked = if part == Part::Isolated { BTreeSet::new() } else { self.locked(slot, op) };
            let process = self.slots[slot].process.as_ref();
            let by_trx = |row, kind| process.is_some_and(|p| p.is_claimed_by_trx(row, kind));
            let taken = |(row, kind): (u16, KeyKind)| locked.contains(&row) || by_trx(row, kind);
            for key in keys.iter_mut().filter(|key| changes(key.1)) {
                if taken(*key) {
                    key.1 = KeyKind::Reference;
                }
            }
        }
        keys
    }

    /// A part of an operation is on its way.
    pub(crate) fn begin_changes(&mut self, slot: usize, op: u64, part: Part, keys: &[(u16, KeyKind)]) {
        if part == Part::Rollback {
            return;
        }
        let s = &mut self.slots[slot];
        self.values.asked(slot, self.now, op, part, keys, &s.db.now);
        let Some(p) = &mut s.process else { return };
        p.locks.entry(op).or_default().extend(keys.iter().filter(|k| changes(k.1)).map(|k| k.0));
    }

    /// The server is about to apply what is next.
    pub(crate) fn end_changes(&mut self, slot: usize) {
        let s = &mut self.slots[slot];
        let (Some(p), Some(change)) = (&mut s.process, s.db.queue.front()) else { return };
        for op in change.ends() {
            p.locks.remove(&op);
            p.trxs.remove(&op);
        }
        if let Staging::Keep(op, _) = change.stage {
            self.rest_trx(slot, op);
        }
    }

    pub(crate) fn values_answered(&mut self, slot: usize, op: u64, seqno: u64) {
        let at = self.past(slot, seqno);
        self.values.answered(op, self.now, Some(at));
    }

    pub(crate) fn read_values(&mut self, slot: usize) {
        let at = self.past(slot, self.slots[slot].db.now.position);
        let s = &mut self.slots[slot];
        let reads = |p: &&mut Process| !p.waiting_reads.is_empty() && p.comparing.is_none();
        let Some(p) = s.process.as_mut().filter(reads) else { return };
        for waiting in p.waiting_reads.extract_if(.., |w| w.seqno <= at.seqno) {
            self.values.performed(&waiting, slot, self.now, self.options.keys, (&s.db.now, at.clone()));
        }
    }

    /// The verdict on what clients saw.
    pub(crate) fn judge_values(&self, end: &Reach, servers: &[usize]) -> Result<(), String> {
        let last: Vec<(usize, &State)> = servers.iter().map(|&slot| (slot, &self.slots[slot].db.now)).collect();
        let history = self.values.history(end, &self.branches, &last, |op| self.clients.outcome(op), self.now);
        let findings = trireme_history::check(&history);
        let counted = findings.classes.iter().filter(|(_, tally)| tally.counted > 0);
        let text = |(class, tally): (_, &trireme_history::Tally)| {
            let first = tally.examples.iter().find(|f| f.excuse.is_none()).map_or("", |f| &f.text);
            format!("{class}: {first}")
        };
        match counted.map(text).next() {
            Some(text) => Err(text),
            None if findings.incomplete => Err("what clients saw could not be judged as a whole".into()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(lists: &[(u16, &[u64])], seqno: u64) -> State {
        let list = |ops: &[u64]| {
            let mut list = List::default();
            ops.iter().for_each(|op| list.append(*op));
            list
        };
        let rows = lists.iter().map(|(key, ops)| (*key, list(ops))).collect();
        State { position: seqno, rows, ..State::default() }
    }

    fn verdict(values: &Values, told: Outcome, last: &State) -> Vec<String> {
        let end = Reach { seqno: 9, ..Reach::default() };
        let history = values.history(&end, &Branches::default(), &[(0, last)], |_| Some(told), 9_000_000);
        trireme_history::check(&history).classes.keys().map(ToString::to_string).collect()
    }

    #[test]
    fn an_acknowledged_append_that_is_gone_is_found_and_one_that_nobody_promises_is_not() {
        let mut values = Values::default();
        values.asked(0, 1_000, 7, Part::Whole, &[(3, KeyKind::Exclusive)], &state(&[], 0));
        let at = Some(Reach { seqno: 1, ..Reach::default() });
        values.answered(7, 2_000, at);
        let there = state(&[(3, &[7])], 1);
        assert_eq!(verdict(&values, Outcome::Committed(1), &there), [""; 0]);
        let gone = state(&[(3, &[])], 1);
        assert_eq!(verdict(&values, Outcome::Committed(1), &gone), ["lost acknowledged write"]);
        assert_eq!(verdict(&values, Outcome::Unknown, &gone), [""; 0]);
        assert_eq!(verdict(&values, Outcome::RolledBack, &there), ["aborted read (G1a)"]);
    }

    #[test]
    fn a_read_that_misses_what_was_acknowledged_before_it_is_found() {
        let mut values = Values::default();
        values.asked(0, 1_000, 7, Part::Whole, &[(0, KeyKind::Update)], &state(&[], 0));
        values.answered(7, 2_000, Some(Reach { seqno: 1, ..Reach::default() }));
        let there = state(&[(0, &[7])], 1);
        values.performed(
            &Values::wait(1, Reach::default(), 3_000, 1),
            1,
            4_000,
            1,
            (&there, Reach { seqno: 1, ..Reach::default() }),
        );
        assert_eq!(verdict(&values, Outcome::Committed(1), &there), [""; 0]);
        values.performed(&Values::wait(0, Reach::default(), 5_000, 2), 1, 6_000, 1, (&state(&[], 0), Reach::default()));
        assert_eq!(verdict(&values, Outcome::Committed(1), &there), ["stale read"]);
    }

    /// Seed 78295389: a member that was cut off begins a branch, and a read there shows nothing but the common past.
    #[test]
    fn a_read_on_another_branch_need_not_show_what_this_one_had_acknowledged() {
        use trireme_types::{Fork, Lineage, LogIndex, Seqno, Uuid};
        let fork = Fork { index: LogIndex(5), seqno: Seqno(0), id: Uuid([1; 16]) };
        let forked = Reach { lineage: Lineage::default().with(fork), seqno: u64::MAX, ..Reach::default() };
        let same = Reach { seqno: u64::MAX, ..Reach::default() };
        let answered = |values: &mut Values| {
            values.asked(0, 1_000, 7, Part::Whole, &[(0, KeyKind::Update)], &state(&[], 0));
            values.answered(7, 2_000, Some(Reach { seqno: 1, ..Reach::default() }));
        };
        for (reader, expected) in [(forked, &[][..]), (same, &["stale read"][..])] {
            let mut values = Values::default();
            answered(&mut values);
            let at = Reach { seqno: 0, ..reader.clone() };
            values.performed(&Values::wait(0, reader, 5_000, 2), 1, 6_000, 1, (&state(&[], 0), at));
            assert_eq!(verdict(&values, Outcome::Committed(1), &state(&[(0, &[7])], 1)), expected);
        }
    }

    #[test]
    fn two_who_change_what_both_had_read_are_found() {
        let mut values = Values::default();
        for op in [7, 8] {
            values.asked(0, 1_000, op, Part::Whole, &[(0, KeyKind::Update)], &state(&[], 0));
        }
        for op in [7, 8] {
            values.answered(op, 5_000 * op, Some(Reach { seqno: op - 6, ..Reach::default() }));
        }
        assert_eq!(verdict(&values, Outcome::Committed(1), &state(&[(0, &[7, 8])], 2)), ["lost update (P4)"]);
    }
}
