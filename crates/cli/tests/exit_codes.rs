//! Every command ends with the codes that docs/operations/exit-codes.md lists, and its help names them.

use std::process::{Command, Stdio};

const FAILED: i32 = 1;
const WRONG_USAGE: i32 = 2;
const NOT_WELL: i32 = 3;

fn code(program: &mut Command) -> i32 {
    program.stdin(Stdio::null()).output().unwrap().status.code().unwrap()
}

fn of(words: &str) -> i32 {
    let dir = std::env::temp_dir().join(format!("trireme-exit-codes-{}", std::process::id()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_trireme"));
    code(command.args(words.split_whitespace()).env("TRIREME_CLUSTER_DIR", dir))
}

#[test]
fn wrong_usage_is_2_everywhere() {
    for words in [
        "",
        "no-such-command",
        "up --nodes 0",
        "cluster up --nodes 33",
        "cluster up --sst ftp",
        "cluster kill",
        "chaos --nodes 0",
        "chaos --flush 3",
        "arbitrate",
        "arbitrate --address gcomm://127.0.0.1",
        "balance --no-such-option",
        "status --no-such-option",
        "log verify",
        "secret new",
        "completions no-such-shell",
    ] {
        assert_eq!(of(words), WRONG_USAGE, "trireme {words}");
    }
}

#[test]
fn a_failure_is_1() {
    for words in [
        "cluster status",
        "cluster kill 1",
        "log verify /nonexistent",
        "secret rotate /nonexistent",
        "status --host 127.0.0.1:1",
        "doctor --host 127.0.0.1:1",
    ] {
        assert_eq!(of(words), FAILED, "trireme {words}");
    }
}

#[test]
fn a_closed_pipe_is_no_failure() {
    for words in ["explain --list", "help", "cluster down"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_trireme"));
        let ended = command.args(words.split_whitespace()).stdin(Stdio::null()).stdout(writer).status().unwrap();
        assert_eq!(ended.code(), Some(0), "trireme {words}");
    }
}

#[test]
fn nothing_to_do_is_no_failure() {
    for words in ["cluster down", "--help", "--version", "completions bash"] {
        assert_eq!(of(words), 0, "trireme {words}");
    }
}

#[test]
fn what_is_not_well_is_3() {
    assert_eq!(of("explain no such line was ever written"), NOT_WELL);
}

#[test]
fn the_old_names_keep_their_codes() {
    let dir = std::env::temp_dir().join(format!("trireme-old-names-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let ours = Command::new(env!("CARGO_BIN_EXE_trireme")).arg("--version").output().unwrap();
    let ours = String::from_utf8(ours.stdout).unwrap();
    for name in ["garbd", "glbd"] {
        let link = dir.join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_trireme"), &link).unwrap();
        assert_eq!(code(Command::new(&link).arg("--no-such-option")), FAILED, "{name}");
        let told = Command::new(&link).arg("--version").output().unwrap();
        assert_eq!(told.status.code(), Some(0), "{name}");
        let told = String::from_utf8(told.stdout).unwrap();
        assert_eq!(told.strip_prefix(name), ours.strip_prefix("trireme"), "{name}: the version with its commit");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn the_page_names_every_code_that_a_help_names() {
    let page = include_str!("../../../docs/operations/exit-codes.md");
    let listed = |code: &str| page.lines().any(|line| line.starts_with(&format!("| {code} |")));
    let mut named = 0;
    for words in [
        "",
        "up",
        "status",
        "doctor",
        "explain",
        "cluster",
        "chaos",
        "arbitrate",
        "balance",
        "log",
        "bundle",
        "bench",
        "log term",
        "cluster kill",
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trireme"));
        let output = command.args(words.split_whitespace()).arg("--help").output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let (_, codes) = help.split_once("Exit codes").unwrap_or_else(|| panic!("trireme {words}: no exit codes"));
        for line in codes.lines().skip(1).take_while(|line| !line.trim().is_empty()) {
            let Some(code) = line.split_whitespace().next().filter(|word| word.parse::<u8>().is_ok()) else { continue };
            named += 1;
            assert!(listed(code), "trireme {words}: {line}");
        }
    }
    assert!(named > 30, "{named}");
}
