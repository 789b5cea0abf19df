//! Everything exists that the documents point at: files, headings, commands, functions. They are in plain English,
//! and so are the comments of the sources.

mod comments;
mod plain;
mod pointers;

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every page in Markdown, with its text.
fn pages() -> Vec<(PathBuf, String)> {
    let mut pages = Vec::new();
    let mut places = vec![top(), top().join("docs")];
    places.extend(std::fs::read_dir(top().join("crates")).unwrap().map(|entry| entry.unwrap().path()));
    let at_top = top();
    while let Some(place) = places.pop() {
        for entry in std::fs::read_dir(&place).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && place.starts_with(at_top.join("docs")) {
                places.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                let text = std::fs::read_to_string(&path).unwrap();
                pages.push((path, text));
            }
        }
    }
    assert!(pages.len() > 20, "{}", pages.len());
    pages
}

/// `a/./b/../c` as `a/c`: links are judged as a reader's browser does it.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(part),
        }
    }
    plain
}

/// The anchors of a page, as the usual hosts make them from headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings
        .map(|heading| {
            let kept = heading.to_lowercase().replace(' ', "-");
            kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
        })
        .collect()
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let mut broken = Vec::new();
    let mut followed = 0;
    for (path, text) in &pages {
        for rest in text.split("](").skip(1) {
            let link = rest.split([')', ' ', '\n']).next().unwrap_or_default();
            if link.is_empty() || link.contains("://") || link.starts_with('<') {
                continue;
            }
            followed += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { plain(&path.parent().unwrap().join(file)) };
            if !target.exists() {
                broken.push(format!("{}: {link}: no such file", path.display()));
            } else if !anchor.is_empty() && !anchors(&std::fs::read_to_string(&target).unwrap()).contains(anchor) {
                broken.push(format!("{}: {link}: no such heading", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(followed > 100, "{followed}");
}

#[test]
fn every_page_is_on_the_site() {
    let list = std::fs::read_to_string(top().join("docs/SUMMARY.md")).unwrap();
    let docs = top().join("docs");
    let links = list.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let listed: BTreeSet<PathBuf> = links.map(|link| plain(&docs.join(link))).collect();
    let missing: Vec<PathBuf> = pages()
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| path.starts_with(&docs) && !path.ends_with("SUMMARY.md") && !listed.contains(path))
        .collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
}

/// The names of the commands below `path`, from their help.
fn commands(path: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_trireme")).args(path).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    // Under one heading, or, for the program itself, under several.
    let begun = help.lines().skip_while(|line| !line.starts_with("Usage:")).skip(1);
    let list = begun.take_while(|line| *line != "Options:" && *line != "Arguments:");
    // Two blanks before a name, more before the next line of its description.
    let names = list.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn every_command_that_is_named_exists() {
    let first = commands(&[]);
    assert!(first.contains("cluster") && first.contains("log"), "{first:?}");
    let nested: Vec<(&str, BTreeSet<String>)> =
        ["cluster", "log", "secret"].map(|name| (name, commands(&[name]))).into();
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') && !word.starts_with('-')
    };
    let mut wrong = Vec::new();
    let mut named = 0;
    for (path, text) in pages() {
        // Old entries name what was there then; the files of the log begin with such words.
        if path.ends_with("CHANGELOG.md") || path.ends_with("wslog-format.md") {
            continue;
        }
        let spans = text.split('`').skip(1).step_by(2).map(str::to_owned);
        let typed = text.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_owned);
        for span in spans.chain(typed) {
            let span = span.trim_start_matches("target/release/").trim_start_matches("sudo ");
            let Some(words) = span.strip_prefix("trireme ") else { continue };
            let mut words = words.split([' ', '\n', '|', ',', '…']).filter(|word| !word.is_empty());
            let Some(word) = words.next().filter(|word| is_word(word)) else { continue };
            named += 1;
            if !first.contains(word) {
                wrong.push(format!("{}: trireme {word}", path.display()));
            }
            if let Some((_, inner)) = nested.iter().find(|(name, _)| *name == word) {
                if let Some(next) = words.next().filter(|next| is_word(next) && !inner.contains(*next)) {
                    wrong.push(format!("{}: trireme {word} {next}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(named > 50, "{named}");
}

/// Source files below `place`.
fn sources(place: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(place).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// The table of attacks promises that each was tried.
#[test]
fn every_test_that_stands_beside_an_attack_exists() {
    let page = std::fs::read_to_string(top().join("docs/security.md")).unwrap();
    let rows = page.lines().skip_while(|line| !line.starts_with("| attack |")).skip(2);
    let mut files = Vec::new();
    sources(&top().join("crates"), &mut files);
    let mut missing = Vec::new();
    let mut named = 0;
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cell = row.trim_end_matches(['|', ' ']).rsplit(" | ").next().unwrap_or_default();
        assert!(cell.contains('`') || cell == "the same", "no test: {row}");
        let mut texts: Vec<String> = Vec::new();
        for span in cell.split('`').skip(1).step_by(2) {
            if span.ends_with(".rs") {
                let here: Vec<&PathBuf> = files.iter().filter(|path| path.ends_with(span)).collect();
                texts = here.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
                missing.extend(here.is_empty().then(|| span.to_owned()));
            } else if span.contains('/') {
                missing.extend((!top().join(span).is_file()).then(|| span.to_owned()));
            } else {
                named += 1;
                let there = texts.iter().any(|text| text.contains(&format!("fn {span}(")));
                missing.extend((!there).then(|| format!("{span}: {row}")));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(named > 60, "{named}");
}
