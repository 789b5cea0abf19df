//! Writes past the page cache on file systems of their own: disks of other block sizes, that fail, that hang, and one that cannot be written to in that
//! way. Needs root, for loop devices and mounts, and a kernel with io_uring; elsewhere each test says so and does nothing.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use trireme_order::{DiskFault, LogStore, StoreError};
use trireme_types::{Base, Entry, LogIndex, NodeId, Uuid};
use trireme_wslog::{DirStorage, NoDirectWriter, Options, WriteSetLog};

use crate::support::dir::Dir;
use crate::support::entries::entry;

const NODE: NodeId = NodeId(Uuid([9; 16]));
/// A disk that others use as well may take long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Tells the process that is to die where its log lies.
const LOG_DIR: &str = "TRIREME_TEST_LOG_OF_THE_DEAD";

type Log = WriteSetLog<DirStorage>;

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let done = Command::new(program).args(arguments).output().map_err(|e| format!("{program}: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if done.status.success() { Ok(text(&done.stdout)) } else { Err(format!("{program}: {}", text(&done.stderr))) }
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A file system that is mounted at `at`.
struct Mounted {
    at: PathBuf,
    device: Option<String>,
}

impl Mounted {
    fn ext4(dir: &Path, sector: u32, mib: u64) -> Result<Mounted, String> {
        let (image, at) = (dir.join("image"), dir.join("mounted"));
        File::create(&image).unwrap().set_len(mib << 20).unwrap();
        std::fs::create_dir(&at).unwrap();
        let sector = sector.to_string();
        let device = run("losetup", &["--find", "--show", "--sector-size", &sector, name(&image)])?;
        let mounted = Mounted { at, device: Some(device.clone()) };
        run("mkfs.ext4", &["-q", "-F", "-b", "4096", "-J", "size=4", &device])?;
        run("mount", &[&device, name(&mounted.at)])?;
        Ok(mounted)
    }

    fn ramfs(dir: &Path) -> Result<Mounted, String> {
        let at = dir.join("mounted");
        std::fs::create_dir(&at).unwrap();
        run("mount", &["-t", "ramfs", "ramfs", name(&at)])?;
        Ok(Mounted { at, device: None })
    }

    fn freeze(&self, freeze: bool) {
        run("fsfreeze", &[if freeze { "--freeze" } else { "--unfreeze" }, name(&self.at)]).unwrap();
    }

    /// Every write from now on fails.
    fn fail(&self) {
        let root = File::open(&self.at).unwrap();
        let without_its_journal: u32 = 2;
        // SAFETY: the descriptor is open, and the kernel reads four bytes.
        let done = unsafe { libc::ioctl(root.as_raw_fd(), 0x8004_587d, &raw const without_its_journal) };
        assert_eq!(done, 0);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // One that is not frozen refuses to be thawed, one that never was mounted to be unmounted.
        let _ = run("fsfreeze", &["--unfreeze", name(&self.at)]);
        let _ = run("umount", &["--lazy", name(&self.at)]);
        if let Some(device) = &self.device {
            let _ = run("losetup", &["--detach", device]);
        }
    }
}

/// `None`, and says why, where that cannot be had.
fn had<T>(wanted: Result<T, impl std::fmt::Display>) -> Option<T> {
    wanted.map_err(|why| eprintln!("SKIPPED: {why}")).ok()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "waited for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn open(dir: &Path) -> Log {
    let options = Options { size: 8 << 20, ..Options::new(NODE, "boot") };
    WriteSetLog::open(DirStorage::new(dir).unwrap(), &options).unwrap().0
}

/// A log with entry 1, of which everything is on the disk, and that goes past the page cache from now on.
fn begun(dir: &Path) -> Option<Log> {
    let mut log = open(dir);
    log.reset(Base { history: Uuid([1; 16]), ..Base::default() }).unwrap();
    let writer = had(log.direct_writer())?;
    log.write_past_cache(writer);
    log.append(&[entry(1, 1, 100)]).unwrap();
    while log.synced() < log.last() {
        assert_eq!(log.begin_write().unwrap(), None, "the first records of a segment go by the cache");
        let ticket = log.begin_sync().unwrap();
        log.finish_sync(ticket.run().unwrap()).unwrap();
    }
    Some(log)
}

fn begin_write(log: &mut Log, index: u64, size: usize) {
    log.append(&[entry(index, 1, size)]).unwrap();
    assert_eq!(log.begin_write().unwrap(), Some(LogIndex(index)));
}

fn finish(log: &mut Log) -> Result<(), StoreError> {
    loop {
        if let Some(done) = log.finish_write() {
            return done.map(drop);
        }
        std::thread::yield_now();
    }
}

#[test]
fn blocks_of_512_and_of_4096_bytes_are_written() {
    for sector in [512, 4096] {
        let dir = Dir::new();
        let Some(disk) = had(Mounted::ext4(dir.path(), sector, 64)) else { return };
        let Some(mut log) = begun(&disk.at) else { return };
        for index in 2..200 {
            begin_write(&mut log, index, (index * 37 % 5000) as usize);
            finish(&mut log).unwrap();
        }
        drop(log);
        let log = open(&disk.at);
        assert_eq!(log.last(), LogIndex(199));
        for index in 2..200 {
            assert_eq!(log.read(LogIndex(index), 0).unwrap(), [entry(index, 1, (index * 37 % 5000) as usize)]);
        }
    }
}

#[test]
fn a_file_system_without_such_writes_is_named() {
    let dir = Dir::new();
    let Some(disk) = had(Mounted::ramfs(dir.path())) else { return };
    let log = open(&disk.at);
    let why = log.direct_writer().err().expect("it has none");
    assert!(
        matches!(why, NoDirectWriter::Disk(StoreError::Disk { cause: DiskFault::Unsupported, .. }))
            && why.to_string().contains("the file system has no O_DIRECT"),
        "{why}"
    );
    assert!(!std::fs::read_dir(&disk.at).unwrap().any(|e| e.unwrap().file_name().to_str().unwrap().contains("trial")));
}

#[test]
fn a_write_that_fails_is_the_end_of_the_log() {
    let dir = Dir::new();
    let Some(disk) = had(Mounted::ext4(dir.path(), 512, 64)) else { return };
    let Some(mut log) = begun(&disk.at) else { return };
    begin_write(&mut log, 2, 100);
    finish(&mut log).unwrap();
    disk.fail();
    log.append(&[entry(3, 1, 100)]).unwrap();
    let why = log.begin_write().and_then(|_| finish(&mut log)).unwrap_err();
    assert!(why.to_string().contains("cannot write to"), "{why}");
    assert_eq!((log.synced(), log.written()), (LogIndex(2), LogIndex(2)), "nothing of it counts");
    assert_eq!(log.append(&[entry(4, 1, 1)]), Err(StoreError::Failed(Box::new(why))));
    assert!(log.let_go(), "nothing is under way");
}

/// One that is killed with a write under way: it goes on, and must not arrive in a log that another process goes on with.
#[test]
fn a_write_of_the_dead_keeps_the_next_process_out() {
    let dir = Dir::new();
    let (outside, inside) = (dir.path().join("outside"), dir.path().join("outside/mounted/inside"));
    std::fs::create_dir(&outside).unwrap();
    // A disk that hangs: what it lies in is frozen.
    let Some(around) = had(Mounted::ext4(&outside, 512, 200)) else { return };
    std::fs::create_dir(&inside).unwrap();
    let Some(disk) = had(Mounted::ext4(&inside, 512, 64)) else { return };
    let mut dying = Dying::start(&disk.at);
    if dying.said() != "ready" {
        return;
    }
    around.freeze(true);
    dying.tell();
    assert_eq!(dying.said(), "begun");
    dying.child.kill().unwrap();
    dying.child.wait().unwrap();
    let storage = DirStorage::new(&disk.at).unwrap();
    assert!(storage.try_lock().unwrap().is_none(), "its last write is still under way");
    around.freeze(false);
    until("the dead one's lock to go", || storage.try_lock().unwrap().is_some());
    // The kernel may have given up a write that it had not begun. From here on nothing of it may arrive any more.
    let mut log = open(&disk.at);
    match log.last() {
        LogIndex(1) => {}
        LogIndex(2) => assert_eq!(log.read(LogIndex(2), 0).unwrap(), [entry(2, 1, 30_000)], "the whole write"),
        other => panic!("neither all of the write nor none of it: {other:?}"),
    }
    let own: Vec<Entry> = (log.last().0 + 1..8).map(|index| entry(index, 2, 20_000)).collect();
    log.append(&own).unwrap();
    log.close().unwrap();
    let log = open(&disk.at);
    let first = own[0].header.index;
    assert_eq!(log.read(first, usize::MAX).unwrap(), own);
}

/// The process that is to die: this program once more, with nothing but the test below.
struct Dying {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Dying {
    fn start(dir: &Path) -> Dying {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_process_that_dies", "--nocapture"])
            .env(LOG_DIR, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Dying { child, lines }
    }

    /// The next of its words; the test program's own are no such.
    fn said(&mut self) -> String {
        let words = ["ready", "begun", "SKIPPED"];
        self.lines.by_ref().map(|line| line.unwrap()).find(|line| words.contains(&line.as_str())).unwrap_or_default()
    }

    fn tell(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"go on\n").unwrap();
    }
}

impl Drop for Dying {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// No test, but for whoever is told of a log.
#[test]
fn the_process_that_dies() {
    let Ok(dir) = std::env::var(LOG_DIR) else { return };
    let Some(mut log) = begun(Path::new(&dir)) else {
        println!("\nSKIPPED");
        return;
    };
    println!("\nready");
    let mut told = String::new();
    std::io::stdin().read_line(&mut told).unwrap();
    begin_write(&mut log, 2, 30_000);
    println!("\nbegun");
    let _ = std::io::stdin().read_line(&mut told);
}
