//! `wsrep_loader`: fills in the server's table. And who we say we are.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use trireme_wsrep_sys as sys;

use crate::entry;

#[repr(transparent)]
pub struct Text(*const c_char);
// SAFETY: points at a constant.
unsafe impl Sync for Text {}

/// A data symbol, read by the server and by mtr's check.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static wsrep_interface_version: Text = Text(sys::INTERFACE_VERSION.as_ptr());

const NAME: &CStr = c"Trireme";
/// Suites take `minor.release` from the digits before the parenthesis and skip themselves when that is less than what they
/// need: it is the Galera release (26.4.23) whose surface this provider has.
const VERSION: &str = if TEST_BUILD {
    concat!("4.23(trireme ", env!("TRIREME_VERSION"), ", TEST BUILD)\0")
} else {
    concat!("4.23(trireme ", env!("TRIREME_VERSION"), ")\0")
};
/// Built together with the simulator or the fuzzers, whose features reach into the crates below, or whose features make it panic: not for servers
/// with data. `make install` refuses a library that says so.
const TEST_BUILD: bool = cfg!(feature = "panics") || trireme_node::TEST_BUILD;
const VENDOR: &CStr = c"The Trireme project";

pub const CAPABILITIES: sys::Cap = sys::CAP_MULTI_MASTER
    | sys::CAP_CERTIFICATION
    | sys::CAP_PARALLEL_APPLYING
    | sys::CAP_TRX_REPLAY
    | sys::CAP_ISOLATION
    | sys::CAP_PAUSE
    | sys::CAP_CAUSAL_READS
    | sys::CAP_INCREMENTAL_WRITESET
    // Without it the server refuses `wsrep_trx_fragment_size`.
    | sys::CAP_STREAMING;
// Views say the same.
const _: () = assert!(CAPABILITIES == trireme_node::CAPABILITIES as sys::Cap);

/// # Safety
/// Called by the server: `wsrep` is null or a writable block of the table's size, content undefined.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wsrep_loader(wsrep: *mut sys::Wsrep) -> c_int {
    if wsrep.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: table: writable. All fields at once, because the block is fresh from malloc.
    unsafe { wsrep.write(table()) };
    0
}

fn table() -> sys::Wsrep {
    sys::Wsrep {
        version: sys::INTERFACE_VERSION.as_ptr(),
        init: Some(entry::init),
        capabilities: Some(entry::capabilities),
        options_set: Some(entry::options_set),
        options_get: Some(entry::options_get),
        enc_set_key: Some(entry::enc_set_key),
        connect: Some(entry::connect),
        disconnect: Some(entry::disconnect),
        recv: Some(entry::recv),
        assign_read_view: Some(entry::assign_read_view),
        certify: Some(entry::certify),
        commit_order_enter: Some(entry::commit_order_enter),
        commit_order_leave: Some(entry::commit_order_leave),
        release: Some(entry::release),
        replay_trx: Some(entry::replay_trx),
        abort_certification: Some(entry::abort_certification),
        rollback: Some(entry::rollback),
        append_key: Some(entry::append_key),
        append_data: Some(entry::append_data),
        sync_wait: Some(entry::sync_wait),
        last_committed_id: Some(entry::last_committed_id),
        free_connection: Some(entry::free_connection),
        to_execute_start: Some(entry::to_execute_start),
        to_execute_end: Some(entry::to_execute_end),
        preordered_collect: Some(entry::preordered_collect),
        preordered_commit: Some(entry::preordered_commit),
        sst_sent: Some(entry::sst_sent),
        sst_received: Some(entry::sst_received),
        snapshot: Some(entry::snapshot),
        stats_get: Some(entry::stats_get),
        stats_free: Some(entry::stats_free),
        stats_reset: Some(entry::stats_reset),
        pause: Some(entry::pause),
        resume: Some(entry::resume),
        desync: Some(entry::desync),
        resync: Some(entry::resync),
        lock: Some(entry::lock),
        unlock: Some(entry::unlock),
        is_locked: Some(entry::is_locked),
        provider_name: NAME.as_ptr(),
        provider_version: VERSION.as_ptr().cast(),
        provider_vendor: VENDOR.as_ptr(),
        free: Some(entry::free),
        dlh: ptr::null_mut(),
        ctx: ptr::null_mut(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;

    fn loaded() -> Box<sys::Wsrep> {
        let mut block = Box::new(MaybeUninit::<sys::Wsrep>::uninit());
        // SAFETY: a writable block of that size; the loader writes all of it.
        unsafe {
            assert_eq!(wsrep_loader(block.as_mut_ptr()), 0);
            block.assume_init()
        }
    }

    #[test]
    fn a_null_table_is_refused() {
        // SAFETY: null is allowed.
        assert_eq!(unsafe { wsrep_loader(ptr::null_mut()) }, libc::EINVAL);
    }

    #[test]
    fn the_version_passes_the_gates_of_the_suites() {
        // SAFETY: the table's strings are constants.
        let version = unsafe { CStr::from_ptr(loaded().provider_version) }.to_str().unwrap();
        // check_galera_version.inc reads the leading run of digits and dots; minor.release are its last two numbers.
        let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap();
        let numbers: Vec<u32> = version[..end].split('.').map(|n| n.parse().unwrap()).collect();
        assert_eq!(numbers[numbers.len() - 2..], [4, 23], "{version}");
        assert!(version.ends_with(')'));
    }

    #[test]
    fn no_entry_before_init_gives_a_plausible_answer() {
        let mut table = loaded();
        let w = &raw mut *table;
        let mut gtid = sys::Gtid { uuid: sys::Uuid { data: [1; 16] }, seqno: 5 };
        let mut meta = sys::TrxMeta { depends_on: 5, ..sys::TrxMeta::UNDEFINED };
        let mut handle = sys::WsHandle { trx_id: 1, opaque: ptr::null_mut() };
        let mut victim = 7;
        // SAFETY: the table is loaded; entries without an instance answer that there is none.
        unsafe {
            assert_eq!(entry::capabilities(w), 0);
            assert_eq!(entry::last_committed_id(w, &raw mut gtid), sys::NODE_FAIL);
            assert_eq!(gtid, sys::Gtid::UNDEFINED);
            assert_eq!(entry::certify(w, 1, &raw mut handle, 0x41, &raw mut meta), sys::NODE_FAIL);
            assert_eq!(meta, sys::TrxMeta::UNDEFINED);
            assert_eq!(entry::abort_certification(w, 5, 1, &raw mut victim), sys::NODE_FAIL);
            assert_eq!(victim, -1);
            assert_eq!(entry::pause(w), -1);
            assert!(entry::options_get(w).is_null() && entry::stats_get(w).is_null());
            assert_eq!(entry::recv(w, ptr::null_mut()), sys::NODE_FAIL);
            entry::stats_free(w, ptr::null_mut());
            entry::stats_reset(w);
            entry::free(w);
            entry::free(w);
            entry::free(ptr::null_mut());
        }
    }
}
