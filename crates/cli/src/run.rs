//! Does what was resolved.

use crate::follow::follow;
use crate::resolve::{Plan, Task};
use crate::table;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use trireme_cluster::{Answer, Cancel, Cluster, Error, Liveness, NodeId, NodeStatus, Result, Spec, Stop};
pub use trireme_observe::table::print_line;

pub enum Outcome {
    Done,
    Degraded,
}

pub fn run(plan: Plan) -> Result<Outcome> {
    let Plan { dir, cancel, task } = plan;
    let change = || Cluster::open_to_change(&dir, cancel.clone());
    match task {
        Task::Up(spec) => up(&spec, &dir, &cancel)?,
        Task::Status { json } => return status(&Cluster::open(&dir)?, json),
        Task::Statements { node, statements, json } => {
            let mut answers = Vec::new();
            let mut asked = Instant::now();
            // Each argument may or may not end with its semicolon.
            let all = statements.iter().map(|s| s.trim().trim_end_matches(';')).collect::<Vec<_>>().join(";\n");
            let outcome = Cluster::open(&dir)?.sql_each(node, &all, |answer| {
                answers.push((answer, asked.elapsed()));
                asked = Instant::now();
            });
            print_answers(&answers, json);
            outcome?;
        }
        Task::Client { node } => client(&Cluster::open(&dir)?, node)?,
        Task::End { node, how } => {
            let mut cluster = change()?;
            match how {
                Stop::Kill => cluster.kill(node)?,
                Stop::Graceful => cluster.stop(node, how)?,
            }
            let what = match how {
                Stop::Kill => "killed",
                Stop::Graceful => "stopped",
            };
            say(&format!("{node} is {what}; start it again with `trireme cluster restart {}`", node.raw()));
        }
        Task::Pause { node } => {
            change()?.pause(node)?;
            say(&format!("{node} is paused; let it go on with `trireme cluster resume {}`", node.raw()));
        }
        Task::Resume { node } => {
            change()?.resume(node)?;
            say(&format!("{node} goes on"));
        }
        Task::Partition { groups } => {
            let mut cluster = change()?;
            cluster.partition(&groups)?;
            let ids: Vec<NodeId> = cluster.nodes().iter().map(|node| node.id).collect();
            say(&format!("cut off from each other: {}; undo it with `trireme cluster heal`", sides(&groups, &ids)));
        }
        Task::Cut { from, to } => {
            change()?.cut(from, to)?;
            say(&format!("{from} no longer reaches {to}; undo it with `trireme cluster heal`"));
        }
        Task::Heal => {
            let mut cluster = change()?;
            let cut = !cluster.cuts().is_empty();
            cluster.heal()?;
            say(if cut { "all cuts are undone" } else { "nothing was cut" });
        }
        Task::Restart { nodes, end, start } => {
            let mut cluster = change()?;
            for node in &nodes {
                if cluster.liveness(*node)? != Liveness::Gone {
                    cluster.stop(*node, end)?;
                }
            }
            for node in &nodes {
                cluster.launch(*node, start)?;
            }
            // They may have to wait for others, which must be possible to start meanwhile.
            cluster.release();
            for node in &nodes {
                cluster.wait_synced(*node, &mut say)?;
            }
        }
        Task::Add { count, options } => {
            let mut cluster = change()?;
            for _ in 0..count {
                cluster.add(options.clone(), &mut say)?;
            }
        }
        Task::Remove { node } => {
            change()?.remove(node)?;
            say(&format!("{node} is removed"));
        }
        Task::Down { how, purge } => match change() {
            Ok(mut cluster) => {
                cluster.down(how, purge)?;
                say(if purge { "all nodes are stopped and removed" } else { "all nodes are stopped; data is kept" });
            }
            Err(Error::NoCluster(dir)) => {
                let left = purge && Cluster::remove_remains(&dir)?;
                let rest = if left { "; what a start that failed had left is removed" } else { ": nothing to do" };
                say(&format!("no cluster in {}{rest}", dir.display()));
            }
            Err(error) => return Err(error),
        },
        Task::Logs { node, lines, follow: go_on } => {
            let cluster = Cluster::open(&dir)?;
            follow(&cluster.node(node)?.log(), lines, go_on, &cancel);
        }
    }
    Ok(Outcome::Done)
}

fn up(spec: &Spec, dir: &Path, cancel: &Cancel) -> Result<()> {
    let cluster = match Cluster::open(dir) {
        Err(Error::NoCluster(_)) => Cluster::up(spec, &mut say)?,
        Err(error) => return Err(error),
        Ok(old) => {
            let running: Vec<NodeId> = old
                .nodes()
                .iter()
                .map(|n| n.id)
                .filter(|id| !matches!(old.liveness(*id), Ok(Liveness::Gone)))
                .collect();
            if !running.is_empty() {
                table::print_status(&old.status());
                return Err(Error::AlreadyRunning { dir: dir.to_owned(), nodes: running });
            }
            say(&format!(
                "starting the stopped cluster in {} again, as it was (remove it with `trireme cluster down` for a new one)",
                dir.display()
            ));
            let mut cluster = Cluster::open_to_change(dir, cancel.clone())?;
            cluster.revive(&mut say)?;
            cluster
        }
    };
    table::print_status(&cluster.status());
    Ok(())
}

/// `node3 | node1, node2`: the groups that were named, and the nodes in none of them.
fn sides(groups: &[Vec<NodeId>], all: &[NodeId]) -> String {
    let rest: Vec<NodeId> =
        all.iter().copied().filter(|id| !groups.iter().flatten().any(|named| named == id)).collect();
    let sides = groups.iter().chain([&rest]).filter(|side| !side.is_empty());
    let names = |side: &Vec<NodeId>| side.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ");
    sides.map(names).collect::<Vec<_>>().join(" | ")
}

fn status(cluster: &Cluster, json: bool) -> Result<Outcome> {
    let status = cluster.status();
    if json {
        print_json(&serde_json::json!({
            "dir": cluster.dir(),
            "provider": cluster.provider(),
            "cuts": cluster.cuts(),
            "nodes": status,
        }));
    } else {
        table::print_status(&status);
        for node in &status {
            if let Some(reason) = node.slowed_because() {
                print_line(&format!("flow control, seen by {}: {reason}", node.node));
            }
        }
        for (from, to) in cluster.cuts() {
            print_line(&format!("cut: {from} does not reach {to}"));
        }
    }
    let all_synced = status.iter().all(NodeStatus::is_synced);
    if !json {
        let nodes: Vec<Standing> = status.iter().map(Standing::of).collect();
        for line in verdict(&nodes, !cluster.cuts().is_empty()) {
            print_line(&shown(&line));
        }
    }
    Ok(if all_synced { Outcome::Done } else { Outcome::Degraded })
}

/// How a node stands, as the last lines below the table sum it up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Synced,
    Paused,
    Down,
    NotServing,
}

struct Standing {
    node: NodeId,
    how: How,
}

impl Standing {
    fn of(status: &NodeStatus) -> Self {
        let how = match status.pid {
            None => How::Down,
            Some(_) if status.is_paused() => How::Paused,
            Some(_) if status.is_synced() => How::Synced,
            Some(_) => How::NotServing,
        };
        Self { node: status.node, how }
    }
}

/// The sum of the table, and the command that mends each part of it.
fn verdict(nodes: &[Standing], cut: bool) -> Vec<String> {
    let those = |how: How| nodes.iter().filter(move |node| node.how == how).map(|node| node.node).collect::<Vec<_>>();
    let names = |nodes: &[NodeId]| nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ");
    let mut lines = Vec::new();
    if nodes.iter().all(|node| node.how == How::Synced) {
        // The others notice a cut only when they miss the node.
        let until = if cut { "; a node that is cut off is dropped after evs.suspect_timeout (5 s)" } else { "" };
        lines.push(format!("all {} nodes are Synced{until}", nodes.len()));
    }
    let down = those(How::Down);
    if let Some(first) = down.first() {
        let start = format!("`trireme cluster restart {}`", first.raw());
        lines.push(format!("not running: {}; start one again with {start}", names(&down)));
    }
    let paused = those(How::Paused);
    if let Some(first) = paused.first() {
        let resume = format!("`trireme cluster resume {}`", first.raw());
        lines.push(format!("paused: {}; let one go on with {resume}", names(&paused)));
    }
    let waiting = those(How::NotServing);
    if !waiting.is_empty() {
        lines.push(format!("running, and not serving clients yet: {}", names(&waiting)));
    }
    lines
}

/// Becomes the interactive client.
fn client(cluster: &Cluster, node: NodeId) -> Result<()> {
    if cluster.liveness(node)? == Liveness::Gone {
        return Err(Error::NotRunning(node));
    }
    let socket = cluster.node(node)?.socket();
    let error = Command::new("mariadb")
        .arg("--no-defaults")
        .arg("--user=root")
        .arg(format!("--socket={}", socket.display()))
        .arg(format!("--prompt={node} [\\d]> "))
        .exec();
    Err(Error::Io { what: "cannot run the client `mariadb` (package mariadb-client)".to_owned(), error })
}

/// Each answer with the time that it took.
fn print_answers(answers: &[(Answer, Duration)], json: bool) {
    match answers {
        [(one, _)] if json => print_json(&to_json(one)),
        [] if json => {}
        many if json => print_json(&many.iter().map(|(answer, _)| to_json(answer)).collect()),
        many => many.iter().for_each(|(answer, took)| print_answer(answer, *took)),
    }
}

fn to_json(answer: &Answer) -> serde_json::Value {
    let rows: Vec<Vec<Option<String>>> = answer
        .rows
        .iter()
        .map(|row| row.iter().map(|cell| cell.as_ref().map(|b| String::from_utf8_lossy(b).into_owned())).collect())
        .collect();
    serde_json::json!({ "columns": answer.columns, "rows": rows, "affected": answer.affected })
}

fn print_answer(answer: &Answer, took: Duration) {
    if answer.columns.is_empty() {
        let rows = if answer.affected == 1 { "row" } else { "rows" };
        print_line(&format!("{} {rows} affected ({:.2} s)", answer.affected, took.as_secs_f64()));
    } else {
        table::print(&answer.columns, &answer.texts());
    }
}

pub fn print_json(value: &serde_json::Value) {
    print_line(&format!("{value:#}"));
}

/// Progress for a person; stderr keeps stdout clean for what was asked.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", shown(line));
}

/// Where a hint will be typed.
enum Hints<'a> {
    /// In a shell: with the command as it was called, and the cluster's directory where it was given.
    Shell { called: &'a str, dir: Option<&'a str> },
    /// In a trial, which takes the words of `trireme cluster` alone.
    Trial,
}

/// `trireme up` tells the commands that are typed in it by this variable of their environment.
pub const IN_TRIAL: &str = "TRIREME_IN_TRIAL";

/// Hints can be pasted where the command was typed.
pub fn shown(line: &str) -> String {
    if std::env::var_os(IN_TRIAL).is_some() {
        return hint(line, &Hints::Trial);
    }
    let mut arguments = std::env::args();
    let called = arguments.next().unwrap_or_else(|| "trireme".to_owned());
    let dir = arguments.by_ref().find_map(|word| match word.strip_prefix("--dir") {
        Some("") => Some(None),
        Some(value) => value.strip_prefix('=').map(|value| Some(value.to_owned())),
        None => None,
    });
    let dir = dir.and_then(|given| given.or_else(|| arguments.next()));
    hint(line, &Hints::Shell { called: &called, dir: dir.as_deref() })
}

fn hint(line: &str, hints: &Hints<'_>) -> String {
    let pasted = |command: &str| {
        let Some(words) = command.strip_prefix("trireme ") else { return command.to_owned() };
        let action = words.strip_prefix("cluster ").filter(|action| !action.starts_with("--dir "));
        match (hints, action) {
            (Hints::Trial, Some(action)) => action.to_owned(),
            (Hints::Trial, None) => command.to_owned(),
            (Hints::Shell { called, dir: Some(dir) }, Some(action)) => format!("{called} cluster --dir {dir} {action}"),
            (Hints::Shell { called, dir: _ }, _) => format!("{called} {words}"),
        }
    };
    // Every second piece stands between two of them.
    let pieces = line.split('`').enumerate();
    pieces.map(|(i, piece)| if i % 2 == 1 { pasted(piece) } else { piece.to_owned() }).collect::<Vec<_>>().join("`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_told_by_its_sides() {
        let nodes: Vec<NodeId> = (1..=4).filter_map(NodeId::new).collect();
        assert_eq!(sides(&[vec![nodes[2]]], &nodes), "node3 | node1, node2, node4");
        assert_eq!(sides(&[nodes[..2].to_vec(), nodes[2..].to_vec()], &nodes), "node1, node2 | node3, node4");
    }

    #[test]
    fn a_table_is_summed_up_by_what_is_the_matter() {
        let standing = |nodes: &[How]| -> Vec<Standing> {
            let ids = (1..).filter_map(NodeId::new);
            ids.zip(nodes).map(|(node, how)| Standing { node, how: *how }).collect()
        };
        let all = standing(&[How::Synced; 3]);
        assert_eq!(verdict(&all, false), ["all 3 nodes are Synced"]);
        assert_eq!(
            verdict(&all, true),
            ["all 3 nodes are Synced; a node that is cut off is dropped after evs.suspect_timeout (5 s)"]
        );
        assert_eq!(
            verdict(&standing(&[How::Down, How::Paused, How::Synced, How::NotServing, How::Paused]), false),
            [
                "not running: node1; start one again with `trireme cluster restart 1`",
                "paused: node2, node5; let one go on with `trireme cluster resume 2`",
                "running, and not serving clients yet: node4"
            ]
        );
    }

    #[test]
    fn hints_can_be_pasted() {
        let line = "node3 is killed; start it again with `trireme cluster restart 3`, or see `trireme log verify`";
        let shell = |line, called, dir| hint(line, &Hints::Shell { called, dir });
        assert_eq!(shell(line, "trireme", None), line);
        let named = "end it with `trireme cluster --dir /tmp/b down`";
        assert_eq!(shell(named, "trireme", Some("/tmp/c")), named, "it names a directory already");
        assert_eq!(
            shell(line, "target/release/trireme", Some("/tmp/c")),
            "node3 is killed; start it again with `target/release/trireme cluster --dir /tmp/c restart 3`, or see \
             `target/release/trireme log verify`"
        );
        assert_eq!(
            hint(line, &Hints::Trial),
            "node3 is killed; start it again with `restart 3`, or see `trireme log verify`"
        );
    }
}
