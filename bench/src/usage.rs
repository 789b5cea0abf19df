//! Processor time of the servers, of the clients, and of everybody else.

use std::time::Duration;

pub struct Usage {
    servers: u64,
    own: u64,
    /// Of the whole machine, in ticks: busy and in all.
    busy: u64,
    total: u64,
}

pub struct Used {
    pub servers: Duration,
    pub own: Duration,
    pub others_percent: f64,
}

impl Usage {
    /// Now.
    pub fn of(pids: &[i32]) -> Usage {
        let (busy, total) = machine();
        // With the tools that it has waited for: they are the clients.
        Usage { servers: pids.iter().map(|pid| ticks(&pid.to_string(), 2)).sum(), own: ticks("self", 4), busy, total }
    }
}

pub fn between(before: &Usage, after: &Usage) -> Used {
    // A server that died meanwhile has no time any more.
    let (servers, own) = (after.servers.saturating_sub(before.servers), after.own.saturating_sub(before.own));
    let busy = after.busy.saturating_sub(before.busy);
    let total = after.total.saturating_sub(before.total).max(1);
    Used {
        servers: time(servers),
        own: time(own),
        others_percent: busy.saturating_sub(servers + own) as f64 * 100.0 / total as f64,
    }
}

fn time(ticks: u64) -> Duration {
    // SAFETY: reads a constant of the system.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    Duration::from_secs_f64(ticks as f64 / per_second)
}

/// The first of these: user and system time of all threads of a process, and those of its children that have ended. Zero when it is gone.
fn ticks(process: &str, fields: usize) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name, which may hold anything, ends at the last bracket; the times are the 14th and 15th field.
    let all = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    all.skip(11).take(fields).filter_map(|field| field.parse::<u64>().ok()).sum()
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
