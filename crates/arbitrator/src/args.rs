//! The command line. The names are garbd's.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser};

const NOTES: &str = "\
Exit codes:
  0  left the group in order after SIGTERM or SIGINT; or the request of --sst was taken on by a server
  1  failed; the last line of the log says why
  2  wrong usage (called as garbd: 1)

The directory belongs to one arbitrator of one group: it holds the member's identity and its part of the write-set log. It must
survive a reboot. If it is lost, the arbitrator comes back as a new member and votes when it has caught up.";

#[derive(Clone, Debug, Default, Args)]
#[command(after_help = NOTES)]
pub struct Arbitrate {
    /// Addresses of the servers: gcomm://HOST[:PORT],…
    #[arg(short, long, value_name = "ADDRESS")]
    pub address: Option<String>,
    /// The same, without a name
    #[arg(value_name = "ADDRESS", conflicts_with = "address")]
    pub positional: Option<String>,
    /// wsrep_cluster_name of the group
    #[arg(short, long, value_name = "NAME")]
    pub group: Option<String>,
    /// Provider options, as in wsrep_provider_options: base_port, gmcast.listen_addr, pc.weight, gcache.size, …
    #[arg(short, long, value_name = "OPTIONS")]
    pub options: Option<String>,
    /// Name of this member [default: garb]
    #[arg(short, long, value_name = "NAME")]
    pub name: Option<String>,
    /// Directory for identity and log [default: /var/lib/trireme-arbitrator/GROUP-PORT, else the same below /var/tmp]
    #[arg(short, long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,
    /// File for log lines [default: standard error; as a daemon the system's log]
    #[arg(short, long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Go to the background
    #[arg(short, long)]
    pub daemon: bool,
    /// File with lines `name = value`, named as these options; what is typed wins
    #[arg(short, long, value_name = "FILE")]
    pub cfg: Option<PathBuf>,
    /// Do not stay: have a server run its script wsrep_sst_METHOD, for instance to make a backup, and leave
    #[arg(long, value_name = "METHOD[:ARGUMENT]")]
    pub sst: Option<String>,
    /// Which server, as in wsrep_sst_donor [default: any]
    #[arg(long, value_name = "NAMES", requires = "sst")]
    pub donor: Option<String>,
    /// Keep this file up to date with where the arbitrator stands, as JSON
    #[arg(long, value_name = "FILE")]
    pub status_file: Option<PathBuf>,
}

#[derive(Debug, Parser)]
#[command(
    name = "garbd",
    version,
    disable_version_flag = true,
    about = "Group arbitrator: a voting member without data"
)]
struct Garbd {
    #[command(flatten)]
    arbitrate: Arbitrate,
    /// Print version
    #[arg(short = 'v', long, action = ArgAction::Version)]
    version: Option<bool>,
}

/// The command under the name `garbd`. As there, whatever goes wrong is 1. `version`: that of the program, with its commit.
pub fn garbd(version: &'static str, words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let typed = Garbd::command().version(version).try_get_matches_from(words);
    match typed.and_then(|typed| Garbd::from_arg_matches(&typed)) {
        Ok(garbd) => crate::run::run_as(garbd.arbitrate, 1),
        Err(e) => {
            let _ = e.print();
            ExitCode::from(u8::from(e.use_stderr()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_is_sound() {
        Garbd::command().debug_assert();
    }

    #[test]
    fn reads_what_scripts_call_garbd_with() {
        let parse = |words: &[&str]| Garbd::try_parse_from(words).map(|g| g.arbitrate);
        let long = parse(&["garbd", "--address", "gcomm://a:1", "--group", "g", "--options", "base_port=5"]).unwrap();
        assert_eq!((long.address.as_deref(), long.group.as_deref()), (Some("gcomm://a:1"), Some("g")));
        let short =
            parse(&["garbd", "-d", "-g", "g", "-o", "x=y", "-l", "/l", "-w", "/w", "-n", "n", "gcomm://a"]).unwrap();
        assert!(short.daemon);
        assert_eq!(short.positional.as_deref(), Some("gcomm://a"));
        assert!(parse(&["garbd", "-a", "gcomm://a", "-g", "g", "--donor", "n1", "--sst", "backup"]).is_ok());
        assert!(parse(&["garbd", "--nonsense"]).is_err());
    }
}
