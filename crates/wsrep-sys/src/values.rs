//! The values that cross the edge. Sizes and offsets are asserted in `layout.rs`.

use core::ffi::{c_char, c_int, c_void};

use crate::{ENC_IV_LEN, INCOMING_LEN, MEMBER_NAME_LEN};

/// `wsrep_status_t`.
pub type Status = c_int;
/// `wsrep_cb_status_t`.
pub type CbStatus = c_int;
pub type Seqno = i64;
pub type TrxId = u64;
pub type ConnId = u64;
/// `wsrep_cap_t`.
pub type Cap = u32;

/// The C side is a union with `size_t`, which is where the alignment comes from.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Uuid {
    pub data: [u8; 16],
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gtid {
    pub uuid: Uuid,
    pub seqno: Seqno,
}

impl Gtid {
    pub const UNDEFINED: Gtid = Gtid { uuid: Uuid { data: [0; 16] }, seqno: crate::SEQNO_UNDEFINED };
}

/// Source of a transaction: member, transaction and connection there.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stid {
    pub node: Uuid,
    pub trx: TrxId,
    pub conn: ConnId,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrxMeta {
    pub gtid: Gtid,
    pub stid: Stid,
    pub depends_on: Seqno,
}

impl TrxMeta {
    /// A server passes this in, and it must come back for a write set that was never ordered.
    pub const UNDEFINED: TrxMeta = TrxMeta {
        gtid: Gtid::UNDEFINED,
        stid: Stid { node: Uuid { data: [0; 16] }, trx: crate::TRX_ID_NONE, conn: u64::MAX },
        depends_on: crate::SEQNO_UNDEFINED,
    };
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Buf {
    pub ptr: *const c_void,
    pub len: usize,
}

/// The server copies this by value between calls: identify a write set by its content, never by the address.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WsHandle {
    pub trx_id: TrxId,
    pub opaque: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoHandle {
    pub opaque: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemberInfo {
    pub id: Uuid,
    /// Need not end in NUL.
    pub name: [u8; MEMBER_NAME_LEN],
    /// Need not end in NUL.
    pub incoming: [u8; INCOMING_LEN],
}

/// Head of a view; `memb_num` entries of [`MemberInfo`] follow at offset 56.
#[repr(C)]
pub struct ViewInfo {
    pub state_id: Gtid,
    pub view: Seqno,
    pub status: c_int,
    pub capabilities: Cap,
    pub my_idx: c_int,
    pub memb_num: c_int,
    pub proto_ver: c_int,
    pub members: [MemberInfo; 0],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub key_parts: *const Buf,
    pub key_parts_num: usize,
}

pub type EncKey = Buf;

#[repr(C)]
pub struct EncCtx {
    pub key: *const EncKey,
    pub iv: *const [c_char; ENC_IV_LEN],
    pub ctx: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union StatsValue {
    pub i: i64,
    pub d: f64,
    pub s: *const c_char,
}

/// One status variable; an array of them ends with a null `name`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct StatsVar {
    pub name: *const c_char,
    pub ty: c_int,
    pub value: StatsValue,
}

/// Argument of `wsrep_certify_v1`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SeqCb {
    pub ctx: *mut c_void,
    pub fun: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
}

// --- callbacks -------------------------------------------------------------------------------------------------------

pub type LogCb = unsafe extern "C-unwind" fn(c_int, *const c_char);
/// (app_ctx, view)
pub type ConnectedCb = unsafe extern "C-unwind" fn(*mut c_void, *const ViewInfo) -> CbStatus;
/// (app_ctx, recv_ctx, view, state, state_len)
pub type ViewCb =
    unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *const ViewInfo, *const c_char, usize) -> CbStatus;
/// (app_ctx, out request from malloc, out length)
pub type SstRequestCb = unsafe extern "C-unwind" fn(*mut c_void, *mut *mut c_void, *mut usize) -> CbStatus;
/// (app_ctx, context, input, output, direction, last)
pub type EncryptCb =
    unsafe extern "C-unwind" fn(*mut c_void, *mut EncCtx, *const Buf, *mut c_void, c_int, bool) -> c_int;
/// (recv_ctx, handle, flags, data, meta, out exit_loop)
pub type ApplyCb =
    unsafe extern "C-unwind" fn(*mut c_void, *const WsHandle, u32, *const Buf, *const TrxMeta, *mut bool) -> CbStatus;
/// (recv_ctx, data)
pub type UnorderedCb = unsafe extern "C-unwind" fn(*mut c_void, *const Buf) -> CbStatus;
/// (app_ctx, recv_ctx, request, position, state, bypass)
pub type SstDonateCb =
    unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *const Buf, *const Gtid, *const Buf, bool) -> CbStatus;
/// (app_ctx)
pub type SyncedCb = unsafe extern "C-unwind" fn(*mut c_void) -> CbStatus;

/// The arguments of `init`. Everything pointed at lives only as long as the call.
#[repr(C)]
pub struct InitArgs {
    pub app_ctx: *mut c_void,
    pub node_name: *const c_char,
    pub node_address: *const c_char,
    pub node_incoming: *const c_char,
    pub data_dir: *const c_char,
    pub options: *const c_char,
    pub proto_ver: c_int,
    pub state_id: *const Gtid,
    pub state: *const Buf,
    pub logger_cb: Option<LogCb>,
    pub connected_cb: Option<ConnectedCb>,
    pub view_cb: Option<ViewCb>,
    pub sst_request_cb: Option<SstRequestCb>,
    pub encrypt_cb: Option<EncryptCb>,
    pub apply_cb: Option<ApplyCb>,
    pub unordered_cb: Option<UnorderedCb>,
    pub sst_donate_cb: Option<SstDonateCb>,
    pub synced_cb: Option<SyncedCb>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_undefined_meta_has_no_defined_part() {
        let meta = TrxMeta::UNDEFINED;
        assert_eq!(meta.gtid, Gtid { uuid: Uuid::default(), seqno: -1 });
        assert_eq!((meta.stid.node, meta.stid.trx, meta.depends_on), (Uuid::default(), u64::MAX, -1));
    }
}
