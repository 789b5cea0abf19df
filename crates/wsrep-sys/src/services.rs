//! Structures of the optional services, and the types of the symbols that are looked up by name.

use core::ffi::{c_char, c_int, c_void};

use crate::{Buf, ConnId, SeqCb, Status, TrxMeta, WsHandle, Wsrep};

/// Asks the server whether a peer may connect. (context, key kind, value)
///
/// The server reads the value as a C string: it must be followed by a NUL that its length does not count.
pub type AllowlistCb = unsafe extern "C-unwind" fn(*mut c_void, c_int, *const Buf) -> Status;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllowlistService {
    pub allowlist_cb: Option<AllowlistCb>,
    pub context: *mut c_void,
}

/// (context, event name, JSON text)
pub type EventCb = unsafe extern "C-unwind" fn(*mut c_void, *const c_char, *const c_char);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct EventService {
    pub event_cb: Option<EventCb>,
    pub context: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union ParameterValue {
    pub b: bool,
    pub i: i64,
    pub d: f64,
    /// Never null.
    pub s: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Parameter {
    pub flags: c_int,
    pub name: *const c_char,
    pub value: ParameterValue,
}

/// Called once for each parameter; anything but OK ends the enumeration.
pub type ParameterCb = unsafe extern "C-unwind" fn(*const Parameter, *mut c_void) -> Status;
pub type GetParametersFn = unsafe extern "C" fn(*mut Wsrep, Option<ParameterCb>, *mut c_void) -> Status;

/// The provider fills this in when it is initialised.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ConfigService {
    pub get_parameters: Option<GetParametersFn>,
}

// --- symbols ---------------------------------------------------------------------------------------------------------

/// `wsrep_loader`
pub type LoaderFn = unsafe extern "C" fn(*mut Wsrep) -> c_int;
/// `wsrep_init_allowlist_service_v1`
pub type AllowlistInitFn = unsafe extern "C" fn(*mut AllowlistService) -> c_int;
/// `wsrep_init_event_service_v1`
pub type EventInitFn = unsafe extern "C" fn(*mut EventService) -> c_int;
/// `wsrep_init_config_service_v1`
pub type ConfigInitFn = unsafe extern "C" fn(*mut ConfigService) -> c_int;
/// `wsrep_deinit_*_service_v1`
pub type ServiceDeinitFn = unsafe extern "C" fn();
/// `wsrep_node_isolation_mode_set_v1`
pub type IsolationFn = unsafe extern "C" fn(c_int) -> c_int;
/// `wsrep_certify_v1`
pub type CertifyV1Fn =
    unsafe extern "C" fn(*mut Wsrep, ConnId, *mut WsHandle, u32, *mut TrxMeta, *const SeqCb) -> Status;
