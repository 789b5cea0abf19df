//! Where the time of one commit goes: each call of a lone client, and who is woken for it on every node.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use trireme_wsrep_sys as sys;

use super::host::Shared;
use super::load::{self, Load};
use super::threads::{self, Threads};
use crate::hist::Histogram;

/// The calls of a commit in their order, and all of them together.
pub const CALLS: [&str; 7] =
    ["append_key", "append_data", "certify", "commit_order_enter", "commit_order_leave", "release", "total"];

/// The work of one node in the measured time.
#[derive(Clone, Default)]
pub struct Stages {
    /// Write sets that left commit order here, the client's own and the others'.
    pub passed: u64,
    /// Calls that did not return OK.
    pub errors: u64,
    pub threads: Threads,
    /// Per call; empty where no client ran.
    pub calls: [Histogram; CALLS.len()],
}

impl Stages {
    pub fn add(&mut self, other: &Stages) {
        self.passed += other.passed;
        self.errors += other.errors;
        threads::add_all(&mut self.threads, &other.threads);
        self.calls.iter_mut().zip(&other.calls).for_each(|(a, b)| a.merge(b));
    }

    pub fn to_text(&self) -> String {
        let calls: Vec<String> = self.calls.iter().map(Histogram::to_text).collect();
        format!("{} {} {} {}", self.passed, self.errors, calls.join(" "), threads::to_text(&self.threads))
    }

    pub fn from_text(text: &str) -> Option<Stages> {
        let mut f = text.split(' ');
        let mut out = Stages { passed: f.next()?.parse().ok()?, errors: f.next()?.parse().ok()?, ..Stages::default() };
        for call in &mut out.calls {
            *call = Histogram::from_text(f.next()?)?;
        }
        out.threads = threads::from_text(f.next()?)?;
        Some(out)
    }
}

/// Runs one client on the calling thread, which so stays alive for both looks at the counters; none when `load.clients` is 0.
pub fn run(shared: &'static Shared, load: Load) -> Stages {
    let from = Instant::now() + load.warmup;
    let until = from + load.measure;
    let mut client = (load.clients > 0).then(|| Client::new(shared, load));
    let mut work = |until: Instant, stages: &mut Stages| match &mut client {
        Some(client) => {
            while Instant::now() < until {
                client.commit(stages);
            }
        }
        None => load::sleep_until(until),
    };
    work(from, &mut Stages::default());
    let mut stages = Stages::default();
    let applied = shared.applied.load(Ordering::Relaxed);
    let before = threads::now();
    work(until, &mut stages);
    threads::add_between(&mut stages.threads, &before, &threads::now());
    stages.passed += shared.applied.load(Ordering::Relaxed) - applied;
    stages
}

struct Client {
    shared: &'static Shared,
    load: Load,
    random: u64,
    data: Vec<u8>,
}

impl Client {
    fn new(shared: &'static Shared, load: Load) -> Client {
        Client { shared, load, random: load.seed | 1, data: vec![b'x'; load.size] }
    }

    fn commit(&mut self, stages: &mut Stages) {
        let provider = self.shared.provider();
        let mut handle = load::new_handle();
        let mut meta = sys::TrxMeta::UNDEFINED;
        let begun = Instant::now();
        let mut last = begun;
        let mut ok = true;
        let mut call = |number: usize, status: i32| {
            let now = Instant::now();
            stages.calls[number].record((now - last).as_nanos() as u64);
            last = now;
            ok &= status == sys::OK;
        };
        let row = load::key_image(load::next(&mut self.random) % self.load.rows.max(1));
        call(0, provider.append_key(&mut handle, [b"bench", b"t1", &row], sys::KEY_EXCLUSIVE));
        call(1, provider.append_data(&mut handle, &self.data));
        let status = provider.certify(1, &mut handle, &mut meta);
        call(2, status);
        if meta.gtid.seqno > 0 && matches!(status, sys::OK | sys::TRX_FAIL) {
            call(3, provider.enter(&handle, &meta));
            self.shared.note_order(meta.gtid.seqno);
            call(4, provider.leave(&handle, &meta));
        }
        call(5, provider.release(&mut handle));
        stages.calls[6].record((last - begun).as_nanos() as u64);
        stages.passed += u64::from(ok);
        stages.errors += u64::from(!ok);
        if !ok {
            std::thread::sleep(Duration::from_millis(1)); // a failing node must not take the CPU of the others
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::threads::Work;

    #[test]
    fn a_report_survives_text_and_sums_up() {
        let mut one = Stages { passed: 3, errors: 1, ..Stages::default() };
        one.threads.insert(String::from("client"), Work { wakeups: 6, preempted: 2, cpu_nanos: 900 });
        one.calls[2].record(70_000);
        let mut sum = one.clone();
        sum.add(&Stages::from_text(&one.to_text()).unwrap());
        assert_eq!((sum.passed, sum.errors), (6, 2));
        assert_eq!(sum.threads.get("client"), Some(&Work { wakeups: 12, preempted: 4, cpu_nanos: 1800 }));
        assert!((70_000..73_000).contains(&sum.calls[2].quantile(0.5)));
        assert_eq!(sum.calls[6].quantile(0.5), 0);
        assert!(Stages::from_text("1 2").is_none());
    }
}
