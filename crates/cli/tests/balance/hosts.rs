//! The lines that `trireme hosts` prints, given to each connector as they stand there. It runs with the tests of real
//! servers; a connector that is not installed is skipped with a reason.

use std::path::Path;
use std::process::{Command, Output};

use trireme_cluster::NodeId;

use crate::clients::{go_program, jar_of_connector_j, printed, python_with_connector, python_with_pymysql, source};
use crate::servers::Bed;

/// Words that run a connector; the strings come behind them.
type Connector = (&'static str, Vec<String>);

fn connectors(bed: &Bed) -> Vec<Connector> {
    let mut found = Vec::new();
    let program = bed.place.path("hosts");
    let flags = Command::new("mariadb_config").args(["--cflags", "--libs"]).output().map(|output| output.stdout);
    match flags.ok().and_then(|flags| String::from_utf8(flags).ok()) {
        Some(flags) => {
            let mut compile = Command::new("cc");
            compile.args(["-o", &program, &source("hosts.c")]).args(flags.split_whitespace());
            printed(&compile.output().unwrap());
            found.push(("c", vec![program]));
        }
        None => eprintln!("skipped: apt-get install gcc libmariadb-dev"),
    }
    match python_with_pymysql() {
        Some(python) => found.push(("python", vec![python.to_owned(), source("hosts.py")])),
        None => eprintln!("skipped: apt-get install python3-pymysql"),
    }
    if let Some(python) = python_with_connector(&bed.place) {
        found.push(("python", vec![python, source("hosts_connector.py")]));
    }
    if let Some(program) = go_program(&bed.place, "hosts.go") {
        found.push(("go", vec![program]));
    }
    if let Some(jar) = jar_of_connector_j() {
        found.push(("jdbc", vec!["java".into(), "-cp".into(), jar.into(), source("Hosts.java")]));
    }
    found
}

#[test]
#[ignore = "starts real servers"]
fn what_is_printed_leads_each_connector_to_a_server() {
    let mut bed = Bed::up(9);
    let id = bed.cluster.ids()[0];
    for sql in [
        "CREATE USER app@'127.%' IDENTIFIED VIA mysql_native_password USING PASSWORD('secret')",
        "GRANT ALL ON d.* TO app@'127.%'",
    ] {
        bed.cluster.sql(id, sql).unwrap();
    }
    let connectors = connectors(&bed);
    assert!(!connectors.is_empty(), "nothing is tried: no connector is installed");
    assert!(Path::new(&source("hosts.c")).exists());
    let strings = |format: &str, node: NodeId| {
        let node = bed.cluster.node(node).unwrap();
        let at = format!("{}:{}", node.address, node.ports.sql);
        let mut command = Command::new(env!("CARGO_BIN_EXE_trireme"));
        command.args(["hosts", "--nodes", &at, "--database", "d", "--format", format]);
        let output: Output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    let lead = |words: &[String], strings: &str| {
        let output = Command::new(&words[0]).args(&words[1..]).arg(strings).output().unwrap();
        printed(&output).split_whitespace().map(|name| name.parse().unwrap()).collect::<Vec<NodeId>>()
    };
    // The writer comes first.
    let plain = strings("plain", id);
    let first = plain.lines().next().unwrap().to_owned();
    let is_at = |node: &&trireme_cluster::Node| format!("{}:{}", node.address, node.ports.sql) == first;
    let writer = bed.cluster.nodes().iter().find(is_at).unwrap().id;
    let role = bed.cluster.sql(writer, "SHOW STATUS LIKE 'wsrep_trireme_role'").unwrap().rows[0][1].clone();
    assert_eq!(role.as_deref(), Some(&b"sequencer"[..]));
    let all: Vec<(&Connector, String)> = connectors.iter().map(|c| (c, strings(c.0, id))).collect();
    for ((format, words), strings) in &all {
        let came_to = lead(words, strings);
        assert_eq!(came_to.first(), Some(&writer), "{format}: {strings}");
        // The line for reads leads elsewhere.
        assert!(came_to[1..].iter().all(|node| *node != writer), "{format}: {strings}");
    }
    // The same strings, when the first one of them is gone.
    bed.cluster.kill(writer).unwrap();
    let others: Vec<NodeId> = bed.cluster.ids().into_iter().filter(|id| *id != writer).collect();
    for ((format, words), strings) in &all {
        let came_to = lead(words, strings);
        assert!(!came_to.is_empty(), "{format}: {strings}");
        assert!(came_to.iter().all(|node| others.contains(node)), "{format}: {strings}: {came_to:?}");
    }
    println!("{}", connectors.iter().map(|(format, _)| *format).collect::<Vec<_>>().join(" "));
}
