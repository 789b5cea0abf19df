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
    about: "sysbench `oltp_read_write` on 10 tables (14 selects, 2 updates, 1 delete and 1 insert in a transaction). `masters`: how many nodes the clients are spread over. `synced`: on one node with a binary log, everything (sync_binlog, flush and doublewrite are 1), all but the binary log (sync_binlog is 0), or nothing (all are 0); with a provider it is a group of one.",
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
    ratios: &[0, 1, 3, 5],
    rows: &["system", "nodes", "masters", "synced"],
    columns: &["threads"],
    x: Some("threads"),
    x_title: "client threads",
    figures: &["nodes", "?synced"],
    published: "Published in 2011 without a table. Its findings: an unsynced cluster equals or beats a synced single server; the curve stays flat with more clients; three nodes gave more than four times a standalone server with production (synced) settings.
",
};

const TABLES: u32 = 10;
/// Rows of each table in the published run.
const SIZE: f64 = 2_000_000.0;

fn rows(settings: &Settings) -> u64 {
    ((SIZE * settings.scale) as u64).max(100)
}

const IN_REPORT: [System; 3] = [System::Plain, System::TriremeDisk, System::GaleraDurable];

const IN_QUICK: [System; 6] = [
    System::Plain,
    System::PlainFast,
    System::TriremeDisk,
    System::TriremeProcess,
    System::GaleraDurable,
    System::GaleraFast,
];

pub fn size(settings: &Settings) -> String {
    format!(
        "{TABLES} tables of {} rows; published 2,000,000. Measured for {} s without a warm-up; published 60 s.",
        crate::report::number(rows(settings) as f64, 0),
        crate::sysbench::seconds(settings)
    )
}

pub fn points(settings: &Settings) -> Vec<Point> {
    let usual: &[System] = settings.by_preset(
        &[System::Plain, System::TriremeDisk, System::GaleraDurable],
        settings.in_report(&IN_REPORT, &IN_QUICK),
        &System::USUAL,
    );
    let nodes = settings.nodes_or(settings.by_preset(&[2], &[1, 3], &[1, 3]));
    let threads =
        settings.threads_or(settings.by_preset(&[4], &[1, 8, 32, 128], &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1023]));
    let mut all = Vec::new();
    for (system, nodes) in settings.deployments(&settings.systems_of(usual, &System::USUAL), &nodes) {
        // A group of one is among the durability variants.
        if nodes == 1 && !system.is_single() && settings.in_report(settings.nodes.is_empty(), false) {
            continue;
        }
        let some: Vec<u8> =
            (1..=nodes).filter(|masters| settings.in_report([1, nodes].contains(masters), true)).collect();
        for masters in settings.by_preset(vec![nodes], some.clone(), some) {
            all.extend(threads.iter().map(|threads| {
                Point::new(Experiment::Oltp, system.name(), nodes).with("masters", masters).with("threads", threads)
            }));
        }
    }
    all.extend(durability_points(settings, &nodes));
    all
}

/// The syncs of one node's files: a name, `sync_binlog`, `innodb_flush_log_at_trx_commit`, and whether there is a
/// doublewrite.
struct Synced(&'static str, u8, u8, bool);

const SYNCED: [Synced; 3] =
    [Synced("all", 1, 1, true), Synced("all-but-binlog", 0, 1, true), Synced("nothing", 0, 0, false)];

impl Synced {
    fn of(point: &Point) -> Option<&'static Synced> {
        SYNCED.iter().find(|synced| synced.0 == point.text("synced"))
    }
}

/// One node with what it syncs varied, with a provider and without.
fn durability_points(settings: &Settings, nodes: &[u8]) -> Vec<Point> {
    if !nodes.contains(&1) && !settings.nodes.is_empty() {
        return Vec::new();
    }
    let usual = [System::Plain, System::TriremeDisk, System::Galera];
    let mut systems = settings.systems_of(&usual, &usual);
    // Flush is what is varied.
    if settings.systems.iter().any(|system| matches!(system, System::GaleraDurable | System::GaleraFast))
        && !systems.contains(&System::Galera)
    {
        systems.push(System::Galera);
    }
    let threads =
        settings.threads_or(settings.by_preset(&[4], &[8, 32], &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1023]));
    let mut all = Vec::new();
    for system in systems {
        for synced in &SYNCED {
            all.extend(threads.iter().map(|threads| {
                Point::new(Experiment::Oltp, system.name(), 1)
                    .with("masters", 1)
                    .with("synced", synced.0)
                    .with("threads", threads)
            }));
        }
    }
    all
}

/// Lines for the servers of a point. The doublewrite cannot be changed while a server runs.
pub fn options(point: &Point) -> Vec<String> {
    let Some(Synced(.., doublewrite)) = Synced::of(point) else { return Vec::new() };
    vec!["log-bin".to_owned(), "log-slave-updates".to_owned(), format!("innodb-doublewrite={}", u8::from(*doublewrite))]
}

pub fn run(context: &Context, point: &Point, field: &mut Field) -> Result<Measured, String> {
    let (threads, masters) = (point.number("threads")?, point.number("masters")?);
    let sockets = field.writers(masters as usize).iter().map(|endpoint| endpoint.socket().to_owned()).collect();
    let size = rows(&context.settings);
    let load = Load { context, door: Door::Sockets(sockets), tables: TABLES, size };
    prepare_once(field, &load)?;
    if let Some(Synced(_, sync_binlog, flush, _)) = Synced::of(point) {
        set_durability(field, *sync_binlog, *flush)?;
    }
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

/// From now on.
pub fn set_durability(field: &Field, sync_binlog: u8, flush: u8) -> Result<(), String> {
    field.sql_everywhere(&format!("SET GLOBAL sync_binlog={sync_binlog}"))?;
    field.sql_everywhere(&format!("SET GLOBAL innodb_flush_log_at_trx_commit={flush}"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::settings;

    #[test]
    fn one_node_has_its_durability_variants_with_and_without_a_provider() {
        let all = points(&settings(&["--nodes", "1", "--threads", "8"]));
        let has = |system: &str, synced: &str| all.iter().any(|p| p.system == system && p.text("synced") == synced);
        for system in ["plain", "trireme-disk", "galera"] {
            assert!(SYNCED.iter().all(|synced| has(system, synced.0)), "{system}: {all:?}");
        }
        let of = |synced: &str| options(all.iter().find(|p| p.text("synced") == synced).unwrap());
        assert!(of("nothing").contains(&"innodb-doublewrite=0".to_owned()), "{:?}", of("nothing"));
        assert_eq!(of("all"), of("all-but-binlog"), "they can share servers");
        assert!(points(&settings(&["--nodes", "3"])).iter().all(|point| point.text("synced").is_empty()));
        let named = points(&settings(&["--nodes", "1", "--systems", "galera-1"]));
        assert!(named.iter().any(|point| point.system == "galera" && !point.text("synced").is_empty()));
    }
}
