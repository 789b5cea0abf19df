//! `trireme doctor`: what is wrong with a cluster, or will be, each with its reason and its remedy.
//!
//! Pure: everything that is judged comes in as [`Inputs`]; who gathers it is `examine`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::cluster::witness;
use crate::facts::{Facts, size};
use crate::survey::{Answer, Target};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know.
    Note,
    /// It will do harm some day.
    Warning,
    /// It does harm, or makes the switch fail.
    Error,
}

impl Severity {
    pub fn word(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// One thing that was found.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// One word, stable, for scripts.
    pub check: &'static str,
    /// Whose it is; empty: the cluster's.
    pub node: String,
    pub what: String,
    pub why: String,
    pub remedy: String,
}

/// A table that does not replicate well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    pub name: String,
    pub engine: String,
    pub primary_key: bool,
}

/// The facts that were found on this machine.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Local {
    /// Of the server here.
    pub node: String,
    pub disks: Vec<Disk>,
    pub files: Vec<SecretFile>,
    pub certificate: Option<Certificate>,
    /// systemd runs here, and the drop-in of the package is in place.
    pub drop_in: Option<bool>,
    /// Profiles of AppArmor that concern the server and are enforced.
    pub apparmor: Vec<String>,
    pub selinux: bool,
}

/// A directory that the server writes.
#[derive(Clone, PartialEq, Debug)]
pub struct Disk {
    pub place: String,
    pub file_system: String,
    pub free: u64,
    pub total: u64,
    /// Median and longest of some syncs of 4 KiB, in seconds. `None`: they were not tried.
    pub sync: Option<(f64, f64)>,
}

/// Something that nobody but the server may read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecretFile {
    pub option: &'static str,
    pub path: String,
    /// Permission bits, or why they are not known.
    pub mode: Result<u32, String>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Certificate {
    pub path: String,
    /// Days until it ends, or why that is not known.
    pub days: Result<i64, String>,
}

/// The purpose of a port, for those that connect to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To be in the group.
    Members,
    /// To send a full copy. Somebody listens there as long as one arrives.
    FullCopy,
    /// To send what a node missed (Galera). Somebody listens there as long as that arrives.
    CatchUp,
}

/// A port that was tried from this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    pub node: String,
    pub address: String,
    pub purpose: Purpose,
    /// Whether a connection gets there, or why not.
    pub outcome: Result<(), String>,
}

/// All that is judged.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    pub answers: Vec<(Target, Answer)>,
    /// `None`: they could not be asked for.
    pub tables: Option<Vec<Table>>,
    pub ports: Vec<Port>,
    pub local: Option<Local>,
    /// Before a switch from Galera.
    pub from_galera: bool,
}

/// The worst first.
pub fn examine(inputs: &Inputs) -> Vec<Finding> {
    let mut out = Findings::default();
    let members: Vec<&Facts> =
        inputs.answers.iter().filter_map(|(_, answer)| answer.as_ref().ok()).filter(|f| f.has_provider()).collect();
    for (target, answer) in &inputs.answers {
        if let Err(trouble) = answer {
            out.error(
                "answer",
                &target.to_string(),
                trouble.to_string(),
                "What this server has set could not be looked at.",
                "Start it, or give an account that it lets in (--user, --defaults-file).",
            );
        }
    }
    for facts in &members {
        server(&mut out, facts, inputs.from_galera);
        options(&mut out, facts, inputs.from_galera);
    }
    group(&mut out, &members);
    tables(&mut out, inputs.tables.as_deref());
    inputs.ports.iter().for_each(|tried| port(&mut out, tried));
    links(&mut out, &members);
    if let Some(local) = &inputs.local {
        machine(&mut out, local, &members);
    }
    out.list.sort_by(|a, b| (b.severity, a.check, &a.node).cmp(&(a.severity, b.check, &b.node)));
    out.list
}

#[derive(Default)]
struct Findings {
    list: Vec<Finding>,
}

impl Findings {
    fn add(&mut self, severity: Severity, check: &'static str, node: &str, what: String, why: &str, remedy: &str) {
        let (node, why, remedy) = (node.to_owned(), why.to_owned(), remedy.to_owned());
        self.list.push(Finding { severity, check, node, what, why, remedy });
    }

    fn error(&mut self, check: &'static str, node: &str, what: String, why: &str, remedy: &str) {
        self.add(Severity::Error, check, node, what, why, remedy);
    }

    fn warn(&mut self, check: &'static str, node: &str, what: String, why: &str, remedy: &str) {
        self.add(Severity::Warning, check, node, what, why, remedy);
    }

    fn note(&mut self, check: &'static str, node: &str, what: String, why: &str, remedy: &str) {
        self.add(Severity::Note, check, node, what, why, remedy);
    }
}

fn name(facts: &Facts) -> &str {
    facts.name().unwrap_or("?")
}

/// Settings of the server.
fn server(out: &mut Findings, facts: &Facts, from_galera: bool) {
    let node = name(facts);
    let is = |variable: &str, value: &str| facts.text(variable).is_some_and(|v| v.eq_ignore_ascii_case(value));
    if !is("binlog_format", "ROW") && facts.text("binlog_format").is_some() {
        out.error(
            "binlog-format",
            node,
            format!("binlog_format is {}", facts.text("binlog_format").unwrap_or_default()),
            "Write sets carry rows; with statements the nodes' data become different.",
            "Set binlog_format=ROW in my.cnf of every node.",
        );
    }
    if is("innodb_autoinc_lock_mode", "0") || is("innodb_autoinc_lock_mode", "1") {
        out.warn(
            "autoinc-lock-mode",
            node,
            "innodb_autoinc_lock_mode is not 2".to_owned(),
            "Appliers and clients wait for each other's table locks, up to deadlocks.",
            "Set innodb_autoinc_lock_mode=2 in my.cnf.",
        );
    }
    if facts.text("default_storage_engine").is_some() && !is("default_storage_engine", "InnoDB") {
        out.warn(
            "storage-engine",
            node,
            format!("default_storage_engine is {}", facts.text("default_storage_engine").unwrap_or_default()),
            "Only InnoDB tables replicate.",
            "Set default_storage_engine=InnoDB.",
        );
    }
    if is("innodb_doublewrite", "OFF") {
        out.warn(
            "doublewrite",
            node,
            "innodb_doublewrite is OFF".to_owned(),
            "A power loss can tear a page, and the node then needs a full copy.",
            "Switch it on, unless the file system writes pages as a whole (ZFS).",
        );
    }
    if facts.whole("innodb_force_recovery").is_some_and(|n| n > 0) {
        out.error(
            "force-recovery",
            node,
            "innodb_force_recovery is set".to_owned(),
            "The storage engine skips what it should do.",
            "Remove it, and take a full copy if the node does not start without.",
        );
    }
    if is("wsrep_osu_method", "RSU") {
        out.warn(
            "osu-method",
            node,
            "wsrep_OSU_method is RSU".to_owned(),
            "DDL is executed on this node only. A forgotten RSU makes the nodes' tables different.",
            "Set it for a session, and back to TOI.",
        );
    }
    if is("wsrep_certify_nonpk", "OFF") {
        out.warn(
            "certify-nonpk",
            node,
            "wsrep_certify_nonPK is OFF".to_owned(),
            "Changes of tables without a primary key are not compared, and two nodes may change one row.",
            "Set it ON.",
        );
    }
    if is("wsrep_desync", "ON") {
        out.warn(
            "desync",
            node,
            "wsrep_desync is ON".to_owned(),
            "The node may fall behind without limit.",
            "Set it OFF when the backup, or whatever it was for, is over.",
        );
    }
    if facts.whole("wsrep_slave_threads") == Some(1) {
        out.note(
            "slave-threads",
            node,
            "wsrep_slave_threads is 1".to_owned(),
            "One thread applies what all clients of the other nodes write.",
            "4 for each processor at most; begin with 4 to 8.",
        );
    }
    if let Some(address) = facts.text("wsrep_cluster_address") {
        let hosts = address.trim_start_matches("gcomm://").split('?').next().unwrap_or_default();
        if hosts.is_empty() {
            out.warn(
                "cluster-address",
                node,
                "wsrep_cluster_address names no node (gcomm://)".to_owned(),
                "Where it stands so in my.cnf, every start begins a cluster of its own.",
                "Name all nodes there; begin a cluster once with --wsrep-new-cluster.",
            );
        } else if hosts.split(',').count() == 1 && facts.whole("wsrep_cluster_size").is_some_and(|n| n > 1) {
            out.note(
                "cluster-address",
                node,
                format!("wsrep_cluster_address names one node only: {hosts}"),
                "While that node is down, this one finds nobody at its start.",
                "Name all nodes.",
            );
        }
    }
    let flush = facts.text("innodb_flush_log_at_trx_commit").unwrap_or("1");
    if flush != "1" && is("log_bin", "ON") {
        out.note(
            "flush-and-binlog",
            node,
            format!("innodb_flush_log_at_trx_commit is {flush}, and there is a binary log"),
            "After a crash the binary log may hold what InnoDB lost; the node recovers from the write-set log, and asynchronous replicas may be ahead of it.",
            "docs/durability.md says what replicas need. Without replicas: nothing.",
        );
    }
    if flush != "1" && !facts.is_trireme() && from_galera {
        out.note(
            "flush",
            node,
            format!("innodb_flush_log_at_trx_commit is {flush}"),
            "Galera can lose commits then, when all nodes lose their power. With repl.durability=disk Trireme does not.",
            "Nothing.",
        );
    }
    if let Some(version) = facts.text("version") {
        let found = match support(version) {
            Support::Tried => None,
            Support::Expected => Some((
                Severity::Note,
                "The interface for the library is the same as that of 10.11 and 11.8, and nothing was run with it.",
                "Try it on a copy first.",
            )),
            Support::Unknown => Some((
                Severity::Warning,
                "It is not known whether the interface for the library is the same.",
                "Take a series that docs/operations/versions.md names, or try it on a copy first.",
            )),
            Support::TooOld => Some((
                Severity::Error,
                "The interface for the library (wsrep API 26) lacks what streaming and brute-force aborts need.",
                "Upgrade the server first, as it is done with Galera.",
            )),
        };
        if let Some((severity, why, remedy)) = found {
            out.add(severity, "server-version", node, format!("MariaDB {version}"), why, remedy);
        }
    }
}

/// The word of docs/operations/versions.md for a series of MariaDB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Support {
    Tried,
    /// The interface was compared, or lies between two that were.
    Expected,
    Unknown,
    TooOld,
}

/// `version`: as the server tells it, `10.11.19-MariaDB`.
fn support(version: &str) -> Support {
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    match (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) {
        (10, 11) | (11, 8) => Support::Tried,
        series if series < (10, 6) => Support::TooOld,
        series if series < (12, 0) => Support::Expected,
        _ => Support::Unknown,
    }
}

/// The options' page says which have no effect; a test elsewhere holds it to the table of options.
const PAGE: &str = include_str!("../../../docs/operations/options.md");

/// Name, default and reason of the options that are accepted without effect.
fn without_effect() -> BTreeMap<&'static str, (&'static str, &'static str)> {
    let row = |line: &'static str| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let option = cells.next()?.trim_end_matches('`');
        let default = cells.next()?.trim_matches('`');
        let (_, reason) = cells.last()?.split_once("accepted, without effect: ")?;
        Some((option, (default, reason.trim_end_matches([' ', '|']))))
    };
    PAGE.lines().filter_map(row).collect()
}

/// Options of the provider.
fn options(out: &mut Findings, facts: &Facts, from_galera: bool) {
    let node = name(facts);
    let options = facts.options();
    let yes = |name: &str| {
        options.get(name).is_some_and(|v| ["yes", "true", "on", "1"].contains(&v.to_ascii_lowercase().as_str()))
    };
    for option in ["pc.ignore_sb", "pc.ignore_quorum"] {
        if yes(option) {
            out.error(
                "ignore-quorum",
                node,
                format!("{option} is set"),
                "After a cut both parts take writes, and the data of one of them are thrown away later.",
                "Remove it. For two servers use an arbitrator (`trireme arbitrate`).",
            );
        }
    }
    if options.contains_key("pc.recovery") && !yes("pc.recovery") {
        out.warn(
            "pc-recovery",
            node,
            "pc.recovery is off".to_owned(),
            "After a stop of all nodes somebody has to decide by hand which one begins.",
            "Remove it.",
        );
    }
    if options.get("pc.weight").is_some_and(|weight| weight == "0") {
        out.note(
            "weight",
            node,
            "pc.weight is 0".to_owned(),
            "This node does not count for a majority.",
            "Nothing, if that is meant.",
        );
    }
    if yes("socket.dynamic") {
        out.warn(
            "tls-optional",
            node,
            "socket.dynamic is on".to_owned(),
            "Peers in clear text are taken too: meant for the change to TLS only.",
            "Remove it when all nodes speak TLS.",
        );
    }
    if facts.is_trireme() || from_galera {
        let none = without_effect();
        let set: Vec<String> = options
            .iter()
            .filter_map(|(option, value)| {
                let (default, reason) = none.get(option.as_str())?;
                let plain = value.is_empty() || value == default || *default == "derived or empty";
                (!plain && !same_value(value, default)).then(|| format!("{option}={value} ({reason})"))
            })
            .collect();
        if !set.is_empty() {
            out.note(
                "no-effect",
                node,
                format!("options without effect in Trireme: {}", set.join("; ")),
                "They are accepted, so that Galera's configuration works as it is.",
                "Remove them when the switch is done.",
            );
        }
    }
    if from_galera && !facts.is_trireme() {
        if let Some(bytes) = options.get("gcache.size").and_then(|text| size(text)) {
            out.note(
                "gcache-size",
                node,
                format!("gcache.size is {}", crate::table::bytes(bytes)),
                "In Trireme a given size bounds the write-set log; without one it keeps what members that are away need, up to a quarter of the free space.",
                "Leave it out, unless the disk is small.",
            );
        }
        if yes("socket.ssl") || options.get("socket.ssl_cert").is_some_and(|cert| !cert.is_empty()) {
            out.note(
                "tls-usage",
                node,
                "TLS between the members is on".to_owned(),
                "Trireme verifies both ends: certificates need serverAuth and clientAuth, if they have an extended key usage at all.",
                "Look with: openssl x509 -noout -ext extendedKeyUsage -in FILE",
            );
        }
    }
}

/// `PT1S` and `1`, `yes` and `true`, `128M` and bytes.
fn same_value(one: &str, other: &str) -> bool {
    let plain = |text: &str| match text.to_ascii_lowercase().as_str() {
        "yes" | "on" | "true" => "1".to_owned(),
        "no" | "off" | "false" => "0".to_owned(),
        text => size(text).map_or_else(|| text.to_owned(), |n| n.to_string()),
    };
    plain(one) == plain(other)
}

/// The checks of all nodes together.
fn group(out: &mut Findings, members: &[&Facts]) {
    let differ = |variable: &str| -> Option<Vec<String>> {
        let all: BTreeSet<&str> = members.iter().filter_map(|facts| facts.text(variable)).collect();
        (all.len() > 1).then(|| all.into_iter().map(str::to_owned).collect())
    };
    if let Some(providers) = differ("wsrep_provider_name") {
        out.error(
            "mixed-providers",
            "",
            format!("the servers load different providers: {}", providers.join(", ")),
            "Galera and Trireme do not talk to each other: these are two clusters.",
            "Stop all nodes, change wsrep_provider on all, and start them.",
        );
    }
    if let Some(versions) = differ("wsrep_provider_version") {
        out.warn(
            "provider-versions",
            "",
            format!("versions of the provider differ: {}", versions.join(", ")),
            "That is meant for the time of an upgrade.",
            "Upgrade the others.",
        );
    }
    if let Some(versions) = differ("version") {
        out.note(
            "server-versions",
            "",
            format!("versions of the server differ: {}", versions.join(", ")),
            "A node with an older version may not take a full copy from a newer one, nor all its statements.",
            "Upgrade the others.",
        );
    }
    if let Some(names) = differ("wsrep_cluster_name") {
        out.error(
            "cluster-name",
            "",
            format!("these servers are of different clusters: {}", names.join(", ")),
            "Nodes join by name.",
            "Give all nodes of one cluster the same wsrep_cluster_name.",
        );
    }
    for variable in ["character_set_server", "wsrep_sst_method"] {
        if let Some(values) = differ(variable) {
            out.note(
                "settings-differ",
                "",
                format!("{variable} differs: {}", values.join(", ")),
                "Nodes of one cluster should be alike.",
                "Set the same everywhere.",
            );
        }
    }
    let names: Vec<&str> = members.iter().map(|facts| name(facts)).collect();
    let twice: BTreeSet<&&str> = names.iter().filter(|n| names.iter().filter(|other| other == n).count() > 1).collect();
    if !twice.is_empty() {
        let list: Vec<&str> = twice.into_iter().copied().collect();
        out.warn(
            "node-names",
            "",
            format!("several nodes have the name {}", list.join(", ")),
            "Status, logs and donor lists tell nodes by name.",
            "Give each node its own wsrep_node_name.",
        );
    }
    for facts in members {
        if facts.text("wsrep_trireme_authentication") == Some("none") {
            out.error(
                "authentication",
                name(facts),
                "everybody who reaches the port for members is let in".to_owned(),
                "Such a stranger reads and changes all data, as a superuser of every server.",
                "trireme secret new /etc/mysql/trireme.secret, copy it to every node, and set repl.secret_file; or use TLS with certificates.",
            );
        }
        if let Some((ahead, _)) = facts.clock.filter(|(ahead, error)| ahead.abs() > error + 1.0) {
            let way = if ahead > 0.0 { "ahead of" } else { "behind" };
            out.warn(
                "clock",
                name(facts),
                format!("its clock is {:.1} s {way} this machine's", ahead.abs()),
                "Nothing in the cluster depends on clocks, but logs cannot be compared, and certificates may seem to have ended.",
                "Run chrony or systemd-timesyncd on all machines.",
            );
        }
        if facts.is_primary() && facts.whole("wsrep_local_state") != Some(4) {
            out.warn(
                "state",
                name(facts),
                format!("its state is {}", facts.text("wsrep_local_state_comment").unwrap_or("not known")),
                "It does not serve as a synced node does.",
                "`trireme status`, `trireme explain --log` its error log.",
            );
        }
    }
    let Some(voters) = witness(members).map(Facts::voters).filter(|voters| !voters.is_empty()) else { return };
    let total: u64 = voters.iter().map(|(_, weight)| weight).sum();
    if voters.len() == 2 {
        out.warn(
            "two-voters",
            "",
            "there are two voters".to_owned(),
            "The failure of either stops the cluster, since one of two is no majority.",
            "Add a third server, or an arbitrator (`trireme arbitrate`).",
        );
    } else if voters.iter().any(|(_, weight)| 2 * weight > total) && voters.len() > 1 {
        out.warn(
            "one-heavy-voter",
            "",
            "one voter has more than half of all votes".to_owned(),
            "Its failure stops the cluster, whatever the others do.",
            "Give weights (pc.weight) so that no node has half of them.",
        );
    } else if voters.len().is_multiple_of(2) {
        out.note(
            "even-voters",
            "",
            format!("the number of voters is even: {}", voters.len()),
            "It survives no more failures than with one voter less.",
            "Add one, or an arbitrator.",
        );
    }
}

fn port(out: &mut Findings, tried: &Port) {
    let Err(reason) = &tried.outcome else { return };
    let (check, what, why) = match tried.purpose {
        Purpose::Members => (
            "port",
            "port for members",
            "Members connect to each other there; one that is not reached is out of the group.",
        ),
        Purpose::FullCopy => (
            "transfer-port",
            "port for full copies",
            "The donor of a full copy connects to it there. Without it this node cannot join when it needs one.",
        ),
        Purpose::CatchUp => (
            "transfer-port",
            "port for what it missed (IST)",
            "A donor connects to it there when it comes back. Without it this node needs a full copy each time. Trireme uses the port for members.",
        ),
    };
    let what = format!("the {what}, {}, cannot be reached from this machine: {reason}", tried.address);
    let remedy = "Open it in the firewall for all members. If this machine is none of them, try from one that is.";
    out.error(check, &tried.node, what, why, remedy);
}

/// Between members that both answer. Their own word is worth more than any try from here.
fn links(out: &mut Findings, members: &[&Facts]) {
    let tells: Vec<&&Facts> = members.iter().filter(|facts| facts.is_primary() && facts.is_extended()).collect();
    for (place, one) in tells.iter().enumerate() {
        for other in &tells[place + 1..] {
            let same = |variable: &str| one.text(variable) == other.text(variable);
            let has = |facts: &Facts, peer: &str| facts.linked().iter().any(|linked| linked == peer);
            if !same("wsrep_cluster_state_uuid") || name(one) == name(other) {
                continue;
            }
            if !has(one, name(other)) && !has(other, name(one)) {
                out.warn(
                    "link",
                    "",
                    format!("{} and {} have no connection with each other", name(one), name(other)),
                    "What one of them writes has to take a way round by the others, and each takes the other for lost when these fail.",
                    "Open the port for members (4567) between the two machines, in both directions. Their error logs say why a connection fails.",
                );
            }
        }
    }
}

/// As many names as are told; the rest is counted.
const NAMES_MAX: usize = 10;

fn tables(out: &mut Findings, tables: Option<&[Table]>) {
    let Some(tables) = tables else {
        return out.note(
            "tables",
            "",
            "the tables could not be looked at".to_owned(),
            "That needs a server in the primary component, and an account that may read information_schema for all schemas.",
            "Give another account.",
        );
    };
    let list = |those: &[&Table]| {
        let mut names: Vec<String> = those.iter().take(NAMES_MAX).map(|table| table.name.clone()).collect();
        if those.len() > NAMES_MAX {
            names.push(format!("and {} more", those.len() - NAMES_MAX));
        }
        names.join(", ")
    };
    let plain: Vec<&Table> = tables.iter().filter(|table| !table.engine.eq_ignore_ascii_case("InnoDB")).collect();
    if !plain.is_empty() {
        out.error(
            "not-transactional",
            "",
            format!("tables that are not InnoDB's: {}", list(&plain)),
            "Their rows are not replicated, so they differ on the nodes.",
            "ALTER TABLE … ENGINE=InnoDB. Tables of the schema mysql are replicated by their statements, and are not listed.",
        );
    }
    let keyless: Vec<&Table> =
        tables.iter().filter(|table| table.engine.eq_ignore_ascii_case("InnoDB") && !table.primary_key).collect();
    if !keyless.is_empty() {
        out.warn(
            "no-primary-key",
            "",
            format!("tables without a primary key: {}", list(&keyless)),
            "Each change of a row makes appliers read the whole table, and equal rows cannot be told apart.",
            "ALTER TABLE … ADD PRIMARY KEY, or an AUTO_INCREMENT column with one.",
        );
    }
}

fn machine(out: &mut Findings, local: &Local, members: &[&Facts]) {
    let node = local.node.as_str();
    for disk in &local.disks {
        let Disk { place, file_system, free, total, sync } = disk;
        if ["tmpfs", "ramfs", "overlay"].contains(&file_system.as_str()) {
            out.warn(
                "file-system",
                node,
                format!("{place} is on {file_system}"),
                "What is written there does not outlive the machine, or the container.",
                "Put data and write-set log on a disk or a volume.",
            );
        } else if ["nfs", "nfs4", "cifs", "fuse"].iter().any(|fs| file_system.starts_with(fs)) {
            out.warn(
                "file-system",
                node,
                format!("{place} is on {file_system}"),
                "Syncs over a network are slow, and may not hold what they promise.",
                "Put data and write-set log on a local disk.",
            );
        }
        if *free < 1 << 30 || *free * 20 < *total {
            out.warn(
                "free-space",
                node,
                format!("{} are free in {place}, of {}", crate::table::bytes(*free), crate::table::bytes(*total)),
                "A node whose write-set log cannot grow leaves the group.",
                "Make room.",
            );
        }
        if let Some((median, longest)) = sync.filter(|(median, longest)| *median > 0.01 || *longest > 0.1) {
            let severity = if median > 0.1 { Severity::Error } else { Severity::Warning };
            out.add(
                severity,
                "sync-time",
                node,
                format!("a sync in {place} takes {:.1} ms, the longest took {:.1} ms", median * 1e3, longest * 1e3),
                "With repl.durability=disk each commit waits for a sync of a majority.",
                "A disk with a write cache that is safe against power loss; or repl.durability=process, with what docs/durability.md says of it.",
            );
        }
    }
    for file in &local.files {
        match &file.mode {
            Ok(mode) if mode & 0o077 != 0 => out.error(
                "secret-mode",
                node,
                format!("{} ({}) can be read by others: mode {:04o}", file.path, file.option, mode & 0o7777),
                "Whoever reads it can join the cluster.",
                "chmod 600, owner: the user that the server runs as.",
            ),
            Ok(_) => {}
            Err(why) => out.warn(
                "secret-file",
                node,
                format!("{} ({}): {why}", file.path, file.option),
                "It was not looked at. If the server cannot read it either, its next start fails.",
                "Run this as the server's user, or as root.",
            ),
        }
    }
    if let Some(certificate) = &local.certificate {
        let path = &certificate.path;
        match &certificate.days {
            Ok(days) if *days < 0 => out.error(
                "certificate",
                node,
                format!("the certificate {path} ended {} days ago", -days),
                "Peers refuse this node.",
                "Put a new one in its place, and SET GLOBAL wsrep_provider_options='socket.ssl_reload=1'.",
            ),
            Ok(days) if *days < 30 => out.warn(
                "certificate",
                node,
                format!("the certificate {path} ends in {days} days"),
                "Peers refuse this node from then on.",
                "Put a new one in its place, and SET GLOBAL wsrep_provider_options='socket.ssl_reload=1'.",
            ),
            Ok(_) => {}
            Err(why) => out.warn(
                "certificate",
                node,
                format!("the certificate {path}: {why}"),
                "It was not looked at.",
                "Run this as the server's user, or as root.",
            ),
        }
    }
    let flush = members.iter().any(|facts| facts.text("innodb_flush_log_at_trx_commit").is_some_and(|v| v != "1"));
    if local.drop_in == Some(false) {
        out.add(
            if flush { Severity::Warning } else { Severity::Note },
            "service-unit",
            node,
            "the drop-in for mariadb.service is not there".to_owned(),
            "The stock unit looks for the position with the binary log open, which is wrong with innodb_flush_log_at_trx_commit 0 or 2; and it gives up \
             waiting for the other nodes after a time.",
            "`make install`, or the package, puts mariadb.service.d/trireme.conf in place; then systemctl daemon-reload.",
        );
    }
    if !local.apparmor.is_empty() {
        out.note(
            "apparmor",
            node,
            format!("AppArmor confines the server: {}", local.apparmor.join(", ")),
            "The profile has to allow the library, the ports of the group, and running mariadbd --wsrep-recover.",
            "If the server cannot load the library or listen: look for `apparmor=\"DENIED\"` in the kernel log.",
        );
    }
    if local.selinux {
        out.note(
            "selinux",
            node,
            "SELinux is enforced".to_owned(),
            "The server may load libraries from labelled places only, and listen at known ports only.",
            "semanage port -a -t mysqld_port_t -p tcp 4567; restorecon on the library; look for `avc: denied`.",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Trouble;
    use crate::facts::tests::facts;

    fn member(more: &[(&str, &str)]) -> Facts {
        let mut facts = facts(&[
            ("wsrep_provider_name", "Trireme"),
            ("wsrep_on", "ON"),
            ("wsrep_node_name", "db1"),
            ("wsrep_cluster_status", "Primary"),
            ("wsrep_local_state", "4"),
            ("wsrep_trireme_role", "voter"),
            ("wsrep_trireme_voters", "db1:1,db2:1,db3:1"),
            ("version", "10.11.19-MariaDB"),
            ("binlog_format", "ROW"),
        ]);
        for (name, value) in more {
            facts.status.insert((*name).to_owned(), (*value).to_owned());
        }
        facts
    }

    fn checks(inputs: &Inputs) -> Vec<&'static str> {
        examine(inputs).into_iter().map(|finding| finding.check).collect()
    }

    fn of(members: Vec<Facts>) -> Inputs {
        let answers = members.into_iter().map(|facts| (Target::Default, Ok(facts))).collect();
        Inputs { answers, tables: Some(Vec::new()), ..Inputs::default() }
    }

    #[test]
    fn nothing_is_found_where_nothing_is_wrong() {
        assert_eq!(examine(&of(vec![member(&[])])), []);
    }

    #[test]
    fn each_check_finds_its_fault() {
        let cases: &[(&str, &[(&str, &str)])] = &[
            ("binlog-format", &[("binlog_format", "MIXED")]),
            ("autoinc-lock-mode", &[("innodb_autoinc_lock_mode", "1")]),
            ("storage-engine", &[("default_storage_engine", "Aria")]),
            ("doublewrite", &[("innodb_doublewrite", "OFF")]),
            ("force-recovery", &[("innodb_force_recovery", "3")]),
            ("osu-method", &[("wsrep_osu_method", "RSU")]),
            ("certify-nonpk", &[("wsrep_certify_nonpk", "OFF")]),
            ("desync", &[("wsrep_desync", "ON")]),
            ("slave-threads", &[("wsrep_slave_threads", "1")]),
            ("cluster-address", &[("wsrep_cluster_address", "gcomm://")]),
            ("cluster-address", &[("wsrep_cluster_address", "gcomm://a"), ("wsrep_cluster_size", "3")]),
            ("flush-and-binlog", &[("innodb_flush_log_at_trx_commit", "2"), ("log_bin", "ON")]),
            ("server-version", &[("version", "10.3.39-MariaDB")]),
            ("ignore-quorum", &[("wsrep_provider_options", "pc.ignore_sb = true;")]),
            ("pc-recovery", &[("wsrep_provider_options", "pc.recovery = no;")]),
            ("weight", &[("wsrep_provider_options", "pc.weight = 0;")]),
            ("tls-optional", &[("wsrep_provider_options", "socket.dynamic = yes;")]),
            ("no-effect", &[("wsrep_provider_options", "evs.send_window = 512; evs.user_send_window = 2;")]),
            ("authentication", &[("wsrep_trireme_authentication", "none")]),
            ("state", &[("wsrep_local_state", "2")]),
            ("two-voters", &[("wsrep_trireme_voters", "db1:1,db2:1")]),
            ("one-heavy-voter", &[("wsrep_trireme_voters", "db1:3,db2:1,db3:1")]),
            ("even-voters", &[("wsrep_trireme_voters", "a:1,b:1,c:1,d:1")]),
        ];
        for (check, settings) in cases {
            assert_eq!(checks(&of(vec![member(settings)])), [*check], "{settings:?}");
        }
    }

    #[test]
    fn versions_are_judged_as_the_page_on_them_does() {
        const PAGE: &str = include_str!("../../../docs/operations/versions.md");
        let row = |line: &'static str| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let series = cells.get(1)?.split(' ').next()?;
            Some((series, *cells.get(2)?)).filter(|(series, _)| series.starts_with(|c: char| c.is_ascii_digit()))
        };
        let table = PAGE.split("## ").next().unwrap();
        let rows: Vec<(&str, &str)> = table.lines().filter_map(row).collect();
        assert!(rows.len() >= 6, "{rows:?}");
        for (series, state) in rows {
            let expected = match state {
                "supported" => None,
                "expected to work" => Some(Severity::Note),
                "unknown" => Some(Severity::Warning),
                "no" => Some(Severity::Error),
                other => panic!("{series}: {other}"),
            };
            let version = format!("{series}.7-MariaDB-log");
            let found = examine(&of(vec![member(&[("version", &version)])]));
            let severities: Vec<Severity> = found.iter().map(|finding| finding.severity).collect();
            assert_eq!(severities, expected.into_iter().collect::<Vec<_>>(), "{series}");
        }
        for (version, expected) in [
            ("10.4.34-MariaDB", Support::TooOld),
            ("11.0.2-MariaDB", Support::Expected),
            ("12.0.1-MariaDB", Support::Unknown),
            ("no version", Support::TooOld),
        ] {
            assert_eq!(support(version), expected, "{version}");
        }
    }

    #[test]
    fn options_without_effect_are_those_of_the_page() {
        let none = without_effect();
        assert!(none.len() > 30 && none["evs.send_window"].0 == "4", "{none:?}");
        assert!(!none.contains_key("pc.weight"));
        let found = examine(&of(vec![member(&[("wsrep_provider_options", "evs.send_window = 512; pc.weight = 1;")])]));
        assert!(found[0].what.contains("evs.send_window=512") && !found[0].what.contains("pc.weight"), "{found:?}");
    }

    #[test]
    fn nodes_that_do_not_fit_together() {
        let mut other = member(&[("wsrep_provider_name", "Galera"), ("wsrep_cluster_name", "b")]);
        other.clock = Some((-20.0, 0.1));
        let found = checks(&of(vec![member(&[("wsrep_cluster_name", "a")]), other]));
        assert_eq!(found, ["cluster-name", "mixed-providers", "clock", "node-names"]);
    }

    #[test]
    fn before_a_switch() {
        let galera = member(&[
            ("wsrep_provider_name", "Galera"),
            ("innodb_flush_log_at_trx_commit", "0"),
            ("wsrep_provider_options", "gcache.size = 10G; socket.ssl = YES; gcs.max_throttle = 0.5;"),
        ]);
        let inputs = Inputs { from_galera: true, ..of(vec![galera]) };
        assert_eq!(checks(&inputs), ["flush", "gcache-size", "no-effect", "tls-usage"]);
    }

    #[test]
    fn tables_ports_and_servers_that_do_not_answer() {
        let table =
            |name: &str, engine: &str, primary_key| Table { name: name.into(), engine: engine.into(), primary_key };
        let mut inputs = of(vec![member(&[])]);
        inputs.tables = Some(vec![table("d.a", "MyISAM", true), table("d.b", "InnoDB", false)]);
        let port = |purpose, outcome| Port { node: "db2".into(), address: "10.0.0.2:1".into(), purpose, outcome };
        let closed = || Err("it does not answer".to_owned());
        inputs.ports = vec![
            port(Purpose::Members, closed()),
            port(Purpose::FullCopy, closed()),
            port(Purpose::CatchUp, closed()),
            port(Purpose::Members, Ok(())),
        ];
        inputs.answers.push((Target::Default, Err(Trouble::Silent)));
        let found = ["answer", "not-transactional", "port", "transfer-port", "transfer-port", "no-primary-key"];
        assert_eq!(checks(&inputs), found);
        inputs.tables = None;
        assert!(checks(&inputs).contains(&"tables"));
    }

    #[test]
    fn members_without_a_connection_are_told_once() {
        let member = |name: &str, trips: &str, more: &[(&str, &str)]| {
            let own = [("wsrep_node_name", name), ("wsrep_trireme_round_trips", trips)];
            member(&[&own[..], more].concat())
        };
        let whole = [member("a", "b:0.1,c:0.1", &[]), member("b", "a:0.1,c:0.1", &[]), member("c", "a:0.1,b:0.1", &[])];
        assert_eq!(checks(&of(whole.to_vec())), <[&str; 0]>::default());
        let [a, ..] = whole;
        let cut = of(vec![a, member("b", "a:0.1", &[]), member("c", "a:0.1", &[])]);
        let found = examine(&cut);
        let [finding] = &found[..] else { panic!("{found:?}") };
        assert_eq!((finding.check, &*finding.what), ("link", "b and c have no connection with each other"));
        // Another group, one that is out of it, and one that tells nothing: it is not known.
        for more in
            [("wsrep_cluster_state_uuid", "x"), ("wsrep_cluster_status", "non-Primary"), ("wsrep_trireme_role", "")]
        {
            let found = examine(&of(vec![member("b", "", &[]), member("c", "", &[more])]));
            assert!(found.iter().all(|finding| finding.check != "link"), "{more:?}: {found:?}");
        }
    }

    /// A check on what nobody asks for finds nothing.
    #[test]
    fn servers_are_asked_for_all_that_is_judged() {
        const OWN: &str = include_str!("doctor.rs");
        let code = OWN.split_once("mod tests {").unwrap().0;
        let words = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '"');
        let variables = words.filter_map(|word| word.strip_prefix('"')?.strip_suffix('"'));
        let asked = |variable: &&str| {
            ["wsrep_", "innodb_flush_log"].iter().any(|prefix| variable.starts_with(prefix))
                || crate::facts::ASK.replace('\\', "").contains(&format!("'{variable}'"))
        };
        let known = ["binlog_", "innodb_", "log_", "default_", "character_", "version"];
        let judged: Vec<&str> = variables.filter(|word| known.iter().any(|known| word.starts_with(known))).collect();
        assert!(judged.len() >= 8, "{judged:?}");
        let missing: Vec<&&str> = judged.iter().filter(|variable| !asked(variable)).collect();
        assert_eq!(missing, <[&&str; 0]>::default());
    }

    #[test]
    fn this_machine() {
        let disk = Disk {
            place: "/data".into(),
            file_system: "tmpfs".into(),
            free: 1 << 20,
            total: 1 << 40,
            sync: Some((0.2, 0.5)),
        };
        let file = |mode| SecretFile { option: "repl.secret_file", path: "/s".into(), mode };
        let local = Local {
            node: "db1".into(),
            disks: vec![disk],
            files: vec![file(Ok(0o644)), file(Err("Permission denied".into())), file(Ok(0o600))],
            certificate: Some(Certificate { path: "/c".into(), days: Ok(-3) }),
            drop_in: Some(false),
            apparmor: vec!["mariadbd".into()],
            selinux: true,
        };
        let inputs = Inputs { local: Some(local), ..of(vec![member(&[])]) };
        assert_eq!(
            checks(&inputs),
            [
                "certificate",
                "secret-mode",
                "sync-time",
                "file-system",
                "free-space",
                "secret-file",
                "apparmor",
                "selinux",
                "service-unit"
            ]
        );
    }
}
