//! `Node`: the calls of the wsrep API on plain values. (Skeleton: bodies follow.)

use std::sync::Arc;

use bytes::Bytes;
use trireme_types::Seqno;

use crate::*;

/// One provider instance. All methods may be called from any thread at any time after `new`.
pub struct Node {}

impl Node {
    /// `Err` carries the reason, already logged; the provider answers NODE_FAIL.
    pub fn new(args: InitArgs, server: Arc<dyn Server>) -> Result<Node, String> {
        let _ = (args, server);
        todo!()
    }
    /// Leaves the group if need be and joins every thread. Idempotent.
    pub fn close(&self) {
        todo!()
    }
    pub fn connect(&self, cluster: &str, url: &str, donor: &str, bootstrap: bool) -> Code {
        let _ = (cluster, url, donor, bootstrap);
        todo!()
    }
    pub fn disconnect(&self) -> Code {
        todo!()
    }
    pub fn recv(&self, ctx: RecvCtx) -> Code {
        let _ = ctx;
        todo!()
    }
    /// Several assignments in one string.
    pub fn options_set(&self, text: &str) -> Code {
        let _ = text;
        todo!()
    }
    pub fn options_get(&self) -> String {
        todo!()
    }
    pub fn stats(&self) -> Vec<(String, StatValue)> {
        todo!()
    }
    pub fn stats_reset(&self) {
        todo!()
    }

    // --- local transactions: `handle.opaque` is 0 on first contact and set by append_* -----------------------------

    pub fn append_key(&self, handle: &mut Handle, parts: &[&[u8]], kind: KeyKind) -> Code {
        let _ = (handle, parts, kind);
        todo!()
    }
    pub fn append_data(&self, handle: &mut Handle, data: &[u8]) -> Code {
        let _ = (handle, data);
        todo!()
    }
    /// `sequenced` is called once, as early as the place among this node's write sets is fixed, at the latest on return.
    pub fn certify(&self, conn: u64, handle: &mut Handle, flags: u32, sequenced: &mut dyn FnMut()) -> (Code, Option<Meta>) {
        let _ = (conn, handle, flags, sequenced);
        todo!()
    }
    pub fn commit_order_enter(&self, handle: Handle, meta: &Meta) -> Code {
        let _ = (handle, meta);
        todo!()
    }
    /// `error`: empty when the write set was applied.
    pub fn commit_order_leave(&self, handle: Handle, meta: &Meta, error: &[u8]) -> Code {
        let _ = (handle, meta, error);
        todo!()
    }
    pub fn release(&self, handle: &mut Handle) -> Code {
        let _ = handle;
        todo!()
    }
    pub fn replay(&self, handle: Handle, ctx: RecvCtx) -> Code {
        let _ = (handle, ctx);
        todo!()
    }
    /// `bf_seqno`: `None` for -1. The second value is the victim's seqno, `None` for -1.
    pub fn abort_certification(&self, bf_seqno: Option<Seqno>, victim: u64) -> (Code, Option<Seqno>) {
        let _ = (bf_seqno, victim);
        todo!()
    }
    pub fn rollback(&self, trx: u64) -> Code {
        let _ = trx;
        todo!()
    }
    pub fn assign_read_view(&self, handle: &mut Handle, position: Option<Gtid>) -> Code {
        let _ = (handle, position);
        todo!()
    }

    // --- total order isolation -------------------------------------------------------------------------------------

    pub fn toi_start(&self, conn: u64, keys: ToiKeys<'_>, flags: u32) -> (Code, Option<Meta>) {
        let _ = (conn, keys, flags);
        todo!()
    }
    pub fn toi_end(&self, conn: u64, error: &[u8]) -> Code {
        let _ = (conn, error);
        todo!()
    }

    // --- waiting, pausing ------------------------------------------------------------------------------------------

    /// `upto` `None`: a causal read. The second value is the position reached.
    pub fn sync_wait(&self, upto: Option<Gtid>, timeout: Wait) -> (Code, Gtid) {
        let _ = (upto, timeout);
        todo!()
    }
    pub fn last_committed(&self) -> Gtid {
        todo!()
    }
    /// Last seqno that has left commit order, or `None` when pausing failed.
    pub fn pause(&self) -> Option<Seqno> {
        todo!()
    }
    pub fn resume(&self) -> Code {
        todo!()
    }
    pub fn desync(&self) -> Code {
        todo!()
    }
    pub fn resync(&self) -> Code {
        todo!()
    }

    // --- state transfer --------------------------------------------------------------------------------------------

    pub fn sst_sent(&self, position: Gtid, code: i32) -> Code {
        let _ = (position, code);
        todo!()
    }
    pub fn sst_received(&self, position: Gtid, state: Bytes, code: i32) -> Code {
        let _ = (position, state, code);
        todo!()
    }

    /// From a signal handler: async-signal-safe. Cuts or restores the network of every node of the process.
    pub fn isolate_all(mode: i32) -> bool {
        let _ = mode;
        todo!()
    }
}
