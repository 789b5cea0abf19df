//! The inputs: events of the transport, and commands of the server's threads.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::Bytes;
use trireme_certification::Encoded;
use trireme_flight as flight;
use trireme_order::{Phase, ReadId};
use trireme_replicator::position::Word;
use trireme_surface::texts;
use trireme_transport::{DownCause, Isolation, NetEvent};

use super::Core;
use super::connection::Held;
use super::incarnation::Unfed;
use crate::Level;
use crate::command::{Command, KeysRefused, Outcome};
use crate::slot::Slot;
use trireme_replicator::feed::is_trivial;
use trireme_replicator::message::AppMessage;
use trireme_replicator::proposals::{Client, Fate, Owed, ProposalId};

/// A node that has not heard the sequencer for so long, several heartbeats, was frozen or cut off from it.
const OUT_OF_TOUCH_AFTER: Duration = Duration::from_millis(300);

/// Why a link ended, for the flight recorder.
fn cause_word(cause: DownCause) -> &'static str {
    match cause {
        DownCause::Reset => "reset",
        DownCause::Bye => "bye",
        DownCause::Silent => "silent",
        DownCause::Replaced => "replaced",
        DownCause::Garbage => "garbage",
        DownCause::Local => "local",
    }
}

impl Core {
    pub(super) fn on_net(&mut self, event: NetEvent) {
        let now = self.now();
        match event {
            NetEvent::LinkUp { member, levels, .. } => {
                self.shared.host.flight.note(flight::Event::LinkUp { peer: member.name.clone() });
                self.inc.group.handle_link_up(now, member, levels);
            }
            NetEvent::LinkDown { node, cause } => {
                let (peer, cause) = (self.name(node), cause_word(cause).to_owned());
                self.shared.host.flight.note(flight::Event::LinkDown { peer, cause });
                self.inc.group.handle_link_down(now, node);
            }
            NetEvent::Message { from, message } => {
                self.inc.group.handle_message(now, from, message);
                // Only the sequencer's word counts: who hears the others but not it misses what is ordered as well.
                if self.inc.group.sequencer() == Some(from) {
                    if now.since(self.inc.heard) >= OUT_OF_TOUCH_AFTER {
                        self.inc.flow.out_of_touch(now);
                    }
                    self.inc.heard = now;
                }
            }
            NetEvent::RoundTrip { node, time } => self.conn.round_trips.entry(node).or_default().record(time),
            NetEvent::Log { warn, text } => self.shared.host.log(if warn { Level::Warn } else { Level::Info }, text),
            NetEvent::Unwelcome { reason } => {
                self.inc.unwelcome.get_or_insert_with(|| (Instant::now(), reason));
            }
            // The line in the log says it.
            NetEvent::Shunned { .. } => {}
            NetEvent::Twin { reason } => self.fail(texts::twin(&reason)),
            NetEvent::Certificates(shown) => self.shared.jobs.keep_certificates(shown),
            NetEvent::Broken { thread, said } => self.shared.part_failed(thread, &said),
            NetEvent::Admission { token, address } => self.shared.jobs.ask_allowed(token, address),
            NetEvent::Refused { address, reason } => {
                let (from, why) = (address.clone(), reason.clone());
                self.shared.host.flight.note_often(None, || flight::Event::Refused { address: from, reason: why });
                self.shared.host.log(Level::Warn, format!("connection from {address} refused: {reason}"));
            }
        }
    }

    pub(super) fn on_command(&mut self, command: Command) {
        let now = self.now();
        match command {
            Command::Propose { body, patient, trx, slot } => {
                slot.stamp_taken(self.shared.metrics.clock());
                self.shared.metrics.send_queue.sample(self.conn.held_back.len());
                if self.inc.flow.is_stopped() || !self.conn.held_back.is_empty() {
                    self.conn.held_back.hold(Held { body, patient, trx, slot });
                    self.release_held_back();
                } else {
                    self.propose(body, patient, slot);
                }
            }
            Command::Recall => self.recall(),
            // Looked at after every round of commands.
            Command::BacklogSank | Command::IndexBack => {}
            Command::FlowOptions => self.set_flow_options(),
            Command::ProposeUnowned { body } => self.propose_rollback(body),
            Command::App { message, slot } => {
                self.conn.proposals.ask(message, slot);
                self.propose_owed();
                self.settle_proposals();
            }
            Command::Read { slot } if !self.inc.replicator.is_member() => slot.fill(None),
            Command::Read { slot } => {
                let id = self.conn.next_read;
                self.conn.next_read += 1;
                self.conn.reads.insert(id, slot);
                self.inc.group.read(now, ReadId(id));
            }
            Command::Synced(outcome) => {
                let done = outcome.and_then(|synced| {
                    self.inc.group.store_mut().finish_sync(synced)?;
                    Ok(synced)
                });
                self.on_synced(done);
            }
            Command::SpareReady(ready) => {
                if let Err(error) = self.inc.group.store_mut().finish_spare(ready) {
                    self.shared.host.log(Level::Info, format!("no log segment could be prepared ahead: {error}"));
                }
            }
            Command::EngineSeen { look, log } => {
                self.inc.engine_asked = false;
                self.inc.engine.see(look, log, now);
                self.inc.group.note_engine_disk(now, self.inc.engine.upto());
            }
            Command::StateRequest { request } => {
                // The position that a copy brought is compared when the server reports it.
                if !is_trivial(&request) {
                    self.inc.unfed = Unfed::Unknown;
                }
                self.conn.word = is_trivial(&request).then(|| self.conn.word.unwrap_or(Word::Operator));
                self.inc.replicator.handle_state_request(now, request);
                self.carry_out();
            }
            Command::AskDonor { request, slot } => {
                self.conn.asked = Some(slot);
                self.inc.replicator.handle_ask_donor(now, request);
                self.carry_out();
            }
            Command::StateReceived { position } => {
                self.inc.replicator.note_branch(self.branch());
                self.inc.replicator.handle_state_received(position);
                self.carry_out();
                self.publish();
            }
            Command::ForcePrimary => self.inc.group.force_primary(now),
            Command::Weight { weight, slot } => {
                if self.inc.replicator.is_member() {
                    self.inc.group.set_weight(now, weight);
                    if self.inc.me.weight == weight {
                        slot.fill(true);
                    } else {
                        self.conn.weight_waiters.push((weight, slot));
                    }
                } else {
                    slot.fill(false);
                }
            }
            Command::Durability(mode) => self.inc.group.set_durability(now, mode),
            Command::Describe { slot } => slot.fill(Some(self.picture())),
            Command::Configure(change) => self.inc.group.set_config(change),
            Command::Isolate(mode) => {
                self.inc.transport.isolate(mode);
                if mode == Isolation::ForceQuit {
                    self.shared.host.log(Level::Error, texts::FORCED_QUIT.into());
                    self.become_over();
                }
            }
            Command::Tls(context) => self.inc.transport.set_tls(context),
            Command::LogKeys { keys, slot } => {
                slot.fill(self.inc.group.store_mut().use_keys(&keys).map_err(KeysRefused::from));
            }
            Command::Admit { token, allowed } => self.inc.transport.admit(token, allowed),
            Command::GiveUp { reason, corrupt } => {
                self.end_start(&reason);
                self.shared.host.log(Level::Error, reason);
                self.become_dropping(corrupt);
            }
            Command::Leave => self.become_leaving(),
        }
    }

    pub(super) fn propose(&mut self, mut body: Encoded, patient: bool, slot: Arc<Slot<Outcome>>) {
        slot.stamp_sent(self.shared.metrics.clock());
        // Here, in the order of sending, so that no report of a later position (which moves the cut) can be ordered before a
        // write set that has seen less.
        body.set_last_seen(self.shared.monitor.left());
        let now = self.now();
        match self.inc.group.propose(now, body.into_bytes()) {
            Ok(id) => self.conn.proposals.sent(id.into(), Client { waiter: slot, patient }),
            Err(_) => slot.fill(Outcome::NotSent),
        }
    }

    pub(super) fn propose_rollback(&mut self, body: Bytes) {
        let now = self.now();
        let sent = self.inc.group.propose(now, body.clone()).ok();
        self.conn.proposals.rollback_sent(sent.map(ProposalId::from), body);
    }

    /// Proposes what has to be ordered and was not, and behind it what a thread has just asked for.
    pub(super) fn propose_owed(&mut self) {
        let member = self.inc.group.status().phase == Phase::Primary;
        for owed in self.conn.proposals.take_owed(member) {
            match owed {
                Owed::Message(message, slot) => {
                    let id = self.propose_app(&message);
                    self.conn.proposals.said(id, message, slot);
                }
                Owed::Rollback(body) => self.propose_rollback(body),
            }
        }
    }

    /// Tells what has become of own proposals.
    pub(super) fn settle_proposals(&mut self) {
        while let Some(fate) = self.conn.proposals.poll() {
            match fate {
                Fate::Answered(slot, outcome) => slot.fill(outcome),
                Fate::Withdrawn(slot) | Fate::NeverOrdered(slot) => slot.fill(Outcome::NotSent),
                Fate::Open(slot) => {
                    self.shared.status.counters.unknown_outcomes.fetch_add(1, Relaxed);
                    slot.fill(Outcome::Abandoned);
                }
                Fate::Heard(slot, message) => {
                    self.shared.outage.ordered(&message);
                    slot.fill(true);
                }
                Fate::Unheard(slot, _) => slot.fill(false),
                Fate::Lost(message) => {
                    let now = self.now();
                    self.inc.replicator.handle_lost(now, &message);
                    self.carry_out();
                }
            }
        }
    }

    /// A proposal that was given to nobody gets a definite answer (rule 22).
    pub(super) fn withdraw(&mut self) {
        let unsent = self.inc.group.withdraw_unsent();
        self.conn.proposals.withdrawn(unsent.into_iter().map(ProposalId::from));
        self.settle_proposals();
    }

    pub(super) fn propose_app(&mut self, message: &AppMessage) -> Option<ProposalId> {
        let now = self.now();
        self.inc.group.propose_app(now, Bytes::from(message.encode())).ok().map(ProposalId::from)
    }
}
