//! The command under the name `glbd`: GLB's options, resolved to ours.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, PipeReader};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Command, CommandFactory, FromArgMatches, Parser};
use nix::sys::stat::Mode;
use nix::unistd::{self, ForkResult, User};

use crate::address::Address;
use crate::options::{Serve, Words};
use crate::policy::Policy;
use crate::shell::{self, Extra, Starter};

const NOTES: &str = "\
LISTEN is [IP:]PORT; a destination is HOST[:PORT[:WEIGHT]], with the listening port and weight 1 if they are left out.
This is `trireme balance` with the options of the Galera Load Balancer. Without --watchdog nobody asks the destinations how they are:
one that refuses a connection is left out until the next try. --watchdog 'exec:\"PROGRAM WORDS\"' works as there. What knows the
cluster itself, and needs no program, is `trireme balance`.";

#[derive(Debug, Parser)]
#[command(name = "glbd", version, disable_version_flag = true, args_override_self = true, infer_long_args = true, about = "TCP load balancer with GLB's options", after_help = NOTES)]
pub struct Glbd {
    /// Where clients come in
    #[arg(value_name = "LISTEN", required = true)]
    pub listen: Option<String>,
    /// Where they are led to
    #[arg(value_name = "DESTINATION")]
    pub destinations: Vec<String>,
    /// Control socket, on 127.0.0.1 if no address is given
    #[arg(short, long, value_name = "[IP:]PORT")]
    control: Option<String>,
    /// Control FIFO
    #[arg(short, long, value_name = "PATH", default_value = "/tmp/glbd.fifo")]
    fifo: PathBuf,
    /// Go to the background; as root, become the user `daemon`
    #[arg(short, long)]
    daemon: bool,
    /// Threads
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Clients at most
    #[arg(short, long = "max_conn", visible_alias = "connections", value_name = "N")]
    max_conn: Option<usize>,
    /// Seconds between checks
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
    /// In turn
    #[arg(short = 'b', long = "round", visible_aliases = ["round-robin", "rrb"])]
    round: bool,
    /// By chance
    #[arg(short, long)]
    random: bool,
    /// By the client's address
    #[arg(short, long = "source", visible_aliases = ["source_tracking", "src_tracking"])]
    source: bool,
    /// All to one until it fails
    #[arg(short = 'S', long)]
    single: bool,
    /// Only those of the highest weight
    #[arg(short = 'T', long)]
    pub top: bool,
    /// dummy, or exec:"COMMAND"
    #[arg(short, long, value_name = "SPEC")]
    watchdog: Option<String>,
    /// Use the other members that the watchdog lists
    #[arg(short = 'D', long)]
    discover: bool,
    /// Correct the weights by how fast destinations answer; the number of samples is not used
    #[arg(short = 'L', long, value_name = "N")]
    latency: Option<u32>,
    /// Not needed here, and without effect
    #[arg(short = 'x', long, value_name = "SECONDS")]
    extra: Option<f64>,
    /// Switch TCP_NODELAY off
    #[arg(short, long)]
    nodelay: bool,
    /// Switch SO_KEEPALIVE off
    #[arg(short = 'K', long)]
    keepalive: bool,
    /// Without effect
    #[arg(short, long)]
    linger: bool,
    /// Without effect: a MariaDB client waits for the server to speak
    #[arg(short = 'a', long = "defer-accept")]
    defer_accept: bool,
    /// Without effect
    #[arg(short = 'Y', long)]
    synchronous: bool,
    /// Without effect: all that matters is logged
    #[arg(short, long)]
    verbose: bool,
    /// Print version
    #[arg(short = 'V', long, action = ArgAction::Version)]
    version: Option<bool>,
    /// As it was typed last. `None`: none was.
    #[arg(skip)]
    pub policy: Option<Policy>,
}

impl Glbd {
    /// A command line, the name of the program first.
    fn read(command: Command, words: impl IntoIterator<Item = OsString>) -> Result<Glbd, clap::Error> {
        let matches = command.try_get_matches_from(words)?;
        let mut glbd = Glbd::from_arg_matches(&matches)?;
        let policies = [
            (glbd.round, "round", Policy::Round),
            (glbd.random, "random", Policy::Random),
            (glbd.source, "source", Policy::Source),
            (glbd.single, "single", Policy::Single),
        ];
        let typed = policies.iter().filter(|(on, ..)| *on);
        glbd.policy = typed.max_by_key(|(_, name, _)| matches.index_of(name)).map(|(.., policy)| *policy);
        glbd.top |= glbd.single;
        Ok(glbd)
    }

    /// The same for a library inside of a client, without the name of a program. Unknown arguments are left out, and come second.
    pub fn of_library(options: &str) -> Result<(Glbd, Vec<String>), String> {
        let mut words: Vec<String> = options.split_whitespace().map(str::to_owned).collect();
        let mut unknown = Vec::new();
        loop {
            // Options go to the end as they are rewritten, and LISTEN comes before the destinations.
            let command = Glbd::command()
                .no_binary_name(true)
                .mut_arg("listen", |listen| listen.required(false))
                .mut_arg("destinations", |destinations| destinations);
            let error = match Glbd::read(command, words.iter().map(OsString::from)) {
                Ok(glbd) => return Ok((glbd, unknown)),
                Err(error) => error,
            };
            let named = match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::String(named)) if error.kind() == ErrorKind::UnknownArgument => named.clone(),
                Some(_) | None => return Err(format!("{error}")),
            };
            let is_it = |word: &String| *word == named || word.strip_prefix(&named).is_some_and(|v| v.starts_with('='));
            let Some(at) = words.iter().position(is_it) else { return Err(format!("{error}")) };
            unknown.push(words.remove(at));
        }
    }

    /// Options that were asked for and that a library inside of a client does not offer.
    pub fn without_effect_in_library(&self) -> Vec<String> {
        let all = [
            (self.control.is_some(), "--control"),
            (self.watchdog.is_some(), "--watchdog"),
            (self.discover, "--discover"),
            (self.latency.is_some(), "--latency"),
            (self.daemon, "--daemon"),
            (self.max_conn.is_some(), "--max_conn"),
        ];
        all.iter().filter(|(given, _)| *given).map(|(_, name)| (*name).to_owned()).collect()
    }
}

/// As there, whatever goes wrong is 1.
pub fn glbd(version: &'static str, words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let glbd = match Glbd::read(Glbd::command().version(version), words) {
        Ok(glbd) => glbd,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(u8::from(e.use_stderr()));
        }
    };
    match run(&glbd) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("glbd: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn run(glbd: &Glbd) -> Result<(), String> {
    let (serve, extra) = resolve(glbd)?;
    if !glbd.daemon {
        return with_fifo(serve, extra);
    }
    let Side::Background(starter) = go_to_background()? else { return Ok(()) };
    let outcome = become_daemon().and_then(|()| with_fifo(serve, Extra { starter: Some(starter.clone()), ..extra }));
    if let Err(reason) = &outcome {
        starter.tell(reason);
    }
    outcome
}

fn with_fifo(serve: Serve, extra: Extra) -> Result<(), String> {
    let fifo = extra.fifo.as_deref().map(Fifo::make).transpose()?;
    let outcome = shell::serve(serve, extra);
    drop(fifo);
    outcome
}

/// The process that was started waits so long for the one in the background, as with GLB.
const START: Duration = Duration::from_secs(5);

enum Side {
    /// It has heard that the other one serves.
    Started,
    Background(Starter),
}

/// Must be called before any thread is there.
#[allow(unsafe_code)] // fork
fn go_to_background() -> Result<Side, String> {
    let cannot = |e: &dyn std::fmt::Display| format!("cannot go to the background: {e}");
    let (ours, theirs) = std::io::pipe().map_err(|e| cannot(&e))?;
    // SAFETY: there is one thread, so nothing is held that the new process would miss.
    match unsafe { unistd::fork() }.map_err(|e| cannot(&e))? {
        ForkResult::Parent { .. } => {
            // The end of the pipe comes when nobody has the other side any more.
            drop(theirs);
            wait_for_start(ours).map(|()| Side::Started)
        }
        ForkResult::Child => {
            drop(ours);
            let starter = Starter::new(theirs);
            match unistd::daemon(false, false) {
                Ok(()) => Ok(Side::Background(starter)),
                Err(e) => {
                    starter.tell(&cannot(&e));
                    Err(cannot(&e))
                }
            }
        }
    }
}

/// An error: the reason that the other process gave, if it gave one.
fn wait_for_start(pipe: PipeReader) -> Result<(), String> {
    let (said, hear) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = BufReader::new(pipe).read_line(&mut line);
        let _ = said.send(line);
    });
    match hear.recv_timeout(START).as_deref().map(str::trim_end) {
        Ok(Starter::DONE) => Ok(()),
        Ok("") => Err("the process in the background ended before it served".to_owned()),
        Ok(reason) => Err(reason.to_owned()),
        Err(_) => Err(format!("the process in the background did not serve within {} s", START.as_secs())),
    }
}

fn resolve(glbd: &Glbd) -> Result<(Serve, Extra), String> {
    let listen = glbd.listen.as_deref().ok_or("LISTEN is missing")?;
    let Address::Tcp { host, port } = Address::listener(listen, "0.0.0.0")? else {
        return Err(format!("{listen}: LISTEN is [IP:]PORT"));
    };
    let policy = glbd.policy.unwrap_or(Policy::Least);
    if !glbd.interval.is_finite() || glbd.interval < 0.01 {
        return Err(format!("--interval {}: 0.01 seconds at least", glbd.interval));
    }
    let exec = match glbd.watchdog.as_deref() {
        None | Some("dummy") => None,
        Some(spec) if spec.starts_with("exec:") => Some(spec.to_owned()),
        Some(other) => return Err(format!("--watchdog {other}: dummy or exec:\"COMMAND\"")),
    };
    // GLB starts without destinations too; they can be added later.
    let nodes =
        glbd.destinations.iter().map(|text| crate::config::server(text, port)).collect::<Result<Vec<_>, _>>()?;
    let top = if glbd.top { ":top" } else { "" };
    let serve = Serve {
        nodes: nodes.iter().map(|(address, weight)| format!("{address}={weight}")).collect(),
        listen: vec![format!("{}=any:{}{top}", Address::Tcp { host, port }, policy.name())],
        interval: format!("{}s", glbd.interval),
        timeout: format!("{}s", glbd.interval.max(1.0) * 1.1),
        hold: "0".to_owned(),
        max_connections: glbd.max_conn,
        no_discover: !glbd.discover,
        by_latency: glbd.latency.is_some_and(|samples| samples > 0),
        control: glbd.control.clone(),
        threads: Some(glbd.threads.max(1)),
        ..Words::default_serve()
    };
    let extra = Extra {
        // The background has another working directory.
        fifo: Some(std::path::absolute(&glbd.fifo).map_err(|e| format!("{}: {e}", glbd.fifo.display()))?),
        default_port: Some(port),
        nodelay_off: glbd.nodelay,
        keepalive_off: glbd.keepalive,
        // Nobody is asked, if no watchdog does it.
        passive: exec.is_none(),
        hangup_ends: true,
        starter: None,
    };
    Ok((Serve { exec, ..serve }, extra))
}

fn become_daemon() -> Result<(), String> {
    if !unistd::geteuid().is_root() {
        return Ok(());
    }
    let user = User::from_name("daemon").ok().flatten().ok_or("there is no user `daemon`")?;
    unistd::setgroups(&[user.gid])
        .and_then(|()| unistd::setgid(user.gid))
        .and_then(|()| unistd::setuid(user.uid))
        .map_err(|e| format!("cannot become the user `daemon`: {e}"))
}

/// Removed at the end.
struct Fifo(PathBuf);

impl Fifo {
    fn make(path: &std::path::Path) -> Result<Fifo, String> {
        unistd::mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR).map_err(|e| match e {
            nix::errno::Errno::EEXIST => format!(
                "{} exists: another glbd runs, or one was killed; then remove it, or name another with --fifo",
                path.display()
            ),
            e => format!("cannot make {}: {e}", path.display()),
        })?;
        Ok(Fifo(path.to_owned()))
    }
}

impl Drop for Fifo {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<(Serve, Extra), String> {
        let words = [&["glbd"], words].concat().into_iter().map(OsString::from);
        resolve(&Glbd::read(Glbd::command(), words).map_err(|e| e.to_string())?)
    }

    #[test]
    fn definition_is_sound() {
        Glbd::command().debug_assert();
    }

    #[test]
    fn what_scripts_call_glbd_with() {
        let (serve, extra) =
            read(&["-t", "4", "-c", "4444", "-b", "-T", "3306", "10.0.0.1", "10.0.0.2:3307:2.5"]).unwrap();
        assert_eq!(serve.nodes, ["10.0.0.1:3306=1", "10.0.0.2:3307=2.5"]);
        assert_eq!(serve.listen, ["0.0.0.0:3306=any:round:top"]);
        assert_eq!((serve.threads, serve.control.as_deref()), (Some(4), Some("4444")));
        assert!(extra.passive && serve.no_discover);
        let (serve, extra) =
            read(&["--source_tracking", "--discover", "-w", "exec:\"mysql.sh -u x\"", "127.0.0.1:3300", "a"]).unwrap();
        assert_eq!(serve.listen, ["127.0.0.1:3300=any:source"]);
        assert!(!extra.passive && !serve.no_discover && serve.exec.is_some());
    }

    /// All that getopt takes: an option that is repeated counts once, and long options may be cut short.
    #[test]
    fn command_lines_that_glb_takes_too() {
        let listens: [(&[&str], &str); 10] = [
            (&["-v", "-v", "3306"], "least"),
            (&["-t", "2", "-t", "4", "3306"], "least"),
            (&["-t", "0", "-L", "0", "3306"], "least"),
            (&["-b", "-r", "3306"], "random"),
            (&["-r", "-b", "3306"], "round"),
            (&["-b", "-r", "-b", "3306"], "round"),
            (&["-S", "-b", "3306"], "round:top"),
            (&["--rando", "--verb", "3306"], "random"),
            (&["--src", "--interv=2", "3306", "a"], "source"),
            (&["3306", "a", "--rou"], "round"),
        ];
        for (words, policy) in listens {
            let (serve, _) = read(words).unwrap_or_else(|e| panic!("{words:?}: {e}"));
            assert_eq!(serve.listen, [format!("0.0.0.0:3306=any:{policy}")], "{words:?}");
        }
        let (serve, _) = read(&["-t", "2", "-t", "4", "-c", "1", "-c", "2", "-L", "0", "3306"]).unwrap();
        assert_eq!((serve.threads, serve.control.as_deref(), serve.by_latency), (Some(4), Some("2"), false));
        assert_eq!(read(&["-t", "0", "-L", "3", "3306"]).map(|(s, _)| (s.threads, s.by_latency)), Ok((Some(1), true)));
        // More than one option begins like this.
        assert!(read(&["--s", "3306"]).is_err());
    }

    #[test]
    fn what_cannot_work_is_refused() {
        assert!(read(&[]).is_err());
        assert!(read(&["-w", "ping", "3306"]).is_err());
        assert!(read(&["-i", "0", "3306"]).is_err());
        assert!(read(&["3306", "a:b:c"]).is_err());
    }
}
