//! Real servers behind a balancer. They are started for `PROVIDER=… cargo test -p trireme-cli --test balance -- --ignored
//! --test-threads 1` only; `$FIRST_PORT` moves their ports.
//!
//! The measure is what a client sees: how long no write succeeded. The limit is one second on a machine that does nothing
//! else; `$GAP_LIMIT_MS` sets another for one that does.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use trireme_cluster::{ClusterGuard, NodeId, Session, Spec, Start, Stop};

use crate::support::*;

const WRITER: &str = "writer";
const READER: &str = "reader";
const CLIENTS: usize = 4;

pub struct Bed {
    pub place: Place,
    pub cluster: ClusterGuard,
}

impl Bed {
    /// Three servers with an account for clients that come by TCP.
    pub fn up(index: u16) -> Bed {
        // As it is written in the repository's top directory.
        let top = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let provider = top.join(std::env::var("PROVIDER").expect("PROVIDER names the library"));
        Bed::with(provider, index)
    }

    fn with(provider: PathBuf, index: u16) -> Bed {
        Bed::of(index, |spec| spec.provider = provider)
    }

    fn of(index: u16, change: impl FnOnce(&mut Spec)) -> Bed {
        let first: u16 = std::env::var("FIRST_PORT").ok().map_or(27000, |text| text.parse().unwrap());
        let base_port = first + 100 * index;
        let mut spec = Spec::new(PathBuf::new(), PathBuf::from(format!("/var/tmp/trireme-balance-{base_port}")))
            .option("innodb_flush_log_at_trx_commit=0");
        spec.base_port = base_port;
        spec.name = format!("balance-{base_port}");
        change(&mut spec);
        let cluster = ClusterGuard::up(&spec, &mut |_| {}).unwrap();
        let id = NodeId::new(1).unwrap();
        cluster.sql(id, "CREATE USER root@'127.%'").unwrap();
        cluster.sql(id, "GRANT ALL ON *.* TO root@'127.%' WITH GRANT OPTION").unwrap();
        cluster.sql(id, "CREATE DATABASE d").unwrap();
        cluster.sql(id, "CREATE TABLE d.t (id BIGINT PRIMARY KEY AUTO_INCREMENT, c VARCHAR(40) UNIQUE)").unwrap();
        Bed { place: Place::new(), cluster }
    }

    /// It knows one of them, and finds the others.
    fn balance(&self, words: &str) -> Balancer {
        let (writer, reader) = (self.place.path(WRITER), self.place.path(READER));
        let balancer = Balancer::start(
            &self.place,
            &format!("--nodes {} --writer {writer} --reader {reader} {words}", self.address()),
        );
        match self.cluster.provider().to_string_lossy().contains("galera") {
            true => await_that("all three are ready", || ready(&balancer) == 3),
            false => await_settled(&balancer),
        }
        balancer
    }

    fn address(&self) -> String {
        let node = &self.cluster.nodes()[0];
        format!("{}:{}", node.address, node.ports.sql)
    }

    fn session(&self, listener: &str) -> Session {
        Session::open(&PathBuf::from(self.place.path(listener)), Some("d"), Duration::from_secs(20)).unwrap()
    }

    /// On which node a session of this listener is.
    fn node_behind(&self, listener: &str) -> NodeId {
        let name = self.session(listener).query("SELECT @@wsrep_node_name").unwrap().text().unwrap();
        name.parse().unwrap()
    }
}

fn ready(balancer: &Balancer) -> usize {
    balancer.status()["nodes"].as_array().unwrap().iter().filter(|n| n["state"] == "ready").count()
}

/// All three are ready, and the writer is the one that orders.
fn await_settled(balancer: &Balancer) {
    await_that("all three are ready and the sequencer is the writer", || {
        let nodes = balancer.status()["nodes"].clone();
        ready(balancer) == 3 && nodes.as_array().unwrap().iter().any(|n| n["writer"] == true && n["sequencer"] == true)
    });
}

/// Clients that write through one listener and connect again at once after each error.
struct Load {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    errors: Arc<Mutex<BTreeMap<String, u32>>>,
    threads: Vec<JoinHandle<Outcome>>,
}

struct Outcome {
    /// When writes were acknowledged.
    times: Vec<Instant>,
    rows: Vec<String>,
}

impl Load {
    /// `round` keeps the rows apart from those of other loads.
    fn start(bed: &Bed, round: &'static str) -> Load {
        let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let errors = Arc::new(Mutex::new(BTreeMap::new()));
        let threads = (0..CLIENTS)
            .map(|client| {
                let socket = PathBuf::from(bed.place.path(WRITER));
                let (stop, written, errors) = (stop.clone(), written.clone(), errors.clone());
                std::thread::spawn(move || write(&socket, &format!("{round}-{client}"), &stop, &written, &errors))
            })
            .collect();
        let load = Load { stop, written, errors, threads };
        load.progress(20);
        load
    }

    fn progress(&self, rows: u64) {
        let target = self.written.load(Ordering::Relaxed) + rows;
        await_that("clients write", || self.written.load(Ordering::Relaxed) >= target);
    }

    /// The longest time in which none of the clients wrote anything; every acknowledged row must be there.
    fn end(self, bed: &Bed) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        let mut times = Vec::new();
        let mut rows = Vec::new();
        for thread in self.threads {
            let outcome = thread.join().unwrap();
            times.extend(outcome.times);
            rows.extend(outcome.rows);
        }
        times.sort();
        let gap = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        let mut session = bed.session(READER);
        session.query("SET SESSION wsrep_sync_wait = 1").unwrap();
        let there = session.query("SELECT c FROM t").unwrap().texts().concat();
        let there: BTreeSet<String> = there.into_iter().collect();
        let lost: Vec<&String> = rows.iter().filter(|row| !there.contains(*row)).collect();
        assert!(lost.is_empty(), "{} of {} acknowledged rows are lost", lost.len(), rows.len());
        let errors = self.errors.lock().unwrap();
        println!("{} rows, {} errors, longest gap {gap:?}", rows.len(), errors.len());
        for (error, times) in errors.iter() {
            println!("    {times} times {error}");
        }
        gap
    }
}

fn write(
    socket: &std::path::Path,
    client: &str,
    stop: &AtomicBool,
    written: &AtomicU64,
    errors: &Mutex<BTreeMap<String, u32>>,
) -> Outcome {
    let mut outcome = Outcome { times: Vec::new(), rows: Vec::new() };
    let mut session: Option<Session> = None;
    for n in 0u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let opened = match session.take() {
            Some(session) => Ok(session),
            None => Session::open(socket, Some("d"), Duration::from_secs(20)),
        };
        let row = format!("{client}-{n}");
        let result = opened.and_then(|mut open| {
            open.query(&format!("INSERT INTO t (c) VALUES ('{row}')"))?;
            Ok(open)
        });
        match result {
            Ok(open) => {
                session = Some(open);
                outcome.times.push(Instant::now());
                outcome.rows.push(row);
                written.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                *errors.lock().unwrap().entry(error.to_string()).or_default() += 1;
                // An error may be immediate; nobody is helped by a thousand of them in a second.
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    outcome
}

fn assert_gap(what: &str, gap: Duration) {
    let limit = std::env::var("GAP_LIMIT_MS").ok().map_or(1000, |text| text.parse().unwrap());
    assert_gap_below(what, gap, Duration::from_millis(limit));
}

fn assert_gap_below(what: &str, gap: Duration, limit: Duration) {
    println!("{what}: {gap:?}");
    assert!(gap < limit, "{what}: nobody wrote for {gap:?}");
}

/// Galera's group goes on after evs.suspect_timeout (5 s), and a machine with other work adds to it.
const GALERA_GAP: Duration = Duration::from_secs(15);

#[test]
#[ignore = "starts real servers"]
fn clients_survive_what_happens_to_servers() {
    let mut bed = Bed::up(0);
    let balancer = bed.balance("");
    // Everybody was found, and the writer is the one that orders.
    let role = |bed: &Bed, id| bed.cluster.sql(id, "SHOW STATUS LIKE 'wsrep_trireme_role'").unwrap().rows[0][1].clone();
    let writer = bed.node_behind(WRITER);
    assert_eq!(role(&bed, writer).as_deref(), Some(&b"sequencer"[..]));
    assert_ne!(bed.node_behind(READER), writer);

    let load = Load::start(&bed, "killed");
    bed.cluster.kill(writer).unwrap();
    load.progress(100);
    let gap = load.end(&bed);
    let second = bed.node_behind(WRITER);
    assert_ne!(second, writer);
    assert_gap("the writer was killed", gap);

    bed.cluster.start(writer, Start::Recover, &mut |_| {}).unwrap();
    await_settled(&balancer);
    assert_eq!(bed.node_behind(WRITER), second, "no failback");

    let load = Load::start(&bed, "frozen");
    bed.cluster.pause(second).unwrap();
    load.progress(100);
    let gap = load.end(&bed);
    bed.cluster.resume(second).unwrap();
    assert_gap("the writer was frozen", gap);
    await_settled(&balancer);

    // Everyone in turn.
    let load = Load::start(&bed, "restarted");
    for id in bed.cluster.ids() {
        bed.cluster.stop(id, Stop::Graceful).unwrap();
        bed.cluster.start(id, Start::Recover, &mut |_| {}).unwrap();
        await_settled(&balancer);
        load.progress(50);
    }
    let gap = load.end(&bed);
    assert_gap("all were restarted in turn", gap);
}

#[test]
#[ignore = "starts real servers"]
fn without_a_majority_sessions_end_and_clients_are_held() {
    let mut bed = Bed::up(1);
    let balancer = bed.balance("--hold 20s");
    let ids = bed.cluster.ids();
    let left = bed.node_behind(WRITER);
    let others: Vec<NodeId> = ids.into_iter().filter(|id| *id != left).collect();
    let mut session = bed.session(WRITER);
    session.query("SELECT 1").unwrap();
    for id in &others {
        bed.cluster.kill(*id).unwrap();
    }
    let killed = Instant::now();
    await_that("the session ended", || session.query("SELECT 1").is_err());
    let ended = killed.elapsed();
    await_that("nobody is ready", || ready(&balancer) == 0);
    // Far ahead of Galera's timeouts, after which the server calls itself non-primary.
    println!("without a majority: the session ended after {ended:?}, nobody was ready after {:?}", killed.elapsed());
    assert_gap("the majority was killed", ended);
    let held = {
        let socket = PathBuf::from(bed.place.path(WRITER));
        std::thread::spawn(move || {
            Session::open(&socket, Some("d"), Duration::from_secs(60))
                .and_then(|mut s| s.query("INSERT INTO t (c) VALUES ('held')"))
        })
    };
    await_that("the client waits", || balancer.status()["totals"]["held"].as_u64().unwrap() >= 1);
    bed.cluster.start(others[0], Start::Recover, &mut |_| {}).unwrap();
    held.join().unwrap().expect("it was held until there was a majority again");
}

/// A session whose reads and writes are on two servers.
#[test]
#[ignore = "starts real servers"]
fn a_split_session_reads_its_own_writes_and_outlives_its_writer() {
    let mut bed = Bed::up(2);
    let id = bed.cluster.ids()[0];
    bed.cluster
        .sql(id, "CREATE USER app@'127.%' IDENTIFIED VIA mysql_native_password USING PASSWORD('secret')")
        .unwrap();
    bed.cluster.sql(id, "GRANT ALL ON d.* TO app@'127.%'").unwrap();
    let split = bed.place.path("split");
    let balancer = bed.balance(&format!("--split {split} --hold 20s"));
    let count = |name: &str| balancer.status()["totals"][name].as_u64().unwrap();
    let mut session = Session::open(&PathBuf::from(&split), Some("d"), Duration::from_secs(30)).unwrap();
    for n in 1..=200u32 {
        session.query(&format!("INSERT INTO t (c) VALUES ('split-{n}')")).unwrap();
        assert_eq!(session.query("SELECT COUNT(*) FROM t").unwrap().text(), Some(n.to_string()), "its own writes");
    }
    assert_eq!(count("split_reads"), 200, "all of them by a reader");
    // A statement that the reader cannot judge stays with the writer.
    session.query("BEGIN").unwrap();
    session.query("INSERT INTO t (c) VALUES ('open')").unwrap();
    assert_eq!(session.query("SELECT COUNT(*) FROM t").unwrap().text(), Some("201".to_owned()));
    session.query("ROLLBACK").unwrap();
    // A real client with a password is asked twice.
    let told =
        client(&split, &["-uapp", "-psecret", "d", "-Ne", "INSERT INTO t (c) VALUES ('app'); SELECT COUNT(*) FROM t"]);
    assert_eq!(told, "201\n");
    assert_eq!(count("split_reads"), 201);
    let wrong =
        Command::new("mariadb").args([&format!("--socket={split}"), "-uapp", "-pwrong", "-e", "SELECT 1"]).output();
    assert!(String::from_utf8_lossy(&wrong.unwrap().stderr).contains("1045"));

    let writer = bed.node_behind(WRITER);
    bed.cluster.kill(writer).unwrap();
    await_that("the balancer knows", || ready(&balancer) == 2);
    let began = Instant::now();
    session.query("INSERT INTO t (c) VALUES ('after')").unwrap();
    println!("the statement waited for {:?}", began.elapsed());
    assert_gap("a statement was held", began.elapsed());
    assert_eq!(session.query("SELECT COUNT(*) FROM t").unwrap().text(), Some("202".to_owned()));
    assert_eq!(count("split_moved"), 1);
}

/// Kills what a test started.
struct Beside(std::process::Child);

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "starts real servers"]
fn a_frozen_server_is_left_by_what_the_monitors_of_the_others_push() {
    let mut bed = Bed::up(13);
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let monitors: Vec<(String, Beside)> = bed
        .cluster
        .nodes()
        .iter()
        .map(|node| {
            let at = free();
            let mut command = Command::new(env!("CARGO_BIN_EXE_trireme"));
            command.arg("monitor").arg("--data-dir").arg(node.data()).args(["--listen", &at]);
            (at, Beside(command.spawn().unwrap()))
        })
        .collect();
    let addresses: Vec<&str> = monitors.iter().map(|(at, _)| at.as_str()).collect();
    // Looks alone would find out far too late.
    let balancer = bed.balance(&format!("--monitors {} --interval 3s --timeout 10s", addresses.join(",")));
    await_that("monitors are heard", || balancer.status()["totals"]["pushed"].as_u64().unwrap() > 20);
    let writer = bed.node_behind(WRITER);
    let load = Load::start(&bed, "pushed");
    bed.cluster.pause(writer).unwrap();
    load.progress(50);
    let gap = load.end(&bed);
    bed.cluster.resume(writer).unwrap();
    // Its own answer is looked for as soon as a monitor says that something is wrong.
    assert_gap("the writer was frozen, and monitors told", gap);
}

#[test]
#[ignore = "starts real servers"]
fn a_server_that_insists_on_tls_is_looked_at_by_tls() {
    let place = Place::new();
    let Some((key, certificate)) = crate::clients::certificate(&place) else { return };
    let bed = Bed::of(14, |spec| {
        (spec.plain, spec.nodes) = (true, 1);
        let lines = [format!("ssl_cert={certificate}"), format!("ssl_key={key}"), "require_secure_transport=ON".into()];
        spec.options.extend(lines);
    });
    let wrong = Place::new();
    let other = crate::clients::certificate(&wrong).unwrap().1;
    for (words, state) in [
        (String::new(), "ready"),
        (format!("--tls-ca {certificate}"), "ready"),
        (format!("--tls-ca {other}"), "last-choice"),
    ] {
        let balancer = Balancer::start(&place, &format!("--nodes {} --any 127.0.0.1:0 {words}", bed.address()));
        await_that(&format!("{state} with `{words}`"), || balancer.status()["nodes"][0]["state"] == state);
    }
}

/// Of servers that number their commits. They write a binary log, so a commit is ordered some time before it can be seen.
fn numbered(index: u16) -> Bed {
    let top = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let provider = top.join(std::env::var("PROVIDER").expect("PROVIDER names the library"));
    let lines =
        ["log_bin=binlog", "log_slave_updates=ON", "wsrep_gtid_mode=ON", "wsrep_gtid_domain_id=9", "server_id=7"];
    Bed::of(index, |spec| {
        spec.provider = provider;
        spec.options.extend(lines.map(str::to_owned));
    })
}

#[test]
#[ignore = "starts real servers"]
fn own_reads_see_what_their_session_wrote_thousands_of_times() {
    const WRITERS: u32 = 4;
    let pairs: u32 = std::env::var("PAIRS").ok().map_or(1000, |text| text.parse().unwrap());
    let bed = numbered(11);
    let split = bed.place.path("split");
    let balancer = bed.balance(&format!("--split {split} --causal own --hold 20s"));
    let threads: Vec<JoinHandle<()>> = (0..WRITERS)
        .map(|writer| {
            let split = PathBuf::from(&split);
            std::thread::spawn(move || {
                let mut session = Session::open(&split, Some("d"), Duration::from_secs(30)).unwrap();
                for n in 0..pairs {
                    let name = format!("own-{writer}-{n}");
                    session.query(&format!("INSERT INTO t (c) VALUES ('{name}')")).unwrap();
                    if n % 16 == 15 {
                        // One that thinks finds the reader proved.
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    let seen = session.query(&format!("SELECT COUNT(*) FROM t WHERE c = '{name}'")).unwrap().text();
                    assert_eq!(seen.as_deref(), Some("1"), "{name}");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let count = |name: &str| balancer.status()["totals"][name].as_u64().unwrap();
    let (reads, unasked) = (count("split_reads"), count("split_unasked"));
    println!("{reads} reads on readers of {}, {unasked} of them without any wait", WRITERS * pairs);
    assert!(reads > u64::from(WRITERS * pairs) / 2 && unasked > 0);
}

/// Why reads of `--split` do not wait by number: decision 0010.
#[test]
#[ignore = "starts real servers"]
fn a_reader_that_has_given_out_a_number_has_not_committed_it() {
    let bed = numbered(12);
    let writer = bed.cluster.ids()[0];
    let reader = bed.cluster.ids()[1];
    let ask = |id: NodeId, sql: &str| bed.cluster.sql(id, sql).unwrap().text().unwrap_or_default();
    let seen = |id: NodeId| ask(id, "SELECT WSREP_LAST_SEEN_GTID()");
    // The table is there too, or its commit would stand before the one that is looked at.
    await_that("the reader has all that was before", || seen(reader) == seen(writer));
    // From here on each commit there stands between its place in the binary log and its engine: nobody will acknowledge it.
    for sql in [
        "SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC",
        "SET GLOBAL rpl_semi_sync_master_timeout = 3600000",
        "SET GLOBAL rpl_semi_sync_master_enabled = ON",
    ] {
        bed.cluster.sql(reader, sql).unwrap();
    }
    let mut session = bed.cluster.session(writer).unwrap();
    session.query("INSERT INTO d.t (c) VALUES ('numbered')").unwrap();
    let number = session.query("SELECT WSREP_LAST_WRITTEN_GTID()").unwrap().text().unwrap();
    await_that("the reader has given it the number", || seen(reader) == number);
    assert_eq!(ask(reader, &format!("SELECT WSREP_SYNC_WAIT_UPTO_GTID('{number}', 1)")), "1", "all is well, it says");
    assert_eq!(ask(reader, "SELECT COUNT(*) FROM d.t"), "0", "and it is not there");
    let mut waits = bed.cluster.session(reader).unwrap();
    waits.query("SET SESSION wsrep_sync_wait = 1").unwrap();
    // The question that the balancer asks for all.
    let asked = std::thread::spawn(move || waits.query("SELECT 1").map(drop));
    let waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE info = 'SELECT 1'";
    await_that("it waits", || ask(reader, waiting) == "1");
    assert_eq!(ask(reader, "SELECT COUNT(*) FROM d.t"), "0", "for what is not there");
    bed.cluster.sql(reader, "SET GLOBAL rpl_semi_sync_master_enabled = OFF").unwrap();
    asked.join().unwrap().unwrap();
    assert_eq!(ask(reader, "SELECT COUNT(*) FROM d.t"), "1", "this one has waited");
}

/// Output of the server's own client.
fn client(socket: &str, words: &[&str]) -> String {
    let output = Command::new("mariadb").arg(format!("--socket={socket}")).args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Galera says neither who orders nor whom it does not hear.
#[test]
#[ignore = "starts real servers"]
fn galera_servers_are_balanced_too() {
    let Some(provider) = trireme_cluster::galera_provider() else {
        eprintln!("skipped: Galera is not installed");
        return;
    };
    let mut bed = Bed::with(provider.to_owned(), 3);
    let balancer = bed.balance("--hold 20s");
    let writer = bed.node_behind(WRITER);
    assert_ne!(bed.node_behind(READER), writer);
    let load = Load::start(&bed, "galera-killed");
    bed.cluster.kill(writer).unwrap();
    load.progress(50);
    assert_gap_below("Galera's writer was killed", load.end(&bed), GALERA_GAP);
    let second = bed.node_behind(WRITER);
    assert_ne!(second, writer);
    bed.cluster.start(writer, Start::Recover, &mut |_| {}).unwrap();
    await_that("all three are ready", || ready(&balancer) == 3);
    assert_eq!(bed.node_behind(WRITER), second, "no failback");
    let load = Load::start(&bed, "galera-frozen");
    bed.cluster.pause(second).unwrap();
    load.progress(50);
    assert_gap_below("Galera's writer was frozen", load.end(&bed), GALERA_GAP);
    bed.cluster.resume(second).unwrap();
    // Reads and writes of one session need nothing of Trireme.
    let split = bed.place.path("split");
    let balancer =
        Balancer::start_as(&bed.place, "second", &format!("--nodes {} --split {split}", bed.address()), None);
    await_that("both sides have a server", || ready(&balancer) >= 2);
    let mut session = Session::open(&PathBuf::from(&split), Some("d"), Duration::from_secs(30)).unwrap();
    let before: u32 = session.query("SELECT COUNT(*) FROM t").unwrap().text().unwrap().parse().unwrap();
    session.query("INSERT INTO t (c) VALUES ('galera-split')").unwrap();
    assert_eq!(session.query("SELECT COUNT(*) FROM t").unwrap().text(), Some((before + 1).to_string()));
    assert_eq!(balancer.status()["totals"]["split_reads"], 2);
}

#[test]
#[ignore = "starts real servers"]
fn a_plain_server_is_ready_and_clients_wait_for_its_restart() {
    let mut bed = Bed::of(4, |spec| {
        spec.plain = true;
        spec.nodes = 1;
    });
    let words = format!(
        "--nodes {} --writer {} --reader {} --split {} --hold 20s",
        bed.address(),
        bed.place.path(WRITER),
        bed.place.path(READER),
        bed.place.path("split")
    );
    let balancer = Balancer::start(&bed.place, &words);
    balancer.await_ready();
    let load = Load::start(&bed, "plain");
    // It cannot wait for what is committed elsewhere: nothing is split.
    let mut session = Session::open(&PathBuf::from(bed.place.path("split")), Some("d"), PATIENCE).unwrap();
    session.query("SELECT COUNT(*) FROM t").unwrap();
    assert_eq!(balancer.status()["totals"]["split_reads"], 0);
    let id = bed.cluster.ids()[0];
    bed.cluster.stop(id, Stop::Graceful).unwrap();
    bed.cluster.start(id, Start::Plain, &mut |_| {}).unwrap();
    load.progress(50);
    println!("a plain server was restarted: {:?}", load.end(&bed));
}

/// Connects from an address of its own to each port, and prints who it is there.
const WHO: &str = r#"
import sys, pymysql
for port in sys.argv[1:]:
    connection = pymysql.connect(host="127.0.0.1", port=int(port), user="root", bind_address="127.0.0.9", connect_timeout=10)
    with connection.cursor() as cursor:
        cursor.execute("SELECT USER()")
        print(cursor.fetchone()[0])
"#;

#[test]
#[ignore = "starts real servers"]
fn a_real_server_learns_who_the_client_is() {
    let Some(python) = crate::clients::python_with_pymysql() else {
        eprintln!("skipped: apt-get install python3-pymysql");
        return;
    };
    let bed = Bed::of(5, |spec| {
        spec.plain = true;
        spec.nodes = 1;
        spec.options.push("proxy_protocol_networks=127.0.0.0/8".to_owned());
    });
    let listeners = "--writer 127.0.0.1:0 --split 127.0.0.1:0";
    let inner = Balancer::start(&bed.place, &format!("--nodes {} {listeners} --send-proxy", bed.address()));
    inner.await_ready();
    // Its client is the outer one, which says whose client it is.
    let second = Balancer::start_as(
        &bed.place,
        "second",
        &format!("--nodes {} {listeners} --send-proxy --accept-proxy 127.0.0.1/32", bed.address()),
        None,
    );
    second.await_ready();
    let script = bed.place.path("dog");
    std::fs::write(&script, "#!/bin/sh\nwhile read line; do echo 3; done\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    // It does not log in: the second one expects the header from everybody.
    let words = format!("--nodes {} --no-discover --any 127.0.0.1:0 --exec {script} --send-proxy", second.address(1));
    let outer = Balancer::start_as(&bed.place, "outer", &words, None);
    outer.await_ready();
    let ports = [inner.address(0), inner.address(1), outer.address(0)];
    let ports = ports.iter().map(|at| at.rsplit_once(':').unwrap().1);
    let output = Command::new(python).args(["-c", WHO]).args(ports).output().unwrap();
    let who = crate::clients::printed(&output);
    assert_eq!(who.split_whitespace().collect::<Vec<_>>(), ["root@127.0.0.9"; 3]);
}
