//! The kernel's counts for the threads of this process, summed by the name of the thread.

use std::collections::BTreeMap;
use std::fs;

/// Counters of the threads of one name.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Work {
    /// Times that a thread went to sleep of its own will: as many wake-ups.
    pub wakeups: u64,
    /// Times that the kernel took the CPU away.
    pub preempted: u64,
    pub cpu_nanos: u64,
}

/// By name of the thread.
pub type Threads = BTreeMap<String, Work>;

/// Threads that have the name of the process, because nobody named them.
pub const UNNAMED: &str = "(unnamed)";

/// Counters of the living threads since each began. The calling thread goes as `client`.
pub fn now() -> Threads {
    // SAFETY: a plain system call.
    let own = unsafe { libc::gettid() }.to_string();
    let process = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let mut sum = Threads::new();
    for thread in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |file| fs::read_to_string(thread.path().join(file)).unwrap_or_default(); // empty: it ended just now
        if let Some((name, work)) = parse(&read("status"), &read("schedstat")) {
            let name = if thread.file_name() == *own { "client" } else { shown(name, process.trim_end()) };
            add(sum.entry(name.to_owned()).or_default(), work);
        }
    }
    sum
}

fn shown<'a>(name: &'a str, process: &str) -> &'a str {
    if name == process { UNNAMED } else { name }
}

fn parse<'a>(status: &'a str, schedstat: &str) -> Option<(&'a str, Work)> {
    let work = Work {
        wakeups: field(status, "voluntary_ctxt_switches")?.parse().ok()?,
        preempted: field(status, "nonvoluntary_ctxt_switches")?.parse().ok()?,
        cpu_nanos: schedstat.split(' ').next()?.parse().ok()?,
    };
    Some((field(status, "Name")?, work))
}

/// The value of `name: value` on a line of its own.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn add(sum: &mut Work, other: Work) {
    sum.wakeups += other.wakeups;
    sum.preempted += other.preempted;
    sum.cpu_nanos += other.cpu_nanos;
}

/// Adds what each thread did between two looks. A thread that ended meanwhile counts for nothing.
pub fn add_between(sum: &mut Threads, before: &Threads, after: &Threads) {
    for (name, late) in after {
        let early = before.get(name).copied().unwrap_or_default();
        let work = Work {
            wakeups: late.wakeups.saturating_sub(early.wakeups),
            preempted: late.preempted.saturating_sub(early.preempted),
            cpu_nanos: late.cpu_nanos.saturating_sub(early.cpu_nanos),
        };
        add(sum.entry(name.clone()).or_default(), work);
    }
}

pub fn add_all(sum: &mut Threads, other: &Threads) {
    add_between(sum, &Threads::new(), other);
}

/// `name:wakeups:preempted:cpu;…`, without spaces.
pub fn to_text(threads: &Threads) -> String {
    let line = |(name, w): (&String, &Work)| {
        format!("{}:{}:{}:{}", name.replace([' ', ':', ';'], "_"), w.wakeups, w.preempted, w.cpu_nanos)
    };
    threads.iter().map(line).collect::<Vec<_>>().join(";")
}

pub fn from_text(text: &str) -> Option<Threads> {
    let mut out = Threads::new();
    for entry in text.split(';').filter(|e| !e.is_empty()) {
        let mut f = entry.split(':');
        let name = f.next()?.to_owned();
        let mut number = || f.next()?.parse().ok();
        out.insert(name, Work { wakeups: number()?, preempted: number()?, cpu_nanos: number()? });
    }
    Some(out)
}

/// Resident memory of this process, and what of it is no page of a file.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Memory {
    pub resident_kib: i64,
    pub anonymous_kib: i64,
}

impl Memory {
    pub fn now() -> Memory {
        fs::read_to_string("/proc/self/status").ok().and_then(|s| Memory::parse(&s)).unwrap_or_default()
    }

    fn parse(status: &str) -> Option<Memory> {
        let kib = |name| field(status, name)?.strip_suffix(" kB")?.parse().ok();
        Some(Memory { resident_kib: kib("VmRSS")?, anonymous_kib: kib("RssAnon")? })
    }

    pub fn since(self, before: Memory) -> Memory {
        Memory {
            resident_kib: self.resident_kib - before.resident_kib,
            anonymous_kib: self.anonymous_kib - before.anonymous_kib,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\ttrireme-group\nPid:\t7\nVmRSS:\t   20480 kB\nRssAnon:\t    4096 kB\n\
        voluntary_ctxt_switches:\t31\nnonvoluntary_ctxt_switches:\t4\n";

    #[test]
    fn status_and_schedstat_give_name_counters_and_memory() {
        let work = Work { wakeups: 31, preempted: 4, cpu_nanos: 412_310 };
        assert_eq!(parse(STATUS, "412310 37475 9\n"), Some(("trireme-group", work)));
        assert_eq!(parse("", ""), None, "a thread that ended");
        assert_eq!(Memory::parse(STATUS), Some(Memory { resident_kib: 20480, anonymous_kib: 4096 }));
    }

    #[test]
    fn threads_of_one_name_sum_up_and_survive_text() {
        let one =
            |name: &str, wakeups| Threads::from([(name.to_owned(), Work { wakeups, preempted: 1, cpu_nanos: 10 })]);
        let mut sum = Threads::new();
        add_between(&mut sum, &one("recv", 5), &one("recv", 12));
        add_between(&mut sum, &one("gone", 5), &one("recv", 3)); // ended, and a new one since
        assert_eq!(sum, Threads::from([(String::from("recv"), Work { wakeups: 10, preempted: 1, cpu_nanos: 10 })]));
        add_all(&mut sum, &one("a b", 2));
        let back = from_text(&to_text(&sum)).unwrap();
        assert_eq!(back.get("a_b").unwrap().wakeups, 2);
        assert_eq!(back.get("recv"), sum.get("recv"));
        assert_eq!(from_text(""), Some(Threads::new()));
        assert_eq!(from_text("recv:1:2"), None);
    }

    #[test]
    fn sleeping_counts_as_a_wakeup_of_the_caller() {
        let before = now();
        std::thread::sleep(std::time::Duration::from_millis(1));
        let mut done = Threads::new();
        add_between(&mut done, &before, &now());
        assert!(done.get("client").unwrap().wakeups >= 1);
    }
}
