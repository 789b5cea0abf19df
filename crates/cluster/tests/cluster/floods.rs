//! Strangers at the group port who do as much as they can: commits go on, a member comes back, memory is given back.
//!
//! What is allowed is wide, because a machine that runs other work as well is slow by itself. With `QUIET=1` in the environment the bounds are
//! those that a quiet machine has to keep: a longest gap between commits of 1 s, a member back within 5 s, 64 MB.

use crate::support::{Bed, Load, assert_all_there, assert_equal, await_status, client, from_environment, node, schema};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use openssl::ssl::{Ssl, SslContext, SslMethod};
use trireme_cluster::{Cluster, LogCursor, Start, Stop};
use trireme_order::{Append, Content, Heartbeat, LogEnd, Message};
use trireme_types::{
    Base, Durability, EntryHeader, EntryKind, Incarnation, Lineage, LogIndex, Member, MemberKind, NodeId, Seqno,
    Session, Term, Uuid, Weight, Writer,
};

/// How long each flood lasts before a member has to come back through it.
const FLOOD: Duration = Duration::from_secs(4);
/// Attempts of one attacking thread per second.
const RATE: u32 = 300;
const ATTACKERS: u64 = 2;

struct Bounds {
    gap: Duration,
    back: Duration,
    memory_kb: u64,
}

fn bounds() -> Bounds {
    match from_environment::<u8>("QUIET") {
        Some(1) => Bounds { gap: Duration::from_secs(1), back: Duration::from_secs(5), memory_kb: 64 << 10 },
        Some(_) | None => Bounds { gap: Duration::from_secs(15), back: Duration::from_secs(60), memory_kb: 256 << 10 },
    }
}

pub fn floods_of_silent_and_shaking_strangers(bed: &Bed) {
    let spec = bed.spec();
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    let hello = client_hello();
    through(&mut cluster, "half open", Arc::new(|_, to: SocketAddr| TcpStream::connect_timeout(&to, SECOND).ok()));
    through(
        &mut cluster,
        "TLS handshakes",
        Arc::new(move |_, to: SocketAddr| {
            let mut stream = TcpStream::connect_timeout(&to, SECOND).ok()?;
            stream.write_all(&hello).ok()?;
            Some(stream)
        }),
    );
    assert_equal(&cluster);
}

pub fn floods_of_strangers_in_clear_text(bed: &Bed) {
    let mut spec = bed.spec();
    spec.secret = false;
    let name = spec.name.clone();
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    let cluster_name = name.clone();
    let mut log = LogCursor::at_end(&cluster.node(node(1)).unwrap().log());
    // Handshake and stream in one go: what used to hold the group thread for as long as bytes came.
    through(
        &mut cluster,
        "pipelined streams",
        Arc::new(move |n, to| {
            let mut stream = TcpStream::connect_timeout(&to, SECOND).ok()?;
            stream.set_write_timeout(Some(SECOND)).ok()?;
            let mut wire = handshake(&cluster_name, n);
            let small = frame(&encoded(&Message::Signal { body: Bytes::from_static(b"x") }), None);
            (0..20_000).for_each(|_| wire.extend_from_slice(&small));
            stream.write_all(&wire).ok()?;
            Some(stream)
        }),
    );
    // Messages of 4 GiB that are begun.
    through(
        &mut cluster,
        "unfinished messages",
        Arc::new(move |n, to| {
            let mut stream = TcpStream::connect_timeout(&to, SECOND).ok()?;
            stream.set_write_timeout(Some(SECOND)).ok()?;
            let mut wire = handshake(&name, n);
            wire.extend_from_slice(&frame(&[0; 60_000], Some(15 << 20)));
            stream.write_all(&wire).ok()?;
            Some(stream)
        }),
    );
    let is_linked = |line: &String| line.contains("connection established to") && line.contains("'stranger'");
    assert!(log.lines().iter().any(is_linked), "no stranger was ever linked");
    assert_equal(&cluster);
}

/// Messages by which a stranger with a link wants to be believed: terms to the end of time, votes, entries, commits, states, evictions, durability.
pub fn lies_of_linked_strangers(bed: &Bed) {
    let mut spec = bed.spec();
    spec.secret = false;
    spec.provider_options = "repl.status_extended=yes".to_owned();
    let name = spec.name.clone();
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    let status = |n: u8, name: &str| status(&cluster, n, name);
    let branch = Uuid::parse(&status(1, "wsrep_cluster_state_uuid")).expect("a history");
    let term = Term(status(1, "wsrep_trireme_term").parse().expect("a number"));
    let last = LogIndex(status(1, "wsrep_trireme_log_last").parse().expect("a number"));
    let durability = status(1, "wsrep_trireme_durability");
    let mut logs: Vec<LogCursor> = (1..=2).map(|n| LogCursor::at_end(&cluster.node(node(n)).unwrap().log())).collect();
    let told: Vec<Vec<u8>> = [term.next(), Term((1 << 62) - 1)].iter().map(|term| lies(branch, *term, last)).collect();
    through(
        &mut cluster,
        "lies",
        Arc::new(move |n, to| {
            let mut stream = TcpStream::connect_timeout(&to, SECOND).ok()?;
            stream.set_write_timeout(Some(SECOND)).ok()?;
            let wire = [handshake(&name, n), told[(n % 2) as usize].clone()].concat();
            stream.write_all(&wire).ok()?;
            // Its place is free for the next one when it was heard to the end.
            stream.shutdown(std::net::Shutdown::Write).ok()?;
            Some(stream)
        }),
    );
    for (n, log) in (1..=2).zip(&mut logs) {
        let lines = log.lines();
        let is_said = |text: &str| lines.iter().any(|line| line.contains(text));
        assert!(
            is_said("no election leads there") && is_said("is not a member, and nobody who is follows it"),
            "node{n}"
        );
        assert_eq!(self::status(&cluster, n, "wsrep_trireme_durability"), durability, "node{n}");
        let term: u64 = self::status(&cluster, n, "wsrep_trireme_term").parse().expect("a number");
        assert!(term < 1 << 20, "node{n} is in term {term}");
    }
    assert_equal(&cluster);
}

fn status(cluster: &Cluster, n: u8, name: &str) -> String {
    client(cluster, n).run(&format!("SHOW GLOBAL STATUS LIKE '{name}'")).texts()[0][1].clone()
}

/// One of each kind of message that could do harm.
fn lies(branch: Uuid, term: Term, last: LogIndex) -> Vec<u8> {
    let (index, prev_index, prev_term) = (last.next(), last, term);
    let end = LogEnd { term, index };
    let session = Session { node: NodeId(Uuid([9; 16])), number: u64::MAX };
    let body = Bytes::from_static(b"forged");
    let (seqno, voters) = (Seqno(1 << 40), LogIndex(1));
    let header = EntryHeader { index, term, seqno, voters, session, number: 1, kind: EntryKind::App };
    let base = Base { history: branch, index: LogIndex(1 << 40), term, seqno, ..Base::default() };
    let entries = vec![(header, Some(body.clone()))];
    let messages = [
        Content::Heartbeat(Heartbeat { commit: index, last: index, round: 1, majority: true }).in_term(branch, term),
        Content::Append(Append { prev_index, prev_term, commit: index, entries }).in_term(branch, term),
        Content::Append(Append { prev_index, prev_term, commit: index, entries: vec![] }).in_term(branch, term),
        Content::HeartbeatAck { round: 1 }.in_term(branch, term),
        Content::Ack { index }.in_term(branch, term),
        Content::Reject { prev_index: last, last: LogIndex(0) }.in_term(branch, term),
        Content::NeedBodies { from: LogIndex(1) }.in_term(branch, term),
        Content::PreVote { last: end }.in_term(branch, term),
        Content::PreVoteReply { granted: true, whole: true }.in_term(branch, term),
        Content::Vote { last: end, transfer: false }.in_term(branch, term),
        Content::Vote { last: end, transfer: true }.in_term(branch, term),
        Content::VoteReply { granted: true, whole: true }.in_term(branch, term),
        Content::TimeoutNow.in_term(branch, term),
        Message::Snapshot { term, lineage: Lineage::default(), base: Box::new(base) },
        Content::Recall { index }.in_term(branch, term),
        Message::Force,
        Content::Entrust.in_term(branch, term),
        Content::BeginFromData { index, seqno }.in_term(branch, term),
        Message::Submit { session, number: 1, app: false, body: body.clone() },
        Message::Signal { body },
        Message::SetWeight { weight: Weight(255) },
        Message::SetDurability { durability: Durability::Process },
        Message::Leave { incarnation: Incarnation(1) },
        Message::Evicted,
    ];
    messages.iter().flat_map(|message| frame(&encoded(message), None)).collect()
}

const SECOND: Duration = Duration::from_secs(1);

/// Makes one attempt, by its number; gives what is to be held open.
type Attempt = Arc<dyn Fn(u64, SocketAddr) -> Option<TcpStream> + Send + Sync>;

/// Lets the flood run against all nodes under load, and a member come back through it.
fn through(cluster: &mut Cluster, what: &str, attempt: Attempt) {
    let bounds = bounds();
    let targets: Vec<SocketAddr> =
        cluster.nodes().iter().map(|node| node.group_endpoint().parse().expect("an address")).collect();
    let before: Vec<u64> = (1..=2).map(|n| memory_kb(cluster, n)).collect();
    let load = Load::start_round(&cluster.endpoints()[..2], what);
    let watch = Watch::start(&load);
    let flood = Flood::start(&targets, attempt);
    std::thread::sleep(FLOOD);
    load.await_progress(20);
    // A member that is known comes back.
    cluster.stop(node(3), Stop::Kill).unwrap();
    await_status(cluster, 1, "wsrep_cluster_size", "2");
    let begun = Instant::now();
    cluster.start(node(3), Start::Recover, &mut |_| {}).unwrap_or_else(|error| panic!("{what}: {error}"));
    let back = begun.elapsed();
    let gap = watch.longest();
    let attempts = flood.stop();
    let acknowledged = load.finish();
    for n in 1..=3 {
        await_status(cluster, n, "wsrep_cluster_size", "3");
        assert_all_there(cluster, n, &acknowledged);
    }
    let grown = (1..=2).map(|n| memory_kb(cluster, n).saturating_sub(before[usize::from(n) - 1])).max().unwrap_or(0);
    println!("  {what}: {attempts} attempts, longest gap {gap:?}, back after {back:?}, {grown} kB more memory");
    assert!(attempts > 100, "{what}: a flood of {attempts}");
    assert!(gap < bounds.gap, "{what}: no commit for {gap:?}");
    assert!(back < bounds.back, "{what}: back after {back:?}");
    assert!(grown < bounds.memory_kb, "{what}: {grown} kB more memory");
}

/// Threads that attack until they are stopped, and hold what they have opened, the newest hundreds of it.
struct Flood {
    stop: Arc<AtomicBool>,
    attempts: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    fn start(targets: &[SocketAddr], attempt: Attempt) -> Flood {
        let (stop, attempts) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = (0..ATTACKERS)
            .map(|_| {
                let (stop, attempts, attempt, targets) =
                    (stop.clone(), attempts.clone(), attempt.clone(), targets.to_vec());
                std::thread::spawn(move || {
                    let mut held = std::collections::VecDeque::new();
                    while !stop.load(Ordering::Relaxed) {
                        let n = attempts.fetch_add(1, Ordering::Relaxed);
                        held.extend(attempt(n, targets[(n % targets.len() as u64) as usize]));
                        if held.len() > 400 {
                            held.pop_front();
                        }
                        std::thread::sleep(SECOND / RATE);
                    }
                })
            })
            .collect();
        Flood { stop, attempts, threads }
    }

    fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().expect("an attacker"));
        self.attempts.load(Ordering::Relaxed)
    }
}

/// The longest time without a commit.
struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Watch {
    fn start(load: &Load) -> Watch {
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

    fn longest(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the watch")
    }
}

fn memory_kb(cluster: &Cluster, n: u8) -> u64 {
    let pid = cluster.node(node(n)).unwrap().pid.expect("it runs");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("every process has it");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).expect("a number")
}

/// What a dialler says first, as OpenSSL writes it.
fn client_hello() -> Vec<u8> {
    struct Caught(Vec<u8>);
    impl std::io::Read for Caught {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::WouldBlock.into())
        }
    }
    impl Write for Caught {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let context = SslContext::builder(SslMethod::tls()).unwrap().build();
    let waits = Ssl::new(&context).unwrap().connect(Caught(Vec::new()));
    match waits {
        Err(openssl::ssl::HandshakeError::WouldBlock(waits)) => waits.get_ref().0.clone(),
        _ => panic!("nobody has answered"),
    }
}

/// Hello and Confirm of a stranger whose id is below every other, so that it decides about the link.
fn handshake(cluster: &str, n: u64) -> Vec<u8> {
    let mut id = [0; 16];
    id[8..].copy_from_slice(&(n + 1).to_be_bytes());
    let member = Member {
        node: NodeId(Uuid(id)),
        incarnation: Incarnation(1),
        name: "stranger".to_owned(),
        incoming: String::new(),
        address: String::new(),
        segment: 0,
        weight: Weight(1),
        kind: MemberKind::Data,
    };
    let mut hello = Writer::new();
    hello.u8(1);
    hello.u16(2);
    hello.u16(2);
    hello.str(cluster);
    hello.u64(n + 77);
    member.encode(&mut hello);
    // A build that says nothing of levels is refused as an old one.
    let levels = trireme_order::SUPPORTED;
    for level in [levels.min, levels.max, levels.min] {
        hello.u16(level.0);
    }
    let mut confirm = Writer::new();
    confirm.u8(4);
    confirm.u64(n + 1);
    [step(&hello.buf), step(&confirm.buf)].concat()
}

fn step(body: &[u8]) -> Vec<u8> {
    let mut out = b"TRIREME\x01".to_vec();
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    let mut sum = crc32fast::Hasher::new();
    sum.update(&out);
    sum.update(body);
    out.extend_from_slice(&sum.finalize().to_le_bytes());
    out.extend_from_slice(body);
    out
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut parts = Vec::new();
    message.encode_vectored(&mut parts);
    parts.concat()
}

/// One chunk: a whole control message, or the first of a bulk message of `total` bytes.
fn frame(payload: &[u8], total: Option<u64>) -> Vec<u8> {
    let mut body = total.map_or_else(Vec::new, |total| total.to_le_bytes().to_vec());
    body.extend_from_slice(payload);
    let mut out = (body.len() as u32).to_le_bytes().to_vec();
    // First, and last unless there is more; the lane.
    out.push(if total.is_some() { 1 | 4 } else { 4 | 8 });
    out.extend_from_slice(&[0; 3]);
    out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
    out.extend_from_slice(&body);
    out
}
