//! The clients of one node, and what they measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use trireme_wsrep_sys as sys;

use super::host::Shared;
use super::provider::Handle;
use crate::hist::Histogram;

/// The work of the clients.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// 0: this node only applies.
    pub clients: usize,
    /// Bytes of data in each write set.
    pub size: usize,
    /// Keys in each write set.
    pub keys: usize,
    /// Rows that keys are drawn from, evenly.
    pub rows: u64,
    /// Runs before anything is counted.
    pub warmup: Duration,
    pub measure: Duration,
    pub seed: u64,
}

/// The work of one node in the measured time.
#[derive(Clone, Default)]
pub struct Report {
    pub commits: u64,
    /// Write sets that failed certification.
    pub conflicts: u64,
    /// Any other outcome.
    pub errors: u64,
    /// A status code among the errors.
    pub error_code: i32,
    pub applied: u64,
    pub out_of_order: u64,
    /// Longest time without a commit of this node's clients.
    pub gap: Duration,
    pub elapsed: Duration,
    /// CPU of the whole process, user and system.
    pub cpu: Duration,
    /// Bytes that the provider sent to other nodes, over links and by multicast. Zero: it does not say.
    pub sent_bytes: u64,
    /// certify to release, of the commits.
    pub latency: Histogram,
}

impl Report {
    pub fn to_text(&self) -> String {
        format!(
            "{} {} {} {} {} {} {} {} {} {} {}",
            self.commits,
            self.conflicts,
            self.errors,
            self.error_code,
            self.applied,
            self.out_of_order,
            self.gap.as_nanos(),
            self.elapsed.as_nanos(),
            self.cpu.as_nanos(),
            self.sent_bytes,
            self.latency.to_text()
        )
    }

    pub fn from_text(text: &str) -> Option<Report> {
        let mut f = text.split(' ');
        Some(Report {
            commits: f.next()?.parse().ok()?,
            conflicts: f.next()?.parse().ok()?,
            errors: f.next()?.parse().ok()?,
            error_code: f.next()?.parse().ok()?,
            applied: f.next()?.parse().ok()?,
            out_of_order: f.next()?.parse().ok()?,
            gap: Duration::from_nanos(f.next()?.parse().ok()?),
            elapsed: Duration::from_nanos(f.next()?.parse().ok()?),
            cpu: Duration::from_nanos(f.next()?.parse().ok()?),
            sent_bytes: f.next()?.parse().ok()?,
            latency: Histogram::from_text(f.next()?)?,
        })
    }

    /// Adds another node or another round. Time is that of the slowest; it is up to the caller whether rounds follow each other.
    pub fn add(&mut self, other: &Report) {
        self.commits += other.commits;
        self.conflicts += other.conflicts;
        self.errors += other.errors;
        self.error_code = self.error_code.max(other.error_code);
        self.applied += other.applied;
        self.out_of_order += other.out_of_order;
        self.gap = self.gap.max(other.gap);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.cpu += other.cpu;
        self.sent_bytes += other.sent_bytes;
        self.latency.merge(&other.latency);
    }
}

/// Transaction ids must be unique in the life of a node process.
static NEXT_TRX: AtomicU64 = AtomicU64::new(1000);

pub fn new_handle() -> Handle {
    Handle::new(NEXT_TRX.fetch_add(1, Ordering::Relaxed))
}

/// Runs the load on a node; blocks for its whole time.
pub fn run(shared: &'static Shared, load: Load) -> Report {
    let start = Instant::now();
    let from = start + load.warmup;
    let until = from + load.measure;
    let pace = Arc::new(Pace::default());
    let clients: Vec<_> = (0..load.clients)
        .map(|number| {
            let pace = Arc::clone(&pace);
            std::thread::spawn(move || client(shared, load, number as u64 + 1, from, until, &pace))
        })
        .collect();

    sleep_until(from);
    let (cpu, applied, sent) = (cpu_time(), shared.applied.load(Ordering::Relaxed), sent_bytes(shared));
    let measured = Instant::now();
    sleep_until(until);
    let mut report = Report {
        elapsed: measured.elapsed(),
        cpu: cpu_time() - cpu,
        sent_bytes: sent_bytes(shared).saturating_sub(sent),
        applied: shared.applied.load(Ordering::Relaxed) - applied,
        ..Report::default()
    };
    let elapsed = report.elapsed;
    if load.clients > 0 {
        pace.commit_at(load.measure);
        report.gap = Duration::from_nanos(pace.gap.load(Ordering::Relaxed));
    }
    for client in clients {
        report.add(&client.join().expect("client does not panic"));
    }
    report.elapsed = elapsed;
    report.out_of_order = shared.out_of_order.load(Ordering::Relaxed);
    report
}

/// Ours tells it with `repl.status_extended`; Galera does not.
fn sent_bytes(shared: &Shared) -> u64 {
    let stat = |name| shared.provider().stat(name).and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0);
    stat("trireme_link_bytes") + stat("trireme_multicast_bytes")
}

/// Finds the longest time without a commit.
#[derive(Default)]
struct Pace {
    /// Newest commit, nanoseconds after the measuring began.
    newest: AtomicU64,
    gap: AtomicU64,
}

impl Pace {
    fn commit_at(&self, since_begin: Duration) {
        let now = since_begin.as_nanos() as u64;
        let before = self.newest.fetch_max(now, Ordering::Relaxed);
        self.gap.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
    }
}

/// The measuring clock itself is the condition here.
pub fn sleep_until(t: Instant) {
    std::thread::sleep(t.saturating_duration_since(Instant::now()));
}

enum Outcome {
    Committed,
    Conflict,
    Error(i32),
}

fn client(shared: &'static Shared, load: Load, conn: u64, from: Instant, until: Instant, pace: &Pace) -> Report {
    let mut report = Report::default();
    let mut random = load.seed ^ conn.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let data = vec![b'x'; load.size];
    loop {
        let provider = shared.provider();
        let mut handle = new_handle();
        for _ in 0..load.keys {
            let row = key_image(next(&mut random) % load.rows.max(1));
            provider.append_key(&mut handle, [b"bench", b"t1", &row], sys::KEY_EXCLUSIVE);
        }
        provider.append_data(&mut handle, &data);
        let begun = Instant::now();
        let outcome = commit(shared, conn, &mut handle);
        let ended = Instant::now();
        if ended >= until {
            return report;
        }
        // Each counts where it ends. With long commits, those that also begin in the measured time would be too few.
        if ended >= from {
            match outcome {
                Outcome::Committed => {
                    report.commits += 1;
                    pace.commit_at(ended - from);
                    report.latency.record((ended - begun).as_nanos() as u64);
                }
                Outcome::Conflict => report.conflicts += 1,
                Outcome::Error(code) => {
                    report.errors += 1;
                    report.error_code = code;
                }
            }
        }
        if let Outcome::Error(_) = outcome {
            std::thread::sleep(Duration::from_millis(1)); // a failing node must not take the CPU of the others
        }
    }
}

/// From certify to release, as a server does it without an engine.
fn commit(shared: &Shared, conn: u64, handle: &mut Handle) -> Outcome {
    let provider = shared.provider();
    let mut meta = sys::TrxMeta::UNDEFINED;
    let status = provider.certify(conn, handle, &mut meta);
    let mut outcome = match status {
        sys::OK => Outcome::Committed,
        sys::TRX_FAIL => Outcome::Conflict,
        other => Outcome::Error(other),
    };
    if meta.gtid.seqno > 0 && matches!(status, sys::OK | sys::TRX_FAIL) {
        match provider.enter(handle, &meta) {
            sys::OK => {
                shared.note_order(meta.gtid.seqno);
                provider.leave(handle, &meta);
            }
            other => outcome = Outcome::Error(other),
        }
    }
    provider.release(handle);
    outcome
}

/// As a server makes it: key number, then the value.
pub fn key_image(row: u64) -> [u8; 9] {
    let mut out = [0; 9];
    out[1..].copy_from_slice(&row.to_le_bytes());
    out
}

/// xorshift64*
pub fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
}

fn cpu_time() -> Duration {
    // SAFETY: getrusage fills the structure, for which all zeroes are valid.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}
