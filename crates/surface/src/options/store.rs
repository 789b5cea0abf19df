//! The values of all options, and the rules by which they change.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use super::table::{Kind, Spec, TABLE, When, position};
use super::text;
use super::value::{parse_bool, parse_int, parse_period, parse_real, parse_size, print_period, print_size};
use crate::address::{DEFAULT_PORT, Endpoint, HostPort, Scheme};

/// The facts that defaults are derived from.
#[derive(Clone, Default, Debug)]
pub struct Defaults {
    /// The server's data directory as it came from the server.
    pub data_dir: String,
    /// `wsrep_node_address`: `host`, `host:port`, an IPv6 literal with or without brackets, or empty.
    pub node_address: String,
}

/// Why an option could not be set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OptionError {
    /// The string does not parse; nothing was applied.
    Syntax { text: String, reason: &'static str },
    /// No such option, in the configuration.
    Unrecognized { name: String },
    /// No such option at run time; or one of the group while there is no group.
    Unknown { name: String },
    /// Malformed, out of range, fixed once started, or refused by whoever had to apply it.
    Refused { name: String, value: String, reason: String },
}

impl OptionError {
    /// The log lines that go with the error, all at warning level but `Unrecognized`, which is an error.
    ///
    /// For the group's options Galera logs the refusal and an "unknown parameter" line. It says nothing about a string that does
    /// not parse, and a suite fails at any warning there: log `Display` at informational level.
    pub fn log_lines(&self) -> Vec<String> {
        match self {
            OptionError::Syntax { .. } => Vec::new(),
            OptionError::Unrecognized { name } => vec![format!("Unrecognized parameter '{name}'")],
            OptionError::Unknown { name } => vec![format!("Unknown parameter '{name}'")],
            OptionError::Refused { name, value, reason } if is_group(name) => {
                vec![
                    format!("error setting param {name} to value {value}: {reason}"),
                    format!("Unknown parameter '{name}'"),
                ]
            }
            OptionError::Refused { name, value, reason } => {
                vec![format!("Setting parameter '{name}' to '{value}' failed: {reason}")]
            }
        }
    }
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionError::Syntax { text, reason } => write!(f, "Malformed option string '{text}': {reason}"),
            OptionError::Unrecognized { .. } | OptionError::Unknown { .. } | OptionError::Refused { .. } => {
                f.write_str(&self.log_lines()[0])
            }
        }
    }
}

impl std::error::Error for OptionError {}

fn is_group(name: &str) -> bool {
    super::table::spec(name).is_some_and(Spec::is_group)
}

/// A run-time change that passed all checks and has not been stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    pub name: &'static str,
    /// As it will be shown.
    pub value: String,
    /// The option has this value already: nothing is to be applied or stored.
    pub nothing_to_do: bool,
    /// A command (`When::Trigger`): apply it, `store` will not keep it.
    pub trigger: bool,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    /// `None`: never set and without a default that shows.
    value: Option<String>,
    /// Set by somebody, so derived defaults leave it alone.
    explicit: bool,
}

/// Values of all options.
///
/// # Panics
/// The typed getters panic when the name is not in the table or the kind does not fit: both are mistakes in the program. They
/// do not panic on any value that was accepted.
#[derive(Clone, Debug)]
pub struct Options {
    slots: Vec<Slot>,
    defaults: Defaults,
    /// Port in the cluster address, when there was one.
    uri_port: Option<u16>,
    /// Whether a group connection exists; see [`Options::set_group_connected`].
    connected: bool,
    /// Commands among the options at start, in order.
    triggers: Vec<(&'static str, String)>,
}

impl Options {
    /// All defaults, also those that follow from the data directory and the node's address.
    pub fn new(defaults: Defaults) -> Options {
        let slots = TABLE
            .iter()
            .map(|spec| Slot { value: spec.shown.then(|| spec.default.to_owned()), explicit: false })
            .collect();
        let mut options = Options { slots, defaults, uri_port: None, connected: true, triggers: Vec::new() };
        options.derive();
        options
    }

    // --- setting -----------------------------------------------------------------------------------------------------

    /// Takes the configured option string. On errors, of which all are returned, nothing is changed.
    pub fn set_at_start(&mut self, configured: &str) -> Result<(), Vec<OptionError>> {
        let pairs = text::pairs(configured).map_err(|e| vec![e])?;
        self.set_pairs(&pairs)
    }

    /// Takes the options of a cluster address (`gcomm://…?pc.weight=2`). They override, and only the group's are allowed.
    pub fn set_from_uri(&mut self, pairs: &[(String, String)]) -> Result<(), Vec<OptionError>> {
        let foreign = pairs.iter().filter(|(name, _)| !is_group(name));
        let errors: Vec<_> = foreign.map(|(name, _)| OptionError::Unrecognized { name: name.clone() }).collect();
        if errors.is_empty() { self.set_pairs(pairs) } else { Err(errors) }
    }

    fn set_pairs(&mut self, pairs: &[(String, String)]) -> Result<(), Vec<OptionError>> {
        let mut next = self.clone();
        let mut errors = Vec::new();
        for (name, value) in pairs {
            let Some(at) = position(name) else {
                errors.push(OptionError::Unrecognized { name: name.clone() });
                continue;
            };
            let spec = &TABLE[at];
            match normalise(spec, value, Moment::Start) {
                Ok(value) if spec.when == When::Trigger => next.triggers.push((spec.name, value)),
                Ok(value) => next.slots[at] = Slot { value: Some(value), explicit: true },
                Err(reason) => {
                    errors.push(OptionError::Refused { name: name.clone(), value: value.clone(), reason });
                }
            }
        }
        next.derive();
        if errors.is_empty() {
            errors.extend(next.conflict());
        }
        if errors.is_empty() {
            *self = next;
            Ok(())
        } else {
            Err(errors)
        }
    }

    /// Checks one run-time assignment without changing anything. An option that is set to the value that it shows is accepted, whichever it
    /// is, so that a printed string can always be written back.
    pub fn check_runtime(&self, name: &str, value: &str) -> Result<Change, OptionError> {
        let unknown = || OptionError::Unknown { name: name.to_owned() };
        let at = position(name).ok_or_else(unknown)?;
        let spec = &TABLE[at];
        let trigger = spec.when == When::Trigger;
        if !trigger && self.slots[at].value.as_deref() == Some(value) {
            return Ok(Change { name: spec.name, value: value.to_owned(), nothing_to_do: true, trigger });
        }
        if spec.is_group() && !self.connected {
            return Err(unknown());
        }
        let refused = |reason: String| OptionError::Refused { name: name.to_owned(), value: value.to_owned(), reason };
        if spec.when == When::Start {
            // The same value in other words is no change either: a server writes `false` for `no`.
            if self.slots[at].value.as_deref().is_some_and(|shown| means_the_same(spec, shown, value)) {
                return Ok(Change { name: spec.name, value: value.to_owned(), nothing_to_do: true, trigger });
            }
            return Err(refused("can't be changed at run time".into()));
        }
        let value = normalise(spec, value, Moment::Runtime).map_err(refused)?;
        let change = Change { name: spec.name, value, nothing_to_do: false, trigger };
        if !trigger {
            let mut next = self.clone();
            next.put(at, change.value.clone());
            if let Some(OptionError::Refused { reason, .. }) = next.conflict() {
                return Err(refused(reason));
            }
        }
        Ok(change)
    }

    /// Keeps a change that has been applied.
    pub fn store(&mut self, change: Change) {
        if !change.trigger && !change.nothing_to_do {
            self.put(position(change.name).expect("a change names an option of the table"), change.value);
        }
    }

    /// Sets what is shown, without checks: for values that the node itself determines (`socket.ssl_reload` = 1 under TLS).
    pub fn show(&mut self, name: &str, value: &str) {
        self.put(at(name), value.to_owned());
    }

    /// While there is no group connection, the options of evs, gmcast, pc and socket are unknown at run time, unless they are
    /// set to the value they have. Initially `true`.
    pub fn set_group_connected(&mut self, connected: bool) {
        self.connected = connected;
    }

    /// The port that the cluster address names; it is used when nothing else says where to listen. Updates `base_port` and
    /// `gmcast.listen_addr` as shown.
    pub fn set_uri_port(&mut self, port: Option<u16>) {
        self.uri_port = port;
        self.derive();
    }

    /// Commands among the options given at start (`pc.bootstrap`, `gmcast.isolate` …), once.
    pub fn take_triggers(&mut self) -> Vec<(&'static str, String)> {
        std::mem::take(&mut self.triggers)
    }

    // --- reading -----------------------------------------------------------------------------------------------------

    /// All options that have a value, sorted: `name = value; ` for each.
    pub fn print(&self) -> String {
        let mut out = String::new();
        for (spec, slot) in TABLE.iter().zip(&self.slots) {
            if let Some(value) = &slot.value {
                out += &format!("{} = {}; ", spec.name, text::escape(value));
            }
        }
        out
    }

    /// As shown; hidden options that were never set give their default.
    pub fn text(&self, name: &str) -> &str {
        let at = at(name);
        self.slots[at].value.as_deref().unwrap_or(TABLE[at].default)
    }

    /// Somebody set this option (as opposed to a default, also a derived one).
    pub fn is_set(&self, name: &str) -> bool {
        self.slots[at(name)].explicit
    }

    pub fn period(&self, name: &str) -> Duration {
        parse_period(self.text(name)).unwrap_or_else(|| panic!("{name} is no period"))
    }

    pub fn size(&self, name: &str) -> u64 {
        parse_size(self.text(name)).unwrap_or_else(|| panic!("{name} is no size"))
    }

    /// `None` for `auto`.
    pub fn auto_size(&self, name: &str) -> Option<u64> {
        parse_size(self.text(name))
    }

    /// Also of masks. An empty hidden one counts as 0, `evs.auto_evict` above the range of `i64` as its maximum.
    pub fn int(&self, name: &str) -> i64 {
        let text = self.text(name);
        let word = || parse_bool(text).map(i64::from);
        let wrapped = || text.parse::<u64>().ok().map(|_| i64::MAX);
        let empty = || text.is_empty().then_some(0);
        parse_int(text).or_else(word).or_else(wrapped).or_else(empty).unwrap_or_else(|| panic!("{name} is no integer"))
    }

    pub fn bool(&self, name: &str) -> bool {
        parse_bool(self.text(name)).unwrap_or_else(|| panic!("{name} is no boolean"))
    }

    pub fn real(&self, name: &str) -> f64 {
        parse_real(self.text(name)).unwrap_or_else(|| panic!("{name} is no real number"))
    }

    /// Name, value and rule of every option, for the server's typed variables. Hidden ones give their default.
    pub fn enumerate(&self) -> impl Iterator<Item = (&'static Spec, &str)> {
        TABLE.iter().map(|spec| (spec, self.text(spec.name)))
    }

    // --- addresses that options determine ------------------------------------------------------------------------------

    /// TLS is on, or implied by a key or a certificate.
    pub fn tls(&self) -> bool {
        if self.is_set("socket.ssl") {
            self.bool("socket.ssl")
        } else {
            self.is_set("socket.ssl_key") || self.is_set("socket.ssl_cert")
        }
    }

    /// The file with the secret that members share; `None` without one.
    pub fn secret_file(&self) -> Option<&str> {
        Some(self.text("repl.secret_file")).filter(|path| !path.is_empty())
    }

    /// The file with the keys of the write-set log; `None` without one.
    pub fn log_key_file(&self) -> Option<&str> {
        Some(self.text("repl.log_key_file")).filter(|path| !path.is_empty())
    }

    pub fn base_port(&self) -> u16 {
        u16::try_from(self.int("base_port")).unwrap_or(DEFAULT_PORT)
    }

    /// Where the group connection listens.
    pub fn listen(&self) -> HostPort {
        let endpoint = Endpoint::parse(self.text("gmcast.listen_addr")).unwrap_or_default();
        HostPort { host: endpoint.host, port: Some(endpoint.port.unwrap_or_else(|| self.base_port())) }
    }

    /// The group and port of `gmcast.mcast_addr`, if it is set.
    pub fn multicast(&self) -> Option<SocketAddrV4> {
        let group = multicast(self.text("gmcast.mcast_addr"))?;
        let port = u16::try_from(self.int("gmcast.mcast_port")).ok().filter(|port| *port != 0);
        Some(SocketAddrV4::new(group, port.unwrap_or(DEFAULT_PORT)))
    }

    /// The address that a donor is told to connect to. Port 0: let the system choose, and tell the real one.
    pub fn ist_recv(&self) -> HostPort {
        let endpoint = Endpoint::parse(self.text("ist.recv_addr")).unwrap_or_default();
        let host = if endpoint.host.is_empty() { self.text("base_host").to_owned() } else { endpoint.host };
        HostPort { host, port: Some(endpoint.port.unwrap_or_else(|| self.base_port().saturating_add(1))) }
    }

    // --- inside ----------------------------------------------------------------------------------------------------------

    fn put(&mut self, at: usize, value: String) {
        self.slots[at] = Slot { value: Some(value), explicit: true };
        self.derive();
    }

    /// Fills in the defaults that follow from other values.
    fn derive(&mut self) {
        let data_dir = with_slash(&self.defaults.data_dir);
        self.derived("base_dir", data_dir.clone());
        self.derived("gcache.dir", data_dir);
        let node = HostPort::parse(&self.defaults.node_address).unwrap_or_default();
        if !node.is_any() {
            self.derived("base_host", node.host);
        }

        // A port in the listen address comes first and then holds for everything that derives from the base port.
        let listen = Endpoint::parse(self.text("gmcast.listen_addr")).unwrap_or_default();
        let own = self.is_set("gmcast.listen_addr").then_some(listen.port).flatten();
        let base = self.is_set("base_port").then(|| self.base_port());
        let port = own.or(base).or(node.port).or(self.uri_port).unwrap_or(DEFAULT_PORT);
        self.slots[at("base_port")].value = Some(port.to_string());
        let scheme = if self.tls() { Scheme::Ssl } else { Scheme::Tcp };
        self.derived("gmcast.listen_addr", format!("{scheme}://0.0.0.0:{port}"));
        self.derived("ist.recv_addr", self.text("base_host").to_owned());
        self.derived("evs.install_timeout", print_period(self.period("evs.inactive_timeout") / 2));
    }

    fn derived(&mut self, name: &str, value: String) {
        let slot = &mut self.slots[at(name)];
        if !slot.explicit {
            slot.value = Some(value);
        }
    }

    /// The first rule between options that does not hold.
    fn conflict(&self) -> Option<OptionError> {
        let refused = |name: &str, reason: &str| {
            Some(OptionError::Refused { name: name.into(), value: self.text(name).into(), reason: reason.into() })
        };
        if self.int("evs.user_send_window") > self.int("evs.send_window") {
            return refused("evs.user_send_window", "evs.user_send_window must not exceed evs.send_window");
        }
        let tls_files = ["socket.ssl_key", "socket.ssl_cert"];
        if let Some(missing) = tls_files.into_iter().find(|name| self.tls() && self.text(name).is_empty()) {
            return refused(missing, "TLS needs both socket.ssl_key and socket.ssl_cert");
        }
        if self.tls() && self.is_set("repl.secret_file") {
            return refused(
                "repl.secret_file",
                "a secret and certificates (socket.ssl) exclude each other: set one of them",
            );
        }
        if HostPort::parse(self.text("base_host")).is_ok_and(|h| h.is_any() && !h.host.is_empty()) {
            return refused("base_host", "an address that stands for any interface can't be told to others");
        }
        None
    }
}

fn at(name: &str) -> usize {
    position(name).unwrap_or_else(|| panic!("no option is called {name}"))
}

fn with_slash(dir: &str) -> String {
    if dir.is_empty() || dir.ends_with('/') { dir.to_owned() } else { format!("{dir}/") }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    Start,
    Runtime,
}

/// Whether two values of an option are one, as `no` and `false` are.
fn means_the_same(spec: &Spec, one: &str, other: &str) -> bool {
    one == other || (spec.kind == Kind::Bool && parse_bool(one).is_some() && parse_bool(one) == parse_bool(other))
}

/// Checks a value against its kind and returns what will be shown.
fn normalise(spec: &Spec, value: &str, moment: Moment) -> Result<String, String> {
    let bad = |what: &str| Err(format!("Invalid value '{value}' for {what}"));
    let kept = Ok(value.to_owned());
    match spec.kind {
        Kind::Period { min_ns } => match parse_period(value) {
            None => bad("period type."),
            Some(p) if p < Duration::from_nanos(min_ns) => {
                Err(format!("{} is shorter than {}", value, print_period(Duration::from_nanos(min_ns))))
            }
            Some(p) if spec.normalises_period() => Ok(print_period(p)),
            Some(_) => kept,
        },
        Kind::Size { min } => match parse_size(value) {
            None => bad("size type."),
            Some(n) if n < min => Err(format!("{value} is less than {min}")),
            Some(n) if moment == Moment::Runtime && spec.normalises_size() => Ok(print_size(n)),
            Some(_) => kept,
        },
        Kind::AutoSize if value == "auto" || parse_size(value).is_some() => kept,
        Kind::AutoSize => bad("size type."),
        // Number at start, switch at run time: shown as such.
        Kind::Int { .. } if spec.name == "gcs.fc_debug" && moment == Moment::Runtime => match parse_bool(value) {
            Some(on) => Ok(if on { "YES" } else { "NO" }.into()),
            None => bad("boolean type."),
        },
        Kind::Int { min, max } => match parse_int(value) {
            None => bad("integer type."),
            Some(n) if n < min || n > max => Err(format!("{value} is out of range [{min}, {max}]")),
            Some(-1) if spec.name == "evs.auto_evict" => Ok(u64::MAX.to_string()),
            Some(_) => kept,
        },
        Kind::Bool if parse_bool(value).is_some() => kept,
        Kind::Bool => bad("boolean type."),
        Kind::Real { min, max, max_included } => match parse_real(value) {
            None => bad("real type."),
            Some(v) if v < min || v > max || (v == max && !max_included) => {
                Err(format!("{value} is out of range [{min}, {max}{}", if max_included { ']' } else { ')' }))
            }
            Some(v) if moment == Moment::Runtime => Ok(v.to_string()),
            Some(_) => kept,
        },
        Kind::Mask => match parse_int(value) {
            Some(n) if n >= 0 => kept,
            _ => bad("mask type."),
        },
        Kind::Address => match Endpoint::parse(value) {
            Ok(_) => kept,
            Err(reason) => Err(reason.to_string()),
        },
        Kind::Text if spec.name == "gmcast.group" && value.len() > 32 => Err("longer than 32 bytes".into()),
        Kind::Text if spec.name == "gmcast.mcast_addr" && !value.is_empty() && multicast(value).is_none() => {
            Err(format!(
                "'{value}' is no IPv4 multicast address: write one of 239.0.0.0 to 239.255.255.255, the same on all nodes"
            ))
        }
        Kind::Text => kept,
        Kind::Choice(words) if words.iter().any(|w| w.eq_ignore_ascii_case(value)) => kept,
        Kind::Choice(words) => Err(format!("'{value}' is none of {}", words.join(", "))),
        Kind::Uuid if value.is_empty() || trireme_types::Uuid::parse(value).is_some() => kept,
        Kind::Uuid => bad("UUID type."),
    }
}

fn multicast(text: &str) -> Option<Ipv4Addr> {
    text.parse::<Ipv4Addr>().ok().filter(Ipv4Addr::is_multicast)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options::new(Defaults { data_dir: "/data".into(), node_address: "10.0.0.1".into() })
    }
    fn started(text: &str) -> Options {
        let mut o = options();
        o.set_at_start(text).unwrap();
        o
    }
    /// As a node does it: from left to right up to the first error, and what nobody has to do is not put into effect.
    fn set_runtime(
        o: &mut Options,
        given: &str,
        act: &mut dyn FnMut(&str, &str) -> Result<(), String>,
    ) -> Result<(), OptionError> {
        for (name, value) in text::pairs(given)? {
            let change = o.check_runtime(&name, &value)?;
            if !change.nothing_to_do {
                act(change.name, &change.value).map_err(|reason| OptionError::Refused { name, value, reason })?;
                o.store(change);
            }
        }
        Ok(())
    }
    fn set(o: &mut Options, text: &str) -> Result<(), OptionError> {
        set_runtime(o, text, &mut |_, _| Ok(()))
    }
    fn lines(result: Result<(), OptionError>) -> Vec<String> {
        result.unwrap_err().log_lines()
    }

    #[test]
    fn defaults_print_sorted_in_the_exact_format() {
        let printed = options().print();
        assert!(
            printed.starts_with("base_dir = /data/; base_host = 10.0.0.1; base_port = 4567; cert.log_conflicts = no; ")
        );
        assert!(printed.ends_with("socket.checksum = 2; socket.recv_buf_size = auto; socket.send_buf_size = auto; "));
        assert!(printed.contains("; evs.install_timeout = PT7.5S; "));
        assert!(printed.contains("; gmcast.listen_addr = tcp://0.0.0.0:4567; gmcast.mcast_addr = ; "));
        // 72 of Galera and repl.durability.
        assert_eq!(printed.matches("; ").count(), 73);
        let names: Vec<_> = printed.split_terminator("; ").map(|p| p.split(" =").next().unwrap()).collect();
        assert!(names.is_sorted());
    }

    /// Galera 26.4.23 shows this after connecting with `gcache.size=4M` and node address 127.0.0.1:28777.
    #[test]
    fn the_printed_string_equals_galeras() {
        let galera = "base_dir = /data/; base_host = 127.0.0.1; base_port = 28777; cert.log_conflicts = no; \
            cert.optimistic_pa = yes; debug = no; evs.auto_evict = 0; evs.causal_keepalive_period = PT1S; evs.debug_log_mask = 0x1; \
            evs.delay_margin = PT1S; evs.delayed_keep_period = PT30S; evs.inactive_check_period = PT0.5S; \
            evs.inactive_timeout = PT15S; evs.info_log_mask = 0; evs.install_timeout = PT7.5S; evs.join_retrans_period = PT1S; \
            evs.keepalive_period = PT1S; evs.max_install_timeouts = 3; evs.send_window = 4; evs.stats_report_period = PT1M; \
            evs.suspect_timeout = PT5S; evs.use_aggregate = true; evs.user_send_window = 2; evs.version = 1; \
            evs.view_forget_timeout = P1D; gcache.dir = /data/; gcache.keep_pages_size = 0; gcache.mem_size = 0; \
            gcache.name = galera.cache; gcache.page_size = 128M; gcache.recover = yes; gcache.size = 4M; gcomm.thread_prio = ; \
            gcs.fc_debug = 0; gcs.fc_factor = 1.0; gcs.fc_limit = 16; gcs.fc_master_slave = no; gcs.fc_single_primary = no; \
            gcs.max_packet_size = 64500; gcs.max_throttle = 0.25; gcs.recv_q_hard_limit = 9223372036854775807; \
            gcs.recv_q_soft_limit = 0.25; gcs.sync_donor = no; gmcast.listen_addr = tcp://0.0.0.0:28777; gmcast.mcast_addr = ; \
            gmcast.mcast_ttl = 1; gmcast.peer_timeout = PT3S; gmcast.segment = 0; gmcast.time_wait = PT5S; gmcast.version = 0; \
            ist.recv_addr = 127.0.0.1; pc.announce_timeout = PT3S; pc.checksum = false; pc.ignore_quorum = false; \
            pc.ignore_sb = false; pc.linger = PT20S; pc.npvo = false; pc.recovery = true; pc.version = 0; pc.wait_prim = true; \
            pc.wait_prim_timeout = PT30S; pc.weight = 1; protonet.backend = asio; protonet.version = 0; \
            repl.causal_read_timeout = PT30S; repl.commit_order = 3; repl.key_format = FLAT8; repl.max_ws_size = 2147483647; \
            repl.proto_max = 11; socket.checksum = 2; socket.recv_buf_size = auto; socket.send_buf_size = auto; ";
        let mut ours = Options::new(Defaults { data_dir: "/data/".into(), node_address: "127.0.0.1:28777".into() });
        ours.set_at_start("gcache.size=4M").unwrap();
        assert_eq!(ours.print().replace("repl.durability = disk; ", ""), galera);
    }

    #[test]
    fn every_default_is_valid_for_its_kind() {
        let o = options();
        for spec in TABLE {
            let value = o.text(spec.name);
            if !value.is_empty() {
                normalise(spec, value, Moment::Start).unwrap_or_else(|e| panic!("{}: {e}", spec.name));
            }
        }
    }

    #[test]
    fn getters_work_for_every_default() {
        let o = options();
        for spec in TABLE {
            match spec.kind {
                Kind::Period { .. } => drop(o.period(spec.name)),
                Kind::Size { .. } => drop(o.size(spec.name)),
                Kind::AutoSize => assert_eq!(o.auto_size(spec.name), None),
                Kind::Int { .. } | Kind::Mask => drop(o.int(spec.name)),
                Kind::Bool if spec.when != When::Trigger => drop(o.bool(spec.name)),
                Kind::Real { .. } => drop(o.real(spec.name)),
                Kind::Bool | Kind::Address | Kind::Text | Kind::Choice(_) | Kind::Uuid => drop(o.text(spec.name)),
            }
        }
    }

    #[test]
    fn the_printed_string_can_always_be_written_back() {
        let mut o = started(
            "gcache.size=10M; gmcast.segment=3; ist.recv_bind=127.0.0.1; evs.suspect_timeout=5; socket.ssl_ca=/a\\;b",
        );
        let printed = o.print();
        o.set_group_connected(false);
        set_runtime(&mut o, &printed, &mut |name, _| panic!("{name} was applied")).unwrap();
        assert_eq!(o.print(), printed);
    }

    #[test]
    fn changes_apply_from_left_to_right_until_one_fails() {
        let mut o = options();
        let mut applied = Vec::new();
        let result = set_runtime(&mut o, "pc.weight=2; gcs.fc_limit=0; pc.ignore_sb=yes", &mut |name, value| {
            applied.push(format!("{name}={value}"));
            Ok(())
        });
        assert!(result.is_err());
        assert_eq!(applied, ["pc.weight=2"]);
        assert_eq!((o.text("pc.weight"), o.text("gcs.fc_limit"), o.text("pc.ignore_sb")), ("2", "16", "false"));
    }

    #[test]
    fn a_syntax_error_applies_nothing() {
        let mut o = options();
        let error = set(&mut o, "pc.weight=2; pc.ignore_sb").unwrap_err();
        assert_eq!(error.log_lines(), [] as [String; 0]);
        assert!(error.to_string().contains("pc.ignore_sb"));
        assert_eq!(o.text("pc.weight"), "1");
    }

    #[test]
    fn a_refusal_by_the_applier_leaves_the_value() {
        let mut o = options();
        let result = set_runtime(&mut o, "pc.weight=2", &mut |_, _| Err("not in a primary view".into()));
        assert_eq!(
            lines(result),
            ["error setting param pc.weight to value 2: not in a primary view", "Unknown parameter 'pc.weight'"]
        );
        assert_eq!(o.text("pc.weight"), "1");
    }

    #[test]
    fn start_only_options_are_refused_at_run_time() {
        let mut o = options();
        let error = lines(set(&mut o, "gcache.size=1M"));
        assert_eq!(error, ["Setting parameter 'gcache.size' to '1M' failed: can't be changed at run time"]);
        assert!(set(&mut o, "gcache.size=128M").is_ok());
        assert!(set(&mut o, "gcs.fc_master_slave=false").is_ok(), "the value that it has, as a server writes it");
        assert!(set(&mut o, "gcs.fc_master_slave=yes").is_err());
    }

    #[test]
    fn unknown_names() {
        let mut o = options();
        assert_eq!(lines(set(&mut o, "foo=1")), ["Unknown parameter 'foo'"]);
        let errors = o.set_at_start("foo=1; pc.weight=2; bar=2").unwrap_err();
        let lines: Vec<_> = errors.iter().flat_map(OptionError::log_lines).collect();
        assert_eq!(lines, ["Unrecognized parameter 'foo'", "Unrecognized parameter 'bar'"]);
        assert_eq!(o.text("pc.weight"), "1", "a failed start string changes nothing");
    }

    #[test]
    fn group_options_are_unknown_without_a_group() {
        let mut o = options();
        o.set_group_connected(false);
        assert_eq!(lines(set(&mut o, "pc.weight=2")), ["Unknown parameter 'pc.weight'"]);
        assert!(set(&mut o, "pc.weight=1; gcs.fc_limit=20; repl.max_ws_size=100").is_ok());
    }

    #[test]
    fn triggers_act_every_time_and_are_never_shown() {
        let mut o = options();
        for value in ["1", "1", "0"] {
            let mut seen = None;
            set_runtime(&mut o, &format!("gmcast.isolate={value}"), &mut |n, v| {
                seen = Some(format!("{n}={v}"));
                Ok(())
            })
            .unwrap();
            assert_eq!(seen, Some(format!("gmcast.isolate={value}")));
        }
        assert!(!o.print().contains("isolate"));
        assert!(set(&mut o, "gmcast.isolate=3").is_err());
        assert!(set(&mut o, "evs.evict=").is_ok());
        assert!(set(&mut o, "evs.evict=xyz").is_err());
        let mut o = started("pc.bootstrap=1");
        assert_eq!(o.take_triggers(), [("pc.bootstrap", "1".to_owned())]);
        assert_eq!(o.take_triggers(), []);
    }

    #[test]
    fn ssl_reload_acts_although_its_shown_value_is_the_same() {
        let mut o = options();
        o.show("socket.ssl_reload", "1");
        assert!(o.print().contains("socket.ssl_reload = 1; "));
        let mut calls = 0;
        set_runtime(&mut o, "socket.ssl_reload=1", &mut |_, _| {
            calls += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(calls, 1);
    }

    #[test]
    fn group_periods_are_shown_in_normal_form_and_others_as_given() {
        let mut o = started("evs.suspect_timeout=10; pc.linger=5000");
        assert_eq!((o.text("evs.suspect_timeout"), o.text("pc.linger")), ("PT10S", "PT1H23M20S"));
        set(&mut o, "evs.keepalive_period=PT60S; repl.causal_read_timeout=5").unwrap();
        assert_eq!((o.text("evs.keepalive_period"), o.text("repl.causal_read_timeout")), ("PT1M", "5"));
        assert_eq!(o.period("repl.causal_read_timeout"), Duration::from_secs(5));
        assert!(set(&mut o, "evs.suspect_timeout=PT0.05S").is_err());
    }

    #[test]
    fn sizes_set_at_run_time_are_shown_with_a_suffix() {
        let mut o = started("gcache.size=131072K");
        assert_eq!((o.text("gcache.size"), o.size("gcache.size")), ("131072K", 128 << 20));
        set(&mut o, "gcache.page_size=1048576; gcs.fc_limit=2048; socket.recv_buf_size=1048576").unwrap();
        assert_eq!((o.text("gcache.page_size"), o.text("gcs.fc_limit")), ("1M", "2K"));
        assert_eq!((o.text("socket.recv_buf_size"), o.auto_size("socket.recv_buf_size")), ("1048576", Some(1 << 20)));
    }

    #[test]
    fn single_formats() {
        let mut o = options();
        set(&mut o, "gcs.fc_factor=1.0").unwrap(); // the shown value: nothing to do
        assert_eq!(o.text("gcs.fc_factor"), "1.0");
        set(&mut o, "gcs.fc_factor=0.50; gcs.fc_debug=1; evs.auto_evict=-1; debug=YES").unwrap();
        assert_eq!((o.text("gcs.fc_factor"), o.text("gcs.fc_debug"), o.text("debug")), ("0.5", "YES", "YES"));
        assert_eq!((o.text("evs.auto_evict"), o.int("evs.auto_evict")), ("18446744073709551615", i64::MAX));
        assert_eq!(o.int("gcs.fc_debug"), 1);
        set(&mut o, "repl.key_format=flat16a").unwrap();
        assert_eq!(o.text("repl.key_format"), "flat16a");
        for bad in [
            "gcs.fc_factor=1.1",
            "gcs.max_throttle=1",
            "gcs.fc_limit=0",
            "repl.max_ws_size=1K",
            "repl.max_ws_size=4294967296",
            "pc.weight=256",
            "pc.weight=abc",
            "pc.ignore_sb=maybe",
            "repl.key_format=FLAT9",
            "evs.version=2",
            "evs.info_log_mask=-1",
            "repl.durability=memory",
            "socket.recv_buf_size=big",
            "evs.auto_evict=-2",
            "pc.weight=",
        ] {
            let before = o.print();
            assert!(set(&mut o, bad).is_err(), "{bad}");
            assert_eq!(o.print(), before, "{bad}");
        }
        let error = lines(set(&mut o, "cert.log_conflicts=maybe"));
        assert_eq!(
            error,
            ["Setting parameter 'cert.log_conflicts' to 'maybe' failed: Invalid value 'maybe' for boolean type."]
        );
    }

    #[test]
    fn the_user_window_stays_inside_the_window() {
        let mut o = options();
        assert!(set(&mut o, "evs.user_send_window=5").is_err());
        assert!(set(&mut o, "evs.send_window=1").is_err());
        assert!(set(&mut o, "evs.send_window=8; evs.user_send_window=5").is_ok());
        // At start the order of the pairs does not matter.
        started("evs.user_send_window=512; evs.send_window=1024");
    }

    #[test]
    fn our_own_options() {
        let mut o = started("pc.bootstrap_expect=3");
        assert_eq!((o.text("repl.durability"), o.int("pc.bootstrap_expect")), ("disk", 3));
        assert!(set(&mut o, "repl.durability=process").is_ok());
        assert!(set(&mut o, "pc.bootstrap_expect=2").is_err());
        assert!(!options().print().contains("bootstrap_expect"));
    }

    #[test]
    fn install_timeout_follows_inactive_timeout_until_it_is_set() {
        let o = started("evs.inactive_timeout=PT30S");
        assert_eq!(o.text("evs.install_timeout"), "PT15S");
        let o = started("evs.install_timeout=PT7S; evs.inactive_timeout=PT30S");
        assert_eq!(o.text("evs.install_timeout"), "PT7S");
    }

    fn with_address(node_address: &str, text: &str, uri_port: Option<u16>) -> Options {
        let mut o = Options::new(Defaults { data_dir: String::new(), node_address: node_address.into() });
        o.set_at_start(text).unwrap();
        o.set_uri_port(uri_port);
        o
    }

    #[test]
    fn the_listen_port_comes_from_the_first_source_that_names_one() {
        let port = |node, text, uri| {
            let o = with_address(node, text, uri);
            assert_eq!(o.listen().port, Some(o.base_port()));
            o.base_port()
        };
        assert_eq!(port("n", "", None), 4567);
        assert_eq!(port("n", "", Some(1)), 1);
        assert_eq!(port("n:2", "", Some(1)), 2);
        assert_eq!(port("n:2", "base_port=3", Some(1)), 3);
        assert_eq!(port("n:2", "base_port=3; gmcast.listen_addr=tcp://0.0.0.0:4", Some(1)), 4);
        assert_eq!(port("n:2", "base_port=3; gmcast.listen_addr=tcp://0.0.0.0", Some(1)), 3);
    }

    #[test]
    fn state_transfer_addresses_derive_from_host_and_base_port() {
        let o = with_address("10.0.0.1:5000", "", None);
        assert_eq!(o.ist_recv().to_string(), "10.0.0.1:5001");
        let o = with_address("[::1]:5000", "", None);
        assert_eq!((o.text("base_host"), o.ist_recv().to_string()), ("::1", "[::1]:5001".into()));
        assert_eq!(with_address("n", "ist.recv_addr=[::1]:7", None).ist_recv().to_string(), "[::1]:7");
    }

    #[test]
    fn hosts_that_mean_any_are_no_base_host() {
        assert_eq!(with_address("0.0.0.0:5000", "", None).text("base_host"), "");
        assert!(options().set_at_start("base_host=0.0.0.0").is_err());
        assert!(options().set_at_start("base_host=::").is_err());
    }

    #[test]
    fn tls_is_implied_by_key_or_certificate() {
        assert!(!options().tls());
        assert!(started("socket.ssl_key=k; socket.ssl_cert=c").tls());
        assert!(!started("socket.ssl=no; socket.ssl_key=k").tls());
        let tls = started("socket.ssl=yes; socket.ssl_key=k; socket.ssl_cert=c");
        assert_eq!(tls.text("gmcast.listen_addr"), "ssl://0.0.0.0:4567");
    }

    #[test]
    fn tls_needs_a_key_and_a_certificate() {
        for (given, missing) in [
            ("socket.ssl=yes", "socket.ssl_key"),
            ("socket.ssl=yes; socket.ssl_key=k", "socket.ssl_cert"),
            ("socket.ssl_cert=c", "socket.ssl_key"),
        ] {
            let errors = options().set_at_start(given).unwrap_err();
            assert!(matches!(&errors[..], [OptionError::Refused { name, .. }] if name == missing), "{errors:?}");
        }
        assert!(started("socket.dynamic=yes").text("socket.ssl_key").is_empty());
    }

    #[test]
    fn options_of_the_cluster_address_override_and_are_of_the_group() {
        let mut o = started("pc.weight=2");
        o.set_from_uri(&[("pc.weight".into(), "3".into())]).unwrap();
        assert_eq!(o.text("pc.weight"), "3");
        assert!(o.set_from_uri(&[("gcache.size".into(), "1M".into())]).is_err());
    }

    #[test]
    fn a_multicast_group_is_an_ipv4_address_of_one() {
        let group = |text: &str| started(text).multicast().map(|group| group.to_string());
        assert_eq!(group(""), None);
        assert_eq!(group("gmcast.mcast_port=5000"), None);
        assert_eq!(group("gmcast.mcast_addr=239.192.0.11"), Some("239.192.0.11:4567".to_owned()));
        let ported = "base_port=6000; gmcast.mcast_addr=239.192.0.11; gmcast.mcast_port=5000";
        assert_eq!(group(ported), Some("239.192.0.11:5000".to_owned()));
        for bad in ["10.0.0.1", "ff02::1", "host", "239.192.0.11:5000"] {
            let error = options().set_at_start(&format!("gmcast.mcast_addr={bad}")).unwrap_err();
            assert!(format!("{error:?}").contains("is no IPv4 multicast address"), "{error:?}");
        }
    }
}
