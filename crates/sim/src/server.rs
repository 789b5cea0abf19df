//! The model of a server beside its node: the effects of the replicator on it, its words in return, and full copies from donor to joiner.

use bytes::Bytes;
use trireme_order::LogStore;
use trireme_replicator::absent::others;
use trireme_replicator::message::AppMessage;
use trireme_replicator::retention::{EngineDisk, FREE_MIN, Growth, Look, Room};
use trireme_replicator::{Effect, Feed, Position, Sight};
use trireme_types::{NodeId, Seqno, Uuid, Writer};

use crate::cluster::{Cluster, Event, Process, Stop, TICK};
use crate::database::State;
use crate::options::{MS, Sabotage};
use crate::situations::Situation;
use crate::watch::Stage;

/// A full copy under way.
pub(crate) struct Transfer {
    donor: usize,
    donor_server: u32,
    joiner: NodeId,
    slot: usize,
    boot: u32,
    state: State,
    /// The script has ended, well or not, and the server that waits for it stood still.
    ended: Option<bool>,
}

impl Process {
    /// The state that every member has alike at this place in the order.
    pub fn state(&self) -> Bytes {
        let mut w = Writer::new();
        self.replicator.encode(&mut w);
        self.judge.encode(&mut w);
        w.buf.into()
    }
}

impl Cluster {
    pub(crate) fn branch(&self, slot: usize) -> Uuid {
        let Some(p) = &self.slots[slot].process else { return Uuid::NIL };
        p.group.lineage().branch(p.group.store().base().history)
    }

    /// Does what the replicator wants, in order.
    pub(crate) fn carry_out(&mut self, slot: usize) {
        while let Some(effect) = self.slots[slot].process.as_mut().and_then(|p| p.replicator.poll_effect()) {
            if self.trace && !matches!(effect, Effect::Evictions) {
                let text = format!("n{slot} is to {effect:?}");
                self.log(|| text);
            }
            self.on_effect(slot, effect);
            if self.failure.is_some() {
                return;
            }
        }
    }

    fn on_effect(&mut self, slot: usize, effect: Effect) {
        let boot = self.slots[slot].boot;
        let Some(p) = &mut self.slots[slot].process else { return };
        match effect {
            Effect::Log(..) | Effect::News(..) | Effect::ConnectNobody { .. } => {}
            Effect::Synced { .. } => p.synced = true,
            Effect::Propose(message) => {
                if !self.propose_app(slot, message.clone()) {
                    let now = self.slots[slot].local(self.now);
                    if let Some(p) = &mut self.slots[slot].process {
                        p.replicator.handle_refused(now, &message);
                    }
                }
            }
            Effect::AskServer { .. } => {
                let delay = self.rng.exp(10 * MS);
                self.after(delay, Event::Asks { slot, boot });
            }
            Effect::GoLive { position, connect: _ } => self.go_live(slot, position),
            Effect::Resume { position, .. } => self.resume_feed(slot, position),
            Effect::Donate { joiner, at, .. } => {
                p.donations.push((joiner, at.0));
                self.donate(slot);
            }
            // The operator reads it.
            Effect::NobodyHasData { .. } => {}
            Effect::Answer(answer) => self.on_answer(slot, answer.is_ok()),
            Effect::DataAtRisk => self.slots[slot].at_risk = true,
            Effect::DataSafe => self.slots[slot].at_risk = false,
            Effect::SyncLog => {
                p.group.store_mut().sync_all();
                if p.group.store().failed() {
                    return self.die(slot);
                }
                let synced = p.group.store().synced();
                p.replicator.handle_log_synced();
                self.with_group(slot, |g, now| g.handle_all_synced(now));
                self.note_synced(slot, synced);
            }
            Effect::DataArrived => {
                self.with_group(slot, |g, _| g.data_arrived());
            }
            Effect::Die(reason) | Effect::Fail(reason) => {
                p.fed = false;
                p.stopped = Some(Stop::Server(reason));
                if std::mem::take(&mut p.copied) {
                    self.arose(Situation::CopyOfNoUse);
                }
                self.schedule_step(slot);
            }
            Effect::Inconsistent(reason) => {
                p.fed = false;
                p.stopped = Some(Stop::Server(reason));
                self.slots[slot].db.invalidate();
                self.schedule_step(slot);
            }
            Effect::Purge(cut) => {
                let local = self.options.sabotage == Some(Sabotage::LocalCut);
                let cut = if local { Seqno(self.slots[slot].db.now.position) } else { cut };
                if let Some(p) = &mut self.slots[slot].process {
                    p.judge.purge(cut);
                }
            }
            Effect::Evictions => {
                let evicted = p.replicator.roster().evicted().iter().copied().collect();
                if self.options.sabotage != Some(Sabotage::EvictionForgotten) {
                    self.with_group(slot, |g, now| g.set_evicted(now, evicted));
                }
            }
            Effect::VoteBegun { seqno } => self.on_vote_begun(slot, seqno),
            Effect::VoteDone { seqno, winner, applied } => self.on_vote_done(slot, seqno, winner, applied),
            Effect::ResultKnown { seqno, winner } => self.on_vote_done(slot, seqno, winner, true),
            Effect::VoteDismissed { seqno, lost } => self.on_vote_dismissed(slot, seqno, lost),
            Effect::Remember(failures) => self.slots[slot].db.failures = Some(failures),
            Effect::Contradicted { .. } => self.be_inconsistent(slot),
        }
    }

    /// The server is fed from its position on, which has to be where its data are.
    fn go_live(&mut self, slot: usize, position: Position) {
        let s = &mut self.slots[slot];
        s.at_risk = false;
        let own_data = s.process.as_ref().is_some_and(|p| p.word.is_some());
        let Some(delivered) = s.process.as_ref().map(|p| p.last_seqno.0) else { return };
        if s.db.half_done_at() == Some(position.seqno.0) {
            s.db.trust();
            self.situations.arose(Situation::HalfDoneGoneOnWith);
            self.watch.overtaken = self.watch.overtaken.max(delivered);
        }
        self.open_engine(slot, position);
        self.drop_held(slot);
        let s = &mut self.slots[slot];
        let now = s.local(self.now);
        let Some(p) = &mut s.process else { return };
        (p.fed, p.copied) = (true, false);
        match (own_data, s.engine_runs, s.unheard) {
            (true, true, _) => {}
            (true, false, false) => p.engine = EngineDisk::closed_at(0, position.seqno),
            (true, false, true) | (false, _, _) => p.engine = EngineDisk::new(0),
        }
        p.group.note_engine_disk(now, p.engine.upto());
        p.locks.clear();
        // They would not have the rows that they have locked so far.
        let streams = p.streams.iter_mut().filter(|(op, _)| p.trxs.contains_key(op));
        streams.for_each(|(_, stream)| stream.lose());
        p.trxs.clear();
        p.held_back.clear();
        p.blocked.clear();
        p.ballots.forget(position.seqno);
        s.db.queue.extend(p.kept.drain(..).filter(|c| c.seqno > position.seqno.0));
        p.proposals.release();
        self.settle_proposals(slot);
        self.keep_log(slot);
        let boot = self.slots[slot].boot;
        self.start_apply(slot, boot);
    }

    pub(crate) fn tick(&mut self, slot: usize, boot: u32) {
        let still = self.slots[slot].stands_still();
        let now = self.slots[slot].local(self.now);
        if self.life(slot, boot).is_none_or(|p| p.outage.is_some()) {
            return;
        }
        self.after(TICK, Event::Tick { slot, boot });
        if still {
            return;
        }
        self.look_at_patience(slot);
        self.look_at_engine_patience(slot);
        let log = self.slots[slot].engine_log(self.options.silent);
        let s = &mut self.slots[slot];
        let node = s.node;
        let Some(p) = s.process.as_mut() else { return };
        let group = &p.group;
        let left = p.comparing.map_or(Seqno(s.db.now.position), |at| at.seqno);
        let sight = Sight {
            left,
            backlog: s.db.queue.len() as u64,
            backlog_small: p.throttle.as_ref().map_or(self.options.backlog_small, |t| t.backlog_small()),
            orders: group.sequencer() == Some(node),
            index_large: p.judge.retained() > self.options.index_keys_max,
            voters: &|| group.status().voters,
        };
        p.replicator.handle_tick(now, sight);
        let mut takes_state = false;
        if p.replicator.serves() || s.engine_runs {
            // As in a node: of an engine that could not be asked, nothing is known before it is fed.
            let unknown = s.unheard && !p.replicator.serves();
            let look = Look { epoch: 0, ended: if unknown { Seqno::ZERO } else { left } };
            p.engine.see(look, log, now);
            let awaited = p.group.awaits_engine_disk();
            p.group.note_engine_disk(now, p.engine.upto());
            takes_state = awaited && !p.group.awaits_engine_disk();
        }
        if takes_state {
            self.schedule_step(slot);
        }
        self.look_for_absent(slot);
        self.look_at_room(slot);
        self.carry_out(slot);
        self.pay_owed(slot);
        self.operate(slot);
    }

    /// While the server waits for its data nothing leaves the log, and it may fill its disk. Somebody makes room before all is well.
    fn look_at_room(&mut self, slot: usize) {
        if self.calm {
            return;
        }
        let Some(p) = &mut self.slots[slot].process else { return };
        let told = std::mem::take(&mut p.short_of_room);
        let log = p.group.store();
        let held = log.last().0 - log.base().index.0;
        let growth = Growth { held, excess: log.excess(), free: FREE_MIN - 1 };
        let short = growth.excess > self.options.room && growth.room() == Room::None;
        if !short || p.replicator.is_live() {
            return;
        }
        let waits = matches!(p.replicator.feed(), Feed::Copying(_) | Feed::HalfDone(_));
        if waits && told {
            return self.fail(format!("n{slot} waits for its data while its log fills the disk: {growth:?}"));
        }
        p.short_of_room = waits;
        p.replicator.handle_no_room(growth);
        if waits {
            self.arose(Situation::NoRoom);
        }
    }

    /// Looks who is away, and gives them up when they lack too much.
    fn look_for_absent(&mut self, slot: usize) {
        let most = self.options.kept_for_absent;
        let s = &mut self.slots[slot];
        let node = s.node;
        let Some(p) = &mut s.process else { return };
        if most == 0 || self.options.is_arbitrator(slot) || !p.replicator.is_live() {
            return;
        }
        let group = &p.group;
        let first = group.store().base().index;
        let status = group.status();
        let others = others(&status.view, &status.voters, node).map(|n| (n, group.is_linked(n)));
        p.absent.look(others, |n| group.held_by(n).unwrap_or(first));
        if p.absent.hold().is_some() {
            self.situations.arose(Situation::KeptForAbsent);
            if group.store().excess() > most {
                p.absent.give_up();
            }
        }
    }

    // --- full copies ------------------------------------------------------------------------------------------------

    pub(crate) fn server_asks(&mut self, slot: usize, boot: u32) {
        let now = self.slots[slot].local(self.now);
        if self.life(slot, boot).is_some() && self.slots[slot].stands_still() {
            return self.after(TICK, Event::Asks { slot, boot });
        }
        let Some(p) = self.life(slot, boot) else { return };
        // The position that a copy brought is compared when the server reports it.
        p.word = None;
        p.replicator.handle_state_request(now, b"copy".to_vec());
        self.carry_out(slot);
    }

    /// Begins the copies that the donor's server has got far enough for.
    pub(crate) fn donate(&mut self, slot: usize) {
        let s = &mut self.slots[slot];
        let Some(p) = s.process.as_mut().filter(|p| p.comparing.is_none()) else { return };
        let position = s.db.now.position;
        let ready: Vec<(NodeId, u64)> = p.donations.extract_if(.., |(_, at)| *at <= position).collect();
        for (joiner, _) in ready {
            let state = self.slots[slot].db.now.clone();
            let Some(donor_server) = self.slots[slot].process.as_ref().map(|p| p.server) else { return };
            let Some(to) = self.slot_of(joiner) else {
                // Its disk was replaced.
                self.done_giving(slot, joiner, false);
                continue;
            };
            self.log(|| format!("n{to} copies from n{slot} at {position}"));
            self.arose(Situation::CopyUnderWay);
            self.watch.copies.push((slot, to));
            let victim = if self.strikes.chance(0.5) { slot } else { to };
            self.tempt(victim, Stage::Copy);
            let boot = self.slots[to].boot;
            if self.slots[to].process.as_ref().is_some_and(waits) {
                // From here on its own data are overwritten.
                self.slots[to].db.invalidate();
                self.slots[to].db.outvoted = false;
            }
            let mut delay = self.rng.exp(self.options.transfer_mean);
            if self.is_tempted(Stage::Copy) {
                delay = self.outrun(slot, to, delay);
            }
            let transfer = Transfer { donor: slot, donor_server, joiner, slot: to, boot, state, ended: None };
            self.after(delay, Event::Copied(Box::new(transfer)));
        }
    }

    fn done_giving(&mut self, donor: usize, joiner: NodeId, ok: bool) {
        if let Some(p) = &mut self.slots[donor].process {
            p.say(AppMessage::DonorDone { joiner, ok });
        }
    }

    /// The script is at its end. Server and node are one process: while that stands still, neither hears of it.
    pub(crate) fn copied(&mut self, transfer: Transfer) {
        let Transfer { donor, donor_server, joiner, slot, boot, state, ended } = transfer;
        let cut = self.net.is_blocked(donor, slot) || self.net.is_blocked(slot, donor);
        let gives = self.slots[donor].process.as_ref().is_some_and(|p| p.server == donor_server);
        let takes = self.slots[slot].node == joiner && self.life(slot, boot).is_some_and(|p| waits(p));
        // A copy for an arbitrator goes to a script of its own.
        let ok = ended.unwrap_or(gives && (takes || self.options.is_arbitrator(slot)) && !cut);
        if ended.is_none() {
            self.watch.copies.retain(|c| *c != (donor, slot));
            if !ok {
                self.arose(Situation::CopyFailed);
            }
            if gives {
                self.done_giving(donor, joiner, ok);
            }
        }
        if !takes {
            return;
        }
        if self.slots[slot].stands_still() {
            let transfer = Transfer { donor, donor_server, joiner, slot, boot, state, ended: Some(ok) };
            return self.after(TICK, Event::Copied(Box::new(transfer)));
        }
        let position = ok.then_some(Seqno(state.position));
        if ok {
            self.copies += 1;
            let result = self.slots[slot].db.load(state);
            self.check(slot, result);
        }
        let branch = self.branch(slot);
        let Some(p) = self.life(slot, boot) else { return };
        p.copied = ok;
        p.replicator.note_branch(branch);
        p.replicator.handle_state_received(position);
        self.carry_out(slot);
    }
}

/// Does its server wait for a copy? One that has said that it is here takes no other.
fn waits(p: &Process) -> bool {
    matches!(p.replicator.feed(), Feed::Copying(copying) if copying.arrived.is_none())
}
