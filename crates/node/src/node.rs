//! `Node`: the calls of the wsrep API on plain values. Here: its life and its status. The other calls are in `node/`.

use crate::command::Command;
use crate::core::Core;
use crate::group_thread::GroupThread;
use crate::host::Host;
use crate::jobs::{HELPERS_END, Jobs};
use crate::log::{self, Log, LogError};
use crate::saved::{Saved, StateFileError};
use crate::settings::{Settings, SettingsError};
use crate::shared::Shared;
use crate::slot::Slot;
use crate::startup::{ConnectError, Patience, Wish};
use crate::threads::{Helper, Waits, lock, within};
use crate::{Code, InitArgs, Level, Server, StatValue, flight, helpers, startup, stop_signal};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use trireme_flight::Event;
use trireme_replicator::NoDonor;

mod applying;
mod options;
mod statements;
mod transactions;
mod transfer;
mod waiting;

/// How long the final view waits for local transactions that are about to commit.
const LAST_COMMITS: Duration = Duration::from_secs(10);

/// How long a statement that lost its vote waits until the server has been told that the node has left. Limited, because the server may need
/// what this statement holds: its notification script, an applier.
const OWN_LEAVE: Duration = Duration::from_secs(2);

/// Filled at the first primary view, or when it is certain that there will be none.
type Connected = Slot<Result<(), ConnectError>>;

/// `None` after the deadline.
fn wait_to_connect(connected: &Connected, deadline: Option<Instant>) -> Option<Result<(), ConnectError>> {
    loop {
        let look = Instant::now() + LOOK_FOR_STOP;
        if let Some(answer) = connected.wait_until(deadline.map_or(look, |deadline| deadline.min(look))) {
            return Some(answer);
        }
        if stop_signal::is_pending() {
            return Some(Err(ConnectError::Stopped));
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return None;
        }
    }
}

/// The state that only `connect`, `disconnect` and `close` touch.
#[derive(Default)]
struct Running {
    /// The group thread: from `begin_connection` to `end_core`.
    core: Option<GroupThread>,
    /// One whose end, with the log, a disk holds up that does not answer.
    held_up: Option<GroupThread>,
    /// Counts connections: a `connect` that waits must not end a later one's group thread.
    connection: u64,
    /// While no group thread has it (`begin_connection`, `end_core`).
    log: Option<Log>,
    /// From the start of the node to `close`.
    helpers: Vec<Helper>,
    /// Its end is the end of the state thread.
    state_end: Option<mpsc::Sender<()>>,
    /// The same for the flight recorder's.
    flight_end: Option<mpsc::Sender<()>>,
    /// Nothing connects any more. Set by `close`.
    closed: bool,
    /// Helpers that did not end when they were told to.
    stuck: Vec<Helper>,
}

/// How often a `connect` that waits looks whether the server was told to stop.
const LOOK_FOR_STOP: Duration = Duration::from_millis(500);
/// How long a new connection waits for the appliers of the former one.
const FORMER_APPLIERS: Duration = Duration::from_secs(60);

/// Why a node cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    StateFile(#[from] StateFileError),
    #[error(transparent)]
    Log(#[from] LogError),
}

/// One provider instance. All methods may be called from any thread at any time after `new`.
pub struct Node {
    shared: Arc<Shared>,
    running: Mutex<Running>,
}

impl Node {
    /// **Errors:** already logged; the provider answers NODE_FAIL.
    pub fn new(args: InitArgs, server: Arc<dyn Server>) -> Result<Node, StartError> {
        let begun = Node::begin(args, server.clone());
        if let Err(error) = &begun {
            server.log(Level::Error, &error.to_string());
        }
        begun
    }

    fn begin(args: InitArgs, server: Arc<dyn Server>) -> Result<Node, StartError> {
        let settings = Settings::new(&args)?;
        let mut saved = Saved::open(&args, &settings, &*server)?;
        let data_dir = args.arbitrator.is_none().then(|| args.data_dir());
        let (log, closed) = log::open(&settings, data_dir, &|level, text| server.log(level, text))?;
        if !closed {
            saved.doubt();
        }
        let (jobs, inboxes) = Jobs::new();
        let (recorder, keeper) = flight::begin(&settings, log.node_id(), &args.node_name);
        let host = Arc::new(Host::new(server, args, settings, jobs.chores(), recorder));
        let shared = Arc::new(Shared::new(host, jobs, saved, &log));
        let (state_end, state_end_in) = mpsc::channel();
        let mut helpers = helpers::start(&shared, inboxes, state_end_in);
        let flight_end = keeper.map(|keeper| {
            let (flight_end, flight_end_in) = mpsc::channel();
            helpers.push(flight::start(&shared, keeper, flight_end_in));
            flight_end
        });
        let running = Running { log: Some(log), helpers, state_end: Some(state_end), flight_end, ..Running::default() };
        Ok(Node { shared, running: Mutex::new(running) })
    }

    /// Leaves the group if need be and joins every thread of the node. Idempotent. False when a thread still waits for a disk, or for the
    /// server, that does not answer: then the node must not be dropped, nor the library unloaded.
    pub fn close(&self) -> bool {
        self.disconnect();
        let mut running = lock(&self.running);
        if running.closed {
            return running.stuck.is_empty() && running.held_up.is_none();
        }
        running.closed = true;
        self.shared.life.close();
        self.shared.settle_position();
        self.shared.jobs.end();
        running.state_end = None;
        self.shared.host.flight.note(Event::Stopped {});
        running.flight_end = None;
        let deadline = Instant::now() + HELPERS_END;
        let helpers = std::mem::take(&mut running.helpers);
        running.stuck = helpers.into_iter().filter_map(|helper| helper.join(deadline).err()).collect();
        *lock(&self.shared.reader) = None;
        for helper in &running.stuck {
            self.shared.host.server.log(Level::Warn, &helper.excuse());
        }
        // A sync or a segment that is under way belongs to the log; nothing else does.
        let in_use = running.stuck.iter().any(|helper| helper.waits() == Waits::LogDisk);
        if let Some(log) = running.log.take_if(|_| !in_use)
            && let Err(error) = log.close()
        {
            self.shared.host.server.log(Level::Warn, &error.to_string());
        }
        running.stuck.is_empty() && running.held_up.is_none()
    }

    pub fn connect(&self, cluster: &str, url: &str, donor: &str, bootstrap: bool) -> Code {
        self.shared.main_thread.connects();
        match self.try_connect(cluster, url, donor, bootstrap) {
            Ok(()) => Code::Ok,
            Err(error) => {
                for line in error.to_string().lines() {
                    self.shared.host.server.log(Level::Error, line);
                }
                Code::NodeFail
            }
        }
    }

    fn try_connect(&self, cluster: &str, url: &str, donor: &str, bootstrap: bool) -> Result<(), ConnectError> {
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
            None => ConnectError::NotReached { cluster: cluster.to_owned(), url: url.to_owned() },
        };
        let mut running = lock(&self.running);
        if running.connection == connection {
            self.end_core(&mut running);
        }
        Err(reason)
    }

    fn begin_connection(
        &self,
        cluster: &str,
        url: &str,
        donor: &str,
        bootstrap: bool,
    ) -> Result<(Arc<Connected>, Patience, u64), ConnectError> {
        let shared = &self.shared;
        let mut running = lock(&self.running);
        self.end_core(&mut running);
        if !shared.queue.wait_empty(Instant::now() + FORMER_APPLIERS) {
            return Err(ConnectError::FormerAppliers);
        }
        shared.outage.begin();
        // Afterwards: a thread that fails from here on ends what is being prepared.
        if shared.life.is_failed() {
            return Err(ConnectError::OutOfService);
        }
        shared.settle_position();
        let target = shared.host.settings.target(url, cluster)?;
        shared.host.flight.note(Event::Connecting { cluster: cluster.to_owned(), bootstrap });
        let bootstrap = bootstrap || shared.host.settings.bootstrap_wanted();
        let mut log = self.usable_log(&mut running)?;
        let wish = Wish { cluster, target: &target, bootstrap, first: running.connection == 0 };
        let planned = shared.data.save(|saved| startup::prepare(&shared.host, &mut log, &wish, saved));
        // A run that the signal cut short has not said where the data are. To go on without that would replace them.
        let stopped = |plan| if stop_signal::is_pending() { Err(ConnectError::Stopped) } else { Ok(plan) };
        let plan = match planned.and_then(stopped) {
            Ok(plan) => plan,
            Err(reason) => {
                running.log = Some(log);
                return Err(reason);
            }
        };
        shared.data.begin();
        shared.life.begin();
        shared.monitor.set_closed(false);
        shared.queue.open();
        shared.outage.open(&shared.commands, plan.transport.waker(), Command::Leave);
        shared.host.settings.with(|o| o.set_group_connected(true));
        let connected = Arc::new(Slot::default());
        let patience = plan.patience;
        let waiter = (patience != Patience::None).then(|| connected.clone());
        let (for_core, donor, starts) = (shared.clone(), donor.to_string(), wish.first);
        running.connection += 1;
        running.core = Some(GroupThread::start(move || Core::new(for_core, plan, log, donor, waiter, starts).run()));
        Ok((connected, patience, running.connection))
    }

    /// The log; opened again if its disk had failed, as nothing that was read or written before can be relied on (rule 17).
    fn usable_log(&self, running: &mut Running) -> Result<Log, ConnectError> {
        let shared = &self.shared;
        match running.log.take() {
            Some(log) if log.failed().is_none() => Ok(log),
            Some(mut failed) => match shared.reopen_log(&mut failed, within(HELPERS_END)) {
                Ok(log) => {
                    shared.set_reader(&log);
                    Ok(log)
                }
                Err(error) => {
                    running.log = Some(failed);
                    Err(error.into())
                }
            },
            None => Err(ConnectError::NoLog),
        }
    }

    /// Ends the group thread and takes the log back.
    fn end_core(&self, running: &mut Running) {
        if let Some(core) = running.core.take() {
            self.shared.leave();
            match core.join() {
                Ok(log) => running.log = log,
                Err(held_up) => {
                    self.shared.host.server.log(
                        Level::Warn,
                        "the disk with the write-set log does not answer: the log is left as it is, and so is this library",
                    );
                    running.held_up = Some(held_up);
                }
            }
        }
        match running.held_up.take().map(GroupThread::join_if_over) {
            None => {}
            Some(Ok(log)) => running.log = log,
            Some(Err(held_up)) => running.held_up = Some(held_up),
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
            let last = shared.data.last();
            if shared.monitor.wait_ended(last, Some(Instant::now() + LAST_COMMITS)).is_err() {
                shared.monitor.set_closed(true);
            }
        });
        self.disconnect();
    }

    /// The server has been given an answer about an ordered transaction that may be wrong.
    pub fn doubt_data(&self) {
        self.shared.data.doubt();
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
        self.shared.panics.take_file(&self.shared.host.args.data_dir);
        self.shared.panics.come_by(entry);
    }

    /// For an arbitrator: asks `donor` (the list given to `connect`) to carry out a state request that is not for this node's own
    /// sake. Returns when a server has been chosen, with its label; waits as long as there is one that is only busy.
    pub fn ask_donor(&self, request: Vec<u8>) -> Result<String, NoDonor> {
        let slot = Arc::new(Slot::default());
        self.shared.commands.push(Command::AskDonor { request, slot: slot.clone() });
        slot.wait()
    }

    pub fn stats(&self) -> Vec<(String, StatValue)> {
        crate::stats::collect(&self.shared)
    }

    pub fn stats_reset(&self) {
        self.shared.status.counters.reset();
        self.shared.metrics.latency.reset(&self.shared.metrics.order);
        self.shared.metrics.send_queue.reset();
        self.shared.monitor.reset_stats();
        self.shared.queue.reset_stats();
        self.shared.status.change_flow(|f| f.reset(Instant::now()));
    }

    /// From a signal handler: async-signal-safe. Cuts or restores the network of every node of the process.
    pub fn isolate_all(mode: i32) -> bool {
        trireme_transport::isolate_all(mode).is_ok()
    }
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
