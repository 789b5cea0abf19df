//! One client: one operation after the other on its own node, each with what it was told.

use crate::stalls;
use crate::through::node_of;
use crate::timeline::Span;
use crate::workload::{Failure, Moment, SCHEMA, Work};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trireme_cluster::Dice;
use trireme_cluster::{Endpoint, NodeId, Session, SqlError};
use trireme_history::{Isolation, Micros, Operation, Outcome};

/// A client gives up on an answer after this time. Longer than any fault that the others sit out unnoticed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between attempts to reach a node that refuses.
const PAUSE: Duration = Duration::from_millis(20);

/// The server itself says that the outcome is open, or was interrupted in the midst of a commit.
const MAY_HAVE_HAPPENED: [u16; 6] = [
    3,    // EE_WRITE: the disk of the binary log failed when the transaction had its place
    1026, // ER_ERROR_ON_WRITE: the same of a table
    1053, // ER_SERVER_SHUTDOWN
    ERROR_DURING_COMMIT,
    1317, // ER_QUERY_INTERRUPTED
    1927, // ER_CONNECTION_KILLED
];

/// The provider answers this when it does not know, and, with a text that says so, for a commit that nobody was given.
const ERROR_DURING_COMMIT: u16 = 1180;
const GIVEN_TO_NOBODY: &str = "Not connected to Primary Component";

/// The state that all clients share.
pub(crate) struct Clients {
    began: Instant,
    stop: AtomicBool,
    /// Acknowledged operations that changed data.
    commits: AtomicU64,
    /// The node of the last of them; 0: none yet.
    last_node: AtomicU8,
    work: Box<dyn Work>,
    isolation: Isolation,
    sync_wait: u8,
    /// From one operation of a client to its next.
    pace: Duration,
}

/// Where a client connects.
#[derive(Clone, Debug)]
pub(crate) enum Door {
    /// To this node.
    Node(Endpoint),
    /// To a balancer, which chooses.
    Front(PathBuf),
}

impl Door {
    fn socket(&self) -> &Path {
        match self {
            Door::Node(endpoint) => endpoint.socket(),
            Door::Front(socket) => socket,
        }
    }

    /// A session, and the node that it is on.
    fn enter(&self, clients: &Clients) -> Result<(Session, NodeId), SqlError> {
        let mut session = clients.session(self.socket(), clients.sync_wait)?;
        let node = match self {
            Door::Node(endpoint) => endpoint.node,
            Door::Front(_) => node_of(&mut session)?,
        };
        Ok((session, node))
    }
}

/// The running clients.
pub(crate) struct Load {
    clients: Arc<Clients>,
    threads: Vec<JoinHandle<Recorded>>,
    stalls: Option<JoinHandle<Vec<Span>>>,
}

/// The records of one client or of all.
#[derive(Default)]
pub(crate) struct Recorded {
    pub operations: Vec<Operation>,
    /// How often each error was seen, also when connecting.
    pub errors: BTreeMap<String, u64>,
    /// When the machine kept everybody waiting.
    pub stalls: Vec<Span>,
}

impl Clients {
    pub fn new(work: Box<dyn Work>, isolation: Isolation, sync_wait: u8, pace: Duration) -> Clients {
        Clients {
            began: Instant::now(),
            stop: AtomicBool::new(false),
            commits: AtomicU64::new(0),
            last_node: AtomicU8::new(0),
            work,
            isolation,
            sync_wait,
            pace,
        }
    }

    pub fn work(&self) -> &dyn Work {
        &*self.work
    }

    pub fn now(&self) -> Micros {
        Micros(u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A session set up as the run demands.
    pub fn session(&self, socket: &Path, sync_wait: u8) -> Result<Session, SqlError> {
        let mut session = Session::open(socket, Some(SCHEMA), PATIENCE)?;
        let level = match self.isolation {
            Isolation::ReadCommitted => "READ COMMITTED",
            // The difference between the two is a setting of the server.
            Isolation::RepeatableRead | Isolation::Snapshot => "REPEATABLE READ",
            Isolation::Serializable => "SERIALIZABLE",
        };
        session.query(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"))?;
        session.query(&format!("SET SESSION wsrep_sync_wait = {sync_wait}"))?;
        Ok(session)
    }
}

impl Load {
    /// Client `i` goes door `i` modulo the number of doors.
    pub fn start(clients: Clients, doors: &[Door], number: u32, dice: &mut Dice) -> Load {
        let clients = Arc::new(clients);
        let threads = (0..number)
            .zip(doors.iter().cycle())
            .map(|(process, door)| {
                let (clients, door, dice) = (clients.clone(), door.clone(), dice.split());
                std::thread::spawn(move || work(&clients, &door, process, dice))
            })
            .collect();
        let watched = clients.clone();
        let stalls = Some(std::thread::spawn(move || stalls::watch(&watched)));
        Load { clients, threads, stalls }
    }

    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    pub fn commits(&self) -> u64 {
        self.clients.commits.load(Ordering::Relaxed)
    }

    /// The node that acknowledged the last commit.
    pub fn last_node(&self) -> Option<NodeId> {
        NodeId::new(self.clients.last_node.load(Ordering::Relaxed))
    }

    /// Lets every client finish its operation.
    pub fn finish(mut self) -> (Arc<Clients>, Recorded) {
        self.clients.stop.store(true, Ordering::Relaxed);
        let stalls = self.stalls.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let mut all = Recorded { stalls, ..Recorded::default() };
        for thread in self.threads.drain(..) {
            let Ok(recorded) = thread.join() else { panic!("a client thread panicked; its message is above") };
            all.operations.extend(recorded.operations);
            for (error, n) in recorded.errors {
                *all.errors.entry(error).or_default() += n;
            }
        }
        all.operations.sort_by_key(|operation| operation.invoked);
        (self.clients.clone(), all)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.clients.stop.store(true, Ordering::Relaxed);
    }
}

fn work(clients: &Clients, door: &Door, process: u32, mut dice: Dice) -> Recorded {
    let mut recorded = Recorded::default();
    let mut session: Option<(Session, NodeId)> = None;
    let mut due = Instant::now();
    while !clients.stopped() {
        let Some((open, node)) = &mut session else {
            match door.enter(clients) {
                Ok(fresh) => session = Some(fresh),
                Err(error) => {
                    *recorded.errors.entry(name(&error)).or_default() += 1;
                    std::thread::sleep(PAUSE);
                }
            }
            continue;
        };
        // Missed turns are not made up for: a storm after each fault would say nothing.
        due = (due + clients.pace).max(Instant::now() - clients.pace);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));

        let mut body = clients.work.next(&mut dice);
        let invoked = clients.now();
        let answer = clients.work.run(open, &mut body);
        let answered = clients.now();
        let outcome = match &answer {
            Ok(()) => Outcome::Ok,
            Err(failure) => outcome(failure),
        };
        let error = answer.as_ref().err().map(|failure| failure.error.to_string());
        let operation = Operation {
            process,
            node: node.raw(),
            invoked,
            completed: (outcome != Outcome::Unknown).then_some(answered),
            outcome,
            error,
            last: false,
            body,
        };
        if outcome == Outcome::Ok && operation.writes() {
            clients.commits.fetch_add(1, Ordering::Relaxed);
            clients.last_node.store(node.raw(), Ordering::Relaxed);
        }
        recorded.operations.push(operation);
        if let Err(Failure { error, .. }) = answer {
            *recorded.errors.entry(name(&error)).or_default() += 1;
            let usable = !matches!(error, SqlError::Connection(_)) && open.query("ROLLBACK").is_ok();
            if !usable {
                session = None;
            }
            if error.code() == Some(NOT_PREPARED) {
                std::thread::sleep(PAUSE);
            }
        }
    }
    recorded
}

/// ER_UNKNOWN_COM_ERROR, by which a node outside the primary component refuses.
const NOT_PREPARED: u16 = 1047;

/// The conclusion that an application may draw. Any other answer than these promises that nothing happened, and is held to
/// it.
fn outcome(failure: &Failure) -> Outcome {
    match (failure.at, &failure.error) {
        (Moment::BeforeCommit, _) => Outcome::Failed,
        (Moment::AtCommit, SqlError::Connection(_)) => Outcome::Unknown,
        (Moment::AtCommit, SqlError::Server { code: ERROR_DURING_COMMIT, text, .. })
            if text.contains(GIVEN_TO_NOBODY) =>
        {
            Outcome::Failed
        }
        (Moment::AtCommit, SqlError::Server { code, .. }) if MAY_HAVE_HAPPENED.contains(code) => Outcome::Unknown,
        (Moment::AtCommit, SqlError::Server { .. } | SqlError::Protocol(_)) => Outcome::Failed,
    }
}

/// For counting: the number where there is one.
fn name(error: &SqlError) -> String {
    match error {
        SqlError::Server { code, .. } => code.to_string(),
        SqlError::Connection(error) => match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => "no answer in time".to_owned(),
            _ => "no connection".to_owned(),
        },
        SqlError::Protocol(what) => (*what).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: u16) -> SqlError {
        said(code, "")
    }

    fn said(code: u16, text: &str) -> SqlError {
        SqlError::Server { code, state: "HY000".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn only_a_commit_can_be_in_doubt() {
        let broken = || SqlError::Connection(std::io::ErrorKind::BrokenPipe.into());
        assert_eq!(outcome(&Failure { error: broken(), at: Moment::BeforeCommit }), Outcome::Failed);
        assert_eq!(outcome(&Failure { error: broken(), at: Moment::AtCommit }), Outcome::Unknown);
        assert_eq!(outcome(&Failure { error: server(1180), at: Moment::AtCommit }), Outcome::Unknown);
        let nobody = "… (provider status: Not connected to Primary Component)";
        assert_eq!(outcome(&Failure { error: said(1180, nobody), at: Moment::AtCommit }), Outcome::Failed);
        // A deadlock is a promise.
        assert_eq!(outcome(&Failure { error: server(1213), at: Moment::AtCommit }), Outcome::Failed);
    }
}
