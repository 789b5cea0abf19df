//! Processes: starting servers, recognising our own, and signalling only those.

use crate::disk;
use crate::error::{During, Error, Result};
use crate::node::Node;
use crate::userns;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
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
/// its ports and write into its data). `true`: there are none any more.
pub fn kill_helpers(node: &Node) -> bool {
    signal_helpers(node, Signal::SIGKILL) == 0
}

/// Signals the state transfer scripts of a node, and their children; returns how many there were.
pub fn signal_helpers(node: &Node, signal: Signal) -> usize {
    let mut found = 0;
    let mut wanted = OsString::from(format!("{MARK}="));
    wanted.push(node.dir.as_os_str());
    let Ok(entries) = std::fs::read_dir("/proc") else { return found };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if Some(pid) == node.pid && liveness(node) != Liveness::Gone {
            continue;
        }
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else { continue };
        if environment.split(|b| *b == 0).any(|entry| entry == wanted.as_bytes()) {
            found += 1;
            // It may have ended meanwhile; then there is nothing to do.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
    found
}

/// How servers of this cluster are started: as whom, in which network namespace, and on which machine.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    pub user: Option<&'a str>,
    pub namespace: Option<&'a str>,
    /// The file with the boot id of the node's machine, where that has a disk of its own.
    pub boot: Option<&'a Path>,
}

impl Launch<'_> {
    /// A command that runs `program` for `node` in its own process group, so that a Ctrl-C at the terminal reaches
    /// only us and we decide what ends.
    pub fn command(&self, node: &Node, program: &str) -> Command {
        let mut words: Vec<String> = Vec::new();
        if let Some(namespace) = self.namespace {
            words.extend(["ip", "netns", "exec", namespace].map(str::to_owned));
        }
        if let Some(boot) = self.boot {
            words.extend(disk::on_machine(boot));
        }
        if let Some(user) = self.user {
            words.extend([
                "setpriv".to_owned(),
                format!("--reuid={user}"),
                format!("--regid={user}"),
                "--clear-groups".to_owned(),
            ]);
        }
        words.extend(userns::as_oneself());
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
    let program = if node.arbitrator { node.program().display().to_string() } else { "mariadbd".to_owned() };
    let child = launch
        .command(node, &program)
        .arg(node.config_word())
        .args(arguments)
        .stdout(log)
        .stderr(log_again)
        .spawn()
        .map_err(|error| missing_or_io(&program, error))?;
    // The handle is dropped without waiting: the server outlives us, and if we live on, `reap` collects it.
    i32::try_from(child.id()).map_err(|_| Error::BadSpec("the system gave a pid beyond 31 bits".to_owned()))
}

/// How many lines of a helper's output an error shows: `mariadb-install-db` has its reason some lines before the end.
const SHOWN_LINES: usize = 10;

/// Runs a helper to its end; an error holds its last lines of output, as one.
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
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let output = match lines[lines.len().saturating_sub(SHOWN_LINES)..].join(" ") {
        said if said.is_empty() => "no output".to_owned(),
        said => said,
    };
    Err(Error::Command { command: name, output })
}

pub fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin")
}

/// Where a program is, if it can be found.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = search_path();
    let dirs = path.split(':').filter(|dir| !dir.is_empty());
    dirs.map(|dir| Path::new(dir).join(name)).find(|program| program.is_file())
}

/// Whether a program can be found.
pub fn have(program: &str) -> bool {
    find_program(program).is_some()
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
    has_word(pid, node.config_word().as_bytes())
}

/// Whether `word` is one of the words of the process's command line.
fn has_word(pid: i32, word: &[u8]) -> bool {
    for _ in 0..EXEC_LOOKS {
        match command_line(pid) {
            Err(_) => return false,
            Ok(line) if !line.is_empty() => return line.split(|b| *b == 0).any(|w| w == word),
            Ok(_) => match proc_state(pid) {
                Some('Z' | 'X') | None => return false,
                Some(_) => std::thread::sleep(EXEC_PAUSE),
            },
        }
    }
    false
}

/// The words of a process's command line, each ended by a zero byte, in one read: an `exec` between two reads would
/// give the head of one program's and the tail of the next one's.
fn command_line(pid: i32) -> std::io::Result<Vec<u8>> {
    let mut line = vec![0; COMMAND_LINE_LIMIT];
    let length = std::fs::File::open(format!("/proc/{pid}/cmdline"))?.read(&mut line)?;
    line.truncate(length);
    Ok(line)
}

/// Bytes; ours are far shorter.
const COMMAND_LINE_LIMIT: usize = 1 << 17;

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Wrappers and the server share a pid, and a look may fall between any two of their `exec`s.
    #[test]
    fn a_process_is_recognised_while_it_executes_the_next_program() {
        let dir = std::env::temp_dir().join(format!("trireme-exec-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let script = dir.join("again");
        // Each round's command line has the word at another place, across what a reader takes at first.
        std::fs::write(
            &script,
            "#!/bin/sh\n[ $1 = 0 ] && exit\nn=$(($1 - 1))\nif [ ${#2} -gt 3 ]; then exec /bin/sh $0 $n - --the-word-that-is-wanted;\n\
             else exec /bin/sh $0 $n a-much-longer-word-to-shift-it --the-word-that-is-wanted; fi\n",
        )
        .unwrap();
        let mut child = Command::new("/bin/sh")
            .arg(&script)
            .args(["2000", "-", "--the-word-that-is-wanted"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let mut looks = 0;
        while !matches!(proc_state(pid), Some('Z' | 'X') | None) {
            // It may end between the two questions.
            assert!(
                has_word(pid, b"--the-word-that-is-wanted") || matches!(proc_state(pid), Some('Z' | 'X') | None),
                "not recognised after {looks} looks"
            );
            looks += 1;
        }
        assert!(child.wait().unwrap().success());
        assert!(looks > 0);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
