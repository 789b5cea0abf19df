//! Providers alone, through their C interface: no server, no engine, no client protocol.

use super::{Layout, value};
use crate::field::{APPLIERS, Context};
use crate::harness::{Cluster, Load, Shape, Subject, sum};
use crate::plan::{Experiment, Point, Settings};
use crate::record::Measured;
use crate::systems::{Kind, System};

pub const LAYOUT: Layout = Layout {
    title: "Providers alone",
    about: "Each provider is driven through the wsrep interface by a stand-in for the server: no engine and no client protocol. `writers`: which nodes have clients; `clients`: how many on each of them. With one node there is no group communication (`dummy://`).",
    values: &[
        value("commits_per_s", "commits/s", 0),
        value("p50_us", "half within, µs", 0),
        value("p99_us", "99 % within, µs", 0),
        value("p999_us", "99.9 % within, µs", 0),
        value("cpu_us_per_commit", "processor time of all nodes per commit, µs", 1),
        value("conflict_percent", "in conflict, %", 2),
        value("applied_percent", "applied by the others in the same time, %", 1),
    ],
    ratios: &[0, 1, 2, 4],
    rows: &["system", "nodes", "writers", "size"],
    columns: &["clients"],
    x: Some("clients"),
    x_title: "clients on each writing node",
    figures: &["nodes", "writers", "size"],
    ..Layout::TABLE
};

/// Behind a system's name: without metrics and flight recorder.
pub const UNMEASURED: &str = "-unmeasured";

/// Bytes of data in each write set.
const SIZE: usize = 200;

pub fn size(settings: &Settings) -> String {
    format!(
        "Measured for {} s; keys are drawn from {} rows.",
        settings.duration,
        crate::report::number(settings.rows as f64, 0)
    )
}

pub fn points(settings: &Settings) -> Vec<Point> {
    let usual: &[System] = settings.by_preset(
        &[System::TriremeProcess, System::GaleraFast],
        &[System::TriremeDisk, System::TriremeProcess, System::GaleraFast],
        &[System::TriremeDisk, System::TriremeProcess, System::GaleraFast],
    );
    let known = [System::TriremeDisk, System::TriremeProcess, System::GaleraFast];
    // Those that are compared most closely are measured next to each other.
    let names = |system: System| {
        let name = system.name();
        let further = settings.unmeasured && !matches!(system.kind(), Kind::Galera);
        std::iter::once(name.clone()).chain(further.then(|| name + UNMEASURED)).collect::<Vec<_>>()
    };
    let mut groups: Vec<Vec<String>> = settings.systems_of(usual, &known).into_iter().map(names).collect();
    groups.extend(settings.libraries.iter().map(|label| vec![label.clone()]));
    let nodes = settings.nodes_or(settings.by_preset(&[2], &[1, 3], &[1, 2, 3, 5, 7]));
    let clients = settings.threads_or(settings.by_preset(&[4], &[1, 8, 32], &[1, 2, 4, 8, 16, 32, 64]));
    let sizes = match settings.sizes.is_empty() {
        false => settings.sizes.clone(),
        true => settings.by_preset(vec![SIZE], vec![SIZE], vec![SIZE, 2000, 20_000]),
    };
    let mut all = Vec::new();
    for labels in &groups {
        for nodes in &nodes {
            let writers: &[&str] = if *nodes == 1 { &["first"] } else { &["first", "last", "all"] };
            for writers in writers {
                for size in &sizes {
                    for clients in &clients {
                        all.extend(labels.iter().map(|label| {
                            Point::new(Experiment::Provider, label.clone(), *nodes)
                                .with("writers", writers)
                                .with("size", size)
                                .with("clients", clients)
                        }));
                    }
                }
            }
        }
    }
    all
}

/// The library behind a label: one that was named with --library, or a system's.
fn subject(context: &Context, label: &str) -> Result<Subject, String> {
    if let Some(found) = context.libraries.iter().find(|library| library.label == label) {
        return Ok(found.clone());
    }
    let bare = label.strip_suffix(UNMEASURED);
    let system: System = clap::ValueEnum::from_str(bare.unwrap_or(label), false)?;
    let (library, options) = match (system, system.kind()) {
        (_, Kind::Galera) => (context.galera.clone().ok_or("Galera's library is not installed")?, String::new()),
        (System::TriremeProcess, _) => (context.provider.clone(), "repl.durability=process;".to_owned()),
        _ => (context.provider.clone(), "repl.durability=disk;".to_owned()),
    };
    let more = if matches!(system.kind(), Kind::Galera) { "" } else { &context.settings.provider_options };
    let less = if bare.is_some() { "repl.metrics=no;repl.flight_size=0;" } else { "" };
    Ok(Subject { label: label.to_owned(), library, options: format!("{options}{less}{more}") })
}

pub fn run(context: &Context, point: &Point) -> Result<Measured, String> {
    let subject = subject(context, &point.system)?;
    let nodes = usize::from(point.nodes);
    let shape = Shape { nodes, appliers: APPLIERS as usize, dummy: nodes == 1, verbose: false };
    // Before the cluster, so that it goes after it.
    let mut quotas = context.quotas()?;
    let mut cluster = Cluster::start(&subject, shape)?;
    if let Some(quotas) = &mut quotas {
        cluster.pids().into_iter().zip(1..).try_for_each(|(pid, number)| quotas.limit(number, pid))?;
    }
    let load = Load {
        clients: point.number("clients")? as usize,
        size: point.number("size")? as usize,
        keys: 1,
        rows: context.settings.rows,
        warmup: context.warmup(),
        measure: context.duration(),
        seed: u64::from(point.repeat),
    };
    let writers = point.text("writers").to_owned();
    let writes = |node: usize| match writers.as_str() {
        "first" => node == 0,
        "last" => node + 1 == nodes,
        _ => true,
    };
    let total = sum(&cluster.run(load, writes)?);
    cluster.converge()?;
    context.check_interrupted()?;
    if total.errors > 0 {
        return Err(format!("{} calls failed, one with status {}", total.errors, total.error_code));
    }
    if total.out_of_order > 0 {
        return Err(format!("{} write sets left commit order out of turn", total.out_of_order));
    }
    let mut measured = Measured::default();
    let commits = total.commits as f64;
    measured.set("commits_per_s", commits / total.elapsed.as_secs_f64().max(1e-9));
    for (name, q) in [("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999)] {
        measured.set(name, total.latency.quantile(q) as f64 / 1e3);
    }
    measured.set("max_us", total.latency.max() as f64 / 1e3);
    measured.set("gap_ms", total.gap.as_secs_f64() * 1e3);
    measured.set("cpu_us_per_commit", total.cpu.as_secs_f64() * 1e6 / commits.max(1.0));
    measured.set("conflict_percent", 100.0 * total.conflicts as f64 / (commits + total.conflicts as f64).max(1.0));
    if nodes > 1 {
        let expected = (commits + total.conflicts as f64) * (nodes - 1) as f64;
        measured.set("applied_percent", 100.0 * total.applied as f64 / expected.max(1.0));
    }
    Ok(measured)
}
