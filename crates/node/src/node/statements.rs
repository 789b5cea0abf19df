//! Statements in total order isolation (contract 6.1).

use super::transactions::accounted_bytes;
use super::{Node, OWN_LEAVE};
use crate::command::{Command, Outcome};
use crate::saved::Saved;
use crate::slot::Slot;
use crate::threads::lock;
use crate::{Code, ConnId, KeyKind, Level, Meta, Source, ToiKeys, TrxId, flags};
use std::sync::Arc;
use std::time::Instant;
use trireme_certification::{Head, WriteSetBuilder};
use trireme_types::Seqno;

impl Node {
    pub fn toi_start(&self, conn: ConnId, keys: ToiKeys<'_>, flags: u32) -> (Code, Option<Meta>) {
        let shared = &self.shared;
        if flags != flags::TRX_START | flags::TRX_END {
            // One half of a non-blocking operation.
            return (Code::NotImplemented, None);
        }
        if !shared.data.save(Saved::is_writable) {
            let reason = "grastate.dat cannot be written, so a crash in the middle of a statement would not be noticed: no DDL is executed here \
                          until the data directory is writable again";
            shared.host.log(Level::Error, reason.into());
            return (Code::ConnFail, None);
        }
        let mut builder = WriteSetBuilder::new();
        for key in &keys.keys {
            if builder.add_key(key.iter().copied(), KeyKind::Exclusive).is_err() {
                return (Code::TrxFail, None);
            }
        }
        builder.add_data(&keys.action);
        let limit = shared.host.settings.max_ws_size();
        let size = accounted_bytes(&builder);
        if size > limit {
            self.too_big(size, limit);
            return (Code::SizeExceeded, None);
        }
        let origin = shared.status.own_uuid();
        let head = Head {
            flags: flags | flags::ISOLATION,
            last_seen: shared.monitor.left(),
            origin,
            trx: TrxId::NONE.0,
            conn: conn.0,
        };
        let slot = Arc::new(Slot::default());
        let body = builder.finish(&head);
        shared.commands.push(Command::Propose { body, patient: true, trx: None, slot: slot.clone() });
        match slot.wait() {
            Outcome::NotSent => (Code::ConnFail, None),
            Outcome::Abandoned => (Code::NodeFail, None),
            Outcome::Ordered { seqno, depends_on, .. } => {
                let meta = shared.meta(seqno, Source { trx: TrxId::NONE, conn }, depends_on);
                lock(&shared.tois).insert(conn, seqno);
                if shared.monitor.enter_when_ended(seqno).is_err() {
                    return (Code::NodeFail, Some(meta));
                }
                if !self.begin_statement(seqno) {
                    // Without a position, so that the server does not close what has not happened.
                    lock(&shared.tois).remove(&conn);
                    return (Code::NodeFail, None);
                }
                (Code::Ok, Some(meta))
            }
        }
    }

    /// A statement that is ordered is about to be executed. False: a crash in the middle of it would not be noticed, because the state
    /// file cannot be written (rule 26). The process ends with its data before the statement, which is executed when it comes back. To
    /// leave the group would not do: what is ordered behind the statement would be committed without it.
    pub(super) fn begin_statement(&self, seqno: Seqno) -> bool {
        let shared = &self.shared;
        let begun = shared.data.save(Saved::begin_unsafe);
        if !begun {
            shared.die(format!(
                "DDL statement {seqno} cannot be marked in grastate.dat, so it must not be executed. Need to abort. Make the data directory \
                 writable and start the server again."
            ));
        }
        begun
    }

    /// A statement has been executed. Its mark goes once its effect and the engine's position behind it are on disk: after a loss of power the
    /// statement would else be executed again over its own effect, or be taken for executed where it was not. Where they cannot be synced the
    /// mark stays (rule 26).
    pub(super) fn end_statement(&self, seqno: Seqno) {
        let shared = &self.shared;
        shared.data.save(Saved::end_statement);
        if let Err(error) = shared.data.sync_statements() {
            shared.host.log(
                Level::Warn,
                format!(
                    "what DDL statement {seqno} did cannot be synced, so that grastate.dat keeps its mark, and a crash of this server needs a full \
                     copy: {error}"
                ),
            );
        }
    }

    pub fn toi_end(&self, conn: ConnId, error: &[u8]) -> Code {
        let shared = &self.shared;
        let Some(seqno) = lock(&shared.tois).remove(&conn) else { return Code::Ok };
        if !error.is_empty() {
            // A losing TOI originator still hears OK; it leaves by the two views (contract 5.4).
            let _ = self.vote_on_error(seqno, error);
        }
        self.leave_order(seqno);
        shared.monitor.end(seqno);
        self.end_statement(seqno);
        if shared.data.is_inconsistent() {
            // The client's next statement is to meet a server that knows. It is then told that the node has left, and not of a lock wait.
            shared.queue.wait_empty(Instant::now() + OWN_LEAVE);
        }
        Code::Ok
    }
}
