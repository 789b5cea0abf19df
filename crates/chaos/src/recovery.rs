//! The way back after a fault: restart what is dead, wait, and note what the cluster needed for it.

use crate::fault::InForce;
use crate::report::Recovery;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use trireme_cluster::Dice;
use trireme_cluster::{Cluster, Error, Liveness, LogCursor, NodeId, Result, Session, Start, Stop, until};

/// By then the cluster must be whole again by itself.
const LIMIT: Duration = Duration::from_secs(60);
/// A server that ends by itself is started again so often.
const RESTARTS_MAX: u32 = 3;
/// One question to one node.
const PATIENCE: Duration = Duration::from_secs(3);

/// Whose servers these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Single,
    /// Started as its operators do: with the engine's position, and by a bootstrap when all are dead.
    Galera,
    /// Started in any order: plainly, or with the engine's position as by MariaDB's service unit.
    Ours(Start),
}

impl Kind {
    pub fn is_ours(self) -> bool {
        matches!(self, Kind::Ours(_))
    }
}

/// Follows the servers' logs.
pub(crate) struct Logs(Vec<LogCursor>);

impl Logs {
    pub fn from_now_on(cluster: &Cluster) -> Logs {
        Logs(cluster.nodes().iter().map(|node| LogCursor::at_end(&node.log())).collect())
    }

    /// Full copies and catch-ups since the last call.
    pub fn transfers(&mut self) -> (u32, u32) {
        let lines: Vec<String> = self.0.iter_mut().flat_map(LogCursor::lines).collect();
        let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count() as u32;
        (count("SST received: "), count("Receiving IST:"))
    }
}

/// Undoes the faults and brings every node back. A node that is dead and not among the `killed` has ended by itself.
/// **Errors** when not even an operator's last resort does.
pub(crate) fn recover(
    cluster: &mut Cluster,
    in_force: &mut InForce,
    kind: Kind,
    killed: &[NodeId],
    logs: &mut Logs,
    dice: &mut Dice,
) -> Result<Recovery> {
    let began = Instant::now();
    let mut recovery = Recovery::default();
    in_force.heal(cluster)?;
    for id in cluster.ids() {
        if !killed.contains(&id) && cluster.liveness(id)? == Liveness::Gone {
            recovery.ended.push(format!("{id}: {}", cluster.cause_of_end(id)?));
        }
    }
    start_dead(cluster, kind, dice)?;
    match await_whole(cluster, kind, &mut recovery) {
        Ok(()) => {}
        Err(Error::Interrupted) => return Err(Error::Interrupted),
        Err(error) if kind == Kind::Single => return Err(error),
        Err(error) => {
            recovery.by_hand = Some(error.to_string());
            cluster.kill_all()?;
            cluster.revive(&mut |_| {})?;
            await_whole(cluster, kind, &mut recovery)?;
        }
    }
    recovery.synced_ms = began.elapsed().as_millis() as u64;
    (recovery.copies, recovery.catch_ups) = logs.transfers();
    Ok(recovery)
}

fn start_dead(cluster: &mut Cluster, kind: Kind, dice: &mut Dice) -> Result<()> {
    let mut dead = Vec::new();
    for id in cluster.ids() {
        if cluster.liveness(id)? == Liveness::Gone {
            dead.push(id);
        }
    }
    dice.shuffle(&mut dead);
    if kind == Kind::Galera && !dead.is_empty() && dead.len() == cluster.ids().len() {
        return cluster.revive(&mut |_| {});
    }
    for id in dead {
        start_again(cluster, id, kind)?;
    }
    Ok(())
}

/// As a service manager does: what a dead server has left behind, the script of a full copy for instance, ends first.
fn start_again(cluster: &mut Cluster, id: NodeId, kind: Kind) -> Result<()> {
    cluster.stop(id, Stop::Kill)?;
    cluster.launch(id, way_to_start(kind))
}

/// As those who operate them start dead servers.
pub(crate) fn way_to_start(kind: Kind) -> Start {
    match kind {
        Kind::Galera => Start::Recover,
        Kind::Single => Start::Plain,
        Kind::Ours(start) => start,
    }
}

/// Every node Synced, all in one group, and each answers a read that has to ask the others.
fn await_whole(cluster: &mut Cluster, kind: Kind, recovery: &mut Recovery) -> Result<()> {
    let mut restarts: BTreeMap<NodeId, u32> = BTreeMap::new();
    let cancel = cluster.cancel().clone();
    until("the cluster is whole again", LIMIT, &cancel, || {
        for id in cluster.ids() {
            if cluster.liveness(id)? != Liveness::Gone {
                continue;
            }
            let n = restarts.entry(id).or_default();
            *n += 1;
            if *n > RESTARTS_MAX {
                return Ok(Err(format!("{id} ends at every start")));
            }
            let cause = cluster.cause_of_end(id)?;
            recovery.ended.push(format!("{id}: {cause}"));
            start_again(cluster, id, kind)?;
        }
        Ok(whole(cluster, kind))
    })
}

fn whole(cluster: &Cluster, kind: Kind) -> std::result::Result<(), String> {
    let size = cluster.ids().len() as u32;
    for status in cluster.status() {
        let there = match kind {
            Kind::Single => true,
            Kind::Galera | Kind::Ours(_) => status.is_synced() && status.members == Some(size),
        };
        if !there {
            return Err(format!("{} is {}, in a group of {:?}", status.node, status.state, status.members));
        }
    }
    for endpoint in cluster.endpoints() {
        let causal = Session::open(endpoint.socket(), None, PATIENCE).and_then(|mut session| {
            session.query("SET SESSION wsrep_sync_wait = 1")?;
            session.query("SELECT COUNT(*) FROM mysql.db")
        });
        causal.map_err(|error| format!("{}: {error}", endpoint.node))?;
    }
    Ok(())
}
