//! Every scenario has a bound of time. One that hangs then has a name, and its processes are told: else somebody ends the whole run, and nobody knows why.

use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The scenarios under way, each since when.
#[derive(Default)]
pub struct UnderWay(Mutex<Vec<(&'static str, Instant)>>);

impl UnderWay {
    pub fn begin(&self, name: &'static str) {
        self.0.lock().expect("no holder panics").push((name, Instant::now()));
    }

    pub fn end(&self, name: &str) {
        self.0.lock().expect("no holder panics").retain(|(other, _)| *other != name);
    }

    /// One that has taken longer than `limit`.
    pub fn overdue(&self, limit: Duration) -> Option<&'static str> {
        let running = self.0.lock().expect("no holder panics");
        running.iter().find(|(_, since)| since.elapsed() > limit).map(|(name, _)| *name)
    }
}

/// Ends all processes that this one and its children have begun. Gives a line for each, as `ps` shows them: what state it is in, since
/// when, and what in the kernel it waits for.
pub fn end_descendants() -> String {
    let columns = "pid,ppid,stat,etimes,wchan:24,args";
    let listed = Command::new("ps").args(["-ww", "-e", "-o", columns, "--no-headers"]).output();
    let text = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let lines = of_descendants(&text, std::process::id());
    for (pid, _) in &lines {
        // It may have ended.
        let _ = i32::try_from(*pid).map(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL));
    }
    lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>().join("\n")
}

/// The lines of `listed`, which begin with a process and its parent, that are about descendants of `ancestor`.
fn of_descendants(listed: &str, ancestor: u32) -> Vec<(u32, &str)> {
    let all: Vec<(u32, u32, &str)> = listed
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?, line))
        })
        .collect();
    let mut known = vec![ancestor];
    let mut found = Vec::new();
    let mut next = 0;
    while let Some(parent) = known.get(next).copied() {
        for (pid, _, line) in all.iter().filter(|(_, of, _)| *of == parent) {
            known.push(*pid);
            found.push((*pid, *line));
        }
        next += 1;
    }
    found
}
