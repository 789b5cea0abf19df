//! The state machine.

use bytes::Bytes;
use trireme_types::{Durability, LogIndex, Member, NodeId, Seqno, Session, Timestamp, Uuid, Weight};

use crate::{Config, Event, JoinState, LogStore, Message, Output, ProposeError, ReadId, SnapshotRequest, Status};

/// One member of a group.
///
/// Inputs are `handle_*` and the commands; outputs come from [`poll_output`](Group::poll_output).
///
/// **The rule:** after one or more inputs, poll until `None`, and carry the outputs out *in order*. Appends to the log and
/// the hard state happen inside (through [`LogStore`]) before the outputs that depend on them are queued. Several inputs
/// before one drain are batched: that is how load turns into bigger messages, and idleness into none.
///
/// Time is an argument and never goes backwards. No clock, socket, thread or randomness inside; `seed` feeds the
/// election jitter.
pub struct Group<S: LogStore> {
    _config: Config,
    store: S,
}

impl<S: LogStore> Group<S> {
    /// `start` is the server's recovered seqno: delivery starts at the newest checkpoint at or below it, or at the log's
    /// base; `None` (unknown) starts at the newest checkpoint. The group is `Idle` until `bootstrap` or `join`.
    pub fn new(config: Config, store: S, start: Option<Seqno>, seed: u64, now: Timestamp) -> Group<S> {
        let _ = (start, seed, now);
        Group { _config: config, store }
    }

    pub fn store(&self) -> &S {
        &self.store
    }
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    // --- commands -------------------------------------------------------------------------------------------------

    /// Begin or continue a history alone. `history`/`position` as known; with a log that covers it the log is kept and a
    /// forced voter set (fork record) is written, else the log is reset to `position`.
    pub fn bootstrap(&mut self, now: Timestamp, history: Uuid, position: Seqno) -> Result<(), String> {
        let _ = (now, history, position);
        todo!()
    }
    /// Look for a primary component among the linked peers, or form one again with the voters of the own log.
    pub fn join(&mut self, now: Timestamp, state: JoinState) {
        let _ = (now, state);
    }
    /// Leave in order; ends with `Event::Left`.
    pub fn leave(&mut self, now: Timestamp) {
        let _ = now;
    }
    /// `pc.bootstrap`: make the reachable non-primary members primary (fork record). No effect when primary.
    pub fn force_primary(&mut self, now: Timestamp) {
        let _ = now;
    }
    /// Send a write set. The answer comes as a `Delivery` with the same session and number.
    pub fn propose(&mut self, now: Timestamp, body: Bytes) -> Result<(Session, u64), ProposeError> {
        let _ = (now, body);
        Err(ProposeError::NotPrimary)
    }
    /// The same for an ordered message that takes no seqno.
    pub fn propose_app(&mut self, now: Timestamp, body: Bytes) -> Result<(Session, u64), ProposeError> {
        let _ = (now, body);
        Err(ProposeError::NotPrimary)
    }
    /// Give up everything proposed and not delivered: a new session begins (SAFETY 22, 23). What was given up may still
    /// be ordered and then arrives under its old session.
    pub fn abandon_pending(&mut self, now: Timestamp) {
        let _ = now;
    }
    /// Ask for a position that covers every commit acknowledged anywhere before now (SAFETY 25). Many may wait at once.
    pub fn read(&mut self, now: Timestamp, read: ReadId) {
        let _ = (now, read);
    }
    /// Unordered, best-effort message to all linked members of the view.
    pub fn signal(&mut self, now: Timestamp, body: Bytes) {
        let _ = (now, body);
    }
    /// Change the vote weight (ordered: a `Voters` entry and a view). Ignored outside a primary view.
    pub fn set_weight(&mut self, now: Timestamp, weight: Weight) {
        let _ = (now, weight);
    }
    pub fn set_durability(&mut self, now: Timestamp, durability: Durability) {
        let _ = (now, durability);
    }
    pub fn set_config(&mut self, change: impl FnOnce(&mut Config)) {
        let _ = change;
    }
    /// Throw a member out of view and voters (`evs.evict`, lost vote). Ordered by the sequencer; others forward it.
    pub fn evict(&mut self, now: Timestamp, node: NodeId) {
        let _ = (now, node);
    }
    /// Answer to `Event::NeedSnapshot`.
    pub fn provide_snapshot(&mut self, now: Timestamp, request: SnapshotRequest, app: Bytes) {
        let _ = (now, request, app);
    }

    // --- events ---------------------------------------------------------------------------------------------------

    /// A link to `peer` is up and the handshake is done. Repeated with new data when the peer reconnects.
    pub fn handle_link_up(&mut self, now: Timestamp, peer: Member) {
        let _ = (now, peer);
    }
    /// The link is gone. Nothing sent on it before may be assumed to have arrived.
    pub fn handle_link_down(&mut self, now: Timestamp, peer: NodeId) {
        let _ = (now, peer);
    }
    pub fn handle_message(&mut self, now: Timestamp, from: NodeId, message: Message) {
        let _ = (now, from, message);
    }
    /// The driver synced the log up to `upto` while it was at `generation`.
    pub fn handle_synced(&mut self, now: Timestamp, generation: u64, upto: LogIndex) {
        let _ = (now, generation, upto);
    }
    /// Call when the time of `poll_timeout` has come. Spurious calls do nothing.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        let _ = now;
    }

    // --- outputs --------------------------------------------------------------------------------------------------

    pub fn poll_output(&mut self, now: Timestamp) -> Option<Output> {
        let _: Option<Event> = None;
        let _ = now;
        None
    }
    /// When to call `handle_timeout`, and why.
    pub fn poll_timeout(&self) -> Option<(Timestamp, &'static str)> {
        None
    }
    pub fn status(&self) -> Status {
        todo!()
    }
    /// Should the driver sync the log now (durability `disk`, or a switch to it is under way)?
    pub fn wants_sync(&self) -> bool {
        false
    }
}
