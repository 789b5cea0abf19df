//! Reads and writes in six ratios: a load of our own, as the published report specifies it.

use super::{Layout, value};
use crate::clients::{Done, Work, drive};
use crate::field::{Context, Field};
use crate::plan::{Experiment, Point, Settings};
use crate::record::Measured;
use crate::systems::System;
use trireme_cluster::{Dice, Session, SqlError};

pub const LAYOUT: Layout = Layout {
    title: "Ratios of reads and writes",
    about: "50 tables of 1000 rows. A transaction has 2 to 8 statements, each a SELECT or an UPDATE of one random row of a random table by its key, in the given ratio. Five clients per node stay with their node and connect anew after every 15 transactions.",
    values: &[
        value("transactions_per_s", "transactions/s", 0),
        value("committed", "transactions in all", 0),
        value("aborted", "aborted in all", 0),
        value("aborted_percent", "aborted, %", 2),
        value("selects", "SELECTs in all", 0),
        value("selects_per_s", "SELECTs/s", 0),
        value("updates", "UPDATEs in all", 0),
        value("updates_per_s", "UPDATEs/s", 0),
        value("connections", "connections in all", 0),
        value("connections_per_s", "connections/s", 1),
        value("p95_ms", "95 % of the transactions within, ms", 2),
    ],
    ratios: &[0],
    rows: &["ratio", "write_sets"],
    columns: &["system", "nodes"],
    x: Some("nodes"),
    x_title: "nodes",
    figures: &["ratio"],
    published: "Published in 2008 (row images), transactions/s (aborted, %):

| R/W | plain | 1 node | 2 nodes | 3 nodes | 4 nodes |
|---|---|---|---|---|---|
| 100/0 | 716.69 | 671.35 | 1320.50 | 1936.08 | 2519.84 |
| 90/10 | 660.54 | 576.46 | 1024.81 | 1392.87 | 1713.96 |
| 70/30 | 615.46 | 480.35 | 811.15 | 1060.12 | 1265.02 |
| 50/50 | 583.75 | 441.24 | 718.60 | 919.54 (0.1) | 1077.75 (0.1) |
| 30/70 | 566.56 | 420.93 | 674.88 (0.1) | 847.99 (0.2) | 974.59 (0.2) |
| 0/100 | 568.09 | 400.27 | 614.61 (0.1) | 752.58 (0.3) | 846.76 (0.5) |
",
};

const TABLES: u64 = 50;
const ROWS: u64 = 1000;
const CLIENTS_PER_NODE: u32 = 5;
/// Reads in a hundred statements.
const RATIOS: [u32; 6] = [100, 90, 70, 50, 30, 0];
const TRANSACTIONS_PER_CONNECTION: u32 = 15;

pub fn size(settings: &Settings) -> String {
    format!(
        "Tables, rows and clients are the published ones, whatever the scale. Measured for {} s; published 800 s.",
        settings.duration
    )
}

pub fn points(settings: &Settings) -> Vec<Point> {
    let usual: &[System] = settings.by_preset(
        &[System::Plain, System::TriremeDisk, System::GaleraDurable],
        &[System::Plain, System::TriremeDisk, System::GaleraDurable],
        &System::USUAL,
    );
    let nodes = settings.nodes_that_scale(&[1, 2, 3, 4]);
    let ratios: &[u32] = settings.by_preset(&[70], &RATIOS, &RATIOS);
    let mut all = Vec::new();
    for (system, nodes) in settings.deployments(&settings.systems_of(usual, &System::USUAL_ALSO_NULL), &nodes) {
        for write_sets in &settings.write_sets {
            // A server without a provider sends none.
            if write_sets == "statements" && system.is_single() {
                continue;
            }
            all.extend(ratios.iter().map(|reads| {
                let ratio = format!("{reads}/{}", 100 - reads);
                Point::new(Experiment::Ratio, system.name(), nodes).with("ratio", ratio).with("write_sets", write_sets)
            }));
        }
    }
    all
}

pub fn run(context: &Context, point: &Point, field: &mut Field) -> Result<Measured, String> {
    let reads: u64 = point.text("ratio").split('/').next().and_then(|reads| reads.parse().ok()).ok_or("no ratio")?;
    field.fresh_schema()?;
    let statements = point.text("write_sets") == "statements";
    set_form(field, statements)?;
    for table in 0..TABLES {
        field.sql(
            1,
            &format!(
                "CREATE TABLE bench.t{table} (id INT PRIMARY KEY, n INT NOT NULL, text CHAR(60) NOT NULL) ENGINE=InnoDB"
            ),
        )?;
        field.sql(
            1,
            &format!("INSERT INTO bench.t{table} SELECT seq, 0, REPEAT('x', 60) FROM bench.seq_0_to_{}", ROWS - 1),
        )?;
    }
    field.settle()?;
    if statements {
        check_form(field)?;
    }
    field.reset_status()?;
    let endpoints = field.writers(usize::MAX);
    let clients = CLIENTS_PER_NODE * endpoints.len() as u32;
    let tally = drive(context, field, &endpoints, clients, |n| Statements {
        reads,
        dice: Dice::new(u64::from(n) << 20 | u64::from(point.repeat)),
    })?;
    let mut measured = Measured::default();
    tally.note("transactions_per_s", &mut measured);
    measured.set("selects", tally.reads as f64);
    measured.set("selects_per_s", tally.per_second(tally.reads));
    measured.set("updates", tally.writes as f64);
    measured.set("updates_per_s", tally.per_second(tally.writes));
    measured.set("connections", tally.connections as f64);
    measured.set("connections_per_s", tally.per_second(tally.connections));
    field.note_status(&mut measured);
    field.compare()?;
    Ok(measured)
}

/// How write sets travel from now on. Servers are shared by points, so it is set for each.
fn set_form(field: &Field, statements: bool) -> Result<(), String> {
    let form = if statements { "STATEMENT" } else { "NONE" };
    field.sql_everywhere(&format!("SET GLOBAL wsrep_forced_binlog_format={form}"))
}

/// A statement that gives another row on every node shows what travels. (The server's id does not: an applier takes that of the origin.)
fn check_form(field: &Field) -> Result<(), String> {
    for statement in [
        "CREATE TABLE bench.form (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB",
        "INSERT INTO bench.form VALUES (1, 0)",
        "UPDATE bench.form SET n=@@port WHERE id=1",
    ] {
        field.sql(1, statement)?;
    }
    field.settle()?;
    let last = field.deployment.nodes;
    let own = field.cluster.node(field.id(last)?).map_err(|e| e.to_string())?.ports.sql;
    let seen = field.sql(last, "SELECT n FROM bench.form")?.text().unwrap_or_default();
    field.sql(1, "DROP TABLE bench.form")?;
    match seen == own.to_string() {
        true => field.settle(),
        false => Err("write sets are row images although statements were asked for".to_owned()),
    }
}

struct Statements {
    /// Of a hundred statements.
    reads: u64,
    dice: Dice,
}

impl Work for Statements {
    fn transaction(&mut self, session: &mut Session) -> Result<Done, SqlError> {
        let mut done = Done::default();
        session.query("BEGIN")?;
        for _ in 0..2 + self.dice.below(7) {
            let (table, row) = (self.dice.below(TABLES), self.dice.below(ROWS));
            if self.dice.below(100) < self.reads {
                session.query(&format!("SELECT text FROM t{table} WHERE id={row}"))?;
                done.reads += 1;
            } else {
                session.query(&format!("UPDATE t{table} SET n=n+1 WHERE id={row}"))?;
                done.writes += 1;
            }
        }
        session.query("COMMIT")?;
        Ok(done)
    }

    fn reconnects_after(&self) -> u32 {
        TRANSACTIONS_PER_CONNECTION
    }
}
