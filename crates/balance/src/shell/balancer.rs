//! The pool with a lock around it, and its outputs carried out.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use crate::address::Address;
use crate::config::Config;
use crate::health::Heard;
use crate::pool::{Choice, ListenerId, NodeId, Output, Pool, Role, SessionId};
use crate::report::Pushed;
use crate::shell::lookout;
use crate::shell::output::Log;
use crate::shell::proof::{Proof, prove};
use crate::shell::pump::Traffic;
use crate::shell::split::Counts;

/// Since the start.
#[derive(Debug, Default)]
pub struct Totals {
    pub accepted: AtomicU64,
    /// Refused with an error packet, by reason.
    pub refused_limit: AtomicU64,
    pub refused_unfit: AtomicU64,
    /// Clients that had to wait for a server, and of those, that got one.
    pub held: AtomicU64,
    pub held_served: AtomicU64,
    /// Clients that broke the PROXY protocol, or went away before they had a server.
    pub broken: AtomicU64,
    pub accept_errors: AtomicU64,
    /// Events of monitors.
    pub pushed: AtomicU64,
}

pub struct Balancer {
    inner: Mutex<Inner>,
    config: RwLock<Arc<Config>>,
    changed: Notify,
    /// Look more often, and look now: whenever the number changes.
    hurry: watch::Sender<(bool, u64)>,
    log: Log,
    pub totals: Totals,
    pub split: Counts,
    /// Clients that are connected.
    clients: AtomicUsize,
    /// As many as are allowed.
    clients_max: AtomicUsize,
    /// No new clients: it ends with the last session.
    pub leaving: AtomicBool,
    pub idle: Notify,
    pub began: Instant,
    chance: AtomicU64,
}

struct Inner {
    pool: Pool,
    ends: HashMap<SessionId, Arc<Notify>>,
    /// The task of each, and a sign to it to log in again.
    lookouts: HashMap<NodeId, (AbortHandle, Arc<Notify>)>,
    /// Of servers that answered reads of `--split`, where these do not wait each for themselves.
    proofs: HashMap<NodeId, (AbortHandle, Arc<Proof>)>,
    traffic: HashMap<NodeId, Arc<Traffic>>,
    /// Traffic of servers that are removed.
    past: Traffic,
}

/// A session that the pool has begun. Dropping it ends it.
pub struct Session {
    balancer: Arc<Balancer>,
    id: SessionId,
    pub node: NodeId,
    pub address: Address,
    pub traffic: Arc<Traffic>,
    /// The session must end.
    pub end: Arc<Notify>,
}

impl Session {
    pub fn greeted(&self) {
        self.balancer.with(|pool, _| pool.handle_greeting(self.id));
    }

    /// It was a reader's, and gets the writes from now on.
    pub fn promote(&self) {
        self.balancer.with(|pool, _| pool.handle_promotion(self.id));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut inner = self.balancer.lock();
        inner.ends.remove(&self.id);
        inner.pool.handle_end(self.id);
        self.balancer.carry_out(&mut inner);
    }
}

/// One of the places for clients. Dropping it frees it.
pub struct Place(Arc<Balancer>);

impl Drop for Place {
    fn drop(&mut self) {
        if self.0.clients.fetch_sub(1, Relaxed) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

impl Balancer {
    pub fn new(config: Config, clients_max: usize, log: Log, seed: u64) -> Arc<Balancer> {
        Arc::new(Balancer {
            inner: Mutex::new(Inner {
                pool: Pool::new(config.settings.clone(), seed),
                ends: HashMap::new(),
                lookouts: HashMap::new(),
                proofs: HashMap::new(),
                traffic: HashMap::new(),
                past: Traffic::default(),
            }),
            config: RwLock::new(Arc::new(config)),
            changed: Notify::new(),
            hurry: watch::channel((false, 0)).0,
            log,
            totals: Totals::default(),
            split: Counts::default(),
            clients: AtomicUsize::new(0),
            clients_max: AtomicUsize::new(clients_max),
            leaving: AtomicBool::new(false),
            idle: Notify::new(),
            began: Instant::now(),
            chance: AtomicU64::new(seed),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic while the pool is held: its operations check what comes from outside")
    }

    /// An input to the pool; its outputs are carried out before this returns.
    pub fn with<R>(self: &Arc<Self>, act: impl FnOnce(&mut Pool, Instant) -> R) -> R {
        let mut inner = self.lock();
        let result = act(&mut inner.pool, Instant::now());
        self.carry_out(&mut inner);
        result
    }

    fn carry_out(self: &Arc<Self>, inner: &mut Inner) {
        while let Some(output) = inner.pool.poll_output() {
            match output {
                Output::Watch(id, address) => {
                    inner.traffic.entry(id).or_default();
                    let log_in = Arc::new(Notify::new());
                    let task = tokio::spawn(lookout::watch(self.clone(), id, address, log_in.clone()));
                    if let Some((old, _)) = inner.lookouts.insert(id, (task.abort_handle(), log_in)) {
                        old.abort();
                    }
                }
                Output::Unwatch(id) => {
                    if let Some((task, _)) = inner.lookouts.remove(&id) {
                        task.abort();
                    }
                    if let Some((task, _)) = inner.proofs.remove(&id) {
                        task.abort();
                    }
                    if let Some(traffic) = inner.traffic.remove(&id) {
                        inner.past.add(&traffic);
                    }
                }
                Output::Close(id) => {
                    if let Some(end) = inner.ends.get(&id) {
                        end.notify_one();
                    }
                }
                Output::Log(line) => self.log.line(&line),
                Output::Changed => self.changed.notify_waiters(),
                Output::Free => self.changed.notify_one(),
                Output::LogIn(id) => {
                    if let Some((_, log_in)) = inner.lookouts.get(&id) {
                        log_in.notify_one();
                    }
                }
                Output::Hurry(hurry) => self.hurry.send_modify(|(old, _)| *old = hurry),
                Output::Look => self.hurry.send_modify(|(_, times)| *times += 1),
            }
        }
    }

    /// Begins a session, or says why there is none at present.
    pub fn begin(
        self: &Arc<Self>,
        listener: ListenerId,
        source: Option<std::net::IpAddr>,
        tried: &[NodeId],
    ) -> Result<Session, crate::pool::Nobody> {
        self.begin_by(|pool, now| pool.begin(listener, source, tried, now))
    }

    /// The same with a role that is not the listener's.
    pub fn begin_as(
        self: &Arc<Self>,
        role: Role,
        listener: ListenerId,
        source: Option<std::net::IpAddr>,
        tried: &[NodeId],
    ) -> Result<Session, crate::pool::Nobody> {
        self.begin_by(|pool, now| pool.begin_as(role, listener, source, tried, now))
    }

    fn begin_by(
        self: &Arc<Self>,
        choose: impl FnOnce(&mut Pool, Instant) -> Choice,
    ) -> Result<Session, crate::pool::Nobody> {
        let mut inner = self.lock();
        let choice = choose(&mut inner.pool, Instant::now());
        let result = match choice {
            Choice::Wait(nobody) => Err(nobody),
            Choice::Go { session, node, address } => {
                let end = Arc::new(Notify::new());
                inner.ends.insert(session, end.clone());
                let traffic = inner.traffic.get(&node).cloned().unwrap_or_default();
                Ok(Session { balancer: self.clone(), id: session, node, address, traffic, end })
            }
        };
        self.carry_out(&mut inner);
        result
    }

    pub fn heard(self: &Arc<Self>, id: NodeId, heard: Heard) {
        self.with(|pool, now| pool.handle_heard(id, heard, now));
    }

    /// Of a server that has a session.
    pub fn proof(self: &Arc<Self>, session: &Session) -> Arc<Proof> {
        let begin = || {
            let proof = Arc::new(Proof::default());
            let task = tokio::spawn(prove(self.clone(), session.address.clone(), proof.clone()));
            (task.abort_handle(), proof)
        };
        self.lock().proofs.entry(session.node).or_insert_with(begin).1.clone()
    }

    pub fn pushed(self: &Arc<Self>, pushed: &Pushed) {
        self.totals.pushed.fetch_add(1, Relaxed);
        self.with(|pool, now| pool.handle_pushed(pushed, now));
    }

    pub fn members(self: &Arc<Self>, members: Vec<Address>) {
        self.with(|pool, now| pool.handle_members(members, now));
    }

    pub fn config(&self) -> Arc<Config> {
        self.config.read().expect("only replaced").clone()
    }

    pub fn set_config(&self, config: Config) {
        *self.config.write().expect("only replaced") = Arc::new(config);
    }

    /// Wakes up when a client that waits should ask again.
    pub fn changed(&self) -> &Notify {
        &self.changed
    }

    pub fn hurry(&self) -> watch::Receiver<(bool, u64)> {
        self.hurry.subscribe()
    }

    pub fn log(&self, line: &str) {
        self.log.line(line);
    }

    /// Within a fifth of it, so that looks of many balancers do not fall together.
    pub fn jitter(&self, time: Duration) -> Duration {
        let random = trireme_types::mix(self.chance.fetch_add(1, Relaxed));
        time.mul_f64(0.8 + 0.4 * (random % 1000) as f64 / 1000.0)
    }

    // ---- clients -----------------------------------------------------------------------------------------------

    /// `None`: there are as many as may be.
    pub fn take_place(self: &Arc<Self>) -> Option<Place> {
        let place = Place(self.clone());
        let before = self.clients.fetch_add(1, Relaxed);
        (before < self.clients_max.load(Relaxed)).then_some(place)
    }

    pub fn clients(&self) -> usize {
        self.clients.load(Relaxed)
    }

    pub fn clients_max(&self) -> usize {
        self.clients_max.load(Relaxed)
    }

    pub fn set_clients_max(&self, max: usize) {
        self.clients_max.store(max, Relaxed);
    }

    // ---- looking -----------------------------------------------------------------------------------------------

    /// Bytes to servers, bytes to clients, reads, writes, since the start.
    pub fn carried(&self) -> [u64; 4] {
        let inner = self.lock();
        let all = Traffic::default();
        all.add(&inner.past);
        for traffic in inner.traffic.values() {
            all.add(traffic);
        }
        [&all.to_server_bytes, &all.to_client_bytes, &all.reads, &all.writes].map(|n| n.load(Relaxed))
    }

    pub fn traffic(&self, id: NodeId) -> [u64; 2] {
        match self.lock().traffic.get(&id) {
            Some(traffic) => [traffic.to_server_bytes.load(Relaxed), traffic.to_client_bytes.load(Relaxed)],
            None => [0; 2],
        }
    }
}

impl Traffic {
    fn add(&self, other: &Traffic) {
        self.to_server_bytes.fetch_add(other.to_server_bytes.load(Relaxed), Relaxed);
        self.to_client_bytes.fetch_add(other.to_client_bytes.load(Relaxed), Relaxed);
        self.reads.fetch_add(other.reads.load(Relaxed), Relaxed);
        self.writes.fetch_add(other.writes.load(Relaxed), Relaxed);
    }
}
