//! One-row commits: ours beside what a user would take instead, each with what its acknowledgement means, and with what is lost when all servers
//! are killed.

mod deaths;
mod etcd;
mod mariadb;
mod mysql;
mod postgres;
mod postgres_client;

use super::{Layout, value};
use crate::field::{Context, Field, pass_until};
use crate::hist::Histogram;
use crate::plan::{Experiment, Point, Settings};
use crate::record::Measured;
use crate::systems::{Kind, System};
use crate::usage::{self, Usage};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub const LAYOUT: Layout = Layout {
    title: "Beside its peers",
    about: "Clients insert rows of 200 bytes, one per commit: on all nodes of a group, on the primary of the others. Then servers are killed under load: one that serves no client, after its return all at once, and at last the one on which most depends: the sequencer, the leader, the primary. Clients know all servers and go to another one when theirs fails. Where nobody takes over by itself, a script promotes the most advanced replica at once, which is the best that an operator's tool could do. Lost is each acknowledged row that is gone: when all were killed, on the servers as they came back; when one died, on those that went on.",
    values: &[
        value("commits_per_s_1", "commits/s, 1 client", 0),
        value("commits_per_s_8", "commits/s, 8 clients", 0),
        value("commits_per_s_32", "commits/s, 32 clients", 0),
        value("p50_ms_1", "half within, 1 client, ms", 2),
        value("p99_ms_32", "99 % within, 32 clients, ms", 2),
        value("cpu_us_32", "processor time per commit, 32 clients, µs", 0),
        value("gap_one_s", "longest gap when one dies that serves no client, s", 2),
        value("gap_chief_s", "when the sequencer, leader or primary dies, s", 2),
        value("errors_chief", "errors that clients saw then", 0),
        value("lost_chief", "lost then", 0),
        value("lost", "lost when all are killed", 0),
        value("fdatasync_p50_us", "one fdatasync before, µs", 0),
    ],
    ratios: &[0, 1, 2, 3, 4, 5],
    ..Layout::TABLE
};

const CLIENTS: [u32; 3] = [1, 8, 32];
const SIZE: usize = 200;
/// While servers are killed.
const FAULT_CLIENTS: u32 = 4;

pub fn size(settings: &Settings) -> String {
    format!(
        "Measured for {} s with each number of clients. A server that dies is dead for {} s, or as long as clients are held up, with {FAULT_CLIENTS} clients.",
        settings.duration,
        dead_for(settings).as_secs_f64()
    )
}

pub fn points(settings: &Settings) -> Vec<Point> {
    let usual: &[System] = settings.by_preset(&System::TINY_PEERS, &System::PEERS, &System::PEERS);
    let nodes = settings.nodes_or(&[3]);
    let all = settings.deployments(&settings.systems_of(usual, &System::PEERS), &nodes);
    all.into_iter().map(|(system, nodes)| Point::new(Experiment::Peers, system.name(), nodes)).collect()
}

fn numbers_of_clients(settings: &Settings) -> Vec<u32> {
    settings.threads_or(settings.by_preset(&[8], &CLIENTS, &CLIENTS))
}

/// How long servers are dead before they are started again.
fn dead_for(settings: &Settings) -> Duration {
    Duration::from_secs_f64(settings.duration.clamp(0.5, 10.0))
}

pub fn run(context: &Context, point: &Point, field: Option<&mut Field>) -> Result<Measured, String> {
    let system = point.system()?;
    let measured = match (system.kind(), field) {
        (Kind::Postgres, None) => postgres::run(context, point)?,
        (Kind::Etcd, None) => etcd::run(context, point)?,
        (Kind::Mysql, None) => mysql::run(context, point)?,
        (_, Some(field)) => mariadb::run(context, field)?,
        (_, None) => return Err(system.missing(context).unwrap_or_else(|| "no servers".to_owned())),
    };
    Ok(measured)
}

/// Lets `clients` of a system that is no MariaDB write rows: first for the warm-up, then for the measured time. `open`: a connection that
/// writes the row of this number. `pids`: the servers' processes once all clients are connected.
fn drive<C: FnMut(u64) -> Result<(), String>>(
    context: &Context,
    clients: u32,
    open: impl Fn(u32) -> Result<C, String> + Sync,
    pids: impl Fn() -> Vec<i32>,
    measured: &mut Measured,
) -> Result<(), String> {
    let (counts, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let ready = Barrier::new(clients as usize + 1);
    let (latency, used, elapsed) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|client| {
                let (counts, stop, ready, open) = (&counts, &stop, &ready, &open);
                scope.spawn(move || {
                    let connection = open(client);
                    ready.wait();
                    let (mut connection, mut own, mut n) = (connection?, Histogram::default(), 0);
                    while !stop.load(Ordering::Relaxed) {
                        let began = Instant::now();
                        n += 1;
                        connection(n)?;
                        if counts.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                            own.record(began.elapsed().as_nanos() as u64);
                        }
                    }
                    Ok::<_, String>(own)
                })
            })
            .collect();
        ready.wait();
        let warm = pass_until(Instant::now() + context.warmup(), &context.cancel);
        let pids = pids();
        let (before, began) = (Usage::of(&pids), Instant::now());
        counts.store(true, Ordering::Relaxed);
        let passed = warm.and_then(|()| pass_until(began + context.duration(), &context.cancel));
        stop.store(true, Ordering::Relaxed);
        let elapsed = began.elapsed();
        let used = usage::between(&before, &Usage::of(&pids));
        let mut latency = Histogram::default();
        let mut outcome = passed;
        for thread in threads {
            match thread.join().unwrap_or_else(|_| Err("a client panicked".to_owned())) {
                Ok(one) => latency.merge(&one),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome.map(|()| (latency, used, elapsed))
    })?;
    measured.set(format!("commits_per_s_{clients}"), latency.total() as f64 / elapsed.as_secs_f64());
    for (name, q) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)] {
        measured.set(format!("{name}_ms_{clients}"), latency.quantile(q) as f64 / 1e6);
    }
    measured.set(format!("cpu_us_{clients}"), used.servers.as_secs_f64() * 1e6 / latency.total().max(1) as f64);
    Ok(())
}
