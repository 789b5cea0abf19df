//! The way of all that the group has ordered: write sets through the certification index to the appliers, views, and
//! messages of members.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use bytes::Bytes;
use trireme_certification::{Failure, Head, Verdict, WriteSet};
use trireme_flight as flight;
use trireme_order::{Delivery, LogStore};
use trireme_surface::texts;
use trireme_types::{Base, LogIndex, Member, ProposalNumber, Seqno, Session, Uuid, View, Weight};

use super::past::{Entry, Past};
use super::{Core, unreadable};
use crate::command::Outcome;
use crate::index::{Delivered, Found, Index, Lost, Work};
use crate::item::{ApplyItem, Item};
use crate::saved::Saved;
use crate::{Level, ViewStatus};
use trireme_replicator::applying::begins_behind;
use trireme_replicator::message::AppMessage;
use trireme_replicator::votes::ErrorClass;
use trireme_replicator::{Effect, Offer, Position, Severity};

/// Bodies from here on are let go of by another thread: giving back the memory of a gigabyte takes tenths of a second.
const LARGE_BODY: usize = 16 << 20;
/// Log between two checkpoints of a large index: two of the largest write sets, as above.
const CHECKPOINT_SPACING: u64 = 4 << 30;

impl Core {
    pub(super) fn on_delivery(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::WriteSet { index, seqno, session, number, body } => {
                self.on_write_set(index, seqno, session, number, body);
            }
            Delivery::View { index, seqno, view } => self.on_view(index, seqno, view),
            Delivery::App { index, seqno, session, number, body } => self.on_app(index, seqno, session, number, &body),
            Delivery::Level { index: _, level } => {
                self.inc.transport.set_level(level);
                self.inc.replicator.handle_level(level);
            }
            Delivery::Reset { base } => self.on_reset(base),
        }
    }

    pub(super) fn on_reset(&mut self, base: Base) {
        self.inc.transport.set_level(base.level);
        // Otherwise what was delivered is delivered once more.
        let reaches = base.index >= self.inc.replicator.heard_upto();
        self.inc.index = Index::default();
        if let Some(past) = &mut self.inc.past {
            *past = Past::begin();
        }
        // Earlier items are of no use: the server has them, or needs a copy that reaches further.
        self.inc.backlog.clear();
        let position = Position { history: base.history, seqno: base.seqno };
        let branch = base.lineage.branch(base.history);
        let rest = match self.inc.replicator.handle_reset(position, branch, base.level, &base.app) {
            Ok(rest) => rest.len(),
            Err(error) => return self.fail(unreadable(&error)),
        };
        if base.app.is_empty() {
            self.inc.index.here().purge(base.seqno);
        } else {
            let state = base.app.slice(base.app.len() - rest..);
            self.begin_work(Work::Load { state });
        }
        self.carry_out();
        if self.arbitrates() {
            self.pass(base.seqno);
        }
        self.shared.data.set_history(base.history);
        self.conn.proposals.reset(base.newest_of(self.inc.me.node));
        self.inc.voted_before = if reaches { self.shared.votes.waiting() } else { Vec::new() };
        // A thread that is told of the new state can also read it.
        self.publish();
        self.settle_proposals();
    }

    /// Perhaps a state has skipped the end of a vote without a result, and somebody waits for one. `waiting`: at these seqnos when the state
    /// came. All commands of then have been carried out, so that a vote is on its way, or was ordered.
    pub(super) fn end_skipped_votes(&mut self, waiting: Vec<Seqno>) {
        if !waiting.is_empty() {
            // A vote of a session that is over is said again once something of the present one is ordered.
            self.inc.replicator.handle_abandoned();
        }
        for failed in waiting {
            if self.inc.replicator.is_dismissed(failed) && !self.conn.proposals.votes_on(failed) {
                self.shared.votes.dismissed(failed, true);
            }
        }
    }

    pub(super) fn begin_work(&mut self, work: Work) {
        let shared = &self.shared;
        match self.inc.index.begin(work, |errand| shared.jobs.run_errand(errand)) {
            Some(found) => self.on_found(found),
            None => self.inc.group.pause_delivery(true),
        }
    }

    /// Asked again here, since the request may be older than what made the index large.
    pub(super) fn puts_off_checkpoint(&mut self) -> bool {
        self.space_checkpoints();
        !self.inc.group.store().wants_checkpoint()
    }

    pub(super) fn space_checkpoints(&mut self) {
        let spacing = if self.inc.index.is_large() { CHECKPOINT_SPACING } else { 0 };
        self.inc.group.store_mut().space_checkpoints(spacing);
    }

    pub(super) fn on_found(&mut self, found: Found) {
        match found {
            Found::Verdict { delivered, write_set, verdict } => self.on_verdict(delivered, Some(&write_set), verdict),
            Found::State { request, state } => {
                let now = self.now();
                self.inc.group.provide_snapshot(now, request, state);
            }
            Found::Loaded(Ok(())) => {}
            Found::Loaded(Err(error)) => self.fail(unreadable(&error)),
        }
    }

    /// Goes on where the index left for an errand, if that has ended.
    pub(super) fn fetch_index(&mut self) {
        match self.inc.index.fetch() {
            Ok(None) => return,
            Ok(Some(found)) => {
                self.inc.group.pause_delivery(false);
                self.on_found(found);
            }
            Err(Lost) => return self.fail("the certification index was lost: restart the server".into()),
        }
        while !self.inc.index.is_away()
            && let Some(output) = self.inc.waiting.pop_front()
        {
            self.on_output(output);
        }
    }

    /// To the server, unless it is not to be told anything more.
    pub(super) fn tell(&self, item: Item) {
        if !self.ending().drops() {
            self.shared.queue.push(item);
        }
    }

    /// Without a server everything is done as soon as it is delivered.
    fn pass(&self, seqno: Seqno) {
        self.shared.monitor.reset(seqno);
    }

    /// Does with something that closes a seqno what the replicator says.
    fn hand(&mut self, offer: Offer, item: Item) {
        match offer {
            Offer::Keep => self.inc.backlog.push(item),
            Offer::Hand => self.tell(item),
            Offer::Skip => {}
            Offer::Pass => {
                if let Some(seqno) = item.seqno() {
                    self.pass(seqno);
                }
                match item {
                    Item::View { view, .. } if self.inc.replicator.is_connected() => {
                        self.tell(Item::View { view, closes: None });
                    }
                    Item::View { .. } | Item::Apply(_) => {}
                    other => self.tell(other),
                }
            }
        }
    }

    pub(super) fn on_write_set(
        &mut self,
        index: LogIndex,
        seqno: Seqno,
        session: Session,
        number: ProposalNumber,
        body: Bytes,
    ) {
        self.count_past(&Entry::WriteSet, seqno);
        if body.len() >= LARGE_BODY {
            self.inc.large.push(body.clone());
        }
        let delivered = Delivered { index, seqno, session, number, body };
        match WriteSet::parse(delivered.body.clone()) {
            Ok(write_set) => self.begin_work(Work::Judge { delivered, write_set }),
            Err(_) => {
                self.inc.index.here().note_malformed(seqno);
                self.on_verdict(delivered, None, Verdict::malformed(seqno));
            }
        }
    }

    /// `ws`: unless the body is none.
    pub(super) fn on_verdict(&mut self, delivered: Delivered, ws: Option<&WriteSet>, verdict: Verdict) {
        let Delivered { index, seqno, session, number, body } = delivered;
        let bytes = body.len();
        let head = ws.map_or_else(Head::default, |ws| *ws.head());
        let counters = &self.shared.status.counters;
        counters.certified(seqno, verdict.depends_on, head.last_seen, self.inc.index.here().len());
        counters.received(bytes);
        self.inc.flow.count(session.node == self.inc.me.node);
        if session.node == self.inc.me.node {
            self.conn.proposals.session_begun(session.number);
            self.settle_proposals();
            if let Some(ordered) = self.conn.proposals.write_set_ordered((session, number).into()) {
                self.inc.replicator.handle_ordered(index, seqno, true);
                if let Some(ws) = ws {
                    self.shared.status.counters.replicated(bytes, ws);
                }
                if !verdict.ok() {
                    self.shared.status.counters.local_cert_failures.fetch_add(1, Relaxed);
                    self.note_conflict(index, seqno, &verdict);
                }
                let outcome = Outcome::Ordered { seqno, ok: verdict.ok(), depends_on: verdict.depends_on, body };
                self.conn.proposals.answer(ordered, outcome, self.inc.replicator.is_live());
                self.settle_proposals();
                return;
            }
        }
        let certified = verdict.ok().then_some(verdict.depends_on);
        let optimistic = self.shared.host.settings.optimistic_pa();
        let depends_on = begins_behind(seqno, certified, head.last_seen, optimistic);
        let item = ApplyItem { seqno, index, depends_on, ok: verdict.ok(), body: Some(body) };
        let offer = self.inc.replicator.handle_ordered(index, seqno, false);
        self.hand(offer, Item::Apply(item));
    }

    pub(super) fn note_conflict(&self, index: LogIndex, seqno: Seqno, verdict: &Verdict) {
        self.shared.host.flight.note_often(Some(index), || {
            let (with, key) = verdict.conflict().map_or((Seqno::ZERO, 0), |found| (found.with, found.key));
            let why = verdict.failure.map_or_else(String::new, |failure| failure_words(failure).to_owned());
            flight::Event::Conflict { seqno, with, key, why }
        });
        if self.shared.host.settings.log_conflicts() {
            self.log_ordered(Level::Info, format!("certification conflict: {seqno} fails: {:?}", verdict.failure));
        }
    }

    pub(super) fn on_view(&mut self, index: LogIndex, seqno: Seqno, mut view: View) {
        // By UUID, as the server reads them back from its own tables after a full copy: the position in this list is its
        // auto_increment_offset, and two orders would let two nodes draw the same numbers.
        view.members.sort_by_key(Member::uuid);
        self.inc.index.here().note_view(seqno);
        self.inc.index.here().retain_streams(|origin| view.members.iter().any(|m| m.uuid() == origin));
        self.inc.transport.set_peers(&view.members);
        self.conn.names.extend(view.members.iter().map(|m| (m.node, m.name.clone())));
        let own = view.get(self.inc.me.node).filter(|m| m.incarnation == self.inc.me.incarnation);
        match own {
            None => self.count_past(&Entry::View, seqno),
            Some(_) => self.end_past(),
        }
        // Earlier views are on the others' records.
        if self.inc.past.is_none() {
            let members = view.members.iter().map(|m| m.name.clone()).collect();
            self.shared.host.flight.note_at(index, false, flight::Event::View { number: view.number, seqno, members });
        }
        let weight = own.map(|m| m.weight);
        self.inc.replicator.note_branch(self.branch());
        let now = self.now();
        let offer = self.inc.replicator.handle_view(now, index, seqno, &view);
        if let Some(me) = own {
            // Before the server is told of the view: scripts read the file as soon as the cluster size shows.
            let has_data = self.inc.replicator.has_data();
            self.shared.data.on_primary_view(&view, me, self.inc.group.store().base().history, has_data);
        }
        // A thread that is told of the view can also read it.
        self.publish();
        let server_view = self.server_view(ViewStatus::Primary, Some(seqno), &view);
        self.hand(offer, Item::View { view: server_view, closes: Some(seqno) });
        self.log_view(&view, seqno);
        if let Some(weight) = weight {
            self.on_own_view(&view, weight);
        }
        self.carry_out();
        self.publish();
        self.look_for_absent();
        if self.inc.replicator.is_member() {
            if let Some(slot) = self.conn.connected.take() {
                slot.fill(Ok(()));
            }
        }
    }

    fn on_own_view(&mut self, view: &View, weight: Weight) {
        self.inc.non_primary_since = None;
        self.inc.me.weight = weight;
        self.inc.flow.set_members(view.members.iter().map(|m| m.node).collect());
        self.set_flow_options();
        self.look_at_durability();
        self.conn.weight_waiters.retain(|(wanted, slot)| {
            if *wanted == weight {
                slot.fill(true);
            }
            *wanted != weight
        });
        self.shared.monitor.set_last(None);
    }

    pub(super) fn log_view(&self, view: &View, seqno: Seqno) {
        let names: Vec<String> = view.members.iter().map(|m| m.name.clone()).collect();
        let component = texts::new_component(true, view.position(self.inc.me.node), view.members.len());
        self.log_ordered(Level::Info, format!("{component}: {} (TO: {seqno})", names.join(", ")));
    }

    fn count_past(&mut self, entry: &Entry, seqno: Seqno) {
        if let Some(past) = &mut self.inc.past {
            past.count(entry, seqno);
        }
    }

    /// This incarnation is in the group: what comes now is news.
    fn end_past(&mut self) {
        if let Some(summary) = self.inc.past.take().and_then(|past| past.summary()) {
            self.shared.host.log(Level::Info, summary);
        }
    }

    pub(super) fn on_app(
        &mut self,
        index: LogIndex,
        seqno: Seqno,
        session: Session,
        number: ProposalNumber,
        body: &Bytes,
    ) {
        if session.node == self.inc.me.node {
            self.conn.proposals.session_begun(session.number);
            self.settle_proposals();
        }
        self.count_past(&Entry::Message, seqno);
        let Ok(message) = AppMessage::decode(body) else { return };
        self.inc.replicator.note_branch(self.branch());
        let now = self.now();
        self.inc.replicator.handle_message(now, index, seqno, session.node, message);
        // A thread that is told of the new state can also read it.
        self.publish();
        self.carry_out();
        if session.node == self.inc.me.node {
            self.conn.proposals.message_ordered((session, number).into());
            self.settle_proposals();
        }
    }

    pub(super) fn branch(&self) -> Uuid {
        self.inc.group.lineage().branch(self.inc.group.store().base().history)
    }

    /// Does what the replicator wants, in order. Says whether that was anything.
    pub(super) fn carry_out(&mut self) -> bool {
        let mut any = false;
        while let Some(effect) = self.inc.replicator.poll_effect() {
            self.on_effect(effect);
            any = true;
        }
        any
    }

    fn on_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Log(severity, text) => self.shared.host.log(level(severity), text),
            Effect::News(severity, text) => self.log_ordered(level(severity), text),
            Effect::Propose(message) => match self.propose_app(&message) {
                Some(id) => self.conn.proposals.replicator_said(id, message),
                None => {
                    let now = self.now();
                    self.inc.replicator.handle_refused(now, &message);
                }
            },
            Effect::ConnectNobody { seqno, view } => {
                let first = self.server_view(ViewStatus::Primary, Some(seqno), &view);
                self.tell(Item::Connected(first.clone()));
                self.tell(Item::View { view: first, closes: None });
            }
            Effect::AskServer { seqno, view, data } => {
                let connected = self.server_view(ViewStatus::Primary, Some(seqno), &view);
                self.tell(Item::Connected(connected));
                self.tell(Item::SstRequest { data });
            }
            Effect::GoLive { position, connect } => self.go_live(position, connect),
            Effect::Resume { position, seqno, view } => self.resume(position, seqno, &view),
            Effect::Synced { at } => {
                self.shared.host.flight.note(flight::Event::Synced { at });
                self.tell(Item::Synced { at });
            }
            Effect::Donate { joiner, request, position, at } => {
                let to = self.name(joiner);
                self.shared.host.flight.note(flight::Event::Donates { to, at });
                self.shared.monitor.raise_barrier(at);
                self.tell(Item::Donate { joiner, request, position, at });
            }
            Effect::Answer(answer) => {
                if let Some(slot) = self.conn.asked.take() {
                    slot.fill(answer);
                }
            }
            // The process ends where it cannot be marked.
            Effect::DataAtRisk => {
                self.shared.begin_copy();
            }
            Effect::DataSafe => self.shared.data.save(Saved::refused),
            Effect::NobodyHasData { absent } => {
                let who = if absent.is_empty() {
                    "all servers with a vote are here, and so nobody can give a copy to anybody".to_string()
                } else {
                    format!("this one waits for voters that may have data: {}", self.names_of(&absent))
                };
                self.shared.host.log(Level::Warn, texts::nobody_has_data(&who));
            }
            Effect::SyncLog => match self.inc.group.store_mut().sync_all() {
                Ok(()) => {
                    let now = self.now();
                    self.inc.group.handle_all_synced(now);
                    self.inc.replicator.handle_log_synced();
                }
                // The server has been told nothing, and cannot sit the outage out.
                Err(error) => self.fail_for_good(error.to_string()),
            },
            Effect::DataArrived => self.inc.group.data_arrived(),
            Effect::Die(reason) => self.shared.die(reason),
            Effect::Fail(reason) => self.fail(reason),
            Effect::Inconsistent(reason) => {
                self.shared.host.flight.note(flight::Event::Inconsistent { reason: reason.clone() });
                self.shared.data.mark_inconsistent();
                self.fail(reason);
            }
            Effect::Purge(cut) => self.inc.index.here().purge(cut),
            Effect::Evictions => self.set_evicted(),
            Effect::VoteBegun { seqno } => {
                self.shared.host.flight.note(flight::Event::VoteBegun { seqno });
                self.shared.on_vote_begun(seqno);
            }
            // Settled before this node sat out.
            Effect::VoteDone { seqno, .. } | Effect::VoteDismissed { seqno, .. }
                if self.inc.replicator.is_repeated() && seqno <= self.shared.monitor.left() => {}
            Effect::VoteDone { seqno, winner, applied } => {
                self.shared.host.flight.note(flight::Event::VoteDone { seqno, winner: winner.0 });
                self.shared.on_vote_done(seqno, winner, applied);
            }
            Effect::ResultKnown { seqno, winner } => self.shared.on_vote_done(seqno, winner, true),
            Effect::VoteDismissed { seqno, lost } => {
                if self.shared.votes.dismissed(seqno, lost) {
                    self.shared.compare_with_vote(seqno, ErrorClass::SUCCESS);
                }
            }
            Effect::Remember(failures) => {
                let result = self.shared.failures.remember(failures);
                self.shared.complain_of_failures(result);
            }
            Effect::Contradicted { seqno, held } => self.shared.lost_vote(seqno, held),
        }
    }

    pub(super) fn set_evicted(&mut self) {
        let now = self.now();
        self.inc.group.set_evicted(now, self.inc.replicator.roster().evicted().iter().copied().collect());
    }

    pub(super) fn on_non_primary(&mut self, reachable: Vec<Member>) {
        self.withdraw();
        if !self.inc.replicator.handle_non_primary() {
            return;
        }
        self.inc.non_primary_since = Some(Instant::now());
        self.inc.flow.set_members(Vec::new());
        for (_, slot) in self.conn.reads.drain() {
            slot.fill(None);
        }
        let heard = reachable.iter().map(|m| m.name.clone()).collect();
        self.shared.host.flight.note(flight::Event::NonPrimary { reachable: heard });
        let own = reachable.iter().position(|m| m.node == self.inc.me.node).unwrap_or(0);
        self.shared.host.log(Level::Info, texts::new_component(false, Some(own), reachable.len()));
        self.publish();
        if self.inc.replicator.is_live() {
            self.shared.monitor.set_last(Some(self.inc.replicator.handed()));
            let view = self.server_view(ViewStatus::NonPrimary, None, &View { number: 0, members: reachable });
            if !self.ending().drops() {
                self.shared.tell_non_primary(view);
            }
        }
    }
}

/// For the flight recorder.
fn failure_words(failure: Failure) -> &'static str {
    match failure {
        Failure::Conflict(_) => "a conflict",
        Failure::LastSeenBelowCut => "it was under way for too long",
        Failure::LastSeenAhead => "it claims to have seen the future",
        Failure::Malformed => "it is no write set",
    }
}

fn level(severity: Severity) -> Level {
    match severity {
        Severity::Error => Level::Error,
        Severity::Warn => Level::Warn,
        Severity::Info => Level::Info,
    }
}
