//! `trireme up`: a trial in the foreground. The cluster is there as long as the command runs, and nothing of it afterwards. Commands
//! that are typed meanwhile are those of `trireme cluster`; each runs as a process of its own, in the same namespaces, since only
//! there can networks be cut by somebody who is not root.

use crate::args::Up;
use crate::resolve::spec;
use crate::run::{IN_TRIAL, Outcome, print_line, say};
use crate::table;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;
use trireme_cluster::{
    Cancel, Cluster, Error, Liveness, NodeId, Result, Stop, default_dir, enter_user_namespace, in_user_namespace,
    namespaces_available,
};

/// Between two looks whether Ctrl-C was pressed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Lets the process cut networks, where that is possible. In a namespace it starts anew, so this comes first.
pub fn enter_namespace() {
    if namespaces_available().is_err() && !in_user_namespace() && enter_user_namespace().is_err() {
        say("networks cannot be cut here: that takes root, or user namespaces; everything else works");
    }
}

/// Until Ctrl-C, `quit` or the end of what is typed.
pub fn run(mut asked: Up, dir: Option<PathBuf>, cancel: &Cancel) -> Result<Outcome> {
    let dir = std::path::absolute(dir.unwrap_or_else(trial_dir))
        .map_err(|error| Error::Io { what: "cannot resolve the directory".to_owned(), error })?;
    refuse_or_clear(&dir)?;
    asked.netns |= namespaces_available().is_ok();
    let cuts = asked.netns;
    let spec = spec(asked, &dir, cancel)?;
    let cluster = Cluster::up(&spec, &mut say).inspect_err(|_| {
        // Nothing runs any more; what there is of files goes too.
        let _ = Cluster::remove_remains(&dir);
    })?;
    table::print_status(&cluster.status());
    drop(cluster);
    print_line(&welcome(&dir, cuts));
    let outcome = converse(&dir, cancel);
    say("the trial ends: all nodes are stopped and removed");
    // Nobody waits for it any more: what Ctrl-C ended was the conversation.
    Cluster::open_to_change(&dir, Cancel::default())?.down(Stop::Kill, true)?;
    outcome.map(|()| Outcome::Done)
}

/// Beside the directory of `trireme cluster`, so that the two do not meet.
fn trial_dir() -> PathBuf {
    let mut dir = default_dir().into_os_string();
    dir.push("-up");
    dir.into()
}

/// Removes the files of a trial that was killed; one that runs is left alone.
fn refuse_or_clear(dir: &Path) -> Result<()> {
    let old = match Cluster::open(dir) {
        Err(Error::NoCluster(_)) => return Cluster::remove_remains(dir).map(drop),
        Err(error) => return Err(error),
        Ok(old) => old,
    };
    let is_there = |id: &NodeId| !matches!(old.liveness(*id), Ok(Liveness::Gone));
    let nodes: Vec<NodeId> = old.nodes().iter().map(|node| node.id).filter(is_there).collect();
    if !nodes.is_empty() {
        return Err(Error::BadSpec(format!(
            "a trial runs in {dir}: end it where it was started, or with `trireme cluster --dir {dir} down`; a second one takes another --dir and --base-port",
            dir = dir.display()
        )));
    }
    say("removing what a trial that was killed has left");
    Cluster::open_to_change(dir, Cancel::default())?.down(Stop::Kill, true)
}

fn welcome(dir: &Path, cuts: bool) -> String {
    let called = std::env::args().next().unwrap_or_else(|| "trireme".to_owned());
    let cut = if cuts { "\n  partition 2                      … as a broken switch would; then: heal" } else { "" };
    format!(
        "\nThe servers are running. Type what to do, or Ctrl-C to end everything:\n  \
           sql 1 CREATE DATABASE shop       a statement on node 1\n  \
           sql 2                            a client on node 2\n  \
           kill 3                           … as a crash would; then: restart 3{cut}\n  \
           status, pause 2, resume 2, add, logs 1, help, quit\n\
         In another terminal: {called} cluster --dir {} status",
        dir.display()
    )
}

/// Reads a line each time that it is asked for one: between two, a client may be reading from the same terminal.
fn read_lines(asked: Receiver<()>, lines: Sender<Option<String>>) {
    for () in asked {
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        let line = read.ok().filter(|bytes| *bytes > 0).map(|_| line);
        if lines.send(line).is_err() {
            return;
        }
    }
}

fn converse(dir: &Path, cancel: &Cancel) -> Result<()> {
    let (ask, asked) = channel();
    let (lines, hear) = channel();
    thread::spawn(move || read_lines(asked, lines));
    while !cancel.is_set() {
        if std::io::stdin().is_terminal() {
            let _ = write!(std::io::stderr(), "trireme> ");
        }
        if ask.send(()).is_err() {
            break;
        }
        let line = loop {
            match hear.recv_timeout(LOOK_EVERY) {
                Ok(line) => break line,
                Err(RecvTimeoutError::Timeout) if !cancel.is_set() => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break None,
            }
        };
        let Some(line) = line else { break };
        match understand(&line) {
            Typed::Nothing => {}
            Typed::End => return Ok(()),
            Typed::Command(words) => obey(dir, &words)?,
        }
    }
    let _ = writeln!(std::io::stderr());
    Ok(())
}

#[derive(Debug, PartialEq)]
enum Typed {
    Nothing,
    End,
    Command(Vec<String>),
}

/// `trireme cluster kill 3`, `cluster kill 3` and `kill 3` are the same: lines of the documents can be pasted.
fn understand(line: &str) -> Typed {
    let mut line = line.split('#').next().unwrap_or_default().trim();
    if let Some((first, rest)) = line.split_once(' ') {
        if first == "trireme" || first.ends_with("/trireme") {
            line = rest.trim();
        }
    }
    line = line.strip_prefix("cluster ").unwrap_or(line).trim();
    let mut words = line.split_whitespace().map(str::to_owned);
    let Some(first) = words.next() else { return Typed::Nothing };
    match first.as_str() {
        "quit" | "exit" | "down" => return Typed::End,
        "sql" => {}
        _ => return Typed::Command(std::iter::once(first).chain(words).collect()),
    }
    let mut command = vec![first];
    command.extend(words.next());
    // The statement as it was typed, without the quotes that a shell would have taken away.
    let statement = line.splitn(3, char::is_whitespace).nth(2).unwrap_or_default().trim();
    let unquoted = ['\'', '"'].iter().find_map(|quote| statement.strip_prefix(*quote)?.strip_suffix(*quote));
    command.extend(Some(unquoted.unwrap_or(statement)).filter(|text| !text.is_empty()).map(str::to_owned));
    Typed::Command(command)
}

/// The command itself says its errors.
fn obey(dir: &Path, words: &[String]) -> Result<()> {
    let program = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut command = Command::new(program);
    if words[0] == "help" {
        command.args(["cluster", "--help"])
    } else {
        command.args(["cluster", "--dir"]).arg(dir).args(words)
    };
    command.env(IN_TRIAL, "yes");
    command.status().map(drop).map_err(|error| Error::Io { what: "cannot run a command".to_owned(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn understands_what_is_typed_and_what_is_pasted() {
        let command = |line: &str| match understand(line) {
            Typed::Command(words) => words,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(command("kill 3\n"), ["kill", "3"]);
        assert_eq!(command("  trireme cluster kill 3   # as a crash would"), ["kill", "3"]);
        assert_eq!(command("target/release/trireme cluster status --json"), ["status", "--json"]);
        assert_eq!(command("sql 1 CREATE DATABASE  shop"), ["sql", "1", "CREATE DATABASE  shop"]);
        assert_eq!(command("cluster sql 2 'SELECT \"a\"'"), ["sql", "2", "SELECT \"a\""]);
        assert_eq!(command("sql 3"), ["sql", "3"]);
        assert_eq!(command("sql"), ["sql"]);
        for end in ["quit", "exit", " down "] {
            assert_eq!(understand(end), Typed::End, "{end}");
        }
        for nothing in ["", "   ", "# words"] {
            assert_eq!(understand(nothing), Typed::Nothing, "{nothing}");
        }
    }
}
