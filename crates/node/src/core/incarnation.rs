//! The state that the group thread keeps as long as it is one incarnation of its member: from opening the log to the end of
//! the connection, or to a failure of the log's disk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use trireme_order::{Group, JoinState, LogStore, Output};
use trireme_replicator::absent::Absent;
use trireme_replicator::flow::Flow;
use trireme_replicator::progress::CatchUp;
use trireme_replicator::retention::EngineDisk;
use trireme_replicator::{self as replicator, Bounds, Replicator};
use trireme_transport::Transport;
use trireme_types::{Member, NodeId, Seqno, Term, Timestamp};

use super::past::Past;
use super::terms::ToldTerms;
use crate::Level;
use crate::backlog::Backlog;
use crate::index::Index;
use crate::log::{self, Log, LogIo};
use crate::recover::Engine;
use crate::shared::Shared;
use crate::startup::{Plan, Start};

/// The data that a server has before it is fed, and their end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfed {
    /// Its engine ran before the connection.
    Open(Seqno),
    /// The disk has all of them.
    OnDisk(Seqno),
    Unknown,
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

/// Made with a log (`begin`), changed by the group thread alone, and replaced as a whole when an outage of the log's disk ends
/// (`come_back`). Each field names the functions that change it.
pub(super) struct Incarnation {
    // The parts that decide. Inputs go to them from all of `core/`.
    /// This member as it tells the others of itself. Its weight is the newest own view's (`on_own_view`); the rest is never changed.
    pub(super) me: Member,
    /// The zero of the group's clock. Never changed.
    pub(super) started: Instant,
    pub(super) group: Group<Log>,
    pub(super) transport: Transport,
    /// The certification index, or the thread that has it: given away in `begin_work`, taken back in `fetch_index`, begun anew with a
    /// snapshot.
    pub(super) index: Index,
    /// Deliveries and requests for snapshots that came while the index was away, in order: few, as the group delivers no entry then. From
    /// `drain` to `fetch_index`.
    pub(super) waiting: VecDeque<Output>,
    /// The consequences of all that, for this member.
    pub(super) replicator: Replicator,
    /// Flow control (`throttle.rs`; deliveries and signals are counted where they come).
    pub(super) flow: Flow,
    /// Members that are away, whose entries the log keeps (`house.rs`).
    pub(super) absent: Absent,
    // Between them and the server.
    /// Items that the replicator keeps back from the server: from `hand` to `catch_up_from`, or to a snapshot that skips them (`on_reset`).
    pub(super) backlog: Backlog,
    /// Deliveries are of before this incarnation was in the group, and no news. `None` from its first own view on (`end_past`).
    pub(super) past: Option<Past>,
    /// The write sets that the server missed are being applied: from `catch_up_from` to the last of them (`tell_progress`).
    pub(super) catch_up: Option<CatchUp>,
    /// The majority is lost since then, and the patience with it is not over: from `on_non_primary` to the next own view or the end of
    /// patience (`keep_house`).
    pub(super) non_primary_since: Option<Instant>,
    /// A state waits for the engine since then, or clients were last told since then not to wait for what the engine may wait for
    /// (`look_at_engine_patience`).
    pub(super) engine_awaited_since: Option<Instant>,
    /// The failures of this server for whose results somebody waited when a state came: from `on_reset` to the end of the next turn's commands.
    pub(super) voted_before: Vec<Seqno>,
    /// Large bodies that were delivered, until nobody else needs them (`keep_log`): so that this thread is never the last to let go of one.
    pub(super) large: Vec<Bytes>,
    // Flow control.
    /// The queue is to say when it has sunk (`regulate`).
    pub(super) watching: bool,
    /// `gcs.sync_donor`: a donor slows the others as any member does (`set_flow_options`).
    pub(super) donors_count: bool,
    /// When the sequencer was last heard (`on_net`).
    pub(super) heard: Timestamp,
    /// Members that are not heard at the moment, as far as this one judges, and since when (`on_event`).
    pub(super) silent: BTreeMap<NodeId, Instant>,
    /// The last term in which this node stood for sequencer (`note_vote`). For the recorder only.
    pub(super) stood: Option<Term>,
    /// The terms whose sequencers were told in the error log (`on_event`).
    pub(super) told_terms: ToldTerms,
    // The log, and what the storage engine has of it.
    /// From `begin_sync` to `on_synced`; at most one at a time.
    pub(super) syncing: Syncing,
    /// How it is written. Never changed.
    pub(super) log_io: LogIo,
    /// When the log's housekeeping was last done (`keep_house`).
    pub(super) log_kept: Instant,
    /// The storage engine's state on disk, as it answered last (`on_command`). Begun anew when the server's data become others (`go_live`).
    pub(super) engine: EngineDisk,
    /// It is being asked: from `look_at_engine` to its answer.
    pub(super) engine_asked: bool,
    /// The data before the server is fed: until that (`go_live`), or until it asks for others (`on_command`).
    pub(super) unfed: Unfed,
    /// For a server without an explicit `gcache.size`: bytes that the log may take for the sake of members that are away. 0: none are kept.
    /// Never changed.
    pub(super) kept_for_absent_max: u64,
    // How the group was found.
    /// When, and why, a peer first refused this node for what waiting does not mend (`on_net`), since it was last linked to any. Counts only until
    /// `connect` is answered.
    pub(super) unwelcome: Option<(Instant, String)>,
    /// After this the node gives up (`pc.wait_prim_timeout`). Never changed.
    pub(super) unwelcome_max: Duration,
}

impl Incarnation {
    /// `first`: how the server begins, which may have been in the group before. `known`: of the engine of one that has. The second value: why there is no going on.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        plan: Plan,
        log: Log,
        donor_list: String,
        first: replicator::Start,
        known: Option<EngineDisk>,
    ) -> (Incarnation, Option<String>) {
        let Plan {
            transport,
            unwelcome_max,
            config,
            start,
            seed,
            engine,
            // The connection's.
            unconfirmed: _,
            cluster: _,
            peers: _,
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
        let of_server = matches!(first, replicator::Start::Server { .. });
        let unfed = match (engine, same_history.filter(|_| of_server)) {
            (Engine::Runs, Some((_, end))) => Unfed::Open(end),
            (Engine::Closed, Some((_, end))) => Unfed::OnDisk(end),
            (Engine::Left, _) | (_, None) => Unfed::Unknown,
        };
        let disk = known
            .map_or_else(|| EngineDisk::new(shared.data.new_epoch()), |known| known.under_other_clock(Timestamp::ZERO));
        if engine != Engine::Closed {
            // It may have some of its data in memory only.
            group.note_engine_disk(Timestamp::ZERO, disk.upto());
        }
        let failure = match start {
            Start::Bootstrap { history, position } | Start::Alone { history, position } => {
                group.bootstrap(Timestamp::ZERO, history, position).err().map(|e| e.to_string())
            }
            Start::Join { position, data, fallback } => {
                group.note_data(data);
                group.note_half_done(fallback);
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
            replicator: Replicator::new(&me, first, donor_list, Bounds::default()),
            flow: Flow::new(me.node),
            absent: Absent::default(),
            backlog: Backlog::default(),
            past: Some(Past::begin()),
            catch_up: None,
            non_primary_since: None,
            engine_awaited_since: None,
            voted_before: Vec::new(),
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
            engine: disk,
            engine_asked: false,
            unfed,
            kept_for_absent_max: log::kept_for_absent(&shared.host.settings),
            unwelcome: None,
            unwelcome_max,
            me,
        };
        (incarnation, failure)
    }
}
