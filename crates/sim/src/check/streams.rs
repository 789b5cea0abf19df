//! Streaming transactions: fragments of one transaction have an effect one after the other, and none is missing when it commits. None has
//! an effect after its end: a commit, a rollback, a fragment that failed, or a view without its origin.

use std::collections::{BTreeMap, BTreeSet};

use trireme_types::{Uuid, View};

use crate::judge::Part;

struct Open {
    origin: Uuid,
    fragments: u32,
    failed: bool,
}

#[derive(Default)]
pub struct Streams {
    open: BTreeMap<u64, Open>,
}

impl Streams {
    pub fn part(&mut self, origin: Uuid, op: u64, part: Part, effect: bool) -> Result<(), String> {
        let due = self.open.get(&op).filter(|o| !o.failed).map(|o| o.fragments);
        match part {
            Part::Whole | Part::Isolated => {}
            Part::Rollback => {
                self.open.remove(&op);
            }
            Part::Fragment(_) | Part::Commit(_) if !effect => {
                if let Some(open) = self.open.get_mut(&op) {
                    open.failed = true;
                }
            }
            Part::Fragment(0) => {
                if self.open.insert(op, Open { origin, fragments: 1, failed: false }).is_some() {
                    return Err(format!("operation {op} begins twice"));
                }
            }
            Part::Fragment(n) | Part::Commit(n) if due != Some(n) => {
                return Err(format!("{part:?} of operation {op} has an effect; due was {due:?}"));
            }
            Part::Fragment(_) => {
                if let Some(open) = self.open.get_mut(&op) {
                    open.fragments += 1;
                }
            }
            Part::Commit(_) => {
                self.open.remove(&op);
            }
        }
        Ok(())
    }

    pub fn view(&mut self, view: &View) {
        self.open.retain(|_, o| view.members.iter().any(|m| m.uuid() == o.origin));
    }

    /// `open`: those that a member takes to be open.
    pub fn compare(&self, open: &BTreeSet<u64>) -> Result<(), String> {
        if self.open.keys().eq(open) {
            return Ok(());
        }
        Err(format!("streaming transactions {open:?} are open, should be {:?}", self.open.keys().collect::<Vec<_>>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_late_fragments_and_forgotten_ends_are_found() {
        let (origin, mut s) = (Uuid([1; 16]), Streams::default());
        s.part(origin, 1, Part::Fragment(0), true).unwrap();
        assert!(s.part(origin, 1, Part::Fragment(2), true).is_err());
        assert!(s.part(origin, 1, Part::Commit(2), true).is_err());
        s.part(origin, 1, Part::Fragment(1), true).unwrap();
        s.compare(&BTreeSet::from([1])).unwrap();
        s.view(&View::default());
        assert!(s.compare(&BTreeSet::from([1])).is_err());
        assert!(s.part(origin, 1, Part::Commit(2), true).is_err());
        assert!(s.part(origin, 1, Part::Commit(2), false).is_ok());
    }
}
