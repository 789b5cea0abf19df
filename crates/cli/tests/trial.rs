//! `trireme up` with real servers: `PROVIDER=… cargo test -p trireme-cli --test trial -- --ignored`.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(90);
/// Away from those of other tests.
const BASE_PORT: u16 = 26400;

struct Trial {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    dir: PathBuf,
}

fn start() -> Trial {
    let provider = std::env::var("PROVIDER").expect("PROVIDER names the library");
    // Readable for the servers' user.
    let dir = PathBuf::from(format!("/var/tmp/trireme-trial-{}", std::process::id()));
    let mut child = Command::new(env!("CARGO_BIN_EXE_trireme"))
        .args(["up", "--nodes", "2", "--base-port", &BASE_PORT.to_string(), "--provider", &provider, "--dir"])
        .arg(&dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (tell, lines) = channel();
    for source in
        [Box::new(child.stdout.take().unwrap()) as Box<dyn Read + Send>, Box::new(child.stderr.take().unwrap())]
    {
        let tell = tell.clone();
        thread::spawn(move || {
            for line in BufReader::new(source).lines().map_while(Result::ok) {
                eprintln!("{line}");
                let _ = tell.send(line);
            }
        });
    }
    let stdin = child.stdin.take().unwrap();
    Trial { child, stdin, lines, dir }
}

impl Trial {
    fn wait_for(&self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("`{text}` was not said"));
            if line.contains(text) {
                return line;
            }
        }
    }

    fn type_in(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }
}

/// Processes that were started with a path below `dir` in their command line.
fn servers(dir: &Path) -> usize {
    let text = dir.display().to_string();
    let of = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read(entry.ok()?.path().join("cmdline")).ok();
    let all = std::fs::read_dir("/proc").unwrap().filter_map(of);
    all.filter(|line| {
        line.starts_with(b"mariadbd")
            || line.split(|byte| *byte == 0).next().is_some_and(|first| first.ends_with(b"/mariadbd"))
    })
    .filter(|line| String::from_utf8_lossy(line).contains(&text))
    .count()
}

#[test]
#[ignore = "starts real servers: PROVIDER"]
fn a_trial_obeys_and_leaves_nothing_behind() {
    let mut trial = start();
    trial.wait_for("The servers are running");
    assert_eq!(servers(&trial.dir), 2);
    trial.type_in("status");
    trial.wait_for("sequencer");
    trial.type_in("sql 1 CREATE DATABASE shop");
    trial.wait_for("affected");
    trial.type_in("trireme cluster sql 2 'SHOW DATABASES'   # pasted");
    trial.wait_for("shop");
    trial.type_in("heal");
    trial.wait_for("nothing was cut");
    trial.type_in("kill 9");
    trial.wait_for("there is no node9");
    trial.type_in("kill 2");
    trial.wait_for("node2 is killed; start it again with `restart 2`");
    trial.type_in("restart 2");
    trial.type_in("status");
    trial.wait_for("all 2 nodes are Synced");
    trial.signal("INT");
    trial.wait_for("the trial ends");
    assert_eq!(trial.child.wait().unwrap().code(), Some(0));
    assert_eq!(servers(&trial.dir), 0);
    assert!(!trial.dir.exists(), "{} is left", trial.dir.display());
}
