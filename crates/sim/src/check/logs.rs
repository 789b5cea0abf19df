//! Checks on logs themselves. Two logs of one history that hold an entry of the same term at the same index hold the same entry, so one
//! term has one sequencer. An entry that is delivered is held by a majority of its voters.

use std::collections::HashMap;

use trireme_types::{LogIndex, NodeId, Term, Uuid};

use crate::store::Appended;

#[derive(Default)]
pub struct Logs {
    seen: HashMap<(Uuid, Term, LogIndex), u64>,
    sequencers: HashMap<(Uuid, Term), NodeId>,
}

impl Logs {
    /// Says whether no other log had it.
    pub fn appended(&mut self, history: Uuid, a: Appended) -> Result<bool, String> {
        match self.seen.insert((history, a.term, a.index), a.hash) {
            Some(other) if other != a.hash => Err(format!(
                "two different entries of term {} at index {}: two sequencers in one term",
                a.term, a.index
            )),
            other => Ok(other.is_none()),
        }
    }

    /// `node` acted as the sequencer of `term`. Says whether that is new.
    pub fn sequenced(&mut self, history: Uuid, term: Term, node: NodeId) -> Result<bool, String> {
        let Some(first) = self.sequencers.insert((history, term), node) else { return Ok(true) };
        if first == node { Ok(false) } else { Err(format!("term {term} has two sequencers: {first} and {node}")) }
    }
}
