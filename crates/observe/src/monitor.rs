//! The account that one node gives of itself: for Prometheus, load balancers and orchestrators, and as a part of the whole
//! ([`crate::station`]).
//!
//! Pure: [`Watch`] takes what was read or heard, and answers for paths. Sockets are the caller's.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use trireme_metrics::histogram::BOUNDS_NS;
use trireme_metrics::names::{self, Kind};
use trireme_metrics::state::label;
use trireme_metrics::{Bad, Body, Snapshot, State};

use crate::client::{Connect, Trouble};
use crate::facts::{Facts, size};

const NOTES: &str = "\
A Trireme node writes what it measures into trireme.state.galera.cache in its data directory, and is read there: no account is needed, and
a server that hangs or is dead is seen as such. Where there is no such file (a Galera node), the `mariadb` client asks each second, with the
settings of `trireme status`.

  /         the dashboard: a page on the whole cluster, for a browser
  /metrics  for Prometheus: docs/operations/metrics.md
  /health   200 when synced, else 503, with clustercheck's words; /health?donor=ok also as a donor
  /live     200 while the server goes on telling about itself
  /ready    200 when it may get clients
  /state    all of it, as JSON: this node, and the whole cluster
  /cluster  the whole cluster alone
  /watch    the same twice a second, as server-sent events; /watch?node: what this node sees of the order, at once when it changes
  /history  what the dashboard draws: /history?seconds=600
  /node     what this node told last, for the monitors of the others

Of the other nodes their monitors are asked, at the address where clients reach the server and at this monitor's own port; or, while somebody
watches, their servers, with the settings of `trireme status`.

Exit codes:
  0    ended by a signal
  1    failed, with one line on stderr
  2    wrong usage";

#[derive(Clone, Debug, Args)]
#[command(after_help = NOTES)]
pub struct Monitor {
    /// Data directory of the server
    #[arg(long, value_name = "DIR", default_value = "/var/lib/mysql")]
    pub data_dir: std::path::PathBuf,
    /// Where HTTP is answered, ADDRESS:PORT, or the path of a socket. Others than this machine only with --token-file
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9105")]
    pub listen: String,
    /// Where HAProxy's agent-check is answered
    #[arg(long, value_name = "ADDRESS")]
    pub agent: Option<String>,
    /// File whose first line has to come with every request: `Authorization: Bearer …`, or as the password that a browser asks for. It is
    /// sent to the other monitors, too
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<std::path::PathBuf>,
    /// Monitors of other nodes, HOST:PORT, separated by commas, where they are not found by themselves
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    pub peers: Vec<String>,
    #[command(flatten)]
    pub connect: Connect,
}

/// The result of one look.
#[derive(Clone, Debug)]
pub enum Look {
    File(Result<State, Bad>),
    /// There is a file and it cannot be read.
    Unreadable(String),
    Answer(Result<Box<Facts>, Trouble>),
}

/// A node that has told nothing new for so long hangs or is dead: it tells every 50 ms.
const STALE: Duration = Duration::from_secs(2);
/// The thread of the group answers at once as a rule.
const THREAD_SILENT: f64 = 3.0;

const STOPPED: &str = "the node was stopped";
/// The verdict on its cluster says so, too.
pub(crate) const NOT_PRIMARY: &str = "not in the primary component";
const DIED: &str = "the server's process is gone: it was killed, or it crashed";

/// One answer for HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub status: &'static str,
    pub kind: &'static str,
    pub body: Content,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    Text(String),
    Bytes(Vec<u8>),
    /// Of the program.
    Asset(&'static [u8]),
    /// All that is published from now on.
    Watch,
}

/// How the node is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Health {
    Synced,
    /// Gives a full copy, or was desynced.
    Donor,
    /// It tells, and is not fit for clients: why.
    Unfit(String),
    /// It tells nothing, or nothing new: why.
    Gone(String),
}

impl Health {
    pub fn word(&self) -> &'static str {
        match self {
            Health::Synced => "synced",
            Health::Donor => "donor",
            Health::Unfit(_) => "unfit",
            Health::Gone(_) => "gone",
        }
    }

    pub fn why(&self) -> Option<&str> {
        match self {
            Health::Synced | Health::Donor => None,
            Health::Unfit(why) | Health::Gone(why) => Some(why),
        }
    }

    fn text(&self) -> &str {
        match self {
            Health::Synced => "synced",
            Health::Donor => "donor or desynced",
            Health::Unfit(why) | Health::Gone(why) => why,
        }
    }

    /// A line of HAProxy's agent protocol. `ready` and `up` undo what an earlier line has done.
    pub fn agent(&self) -> &'static str {
        match self {
            Health::Synced => "ready up 100%\n",
            Health::Donor => "ready up drain\n",
            Health::Unfit(_) | Health::Gone(_) => "ready down\n",
        }
    }
}

/// The knowledge of one node.
#[derive(Debug)]
pub struct Watch {
    started: Instant,
    state: Option<State>,
    /// When it last told something new.
    news: Option<Instant>,
    /// Its process as long as it was there, on this machine. One that is not seen from here is not missed.
    there: Option<u32>,
    /// The process that was there is gone.
    died: bool,
    /// Why the last look brought nothing.
    trouble: Option<String>,
    by_file: bool,
}

impl Watch {
    pub fn new(now: Instant) -> Watch {
        Watch { started: now, state: None, news: None, there: None, died: false, trouble: None, by_file: false }
    }

    /// Is the process that wrote the file there, as far as this machine can tell?
    pub fn handle_process(&mut self, process: u32, there: bool) {
        if there {
            self.there = Some(process);
        }
        self.died = !there && self.there == Some(process);
    }

    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// By its state file; else by its server's status.
    pub fn by_file(&self) -> bool {
        self.by_file
    }

    /// It is known to be gone, and does not only say nothing.
    pub fn ended(&self, now: Instant) -> bool {
        let Some(state) = &self.state else { return false };
        let told = state.text("gone").is_some_and(|why| [STOPPED, DIED].contains(&why));
        matches!(self.health(now), Health::Gone(_)) && (state.closed || self.died || told)
    }

    /// When it last told something new.
    pub fn news(&self) -> Option<Instant> {
        self.news
    }

    /// Its last state, for the monitors of other nodes: as in its state file, and why it is no longer so.
    pub fn to_file(&self, now: Instant) -> Option<Vec<u8>> {
        let state = self.state.as_ref()?;
        let mut body = Body::default();
        state.numbers.iter().for_each(|(name, value)| body.number(name, *value));
        state.texts.iter().for_each(|(name, text)| body.text(name, text));
        if let Health::Gone(why) = self.health(now) {
            body.text("gone", &why);
        }
        state.histograms.iter().for_each(|(name, snapshot)| body.histogram(name, snapshot));
        Some(body.encode(state.sequence, state.unix_ns, state.process, state.closed))
    }

    pub fn handle(&mut self, look: Look, now: Instant) {
        match look {
            // One that is read while it is written is torn for a moment. It counts where nothing new comes.
            Look::File(Err(bad)) => self.trouble = Some(format!("the state file cannot be used: {bad}")),
            Look::Unreadable(why) => self.trouble = Some(why),
            Look::Answer(Err(trouble)) => self.trouble = Some(trouble.to_string()),
            Look::File(Ok(state)) => {
                self.trouble = None;
                self.by_file = state.text("source") != Some("status");
                // Not by its time: clocks are set back.
                let news = |old: &State| (old.process, old.sequence) != (state.process, state.sequence);
                if self.state.as_ref().is_none_or(news) {
                    // The first one may be old.
                    let first = self.state.is_none();
                    self.news = (!first || fresh(&state)).then_some(now).or(self.news);
                }
                self.state = Some(state);
            }
            Look::Answer(Ok(facts)) => {
                self.trouble = None;
                self.by_file = false;
                self.news = Some(now);
                let mut state = from_facts(&facts);
                state.unix_ns = (crate::status::unix_time() * 1e9) as u64;
                // New each time, for those who compare.
                state.sequence = self.state.as_ref().map_or(0, |old| old.sequence) + 1;
                self.state = Some(state);
            }
        }
    }

    pub fn health(&self, now: Instant) -> Health {
        let Some(state) = &self.state else {
            return Health::Gone(self.trouble.clone().unwrap_or_else(|| "nothing is known yet".to_owned()));
        };
        if state.closed {
            return Health::Gone(STOPPED.to_owned());
        }
        if let Some(why) = state.text("gone") {
            return Health::Gone(why.to_owned());
        }
        if self.died {
            return Health::Gone(DIED.to_owned());
        }
        let since = now.saturating_duration_since(self.news.unwrap_or(self.started));
        let quiet = self.news.is_none_or(|_| since > STALE);
        if let Some(why) = self.trouble.as_ref().filter(|_| quiet || !self.by_file) {
            return Health::Gone(why.clone());
        }
        if quiet && self.news.is_none() {
            // By the clock of its machine, which is this one.
            let age = (crate::status::unix_time() - state.unix_ns as f64 / 1e9).max(since.as_secs_f64());
            return Health::Gone(format!("the server last told something {} ago: it hangs, or is dead", words(age)));
        }
        if quiet {
            let text = format!("the server tells nothing new since {} s: it hangs, or is dead", since.as_secs());
            return Health::Gone(text);
        }
        let silent = state.number("trireme_group_thread_silent_seconds").unwrap_or(0.0);
        if silent > THREAD_SILENT {
            let text = format!(
                "the thread of the group has not answered for {silent:.0} s: look at the disk of its write-set log"
            );
            return Health::Unfit(text);
        }
        if state.text("local_state_comment") == Some("Inconsistent") {
            return Health::Unfit(
                "Inconsistent: its data are not the group's. Restart it, and it gets a full copy".to_owned(),
            );
        }
        if state.text("log") == Some("failed") {
            return Health::Unfit("out of the group until the disk with its write-set log works".to_owned());
        }
        if state.number("trireme_primary") != Some(1.0) {
            return Health::Unfit(NOT_PRIMARY.to_owned());
        }
        match state.number("trireme_local_state") {
            Some(4.0) if state.text("ready") == Some("no") => Health::Unfit("synced, and not ready".to_owned()),
            Some(4.0) => Health::Synced,
            Some(2.0) => Health::Donor,
            _ => Health::Unfit(state.text("local_state_comment").unwrap_or("not synced").to_owned()),
        }
    }

    /// The order as it sees it, for load balancers (`/watch?node`). `None`: it tells nothing of that, as a node without a state file.
    pub fn order(&self, now: Instant) -> Option<serde_json::Value> {
        let state = self.state.as_ref().filter(|_| self.by_file)?;
        let text = |name| state.text(name).unwrap_or_default();
        let silent: Vec<&str> = text("silent").split(',').filter(|name| !name.is_empty()).collect();
        Some(json!({
            "name": state.text("name")?,
            "alive": !matches!(self.health(now), Health::Gone(_)),
            "age": self.age(now),
            "role": state.text("role")?,
            "sequencer": text("sequencer"),
            "term": state.number("trireme_term")? as u64,
            "silent": silent,
        }))
    }

    /// For what concerns this node alone. `target`: path and query.
    pub fn respond(&self, target: &str, now: Instant) -> Option<Answer> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let health = self.health(now);
        let said = |well: bool, body: String| Answer {
            status: if well { "200 OK" } else { "503 Service Unavailable" },
            kind: "text/plain; charset=utf-8",
            body: Content::Text(body),
        };
        Some(match path {
            "/" | "/health" => {
                let donor = query.split('&').any(|pair| pair == "donor=ok");
                let well = health == Health::Synced || donor && health == Health::Donor;
                let not = if well { "" } else { "not " };
                said(well, format!("MariaDB Cluster Node is {not}synced.\r\n"))
            }
            "/live" => said(!matches!(health, Health::Gone(_)), format!("{}\n", health.text())),
            "/ready" => said(health == Health::Synced, format!("{}\n", health.text())),
            "/metrics" => Answer {
                status: "200 OK",
                kind: "text/plain; version=0.0.4; charset=utf-8",
                body: Content::Text(self.metrics(&health, now)),
            },
            "/node" => match self.to_file(now) {
                Some(bytes) => {
                    Answer { status: "200 OK", kind: "application/octet-stream", body: Content::Bytes(bytes) }
                }
                None => said(false, format!("{}\n", health.text())),
            },
            _ => return None,
        })
    }

    fn age(&self, now: Instant) -> Option<f64> {
        Some(now.saturating_duration_since(self.news?).as_secs_f64())
    }

    fn metrics(&self, health: &Health, now: Instant) -> String {
        let mut out = String::new();
        let up = u8::from(!matches!(health, Health::Gone(_)));
        let _ =
            writeln!(out, "# HELP trireme_up 1: the node tells about itself\n# TYPE trireme_up gauge\ntrireme_up {up}");
        if let Some(age) = self.age(now) {
            let _ = writeln!(
                out,
                "# HELP trireme_state_age_seconds Since the node last told something new\n# TYPE trireme_state_age_seconds gauge\n\
                 trireme_state_age_seconds {age:.3}"
            );
        }
        let Some(state) = &self.state else { return out };
        let text = |name| state.text(name).unwrap_or("").replace(['"', '\\', '\n'], "_");
        let _ = writeln!(
            out,
            "# HELP trireme_build_info Name and version of the node\n# TYPE trireme_build_info gauge\n\
             trireme_build_info{{node=\"{}\",version=\"{}\",history=\"{}\"}} 1",
            text("name"),
            text("version"),
            text("history")
        );
        // The last levels of a node without life are not true any more, but for those that say so.
        let dead = matches!(health, Health::Gone(_));
        for metric in names::METRICS {
            if dead && metric.kind == Kind::Gauge && metric.name != "trireme_status" && metric.name != "trireme_primary"
            {
                continue;
            }
            let own = |name: &&String| name.split('{').next() == Some(metric.name);
            let numbers: Vec<_> = state.numbers.iter().filter(|(name, _)| own(name)).collect();
            let histograms: Vec<_> = state.histograms.iter().filter(|(name, _)| own(name)).collect();
            if numbers.is_empty() && histograms.is_empty() {
                continue;
            }
            let _ =
                writeln!(out, "# HELP {} {}\n# TYPE {} {}", metric.name, metric.help, metric.name, metric.kind.word());
            for (name, value) in numbers {
                let value = match metric.name {
                    "trireme_status" if dead => 3.0,
                    "trireme_primary" if dead => 0.0,
                    _ => *value,
                };
                let _ = writeln!(out, "{name} {value}");
            }
            for (name, snapshot) in histograms {
                write_histogram(&mut out, name, snapshot);
            }
        }
        out
    }

    /// `/state`, without the cluster.
    pub fn json(&self, now: Instant) -> serde_json::Value {
        let health = self.health(now);
        let (level, why) = (health.word(), health.why());
        let state = self.state.clone().unwrap_or_default();
        let times: BTreeMap<&String, serde_json::Value> = state
            .histograms
            .iter()
            .map(|(name, snapshot)| {
                let quantile = |part| snapshot.quantile(part).map(|time| time.as_secs_f64());
                let value = json!({
                    "count": snapshot.count(), "sum": snapshot.sum_ns as f64 / 1e9, "p50": quantile(0.5), "p99": quantile(0.99),
                });
                (name, value)
            })
            .collect();
        json!({
            "version": 1,
            "health": level,
            "why": why,
            "trouble": self.trouble,
            "source": if self.by_file { "file" } else { "status" },
            "age": self.age(now),
            "process": state.process,
            "texts": state.texts,
            "numbers": state.numbers,
            "times": times,
        })
    }
}

fn words(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} minutes", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} hours", s / 3600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

/// Was the file written a moment ago, by this machine's clock? For the first look only: later ones see it move.
fn fresh(state: &State) -> bool {
    let age = crate::status::unix_time() - state.unix_ns as f64 / 1e9;
    age.abs() < STALE.as_secs_f64()
}

fn write_histogram(out: &mut String, name: &str, snapshot: &Snapshot) {
    let (bare, labels) = name.split_once('{').map_or((name, ""), |(bare, rest)| (bare, rest.trim_end_matches('}')));
    let comma = if labels.is_empty() { "" } else { "," };
    let mut below = 0;
    for (place, count) in snapshot.counts.iter().enumerate() {
        below += count;
        let bound = BOUNDS_NS.get(place).map_or("+Inf".to_owned(), |ns| format!("{}", *ns as f64 / 1e9));
        let _ = writeln!(out, "{bare}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}");
    }
    let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    let _ = writeln!(out, "{bare}_sum{labels} {}\n{bare}_count{labels} {below}", snapshot.sum_ns as f64 / 1e9);
}

/// The status of a server in our names: for Galera.
fn from_facts(facts: &Facts) -> State {
    let mut state = State::default();
    let primary = facts.is_primary();
    let level = match (primary, facts.whole("wsrep_local_state")) {
        (true, Some(4)) => 0.0,
        (true, _) => 1.0,
        (false, _) => 2.0,
    };
    state.numbers.insert("trireme_status".to_owned(), level);
    state.numbers.insert("trireme_primary".to_owned(), f64::from(u8::from(primary)));
    for (name, variable) in [
        ("trireme_local_state", "wsrep_local_state"),
        ("trireme_cluster_size", "wsrep_cluster_size"),
        ("trireme_commits_total", "wsrep_local_commits"),
        ("trireme_write_sets_sent_total", "wsrep_replicated"),
        ("trireme_write_sets_sent_bytes_total", "wsrep_replicated_bytes"),
        ("trireme_write_sets_received_total", "wsrep_received"),
        ("trireme_write_sets_received_bytes_total", "wsrep_received_bytes"),
        ("trireme_certification_failures_total", "wsrep_local_cert_failures"),
        ("trireme_replays_total", "wsrep_local_replays"),
        ("trireme_causal_reads_total", "wsrep_causal_reads"),
        ("trireme_flow_control_stops_sent_total", "wsrep_flow_control_sent"),
        ("trireme_flow_control_stops_received_total", "wsrep_flow_control_recv"),
        ("trireme_last_committed_seqno", "wsrep_last_committed"),
        ("trireme_apply_queue", "wsrep_local_recv_queue"),
        ("trireme_send_queue", "wsrep_local_send_queue"),
        ("trireme_open_transactions", "wsrep_open_transactions"),
        ("trireme_certification_keys", "wsrep_cert_index_size"),
        ("trireme_term", "wsrep_trireme_term"),
        ("trireme_term_changes_total", "wsrep_trireme_term_changes"),
        ("trireme_log_first_index", "wsrep_trireme_log_first"),
        ("trireme_log_last_index", "wsrep_trireme_log_last"),
        ("trireme_log_bytes", "wsrep_trireme_log_bytes"),
        ("trireme_log_max_bytes", "wsrep_trireme_log_bytes_max"),
        ("trireme_log_sync_longest_seconds", "wsrep_trireme_log_sync_longest"),
        ("trireme_unknown_outcomes_total", "wsrep_trireme_unknown_outcomes"),
        ("trireme_silences_total", "wsrep_trireme_silences"),
    ] {
        if let Some(value) = facts.number(variable) {
            state.numbers.insert(name.to_owned(), value);
        }
    }
    // The bound of Galera's log.
    if let Some(bytes) = facts.options().get("gcache.size").filter(|_| !facts.is_trireme()).and_then(|text| size(text))
    {
        state.numbers.insert("trireme_log_max_bytes".to_owned(), bytes as f64);
    }
    if facts.is_extended() {
        let gave_up = facts.is_on("wsrep_trireme_flow_control_gave_up");
        state.numbers.insert("trireme_flow_control_gave_up".to_owned(), f64::from(u8::from(gave_up)));
    }
    // For whom is not told beside it.
    if let Some(ns) = facts.number("wsrep_flow_control_paused_ns") {
        let name = label("trireme_flow_control_seconds_total", &[("by", ""), ("reason", "unknown")]);
        state.numbers.insert(name, ns / 1e9);
    }
    for (name, weight) in facts.voters() {
        state.numbers.insert(label("trireme_voter_weight", &[("member", &name)]), weight as f64);
    }
    for entry in facts.names("wsrep_trireme_flow_control_members") {
        // `name:rate:backlog`
        let mut parts = entry.rsplitn(3, ':');
        let (Some(backlog), Some(rate), Some(by)) = (parts.next(), parts.next(), parts.next()) else { continue };
        for (name, value) in [("trireme_flow_control_backlog", backlog), ("trireme_flow_control_rate", rate)] {
            if let Ok(value) = value.parse() {
                state.numbers.insert(label(name, &[("by", by)]), value);
            }
        }
    }
    for entry in facts.names("wsrep_trireme_round_trips") {
        // `name:seconds`
        if let Some((peer, Ok(seconds))) = entry.rsplit_once(':').map(|(peer, text)| (peer, text.parse())) {
            state.numbers.insert(label("trireme_peer_round_trip_latest_seconds", &[("peer", peer)]), seconds);
        }
    }
    let own_address = facts.own_address().map(|address| address.to_string());
    for (name, text) in [
        ("name", facts.name()),
        ("version", facts.text("wsrep_provider_version")),
        ("history", facts.text("wsrep_local_state_uuid")),
        ("local_state_comment", facts.text("wsrep_local_state_comment")),
        ("incoming_addresses", facts.text("wsrep_incoming_addresses")),
        ("incoming_address", own_address.as_deref()),
        ("cluster", facts.text("wsrep_cluster_name")),
        ("provider", facts.text("wsrep_provider_name")),
        ("role", facts.text("wsrep_trireme_role")),
        ("sequencer", facts.text("wsrep_trireme_sequencer")),
        ("durability", facts.text("wsrep_trireme_durability")),
        ("silent", facts.text("wsrep_trireme_silent")),
        ("identity", facts.text("wsrep_gcomm_uuid")),
        ("source", Some("status")),
        ("ready", Some(if facts.is_on("wsrep_ready") { "yes" } else { "no" })),
    ] {
        if let Some(text) = text {
            state.texts.insert(name.to_owned(), text.to_owned());
        }
    }
    state
}

/// The page of the documents that lists all metrics.
pub fn page() -> String {
    let mut out = String::from(
        "# Metrics\n\nMade from the code. `trireme monitor` serves them at `/metrics` ([monitoring](monitoring.md)). Histograms have buckets from 10 µs to 10 s in steps of 1, \
         2.5 and 5, and are in seconds. A sample is two additions in memory, without a lock; `cargo bench -p trireme-metrics` measures it. Of a Galera node there are those that its status has.\n\n| name | kind | labels | meaning |\n|---|---|---|---|\n\
         | `trireme_up` | gauge | | 1: the node tells about itself |\n| `trireme_state_age_seconds` | gauge | | since the node last told something new |\n\
         | `trireme_build_info` | gauge | node, version, history | name and version of the node |\n",
    );
    for metric in names::METRICS {
        let _ = writeln!(out, "| `{}` | {} | {} | {} |", metric.name, metric.kind.word(), metric.labels, metric.help);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::facts;
    use std::path::Path;
    use trireme_metrics::{Body, Histogram};

    fn state(sequence: u64, change: impl FnOnce(&mut State)) -> Look {
        let mut body = Body::default();
        let histogram = Histogram::default();
        histogram.record(Duration::from_micros(70));
        body.histogram("trireme_commit_seconds{stage=\"total\"}", &histogram.snapshot());
        body.histogram("trireme_apply_seconds", &histogram.snapshot());
        body.number("trireme_primary", 1.0);
        body.number("trireme_local_state", 4.0);
        body.number("trireme_status", 0.0);
        body.number("trireme_term", 3.0);
        body.text("name", "db1");
        let now = (crate::status::unix_time() * 1e9) as u64;
        let mut state = State::decode(&body.encode(sequence, now, 1, false)).unwrap();
        change(&mut state);
        Look::File(Ok(state))
    }

    fn status(watch: &Watch, path: &str, now: Instant) -> &'static str {
        watch.respond(path, now).unwrap().status
    }

    fn body(watch: &Watch, path: &str, now: Instant) -> String {
        match watch.respond(path, now).unwrap().body {
            Content::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_order_is_told_for_balancers_while_the_node_tells_it() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut watch = Watch::new(start);
        assert_eq!(watch.order(start), None);
        let told = |state: &mut State| {
            for (name, text) in [("role", "voter"), ("sequencer", "n2"), ("silent", "n3,n4")] {
                state.texts.insert(name.into(), text.into());
            }
            state.numbers.insert("trireme_term".into(), 7.0);
        };
        watch.handle(state(1, told), at(0));
        watch.handle(state(2, told), at(100));
        let event = watch.order(at(140)).unwrap();
        assert_eq!((&event["role"], &event["term"], &event["alive"]), (&json!("voter"), &json!(7), &json!(true)));
        assert_eq!((&event["silent"], event["age"].as_f64()), (&json!(["n3", "n4"]), Some(0.04)));
        assert_eq!(watch.order(at(3000)).unwrap()["alive"], false);
    }

    #[test]
    fn a_node_that_tells_is_well_and_one_that_ceases_is_gone() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut watch = Watch::new(start);
        assert_eq!(status(&watch, "/live", start), "503 Service Unavailable");
        watch.handle(state(1, |_| {}), at(0));
        watch.handle(state(2, |_| {}), at(100));
        assert_eq!(status(&watch, "/health", at(200)), "200 OK");
        assert_eq!(body(&watch, "/health", at(200)), "MariaDB Cluster Node is synced.\r\n");
        assert_eq!((status(&watch, "/ready", at(200)), watch.health(at(200)).agent()), ("200 OK", "ready up 100%\n"));
        // The same file again and again: frozen or dead.
        watch.handle(state(2, |_| {}), at(3000));
        assert_eq!(body(&watch, "/health", at(3000)), "MariaDB Cluster Node is not synced.\r\n");
        assert!(body(&watch, "/live", at(3000)).contains("hangs, or is dead"));
        let metrics = body(&watch, "/metrics", at(3000));
        assert!(metrics.contains("trireme_up 0\n") && metrics.contains("\ntrireme_status 3\n"), "{metrics}");
        assert!(!metrics.contains("trireme_term "), "{metrics}");
        watch.handle(state(3, |_| {}), at(3100));
        assert_eq!(watch.health(at(3100)), Health::Synced);
        watch.handle(state(4, |state| state.closed = true), at(3200));
        assert_eq!(watch.health(at(3200)), Health::Gone("the node was stopped".to_owned()));
    }

    #[test]
    fn a_process_that_ends_is_noticed_before_its_silence() {
        let now = Instant::now();
        let mut watch = Watch::new(now);
        watch.handle(state(1, |_| {}), now);
        // Never seen from here: in a container, for instance.
        watch.handle_process(1, false);
        assert_eq!(watch.health(now), Health::Synced);
        watch.handle_process(1, true);
        assert_eq!(watch.health(now), Health::Synced);
        watch.handle_process(1, false);
        assert!(watch.health(now).why().unwrap().contains("process is gone"));
        // Its successor.
        watch.handle(state(2, |state| state.process = 2), now);
        watch.handle_process(2, true);
        assert_eq!(watch.health(now), Health::Synced);
    }

    #[test]
    fn what_a_monitor_knows_another_can_read() {
        let now = Instant::now();
        let mut watch = Watch::new(now);
        watch.handle(state(1, |_| {}), now);
        let mut other = Watch::new(now);
        other.handle(Look::File(State::decode(&watch.to_file(now).unwrap())), now);
        assert_eq!((other.health(now), other.state()), (Health::Synced, watch.state()));
        let later = now + Duration::from_secs(60);
        other.handle(Look::File(State::decode(&watch.to_file(later).unwrap())), now);
        assert!(other.health(now).why().unwrap().contains("hangs, or is dead"));
    }

    #[test]
    fn an_old_file_at_the_start_is_not_news() {
        let start = Instant::now();
        let mut watch = Watch::new(start);
        watch.handle(state(9, |state| state.unix_ns -= 60_000_000_000), start);
        assert_eq!(watch.health(start).why(), Some("the server last told something 60 s ago: it hangs, or is dead"));
        // A clock that was set back does not matter once the file moves.
        watch.handle(state(10, |state| state.unix_ns -= 60_000_000_000), start);
        assert_eq!(watch.health(start), Health::Synced);
    }

    #[test]
    fn states_that_are_not_fit() {
        let now = Instant::now();
        let seen = |change: fn(&mut State)| {
            let mut watch = Watch::new(now);
            watch.handle(state(1, change), now);
            watch
        };
        let set = |state: &mut State, name: &str, value| {
            state.numbers.insert(name.to_owned(), value);
        };
        let donor = seen(|state| {
            state.numbers.insert("trireme_local_state".to_owned(), 2.0);
        });
        assert_eq!(
            (status(&donor, "/health", now), status(&donor, "/health?donor=ok", now)),
            ("503 Service Unavailable", "200 OK")
        );
        assert_eq!(donor.health(now).agent(), "ready up drain\n");
        let mut watch = Watch::new(now);
        watch.handle(state(1, |state| set(state, "trireme_primary", 0.0)), now);
        assert_eq!(
            (status(&watch, "/ready", now), status(&watch, "/live", now)),
            ("503 Service Unavailable", "200 OK")
        );
        watch.handle(state(2, |state| set(state, "trireme_group_thread_silent_seconds", 9.0)), now);
        assert!(body(&watch, "/ready", now).contains("not answered for 9 s: look at the disk"));
        // Out of the group, and it is known why.
        for (name, text, why) in [
            ("log", "failed", "until the disk"),
            ("local_state_comment", "Inconsistent", "its data are not the group's"),
        ] {
            let mut watch = Watch::new(now);
            let out = |state: &mut State| {
                set(state, "trireme_primary", 0.0);
                state.texts.insert(name.to_owned(), text.to_owned());
            };
            watch.handle(state(1, out), now);
            assert!(body(&watch, "/ready", now).contains(why), "{name}");
        }
    }

    #[test]
    fn bad_files_are_told_in_words() {
        let now = Instant::now();
        let mut watch = Watch::new(now);
        watch.handle(Look::File(Err(Bad::Version(7))), now);
        assert!(body(&watch, "/live", now).contains("its format is 7"));
        watch.handle(Look::Unreadable("Permission denied".into()), now);
        assert!(watch.json(now).to_string().contains("Permission denied"));
        // One that is being written does not undo what is known.
        watch.handle(state(1, |_| {}), now);
        watch.handle(Look::File(Err(Bad::Torn)), now);
        assert_eq!(watch.health(now), Health::Synced);
        let later = now + Duration::from_secs(60);
        assert_eq!(
            watch.health(later).why(),
            Some("the state file cannot be used: its checksum does not fit: it is damaged")
        );
        watch.handle(state(2, |_| {}), later);
        assert_eq!(watch.health(later), Health::Synced);
        watch.handle(Look::File(Err(Bad::NotOurs)), later);
        assert!(watch.health(later + STALE * 2).why().unwrap().contains("no state file of a Trireme node"));
    }

    #[test]
    fn metrics_as_prometheus_reads_them() {
        let now = Instant::now();
        let mut watch = Watch::new(now);
        watch.handle(state(1, |_| {}), now);
        let text = body(&watch, "/metrics", now);
        for line in [
            "trireme_up 1",
            "# TYPE trireme_commit_seconds histogram",
            "trireme_commit_seconds_bucket{stage=\"total\",le=\"0.00005\"} 0",
            "trireme_commit_seconds_bucket{stage=\"total\",le=\"0.0001\"} 1",
            "trireme_commit_seconds_bucket{stage=\"total\",le=\"+Inf\"} 1",
            "trireme_commit_seconds_sum{stage=\"total\"} 0.00007",
            "trireme_commit_seconds_count{stage=\"total\"} 1",
            "trireme_apply_seconds_bucket{le=\"10\"} 1",
            "trireme_apply_seconds_count 1",
            "trireme_build_info{node=\"db1\",version=\"\",history=\"\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_galera_node_by_its_status() {
        let now = Instant::now();
        let mut watch = Watch::new(now);
        let answer = facts(&[
            ("wsrep_cluster_status", "Primary"),
            ("wsrep_local_state", "4"),
            ("wsrep_ready", "ON"),
            ("wsrep_local_commits", "12"),
            ("wsrep_node_name", "g1"),
        ]);
        watch.handle(Look::Answer(Ok(Box::new(answer))), now);
        assert_eq!(watch.health(now), Health::Synced);
        assert!(body(&watch, "/metrics", now).contains("\ntrireme_commits_total 12\n"));
        watch.handle(Look::Answer(Err(Trouble::Silent)), now);
        assert!(matches!(watch.health(now), Health::Gone(_)));
    }

    #[test]
    fn the_page_is_that_of_the_code() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations/metrics.md");
        if std::env::var_os("UPDATE_PAGES").is_some() {
            std::fs::write(&path, page()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == page(), "docs/operations/metrics.md is old: UPDATE_PAGES=1 cargo test -p trireme-observe");
    }
}
