//! docs/security.md names a test for each attack: it has to exist.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(dir: &Path, into: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() && entry.file_name() != "target" {
            sources(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            into.push((path, text));
        }
    }
}

#[test]
fn every_test_that_the_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/security.md")).unwrap();
    let mut all = Vec::new();
    sources(&root.join("crates"), &mut all);
    let table = page.split("## What was tried, and what happens").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows: Vec<Vec<&str>> = table.lines().skip(4).map(|row| row.split('|').map(str::trim).collect()).collect();
    let mut named = 0;
    for row in rows.iter().filter(|row| row.len() > 3) {
        let [_, attack, _, tests, ..] = &row[..] else { panic!("{row:?}") };
        assert!(tests.contains('`'), "no test of: {attack}");
        // What stands between backticks: files, then tests in them.
        for name in tests.split('`').skip(1).step_by(2) {
            let found = match name {
                _ if name.ends_with(".rs") => {
                    all.iter().any(|(path, _)| path.ends_with(name) || path.to_string_lossy().ends_with(name))
                }
                _ if name.contains(|c: char| !c.is_ascii_lowercase() && c != '_' && !c.is_ascii_digit()) => {
                    root.join(name).exists()
                }
                _ => all.iter().any(|(_, text)| text.contains(&format!("fn {name}("))),
            };
            assert!(found, "{attack}: there is no {name}");
            named += 1;
        }
    }
    assert!(named > 50, "{named} files and tests");
}
