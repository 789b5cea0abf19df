//! Every option with its default, format and rules.
//!
//! The names are Galera's, complete, also those without a meaning here: configuration files that work with Galera must work
//! unchanged, and tools read values back. `repl.durability`, `repl.flight_size`, `repl.log_io`, `repl.log_key_file`, `repl.log_key_reload`,
//! `repl.metrics`, `repl.require_auth`, `repl.secret_file`, `repl.secret_reload`, `repl.status_extended`, `gcs.fc_patience` and `pc.bootstrap_expect` are ours.

/// Format and range of a value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// Not below this many nanoseconds.
    Period {
        min_ns: u64,
    },
    /// Bytes or items, with suffixes.
    Size {
        min: u64,
    },
    /// `auto`, or a size.
    AutoSize,
    Int {
        min: i64,
        max: i64,
    },
    Bool,
    Real {
        min: f64,
        max: f64,
        max_included: bool,
    },
    /// A bit mask, decimal or hexadecimal.
    Mask,
    /// `[scheme://]host[:port]`
    Address,
    Text,
    /// One of these words, in any case; shown as given.
    Choice(&'static [&'static str]),
    /// A UUID, or nothing.
    Uuid,
}

/// When a value may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// At run time too.
    Dynamic,
    /// Only before the first connect.
    Start,
    /// A command: acts each time, stores nothing and is never printed.
    Trigger,
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub name: &'static str,
    /// Empty for options whose default is derived: see `Options::new`.
    pub default: &'static str,
    /// Printed although it was never set.
    pub shown: bool,
    pub kind: Kind,
    pub when: When,
}

impl Spec {
    /// Belongs to the group connection: unknown while there is none.
    pub fn is_group(&self) -> bool {
        ["evs.", "gmcast.", "pc.", "socket."].iter().any(|p| self.name.starts_with(p))
    }
    /// Periods of the group layer are shown in normal form, others as they were given.
    pub(super) fn normalises_period(&self) -> bool {
        matches!(self.kind, Kind::Period { .. }) && self.is_group()
    }
    /// Sizes that were set at run time through these are shown with a suffix.
    pub(super) fn normalises_size(&self) -> bool {
        matches!(self.kind, Kind::Size { .. })
            && (self.name.starts_with("gcache.") || matches!(self.name, "gcs.fc_limit" | "gcs.recv_q_hard_limit"))
    }
}

/// The option of that name.
pub fn spec(name: &str) -> Option<&'static Spec> {
    position(name).map(|at| &TABLE[at])
}

pub(super) fn position(name: &str) -> Option<usize> {
    TABLE.binary_search_by(|s| s.name.cmp(name)).ok()
}

const PERIOD: Kind = Kind::Period { min_ns: 0 };
/// Heartbeats faster than this would be noise.
const PERIOD_100MS: Kind = Kind::Period { min_ns: 100_000_000 };
const SIZE: Kind = Kind::Size { min: 0 };
const INT: Kind = Kind::Int { min: 0, max: i64::MAX };
const FRACTION: Kind = Kind::Real { min: 0.0, max: 1.0, max_included: false };

const fn int(min: i64, max: i64) -> Kind {
    Kind::Int { min, max }
}
const fn shown(name: &'static str, default: &'static str, kind: Kind, when: When) -> Spec {
    Spec { name, default, shown: true, kind, when }
}
const fn hidden(name: &'static str, default: &'static str, kind: Kind, when: When) -> Spec {
    Spec { name, default, shown: false, kind, when }
}

use Kind::{Address, AutoSize, Bool, Choice, Mask, Text, Uuid};
use When::{Dynamic, Start, Trigger};

/// Sorted by name: that is the order of printing, and how options are found.
pub const TABLE: &[Spec] = &[
    shown("base_dir", "", Text, Dynamic),
    shown("base_host", "", Text, Dynamic),
    shown("base_port", "", int(0, 65535), Dynamic),
    hidden("cert.length_check", "127", Mask, Start),
    shown("cert.log_conflicts", "no", Bool, Dynamic),
    hidden("cert.max_length", "16384", INT, Start),
    shown("cert.optimistic_pa", "yes", Bool, Dynamic),
    shown("debug", "no", Bool, Dynamic),
    shown("evs.auto_evict", "0", int(-1, i64::MAX), Dynamic),
    shown("evs.causal_keepalive_period", "PT1S", PERIOD, Dynamic),
    shown("evs.debug_log_mask", "0x1", Mask, Dynamic),
    shown("evs.delay_margin", "PT1S", PERIOD, Dynamic),
    shown("evs.delayed_keep_period", "PT30S", PERIOD, Dynamic),
    hidden("evs.evict", "", Uuid, Trigger),
    shown("evs.inactive_check_period", "PT0.5S", PERIOD, Start),
    shown("evs.inactive_timeout", "PT15S", PERIOD_100MS, Dynamic),
    shown("evs.info_log_mask", "0", Mask, Dynamic),
    shown("evs.install_timeout", "", PERIOD, Dynamic),
    shown("evs.join_retrans_period", "PT1S", PERIOD, Dynamic),
    shown("evs.keepalive_period", "PT1S", PERIOD_100MS, Dynamic),
    shown("evs.max_install_timeouts", "3", INT, Dynamic),
    shown("evs.send_window", "4", int(1, i64::MAX), Dynamic),
    shown("evs.stats_report_period", "PT1M", PERIOD, Dynamic),
    shown("evs.suspect_timeout", "PT5S", PERIOD_100MS, Dynamic),
    shown("evs.use_aggregate", "true", Bool, Dynamic),
    shown("evs.user_send_window", "2", int(1, i64::MAX), Dynamic),
    shown("evs.version", "1", int(0, 1), Dynamic),
    shown("evs.view_forget_timeout", "P1D", PERIOD, Start),
    shown("gcache.dir", "", Text, Start),
    shown("gcache.keep_pages_size", "0", SIZE, Dynamic),
    // Known to one lineage of Galera only; its configuration files must not stop a server.
    hidden("gcache.keep_plaintext_size", "128M", SIZE, Dynamic),
    shown("gcache.mem_size", "0", SIZE, Dynamic),
    shown("gcache.name", "galera.cache", Text, Start),
    shown("gcache.page_size", "128M", SIZE, Dynamic),
    shown("gcache.recover", "yes", Bool, Start),
    shown("gcache.size", "128M", SIZE, Start),
    shown("gcomm.thread_prio", "", Text, Start),
    shown("gcs.fc_debug", "0", INT, Dynamic),
    shown("gcs.fc_factor", "1.0", Kind::Real { min: 0.0, max: 1.0, max_included: true }, Dynamic),
    shown("gcs.fc_limit", "16", Kind::Size { min: 1 }, Dynamic),
    shown("gcs.fc_master_slave", "no", Bool, Start),
    // Ours: how long a member that applies nothing slows the others; zero: without end.
    hidden("gcs.fc_patience", "PT0.5S", PERIOD, Dynamic),
    shown("gcs.fc_single_primary", "no", Bool, Start),
    shown("gcs.max_packet_size", "64500", SIZE, Start),
    shown("gcs.max_throttle", "0.25", FRACTION, Dynamic),
    shown("gcs.recv_q_hard_limit", "9223372036854775807", SIZE, Dynamic),
    shown("gcs.recv_q_soft_limit", "0.25", FRACTION, Dynamic),
    hidden("gcs.stateless", "no", Bool, Start),
    shown("gcs.sync_donor", "no", Bool, Dynamic),
    // Out of range counts as the default, with a warning, so any number is accepted here.
    hidden("gcs.vote_policy", "0", int(i64::MIN, i64::MAX), Start),
    hidden("gmcast.group", "", Text, Start),
    hidden("gmcast.isolate", "0", int(0, 2), Trigger),
    shown("gmcast.listen_addr", "", Address, Start),
    shown("gmcast.mcast_addr", "", Text, Start),
    hidden("gmcast.mcast_port", "", int(0, 65535), Start),
    shown("gmcast.mcast_ttl", "1", int(0, 255), Start),
    hidden("gmcast.mira", "", int(-1, i64::MAX), Dynamic),
    hidden("gmcast.peer_addr", "", Text, Trigger),
    shown("gmcast.peer_timeout", "PT3S", PERIOD, Start),
    shown("gmcast.segment", "0", int(0, 255), Start),
    shown("gmcast.time_wait", "PT5S", PERIOD, Start),
    shown("gmcast.version", "0", INT, Start),
    hidden("ist.keep_keys", "true", Bool, Start),
    shown("ist.recv_addr", "", Address, Start),
    hidden("ist.recv_bind", "", Address, Start),
    shown("pc.announce_timeout", "PT3S", PERIOD, Start),
    hidden("pc.bootstrap", "", Text, Trigger),
    // Ours: how many first members to wait for before a new cluster forms without anybody's bootstrap; 0 = off.
    hidden("pc.bootstrap_expect", "0", int(0, 255), Start),
    shown("pc.checksum", "false", Bool, Start),
    shown("pc.ignore_quorum", "false", Bool, Dynamic),
    shown("pc.ignore_sb", "false", Bool, Dynamic),
    shown("pc.linger", "PT20S", PERIOD, Start),
    shown("pc.npvo", "false", Bool, Start),
    shown("pc.recovery", "true", Bool, Start),
    shown("pc.version", "0", INT, Start),
    shown("pc.wait_prim", "true", Bool, Start),
    shown("pc.wait_prim_timeout", "PT30S", PERIOD, Start),
    shown("pc.weight", "1", int(0, 255), Dynamic),
    shown("protonet.backend", "asio", Choice(&["asio"]), Start),
    shown("protonet.version", "0", INT, Start),
    shown("repl.causal_read_timeout", "PT30S", PERIOD, Dynamic),
    shown("repl.commit_order", "3", Choice(&["0", "1", "2", "3"]), Start),
    // Ours: whether a majority must hold a commit on disk, or only in its processes, before it is acknowledged. A cluster-wide setting.
    shown("repl.durability", "disk", Choice(&["disk", "process"]), Dynamic),
    // Ours: bytes of the flight recorder's file; 0: none is kept.
    hidden("repl.flight_size", "8M", SIZE, Start),
    shown("repl.key_format", "FLAT8", Choice(&["FLAT8", "FLAT8A", "FLAT16", "FLAT16A"]), Dynamic),
    // Ours: through the page cache with a thread that syncs, or past it by io_uring, where that can be had.
    hidden("repl.log_io", "threads", Choice(&["threads", "uring", "auto"]), Start),
    // Ours: the file with the keys that encrypt this node's write-set log.
    hidden("repl.log_key_file", "", Text, Start),
    // Ours: reads that file again.
    hidden("repl.log_key_reload", "", Bool, Trigger),
    shown("repl.max_ws_size", "2147483647", int(0, 2_147_483_647), Dynamic),
    // Ours: whether the node measures what it does, and writes its state file.
    hidden("repl.metrics", "yes", Bool, Start),
    // Ours: what happens when a node id comes with a certificate of other names than before.
    hidden("repl.other_certificate", "warn", Choice(&["warn", "refuse"]), Start),
    shown("repl.proto_max", "11", INT, Dynamic),
    // Ours: whether the node refuses to start when it would accept peers from other hosts that show nothing.
    hidden("repl.require_auth", "no", Bool, Start),
    // Ours: the file with the secret that members share; encrypts as well.
    hidden("repl.secret_file", "", Text, Start),
    // Ours: reads that file again.
    hidden("repl.secret_reload", "", Bool, Trigger),
    // Ours: shows the further status variables `wsrep_trireme_*`.
    hidden("repl.status_extended", "no", Bool, Dynamic),
    shown("socket.checksum", "2", int(0, 2), Start),
    hidden("socket.dynamic", "no", Bool, Start),
    hidden("socket.non_blocking", "", Text, Start),
    shown("socket.recv_buf_size", "auto", AutoSize, Dynamic),
    shown("socket.send_buf_size", "auto", AutoSize, Start),
    hidden("socket.ssl", "no", Bool, Start),
    hidden("socket.ssl_ca", "", Text, Start),
    hidden("socket.ssl_cert", "", Text, Start),
    hidden("socket.ssl_cipher", "", Text, Start),
    hidden("socket.ssl_compression", "no", Bool, Start),
    // Ours: revocation lists, read again with the certificates.
    hidden("socket.ssl_crl", "", Text, Start),
    hidden("socket.ssl_key", "", Text, Start),
    hidden("socket.ssl_password_file", "", Text, Start),
    // Ours: whose certificates are taken, as names and fingerprints.
    hidden("socket.ssl_peer_names", "", Text, Dynamic),
    // Shown as 1 when TLS is on; acts even when the value is the same.
    hidden("socket.ssl_reload", "", Bool, Trigger),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_by_name_without_duplicates() {
        for pair in TABLE.windows(2) {
            assert!(pair[0].name < pair[1].name, "{} before {}", pair[0].name, pair[1].name);
        }
    }

    #[test]
    fn counts() {
        let ours = [
            "repl.durability",
            "repl.flight_size",
            "repl.log_io",
            "repl.log_key_file",
            "repl.log_key_reload",
            "repl.metrics",
            "repl.other_certificate",
            "repl.require_auth",
            "repl.secret_file",
            "repl.secret_reload",
            "repl.status_extended",
            "socket.ssl_crl",
            "socket.ssl_peer_names",
            "pc.bootstrap_expect",
            "gcs.fc_patience",
        ];
        let galera: Vec<_> = TABLE.iter().filter(|s| !ours.contains(&s.name)).collect();
        assert_eq!(galera.iter().filter(|s| s.shown).count(), 72);
        // 23 of both lineages and one of the other lineage.
        assert_eq!(galera.iter().filter(|s| !s.shown).count(), 24);
        assert_eq!(TABLE.len(), 111);
    }

    #[test]
    fn names_stay_unique_when_the_server_turns_dots_into_underscores() {
        let mut names: Vec<_> = TABLE.iter().map(|s| s.name.replace('.', "_")).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
    }
}
