//! `Node`: the calls of the wsrep API on plain values.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use trireme_certification::{Head, WriteSet, WriteSetBuilder};
use trireme_surface::status::LocalState;
use trireme_surface::texts;
use trireme_transport::AdmitToken;
use trireme_types::{Member, NodeId, Seqno, Uuid, View};
use trireme_wslog::{DirStorage, LogReader, SpareTicket, SyncTicket};

use crate::chores::{Chore, Notice, Service, run_chores, run_notices, run_services};
use crate::commands::CommandQueue;
use crate::core::{Command, Core, Log, Outcome};
use crate::engine::{EngineJob, run_looks};
use crate::index::{Errand, IndexJob, run_errands};
use crate::metrics::{Metrics, run_state, state_failed};
use crate::monitor::{Interrupted, OrderMonitor};
use crate::outage::Outage;
use crate::panics::Panics;
use crate::position::{self, Stop, Word};
use crate::queue::{ApplyItem, ApplyQueue, Item};
use crate::saved::Saved;
use crate::settings::Settings;
use crate::slot::Slot;
use crate::startup::{self, Patience, Wish};
use crate::status::{Counters, FlowFigures, GroupStatus};
use crate::stop_signal;
use crate::syncer::{SpaceJob, SyncJob, run_space, run_syncs};
use crate::threads::{Helper, Waits, spawn};
use crate::trx::{Stage, Trx, TrxMap};
use crate::votes::Votes;
use crate::*;
use trireme_replicator::message::AppMessage;
use trireme_replicator::votes::{Settled, error_class};

/// What the threads of one node share.
pub struct Shared {
    pub server: Arc<dyn Server>,
    pub args: InitArgs,
    pub settings: Settings,
    pub monitor: OrderMonitor,
    pub queue: Arc<ApplyQueue>,
    pub trxs: TrxMap,
    pub commands: CommandQueue,
    pub counters: Counters,
    pub metrics: Metrics,
    pub votes: Votes,
    pub capabilities: u32,
    pub protocol: i32,
    status: Mutex<GroupStatus>,
    flow: Mutex<FlowFigures>,
    history: Mutex<Uuid>,
    saved: Mutex<Saved>,
    tois: Mutex<HashMap<u64, Seqno>>,
    chores: mpsc::Sender<Chore>,
    services: mpsc::Sender<Service>,
    notices: mpsc::Sender<Notice>,
    syncs: mpsc::Sender<SyncJob>,
    space: mpsc::Sender<SpaceJob>,
    errands: mpsc::Sender<IndexJob>,
    looks: mpsc::Sender<EngineJob>,
    /// How often the data of the server have become others, as far as looks at its engine are concerned.
    epochs: AtomicU64,
    reader: Mutex<Option<LogReader<DirStorage>>>,
    pub outage: Outage,
    pub panics: Panics,
    /// How often the server has asked to be desynced, and not been resynced since.
    pub desyncs: AtomicU32,
    /// Whom this node is sending a full copy to.
    donating: Mutex<Option<NodeId>>,
    inconsistent: AtomicBool,
    /// The server refused a view: it is on its way out, and parts of it that a callback would need are gone already.
    server_gone: AtomicBool,
    /// This connection hands the server nothing more but its final view: the data are not where they have to be for what comes next.
    halted: AtomicBool,
    /// Last seqno of the connection that has ended or is ending.
    last: AtomicU64,
    closed: AtomicBool,
    /// A thread of this node panicked.
    failed: AtomicBool,
}

/// Why a write set cannot be read back.
enum Unreadable {
    Lost(String),
    /// And the connection ended before the log was there again.
    LogFailed,
}

/// Handle tag of write sets that an applier brings back.
pub(crate) const APPLIER: u64 = u64::MAX;
/// Local transactions carry this: the id finds them.
const LOCAL: u64 = 1;

impl Shared {
    pub fn log(&self, level: Level, text: String) {
        if level == Level::Debug && !self.settings.debug() {
            return;
        }
        let _ = self.chores.send(Chore::Log(level, text));
    }

    /// The server cannot go on: there is no way back from here (a physical full copy failed while the server waits for
    /// it). Ends the process, after the reason has been logged.
    pub fn die(&self, text: String) {
        self.halted.store(true, Relaxed);
        let _ = self.chores.send(Chore::Die(text));
    }

    pub fn event(&self, name: &'static str, value: String) {
        let _ = self.services.send(Service::Event(name, value));
    }

    pub fn ask_allowed(&self, token: AdmitToken, address: String) {
        let _ = self.services.send(Service::Allow { token, address });
    }

    pub fn sync(&self, ticket: SyncTicket<DirStorage>) {
        let _ = self.syncs.send(SyncJob::Sync(ticket));
    }

    pub fn prepare_space(&self, ticket: SpareTicket<DirStorage>) {
        let _ = self.space.send(SpaceJob::Spare(ticket));
    }

    pub fn drop_elsewhere(&self, large: impl Send + 'static) {
        let _ = self.space.send(SpaceJob::Drop(Box::new(large)));
    }

    pub fn run_errand(&self, errand: Errand) {
        // Where nobody takes it, it is dropped, which the index notices.
        let _ = self.errands.send(IndexJob::Run(Box::new(errand)));
    }

    /// How far is the storage engine's log on disk? The answer is a [`Command::EngineSeen`].
    pub fn look_at_engine(&self, epoch: u64) {
        let _ = self.looks.send(EngineJob::Look { epoch });
    }

    /// Another number at each call.
    pub fn new_epoch(&self) -> u64 {
        self.epochs.fetch_add(1, Relaxed)
    }

    pub fn log_conflicts(&self) -> bool {
        self.settings.log_conflicts()
    }

    pub fn set_history(&self, history: Uuid) {
        *lock(&self.history) = history;
    }

    pub fn history(&self) -> Uuid {
        *lock(&self.history)
    }

    pub fn set_group_status(&self, status: GroupStatus) {
        *lock(&self.status) = status;
    }

    pub fn group_status(&self) -> GroupStatus {
        lock(&self.status).clone()
    }

    pub fn flow_figures(&self) -> FlowFigures {
        lock(&self.flow).clone()
    }

    pub fn change_flow_figures(&self, change: impl FnOnce(&mut FlowFigures)) {
        change(&mut lock(&self.flow));
    }

    /// Whatever changes the state files; tells the operator when they cannot be written.
    pub fn save<T>(&self, change: impl FnOnce(&mut Saved) -> T) -> T {
        let mut saved = lock(&self.saved);
        let result = change(&mut saved);
        let trouble = saved.take_trouble();
        drop(saved);
        if let Some(text) = trouble {
            self.log(Level::Warn, text);
        }
        result
    }

    pub fn on_primary_view(&self, view: &View, me: &Member, history: Uuid) {
        self.save(|saved| saved.on_view(history, view, me));
    }

    pub fn mark_running(&self, history: Uuid) {
        self.save(|saved| saved.running(history));
    }

    pub fn mark_inconsistent(&self) {
        self.inconsistent.store(true, Relaxed);
        self.discard_data();
    }

    /// The data are of no use here, and the state file says so; a full copy makes it good.
    pub fn discard_data(&self) {
        self.save(Saved::corrupt);
    }

    /// The data here, which are empty, are the beginning of `history`.
    pub fn found(&self, history: Uuid) {
        self.save(|saved| saved.found(history));
    }

    /// The connection is ending; it closes nothing above `last`.
    pub fn set_last(&self, last: Seqno) {
        self.last.store(last.0, Relaxed);
        self.monitor.set_last(Some(last));
    }

    /// Writes the position down once everything of a connection that ended has left commit order, and the engine has it on disk. Does
    /// nothing when that is done already, or was never possible. Waits for the engine: for a thread that may.
    fn settle_position(&self) {
        let (left, ended) = (self.monitor.left(), self.monitor.ended());
        // Without appliers nobody has closed, or will close, what is queued.
        let complete = left.0 >= self.last.load(Relaxed) || self.queue.len() > 0;
        let inconsistent = self.inconsistent.load(Relaxed);
        if complete || inconsistent {
            // Without the lock: the engine may have to be waited for.
            let known = !inconsistent && self.save(|saved| saved.is_live());
            let stop = known.then(|| position::at_stop(&*self.server, self.history(), left, ended));
            if stop == Some(Stop::Unknown) {
                let text = "the storage engine has not written its last commits to disk: the next start asks it for its position";
                self.log(Level::Info, text.into());
            }
            self.save(|saved| saved.stopped(self.history(), stop));
        }
    }

    /// What the server is about to store is not known to follow what it has. Only a full copy makes the data good.
    fn doubt_data(&self) {
        if !self.inconsistent.load(Relaxed) {
            let reason = "the data here may lack what the group has: a full copy is needed at the next start";
            self.log(Level::Error, reason.into());
            self.mark_inconsistent();
        }
    }

    /// Is there a connection to the group, primary or not?
    pub fn connected(&self) -> bool {
        self.commands.is_open()
    }

    /// `wsrep_local_state` and its comment.
    pub fn local_state(&self, status: &GroupStatus) -> (i64, &'static str) {
        let state = if self.closed.load(Relaxed) {
            LocalState::Destroyed
        } else if self.inconsistent.load(Relaxed) {
            LocalState::Inconsistent
        } else {
            status.local_state()
        };
        (state.number(), state.comment())
    }

    pub fn on_vote_begun(&self, seqno: Seqno) {
        if self.votes.begun(seqno, || self.monitor.left()) {
            self.vote(seqno, 0, "Success");
        }
    }

    pub fn end_votes(&self) {
        self.votes.end();
    }

    pub fn abandon_votes(&self) {
        self.votes.abandon();
    }

    /// This node applied `seqno` without error and the group decided that it is an error.
    pub fn lost_vote(&self, seqno: Seqno) {
        self.give_up(texts::vote_inconsistent(self.history(), seqno), true);
    }

    /// The process was to end, and has not: a test host's.
    pub fn outlive(&self, reason: String) {
        self.give_up(reason, false);
    }

    /// Leave now. `corrupt`: with data that are not the group's.
    fn give_up(&self, reason: String, corrupt: bool) {
        if corrupt {
            // At once: what fails in consequence is no news.
            self.inconsistent.store(true, Relaxed);
        }
        if !self.commands.push(Command::GiveUp { reason: reason.clone(), corrupt }) {
            // Nobody is there to order a leave, but the group thread may wait for its disk, or just have ceased to.
            self.log(Level::Error, reason.clone());
            self.outage.end();
            self.commands.push(Command::GiveUp { reason, corrupt });
        }
    }

    /// Leave in order and end.
    fn leave(&self) {
        // First: a group thread that opens the commands after an outage looks at this then.
        self.outage.end();
        self.commands.push(Command::Leave);
    }

    /// The server is on its way out.
    fn on_view_refused(&self) {
        self.server_gone.store(true, Relaxed);
        self.log(Level::Info, "the server could not process a view; leaving the group".into());
        self.leave();
    }

    /// The majority is lost. A server behind whose applier this waited would go on serving reads of old data, and say that it is ready,
    /// for as long as that takes (a long statement, a vote). wsrep-lib takes this view without an applier's context, on any thread.
    pub fn tell_non_primary(&self, view: ServerView) {
        match self.queue.begin_beside() {
            // Where nobody takes it, the node is closed.
            Some(beside) => drop(self.notices.send(Notice::NonPrimary(view, beside))),
            None => self.queue.push(Item::View { view, closes: None }),
        }
    }

    /// On the thread for notices.
    pub fn deliver_non_primary(&self, view: &ServerView) {
        if !self.server.view(RecvCtx(std::ptr::null_mut()), view) {
            self.on_view_refused();
        }
    }

    /// A panic in one of the node's own threads: what it should have done is not done, so the node leaves, and only a new start of the
    /// server makes another attempt. Not for the group thread, which must not call the server.
    fn thread_failed(&self, thread: &str, said: &str) {
        // Directly: the thread for log lines may be the one.
        self.server.log(Level::Fatal, &out_of_service(thread, said));
        self.failed.store(true, Relaxed);
        self.leave();
    }

    /// The same for a thread of the transport; called by the group thread.
    pub fn part_failed(&self, thread: &str, said: &str) {
        self.log(Level::Fatal, out_of_service(thread, said));
        self.failed.store(true, Relaxed);
        self.leave();
    }

    /// A new log in the place of one that has failed. Waits for the disk as long as `wanted` says so.
    pub fn reopen_log(&self, failed: &mut Log, wanted: impl Fn() -> bool) -> Result<Log, String> {
        // What these threads still have to say is about the old one.
        let (synced, spare) = (Arc::new(Slot::default()), Arc::new(Slot::default()));
        let _ = self.syncs.send(SyncJob::Pass(synced.clone()));
        let _ = self.space.send(SpaceJob::Pass(spare.clone()));
        for passed in [synced, spare] {
            while passed.wait_until(Instant::now() + LOOK_AT_HELPERS).is_none() {
                if !wanted() {
                    return Err("the disk does not answer".into());
                }
            }
        }
        startup::reopen_log(&self.settings, failed, &|level, text| self.log(level, text.to_string()))
    }

    /// For [`Shared::reopen_log`]: for a while, and not once the connection is to end.
    pub fn outage_goes_on(&self) -> impl Fn() -> bool {
        let early = within(HELPERS_END);
        move || early() && !self.outage.await_end(Duration::ZERO)
    }

    pub fn set_reader(&self, log: &Log) {
        *lock(&self.reader) = Some(log.reader());
    }

    pub fn is_inconsistent(&self) -> bool {
        self.inconsistent.load(Relaxed)
    }

    /// False when there is no group to vote in.
    fn vote(&self, seqno: Seqno, code: u64, text: &str) -> bool {
        let message = AppMessage::Vote { seqno, code, text: text.chars().take(1024).collect() };
        self.commands.push(Command::App { message, slot: None })
    }

    fn meta(&self, seqno: Seqno, trx: u64, conn: u64, depends_on: Option<Seqno>) -> Meta {
        let origin = lock(&self.status).uuid;
        Meta { gtid_history: self.history(), seqno, origin, trx, conn, depends_on }
    }

    fn position(&self) -> Gtid {
        Gtid { history: self.history(), seqno: Some(self.monitor.left()) }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of a node's lock panics")
}

fn out_of_service(thread: &str, said: &str) -> String {
    format!("Internal error in thread {thread}: {said}. This node is out of service until the server is restarted.")
}

/// One of the node's helpers.
fn helper(
    shared: &Arc<Shared>,
    name: &'static str,
    waits: Waits,
    work: impl Fn(&Arc<Shared>) + Send + 'static,
) -> Helper {
    let (for_work, for_failure) = (shared.clone(), shared.clone());
    Helper::start(name, waits, move || work(&for_work), move |said| for_failure.thread_failed(name, said))
}

/// Is it still so early?
fn within(limit: Duration) -> impl Fn() -> bool {
    let deadline = Instant::now() + limit;
    move || Instant::now() < deadline
}

/// `None` after the deadline.
fn wait_to_connect(connected: &Slot<Result<(), String>>, deadline: Option<Instant>) -> Option<Result<(), String>> {
    loop {
        let look = Instant::now() + LOOK_FOR_STOP;
        if let Some(answer) = connected.wait_until(deadline.map_or(look, |deadline| deadline.min(look))) {
            return Some(answer);
        }
        if stop_signal::is_pending() {
            return Some(Err("the server was told to stop while it waited for its peers".into()));
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return None;
        }
    }
}

/// What only `connect`, `disconnect` and `close` touch.
#[derive(Default)]
struct Running {
    core: Option<JoinHandle<Option<Log>>>,
    /// Counts connections: a `connect` that waits must not end a later one's group thread.
    connection: u64,
    log: Option<Log>,
    helpers: Vec<Helper>,
    /// Its end is the end of the state thread.
    state_end: Option<mpsc::Sender<()>>,
    closed: bool,
    /// Helpers that did not end when they were told to.
    stuck: Vec<Helper>,
}

/// For the jobs that a helper still has when the node is closed; a disk that takes longer is taken for one that does not answer.
const HELPERS_END: Duration = Duration::from_secs(10);
/// How often a wait for helpers looks whether it is still wanted.
const LOOK_AT_HELPERS: Duration = Duration::from_millis(100);
/// How often a `connect` that waits looks whether the server was told to stop.
const LOOK_FOR_STOP: Duration = Duration::from_millis(500);
/// How long a new connection waits for the appliers of the former one.
const FORMER_APPLIERS: Duration = Duration::from_secs(60);
/// How often an applier looks for an entry that the log lost in an outage.
const LOOK_FOR_ENTRY: Duration = Duration::from_millis(100);
/// How long the final view waits for local transactions that are about to commit.
const LAST_COMMITS: Duration = Duration::from_secs(10);

/// One provider instance. All methods may be called from any thread at any time after `new`.
pub struct Node {
    shared: Arc<Shared>,
    running: Mutex<Running>,
}

impl Node {
    /// `Err` carries the reason, already logged; the provider answers NODE_FAIL.
    pub fn new(args: InitArgs, server: Arc<dyn Server>) -> Result<Node, String> {
        let refuse = |reason: String| {
            server.log(Level::Error, &reason);
            reason
        };
        let settings = Settings::new(&args).map_err(refuse)?;
        let mut saved = Saved::open(&args, &settings, &*server).map_err(refuse)?;
        let (log, closed) = startup::open_log(&settings, &|level, text| server.log(level, text)).map_err(refuse)?;
        if !closed {
            saved.doubt();
        }
        let (chores, chores_in) = mpsc::channel();
        let (services, services_in) = mpsc::channel();
        let (notices, notices_in) = mpsc::channel();
        let (syncs, syncs_in) = mpsc::channel();
        let (space, space_in) = mpsc::channel();
        let (errands, errands_in) = mpsc::channel();
        let (looks, looks_in) = mpsc::channel();
        let position = saved.position();
        let shared = Arc::new(Shared {
            server,
            capabilities: CAPABILITIES,
            protocol: args.protocol.min(PROTOCOL_MAX),
            args,
            settings,
            monitor: OrderMonitor::new(position.map_or(Seqno::ZERO, |(_, s)| s)),
            queue: Arc::default(),
            trxs: TrxMap::default(),
            commands: CommandQueue::default(),
            counters: Counters::default(),
            metrics: Metrics::default(),
            votes: Votes::default(),
            status: Mutex::default(),
            flow: Mutex::new(FlowFigures::new(Instant::now())),
            history: Mutex::new(position.map_or(Uuid::NIL, |(h, _)| h)),
            saved: Mutex::new(saved),
            tois: Mutex::default(),
            chores,
            services,
            notices,
            syncs,
            space,
            errands,
            looks,
            epochs: AtomicU64::new(0),
            reader: Mutex::new(Some(log.reader())),
            outage: Outage::default(),
            panics: Panics::default(),
            desyncs: AtomicU32::new(0),
            donating: Mutex::default(),
            inconsistent: AtomicBool::new(false),
            server_gone: AtomicBool::new(false),
            halted: AtomicBool::new(false),
            last: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        });
        shared.set_last(shared.monitor.left());
        let helpers = vec![
            helper(&shared, "trireme-chores", Waits::Server, move |shared| run_chores(shared, &chores_in)),
            helper(&shared, "trireme-services", Waits::Server, move |shared| run_services(shared, &services_in)),
            helper(&shared, "trireme-notices", Waits::Server, move |shared| run_notices(shared, &notices_in)),
            helper(&shared, "trireme-sync", Waits::LogDisk, move |shared| run_syncs(shared, &syncs_in)),
            helper(&shared, "trireme-space", Waits::LogDisk, move |shared| run_space(shared, &space_in)),
            helper(&shared, "trireme-index", Waits::Nothing, move |shared| run_errands(shared, &errands_in)),
            helper(&shared, "trireme-engine", Waits::Server, move |shared| run_looks(shared, &looks_in)),
        ];
        let (state_end, state_end_in) = mpsc::channel();
        let (for_work, for_failure) = (shared.clone(), shared.clone());
        let state = Helper::start(
            "trireme-state",
            Waits::DataDisk,
            move || run_state(&for_work, &state_end_in),
            move |said| state_failed(&for_failure, said),
        );
        let helpers = helpers.into_iter().chain([state]).collect();
        let running = Running { log: Some(log), helpers, state_end: Some(state_end), ..Running::default() };
        Ok(Node { shared, running: Mutex::new(running) })
    }

    /// Leaves the group if need be and joins every thread of the node. Idempotent. False when a thread still waits for a disk, or for the
    /// server, that does not answer: then the node must not be dropped, nor the library unloaded.
    pub fn close(&self) -> bool {
        self.disconnect();
        let mut running = lock(&self.running);
        if running.closed {
            return running.stuck.is_empty();
        }
        running.closed = true;
        self.shared.closed.store(true, Relaxed);
        self.shared.settle_position();
        let _ = self.shared.syncs.send(SyncJob::End);
        let _ = self.shared.space.send(SpaceJob::End);
        let _ = self.shared.errands.send(IndexJob::End);
        let _ = self.shared.looks.send(EngineJob::End);
        let _ = self.shared.services.send(Service::End);
        let _ = self.shared.notices.send(Notice::End);
        let _ = self.shared.chores.send(Chore::End);
        running.state_end = None;
        let deadline = Instant::now() + HELPERS_END;
        let helpers = std::mem::take(&mut running.helpers);
        running.stuck = helpers.into_iter().filter_map(|helper| helper.join(deadline).err()).collect();
        *lock(&self.shared.reader) = None;
        for helper in &running.stuck {
            self.shared.server.log(Level::Warn, &helper.excuse());
        }
        // A sync or a segment that is under way belongs to the log; nothing else does.
        let in_use = running.stuck.iter().any(|helper| helper.waits() == Waits::LogDisk);
        if let Some(log) = running.log.take_if(|_| !in_use)
            && let Err(error) = log.close()
        {
            self.shared.server.log(Level::Warn, &error.to_string());
        }
        running.stuck.is_empty()
    }

    pub fn connect(&self, cluster: &str, url: &str, donor: &str, bootstrap: bool) -> Code {
        match self.try_connect(cluster, url, donor, bootstrap) {
            Ok(()) => Code::Ok,
            Err(reason) => {
                for line in reason.lines() {
                    self.shared.server.log(Level::Error, line);
                }
                Code::NodeFail
            }
        }
    }

    fn try_connect(&self, cluster: &str, url: &str, donor: &str, bootstrap: bool) -> Result<(), String> {
        let (connected, patience, connection) = self.begin_connection(cluster, url, donor, bootstrap)?;
        // Without the lock: `disconnect` must be able to end this wait.
        let deadline = match patience {
            Patience::None => return Ok(()),
            Patience::Limited(limit) => Some(Instant::now() + limit),
            Patience::Unlimited => None,
        };
        let answer = wait_to_connect(&connected, deadline);
        let reason = match answer {
            Some(Ok(())) => return Ok(()),
            Some(Err(reason)) => reason,
            None => texts::primary_not_reached(cluster, url).join("\n"),
        };
        let mut running = lock(&self.running);
        if running.connection == connection {
            self.end_core(&mut running);
        }
        Err(reason)
    }

    #[allow(clippy::type_complexity)]
    fn begin_connection(
        &self,
        cluster: &str,
        url: &str,
        donor: &str,
        bootstrap: bool,
    ) -> Result<(Arc<Slot<Result<(), String>>>, Patience, u64), String> {
        let shared = &self.shared;
        let mut running = lock(&self.running);
        self.end_core(&mut running);
        if shared.failed.load(Relaxed) {
            return Err("this node is out of service after an internal error: restart the server".into());
        }
        if !shared.queue.wait_empty(Instant::now() + FORMER_APPLIERS) {
            return Err("appliers of the former connection have not ended".into());
        }
        shared.settle_position();
        let target = shared.settings.target(url, cluster)?;
        let bootstrap = bootstrap || shared.settings.bootstrap_wanted();
        let mut log = self.usable_log(&mut running)?;
        let wish = Wish { cluster, target: &target, bootstrap, first: running.connection == 0 };
        let planned = shared.save(|saved| startup::prepare(shared, &mut log, &wish, saved));
        let plan = match planned {
            Ok(plan) => plan,
            Err(reason) => {
                running.log = Some(log);
                return Err(reason);
            }
        };
        shared.inconsistent.store(false, Relaxed);
        shared.halted.store(false, Relaxed);
        shared.monitor.set_closed(false);
        shared.queue.open();
        shared.outage.begin();
        shared.desyncs.store(0, Relaxed);
        shared.commands.open(plan.transport.waker());
        shared.settings.with(|o| o.set_group_connected(true));
        let connected = Arc::new(Slot::default());
        let patience = plan.patience;
        let (for_core, slot, donor) = (shared.clone(), connected.clone(), donor.to_string());
        running.connection += 1;
        running.core = Some(spawn("trireme-group", move || Core::new(for_core, plan, log, donor, slot).run()));
        Ok((connected, patience, running.connection))
    }

    /// The log; opened again if its disk had failed, as nothing that was read or written before can be relied on (rule 17).
    fn usable_log(&self, running: &mut Running) -> Result<Log, String> {
        let shared = &self.shared;
        match running.log.take() {
            Some(log) if log.failed().is_none() => Ok(log),
            Some(mut failed) => match shared.reopen_log(&mut failed, within(HELPERS_END)) {
                Ok(log) => {
                    shared.set_reader(&log);
                    Ok(log)
                }
                Err(reason) => {
                    running.log = Some(failed);
                    Err(reason)
                }
            },
            None => Err("the write-set log is not open: restart the server".into()),
        }
    }

    /// Ends the group thread and takes the log back.
    fn end_core(&self, running: &mut Running) {
        if let Some(core) = running.core.take() {
            self.shared.leave();
            running.log = core.join().unwrap_or(None);
        }
    }

    pub fn disconnect(&self) -> Code {
        // A pause left open by a connection that is being closed must not hold the shutdown.
        self.shared.monitor.resume();
        // Before the lock: wakes a `connect` that waits for peers.
        self.shared.leave();
        let mut running = lock(&self.running);
        self.end_core(&mut running);
        Code::Ok
    }

    /// After a panic in a call: leaves the group. A write set in which it happened may never leave commit order, or never end; whatever waits
    /// for that is let go after the time that the last commits get anyway.
    pub fn leave_after_panic(&self) {
        let shared = &self.shared;
        // Also when there is no leaving in order, because the panic came inside `connect`.
        let _let_go = OnDrop(|| {
            let last = Seqno(shared.last.load(Relaxed));
            if shared.monitor.wait_ended(last, Some(Instant::now() + LAST_COMMITS)).is_err() {
                shared.monitor.set_closed(true);
            }
        });
        self.disconnect();
    }

    /// The server has been given an answer about an ordered transaction that may be wrong.
    pub fn doubt_data(&self) {
        self.shared.doubt_data();
    }

    /// The next call, thread or item of that name panics.
    #[cfg(feature = "panics")]
    pub fn panic_in(&self, place: &str) {
        self.shared.panics.arm(place);
    }

    /// Nobody passes the thread's place of that name while `stall`.
    #[cfg(feature = "panics")]
    pub fn stall_in(&self, place: &str, stall: bool) {
        self.shared.panics.stall(place, stall);
    }

    /// Does somebody stand there for that?
    #[cfg(feature = "panics")]
    pub fn is_stalled_in(&self, place: &str) -> bool {
        self.shared.panics.is_stalled(place)
    }

    /// In every entry: panics if the entry is asked to, here or by the file `panic-in` of the data directory.
    #[cfg(feature = "panics")]
    pub fn panic_if_asked(&self, entry: &str) {
        self.shared.panics.take_file(&self.shared.args.data_dir);
        self.shared.panics.come_by(entry);
    }

    /// For an arbitrator: asks `donor` (the list given to `connect`) to carry out a state request that is not for this node's own
    /// sake. Returns when a server has been chosen, with its label; waits as long as there is one that is only busy.
    pub fn ask_donor(&self, request: Vec<u8>) -> Result<String, String> {
        let slot = Arc::new(Slot::default());
        self.shared.commands.push(Command::AskDonor { request, slot: slot.clone() });
        slot.wait()
    }

    // --- appliers --------------------------------------------------------------------------------------------------

    pub fn recv(&self, ctx: RecvCtx) -> Code {
        let queue = &self.shared.queue;
        queue.arrive();
        // Also when a callback panics: the queue must know.
        let _departure = OnDrop(|| queue.depart());
        let sank = || {
            self.shared.commands.push(Command::BacklogSank);
        };
        while let Some(item) = queue.take(sank) {
            let write_set = item.is_write_set();
            let _done = OnDrop(|| queue.done(write_set));
            if let Some(code) = self.handle(ctx, item) {
                return code;
            }
        }
        Code::ConnFail
    }

    /// For a thread whose `recv` panicked: waits for the last item, which tells the server of the end. What comes before is left to the
    /// other threads, or to the next start.
    pub fn recv_end(&self, ctx: RecvCtx) -> Code {
        let queue = &self.shared.queue;
        queue.arrive();
        let _departure = OnDrop(|| queue.depart());
        while let Some(item) = queue.take(|| ()) {
            let write_set = item.is_write_set();
            let _done = OnDrop(|| queue.done(write_set));
            if matches!(item, Item::Final { .. }) {
                self.handle(ctx, item);
            }
        }
        Code::NodeFail
    }

    /// `Some` when this thread is to return.
    fn handle(&self, ctx: RecvCtx, item: Item) -> Option<Code> {
        let shared = &self.shared;
        if shared.server_gone.load(Relaxed) {
            return matches!(item, Item::Final { .. }).then_some(Code::NodeFail);
        }
        shared.panics.come_by(item.place());
        if shared.halted.load(Relaxed) && !matches!(item, Item::Final { .. }) {
            return None;
        }
        match item {
            Item::Connected(view) => {
                if !shared.server.connected(&view) {
                    shared.give_up("the server refused the connection".into(), false);
                }
                None
            }
            Item::View { view, closes } => {
                self.deliver_view(ctx, &view, closes);
                None
            }
            Item::Compare { position, word } => {
                self.compare(position, word);
                None
            }
            Item::SstRequest { data } => {
                self.request_state(data);
                None
            }
            Item::Apply(item) => self.apply(ctx, item),
            Item::Donate { joiner, request, position, at } => {
                self.donate(ctx, joiner, &request, position, at);
                None
            }
            Item::Synced { at } => {
                if shared.monitor.wait_left(at, None).is_ok() && !shared.server.synced() {
                    shared.give_up("the server failed to become synced".into(), false);
                }
                None
            }
            Item::Final { view, last } => {
                // Local transactions that are ordered may still be on their way into the engine, also when they have left commit order.
                let _ = shared.monitor.wait_ended(last, Some(Instant::now() + LAST_COMMITS));
                shared.settle_position();
                shared.server.view(ctx, &view);
                Some(Code::Ok)
            }
        }
    }

    fn deliver_view(&self, ctx: RecvCtx, view: &ServerView, closes: Option<Seqno>) {
        let shared = &self.shared;
        if let Some(seqno) = closes {
            if shared.monitor.wait_start_when_ended(seqno).is_err() {
                return;
            }
        }
        // The committed position must stay below the view until the callback returns (contract 3.8).
        if !shared.server.view(ctx, view) {
            return shared.on_view_refused();
        }
        if let Some(seqno) = closes {
            if shared.monitor.enter(seqno, None).is_ok() {
                self.leave_order(seqno);
                shared.monitor.end(seqno);
            }
        }
    }

    /// The engine runs: is it where this node goes on from?
    fn compare(&self, position: Seqno, word: Word) {
        let shared = &self.shared;
        let history = shared.history();
        if let Err(found) = position::compare(&*shared.server, (history, position), word) {
            let advice = match word {
                Word::Engine => {
                    "When the server is started again it goes on from where the engine is, or takes a full copy. If --wsrep-start-position \
                     names another position, remove it"
                }
                Word::Operator => "Start the server with a wsrep_sst_method that brings a full copy",
            };
            // A server that stays without its group is restarted by nobody; what has been opened now cannot be taken back.
            shared.die(format!(
                "the storage engine is {found}, not at {history}:{position}, where this node was to go on from: rows would be missing, or \
                 written twice. The server ends. {advice}"
            ));
        }
    }

    fn request_state(&self, data: bool) {
        let shared = &self.shared;
        match shared.server.sst_request() {
            Ok(request) if request.is_empty() && data => {
                let reason = "State transfer is needed, but the running server cannot take a full copy: restart it";
                shared.give_up(reason.into(), false);
            }
            Ok(request) => {
                if data {
                    shared.save(Saved::receiving);
                }
                shared.commands.push(Command::StateRequest { request });
            }
            Err(()) => {
                shared.die(texts::SST_REQUEST_FAILED.into());
            }
        }
    }

    fn apply(&self, ctx: RecvCtx, item: ApplyItem) -> Option<Code> {
        let shared = &self.shared;
        if shared.monitor.wait_start(item.seqno, item.depends_on).is_err() {
            return None;
        }
        let body = match item.body {
            Some(body) => body,
            None => match self.read_body(&item) {
                Ok(body) => body,
                Err(Unreadable::Lost(reason)) => {
                    shared.give_up(format!("write set {} cannot be read back: {reason}", item.seqno), true);
                    return None;
                }
                Err(Unreadable::LogFailed) => {
                    // The connection ends. Whoever has committed above this already leaves a gap here.
                    let reason = format!("write set {} cannot be read back before the connection ends", item.seqno);
                    shared.log(Level::Error, reason);
                    shared.mark_inconsistent();
                    shared.monitor.set_closed(true);
                    return None;
                }
            },
        };
        let parsed = WriteSet::parse(body);
        let head = parsed.as_ref().map_or_else(|_| Head::default(), |ws| *ws.head());
        let flags = if item.ok { head.flags } else { flags::ROLLBACK | flags::TRX_START | flags::TRX_END };
        let dummy = flags & flags::ROLLBACK != 0;
        let data = match parsed {
            Ok(ws) if !dummy => ws.data(),
            Ok(_) | Err(_) => Bytes::new(),
        };
        let toi = flags & flags::ISOLATION != 0;
        if toi {
            if shared.monitor.wait_start_when_ended(item.seqno).is_err() {
                return None;
            }
            if !self.begin_statement(item.seqno) {
                return None;
            }
        }
        let meta = Meta {
            gtid_history: shared.history(),
            seqno: item.seqno,
            origin: head.origin,
            trx: head.trx,
            conn: head.conn,
            depends_on: Some(item.depends_on),
        };
        let handle = Handle { trx: head.trx, opaque: APPLIER };
        let begun = Instant::now();
        let applied = shared.server.apply(ctx, handle, flags, &data, &meta);
        shared.metrics.apply.record(begun.elapsed());
        shared.monitor.end(item.seqno);
        if toi {
            shared.save(Saved::end_unsafe);
        }
        // After a lost vote the failure is no news.
        if !applied.ok && !shared.monitor.is_closed() && !shared.inconsistent.load(Relaxed) {
            let reason = format!("Failed to apply write set {}:{}; leaving the group", shared.history(), item.seqno);
            shared.give_up(reason, true);
        }
        applied.exit_loop.then_some(Code::Ok)
    }

    /// Waits through an outage of the log's disk.
    fn read_body(&self, item: &ApplyItem) -> Result<Bytes, Unreadable> {
        let outage = &self.shared.outage;
        loop {
            let seen = outage.returns();
            let Some(reader) = lock(&self.shared.reader).clone() else { return Err(Unreadable::LogFailed) };
            match reader.get(item.index) {
                Ok(Some(entry)) if entry.header.seqno == item.seqno => return Ok(entry.payload),
                // The log is being closed, or the others have yet to repair it.
                Ok(None) if outage.is_out() || seen > 0 && item.index > reader.held().1 => {
                    if outage.await_end(LOOK_FOR_ENTRY) {
                        return Err(Unreadable::LogFailed);
                    }
                }
                Ok(_) => return Err(Unreadable::Lost("the log holds it no more".into())),
                Err(_) if outage.await_return(seen) => {}
                Err(_) => return Err(Unreadable::LogFailed),
            }
        }
    }

    fn donate(&self, ctx: RecvCtx, joiner: NodeId, request: &[u8], position: Option<Seqno>, at: Seqno) {
        let shared = &self.shared;
        if shared.monitor.wait_left(at, None).is_ok() {
            *lock(&shared.donating) = Some(joiner);
            let gtid = Gtid { history: shared.history(), seqno: Some(position.unwrap_or(at)) };
            if !shared.server.sst_donate(ctx, request, gtid, position.is_some()) {
                self.donor_done(false);
            }
        }
        shared.monitor.lift_barrier(at);
    }

    fn donor_done(&self, ok: bool) -> bool {
        let Some(joiner) = lock(&self.shared.donating).take() else { return false };
        self.shared.commands.push(Command::App { message: AppMessage::DonorDone { joiner, ok }, slot: None });
        true
    }

    // --- local transactions: `handle.opaque` is 0 on first contact and set by append_* -----------------------------

    fn local(&self, handle: &mut Handle) -> Arc<Trx> {
        handle.opaque = LOCAL;
        self.shared.trxs.get_or_create(handle.trx)
    }

    pub fn append_key(&self, handle: &mut Handle, parts: &[&[u8]], kind: KeyKind) -> Code {
        let trx = self.local(handle);
        let mut state = trx.lock();
        let builder = state.builder.get_or_insert_with(WriteSetBuilder::new);
        match builder.add_key(parts.iter().copied(), kind) {
            Ok(()) => Code::Ok,
            Err(_) => {
                state.refused = Some(Code::TrxFail);
                Code::TrxFail
            }
        }
    }

    pub fn append_data(&self, handle: &mut Handle, data: &[u8]) -> Code {
        let trx = self.local(handle);
        let mut state = trx.lock();
        let limit = self.shared.settings.max_ws_size();
        let builder = state.builder.get_or_insert_with(WriteSetBuilder::new);
        let size = accounted_bytes(builder) + data.len();
        if size > limit {
            state.refused = Some(Code::SizeExceeded);
            drop(state);
            self.too_big(size, limit);
            return Code::SizeExceeded;
        }
        builder.add_data(data);
        Code::Ok
    }

    fn too_big(&self, size: usize, limit: usize) {
        self.shared.server.log(Level::Warn, &format!("transaction size limit ({limit}) exceeded: {size}"));
    }

    /// `sequenced` is called once, as early as the place among this node's write sets is fixed, at the latest on return.
    pub fn certify(
        &self,
        conn: u64,
        handle: &mut Handle,
        flags: u32,
        sequenced: &mut dyn FnMut(),
    ) -> (Code, Option<Meta>) {
        let shared = &self.shared;
        let begun = Instant::now();
        let trx = self.local(handle);
        let body = {
            let mut state = trx.lock();
            (state.begun, state.entered) = (Some(begun), None);
            let refused = state.refused.or(trx.is_aborted().then_some(Code::ConnFail));
            if let Some(code) = refused {
                drop(state);
                sequenced();
                return (code, None);
            }
            let builder = state.builder.take().unwrap_or_default();
            let limit = shared.settings.max_ws_size();
            let size = accounted_bytes(&builder);
            if size > limit {
                drop(state);
                self.too_big(size, limit);
                sequenced();
                return (Code::SizeExceeded, None);
            }
            let origin = lock(&shared.status).uuid;
            let head = Head { flags, last_seen: shared.monitor.left(), origin, trx: trx.id, conn };
            state.stage = Stage::Certifying;
            state.flags = flags;
            builder.finish(&head)
        };
        let slot = Arc::new(Slot::default());
        shared.commands.push(Command::Propose { body, patient: false, trx: Some(trx.clone()), slot: slot.clone() });
        // The command queue is first in, first out: the place is fixed.
        sequenced();
        let outcome = slot.wait();
        let mut state = trx.lock();
        match outcome {
            Outcome::NotSent => {
                state.stage = Stage::Collecting;
                (Code::ConnFail, None)
            }
            Outcome::Abandoned => {
                state.stage = Stage::Collecting;
                (Code::NodeFail, None)
            }
            Outcome::Ordered { seqno, ok, depends_on, body } => {
                shared.metrics.ordered(begun, &slot);
                let meta = shared.meta(seqno, trx.id, conn, Some(depends_on));
                state.meta = Some(meta);
                state.body = Some(body);
                if !ok {
                    state.stage = Stage::Failed(seqno);
                    drop(state);
                    // The rollback closes the seqno, which a pause holds up: better wait here than half-way through it.
                    // Unless somebody is in want of its locks.
                    let _ = shared.monitor.wait_unpaused(seqno, &trx.aborted);
                    return (Code::TrxFail, Some(meta));
                }
                state.stage = Stage::Certified(seqno);
                if trx.is_aborted() {
                    return (state.hit(seqno), Some(meta));
                }
                drop(state);
                match shared.monitor.wait_unpaused(seqno, &trx.aborted) {
                    Err(Interrupted::Aborted) => (trx.lock().hit(seqno), Some(meta)),
                    Ok(()) | Err(Interrupted::Closed | Interrupted::TimedOut) => (Code::Ok, Some(meta)),
                }
            }
        }
    }

    pub fn commit_order_enter(&self, handle: Handle, meta: &Meta) -> Code {
        let monitor = &self.shared.monitor;
        let trx = if handle.opaque == LOCAL { self.shared.trxs.get(handle.trx) } else { None };
        let stage = trx.as_ref().map(|t| t.lock().stage);
        let begun = Instant::now();
        let entered = match (&trx, stage) {
            // Only a certified original attempt can still be aborted; a replay must not be (contract 4.6).
            (Some(trx), Some(Stage::Certified(_))) => monitor.enter(meta.seqno, Some(&trx.aborted)),
            // The server rolls back and stores the position without a commit.
            (Some(_), Some(Stage::Failed(_))) => monitor.enter_when_ended(meta.seqno),
            _ => monitor.enter(meta.seqno, None),
        };
        if entered.is_ok()
            && let Some(trx) = &trx
        {
            let now = Instant::now();
            self.shared.metrics.turn.record(now - begun);
            trx.lock().entered = Some(now);
        }
        match entered {
            Ok(()) => Code::Ok,
            Err(Interrupted::Aborted) => trx.map_or(Code::BfAbort, |t| t.lock().hit(meta.seqno)),
            // The node has left in the middle: nothing orders this any more. What the group has committed a client may be
            // told; an applier's work is of no use to anybody.
            Err(Interrupted::Closed) if handle.opaque == APPLIER => Code::NodeFail,
            Err(Interrupted::Closed | Interrupted::TimedOut) => {
                if meta.seqno > self.shared.monitor.left().next() {
                    self.shared.doubt_data();
                }
                Code::Ok
            }
        }
    }

    /// `error`: empty when the write set was applied.
    pub fn commit_order_leave(&self, handle: Handle, meta: &Meta, error: &[u8]) -> Code {
        let code = if error.is_empty() { Code::Ok } else { self.vote_on_error(meta.seqno, error) };
        if self.leave_order(meta.seqno) && handle.opaque == LOCAL {
            if let Some(trx) = self.shared.trxs.get(handle.trx) {
                let (stage, begun, entered) = {
                    let state = trx.lock();
                    (state.stage, state.begun, state.entered)
                };
                if matches!(stage, Stage::Certified(_) | Stage::Replaying(_)) {
                    if let (Some(begun), Some(entered)) = (begun, entered) {
                        let now = Instant::now();
                        self.shared.metrics.engine.record(now - entered);
                        self.shared.metrics.total.record(now - begun);
                    }
                    self.shared.counters.local_commits.fetch_add(1, Relaxed);
                }
            }
        }
        code
    }

    /// Leaves the section and pays a vote that is owed for it.
    fn leave_order(&self, seqno: Seqno) -> bool {
        let left = self.shared.monitor.leave(seqno);
        match self.shared.votes.settle(seqno) {
            Settled::Nothing => {}
            Settled::Owed => {
                self.shared.vote(seqno, 0, "Success");
            }
            Settled::Lost => self.shared.lost_vote(seqno),
        }
        left
    }

    /// This node failed where others may have succeeded: the group decides who is wrong.
    fn vote_on_error(&self, seqno: Seqno, error: &[u8]) -> Code {
        let shared = &self.shared;
        let class = error_class(error);
        let slot = shared.votes.failed(seqno);
        let text = String::from_utf8_lossy(error);
        let text = text.trim_end_matches('\0');
        if !shared.vote(seqno, class, text) {
            return Code::NodeFail;
        }
        match slot.wait() {
            Some(winner) if winner == class => Code::Ok,
            Some(_) => {
                shared.give_up(texts::inconsistent_by_consensus(shared.history(), seqno), true);
                Code::NodeFail
            }
            None => Code::NodeFail,
        }
    }

    pub fn release(&self, handle: &mut Handle) -> Code {
        if handle.opaque != LOCAL {
            return Code::Ok;
        }
        if let Some(trx) = self.shared.trxs.get(handle.trx) {
            let mut state = trx.lock();
            let ordered = state.stage.seqno();
            let fragment = matches!(state.stage, Stage::Certified(_)) && state.flags & flags::TRX_END == 0;
            if fragment {
                // The end of a fragment, not of the transaction (contract 6.4).
                state.streaming = true;
                state.stage = Stage::Collecting;
                state.body = None;
                state.meta = None;
            } else {
                drop(state);
                self.shared.trxs.remove(handle.trx);
                handle.opaque = 0;
            }
            if let Some(seqno) = ordered {
                // A fragment that was hit while it waited for its turn: the server rolls it back and does not ask for the
                // turn again, so it is closed here. Nothing to do in all other cases.
                if self.shared.monitor.enter(seqno, None).is_ok() {
                    self.leave_order(seqno);
                }
                self.shared.monitor.end(seqno);
            }
        }
        Code::Ok
    }

    pub fn replay(&self, handle: Handle, ctx: RecvCtx) -> Code {
        let shared = &self.shared;
        let Some(trx) = shared.trxs.get(handle.trx) else { return Code::Fatal };
        let (body, meta, flags) = {
            let mut state = trx.lock();
            match (state.stage, state.body.clone(), state.meta) {
                (Stage::Certified(seqno), Some(body), Some(meta)) => {
                    state.stage = Stage::Replaying(seqno);
                    (body, meta, state.flags)
                }
                (Stage::Failed(_), _, _) => return Code::TrxFail,
                _ => return Code::Fatal,
            }
        };
        trx.aborted.store(false, Relaxed);
        let Ok(ws) = WriteSet::parse(body) else { return Code::Fatal };
        if shared.monitor.wait_start(meta.seqno, meta.seqno.prev()).is_err() {
            return Code::TrxFail;
        }
        let applied = shared.server.apply(ctx, handle, flags, &ws.data(), &meta);
        if applied.ok {
            shared.counters.local_replays.fetch_add(1, Relaxed);
            Code::Ok
        } else {
            Code::Fatal
        }
    }

    /// `bf_seqno`: `None` for -1. The second value is the victim's seqno, `None` for -1.
    pub fn abort_certification(&self, bf_seqno: Option<Seqno>, victim: u64) -> (Code, Option<Seqno>) {
        let Some(trx) = self.shared.trxs.get(victim) else { return (Code::Ok, None) };
        let state = trx.lock();
        match state.stage {
            Stage::Collecting => {
                self.shared.monitor.abort(None, &trx.aborted);
                (Code::Ok, None)
            }
            Stage::Certifying => {
                self.shared.monitor.abort(None, &trx.aborted);
                drop(state);
                // Flow control may be holding it back until the very applier that wants its locks has got on.
                self.shared.commands.push(Command::Recall);
                (Code::Ok, None)
            }
            // A fragment may be past it, and older; its transaction is not, and keeps the locks that somebody is in want of.
            Stage::Certified(seqno) if state.flags & flags::TRX_END == 0 => {
                if !self.shared.monitor.abort(Some(seqno), &trx.aborted) {
                    self.shared.monitor.abort(None, &trx.aborted);
                }
                (Code::Ok, Some(seqno))
            }
            Stage::Certified(seqno) => {
                let older = bf_seqno.is_some_and(|bf| bf > Seqno::ZERO && seqno < bf);
                if older || !self.shared.monitor.abort(Some(seqno), &trx.aborted) {
                    (Code::NotAllowed, Some(seqno))
                } else {
                    (Code::Ok, Some(seqno))
                }
            }
            Stage::Failed(seqno) => {
                // It rolls back by itself; wake it if it waits for the end of a pause meanwhile.
                self.shared.monitor.abort(Some(seqno), &trx.aborted);
                (Code::NotAllowed, Some(seqno))
            }
            Stage::Replaying(seqno) => (Code::NotAllowed, Some(seqno)),
        }
    }

    /// Orders the rollback of a streaming transaction; does not wait for its delivery (contract 6.4).
    pub fn rollback(&self, trx: u64) -> Code {
        let shared = &self.shared;
        let origin = lock(&shared.status).uuid;
        let head = Head {
            flags: flags::ROLLBACK | flags::PA_UNSAFE,
            last_seen: shared.monitor.left(),
            origin,
            trx,
            conn: u64::MAX,
        };
        if !shared.group_status().member {
            return Code::ConnFail;
        }
        let body = WriteSetBuilder::new().finish(&head).into_bytes();
        shared.commands.push(Command::ProposeUnowned { body });
        Code::Ok
    }

    pub fn assign_read_view(&self, handle: &mut Handle, position: Option<Gtid>) -> Code {
        let _ = (handle, position);
        Code::Ok
    }

    // --- total order isolation -------------------------------------------------------------------------------------

    pub fn toi_start(&self, conn: u64, keys: ToiKeys<'_>, flags: u32) -> (Code, Option<Meta>) {
        let shared = &self.shared;
        if flags != flags::TRX_START | flags::TRX_END {
            return (Code::NotImplemented, None);
        }
        if !shared.save(Saved::is_writable) {
            let reason = "grastate.dat cannot be written, so a crash in the middle of a statement would not be noticed: no DDL is executed here \
                          until the data directory is writable again";
            shared.log(Level::Error, reason.into());
            return (Code::ConnFail, None);
        }
        let mut builder = WriteSetBuilder::new();
        for key in &keys.keys {
            if builder.add_key(key.iter().copied(), KeyKind::Exclusive).is_err() {
                return (Code::TrxFail, None);
            }
        }
        builder.add_data(&keys.action);
        let limit = shared.settings.max_ws_size();
        let size = accounted_bytes(&builder);
        if size > limit {
            self.too_big(size, limit);
            return (Code::SizeExceeded, None);
        }
        let origin = lock(&shared.status).uuid;
        let head =
            Head { flags: flags | flags::ISOLATION, last_seen: shared.monitor.left(), origin, trx: u64::MAX, conn };
        let slot = Arc::new(Slot::default());
        let body = builder.finish(&head);
        shared.commands.push(Command::Propose { body, patient: true, trx: None, slot: slot.clone() });
        match slot.wait() {
            Outcome::NotSent => (Code::ConnFail, None),
            Outcome::Abandoned => (Code::NodeFail, None),
            Outcome::Ordered { seqno, depends_on, .. } => {
                let meta = shared.meta(seqno, u64::MAX, conn, Some(depends_on));
                lock(&shared.tois).insert(conn, seqno);
                if shared.monitor.enter_when_ended(seqno).is_err() {
                    return (Code::NodeFail, Some(meta));
                }
                if !self.begin_statement(seqno) {
                    // Without a position, so that the server does not close what has not happened.
                    lock(&shared.tois).remove(&conn);
                    return (Code::NodeFail, None);
                }
                (Code::Ok, Some(meta))
            }
        }
    }

    /// A statement that is ordered is about to be executed. False: a crash in the middle of it would not be noticed, because the state
    /// file cannot be written (rule 26). The process ends with its data before the statement, which is executed when it comes back. To
    /// leave the group would not do: what is ordered behind the statement would be committed without it.
    fn begin_statement(&self, seqno: Seqno) -> bool {
        let shared = &self.shared;
        let begun = shared.save(Saved::begin_unsafe);
        if !begun {
            shared.die(format!(
                "DDL statement {seqno} cannot be marked in grastate.dat, so it must not be executed. Need to abort. Make the data directory \
                 writable and start the server again."
            ));
        }
        begun
    }

    pub fn toi_end(&self, conn: u64, error: &[u8]) -> Code {
        let shared = &self.shared;
        let Some(seqno) = lock(&shared.tois).remove(&conn) else { return Code::Ok };
        if !error.is_empty() {
            // A losing TOI originator still hears OK; it leaves by the two views (contract 5.4).
            let _ = self.vote_on_error(seqno, error);
        }
        self.leave_order(seqno);
        shared.monitor.end(seqno);
        shared.save(Saved::end_unsafe);
        Code::Ok
    }

    // --- waiting, pausing ------------------------------------------------------------------------------------------

    /// `upto` `None`: a causal read. The second value is the position reached.
    pub fn sync_wait(&self, upto: Option<Gtid>, timeout: Wait) -> (Code, Gtid) {
        let shared = &self.shared;
        let timeout = match timeout {
            Wait::Default => shared.settings.causal_read_timeout(),
            Wait::For(limit) => limit,
        };
        let begun = Instant::now();
        // Far limits (the server passes INT_MAX seconds) are no limit.
        let deadline = Instant::now().checked_add(timeout.min(Duration::from_secs(86_400 * 365)));
        let target = match upto {
            None => {
                let slot = Arc::new(Slot::default());
                shared.commands.push(Command::Read { slot: slot.clone() });
                let answer = match deadline {
                    Some(at) => slot.wait_until(at),
                    None => Some(slot.wait()),
                };
                match answer {
                    Some(Some(seqno)) => {
                        shared.counters.causal_reads.fetch_add(1, Relaxed);
                        seqno
                    }
                    Some(None) => return (Code::ConnFail, shared.position()),
                    None => return (Code::TrxFail, shared.position()),
                }
            }
            Some(gtid) if gtid.history != shared.history() => return (Code::TrxMissing, shared.position()),
            Some(gtid) => gtid.seqno.unwrap_or(Seqno::ZERO),
        };
        // A reader wants to see what was committed; the server, inside its own commit order, only that it has left.
        let waited = match upto {
            None => shared.monitor.wait_ended(target, deadline),
            Some(_) => shared.monitor.wait_left(target, deadline),
        };
        if upto.is_none() && waited.is_ok() {
            shared.metrics.causal_read.record(begun.elapsed());
        }
        match waited {
            Ok(()) => (Code::Ok, shared.position()),
            Err(Interrupted::TimedOut) => (Code::TrxFail, shared.position()),
            Err(Interrupted::Closed | Interrupted::Aborted) => (Code::ConnFail, shared.position()),
        }
    }

    pub fn last_committed(&self) -> Gtid {
        self.shared.position()
    }

    /// Last seqno that has left commit order, or `None` when pausing failed.
    pub fn pause(&self) -> Option<Seqno> {
        let shared = &self.shared;
        let at = shared.monitor.pause().ok()?;
        shared.save(|saved| saved.paused(shared.history(), at));
        shared.log(Level::Info, texts::paused_at(shared.history(), at));
        Some(at)
    }

    pub fn resume(&self) -> Code {
        let shared = &self.shared;
        if shared.monitor.paused() {
            shared.save(|saved| saved.resumed(shared.history()));
            shared.log(Level::Info, texts::resuming_at(shared.monitor.left()));
            shared.monitor.resume();
            shared.log(Level::Info, texts::RESUMED.into());
        }
        Code::Ok
    }

    fn say(&self, message: AppMessage) -> Code {
        let slot = Arc::new(Slot::default());
        self.shared.commands.push(Command::App { message, slot: Some(slot.clone()) });
        if slot.wait() { Code::Ok } else { Code::ConnFail }
    }

    pub fn desync(&self) -> Code {
        let code = self.remembered(self.say(AppMessage::Desync));
        if code == Code::Ok {
            self.shared.desyncs.fetch_add(1, Relaxed);
        }
        code
    }

    pub fn resync(&self) -> Code {
        let code = self.remembered(self.say(AppMessage::Resync));
        let one_less = |n: u32| n.checked_sub(1);
        let _ = self.shared.desyncs.fetch_update(Relaxed, Relaxed, one_less);
        code
    }

    /// In an outage of the log's disk nobody is told; the group is, when this node comes back.
    fn remembered(&self, code: Code) -> Code {
        if code == Code::ConnFail && self.shared.outage.is_out() { Code::Ok } else { code }
    }

    // --- state transfer --------------------------------------------------------------------------------------------

    pub fn sst_sent(&self, position: Gtid, code: i32) -> Code {
        let ok = code == 0 && position.seqno.is_some();
        if !ok {
            self.shared.log(Level::Warn, format!("SST sending failed: {code}"));
        }
        if self.donor_done(ok) { Code::Ok } else { Code::ConnFail }
    }

    pub fn sst_received(&self, position: Gtid, state: Bytes, code: i32) -> Code {
        let shared = &self.shared;
        let _ = state;
        let group = shared.history();
        let (position, answer) = match position.seqno {
            Some(_) if code == 0 && position.history != group => {
                shared.log(Level::Error, format!("SST brought history {}, the group has {group}", position.history));
                (None, Code::NodeFail)
            }
            Some(seqno)
                if code == 0
                    && let Err(found) = position::compare(&*shared.server, (group, seqno), Word::Engine) =>
            {
                let text = format!("SST brought position {group}:{seqno}, but the storage engine is {found}");
                shared.log(Level::Error, text);
                (None, Code::NodeFail)
            }
            Some(seqno) if code == 0 => {
                shared.log(Level::Info, format!("SST received: {}:{seqno}", position.history));
                (Some(seqno), Code::Ok)
            }
            Some(_) | None => {
                shared.log(Level::Error, format!("SST failed: {code}"));
                (None, Code::Ok)
            }
        };
        if shared.commands.push(Command::StateReceived { position }) { answer } else { Code::ConnFail }
    }

    // --- options and status ----------------------------------------------------------------------------------------

    /// Several assignments in one string.
    pub fn options_set(&self, text: &str) -> Code {
        match self.shared.settings.set(&self.shared, text) {
            Ok(()) => Code::Ok,
            Err(lines) => {
                for line in lines {
                    self.shared.server.log(Level::Warn, &line);
                }
                Code::NodeFail
            }
        }
    }

    pub fn options_get(&self) -> String {
        self.shared.settings.print()
    }

    pub fn stats(&self) -> Vec<(String, StatValue)> {
        crate::stats::collect(&self.shared)
    }

    pub fn stats_reset(&self) {
        self.shared.counters.reset();
        self.shared.metrics.latency.reset();
        self.shared.metrics.send_queue.reset();
        self.shared.monitor.reset_stats();
        self.shared.queue.reset_stats();
        self.shared.change_flow_figures(|f| f.reset(Instant::now()));
    }

    /// From a signal handler: async-signal-safe. Cuts or restores the network of every node of the process.
    pub fn isolate_all(mode: i32) -> bool {
        trireme_transport::isolate_all(mode).is_ok()
    }
}

/// MULTI_MASTER, CERTIFICATION, PARALLEL_APPLYING, TRX_REPLAY, ISOLATION, PAUSE, CAUSAL_READS, INCREMENTAL_WRITESET, STREAMING.
pub const CAPABILITIES: u32 = 0x817f;
/// Highest application protocol of the server that is known to work.
const PROTOCOL_MAX: i32 = 4;

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// What `repl.max_ws_size` is compared with: the size that the same write set has in Galera (a header of 64 bytes, 24 for
/// each set, 8 for each key and for its database, table and root), so that a limit means the same to a user of either.
fn accounted_bytes(builder: &WriteSetBuilder) -> usize {
    64 + 24 + builder.data_bytes() + 24 + 8 * (builder.key_count() + 3)
}
