//! `trireme bench`: the experiments by which systems of this kind are judged, on real servers, beside every rival, in one run.
//!
//! Arguments ([`args`]) become a list of points (`plan.rs`); `runner.rs` measures them one after another on servers that
//! `field.rs` starts, and writes a file for each; `report` makes tables and graphs of the files. `experiments/` says what
//! each experiment is. Load comes from `clients.rs` (our own sessions), `sysbench.rs` and `mariadb-slap` (`tool.rs`).
//! `harness` drives any provider through its C interface.
//!
//! **Invariant:** a number in a report comes from a file of a point, and nothing is measured anywhere else.

pub mod args;
mod build;
mod clients;
mod disks;
mod environment;
mod experiments;
mod field;
mod harness;
mod hist;
mod mysql;
mod plan;
mod probe;
mod quota;
mod record;
mod report;
mod runner;
mod survivors;
mod sysbench;
mod systems;
mod tool;
mod usage;

pub use args::Bench;
use args::{Command, Disks, Measure};
use environment::Environment;
use field::Context;
use plan::{Experiment, Settings};
pub use report::OTHERS_MOST;
use runner::Plan;
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use systems::{Kind, System};
use trireme_cluster::Cancel;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// A point failed; the rest is there.
    Broken,
    Interrupted,
}

/// MiB of a node's directory, beside its redo log and its write-set log (128 MiB).
const NODE_MIB: u64 = 400;
/// Ports of all nodes of the largest cluster, and of what stands before them.
const PORTS: u16 = 200;

/// Does what was asked. `say`: lines for people while it runs. `print`: what was asked for.
///
/// **Errors** in a sentence for people, before anything was measured.
pub fn run(
    bench: &Bench,
    provider: impl FnOnce(Option<PathBuf>) -> Result<PathBuf, String>,
    cancel: Cancel,
    say: &mut dyn FnMut(&str),
    print: &mut dyn FnMut(&str),
) -> Result<Outcome, String> {
    match &bench.command {
        Command::Node(node) => {
            harness::serve(node);
            return Ok(Outcome::Done);
        }
        Command::Disks(asked) => return disks::check::run(asked, print).map(|()| Outcome::Done),
        Command::Stages(stages) => return harness::dissect(stages).map(|()| Outcome::Done),
        Command::Report { dirs, to } => return report(dirs, to.as_deref(), print),
        _ => {}
    }
    let Some((experiments, asked)) = bench.command.experiments() else { return Ok(Outcome::Done) };
    let settings = Settings::of(asked);
    let points = plan::points(&experiments, &settings);
    check_choice(&experiments, &points, asked)?;
    let seconds = runner::seconds(&points, &settings);
    if asked.plan {
        for point in &points {
            print(&point.to_string());
        }
        print(&format!("{} points, about {} minutes", points.len(), (seconds / 60.0).ceil()));
        return Ok(Outcome::Done);
    }
    let provider = provider(asked.provider.clone())?;
    let mut context = context(asked, settings, provider, cancel)?;
    if asked.systems.iter().any(|system| system.kind() == Kind::Mysql) {
        context.mysql = mysql::make(&mysql_root(asked), &context.cancel, say);
        context.check_interrupted()?;
    }
    check_tools(&experiments, asked, &context)?;
    check_machine(&context, &points)?;
    if context.settings.disks == Disks::Separate {
        let separate = disks::Separate::new(&context.dir, context.settings.disk_model);
        context.disks = Some(separate.map_err(|error| format!("--disks separate cannot be had here: {error}"))?);
    }
    // Written to first: a run whose results cannot be kept is not begun.
    let mut files = vec![context.provider.clone()];
    files.extend(context.galera.clone());
    files.extend(context.libraries.iter().map(|subject| subject.library.clone()));
    files.extend(systems::path_of("mariadbd"));
    let plan = Plan {
        experiments,
        builds: build::of(&files)?,
        settings: context.settings.clone(),
        provider: context.provider.display().to_string(),
        galera: context.galera.as_ref().map(|path| path.display().to_string()),
    };
    runner::open(&context.out, &plan)?;
    say(&format!(
        "{} points, about {} minutes; results go to {}",
        points.len(),
        (seconds / 60.0).ceil(),
        context.out.display()
    ));
    let systems: Vec<System> = points.iter().filter_map(|point| point.system().ok()).collect();
    let command_line: Vec<OsString> = std::env::args_os().collect();
    let command_line = command_line.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let environment = Environment::of(&context, &systems, command_line, &plan.builds);
    let ended = runner::run(&context, &points, &environment, say)?;
    // Unmounted before the directory goes.
    drop(context.disks.take());
    let _ = std::fs::remove_dir_all(&context.dir);
    report::write(&context.out)?;
    say(&format!(
        "{} measured, {} failed, {} left out; the report is {}",
        ended.measured,
        ended.failed,
        ended.skipped,
        context.out.join("report.md").display()
    ));
    if ended.interrupted {
        say("interrupted: the same command with the same --out goes on");
        return Ok(Outcome::Interrupted);
    }
    Ok(if ended.failed > 0 { Outcome::Broken } else { Outcome::Done })
}

fn report(dirs: &[PathBuf], to: Option<&Path>, print: &mut dyn FnMut(&str)) -> Result<Outcome, String> {
    if let [dir] = dirs {
        if to.is_some() {
            return Err("--to is for the comparison of several runs; a run's report stays in its directory".to_owned());
        }
        report::write(dir)?;
        print(&dir.join("report.md").display().to_string());
        return Ok(Outcome::Done);
    }
    let text = report::compare(dirs)?;
    match to {
        None => print(text.trim_end()),
        Some(file) => record::write_text(file, &text)?,
    }
    Ok(Outcome::Done)
}

fn mysql_root(asked: &Measure) -> PathBuf {
    asked.mysql_root.clone().unwrap_or_else(|| PathBuf::from(mysql::DEFAULT_ROOT))
}

fn context(asked: &Measure, settings: Settings, provider: PathBuf, cancel: Cancel) -> Result<Context, String> {
    let absolute = |path: &Path| std::path::absolute(path).map_err(|e| format!("{}: {e}", path.display()));
    let out = match &asked.out {
        Some(out) => out.clone(),
        None => PathBuf::from(format!(
            "trireme-bench-{}",
            environment::now_utc().replace([' ', ':'], "-").trim_end_matches("-UTC")
        )),
    };
    let dir = match &asked.dir {
        Some(dir) => absolute(dir)?,
        None => PathBuf::from(format!("/var/tmp/trireme-bench-{}", asked.base_port)),
    };
    if let Some(galera) = asked.galera.as_ref().filter(|path| !path.is_file()) {
        return Err(format!("--galera {}: there is no such file", galera.display()));
    }
    let mut libraries = asked.library.clone();
    for library in &mut libraries {
        if !library.library.is_file() {
            return Err(format!("--library {}: there is no such file", library.library.display()));
        }
        // A name without a slash would be looked for among the system's libraries.
        library.library = absolute(&library.library)?;
    }
    if !provider.is_file() {
        return Err(format!(
            "the provider {} is not there: build it with `cargo build --release -p trireme-provider`, or name another with --provider",
            provider.display()
        ));
    }
    Ok(Context {
        settings,
        out: absolute(&out)?,
        dir,
        base_port: asked.base_port,
        provider: absolute(&provider)?,
        galera: systems::galera(asked.galera.as_ref()),
        libraries,
        mysql: mysql::tree(&mysql_root(asked)),
        disks: None,
        cancel,
    })
}

/// An option that changes nothing in any of these experiments is a mistake of whoever gave it.
fn check_options(experiments: &[Experiment], asked: &Measure) -> Result<(), String> {
    use Experiment as E;
    let options: [(&str, bool, &[Experiment]); 8] = [
        ("--threads", !asked.threads.is_empty(), &[E::Oltp, E::Durability, E::Peers, E::Provider]),
        ("--scale", asked.scale.is_some(), &[E::Insert, E::Oltp, E::Tpcc, E::Durability]),
        ("--write-sets", !asked.write_sets.is_empty(), &[E::Ratio]),
        ("--library", !asked.library.is_empty(), &[E::Provider]),
        ("--unmeasured", asked.unmeasured, &[E::Provider]),
        ("--rtt", !asked.rtt.is_empty(), &[E::Provider]),
        ("--sizes", !asked.sizes.is_empty(), &[E::Provider]),
        ("--rows", asked.rows != args::ROWS, &[E::Provider]),
    ];
    for (option, is_given, known) in options {
        if is_given && !experiments.iter().any(|experiment| known.contains(experiment)) {
            let names: Vec<&str> = experiments.iter().map(|e| e.name()).collect();
            return Err(format!("{option} changes nothing in {}", names.join(", ")));
        }
    }
    Ok(())
}

/// Every system that was named must be known to an experiment.
fn check_choice(experiments: &[Experiment], points: &[plan::Point], asked: &Measure) -> Result<(), String> {
    check_options(experiments, asked)?;
    let names: Vec<&str> = experiments.iter().map(|e| e.name()).collect();
    if points.is_empty() {
        return Err(format!("nothing to measure: {} cannot be had with these --systems", names.join(", ")));
    }
    for system in &asked.systems {
        if !points.iter().any(|point| point.system == system.name()) {
            return Err(format!("{} does not measure {}", names.join(", "), system.name()));
        }
    }
    Ok(())
}

/// A tool that one named experiment needs, and a system that was named, must be there; in `all` and by default they are left out with a reason.
fn check_tools(experiments: &[Experiment], asked: &Measure, context: &Context) -> Result<(), String> {
    if let [one] = experiments {
        for (tool, package) in experiments::tools(*one) {
            if !systems::have(tool) {
                return Err(format!("{one} needs {tool}, which is not installed: apt-get install {package}"));
            }
        }
    }
    // Making the tree of MySQL's was tried; where it failed, its systems are left out with the reason.
    let named = asked.systems.iter().filter(|system| system.kind() != Kind::Mysql || asked.systems.len() == 1);
    match named.into_iter().find_map(|system| Some((system, system.missing(context)?))) {
        Some((system, reason)) => Err(format!("--systems {}: {reason}", system.name())),
        None => Ok(()),
    }
}

/// Rights, ports and room, before the first server starts.
fn check_machine(context: &Context, points: &[plan::Point]) -> Result<(), String> {
    let of_servers =
        |point: &&plan::Point| !matches!(experiments::servers(point, &context.settings), plan::Servers::None);
    let nodes = points.iter().filter(of_servers).map(|point| point.nodes).max().unwrap_or(0);
    if nodes > 0 && !systems::have("mariadbd") {
        return Err("mariadbd is not installed: apt-get install mariadb-server".to_owned());
    }
    if let Some(cores) = context.settings.cpu_per_node {
        quota::Quotas::new(cores)?;
    }
    if context.settings.disks == Disks::Separate {
        disks::available().map_err(|error| format!("--disks separate cannot be had here: {error}"))?;
    } else if asked_model(&context.settings) {
        return Err("--disk-sync and --disk-per-mib are of --disks separate: add it".to_owned());
    }
    let first = context.base_port;
    let last = first.checked_add(PORTS).filter(|_| first >= 1024);
    let last = last.ok_or_else(|| {
        format!("--base-port {first}: {PORTS} ports from it on are needed, all between 1024 and 65535")
    })?;
    // A run that was killed leaves servers; they are ours, and go.
    trireme_cluster::Cluster::remove_leftover(&context.dir.join("servers")).map_err(|error| error.to_string())?;
    if let Some(taken) = (first..last).find(|port| {
        let free = |address: &str| {
            TcpListener::bind((address, *port)).map_or_else(|e| e.kind() != std::io::ErrorKind::AddrInUse, |_| true)
        };
        !free("127.0.0.1")
    }) {
        return Err(format!(
            "port {taken} is in use: choose another --base-port ({PORTS} ports from it on are needed)"
        ));
    }
    // Servers are started by an account of their own, which has to get through.
    trireme_private::own_dir(&context.dir)?;
    room(&context.dir, nodes, &context.settings)?;
    let others = points
        .iter()
        .any(|point| point.system().is_ok_and(|system| matches!(system.kind(), Kind::Postgres | Kind::Mysql)));
    if nodes > 0 || others {
        open_for_servers(&context.dir)?;
    }
    Ok(())
}

fn asked_model(settings: &Settings) -> bool {
    settings.disk_model != disks::Asked::default()
}

/// Others may pass through, and see nothing.
fn open_for_servers(dir: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o711)).map_err(|e| format!("{}: {e}", dir.display()))
}

/// Whether servers find room on the disk.
fn room(dir: &Path, nodes: u8, settings: &Settings) -> Result<(), String> {
    let log = settings.by_preset(32, 128, 512);
    let data = (settings.scale * 10.0 * 2000.0) as u64;
    let needed = u64::from(nodes.max(1)) * (NODE_MIB + log + data);
    if settings.disks == Disks::Separate {
        // An image takes what was written to it.
        let memory = memory_mib();
        if memory < needed {
            return Err(format!(
                "the modelled disks of {nodes} nodes need about {needed} MiB of memory, and {memory} are available: choose a smaller --scale, or --disks shared"
            ));
        }
        return Ok(());
    }
    let free = free_mib(dir)?;
    if free < needed {
        return Err(format!(
            "{} has {free} MiB free, and {nodes} nodes need about {needed}: choose another place with --dir, or a smaller --scale",
            dir.display()
        ));
    }
    Ok(())
}

/// Memory that can be had without taking it from somebody.
fn memory_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn free_mib(dir: &Path) -> Result<u64, String> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(dir.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    // SAFETY: zero is valid for all of its fields, which are numbers.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a C string and a structure that outlive the call.
    if unsafe { libc::statvfs(path.as_ptr(), &mut stat) } != 0 {
        return Err(format!("{}: {}", dir.display(), std::io::Error::last_os_error()));
    }
    Ok(stat.f_bavail as u64 * stat.f_frsize as u64 / (1 << 20))
}
