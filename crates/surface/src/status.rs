//! Status variables: names, order and types are what the server's suites compare.

/// The value of one variable.
#[derive(Clone, PartialEq, Debug)]
pub enum StatValue {
    Text(String),
    Int(i64),
    Double(f64),
}

impl From<&str> for StatValue {
    fn from(text: &str) -> StatValue {
        StatValue::Text(text.to_owned())
    }
}
impl From<String> for StatValue {
    fn from(text: String) -> StatValue {
        StatValue::Text(text)
    }
}
impl From<i64> for StatValue {
    fn from(n: i64) -> StatValue {
        StatValue::Int(n)
    }
}
impl From<f64> for StatValue {
    fn from(n: f64) -> StatValue {
        StatValue::Double(n)
    }
}
/// The API has no boolean type.
impl From<bool> for StatValue {
    fn from(b: bool) -> StatValue {
        StatValue::Text(b.to_string())
    }
}

macro_rules! stats {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)*) => {
        /// The fixed variables, in the order in which they are shown.
        #[derive(Clone, PartialEq, Debug, Default)]
        pub struct Stats {
            $($(#[$doc])* pub $field: $type,)*
            /// `None` while there is no group connection: these variables then vanish.
            pub group: Option<GroupStats>,
        }

        /// Names of the fixed variables, in order, without the `wsrep_` prefix that the server adds.
        pub const FIXED_NAMES: &[&str] = &[$(stringify!($field)),*];

        impl Stats {
            /// All variables in the order of showing: the fixed ones, then those of the group connection sorted by name.
            pub fn into_pairs(self) -> Vec<(String, StatValue)> {
                let mut pairs = vec![$((stringify!($field).to_owned(), self.$field.into())),*];
                if let Some(group) = self.group {
                    pairs.extend(group.into_pairs());
                }
                pairs
            }
        }
    };
}

stats! {
    /// History UUID of the local data; all-zero when undefined.
    local_state_uuid: String,
    /// Replication protocol; same as `protocol_replicator`.
    protocol_version: i64,
    protocol_application: i64,
    protocol_replicator: i64,
    protocol_gcs: i64,
    /// Last seqno that left commit order here, views and dummies included; -1 before the first.
    last_committed: i64,
    /// Write sets sent by this node and delivered back.
    replicated: i64,
    replicated_bytes: i64,
    repl_keys: i64,
    repl_keys_bytes: i64,
    repl_data_bytes: i64,
    repl_other_bytes: i64,
    /// Actions received from the group, of all kinds.
    received: i64,
    received_bytes: i64,
    local_commits: i64,
    local_cert_failures: i64,
    local_replays: i64,
    local_send_queue: i64,
    local_send_queue_max: i64,
    local_send_queue_min: i64,
    local_send_queue_avg: f64,
    local_recv_queue: i64,
    local_recv_queue_max: i64,
    local_recv_queue_min: i64,
    local_recv_queue_avg: f64,
    /// Lowest seqno that can be served to a joiner; -1 when none.
    local_cached_downto: i64,
    flow_control_paused_ns: i64,
    /// Part of the time since the last reset that sending was paused, growing while it is.
    flow_control_paused: f64,
    flow_control_sent: i64,
    flow_control_recv: i64,
    flow_control_active: bool,
    flow_control_requested: bool,
    cert_deps_distance: f64,
    apply_oooe: f64,
    apply_oool: f64,
    apply_window: f64,
    apply_waits: i64,
    commit_oooe: f64,
    commit_oool: f64,
    commit_window: f64,
    /// 0…5: see [`LocalState`].
    local_state: i64,
    local_state_comment: String,
    cert_index_size: i64,
    causal_reads: i64,
    cert_interval: f64,
    open_transactions: i64,
    open_connections: i64,
    /// Members' client addresses in view order, separated by commas; `AUTO` for an unset one, nothing for an arbitrator.
    incoming_addresses: String,
}

/// Variables of the group connection.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct GroupStats {
    /// Sum of weights in the primary view.
    pub cluster_weight: i64,
    /// Outstanding desyncs of this node, donating included.
    pub desync_count: i64,
    /// `uuid:address:count`, separated by commas.
    pub evs_delayed: String,
    pub evs_evict_list: String,
    pub evs_repl_latency: Latency,
    /// `CLOSED`, `JOINING`, `LEAVING`, `GATHER`, `INSTALL` or `OPERATIONAL`.
    pub evs_state: String,
    pub gcomm_uuid: String,
    pub gmcast_segment: i64,
    /// Our own or optional variables (`evs_outq_avg` …), merged by name.
    pub extra: Vec<(String, StatValue)>,
}

impl GroupStats {
    fn into_pairs(self) -> Vec<(String, StatValue)> {
        // Numbers of the group are shown as text, as Galera does.
        let mut pairs: Vec<(String, StatValue)> = [
            ("cluster_weight", self.cluster_weight.to_string()),
            ("desync_count", self.desync_count.to_string()),
            ("evs_delayed", self.evs_delayed),
            ("evs_evict_list", self.evs_evict_list),
            ("evs_repl_latency", self.evs_repl_latency.to_string()),
            ("evs_state", self.evs_state),
            ("gcomm_uuid", self.gcomm_uuid),
            ("gmcast_segment", self.gmcast_segment.to_string()),
        ]
        .map(|(name, text)| (name.to_owned(), StatValue::Text(text)))
        .into();
        pairs.extend(self.extra);
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs
    }
}

/// `min/avg/max/stddev/n`, in seconds; exporters parse the five numbers.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Latency {
    pub min: f64,
    pub avg: f64,
    pub max: f64,
    pub stddev: f64,
    pub samples: u64,
}

impl std::fmt::Display for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}/{}/{}", self.min, self.avg, self.max, self.stddev, self.samples)
    }
}

/// `wsrep_local_state` with its comment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalState {
    Initialized,
    Destroyed,
    Joining,
    JoiningReceiving,
    JoiningRequestFailed,
    JoiningFailed,
    Donor,
    Joined,
    Synced,
    Inconsistent,
}

impl LocalState {
    pub fn number(self) -> i64 {
        match self {
            LocalState::Initialized | LocalState::Destroyed => 0,
            LocalState::Joining
            | LocalState::JoiningReceiving
            | LocalState::JoiningRequestFailed
            | LocalState::JoiningFailed => 1,
            LocalState::Donor => 2,
            LocalState::Joined => 3,
            LocalState::Synced => 4,
            LocalState::Inconsistent => 5,
        }
    }
    pub fn comment(self) -> &'static str {
        match self {
            LocalState::Initialized => "Initialized",
            LocalState::Destroyed => "Destroyed",
            LocalState::Joining => "Joining",
            LocalState::JoiningReceiving => "Joining: receiving State Transfer",
            LocalState::JoiningRequestFailed => "Joining: State Transfer request failed",
            LocalState::JoiningFailed => "Joining: State Transfer failed",
            LocalState::Donor => "Donor/Desynced",
            LocalState::Joined => "Joined",
            LocalState::Synced => "Synced",
            LocalState::Inconsistent => "Inconsistent",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(stats: Stats) -> Vec<String> {
        stats.into_pairs().into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn fixed_names_come_first_and_in_their_order() {
        let names = names(Stats { group: Some(GroupStats::default()), ..Stats::default() });
        assert_eq!(FIXED_NAMES.len(), 48);
        assert_eq!(names[..48], *FIXED_NAMES);
        assert_eq!(
            (names[0].as_str(), names[5].as_str(), names[47].as_str()),
            ("local_state_uuid", "last_committed", "incoming_addresses")
        );
        assert!(names[48..].is_sorted());
        assert_eq!(names.len(), 56);
    }

    #[test]
    fn group_variables_vanish_without_a_group() {
        assert_eq!(names(Stats::default()).len(), 48);
    }

    #[test]
    fn extra_variables_are_sorted_in() {
        let group =
            GroupStats { extra: vec![("evs_outq_avg".into(), StatValue::Double(0.5))], ..GroupStats::default() };
        let names = names(Stats { group: Some(group), ..Stats::default() });
        assert!(names[48..].is_sorted() && names.contains(&"evs_outq_avg".to_owned()));
    }

    #[test]
    fn types_and_formats() {
        let stats = Stats {
            flow_control_active: true,
            group: Some(GroupStats { cluster_weight: 3, ..GroupStats::default() }),
            ..Stats::default()
        };
        let pairs: std::collections::BTreeMap<_, _> = stats.into_pairs().into_iter().collect();
        assert_eq!(pairs["flow_control_active"], StatValue::Text("true".into()));
        assert_eq!(pairs["last_committed"], StatValue::Int(0));
        assert_eq!(pairs["cert_deps_distance"], StatValue::Double(0.0));
        assert_eq!(pairs["cluster_weight"], StatValue::Text("3".into()));
        assert_eq!(pairs["evs_repl_latency"], StatValue::Text("0/0/0/0/0".into()));
    }

    #[test]
    fn local_states() {
        assert_eq!((LocalState::Donor.number(), LocalState::Donor.comment()), (2, "Donor/Desynced"));
        assert_eq!((LocalState::Synced.number(), LocalState::Synced.comment()), (4, "Synced"));
    }
}
