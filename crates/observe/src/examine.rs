//! Gathers what `trireme doctor` judges. Nothing here decides.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::batch;
use crate::client::Connect;
use crate::doctor::{Certificate, Disk, Finding, Inputs, Local, Port, Purpose, SecretFile, Severity, Table, examine};
use crate::facts::Facts;
use crate::status::ask_all;
use crate::survey::{Answer, Target};
use crate::table::{print_line, printable};

const NOTES: &str = "\
Asks all servers as `trireme status` does, tries their ports for members and for full copies from this machine, and looks at this machine where a server's data
directory is here. Each finding has a reason and a remedy. Nothing is changed; with --disk some small files are written and removed.

--outage reads the write-set logs of stopped nodes and says who would go on, and what a forced start would lose.

Exit codes:
  0  nothing found but notes
  1  nothing could be examined; one line on stderr
  2  wrong usage
  3  warnings or errors were found";

#[derive(Clone, Debug, Args)]
#[command(after_help = NOTES)]
pub struct Doctor {
    #[command(flatten)]
    pub connect: Connect,
    /// Before a switch from Galera: also what will be different
    #[arg(long)]
    pub from_galera: bool,
    /// After a stop of all nodes: data directories of all of them, or copies of the logs and state files in them, [NAME=]DIR
    #[arg(long, value_name = "DIR", num_args = 1.., conflicts_with_all = ["from_galera", "disk"])]
    pub outage: Vec<String>,
    /// Measure syncs in the data directory, which takes a second
    #[arg(long)]
    pub disk: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const ASK_TABLES: &str = "SELECT CONCAT(t.TABLE_SCHEMA, '.', t.TABLE_NAME), t.ENGINE, COUNT(c.CONSTRAINT_NAME) FROM information_schema.TABLES t \
     LEFT JOIN information_schema.TABLE_CONSTRAINTS c ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME AND \
     c.CONSTRAINT_TYPE = 'PRIMARY KEY' WHERE t.TABLE_TYPE = 'BASE TABLE' AND t.TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', \
     'performance_schema') GROUP BY t.TABLE_SCHEMA, t.TABLE_NAME, t.ENGINE HAVING COUNT(c.CONSTRAINT_NAME) = 0 OR t.ENGINE <> 'InnoDB' LIMIT 1000";

/// `trireme doctor`, but for `--outage`.
pub fn run(asked: &Doctor) -> ExitCode {
    let targets = match asked.connect.targets() {
        Ok(targets) => targets,
        Err(reason) => {
            eprintln!("trireme doctor: {reason}");
            return ExitCode::from(2);
        }
    };
    let answers = ask_all(&asked.connect, targets, true);
    if answers.iter().all(|(_, answer)| answer.is_err()) {
        for (target, answer) in &answers {
            if let Err(trouble) = answer {
                eprintln!("trireme doctor: {target}: {trouble}");
            }
        }
        return ExitCode::FAILURE;
    }
    let tables = answers.iter().filter(|(_, answer)| answer.as_ref().is_ok_and(Facts::is_primary));
    let tables = tables.map(|(target, _)| target).next().and_then(|target| tables_of(&asked.connect, target));
    let inputs = Inputs {
        ports: ports(&answers),
        local: answers.iter().find_map(|answer| local(answer, asked.disk)),
        tables,
        answers,
        from_galera: asked.from_galera,
    };
    let findings = examine(&inputs);
    show(&findings, asked.json);
    let bad = findings.iter().any(|finding| finding.severity > Severity::Note);
    ExitCode::from(if bad { 3 } else { 0 })
}

fn show(findings: &[Finding], as_json: bool) {
    if as_json {
        print_line(&format!("{:#}", json!({ "version": 1, "findings": findings })));
        return;
    }
    for finding in findings {
        let node = if finding.node.is_empty() { String::new() } else { format!("{}: ", finding.node) };
        print_line(&format!("{:<8} {node}{} [{}]", finding.severity.word(), printable(&finding.what), finding.check));
        print_line(&format!("         why:  {}", printable(&finding.why)));
        print_line(&format!("         do:   {}\n", printable(&finding.remedy)));
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    print_line(&format!(
        "{} errors, {} warnings, {} notes",
        count(Severity::Error),
        count(Severity::Warning),
        count(Severity::Note)
    ));
}

fn tables_of(connect: &Connect, target: &Target) -> Option<Vec<Table>> {
    let text = connect.ask(target, ASK_TABLES).ok()?;
    let table = |row: &Vec<Option<String>>| {
        let cell = |n: usize| row.get(n).cloned().flatten();
        Some(Table {
            name: cell(0)?,
            // A table that cannot be opened has none.
            engine: cell(1).unwrap_or_else(|| "unknown".to_owned()),
            primary_key: cell(2)? != "0",
        })
    };
    Some(batch::rows(&text).iter().filter_map(table).collect())
}

const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// All at the same time: one that drops packets takes its time.
fn ports(answers: &[(Target, Answer)]) -> Vec<Port> {
    thread::scope(|scope| {
        let tried: Vec<_> = answers
            .iter()
            .flat_map(ports_of)
            .map(|(node, host, port, purpose)| {
                scope.spawn(move || {
                    let address =
                        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
                    let outcome = try_port(&host, port, purpose);
                    Port { node, address, purpose, outcome }
                })
            })
            .collect();
        tried.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}

/// Of a server: its name, and where others connect to it, as far as that is known.
fn ports_of((target, answer): &(Target, Answer)) -> Vec<(String, String, u16, Purpose)> {
    let Some(facts) = answer.as_ref().ok().filter(|facts| facts.has_provider()) else { return Vec::new() };
    let Some((host, port)) = member_address(target, facts) else { return Vec::new() };
    let name = facts.name().unwrap_or("?");
    let mut out = vec![(name.to_owned(), host.clone(), port, Purpose::Members)];
    let mut add = |given: Option<&str>, usual: u16, purpose| {
        let given = given.map(|given| given.split_once("://").map_or(given, |(_, address)| address));
        let (host, port) = match given.map(|given| Target::parse(given, Some(usual))) {
            Some(Ok(Target::Tcp { host, port })) if !host.eq_ignore_ascii_case("auto") => (host, port),
            Some(Ok(Target::Tcp { .. } | Target::Default) | Err(_)) | None => (host.clone(), None),
        };
        out.push((name.to_owned(), host, port.unwrap_or(usual), purpose));
    };
    // The others use the server's own port, or transfer nothing.
    if ["rsync", "mariabackup"].iter().any(|method| facts.text("wsrep_sst_method") == Some(method)) {
        add(facts.text("wsrep_sst_receive_address"), 4444, Purpose::FullCopy);
    }
    if !facts.is_trireme() {
        let options = facts.options();
        let given = options.get("ist.recv_addr").map(String::as_str).filter(|given| !given.is_empty());
        add(given, port.saturating_add(1), Purpose::CatchUp);
    }
    out
}

fn try_port(host: &str, port: u16, purpose: Purpose) -> Result<(), String> {
    let mut all = (host, port).to_socket_addrs().map_err(|error| error.to_string())?;
    let first = all.next().ok_or("the name has no address")?;
    match TcpStream::connect_timeout(&first, CONNECT_LIMIT) {
        Ok(_) => Ok(()),
        Err(error) if gets_through(error.kind(), purpose) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Does a failed connection show that nothing is in the way? A machine that refuses for want of a listener has been reached.
fn gets_through(error: ErrorKind, purpose: Purpose) -> bool {
    match purpose {
        Purpose::Members => false,
        Purpose::FullCopy | Purpose::CatchUp => error == ErrorKind::ConnectionRefused,
    }
}

/// Where it listens for members: an address of its own, or that of its clients.
fn member_address(target: &Target, facts: &Facts) -> Option<(String, u16)> {
    let options = facts.options();
    let listen = options.get("gmcast.listen_addr").map(String::as_str).unwrap_or_default();
    let (_, listen) = listen.split_once("://").unwrap_or(("", listen));
    let base = options.get("base_port").and_then(|port| port.parse().ok()).unwrap_or(4567);
    let (host, port) = match Target::parse(listen, Some(base)) {
        Ok(Target::Tcp { host, port }) => (Some(host), port.unwrap_or(base)),
        Ok(Target::Default) | Err(_) => (None, base),
    };
    let any = |host: &String| ["0.0.0.0", "::", "*"].contains(&host.as_str());
    let by_clients = || match facts.own_address().as_ref().unwrap_or(target) {
        Target::Tcp { host, .. } => Some(host.clone()),
        Target::Default => Some("127.0.0.1".to_owned()),
    };
    Some((host.filter(|host| !any(host)).or_else(by_clients)?, port))
}

/// Of a server whose data directory is on this machine and is its: the process runs here.
fn local((_, answer): &(Target, Answer), measure: bool) -> Option<Local> {
    let facts = answer.as_ref().ok()?;
    let data_dir = PathBuf::from(facts.text("datadir")?);
    let pid = fs::read_to_string(data_dir.join(facts.text("pid_file")?)).ok()?;
    if facts.text("hostname") != hostname().as_deref() || !Path::new("/proc").join(pid.trim()).exists() {
        return None;
    }
    let options = facts.options();
    let given = |name: &str| options.get(name).filter(|value| !value.is_empty());
    let log_dir = given("gcache.dir").map_or_else(|| data_dir.clone(), |dir| data_dir.join(dir));
    let mut dirs = vec![data_dir.clone()];
    if log_dir.canonicalize().ok() != data_dir.canonicalize().ok() {
        dirs.push(log_dir);
    }
    let secret = |option: &'static str| {
        let path = data_dir.join(given(option)?);
        let mode = fs::metadata(&path).map(|m| m.permissions().mode()).map_err(|error| error.to_string());
        Some(SecretFile { option, path: path.display().to_string(), mode })
    };
    Some(Local {
        node: facts.name().unwrap_or("?").to_owned(),
        disks: dirs.iter().filter_map(|dir| disk(dir, measure)).collect(),
        files: ["repl.secret_file", "socket.ssl_key", "socket.ssl_password_file"]
            .into_iter()
            .filter_map(secret)
            .collect(),
        certificate: given("socket.ssl_cert").map(|path| certificate(&data_dir.join(path))),
        drop_in: Path::new("/run/systemd/system").exists().then(|| {
            ["/etc", "/usr/lib", "/lib", "/usr/local/lib"]
                .iter()
                .any(|top| Path::new(top).join("systemd/system/mariadb.service.d/trireme.conf").exists())
        }),
        apparmor: apparmor(&fs::read_to_string("/sys/kernel/security/apparmor/profiles").unwrap_or_default()),
        selinux: fs::read_to_string("/sys/fs/selinux/enforce").is_ok_and(|text| text.trim() == "1"),
    })
}

fn hostname() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned())
}

/// `/usr/sbin/mariadbd (enforce)`.
fn apparmor(profiles: &str) -> Vec<String> {
    let concerned = |line: &&str| line.ends_with("(enforce)") && (line.contains("mariadbd") || line.contains("mysqld"));
    profiles.lines().filter(concerned).map(|line| line.trim_end_matches("(enforce)").trim().to_owned()).collect()
}

fn disk(dir: &Path, measure: bool) -> Option<Disk> {
    let (free, total) = space(dir)?;
    Some(Disk {
        place: dir.display().to_string(),
        file_system: file_system(dir, &fs::read_to_string("/proc/self/mounts").unwrap_or_default()),
        free,
        total,
        sync: if measure { syncs(dir).ok() } else { None },
    })
}

/// Free for the server, and all, by the program `df`.
fn space(dir: &Path) -> Option<(u64, u64)> {
    let output =
        Command::new("df").args(["-Pk", "--"]).arg(dir).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    parse_df(&String::from_utf8_lossy(&output.stdout))
}

fn parse_df(text: &str) -> Option<(u64, u64)> {
    let words: Vec<&str> = text.lines().nth(1)?.split_whitespace().collect();
    // The device may have blanks in its name; the numbers stand before a percentage.
    let percent = words.iter().position(|word| word.ends_with('%'))?;
    let number = |at: usize| words.get(at)?.parse::<u64>().ok()?.checked_mul(1024);
    Some((number(percent.checked_sub(1)?)?, number(percent.checked_sub(3)?)?))
}

/// Of the longest mount point that the directory is below.
fn file_system(dir: &Path, mounts: &str) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let mount = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (place, kind) = (words.next()?.replace("\\040", " "), words.next()?.to_owned());
        dir.starts_with(&place).then_some((place.len(), kind))
    };
    // Of equal ones the last was mounted over the others.
    mounts.lines().filter_map(mount).max_by_key(|(len, _)| *len).map_or_else(|| "unknown".to_owned(), |(_, kind)| kind)
}

const SYNCS: usize = 25;

/// Median and longest.
fn syncs(dir: &Path) -> std::io::Result<(f64, f64)> {
    let path = dir.join(format!(".trireme-doctor-{}", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    let outcome = measure(file);
    let _ = fs::remove_file(&path);
    outcome
}

fn measure(mut file: File) -> std::io::Result<(f64, f64)> {
    let mut times = Vec::new();
    for _ in 0..SYNCS {
        file.write_all(&[0; 4096])?;
        let begun = Instant::now();
        file.sync_data()?;
        times.push(begun.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok((times[SYNCS / 2], times[SYNCS - 1]))
}

/// By the program `openssl`.
fn certificate(path: &Path) -> Certificate {
    let shown = path.display().to_string();
    let ends_within = |days: i64| {
        let seconds = (days * 86_400).to_string();
        let mut command = Command::new("openssl");
        command.args(["x509", "-noout", "-checkend", &seconds, "-in"]).arg(path).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().map(|status| !status.success())
    };
    let days = match File::open(path) {
        Err(error) => Err(error.to_string()),
        // The first of these days at which it has ended.
        Ok(_) => match ends_within(30) {
            Err(error) => Err(format!("cannot run openssl: {error}")),
            Ok(false) => Ok(30),
            Ok(true) => match ends_within(0) {
                Ok(true) => Ok(-1),
                Ok(false) | Err(_) => Ok((1..30).find(|days| ends_within(*days).unwrap_or(true)).unwrap_or(30) - 1),
            },
        },
    };
    Certificate { path: shown, days }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::facts;

    #[test]
    fn addresses_for_members() {
        let target = Target::parse("10.0.0.1:3306", None).unwrap();
        let of = |options: &str| member_address(&target, &facts(&[("wsrep_provider_options", options)])).unwrap();
        assert_eq!(of("gmcast.listen_addr = tcp://0.0.0.0:4567;"), ("10.0.0.1".to_owned(), 4567));
        assert_eq!(of("gmcast.listen_addr = ssl://10.9.9.9:7000; base_port = 1;"), ("10.9.9.9".to_owned(), 7000));
        assert_eq!(of("base_port = 5000;"), ("10.0.0.1".to_owned(), 5000));
        assert_eq!(of("gmcast.listen_addr = tcp://[::]:4568;"), ("10.0.0.1".to_owned(), 4568));
    }

    #[test]
    fn ports_for_transfers() {
        let of = |pairs: &[(&str, &str)]| -> Vec<(String, u16, Purpose)> {
            let all =
                [&[("wsrep_on", "ON"), ("wsrep_provider_name", "Trireme"), ("wsrep_node_name", "db1")], pairs].concat();
            let mut known = facts(&[]);
            known.status = all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let ports = ports_of(&(Target::parse("10.0.0.1:3306", None).unwrap(), Ok(known)));
            ports.into_iter().map(|(_, host, port, purpose)| (host, port, purpose)).collect()
        };
        let here = |port, purpose| ("10.0.0.1".to_owned(), port, purpose);
        let members = here(4567, Purpose::Members);
        assert_eq!(of(&[("wsrep_sst_method", "mysqldump")]), std::slice::from_ref(&members));
        assert_eq!(of(&[("wsrep_sst_method", "rsync")]), [members, here(4444, Purpose::FullCopy)]);
        let given = |given| of(&[("wsrep_sst_method", "mariabackup"), ("wsrep_sst_receive_address", given)]).pop();
        assert_eq!(given("AUTO"), Some(here(4444, Purpose::FullCopy)));
        assert_eq!(given("10.9.9.9"), Some(("10.9.9.9".to_owned(), 4444, Purpose::FullCopy)));
        assert_eq!(given("10.9.9.9:5000"), Some(("10.9.9.9".to_owned(), 5000, Purpose::FullCopy)));
        let galera = |options| of(&[("wsrep_provider_name", "Galera"), ("wsrep_provider_options", options)]).pop();
        assert_eq!(galera("gmcast.listen_addr = tcp://0.0.0.0:4000;"), Some(here(4001, Purpose::CatchUp)));
        let own = Some(("10.9.9.9".to_owned(), 7, Purpose::CatchUp));
        assert_eq!(galera("ist.recv_addr = ssl://10.9.9.9:7;"), own);
        let none = (Target::Default, Err(crate::client::Trouble::Silent));
        assert_eq!(ports_of(&none), []);
    }

    #[test]
    fn a_machine_that_refuses_was_reached_and_one_that_is_silent_was_not() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        assert_eq!(try_port("127.0.0.1", free, Purpose::FullCopy), Ok(()));
        assert!(try_port("127.0.0.1", free, Purpose::Members).is_err());
        // A firewall drops, or says so.
        for kind in [ErrorKind::TimedOut, ErrorKind::HostUnreachable, ErrorKind::PermissionDenied] {
            assert!(!gets_through(kind, Purpose::FullCopy) && !gets_through(kind, Purpose::CatchUp), "{kind}");
        }
    }

    #[test]
    fn disks_and_profiles() {
        let df = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/my disk 1000 100 900 10% /a b\n";
        assert_eq!(parse_df(df), Some((900 << 10, 1000 << 10)));
        assert_eq!(parse_df("nonsense"), None);
        let mounts = "a / ext4 rw 0 0\nb /proc proc rw 0 0\nc / overlay rw 0 0\n";
        assert_eq!(file_system(Path::new("/proc"), mounts), "proc");
        assert_eq!(file_system(Path::new("/"), mounts), "overlay");
        assert_eq!(
            apparmor("/usr/sbin/mariadbd (enforce)\n/usr/bin/man (enforce)\nmysqld (complain)\n"),
            ["/usr/sbin/mariadbd"]
        );
    }

    #[test]
    fn syncs_are_measured_and_leave_nothing() {
        let dir = std::env::temp_dir().join(format!("trireme-doctor-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (median, longest) = syncs(&dir).unwrap();
        assert!(median > 0.0 && median <= longest);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_file_that_is_no_certificate() {
        assert!(certificate(Path::new("/nowhere")).days.is_err());
    }
}
