//! `trireme log verify`.

use serde_json::json;

use super::{Look, Outcome, range_json, range_text};
use crate::run::{print_json, print_line};

pub fn log(look: &Look, as_json: bool) -> Result<Outcome, String> {
    let damage = look.damage();
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
