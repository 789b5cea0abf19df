//! `trireme monitor` beside state files that are written by hand: tokens, and old files. No server is needed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use std::os::unix::fs::OpenOptionsExt;
use trireme_metrics::Body;
use trireme_metrics::state::FILE_NAME;

use crate::{PATIENCE, Process, free_port, trireme, trireme_command, until};

/// A monitor beside the file of a node that there is not.
struct Beside {
    dir: PathBuf,
    port: u16,
    written: AtomicU64,
    monitor: Option<Process>,
}

impl Beside {
    fn new(name: &str) -> Beside {
        let dir = std::env::temp_dir().join(format!("trireme-by-hand-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        Beside { dir, port: free_port(), written: AtomicU64::new(0), monitor: None }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn put(&self, bytes: &[u8]) {
        let new = self.dir.join("new");
        std::fs::write(&new, bytes).unwrap();
        std::fs::rename(new, self.dir.join(FILE_NAME)).unwrap();
    }

    /// The state file of a node that is well, as of now.
    fn tells(&self, name: &str) -> Vec<u8> {
        let mut body = Body::default();
        body.number("trireme_primary", 1.0);
        body.number("trireme_local_state", 4.0);
        for (fact, text) in [
            ("name", name),
            ("version", "0.2.0"),
            ("cluster", "shop"),
            ("history", "11111111-0000-11ef-8000-000000000001"),
            ("local_state_comment", "Synced"),
        ] {
            body.text(fact, text);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        body.encode(self.written.fetch_add(1, Relaxed) + 1, u64::try_from(now).unwrap(), std::process::id(), false)
    }

    /// A file that holds a token.
    fn token(&self, token: &str) -> String {
        let path = self.dir.join("token");
        let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        writeln!(file.unwrap(), "{token}").unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn start(&mut self, more: &[&str]) {
        let (dir, listen) = (self.dir.to_str().unwrap().to_owned(), self.address());
        let words = [&["monitor", "--data-dir", &dir, "--listen", &listen][..], more].concat();
        self.monitor = Some(Process(trireme_command(&words).stdout(Stdio::null()).spawn().unwrap()));
        until("the monitor to listen", || TcpStream::connect(self.address()).is_ok());
    }

    /// The whole answer; `header`: a line of its own, or nothing.
    fn get(&self, path: &str, header: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\n{header}\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.monitor = None;
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

#[test]
fn a_token_opens_and_nothing_else_does() {
    let mut own = Beside::new("token");
    own.put(&own.tells("alpha"));
    let file = own.token("sesame-one");
    own.start(&["--token-file", &file]);
    // From here on there is something to tell.
    let bearer = "Authorization: Bearer sesame-one\r\n";
    until("the file to be read", || own.get("/cluster", bearer).contains("alpha"));
    for path in ["/", "/metrics", "/health", "/live", "/ready", "/state", "/cluster", "/watch", "/history", "/node"] {
        for header in [
            "",
            "Authorization: Bearer\r\n",
            "Authorization: Bearer sesame-on\r\n",
            "Authorization: Bearer sesame-onf\r\n",
            "Authorization: Bearer sesame-one2\r\n",
            "Authorization: Basic !!!\r\n",
        ] {
            let answer = own.get(path, header);
            assert_eq!(status(&answer), "401", "{path} with {header:?}: {answer}");
            assert!(answer.contains("\r\nWWW-Authenticate: Basic "), "a browser asks its user then: {answer}");
            assert!(!answer.contains("alpha") && !answer.contains("sesame"), "{answer}");
        }
    }
    // As a bearer, and as the password that a browser sends, with any name.
    for header in [bearer, "Authorization: Basic eDpzZXNhbWUtb25l\r\n"] {
        assert_eq!(status(&own.get("/metrics", header)), "200", "{header}");
    }

    let address = own.address();
    let (code, _, err) = trireme(&["top", "--once", "--monitor", &address]);
    assert!(code == 1 && err.contains("wants a token: give --token-file"), "{code} {err}");
    let (_, out, err) = trireme(&["top", "--once", "--monitor", &address, "--token-file", &file]);
    assert!(out.contains("alpha"), "{out}{err}");

    // A token that others can read is none, and an empty file holds none.
    let (code, _, err) = trireme(&["monitor", "--data-dir", "/nowhere", "--token-file", &own.token("")]);
    assert!(code == 1 && err.contains("holds no token"), "{err}");
    Command::new("chmod").args(["0644", &own.token("sesame-one")]).status().unwrap();
    let (code, _, err) = trireme(&["monitor", "--data-dir", "/nowhere", "--token-file", &file]);
    assert!(code == 1 && err.contains("token"), "{err}");
}

#[test]
fn monitors_with_different_tokens_say_so_of_each_other() {
    let [mut own, mut same, mut other] = ["one", "same", "other"].map(Beside::new);
    let token = own.token("sesame-one");
    same.put(&same.tells("beta"));
    same.start(&["--token-file", &same.token("sesame-one")]);
    other.put(&other.tells("gamma"));
    other.start(&["--token-file", &other.token("sesame-two")]);
    own.put(&own.tells("alpha"));
    let peers = format!("{},{}", same.address(), other.address());
    own.start(&["--token-file", &token, "--peers", &peers]);
    let mut seen = String::new();
    until("the two to be known", || {
        own.put(&own.tells("alpha"));
        same.put(&same.tells("beta"));
        seen = own.get("/cluster", "Authorization: Bearer sesame-one\r\n");
        let body = seen.split("\r\n\r\n").nth(1).unwrap_or_default();
        let json: Value = serde_json::from_str(body).unwrap_or_default();
        let well = json["nodes"].as_array().is_some_and(|nodes| {
            nodes.iter().any(|node| node["name"] == "beta" && node["source"] == "monitor" && node["health"] == "synced")
        });
        well && seen.contains("refuses the token: all monitors need the same --token-file")
    });
    assert!(!seen.contains("gamma"), "{seen}");
}

#[test]
fn a_file_from_long_ago_is_told_apart_and_a_mended_one_counts_at_once() {
    let mut own = Beside::new("old");
    let mut old = Body::default();
    old.text("name", "alpha");
    old.number("trireme_primary", 1.0);
    own.put(&old.encode(1, 1_700_000_000_000_000_000, std::process::id(), false));
    own.start(&[]);
    until("its age", || own.get("/live", "").contains("the server last told something"));
    assert!(own.get("/metrics", "").contains("\ntrireme_up 0\n"));
    until("it to be well", || {
        own.put(&own.tells("alpha"));
        status(&own.get("/ready", "")) == "200"
    });
    // Another program's file in its place: what was known counts for two seconds, as one that is read while it is written is torn.
    own.put(b"-----BEGIN CERTIFICATE-----");
    until("it to be named", || own.get("/live", "").contains("it is no state file of a Trireme node"));
    until("it to be well again", || {
        own.put(&own.tells("alpha"));
        status(&own.get("/ready", "")) == "200"
    });
}
