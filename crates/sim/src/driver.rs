//! A node's group thread under simulated circumstances. It feeds inputs, drains outputs in order, reports syncs later, answers snapshot
//! requests, keeps the database fed, and serves clients.

use std::collections::VecDeque;

use trireme_certification::{KeyKind, WriteSet as Body};
use trireme_order::{
    Append, Content, Delivery, Envelope, Event as GroupEvent, LogStore, Message, Output, Phase, ReadId,
};
use trireme_replicator::applying::begins_behind;
use trireme_replicator::message::AppMessage;
use trireme_replicator::proposals::{Client, ProposalId};
use trireme_replicator::retention::{Needs, needed_from};
use trireme_replicator::{Offer, Position};
use trireme_types::{Durability, EntryKind, Lineage, LogIndex, NodeId, Reader, Seqno, Term, Uuid, VoterSet};

use crate::check::{Delivered, Judged, Outcome, Reach, What};
use crate::cluster::{Asked, Cluster, Errand, Event, Input, Process, Slot, Stop, Sync};
use crate::database::Change;
use crate::faults::lineage_of;
use crate::judge::{Judge, Part, WriteSet};
use crate::net::Payload;
use crate::options::{Kind, MS, SEC, Sabotage};
use crate::proposals::Answer;
use crate::rng::{Rng, hash_bytes, mix};
use crate::situations::Situation;
use crate::throttle::Held;
use crate::upgrades::NEWER;
use crate::values::Values;
use crate::watch::Stage;

/// Outputs of one drain after which a node counts as talking to itself.
const OUTPUTS_MAX: u64 = 200_000;

impl Process {
    /// The lineage of what is delivered.
    fn lineage(&self) -> &Lineage {
        self.former.as_ref().unwrap_or_else(|| self.group.lineage())
    }

    /// The term of an entry that is delivered, if the log that it came from is still there.
    fn delivered_term(&self, index: LogIndex) -> Option<Term> {
        self.group.store().term_at(index).filter(|_| self.former.is_none())
    }

    /// A server takes no clients before it is synced: its data may still turn out to be wrong (rule 28). Nor does one that is left.
    pub fn serves(&self) -> bool {
        self.synced && self.replicator.is_live() && self.comparing.is_none()
    }
}

impl Slot {
    /// Says what landed in the log on which branch. The next input may replace the log, and its lineage with it.
    fn gather_appended(&mut self) {
        let Some(p) = &mut self.process else { return };
        let history = p.group.store().base().history;
        for a in p.group.store_mut().take_appended() {
            self.landed.push((p.group.lineage().branch_at(history, a.index), a));
        }
    }
}

impl Cluster {
    pub(crate) fn step(&mut self, slot: usize, boot: u32) {
        let still = self.slots[slot].stands_still();
        let Some(p) = self.life(slot, boot).filter(|p| p.outage.is_none()) else { return };
        p.step_at = None;
        if still {
            return; // `move_again` schedules the next one.
        }
        let inputs = self.rng.range(1, self.options.step_inputs);
        for _ in 0..inputs {
            let Some(input) = self.life(slot, boot).and_then(|p| p.inbox.pop_front()) else { break };
            self.input(slot, input);
            self.slots[slot].gather_appended();
            if self.failure.is_some() {
                return;
            }
        }
        self.fetch_index(slot, boot);
        if self.failure.is_some() {
            return;
        }
        let now = self.slots[slot].local(self.now);
        if let Some(p) = self.life(slot, boot) {
            if p.group.poll_timeout().is_some_and(|(at, _)| at <= now) || self.rng.chance(0.02) {
                if let Some(p) = self.life(slot, boot) {
                    p.group.handle_timeout(now);
                }
            }
        }
        self.drain(slot, boot);
        if self.life(slot, boot).is_some_and(|p| !p.inbox.is_empty()) {
            self.schedule_step(slot);
        }
    }

    fn input(&mut self, slot: usize, input: Input) {
        let now = self.slots[slot].local(self.now);
        let trace = self.trace;
        let build = |node| self.slot_of(node).map_or(NEWER, |other| self.slots[other].levels);
        let levels = match &input {
            Input::Up { peer, .. } => build(peer.node),
            Input::Down { .. }
            | Input::Message { .. }
            | Input::Synced { .. }
            | Input::Snapshot { .. }
            | Input::Ask(_) => NEWER,
        };
        let Some(p) = &mut self.slots[slot].process else { return };
        match input {
            Input::Up { conn, peer } => {
                // The transport has one connection per peer and knows which one is the newer, however late it hears of it.
                if p.links.get(&peer.node).is_some_and(|newer| *newer > conn) {
                    return;
                }
                p.links.insert(peer.node, conn);
                p.builds.insert(peer.node, levels);
                let text = format!("n{slot} link up {}", peer.name);
                p.group.handle_link_up(now, peer, levels);
                self.log(|| text);
            }
            Input::Down { conn, node } => {
                if p.links.get(&node) == Some(&conn) {
                    p.links.remove(&node);
                    p.builds.remove(&node);
                    p.group.handle_link_down(now, node);
                    let who = self.slot_of(node);
                    self.log(|| format!("n{slot} link down {who:?}"));
                }
            }
            Input::Message { conn, from, payload } => {
                if p.links.get(&from) != Some(&conn) {
                    return;
                }
                let message = match payload {
                    Payload::Plain(m) => m,
                    Payload::Lie(m) => return self.hear_lie(slot, from, m),
                    Payload::Encoded(bytes) => match Message::decode(&bytes) {
                        Ok(m) => m,
                        Err(e) => return self.fail(format!("n{slot}: message does not decode: {e}")),
                    },
                };
                self.note_received(slot, from, &message);
                let Some(p) = &mut self.slots[slot].process else { return };
                if let Message::InTerm(Envelope { term, content: Content::Ack { index, .. }, .. }) = &message {
                    let heard = p.heard.entry(from).or_default();
                    *heard = (*heard).max((*term, *index));
                }
                if trace {
                    let text = format!("{message:?}");
                    let who = self.slot_of(from);
                    self.log(|| format!("n{slot} <- {who:?} {text}"));
                }
                self.check_known(slot, &message);
                if let Some(p) = &mut self.slots[slot].process {
                    p.group.handle_message(now, from, message);
                }
                self.keep_touch(slot, from);
            }
            Input::Synced { generation, upto } => {
                let counts = generation == p.group.store().generation();
                p.group.handle_synced(now, generation, upto);
                if counts {
                    self.note_synced(slot, upto);
                    self.check_mode(slot);
                }
            }
            Input::Snapshot { request, app } => p.group.provide_snapshot(now, request, app),
            Input::Ask(message) => self.say_for_thread(slot, message),
        }
    }

    /// Carries out everything the group wants, then sees to syncs, timers and snapshots.
    pub(crate) fn drain(&mut self, slot: usize, boot: u32) {
        let mut count = 0u64;
        self.check_replay(slot);
        if self.has_promised(slot) {
            self.tempt(slot, Stage::Promise);
        }
        loop {
            let now = self.slots[slot].local(self.now);
            let Some(p) = self.life(slot, boot) else { return };
            if p.group.store().failed() && p.crash_after.is_some() {
                // A death in the middle of a log operation: nothing after it happens.
                return self.die(slot);
            }
            let Some(output) = p.group.poll_output(now) else { break };
            if p.crash_after == Some(0) {
                return self.die(slot);
            }
            if let Some(left) = &mut p.crash_after {
                *left = left.saturating_sub(1);
            }
            let stalls = match &mut p.stall_after {
                Some(0) => {
                    p.stall_after = None;
                    true
                }
                Some(left) => {
                    *left -= 1;
                    false
                }
                None => false,
            };
            count += 1;
            self.outputs += 1;
            if count > OUTPUTS_MAX {
                return self.fail(format!("n{slot}: more than {OUTPUTS_MAX} outputs in one drain"));
            }
            if let Output::Deliver(Delivery::Reset { base }) = &output {
                self.note_log_replaced(slot, base.lineage.branch(base.history), base.index);
            }
            self.output_in_turn(slot, output);
            self.observe_log(slot);
            if self.failure.is_some() {
                return;
            }
            if stalls {
                // The rest is carried out when the write returns.
                self.pause_for_a_while(slot);
                return;
            }
        }
        self.observe_log(slot);
        let Some(p) = self.life(slot, boot) else { return };
        if p.group.store().failed() && p.crash_after.is_some() {
            return self.die(slot);
        }
        match p.stopped.take() {
            None => {}
            Some(Stop::Left) => {
                self.arose(Situation::Left);
                return self.stop(slot);
            }
            Some(Stop::Evicted) => {
                self.arose(Situation::Evicted);
                let me = self.member(slot).uuid();
                if !self.evicted.contains(&me) {
                    self.fail(format!("n{slot} was evicted, and nobody had asked for that"));
                }
                return self.die(slot);
            }
            Some(Stop::Failed(why)) => {
                if self.was_refused(slot, &why) {
                    return self.die(slot);
                }
                if !self.slots[slot].store().failed_for_a_reason() {
                    self.fail(format!("n{slot} failed without a cause: {why}"));
                }
                return self.on_log_failed(slot);
            }
            Some(Stop::Server(_)) => return self.restart_server(slot),
        }
        self.note_suspicion(slot);
        self.settle_doubt(slot);
        self.keep_log(slot);
        self.snapshots(slot, boot);
        self.start_sync(slot, boot);
        self.start_apply(slot, boot);
        self.go_on_writing(slot, boot);
        self.regulate(slot);
        self.schedule_wake(slot, boot);
    }

    /// A record is not whole yet: a piece of it was written in this step, and the next one wakes the process. Each takes its time.
    fn go_on_writing(&mut self, slot: usize, boot: u32) {
        let mean = self.options.piece_mean;
        let Some(p) = self.life(slot, boot) else { return };
        if p.group.store().wants_write_on() {
            let until = self.now + self.rng.exp(mean);
            if let Some(p) = self.life(slot, boot) {
                p.writes_until = until;
            }
        }
    }

    pub(crate) fn die(&mut self, slot: usize) {
        self.crash(slot, false);
        let boot = self.slots[slot].boot;
        let delay = self.rng.exp(self.options.fault_duration);
        self.after(delay, Event::Restart { slot, boot });
    }

    /// The server ends, saying why; it is started again, which takes its time.
    pub(crate) fn restart_server(&mut self, slot: usize) {
        self.crash(slot, false);
        let boot = self.slots[slot].boot;
        let delay = 5 * SEC + self.rng.exp(self.options.fault_duration);
        self.after(delay, Event::Restart { slot, boot });
    }

    fn schedule_wake(&mut self, slot: usize, boot: u32) {
        let Some(p) = self.life(slot, boot) else { return };
        let Some((deadline, _)) = p.group.poll_timeout() else { return };
        let at = self.slots[slot].global(deadline).max(self.now);
        let Some(p) = self.life(slot, boot) else { return };
        if p.wake_at.is_none_or(|w| w > at) {
            p.wake_at = Some(at);
            self.at(at, Event::Wake { slot, boot });
        }
    }

    fn start_sync(&mut self, slot: usize, boot: u32) {
        let factor = self.slots[slot].sync_factor;
        let lazy = self.rng.chance(0.01);
        let early = self.rng.chance(0.5);
        let Some(p) = self.life(slot, boot) else { return };
        if p.sync.is_some() {
            return;
        }
        if p.group.store().failed() {
            // Beside the calls of the group, as in a trim: the node notices when it syncs next.
            if p.group.wants_sync() && p.outage.is_none() && p.group.status().phase != Phase::Failed {
                self.on_log_failed(slot);
            }
            return;
        }
        p.group.store_mut().housekeeping();
        if p.group.store().last() <= p.group.store().synced() || !(p.group.wants_sync() || lazy) {
            return;
        }
        let Some((generation, upto)) = p.group.store_mut().begin_sync(early) else { return };
        let delay = self.sync_time().saturating_mul(factor);
        let due = self.now.saturating_add(delay);
        if let Some(p) = self.life(slot, boot) {
            p.sync = Some(Sync { due, generation, upto });
        }
        self.at(due, Event::Synced { slot, boot });
    }

    fn sync_time(&mut self) -> u64 {
        self.options.sync_min + self.rng.exp(self.options.sync_mean)
    }

    /// The disk stalls no more: what has waited for it is done as soon as anything else would be.
    pub(crate) fn end_sync_stall(&mut self, slot: usize) {
        if std::mem::replace(&mut self.slots[slot].sync_factor, 1) == 1 {
            return;
        }
        let boot = self.slots[slot].boot;
        let due = self.now + self.sync_time();
        let Some(sync) = self.life(slot, boot).and_then(|p| p.sync.as_mut()).filter(|s| s.due > due) else { return };
        sync.due = due;
        self.at(due, Event::Synced { slot, boot });
    }

    fn snapshots(&mut self, slot: usize, boot: u32) {
        let requests = match self.life(slot, boot) {
            Some(p) => std::mem::take(&mut p.snapshots),
            None => return,
        };
        for (request, app) in requests {
            let late = self.rng.chance(0.5);
            let delay = self.rng.exp(20 * MS);
            let now = self.slots[slot].local(self.now);
            let Some(p) = self.life(slot, boot) else { return };
            if late {
                self.after(delay, Event::Snapshot { slot, boot, request, app });
            } else {
                p.group.provide_snapshot(now, request, app);
                self.schedule_step(slot);
            }
        }
    }

    // --- outputs --------------------------------------------------------------------------------------------------

    /// The log begins at `base` from now on, on that branch.
    fn note_log_replaced(&mut self, slot: usize, branch: Uuid, base: LogIndex) {
        self.note_snapshot_arrived(slot);
        self.note_synced(slot, base);
        let s = &mut self.slots[slot];
        let end = s.store().last();
        if let Some((_, upto)) = s.acked.get(&branch).copied().filter(|(_, upto)| *upto > end) {
            // The state ends before the log that it took the place of, which is in doubt from then on (rule 12). The words about that log
            // were true.
            s.held_once = s.held_once.max(upto);
        }
    }

    /// A large write set goes to be judged, and what needs the index then waits for its verdict.
    fn output_in_turn(&mut self, slot: usize, output: Output) {
        let judging = self.judging_time(slot, &output);
        let Some(p) = self.slots[slot].process.as_mut() else { return };
        let needs_index = matches!(output, Output::Deliver(_) | Output::Event(GroupEvent::NeedSnapshot(_)));
        if needs_index && let Some(errand) = &mut p.errand {
            errand.waiting.push_back(output);
        } else if let Some((at, time)) = judging {
            let lineage = p.lineage().clone();
            p.errand = Some(Errand { judges: output, at, done: false, waiting: VecDeque::new(), lineage });
            p.group.pause_delivery(true);
            let boot = p.boot;
            self.after(time, Event::Judged { slot, boot, at });
        } else {
            self.output(slot, output);
        }
    }

    /// Goes on behind a large write set that has been judged.
    fn fetch_index(&mut self, slot: usize, boot: u32) {
        let Some(p) = self.life(slot, boot) else { return };
        let Some(errand) = p.errand.take_if(|errand| errand.done) else { return };
        p.group.pause_delivery(false);
        let is_reset = |output: &Output| matches!(output, Output::Deliver(Delivery::Reset { .. }));
        // Everything before it is of the log that was replaced meanwhile.
        p.former = errand.waiting.iter().any(is_reset).then_some(errand.lineage);
        self.output(slot, errand.judges);
        for output in errand.waiting {
            let Some(p) = self.life(slot, boot) else { return };
            if is_reset(&output) {
                p.former = None;
            }
            if self.failure.is_some() {
                return;
            }
            self.output_in_turn(slot, output);
        }
    }

    /// Where the index goes with this, and how long it is away. The same write sets are large for all nodes. They are not drawn from the run's
    /// stream: the seeds do the same as before there were large ones.
    fn judging_time(&self, slot: usize, output: &Output) -> Option<(LogIndex, u64)> {
        let Output::Deliver(Delivery::WriteSet { index, .. }) = output else { return None };
        let mut r = Rng::new(self.options.seed ^ mix(index.0));
        let large = self.options.large_share > 0.0 && r.chance(self.options.large_share);
        large.then(|| (*index, Rng::new(r.next() ^ slot as u64).exp(self.options.judge_mean)))
    }

    fn output(&mut self, slot: usize, output: Output) {
        match output {
            Output::Send { to, class, message } => {
                if self.trace {
                    let who = self.slot_of(to);
                    let text = format!("n{slot} -> {who:?} {class:?} {message:?}");
                    self.log(|| text);
                }
                self.check_message(slot, to, &message);
                self.note_sent(slot, to, &message);
                self.send(slot, to, class, message);
            }
            Output::Deliver(delivery) => self.deliver(slot, delivery),
            Output::Event(event) => self.event(slot, event),
        }
    }

    fn event(&mut self, slot: usize, event: GroupEvent) {
        self.note_event(slot, &event);
        if self.undisturbed && matches!(event, GroupEvent::NonPrimary { .. } | GroupEvent::ReadFailed { .. }) {
            return self.fail(format!("n{slot}: {event:?} although nothing serious happened"));
        }
        let Some(p) = &mut self.slots[slot].process else { return };
        match event {
            GroupEvent::NonPrimary { .. } => {
                (p.primary, p.synced) = (false, false);
                self.withdraw(slot);
                let Some(p) = &mut self.slots[slot].process else { return };
                if p.replicator.handle_non_primary() {
                    p.non_primary_since = Some(self.now);
                }
                self.arose(Situation::NonPrimary);
                self.set_flow_members(slot);
                self.abort_streams(slot);
            }
            GroupEvent::Left => p.stopped = Some(Stop::Left),
            GroupEvent::ReadAt { read, seqno } => match p.reads.remove(&read) {
                Some(record) => {
                    let (lineage, history) = (p.group.lineage().clone(), p.history);
                    let reader = Reach { history, lineage, seqno: u64::MAX };
                    // The liar may have asked under the number of a later read of its own, and gets the answer too early.
                    let lies = self.lies(slot);
                    let floor = match self.options.branches() {
                        _ if lies => 0,
                        true => self.branches.floor(&reader, record.acks),
                        false => record.floor,
                    };
                    let result = self.clients.read_at(floor, seqno.0);
                    if let Some(p) = self.slots[slot].process.as_mut().filter(|p| p.synced && !lies) {
                        p.waiting_reads.push(Values::wait(seqno.0, reader, record.begun, read.0));
                    }
                    self.read_values(slot);
                    self.check(slot, result);
                }
                None => self.fail(format!("n{slot}: read {read:?} answered twice or never asked")),
            },
            GroupEvent::ReadFailed { read } => {
                if p.reads.remove(&read).is_none() {
                    self.fail(format!("n{slot}: read {read:?} failed twice or never asked"));
                }
                self.clients.reads_failed += 1;
            }
            GroupEvent::DataDiverged => {
                if !self.options.branches() {
                    self.fail(format!("n{slot}: data diverged without a fork"));
                }
                self.arose(Situation::DataDiscarded);
                let Some(p) = &mut self.slots[slot].process else { return };
                p.replicator.handle_diverged();
                self.slots[slot].db.invalidate();
                if self.options.is_arbitrator(slot) {
                    // It has no data. But its clients' write sets count as applied in their order, and another order begins.
                    self.slots[slot].db.forget_order();
                }
                self.with_group(slot, |g, now| g.data_discarded(now));
                self.carry_out(slot);
            }
            GroupEvent::EngineAwaited { app } => {
                if let Err(error) = p.replicator.handle_engine_awaited(&app) {
                    return self.fail(format!("n{slot}: a state that waits cannot be read: {error}"));
                }
                self.carry_out(slot);
            }
            GroupEvent::Found { history } => {
                p.replicator.handle_found(history);
                self.begin_history(slot, history);
                if let Some(Err(e)) = self.with_group(slot, |g, now| g.bootstrap(now, history, Seqno(0))) {
                    if let Some(p) = &mut self.slots[slot].process {
                        p.stopped = Some(Stop::Failed(e));
                    }
                }
            }
            GroupEvent::Signal { from, body } => self.hear_signal(slot, from, &body),
            GroupEvent::NeedSnapshot(request) => {
                if request.at < p.last_index {
                    let text = format!("n{slot}: snapshot wanted at {} after delivery of {}", request.at, p.last_index);
                    return self.fail(text);
                }
                let state = p.state();
                p.snapshots.push((request, state));
            }
            GroupEvent::TermChanged { .. } => self.terms += 1,
            GroupEvent::Silent { .. } => {}
            GroupEvent::Refuse { node, refused } => self.on_refuse(slot, node, refused),
            GroupEvent::Evicted => p.stopped = Some(Stop::Evicted),
            GroupEvent::Log { .. } => {}
            GroupEvent::Failed(why) => p.stopped = Some(Stop::Failed(why.into())),
        }
    }

    fn deliver(&mut self, slot: usize, delivery: Delivery) {
        if self.trace {
            let text = format!("n{slot} delivers {delivery:?}");
            self.log(|| text);
        }
        let node = self.slots[slot].node;
        match delivery {
            Delivery::Reset { base } => {
                let incarnation = self.slots[slot].incarnation;
                let Some(p) = &mut self.slots[slot].process else { return };
                let position = Position { history: base.history, seqno: base.seqno };
                p.kept.clear();
                // Otherwise what was delivered is delivered once more.
                let reaches = base.index >= p.replicator.heard_upto();
                let rest =
                    p.replicator.handle_reset(position, base.lineage.branch(base.history), base.level, &base.app);
                let judge = match rest.and_then(Judge::decode) {
                    Ok(mut judge) => {
                        if base.app.is_empty() {
                            // The verdicts below are not known: nobody may rely on them.
                            judge.purge(base.seqno);
                        }
                        judge
                    }
                    Err(e) => return self.fail(format!("n{slot}: base carries no state: {e}")),
                };
                let chain = judge.chain;
                p.judge = judge;
                p.history = base.history;
                p.last_index = base.index;
                p.last_seqno = base.seqno;
                p.delivering = !base.history.is_nil();
                // Views may be among what is skipped.
                p.primary = base.view.get(node).is_some_and(|m| m.incarnation.0 == incarnation);
                p.view = Some(base.view.clone());
                self.set_flow_members(slot);
                self.carry_out(slot);
                self.reset_proposals(slot, &base);
                if reaches {
                    self.end_skipped_votes(slot);
                }
                if base.history.is_nil() {
                    return;
                }
                self.watch.forked |= base.lineage.newest().is_some();
                let result = self.histories.reset(base.history, base.index, base.seqno, chain);
                if !self.options.branches() {
                    self.check(slot, result);
                }
            }
            Delivery::WriteSet { index, seqno, session, number, body } => {
                let parsed = Body::parse(body.clone()).and_then(|b| Ok((WriteSet::decode(&b)?, b)));
                let (ws, parsed) = match parsed {
                    Ok(both) => both,
                    Err(e) => return self.fail(format!("n{slot}: body at {index} is not what a client wrote: {e}")),
                };
                if !self.in_order(slot, index, seqno.0, true) {
                    return;
                }
                if self.clients.outcome(ws.op) == Some(Outcome::Withdrawn) {
                    // This holds for every branch: also where nobody can say what a run promised.
                    return self.fail(format!("n{slot}: operation {} was withdrawn, yet is ordered at {seqno}", ws.op));
                }
                let ignored = self.options.sabotage == Some(Sabotage::IsolationIgnored) && ws.part == Part::Isolated;
                let origin = parsed.head().origin;
                let certified = if ignored { ws.shared(origin) } else { parsed };
                let Some(p) = &mut self.slots[slot].process else { return };
                let (full, verdict) = p.judge.certify(seqno, session, &certified, ws.part);
                let hash = Judge::hash_of(session, number, &body, Some(&full));
                p.judge.link(index, seqno, hash);
                let chain = p.judge.chain;
                if session.node == node {
                    p.proposals.session_begun(session.number);
                    self.settle_proposals(slot);
                }
                let Some(p) = &mut self.slots[slot].process else { return };
                if let Some(throttle) = &mut p.throttle {
                    throttle.count(session.node == node);
                }
                let id = (session.node == node).then(|| ProposalId::from((session, number)));
                let own = id.and_then(|id| p.proposals.write_set_ordered(id));
                let history = p.history;
                let what = What::WriteSet { session, number, op: ws.op, part: ws.part, origin, verdict };
                if self.record(slot, Delivered { index, seqno, what, chain }) {
                    let keys: Vec<u16> = ws.keys.iter().map(|k| k.0).collect();
                    let judged = Judged {
                        seqno: seqno.0,
                        session,
                        part: ws.part,
                        last_seen: ws.last_seen,
                        keys: &keys,
                        ok: full.ok(),
                        depends_on: full.depends_on,
                    };
                    let result = self.isolation.entry(history).or_default().judged(&judged);
                    self.check(slot, result);
                }
                let lineage = self.lineage_at(slot, index);
                let Some(p) = &mut self.slots[slot].process else { return };
                let offer = p.replicator.handle_ordered(index, seqno, own.is_some());
                let certified = full.ok().then_some(full.depends_on);
                let behind = begins_behind(seqno, certified, Seqno(ws.last_seen), self.options.optimistic);
                let mut change = Change::of(&ws, seqno.0, behind.0, hash, lineage.clone(), verdict);
                if matches!(ws.part, Part::Whole | Part::Isolated) && verdict {
                    change.fails = self.error_of(slot, ws.op, ws.part);
                    if change.fails.is_some() && self.options.statements_fail_alike {
                        // A vote that finds no majority in time counts it as a success.
                        self.values.no_effect(ws.op);
                    }
                }
                match own {
                    Some(own) => {
                        if let Some(p) = &mut self.slots[slot].process {
                            let live = p.replicator.is_live();
                            if !live && p.replicator.serves() {
                                self.situations.arose(Situation::OrderedUnfed);
                            }
                            let early = self.options.sabotage == Some(Sabotage::AnsweredEarly);
                            p.proposals.answer(own, Answer { index, change: change.clone(), verdict }, live || early);
                        }
                        if self.options.sabotage == Some(Sabotage::ExecutedTwice) {
                            self.feed(slot, Offer::Hand, change);
                        }
                        self.settle_proposals(slot);
                    }
                    None => {
                        self.feed(slot, offer, change);
                        if session.node == node && ws.part == Part::Rollback {
                            self.own_part(slot, ws.op, ws.part, seqno.0, verdict);
                        }
                    }
                }
            }
            Delivery::App { index, seqno, session, number, body } => {
                if !self.in_order(slot, index, seqno.0, false) {
                    return;
                }
                let message = match AppMessage::decode(&body) {
                    Ok(message) => message,
                    Err(e) => return self.fail(format!("n{slot}: message at {index} is not what was sent: {e}")),
                };
                if let AppMessage::Lagging { .. } = &message {
                    self.arose(Situation::Laggard);
                }
                self.check_known_in_order(slot, &message);
                if let AppMessage::Evict { member } = &message {
                    self.evicted.insert(*member);
                }
                if message == AppMessage::GoOnHalfDone {
                    // The one that it lets go on may die before that.
                    self.watch.overtaken = self.watch.overtaken.max(seqno.0);
                }
                let branch = self.branch(slot);
                let now = self.slots[slot].local(self.now);
                let Some(p) = &mut self.slots[slot].process else { return };
                if session.node == node {
                    p.proposals.session_begun(session.number);
                    self.settle_proposals(slot);
                }
                let Some(p) = &mut self.slots[slot].process else { return };
                p.replicator.note_branch(branch);
                p.replicator.handle_message(now, index, seqno, session.node, message);
                self.carry_out(slot);
                let Some(p) = &mut self.slots[slot].process else { return };
                p.judge.link(index, seqno, Judge::hash_of(session, number, &body, None));
                let chain = p.judge.chain;
                if session.node == node {
                    p.proposals.message_ordered((session, number).into());
                    self.settle_proposals(slot);
                }
                self.record(slot, Delivered { index, seqno, what: What::App { session, number }, chain });
            }
            Delivery::Level { index, level } => {
                if let Some(p) = &mut self.slots[slot].process {
                    p.replicator.handle_level(level);
                }
                self.check_level(slot, index, level);
            }
            Delivery::View { index, seqno, view } => {
                if self.undisturbed {
                    return self.fail(format!("n{slot}: a view although nothing serious happened: {view:?}"));
                }
                if !self.in_order(slot, index, seqno.0, true) {
                    return;
                }
                let incarnation = self.slots[slot].incarnation;
                let mut w = trireme_types::Writer::new();
                view.encode(&mut w);
                let hash = hash_bytes(3, &w.buf);
                let Some(p) = &mut self.slots[slot].process else { return };
                p.judge.view(seqno);
                let before = p.judge.streams();
                if self.options.sabotage != Some(Sabotage::StreamsKept) {
                    p.judge.end_streams(&view);
                }
                let open = p.judge.streams();
                let ended: Vec<u64> = before.difference(&open).copied().collect();
                p.judge.link(index, seqno, hash);
                if !ended.is_empty() {
                    self.situations.arose(Situation::StreamsEnded);
                }
                let chain = p.judge.chain;
                p.primary = view.get(node).is_some_and(|m| m.incarnation.0 == incarnation);
                if p.primary {
                    p.non_primary_since = None;
                }
                p.view = Some(view.clone());
                let history = p.history;
                self.set_flow_members(slot);
                let ordered = view.clone();
                if self.record(slot, Delivered { index, seqno, what: What::View(view), chain }) {
                    let result = self.histories.compare_streams(history, &open);
                    self.check(slot, result);
                }
                let lineage = self.lineage_at(slot, index);
                let branch = self.branch(slot);
                let now = self.slots[slot].local(self.now);
                let Some(p) = &mut self.slots[slot].process else { return };
                p.replicator.note_branch(branch);
                let offer = p.replicator.handle_view(now, index, seqno, &ordered);
                self.feed(slot, offer, Change::view(seqno.0, mix(hash), lineage, ended));
                self.carry_out(slot);
            }
        }
    }

    /// Indexes rise and seqnos are dense on each node, whatever other nodes say.
    fn in_order(&mut self, slot: usize, index: LogIndex, seqno: u64, takes_seqno: bool) -> bool {
        let Some(p) = &mut self.slots[slot].process else { return false };
        let due = p.last_seqno.0 + u64::from(takes_seqno);
        let text = if !p.delivering {
            format!("n{slot}: delivery before the base")
        } else if index <= p.last_index {
            format!("n{slot}: delivers index {index} after {}", p.last_index)
        } else if seqno != due {
            format!("n{slot}: delivers seqno {seqno} at {index}, due was {due}")
        } else {
            p.last_index = index;
            p.last_seqno.0 = seqno;
            self.note_delivered(slot, index);
            return true;
        };
        self.fail(text);
        false
    }

    /// The forks that led to this entry of the log in this place.
    pub(crate) fn lineage_at(&self, slot: usize, index: LogIndex) -> Lineage {
        let Some(p) = self.slots[slot].process.as_ref() else { return Lineage::default() };
        p.lineage().forks().iter().copied().filter(|fork| fork.index <= index).collect()
    }

    /// The past of the member in this place up to `seqno`, with all forks that it knows, those behind that as well.
    pub(crate) fn past(&self, slot: usize, seqno: u64) -> Reach {
        let Some(p) = self.slots[slot].process.as_ref() else { return Reach::default() };
        Reach { history: p.history, lineage: p.lineage().clone(), seqno }
    }

    /// Is this the first delivery of the entry in the one history? (Where histories may fork, nobody can say.)
    fn record(&mut self, slot: usize, delivered: Delivered) -> bool {
        let Some(p) = self.slots[slot].process.as_ref() else { return false };
        let history = p.history;
        if self.options.branches() {
            let branch = p.lineage().branch(history);
            if let Some(term) = p.delivered_term(delivered.index) {
                self.losses.delivered(branch, delivered.index, term);
            }
            let first = self.branches.deliver(branch, &delivered);
            if let (Ok(true), What::WriteSet { op, part, verdict, .. }) = (&first, &delivered.what) {
                if part.decides(*verdict) {
                    let at = self.past(slot, delivered.seqno.0);
                    self.branches.decided(*op, at, *verdict);
                }
            }
            self.check(slot, first.map(drop));
            self.check_held(slot, delivered.index);
            return false;
        }
        match self.histories.deliver(history, &delivered) {
            Ok(true) => {
                self.check_held(slot, delivered.index);
                true
            }
            Ok(false) => false,
            Err(text) => {
                self.fail(format!("n{slot}: {text}"));
                false
            }
        }
    }

    fn feed(&mut self, slot: usize, offer: Offer, change: Change) {
        let s = &mut self.slots[slot];
        let Some(p) = &mut s.process else { return };
        match offer {
            Offer::Keep => p.kept.push_back(change),
            Offer::Hand => s.db.queue.push_back(change),
            Offer::Skip | Offer::Pass => {}
        }
    }

    // --- what the log must say about a delivery ---------------------------------------------------------------------

    /// The first delivery of an entry: by now a majority of its voters holds it, in the way the durability setting demands.
    fn check_held(&mut self, slot: usize, index: LogIndex) {
        let Some(term) = self.slots[slot].process.as_ref().and_then(|p| p.delivered_term(index)) else { return };
        let store = self.slots[slot].store();
        let branch = lineage_of(store).branch_at(store.base().history, index);
        if !self.logs.delivered(branch, term, index) {
            // The branches that begin behind an entry have it in common. The member that delivered it first may be elsewhere now.
            return;
        }
        let on_disk = self.durability_at(slot, index) == Durability::Disk;
        if let Some(who) = self.no_majority_holds(slot, index, on_disk) {
            self.fail(format!(
                "n{slot} delivers index {index} of term {term}, which no majority of its voters holds{}: {who}",
                if on_disk { " on disk" } else { "" }
            ));
        }
    }

    /// Does a majority of its voters hold this entry of the log in this place? If not: who does, for the text of a failure.
    fn no_majority_holds(&self, slot: usize, index: LogIndex, on_disk: bool) -> Option<String> {
        let store = self.slots[slot].store();
        let (term, lineage) = (store.term_at(index)?, lineage_of(store));
        // Where all voters have said what is left, or somebody was forced, the branch that begins with it decides on what nobody has
        // delivered before. The newest one: those before it may be given up by now.
        let behind = || lineage.forks().iter().filter(|fork| index < fork.index);
        let voters = voters_at(store, behind().next_back().map_or(index, |fork| fork.index))?;
        let branch = lineage.branch_at(store.base().history, index);
        let holds_on = |disk: &Slot| {
            let store = disk.store();
            // Nor can entries be seen that lay above here, before the power failed or bits flipped, or where a copy was put now.
            if disk.doubt.as_ref().is_some_and(|doubt| index > doubt.kept) || index <= disk.held_once {
                return true;
            }
            // Index and term name an entry within a branch only.
            if self.watch.forked && lineage_of(store).branch_at(store.base().history, index) != branch {
                // Its log went over to another branch, and what it held is gone with that: there is its word, which was true when it was
                // said. One that ordered may have said nothing to anybody.
                let held = |on: Uuid| {
                    let acked = disk.acked.get(&on).is_some_and(|(of, upto)| *of >= term && *upto >= index);
                    acked || self.logs.has_led(on, term, disk.node)
                };
                return held(branch) || behind().any(|fork| held(fork.id));
            }
            let safe = if on_disk { store.synced().min(store.written()) } else { store.written() };
            let held = store.term_at(index) == Some(term) && safe >= index;
            held || store.base().index >= index
        };
        let holds = |node: NodeId| {
            // A disk that was replaced held what it acknowledged, but that can no longer be seen. One that was cloned is there twice.
            let mut disks = self.slots.iter().filter(|s| s.node == node).peekable();
            disks.peek().is_none() || disks.any(holds_on)
        };
        if voters.majority(holds) {
            return None;
        }
        let name = |node| self.slot_of(node).map_or("?".into(), |slot| format!("n{slot}"));
        let who = voters.voters.iter().map(|v| format!("{}: {}", name(v.node), holds(v.node)));
        Some(who.collect::<Vec<_>>().join(", "))
    }

    /// The log of a server goes on from what its engine has on disk, so that what a crash takes from the engine can be replayed (rule 32).
    pub(crate) fn check_replay(&mut self, slot: usize) {
        let s = &self.slots[slot];
        let Some(p) = s.process.as_ref().filter(|p| p.replicator.serves() && s.db.valid) else { return };
        let (base, on_disk) = (p.group.store().base(), s.db.on_disk());
        // Data that end below it are of no use with it, and are replaced.
        let goes_on = s.holds().is_some_and(|(history, at)| history == base.history && at >= base.seqno.0);
        if goes_on && base.seqno > p.opened_at && on_disk.history == base.history && on_disk.position < base.seqno.0 {
            let (begins, has) = (base.seqno, on_disk.position);
            match &mut self.slots[slot].process {
                // Its engine gets nowhere before it knows the outcome, which only the next log may tell. So that one comes all the same.
                Some(p) if p.voting.is_some_and(|at| at <= begins) => p.opened_at = begins,
                Some(_) | None => self.fail(format!(
                    "n{slot}: its log begins behind {begins}, and its engine has no more than {has} on disk"
                )),
            }
        }
    }

    /// The promises of a message must be true of the sender's disk.
    fn check_message(&mut self, slot: usize, to: NodeId, message: &Message) {
        let node = self.slots[slot].node;
        if self.options.is_arbitrator(slot) {
            let result = arbitrates(message, self.slot_of(to).and_then(|to| self.slots[to].says_it_holds()));
            self.check(slot, result);
            if matches!(message, Message::Snapshot { .. }) {
                self.arose(Situation::DroppedInData);
            }
        }
        let store = self.slots[slot].store();
        let hard = store.hard_state();
        let Message::InTerm(Envelope { branch, term, content }) = message else { return };
        let result = match content {
            Content::Append(_) | Content::Heartbeat(_) => {
                if *term > hard.term {
                    Err(format!("orders in term {term}, which is not on its disk ({hard:?})"))
                } else {
                    let new = self.logs.sequenced(*branch, *term, node);
                    if new == Ok(true) {
                        self.situations.arose(Situation::Election);
                        if self.options.is_arbitrator(slot) {
                            self.situations.arose(Situation::ArbitratorLeads);
                        }
                    }
                    new.map(drop)
                }
            }
            Content::Ack { index } => self.check_ack(slot, *term, *index),
            Content::VoteReply { granted: true, .. } => {
                if hard.term > *term || (hard.term == *term && hard.voted_for() == to) {
                    Ok(())
                } else {
                    Err(format!("grants {to} a vote in term {term} that is not on its disk ({hard:?})"))
                }
            }
            _ => Ok(()),
        };
        self.check(slot, result);
    }

    /// An acknowledgement covers entries that are written. On the sender's disk are those that were ordered in mode `disk`, and in either
    /// mode the changes of the voters and the first entries of terms (rules 2, 15, 16).
    fn check_ack(&self, slot: usize, term: Term, index: LogIndex) -> Result<(), String> {
        let store = self.slots[slot].store();
        let (hard, base) = (store.hard_state(), store.base().index);
        let (written, synced) = (store.written().max(base), store.synced().max(base));
        if term > hard.term {
            return Err(format!("acknowledges in term {term}, which is not on its disk ({hard:?})"));
        }
        if term < hard.term || index <= synced.min(written) {
            return Ok(());
        }
        if index > written {
            return Err(format!("acknowledges {index}, written is its log up to {written}"));
        }
        let says = format!("acknowledges {index} in term {term}, durable is only {synced}");
        if store.term_at(index) != store.term_at(synced) {
            return Err(format!("{says}, and a term begins behind that"));
        }
        if let Some(at) = voters_index(store, index).filter(|at| *at > synced) {
            return Err(format!("{says}, and the voters change at {at}"));
        }
        match self.newest_in_mode_disk(slot, index).filter(|at| *at > synced) {
            Some(at) if !self.is_decided_on_disk(slot, at) => Err(format!("{says}, and {at} was ordered in mode disk")),
            Some(_) | None => Ok(()),
        }
    }

    /// May the member in this place go without a sync of its own for this entry, which was ordered in mode `disk`? If that mode has ended
    /// behind it, and enough others have it on disk: then it is committed, and nothing rests on this disk. So it stays when the mode is
    /// switched back to `disk` behind that: what is said now may have been acknowledged before that switch came.
    fn is_decided_on_disk(&self, slot: usize, index: LogIndex) -> bool {
        self.leaves_disk_behind(slot, index) && self.no_majority_holds(slot, index, true).is_none()
    }

    fn observe_log(&mut self, slot: usize) {
        self.slots[slot].gather_appended();
        for (branch, a) in std::mem::take(&mut self.slots[slot].landed) {
            let first = self.logs.appended(branch, a);
            self.note_appended(slot, branch, a, first == Ok(true));
            self.check(slot, first.map(drop));
        }
    }

    // --- the database -----------------------------------------------------------------------------------------------

    /// Appliers begin with what they may.
    pub(crate) fn start_apply(&mut self, slot: usize, boot: u32) {
        let Some(p) = self.life(slot, boot).filter(|p| p.comparing.is_none()) else { return };
        let server = p.server;
        let free = self.options.sabotage == Some(Sabotage::DependsOnIgnored);
        let db = &mut self.slots[slot].db;
        let begun = match db.begin_some(self.options.appliers, free) {
            Ok(begun) => begun,
            Err(text) => return self.fail(format!("n{slot}: {text}")),
        };
        if !begun.is_empty() && db.running() > 1 {
            self.situations.arose(Situation::AppliedTogether);
        }
        for seqno in begun {
            self.applying(slot, server, seqno);
        }
    }

    /// The work on `seqno` is done, and it is committed when its turn comes.
    pub(crate) fn applied(&mut self, slot: usize, server: u32, seqno: u64) {
        let s = &mut self.slots[slot];
        let Some(p) = s.process.as_ref().filter(|p| p.server == server) else { return };
        let boot = p.boot;
        if s.paused || p.outage.as_ref().is_some_and(|o| o.holds_up) {
            return self.after(10 * MS, Event::Applied { slot, server, seqno });
        }
        if !s.db.is_running(seqno) {
            // Its data were replaced.
            return;
        }
        if s.db.in_statement() && self.dies_in_statement(slot) {
            return;
        }
        let db = &mut self.slots[slot].db;
        db.finish(seqno);
        if !db.may_commit() {
            self.arose(Situation::AppliedAhead);
        }
        while self.failure.is_none() && self.slots[slot].db.may_commit() && self.commit_next(slot) {}
        self.backlog_sinks(slot);
        self.keep_log(slot);
        self.start_apply(slot, boot);
    }

    /// The next one is committed. `false`: not now.
    fn commit_next(&mut self, slot: usize) -> bool {
        if self.gives_way(slot) || !self.passes_vote(slot) {
            return false;
        }
        self.end_changes(slot);
        match self.slots[slot].db.apply_one(self.options.db_flush) {
            Ok(done) => {
                self.wake_waiting(slot);
                self.release_held_back(slot);
                self.read_values(slot);
                self.settle_vote(slot);
                self.donate(slot);
                done
            }
            Err(text) => {
                self.fail(format!("n{slot}: {text}"));
                false
            }
        }
    }

    /// Drops entries from the log that nobody needs, as a node does. In a harmless run entries that a linked member has not received are
    /// kept at any cost: that members have to live without them is a fault of its own.
    pub(crate) fn keep_log(&mut self, slot: usize) {
        let options = &self.options;
        let kept_for_members = if options.kind == Kind::Harmless { u64::MAX } else { options.kept_for_members };
        let arbitrates = options.is_arbitrator(slot);
        let Some(p) = &self.slots[slot].process else { return };
        let log = p.group.store();
        let excess = log.excess();
        // Until the server's position is known nothing says what it will need.
        if excess == 0 || !p.replicator.is_live() {
            return;
        }
        let own = self.own_need(slot, p);
        let (_, some) = p.group.held_by_servers();
        let members = (excess <= kept_for_members).then(|| p.group.held_by_members().next());
        let needs = Needs { own, members, absent: p.absent.hold().map(LogIndex::next) };
        let (mut keep_from, _) = needs.keep_from();
        if arbitrates && log.last().0 - log.base().index.0 > options.arbitrator_keep {
            // Its bound; never entries that no server has.
            keep_from = keep_from.max(some.next());
        }
        if let Some(p) = &mut self.slots[slot].process {
            p.group.store_mut().trim(keep_from);
        }
    }

    /// The first entry that the node itself may need. For an arbitrator: that a server may lack.
    pub(crate) fn own_need(&self, slot: usize, p: &Process) -> LogIndex {
        let committed = Seqno(self.slots[slot].db.now.position);
        let arbitrates = self.options.is_arbitrator(slot);
        let upto = match () {
            () if arbitrates => p.last_seqno,
            () if self.options.sabotage == Some(Sabotage::TrimmedInMemory) => committed.min(p.last_seqno),
            () => p.engine.upto(),
        };
        let log = p.group.store();
        let from = needed_from(upto, log.base(), log.last(), |seqno| log.index_of(seqno));
        if arbitrates { from.min(p.group.held_by_servers().0.next()) } else { from }
    }

    pub(crate) fn flush(&mut self, slot: usize, boot: u32) {
        if self.life(slot, boot).is_none() {
            return;
        }
        if !self.slots[slot].paused {
            self.slots[slot].db.flush();
            self.keep_log(slot);
        }
        let delay = MS + self.rng.exp(self.options.db_flush_mean);
        self.after(delay, Event::Flush { slot, boot });
    }

    // --- clients ----------------------------------------------------------------------------------------------------

    pub(crate) fn client(&mut self) {
        if self.operations_left == 0 {
            return;
        }
        self.operations_left -= 1;
        let delay = self.rng.exp(self.options.client_mean);
        self.after(delay, Event::Client);
        let up: Vec<usize> = (0..self.slots.len())
            .filter(|&i| self.slots[i].process.is_some() && !self.slots[i].stands_still())
            .collect();
        let Some(&slot) = self.rng.pick(&up) else { return };
        if self.slots[slot].process.as_ref().is_some_and(|p| p.comparing.is_some()) {
            // Nobody gets into a server that is still being started.
            return;
        }
        if self.rng.chance(self.options.read_share) {
            self.read(slot);
        } else if self.rng.chance(self.options.app_share) {
            // Every later write set of this node will have seen at least this.
            let seqno = Seqno(self.slots[slot].db.now.position);
            self.propose_app(slot, AppMessage::LastCommitted { seqno });
        } else if self.rng.chance(self.options.signal_share) {
            self.with_group(slot, |g, _| g.signal(bytes::Bytes::from_static(b"signal")));
        } else if self.options.stream_share > 0.0 && self.rng.chance(self.options.stream_share) {
            self.stream(slot);
        } else {
            let burst = if self.rng.chance(0.1) { self.rng.range(2, 10) } else { 1 };
            for _ in 0..burst {
                self.write(slot);
            }
        }
    }

    /// A client commits a transaction on `slot`, or a statement in isolation; the operation's number.
    pub fn write(&mut self, slot: usize) -> u64 {
        let isolated = self.options.isolated_share > 0.0 && self.rng.chance(self.options.isolated_share);
        if self.options.think_mean > 0 && !isolated {
            return self.begin_trx(slot);
        }
        let op = self.clients.begin();
        let part = if isolated { Part::Isolated } else { Part::Whole };
        if !self.submit(slot, op, part) {
            if self.undisturbed {
                self.fail(format!("n{slot}: refuses a write set although nothing serious happened"));
            }
            self.clients.refused(op);
        }
        op
    }

    /// Sends a part of an operation; `false` when it was refused.
    pub(crate) fn submit(&mut self, slot: usize, op: u64, part: Part) -> bool {
        // A commit that is not to happen is told at once.
        let held = part != Part::Rollback && self.is_held_back(slot, Held::Part(op, part));
        held || self.send_now(slot, op, part)
    }

    /// The same, past flow control.
    pub(crate) fn send_now(&mut self, slot: usize, op: u64, part: Part) -> bool {
        let keys = self.draw_keys();
        let keys = self.free_keys(slot, op, part, keys);
        let sent = self.send_part(slot, op, part, &keys);
        if sent {
            self.begin_changes(slot, op, part, &keys);
        }
        sent
    }

    pub(crate) fn draw_keys(&mut self) -> Vec<(u16, KeyKind)> {
        let draw = |r: &mut Rng, of| (r.below(of) as u16, KeyKind::ALL[r.below(4) as usize]);
        (0..self.rng.range(0, 3)).map(|_| draw(&mut self.rng, self.options.keys)).collect()
    }

    /// Hands it to the order; `false` when it was refused.
    pub(crate) fn send_part(&mut self, slot: usize, op: u64, part: Part, keys: &[(u16, KeyKind)]) -> bool {
        let origin = self.member(slot).uuid();
        let pieced = self.options.pieced_share > 0.0 && self.rng.chance(self.options.pieced_share);
        let padding = if pieced {
            self.rng.range(1, self.options.piece_bytes as u64 * self.options.pieces_max)
        } else {
            self.rng.below(self.options.body_bytes + 1)
        };
        let last_seen = self.slots[slot].db.now.position;
        let serving = self.slots[slot].process.as_ref().is_some_and(Process::serves);
        let body = WriteSet { op, part, last_seen, keys: keys.to_vec(), padding }.encode(origin);
        if part == Part::Rollback {
            return self.send_rollback(slot, body);
        }
        let answer = if serving { self.with_group(slot, |g, now| g.propose(now, body)) } else { None };
        let Some(Ok((session, number))) = answer else { return false };
        self.log(|| format!("n{slot} proposes {part:?} of operation {op} as {}:{number}", session.number));
        if session.node != self.slots[slot].node {
            self.fail(format!("n{slot}: session of another node"));
        }
        if let Some(p) = &mut self.slots[slot].process {
            let client = Client { waiter: Asked { op, part }, patient: part.is_patient() };
            p.proposals.sent((session, number).into(), client);
        }
        if part == Part::Isolated {
            self.break_behind_statement(slot);
        }
        true
    }

    pub fn read(&mut self, slot: usize) {
        self.next_read += 1;
        let id = ReadId(self.next_read);
        let record = self.clients.begin_read(self.branches.acks(), self.now);
        let sits_out = self.sits_out(slot);
        let Some(p) = &mut self.slots[slot].process else { return };
        if sits_out {
            self.clients.reads_failed += 1;
            return;
        }
        p.reads.insert(id, record);
        self.with_group(slot, |g, now| g.read(now, id));
    }

    /// An operator sets the durability on one member.
    pub fn set_durability(&mut self, slot: usize, to: Durability) {
        if self.with_group(slot, |g, now| g.set_durability(now, to)).is_some()
            && let Some(p) = &mut self.slots[slot].process
        {
            p.durability = to;
        }
    }

    /// Without a majority for too long: the group thread gives up what is undecided.
    pub(crate) fn look_at_patience(&mut self, slot: usize) {
        let patience = self.options.non_primary_patience;
        let Some(p) = &mut self.slots[slot].process else { return };
        if p.non_primary_since.take_if(|since| self.now > *since + patience).is_some() && self.abandon(slot) {
            self.arose(Situation::PatienceOver);
        }
    }

    /// A state waits for the engine for too long: clients are told not to wait for what the engine may wait for. The state is taken if an applier waits
    /// for the result of a vote.
    pub(crate) fn look_at_engine_patience(&mut self, slot: usize) {
        let patience = self.options.non_primary_patience;
        let now = self.now;
        let Some(p) = &mut self.slots[slot].process else { return };
        let Some(upto) = p.group.state_awaits_engine() else {
            p.engine_awaited_since = None;
            return;
        };
        let since = *p.engine_awaited_since.get_or_insert(now);
        if now > since + patience {
            p.engine_awaited_since = None;
            self.abandon(slot);
            let Some(p) = &self.slots[slot].process else { return };
            if p.ballots.waiting().any(|seqno| seqno <= upto) {
                self.with_group(slot, |group, now| group.note_engine_stuck(now));
            }
        }
    }

    /// The group thread gives up what is undecided, and begins a new session in the same step. So nothing is given up while it stands still.
    /// Clients are told that the outcome of what they sent is open, unless they wait however long it takes. A node does so without a
    /// majority only; as a fault it comes at any time. Says whether there was anything.
    pub fn abandon(&mut self, slot: usize) -> bool {
        if self.slots[slot].stands_still() {
            return false;
        }
        let Some(p) = self.slots[slot].process.as_mut().filter(|p| p.outage.is_none()) else { return false };
        if p.proposals.is_empty() {
            return false;
        }
        // A new session is certified against the operations that are given up. One that was ordered before goes on to its commit, and holds
        // its rows until then.
        p.group.abandon_pending();
        p.replicator.handle_abandoned();
        p.proposals.give_up();
        let waits_on = p.proposals.clients().any(|asked| asked.part == Part::Isolated);
        self.arose(Situation::GivenUp);
        if waits_on {
            self.arose(Situation::StatementWaits);
        }
        self.settle_proposals(slot);
        self.schedule_step(slot);
        true
    }

    /// Does a client in this place wait for the outcome of this operation?
    pub fn waits_for(&self, slot: usize, op: u64) -> bool {
        self.slots[slot].process.as_ref().is_some_and(|p| p.is_busy_with(op))
    }

    /// Does the server in this place wait for the outcome of a vote?
    pub fn is_voting(&self, slot: usize) -> bool {
        self.slots[slot].process.as_ref().is_some_and(|p| p.voting.is_some())
    }

    pub fn is_primary(&self, slot: usize) -> bool {
        self.slots[slot].process.as_ref().is_some_and(|p| p.primary && p.group.status().phase == Phase::Primary)
    }

    pub fn view_size(&self, slot: usize) -> usize {
        self.slots[slot].process.as_ref().and_then(|p| p.view.as_ref()).map_or(0, |v| v.members.len())
    }
}

/// The rights of an arbitrator: it begins terms, and forces one if it is told to. It gives a state only to a server whose `data` hold the
/// beginning of that state, or will when what was delivered is applied (rule 14).
fn arbitrates(message: &Message, data: Option<(Uuid, u64)>) -> Result<(), String> {
    match message {
        Message::Snapshot { base, .. } if data.is_some_and(|(of, at)| of == base.history && at >= base.seqno.0) => {
            Ok(())
        }
        Message::Snapshot { base, .. } => Err(format!("an arbitrator gives a state without data, at {}", base.index)),
        Message::InTerm(Envelope { term, content: Content::Append(Append { entries, .. }), .. }) => {
            let own =
                entries.iter().find(|(h, _)| h.term == *term && !matches!(h.kind, EntryKind::Term | EntryKind::Voters));
            own.map_or(Ok(()), |(h, _)| Err(format!("an arbitrator orders {:?} at {}", h.kind, h.index)))
        }
        _ => Ok(()),
    }
}

/// The voters whose majority commits `index`, as the log itself says.
pub(crate) fn voters_at(store: &impl LogStore, index: LogIndex) -> Option<VoterSet> {
    voters_of(store, voters_index(store, index)?)
}

/// Where the set stands that is the newest one at `index`.
pub(crate) fn voters_index(store: &impl LogStore, index: LogIndex) -> Option<LogIndex> {
    let header = store.read(index, 0).ok()?.into_iter().next()?.header;
    Some(if header.kind == EntryKind::Voters { index } else { header.voters })
}

/// Those before them, as long as its member knows only up to `settled` what is committed: then both decide.
pub(crate) fn voters_in_doubt(store: &impl LogStore, index: LogIndex, settled: LogIndex) -> Option<VoterSet> {
    let at = voters_index(store, index)?;
    if at <= store.base().index.max(settled) {
        return None;
    }
    let change = store.read(at, 0).ok()?.into_iter().next()?.header;
    voters_of(store, change.voters)
}

/// The set that the entry `at` holds.
fn voters_of(store: &impl LogStore, at: LogIndex) -> Option<VoterSet> {
    if at == store.base().voters_at {
        return Some(store.base().voters.clone());
    }
    let payload = store.read(at, 0).ok()?.into_iter().next().filter(|e| e.header.index == at)?.payload;
    VoterSet::decode(&mut Reader::new(&payload)).ok()
}
