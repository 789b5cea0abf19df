//! `trireme bench disks`: the real disk and the modelled ones, measured the same ways, side by side.

use super::{Asked, LARGE, SMALL, Separate, micros};
use crate::args::CheckDisks;
use crate::hist::Histogram;
use crate::probe::{self, Way};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Writers on one disk: a server's log and its binary log, and many.
const WRITERS: [usize; 3] = [1, 2, 8];
/// For what the probes write.
const MIB: u32 = 128;

struct Row {
    what: String,
    real: Option<Histogram>,
    modelled: Histogram,
    seconds: f64,
}

/// Measures and prints. **Errors** with the reason why modelled disks cannot be had.
pub fn run(asked: &CheckDisks, print: &mut dyn FnMut(&str)) -> Result<(), String> {
    let dir = match &asked.dir {
        Some(dir) => dir.clone(),
        None => PathBuf::from(format!("/var/tmp/trireme-bench-disks-{}", std::process::id())),
    };
    trireme_private::own_dir(&dir)?;
    let outcome = measure(asked, &dir, print);
    let _ = std::fs::remove_dir(&dir);
    outcome
}

fn measure(asked: &CheckDisks, dir: &Path, print: &mut dyn FnMut(&str)) -> Result<(), String> {
    let separate = Separate::new(dir, Asked { sync_us: asked.disk_sync, mib_us: asked.disk_per_mib })?;
    let mut disks = Vec::new();
    for number in 1..=asked.nodes {
        disks.push(separate.disk(&format!("node{number}"), &dir.join(format!("node{number}")), MIB)?);
    }
    let seconds = asked.duration;
    let time = Duration::from_secs_f64(seconds);
    let syncs = |dirs: &[PathBuf], way, size| {
        probe::syncs(dirs, way, size, time).map_err(|e| format!("{}: {e}", dirs[0].display()))
    };
    let first = disks[0].dir().to_owned();
    let mut rows = Vec::new();
    for way in Way::ALL {
        let real = syncs(&[dir.to_owned()], way, SMALL);
        match syncs(std::slice::from_ref(&first), way, SMALL) {
            Ok(modelled) => rows.push(Row { what: way.title().to_owned(), real: real.ok(), modelled, seconds }),
            Err(error) => print(&format!("{}: {error}", way.title())),
        }
    }
    rows.push(Row {
        what: "fdatasync after 1 MiB".to_owned(),
        real: syncs(&[dir.to_owned()], Way::Fdatasync, LARGE).ok(),
        modelled: syncs(std::slice::from_ref(&first), Way::Fdatasync, LARGE)?,
        seconds,
    });
    for writers in &WRITERS[1..] {
        rows.push(Row {
            what: format!("{writers} writers on one disk"),
            real: syncs(&vec![dir.to_owned(); *writers], Way::Fdatasync, SMALL).ok(),
            modelled: syncs(&vec![first.clone(); *writers], Way::Fdatasync, SMALL)?,
            seconds,
        });
    }
    let all: Vec<PathBuf> = disks.iter().map(|disk| disk.dir().to_owned()).collect();
    rows.push(Row {
        what: format!("{} nodes, each on its disk (real: on one)", all.len()),
        real: syncs(&vec![dir.to_owned(); all.len()], Way::Fdatasync, SMALL).ok(),
        modelled: syncs(&all, Way::Fdatasync, SMALL)?,
        seconds,
    });
    let told = separate.told();
    if asked.json {
        let of = |h: &Histogram, seconds: f64| {
            serde_json::json!({
                "p50_us": h.quantile(0.5) as f64 / 1e3, "p95_us": h.quantile(0.95) as f64 / 1e3,
                "p99_us": h.quantile(0.99) as f64 / 1e3, "per_s": h.total() as f64 / seconds,
            })
        };
        let list: Vec<serde_json::Value> = rows
            .iter()
            .map(|row| {
                serde_json::json!({ "what": row.what, "real": row.real.as_ref().map(|h| of(h, row.seconds)), "modelled": of(&row.modelled, row.seconds) })
            })
            .collect();
        print(&serde_json::json!({ "model": separate.model, "told": told, "rows": list }).to_string());
        return Ok(());
    }
    print(&told);
    print("");
    print("| | real disk: p50 / p95 / p99, µs | per second | modelled: p50 / p95 / p99, µs | per second |");
    print("|---|---|---|---|---|");
    for row in &rows {
        let cell = |h: Option<&Histogram>| match h {
            None => "– | –".to_owned(),
            Some(h) => format!(
                "{} / {} / {} | {:.0}",
                micros(h, 0.5),
                micros(h, 0.95),
                micros(h, 0.99),
                h.total() as f64 / row.seconds
            ),
        };
        print(&format!("| {} | {} | {} |", row.what, cell(row.real.as_ref()), cell(Some(&row.modelled))));
    }
    Ok(())
}
