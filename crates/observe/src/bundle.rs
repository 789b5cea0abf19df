//! `trireme bundle`: what support needs of a cluster, in one archive: no rows, no secrets.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use serde_json::json;

use crate::batch::Pairs;
use crate::client::Connect;
use crate::cluster::Picture;
use crate::errorlog;
use crate::status::{ask_all, unix_time};
use crate::survey::{Answer, Target};
use crate::table::print_line;

const NOTES: &str = "\
The archive holds, of every server that answers, the wsrep status and the settings that concern replication; of each log that is named, the lines of
the server with a level, without statements; what the flight recorders hold that are named; and what this machine says of the service. The values of settings that may be secrets are left
out. It is made readable for you only; look through it before you give it away.

Exit codes:
  0  done
  1  failed, with one line on stderr
  2  wrong usage";

#[derive(Clone, Debug, Args)]
#[command(after_help = NOTES)]
pub struct Bundle {
    #[command(flatten)]
    pub connect: Connect,
    /// The archive, which must not exist yet
    #[arg(long, value_name = "FILE", default_value = "trireme-bundle.tar.gz")]
    pub out: PathBuf,
    /// Error logs, [NAME=]FILE
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub log: Vec<String>,
    /// Flight recorders: directories with write-set logs, or files, [NAME=]PATH
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub flight: Vec<String>,
}

/// `trireme bundle`.
pub fn run(asked: &Bundle) -> ExitCode {
    match make(asked) {
        Ok(files) => {
            for file in files {
                print_line(&file);
            }
            print_line(&format!("{} holds these files. Look through it before you give it away.", asked.out.display()));
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("trireme bundle: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn make(asked: &Bundle) -> Result<Vec<String>, String> {
    let at = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    // First of all, so that nothing is gathered for an archive that cannot be.
    let out =
        File::options().write(true).create_new(true).mode(0o600).open(&asked.out).map_err(|e| at(&asked.out, e))?;
    let made = gather(asked).and_then(|files| {
        let place = std::env::temp_dir().join(format!("trireme-bundle-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&place).map_err(|e| at(&place, e))?;
        let outcome = pack(&place, &files, out);
        let _ = fs::remove_dir_all(&place);
        outcome.map(|()| files.into_keys().collect())
    });
    if made.is_err() {
        // Our own, empty or half written.
        let _ = fs::remove_file(&asked.out);
    }
    made
}

fn pack(place: &Path, files: &BTreeMap<String, Vec<u8>>, out: File) -> Result<(), String> {
    for (name, bytes) in files {
        let path = place.join(name);
        let written = File::options().write(true).create_new(true).mode(0o600).open(&path);
        written.and_then(|mut file| file.write_all(bytes)).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let mut tar = Command::new("tar");
    tar.args(["--owner=0", "--group=0", "-czf", "-", "-C"]).arg(place).args(["--", "."]);
    let status = tar.stdin(Stdio::null()).stdout(out).status().map_err(|error| format!("cannot run tar: {error}"))?;
    if status.success() { Ok(()) } else { Err("tar failed".to_owned()) }
}

/// File names in the archive are made of this.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '_' }).collect()
}

fn gather(asked: &Bundle) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let mut files = BTreeMap::new();
    let answers = ask_all(&asked.connect, asked.connect.targets()?, true);
    let picture =
        json!({ "version": crate::status::JSON_VERSION, "time": unix_time(), "picture": Picture::of(&answers) });
    files.insert("status.json".to_owned(), format!("{picture:#}\n").into_bytes());
    for (target, answer) in &answers {
        files.insert(format!("server-{}.txt", plain(&target.to_string())), of_server(target, answer).into_bytes());
    }
    for word in &asked.log {
        let (name, path) = word.split_once('=').map_or((word.as_str(), word.as_str()), |(name, path)| (name, path));
        let text = tail(Path::new(path)).map_err(|error| format!("{path}: {error}"))?;
        let kept: String = text.lines().filter_map(of_log).collect();
        files.insert(format!("log-{}.txt", plain(name.trim_matches('/'))), kept.into_bytes());
    }
    if !asked.flight.is_empty() {
        files.insert("flight.jsonl".to_owned(), crate::flight::packed(&asked.flight).into_bytes());
    }
    let own = std::env::current_exe().ok();
    let own = own.as_deref().and_then(Path::to_str).unwrap_or("trireme");
    for (name, program, words) in [
        ("unit.txt", "systemctl", &["cat", "--no-pager", "mariadb.service", "trireme-monitor.service"][..]),
        ("trireme.txt", own, &["--version"]),
        ("machine.txt", "uname", &["-a"]),
        ("version.txt", "mariadb", &["--version"]),
    ] {
        let run = Command::new(program).args(words).stdin(Stdio::null()).stderr(Stdio::null()).output();
        if let Some(output) = run.ok().filter(|output| !output.stdout.is_empty()) {
            let text = String::from_utf8_lossy(&output.stdout);
            let kept: String =
                text.lines().filter(|line| !may_be_secret(line)).map(|line| format!("{line}\n")).collect();
            files.insert(name.to_owned(), kept.into_bytes());
        }
    }
    Ok(files)
}

fn of_server(target: &Target, answer: &Answer) -> String {
    match answer {
        Err(trouble) => format!("{target}: {trouble}\n"),
        Ok(facts) => {
            let list = |pairs: &Pairs| -> String {
                pairs.iter().map(|(name, value)| format!("{name}\t{}\n", value_of(name, value))).collect()
            };
            format!("# {target}\n# status\n{}# variables\n{}", list(&facts.status), list(&facts.variables))
        }
    }
}

/// Of a log, its end.
const LOG_MAX: u64 = 8 << 20;

fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(LOG_MAX)))?;
    let mut bytes = Vec::new();
    file.take(LOG_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

const LEFT_OUT: &str = "(left out)";

fn may_be_secret(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ["password", "passwd", "secret", "sst_auth", "identified", "credential", "token"]
        .iter()
        .any(|word| text.contains(word))
}

/// The value of a setting. Names of files stay: where a secret lies is none.
fn value_of(name: &str, value: &str) -> String {
    if name == "wsrep_provider_options" {
        let kept = |(option, value): (String, String)| {
            let file = option.ends_with("_file");
            let shown = if may_be_secret(&option) && !file { LEFT_OUT.to_owned() } else { value };
            format!("{option} = {shown}; ")
        };
        return crate::facts::options(value).into_iter().map(kept).collect();
    }
    if may_be_secret(name) && !value.is_empty() { LEFT_OUT.to_owned() } else { value.replace('\n', " ") }
}

/// A line of a log as it goes into the archive. `None`: it does not. Lines without a level may hold statements or dumps of memory.
fn of_log(line: &str) -> Option<String> {
    let entry = errorlog::parse(line);
    let (time, level) = (entry.time?, entry.level?);
    let mut text = entry.text;
    let lower = text.to_ascii_lowercase();
    // A statement stands behind it, with values.
    for mark in ["query:", "query '", "statement:", "query was:", "query is", "sql:"] {
        if let Some(at) = lower.find(mark).filter(|at| text.is_char_boundary(at + mark.len())) {
            text = text.get(..(at + mark.len()).min(text.len()))?;
            return Some(format!("{time} [{level}] {text} {LEFT_OUT}\n"));
        }
    }
    if may_be_secret(text) && !text.contains("repl.secret") {
        return Some(format!("{time} [{level}] {LEFT_OUT}\n"));
    }
    Some(format!("{time} [{level}] {text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_statements_stay_here() {
        assert_eq!(value_of("wsrep_sst_auth", "root:pass"), LEFT_OUT);
        let options = value_of(
            "wsrep_provider_options",
            "repl.secret_file = /s; socket.ssl_password_file = /p; x.password = abc; a = b;",
        );
        assert!(
            options.contains("repl.secret_file = /s;") && options.contains("a = b;") && !options.contains("abc"),
            "{options}"
        );
        let of = |line: &str| of_log(line).unwrap_or_default();
        let kept = of("2026-11-23  0:01:20 0 [Note] WSREP: member a is silent");
        assert_eq!(kept, "2026-11-23 00:01:20 [Note] member a is silent\n");
        let query = of("2026-11-23  0:01:20 0 [ERROR] Slave SQL: Error 'x', Query: 'INSERT INTO t VALUES (4711)'");
        assert!(!query.contains("4711") && query.contains(LEFT_OUT), "{query}");
        let auth = of("2026-11-23  0:01:20 0 [Note] running with wsrep_sst_auth=root:pass");
        assert!(!auth.contains("pass\n") && !auth.contains("root"), "{auth}");
        assert_eq!(of("INSERT INTO t VALUES (4711)"), "");
    }

    #[test]
    fn names_in_the_archive_lead_nowhere_else() {
        assert_eq!(plain("../../etc/x"), ".._.._etc_x");
        assert_eq!(plain("10.0.0.1:3306"), "10.0.0.1_3306");
    }
}
