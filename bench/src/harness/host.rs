//! One node: a stand-in for a server around a provider. It applies by passing through commit order, and hands "state" to joiners by
//! telling them the position over a local socket.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use trireme_wsrep_sys as sys;

use super::provider::Provider;
use super::relay::Place;
use super::threads::Memory;

/// How one node is set up.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    pub library: PathBuf,
    pub name: String,
    /// Group port; the next one is for state transfer, on 127.0.0.1 wherever the node is.
    pub port: u16,
    pub place: Place,
    /// Where the cluster is; the node bootstraps when this is `gcomm://` or `dummy://`.
    pub url: String,
    /// Provider options added to our own.
    pub options: String,
    /// Private directory, exists.
    pub dir: PathBuf,
    pub appliers: usize,
}

#[derive(Default)]
struct Seen {
    members: usize,
    synced: bool,
}

/// The things that callbacks need. Lives for ever: callbacks may come at any time.
pub struct Shared {
    provider: OnceLock<Provider>,
    dir: PathBuf,
    seen: Mutex<Seen>,
    changed: Condvar,
    pub applied: AtomicU64,
    /// Newest seqno that left commit order; checks that the order is kept.
    newest: AtomicI64,
    pub out_of_order: AtomicU64,
}

impl Shared {
    pub fn provider(&self) -> &Provider {
        self.provider.get().expect("set before connecting")
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no panic while held")
    }

    /// Call inside commit order.
    pub fn note_order(&self, seqno: i64) {
        if self.newest.swap(seqno, Ordering::Relaxed) >= seqno {
            self.out_of_order.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub struct Node {
    pub shared: &'static Shared,
    /// Memory of the process before the library was loaded.
    pub bare: Memory,
    receivers: Vec<JoinHandle<i32>>,
}

static VERBOSE: AtomicBool = AtomicBool::new(false);

/// Prints all that providers log, not only errors.
pub fn set_verbose(on: bool) {
    VERBOSE.store(on, Ordering::Relaxed);
}

impl Node {
    /// Loads, initialises and connects; returns when the provider has taken the node in. Not yet synced.
    pub fn start(config: &NodeConfig) -> Result<Node, String> {
        let shared: &'static Shared = Box::leak(Box::new(Shared {
            provider: OnceLock::new(),
            dir: config.dir.clone(),
            seen: Mutex::default(),
            changed: Condvar::new(),
            applied: AtomicU64::new(0),
            newest: AtomicI64::new(0),
            out_of_order: AtomicU64::new(0),
        }));
        let bare = Memory::now();
        let provider = Provider::load(&config.library)?;
        let ctx = ptr_of(shared);
        let text = |s: String| CString::new(s).map_err(|e| e.to_string());
        let name = text(config.name.clone())?;
        let address = text(format!("{}:{}", config.place.known, config.port))?;
        let dir = text(format!("{}/", config.dir.display()))?;
        let options = text(format!(
            "base_port={port};gmcast.listen_addr=tcp://{listens}:{port};ist.recv_addr=127.0.0.1:{ist};pc.recovery=no;{extra}",
            port = config.port,
            listens = config.place.listens,
            ist = config.port + 1,
            extra = config.options
        ))?;
        let position = sys::Gtid::UNDEFINED;
        let args = sys::InitArgs {
            app_ctx: ctx,
            node_name: name.as_ptr(),
            node_address: address.as_ptr(),
            node_incoming: c"".as_ptr(),
            data_dir: dir.as_ptr(),
            options: options.as_ptr(),
            proto_ver: 4,
            state_id: &position,
            state: std::ptr::null(),
            logger_cb: Some(on_log),
            connected_cb: Some(on_connected),
            view_cb: Some(on_view),
            sst_request_cb: Some(on_sst_request),
            encrypt_cb: None,
            apply_cb: Some(on_apply),
            unordered_cb: None,
            sst_donate_cb: Some(on_sst_donate),
            synced_cb: Some(on_synced),
        };
        let _ = shared.provider.set(provider);
        let provider = shared.provider();
        check("init", provider.init(&args))?;
        let bootstrap = matches!(config.url.as_str(), "gcomm://" | "dummy://");
        check("connect", provider.connect("trireme-bench", &config.url, bootstrap))?;
        let receiver =
            |_| std::thread::Builder::new().name("recv".into()).spawn(move || shared.provider().recv(ptr_of(shared)));
        let receivers =
            (0..config.appliers.max(1)).map(receiver).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
        Ok(Node { shared, bare, receivers })
    }

    /// Waits until the node is synced in a primary view of `members`.
    pub fn wait_members(&self, members: usize, limit: Duration) -> Result<(), String> {
        let deadline = Instant::now() + limit;
        let mut seen = self.shared.seen();
        while !(seen.synced
            && seen.members == members
            && self.shared.provider().stat("local_state").is_none_or(|s| s == 4))
        {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("synced: {}, members: {} instead of {members}", seen.synced, seen.members));
            }
            // local_state changes without a callback: look again now and then.
            seen = self
                .shared
                .changed
                .wait_timeout(seen, left.min(Duration::from_millis(20)))
                .expect("no panic while held")
                .0;
        }
        Ok(())
    }

    pub fn stop(self) {
        let provider = self.shared.provider();
        provider.disconnect();
        for receiver in self.receivers {
            let _ = receiver.join();
        }
        provider.free();
    }
}

fn check(what: &str, status: i32) -> Result<(), String> {
    if status == sys::OK { Ok(()) } else { Err(format!("{what} returned {status}")) }
}

fn ptr_of(shared: &'static Shared) -> *mut c_void {
    std::ptr::from_ref(shared).cast_mut().cast()
}

/// # Safety
/// `ctx` came from [`ptr_of`].
unsafe fn shared(ctx: *mut c_void) -> &'static Shared {
    // SAFETY: the caller's promise; the value is never freed.
    unsafe { &*ctx.cast::<Shared>() }
}

unsafe extern "C-unwind" fn on_log(level: c_int, text: *const c_char) {
    if level <= sys::LOG_ERROR || VERBOSE.load(Ordering::Relaxed) {
        // SAFETY: the provider passes a C string.
        eprintln!("[{level}] {}", unsafe { CStr::from_ptr(text) }.to_string_lossy());
    }
}

fn note_view(shared: &Shared, view: &sys::ViewInfo) {
    let primary = view.status == sys::VIEW_PRIMARY;
    shared.seen().members = if primary { view.memb_num as usize } else { 0 };
    shared.changed.notify_all();
}

unsafe extern "C-unwind" fn on_connected(ctx: *mut c_void, view: *const sys::ViewInfo) -> c_int {
    // SAFETY: our context, and a view valid during the call.
    unsafe { note_view(shared(ctx), &*view) };
    sys::CB_SUCCESS
}

unsafe extern "C-unwind" fn on_view(
    ctx: *mut c_void,
    _: *mut c_void,
    view: *const sys::ViewInfo,
    _: *const c_char,
    _: usize,
) -> c_int {
    // SAFETY: our context, and a view valid during the call.
    unsafe { note_view(shared(ctx), &*view) };
    sys::CB_SUCCESS
}

unsafe extern "C-unwind" fn on_synced(ctx: *mut c_void) -> c_int {
    // SAFETY: our context.
    let shared = unsafe { shared(ctx) };
    shared.seen().synced = true;
    shared.changed.notify_all();
    sys::CB_SUCCESS
}

unsafe extern "C-unwind" fn on_apply(
    ctx: *mut c_void,
    handle: *const sys::WsHandle,
    _flags: u32,
    _data: *const sys::Buf,
    meta: *const sys::TrxMeta,
    _exit: *mut bool,
) -> c_int {
    // SAFETY: our context (that of recv), and arguments valid during the call.
    let (shared, handle, meta) = unsafe { (shared(ctx), &*handle, &*meta) };
    if shared.provider().enter_raw(handle, meta) != sys::OK {
        return sys::CB_FAILURE;
    }
    shared.note_order(meta.gtid.seqno);
    shared.applied.fetch_add(1, Ordering::Relaxed);
    shared.provider().leave_raw(handle, meta)
}

/// The joiner's side of a state transfer: the request is the path of a socket on which the donor tells the position.
unsafe extern "C-unwind" fn on_sst_request(ctx: *mut c_void, request: *mut *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: our context.
    let shared = unsafe { shared(ctx) };
    let path = shared.dir.join("sst");
    let _ = std::fs::remove_file(&path);
    let Ok(listener) = UnixListener::bind(&path) else { return sys::CB_FAILURE };
    std::thread::spawn(move || {
        let mut position = [0; 24];
        let Ok((mut donor, _)) = listener.accept() else { return };
        if donor.read_exact(&mut position).is_ok() {
            let (uuid, seqno) = position.split_at(16);
            let gtid = sys::Gtid {
                uuid: sys::Uuid { data: uuid.try_into().expect("16 bytes") },
                seqno: i64::from_le_bytes(seqno.try_into().expect("8 bytes")),
            };
            let status = shared.provider().sst_received(&gtid);
            if status != sys::OK {
                eprintln!("sst_received returned {status}");
            }
        }
    });
    let Ok(text) = CString::new(path.into_os_string().into_encoded_bytes()) else { return sys::CB_FAILURE };
    // SAFETY: the provider frees the request with free(3), so it comes from malloc; both out-pointers are valid.
    unsafe {
        let copy = libc::strdup(text.as_ptr());
        if copy.is_null() {
            return sys::CB_FAILURE;
        }
        *request = copy.cast();
        *len = text.as_bytes_with_nul().len();
    }
    sys::CB_SUCCESS
}

unsafe extern "C-unwind" fn on_sst_donate(
    ctx: *mut c_void,
    _recv: *mut c_void,
    request: *const sys::Buf,
    gtid: *const sys::Gtid,
    _state: *const sys::Buf,
    _bypass: bool,
) -> c_int {
    // SAFETY: our context, and arguments valid during the call.
    let (shared, request, gtid) = unsafe { (shared(ctx), &*request, &*gtid) };
    if request.ptr.is_null() || request.len == 0 {
        return sys::CB_FAILURE;
    }
    // SAFETY: pointer and length of one buffer.
    let request = unsafe { std::slice::from_raw_parts(request.ptr.cast::<u8>(), request.len) };
    let path = request.split(|b| *b == 0).next().unwrap_or_default();
    let told = std::str::from_utf8(path).map_err(|e| e.to_string()).and_then(|path| {
        let mut joiner = UnixStream::connect(path).map_err(|e| e.to_string())?;
        let mut position = gtid.uuid.data.to_vec();
        position.extend_from_slice(&gtid.seqno.to_le_bytes());
        joiner.write_all(&position).map_err(|e| e.to_string())
    });
    if let Err(e) = told {
        eprintln!("cannot reach the joiner: {e}");
        return sys::CB_FAILURE;
    }
    shared.provider().sst_sent(gtid)
}
