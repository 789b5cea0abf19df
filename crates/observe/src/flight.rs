//! `trireme flight`: the flight recorders of all nodes, on one time line.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use trireme_flight::timeline::Clock;
use trireme_flight::{Event, FILE_NAME, Fact, Lane, Reading, Record, Timeline, Topic, event, ring};

use crate::table::printable;

mod svg;

const NOTES: &str = "\
Reads the files trireme.flight.galera.cache of nodes that run, have stopped or are dead, or copies of them. Each is found in the directory of
the node's write-set log: gcache.dir, or the data directory. What is recorded: docs/operations/flight.md.

Times are UTC, by the clock of one node; the clocks of the others are set right by what all of them recorded, and it is said by how much.

Exit codes:
  0  done
  1  no file could be read
  2  wrong usage
  3  some could not be read, or are damaged; the rest is shown";

#[derive(Clone, Debug, Args)]
#[command(after_help = NOTES)]
pub struct Flight {
    /// Directories with write-set logs, or files: [NAME=]PATH
    #[arg(required = true, value_name = "DIR")]
    pub places: Vec<String>,
    /// Only from this time on: `2026-11-23`, `2026-11-23 10:05:00`, or `10m`: that long before the last record
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub since: Option<Since>,
    /// Only these topics or kinds, separated by commas: life, term, view, link, silence, flow, sync, delay, commit, conflict, abort, vote,
    /// transfer, option, log, clock, recorder, or a kind such as slow-sync
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = kind)]
    pub kind: Vec<String>,
    /// Only these nodes, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub node: Vec<String>,
    /// Only what tells of trouble
    #[arg(long)]
    pub trouble: bool,
    /// Print JSON, an object per line
    #[arg(long)]
    pub json: bool,
    /// Draw the time line into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// The beginning of what is shown.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Since {
    /// Seconds since 1970.
    At(u64),
    /// Before the last record.
    Last(Duration),
}

fn since(text: &str) -> Result<Since, String> {
    let bad = || format!("`{text}` is no time: 2026-11-23, `2026-11-23 10:05:00`, or 90s, 10m, 2h, 3d");
    if let Some((at, unit)) = text.char_indices().last()
        && let Ok(count) = text[..at].parse::<u64>()
        && let Some(seconds) = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)].iter().find(|(c, _)| *c == unit)
    {
        return count.checked_mul(seconds.1).map(|s| Since::Last(Duration::from_secs(s))).ok_or_else(bad);
    }
    let (day, clock) = text.split_once([' ', 'T']).unwrap_or((text, "00:00:00"));
    let numbers = |text: &str, by: char| -> Option<Vec<u64>> {
        text.trim_end_matches('Z').split(by).map(|word| word.parse().ok()).collect()
    };
    let day = numbers(day, '-').filter(|n| n.len() == 3 && n[0] >= 1970 && n[0] < 10_000).ok_or_else(bad)?;
    let clock = numbers(clock, ':').filter(|n| n.len() == 3 && n[0] < 24 && n[1] < 60 && n[2] < 61).ok_or_else(bad)?;
    if !(1..=12).contains(&day[1]) || !(1..=31).contains(&day[2]) {
        return Err(bad());
    }
    Ok(Since::At(days(day[0], day[1], day[2]) * 86_400 + clock[0] * 3600 + clock[1] * 60 + clock[2]))
}

fn kind(text: &str) -> Result<String, String> {
    let known = Topic::parse(text).is_some() || event::kinds().iter().any(|(_, word, _)| *word == text);
    let topics: Vec<&str> = Topic::ALL.iter().map(|topic| topic.word()).collect();
    let refused =
        || format!("there is no topic or kind `{text}`: {}; kinds are in docs/operations/flight.md", topics.join(", "));
    known.then(|| text.to_owned()).ok_or_else(refused)
}

/// Days from 1970-01-01, in the Gregorian calendar.
fn days(year: u64, month: u64, day: u64) -> u64 {
    // March is the first month, so that the leap day is the last of a year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap = year / 4 - year / 100 + year / 400;
    year * 365 + leap + (month * 153 + 2) / 5 + day - 1 - 719_468
}

/// `2026-11-23 10:05:00.123`.
fn stamp(unix_ns: u64) -> String {
    let (ms, seconds) = (unix_ns / 1_000_000 % 1000, unix_ns / 1_000_000_000);
    let (day, rest) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970 + day / 366;
    while days(year + 1, 1, 1) <= day {
        year += 1;
    }
    let month = (1..=12).rev().find(|month| days(year, *month, 1) <= day).unwrap_or(1);
    let date = day - days(year, month, 1) + 1;
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year}-{month:02}-{date:02} {hour:02}:{minute:02}:{second:02}.{ms:03}")
}

/// The records of the files, and remarks on them.
#[derive(Default)]
pub struct Files {
    lanes: Vec<Lane>,
    /// Files that could not be read, or are damaged.
    troubles: Vec<String>,
    notes: Vec<String>,
}

/// Of a file, at most.
const LEN_MAX: u64 = ring::LEN_MAX;

fn bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    // The open waits for nothing, whatever lies there.
    let file = options.read(true).custom_flags(O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(LEN_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Of Linux, on all of its architectures that we build for.
const O_NONBLOCK: i32 = 0o4000;

/// The file of a node whose log is in `place`, or the file itself.
pub fn path_of(place: &Path) -> PathBuf {
    if place.is_dir() { place.join(FILE_NAME) } else { place.to_owned() }
}

impl Files {
    pub fn read(places: &[String]) -> Files {
        let mut out = Files::default();
        let mut clusters: Vec<(String, String)> = Vec::new();
        for word in places {
            let (name, place) = match word.split_once('=').filter(|(name, _)| !name.contains('/')) {
                Some((name, place)) => (Some(name.to_owned()), place),
                None => (None, word.as_str()),
            };
            let path = path_of(Path::new(place));
            let reading = bytes(&path).map_err(|error| why_not(&error));
            let reading = reading.and_then(|bytes| Reading::decode(&bytes).map_err(|bad| bad.to_string()));
            match reading {
                Ok(reading) => out.take(name, place, &path, reading, &mut clusters),
                Err(reason) => out.troubles.push(format!("{}: {reason}", path.display())),
            }
        }
        out
    }

    fn take(
        &mut self,
        name: Option<String>,
        place: &str,
        path: &Path,
        reading: Reading,
        clusters: &mut Vec<(String, String)>,
    ) {
        let shown = path.display();
        if reading.identity.is_none() {
            self.troubles.push(format!("{shown}: its head is damaged, so it does not say whose it is"));
        }
        if reading.torn > 0 {
            self.troubles.push(format!("{shown}: {} records are damaged and left out", reading.torn));
        }
        if reading.missing > 0 {
            self.notes.push(format!("{shown}: {} records in between are missing", reading.missing));
        }
        let named = name.or_else(|| reading.identity.map(|identity| identity.name)).filter(|name| !name.is_empty());
        let mut name = printable(&named.unwrap_or_else(|| place.trim_end_matches('/').to_owned()));
        if self.lanes.iter().any(|lane| lane.name == name) {
            self.notes.push(format!("{shown} is of a node with the name of another one: {name}"));
            name = format!("{name} ({})", self.lanes.len() + 1);
        }
        let mut records = reading.records;
        let cluster = records.iter().rev().find_map(|record| match &record.event {
            Event::Connecting { cluster, .. } => Some(cluster.clone()),
            _ => None,
        });
        if let Some(cluster) = cluster {
            if let Some((first, other)) = clusters.first().filter(|(_, other)| *other != cluster) {
                self.notes.push(format!(
                    "{name} is of the cluster {}, {first} of {}: their entries have nothing to do with each other",
                    printable(&cluster),
                    printable(other)
                ));
                records.iter_mut().for_each(|record| record.late = true);
            }
            clusters.push((name.clone(), cluster));
        }
        self.lanes.push(Lane { name, records });
    }
}

fn why_not(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            "there is no such file: the log is elsewhere (gcache.dir), the recorder is off (repl.flight_size=0), or \
                                         no node ever ran there"
                .to_owned()
        }
        std::io::ErrorKind::PermissionDenied => {
            format!("{error}: only the server's user may read it, so run this with sudo")
        }
        _ => error.to_string(),
    }
}

/// A record that is shown, or several nodes' about the same entry that say the same.
struct Row<'a> {
    lanes: Vec<usize>,
    unix_ns: u64,
    record: &'a Record,
}

/// Nanoseconds since 1970 at which the time line begins.
fn from(asked: &Flight, timeline: &Timeline) -> u64 {
    let last = timeline.times.iter().flatten().max().copied().unwrap_or(0);
    match asked.since {
        None => 0,
        Some(Since::At(seconds)) => seconds.saturating_mul(1_000_000_000),
        Some(Since::Last(time)) => last.saturating_sub(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
    }
}

fn rows<'a>(asked: &Flight, lanes: &'a [Lane], timeline: &Timeline) -> Vec<Row<'a>> {
    let from = from(asked, timeline);
    let mut out: Vec<Row> = Vec::new();
    for (lane, place) in &timeline.order {
        let (record, unix_ns) = (&lanes[*lane].records[*place], timeline.times[*lane][*place]);
        let (topic, word) = (record.event.topic().word(), record.event.word());
        let kind = asked.kind.is_empty() || asked.kind.iter().any(|kind| kind == topic || kind == word);
        let node = asked.node.is_empty() || asked.node.contains(&lanes[*lane].name);
        if !kind || !node || unix_ns < from || asked.trouble && !record.event.is_trouble() {
            continue;
        }
        let same = |row: &&mut Row| {
            record.index.is_some()
                && !record.late
                && row.record.index == record.index
                && !row.record.late
                && row.record.event == record.event
                && !row.lanes.contains(lane)
        };
        match out.iter_mut().rev().take(lanes.len() * 4).find(same) {
            Some(row) => row.lanes.push(*lane),
            None => out.push(Row { lanes: vec![*lane], unix_ns, record }),
        }
    }
    out
}

/// How the clocks stand, in words.
fn clocks(lanes: &[Lane], timeline: &Timeline) -> Vec<String> {
    let reference = timeline.clocks.iter().position(|clock| *clock == Clock::Reference);
    let reference = reference.map_or("", |at| lanes[at].name.as_str());
    let words = |lane: &Lane, clock: &Clock| match clock {
        Clock::Reference => None,
        // The way of an entry takes some of it.
        Clock::Ahead { ns, entries } if ns.unsigned_abs() < 20_000_000 => {
            Some(format!("the clock of {} agrees with that of {reference} (by {entries} entries)", lane.name))
        }
        Clock::Ahead { ns, entries } => {
            let way = if *ns > 0 { "ahead of" } else { "behind" };
            let by = event::time(Duration::from_nanos(ns.unsigned_abs()));
            Some(format!(
                "the clock of {} is {by} {way} that of {reference} (by {entries} entries): its times are set right",
                lane.name
            ))
        }
        Clock::Unknown => Some(format!(
            "how the clock of {} stands to that of {reference} is not known: they have no entry in common",
            lane.name
        )),
    };
    lanes.iter().zip(&timeline.clocks).filter_map(|(lane, clock)| words(lane, clock)).collect()
}

/// A line per record: time, a lane per node, and what happened. A node that is down has no lane.
fn text(lanes: &[Lane], rows: &[Row]) -> Vec<String> {
    let names = |row: &Row| row.lanes.iter().map(|lane| lanes[*lane].name.as_str()).collect::<Vec<_>>().join(", ");
    let width = rows.iter().map(|row| names(row).chars().count()).max().unwrap_or(0).min(30);
    let mut up = vec![false; lanes.len()];
    let mut out = Vec::new();
    for row in rows {
        let mut marks = String::new();
        for lane in 0..lanes.len() {
            marks.push(match (row.lanes.contains(&lane), row.record.event.is_trouble()) {
                (true, true) => '!',
                (true, false) => 'o',
                (false, _) if up[lane] => '|',
                (false, _) => ' ',
            });
            marks.push(' ');
        }
        for lane in &row.lanes {
            up[*lane] = !matches!(row.record.event, Event::Stopped {});
        }
        let late = if row.record.late { " (read later)" } else { "" };
        let at = match (row.record.term.0, row.record.index) {
            (0, None) => String::new(),
            (term, None) => format!("{term}"),
            (term, Some(index)) => format!("{term}/{index}"),
        };
        let what = printable(&row.record.event.sentence());
        let line = format!("{}  {marks} {:width$}  {at:>12}  {what}{late}", stamp(row.unix_ns), names(row));
        out.push(line.trim_end().to_owned());
    }
    out
}

fn value(fact: Fact) -> Value {
    match fact {
        Fact::Number(number) => json!(number),
        Fact::Yes(yes) => json!(yes),
        Fact::Text(text) => json!(text),
        Fact::List(list) => json!(list),
        Fact::Time(seconds) => json!(seconds),
    }
}

fn json_row(lanes: &[Lane], timeline: &Timeline, row: &Row) -> Value {
    let facts: serde_json::Map<String, Value> =
        row.record.event.facts().into_iter().map(|(name, fact)| (name.to_owned(), value(fact))).collect();
    let nodes: Vec<&str> = row.lanes.iter().map(|lane| lanes[*lane].name.as_str()).collect();
    let clock_known = row.lanes.iter().all(|lane| timeline.clocks[*lane] != Clock::Unknown);
    json!({
        "version": 1,
        "time": format!("{}Z", stamp(row.unix_ns).replace(' ', "T")),
        "unix_ns": row.unix_ns,
        "clock_known": clock_known,
        "nodes": nodes,
        "term": Some(row.record.term.0).filter(|term| *term > 0),
        "index": row.record.index.map(|index| index.0),
        "late": row.record.late,
        "topic": row.record.event.topic().word(),
        "kind": row.record.event.word(),
        "trouble": row.record.event.is_trouble(),
        "facts": facts,
        "text": row.record.event.sentence(),
    })
}

/// `trireme flight`.
pub fn run(asked: &Flight) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match show(asked, &mut out) {
        Ok(code) => ExitCode::from(code),
        // Nobody reads on: `trireme flight … | head`.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trireme flight: {error}");
            ExitCode::FAILURE
        }
    }
}

fn show(asked: &Flight, out: &mut impl Write) -> std::io::Result<u8> {
    let files = Files::read(&asked.places);
    for line in files.troubles.iter().chain(&files.notes) {
        eprintln!("trireme flight: {line}");
    }
    if files.lanes.is_empty() {
        return Ok(1);
    }
    let known: BTreeSet<&str> = files.lanes.iter().map(|lane| lane.name.as_str()).collect();
    for name in asked.node.iter().filter(|name| !known.contains(name.as_str())) {
        let known: Vec<&str> = known.iter().copied().collect();
        eprintln!("trireme flight: no file is of a node called {}: there are {}", printable(name), known.join(", "));
    }
    let timeline = Timeline::of(&files.lanes);
    let rows = rows(asked, &files.lanes, &timeline);
    if let Some(path) = &asked.svg {
        let shapes: Vec<svg::Shape> = rows
            .iter()
            .map(|row| svg::Shape {
                lanes: &row.lanes,
                unix_ns: row.unix_ns,
                trouble: row.record.event.is_trouble(),
                topic: row.record.event.topic().word(),
                title: format!("{} {}", stamp(row.unix_ns), printable(&row.record.event.sentence())),
            })
            .collect();
        let names: Vec<&str> = files.lanes.iter().map(|lane| lane.name.as_str()).collect();
        let drawing = svg::draw(&names, &shapes, stamp);
        std::fs::write(path, drawing).map_err(|error| std::io::Error::other(format!("{}: {error}", path.display())))?;
        eprintln!("trireme flight: {} records are drawn in {}", rows.len(), path.display());
    } else if asked.json {
        for row in &rows {
            writeln!(out, "{}", json_row(&files.lanes, &timeline, row))?;
        }
    } else {
        for line in clocks(&files.lanes, &timeline) {
            writeln!(out, "{line}")?;
        }
        if rows.is_empty() {
            writeln!(out, "nothing of that was recorded")?;
        }
        for line in text(&files.lanes, &rows) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(if files.troubles.is_empty() { 0 } else { 3 })
}

/// For `trireme bundle`: the whole time line, as `trireme flight --json` prints it, and what is to be said about the files.
pub fn packed(places: &[String]) -> String {
    let asked = Flight {
        places: places.to_vec(),
        since: None,
        kind: Vec::new(),
        node: Vec::new(),
        trouble: false,
        json: true,
        svg: None,
    };
    let files = Files::read(places);
    let timeline = Timeline::of(&files.lanes);
    let said = files.troubles.iter().chain(&files.notes).cloned().chain(clocks(&files.lanes, &timeline));
    let lines = said.map(|line| json!({ "version": 1, "note": line }).to_string());
    let rows = rows(&asked, &files.lanes, &timeline);
    let rows = rows.iter().map(|row| json_row(&files.lanes, &timeline, row).to_string());
    lines.chain(rows).map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trireme_flight::{Identity, Ring};
    use trireme_types::{LogIndex, NodeId, Seqno, Term, Uuid};

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Dir {
            let dir = std::env::temp_dir().join(format!("trireme-observe-flight-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(&dir).unwrap();
            Dir(dir)
        }

        fn node(&self, name: &str, records: &mut [Record]) -> String {
            let dir = self.0.join(name);
            std::fs::create_dir_all(&dir).unwrap();
            let identity = Identity { node: NodeId(Uuid([name.len() as u8; 16])), name: name.into() };
            Ring::open(&dir, ring::LEN_MIN, &identity, 0).unwrap().append(records).unwrap();
            dir.display().to_string()
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const START: u64 = 1_795_428_300_000_000_000;

    fn record(seconds: u64, index: u64, event: Event) -> Record {
        Record {
            sequence: 0,
            unix_ns: START + seconds * 1_000_000_000,
            term: Term(2),
            index: (index > 0).then_some(LogIndex(index)),
            late: false,
            event,
        }
    }

    fn view() -> Event {
        Event::View { number: 3, seqno: Seqno(5), members: vec!["db1".into(), "db22".into()] }
    }

    fn asked(places: Vec<String>) -> Flight {
        Flight { places, since: None, kind: vec![], node: vec![], trouble: false, json: false, svg: None }
    }

    fn shown(asked: &Flight) -> (u8, String) {
        let mut out = Vec::new();
        let code = show(asked, &mut out).unwrap();
        (code, String::from_utf8(out).unwrap())
    }

    #[test]
    fn dates() {
        assert_eq!(stamp(0), "1970-01-01 00:00:00.000");
        assert_eq!(stamp(951_782_399_999_000_000), "2000-02-28 23:59:59.999");
        assert_eq!(stamp(951_782_400_000_000_000), "2000-02-29 00:00:00.000");
        assert_eq!(stamp(START), "2026-11-23 10:05:00.000");
        assert_eq!(since("2026-11-23 10:05:00"), Ok(Since::At(START / 1_000_000_000)));
        assert_eq!(since("10m"), Ok(Since::Last(Duration::from_secs(600))));
        for day in (0..100_000).step_by(17) {
            let text = stamp(day * 86_400_000_000_000);
            assert_eq!(since(&text[..10]), Ok(Since::At(day * 86_400)), "{text}");
        }
        for bad in ["", "x", "m", "é", "2026-13-01", "2026-1", "99999999999999999999d", "2026-11-23 25:00:00"] {
            assert!(since(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nodes_on_one_time_line_with_their_clocks_set_right() {
        let dir = Dir::new("line");
        let one = dir.node("db1", &mut [record(0, 5, view()), record(9, 0, Event::Silent { peer: "db22".into() })]);
        let stood = Event::StoodStill { time: Duration::from_secs(5) };
        let two =
            dir.node("db22", &mut [record(100, 5, view()), record(114, 0, stood), record(120, 0, Event::Stopped {})]);
        let (code, text) = shown(&asked(vec![one.clone(), two.clone()]));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(code, 0);
        assert!(lines[0].starts_with("the clock of db22 is 100 s ahead of that of db1"), "{text}");
        assert_eq!(lines[1], "2026-11-23 10:05:00.000  o o  db1, db22           2/5  view 3 at seqno 5: db1, db22");
        assert_eq!(lines[2], "2026-11-23 10:05:09.000  ! |  db1                   2  does not hear db22");
        assert!(lines[3].contains("10:05:14.000  | !  db22") && lines[3].contains("did not run for 5.0 s"), "{text}");
        let only = |change: &dyn Fn(&mut Flight)| {
            let mut asked = asked(vec![one.clone(), two.clone()]);
            change(&mut asked);
            shown(&asked).1.lines().filter(|line| line.starts_with("2026")).count()
        };
        assert_eq!(only(&|a| a.trouble = true), 2);
        assert_eq!(only(&|a| a.kind = vec!["silence".into(), "stopped".into()]), 2);
        assert_eq!(only(&|a| a.node = vec!["db22".into()]), 3);
        assert_eq!(only(&|a| a.since = Some(Since::Last(Duration::from_secs(7)))), 2);
        let mut json = asked(vec![one.clone(), two.clone()]);
        json.json = true;
        let rows: Vec<Value> = shown(&json).1.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(rows[0]["nodes"], json!(["db1", "db22"]));
        assert_eq!(rows[2]["facts"]["time"], json!(5.0));
        let mut drawn = asked(vec![one, two]);
        drawn.svg = Some(dir.0.join("line.svg"));
        assert_eq!(shown(&drawn), (0, String::new()));
        let drawing = std::fs::read_to_string(dir.0.join("line.svg")).unwrap();
        assert!(drawing.starts_with("<svg ") && drawing.contains("does not hear db22") && drawing.contains(">db22<"));
    }

    #[test]
    fn what_cannot_be_read_is_said_and_the_rest_is_shown() {
        let dir = Dir::new("bad");
        let one = dir.node("db1", &mut [record(0, 5, view())]);
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.0.join(name);
            std::fs::write(&path, bytes).unwrap();
            path.display().to_string()
        };
        let whole = std::fs::read(Path::new(&one).join(FILE_NAME)).unwrap();
        let mut future = whole.clone();
        future[8] = 7;
        let mut torn = whole.clone();
        torn[ring::HEAD_LEN + 20] ^= 1;
        let places = vec![
            one.clone(),
            dir.0.join("nowhere").display().to_string(),
            write("foreign", b"#!/bin/sh\n"),
            write("empty", b""),
            write("future", &future),
            format!("copy={}", write("torn", &torn)),
        ];
        let files = Files::read(&places);
        assert_eq!(files.lanes.iter().map(|lane| lane.name.as_str()).collect::<Vec<_>>(), ["db1", "copy"]);
        for (trouble, words) in files.troubles.iter().zip([
            "there is no such file",
            "no flight recorder's",
            "is empty",
            "format is 7",
            "1 records are damaged",
        ]) {
            assert!(trouble.contains(words), "{trouble}");
        }
        assert_eq!(shown(&asked(places)).0, 3);
        assert_eq!(shown(&asked(vec![write("foreign", b"x")])).0, 1);
        // A copy of a directory has the same name.
        let files = Files::read(&[one.clone(), one]);
        assert_eq!((files.lanes[1].name.as_str(), files.notes.len()), ("db1 (2)", 1));
    }

    #[test]
    fn two_clusters_are_not_taken_for_one() {
        let dir = Dir::new("two");
        let join = |cluster: &str| Event::Connecting { cluster: cluster.into(), bootstrap: false };
        let one = dir.node("db1", &mut [record(0, 0, join("a")), record(1, 5, view())]);
        let two = dir.node("db22", &mut [record(0, 0, join("b")), record(5, 5, view())]);
        let files = Files::read(&[one, two]);
        assert!(files.notes[0].contains("db22 is of the cluster b, db1 of a"), "{:?}", files.notes);
        assert_eq!(Timeline::of(&files.lanes).clocks[1], Clock::Unknown);
    }

    #[test]
    fn kinds_are_checked() {
        assert!(kind("flow").is_ok() && kind("slow-sync").is_ok());
        assert!(kind("x").unwrap_err().contains("life, term"));
    }
}
