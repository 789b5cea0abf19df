//! The state that the group thread keeps as long as it is one incarnation of its member: from opening the log to the end of
//! the connection, or to a failure of the log's disk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use trireme_order::{Group, JoinState, LogStore, Output};
use trireme_replicator::absent::Absent;
use trireme_replicator::flow::Flow;
use trireme_replicator::message::AppMessage;
use trireme_replicator::progress::CatchUp;
use trireme_replicator::retention::EngineDisk;
use trireme_replicator::{self as replicator, Distances, Replicator};
use trireme_transport::Transport;
use trireme_types::{Member, NodeId, Term, Timestamp};

use super::past::Past;
use super::terms::ToldTerms;
use crate::Level;
use crate::backlog::Backlog;
use crate::index::Index;
use crate::log::{self, Log, LogIo};
use crate::shared::Shared;
use crate::startup::{Plan, Start};

/// An entry that has to be ordered once this node is a member again.
pub(super) enum Owed {
    App(AppMessage),
    Rollback(Bytes),
}

/// The part of the log that is on its way to the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Syncing {
    Nothing,
    /// The sync thread has a ticket.
    ByThread,
    /// A write past the page cache, since then.
    Writing(Instant),
}

/// Changed by the group thread alone.
pub(super) struct Incarnation {
    // The parts that decide.
    pub(super) me: Member,
    pub(super) started: Instant,
    pub(super) group: Group<Log>,
    pub(super) transport: Transport,
    pub(super) index: Index,
    /// Deliveries and requests for snapshots that came while the index was away, in order: few, as the group delivers no entry then.
    pub(super) waiting: VecDeque<Output>,
    /// The consequences of all that, for this member.
    pub(super) replicator: Replicator,
    pub(super) flow: Flow,
    pub(super) absent: Absent,
    // Between them and the server.
    /// Items that the replicator keeps back from the server.
    pub(super) backlog: Backlog,
    pub(super) owed: VecDeque<Owed>,
    /// Newest own session of which something was ordered.
    pub(super) session: u64,
    /// Deliveries are of before this incarnation was in the group, and no news.
    pub(super) past: Option<Past>,
    /// The write sets that the server missed are being applied.
    pub(super) catch_up: Option<CatchUp>,
    pub(super) non_primary_since: Option<Instant>,
    /// Large bodies that were delivered, until nobody else needs them: so that this thread is never the last to let go of one.
    pub(super) large: Vec<Bytes>,
    // Flow control.
    /// The queue is to say when it has sunk.
    pub(super) watching: bool,
    /// `gcs.sync_donor`: a donor slows the others as any member does.
    pub(super) donors_count: bool,
    /// When the sequencer was last heard.
    pub(super) heard: Timestamp,
    /// Members that are not heard at the moment, as far as this one judges, and since when.
    pub(super) silent: BTreeMap<NodeId, Instant>,
    /// The last term in which this node stood for sequencer.
    pub(super) stood: Option<Term>,
    /// The terms whose sequencers were told in the error log.
    pub(super) told_terms: ToldTerms,
    // The log, and what the storage engine has of it.
    pub(super) syncing: Syncing,
    /// How it is written.
    pub(super) log_io: LogIo,
    /// When the log's housekeeping was last done.
    pub(super) log_kept: Instant,
    /// The storage engine's state on disk.
    pub(super) engine: EngineDisk,
    /// It is being asked.
    pub(super) engine_asked: bool,
    /// For a server without an explicit `gcache.size`: how much the log may take for the sake of members that are away.
    pub(super) kept_for_absent_max: u64,
    // How the group was found.
    /// When, and why, a peer first refused this node for what waiting does not mend.
    pub(super) unwelcome: Option<(Instant, String)>,
    pub(super) unwelcome_max: Duration,
}

impl Incarnation {
    /// `first`: how the server begins, which may have been in the group before. The second value: why there is no going on.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        plan: Plan,
        log: Log,
        donor_list: String,
        first: replicator::Start,
    ) -> (Incarnation, Option<String>) {
        let Plan {
            transport,
            unwelcome_max,
            config,
            start,
            seed,
            // The connection's.
            cluster: _,
            peers: _,
            unconfirmed: _,
            script: _,
            patience: _,
        } = plan;
        let started = Instant::now();
        let mut log = log;
        let mut log_io = log::begin_io(&mut log, &shared.host, &shared.metrics, &shared.panics);
        if let Some(readable) = log.readable()
            && let Err(error) = transport.watch(readable)
        {
            shared.host.log(
                Level::Info,
                format!("write-set log: its writes cannot be waited for ({error}); a thread syncs it"),
            );
            log.write_by_cache(None);
            log_io = LogIo::Threads;
        }
        let position = match &start {
            Start::Bootstrap { history, position } | Start::Alone { history, position } => Some((*history, *position)),
            // Data with a statement cut off in them may be gone on from, so delivery begins before them, too.
            Start::Join { position, fallback, .. } => position.or(fallback.map(|at| (log.base().history, at))),
        };
        let same_history = position.filter(|(h, _)| *h == log.base().history);
        let me = config.me.clone();
        let mut group = Group::new(config, log, same_history.map(|(_, s)| s), seed, Timestamp::ZERO);
        let failure = match start {
            Start::Bootstrap { history, position } | Start::Alone { history, position } => {
                group.bootstrap(Timestamp::ZERO, history, position).err().map(|e| e.to_string())
            }
            Start::Join { position, data, .. } => {
                group.note_data(data);
                group.join(Timestamp::ZERO, JoinState { position });
                None
            }
        };
        let incarnation = Incarnation {
            started,
            group,
            transport,
            index: Index::default(),
            waiting: VecDeque::new(),
            replicator: Replicator::new(&me, first, donor_list, Distances::default()),
            flow: Flow::new(me.node),
            absent: Absent::default(),
            backlog: Backlog::default(),
            owed: VecDeque::new(),
            session: 0,
            past: Some(Past::begin()),
            catch_up: None,
            non_primary_since: None,
            large: Vec::new(),
            watching: false,
            donors_count: false,
            heard: Timestamp::ZERO,
            silent: BTreeMap::new(),
            stood: None,
            told_terms: ToldTerms::default(),
            syncing: Syncing::Nothing,
            log_io,
            log_kept: started,
            engine: EngineDisk::new(shared.data.new_epoch()),
            engine_asked: false,
            kept_for_absent_max: log::kept_for_absent(&shared.host.settings),
            unwelcome: None,
            unwelcome_max,
            me,
        };
        (incarnation, failure)
    }
}
