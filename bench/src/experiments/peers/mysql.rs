//! MySQL Group Replication with one primary. The clients go to it, as MySQL's own router leads them.

use super::deaths::{self, Mortal};
use super::{SIZE, numbers_of_clients};
use crate::disks::OwnDisk;
use crate::field::{APPLIERS, Context, pass_until};
use crate::mysql::{DATA, SERVER, USER, inside};
use crate::plan::Point;
use crate::probe;
use crate::quota::Quotas;
use crate::record::Measured;
use crate::survivors::{self, Door, Doors, Row, TABLE, Writer, rows_there};
use crate::systems::System;
use crate::tool::{self, Tool};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use trireme_cluster::{Answer, Session};

const LIMIT: Duration = Duration::from_secs(90);
/// Within this time the group has forgotten one that was killed, which takes it some 20 s, and lets it in again.
const JOIN_LIMIT: Duration = Duration::from_secs(120);
/// A member that comes back under load catches up as long as that; then it is one that has not.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(60);
/// The transactions that a server has executed, or received and not executed yet.
const KNOWN: &str = "SELECT GTID_SUBTRACT(CONCAT(@@GLOBAL.gtid_executed, ',', COALESCE((SELECT received_transaction_set \
    FROM performance_schema.replication_connection_status WHERE channel_name='group_replication_applier'), '')), '')";
const GROUP: &str = "7472695f-7265-4d65-8000-62656e636800";

struct Mysql<'a> {
    context: &'a Context,
    system: System,
    tree: PathBuf,
    dir: PathBuf,
    nodes: u8,
    primary: u8,
    /// Members that came back and did not catch up.
    late: AtomicU32,
    /// Members that got a full copy after the death of all.
    copied: u32,
    servers: Vec<Option<Tool>>,
    /// With `--disks separate`; after the servers, which use them.
    disks: Vec<OwnDisk>,
    quotas: Option<Quotas>,
}

pub fn run(context: &Context, point: &Point) -> Result<Measured, String> {
    let mut all = Mysql {
        context,
        system: point.system()?,
        tree: context.mysql.clone()?,
        dir: context.dir.join("mysql"),
        nodes: point.nodes,
        primary: 1,
        late: AtomicU32::new(0),
        copied: 0,
        servers: Vec::new(),
        disks: Vec::new(),
        quotas: context.quotas()?,
    };
    let mut measured = Measured::default();
    all.up(&mut measured)?;
    for clients in numbers_of_clients(&context.settings) {
        all.sql(1, "DROP DATABASE IF EXISTS bench")?;
        all.sql(1, "CREATE DATABASE bench")?;
        all.sql(1, "CREATE TABLE bench.t (id BIGINT AUTO_INCREMENT PRIMARY KEY, text VARCHAR(10000)) ENGINE=InnoDB")?;
        all.measure(clients, &mut measured)?;
        all.compare()?;
    }
    all.sql(1, TABLE)?;
    all.faults(&mut measured)?;
    if all.late.load(Ordering::Relaxed) > 0 {
        measured.note(format!(
            "{} of the members that came back under load had not caught up after {} s, and the run went on without waiting for them",
            all.late.load(Ordering::Relaxed),
            CATCH_UP_LIMIT.as_secs()
        ));
    }
    if all.copied > 0 {
        measured.note(format!(
            "after the death of all {} members knew transactions that the chosen one lacks: they got a full copy of it by hand",
            all.copied
        ));
    }
    Ok(measured)
}

impl Mysql<'_> {
    fn node(&self, number: u8) -> PathBuf {
        self.dir.join(format!("node{number}"))
    }

    fn socket(&self, number: u8) -> PathBuf {
        self.node(number).join("mysql.sock")
    }

    fn port(&self, number: u8) -> u16 {
        self.context.base_port + 10 * (u16::from(number) - 1)
    }

    fn own(&self, path: PathBuf) -> Result<(), String> {
        std::os::unix::fs::chown(&path, Some(USER), Some(USER)).map_err(|e| format!("{}: {e}", path.display()))
    }

    fn config(&self, number: u8) -> String {
        let durable = u8::from(self.system == System::MysqlDurable);
        let s = &self.context.settings;
        let group = |n: u8| format!("127.0.0.1:{}", self.port(n) + 1);
        let seeds: Vec<String> = (1..=self.nodes).map(group).collect();
        let clients = numbers_of_clients(s).into_iter().max().unwrap_or(1);
        let lines = [
            "[mysqld]".to_owned(),
            format!("datadir={DATA}/node{number}/data"),
            format!("socket={DATA}/node{number}/mysql.sock"),
            format!("pid-file={DATA}/node{number}/mysqld.pid"),
            format!("log-error={DATA}/node{number}/error.log"),
            format!("port={}", self.port(number)),
            "bind-address=127.0.0.1".to_owned(),
            "mysqlx=OFF".to_owned(),
            "secure-file-priv=NULL".to_owned(),
            format!("max-connections={}", clients + 100),
            format!("innodb-buffer-pool-size={}", s.by_preset("64M", "256M", "1G")),
            format!("innodb-redo-log-capacity={}", s.by_preset("32M", "128M", "512M")),
            "innodb-stats-persistent=OFF".to_owned(),
            // The group's members are tables of the performance schema, so it cannot be off as MariaDB's is.
            "performance-schema-instrument='%=OFF'".to_owned(),
            format!("innodb-flush-log-at-trx-commit={durable}"),
            format!("sync-binlog={durable}"),
            "log-bin=bin".to_owned(),
            "gtid-mode=ON".to_owned(),
            "enforce-gtid-consistency=ON".to_owned(),
            format!("server-id={number}"),
            "report-host=127.0.0.1".to_owned(),
            format!("report-port={}", self.port(number)),
            format!("replica-parallel-workers={APPLIERS}"),
            "plugin-load-add=group_replication.so".to_owned(),
            format!("loose-group-replication-group-name={GROUP}"),
            "loose-group-replication-start-on-boot=OFF".to_owned(),
            "loose-group-replication-single-primary-mode=ON".to_owned(),
            format!("loose-group-replication-local-address={}", group(number)),
            format!("loose-group-replication-group-seeds={}", seeds.join(",")),
            "loose-group-replication-recovery-get-public-key=ON".to_owned(),
        ];
        lines.join("\n") + "\n"
    }

    fn up(&mut self, measured: &mut Measured) -> Result<(), String> {
        let _ = std::fs::remove_dir_all(&self.dir);
        std::fs::create_dir_all(&self.dir).map_err(|e| format!("{}: {e}", self.dir.display()))?;
        self.servers.resize_with(usize::from(self.nodes), || None);
        let mut dirs = Vec::new();
        for number in 1..=self.nodes {
            let node = self.node(number);
            match self.context.own_disk(&node)? {
                Some(disk) => self.disks.push(disk),
                None => std::fs::create_dir(&node).map_err(|e| format!("{}: {e}", node.display()))?,
            }
            self.own(node.clone())?;
            let config = node.join("my.cnf");
            std::fs::write(&config, self.config(number)).map_err(|e| format!("{}: {e}", config.display()))?;
            dirs.push(node);
        }
        self.context.keep_settings(&format!("{}.cnf", self.system.name()), &self.config(1))?;
        let sync = probe::fdatasync(&dirs, Duration::from_millis(300)).map_err(|e| format!("fdatasync: {e}"))?;
        measured.set("fdatasync_p50_us", sync.quantile(0.5) as f64 / 1e3);
        measured.set("fdatasync_p95_us", sync.quantile(0.95) as f64 / 1e3);
        let mut initialize = inside(&self.tree, &self.dir);
        initialize.args([SERVER, &format!("--defaults-file={DATA}/node1/my.cnf"), "--initialize-insecure"]);
        tool::run(initialize, LIMIT, &self.context.cancel).map_err(|error| self.with_log(1, error))?;
        for number in 2..=self.nodes {
            self.copy_files(1, number)?;
        }
        for number in 1..=self.nodes {
            self.start(number)?;
        }
        for number in 1..=self.nodes {
            self.await_answer(number)?;
            let mut session = self.session(number, None)?;
            for statement in [
                "SET sql_log_bin=0",
                "CREATE USER bench@'%'",
                "GRANT REPLICATION SLAVE, GROUP_REPLICATION_STREAM, CONNECTION_ADMIN ON *.* TO bench@'%'",
                "SET sql_log_bin=1",
                "CHANGE REPLICATION SOURCE TO SOURCE_USER='bench' FOR CHANNEL 'group_replication_recovery'",
            ] {
                session.query(statement).map_err(|e| format!("node{number}: {statement}: {e}"))?;
            }
        }
        self.join_all(1)
    }

    /// Between servers that do not run. The place of the copy is empty.
    fn copy_files(&self, from: u8, to: u8) -> Result<(), String> {
        let mut copy = inside(&self.tree, &self.dir);
        copy.args(["cp", "-a", &format!("{DATA}/node{from}/data"), &format!("{DATA}/node{to}/")]);
        tool::run(copy, LIMIT, &self.context.cancel)?;
        // A server without a name of its own chooses one.
        let _ = std::fs::remove_file(self.node(to).join("data/auto.cnf"));
        Ok(())
    }

    /// A full copy for members that are no part of a group, from another one that is none.
    fn copy_data(&mut self, from: u8, to: &[u8]) -> Result<(), String> {
        let stopped: Vec<u8> = to.iter().copied().chain([from]).collect();
        for number in &stopped {
            self.kill(*number)?;
        }
        for number in to {
            let data = self.node(*number).join("data");
            std::fs::remove_dir_all(&data).map_err(|e| format!("{}: {e}", data.display()))?;
            self.copy_files(from, *number)?;
        }
        for number in &stopped {
            self.start(*number)?;
        }
        stopped.iter().try_for_each(|number| self.await_answer(*number))
    }

    /// Does the second set of transactions hold all of the first?
    fn is_within(&self, part: &str, whole: &str) -> Result<bool, String> {
        let asked = format!("SELECT GTID_SUBSET('{part}', '{whole}')");
        Ok(self.sql(self.primary, &asked)?.text().as_deref() == Some("1"))
    }

    fn start(&mut self, number: u8) -> Result<(), String> {
        let mut server = inside(&self.tree, &self.dir);
        server.args([SERVER, &format!("--defaults-file={DATA}/node{number}/my.cnf")]);
        let server = Tool::start(server)?;
        if let Some(quotas) = &mut self.quotas {
            quotas.limit(number, server.pid())?;
        }
        self.servers[usize::from(number) - 1] = Some(server);
        Ok(())
    }

    fn session(&self, number: u8, schema: Option<&str>) -> Result<Session, String> {
        Session::open(&self.socket(number), schema, survivors::LIMIT).map_err(|e| format!("node{number}: {e}"))
    }

    fn sql(&self, number: u8, statement: &str) -> Result<Answer, String> {
        self.session(number, None)?.query(statement).map_err(|e| format!("node{number}: {statement}: {e}"))
    }

    fn until(&self, what: &str, limit: Duration, mut done: impl FnMut() -> Result<(), String>) -> Result<(), String> {
        let began = Instant::now();
        loop {
            match done() {
                Ok(()) => return Ok(()),
                Err(error) if began.elapsed() > limit => return Err(format!("{what}: {error}")),
                Err(_) => pass_until(Instant::now() + Duration::from_millis(50), &self.context.cancel)?,
            }
        }
    }

    fn await_answer(&self, number: u8) -> Result<(), String> {
        self.until("MySQL does not start", LIMIT, || self.sql(number, "SELECT 1").map(drop))
            .map_err(|error| self.with_log(number, error))
    }

    /// With the last error that the server has logged.
    fn with_log(&self, number: u8, error: String) -> String {
        let log = std::fs::read_to_string(self.node(number).join("error.log")).unwrap_or_default();
        match log.lines().rev().find(|line| line.contains("[ERROR]")) {
            Some(line) => format!("{error}; its log: {line}"),
            None => error,
        }
    }

    fn member_state(&self, number: u8) -> Result<String, String> {
        let own = "SELECT member_state FROM performance_schema.replication_group_members WHERE member_id=@@server_uuid";
        Ok(self.sql(number, own)?.text().unwrap_or_default())
    }

    fn join(&self, number: u8) -> Result<(), String> {
        let mut since = None;
        self.until("MySQL does not become a member", JOIN_LIMIT, || {
            match self.member_state(number)?.as_str() {
                "ONLINE" => return Ok(()),
                // It counts for the majority already, and knows the group's order.
                "RECOVERING" if since.get_or_insert_with(Instant::now).elapsed() > CATCH_UP_LIMIT => {
                    self.late.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                "RECOVERING" => {}
                // Refused as long as the group has not forgotten the one that was killed; the attempt has to be ended by hand.
                "ERROR" => drop(self.sql(number, "STOP GROUP_REPLICATION")?),
                _ => drop(self.sql(number, "START GROUP_REPLICATION").or_else(|error| {
                    self.sql(number, "STOP GROUP_REPLICATION")?;
                    Err::<_, String>(error)
                })?),
            }
            Err(format!("node{number} is {}", self.member_state(number)?))
        })
        .map_err(|error| self.with_log(number, error))
    }

    /// One makes the group, the others join it.
    fn join_all(&self, first: u8) -> Result<(), String> {
        self.sql(first, "SET GLOBAL group_replication_bootstrap_group=ON")?;
        self.join(first)?;
        self.sql(first, "SET GLOBAL group_replication_bootstrap_group=OFF")?;
        (1..=self.nodes).filter(|number| *number != first).try_for_each(|number| self.join(number))
    }

    /// The primary, as a member sees it.
    fn primary_of(&self, number: u8) -> Result<u8, String> {
        let asked = "SELECT member_port FROM performance_schema.replication_group_members WHERE member_role='PRIMARY' AND member_state='ONLINE'";
        let port = self.sql(number, asked)?.text().and_then(|port| port.parse::<u16>().ok());
        let found = port.and_then(|port| (1..=self.nodes).find(|number| self.port(*number) == port));
        found.ok_or_else(|| "the group has no primary".to_owned())
    }

    fn measure(&self, clients: u32, measured: &mut Measured) -> Result<(), String> {
        let text = "x".repeat(SIZE);
        let open = |_| {
            let mut session = self.session(self.primary, Some("bench"))?;
            let statement = session.prepare("INSERT INTO t (text) VALUES (?)").map_err(|e| e.to_string())?;
            let text = text.clone();
            Ok(move |_| session.execute(&statement, &[Some(&text)]).map(drop).map_err(|e| e.to_string()))
        };
        let pids = || self.servers.iter().flatten().map(Tool::pid).collect();
        super::drive(self.context, clients, open, pids, measured)
    }

    /// As many rows on each, once each has applied all.
    fn compare(&self) -> Result<(), String> {
        let count = |number: u8| {
            let mut session = self.session(number, Some("bench"))?;
            session.query("SET group_replication_consistency='BEFORE'").map_err(|e| e.to_string())?;
            session
                .query("SELECT COUNT(*), SUM(id) FROM t")
                .map(|a| a.texts())
                .map_err(|e| format!("node{number}: {e}"))
        };
        let first = count(self.primary)?;
        for number in 1..=self.nodes {
            let other = count(number)?;
            if other != first {
                return Err(format!("the nodes differ: node{} has {first:?}, node{number} {other:?}", self.primary));
            }
        }
        Ok(())
    }

    fn faults(&mut self, measured: &mut Measured) -> Result<(), String> {
        let door = |number: u8| -> Door {
            let socket = self.socket(number);
            Box::new(move || -> Option<Box<dyn Writer>> {
                Some(Box::new(Session::open(&socket, Some("bench"), survivors::LIMIT).ok()?))
            })
        };
        let doors = Doors::moving((1..=self.nodes).map(door).collect());
        deaths::run(self.context, self, &doors, measured)
    }
}

impl Mortal for Mysql<'_> {
    fn nodes(&self) -> u8 {
        self.nodes
    }

    fn survives_one(&self) -> bool {
        self.nodes >= 3
    }

    fn chief(&self) -> Result<u8, String> {
        self.primary_of(self.primary)
    }

    fn primary(&self) -> Option<u8> {
        Some(self.primary)
    }

    fn kill(&mut self, number: u8) -> Result<(), String> {
        // Dropping kills it.
        self.servers[usize::from(number) - 1] = None;
        Ok(())
    }

    fn bring_back(&mut self, number: u8) -> Result<(), String> {
        self.start(number)?;
        self.await_answer(number)?;
        self.join(number)
    }

    fn kill_all(&mut self) -> Result<(), String> {
        self.servers.iter_mut().for_each(|server| drop(server.take()));
        Ok(())
    }

    /// No member makes a group by itself: an operator lets the old primary do it, which has all that was acknowledged, or one that knows more than
    /// it. A member that knows what this one lacks would be refused, and gets a full copy: the primary commits in another order than that of the
    /// group, so it may lack what others have.
    fn start_all(&mut self) -> Result<(), String> {
        let mut known = BTreeMap::new();
        for number in 1..=self.nodes {
            self.start(number)?;
        }
        for number in 1..=self.nodes {
            self.await_answer(number)?;
            known.insert(number, self.sql(number, KNOWN)?.text().unwrap_or_default());
        }
        let mut first = self.primary;
        for number in 1..=self.nodes {
            if self.is_within(&known[&first], &known[&number])? && !self.is_within(&known[&number], &known[&first])? {
                first = number;
            }
        }
        let mut apart = Vec::new();
        for number in 1..=self.nodes {
            if !self.is_within(&known[&number], &known[&first])? {
                apart.push(number);
            }
        }
        if !apart.is_empty() {
            self.copy_data(first, &apart)?;
        }
        self.copied += apart.len() as u32;
        self.join_all(first)?;
        if first != self.primary {
            // The clients know the old one.
            let name = self.sql(self.primary, "SELECT @@server_uuid")?.text().unwrap_or_default();
            self.sql(first, &format!("SELECT group_replication_set_as_primary('{name}')"))?;
        }
        Ok(())
    }

    /// The group chooses by itself; the clients are led there, as a router does it.
    fn take_over(&mut self, dead: u8) -> Result<Option<u8>, String> {
        let asked = (1..=self.nodes).find(|number| *number != dead).ok_or("no server is left")?;
        let mut found = None;
        self.until("no new primary", LIMIT, || match self.primary_of(asked)? {
            number if number == dead => Err("the group has not noticed the death".to_owned()),
            number => {
                found = Some(number);
                Ok(())
            }
        })?;
        self.primary = found.unwrap_or(asked);
        Ok(Some(self.primary))
    }

    fn lacks(&self, number: u8, rows: &BTreeSet<Row>) -> Result<BTreeSet<Row>, String> {
        let mut session = self.session(number, Some("bench"))?;
        session.query("SET group_replication_consistency='BEFORE'").map_err(|e| e.to_string())?;
        let there = rows_there(&mut session).map_err(|e| e.to_string())?;
        Ok(rows.difference(&there).copied().collect())
    }
}

impl Drop for Mysql<'_> {
    fn drop(&mut self) {
        self.servers.clear();
        self.disks.clear();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
