//! Numbers with names.

use core::ffi::{CStr, c_int};

/// Must be what `wsrep_interface_version` points at.
pub const INTERFACE_VERSION: &CStr = c"26";

// --- wsrep_status --------------------------------------------------------------------------------------------------

pub const OK: c_int = 0;
pub const WARNING: c_int = 1;
pub const TRX_MISSING: c_int = 2;
pub const TRX_FAIL: c_int = 3;
pub const BF_ABORT: c_int = 4;
pub const SIZE_EXCEEDED: c_int = 5;
pub const CONN_FAIL: c_int = 6;
pub const NODE_FAIL: c_int = 7;
pub const FATAL: c_int = 8;
pub const NOT_IMPLEMENTED: c_int = 9;
pub const NOT_ALLOWED: c_int = 10;

// --- result of a callback ------------------------------------------------------------------------------------------

pub const CB_SUCCESS: c_int = 0;
/// Any other number means failure too.
pub const CB_FAILURE: c_int = 1;

// --- log levels ----------------------------------------------------------------------------------------------------

pub const LOG_FATAL: c_int = 0;
pub const LOG_ERROR: c_int = 1;
pub const LOG_WARN: c_int = 2;
pub const LOG_INFO: c_int = 3;
pub const LOG_DEBUG: c_int = 4;

// --- view status: the server throws at any other value ---------------------------------------------------------------

pub const VIEW_PRIMARY: c_int = 0;
pub const VIEW_NON_PRIMARY: c_int = 1;
pub const VIEW_DISCONNECTED: c_int = 2;

// --- key, data and statistics types ----------------------------------------------------------------------------------

pub const KEY_SHARED: c_int = 0;
pub const KEY_REFERENCE: c_int = 1;
pub const KEY_UPDATE: c_int = 2;
pub const KEY_EXCLUSIVE: c_int = 3;

pub const DATA_ORDERED: c_int = 0;
pub const DATA_UNORDERED: c_int = 1;
pub const DATA_ANNOTATION: c_int = 2;

pub const STATS_STRING: c_int = 0;
pub const STATS_INT64: c_int = 1;
pub const STATS_DOUBLE: c_int = 2;

pub const ENC_ENCRYPT: c_int = 0;
pub const ENC_DECRYPT: c_int = 1;

// --- node isolation ----------------------------------------------------------------------------------------------------

pub const ISOLATION_NOT_ISOLATED: c_int = 0;
pub const ISOLATION_ISOLATED: c_int = 1;
/// Isolated, and the server is told so by a disconnected view.
pub const ISOLATION_FORCE_DISCONNECT: c_int = 2;
pub const ISOLATION_SUCCESS: c_int = 0;
pub const ISOLATION_INVALID_VALUE: c_int = 1;

// --- allowlist service ---------------------------------------------------------------------------------------------------

pub const ALLOWLIST_KEY_IP: c_int = 0;
pub const ALLOWLIST_KEY_SSL: c_int = 1;

// --- flags of a parameter in the config service: no type bit means string ---------------------------------------------------

pub const PARAM_DEPRECATED: c_int = 1;
pub const PARAM_READONLY: c_int = 2;
pub const PARAM_TYPE_BOOL: c_int = 4;
pub const PARAM_TYPE_INTEGER: c_int = 8;
pub const PARAM_TYPE_DOUBLE: c_int = 16;

// --- write-set flags -----------------------------------------------------------------------------------------------------

pub const FLAG_TRX_END: u32 = 1 << 0;
pub const FLAG_ROLLBACK: u32 = 1 << 1;
pub const FLAG_ISOLATION: u32 = 1 << 2;
pub const FLAG_PA_UNSAFE: u32 = 1 << 3;
pub const FLAG_COMMUTATIVE: u32 = 1 << 4;
pub const FLAG_NATIVE: u32 = 1 << 5;
pub const FLAG_TRX_START: u32 = 1 << 6;
pub const FLAG_TRX_PREPARE: u32 = 1 << 7;
pub const FLAG_SNAPSHOT: u32 = 1 << 8;
pub const FLAG_IMPLICIT_DEPS: u32 = 1 << 9;
pub const FLAGS_MASK: u32 = (1 << 10) - 1;

// --- capabilities ----------------------------------------------------------------------------------------------------------

pub const CAP_MULTI_MASTER: u32 = 1 << 0;
pub const CAP_CERTIFICATION: u32 = 1 << 1;
pub const CAP_PARALLEL_APPLYING: u32 = 1 << 2;
pub const CAP_TRX_REPLAY: u32 = 1 << 3;
pub const CAP_ISOLATION: u32 = 1 << 4;
pub const CAP_PAUSE: u32 = 1 << 5;
pub const CAP_CAUSAL_READS: u32 = 1 << 6;
pub const CAP_CAUSAL_TRX: u32 = 1 << 7;
pub const CAP_INCREMENTAL_WRITESET: u32 = 1 << 8;
pub const CAP_SESSION_LOCKS: u32 = 1 << 9;
pub const CAP_DISTRIBUTED_LOCKS: u32 = 1 << 10;
pub const CAP_CONSISTENCY_CHECK: u32 = 1 << 11;
pub const CAP_UNORDERED: u32 = 1 << 12;
pub const CAP_ANNOTATION: u32 = 1 << 13;
pub const CAP_PREORDERED: u32 = 1 << 14;
/// The only bit that changes what the server does: without it, it refuses a non-zero `wsrep_trx_fragment_size`.
pub const CAP_STREAMING: u32 = 1 << 15;
pub const CAP_SNAPSHOT: u32 = 1 << 16;
pub const CAP_NBO: u32 = 1 << 17;

// --- sizes and special values --------------------------------------------------------------------------------------------------

pub const SEQNO_UNDEFINED: i64 = -1;
/// `wsrep_trx_id_t` of "no transaction".
pub const TRX_ID_NONE: u64 = u64::MAX;
pub const MEMBER_NAME_LEN: usize = 32;
pub const INCOMING_LEN: usize = 256;
pub const ENC_IV_LEN: usize = 32;
/// A key has at most this many parts.
pub const KEY_PARTS_MAX: usize = 3;
