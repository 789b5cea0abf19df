//! sysbench's read/write load on one node with its durability variants, and on three nodes of which one, two or three take writes.

use super::{Layout, value};
use crate::clients::note_cpu;
use crate::field::{Context, Field, count};
use crate::plan::{Experiment, Point, Settings};
use crate::record::Measured;
use crate::sysbench::{Door, Load};
use crate::systems::System;
use crate::usage::{self, Usage};

pub const LAYOUT: Layout = Layout {
    title: "sysbench, reads and writes",
    about: "sysbench `oltp_read_write` on 10 tables (14 selects, 2 updates, 1 delete and 1 insert in a transaction). `masters`: how many nodes the clients are spread over.",
    values: &[
        value("transactions_per_s", "transactions/s", 0),
        value("mean_ms", "mean duration, ms", 2),
        value("p95_ms", "95 % of the transactions within, ms", 2),
        value("p99_ms", "99 % of the transactions within, ms", 2),
        value("aborted_percent", "aborted, %", 2),
        value("servers_cpu_us_per_transaction", "processor time of the servers per transaction, µs", 0),
        value("wsrep_flow_control_paused", "wsrep_flow_control_paused, highest of the nodes", 2),
        value("wsrep_local_recv_queue_avg", "wsrep_local_recv_queue_avg, highest of the nodes", 1),
        value("wsrep_local_send_queue_avg", "wsrep_local_send_queue_avg, highest of the nodes", 1),
    ],
    rows: &["system", "nodes", "masters"],
    columns: &["threads"],
    x: Some("threads"),
    x_title: "client threads",
    figures: &["nodes"],
    published: "Published in 2011 without a table. Its findings: an unsynced cluster equals or beats a synced single server; the curve stays flat with more clients; three nodes gave more than four times a standalone server with production (synced) settings.
",
};

const TABLES: u32 = 10;
/// Rows of each table in the published run.
const SIZE: f64 = 2_000_000.0;

pub fn points(settings: &Settings) -> Vec<Point> {
    let usual: &[System] = settings.by_preset(
        &[System::Plain, System::TriremeDisk, System::GaleraDurable],
        &[
            System::Plain,
            System::PlainFast,
            System::TriremeDisk,
            System::TriremeProcess,
            System::GaleraDurable,
            System::GaleraFast,
        ],
        &System::USUAL,
    );
    let nodes = settings.nodes_or(settings.by_preset(&[2], &[1, 3], &[1, 3]));
    let threads =
        settings.threads_or(settings.by_preset(&[4], &[1, 8, 32, 128], &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1023]));
    let mut all = Vec::new();
    for (system, nodes) in settings.deployments(&settings.systems_of(usual, &System::USUAL), &nodes) {
        for masters in settings.by_preset(vec![nodes], (1..=nodes).collect(), (1..=nodes).collect::<Vec<_>>()) {
            all.extend(threads.iter().map(|threads| {
                Point::new(Experiment::Oltp, system.name(), nodes).with("masters", masters).with("threads", threads)
            }));
        }
    }
    all
}

pub fn run(context: &Context, point: &Point, field: &mut Field) -> Result<Measured, String> {
    let (threads, masters) = (point.number("threads")?, point.number("masters")?);
    let sockets = field.writers(masters as usize).iter().map(|endpoint| endpoint.socket().to_owned()).collect();
    let size = ((SIZE * context.settings.scale) as u64).max(100);
    let load = Load { context, door: Door::Sockets(sockets), tables: TABLES, size };
    prepare_once(field, &load)?;
    field.reset_status()?;
    let pids = field.pids();
    let before = Usage::of(&pids);
    let mut measured = Measured::default();
    let transactions = load.run(threads, &mut measured)?;
    let used = usage::between(&before, &Usage::of(&pids));
    note_cpu(used.servers, used.own, transactions, &mut measured);
    field.note_status(&mut measured);
    field.settle()?;
    check_tables(field, TABLES, size)?;
    Ok(measured)
}

/// The tables of the last point are used again: the load leaves as many rows as there were.
pub fn prepare_once(field: &Field, load: &Load) -> Result<(), String> {
    let mut session = field.cluster.session(field.id(1)?).map_err(|e| e.to_string())?;
    let there =
        "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='bench' AND table_name LIKE 'sbtest%'";
    if count(&mut session, there)? != u64::from(load.tables) {
        field.fresh_schema()?;
        load.prepare()?;
        field.settle()?;
    }
    Ok(())
}

/// A transaction deletes a row and inserts it again: as many rows as before, on every node.
pub fn check_tables(field: &Field, tables: u32, size: u64) -> Result<(), String> {
    for id in field.cluster.ids() {
        let mut session = field.cluster.session(id).map_err(|e| e.to_string())?;
        for table in 1..=tables {
            let rows = count(&mut session, &format!("SELECT COUNT(*) FROM bench.sbtest{table}"))?;
            if rows != size {
                return Err(format!("{id}: sbtest{table} has {rows} rows instead of {size}"));
            }
        }
    }
    Ok(())
}
