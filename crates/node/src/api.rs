//! The calls of the C edge (`Node`, in node.rs) and those that a node makes to its server (`Server`). Plain Rust values
//! only: the provider translates.

use std::ffi::{OsString, c_void};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
pub use trireme_certification::{KeyKind, flags};
pub use trireme_replicator::retention::EngineLog;
pub use trireme_surface::status::StatValue;
use trireme_types::{Seqno, Uuid};

/// MULTI_MASTER, CERTIFICATION, PARALLEL_APPLYING, TRX_REPLAY, ISOLATION, PAUSE, CAUSAL_READS, INCREMENTAL_WRITESET, STREAMING.
pub const CAPABILITIES: u32 = 0x817f;

/// A position in a history. `seqno` is `None` where the C API says -1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gtid {
    pub history: Uuid,
    pub seqno: Option<Seqno>,
}

/// Results of calls, in the words of the contract (`wsrep_status`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    Ok,
    TrxMissing,
    TrxFail,
    BfAbort,
    SizeExceeded,
    ConnFail,
    NodeFail,
    Fatal,
    NotImplemented,
    NotAllowed,
}

/// A transaction of a server process, as the server numbers it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TrxId(pub u64);

impl TrxId {
    /// Of a statement in total-order isolation, which is none.
    pub const NONE: TrxId = TrxId(u64::MAX);
}

/// A client's connection to a server process, as the server numbers it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

impl ConnId {
    /// Of a rollback that the server orders by itself.
    pub const NONE: ConnId = ConnId(u64::MAX);
}

/// The source of a write set, within its origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    pub trx: TrxId,
    pub conn: ConnId,
}

/// Metadata of an ordered write set. Undefined (never ordered) is `None` wherever a `Meta` is optional (contract 4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta {
    pub gtid_history: Uuid,
    pub seqno: Seqno,
    /// Member UUID of the origin.
    pub origin: Uuid,
    /// At the origin.
    pub source: Source,
    /// Everything up to here must have left commit order before this may be applied. `None`: undefined (-1).
    pub depends_on: Option<Seqno>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ViewStatus {
    Primary,
    NonPrimary,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ViewMember {
    pub uuid: Uuid,
    pub name: String,
    pub incoming: String,
}

/// A view as the server gets it (contract 3.6).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerView {
    pub history: Uuid,
    pub seqno: Option<Seqno>,
    /// `None` for non-primary and final views (-1).
    pub number: Option<u64>,
    pub status: ViewStatus,
    pub capabilities: u32,
    /// Own index, `None` when not a member (-1).
    pub own: Option<usize>,
    pub members: Vec<ViewMember>,
    pub protocol: i32,
}

/// `recv_ctx` of the C API: identifies a server session. Only ever handed back to callbacks on the thread that brought it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvCtx(pub *mut c_void);

/// Handle tag of write sets that an applier brings back.
pub(crate) const APPLIER: u64 = u64::MAX;
/// Local transactions carry this: the id finds them.
pub(crate) const LOCAL: u64 = 1;

/// The handle of a write set as `apply_cb` gets it and as the server hands it back (by value).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle {
    pub trx: TrxId,
    pub opaque: u64,
}

impl Handle {
    /// Of a write set that the node brought, not of a client's transaction.
    pub fn is_applier(self) -> bool {
        self.opaque == APPLIER
    }
}

/// Result of `apply`.
pub struct Applied {
    pub ok: bool,
    /// The server wants this applier thread back (contract 5.5).
    pub exit_loop: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Fatal,
    Error,
    Warn,
    Info,
    Debug,
}

/// The server's side of the edge. Implemented by the provider over the C callbacks, and by test hosts.
///
/// Called only from the threads that the contract allows (3.1), never while a lock of ours is held.
pub trait Server: Send + Sync {
    fn connected(&self, view: &ServerView) -> bool;
    fn view(&self, ctx: RecvCtx, view: &ServerView) -> bool;
    /// Does the state transfer's script bring a returning node more than data? With `wsrep_gtid_mode` it brings the domain that
    /// the others number their transactions in.
    fn wants_script(&self) -> bool;
    /// The server's process; `None` where this process is none, as with an arbitrator or a test host.
    fn process(&self) -> Option<ServerProcess>;
    /// Where the storage engine stands that this process has opened; `None` where there is none, or it does not tell.
    fn engine_position(&self) -> Option<(Uuid, Seqno)>;
    /// How far the storage engine's own log is on disk. May wait for the engine: any thread but the group thread (rule 29), and only
    /// while the server has the provider open.
    fn engine_log(&self) -> EngineLog;
    /// `Err` when the callback failed; an empty request means "no full copy possible now".
    fn sst_request(&self) -> Result<Vec<u8>, ()>;
    fn apply(&self, ctx: RecvCtx, handle: Handle, flags: u32, data: &[u8], meta: &Meta) -> Applied;
    fn sst_donate(&self, ctx: RecvCtx, request: &[u8], gtid: Gtid, bypass: bool) -> bool;
    fn synced(&self) -> bool;
    /// Any thread but the group thread (rule 29).
    fn log(&self, level: Level, text: &str);
    /// Logs the reason and ends the process at once, so that whoever started it starts it again. In a server it does not return. A test
    /// host may note it: what comes after is refused.
    fn end(&self, reason: &str);
    /// May this address connect? (allowlist service; `true` when the server has none). May block.
    fn allowed(&self, address: &str) -> bool;
    /// For the server's status file (event service): a name, and a value in JSON. May block.
    fn event(&self, name: &str, value: &str);
}

/// How the server's process was started, as far as its executable tells.
#[derive(Clone, Debug, Default)]
pub struct ServerProcess {
    /// The arguments of the server's main function, its own name first.
    pub arguments: Vec<OsString>,
    /// `--defaults-file`, absolute.
    pub defaults_file: Option<PathBuf>,
    /// `--defaults-extra-file`, absolute.
    pub defaults_extra_file: Option<PathBuf>,
    /// `basedir`, absolute.
    pub base_dir: Option<PathBuf>,
    /// `plugin_dir`, absolute.
    pub plugin_dir: Option<PathBuf>,
}

/// The arguments of `init` (contract 1.7), owned.
#[derive(Clone, Debug, Default)]
pub struct InitArgs {
    pub node_name: String,
    pub node_address: String,
    pub node_incoming: String,
    pub data_dir: String,
    pub options: String,
    pub protocol: i32,
    pub position: Option<Gtid>,
    /// No server stands behind this node: it is there for its vote.
    pub arbitrator: Option<Arbitrator>,
}

impl InitArgs {
    pub fn data_dir(&self) -> &Path {
        Path::new(if self.data_dir.is_empty() { "." } else { &self.data_dir })
    }
}

/// The settings of an arbitrator beyond the options.
#[derive(Clone, Debug)]
pub struct Arbitrator {
    /// Bytes that its log may take for the sake of servers that are away. Beyond, what at least one of them has is dropped, and
    /// those that lack it are not helped to go on.
    pub log_max: u64,
}

/// Timeout of a `sync_wait`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// `repl.causal_read_timeout`.
    Default,
    For(Duration),
}

/// Pieces of a TOI statement.
pub struct ToiKeys<'a> {
    /// Each key: its parts.
    pub keys: Vec<Vec<&'a [u8]>>,
    pub action: Bytes,
}
