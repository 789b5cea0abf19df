//! `trireme hosts`: the servers of a group, as connectors want them. For applications that need nothing in between.

use std::collections::VecDeque;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::address::Address;
use crate::config::{self, Config};
use crate::health::{Fitness, Heard};
use crate::options::{Serve, Words};
use crate::pool::{NodeId, Output, Pool};
use crate::shell::look_once;
use crate::writer::ELECTION;

const NOTES: &str = "\
The writer comes first, then those that are ready, then the last choice; servers that are out are left out.

Exit codes:
  0  done
  1  no server is fit, or none answered
  2  wrong usage";

#[derive(Clone, Debug, Args)]
#[command(after_help = NOTES)]
pub struct Hosts {
    /// Servers, HOST[:PORT], with commas between; one is enough in a group, the others are found
    #[arg(long, value_name = "SERVERS", value_delimiter = ',', required = true)]
    nodes: Vec<String>,
    /// Account that asks the servers for their state
    #[arg(long, value_name = "NAME", default_value = "root")]
    user: String,
    /// File whose first line is that account's password
    #[arg(long, value_name = "FILE")]
    password_file: Option<std::path::PathBuf>,
    /// For which connector
    #[arg(long, value_name = "FORMAT", default_value = "all")]
    format: Format,
    /// Schema in the connection strings
    #[arg(long, value_name = "NAME", default_value = "")]
    database: String,
    /// Use the servers that are named, and no others
    #[arg(long)]
    no_discover: bool,
    /// How long a server may take to answer
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = |text: &str| config::time("timeout", text))]
    timeout: Duration,
}

/// The way in which a connector wants to be told of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Plain,
    Jdbc,
    C,
    Python,
    Go,
    /// Each of them, with its name
    All,
}

/// `trireme hosts`.
pub fn run(asked: Hosts) -> ExitCode {
    match find(&asked) {
        Ok(hosts) => {
            // A closed pipe is no error.
            let _ = write!(std::io::stdout(), "{}", of_format(asked.format, &hosts, &asked.database));
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("trireme hosts: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Host and port, the writer first.
fn find(asked: &Hosts) -> Result<Vec<(String, u16)>, String> {
    let config = Config::resolve(&Serve {
        nodes: asked.nodes.clone(),
        // Nobody listens; a configuration has a listener.
        any: vec!["1".to_owned()],
        user: asked.user.clone(),
        password_file: asked.password_file.clone(),
        no_discover: asked.no_discover,
        ..Words::default_serve()
    })?;
    let mut pool = Pool::new(config.settings.clone(), 0);
    pool.configure(config.settings.clone(), &config.nodes, Instant::now())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let mut open: VecDeque<(NodeId, Address)> = VecDeque::new();
    loop {
        while let Some(output) = pool.poll_output() {
            if let Output::Watch(id, address) = output {
                open.push_back((id, address));
            }
        }
        let Some((id, address)) = open.pop_front() else { break };
        let heard = runtime.block_on(look_once(&address, &config.user, &config.password, asked.timeout));
        if let Some(why) = why_not(&heard, asked.timeout) {
            eprintln!("trireme hosts: {address}: {why}");
        }
        pool.handle_heard(id, heard, Instant::now());
    }
    // Nobody is waited for: the election of a writer has had its time.
    pool.handle_time(Instant::now() + ELECTION + Duration::from_millis(1));
    let hosts = ordered(&pool);
    if hosts.is_empty() { Err("no server is fit".to_owned()) } else { Ok(hosts) }
}

fn ordered(pool: &Pool) -> Vec<(String, u16)> {
    let mut nodes: Vec<_> = pool.nodes().filter(|node| !node.fitness.is_out()).collect();
    nodes.sort_by_key(|node| (pool.writer() != Some(node.id), node.fitness != Fitness::Ready, node.id));
    let tcp = |address: &Address| match address {
        Address::Tcp { host, port } => Some((host.clone(), *port)),
        Address::Unix(_) => None,
    };
    nodes.iter().filter_map(|node| tcp(&node.address)).collect()
}

/// The reason why nothing is known of a server. `None`: it answered.
fn why_not(heard: &Heard, limit: Duration) -> Option<String> {
    match heard {
        Heard::Answer(_) | Heard::Watchdog(..) => None,
        Heard::Late | Heard::TimedOut => Some(format!("no answer within {limit:?} (--timeout)")),
        Heard::Refused(reason) | Heard::LoginDenied(reason) | Heard::Wrong(reason) | Heard::Full(reason) => {
            Some(reason.clone())
        }
    }
}

fn of_format(format: Format, hosts: &[(String, u16)], database: &str) -> String {
    let pair = |(host, port): &(String, u16)| match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    let all: Vec<String> = hosts.iter().map(pair).collect();
    let readers = if all.len() > 1 { &all[1..] } else { &all[..] };
    match format {
        Format::Plain => all.iter().map(|one| format!("{one}\n")).collect(),
        Format::Jdbc => format!(
            "jdbc:mariadb:sequential://{}/{database}\njdbc:mariadb:loadbalance://{}/{database}\n",
            all.join(","),
            readers.join(",")
        ),
        Format::C => format!("host={}\n", all.join(",")),
        Format::Python => {
            let tuples: Vec<String> = hosts.iter().map(|(host, port)| format!("(\"{host}\", {port})")).collect();
            format!("HOSTS = [{}]\n", tuples.join(", "))
        }
        Format::Go => all.iter().map(|one| format!("USER:PASSWORD@tcp({one})/{database}\n")).collect(),
        Format::All => {
            let named = Format::value_variants().iter().filter(|one| **one != Format::All);
            let name = |one: &Format| one.to_possible_value().map(|value| value.get_name().to_owned());
            named
                .map(|one| format!("# {}\n{}\n", name(one).unwrap_or_default(), of_format(*one, hosts, database)))
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::synced;

    #[test]
    fn the_writer_comes_first_and_servers_that_are_out_do_not_come() {
        let config = Config::resolve(&Serve {
            nodes: vec!["a:1".into(), "b:2".into(), "c:3".into()],
            any: vec!["1".into()],
            ..Words::default_serve()
        })
        .unwrap();
        let now = Instant::now();
        let mut pool = Pool::new(config.settings.clone(), 0);
        pool.configure(config.settings, &config.nodes, now).unwrap();
        pool.handle_heard(NodeId(1), Heard::Refused("gone".into()), now);
        pool.handle_heard(NodeId(2), Heard::Answer(synced("n2", false, 1)), now);
        pool.handle_heard(NodeId(3), Heard::Answer(synced("n3", true, 1)), now);
        assert_eq!(ordered(&pool), [("c".to_owned(), 3), ("b".to_owned(), 2)]);
    }

    #[test]
    fn formats() {
        let hosts = [("10.0.0.1".to_owned(), 3306), ("::1".to_owned(), 3307)];
        assert_eq!(of_format(Format::Plain, &hosts, "d"), "10.0.0.1:3306\n[::1]:3307\n");
        assert_eq!(
            of_format(Format::Jdbc, &hosts, "d"),
            "jdbc:mariadb:sequential://10.0.0.1:3306,[::1]:3307/d\njdbc:mariadb:loadbalance://[::1]:3307/d\n"
        );
        assert_eq!(of_format(Format::C, &hosts, "d"), "host=10.0.0.1:3306,[::1]:3307\n");
        assert_eq!(of_format(Format::Python, &hosts, ""), "HOSTS = [(\"10.0.0.1\", 3306), (\"::1\", 3307)]\n");
        assert_eq!(of_format(Format::Go, &hosts[..1], "d"), "USER:PASSWORD@tcp(10.0.0.1:3306)/d\n");
        let all = of_format(Format::All, &hosts[..1], "d");
        assert!(all.starts_with("# plain\n10.0.0.1:3306\n\n# jdbc\njdbc:"), "{all}");
    }

    #[test]
    fn a_server_that_does_not_answer_has_a_reason() {
        let why = |heard: Heard| why_not(&heard, Duration::from_secs(2));
        assert_eq!(why(Heard::TimedOut).unwrap(), "no answer within 2s (--timeout)");
        assert_eq!(why(Heard::Refused("gone".into())).unwrap(), "gone");
        assert_eq!(why(Heard::Answer(synced("n2", false, 1))), None);
    }
}
