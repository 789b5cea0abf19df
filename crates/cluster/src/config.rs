//! The `my.cnf` of one node: an ordinary Galera configuration plus what keeps many servers on one machine apart.

use crate::disk::Holds;
use crate::node::Node;
use crate::spec::SstMethod;
use crate::state::State;
use std::fmt::Write;

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

/// The provider options of `node`, `own` being what not every kind of node has. What was asked for comes last, so that it
/// wins.
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
    let peers: Vec<String> = state.nodes.iter().map(Node::group_endpoint).collect();
    let Node { address, ports, .. } = node;
    let mut out = String::new();
    // Writing to a String cannot fail.
    let mut line = |text: std::fmt::Arguments<'_>| {
        let _ = writeln!(out, "{text}");
    };
    line(format_args!("# Written by `trireme cluster` at every start of this node; edits are lost."));
    line(format_args!("[mysqld]"));
    line(format_args!("datadir={}", node.data().display()));
    line(format_args!("socket={}", node.socket().display()));
    line(format_args!("pid-file={}", node.pid_file().display()));
    line(format_args!("log-error={}", node.log().display()));
    line(format_args!("bind-address={address}"));
    line(format_args!("port={}", ports.sql));
    line(format_args!("server-id={}", node.id.raw()));
    line(format_args!("secure-file-priv="));
    line(format_args!("skip-name-resolve"));
    line(format_args!("max-connections=300"));
    // A test cluster shares one machine: small caches, no doublewrite of idle pages ahead of time.
    line(format_args!("innodb-buffer-pool-size=64M"));
    line(format_args!("innodb-log-file-size=32M"));
    line(format_args!("innodb-fast-shutdown=1"));
    line(format_args!("performance-schema=OFF"));
    line(format_args!("table-open-cache=400"));
    line(format_args!("binlog-format=ROW"));
    line(format_args!("default-storage-engine=InnoDB"));
    line(format_args!("innodb-autoinc-lock-mode=2"));
    // 1 is the durable default of a stock server; benchmarks override it.
    line(format_args!("innodb-flush-log-at-trx-commit=1"));
    line(format_args!(""));
    if state.plain {
        for option in state.options.iter().chain(&node.options) {
            line(format_args!("{option}"));
        }
        return out;
    }
    line(format_args!("[galera]"));
    line(format_args!("wsrep-on=ON"));
    line(format_args!("wsrep-provider={}", node.provider(&state.provider).display()));
    line(format_args!("wsrep-cluster-name={}", state.name));
    line(format_args!("wsrep-cluster-address=gcomm://{}", peers.join(",")));
    line(format_args!("wsrep-node-name={}", node.name()));
    line(format_args!("wsrep-node-address={address}"));
    line(format_args!("wsrep-node-incoming-address={address}:{}", ports.sql));
    line(format_args!("wsrep-sst-method={}", state.sst));
    line(format_args!("wsrep-sst-auth={SST_USER}:{}", state.sst_password));
    let receive = match state.sst {
        // mysqldump feeds the joiner through its SQL port.
        SstMethod::Mysqldump => ports.sql,
        SstMethod::Rsync | SstMethod::Mariabackup => ports.sst,
    };
    line(format_args!("wsrep-sst-receive-address={address}:{receive}"));
    let mut own = vec![format!("ist.recv_addr={address}:{}", ports.ist)];
    if state.disks.as_ref().is_some_and(|disks| disks.holds == Holds::Log) {
        own.push(format!("gcache.dir={}", node.log_dir().display()));
    }
    line(format_args!("wsrep-provider-options=\"{}\"", provider_options(state, node, own)));
    line(format_args!(""));
    line(format_args!("[mysqld]"));
    for option in state.options.iter().chain(&node.options) {
        line(format_args!("{option}"));
    }
    line(format_args!(""));
    line(format_args!("[sst]"));
    line(format_args!("sockopt=,reuseaddr"));
    out
}
