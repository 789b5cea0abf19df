//! Crashes at bad moments: in the midst of a statement that changes schemas, of a full copy, of the recovery itself.
//!
//! `ROUNDS`, `METHOD` (of full copies) and `SEED` in the environment.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use trireme_cluster::{
    Cluster, Dice, Disks, Endpoint, LogCursor, NodeId, START_LINES, Spec, SstMethod, Start, Stop, disks_available,
};

use crate::support::{
    Bed, Load, assert_all_there, assert_equal, assert_no_copy, await_status, client_in_d, dice, eventually, fill,
    from_environment, handed_on, missing, node, schema, start_all,
};

const NODES: u8 = 3;

fn all() -> Vec<NodeId> {
    (1..=NODES).map(node).collect()
}

/// Every node creates and alters tables; then all servers are killed, and later one. Statements that were cut off on some nodes are
/// settled by a copy from one that is past them; cut off on all, one node executes it again.
pub fn killed_in_the_midst_of_ddl(bed: &Bed) {
    let mut dice = dice("killed_in_the_midst_of_ddl");
    let mut spec = bed.spec();
    // Tables without transactions replicate statement by statement.
    spec = spec.option("wsrep_mode=REPLICATE_ARIA");
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    fill(&cluster, 10_000); // so that an ALTER takes a while
    client_in_d(&cluster, 1).run("CREATE TABLE notes (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=Aria");
    let mut created = BTreeSet::new();
    let mut again = 0;
    for round in 1..=from_environment("ROUNDS").unwrap_or(2u64) {
        let when = format!("round {round}, SEED={}", dice.seed);
        let changes = Changes::start(&cluster.endpoints(), round);
        changes.await_progress(3 + dice.below(20));
        cluster.kill_all().unwrap();
        created.extend(changes.finish());
        let mut order = all();
        dice.shuffle(&mut order);
        let logs = start_all(&mut cluster, &order, &when);
        let lines = || logs.iter().flat_map(|(_, lines)| lines);
        again += lines().filter(|line| line.contains("cut off on all members: this one goes on")).count();
        assert_created(&cluster, &created, &when);

        // One alone: it copies, unless it was between two statements.
        let changes = Changes::start(&cluster.endpoints(), 1000 + round);
        changes.await_progress(3 + dice.below(10));
        let one = node(1 + dice.below(u64::from(NODES)) as u8);
        cluster.kill(one).unwrap();
        changes.await_progress(3);
        created.extend(changes.finish());
        start_all(&mut cluster, &[one], &when);
        assert_created(&cluster, &created, &when);
    }
    println!("killed_in_the_midst_of_ddl: {} tables, {again} times on all members at once", created.len());
}

fn assert_created(cluster: &Cluster, created: &BTreeSet<String>, when: &str) {
    for n in 1..=NODES {
        let tables: BTreeSet<String> =
            client_in_d(cluster, n).run("SHOW TABLES").texts().into_iter().flatten().collect();
        let gone: Vec<&String> = created.difference(&tables).collect();
        assert!(gone.is_empty(), "{when}: node{n} lost acknowledged tables: {gone:?}");
    }
    assert_equal(cluster);
}

/// Creates tables, alters a large one and writes to one without transactions, on all nodes at a time. The names of the tables whose
/// creation was acknowledged are remembered.
struct Changes {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    threads: Vec<JoinHandle<BTreeSet<String>>>,
}

impl Changes {
    fn start(endpoints: &[Endpoint], round: u64) -> Changes {
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicU64::new(0));
        let threads = endpoints
            .iter()
            .map(|endpoint| {
                let (endpoint, stop, done) = (endpoint.clone(), stop.clone(), done.clone());
                std::thread::spawn(move || change_schemas(&endpoint, round, &stop, &done))
            })
            .collect();
        Changes { stop, done, threads }
    }

    fn await_progress(&self, statements: u64) {
        let target = self.done.load(Ordering::Relaxed) + statements;
        eventually("schemas change", || {
            let done = self.done.load(Ordering::Relaxed);
            if done >= target { Ok(()) } else { Err(format!("{done} of {target}")) }
        });
    }

    fn finish(self) -> BTreeSet<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().flat_map(|thread| handed_on(thread.join())).collect()
    }
}

/// Until told to stop, or the server is gone.
fn change_schemas(endpoint: &Endpoint, round: u64, stop: &AtomicBool, done: &AtomicU64) -> BTreeSet<String> {
    let mut created = BTreeSet::new();
    let Ok(mut session) = endpoint.session_in(Some("d")) else { return created };
    for n in 0.. {
        let name = format!("t{round}_{}_{n}", endpoint.node);
        let statements = [
            format!("CREATE TABLE {name} (id INT PRIMARY KEY, v INT)"),
            format!("INSERT INTO notes (v) VALUES ({n})"),
            "ALTER TABLE bulk FORCE".to_owned(),
            format!("ALTER TABLE {name} ADD COLUMN w INT DEFAULT 7, ADD INDEX (v)"),
        ];
        for statement in statements {
            if stop.load(Ordering::Relaxed) {
                return created;
            }
            match session.query(&statement) {
                Ok(_) => {
                    done.fetch_add(1, Ordering::Relaxed);
                    if statement.starts_with("CREATE") {
                        created.insert(name.clone());
                    }
                }
                // Two statements at a time on one table: the server lets one fail.
                Err(error) if error.code().is_some() => {}
                Err(_) => return created,
            }
        }
    }
    created
}

/// The donor dies while it copies, then the joiner; both come back, with plain starts.
pub fn donor_and_joiner_killed_in_mid_transfer(bed: &Bed) {
    let mut spec = bed.spec();
    spec.sst = from_environment("METHOD").unwrap_or(SstMethod::Mariabackup);
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    fill(&cluster, 30_000);
    let load = Load::start(&cluster.endpoints()[..2]);
    // Node 3 comes back with nothing that counts.
    cluster.kill(node(3)).unwrap();
    let _ = std::fs::remove_file(cluster.node(node(3)).unwrap().data().join("grastate.dat"));
    cluster.launch(node(3), Start::Plain).unwrap();
    let donor = eventually("a donor is at work", || {
        let states = cluster.status();
        let donor = states.iter().find(|status| status.state.starts_with("Donor"));
        donor
            .map(|status| status.node)
            .ok_or_else(|| format!("{:?}", states.iter().map(|s| &s.state).collect::<Vec<_>>()))
    });
    cluster.kill(donor).unwrap();
    // Nothing useful will come any more. (Where the copy was complete by then, the joiner goes on.)
    cluster.stop(node(3), Stop::Kill).unwrap();
    // One of three is left, which is no majority, until the donor returns.
    cluster.start(donor, Start::Plain, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    load.await_progress(20);
    cluster.start(node(3), Start::Plain, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    load.await_progress(20);
    let acknowledged = load.finish();
    for n in 1..=NODES {
        await_status(&cluster, n, "wsrep_cluster_size", "3");
        assert_all_there(&cluster, n, &acknowledged);
    }
    assert_equal(&cluster);
}

/// A server logs this in the end, when it is synced with the group.
const BACK: &str = "Member";

pub fn killed_again_while_recovering(bed: &Bed) {
    let all_at_once = [("killed", all_die as Strike)];
    struck_again_while_recovering(bed, "killed_again_while_recovering", &bed.spec(), &all_at_once);
}

/// The same without power: what the first part of a start wrote need not be on any disk when the next one begins. Before half of these cuts the
/// servers were killed, so that the start reads what only the page cache has, and the cut takes away.
pub fn without_power_again_while_recovering(bed: &Bed) {
    if let Err(error) = disks_available() {
        return bed.skip(error);
    }
    let mut spec = bed.spec();
    spec.disks = Some(Disks::of_data());
    let ways = [("without power", all_dark as Strike), ("killed", all_die)];
    struck_again_while_recovering(bed, "without_power_again_while_recovering", &spec, &ways);
}

type Strike = fn(&mut Cluster) -> trireme_cluster::Result<()>;

fn all_die(cluster: &mut Cluster) -> trireme_cluster::Result<()> {
    cluster.kill_all()
}

fn all_dark(cluster: &mut Cluster) -> trireme_cluster::Result<()> {
    cluster.cut_power(&all())
}

/// All are struck while they write, in each of the `ways` in turn, and again at each moment of the way back: there in the first of them.
fn struck_again_while_recovering(bed: &Bed, name: &str, spec: &Spec, ways: &[(&str, Strike)]) {
    let mut dice = dice(name);
    let mut spec = spec.clone();
    spec.node_options.insert(node(2), ["log-bin", "log-slave-updates", "sync-binlog=0"].map(str::to_owned).to_vec());
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    let mut kept = Load::start(&cluster.endpoints()).finish();
    let again = ways[0].1;
    for round in 1..=from_environment("ROUNDS").unwrap_or(1u64) {
        for (n, (way, first)) in ways.iter().enumerate() {
            let when = format!("round {round}, {way}, SEED={}", dice.seed);
            let load = |of: u8| Load::resume(&cluster.endpoints(), &format!("r{round}w{n}l{of}"));
            let loads: Vec<Load> = (0..3).map(load).collect();
            loads[0].await_progress(100 + dice.below(500));
            first(&mut cluster).unwrap_or_else(|error| panic!("{when}: {error}"));
            kept.extend(loads.into_iter().flat_map(Load::finish));
            for moment in START_LINES.into_iter().chain([BACK]) {
                start_until(&mut cluster, moment, &mut dice, &when);
                again(&mut cluster).unwrap_or_else(|error| panic!("{when}: {error}"));
            }
            let mut order = all();
            dice.shuffle(&mut order);
            start_all(&mut cluster, &order, &when);
            for n in 1..=NODES {
                let gone = missing(&cluster, n, &kept);
                assert!(gone.is_empty(), "{when}: node{n} lost {} of {} rows", gone.len(), kept.len());
            }
            assert_equal(&cluster);
        }
    }
}

/// Starts all, until one of them comes by the moment.
fn start_until(cluster: &mut Cluster, moment: &str, dice: &mut Dice, when: &str) {
    let watched = node(1 + dice.below(u64::from(NODES)) as u8);
    let mut log = LogCursor::at_end(&cluster.node(watched).unwrap().log());
    for id in all() {
        cluster.launch(id, Start::Plain).unwrap_or_else(|error| panic!("{when}: {error}"));
    }
    let mut seen = Vec::new();
    // Not every start comes by every moment: one that ended well is as good.
    eventually(&format!("{when}: {watched} says `{moment}`"), || {
        seen.extend(log.lines());
        let over = |line: &String| line.contains(moment) || line.contains("ready for connections");
        if seen.iter().any(over) { Ok(()) } else { Err(seen.last().cloned().unwrap_or_default()) }
    });
}

/// With mysqldump the engine is open before the provider connects, and is asked for its position itself.
pub fn an_engine_that_is_open_first_recovers_too(bed: &Bed) {
    let mut spec = bed.spec();
    spec.sst = SstMethod::Mysqldump;
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    let load = Load::start(&cluster.endpoints());
    load.await_progress(200);
    cluster.kill_all().unwrap();
    let mut kept = load.finish();
    let when = "all were killed";
    assert_no_copy(&start_all(&mut cluster, &all(), when), when);

    let load = Load::resume(&cluster.endpoints(), "one");
    load.await_progress(100);
    cluster.kill(node(2)).unwrap();
    load.await_progress(100);
    let when = "one was killed";
    assert_no_copy(&start_all(&mut cluster, &[node(2)], when), when);
    kept.extend(load.finish());
    for n in 1..=NODES {
        assert_all_there(&cluster, n, &kept);
    }
    assert_equal(&cluster);
}

/// A server is told to stop while it waits for the run that reads its engine's position. No answer is no word on the data: the next start goes
/// on with them.
pub fn told_to_stop_while_recovering(bed: &Bed) {
    let mut cluster = bed.up(&bed.spec());
    schema(&cluster, 1);
    let load = Load::start(&cluster.endpoints());
    load.await_progress(100);
    cluster.kill(node(3)).unwrap();
    for other in [1, 2] {
        await_status(&cluster, other, "wsrep_cluster_size", "2");
    }
    let mut log = LogCursor::at_end(&cluster.node(node(3)).unwrap().log());
    cluster.launch(node(3), Start::Plain).unwrap();
    let server = cluster.node(node(3)).unwrap().pid.unwrap();
    eventually("the run is there, and held", || match recovery_run_of(server) {
        Some(run) => kill(Pid::from_raw(run), Signal::SIGSTOP).map_err(|error| error.to_string()),
        None => Err("no run".to_owned()),
    });
    cluster.stop(node(3), Stop::Graceful).unwrap();
    let when = "told to stop in the run";
    assert_no_copy(&[(node(3), log.lines())], when);
    assert_no_copy(&start_all(&mut cluster, &[node(3)], when), when);
    let kept = load.finish();
    for n in 1..=NODES {
        assert_all_there(&cluster, n, &kept);
    }
    assert_equal(&cluster);
}

fn recovery_run_of(server: i32) -> Option<i32> {
    let tasks = fs::read_dir(format!("/proc/{server}/task")).ok()?.flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<i32> =
        lists.flat_map(|list| list.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect();
    let reads_position = |pid: &i32| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).any(|word| word == b"--wsrep-recover"))
    };
    children.into_iter().find(reads_position)
}
