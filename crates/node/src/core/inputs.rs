//! The inputs: events of the transport, and commands of the server's threads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use trireme_certification::Encoded;
use trireme_flight as flight;
use trireme_order::ReadId;
use trireme_replicator::position::Word;
use trireme_surface::texts;
use trireme_transport::{DownCause, Isolation, NetEvent};

use super::Core;
use super::connection::{AwaitedBy, Held, Pending, PendingApp, ProposalId};
use super::incarnation::{Owed, Unfed};
use crate::Level;
use crate::command::{Command, KeysRefused, Outcome};
use crate::slot::Slot;
use trireme_replicator::feed::is_trivial;
use trireme_replicator::message::AppMessage;

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
            Command::App { message, slot: None } => self.propose_owed(message),
            Command::App { message, slot: Some(slot) } => match self.propose_app(&message) {
                Some(key) => {
                    self.conn.pending_app.insert(key, PendingApp { message, awaited_by: AwaitedBy::Thread(slot) });
                }
                None => self.app_lost(PendingApp { message, awaited_by: AwaitedBy::Thread(slot) }),
            },
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
                    self.conn.weight_waiters.push((weight, slot));
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
            Ok((session, number)) => {
                self.conn.pending.insert(ProposalId::of(session, number), Pending::Owned { slot, patient });
            }
            Err(_) => slot.fill(Outcome::NotSent),
        }
    }

    pub(super) fn propose_rollback(&mut self, body: Bytes) {
        let now = self.now();
        match self.inc.group.propose(now, body.clone()) {
            Ok((session, number)) => {
                self.conn.pending.insert(ProposalId::of(session, number), Pending::Unowned { body });
            }
            Err(_) => self.inc.owed.push_back(Owed::Rollback(body)),
        }
    }

    pub(super) fn propose_owed(&mut self, message: AppMessage) {
        match self.propose_app(&message) {
            Some(key) => {
                self.conn.pending_app.insert(key, PendingApp { message, awaited_by: AwaitedBy::Nobody });
            }
            None => self.inc.owed.push_back(Owed::App(message)),
        }
    }

    /// Something of the own session `number` was ordered: what belongs to an older session and was not ordered before never
    /// will be (rules 4, 23).
    pub(super) fn note_session(&mut self, number: u64) {
        if number <= self.inc.session {
            return;
        }
        self.inc.session = number;
        let keys = self.conn.pending.keys().chain(self.conn.pending_app.keys());
        let lost: Vec<_> = keys.copied().filter(|id| id.session < number).collect();
        for key in lost {
            self.never_ordered(key);
        }
    }

    /// It is certain that this proposal will not be ordered. The client that waits hears of it; a message that must not get
    /// lost is owed.
    fn never_ordered(&mut self, key: ProposalId) {
        match self.conn.pending.remove(&key) {
            Some(Pending::Owned { slot, .. }) => slot.fill(Outcome::NotSent),
            Some(Pending::Unowned { body }) => self.inc.owed.push_back(Owed::Rollback(body)),
            None => {}
        }
        if let Some(app) = self.conn.pending_app.remove(&key) {
            self.app_lost(app);
        }
    }

    /// This message was not ordered and never will be.
    pub(super) fn app_lost(&mut self, app: PendingApp) {
        let Some(PendingApp { message, awaited_by }) = app.give_up() else { return };
        match awaited_by {
            AwaitedBy::Nobody => self.inc.owed.push_back(Owed::App(message)),
            AwaitedBy::Replicator => {
                let now = self.now();
                self.inc.replicator.handle_lost(now, &message);
                self.carry_out();
            }
            AwaitedBy::Thread(_) | AwaitedBy::GivenUp => {}
        }
    }

    /// This message was ordered, and has its effect here.
    pub(super) fn app_ordered(&mut self, app: PendingApp) {
        match app.awaited_by {
            AwaitedBy::Thread(slot) => {
                self.shared.outage.ordered(&app.message);
                slot.fill(true);
            }
            AwaitedBy::Nobody | AwaitedBy::Replicator => {}
            AwaitedBy::GivenUp => self.inc.owed.push_back(Owed::App(AppMessage::Resync)),
        }
    }

    /// A proposal that was given to nobody gets a definite answer (rule 22).
    pub(super) fn withdraw(&mut self) {
        for (session, number) in self.inc.group.withdraw_unsent() {
            self.never_ordered(ProposalId::of(session, number));
        }
    }

    pub(super) fn propose_app(&mut self, message: &AppMessage) -> Option<ProposalId> {
        let now = self.now();
        let (session, number) = self.inc.group.propose_app(now, Bytes::from(message.encode())).ok()?;
        Some(ProposalId::of(session, number))
    }
}
