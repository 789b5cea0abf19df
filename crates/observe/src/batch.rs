//! The output of `mariadb --batch`: a line with column names for each result, then the rows, cells separated by tabs.

use std::collections::BTreeMap;

/// Names and values of several `SHOW … VARIABLES` or `SHOW STATUS`, in the order in which they were asked for. Names are in lower case.
pub type Pairs = BTreeMap<String, String>;

/// The columns of the `SHOW` statements that are asked for.
const HEAD: &str = "Variable_name\tValue";

/// One set of pairs per result. A line that belongs to none is skipped: an option file may make the client print more.
pub fn pairs(text: &str) -> Vec<Pairs> {
    let mut results: Vec<Pairs> = Vec::new();
    for line in text.lines() {
        if line == HEAD {
            results.push(Pairs::new());
        } else if let (Some(pairs), Some((name, value))) = (results.last_mut(), line.split_once('\t')) {
            pairs.insert(name.to_ascii_lowercase(), unescape(value));
        }
    }
    results
}

/// The rows of one result, without its names. `None` stands for NULL.
pub fn rows(text: &str) -> Vec<Vec<Option<String>>> {
    let cell = |cell: &str| (cell != "NULL").then(|| unescape(cell));
    text.lines().skip(1).map(|line| line.split('\t').map(cell).collect()).collect()
}

/// The client writes a line end as `\n`, a tab as `\t`, a zero byte as `\0` and a backslash twice.
fn unescape(cell: &str) -> String {
    let mut out = String::with_capacity(cell.len());
    let mut chars = cell.chars();
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('n')) => out.push('\n'),
            ('\\', Some('t')) => out.push('\t'),
            ('\\', Some('0')) => out.push('\0'),
            ('\\', Some(other)) => out.push(other),
            (c, _) => out.push(c),
        }
    }
    out
}

/// The error that the client reports: number, if it has one, and text.
pub fn error(stderr: &str) -> (Option<u32>, String) {
    let line = stderr
        .lines()
        .map(str::trim)
        .find(|line| line.contains("ERROR"))
        .or_else(|| stderr.lines().map(str::trim).rfind(|line| !line.is_empty()));
    let Some(line) = line else { return (None, "the client ended without a word".to_owned()) };
    let Some((_, rest)) = line.split_once("ERROR ") else { return (None, line.to_owned()) };
    let number = rest.split([' ', ':']).next().and_then(|n| n.parse().ok());
    let text = rest.split_once(": ").map_or(rest, |(_, text)| text);
    (number, text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_results_and_what_is_escaped() {
        let text = "Variable_name\tValue\nwsrep_ready\tON\nWsrep_x\ta\\tb\\\\c\\n\nVariable_name\tValue\nwsrep_on\t\n";
        let results = pairs(text);
        assert_eq!(results.len(), 2);
        assert_eq!(results[0]["wsrep_x"], "a\tb\\c\n");
        assert_eq!(results[1]["wsrep_on"], "");
        assert_eq!(pairs("nonsense\tof a pager\n"), Vec::<Pairs>::new());
        assert_eq!(pairs("Variable_name\tValue\ncut off"), [Pairs::new()]);
    }

    #[test]
    fn rows_with_null() {
        assert_eq!(rows("a\tb\n1\tNULL\n"), [[Some("1".to_owned()), None]]);
        assert!(rows("").is_empty());
    }

    #[test]
    fn errors_of_the_client() {
        let refused = "ERROR 2002 (HY000): Can't connect to local server through socket '/x' (111)\n";
        assert_eq!(error(refused), (Some(2002), "Can't connect to local server through socket '/x' (111)".to_owned()));
        let denied = "mariadb: warning\nERROR 1045 (28000): Access denied for user 'x'@'y' (using password: NO)\n";
        assert_eq!(error(denied).0, Some(1045));
        let at_line = "ERROR 1047 (08S01) at line 1: WSREP has not yet prepared node for application use\n";
        assert_eq!(error(at_line), (Some(1047), "WSREP has not yet prepared node for application use".to_owned()));
        assert_eq!(error("mariadb: unknown option '--x'\n"), (None, "mariadb: unknown option '--x'".to_owned()));
        assert_eq!(error(""), (None, "the client ended without a word".to_owned()));
    }
}
