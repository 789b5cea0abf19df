//! The command under the name `glbd`: GLB's options, resolved to ours.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser};
use nix::sys::stat::Mode;
use nix::unistd::{self, User};

use crate::address::Address;
use crate::options::{Serve, Words};
use crate::shell::{self, Extra};

const NOTES: &str = "\
LISTEN is [IP:]PORT; a destination is HOST[:PORT[:WEIGHT]], with the listening port and weight 1 if they are left out.
This is `trireme balance` with the options of the Galera Load Balancer. Without --watchdog nobody asks the destinations how they are:
one that refuses a connection is left out until the next try. --watchdog 'exec:\"PROGRAM WORDS\"' works as there. What knows the
cluster itself, and needs no program, is `trireme balance`.";

#[derive(Debug, Parser)]
#[command(name = "glbd", version, disable_version_flag = true, about = "TCP load balancer with GLB's options", after_help = NOTES)]
pub struct Glbd {
    /// Where clients come in
    #[arg(value_name = "LISTEN")]
    pub listen: String,
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
}

impl Glbd {
    /// `None`: none is named.
    pub fn policy(&self) -> Result<Option<&'static str>, String> {
        let policies =
            [(self.round, "round"), (self.random, "random"), (self.source, "source"), (self.single, "single")];
        let chosen: Vec<&str> = policies.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
        match chosen[..] {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            _ => Err(format!("several policies are named: {}", chosen.join(", "))),
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
    let typed = Glbd::command().version(version).try_get_matches_from(words);
    let glbd = match typed.and_then(|typed| Glbd::from_arg_matches(&typed)) {
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
    if glbd.daemon {
        // Before any thread is there.
        unistd::daemon(false, false).map_err(|e| format!("cannot go to the background: {e}"))?;
        become_daemon()?;
    }
    let fifo = Fifo::make(&glbd.fifo)?;
    let outcome = shell::serve(serve, extra);
    drop(fifo);
    outcome
}

fn resolve(glbd: &Glbd) -> Result<(Serve, Extra), String> {
    let Address::Tcp { host, port } = Address::listener(&glbd.listen, "0.0.0.0")? else {
        return Err(format!("{}: LISTEN is [IP:]PORT", glbd.listen));
    };
    let policy = glbd.policy()?.unwrap_or("least");
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
        listen: vec![format!("{}=any:{policy}{top}", Address::Tcp { host, port })],
        interval: format!("{}s", glbd.interval),
        timeout: format!("{}s", glbd.interval.max(1.0) * 1.1),
        hold: "0".to_owned(),
        max_connections: glbd.max_conn,
        no_discover: !glbd.discover,
        by_latency: glbd.latency.is_some(),
        control: glbd.control.clone(),
        threads: Some(glbd.threads),
        ..Words::default_serve()
    };
    let extra = Extra {
        fifo: Some(glbd.fifo.clone()),
        default_port: Some(port),
        nodelay_off: glbd.nodelay,
        keepalive_off: glbd.keepalive,
        // Nobody is asked, if no watchdog does it.
        passive: exec.is_none(),
        hangup_ends: true,
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
        let words = [&["glbd"], words].concat();
        resolve(&Glbd::try_parse_from(words).map_err(|e| e.to_string())?)
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

    #[test]
    fn what_cannot_work_is_refused() {
        assert!(read(&[]).is_err());
        assert!(read(&["-b", "-r", "3306"]).is_err());
        assert!(read(&["-w", "ping", "3306"]).is_err());
        assert!(read(&["-i", "0", "3306"]).is_err());
        assert!(read(&["3306", "a:b:c"]).is_err());
    }
}
