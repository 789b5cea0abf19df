//! The documents name functions that decide. A reader looks them up, so each of them is where the page says.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::{sources, top};

fn text(path: &str) -> String {
    std::fs::read_to_string(top().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The spans of code in a line.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_name(span: &str) -> bool {
    !span.is_empty() && span.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The rows of the table below this heading, without its head.
fn rows<'a>(page: &'a str, heading: &str) -> Vec<&'a str> {
    let below = page.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !line.starts_with("## "));
    below.filter(|line| line.starts_with('|')).skip(2).collect()
}

/// A name is looked for in the file that was named last.
fn dead_pointers(rows: &[&str], named: &mut usize) -> Vec<String> {
    let mut dead = Vec::new();
    for row in rows {
        let cells = row.trim_start_matches('|').split_once('|').map_or("", |(_, cells)| cells);
        let mut file: Option<(&str, String)> = None;
        for span in spans(cells) {
            let path = format!("crates/{span}");
            if span.ends_with(".rs") || span.ends_with(".md") {
                match std::fs::read_to_string(top().join(&path)) {
                    Ok(text) => file = Some((span, text)),
                    Err(error) => dead.push(format!("{path}: {error}")),
                }
            } else if is_name(span) {
                *named += 1;
                let Some((name, text)) = &file else {
                    dead.push(format!("no file before {span}: {row}"));
                    continue;
                };
                let defined = ["fn", "const", "enum", "struct", "trait"].iter().any(|kind| {
                    let with = |end: &str| text.contains(&format!("{kind} {span}{end}"));
                    ["(", "<", ":", " "].into_iter().any(with)
                });
                dead.extend((!defined).then(|| format!("{span} is not in {name}")));
            }
        }
    }
    dead
}

/// Files that a row names without saying what in them decides. Pages decide nothing and need no name.
fn bare_files<'a>(rows: &[&'a str]) -> Vec<&'a str> {
    let mut bare = Vec::new();
    for row in rows {
        let cell = row.trim_end_matches(['|', ' ']).rsplit(" | ").next().unwrap_or_default();
        let mut file: Option<&str> = None;
        let mut names = 0;
        for span in spans(cell) {
            if span.ends_with(".rs") {
                bare.extend(file.replace(span));
            } else if is_name(span) {
                file = None;
                names += 1;
            }
        }
        bare.extend(file);
        bare.extend((names == 0).then_some(*row));
    }
    bare
}

#[test]
fn finds_a_file_without_a_function() {
    let found = |cell: &str| bare_files(&[format!("| a | {cell} |").as_str()]).len();
    assert_eq!(found("`a.rs`: `b`, `c`; then `d.rs`: `e`; `f.md`"), 0);
    assert_eq!(found("`a.rs`; then `d.rs`: `e`"), 1);
    assert_eq!(found("`a.rs`: `b`; then `d.rs`"), 1);
    assert_eq!(found("nobody"), 1);
}

#[test]
fn every_function_of_the_tables_is_in_the_file_beside_it() {
    let page = text("ARCHITECTURE.md");
    let mut named = 0;
    let decisions = rows(&page, "## From a decision to the function that makes it");
    let calls = rows(&page, "## From a call of the wsrep API to the function that decides");
    let dead = [dead_pointers(&decisions, &mut named), dead_pointers(&calls, &mut named)].concat();
    assert!(dead.is_empty(), "{dead:#?}");
    assert!(named > 100, "{named}");
    let bare = [bare_files(&decisions), bare_files(&calls)].concat();
    assert!(bare.is_empty(), "nothing in these is named: {bare:#?}");
}

#[test]
fn every_call_that_reaches_the_node_is_in_the_table() {
    let page = text("ARCHITECTURE.md");
    let calls = rows(&page, "## From a call of the wsrep API to the function that decides");
    let first = |row: &&str| row.trim_start_matches('|').split('|').next().unwrap_or_default().to_owned();
    let cells: Vec<String> = calls.iter().map(first).collect();
    let in_table: BTreeSet<&str> = cells.iter().flat_map(|cell| spans(cell)).collect();
    let entries = text("crates/provider/src/entry.rs");
    let mut reaching = BTreeSet::new();
    let mut all = BTreeSet::new();
    for entry in entries.split("pub unsafe extern \"C\" fn ").skip(1) {
        let name = entry.split('(').next().unwrap_or_default();
        all.insert(name);
        // Two of them are about the instance as a whole.
        if entry.contains("node.") || entry.contains(".node") || ["init", "free"].contains(&name) {
            reaching.insert(name);
        }
    }
    assert!(reaching.len() > 20, "{reaching:?}");
    assert_eq!(reaching.difference(&in_table).collect::<Vec<_>>(), Vec::<&&str>::new(), "not in the table");
    assert_eq!(in_table.difference(&all).collect::<Vec<_>>(), Vec::<&&str>::new(), "no such call");
}

/// Words of the source, and of nothing else: what a server or MariaDB's suites call something is not ours to hold.
#[test]
fn every_name_of_the_protocol_is_a_word_of_the_source() {
    let mut files: Vec<PathBuf> = Vec::new();
    sources(&top().join("crates"), &mut files);
    let mut words = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        words.extend(text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_owned));
    }
    let mut unknown = Vec::new();
    let mut named = 0;
    for page in ["docs/protocol.md", "docs/threads.md", "docs/glossary.md", "docs/wslog-format.md", "ARCHITECTURE.md"] {
        for (n, line) in text(page).lines().enumerate() {
            let ours = |span: &&str| (span.contains('_') || span.contains("::")) && !span.starts_with("wsrep_");
            for span in spans(line).filter(ours).filter(|span| is_name(&span.replace("::", ""))) {
                named += 1;
                let missing = span.split("::").filter(|word| !words.contains(*word));
                unknown.extend(missing.map(|word| format!("{page}:{}: {word}", n + 1)));
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
    assert!(named > 200, "{named}");
}
