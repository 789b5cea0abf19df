//! Providers alone, through their C interface: no server, no engine, no client protocol.

use super::{Layout, value};
use crate::field::{APPLIERS, Context};
use crate::harness::{Cluster, Load, Shape, Subject, sum};
use crate::plan::{Experiment, Point, Settings};
use crate::record::Measured;
use crate::systems::{Kind, System};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use trireme_certificates::{Authority, Files, Validity};

pub const LAYOUT: Layout = Layout {
    title: "Providers alone",
    about: "Each provider is driven through the wsrep interface by a stand-in for the server: no engine and no client protocol. `writers`: which nodes have clients; `clients`: how many on each of them. With one node there is no group communication (`dummy://`). `size`: bytes of a write set. `wire`: group traffic in clear text, protected by a secret that all nodes share, or by TLS. `key_rows`: rows that keys are drawn from; fewer rows, more conflicts. `transport`: bodies of write sets over links, or by UDP multicast. `rtt`: milliseconds of a round trip between any two nodes, made by a relay before each node that holds bytes back and limits no bandwidth; 0: no relay. Bytes sent are the provider's own count, without the headers of IP.",
    values: &[
        value("commits_per_s", "commits/s", 0),
        value("p50_us", "half within, µs", 0),
        value("p99_us", "99 % within, µs", 0),
        value("p999_us", "99.9 % within, µs", 0),
        value("cpu_us_per_commit", "processor time of all nodes per commit, µs", 1),
        value("conflict_percent", "in conflict, %", 2),
        value("applied_percent", "applied by the others in the same time, %", 1),
        value("writer_bytes_per_commit", "bytes that writing nodes send per commit", 0),
        value("sent_bytes_per_commit", "bytes that all nodes send per commit", 0),
    ],
    ratios: &[0, 1, 2, 4],
    rows: &["system", "nodes", "writers", "size", "wire", "transport", "key_rows", "rtt"],
    columns: &["clients"],
    x: Some("clients"),
    x_title: "clients on each writing node",
    figures: &["nodes", "writers", "size", "wire", "transport", "key_rows", "rtt"],
    ..Layout::TABLE
};

/// Behind a system's name: without metrics and flight recorder.
pub const UNMEASURED: &str = "-unmeasured";

/// Bytes of data in each write set.
const SIZE: usize = 200;
/// The same where it is about the bodies.
const BODY: usize = 2000;

pub fn size(settings: &Settings) -> String {
    format!("Measured for {} s.", settings.duration)
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
    let clients = settings.threads_or(settings.by_preset(
        &[4],
        settings.in_report(&[1, 32], &[1, 8, 32]),
        &[1, 2, 4, 8, 16, 32, 64],
    ));
    let variant_clients: &[u32] = settings.by_preset(&[4], &[8], &[8, 32]);
    let mut all = Vec::new();
    for labels in &groups {
        let mut cells: Vec<Cell> = Vec::new();
        for nodes in &nodes {
            let writers: &[&'static str] = match *nodes {
                1 => &["first"],
                _ => settings.in_report(&["first", "all"], &["first", "last", "all"]),
            };
            for rtt in round_trips(settings, *nodes) {
                cells.extend(writers.iter().map(|writers| Cell {
                    nodes: *nodes,
                    writers,
                    rtt,
                    ..Cell::usual(settings)
                }));
            }
        }
        // A run that was asked for distances is about them.
        if settings.rtt.is_empty() {
            cells.extend(variants(settings, &nodes));
        }
        for cell in cells {
            let clients = if cell.is_variant { settings.threads_or(variant_clients) } else { clients.clone() };
            for clients in clients {
                all.extend(labels.iter().filter(|label| cell.suits(label)).map(|label| {
                    Point::new(Experiment::Provider, label.clone(), cell.nodes)
                        .with("writers", cell.writers)
                        .with("size", cell.size)
                        .with("wire", cell.wire)
                        .with("transport", cell.transport)
                        .with("key_rows", cell.rows)
                        .with("rtt", cell.rtt)
                        .with("clients", clients)
                }));
            }
        }
    }
    all
}

/// All but the library and the clients.
#[derive(Clone, Copy, Debug)]
struct Cell {
    nodes: u8,
    writers: &'static str,
    size: usize,
    wire: &'static str,
    transport: &'static str,
    /// Rows that keys are drawn from: fewer rows, more conflicts.
    rows: u64,
    /// Milliseconds between nodes.
    rtt: f64,
    /// Beside the usual ones.
    is_variant: bool,
}

impl Cell {
    fn usual(settings: &Settings) -> Cell {
        let size = settings.sizes.first().copied().unwrap_or(SIZE);
        Cell {
            nodes: 1,
            writers: "first",
            size,
            wire: CLEAR,
            transport: LINKS,
            rows: settings.rows,
            rtt: 0.0,
            is_variant: false,
        }
    }

    /// A secret for all is ours alone. The options of a named library may protect anything: that is not known here.
    fn suits(&self, label: &str) -> bool {
        let bare = label.strip_suffix(UNMEASURED).unwrap_or(label);
        let system = <System as clap::ValueEnum>::from_str(bare, false);
        let is_ours = || system.as_ref().is_ok_and(|system| !matches!(system.kind(), Kind::Galera));
        match (self.wire, self.transport) {
            (CLEAR, LINKS) => true,
            // Galera forms no cluster by multicast.
            (SECRET, _) | (_, MULTICAST) => is_ours(),
            _ => system.is_ok(),
        }
    }
}

/// Milliseconds between the nodes of the usual cells. A node alone has no distance.
fn round_trips(settings: &Settings, nodes: u8) -> Vec<f64> {
    match (settings.rtt.is_empty(), nodes) {
        (true, _) => vec![0.0],
        (false, 1) => settings.rtt.iter().copied().filter(|rtt| *rtt == 0.0).collect(),
        (false, _) => settings.rtt.clone(),
    }
}

/// Bodies by multicast and, beside them, the same over links: one node writes, so that it is clear whose bytes they are.
fn transports(settings: &Settings, usual: &Cell) -> Vec<Cell> {
    let nodes: &[u8] = settings.by_preset(&[2], &[3], &[3, 5, 7]);
    let mut nodes = settings.nodes_or(nodes);
    nodes.retain(|nodes| *nodes > 1);
    let size = settings.sizes.first().copied().unwrap_or(BODY);
    let cell = |nodes, transport| Cell { nodes, transport, size, writers: "first", ..*usual };
    nodes.into_iter().flat_map(|nodes| [LINKS, MULTICAST].map(|transport| cell(nodes, transport))).collect()
}

/// Other sizes, what protects the wire, the transport, keys in conflict, and distance: each with all else as usual, on one number of nodes that all write.
fn variants(settings: &Settings, nodes: &[u8]) -> Vec<Cell> {
    let Some(nodes) = nodes.iter().copied().find(|nodes| *nodes == 3).or(nodes.iter().copied().find(|n| *n > 1)) else {
        return Vec::new();
    };
    let usual = Cell { nodes, writers: "all", is_variant: true, ..Cell::usual(settings) };
    let sizes = match settings.sizes.get(1..) {
        Some(further) => further.to_vec(),
        None => settings.by_preset(Vec::new(), Vec::new(), vec![2000, 20_000]),
    };
    let mut all: Vec<Cell> = sizes.into_iter().map(|size| Cell { size, ..usual }).collect();
    all.extend([SECRET, TLS].map(|wire| Cell { wire, ..usual }));
    let rows: &[u64] = settings.by_preset(&[10], &[1000, 10], &[1000, 10]);
    all.extend(transports(settings, &usual));
    all.extend(rows.iter().filter(|rows| **rows != settings.rows).map(|rows| Cell { rows: *rows, ..usual }));
    let rtts: &[f64] = settings.by_preset(&[3.0], &[], &[1.0, 10.0, 30.0]);
    all.extend(rtts.iter().map(|rtt| Cell { rtt: *rtt, ..usual }));
    all
}

/// Group traffic as it is; with a secret that all nodes share; with certificates.
const CLEAR: &str = "clear";
const SECRET: &str = "secret";
const TLS: &str = "tls";

/// How bodies of write sets get to the others.
const LINKS: &str = "links";
const MULTICAST: &str = "multicast";

/// A group of multicast that no other run has.
fn multicast() -> String {
    let [low, high, ..] = std::process::id().to_le_bytes();
    format!("gmcast.mcast_addr=239.254.{high}.{low};")
}

/// Options that protect the wire; what they name is written to `dir`.
fn protection(wire: &str, dir: &Path) -> Result<String, String> {
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", dir.display());
    match wire {
        SECRET => {
            let file = dir.join("secret");
            // As many digits as a real one has; it protects nothing but this measurement.
            std::fs::write(&file, "0123456789abcdef".repeat(4) + "\n").map_err(|e| failed(&e))?;
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).map_err(|e| failed(&e))?;
            Ok(format!("repl.secret_file={};", file.display()))
        }
        TLS => {
            let authority = Authority::new("trireme bench").map_err(|e| failed(&e))?;
            let issued = authority.issue("bench", Validity::YEARS, None).map_err(|e| failed(&e))?;
            let files = Files::below(dir);
            files.write(&issued, &authority).map_err(|e| failed(&e))?;
            Ok(format!("{};", files.options()))
        }
        _ => Ok(String::new()),
    }
}

/// The library behind a label: one that was named with --library, or a system's.
fn subject(context: &Context, label: &str) -> Result<Subject, String> {
    if let Some(found) = context.libraries.iter().find(|library| library.label == label) {
        return Ok(found.clone());
    }
    let bare = label.strip_suffix(UNMEASURED);
    let system: System = clap::ValueEnum::from_str(bare.unwrap_or(label), false)?;
    let ours = |mode: &str| (context.provider.clone(), format!("repl.durability={mode};repl.status_extended=yes;"));
    let (library, options) = match (system, system.kind()) {
        (_, Kind::Galera) => (context.galera.clone().ok_or("Galera's library is not installed")?, String::new()),
        (System::TriremeProcess, _) => ours("process"),
        _ => ours("disk"),
    };
    let more = if matches!(system.kind(), Kind::Galera) { "" } else { &context.settings.provider_options };
    let less = if bare.is_some() { "repl.metrics=no;repl.flight_size=0;" } else { "" };
    Ok(Subject { label: label.to_owned(), library, options: format!("{options}{less}{more}") })
}

pub fn run(context: &Context, point: &Point) -> Result<Measured, String> {
    let mut subject = subject(context, &point.system)?;
    let files =
        trireme_private::fresh_dir(&context.dir, "wire").map_err(|e| format!("{}: {e}", context.dir.display()))?;
    let protection = protection(point.text("wire"), &files)?;
    // Options that were asked for come last, so that they win.
    let transport = if point.text("transport") == MULTICAST { multicast() } else { String::new() };
    subject.options = format!("{protection}{transport}{}", subject.options);
    let outcome = measure(context, point, &subject);
    let _ = std::fs::remove_dir_all(&files);
    outcome
}

fn measure(context: &Context, point: &Point, subject: &Subject) -> Result<Measured, String> {
    let nodes = usize::from(point.nodes);
    let rtt_ms: f64 = point.text("rtt").parse().map_err(|_| "a point of provider without rtt")?;
    let rtt = Duration::from_secs_f64(rtt_ms / 1e3);
    let base_port = context.base_port;
    let shape = Shape { nodes, appliers: APPLIERS as usize, dummy: nodes == 1, rtt, base_port, verbose: false };
    // Before the cluster, so that it goes after it.
    let mut quotas = context.quotas()?;
    let mut cluster = Cluster::start(subject, shape)?;
    if let Some(quotas) = &mut quotas {
        let pids = cluster.pids().into_iter().map(|pid| i32::try_from(pid).unwrap_or(i32::MAX));
        pids.zip(1..).try_for_each(|(pid, number)| quotas.limit(number, pid))?;
    }
    let load = Load {
        clients: point.number("clients")? as usize,
        size: point.number("size")? as usize,
        keys: 1,
        rows: u64::from(point.number("key_rows")?),
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
    let reports = cluster.run(load, writes)?;
    let total = sum(&reports);
    let by_writers: u64 = reports.iter().enumerate().filter(|(n, _)| writes(*n)).map(|(_, r)| r.sent_bytes).sum();
    cluster.converge()?;
    cluster.check_distance()?;
    context.check_interrupted()?;
    if total.errors > 0 {
        return Err(format!("{} calls failed, one with status {}", total.errors, total.error_code));
    }
    if total.out_of_order > 0 {
        return Err(format!("{} write sets left commit order out of turn", total.out_of_order));
    }
    // No provider acknowledges a commit that only its own node knows of.
    let quickest = Duration::from_nanos(total.latency.quantile(0.0));
    if nodes > 1 && total.commits > 0 && quickest < rtt {
        return Err(format!("a commit took {quickest:?}, less than the round trip of {rtt:?}"));
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
    if total.sent_bytes > 0 {
        measured.set("writer_bytes_per_commit", by_writers as f64 / commits.max(1.0));
        measured.set("sent_bytes_per_commit", total.sent_bytes as f64 / commits.max(1.0));
    }
    if nodes > 1 {
        let expected = (commits + total.conflicts as f64) * (nodes - 1) as f64;
        measured.set("applied_percent", 100.0 * total.applied as f64 / expected.max(1.0));
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::settings;
    use std::collections::BTreeSet;

    #[test]
    fn wires_and_conflicts_are_coordinates() {
        let all = points(&settings(&["--preset", "quick", "--nodes", "3"]));
        let has = |system: &str, name: &str, value: &str| {
            all.iter().any(|point| point.system == system && point.text(name) == value)
        };
        assert!(has("trireme-disk", "wire", "secret") && has("galera-0", "wire", "tls"));
        assert!(!has("galera-0", "wire", "secret"), "it has none");
        assert!(has("trireme-disk", "transport", "multicast") && !has("galera-0", "transport", "multicast"));
        assert!(has("galera-0", "key_rows", "10") && has("trireme-process", "key_rows", "1000000"));
        // Runs with other rows do not look alike.
        let ids = |words: &[&str]| points(&settings(words)).iter().map(Point::id).collect::<Vec<_>>();
        assert_ne!(ids(&["--rows", "50", "--nodes", "1"]), ids(&["--nodes", "1"]));
    }

    #[test]
    fn distances_are_coordinates_and_a_node_alone_has_none() {
        let all = points(&settings(&["--nodes", "1,3", "--rtt", "0,0.5,30"]));
        let of = |nodes: u8| -> BTreeSet<&str> {
            all.iter().filter(|point| point.nodes == nodes).map(|point| point.text("rtt")).collect()
        };
        assert_eq!((of(1), of(3)), (BTreeSet::from(["0"]), BTreeSet::from(["0", "0.5", "30"])));
        let tiny = points(&settings(&["--preset", "tiny"]));
        assert!(tiny.iter().any(|point| point.text("rtt") == "3") && tiny.iter().any(|point| point.text("rtt") == "0"));
    }

    #[test]
    fn what_protects_the_wire_is_there() {
        let dir = trireme_private::fresh_dir(&std::env::temp_dir(), "trireme-bench-wire").unwrap();
        assert_eq!(protection(CLEAR, &dir).unwrap(), "");
        assert!(protection(SECRET, &dir).unwrap().starts_with("repl.secret_file=") && dir.join("secret").exists());
        assert!(protection(TLS, &dir).unwrap().contains("socket.ssl_cert=") && dir.join("cert.pem").exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
