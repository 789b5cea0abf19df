//! Asks servers by running the `mariadb` client: so every setting of the client and every authentication plugin works as it does for
//! people.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::batch;
use crate::survey::Target;

/// How to reach the servers. A setting that is not given comes from the client's own option files (`[client]` in my.cnf).
#[derive(Clone, Debug, Args)]
pub struct Connect {
    /// Read the client's settings from this file only, as `mariadb --defaults-file` does
    #[arg(long, value_name = "FILE")]
    pub defaults_file: Option<PathBuf>,
    /// Read this file after the usual option files
    #[arg(long, value_name = "FILE", conflicts_with = "defaults_file")]
    pub defaults_extra_file: Option<PathBuf>,
    /// Servers, HOST[:PORT], separated by commas; one of a group is enough, the others are found
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    pub host: Vec<String>,
    /// Socket of the server on this machine
    #[arg(short = 'S', long, value_name = "FILE", conflicts_with = "host")]
    pub socket: Option<PathBuf>,
    /// Port where a host is named without one
    #[arg(short = 'P', long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Account. Its password comes from an option file or from $MYSQL_PWD, never from the command line
    #[arg(short = 'u', long, value_name = "NAME")]
    pub user: Option<String>,
    /// Seconds that a server may take to answer
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = seconds)]
    pub timeout: f64,
    /// Ask the servers that are named, and no others
    #[arg(long)]
    pub no_discover: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("write seconds from 0.05 to 600, for instance 2.5".to_owned()),
    }
}

/// Why a server gave no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// Nothing within the time limit: frozen, cut off, or a firewall that drops packets.
    Silent,
    /// Nobody listens there.
    Refused(String),
    /// The account or its password.
    Denied(String),
    /// It has no connection left.
    Full(String),
    /// The name has no address.
    Unknown(String),
    /// The two do not agree about encryption.
    Tls(String),
    /// The client program is missing or does not run.
    NoClient(String),
    Other(String),
}

impl Trouble {
    fn of(stderr: &str) -> Trouble {
        let (number, text) = batch::error(stderr);
        match number {
            Some(2002 | 2003) if text.contains("(110") => Trouble::Silent,
            // How the client tells of a port where nobody listens.
            Some(2002 | 2003) if text.contains("(115") => Trouble::Refused("nobody listens there".to_owned()),
            Some(2002 | 2003) => Trouble::Refused(text),
            Some(1044 | 1045 | 1698 | 1130 | 1251 | 1820 | 2059 | 4151) => Trouble::Denied(text),
            Some(1040 | 1203 | 1226) => Trouble::Full(text),
            Some(2005) => Trouble::Unknown(text),
            Some(2026 | 3159) => Trouble::Tls(text),
            Some(_) | None => Trouble::Other(text),
        }
    }

    /// One word, for JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Trouble::Silent => "silent",
            Trouble::Refused(_) => "refused",
            Trouble::Denied(_) => "denied",
            Trouble::Full(_) => "full",
            Trouble::Unknown(_) => "unknown-host",
            Trouble::Tls(_) => "tls",
            Trouble::NoClient(_) => "no-client",
            Trouble::Other(_) => "error",
        }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Silent => f.write_str("no answer: frozen, cut off, or behind a firewall"),
            Trouble::Refused(text) => write!(f, "not reached: {text}"),
            Trouble::Denied(text) => write!(f, "refuses the account: {text}"),
            Trouble::Full(text) => write!(f, "has no connection left: {text}"),
            Trouble::Unknown(text) => write!(f, "not found: {text}"),
            Trouble::Tls(text) => write!(f, "encryption failed: {text}"),
            Trouble::NoClient(text) => write!(f, "cannot run the client `mariadb` (package mariadb-client): {text}"),
            Trouble::Other(text) => f.write_str(text),
        }
    }
}

impl Connect {
    pub fn limit(&self) -> Duration {
        Duration::from_secs_f64(self.timeout)
    }

    /// The servers that are named; one without a name is what the client would take by itself.
    pub fn targets(&self) -> Result<Vec<Target>, String> {
        if self.host.is_empty() {
            return Ok(vec![Target::Default]);
        }
        self.host.iter().map(|text| Target::parse(text, self.port)).collect()
    }

    /// The client's arguments. Those about option files have to come first.
    fn arguments(&self, target: &Target, statements: &str) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(file) = &self.defaults_file {
            out.push(format!("--defaults-file={}", file.display()));
        }
        if let Some(file) = &self.defaults_extra_file {
            out.push(format!("--defaults-extra-file={}", file.display()));
        }
        match target {
            Target::Default => {
                if let Some(socket) = &self.socket {
                    out.push(format!("--socket={}", socket.display()));
                }
                if let Some(port) = self.port {
                    out.push(format!("--port={port}"));
                }
            }
            Target::Tcp { host, port } => {
                out.extend([format!("--host={host}"), "--protocol=tcp".to_owned()]);
                out.extend(port.map(|port| format!("--port={port}")));
            }
        }
        if let Some(user) = &self.user {
            out.push(format!("--user={user}"));
        }
        out.push(format!("--connect-timeout={}", self.timeout.ceil() as u64));
        let fixed = ["--batch", "--column-names", "--no-auto-rehash", "--default-character-set=utf8mb4", "--execute"];
        out.extend(fixed.map(str::to_owned));
        out.push(statements.to_owned());
        out
    }

    /// Runs the statements, which are separated by semicolons, and gives what the client printed. Blocks for the time limit at most.
    pub fn ask(&self, target: &Target, statements: &str) -> Result<String, Trouble> {
        let started = Instant::now();
        let child = Command::new("mariadb")
            .args(self.arguments(target, statements))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| Trouble::NoClient(error.to_string()))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let read = |pipe: Option<Box<dyn Read + Send>>| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                if let Some(pipe) = pipe {
                    let _ = pipe.take(ANSWER_MAX).read_to_end(&mut bytes);
                }
                String::from_utf8_lossy(&bytes).into_owned()
            })
        };
        let stdout = read(stdout.map(|pipe| Box::new(pipe) as Box<dyn Read + Send>));
        let stderr = read(stderr.map(|pipe| Box::new(pipe) as Box<dyn Read + Send>));
        let ended = loop {
            match child.try_wait() {
                Ok(Some(code)) => break Some(code),
                Ok(None) if started.elapsed() < self.limit() => thread::sleep(LOOK),
                Ok(None) | Err(_) => break None,
            }
        };
        if ended.is_none() {
            // Our own child, which has not been waited for: the id is still its.
            let _ = child.kill();
            let _ = child.wait();
        }
        let (stdout, stderr) = (stdout.join().unwrap_or_default(), stderr.join().unwrap_or_default());
        match ended {
            None => Err(Trouble::Silent),
            Some(code) if code.success() => Ok(stdout),
            Some(_) => Err(Trouble::of(&stderr)),
        }
    }
}

/// Between two looks whether the client has ended.
const LOOK: Duration = Duration::from_millis(5);
/// A server that says more is wrong. Status and variables are some 20 KiB; a list of tables is bounded by its query.
const ANSWER_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        connect: Connect,
    }

    fn connect(words: &str) -> Connect {
        Line::parse_from(std::iter::once("x").chain(words.split_whitespace())).connect
    }

    #[test]
    fn arguments_of_the_client() {
        let asked = connect("--defaults-file=/a --user u --socket /s --timeout 0.5");
        let arguments = asked.arguments(&Target::Default, "SHOW STATUS");
        assert_eq!(arguments[..4], ["--defaults-file=/a", "--socket=/s", "--user=u", "--connect-timeout=1"]);
        assert_eq!(arguments.last().unwrap(), "SHOW STATUS");
        let asked = connect("--host a,b:33 --port 44");
        let targets = asked.targets().unwrap();
        assert_eq!(asked.arguments(&targets[0], "")[..3], ["--host=a", "--protocol=tcp", "--port=44"]);
        assert_eq!(asked.arguments(&targets[1], "")[..3], ["--host=b", "--protocol=tcp", "--port=33"]);
        // A socket that was named is one server's, never that of those that are found.
        let found = connect("--socket /s").arguments(&Target::parse("c:1", None).unwrap(), "");
        assert!(!found.iter().any(|word| word.contains("socket")));
    }

    #[test]
    fn kinds_of_trouble() {
        let of = |text: &str| Trouble::of(text).word();
        assert_eq!(of("ERROR 2002 (HY000): Can't connect to server on '10.0.0.9' (110)"), "silent");
        assert_eq!(of("ERROR 2002 (HY000): Can't connect to server on '10.0.0.9' (115)"), "refused");
        assert_eq!(of("ERROR 2002 (HY000): Can't connect to server on '10.0.0.9' (111)"), "refused");
        assert_eq!(of("ERROR 1698 (28000): Access denied for user 'root'@'localhost'"), "denied");
        assert_eq!(of("ERROR 1040 (08004): Too many connections"), "full");
        assert_eq!(of("ERROR 2005 (HY000): Unknown server host 'x' (-2)"), "unknown-host");
        assert_eq!(of("ERROR 2026 (HY000): TLS/SSL error: self-signed certificate"), "tls");
        assert_eq!(of("mariadb: [ERROR] Could not open required defaults file: /x"), "error");
    }
}
