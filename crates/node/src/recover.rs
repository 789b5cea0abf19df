//! The storage engine's own position, read by the server's binary (`--wsrep-recover`) before the engine runs here (SAFETY 21).
//!
//! A position says that everything up to it is in the engine. A crash leaves transactions prepared, and some behind a
//! gap: they prepare in any order, and an engine that does not flush at commit loses the end of its log. With a binary log
//! the server commits every prepared one that it finds there, which moves the position beyond the gap, and what fell into the gap is
//! never replayed. Without one it commits only what continues the position. So it is asked without; everything else
//! comes from the write-set log.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use trireme_types::{Seqno, Uuid};

/// The engine may have to go through its whole redo log first; beyond this a full copy is the better answer.
const TIME_MAX: Duration = Duration::from_secs(900);
/// How often the end of the process is looked for. Nobody else waits for it, and the server's own signal thread must not be
/// disturbed.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const MARK: &str = "WSREP: Recovered position:";
/// Named by a server that refuses to start because of prepared transactions.
const HEURISTIC: &str = "tc-heuristic-recover";
/// Files of a running engine, which nobody else can open then.
const ENGINE_FILES: [&str; 2] = ["ibdata1", "ib_logfile0"];
const LOG_NAME: &str = "trireme-recover.log";

/// Asks the binary of this process, or with `opened` the engine that runs here already. Only when this process is a server.
pub fn position(data_dir: &str, opened: impl FnOnce() -> Option<(Uuid, Seqno)>) -> Result<(Uuid, Seqno), String> {
    let binary = fs::read_link("/proc/self/exe").map_err(|e| format!("/proc/self/exe: {e}"))?;
    let name = binary.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    if !(name.starts_with("mariadbd") || name.starts_with("mysqld")) {
        return Err(format!("{name} is not a database server"));
    }
    // With these methods the server connects only when its engine runs. The other process would wait for its locks.
    if engine_runs_here() {
        return opened().ok_or_else(|| {
            "the storage engine is in use already (wsrep_sst_method is mysqldump or skip) and tells no position: start the \
             server with --wsrep-start-position, as service units do"
                .into()
        });
    }
    let own = fs::read("/proc/self/cmdline").map_err(|e| format!("/proc/self/cmdline: {e}"))?;
    let own: Vec<String> = own
        .split(|b| *b == 0)
        .skip(1)
        .filter(|a| !a.is_empty())
        .map(|a| String::from_utf8_lossy(a).into_owned())
        .collect();
    let dir = if data_dir.is_empty() { "." } else { data_dir };
    ask(&binary, &own, Path::new(dir), TIME_MAX)
}

fn engine_runs_here() -> bool {
    let Ok(open) = fs::read_dir("/proc/self/fd") else { return false };
    open.flatten()
        .filter_map(|fd| fs::read_link(fd.path()).ok())
        .any(|file| file.file_name().is_some_and(|name| ENGINE_FILES.iter().any(|engine| name == *engine)))
}

/// Runs `binary` with the server's own arguments, so that it finds the same data with the same settings.
fn ask(binary: &Path, own: &[String], data_dir: &Path, time_max: Duration) -> Result<(Uuid, Seqno), String> {
    let log: PathBuf = data_dir.join(LOG_NAME);
    let plain = arguments(own, &log);
    let (found, text) = attempt(binary, &plain, &log, time_max);
    if found.is_ok() || !text.contains(HEURISTIC) {
        return found;
    }
    // It leaves it to us what to do with prepared transactions behind a gap: the write-set log brings them again.
    let mut rollback = plain.clone();
    rollback.push(format!("--{HEURISTIC}=ROLLBACK"));
    match attempt(binary, &rollback, &log, time_max).0 {
        Ok(position) => Ok(position),
        // Some servers end after the rollback and want to be started anew.
        Err(_) => attempt(binary, &plain, &log, time_max).0,
    }
}

/// One run: the position, or why there is none; and the run's log.
fn attempt(
    binary: &Path,
    arguments: &[String],
    log: &Path,
    time_max: Duration,
) -> (Result<(Uuid, Seqno), String>, String) {
    let _ = fs::remove_file(log);
    let result = run(binary, arguments, time_max);
    let text = fs::read(log).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
    let _ = fs::remove_file(log);
    let found = match (parse(&text), result) {
        (Some(position), _) => Ok(position),
        (None, Err(reason)) => Err(match text.lines().find(|line| line.contains("[ERROR]")) {
            Some(line) => format!("{reason}: {line}"),
            None => reason,
        }),
        (None, Ok(())) => Err("the server reported no position".into()),
    };
    (found, text)
}

fn arguments(own: &[String], log: &Path) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = own.iter().peekable();
    while let Some(argument) = rest.next() {
        let (name, value) = match argument.split_once('=') {
            Some((name, _)) => (name, true),
            None => (argument.as_str(), false),
        };
        let dropped = match name.trim_start_matches('-').replace('_', "-").as_str() {
            // A switch, or with its value in the same argument.
            "wsrep-new-cluster" | "wsrep-recover" | "log-bin" => true,
            // With a value, perhaps in the next argument.
            "wsrep-cluster-address" | "wsrep-start-position" | "log-error" | "pid-file" => {
                if !value && rest.peek().is_some_and(|next| !next.starts_with('-')) {
                    rest.next();
                }
                true
            }
            _ => false,
        };
        if !(dropped && argument.starts_with("--")) {
            out.push(argument.clone());
        }
    }
    out.push("--wsrep-recover".into());
    out.push("--skip-log-bin".into());
    out.push(format!("--log-error={}", log.display()));
    out
}

fn run(binary: &Path, arguments: &[String], time_max: Duration) -> Result<(), String> {
    let mut child = Command::new(binary)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Whatever it would tell the service manager, it would tell in this server's name.
        .env_remove("NOTIFY_SOCKET")
        .process_group(0)
        .spawn()
        .map_err(|e| format!("{} could not be started: {e}", binary.display()))?;
    let until = Instant::now() + time_max;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("{} --wsrep-recover: {status}", binary.display())),
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{} --wsrep-recover did not end within {time_max:?}", binary.display()));
            }
            Err(e) => return Err(e.to_string()),
        }
    }
}

/// The last position in the log, if it is defined: `uuid:seqno`, perhaps with `,domain-server-sequence` behind.
fn parse(log: &str) -> Option<(Uuid, Seqno)> {
    let at = log.rfind(MARK)? + MARK.len();
    let text = log[at..].split_whitespace().next()?.split(',').next()?;
    let (uuid, seqno) = text.split_once(':')?;
    let uuid = Uuid::parse(uuid).filter(|u| !u.is_nil())?;
    Some((uuid, Seqno::from_outside(seqno.parse::<u64>().ok()?)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const HISTORY: &str = "01234567-89ab-cdef-0123-456789abcdef";

    struct Dir(PathBuf);
    impl Dir {
        fn new(name: &str) -> Dir {
            let path = std::env::temp_dir().join(format!("trireme-recover-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Dir(path)
        }
        fn script(&self, body: &str) -> PathBuf {
            let path = self.0.join("mariadbd");
            fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        }
    }
    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    /// Writes its arguments and a log the way a server does.
    fn body(line: &str) -> String {
        format!(
            "for a in \"$@\"; do case \"$a\" in --log-error=*) log=\"${{a#*=}}\";; esac; done\necho \"$@\" > $(dirname $0)/args\necho '2026-01-01 0:00:00 0 [Note] {line}' > \"$log\""
        )
    }

    #[test]
    fn position_is_read_from_the_servers_log() {
        let dir = Dir::new("ok");
        let binary = dir.script(&body(&format!("WSREP: Recovered position: {HISTORY}:42,1-2-3")));
        let own = words(
            "--defaults-file=/etc/x --wsrep-new-cluster --wsrep_cluster_address=gcomm:// --datadir=/d --log-bin=b --wsrep-start-position u:1 --port 1",
        );
        let found = ask(&binary, &own, &dir.0, Duration::from_secs(60)).unwrap();
        assert_eq!(found, (Uuid::parse(HISTORY).unwrap(), Seqno(42)));
        let args = fs::read_to_string(dir.0.join("args")).unwrap();
        let log = dir.0.join(LOG_NAME);
        let expect = format!(
            "--defaults-file=/etc/x --datadir=/d --port 1 --wsrep-recover --skip-log-bin --log-error={}",
            log.display()
        );
        assert_eq!(args.trim(), expect);
        assert!(!log.exists());
    }

    #[test]
    fn undefined_or_missing_positions_are_errors() {
        let dir = Dir::new("none");
        let undefined = dir.script(&body("WSREP: Recovered position: 00000000-0000-0000-0000-000000000000:-1"));
        assert!(ask(&undefined, &[], &dir.0, Duration::from_secs(60)).is_err());
        let failing = dir.script(&format!("{}\nexit 1", body("InnoDB: Unable to lock ./ibdata1 error: 11")));
        assert!(ask(&failing, &[], &dir.0, Duration::from_secs(60)).unwrap_err().contains("exit status: 1"));
    }

    /// A server that finds prepared transactions behind a gap, until it was told to roll them back.
    fn gap(after_rollback: &str) -> String {
        let refuse = "InnoDB: Found 2 prepared transactions! [ERROR] You have to start server with --tc-heuristic-recover switch";
        format!(
            "here=$(dirname $0)\n\
             for a in \"$@\"; do case \"$a\" in --log-error=*) log=\"${{a#*=}}\";; --tc-heuristic-recover=ROLLBACK) now=1;; esac; done\n\
             if [ -n \"$now\" ]; then touch $here/done; {after_rollback}; fi\n\
             [ -e $here/done ] || {{ echo '{refuse}' > $log; exit 1; }}\n\
             echo 'WSREP: Recovered position: {HISTORY}:7' > $log"
        )
    }

    #[test]
    fn prepared_transactions_behind_a_gap_are_rolled_back() {
        for (name, after_rollback) in [("gap-goes-on", ":"), ("gap-ends", "exit 1")] {
            let dir = Dir::new(name);
            let binary = dir.script(&gap(after_rollback));
            assert_eq!(ask(&binary, &[], &dir.0, Duration::from_secs(60)).unwrap().1, Seqno(7), "{name}");
        }
    }

    #[test]
    fn failures_are_told_with_the_servers_reason() {
        let dir = Dir::new("reason");
        let binary = dir.script(&format!("{}\nexit 1", body("[ERROR] InnoDB: Unable to lock ./ibdata1 error: 11")));
        assert!(ask(&binary, &[], &dir.0, Duration::from_secs(60)).unwrap_err().contains("Unable to lock"));
    }

    #[test]
    fn an_engine_that_runs_is_noticed() {
        let dir = Dir::new("engine");
        assert!(!engine_runs_here());
        let file = fs::File::create(dir.0.join("ibdata1")).unwrap();
        assert!(engine_runs_here());
        drop(file);
    }

    #[test]
    fn a_server_that_does_not_end_is_killed() {
        let dir = Dir::new("slow");
        let binary = dir.script("exec sleep 600");
        assert!(ask(&binary, &[], &dir.0, Duration::from_millis(50)).unwrap_err().contains("did not end"));
    }

    #[test]
    fn a_process_that_is_no_server_is_not_asked() {
        assert!(position("/tmp", || None).unwrap_err().contains("not a database server"));
    }
}
