//! The work of the node's own threads. The group thread waits for none of them (rule 29); what may block is not in the way
//! of anything else, because each kind has a thread of its own.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use trireme_replicator::position::Stop;
use trireme_transport::{AdmitToken, ShownBy};
use trireme_types::{Seqno, Uuid};
use trireme_wslog::{DirStorage, SpareTicket, SyncTicket};

use crate::engine;
use crate::index::Errand;
use crate::queue::Beside;
use crate::slot::Slot;
use crate::{Level, ServerView};

/// For the jobs that a helper still has when the node is closed; a disk that takes longer is taken for one that does not answer.
pub const HELPERS_END: Duration = Duration::from_secs(10);

/// Words for the server's log, and its end. The logger does not wait for anything but a file.
pub enum Chore {
    Log(Level, String),
    /// Log the reason and end the process.
    Die(String),
    End,
}

/// Questions to the server's services, which may read tables.
pub enum Service {
    /// May the connection from this address be listened to?
    Allow {
        token: AdmitToken,
        address: String,
    },
    /// Tell whoever reads the server's events: a name, and a value in JSON.
    Event(&'static str, String),
    End,
}

/// A view that is told beside the queue. The server runs `wsrep_notify_cmd` meanwhile, which takes as long as an operator's script does.
pub enum Notice {
    /// The majority is lost.
    NonPrimary(ServerView, Beside),
    End,
}

/// For the thread that waits for the log's disk.
pub enum SyncJob {
    Sync(SyncTicket<DirStorage>),
    /// Fills it once everything before is done.
    Pass(Arc<Slot<()>>),
    End,
}

/// For the thread that prepares log segments, writes what lies beside them, and disposes of what is large: filling one takes long enough to delay a commit that waits for
/// a sync.
pub enum SpaceJob {
    Spare(SpareTicket<DirStorage>),
    /// Something so large that giving back its space, in memory or on the disk, takes tenths of a second.
    Drop(Box<dyn Send>),
    /// Keep these over restarts, in a file beside the log.
    Certificates(ShownBy),
    /// Fills it once everything before is done.
    Pass(Arc<Slot<()>>),
    End,
}

/// For the thread that runs the index's errands.
pub enum IndexJob {
    Run(Box<Errand>),
    End,
}

/// For the thread that asks the storage engine how far its log is on disk.
pub enum EngineJob {
    Look {
        epoch: u64,
        /// Of a server that is not fed yet: its engine is known to have everything up to here.
        found: Option<Seqno>,
    },
    /// What may a stop say of the position? See [`engine::Eye`].
    Stop {
        history: Uuid,
        left: Seqno,
        ended: Seqno,
        slot: Arc<Slot<Stop>>,
    },
    End,
}

/// The ways to the threads. Work that nobody takes any more is dropped.
pub struct Jobs {
    chores: Sender<Chore>,
    services: Sender<Service>,
    notices: Sender<Notice>,
    syncs: Sender<SyncJob>,
    space: Sender<SpaceJob>,
    errands: Sender<IndexJob>,
    looks: Sender<EngineJob>,
}

/// The threads' own ends.
pub struct Inboxes {
    pub chores: Receiver<Chore>,
    pub services: Receiver<Service>,
    pub notices: Receiver<Notice>,
    pub syncs: Receiver<SyncJob>,
    pub space: Receiver<SpaceJob>,
    pub errands: Receiver<IndexJob>,
    pub looks: Receiver<EngineJob>,
}

impl Jobs {
    pub fn new() -> (Jobs, Inboxes) {
        let (chores, chores_in) = mpsc::channel();
        let (services, services_in) = mpsc::channel();
        let (notices, notices_in) = mpsc::channel();
        let (syncs, syncs_in) = mpsc::channel();
        let (space, space_in) = mpsc::channel();
        let (errands, errands_in) = mpsc::channel();
        let (looks, looks_in) = mpsc::channel();
        let inboxes = Inboxes {
            chores: chores_in,
            services: services_in,
            notices: notices_in,
            syncs: syncs_in,
            space: space_in,
            errands: errands_in,
            looks: looks_in,
        };
        (Jobs { chores, services, notices, syncs, space, errands, looks }, inboxes)
    }

    pub fn chores(&self) -> Sender<Chore> {
        self.chores.clone()
    }

    pub fn event(&self, name: &'static str, value: String) {
        let _ = self.services.send(Service::Event(name, value));
    }

    /// The answer is a `Command::Admit`.
    pub fn ask_allowed(&self, token: AdmitToken, address: String) {
        let _ = self.services.send(Service::Allow { token, address });
    }

    /// The answer is a `Command::Synced`.
    pub fn sync(&self, ticket: SyncTicket<DirStorage>) {
        let _ = self.syncs.send(SyncJob::Sync(ticket));
    }

    /// The answer is a `Command::SpareReady`.
    pub fn prepare_space(&self, ticket: SpareTicket<DirStorage>) {
        let _ = self.space.send(SpaceJob::Spare(ticket));
    }

    /// Writes down whose certificates nodes have shown.
    pub fn keep_certificates(&self, shown: ShownBy) {
        let _ = self.space.send(SpaceJob::Certificates(shown));
    }

    pub fn drop_elsewhere(&self, large: impl Send + 'static) {
        let _ = self.space.send(SpaceJob::Drop(Box::new(large)));
    }

    /// Its end is told by a `Command::IndexBack`.
    pub fn run_errand(&self, errand: Errand) {
        // Where nobody takes it, it is dropped, which the index notices.
        let _ = self.errands.send(IndexJob::Run(Box::new(errand)));
    }

    /// How far is the storage engine's log on disk? The answer is a `Command::EngineSeen`. `found`: see [`EngineJob::Look`].
    pub fn look_at_engine(&self, epoch: u64, found: Option<Seqno>) {
        let _ = self.looks.send(EngineJob::Look { epoch, found });
    }

    /// The position that a stop may write down; `None` when the engine has not answered by then. For a thread that may wait.
    pub fn engine_at_stop(&self, history: Uuid, left: Seqno, ended: Seqno) -> Option<Stop> {
        let slot = Arc::new(Slot::default());
        let _ = self.looks.send(EngineJob::Stop { history, left, ended, slot: slot.clone() });
        slot.wait_until(Instant::now() + engine::STOP_MAX)
    }

    /// The majority is lost, and the server hears of it beside the queue.
    pub fn tell_non_primary(&self, view: ServerView, beside: Beside) {
        // Where nobody takes it, the node is closed.
        let _ = self.notices.send(Notice::NonPrimary(view, beside));
    }

    /// Filled once the threads of the log's disk have done what they were asked for before.
    pub fn pass_disk(&self) -> [Arc<Slot<()>>; 2] {
        let (synced, spare) = (Arc::new(Slot::default()), Arc::new(Slot::default()));
        let _ = self.syncs.send(SyncJob::Pass(synced.clone()));
        let _ = self.space.send(SpaceJob::Pass(spare.clone()));
        [synced, spare]
    }

    /// Every thread ends when it has done what it was asked for before; the one for log lines hears of it last.
    pub fn end(&self) {
        let _ = self.syncs.send(SyncJob::End);
        let _ = self.space.send(SpaceJob::End);
        let _ = self.errands.send(IndexJob::End);
        let _ = self.looks.send(EngineJob::End);
        let _ = self.services.send(Service::End);
        let _ = self.notices.send(Notice::End);
        let _ = self.chores.send(Chore::End);
    }
}
