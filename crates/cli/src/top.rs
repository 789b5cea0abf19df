//! `trireme top`: a cluster in the terminal. The data come from a monitor, or from the servers themselves
//! ([`trireme_observe::overview`]).

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use trireme_observe::overview::{Node, Overview, Rounds};
use trireme_observe::station::Peer;
use trireme_observe::table::{lines, printable};
use trireme_observe::verdict::Level;
use trireme_observe::{Connect, status};

use crate::ask::ask;

const NOTES: &str = "\
Without --host and --socket, and where `trireme monitor` runs on this machine, that is asked; it knows most. Else the `mariadb` client asks the
servers, as `trireme status` does.

Keys: left and right choose the column to sort by, r turns the order round, space freezes and goes on, up and down move through what
happened, ? shows this, q ends.

Exit codes with --once, as of `trireme status`:
  0  all is well
  1  nobody answered
  2  wrong usage
  3  clients are served, but something is missing
  4  clients are not served";

#[derive(Clone, Debug, Args)]
#[command(after_help = NOTES)]
pub struct Top {
    #[command(flatten)]
    pub connect: Connect,
    /// Monitor to ask, HOST[:PORT]
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["host", "socket"])]
    pub monitor: Option<String>,
    /// File whose first line the monitor wants to see
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Print one table, of the last second, and end
    #[arg(long)]
    pub once: bool,
    /// With --once: the JSON of `/cluster` (docs/operations/monitoring.md)
    #[arg(long, requires = "once")]
    pub json: bool,
    /// Set nothing on servers, also not that a node shows votes and roles
    #[arg(long)]
    pub look_only: bool,
}

/// Port of a monitor.
const MONITOR: u16 = 9105;
/// A monitor answers at once.
const LIMIT: Duration = Duration::from_secs(2);
/// Between two questions.
const EVERY: Duration = Duration::from_secs(1);

/// Where the numbers come from.
enum Source {
    Monitor { peer: Peer, token: Option<String> },
    Servers { connect: Box<Connect>, extend: bool, rounds: Rounds },
}

impl Source {
    fn choose(asked: &Top) -> Result<Source, String> {
        let token = asked.token_file.as_deref().map(crate::monitor::token).transpose()?;
        if let Some(address) = &asked.monitor {
            return Ok(Source::Monitor { peer: Peer::named(address, MONITOR)?, token });
        }
        let peer = Peer { host: "127.0.0.1".to_owned(), port: MONITOR, server: None };
        let near = Source::Monitor { peer, token };
        if asked.connect.host.is_empty() && asked.connect.socket.is_none() {
            let mut near = near;
            if near.ask().is_ok() {
                return Ok(near);
            }
        }
        asked.connect.targets()?;
        Ok(Source::Servers {
            connect: Box::new(asked.connect.clone()),
            extend: !asked.look_only,
            rounds: Rounds::default(),
        })
    }

    fn ask(&mut self) -> Result<Overview, String> {
        match self {
            Source::Monitor { peer, token } => ask_monitor(peer, token.as_deref()),
            Source::Servers { connect, extend, rounds } => {
                let answers = status::ask_all(connect, connect.targets()?, *extend);
                Ok(rounds.look(answers, Instant::now(), status::unix_time()))
            }
        }
    }
}

fn ask_monitor(peer: &Peer, token: Option<&str>) -> Result<Overview, String> {
    let wrong = |what: String| format!("the monitor at {}:{} {what}", peer.host, peer.port);
    let reply = ask(peer, "/cluster", token, LIMIT, 16 << 20);
    let reply = reply.map_err(|error| wrong(format!("is not reached: {error}")))?;
    let reply = reply.ok_or_else(|| wrong("gave no answer".to_owned()))?;
    match reply.status() {
        "200" => serde_json::from_slice(&reply.body)
            .map_err(|_| wrong("is of another version, or knows nothing yet".to_owned())),
        "401" => Err(wrong("wants a token: give --token-file".to_owned())),
        _ => Err(wrong(format!("answers `{}`", printable(&reply.line)))),
    }
}

/// `trireme top`.
pub fn run(asked: &Top) -> ExitCode {
    let mut source = match Source::choose(asked) {
        Ok(source) => source,
        Err(reason) => {
            eprintln!("trireme top: {reason}");
            return ExitCode::from(2);
        }
    };
    if asked.once {
        return once(&mut source, asked.json);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        eprintln!("trireme top: there is no terminal here: use --once");
        return ExitCode::from(2);
    }
    let (sender, receiver) = channel();
    thread::spawn(move || {
        loop {
            let begun = Instant::now();
            // Nobody looks any more.
            if sender.send(source.ask()).is_err() {
                return;
            }
            thread::sleep(EVERY.saturating_sub(begun.elapsed()));
        }
    });
    // Leaves the terminal as it was, on a panic too.
    let mut terminal = match ratatui::try_init() {
        Ok(terminal) => terminal,
        Err(error) => {
            eprintln!("trireme top: the terminal cannot be used: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = watch(&mut terminal, &receiver);
    ratatui::restore();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trireme top: {error}");
            ExitCode::FAILURE
        }
    }
}

fn once(source: &mut Source, json: bool) -> ExitCode {
    let mut look = || {
        if let Source::Servers { .. } = source {
            // Rates need two looks.
            source.ask()?;
            thread::sleep(EVERY);
        }
        source.ask()
    };
    let overview = match look() {
        Ok(overview) => overview,
        Err(reason) => {
            eprintln!("trireme top: {reason}");
            return ExitCode::FAILURE;
        }
    };
    let mut view = View::default();
    view.handle(Ok(overview.clone()));
    let text = if json {
        format!("{}\n", serde_json::to_string_pretty(&overview).unwrap_or_default())
    } else {
        view.to_text()
    };
    let _ = std::io::stdout().write_all(text.as_bytes());
    let nobody = overview.nodes.iter().all(|node| ["gone", "unknown"].contains(&node.health.as_str()));
    ExitCode::from(match overview.level {
        _ if nobody => 1,
        Level::Well => 0,
        Level::Degraded => 3,
        Level::Down => 4,
    })
}

/// Until the user ends it.
fn watch(terminal: &mut ratatui::DefaultTerminal, news: &Receiver<Result<Overview, String>>) -> std::io::Result<()> {
    let mut view = View::default();
    loop {
        terminal.draw(|frame| view.draw(frame))?;
        if event::poll(Duration::from_millis(100))? {
            if let Event::Key(key) = event::read()? {
                let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if key.kind != KeyEventKind::Release && (interrupt || !view.handle_key(key.code)) {
                    return Ok(());
                }
            }
        }
        loop {
            match news.try_recv() {
                Ok(news) => view.handle(news),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(std::io::Error::other("asking the cluster failed")),
            }
        }
    }
}

/// The view: its numbers, and how they are shown.
#[derive(Default)]
struct View {
    overview: Option<Overview>,
    /// Why the last question brought nothing.
    trouble: Option<String>,
    /// Place in [`COLUMNS`].
    sort: usize,
    reversed: bool,
    frozen: bool,
    help: bool,
    /// How many of the newest changes are passed over.
    skip: usize,
}

/// By what a column is sorted.
enum Key {
    Text(String),
    Number(Option<f64>),
}

struct Column {
    head: &'static str,
    show: fn(&Node) -> String,
    key: fn(&Node) -> Key,
}

const COLUMNS: &[Column] = &[
    Column { head: "NODE", show: |n| n.name.clone(), key: |n| Key::Text(n.name.clone()) },
    Column { head: "STATE", show: state, key: |n| Key::Text(state(n)) },
    Column { head: "ROLE", show: role, key: |n| Key::Text(role(n)) },
    Column { head: "COMMITS/S", show: |n| number(n.rates.commits), key: |n| Key::Number(n.rates.commits) },
    Column { head: "P50", show: |n| time(p50(n, "total")), key: |n| Key::Number(p50(n, "total")) },
    Column { head: "P99", show: |n| time(p99(n, "total")), key: |n| Key::Number(p99(n, "total")) },
    Column { head: "SYNC P50", show: |n| time(p50(n, "sync")), key: |n| Key::Number(p50(n, "sync")) },
    Column { head: "SYNC P99", show: |n| time(p99(n, "sync")), key: |n| Key::Number(p99(n, "sync")) },
    Column { head: "APPLIED/S", show: |n| number(n.rates.received), key: |n| Key::Number(n.rates.received) },
    Column { head: "QUEUE", show: |n| number(n.queue), key: |n| Key::Number(n.queue) },
    Column { head: "BEHIND", show: |n| number(n.behind), key: |n| Key::Number(n.behind) },
    Column { head: "HELD", show: |n| share(n.rates.held), key: |n| Key::Number(n.rates.held) },
    Column { head: "CONFL/S", show: |n| number(n.rates.conflicts), key: |n| Key::Number(n.rates.conflicts) },
    Column { head: "DELAY P99", show: |n| time(p99(n, "delay")), key: |n| Key::Number(p99(n, "delay")) },
    Column { head: "RTT", show: |n| time(n.round_trip), key: |n| Key::Number(n.round_trip) },
    Column { head: "AWAY", show: |n| time(n.away_seconds), key: |n| Key::Number(n.away_seconds) },
];

fn state(node: &Node) -> String {
    match &node.state {
        Some(state) if ["synced", "donor"].contains(&node.health.as_str()) => state.clone(),
        Some(_) | None => node.health.clone(),
    }
}

fn role(node: &Node) -> String {
    node.role.clone().unwrap_or_else(|| if node.primary { "primary" } else { "-" }.to_owned())
}

fn p50(node: &Node, stage: &str) -> Option<f64> {
    Some(node.times.get(stage)?.p50)
}

fn p99(node: &Node, stage: &str) -> Option<f64> {
    Some(node.times.get(stage)?.p99)
}

fn number(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value >= 10.0 || value.fract() == 0.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.1}"),
    }
}

fn share(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{:.0}%", value * 100.0))
}

fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(s) if s < 1e-3 => format!("{:.0}us", s * 1e6),
        Some(s) if s < 1.0 => format!("{:.1}ms", s * 1e3),
        Some(s) if s < 120.0 => format!("{s:.1}s"),
        Some(s) if s < 7200.0 => format!("{:.0}min", s / 60.0),
        Some(s) if s < 172_800.0 => format!("{:.0}h", s / 3600.0),
        Some(s) => format!("{:.0}d", s / 86_400.0),
    }
}

/// `12:34:56` in UTC: a monitor may be in another place than its reader.
fn clock(unix: f64) -> String {
    let day = (unix.max(0.0) as u64) % 86_400;
    format!("{:02}:{:02}:{:02}", day / 3600, day / 60 % 60, day % 60)
}

impl View {
    fn handle(&mut self, news: Result<Overview, String>) {
        if self.frozen {
            return;
        }
        match news {
            Ok(overview) => {
                self.overview = Some(overview);
                self.trouble = None;
            }
            Err(reason) => self.trouble = Some(reason),
        }
    }

    /// `false`: the end.
    fn handle_key(&mut self, key: KeyCode) -> bool {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Left => self.sort = (self.sort + COLUMNS.len() - 1) % COLUMNS.len(),
            KeyCode::Right => self.sort = (self.sort + 1) % COLUMNS.len(),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char(' ' | 'f') => self.frozen = !self.frozen,
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            KeyCode::Down => self.skip = (self.skip + 1).min(self.overview.as_ref().map_or(0, |o| o.changes.len())),
            KeyCode::Up => self.skip = self.skip.saturating_sub(1),
            _ => {}
        }
        true
    }

    /// Names first; of numbers the greatest first, and what is unknown last.
    fn sorted(&self) -> Vec<&Node> {
        let mut nodes: Vec<&Node> = self.overview.iter().flat_map(|overview| &overview.nodes).collect();
        let key = COLUMNS[self.sort].key;
        nodes.sort_by(|a, b| match (key(a), key(b)) {
            (Key::Text(a), Key::Text(b)) => a.cmp(&b),
            (Key::Number(a), Key::Number(b)) => {
                b.unwrap_or(f64::NEG_INFINITY).total_cmp(&a.unwrap_or(f64::NEG_INFINITY))
            }
            (Key::Text(_), Key::Number(_)) | (Key::Number(_), Key::Text(_)) => std::cmp::Ordering::Equal,
        });
        if self.reversed {
            nodes.reverse();
        }
        nodes
    }

    /// Level, verdict, and what belongs to it.
    fn head(&self) -> (String, Level, Vec<String>) {
        let Some(overview) = &self.overview else {
            let text = self.trouble.clone().unwrap_or_else(|| "the cluster is asked".to_owned());
            return ("connecting".to_owned(), Level::Degraded, vec![text]);
        };
        let cluster = overview.clusters.first();
        let mut facts = vec![cluster.map_or("no cluster".to_owned(), |cluster| format!("cluster {}", cluster.name))];
        if let Some(cluster) = cluster {
            facts.push(cluster.provider.clone());
            facts.extend(cluster.members.map(|n| format!("{n} member{}", if n == 1 { "" } else { "s" })));
            facts.extend(
                cluster
                    .sequencer
                    .as_ref()
                    .map(|s| format!("sequencer {}", if s.is_empty() { "being elected" } else { s })),
            );
            facts.extend(cluster.term.map(|term| format!("term {term}")));
            facts.extend(cluster.durability.as_ref().map(|mode| format!("durability {mode}")));
        }
        facts.push(format!("{} UTC", clock(overview.time)));
        let word = match overview.level {
            Level::Well => "well",
            Level::Degraded => "degraded",
            Level::Down => "down",
        };
        let mut sentences = overview.sentences.clone();
        sentences.extend(self.trouble.iter().cloned());
        (format!("{word}: {}", facts.join(", ")), overview.level, sentences)
    }

    fn waits(&self) -> Vec<String> {
        let Some(overview) = &self.overview else { return Vec::new() };
        let mut out: Vec<String> = overview
            .throttle
            .iter()
            .map(|cell| {
                let by = if cell.by.is_empty() { "somebody" } else { &cell.by };
                let (share, minute) = (share(Some(cell.share)), time(Some(cell.minute)));
                format!(
                    "{} waits for {by} ({}): {share} of the time, {minute} in the last minute",
                    cell.node, cell.reason
                )
            })
            .collect();
        if out.is_empty() {
            out.push("nobody waits".to_owned());
        }
        out
    }

    /// A row for each node: to whom it is how far.
    fn trips(&self) -> Vec<String> {
        let Some(overview) = &self.overview else { return Vec::new() };
        let mut head = vec!["ROUND TRIPS".to_owned()];
        head.extend(overview.nodes.iter().map(|node| node.name.clone()));
        let row = |from: &Node| {
            let to = overview.nodes.iter().map(|to| {
                let trip = overview.round_trips.iter().find(|trip| trip.from == from.name && trip.to == to.name);
                match trip {
                    _ if from.name == to.name => String::new(),
                    Some(trip) => format!("{}/{}", time(Some(trip.p50)), time(Some(trip.p99))),
                    None => "unknown".to_owned(),
                }
            });
            std::iter::once(from.name.clone()).chain(to).collect::<Vec<_>>()
        };
        lines(&head, &overview.nodes.iter().map(row).collect::<Vec<_>>())
    }

    fn changes(&self) -> Vec<String> {
        let Some(overview) = &self.overview else { return Vec::new() };
        let newest = overview.changes.iter().rev().skip(self.skip);
        newest.map(|change| format!("{} {}", clock(change.time), change.text)).collect()
    }

    /// All of it, for `--once`.
    fn to_text(&self) -> String {
        let (head, _, sentences) = self.head();
        let mut out = vec![head];
        out.extend(sentences.iter().map(|sentence| format!("{sentence}.")));
        let names: Vec<String> = COLUMNS.iter().map(|column| column.head.to_owned()).collect();
        let rows: Vec<Vec<String>> =
            self.sorted().iter().map(|node| COLUMNS.iter().map(|column| (column.show)(node)).collect()).collect();
        out.extend(lines(&names, &rows));
        out.extend(self.waits());
        out.extend(self.trips());
        out.extend(self.overview.iter().flat_map(|overview| overview.notes.iter().map(|note| format!("{note}."))));
        out.iter().map(|line| printable(line) + "\n").collect()
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let (head, level, sentences) = self.head();
        let colour = match level {
            Level::Well => Color::Green,
            Level::Degraded => Color::Yellow,
            Level::Down => Color::Red,
        };
        let nodes = self.sorted();
        let (waits, trips) = (self.waits(), self.trips());
        let few = |n: usize, most: u16| u16::try_from(n).unwrap_or(u16::MAX).min(most);
        let areas = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(few(sentences.len(), 4)),
            Constraint::Length(few(nodes.len(), 16) + 2),
            Constraint::Length(few(waits.len(), 6) + 1),
            Constraint::Length(few(trips.len(), 10) + 1),
            Constraint::Min(1),
            Constraint::Length(1),
        ])
        .split(frame.area());
        let title = Style::new().fg(Color::Black).bg(colour).add_modifier(Modifier::BOLD);
        frame.render_widget(Paragraph::new(printable(&head)).style(title), areas[0]);
        let text =
            |lines: &[String]| -> Vec<Line<'static>> { lines.iter().map(|line| Line::raw(printable(line))).collect() };
        frame.render_widget(Paragraph::new(text(&sentences)), areas[1]);
        self.draw_members(frame, areas[2], &nodes);
        frame.render_widget(Paragraph::new(text(&waits)), areas[3]);
        frame.render_widget(Paragraph::new(text(&trips)), areas[4]);
        let below = if self.help { NOTES.lines().map(str::to_owned).collect() } else { self.changes() };
        frame.render_widget(Paragraph::new(text(&below)), areas[5]);
        let keys = [
            Span::raw("left right: sort  r: turn  space: "),
            Span::raw(if self.frozen { "go on" } else { "freeze" }),
            Span::raw("  up down: events  ?: help  q: end"),
            Span::styled(if self.frozen { "  FROZEN" } else { "" }, Style::new().fg(Color::Yellow)),
        ];
        frame.render_widget(
            Paragraph::new(Line::from(keys.to_vec())).style(Style::new().add_modifier(Modifier::DIM)),
            areas[6],
        );
    }

    fn draw_members(&self, frame: &mut Frame<'_>, area: Rect, nodes: &[&Node]) {
        let widths: Vec<usize> = COLUMNS
            .iter()
            .map(|column| {
                nodes
                    .iter()
                    .map(|node| (column.show)(node).chars().count())
                    .max()
                    .unwrap_or(0)
                    .max(column.head.len() + 1)
            })
            .collect();
        let head = COLUMNS.iter().enumerate().map(|(place, column)| {
            let sorted = place == self.sort;
            let mark = match (sorted, self.reversed) {
                (false, _) => "",
                (true, false) => "v",
                (true, true) => "^",
            };
            let style = if sorted {
                Style::new().add_modifier(Modifier::REVERSED)
            } else {
                Style::new().add_modifier(Modifier::BOLD)
            };
            Cell::from(format!("{}{mark}", column.head)).style(style)
        });
        let rows = nodes.iter().map(|node| {
            let style = match node.health.as_str() {
                "synced" => Style::new(),
                "gone" => Style::new().fg(Color::Red),
                _ => Style::new().fg(Color::Yellow),
            };
            Row::new(COLUMNS.iter().map(|column| printable(&(column.show)(node)))).style(style)
        });
        let widths = widths.into_iter().map(|width| Constraint::Length(u16::try_from(width).unwrap_or(40).min(40)));
        frame.render_widget(Table::new(rows, widths).header(Row::new(head)).column_spacing(1), area);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn overview() -> Overview {
        let json = serde_json::json!({
            "version": 1, "time": 3661.0, "here": "db1", "level": "degraded", "sentences": ["2 of 3 voters are there"], "clusters": [], "notes": [],
            "nodes": [node("db1", 5.0), node("db2", 70.0), node("db3", 0.0)],
            "throttle": [{ "node": "db1", "by": "db3", "reason": "stands", "share": 0.5, "minute": 3.0 }], "slow": [],
            "round_trips": [{ "from": "db1", "to": "db2", "p50": 0.0003, "p99": 0.002 }],
            "changes": [{ "number": 1, "time": 60.0, "kind": "health", "node": "db3", "text": "db3 is gone" }],
        });
        serde_json::from_value(json).unwrap()
    }

    fn node(name: &str, commits: f64) -> serde_json::Value {
        let mut node = Node {
            name: name.to_owned(),
            health: "synced".to_owned(),
            state: Some("Synced".to_owned()),
            ..Node::default()
        };
        node.rates.commits = Some(commits);
        node.round_trip = Some(0.0015);
        serde_json::to_value(node).unwrap()
    }

    fn drawn(view: &View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(140, 30)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn everything_is_on_the_screen_at_any_size() {
        let mut view = View::default();
        assert!(drawn(&view).contains("the cluster is asked"));
        view.handle(Ok(overview()));
        let screen = drawn(&view);
        for text in [
            "degraded",
            "2 of 3 voters",
            "COMMITS/S",
            "RTT",
            "1.5ms",
            "db2",
            "db1 waits for db3 (stands): 50%",
            "300us/2.0ms",
            "unknown",
            "00:01:00 db3 is gone",
            "01:01:01 UTC",
        ] {
            assert!(screen.contains(text), "{text}\n{screen}");
        }
        for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| view.draw(frame)).unwrap();
        }
        view.handle(Err("the monitor is not reached".to_owned()));
        let screen = drawn(&view);
        assert!(screen.contains("the monitor is not reached") && screen.contains("db2"), "{screen}");
    }

    #[test]
    fn keys_sort_freeze_and_end() {
        let mut view = View::default();
        view.handle(Ok(overview()));
        let order = |view: &View| view.sorted().iter().map(|node| node.name.clone()).collect::<Vec<_>>();
        assert_eq!(order(&view), ["db1", "db2", "db3"]);
        for _ in 0..3 {
            assert!(view.handle_key(KeyCode::Right));
        }
        assert_eq!(order(&view), ["db2", "db1", "db3"]);
        view.handle_key(KeyCode::Char('r'));
        assert_eq!(order(&view), ["db3", "db1", "db2"]);
        view.handle_key(KeyCode::Char(' '));
        view.handle(Err("lost".to_owned()));
        assert!(view.trouble.is_none() && drawn(&view).contains("FROZEN"));
        view.handle_key(KeyCode::Char('?'));
        assert!(drawn(&view).contains("space freezes"));
        assert!(!view.handle_key(KeyCode::Char('q')) && !view.handle_key(KeyCode::Esc));
    }
}
