//! The table of entry points that `wsrep_loader` fills in.

use core::ffi::{c_char, c_int, c_void};

use crate::{
    Buf, Cap, ConnId, EncKey, Gtid, InitArgs, Key, PoHandle, Seqno, StatsVar, Status, TrxId, TrxMeta, Uuid, WsHandle,
};

type W = *mut Wsrep;

/// `wsrep_t`. The order is the interface. The memory comes uninitialised from `malloc`: a loader writes all 45 fields.
#[repr(C)]
pub struct Wsrep {
    pub version: *const c_char,
    pub init: Option<unsafe extern "C" fn(W, *const InitArgs) -> Status>,
    pub capabilities: Option<unsafe extern "C" fn(W) -> Cap>,
    pub options_set: Option<unsafe extern "C" fn(W, *const c_char) -> Status>,
    pub options_get: Option<unsafe extern "C" fn(W) -> *mut c_char>,
    pub enc_set_key: Option<unsafe extern "C" fn(W, *const EncKey) -> Status>,
    pub connect: Option<unsafe extern "C" fn(W, *const c_char, *const c_char, *const c_char, bool) -> Status>,
    pub disconnect: Option<unsafe extern "C" fn(W) -> Status>,
    pub recv: Option<unsafe extern "C" fn(W, *mut c_void) -> Status>,
    pub assign_read_view: Option<unsafe extern "C" fn(W, *mut WsHandle, *const Gtid) -> Status>,
    pub certify: Option<unsafe extern "C" fn(W, ConnId, *mut WsHandle, u32, *mut TrxMeta) -> Status>,
    pub commit_order_enter: Option<unsafe extern "C" fn(W, *const WsHandle, *const TrxMeta) -> Status>,
    pub commit_order_leave: Option<unsafe extern "C" fn(W, *const WsHandle, *const TrxMeta, *const Buf) -> Status>,
    pub release: Option<unsafe extern "C" fn(W, *mut WsHandle) -> Status>,
    pub replay_trx: Option<unsafe extern "C" fn(W, *const WsHandle, *mut c_void) -> Status>,
    pub abort_certification: Option<unsafe extern "C" fn(W, Seqno, TrxId, *mut Seqno) -> Status>,
    pub rollback: Option<unsafe extern "C" fn(W, TrxId, *const Buf) -> Status>,
    pub append_key: Option<unsafe extern "C" fn(W, *mut WsHandle, *const Key, usize, c_int, bool) -> Status>,
    pub append_data: Option<unsafe extern "C" fn(W, *mut WsHandle, *const Buf, usize, c_int, bool) -> Status>,
    pub sync_wait: Option<unsafe extern "C" fn(W, *mut Gtid, c_int, *mut Gtid) -> Status>,
    pub last_committed_id: Option<unsafe extern "C" fn(W, *mut Gtid) -> Status>,
    pub free_connection: Option<unsafe extern "C" fn(W, ConnId) -> Status>,
    pub to_execute_start:
        Option<unsafe extern "C" fn(W, ConnId, *const Key, usize, *const Buf, usize, u32, *mut TrxMeta) -> Status>,
    pub to_execute_end: Option<unsafe extern "C" fn(W, ConnId, *const Buf) -> Status>,
    pub preordered_collect: Option<unsafe extern "C" fn(W, *mut PoHandle, *const Buf, usize, bool) -> Status>,
    pub preordered_commit: Option<unsafe extern "C" fn(W, *mut PoHandle, *const Uuid, u32, c_int, bool) -> Status>,
    pub sst_sent: Option<unsafe extern "C" fn(W, *const Gtid, c_int) -> Status>,
    pub sst_received: Option<unsafe extern "C" fn(W, *const Gtid, *const Buf, c_int) -> Status>,
    pub snapshot: Option<unsafe extern "C" fn(W, *const Buf, *const c_char) -> Status>,
    pub stats_get: Option<unsafe extern "C" fn(W) -> *mut StatsVar>,
    pub stats_free: Option<unsafe extern "C" fn(W, *mut StatsVar)>,
    pub stats_reset: Option<unsafe extern "C" fn(W)>,
    pub pause: Option<unsafe extern "C" fn(W) -> Seqno>,
    pub resume: Option<unsafe extern "C" fn(W) -> Status>,
    pub desync: Option<unsafe extern "C" fn(W) -> Status>,
    pub resync: Option<unsafe extern "C" fn(W) -> Status>,
    pub lock: Option<unsafe extern "C" fn(W, *const c_char, bool, u64, i64) -> Status>,
    pub unlock: Option<unsafe extern "C" fn(W, *const c_char, u64) -> Status>,
    pub is_locked: Option<unsafe extern "C" fn(W, *const c_char, *mut u64, *mut Uuid) -> bool>,
    pub provider_name: *const c_char,
    pub provider_version: *const c_char,
    pub provider_vendor: *const c_char,
    /// Called twice on unloading; the second time `ctx` is null.
    pub free: Option<unsafe extern "C" fn(W)>,
    /// The server's.
    pub dlh: *mut c_void,
    /// The provider's.
    pub ctx: *mut c_void,
}

macro_rules! calls {
    ($($call:ident)*) => {
        /// Every call of the table, in its order.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Call {
            $($call),*
        }

        impl Call {
            pub const ALL: &[Call] = &[$(Call::$call),*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Call::$call => stringify!($call)),*
                }
            }
        }

        // A call that is missing in the list does not compile.
        const _: fn(&Wsrep) = |table| {
            let Wsrep {
                $($call: _,)*
                version: _,
                provider_name: _,
                provider_version: _,
                provider_vendor: _,
                dlh: _,
                ctx: _,
            } = table;
        };
    };
}

calls! {
    init
    capabilities
    options_set
    options_get
    enc_set_key
    connect
    disconnect
    recv
    assign_read_view
    certify
    commit_order_enter
    commit_order_leave
    release
    replay_trx
    abort_certification
    rollback
    append_key
    append_data
    sync_wait
    last_committed_id
    free_connection
    to_execute_start
    to_execute_end
    preordered_collect
    preordered_commit
    sst_sent
    sst_received
    snapshot
    stats_get
    stats_free
    stats_reset
    pause
    resume
    desync
    resync
    lock
    unlock
    is_locked
    free
}
