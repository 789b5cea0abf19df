//! The entry points of the table, in its order. Each: boundary, null checks, one call, mapping.

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use trireme_node::{Code, ConnId, Node, RecvCtx, Server, ToiKeys, TrxId, Wait};
use trireme_wsrep_sys::{self as sys, Wsrep};

use crate::boundary::{Instance, guard, guard_end, log_panic};
use crate::convert::{
    bytes as slice, elements, gtid_in, gtid_out, handle_in, handle_out, key_kind, meta_in, meta_out, optional_bytes,
    seqno_in, seqno_out, status, text,
};
use crate::loader::CAPABILITIES;
use crate::server::{CServer, c_string, init_args};
use crate::{services, stats};

type W = *mut Wsrep;

/// The whole of most entries that begin something: calls the node and gives its code.
///
/// # Safety
/// Clause **table**.
unsafe fn call(wsrep: W, entry: &str, call: impl FnOnce(&Node) -> Code) -> sys::Status {
    // SAFETY: the caller's promise.
    unsafe { guard(wsrep, entry, sys::NODE_FAIL, |i| status(call(&i.node))) }
}

/// The same for those that end something or ask. `failed`: what wsrep-lib takes for an answer when the call panicked.
///
/// # Safety
/// Clause **table**.
unsafe fn end(wsrep: W, entry: &str, failed: sys::Status, call: impl FnOnce(&Node) -> Code) -> sys::Status {
    let failed = |i: Option<&Instance>| if i.is_some() { failed } else { sys::NODE_FAIL };
    // SAFETY: the caller's promise.
    unsafe { guard_end(wsrep, entry, failed, |i| status(call(&i.node))) }
}

/// Where a node stands that cannot be paused, as nothing moves it any more: wsrep-lib takes an undefined seqno once, miscounts, and lets
/// the next statement that pauses wait for ever.
fn stands_at(instance: &Instance) -> sys::Seqno {
    instance.last_committed_known().seqno.map_or(0, |at| seqno_out(Some(at)))
}

/// For an ordered transaction whose turn or replay panicked: the server finishes it as if that had gone well, or rolls it back, and
/// either may differ from what the group has.
fn doubt_data(instance: &Instance) {
    // The reason of its panic was said when the first call failed.
    let _ = catch_unwind(AssertUnwindSafe(|| instance.node.doubt_data()));
}

// --- life ------------------------------------------------------------------------------------------------------------------

pub unsafe extern "C" fn init(wsrep: W, args: *const sys::InitArgs) -> sys::Status {
    // SAFETY: table, argument.
    let (Some(wsrep), Some(args)) = (unsafe { (wsrep.as_mut(), args.as_ref()) }) else { return sys::NODE_FAIL };
    if !wsrep.ctx.is_null() {
        return sys::NODE_FAIL; // initialised twice without `free`
    }
    let server = Arc::new(CServer::new(args));
    // SAFETY: argument.
    let made = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: argument.
        let args = unsafe { init_args(args) };
        Node::new(args, Arc::clone(&server) as Arc<dyn Server>).map(|node| {
            #[cfg(feature = "panics")]
            node.panic_if_asked("init");
            Instance::new(node, Arc::clone(&server))
        })
    }));
    match made {
        Ok(Ok(instance)) => {
            wsrep.ctx = Box::into_raw(Box::new(instance)).cast();
            sys::OK
        }
        Ok(Err(_already_logged)) => sys::NODE_FAIL,
        Err(payload) => {
            log_panic(&server, "init", &*payload);
            sys::NODE_FAIL
        }
    }
}

/// Called twice by the server; the second time there is no instance any more.
pub unsafe extern "C" fn free(wsrep: W) {
    // SAFETY: table.
    let Some(wsrep) = (unsafe { wsrep.as_mut() }) else { return };
    let instance = std::mem::replace(&mut wsrep.ctx, ptr::null_mut()).cast::<Instance>();
    // SAFETY: ctx: null or the instance that `init` stored.
    if unsafe { instance.as_ref() }.is_some_and(Instance::close) {
        // SAFETY: ctx: no entry is running, and no thread of the node is left. Made by `Box::into_raw` in `init`.
        drop(unsafe { Box::from_raw(instance) });
    }
}

pub unsafe extern "C" fn capabilities(wsrep: W) -> sys::Cap {
    // SAFETY: table.
    unsafe { guard_end(wsrep, "capabilities", |i| i.map_or(0, |_| CAPABILITIES), |_| CAPABILITIES) }
}

// --- options, encryption ---------------------------------------------------------------------------------------------------

pub unsafe extern "C" fn options_set(wsrep: W, options: *const c_char) -> sys::Status {
    if options.is_null() {
        return sys::NODE_FAIL;
    }
    // SAFETY: table, argument.
    unsafe { call(wsrep, "options_set", |node| node.options_set(&text(options))) }
}

/// From `malloc`; the server frees it.
pub unsafe extern "C" fn options_get(wsrep: W) -> *mut c_char {
    // SAFETY: table.
    let text = unsafe { guard_end(wsrep, "options_get", |i| i.map(Instance::options_known), |i| Some(i.options())) };
    let Some(text) = text else { return ptr::null_mut() };
    // SAFETY: malloc: a copy in the memory that the server will free; null when there is none.
    unsafe { libc::strdup(c_string(&text).as_ptr()) }
}

pub unsafe extern "C" fn enc_set_key(_: W, _: *const sys::EncKey) -> sys::Status {
    sys::NOT_IMPLEMENTED
}

// --- connection --------------------------------------------------------------------------------------------------------------

pub unsafe extern "C" fn connect(
    wsrep: W,
    cluster: *const c_char,
    url: *const c_char,
    donor: *const c_char,
    bootstrap: bool,
) -> sys::Status {
    // SAFETY: table, argument.
    unsafe { call(wsrep, "connect", |node| node.connect(&text(cluster), &text(url), &text(donor), bootstrap)) }
}

pub unsafe extern "C" fn disconnect(wsrep: W) -> sys::Status {
    // SAFETY: table.
    unsafe { end(wsrep, "disconnect", sys::NODE_FAIL, Node::disconnect) }
}

pub unsafe extern "C" fn recv(wsrep: W, ctx: *mut c_void) -> sys::Status {
    // SAFETY: table. The context is only handed back, on this thread.
    let answer = unsafe { guard_end(wsrep, "recv", |_| None, |i| Some(status(i.node.recv(RecvCtx(ctx))))) };
    // After a panic this thread may be the only one that can tell the server of the end, for which a shutdown waits.
    // SAFETY: as above.
    answer.unwrap_or_else(|| unsafe { end(wsrep, "recv", sys::NODE_FAIL, |node| node.recv_end(RecvCtx(ctx))) })
}

// --- transactions ------------------------------------------------------------------------------------------------------------

/// The server takes its snapshot where it likes: what a transaction has seen is settled when it is certified.
pub unsafe extern "C" fn assign_read_view(wsrep: W, _: *mut sys::WsHandle, _: *const sys::Gtid) -> sys::Status {
    // SAFETY: table.
    unsafe { call(wsrep, "assign_read_view", |_| Code::Ok) }
}

pub unsafe extern "C" fn certify(
    wsrep: W,
    conn: sys::ConnId,
    handle: *mut sys::WsHandle,
    flags: u32,
    meta: *mut sys::TrxMeta,
) -> sys::Status {
    // SAFETY: table, argument.
    unsafe { services::certify(wsrep, conn, handle, flags, meta, &mut || ()) }
}

/// Handle and meta of a write set that was ordered. `None`: a null, or a meta that is undefined.
///
/// # Safety
/// Clause **argument**.
unsafe fn ordered(
    handle: *const sys::WsHandle,
    meta: *const sys::TrxMeta,
) -> Option<(trireme_node::Handle, trireme_node::Meta)> {
    // SAFETY: the caller's promise.
    let (handle, meta) = unsafe { (handle.as_ref()?, meta.as_ref()?) };
    Some((handle_in(handle), meta_in(meta)?))
}

pub unsafe extern "C" fn commit_order_enter(
    wsrep: W,
    handle: *const sys::WsHandle,
    meta: *const sys::TrxMeta,
) -> sys::Status {
    // SAFETY: argument.
    let Some((handle, meta)) = (unsafe { ordered(handle, meta) }) else { return sys::NODE_FAIL };
    // SAFETY: table.
    unsafe {
        guard_end(
            wsrep,
            "commit_order_enter",
            |i| match i {
                // Of a client's transaction the server takes no other answer: it is committed by the group.
                Some(i) if !handle.is_applier() => {
                    doubt_data(i);
                    sys::OK
                }
                _ => sys::NODE_FAIL,
            },
            |i| status(i.node.commit_order_enter(handle, &meta)),
        )
    }
}

pub unsafe extern "C" fn commit_order_leave(
    wsrep: W,
    handle: *const sys::WsHandle,
    meta: *const sys::TrxMeta,
    error: *const sys::Buf,
) -> sys::Status {
    // SAFETY: argument.
    let Some((handle, meta)) = (unsafe { ordered(handle, meta) }) else { return sys::NODE_FAIL };
    // SAFETY: table, argument.
    unsafe {
        let failed = if handle.is_applier() { sys::NODE_FAIL } else { sys::OK };
        end(wsrep, "commit_order_leave", failed, |node| node.commit_order_leave(handle, &meta, optional_bytes(error)))
    }
}

pub unsafe extern "C" fn release(wsrep: W, handle: *mut sys::WsHandle) -> sys::Status {
    // SAFETY: argument.
    let Some(handle) = (unsafe { handle.as_mut() }) else { return sys::NODE_FAIL };
    // SAFETY: table.
    unsafe {
        end(wsrep, "release", sys::OK, |node| {
            let mut ours = handle_in(handle);
            let code = node.release(&mut ours);
            *handle = handle_out(ours);
            code
        })
    }
}

pub unsafe extern "C" fn replay_trx(wsrep: W, handle: *const sys::WsHandle, ctx: *mut c_void) -> sys::Status {
    // SAFETY: argument.
    let Some(handle) = (unsafe { handle.as_ref() }) else { return sys::NODE_FAIL };
    // SAFETY: table.
    unsafe {
        guard_end(
            wsrep,
            "replay_trx",
            |i| {
                // Anything but a failed certification ends the server.
                i.map_or(sys::NODE_FAIL, |i| {
                    doubt_data(i);
                    sys::TRX_FAIL
                })
            },
            |i| status(i.node.replay(handle_in(handle), RecvCtx(ctx))),
        )
    }
}

pub unsafe extern "C" fn abort_certification(
    wsrep: W,
    bf_seqno: sys::Seqno,
    victim: sys::TrxId,
    victim_seqno: *mut sys::Seqno,
) -> sys::Status {
    // Always written, also when nothing was done.
    let mut found = sys::SEQNO_UNDEFINED;
    // SAFETY: table.
    let answer = unsafe {
        end(wsrep, "abort_certification", sys::NODE_FAIL, |node| {
            let (code, seqno) = node.abort_certification(seqno_in(bf_seqno), TrxId(victim));
            found = seqno_out(seqno);
            code
        })
    };
    // SAFETY: argument: null or the caller's.
    if let Some(out) = unsafe { victim_seqno.as_mut() } {
        *out = found;
    }
    answer
}

/// The data is never used: the server passes none.
pub unsafe extern "C" fn rollback(wsrep: W, trx: sys::TrxId, _data: *const sys::Buf) -> sys::Status {
    // SAFETY: table.
    unsafe { call(wsrep, "rollback", |node| node.rollback(TrxId(trx))) }
}

pub unsafe extern "C" fn append_key(
    wsrep: W,
    handle: *mut sys::WsHandle,
    keys: *const sys::Key,
    count: usize,
    kind: c_int,
    _copy: bool,
) -> sys::Status {
    // SAFETY: argument.
    let Some(handle) = (unsafe { handle.as_mut() }) else { return sys::NODE_FAIL };
    let Some(kind) = key_kind(kind) else { return sys::NOT_IMPLEMENTED };
    // SAFETY: table, argument. The node copies what it keeps, so `copy` makes no difference.
    unsafe {
        call(wsrep, "append_key", |node| {
            let mut ours = handle_in(handle);
            let mut code = Code::Ok;
            for key in elements(keys, count) {
                code = node.append_key(&mut ours, &parts(key), kind);
                if code != Code::Ok {
                    break;
                }
            }
            *handle = handle_out(ours);
            code
        })
    }
}

/// # Safety
/// Clause **argument**.
unsafe fn parts<'a>(key: &sys::Key) -> Vec<&'a [u8]> {
    // SAFETY: the caller's promise.
    unsafe { elements(key.key_parts, key.key_parts_num) }
        .iter()
        // SAFETY: the caller's promise.
        .map(|part| unsafe { slice(part) })
        .collect()
}

pub unsafe extern "C" fn append_data(
    wsrep: W,
    handle: *mut sys::WsHandle,
    data: *const sys::Buf,
    count: usize,
    kind: c_int,
    _copy: bool,
) -> sys::Status {
    // SAFETY: argument.
    let Some(handle) = (unsafe { handle.as_mut() }) else { return sys::NODE_FAIL };
    if kind != sys::DATA_ORDERED {
        return sys::NOT_IMPLEMENTED; // see CAPABILITIES
    }
    // SAFETY: table, argument.
    unsafe {
        call(wsrep, "append_data", |node| {
            let mut ours = handle_in(handle);
            let mut code = Code::Ok;
            for piece in elements(data, count) {
                code = node.append_data(&mut ours, slice(piece));
                if code != Code::Ok {
                    break;
                }
            }
            *handle = handle_out(ours);
            code
        })
    }
}

// --- waiting -----------------------------------------------------------------------------------------------------------------

pub unsafe extern "C" fn sync_wait(
    wsrep: W,
    upto: *mut sys::Gtid,
    timeout_s: c_int,
    out: *mut sys::Gtid,
) -> sys::Status {
    // SAFETY: argument; read before anything is written, as both may be the same.
    let upto = unsafe { upto.as_ref() }.map(gtid_in);
    let timeout = u64::try_from(timeout_s).map_or(Wait::Default, |s| Wait::For(Duration::from_secs(s)));
    let mut reached = sys::Gtid::UNDEFINED;
    // SAFETY: table.
    let answer = unsafe {
        end(wsrep, "sync_wait", sys::NODE_FAIL, |node| {
            let (code, position) = node.sync_wait(upto, timeout);
            reached = gtid_out(position);
            code
        })
    };
    // SAFETY: argument: null or the caller's.
    if let Some(out) = unsafe { out.as_mut() } {
        *out = reached;
    }
    answer
}

pub unsafe extern "C" fn last_committed_id(wsrep: W, out: *mut sys::Gtid) -> sys::Status {
    // SAFETY: argument.
    let Some(out) = (unsafe { out.as_mut() }) else { return sys::NODE_FAIL };
    // SAFETY: table.
    let (answer, gtid) = unsafe {
        guard_end(
            wsrep,
            "last_committed_id",
            |i| {
                // wsrep-lib throws for any other answer, at every question for the status.
                i.map_or((sys::NODE_FAIL, sys::Gtid::UNDEFINED), |i| (sys::OK, gtid_out(i.last_committed_known())))
            },
            |i| (sys::OK, gtid_out(i.last_committed())),
        )
    };
    *out = gtid;
    answer
}

// --- total order isolation -----------------------------------------------------------------------------------------------------

pub unsafe extern "C" fn to_execute_start(
    wsrep: W,
    conn: sys::ConnId,
    keys: *const sys::Key,
    key_count: usize,
    action: *const sys::Buf,
    action_count: usize,
    given: u32,
    meta: *mut sys::TrxMeta,
) -> sys::Status {
    // SAFETY: argument.
    let Some(meta) = (unsafe { meta.as_mut() }) else { return sys::NODE_FAIL };
    *meta = meta_out(None);
    // SAFETY: table, argument.
    unsafe {
        call(wsrep, "to_execute_start", |node| {
            let pieces: Vec<&[u8]> = elements(action, action_count).iter().map(|piece| slice(piece)).collect();
            let keys = elements(keys, key_count).iter().map(|key| parts(key)).collect();
            let (code, ordered) =
                node.toi_start(ConnId(conn), ToiKeys { keys, action: Bytes::from(pieces.concat()) }, given);
            *meta = meta_out(ordered);
            code
        })
    }
}

pub unsafe extern "C" fn to_execute_end(wsrep: W, conn: sys::ConnId, error: *const sys::Buf) -> sys::Status {
    // SAFETY: table, argument.
    unsafe { end(wsrep, "to_execute_end", sys::NODE_FAIL, |node| node.toi_end(ConnId(conn), optional_bytes(error))) }
}

// --- state transfer --------------------------------------------------------------------------------------------------------------

pub unsafe extern "C" fn sst_sent(wsrep: W, position: *const sys::Gtid, code: c_int) -> sys::Status {
    // SAFETY: argument.
    let Some(position) = (unsafe { position.as_ref() }) else { return sys::NODE_FAIL };
    // SAFETY: table.
    unsafe { end(wsrep, "sst_sent", sys::NODE_FAIL, |node| node.sst_sent(gtid_in(position), code)) }
}

pub unsafe extern "C" fn sst_received(
    wsrep: W,
    position: *const sys::Gtid,
    _state: *const sys::Buf,
    code: c_int,
) -> sys::Status {
    // SAFETY: argument.
    let Some(position) = (unsafe { position.as_ref() }) else { return sys::NODE_FAIL };
    // SAFETY: table.
    unsafe { end(wsrep, "sst_received", sys::NODE_FAIL, |node| node.sst_received(gtid_in(position), code)) }
}

// --- status ------------------------------------------------------------------------------------------------------------------------

pub unsafe extern "C" fn stats_get(wsrep: W) -> *mut sys::StatsVar {
    // SAFETY: table.
    unsafe { guard_end(wsrep, "stats_get", |_| ptr::null_mut(), |i| stats::allocate(&i.node.stats())) }
}

/// Needs no instance: an array may be given back after a panic, too.
pub unsafe extern "C" fn stats_free(_: W, vars: *mut sys::StatsVar) {
    // SAFETY: argument: null or an array from `stats_get`, given back once.
    unsafe { stats::free(vars) }
}

pub unsafe extern "C" fn stats_reset(wsrep: W) {
    // SAFETY: table.
    unsafe { guard_end(wsrep, "stats_reset", |_| (), |i| i.node.stats_reset()) }
}

// --- pausing -----------------------------------------------------------------------------------------------------------------------

pub unsafe extern "C" fn pause(wsrep: W) -> sys::Seqno {
    // SAFETY: table.
    unsafe {
        guard_end(
            wsrep,
            "pause",
            |i| i.map_or(sys::SEQNO_UNDEFINED, stands_at),
            |i| i.node.pause().map_or_else(|| stands_at(i), |at| seqno_out(Some(at))),
        )
    }
}

pub unsafe extern "C" fn resume(wsrep: W) -> sys::Status {
    // SAFETY: table.
    unsafe { end(wsrep, "resume", sys::OK, Node::resume) }
}

pub unsafe extern "C" fn desync(wsrep: W) -> sys::Status {
    // SAFETY: table.
    unsafe { call(wsrep, "desync", Node::desync) }
}

pub unsafe extern "C" fn resync(wsrep: W) -> sys::Status {
    // SAFETY: table.
    unsafe { guard_end(wsrep, "resync", |i| i.map_or(sys::NODE_FAIL, |_| sys::OK), |i| status(i.node.resync())) }
}

// --- never called by a server --------------------------------------------------------------------------------------------------------

pub unsafe extern "C" fn free_connection(_: W, _: sys::ConnId) -> sys::Status {
    sys::NOT_IMPLEMENTED
}
pub unsafe extern "C" fn preordered_collect(
    _: W,
    _: *mut sys::PoHandle,
    _: *const sys::Buf,
    _: usize,
    _: bool,
) -> sys::Status {
    sys::NOT_IMPLEMENTED
}
pub unsafe extern "C" fn preordered_commit(
    _: W,
    _: *mut sys::PoHandle,
    _: *const sys::Uuid,
    _: u32,
    _: c_int,
    _: bool,
) -> sys::Status {
    sys::NOT_IMPLEMENTED
}
pub unsafe extern "C" fn snapshot(_: W, _: *const sys::Buf, _: *const c_char) -> sys::Status {
    sys::NOT_IMPLEMENTED
}
pub unsafe extern "C" fn lock(_: W, _: *const c_char, _: bool, _: u64, _: i64) -> sys::Status {
    sys::NOT_IMPLEMENTED
}
pub unsafe extern "C" fn unlock(_: W, _: *const c_char, _: u64) -> sys::Status {
    sys::NOT_IMPLEMENTED
}
pub unsafe extern "C" fn is_locked(_: W, _: *const c_char, _: *mut u64, _: *mut sys::Uuid) -> bool {
    false
}
