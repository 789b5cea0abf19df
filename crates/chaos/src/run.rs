//! One run from the first server to the verdict.

use crate::client::{Clients, Door, Load, Recorded};
use crate::fault::{Fault, InForce};
use crate::gaps::{Gaps, OTHERS, Round, THREADS, THROUGH, limit};
use crate::nemesis::Nemesis;
use crate::options::{Options, Workload};
use crate::recovery::{Kind, Logs, recover, way_to_start};
use crate::report::{Recovery, Report, Tally};
use crate::stalls::longest;
use crate::through::{Front, Through};
use crate::timeline::{Span, longest_gap};
use crate::workload::{Bank, ListAppend, SCHEMA, Work};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufWriter;
use std::time::{Duration, Instant};
use trireme_cluster::Dice;
use trireme_cluster::{Cluster, ClusterGuard, Error, LogCursor, NodeId, Result, Start, until, wait_equal};
use trireme_history::{History, Isolation, Micros, Operation, Outcome, check};

/// For what a healthy cluster does in moments.
const PATIENCE: Duration = Duration::from_secs(60);
/// The load counts as running after so many commits.
const WARM: u64 = 20;
/// While time passes, between two looks at Ctrl-C.
const SLICE: Duration = Duration::from_millis(50);
/// Every read and write of a causal session waits.
const ALL_STATEMENTS: u8 = 15;

/// Starts a cluster, does what the options say, and ends it. Files are written to `options.out`.
///
/// **Errors** when the run itself cannot be done; broken promises are in the report.
pub fn run(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Report> {
    trireme_private::own_dir(&options.out).map_err(Error::NotOurs)?;
    let mut dice = Dice::new(options.seed);
    let spec = options.spec(&mut dice)?;
    say(&options.about());
    let mut field =
        Field { cluster: ClusterGuard::up(&spec, &mut |_| {})?, in_force: InForce::default(), rounds: Vec::new() };
    let outcome = field.play(options, &mut dice, say);
    for node in field.cluster.nodes() {
        // The servers' logs are wanted most when something else failed.
        let _ = std::fs::copy(node.log(), options.file(format!("{}.log", node.id)));
    }
    let report = outcome?;
    std::fs::write(options.file("report.txt"), report.text()).map_err(|error| io(&options.out, error))?;
    let json = File::create(options.file("report.json")).map_err(|error| io(&options.out, error))?;
    serde_json::to_writer_pretty(json, &report).map_err(|error| io(&options.out, error.into()))?;
    Ok(report)
}

/// The cluster, with no fault left behind when it goes.
struct Field {
    cluster: ClusterGuard,
    in_force: InForce,
    /// First the time before any fault, then one for each recovery.
    rounds: Vec<Round>,
}

impl Drop for Field {
    fn drop(&mut self) {
        // A process on a frozen disk could not even be killed.
        let _ = self.in_force.heal(&mut self.cluster);
    }
}

impl Field {
    fn play(&mut self, options: &Options, dice: &mut Dice, say: &mut dyn FnMut(&str)) -> Result<Report> {
        let kind = match (options.single, options.is_galera()) {
            (true, _) => Kind::Single,
            (false, true) => Kind::Galera,
            (false, false) if options.unit => Kind::Ours(Start::Recover),
            (false, false) => Kind::Ours(Start::Plain),
        };
        let work: Box<dyn Work> = match options.workload {
            Workload::ListAppend => Box::new(ListAppend::default()),
            // The weaker levels do not notice a lost update, and do not promise to.
            Workload::Bank => {
                Box::new(Bank::new(matches!(options.isolation, Isolation::ReadCommitted | Isolation::RepeatableRead)))
            }
        };
        self.prepare(&*work)?;
        let pace = Duration::from_secs(1).mul_f64(f64::from(options.clients) / f64::from(options.rate));
        let clients = Clients::new(work, options.isolation, options.sync_wait, pace);
        let mut logs = Logs::from_now_on(&self.cluster);
        let first_view = self.view();
        // It ends before the cluster does.
        let front = Front::start(options, &self.cluster)?;
        let doors: Vec<Door> = match &front {
            None => self.cluster.endpoints().into_iter().map(Door::Node).collect(),
            Some(front) => vec![Door::Front(front.socket().to_owned())],
        };
        let load = Load::start(clients, &doors, options.clients, dice);
        self.await_commits(&load, WARM)?;

        let from = load.clients().now();
        self.rounds.push(Round { from, back: from, hit: BTreeSet::new() });
        let mut recoveries = self.faults(options, kind, &load, &mut logs, dice, say)?;
        let to = load.clients().now();
        let serving: Vec<NodeId> = match front {
            None => self.cluster.ids().into_iter().take(options.clients as usize).collect(),
            Some(_) => self.cluster.ids(),
        };
        let (clients, mut recorded) = load.finish();
        drop(front);

        let last = recover(&mut self.cluster, &mut self.in_force, kind, &[], &mut logs, dice)?;
        if !last.ended.is_empty() || last.by_hand.is_some() {
            recoveries.push(Recovery {
                at_ms: (to.0 - from.0) / 1000,
                faults: vec!["end of the load".to_owned()],
                ..last
            });
        }
        let difference = wait_equal(&self.cluster.endpoints(), PATIENCE).err().map(|error| error.to_string());
        self.read_everything(&clients, options, &mut recorded)?;
        let views = first_view.zip(self.view()).and_then(|(first, last)| last.checked_sub(first));

        say("judging the history");
        let history = History { header: options.header(), operations: recorded.operations };
        let file = File::create(options.file("history.jsonl")).map_err(|error| io(&options.out, error))?;
        history.write(BufWriter::new(file)).map_err(|error| io(&options.out, error))?;
        let findings = check(&history);

        let count = |outcome| history.operations.iter().filter(|op| !op.last && op.outcome == outcome).count() as u64;
        let commits = commits_by_node(&history, &serving);
        let ends: Vec<Micros> = self.rounds.iter().skip(1).map(|round| round.from).chain([to]).collect();
        let rounds = || self.rounds.iter().zip(&ends);
        let gaps: Vec<Gaps> = rounds().map(|(round, end)| round.gaps(&commits, *end)).collect();
        let answers = answers_by_client(&history, options.clients);
        let of_clients: Vec<Micros> = rounds()
            .map(|(round, end)| {
                let span = Span { from: round.from, to: *end };
                answers.iter().map(|times| longest_gap(times, span)).max().unwrap_or(Micros(0))
            })
            .collect();
        let stall = |(round, end): (&Round, &Micros)| longest(&recorded.stalls, Span { from: round.from, to: *end });
        let stalls: Vec<Micros> = rounds().map(stall).collect();
        for (recovery, client) in recoveries.iter_mut().zip(&of_clients[1..]) {
            recovery.gap_client_ms = client.0 / 1000;
        }
        for (recovery, (gap, stall)) in recoveries.iter_mut().zip(gaps[1..].iter().zip(&stalls[1..])) {
            recovery.gap_ms = gap.healthy.0 / 1000;
            recovery.gap_single_ms = gap.single.0 / 1000;
            recovery.gap_overall_ms = gap.anywhere.0 / 1000;
            recovery.stall_ms = stall.0 / 1000;
        }
        let mut report = Report {
            about: options.about(),
            seconds: (to.0 - from.0) as f64 / 1e6,
            ok: count(Outcome::Ok),
            failed: count(Outcome::Failed),
            unknown: count(Outcome::Unknown),
            commits: commits.values().map(|times| times.len() as u64).sum(),
            errors: recorded.errors,
            gap_overall_ms: gaps.iter().map(|gap| gap.anywhere.0 / 1000).max().unwrap_or(0),
            gap_healthy_ms: gaps.iter().map(|gap| gap.healthy.0 / 1000).max().unwrap_or(0),
            gap_single_ms: gaps.iter().map(|gap| gap.single.0 / 1000).max().unwrap_or(0),
            gap_client_ms: of_clients.iter().map(|gap| gap.0 / 1000).max().unwrap_or(0),
            gap_quiet_ms: gaps[0].healthy.0 / 1000,
            stall_quiet_ms: stalls[0].0 / 1000,
            stall_ms: stalls.iter().map(|stall| stall.0 / 1000).max().unwrap_or(0),
            gap_quiet_limit_ms: kind.is_ours().then(|| options.gap_limit.unwrap_or(OTHERS).as_millis() as u64),
            recoveries,
            views,
            difference,
            internal_errors: internal_errors(&self.cluster),
            findings,
            broken: Vec::new(),
        };
        report.broken = broken(&report, kind, options.nemesis);
        Ok(report)
    }

    fn prepare(&self, work: &dyn Work) -> Result<()> {
        let endpoints = self.cluster.endpoints();
        let Some(first) = endpoints.first() else { return Err(Error::NotRunning(self.cluster.ids()[0])) };
        let failed = |error| Error::Sql { node: first.node, error };
        let mut session = first.session()?;
        session.query(&format!("CREATE DATABASE {SCHEMA}")).map_err(failed)?;
        work.prepare(&mut session).map_err(failed)?;
        wait_equal(&endpoints, PATIENCE).map(drop)
    }

    /// Quiet, fault, recovery, and again.
    fn faults(
        &mut self,
        options: &Options,
        kind: Kind,
        load: &Load,
        logs: &mut Logs,
        dice: &mut Dice,
        say: &mut dyn FnMut(&str),
    ) -> Result<Vec<Recovery>> {
        let all = self.cluster.ids();
        let began = Instant::now();
        let start = load.clients().now();
        let mut recoveries: Vec<Recovery> = Vec::new();
        loop {
            let left = options.duration.saturating_sub(began.elapsed());
            let enough = match options.rounds {
                Some(rounds) => recoveries.len() >= rounds as usize,
                None => left.is_zero(),
            };
            if enough {
                return Ok(recoveries);
            }
            let quiet = dice.around(options.quiet);
            if options.nemesis == Nemesis::None || (options.rounds.is_none() && left < quiet) {
                pass(left, options)?;
                return Ok(recoveries);
            }
            pass(quiet, options)?;
            // Behind a balancer all clients are on one node, and others would not notice.
            let first = load.last_node().filter(|_| options.through != Through::Direct);
            let faults = Fault::draw(options.nemesis, options.is_volatile(), &all, first, dice);
            let killed: BTreeSet<NodeId> = faults.iter().flat_map(|fault| fault.kills(&all)).collect();
            // The dead stay dead however long one looks.
            let lasts = if killed.len() == all.len() { Duration::ZERO } else { dice.around(options.fault) };
            let mut sequencers = vec![self.sequencers()];
            let struck = load.clients().now();
            let clock = Instant::now();
            let mut attempts = Vec::new();
            for (i, fault) in faults.iter().enumerate() {
                if i > 0 {
                    sequencers.push(self.sequencers());
                }
                attempts.extend(self.in_force.inject(&mut self.cluster, fault, way_to_start(kind))?);
                pass(lasts / faults.len() as u32, options)?;
            }
            let lasted = clock.elapsed();
            let killed: Vec<NodeId> = killed.into_iter().collect();
            let mut recovery = recover(&mut self.cluster, &mut self.in_force, kind, &killed, logs, dice)?;
            recovery.at_ms = (struck.0 - start.0) / 1000;
            recovery.lasted_ms = lasted.as_millis() as u64;
            recovery.faults = faults.iter().map(Fault::to_string).collect();
            recovery.attempts = attempts;
            let mut hit: BTreeSet<NodeId> = faults.iter().flat_map(|fault| fault.hit(&all)).collect();
            recovery.sequencer_hit = sequencers.iter().flatten().any(|node| hit.contains(node));
            if kind.is_ours() && recovery.by_hand.is_none() {
                let of = |each: Duration| options.gap_limit.unwrap_or(each).as_millis() as u64;
                match options.through {
                    Through::Direct => recovery.gap_limit_ms = limit(&faults, &sequencers, &all).map(of),
                    // A majority is left by what hits one node, and by what hits one after the other.
                    Through::Balance if faults.iter().all(Fault::leaves_others) => {
                        recovery.gap_client_limit_ms = Some(of(THROUGH));
                    }
                    Through::Balance | Through::Haproxy => {}
                }
            }
            if recovery.by_hand.is_some() {
                hit.extend(&all);
            }
            self.rounds.push(Round { from: struck, back: load.clients().now(), hit });
            say(&format!(
                "{:.0} s: {}; back after {:.1} s, {} commits so far",
                began.elapsed().as_secs_f64(),
                recovery.faults.join(" and "),
                recovery.synced_ms as f64 / 1e3,
                load.commits()
            ));
            recoveries.push(recovery);
        }
    }

    fn await_commits(&self, load: &Load, n: u64) -> Result<()> {
        until("the load commits", PATIENCE, self.cluster.cancel(), || {
            Ok(if load.commits() >= n { Ok(()) } else { Err(format!("{} commits", load.commits())) })
        })
    }

    /// The reads that show what is left, one per node, after everything that was acknowledged.
    fn read_everything(&self, clients: &Clients, options: &Options, recorded: &mut Recorded) -> Result<()> {
        let sync_wait = if options.single { 0 } else { ALL_STATEMENTS };
        for endpoint in self.cluster.endpoints() {
            let invoked = clients.now();
            let read =
                clients.session(endpoint.socket(), sync_wait).and_then(|mut session| clients.work().last(&mut session));
            let body = read.map_err(|error| Error::Sql { node: endpoint.node, error })?;
            recorded.operations.push(Operation {
                process: options.clients + u32::from(endpoint.node.raw()),
                node: endpoint.node.raw(),
                invoked,
                completed: Some(clients.now()),
                outcome: Outcome::Ok,
                error: None,
                last: true,
                body,
            });
        }
        Ok(())
    }

    /// The nodes that order, as far as they say so.
    fn sequencers(&self) -> Vec<NodeId> {
        let status = self.cluster.status();
        status.iter().filter(|status| status.role.as_deref() == Some("sequencer")).map(|status| status.node).collect()
    }

    fn view(&self) -> Option<u64> {
        view_of(&self.cluster)
    }
}

fn view_of(cluster: &Cluster) -> Option<u64> {
    cluster.status().iter().filter_map(|status| status.number("wsrep_cluster_conf_id")).map(|n| n as u64).max()
}

/// The provider catches a panic, says so in its server's log, and takes the node out of the group: from outside that looks like a fault
/// from which the cluster recovered.
fn tells_internal_error(line: &str) -> bool {
    ["Internal error in ", "panicked at "].iter().any(|text| line.contains(text))
}

/// Such lines of all runs of all servers.
fn internal_errors(cluster: &Cluster) -> Vec<String> {
    let mut said = BTreeSet::new();
    for node in cluster.nodes() {
        let lines = LogCursor::at_start(&node.log()).lines();
        said.extend(lines.iter().filter(|line| tells_internal_error(line)).map(|line| format!("{}: {line}", node.id)));
    }
    said.into_iter().collect()
}

/// The promises of each kind of provider.
fn broken(report: &Report, kind: Kind, nemesis: Nemesis) -> Vec<String> {
    let mut broken = Vec::new();
    for (class, tally) in report.findings.classes.iter().filter(|(_, tally)| tally.counted > 0) {
        broken.push(format!("{class} ×{}", tally.counted));
    }
    if report.difference.is_some() {
        broken.push("the nodes differ".to_owned());
    }
    broken.extend(report.internal_errors.iter().cloned());
    match report.by_hand() {
        0 => {}
        n => broken.push(format!("did not come back by itself ×{n}")),
    }
    broken.extend(report.recoveries.iter().flat_map(Recovery::broken_gaps));
    broken.extend(report.cut_short().iter().filter_map(Tally::too_few));
    if let Some(limit) =
        report.gap_quiet_limit_ms.filter(|limit| report.gap_quiet_ms > limit + THREADS * report.stall_quiet_ms)
    {
        broken.push(format!("{} ms without a commit and without a fault, of {limit}", report.gap_quiet_ms));
    }
    match report.recoveries.iter().map(|recovery| recovery.ended.len()).sum::<usize>() {
        0 => {}
        // Its copy failed.
        _ if nemesis.takes_copies() => {}
        n => broken.push(format!("a server ended by itself ×{n}")),
    }
    // The log covers everything that such a run writes. Galera's cache does not outlive a crash, nor does it claim to.
    if kind.is_ours() && report.copies() > 0 && !nemesis.takes_copies() {
        broken.push(format!("a full copy where the log was enough ×{}", report.copies()));
    }
    broken
}

/// The times of the commits that each of these nodes' clients were told of, sorted.
fn commits_by_node(history: &History, nodes: &[NodeId]) -> BTreeMap<NodeId, Vec<Micros>> {
    let mut commits: BTreeMap<NodeId, Vec<Micros>> = nodes.iter().map(|node| (*node, Vec::new())).collect();
    for operation in &history.operations {
        if let (Outcome::Ok, Some(completed), true) = (operation.outcome, operation.completed, operation.writes())
            && let Some(times) = NodeId::new(operation.node).and_then(|node| commits.get_mut(&node))
        {
            times.push(completed);
        }
    }
    for times in commits.values_mut() {
        times.sort_unstable();
    }
    commits
}

/// The times at which each client had an answer, sorted; refusals are none.
fn answers_by_client(history: &History, clients: u32) -> Vec<Vec<Micros>> {
    let mut answers = vec![Vec::new(); clients as usize];
    for operation in history.operations.iter().filter(|op| !op.last && op.outcome == Outcome::Ok) {
        if let (Some(times), Some(completed)) = (answers.get_mut(operation.process as usize), operation.completed) {
            times.push(completed);
        }
    }
    for times in &mut answers {
        times.sort_unstable();
    }
    answers
}

/// Lets time pass, which is what a fault is made of.
fn pass(time: Duration, options: &Options) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        if options.cancel.is_set() {
            return Err(Error::Interrupted);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(SLICE));
    }
}

fn io(path: &std::path::Path, error: std::io::Error) -> Error {
    Error::Io { what: format!("cannot write to {}", path.display()), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_the_provider_breaks_a_run_however_well_the_cluster_recovered() {
        let invariant = "2026-11-25 10:00:00 0 [ERROR] WSREP: Internal error in thread trireme-group: committed beyond the log. This node \
                         leaves the group; restart the server.";
        let entry = "2026-11-25 10:00:00 9 [ERROR] WSREP: Internal error in certify: seqno 7 is gone. This node is out of service until \
                     the server is restarted.";
        let caught = "thread 'trireme-group' panicked at crates/order/src/invariants.rs:36:9:";
        assert!([invariant, entry, caught].iter().all(|line| tells_internal_error(line)));
        assert!(!tells_internal_error("2026-11-25 10:00:00 0 [ERROR] WSREP: the log's disk does not answer"));

        let well = Report::uneventful();
        assert_eq!(broken(&well, Kind::Ours(Start::Plain), Nemesis::KillAll), Vec::<String>::new());
        let report = Report { internal_errors: vec![format!("node2: {invariant}")], ..well };
        assert_eq!(broken(&report, Kind::Ours(Start::Plain), Nemesis::KillAll), report.internal_errors);
    }
}
