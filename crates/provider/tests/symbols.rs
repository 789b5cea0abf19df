//! The library exports what `symbols.txt` lists, and nothing else: what a server finds by name is an interface.

use std::path::PathBuf;
use std::process::Command;

#[test]
fn exported_symbols_are_the_committed_ones() {
    let library = build();
    let nm = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().expect("nm is installed");
    assert!(nm.status.success(), "nm {}: {}", library.display(), String::from_utf8_lossy(&nm.stderr));
    let mut found: Vec<String> = String::from_utf8(nm.stdout)
        .expect("symbol names are ASCII")
        .lines()
        .map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "))
        .collect();
    found.sort();
    let committed: Vec<&str> = include_str!("../symbols.txt").lines().collect();
    assert_eq!(found, committed);
}

/// Builds the library as the tests are built: with them it shares all crates but this one. Of the installed one `scripts/run-tests install` asks
/// the same.
fn build() -> PathBuf {
    let test = std::env::current_exe().expect("a test program knows its path");
    let target = test.ancestors().nth(3).expect("it lies in <target>/<profile>/deps");
    let top = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--workspace",
            "--example",
            "trireme_checked",
            "--manifest-path",
            top,
            "--target-dir",
        ])
        .arg(target)
        .status()
        .expect("cargo runs");
    assert!(status.success());
    target.join("debug/examples/libtrireme_checked.so")
}
