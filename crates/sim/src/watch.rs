//! The simulator's own account of where the protocol stands: which changes of voters and which forks are under way, who has promised and
//! not answered yet, to whom a state or a full copy is on its way. It is written from messages as they are sent and from entries as they
//! land in logs, never from the memory of the code under test. Harm is planned by it, and permitted by it.

use std::collections::BTreeMap;

use trireme_order::{Content, Envelope, Heartbeat, LogStore, Message};
use trireme_types::{Durability, EntryKind, LogIndex, NodeId, Term, Uuid};

use crate::check::Reach;
use crate::cluster::{Cluster, Event, Slot};
use crate::disk::Store;
use crate::faults::{Undo, branch_of, lineage_of};
use crate::options::{MS, SEC};
use crate::situations::Situation;
use crate::store::Appended;

/// The newest acknowledgement that a member has sent in each branch.
pub(crate) type Acks = BTreeMap<Uuid, (Term, LogIndex)>;

/// A doubt: what a log may lack since the power failed, or bits flipped. A log has to hold what was acknowledged in the branch that it
/// belongs to. So one that has lost the fork itself is held to what was acknowledged before the fork, until the fork is in it again.
#[derive(Debug)]
pub(crate) struct Doubt {
    /// The acknowledgements of its member.
    acked: Acks,
    /// Where the log ended after that.
    pub kept: LogIndex,
}

/// The words of one life of a member about the order, heard and said. A log that lacked something lacks nothing any more when it holds,
/// on disk, the log of a sequencer that was elected since.
#[derive(Default, Debug)]
pub(crate) struct Words {
    /// In each branch, the sequencer of the newest term that was heard, be it this member itself.
    sequencers: BTreeMap<Uuid, Sequencer>,
    /// In each branch, the newest term of which entries came: these may have taken the place of others.
    terms: BTreeMap<Uuid, Term>,
    acked: Acks,
    /// The newest sync that the member has heard of covered the log up to here. A process begins with what the disk has.
    synced: LogIndex,
}

impl Words {
    /// A log that held its member's acknowledgement, as far as it is `kept`, ends at `end`. Did what it lacks of that go for entries that a later
    /// sequencer sent, the first of which may be of earlier terms?
    fn took_off(&self, end: LogIndex, kept: LogIndex, branch: &Uuid, (of, upto): (Term, LogIndex)) -> bool {
        end < upto && kept >= upto && self.terms.get(branch).is_some_and(|term| *term > of)
    }
}

/// A sequencer, as it was heard.
#[derive(Clone, Copy, Debug)]
struct Sequencer {
    term: Term,
    /// Where its log ended at its first word.
    end: LogIndex,
    /// It had committed up to here.
    committed: LogIndex,
}

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
    /// Its server executes a statement in total-order isolation.
    Statement,
    /// The disk with its log does not work, and it sits out.
    Outage,
    /// It has failed at a write set, and the vote is open.
    Vote,
    /// It is being started: its engine has not been compared yet.
    Starting,
    /// It has left, and its server has not ended.
    Stopping,
    /// It asks the others to write less.
    Slows,
}

impl Stage {
    pub const ALL: [Stage; 11] = [
        Stage::VoterChange,
        Stage::Fork,
        Stage::Promise,
        Stage::Snapshot,
        Stage::Copy,
        Stage::Statement,
        Stage::Outage,
        Stage::Vote,
        // The newest last: what the seeds before it draw stays the same.
        Stage::Starting,
        Stage::Stopping,
        Stage::Slows,
    ];
}

/// A change of the voters that is in somebody's log.
struct Change {
    branch: Uuid,
    index: LogIndex,
    term: Term,
    fork: bool,
}

/// A change of the durability setting that is in somebody's log.
struct Switch {
    branch: Uuid,
    index: LogIndex,
    term: Term,
    to: Durability,
    /// Somebody has delivered what comes behind it.
    settled: bool,
}

#[derive(Default)]
pub(crate) struct Watch {
    changes: Vec<Change>,
    /// A branch was begun: not all logs belong to one any more.
    pub forked: bool,
    switches: Vec<Switch>,
    /// Candidates in the newest term of a branch in which anybody asked for votes.
    candidates: Vec<(Uuid, Term, NodeId)>,
    /// Sender and receiver of states that have not arrived.
    snapshots: Vec<(usize, NodeId)>,
    /// Donor and receiver of full copies.
    pub copies: Vec<(usize, usize)>,
    /// Somebody went on from data with a flaw at this seqno, or is to, the newest one: older data are not the group's any more (rule 26).
    pub overtaken: u64,
}

impl Watch {
    /// Was the durability ever switched?
    pub fn has_switched(&self) -> bool {
        self.switches.iter().any(|s| s.settled)
    }
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
        s.words.synced = s.words.synced.min(a.index.prev());
        if replaces {
            self.arose(Situation::TailReplaced);
        }
        self.watch.changes.retain(|c| c.branch != branch || c.index != a.index || c.term == a.term);
        if let Some(to) = a.durability.filter(|_| first) {
            let switch = Switch { branch, index: a.index, term: a.term, to, settled: false };
            self.watch.switches.push(switch);
        }
        match a.kind {
            EntryKind::Term if first && a.term.0 > 1 && !self.watch.changes.is_empty() => {
                self.arose(Situation::ElectionInVoterChange)
            }
            EntryKind::Voters => {
                self.watch.forked |= a.fork;
                let s = &mut self.slots[slot];
                s.changed_at = a.index;
                if a.fork {
                    // The entries settled behind it were another branch's.
                    s.settled = s.settled.min(a.index.prev());
                }
                if first {
                    self.arose(if a.fork { Situation::Fork } else { Situation::VoterChange });
                    self.watch.changes.push(Change { branch, index: a.index, term: a.term, fork: a.fork });
                }
                self.tempt(slot, if a.fork { Stage::Fork } else { Stage::VoterChange });
            }
            EntryKind::Term | EntryKind::WriteSet | EntryKind::View | EntryKind::App | EntryKind::Setting => {}
        }
    }

    /// A member delivers the entry at `index`: the changes below it are decided.
    pub(crate) fn note_delivered(&mut self, slot: usize, index: LogIndex) {
        self.settle_switches(slot, index);
        if self.watch.changes.is_empty() {
            return;
        }
        let Some(p) = &self.slots[slot].process else { return };
        let branch = p.group.lineage().branch_at(p.history, index);
        self.watch.changes.retain(|c| c.branch != branch || c.index >= index);
    }

    /// Switches of the durability up to here are decided: those that are in the log of the delivering member.
    fn settle_switches(&mut self, slot: usize, index: LogIndex) {
        let Some(p) = &self.slots[slot].process else { return };
        let (store, lineage) = (p.group.store(), p.group.lineage());
        let mut settled = Vec::new();
        self.watch.switches.retain_mut(|s| {
            if s.settled || s.index > index || s.branch != lineage.branch_at(p.history, s.index) {
                return true;
            }
            match store.term_at(s.index) {
                Some(term) if term != s.term => return false,
                Some(_) => {
                    s.settled = true;
                    settled.push((s.index, s.to));
                }
                // Its log begins behind it: another one tells.
                None => {}
            }
            true
        });
        let Some(seqno) = self.slots[slot].process.as_ref().map(|p| p.last_seqno.0) else { return };
        for (index, to) in settled {
            self.arose(Situation::DurabilitySwitched);
            if to == Durability::Disk {
                let Some(history) = self.slots[slot].process.as_ref().map(|p| p.history) else { return };
                self.losses.switched_to_disk(Reach {
                    history,
                    lineage: self.lineage_at(slot, index),
                    seqno: seqno - 1,
                });
            }
        }
    }

    /// The mode in which an entry of the log in this place was ordered.
    pub(crate) fn durability_at(&self, slot: usize, index: LogIndex) -> Durability {
        match self.newest_in_mode_disk(slot, index) == Some(index) {
            true => Durability::Disk,
            false => Durability::Process,
        }
    }

    /// The newest entry of the log in this place, up to `upto`, that was ordered in mode `disk`: by the mode in which the log begins, and by
    /// the switches that landed in it, committed or not.
    pub(crate) fn newest_in_mode_disk(&self, slot: usize, upto: LogIndex) -> Option<LogIndex> {
        let (mut mode, mut newest) = (self.slots[slot].store().base().durability, None);
        for switch in self.switches_in_log(slot, upto) {
            if mode == Durability::Disk {
                newest = Some(switch.index.prev());
            }
            mode = switch.to;
        }
        if mode == Durability::Disk { Some(upto) } else { newest }
    }

    /// Does a switch to mode `process` lie behind this entry in the log in this place, committed or not, whatever was switched to later?
    pub(crate) fn leaves_disk_behind(&self, slot: usize, index: LogIndex) -> bool {
        let switches = self.switches_in_log(slot, self.slots[slot].store().last());
        switches.iter().any(|switch| switch.index > index && switch.to == Durability::Process)
    }

    /// The switches in the log in this place, up to `upto`, committed or not, in order.
    fn switches_in_log(&self, slot: usize, upto: LogIndex) -> Vec<&Switch> {
        let store = self.slots[slot].store();
        let base = store.base();
        let is_here = |s: &&Switch| {
            (base.index.next()..=upto).contains(&s.index)
                && store.term_at(s.index) == Some(s.term)
                && s.branch == lineage_of(store).branch_at(base.history, s.index)
        };
        let mut switches: Vec<&Switch> = self.watch.switches.iter().filter(is_here).collect();
        switches.sort_unstable_by_key(|s| s.index);
        switches
    }

    /// A sync of the log in this place is done. A switch to mode `disk` that is delivered here and on disk leaves nothing behind that was
    /// acknowledged unsynced. A log that went on saying `process` would be suspect for no reason after a loss of power.
    pub(crate) fn check_mode(&mut self, slot: usize) {
        let s = &self.slots[slot];
        let Some(p) = s.process.as_ref().filter(|p| !p.group.store().failed()) else { return };
        let done = p.last_index.min(s.words.synced);
        let store = p.group.store();
        let newest = self.switches_in_log(slot, store.last()).last().map(|switch| (switch.index, switch.to));
        if newest.is_some_and(|(at, to)| to == Durability::Disk && at <= done) && store.durability() != Durability::Disk
        {
            self.fail(format!("the log of n{slot} says `process`, and the switch to `disk` at {newest:?} is on disk"));
        }
    }

    /// A message leaves `slot`.
    pub(crate) fn note_sent(&mut self, slot: usize, to: NodeId, message: &Message) {
        match message {
            Message::InTerm(envelope) => self.note_said_in_term(slot, envelope),
            Message::Snapshot { .. } => {
                self.arose(Situation::SnapshotSent);
                let store = self.slots[slot].store();
                if crate::driver::voters_at(store, store.last()).is_some_and(|set| set.contains(to)) {
                    self.arose(Situation::SnapshotToVoter);
                }
                self.watch.snapshots.retain(|s| *s != (slot, to));
                self.watch.snapshots.push((slot, to));
                self.tempt(slot, Stage::Snapshot);
            }
            Message::Submit { .. }
            | Message::Join(_)
            | Message::Leave { .. }
            | Message::Presence(_)
            | Message::LevelLimit { .. }
            | Message::VotersHeard { .. }
            | Message::Unknown { .. }
            | Message::Force
            | Message::Evicted
            | Message::SetWeight { .. }
            | Message::SetDurability { .. }
            | Message::Signal { .. } => {}
        }
    }

    fn note_said_in_term(&mut self, slot: usize, envelope: &Envelope) {
        let Envelope { branch, term, content } = envelope;
        match content {
            Content::Vote { transfer, .. } => {
                if *transfer {
                    self.arose(Situation::HandOver);
                }
                self.note_candidate(slot, *branch, *term);
            }
            Content::VoteReply { granted, .. } => {
                self.slots[slot].asked = None;
                if !granted {
                    self.arose(Situation::VoteRefused);
                }
            }
            Content::Reject { .. } => self.arose(Situation::LogRejected),
            Content::NeedBodies { .. } => self.arose(Situation::BodiesAsked),
            Content::ReadRequest { .. } => self.arose(Situation::ReadRound),
            Content::Entrust => self.arose(Situation::Entrusted),
            Content::BeginFromData { .. } => self.arose(Situation::BegunFromData),
            Content::Heartbeat(heartbeat) => self.note_end_of_sequencer(slot, *branch, *term, heartbeat),
            Content::Append(append) => self.check_raise(slot, *branch, *term, append),
            Content::Ack { index } => {
                let s = &mut self.slots[slot];
                for acked in [&mut s.acked, &mut s.words.acked] {
                    let here = acked.entry(*branch).or_default();
                    *here = (*here).max((*term, *index));
                }
            }
            Content::HeartbeatAck { .. }
            | Content::PreVote { .. }
            | Content::PreVoteReply { .. }
            | Content::TimeoutNow
            | Content::ReadReply { .. }
            | Content::Recall { .. } => {}
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

    /// Is a state on its way to the member in this place?
    pub(crate) fn is_sent_a_state(&self, slot: usize) -> bool {
        let node = self.slots[slot].node;
        self.watch.snapshots.iter().any(|(_, to)| *to == node)
    }

    /// A process begins in this place.
    pub(crate) fn note_begin(&mut self, slot: usize, suspect: bool) {
        let s = &mut self.slots[slot];
        let end = s.store().last();
        s.suspected = suspect;
        s.appended = end;
        s.asked = None;
        // A plan of repair is in memory only.
        s.words = Words { synced: s.store().synced(), ..Words::default() };
        if let Some(doubt) = &mut s.doubt {
            // Flipped bits are found by the next process.
            doubt.kept = doubt.kept.min(end);
        }
    }

    /// The member in this place hears of a sync of its log.
    pub(crate) fn note_synced(&mut self, slot: usize, upto: LogIndex) {
        let words = &mut self.slots[slot].words;
        words.synced = words.synced.max(upto);
    }

    pub(crate) fn note_suspicion(&mut self, slot: usize) {
        let s = &self.slots[slot];
        let store = s.store();
        let suspect = store.suspect().is_some();
        let end = (store.term_at(store.last()).unwrap_or_default(), store.last());
        let lacks = |doubt: &Doubt| {
            let branch = branch_of(store);
            let Some(&(of, upto)) = doubt.acked.get(&branch) else { return false };
            end.1 < upto && end.0 <= of && !s.words.took_off(end.1, doubt.kept, &branch, (of, upto))
        };
        if !suspect && s.doubt.as_ref().is_some_and(lacks) {
            return self.fail(format!("n{slot} takes its log for whole, which ends at {end:?}: {:?}", s.doubt));
        }
        if std::mem::replace(&mut self.slots[slot].suspected, suspect) && !suspect {
            self.arose(Situation::SuspicionSettled);
        }
    }

    /// The process in this place ends, and with it the transfers of states from and to it. One that stands still may have received its state, and
    /// takes it when it moves again.
    pub(crate) fn note_end(&mut self, slot: usize) {
        self.slots[slot].note_replaced();
        let node = self.slots[slot].node;
        let still: Vec<NodeId> = self.slots.iter().filter(|s| s.stands_still()).map(|s| s.node).collect();
        self.watch.snapshots.retain(|(from, to)| *to != node && (*from != slot || still.contains(to)));
    }

    /// A message comes to `slot`.
    pub(crate) fn note_received(&mut self, slot: usize, from: NodeId, message: &Message) {
        let Message::InTerm(Envelope { branch, term, content }) = message else { return };
        match content {
            Content::Vote { .. } => self.slots[slot].asked = Some((from, *term)),
            Content::Heartbeat(heartbeat) => self.note_end_of_sequencer(slot, *branch, *term, heartbeat),
            Content::Append(_) => {
                let newest = self.slots[slot].words.terms.entry(*branch).or_default();
                *newest = (*newest).max(*term);
            }
            _ => {}
        }
    }

    /// The member in this place hears where the log of a sequencer ends, be it itself.
    fn note_end_of_sequencer(&mut self, slot: usize, branch: Uuid, term: Term, heartbeat: &Heartbeat) {
        // One that has no log yet waits for what it hears next, and one that is in a later term takes nothing of an earlier one.
        let store = self.slots[slot].store();
        if store.base().history.is_nil() || store.hard_state().term > term {
            return;
        }
        let new = Sequencer { term, end: heartbeat.last, committed: heartbeat.commit };
        let heard = self.slots[slot].words.sequencers.entry(branch).or_insert(new);
        if heard.term < term {
            *heard = new;
        } else if heard.term == term {
            heard.committed = heartbeat.commit;
        }
    }

    /// The log in this place may have lost what its member had acknowledged.
    pub(crate) fn begin_doubt(&mut self, slot: usize) {
        let s = &mut self.slots[slot];
        let kept = s.store().last();
        let kept = s.doubt.as_ref().map_or(kept, |before| before.kept.min(kept));
        s.doubt = Some(Doubt { acked: s.acked.clone(), kept });
    }

    /// The log in this place lacks nothing that this account knows of, and the process that opens it may not take it for evidence all the
    /// same: it is an old copy, or a fault has cut off an operation of its own, whose remains look like damage.
    pub(crate) fn begin_mending(&mut self, slot: usize) {
        let s = &mut self.slots[slot];
        s.mending = Some(s.acked.clone());
    }

    /// The log in this place was opened anew.
    pub(crate) fn note_opened(&mut self, slot: usize) {
        let s = &mut self.slots[slot];
        let store = match &mut s.process {
            Some(p) => Some(p.group.store_mut()),
            None => s.disk.as_mut(),
        };
        if store.is_some_and(Store::take_torn) {
            self.begin_mending(slot);
        }
    }

    /// After each step: may the log in this place count again?
    pub(crate) fn settle_doubt(&mut self, slot: usize) {
        let s = &mut self.slots[slot];
        let Some(p) = &s.process else { return };
        if s.changed_at > s.settled {
            s.settled = s.settled.max(p.last_index);
        }
        if s.doubt.as_ref().is_some_and(|doubt| s.lacks_nothing_of(&doubt.acked)) {
            s.doubt = None;
        }
        if s.mending.as_ref().is_some_and(|acked| s.lacks_nothing_of(acked)) {
            s.mending = None;
        }
    }
}

impl Slot {
    /// Its process ends, perhaps when it has taken off the end of its log and has nothing yet of what comes in its place. The next process
    /// has not heard of the sequencer that sent that, and need not.
    fn note_replaced(&mut self) {
        let end = self.store().last();
        let Some(doubt) = &mut self.doubt else { return };
        let (kept, words) = (doubt.kept, &self.words);
        doubt.acked.retain(|branch, acked| !words.took_off(end, kept, branch, *acked));
    }

    /// Does nothing that this account knows of keep its log from being evidence?
    pub(crate) fn is_whole(&self) -> bool {
        self.doubt.is_none() && self.mending.is_none()
    }

    /// Does its log hold all that its member had acknowledged before, whatever it has lost since? It does once it has on disk the entries of a
    /// sequencer that was elected since. That one was not elected in vain when it has committed them.
    fn lacks_nothing_of(&self, acked: &Acks) -> bool {
        let words = &self.words;
        words.sequencers.iter().any(|(branch, heard)| {
            let last = match acked.get(branch) {
                Some((of, upto)) if *of == heard.term => heard.end.max(*upto),
                Some(_) | None => heard.end,
            };
            let (of, matched) = words.acked.get(branch).copied().unwrap_or_default();
            let has = of >= heard.term && matched.min(heard.committed).min(words.synced) >= last;
            has && branch_of(self.store()) == *branch
        })
    }

    /// The newest acknowledgement that was sent, in whatever branch.
    pub(crate) fn newest_ack(&self) -> (Term, LogIndex) {
        self.acked.values().copied().max().unwrap_or_default()
    }
}

impl Cluster {
    /// Has it promised a vote to another one, and not said so?
    pub(crate) fn has_promised(&self, slot: usize) -> bool {
        let s = &self.slots[slot];
        let hard = s.store().hard_state();
        s.asked == Some((hard.voted_for(), hard.term))
    }

    /// All that the member in this place is in the middle of.
    pub(crate) fn stages(&self, slot: usize) -> Vec<Stage> {
        let s = &self.slots[slot];
        if s.ending.is_some() {
            return vec![Stage::Stopping];
        }
        let Some(p) = &s.process else { return Vec::new() };
        if p.outage.is_some() {
            return vec![Stage::Outage];
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
        if p.comparing.is_some() {
            stages.push(Stage::Starting);
        } else if s.db.in_statement() {
            stages.push(Stage::Statement);
        }
        if p.voting.is_some() {
            stages.push(Stage::Vote);
        }
        if p.throttle.as_ref().is_some_and(|t| t.asks()) {
            stages.push(Stage::Slows);
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
                Stage::Statement => Situation::StruckStatement,
                Stage::Outage => Situation::StruckOutage,
                Stage::Vote => Situation::StruckVote,
                Stage::Starting => Situation::StruckStart,
                Stage::Stopping => Situation::StruckStop,
                Stage::Slows => Situation::StruckFlow,
            });
        }
    }
}

// --- harm by stage ----------------------------------------------------------------------------------------------------

/// The harm to a member in the middle of something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Strike {
    Die,
    LosePower,
    StandStill,
    /// Cut off from everybody, in one direction or both.
    CutOff,
    /// The same for all who are in this stage, together: they go on hearing each other.
    CutOffAll(Stage),
    DieAll(Stage),
    /// The disk with its log fails.
    Break,
    /// Those of others fail as well.
    BreakOthers,
}

/// In one run.
const STRIKES_MAX: u32 = 40;

impl Cluster {
    /// The member in this place has come to a stage at which this run likes to strike.
    pub(crate) fn tempt(&mut self, slot: usize, stage: Stage) {
        if !self.is_tempted(stage) {
            return;
        }
        let together = matches!(stage, Stage::VoterChange | Stage::Fork);
        if stage == Stage::Outage {
            let strike = match self.strikes.below(10) {
                0..=2 => Strike::Die,
                3..=5 => Strike::LosePower,
                6 => Strike::StandStill,
                _ => Strike::BreakOthers,
            };
            let delay = self.strikes.exp(self.options.outage_mean);
            let boot = self.slots[slot].boot;
            return self.after(delay, Event::Strike { slot, boot, stage, strike });
        }
        if stage == Stage::Stopping {
            let strike = if self.strikes.chance(0.6) { Strike::Die } else { Strike::LosePower };
            let delay = self.strikes.exp(2 * MS);
            let boot = self.slots[slot].boot;
            return self.after(delay, Event::Strike { slot, boot, stage, strike });
        }
        let dies = stage == Stage::Vote;
        let breaks = self.options.outage_mean > 0 && self.strikes.chance(0.2);
        let strike = match self.strikes.below(10) {
            _ if breaks => Strike::Break,
            0 | 1 if together => Strike::CutOffAll(stage),
            2 if together => Strike::DieAll(stage),
            0..=4 => Strike::Die,
            5 | 6 => Strike::LosePower,
            7 if dies => Strike::Die,
            7 => Strike::StandStill,
            _ => Strike::CutOff,
        };
        if strike == Strike::Die && self.strikes.chance(0.7) {
            // In the midst of the step, before or after what it is about to say.
            let after = self.strikes.below(3) as u32;
            if let Some(p) = &mut self.slots[slot].process {
                p.crash_after = Some(p.crash_after.map_or(after, |before| before.min(after)));
            }
            return self.log(|| format!("n{slot} in {stage:?} is to die within the step"));
        }
        let delay = if self.strikes.chance(0.5) { 0 } else { self.strikes.exp(3 * MS) };
        let boot = self.slots[slot].boot;
        self.after(delay, Event::Strike { slot, boot, stage, strike });
    }

    /// A full copy takes long, and in the middle of it the receiver hears nobody but the donor for a while: the group may have gone on, and
    /// have dropped the entries behind the copy. Returns how long it takes.
    pub(crate) fn outrun(&mut self, donor: usize, receiver: usize, delay: u64) -> u64 {
        let delay = delay.max(2 * SEC) + self.strikes.exp(2 * SEC);
        let others = (0..self.slots.len()).filter(|o| ![donor, receiver].contains(o));
        let mut cuts: Vec<(usize, usize)> = others.flat_map(|o| [(receiver, o), (o, receiver)]).collect();
        if self.strikes.chance(0.5) {
            // Then it does not hear the donor's group thread either; the copy has a way of its own.
            self.reset_link(donor, receiver);
        }
        cuts.retain(|&(a, b)| !self.net.is_blocked(a, b));
        for &(a, b) in &cuts {
            self.cut(a, b);
        }
        let until = delay / 4 + self.strikes.below(delay / 2);
        self.after(until, Event::Undo(Undo::Mend(cuts)));
        for _ in 0..self.strikes.range(5, 40) {
            self.write(donor);
        }
        delay
    }

    pub(crate) fn is_tempted(&mut self, stage: Stage) -> bool {
        let share = self.options.strikes.iter().find(|s| s.0 == stage).map_or(0.0, |s| s.1);
        let strikes = !self.calm && share > 0.0 && self.strikes_done < STRIKES_MAX && self.strikes.chance(share);
        self.strikes_done += u32::from(strikes);
        strikes
    }

    /// The server in this place is about to finish a statement in total-order isolation; does it die in it, perhaps together with all others?
    pub(crate) fn dies_in_statement(&mut self, slot: usize) -> bool {
        if !self.is_tempted(Stage::Statement) {
            return false;
        }
        let all = self.strikes.chance(0.3);
        self.log(|| format!("strike n{slot} in a statement{}", if all { ", and all others" } else { "" }));
        self.faults_done += 1;
        for other in 0..self.slots.len() {
            if all || other == slot {
                self.fall(other, false);
            }
        }
        self.slots[slot].process.is_none()
    }

    pub(crate) fn strike(&mut self, slot: usize, boot: u32, stage: Stage, strike: Strike) {
        let there = match stage {
            Stage::Stopping => self.slots[slot].ending.is_some() && self.slots[slot].boot == boot,
            _ => self.life(slot, boot).is_some(),
        };
        if self.calm || !there {
            return;
        }
        self.faults_done += 1;
        self.log(|| format!("strike n{slot} in {stage:?}: {strike:?}"));
        let n = self.slots.len();
        match strike {
            Strike::Die => self.fall(slot, false),
            Strike::LosePower => self.fall(slot, true),
            Strike::StandStill => self.pause_for_a_while(slot),
            Strike::Break => {
                let works_at = self.now + self.strikes.exp(self.options.outage_mean);
                let drops = self.strikes.chance(0.3);
                let sick = self.any_sickness();
                self.let_disk_refuse(slot, sick, 0, works_at, drops);
            }
            Strike::BreakOthers => {
                for other in (0..n).filter(|o| *o != slot) {
                    if self.strikes.chance(0.5) {
                        self.break_disk_for_a_while(other);
                    }
                }
            }
            Strike::CutOff => {
                let others = (0..n).filter(|o| *o != slot);
                let how = self.strikes.below(3);
                let cuts = others.flat_map(|o| [(slot, o), (o, slot)]).enumerate();
                let cuts = cuts.filter(|(i, _)| how == 2 || *i as u64 % 2 == how).map(|(_, cut)| cut).collect();
                self.cut_for_a_while(cuts);
            }
            Strike::CutOffAll(stage) => {
                let inside: Vec<bool> = (0..n).map(|o| o == slot || self.stages(o).contains(&stage)).collect();
                let pairs = (0..n).flat_map(|a| (0..n).map(move |b| (a, b)));
                self.cut_for_a_while(pairs.filter(|&(a, b)| inside[a] != inside[b]).collect());
            }
            Strike::DieAll(stage) => {
                for other in 0..n {
                    if other == slot || self.stages(other).contains(&stage) {
                        self.fall(other, false);
                    }
                }
            }
        }
    }

    /// Its process dies, and its machine loses its power if it may.
    fn fall(&mut self, slot: usize, power: bool) {
        if self.may_forget() && (!power || self.may_lose_power(slot)) {
            self.crash(slot, power);
            self.restart_later(slot);
        }
    }
}
