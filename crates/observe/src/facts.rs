//! The answer of one server.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::batch::{self, Pairs};
use crate::survey::Target;

/// Works in a server outside a primary component too, where `SELECT` does not. `timestamp` is the server's clock.
pub const ASK: &str = "SHOW GLOBAL STATUS WHERE Variable_name LIKE 'wsrep\\_%' OR Variable_name IN ('Uptime', 'Threads_connected'); \
     SHOW VARIABLES WHERE Variable_name LIKE 'wsrep\\_%' OR Variable_name LIKE 'innodb\\_flush\\_log%' OR Variable_name IN ('version', \
     'version_comment', 'hostname', 'port', 'datadir', 'log_error', 'timestamp', 'read_only', 'log_bin', 'binlog_format', 'sync_binlog', \
     'innodb_autoinc_lock_mode', 'innodb_doublewrite', 'innodb_locks_unsafe_for_binlog', 'innodb_force_recovery', 'max_connections', \
     'default_storage_engine', 'gtid_strict_mode', 'log_slave_updates', 'query_cache_type', 'server_id', 'innodb_use_native_aio', \
     'innodb_flush_method', 'pid_file', 'character_set_server')";
/// Makes a Trireme node tell its role, the votes and its log.
pub const ASK_FOR_MORE: &str = "SET GLOBAL wsrep_provider_options = 'repl.status_extended=yes'";

/// One server's answers. Names are in lower case.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Facts {
    pub status: Pairs,
    pub variables: Pairs,
    /// How long the answer took, the start of the client included.
    pub took: Duration,
    /// Seconds that its clock was ahead of ours when it answered, and how far that may be wrong.
    pub clock: Option<(f64, f64)>,
}

impl Facts {
    /// From what the client printed after [`ASK`]. `asked`, `heard`: our clock before and after, in seconds since 1970.
    pub fn parse(text: &str, asked: f64, heard: f64) -> Result<Facts, String> {
        let mut results = batch::pairs(text).into_iter();
        let (Some(status), Some(variables)) = (results.next(), results.next()) else {
            return Err("its answer is not that of a MariaDB server".to_owned());
        };
        let server = variables.get("timestamp").and_then(|t| t.parse::<f64>().ok());
        // It may have looked at any time in between.
        let clock = server.map(|server| (server - (asked + heard) / 2.0, (heard - asked) / 2.0));
        Ok(Facts { status, variables, took: Duration::from_secs_f64((heard - asked).max(0.0)), clock })
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.status.get(name).or_else(|| self.variables.get(name)).map(String::as_str).filter(|text| !text.is_empty())
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        self.text(name)?.parse().ok().filter(|n: &f64| n.is_finite())
    }

    pub fn whole(&self, name: &str) -> Option<i64> {
        self.text(name)?.parse().ok()
    }

    pub fn is_on(&self, name: &str) -> bool {
        self.text(name).is_some_and(|v| ["on", "yes", "true", "1"].contains(&v.to_ascii_lowercase().as_str()))
    }

    /// Something is replicated, by whatever provider.
    pub fn has_provider(&self) -> bool {
        self.text("wsrep_provider_name").is_some() && self.is_on("wsrep_on")
    }

    pub fn is_trireme(&self) -> bool {
        self.text("wsrep_provider_name") == Some("Trireme")
    }

    pub fn is_primary(&self) -> bool {
        self.text("wsrep_cluster_status") == Some("Primary")
    }

    /// It tells votes and roles.
    pub fn is_extended(&self) -> bool {
        self.text("wsrep_trireme_role").is_some()
    }

    pub fn name(&self) -> Option<&str> {
        self.text("wsrep_node_name").or_else(|| self.text("hostname"))
    }

    /// Different for every process that runs.
    pub fn identity(&self) -> Option<String> {
        self.text("wsrep_gcomm_uuid").map(str::to_owned)
    }

    /// Where clients reach the members, in the order of the view. `None`: one without an address, such as an arbitrator.
    pub fn addresses(&self) -> Vec<Option<Target>> {
        let Some(list) = self.text("wsrep_incoming_addresses") else { return Vec::new() };
        list.split(',').map(|address| Target::parse(address.trim(), None).ok().filter(is_address)).collect()
    }

    pub fn own_address(&self) -> Option<Target> {
        let index = usize::try_from(self.whole("wsrep_local_index")?).ok()?;
        self.addresses().into_iter().nth(index)?
    }

    /// Options of the provider.
    pub fn options(&self) -> BTreeMap<String, String> {
        options(self.text("wsrep_provider_options").unwrap_or_default())
    }

    /// A list of names with something behind a colon: `name:weight`.
    pub fn voters(&self) -> Vec<(String, u64)> {
        let list = self.text("wsrep_trireme_voters").unwrap_or_default();
        let one = |item: &str| {
            let (name, weight) = item.rsplit_once(':')?;
            Some((name.to_owned(), weight.parse().ok()?))
        };
        list.split(',').filter_map(one).collect()
    }

    /// A list of names.
    pub fn names(&self, name: &str) -> Vec<String> {
        self.text(name).unwrap_or_default().split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect()
    }

    /// Members to whom it has a connection.
    pub fn linked(&self) -> Vec<String> {
        let trips = self.names("wsrep_trireme_round_trips");
        trips.iter().filter_map(|trip| trip.rsplit_once(':')).map(|(peer, _)| peer.to_owned()).collect()
    }

    /// Bytes of write sets per second since the server started; its uptime is that of the server, which joins a little later.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let bytes = self.number("wsrep_replicated_bytes")? + self.number("wsrep_received_bytes")?;
        let uptime = self.number("uptime").filter(|seconds| *seconds >= 1.0)?;
        Some(bytes / uptime)
    }
}

fn is_address(target: &Target) -> bool {
    match target {
        Target::Default => false,
        Target::Tcp { host, .. } => !host.eq_ignore_ascii_case("auto") && host != "unspecified",
    }
}

/// `a = b; c = d;` as `wsrep_provider_options` shows it.
pub fn options(text: &str) -> BTreeMap<String, String> {
    let pair = |option: &str| {
        let (name, value) = option.split_once('=')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    text.split(';').filter_map(pair).collect()
}

/// A size as options are written: `128M`. `None` for what is none.
pub fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.trim().strip_suffix(['K', 'M', 'G', 'T', 'k', 'm', 'g', 't']) {
        Some(digits) => {
            let power = match text.trim().chars().last()?.to_ascii_uppercase() {
                'K' => 10,
                'M' => 20,
                'G' => 30,
                _ => 40,
            };
            (digits, 1u64 << power)
        }
        None => (text.trim(), 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Of status variables and, where the name is that of one, variables.
    pub fn facts(pairs: &[(&str, &str)]) -> Facts {
        let map: Pairs = pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Facts { status: map, ..Facts::default() }
    }

    #[test]
    fn an_answer_is_taken_apart() {
        let text = "Variable_name\tValue\nwsrep_local_state\t4\nUptime\t100\nwsrep_replicated_bytes\t500\nwsrep_received_bytes\t1500\n\
                    Variable_name\tValue\nwsrep_on\tON\ntimestamp\t1000.5\n";
        let facts = Facts::parse(text, 999.0, 1001.0).unwrap();
        assert_eq!((facts.number("wsrep_local_state"), facts.is_on("wsrep_on")), (Some(4.0), true));
        assert_eq!(facts.clock, Some((0.5, 1.0)));
        assert_eq!(facts.bytes_per_second(), Some(20.0));
        assert!(Facts::parse("Variable_name\tValue\n", 0.0, 0.0).is_err());
        assert!(Facts::parse("\u{0}garbage", 0.0, 0.0).is_err());
    }

    #[test]
    fn members_voters_and_options() {
        let facts = facts(&[
            ("wsrep_incoming_addresses", "10.0.0.1:3306,,AUTO,[::1]:7"),
            ("wsrep_local_index", "3"),
            ("wsrep_trireme_voters", "a:1,b:x,c:2"),
            ("wsrep_provider_options", "gcache.size = 128M; socket.ssl = YES;"),
        ]);
        let shown: Vec<String> =
            facts.addresses().iter().map(|a| a.as_ref().map_or("-".to_owned(), Target::to_string)).collect();
        assert_eq!(shown, ["10.0.0.1:3306", "-", "-", "[::1]:7"]);
        assert_eq!(facts.own_address().unwrap().to_string(), "[::1]:7");
        assert_eq!(facts.voters(), [("a".to_owned(), 1), ("c".to_owned(), 2)]);
        assert_eq!(facts.options()["gcache.size"], "128M");
    }

    #[test]
    fn sizes() {
        let of = |text| size(text);
        assert_eq!(
            (of("128M"), of("7"), of("2g"), of("x"), of("99999999999T")),
            (Some(128 << 20), Some(7), Some(2 << 30), None, None)
        );
    }
}
