//! All answers together: which cluster each server belongs to, and what each cluster looks like.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::client::Trouble;
use crate::facts::{Facts, size};
use crate::survey::{Answer, Target};
use crate::verdict::{self, Verdict};

/// One server, answered or not. `None` everywhere: not known.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Server {
    /// Where it was asked.
    pub address: String,
    /// `wsrep_node_name`.
    pub name: Option<String>,
    /// Place in the list of clusters.
    pub cluster: Option<usize>,
    pub trouble: Option<Shown>,
    /// `wsrep_local_state_comment`.
    pub state: Option<String>,
    /// In a primary component.
    pub primary: bool,
    /// Serves clients (`wsrep_ready`).
    pub ready: bool,
    /// `sequencer`, `voter`, `member` or `non-primary`; of Trireme only.
    pub role: Option<String>,
    /// Weight of its vote; of Trireme only.
    pub votes: Option<u64>,
    /// `wsrep_last_committed`.
    pub seqno: Option<i64>,
    /// Write sets that the foremost server which answered has and this one has not. The answers are some milliseconds apart.
    pub behind: Option<i64>,
    /// Write sets received and not yet applied.
    pub queue: Option<i64>,
    /// First seqno that its log can serve.
    pub log_from: Option<i64>,
    /// Seqnos in its log.
    pub log_kept: Option<i64>,
    /// Bytes that its log takes; of Trireme only.
    pub log_bytes: Option<u64>,
    /// How long a member may be away until this log no longer serves it, at the mean rate since the server started. Seconds.
    pub away_seconds: Option<f64>,
    /// Of the server, and of the provider.
    pub version: Option<String>,
    pub provider: Option<String>,
    pub durability: Option<String>,
    /// The group level that its provider supports at most; of Trireme only.
    pub group_level_max: Option<u64>,
    /// Are the connections between members encrypted?
    pub tls: Option<bool>,
    /// The proof that a peer must show (Trireme).
    pub authentication: Option<String>,
    /// Seconds that its clock is ahead of this machine's, where more than the measurement's own error.
    pub clock_ahead_seconds: Option<f64>,
    /// Seconds that the answer took.
    pub took_seconds: Option<f64>,
}

/// Why a server gave no answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Shown {
    pub kind: &'static str,
    pub text: String,
}

/// Servers of one history under one name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cluster {
    pub name: String,
    /// UUID of its history, as far as a server knows it.
    pub uuid: Option<String>,
    /// `Trireme`, `Galera`, or both with a comma between.
    pub provider: String,
    pub primary: bool,
    /// Members of the primary view, arbitrators included.
    pub members: Option<u64>,
    pub votes: Option<Votes>,
    /// The sequencer; empty while a successor is elected. Of Trireme only.
    pub sequencer: Option<String>,
    pub term: Option<u64>,
    pub durability: Option<String>,
    /// Which formats and rules are in force; of Trireme only.
    pub group_level: Option<u64>,
    /// Why it does not rise to what the nodes support. Empty: nothing holds it.
    pub group_level_waits_for: Option<String>,
    pub tls: Option<bool>,
    pub verdict: Verdict,
}

/// Whose majority commits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Votes {
    pub voters: u64,
    pub voters_there: u64,
    pub weight: u64,
    pub weight_there: u64,
    /// Weight that it takes to commit.
    pub needed: u64,
    /// Voters that may still be lost at the same time, the heaviest first.
    pub failures_survived: u64,
    /// Those that are not there.
    pub absent: Vec<String>,
}

/// Everything that was seen.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Picture {
    pub clusters: Vec<Cluster>,
    pub servers: Vec<Server>,
    /// Remarks that belong to no cluster: servers that do not answer, servers without a provider, clusters that are mixed
    /// up.
    pub notes: Vec<String>,
}

impl Picture {
    pub fn of(answers: &[(Target, Answer)]) -> Picture {
        let mut groups: BTreeMap<(String, Option<String>), Vec<&Facts>> = BTreeMap::new();
        for facts in answers.iter().filter_map(|(_, answer)| answer.as_ref().ok()).filter(|f| f.has_provider()) {
            groups.entry(key(facts)).or_default().push(facts);
        }
        join_unknown(&mut groups);
        let failed: Vec<(&Target, &Trouble)> =
            answers.iter().filter_map(|(target, answer)| Some((target, answer.as_ref().err()?))).collect();
        let keys: Vec<_> = groups.keys().cloned().collect();
        let place =
            |facts: &Facts| groups.values().position(|group| group.iter().any(|other| std::ptr::eq(*other, facts)));
        let mut servers: Vec<Server> = answers
            .iter()
            .map(|(target, answer)| match answer {
                Ok(facts) => {
                    let cluster = place(facts);
                    let foremost = cluster.and_then(|n| foremost(&groups[&keys[n]]));
                    let voters = cluster.map(|n| voters(&groups[&keys[n]])).unwrap_or_default();
                    server(target, facts, cluster, foremost, &voters)
                }
                // The only cluster there is, or the one that lists it.
                Err(trouble) => {
                    let lists =
                        |group: &Vec<&Facts>| group.iter().any(|f| f.addresses().contains(&Some(target.clone())));
                    let cluster = if groups.len() == 1 { Some(0) } else { groups.values().position(lists) };
                    unreached(target, trouble, cluster)
                }
            })
            .collect();
        let clusters: Vec<Cluster> = keys.iter().map(|key| cluster(key, &groups[key], &failed)).collect();
        name_the_only_one(&mut servers, &clusters);
        servers.sort_by(|a, b| (a.name.is_none(), &a.name, &a.address).cmp(&(b.name.is_none(), &b.name, &b.address)));
        let notes = verdict::notes(&servers, &keys);
        Picture { clusters, servers, notes }
    }

    /// The worst of all.
    pub fn level(&self) -> verdict::Level {
        let unseen = self.servers.iter().any(|server| server.trouble.is_some());
        let notes = if unseen || !self.notes.is_empty() { verdict::Level::Degraded } else { verdict::Level::Well };
        self.clusters.iter().map(|cluster| cluster.verdict.level).max().unwrap_or(verdict::Level::Down).max(notes)
    }

    /// Did anybody answer?
    pub fn is_empty(&self) -> bool {
        self.servers.iter().all(|server| server.trouble.is_some())
    }
}

/// A node that has left its group may not say which one that was.
const UNNAMED: &str = "?";

/// Name and history.
fn key(facts: &Facts) -> (String, Option<String>) {
    let known = |name: &str| facts.text(name).filter(|uuid| uuid.chars().any(|c| c != '0' && c != '-'));
    let uuid = known("wsrep_cluster_state_uuid").or_else(|| known("wsrep_local_state_uuid"));
    (facts.text("wsrep_cluster_name").unwrap_or(UNNAMED).to_owned(), uuid.map(str::to_owned))
}

/// A server that has no history yet belongs to the only cluster of its name, and one that says no name to the only one of its history.
fn join_unknown(groups: &mut BTreeMap<(String, Option<String>), Vec<&Facts>>) {
    let unknown: Vec<_> = groups.keys().filter(|(name, uuid)| uuid.is_none() || name == UNNAMED).cloned().collect();
    for key in unknown {
        let fits = |(name, uuid): &&(String, Option<String>)| {
            name != UNNAMED
                && uuid.is_some()
                && (key.0 == UNNAMED || *name == key.0)
                && (key.1.is_none() || *uuid == key.1)
        };
        let same: Vec<_> = groups.keys().filter(fits).cloned().collect();
        if let [only] = &same[..] {
            let facts = groups.remove(&key).unwrap_or_default();
            groups.entry(only.clone()).or_default().extend(facts);
        }
    }
}

fn foremost(group: &[&Facts]) -> Option<i64> {
    group.iter().filter_map(|facts| facts.whole("wsrep_last_committed")).max()
}

/// Of the member that knows best.
fn voters(group: &[&Facts]) -> Vec<(String, u64)> {
    witness(group).map(Facts::voters).unwrap_or_default()
}

/// The member whose word on the group counts: primary, of the highest term, and the one that orders.
pub fn witness<'a>(group: &[&'a Facts]) -> Option<&'a Facts> {
    let extended = group.iter().filter(|facts| facts.is_extended());
    extended
        .max_by_key(|facts| {
            let term = facts.whole("wsrep_trireme_term").unwrap_or(0);
            (facts.is_primary(), term, facts.text("wsrep_trireme_role") == Some("sequencer"))
        })
        .copied()
}

fn server(
    target: &Target,
    facts: &Facts,
    cluster: Option<usize>,
    foremost: Option<i64>,
    voters: &[(String, u64)],
) -> Server {
    let text = |name: &str| facts.text(name).map(str::to_owned);
    let seqno = facts.whole("wsrep_last_committed").filter(|seqno| *seqno >= 0);
    let options = facts.options();
    let name = facts.name();
    let log_from = facts.whole("wsrep_local_cached_downto").filter(|seqno| (0..i64::MAX).contains(seqno));
    let bound = match facts.whole("wsrep_trireme_log_bytes_max").and_then(|n| u64::try_from(n).ok()) {
        Some(bytes) => Some(bytes),
        None if facts.is_trireme() => None,
        None => options.get("gcache.size").and_then(|text| size(text)),
    };
    let rate = facts.bytes_per_second().filter(|rate| *rate > 0.0);
    let provider = text("wsrep_provider_name").map(|name| {
        format!("{name} {}", provider_version(facts.text("wsrep_provider_version").unwrap_or_default()))
            .trim_end()
            .to_owned()
    });
    Server {
        address: target.to_string(),
        name: name.map(str::to_owned),
        cluster,
        trouble: None,
        state: if cluster.is_some() { text("wsrep_local_state_comment") } else { Some("no provider".to_owned()) },
        primary: facts.is_primary(),
        ready: facts.is_on("wsrep_ready"),
        role: text("wsrep_trireme_role"),
        votes: (!voters.is_empty())
            .then(|| voters.iter().find(|(voter, _)| Some(voter.as_str()) == name).map_or(0, |v| v.1)),
        seqno,
        behind: seqno.and_then(|own| Some((foremost? - own).max(0))),
        queue: facts.whole("wsrep_local_recv_queue"),
        log_from,
        log_kept: log_from.and_then(|from| Some((seqno? - from + 1).max(0))),
        log_bytes: facts.whole("wsrep_trireme_log_bytes").and_then(|n| u64::try_from(n).ok()),
        away_seconds: bound.and_then(|bytes| Some(bytes as f64 / rate?)),
        version: text("version").map(|version| short_version(&version)),
        provider,
        durability: text("wsrep_trireme_durability"),
        group_level_max: facts.whole("wsrep_trireme_group_level_max").and_then(|n| u64::try_from(n).ok()),
        tls: tls(&options),
        authentication: text("wsrep_trireme_authentication"),
        clock_ahead_seconds: facts.clock.filter(|(ahead, error)| ahead.abs() > error + 0.05).map(|(ahead, _)| ahead),
        took_seconds: Some(facts.took.as_secs_f64()),
    }
}

fn tls(options: &BTreeMap<String, String>) -> Option<bool> {
    if options.is_empty() {
        return None;
    }
    let yes =
        |name: &str| options.get(name).is_some_and(|v| ["yes", "true", "on", "1"].contains(&v.to_lowercase().as_str()));
    let given = |name: &str| options.get(name).is_some_and(|v| !v.is_empty());
    let by_certificate = yes("socket.ssl") || (!options.contains_key("socket.ssl") && given("socket.ssl_cert"));
    Some(by_certificate || given("repl.secret_file"))
}

/// `4.23(trireme 0.1.0)` → `0.1.0`; Galera's `26.4.23(r1234)` as it is, without what is in brackets.
fn provider_version(text: &str) -> String {
    match text.split_once('(') {
        Some((_, rest)) if rest.starts_with("trireme ") => rest["trireme ".len()..].trim_end_matches(')').to_owned(),
        Some((version, _)) => version.to_owned(),
        None => text.to_owned(),
    }
}

/// `10.11.19-MariaDB-0+deb12u1-log` → `10.11.19`.
fn short_version(text: &str) -> String {
    text.split(['-', '+']).next().unwrap_or_default().to_owned()
}

/// One voter is missing and one server does not answer: that is it.
fn name_the_only_one(servers: &mut [Server], clusters: &[Cluster]) {
    for (place, cluster) in clusters.iter().enumerate() {
        let Some([absent]) = cluster.votes.as_ref().map(|votes| &votes.absent[..]) else { continue };
        let mut unnamed: Vec<&mut Server> =
            servers.iter_mut().filter(|server| server.cluster == Some(place) && server.trouble.is_some()).collect();
        if let [only] = &mut unnamed[..] {
            only.name = Some(absent.clone());
        }
    }
}

fn unreached(target: &Target, trouble: &Trouble, cluster: Option<usize>) -> Server {
    Server {
        address: target.to_string(),
        name: None,
        cluster,
        trouble: Some(Shown { kind: trouble.word(), text: trouble.to_string() }),
        state: None,
        primary: false,
        ready: false,
        role: None,
        votes: None,
        seqno: None,
        behind: None,
        queue: None,
        log_from: None,
        log_kept: None,
        log_bytes: None,
        away_seconds: None,
        version: None,
        provider: None,
        durability: None,
        group_level_max: None,
        tls: None,
        authentication: None,
        clock_ahead_seconds: None,
        took_seconds: None,
    }
}

fn cluster(key: &(String, Option<String>), group: &[&Facts], failed: &[(&Target, &Trouble)]) -> Cluster {
    let mut providers: Vec<&str> = group.iter().filter_map(|f| f.text("wsrep_provider_name")).collect();
    providers.sort_unstable();
    providers.dedup();
    let primary: Vec<&Facts> = group.iter().copied().filter(|facts| facts.is_primary()).collect();
    let witness = witness(group);
    let votes = witness.and_then(|witness| verdict::votes(witness, group, failed));
    Cluster {
        name: key.0.clone(),
        uuid: key.1.clone(),
        provider: providers.join(", "),
        primary: !primary.is_empty(),
        members: primary.iter().filter_map(|f| f.whole("wsrep_cluster_size")).max().and_then(|n| u64::try_from(n).ok()),
        sequencer: witness
            .filter(|f| f.is_primary())
            .map(|f| f.text("wsrep_trireme_sequencer").unwrap_or("").to_owned()),
        term: witness.and_then(|f| f.whole("wsrep_trireme_term")).and_then(|n| u64::try_from(n).ok()),
        durability: witness.and_then(|f| f.text("wsrep_trireme_durability")).map(str::to_owned),
        group_level: witness.and_then(|f| f.whole("wsrep_trireme_group_level")).and_then(|n| u64::try_from(n).ok()),
        // The longest says most: a node sees those only that its own build goes beyond.
        group_level_waits_for: group
            .iter()
            .filter_map(|f| f.text("wsrep_trireme_group_level_waits_for"))
            .max_by_key(|text| text.len())
            .map(str::to_owned),
        tls: group.iter().map(|f| tls(&f.options())).fold(None, |all, one| match (all, one) {
            (None, one) => one,
            (all, None) => all,
            (Some(all), Some(one)) => Some(all && one),
        }),
        verdict: verdict::verdict(group, votes.as_ref(), witness, failed.len()),
        votes,
    }
}
