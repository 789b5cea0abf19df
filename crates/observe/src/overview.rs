//! The whole cluster at one moment: what the dashboard, `trireme top` and `/cluster` show.
//!
//! Pure. [`Roundup`] remembers what nodes said a second ago, so that counters become rates. The verdict is that of `trireme status`.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use trireme_metrics::{Snapshot, State};

use crate::changes::{Change, Chronicle, SHOWN};
use crate::client::Trouble;
use crate::cluster::{Cluster, Picture, Server};
use crate::facts::Facts;
use crate::monitor::{Health, Look, NOT_PRIMARY, Watch};
use crate::survey::{Answer, Target};
use crate::verdict::Level;

/// Changes when a field of the JSON changes its meaning or goes; new fields do not change it.
pub const VERSION: u32 = 1;

/// Unknown is `None` everywhere.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Overview {
    pub version: u32,
    /// Seconds since 1970, by the clock of the monitor.
    pub time: f64,
    /// The node beside which the monitor runs.
    pub here: Option<String>,
    pub level: Level,
    /// The most important first.
    pub sentences: Vec<String>,
    pub clusters: Vec<Cluster>,
    /// Remarks that belong to no cluster, and addresses that were not reached.
    pub notes: Vec<String>,
    pub nodes: Vec<Node>,
    pub throttle: Vec<Throttle>,
    /// Members that have more to apply than the others wait for, and how fast the group may write for their sake.
    pub slow: Vec<Slow>,
    pub round_trips: Vec<RoundTrip>,
    /// The newest last.
    pub changes: Vec<Change>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Node {
    pub name: String,
    /// Where clients reach it.
    pub address: Option<String>,
    /// Place in `clusters`.
    pub cluster: Option<usize>,
    /// `file`, `monitor` or `server`: who says this.
    pub source: String,
    /// `synced`, `donor`, `unfit`, `gone`, or `unknown`: nobody could be asked.
    pub health: String,
    pub why: Option<String>,
    /// Seconds since it told something new.
    pub age: Option<f64>,
    /// `wsrep_local_state_comment`, and since when, in seconds since 1970.
    pub state: Option<String>,
    pub state_since: Option<f64>,
    pub role: Option<String>,
    pub votes: Option<u64>,
    pub primary: bool,
    pub seqno: Option<f64>,
    /// Write sets that are ordered, as far as it knows, and not committed in its engine.
    pub behind: Option<f64>,
    /// Write sets that wait to be applied, and that flow control holds back.
    pub queue: Option<f64>,
    pub send_queue: Option<f64>,
    pub open_transactions: Option<f64>,
    pub log_bytes: Option<f64>,
    pub log_max_bytes: Option<f64>,
    pub log_first: Option<f64>,
    pub log_last: Option<f64>,
    /// How long a member may be away until its return takes a full copy, in seconds, at the rate of the last minute.
    pub away_seconds: Option<f64>,
    pub version: Option<String>,
    pub provider: Option<String>,
    pub durability: Option<String>,
    pub silent: Vec<String>,
    /// It applies nothing, and slows nobody any more.
    pub gave_up: bool,
    /// Different for every process that runs.
    pub identity: Option<String>,
    pub unknown_outcomes: Option<f64>,
    /// To the linked member that is farthest: the median of the last ten seconds.
    pub round_trip: Option<f64>,
    pub rates: Rates,
    /// By stage of a commit (`send`, `hold`, `order`, `wait`, `engine`, `total`), and `sync`, `apply`, `lag`, `read`, `delay`: what the last
    /// second brought.
    pub times: BTreeMap<String, Times>,
}

/// Per second.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Rates {
    pub commits: Option<f64>,
    pub received: Option<f64>,
    pub sent_bytes: Option<f64>,
    pub received_bytes: Option<f64>,
    pub conflicts: Option<f64>,
    pub replays: Option<f64>,
    pub causal_reads: Option<f64>,
    /// Seconds per second for which its writers were held back.
    pub held: Option<f64>,
}

/// Seconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Times {
    pub count: u64,
    pub p50: f64,
    pub p99: f64,
}

/// The writers of one node wait for another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Throttle {
    pub node: String,
    /// Empty: it is not known who.
    pub by: String,
    pub reason: String,
    /// Seconds per second, in the last second.
    pub share: f64,
    /// Seconds, in the last minute.
    pub minute: f64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Slow {
    pub node: String,
    /// Write sets per second that the group may send for its sake; 0: it applies nothing.
    pub rate: f64,
    pub backlog: Option<f64>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RoundTrip {
    pub from: String,
    pub to: String,
    /// Of the last ten seconds, one that is under way included if it takes longer than they did.
    pub p50: f64,
    pub p99: f64,
}

/// One node as it is known.
pub struct Seen<'a> {
    /// Where clients reach it, as far as it is known otherwise than from itself.
    pub target: Target,
    /// As others name it.
    pub name: Option<String>,
    pub source: &'static str,
    pub watch: &'a Watch,
}

/// Counters are compared with what they were so long ago, at least.
const WINDOW: Duration = Duration::from_millis(950);
/// Of the rate by which the log fills, and of who was waited for.
const LONG_WINDOW: Duration = Duration::from_secs(60);
/// Samples that are kept for it, one each second.
const LONG_SAMPLES: usize = 60;
/// Of round trips, of which there are two a second.
const TRIPS_WINDOW: Duration = Duration::from_secs(10);
/// A node that is not seen for so long is forgotten.
const FORGET: Duration = Duration::from_secs(600);

/// The earlier states of one node.
#[derive(Debug)]
struct Past {
    last: Instant,
    /// The newest last; as many as it takes for [`WINDOW`].
    states: VecDeque<(Instant, State)>,
    /// Bytes of write sets, sent and received, and for whom writers waited: each second of the last minute.
    minute: VecDeque<(Instant, f64, Held)>,
    /// Round trips by peer, once a second, for [`TRIPS_WINDOW`].
    trips: VecDeque<(Instant, BTreeMap<String, Snapshot>)>,
    /// The state's words, and since when in seconds since 1970.
    comment: Option<(String, f64)>,
}

#[derive(Debug, Default)]
pub struct Roundup {
    past: BTreeMap<String, Past>,
}

impl Roundup {
    /// `unix`: seconds since 1970. The first of `seen` is the node beside this monitor.
    pub fn look(&mut self, seen: &[Seen<'_>], now: Instant, unix: f64) -> Overview {
        let answers: Vec<(Target, Answer)> =
            seen.iter().map(|one| (one.target.clone(), answer(one, now, unix))).collect();
        let picture = Picture::of(&answers);
        let mut nodes = Vec::new();
        let (mut throttle, mut slow, mut round_trips) = (Vec::new(), BTreeMap::new(), Vec::new());
        let mut stops = Vec::new();
        let at = |one: &Seen<'_>| picture.servers.iter().find(|server| server.address == one.target.to_string());
        let names: Vec<String> = seen.iter().map(|one| name_of(one, at(one))).collect();
        for (one, name) in seen.iter().zip(&names) {
            let server = at(one);
            // Nodes of different clusters may have one name.
            let alone = names.iter().filter(|other| *other == name).count() == 1;
            let name = if alone { name.clone() } else { format!("{name} ({})", one.target) };
            let past = self.note(&name, one.watch, now, unix);
            let mut node = describe(name.clone(), one, now);
            node.cluster = server.and_then(|server| server.cluster);
            node.votes = server.and_then(|server| server.votes);
            node.behind = node.behind.or(server.and_then(|server| server.behind).map(|n| n as f64));
            node.state_since = past.comment.as_ref().map(|(_, since)| *since);
            if let Some(rate) = past.bytes_per_second().filter(|rate| *rate > 0.0) {
                node.away_seconds = node.log_max_bytes.map(|bytes| bytes / rate);
            }
            if let Some((old, new, seconds)) =
                past.pair().filter(|_| ["synced", "donor", "unfit"].contains(&&*node.health))
            {
                node.rates = rates(old, new, seconds);
                node.times = times(old, new);
                let trips = round_trips_of(&name, past.trips.front().map(|(_, times)| times), new);
                if let Some(far) = trips.iter().max_by(|a, b| a.p50.total_cmp(&b.p50)) {
                    node.round_trip = Some(far.p50);
                }
                round_trips.extend(trips);
                throttle.extend(throttle_of(&name, old, new, seconds, past.minute.front().map(|(_, _, held)| held)));
                if per(old, new, seconds, "trireme_flow_control_stops_sent_total").is_some_and(|rate| rate > 0.0) {
                    stops.push(name.clone());
                }
                for (labels, rate) in labelled(new, "trireme_flow_control_rate") {
                    let Some(by) = labels.get("by") else { continue };
                    let of = |(labels, backlog): (BTreeMap<String, String>, f64)| {
                        (labels.get("by") == Some(by)).then_some(backlog)
                    };
                    let backlog = labelled(new, "trireme_flow_control_backlog").into_iter().find_map(of);
                    slow.insert(by.clone(), Slow { node: by.clone(), rate, backlog });
                }
            }
            nodes.push(node);
        }
        // A server's status tells that it waits. For whom follows from the rates that a Trireme node tells; in Galera from who counts stops.
        let slowest = slow.values().min_by(|a: &&Slow, b: &&Slow| a.rate.total_cmp(&b.rate));
        for cell in throttle.iter_mut().filter(|cell| cell.by.is_empty()) {
            match (slowest, &stops[..]) {
                (Some(slow), _) => {
                    cell.by.clone_from(&slow.node);
                    cell.reason = if slow.rate == 0.0 { "stands" } else { "behind" }.to_owned();
                }
                (None, [only]) => {
                    cell.by.clone_from(only);
                    cell.reason = "behind".to_owned();
                }
                (None, _) => {}
            }
        }
        self.past.retain(|_, past| now.saturating_duration_since(past.last) < FORGET);
        let (level, sentences) = verdict(&picture, &nodes);
        let notes = picture.notes.into_iter().filter(|note| !sentences.contains(note)).collect();
        let here = nodes.first().map(|node| node.name.clone());
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Overview {
            version: VERSION,
            time: unix,
            here,
            level,
            sentences,
            clusters: picture.clusters,
            notes,
            nodes,
            throttle,
            slow: slow.into_values().collect(),
            round_trips,
            changes: Vec::new(),
        }
    }

    fn note(&mut self, name: &str, watch: &Watch, now: Instant, unix: f64) -> &Past {
        let empty = || Past {
            last: now,
            states: VecDeque::new(),
            minute: VecDeque::new(),
            trips: VecDeque::new(),
            comment: None,
        };
        let past = self.past.entry(name.to_owned()).or_insert_with(empty);
        let Some(state) = watch.state() else { return past };
        past.last = now;
        let comment = state.text("local_state_comment").unwrap_or("?");
        if past.comment.as_ref().is_none_or(|(known, _)| known != comment) {
            past.comment = Some((comment.to_owned(), unix));
        }
        let newest = past.states.back().map(|(_, state)| state);
        // Another process counts from zero.
        if newest.is_some_and(|old| old.process != state.process || old.text("history") != state.text("history")) {
            past.states.clear();
            past.minute.clear();
            past.trips.clear();
        }
        if past.states.back().is_none_or(|(_, old)| old.sequence != state.sequence) {
            past.states.push_back((now, state.clone()));
        }
        // The one before the window stays: it is what is compared with.
        while past.states.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= WINDOW) {
            past.states.pop_front();
        }
        let bytes = ["trireme_write_sets_sent_bytes_total", "trireme_write_sets_received_bytes_total"];
        let bytes: f64 = bytes.iter().filter_map(|name| state.number(name)).sum();
        let old = |at: &Instant| now.saturating_duration_since(*at) >= LONG_WINDOW / LONG_SAMPLES as u32;
        if past.minute.back().is_none_or(|(at, _, _)| old(at)) {
            past.minute.push_back((now, bytes, held(state)));
            if past.minute.len() > LONG_SAMPLES {
                past.minute.pop_front();
            }
            past.trips.push_back((now, trips(state)));
            while past.trips.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= TRIPS_WINDOW) {
                past.trips.pop_front();
            }
        }
        past
    }
}

impl Past {
    /// The two states that are compared, and the seconds between.
    fn pair(&self) -> Option<(&State, &State, f64)> {
        let ((from, old), (to, new)) = (self.states.front()?, self.states.back()?);
        let heard = to.saturating_duration_since(*from).as_secs_f64();
        // By the node's own clock, unless that was set meanwhile.
        let told = new.unix_ns as f64 / 1e9 - old.unix_ns as f64 / 1e9;
        let seconds = if (heard * 0.5..=heard * 2.0).contains(&told) { told } else { heard };
        (seconds >= 0.2).then_some((old, new, seconds))
    }

    fn bytes_per_second(&self) -> Option<f64> {
        let ((from, old, _), (to, new, _)) = (self.minute.front()?, self.minute.back()?);
        let seconds = to.saturating_duration_since(*from).as_secs_f64();
        (seconds >= 1.0 && new >= old).then(|| (new - old) / seconds)
    }
}

/// As a server's answer, for the verdict.
fn answer(one: &Seen<'_>, now: Instant, unix: f64) -> Answer {
    let Some(state) = one.watch.state() else {
        return Err(Trouble::Other(one.watch.trouble().unwrap_or("nothing is known of it yet").to_owned()));
    };
    match one.watch.health(now) {
        // A node that is gone for certain need not be waited for.
        Health::Gone(why) if state.closed || one.watch.ended(now) => Err(Trouble::Refused(why)),
        Health::Gone(why) => Err(Trouble::Other(why)),
        Health::Synced | Health::Donor | Health::Unfit(_) => Ok(facts(state, one.watch.news() == Some(now), unix)),
    }
}

/// A state in the names of the server's status. `fresh`: it was heard at `unix`.
fn facts(state: &State, fresh: bool, unix: f64) -> Facts {
    let mut facts = Facts::default();
    let primary = state.number("trireme_primary") == Some(1.0);
    let text = |name: &str| state.text(name).unwrap_or_default().to_owned();
    let number = |name: &str| state.number(name).map_or_else(String::new, |value| format!("{value}"));
    let provider = state.text("provider").unwrap_or("Trireme").to_owned();
    // A node's own file tells everything; for a moment at its start it does not know yet.
    let by_file = state.text("source") != Some("status");
    let role = match state.text("role") {
        Some(role) => role.to_owned(),
        None if !by_file => String::new(),
        None if primary => "member".to_owned(),
        None => "non-primary".to_owned(),
    };
    let addresses = text("incoming_addresses");
    let own = text("incoming_address");
    let index = addresses.split(',').position(|address| !own.is_empty() && address == own);
    let voters = labelled(state, "trireme_voter_weight");
    let voters: Vec<String> =
        voters.iter().filter_map(|(labels, weight)| Some(format!("{}:{weight}", labels.get("member")?))).collect();
    for (name, value) in [
        ("wsrep_on", "ON".to_owned()),
        ("wsrep_provider_name", provider),
        ("wsrep_provider_version", text("version")),
        ("wsrep_cluster_name", text("cluster")),
        ("wsrep_cluster_state_uuid", text("history")),
        ("wsrep_cluster_status", if primary { "Primary" } else { "non-Primary" }.to_owned()),
        ("wsrep_cluster_size", number("trireme_cluster_size")),
        ("wsrep_node_name", text("name")),
        ("wsrep_local_index", index.map_or_else(String::new, |n| n.to_string())),
        ("wsrep_gcomm_uuid", identity(state)),
        ("wsrep_local_state", number("trireme_local_state")),
        ("wsrep_local_state_comment", text("local_state_comment")),
        ("wsrep_ready", if state.text("ready") == Some("no") || !primary { "OFF" } else { "ON" }.to_owned()),
        ("wsrep_incoming_addresses", addresses),
        ("wsrep_last_committed", number("trireme_last_committed_seqno")),
        ("wsrep_local_recv_queue", number("trireme_apply_queue")),
        ("wsrep_trireme_role", role),
        ("wsrep_trireme_sequencer", text("sequencer")),
        ("wsrep_trireme_term", number("trireme_term")),
        ("wsrep_trireme_voters", voters.join(",")),
        ("wsrep_trireme_silent", text("silent")),
        ("wsrep_trireme_durability", text("durability")),
        ("wsrep_trireme_authentication", text("authentication")),
        ("wsrep_trireme_flow_control_gave_up", if gave_up(state) { "yes" } else { "no" }.to_owned()),
        ("wsrep_trireme_log_bytes_max", number("trireme_log_max_bytes")),
        ("wsrep_trireme_log_sync_longest", number("trireme_log_sync_longest_seconds")),
    ] {
        facts.status.insert(name.to_owned(), value);
    }
    // Of a file; half a second is what its way to here may take.
    if by_file && fresh && state.unix_ns > 0 {
        facts.clock = Some((state.unix_ns as f64 / 1e9 - unix, 0.5));
    }
    facts
}

fn gave_up(state: &State) -> bool {
    state.number("trireme_flow_control_gave_up") == Some(1.0)
}

/// Of the process.
pub fn identity(state: &State) -> String {
    match state.text("identity") {
        Some(identity) => identity.to_owned(),
        None => format!(
            "{}/{}/{}",
            state.text("name").unwrap_or_default(),
            state.text("incoming_address").unwrap_or_default(),
            state.process
        ),
    }
}

fn describe(name: String, one: &Seen<'_>, now: Instant) -> Node {
    let health = one.watch.health(now);
    let Some(state) = one.watch.state() else {
        let why = one.watch.trouble().unwrap_or("nothing is known of it yet");
        return Node {
            name,
            address: address(&one.target),
            source: one.source.to_owned(),
            health: "unknown".to_owned(),
            why: Some(why.to_owned()),
            ..Node::default()
        };
    };
    let text = |name: &str| state.text(name).map(str::to_owned);
    let gone = matches!(health, Health::Gone(_));
    // Its last levels are no longer so.
    let level = |name: &str| state.number(name).filter(|_| !gone);
    let silent = state.text("silent").unwrap_or_default();
    Node {
        name,
        address: text("incoming_address").or_else(|| address(&one.target)),
        cluster: None,
        source: one.source.to_owned(),
        health: health.word().to_owned(),
        why: health.why().map(str::to_owned),
        age: one.watch.news().map(|at| now.saturating_duration_since(at).as_secs_f64()),
        state: text("local_state_comment").filter(|_| !gone),
        state_since: None,
        role: text("role").filter(|_| !gone),
        votes: None,
        primary: !gone && state.number("trireme_primary") == Some(1.0),
        seqno: state.number("trireme_last_committed_seqno"),
        // Looks at different nodes are up to half a second apart: its own word is better, where there is one.
        behind: level("trireme_delivered_seqno")
            .zip(level("trireme_last_committed_seqno"))
            .map(|(all, own)| (all - own).max(0.0)),
        queue: level("trireme_apply_queue"),
        send_queue: level("trireme_send_queue"),
        open_transactions: level("trireme_open_transactions"),
        log_bytes: state.number("trireme_log_bytes"),
        log_max_bytes: state.number("trireme_log_max_bytes"),
        log_first: state.number("trireme_log_first_index"),
        log_last: state.number("trireme_log_last_index"),
        away_seconds: None,
        version: text("version"),
        provider: text("provider").or_else(|| Some("Trireme".to_owned())),
        durability: text("durability"),
        silent: silent.split(',').filter(|name| !name.is_empty() && !gone).map(str::to_owned).collect(),
        gave_up: !gone && gave_up(state),
        identity: Some(identity(state)),
        unknown_outcomes: state.number("trireme_unknown_outcomes_total"),
        round_trip: None,
        rates: Rates::default(),
        times: BTreeMap::new(),
    }
}

/// As it calls itself, or as others do.
fn name_of(one: &Seen<'_>, server: Option<&Server>) -> String {
    let name = one.watch.state().and_then(|state| state.text("name")).or(one.name.as_deref());
    let name = name.or(server.and_then(|server| server.name.as_deref())).map(str::to_owned);
    name.unwrap_or_else(|| one.target.to_string())
}

fn address(target: &Target) -> Option<String> {
    match target {
        Target::Default => None,
        Target::Tcp { .. } => Some(target.to_string()),
    }
}

fn verdict(picture: &Picture, nodes: &[Node]) -> (Level, Vec<String>) {
    let mut level = picture.clusters.iter().map(|cluster| cluster.verdict.level).max().unwrap_or(Level::Down);
    let mut sentences: Vec<String> =
        picture.clusters.iter().flat_map(|cluster| cluster.verdict.sentences.clone()).collect();
    for node in nodes.iter().filter(|node| node.health == "gone") {
        level = level.max(Level::Degraded);
        sentences.push(format!("{}: {}", node.name, node.why.as_deref().unwrap_or("gone")));
    }
    for node in nodes.iter().filter(|node| node.health == "unfit") {
        // A reason that its state gives by itself, or that the verdict has given.
        let told = |why: &&str| *why == NOT_PRIMARY || node.state.as_deref() == Some(*why);
        let Some(why) = node.why.as_deref().filter(|why| !told(why)) else { continue };
        level = level.max(Level::Degraded);
        sentences.push(format!("{}: {why}", node.name));
    }
    let keys: Vec<(String, Option<String>)> =
        picture.clusters.iter().map(|cluster| (cluster.name.clone(), cluster.uuid.clone())).collect();
    // Clusters that are taken for each other. Those of servers come and go with their answers.
    let mixed = crate::verdict::notes(&[], &keys);
    if !mixed.is_empty() {
        level = level.max(Level::Degraded);
        sentences.extend(mixed);
    }
    if picture.clusters.is_empty() && sentences.is_empty() {
        sentences.push("no node tells anything".to_owned());
    }
    (level, sentences)
}

/// A counter's rate.
fn per(old: &State, new: &State, seconds: f64, name: &str) -> Option<f64> {
    let more = new.number(name)? - old.number(name)?;
    (more >= 0.0).then_some(more / seconds)
}

fn rates(old: &State, new: &State, seconds: f64) -> Rates {
    let per = |name: &str| per(old, new, seconds, name);
    let held: f64 = throttle_of("", old, new, seconds, None).iter().map(|cell| cell.share).sum();
    // The sum of nothing is a negative zero.
    let held = held + 0.0;
    Rates {
        commits: per("trireme_commits_total"),
        received: per("trireme_write_sets_received_total"),
        sent_bytes: per("trireme_write_sets_sent_bytes_total"),
        received_bytes: per("trireme_write_sets_received_bytes_total"),
        conflicts: per("trireme_certification_failures_total"),
        replays: per("trireme_replays_total"),
        causal_reads: per("trireme_causal_reads_total"),
        held: Some(held),
    }
}

/// Names here, names of histograms.
const TIMES: [(&str, &str); 11] = [
    ("total", "trireme_commit_seconds{stage=\"total\"}"),
    ("send", "trireme_commit_seconds{stage=\"send\"}"),
    ("hold", "trireme_commit_seconds{stage=\"hold\"}"),
    ("order", "trireme_commit_seconds{stage=\"order\"}"),
    ("wait", "trireme_commit_seconds{stage=\"wait\"}"),
    ("engine", "trireme_commit_seconds{stage=\"engine\"}"),
    ("sync", "trireme_log_sync_seconds"),
    ("apply", "trireme_apply_seconds"),
    ("lag", "trireme_apply_lag_seconds"),
    ("read", "trireme_causal_read_seconds"),
    ("delay", "trireme_group_thread_delay_seconds"),
];

fn times(old: &State, new: &State) -> BTreeMap<String, Times> {
    let one = |(name, histogram): &(&str, &str)| Some(((*name).to_owned(), quantiles(old, new, histogram)?));
    TIMES.iter().filter_map(one).collect()
}

/// Of what came in between. `None`: nothing.
fn quantiles(old: &State, new: &State, name: &str) -> Option<Times> {
    let none = Snapshot::default();
    let between = new.histograms.get(name)?.since(old.histograms.get(name).unwrap_or(&none));
    let seconds = |part| between.quantile(part).map(|time| time.as_secs_f64());
    Some(Times { count: between.count(), p50: seconds(0.5)?, p99: seconds(0.99)? })
}

/// Seconds for which this node's writers were held back since it started: by whom, and why.
fn held(state: &State) -> Held {
    let one = |(labels, seconds): (BTreeMap<String, String>, f64)| {
        let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
        ((label("by"), label("reason")), seconds)
    };
    labelled(state, "trireme_flow_control_seconds_total").into_iter().map(one).collect()
}

/// By whom and why.
type Held = BTreeMap<(String, String), f64>;

fn throttle_of(node: &str, old: &State, new: &State, seconds: f64, minute_ago: Option<&Held>) -> Vec<Throttle> {
    let before = held(old);
    let one = |((by, reason), now): ((String, String), f64)| {
        let key = (by, reason);
        // Names appear with their first wait.
        let since = |then: &Held| (now - then.get(&key).copied().unwrap_or(0.0)).max(0.0);
        let share = (since(&before) / seconds).min(1.0);
        let minute = minute_ago.map_or(0.0, since);
        let (by, reason) = key;
        (share > 0.0 || minute > 0.0).then_some(Throttle { node: node.to_owned(), by, reason, share, minute })
    };
    held(new).into_iter().filter_map(one).collect()
}

/// The name of what a node measures to each peer.
const ROUND_TRIP: &str = "trireme_peer_round_trip_seconds";

/// And the latest of it, which is not told in steps.
const LATEST_ROUND_TRIP: &str = "trireme_peer_round_trip_latest_seconds";

/// By peer.
fn trips(state: &State) -> BTreeMap<String, Snapshot> {
    let one = |(name, times): (&String, &Snapshot)| {
        let (bare, labels) = labels(name)?;
        Some((labels.get("peer").filter(|_| bare == ROUND_TRIP)?.clone(), times.clone()))
    };
    state.histograms.iter().filter_map(one).collect()
}

/// To each peer that is linked. Of a server that is asked by SQL there is no more than the latest.
fn round_trips_of(node: &str, old: Option<&BTreeMap<String, Snapshot>>, new: &State) -> Vec<RoundTrip> {
    let none = Snapshot::default();
    let times = trips(new);
    let one = |(labels, latest): (BTreeMap<String, String>, f64)| {
        let to = labels.get("peer")?.clone();
        let before = old.and_then(|old| old.get(&to)).unwrap_or(&none);
        let between = times.get(&to).map(|times| times.since(before));
        let part = |part| between.as_ref()?.quantile(part).map(|time| time.as_secs_f64());
        Some(RoundTrip {
            from: node.to_owned(),
            to,
            p50: part(0.5).unwrap_or(latest),
            // One that hangs is not in the histogram yet.
            p99: part(0.99).unwrap_or(latest).max(latest),
        })
    };
    labelled(new, LATEST_ROUND_TRIP).into_iter().filter_map(one).collect()
}

/// Values of one metric, by labels.
fn labelled(state: &State, wanted: &str) -> Vec<(BTreeMap<String, String>, f64)> {
    let one = |(name, value): (&String, &f64)| {
        let (bare, labels) = labels(name)?;
        (bare == wanted).then_some((labels, *value))
    };
    state.numbers.iter().filter_map(one).collect()
}

/// `name{key="value",…}` taken apart. `None`: without labels, or none that were written by [`trireme_metrics::state::label`].
fn labels(name: &str) -> Option<(&str, BTreeMap<String, String>)> {
    let (bare, rest) = name.split_once('{')?;
    let mut rest = rest.strip_suffix('}')?;
    let mut out = BTreeMap::new();
    while !rest.is_empty() {
        let (key, value) = rest.split_once("=\"")?;
        let mut text = String::new();
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next()? {
                (_, '\\') => text.push(chars.next()?.1),
                (at, '"') => break at,
                (_, c) => text.push(c),
            }
        };
        out.insert(key.to_owned(), text);
        rest = &value[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    Some((bare, out))
}

/// Servers that are asked by the client, round after round, with no monitor between.
#[derive(Debug, Default)]
pub struct Rounds {
    watches: BTreeMap<Target, Watch>,
    roundup: Roundup,
    chronicle: Chronicle,
}

impl Rounds {
    /// `answers`: of one round; `unix`: seconds since 1970.
    pub fn look(&mut self, answers: Vec<(Target, Answer)>, now: Instant, unix: f64) -> Overview {
        // A node that is reached at another address now is not shown twice.
        self.watches.retain(|target, _| answers.iter().any(|(asked, _)| asked == target));
        for (target, answer) in answers {
            self.watches
                .entry(target)
                .or_insert_with(|| Watch::new(now))
                .handle(Look::Answer(answer.map(Box::new)), now);
        }
        let watches = self.watches.iter();
        let seen: Vec<Seen<'_>> = watches
            .map(|(target, watch)| Seen { target: target.clone(), name: None, source: "server", watch })
            .collect();
        let mut overview = self.roundup.look(&seen, now, unix);
        overview.here = None;
        self.chronicle.look(&overview);
        overview.changes = self.chronicle.last(SHOWN);
        overview
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use trireme_metrics::state::label;
    use trireme_metrics::{Body, Histogram};

    /// `second`: by which everything has grown.
    pub fn state(node: usize, second: u64, change: impl FnOnce(&mut State)) -> State {
        let mut body = Body::default();
        for (name, value) in [
            ("trireme_primary", 1.0),
            ("trireme_local_state", 4.0),
            ("trireme_cluster_size", 3.0),
            ("trireme_term", 7.0),
            ("trireme_commits_total", 100.0 * second as f64),
            ("trireme_write_sets_sent_bytes_total", 1000.0 * second as f64),
            ("trireme_write_sets_received_bytes_total", 0.0),
            ("trireme_log_max_bytes", 1e6),
            ("trireme_last_committed_seqno", 50.0),
        ] {
            body.number(name, value);
        }
        let times = Histogram::default();
        (0..second).for_each(|_| times.record(Duration::from_micros(70)));
        body.histogram("trireme_commit_seconds{stage=\"total\"}", &times.snapshot());
        for member in 1..=3 {
            body.number(&label("trireme_voter_weight", &[("member", &format!("db{member}"))]), 1.0);
        }
        let own = format!("10.0.0.{node}:3306");
        for (name, value) in [
            ("name", &*format!("db{node}")),
            ("cluster", "shop"),
            ("history", "11111111-0000-11ef-8000-000000000001"),
            ("local_state_comment", "Synced"),
            ("incoming_addresses", "10.0.0.1:3306,10.0.0.2:3306,10.0.0.3:3306"),
            ("incoming_address", &own),
            ("members", "db1,db2,db3"),
            ("role", if node == 1 { "sequencer" } else { "voter" }),
            ("sequencer", "db1"),
        ] {
            body.text(name, value);
        }
        let bytes = body.encode(second, (second + 1000) * 1_000_000_000, 10 + node as u32, false);
        let mut state = State::decode(&bytes).unwrap();
        change(&mut state);
        state
    }

    pub fn target(node: usize) -> Target {
        Target::parse(&format!("10.0.0.{node}:3306"), None).unwrap()
    }

    /// All three, each second from `from` to `to`.
    pub fn seconds(
        roundup: &mut Roundup,
        watches: &mut [Watch],
        start: Instant,
        range: std::ops::RangeInclusive<u64>,
        change: impl Fn(usize, u64, &mut State),
    ) -> Overview {
        let mut last = None;
        for second in range {
            let now = start + Duration::from_secs(second);
            for (place, watch) in watches.iter_mut().enumerate() {
                watch.handle(Look::File(Ok(state(place + 1, second, |state| change(place + 1, second, state)))), now);
            }
            let seen: Vec<Seen<'_>> = watches
                .iter()
                .enumerate()
                .map(|(place, watch)| Seen { target: target(place + 1), name: None, source: "file", watch })
                .collect();
            last = Some(roundup.look(&seen, now, 1000.0 + second as f64));
        }
        last.unwrap()
    }

    fn three(start: Instant) -> Vec<Watch> {
        (0..3).map(|_| Watch::new(start)).collect()
    }

    #[test]
    fn rates_and_the_verdict_of_all() {
        let start = Instant::now();
        let mut roundup = Roundup::default();
        let overview = seconds(&mut roundup, &mut three(start), start, 1..=3, |_, _, _| {});
        assert_eq!(
            (overview.level, &*overview.sentences[0]),
            (Level::Well, "3 of 3 voters are there: any one of them may fail")
        );
        assert!(overview.notes.is_empty() && overview.here.as_deref() == Some("db1"), "{overview:?}");
        let node = &overview.nodes[1];
        assert_eq!((node.name.as_str(), node.role.as_deref(), node.votes), ("db2", Some("voter"), Some(1)));
        assert_eq!((node.rates.commits, node.times["total"].count), (Some(100.0), 1));
        assert_eq!(node.away_seconds, Some(1000.0));
        // And back from JSON, for `trireme top`.
        let text = serde_json::to_string(&overview).unwrap();
        assert_eq!(serde_json::from_str::<Overview>(&text).unwrap().nodes.len(), 3);
    }

    #[test]
    fn who_waits_for_whom() {
        let start = Instant::now();
        let mut roundup = Roundup::default();
        let cell = label("trireme_flow_control_seconds_total", &[("by", "db3"), ("reason", "stands")]);
        let overview = seconds(&mut roundup, &mut three(start), start, 1..=3, |node, second, state| {
            if node == 1 && second == 3 {
                state.numbers.insert(cell.clone(), 0.5);
                state.numbers.insert(label("trireme_flow_control_rate", &[("by", "db3")]), 0.0);
                state.numbers.insert(label("trireme_flow_control_backlog", &[("by", "db3")]), 33.0);
            }
        });
        let expected =
            Throttle { node: "db1".into(), by: "db3".into(), reason: "stands".into(), share: 0.5, minute: 0.5 };
        assert_eq!(overview.throttle, [expected]);
        assert_eq!(overview.slow, [Slow { node: "db3".into(), rate: 0.0, backlog: Some(33.0) }]);
        assert_eq!(overview.nodes[0].rates.held, Some(0.5));
    }

    #[test]
    fn one_that_gave_up_is_told_of() {
        let start = Instant::now();
        let overview = seconds(&mut Roundup::default(), &mut three(start), start, 1..=2, |node, _, state| {
            if node == 3 {
                state.numbers.insert("trireme_flow_control_gave_up".into(), 1.0);
                state.numbers.insert("trireme_apply_queue".into(), 99.0);
            }
        });
        assert_eq!((overview.level, overview.nodes[2].gave_up), (Level::Degraded, true));
        let told = |line: &String| line.starts_with("db3 has 99 write sets to apply, applies none");
        assert_eq!(overview.sentences.iter().filter(|line| told(line)).count(), 1, "{:?}", overview.sentences);
    }

    #[test]
    fn round_trips_where_they_are_told() {
        let start = Instant::now();
        let mut roundup = Roundup::default();
        // 20 ms in the first ten seconds, then 70 µs. Towards the end db3 does not answer.
        let change = |node: usize, second: u64, state: &mut State| {
            let mut times = Snapshot::default();
            (0..second).for_each(|n| times.record(Duration::from_micros(if n < 10 { 20_000 } else { 70 })));
            let latest = |peer| label(LATEST_ROUND_TRIP, &[("peer", peer)]);
            if node == 2 {
                state.histograms.insert(label(ROUND_TRIP, &[("peer", "db1")]), times.clone());
                state.histograms.insert(label(ROUND_TRIP, &[("peer", "db3")]), times);
                state.numbers.insert(latest("db1"), 0.000_07);
                state.numbers.insert(latest("db3"), if second == 25 { 1.5 } else { 0.000_07 });
            }
            // As of a server that is asked by SQL.
            if node == 3 {
                state.numbers.insert(latest("db1"), 0.000_3);
            }
        };
        let mut watches = three(start);
        let trip = |from: &str, to: &str, p50, p99| RoundTrip { from: from.into(), to: to.into(), p50, p99 };
        let overview = seconds(&mut roundup, &mut watches, start, 1..=3, change);
        assert_eq!(overview.round_trips[0], trip("db2", "db1", 0.025, 0.025));
        let overview = seconds(&mut roundup, &mut watches, start, 4..=25, change);
        let expected = [
            trip("db2", "db1", 0.000_1, 0.000_1),
            trip("db2", "db3", 0.000_1, 1.5),
            trip("db3", "db1", 0.000_3, 0.000_3),
        ];
        assert_eq!(overview.round_trips, expected);
        let far: Vec<Option<f64>> = overview.nodes.iter().map(|node| node.round_trip).collect();
        assert_eq!(far, [None, Some(0.000_1), Some(0.000_3)]);
    }

    #[test]
    fn one_is_killed_and_one_is_not_reached() {
        let start = Instant::now();
        let mut roundup = Roundup::default();
        let mut watches = three(start);
        seconds(&mut roundup, &mut watches, start, 1..=2, |_, _, _| {});
        watches[2].handle_process(13, true);
        watches[2].handle_process(13, false);
        let overview = seconds(&mut roundup, &mut watches, start, 3..=3, |_, _, _| {});
        assert_eq!(
            (overview.level, &*overview.sentences[0]),
            (Level::Degraded, "2 of 3 voters are there (db3 is not): one more failure stops the cluster")
        );
        assert_eq!(overview.nodes[2].health, "gone");
        // By the word of the others it is there.
        let mut unreached = Watch::new(start);
        unreached.handle(Look::Unreadable("its monitor does not answer".into()), start);
        let now = start + Duration::from_secs(3);
        let seen = [
            Seen { target: target(1), name: None, source: "file", watch: &watches[0] },
            Seen { target: target(3), name: Some("db3".into()), source: "monitor", watch: &unreached },
        ];
        let overview = roundup.look(&seen, now, 1003.0);
        assert_eq!(overview.level, Level::Well);
        assert_eq!((&*overview.nodes[1].name, &*overview.nodes[1].health), ("db3", "unknown"));
        assert!(overview.notes[0].contains("its monitor does not answer"), "{:?}", overview.notes);
    }

    #[test]
    fn two_clusters_with_one_name_and_clocks_apart() {
        let start = Instant::now();
        let mut roundup = Roundup::default();
        let overview = seconds(&mut roundup, &mut three(start), start, 1..=2, |node, _, state| {
            if node == 3 {
                state.texts.insert("history".into(), "99999999-0000-11ef-8000-000000000001".into());
                state.unix_ns += 60_000_000_000;
            }
        });
        assert_eq!((overview.clusters.len(), overview.level), (2, Level::Degraded));
        assert!(
            overview.sentences.iter().any(|text| text.starts_with("there are 2 clusters with the name shop")),
            "{:?}",
            overview.sentences
        );
        assert!(
            overview.notes.iter().any(|note| note.contains("the clock of db3 is 60.0 s ahead")),
            "{:?}",
            overview.notes
        );
    }

    #[test]
    fn nodes_of_two_clusters_with_one_name_are_told_apart() {
        let start = Instant::now();
        let mut roundup = Roundup::default();
        let overview = seconds(&mut roundup, &mut three(start), start, 1..=3, |node, _, state| {
            if node == 3 {
                state.texts.insert("history".into(), "99999999-0000-11ef-8000-000000000001".into());
                state.texts.insert("name".into(), "db1".into());
            }
        });
        let names: Vec<&str> = overview.nodes.iter().map(|node| &*node.name).collect();
        assert_eq!(names, ["db1 (10.0.0.1:3306)", "db1 (10.0.0.3:3306)", "db2"]);
        assert!(overview.nodes.iter().all(|node| node.rates.commits.is_some()), "{:?}", overview.nodes);
    }

    #[test]
    fn one_that_has_left_says_why_and_takes_nobody_down_with_it() {
        let start = Instant::now();
        let mut roundup = Roundup::default();
        let overview = seconds(&mut roundup, &mut three(start), start, 1..=2, |node, _, state| {
            if node == 3 {
                // As it is after its connection has ended.
                state.texts.insert("cluster".into(), String::new());
                state.texts.insert("local_state_comment".into(), "Inconsistent".into());
                state.numbers.insert("trireme_primary".into(), 0.0);
            }
        });
        assert_eq!((overview.clusters.len(), overview.level), (1, Level::Degraded), "{:?}", overview.sentences);
        let why = "db3: Inconsistent: its data are not the group's";
        assert!(overview.sentences.iter().any(|text| text.starts_with(why)), "{:?}", overview.sentences);
        assert!(overview.nodes[0].rates.held.unwrap().is_sign_positive(), "shown as -0%");
    }

    #[test]
    fn a_restart_and_a_clock_that_is_set_make_no_rates_that_are_none() {
        let start = Instant::now();
        let mut roundup = Roundup::default();
        let overview = seconds(&mut roundup, &mut three(start), start, 5..=6, |node, second, state| {
            if node == 1 && second == 6 {
                state.process = 99;
                state.numbers.insert("trireme_commits_total".into(), 0.0);
            }
            if node == 2 && second == 6 {
                state.unix_ns -= 600_000_000_000;
            }
        });
        assert_eq!((overview.nodes[0].rates.commits, overview.nodes[1].rates.commits), (None, Some(100.0)));
    }

    #[test]
    fn labels_are_taken_apart() {
        let name = label("x", &[("by", "a\"b,c\\"), ("reason", "r")]);
        let (bare, labels) = labels(&name).unwrap();
        assert_eq!((bare, &*labels["by"], &*labels["reason"]), ("x", "a\"b,c\\", "r"));
        for bad in ["x", "x{", "x{a=\"b}", "x{a}", "x{a=\"b\\"] {
            assert_eq!(super::labels(bad), None, "{bad}");
        }
    }
}
