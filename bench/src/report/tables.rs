//! Tables: Markdown for people, CSV for programs.

use super::statistics::{Cells, Key};
use crate::experiments::Layout;
use crate::record::{Outcome, Record};
use crate::systems::System;
use clap::ValueEnum;
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

/// A column of [`by_value`]: title, numbers, decimals.
pub struct Column {
    pub title: String,
    pub cells: Cells,
    pub decimals: usize,
}

/// Text beside the numbers of a system: title, and the text.
pub type Words = (&'static str, fn(System) -> &'static str);

/// A column for each value that is there, and one for each of the words. `None`: nothing to show.
pub fn by_value(layout: &Layout, all: Vec<Column>, words: &[Words]) -> Option<String> {
    let all: Vec<Column> = all.into_iter().filter(|column| !column.cells.is_empty()).collect();
    // Some points may lack some values.
    let mut rows: Vec<String> = Vec::new();
    for row in all.iter().flat_map(|column| column.cells.values_of(layout.rows)) {
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return None;
    }
    let mut out = String::new();
    let names = layout.rows.iter().map(|name| (*name).to_owned());
    let titles = all.iter().map(|column| column.title.clone());
    let further = words.iter().map(|(title, _)| (*title).to_owned());
    head(&mut out, &names.chain(titles).chain(further).collect::<Vec<_>>());
    for row in rows {
        let _ = write!(out, "| {} |", row.replace(" / ", " | "));
        for Column { cells, decimals, .. } in &all {
            let found = cells.iter().find(|(key, _)| place(key, layout.rows) == row);
            let _ = write!(out, " {} |", found.map_or_else(|| "–".to_owned(), |(_, summary)| summary.shown(*decimals)));
        }
        let keys = all.iter().flat_map(|column| column.cells.keys());
        let system =
            keys.filter(|key| place(key, layout.rows) == row).find_map(|key| System::from_str(&key.system, false).ok());
        for (_, of) in words {
            let _ = write!(out, " {} |", system.map_or("", of));
        }
        out.push('\n');
    }
    Some(out)
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
