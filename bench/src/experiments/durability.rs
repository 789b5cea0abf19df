//! Durability settings of the servers, under sysbench through a balancer over three nodes.

use super::oltp::{check_tables, prepare_once};
use super::{Layout, value};
use crate::field::{Context, Field};
use crate::plan::{Experiment, Point, Settings};
use crate::record::Measured;
use crate::sysbench::{Door, Load};
use crate::systems::System;
use crate::tool::{Tool, command};
use std::net::TcpStream;
use std::time::{Duration, Instant};

pub const LAYOUT: Layout = Layout {
    title: "Durability settings",
    about: "sysbench `oltp_read_write` on one table, 64 threads, through `trireme balance` over all nodes, by `sync_binlog` and `innodb_flush_log_at_trx_commit` of the servers (binary log on). With Trireme a commit is in the logs of a majority whatever these settings are.",
    values: &[
        value("transactions_per_s", "transactions/s", 0),
        value("mean_ms", "mean duration, ms", 2),
        value("p95_ms", "95 % of the transactions within, ms", 2),
        value("aborted_percent", "aborted, %", 2),
        value("wsrep_flow_control_paused", "wsrep_flow_control_paused, highest of the nodes", 2),
    ],
    rows: &["sync_binlog", "flush"],
    columns: &["system", "nodes"],
    published: "Published in 2014 (three nodes behind a balancer, 64 threads), transactions/s:

| sync_binlog | flush | Galera 5.5.34 | PXC 5.5.37 | MariaDB 5.5.38 | Galera 5.6.16 | PXC 5.6 | MariaDB 10.0.12 |
|---|---|---|---|---|---|---|---|
| 0 | 0 | 525.1 | 534.0 | 534.2 | 519.6 | 532.2 | 520.7 |
| 0 | 1 | 125.6 | 131.7 | 341.4 | 157.0 | 162.8 | 175.0 |
| 0 | 2 | 526.8 | 528.9 | 524.0 | 511.8 | 526.1 | 521.0 |
| 1 | 0 | 242.2 | 249.6 | 262.5 | 220.3 | 229.8 | 221.0 |
| 1 | 1 | 96.8 | 96.8 | 148.8 | 112.0 | 114.8 | 113.1 |
| 1 | 2 | 224.5 | 210.9 | 217.1 | 209.1 | 201.6 | 214.3 |
",
    ..Layout::TABLE
};

const SIZE: f64 = 2_000_000.0;
/// From the first port of the servers: behind those of all nodes.
const FRONT: u16 = 190;
const LIMIT: Duration = Duration::from_secs(20);

pub fn points(settings: &Settings) -> Vec<Point> {
    let usual: &[System] = settings.by_preset(
        &[System::TriremeDisk],
        &[System::TriremeDisk, System::TriremeProcess, System::GaleraFast],
        &[System::TriremeDisk, System::TriremeProcess, System::GaleraFast],
    );
    let known = [System::TriremeDisk, System::TriremeProcess, System::GaleraFast, System::GaleraDurable];
    let mut systems = settings.systems_of(usual, &known);
    // The settings are what is varied: Galera is Galera.
    if systems.contains(&System::GaleraFast) {
        systems.retain(|system| *system != System::GaleraDurable);
    }
    let nodes = settings.nodes_or(settings.by_preset(&[2], &[3], &[3]));
    let combinations: &[(u8, u8)] = settings.by_preset(
        &[(0, 0), (1, 1)],
        &[(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)],
        &[(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)],
    );
    let mut all = Vec::new();
    for (system, nodes) in settings.deployments(&systems, &nodes) {
        for (sync_binlog, flush) in combinations {
            all.push(
                Point::new(Experiment::Durability, system.name(), nodes)
                    .with("sync_binlog", sync_binlog)
                    .with("flush", flush),
            );
        }
    }
    all
}

pub fn options() -> Vec<String> {
    ["log-bin", "log-slave-updates"].map(str::to_owned).to_vec()
}

pub fn run(context: &Context, point: &Point, field: &mut Field) -> Result<Measured, String> {
    let (sync_binlog, flush) = (point.number("sync_binlog")?, point.number("flush")?);
    field.allow_tcp()?;
    let size = ((SIZE * context.settings.scale) as u64).max(100);
    let sockets = vec![field.writers(1)[0].socket().to_owned()];
    prepare_once(field, &Load { context, door: Door::Sockets(sockets), tables: 1, size })?;
    field.sql_everywhere(&format!("SET GLOBAL sync_binlog={sync_binlog}"))?;
    field.sql_everywhere(&format!("SET GLOBAL innodb_flush_log_at_trx_commit={flush}"))?;
    field.reset_status()?;
    let threads = context.settings.threads.first().copied().unwrap_or(context.settings.by_preset(8, 64, 64));
    let front = context.base_port + FRONT;
    let balancer = start_balancer(context, field, front)?;
    let mut measured = Measured::default();
    let load = Load { context, door: Door::Tcp("127.0.0.1".to_owned(), front), tables: 1, size };
    let outcome = load.run(threads, &mut measured);
    drop(balancer);
    outcome?;
    measured.set("threads", f64::from(threads));
    field.note_status(&mut measured);
    field.settle()?;
    check_tables(field, 1, size)?;
    Ok(measured)
}

fn start_balancer(context: &Context, field: &Field, front: u16) -> Result<Tool, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let servers: Vec<String> = field.cluster.nodes().iter().map(|n| format!("{}:{}", n.address, n.ports.sql)).collect();
    let mut balance = command(&program.display().to_string());
    balance
        .args(["balance", "--nodes", &servers.join(","), "--no-discover", "--any", &format!("127.0.0.1:{front}")])
        .arg(format!("--control={}", context.dir.join("balance").display()));
    let balancer = Tool::start(balance)?;
    let began = Instant::now();
    loop {
        context.check_interrupted()?;
        // The greeting of a server comes only once the balancer has found one.
        let greeted = TcpStream::connect(("127.0.0.1", front)).and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            std::io::Read::read_exact(&mut stream, &mut [0; 5])
        });
        match greeted {
            Ok(()) => return Ok(balancer),
            Err(_) if began.elapsed() < LIMIT => std::thread::sleep(Duration::from_millis(50)),
            Err(error) => return Err(format!("`trireme balance` on port {front} leads to no server: {error}")),
        }
    }
}
