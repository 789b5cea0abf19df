//! `trireme-sim`: runs seeds. A seed and a commit reproduce a run exactly.
//!
//! Exit status: 0 all seeds held, and they met what they are to meet; 1 a seed failed, or a situation arose too seldom; 2 wrong usage.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use trireme_sim::{Census, Failure, Kind, Options, Report, SEC, Situation};

const USAGE: &str = "usage: trireme-sim --seed N [--kind KIND] [--mutant NAME] [--verbose]
       trireme-sim --seeds A..B [--kind KIND] [--mutant NAME] [--jobs J] [--stop-after F] [--print]

  --seed N        one run; prints its options, its verdict and, when it fails, every node's state
  --verbose       a line per event on standard error
  --seeds A..B    runs seeds A to B-1; prints one line per failure and a summary
  --jobs J        threads (default 1); results do not depend on it
  --kind KIND     swarm (default): anything may happen; harmless: only what must pass without a view or a refusal;
                  restored: old copies of disks are put back; large: records that are written in pieces;
                  hostile: a node lies
  --mutant NAME   breaks one rule on purpose (docs/testing.md lists them); a seed that fails has caught it
  --stop-after F  stop after F failures (default 20)
  --print         a line per seed, also for those that hold";

struct Args {
    seeds: std::ops::Range<u64>,
    jobs: usize,
    verbose: bool,
    print: bool,
    stop_after: usize,
    kind: Kind,
    mutant: Option<String>,
}

impl Args {
    fn options(&self, seed: u64) -> Options {
        let mut options = match self.kind {
            Kind::Swarm => Options::draw(seed),
            Kind::Harmless => Options::harmless(seed),
            Kind::Restored => Options::restored(seed),
            Kind::Large => Options::large(seed),
            Kind::Hostile => Options::hostile(seed),
        };
        if let Some(name) = &self.mutant {
            options.break_by_name(name);
        }
        options
    }
}

fn parse() -> Result<Args, String> {
    let mut args =
        Args { seeds: 0..0, jobs: 1, verbose: false, print: false, stop_after: 20, kind: Kind::Swarm, mutant: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("not a number: {text}"));
        match word.as_str() {
            "--seed" => {
                let n = number(&value()?)?;
                args.seeds = n..n + 1;
            }
            "--seeds" => {
                let text = value()?;
                let (a, b) = text.split_once("..").ok_or(format!("not a range: {text}"))?;
                args.seeds = number(a)?..number(b)?;
            }
            "--jobs" => args.jobs = number(&value()?)?.max(1) as usize,
            "--stop-after" => args.stop_after = number(&value()?)?.max(1) as usize,
            "--mutant" => {
                let name = value()?;
                if !Options::draw(0).break_by_name(&name) {
                    return Err(format!("no mutant {name}"));
                }
                args.mutant = Some(name);
            }
            "--kind" => {
                args.kind = match value()?.as_str() {
                    "swarm" => Kind::Swarm,
                    "harmless" => Kind::Harmless,
                    "restored" => Kind::Restored,
                    "large" => Kind::Large,
                    "hostile" => Kind::Hostile,
                    other => return Err(format!("no kind {other}")),
                }
            }
            "--verbose" => args.verbose = true,
            "--print" => args.print = true,
            other => return Err(format!("unknown argument {other}")),
        }
    }
    if args.seeds.is_empty() { Err("no seeds".into()) } else { Ok(args) }
}

/// A panic of the core is a failure of the seed, not of the simulator.
fn guarded(args: &Args, seed: u64, trace: bool) -> Report {
    match std::panic::catch_unwind(|| trireme_sim::run(args.options(seed), trace)) {
        Ok(report) => report,
        Err(payload) => {
            let text = payload
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string()))
                .unwrap_or_else(|| "no text".into());
            let place = PANIC.with(|p| p.take());
            Report {
                seed,
                options: args.options(seed).to_string(),
                failure: Some(Failure { phase: "?", text: format!("panic at {place}: {text}"), dump: String::new() }),
                time: 0,
                healed_in: 0,
                events: 0,
                messages: 0,
                terms: 0,
                faults: 0,
                copies: 0,
                ordered: 0,
                bare: false,
                share: Default::default(),
                situations: Default::default(),
            }
        }
    }
}

thread_local! {
    static PANIC: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

fn main() -> ExitCode {
    let args = match parse() {
        Ok(args) => args,
        Err(e) => {
            eprintln!("{e}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let loud = args.verbose || std::env::var_os("RUST_BACKTRACE").is_some();
    std::panic::set_hook(Box::new(move |info| {
        PANIC.with(|p| *p.borrow_mut() = info.location().map(|l| l.to_string()).unwrap_or_default());
        if loud {
            eprintln!("{info}\n{}", std::backtrace::Backtrace::force_capture());
        }
    }));
    if args.seeds.end - args.seeds.start == 1 {
        return one(&args);
    }
    many(&args)
}

fn one(args: &Args) -> ExitCode {
    let seed = args.seeds.start;
    println!("{}", args.options(seed));
    let report = guarded(args, seed, args.verbose);
    println!("{report}");
    for &situation in Situation::ALL.iter().filter(|s| report.situations.times(**s) > 0) {
        println!("  {} {}", situation.name(), report.situations.times(situation));
    }
    match &report.failure {
        Some(failure) => {
            println!("{}", failure.dump);
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

fn many(args: &Args) -> ExitCode {
    let begun = Instant::now();
    let next = AtomicU64::new(args.seeds.start);
    let reports: Mutex<BTreeMap<u64, Report>> = Mutex::new(BTreeMap::new());
    let failures = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= args.seeds.end || failures.load(Ordering::Relaxed) >= args.stop_after as u64 {
                        return;
                    }
                    let report = guarded(args, seed, false);
                    if report.failure.is_some() {
                        failures.fetch_add(1, Ordering::Relaxed);
                    }
                    if args.print || report.failure.is_some() {
                        println!("{report}");
                    }
                    reports.lock().expect("no panic while held").insert(seed, report);
                }
            });
        }
    });
    let reports = reports.into_inner().expect("no panic while held");
    let sum = |of: &dyn Fn(&Report) -> u64| reports.values().map(of).sum::<u64>();
    let failed = sum(&|r| u64::from(r.failure.is_some()));
    let asked = sum(&|r| r.share.committed + r.share.conflict + r.share.unknown).max(1);
    let mut healed: Vec<u64> = reports.values().filter(|r| r.failure.is_none()).map(|r| r.healed_in).collect();
    healed.sort_unstable();
    let at = |share: usize| healed.get(healed.len() * share / 100).copied().unwrap_or(0) as f64 / SEC as f64;
    println!(
        "{} seeds, {failed} failed, {:.1}s; virtual {}s, events {}, messages {}, terms {}, faults {}, copies {}, without data in the end {}; healed in {:.1}s median, {:.1}s 99%; \
         committed {} conflict {} refused {} withdrawn {} unknown {} ({:.1}%, {} ordered) reads {} failed {}",
        reports.len(),
        begun.elapsed().as_secs_f64(),
        sum(&|r| r.time) / SEC,
        sum(&|r| r.events),
        sum(&|r| r.messages),
        sum(&|r| r.terms),
        sum(&|r| r.faults),
        sum(&|r| r.copies),
        sum(&|r| u64::from(r.bare)),
        at(50),
        at(99),
        sum(&|r| r.share.committed),
        sum(&|r| r.share.conflict),
        sum(&|r| r.share.refused),
        sum(&|r| r.share.withdrawn),
        sum(&|r| r.share.unknown),
        100.0 * sum(&|r| r.share.unknown) as f64 / asked as f64,
        sum(&|r| r.share.unknown_ordered),
        sum(&|r| r.share.reads),
        sum(&|r| r.share.reads_failed),
    );
    let mut census = Census::default();
    reports.values().for_each(|r| census.add(&r.situations));
    print!("{}", census.table(args.kind));
    // A mutant keeps from happening what it breaks.
    let rare = if args.mutant.is_none() && failed == 0 { census.rare(args.kind) } else { Vec::new() };
    for situation in &rare {
        println!("TOO RARE: {}", situation.name());
    }
    if failed > 0 || !rare.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
