//! The storage engine's own position, read by the server's binary (`--wsrep-recover`) before the engine runs here (rule 21).
//!
//! A position says that everything up to it is in the engine. A crash leaves transactions prepared, and some behind a
//! gap: they prepare in any order, and an engine that does not flush at commit loses the end of its log. With a binary log
//! the server commits every prepared one that it finds there, which moves the position beyond the gap, and what fell into the gap is
//! never replayed. Without one it commits only what continues the position. So it is asked without; everything else
//! comes from the write-set log.

mod command;
mod coordinator;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use trireme_types::{Seqno, Uuid};

use self::command::Command;
use crate::{Server, stop_signal};

/// A run that has said nothing for so long hangs. One that goes through a redo log says every 15 seconds how far it is, and may take as long
/// as it needs: to end it would cost data that are good, and a full copy of them.
const SILENCE_MAX: Duration = Duration::from_secs(900);
/// How often this server's log tells what a run that takes long has said last.
const TOLD_EVERY: Duration = Duration::from_secs(60);
/// How often the end of the process is looked for. Nobody else waits for it, and the server's own signal thread must not be
/// disturbed.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often it is looked whether this server was told to stop meanwhile.
const LOOK_AT_LIMITS: Duration = Duration::from_millis(500);
const MARK: &str = "WSREP: Recovered position:";
/// Named by a server that refuses to start because of prepared transactions.
const HEURISTIC: &str = "tc-heuristic-recover";
/// Files of a running engine, which nobody else can open then.
const ENGINE_FILES: [&str; 2] = ["ibdata1", "ib_logfile0"];
/// The output of a run is short. Of one that crashes, only the end is of interest.
const SAID_BYTES_MAX: u64 = 1 << 20;
/// Lines of a failed run that are repeated in this server's log.
const SAID_LINES_MAX: usize = 5;
/// Variables by which a service manager hands over sockets, and hears of a service. The run would tell the manager all it
/// tells in this server's name.
const MANAGERS: [&str; 6] =
    ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];

/// Why the engine's position is not known.
#[derive(Debug, thiserror::Error)]
pub enum Unknown {
    /// The engine was asked, as far as it could be, and has none to tell.
    #[error(transparent)]
    Untold(#[from] Untold),
    /// The run failed; and the last lines that it said about it.
    #[error("{reason}")]
    Failed { reason: RunError, said: Vec<String> },
}

/// The reason of an engine that has no position to tell.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untold {
    #[error("this process is not a database server")]
    NoServer,
    #[error(
        "the storage engine is in use already (wsrep_sst_method is mysqldump or skip) and tells no position: start the server with \
         --wsrep-start-position, as service units do"
    )]
    InUse,
    #[error("the storage engine holds no position")]
    NoPosition,
}

/// Why a recovery run did not come to its end, or could not begin.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{what}: {error}")]
    System { what: String, error: io::Error },
    #[error("the server's recovery run: {0}")]
    NotBegun(Limit),
    #[error("{} --wsrep-recover: {limit}", program.display())]
    Stopped { program: PathBuf, limit: Limit },
    #[error("{} --wsrep-recover: {status}", program.display())]
    Ended { program: PathBuf, status: ExitStatus },
    #[error("the server's recovery run told no position")]
    ToldNothing,
}

impl RunError {
    fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> RunError {
        let what = what.into();
        move |error| RunError::System { what, error }
    }
}

impl From<RunError> for Unknown {
    fn from(reason: RunError) -> Unknown {
        Unknown::Failed { reason, said: Vec::new() }
    }
}

/// The bound of a question's runs that was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Limit {
    #[error("the server was told to stop meanwhile")]
    Stop,
    #[error("it said nothing for {} s", .0.as_secs())]
    Silence(Duration),
}

/// The answer of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    pub position: (Uuid, Seqno),
    pub engine: Engine,
}

/// The engine once it has been asked: does its disk have all of its data?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// It has: a run closed the engine in order, or there is none.
    Closed,
    /// Nobody knows of an engine that runs here.
    Runs,
    /// Nor of one whose run was cut short, or never began: a killed process may have left some of its log to the kernel.
    Left,
}

/// Asks the binary of this process, or the engine that runs here already. Only when this process is a server. `say`: what was put right
/// before, and how far a run is that takes long.
pub fn position(data_dir: &str, server: &dyn Server, say: &dyn Fn(String)) -> Result<Answer, Unknown> {
    let Some(process) = server.process() else {
        return Err(Untold::NoServer.into());
    };
    // With these methods the server connects only when its engine runs. The other process would wait for its locks.
    if engine_runs_here() {
        let position = server.engine_position().ok_or(Untold::InUse)?;
        return Ok(Answer { position, engine: Engine::Runs });
    }
    let program = executable()?;
    let line = fs::read("/proc/self/cmdline").unwrap_or_default();
    let line: Vec<OsString> = match line.strip_suffix(b"\0") {
        Some(line) => line.split(|b| *b == 0).map(|word| OsStr::from_bytes(word).to_owned()).collect(),
        None => Vec::new(),
    };
    let data_dir = std::env::current_dir().map_err(RunError::system("the current directory"))?.join(data_dir);
    // Neither the run nor this server would start with it.
    match coordinator::remove_unwritten(&data_dir) {
        Ok(false) => {}
        Ok(true) => say("removed an empty tc.log: the server was killed while it made it".into()),
        Err(error) => say(format!("tc.log cannot be looked at: {error}")),
    }
    let limits = Limits { silence: SILENCE_MAX, stop: stop_signal::is_pending };
    ask(&command::recovery(program, &line, &process, &data_dir), limits, say)
}

/// The program that runs here, also when a newer one has taken its place meanwhile: the data are those of this version.
fn executable() -> Result<PathBuf, RunError> {
    const LINK: &str = "/proc/self/exe";
    let named = fs::read_link(LINK).map_err(RunError::system(LINK))?;
    // Of a file that was removed, the link names "… (deleted)", and still leads to it.
    Ok(if named.exists() { named } else { LINK.into() })
}

/// Has this process opened an engine?
pub fn engine_runs_here() -> bool {
    let Ok(open) = fs::read_dir("/proc/self/fd") else { return false };
    open.flatten()
        .filter_map(|fd| fs::read_link(fd.path()).ok())
        .any(|file| file.file_name().is_some_and(|name| ENGINE_FILES.iter().any(|engine| name == *engine)))
}

/// The bounds of the runs of one question.
#[derive(Clone, Copy)]
struct Limits {
    /// Of a run that says nothing.
    silence: Duration,
    /// Was this server told to stop?
    stop: fn() -> bool,
}

fn ask(plain: &Command, limits: Limits, say: &dyn Fn(String)) -> Result<Answer, Unknown> {
    let (found, said) = attempt(plain, limits, say)?;
    if found.is_ok() || !said.contains(HEURISTIC) {
        return found;
    }
    // It leaves it to us what to do with prepared transactions behind a gap: the write-set log brings them again.
    let rollback = plain.clone().with(&format!("--{HEURISTIC}=ROLLBACK"));
    match attempt(&rollback, limits, say)?.0 {
        Ok(position) => Ok(position),
        // Some servers end after the rollback and want to be started anew.
        Err(_) => attempt(plain, limits, say)?.0,
    }
}

/// The finding of one run, and all that it said.
type Found = (Result<Answer, Unknown>, String);

/// One run. **Errors:** none may begin.
fn attempt(command: &Command, limits: Limits, say: &dyn Fn(String)) -> Result<Found, Unknown> {
    if (limits.stop)() {
        return Err(RunError::NotBegun(Limit::Stop).into());
    }
    let output = memory_file().map_err(RunError::system("no file for what the run says"))?;
    let result = run(command, &output, limits, say);
    let said = end_of(&output);
    let found = match (parse(&said), result) {
        (Told::Position(history, seqno), result) => {
            let engine = if result.is_ok() { Engine::Closed } else { Engine::Left };
            Ok(Answer { position: (history, seqno), engine })
        }
        (Told::Undefined, _) => Err(Untold::NoPosition.into()),
        (Told::Nothing, Err(reason)) => Err(Unknown::Failed { reason, said: relevant(&said) }),
        (Told::Nothing, Ok(())) => Err(Unknown::Failed { reason: RunError::ToldNothing, said: relevant(&said) }),
    };
    Ok((found, said))
}

/// No disk has to have room for it, and nobody has to remove it.
fn memory_file() -> io::Result<File> {
    // SAFETY: the name ends with a zero byte; the result is a descriptor of nobody else's, or negative.
    let fd = unsafe { libc::memfd_create(c"trireme-recover".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: as above: it is open, and ours alone.
    Ok(unsafe { File::from_raw_fd(fd) })
}

fn length_of(output: &File) -> u64 {
    output.metadata().map_or(0, |meta| meta.len())
}

/// The run goes on writing where it is: reading moves nothing.
fn end_of(output: &File) -> String {
    let length = length_of(output);
    let wanted = length.min(SAID_BYTES_MAX);
    let mut bytes = vec![0; wanted as usize];
    // An output that cannot be read says nothing.
    let read = output.read_exact_at(&mut bytes, length - wanted);
    if read.is_ok() { String::from_utf8_lossy(&bytes).into_owned() } else { String::new() }
}

/// The last lines that say why, without their time.
fn relevant(said: &str) -> Vec<String> {
    let lines = || said.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let errors = lines().filter_map(|line| line.split_once("[ERROR] ")).map(|(_, text)| text.to_string());
    let mut found: Vec<String> = errors.filter(|text| text != "Aborting").collect();
    if found.is_empty() {
        found = lines().map(str::to_string).collect();
    }
    found.split_off(found.len().saturating_sub(SAID_LINES_MAX))
}

fn process(command: &Command, stderr: File) -> std::process::Command {
    let mut process = std::process::Command::new(&command.program);
    process.arg0(&command.name).args(&command.arguments);
    process.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).process_group(0);
    for variable in MANAGERS {
        process.env_remove(variable);
    }
    end_with_us(&mut process);
    process
}

/// A run that outlived this server would have the engine's files open when the next one starts.
fn end_with_us(process: &mut std::process::Command) {
    let parent = std::process::id();
    let before_it_begins = move || {
        // SAFETY: two system calls without memory. The run gets the signal when the thread ends that started it, which waits for it.
        let (asked, still_ours) =
            unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), libc::getppid() as u32 == parent) };
        match asked {
            0 if still_ours => Ok(()),
            // It died before it could be asked for.
            0 => Err(std::io::ErrorKind::Interrupted.into()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: it calls nothing that would not be allowed in the child of a process with threads, and allocates nothing.
    unsafe {
        process.pre_exec(before_it_begins);
    }
}

fn run(command: &Command, output: &File, limits: Limits, say: &dyn Fn(String)) -> Result<(), RunError> {
    let program = || command.program.clone();
    let name = command.program.display();
    let stderr = output.try_clone().map_err(RunError::system("no file for what the run says"))?;
    let mut child =
        process(command, stderr).spawn().map_err(RunError::system(format!("{name} could not be started")))?;
    let begun = Instant::now();
    let (mut look, mut tell) = (begun + LOOK_AT_LIMITS, begun + TOLD_EVERY);
    let mut heard = (0, begun);
    let failed = loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(RunError::Ended { program: program(), status }),
            Ok(None) => {}
            Err(error) => break RunError::System { what: format!("{name} --wsrep-recover"), error },
        }
        let now = Instant::now();
        if now >= look {
            look = now + LOOK_AT_LIMITS;
            let length = length_of(output);
            if length > heard.0 {
                heard = (length, now);
            }
            let silent = now.duration_since(heard.1) >= limits.silence;
            let limit =
                if (limits.stop)() { Some(Limit::Stop) } else { silent.then_some(Limit::Silence(limits.silence)) };
            if let Some(limit) = limit {
                break RunError::Stopped { program: program(), limit };
            }
        }
        if now >= tell {
            tell = now + TOLD_EVERY;
            let last = relevant(&end_of(output)).pop().unwrap_or_default();
            say(format!(
                "the recovery run takes {} s so far; it said last: {last}",
                now.duration_since(begun).as_secs()
            ));
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let _ = child.kill();
    let _ = child.wait();
    Err(failed)
}

/// The position that a run told.
enum Told {
    Position(Uuid, Seqno),
    /// A position, but an undefined one.
    Undefined,
    Nothing,
}

/// The last position that was told: `uuid:seqno`, perhaps with `,domain-server-sequence` behind.
fn parse(said: &str) -> Told {
    let Some(at) = said.rfind(MARK) else { return Told::Nothing };
    let word = said[at + MARK.len()..].split_whitespace().next().unwrap_or_default();
    let gtid = word.split(',').next().and_then(|gtid| gtid.split_once(':'));
    let Some((uuid, seqno)) = gtid.and_then(|(uuid, seqno)| Some((Uuid::parse(uuid)?, seqno))) else {
        return Told::Nothing;
    };
    match seqno.parse().ok().and_then(|seqno: u64| Seqno::from_outside(seqno)) {
        Some(seqno) if !uuid.is_nil() => Told::Position(uuid, seqno),
        _ => Told::Undefined,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerProcess;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::ExitStatusExt;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::thread;

    const HISTORY: &str = "01234567-89ab-cdef-0123-456789abcdef";

    /// Of no run here comes so much that it would be told.
    fn ask(plain: &Command, limits: Limits) -> Result<Answer, Unknown> {
        super::ask(plain, limits, &|_| ())
    }

    fn silence(of: Duration) -> Limits {
        Limits { silence: of, stop: stop_signal::is_pending }
    }

    fn a_minute() -> Limits {
        silence(Duration::from_secs(60))
    }

    struct Dir(PathBuf);
    impl Dir {
        /// The name is a trap for whoever takes a path for words.
        fn new(name: &str) -> Dir {
            let path = std::env::temp_dir().join(format!("trireme recover '{name}' {}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Dir(path)
        }
        /// The recovery run of a server that is this script.
        fn server(&self, body: &str) -> Command {
            let path = self.0.join("a \"renamed\" server");
            fs::write(&path, format!("#!/bin/sh\nhere=$(dirname \"$0\")\n{body}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            let arguments = ["mariadbd", "--port=1"].map(OsString::from).to_vec();
            let process = ServerProcess { arguments: arguments.clone(), ..ServerProcess::default() };
            command::recovery(path, &arguments, &process, &self.0)
        }
    }
    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn answer(seqno: u64, engine: Engine) -> Answer {
        Answer { position: (Uuid::parse(HISTORY).unwrap(), Seqno(seqno)), engine }
    }

    /// Says a line the way a server does.
    fn says(line: &str) -> String {
        format!("echo '2026-01-01 0:00:00 0 {line}' >&2")
    }

    #[test]
    fn position_is_read_from_what_the_server_says() {
        let dir = Dir::new("ok");
        let position = says(&format!("[Note] WSREP: Recovered position: {HISTORY}:42,1-2-3"));
        let run = dir.server(&format!("printf '%s\\n' \"$@\" > \"$here/args\"\n{position}"));
        assert_eq!(ask(&run, a_minute()).unwrap(), answer(42, Engine::Closed));
        let told = fs::read_to_string(dir.0.join("args")).unwrap();
        let given: Vec<OsString> = told.lines().map(OsString::from).collect();
        assert_eq!(given, run.arguments);
    }

    #[test]
    fn an_engine_that_told_and_was_not_closed_in_order_is_not_taken_for_closed() {
        let dir = Dir::new("cut short");
        let position = says(&format!("[Note] WSREP: Recovered position: {HISTORY}:42"));
        for end in ["kill -KILL $$", "exit 1"] {
            let run = dir.server(&format!("{position}\n{end}"));
            assert_eq!(ask(&run, a_minute()).unwrap(), answer(42, Engine::Left), "{end}");
        }
    }

    #[test]
    fn an_engine_without_a_position_says_so() {
        let dir = Dir::new("none");
        let run = dir.server(&says("[Note] WSREP: Recovered position: 00000000-0000-0000-0000-000000000000:-1"));
        assert!(matches!(ask(&run, a_minute()), Err(Unknown::Untold(_))));
    }

    #[test]
    fn a_service_manager_hears_nothing_of_the_run() {
        let dir = Dir::new("manager");
        let process = process(&dir.server(""), memory_file().unwrap());
        for name in MANAGERS {
            assert!(process.get_envs().any(|(variable, value)| variable == name && value.is_none()), "{name}");
        }
    }

    /// A server that finds prepared transactions behind a gap, until it was told to roll them back.
    fn gap(after_rollback: &str) -> String {
        let refuse = says(
            "[ERROR] InnoDB: Found 2 prepared transactions! You have to start server with --tc-heuristic-recover switch",
        );
        let position = says(&format!("[Note] WSREP: Recovered position: {HISTORY}:7"));
        format!(
            "for a in \"$@\"; do case \"$a\" in --tc-heuristic-recover=ROLLBACK) now=1;; esac; done\n\
             if [ -n \"$now\" ]; then touch \"$here/done\"; {after_rollback}; fi\n\
             [ -e \"$here/done\" ] || {{ {refuse}; exit 1; }}\n\
             {position}"
        )
    }

    #[test]
    fn prepared_transactions_behind_a_gap_are_rolled_back() {
        for (name, after_rollback) in [("gap-goes-on", ":"), ("gap-ends", "exit 1")] {
            let dir = Dir::new(name);
            assert_eq!(
                ask(&dir.server(&gap(after_rollback)), a_minute()).unwrap(),
                answer(7, Engine::Closed),
                "{name}"
            );
        }
    }

    #[test]
    fn failures_are_told_with_the_servers_reasons() {
        let dir = Dir::new("reason");
        let body = [
            says("[ERROR] WSREP: rsync SST method requires wsrep_cluster_address to be configured on startup."),
            says("[Note] something else"),
            says("[ERROR] Aborting"),
            "exit 1".into(),
        ];
        let Err(Unknown::Failed { reason, said }) = ask(&dir.server(&body.join("\n")), a_minute()) else {
            panic!("no failure")
        };
        assert!(reason.to_string().ends_with("--wsrep-recover: exit status: 1"), "{reason}");
        assert_eq!(said, ["WSREP: rsync SST method requires wsrep_cluster_address to be configured on startup."]);
        // A loader, a shell, a server that crashed: no line is marked as an error.
        let body: Vec<String> = (0..9).map(|n| format!("echo line {n} >&2")).chain(["exit 127".into()]).collect();
        let Err(Unknown::Failed { said, .. }) = ask(&dir.server(&body.join("\n")), a_minute()) else {
            panic!("no failure")
        };
        assert_eq!(said, ["line 4", "line 5", "line 6", "line 7", "line 8"]);
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
    fn a_server_that_says_nothing_any_more_is_killed() {
        let dir = Dir::new("silent");
        let limits = silence(Duration::from_millis(50));
        let Err(Unknown::Failed { reason, said }) = ask(&dir.server("echo begun >&2\nexec sleep 600"), limits) else {
            panic!("no failure")
        };
        assert!(reason.to_string().contains("said nothing"), "{reason}");
        assert_eq!(said, ["begun"]);
    }

    /// It takes several times as long as it may be silent.
    #[test]
    fn a_server_that_goes_on_telling_is_waited_for() {
        let dir = Dir::new("slow");
        let script = format!(
            "for i in 1 2 3 4 5 6 7 8 9 10\ndo\n  echo \"page $i\" >&2\n  sleep 0.5\ndone\necho '{MARK} {HISTORY}:7' >&2"
        );
        let answer = ask(&dir.server(&script), silence(Duration::from_secs(2))).unwrap();
        assert_eq!(answer.position.1, Seqno(7));
    }

    /// One that would be asked three times: a stop counts for all of them.
    #[test]
    fn no_run_begins_once_the_server_is_to_stop() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let dir = Dir::new("limits");
        let begun = || fs::read_to_string(dir.0.join("begun")).map_or(0, |text| text.lines().count());
        let run = dir.server(&format!("echo >> \"$here/begun\"\nsleep 0.2\n{}", gap("exit 1")));
        // Told to while the first one is under way, which has it seen by then.
        let stopped = Limits { stop: || STOP.load(Relaxed), ..a_minute() };
        let asking = thread::scope(|scope| {
            let asking = scope.spawn(|| ask(&run, stopped));
            while begun() == 0 {
                thread::yield_now();
            }
            STOP.store(true, Relaxed);
            asking.join().unwrap()
        });
        let Err(Unknown::Failed { reason, .. }) = asking else { panic!("no failure") };
        assert!(reason.to_string().contains("told to stop"), "{reason}");
        assert_eq!(begun(), 1);
    }

    /// The kernel goes by the thread that started it.
    #[test]
    fn a_run_does_not_outlive_its_server() {
        let dir = Dir::new("orphan");
        let run = dir.server("exec sleep 600");
        let mut child = thread::spawn(move || process(&run, memory_file().unwrap()).spawn().unwrap()).join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn the_program_is_this_one() {
        assert_eq!(executable().unwrap(), std::env::current_exe().unwrap());
    }
}
