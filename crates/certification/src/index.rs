//! The certification index: verdict and depends-on seqno of each write set, in order.
//!
//! The rules are Galera's (key tables in [`crate::key`]); the differences are all on the strict side: a write set without keys, and every
//! one that fails, depends on the one before it, and nothing may start before the commit cut.
//!
//! * **Verdict.** A write set fails because of an earlier one that is newer than its last-seen seqno and used an overlapping key in a
//!   conflicting way, if that one comes from another origin session or is a TOI. It also fails when its last-seen seqno lies below the commit cut: what it would have
//!   to be compared with may be gone. TOI and the rollback of a streaming transaction never fail.
//! * **Order.** The depends-on seqno is the newest earlier write set that the key tables order before this one, and at least the last TOI,
//!   the last view, the commit cut and the previous fragment of the same streaming transaction.
//! * **Cut.** Records at or below the cut are never looked at, whether they are still in memory or not. So memory is released when it is
//!   convenient, in pieces, and verdicts still are a function of (history, cut).

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use trireme_types::{Seqno, Session, Uuid};

use crate::key::{KeyHash, KeyHasher, KeyKind, Place, conflicts, orders};
use crate::records::{Record, Records, SessionSlot, Use};
use crate::writeset::{Head, WriteSet, flags};

/// The decision of certification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Applying may start once everything up to here has left commit order.
    pub depends_on: Seqno,
    /// `None`: the write set commits. Else it keeps its seqno and changes nothing.
    pub failure: Option<Failure>,
}

impl Verdict {
    pub fn ok(&self) -> bool {
        self.failure.is_none()
    }

    /// The earlier write set in the way, if that is what failed it.
    pub fn conflict(&self) -> Option<Conflict> {
        match self.failure {
            Some(Failure::Conflict(conflict)) => Some(conflict),
            Some(Failure::LastSeenBelowCut | Failure::LastSeenAhead | Failure::Malformed) | None => None,
        }
    }

    /// On a body that [`WriteSet::parse`] refused: it fails, on every member alike. Tell the index with [`Certifier::note_malformed`].
    pub fn malformed(seqno: Seqno) -> Verdict {
        Verdict::failed(seqno, Failure::Malformed)
    }

    fn failed(seqno: Seqno, failure: Failure) -> Verdict {
        Verdict { depends_on: seqno.prev(), failure: Some(failure) }
    }
}

/// Why a write set failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    Conflict(Conflict),
    /// Part of what it has to be compared with may have been purged, or the interval exceeds the limit of the index.
    LastSeenBelowCut,
    /// It claims to have seen itself or the future.
    LastSeenAhead,
    /// The body is not a write set.
    Malformed,
}

/// Two uses of overlapping keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// Hash of the key or prefix on which they meet.
    pub key: u64,
    /// Seqno of the earlier write set.
    pub with: Seqno,
    pub found: Found,
    pub new: KeyKind,
}

/// How the earlier write set of a conflict used the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// It used this key.
    Key(KeyKind),
    /// It used something below this key.
    Below,
    /// It was a TOI on this key or below it.
    Toi,
}

/// A streaming transaction whose end has not been ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stream {
    /// Member UUID.
    pub origin: Uuid,
    pub trx: u64,
    /// Its oldest fragment: the log is needed from here on.
    pub first: Seqno,
    pub last: Seqno,
}

pub(crate) type KeyMap = HashMap<u64, Records, BuildHasherDefault<KeyHasher>>;

/// Origin sessions as small numbers. A slot is reused once its session's last write set is at or below the cut: whatever still carries its
/// number is then never looked at again.
#[derive(Default)]
pub(crate) struct Sessions {
    slots: Vec<(Session, u64)>,
    by_session: BTreeMap<Session, u32>,
    free: Vec<u32>,
}

impl Sessions {
    fn find(&self, session: Session) -> Option<SessionSlot> {
        self.by_session.get(&session).map(|at| SessionSlot(*at))
    }

    pub(crate) fn use_at(&mut self, session: Session, seqno: u64) -> SessionSlot {
        let at = *self.by_session.entry(session).or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.slots.push((session, 0));
                (self.slots.len() - 1) as u32
            })
        });
        self.slots[at as usize] = (session, seqno);
        SessionSlot(at)
    }

    /// As [`use_at`](Sessions::use_at), for records that come in any order.
    pub(crate) fn use_until(&mut self, session: Session, seqno: u64) -> SessionSlot {
        let newest = self.find(session).map_or(seqno, |slot| self.slots[slot.0 as usize].1.max(seqno));
        self.use_at(session, newest)
    }

    pub(crate) fn get(&self, slot: SessionSlot) -> Option<Session> {
        self.slots.get(slot.0 as usize).map(|s| s.0)
    }

    fn purge(&mut self, cut: u64) {
        let Sessions { slots, by_session, free } = self;
        by_session.retain(|_, at| {
            let live = slots[*at as usize].1 > cut;
            if !live {
                free.push(*at);
            }
            live
        });
    }
}

/// The index. Feed it every seqno of the history, in order: write sets to [`certify`](Certifier::certify), views to
/// [`note_view`](Certifier::note_view); and the ordered cut to [`purge`](Certifier::purge). Memory is given back as more is taken, and by
/// [`release`](Certifier::release).
#[derive(Default)]
pub struct Certifier {
    pub(crate) keys: KeyMap,
    /// Which keys each write set touched, oldest first: what to look at when the cut passes it.
    pub(crate) touched: VecDeque<u64>,
    /// So many of these, from the oldest, lie at or below the cut.
    pub(crate) due: usize,
    pub(crate) purge_queue: VecDeque<(u64, usize)>,
    pub(crate) sessions: Sessions,
    pub(crate) streams: BTreeMap<(Uuid, u64), Stream>,
    pub(crate) cut: Seqno,
    pub(crate) last: Seqno,
    pub(crate) last_toi: Seqno,
    pub(crate) last_view: Seqno,
    pub(crate) max_length: Option<u64>,
}

impl Certifier {
    /// An empty index at the beginning of a history.
    pub fn new() -> Certifier {
        Certifier::default()
    }

    /// Also fails write sets whose last-seen seqno is more than `max_length` behind their own (`cert.max_length`), and forgets what only
    /// they could meet. It must be the same on all members.
    pub fn with_max_length(max_length: u64) -> Certifier {
        Certifier { max_length: Some(max_length), ..Certifier::default() }
    }

    /// Judges the write set at `seqno`, which must be higher than every seqno before. A failing one leaves no trace.
    ///
    /// `session` is the origin session of the entry: write sets of one session never conflict with each other, the origin's engine has
    /// already ordered them.
    pub fn certify(&mut self, seqno: Seqno, ws: &WriteSet, session: Session) -> Verdict {
        self.advance(seqno);
        let head = ws.head();
        let mut depends_on = self.cut.max(self.last_toi).max(self.last_view);
        if !head.is_toi() && !head.is_rollback() {
            if head.last_seen >= seqno {
                return Verdict::failed(seqno, Failure::LastSeenAhead);
            }
            if head.last_seen < self.cut {
                return Verdict::failed(seqno, Failure::LastSeenBelowCut);
            }
            match self.search(ws, session) {
                Ok(found) => depends_on = depends_on.max(found),
                Err(conflict) => return Verdict::failed(seqno, Failure::Conflict(conflict)),
            }
        }
        self.remember(seqno, ws, session);
        if head.is_fragment() {
            depends_on = depends_on.max(self.note_fragment(seqno, head));
        }
        if head.is_toi() {
            self.last_toi = seqno;
        }
        let alone = flags::ISOLATION | flags::ROLLBACK | flags::PA_UNSAFE;
        if head.flags & alone != 0 || ws.key_count() == 0 {
            depends_on = seqno.prev();
        }
        Verdict { depends_on, failure: None }
    }

    /// A view was ordered at `seqno`: everything later is applied after it.
    pub fn note_view(&mut self, seqno: Seqno) {
        self.advance(seqno);
        self.last_view = seqno;
    }

    /// A body that is no write set was ordered at `seqno`.
    pub fn note_malformed(&mut self, seqno: Seqno) {
        self.advance(seqno);
    }

    /// Forgets what no write set can meet any more: every member has said that it will send no last-seen seqno below `cut`, or has been
    /// excluded. `cut` must come from the order, at the same place on every member. A lower one than before changes nothing. The memory
    /// is then due to be released.
    pub fn purge(&mut self, cut: Seqno) {
        if cut <= self.cut {
            return;
        }
        self.cut = cut;
        while let Some(&(seqno, count)) = self.purge_queue.front() {
            if seqno > cut.0 {
                break;
            }
            self.purge_queue.pop_front();
            self.due += count;
        }
        self.sessions.purge(cut.0);
    }

    /// Gives back the memory of at most `uses_max` uses of keys that the cut has passed; true while there are more. A write set can have
    /// millions of keys, and whoever purges them has other things to do in between.
    pub fn release(&mut self, uses_max: usize) -> bool {
        let count = self.due.min(uses_max);
        if count == 0 {
            return self.due > 0;
        }
        self.due -= count;
        for key in self.touched.drain(..count) {
            if let Entry::Occupied(entry) = self.keys.entry(key) {
                if entry.get().newest() <= self.cut.0 {
                    entry.remove();
                }
            }
        }
        // At the end only: moving what is left costs the more, the more it is.
        if self.due == 0 && self.keys.capacity() > 8 * self.keys.len() + 4096 {
            self.keys.shrink_to(2 * self.keys.len());
        }
        self.due > 0
    }

    /// Drops the streaming transactions of members that left: their servers roll them back at the view, no rollback will be ordered.
    pub fn retain_streams(&mut self, is_member: impl Fn(Uuid) -> bool) {
        self.streams.retain(|(origin, _), _| is_member(*origin));
    }

    /// Forgets one streaming transaction (a TOI killed it: no rollback will be ordered).
    pub fn end_stream(&mut self, origin: Uuid, trx: u64) {
        self.streams.remove(&(origin, trx));
    }

    /// Streaming transactions that have not ended, by origin and transaction id.
    pub fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.streams.values()
    }

    /// Lowest cut under which nothing was purged.
    pub fn cut(&self) -> Seqno {
        self.cut
    }

    /// The newest seqno the index was told.
    pub fn last(&self) -> Seqno {
        self.last
    }

    /// Distinct keys and prefixes held (`wsrep_cert_index_size`), those included that are yet to be released.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Uses of keys above the cut: what the index costs in memory, a hundred bytes each at worst.
    pub fn retained(&self) -> usize {
        self.touched.len() - self.due
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn advance(&mut self, seqno: Seqno) {
        debug_assert!(seqno > self.last, "{seqno} after {}", self.last);
        self.last = seqno;
        if let Some(max_length) = self.max_length {
            self.purge(Seqno(seqno.0.saturating_sub(max_length)));
        }
    }

    /// The newest write set that the keys of `ws` order before it, or a conflict.
    fn search(&self, ws: &WriteSet, session: Session) -> Result<Seqno, Conflict> {
        let search = Search { cut: self.cut.0, last_seen: ws.head().last_seen.0, own: self.sessions.find(session) };
        let mut newest = 0;
        for group in ws.groups() {
            // A prefix does the same to the keys below it whatever their kind: any leaf stands for all of them.
            let any = group.leaves().next().map_or(KeyKind::Shared, |(_, kind)| kind);
            for prefix in group.prefixes() {
                if let Some(records) = self.keys.get(&prefix.0) {
                    search.meet(prefix, records, true, any, &mut newest)?;
                }
            }
            for (leaf, kind) in group.leaves() {
                if let Some(records) = self.keys.get(&leaf.0) {
                    search.meet(leaf, records, false, kind, &mut newest)?;
                }
            }
        }
        Ok(Seqno(newest))
    }

    fn remember(&mut self, seqno: Seqno, ws: &WriteSet, session: Session) {
        if ws.key_count() == 0 {
            return;
        }
        let toi = ws.head().is_toi();
        let slot = if toi { SessionSlot::NOBODY } else { self.sessions.use_at(session, seqno.0) };
        let below = if toi { Use::BelowToi } else { Use::Below };
        let mut count = 0;
        for group in ws.groups() {
            for prefix in group.prefixes() {
                self.add(prefix, Record::new(seqno.0, below, slot));
                count += 1;
            }
            for (leaf, kind) in group.leaves() {
                let used = if toi { Use::OwnToi } else { Use::Own(kind) };
                self.add(leaf, Record::new(seqno.0, used, slot));
                count += 1;
            }
        }
        self.purge_queue.push_back((seqno.0, count));
        // More than it adds: the index cannot outgrow what lies above the cut by more than its own size once was.
        self.release(2 * count);
    }

    fn add(&mut self, key: KeyHash, record: Record) {
        self.touched.push_back(key.0);
        match self.keys.entry(key.0) {
            Entry::Vacant(entry) => {
                entry.insert(Records::new(record));
            }
            Entry::Occupied(mut entry) => entry.get_mut().add(record, self.cut.0),
        }
    }

    /// Follows a streaming transaction; returns the seqno of its previous fragment, zero when there is none.
    ///
    /// A middle fragment without a known beginning is legal: the beginning may have been before a view that dropped the stream.
    fn note_fragment(&mut self, seqno: Seqno, head: &Head) -> Seqno {
        let key = (head.origin, head.trx);
        let fresh = Stream { origin: head.origin, trx: head.trx, first: seqno, last: seqno };
        if head.is_rollback() || head.is_end() {
            self.streams.remove(&key).map_or(Seqno::ZERO, |s| s.last)
        } else if head.is_start() {
            self.streams.insert(key, fresh).map_or(Seqno::ZERO, |s| s.last)
        } else {
            let stream = self.streams.entry(key).or_insert(Stream { last: Seqno::ZERO, ..fresh });
            std::mem::replace(&mut stream.last, seqno)
        }
    }
}

/// One write set's side of the comparison.
struct Search {
    cut: u64,
    last_seen: u64,
    /// `None` when nothing of its session is in the index.
    own: Option<SessionSlot>,
}

impl Search {
    /// Compares with all uses of one key. `above`: the key is a prefix of the write set's key, so uses below it are beside, not in the way.
    fn meet(
        &self,
        key: KeyHash,
        records: &Records,
        above: bool,
        new: KeyKind,
        newest: &mut u64,
    ) -> Result<(), Conflict> {
        for record in records.iter().filter(|r| r.seqno > self.cut) {
            let (found, fails, order) = match record.used() {
                Use::Own(first) => {
                    let place = if above { Place::Above } else { Place::Same };
                    let foreign = self.own != Some(record.session());
                    (Found::Key(first), foreign && conflicts(first, place, new), orders(first, place, new))
                }
                Use::OwnToi => (Found::Toi, true, true),
                Use::Below | Use::BelowToi if above => continue,
                Use::Below => {
                    let foreign = self.own != Some(record.session());
                    let first = KeyKind::Shared; // any: they all count the same here
                    (Found::Below, foreign && conflicts(first, Place::Below, new), orders(first, Place::Below, new))
                }
                Use::BelowToi => (Found::Toi, true, true),
            };
            if fails && record.seqno > self.last_seen {
                return Err(Conflict { key: key.0, with: Seqno(record.seqno), found, new });
            }
            if order {
                *newest = (*newest).max(record.seqno);
            }
        }
        Ok(())
    }
}
