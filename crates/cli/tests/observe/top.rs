//! `trireme top` in a pseudo-terminal, with a monitor that is played; and `trireme status --watch`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::json;

use crate::{free_port, trireme, until};

/// Answers each request with a cluster whose rates differ each time.
fn monitor() -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(AtomicU64::new(0));
    let count = asked.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = [0; 2048];
            let _ = stream.read(&mut head);
            let n = count.fetch_add(1, Relaxed) + 1;
            let node = |name: &str, commits: u64| {
                json!({ "name": name, "source": "file", "health": "synced", "state": "Synced", "role": "voter", "primary": true, "silent": [],
                        "gave_up": false, "rates": { "commits": commits }, "times": {} })
            };
            let body = json!({
                "version": 1, "time": 60.0, "here": "alpha", "level": "well", "sentences": [format!("look {n}")], "clusters": [], "notes": [],
                "nodes": [node("alpha", 100 + n), node("beta", 900)], "throttle": [], "slow": [], "round_trips": [],
                "changes": [{ "number": 1, "time": 50.0, "kind": "health", "node": "alpha", "text": "alpha was away" },
                            { "number": 2, "time": 60.0, "kind": "health", "node": "beta", "text": "beta came back" }],
            });
            let body = body.to_string();
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        }
    });
    (port, asked)
}

/// The screen of a terminal: texts at their places. Colours and the like are passed over.
struct Screen {
    cells: Vec<Vec<char>>,
    at: (usize, usize),
    rest: String,
}

impl Screen {
    fn new() -> Screen {
        Screen { cells: vec![vec![' '; 160]; 40], at: (0, 0), rest: String::new() }
    }

    fn feed(&mut self, text: &str) {
        self.rest.push_str(text);
        let text = std::mem::take(&mut self.rest);
        let mut chars = text.char_indices();
        while let Some((begin, c)) = chars.next() {
            match c {
                '\x1b' => {
                    let mut sequence = String::new();
                    let end = loop {
                        let Some((_, c)) = chars.next() else { break None };
                        sequence.push(c);
                        if sequence.len() > 1 && ('@'..='~').contains(&c) || !sequence.starts_with('[') {
                            break Some(c);
                        }
                    };
                    match end {
                        // It goes on in what comes next.
                        None => {
                            self.rest = text[begin..].to_owned();
                            return;
                        }
                        Some('H') => {
                            let mut numbers =
                                sequence[1..sequence.len() - 1].split(';').map(|n| n.parse().unwrap_or(1));
                            self.at = (numbers.next().unwrap_or(1) - 1, numbers.next().unwrap_or(1) - 1);
                        }
                        Some('J') => self.cells.iter_mut().for_each(|row| row.fill(' ')),
                        Some(_) => {}
                    }
                }
                '\r' => self.at.1 = 0,
                '\n' => self.at.0 += 1,
                c => {
                    if let Some(cell) = self.cells.get_mut(self.at.0).and_then(|row| row.get_mut(self.at.1)) {
                        *cell = c;
                    }
                    self.at.1 += 1;
                }
            }
        }
    }

    fn text(&self) -> String {
        self.cells.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned() + "\n").collect()
    }
}

struct Terminal {
    child: Child,
    screen: Arc<Mutex<Screen>>,
}

impl Terminal {
    fn start(words: &str) -> Terminal {
        let command = format!("stty cols 150 rows 30; exec {} {words}", env!("CARGO_BIN_EXE_trireme"));
        // Tests that a shell has put in the background ignore Ctrl-C, and so would everything that they start.
        let mut child = Command::new("env")
            .args(["--default-signal=INT", "script", "-qefc", &command, "/dev/null"])
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let screen = Arc::new(Mutex::new(Screen::new()));
        let (mut out, shown) = (child.stdout.take().unwrap(), screen.clone());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = out.read(&mut bytes) {
                shown.lock().unwrap().feed(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        Terminal { child, screen }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().text()
    }

    fn press(&mut self, keys: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(keys.as_bytes()).unwrap();
        input.flush().unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_terminal_shows_sorts_freezes_and_ends() {
    let (port, asked) = monitor();
    let mut terminal = Terminal::start(&format!("top --monitor 127.0.0.1:{port}"));
    until("the cluster", || terminal.text().contains("beta came back"));
    let place = |terminal: &Terminal, name: &str| {
        terminal.text().lines().position(|line| line.starts_with(name)).unwrap_or(usize::MAX)
    };
    assert!(place(&terminal, "alpha") < place(&terminal, "beta"), "{}", terminal.text());
    let look = |terminal: &Terminal| terminal.text().lines().find(|line| line.starts_with("look ")).map(str::to_owned);
    let before = look(&terminal);
    until("it to go on", || look(&terminal) != before);
    // By commits: the greatest first.
    terminal.press("\x1b[C\x1b[C\x1b[C");
    until("the order to change", || place(&terminal, "beta") < place(&terminal, "alpha"));
    terminal.press("r");
    until("the order to be turned round", || place(&terminal, "alpha") < place(&terminal, "beta"));
    terminal.press("r");
    until("it to be as before", || place(&terminal, "beta") < place(&terminal, "alpha"));
    // The newest event goes, and comes back.
    terminal.press("\x1b[B");
    until("earlier events", || {
        !terminal.text().contains("beta came back") && terminal.text().contains("alpha was away")
    });
    terminal.press("\x1b[A");
    until("the newest event", || terminal.text().contains("beta came back"));
    terminal.press("?");
    until("the help", || terminal.text().contains("? shows this") && !terminal.text().contains("beta came back"));
    terminal.press("?");
    until("what happened", || terminal.text().contains("beta came back") && !terminal.text().contains("? shows this"));
    terminal.press(" ");
    until("it to be frozen", || terminal.text().contains("FROZEN"));
    let (before, count) = (look(&terminal), asked.load(Relaxed));
    until("two more answers", || asked.load(Relaxed) >= count + 2);
    assert_eq!(look(&terminal), before);
    terminal.press("q");
    until("the end", || terminal.child.try_wait().unwrap().is_some());
    assert!(terminal.child.wait().unwrap().success());
}

#[test]
fn once_is_for_scripts_and_bad_input_is_told() {
    let (port, _) = monitor();
    let (code, out, err) = trireme(&["top", "--once", "--monitor", &format!("127.0.0.1:{port}")]);
    assert!(code == 0 && out.contains("alpha") && !out.contains('\x1b'), "{out}{err}");
    let (code, _, err) = trireme(&["top", "--monitor", &format!("127.0.0.1:{port}")]);
    assert!(code == 2 && err.contains("--once"), "{err}");
    let (code, _, err) = trireme(&["top", "--once", "--monitor", &format!("127.0.0.1:{}", free_port())]);
    assert!(code == 1 && err.contains("is not reached"), "{err}");
    let (code, out, _) = trireme(&["top", "--once", "--host", &format!("127.0.0.1:{}", free_port())]);
    assert!(code == 1 && out.contains("nobody listens there"), "{out}");
    let (code, _, err) = trireme(&["top", "--once", "--monitor", "no monitor"]);
    assert!(code == 2 && err.contains("no monitor"), "{err}");
}

#[test]
fn status_is_shown_again_until_it_is_interrupted() {
    let port = free_port();
    let mut terminal = Terminal::start(&format!("status --watch --timeout 1 --host 127.0.0.1:{port}"));
    until("the first look", || terminal.text().contains("nobody listens there"));
    // Somebody who says nothing: another screen, and nothing left of the former.
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    until("another look", || {
        terminal.text().contains("no answer: frozen") && !terminal.text().contains("nobody listens")
    });
    drop(listener);
    terminal.press("\x03");
    until("the end", || terminal.child.try_wait().unwrap().is_some());
}
