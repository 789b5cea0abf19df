//! Plain aligned tables, sizes and times for people.

use std::io::Write;

/// The head and a line per row. Cells are as wide as the widest of their column.
pub fn lines(head: &[String], rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .chain(head.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    std::iter::once(head)
        .chain(rows.iter().map(Vec::as_slice))
        .map(|row| {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            cells.join("  ").trim_end().to_owned()
        })
        .collect()
}

pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// `1.5 GiB`.
pub fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// `40 s`, `5 min`, `3.5 h`, `12 d`; more than a year is told as that.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() || s > 365.0 * 86400.0 => "> 1 year".to_owned(),
        s if s >= 172_800.0 => format!("{:.0} d", s / 86400.0),
        s if s >= 7200.0 => format!("{:.1} h", s / 3600.0),
        s if s >= 120.0 => format!("{:.0} min", s / 60.0),
        s => format!("{s:.0} s"),
    }
}

/// A line on stdout. That may be a closed pipe (`| head`), which is no error.
pub fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// The word of another machine, as it may be shown on a terminal: no control characters.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align() {
        let lines = lines(&["A".into(), "B".into()], &[vec!["long".into(), "x".into()], vec!["é".into(), "yy".into()]]);
        assert_eq!(lines, ["A     B", "long  x", "é     yy"]);
    }

    #[test]
    fn sizes_and_times() {
        assert_eq!((bytes(512), bytes(1536), bytes(3 << 30)), ("512 B".into(), "1.5 KiB".into(), "3.0 GiB".into()));
        let of = |s| time(s);
        assert_eq!(
            [of(40.0), of(300.0), of(12_600.0), of(1e6), of(1e9)],
            ["40 s", "5 min", "3.5 h", "12 d", "> 1 year"]
        );
        assert_eq!(printable("a\x1b[2Jb\n"), "a?[2Jb?");
    }
}
