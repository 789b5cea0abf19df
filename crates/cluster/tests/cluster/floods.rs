//! Strangers at the group port who do as much as they can: commits go on, a member comes back, memory is given back.
//!
//! The bounds are wide, because a machine that runs other work as well is slow by itself. With `QUIET=1` in the environment
//! the bounds are those that a quiet machine has to keep: a longest gap between commits of 1 s, a member back within 5 s, 64
//! MB.

use crate::attacker::{SECOND, client_hello, dial, dial_and_await, encoded, frame, handshake, hello, source, stranger};
use crate::support::{
    Bed, Load, Watch, assert_all_there, assert_equal, await_status, client, eventually, from_environment, handed_on,
    node, schema,
};
use std::collections::VecDeque;
use std::io::Write;
use std::net::{SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use openssl::pkey::PKey;
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use openssl::x509::X509;
use trireme_certificates::{Authority, Issued, Validity};
use trireme_cluster::{Cluster, LogCursor, Start, Stop};
use trireme_order::{Append, Content, Heartbeat, JoinRequest, LogEnd, Message};
use trireme_types::{
    Base, Durability, EntryHeader, EntryKind, Incarnation, Lineage, LogIndex, NodeId, ProposalNumber, Seqno, Session,
    Term, Uuid, Weight,
};

const ATTACKERS: u64 = 4;
/// Of a flood before a member dies in it.
const ATTEMPTS: u64 = 200;
/// The connections that all attackers together hold open, the newest.
const HELD: usize = 2000;
/// Lines that a flood may add to the log of a node: of what happens, and of what strangers do, who get 20 in 10 s, as long as it lasts.
const LINES: usize = 160;
const LINES_PER_SECOND: usize = 2;

struct Bounds {
    gap: Duration,
    back: Duration,
    memory_kb: u64,
    /// Where other work takes the processors nobody can attack at a certain rate.
    rate_counts: bool,
}

fn bounds() -> Bounds {
    match from_environment::<u8>("QUIET") {
        Some(1) => Bounds { gap: SECOND, back: Duration::from_secs(5), memory_kb: 64 << 10, rate_counts: true },
        Some(_) | None => Bounds {
            gap: Duration::from_secs(15),
            back: Duration::from_secs(60),
            memory_kb: 256 << 10,
            rate_counts: false,
        },
    }
}

pub fn floods_of_silent_and_shaking_strangers(bed: &Bed) {
    let mut cluster = bed.up(&bed.spec());
    schema(&cluster, 1);
    let silent = |n, to| dial(source(n), to).ok();
    through(&mut cluster, Flood { what: "half open", rate: 3000, attempt: Arc::new(silent) });
    through(&mut cluster, Flood { what: "TLS handshakes", rate: 1500, attempt: shake() });
    assert_equal(&cluster);
}

/// Says what begins a TLS handshake, which costs the other end a signature, and no more.
fn shake() -> Attempt {
    let hello = client_hello();
    Arc::new(move |n, to| {
        let mut stream = dial(source(n), to).ok()?;
        stream.write_all(&hello).ok()?;
        Some(stream)
    })
}

/// With keys as most authorities issue them: of all usual ones those cost a server the most.
pub fn floods_of_handshakes_with_certificates(bed: &Bed) {
    let mut spec = bed.spec();
    spec.tls = true;
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    let authority = Authority::with_rsa("with RSA").unwrap();
    for id in cluster.ids() {
        cluster.certify(id, &authority).unwrap();
    }
    for n in 1..=3 {
        client(&cluster, n).run("SET GLOBAL wsrep_provider_options = 'socket.ssl_reload=1'");
    }
    // A holder of another certificate of the authority, as a laptop of an administrator, is no member.
    let target = targets(&cluster)[0];
    let member = authority.issue("node9", Validity::YEARS, None).unwrap();
    assert!(is_heard_with(&spec.name, target, &member), "a certificate for members");
    assert!(!is_heard_with(&spec.name, target, &authority.issue_to_client("laptop").unwrap()));
    let other = Authority::with_rsa("with RSA").unwrap();
    assert!(!is_heard_with(&spec.name, target, &other.issue("node9", Validity::YEARS, None).unwrap()));
    through(&mut cluster, Flood { what: "RSA handshakes", rate: 1500, attempt: shake() });
    assert_equal(&cluster);
}

/// Says hello over TLS with this certificate. Is there an answer?
fn is_heard_with(cluster: &str, to: SocketAddrV4, shown: &Issued) -> bool {
    let mut builder = SslConnector::builder(SslMethod::tls()).unwrap();
    builder.set_verify(SslVerifyMode::NONE);
    builder.set_private_key(&PKey::private_key_from_pem(&shown.key).unwrap()).unwrap();
    builder.set_certificate(&X509::from_pem(&shown.cert).unwrap()).unwrap();
    let setting = builder.build().configure().unwrap().verify_hostname(false);
    let Ok(mut stream) = setting.connect("a node", dial_and_await(source(0), to).unwrap()) else { return false };
    // The end that verifies last finds out after the other end believes that all is well.
    let _ = stream.write_all(&hello(cluster, &stranger(0), 1));
    matches!(crate::attacker::answer(&mut stream), crate::attacker::Answer::Hello(_))
}

pub fn floods_of_strangers_in_clear_text(bed: &Bed) {
    let mut spec = bed.spec();
    spec.secret = false;
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    let mut log = LogCursor::at_end(&cluster.node(node(1)).unwrap().log());
    // Handshake and stream in one go: what used to hold the group thread for as long as bytes came.
    let small = frame(&encoded(&Message::Signal { body: Bytes::from_static(b"x") }), None);
    through(
        &mut cluster,
        Flood { what: "pipelined streams", rate: 200, attempt: linked(&spec.name, small.repeat(20_000)) },
    );
    // The first of very large ones.
    let begun = frame(&[0; 60_000], Some(15 << 20));
    through(&mut cluster, Flood { what: "unfinished messages", rate: 1000, attempt: linked(&spec.name, begun) });
    let question = frame(
        &encoded(&Content::PreVote { last: LogEnd { term: Term(1), index: LogIndex(1) } }.in_term(Uuid::NIL, Term(1))),
        None,
    );
    let asked = linked(&spec.name, question.repeat(2000));
    through(&mut cluster, Flood { what: "unread answers", rate: 500, attempt: asked });
    // Each wants to be a member.
    let name = spec.name.clone();
    let join = move |n, to| {
        let mut stream = dial(source(n), to).ok()?;
        let join = JoinRequest {
            member: stranger(n),
            history: Uuid::NIL,
            lineage: Lineage::default(),
            usable: false,
            last_index: LogIndex::ZERO,
            last_term: Term::ZERO,
            position: None,
            view: 0,
        };
        let wire = [handshake(&name, n), frame(&encoded(&Message::Join(join)), None)].concat();
        stream.write_all(&wire).ok()?;
        Some(stream)
    };
    through(&mut cluster, Flood { what: "would-be members", rate: 2000, attempt: Arc::new(join) });
    let is_linked = |line: &String| line.contains("connection established to") && line.contains("'stranger");
    assert!(log.lines().iter().any(is_linked), "no stranger was ever linked");
    assert_equal(&cluster);
}

/// Links with a node, says `then`, and keeps the connection.
fn linked(cluster: &str, then: Vec<u8>) -> Attempt {
    let cluster = cluster.to_owned();
    Arc::new(move |n, to| {
        let mut stream = dial(source(n), to).ok()?;
        stream.write_all(&handshake(&cluster, n)).ok()?;
        stream.write_all(&then).ok()?;
        Some(stream)
    })
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
    let tell = move |n: u64, to| {
        let mut stream = dial(source(n), to).ok()?;
        let wire = [handshake(&name, n), told[(n % 2) as usize].clone()].concat();
        stream.write_all(&wire).ok()?;
        // Its place is free for the next one when it was heard to the end.
        stream.shutdown(std::net::Shutdown::Write).ok()?;
        Some(stream)
    };
    through(&mut cluster, Flood { what: "lies", rate: 1000, attempt: Arc::new(tell) });
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
    let header = EntryHeader { index, term, seqno, voters, session, number: ProposalNumber(1), kind: EntryKind::App };
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
        Message::Submit { session, number: ProposalNumber(1), app: false, body: body.clone() },
        Message::Signal { body },
        Message::SetWeight { weight: Weight(255) },
        Message::SetDurability { durability: Durability::Process },
        Message::Leave { incarnation: Incarnation(1) },
        Message::Evicted,
    ];
    messages.iter().flat_map(|message| frame(&encoded(message), None)).collect()
}

/// Makes one attempt, by its number; gives what is to be held open.
type Attempt = Arc<dyn Fn(u64, SocketAddrV4) -> Option<TcpStream> + Send + Sync>;

fn targets(cluster: &Cluster) -> Vec<SocketAddrV4> {
    cluster.nodes().iter().map(|node| node.group_endpoint().parse().expect("an address")).collect()
}

/// Lets the flood run against all nodes under load, and a member die in it, leave the view and come back through it.
fn through(cluster: &mut Cluster, flood: Flood) {
    let (bounds, what, rate) = (bounds(), flood.what, flood.rate);
    let before: Vec<u64> = (1..=2).map(|n| memory_kb(cluster, n)).collect();
    let mut logs: Vec<LogCursor> = (1..=2).map(|n| LogCursor::at_end(&cluster.node(node(n)).unwrap().log())).collect();
    let load = Load::start_round(&cluster.endpoints()[..2], what);
    let watch = Watch::start(&load);
    let flood = flood.start(&targets(cluster));
    flood.await_attempts(ATTEMPTS);
    load.await_progress(20);
    // A member that is known comes back. Until the view drops it is time for the flood.
    cluster.stop(node(3), Stop::Kill).unwrap();
    await_status(cluster, 1, "wsrep_cluster_size", "2");
    let begun = Instant::now();
    cluster.start(node(3), Start::Recover, &mut |_| {}).unwrap_or_else(|error| panic!("{what}: {error}"));
    let back = begun.elapsed();
    let gap = watch.longest();
    let (attempts, lasted) = flood.stop();
    let acknowledged = load.finish();
    for n in 1..=3 {
        await_status(cluster, n, "wsrep_cluster_size", "3");
        assert_all_there(cluster, n, &acknowledged);
    }
    // Memory of closed links is given back at once, and that of begun ones some moments later.
    let ended = Instant::now();
    let grown = loop {
        let grown =
            (1..=2).map(|n| memory_kb(cluster, n).saturating_sub(before[usize::from(n) - 1])).max().unwrap_or(0);
        if grown < bounds.memory_kb || ended.elapsed() > Duration::from_secs(10) {
            break grown;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let lines = logs.iter_mut().map(|log| log.lines().len()).max().unwrap_or(0);
    let reached = attempts as f64 / lasted.as_secs_f64();
    println!(
        "  {what}: {attempts} attempts, {reached:.0} per second, longest gap {gap:?}, back after {back:?}, {grown} kB more memory, {lines} lines"
    );
    assert!(!bounds.rate_counts || reached > f64::from(rate) / 3.0, "{what}: {reached:.0} of {rate} attempts a second");
    assert!(gap < bounds.gap, "{what}: no commit for {gap:?}");
    assert!(back < bounds.back, "{what}: back after {back:?}");
    assert!(grown < bounds.memory_kb, "{what}: {grown} kB more memory");
    let lines_max = LINES + LINES_PER_SECOND * lasted.as_secs() as usize;
    assert!(lines < lines_max, "{what}: {lines} lines in a log, of {lines_max} at most");
}

struct Flood {
    what: &'static str,
    /// Attempts per second of all attackers together, if the machine has the time.
    rate: u32,
    attempt: Attempt,
}

/// Threads that attack until they are stopped.
struct Running {
    stop: Arc<AtomicBool>,
    attempts: Arc<AtomicU64>,
    begun: Instant,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    fn start(self, targets: &[SocketAddrV4]) -> Running {
        let (stop, attempts, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Instant::now());
        let threads = (0..ATTACKERS)
            .map(|_| {
                let (stop, attempts, attempt, targets) =
                    (stop.clone(), attempts.clone(), self.attempt.clone(), targets.to_vec());
                let pause = SECOND * ATTACKERS as u32 / self.rate;
                std::thread::spawn(move || {
                    let (mut held, mut due) = (VecDeque::new(), begun);
                    while !stop.load(Ordering::Relaxed) {
                        let n = attempts.fetch_add(1, Ordering::Relaxed);
                        held.extend(attempt(n, targets[(n % targets.len() as u64) as usize]));
                        if held.len() > HELD / ATTACKERS as usize {
                            held.pop_front();
                        }
                        due += pause;
                        std::thread::sleep(due.saturating_duration_since(Instant::now()));
                        // Missed attempts are not made up for at once.
                        due = due.max(Instant::now() - SECOND / 10);
                    }
                })
            })
            .collect();
        Running { stop, attempts, begun, threads }
    }
}

impl Running {
    fn await_attempts(&self, attempts: u64) {
        eventually(&format!("a flood of {attempts}"), || match self.attempts.load(Ordering::Relaxed) {
            made if made < attempts => Err(format!("{made}")),
            _ => Ok(()),
        });
    }

    /// How many attempts were made, and for how long.
    fn stop(mut self) -> (u64, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| handed_on(thread.join()));
        (self.attempts.load(Ordering::Relaxed), self.begun.elapsed())
    }
}

fn memory_kb(cluster: &Cluster, n: u8) -> u64 {
    let pid = cluster.node(node(n)).unwrap().pid.expect("it runs");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("every process has it");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).expect("a number")
}
