//! The needs of every scenario: a cluster of its own, statements that must succeed, and a checked load.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trireme_cluster::{
    Cancel, Cluster, ClusterGuard, Dice, Endpoint, LogCursor, NodeId, Session, Settings, Spec, Start, TableSums,
    namespaces_available, print_end_of, until, wait_equal,
};

/// For anything that a healthy cluster does in seconds.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Ports of the first scenario, unless `$FIRST_PORT` says otherwise; each takes 100 (ten nodes).
const FIRST_PORT: u16 = 21400;

/// Where one scenario runs.
pub struct Bed {
    name: String,
    provider: PathBuf,
    base_port: u16,
    settings: Settings,
    skipped: RefCell<Option<String>>,
}

impl Bed {
    /// Is this a comparison with Galera's library? Some scenarios then only count.
    pub fn is_galera(&self) -> bool {
        self.provider.file_name().is_some_and(|name| name.to_string_lossy().contains("galera"))
    }

    pub fn new(name: &str, provider: &Path, index: usize, settings: Settings) -> Bed {
        let first = from_environment("FIRST_PORT").unwrap_or(FIRST_PORT);
        let base_port = first + 100 * u16::try_from(index).expect("few scenarios");
        let skipped = RefCell::new(None);
        Bed { name: name.to_owned(), provider: provider.to_owned(), base_port, settings, skipped }
    }

    /// Says why the scenario cannot run here; it is then reported as ignored.
    pub fn skip(&self, why: impl ToString) {
        *self.skipped.borrow_mut() = Some(why.to_string());
    }

    pub fn skipped(&self) -> Option<String> {
        self.skipped.borrow().clone()
    }

    pub fn provider(&self) -> &Path {
        &self.provider
    }

    /// Three nodes; commits need not reach the disk, as nothing here cuts the power.
    pub fn spec(&self) -> Spec {
        let dir = PathBuf::from(format!("/var/tmp/trireme-test-{}", self.base_port));
        let mut spec = Spec::new(&self.provider, dir).option("innodb_flush_log_at_trx_commit=0");
        spec.base_port = self.base_port;
        spec.settings = self.settings;
        spec.name = format!("test-{}", self.base_port);
        spec
    }

    /// The same, with a network for each node, so that it can be cut off. `None`, and the scenario is skipped, where there are none.
    pub fn spec_with_networks(&self) -> Option<Spec> {
        if let Err(error) = namespaces_available() {
            self.skip(error);
            return None;
        }
        let mut spec = self.spec();
        spec.netns = true;
        Some(spec)
    }

    /// Starts the cluster or fails the scenario, with what the nodes logged.
    pub fn up(&self, spec: &Spec) -> ClusterGuard {
        match ClusterGuard::up(spec, &mut |_| {}) {
            Ok(cluster) => cluster,
            Err(error) => {
                for n in 1..=spec.nodes {
                    print_end_of(&spec.dir.join(format!("node{n}/error.log")));
                }
                panic!("{}: {error}", self.name);
            }
        }
    }
}

/// A program that is ended when it takes longer than anything here may.
pub fn bounded(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.arg("--kill-after=5").arg(PATIENCE.as_secs().to_string()).arg(program);
    command
}

/// A value given in an environment variable; panics on anything else.
pub fn from_environment<N: FromStr>(name: &str) -> Option<N> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} does not fit")))
}

pub fn node(n: u8) -> NodeId {
    NodeId::new(n).expect("scenarios use few nodes")
}

/// Statements that must succeed, on one node, in one session.
pub struct Client {
    pub session: Session,
    pub node: NodeId,
}

impl Client {
    pub fn run(&mut self, sql: &str) -> trireme_cluster::Answer {
        self.session.query(sql).unwrap_or_else(|error| panic!("{}: {}: {error}", self.node, shorten(sql)))
    }
    pub fn all(&mut self, statements: &[&str]) {
        for statement in statements {
            self.run(statement);
        }
    }
    /// First cell as text; panics on an empty answer.
    pub fn text(&mut self, sql: &str) -> String {
        self.run(sql).text().unwrap_or_else(|| panic!("{}: {}: no value", self.node, shorten(sql)))
    }
    pub fn number(&mut self, sql: &str) -> i64 {
        let text = self.text(sql);
        text.parse().unwrap_or_else(|_| panic!("{}: {}: {text} is no number", self.node, shorten(sql)))
    }
    /// The server's error number; panics if the statement succeeds or the connection fails.
    pub fn refused(&mut self, sql: &str) -> u16 {
        match self.session.query(sql) {
            Ok(_) => panic!("{}: {} succeeded", self.node, shorten(sql)),
            Err(error) => error.code().unwrap_or_else(|| panic!("{}: {}: {error}", self.node, shorten(sql))),
        }
    }
}

fn shorten(sql: &str) -> String {
    sql.chars().take(120).collect()
}

pub fn client(cluster: &Cluster, n: u8) -> Client {
    client_of(&cluster.endpoint(node(n)).expect("node exists"), None)
}

/// The same in schema `d`, which [`schema`] creates; its reads wait for everything ordered before them.
pub fn client_in_d(cluster: &Cluster, n: u8) -> Client {
    let mut client = client_of(&cluster.endpoint(node(n)).expect("node exists"), Some("d"));
    client.run("SET SESSION wsrep_sync_wait = 15");
    client
}

fn client_of(endpoint: &Endpoint, database: Option<&str>) -> Client {
    let session = endpoint.session_in(database).unwrap_or_else(|error| panic!("{error}"));
    Client { session, node: endpoint.node }
}

/// Creates schema `d` through node `n` and waits until every running node has it.
pub fn schema(cluster: &Cluster, n: u8) {
    client(cluster, n).run("CREATE DATABASE d");
    for endpoint in cluster.endpoints() {
        eventually(&format!("{} has schema d", endpoint.node), || {
            let mut session = endpoint.session().map_err(|e| e.to_string())?;
            let found = session.query("SHOW DATABASES LIKE 'd'").map_err(|e| e.to_string())?;
            if found.rows.is_empty() { Err("not there".to_owned()) } else { Ok(()) }
        });
    }
}

/// A table `d.bulk` of so many kilobytes: enough that a transfer takes a while, little enough for a small machine.
pub fn fill(cluster: &Cluster, rows: u32) {
    let mut client = client_in_d(cluster, 1);
    client.run("CREATE TABLE bulk (id INT PRIMARY KEY, pad VARBINARY(1000))");
    client.run(&format!("INSERT INTO bulk SELECT seq, REPEAT(CHAR(65 + seq % 26), 1000) FROM seq_1_to_{rows}"));
}

/// The value that a thread gave; its panic goes on as this thread's.
pub fn handed_on<T>(ended: std::thread::Result<T>) -> T {
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Waits until `look` succeeds.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    until(what, PATIENCE, &Cancel::default(), || Ok(look())).unwrap_or_else(|error| panic!("{error}"))
}

/// Waits until all running nodes hold the same data, and that it is more than nothing.
pub fn assert_equal(cluster: &Cluster) -> TableSums {
    let sums = wait_equal(&cluster.endpoints(), PATIENCE).unwrap_or_else(|error| panic!("{error}"));
    assert!(!sums.is_empty(), "no tables to compare");
    sums
}

/// Waits until a node reports a value of a status variable.
pub fn await_status(cluster: &Cluster, n: u8, variable: &str, wanted: &str) {
    eventually(&format!("node{n}: {variable} = {wanted}"), || {
        let status = trireme_cluster::sample(cluster.node(node(n)).expect("node exists"));
        match status.variables.get(variable) {
            Some(value) if value == wanted => Ok(()),
            Some(value) => Err(format!("{variable} = {value}")),
            None => Err(format!("state {}", status.state)),
        }
    });
}

/// A status variable of a node; `wsrep_trireme_…` need `repl.status_extended`.
pub fn status_of(cluster: &Cluster, n: u8, variable: &str) -> Option<String> {
    trireme_cluster::sample(cluster.node(node(n)).expect("node exists")).variables.remove(variable)
}

/// The history that a node is in.
pub fn history(cluster: &Cluster, n: u8) -> String {
    status_of(cluster, n, "wsrep_cluster_state_uuid").expect("the node answers")
}

/// How a node's log is written, where `repl.status_extended` is on.
pub fn log_io_of(cluster: &Cluster, n: u8) -> Option<String> {
    status_of(cluster, n, "wsrep_trireme_log_io")
}

/// Inserts on several nodes, one thread each, remembering every acknowledged row. Errors of the server and broken
/// connections are expected during faults: the thread goes on with the next row, since it cannot know the outcome.
pub struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    errors: Arc<AtomicU64>,
    threads: Vec<JoinHandle<BTreeSet<String>>>,
}

impl Load {
    /// Creates the table `d.load_rows` through the first endpoint.
    pub fn start(endpoints: &[Endpoint]) -> Load {
        Load::start_round(endpoints, "a")
    }

    /// As [`start`](Load::start) and, with another `round`, [`resume`](Load::resume).
    pub fn start_round(endpoints: &[Endpoint], round: &str) -> Load {
        let mut first = client_of(&endpoints[0], Some("d"));
        first.run(
            "CREATE TABLE IF NOT EXISTS load_rows (id VARCHAR(40) PRIMARY KEY, n INT, pad VARCHAR(200)) ENGINE=InnoDB",
        );
        Load::resume(endpoints, round)
    }

    /// The same on an existing table; `round` keeps the ids apart from earlier loads'.
    pub fn resume(endpoints: &[Endpoint], round: &str) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let errors = Arc::new(AtomicU64::new(0));
        let threads = endpoints
            .iter()
            .map(|endpoint| {
                let (endpoint, stop, acknowledged) = (endpoint.clone(), stop.clone(), acknowledged.clone());
                let (round, errors) = (round.to_owned(), errors.clone());
                std::thread::spawn(move || insert_rows(&endpoint, &round, &stop, &acknowledged, &errors))
            })
            .collect();
        let load = Load { stop, acknowledged, errors, threads };
        load.await_progress(5);
        load
    }

    /// Counts acknowledged rows.
    pub fn counter(&self) -> Arc<AtomicU64> {
        self.acknowledged.clone()
    }

    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Refused statements, and broken or refused connections.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Waits for so many acknowledged rows more.
    pub fn await_progress(&self, rows: u64) {
        let target = self.acknowledged() + rows;
        eventually(&format!("the load commits {rows} rows"), || {
            if self.acknowledged() >= target { Ok(()) } else { Err(format!("{} of {target}", self.acknowledged())) }
        });
    }

    /// Stops writing; the ids of all acknowledged rows.
    pub fn finish(mut self) -> BTreeSet<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).flat_map(|thread| handed_on(thread.join())).collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The longest time without a commit.
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Watch {
    pub fn start(load: &Load) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let (over, counter) = (stop.clone(), load.counter());
        let thread = std::thread::spawn(move || {
            let (mut last, mut since, mut longest) = (counter.load(Ordering::Relaxed), Instant::now(), Duration::ZERO);
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
                let now = counter.load(Ordering::Relaxed);
                longest = longest.max(since.elapsed());
                if now != last {
                    (last, since) = (now, Instant::now());
                }
            }
            longest
        });
        Watch { stop, thread }
    }

    pub fn longest(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        handed_on(self.thread.join())
    }
}

fn insert_rows(
    endpoint: &Endpoint,
    round: &str,
    stop: &AtomicBool,
    acknowledged: &AtomicU64,
    errors: &AtomicU64,
) -> BTreeSet<String> {
    let mut mine = BTreeSet::new();
    let mut session: Option<Session> = None;
    let mut n = 0u64;
    while !stop.load(Ordering::Relaxed) {
        let Some(open) = &mut session else {
            session = endpoint.session_in(Some("d")).ok();
            if session.is_none() {
                errors.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(50)); // the node is down: do not spin
            }
            continue;
        };
        n += 1;
        let id = format!("{round}-{}-{n}", endpoint.node);
        match open.query(&format!("INSERT INTO load_rows VALUES ('{id}', {n}, REPEAT('x', {}))", n % 200)) {
            Ok(_) => {
                mine.insert(id);
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                errors.fetch_add(1, Ordering::Relaxed);
                if error.code().is_none() {
                    session = None;
                }
                std::thread::sleep(Duration::from_millis(20)); // refused: non-primary, shutting down …
            }
        }
    }
    mine
}

/// The acknowledged rows that are not on node `n` (reads wait for everything ordered before).
pub fn missing(cluster: &Cluster, n: u8, acknowledged: &BTreeSet<String>) -> BTreeSet<String> {
    let mut client = client_in_d(cluster, n);
    let there: BTreeSet<String> = client.run("SELECT id FROM load_rows").texts().into_iter().flatten().collect();
    acknowledged.difference(&there).cloned().collect()
}

/// Every acknowledged row is on node `n`.
pub fn assert_all_there(cluster: &Cluster, n: u8, acknowledged: &BTreeSet<String>) {
    let lost = missing(cluster, n, acknowledged);
    assert!(lost.is_empty(), "node{n} lost {} acknowledged rows, for instance {:?}", lost.len(), lost.first());
}

/// Starts these nodes one right after the other, as plainly as after a reboot, and waits until all of them are Synced. Gives
/// what each wrote to its log meanwhile.
pub fn start_all(cluster: &mut Cluster, order: &[NodeId], when: &str) -> Vec<(NodeId, Vec<String>)> {
    let mut logs: Vec<(NodeId, LogCursor)> =
        order.iter().map(|id| (*id, LogCursor::at_end(&cluster.node(*id).expect("node exists").log()))).collect();
    for id in order {
        cluster.launch(*id, Start::Plain).unwrap_or_else(|error| panic!("{when}: {error}"));
    }
    for id in order {
        cluster.wait_synced(*id, &mut |_| {}).unwrap_or_else(|error| panic!("{when}: {error}"));
    }
    logs.iter_mut().map(|(id, log)| (*id, log.lines())).collect()
}

/// A full copy would hide what is to be shown: that engine and log of each node together hold everything.
pub fn assert_no_copy(logs: &[(NodeId, Vec<String>)], when: &str) {
    for (id, lines) in logs {
        let copied = lines.iter().find(|line| line.contains("SST received"));
        assert!(copied.is_none(), "{when}: {id} took a full copy: {copied:?}");
    }
}

/// Dice with the `SEED` of the environment, else of the moment; printed, so that the choices, though not the timing, can be repeated.
pub fn dice(name: &str) -> Dice {
    let dice = seed();
    println!("{name}: SEED={}", dice.seed);
    dice
}

fn seed() -> Dice {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
    Dice::new(from_environment("SEED").unwrap_or_else(now))
}

/// How much a scenario is about starts after a stop, a kill or a loss of power.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// It runs with either place of settings.
    Starting,
    /// Some of its servers have one place, and some the other.
    Restarts,
    Else,
}

/// Is this `make test-all`?
pub fn long_form() -> bool {
    std::env::var_os("LONG").is_some_and(|long| !long.is_empty())
}

/// Where a scenario's servers find their settings: where `SETTINGS` of the environment says. Else one run after the other with either, in
/// the long form or where it is about that.
pub fn places(about: About) -> Vec<Settings> {
    match (from_environment("SETTINGS"), about) {
        (Some(settings), _) => vec![settings],
        _ if long_form() => Settings::UNIFORM.to_vec(),
        (None, About::Starting) => Settings::UNIFORM.to_vec(),
        (None, About::Restarts) => vec![Settings::Mixed],
        (None, About::Else) => vec![Settings::UNIFORM[seed().below(2) as usize]],
    }
}
