//! The simulator's own account of where the protocol stands: which changes of voters and which forks are under way, who has promised and
//! not answered yet, to whom a state or a full copy is on its way. It is written from messages as they are sent and from entries as they
//! land in logs, never from what the code under test remembers.

use trireme_order::{LogStore, Message};
use trireme_types::{EntryKind, LogIndex, NodeId, Term, Uuid};

use crate::cluster::Cluster;
use crate::situations::Situation;
use crate::store::Appended;

/// A state of the protocol that a member is in the middle of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// A change of the voters is in its log, and nobody has gone on beyond it.
    VoterChange,
    /// The same with a fork.
    Fork,
    /// It has promised its vote, durably, and not said so yet.
    Promise,
    /// It has sent a state, or is to get one, that has not arrived.
    Snapshot,
    /// It gives or gets a full copy.
    Copy,
}

/// A change of the voters that is in somebody's log.
struct Change {
    branch: Uuid,
    index: LogIndex,
    term: Term,
    fork: bool,
}

#[derive(Default)]
pub(crate) struct Watch {
    changes: Vec<Change>,
    /// Who asked for votes in the newest term of a branch for which anybody did.
    candidates: Vec<(Uuid, Term, NodeId)>,
    /// Sender and receiver of states that have not arrived.
    snapshots: Vec<(usize, NodeId)>,
    /// Donor and receiver of full copies.
    pub copies: Vec<(usize, usize)>,
}

/// Terms whose candidates are remembered.
const CANDIDATES_MAX: usize = 16;

impl Cluster {
    pub(crate) fn arose(&mut self, situation: Situation) {
        self.situations.arose(situation);
    }

    /// An entry landed in the log in this place; `first`: in no log before.
    pub(crate) fn note_appended(&mut self, slot: usize, branch: Uuid, a: Appended, first: bool) {
        let s = &mut self.slots[slot];
        let replaces = a.index <= s.appended;
        s.appended = a.index;
        if replaces {
            self.arose(Situation::TailReplaced);
        }
        self.watch.changes.retain(|c| c.branch != branch || c.index != a.index || c.term == a.term);
        match a.kind {
            EntryKind::Term if first && a.term.0 > 1 && !self.watch.changes.is_empty() => {
                self.arose(Situation::ElectionInVoterChange)
            }
            EntryKind::Voters => {
                if first {
                    self.arose(if a.fork { Situation::Fork } else { Situation::VoterChange });
                    self.watch.changes.push(Change { branch, index: a.index, term: a.term, fork: a.fork });
                }
            }
            EntryKind::Term | EntryKind::WriteSet | EntryKind::View | EntryKind::App | EntryKind::Durability => {}
        }
    }

    /// A member delivers beyond what it has in its log up to `index`: changes below are decided.
    pub(crate) fn note_delivered(&mut self, slot: usize, index: LogIndex) {
        if self.watch.changes.is_empty() {
            return;
        }
        let Some(p) = &self.slots[slot].process else { return };
        let branch = p.group.lineage().branch_at(p.history, index);
        self.watch.changes.retain(|c| c.branch != branch || c.index >= index);
    }

    /// A message leaves `slot`.
    pub(crate) fn note_sent(&mut self, slot: usize, to: NodeId, message: &Message) {
        match message {
            Message::Vote { branch, term, transfer, .. } => {
                if *transfer {
                    self.arose(Situation::HandOver);
                }
                self.note_candidate(slot, *branch, *term);
            }
            Message::VoteReply { granted, .. } => {
                self.slots[slot].asked = None;
                if !granted {
                    self.arose(Situation::VoteRefused);
                }
            }
            Message::Reject { .. } => self.arose(Situation::LogRejected),
            Message::NeedBodies { .. } => self.arose(Situation::BodiesAsked),
            Message::ReadRequest { .. } => self.arose(Situation::ReadRound),
            Message::Entrust { .. } => self.arose(Situation::Entrusted),
            Message::BeginFromData { .. } => self.arose(Situation::BegunFromData),
            Message::Snapshot { .. } => {
                self.arose(Situation::SnapshotSent);
                let store = self.slots[slot].store();
                if crate::driver::voters_at(store, store.last()).is_some_and(|set| set.contains(to)) {
                    self.arose(Situation::SnapshotToVoter);
                }
                self.watch.snapshots.retain(|s| *s != (slot, to));
                self.watch.snapshots.push((slot, to));
            }
            Message::Append { .. }
            | Message::Heartbeat { .. }
            | Message::Submit { .. }
            | Message::Ack { .. }
            | Message::HeartbeatAck { .. }
            | Message::PreVote { .. }
            | Message::PreVoteReply { .. }
            | Message::TimeoutNow { .. }
            | Message::Join(_)
            | Message::Leave { .. }
            | Message::ReadReply { .. }
            | Message::Presence(_)
            | Message::Recall { .. }
            | Message::Force
            | Message::Evicted
            | Message::SetWeight { .. }
            | Message::SetDurability { .. }
            | Message::Signal { .. } => {}
        }
    }

    fn note_candidate(&mut self, slot: usize, branch: Uuid, term: Term) {
        let node = self.slots[slot].node;
        let known = &mut self.watch.candidates;
        let others = known.iter().filter(|(b, t, n)| (*b, *t) == (branch, term) && *n != node).count();
        if known.contains(&(branch, term, node)) {
            return;
        }
        known.push((branch, term, node));
        if known.len() > CANDIDATES_MAX {
            known.remove(0);
        }
        if others == 1 {
            self.arose(Situation::SplitVote);
        }
    }

    /// The state that was sent to this place is there.
    pub(crate) fn note_snapshot_arrived(&mut self, slot: usize) {
        let node = self.slots[slot].node;
        self.watch.snapshots.retain(|(_, to)| *to != node);
    }

    /// A process begins in this place.
    pub(crate) fn note_begin(&mut self, slot: usize, suspect: bool) {
        let s = &mut self.slots[slot];
        s.suspected = suspect;
        s.appended = s.store().last();
        s.asked = None;
    }

    pub(crate) fn note_suspicion(&mut self, slot: usize) {
        let suspect = self.slots[slot].store().suspect().is_some();
        if std::mem::replace(&mut self.slots[slot].suspected, suspect) && !suspect {
            self.arose(Situation::SuspicionSettled);
        }
    }

    /// What the process in this place, which ends, was in the middle of, ends as well.
    pub(crate) fn note_end(&mut self, slot: usize) {
        let node = self.slots[slot].node;
        self.watch.snapshots.retain(|(from, to)| *from != slot && *to != node);
    }

    /// A message comes to `slot`.
    pub(crate) fn note_received(&mut self, slot: usize, from: NodeId, message: &Message) {
        if let Message::Vote { term, .. } = message {
            self.slots[slot].asked = Some((from, *term));
        }
    }

    /// Has it promised a vote to another one, and not said so?
    fn has_promised(&self, slot: usize) -> bool {
        let s = &self.slots[slot];
        let hard = s.store().hard_state();
        s.asked == Some((hard.voted_for, hard.term))
    }

    /// What the member in this place is in the middle of.
    pub(crate) fn stages(&self, slot: usize) -> Vec<Stage> {
        let s = &self.slots[slot];
        if s.process.is_none() {
            return Vec::new();
        }
        let mut stages = Vec::new();
        for change in &self.watch.changes {
            if s.store().term_at(change.index) == Some(change.term) {
                stages.push(if change.fork { Stage::Fork } else { Stage::VoterChange });
            }
        }
        if self.has_promised(slot) {
            stages.push(Stage::Promise);
        }
        if self.watch.snapshots.iter().any(|(from, to)| *from == slot || *to == s.node) {
            stages.push(Stage::Snapshot);
        }
        if self.watch.copies.iter().any(|(from, to)| *from == slot || *to == slot) {
            stages.push(Stage::Copy);
        }
        stages
    }

    /// The member in this place dies, stands still or is cut off.
    pub(crate) fn note_struck(&mut self, slot: usize) {
        if self.calm {
            return;
        }
        for stage in self.stages(slot) {
            self.arose(match stage {
                Stage::VoterChange => Situation::StruckVoterChange,
                Stage::Fork => Situation::StruckFork,
                Stage::Promise => Situation::StruckPromise,
                Stage::Snapshot => Situation::StruckSnapshot,
                Stage::Copy => Situation::StruckCopy,
            });
        }
    }
}
