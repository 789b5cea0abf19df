//! Six faults on real servers, each found and named as an operator would: by `trireme status`, by `trireme top` and the dashboard while it lasts, and by
//! `trireme flight` afterwards.
//! Started for `PROVIDER=… cargo test -p trireme-cli --test faults -- --ignored` only; `$FIRST_PORT` moves the ports.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;
use trireme_cluster::{ClusterGuard, Disks, Endpoint, Node, NodeId, Spec, Stutter, disks_available};

const PATIENCE: Duration = Duration::from_secs(60);

fn trireme(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_trireme")).args(words).env("MYSQL_PWD", "look").output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Until `look` finds it; what it saw last, how often it looked, and how busy the machine was, is in the message.
fn until(what: &str, mut look: impl FnMut() -> Result<(), String>) {
    let (began, mut looks) = (Instant::now(), 0);
    while let Err(seen) = look() {
        looks += 1;
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let waited = began.elapsed();
        assert!(
            waited < PATIENCE,
            "waited for {what} in vain, for {waited:?} with {looks} looks, at a load of {load}{seen}"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

struct Bed {
    cluster: ClusterGuard,
    /// Of the server that is asked.
    host: String,
    /// `NAME=DIR` of every node.
    recorders: Vec<String>,
    /// The one that is asked, beside the first node.
    monitor: String,
    /// The records from before the present fault, without times.
    before: Vec<String>,
    _monitors: Vec<Process>,
}

/// A record without its times, which are set right anew each time.
fn words_of(row: &Value) -> String {
    let mut row = row.clone();
    for changing in ["unix_ns", "time", "clock_known"] {
        row.as_object_mut().unwrap().remove(changing);
    }
    row.to_string()
}

/// A line for each record.
fn texts(rows: &[Value]) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let one = |row: &Value| {
        format!("{} {} {}: {}\n", text(&row["time"]), row["nodes"], text(&row["kind"]), text(&row["text"]))
    };
    rows.iter().map(one).collect()
}

/// Is killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Clients of one node that write until they are dropped.
struct Writers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    fn start(endpoint: &Endpoint) -> Writers {
        let stop = Arc::new(AtomicBool::new(false));
        let one = |_| {
            let (stop, mut session) = (stop.clone(), endpoint.session_in(Some("d")).unwrap());
            thread::spawn(move || {
                while !stop.load(Relaxed) {
                    session.query("INSERT INTO t (x) VALUES ('meanwhile')").unwrap();
                }
            })
        };
        Writers { threads: (0..4).map(one).collect(), stop }
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Bed {
    fn sql(&self, node: NodeId, statement: &str) {
        self.cluster.sql(node, statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }

    /// `trireme status` shows all of these words.
    fn status_shows(&self, words: &[&str]) {
        until(&format!("status to show {words:?}"), || {
            let seen = trireme(&["status", "--host", &self.host, "--user", "look", "--timeout", "3"]);
            if words.iter().all(|word| seen.contains(word)) { Ok(()) } else { Err(seen) }
        });
    }

    /// `trireme top` shows all of these words. The dashboard gets the same from the same monitor.
    fn top_shows(&self, words: &[&str]) {
        until(&format!("top to show {words:?}"), || {
            let seen = trireme(&["top", "--once", "--monitor", &self.monitor]);
            if words.iter().all(|word| seen.contains(word)) { Ok(()) } else { Err(seen) }
        });
    }

    /// The list of events, as `trireme top` and the dashboard show it, has all of these.
    fn happened(&self, texts: &[&str]) {
        until(&format!("{texts:?} to have happened"), || {
            let seen = trireme(&["top", "--once", "--json", "--monitor", &self.monitor]);
            let json: Value = serde_json::from_str(&seen).unwrap_or_default();
            let told: Vec<&str> =
                json["changes"].as_array().into_iter().flatten().filter_map(|change| change["text"].as_str()).collect();
            if texts.iter().all(|text| told.iter().any(|told| told.contains(text))) {
                Ok(())
            } else {
                Err(told.join("\n"))
            }
        });
    }

    /// A fault begins now: what the recorders hold so far is none of its. Times do not tell, since `trireme flight` sets the clocks right by
    /// what all have recorded, and a node that a fault held up has recorded that late.
    fn begin(&mut self) {
        self.before = self.rows(&[]).iter().map(words_of).collect();
    }

    fn rows(&self, filter: &[&str]) -> Vec<Value> {
        let places: Vec<&str> = self.recorders.iter().map(String::as_str).collect();
        let seen = trireme(&[&["flight", "--json"][..], filter, &["--"], &places].concat());
        seen.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).collect()
    }

    /// The events of these kinds from that node that `trireme flight` shows since the fault began.
    fn flight(&self, node: &str, kinds: &str) -> Vec<Value> {
        let mut before = self.before.clone();
        let mut rows = self.rows(&["--kind", kinds, "--node", node]);
        rows.retain(|row| match before.iter().position(|words| *words == words_of(row)) {
            Some(at) => {
                before.swap_remove(at);
                false
            }
            None => true,
        });
        rows
    }

    /// `trireme flight` shows one of these kinds from that node, with these words in its sentence.
    fn flight_shows(&self, node: &str, kinds: &str, words: &str) {
        until(&format!("flight to show {kinds} of {node} with `{words}`"), || {
            let rows = self.flight(node, kinds);
            let shown = rows.iter().any(|row| row["text"].as_str().is_some_and(|text| text.contains(words)));
            if shown {
                Ok(())
            } else {
                Err(format!("{}\nAll that was recorded since the fault began:\n{}", texts(&rows), self.story()))
            }
        });
    }

    /// For messages: what all nodes have recorded since the fault began, but for what comes by the hundred.
    fn story(&self) -> String {
        let mut rows = self.rows(&[]);
        rows.retain(|row| {
            let frequent = ["asks-to-stop", "held-back", "conflict", "aborted"].iter().any(|kind| row["kind"] == *kind);
            !frequent && !self.before.contains(&words_of(row))
        });
        texts(&rows)
    }

    /// The sum of a metric over its labels and the first two nodes, as the monitors beside them serve it. Of the members the sequencer judges,
    /// and on a busy machine that may be either.
    fn metric(&self, name: &str) -> f64 {
        (0..2).map(|place| self.metric_of(place, name)).sum()
    }

    /// The same of one node.
    fn metric_of(&self, place: usize, name: &str) -> f64 {
        let port = self.monitor.rsplit(':').next().unwrap();
        let mut stream = TcpStream::connect(format!("{}:{port}", self.cluster.nodes()[place].address)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let own = |line: &&str| line.split(['{', ' ']).next() == Some(name);
        text.lines().filter(own).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Three nodes, and all of them synced.
    fn well(&self) {
        self.status_shows(&["3 of 3 voters are there", "any one of them may fail"]);
        until("all to be synced", || {
            let seen = trireme(&["status", "--host", &self.host, "--user", "look", "--timeout", "3"]);
            if seen.matches("Synced").count() == 3 { Ok(()) } else { Err(seen) }
        });
    }
}

#[test]
#[ignore = "starts real servers: PROVIDER=… cargo test -p trireme-cli --test faults -- --ignored"]
fn six_faults_are_found_and_named() {
    if let Err(error) = disks_available() {
        return eprintln!("skipped: {error}");
    }
    let top = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let provider = top.join(std::env::var("PROVIDER").expect("PROVIDER names the library"));
    let base_port: u16 = std::env::var("FIRST_PORT").ok().map_or(28_100, |text| text.parse().unwrap());
    let mut spec = Spec::new(provider, PathBuf::from(format!("/var/tmp/trireme-faults-{base_port}")))
        .option("innodb_flush_log_at_trx_commit=0");
    spec.base_port = base_port;
    spec.name = format!("faults-{base_port}");
    // A log of its own disk, with small segments, so that the next one is needed soon.
    spec.disks = Some(Disks::of_log(96));
    // Writers wait for a node with a locked table for as long as it takes to look.
    spec.provider_options = "gcache.size=32M; repl.flight_size=1M; gcs.fc_patience=PT5S".to_owned();
    let cluster = ClusterGuard::up(&spec, &mut |_| {}).unwrap();
    let [one, _, sick] = [1, 2, 3].map(|n| NodeId::new(n).unwrap());
    let nodes = cluster.nodes().to_vec();
    let host = format!("{}:{}", nodes[0].address, nodes[0].ports.sql);
    let recorders = nodes.iter().map(|node| format!("{}={}", node.name(), node.log_dir().display())).collect();
    let port = nodes[0].ports.sql + 50;
    let monitor = |node: &Node| {
        let (data, listen) = (node.data(), format!("{}:{port}", node.address));
        let mut command = Command::new(env!("CARGO_BIN_EXE_trireme"));
        command.args(["monitor", "--data-dir", data.to_str().unwrap(), "--listen", &listen]);
        Process(command.stdout(Stdio::null()).spawn().unwrap())
    };
    let monitors = nodes.iter().map(monitor).collect();
    let monitor = format!("{}:{port}", nodes[0].address);
    let mut bed = Bed { cluster, host, recorders, monitor, before: Vec::new(), _monitors: monitors };
    let (first, third) = (nodes[0].name(), nodes[2].name());
    let others = format!("{first},{}", nodes[1].name());
    let disk = bed.cluster.disk(sick).unwrap();
    bed.sql(one, "CREATE USER look@'%' IDENTIFIED BY 'look'");
    bed.sql(one, "CREATE DATABASE d");
    bed.sql(one, "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, x LONGTEXT)");
    bed.sql(one, "INSERT INTO d.t VALUES (1, 'here')");
    for node in &nodes {
        bed.sql(node.id, "SET GLOBAL wsrep_provider_options='repl.status_extended=yes'");
    }
    bed.well();

    // 1. A frozen node.
    bed.begin();
    let (silent, silences) = ("trireme_member_silent", "trireme_silences_total");
    let before = (bed.metric(silent), bed.metric(silences));
    bed.cluster.pause(sick).unwrap();
    bed.status_shows(&[&third, "silent", "2 of 3 voters are there"]);
    bed.top_shows(&["2 of 3 voters are there", &format!("{third} is not heard by the others")]);
    bed.happened(&[&format!("{third} was synced, is gone: the server tells nothing new")]);
    // The metrics that only a process that stands moves.
    until("the metrics of a silent member to rise", || {
        let now = (bed.metric(silent), bed.metric(silences));
        if now.0 > before.0 && now.1 > before.1 { Ok(()) } else { Err(format!("{before:?}, then {now:?}")) }
    });
    bed.flight_shows(&others, "silent", &third);
    bed.cluster.resume(sick).unwrap();
    bed.well();
    bed.flight_shows(&third, "stood-still", "the process did not run for");
    bed.flight_shows(&others, "heard", &third);

    // 2. A slow disk: writes and syncs wait for their turn. The majority commits without it and nobody is missing, and yet it is named.
    bed.begin();
    let slow = Stutter::of(disk.clone());
    let writers = Writers::start(&bed.cluster.endpoints()[0]);
    let named = format!("the disk of {third} is slow: in the last ten seconds it took ");
    bed.status_shows(&["3 of 3 voters are there", &named]);
    bed.top_shows(&["3 of 3 voters are there", &named]);
    until("the metric to tell", || {
        let longest = bed.metric_of(2, "trireme_log_sync_longest_seconds");
        if longest >= 0.1 { Ok(()) } else { Err(format!("{longest} s\n{}", bed.story())) }
    });
    bed.flight_shows(&third, "slow-sync", "for a write or a sync of the write-set log");
    drop(writers);
    drop(slow);
    bed.well();

    // And one that hangs. The node that waits for it does not say anything; the process runs, though, unlike before.
    bed.begin();
    disk.freeze().unwrap();
    bed.sql(one, "INSERT INTO d.t (x) VALUES ('while the disk hangs')");
    bed.status_shows(&[&third, "2 of 3 voters are there"]);
    bed.top_shows(&[&third, "the thread of the group has not answered", "look at the disk of its write-set log"]);
    disk.thaw().unwrap();
    bed.well();
    // As long as it was seen from outside, and it is told apart from a process that stood.
    until("flight to show what hung", || {
        let rows = bed.flight(&third, "slow-sync,sync-hangs,group-late");
        let long = rows.iter().any(|row| row["facts"]["time"].as_f64() >= Some(1.0));
        if long { Ok(()) } else { Err(format!("{rows:#?}")) }
    });
    let stood = bed.flight(&third, "stood-still");
    assert!(
        stood.iter().all(|row| row["facts"]["time"].as_f64() < Some(1.0)),
        "a process whose disk hung is said to have stood:\n{}\nAll that was recorded since the fault began:\n{}",
        texts(&stood),
        bed.story()
    );

    // 3. A locked table.
    bed.begin();
    let mut holder = bed.cluster.session(sick).unwrap();
    holder.query("LOCK TABLES d.t WRITE").unwrap();
    // More than a busy server has in its queue for a moment, from more clients than a quarter of the former pace is enough for.
    let writers = Writers::start(&bed.cluster.endpoints()[0]);
    bed.top_shows(&[&format!("{first} waits for {third} (")]);
    drop(writers);
    for _ in 0..100 {
        bed.sql(one, "INSERT INTO d.t (x) VALUES ('behind the lock')");
    }
    bed.flight_shows(&third, "applies-nothing", "a lock");
    bed.status_shows(&[&format!("{third} has "), "write sets to apply", "a locked table"]);
    bed.top_shows(&[&format!("{third} has "), "write sets to apply", "a locked table"]);
    drop(holder);
    bed.flight_shows(&third, "applies-again", "applies again");
    bed.well();

    // 4. Cut off from the others.
    bed.begin();
    bed.sql(sick, "SET GLOBAL wsrep_provider_options='gmcast.isolate=1'");
    bed.status_shows(&[&third, "2 of 3 voters are there"]);
    bed.top_shows(&["2 of 3 voters are there", &format!("{third} is not in the primary component")]);
    bed.happened(&[&format!("{third} was synced, is unfit: not in the primary component")]);
    bed.flight_shows(&third, "non-primary", "the majority is lost");
    bed.flight_shows(&first, "link-down", &third);
    bed.flight_shows(&third, "option", "gmcast.isolate = 1");
    bed.sql(sick, "SET GLOBAL wsrep_provider_options='gmcast.isolate=0'");
    bed.well();

    // 5. A full disk.
    bed.begin();
    disk.fill_up().unwrap();
    let large = "INSERT INTO d.t (x) VALUES (REPEAT('x', 500000))";
    until("the node to leave", || {
        bed.sql(one, large);
        let seen = trireme(&["status", "--host", &bed.host, "--user", "look", "--timeout", "3"]);
        if seen.contains("2 of 3 voters are there") { Ok(()) } else { Err(seen) }
    });
    // The file had its full size before.
    bed.flight_shows(&third, "log-failed", "No space left on device");
    bed.top_shows(&[&format!("{third}: out of the group until the disk with its write-set log works")]);
    disk.make_room().unwrap();
    bed.flight_shows(&third, "log-works", "works again");
    bed.well();

    // 6. A row that differs.
    bed.begin();
    let mut alone = bed.cluster.session(sick).unwrap();
    alone.query("SET SESSION wsrep_on=OFF").unwrap();
    alone.query("DELETE FROM d.t WHERE id=1").unwrap();
    bed.sql(one, "UPDATE d.t SET x='there' WHERE id=1");
    // The others have a view without it, and so do not name it: it is asked itself.
    bed.host = format!("{}:{}", nodes[2].address, nodes[2].ports.sql);
    bed.status_shows(&[&third, "Inconsistent"]);
    bed.top_shows(&[
        "degraded: ",
        "2 of 2 voters are there",
        &format!("{third}: Inconsistent: its data are not the group's"),
    ]);
    bed.happened(&[&format!("{third} is Inconsistent")]);
    bed.flight_shows(&third, "inconsistent", "");
    bed.flight_shows(&first, "vote-begun", "failed to apply");
    println!(
        "{}",
        trireme(
            &[&["flight", "--trouble"][..], &bed.recorders.iter().map(String::as_str).collect::<Vec<_>>()].concat()
        )
    );
}
