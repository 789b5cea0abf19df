//! Tables: Markdown for people, CSV for programs.

use super::statistics::{Cells, Key};
use crate::experiments::Layout;
use crate::record::{Outcome, Record};
use std::fmt::Write;

fn head(out: &mut String, words: &[String]) {
    let _ = write!(out, "| {} |\n|{}\n", words.join(" | "), "---|".repeat(words.len()));
}

fn place(key: &Key, names: &[&str]) -> String {
    names.iter().map(|name| key.coordinate(name)).collect::<Vec<_>>().join(" / ")
}

/// Rows and columns as the layout has them. `None`: nothing to show.
pub fn pivot(layout: &Layout, cells: &Cells, decimals: usize) -> Option<String> {
    cells.keys().next()?;
    let (rows, columns) = (cells.values_of(layout.rows), cells.values_of(layout.columns));
    let mut out = String::new();
    let names = layout.rows.iter().map(|name| (*name).to_owned());
    head(&mut out, &names.chain(columns.iter().cloned()).collect::<Vec<_>>());
    for row in &rows {
        let _ = write!(out, "| {} |", row.replace(" / ", " | "));
        for column in &columns {
            let found =
                cells.iter().find(|(key, _)| place(key, layout.rows) == *row && place(key, layout.columns) == *column);
            let _ = write!(out, " {} |", found.map_or_else(String::new, |(_, summary)| summary.shown(decimals)));
        }
        out.push('\n');
    }
    Some(out)
}

/// One value, a row for each point.
pub fn list(layout: &Layout, cells: &Cells, decimals: usize) -> Option<String> {
    cells.keys().next()?;
    let mut out = String::new();
    let names = layout.rows.iter().map(|name| (*name).to_owned());
    head(&mut out, &names.chain([layout.values[0].title.to_owned()]).collect::<Vec<_>>());
    for row in cells.values_of(layout.rows) {
        let found = cells.iter().find(|(key, _)| place(key, layout.rows) == row);
        let _ = writeln!(
            out,
            "| {} | {} |",
            row.replace(" / ", " | "),
            found.map_or_else(String::new, |(_, s)| s.shown(decimals))
        );
    }
    Some(out)
}

/// A column for each value that is there.
pub fn by_value(layout: &Layout, records: &[&Record]) -> String {
    let all: Vec<_> = layout.values.iter().map(|value| (value, Cells::of(records, value.name))).collect();
    let all: Vec<_> = all.into_iter().filter(|(_, cells)| cells.keys().next().is_some()).collect();
    // Some points may lack some values.
    let mut rows: Vec<String> = Vec::new();
    for row in all.iter().flat_map(|(_, cells)| cells.values_of(layout.rows)) {
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut out = "\n".to_owned();
    let names = layout.rows.iter().map(|name| (*name).to_owned());
    head(&mut out, &names.chain(all.iter().map(|(value, _)| value.title.to_owned())).collect::<Vec<_>>());
    for row in rows {
        let _ = write!(out, "| {} |", row.replace(" / ", " | "));
        for (value, cells) in &all {
            let found = cells.iter().find(|(key, _)| place(key, layout.rows) == row);
            let _ = write!(
                out,
                " {} |",
                found.map_or_else(|| "–".to_owned(), |(_, summary)| summary.shown(value.decimals))
            );
        }
        out.push('\n');
    }
    out
}

/// One line for each value of each point.
pub fn csv(records: &[Record]) -> String {
    let quoted = |text: &str| match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    let mut out = "experiment,system,nodes,settings,repeat,outcome,name,value\n".to_owned();
    for record in records {
        let point = &record.point;
        let set: Vec<String> = point.set.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let (outcome, reason) = match &record.outcome {
            Outcome::Measured => ("measured", None),
            Outcome::Failed(reason) => ("failed", Some(reason)),
            Outcome::Skipped(reason) => ("skipped", Some(reason)),
        };
        let head = format!(
            "{},{},{},{},{},{outcome}",
            point.experiment,
            quoted(&point.system),
            point.nodes,
            quoted(&set.join(";")),
            point.repeat
        );
        if let Some(reason) = reason {
            let _ = writeln!(out, "{head},{},", quoted(reason));
        }
        for (name, value) in &record.measured.values {
            let _ = writeln!(out, "{head},{},{value}", quoted(name));
        }
    }
    out
}
