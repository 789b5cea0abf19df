//! The words below the table of durability settings: what an acknowledgement means in each row, and what the bottom row's safety costs.

use super::statistics::{Cells, Key};
use crate::systems::{Kind, System};
use std::fmt::Write;

/// Where a commit is on the server that was asked, by the row's settings.
fn own(sync_binlog: &str, flush: &str) -> String {
    let engine = match flush {
        "1" => "on its disk",
        "2" => "in the memory of its machine's kernel",
        _ => "in the server's memory",
    };
    // With flush=1 the engine's own log has all.
    let log = if sync_binlog == "1" && flush != "1" { ", and in its binary log on disk" } else { "" };
    format!("{engine}{log}")
}

/// The guarantee of a row.
fn guarantee(system: System, sync_binlog: &str, flush: &str) -> String {
    match system.kind() {
        Kind::Galera => {
            format!("in the memory of every member; on the server that was asked: {}", own(sync_binlog, flush))
        }
        Kind::Alone => format!("{}; one server only", own(sync_binlog, flush)),
        _ => system.guarantee().to_owned(),
    }
}

pub fn words(cells: &Cells) -> String {
    let mut text = acknowledgements(cells);
    text.push_str(&claims(cells));
    text
}

/// A line for each system and row; one for a system whose guarantee does not depend on the row.
fn acknowledgements(cells: &Cells) -> String {
    let mut lines: Vec<[String; 4]> = Vec::new();
    for key in cells.keys() {
        let Ok(system) = clap::ValueEnum::from_str(&key.system, false) else { continue };
        let (sync_binlog, flush) = (key.coordinate("sync_binlog"), key.coordinate("flush"));
        let means = guarantee(system, &sync_binlog, &flush);
        let line = match means == system.guarantee() {
            true => [key.system.clone(), "any".to_owned(), "any".to_owned(), means],
            false => [key.system.clone(), sync_binlog, flush, means],
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let mut text =
        "\nAn acknowledgement means, by the row's settings and not by the system's usual ones:\n\n| system | sync_binlog | flush | |\n|---|---|---|---|\n"
            .to_owned();
    lines.iter().for_each(|line| {
        let _ = writeln!(text, "| {} |", line.join(" | "));
    });
    text
}

/// The safety of the bottom rows at the speed of the top row: ours with nothing synced by the server, beside a rival with all and with nothing
/// synced by the server.
fn claims(cells: &Cells) -> String {
    let mut text = String::new();
    let of_row = |key: &Key, system: System, nodes: u8, row: &str| {
        let mut key = Key { system: system.name(), nodes, ..key.clone() };
        key.set.insert("sync_binlog".to_owned(), row.to_owned());
        key.set.insert("flush".to_owned(), row.to_owned());
        cells.get(&key)
    };
    let is_ours = |key: &&Key| key.system == System::TriremeDisk.name();
    for key in cells.keys().filter(is_ours) {
        if key.coordinate("sync_binlog") != "0" || key.coordinate("flush") != "0" {
            continue;
        }
        let Some(ours) = cells.get(key) else { continue };
        for (system, nodes) in [(System::Galera, key.nodes), (System::Plain, 1)] {
            let Some(durable) = of_row(key, system, nodes, "1").filter(|other| other.median > 0.0) else { continue };
            let fast = of_row(key, system, nodes, "0").filter(|other| other.median > 0.0);
            let fast = fast.map_or_else(String::new, |fast| {
                format!(", and {:.2} × those with nothing synced (0 / 0)", ours.median / fast.median)
            });
            let _ = writeln!(
                text,
                "- {} threads: {} with nothing synced by the server (0 / 0) does {:.2} × the transactions of {} with all synced (1 / 1){fast}.",
                key.coordinate("threads"),
                key.system,
                ours.median / durable.median,
                system.name(),
            );
        }
    }
    if text.is_empty() { text } else { format!("\nWhat durability costs:\n\n{text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_guarantee_of_its_settings() {
        let of = |system, sync_binlog, flush| guarantee(system, sync_binlog, flush);
        assert!(of(System::Galera, "1", "1").ends_with("asked: on its disk"));
        assert!(of(System::Galera, "1", "0").ends_with("in the server's memory, and in its binary log on disk"));
        assert!(of(System::Plain, "0", "2").starts_with("in the memory of its machine's kernel"));
        assert_eq!(of(System::TriremeDisk, "0", "0"), System::TriremeDisk.guarantee());
    }
}
