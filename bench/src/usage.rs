//! Processor time of the servers, of the clients, and of everybody else.

use std::collections::BTreeMap;
use std::time::Duration;

pub struct Usage {
    servers: u64,
    own: u64,
}

pub struct Used {
    pub servers: Duration,
    pub own: Duration,
}

impl Usage {
    /// Now.
    pub fn of(pids: &[i32]) -> Usage {
        // With the tools that it has waited for: they are the clients.
        Usage { servers: pids.iter().map(|pid| ticks(&pid.to_string(), 2)).sum(), own: ticks("self", 4) }
    }
}

pub fn between(before: &Usage, after: &Usage) -> Used {
    // A server that died meanwhile has no time any more.
    let (servers, own) = (after.servers.saturating_sub(before.servers), after.own.saturating_sub(before.own));
    Used { servers: time(servers), own: time(own) }
}

/// The processor time of the machine, and of this process with all that it has started and what those have started: the servers too, dead ones
/// with them once they are waited for.
#[derive(Clone, Copy)]
pub struct Machine {
    ours: u64,
    /// In ticks: busy and in all.
    busy: u64,
    total: u64,
}

impl Machine {
    /// Now.
    pub fn now() -> Machine {
        let (busy, total) = machine();
        Machine { ours: family().iter().map(|pid| ticks(&pid.to_string(), 4)).sum(), busy, total }
    }

    /// The part of the machine's processor time since then that others took, in percent.
    pub fn others_percent_since(&self, before: &Machine) -> f64 {
        let total = self.total.saturating_sub(before.total).max(1);
        let busy = self.busy.saturating_sub(before.busy);
        busy.saturating_sub(self.ours.saturating_sub(before.ours)) as f64 * 100.0 / total as f64
    }
}

/// This process and its descendants.
fn family() -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(parent) = fields(&stat).nth(1).and_then(|field| field.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut all = vec![std::process::id() as i32];
    let mut at = 0;
    while let Some(pid) = all.get(at) {
        all.extend(children.remove(pid).unwrap_or_default());
        at += 1;
    }
    all
}

/// Of `/proc/PID/stat`, from the state on. The name before it, which may hold anything, ends at the last bracket.
fn fields(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace()
}

fn time(ticks: u64) -> Duration {
    // SAFETY: reads a constant of the system.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    Duration::from_secs_f64(ticks as f64 / per_second)
}

/// The first of these: user and system time of all threads of a process, and those of its children that have ended. Zero when it is gone.
fn ticks(process: &str, number: usize) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The times are the 14th and 15th field of all.
    fields(&stat).skip(11).take(number).filter_map(|field| field.parse::<u64>().ok()).sum()
}

fn machine() -> (u64, u64) {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .take(8) // guests are counted in the first two
        .filter_map(|field| field.parse().ok())
        .collect();
    let total: u64 = fields.iter().sum();
    let idle: u64 = fields.iter().skip(3).take(2).sum();
    (total - idle, total)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child that works, whether it lives or has ended, is not somebody else.
    #[test]
    fn what_was_started_is_no_other() {
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let before = Machine::now();
        std::thread::sleep(Duration::from_millis(500));
        let alive = Machine::now();
        let grown = alive.ours - before.ours;
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(grown > 5, "{grown} ticks in half a second");
        assert!(Machine::now().ours >= before.ours);
        assert!((0.0..=100.0).contains(&alive.others_percent_since(&before)));
    }
}
