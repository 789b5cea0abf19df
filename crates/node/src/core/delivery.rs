//! What the group has ordered: write sets through the certification index to the appliers, views, and messages of members.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::Bytes;
use trireme_certification::{Head, Verdict, WriteSet};
use trireme_order::{Delivery, LogStore};
use trireme_surface::texts;
use trireme_types::{Base, LogIndex, Member, Reader, Seqno, Session, Uuid, View, Weight};

use super::feed::Feed;
use super::{Core, Outcome, Pending, PendingApp, unreadable};
use crate::index::{Delivered, Found, Index, Lost, Work};
use crate::queue::{ApplyItem, Item};
use crate::{Level, ViewStatus};
use trireme_replicator::message::AppMessage;
use trireme_replicator::roster::{Effect, NodeState, Roster};

/// Bodies from here on are let go of by another thread: giving back the memory of a gigabyte takes tenths of a second.
const LARGE_BODY: usize = 16 << 20;
/// Log between two checkpoints of a large index: two of the largest write sets, as above.
const CHECKPOINT_SPACING: u64 = 4 << 30;

impl Core {
    pub(super) fn on_delivery(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::WriteSet { index, seqno, session, number, body } => {
                self.delivered_index = index;
                self.on_write_set(index, seqno, session, number, body);
            }
            Delivery::View { index, seqno, view } => {
                self.delivered_index = index;
                self.on_view(seqno, view);
            }
            Delivery::App { index, seqno, session, number, body } => {
                self.delivered_index = index;
                self.on_app(seqno, session, number, &body);
            }
            Delivery::Reset { base } => self.on_reset(base),
        }
    }

    pub(super) fn on_reset(&mut self, base: Base) {
        self.delivered = base.seqno;
        self.index = Index::default();
        if base.app.is_empty() {
            self.roster = Roster::default();
            self.index.here().purge(base.seqno);
        } else {
            let mut reader = Reader::new(&base.app);
            match Roster::decode(&mut reader) {
                Ok(roster) => self.roster = roster,
                Err(error) => return self.fail(unreadable(&error)),
            }
            let state = base.app.slice(base.app.len() - reader.remaining()..);
            self.begin_work(Work::Load { state });
        }
        self.set_evicted();
        if self.arbitrates() {
            self.pass(base.seqno);
            return self.shared.set_history(base.history);
        }
        let gap = match &mut self.feed {
            Feed::Held(items) => {
                items.clear();
                let fits = |(h, p): &(Uuid, Seqno)| *h == base.history && *p >= base.seqno;
                if self.told {
                    // With a position the server was told that it needs no data.
                    self.position.take_if(|position| !fits(position)).is_some()
                } else {
                    // The own log may begin beyond the data, and the one that a peer gives for it before them.
                    self.position = self.started_at.filter(fits);
                    false
                }
            }
            Feed::Live => self.handed < base.seqno,
        };
        if gap {
            self.fail("what this node missed is no longer kept by any member: restart it to get a full copy".into());
        }
        self.shared.set_history(base.history);
    }

    pub(super) fn begin_work(&mut self, work: Work) {
        let shared = &self.shared;
        match self.index.begin(work, |errand| shared.run_errand(errand)) {
            Some(found) => self.on_found(found),
            None => self.group.pause_delivery(true),
        }
    }

    /// Asked again here, since the request may be older than what made the index large.
    pub(super) fn puts_off_checkpoint(&mut self) -> bool {
        self.space_checkpoints();
        !self.group.store().wants_checkpoint()
    }

    pub(super) fn space_checkpoints(&mut self) {
        let spacing = if self.index.is_large() { CHECKPOINT_SPACING } else { 0 };
        self.group.store_mut().space_checkpoints(spacing);
    }

    pub(super) fn on_found(&mut self, found: Found) {
        match found {
            Found::Verdict { delivered, write_set, verdict } => self.on_verdict(delivered, Some(&write_set), verdict),
            Found::State { request, state } => {
                let now = self.now();
                self.group.provide_snapshot(now, request, state);
            }
            Found::Loaded(Ok(())) => {}
            Found::Loaded(Err(error)) => self.fail(unreadable(&error)),
        }
    }

    /// Goes on where the index left for an errand, if that has ended.
    pub(super) fn fetch_index(&mut self) {
        match self.index.fetch() {
            Ok(None) => return,
            Ok(Some(found)) => {
                self.group.pause_delivery(false);
                self.on_found(found);
            }
            Err(Lost) => return self.fail("the certification index was lost: restart the server".into()),
        }
        while !self.index.is_away()
            && let Some(output) = self.waiting.pop_front()
        {
            self.on_output(output);
        }
    }

    /// To the server, unless it is not to be told anything more.
    pub(super) fn tell(&self, item: Item) {
        if !self.dropping {
            self.shared.queue.push(item);
        }
    }

    /// Without a server everything is done as soon as it is delivered.
    pub(super) fn pass(&mut self, seqno: Seqno) {
        self.handed = seqno;
        self.shared.monitor.reset(seqno);
    }

    pub(super) fn hand(&mut self, item: Item) {
        if self.arbitrates() {
            if let Some(seqno) = item.seqno() {
                self.pass(seqno);
            }
            return match item {
                Item::View { view, .. } if self.told => self.tell(Item::View { view, closes: None }),
                Item::View { .. } | Item::Apply(_) => {}
                other => self.tell(other),
            };
        }
        match &mut self.feed {
            Feed::Held(items) => items.push(item),
            Feed::Live => {
                if let Some(seqno) = item.seqno() {
                    if seqno <= self.handed {
                        return;
                    }
                    self.handed = seqno;
                }
                self.tell(item);
            }
        }
    }

    pub(super) fn on_write_set(&mut self, index: LogIndex, seqno: Seqno, session: Session, number: u64, body: Bytes) {
        self.delivered = seqno;
        if body.len() >= LARGE_BODY {
            self.large.push(body.clone());
        }
        let delivered = Delivered { index, seqno, session, number, body };
        match WriteSet::parse(delivered.body.clone()) {
            Ok(write_set) => self.begin_work(Work::Judge { delivered, write_set }),
            Err(_) => {
                self.index.here().note_malformed(seqno);
                self.on_verdict(delivered, None, Verdict::malformed(seqno));
            }
        }
    }

    /// `ws`: unless the body is none.
    pub(super) fn on_verdict(&mut self, delivered: Delivered, ws: Option<&WriteSet>, verdict: Verdict) {
        let Delivered { index, seqno, session, number, body } = delivered;
        let bytes = body.len();
        let head = ws.map_or_else(Head::default, |ws| *ws.head());
        let counters = &self.shared.counters;
        counters.certified(seqno, verdict.depends_on, head.last_seen, self.index.here().len());
        counters.received(bytes);
        self.flow.count(session.node == self.me.node);
        if session.node == self.me.node {
            self.note_session(session.number);
            if let Some(Pending::Owned { slot, .. }) = self.pending.remove(&(session.number, number)) {
                self.handed = self.handed.max(seqno);
                if let Some(ws) = ws {
                    self.shared.counters.replicated(bytes, ws.key_count(), ws.key_bytes(), ws.data_bytes());
                }
                if !verdict.ok() {
                    self.shared.counters.local_cert_failures.fetch_add(1, Relaxed);
                    self.note_conflict(seqno, &verdict);
                }
                slot.fill(Outcome::Ordered { seqno, ok: verdict.ok(), depends_on: verdict.depends_on, body });
                return;
            }
        }
        let depends_on = if verdict.ok() {
            let seen = if self.shared.settings.optimistic_pa() { Seqno::ZERO } else { head.last_seen };
            verdict.depends_on.max(seen.min(seqno.prev()))
        } else {
            seqno.prev()
        };
        let item = ApplyItem { seqno, index, depends_on, ok: verdict.ok(), body: Some(body) };
        self.hand(Item::Apply(item));
    }

    pub(super) fn note_conflict(&self, seqno: Seqno, verdict: &Verdict) {
        if self.shared.log_conflicts() {
            self.shared.log(Level::Info, format!("certification conflict: {seqno} fails: {:?}", verdict.failure));
        }
    }

    pub(super) fn on_view(&mut self, seqno: Seqno, mut view: View) {
        // By UUID, as the server reads them back from its own tables after a full copy: the position in this list is its
        // auto_increment_offset, and two orders would let two nodes draw the same numbers.
        view.members.sort_by_key(Member::uuid);
        self.delivered = seqno;
        self.index.here().note_view(seqno);
        self.index.here().retain_streams(|origin| view.members.iter().any(|m| m.uuid() == origin));
        self.transport.set_peers(&view.members);
        self.names.extend(view.members.iter().map(|m| (m.node, m.name.clone())));
        let effects = self.roster.apply_view(&view, seqno);
        let server_view = self.server_view(ViewStatus::Primary, Some(seqno), &view);
        let own = view.get(self.me.node).filter(|m| m.incarnation == self.me.incarnation);
        if let Some(me) = own {
            // Before the server is told of the view: scripts read the file as soon as the cluster size shows.
            self.shared.on_primary_view(&view, me, self.group.store().base().history);
        }
        let again = own.is_some() && !self.member;
        self.member |= own.is_some();
        // Whoever is told of the view can also read it.
        self.publish();
        if own.is_some() || !self.leaving {
            self.hand(Item::View { view: server_view, closes: Some(seqno) });
        }
        self.log_view(&view, seqno);
        if let Some(weight) = own.map(|m| m.weight) {
            self.on_own_view(seqno, &view, weight, again);
        }
        self.apply_effects(effects, seqno);
        self.publish();
        self.look_for_absent();
        if self.member {
            if let Some(slot) = self.connected.take() {
                slot.fill(Ok(()));
            }
        }
    }

    pub(super) fn on_own_view(&mut self, seqno: Seqno, view: &View, weight: Weight, again: bool) {
        self.non_primary_since = None;
        self.me.weight = weight;
        self.flow.set_members(view.members.iter().map(|m| m.node).collect());
        self.set_flow_options();
        self.look_at_durability();
        self.weight_waiters.retain(|(wanted, slot)| {
            if *wanted == weight {
                slot.fill(true);
            }
            *wanted != weight
        });
        self.shared.monitor.set_last(None);
        if self.returning || !self.told && self.half_done.is_none() {
            self.joined_at = seqno;
            self.begin_feed(seqno, view);
        } else if again {
            if self.feed.is_live() && self.roster.state(self.me.node) == Some(NodeState::Synced) {
                // The loss of the majority took "synced" from the server, but not from the member.
                self.tell(Item::Synced { at: seqno });
            }
            if let Some(request) = self.request.as_mut().filter(|r| r.donor.is_none()) {
                request.retry_at = Some(Instant::now());
            }
        }
    }

    pub(super) fn log_view(&self, view: &View, seqno: Seqno) {
        let names: Vec<String> = view.members.iter().map(|m| m.name.clone()).collect();
        let component = texts::new_component(true, view.position(self.me.node), view.members.len());
        self.shared.log(Level::Info, format!("{component}: {} (TO: {seqno})", names.join(", ")));
    }

    pub(super) fn on_app(&mut self, seqno: Seqno, session: Session, number: u64, body: &Bytes) {
        if session.node == self.me.node {
            self.note_session(session.number);
            if self.announced == Some((session.number, number)) {
                self.announced = None;
            }
            if let Some(waiting) = self.half_done.as_mut().filter(|w| w.said == Some((session.number, number))) {
                waiting.said = None;
            }
        }
        let Ok(message) = AppMessage::decode(body) else { return };
        let effects = self.roster.apply(session.node, message, seqno);
        // Whoever is told of the new state can also read it.
        self.publish();
        self.apply_effects(effects, seqno);
        if session.node == self.me.node {
            if let Some(PendingApp { slot: Some(slot), .. }) = self.pending_app.remove(&(session.number, number)) {
                slot.fill(true);
            }
        }
    }

    pub(super) fn apply_effects(&mut self, effects: Vec<Effect>, seqno: Seqno) {
        for effect in effects {
            match effect {
                Effect::Note(text) => self.shared.log(Level::Info, text),
                Effect::Warn(text) => self.shared.log(Level::Warn, text),
                Effect::Shift { node, from, to } if node == self.me.node && self.member => {
                    self.shared.log(Level::Info, texts::shifting(from.name(), to.name(), Some(seqno)));
                    if to == NodeState::Synced && self.feed.is_live() {
                        self.tell(Item::Synced { at: seqno });
                    }
                    if to == NodeState::Joined {
                        // Counted from here on, so those who vote wait for this node too.
                        for seqno in self.roster.open_votes() {
                            self.on_vote_begun(seqno);
                        }
                    }
                }
                Effect::Shift { .. } => {}
                Effect::DonorChosen { joiner, donor, request, position } => {
                    // Not what an earlier incarnation of this node was asked for. A donor that has just lost its majority gives all
                    // the same: it is a member as far as the order knows, and the joiner waits for it.
                    let chosen = self.roster.view().get(donor).is_some_and(|m| m.uuid() == self.me.uuid());
                    if chosen && self.feed.is_live() && seqno >= self.handed {
                        self.shared.monitor.raise_barrier(seqno);
                        self.tell(Item::Donate { joiner, request, position, at: seqno });
                    }
                    if joiner == self.me.node {
                        if let Some(slot) = self.asked.take() {
                            self.request = None;
                            slot.fill(Ok(self.roster.label(donor)));
                        }
                        if let Some(r) = &mut self.request {
                            r.donor = Some(donor);
                        }
                    }
                }
                Effect::GoesOnHalfDone { node } if node == self.me.node => self.go_on_half_done(),
                Effect::GoesOnHalfDone { .. } => {}
                Effect::NoDonor { joiner, retry, reason } if joiner == self.me.node => {
                    if let Some(r) = self.request.as_mut().filter(|_| retry) {
                        r.retry_at = Some(Instant::now() + Duration::from_secs(1));
                    } else if let Some(slot) = self.asked.take() {
                        self.request = None;
                        slot.fill(Err(reason));
                    } else if self.request.is_some() {
                        self.shared.log(Level::Error, texts::request_failed(&reason));
                        self.shared.die(texts::NEVER_RECEIVE_STATE.into());
                    }
                }
                Effect::NoDonor { .. } => {}
                Effect::TransferDone { joiner, donor, ok } => {
                    if joiner == self.me.node && !ok && self.request.as_ref().is_some_and(|r| r.donor == Some(donor)) {
                        self.shared.log(Level::Info, format!("donor {} failed", self.roster.label(donor)));
                        self.shared.die(texts::NEVER_RECEIVE_STATE.into());
                    }
                }
                Effect::Cut(cut) => self.index.here().purge(cut),
                // An evicted member stays until the others do not need its vote any more; then it is told.
                Effect::Evictions => self.set_evicted(),
                Effect::VoteBegun { seqno } => self.on_vote_begun(seqno),
                // Settled before this node sat out.
                Effect::VoteDone { seqno, .. } | Effect::VoteDismissed { seqno, .. }
                    if self.delivered_index <= self.heard_upto && seqno <= self.shared.monitor.left() => {}
                Effect::VoteDone { .. } if self.arbitrates() => {}
                Effect::VoteDone { seqno, winner, .. } => {
                    // What lies below the floor came with the data, whatever the vote was.
                    let knows = self.feed.is_live() || self.returning;
                    let left = || if knows { self.shared.monitor.left() } else { Seqno::ZERO };
                    if seqno > self.floor && self.shared.votes.decided(seqno, winner, left) {
                        self.shared.lost_vote(seqno);
                    }
                }
                Effect::VoteDismissed { seqno, losers } => {
                    self.shared.votes.dismissed(seqno, losers.contains(&self.me.node));
                }
            }
        }
    }

    pub(super) fn set_evicted(&mut self) {
        let now = self.now();
        self.group.set_evicted(now, self.roster.evicted().iter().copied().collect());
    }

    pub(super) fn on_vote_begun(&self, seqno: Seqno) {
        if self.member && self.feed.is_live() && !self.arbitrates() {
            self.shared.on_vote_begun(seqno);
        }
    }

    pub(super) fn on_non_primary(&mut self, reachable: Vec<Member>) {
        self.withdraw();
        if !self.member {
            return;
        }
        self.member = false;
        self.announced = None;
        if let Some(waiting) = &mut self.half_done {
            waiting.said = None;
        }
        self.non_primary_since = Some(Instant::now());
        self.flow.set_members(Vec::new());
        for (_, slot) in self.reads.drain() {
            slot.fill(None);
        }
        for (_, slot) in self.weight_waiters.drain(..) {
            slot.fill(false);
        }
        let own = reachable.iter().position(|m| m.node == self.me.node).unwrap_or(0);
        self.shared.log(Level::Info, texts::new_component(false, Some(own), reachable.len()));
        self.publish();
        if self.feed.is_live() {
            self.shared.monitor.set_last(Some(self.handed));
            let view = self.server_view(ViewStatus::NonPrimary, None, &View { number: 0, members: reachable });
            self.tell(Item::View { view, closes: None });
        }
    }
}
