//! `trireme-sim`: runs seeds. A seed and a commit reproduce a run exactly.
//!
//! Exit status: 0 all seeds held, and they met what they are to meet; 1 a seed failed, or a situation arose too seldom or too often, or a mutant was
//! noticed too seldom; 2 wrong usage.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use trireme_sim::mutants::{Form, Found, HEAD, KNOWN, Known};
use trireme_sim::{Census, Failure, Kind, Options, Report, SEC, Situation};
use trireme_types::panic_text;

const USAGE: &str = "usage: trireme-sim --seed N [--kind KIND] [--mutant NAME] [--verbose]
       trireme-sim --seeds A..B [--kind KIND] [--mutant NAME] [--jobs J] [--stop-after F] [--print]
       trireme-sim --mutants [--long] [--mutant NAME] [--jobs J] [--table FILE]

  --seed N        one run; prints its options, its verdict and, when it fails, every node's state
  --verbose       a line per event on standard error
  --seeds A..B    runs seeds A to B-1; prints one line per failure and a summary
  --jobs J        threads (default 1); results do not depend on it
  --kind KIND     swarm (default): anything may happen; harmless: only what must pass without a view or a refusal;
                  restored: old copies of disks are put back; large: records that are written in pieces;
                  hostile: a node lies
  --mutant NAME   breaks one rule on purpose (docs/testing.md lists them); a seed that fails has caught it
  --mutants       looks for every mutant until it is noticed; fails when that takes more runs than its floor allows
  --long          … until it is noticed 50 times, in up to 10,000 runs, and says how often that is
  --table FILE    writes the table of mutants in this document anew, with what was found
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
    /// All mutants are looked for.
    mutants: Option<Form>,
    table: Option<String>,
}

impl Args {
    fn options(&self, seed: u64) -> Options {
        let mut options = Options::of(self.kind, seed);
        if let Some(name) = &self.mutant {
            options.break_by_name(name);
        }
        options
    }
}

fn parse() -> Result<Args, String> {
    let mut args = Args {
        seeds: 0..0,
        jobs: 1,
        verbose: false,
        print: false,
        stop_after: 20,
        kind: Kind::Swarm,
        mutant: None,
        mutants: None,
        table: None,
    };
    let (mut mutants, mut long) = (false, false);
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
                let name = value()?;
                args.kind = *Kind::ALL.iter().find(|kind| kind.name() == name).ok_or(format!("no kind {name}"))?;
            }
            "--mutants" => mutants = true,
            "--long" => long = true,
            "--table" => args.table = Some(value()?),
            "--verbose" => args.verbose = true,
            "--print" => args.print = true,
            other => return Err(format!("unknown argument {other}")),
        }
    }
    if mutants {
        args.mutants = Some(if long { Form::Long } else { Form::Short });
        if args.table.is_some() && args.mutant.is_some() {
            return Err("--table is made of all mutants".into());
        }
    } else if long || args.table.is_some() {
        return Err("--long and --table belong to --mutants".into());
    } else if args.seeds.is_empty() {
        return Err("no seeds".into());
    }
    Ok(args)
}

/// A panic of the core is a failure of the seed, not of the simulator.
fn guarded(args: &Args, seed: u64, trace: bool) -> Report {
    match std::panic::catch_unwind(|| trireme_sim::run(args.options(seed), trace)) {
        Ok(report) => report,
        Err(payload) => {
            let text = panic_text(&*payload);
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
    // A mutant is to panic.
    let wanted = std::env::var_os("RUST_BACKTRACE").is_some() && args.mutants.is_none();
    let loud = args.verbose || wanted;
    std::panic::set_hook(Box::new(move |info| {
        PANIC.with(|p| *p.borrow_mut() = info.location().map(|l| l.to_string()).unwrap_or_default());
        if loud {
            eprintln!("{info}\n{}", std::backtrace::Backtrace::force_capture());
        }
    }));
    if let Some(form) = args.mutants {
        return mutants(&args, form);
    }
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
    // A mutant keeps situations from arising.
    let sound = args.mutant.is_none() && failed == 0;
    let (rare, frequent) = if sound { (census.rare(args.kind), census.frequent()) } else { Default::default() };
    for situation in &rare {
        println!("TOO RARE: {}", situation.name());
    }
    for situation in &frequent {
        println!("TOO FREQUENT: {}", situation.name());
    }
    if failed > 0 || !rare.is_empty() || !frequent.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn mutants(args: &Args, form: Form) -> ExitCode {
    let begun = Instant::now();
    let wanted = |known: &&Known| args.mutant.as_ref().is_none_or(|name| name == known.name);
    let mut known: Vec<&Known> = KNOWN.iter().filter(wanted).collect();
    // The rare ones take longest, so they come first.
    known.sort_by_key(|known| known.floor());
    let (next, tried, failed) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let found: Mutex<BTreeMap<&str, Found>> = Mutex::new(BTreeMap::new());
    println!("{:<22} {:>8} {:>8} {:>10}", "mutant", "noticed", "of runs", "of 100,000");
    std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            scope.spawn(|| {
                while let Some(known) = known.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = known.search(form);
                    tried.fetch_add(u64::from(outcome.is_some()), Ordering::Relaxed);
                    if !tell(known, &outcome) {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                    let Some(Ok(one)) = outcome else { continue };
                    found.lock().expect("no panic while held").insert(known.name, one);
                }
            });
        }
    });
    let (found, mut failed) = (found.into_inner().expect("no panic while held"), failed.into_inner());
    if let Some(path) = &args.table {
        if let Err(text) = write_table(path, &found) {
            println!("{path}: {text}");
            failed += 1;
        }
    }
    println!("{} mutants, {failed} failed, {:.1}s", tried.into_inner(), begun.elapsed().as_secs_f64());
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// A line about a mutant; `false`: it is not noticed as often as it has to be.
fn tell(known: &Known, outcome: &Option<Result<Found, String>>) -> bool {
    let name = known.name;
    match outcome {
        None => println!("{name:<22} not looked for here"),
        Some(Ok(found)) => {
            let (noticed, runs, rate) = (found.noticed, found.runs, found.rate());
            let text: String = found.text.chars().take(90).collect();
            println!("{name:<22} {noticed:>8} {runs:>8} {rate:>10}  {text}");
            if !found.enough {
                println!("TOO RARE: {name}");
                return false;
            }
        }
        Some(Err(text)) => {
            println!("{text}");
            return false;
        }
    }
    true
}

/// The table of mutants in a document is written anew.
fn write_table(path: &str, found: &BTreeMap<&str, Found>) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let (before, table) = text.split_once(HEAD).ok_or("there is no table of mutants in it")?;
    let behind: String = table.split_inclusive('\n').skip(1).skip_while(|line| line.starts_with('|')).collect();
    let none = Found { noticed: 0, runs: 0, text: String::new(), enough: false };
    let rows: Vec<String> = KNOWN.iter().map(|known| known.row(found.get(known.name).unwrap_or(&none))).collect();
    std::fs::write(path, format!("{before}{HEAD}\n{}\n{behind}", rows.join("\n"))).map_err(|e| e.to_string())
}
