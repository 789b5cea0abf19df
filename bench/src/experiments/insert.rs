//! Write scalability: clients that only insert, with 1 to 1000 rows per transaction. MariaDB's own `mariadb-slap` is the client.

use super::{Layout, value};
use crate::clients::note_cpu;
use crate::field::{Context, Field, count};
use crate::plan::{Experiment, Point, Settings};
use crate::record::Measured;
use crate::systems::System;
use crate::tool::{Tool, command};
use crate::usage::{self, Usage};
use std::time::{Duration, Instant};

pub const LAYOUT: Layout = Layout {
    title: "Inserts",
    about: "`mariadb-slap` inserts rows into one table from 16 clients, spread over all nodes, with 1 to 1000 rows per transaction. Rows per second over the whole run.",
    values: &[
        value("rows_per_s", "rows/s", 0),
        value("servers_cpu_us_per_transaction", "processor time of the servers per row, µs", 1),
        value("wsrep_flow_control_paused", "share of the time in which flow control held the writers", 2),
    ],
    ratios: &[0, 1],
    columns: &["rows"],
    x: Some("rows"),
    x_title: "rows per transaction",
    published: "Published in 2009 (three servers, Xeon 3.4 GHz, MySQL 5.1 and its Galera), rows/s:

| | 1 | 10 | 100 | 1000 |
|---|---|---|---|---|
| plain | 8340 | 14347 | 17304 | 16543 |
| Galera, 1 node | 4122 | 11403 | 15081 | 16009 |
| Galera, 2 nodes | 4728 | 15248 | 22147 | 21670 |
| Galera, 3 nodes | 5807 | 17504 | 24737 | 23225 |
| 1 node, no group communication | 6541 | 14126 | 15857 | 16062 |
",
    ..Layout::TABLE
};

const CLIENTS: u32 = 16;
/// Rows of the published run.
const ROWS: f64 = 1_000_000.0;
const TABLE: &str = "CREATE TABLE bench.test_insert (i INT AUTO_INCREMENT PRIMARY KEY, f FLOAT, d DATE, t TIME, c CHAR(8), v VARCHAR(1024)) ENGINE=InnoDB";
const ROW: &str = "INSERT INTO test_insert VALUES (DEFAULT, RAND(), CURDATE(), CURTIME(), 'seven_c', 'six_ch')";

pub fn size(settings: &Settings) -> String {
    format!(
        "Rows are inserted for {} s or nearly so, in rounds; with a `--scale`, half of that is enough once {} rows are there. The published run inserted 1,000,000 rows.",
        settings.duration,
        crate::report::number(ROWS * settings.scale, 0)
    )
}

pub fn points(settings: &Settings) -> Vec<Point> {
    let usual: &[System] = settings.by_preset(&System::TINY, &System::TINY, &System::USUAL_ALSO_NULL);
    let nodes = settings.nodes_that_scale(settings.in_report(&[1, 3], &[1, 2, 3, 4]));
    let rows: &[u32] = settings.by_preset(&[1, 100], &[1, 10, 100, 1000], &[1, 10, 100, 1000]);
    let all = settings.deployments(&settings.systems_of(usual, &System::USUAL_ALSO_NULL), &nodes);
    all.into_iter()
        .flat_map(|(system, nodes)| {
            rows.iter().map(move |rows| Point::new(Experiment::Insert, system.name(), nodes).with("rows", rows))
        })
        .collect()
}

pub fn run(context: &Context, point: &Point, field: &mut Field) -> Result<Measured, String> {
    let per_transaction = point.number("rows")?;
    field.fresh_schema()?;
    field.sql(1, TABLE)?;
    field.settle()?;
    field.reset_status()?;
    let pids = field.pids();
    let endpoints = field.writers(usize::MAX);
    let (mut rows, mut time, mut expected) = (0.0, 0.0, 0.0);
    let before = Usage::of(&pids);
    // Rounds of one run each, until enough was measured: how long a row takes is not known before.
    let least = u64::from(CLIENTS * per_transaction);
    let mut next = (ROWS * context.settings.scale / 4.0).max(least as f64);
    loop {
        let each = (next / f64::from(CLIENTS)).ceil();
        let per_client = ((each / f64::from(per_transaction)).ceil() as u64) * u64::from(per_transaction);
        let took = round(context, &endpoints, per_client, per_transaction)?;
        let done = per_client as f64 * f64::from(CLIENTS);
        (rows, time, expected) = (rows + done, time + took, expected + done);
        let duration = context.settings.duration;
        if time >= duration * 0.9 || (rows >= ROWS * context.settings.scale && time >= duration * 0.5) {
            break;
        }
        next = (rows / time.max(0.001) * (duration - time)).clamp(least as f64, ROWS);
    }
    let used = usage::between(&before, &Usage::of(&pids));
    let mut measured = Measured::default();
    measured.set("rows_per_s", rows / time);
    measured.set("rows", rows);
    measured.set("measured_s", time);
    note_cpu(used.servers, used.own, rows as u64, &mut measured);
    field.note_status(&mut measured);
    field.compare()?;
    let mut session = field.cluster.session(field.id(1)?).map_err(|e| e.to_string())?;
    let there = count(&mut session, "SELECT COUNT(*) FROM bench.test_insert")?;
    if there as f64 != expected {
        return Err(format!("{expected} rows were inserted and {there} are there"));
    }
    Ok(measured)
}

/// All clients insert `per_client` rows each; seconds.
fn round(
    context: &Context,
    endpoints: &[trireme_cluster::Endpoint],
    per_client: u64,
    per_transaction: u32,
) -> Result<f64, String> {
    let nodes = endpoints.len() as u32;
    let began = Instant::now();
    let mut tools = Vec::new();
    for (at, endpoint) in endpoints.iter().enumerate() {
        // The first ones take what does not divide evenly.
        let clients = CLIENTS / nodes + u32::from((at as u32) < CLIENTS % nodes);
        let mut slap = command("mariadb-slap");
        slap.args(["--no-defaults", "--user=root", "--create-schema=bench", "--no-drop", "--csv", "--delimiter=;"])
            .arg(format!("--socket={}", endpoint.socket().display()))
            .arg(format!("--query={ROW}"))
            .arg(format!("--concurrency={clients}"))
            .arg(format!("--number-of-queries={}", per_client * u64::from(clients)))
            .arg(format!("--commit={per_transaction}"));
        tools.push(Tool::start(slap)?);
    }
    let mut longest: f64 = 0.0;
    for tool in tools {
        let said = tool.finish(Duration::from_secs(3600), &context.cancel)?;
        longest =
            longest.max(seconds(&said).ok_or_else(|| format!("mariadb-slap's answer is not understood: {said}"))?);
    }
    // Each counts from its own start, and they start one after another: together they took from the first start to the last end.
    let together = if nodes > 1 { began.elapsed().as_secs_f64() } else { 0.0 };
    Ok(longest.max(together).max(0.001))
}

/// `engine,type,average seconds,least,most,clients,queries per client`.
fn seconds(csv: &str) -> Option<f64> {
    csv.lines().rev().find(|line| !line.trim().is_empty())?.split(',').nth(2)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn reads_what_mariadb_slap_prints() {
        assert_eq!(super::seconds(",mixed,0.212,0.212,0.212,16,62\n"), Some(0.212));
        assert_eq!(super::seconds("mariadb-slap: Error"), None);
    }
}
