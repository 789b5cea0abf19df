//! From a proposal to a committed entry: dissemination, ordering, appending, acknowledging.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use trireme_types::{
    Base, Entry, EntryHeader, EntryKind, LogIndex, NodeId, Seqno, SessionMark, Term, Timestamp, VoterSet,
};

use crate::group::Group;
use crate::message::WireEntry;
use crate::mutant::Mutant;
use crate::proposals::Proposed;
use crate::role::Handover;
use crate::suspicion::Lack;
use crate::timers::Timer;
use crate::{Append, Content, Envelope, LogStore, Phase};

/// One peer's log, as the sequencer knows it. Begins with the link, or with the term (`track`, `on_join`), and moves by what is sent to that
/// peer and by its answers.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    /// Next entry to send.
    pub next: LogIndex,
    /// Acknowledged in this term. The peer may have lost its end since, as long as it has not `answered`.
    pub matched: LogIndex,
    /// The peer's log is not known to agree yet: one empty append at a time.
    pub probing: bool,
    /// A probe is under way since then.
    pub probed_at: Option<Timestamp>,
    /// Sent and not acknowledged: (last index, bytes).
    pub inflight: VecDeque<(LogIndex, usize)>,
    /// Of all of `inflight` together.
    pub inflight_bytes: usize,
    /// Entries up to here go with their bodies: the peer can't have them from their origins.
    pub full_until: LogIndex,
    /// The last snapshot was sent then.
    pub snapshot_sent: Option<Timestamp>,
    /// Snapshots sent since it last acknowledged anything, or was linked: it may have reasons to refuse them.
    pub snapshots: u32,
    /// It has acknowledged or refused something in this term since it was linked, or asked to be let in: so it is known where its log ends.
    pub answered: bool,
    /// It lacks what this arbitrator has dropped: nothing can be sent.
    pub beyond: bool,
    /// Waits for a snapshot since then; nothing is sent.
    pub snapshot_since: Option<Timestamp>,
    /// Last heartbeat round answered.
    pub round: u64,
    /// When it last answered in this term, or was linked.
    pub heard: Timestamp,
    /// `matched` as last looked at, and since when it has stood there.
    pub stalled: (LogIndex, Timestamp),
}

impl Progress {
    pub fn new(next: LogIndex, full_until: LogIndex, now: Timestamp) -> Progress {
        Progress {
            next,
            matched: LogIndex::ZERO,
            probing: true,
            probed_at: None,
            inflight: VecDeque::new(),
            inflight_bytes: 0,
            full_until,
            snapshot_sent: None,
            snapshots: 0,
            answered: false,
            beyond: false,
            snapshot_since: None,
            round: 0,
            heard: now,
            stalled: (LogIndex::ZERO, now),
        }
    }

    /// It has a new link, and may have lived anew since the one before.
    pub fn relink(&mut self, now: Timestamp, next: LogIndex, full_until: LogIndex) {
        self.heard = now;
        self.answered = false;
        self.snapshot_since = None;
        self.snapshots = 0;
        self.restart(next, full_until);
    }

    /// Nothing sent before may be assumed to have arrived.
    pub fn restart(&mut self, next: LogIndex, full_until: LogIndex) {
        self.next = next;
        self.probing = true;
        self.probed_at = None;
        self.beyond = false;
        self.inflight.clear();
        self.inflight_bytes = 0;
        self.full_until = full_until;
    }

    /// Known to be held by the peer, as it is linked now.
    pub fn held(&self) -> Option<LogIndex> {
        self.answered.then_some(self.matched)
    }

    /// Is it too early for another snapshot? Each of them costs an encoding of the whole state.
    pub fn rests_from_snapshots(&self, now: Timestamp) -> bool {
        let doublings = self.snapshots.saturating_sub(2).min(SNAPSHOT_DOUBLINGS_MAX);
        self.snapshot_sent.is_some_and(|at| now.since(at) < SNAPSHOT_EVERY * (1 << doublings))
    }

    fn acknowledged(&mut self, index: LogIndex) {
        let held = self.held().unwrap_or_default();
        self.answered = true;
        self.snapshots = 0;
        self.matched = held.max(index);
        while self.inflight.front().is_some_and(|(last, _)| *last <= index) {
            if let Some((_, bytes)) = self.inflight.pop_front() {
                self.inflight_bytes -= bytes;
            }
        }
    }
}

/// Between the first snapshots to one peer. One may get lost.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(2);
/// From the third on that is not answered the time between them doubles, so often: to 32 s.
const SNAPSHOT_DOUBLINGS_MAX: u32 = 4;
/// Without any acknowledgement for this long, although there is something to acknowledge, a peer is sent everything again.
/// Long against any round trip, short against a human's patience.
const STALLED: Duration = Duration::from_secs(3);
/// A peer is given time for what it was sent, at this pace, before that is sent again.
const SLOW_BYTES_PER_MS: u64 = 10_000;

impl<S: LogStore> Group<S> {
    // --- origin ---------------------------------------------------------------------------------------------------

    /// Could what is proposed now be ordered, as far as links tell? With a majority of the voters somebody can, whether or not one
    /// does at the moment. With fewer only a sequencer that says that it hears a majority itself.
    fn may_be_served(&self, now: Timestamp) -> bool {
        let me = self.me();
        self.quorum(|node| node == me || self.peers.contains_key(&node))
            || self.sequencer() != Some(me) && self.hears_sequencer(now)
    }

    /// Hands out what was kept back, in order, as soon as it may be served. Until then nobody is given it, so that this member can still
    /// promise that it will never be ordered (rule 22).
    pub(crate) fn send_unsent(&mut self, now: Timestamp) {
        if !self.proposals.has_unsent()
            || !matches!(self.phase(), Phase::Primary | Phase::Leaving)
            || !self.may_be_served(now)
        {
            return;
        }
        while let Some(proposed) = self.proposals.send_next() {
            self.disseminate(proposed);
        }
    }

    /// To the sequencer to be ordered, to everybody else so that the body travels once. The sequencer's own proposals go with their places in
    /// the order instead, but to those that hear multicast.
    fn disseminate(&mut self, proposed: Proposed) {
        let me = self.me();
        let submit = proposed.clone().submit();
        for node in self.linked_members() {
            if self.sequencer() == Some(node) {
                self.send(node, submit.clone());
            } else if self.sequencer() != Some(me) || self.hear_multicast.contains(&node) {
                self.send_droppable(node, submit.clone());
            }
        }
        if self.sequencer() == Some(me) {
            self.order(proposed);
        } else if let Some(node) = self.sequencer().filter(|n| self.own.tail().view.get(*n).is_none()) {
            // A sequencer that is not in the newest view this member knows.
            self.send(node, submit);
        }
    }

    /// A (new) sequencer hears of everything that was sent and is not delivered yet, in order.
    pub(crate) fn resend_pending(&mut self) {
        let Some(sequencer) = self.sequencer() else { return };
        for proposed in self.proposals.sent() {
            if sequencer == self.me() {
                self.order(proposed);
            } else {
                self.send(sequencer, proposed.submit());
            }
        }
    }

    pub(crate) fn on_submit(&mut self, now: Timestamp, from: NodeId, proposed: Proposed) {
        // Only the origin speaks for itself, and only to its own branch.
        if proposed.mark.session.node != from || self.is_of_other_branch(from) {
            return;
        }
        if self.leads() {
            self.order(proposed);
        } else if !self.own.tail().is_ordered(proposed.mark) {
            self.memory.unordered.insert(proposed.mark, proposed.body, 2 * self.cfg.cache_bytes_max);
            self.retry_held(now);
        }
    }

    // --- sequencer ------------------------------------------------------------------------------------------------

    /// Assigns the next position, once per (session, number) and in the origin's order.
    pub(crate) fn order(&mut self, proposed: Proposed) {
        if self.arbitrates() {
            // It is about to hand over, and the origin sends again.
            return;
        }
        let blocked = self.ordering_blocked();
        let mark = proposed.mark;
        let inside = self.own.tail().view.get(mark.session.node).is_some();
        let again = self.own.tail().is_ordered(mark) && self.is(Mutant::Duplicates);
        let Some(s) = self.role.leading_mut() else { return };
        if blocked {
            if inside {
                s.blocked.push_back(proposed);
            }
            return;
        }
        if inside && (self.own.tail().is_next(mark) || again) {
            let kind = if proposed.app { EntryKind::App } else { EntryKind::WriteSet };
            self.append_own(kind, Some(mark), proposed.body);
        }
    }

    /// A change of the voters must commit before anything is ordered after it (rule 8); a sequencer that leaves orders
    /// nothing more, nor does an evicted one that has an heir: it can have the whole log then.
    pub(crate) fn ordering_blocked(&self) -> bool {
        let Some(s) = self.role.leading() else { return true };
        self.own.tail().voters_at > s.term_start && self.own.tail().voters_at > self.commit
            || s.leavers.contains_key(&self.me()) && !s.last_waits
            || matches!(s.handover, Handover::Holds(_))
    }

    pub(crate) fn order_blocked(&mut self) {
        if self.ordering_blocked() {
            return;
        }
        let Some(s) = self.role.leading_mut() else { return };
        for proposed in std::mem::take(&mut s.blocked) {
            self.order(proposed);
        }
    }

    /// Called when the output queue is empty: what each peer lacks, in as few messages as possible.
    pub(crate) fn replicate(&mut self, now: Timestamp) {
        self.send_ack(now);
        let Some(s) = self.role.leading() else { return };
        let nodes: Vec<NodeId> = s.progress.keys().copied().collect();
        for node in nodes {
            self.replicate_to(now, node);
        }
    }

    /// A message may have been dropped on the other side (a full queue there, a request for bodies that crossed a
    /// probe), a snapshot's request may have died with whoever was asked: after a while of no movement all begins anew
    /// from what is known to be held.
    pub(crate) fn restart_stalled(&mut self, now: Timestamp) {
        let tail = self.own.tail().index;
        let withheld = self.is(Mutant::BodiesWithheld);
        let Some(s) = self.role.leading_mut() else { return };
        for p in s.progress.values_mut() {
            if p.stalled.0 != p.matched || p.matched >= tail {
                p.stalled = (p.matched, now);
            } else if now.since(p.stalled.1)
                > STALLED + Duration::from_millis(p.inflight_bytes as u64 / SLOW_BYTES_PER_MS)
            {
                p.stalled = (p.matched, now);
                p.snapshot_since = None;
                if !p.probing {
                    let next = p.matched.next();
                    p.restart(next.min(p.next), if withheld { p.full_until } else { tail });
                }
            }
        }
    }

    fn replicate_to(&mut self, now: Timestamp, node: NodeId) {
        if !self.peers.contains_key(&node) {
            return;
        }
        let (last, first) = (self.sendable(node), self.own.store().first());
        let (window, batch) = (self.cfg.inflight_bytes_max, self.cfg.batch_bytes_max);
        let messages_max = self.cfg.limits.inflight_messages_max;
        let Some(p) = self.progress_of(node) else { return };
        if p.snapshot_since.is_some() || p.beyond {
            return;
        }
        if p.next < first {
            self.need_snapshot_for(now, node);
            return;
        }
        let retry = p.probed_at.is_none_or(|at| now.since(at) > crate::group::CHECK_EVERY * 5);
        if p.probing {
            if retry {
                p.probed_at = Some(now);
                let prev = p.next.prev();
                self.send_append(node, prev, Vec::new());
            }
            return;
        }
        if p.next > last {
            return;
        }
        if p.inflight_bytes >= window || p.inflight.len() >= messages_max {
            return;
        }
        let (next, full_until) = (p.next, p.full_until);
        let mut entries = match self.entries(next, batch) {
            Ok(entries) => entries,
            Err(e) => return self.fail(e),
        };
        entries.retain(|e| e.header.index <= last);
        let me = self.me();
        let mut bytes = 0;
        let wire: Vec<WireEntry> = entries
            .into_iter()
            .take(self.cfg.limits.entries_max)
            .map(|e| {
                let h = e.header;
                let origin = h.session.node;
                let has_it = h.index > full_until
                    && (origin != me || self.hear_multicast.contains(&node))
                    && matches!(h.kind, EntryKind::WriteSet | EntryKind::App)
                    && h.term == self.own.term();
                bytes += EntryHeader::ENCODED + if has_it { 0 } else { e.payload.len() };
                (h, (!has_it).then_some(e.payload))
            })
            .collect();
        let upto = wire.last().map_or(next.prev(), |(h, _)| h.index);
        if let Some(p) = self.progress_of(node) {
            p.next = upto.next();
            p.inflight.push_back((upto, bytes));
            p.inflight_bytes += bytes;
        }
        self.send_append(node, next.prev(), wire);
    }

    /// A fork leaves its maker only when it is durable there, or, where it was made for somebody else's vote, when it is durable on that
    /// one: nobody is to be on a branch that nobody can lead.
    fn sendable(&self, node: NodeId) -> LogIndex {
        let told = self.own.tail().voters.contains(node);
        match self.own.tail().lineage.newest() {
            Some(fork) if fork.index > self.commit && fork.index == self.own.tail().voters_at && !told => {
                fork.index.prev()
            }
            Some(_) | None => self.own.tail().index,
        }
    }

    fn send_append(&mut self, node: NodeId, prev_index: LogIndex, entries: Vec<WireEntry>) {
        let Some(prev_term) = self.own.store().term_at(prev_index) else { return };
        let commit = self.commit;
        self.send_in_term(node, Content::Append(Append { prev_index, prev_term, commit, entries }));
    }

    pub(crate) fn progress_of(&mut self, node: NodeId) -> Option<&mut Progress> {
        self.role.leading_mut()?.progress.get_mut(&node)
    }

    pub(crate) fn on_reject(&mut self, from: NodeId, prev_index: LogIndex, last: LogIndex) {
        let tail = self.own.tail().index;
        let Some(p) = self.progress_of(from) else { return };
        // Of an older probe.
        if prev_index >= p.next {
            return;
        }
        p.answered = true;
        let next = LogIndex(prev_index.0.min(last.0.saturating_add(1)).max(1));
        p.matched = p.matched.min(next.prev());
        p.restart(next.min(p.next), tail);
    }

    pub(crate) fn on_need_bodies(&mut self, from: NodeId, index: LogIndex) {
        let tail = self.own.tail().index;
        if index > tail || index < self.own.store().first() || self.is(Mutant::BodiesWithheld) {
            return;
        }
        if let Some(p) = self.progress_of(from).filter(|p| !p.probing && index <= p.next) {
            p.next = index;
            p.full_until = tail;
            p.inflight.clear();
            p.inflight_bytes = 0;
        }
    }

    // --- follower -------------------------------------------------------------------------------------------------

    pub(crate) fn on_append(&mut self, now: Timestamp, from: NodeId, append: Envelope<Append>) {
        let (branch, term) = (append.branch, append.term);
        // A log that is of no use for the data here, and waits to be replaced, is continued all the same: the sequencer may need this
        // member's vote first, which was given in an end of the log that is lost.
        if !self.follow(now, from, branch, term) || self.standing().gives_up_log() {
            return;
        }
        // One that cannot become this branch's waits for the snapshot all the same: it would acknowledge what it does not hold.
        if !self.standing().keeps_log() && self.common_end() <= self.commit {
            return;
        }
        if self.era.held_count() == 0 {
            self.accept_append(now, append);
        } else if self.era.held_count() < self.cfg.limits.held_max {
            self.era.hold(append);
        }
    }

    /// Appends waiting for bodies, as far as they can go now.
    pub(crate) fn retry_held(&mut self, now: Timestamp) {
        while let Some(append) = self.era.take_held() {
            let before = self.era.held_count();
            self.accept_append(now, append);
            // Held again: it went back to the front.
            if self.era.held_count() > before {
                return;
            }
        }
        self.timers.disarm(Timer::Bodies);
    }

    pub(crate) fn ask_for_bodies(&mut self) {
        let Some(from) = self.era.first_held() else { return };
        self.era.drop_held();
        if let Some(sequencer) = self.sequencer() {
            self.send_in_term(sequencer, Content::NeedBodies { from });
        }
    }

    fn accept_append(&mut self, now: Timestamp, append: Envelope<Append>) {
        let Envelope { branch, term, content: Append { prev_index, prev_term, commit, entries } } = append;
        if term != self.own.term() || branch != self.era.branch() && !self.is(Mutant::ForkMerged) {
            return;
        }
        let base = self.own.store().base().index;
        // From the first fork that this log lacks on, an equal term is a coincidence.
        let limit = self.common_end();
        if prev_index >= base && (prev_index >= limit || self.own.store().term_at(prev_index) != Some(prev_term)) {
            if prev_index <= self.commit {
                return self.contradicted(now);
            }
            let last = self.own.tail().index.min(prev_index.prev()).min(limit.prev()).max(self.commit);
            if let Some(sequencer) = self.sequencer() {
                self.send(sequencer, Content::Reject { prev_index, last }.in_term(branch, term));
            }
            return;
        }
        if entries.last().is_none_or(|(h, _)| h.index <= self.own.tail().index) {
            // A probe, or entries that are held already: the sequencer does not know, so it wants an answer although
            // there is nothing new to say. Without one its window to us would stay full for ever.
            self.era.owe_own_ack();
        }
        let mut upto = prev_index.max(base);
        let mut fresh: Vec<Entry> = Vec::new();
        let mut rest = entries.into_iter();
        for (header, body) in rest.by_ref() {
            if header.index <= base {
                continue;
            }
            if header.index != upto.next() || header.term > term {
                // Not what a sequencer sends.
                return;
            }
            if fresh.is_empty() && header.index <= self.own.tail().index {
                if header.index < limit && self.own.store().term_at(header.index) == Some(header.term) {
                    upto = header.index;
                    continue;
                }
                if header.index <= self.commit || self.data_hold(header.index) {
                    return self.contradicted(now);
                }
                // Another branch takes the place of what was acknowledged on the own one. One that dies before it holds the fork is a member
                // of the old branch that has lost a part of that.
                let forked = self.era.branch() != self.own.tail().branch() && !self.is(Mutant::ForkMerged);
                let forked = forked && !self.is(Mutant::ForkUnsuspected);
                if forked && !self.begin_to_doubt(Lack::Entries) || !self.truncate_after(header.index.prev()) {
                    return;
                }
            }
            let Some(payload) = body.or_else(|| self.body_of(&header)) else {
                // The body is on its way from its origin, or lost: keep what is complete, hold the rest.
                let mut missing: Vec<WireEntry> = vec![(header, None)];
                missing.extend(rest);
                let prev_term = fresh.last().map_or_else(|| self.own.store().term_at(upto), |e| Some(e.header.term));
                if !self.append_fresh(now, fresh) {
                    return;
                }
                self.era.note_matched(upto, commit);
                self.note_own_ack(now);
                if let Some(prev_term) = prev_term.filter(|_| self.running()) {
                    let content = Append { prev_index: upto, prev_term, commit, entries: missing };
                    self.era.hold_again(Envelope { branch, term, content });
                    if !self.timers.is_armed(Timer::Bodies) {
                        self.timers.arm(Timer::Bodies, now.after(self.cfg.timeouts.body_wait));
                    }
                }
                return;
            };
            let raised = Self::level_of_entry(&header, &payload);
            if let (Some(level), Some(sequencer)) = (raised, self.sequencer()) {
                if self.is_beyond_level(now, sequencer, level) {
                    break;
                }
            }
            upto = header.index;
            fresh.push(Entry { header, payload });
        }
        if !self.append_fresh(now, fresh) {
            return;
        }
        self.era.note_matched(upto, commit);
        self.note_own_ack(now);
    }

    fn body_of(&self, header: &EntryHeader) -> Option<Bytes> {
        if header.session == self.proposals.session() {
            return self.proposals.body_of(header.mark().number).cloned();
        }
        self.memory.unordered.get(header.mark()).cloned()
    }

    fn append_fresh(&mut self, now: Timestamp, fresh: Vec<Entry>) -> bool {
        if fresh.is_empty() {
            return true;
        }
        let mut check = self.own.tail().index;
        let mut seqno = self.own.tail().seqno;
        let mut term = self.own.tail().term;
        let mut voters = self.own.tail().voters_at;
        let mut numbers = BTreeMap::new();
        for entry in &fresh {
            let h = &entry.header;
            if h.kind.takes_seqno() {
                seqno = seqno.next();
            }
            let numbered = self.is_numbered(h, &mut numbers);
            if h.index != check.next() || h.seqno != seqno || h.term < term || h.voters != voters || !numbered {
                if let Some(sequencer) = self.sequencer() {
                    let what = format!("sends entries that do not follow the log at {check}: they are ignored");
                    self.complain(now, sequencer, &what);
                }
                return false;
            }
            check = h.index;
            term = h.term;
            if h.kind == EntryKind::Voters {
                voters = h.index;
            }
        }
        for entry in &fresh {
            self.memory.unordered.remove(entry.header.mark());
        }
        let done = self.append(fresh);
        self.keep_log_of_voter();
        done
    }

    /// Is a proposal the next one of its origin? `numbers` are those of the entries before it that are not in the log yet.
    fn is_numbered(&self, h: &EntryHeader, numbers: &mut BTreeMap<NodeId, SessionMark>) -> bool {
        if !matches!(h.kind, EntryKind::WriteSet | EntryKind::App) || self.is(Mutant::Duplicates) {
            return true;
        }
        let (mark, origin) = (h.mark(), h.session.node);
        match numbers.insert(origin, mark) {
            Some(before) => mark.follows(Some(before)),
            None => self.own.tail().is_next(mark),
        }
    }

    /// Forgets an uncommitted tail.
    pub(crate) fn truncate_after(&mut self, index: LogIndex) -> bool {
        assert!(index >= self.commit, "a committed entry is never forgotten");
        let truncated = self.own.truncate_after(index);
        if !self.worked(truncated) {
            return false;
        }
        // Read ahead for delivery, maybe beyond what is committed.
        self.memory.ahead.clear();
        self.era.truncate_after(index);
        self.spoil_repair(index);
        self.rebuild_tail();
        self.phase() != Phase::Failed
    }

    // --- acknowledgement ------------------------------------------------------------------------------------------

    /// This member's own log or its durability moved.
    pub(crate) fn note_own_ack(&mut self, now: Timestamp) {
        if self.sequencer().is_none() {
            return;
        }
        let index = self.durable().min(self.era.verified());
        self.era.note_ack(self.me(), index);
        self.advance_commit(now);
        self.settle_suspicion();
    }

    fn send_ack(&mut self, now: Timestamp) {
        if self.leads() {
            // Entries were appended since the last drain.
            self.note_own_ack(now);
        }
        let me = self.me();
        let Some(index) = self.era.take_own_ack(me) else { return };
        let mut nodes = self.linked_members();
        for v in &self.own.tail().voters.voters {
            if v.node != me && !nodes.contains(&v.node) {
                nodes.push(v.node);
            }
        }
        if let Some(sequencer) = self.sequencer().filter(|s| *s != me && !nodes.contains(s)) {
            nodes.push(sequencer);
        }
        for node in nodes {
            self.send_in_term(node, Content::Ack { index });
        }
    }

    pub(crate) fn on_ack(&mut self, now: Timestamp, term: Term, from: NodeId, index: LogIndex) {
        // No matter who is followed, and in which term: the peer may need to be told (rule 12).
        let named = self.is_named(from);
        self.suspicion.remember_ack(from, named, term, index);
        // Of this term only (rule 2).
        if term != self.own.term() && !self.is(Mutant::AcksOfAnyTerm) || self.sequencer().is_none() {
            return;
        }
        let tail = self.own.tail().index;
        let is_sequencer = self.leads();
        if is_sequencer && index > tail {
            return;
        }
        self.era.note_ack(from, index);
        // One that ends below the own log answers no probe: it was sent before the peer had compared anything in this term. Taken for
        // an answer it would call for a snapshot that the peer does not need.
        let served = index >= self.own.store().base().index;
        if let Some(p) = self.progress_of(from) {
            p.heard = now;
            if p.snapshot_since.is_none() && served {
                if p.probing {
                    p.probing = false;
                    p.next = index.next();
                    p.inflight.clear();
                    p.inflight_bytes = 0;
                }
                p.acknowledged(index);
                p.next = p.next.max(index.next());
            }
        }
        self.advance_commit(now);
        self.hand_over(now);
    }

    /// Every linked member of the view has acknowledged up to here in this term, as far as was heard: nobody who only lags a little
    /// has to be told that what it needs is gone.
    pub fn held_by_members(&self) -> LogIndex {
        let held = |node| self.era.ack_of(node).unwrap_or_default();
        self.linked_members().into_iter().map(held).min().unwrap_or(self.own.tail().index)
    }

    /// Up to where this member's log is known to go, by what it acknowledged in this term.
    pub fn held_by(&self, node: NodeId) -> Option<LogIndex> {
        self.era.ack_of(node)
    }

    pub fn is_linked(&self, node: NodeId) -> bool {
        self.peers.contains_key(&node)
    }

    /// Is this member linked to nobody?
    pub fn is_unlinked(&self) -> bool {
        self.peers.is_empty()
    }

    /// Do these members decide? While a voter change is not known to be committed, the old and the new ones both have to
    /// (rule 8).
    pub(crate) fn quorum(&self, holds: impl Fn(NodeId) -> bool) -> bool {
        self.deciding().all(|set| set.majority(&holds))
    }

    /// The sets of voters that decide now.
    pub(crate) fn deciding(&self) -> impl Iterator<Item = &VoterSet> {
        let settled = self.is(Mutant::NewVotersAlone)
            || self.own.tail().voters_at <= self.commit.max(self.own.voters_committed());
        std::iter::once(&self.own.tail().voters).chain((!settled).then_some(&self.own.tail().voters_before))
    }

    /// The highest entry of this term that a majority holds, as far as this member can see and holds it itself.
    pub(crate) fn advance_commit(&mut self, now: Timestamp) {
        if self.era.branch() != self.own.tail().branch() && !self.is(Mutant::ForkMerged) {
            // Of the sequencer's branch this log holds nothing yet: what it says about its commits does not hold for the own one.
            return;
        }
        let mut commit = self.commit;
        // A committed entry is delivered, and may be in the server's data before the next piece of a large entry is written.
        let held = self.era.verified().min(self.held());
        let mut positions: Vec<LogIndex> = self.era.acks().map(|i| i.min(held)).collect();
        positions.sort_unstable();
        positions.dedup();
        for index in positions.into_iter().rev() {
            if index <= commit {
                break;
            }
            if (self.own.store().term_at(index) == Some(self.own.term()) || self.is(Mutant::OlderTermCommits))
                && self.quorum(|n| self.era.ack_of(n).is_some_and(|held| held >= index))
            {
                commit = index;
                break;
            }
        }
        commit = commit.max(self.era.claimed_commit().min(held));
        if commit > self.commit {
            self.commit = commit;
            let saved = self.own.save_voters_committed(commit);
            if !self.worked(saved) {
                return;
            }
            self.on_commit_moved(now);
        }
    }

    /// So says the sequencer that is followed: log and data go only if it is of this cluster.
    fn contradicted(&mut self, now: Timestamp) {
        let Some(sequencer) = self.sequencer() else { return };
        if !self.may_overrule(now, sequencer) {
            return;
        }
        if self.keeps_only_data_from(sequencer, self.own.term(), self.era.lineage()) {
            return self.keep_only_data(now, sequencer);
        }
        self.become_diverged(None);
    }

    /// Do the server's data hold the own log's entry at `index`? An applied entry was committed, even if this start
    /// does not remember it (after a fork: by the other side). Data ahead of the whole log say nothing about it.
    fn data_hold(&self, index: LogIndex) -> bool {
        self.data.applied <= self.own.tail().seqno
            && self.seqno_at(index.prev()).is_some_and(|before| before < self.data.applied)
    }

    /// Does a state of the own branch begin with another entry than the data hold there? One of the two is of an old disk that went on alone.
    pub(crate) fn data_contradict(&self, base: &Base) -> bool {
        let other = |term: Term| term != base.term;
        self.own.store().term_at(base.index).is_some_and(other) && self.data_hold(base.index)
    }

    fn seqno_at(&self, index: LogIndex) -> Option<Seqno> {
        let base = self.own.store().base();
        if index == base.index {
            return Some(base.seqno);
        }
        let entries = self.entries(index, 0).ok()?;
        entries.first().filter(|e| e.header.index == index).map(|e| e.header.seqno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_held_counts_over_a_new_link_once_it_has_said_so_again() {
        let now = Timestamp::ZERO;
        let mut p = Progress::new(LogIndex(1), LogIndex(9), now);
        assert_eq!(p.held(), None);
        p.acknowledged(LogIndex(9));
        p.acknowledged(LogIndex(7));
        assert_eq!(p.held(), Some(LogIndex(9)), "an older one came late");
        p.relink(now, LogIndex(10), LogIndex(9));
        assert_eq!(p.held(), None);
        p.acknowledged(LogIndex(4));
        assert_eq!(p.held(), Some(LogIndex(4)), "it has lost the end since");
    }
}
