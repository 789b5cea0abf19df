//! The options of a caller.

use crate::nemesis::Nemesis;
use crate::through::Through;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use trireme_cluster::Dice;
use trireme_cluster::{Cancel, Disks, Error, NodeId, Result, Settings, Spec, SstMethod};
use trireme_history::{BankRules, Header, Isolation};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    ListAppend,
    Bank,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Workload::ListAppend => "list-append",
            Workload::Bank => "bank",
        })
    }
}

impl FromStr for Workload {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let all = [Workload::ListAppend, Workload::Bank];
        let found = all.into_iter().find(|workload| workload.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is no workload: list-append or bank"))
    }
}

/// `repl.durability` of our provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    Disk,
    Process,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Disk => "disk",
            Durability::Process => "process",
        })
    }
}

impl FromStr for Durability {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "disk" => Ok(Durability::Disk),
            "process" => Ok(Durability::Process),
            _ => Err(format!("`{text}` is no durability: disk or process")),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    pub provider: PathBuf,
    pub nodes: u8,
    /// One plain server without a provider, for comparison.
    pub single: bool,
    pub workload: Workload,
    pub nemesis: Nemesis,
    pub through: Through,
    /// The `trireme` command, for `through`.
    pub balancer: Option<PathBuf>,
    pub clients: u32,
    /// Operations per second of all clients together; no client waits for another.
    pub rate: u32,
    pub duration: Duration,
    /// So many faults instead of a duration.
    pub rounds: Option<u32>,
    /// Mean time without a fault between two.
    pub quiet: Duration,
    /// Mean time that a fault lasts.
    pub fault: Duration,
    pub seed: u64,
    pub isolation: Isolation,
    /// `wsrep_sync_wait` of the clients' sessions.
    pub sync_wait: u8,
    /// `innodb_flush_log_at_trx_commit`.
    pub flush: u8,
    pub durability: Option<Durability>,
    /// `None`: drawn from the seed.
    pub settings: Option<Settings>,
    /// Servers of our provider are started as by MariaDB's service unit: a run with `--wsrep-recover` first, whose position they are told.
    /// Galera's always are.
    pub unit: bool,
    /// How long a node that no fault hits may go without a commit, instead of what each fault allows.
    pub gap_limit: Option<Duration>,
    /// Lines for every node's `my.cnf`.
    pub server_options: Vec<String>,
    pub provider_options: String,
    /// Where the cluster lives while it runs.
    pub dir: PathBuf,
    pub base_port: u16,
    /// Receives history, report and the servers' logs.
    pub out: PathBuf,
    pub cancel: Cancel,
}

/// Accounts are few, so that transfers meet.
pub(crate) const BANK: BankRules = BankRules { initial: 100, accounts: 8, negative_allowed: false };

impl Options {
    pub fn is_galera(&self) -> bool {
        self.provider.file_name().is_some_and(|name| name.to_string_lossy().contains("galera"))
    }

    /// The provider that ran, in a word.
    pub fn provider_name(&self) -> &'static str {
        match (self.single, self.is_galera()) {
            (true, _) => "single server",
            (false, true) => "Galera",
            (false, false) => "Trireme",
        }
    }

    pub(crate) fn spec(&self, dice: &mut Dice) -> Result<Spec> {
        let bad = |why: &str| Err(Error::BadSpec(why.to_owned()));
        if self.clients == 0 || self.rate == 0 {
            return bad("no clients or no rate: give both at least 1");
        }
        if self.single && !self.nemesis.fits_a_single_server() {
            return bad("--single has no cluster to cut: choose --nemesis none, kill-one, kill-all or pause");
        }
        if self.single && self.through != Through::Direct {
            return bad("a single server needs no balancer: leave --single or --through out");
        }
        if !self.single && self.nodes < 3 && self.nemesis != Nemesis::None {
            return bad("faults need three nodes or more, or there is no majority left: --nodes 3");
        }
        let mut provider_options = self.provider_options.clone();
        if let Some(durability) = self.durability {
            if self.is_galera() || self.single {
                return bad("--durability is an option of our provider only: leave it out");
            }
            provider_options = format!("repl.durability={durability};{provider_options}");
        }
        if self.is_volatile() && self.nemesis == Nemesis::PowerAll {
            return bad("--durability process promises nothing when all machines lose their power: choose disk");
        }
        if !self.is_galera() && !self.single {
            // Shows who orders.
            provider_options = format!("repl.status_extended=yes;{provider_options}");
        }
        if self.nemesis.wants_small_logs() {
            provider_options = format!("gcache.size=4M;{provider_options}");
        }
        let mut spec = Spec::new(&self.provider, &self.dir);
        if self.nemesis.takes_copies() {
            // Its script works for a while on what it has, which leaves time to disturb it.
            spec.sst = SstMethod::Mariabackup;
        }
        spec.nodes = if self.single { 1 } else { self.nodes };
        spec.plain = self.single;
        spec.base_port = self.base_port;
        spec.name = format!("chaos-{}", self.base_port);
        spec.provider_options = provider_options;
        spec.netns = self.nemesis.needs_network();
        spec.disks = self.nemesis.needs_disks().then(Disks::of_data);
        spec.cancel = self.cancel.clone();
        spec.options.push(format!("innodb-flush-log-at-trx-commit={}", self.flush));
        // A client that waits for a row is of no use here.
        spec.options.push("innodb-lock-wait-timeout=3".to_owned());
        if self.isolation == Isolation::Snapshot {
            spec.options.push("innodb-snapshot-isolation=ON".to_owned());
        }
        spec.options.extend(self.server_options.iter().cloned());
        // With a binary log the server settles prepared transactions by another way: some nodes have one, and some not.
        let first = 1 + dice.below(u64::from(spec.nodes)) as u8;
        for n in 1..=spec.nodes {
            if let Some(id) = NodeId::new(n).filter(|_| n == first || dice.one_in(2)) {
                let lines = ["log-bin", "log-slave-updates", "sync-binlog=0"];
                spec.node_options.insert(id, lines.map(str::to_owned).to_vec());
            }
        }
        spec.settings = self.settings();
        Ok(spec)
    }

    /// Where the servers find their settings. The draw is one of its own: a seed's other choices do not depend on it.
    pub(crate) fn settings(&self) -> Settings {
        let drawn = || if Dice::new(self.seed).one_in(2) { Settings::CommandLine } else { Settings::File };
        self.settings.unwrap_or_else(drawn)
    }

    /// Whether a commit is acknowledged before a majority has it on disk.
    pub(crate) fn is_volatile(&self) -> bool {
        self.durability == Some(Durability::Process)
    }

    pub(crate) fn header(&self) -> Header {
        let mut header = Header::new(self.isolation);
        header.causal = self.single || self.sync_wait != 0;
        header.single = self.single;
        header.bank = (self.workload == Workload::Bank).then_some(BANK);
        header.about = self.about();
        header
    }

    pub(crate) fn about(&self) -> String {
        let nodes = if self.single { "1 node".to_owned() } else { format!("{} nodes", self.nodes) };
        format!(
            "{}, {nodes}, {}, {}, {}, nemesis {}, flush={}, sync_wait={}, settings {}{}, seed {}",
            self.provider_name(),
            match self.through {
                Through::Direct => "clients on every node".to_owned(),
                through => format!("clients through {through}"),
            },
            self.workload,
            self.isolation,
            self.nemesis,
            self.flush,
            self.sync_wait,
            self.settings(),
            if self.unit { ", started as by the unit" } else { "" },
            self.seed
        )
    }

    pub(crate) fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.out.join(name)
    }
}
