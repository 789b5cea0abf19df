//! Several nodes in one process, each at a loopback address of its own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use trireme_node::{Code, Gtid, InitArgs, Node, StatValue, TrxId};

use crate::fake::{End, Fake, Hook, PATIENCE, Registry, Tables};

static NEXT: AtomicU32 = AtomicU32::new(1);

/// Provider options of every node, before those of the test: so that all of them can be run once more in another way.
const MORE_OPTIONS: &str = "TRIREME_NODE_TEST_OPTIONS";
/// Shorter than the defaults: the tests wait for them.
const OPTIONS: &str = "evs.suspect_timeout=PT1S; evs.inactive_timeout=PT3S; pc.linger=PT3S";

pub struct Site {
    pub name: String,
    pub address: String,
    pub dir: PathBuf,
    /// Provider options of this one.
    pub options: String,
}

impl Site {
    /// The files of the node's log, and what else it keeps beside them.
    pub fn log_files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(&self.dir).unwrap().map(|file| file.unwrap().path());
        files.filter(|path| path.to_string_lossy().ends_with(".galera.cache")).collect()
    }
}

/// A running server with its node.
pub struct Host {
    pub fake: Arc<Fake>,
    node: Arc<Node>,
    appliers: Vec<JoinHandle<Code>>,
    next_applier: usize,
}

impl std::ops::Deref for Host {
    type Target = Fake;
    fn deref(&self) -> &Fake {
        &self.fake
    }
}

pub struct Cluster {
    registry: Arc<Registry>,
    pub sites: Vec<Site>,
    root: PathBuf,
}

impl Cluster {
    pub fn new(nodes: usize) -> Cluster {
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let pid = std::process::id();
        let root = std::env::temp_dir().join(format!("trireme-node-{pid}-{number}"));
        // The files of a run that was killed, and had the same number.
        let _ = fs::remove_dir_all(&root);
        let port = 20_000 + pid % 10_000;
        let sites = (1..=nodes)
            .map(|i| {
                let dir = root.join(format!("n{i}"));
                fs::create_dir_all(&dir).unwrap();
                Site {
                    name: format!("n{i}"),
                    address: format!("127.77.{number}.{i}:{port}"),
                    dir,
                    options: "gcache.size=8M".into(),
                }
            })
            .collect();
        Cluster { registry: Arc::default(), sites, root }
    }

    pub fn url(&self) -> String {
        let all: Vec<&str> = self.sites.iter().map(|s| s.address.as_str()).collect();
        format!("gcomm://{}", all.join(","))
    }

    fn args(&self, site: usize, position: Option<Gtid>, options: &str) -> InitArgs {
        let site = &self.sites[site];
        InitArgs {
            node_name: site.name.clone(),
            node_address: site.address.clone(),
            node_incoming: format!("{}-client", site.name),
            data_dir: format!("{}/", site.dir.display()),
            options: format!(
                "{OPTIONS}; {}; {}; {options}",
                std::env::var(MORE_OPTIONS).unwrap_or_default(),
                site.options
            ),
            protocol: 4,
            position,
            arbitrator: None,
        }
    }

    /// A server whose provider does not start: why.
    pub fn refused(&self, site: usize) -> String {
        let fake = Fake::new(&self.sites[site].name, &self.registry, Tables::default());
        Node::new(self.args(site, None, ""), fake).err().expect("the node starts").to_string()
    }

    /// A server process with its node, not connected.
    pub fn host(&self, site: usize, tables: Tables, position: Option<Gtid>, options: &str) -> Host {
        let args = self.args(site, position, options);
        let fake = Fake::new(&args.node_name, &self.registry, tables);
        // Another test may have forked a recovery run, which has this process's files, the log's lock among them, until it is a program of its
        // own.
        let deadline = Instant::now() + PATIENCE;
        let node = loop {
            match Node::new(args.clone(), fake.clone()) {
                Ok(node) => break Arc::new(node),
                Err(error) if error.to_string().contains("in use by another process") && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => panic!("{error}"),
            }
        };
        fake.attach(&node);
        Host { fake, node, appliers: Vec::new(), next_applier: 1 }
    }

    /// All servers once more, not connected, each with the position of its data on the command line.
    pub fn hosts(&self, kept: Vec<Tables>, options: &str) -> Vec<Host> {
        let host = |(site, tables): (usize, Tables)| {
            let position = tables.gtid();
            self.host(site, tables, Some(position), options)
        };
        kept.into_iter().enumerate().map(host).collect()
    }

    pub fn bootstrap(&self) -> Host {
        let mut host = self.host(0, Tables::default(), None, "");
        assert_eq!(host.connect(&self.url(), true), Code::Ok);
        host.serve(2);
        host
    }

    pub fn join(&self, site: usize) -> Host {
        self.rejoin(site, Tables::default())
    }

    pub fn rejoin(&self, site: usize, tables: Tables) -> Host {
        let mut host = self.host(site, tables, None, "");
        assert_eq!(host.connect(&self.url(), false), Code::Ok, "{:#?}", host.lock().log);
        host.serve(2);
        host
    }

    /// All at the same time: each may wait for the others.
    pub fn connect_all(&self, hosts: &mut [Host]) {
        let url = self.url();
        std::thread::scope(|scope| {
            for host in hosts {
                let url = &url;
                scope.spawn(move || {
                    assert_eq!(host.connect(url, false), Code::Ok, "{:#?}", host.lock().log);
                    host.serve(2);
                });
            }
        });
    }

    /// As after an operator's edit of the state file: this node may begin the cluster.
    pub fn allow_bootstrap(&self, site: usize) {
        let path = self.sites[site].dir.join("grastate.dat");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("safe_to_bootstrap: 0", "safe_to_bootstrap: 1")).unwrap();
    }

    /// All of them, synced.
    pub fn start(&self) -> Vec<Host> {
        let mut hosts = vec![self.bootstrap()];
        for site in 1..self.sites.len() {
            hosts.push(self.join(site));
            hosts.last().unwrap().fake.wait("synced", |s| s.synced > 0);
        }
        for host in &hosts {
            host.wait("all in", |s| s.size() == hosts.len());
        }
        hosts
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl Host {
    pub fn connect(&self, url: &str, bootstrap: bool) -> Code {
        self.node.connect("test", url, "", bootstrap)
    }

    /// A server that was away: what it missed comes from a log.
    #[track_caller]
    pub fn comes_back_without_a_copy(&mut self, cluster: &Cluster) {
        assert_eq!(self.connect(&cluster.url(), false), Code::Ok, "{:#?}", self.lock().log);
        self.serve(2);
        self.is_synced_without_a_copy();
    }

    #[track_caller]
    pub fn is_synced_without_a_copy(&self) {
        self.wait("synced", |s| s.synced == 1);
        let s = self.lock();
        assert_eq!(s.sst_requests, 0, "a log holds the rest: {:#?}", s.log);
    }

    pub fn serve(&mut self, appliers: usize) {
        for _ in 0..appliers {
            self.appliers.push(self.fake.start_applier(self.next_applier));
            self.next_applier += 1;
        }
    }

    pub fn state(&self) -> i64 {
        match self.stat("local_state") {
            StatValue::Int(i) => i,
            other => panic!("{other:?}"),
        }
    }

    pub fn stat(&self, name: &str) -> StatValue {
        self.node.stats().into_iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no {name}")).1
    }

    pub fn int(&self, name: &str) -> i64 {
        match self.stat(name) {
            StatValue::Int(i) => i,
            other => panic!("{name}: {other:?}"),
        }
    }

    /// As `SET GLOBAL wsrep_cluster_address=''` does.
    pub fn disconnect(&mut self) {
        assert_eq!(self.node.disconnect(), Code::Ok);
        for applier in self.appliers.drain(..) {
            applier.join().unwrap();
        }
    }

    /// A clean stop; what the tables hold.
    pub fn stop(mut self) -> Tables {
        self.disconnect();
        assert!(self.node.close() && self.node.close(), "{}: a thread of the node is left", self.fake.name);
        let s = self.fake.lock();
        assert_eq!(s.violations, Vec::<String>::new(), "{}", self.fake.name);
        s.tables.clone()
    }

    pub fn grastate(&self, site: &Site) -> String {
        fs::read_to_string(site.dir.join("grastate.dat")).unwrap()
    }
}

/// The applier of each write set waits until the returned sender is dropped.
pub fn block(host: &Host) -> mpsc::Sender<()> {
    let (release, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let hook: Hook = Box::new(move |_, _, _| {
        let _ = gate.lock().unwrap().recv();
    });
    *host.hook.lock().unwrap() = Some(Arc::new(hook));
    release
}

/// While `host` applies the write set with these data, it aborts the local transaction that is sent here.
pub fn abort_behind(host: &Host, data: &'static [u8]) -> mpsc::Sender<TrxId> {
    let (go, gate) = mpsc::channel::<TrxId>();
    let gate = Mutex::new(gate);
    let hook: Hook = Box::new(move |fake, meta, applied| {
        if applied == data {
            let victim = gate.lock().unwrap().recv().unwrap();
            assert_eq!(fake.node().abort_certification(Some(meta.seqno), victim).0, Code::Ok);
        }
    });
    *host.hook.lock().unwrap() = Some(Arc::new(hook));
    go
}

/// A local transaction that was certified, and is aborted by way of [`abort_behind`]. Its end.
pub fn give_way(host: &Host, go: &mpsc::Sender<TrxId>) -> End {
    let mut handle = host.begin("l", "local");
    let answer = host.certify(&mut handle);
    let local = host.fake.clone();
    let client = thread::spawn(move || local.conclude(handle, answer, "local"));
    go.send(handle.trx).unwrap();
    client.join().unwrap()
}

/// At least so many bytes, in large write sets.
pub fn write_much(host: &Host, bytes: usize) {
    let large = "x".repeat(100_000);
    for i in 0..bytes.div_ceil(large.len()) {
        host.commit_patiently(&format!("k{i}"), &large);
    }
}

/// All of them are killed at once, cut off from each other, so that nobody hears of an end. Returns the servers' tables.
pub fn kill(sites: &[Site], hosts: Vec<Host>) -> Vec<Tables> {
    assert_eq!(sites.len(), hosts.len());
    for (site, host) in sites.iter().zip(&hosts) {
        assert_eq!(host.node().options_set("gmcast.isolate=1"), Code::Ok);
        crash_image(site);
    }
    let kept = hosts.into_iter().map(Host::stop).collect();
    sites.iter().for_each(restore_image);
    kept
}

/// The disk as a machine finds it after the process was killed now.
pub fn crash_image(site: &Site) {
    let image = site.dir.with_extension("image");
    // The process goes on: a file that it has renamed or removed meanwhile is none of a crash.
    while let Err(error) = try_copy(&site.dir, &image) {
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
        fs::remove_dir_all(&image).unwrap();
    }
}

/// Puts the image in the place of the directory.
pub fn restore_image(site: &Site) {
    fs::remove_dir_all(&site.dir).unwrap();
    fs::rename(site.dir.with_extension("image"), &site.dir).unwrap();
}

pub fn copy(from: &Path, to: &Path) {
    try_copy(from, to).unwrap();
}

fn try_copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// The third server has left, since its data are not the group's. It is started again with these options and gets a copy; then as
/// [`goes_on_with`].
#[track_caller]
pub fn needs_a_copy(cluster: &Cluster, third: Host, options: &str, others: Vec<Host>) {
    third.wait("the final view", |s| s.finals == 1);
    let state = third.grastate(&cluster.sites[2]);
    assert!(state.contains("00000000-0000-0000-0000-000000000000"), "{state}");
    third.stop();
    let mut back = cluster.host(2, Tables::default(), None, options);
    assert_eq!(back.connect(&cluster.url(), false), Code::Ok, "{:#?}", back.lock().log);
    back.serve(2);
    back.wait("synced", |s| s.synced == 1 && s.sst_requests == 1);
    goes_on_with(back, others);
}

/// A node that came in commits like the others; then as [`agree`].
#[track_caller]
pub fn goes_on_with(host: Host, mut others: Vec<Host>) {
    host.commit("a", "after");
    others.push(host);
    agree(others);
}

/// Equal contents at all seqnos that both hold, up to `upto`; then stops them all.
#[track_caller]
pub fn agree(hosts: Vec<Host>) {
    let last = hosts.iter().map(|h| h.lock().tables.position()).max().unwrap();
    for host in &hosts {
        host.reach(last);
    }
    {
        let first = hosts[0].lock().tables.closed.clone();
        for host in &hosts[1..] {
            let other = host.lock().tables.closed.clone();
            for (seqno, closed) in &other {
                if let Some(expected) = first.get(seqno) {
                    assert_eq!(closed, expected, "seqno {seqno} on {} and {}", host.name, hosts[0].name);
                }
            }
        }
    }
    for host in hosts.into_iter().rev() {
        host.stop();
    }
}
