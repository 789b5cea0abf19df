//! Checks on logs themselves: two logs of one history that hold an entry of the same term at the same index hold the same
//! entry (so one term has one sequencer), and what is delivered is held by a majority of its voters.

use std::collections::HashMap;

use trireme_types::{LogIndex, NodeId, Term, Uuid};

use crate::store::Appended;

#[derive(Default)]
pub struct Logs {
    seen: HashMap<(Uuid, Term, LogIndex), u64>,
    sequencers: HashMap<(Uuid, Term), NodeId>,
}

impl Logs {
    pub fn appended(&mut self, history: Uuid, a: Appended) -> Result<(), String> {
        match self.seen.insert((history, a.term, a.index), a.hash) {
            Some(other) if other != a.hash => Err(format!(
                "two different entries of term {} at index {}: two sequencers in one term",
                a.term, a.index
            )),
            _ => Ok(()),
        }
    }

    /// `node` acted as the sequencer of `term`.
    pub fn sequenced(&mut self, history: Uuid, term: Term, node: NodeId) -> Result<(), String> {
        let first = *self.sequencers.entry((history, term)).or_insert(node);
        if first == node { Ok(()) } else { Err(format!("term {term} has two sequencers: {first} and {node}")) }
    }
}
