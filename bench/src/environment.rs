//! The surroundings of a result, which a reader has to know: machine, versions, settings, and who else worked.

use crate::field::Context;
use crate::quota::Version;
use crate::systems::{System, postgres_bin};
use crate::tool::{command, run};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use trireme_cluster::Cancel;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Environment {
    /// When the run began, UTC.
    pub began: String,
    pub command: String,
    /// By name, in the words of the system.
    pub machine: BTreeMap<String, String>,
    pub versions: BTreeMap<String, String>,
    /// When the run was gone on with, UTC.
    #[serde(default)]
    pub continued: Vec<String>,
    /// Remarks that a reader has to take into account.
    pub remarks: Vec<String>,
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).map(|text| first_line(&text)).unwrap_or_default()
}

fn said(program: &str, argument: &str) -> Option<String> {
    let mut asked = command(program);
    asked.arg(argument);
    let text = run(asked, Duration::from_secs(10), &Cancel::default()).ok()?;
    Some(first_line(&text)).filter(|line| !line.is_empty())
}

/// The known facts of a library: its package or the version that it holds, its place, and the beginning of its hash.
fn library(path: &Path, builds: &BTreeMap<String, String>) -> String {
    let package = || {
        let mut dpkg = command("dpkg-query");
        dpkg.args(["-S", &path.display().to_string()]);
        let owner = run(dpkg, Duration::from_secs(10), &Cancel::default()).ok()?;
        let name = owner.split(':').next()?.to_owned();
        let mut version = command("dpkg-query");
        version.args(["-W", "-f=${Package} ${Version}", &name]);
        run(version, Duration::from_secs(10), &Cancel::default()).ok()
    };
    let place = path.display().to_string();
    let hash = builds.get(&place).and_then(|hash| hash.get(..16)).unwrap_or("unknown");
    let known = package().or_else(|| crate::build::version(path)).unwrap_or_else(|| "no version known".to_owned());
    format!("{known}, {place}, SHA-256 {hash}…")
}

impl Environment {
    pub fn of(
        context: &Context,
        systems: &[System],
        command_line: String,
        builds: &BTreeMap<String, String>,
    ) -> Environment {
        let mut machine = BTreeMap::new();
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
            .map_or("unknown", |(_, name)| name);
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        machine.insert("processor".to_owned(), format!("{cores} × {model}"));
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib: f64 =
            memory.lines().next().and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0.0);
        machine.insert("memory".to_owned(), format!("{:.1} GiB", kib / 1024.0 / 1024.0));
        machine.insert("kernel".to_owned(), read("/proc/sys/kernel/osrelease"));
        machine.insert("system".to_owned(), os_name());
        machine.insert("load average at the beginning".to_owned(), read("/proc/loadavg"));
        machine.insert("file system of the servers".to_owned(), file_system(&context.dir));
        let mut versions = BTreeMap::new();
        versions.insert("trireme".to_owned(), library(&context.provider, builds));
        for (name, program, argument) in [
            ("MariaDB", "mariadbd", "--version"),
            ("sysbench", "sysbench", "--version"),
            ("mariadb-slap", "mariadb-slap", "--version"),
            ("etcd", "etcd", "--version"),
        ] {
            if let Some(version) = said(program, argument) {
                versions.insert(name.to_owned(), version);
            }
        }
        if let Some(galera) = &context.galera {
            versions.insert("Galera".to_owned(), library(galera, builds));
        }
        if let Some(version) = context.mysql.as_ref().ok().and_then(|tree| crate::mysql::version(tree)) {
            versions.insert("MySQL".to_owned(), version);
        }
        if let Some(version) =
            postgres_bin().and_then(|bin| said(&bin.join("postgres").display().to_string(), "--version"))
        {
            versions.insert("PostgreSQL".to_owned(), version);
        }
        Environment {
            began: now_utc(),
            command: command_line,
            machine,
            versions,
            continued: Vec::new(),
            remarks: remarks(context, systems, cores),
        }
    }
}

fn remarks(context: &Context, systems: &[System], cores: usize) -> Vec<String> {
    let s = &context.settings;
    let mut all = vec![
        format!(
            "All nodes, and the clients, run on this one machine ({cores} processors) and talk over loopback. Ratios within this run say more than numbers."
        ),
        "Group traffic is in clear text in all systems, but where `provider` says otherwise.".to_owned(),
        format!(
            "Scale {} and {} s for each point: each experiment says below what sizes and times that makes, and what the published ones are.",
            s.scale, s.duration
        ),
    ];
    all.push(match s.cpu_per_node {
        Some(cores) => {
            let version = crate::quota::Quotas::new(cores).map(|quotas| quotas.version());
            let name = match version {
                Ok(Version::V1) => "cgroup v1",
                Ok(Version::V2) => "cgroup v2",
                Err(_) => "a cgroup",
            };
            format!(
                "Every node, and the server alone, has {cores} processors at most ({name}), whatever the system; clients have what is left."
            )
        }
        None => {
            "No limit of processor time per node: with more nodes each has less, so scale-out does not show.".to_owned()
        }
    });
    let most = s.nodes.iter().copied().max().unwrap_or(if s.cpu_per_node.is_some() { 4 } else { 3 });
    if s.cpu_per_node.is_some_and(|share| share * f64::from(most) > cores as f64 * 2.0 / 3.0) {
        all.push(format!(
            "With {most} nodes the shares are more than two thirds of the machine, so clients may be the limit: a smaller --cpu-per-node shows more."
        ));
    }
    all.push(match &context.disks {
        None => "All nodes share one file system: the syncs of one slow those of the others, as they would not on machines of their own.".to_owned(),
        Some(disks) => disks.told(),
    });
    if systems.iter().any(|system| matches!(system.kind(), crate::systems::Kind::Replicated { .. })) {
        all.push("A semi-synchronous primary waits 10 s for its replica before it goes on without.".to_owned());
    }
    all
}

fn os_name() -> String {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("unknown").trim_matches('"').to_owned()
}

/// Type and device of what holds `dir`.
fn file_system(dir: &Path) -> String {
    let mut findmnt = command("findmnt");
    findmnt.args(["-n", "-o", "FSTYPE,SOURCE", "--target"]).arg(dir);
    run(findmnt, Duration::from_secs(10), &Cancel::default())
        .map_or_else(|_| "unknown".to_owned(), |text| first_line(&text))
}

/// `2026-01-31 12:00:00 UTC`.
pub fn now_utc() -> String {
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.as_secs());
    utc(seconds)
}

/// Days are counted as the Gregorian calendar has them (Hinnant's algorithm, which is public).
pub fn utc(seconds: u64) -> String {
    let (days, rest) = ((seconds / 86400) as i64, seconds % 86400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_767_225_599), "2025-12-31 23:59:59 UTC");
    }
}
