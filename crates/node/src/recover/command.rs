//! The command of a recovery run: what the server was started with, and behind it what makes the run harmless.
//!
//! Nothing of what the user wrote is interpreted. A server takes options from files, the environment and its command line, with `-` and
//! `_`, abbreviated, behind `loose-`, with their values in the same word or the next. Of several settings of one option the last one on
//! the command line counts, in whatever form the others came. So what the run needs is appended.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::ServerProcess;

/// The options of a recovery run, whatever the server was.
const OVERRIDES: [&str; 12] = [
    "--wsrep-recover",
    // Servers refuse to start without one where the method of full copies is a script. A recovery run neither loads the provider nor
    // connects.
    "--wsrep-cluster-address=gcomm://",
    // A position that somebody else gave is no answer.
    "--wsrep-start-position=00000000-0000-0000-0000-000000000000:-1",
    // See the module above: the position is that without a binary log.
    "--skip-log-bin",
    // The run opens its socket and its ports: clients, and whoever watches the port, would take it for the server.
    "--skip-networking",
    "--socket=",
    "--init-file=",
    // The data are on disk when the run has ended, whatever the server's own stop would leave to a recovery.
    "--loose-innodb-fast-shutdown=1",
    "--general-log=0",
    "--slow-query-log=0",
    // To stderr. Silence at the start, which not every server knows, would hold the position back.
    "--disable-log-error",
    "--loose-silent-startup=0",
];

/// A file of its own in the data directory. A run ends before it would write one; no server's file may be taken for the run's.
const PID_FILE: &str = "trireme-recover.pid";

/// A program and its words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    pub program: PathBuf,
    /// The name under which the program is called.
    pub name: OsString,
    pub arguments: Vec<OsString>,
}

impl Command {
    pub fn with(mut self, argument: &str) -> Command {
        self.arguments.push(argument.into());
        self
    }
}

/// The recovery run of `process`, whose data lie in the absolute `data_dir`. `command_line` is the kernel's: where the server was started by
/// a loader (`ld.so --library-path … mariadbd`), `program` is the loader, and its words come before the server's.
pub fn recovery(program: PathBuf, command_line: &[OsString], process: &ServerProcess, data_dir: &Path) -> Command {
    let own = process.arguments.get(1..).unwrap_or_default();
    let called = process.arguments.first().cloned().unwrap_or_else(|| program.as_os_str().to_owned());
    let (name, mut arguments) = match command_line.strip_suffix(own) {
        Some([first, loaders @ ..]) if !loaders.is_empty() => (first.clone(), loaders.to_vec()),
        _ => (called, Vec::new()),
    };
    arguments.extend(servers_own(own, process));
    let option = |name: &str, value: &Path| {
        let mut word = OsString::from(name);
        word.push(value);
        word
    };
    // A relative path was meant from the directory in which the server was started, which it has left.
    arguments.push(option("--datadir=", data_dir));
    for (name, dir) in [("--basedir=", &process.base_dir), ("--plugin-dir=", &process.plugin_dir)] {
        arguments.extend(dir.as_deref().map(|dir| option(name, dir)));
    }
    arguments.push(option("--pid-file=", &data_dir.join(PID_FILE)));
    arguments.extend(OVERRIDES.map(OsString::from));
    Command { program, name, arguments }
}

/// The server's own words, but for those that the run could not live with and no later word takes back.
fn servers_own(own: &[OsString], process: &ServerProcess) -> Vec<OsString> {
    let mut out = Vec::new();
    let mut rest = own.iter().peekable();
    // These count at the very beginning only, and in this form only.
    while let Some(word) = rest.next_if(|word| word.as_bytes().starts_with(b"--defaults-") || **word == "--no-defaults")
    {
        let absolute = |name: &str, known: &Option<PathBuf>| {
            let known = known.as_ref().filter(|_| word.as_bytes().starts_with(name.as_bytes()))?;
            let mut word = OsString::from(name);
            word.push(known);
            Some(word)
        };
        let known = absolute("--defaults-file=", &process.defaults_file)
            .or_else(|| absolute("--defaults-extra-file=", &process.defaults_extra_file));
        out.push(known.unwrap_or_else(|| word.clone()));
    }
    while let Some(word) = rest.next() {
        match chroot(word) {
            Chroot::Not => out.push(word.clone()),
            Chroot::Here => {}
            Chroot::InTheNext => drop(rest.next()),
        }
    }
    // Behind it a word is no option. A server that has started had nothing there.
    out.pop_if(|last| *last == "--");
    out
}

/// Where the value of `--chroot` is, if this is that option.
enum Chroot {
    Not,
    Here,
    InTheNext,
}

/// A server changes its root once, as root. This process is in there already.
fn chroot(word: &OsStr) -> Chroot {
    let word = word.as_bytes();
    if let Some(value) = word.strip_prefix(b"-r") {
        return if value.is_empty() { Chroot::InTheNext } else { Chroot::Here };
    }
    let Some(option) = word.strip_prefix(b"--") else { return Chroot::Not };
    let option = option.strip_prefix(b"loose-").or_else(|| option.strip_prefix(b"loose_")).unwrap_or(option);
    let name = option.split(|b| *b == b'=').next().unwrap_or_default();
    // Less is ambiguous, and no server starts with it.
    match b"chroot".starts_with(name) && name.len() >= b"chr".len() {
        false => Chroot::Not,
        true if name.len() < option.len() => Chroot::Here,
        true => Chroot::InTheNext,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<OsString> {
        list.iter().map(OsString::from).collect()
    }

    fn server(list: &[&str]) -> ServerProcess {
        ServerProcess { arguments: words(list), ..ServerProcess::default() }
    }

    /// The words before the appended ones.
    fn kept(process: &ServerProcess) -> Vec<OsString> {
        let run = recovery("/usr/sbin/mariadbd".into(), &process.arguments, process, Path::new("/data dir"));
        let at = run.arguments.iter().position(|w| w == "--datadir=/data dir").expect("the data directory is named");
        run.arguments[..at].to_vec()
    }

    #[test]
    fn what_the_run_needs_comes_last() {
        let process = server(&["mariadbd", "--wsrep_cluster_addr=gcomm://a", "--loose-socket", "/s", "--log-bin=b"]);
        let run = recovery("/usr/sbin/mariadbd".into(), &process.arguments, &process, Path::new("/data dir"));
        assert_eq!(
            (run.program.as_os_str(), run.name.as_os_str()),
            ("/usr/sbin/mariadbd".as_ref(), "mariadbd".as_ref())
        );
        let mut expect = process.arguments[1..].to_vec();
        expect.extend(words(&["--datadir=/data dir", "--pid-file=/data dir/trireme-recover.pid"]));
        expect.extend(OVERRIDES.map(OsString::from));
        assert_eq!(run.arguments, expect);
        assert!(run.arguments.iter().any(|w| w == "--wsrep-cluster-address=gcomm://"));
    }

    #[test]
    fn words_of_the_user_stay_as_they_are() {
        let all = [
            "mysqld",
            "--no-defaults",
            "--wsrep-new-cluster",
            "--wsrep_on",
            "--loose-foo_bar=1",
            "--skip-name-resolve",
            "--disable-log-error",
            "--port",
            "1",
            "-P2",
            "--sock=/a b/c\"d'.sock",
            "--data",
            "rel/ative",
            "--user=mysql",
            "",
        ];
        assert_eq!(kept(&server(&all)), words(&all[1..]));
    }

    #[test]
    fn relative_option_files_are_those_that_the_server_has_read() {
        let process = ServerProcess {
            defaults_extra_file: Some("/start/extra.cnf".into()),
            base_dir: Some("/start/usr".into()),
            plugin_dir: Some("/start/plug".into()),
            ..server(&["mariadbd", "--defaults-extra-file=extra.cnf", "--defaults-group-suffix=-b", "--port=1"])
        };
        assert_eq!(
            kept(&process),
            words(&["--defaults-extra-file=/start/extra.cnf", "--defaults-group-suffix=-b", "--port=1"])
        );
        let run = recovery("/m".into(), &process.arguments, &process, Path::new("/d"));
        for word in ["--basedir=/start/usr", "--plugin-dir=/start/plug"] {
            assert!(run.arguments.iter().any(|w| w == word), "{word}");
        }
        let process = ServerProcess {
            defaults_file: Some("/start/my.cnf".into()),
            ..server(&["mariadbd", "--defaults-file=my.cnf", "--defaults-file=of-no-server"])
        };
        assert_eq!(kept(&process)[0], "--defaults-file=/start/my.cnf");
        let unknown = server(&["mariadbd", "--defaults-file=/etc/my.cnf"]);
        assert_eq!(kept(&unknown), words(&["--defaults-file=/etc/my.cnf"]));
    }

    #[test]
    fn a_root_is_changed_once() {
        for given in [
            &["--chroot=/jail"][..],
            &["--chroot", "/jail"],
            &["--chr=/jail"],
            &["--loose-chroot=/jail"],
            &["--loose_chroo", "/jail"],
            &["-r/jail"],
            &["-r", "/jail"],
        ] {
            let all: Vec<&str> =
                ["mariadbd", "-u", "mysql"].iter().chain(given).chain(&["--port=1"]).copied().collect();
            assert_eq!(kept(&server(&all)), words(&["-u", "mysql", "--port=1"]), "{given:?}");
        }
        let others = ["mariadbd", "--character-sets-dir=/c", "--ch", "--chrootx=1", "--relay-log=r"];
        assert_eq!(kept(&server(&others)), words(&others[1..]));
    }

    #[test]
    fn options_do_not_end_before_the_appended_ones() {
        assert_eq!(kept(&server(&["mariadbd", "--port=1", "--"])), words(&["--port=1"]));
    }

    #[test]
    fn a_loader_starts_the_run_as_it_started_the_server() {
        let process = server(&["/opt/mariadbd", "--port=1"]);
        let line = words(&["ld.so", "--library-path", "/opt/lib", "/opt/mariadbd", "--port=1"]);
        let run = recovery("/lib64/ld-linux.so".into(), &line, &process, Path::new("/d"));
        assert_eq!(run.name, "ld.so");
        assert_eq!(run.arguments[..4], words(&["--library-path", "/opt/lib", "/opt/mariadbd", "--port=1"]));
        assert!(run.arguments.iter().any(|w| w == "--wsrep-recover"));
    }

    /// Titles of processes can be changed.
    #[test]
    fn a_command_line_that_is_not_the_servers_is_not_used() {
        let process = server(&["mariadbd", "--port=1"]);
        let run = recovery("/m".into(), &words(&["mariadbd: ready"]), &process, Path::new("/d"));
        assert_eq!((run.name, run.arguments[0].clone()), ("mariadbd".into(), "--port=1".into()));
        let run = recovery("/m".into(), &[], &process, Path::new("/d"));
        assert_eq!(run.arguments[0], "--port=1");
    }
}
