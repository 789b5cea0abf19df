//! Reading a node's error log: following it while something runs, and finding the reason when a server ended.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Reads a growing log from a remembered place.
#[derive(Debug)]
pub struct LogCursor {
    path: PathBuf,
    offset: u64,
    partial: Vec<u8>,
}

impl LogCursor {
    /// Starts at the present end of the file; a file not yet there has its end at 0.
    pub fn at_end(path: &Path) -> LogCursor {
        let offset = std::fs::metadata(path).map_or(0, |meta| meta.len());
        LogCursor { path: path.to_owned(), offset, partial: Vec::new() }
    }

    pub fn at_start(path: &Path) -> LogCursor {
        LogCursor { path: path.to_owned(), offset: 0, partial: Vec::new() }
    }

    /// The complete lines written since the last call. A log that cannot be read has no lines.
    pub fn lines(&mut self) -> Vec<String> {
        let mut fresh = Vec::new();
        if let Ok(mut file) = File::open(&self.path)
            && file.seek(SeekFrom::Start(self.offset)).is_ok()
            && let Ok(n) = file.read_to_end(&mut fresh)
        {
            self.offset += n as u64;
        }
        self.partial.extend_from_slice(&fresh);
        let Some(end) = self.partial.iter().rposition(|b| *b == b'\n') else { return Vec::new() };
        let rest = self.partial.split_off(end + 1);
        let whole = std::mem::replace(&mut self.partial, rest);
        String::from_utf8_lossy(&whole).lines().map(str::to_owned).collect()
    }
}

/// The last `n` lines of a file; empty if it cannot be read.
pub fn tail(path: &Path, n: usize) -> Vec<String> {
    let lines = LogCursor::at_start(path).lines();
    lines[lines.len().saturating_sub(n)..].to_vec()
}

/// Beyond this a line has been out of sight for too long to be one of a run.
const RUN_OF_KINDS: usize = 4;

/// The end of a log for somebody who looks for a reason: at most `n` lines. Lines that differ in numbers, names and addresses only, and come one
/// after the other or in turns, are one line and a count, with the time of the last of them.
pub fn digest(path: &Path, n: usize) -> Vec<String> {
    let folded = fold(LogCursor::at_start(path).lines());
    folded[folded.len().saturating_sub(n)..].iter().map(Folded::to_string).collect()
}

struct Folded {
    first: String,
    kind: String,
    more: usize,
    /// Of a line with a time.
    last_at: Option<String>,
}

impl fmt::Display for Folded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Folded { first, more, last_at, .. } = self;
        f.write_str(first)?;
        match last_at {
            _ if *more == 0 => Ok(()),
            Some(at) => write!(f, " [and {more} more like it, the last at {at}]"),
            None => write!(f, " [and {more} more like it]"),
        }
    }
}

fn fold(lines: Vec<String>) -> Vec<Folded> {
    let mut folded: Vec<Folded> = Vec::new();
    for line in lines {
        let kind = kind_of(&line);
        let near = folded.len().saturating_sub(RUN_OF_KINDS);
        // Empty lines and frames are what they are.
        let alike = folded[near..].iter_mut().find(|seen| seen.kind == kind && kind.contains(' '));
        match alike {
            Some(seen) => {
                seen.more += 1;
                seen.last_at = line.split_whitespace().nth(1).filter(|word| word.contains(':')).map(str::to_owned);
            }
            None => folded.push(Folded { first: line, kind, more: 0, last_at: None }),
        }
    }
    folded
}

/// A line without its words that hold a digit.
fn kind_of(line: &str) -> String {
    let words =
        line.split_whitespace().map(|word| if word.contains(|c: char| c.is_ascii_digit()) { "#" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// Of what a server logs when it starts after a crash, in this order: it asks the engine for its position, knows that, catches up, and has
/// opened the engine. Not every start comes by all of them.
pub const START_LINES: [&str; 4] =
    ["asking the storage engine for it", "recovered position", "Receiving IST", "Server initialized"];

/// The lines of the newest run among those of a server's log.
pub fn last_run(lines: &[String]) -> &[String] {
    let start = lines.iter().rposition(|line| line.contains("Starting MariaDB") && line.contains(" as process "));
    &lines[start.unwrap_or(0)..]
}

/// Whether the newest run has done everything but open for clients. A server that is told to stop right there waits for good:
/// `init_slave` awaits the start of a background thread that has ended again already, because of the stop. With any provider,
/// and with none.
pub fn hangs_before_opening(lines: &[String]) -> bool {
    let run = last_run(lines);
    let says = |text: &str| run.iter().any(|line| line.ends_with(text));
    says("WSREP: Server initialized") && !says("mariadbd: ready for connections.")
}

/// One line that says why a server ended, from the log lines of its last run.
pub fn cause_of_death(lines: &[String]) -> String {
    let errors: Vec<&String> = lines.iter().filter(|line| line.contains("[ERROR]")).collect();
    // The final "Aborting" and follow-up errors are the least telling: take the first error, unless the provider
    // named a more specific reason.
    let telling = errors.iter().find(|line| !line.contains("Aborting") && !line.ends_with("[ERROR] ")).copied();
    match telling.or(lines.last()) {
        Some(line) => strip_stamp(line).to_owned(),
        None => "nothing in its log".to_owned(),
    }
}

/// The news in a line about a running state transfer or a change of state, in words for a user; `None` for all others.
pub fn milestone(line: &str) -> Option<String> {
    let text = strip_stamp(line);
    let text = text.strip_prefix("WSREP: ").unwrap_or(text);
    let at = |marker: &str| text.find(marker).map(|start| text[start..].to_owned());
    if let Some(start) = text.find("requested state transfer from") {
        return Some(text[start..].to_owned());
    }
    if text.starts_with("Shifting ") {
        return Some(text.to_owned());
    }
    if text.contains("Running: 'wsrep_sst_") && text.contains("--role 'joiner'") {
        return Some("state transfer: receiving script runs".to_owned());
    }
    // The server says so too, without a position.
    at("SST received: ").or_else(|| at("IST received")).or_else(|| at("Receiving IST:"))
}

/// Cuts `2026-01-01 10:00:00 0 [Note] ` off a line.
fn strip_stamp(line: &str) -> &str {
    line.find("] ").map_or(line, |end| &line[end + 2..]).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_run_begins_where_the_server_says_so() {
        let lines = [
            "2026-11-21 17:34:13 0 [Note] Starting MariaDB 10.11.19-MariaDB source revision 58 as process 3100",
            "2026-11-21 17:34:13 0 [ERROR] of another day",
            "2026-11-21 17:34:14 0 [Note] Starting MariaDB 10.11.19-MariaDB source revision 58 as process 3255",
            "2026-11-21 17:34:14 0 [ERROR] Aborting",
        ]
        .map(str::to_owned);
        assert_eq!(last_run(&lines), &lines[2..]);
        assert_eq!(last_run(&lines[..2]), &lines[..2]);
        assert_eq!(last_run(&lines[3..]), &lines[3..]);
    }

    #[test]
    fn a_server_hangs_between_its_last_step_and_its_opening() {
        let lines = [
            "2026-11-21 17:34:13 0 [Note] Starting MariaDB 10.11.19-MariaDB source revision 58 as process 3100",
            "2026-11-21 17:34:14 0 [Note] WSREP: Server initialized",
            "2026-11-21 17:34:14 2 [Note] WSREP: Synchronized with group, ready for connections",
            "2026-11-21 17:34:14 0 [Note] mariadbd: ready for connections.",
            "2026-11-21 17:34:15 0 [Note] Starting MariaDB 10.11.19-MariaDB source revision 58 as process 3255",
        ]
        .map(str::to_owned);
        let hangs = |n| hangs_before_opening(&lines[..n]);
        assert_eq!([1, 2, 3, 4, 5].map(hangs), [false, true, true, false, false]);
    }

    #[test]
    fn cursor_gives_whole_lines_once() {
        let path = std::env::temp_dir().join(format!("trireme-log-{}", std::process::id()));
        std::fs::write(&path, "old\n").unwrap();
        let mut cursor = LogCursor::at_end(&path);
        assert!(cursor.lines().is_empty());
        std::fs::write(&path, "old\none\ntw").unwrap();
        assert_eq!(cursor.lines(), ["one"]);
        std::fs::write(&path, "old\none\ntwo\n").unwrap();
        assert_eq!(cursor.lines(), ["two"]);
        assert_eq!(tail(&path, 2), ["one", "two"]);
        std::fs::remove_file(&path).unwrap();
        assert!(cursor.lines().is_empty());
    }

    #[test]
    fn a_digest_counts_what_repeats_and_keeps_what_does_not() {
        let path = std::env::temp_dir().join(format!("trireme-digest-{}", std::process::id()));
        let mut text = String::new();
        for n in 10..60 {
            text +=
                &format!("2026-11-21 17:34:{n} 0 [Note] WSREP: connection established to {n} tcp://127.0.0.{n}:1\n");
            text += &format!("2026-11-21 17:34:{n} 0 [Note] WSREP: connection to {n} tcp://127.0.0.{n}:1 closed\n");
            if n == 40 {
                text += "2026-11-21 17:34:40 0 [ERROR] WSREP: the reason\n\n";
            }
        }
        std::fs::write(&path, text).unwrap();
        let digest = digest(&path, 60);
        let three = |n: usize| tail(&path, 1000)[n].clone();
        assert_eq!(
            digest,
            [
                three(0) + " [and 49 more like it, the last at 17:34:59]",
                three(1) + " [and 49 more like it, the last at 17:34:59]",
                three(62),
                String::new(),
            ]
        );
        assert_eq!(super::digest(&path, 1), [""], "the end");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn finds_the_first_telling_error() {
        let lines: Vec<String> = [
            "2026-01-01 10:00:00 0 [Note] Starting",
            "2026-01-01 10:00:00 0 [ERROR] unknown variable 'x=1'",
            "2026-01-01 10:00:00 0 [ERROR] Aborting",
        ]
        .map(str::to_owned)
        .to_vec();
        assert_eq!(cause_of_death(&lines), "unknown variable 'x=1'");
        assert_eq!(cause_of_death(&[]), "nothing in its log");
    }

    #[test]
    fn recognises_milestones() {
        let line = "2026-01-01 10:00:00 0 [Note] WSREP: Shifting JOINER -> JOINED (TO: 7)";
        assert_eq!(milestone(line).unwrap(), "Shifting JOINER -> JOINED (TO: 7)");
        let line = "2026-01-01 10:00:00 0 [Note] WSREP: Member 1.0 (node2) requested state transfer from '*any*'. Selected 0.0 (node1)(SYNCED) as donor.";
        assert!(milestone(line).unwrap().starts_with("requested state transfer"));
        for line in ["InnoDB: done", "WSREP: SST received"] {
            assert_eq!(milestone(&format!("2026-01-01 10:00:00 0 [Note] {line}")), None);
        }
    }
}
