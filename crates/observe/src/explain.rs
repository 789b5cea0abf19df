//! `trireme explain`: a line of the error log, its meaning, and what to do. `trireme events`: what happened, from the logs of all nodes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::errorlog;
use crate::lines::{self, Line, Topic};
use crate::table::{self, print_line, printable};

const NOTES: &str = "\
Exit codes:
  0  a line was explained
  1  failed, with one line on stderr
  2  wrong usage
  3  no line is known";

#[derive(Clone, Debug, Args)]
#[command(after_help = NOTES)]
pub struct Explain {
    /// The line, or a part of it. Without one, lines are read from stdin
    pub line: Vec<String>,
    /// Explain this error log; each kind of line once, with how often it occurs
    #[arg(long, value_name = "FILE", conflicts_with = "line")]
    pub log: Option<PathBuf>,
    /// Print all lines that are known, as a table in Markdown
    #[arg(long, conflicts_with_all = ["line", "log"])]
    pub list: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const EVENT_NOTES: &str = "\
Reads error logs and merges them by time. Name each file with the node's name before it, NAME=FILE, or let the file's directory name it.
Times are those of the servers' own clocks: `trireme status` says how far they are apart.

Exit codes:
  0  done
  1  a log could not be read; the others are shown
  2  wrong usage";

#[derive(Clone, Debug, Args)]
#[command(after_help = EVENT_NOTES)]
pub struct Events {
    /// Error logs, [NAME=]FILE
    #[arg(required = true)]
    pub logs: Vec<String>,
    /// Only these topics, separated by commas: view, term, state, transfer, link, silence, vote, fork, eviction, flow, log, position, security,
    /// setting, panic
    #[arg(long, value_name = "TOPICS", value_delimiter = ',', value_parser = topic)]
    pub only: Vec<Topic>,
    /// Only from this time on, as the logs write it: 2026-11-23, or `2026-11-23 10:05:00`
    #[arg(long, value_name = "TIME", default_value = "")]
    pub since: String,
    /// Print JSON, an object per line
    #[arg(long)]
    pub json: bool,
}

fn topic(text: &str) -> Result<Topic, String> {
    let words: Vec<&str> = Topic::ALL.iter().map(|topic| topic.word()).collect();
    let found = Topic::ALL.into_iter().find(|topic| topic.word() == text);
    found.ok_or_else(|| format!("there is no topic `{text}`: {}", words.join(", ")))
}

/// A line of an error log is never longer; the rest of one that is, is skipped.
const LINE_MAX: u64 = 64 << 10;

/// Calls `each` with every line of a log, whatever bytes are in it.
pub fn read_lines(reader: impl Read, mut each: impl FnMut(&str)) -> std::io::Result<()> {
    let mut reader = BufReader::new(reader);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut bytes)? == 0 {
            return Ok(());
        }
        each(String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']));
    }
}

/// How often each kind of line occurs, in the order of the table.
#[derive(Default)]
struct Found {
    kinds: BTreeMap<usize, (u64, String)>,
}

impl Found {
    fn take(&mut self, line: &str) {
        let text = errorlog::parse(line).text;
        if let Some(place) = lines::LINES.iter().position(|kind| kind.fits(text)) {
            let found = self.kinds.entry(place).or_insert_with(|| (0, text.to_owned()));
            found.0 += 1;
            text.clone_into(&mut found.1);
        }
    }
}

/// `trireme explain`.
pub fn explain(asked: &Explain) -> ExitCode {
    if asked.list {
        print_line(lines::page().trim_end());
        return ExitCode::SUCCESS;
    }
    let mut found = Found::default();
    let read = match &asked.log {
        _ if !asked.line.is_empty() => {
            found.take(&asked.line.join(" "));
            Ok(())
        }
        Some(path) => File::open(path)
            .and_then(|file| read_lines(file, |line| found.take(line)))
            .map_err(|error| format!("{}: {error}", path.display())),
        None => read_lines(std::io::stdin(), |line| found.take(line)).map_err(|error| format!("stdin: {error}")),
    };
    if let Err(reason) = read {
        eprintln!("trireme explain: {reason}");
        return ExitCode::FAILURE;
    }
    let several = asked.log.is_some() || asked.line.is_empty();
    let kinds: Vec<(&Line, u64, &str)> =
        found.kinds.iter().map(|(place, (count, last))| (&lines::LINES[*place], *count, last.as_str())).collect();
    if asked.json {
        let all: Vec<_> = kinds
            .iter()
            .map(|(line, count, last)| {
                json!({ "line": line.shown(), "topic": line.topic, "count": count, "last": last, "meaning": line.meaning, "action": line.action })
            })
            .collect();
        print_line(&format!("{:#}", json!({ "version": 1, "lines": all })));
    } else {
        for (line, count, last) in &kinds {
            if several {
                print_line(&format!("{count} ×  {}", printable(last)));
            }
            print_line(&format!("Meaning:    {}\nWhat to do: {}\n", line.meaning, line.action));
        }
    }
    if kinds.is_empty() {
        eprintln!("trireme explain: no such line is known; `trireme explain --list` shows those that are");
        return ExitCode::from(3);
    }
    ExitCode::SUCCESS
}

/// Something that happened.
struct Event {
    time: String,
    node: String,
    topic: Topic,
    text: String,
}

/// `trireme events`.
pub fn events(asked: &Events) -> ExitCode {
    let mut events = Vec::new();
    let mut failed = false;
    for word in &asked.logs {
        let (node, path) = name_and_path(word);
        let mut last = String::new();
        let outcome = File::open(&path).and_then(|file| {
            read_lines(file, |line| {
                let entry = errorlog::parse(line);
                if let Some(time) = entry.time {
                    last = time;
                }
                let Some(kind) = lines::find(entry.text) else { return };
                if (asked.only.is_empty() || asked.only.contains(&kind.topic)) && *last >= *asked.since {
                    let (time, text) = (last.clone(), entry.text.to_owned());
                    events.push(Event { time, node: node.clone(), topic: kind.topic, text });
                }
            })
        });
        if let Err(error) = outcome {
            eprintln!("trireme events: {}: {error}", path.display());
            failed = true;
        }
    }
    // Lines of one log stay in their order.
    events.sort_by(|a, b| a.time.cmp(&b.time));
    if asked.json {
        for event in &events {
            print_line(&format!(
                "{}",
                json!({ "time": event.time, "node": event.node, "topic": event.topic, "text": event.text })
            ));
        }
    } else {
        let head = ["TIME", "NODE", "TOPIC", "WHAT"].map(str::to_owned);
        let row = |e: &Event| vec![e.time.clone(), e.node.clone(), e.topic.word().to_owned(), printable(&e.text)];
        let lines = table::lines(&head, &events.iter().map(row).collect::<Vec<_>>());
        lines.iter().for_each(|line| print_line(line));
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// `NAME=FILE`; without a name the directory's, since error logs have the same name on all nodes.
fn name_and_path(word: &str) -> (String, PathBuf) {
    if let Some((name, path)) = word.split_once('=').filter(|(name, _)| !name.contains('/')) {
        return (name.to_owned(), PathBuf::from(path));
    }
    let path = PathBuf::from(word);
    let part = |path: Option<&Path>| Some(path?.file_name()?.to_string_lossy().into_owned());
    let name = part(path.parent()).or_else(|| part(Some(&path))).unwrap_or_else(|| word.to_owned());
    (name, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_any_bytes_and_length() {
        let mut bytes = b"a\xff\r\n\n".to_vec();
        bytes.extend(vec![b'x'; 200_000]);
        let mut lines = Vec::new();
        read_lines(&bytes[..], |line| lines.push(line.to_owned())).unwrap();
        assert_eq!(lines[0], "a\u{fffd}");
        assert_eq!(lines[1], "");
        assert_eq!(lines[2..].iter().map(String::len).sum::<usize>(), 200_000);
    }

    #[test]
    fn names_of_logs() {
        assert_eq!(name_and_path("db1=/x/error.log").0, "db1");
        assert_eq!(name_and_path("/x/node2/error.log"), ("node2".into(), PathBuf::from("/x/node2/error.log")));
        assert_eq!(name_and_path("error.log").0, "error.log");
        assert_eq!(name_and_path("/x/a=b/error.log").0, "a=b");
    }

    #[test]
    fn kinds_are_counted() {
        let mut found = Found::default();
        for line in ["2026-11-23  0:01:20 0 [Note] WSREP: member a is silent", "member b is silent", "nothing"] {
            found.take(line);
        }
        let (count, last) = found.kinds.values().next().unwrap();
        assert_eq!((found.kinds.len(), *count, last.as_str()), (1, 2, "member b is silent"));
    }
}
