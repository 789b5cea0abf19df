//! A share of the processor for each node, by control groups (v1 or v2).

use std::fs;
use std::path::{Path, PathBuf};

/// Microseconds in which a share counts. Short, so that a node is not stopped for long at a time.
const PERIOD_US: u64 = 20_000;

/// A group for each node, removed when dropped.
#[derive(Debug)]
pub struct Quotas {
    root: PathBuf,
    version: Version,
    /// Cores for each node.
    cores: f64,
    groups: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

/// Where the `cpu` controller is, as `/proc/self/mounts` tells.
fn controller(mounts: &str, has_cpu: impl Fn(&Path) -> bool) -> Option<(PathBuf, Version)> {
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut found = None;
    for field in fields {
        match field[..] {
            [_, at, "cgroup", options, ..] if options.split(',').any(|o| o == "cpu") => {
                return Some((PathBuf::from(at), Version::V1));
            }
            [_, at, "cgroup2", ..] if has_cpu(Path::new(at)) => found = Some((PathBuf::from(at), Version::V2)),
            _ => {}
        }
    }
    found
}

impl Quotas {
    /// **Errors** in a sentence for people: no root, or no such controller.
    pub fn new(cores: f64) -> Result<Quotas, String> {
        let refused = |why: String| format!("--cpu-per-node cannot be had here: {why}");
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(|e| refused(e.to_string()))?;
        let has_cpu = |at: &Path| {
            let controllers = fs::read_to_string(at.join("cgroup.controllers")).unwrap_or_default();
            controllers.split_whitespace().any(|name| name == "cpu")
        };
        let (root, version) = controller(&mounts, has_cpu)
            .ok_or_else(|| refused("there is no control group for the processor".to_owned()))?;
        if version == Version::V2 {
            // Groups below the root have it only once it is passed on.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+cpu");
        }
        let quotas = Quotas { root, version, cores, groups: Vec::new() };
        let probe = quotas.dir("probe");
        let outcome = quotas.make(&probe);
        let _ = fs::remove_dir(&probe);
        outcome.map_err(|e| refused(format!("{} (it needs root)", e)))?;
        Ok(quotas)
    }

    pub fn version(&self) -> Version {
        self.version
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.root.join(format!("trireme-bench-{}-{name}", std::process::id()))
    }

    fn make(&self, dir: &Path) -> Result<(), String> {
        let failed = |what: &Path, e: std::io::Error| format!("{}: {e}", what.display());
        fs::create_dir_all(dir).map_err(|e| failed(dir, e))?;
        let quota = (self.cores * PERIOD_US as f64).max(1000.0) as u64;
        let files = match self.version {
            Version::V1 => vec![("cpu.cfs_period_us", PERIOD_US.to_string()), ("cpu.cfs_quota_us", quota.to_string())],
            Version::V2 => vec![("cpu.max", format!("{quota} {PERIOD_US}"))],
        };
        for (file, value) in files {
            let path = dir.join(file);
            fs::write(&path, value).map_err(|e| failed(&path, e))?;
        }
        Ok(())
    }

    /// Puts a process, with all of its threads and what it starts from now on, into the group of node `number`.
    pub fn limit(&mut self, number: u8, pid: i32) -> Result<(), String> {
        let dir = self.dir(&format!("node{number}"));
        if !self.groups.contains(&dir) {
            self.make(&dir)?;
            self.groups.push(dir.clone());
        }
        let procs = dir.join("cgroup.procs");
        match fs::write(&procs, pid.to_string()) {
            // One that is dead stays without.
            Err(_) if !Path::new(&format!("/proc/{pid}")).exists() => Ok(()),
            Err(e) => Err(format!("{}: {e}", procs.display())),
            Ok(()) => Ok(()),
        }
    }
}

impl Drop for Quotas {
    fn drop(&mut self) {
        for group in &self.groups {
            // The kernel refuses as long as a process that is ending is in it.
            for _ in 0..50 {
                if fs::remove_dir(group).is_ok() || !group.exists() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found_and_the_first_is_preferred() {
        let v1 = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0";
        assert_eq!(controller(v1, |_| false), Some((PathBuf::from("/sys/fs/cgroup/cpu,cpuacct"), Version::V1)));
        let v2 = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0";
        assert_eq!(controller(v2, |_| true), Some((PathBuf::from("/sys/fs/cgroup"), Version::V2)));
        assert_eq!(controller(v2, |_| false), None);
        assert_eq!(controller("cgroup /x cgroup rw,cpuset 0 0\nproc /proc proc rw 0 0", |_| true), None);
    }

    /// With half a core a process that would take a whole one takes half.
    #[test]
    fn a_quota_holds() {
        let mut quotas = match Quotas::new(0.25) {
            Ok(quotas) => quotas,
            Err(reason) => return println!("skipped: {reason}"),
        };
        quotas.limit(2, i32::MAX).unwrap(); // nobody has this number
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        quotas.limit(1, child.id() as i32).unwrap();
        let pids = [child.id() as i32];
        let (before, began) = (crate::usage::Usage::of(&pids), std::time::Instant::now());
        std::thread::sleep(std::time::Duration::from_millis(600));
        let used = crate::usage::between(&before, &crate::usage::Usage::of(&pids)).servers;
        let share = used.as_secs_f64() / began.elapsed().as_secs_f64();
        child.kill().unwrap();
        child.wait().unwrap();
        // At most: other work on the machine may leave it less.
        assert!(share < 0.35, "{share}");
    }
}
