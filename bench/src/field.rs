//! The servers that points are measured on: starting them with settings that are the same but for the system, and asking them.

use crate::disks::{OwnDisk, Separate};
use crate::plan::{Deployment, Settings};
use crate::quota::Quotas;
use crate::record::Measured;
use crate::systems::{Kind, System};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trireme_cluster::{Cancel, ClusterGuard, Endpoint, NodeId, Session, Spec, SqlError, until};

/// The things that all points of a run have in common.
pub struct Context {
    pub settings: Settings,
    pub out: PathBuf,
    /// Where servers live.
    pub dir: PathBuf,
    pub base_port: u16,
    pub provider: PathBuf,
    pub galera: Option<PathBuf>,
    pub libraries: Vec<crate::harness::Subject>,
    /// The tree of MySQL's programs, or why there is none.
    pub mysql: Result<PathBuf, String>,
    /// With `--disks separate`.
    pub disks: Option<Separate>,
    pub cancel: Cancel,
}

/// Threads of each node that apply what others wrote.
pub const APPLIERS: u32 = 4;
/// A write waits for its replica for so long before it goes on without: as long as that, nothing is lost.
const SEMISYNC_TIMEOUT_MS: u32 = 10_000;
/// For what healthy servers do in moments.
const PATIENCE: Duration = Duration::from_secs(60);

impl Context {
    /// The shares of the processor, where they are asked for.
    pub fn quotas(&self) -> Result<Option<Quotas>, String> {
        self.settings.cpu_per_node.map(Quotas::new).transpose()
    }

    /// Keeps what a server was told, for the report.
    pub fn keep_settings(&self, file: &str, text: &str) -> Result<(), String> {
        let dir = self.out.join("settings");
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        crate::record::write_text(&dir.join(file), text)
    }

    /// The first server's, without what is secret. Servers with other options have a file of their own.
    fn keep_config(&self, field: &Field) -> Result<(), String> {
        let Some(node) = field.cluster.nodes().first() else { return Ok(()) };
        let path = node.config();
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("wsrep-sst-auth")).collect();
        let deployment = &field.deployment;
        let nodes = format!("n{}", deployment.nodes);
        let words = [vec![deployment.system.name(), nodes], deployment.options.clone()].concat();
        self.keep_settings(&format!("{}.cnf", words.join(".")), &(lines.join("\n") + "\n"))
    }

    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.settings.duration)
    }

    /// Before anything counts: a fifth of what counts.
    pub fn warmup(&self) -> Duration {
        Duration::from_secs_f64((self.settings.duration / 5.0).clamp(0.2, 5.0))
    }

    pub fn check_interrupted(&self) -> Result<(), String> {
        if self.cancel.is_set() { Err("interrupted".to_owned()) } else { Ok(()) }
    }

    /// Lines for every MariaDB server, whatever the system.
    pub fn common_options(&self) -> Vec<String> {
        let s = &self.settings;
        let clients = s.threads.iter().copied().max().unwrap_or(s.by_preset(64, 256, 1023));
        let mut options = vec![
            format!("innodb-buffer-pool-size={}", s.by_preset("64M", "256M", "1G")),
            format!("innodb-log-file-size={}", s.by_preset("32M", "128M", "512M")),
            format!("max-connections={}", clients + 100),
            "innodb-stats-persistent=OFF".to_owned(),
            // A client that fails to connect must not lock its host out.
            "max-connect-errors=1000000".to_owned(),
        ];
        options.extend(s.options.iter().cloned());
        options
    }

    /// A disk for a server that is none of a [`Field`], mounted on its directory; `None` where all share one.
    pub fn own_disk(&self, directory: &Path) -> Result<Option<OwnDisk>, String> {
        let Some(separate) = &self.disks else { return Ok(None) };
        let name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        separate.disk(&name, directory, self.settings.disk_mib()).map(Some)
    }

    /// Starts the servers.
    pub fn start(&self, deployment: &Deployment) -> Result<Field, String> {
        let system = deployment.system;
        let ours = matches!(system.kind(), Kind::Ours);
        let provider = match system.kind() {
            Kind::Galera => self.galera.as_deref().unwrap_or(Path::new("")),
            _ => &self.provider,
        };
        let mut spec = Spec::new(provider, self.dir.join("servers"));
        // As the rivals do it: what encryption costs is measured by `provider`.
        spec.secret = false;
        spec.nodes = deployment.nodes;
        spec.plain = matches!(system.kind(), Kind::Alone | Kind::Replicated { .. });
        spec.base_port = self.base_port;
        spec.name = format!("bench-{}", system.name());
        spec.cancel = self.cancel.clone();
        spec.netns = deployment.netns;
        spec.options = self.common_options();
        spec.options.push(format!("innodb-flush-log-at-trx-commit={}", system.flush()));
        if !spec.plain {
            spec.options.push(format!("wsrep-slave-threads={APPLIERS}"));
        }
        if ours {
            let durability = if system == System::TriremeProcess { "process" } else { "disk" };
            // The status names the sequencer, which some faults strike.
            spec.provider_options =
                format!("repl.durability={durability};repl.status_extended=yes;{}", self.settings.provider_options);
        }
        if system.has_null_backend() {
            spec.options.push("wsrep-cluster-address=dummy://".to_owned());
        }
        if let Kind::Replicated { semisync } = system.kind() {
            let synced = u8::from(system.flush() == 1);
            spec.options.extend(
                ["log-bin", "log-slave-updates", "relay-log=relay", "slave-parallel-mode=optimistic"]
                    .map(str::to_owned),
            );
            spec.options.push(format!("slave-parallel-threads={APPLIERS}"));
            spec.options.push(format!("sync-binlog={synced}"));
            spec.options.push(format!("sync-relay-log={synced}"));
            if semisync {
                spec.options.push("rpl-semi-sync-master-wait-point=AFTER_SYNC".to_owned());
                spec.options.push(format!("rpl-semi-sync-master-timeout={SEMISYNC_TIMEOUT_MS}"));
                // It has no effect on a primary, and a replica has it again after its death.
                spec.options.push("rpl-semi-sync-slave-enabled=ON".to_owned());
            }
        }
        spec.options.extend(deployment.options.iter().cloned());
        if let Some(separate) = &self.disks {
            spec.disks = Some(trireme_cluster::Disks {
                mib: self.settings.disk_mib(),
                images: Some(separate.images().to_owned()),
                ..trireme_cluster::Disks::of_data()
            });
        }
        let mut said = Vec::new();
        let started = ClusterGuard::up(&spec, &mut |line| said.push(line.to_owned()));
        let cluster = started.map_err(|error| match self.cancel.is_set() {
            true => "interrupted".to_owned(),
            false => format!("the servers of {} do not start: {error}", system.name()),
        })?;
        let mut field = Field { deployment: deployment.clone(), quotas: None, cluster };
        field.quotas = self.quotas()?;
        field.limit()?;
        self.keep_config(&field)?;
        if let Kind::Replicated { semisync } = system.kind() {
            field.replicate(semisync)?;
        }
        field.sql(1, "CREATE DATABASE IF NOT EXISTS bench")?;
        Ok(field)
    }
}

/// Servers that run. They end when this is dropped.
pub struct Field {
    pub deployment: Deployment,
    pub cluster: ClusterGuard,
    /// After the cluster, as fields are dropped in this order: a group that holds a process cannot be removed.
    quotas: Option<Quotas>,
}

impl Field {
    pub fn system(&self) -> System {
        self.deployment.system
    }

    /// Where clients that write go: every node of a group, else the first server. `count`: so many of them at most.
    pub fn writers(&self, count: usize) -> Vec<Endpoint> {
        let all = self.cluster.endpoints();
        let most = if self.system().is_group() { count.max(1) } else { 1 };
        all.into_iter().take(most).collect()
    }

    pub fn pids(&self) -> Vec<i32> {
        self.cluster.nodes().iter().filter_map(|node| node.pid).collect()
    }

    /// Puts every server that runs into its group of processes; again after each start.
    pub fn limit(&mut self) -> Result<(), String> {
        if let Some(quotas) = &mut self.quotas {
            for node in self.cluster.nodes() {
                if let Some(pid) = node.pid {
                    quotas.limit(node.id.raw(), pid)?;
                }
            }
        }
        Ok(())
    }

    pub fn id(&self, number: u8) -> Result<NodeId, String> {
        NodeId::new(number).ok_or_else(|| format!("no node {number}"))
    }

    pub fn sql(&self, number: u8, statement: &str) -> Result<trireme_cluster::Answer, String> {
        self.cluster.sql(self.id(number)?, statement).map_err(|e| format!("node{number}: {statement}: {e}"))
    }

    /// Runs it on every node on which it does not arrive by itself.
    pub fn sql_everywhere(&self, statement: &str) -> Result<(), String> {
        self.cluster.ids().iter().try_for_each(|id| self.sql(id.raw(), statement).map(drop))
    }

    /// An empty schema `bench`.
    pub fn fresh_schema(&self) -> Result<(), String> {
        self.sql(1, "DROP DATABASE IF EXISTS bench")?;
        self.sql(1, "CREATE DATABASE bench")?;
        self.settle()
    }

    /// Waits until every node has applied everything.
    pub fn settle(&self) -> Result<(), String> {
        match self.system().kind() {
            Kind::Ours | Kind::Galera if self.deployment.nodes > 1 => {
                for node in self.cluster.nodes() {
                    let mut session = self.cluster.session(node.id).map_err(|e| e.to_string())?;
                    for statement in ["SET wsrep_sync_wait=15", "SELECT COUNT(*) FROM information_schema.schemata"] {
                        session.query(statement).map_err(|e| format!("{}: {e}", node.id))?;
                    }
                }
                Ok(())
            }
            Kind::Replicated { .. } => {
                let position = self.sql(1, "SELECT @@gtid_binlog_pos")?.text().unwrap_or_default();
                for number in 2..=self.deployment.nodes {
                    let wait = format!("SELECT MASTER_GTID_WAIT('{position}', {})", PATIENCE.as_secs() - 5);
                    if self.sql(number, &wait)?.text().as_deref() != Some("0") {
                        return Err(format!("node{number} does not catch up with its primary"));
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Every table of the schema has the same contents on every node.
    pub fn compare(&self) -> Result<(), String> {
        if self.deployment.nodes > 1 {
            self.settle()?;
            trireme_cluster::wait_equal(&self.cluster.endpoints(), PATIENCE)
                .map_err(|e| format!("the nodes differ: {e}"))?;
        }
        Ok(())
    }

    /// Makes the first server the primary of the others.
    fn replicate(&self, semisync: bool) -> Result<(), String> {
        let primary = self.cluster.nodes().first().cloned().ok_or("no server")?;
        self.allow_tcp()?;
        for number in 2..=self.deployment.nodes {
            self.sql(number, "RESET MASTER")?;
            self.follow(number, 1)?;
        }
        if semisync {
            self.sql(1, "SET GLOBAL rpl_semi_sync_master_enabled=ON")?;
            let wanted = (self.deployment.nodes - 1).to_string();
            until("the replicas stand by", PATIENCE, self.cluster.cancel(), || {
                let answer = self.cluster.sql(primary.id, "SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'")?;
                let seen = answer.texts().first().and_then(|row| row.get(1).cloned()).unwrap_or_default();
                Ok(if seen == wanted { Ok(()) } else { Err(format!("{seen} of {wanted}")) })
            })
            .map_err(|e| e.to_string())?;
        }
        self.settle()
    }

    /// Makes one server the replica of another.
    pub fn follow(&self, number: u8, primary: u8) -> Result<(), String> {
        let primary = self.cluster.node(self.id(primary)?).map_err(|e| e.to_string())?;
        let change = format!(
            "CHANGE MASTER TO MASTER_HOST='{}', MASTER_PORT={}, MASTER_USER='root', MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=slave_pos",
            primary.address, primary.ports.sql
        );
        self.sql(number, &change)?;
        self.sql(number, "START SLAVE").map(drop)
    }

    /// Lets `root` in from this machine over TCP.
    pub fn allow_tcp(&self) -> Result<(), String> {
        const ACCOUNT: [&str; 2] = ["CREATE USER IF NOT EXISTS root@'127.%'", "GRANT ALL ON *.* TO root@'127.%'"];
        let everywhere = !self.system().is_group();
        for node in self.cluster.nodes().iter().take(if everywhere { usize::MAX } else { 1 }) {
            let mut session = self.cluster.session(node.id).map_err(|e| e.to_string())?;
            // Each server has its own: a replica would refuse what comes from two sides.
            let own = if everywhere { "SET sql_log_bin=0" } else { "DO 1" };
            for statement in [own, ACCOUNT[0], ACCOUNT[1]] {
                session.query(statement).map_err(|e| format!("{}: {statement}: {e}", node.id))?;
            }
        }
        if everywhere { Ok(()) } else { self.settle() }
    }

    /// Counters of the provider begin anew.
    pub fn reset_status(&self) -> Result<(), String> {
        if self.system().is_group() { self.sql_everywhere("FLUSH STATUS") } else { Ok(()) }
    }

    /// The provider's own words on what was just measured: the worst of all nodes, and the sum where counters add up.
    pub fn note_status(&self, into: &mut Measured) {
        if !self.system().is_group() {
            return;
        }
        let status = self.cluster.status();
        for (name, sums) in WSREP {
            let values = status.iter().filter_map(|node| node.variables.get(*name)?.parse::<f64>().ok());
            let all = if *sums { values.sum() } else { values.fold(0.0, f64::max) };
            into.set(*name, all);
        }
    }
}

/// A value that explains a throughput, and whether it is a sum over the nodes (else the highest).
pub const WSREP: &[(&str, bool)] = &[
    ("wsrep_flow_control_paused", false),
    ("wsrep_flow_control_sent", true),
    ("wsrep_local_recv_queue_avg", false),
    ("wsrep_local_send_queue_avg", false),
    ("wsrep_local_cert_failures", true),
    ("wsrep_local_bf_aborts", true),
    ("wsrep_cert_deps_distance", false),
];

/// Errors with which a transaction is asked to begin anew: deadlock, lock wait, changed row.
pub fn is_conflict(error: &SqlError) -> bool {
    matches!(error.code(), Some(1213 | 1205 | 1020))
}

/// Waits for a moment of a run, or until Ctrl-C.
pub fn pass_until(end: Instant, cancel: &Cancel) -> Result<(), String> {
    loop {
        if cancel.is_set() {
            return Err("interrupted".to_owned());
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

/// One answer's first value as a number.
pub fn count(session: &mut Session, sql: &str) -> Result<u64, String> {
    let answer = session.query(sql).map_err(|e| format!("{sql}: {e}"))?;
    answer.text().and_then(|text| text.parse().ok()).ok_or_else(|| format!("{sql}: no number"))
}
