//! Attacks that were carried out against running clusters, one after the other. Floods are in `floods.rs`.

use crate::arbitrator;
use crate::attacker::{Answer, SECOND, answer, confirm, dial, dial_and_await, hello, source, stranger};
use crate::support::{
    Bed, Client, Load, PATIENCE, assert_all_there, assert_equal, await_status, bounded, client, client_in_d, node,
    schema,
};
use std::fs::{DirEntry, File};
use std::io::Write;
use std::net::{SocketAddrV4, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use trireme_cluster::{Cancel, Cluster, LogCursor, Spec, Start, Stop, print_end_of, until};
use trireme_types::{Incarnation, Member};

/// Everything that a node does of its own accord it does several times in this.
const A_WHILE: Duration = Duration::from_secs(4);
/// A user whom nothing of a cluster belongs to.
const NOBODY: u32 = 65534;

fn target(cluster: &Cluster, n: u8) -> SocketAddrV4 {
    cluster.node(node(n)).unwrap().group_endpoint().parse().expect("an address")
}

/// An arbitrator of ours in other hands: `options` and `more` are what its owner gives it.
fn foreign_arbitrator(bed: &Bed, spec: &Spec, cluster: &Cluster, options: &str, more: &[&str]) -> Option<Child> {
    let command = arbitrator::command(bed)?;
    let port = spec.base_port + 90;
    let dir = spec.dir.join("foreign");
    let log = File::create(foreign_log(spec)).expect("the cluster's directory takes files");
    let child = Command::new(command)
        .args(["arbitrate", "--name", "foreign", "--group", &spec.name])
        .args(["--address", &format!("gcomm://{}", target(cluster, 1))])
        .args(["--workdir", &dir.display().to_string()])
        .args([
            "--options",
            &format!(
                "base_host=127.0.0.99;gmcast.listen_addr=tcp://127.0.0.99:{port};pc.wait_prim_timeout=PT4S;{options}"
            ),
        ])
        .args(more)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    Some(child.expect("it can be run"))
}

fn foreign_log(spec: &Spec) -> PathBuf {
    spec.dir.join("foreign.log")
}

/// Of a foreign arbitrator that ends by itself.
fn exit_code(spec: &Spec, mut child: Child) -> Option<i32> {
    let ended = until("the arbitrator ends", PATIENCE, &Cancel::default(), || {
        let status = child.try_wait().expect("nobody else waits for it");
        Ok(status.ok_or_else(|| format!("its threads are {}", threads(child.id()))))
    });
    match ended {
        Ok(status) => status.code(),
        Err(error) => {
            child.kill().unwrap();
            child.wait().unwrap();
            print_end_of(&foreign_log(spec));
            panic!("{error}");
        }
    }
}

/// The name of each thread, and what in the kernel it waits for.
fn threads(pid: u32) -> String {
    let read = |task: &DirEntry, file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let told: Vec<String> =
        tasks.map(|task| format!("{} in {}", read(&task, "comm").trim(), read(&task, "wchan"))).collect();
    told.join(", ")
}

/// Against a group with a secret, by those who have none.
pub fn strangers_get_nothing_from_a_group_with_a_secret(bed: &Bed) {
    let spec = bed.spec();
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    client_in_d(&cluster, 1).all(&["CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)"]);
    let mut logs: Vec<LogCursor> = (1..=3).map(|n| LogCursor::at_end(&cluster.node(node(n)).unwrap().log())).collect();

    // Join, vote, read. Not a byte is said to one that speaks in clear text: no name, no id, no incarnation.
    for n in 1..=3 {
        let mut stream = dial(source(u64::from(n)), target(&cluster, n)).unwrap();
        stream.write_all(&hello(&spec.name, &stranger(1), 1)).unwrap();
        assert!(matches!(answer(&mut stream), Answer::Silence), "node{n} answers a stranger");
    }
    // The whole database, to an address of the stranger's, with our own command.
    let wanted = TcpListener::bind(("127.0.0.99", spec.base_port + 91)).unwrap();
    wanted.set_nonblocking(true).unwrap();
    let copy = format!("rsync:{}/rsync_sst", wanted.local_addr().unwrap());
    for more in [&["--sst", &copy][..], &[]] {
        if let Some(child) = foreign_arbitrator(bed, &spec, &cluster, "", more) {
            assert_eq!(exit_code(&spec, child), Some(1), "{more:?}: it should have failed");
        }
    }
    assert!(wanted.accept().is_err(), "somebody came to bring a copy");
    for (n, log) in (1..).zip(&mut logs) {
        let seen = log.lines().join("\n");
        assert!(!seen.contains("connection established") && !seen.contains("foreign"), "node{n}: {seen}");
        await_status(&cluster, n, "wsrep_cluster_size", "3");
        await_status(&cluster, n, "wsrep_local_state_comment", "Synced");
    }
    others_of_this_machine_get_nothing(&cluster);
    a_prepared_directory_is_not_obeyed(bed, &cluster);
    assert_equal(&cluster);
    cluster.down(Stop::Graceful, true).unwrap();
}

/// Other users of the machine reach neither a server of the trial cluster, whose root has no password, nor its data.
fn others_of_this_machine_get_nothing(cluster: &Cluster) {
    if !nix::unistd::Uid::effective().is_root() {
        return println!("  without root nobody else can be played");
    }
    let one = cluster.node(node(1)).unwrap();
    for path in [one.socket(), one.data(), cluster.dir().join("cluster.json"), cluster.dir().join("secret")] {
        assert!(path.exists(), "{}", path.display());
        let seen = as_nobody("test").arg("-e").arg(&path).status().unwrap();
        assert_eq!(seen.code(), Some(1), "{} can be reached by everybody", path.display());
    }
    let said =
        as_nobody("mariadb").arg("-uroot").arg("-S").arg(one.socket()).args(["-e", "SELECT 1"]).output().unwrap();
    assert!(said.status.code() == Some(1) && said.stdout.is_empty(), "{said:?}");
}

fn as_nobody(program: &str) -> Command {
    let mut command = bounded("setpriv");
    command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")]).arg("--clear-groups").arg(program);
    command
}

/// The state file of a trial cluster says what is run and removed. One that another user made is believed by no command, least of all when root types it.
fn a_prepared_directory_is_not_obeyed(bed: &Bed, cluster: &Cluster) {
    let Some(command) = arbitrator::command(bed).filter(|_| nix::unistd::Uid::effective().is_root()) else { return };
    let prepared = cluster.dir().with_extension("prepared");
    let precious = cluster.dir().with_extension("precious");
    let _ = std::fs::remove_dir_all(&prepared);
    for dir in [&prepared, &precious] {
        std::fs::create_dir_all(dir.join("node1")).unwrap();
    }
    let text = std::fs::read_to_string(cluster.dir().join("cluster.json")).unwrap();
    let here = |path: &std::path::Path| path.display().to_string();
    let state = prepared.join("cluster.json");
    std::fs::write(&state, text.replace(&here(cluster.dir()), &here(&precious))).unwrap();
    for path in [&state, &prepared] {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    for action in [&["down"][..], &["restart", "1"], &["stop", "1"], &["up", "-n", "1"]] {
        let said = bounded(&command).arg("cluster").args(action).arg("--dir").arg(&prepared).output().unwrap();
        let why = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(!said.status.success() && why.contains(&here(&prepared)), "{action:?}: {why}");
        assert!(precious.join("node1").is_dir() && state.is_file(), "{action:?} has removed something");
    }
    for dir in [prepared, precious] {
        std::fs::remove_dir_all(dir).unwrap();
    }
}

/// Against a group in clear text, which lets in everybody who keeps to the protocol: what even those must not get.
pub fn attacks_on_a_group_in_clear_text(bed: &Bed) {
    let mut spec = bed.spec();
    spec.secret = false;
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    name_is_not_told(&spec, &cluster);
    nobody_dials_for_strangers(&spec, &cluster);
    an_identity_is_not_taken(&spec, &mut cluster);
    a_heavy_newcomer_takes_no_majority(bed, &spec, &cluster);
    assert_equal(&cluster);
}

fn name_is_not_told(spec: &Spec, cluster: &Cluster) {
    let mut stream = dial_and_await(source(1), target(cluster, 1)).unwrap();
    stream.write_all(&hello("a guess", &stranger(1), 1)).unwrap();
    match answer(&mut stream) {
        Answer::Refused(text) => assert!(text.contains("a guess") && !text.contains(&spec.name), "{text}"),
        other => panic!("a guess at the name: {other:?}"),
    }
}

/// By the addresses that it claims to have a stranger would make nodes connect to, and look up, whatever it likes.
fn nobody_dials_for_strangers(spec: &Spec, cluster: &Cluster) {
    let trap = TcpListener::bind(("127.0.0.99", spec.base_port + 91)).unwrap();
    trap.set_nonblocking(true).unwrap();
    let held: Vec<_> = (1..=3)
        .map(|n| {
            let member = Member { address: trap.local_addr().unwrap().to_string(), ..stranger(u64::from(n)) };
            let mut stream = dial_and_await(source(2), target(cluster, n)).unwrap();
            stream.write_all(&[hello(&spec.name, &member, 5), confirm(9)].concat()).unwrap();
            assert!(matches!(answer(&mut stream), Answer::Hello(_)), "node{n} does not speak with it");
            stream
        })
        .collect();
    std::thread::sleep(A_WHILE);
    assert!(trap.accept().is_err(), "a node connects to where a stranger says");
    drop(held);
}

/// Somebody else says to the others what a node tells of itself, as a process of it that is newer than all.
fn an_identity_is_not_taken(spec: &Spec, cluster: &mut Cluster) {
    let mut stream = dial_and_await(source(3), target(cluster, 3)).unwrap();
    stream.write_all(&hello(&spec.name, &stranger(3), 6)).unwrap();
    let Answer::Hello(victim) = answer(&mut stream) else { panic!("node3 does not say who it is") };
    drop(stream);
    let mut logs: Vec<LogCursor> = (1..=2).map(|n| LogCursor::at_end(&cluster.node(node(n)).unwrap().log())).collect();
    let load = Load::start(&cluster.endpoints());
    for (attempt, incarnation) in (0..).zip([u32::MAX, victim.incarnation.0 + 1, victim.incarnation.0]) {
        for n in 1..=2 {
            let thief = Member { incarnation: Incarnation(incarnation), ..victim.clone() };
            let mut stream = dial(source(4), target(cluster, n)).unwrap();
            stream.write_all(&[hello(&spec.name, &thief, 100 + attempt), confirm(1 << 62)].concat()).unwrap();
            let begun = Instant::now();
            // The answer to a hello and a proposal to agree, if any: it is refused, or hung up on.
            while matches!(answer(&mut stream), Answer::Hello(_) | Answer::Goes) {
                assert!(begun.elapsed() < A_WHILE, "node{n} goes on speaking with a thief");
            }
        }
    }
    load.await_progress(30);
    for (n, log) in (1..=2).zip(&mut logs) {
        let seen = log.lines().join("\n");
        assert!(!seen.contains("takes over") && !seen.contains("connection lost"), "node{n}: {seen}");
        await_status(cluster, n, "wsrep_cluster_size", "3");
    }
    // Its own next process is let in at once.
    cluster.stop(node(3), Stop::Graceful).unwrap();
    let begun = Instant::now();
    cluster.start(node(3), Start::Plain, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    println!("  the one whose name was wanted is back after {:?}", begun.elapsed());
    let acknowledged = load.finish();
    (1..=3).for_each(|n| assert_all_there(cluster, n, &acknowledged));
}

/// It joins as a member with a vote, says that it weighs more than all others together, and is gone.
fn a_heavy_newcomer_takes_no_majority(bed: &Bed, spec: &Spec, cluster: &Cluster) {
    let Some(mut child) = foreign_arbitrator(bed, spec, cluster, "pc.weight=255", &[]) else { return };
    await_status(cluster, 1, "wsrep_cluster_size", "4");
    await_weight_above(cluster, 3);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut writer: Client = client_in_d(cluster, 1);
    let begun = Instant::now();
    writer.run("CREATE TABLE after_the_heavy_one (id INT PRIMARY KEY)");
    assert!(begun.elapsed() < 10 * SECOND, "the first commit took {:?}", begun.elapsed());
    for n in 1..=3 {
        await_status(cluster, n, "wsrep_cluster_size", "3");
        await_status(cluster, n, "wsrep_cluster_status", "Primary");
    }
}

/// The newcomer has its vote.
fn await_weight_above(cluster: &Cluster, weight: i64) {
    crate::support::eventually("the newcomer votes", || {
        let voters = client(cluster, 1).text(
            "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'wsrep_cluster_weight'",
        );
        if voters.parse::<i64>().expect("a number") > weight { Ok(()) } else { Err(voters) }
    });
}
