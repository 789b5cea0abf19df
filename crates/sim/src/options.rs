//! Swarm options: everything about a run that is drawn from its seed, printed before the run so that a failure can be read.

use std::fmt;
use std::time::Duration;

use trireme_order::{Limits, Mutant, Timeouts};
use trireme_replicator::Bounds;
use trireme_types::Durability;

use crate::hostile::Liar;
use crate::outage::FIRST_LOOK_MAX;
use crate::rng::Rng;
use crate::watch::Stage;

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const SEC: u64 = 1_000_000_000;

/// The faults. One line each; `faults.rs` carries them out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// One process dies between two events.
    Crash,
    /// One process dies in the middle of carrying out the outputs of one step.
    CrashMidStep,
    /// One process dies in the middle of a log operation.
    CrashInStore,
    /// A random set of processes dies at one moment; often all.
    CrashMany,
    /// SIGSTOP, later SIGCONT.
    Pause,
    /// One machine loses power: what was not synced may be gone.
    PowerLoss,
    /// All machines lose power.
    PowerLossAll,
    /// Both directions between two nodes.
    CutPair,
    /// One direction between two nodes.
    CutOneWay,
    /// Two groups that do not hear each other.
    Partition,
    /// Each pair is cut with some probability: partial connectivity.
    CutSome,
    /// One node hears nobody, or nobody hears it, or both.
    Isolate,
    /// One connection is reset.
    ResetOne,
    /// One connection is reset again and again.
    Flap,
    /// All connections are reset at one moment.
    ResetAll,
    /// One direction becomes slow.
    SlowLink,
    /// Syncs of one node take very long.
    SyncStall,
    /// The log of one node refuses everything from the next operation on.
    DiskFails,
    /// A node needs long for each step.
    SlowNode,
    /// A node's monotonic clock jumps forward.
    ClockJump,
    /// A node leaves in order and comes back later.
    Leave,
    /// A node's disk is replaced: it comes back empty under a new identity.
    Wipe,
    /// A node changes its vote weight.
    Weight,
    /// The durability setting is switched.
    Durability,
    /// A node abandons what it has proposed.
    Abandon,
    /// The sequencer is cut off and goes on writing. While it is away the others commit less than it wrote. Then all processes die.
    LongTail,
    /// A bit flips in what one node has stored; the process had to die for somebody to look.
    Damage,
    /// `pc.bootstrap` on a node that is not primary. Only in runs of the forced kind.
    Force,
    /// A write of the group thread hangs in the middle of a step: the process stands still, half of its outputs carried out.
    WriteStall,
    /// A ring: each node hears its two neighbours only.
    CutRing,
    /// One node is heard by nobody but one, which hears all.
    HangByAThread,
    /// Monotonic clocks of some nodes run unevenly from here on.
    ClockDrift,
    /// A member is thrown out by an ordered message (`evs.evict`), or all evictions are lifted.
    Evict,
    /// Somebody copies a node's directory.
    CopyDisk,
    /// Somebody is in the middle of a large record, and dies, alone or with its machine, or is cut off for about as long as it writes.
    MidRecord,
    /// A node is stopped and started again on a copy that was made of its directory. Only in runs of the restored kind.
    PutBack,
    /// The disk with one node's log fails for a while; the node sits out. Only in runs with outages.
    DiskOutage,
    /// It hangs for a while: neither writes nor syncs return. Often it fails then. Only in runs with outages.
    DiskHangs,
}

pub const ALL_FAULTS: &[Fault] = &[
    Fault::Crash,
    Fault::CrashMidStep,
    Fault::CrashInStore,
    Fault::CrashMany,
    Fault::Pause,
    Fault::PowerLoss,
    Fault::PowerLossAll,
    Fault::CutPair,
    Fault::CutOneWay,
    Fault::Partition,
    Fault::CutSome,
    Fault::Isolate,
    Fault::ResetOne,
    Fault::Flap,
    Fault::ResetAll,
    Fault::SlowLink,
    Fault::SyncStall,
    Fault::DiskFails,
    Fault::SlowNode,
    Fault::ClockJump,
    Fault::Leave,
    Fault::Wipe,
    Fault::Weight,
    Fault::Durability,
    Fault::Abandon,
    Fault::Force,
    // The newest last: the draws of the seeds before it stay the same.
    Fault::LongTail,
    Fault::WriteStall,
    Fault::CutRing,
    Fault::HangByAThread,
    Fault::ClockDrift,
    Fault::Damage,
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreKind {
    /// The simulator's own simple log.
    Fast,
    /// `trireme-wslog` over its simulated disk.
    Real,
}

/// How InnoDB keeps its commits (`innodb_flush_log_at_trx_commit`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DbFlush {
    /// 0: in the process until the next flush.
    Lazy,
    /// 1: durable at each commit.
    Each,
    /// 2: with the kernel at each commit, durable at the next flush.
    Kernel,
}

trireme_types::named! {
    /// Something broken on purpose, to prove that the checkers can fail.
    pub enum Sabotage {
        /// A loss of power takes entries that were reported as synced (rule 2: what an acknowledgement means).
        LyingDisk = "lying-disk",
        /// The promised term and the vote do not survive the process (rule 1).
        ForgottenPromise = "forgotten-promise",
        /// The death of the process takes entries that were written (durability `process`).
        LostWrites = "lost-writes",
        /// The part of the certification index that is dropped follows the own database, not the order (rule 24).
        LocalCut = "local-cut",
        /// A log that ends at damage does not say so (rule 17).
        HoleTrusted = "hole-trusted",
        /// A statement in total-order isolation is certified like any other.
        IsolationIgnored = "isolation-ignored",
        /// A view does not end the streaming transactions of those that left.
        StreamsKept = "streams-kept",
        /// The order is not told who is evicted.
        EvictionForgotten = "eviction-forgotten",
        /// A node whose disk was cloned is linked again by those who have seen the clone (rule 12).
        TwinReturns = "twin-returns",
        /// A sync counts for the record that is being written, although it covers its first pieces only (rule 2).
        SyncUnwritten = "sync-unwritten",
        /// A record that is taken back before it is whole leaves its pieces to the next one.
        PiecesMixed = "pieces-mixed",
        /// The log drops what the server has committed in memory, whatever its engine has on disk (rule 32).
        TrimmedInMemory = "trimmed-in-memory",
        /// A position is gone on from that the engine did not confirm (rule 31).
        PositionTrusted = "position-trusted",
        /// An applier begins with a write set before all that its keys order before it is committed (rule 24).
        DependsOnIgnored = "depends-on-ignored",
        /// A local transaction that is in the way of an applier is not aborted.
        VictimSpared = "victim-spared",
        /// Clients' write sets are sent although an ordered victim waits to be applied again (rule 23).
        ReplayOvertaken = "replay-overtaken",
        /// A stop records its position as on disk without waiting for the engine (rule 31).
        StopUnsynced = "stop-unsynced",
        /// Data that a statement was cut off in count as whole (rule 26).
        HalfDoneTrusted = "half-done-trusted",
        /// A log that is opened again after an outage of its disk is not compared with what its member had acknowledged (rules 16, 17).
        OutageTrusted = "outage-trusted",
        /// A log whose disk has failed notes nothing of what that may have lost (rules 16, 17).
        DoubtUnnoted = "doubt-unnoted",
        /// A log that has lost entries with the power does not say so (rule 16).
        PowerTrusted = "power-trusted",
        /// At an outage a client hears that its statement in total-order isolation was not executed, although it is on its way (rule 22).
        StatementAbandoned = "statement-abandoned",
        /// The answer to a statement that was ordered before its server is fed again is given at once.
        AnsweredEarly = "answered-early",
        /// The write set that a client of this server executes goes to an applier as well.
        ExecutedTwice = "executed-twice",
        /// A server that was outvoted about an error goes on with the data it has (rule 28).
        VoteIgnored = "vote-ignored",
        /// A server does not know its failures at its node any more when it is started again (rule 28).
        FailureForgotten = "failure-forgotten",
        /// A statement that failed in an outage of the log's disk counts as a success (rule 28).
        OutlivedForgotten = "outlived-forgotten",
        /// A transaction that flow control holds back keeps its locks when an applier wants them.
        RecallForgotten = "recall-forgotten",
    }
}

trireme_types::named! {
    /// The subject of a run.
    pub enum Kind {
        /// Anything may happen. Promises are kept, and a healed cluster converges.
        Swarm = "swarm",
        /// Only harm that must pass unnoticed: jitter, load, and pauses below the suspect timeout. No view, no refusal, few terms.
        Harmless = "harmless",
        /// Members come back on old copies of their disks.
        Restored = "restored",
        /// Write sets that logs write in pieces; harm comes between these.
        Large = "large",
        /// A node lies.
        Hostile = "hostile",
    }
}

/// All times in nanoseconds.
#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    pub kind: Kind,
    pub nodes: usize,
    /// The last so many of them have no database.
    pub arbitrators: usize,
    /// Entries that a server lacks and an arbitrator keeps for it at most.
    pub arbitrator_keep: u64,
    pub durability: Durability,
    pub store: StoreKind,
    /// Encode and decode every message.
    pub codec: bool,
    pub timeouts: Timeouts,
    pub batch_bytes_max: usize,
    pub inflight_bytes_max: usize,
    pub cache_bytes_max: usize,
    pub limits: Limits,
    /// Runs of the forced kind may lose commits and fork. Then each branch is checked by itself, and all must end on one.
    pub forced: bool,
    /// Nodes run one of two builds, which support different group levels; each start draws which.
    pub mixed: bool,
    /// Machines lose their power together in mode `process`. Commits may be lost that no disk holds afterwards, and nothing else; nobody
    /// decides anything by hand.
    pub dark: bool,
    /// Nobody bootstraps: all start without state, and with `pc.bootstrap_expect`.
    pub founded: bool,
    /// When all else heals some stay dead, if the rest can do without them.
    pub leaves_dead: bool,
    pub ignore_sb: bool,
    pub ignore_quorum: bool,

    /// The liar, and how often it lies.
    pub liar: Liar,
    pub lie_mean: u64,

    pub sabotage: Option<Sabotage>,
    /// The core itself is broken by this.
    pub mutant: Option<Mutant>,
    /// A decision that members make by the history is broken by this.
    pub replicator_mutant: Option<trireme_replicator::Mutant>,

    pub delay_min: u64,
    pub delay_mean: u64,
    /// No message takes longer than this, whatever is drawn.
    pub delay_max: u64,
    /// Bytes per second of one direction of one link (bulk and droppable classes).
    pub bandwidth: u64,
    pub droppable_loss: f64,
    pub droppable_limit: usize,
    /// How long an end takes to notice that its connection is gone.
    pub notice_mean: u64,
    pub connect_mean: u64,
    /// After this much silence forced by a cut the transport gives up the connection; 0: never.
    pub dead_peer: u64,

    /// Inputs are gathered for up to this long before a step.
    pub step_mean: u64,
    pub step_inputs: u64,

    pub sync_min: u64,
    pub sync_mean: u64,
    pub checkpoint_every: u64,
    /// Entries kept below the end when the log is trimmed.
    pub retain: u64,
    /// Entries beyond these that a log keeps for members that have not received them, and for those that are away; zero: none.
    pub kept_for_members: u64,
    pub kept_for_absent: u64,
    /// Of the replicator: what it counts, waits for and remembers.
    pub bounds: Bounds,
    /// A member lags out of the cut only when the certification index holds more uses of keys than this.
    pub index_keys_max: usize,
    /// A member with no more than this to apply is synced. Where there is flow control that says it.
    pub backlog_small: u64,
    /// How long proposals that were sent wait for a majority.
    pub non_primary_patience: u64,
    /// The disk of a server that waits for its data has room for so many entries beyond what its log is to hold.
    pub room: u64,
    /// How likely it is that an operator has a log trimmed at a tick of its node, or an arbitrator ask for a donor at one of its own.
    pub trim_share: f64,
    pub ask_share: f64,

    /// Share of the starts that follow a stop: the engine cannot be asked before it runs.
    pub unheard_share: f64,
    /// Servers do not tell how far their engines' logs are on disk.
    pub silent: bool,
    /// Threads of a server that apply, and whether they begin before what the origin of a write set had seen is committed.
    pub appliers: usize,
    pub optimistic: bool,
    /// How long a client takes from row to row, with locks for which it waits. Zero: no client waits for any.
    pub think_mean: u64,
    /// The limit of flow control (`gcs.fc_limit`; zero: there is none), its factor, and its patience (zero: without end).
    pub flow_limit: u64,
    pub flow_factor: f64,
    pub flow_patience: u64,
    /// How long a commit order is paused, and how often that is done. Zero: never.
    pub pause_mean: u64,
    pub pause_every: u64,
    pub db_flush: DbFlush,
    pub db_apply_mean: u64,
    pub db_flush_mean: u64,
    pub transfer_mean: u64,

    pub operations: u64,
    pub client_mean: u64,
    pub keys: u64,
    pub body_bytes: u64,
    /// Share of the write sets: so large that logs write them in pieces.
    pub pieced_share: f64,
    /// So many pieces at most.
    pub pieces_max: u64,
    /// Most bytes that a log writes at once.
    pub piece_bytes: usize,
    /// How long that takes; nothing else is done meanwhile.
    pub piece_mean: u64,
    pub app_share: f64,
    pub read_share: f64,
    pub signal_share: f64,
    /// Share of the clients' steps: a step of a streaming transaction.
    pub stream_share: f64,
    /// Share of the other writes: in total-order isolation.
    pub isolated_share: f64,
    /// One member fails to apply one write set. In a harmless run: the share of the write sets that all members fail to apply.
    pub error_share: f64,
    /// The same of the statements in total-order isolation, if they are more. The disk with the log often fails together with a client's own.
    pub statement_error_share: f64,
    /// All servers fail alike at those, and not one alone.
    pub statements_fail_alike: bool,
    /// Share of the write sets on each node: so large that nothing is delivered while they are judged.
    pub large_share: f64,
    /// How long that takes.
    pub judge_mean: u64,

    pub safety: u64,
    pub fault_mean: u64,
    pub fault_duration: u64,
    /// No fault lasts longer than this, whatever is drawn.
    pub fault_max: u64,
    pub drift_ppm: u64,
    /// How long the disk of a log does not work. Zero: a server whose log fails is killed by its operator.
    pub outage_mean: u64,
    /// Harm that waits for somebody to be in the middle of something: how often it comes then.
    pub strikes: Vec<(Stage, f64)>,
    /// Fault and weight, only those enabled.
    pub faults: Vec<(Fault, u32)>,
}

impl Options {
    /// A calm cluster: fixed small delays, no faults, no clients. Scenarios begin from here.
    pub fn calm(seed: u64, nodes: usize) -> Options {
        Options {
            seed,
            kind: Kind::Swarm,
            nodes,
            arbitrators: 0,
            arbitrator_keep: u64::MAX,
            durability: Durability::Disk,
            store: StoreKind::Fast,
            codec: true,
            timeouts: Timeouts::default(),
            batch_bytes_max: 1 << 20,
            inflight_bytes_max: 4 << 20,
            cache_bytes_max: 16 << 20,
            limits: Limits::default(),
            forced: false,
            mixed: false,
            dark: false,
            founded: false,
            leaves_dead: false,
            ignore_sb: false,
            ignore_quorum: false,
            liar: Liar::Nobody,
            lie_mean: SEC,
            sabotage: None,
            mutant: None,
            replicator_mutant: None,
            delay_min: 100 * US,
            delay_mean: 50 * US,
            delay_max: u64::MAX,
            bandwidth: 1 << 30,
            droppable_loss: 0.0,
            droppable_limit: 1000,
            notice_mean: MS,
            connect_mean: 5 * MS,
            dead_peer: 0,
            step_mean: 0,
            step_inputs: 64,
            sync_min: 100 * US,
            sync_mean: 100 * US,
            checkpoint_every: 1000,
            retain: 10_000,
            kept_for_members: 0,
            kept_for_absent: 0,
            bounds: Bounds { report_every: 8, lag_min: 64, ..Bounds::default() },
            index_keys_max: 0,
            backlog_small: 16,
            non_primary_patience: 10 * SEC,
            room: u64::MAX,
            trim_share: 0.0,
            ask_share: 0.0,
            unheard_share: 0.0,
            silent: false,
            appliers: 1,
            optimistic: false,
            think_mean: 0,
            flow_limit: 0,
            flow_factor: 1.0,
            flow_patience: 0,
            pause_mean: SEC,
            pause_every: 0,
            db_flush: DbFlush::Lazy,
            db_apply_mean: 100 * US,
            db_flush_mean: SEC,
            transfer_mean: 50 * MS,
            operations: 0,
            client_mean: 10 * MS,
            keys: 16,
            body_bytes: 32,
            pieced_share: 0.0,
            pieces_max: 0,
            piece_bytes: usize::MAX,
            piece_mean: 0,
            app_share: 0.0,
            read_share: 0.0,
            signal_share: 0.0,
            stream_share: 0.0,
            isolated_share: 0.0,
            error_share: 0.0,
            statement_error_share: 0.0,
            statements_fail_alike: false,
            large_share: 0.0,
            judge_mean: 0,
            safety: 0,
            fault_mean: SEC,
            fault_duration: SEC,
            fault_max: u64::MAX,
            drift_ppm: 0,
            outage_mean: 0,
            strikes: Vec::new(),
            faults: Vec::new(),
        }
    }

    pub fn draw(seed: u64) -> Options {
        let mut r = Rng::new(seed ^ 0x0071_0235_u64.rotate_left(40));
        let mut o = Options::calm(seed, 1);
        o.nodes = [1, 2, 2, 3, 3, 3, 3, 3, 4, 5, 5, 6, 7][r.below(13) as usize];
        o.durability = if r.chance(0.5) { Durability::Disk } else { Durability::Process };
        o.store = if r.chance(0.3) { StoreKind::Real } else { StoreKind::Fast };
        o.codec = r.chance(0.3);
        o.forced = r.chance(0.04);
        let election = r.range(100, 800);
        let suspect = r.range(300, 5_000).max(election);
        o.timeouts = Timeouts {
            heartbeat: Duration::from_millis((election / r.range(3, 8)).max(10)),
            election: Duration::from_millis(election),
            suspect: Duration::from_millis(suspect),
            inactive: Duration::from_millis(suspect * 3),
            linger: Duration::from_millis(r.range(500, 20_000)),
            body_wait: Duration::from_millis(r.range(1, 30)),
            level_absence: Duration::from_secs(3),
        };
        if r.chance(0.4) {
            o.batch_bytes_max = r.range(1, 400) as usize;
            o.inflight_bytes_max = o.batch_bytes_max * r.range(1, 6) as usize;
        }
        o.delay_min = r.range(10, 500) * US;
        o.delay_mean = if r.chance(0.2) { r.range(1, 20) * MS } else { r.range(10, 1_000) * US };
        o.bandwidth = if r.chance(0.2) { r.range(50, 1_000) << 10 } else { 1 << 30 };
        o.droppable_loss = if r.chance(0.5) { 0.0 } else { r.below(100) as f64 / 100.0 };
        o.droppable_limit = r.range(1, 200) as usize;
        o.notice_mean = r.range(10, 100_000) * US;
        o.connect_mean = r.range(1, 200) * MS;
        o.dead_peer = if r.chance(0.5) { 0 } else { r.range(500, 10_000) * MS };
        o.step_mean = if r.chance(0.5) { 0 } else { r.range(1, 1_000) * US };
        o.step_inputs = r.range(1, 64);
        o.sync_min = r.range(10, 1_000) * US;
        o.sync_mean = r.range(10, 10_000) * US;
        o.checkpoint_every = r.range(5, 200);
        o.retain = r.range(0, 300);
        // Drawn here before there was anything else to draw.
        let _ = r.chance(0.2);
        o.db_flush = [DbFlush::Lazy, DbFlush::Each, DbFlush::Kernel][r.below(3) as usize];
        o.db_apply_mean = r.range(10, 20_000) * US;
        o.db_flush_mean = r.range(100, 10_000) * MS;
        o.transfer_mean = r.range(10, 2_000) * MS;
        o.safety = r.range(3, 20) * SEC;
        o.operations = if r.chance(0.1) { r.range(300, 1_000) } else { r.range(20, 300) };
        o.client_mean = (o.safety / o.operations).max(1);
        if r.chance(0.2) {
            o.client_mean /= 10; // A burst, then silence.
        }
        o.keys = r.range(1, 200);
        o.body_bytes = if r.chance(0.1) { r.range(0, 10_000) } else { r.range(0, 100) };
        o.app_share = r.below(30) as f64 / 100.0;
        o.read_share = r.below(40) as f64 / 100.0;
        o.signal_share = r.below(10) as f64 / 100.0;
        o.fault_mean = r.range(200, 4_000) * MS;
        o.fault_duration = r.range(50, 5_000) * MS;
        o.drift_ppm = if r.chance(0.3) { r.range(1, 20_000) } else { 0 };
        let enabled = if r.chance(0.08) { 0.0 } else { r.range(1, 6) as f64 / 6.0 };
        for &fault in ALL_FAULTS {
            let mut weight = if r.chance(enabled) { r.range(1, 10) as u32 } else { 0 };
            match fault {
                // In mode `process` only as many logs may lose their ends as the others make up for (`faults.rs`).
                Fault::PowerLossAll if o.durability == Durability::Process => weight = 0,
                Fault::Damage => weight = weight.min(4),
                // Switching makes the promise depend on when; power loss then proves nothing. See `draw`'s last step.
                Fault::Durability if !r.chance(0.2) => weight = 0,
                Fault::Force if !o.forced => weight = 0,
                Fault::Force => weight = weight.max(3),
                Fault::LongTail if !r.chance(0.2) => weight = 0,
                Fault::Wipe => weight = weight.min(2),
                _ => {}
            }
            if weight > 0 {
                o.faults.push((fault, weight));
            }
        }
        // A disk lost while weights change may take the majority with it.
        if o.faults.iter().any(|f| f.0 == Fault::Weight) {
            o.faults.retain(|f| !matches!(f.0, Fault::Wipe | Fault::Damage));
        }
        if o.faults.iter().any(|f| f.0 == Fault::Durability) {
            o.faults.retain(|f| f.0 != Fault::PowerLossAll);
        }
        if o.forced {
            o.ignore_sb = r.chance(0.3);
            o.ignore_quorum = r.chance(0.1);
        } else {
            o.founded = r.chance(0.1);
        }
        o.draw_arbitrators();
        o.draw_darkness();
        o.draw_switches();
        o.draw_work();
        o.draw_limits();
        o.draw_bounds();
        let mut r = Rng::new(seed ^ 0x0070_6965_u64.rotate_left(16));
        if r.chance(0.1) {
            o.draw_pieces(&mut r);
        }
        // Of those in which some can be spared, so many that it is half of all.
        o.leaves_dead = Rng::new(seed ^ 0x0064_6561_u64.rotate_left(24)).chance(0.7);
        o.draw_outages();
        o.draw_strikes();
        o.draw_errors();
        o.draw_failed_statements();
        o.draw_starts();
        o.draw_appliers();
        // Below the newest level a vote does not wait for those that have just come back.
        o.mixed = o.error_share == 0.0 && Rng::new(seed ^ 0x006c_6576_u64.rotate_left(32)).chance(0.15);
        o.draw_flow();
        o.draw_pauses();
        o.draw_operators();
        o
    }

    /// Write sets of more bytes than a log writes at once, than a message is to carry and than memory keeps. As on a slow disk a piece
    /// takes a small part of an election's timeout, and a record takes several of these.
    fn draw_pieces(&mut self, r: &mut Rng) {
        self.pieced_share = r.range(5, 60) as f64 / 100.0;
        (self.piece_bytes, self.pieces_max) = match r.below(10) {
            // The real log writes such pieces from where they are, or copies them together with their neighbours.
            0 => (r.range(60, 80) as usize * 1024, 4),
            // They take so long that the others elect somebody meanwhile.
            1 | 2 => (r.range(50, 500) as usize, r.range(40, 150)),
            _ => (r.range(100, 3_000) as usize, r.range(2, 40)),
        };
        self.piece_mean = r.below(self.timeouts.election.as_nanos() as u64 / 20);
        let record = self.piece_bytes * self.pieces_max as usize;
        if r.chance(0.5) {
            self.cache_bytes_max = r.below(2 * record as u64) as usize;
        }
        if r.chance(0.5) {
            self.batch_bytes_max = r.range(1, record as u64) as usize;
            self.inflight_bytes_max = self.batch_bytes_max * r.range(1, 6) as usize;
        }
        if !self.faults.is_empty() {
            self.faults.push((Fault::MidRecord, r.range(1, 20) as u32));
        }
        if r.chance(0.5) {
            // A record is on its way for up to a second.
            self.codec = true;
            self.bandwidth = record as u64 * 1_000 / r.range(10, 1_000);
        }
    }

    /// A write set adds about so much to a log.
    pub fn record_bytes(&self) -> u64 {
        200 + (self.pieced_share * (self.pieces_max / 2) as f64) as u64 * self.piece_bytes.min(1 << 20) as u64
    }

    fn draw_bounds(&mut self) {
        let mut r = Rng::new(self.seed ^ 0x0064_6973_u64.rotate_left(24));
        (self.bounds.report_every, self.bounds.lag_min) = (r.range(1, 20), r.range(5, 100));
        self.bounds.vote_patience =
            Duration::from_millis(if r.chance(0.5) { r.range(0, 1_000) } else { r.range(1_000, 10_000) });
        if r.chance(0.5) {
            self.bounds.decided_max = r.range(1, 4) as usize;
            self.bounds.outcomes_max = r.range(1, 4) as usize;
        }
        if r.chance(0.3) {
            self.index_keys_max = r.range(1, 200) as usize;
        }
        self.backlog_small = r.range(0, 32);
        self.non_primary_patience = r.range(100, 10_000) * MS;
    }

    /// From a stream of its own.
    fn draw_starts(&mut self) {
        let mut r = Rng::new(self.seed ^ 0x0073_7461_u64.rotate_left(24));
        self.unheard_share = [0.0, 0.5, 1.0][r.below(3) as usize];
        if r.chance(0.3) {
            self.kept_for_members = r.range(1, 100);
        }
        if r.chance(0.4) {
            self.kept_for_absent = r.range(1, 200);
        }
        self.silent = r.chance(0.5);
    }

    /// From a stream of its own.
    fn draw_appliers(&mut self) {
        let mut r = Rng::new(self.seed ^ 0x0061_7070_u64.rotate_left(24));
        self.appliers = r.range(1, 8) as usize;
        self.optimistic = r.chance(0.5);
        if r.chance(0.7) {
            self.think_mean = r.range(10, 10_000) * US;
        }
    }

    /// From a stream of its own, as the arbitrators.
    fn draw_work(&mut self) {
        let mut r = Rng::new(self.seed ^ 0x0510_7261_u64.rotate_left(24));
        if r.chance(0.4) {
            self.stream_share = r.range(5, 60) as f64 / 100.0;
        }
        if r.chance(0.3) {
            self.isolated_share = r.range(1, 10) as f64 / 100.0;
        }
        if r.chance(0.2) && !self.faults.is_empty() {
            self.faults.push((Fault::Evict, r.range(1, 10) as u32));
        }
        if r.chance(0.3) {
            self.large_share = r.range(1, 5) as f64 / 100.0;
            self.judge_mean = r.range(1, 300) * MS;
        }
    }

    /// From a stream of its own. Small ones, or runs of this length would never meet them.
    fn draw_limits(&mut self) {
        let mut r = Rng::new(self.seed ^ 0x006c_696d_u64.rotate_left(24));
        if r.chance(0.6) {
            self.limits.committed_every = r.range(1, 200);
        }
        if r.chance(0.4) {
            self.limits.caught_up = r.range(0, 20);
        }
        if r.chance(0.3) {
            self.limits.entries_max = r.range(1, 50) as usize;
            self.limits.held_max = r.range(1, 50) as usize;
            self.limits.inflight_messages_max = r.range(1, 20) as usize;
        }
        self.timeouts.level_absence = Duration::from_millis(r.range(100, 10_000));
    }

    /// From a stream of its own: what the seeds drew before there were arbitrators stays the same.
    fn draw_arbitrators(&mut self) {
        let mut r = Rng::new(self.seed ^ 0x0a4b_1742_u64.rotate_left(32));
        // Forced runs may still split (docs/protocol.md, rule 13): they are about that alone.
        if !r.chance(0.25) || self.forced {
            return;
        }
        self.founded = false;
        // An arbitrator is there for two servers.
        self.nodes = if r.chance(0.5) { 3 } else { self.nodes.max(3) };
        self.arbitrators = if self.nodes >= 5 && r.chance(0.3) { 2 } else { 1 };
        self.arbitrator_keep = if r.chance(0.3) { u64::MAX } else { r.below(60) };
    }

    /// From a stream of its own, too.
    fn draw_darkness(&mut self) {
        let mut r = Rng::new(self.seed ^ 0x00d4_7231_u64.rotate_left(32));
        if !r.chance(0.3) || self.durability == Durability::Disk || self.forced || self.switches_durability() {
            return;
        }
        self.darken(&mut r);
    }

    /// The same where the durability is switched: entries acknowledged in mode `disk`, or before a switch to it, are on disks.
    fn draw_switches(&mut self) {
        let mut r = Rng::new(self.seed ^ 0x0073_7769_u64.rotate_left(24));
        if r.chance(0.6) && self.switches_durability() && !self.forced {
            self.darken(&mut r);
        }
    }

    fn darken(&mut self, r: &mut Rng) {
        self.dark = true;
        self.founded = false;
        if r.chance(0.5) {
            self.db_flush = DbFlush::Each;
        }
        // The disks of the voters are counted after each loss of power: they stay.
        self.faults.retain(|f| !matches!(f.0, Fault::Wipe | Fault::Damage | Fault::Weight));
        self.faults.push((Fault::PowerLossAll, r.range(2, 10) as u32));
        if r.chance(0.5) {
            self.faults.push((Fault::LongTail, r.range(2, 6) as u32));
        }
    }

    /// From a stream of its own. Nobody dies in these runs but the server that fails, and that only while the vote is open. A member that
    /// is alone with its data when the others are away decides a vote alone, and goes on with these data.
    fn draw_errors(&mut self) {
        let mut r = Rng::new(self.seed ^ 0x0065_7272_u64.rotate_left(24));
        if !r.chance(0.2) || self.branches() || self.nodes < 3 || self.arbitrators > 0 {
            return;
        }
        self.error_share = r.range(1, 5) as f64 / 100.0;
        self.strikes.clear();
        self.leaves_dead = false;
        self.outage_mean = 0;
        self.faults.retain(|(fault, _)| {
            matches!(
                fault,
                Fault::Pause
                    | Fault::WriteStall
                    | Fault::CutPair
                    | Fault::CutOneWay
                    | Fault::Partition
                    | Fault::Isolate
                    | Fault::ResetOne
                    | Fault::Flap
                    | Fault::ResetAll
                    | Fault::SlowLink
                    | Fault::SyncStall
                    | Fault::SlowNode
                    | Fault::ClockJump
            )
        });
        if !self.faults.is_empty() && r.chance(0.7) {
            self.strikes.push((Stage::Vote, r.range(30, 90) as f64 / 100.0));
        }
    }

    /// From a stream of its own, in most of the runs with errors: a client's statement fails, and the disk with its server's log does.
    fn draw_failed_statements(&mut self) {
        let mut r = Rng::new(self.seed ^ 0x6673_746d_u64.rotate_left(24));
        if self.error_share == 0.0 || self.faults.is_empty() || !r.chance(0.7) {
            return;
        }
        self.isolated_share = self.isolated_share.max(r.range(10, 30) as f64 / 100.0);
        self.statement_error_share = r.range(10, 50) as f64 / 100.0;
        self.statements_fail_alike = r.chance(0.5);
        if self.statements_fail_alike {
            // So many may be in the middle of a vote that their deaths leave nobody with data. One that asks about a forgotten result would
            // hear of success from the others.
            self.strikes.clear();
            self.bounds =
                Bounds { report_every: self.bounds.report_every, lag_min: self.bounds.lag_min, ..Bounds::default() };
        }
        self.outage_mean = r.range(100, 5_000) * MS;
    }

    /// From a stream of its own.
    fn draw_outages(&mut self) {
        let mut r = Rng::new(self.seed ^ 0x006f_7574_u64.rotate_left(24));
        if !r.chance(0.3) || self.faults.is_empty() {
            return;
        }
        self.outage_mean = r.range(100, 5_000) * MS;
        self.faults.push((Fault::DiskOutage, r.range(1, 10) as u32));
        if r.chance(0.5) {
            self.faults.push((Fault::DiskHangs, r.range(1, 10) as u32));
        }
    }

    /// From a stream of its own. In the calmest runs there is none.
    fn draw_strikes(&mut self) {
        let mut r = Rng::new(self.seed ^ 0x0073_7472_u64.rotate_left(24));
        if !r.chance(0.4) || self.faults.is_empty() {
            return;
        }
        for stage in Stage::ALL {
            let known = match stage {
                Stage::Statement => self.isolated_share > 0.0,
                Stage::Outage => self.outage_mean > 0,
                // Errors and flow control are drawn behind this.
                Stage::Vote | Stage::Slows => false,
                Stage::Stopping => self.faults.iter().any(|f| f.0 == Fault::Leave),
                Stage::VoterChange | Stage::Fork | Stage::Promise | Stage::Snapshot | Stage::Copy => true,
                Stage::Starting => true,
            };
            if known && r.chance(0.5) {
                self.strikes.push((stage, r.range(2, 40) as f64 / 100.0));
            }
        }
    }

    /// Does the history have branches?
    pub fn branches(&self) -> bool {
        self.forced || self.dark
    }

    /// The options of the log in this place: an arbitrator's is cut as soon as it may be.
    pub fn of_slot(&self, slot: usize) -> Options {
        let mut o = self.clone();
        if o.is_arbitrator(slot) {
            o.retain = o.retain.min(o.arbitrator_keep);
            o.checkpoint_every = o.checkpoint_every.min(10);
        }
        o
    }

    pub fn is_arbitrator(&self, slot: usize) -> bool {
        slot + self.arbitrators >= self.nodes
    }

    /// A cluster with default timeouts in which nothing serious happens.
    pub fn harmless(seed: u64) -> Options {
        let mut r = Rng::new(seed ^ 0x0043_1765_u64.rotate_left(40));
        let mut o = Options::draw(seed);
        o.kind = Kind::Harmless;
        o.nodes = r.range(2, 5) as usize;
        o.arbitrators = 0;
        o.arbitrator_keep = u64::MAX;
        o.forced = false;
        o.mixed = false;
        o.dark = false;
        o.leaves_dead = false;
        o.strikes.clear();
        (o.outage_mean, o.statement_error_share) = (0, 0.0);
        o.room = u64::MAX;
        // All servers fail alike, and one that asks about a forgotten result would hear of success from the others.
        o.bounds = Bounds { report_every: o.bounds.report_every, lag_min: o.bounds.lag_min, ..Bounds::default() };
        // Logs that cover a pause, and windows that cover the round trip.
        o.retain = 10_000;
        o.batch_bytes_max = 1 << 20;
        o.inflight_bytes_max = 4 << 20;
        o.timeouts = Timeouts::default();
        o.dead_peer = 0;
        o.piece_mean = o.piece_mean.min(10 * MS);
        o.delay_max = 200 * MS;
        o.delay_mean = if r.chance(0.5) { r.range(10, 70) * MS } else { r.range(10, 5_000) * US };
        // Full load on all nodes.
        o.step_mean = r.range(0, 10_000) * US;
        o.sync_mean = r.range(10, 100_000) * US;
        o.safety = r.range(30, 90) * SEC;
        o.operations = 200;
        o.client_mean = o.safety / o.operations;
        o.fault_mean = r.range(500, 8_000) * MS;
        o.fault_duration = r.range(50, 2_500) * MS;
        o.fault_max = o.timeouts.suspect.as_nanos() as u64 / 2;
        let gentle =
            [Fault::Pause, Fault::WriteStall, Fault::ClockJump, Fault::SyncStall, Fault::SlowNode, Fault::SlowLink];
        o.faults.clear();
        for fault in gentle {
            if r.chance(0.6) {
                o.faults.push((fault, r.range(1, 10) as u32));
            }
        }
        o
    }

    /// A cluster in which old copies of disks are put back (rule 12). Peers remember only in memory what they have heard of a member. So
    /// hardly anybody dies otherwise, and nobody while one is short of what it had acknowledged.
    pub fn restored(seed: u64) -> Options {
        let mut r = Rng::new(seed ^ 0x0065_7067_u64.rotate_left(40));
        let mut o = Options::draw(seed);
        o.kind = Kind::Restored;
        // An old disk has forgotten promises, and only all others together can tell which.
        o.leaves_dead = false;
        o.strikes.clear();
        (o.error_share, o.statement_error_share) = (0.0, 0.0);
        o.outage_mean = 0;
        o.room = u64::MAX;
        o.nodes = r.range(3, 5) as usize;
        o.arbitrators = 0;
        o.arbitrator_keep = u64::MAX;
        (o.forced, o.dark, o.founded) = (false, false, false);
        // A build that the group has outgrown ends by itself, and is started again.
        o.mixed = false;
        (o.ignore_sb, o.ignore_quorum) = (false, false);
        o.safety = r.range(10, 30) * SEC;
        o.operations = r.range(100, 500);
        o.client_mean = o.safety / o.operations;
        o.fault_mean = r.range(100, 1_000) * MS;
        o.fault_duration = r.range(50, 2_000) * MS;
        let around = [
            Fault::Crash,
            Fault::Pause,
            Fault::WriteStall,
            Fault::CutPair,
            Fault::CutOneWay,
            Fault::Partition,
            Fault::CutSome,
            Fault::Isolate,
            Fault::ResetOne,
            Fault::Flap,
            Fault::ResetAll,
            Fault::SlowLink,
            Fault::SyncStall,
            Fault::SlowNode,
        ];
        o.faults = vec![(Fault::CopyDisk, r.range(5, 10) as u32), (Fault::PutBack, r.range(10, 40) as u32)];
        for fault in around {
            if r.chance(0.5) {
                o.faults.push((fault, r.range(1, 10) as u32));
            }
        }
        o
    }

    /// A cluster whose logs are in the middle of a record most of the time. Harm that hurts then happens often.
    pub fn large(seed: u64) -> Options {
        let mut r = Rng::new(seed ^ 0x006c_6172_u64.rotate_left(40));
        let mut o = Options::draw(seed);
        o.kind = Kind::Large;
        (o.error_share, o.statement_error_share) = (0.0, 0.0);
        o.draw_pieces(&mut r);
        o.store = if r.chance(0.5) { StoreKind::Real } else { StoreKind::Fast };
        o.pieced_share = o.pieced_share.max(0.2);
        o.operations = r.range(20, 120);
        o.safety = r.range(3, 12) * SEC;
        o.client_mean = o.safety / o.operations;
        o.fault_mean = r.range(100, 1_000) * MS;
        o.fault_duration = r.range(50, 2_000) * MS;
        let between = [
            Fault::Crash,
            Fault::CrashInStore,
            Fault::CrashMany,
            Fault::PowerLoss,
            Fault::DiskFails,
            Fault::WriteStall,
            Fault::SyncStall,
            Fault::Partition,
            Fault::Isolate,
            Fault::CutOneWay,
            Fault::ResetAll,
        ];
        for fault in between {
            // Some are not for every kind of run.
            if let Some(known) = o.faults.iter_mut().find(|f| f.0 == fault) {
                known.1 += r.range(1, 10) as u32;
            }
        }
        o
    }

    /// A cluster with default timeouts in which one node lies, and little else happens. docs/protocol.md names the effects of a lie and a
    /// failure together; they are not judged here.
    pub fn hostile(seed: u64) -> Options {
        let mut r = Rng::new(seed ^ 0x0068_6f73_u64.rotate_left(40));
        let mut o = Options::calm(seed, r.range(3, 5) as usize);
        o.kind = Kind::Hostile;
        o.liar = match r.below(5) {
            0 => Liar::Newcomer,
            1 => Liar::ManyNames,
            _ => Liar::Member,
        };
        o.nodes += usize::from(o.liar != Liar::Member);
        o.store = if r.chance(0.2) { StoreKind::Real } else { StoreKind::Fast };
        o.durability = if r.chance(0.5) { Durability::Disk } else { Durability::Process };
        o.codec = r.chance(0.3);
        o.delay_min = r.range(10, 500) * US;
        o.delay_mean = if r.chance(0.2) { r.range(1, 20) * MS } else { r.range(10, 1_000) * US };
        o.notice_mean = r.range(10, 10_000) * US;
        o.connect_mean = r.range(1, 50) * MS;
        o.step_mean = if r.chance(0.5) { 0 } else { r.range(1, 1_000) * US };
        o.step_inputs = r.range(1, 64);
        o.sync_mean = r.range(10, 5_000) * US;
        o.checkpoint_every = r.range(5, 200);
        o.db_apply_mean = r.range(10, 2_000) * US;
        o.app_share = 0.2;
        o.read_share = 0.2;
        o.signal_share = 0.05;
        o.stream_share = if r.chance(0.3) { 0.3 } else { 0.0 };
        o.safety = r.range(3, 20) * SEC;
        o.operations = r.range(20, 300);
        o.client_mean = o.safety / o.operations;
        o.draw_appliers();
        o.lie_mean = [MS, 10 * MS, 100 * MS][r.below(3) as usize];
        o.fault_mean = r.range(500, 5_000) * MS;
        o.fault_duration = r.range(10, 500) * MS;
        for fault in [Fault::ResetOne, Fault::ResetAll, Fault::Flap] {
            if r.chance(0.2) {
                o.faults.push((fault, r.range(1, 10) as u32));
            }
        }
        o
    }

    /// A run of this kind.
    pub fn of(kind: Kind, seed: u64) -> Options {
        match kind {
            Kind::Swarm => Options::draw(seed),
            Kind::Harmless => Options::harmless(seed),
            Kind::Restored => Options::restored(seed),
            Kind::Large => Options::large(seed),
            Kind::Hostile => Options::hostile(seed),
        }
    }

    /// Breaks what `name` says: a mutant of the order or of the replicator, or a sabotage.
    pub fn break_by_name(&mut self, name: &str) -> bool {
        self.mutant = Mutant::ALL.iter().copied().find(|m| m.name() == name);
        self.replicator_mutant = trireme_replicator::Mutant::ALL.iter().copied().find(|m| m.name() == name);
        self.sabotage = Sabotage::ALL.iter().copied().find(|s| s.name() == name);
        self.mutant.is_some() || self.replicator_mutant.is_some() || self.sabotage.is_some()
    }

    /// How long a piece takes, on its way and to be written.
    fn piece_time(&self) -> u64 {
        self.piece_mean + self.piece_bytes.min(1 << 20) as u64 * SEC / self.bandwidth
    }

    pub fn switches_durability(&self) -> bool {
        self.faults.iter().any(|f| f.0 == Fault::Durability)
    }

    /// Virtual time within which a healed cluster must have converged. Generous: what it must catch is "never".
    pub fn liveness_bound(&self) -> u64 {
        let t = &self.timeouts;
        60 * SEC
            + 20 * (t.election.as_nanos() + t.suspect.as_nanos() + t.inactive.as_nanos()) as u64
            + 2 * t.linger.as_nanos() as u64
            + if self.outage_mean > 0 { 2 * FIRST_LOOK_MAX } else { 0 }
            + 40 * (self.transfer_mean + self.notice_mean + self.connect_mean)
            + self.operations * 4 * self.db_apply_mean
            + (self.operations as f64 * self.large_share) as u64 * 4 * self.judge_mean
            + (self.operations as f64 * self.pieced_share) as u64 * self.pieces_max * 4 * self.piece_time()
            // A log as a whole, twice: what was on its way to a node that died is sent again.
            + if self.codec { 2 * self.operations * (self.body_bytes + 300) * SEC / self.bandwidth } else { 0 }
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| ns as f64 / MS as f64;
        write!(
            f,
            "seed {}: {:?} liar {:?} nodes {} arbitrators {} keeping {} durability {:?} store {:?} codec {} forced {} mixed {} dark {} founded {} leaves_dead {} ignore_sb {} ignore_quorum {} heartbeat {}ms election {}ms suspect {}ms linger {}ms \
             body_wait {}ms batch {} inflight {} delay {}+{}ms bandwidth {} droppable_loss {} notice {}ms connect {}ms dead_peer {}ms \
             step {}ms x{} sync {}+{}ms checkpoint {} retain {}, {} for members, {} for absent, room {} {:?} index {} backlog {} patience {}ms trim {} ask {} unheard {} silent {} appliers {} optimistic {} think {}ms flow {} x{} for {}ms pauses {}ms every {}ms db {:?} apply {}ms flush {}ms \
             transfer {}ms operations {} every {}ms keys {} body {} pieced {} up to {} of {} in {}ms cached {} app {} read {} stream {} isolated {} errors {} of statements {} alike {} large {} for {}ms safety {}ms fault every {}ms for {}ms drift {}ppm outage {}ms {:?} strikes {:?} faults [",
            self.seed,
            self.kind,
            self.liar,
            self.nodes,
            self.arbitrators,
            self.arbitrator_keep,
            self.durability,
            self.store,
            self.codec,
            self.forced,
            self.mixed,
            self.dark,
            self.founded,
            self.leaves_dead,
            self.ignore_sb,
            self.ignore_quorum,
            self.timeouts.heartbeat.as_millis(),
            self.timeouts.election.as_millis(),
            self.timeouts.suspect.as_millis(),
            self.timeouts.linger.as_millis(),
            self.timeouts.body_wait.as_millis(),
            self.batch_bytes_max,
            self.inflight_bytes_max,
            ms(self.delay_min),
            ms(self.delay_mean),
            self.bandwidth,
            self.droppable_loss,
            ms(self.notice_mean),
            ms(self.connect_mean),
            ms(self.dead_peer),
            ms(self.step_mean),
            self.step_inputs,
            ms(self.sync_min),
            ms(self.sync_mean),
            self.checkpoint_every,
            self.retain,
            self.kept_for_members,
            self.kept_for_absent,
            self.room,
            self.bounds,
            self.index_keys_max,
            self.backlog_small,
            ms(self.non_primary_patience),
            self.trim_share,
            self.ask_share,
            self.unheard_share,
            self.silent,
            self.appliers,
            self.optimistic,
            ms(self.think_mean),
            self.flow_limit,
            self.flow_factor,
            ms(self.flow_patience),
            ms(self.pause_mean),
            ms(self.pause_every),
            self.db_flush,
            ms(self.db_apply_mean),
            ms(self.db_flush_mean),
            ms(self.transfer_mean),
            self.operations,
            ms(self.client_mean),
            self.keys,
            self.body_bytes,
            self.pieced_share,
            self.pieces_max,
            self.piece_bytes,
            ms(self.piece_mean),
            self.cache_bytes_max,
            self.app_share,
            self.read_share,
            self.stream_share,
            self.isolated_share,
            self.error_share,
            self.statement_error_share,
            self.statements_fail_alike,
            self.large_share,
            ms(self.judge_mean),
            ms(self.safety),
            ms(self.fault_mean),
            ms(self.fault_duration),
            self.drift_ppm,
            ms(self.outage_mean),
            self.limits,
            self.strikes,
        )?;
        for (i, (fault, weight)) in self.faults.iter().enumerate() {
            write!(f, "{}{fault:?} {weight}", if i > 0 { ", " } else { "" })?;
        }
        f.write_str("]")
    }
}
