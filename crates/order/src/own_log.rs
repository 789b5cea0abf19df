//! The own log: what is on disk, the promises beside it, and what follows from its entries. Everything that changes the log goes through
//! here, so what is derived from it changes with it.

use trireme_types::{Base, Choice, DecodeError, Entry, EntryKind, HardState, LogIndex, NodeId, Term, Uuid};

use crate::cache::TailCache;
use crate::chain::Chain;
use crate::landmarks::Landmarks;
use crate::{Failure, LogStore, StoreError, Unread};

/// Written below and nowhere else.
pub(crate) struct OwnLog<S> {
    /// The entries, from `base().index + 1` on, and what was promised. Its driver syncs and trims it, too.
    store: S,
    /// As it is saved, or will be with the next change that has to be: see [`promise_with_next`](OwnLog::promise_with_next).
    hard: HardState,
    /// The state after the last entry, committed or not.
    tail: Chain,
    /// The driver has reported that the disk has everything up to here. Falls only with a truncation or a reset.
    synced: LogIndex,
    /// All of them lie behind `synced`.
    landmarks: Landmarks,
    /// The newest entries, so that few are read back.
    cache: TailCache,
}

/// Does the first entry of a term count as a landmark? Always, but for the checkers.
#[derive(Clone, Copy)]
pub(crate) struct TermsCount(pub bool);

/// How far the log could be read.
pub(crate) enum Reading {
    /// To its end.
    Complete,
    /// No member can read the entry at `index`.
    Unreadable { index: LogIndex, error: DecodeError },
}

impl<S: LogStore> OwnLog<S> {
    /// Nothing is read yet: see [`begin_at`](OwnLog::begin_at).
    pub fn new(store: S) -> OwnLog<S> {
        let hard = store.hard_state();
        OwnLog {
            hard,
            tail: Chain::default(),
            synced: store.synced(),
            landmarks: Landmarks::default(),
            cache: TailCache::default(),
            store,
        }
    }

    pub fn store(&self) -> &S {
        &self.store
    }

    /// For what changes no entry: suspicion, the mode of durability, checkpoints, and the driver's own business.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    pub fn into_store(self) -> S {
        self.store
    }

    pub fn tail(&self) -> &Chain {
        &self.tail
    }

    /// The last index that is held of this term and those before it, be it the base's. `None`: all are of later ones.
    pub fn last_up_to(&self, term: Term) -> Option<LogIndex> {
        let (mut at, mut end) = (self.store.base().index, self.store.last());
        if self.store.base().term > term {
            return None;
        }
        while at < end {
            let middle = LogIndex(end.0 - (end.0 - at.0) / 2);
            if self.store.term_at(middle).is_some_and(|of| of <= term) { at = middle } else { end = middle.prev() }
        }
        Some(at)
    }

    // --- promises -------------------------------------------------------------------------------------------------

    /// The highest term that this member has promised, or taken part in.
    pub fn term(&self) -> Term {
        self.hard.term
    }

    /// The one that has its vote in that term; nil: nobody has.
    pub fn voted_for(&self) -> NodeId {
        self.hard.voted_for()
    }

    /// The newest vote that was given: a later term is heard of without one.
    pub fn last_vote(&self) -> Choice {
        self.hard.vote
    }

    /// The one that this member left the decision to last. Nil: nobody.
    pub fn entrusted(&self) -> NodeId {
        self.hard.entrusted.of
    }

    /// The same, if it may decide in `term`: that of the promises, or the next.
    pub fn entrusted_in(&self, term: Term) -> Option<NodeId> {
        let Choice { term: promised, of } = self.hard.entrusted;
        Some(of).filter(|of| *of != NodeId::default() && (promised..=promised.next()).contains(&term))
    }

    /// All voters have promised this term, and `to` is to decide in the next what is gone on with. On disk when this returns: a restart
    /// forgets no more of it than of a vote.
    pub fn entrust(&mut self, term: Term, to: NodeId) -> Result<(), StoreError> {
        self.hard.entrusted = Choice { term, of: to };
        self.save()
    }

    /// On disk when this returns, so that it may be said (rule 1).
    pub fn promise(&mut self, term: Term, to: NodeId) -> Result<(), StoreError> {
        self.promise_with_next(term, to);
        self.save()
    }

    /// The same, where a save follows before anything is said.
    pub fn promise_with_next(&mut self, term: Term, to: NodeId) {
        // A term of another history, or of one that somebody has driven up.
        if term < self.hard.term {
            self.hard.entrusted = Choice::default();
        }
        self.hard.term = term;
        if to != NodeId::default() {
            self.hard.vote = Choice { term, of: to };
        }
    }

    fn save(&mut self) -> Result<(), StoreError> {
        self.store.save_hard_state(self.hard)
    }

    /// The branch that the log belongs to, or belonged to before it was lost; nil: nobody knows.
    pub fn branch(&self) -> Uuid {
        self.hard.branch
    }

    /// On disk when this returns, before anything behind a new fork is acknowledged (rule 13).
    fn save_branch(&mut self) -> Result<(), StoreError> {
        let branch = self.tail.branch();
        if branch.is_nil() || branch == self.hard.branch {
            return Ok(());
        }
        self.hard.branch = branch;
        self.save()
    }

    // --- what is known to be committed ----------------------------------------------------------------------------

    /// The newest `Voters` entry that is known to be committed, as saved.
    pub fn voters_committed(&self) -> LogIndex {
        self.hard.voters_committed
    }

    /// A position that is known to be committed, as saved: a hint, which lags.
    pub fn committed(&self) -> LogIndex {
        self.hard.committed
    }

    pub fn save_committed(&mut self, commit: LogIndex) -> Result<(), StoreError> {
        if commit <= self.hard.committed {
            return Ok(());
        }
        self.hard.committed = commit;
        self.save()
    }

    /// If the newest voters are committed by this, that is saved: from here on they decide alone (rule 8).
    pub fn save_voters_committed(&mut self, commit: LogIndex) -> Result<(), StoreError> {
        let newest = self.tail.voters_at;
        if newest > commit || newest <= self.hard.voters_committed {
            return Ok(());
        }
        self.hard.voters_committed = newest;
        self.hard.committed = self.hard.committed.max(newest);
        self.save()
    }

    /// Does the log end before a change of the voters that is known to be committed? It has lost its end then, and does not say who decides.
    pub fn lacks_committed_voters(&self) -> bool {
        self.hard.voters_committed > self.tail.index
    }

    /// Is anything behind this index known to be committed?
    pub fn knows_committed_behind(&self, index: LogIndex) -> bool {
        self.hard.committed > index || self.hard.voters_committed > index
    }

    /// From here on nothing behind this index is known to be committed.
    pub fn lower_marks_to(&mut self, index: LogIndex) -> Result<(), StoreError> {
        self.hard.committed = self.hard.committed.min(index);
        self.hard.voters_committed = self.hard.voters_committed.min(index);
        self.save()
    }

    // --- reading --------------------------------------------------------------------------------------------------

    /// The newest entries are in memory, the others are not.
    pub fn cached(&self, index: LogIndex) -> Option<&Entry> {
        self.cache.get(index)
    }

    /// Consecutive entries, from memory where possible.
    pub fn entries(&self, from: LogIndex, max_bytes: usize, max: usize) -> Result<Vec<Entry>, StoreError> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        let mut index = from;
        while let Some(entry) = self.cache.get(index) {
            if !entries.is_empty() && bytes + entry.payload.len() > max_bytes {
                break;
            }
            bytes += entry.payload.len();
            entries.push(entry.clone());
            index = index.next();
            if entries.len() >= max {
                break;
            }
        }
        if entries.is_empty() && from <= self.store.last() {
            return self.store.read(from, max_bytes);
        }
        Ok(entries)
    }

    // --- beginning and end ----------------------------------------------------------------------------------------

    /// The log goes on behind this base, with nothing in it. Afterwards delivery begins there.
    pub fn reset(&mut self, base: Base) -> Result<(), StoreError> {
        // The old log stays if this stops, and must not forget that it lacks what was committed.
        let (suspect, outdated) = (self.store.suspect(), self.store.is_outdated());
        let barred = self.lacks_committed_voters() && !outdated;
        if barred {
            self.store.set_suspect(Some(suspect.unwrap_or(LogIndex::ZERO)))?;
            self.store.set_outdated(true)?;
        }
        // Positions of the old log must not be taken for committed ones of the new, whenever this stops. Up to the base all are.
        self.lower_marks_to(base.index)?;
        self.store.reset(base)?;
        if barred {
            self.store.set_suspect(suspect)?;
            self.store.set_outdated(outdated)?;
        }
        self.synced = self.store.synced();
        Ok(())
    }

    /// The log was begun with a state that others have committed.
    pub fn save_base_committed(&mut self, base: &Base) -> Result<(), StoreError> {
        self.hard.voters_committed = base.voters_at;
        self.hard.committed = base.index;
        self.save()
    }

    /// Delivery begins at a state within the log; [`rebuild`](OwnLog::rebuild) has to follow.
    pub fn begin_at(&mut self, index: LogIndex) {
        self.landmarks = Landmarks::default();
        if index > self.synced {
            // Of the entries up to it nobody knows whether there are any among them.
            self.landmarks.note_between(self.synced.next(), index);
        }
        self.cache.clear();
    }

    /// The tail state, anew from what is delivered and what follows in the log. `named` hears of each state that names voters or members.
    pub fn rebuild(
        &mut self,
        done: &Chain,
        terms: TermsCount,
        mut named: impl FnMut(&Chain),
    ) -> Result<Reading, Failure> {
        self.tail = done.clone();
        self.landmarks.truncate_after(done.index);
        self.landmarks.synced(self.synced);
        named(&self.tail);
        while self.tail.index < self.store.last() {
            let entries = self.store.read(self.tail.index.next(), READ_BYTES)?;
            if entries.is_empty() {
                return Err(Failure::EndsEarly { last: self.store.last() });
            }
            for entry in &entries {
                let index = entry.header.index;
                match self.tail.take(entry) {
                    Ok(()) => self.note_applied(entry.header.kind, terms, &mut named),
                    Err(Unread::DoesNotFollow) => return Err(Failure::DoesNotFollow { index }),
                    Err(Unread::Undecodable(error)) => return Ok(Reading::Unreadable { index, error }),
                }
            }
        }
        self.save_branch()?;
        Ok(Reading::Complete)
    }

    /// Entries that are checked to follow. `delivered` and `cache_bytes_max`: of what is delivered no more stays in memory.
    pub fn append(
        &mut self,
        entries: Vec<Entry>,
        (delivered, cache_bytes_max): (LogIndex, usize),
        terms: TermsCount,
        mut named: impl FnMut(&Chain),
    ) -> Result<(), Failure> {
        self.store.append(&entries)?;
        for entry in entries {
            let index = entry.header.index;
            self.tail.apply(&entry).map_err(|error| Failure::Unreadable { index, error })?;
            self.note_applied(entry.header.kind, terms, &mut named);
            self.cache.push(entry, delivered, cache_bytes_max);
        }
        self.save_branch()?;
        Ok(())
    }

    /// The tail state is that after an entry of this kind.
    fn note_applied(&mut self, kind: EntryKind, terms: TermsCount, named: &mut impl FnMut(&Chain)) {
        let index = self.tail.index;
        let begins_term = self.tail.term_from == index && terms.0;
        if index > self.synced && (self.tail.voters_at == index || begins_term) {
            self.landmarks.note(index);
        }
        if matches!(kind, EntryKind::Voters | EntryKind::View) {
            named(&self.tail);
        }
    }

    /// Forgets what lies behind, in store and memory; [`rebuild`](OwnLog::rebuild) has to follow where the tail state reached further.
    pub fn truncate_after(&mut self, index: LogIndex) -> Result<(), StoreError> {
        self.store.truncate_after(index)?;
        self.cache.truncate_after(index);
        // A write that was under way may have ended with it.
        self.synced = self.store.synced().min(index);
        Ok(())
    }

    // --- what is on disk ------------------------------------------------------------------------------------------

    pub fn synced(&self) -> LogIndex {
        self.synced
    }

    /// The driver has synced it.
    pub fn synced_to(&mut self, upto: LogIndex) {
        self.synced = self.synced.max(upto.min(self.store.last()));
        self.landmarks.synced(self.synced);
    }

    /// The first entry that has to be on disk before anything from it on is acknowledged, and is not. `None`: all are.
    pub fn first_landmark(&self) -> Option<LogIndex> {
        self.landmarks.first()
    }

    pub fn last_landmark(&self) -> Option<LogIndex> {
        self.landmarks.last()
    }

    /// **Panics:** when what is derived from the log contradicts it.
    pub fn check(&self) {
        assert_eq!(self.tail.index, self.store.last(), "tail state and log disagree");
        assert!(self.hard.term >= self.tail.term, "an entry of a term that was never promised");
        assert!(self.synced <= self.store.written(), "synced beyond what is written");
        let branch = self.tail.branch();
        assert!(branch.is_nil() || branch == self.hard.branch, "the log is of a branch that is not on disk");
        let landmark = self.last_landmark();
        assert!(landmark.is_none_or(|l| self.synced < l && l <= self.tail.index), "a landmark that nobody waits for");
    }
}

/// Of the log, read at once.
pub(crate) const READ_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use trireme_types::{EntryHeader, ProposalNumber, Session, Uuid, VoterSet, Writer};

    use super::*;
    use crate::MemStore;

    fn entry(index: u64, kind: EntryKind) -> Entry {
        let payload = if kind == EntryKind::Voters {
            let mut w = Writer::new();
            VoterSet::default().encode(&mut w);
            Bytes::from(w.buf)
        } else {
            Bytes::from_static(b"body")
        };
        let voters = LogIndex::ZERO;
        let (seqno, session) = (trireme_types::Seqno::ZERO, Session { node: NodeId(Uuid([1; 16])), number: 1 });
        let header = EntryHeader {
            index: LogIndex(index),
            term: Term(1),
            seqno,
            voters,
            session,
            number: ProposalNumber(index),
            kind,
        };
        Entry { header, payload }
    }

    /// Three entries, of which the second one changes the voters.
    fn log() -> OwnLog<MemStore> {
        let mut own = OwnLog::new(MemStore::default());
        own.promise(Term(1), NodeId::default()).unwrap();
        let entries = vec![entry(1, EntryKind::App), entry(2, EntryKind::Voters), entry(3, EntryKind::App)];
        own.append(entries, (LogIndex::ZERO, 1 << 20), TermsCount(false), |_| {}).unwrap();
        own.check();
        own
    }

    fn reread(own: &mut OwnLog<MemStore>) {
        let done = Chain::from_base(&own.store().base().clone());
        assert!(matches!(own.rebuild(&done, TermsCount(false), |_| {}), Ok(Reading::Complete)));
        own.check();
    }

    #[test]
    fn what_is_cut_off_is_gone_from_all_that_follows_from_the_log() {
        let mut own = log();
        own.synced_to(LogIndex(1));
        assert_eq!(own.first_landmark(), Some(LogIndex(2)));
        own.truncate_after(LogIndex(1)).unwrap();
        reread(&mut own);
        assert_eq!((own.tail().index, own.tail().voters_at), (LogIndex(1), LogIndex::ZERO));
        assert_eq!((own.first_landmark(), own.cached(LogIndex(2))), (None, None));
        assert!(own.synced() <= LogIndex(1));
    }

    /// Swarm seed 87431498: a process that died while its disk hung had a checkpoint beyond what was on disk. A change of the voters before it was
    /// acknowledged by the next one.
    #[test]
    fn of_what_lies_before_the_place_where_delivery_begins_nothing_counts_as_on_disk() {
        let mut own = log();
        own.synced_to(LogIndex(1));
        own.begin_at(LogIndex(3));
        assert_eq!(own.first_landmark(), Some(LogIndex(2)));
        own.synced_to(LogIndex(3));
        assert_eq!(own.first_landmark(), None);
    }

    #[test]
    fn a_log_that_begins_anew_knows_of_nothing_committed_behind_its_beginning_and_keeps_its_promises() {
        for (begins, left) in [(LogIndex(9), LogIndex(3)), (LogIndex(1), LogIndex(1))] {
            let mut own = log();
            own.save_voters_committed(LogIndex(2)).unwrap();
            own.save_committed(LogIndex(3)).unwrap();
            own.reset(Base { index: begins, ..Base::default() }).unwrap();
            own.begin_at(begins);
            reread(&mut own);
            assert!(!own.knows_committed_behind(begins));
            assert_eq!((own.term(), own.tail().index), (Term(1), begins));
            assert_eq!(own.store().hard_state().committed, left, "on disk, too");
        }
    }

    /// The disk was full, or the power failed: the old log is there, and ends before a change of the voters.
    #[test]
    fn a_log_that_was_to_begin_anew_and_does_not_still_lacks_what_was_committed() {
        for begins in [LogIndex(9), LogIndex::ZERO] {
            let mut own = log();
            own.hard.voters_committed = LogIndex(5);
            own.store_mut().full = true;
            assert!(own.lacks_committed_voters());
            own.reset(Base { index: begins, ..Base::default() }).unwrap_err();
            let barred = |own: &OwnLog<MemStore>| own.lacks_committed_voters() || own.store().is_outdated();
            assert!(barred(&own), "{begins}");
            own.store_mut().full = false;
            own.store_mut().set_suspect(None).unwrap();
            own.hard.voters_committed = LogIndex(5);
            own.reset(Base { index: begins, ..Base::default() }).unwrap();
            own.begin_at(begins);
            reread(&mut own);
            assert!(!barred(&own) && own.store().suspect().is_none(), "{begins}");
        }
    }

    #[test]
    fn a_vote_outlives_a_term_without_one_and_who_was_entrusted_the_terms_of_that_history() {
        let [voter, decides] = [1, 2].map(|n| NodeId(Uuid([n; 16])));
        let mut own = log();
        own.promise(Term(5), voter).unwrap();
        own.entrust(Term(5), decides).unwrap();
        own.promise(Term(6), NodeId::default()).unwrap();
        let mut own = OwnLog::new(own.into_store());
        assert_eq!((own.term(), own.voted_for()), (Term(6), NodeId::default()));
        assert_eq!(own.last_vote(), Choice { term: Term(5), of: voter });
        assert_eq!(own.store().hard_state().entrusted, Choice { term: Term(5), of: decides });
        assert_eq!([4, 5, 6, 7].map(|n| own.entrusted_in(Term(n)).is_some()), [false, true, true, false]);
        own.promise(Term(2), voter).unwrap();
        assert_eq!((own.term(), own.voted_for(), own.entrusted()), (Term(2), voter, NodeId::default()));
        assert_eq!(own.entrusted_in(Term::ZERO), None, "nobody");
    }

    #[test]
    fn marks_rise_with_what_is_committed_and_fall_below_a_fork_only() {
        let mut own = log();
        own.save_voters_committed(LogIndex(1)).unwrap();
        assert_eq!(own.voters_committed(), LogIndex::ZERO, "the change itself is not committed yet");
        own.save_voters_committed(LogIndex(2)).unwrap();
        own.save_committed(LogIndex(3)).unwrap();
        own.save_committed(LogIndex(1)).unwrap();
        assert_eq!((own.voters_committed(), own.committed()), (LogIndex(2), LogIndex(3)));
        assert!(own.knows_committed_behind(LogIndex(2)) && !own.knows_committed_behind(LogIndex(3)));
        own.lower_marks_to(LogIndex(1)).unwrap();
        assert_eq!((own.voters_committed(), own.committed()), (LogIndex(1), LogIndex(1)));
    }
}
