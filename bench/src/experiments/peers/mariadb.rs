//! MariaDB servers of all kinds: alone, in a group, or a primary with its replicas.

use super::deaths::{self, Mortal};
use super::{SIZE, numbers_of_clients};
use crate::clients::{Done, Work, drive};
use crate::experiments::faults::{chief, restart_all};
use crate::field::{Context, Field};
use crate::probe;
use crate::record::Measured;
use crate::survivors::{Doors, Row, TABLE, rows_there, sockets};
use crate::systems::Kind;
use std::collections::BTreeSet;
use std::time::Duration;
use trireme_cluster::{Session, SqlError, Start};

pub fn run(context: &Context, field: &mut Field) -> Result<Measured, String> {
    let mut measured = Measured::default();
    let dirs: Vec<_> = field.cluster.nodes().iter().map(|node| node.data()).collect();
    let sync = probe::fdatasync(&dirs, Duration::from_millis(300)).map_err(|e| format!("fdatasync: {e}"))?;
    measured.set("fdatasync_p50_us", sync.quantile(0.5) as f64 / 1e3);
    measured.set("fdatasync_p95_us", sync.quantile(0.95) as f64 / 1e3);
    let endpoints = field.writers(usize::MAX);
    for clients in numbers_of_clients(&context.settings) {
        field.fresh_schema()?;
        field
            .sql(1, "CREATE TABLE bench.t (id BIGINT AUTO_INCREMENT PRIMARY KEY, text VARCHAR(10000)) ENGINE=InnoDB")?;
        field.settle()?;
        let tally = drive(context, field, &endpoints, clients, |_| Insert { text: "x".repeat(SIZE), statement: None })?;
        measured.set(format!("commits_per_s_{clients}"), tally.per_second(tally.committed));
        for (name, q) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)] {
            measured.set(format!("{name}_ms_{clients}"), tally.latency.quantile(q) as f64 / 1e6);
        }
        measured
            .set(format!("cpu_us_{clients}"), tally.servers_cpu.as_secs_f64() * 1e6 / tally.committed.max(1) as f64);
        field.compare()?;
    }
    field.fresh_schema()?;
    field.sql(1, TABLE)?;
    field.settle()?;
    let doors = Doors::moving(sockets(&field.cluster.endpoints()));
    let primary = (!field.system().is_group()).then_some(1);
    deaths::run(context, &mut Servers { context, field, primary }, &doors, &mut measured)?;
    let lost: f64 = ["lost", "lost_chief"].iter().filter_map(|name| measured.values.get(*name)).sum();
    if lost > 0.0 && matches!(field.system().kind(), Kind::Ours) {
        return Err(format!("{lost} of {} acknowledged commits are lost", measured.values["acknowledged"]));
    }
    Ok(measured)
}

struct Servers<'a> {
    context: &'a Context,
    field: &'a mut Field,
    primary: Option<u8>,
}

impl Servers<'_> {
    fn text(&self, error: trireme_cluster::Error) -> String {
        match self.context.cancel.is_set() {
            true => "interrupted".to_owned(),
            false => error.to_string(),
        }
    }

    /// How far the replica's log of its primary's commits goes.
    fn received(&self, number: u8) -> Result<String, String> {
        let answer = self.field.sql(number, "SHOW SLAVE STATUS")?;
        let at = answer.columns.iter().position(|name| name == "Gtid_IO_Pos");
        let texts = answer.texts();
        at.and_then(|at| texts.first()?.get(at).cloned()).ok_or_else(|| format!("node{number} is no replica"))
    }

    /// The most advanced replica applies all that it has received and becomes the primary of the others.
    fn promote(&mut self, dead: u8, semisync: bool) -> Result<u8, String> {
        let replicas: Vec<u8> = (1..=self.nodes()).filter(|number| *number != dead).collect();
        let mut best = None;
        for number in &replicas {
            self.field.sql(*number, "STOP SLAVE IO_THREAD")?;
            let received = self.received(*number)?;
            let last = received.rsplit('-').next().and_then(|seqno| seqno.parse::<u64>().ok()).unwrap_or(0);
            best = best.max(Some((last, *number, received)));
        }
        let (_, best, received) = best.ok_or("no replica is left")?;
        let applied = self.field.sql(best, &format!("SELECT MASTER_GTID_WAIT('{received}', 30)"))?;
        if applied.text().as_deref() != Some("0") {
            return Err(format!("node{best} does not apply what it has received"));
        }
        self.field.sql(best, "STOP SLAVE")?;
        self.field.sql(best, "RESET SLAVE ALL")?;
        for number in replicas.into_iter().filter(|number| *number != best) {
            self.field.sql(number, "STOP SLAVE")?;
            self.field.follow(number, best)?;
        }
        if semisync {
            self.field.sql(best, "SET GLOBAL rpl_semi_sync_master_enabled=ON")?;
        }
        Ok(best)
    }
}

impl Mortal for Servers<'_> {
    fn nodes(&self) -> u8 {
        self.field.deployment.nodes
    }

    /// Of two nodes neither is a majority without the other.
    fn survives_one(&self) -> bool {
        let least = if self.field.system().is_group() { 3 } else { 2 };
        self.nodes() >= least
    }

    fn chief(&self) -> Result<u8, String> {
        self.primary.map_or_else(|| Ok(chief(self.field)?.raw()), Ok)
    }

    fn primary(&self) -> Option<u8> {
        self.primary
    }

    fn kill(&mut self, number: u8) -> Result<(), String> {
        let id = self.field.id(number)?;
        self.field.cluster.kill(id).map_err(|error| self.text(error))
    }

    fn bring_back(&mut self, number: u8) -> Result<(), String> {
        let how = if self.field.system().is_group() { Start::Recover } else { Start::Plain };
        let id = self.field.id(number)?;
        self.field.cluster.launch(id, how).map_err(|error| self.text(error))?;
        self.field.limit()?;
        self.field.cluster.wait_synced(id, &mut |_| {}).map_err(|error| self.text(error))
    }

    fn kill_all(&mut self) -> Result<(), String> {
        self.field.cluster.kill_all().map_err(|error| self.text(error))
    }

    fn start_all(&mut self) -> Result<(), String> {
        if let Kind::Replicated { semisync: true } = self.field.system().kind() {
            // Until then it was set while the server ran; commits must not go on without a replica now.
            let primary = self.field.id(self.primary.unwrap_or(1))?;
            let options = vec!["rpl-semi-sync-master-enabled=ON".to_owned()];
            self.field.cluster.set_options(primary, options).map_err(|error| self.text(error))?;
        }
        restart_all(self.field).map_err(|error| self.text(error))?;
        self.field.limit()
    }

    fn take_over(&mut self, dead: u8) -> Result<Option<u8>, String> {
        if let Kind::Replicated { semisync } = self.field.system().kind() {
            self.primary = Some(self.promote(dead, semisync)?);
        }
        Ok(self.primary)
    }

    fn lacks(&self, number: u8, rows: &BTreeSet<Row>) -> Result<BTreeSet<Row>, String> {
        let mut session = self.field.cluster.session(self.field.id(number)?).map_err(|e| e.to_string())?;
        if self.field.system().is_group() {
            session.query("SET wsrep_sync_wait=15").map_err(|e| e.to_string())?;
        }
        let there = rows_there(&mut session).map_err(|e| e.to_string())?;
        Ok(rows.difference(&there).copied().collect())
    }
}

struct Insert {
    text: String,
    statement: Option<trireme_cluster::Prepared>,
}

impl Work for Insert {
    fn begin(&mut self, session: &mut Session) -> Result<(), SqlError> {
        self.statement = Some(session.prepare("INSERT INTO t (text) VALUES (?)")?);
        Ok(())
    }

    fn transaction(&mut self, session: &mut Session) -> Result<Done, SqlError> {
        if let Some(statement) = &self.statement {
            session.execute(statement, &[Some(&self.text)])?;
        }
        Ok(Done::default())
    }
}
