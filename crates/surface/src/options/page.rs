//! The page for operators says of every option what the table says.

use super::table::{Kind, Spec, TABLE, When};

const PAGE: &str = include_str!("../../../../docs/operations/options.md");

fn values(kind: Kind) -> String {
    match kind {
        Kind::Period { min_ns: 0 } => "period".to_owned(),
        Kind::Period { min_ns } => format!("period from PT{}S", min_ns as f64 / 1e9),
        Kind::Size { min: 0 } => "size".to_owned(),
        Kind::Size { min } => format!("size from {min}"),
        Kind::AutoSize => "auto or size".to_owned(),
        Kind::Int { min: i64::MIN, .. } => "any number".to_owned(),
        Kind::Int { min, max: i64::MAX } => format!("number from {min}"),
        Kind::Int { min, max } => format!("{min} to {max}"),
        Kind::Bool => "yes or no".to_owned(),
        Kind::Real { min, max, max_included: true } => format!("{min} to {max}"),
        Kind::Real { min, max, max_included: false } => format!("{min} to below {max}"),
        Kind::Mask => "bit mask".to_owned(),
        Kind::Address => "address".to_owned(),
        Kind::Text => "text".to_owned(),
        Kind::Choice(words) => words.join(", "),
        Kind::Uuid => "UUID or empty".to_owned(),
    }
}

/// The row without what the option does.
fn beginning(spec: &Spec) -> String {
    let default = if spec.default.is_empty() { "derived or empty".to_owned() } else { format!("`{}`", spec.default) };
    let when = match spec.when {
        When::Dynamic => "any time",
        When::Start => "start",
        When::Trigger => "command",
    };
    format!("| `{}` | {default} | {} | {when} | ", spec.name, values(spec.kind))
}

#[test]
fn every_option_has_its_row_in_order_and_no_other_has_one() {
    let rows: Vec<&str> = PAGE.lines().filter(|line| line.starts_with("| `")).collect();
    for (row, spec) in rows.iter().zip(TABLE) {
        let begins = beginning(spec);
        let effect = row.strip_prefix(&begins).unwrap_or_else(|| panic!("write {begins}… instead of {row}"));
        assert!(effect.trim_end_matches(" |").len() > 5, "{}: what does it do?", spec.name);
    }
    assert_eq!(rows.len(), TABLE.len());
}
