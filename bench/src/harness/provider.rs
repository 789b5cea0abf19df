//! The provider under test behind its C table. All `unsafe` of the benchmark plays the server's part is here and in [`super::host`].

use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr;

use trireme_wsrep_sys as sys;

/// A loaded provider instance. It is never unloaded: the process ends soon after.
pub struct Provider {
    table: *mut sys::Wsrep,
}

// SAFETY: the API allows calls from any thread, several at once; the table itself is not written after loading.
unsafe impl Send for Provider {}
unsafe impl Sync for Provider {}

/// One transaction's handle. The provider keeps its state behind `opaque`.
pub struct Handle(sys::WsHandle);

impl Handle {
    pub fn new(trx_id: u64) -> Handle {
        Handle(sys::WsHandle { trx_id, opaque: ptr::null_mut() })
    }
}

/// Calls an entry point; all that are called were seen to be there by [`Provider::load`].
macro_rules! call {
    ($self:ident.$entry:ident($($arg:expr),*)) => {
        // SAFETY: the table is valid for the life of the process, and every pointer among the arguments outlives the call.
        unsafe { ((*$self.table).$entry.expect("checked when loaded"))($self.table $(, $arg)*) }
    };
}

macro_rules! require {
    ($table:ident: $($entry:ident)*) => { $(if $table.$entry.is_none() { return Err(concat!("no entry point ", stringify!($entry)).into()); })* };
}

fn buf(bytes: &[u8]) -> sys::Buf {
    sys::Buf { ptr: bytes.as_ptr().cast(), len: bytes.len() }
}

const NO_BUF: sys::Buf = sys::Buf { ptr: ptr::null(), len: 0 };

/// The error itself names the call only. The linker's own words are its source.
fn reason(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

impl Provider {
    pub fn load(path: &Path) -> Result<Provider, String> {
        // SAFETY: loading runs the library's constructors; that is what the operator asked for.
        let library = unsafe { libloading::Library::new(path) }.map_err(|e| reason(&e))?;
        let library = Box::leak(Box::new(library));
        // SAFETY: the type of this symbol is fixed by the wsrep API.
        let loader = unsafe { library.get::<sys::LoaderFn>(b"wsrep_loader\0") }.map_err(|e| reason(&e))?;
        // SAFETY: every field is a pointer or an optional function: zero is valid.
        let table: &'static mut sys::Wsrep = Box::leak(Box::new(unsafe { std::mem::zeroed() }));
        // SAFETY: the table lives for ever.
        let result = unsafe { loader(table) };
        if result != 0 {
            return Err(format!("wsrep_loader returned {result}"));
        }
        require!(table: init connect disconnect recv certify commit_order_enter commit_order_leave release append_key append_data
            sst_sent sst_received stats_get stats_free last_committed_id free);
        Ok(Provider { table })
    }

    pub fn version(&self) -> String {
        // SAFETY: the strings are the provider's and constant.
        unsafe {
            let text = |p: *const std::ffi::c_char| {
                if p.is_null() { String::new() } else { CStr::from_ptr(p).to_string_lossy().into_owned() }
            };
            format!("{} {}", text((*self.table).provider_name), text((*self.table).provider_version))
        }
    }

    pub fn init(&self, args: &sys::InitArgs) -> i32 {
        call!(self.init(args))
    }

    pub fn connect(&self, cluster: &str, url: &str, bootstrap: bool) -> i32 {
        let (cluster, url) = (CString::new(cluster).expect("no NUL"), CString::new(url).expect("no NUL"));
        call!(self.connect(cluster.as_ptr(), url.as_ptr(), c"".as_ptr(), bootstrap))
    }

    pub fn disconnect(&self) -> i32 {
        call!(self.disconnect())
    }

    /// Serves events until the provider is disconnected. `ctx` comes back in the callbacks.
    pub fn recv(&self, ctx: *mut std::ffi::c_void) -> i32 {
        call!(self.recv(ctx))
    }

    pub fn free(&self) {
        call!(self.free())
    }

    pub fn append_key(&self, handle: &mut Handle, parts: [&[u8]; 3], kind: i32) -> i32 {
        let parts = parts.map(buf);
        let key = sys::Key { key_parts: parts.as_ptr(), key_parts_num: parts.len() };
        call!(self.append_key(&mut handle.0, &key, 1, kind, true))
    }

    pub fn append_data(&self, handle: &mut Handle, data: &[u8]) -> i32 {
        let data = buf(data);
        call!(self.append_data(&mut handle.0, &data, 1, sys::DATA_ORDERED, true))
    }

    pub fn certify(&self, conn: u64, handle: &mut Handle, meta: &mut sys::TrxMeta) -> i32 {
        call!(self.certify(conn, &mut handle.0, sys::FLAG_TRX_START | sys::FLAG_TRX_END, meta))
    }

    pub fn enter(&self, handle: &Handle, meta: &sys::TrxMeta) -> i32 {
        self.enter_raw(&handle.0, meta)
    }

    pub fn leave(&self, handle: &Handle, meta: &sys::TrxMeta) -> i32 {
        self.leave_raw(&handle.0, meta)
    }

    pub fn enter_raw(&self, handle: &sys::WsHandle, meta: &sys::TrxMeta) -> i32 {
        call!(self.commit_order_enter(handle, meta))
    }

    pub fn leave_raw(&self, handle: &sys::WsHandle, meta: &sys::TrxMeta) -> i32 {
        call!(self.commit_order_leave(handle, meta, &NO_BUF))
    }

    pub fn release(&self, handle: &mut Handle) -> i32 {
        call!(self.release(&mut handle.0))
    }

    pub fn sst_sent(&self, gtid: &sys::Gtid) -> i32 {
        call!(self.sst_sent(gtid, 0))
    }

    pub fn sst_received(&self, gtid: &sys::Gtid) -> i32 {
        call!(self.sst_received(gtid, ptr::null(), 0))
    }

    pub fn last_committed(&self) -> Option<i64> {
        let mut gtid = sys::Gtid::UNDEFINED;
        (call!(self.last_committed_id(&mut gtid)) == sys::OK).then_some(gtid.seqno)
    }

    /// An integer status variable.
    pub fn stat(&self, name: &str) -> Option<i64> {
        let vars = call!(self.stats_get());
        if vars.is_null() {
            return None;
        }
        let mut found = None;
        // SAFETY: the array ends with a null name and lives until stats_free.
        unsafe {
            let mut var = vars;
            while !(*var).name.is_null() {
                if CStr::from_ptr((*var).name).to_bytes() == name.as_bytes() && (*var).ty == sys::STATS_INT64 {
                    found = Some((*var).value.i);
                }
                var = var.add(1);
            }
        }
        call!(self.stats_free(vars));
        found
    }
}
