//! Calls into the server: the C callbacks as the node's [`Server`].
//!
//! | callback | thread | may block | may call us back |
//! |---|---|---|---|
//! | connected, view, synced | receiving; a non-primary view also another, without a context | yes (a view waits for the engines) | yes |
//! | sst_request | receiving | yes | yes |
//! | apply | receiving, or the client's in a replay | yes | yes |
//! | sst_donate | receiving | yes | yes (`sst_sent`) |
//! | log, end | any but the group thread | yes | no |
//! | allow list, events, the engine's log | any but the group thread | yes | no |

use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::time::Instant;

use trireme_node::{
    Applied, EngineLog, Gtid, Handle, InitArgs, Level, Meta, RecvCtx, Server, ServerProcess, ServerView, ViewStatus,
};
use trireme_types::{Seqno, Uuid};
use trireme_wsrep_sys as sys;

use crate::convert::{bytes, gtid_in, gtid_out, handle_out, meta_out, number_out, text, uuid_out};
use crate::gate::Gate;
use crate::{engine, executable, services};

/// The server behind one `init`.
pub struct CServer {
    app_ctx: *mut c_void,
    logger: Option<sys::LogCb>,
    connected: Option<sys::ConnectedCb>,
    view: Option<sys::ViewCb>,
    sst_request: Option<sys::SstRequestCb>,
    apply: Option<sys::ApplyCb>,
    sst_donate: Option<sys::SstDonateCb>,
    synced: Option<sys::SyncedCb>,
    /// To the storage engines, which the server shuts down after `free`.
    engines: Gate,
}

// SAFETY: callback: `app_ctx` is never dereferenced here, only handed back, and the server takes it on any thread.
unsafe impl Send for CServer {}
// SAFETY: as above; nothing but the gate, which may be shared, is changed after construction.
unsafe impl Sync for CServer {}

impl CServer {
    pub fn new(args: &sys::InitArgs) -> CServer {
        CServer {
            app_ctx: args.app_ctx,
            logger: args.logger_cb,
            connected: args.connected_cb,
            view: args.view_cb,
            sst_request: args.sst_request_cb,
            apply: args.apply_cb,
            sst_donate: args.sst_donate_cb,
            synced: args.synced_cb,
            engines: Gate::default(),
        }
    }

    /// The last thing of `free`: a thread that it could not wait for may be about to ask the storage engine, which the server shuts down next.
    /// Nobody asks it any more. One that is in there already is waited for, up to the deadline: it holds the engine up, and so perhaps the
    /// server, but that is for whoever looks at the engine to see, and not for a provider that does not return. False when it is still there.
    pub fn leave_engines(&self, deadline: Instant) -> bool {
        let left = self.engines.close(deadline);
        if !left {
            let text = "A question to the storage engine is not answered; it is not waited for any more. The engine's end may wait for the same";
            self.log(Level::Warn, text);
        }
        left
    }
}

/// Everything of `init` that the node needs, copied: the pointers are good only during the call.
///
/// # Safety
/// Clause **argument**, for the strings and the position.
pub unsafe fn init_args(args: &sys::InitArgs) -> InitArgs {
    // SAFETY: the caller's promise.
    unsafe {
        InitArgs {
            node_name: text(args.node_name).into_owned(),
            node_address: text(args.node_address).into_owned(),
            node_incoming: text(args.node_incoming).into_owned(),
            data_dir: text(args.data_dir).into_owned(),
            options: text(args.options).into_owned(),
            protocol: args.proto_ver,
            position: args.state_id.as_ref().map(gtid_in).filter(|g| !g.history.is_nil()),
            arbitrator: None,
        }
    }
}

/// A callback that is missing counts as successful: there is nobody to fail.
const fn success(status: sys::CbStatus) -> bool {
    status == sys::CB_SUCCESS
}

impl Server for CServer {
    fn connected(&self, view: &ServerView) -> bool {
        let Some(call) = self.connected else { return true };
        let view = CView::new(view);
        // SAFETY: callback. The view lives until the end of this function.
        success(unsafe { call(self.app_ctx, view.as_ptr()) })
    }

    fn view(&self, ctx: RecvCtx, view: &ServerView) -> bool {
        let Some(call) = self.view else { return true };
        let view = CView::new(view);
        // SAFETY: callback; as above. No state goes with a view.
        success(unsafe { call(self.app_ctx, ctx.0, view.as_ptr(), ptr::null(), 0) })
    }

    fn wants_script(&self) -> bool {
        executable::gtid_mode()
    }

    fn process(&self) -> Option<ServerProcess> {
        executable::process()
    }

    fn engine_position(&self) -> Option<(Uuid, Seqno)> {
        self.engines.pass(executable::engine_position).flatten()
    }

    fn engine_log(&self) -> EngineLog {
        self.engines.pass(engine::log).unwrap_or(EngineLog::Closed)
    }

    fn sst_request(&self) -> Result<Vec<u8>, ()> {
        let Some(call) = self.sst_request else { return Ok(Vec::new()) };
        let (mut request, mut len) = (ptr::null_mut(), 0);
        // SAFETY: callback; both out-parameters are ours.
        let status = unsafe { call(self.app_ctx, &raw mut request, &raw mut len) };
        // SAFETY: callback: null, or that many bytes.
        let copy = unsafe { bytes(&sys::Buf { ptr: request, len }) }.to_vec();
        // SAFETY: malloc: the request is the provider's to free, also after a failure; null is allowed.
        unsafe { libc::free(request) };
        if success(status) { Ok(copy) } else { Err(()) }
    }

    fn apply(&self, ctx: RecvCtx, handle: Handle, flags: u32, data: &[u8], meta: &Meta) -> Applied {
        // Without anybody to apply nothing was applied.
        let Some(call) = self.apply else { return Applied { ok: false, exit_loop: false } };
        let (handle, data, meta) = (handle_out(handle), buf(data), meta_out(Some(*meta)));
        let mut exit_loop = false;
        // SAFETY: callback; everything pointed at lives on this stack or is borrowed for this call. The server writes 0 or 1.
        let status =
            unsafe { call(ctx.0, &raw const handle, flags, &raw const data, &raw const meta, &raw mut exit_loop) };
        Applied { ok: success(status), exit_loop }
    }

    fn sst_donate(&self, ctx: RecvCtx, request: &[u8], gtid: Gtid, bypass: bool) -> bool {
        let Some(call) = self.sst_donate else { return false };
        let (request, gtid) = (buf(request), gtid_out(gtid));
        // The server does not read the state, but it does not test for null either.
        let state = buf(&[]);
        // SAFETY: callback; everything pointed at lives until the call returns.
        success(unsafe { call(self.app_ctx, ctx.0, &raw const request, &raw const gtid, &raw const state, bypass) })
    }

    fn synced(&self) -> bool {
        let Some(call) = self.synced else { return true };
        // SAFETY: callback.
        success(unsafe { call(self.app_ctx) })
    }

    fn log(&self, level: Level, text: &str) {
        let Some(call) = self.logger else { return };
        let text = c_string(text);
        // SAFETY: callback; the text ends in NUL and lives until the call returns.
        unsafe { call(level_out(level), text.as_ptr()) }
    }

    fn end(&self, reason: &str) {
        self.log(Level::Fatal, reason);
        // Without the server's crash report: there is nothing in it that the reason does not say.
        // SAFETY: SIG_DFL is a valid disposition for SIGABRT; the process ends at once.
        unsafe {
            libc::signal(libc::SIGABRT, libc::SIG_DFL);
        }
        std::process::abort()
    }

    fn allowed(&self, address: &str) -> bool {
        services::allowed(address)
    }

    fn event(&self, name: &str, value: &str) {
        services::event(name, value);
    }
}

fn buf(data: &[u8]) -> sys::Buf {
    // An empty slice points nowhere in particular; the server expects null or something readable.
    let ptr = if data.is_empty() { ptr::null() } else { data.as_ptr().cast() };
    sys::Buf { ptr, len: data.len() }
}

/// Text for C. A NUL inside, which would cut it short, becomes a space.
pub fn c_string(text: &str) -> CString {
    let clean: Vec<u8> = text.bytes().map(|b| if b == 0 { b' ' } else { b }).collect();
    CString::new(clean).expect("NULs were replaced")
}

fn level_out(level: Level) -> c_int {
    match level {
        Level::Fatal => sys::LOG_FATAL,
        Level::Error => sys::LOG_ERROR,
        Level::Warn => sys::LOG_WARN,
        Level::Info => sys::LOG_INFO,
        Level::Debug => sys::LOG_DEBUG,
    }
}

// --- views -----------------------------------------------------------------------------------------------------------------

/// A `wsrep_view_info_t`: the head, and its members right behind.
struct CView {
    /// Words, for the alignment.
    memory: Vec<u64>,
}

const HEAD: usize = size_of::<sys::ViewInfo>();
const MEMBER: usize = size_of::<sys::MemberInfo>();

impl CView {
    fn new(view: &ServerView) -> CView {
        let members = view.members.len();
        let mut memory = vec![0u64; (HEAD + members * MEMBER) / 8];
        let index = |n: usize| {
            c_int::try_from(n).expect("a view with more than 1024 members is not taken from a peer or a log")
        };
        let head = sys::ViewInfo {
            state_id: gtid_out(Gtid { history: view.history, seqno: view.seqno }),
            view: view.number.map_or(-1, number_out),
            status: match view.status {
                ViewStatus::Primary => sys::VIEW_PRIMARY,
                ViewStatus::NonPrimary => sys::VIEW_NON_PRIMARY,
            },
            capabilities: view.capabilities,
            my_idx: view.own.map_or(-1, index),
            memb_num: index(members),
            proto_ver: view.protocol,
            members: [],
        };
        let base: *mut sys::ViewInfo = memory.as_mut_ptr().cast();
        // SAFETY: the memory holds the head and that many members, aligned for both (8, asserted in wsrep-sys).
        unsafe {
            base.write(head);
            let first: *mut sys::MemberInfo = base.cast::<u8>().add(HEAD).cast();
            for (at, member) in view.members.iter().enumerate() {
                first.add(at).write(sys::MemberInfo {
                    id: uuid_out(member.uuid),
                    name: field(&member.name),
                    incoming: field(&member.incoming),
                });
            }
        }
        CView { memory }
    }

    fn as_ptr(&self) -> *const sys::ViewInfo {
        self.memory.as_ptr().cast()
    }
}

/// Text in a field of fixed size: cut at a character, always followed by a NUL for readers that want one.
fn field<const N: usize>(text: &str) -> [u8; N] {
    let mut end = text.len().min(N - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut out = [0; N];
    out[..end].copy_from_slice(&text.as_bytes()[..end]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::ffi::{CStr, c_char};
    use trireme_node::ViewMember;
    use trireme_types::{Seqno, Uuid};

    fn view(members: usize) -> ServerView {
        let member = |n: usize| ViewMember {
            uuid: Uuid([n as u8 + 1; 16]),
            name: format!("node{n}"),
            incoming: format!("10.0.0.{n}:3306"),
        };
        ServerView {
            history: Uuid([9; 16]),
            seqno: Some(Seqno(7)),
            number: Some(3),
            status: ViewStatus::Primary,
            capabilities: 0x7f,
            own: Some(1),
            members: (0..members).map(member).collect(),
            protocol: 4,
        }
    }

    thread_local! {
        static LOGGED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    unsafe extern "C-unwind" fn log(_: c_int, text: *const c_char) {
        // SAFETY: the provider logs C strings.
        let text = unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned();
        LOGGED.with_borrow_mut(|lines| lines.push(text));
    }

    #[test]
    fn an_engine_that_does_not_answer_is_not_waited_for_without_end_and_the_log_says_so() {
        // SAFETY: null pointers and no callbacks, all of which the structure may hold.
        let mut args: sys::InitArgs = unsafe { std::mem::zeroed() };
        args.logger_cb = Some(log);
        let server = CServer::new(&args);
        server.engines.pass(|| assert!(!server.leave_engines(Instant::now())));
        assert_eq!(server.engine_log(), EngineLog::Closed, "nobody asks it any more");
        let lines = LOGGED.take();
        assert!(lines.len() == 1 && lines[0].contains("storage engine is not answered"), "{lines:?}");
        assert!(server.leave_engines(Instant::now()));
        assert!(LOGGED.take().is_empty());
    }

    #[test]
    fn members_lie_right_behind_the_head() {
        let c = CView::new(&view(3));
        // SAFETY: what `CView::new` wrote.
        unsafe {
            let head = &*c.as_ptr();
            assert_eq!((head.state_id.seqno, head.view, head.my_idx, head.memb_num, head.proto_ver), (7, 3, 1, 3, 4));
            let members = std::slice::from_raw_parts(c.as_ptr().cast::<u8>().add(56).cast::<sys::MemberInfo>(), 3);
            assert_eq!(members[2].id.data, [3; 16]);
            assert_eq!(&members[2].name[..6], b"node2\0");
            assert_eq!(&members[1].incoming[..14], b"10.0.0.1:3306\0");
        }
    }

    #[test]
    fn a_final_view_has_no_members_and_no_own_index() {
        let c =
            CView::new(&ServerView { seqno: None, number: None, status: ViewStatus::NonPrimary, own: None, ..view(0) });
        // SAFETY: what `CView::new` wrote.
        let head = unsafe { &*c.as_ptr() };
        assert_eq!(
            (head.state_id.seqno, head.view, head.my_idx, head.memb_num, head.status),
            (-1, -1, -1, 0, sys::VIEW_NON_PRIMARY)
        );
    }

    #[test]
    fn long_names_are_cut_at_a_character_and_end_in_nul() {
        let name: [u8; 32] = field(&"é".repeat(40));
        assert_eq!(std::str::from_utf8(&name[..30]).unwrap(), "é".repeat(15));
        assert_eq!(name[30..], [0, 0]);
    }

    #[test]
    fn log_text_keeps_its_length_when_it_has_nuls() {
        assert_eq!(c_string("a\0b").as_bytes(), b"a b");
    }
}
