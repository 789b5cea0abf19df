//! `trireme bench` as a user has it: what it refuses, and every experiment in its tiny preset on real servers. The tests
//! look at the shape of the results and at whether they fit together, not at speeds.

use serde_json::Value;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use trireme_bench::OTHERS_MOST;

const BASE_PORT: u16 = 23_400;

fn bench(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trireme"));
    command.arg("bench").args(words).stdin(Stdio::null());
    command
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Exit code and everything that was printed.
fn run(words: &[&str]) -> (Option<i32>, String) {
    let output = bench(words).output().unwrap();
    (output.status.code(), said(&output))
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("trireme-bench-test-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn refuses_what_cannot_be_measured() {
    let scratch = Scratch::new("refusals");
    let library = scratch.path("lib.so");
    std::fs::write(&library, "no library").unwrap();
    for (words, code, reason) in [
        (&["insert", "--systems", "oracle"][..], 2, "invalid value 'oracle'"),
        (&["insert", "--nodes", "0"], 2, "0 is not in 1..=9"),
        (&["insert", "--scale", "0"], 2, "a number above 0"),
        (&["oltp", "--threads", "0"], 2, "0 is not in"),
        (&["insert", "--systems", "etcd"], 1, "nothing to measure"),
        (&["ratio", "--threads", "8"], 1, "--threads changes nothing in ratio"),
        (&["peers", "--rows", "8"], 1, "--rows changes nothing in peers"),
        (&["durability", "--systems", "galera-1"], 1, "nothing to measure"),
        (&["insert", "--systems", "plain,etcd"], 1, "insert does not measure etcd"),
        (&["insert", "--provider", "/no/such/lib.so"], 1, "build it with"),
        (&["insert", "--provider", &library, "--galera", "/no/such/galera.so"], 1, "there is no such file"),
        (&["insert", "--provider", &library, "--base-port", "80"], 1, "between 1024 and 65535"),
        (
            &["peers", "--provider", &library, "--systems", "mysql-gr-1", "--mysql-root", &scratch.path("")],
            1,
            "mysql-gr-1: ",
        ),
        (&["report", "/no/such/run"], 1, "holds no run"),
        (&["report", "/no/such/run", "--to", "/tmp/file"], 1, "comparison of several runs"),
    ] {
        let (got, text) = run(words);
        assert_eq!(got, Some(code), "{words:?}: {text}");
        assert!(text.contains(reason), "{words:?}: {text}");
    }
}

#[test]
fn a_plan_is_shown_without_a_server() {
    let (code, text) = run(&["all", "--plan"]);
    assert_eq!(code, Some(0), "{text}");
    for experiment in EXPERIMENTS {
        assert!(text.lines().any(|line| line.starts_with(experiment)), "{experiment}: {text}");
    }
    for preset in ["quick", "report"] {
        let (code, text) = run(&["all", "--preset", preset, "--plan"]);
        assert_eq!(code, Some(0), "{text}");
        let last = text.lines().last().unwrap();
        let minutes = last.split(' ').nth(3).and_then(|word| word.parse::<f64>().ok()).unwrap();
        assert!((15.0..=30.0).contains(&minutes), "{preset} takes less than half an hour: {last}");
    }
}

/// The port is asked for before anything is started, and a missing tool too.
#[test]
fn a_taken_port_and_a_missing_tool_are_told() {
    if !Path::new("/usr/sbin/mariadbd").exists() {
        return println!("skipped: there is no mariadbd");
    }
    let scratch = Scratch::new("port");
    let library = scratch.path("lib.so");
    std::fs::write(&library, "no library").unwrap();
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().min(65_000);
    let (dir, out) = (scratch.path("dir"), scratch.path("out"));
    let words = [
        "ratio",
        "--preset",
        "tiny",
        "--provider",
        &library,
        "--dir",
        &dir,
        "--out",
        &out,
        "--base-port",
        &port.to_string(),
    ];
    let (code, text) = run(&words);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("is in use: choose another --base-port"), "{text}");
    assert!(!Path::new(&out).exists(), "nothing was begun");
    // Programs are also looked for where Debian keeps servers, whatever the path is.
    if !Path::new("/usr/bin/sysbench").exists() {
        let (code, text) = run(&["oltp", "--preset", "tiny", "--provider", &library, "--out", &out]);
        assert!(code == Some(1) && text.contains("apt-get install sysbench"), "{text}");
    }
}

const EXPERIMENTS: [&str; 8] = ["insert", "ratio", "oltp", "tpcc", "durability", "peers", "faults", "provider"];

fn points(out: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(out.join("points")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "json")).collect()
}

/// One run: interrupted, gone on with, looked at, repeated, compared.
#[test]
#[ignore = "starts servers"]
fn every_experiment_gives_results_that_fit_together() {
    let provider = std::env::var("PROVIDER").expect("PROVIDER names the library");
    let provider =
        std::path::absolute(if Path::new(&provider).exists() { provider } else { format!("../../{provider}") })
            .unwrap();
    let scratch = Scratch::new("all");
    let (out, dir) = (scratch.0.join("run"), format!("/var/tmp/trireme-bench-test-{BASE_PORT}"));
    let (provider, port, shown) = (provider.display().to_string(), BASE_PORT.to_string(), out.display().to_string());
    let mut words =
        vec!["all", "--preset", "tiny", "--provider", &provider, "--out", &shown, "--base-port", &port, "--dir", &dir];
    let systems = std::env::var("SYSTEMS").unwrap_or_default();
    if !systems.is_empty() {
        words.extend(["--systems", &systems]);
    }

    let mut first = bench(&words).stderr(Stdio::inherit()).stdout(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while points(&out).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(300), "no point after five minutes");
        assert!(first.try_wait().unwrap().is_none(), "it ended before its first point");
        std::thread::sleep(Duration::from_millis(20));
    }
    let interrupted = Command::new("kill").args(["-INT", &first.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    assert_eq!(first.wait().unwrap().code(), Some(130), "Ctrl-C");
    let kept = points(&out);
    assert!(!kept.is_empty() && out.join("report.md").exists(), "what is done is kept, and reported");
    let before: Vec<_> = kept.iter().map(|path| std::fs::read(path).unwrap()).collect();

    let other = bench(&[&words[..], &["--duration", "0.6"]].concat()).output().unwrap();
    assert_eq!(other.status.code(), Some(1), "other settings, same place");
    assert!(said(&other).contains("other settings"), "{}", said(&other));

    let rest = bench(&words).stderr(Stdio::inherit()).stdout(Stdio::null()).status().unwrap();
    let text = std::fs::read_to_string(out.join("report.md")).unwrap();
    assert_eq!(rest.code(), Some(0), "{text}");
    assert_eq!(kept.iter().map(|path| std::fs::read(path).unwrap()).collect::<Vec<_>>(), before, "no point twice");

    look_at(&out, &text);

    let again = bench(&words).output().unwrap();
    assert_eq!(again.status.code(), Some(0), "{}", said(&again));
    assert!(said(&again).contains("0 measured, 0 failed"), "all was there: {}", said(&again));
    let (code, compared) = run(&["report", &shown, &shown]);
    assert!(code == Some(0) && compared.contains("in units of plain"), "{compared}");
    assert!(!Path::new(&dir).exists(), "nothing of the servers is left");
}

/// A number that must be there in every point that was measured, of each experiment.
const MAIN: [(&str, &[&str]); 8] = [
    ("insert", &["rows_per_s", "rows"]),
    ("ratio", &["transactions_per_s", "selects_per_s", "updates_per_s", "connections", "p95_ms"]),
    ("oltp", &["transactions_per_s", "mean_ms", "p95_ms", "servers_cpu_us_per_transaction"]),
    ("tpcc", &["notpm", "load_s", "mean_ms", "payment_per_s"]),
    ("durability", &["transactions_per_s", "p95_ms"]),
    ("peers", &["commits_per_s_8", "p50_ms_8", "cpu_us_8", "acknowledged", "gap_one_s", "gap_chief_s"]),
    (
        "faults",
        &["quiet_commits_per_s", "gap_kill_s", "gap_kill_chief_s", "gap_kill_all_s", "acknowledged", "back_kill_s"],
    ),
    ("provider", &["commits_per_s", "p50_us", "cpu_us_per_commit"]),
];

fn look_at(out: &Path, text: &str) {
    let records: Vec<Value> =
        points(out).iter().map(|path| serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()).collect();
    for (experiment, names) in MAIN {
        let of = records.iter().filter(|record| record["point"]["experiment"] == experiment);
        let measured: Vec<&Value> = of.clone().filter(|record| record["outcome"] == "measured").collect();
        let skipped: Vec<&Value> = of.filter(|record| record["outcome"]["skipped"].is_string()).collect();
        // Systems of others may be missing here. Ours may not, and so no experiment.
        for record in skipped {
            println!("{experiment} {}: left out: {}", record["point"]["system"], record["outcome"]["skipped"]);
        }
        assert!(
            measured
                .iter()
                .any(|record| record["point"]["system"].as_str().is_some_and(|name| name.starts_with("trireme"))),
            "{experiment} is missing"
        );
        for name in names {
            let of = |record: &Value| record["values"][name].as_f64().unwrap_or_else(|| panic!("{name}: {record}"));
            assert!(measured.iter().any(|record| of(record) > 0.0), "{experiment}: {name} is 0 everywhere");
            for record in &measured {
                // A server whose disk others keep busy may commit nothing in a second.
                let disturbed = record["others_percent"].as_f64().is_some_and(|percent| percent > OTHERS_MOST);
                assert!(of(record) > 0.0 || disturbed && of(record) == 0.0, "{name}: {record}");
            }
        }
        for record in &measured {
            if let (Some(p50), Some(p99)) = (record["values"]["p50_ms"].as_f64(), record["values"]["p99_ms"].as_f64()) {
                assert!(p50 <= p99, "{record}");
            }
        }
    }
    for record in records.iter().filter(|record| record["outcome"] == "measured") {
        let system = record["point"]["system"].as_str().unwrap();
        let lost = ["lost", "lost_chief"].map(|name| record["values"][name].as_f64().unwrap_or(0.0));
        assert!(lost == [0.0, 0.0] || !system.starts_with("trireme"), "{record}");
        assert!(record["others_percent"].is_f64(), "the work of others is told everywhere: {record}");
    }
    for what in ["galera", "semisync-1", "async-0"] {
        assert!(
            records
                .iter()
                .any(|r| r["outcome"] == "measured"
                    && r["point"]["system"].as_str().is_some_and(|s| s.starts_with(what))),
            "{what}"
        );
    }
    let statements = records.iter().filter(|record| record["point"]["set"]["write_sets"] == "statements");
    assert!(statements.clone().any(|record| record["outcome"] == "measured"), "no write sets as statements");
    let figures = text.lines().filter_map(|line| Some(line.strip_suffix(".svg)")?.split_once("](")?.1));
    for figure in figures {
        for ending in ["svg", "png"] {
            let file = out.join(format!("{figure}.{ending}"));
            assert!(std::fs::metadata(&file).is_ok_and(|data| data.len() > 2000), "{}", file.display());
        }
    }
    for heading in [
        "## Inserts",
        "## Faults",
        "## Providers alone",
        "an acknowledgement means",
        "## Settings",
        "Every MariaDB server is told this",
        "SHA-256",
        "What durability costs",
        "The scale model",
        "all-but-binlog",
        "sequencer killed: node",
    ] {
        assert!(text.contains(heading), "{heading}: {text}");
    }
    let csv = std::fs::read_to_string(out.join("results.csv")).unwrap();
    assert!(csv.lines().count() > records.len(), "{csv}");
}

/// A share of the processor and a disk for each node. The scale model needs them.
#[test]
#[ignore = "starts servers"]
fn nodes_have_their_share_of_the_processor_and_a_disk() {
    if Command::new("id").arg("-u").output().unwrap().stdout != b"0\n" {
        return println!("skipped: shares and disks need root");
    }
    let provider = std::env::var("PROVIDER").expect("PROVIDER names the library");
    let provider =
        std::path::absolute(if Path::new(&provider).exists() { provider } else { format!("../../{provider}") })
            .unwrap();
    let scratch = Scratch::new("share");
    let (out, dir, provider) = (scratch.path("out"), scratch.path("dir"), provider.display().to_string());
    let words = [
        "ratio",
        "--preset",
        "tiny",
        "--systems",
        "trireme-disk",
        "--write-sets",
        "rows",
        "--nodes",
        "1,2",
        "--cpu-per-node",
        "0.4",
        "--disks",
        "separate",
        "--provider",
        &provider,
        "--out",
        &out,
        "--dir",
        &dir,
        "--base-port",
        "23850",
    ];
    let (code, text) = run(&words);
    if text.contains("cannot be had here") {
        return println!("skipped: {text}");
    }
    assert_eq!(code, Some(0), "{text}");
    let report = std::fs::read_to_string(Path::new(&out).join("report.md")).unwrap();
    assert!(report.contains("has 0.4 processors at most") && report.contains("The scale model"), "{report}");
    for path in points(Path::new(&out)) {
        let record: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let (rate, cpu) =
            (&record["values"]["transactions_per_s"], &record["values"]["servers_cpu_us_per_transaction"]);
        let cores = rate.as_f64().unwrap() * cpu.as_f64().unwrap() / 1e6;
        let share = 0.4 * record["point"]["nodes"].as_f64().unwrap();
        assert!(cores < share * 1.25, "{cores} cores used of {share}: {record}");
    }
}

/// A library that is none breaks its own points, and no other.
#[test]
#[ignore = "needs a provider"]
fn a_broken_point_is_reported_and_the_rest_goes_on() {
    let provider = std::env::var("PROVIDER").expect("PROVIDER names the library");
    let provider =
        std::path::absolute(if Path::new(&provider).exists() { provider } else { format!("../../{provider}") })
            .unwrap();
    let scratch = Scratch::new("broken");
    let (garbage, out, dir) = (scratch.path("garbage.so"), scratch.path("out"), scratch.path("dir"));
    std::fs::write(&garbage, "no library").unwrap();
    let library = format!("broken={garbage}");
    // And what measuring costs is in the report.
    let provider = provider.display().to_string();
    let words = [
        "provider",
        "--preset",
        "tiny",
        "--provider",
        &provider,
        "--unmeasured",
        "--library",
        &library,
        "--out",
        &out,
        "--dir",
        &dir,
        "--base-port",
        "23650",
    ];
    let (code, text) = run(&words);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("FAILED: broken node 0"), "{text}");
    let report = std::fs::read_to_string(Path::new(&out).join("report.md")).unwrap();
    assert!(
        report.contains("| trireme-process | 2 |")
            && report.contains("| trireme-process-unmeasured | 2 |")
            && report.contains("in units of the same without metrics and flight recorder")
            && report.contains("broken, 2 nodes")
            && report.contains("failed:"),
        "{report}"
    );
}
