//! The inputs of a [`Replicator`]. After each of them its invariants are checked.

use trireme_types::{DecodeError, Level, LogIndex, NodeId, Seqno, Timestamp, Uuid, View};

use super::{Replicator, Sight};
use crate::feed::{Offer, Position};
use crate::message::AppMessage;
use crate::retention::Growth;

impl Replicator {
    /// Every change from outside goes through here, so that none is left unchecked.
    fn input<T>(&mut self, change: impl FnOnce(&mut Self) -> T) -> T {
        let result = change(self);
        self.check_invariants();
        result
    }

    /// Delivery begins after `base`. Part of `state` was written by [`Replicator::encode`]; the rest is the driver's and is returned.
    ///
    /// **Errors:** it was not. Nothing has changed then.
    pub fn handle_reset<'a>(
        &mut self,
        base: Position,
        branch: Uuid,
        level: Level,
        state: &'a [u8],
    ) -> Result<&'a [u8], DecodeError> {
        self.input(|replicator| replicator.on_reset(base, branch, level, state))
    }

    /// The log begins anew with this state once the server's engine has its data on disk. The results of votes in the state are
    /// told already: the engine may wait for them.
    ///
    /// **Errors:** as [`Replicator::handle_reset`].
    pub fn handle_engine_awaited(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        self.input(|replicator| replicator.on_engine_awaited(state))
    }

    /// Something that takes a seqno was ordered, and is no view. `owned`: a client of this member waits for it and does it itself.
    pub fn handle_ordered(&mut self, index: LogIndex, seqno: Seqno, owned: bool) -> Offer {
        self.input(|replicator| replicator.on_ordered(index, seqno, owned))
    }

    /// A view. It is handed over before the effects are carried out.
    pub fn handle_view(&mut self, now: Timestamp, index: LogIndex, seqno: Seqno, view: &View) -> Offer {
        self.input(|replicator| replicator.on_view(now, index, seqno, view))
    }

    /// A member said something in the order. `from`: whoever it is now, in whichever incarnation it said so.
    pub fn handle_message(&mut self, now: Timestamp, index: LogIndex, seqno: Seqno, from: NodeId, message: AppMessage) {
        self.input(|replicator| replicator.on_message(now, index, seqno, from, message))
    }

    /// The group is at this level from here on.
    pub fn handle_level(&mut self, level: Level) {
        self.input(|replicator| replicator.on_level(level))
    }

    /// A fork, or a base, of another branch has come into the log.
    pub fn note_branch(&mut self, branch: Uuid) {
        self.input(|replicator| replicator.on_branch(branch))
    }

    /// The majority is lost. Says whether this member was in the primary component.
    pub fn handle_non_primary(&mut self) -> bool {
        self.input(Self::on_non_primary)
    }

    /// This member is to leave the group.
    pub fn handle_leave(&mut self) {
        self.input(Self::on_leave)
    }

    /// A proposal may never be ordered.
    pub fn handle_abandoned(&mut self) {
        self.input(Self::on_abandoned)
    }

    /// A history begins here, with empty data.
    pub fn handle_found(&mut self, history: Uuid) {
        self.input(|replicator| replicator.on_found(history))
    }

    /// The data have what the group's history has not. They are of no use from here on.
    pub fn handle_diverged(&mut self) {
        self.input(Self::on_diverged)
    }

    /// The order did not take this message.
    pub fn handle_refused(&mut self, now: Timestamp, message: &AppMessage) {
        self.input(|replicator| replicator.on_refused(now, message))
    }

    /// The order took this message, and it is certain that it will not be ordered any more; or a state covers its place in the order.
    pub fn handle_lost(&mut self, now: Timestamp, message: &AppMessage) {
        self.input(|replicator| replicator.on_lost(now, message))
    }

    /// The server's answer to [`Effect::AskServer`].
    pub fn handle_state_request(&mut self, now: Timestamp, bytes: Vec<u8>) {
        self.input(|replicator| replicator.on_state_request(now, bytes))
    }

    /// An arbitrator wants a server to carry out this request: [`Effect::Answer`] names it.
    pub fn handle_ask_donor(&mut self, now: Timestamp, bytes: Vec<u8>) {
        self.input(|replicator| replicator.on_ask_donor(now, bytes))
    }

    /// The full copy is here, and ends at `position`; or it failed. A copy is good only for the log that it meets: both are compared now,
    /// and not when it was asked for (rule 33).
    pub fn handle_state_received(&mut self, position: Option<Seqno>) {
        self.input(|replicator| replicator.on_state_received(position))
    }

    /// The log has no more room, and nothing of it may go while the server waits for its data: what is between has to be ordered into
    /// its certification, one entry after the other. Ignored once the server has them.
    pub fn handle_no_room(&mut self, growth: Growth) {
        self.input(|replicator| replicator.on_no_room(growth))
    }

    /// To be called in every turn.
    pub fn handle_tick(&mut self, now: Timestamp, sight: Sight<'_>) {
        self.input(|replicator| replicator.on_tick(now, sight))
    }
}
