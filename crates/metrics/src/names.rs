//! Every metric of a node: name, kind, labels and meaning. The documents are made from this table.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    /// As Prometheus has it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    /// Empty: none.
    pub labels: &'static str,
    pub help: &'static str,
}

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, labels: "", help }
}
const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels: "", help }
}
const fn times(name: &'static str, labels: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, labels, help }
}
const fn labelled(kind: Kind, name: &'static str, labels: &'static str, help: &'static str) -> Metric {
    Metric { name, kind, labels, help }
}

pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

pub const METRICS: &[Metric] = &[
    // --- times
    times(
        "trireme_commit_seconds",
        "stage",
        "Stages of a commit: send, hold (flow control), order (a majority has it, synced in mode disk), wait (its turn), engine; total is all",
    ),
    times("trireme_log_sync_seconds", "", "How long a sync of the write-set log takes (mode disk)"),
    times("trireme_apply_seconds", "", "How long the server takes to apply a write set of another node"),
    times(
        "trireme_apply_lag_seconds",
        "",
        "Age of applied write sets: from delivery here to their end in the storage engine; one sample in 50 ms, which is the resolution",
    ),
    times("trireme_causal_read_seconds", "", "How long a causal read (wsrep_sync_wait) waits"),
    times(
        "trireme_group_thread_delay_seconds",
        "",
        "How long the thread of the group takes to notice a question: more than a millisecond tells of a machine without free processors",
    ),
    times(
        "trireme_peer_round_trip_seconds",
        "peer",
        "How long a word to another member and back takes, from the thread of the group here to the one there; two samples a second",
    ),
    // --- counters
    counter("trireme_commits_total", "Local transactions committed"),
    counter("trireme_write_sets_sent_total", "Write sets of this node that were ordered"),
    counter("trireme_write_sets_sent_bytes_total", "Bytes of them"),
    counter("trireme_write_sets_received_total", "Write sets delivered, of all nodes"),
    counter("trireme_write_sets_received_bytes_total", "Bytes of them"),
    counter("trireme_certification_failures_total", "Local transactions that lost a conflict"),
    counter("trireme_replays_total", "Local transactions that were applied again after a conflict with an applier"),
    counter("trireme_causal_reads_total", "Causal reads that were answered"),
    counter("trireme_unknown_outcomes_total", "Commits whose outcome was left open"),
    counter("trireme_term_changes_total", "Changes of the term that this node has seen since it connected"),
    counter("trireme_silences_total", "How often a member fell silent, as this node judges"),
    counter("trireme_connections_refused_total", "Incoming connections for members that were turned away"),
    counter("trireme_flow_control_stops_sent_total", "How often this node asked for a stop"),
    counter("trireme_flow_control_stops_received_total", "How often it was asked for one"),
    labelled(
        Kind::Counter,
        "trireme_flow_control_seconds_total",
        "by, reason",
        "Seconds that this node's writers were held back by a node that is behind, or stands (applies nothing)",
    ),
    // --- levels
    gauge(
        "trireme_status",
        "0: in the primary component and synced. 1: in the primary component, not synced. 2: not in the primary component. 3: stopped",
    ),
    gauge("trireme_primary", "1: this node is in the primary component"),
    gauge("trireme_local_state", "wsrep_local_state: 4 is synced"),
    gauge("trireme_is_sequencer", "1: this node orders"),
    gauge("trireme_has_sequencer", "0: nobody is known to order; commits wait"),
    gauge("trireme_term", "Number of the term"),
    gauge("trireme_cluster_size", "Members of the view that have an address for clients, and arbitrators"),
    labelled(Kind::Gauge, "trireme_voter_weight", "member", "Weight of the vote of each voter"),
    labelled(Kind::Gauge, "trireme_member_silent", "member", "1: this node does not hear that member"),
    labelled(
        Kind::Gauge,
        "trireme_peer_round_trip_latest_seconds",
        "peer",
        "The latest of these times; or for how long an answer is waited for, if that is longer already",
    ),
    gauge("trireme_last_committed_seqno", "Last seqno that left the commit order here"),
    gauge("trireme_delivered_seqno", "Last seqno that was certified here"),
    gauge("trireme_log_first_index", "First entry in the log"),
    gauge("trireme_log_last_index", "Last entry in the log"),
    gauge("trireme_log_durable_index", "Last entry that is as durable as the mode demands"),
    gauge("trireme_log_committed_index", "Last entry that a majority is known to hold"),
    gauge("trireme_log_bytes", "Size of the log on disk"),
    gauge("trireme_log_max_bytes", "Bound of the log while members are away"),
    gauge("trireme_apply_queue", "Write sets that wait to be applied"),
    gauge("trireme_send_queue", "Write sets that flow control holds back"),
    gauge("trireme_open_transactions", "Local transactions that have written something"),
    gauge("trireme_certification_keys", "Keys in the certification index"),
    gauge(
        "trireme_log_sync_longest_seconds",
        "The longest write or sync of the write-set log in the last ten seconds, one that has not ended included",
    ),
    labelled(
        Kind::Gauge,
        "trireme_flow_control_rate",
        "by",
        "Write sets per second that the group may send for this member's sake; 0: it stands still",
    ),
    labelled(Kind::Gauge, "trireme_flow_control_backlog", "by", "Write sets that this member has to apply"),
    gauge("trireme_flow_control_paused", "1: this node's writers are held back now"),
    gauge(
        "trireme_flow_control_gave_up",
        "1: this node applied nothing for gcs.fc_patience and slows nobody any more; it falls behind",
    ),
    gauge(
        "trireme_group_thread_silent_seconds",
        "Since when the thread of the group has not answered; up to 0.05 is normal",
    ),
    gauge("trireme_durability_disk", "1: a commit is on the disks of a majority; 0: mode process"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_follow_the_conventions() {
        let names: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
        for metric in METRICS {
            assert!(metric.name.starts_with("trireme_"), "{}", metric.name);
            assert_eq!(metric.kind == Kind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
            assert!(metric.kind != Kind::Histogram || metric.name.ends_with("_seconds"), "{}", metric.name);
        }
    }
}
