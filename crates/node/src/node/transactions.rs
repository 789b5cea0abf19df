//! Transactions of clients: from the first key to the release (contract 4), and how a write set leaves commit order.

use super::Node;
use crate::api::{APPLIER, LOCAL};
use crate::command::{Command, Outcome};
use crate::monitor::Interrupted;
use crate::slot::Slot;
use crate::stages::SlowCommit;
use crate::trx::Trx;
use crate::{Code, ConnId, Handle, KeyKind, Level, Meta, RecvCtx, Source, TrxId, flags};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use trireme_certification::{Head, WriteSet, WriteSetBuilder};
use trireme_flight::Event;
use trireme_replicator::victim::{self, Mark, Stage};
use trireme_replicator::votes::{ErrorClass, Settled};
use trireme_surface::texts;
use trireme_types::Seqno;

impl Node {
    // `handle.opaque` is 0 on first contact and set by append_*.

    fn local(&self, handle: &mut Handle) -> Arc<Trx> {
        handle.opaque = LOCAL;
        self.shared.trxs.get_or_create(handle.trx)
    }

    pub fn append_key(&self, handle: &mut Handle, parts: &[&[u8]], kind: KeyKind) -> Code {
        let trx = self.local(handle);
        let mut state = trx.lock();
        let builder = state.builder.get_or_insert_with(WriteSetBuilder::new);
        match builder.add_key(parts.iter().copied(), kind) {
            Ok(()) => Code::Ok,
            Err(_) => {
                state.refused = Some(Code::TrxFail);
                Code::TrxFail
            }
        }
    }

    pub fn append_data(&self, handle: &mut Handle, data: &[u8]) -> Code {
        let trx = self.local(handle);
        let mut state = trx.lock();
        let limit = self.shared.host.settings.max_ws_size();
        let builder = state.builder.get_or_insert_with(WriteSetBuilder::new);
        let size = accounted_bytes(builder) + data.len();
        if size > limit {
            state.refused = Some(Code::SizeExceeded);
            drop(state);
            self.too_big(size, limit);
            return Code::SizeExceeded;
        }
        builder.add_data(data);
        Code::Ok
    }

    pub(super) fn too_big(&self, size: usize, limit: usize) {
        self.shared.host.server.log(Level::Warn, &format!("transaction size limit ({limit}) exceeded: {size}"));
    }

    /// `sequenced` is called once, as early as the place among this node's write sets is fixed, at the latest on return.
    pub fn certify(
        &self,
        conn: ConnId,
        handle: &mut Handle,
        flags: u32,
        sequenced: &mut dyn FnMut(),
    ) -> (Code, Option<Meta>) {
        let shared = &self.shared;
        let begun = shared.metrics.clock();
        let trx = self.local(handle);
        let body = {
            let mut state = trx.lock();
            (state.begun, state.entered) = (begun, None);
            let refused = state.refused.or(trx.is_aborted().then_some(Code::ConnFail));
            if let Some(code) = refused {
                drop(state);
                sequenced();
                return (code, None);
            }
            let builder = state.builder.take().unwrap_or_default();
            let limit = shared.host.settings.max_ws_size();
            let size = accounted_bytes(&builder);
            if size > limit {
                drop(state);
                self.too_big(size, limit);
                sequenced();
                return (Code::SizeExceeded, None);
            }
            let origin = shared.status.own_uuid();
            let head = Head { flags, last_seen: shared.monitor.left(), origin, trx: trx.id.0, conn: conn.0 };
            state.stage = Stage::Certifying;
            state.flags = flags;
            builder.finish(&head)
        };
        let slot = Arc::new(Slot::default());
        shared.commands.push(Command::Propose { body, patient: false, trx: Some(trx.clone()), slot: slot.clone() });
        // The command queue is first in, first out: the place is fixed.
        sequenced();
        shared.clients.until(|| slot.is_full());
        let outcome = slot.wait();
        let mut state = trx.lock();
        match outcome {
            Outcome::NotSent => {
                state.stage = Stage::Collecting;
                (Code::ConnFail, None)
            }
            Outcome::Abandoned => {
                state.stage = Stage::Collecting;
                (Code::NodeFail, None)
            }
            Outcome::Ordered { seqno, ok, depends_on, body } => {
                state.stages = shared.metrics.ordered(begun, &slot);
                let meta = shared.meta(seqno, Source { trx: trx.id, conn }, depends_on);
                state.meta = Some(meta);
                state.body = Some(body);
                if !ok {
                    state.stage = Stage::Failed(seqno);
                    drop(state);
                    // The rollback closes the seqno, which a pause holds up: better wait here than half-way through it.
                    // Unless somebody is in want of its locks.
                    let _ = shared.monitor.wait_unpaused(seqno, &trx.aborted);
                    return (Code::TrxFail, Some(meta));
                }
                state.stage = Stage::Certified(seqno);
                if trx.is_aborted() {
                    drop(state);
                    return (self.hit(&trx, seqno), Some(meta));
                }
                drop(state);
                match shared.monitor.wait_unpaused(seqno, &trx.aborted) {
                    Err(Interrupted::Aborted) => (self.hit(&trx, seqno), Some(meta)),
                    Ok(()) | Err(Interrupted::Closed | Interrupted::TimedOut) => (Code::Ok, Some(meta)),
                }
            }
        }
    }

    /// The answer to an ordered victim.
    fn hit(&self, trx: &Trx, seqno: Seqno) -> Code {
        let hit = trx.lock().hit(seqno);
        if hit.begins_orphan {
            // Its server sends none for what a view has ended, and the others would hold its rows for as long as this node is in the group.
            let _ = self.rollback(trx.id);
        }
        hit.code
    }

    pub fn commit_order_enter(&self, handle: Handle, meta: &Meta) -> Code {
        let monitor = &self.shared.monitor;
        let trx = if handle.opaque == LOCAL { self.shared.trxs.get(handle.trx) } else { None };
        let stage = trx.as_ref().map(|t| t.lock().stage);
        let begun = self.shared.metrics.clock();
        let entered = match (&trx, stage) {
            // Only a certified original attempt can still be aborted; a replay must not be (contract 4.6).
            (Some(trx), Some(Stage::Certified(_))) => monitor.enter(meta.seqno, Some(&trx.aborted)),
            // The server rolls back and stores the position without a commit.
            (Some(_), Some(Stage::Failed(_))) => monitor.enter_when_ended(meta.seqno),
            (_, None | Some(Stage::Collecting | Stage::Certifying | Stage::Replaying(_)))
            | (None, Some(Stage::Certified(_) | Stage::Failed(_))) => monitor.enter(meta.seqno, None),
        };
        if entered.is_ok()
            && let (Some(trx), Some(begun)) = (&trx, begun)
        {
            let now = Instant::now();
            self.shared.metrics.turn.record(now - begun);
            let mut state = trx.lock();
            (state.entered, state.stages.wait) = (Some(now), now - begun);
        }
        match entered {
            Ok(()) => Code::Ok,
            Err(Interrupted::Aborted) => trx.map_or(Code::BfAbort, |trx| self.hit(&trx, meta.seqno)),
            // The node has left in the middle: nothing orders this any more. A client may be told what the group has
            // committed; an applier's work is of no use to anybody.
            Err(Interrupted::Closed) if handle.opaque == APPLIER => Code::NodeFail,
            Err(Interrupted::Closed | Interrupted::TimedOut) => {
                if meta.seqno > self.shared.monitor.left().next() {
                    self.shared.data.doubt();
                }
                Code::Ok
            }
        }
    }

    /// `error`: empty when the write set was applied.
    pub fn commit_order_leave(&self, handle: Handle, meta: &Meta, error: &[u8]) -> Code {
        let code = if error.is_empty() { Code::Ok } else { self.vote_on_error(meta.seqno, error) };
        if self.leave_order(meta.seqno) && handle.opaque == LOCAL {
            if let Some(trx) = self.shared.trxs.get(handle.trx) {
                let (stage, begun, entered, stages) = {
                    let state = trx.lock();
                    (state.stage, state.begun, state.entered, state.stages)
                };
                if matches!(stage, Stage::Certified(_) | Stage::Replaying(_)) {
                    if let (Some(begun), Some(entered)) = (begun, entered) {
                        let now = Instant::now();
                        let (engine, total) = (now - entered, now - begun);
                        self.shared.metrics.engine.record(engine);
                        self.shared.metrics.total.record(total);
                        self.shared.metrics.slowest.record(SlowCommit { seqno: meta.seqno, total, stages, engine });
                    }
                    self.shared.status.counters.local_commits.fetch_add(1, Relaxed);
                }
            }
        }
        code
    }

    pub fn release(&self, handle: &mut Handle) -> Code {
        if handle.opaque != LOCAL {
            return Code::Ok;
        }
        if let Some(trx) = self.shared.trxs.get(handle.trx) {
            let mut state = trx.lock();
            let ordered = state.stage.seqno();
            let fragment = matches!(state.stage, Stage::Certified(_)) && state.flags & flags::TRX_END == 0;
            if fragment {
                // The end of a fragment, not of the transaction (contract 6.4).
                state.stage = Stage::Collecting;
                state.body = None;
                state.meta = None;
            } else {
                drop(state);
                self.shared.trxs.remove(handle.trx);
                handle.opaque = 0;
            }
            if let Some(seqno) = ordered {
                // A fragment that was hit while it waited for its turn: the server rolls it back and does not ask for the
                // turn again, so it is closed here. Nothing to do in all other cases.
                if self.shared.monitor.enter(seqno, None).is_ok() {
                    self.leave_order(seqno);
                }
                self.shared.monitor.end(seqno);
            }
        }
        Code::Ok
    }

    pub fn replay(&self, handle: Handle, ctx: RecvCtx) -> Code {
        let shared = &self.shared;
        let Some(trx) = shared.trxs.get(handle.trx) else { return Code::Fatal };
        let (body, meta, flags) = {
            let mut state = trx.lock();
            match (state.stage, state.body.clone(), state.meta) {
                (Stage::Certified(seqno), Some(body), Some(meta)) => {
                    state.stage = Stage::Replaying(seqno);
                    (body, meta, state.flags)
                }
                (Stage::Failed(_), _, _) => return Code::TrxFail,
                (Stage::Collecting | Stage::Certifying | Stage::Certified(_) | Stage::Replaying(_), _, _) => {
                    return Code::Fatal;
                }
            }
        };
        trx.aborted.store(false, Relaxed);
        let Ok(ws) = WriteSet::parse(body) else { return Code::Fatal };
        if shared.monitor.wait_start(meta.seqno, meta.seqno.prev()).is_err() {
            return Code::TrxFail;
        }
        let applied = shared.host.server.apply(ctx, handle, flags, &ws.data(), &meta);
        if applied.ok {
            shared.status.counters.local_replays.fetch_add(1, Relaxed);
            Code::Ok
        } else {
            Code::Fatal
        }
    }

    /// `bf_seqno`: `None` for -1. The second value is the victim's seqno, `None` for -1.
    pub fn abort_certification(&self, bf_seqno: Option<Seqno>, victim: TrxId) -> (Code, Option<Seqno>) {
        let Some(trx) = self.shared.trxs.get(victim) else { return (Code::Ok, None) };
        let mut state = trx.lock();
        // The server names a view by its number, which is no position.
        let view = self.shared.calling_view();
        state.ended_at = state.ended_at.max(view);
        let bf_seqno = view.or(bf_seqno);
        self.shared.host.flight.note_often(None, || Event::Aborted {
            by: bf_seqno.unwrap_or(Seqno::ZERO),
            stage: state.stage.words().to_owned(),
        });
        let hit = victim::hit(state.stage, state.flags & flags::TRX_END != 0, bf_seqno);
        let abort = |seqno| self.shared.monitor.abort(seqno, &trx.aborted);
        let marked = match hit.mark {
            Mark::No => false,
            Mark::BeforeTurn(seqno) => abort(Some(seqno)),
            Mark::Anyway(turn) => abort(turn) || abort(None),
        };
        drop(state);
        if hit.recall {
            self.shared.commands.push(Command::Recall);
        }
        (if hit.gives_way(marked) { Code::Ok } else { Code::NotAllowed }, hit.seqno)
    }

    /// Orders the rollback of a streaming transaction; does not wait for its delivery (contract 6.4).
    pub fn rollback(&self, trx: TrxId) -> Code {
        let shared = &self.shared;
        let origin = shared.status.own_uuid();
        let head = Head {
            flags: flags::ROLLBACK | flags::PA_UNSAFE,
            last_seen: shared.monitor.left(),
            origin,
            trx: trx.0,
            conn: ConnId::NONE.0,
        };
        if !shared.status.group().member {
            return Code::ConnFail;
        }
        let body = WriteSetBuilder::new().finish(&head).into_bytes();
        shared.commands.push(Command::ProposeUnowned { body });
        Code::Ok
    }

    /// Leaves the section and pays a vote that is owed for it.
    pub(super) fn leave_order(&self, seqno: Seqno) -> bool {
        let left = self.shared.monitor.leave(seqno);
        match self.shared.votes.settle(seqno) {
            Settled::Nothing => {}
            Settled::Owed => self.shared.answer_vote(seqno),
            Settled::Decided(winner) => self.shared.compare_with_vote(seqno, winner),
        }
        left
    }

    /// This node failed where others may have succeeded: the group decides who is wrong.
    pub(super) fn vote_on_error(&self, seqno: Seqno, error: &[u8]) -> Code {
        let shared = &self.shared;
        let class = ErrorClass::of(error);
        shared.note_failure(seqno, class);
        let text = String::from_utf8_lossy(error);
        let text = text.trim_end_matches('\0');
        match shared.votes.failed(seqno, || shared.vote(seqno, class, text)).wait() {
            Some(winner) if winner == class => Code::Ok,
            Some(_) => {
                shared.give_up(texts::inconsistent_by_consensus(shared.data.history(), seqno), true);
                Code::NodeFail
            }
            None => Code::NodeFail,
        }
    }
}

/// The size that `repl.max_ws_size` is compared with: the one that Galera reckons with for the same write set, so that a
/// limit means the same to a user of either. That is a header of 64 bytes; 40 reserved for the header and the checksum of
/// each of three sets (keys, data, unordered data), used or not; 8 for each key and for its database, table and root.
pub(super) fn accounted_bytes(builder: &WriteSetBuilder) -> usize {
    64 + 3 * 40 + builder.data_bytes() + 8 * (builder.key_count() + 3)
}
