//! `trireme chaos`: a run, a table of runs, or the verdict on an old history.

use crate::args::{ChaosAction, ChaosRun};
use crate::resolve::provider;
use crate::run::{Outcome, print_json, print_line, say};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use trireme_chaos::{Nemesis, Options, Report, Through, describe};
use trireme_cluster::{Cancel, Error, Result, Settings, enter_user_namespace, namespaces_available};
use trireme_history::{History, check};

/// A caller who may not cut networks gets one of its own, where that is possible.
pub fn enter_namespace(action: Option<&ChaosAction>, asked: &ChaosRun) -> Result<()> {
    let needed = match action {
        None => asked.nemesis.needs_network(),
        Some(ChaosAction::Matrix { only, .. }) => only.is_empty() || only.iter().any(|nemesis| nemesis.needs_network()),
        Some(ChaosAction::Compare { only, .. }) => faults(only).iter().any(|nemesis| nemesis.needs_network()),
        Some(ChaosAction::Check { .. }) => false,
    };
    if needed && namespaces_available().is_err() { enter_user_namespace() } else { Ok(()) }
}

pub fn run(action: Option<ChaosAction>, asked: ChaosRun, cancel: Cancel) -> Result<Outcome> {
    match action {
        None => one(&asked, cancel),
        Some(ChaosAction::Check { file, json }) => judge(&file, json),
        Some(ChaosAction::Matrix { only, run }) => matrix(&only, &run, &cancel),
        Some(ChaosAction::Compare { only, run }) => compare(&only, &run, &cancel),
    }
}

fn one(asked: &ChaosRun, cancel: Cancel) -> Result<Outcome> {
    let options = resolve(asked, cancel)?;
    let report = trireme_chaos::run(&options, &mut say)?;
    if asked.json {
        print_json(&as_json(&report)?);
    } else {
        print_line(report.text().trim_end());
        print_line(&format!("files        {}", options.out.display()));
    }
    Ok(outcome(report.broken.is_empty()))
}

fn judge(file: &Path, json: bool) -> Result<Outcome> {
    let open =
        File::open(file).map_err(|error| Error::Io { what: format!("cannot read {}", file.display()), error })?;
    let history = History::read(BufReader::new(open))
        .map_err(|error| Error::BadState { path: file.to_owned(), why: error.to_string() })?;
    let findings = check(&history);
    if json {
        print_json(&as_json(&findings)?);
    } else {
        print_line(&history.header.about);
        print_line(&format!("operations   {}", history.operations.len()));
        print_line(describe(&findings).trim_end());
    }
    Ok(outcome(findings.counted() == 0))
}

/// Both providers, nemesis by nemesis, so that all the rest that the machine does meets both; ours with either place of settings.
fn matrix(only: &[Nemesis], asked: &ChaosRun, cancel: &Cancel) -> Result<Outcome> {
    let nemeses = if only.is_empty() { &Nemesis::ALL[..] } else { only };
    let mut rows = vec![
        "| nemesis | provider | settings | commits | longest gap: nodes not hit / anywhere | back after, at most | catch-ups / full copies | \
         by hand | unknown answers | anomalies that count |"
            .to_owned(),
        "|---|---|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    let mut well = true;
    let base = resolve(asked, cancel.clone())?;
    // Galera's operators tell a dead server its position, wherever its settings are.
    let places = base.settings.map_or(Settings::UNIFORM.to_vec(), |settings| vec![settings]);
    let ours = places.iter().map(|settings| (false, *settings));
    let runs: Vec<(bool, Settings)> = ours.chain([(true, places[0])]).collect();
    for nemesis in nemeses {
        for &(galera, settings) in &runs {
            let mut options = base.clone();
            options.nemesis = *nemesis;
            options.settings = Some(settings);
            if galera {
                options.provider = provider(Some(PathBuf::from("galera")))?;
                options.durability = None;
            }
            let name = options.provider_name();
            options.out = base.out.join(format!("{nemesis}-{}-{settings}", name.to_lowercase()));
            match trireme_chaos::run(&options, &mut say) {
                Ok(report) => {
                    well &= galera || report.broken.is_empty();
                    rows.push(row(*nemesis, name, settings, &report));
                }
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => {
                    well &= galera;
                    rows.push(format!("| {nemesis} | {name} | {settings} | run failed: {error} | | | | | | |"));
                }
            }
            if let Some(row) = rows.last() {
                say(row);
            }
        }
    }
    for row in rows {
        print_line(&row);
    }
    Ok(outcome(well))
}

/// The faults that a balancer is there for.
const BALANCED: [Nemesis; 5] =
    [Nemesis::KillOne, Nemesis::Pause, Nemesis::PartitionWhole, Nemesis::Donor, Nemesis::RollingRestart];

fn faults(only: &[Nemesis]) -> &[Nemesis] {
    if only.is_empty() { &BALANCED } else { only }
}

/// The same faults on clients that go straight, through our balancer and through HAProxy.
fn compare(only: &[Nemesis], asked: &ChaosRun, cancel: &Cancel) -> Result<Outcome> {
    let mut rows = vec![
        "| fault | clients | operations | longest gap: one client / nobody served | errors by kind | unknown answers | \
         anomalies that count |"
            .to_owned(),
        "|---|---|---|---|---|---|---|".to_owned(),
    ];
    let mut well = true;
    let base = resolve(asked, cancel.clone())?;
    for nemesis in faults(only) {
        for through in Through::ALL {
            let mut options = base.clone();
            (options.nemesis, options.through) = (*nemesis, through);
            options.out = base.out.join(format!("{nemesis}-{through}"));
            rows.push(match trireme_chaos::run(&options, &mut say) {
                Ok(report) => {
                    well &= report.broken.is_empty();
                    compared(*nemesis, through, &report)
                }
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => {
                    // Without HAProxy the others are still compared.
                    well &= through == Through::Haproxy;
                    format!("| {nemesis} | {through} | run failed: {error} | | | | |")
                }
            });
            if let Some(row) = rows.last() {
                say(row);
            }
        }
    }
    for row in rows {
        print_line(&row);
    }
    Ok(outcome(well))
}

fn compared(nemesis: Nemesis, through: Through, report: &Report) -> String {
    let seconds = |ms: u64| format!("{:.2} s", ms as f64 / 1e3);
    let errors: Vec<String> = report.errors.iter().map(|(error, n)| format!("{error} ×{n}")).collect();
    format!(
        "| {nemesis} | {through} | {} | {} / {} | {} | {:.2} % | {} |",
        report.ok,
        seconds(report.gap_client_ms),
        seconds(report.gap_overall_ms),
        if errors.is_empty() { "none".to_owned() } else { errors.join(", ") },
        100.0 * report.unknown_share(),
        anomalies(report),
    )
}

fn anomalies(report: &Report) -> String {
    let counted = report.findings.classes.iter().filter(|(_, tally)| tally.counted > 0);
    let anomalies: Vec<String> = counted.map(|(class, tally)| format!("{class} {}", tally.counted)).collect();
    if anomalies.is_empty() { "none".to_owned() } else { anomalies.join(", ") }
}

fn row(nemesis: Nemesis, name: &str, settings: Settings, report: &Report) -> String {
    let seconds = |ms: u64| format!("{:.2} s", ms as f64 / 1e3);
    format!(
        "| {nemesis} | {name} | {settings} | {} | {} / {} | {} | {} / {} | {} | {:.2} % | {} |",
        report.commits,
        seconds(report.gap_healthy_ms),
        seconds(report.gap_overall_ms),
        report.synced_max_ms().map_or("–".to_owned(), seconds),
        report.catch_ups(),
        report.copies(),
        report.by_hand(),
        100.0 * report.unknown_share(),
        anomalies(report),
    )
}

fn resolve(asked: &ChaosRun, cancel: Cancel) -> Result<Options> {
    let absolute = |path: PathBuf| {
        std::path::absolute(path).map_err(|error| Error::Io { what: "cannot resolve a directory".to_owned(), error })
    };
    let dir = match &asked.dir {
        Some(dir) => absolute(dir.clone())?,
        None => PathBuf::from(format!("/var/tmp/trireme-chaos-{}", asked.base_port)),
    };
    let out = match &asked.out {
        Some(out) => absolute(out.clone())?,
        None => PathBuf::from(format!("{}-report", dir.display())),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs());
    Ok(Options {
        provider: match (asked.single, asked.galera) {
            (true, _) => PathBuf::new(),
            (false, true) => provider(Some(PathBuf::from("galera")))?,
            (false, false) => provider(asked.provider.clone())?,
        },
        nodes: asked.nodes,
        single: asked.single,
        workload: asked.workload,
        nemesis: asked.nemesis,
        through: asked.through,
        balancer: std::env::current_exe().ok(),
        clients: asked.clients,
        rate: asked.rate,
        duration: Duration::from_secs(asked.duration),
        rounds: asked.rounds,
        quiet: Duration::from_secs_f64(asked.quiet),
        fault: Duration::from_secs_f64(asked.fault),
        seed: asked.seed.unwrap_or(now),
        isolation: asked.isolation,
        sync_wait: asked.sync_wait,
        flush: asked.flush,
        settings: asked.settings,
        unit: asked.unit,
        durability: asked.durability,
        gap_limit: asked.gap_limit.map(Duration::from_secs_f64),
        server_options: asked.options.option.clone(),
        provider_options: asked.provider_options.clone(),
        dir,
        base_port: asked.base_port,
        out,
        cancel,
    })
}

fn as_json(value: &impl serde::Serialize) -> Result<serde_json::Value> {
    serde_json::to_value(value).map_err(|error| Error::BadSpec(format!("the report is no JSON: {error}")))
}

fn outcome(well: bool) -> Outcome {
    if well { Outcome::Done } else { Outcome::Degraded }
}
