//! Processes: starting servers, recognising our own, and signalling only those.

use crate::error::{During, Error, Result};
use crate::node::Node;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Set in every server's environment and inherited by the scripts it starts; the value is the node's directory.
const MARK: &str = "TRIREME_CLUSTER_NODE";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Never started, ended, or the pid belongs to somebody else by now.
    Gone,
    Running,
    /// Stopped by SIGSTOP.
    Paused,
}

/// Whether the node's recorded process still is its server, and runs.
pub fn liveness(node: &Node) -> Liveness {
    let Some(pid) = node.pid else { return Liveness::Gone };
    reap(pid);
    if !is_server_of(pid, node) {
        return Liveness::Gone;
    }
    match proc_state(pid) {
        Some('T' | 't') => Liveness::Paused,
        Some('Z' | 'X') | None => Liveness::Gone,
        Some(_) => Liveness::Running,
    }
}

/// Whether the server's ports and files are free again. A killed process is a zombie, to look at, from the moment its
/// first thread ends; what it held is given back only when the last one does.
pub fn released(node: &Node) -> bool {
    if liveness(node) != Liveness::Gone {
        return false;
    }
    let Some(pid) = node.pid else { return true };
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    !(proc_state(pid) == Some('Z') && threads > 1)
}

/// Signals the server if the process still is it. `false`: it is gone.
pub fn signal(node: &Node, signal: Signal) -> Result<bool> {
    let Some(pid) = node.pid else { return Ok(false) };
    if liveness(node) == Liveness::Gone {
        return Ok(false);
    }
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) => Ok(true),
        Err(Errno::ESRCH) => Ok(false),
        Err(errno) => Err(Error::Io { what: format!("cannot signal {} (pid {pid})", node.id), error: errno.into() }),
    }
}

/// Kills the state transfer scripts and their children that a dead server of this node left behind (they would hold
/// its ports and write into its data).
pub fn kill_helpers(node: &Node) {
    let mut wanted = OsString::from(format!("{MARK}="));
    wanted.push(node.dir.as_os_str());
    let Ok(entries) = std::fs::read_dir("/proc") else { return };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if Some(pid) == node.pid && liveness(node) != Liveness::Gone {
            continue;
        }
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else { continue };
        if environment.split(|b| *b == 0).any(|entry| entry == wanted.as_bytes()) {
            // It may have ended meanwhile; then there is nothing to do.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// How servers of this cluster are started: as whom, and in which network namespace.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    pub user: Option<&'a str>,
    pub namespace: Option<&'a str>,
}

impl Launch<'_> {
    /// A command that runs `program` for `node` in its own process group, so that a Ctrl-C at the terminal reaches
    /// only us and we decide what ends.
    pub fn command(&self, node: &Node, program: &str) -> Command {
        let mut words: Vec<String> = Vec::new();
        if let Some(namespace) = self.namespace {
            words.extend(["ip", "netns", "exec", namespace].map(str::to_owned));
        }
        if let Some(user) = self.user {
            words.extend([
                "setpriv".to_owned(),
                format!("--reuid={user}"),
                format!("--regid={user}"),
                "--clear-groups".to_owned(),
            ]);
        }
        words.push(program.to_owned());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .current_dir(&node.dir)
            .env(MARK, &node.dir)
            // sbin, where Debian keeps mariadbd and ip, is not in every user's PATH.
            .env("PATH", search_path())
            .stdin(Stdio::null())
            .process_group(0);
        command
    }
}

/// Starts the server in the background; its output goes to its error log. Returns the pid.
pub fn start_server(launch: Launch<'_>, node: &Node, arguments: &[String]) -> Result<i32> {
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(node.log())
        .during(|| format!("cannot open {}", node.log().display()))?;
    let log_again = log.try_clone().during(|| "cannot duplicate a file handle".to_owned())?;
    let child = launch
        .command(node, "mariadbd")
        .arg(format!("--defaults-file={}", node.config().display()))
        .args(arguments)
        .stdout(log)
        .stderr(log_again)
        .spawn()
        .map_err(|error| missing_or_io("mariadbd", error))?;
    // The handle is dropped without waiting: the server outlives us, and if we live on, `reap` collects it.
    i32::try_from(child.id()).map_err(|_| Error::BadSpec("the system gave a pid beyond 31 bits".to_owned()))
}

/// Runs a helper to its end; an error holds its last line of output.
pub fn run(command: &mut Command) -> Result<Vec<u8>> {
    let name = format!(
        "{} {}",
        command.get_program().to_string_lossy(),
        command.get_args().map(|a| a.to_string_lossy()).collect::<Vec<_>>().join(" ")
    );
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| missing_or_io(&program, error))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output").to_owned();
    Err(Error::Command { command: name, output: last })
}

pub fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin")
}

/// Whether a program can be found.
pub fn have(program: &str) -> bool {
    search_path().split(':').any(|dir| !dir.is_empty() && Path::new(dir).join(program).is_file())
}

fn missing_or_io(program: &str, error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        Error::Missing { what: program.to_owned(), advice: "install it with `scripts/install-deps.sh`".to_owned() }
    } else {
        Error::Io { what: format!("cannot run {program}"), error }
    }
}

/// Between `exec` of the wrappers (ip, setpriv) and of mariadbd the command line is the wrapper's, which names the
/// same file as its argument: it counts as ours too. In the midst of `exec` the command line is empty for a moment,
/// as it is for good with a zombie.
fn is_server_of(pid: i32, node: &Node) -> bool {
    let wanted = format!("--defaults-file={}", node.config().display());
    for _ in 0..EXEC_LOOKS {
        match std::fs::read(format!("/proc/{pid}/cmdline")) {
            Err(_) => return false,
            Ok(line) if !line.is_empty() => return line.split(|b| *b == 0).any(|word| word == wanted.as_bytes()),
            Ok(_) => match proc_state(pid) {
                Some('Z' | 'X') | None => return false,
                Some(_) => std::thread::sleep(EXEC_PAUSE),
            },
        }
    }
    false
}

/// `exec` takes microseconds, on a machine that swaps perhaps more.
const EXEC_LOOKS: u32 = 100;
const EXEC_PAUSE: Duration = Duration::from_millis(2);

fn proc_state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; the state follows the last one.
    stat[stat.rfind(')')? + 1..].trim_start().chars().next()
}

/// Collects the exit status if the process is a child of ours, so that it does not stay as a zombie.
fn reap(pid: i32) {
    let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
}
