//! Faults: which to choose, how to inject them, and how to undo them all.

use crate::interruption::{Attempt, Blow, StartMoment, StopMoment, cut_start_short, cut_stop_short};
use crate::nemesis::Nemesis;
use crate::workload::SCHEMA;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use trireme_cluster::{Cluster, Dice, Error, Liveness, NodeId, Result, Session, Start, Stop, Stutter, until};

/// For a statement that locks tables under load.
const PATIENCE: Duration = Duration::from_secs(10);
/// An applier waits behind a client that waits for a lock, and the transaction that the client waits for may wait for the
/// applier's turn to commit. Nobody notices that circle, so the client lets go after a second and tries again.
const LOCK_ATTEMPTS: usize = 15;
/// A full copy begins within this, and so do large rows get through.
const COPY_BEGINS: Duration = Duration::from_secs(60);
/// A frozen node leaves the view within this, and so is it back in it.
const VIEW_CHANGES: Duration = Duration::from_secs(60);
/// Rows of a quarter of a megabyte: a dozen times what small logs may hold.
const LARGE_ROWS: u64 = 200;
const LARGE_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS ballast.large_rows (id BIGINT AUTO_INCREMENT PRIMARY KEY, pad LONGBLOB) ENGINE=InnoDB";
const LARGE_ROW: &str = "INSERT INTO ballast.large_rows (pad) VALUES (REPEAT('x', 250000))";
/// ER_LOCK_WAIT_TIMEOUT
const NOT_IN_TIME: u16 = 1205;

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Kill(NodeId),
    KillAll,
    /// Told to stop, and struck at this moment of it.
    CutStopShort(NodeId, StopMoment, Blow),
    /// Ended in the first way, and without power at this moment of the start that follows.
    CutStartShort(NodeId, Blow, StartMoment),
    Pause(NodeId),
    /// A minority, together, without the rest.
    Isolate(Vec<NodeId>),
    /// Packets of the first to the second vanish.
    Cut(Vec<(NodeId, NodeId)>, String),
    /// Writes of the node to its disk hang.
    FreezeDisk(NodeId),
    /// They take a while.
    SlowDisk(NodeId),
    /// At one moment: what had not been synced is gone.
    CutPower(Vec<NodeId>),
    /// A client holds all tables, so that nothing can be applied.
    LockTables(NodeId),
    /// Clients of all nodes write large rows, and in the midst of that all are killed.
    KillAllAmidstLargeRows,
    /// The node takes a full copy, and then this happens.
    DisturbCopy(NodeId, Disturbance),
    /// The node starts with nothing and takes a full copy.
    TakeCopy(NodeId),
    /// Every server stops orderly and starts again, one after the other.
    RestartAll,
}

/// The trouble of a full copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disturbance {
    KillJoiner,
    KillDonor,
    /// The joiner is frozen, its copy too, until the logs of the others begin behind the copy.
    Outrun,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |nodes: &[NodeId]| nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(" ");
        match self {
            Fault::Kill(node) => write!(f, "{node} killed"),
            Fault::KillAll => f.write_str("all killed"),
            Fault::CutStopShort(node, moment, blow) => write!(f, "{node} {blow} {moment}"),
            Fault::CutStartShort(node, first, moment) => {
                write!(f, "{node} {first}, and {} {moment}", Blow::PowerCut)
            }
            Fault::Pause(node) => write!(f, "{node} frozen"),
            Fault::Isolate(nodes) => write!(f, "{} cut off", list(nodes)),
            Fault::Cut(_, what) => f.write_str(what),
            Fault::FreezeDisk(node) => write!(f, "disk of {node} hangs"),
            Fault::SlowDisk(node) => write!(f, "disk of {node} slow"),
            Fault::CutPower(nodes) => write!(f, "{} without power", list(nodes)),
            Fault::TakeCopy(node) => write!(f, "{node} takes a full copy"),
            Fault::RestartAll => f.write_str("all restarted in turn"),
            Fault::LockTables(node) => write!(f, "tables of {node} locked"),
            Fault::KillAllAmidstLargeRows => f.write_str("all killed amidst large rows"),
            Fault::DisturbCopy(node, Disturbance::KillJoiner) => write!(f, "{node} killed in its copy"),
            Fault::DisturbCopy(node, Disturbance::KillDonor) => write!(f, "donor of {node} killed"),
            Fault::DisturbCopy(node, Disturbance::Outrun) => write!(f, "copy of {node} outrun"),
        }
    }
}

impl Fault {
    /// The nodes that may stop serving because of it. All others are to go on.
    pub fn hit(&self, all: &[NodeId]) -> Vec<NodeId> {
        match self {
            Fault::Kill(node)
            | Fault::CutStopShort(node, ..)
            | Fault::CutStartShort(node, ..)
            | Fault::Pause(node)
            | Fault::FreezeDisk(node)
            | Fault::SlowDisk(node)
            | Fault::LockTables(node)
            | Fault::TakeCopy(node) => vec![*node],
            // A donor's clients wait for its script.
            Fault::KillAll | Fault::KillAllAmidstLargeRows | Fault::DisturbCopy(..) | Fault::RestartAll => all.to_vec(),
            Fault::Isolate(nodes) | Fault::CutPower(nodes) => nodes.clone(),
            Fault::Cut(cuts, _) => {
                let cut_from_all = |node: &NodeId| {
                    let peers = all.len() - 1;
                    let out = cuts.iter().filter(|(from, _)| from == node).count();
                    let inward = cuts.iter().filter(|(_, to)| to == node).count();
                    out == peers || inward == peers
                };
                match all.iter().find(|node| cut_from_all(node)) {
                    Some(alone) => vec![*alone],
                    // Either end of a link may have to go.
                    None => all.iter().copied().filter(|n| cuts.iter().any(|(a, b)| a == n || b == n)).collect(),
                }
            }
        }
    }

    /// Whether a single node is hit at any time, which a balancer hides from its clients.
    pub fn leaves_others(&self) -> bool {
        match self {
            Fault::Kill(_) | Fault::CutStopShort(..) | Fault::CutStartShort(..) => true,
            Fault::Pause(_) | Fault::FreezeDisk(_) => true,
            Fault::TakeCopy(_) | Fault::RestartAll => true,
            Fault::Isolate(nodes) | Fault::CutPower(nodes) => nodes.len() == 1,
            // Nobody is out: the group waits, and clients with it.
            Fault::LockTables(_) | Fault::SlowDisk(_) => false,
            // The nodes find out between themselves which one has to go, and none is dead.
            Fault::Cut(..) => false,
            Fault::KillAll | Fault::KillAllAmidstLargeRows | Fault::DisturbCopy(..) => false,
        }
    }

    /// The nodes that are dead after it.
    pub fn kills(&self, all: &[NodeId]) -> Vec<NodeId> {
        match self {
            Fault::Kill(_)
            | Fault::CutStopShort(..)
            | Fault::CutStartShort(..)
            | Fault::KillAll
            | Fault::KillAllAmidstLargeRows
            | Fault::CutPower(_) => self.hit(all),
            _ => Vec::new(),
        }
    }

    /// The faults of a round; empty for none. Commits that are acknowledged only from memory (`volatile`) outlive one loss
    /// of power at a time, and so a mix has none of them. `first`: hit this node, as the clients are there.
    pub fn draw(
        nemesis: Nemesis,
        volatile: bool,
        all: &[NodeId],
        first: Option<NodeId>,
        dice: &mut Dice,
    ) -> Vec<Fault> {
        let mut nodes = all.to_vec();
        dice.shuffle(&mut nodes);
        // Stable: the others stay in the order that was drawn.
        nodes.sort_by_key(|node| Some(*node) != first);
        let Some(one) = nodes.first().copied() else { return Vec::new() };
        let fault = match nemesis {
            Nemesis::None => return Vec::new(),
            Nemesis::KillOne => Fault::Kill(one),
            Nemesis::KillAll => Fault::KillAll,
            Nemesis::StopKill => Fault::CutStopShort(one, StopMoment::draw(dice), Blow::Kill),
            Nemesis::StopPower => Fault::CutStopShort(one, StopMoment::draw(dice), Blow::PowerCut),
            Nemesis::StartPower => {
                // A killed server has left in the page cache what is gone with the power.
                let first = if dice.one_in(2) { Blow::Kill } else { Blow::PowerCut };
                Fault::CutStartShort(one, first, StartMoment::draw(dice))
            }
            Nemesis::Pause => Fault::Pause(one),
            Nemesis::PartitionWhole => {
                let minority = 1 + dice.below((all.len() as u64 - 1) / 2) as usize;
                Fault::Isolate(nodes[..minority].to_vec())
            }
            Nemesis::PartitionOneWay => {
                let to_others = || nodes[1..].iter().map(|other| (one, *other)).collect::<Vec<_>>();
                match dice.below(3) {
                    0 => Fault::Cut(to_others(), format!("{one} sends nothing")),
                    1 => Fault::Cut(
                        to_others().into_iter().map(|(a, b)| (b, a)).collect(),
                        format!("{one} hears nothing"),
                    ),
                    _ => Fault::Cut(vec![(one, nodes[1])], format!("nothing from {one} to {}", nodes[1])),
                }
            }
            Nemesis::PartitionRing => ring(&nodes),
            Nemesis::HungDisk => Fault::FreezeDisk(one),
            Nemesis::SlowDisk => Fault::SlowDisk(one),
            Nemesis::PowerOne => Fault::CutPower(vec![one]),
            Nemesis::PowerAll => Fault::CutPower(all.to_vec()),
            Nemesis::LockedTables => Fault::LockTables(one),
            Nemesis::SmallLog => Fault::KillAllAmidstLargeRows,
            Nemesis::KillJoiner => {
                let what = [Disturbance::KillJoiner, Disturbance::KillDonor, Disturbance::Outrun];
                Fault::DisturbCopy(one, what[dice.below(what.len() as u64) as usize])
            }
            // The clients' own node is the least likely to lose its data.
            Nemesis::Donor => Fault::TakeCopy(nodes[nodes.len() - 1]),
            Nemesis::RollingRestart => Fault::RestartAll,
            Nemesis::Mix => return mix(volatile, all, first, dice),
        };
        vec![fault]
    }
}

/// With three nodes a cut between two that both reach the third. With more, each reaches only its neighbours in a ring.
fn ring(nodes: &[NodeId]) -> Fault {
    if nodes.len() <= 3 {
        let (a, b) = (nodes[0], nodes[1]);
        return Fault::Cut(vec![(a, b), (b, a)], format!("no link between {a} and {b}"));
    }
    let near = |i: usize, j: usize| {
        let distance = i.abs_diff(j);
        distance <= 1 || distance == nodes.len() - 1
    };
    let pairs = (0..nodes.len()).flat_map(|i| (0..nodes.len()).map(move |j| (i, j)));
    let cuts = pairs.filter(|(i, j)| !near(*i, *j)).map(|(i, j)| (nodes[i], nodes[j]));
    Fault::Cut(cuts.collect(), "only a ring of links".to_owned())
}

/// One fault, or two of which the second strikes during the first.
fn mix(volatile: bool, all: &[NodeId], first: Option<NodeId>, dice: &mut Dice) -> Vec<Fault> {
    let fits = |kind: &Nemesis| match kind {
        // They need logs of their own, or take copies, which are a breach in any other run.
        Nemesis::None | Nemesis::Mix | Nemesis::SmallLog | Nemesis::KillJoiner | Nemesis::Donor => false,
        // It takes as long as a run.
        Nemesis::RollingRestart => false,
        // Beside another fault there may be nobody whom the server could start with.
        Nemesis::StartPower => false,
        Nemesis::PowerOne | Nemesis::PowerAll | Nemesis::StopPower => !volatile,
        _ => true,
    };
    let kinds: Vec<Nemesis> = Nemesis::ALL.into_iter().filter(fits).collect();
    let mut any = || {
        let kind = kinds[dice.below(kinds.len() as u64) as usize];
        Fault::draw(kind, volatile, all, first, dice)
    };
    let mut faults = any();
    let second = any();
    if dice.one_in(3) {
        let hit: Vec<NodeId> = faults.iter().flat_map(|fault| fault.hit(all)).collect();
        // A server that is hit already may refuse a client its lock.
        let fits = |fault: &Fault| !matches!(fault, Fault::LockTables(node) if hit.contains(node));
        let second: Vec<Fault> = second.into_iter().filter(|fault| !faults.contains(fault) && fits(fault)).collect();
        faults.extend(second);
    }
    faults
}

/// The faults that are in force as long as somebody keeps them up.
#[derive(Default)]
pub(crate) struct InForce {
    slow: BTreeMap<NodeId, Stutter>,
    locks: Vec<Session>,
}

impl InForce {
    /// Does it. A node that is dead or frozen already stays so. `how`: servers start again. Gives what became of a stop or a start that
    /// was to be cut short.
    pub fn inject(&mut self, cluster: &mut Cluster, fault: &Fault, how: Start) -> Result<Option<Attempt>> {
        match fault {
            Fault::Kill(node) => {
                // A process that hangs in its disk cannot die.
                self.thaw(cluster, &[*node]);
                if cluster.liveness(*node)? != Liveness::Gone {
                    cluster.kill(*node)?;
                }
            }
            Fault::KillAll => {
                self.thaw(cluster, &cluster.ids());
                cluster.kill_all()?;
            }
            Fault::CutStopShort(node, moment, blow) => {
                self.thaw(cluster, &[*node]);
                if cluster.liveness(*node)? == Liveness::Running {
                    return cut_stop_short(cluster, *node, *moment, *blow).map(Some);
                }
            }
            Fault::CutStartShort(node, first, moment) => {
                return cut_start_short(cluster, *node, *first, *moment, how).map(Some);
            }
            Fault::Pause(node) => {
                if cluster.liveness(*node)? == Liveness::Running {
                    cluster.pause(*node)?;
                }
            }
            Fault::Isolate(nodes) => cluster.partition(std::slice::from_ref(nodes))?,
            Fault::Cut(cuts, _) => {
                for (from, to) in cuts {
                    cluster.cut(*from, *to)?;
                }
            }
            Fault::FreezeDisk(node) => {
                self.thaw(cluster, &[*node]);
                cluster.disk(*node)?.freeze()?;
            }
            Fault::SlowDisk(node) => {
                self.slow.insert(*node, Stutter::of(cluster.disk(*node)?));
            }
            Fault::CutPower(nodes) => {
                self.thaw(cluster, nodes);
                cluster.cut_power(nodes)?;
            }
            Fault::LockTables(node) => self.locks.push(lock_tables(cluster, *node)?),
            Fault::KillAllAmidstLargeRows => {
                let rows = LargeRows::begin(cluster)?;
                rows.await_progress(cluster)?;
                cluster.kill_all()?;
            }
            Fault::DisturbCopy(node, what) => disturb_copy(cluster, *node, *what)?,
            Fault::TakeCopy(node) => start_empty(cluster, *node)?,
            Fault::RestartAll => {
                for node in cluster.ids() {
                    cluster.stop(node, Stop::Graceful)?;
                    cluster.start(node, how, &mut |_| {})?;
                }
            }
        }
        Ok(None)
    }

    /// Undoes everything but deaths.
    pub fn heal(&mut self, cluster: &mut Cluster) -> Result<()> {
        self.locks.clear();
        let nodes = cluster.ids();
        self.thaw(cluster, &nodes);
        for node in &nodes {
            if cluster.liveness(*node)? == Liveness::Paused {
                cluster.resume(*node)?;
            }
        }
        if !cluster.cuts().is_empty() {
            cluster.heal()?;
        }
        Ok(())
    }

    fn thaw(&mut self, cluster: &Cluster, nodes: &[NodeId]) {
        for node in nodes {
            self.slow.remove(node);
            if let Ok(disk) = cluster.disk(*node) {
                // One that is not frozen refuses, which is fine.
                let _ = disk.thaw();
            }
        }
    }
}

/// Clients that write large rows, one of each node, until they are dropped or their server is gone.
struct LargeRows {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl LargeRows {
    fn begin(cluster: &Cluster) -> Result<LargeRows> {
        let endpoints = cluster.endpoints();
        let Some(first) = endpoints.first() else { return Err(Error::NotRunning(cluster.ids()[0])) };
        let failed = |error| Error::Sql { node: first.node, error };
        let mut session = Session::open(first.socket(), None, PATIENCE).map_err(failed)?;
        let make = ["CREATE DATABASE IF NOT EXISTS ballast", LARGE_TABLE];
        for statement in make {
            session.query(statement).map_err(failed)?;
        }
        let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = endpoints
            .into_iter()
            .map(|endpoint| {
                let (stop, written) = (stop.clone(), written.clone());
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed)
                        && let Ok(mut session) = Session::open(endpoint.socket(), None, PATIENCE)
                    {
                        // A refused row is not told from a server that is gone: the next connection does.
                        while !stop.load(Ordering::Relaxed) && session.query(LARGE_ROW).is_ok() {
                            written.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        Ok(LargeRows { stop, written, threads })
    }

    /// Several times what the logs may hold.
    fn await_progress(&self, cluster: &Cluster) -> Result<()> {
        until("large rows are written", COPY_BEGINS, cluster.cancel(), || {
            let written = self.written.load(Ordering::Relaxed);
            Ok(if written >= LARGE_ROWS { Ok(()) } else { Err(format!("{written} of {LARGE_ROWS}")) })
        })
    }
}

impl Drop for LargeRows {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Kills the node and starts it with nothing that counts.
fn start_empty(cluster: &mut Cluster, joiner: NodeId) -> Result<()> {
    cluster.stop(joiner, Stop::Kill)?;
    let _ = std::fs::remove_file(cluster.node(joiner)?.data().join("grastate.dat"));
    cluster.launch(joiner, Start::Plain)
}

/// Starts the node with nothing that counts, and disturbs the copy that it takes.
fn disturb_copy(cluster: &mut Cluster, joiner: NodeId, what: Disturbance) -> Result<()> {
    start_empty(cluster, joiner)?;
    let donor = until("a donor is at work", COPY_BEGINS, cluster.cancel(), || {
        let found = cluster.status().into_iter().find(|status| status.state.starts_with("Donor"));
        Ok(found.map(|status| status.node).ok_or_else(|| "none".to_owned()))
    })?;
    match what {
        Disturbance::KillJoiner => cluster.kill(joiner),
        Disturbance::KillDonor => cluster.kill(donor),
        Disturbance::Outrun => {
            // It would take the copy as soon as its script is done.
            cluster.pause(joiner)?;
            until("the donor has sent all", COPY_BEGINS, cluster.cancel(), || {
                let at_work = cluster.status().iter().any(|status| status.state.starts_with("Donor"));
                Ok(if at_work { Err("at work".to_owned()) } else { Ok(()) })
            })?;
            cluster.pause_transfer(joiner)?;
            let rows = LargeRows::begin(cluster)?;
            rows.await_progress(cluster)?;
            drop(rows);
            let others = cluster.ids().len() as u32 - 1;
            // Else it would be in the view all the time, and nobody could await that it is back.
            await_view(cluster, joiner, |members| members == others)?;
            cluster.resume(joiner)?;
            // It knows then what has become of the logs, or waits for its script.
            await_view(cluster, joiner, |members| members > others)?;
            cluster.resume_transfer(joiner)
        }
    }
}

/// Waits until the view of those beside `joiner` has that many members, or the joiner has ended.
fn await_view(cluster: &Cluster, joiner: NodeId, fits: impl Fn(u32) -> bool) -> Result<()> {
    until(format!("the view changes around {joiner}"), VIEW_CHANGES, cluster.cancel(), || {
        let views: Vec<u32> = cluster
            .status()
            .into_iter()
            .filter(|status| status.node != joiner)
            .filter_map(|status| status.members)
            .collect();
        let over = cluster.liveness(joiner)? == Liveness::Gone;
        Ok(if over || views.iter().any(|members| fits(*members)) { Ok(()) } else { Err(format!("{views:?}")) })
    })
}

/// A session that holds every table of the load.
fn lock_tables(cluster: &Cluster, node: NodeId) -> Result<Session> {
    let endpoint = cluster.endpoint(node)?;
    let lock = || {
        let mut session = Session::open(endpoint.socket(), Some(SCHEMA), PATIENCE)?;
        let tables: Vec<String> = session.query("SHOW TABLES")?.texts().into_iter().flatten().collect();
        let each: Vec<String> = tables.iter().map(|table| format!("{table} WRITE")).collect();
        session.query("SET SESSION lock_wait_timeout = 1")?;
        let lock = format!("LOCK TABLES {}", each.join(", "));
        let mut left = LOCK_ATTEMPTS;
        loop {
            left -= 1;
            match session.query(&lock) {
                Ok(_) => return Ok(session),
                Err(error) if left > 0 && error.code() == Some(NOT_IN_TIME) => {}
                Err(error) => return Err(error),
            }
        }
    };
    lock().map_err(|error| Error::Sql { node, error })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(n: u8) -> Vec<NodeId> {
        (1..=n).filter_map(NodeId::new).collect()
    }

    #[test]
    fn a_majority_is_left_alone_but_by_what_hits_all() {
        for n in [3, 5] {
            let all = nodes(n);
            for seed in 0..200 {
                let mut dice = Dice::new(seed);
                let minor = Nemesis::ALL.into_iter().filter(|nemesis| {
                    let major = [Nemesis::KillAll, Nemesis::PowerAll, Nemesis::PartitionRing, Nemesis::PartitionOneWay];
                    let of_all = [Nemesis::SmallLog, Nemesis::KillJoiner, Nemesis::RollingRestart, Nemesis::Mix];
                    !major.contains(nemesis) && !of_all.contains(nemesis)
                });
                for nemesis in minor {
                    for fault in Fault::draw(nemesis, false, &all, None, &mut dice) {
                        assert!(fault.hit(&all).len() <= all.len() / 2, "{fault:?}");
                    }
                }
                for fault in Fault::draw(Nemesis::PartitionOneWay, false, &all, None, &mut dice) {
                    assert!(fault.hit(&all).len() <= 2, "{fault:?}");
                }
            }
        }
    }

    #[test]
    fn the_clients_node_is_hit_first() {
        let all = nodes(3);
        for seed in 0..50 {
            let mut dice = Dice::new(seed);
            assert_eq!(Fault::draw(Nemesis::Pause, false, &all, Some(all[1]), &mut dice), [Fault::Pause(all[1])]);
            let copy = Fault::draw(Nemesis::Donor, false, &all, Some(all[1]), &mut dice);
            assert!(copy != [Fault::TakeCopy(all[1])], "{copy:?}");
        }
    }

    #[test]
    fn in_a_ring_each_reaches_two() {
        let all = nodes(5);
        let Fault::Cut(cuts, _) = ring(&all) else { panic!() };
        for node in &all {
            assert_eq!(cuts.iter().filter(|(from, _)| from == node).count(), 2);
        }
        let Fault::Cut(cuts, _) = ring(&nodes(3)) else { panic!() };
        assert_eq!(cuts.len(), 2);
    }

    #[test]
    fn a_mix_holds_pairs() {
        let all = nodes(3);
        let mut dice = Dice::new(1);
        let rounds: Vec<Vec<Fault>> =
            (0..300).map(|_| Fault::draw(Nemesis::Mix, false, &all, None, &mut dice)).collect();
        assert!(rounds.iter().any(|faults| faults.len() == 1) && rounds.iter().any(|faults| faults.len() == 2));
        let cuts = |fault: &Fault| matches!(fault, Fault::CutPower(_) | Fault::CutStopShort(_, _, Blow::PowerCut));
        assert!(rounds.iter().flatten().any(cuts));
        let of_volatile = (0..300).flat_map(|_| Fault::draw(Nemesis::Mix, true, &all, None, &mut dice));
        assert!(!of_volatile.into_iter().any(|fault| cuts(&fault)));
    }
}
