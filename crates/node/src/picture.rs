//! The extended status (`repl.status_extended=yes`): what the group thread knows and Galera has no name for. Shown as
//! `wsrep_trireme_*`, because the server's suites fix the default list.

use std::time::{Duration, Instant};

use trireme_metrics::Snapshot;
use trireme_replicator::flow::Limits;
use trireme_surface::status::StatValue as Value;
use trireme_transport::{MulticastStats, Protection};
use trireme_types::{Durability, Level, LogIndex, Seqno};

use crate::exposure;
use crate::settings::durability_name;

/// A member that slows the group.
pub struct Slow {
    pub name: String,
    /// The rate at which it lets the group write, per second.
    pub rate: f64,
    /// Write sets that it has to apply.
    pub backlog: u64,
}

/// How far a linked member is.
pub struct Trip {
    pub peer: String,
    /// Or how long its answer is waited for, if that is longer already.
    pub latest: Duration,
    /// All that were measured since this node connected to its group.
    pub times: Snapshot,
}

/// One look at the group thread. Members are named as in `wsrep_node_name`.
pub struct Picture {
    pub taken: Instant,
    pub term: u64,
    pub term_changes: u64,
    pub sequencer: String,
    /// A majority was in touch within the last election timeout, as far as this node hears.
    pub hears_majority: bool,
    pub voters: Vec<(String, u8)>,
    pub durability: Durability,
    pub level: Level,
    /// Why the level does not rise to what this node supports.
    pub level_waits_for: Vec<String>,
    pub log_first: LogIndex,
    pub log_last: LogIndex,
    pub log_durable: LogIndex,
    pub log_committed: LogIndex,
    /// Bytes that the log takes, and how many it may take for the sake of members that are away.
    pub log_bytes: u64,
    pub log_bytes_max: u64,
    /// How the log is written.
    pub log_io: &'static str,
    pub read_requests: u64,
    /// The backlogs at which this node says stop and go.
    pub flow_limits: Limits,
    /// The slowest first.
    pub slow: Vec<Slow>,
    pub role: &'static str,
    pub flow_gave_up: bool,
    pub silent: Vec<String>,
    /// By name.
    pub round_trips: Vec<Trip>,
    pub silences: u64,
    pub commit_cut: Seqno,
    pub unknown_outcomes: u64,
    pub protection: Protection,
    /// Incoming connections that were turned away, whoever they were from.
    pub connections_refused: u64,
    /// Being opened from elsewhere, now.
    pub connections_half_open: u64,
    /// Links of nodes that are not in the view, now.
    pub links_of_strangers: u64,
    /// Bytes that were sent over links.
    pub link_bytes: u64,
    pub multicast: MulticastStats,
    /// Members that get bodies by multicast.
    pub multicast_members: Vec<String>,
    /// Peers that violated the protocol and get no link for a time.
    pub violators: Vec<String>,
}

impl Picture {
    pub fn into_pairs(self) -> Vec<(String, Value)> {
        let yes = |b: bool| Value::from(if b { "yes" } else { "no" });
        let int = |n: u64| Value::Int(n.min(i64::MAX as u64) as i64);
        let voters: Vec<String> = self.voters.iter().map(|(name, weight)| format!("{name}:{weight}")).collect();
        let slow: Vec<String> =
            self.slow.iter().map(|Slow { name, rate, backlog }| format!("{name}:{rate:.1}:{backlog}")).collect();
        let (by, why) = match self.slow.first() {
            None => (String::new(), String::new()),
            Some(Slow { name, rate: 0.0, backlog }) => {
                (name.clone(), format!("{name} stands still with {backlog} write sets to apply"))
            }
            Some(Slow { name, rate, backlog }) => (
                name.clone(),
                format!("{name} has {backlog} write sets to apply; the group may write {rate:.1} per second"),
            ),
        };
        let trips: Vec<String> =
            self.round_trips.iter().map(|trip| format!("{}:{:.6}", trip.peer, trip.latest.as_secs_f64())).collect();
        let durability = durability_name(self.durability);
        // Names of Percona XtraDB Cluster, which dashboards ask for.
        let percona = [("low", self.flow_limits.lower), ("high", self.flow_limits.upper)]
            .map(|(end, backlog)| (format!("flow_control_interval_{end}"), int(backlog)));
        let own = [
            // The proof that a stranger would have to show.
            ("authentication", exposure::name(self.protection).into()),
            ("commit_cut", int(self.commit_cut.0)),
            ("connections_half_open", int(self.connections_half_open)),
            ("connections_refused", int(self.connections_refused)),
            ("durability", durability.into()),
            ("flow_control_by", by.into()),
            ("flow_control_gave_up", yes(self.flow_gave_up)),
            ("flow_control_members", slow.join(",").into()),
            ("flow_control_reason", why.into()),
            ("group_level", Value::Int(i64::from(self.level.0))),
            ("group_level_max", Value::Int(i64::from(trireme_order::SUPPORTED.max.0))),
            ("group_level_waits_for", self.level_waits_for.join("; ").into()),
            ("hears_majority", yes(self.hears_majority)),
            ("link_bytes", int(self.link_bytes)),
            ("links_of_strangers", int(self.links_of_strangers)),
            ("log_bytes", int(self.log_bytes)),
            ("log_bytes_max", int(self.log_bytes_max)),
            ("log_committed", int(self.log_committed.0)),
            ("log_durable", int(self.log_durable.0)),
            ("log_first", int(self.log_first.0)),
            ("log_io", self.log_io.into()),
            ("log_last", int(self.log_last.0)),
            ("multicast_bytes", int(self.multicast.bytes_sent)),
            ("multicast_members", self.multicast_members.join(",").into()),
            ("multicast_missed", int(self.multicast.missed)),
            ("read_requests", int(self.read_requests)),
            ("role", self.role.into()),
            ("round_trips", trips.join(",").into()),
            ("sequencer", self.sequencer.into()),
            ("silences", int(self.silences)),
            ("silent", self.silent.join(",").into()),
            ("term", int(self.term)),
            ("term_changes", int(self.term_changes)),
            ("unknown_outcomes", int(self.unknown_outcomes)),
            ("violators", self.violators.join(",").into()),
            ("voters", voters.join(",").into()),
        ]
        .map(|(name, value)| (format!("trireme_{name}"), value));
        percona.into_iter().chain(own).collect()
    }
}
