//! Checks on logs themselves. Two logs of one history that hold an entry of the same term at the same index hold the same entry, so one
//! term has one sequencer. An entry that is delivered is held by a majority of its voters (judged in `driver.rs`, once for each entry).

use std::collections::{HashMap, HashSet};

use trireme_types::{LogIndex, NodeId, Term, Uuid};

use crate::store::Appended;

#[derive(Default)]
pub struct Logs {
    seen: HashMap<(Uuid, Term, LogIndex), u64>,
    sequencers: HashMap<(Uuid, Term), NodeId>,
    delivered: HashSet<(Uuid, Term, LogIndex)>,
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

    /// Did `node` act as a sequencer on this branch, in this term or a later one?
    pub fn has_led(&self, branch: Uuid, since: Term, node: NodeId) -> bool {
        self.sequencers.iter().any(|((on, term), led)| *on == branch && *term >= since && *led == node)
    }

    /// Somebody delivers this entry, which landed in its log on that branch. Says whether nobody did before.
    pub fn delivered(&mut self, branch: Uuid, term: Term, index: LogIndex) -> bool {
        self.delivered.insert((branch, term, index))
    }
}
