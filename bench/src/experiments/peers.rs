//! One-row commits: ours beside what a user would take instead, each with what its acknowledgement means, and with what is lost when all servers
//! are killed.

mod etcd;
mod postgres;

use super::faults::restart_all;
use super::{Layout, value};
use crate::clients::{Done, Work, drive};
use crate::field::{Context, Field, pass_until};
use crate::plan::{Experiment, Point, Settings};
use crate::probe;
use crate::record::Measured;
use crate::survivors::{TABLE, through};
use crate::systems::{Kind, System};
use std::time::{Duration, Instant};
use trireme_cluster::{NodeId, Session, SqlError};

pub const LAYOUT: Layout = Layout {
    title: "Beside its peers",
    about: "Clients insert rows of 200 bytes, one per commit: on all nodes of a group, on the primary of the others. Then a member that serves no client is killed under load, and after its return all servers at once; `lost` is what was acknowledged and is gone.",
    values: &[
        value("commits_per_s_1", "commits/s, 1 client", 0),
        value("commits_per_s_8", "8 clients", 0),
        value("commits_per_s_32", "32 clients", 0),
        value("p50_ms_1", "half within, 1 client, ms", 2),
        value("p99_ms_32", "99 % within, 32 clients, ms", 2),
        value("cpu_us_32", "processor time per commit, 32 clients, µs", 0),
        value("gap_one_s", "longest gap when one dies, s", 2),
        value("lost", "lost when all are killed", 0),
        value("fdatasync_p50_us", "one fdatasync before, µs", 0),
    ],
    ..Layout::TABLE
};

const CLIENTS: [u32; 3] = [1, 8, 32];
const SIZE: usize = 200;
/// While servers are killed.
const FAULT_CLIENTS: u32 = 4;

pub fn points(settings: &Settings) -> Vec<Point> {
    let usual: &[System] = settings.by_preset(&System::TINY_PEERS, &System::PEERS, &System::PEERS);
    let nodes = settings.nodes_or(&[3]);
    let all = settings.deployments(&settings.systems_of(usual, &System::PEERS), &nodes);
    all.into_iter().map(|(system, nodes)| Point::new(Experiment::Peers, system.name(), nodes)).collect()
}

fn numbers_of_clients(settings: &Settings) -> Vec<u32> {
    settings.threads_or(settings.by_preset(&[8], &CLIENTS, &CLIENTS))
}

/// How long servers are dead before they are started again.
fn dead_for(settings: &Settings) -> Duration {
    Duration::from_secs_f64(settings.duration.clamp(0.5, 10.0))
}

pub fn run(context: &Context, point: &Point, field: Option<&mut Field>) -> Result<Measured, String> {
    let system = point.system()?;
    let mut measured = match (system.kind(), field) {
        (Kind::Postgres, None) => postgres::run(context, point)?,
        (Kind::Etcd, None) => etcd::run(context, point)?,
        (_, Some(field)) => mariadb(context, field)?,
        (_, None) => return Err(system.missing(context.galera.as_deref()).unwrap_or_else(|| "no servers".to_owned())),
    };
    measured.note(format!("an acknowledgement means: {}", system.guarantee()));
    measured.note(format!("when the server that takes writes dies: {}", system.takeover()));
    Ok(measured)
}

fn mariadb(context: &Context, field: &mut Field) -> Result<Measured, String> {
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
    faults(context, field, &mut measured)?;
    Ok(measured)
}

/// One member that serves nobody dies, and later all.
fn faults(context: &Context, field: &mut Field, measured: &mut Measured) -> Result<(), String> {
    field.fresh_schema()?;
    field.sql(1, TABLE)?;
    field.settle()?;
    let bystander = field.cluster.ids().last().copied().filter(|id| id.raw() > 1);
    // Where two are no majority without each other, nobody is left to go on.
    let dies = bystander.filter(|_| field.deployment.nodes >= 3 || !field.system().is_group());
    let endpoints: Vec<_> = field.writers(usize::MAX).into_iter().filter(|e| Some(e.node) != bystander).collect();
    let dead_for = dead_for(&context.settings);
    let text = |error: trireme_cluster::Error| match context.cancel.is_set() {
        true => "interrupted".to_owned(),
        false => error.to_string(),
    };
    let (struck, seen) = through(&endpoints, FAULT_CLIENTS, |now| {
        pass_until(Instant::now() + dead_for, &context.cancel)?;
        let mut struck = None;
        if let Some(id) = dies {
            let at = now();
            field.cluster.kill(id).map_err(text)?;
            pass_until(Instant::now() + dead_for, &context.cancel)?;
            struck = Some((at, now()));
            bring_back(field, id).map_err(text)?;
            pass_until(Instant::now() + dead_for, &context.cancel)?;
        }
        field.cluster.kill_all().map_err(text)?;
        restart_all(field).map_err(text)?;
        pass_until(Instant::now() + dead_for / 2, &context.cancel)?;
        Ok(struck)
    })?;
    if let Some((from, to)) = struck {
        measured.set("gap_one_s", seen.longest_gap(from, to).as_secs_f64());
    }
    // The server that acknowledged is asked for the rows, as nobody was made the primary instead.
    let mut session = field.cluster.session(field.id(1)?).map_err(|e| e.to_string())?;
    let lost = seen.lost(&mut session).map_err(|e| e.to_string())?;
    measured.set("lost", lost as f64);
    measured.set("acknowledged", seen.acknowledged.len() as f64);
    if lost > 0 && matches!(field.system(), System::TriremeDisk | System::TriremeProcess | System::Dummy) {
        return Err(format!("{lost} of {} acknowledged commits are lost", seen.acknowledged.len()));
    }
    Ok(())
}

fn bring_back(field: &mut Field, id: NodeId) -> trireme_cluster::Result<()> {
    let how = if field.system().is_group() { trireme_cluster::Start::Recover } else { trireme_cluster::Start::Plain };
    field.cluster.start(id, how, &mut |_| {})
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
