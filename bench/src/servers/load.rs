//! Clients of real servers.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use trireme_cluster::{Cluster, Endpoint};

use super::usage::{self, Usage};
use crate::hist::Histogram;

pub struct Load {
    pub clients: usize,
    pub size: usize,
    pub warmup: Duration,
    pub measure: Duration,
}

/// What was measured in one cell of one round.
pub struct Cell {
    pub commits: u64,
    pub errors: u64,
    pub elapsed: Duration,
    pub latency: Histogram,
    pub servers: Duration,
    pub clients: Duration,
    /// Of the machine, while measuring.
    pub others_percent: f64,
    /// Of the disk alone, just before.
    pub fdatasync: Histogram,
}

const WARM_UP: u8 = 0;
const MEASURE: u8 = 1;
const STOP: u8 = 2;

impl Load {
    pub fn run(&self, cluster: &Cluster, fdatasync: Histogram) -> Result<Cell, String> {
        let endpoints = cluster.endpoints();
        let pids: Vec<i32> = cluster.nodes().iter().filter_map(|node| node.pid).collect();
        let phase = AtomicU8::new(WARM_UP);
        let ready = Barrier::new(self.clients + 1);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.clients)
                .map(|n| {
                    let (endpoint, phase, ready) = (&endpoints[n % endpoints.len()], &phase, &ready);
                    scope.spawn(move || client(endpoint, self.size, phase, ready))
                })
                .collect();
            ready.wait();
            std::thread::sleep(self.warmup);
            let (before, began) = (Usage::of(&pids), Instant::now());
            phase.store(MEASURE, Ordering::Relaxed);
            std::thread::sleep(self.measure);
            phase.store(STOP, Ordering::Relaxed);
            let (after, elapsed) = (Usage::of(&pids), began.elapsed());
            let used = usage::between(&before, &after);
            let mut cell = Cell {
                commits: 0,
                errors: 0,
                elapsed,
                latency: Histogram::default(),
                servers: used.servers,
                clients: used.own,
                others_percent: used.others_percent,
                fdatasync,
            };
            for thread in threads {
                let (latency, commits, errors) = thread.join().map_err(|_| "a client panicked")??;
                cell.latency.merge(&latency);
                cell.commits += commits;
                cell.errors += errors;
            }
            Ok(cell)
        })
    }
}

fn client(
    endpoint: &Endpoint,
    size: usize,
    phase: &AtomicU8,
    ready: &Barrier,
) -> Result<(Histogram, u64, u64), String> {
    let opened = endpoint.session_in(Some("bench")).map_err(|e| e.to_string()).and_then(|mut session| {
        let insert = session.prepare("INSERT INTO t (text) VALUES (?)").map_err(|e| e.to_string())?;
        Ok((session, insert))
    });
    ready.wait();
    let (mut session, insert) = opened?;
    let text = "x".repeat(size);
    let (mut latency, mut commits, mut errors) = (Histogram::default(), 0, 0);
    loop {
        let began = Instant::now();
        let result = session.execute(&insert, &[Some(&text)]);
        match (phase.load(Ordering::Relaxed), &result) {
            (STOP, _) => return Ok((latency, commits, errors)),
            (MEASURE, Ok(_)) => {
                latency.record(began.elapsed().as_nanos() as u64);
                commits += 1;
            }
            (MEASURE, Err(error)) if error.code().is_some() => errors += 1,
            (_, Err(error)) if error.code().is_none() => return Err(error.to_string()),
            _ => {}
        }
    }
}
