//! From what was typed to what will be done: defaults, paths. Looks at the file system, changes nothing.

use crate::args::{Action, NodeList, Restart, Up};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trireme_cluster::{Cancel, Error, NodeId, Result, Spec, Start, Stop, default_dir, galera_provider, is_galera};

#[derive(Debug)]
pub struct Plan {
    pub dir: PathBuf,
    pub cancel: Cancel,
    pub task: Task,
}

#[derive(Debug)]
pub enum Task {
    Up(Box<Spec>),
    Status { json: bool },
    Statements { node: NodeId, statements: Vec<String>, json: bool },
    Client { node: NodeId },
    End { node: NodeId, how: Stop },
    Pause { node: NodeId },
    Resume { node: NodeId },
    Partition { groups: Vec<Vec<NodeId>> },
    Cut { from: NodeId, to: NodeId },
    Heal,
    Restart { nodes: Vec<NodeId>, end: Stop, start: Start },
    Add { count: u8, options: Vec<String> },
    Remove { node: NodeId },
    Down { how: Stop, purge: bool },
    Logs { node: NodeId, lines: usize, follow: bool },
}

pub fn resolve(dir: Option<PathBuf>, action: Action, cancel: Cancel) -> Result<Plan> {
    let dir = std::path::absolute(dir.unwrap_or_else(default_dir))
        .map_err(|error| Error::Io { what: "cannot resolve the directory".to_owned(), error })?;
    let task = match action {
        Action::Up(up) => Task::Up(Box::new(spec(up, &dir, &cancel)?)),
        Action::Status { json } => Task::Status { json },
        Action::Sql { node, statements, json: _ } if statements.is_empty() => Task::Client { node },
        Action::Sql { node, statements, json } => Task::Statements { node, statements, json },
        Action::Kill { node } => Task::End { node, how: Stop::Kill },
        Action::Stop { node } => Task::End { node, how: Stop::Graceful },
        Action::Pause { node } => Task::Pause { node },
        Action::Resume { node } => Task::Resume { node },
        Action::Partition { from: Some(from), to: Some(to), .. } => Task::Cut { from, to },
        Action::Partition { groups, .. } => {
            Task::Partition { groups: groups.into_iter().map(|NodeList(nodes)| nodes).collect() }
        }
        Action::Heal => Task::Heal,
        Action::Restart(Restart { nodes, bootstrap: true, .. }) if nodes.len() > 1 => {
            return Err(Error::BadSpec("only one node can found a new group: name one with --bootstrap".to_owned()));
        }
        Action::Restart(Restart { mut nodes, bootstrap, plain, kill }) => Task::Restart {
            nodes: {
                nodes.sort();
                nodes.dedup();
                nodes
            },
            end: if kill { Stop::Kill } else { Stop::Graceful },
            start: match (bootstrap, plain) {
                (true, _) => Start::Bootstrap,
                (false, true) => Start::Plain,
                (false, false) => Start::Recover,
            },
        },
        Action::Add { count, options } => Task::Add { count, options: options.option },
        Action::Remove { node } => Task::Remove { node },
        Action::Down { keep } => Task::Down { how: if keep { Stop::Graceful } else { Stop::Kill }, purge: !keep },
        Action::Logs { node, lines, follow } => Task::Logs { node, lines, follow },
    };
    Ok(Plan { dir, cancel, task })
}

pub fn spec(up: Up, dir: &Path, cancel: &Cancel) -> Result<Spec> {
    let mut node_options: BTreeMap<NodeId, Vec<String>> = BTreeMap::new();
    for option in up.node_option {
        if option.node.raw() > up.nodes {
            return Err(Error::BadSpec(format!(
                "--node-option names {}, but only {} are started",
                option.node, up.nodes
            )));
        }
        node_options.entry(option.node).or_default().push(option.line);
    }
    let provider = provider(up.provider)?;
    Ok(Spec {
        nodes: up.nodes,
        provider_options: shown_in_trials(&provider, up.provider_options),
        provider,
        dir: dir.to_owned(),
        base_port: up.base_port,
        sst: up.sst,
        settings: up.settings,
        name: up.name,
        options: up.options.option,
        node_options,
        arbitrator: up
            .arbitrator
            .then(std::env::current_exe)
            .transpose()
            .map_err(|error| Error::Io { what: "cannot find this command's own file".to_owned(), error })?,
        tls: up.tls,
        secret: !up.clear,
        netns: up.netns,
        plain: false,
        disks: None,
        start_limit: Duration::from_secs(up.timeout),
        cancel: cancel.clone(),
    })
}

pub fn provider(asked: Option<PathBuf>) -> Result<PathBuf> {
    match asked {
        Some(path) if path == Path::new("galera") => {
            galera_provider().map(Path::to_owned).ok_or_else(|| Error::Missing {
                what: "Galera's library".to_owned(),
                advice: "install the package galera-4, or give the library's path".to_owned(),
            })
        }
        Some(path) => Ok(path),
        None => {
            let own = std::env::current_exe().ok().and_then(|exe| library_of(&exe));
            Ok(own.unwrap_or_else(|| PathBuf::from("target/release/libtrireme.so")))
        }
    }
}

/// The library that belongs to the command `exe`: beside it, as it is built, or where it is installed (`/usr/bin`, `/usr/lib/trireme`).
fn library_of(exe: &Path) -> Option<PathBuf> {
    let dir = exe.parent()?;
    let places = [dir.join("libtrireme.so"), dir.parent()?.join("lib/trireme/libtrireme.so")];
    places.into_iter().find(|path| path.is_file())
}

/// A trial shows who orders and who votes, unless it was asked for something else.
fn shown_in_trials(provider: &Path, asked: String) -> String {
    match (is_galera(provider), asked.is_empty()) {
        (true, _) => asked,
        (false, true) => SHOW.to_owned(),
        (false, false) => format!("{SHOW};{asked}"),
    }
}

const SHOW: &str = "repl.status_extended=yes";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_library_where_it_is_built_and_where_it_is_installed() {
        let root = std::env::temp_dir().join(format!("trireme-library-{}", std::process::id()));
        let make = |name: &str| {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            path
        };
        assert_eq!(library_of(&root.join("bin/trireme")), None);
        let installed = make("lib/trireme/libtrireme.so");
        assert_eq!(library_of(&root.join("bin/trireme")), Some(installed));
        let built = make("target/release/libtrireme.so");
        assert_eq!(library_of(&root.join("target/release/trireme")), Some(built));
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn what_was_asked_for_comes_last() {
        let shown = |library: &str, asked: &str| shown_in_trials(Path::new(library), asked.to_owned());
        assert_eq!(shown("/l/libtrireme.so", ""), "repl.status_extended=yes");
        assert_eq!(
            shown("/l/libtrireme.so", "repl.status_extended=no"),
            "repl.status_extended=yes;repl.status_extended=no"
        );
        assert_eq!(shown("/l/libgalera_smm.so", "a=b"), "a=b");
    }
}
