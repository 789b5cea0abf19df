//! Symbols that the server looks up by name: optional services, isolation, `wsrep_certify_v1`.
//!
//! They exist once per process, while there may be several instances. A service that is not supported is not exported:
//! exporting and ignoring it is worse than not having it.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::panic::catch_unwind;

use trireme_node::{ConnId, Node};
use trireme_surface::options::{Kind, Options, Spec, TABLE, When, text, value};
use trireme_wsrep_sys as sys;

use crate::boundary::{Instance, guard, guard_end};
use crate::convert::{handle_in, handle_out, meta_out, status};
use crate::offered::Offered;
use crate::server::c_string;

// --- allow list --------------------------------------------------------------------------------------------------------------

// SAFETY: callback: the context is only handed back, and the callback may be called on any thread.
unsafe impl Sync for Offered<sys::AllowlistService> {}

static ALLOWLIST: Offered<sys::AllowlistService> = Offered::new();

/// A server of today does not load a provider without this symbol.
///
/// # Safety
/// Called by the server: `service` is null or valid during the call, its content until the matching deinit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wsrep_init_allowlist_service_v1(service: *mut sys::AllowlistService) -> c_int {
    // SAFETY: argument.
    unsafe { ALLOWLIST.init(service) }
}

#[unsafe(no_mangle)]
pub extern "C" fn wsrep_deinit_allowlist_service_v1() {
    ALLOWLIST.deinit();
}

/// May this address connect? Without the service, everybody may. Blocks as long as the server takes.
pub fn allowed(address: &str) -> bool {
    let Some(sys::AllowlistService { allowlist_cb: Some(call), context }) = ALLOWLIST.get() else { return true };
    let address = c_string(address);
    let value = sys::Buf { ptr: address.as_ptr().cast(), len: address.as_bytes().len() };
    // SAFETY: callback; the value is followed by a NUL, which the server relies on, and lives until the call returns.
    // Nodes are closed, and so ask nothing any more, before the service is taken back.
    unsafe { call(context, sys::ALLOWLIST_KEY_IP, &raw const value) == sys::OK }
}

// --- events ------------------------------------------------------------------------------------------------------------------

// SAFETY: as for the allow list.
unsafe impl Sync for Offered<sys::EventService> {}

static EVENTS: Offered<sys::EventService> = Offered::new();

/// # Safety
/// Called by the server: `service` is null or valid during the call, its content until the matching deinit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wsrep_init_event_service_v1(service: *mut sys::EventService) -> c_int {
    // SAFETY: argument.
    unsafe { EVENTS.init(service) }
}

#[unsafe(no_mangle)]
pub extern "C" fn wsrep_deinit_event_service_v1() {
    EVENTS.deinit();
}

/// Tells the server of an event, if it wants to know: `value` is JSON. May block.
pub fn event(name: &str, value: &str) {
    let Some(sys::EventService { event_cb: Some(call), context }) = EVENTS.get() else { return };
    let (name, value) = (c_string(name), c_string(value));
    // SAFETY: callback; both texts end in NUL and live until the call returns. Nodes are closed before the service is
    // taken back.
    unsafe { call(context, name.as_ptr(), value.as_ptr()) }
}

// --- isolation -----------------------------------------------------------------------------------------------------------------

/// Cuts or restores the network of every node of the process. Called from a signal handler: no lock, no allocation.
#[unsafe(no_mangle)]
pub extern "C" fn wsrep_node_isolation_mode_set_v1(mode: c_int) -> c_int {
    if !(sys::ISOLATION_NOT_ISOLATED..=sys::ISOLATION_FORCE_DISCONNECT).contains(&mode) {
        return sys::ISOLATION_INVALID_VALUE;
    }
    if Node::isolate_all(mode) { sys::ISOLATION_SUCCESS } else { sys::ISOLATION_INVALID_VALUE }
}

// --- certify with a place in line ------------------------------------------------------------------------------------------------

/// `certify`, and tells the caller as soon as the place of this write set among the node's own is fixed.
///
/// # Safety
/// Clauses **table** and **argument**.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wsrep_certify_v1(
    wsrep: *mut sys::Wsrep,
    conn: sys::ConnId,
    handle: *mut sys::WsHandle,
    flags: u32,
    meta: *mut sys::TrxMeta,
    sequenced: *const sys::SeqCb,
) -> sys::Status {
    // SAFETY: argument.
    let mut sequenced = unsafe { sequenced.as_ref() }.copied();
    let mut tell = move || {
        if let Some(sys::SeqCb { ctx, fun: Some(fun) }) = sequenced.take() {
            // SAFETY: argument: callable until this entry returns; `take` makes it once.
            unsafe { fun(ctx) }
        }
    };
    // SAFETY: the caller's promises, passed on.
    let answer = unsafe { certify(wsrep, conn, handle, flags, meta, &mut tell) };
    // It is told whatever happened: the caller holds a lock until then.
    tell();
    answer
}

/// # Safety
/// Clauses **table** and **argument**.
pub unsafe fn certify(
    wsrep: *mut sys::Wsrep,
    conn: sys::ConnId,
    handle: *mut sys::WsHandle,
    flags: u32,
    meta: *mut sys::TrxMeta,
    sequenced: &mut dyn FnMut(),
) -> sys::Status {
    // SAFETY: argument: both are the caller's to lend.
    let (Some(handle), Some(meta)) = (unsafe { (handle.as_mut(), meta.as_mut()) }) else { return sys::NODE_FAIL };
    // Undefined first: that is also the answer of a panic.
    *meta = meta_out(None);
    // SAFETY: table.
    unsafe {
        guard(wsrep, "certify", sys::NODE_FAIL, |i| {
            let mut ours = handle_in(handle);
            let (code, ordered) = i.node.certify(ConnId(conn), &mut ours, flags, sequenced);
            *handle = handle_out(ours);
            *meta = meta_out(ordered);
            status(code)
        })
    }
}

// --- options as typed variables ------------------------------------------------------------------------------------------------------

/// # Safety
/// Called by the server: `service` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wsrep_init_config_service_v1(service: *mut sys::ConfigService) -> c_int {
    // SAFETY: argument.
    let Some(service) = (unsafe { service.as_mut() }) else { return libc::EINVAL };
    service.get_parameters = Some(get_parameters);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn wsrep_deinit_config_service_v1() {}

unsafe extern "C" fn get_parameters(
    wsrep: *mut sys::Wsrep,
    call: Option<sys::ParameterCb>,
    ctx: *mut c_void,
) -> sys::Status {
    let Some(call) = call else { return sys::FATAL };
    // SAFETY: table. Before `init` there is no instance, and defaults are what there is to say.
    let shown =
        unsafe { guard_end(wsrep, "get_parameters", |i| i.map(Instance::options_known), |i| Some(i.options())) };
    let list = catch_unwind(|| parameters(&shown.unwrap_or_else(|| Options::new(Default::default()).print())));
    let Ok(list) = list else { return sys::FATAL };
    for (spec, typed) in list {
        let name = c_string(spec.name);
        // Lives as long as the parameter that points at it.
        let text = if let Typed::Text(text) = &typed { c_string(text) } else { c_string("") };
        let (kind, value) = match typed {
            Typed::Bool(b) => (sys::PARAM_TYPE_BOOL, sys::ParameterValue { b }),
            Typed::Int(i) => (sys::PARAM_TYPE_INTEGER, sys::ParameterValue { i }),
            Typed::Real(d) => (sys::PARAM_TYPE_DOUBLE, sys::ParameterValue { d }),
            Typed::Text(_) => (0, sys::ParameterValue { s: text.as_ptr() }),
        };
        let parameter = sys::Parameter { flags: flags(spec) | kind, name: name.as_ptr(), value };
        // SAFETY: callback: the server copies name and value before it returns.
        if unsafe { call(&raw const parameter, ctx) } != sys::OK {
            return sys::FATAL;
        }
    }
    sys::OK
}

#[derive(PartialEq, Debug)]
enum Typed {
    Bool(bool),
    Int(i64),
    Real(f64),
    Text(String),
}

/// Galera tells the server of a truth value, though in the option string it is a number.
const AUTO_EVICT: &str = "evs.auto_evict";
/// Galera lets these be written as variables, though nothing but the value that they have is taken at run time.
const WRITABLE_AS_GALERAS: [&str; 6] =
    ["gcomm.thread_prio", "gcs.fc_master_slave", "pc.checksum", "pc.npvo", "repl.commit_order", "socket.send_buf_size"];
/// As variables these cannot be written, though they can in the option string.
const READONLY_AS_GALERAS: [&str; 2] = ["base_host", AUTO_EVICT];

fn flags(spec: &Spec) -> c_int {
    let deprecated = matches!(
        spec.name,
        "gcs.fc_master_slave" | "socket.ssl_compression" | "gcache.mem_size" | "socket.non_blocking"
    );
    let readonly = match spec.when {
        When::Start => !WRITABLE_AS_GALERAS.contains(&spec.name),
        When::Dynamic => READONLY_AS_GALERAS.contains(&spec.name),
        When::Trigger => false,
    };
    (if deprecated { sys::PARAM_DEPRECATED } else { 0 }) | (if readonly { sys::PARAM_READONLY } else { 0 })
}

/// Every option with its value out of a printed option string; those that it does not show have their default.
///
/// A value that does not fit its own type (an empty number, `-1` stored as 2⁶⁴-1) is clamped rather than left out: the set of
/// variables must not depend on values.
fn parameters(printed: &str) -> Vec<(&'static Spec, Typed)> {
    let shown: BTreeMap<String, String> = text::pairs(printed).unwrap_or_default().into_iter().collect();
    TABLE
        .iter()
        .map(|spec| {
            let value = shown.get(spec.name).map_or(spec.default, String::as_str);
            let typed = match spec.kind {
                Kind::Int { .. } if spec.name == AUTO_EVICT => Typed::Bool(!matches!(value, "0" | "")),
                Kind::Bool => Typed::Bool(value::parse_bool(value).unwrap_or(false)),
                Kind::Int { .. } => {
                    let word = || value::parse_bool(value).map(i64::from);
                    let large = || value.parse::<u64>().ok().map(|_| i64::MAX);
                    Typed::Int(value::parse_int(value).or_else(word).or_else(large).unwrap_or(0))
                }
                Kind::Real { .. } => Typed::Real(value::parse_real(value).unwrap_or(0.0)),
                Kind::Period { .. } | Kind::Size { .. } | Kind::AutoSize | Kind::Mask => Typed::Text(value.to_owned()),
                Kind::Address | Kind::Text | Kind::Choice(_) | Kind::Uuid => Typed::Text(value.to_owned()),
            };
            (spec, typed)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use std::ptr;

    /// One test, because the service is one per process.
    #[test]
    fn the_allow_list_asks_the_server_until_the_last_instance_is_gone() {
        unsafe extern "C-unwind" fn only_local(ctx: *mut c_void, key: c_int, value: *const sys::Buf) -> sys::Status {
            assert!(ctx.is_null() && key == sys::ALLOWLIST_KEY_IP);
            // SAFETY: what `allowed` passes: a C string of that length.
            let text = unsafe { CStr::from_ptr((*value).ptr.cast()) };
            // SAFETY: as above.
            assert_eq!(text.to_bytes().len(), unsafe { (*value).len });
            if text == c"127.0.0.1" { sys::OK } else { sys::NOT_ALLOWED }
        }
        assert!(allowed("10.0.0.1"), "no service, no restriction");
        let mut service = sys::AllowlistService { allowlist_cb: Some(only_local), context: ptr::null_mut() };
        // SAFETY: valid services.
        unsafe {
            assert_eq!(wsrep_init_allowlist_service_v1(ptr::null_mut()), libc::EINVAL);
            assert_eq!(wsrep_init_allowlist_service_v1(&raw mut service), 0);
            assert_eq!(wsrep_init_allowlist_service_v1(&raw mut service), 0);
        }
        assert!(allowed("127.0.0.1"));
        assert!(!allowed("10.0.0.1"));
        wsrep_deinit_allowlist_service_v1();
        assert!(!allowed("10.0.0.1"), "another instance still uses it");
        wsrep_deinit_allowlist_service_v1();
        assert!(allowed("10.0.0.1"));
        wsrep_deinit_allowlist_service_v1();
    }

    #[test]
    fn isolation_modes_out_of_range_are_invalid() {
        for mode in [-1, 3, c_int::MAX] {
            assert_eq!(wsrep_node_isolation_mode_set_v1(mode), sys::ISOLATION_INVALID_VALUE);
        }
    }

    #[test]
    fn sequencing_is_told_even_when_certification_cannot_start() {
        unsafe extern "C-unwind" fn count(ctx: *mut c_void) {
            // SAFETY: the counter below.
            unsafe { *ctx.cast::<u32>() += 1 }
        }
        let mut told = 0u32;
        let callback = sys::SeqCb { ctx: (&raw mut told).cast(), fun: Some(count) };
        let mut handle = sys::WsHandle { trx_id: 1, opaque: ptr::null_mut() };
        let mut meta = sys::TrxMeta { depends_on: 5, ..sys::TrxMeta::UNDEFINED };
        // SAFETY: a null table is allowed.
        let answer =
            unsafe { wsrep_certify_v1(ptr::null_mut(), 1, &raw mut handle, 0x41, &raw mut meta, &raw const callback) };
        assert_eq!((answer, told, meta), (sys::NODE_FAIL, 1, sys::TrxMeta::UNDEFINED));
    }

    #[test]
    fn options_come_out_typed_and_complete() {
        let list =
            parameters("pc.weight = 3; debug = yes; gcs.fc_factor = 0.5; repl.max_ws_size = 18446744073709551615; ");
        let get = |name: &str| &list.iter().find(|(s, _)| s.name == name).unwrap().1;
        assert_eq!(list.len(), TABLE.len());
        assert_eq!(*get("pc.weight"), Typed::Int(3));
        assert_eq!(*get("debug"), Typed::Bool(true));
        assert_eq!(*get("gcs.fc_factor"), Typed::Real(0.5));
        assert_eq!(*get("repl.max_ws_size"), Typed::Int(i64::MAX));
        assert_eq!(*get("gcache.size"), Typed::Text("128M".into()));
        assert_eq!(*get("evs.suspect_timeout"), Typed::Text("PT5S".into()));
    }

    #[test]
    fn eviction_by_itself_is_a_truth_value_that_cannot_be_changed() {
        for (printed, on) in [("evs.auto_evict = 0; ", false), ("", false), ("evs.auto_evict = 5; ", true)] {
            let list = parameters(printed);
            let (spec, typed) = list.iter().find(|(spec, _)| spec.name == AUTO_EVICT).unwrap();
            assert_eq!(*typed, Typed::Bool(on), "{printed}");
            assert_ne!(flags(spec) & sys::PARAM_READONLY, 0);
        }
    }

    #[test]
    fn permissions_of_variables_are_galeras() {
        let of = |name: &str| flags(TABLE.iter().find(|spec| spec.name == name).unwrap());
        assert_eq!(of("gcs.fc_master_slave"), sys::PARAM_DEPRECATED);
        assert_eq!(of("gcs.fc_limit"), 0);
        assert_eq!(of("base_host"), sys::PARAM_READONLY);
        assert_eq!(of("gcache.size"), sys::PARAM_READONLY);
        for name in WRITABLE_AS_GALERAS.iter().chain(&READONLY_AS_GALERAS) {
            assert!(TABLE.iter().any(|spec| spec.name == *name), "{name}");
        }
    }

    #[test]
    fn the_enumeration_stops_when_the_server_has_enough() {
        unsafe extern "C-unwind" fn three(_: *const sys::Parameter, ctx: *mut c_void) -> sys::Status {
            // SAFETY: the counter below.
            let seen = unsafe { &mut *ctx.cast::<u32>() };
            *seen += 1;
            if *seen < 3 { sys::OK } else { sys::NODE_FAIL }
        }
        let mut seen = 0u32;
        // SAFETY: a null table is allowed; the context is the counter.
        let answer = unsafe { get_parameters(ptr::null_mut(), Some(three), (&raw mut seen).cast()) };
        assert_eq!((answer, seen), (sys::FATAL, 3));
    }
}
