//! Commits per second over time while one node is frozen, killed and cut off, and while all are killed.

use super::{Layout, value};
use crate::field::{Context, Field, pass_until};
use crate::plan::{Experiment, Point, Settings};
use crate::record::Measured;
use crate::survivors::{Doors, TABLE, rows_there, sockets, through};
use crate::systems::{Kind, System};
use std::time::{Duration, Instant};
use trireme_cluster::{NodeId, Start};

pub const LAYOUT: Layout = Layout {
    title: "Faults",
    about: "Clients on all nodes insert one row per commit, and stay with their node. The node that is hit is frozen, killed and started again, or cut off. The faults strike a node that does not order, and then the sequencer; in Galera, which has none, the second of each pair strikes the first member. At last all nodes are killed and started again. The gap is the longest time without a commit on any node; when all are killed, the whole outage, with what an operator has to do by hand done at once.",
    values: &[
        value("gap_freeze_s", "longest gap: frozen, s", 2),
        value("gap_freeze_chief_s", "sequencer frozen, s", 2),
        value("gap_kill_s", "killed, s", 2),
        value("gap_kill_chief_s", "sequencer killed, s", 2),
        value("gap_cut_s", "cut off, s", 2),
        value("gap_cut_chief_s", "sequencer cut off, s", 2),
        value("gap_kill_all_s", "all killed, s", 2),
        value("lost", "acknowledged and lost", 0),
        value("quiet_commits_per_s", "commits/s without a fault", 0),
        value("back_kill_s", "killed node back after, s", 1),
        value("back_kill_all_s", "all nodes back after, s", 1),
        value("unknown", "answers that left it open", 0),
    ],
    ratios: &[8],
    ..Layout::TABLE
};

const KNOWN: [System; 4] = [System::TriremeDisk, System::TriremeProcess, System::GaleraDurable, System::GaleraFast];
const CLIENTS: u32 = 8;
/// Width of a step of the picture.
const STEP: Duration = Duration::from_millis(250);

pub fn size(settings: &Settings) -> String {
    format!("{CLIENTS} clients. Each fault lasts {} s.", lasts(settings).as_secs_f64())
}

pub fn points(settings: &Settings) -> Vec<Point> {
    // Galera takes minutes to see a node go and to have it back.
    let tiny: &[System] = &[System::TriremeDisk];
    let usual = settings.by_preset(tiny, &[System::TriremeDisk, System::GaleraDurable], &KNOWN);
    // With two nodes nobody is a majority without the other.
    let nodes: Vec<u8> = settings.nodes_or(&[3]).into_iter().filter(|nodes| *nodes >= 3).collect();
    let nodes = if nodes.is_empty() { vec![3] } else { nodes };
    let all = settings.deployments(&settings.systems_of(usual, &KNOWN), &nodes);
    all.into_iter().map(|(system, nodes)| Point::new(Experiment::Faults, system.name(), nodes)).collect()
}

/// Whether networks can be cut here.
pub fn can_cut() -> bool {
    use std::sync::OnceLock;
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| trireme_cluster::namespaces_available().is_ok())
}

/// How long each fault lasts, and as long again what comes after it.
fn lasts(settings: &Settings) -> Duration {
    // Longer than what the systems take to notice by their defaults, as else their gaps would be as long as the fault.
    let least = settings.by_preset(1.5, 6.0, 6.0);
    Duration::from_secs_f64((settings.duration * 3.0).clamp(least, 20.0))
}

pub fn seconds(settings: &Settings) -> f64 {
    lasts(settings).as_secs_f64() * (1.0 + 2.0 * Fault::ALL.len() as f64)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Freeze,
    FreezeChief,
    Kill,
    KillChief,
    Cut,
    CutChief,
    KillAll,
}

impl Fault {
    const ALL: [Fault; 7] =
        [Fault::Freeze, Fault::FreezeChief, Fault::Kill, Fault::KillChief, Fault::Cut, Fault::CutChief, Fault::KillAll];

    fn is_cut(self) -> bool {
        matches!(self, Fault::Cut | Fault::CutChief)
    }

    /// Whether it strikes the node that orders.
    fn strikes_chief(self) -> bool {
        matches!(self, Fault::FreezeChief | Fault::KillChief | Fault::CutChief)
    }

    fn name(self) -> &'static str {
        match self {
            Fault::Freeze => "freeze",
            Fault::FreezeChief => "freeze_chief",
            Fault::Kill => "kill",
            Fault::KillChief => "kill_chief",
            Fault::Cut => "cut",
            Fault::CutChief => "cut_chief",
            Fault::KillAll => "kill_all",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Fault::Freeze => "one frozen",
            Fault::FreezeChief => "sequencer frozen",
            Fault::Kill => "one killed",
            Fault::KillChief => "sequencer killed",
            Fault::Cut => "one cut off",
            Fault::CutChief => "sequencer cut off",
            Fault::KillAll => "all killed",
        }
    }
}

/// When a fault struck, and when it was over, since the clients began.
struct Struck {
    fault: Fault,
    victim: NodeId,
    at: Duration,
    /// All nodes were in the group again.
    back: Duration,
}

pub fn run(context: &Context, _point: &Point, field: &mut Field) -> Result<Measured, String> {
    field.fresh_schema()?;
    field.sql(1, TABLE)?;
    field.settle()?;
    let doors = Doors::fixed(sockets(&field.cluster.endpoints()));
    let lasts = lasts(&context.settings);
    let ((struck, quiet), seen) = through(&doors, CLIENTS, |clients| {
        pass_until(Instant::now() + context.warmup(), &context.cancel)?;
        let quiet = clients.now();
        pass_until(Instant::now() + lasts, &context.cancel)?;
        let mut struck = Vec::new();
        for fault in Fault::ALL {
            if fault.is_cut() && !can_cut() {
                continue;
            }
            let victim = victim(field, fault)?;
            let at = clients.now();
            strike(context, field, fault, victim, lasts)?;
            let back = clients.now();
            pass_until(
                Instant::now() + (at + lasts * 2).saturating_sub(clients.now()).max(lasts / 2),
                &context.cancel,
            )?;
            struck.push(Struck { fault, victim, at, back });
        }
        Ok((struck, quiet))
    })?;
    let mut measured = Measured::default();
    let end = quiet + lasts;
    let within = seen.commits.iter().filter(|at| (quiet..end).contains(*at)).count();
    measured.set("quiet_commits_per_s", within as f64 / lasts.as_secs_f64());
    measured.set("fault_s", lasts.as_secs_f64());
    measured.set("unknown", seen.errors.len() as f64);
    // Each fault has its place in the picture, however long the one before took.
    let mut line = Vec::new();
    let mut add = |place: f64, from: Duration, to: Duration| {
        for (n, rate) in seen.rate(from, to, STEP).into_iter().enumerate() {
            line.push((place + n as f64 * STEP.as_secs_f64(), rate));
        }
    };
    add(0.0, quiet, end);
    let mut place = lasts.as_secs_f64();
    for Struck { fault, victim, at, back } in &struck {
        let name = fault.name();
        if *fault != Fault::KillAll {
            measured.note(format!("{}: {victim}", fault.title()));
        }
        let until = (*at + lasts * 2).max(*back);
        measured.set(format!("gap_{name}_s"), seen.longest_gap(*at, until).as_secs_f64());
        measured.set(format!("back_{name}_s"), (*back - *at).as_secs_f64());
        measured.series.insert(format!("event {}", fault.title()), vec![(place, place + lasts.as_secs_f64())]);
        add(place, *at, *at + lasts * 2);
        place += lasts.as_secs_f64() * 2.0;
    }
    measured.series.insert("commits_per_s".to_owned(), line);
    if !can_cut() {
        measured.note("nothing was cut off: that needs root, for network namespaces");
    }
    field.compare()?;
    let acknowledged = seen.until(Duration::MAX);
    let mut lost = 0;
    for id in field.cluster.ids() {
        let mut session = field.cluster.session(id).map_err(|e| e.to_string())?;
        let there = rows_there(&mut session).map_err(|e| e.to_string())?;
        lost = lost.max(acknowledged.difference(&there).count());
    }
    measured.set("lost", lost as f64);
    measured.set("acknowledged", seen.acknowledged.len() as f64);
    if lost > 0 && matches!(field.system().kind(), Kind::Ours) {
        return Err(format!("{lost} of {} acknowledged commits are lost", seen.acknowledged.len()));
    }
    Ok(measured)
}

/// The node on which most depends: the sequencer. Systems that have none have their first member there.
pub fn chief(field: &Field) -> Result<NodeId, String> {
    if !matches!(field.system().kind(), Kind::Ours) {
        return Ok(field.cluster.ids()[0]);
    }
    // Between two of them there is none for a moment.
    trireme_cluster::until("a node is the sequencer", Duration::from_secs(10), field.cluster.cancel(), || {
        let status = field.cluster.status();
        let orders = status.iter().find(|node| node.role.as_deref() == Some("sequencer"));
        Ok(orders.map(|node| node.node).ok_or_else(|| "none says so".to_owned()))
    })
    .map_err(|error| error.to_string())
}

fn victim(field: &Field, fault: Fault) -> Result<NodeId, String> {
    let chief = chief(field)?;
    match fault.strikes_chief() {
        true => Ok(chief),
        false => {
            field.cluster.ids().into_iter().rev().find(|id| *id != chief).ok_or_else(|| "one node only".to_owned())
        }
    }
}

/// From the fault until all nodes are in the group again.
fn strike(context: &Context, field: &mut Field, fault: Fault, victim: NodeId, lasts: Duration) -> Result<(), String> {
    let text = |error: trireme_cluster::Error| match context.cancel.is_set() {
        true => "interrupted".to_owned(),
        false => format!("{}: {error}", fault.title()),
    };
    let end = Instant::now() + lasts;
    match fault {
        Fault::Freeze | Fault::FreezeChief => {
            field.cluster.pause(victim).map_err(text)?;
            let waited = pass_until(end, &context.cancel);
            field.cluster.resume(victim).map_err(text)?;
            waited?;
        }
        Fault::Kill | Fault::KillChief => {
            field.cluster.kill(victim).map_err(text)?;
            pass_until(end, &context.cancel)?;
            field.cluster.launch(victim, Start::Recover).map_err(text)?;
        }
        Fault::Cut | Fault::CutChief => {
            field.cluster.partition(&[vec![victim]]).map_err(text)?;
            let waited = pass_until(end, &context.cancel);
            field.cluster.heal().map_err(text)?;
            waited?;
        }
        Fault::KillAll => {
            field.cluster.kill_all().map_err(text)?;
            restart_all(field).map_err(text)?;
        }
    }
    field.limit()?;
    await_return(field, victim).map_err(text)
}

/// Starts all nodes of a system whose servers are all dead, as its operator would: Galera's most advanced node founds a new group.
pub fn restart_all(field: &mut Field) -> trireme_cluster::Result<()> {
    match field.system().kind() {
        Kind::Galera => field.cluster.revive(&mut |_| {}),
        Kind::Ours => {
            let ids = field.cluster.ids();
            for id in &ids {
                field.cluster.launch(*id, Start::Recover)?;
            }
            ids.iter().try_for_each(|id| field.cluster.wait_synced(*id, &mut |_| {}))
        }
        _ => {
            let ids = field.cluster.ids();
            for id in &ids {
                field.cluster.launch(*id, Start::Plain)?;
            }
            ids.iter().try_for_each(|id| field.cluster.wait_synced(*id, &mut |_| {}))
        }
    }
}

/// A node that was thrown out without noticing says Synced for a moment longer, so all are asked for the size of the group too.
fn await_return(field: &Field, victim: NodeId) -> trireme_cluster::Result<()> {
    field.cluster.wait_synced(victim, &mut |_| {})?;
    let wanted = field.cluster.nodes().len() as u32;
    trireme_cluster::until("all nodes are in the group again", Duration::from_secs(120), field.cluster.cancel(), || {
        let status = field.cluster.status();
        let well = status.iter().all(|node| node.is_synced() && node.members == Some(wanted));
        Ok(if well {
            Ok(())
        } else {
            Err(status.iter().map(|n| format!("{}: {}", n.node, n.state)).collect::<Vec<_>>().join(", "))
        })
    })
}
