//! The simulator's own log: a vector that knows what is written and what is synced. Simple on purpose: it is the oracle
//! beside `trireme-wslog`.
//!
//! It survives in its slot when the process dies. The death of the process keeps everything written; loss of power keeps what
//! was synced and a prefix of the rest.

use std::collections::{BTreeMap, VecDeque};

use trireme_order::{DiskFault, LogStore, StoreError};
use trireme_types::{Base, Durability, Entry, EntryKind, HardState, LogIndex, Reader, Seqno, Setting, Term, VoterSet};

use crate::options::{Options, Sabotage};
use crate::outage::Sick;
use crate::rng::{Rng, hash_bytes, mix};

/// An append as it happened, for the checker of log matching.
#[derive(Clone, Copy, Debug)]
pub struct Appended {
    pub term: Term,
    pub index: LogIndex,
    pub hash: u64,
    pub kind: EntryKind,
    /// It begins a branch.
    pub fork: bool,
    /// The durability that it puts in force.
    pub durability: Option<Durability>,
}

impl Appended {
    pub fn of(e: &Entry) -> Appended {
        let h = &e.header;
        let begins = || VoterSet::decode(&mut Reader::new(&e.payload)).is_ok_and(|set| !set.fork.is_nil());
        let fork = h.kind == EntryKind::Voters && begins();
        let durability = match h.kind {
            EntryKind::Setting => match Setting::decode(&e.payload) {
                Ok(Setting::Durability(durability)) => Some(durability),
                Ok(Setting::Level(_)) | Err(_) => None,
            },
            EntryKind::Term | EntryKind::Voters | EntryKind::View | EntryKind::WriteSet | EntryKind::App => None,
        };
        Appended { term: h.term, index: h.index, hash: hash_entry(e), kind: h.kind, fork, durability }
    }
}

#[derive(Clone)]
pub struct FastStore {
    base: Base,
    entries: VecDeque<Entry>,
    /// They are written up to here, and these bytes of the next one: large ones are written in pieces.
    written: u64,
    begun: Vec<u8>,
    synced: u64,
    generation: u64,
    hard: HardState,
    suspect: Option<LogIndex>,
    outdated: bool,
    damaged: bool,
    process: bool,
    /// States within the log, by index; the base is not among them.
    checkpoints: BTreeMap<u64, Base>,
    last_checkpoint: u64,

    checkpoint_every: u64,
    retain: u64,
    piece_bytes: usize,
    sabotage: Option<Sabotage>,
    /// Operations until the log refuses everything.
    fuse: Option<u32>,
    /// The reason for that.
    sick: Option<Sick>,
    /// It has failed, and nobody reads it but the simulator.
    let_go: bool,
    /// It has made itself suspect for entries that no sync has covered. Holds the suspicion before that.
    doubted: Option<Option<LogIndex>>,
    failed: bool,
    appended: Vec<Appended>,
    /// Appends and hard states so far: progress for the trace.
    pub operations: u64,
}

/// Hash of an entry's content, its position and term included.
pub fn hash_entry(e: &Entry) -> u64 {
    let h = &e.header;
    let mut x =
        mix(h.index.0 ^ mix(h.term.0 ^ mix(h.seqno.0 ^ mix(h.voters.0 ^ mix(h.number.0 ^ mix(h.kind as u64))))));
    x = hash_bytes(x ^ h.session.number, &h.session.node.0.0);
    hash_bytes(x, &e.payload)
}

impl FastStore {
    pub fn new(o: &Options) -> FastStore {
        FastStore {
            base: Base::default(),
            entries: VecDeque::new(),
            written: 0,
            begun: Vec::new(),
            synced: 0,
            generation: 1,
            hard: HardState::default(),
            suspect: None,
            outdated: false,
            damaged: false,
            process: false,
            checkpoints: BTreeMap::new(),
            last_checkpoint: 0,
            checkpoint_every: o.checkpoint_every,
            retain: o.retain,
            piece_bytes: o.piece_bytes,
            sabotage: o.sabotage,
            fuse: None,
            sick: None,
            let_go: false,
            doubted: None,
            failed: false,
            appended: Vec::new(),
            operations: 0,
        }
    }

    /// Refuse everything after `operations` more writing operations.
    pub fn set_fuse(&mut self, operations: u32) {
        self.fuse = Some(operations);
    }

    pub fn clear_fuse(&mut self) {
        self.fuse = None;
    }

    /// The same because of its disk.
    pub fn break_soon(&mut self, sick: Sick, operations: u32) {
        self.sick = Some(sick);
        self.fuse = Some(operations);
    }

    /// It has failed, and its disk may drop entries that no sync has covered, acknowledged or not. A full disk takes a note of that.
    pub fn doubt(&mut self) {
        self.let_go = true;
        if self.process && self.written > self.synced && self.doubted.is_none() && self.sick == Some(Sick::Full) {
            self.doubted = Some(self.suspect);
            let before = LogIndex(self.synced);
            self.suspect = Some(self.suspect.map_or(before, |s| s.min(before)));
        }
    }

    /// Opened again by the process that had it open when its disk failed; `None`: the disk does not work yet. `drops`: it has lost what no
    /// sync had covered, or some of that. Says whether anything that was written is gone.
    pub fn come_back(&mut self, works: bool, drops: bool, rng: &mut Rng) -> Option<bool> {
        if !works {
            return None;
        }
        let (written, doubted) = (self.written, self.doubted.take());
        let acknowledged = if self.process { self.written } else { self.synced };
        if drops {
            self.drop_unsynced(rng);
        }
        self.reopen();
        let short = self.last().0 < acknowledged;
        match (short, doubted) {
            (true, _) => self.suspect = self.suspect.or(Some(self.last())),
            (false, Some(before)) => self.suspect = before,
            (false, None) => {}
        }
        Some(self.last().0 < written)
    }

    fn drop_unsynced(&mut self, rng: &mut Rng) {
        let synced = self.synced.max(self.base.index.0);
        let unsynced = self.written - synced.min(self.written);
        let kept = if rng.chance(0.5) { 0 } else { rng.below(unsynced + 1) };
        self.cut(self.written.min(synced + kept));
    }

    pub fn durability(&self) -> Durability {
        if self.process { Durability::Process } else { Durability::Disk }
    }

    pub fn failed(&self) -> bool {
        self.failed
    }

    pub fn take_appended(&mut self) -> Vec<Appended> {
        std::mem::take(&mut self.appended)
    }

    /// Generation and position of a sync that begins now; `None` when there is nothing to sync.
    pub fn begin_sync(&self) -> Option<(u64, LogIndex)> {
        let covered = if self.sabotage == Some(Sabotage::SyncUnwritten) { self.last() } else { self.written() };
        (covered > self.synced()).then_some((self.generation, covered))
    }

    /// A sync that began at `generation` and covered the log up to `upto` is done.
    pub fn complete_sync(&mut self, generation: u64, upto: LogIndex) {
        if generation == self.generation {
            self.synced = self.synced.max(upto.0.min(self.written));
        }
    }

    /// The process died; the machine goes on. `drops`: it was in an outage of its disk, which has lost all that no sync had covered. Nobody
    /// would know of an acknowledged entry that is lost and not noted as lost (docs/durability.md): that is not simulated. Says whether
    /// anything that was written is gone.
    pub fn process_died(&mut self, drops: bool, rng: &mut Rng) -> bool {
        let written = self.written;
        if drops && (!self.process || self.doubted.is_some() || self.written <= self.synced) {
            self.drop_unsynced(rng);
        }
        match self.sabotage {
            Some(Sabotage::ForgottenPromise) => self.hard = HardState::default(),
            Some(Sabotage::LostWrites) => {
                let end = self.base.index.0 + rng.below(self.entries.len() as u64 + 1);
                self.written = self.written.min(end);
            }
            Some(_) | None => {}
        }
        self.reopen();
        self.last().0 < written
    }

    /// The log is opened anew, and ends with what was written of it.
    pub fn reopen(&mut self) {
        self.cut(self.written);
        self.begun.clear();
        (self.fuse, self.sick, self.doubted) = (None, None, None);
        (self.failed, self.let_go) = (false, false);
        self.generation += 1;
    }

    /// The log that a node finds when it is started on a copy of this disk.
    pub fn copy(&self) -> FastStore {
        let mut copy = FastStore { appended: Vec::new(), ..self.clone() };
        copy.reopen();
        copy
    }

    /// Nothing is left behind `end`.
    fn cut(&mut self, end: u64) {
        self.entries.truncate((end - self.base.index.0) as usize);
        self.checkpoints.retain(|&at, _| at <= end);
        self.written = self.written.min(end);
        self.synced = self.synced.min(end);
    }

    /// The process died with the machine.
    pub fn lose_power(&mut self, rng: &mut Rng) {
        if self.sabotage == Some(Sabotage::LyingDisk) {
            let held = self.entries.len() as u64;
            self.synced = self.base.index.0 + rng.below(held + 1);
        }
        if self.process {
            let before = LogIndex(self.synced);
            self.suspect = Some(self.suspect.map_or(before, |s| s.min(before)));
        }
        let unsynced = self.last().0 - self.synced.min(self.last().0);
        let kept = if rng.chance(0.5) { 0 } else { rng.below(unsynced + 1) };
        self.cut(self.synced.max(self.base.index.0) + kept);
        self.written = self.last().0;
        self.synced = self.written; // Recovery reads what is there and syncs it before it is used.
        self.last_checkpoint = self.checkpoints.keys().next_back().copied().unwrap_or(self.base.index.0);
    }

    /// An entry turns out to be unreadable: the log ends before it, or is of no use at all.
    pub fn damage(&mut self, rng: &mut Rng) {
        let end = self.base.index.0 + rng.below(self.entries.len() as u64 + 1);
        if rng.chance(0.1) {
            self.base = Base::default();
            self.entries.clear();
        }
        let end = end.max(self.base.index.0).min(self.last().0);
        self.cut(end);
        self.last_checkpoint = self.checkpoints.keys().next_back().copied().unwrap_or(self.base.index.0);
        (self.written, self.synced) = (end, end);
        if self.sabotage != Some(Sabotage::HoleTrusted) {
            self.suspect = Some(self.suspect.map_or(LogIndex(end), |s| s.min(LogIndex(end))));
            self.damaged = true;
        }
    }

    pub fn entry(&self, index: LogIndex) -> Option<&Entry> {
        let at = index.0.checked_sub(self.base.index.0 + 1)?;
        self.entries.get(at as usize)
    }

    fn writing(&mut self) -> Result<(), StoreError> {
        self.operations += 1;
        if let Some(left) = &mut self.fuse {
            if *left == 0 {
                self.failed = true;
            } else {
                *left -= 1;
            }
        }
        if self.failed { Err(failure()) } else { Ok(()) }
    }

    /// Of a large entry it writes no more than one piece.
    fn write_piece(&mut self) {
        let mut room = self.piece_bytes;
        while let Some(e) = self.entries.get_mut((self.written - self.base.index.0) as usize) {
            let len = e.payload.len();
            if len > self.piece_bytes {
                let from = self.begun.len().min(len);
                let to = len.min(from + room);
                self.begun.extend_from_slice(&e.payload[from..to]);
                room -= to - from;
                if to < len {
                    return;
                }
                // Later reads return the bytes that were written.
                self.begun.truncate(len);
                e.payload = std::mem::take(&mut self.begun).into();
            }
            self.written += 1;
        }
    }

    /// How many entries it has beyond those that it is to keep in any case.
    pub fn excess(&self) -> u64 {
        if self.failed { 0 } else { (self.entries.len() as u64).saturating_sub(self.retain) }
    }

    /// Drops entries below `keep_from`, as far as they need not be kept in any case.
    pub fn trim(&mut self, keep_from: LogIndex) {
        self.drop_below(keep_from, self.retain);
    }

    /// The same, also those that are to be kept.
    pub fn trim_wholly(&mut self, keep_from: LogIndex) {
        if !self.failed {
            self.drop_below(keep_from, 0);
        }
    }

    /// Beyond the last `retain` ones.
    fn drop_below(&mut self, keep_from: LogIndex, retain: u64) {
        let last = self.last().0;
        let usable = self
            .checkpoints
            .keys()
            .copied()
            .rfind(|index| last - index >= retain && *index <= self.synced && *index < keep_from.0);
        let Some(index) = usable else { return };
        let base = self.checkpoints.remove(&index).expect("just found");
        self.entries.drain(..(index - self.base.index.0) as usize);
        self.base = base;
        self.checkpoints.retain(|&at, _| at > index);
    }
}

impl LogStore for FastStore {
    fn base(&self) -> &Base {
        &self.base
    }
    fn last(&self) -> LogIndex {
        LogIndex(self.base.index.0 + self.entries.len() as u64)
    }
    fn written(&self) -> LogIndex {
        LogIndex(self.written)
    }
    fn write_on(&mut self) -> Result<(), StoreError> {
        self.writing()?;
        self.write_piece();
        Ok(())
    }
    fn synced(&self) -> LogIndex {
        LogIndex(self.synced)
    }
    fn generation(&self) -> u64 {
        self.generation
    }
    fn term_at(&self, index: LogIndex) -> Option<Term> {
        if index == self.base.index { Some(self.base.term) } else { self.entry(index).map(|e| e.header.term) }
    }
    fn index_of(&self, seqno: Seqno) -> Option<LogIndex> {
        let at = self.entries.partition_point(|e| e.header.seqno < seqno);
        let e = self.entries.get(at)?;
        (e.header.seqno == seqno && e.header.kind.takes_seqno()).then_some(e.header.index)
    }
    fn read(&self, from: LogIndex, max_bytes: usize) -> Result<Vec<Entry>, StoreError> {
        if self.failed && !self.let_go {
            return Err(failure());
        }
        let mut out = Vec::new();
        let mut bytes = 0;
        let mut index = from;
        while let Some(e) = self.entry(index) {
            bytes += e.payload.len();
            if bytes > max_bytes && !out.is_empty() {
                break;
            }
            out.push(e.clone());
            index = index.next();
        }
        Ok(out)
    }
    fn append(&mut self, entries: &[Entry]) -> Result<(), StoreError> {
        self.writing()?;
        for e in entries {
            assert_eq!(e.header.index, self.last().next(), "append leaves a gap or overwrites");
            assert!(e.header.term >= self.term_at(self.last()).unwrap_or_default(), "terms go back in the log");
            self.appended.push(Appended::of(e));
            self.entries.push_back(e.clone());
        }
        self.write_piece();
        Ok(())
    }
    fn truncate_after(&mut self, index: LogIndex) -> Result<(), StoreError> {
        self.writing()?;
        assert!(index >= self.base.index, "truncation below the base");
        if index >= self.last() {
            return Ok(());
        }
        self.generation += 1;
        if index.0 <= self.written && self.sabotage != Some(Sabotage::PiecesMixed) {
            self.begun.clear();
        }
        self.cut(index.0);
        Ok(())
    }
    fn reset(&mut self, base: Base) -> Result<(), StoreError> {
        self.writing()?;
        self.generation += 1;
        self.entries.clear();
        self.checkpoints.clear();
        self.begun.clear();
        (self.written, self.synced) = (base.index.0, base.index.0);
        self.last_checkpoint = base.index.0;
        self.base = base;
        Ok(())
    }
    fn hard_state(&self) -> HardState {
        self.hard
    }
    fn save_hard_state(&mut self, state: HardState) -> Result<(), StoreError> {
        self.writing()?;
        // Only from where no election leads: a member whose term was driven up gets a state in the others' term.
        let driven_up = self.hard.term.0 > state.term.0.saturating_add(1 << 20);
        assert!(state.term >= self.hard.term || driven_up, "the promised term goes back");
        if state.term == self.hard.term && !self.hard.voted_for().0.is_nil() {
            assert_eq!(state.voted_for(), self.hard.voted_for(), "a second vote in the same term");
        }
        self.hard = state;
        Ok(())
    }
    fn suspect(&self) -> Option<LogIndex> {
        self.suspect
    }
    fn set_suspect(&mut self, after: Option<LogIndex>) -> Result<(), StoreError> {
        self.writing()?;
        self.suspect = after;
        self.outdated &= after.is_some();
        self.damaged &= after.is_some();
        Ok(())
    }
    fn is_outdated(&self) -> bool {
        self.outdated
    }
    fn set_outdated(&mut self, outdated: bool) -> Result<(), StoreError> {
        self.writing()?;
        self.outdated = outdated;
        Ok(())
    }
    fn is_damaged(&self) -> bool {
        self.damaged
    }
    fn set_durability(&mut self, durability: Durability) -> Result<(), StoreError> {
        self.process = durability == Durability::Process;
        Ok(())
    }
    fn wants_checkpoint(&self) -> bool {
        !self.failed && self.last().0 >= self.last_checkpoint + self.checkpoint_every
    }
    fn save_checkpoint(&mut self, base: &Base) -> Result<(), StoreError> {
        self.writing()?;
        assert!(base.index <= self.last(), "checkpoint beyond the log");
        assert_eq!(Some(base.term), self.term_at(base.index).or(Some(base.term)), "checkpoint of another entry");
        self.last_checkpoint = self.last_checkpoint.max(base.index.0);
        if base.index > self.base.index {
            self.checkpoints.insert(base.index.0, base.clone());
        }
        Ok(())
    }
    fn checkpoint_before(&self, seqno: Seqno) -> Option<Base> {
        self.checkpoints
            .values()
            .rev()
            .find(|c| c.seqno <= seqno)
            .or_else(|| (self.base.seqno <= seqno).then_some(&self.base))
            .cloned()
    }
}

fn failure() -> StoreError {
    let (operation, path) = ("use".into(), "the simulated log".into());
    StoreError::Disk { operation, path, cause: DiskFault::Other, said: "a fault was drawn".into() }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use trireme_types::{EntryHeader, Session};

    use super::*;

    fn entry(index: u64, term: u64) -> Entry {
        let header = EntryHeader {
            index: LogIndex(index),
            term: Term(term),
            seqno: Seqno(index),
            voters: LogIndex::ZERO,
            session: Session::default(),
            number: trireme_types::ProposalNumber(index),
            kind: EntryKind::WriteSet,
        };
        Entry { header, payload: Bytes::from_static(b"body") }
    }

    fn filled(change: impl FnOnce(&mut Options)) -> FastStore {
        let mut o = Options::calm(1, 1);
        change(&mut o);
        let mut s = FastStore::new(&o);
        s.append(&(1..=10).map(|i| entry(i, 1)).collect::<Vec<_>>()).unwrap();
        s.complete_sync(s.generation(), LogIndex(6));
        s
    }

    #[test]
    fn loss_of_power_keeps_what_was_synced_and_a_prefix_of_the_rest() {
        let mut ends = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let mut s = filled(|_| {});
            s.lose_power(&mut Rng::new(seed));
            ends.insert(s.last().0);
        }
        assert_eq!(ends, (6..=10).collect());
    }

    #[test]
    fn the_death_of_the_process_takes_what_is_partly_written_and_what_waits_behind_it() {
        let mut s = filled(|o| o.piece_bytes = 3);
        // The body has four bytes.
        assert_eq!((s.written(), s.last()), (LogIndex(0), LogIndex(10)));
        for _ in 0..2 {
            s.write_on().unwrap();
        }
        assert_eq!((s.written(), s.begin_sync()), (LogIndex(2), Some((s.generation(), LogIndex(2)))));
        s.reopen();
        assert_eq!((s.written(), s.last()), (LogIndex(2), LogIndex(2)));
        s.append(&[entry(3, 1)]).unwrap();
        s.truncate_after(LogIndex(2)).unwrap();
        s.append(&[entry(3, 2)]).unwrap();
        assert_eq!(s.written(), LogIndex(2));
        s.write_on().unwrap();
        assert_eq!((s.written(), s.read(LogIndex(3), 9).unwrap()), (LogIndex(3), vec![entry(3, 2)]));
    }

    #[test]
    fn a_sync_from_before_a_truncation_covers_nothing() {
        let mut s = filled(|_| {});
        let generation = s.generation();
        s.truncate_after(LogIndex(3)).unwrap();
        s.append(&[entry(4, 2), entry(5, 2)]).unwrap();
        s.complete_sync(generation, LogIndex(5));
        assert_eq!(s.synced(), LogIndex(3));
    }

    #[test]
    fn trimming_keeps_what_the_database_needs() {
        let mut s = filled(|o| o.retain = 2);
        for at in [3, 5] {
            let base = Base { index: LogIndex(at), seqno: Seqno(at), term: Term(1), ..Base::default() };
            s.save_checkpoint(&base).unwrap();
        }
        s.trim(LogIndex(5));
        assert_eq!(s.base().index, LogIndex(3));
        assert_eq!(s.checkpoint_before(Seqno(9)).unwrap().index, LogIndex(5));
    }
}
