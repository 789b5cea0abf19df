//! `trireme log verify`.

use std::path::Path;

use serde_json::json;
use trireme_order::LogCheck;
use trireme_wslog::LogKeys;
use trireme_wslog::inspect::entries;

use super::{LOOKS, Look, Outcome, look, range_json, range_text, text};
use crate::run::{print_json, print_line};

pub fn log(dir: &Path, keys: &Option<LogKeys>, as_json: bool) -> Result<Outcome, String> {
    let (look, unread) = read(dir, keys)?;
    let mut damage = look.damage();
    damage.extend(unread);
    let report = &look.verdict.report;
    if as_json {
        print_json(&json!({
            "sound": damage.is_empty(),
            "damage": damage,
            "notes": report.notes,
            "entries": range_json(look.range()),
            "hole": range_json(report.hole),
            "lost_history": range_json(report.lost_history),
            "torn_tail": report.torn_tail_cut,
            "suspect_after": report.suspect.map(|index| index.raw()),
            "closed": look.is_closed(),
            "rebooted": report.rebooted,
            "watermark": report.watermark.raw(),
        }));
    } else {
        for line in &report.notes {
            print_line(&format!("note: {line}"));
        }
        for line in &damage {
            print_line(&format!("damage: {line}"));
        }
        let verdict = if damage.is_empty() { "sound" } else { "damaged" };
        print_line(&format!("{verdict}: entries {}", range_text(look.range())));
    }
    Ok(if damage.is_empty() { Outcome::Done } else { Outcome::Damaged })
}

/// Everything is read as the node reads it; the line says what it could not. A running owner may trim in the meantime.
fn read(dir: &Path, keys: &Option<LogKeys>) -> Result<(Look, Option<String>), String> {
    let mut last = Err(String::new());
    for _ in 0..LOOKS {
        let look = look(dir, keys.clone())?;
        last = unread(&look).map(|unread| (look, unread));
        if last.is_ok() {
            break;
        }
    }
    last
}

fn unread(look: &Look) -> Result<Option<String>, String> {
    let mut check = LogCheck::from_base(&look.verdict.base);
    let mut refused = None;
    entries(&look.storage, look.range(), look.keys.as_ref(), |entry| {
        let (index, kind) = (entry.header.index, entry.header.kind);
        refused = check.take(&entry).err().map(|why| format!("entry {index} ({kind:?}) {why}"));
        refused.is_none()
    })
    .map_err(text)?;
    Ok(refused)
}
