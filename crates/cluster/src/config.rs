//! The configuration of one node, in its `my.cnf` or on its command line: an ordinary Galera configuration plus what keeps
//! many servers on one machine apart.

use crate::disk::Holds;
use crate::node::Node;
use crate::spec::SstMethod;
use crate::state::State;
use std::fmt::Write;
use std::path::Path;

/// The account that mysqldump and mariabackup transfers use; the data template creates it, with a password of its own.
pub const SST_USER: &str = "sst";

/// An arbitrator's file.
pub fn render_arbitrator(state: &State, node: &Node) -> String {
    let servers: Vec<String> = state.nodes.iter().filter(|n| !n.arbitrator).map(Node::group_endpoint).collect();
    let options = provider_options(state, node, vec![format!("base_host={}", node.address)]);
    format!(
        "# Written by `trireme cluster` at every start of this node; edits are lost.\naddress = gcomm://{}\ngroup = {}\nname = {}\n\
         workdir = {}\nlog = {}\noptions = \"{options}\"\n",
        servers.join(","),
        state.name,
        node.name(),
        node.data().display(),
        node.log().display(),
    )
}

/// The provider options of `node`, `own` being what not every kind of node has. The caller's settings come last, so that
/// they win.
fn provider_options(state: &State, node: &Node, own: Vec<String>) -> String {
    let scheme = if state.tls || state.secret { "ssl" } else { "tcp" };
    let mut options = vec![format!("gmcast.listen_addr={scheme}://{}:{}", node.address, node.ports.group)];
    options.extend(own);
    if state.tls {
        options.push(node.tls_files().options());
    }
    if state.secret {
        options.push(format!("repl.secret_file={}", node.secret_file().display()));
    }
    if !state.provider_options.is_empty() {
        options.push(state.provider_options.clone());
    }
    options.join(";")
}

/// The whole file. `state` must already list all nodes, since each names all group addresses.
pub fn render(state: &State, node: &Node) -> String {
    let Told { server, group, asked } = told(state, node);
    let account = format!("wsrep-sst-auth={SST_USER}:{}", state.sst_password);
    let mut scripts = ("sst", vec!["sockopt=,reuseaddr".to_owned()]);
    scripts.1.extend(protection_of_copies(state, node));
    let for_scripts = || server.iter().chain(&asked).filter(|line| trips_scripts(line)).cloned().collect();
    let sections = match (state.settings.on_command_line(node.id), state.plain) {
        (false, true) => vec![("mysqld", server), ("mysqld", asked)],
        (false, false) => {
            vec![("mysqld", server), ("galera", group), ("galera", vec![account]), ("mysqld", asked), scripts]
        }
        (true, true) => Vec::new(),
        // Everybody can read a command line.
        (true, false) => vec![("mysqld", for_scripts()), ("galera", vec![account]), scripts],
    };
    let mut out = "# Written by `trireme cluster` at every start of this node; edits are lost.\n".to_owned();
    for (name, lines) in sections {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "[{name}]\n{}\n", lines.join("\n"));
    }
    out
}

/// The settings that make the scripts for full copies verify each other, where the group is protected and the program that
/// they need for it is there.
fn protection_of_copies(state: &State, node: &Node) -> Vec<String> {
    let needs = match state.sst {
        SstMethod::Rsync => "stunnel",
        SstMethod::Mariabackup => "socat",
        SstMethod::Mysqldump => return Vec::new(),
    };
    let files = node.tls_files();
    // Clusters of earlier versions have a secret and no such files.
    if !(state.secret || state.tls) || !files.ca.exists() || !in_path(needs) {
        return Vec::new();
    }
    let file = |name: &str, path: &Path| format!("{name}={}", path.display());
    vec!["ssl-mode=VERIFY_CA".to_owned(), file("tca", &files.ca), file("tcert", &files.cert), file("tkey", &files.key)]
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// The same on the command line.
pub fn arguments(state: &State, node: &Node) -> Vec<String> {
    let Told { server, group, asked } = told(state, node);
    let group = if state.plain { Vec::new() } else { group };
    let lines = server.iter().chain(&group).chain(&asked);
    lines.filter(|line| state.plain || !trips_scripts(line)).map(|line| word(line)).collect()
}

/// The script for mariabackup hands this one from the command line to mariadb-backup, which does not know it (10.11.19).
fn trips_scripts(line: &str) -> bool {
    line.trim_start().replace('_', "-").starts_with("innodb-buffer-pool-size")
}

/// A line of an option file as a word of a command line.
fn word(line: &str) -> String {
    let Some((name, value)) = line.split_once('=') else { return format!("--{}", line.trim()) };
    let value = value.trim();
    let quoted = |mark: char| value.strip_prefix(mark)?.strip_suffix(mark);
    format!("--{}={}", name.trim(), quoted('"').or_else(|| quoted('\'')).unwrap_or(value))
}

/// The settings of a server, in lines of an option file. Of several settings of one option the last counts.
struct Told {
    server: Vec<String>,
    group: Vec<String>,
    /// The settings that the caller asked for.
    asked: Vec<String>,
}

fn told(state: &State, node: &Node) -> Told {
    let Node { address, ports, .. } = node;
    let server = vec![
        format!("datadir={}", node.data().display()),
        format!("tmpdir={}", node.temporary().display()),
        format!("socket={}", node.socket().display()),
        format!("pid-file={}", node.pid_file().display()),
        format!("log-error={}", node.log().display()),
        format!("bind-address={address}"),
        format!("port={}", ports.sql),
        format!("server-id={}", node.id.raw()),
        "secure-file-priv=".to_owned(),
        "skip-name-resolve".to_owned(),
        "max-connections=300".to_owned(),
        // A test cluster shares one machine: small caches, no doublewrite of idle pages ahead of time.
        "innodb-buffer-pool-size=64M".to_owned(),
        "innodb-log-file-size=32M".to_owned(),
        "innodb-fast-shutdown=1".to_owned(),
        "performance-schema=OFF".to_owned(),
        "table-open-cache=400".to_owned(),
        "binlog-format=ROW".to_owned(),
        "default-storage-engine=InnoDB".to_owned(),
        "innodb-autoinc-lock-mode=2".to_owned(),
        // 1 is the durable default of a stock server; benchmarks override it.
        "innodb-flush-log-at-trx-commit=1".to_owned(),
    ];
    let peers: Vec<String> = state.nodes.iter().map(Node::group_endpoint).collect();
    let receive = match state.sst {
        // mysqldump feeds the joiner through its SQL port.
        SstMethod::Mysqldump => ports.sql,
        SstMethod::Rsync | SstMethod::Mariabackup => ports.sst,
    };
    let mut own = vec![format!("ist.recv_addr={address}:{}", ports.ist)];
    if state.disks.as_ref().is_some_and(|disks| disks.holds == Holds::Log) {
        own.push(format!("gcache.dir={}", node.log_dir().display()));
    }
    let group = vec![
        "wsrep-on=ON".to_owned(),
        format!("wsrep-provider={}", node.provider(&state.provider).display()),
        format!("wsrep-cluster-name={}", state.name),
        format!("wsrep-cluster-address=gcomm://{}", peers.join(",")),
        format!("wsrep-node-name={}", node.name()),
        format!("wsrep-node-address={address}"),
        format!("wsrep-node-incoming-address={address}:{}", ports.sql),
        format!("wsrep-sst-method={}", state.sst),
        format!("wsrep-sst-receive-address={address}:{receive}"),
        format!("wsrep-provider-options=\"{}\"", provider_options(state, node, own)),
    ];
    Told { server, group, asked: state.options.iter().chain(&node.options).cloned().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_words() {
        for (line, expected) in [
            ("log-bin", "--log-bin"),
            ("sync-binlog=0", "--sync-binlog=0"),
            ("secure-file-priv=", "--secure-file-priv="),
            (" a = b c ", "--a=b c"),
            ("wsrep-provider-options=\"a=1;b='2'\"", "--wsrep-provider-options=a=1;b='2'"),
            ("a='b'", "--a=b"),
            ("a=\"", "--a=\""),
        ] {
            assert_eq!(word(line), expected);
        }
    }
}
