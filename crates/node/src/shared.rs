//! The state that the threads of one node share, in parts; and all that concerns several parts at once.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use trireme_flight::Event;
use trireme_replicator::message::AppMessage;
use trireme_replicator::votes::ErrorClass;
use trireme_surface::status::LocalState;
use trireme_surface::texts;
use trireme_types::{NodeId, Seqno};
use trireme_wslog::{DirStorage, LogReader};

use crate::command::{Command, CommandQueue};
use crate::data::Data;
use crate::failures::{self, KeptFailures};
use crate::host::Host;
use crate::item::Item;
use crate::jobs::{HELPERS_END, Jobs};
use crate::life::Life;
use crate::linger::Linger;
use crate::log::{self, Log, LogError};
use crate::main_thread::MainThread;
use crate::metrics::Metrics;
use crate::monitor::OrderMonitor;
use crate::outage::Outage;
use crate::panics::Panics;
use crate::picture::Picture;
use crate::queue::ApplyQueue;
use crate::saved::Saved;
use crate::slot::Slot;
use crate::status::{GroupStatus, Status};
use crate::threads::{lock, within};
use crate::trx::TrxMap;
use crate::votes::Votes;
use crate::{ConnId, Gtid, Level, Meta, RecvCtx, ServerView, Source};

/// See the module. The type of each part says who changes it.
pub struct Shared {
    pub host: Arc<Host>,
    pub jobs: Jobs,
    /// The way to the group thread.
    pub commands: CommandQueue,
    pub monitor: OrderMonitor,
    pub queue: Arc<ApplyQueue>,
    /// Of clients whose write set is being ordered.
    pub clients: Linger,
    /// Of appliers without work.
    pub appliers: Linger,
    pub trxs: TrxMap,
    pub votes: Votes,
    pub failures: KeptFailures,
    pub data: Data,
    pub status: Status,
    pub metrics: Arc<Metrics>,
    pub life: Life,
    pub main_thread: MainThread,
    pub outage: Outage,
    pub panics: Arc<Panics>,
    /// Statements in total-order isolation that are being executed. Changed by the clients that execute them.
    pub tois: Mutex<HashMap<ConnId, Seqno>>,
    /// For appliers that read a body from the log. Changed with the log, by whoever opens it; `None` once the node is closed.
    pub reader: Mutex<Option<LogReader<DirStorage>>>,
    /// The member that this node is sending a full copy to. Changed by the applier that begins it, and by the server when it
    /// ends.
    pub donating: Mutex<Option<NodeId>>,
    /// The applier that tells the server a view, and the position of that view. Changed by it.
    pub viewed: Mutex<Option<(ThreadId, Seqno)>>,
}

/// How often a wait for helpers looks whether it is still wanted.
const LOOK_AT_HELPERS: Duration = Duration::from_millis(100);
/// A status query must not hang with the group thread.
const PICTURE_PATIENCE: Duration = Duration::from_secs(1);

impl Shared {
    pub fn new(host: Arc<Host>, jobs: Jobs, saved: Saved, log: &Log) -> Shared {
        let metrics = Arc::new(Metrics::new(host.settings.with(|o| o.bool("repl.metrics"))));
        let left = saved.position().map_or(Seqno::ZERO, |(_, seqno)| seqno);
        let failures = KeptFailures::open(&host.settings.with(|o| PathBuf::from(o.text("gcache.dir"))));
        let shared = Shared {
            data: Data::new(host.clone(), saved),
            host,
            jobs,
            commands: CommandQueue::default(),
            monitor: OrderMonitor::new(left),
            queue: Arc::default(),
            clients: Linger::default(),
            appliers: Linger::default(),
            trxs: TrxMap::default(),
            votes: Votes::default(),
            failures,
            status: Status::default(),
            metrics,
            life: Life::default(),
            main_thread: MainThread::default(),
            outage: Outage::default(),
            panics: Arc::default(),
            tois: Mutex::default(),
            reader: Mutex::default(),
            donating: Mutex::default(),
            viewed: Mutex::default(),
        };
        shared.set_last(left);
        shared.set_reader(log);
        shared
    }

    /// The server cannot go on: there is no way back from here (a physical full copy failed while the server waits for
    /// it). Ends the process, after the reason has been logged.
    pub fn die(&self, text: String) {
        self.life.halt();
        self.host.end(text);
    }

    /// The connection is ending; it closes nothing above `last`.
    pub fn set_last(&self, last: Seqno) {
        self.data.set_last(last);
        self.monitor.set_last(Some(last));
    }

    /// See [`Data::settle_position`]. For a thread that may wait for the engine, some seconds at most.
    pub fn settle_position(&self) {
        let (left, ended) = (self.monitor.left(), self.monitor.ended());
        let at_stop = |history| self.jobs.engine_at_stop(history, left, ended);
        self.data.settle_position(left, self.queue.len() > 0, at_stop);
    }

    /// Is there a connection to the group, primary or not?
    pub fn connected(&self) -> bool {
        self.commands.is_open()
    }

    /// `wsrep_local_state` and its comment.
    pub fn local_state(&self, status: &GroupStatus) -> (i64, &'static str) {
        let state = if self.life.is_closed() {
            LocalState::Destroyed
        } else if self.data.is_inconsistent() {
            LocalState::Inconsistent
        } else {
            status.local_state()
        };
        (state.number(), state.comment())
    }

    /// The group thread's knowledge; `None` while there is no connection to a group, or its thread does not answer.
    pub fn picture(&self) -> Option<Picture> {
        let slot = Arc::new(Slot::default());
        self.commands.push(Command::Describe { slot: slot.clone() });
        slot.wait_until(Instant::now() + PICTURE_PATIENCE).flatten()
    }

    pub fn meta(&self, seqno: Seqno, source: Source, depends_on: Seqno) -> Meta {
        let origin = self.status.own_uuid();
        Meta { gtid_history: self.data.history(), seqno, origin, source, depends_on: Some(depends_on) }
    }

    pub fn position(&self) -> Gtid {
        Gtid { history: self.data.history(), seqno: Some(self.monitor.left()) }
    }

    // Votes.

    /// False when there is no group to vote in.
    pub fn vote(&self, seqno: Seqno, class: ErrorClass, text: &str) -> bool {
        self.host.flight.note(Event::VoteCast { seqno, class: class.0 });
        let message = AppMessage::Vote { seqno, class, text: text.chars().take(1024).collect() };
        self.commands.push(Command::App { message, slot: None })
    }

    pub fn on_vote_begun(&self, seqno: Seqno) {
        if self.votes.begun(seqno, || self.monitor.left()) {
            self.answer_vote(seqno);
        }
    }

    /// `applied`: what the server has applied counts; its position is not known otherwise.
    pub fn on_vote_done(&self, seqno: Seqno, winner: ErrorClass, applied: bool) {
        let left = || if applied { self.monitor.left() } else { Seqno::ZERO };
        if self.votes.decided(seqno, winner, left) {
            self.compare_with_vote(seqno, winner);
        }
    }

    /// How `seqno`, which this node has left behind, went here. A statement that failed goes on before the vote on it is over when nobody can
    /// hear this node: while the disk of its log is out.
    fn held(&self, seqno: Seqno) -> ErrorClass {
        self.failures.held(seqno).unwrap_or(ErrorClass::SUCCESS)
    }

    /// The others wait for this node's word on `seqno`, which it has left behind.
    pub fn answer_vote(&self, seqno: Seqno) {
        let class = self.held(seqno);
        self.vote(seqno, class, if class == ErrorClass::SUCCESS { "Success" } else { "failed before" });
    }

    /// The vote on `seqno`, which this node has left behind, had this result.
    pub fn compare_with_vote(&self, seqno: Seqno, winner: ErrorClass) {
        // Of older ones nothing is known.
        if let Some(held) = self.failures.held(seqno).filter(|held| *held != winner) {
            self.lost_vote(seqno, held);
        }
    }

    /// `seqno` went here otherwise than the group decided. `held`: how.
    pub fn lost_vote(&self, seqno: Seqno, held: ErrorClass) {
        if held == ErrorClass::SUCCESS {
            self.give_up(texts::vote_inconsistent(self.data.history(), seqno), true);
        } else {
            self.give_up(texts::inconsistent_by_consensus(self.data.history(), seqno), true);
        }
    }

    /// This node fails at `seqno`. To be called before anybody else hears of it: the engine may store that it is done with it, and the
    /// result of the vote may come in another life.
    pub fn note_failure(&self, seqno: Seqno, class: ErrorClass) {
        let result = self.failures.note(seqno, class);
        self.complain_of_failures(result);
    }

    pub fn complain_of_failures(&self, result: io::Result<()>) {
        if let Err(error) = result {
            let text = format!(
                "{} could not be written: {error}. If this node ends before a vote on an error is decided, it will not find out at its next start \
                 whether its data are the group's",
                failures::FILE_NAME
            );
            self.host.log(Level::Warn, text);
        }
    }

    // Leaving.

    /// Leave in order and end.
    pub fn leave(&self) {
        self.outage.leave(&self.commands, Command::Leave);
    }

    /// A full copy is about to replace the data. False: a crash in it would not be noticed, because the state file cannot be written. The process
    /// ends with its data as they are.
    pub fn begin_copy(&self) -> bool {
        let marked = self.data.save(Saved::receiving);
        if !marked {
            self.die(texts::unmarked("The full copy that replaces the data"));
        }
        marked
    }

    /// The position of the view whose callback calls, if one does.
    pub fn calling_view(&self) -> Option<Seqno> {
        let told = *lock(&self.viewed);
        told.filter(|(teller, _)| *teller == thread::current().id()).map(|(_, seqno)| seqno)
    }

    /// Leave now. `corrupt`: with data that are not the group's.
    pub fn give_up(&self, reason: String, corrupt: bool) {
        if corrupt {
            self.data.note_inconsistent();
            self.host.flight.note(Event::Inconsistent { reason: reason.clone() });
        }
        if !self.outage.give_up(&self.commands, || Command::GiveUp { reason: reason.clone(), corrupt }) {
            self.host.log(Level::Error, reason);
            if corrupt {
                // Nobody else does it. The queue stays: the final view is in it.
                self.data.discard();
                self.monitor.set_closed(true);
            }
        }
    }

    /// Nothing that is ordered goes to the server any more. `corrupt`: its data are not the group's, and the state file says so.
    pub fn drop_all(&self, corrupt: bool) {
        if corrupt {
            self.data.mark_inconsistent();
        }
        self.queue.clear();
        self.monitor.set_closed(true);
    }

    /// The process was to end, and has not: a test host's.
    pub fn outlive(&self, reason: String) {
        self.give_up(reason, false);
    }

    /// The server is on its way out.
    pub fn on_view_refused(&self) {
        self.life.note_server_gone();
        self.host.log(Level::Info, "the server could not process a view; leaving the group".into());
        self.leave();
    }

    /// A panic in one of the node's own threads: what it should have done is not done, so the node leaves, and only a new start of the
    /// server makes another attempt. Not for the group thread, which must not call the server.
    pub fn thread_failed(&self, thread: &str, said: &str) {
        // Directly: the thread for log lines may be the one.
        self.note_panic(thread, said);
        self.host.server.log(Level::Fatal, &out_of_service(thread, said));
        self.life.note_failed();
        self.leave();
    }

    /// The same for a thread of the transport; called by the group thread.
    pub fn part_failed(&self, thread: &str, said: &str) {
        self.note_panic(thread, said);
        self.host.log(Level::Fatal, out_of_service(thread, said));
        self.life.note_failed();
        self.leave();
    }

    pub fn note_panic(&self, thread: &str, said: &str) {
        self.host.flight.note(Event::Panicked { thread: thread.to_owned(), said: said.to_owned() });
    }

    // The loss of the majority.

    /// The majority is lost. A server behind whose applier this waited would go on serving reads of old data, and say that it is ready,
    /// for as long as that takes (a long statement, a vote). wsrep-lib takes this view without an applier's context, on any thread.
    pub fn tell_non_primary(&self, view: ServerView) {
        match self.queue.begin_beside() {
            Some(beside) => self.jobs.tell_non_primary(view, beside),
            None => self.queue.push(Item::View { view, closes: None }),
        }
    }

    /// On the thread for notices.
    pub fn deliver_non_primary(&self, view: &ServerView) {
        if !self.host.server.view(RecvCtx(std::ptr::null_mut()), view) {
            self.on_view_refused();
        }
    }

    // The log.

    pub fn set_reader(&self, log: &Log) {
        *lock(&self.reader) = Some(log.reader());
    }

    /// A new log in the place of one that has failed. Waits for the disk as long as `wanted` says so.
    pub fn reopen_log(&self, failed: &mut Log, wanted: impl Fn() -> bool) -> Result<Log, LogError> {
        // The last reports of these threads are about the old one.
        for passed in self.jobs.pass_disk() {
            while passed.wait_until(Instant::now() + LOOK_AT_HELPERS).is_none() {
                if !wanted() {
                    return Err(LogError::Silent);
                }
            }
        }
        log::reopen(&self.host.settings, failed, &|level, text| self.host.log(level, text.to_string()))
    }

    /// For [`Shared::reopen_log`]: for a while, and not once the connection is to end.
    pub fn outage_goes_on(&self) -> impl Fn() -> bool {
        let early = within(HELPERS_END);
        move || early() && !self.outage.await_end(Duration::ZERO)
    }
}

fn out_of_service(thread: &str, said: &str) -> String {
    format!("Internal error in thread {thread}: {said}. This node is out of service until the server is restarted.")
}
