//! One sequencer's era: a term of a branch, and what is known in it. The one place where it begins and where all of it is forgotten.
//!
//! Nothing is known of a new sequencer's log before it was compared; after a fork not even what is committed here. Within one term,
//! what was compared stays compared: its sequencer would not send it again.

use std::collections::{BTreeMap, VecDeque};

use trireme_types::{Lineage, LogIndex, NodeId, Term, Uuid};

use crate::group::Group;
use crate::mutant::Mutant;
use crate::{Append, Envelope, LogStore};

/// Written below and nowhere else.
#[derive(Default)]
pub(crate) struct Era {
    /// Words count that are said on this branch: the own one, or that of the sequencer that is followed. Nil: the log was replaced,
    /// and no era has begun since.
    branch: Uuid,
    /// Of that branch.
    lineage: Lineage,
    /// Words count that are said in this term. The promised one, but for the moment between a promise and the era that begins with it.
    term: Term,
    /// Highest commit claimed by the sequencer; may be ahead of what is held. Rises with every append and heartbeat.
    claimed_commit: LogIndex,
    /// The own log is the sequencer's up to here: for a follower what an append has matched, for the sequencer its last entry. Falls
    /// only when the log is truncated.
    verified: LogIndex,
    /// How far each member, this one included, acknowledged the sequencer's log. A peer's goes when its link comes up anew, or when it
    /// has changed its branch.
    acks: BTreeMap<NodeId, LogIndex>,
    /// The last own acknowledgement that the others were told. `None`: the next one is due whatever it says.
    acked: Option<LogIndex>,
    /// Appends that wait for bodies, in the order in which they came. Those before a cut of the link to the sequencer go: what came
    /// behind them may be lost.
    held: VecDeque<Envelope<Append>>,
}

impl Era {
    pub fn branch(&self) -> Uuid {
        self.branch
    }

    pub fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    pub fn term(&self) -> Term {
        self.term
    }

    // --- beginning and end ----------------------------------------------------------------------------------------

    fn is(&self, branch: Uuid, term: Term) -> bool {
        (self.branch, self.term) == (branch, term)
    }

    /// `commit`: what is committed here, whoever orders. `keeps_acks` breaks the rule, for the checkers.
    fn forget(&mut self, commit: LogIndex, keeps_acks: bool) {
        if !keeps_acks {
            self.acks.clear();
        }
        self.acked = None;
        self.held.clear();
        self.verified = LogIndex::ZERO;
        self.claimed_commit = commit;
    }

    // --- what is compared, and claimed ----------------------------------------------------------------------------

    pub fn verified(&self) -> LogIndex {
        self.verified
    }

    /// An append has matched the own log up to here, and the sequencer claims this commit.
    pub fn note_matched(&mut self, upto: LogIndex, commit: LogIndex) {
        self.verified = self.verified.max(upto);
        self.claim_commit(commit);
    }

    /// Sequencer: the own log, which is the one to compare with, ends here.
    pub fn note_own_end(&mut self, last: LogIndex) {
        self.verified = last;
    }

    /// The own log ends here by now.
    pub fn truncate_after(&mut self, index: LogIndex) {
        self.verified = self.verified.min(index);
    }

    pub fn claimed_commit(&self) -> LogIndex {
        self.claimed_commit
    }

    pub fn claim_commit(&mut self, commit: LogIndex) {
        self.claimed_commit = self.claimed_commit.max(commit);
    }

    // --- acknowledgements -----------------------------------------------------------------------------------------

    pub fn ack_of(&self, node: NodeId) -> Option<LogIndex> {
        self.acks.get(&node).copied()
    }

    /// Of all that acknowledged anything, in no order.
    pub fn acks(&self) -> impl Iterator<Item = LogIndex> {
        self.acks.values().copied()
    }

    pub fn note_ack(&mut self, node: NodeId, index: LogIndex) {
        let ack = self.acks.entry(node).or_default();
        *ack = (*ack).max(index);
    }

    /// This peer may hold less by now than it acknowledged, or holds another log.
    pub fn forget_ack_of(&mut self, peer: NodeId) {
        self.acks.remove(&peer);
    }

    /// The acknowledgement that the others are to be told now, if any: it has risen, or they want to hear it again.
    pub fn take_own_ack(&mut self, me: NodeId) -> Option<LogIndex> {
        let own = self.ack_of(me)?;
        if self.acked.is_some_and(|told| own <= told) {
            return None;
        }
        self.acked = Some(own);
        Some(own)
    }

    /// The sequencer wants an answer although there may be nothing new to say.
    pub fn owe_own_ack(&mut self) {
        self.acked = None;
    }

    // --- appends that wait for bodies -----------------------------------------------------------------------------

    pub fn held_count(&self) -> usize {
        self.held.len()
    }

    /// Behind those that wait already.
    pub fn hold(&mut self, append: Envelope<Append>) {
        self.held.push_back(append);
    }

    /// The rest of the one that was taken last.
    pub fn hold_again(&mut self, append: Envelope<Append>) {
        self.held.push_front(append);
    }

    pub fn take_held(&mut self) -> Option<Envelope<Append>> {
        self.held.pop_front()
    }

    /// The first entry that waits for its body.
    pub fn first_held(&self) -> Option<LogIndex> {
        let Append { entries, prev_index, .. } = &self.held.front()?.content;
        Some(entries.first().map_or(prev_index.next(), |(header, _)| header.index))
    }

    pub fn drop_held(&mut self) {
        self.held.clear();
    }

    // --- invariants -----------------------------------------------------------------------------------------------

    /// **Panics:** when something here contradicts the log or the promises of this member.
    pub fn check(&self, me: NodeId, last: LogIndex, promised: Term) {
        assert!(self.verified <= last, "verified beyond the log");
        let own = self.ack_of(me).unwrap_or_default();
        assert!(self.acked.is_none_or(|to| to <= own), "acknowledged more than it counts for itself");
        assert!(self.term <= promised, "an era of a term that was never promised");
    }
}

impl<S: LogStore> Group<S> {
    /// From now on the own branch, or the one of the sequencer that is followed, counts, in the present term.
    pub(crate) fn enter_era(&mut self, lineage: Lineage) {
        let (branch, term) = (lineage.branch(self.own.tail().history), self.own.term());
        if !self.era.is(branch, term) {
            self.forget_era();
            self.suspicion.forget_acknowledged();
        }
        if self.era.branch != branch {
            self.suspicion.forget_all_of_peers();
        }
        (self.era.branch, self.era.lineage, self.era.term) = (branch, lineage, term);
    }

    /// Another log: what was known of the old one is void, in the same term too. No era is there before the next one begins.
    pub(crate) fn end_era(&mut self) {
        self.forget_era();
        (self.era.branch, self.era.lineage, self.era.term) = Default::default();
    }

    /// This member orders from now on, with a log that ends at `last`: of it nobody has acknowledged anything yet.
    pub(crate) fn lead_era(&mut self, last: LogIndex) {
        self.forget_era();
        self.era.note_own_end(last);
    }

    fn forget_era(&mut self) {
        let keeps_acks = self.is(Mutant::AcksKept);
        self.era.forget(self.commit, keeps_acks);
    }

    /// Somebody else is followed, or nobody, perhaps in the same era: it may not have heard what was said, and sends anew.
    pub(crate) fn hear_anew(&mut self) {
        self.era.drop_held();
        self.era.owe_own_ack();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(n: u8) -> NodeId {
        NodeId(Uuid([n; 16]))
    }

    #[test]
    fn an_acknowledgement_is_told_when_it_has_risen_or_is_owed() {
        let mut era = Era::default();
        assert_eq!(era.take_own_ack(node(1)), None, "nothing to say yet");
        era.note_ack(node(1), LogIndex(5));
        era.note_ack(node(1), LogIndex(3));
        assert_eq!(era.take_own_ack(node(1)), Some(LogIndex(5)), "it never falls");
        assert_eq!(era.take_own_ack(node(1)), None);
        era.owe_own_ack();
        assert_eq!(era.take_own_ack(node(1)), Some(LogIndex(5)));
    }

    #[test]
    fn nothing_of_an_era_outlives_it_but_what_is_committed() {
        let mut era = Era { term: Term(3), ..Era::default() };
        era.note_matched(LogIndex(9), LogIndex(8));
        era.note_ack(node(1), LogIndex(9));
        era.note_ack(node(2), LogIndex(7));
        era.take_own_ack(node(1));
        era.forget(LogIndex(6), false);
        assert_eq!((era.verified(), era.claimed_commit()), (LogIndex::ZERO, LogIndex(6)));
        assert_eq!((era.acks().count(), era.acked, era.held_count()), (0, None, 0));
    }
}
