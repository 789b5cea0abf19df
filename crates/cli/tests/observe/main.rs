//! `trireme status`, `explain`, `events`, `doctor` and `monitor` on real servers, as an operator types them. The servers are started for
//! `PROVIDER=… cargo test -p trireme-cli --test observe -- --ignored` only; `$FIRST_PORT` moves their ports.

mod by_hand;
mod dashboard;
mod ecosystem;
#[path = "../../../connect/tests/free_port/mod.rs"]
mod free_port;
mod galera;
mod top;
mod variables;
mod webdriver;

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use free_port::free_port;
use serde_json::Value;
use trireme_cluster::{ClusterGuard, NodeId, Spec, Stop};
use trireme_metrics::Body;
use trireme_metrics::state::FILE_NAME;

const PATIENCE: Duration = Duration::from_secs(30);

fn trireme_command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trireme"));
    command.args(words).env("MYSQL_PWD", "look");
    command
}

fn trireme(words: &[&str]) -> (i32, String, String) {
    let output = trireme_command(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    until_seen(what, || if done() { Ok(()) } else { Err(String::new()) });
}

/// Until `look` finds it; what it saw last, and how busy the machine was, is in the message.
fn until_seen<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        let seen = match look() {
            Ok(found) => return found,
            Err(seen) => seen,
        };
        assert!(
            began.elapsed() < PATIENCE,
            "waited for {what} in vain, for {:?}; the load of the machine: {}\n{seen}",
            began.elapsed(),
            machine_load()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// As the kernel tells it: a test that fails elsewhere may have had no processor, or waited for a disk.
fn machine_load() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let mut text = read("/proc/loadavg").trim().to_owned();
    for what in ["cpu", "io"] {
        if let Some(some) = read(&format!("/proc/pressure/{what}")).lines().next() {
            text += &format!("; {what} pressure: {some}");
        }
    }
    text
}

/// Is killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Status line and body.
fn get(at: impl ToSocketAddrs, path: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(at).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // Of this version answers come in one piece, and end with the connection.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.lines().next()?.to_owned(), body.to_owned()))
}

fn is(port: u16, path: &str, code: &str) -> bool {
    get(("127.0.0.1", port), path).is_some_and(|(status, _)| status.contains(code))
}

/// `offset`: of its ports, so that tests can run beside each other.
fn cluster_of_three(name: &str, offset: u16) -> ClusterGuard {
    let top = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    cluster_of(top.join(std::env::var("PROVIDER").expect("PROVIDER names the library")), name, offset)
}

fn cluster_of(provider: PathBuf, name: &str, offset: u16) -> ClusterGuard {
    let base_port: u16 = std::env::var("FIRST_PORT").ok().map_or(27900, |text| text.parse().unwrap());
    let base_port = base_port + offset;
    let mut spec = Spec::new(provider, PathBuf::from(format!("/var/tmp/trireme-{name}-{base_port}")))
        .option("innodb_flush_log_at_trx_commit=0");
    spec.base_port = base_port;
    spec.name = format!("{name}-{base_port}");
    ClusterGuard::up(&spec, &mut |_| {}).unwrap()
}

#[test]
fn bad_input_is_told_in_words() {
    let dead = format!("127.0.0.1:{}", free_port());
    let (code, _, _) = trireme(&["status", "--host", "no server"]);
    assert_eq!(code, 2);
    let (code, out, _) = trireme(&["status", "--host", &dead, "--timeout", "2"]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("nobody listens there"), "{out}");
    let (code, out, _) = trireme(&["status", "--host", &dead, "--json"]);
    assert_eq!(code, 1);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((json["version"].as_u64(), json["servers"][0]["trouble"]["kind"].as_str()), (Some(1), Some("refused")));
    let (code, _, err) = trireme(&["monitor", "--listen", "0.0.0.0:0"]);
    assert!(code == 1 && err.contains("--token-file"), "{err}");
    let (code, _, err) = trireme(&["explain", "a line that nobody writes"]);
    assert!(code == 3 && err.contains("no such line"), "{err}");
    let (code, _, err) = trireme(&["events", "/nowhere/error.log"]);
    assert!(code == 1 && err.contains("/nowhere/error.log"), "{err}");
}

/// Torn, foreign and future files, and none: each monitor says what is wrong with its own, and another one says so for it.
#[test]
fn bad_state_files_are_told_by_every_monitor() {
    let place = std::env::temp_dir().join(format!("trireme-bad-state-{}", std::process::id()));
    let whole = Body::default().encode(1, 1, std::process::id(), false);
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        bytes
    };
    let cases = [
        ("torn", Some(with(20, 0xaa)), "its checksum does not fit"),
        ("future", Some(with(8, 9)), "its format is 9"),
        ("foreign", Some(b"a letter".to_vec()), "it is no state file of a Trireme node"),
        ("none", None, "there is no "),
    ];
    let dead = format!("127.0.0.1:{}", free_port());
    let monitor = |name: &str, file: Option<&[u8]>, peers: &str| {
        let (dir, port) = (place.join(name), free_port());
        std::fs::create_dir_all(&dir).unwrap();
        if let Some(bytes) = file {
            std::fs::write(dir.join(FILE_NAME), bytes).unwrap();
        }
        let listen = format!("127.0.0.1:{port}");
        let words = ["monitor", "--data-dir", dir.to_str().unwrap(), "--listen", &listen, "--host", &dead];
        let mut command = trireme_command(&words);
        command.args(["--timeout", "2", "--peers", peers]).stdout(Stdio::null());
        (Process(command.spawn().unwrap()), port)
    };
    let bad: Vec<(Process, u16)> =
        cases.iter().map(|(name, file, _)| monitor(name, file.as_deref(), "127.0.0.1:1")).collect();
    let peers: Vec<String> = bad.iter().map(|(_, port)| format!("127.0.0.1:{port}")).collect();
    let (_all, all) = monitor("all", None, &peers.join(","));
    for ((name, _, words), (_, port)) in cases.iter().zip(&bad) {
        until(&format!("{name} to be told"), || {
            get(("127.0.0.1", *port), "/live")
                .is_some_and(|(status, body)| status.contains("503") && body.contains(words))
        });
        let by_another = format!("127.0.0.1:{port} knows nothing of its node: ");
        until(&format!("{name} to be told by another monitor"), || {
            let body = get(("127.0.0.1", all), "/cluster").map(|(_, body)| body).unwrap_or_default();
            let json: Value = serde_json::from_str(&body).unwrap_or_default();
            let notes = json["notes"].as_array().cloned().unwrap_or_default();
            notes.iter().filter_map(Value::as_str).any(|note| note.contains(&by_another) && note.contains(words))
        });
    }
    std::fs::remove_dir_all(&place).unwrap();
}

#[test]
#[ignore = "starts real servers: PROVIDER=… cargo test -p trireme-cli --test observe -- --ignored"]
fn an_operator_looks_at_a_cluster() {
    let mut cluster = cluster_of_three("observe", 0);
    let id = |n| NodeId::new(n).unwrap();
    cluster.sql(id(1), "CREATE USER look@'%' IDENTIFIED BY 'look'").unwrap();
    cluster.sql(id(1), "CREATE DATABASE d").unwrap();
    cluster.sql(id(1), "CREATE TABLE d.t (a INT PRIMARY KEY)").unwrap();
    cluster.sql(id(1), "CREATE TABLE d.keyless (a INT)").unwrap();
    for node in 1..=3 {
        cluster.sql(id(node), "SET GLOBAL wsrep_provider_options='repl.status_extended=yes'").unwrap();
    }
    let nodes = cluster.nodes().to_vec();
    let host = format!("{}:{}", nodes[0].address, nodes[0].ports.sql);
    let status = |more: &[&str]| {
        let words = [&["status", "--host", &host, "--user", "look", "--timeout", "3"], more].concat();
        trireme(&words)
    };

    // All is well, by an account without privileges.
    let (code, out, err) = status(&[]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("3 of 3 voters are there: any one of them may fail."), "{out}");
    let (_, out, _) = status(&["--json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((json["level"].as_str(), json["servers"].as_array().map(Vec::len)), (Some("well"), Some(3)), "{out}");
    assert!(json["servers"][0]["away_seconds"].as_f64().is_some_and(|s| s > 0.0), "{out}");
    let (code, out, _) = trireme(&["status", "--host", &host, "--user", "nobody"]);
    assert!(code == 1 && out.contains("refuses the account"), "{out}");

    // The doctor says what is wrong with it.
    let (code, out, err) = trireme(&["doctor", "--host", &host, "--user", "root", "--json"]);
    assert_eq!(code, 1, "{out}{err}");
    cluster.sql(id(1), "GRANT SELECT ON *.* TO look@'%'").unwrap();
    let socket = nodes[0].socket();
    let (code, out, err) =
        trireme(&["doctor", "--socket", socket.to_str().unwrap(), "--user", "look", "--disk", "--json"]);
    assert_eq!(code, 3, "{out}{err}");
    let json: Value = serde_json::from_str(&out).unwrap();
    let found = |check: &str| json["findings"].as_array().unwrap().iter().find(|f| f["check"] == check).cloned();
    assert!(found("no-primary-key").unwrap()["what"].as_str().unwrap().contains("d.keyless"), "{out}");
    for check in ["port", "transfer-port", "link", "tables"] {
        assert!(found(check).is_none(), "{out}");
    }
    for finding in json["findings"].as_array().unwrap() {
        for part in ["what", "why", "remedy"] {
            assert!(finding[part].as_str().is_some_and(|text| !text.is_empty()), "{finding}");
        }
    }

    // For support: neither rows nor passwords.
    bundle_holds_no_secret(&cluster, &host);

    // A monitor beside a node serves its metrics.
    let (port, agent) = (free_port(), free_port());
    let data = nodes[0].data();
    let _monitor = Process(
        Command::new(env!("CARGO_BIN_EXE_trireme"))
            .args(["monitor", "--data-dir", data.to_str().unwrap(), "--listen", &format!("127.0.0.1:{port}")])
            .args(["--agent", &format!("127.0.0.1:{agent}")])
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    until("the monitor", || is(port, "/ready", "200"));
    assert_eq!(get(("127.0.0.1", port), "/health").unwrap().1, "MariaDB Cluster Node is synced.\r\n");
    let commits = || {
        let text = get(("127.0.0.1", port), "/metrics").unwrap().1;
        let line =
            text.lines().find_map(|line| line.strip_prefix("trireme_commit_seconds_count{stage=\"total\"} ")).unwrap();
        line.parse::<u64>().unwrap()
    };
    let before = commits();
    for n in 0..20 {
        cluster.sql(id(1), &format!("INSERT INTO d.t VALUES ({n})")).unwrap();
    }
    until("20 commits in the metrics", || commits() >= before + 20);
    let mut line = String::new();
    TcpStream::connect(("127.0.0.1", agent)).unwrap().read_to_string(&mut line).unwrap();
    assert_eq!(line, "ready up 100%\n");
    let state: Value = serde_json::from_str(&get(("127.0.0.1", port), "/state").unwrap().1).unwrap();
    assert_eq!((state["health"].as_str(), state["texts"]["name"].as_str()), (Some("synced"), Some("node1")));

    // The whole cluster: this node by its file, the others by the client; and as a stream.
    let mut monitor_of_all = None;
    until("all members to be known", || {
        let Some((_, body)) = get(("127.0.0.1", port), "/cluster") else { return false };
        let json: Value = serde_json::from_str(&body).unwrap_or_default();
        let known = json["nodes"].as_array().is_some_and(|nodes| nodes.len() == 3);
        monitor_of_all = known.then_some(json);
        known
    });
    let all = monitor_of_all.unwrap();
    assert_eq!(
        (all["version"].as_u64(), all["level"].as_str(), all["here"].as_str()),
        (Some(1), Some("well"), Some("node1")),
        "{all}"
    );
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /watch HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n").unwrap();
    let (mut heard, mut chunk) = (String::new(), [0; 4096]);
    while heard.matches("event: cluster\ndata: {").count() < 3 {
        let read = stream.read(&mut chunk).unwrap();
        assert!(read > 0, "{heard}");
        heard.push_str(&String::from_utf8_lossy(&chunk[..read]));
    }
    assert!(heard.contains("text/event-stream") && heard.contains("default-src 'none'"), "{heard}");
    drop(stream);
    let state: Value = serde_json::from_str(&get(("127.0.0.1", port), "/state").unwrap().1).unwrap();
    assert!(state["cluster"]["throttle"].is_array() && state["cluster"]["round_trips"].is_array(), "{state}");

    // In the terminal, by the monitor and without.
    let by_monitor = format!("127.0.0.1:{port}");
    let (code, out, err) = trireme(&["top", "--once", "--monitor", &by_monitor]);
    assert!(code == 0 && out.contains("COMMITS/S") && out.contains("node3"), "{out}{err}");
    let (code, out, err) = trireme(&["top", "--once", "--host", &host, "--user", "look", "--json"]);
    let json: Value = serde_json::from_str(&out).unwrap_or_default();
    assert_eq!((code, json["nodes"].as_array().map(Vec::len)), (0, Some(3)), "{out}{err}");

    // A frozen server, of which its own status could tell nothing.
    cluster.pause(id(1)).unwrap();
    let paused = Instant::now();
    until("the frozen server to be noticed", || is(port, "/live", "503"));
    let took = paused.elapsed();
    assert!(took < Duration::from_secs(3), "that took {took:?}");
    cluster.resume(id(1)).unwrap();
    until("it to be back", || is(port, "/ready", "200"));

    // One is killed: noticed at once, and named.
    cluster.kill(id(3)).unwrap();
    let (code, out, _) = status(&[]);
    assert_eq!(code, 3, "{out}");
    assert!(out.contains("2 of 3 voters are there (node3 is not): one more failure stops the cluster."), "{out}");

    // The commands that read logs.
    let logs: Vec<String> = nodes[..2].iter().map(|n| n.log().to_str().unwrap().to_owned()).collect();
    let (code, out, _) = trireme(&["explain", "--log", &logs[0]]);
    assert!(code == 0 && out.contains("New COMPONENT") && out.contains("What to do"), "{out}");
    let (code, out, _) = trireme(&["events", &logs[0], &logs[1], "--only", "view"]);
    assert!(code == 0 && out.contains("node1") && out.contains("node2") && out.contains("memb_num = 3"), "{out}");
    let (code, out, _) = trireme(&["events", &logs[0], &logs[1], "--only", "term"]);
    assert!(code == 0 && out.contains("term ") && out.contains(", sequencer node"), "{out}");

    cluster.stop(id(1), Stop::Graceful).unwrap();
    until("the stop to be told", || {
        get(("127.0.0.1", port), "/live").is_some_and(|(_, body)| body.contains("was stopped"))
    });

    // All are down: two logs are a majority, one is not, and both say so.
    cluster.stop(id(2), Stop::Kill).unwrap();
    let log = |n: usize| format!("{}={}", nodes[n].id, nodes[n].data().display());
    let (code, out, err) = trireme(&["doctor", "--outage", &log(0), &log(1), &log(2)]);
    assert!(code == 0 && out.contains("Start the servers plainly"), "{out}{err}");
    let (code, out, _) = trireme(&["doctor", "--outage", &log(2)]);
    assert!(code == 3 && out.contains("they hold 1 of 3 votes") && out.contains("node1, node2"), "{out}");
    let (code, out, _) = trireme(&["doctor", "--outage", "/nowhere"]);
    assert!(code == 1 && out.contains("no write-set log could be read"), "{out}");
}

/// A word that stands in a row, in passwords, in a statement that fails, and in the secret of the transfer's account is not in the archive.
fn bundle_holds_no_secret(cluster: &ClusterGuard, host: &str) {
    const WORD: &str = "sesame4711";
    let first = NodeId::new(1).unwrap();
    let node = &cluster.nodes()[0];
    for statement in [
        format!("CREATE USER bundled@'%' IDENTIFIED BY '{WORD}'"),
        "GRANT SUPER ON *.* TO bundled@'%'".to_owned(),
        format!("SET GLOBAL wsrep_sst_auth = 'root:{WORD}'"),
        format!("CREATE TABLE d.words (w VARCHAR(20) PRIMARY KEY COMMENT '{WORD}')"),
        format!("INSERT INTO d.words VALUES ('{WORD}')"),
    ] {
        cluster.sql(first, &statement).unwrap();
    }
    // A DDL that fails everywhere: MariaDB writes it into the error log of the appliers.
    let failed = cluster.sql(first, &format!("ALTER TABLE d.nowhere COMMENT '{WORD}'"));
    assert!(failed.is_err());
    let applier = &cluster.nodes()[1];
    until("the statement in the log of another node", || {
        std::fs::read_to_string(applier.log()).unwrap().contains(WORD)
    });

    let dir = std::env::temp_dir().join(format!("trireme-bundle-test-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).unwrap();
    let archive = dir.join("b.tar.gz");
    let named = |place: fn(&trireme_cluster::Node) -> PathBuf| {
        [node, applier].map(|node| format!("{}={}", node.name(), place(node).display()))
    };
    let (logs, recorders) = (named(trireme_cluster::Node::log), named(trireme_cluster::Node::data));
    let mut words = vec!["bundle", "--host", host, "--user", "bundled", "--out", archive.to_str().unwrap(), "--log"];
    words.extend(logs.iter().map(String::as_str));
    words.push("--flight");
    words.extend(recorders.iter().map(String::as_str));
    let output = trireme_command(&words).env("MYSQL_PWD", WORD).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::metadata(&archive).unwrap().permissions().mode() & 0o777, 0o600);
    let unpacked = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&dir).status().unwrap();
    assert!(unpacked.success());
    std::fs::remove_file(&archive).unwrap();
    let mut texts = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        assert!(!text.contains(WORD), "{}: {text}", path.display());
        texts.insert(path.file_name().unwrap().to_str().unwrap().to_owned(), text);
    }
    std::fs::remove_dir_all(&dir).unwrap();
    // And it is of use.
    let names: Vec<&String> = texts.keys().collect();
    for (name, word) in [
        ("trireme.txt", env!("CARGO_PKG_VERSION")),
        ("status.json", "\"node3\""),
        ("log-node1.txt", "New COMPONENT"),
        ("flight.jsonl", "\"kind\":\"view\""),
    ] {
        let text = texts.get(name).unwrap_or_else(|| panic!("{name} is not among {names:?}"));
        assert!(text.contains(word), "{name} has no {word}: {text}");
    }
    assert_eq!(names.iter().filter(|name| name.starts_with("server-")).count(), 3, "{names:?}");
}
