//! Durability settings of the servers, under sysbench through a balancer over three nodes.

use super::oltp::{check_tables, prepare_once, set_durability};
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
    about: "sysbench `oltp_read_write` on one table, through `trireme balance` over all nodes, by `sync_binlog` and `innodb_flush_log_at_trx_commit` of the servers (binary log on). The server alone stands behind the balancer too. Each published value is the mean of ten runs; these are as many as the head of this report says.",
    values: &[
        value("transactions_per_s", "transactions/s", 0),
        value("mean_ms", "mean duration, ms", 2),
        value("p95_ms", "95 % of the transactions within, ms", 2),
        value("aborted_percent", "aborted, %", 2),
        value("wsrep_flow_control_paused", "wsrep_flow_control_paused, highest of the nodes", 2),
    ],
    ratios: &[0, 1],
    rows: &["sync_binlog", "flush"],
    columns: &["system", "nodes", "threads"],
    figures: &["threads"],
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

/// The settings are what is varied, so Galera is one system here and flush is not part of its name.
const KNOWN: [System; 4] = [System::Plain, System::TriremeDisk, System::TriremeProcess, System::Galera];

fn rows(settings: &Settings) -> u64 {
    ((SIZE * settings.scale) as u64).max(100)
}

const KNOWN_BUT_PROCESS: [System; 3] = [System::Plain, System::TriremeDisk, System::Galera];

pub fn size(settings: &Settings) -> String {
    format!(
        "One table of {} rows. Measured for {} s.",
        crate::report::number(rows(settings) as f64, 0),
        crate::sysbench::seconds(settings)
    )
}

pub fn points(settings: &Settings) -> Vec<Point> {
    let usual: &[System] = settings.by_preset(&KNOWN_BUT_PROCESS, &KNOWN_BUT_PROCESS, &KNOWN);
    let systems = settings.systems_of(usual, &KNOWN);
    let nodes = settings.nodes_or(settings.by_preset(&[2], &[3], &[3]));
    let threads = settings.threads_or(settings.by_preset(&[8], &[64], &[1, 8, 64, 256]));
    let combinations: &[(u8, u8)] = settings.by_preset(
        &[(0, 0), (1, 1)],
        &[(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)],
        &[(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)],
    );
    let mut all = Vec::new();
    for (system, nodes) in settings.deployments(&systems, &nodes) {
        for (sync_binlog, flush) in combinations {
            all.extend(threads.iter().map(|threads| {
                Point::new(Experiment::Durability, system.name(), nodes)
                    .with("sync_binlog", sync_binlog)
                    .with("flush", flush)
                    .with("threads", threads)
            }));
        }
    }
    all
}

pub fn options() -> Vec<String> {
    ["log-bin", "log-slave-updates"].map(str::to_owned).to_vec()
}

pub fn run(context: &Context, point: &Point, field: &mut Field) -> Result<Measured, String> {
    let small = |name: &str| point.number(name).and_then(|number| u8::try_from(number).map_err(|e| e.to_string()));
    let (sync_binlog, flush) = (small("sync_binlog")?, small("flush")?);
    field.allow_tcp()?;
    let size = rows(&context.settings);
    let sockets = vec![field.writers(1)[0].socket().to_owned()];
    prepare_once(field, &Load { context, door: Door::Sockets(sockets), tables: 1, size })?;
    set_durability(field, sync_binlog, flush)?;
    field.reset_status()?;
    let threads = point.number("threads")?;
    let front = context.base_port + FRONT;
    let balancer = start_balancer(context, field, front)?;
    let mut measured = Measured::default();
    let load = Load { context, door: Door::Tcp("127.0.0.1".to_owned(), front), tables: 1, size };
    let outcome = load.run(threads, &mut measured);
    drop(balancer);
    outcome?;
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
