//! A server made of a map: it does what MariaDB does with a provider, and complains about every breach of the contract.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak, mpsc};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use bytes::Bytes;
use trireme_node::{
    Applied, Code, ConnId, EngineLog, Gtid, Handle, KeyKind, Level, Meta, Node, RecvCtx, Server, ServerProcess,
    ServerView, ToiKeys, TrxId, ViewStatus, Wait, flags,
};
use trireme_types::{Seqno, Uuid};

/// Longest that a test waits for something that must happen.
pub const PATIENCE: Duration = Duration::from_secs(40);

#[track_caller]
pub fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < deadline, "waited for {what} in vain");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The item that was closed at a seqno.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Closed {
    View(Vec<Uuid>),
    Data(Vec<u8>),
    /// Failed certification.
    Nothing,
}

/// The part of the server that survives: its tables.
#[derive(Clone, Default)]
pub struct Tables {
    pub history: Uuid,
    pub closed: BTreeMap<u64, Closed>,
}

impl Tables {
    /// A crash of the storage engine alone: what was last committed was not on its disk.
    pub fn lose(&mut self, commits: usize) {
        for _ in 0..commits {
            self.closed.pop_last();
        }
    }

    pub fn position(&self) -> u64 {
        self.closed.keys().next_back().copied().unwrap_or(0)
    }

    pub fn gtid(&self) -> Gtid {
        Gtid { history: self.history, seqno: Some(Seqno(self.position())) }
    }
}

#[derive(Default)]
pub struct State {
    pub tables: Tables,
    /// Position below which nothing is known (a copy was received, or the history was begun there).
    pub floor: u64,
    pub connected: Option<ServerView>,
    pub views: Vec<ServerView>,
    pub synced: u64,
    pub sst_requests: u64,
    pub donations: u64,
    pub finals: u64,
    pub log: Vec<(Level, String)>,
    /// The engine took a view's position for its own, and its data are of another history.
    pub adopted: bool,
    /// Why the process was ended.
    pub ended: Option<String>,
    pub violations: Vec<String>,
    /// Recv threads inside `recv`.
    pub appliers: u64,
    applying: u64,
    alone: bool,
    entered: HashSet<u64>,
    /// Have left the commit order, and the engine does not have them yet: commits of a server with a binary log.
    queued: BTreeSet<u64>,
    threads: HashMap<usize, ThreadId>,
    /// Answer of `sst_request`.
    pub no_copy: bool,
    /// The storage engine runs. With a physical transfer method it begins to in the first view, or when a copy has arrived.
    pub opened: bool,
    pub trivial: bool,
    /// `wsrep_gtid_mode`, and the domain that a donor's script hands on.
    pub gtid_mode: bool,
    pub domain: u32,
    /// Errors to report at these seqnos.
    pub errors: BTreeMap<u64, Vec<u8>>,
    /// Data whose application fails with this text.
    pub failing: HashMap<Vec<u8>, Vec<u8>>,
    pub exit_next: bool,
    /// The events that the event service was told: names and values.
    pub events: Vec<(String, String)>,
    pub leave_codes: BTreeMap<u64, Code>,
    pub engine: Engine,
    /// The directory of a server process that can be started again to ask its engine: see [`recovery_run`].
    pub process: Option<PathBuf>,
}

/// The engine's answer in a recovery run, in the data directory.
pub const ENGINE_SAYS: &str = "engine-says";

/// The server's process for the node: this test program, whose test `positions::the_recovery_run` plays the server that is
/// started with `--wsrep-recover`. The words that the node appends count as names of tests that there are none of.
fn recovery_run() -> ServerProcess {
    let words = ["mariadbd", "--exact", "--ignored", "--nocapture", "--", "positions::the_recovery_run"];
    ServerProcess { arguments: words.map(OsString::from).to_vec(), ..ServerProcess::default() }
}

/// The storage engine's own log: what is committed is in its memory first.
#[derive(Default)]
pub struct Engine {
    written: u64,
    durable: u64,
    /// It flushes when a test says so, not after each look at it.
    pub lazy: bool,
    /// The position that a crash leaves.
    pub flushed: u64,
    /// This server does not tell.
    pub silent: bool,
}

impl State {
    fn flush(&mut self) {
        self.engine.durable = self.engine.written;
        self.engine.flushed = self.engine_position().max(self.floor);
    }

    /// A commit that is only queued for the binary log is not in the engine.
    fn engine_position(&self) -> u64 {
        let queued = self.queued.first().map_or(u64::MAX, |first| first - 1);
        self.tables.position().min(queued)
    }

    /// The tables that a crash leaves.
    pub fn durable_tables(&self) -> Tables {
        let mut tables = self.tables.clone();
        tables.closed.split_off(&(self.engine.flushed + 1));
        tables
    }

    pub fn is_applying(&self) -> bool {
        self.applying > 0
    }

    /// Members of the newest view in the tables (a copy brings views along).
    pub fn size(&self) -> usize {
        let views = self.tables.closed.values().rev();
        views.filter_map(|c| if let Closed::View(members) = c { Some(members.len()) } else { None }).next().unwrap_or(0)
    }
}

pub type Hook = Box<dyn Fn(&Fake, &Meta, &[u8]) + Send + Sync>;

#[derive(Default)]
pub struct Registry {
    servers: Mutex<HashMap<String, Weak<Fake>>>,
}

pub struct Fake {
    pub name: String,
    node: OnceLock<Weak<Node>>,
    pub state: Mutex<State>,
    changed: Condvar,
    registry: Arc<Registry>,
    /// Runs inside `apply`, before commit order is entered.
    pub hook: Mutex<Option<Arc<Hook>>>,
    /// A copy for this server arrives only when the sender is dropped.
    pub copy_gate: Mutex<Option<mpsc::Receiver<()>>>,
    trx: AtomicU64,
}

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Committed(u64),
    Replayed(u64),
    /// Certification failed at this seqno.
    Conflict(u64),
    Failed(Code),
}

impl Fake {
    pub fn new(name: &str, registry: &Arc<Registry>, tables: Tables) -> Arc<Fake> {
        let floor = tables.position();
        let fake = Arc::new(Fake {
            name: name.into(),
            node: OnceLock::new(),
            state: Mutex::new(State { tables, floor, ..State::default() }),
            changed: Condvar::new(),
            registry: registry.clone(),
            hook: Mutex::default(),
            copy_gate: Mutex::default(),
            trx: AtomicU64::new(1),
        });
        registry.servers.lock().unwrap().insert(name.into(), Arc::downgrade(&fake));
        fake
    }

    pub fn attach(&self, node: &Arc<Node>) {
        assert!(self.node.set(Arc::downgrade(node)).is_ok());
    }

    pub fn node(&self) -> Arc<Node> {
        self.node.get().and_then(Weak::upgrade).expect("the node outlives its calls")
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn complain(&self, text: String) {
        eprintln!("{}: VIOLATION {text}", self.name);
        self.lock().violations.push(text);
    }

    /// Waits for a state; panics with the log when it does not come.
    #[track_caller]
    pub fn wait(&self, what: &str, ready: impl Fn(&State) -> bool) {
        let until = Instant::now() + PATIENCE;
        let mut s = self.lock();
        while !ready(&s) {
            let now = Instant::now();
            if now >= until {
                let log: Vec<String> = s.log.iter().map(|(l, t)| format!("  {l:?} {t}")).collect();
                let position = s.tables.position();
                drop(s);
                panic!("{}: waited for {what} in vain; at {position}\n{}", self.name, log.join("\n"));
            }
            s = self.changed.wait_timeout(s, (until - now).min(Duration::from_millis(100))).unwrap().0;
        }
    }

    /// A recv thread.
    pub fn start_applier(self: &Arc<Fake>, id: usize) -> thread::JoinHandle<Code> {
        let (fake, node) = (self.clone(), self.node());
        thread::spawn(move || {
            {
                let mut s = fake.lock();
                s.appliers += 1;
                s.threads.insert(id, thread::current().id());
            }
            let code = node.recv(RecvCtx(id as *mut _));
            fake.lock().appliers -= 1;
            fake.changed.notify_all();
            code
        })
    }

    fn check_thread(&self, ctx: RecvCtx) {
        let expected = self.lock().threads.get(&(ctx.0 as usize)).copied();
        if expected != Some(thread::current().id()) {
            self.complain(format!("context {:?} on a foreign thread", ctx.0));
        }
    }

    /// Closes a seqno in the tables; the caller is inside its commit order.
    fn record(&self, seqno: u64, what: Closed) {
        let mut s = self.lock();
        let last = s.tables.position().max(s.floor);
        if seqno != last + 1 {
            let text = format!("{seqno} closed after {last}");
            drop(s);
            return self.complain(text);
        }
        s.tables.closed.insert(seqno, what);
        s.engine.written += 1;
        drop(s);
        self.changed.notify_all();
    }

    /// The engine syncs its log.
    pub fn flush(&self) {
        let mut s = self.lock();
        s.flush();
    }

    fn enter(&self, handle: Handle, meta: &Meta) -> Code {
        let code = self.node().commit_order_enter(handle, meta);
        if code == Code::Ok && !self.lock().entered.insert(meta.seqno.0) {
            self.complain(format!("{} entered twice", meta.seqno));
        }
        code
    }

    fn leave(&self, handle: Handle, meta: &Meta, error: &[u8]) -> Code {
        self.node().commit_order_leave(handle, meta, error)
    }

    /// A commit is recorded and queued; the engine has it when `committed` is called.
    fn queue(&self, seqno: u64, what: Closed) {
        self.lock().queued.insert(seqno);
        self.record(seqno, what);
    }

    fn committed(&self, seqno: u64) {
        let mut s = self.lock();
        s.queued.remove(&seqno);
        s.engine.written += 1;
    }

    /// The server writes its position into the engine by itself: a crash must not find it there without the commits before it.
    fn store_position(&self, seqno: u64, what: Closed) {
        let queued = self.lock().queued.range(..seqno).next().copied();
        if let Some(queued) = queued {
            self.complain(format!("position {seqno} is stored before {queued} is in the engine"));
        }
        self.record(seqno, what);
    }

    // --- clients -----------------------------------------------------------------------------------------------------

    pub fn next_trx(&self) -> TrxId {
        TrxId(self.trx.fetch_add(1, Ordering::SeqCst))
    }

    /// An exclusive key per part of `key` and one piece of data.
    pub fn begin(&self, key: &str, data: &str) -> Handle {
        let mut handle = Handle { trx: self.next_trx(), opaque: 0 };
        assert_eq!(self.node().append_key(&mut handle, &[b"db", b"t", key.as_bytes()], KeyKind::Exclusive), Code::Ok);
        assert_eq!(self.node().append_data(&mut handle, data.as_bytes()), Code::Ok);
        handle
    }

    pub fn certify(&self, handle: &mut Handle) -> (Code, Option<Meta>) {
        let mut calls = 0;
        let answer = self.node().certify(ConnId(7), handle, flags::TRX_START | flags::TRX_END, &mut || calls += 1);
        assert_eq!(calls, 1, "the order is announced exactly once");
        answer
    }

    /// Everything after `certify`.
    pub fn conclude(&self, mut handle: Handle, answer: (Code, Option<Meta>), data: &str) -> End {
        let end = match answer {
            (Code::Ok, Some(meta)) => match self.enter(handle, &meta) {
                Code::Ok => {
                    self.queue(meta.seqno.0, Closed::Data(data.into()));
                    assert_eq!(self.leave(handle, &meta, b""), Code::Ok);
                    self.committed(meta.seqno.0);
                    End::Committed(meta.seqno.0)
                }
                Code::BfAbort => self.replay(handle, &meta),
                code => panic!("commit_order_enter: {code:?}"),
            },
            (Code::BfAbort, Some(meta)) => self.replay(handle, &meta),
            (Code::TrxFail, Some(meta)) => {
                self.close_failed(handle, &meta);
                End::Conflict(meta.seqno.0)
            }
            (code, None) => End::Failed(code),
            (code, meta) => panic!("certify: {code:?} with {meta:?}"),
        };
        assert_eq!(self.node().release(&mut handle), Code::Ok);
        assert_eq!(handle.opaque, 0);
        end
    }

    /// The commit of a certified transaction as far as the queue of the binary log ...
    pub fn queue_commit(&self, handle: Handle, meta: &Meta, data: &str) {
        assert_eq!(self.enter(handle, meta), Code::Ok);
        self.queue(meta.seqno.0, Closed::Data(data.into()));
        assert_eq!(self.leave(handle, meta, b""), Code::Ok);
    }

    /// ... and the rest of it.
    pub fn end_commit(&self, mut handle: Handle, meta: &Meta) {
        self.committed(meta.seqno.0);
        assert_eq!(self.node().release(&mut handle), Code::Ok);
    }

    /// Contract 4.5.
    pub fn close_failed(&self, handle: Handle, meta: &Meta) {
        assert_eq!(self.enter(handle, meta), Code::Ok);
        let before = Gtid { history: meta.gtid_history, seqno: Some(meta.seqno.prev()) };
        let (code, at) = self.node().sync_wait(Some(before), Wait::For(Duration::from_secs(i32::MAX as u64)));
        assert_eq!((code, at.seqno), (Code::Ok, Some(meta.seqno.prev())));
        self.store_position(meta.seqno.0, Closed::Nothing);
        assert_eq!(self.leave(handle, meta, b""), Code::Ok);
    }

    pub fn replay(&self, handle: Handle, meta: &Meta) -> End {
        // The context of a client's session.
        let ctx = 1_000_000 + handle.trx.0 as usize;
        self.lock().threads.insert(ctx, thread::current().id());
        match self.node().replay(handle, RecvCtx(ctx as *mut _)) {
            Code::Ok => End::Replayed(meta.seqno.0),
            Code::TrxFail => {
                self.close_failed(handle, meta);
                End::Conflict(meta.seqno.0)
            }
            code => panic!("replay: {code:?}"),
        }
    }

    pub fn run(&self, key: &str, data: &str) -> End {
        let mut handle = self.begin(key, data);
        let answer = self.certify(&mut handle);
        self.conclude(handle, answer, data)
    }

    /// Commits, again when somebody else was first.
    #[track_caller]
    pub fn commit(&self, key: &str, data: &str) -> u64 {
        for _ in 0..10 {
            match self.run(key, data) {
                End::Committed(seqno) | End::Replayed(seqno) => return seqno,
                End::Conflict(seqno) => self.reach(seqno),
                End::Failed(code) => panic!("{}: {code:?}", self.name),
            }
        }
        panic!("{}: nothing but conflicts", self.name);
    }

    /// As [`Fake::commit`], also where the majority is lost for a moment, as it is on a machine that is too busy for heartbeats.
    #[track_caller]
    pub fn commit_patiently(&self, key: &str, data: &str) -> u64 {
        self.patiently(|| {
            loop {
                match self.run(key, data) {
                    End::Committed(seqno) | End::Replayed(seqno) => return Ok(seqno),
                    End::Conflict(seqno) => self.reach(seqno),
                    End::Failed(code) => return Err(code),
                }
            }
        })
    }

    /// Again as long as it is certain that nothing was done.
    #[track_caller]
    pub fn patiently<T>(&self, attempt: impl Fn() -> Result<T, Code>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match attempt() {
                Ok(done) => return done,
                Err(Code::ConnFail) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(2));
                }
                Err(code) => panic!("{}: {code:?}", self.name),
            }
        }
    }

    /// A DDL statement.
    pub fn toi(&self, conn: u64, table: &str, action: &str, error: &[u8]) -> Result<u64, Code> {
        let seqno = self.toi_begin(conn, table, action)?;
        self.toi_end(conn, error);
        Ok(seqno)
    }

    /// A DDL statement that is ordered and under way ...
    pub fn toi_begin(&self, conn: u64, table: &str, action: &str) -> Result<u64, Code> {
        let keys =
            ToiKeys { keys: vec![vec![b"db", table.as_bytes()]], action: Bytes::copy_from_slice(action.as_bytes()) };
        match self.node().toi_start(ConnId(conn), keys, flags::TRX_START | flags::TRX_END) {
            (Code::Ok, Some(meta)) => {
                self.store_position(meta.seqno.0, Closed::Data(action.into()));
                Ok(meta.seqno.0)
            }
            (code, None) => Err(code),
            (code, meta) => panic!("toi_start: {code:?} with {meta:?}"),
        }
    }

    /// ... and its end.
    pub fn toi_end(&self, conn: u64, error: &[u8]) {
        assert_eq!(self.node().toi_end(ConnId(conn), error), Code::Ok);
    }

    /// Commits one piece of a streaming transaction.
    pub fn finish_fragment(&self, handle: Handle, meta: &Meta, data: &str) {
        assert_eq!(self.enter(handle, meta), Code::Ok);
        self.record(meta.seqno.0, Closed::Data(data.into()));
        assert_eq!(self.leave(handle, meta, b""), Code::Ok);
    }

    #[track_caller]
    pub fn reach(&self, seqno: u64) {
        self.wait(&format!("seqno {seqno}"), |s| s.tables.position() >= seqno);
    }
}

impl Server for Fake {
    fn connected(&self, view: &ServerView) -> bool {
        let mut s = self.lock();
        let own = view.own.and_then(|i| view.members.get(i));
        if view.status != ViewStatus::Primary || own.is_none() || view.seqno.is_none() {
            s.violations.push(format!("connected with {view:?}"));
        }
        if s.connected.is_some() {
            s.violations.push("connected twice without a final view".into());
        }
        s.connected = Some(view.clone());
        drop(s);
        self.changed.notify_all();
        true
    }

    fn view(&self, ctx: RecvCtx, view: &ServerView) -> bool {
        if ctx.0.is_null() && view.status == ViewStatus::NonPrimary && !view.members.is_empty() {
            // Any thread may tell of the loss of the majority, also beside appliers, but not beside another view.
            let mut s = self.lock();
            if s.alone || s.connected.is_none() {
                s.violations.push(format!("beside another view, or before any: {view:?}"));
            }
            s.views.push(view.clone());
            drop(s);
            self.changed.notify_all();
            return true;
        }
        self.check_thread(ctx);
        let mut s = self.lock();
        if s.alone || s.applying > 0 {
            let text = format!("a view while {} are applying", s.applying);
            s.violations.push(text);
        }
        if s.connected.is_none() {
            s.violations.push(format!("a view before connected: {view:?}"));
        }
        s.alone = true;
        s.views.push(view.clone());
        drop(s);
        let ids: HashSet<Uuid> = view.members.iter().map(|m| m.uuid).collect();
        if ids.len() != view.members.len() {
            self.complain(format!("members with equal ids: {view:?}"));
        }
        let last = self.node().last_committed().seqno.unwrap_or_default().0;
        match view.status {
            ViewStatus::Primary => {
                let seqno = view.seqno.unwrap_or_default().0;
                {
                    let mut s = self.lock();
                    s.opened = true;
                    if !s.tables.closed.is_empty() && s.tables.history != view.history {
                        // A server whose engine was in another history makes the view's position the engine's, whatever the data are.
                        s.tables.closed.clear();
                        s.tables.history = view.history;
                        s.floor = last;
                        s.adopted = true;
                    }
                }
                if seqno == last {
                    // A private view at the own position: the server stores nothing.
                } else if last + 1 != seqno {
                    self.complain(format!("view {seqno} while the last committed is {last}"));
                } else {
                    if self.lock().tables.closed.is_empty() {
                        // Where the history begins.
                        self.lock().floor = seqno - 1;
                    }
                    self.lock().tables.history = view.history;
                    self.store_position(seqno, Closed::View(view.members.iter().map(|m| m.uuid).collect()));
                }
            }
            ViewStatus::NonPrimary => {
                if view.members.is_empty() {
                    let mut s = self.lock();
                    s.finals += 1;
                    s.connected = None;
                    if view.own.is_some() || view.number.is_some() {
                        s.violations.push(format!("final view {view:?}"));
                    }
                } else if view.own.is_none() {
                    self.complain(format!("non-primary view without the own member: {view:?}"));
                }
            }
        }
        self.lock().alone = false;
        self.changed.notify_all();
        true
    }

    fn wants_script(&self) -> bool {
        self.lock().gtid_mode
    }

    fn process(&self) -> Option<ServerProcess> {
        let s = self.lock();
        let dir = s.process.as_ref()?;
        // Before the engine runs here, the run opens it.
        let says = match s.engine_position() {
            0 => format!("WSREP: Recovered position: {}:-1", Uuid::NIL),
            at => format!("WSREP: Recovered position: {}:{at}", s.tables.history),
        };
        if !dir.join(ENGINE_SAYS).exists() {
            std::fs::write(dir.join(ENGINE_SAYS), says).unwrap();
        }
        Some(recovery_run())
    }

    fn engine_position(&self) -> Option<(Uuid, Seqno)> {
        let s = self.lock();
        (s.opened && !s.tables.closed.is_empty()).then(|| (s.tables.history, Seqno(s.engine_position())))
    }

    fn engine_log(&self) -> EngineLog {
        let mut s = self.lock();
        if s.engine.silent {
            return EngineLog::Silent;
        }
        let log = EngineLog::At { written: s.engine.written, durable: s.engine.durable };
        if !s.engine.lazy {
            s.flush();
        }
        log
    }

    fn sst_request(&self) -> Result<Vec<u8>, ()> {
        let mut s = self.lock();
        s.sst_requests += 1;
        if s.no_copy {
            return Ok(Vec::new());
        }
        if s.trivial {
            return Ok(b"trivial\0".to_vec());
        }
        drop(s);
        self.changed.notify_all();
        Ok(format!("fake\0{}\0", self.name).into_bytes())
    }

    fn apply(&self, ctx: RecvCtx, handle: Handle, ws_flags: u32, data: &[u8], meta: &Meta) -> Applied {
        self.check_thread(ctx);
        let exit_loop = {
            let mut s = self.lock();
            if s.alone {
                s.violations.push(format!("{} applied beside a view", meta.seqno));
            }
            s.applying += 1;
            std::mem::take(&mut s.exit_next)
        };
        let node = self.node();
        let last = node.last_committed().seqno.unwrap_or_default();
        if meta.depends_on.is_none_or(|d| d > last) {
            self.complain(format!("{} applied at {last}, depends on {:?}", meta.seqno, meta.depends_on));
        }
        let hook = self.hook.lock().unwrap().clone();
        if let Some(hook) = hook {
            (*hook)(self, meta, data);
        }
        let mut ok = self.enter(handle, meta) == Code::Ok;
        if ok {
            let nothing = ws_flags & flags::ROLLBACK != 0 && ws_flags & flags::TRX_START != 0;
            match (nothing, ws_flags & flags::ISOLATION != 0) {
                // The server itself waits for those before it.
                (true, _) => self.record(meta.seqno.0, Closed::Nothing),
                (false, true) => self.store_position(meta.seqno.0, Closed::Data(data.to_vec())),
                (false, false) => self.queue(meta.seqno.0, Closed::Data(data.to_vec())),
            }
            let error = {
                let s = self.lock();
                s.errors.get(&meta.seqno.0).or(s.failing.get(data)).cloned().unwrap_or_default()
            };
            let code = self.leave(handle, meta, &error);
            if !error.is_empty() {
                self.lock().leave_codes.insert(meta.seqno.0, code);
            }
            ok = code == Code::Ok;
            self.committed(meta.seqno.0);
        }
        self.lock().applying -= 1;
        self.changed.notify_all();
        Applied { ok, exit_loop }
    }

    fn sst_donate(&self, ctx: RecvCtx, request: &[u8], gtid: Gtid, bypass: bool) -> bool {
        self.check_thread(ctx);
        let mut words = request.split(|b| *b == 0);
        if words.next() != Some(b"fake") {
            self.complain(format!("asked to donate for {request:?}"));
            return false;
        }
        let joiner = String::from_utf8(words.next().unwrap_or_default().to_vec()).unwrap();
        {
            let mut s = self.lock();
            s.donations += 1;
            let at = s.tables.position();
            if gtid.seqno.map(|s| s.0) != Some(at) && !bypass {
                s.violations.push(format!("asked to donate at {gtid:?}, the data are at {at}"));
            }
        }
        let Some(joiner) = self.registry.servers.lock().unwrap().get(&joiner).and_then(Weak::upgrade) else {
            return false;
        };
        let (tables, domain) = {
            let s = self.lock();
            (s.tables.clone(), s.domain)
        };
        let node = self.node();
        // The script runs on after the callback has returned.
        thread::spawn(move || {
            if let Some(gate) = joiner.copy_gate.lock().unwrap().take() {
                let _ = gate.recv();
            }
            let copied = tables.gtid();
            {
                let mut s = joiner.lock();
                s.domain = domain;
                s.opened = true;
                if !bypass {
                    s.floor = tables.position();
                    s.tables = tables;
                }
            }
            let position = if bypass { gtid } else { copied };
            assert_eq!(joiner.node().sst_received(position, 0), Code::Ok);
            assert_eq!(node.sst_sent(position, 0), Code::Ok);
        });
        true
    }

    fn synced(&self) -> bool {
        let mut s = self.lock();
        if s.connected.is_none() {
            s.violations.push("synced without connection".into());
        }
        s.synced += 1;
        drop(s);
        self.changed.notify_all();
        true
    }

    fn log(&self, level: Level, text: &str) {
        if std::env::var_os("TRIREME_TEST_LOG").is_some() {
            eprintln!("{}: {level:?} {text}", self.name);
        }
        self.lock().log.push((level, text.into()));
    }

    fn end(&self, reason: &str) {
        self.log(Level::Fatal, reason);
        self.lock().ended = Some(reason.into());
        self.changed.notify_all();
    }

    fn allowed(&self, _address: &str) -> bool {
        true
    }

    fn event(&self, name: &str, value: &str) {
        self.lock().events.push((name.into(), value.into()));
        self.changed.notify_all();
    }
}
