//! Lines of a MariaDB server's error log.

/// One line, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// As it is written, `2026-11-23 00:01:20`, with the hour in two digits: sorts as text. `None`: a line that continues another, or of a script.
    pub time: Option<String>,
    /// `Note`, `Warning` or `ERROR`.
    pub level: Option<&'a str>,
    pub text: &'a str,
}

/// `2026-11-23  0:01:20 0 [Note] WSREP: text`. A line of another form is text as a whole.
pub fn parse(line: &str) -> Entry<'_> {
    let whole = Entry { time: None, level: None, text: line.trim() };
    let (Some(date), Some(rest)) = (line.get(..10), line.get(10..)) else { return whole };
    if !looks_like(date, "dddd-dd-dd") {
        return whole;
    }
    let rest = rest.trim_start_matches([' ', 'T']);
    let (clock, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let clock = if clock.len() == 7 { format!("0{clock}") } else { clock.to_owned() };
    let Some(clock) = clock.get(..8).filter(|clock| looks_like(clock, "dd:dd:dd")) else { return whole };
    let time = Some(format!("{date} {clock}"));
    let Some((level, text)) = rest.split_once('[').and_then(|(_, rest)| rest.split_once(']')) else {
        return Entry { time, level: None, text: rest.trim() };
    };
    let text = text.trim_start();
    Entry { time, level: Some(level), text: text.strip_prefix("WSREP: ").unwrap_or(text).trim_end() }
}

fn looks_like(text: &str, shape: &str) -> bool {
    text.len() == shape.len()
        && text.bytes().zip(shape.bytes()).all(|(c, s)| if s == b'd' { c.is_ascii_digit() } else { c == s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let entry = parse("2026-11-23  0:01:20 0 [Note] WSREP: Shifting A -> B (TO: 3)");
        assert_eq!(entry.time.as_deref(), Some("2026-11-23 00:01:20"));
        assert_eq!((entry.level, entry.text), (Some("Note"), "Shifting A -> B (TO: 3)"));
        assert_eq!(parse("2026-11-23 12:01:20 17 [ERROR] x").time.as_deref(), Some("2026-11-23 12:01:20"));
        assert_eq!(parse("\tGroup state: x").text, "Group state: x");
        for odd in ["", "é", "2026-11-23", "2026-11-23 x", "2026-11-23  0:0", "2026-99-99é0:01:20 [", "２０２６"]
        {
            let _ = parse(odd);
        }
    }
}
