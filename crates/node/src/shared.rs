//! What the threads of one node share.

use crate::chores::{Chore, Notice, Service};
use crate::command::Command;
use crate::command::CommandQueue;
use crate::core::Log;
use crate::engine::EngineJob;
use crate::index::{Errand, IndexJob};
use crate::metrics::Metrics;
use crate::monitor::OrderMonitor;
use crate::outage::Outage;
use crate::panics::Panics;
use crate::position::Stop;
use crate::queue::{ApplyQueue, Item};
use crate::saved::Saved;
use crate::settings::Settings;
use crate::slot::Slot;
use crate::status::{Counters, FlowFigures, GroupStatus};
use crate::syncer::{SpaceJob, SyncJob};
use crate::trx::TrxMap;
use crate::votes::Votes;
use crate::{Gtid, InitArgs, Level, Meta, RecvCtx, Server, ServerView, position, startup};
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};
use trireme_replicator::message::AppMessage;
use trireme_surface::status::LocalState;
use trireme_surface::texts;
use trireme_transport::AdmitToken;
use trireme_types::{Member, NodeId, Seqno, Uuid, View};
use trireme_wslog::{DirStorage, LogReader, SpareTicket, SyncTicket};

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
    pub status: Mutex<GroupStatus>,
    pub flow: Mutex<FlowFigures>,
    pub history: Mutex<Uuid>,
    pub saved: Mutex<Saved>,
    pub tois: Mutex<HashMap<u64, Seqno>>,
    pub chores: mpsc::Sender<Chore>,
    pub services: mpsc::Sender<Service>,
    pub notices: mpsc::Sender<Notice>,
    pub syncs: mpsc::Sender<SyncJob>,
    pub space: mpsc::Sender<SpaceJob>,
    pub errands: mpsc::Sender<IndexJob>,
    pub looks: mpsc::Sender<EngineJob>,
    /// How often the data of the server have become others, as far as looks at its engine are concerned.
    pub epochs: AtomicU64,
    pub reader: Mutex<Option<LogReader<DirStorage>>>,
    pub outage: Outage,
    pub panics: Panics,
    /// How often the server has asked to be desynced, and not been resynced since.
    pub desyncs: AtomicU32,
    /// Whom this node is sending a full copy to.
    pub donating: Mutex<Option<NodeId>>,
    pub inconsistent: AtomicBool,
    /// The server refused a view: it is on its way out, and parts of it that a callback would need are gone already.
    pub server_gone: AtomicBool,
    /// This connection hands the server nothing more but its final view: the data are not where they have to be for what comes next.
    pub halted: AtomicBool,
    /// Last seqno of the connection that has ended or is ending.
    pub last: AtomicU64,
    pub closed: AtomicBool,
    /// A thread of this node panicked.
    pub failed: AtomicBool,
}

/// For the jobs that a helper still has when the node is closed; a disk that takes longer is taken for one that does not answer.
pub const HELPERS_END: Duration = Duration::from_secs(10);

/// How often a wait for helpers looks whether it is still wanted.
const LOOK_AT_HELPERS: Duration = Duration::from_millis(100);

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
    pub fn settle_position(&self) {
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
    pub fn doubt_data(&self) {
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
    pub fn give_up(&self, reason: String, corrupt: bool) {
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
    pub fn leave(&self) {
        // First: a group thread that opens the commands after an outage looks at this then.
        self.outage.end();
        self.commands.push(Command::Leave);
    }

    /// The server is on its way out.
    pub fn on_view_refused(&self) {
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
    pub fn thread_failed(&self, thread: &str, said: &str) {
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
    pub fn vote(&self, seqno: Seqno, code: u64, text: &str) -> bool {
        let message = AppMessage::Vote { seqno, code, text: text.chars().take(1024).collect() };
        self.commands.push(Command::App { message, slot: None })
    }

    pub fn meta(&self, seqno: Seqno, trx: u64, conn: u64, depends_on: Option<Seqno>) -> Meta {
        let origin = lock(&self.status).uuid;
        Meta { gtid_history: self.history(), seqno, origin, trx, conn, depends_on }
    }

    pub fn position(&self) -> Gtid {
        Gtid { history: self.history(), seqno: Some(self.monitor.left()) }
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of a node's lock panics")
}

fn out_of_service(thread: &str, said: &str) -> String {
    format!("Internal error in thread {thread}: {said}. This node is out of service until the server is restarted.")
}

/// Is it still so early?
pub fn within(limit: Duration) -> impl Fn() -> bool {
    let deadline = Instant::now() + limit;
    move || Instant::now() < deadline
}
