//! Measures a plan point by point: says how far it is, keeps what is done, and goes on after what breaks.

use crate::environment::Environment;
use crate::experiments;
use crate::field::{Context, Field};
use crate::plan::{Deployment, Experiment, Point, Servers, Settings};
use crate::record::{Measured, Outcome, Record, read_all, read_json, write_json};
use crate::systems::have;
use crate::usage::Machine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The things that tell one run from another; in `plan.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub experiments: Vec<Experiment>,
    pub settings: Settings,
    pub provider: String,
    pub galera: Option<String>,
    /// The libraries and the server, each with the hash of its file: a result of another build is another result.
    #[serde(default)]
    pub builds: BTreeMap<String, String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    pub measured: usize,
    pub failed: usize,
    pub skipped: usize,
    pub interrupted: bool,
}

/// Makes the directory, or takes that of the same plan.
pub fn open(dir: &Path, plan: &Plan) -> Result<(), String> {
    let file = dir.join("plan.json");
    if file.exists() {
        let old: Plan = read_json(&file)?;
        let rebuilt = |(file, hash): (&String, &String)| {
            plan.builds.get(file).is_some_and(|now| now != hash).then(|| file.clone())
        };
        if let Some(file) = old.builds.iter().find_map(rebuilt) {
            return Err(format!(
                "{file} is another build than the one that {} holds results of: choose another --out, or install that build again",
                dir.display()
            ));
        }
        if old != *plan {
            return Err(format!(
                "{} holds a run with other settings: choose another --out, or repeat its command to go on with it ({} has it)",
                dir.display(),
                dir.join("environment.json").display()
            ));
        }
        return Ok(());
    }
    std::fs::create_dir_all(dir.join("points"))
        .map_err(|e| format!("cannot create {}: {e}", dir.join("points").display()))?;
    write_json(&file, plan)
}

/// Seconds for all that is left, by the plan.
pub fn seconds(points: &[Point], settings: &Settings) -> f64 {
    let mut last = None;
    let mut sum = 0.0;
    for point in points {
        let servers = experiments::servers(point, settings);
        sum += experiments::seconds(point, settings)
            + if last.as_ref() == Some(&servers) { 0.0 } else { start_seconds(&servers) };
        last = Some(servers);
    }
    sum
}

fn start_seconds(servers: &Servers) -> f64 {
    match servers {
        Servers::None => 2.0,
        Servers::Shared(deployment) | Servers::Own(deployment) => 1.0 + 2.0 * f64::from(deployment.nodes),
    }
}

/// Why a point cannot be measured on this machine.
fn missing(context: &Context, point: &Point) -> Option<String> {
    for (tool, package) in experiments::tools(point.experiment) {
        if !have(tool) {
            return Some(format!("{tool} is not installed: apt-get install {package}"));
        }
    }
    point.system().ok().and_then(|system| system.missing(context))
}

pub fn run(
    context: &Context,
    points: &[Point],
    environment: &Environment,
    say: &mut dyn FnMut(&str),
) -> Result<Ended, String> {
    let environment_file = context.out.join("environment.json");
    match read_json::<Environment>(&environment_file) {
        Ok(mut first) => {
            first.continued.push(environment.began.clone());
            write_json(&environment_file, &first)?;
        }
        Err(_) => write_json(&environment_file, environment)?,
    }
    let done: Vec<Record> = read_all(&context.out)?.into_iter().filter(Record::is_done).collect();
    let left: Vec<&Point> = points.iter().filter(|point| !done.iter().any(|record| record.point == **point)).collect();
    if left.len() < points.len() {
        say(&format!("{} of {} points are there already", points.len() - left.len(), points.len()));
    }
    let mut ended = Ended::default();
    let mut field: Option<Field> = None;
    let began = Instant::now();
    let owned: Vec<Point> = left.iter().map(|point| (*point).clone()).collect();
    let planned = seconds(&owned, &context.settings);
    for (at, point) in owned.iter().enumerate() {
        if context.cancel.is_set() {
            break;
        }
        let rest = seconds(&owned[at..], &context.settings);
        // As fast as it has been so far, once some of it is done.
        let pace = if at >= 3 { began.elapsed().as_secs_f64() / (planned - rest).max(1.0) } else { 1.0 };
        let (gone, coming) = (began.elapsed(), Duration::from_secs_f64(rest * pace.clamp(0.2, 10.0)));
        say(&format!(
            "[{}/{}] {point} ({} gone, about {} left)",
            points.len() - owned.len() + at + 1,
            points.len(),
            minutes(gone),
            minutes(coming)
        ));
        let record = one(context, point, &mut field);
        if context.cancel.is_set() {
            break; // what was cut short is no result
        }
        say(&format!("    {}", summary(&record)));
        match record.outcome {
            Outcome::Measured => ended.measured += 1,
            Outcome::Failed(_) => ended.failed += 1,
            Outcome::Skipped(_) => ended.skipped += 1,
        }
        record.write(&context.out)?;
    }
    ended.interrupted = context.cancel.is_set();
    Ok(ended)
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 100 { format!("{seconds} s") } else { format!("{} min", (seconds + 30) / 60) }
}

/// One point, whatever happens.
fn one(context: &Context, point: &Point, field: &mut Option<Field>) -> Record {
    let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let clock = Instant::now();
    let mut others = None;
    let outcome = match missing(context, point) {
        Some(reason) => Err(Outcome::Skipped(reason)),
        None => measure(context, point, field, &mut others).map_err(Outcome::Failed),
    };
    if outcome.is_err() {
        // Servers on which something went wrong are not used again.
        *field = None;
    }
    let (outcome, measured) = match outcome {
        Ok(measured) => (Outcome::Measured, measured),
        Err(outcome) => (outcome, Measured::default()),
    };
    Record {
        point: point.clone(),
        outcome,
        began,
        took: clock.elapsed().as_secs_f64(),
        others_percent: others,
        measured,
    }
}

fn measure(
    context: &Context,
    point: &Point,
    field: &mut Option<Field>,
    others: &mut Option<f64>,
) -> Result<Measured, String> {
    match experiments::servers(point, &context.settings) {
        Servers::None => {
            *field = None;
            run_beside_others(context, point, None, others)
        }
        Servers::Own(deployment) => {
            *field = None;
            let mut own = start(context, &deployment)?;
            let outcome = run_beside_others(context, point, Some(&mut own), others);
            outcome.map_err(|error| with_log(&own, error))
        }
        Servers::Shared(deployment) => {
            if field.as_ref().is_none_or(|field| field.deployment != deployment) {
                // First the old ones end, as they have the ports.
                *field = None;
                *field = Some(start(context, &deployment)?);
            }
            let Some(field) = field else { return Err("no servers".to_owned()) };
            let outcome = run_beside_others(context, point, Some(field), others);
            outcome.map_err(|error| with_log(field, error))
        }
    }
}

/// Measures, and notes how much others worked meanwhile.
fn run_beside_others(
    context: &Context,
    point: &Point,
    field: Option<&mut Field>,
    others: &mut Option<f64>,
) -> Result<Measured, String> {
    let before = Machine::now();
    let outcome = experiments::run(context, point, field);
    *others = Some(Machine::now().others_percent_since(&before));
    outcome
}

fn start(context: &Context, deployment: &Deployment) -> Result<Field, String> {
    crate::room(&context.dir, deployment.nodes, &context.settings)?;
    context.start(deployment)
}

/// A server that died says why in its log.
fn with_log(field: &Field, error: String) -> String {
    let dead = field
        .cluster
        .ids()
        .into_iter()
        .find(|id| matches!(field.cluster.liveness(*id), Ok(trireme_cluster::Liveness::Gone)));
    match dead.and_then(|id| Some((id, field.cluster.cause_of_end(id).ok()?))) {
        Some((id, cause)) => format!("{error}; {id} is dead: {cause}"),
        None => error,
    }
}

fn summary(record: &Record) -> String {
    match &record.outcome {
        Outcome::Failed(reason) => format!("FAILED: {reason}"),
        Outcome::Skipped(reason) => format!("left out: {reason}"),
        Outcome::Measured => {
            let layout = experiments::layout(record.point.experiment);
            let shown = layout.values.iter().filter_map(|value| {
                record
                    .value(value.name)
                    .map(|number| format!("{} {}", crate::report::number(number, value.decimals), value.title))
            });
            shown.take(4).collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_on_with_the_same_builds_only() {
        let dir = trireme_private::fresh_dir(&std::env::temp_dir(), "trireme-bench-open").unwrap();
        let plan = |hash: &str, experiments: &[Experiment]| Plan {
            experiments: experiments.to_vec(),
            settings: crate::plan::tests::settings(&[]),
            provider: "lib.so".to_owned(),
            galera: None,
            builds: BTreeMap::from([("lib.so".to_owned(), hash.to_owned())]),
        };
        open(&dir, &plan("one", &[Experiment::Ratio])).unwrap();
        open(&dir, &plan("one", &[Experiment::Ratio])).unwrap();
        let refused = open(&dir, &plan("other", &[Experiment::Ratio])).unwrap_err();
        assert!(refused.contains("lib.so is another build"), "{refused}");
        assert!(open(&dir, &plan("one", &[Experiment::Oltp])).unwrap_err().contains("other settings"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
