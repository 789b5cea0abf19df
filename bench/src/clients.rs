//! Clients of real servers: each on a thread of its own with a session of its own, doing one transaction after another.

use crate::field::{Context, Field, is_conflict, pass_until};
use crate::hist::Histogram;
use crate::record::Measured;
use crate::usage::{self, Usage};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use trireme_cluster::{Endpoint, Session, SqlError};

/// The work of one client.
pub trait Work: Send {
    /// One transaction from its beginning to its answer. `Ok`: it committed, and was of this kind.
    fn transaction(&mut self, session: &mut Session) -> Result<Done, SqlError>;
    /// Done in every new session.
    fn begin(&mut self, _session: &mut Session) -> Result<(), SqlError> {
        Ok(())
    }
    /// After so many transactions the client connects anew.
    fn reconnects_after(&self) -> u32 {
        u32::MAX
    }
    /// Names of the kinds of transactions.
    fn kinds(&self) -> &'static [&'static str] {
        &["transaction"]
    }
}

/// A transaction that ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Which of [`Work::kinds`].
    pub kind: usize,
    /// It rolled back because that is its purpose.
    pub rolled_back: bool,
    pub reads: u32,
    pub writes: u32,
}

/// The work of all clients in the measured time.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub elapsed: Duration,
    pub committed: u64,
    pub rolled_back: u64,
    /// Transactions that the server gave up because of another one.
    pub aborted: u64,
    pub connections: u64,
    pub reads: u64,
    pub writes: u64,
    pub latency: Histogram,
    /// By kind: how many, and how long they took.
    pub kinds: Vec<(&'static str, u64, Histogram)>,
    pub servers_cpu: Duration,
    pub clients_cpu: Duration,
}

impl Tally {
    fn merge(&mut self, other: &Tally) {
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.aborted += other.aborted;
        self.connections += other.connections;
        self.reads += other.reads;
        self.writes += other.writes;
        self.latency.merge(&other.latency);
        if self.kinds.is_empty() {
            self.kinds.clone_from(&other.kinds);
        } else {
            for (sum, one) in self.kinds.iter_mut().zip(&other.kinds) {
                sum.1 += one.1;
                sum.2.merge(&one.2);
            }
        }
    }

    pub fn per_second(&self, number: u64) -> f64 {
        number as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Of all that were begun.
    pub fn aborted_percent(&self) -> f64 {
        100.0 * self.aborted as f64 / (self.committed + self.rolled_back + self.aborted).max(1) as f64
    }

    /// The values that every load has: throughput, durations, processor time.
    pub fn note(&self, rate: &str, into: &mut Measured) {
        into.set(rate, self.per_second(self.committed));
        into.set("committed", self.committed as f64);
        into.set("aborted", self.aborted as f64);
        into.set("aborted_percent", self.aborted_percent());
        for (name, q) in [("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99)] {
            into.set(name, self.latency.quantile(q) as f64 / 1e6);
        }
        into.set("max_ms", self.latency.max() as f64 / 1e6);
        note_cpu(self.servers_cpu, self.clients_cpu, self.committed, into);
    }
}

pub fn note_cpu(servers: Duration, clients: Duration, per: u64, into: &mut Measured) {
    into.set("servers_cpu_us_per_transaction", servers.as_secs_f64() * 1e6 / per.max(1) as f64);
    into.set("clients_cpu_us_per_transaction", clients.as_secs_f64() * 1e6 / per.max(1) as f64);
}

const WARM_UP: u8 = 0;
const MEASURE: u8 = 1;
const STOP: u8 = 2;

/// Lets `count` clients work on `endpoints` in turn: first for the warm-up, then for the measured time.
///
/// **Errors** when a client meets an error that is no conflict.
pub fn drive<W: Work>(
    context: &Context,
    field: &Field,
    endpoints: &[Endpoint],
    count: u32,
    make: impl Fn(u32) -> W + Sync,
) -> Result<Tally, String> {
    let pids = field.pids();
    let phase = AtomicU8::new(WARM_UP);
    let ready = Barrier::new(count as usize + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|n| {
                let (endpoint, phase, ready, make) = (&endpoints[n as usize % endpoints.len()], &phase, &ready, &make);
                scope.spawn(move || client(endpoint, make(n), phase, ready))
            })
            .collect();
        ready.wait();
        let interrupted = pass_until(Instant::now() + context.warmup(), &context.cancel);
        let (before, began) = (Usage::of(&pids), Instant::now());
        phase.store(MEASURE, Ordering::Relaxed);
        let interrupted = interrupted.and_then(|()| pass_until(began + context.duration(), &context.cancel));
        phase.store(STOP, Ordering::Relaxed);
        let elapsed = began.elapsed();
        let used = usage::between(&before, &Usage::of(&pids));
        let mut tally = Tally { elapsed, servers_cpu: used.servers, clients_cpu: used.own, ..Tally::default() };
        let mut outcome = interrupted;
        for thread in threads {
            match thread.join().unwrap_or_else(|_| Err("a client panicked".to_owned())) {
                Ok(one) => tally.merge(&one),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome.map(|()| tally)
    })
}

fn client(endpoint: &Endpoint, mut work: impl Work, phase: &AtomicU8, ready: &Barrier) -> Result<Tally, String> {
    let mut open = || -> Result<Session, String> {
        let mut session = endpoint.session_in(Some("bench")).map_err(|e| e.to_string())?;
        work.begin(&mut session).map_err(|e| e.to_string())?;
        Ok(session)
    };
    let first = open();
    ready.wait();
    let mut session = first?;
    let kinds = work.kinds().iter().map(|kind| (*kind, 0, Histogram::default())).collect();
    let mut tally = Tally { kinds, connections: 1, ..Tally::default() };
    let mut since = 0;
    loop {
        if since == work.reconnects_after() {
            session = endpoint.session_in(Some("bench")).map_err(|e| e.to_string())?;
            work.begin(&mut session).map_err(|e| e.to_string())?;
            tally.connections += u64::from(phase.load(Ordering::Relaxed) == MEASURE);
            since = 0;
        }
        since += 1;
        let began = Instant::now();
        let result = work.transaction(&mut session);
        let took = began.elapsed().as_nanos() as u64;
        let counts = match phase.load(Ordering::Relaxed) {
            STOP => return Ok(tally),
            phase => phase == MEASURE,
        };
        match result {
            Ok(done) if counts => {
                tally.committed += u64::from(!done.rolled_back);
                tally.rolled_back += u64::from(done.rolled_back);
                tally.reads += u64::from(done.reads);
                tally.writes += u64::from(done.writes);
                tally.latency.record(took);
                if let Some((_, number, latency)) = tally.kinds.get_mut(done.kind) {
                    *number += u64::from(!done.rolled_back);
                    latency.record(took);
                }
            }
            Ok(_) => {}
            Err(error) if is_conflict(&error) => {
                tally.aborted += u64::from(counts);
                session.query("ROLLBACK").map_err(|e| e.to_string())?;
            }
            Err(error) => return Err(format!("a client on {}: {error}", endpoint.node)),
        }
    }
}
