//! `trireme hosts`: the servers of a group, as connectors want them. For applications that need nothing in between.

use std::collections::VecDeque;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

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
    /// plain, jdbc, c, python, go, or all
    #[arg(long, value_name = "FORMAT", default_value = "all")]
    format: String,
    /// Schema in the connection strings
    #[arg(long, value_name = "NAME", default_value = "")]
    database: String,
    /// Use the servers that are named, and no others
    #[arg(long)]
    no_discover: bool,
    /// How long a server may take to answer
    #[arg(long, value_name = "TIME", default_value = "2s")]
    timeout: String,
}

/// `trireme hosts`.
pub fn run(asked: Hosts) -> ExitCode {
    match find(&asked).and_then(|hosts| print(&asked, &hosts)) {
        Ok(text) => {
            // A closed pipe is no error.
            let _ = write!(std::io::stdout(), "{text}");
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
    let limit = config::time("timeout", &asked.timeout)?;
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
        let heard = runtime.block_on(look_once(&address, &config.user, &config.password, limit));
        if let Heard::Refused(reason) | Heard::LoginDenied(reason) | Heard::Wrong(reason) | Heard::Full(reason) = &heard
        {
            eprintln!("trireme hosts: {address}: {reason}");
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

fn print(asked: &Hosts, hosts: &[(String, u16)]) -> Result<String, String> {
    let formats = ["plain", "jdbc", "c", "python", "go"];
    if asked.format == "all" {
        let part = |format: &&str| format!("# {format}\n{}\n", of_format(format, hosts, &asked.database));
        return Ok(formats.iter().map(part).collect());
    }
    match formats.iter().find(|format| **format == asked.format) {
        Some(format) => Ok(of_format(format, hosts, &asked.database)),
        None => Err(format!("`{}` is no format: {}, all", asked.format, formats.join(", "))),
    }
}

fn of_format(format: &str, hosts: &[(String, u16)], database: &str) -> String {
    let pair = |(host, port): &(String, u16)| match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    let all: Vec<String> = hosts.iter().map(pair).collect();
    let readers = if all.len() > 1 { &all[1..] } else { &all[..] };
    match format {
        "jdbc" => format!(
            "jdbc:mariadb:sequential://{}/{database}\njdbc:mariadb:loadbalance://{}/{database}\n",
            all.join(","),
            readers.join(",")
        ),
        "c" => format!("host={}\n", all.join(",")),
        "python" => {
            let tuples: Vec<String> = hosts.iter().map(|(host, port)| format!("(\"{host}\", {port})")).collect();
            format!("HOSTS = [{}]\n", tuples.join(", "))
        }
        "go" => all.iter().map(|one| format!("USER:PASSWORD@tcp({one})/{database}\n")).collect(),
        _ => all.iter().map(|one| format!("{one}\n")).collect(),
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
        assert_eq!(of_format("plain", &hosts, "d"), "10.0.0.1:3306\n[::1]:3307\n");
        assert_eq!(
            of_format("jdbc", &hosts, "d"),
            "jdbc:mariadb:sequential://10.0.0.1:3306,[::1]:3307/d\njdbc:mariadb:loadbalance://[::1]:3307/d\n"
        );
        assert_eq!(of_format("c", &hosts, "d"), "host=10.0.0.1:3306,[::1]:3307\n");
        assert_eq!(of_format("python", &hosts, ""), "HOSTS = [(\"10.0.0.1\", 3306), (\"::1\", 3307)]\n");
        assert_eq!(of_format("go", &hosts[..1], "d"), "USER:PASSWORD@tcp(10.0.0.1:3306)/d\n");
    }
}
