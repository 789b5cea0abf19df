//! The servers, the sessions on them, and who gets the next client.
//!
//! One [`Pool`]. Inputs: `handle_*` with what was heard of servers and sessions, [`Pool::begin`] for a client that asks, the
//! operator's commands, and [`Pool::handle_time`] at least as often as [`TICK`]. Outputs come from [`Pool::poll_output`] and are drained
//! after each input. Time is an argument; nothing here waits, and no server is called.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::health::{Fitness, Health, Heard, Verdict, Why, Word};
use crate::policy::{self, Chooser, Policy};
use crate::report::{Pushed, Report};
use crate::writer::{self, Writer};

/// A server in this process's table; never used again after its removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// One client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// Where clients come in, by its place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u32);

/// Which servers a listener leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The one that gets the writes.
    Writer,
    /// All but that one; that one too if there is no other.
    Reader,
    Any,
    /// The writer, and a reader besides for clients whose statements are read.
    Split,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Writer => "writer",
            Role::Reader => "reader",
            Role::Any => "any",
            Role::Split => "split",
        }
    }
}

/// Time between two calls of [`Pool::handle_time`].
pub const TICK: Duration = Duration::from_millis(100);
/// A table never has more servers; more in a server's list are ignored.
pub const NODES_MAX: usize = 128;
/// A server that was found, that nobody lists any more and that does not serve is forgotten after so long.
pub const FORGET: Duration = Duration::from_secs(60);
/// After an outage the others are asked more often for so long: who orders now, and whether there is a majority, shows within this time.
const AFTERMATH: Duration = Duration::from_secs(2);
/// Weights follow the time of answers when it has changed by more than this part. The same as GLB's, so that they do not change all the time.
const TOLERANCE: f64 = 0.1;
/// After so many clients that left a server in the middle of its login we make a whole one. A server counts the former for each host, refuses that
/// host after max_connect_errors of them (100), and forgets them at the latter.
const BROKEN_MAX: u32 = 20;
/// A server that returns begins with this part of its weight.
const RAMP_START: f64 = 0.1;

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// An answer older than this says nothing about the order and about others.
    pub fresh: Duration,
    /// Sessions of a writer that lives but is not the writer any more end after this.
    pub grace: Duration,
    /// A server that comes back gets its whole weight after this.
    pub ramp: Duration,
    /// Sessions on one server at most.
    pub node_limit: usize,
    /// Connections to one server that are being made, at most: a storm is handed on at the pace at which it greets them.
    pub connecting_limit: usize,
    /// Members of the group that nobody named are used too.
    pub discover: bool,
    /// Servers of this segment come first for readers and any.
    pub segment: Option<u8>,
    /// Weights are corrected by how long the servers take to answer.
    pub by_latency: bool,
}

/// A request to the shell, which owns the sockets.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Look after this server from now on, by this address and no other.
    Watch(NodeId, Address),
    Unwatch(NodeId),
    /// End this session.
    Close(SessionId),
    /// A line for the operator.
    Log(String),
    /// Clients that wait may have somewhere to go.
    Changed,
    /// One of them may.
    Free,
    /// Make a whole login there now, as a client would, and tell how it went.
    LogIn(NodeId),
    /// From now on, or no longer: look more often, as some server is late with its answer, knows of no sequencer, or went out just now.
    Hurry(bool),
    /// Look at all servers now: there is news of one.
    Look,
}

/// The answer to a client that asks for a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// This session is begun, and must be ended by [`Pool::handle_end`].
    Go { session: SessionId, node: NodeId, address: Address },
    /// At present nobody: ask again after [`Output::Changed`] or [`Output::Free`].
    Wait(Nobody),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nobody {
    /// No server is fit.
    Fit,
    /// Those that are fit have as many sessions as they may.
    Free,
    /// All that are fit were tried for this client in vain.
    Left,
}

impl fmt::Display for Nobody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Nobody::Fit => "no server is ready",
            Nobody::Free => "every server has as many connections as it may",
            Nobody::Left => "no server takes the connection",
        })
    }
}

/// The way a server came into the table, which says how it leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The configuration names it.
    Configured,
    /// A command added it: it stays until a command removes it.
    Added,
    /// A member listed it: it is forgotten when nobody does and it does not serve.
    Found,
    /// The configuration does not name it any more. It gets no clients, and goes with the last one that it has.
    Leaving,
}

#[derive(Debug)]
pub struct Node {
    pub id: NodeId,
    pub address: Address,
    /// Its address, hashed.
    key: u64,
    pub weight: f64,
    /// The reason why it is in the table.
    pub cause: Cause,
    pub drained: bool,
    pub health: Health,
    pub fitness: Fitness,
    /// Since when it may get clients. `None` for one that could from the beginning, which needs no ramp.
    pub returned: Option<Instant>,
    /// When it last went out.
    went: Option<Instant>,
    pub connections: usize,
    pub connecting: usize,
    pub counters: Counters,
    /// Smoothed time of an answer.
    pub latency: Option<Duration>,
    /// The slowest server's time of an answer in multiples of its own, as far as the weights follow it.
    pace: f64,
    /// When a member last listed it. Those that were found were listed at least once.
    listed: Option<Instant>,
    /// Fitness was known once.
    seen: bool,
    /// Clients that left in the middle of a login, since we made a whole one.
    broken: u32,
    /// A monitor beside it said last that it lives; or there is none.
    told_alive: bool,
}

/// Since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Sessions that this server got.
    pub opened: u64,
    /// Connections to it that failed; their clients were sent elsewhere.
    pub failed: u64,
    /// Sessions that were ended because it was out, or not the writer any more.
    pub closed: u64,
    /// Number of times that it went out.
    pub outages: u64,
}

impl Node {
    /// An operator named it; it was not just found.
    pub fn is_given(&self) -> bool {
        match self.cause {
            Cause::Configured | Cause::Added | Cause::Leaving => true,
            Cause::Found => false,
        }
    }

    /// May it get new clients, as far as the operator is concerned?
    fn is_open(&self) -> bool {
        !self.drained && self.weight > 0.0 && self.cause != Cause::Leaving
    }

    /// The name that its operator gave it, or its address.
    pub fn name(&self) -> String {
        match self.health.report().and_then(Report::member) {
            Some(member) if !member.name.is_empty() => member.name.clone(),
            Some(_) | None => self.address.to_string(),
        }
    }

    fn is_listed(&self, now: Instant) -> bool {
        self.listed.is_some_and(|at| now.saturating_duration_since(at) <= FORGET)
    }

    fn label(&self) -> String {
        match self.health.report().and_then(Report::member) {
            Some(member) if !member.name.is_empty() => format!("{} ({})", self.address, member.name),
            Some(_) | None => self.address.to_string(),
        }
    }
}

#[derive(Debug)]
struct Listener {
    role: Role,
    chooser: Chooser,
    /// For sessions with another role than the listener's. A chooser forgets servers that it cannot choose, so each role has one.
    other: Chooser,
}

impl Listener {
    fn chooser(&mut self, role: Role) -> &mut Chooser {
        match role == self.role {
            true => &mut self.chooser,
            false => &mut self.other,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Session {
    node: NodeId,
    role: Role,
    connecting: bool,
}

#[derive(Debug)]
pub struct Pool {
    settings: Settings,
    nodes: BTreeMap<NodeId, Node>,
    next_node: u32,
    /// Other addresses of servers in the table.
    aliases: HashMap<Address, NodeId>,
    /// Removed by the operator, by all their addresses: not found again.
    banned: Vec<BTreeSet<Address>>,
    listeners: BTreeMap<ListenerId, Listener>,
    sessions: HashMap<SessionId, Session>,
    next_session: u64,
    writer: Writer,
    /// Writers that are it no more, and when their sessions end.
    leaving: BTreeMap<NodeId, Instant>,
    writer_changes: u64,
    hurry: bool,
    seed: u64,
    outputs: VecDeque<Output>,
}

impl Pool {
    pub fn new(settings: Settings, seed: u64) -> Pool {
        Pool {
            settings,
            nodes: BTreeMap::new(),
            next_node: 1,
            aliases: HashMap::new(),
            banned: Vec::new(),
            listeners: BTreeMap::new(),
            sessions: HashMap::new(),
            next_session: 1,
            writer: Writer::default(),
            leaving: BTreeMap::new(),
            writer_changes: 0,
            hurry: false,
            seed,
            outputs: VecDeque::new(),
        }
    }

    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    // ---- looking ---------------------------------------------------------------------------------------------

    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    pub fn writer(&self) -> Option<NodeId> {
        self.writer.current()
    }

    pub fn writer_changes(&self) -> u64 {
        self.writer_changes
    }

    /// The server at this address, or with this name.
    pub fn find(&self, text: &str) -> Option<NodeId> {
        let address = Address::server(text, crate::address::MYSQL_PORT).ok();
        let by_address = self.nodes.values().find(|node| Some(&node.address) == address.as_ref());
        let by_alias = || address.as_ref().and_then(|address| self.aliases.get(address)).copied();
        by_address.map(|node| node.id).or_else(by_alias).or_else(|| self.named(text))
    }

    /// The server that calls itself so.
    pub fn named(&self, name: &str) -> Option<NodeId> {
        self.nodes.values().find(|node| node.name() == name).map(|node| node.id)
    }

    /// Would a client of this listener get a server?
    pub fn serves(&self, role: Role) -> bool {
        !self.fit_for(role).is_empty()
    }

    // ---- configuration ---------------------------------------------------------------------------------------

    pub fn add_listener(&mut self, id: ListenerId, role: Role, policy: Policy, top: bool) {
        let chooser = || Chooser::new(policy, top, self.seed ^ u64::from(id.0));
        self.listeners.insert(id, Listener { role, chooser: chooser(), other: chooser() });
    }

    pub fn remove_listener(&mut self, id: ListenerId) {
        self.listeners.remove(&id);
    }

    /// Adds a server, or changes the weight of one that is there. A weight of 0 drains it.
    pub fn set_node(&mut self, address: Address, weight: f64, now: Instant) -> Result<NodeId, String> {
        self.put(address, weight, Cause::Added, now)
    }

    fn put(&mut self, address: Address, weight: f64, cause: Cause, now: Instant) -> Result<NodeId, String> {
        if !weight.is_finite() || weight < 0.0 {
            return Err(format!("{weight} is no weight: 0 or more"));
        }
        self.banned.retain(|server| !server.contains(&address));
        let id = match self.at(&address) {
            Some(id) => id,
            None => self.insert(address, cause, now)?,
        };
        let node = self.nodes.get_mut(&id).expect("found or inserted");
        // A command that changes the weight of one in the configuration leaves it there.
        if node.cause != Cause::Configured {
            node.cause = cause;
        }
        node.weight = weight;
        self.review(now);
        self.outputs.push_back(Output::Changed);
        Ok(id)
    }

    pub fn set_weight(&mut self, id: NodeId, weight: f64, now: Instant) -> Result<(), String> {
        let address = self.nodes.get(&id).ok_or("there is no such server")?.address.clone();
        self.set_node(address, weight, now).map(drop)
    }

    /// No new sessions from now on. With `close`, those that are open end at once.
    pub fn drain(&mut self, id: NodeId, close: bool, now: Instant) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.drained = true;
            self.review(now);
            if close {
                self.close_sessions(id, |_| true);
            }
        }
    }

    pub fn undrain(&mut self, id: NodeId, now: Instant) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.drained = false;
            if node.cause == Cause::Leaving {
                node.cause = Cause::Added;
            }
            self.review(now);
            self.outputs.push_back(Output::Changed);
        }
    }

    /// Takes a server out of the table and ends its sessions.
    pub fn remove(&mut self, id: NodeId, now: Instant) {
        if let Some(node) = self.nodes.get(&id) {
            let others = self.aliases.iter().filter(|(_, of)| **of == id).map(|(address, _)| address);
            // Members list it by an address, and its operator may have named it by a name.
            self.banned.push(others.chain([&node.address]).cloned().collect());
            self.drop_node(id, "removed");
            self.review(now);
        }
    }

    /// A new configuration. Its servers come in; those that it names no more get no clients from now on, unless a member lists them, and go with
    /// their last session. Those that a command added stay. An error: nothing was changed.
    pub fn configure(&mut self, settings: Settings, given: &[(Address, f64)], now: Instant) -> Result<(), String> {
        let new: BTreeSet<&Address> =
            given.iter().map(|(address, _)| address).filter(|address| self.at(address).is_none()).collect();
        if self.nodes.len() + new.len() > NODES_MAX {
            return Err(format!("{} more servers are too many: {NODES_MAX} is the limit", new.len()));
        }
        self.settings = settings;
        for (address, weight) in given {
            let id = self.put(address.clone(), *weight, Cause::Configured, now)?;
            self.nodes.get_mut(&id).expect("just put").cause = Cause::Configured;
        }
        let named: BTreeSet<NodeId> = given.iter().filter_map(|(address, _)| self.at(address)).collect();
        let gone: Vec<NodeId> = self
            .nodes
            .values()
            .filter(|node| node.cause == Cause::Configured && !named.contains(&node.id))
            .map(|node| node.id)
            .collect();
        for id in gone {
            let listed = self.settings.discover && self.nodes[&id].is_listed(now);
            let node = self.nodes.get_mut(&id).expect("just found");
            if listed {
                node.cause = Cause::Found;
                continue;
            }
            node.cause = Cause::Leaving;
            let (label, left) = (node.label(), node.connections);
            if left > 0 {
                self.log(format!("{label}: not in the configuration any more: no new clients, {left} sessions go on"));
            }
            self.drop_if_left(id);
        }
        self.review(now);
        self.outputs.push_back(Output::Changed);
        Ok(())
    }

    /// One that the configuration does not name any more goes with its last session.
    fn drop_if_left(&mut self, id: NodeId) {
        if self.nodes.get(&id).is_some_and(|node| node.cause == Cause::Leaving && node.connections == 0) {
            self.drop_node(id, "not in the configuration any more");
        }
    }

    /// Named or known by this address.
    fn at(&self, address: &Address) -> Option<NodeId> {
        let named = self.nodes.values().find(|node| node.address == *address).map(|node| node.id);
        named.or_else(|| self.aliases.get(address).copied())
    }

    fn insert(&mut self, address: Address, cause: Cause, now: Instant) -> Result<NodeId, String> {
        if self.nodes.len() >= NODES_MAX {
            return Err(format!("there are {NODES_MAX} servers already, which is the limit"));
        }
        let id = NodeId(self.next_node);
        self.next_node += 1;
        self.outputs.push_back(Output::Watch(id, address.clone()));
        self.nodes.insert(
            id,
            Node {
                id,
                key: address.hash(),
                address,
                weight: 1.0,
                cause,
                drained: false,
                health: Health::default(),
                fitness: Fitness::Out(Why::Unseen),
                returned: None,
                went: None,
                connections: 0,
                connecting: 0,
                counters: Counters::default(),
                latency: None,
                pace: 1.0,
                listed: (cause == Cause::Found).then_some(now),
                seen: false,
                broken: 0,
                told_alive: true,
            },
        );
        Ok(id)
    }

    fn drop_node(&mut self, id: NodeId, why: &str) {
        self.close_sessions(id, |_| true);
        if let Some(node) = self.nodes.remove(&id) {
            self.log(format!("{}: {why}", node.label()));
            self.aliases.retain(|_, other| *other != id);
            self.leaving.remove(&id);
            self.outputs.push_back(Output::Unwatch(id));
        }
    }

    // ---- what was heard --------------------------------------------------------------------------------------

    /// `id`: may be of a server that was removed meanwhile.
    pub fn handle_heard(&mut self, id: NodeId, heard: Heard, now: Instant) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let mut lists = Vec::new();
        let took = match &heard {
            Heard::Answer(report) => Some(report.took),
            Heard::Watchdog(Verdict::Ready, took) => *took,
            Heard::Watchdog(Verdict::NotFound | Verdict::NotReady | Verdict::Avoid, _) => None,
            Heard::Late | Heard::TimedOut | Heard::Refused(_) | Heard::Full(_) => None,
            Heard::LoginDenied(_) | Heard::Wrong(_) => None,
        };
        if let Some(took) = took {
            node.latency = Some(node.latency.map_or(took, |old| (old * 7 + took) / 8));
        }
        if let Heard::Answer(report) = &heard {
            // A member outside of the primary component lists what it saw last.
            lists = report.member().filter(|m| m.primary).map(|m| m.addresses.clone()).unwrap_or_default();
        }
        node.health.handle(heard, now);
        self.unify(id, now);
        self.discover(lists, now);
        self.review(now);
    }

    /// A monitor tells how a member sees the order. Servers that no monitor tells about are asked.
    pub fn handle_pushed(&mut self, pushed: &Pushed, now: Instant) {
        let named = |node: &Node| node.health.report().and_then(Report::member).is_some_and(|m| m.name == pushed.name);
        // Two members with one name: nobody can say which one is meant.
        let mut found = self.nodes.values_mut().filter(|node| named(node));
        let (Some(node), None) = (found.next(), found.next()) else { return };
        let news = node.health.handle_pushed(pushed, now);
        if news || pushed.alive != node.told_alive {
            node.told_alive = pushed.alive;
            self.outputs.push_back(Output::Look);
            self.review(now);
        }
    }

    /// Takes the other members that a watchdog script lists.
    pub fn handle_members(&mut self, lists: Vec<Address>, now: Instant) {
        self.discover(lists, now);
        self.review(now);
    }

    /// A connection of a client to this server was refused or reset before it greeted: as good as a look.
    pub fn handle_refusal(&mut self, id: NodeId, error: String, now: Instant) {
        self.handle_heard(id, Heard::Refused(error), now);
    }

    /// A client has left a connection that this server had not answered yet: to the server a broken login from our host.
    pub fn handle_broken_login(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.broken += 1;
        if node.broken >= BROKEN_MAX {
            node.broken = 0;
            self.outputs.push_back(Output::LogIn(id));
        }
    }

    /// It told a client that it refuses our host. Over a connection that is open nothing shows that.
    pub fn handle_blocked(&mut self, id: NodeId) {
        self.outputs.push_back(Output::LogIn(id));
    }

    pub fn handle_time(&mut self, now: Instant) {
        self.review(now);
        let due: Vec<NodeId> = self.leaving.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect();
        for id in due {
            self.leaving.remove(&id);
            let closed = self.close_sessions(id, |session| matches!(session.role, Role::Writer | Role::Split));
            if let (true, Some(node)) = (closed > 0, self.nodes.get(&id)) {
                self.log(format!("{}: not the writer any more: {closed} sessions end after the grace", node.label()));
            }
        }
        let forgotten: Vec<NodeId> = self
            .nodes
            .values()
            .filter(|n| !n.is_given() && n.fitness.is_out() && !n.is_listed(now))
            .map(|n| n.id)
            .collect();
        for id in forgotten {
            self.drop_node(id, "forgotten: no member lists it any more");
        }
    }

    /// Two addresses of one server are one server.
    fn unify(&mut self, id: NodeId, now: Instant) {
        let uuid = |node: &Node| {
            let member = node.health.fresh(now, self.settings.fresh)?.member()?;
            (!member.uuid.is_empty()).then(|| member.uuid.clone())
        };
        let Some(own) = self.nodes.get(&id).and_then(uuid) else { return };
        let same: Vec<NodeId> = self.nodes.values().filter(|n| uuid(n).as_ref() == Some(&own)).map(|n| n.id).collect();
        let given = same.iter().copied().min_by_key(|id| (!self.nodes[id].is_given(), *id)).expect("itself at least");
        // The others of those that are given were asked for twice.
        let found: Vec<(NodeId, Address)> = same
            .into_iter()
            .filter(|other| *other != given && !self.nodes[other].is_given())
            .map(|other| (other, self.nodes[&other].address.clone()))
            .collect();
        let Some((oldest, found_at)) = found.first() else { return };
        // The one that was there first has the sessions. One that was named since gives it its name.
        let stays = given.min(*oldest);
        let name = self.nodes[&given].address.clone();
        if stays != given {
            self.rename(stays, given);
            self.drop_node(given, &format!("the same server as {found_at}"));
        }
        for (other, address) in found {
            if other != stays {
                self.drop_node(other, &format!("the same server as {name}"));
            }
            self.aliases.insert(address, stays);
        }
    }

    /// Gives a server what an operator said of it by another address.
    fn rename(&mut self, id: NodeId, from: NodeId) {
        let Node { address, key, weight, cause, drained, .. } = &self.nodes[&from];
        let (address, key, weight, cause, drained) = (address.clone(), *key, *weight, *cause, *drained);
        self.outputs.push_back(Output::Watch(id, address.clone()));
        let node = self.nodes.get_mut(&id).expect("one of the same server");
        (node.address, node.key, node.weight, node.cause) = (address, key, weight, cause);
        node.drained |= drained;
    }

    fn discover(&mut self, lists: Vec<Address>, now: Instant) {
        for address in lists {
            if let Some(id) = self.at(&address) {
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.listed = Some(now);
                }
            } else if self.settings.discover && !self.banned.iter().any(|server| server.contains(&address)) {
                let text = address.to_string();
                match self.insert(address, Cause::Found, now) {
                    Ok(_) => self.log(format!("{text}: found in the list of a member")),
                    Err(_) => return,
                }
            }
        }
    }

    /// The word about this server of a member that is heard and in the primary component; and whether one of them orders in a later term than this
    /// one's last answer is of.
    fn word_of_others(&self, id: NodeId, now: Instant) -> (Option<Word>, bool) {
        let node = &self.nodes[&id];
        let Some(member) = node.health.report().and_then(Report::member) else { return (None, false) };
        let name = &member.name;
        let ordered = node
            .health
            .report()
            .and_then(Report::order)
            .filter(|order| order.sequencer || order.leaderless)
            .map(|order| order.term);
        let gone = |name: &str| {
            let named = |other: &&Node| other.health.report().and_then(Report::member).is_some_and(|m| m.name == name);
            self.nodes
                .values()
                .filter(|other| other.id != id)
                .any(|other| named(&other) && other.fitness.ends_sessions())
        };
        let told = node.health.fresh(now, self.settings.fresh).and_then(Report::order);
        if told.is_some_and(|order| order.leaderless && !order.has_majority(gone)) {
            return (Some(Word::Alone), false);
        }
        let (mut silent, mut word, mut replaced) = (None, None, false);
        for other in self.nodes.values().filter(|other| other.id != id) {
            let Some(member) = other.health.fresh(now, self.settings.fresh).and_then(Report::member) else { continue };
            if !member.primary {
                continue;
            }
            if member.order.as_ref().is_some_and(|order| order.silent.iter().any(|n| n == name)) {
                silent = silent.or(Some(Word::Silent(other.name())));
            }
            // Every list that has it moves `listed` on: this one came later and has it not.
            if node.listed.is_some_and(|listed| other.health.answered().is_some_and(|at| at > listed)) {
                word = Some(Word::Left(other.name()));
            }
            let orders = member.order.as_ref().filter(|order| order.sequencer).map(|order| order.term);
            if ordered.is_some_and(|term| orders.is_some_and(|later| later > term)) {
                word = Some(Word::Replaced(other.name()));
                replaced = true;
            }
        }
        (silent.or(word), replaced)
    }

    /// Draws the conclusions from everything heard so far.
    fn review(&mut self, now: Instant) {
        // Whether one is left alone depends on the others.
        if self.review_nodes(now) {
            self.review_nodes(now);
        }
        self.review_writer(now);
        self.review_paces();
        let hurry = self.nodes.values().any(|node| {
            let missed = matches!(node.fitness, Fitness::LastChoice(Why::Contested(_)));
            let lost = node.health.is_leaderless() || node.health.is_out_of_touch();
            let late = (node.health.is_late() || lost || missed) && !node.fitness.is_out();
            late || node.went.is_some_and(|at| now.saturating_duration_since(at) < AFTERMATH)
        });
        if hurry != self.hurry {
            self.hurry = hurry;
            self.outputs.push_back(Output::Hurry(hurry));
        }
    }

    fn review_paces(&mut self) {
        let fit = |node: &&Node| !node.fitness.is_out();
        let Some(slowest) = self.nodes.values().filter(fit).filter_map(|n| n.latency).max() else { return };
        for node in self.nodes.values_mut() {
            let Some(own) = node.latency else { continue };
            let pace = slowest.as_secs_f64() / own.as_secs_f64().max(1e-6);
            if (node.pace / pace - 1.0).abs() > TOLERANCE {
                node.pace = pace;
            }
        }
    }

    /// Whether one of them changed.
    fn review_nodes(&mut self, now: Instant) -> bool {
        let mut any = false;
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in ids {
            let (word, replaced) = self.word_of_others(id, now);
            let node = self.nodes.get_mut(&id).expect("from the keys");
            node.health.handle_replaced(replaced, now);
            let fitness = node.health.fitness(word.as_ref());
            if fitness == node.fitness {
                continue;
            }
            any = true;
            let old = std::mem::replace(&mut node.fitness, fitness.clone());
            match (old.is_out(), fitness.is_out()) {
                (true, false) => node.returned = node.seen.then_some(now),
                (false, true) => {
                    node.counters.outages += 1;
                    node.went = Some(now);
                }
                (true, true) | (false, false) => {}
            }
            node.seen = true;
            let label = node.label();
            // Reasons may differ in their text only.
            if old.why().map(Why::word) != fitness.why().map(Why::word) {
                self.log(match &fitness {
                    Fitness::Ready => format!("{label}: ready"),
                    Fitness::LastChoice(why) => format!("{label}: last choice: {why}"),
                    Fitness::Out(why) => format!("{label}: out: {why}"),
                });
            }
            if fitness.ends_sessions() && !old.ends_sessions() {
                let closed = self.close_sessions(id, |_| true);
                if closed > 0 {
                    self.log(format!("{label}: {closed} sessions end"));
                }
            }
            self.outputs.push_back(Output::Changed);
        }
        any
    }

    fn review_writer(&mut self, now: Instant) {
        let before = self.writer.current();
        let fresh = self.settings.fresh;
        let order_of = |node: &Node| node.health.fresh(now, fresh).and_then(Report::order).cloned();
        let open = Node::is_open;
        // An operator who drains the sequencer wants another writer now.
        let held_back = self.nodes.values().any(|n| !open(n) && order_of(n).is_some_and(|order| order.sequencer));
        let candidates: Vec<writer::Candidate> = self
            .nodes
            .values()
            .filter(|node| open(node) && !node.fitness.is_out())
            .map(|node| {
                let order = order_of(node);
                writer::Candidate {
                    id: node.id,
                    orders: order.as_ref().filter(|order| order.sequencer).map(|order| order.term),
                    tells: order.is_some() && !held_back,
                    ready: node.fitness == Fitness::Ready,
                    late: node.health.is_late(),
                    index: node.health.report().and_then(Report::member).and_then(|member| member.index),
                    read_only: node.health.report().is_some_and(|report| report.read_only),
                }
            })
            .collect();
        self.writer.decide(&candidates, now);
        let after = self.writer.current();
        if after == before {
            return;
        }
        if let Some(old) = before.filter(|old| self.nodes.contains_key(old)) {
            self.leaving.insert(old, now + self.settings.grace);
        }
        if let Some(new) = after {
            self.leaving.remove(&new);
            self.writer_changes += 1;
            self.log(format!("{}: gets the writes", self.nodes[&new].label()));
        }
        self.outputs.push_back(Output::Changed);
    }

    // ---- sessions --------------------------------------------------------------------------------------------

    /// Chooses a server for a client of `listener`; `tried` are those that did not take it.
    pub fn begin(&mut self, listener: ListenerId, source: Option<IpAddr>, tried: &[NodeId], now: Instant) -> Choice {
        match self.role_of(listener) {
            Some(role) => self.begin_as(role, listener, source, tried, now),
            None => Choice::Wait(Nobody::Fit),
        }
    }

    /// `None`: there is no such listener any more.
    pub fn role_of(&self, listener: ListenerId) -> Option<Role> {
        self.listeners.get(&listener).map(|listener| listener.role)
    }

    /// Whether it is known as a member of a group.
    pub fn is_member(&self, id: NodeId) -> bool {
        self.nodes.get(&id).is_some_and(|node| node.health.report().and_then(Report::member).is_some())
    }

    /// As [`Pool::begin`], with a role that is not the listener's.
    pub fn begin_as(
        &mut self,
        role: Role,
        listener: ListenerId,
        source: Option<IpAddr>,
        tried: &[NodeId],
        now: Instant,
    ) -> Choice {
        let fit = self.fit_for(role);
        if fit.is_empty() {
            return Choice::Wait(Nobody::Fit);
        }
        let left: Vec<NodeId> = fit.into_iter().filter(|id| !tried.contains(id)).collect();
        if left.is_empty() {
            return Choice::Wait(Nobody::Left);
        }
        let faithful = self.listeners.get(&listener).is_some_and(|listener| listener.chooser.is_faithful());
        let busy = |n: &Node| n.connecting >= self.settings.connecting_limit;
        let candidates: Vec<policy::Candidate> = left
            .iter()
            .map(|id| &self.nodes[id])
            .filter(|n| n.connections < self.settings.node_limit && (faithful || !busy(n)))
            .map(|n| policy::Candidate {
                id: n.id,
                key: n.key,
                weight: self.weight_of(n, now),
                connections: n.connections,
            })
            .collect();
        let Some(chooser) = self.listeners.get_mut(&listener).map(|listener| listener.chooser(role)) else {
            return Choice::Wait(Nobody::Fit);
        };
        let Some(id) = chooser.choose(&candidates, source) else { return Choice::Wait(Nobody::Free) };
        // It will have time in a moment.
        if self.nodes.get(&id).is_some_and(|node| node.connecting >= self.settings.connecting_limit) {
            return Choice::Wait(Nobody::Free);
        }
        let session = SessionId(self.next_session);
        self.next_session += 1;
        self.sessions.insert(session, Session { node: id, role, connecting: true });
        let node = self.nodes.get_mut(&id).expect("a candidate");
        node.connections += 1;
        node.connecting += 1;
        Choice::Go { session, node: id, address: node.address.clone() }
    }

    /// The server has greeted the client.
    pub fn handle_greeting(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if std::mem::replace(&mut session.connecting, false) {
            if let Some(node) = self.nodes.get_mut(&session.node) {
                node.connecting -= 1;
                node.counters.opened += 1;
                self.outputs.push_back(Output::Free);
            }
        }
    }

    /// A session that began as a reader's gets the writes from now on, and ends with the others when its server is not the writer any more.
    pub fn handle_promotion(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.role = Role::Split;
        }
    }

    /// The session is over, whoever ended it; without a greeting before it, the connection failed.
    pub fn handle_end(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(&id) else { return };
        let Some(node) = self.nodes.get_mut(&session.node) else { return };
        if session.connecting {
            node.connecting -= 1;
            node.counters.failed += 1;
        }
        node.connections -= 1;
        let emptied = node.id;
        // Only those who wait for a free place are interested.
        if session.connecting || node.connections + 1 >= self.settings.node_limit {
            self.outputs.push_back(Output::Free);
        }
        self.drop_if_left(emptied);
    }

    fn weight_of(&self, node: &Node, now: Instant) -> f64 {
        let mut weight = node.weight;
        if let Some(returned) = node.returned {
            let age = now.saturating_duration_since(returned);
            if age < self.settings.ramp {
                weight *= (age.as_secs_f64() / self.settings.ramp.as_secs_f64()).max(RAMP_START);
            }
        }
        if self.settings.by_latency {
            weight *= node.pace;
        }
        weight
    }

    /// Those who may get a client of this role, limits aside.
    fn fit_for(&self, role: Role) -> Vec<NodeId> {
        let writer = self.writer.current();
        if matches!(role, Role::Writer | Role::Split) {
            return writer.into_iter().collect();
        }
        let open = |node: &&Node| node.is_open();
        let ready: Vec<&Node> = self.nodes.values().filter(open).filter(|n| n.fitness == Fitness::Ready).collect();
        let mut fit = ready.clone();
        if role == Role::Reader {
            fit.retain(|node| Some(node.id) != writer);
            if fit.is_empty() {
                fit = ready;
            }
        }
        if fit.is_empty() {
            fit = self.nodes.values().filter(open).filter(|n| !n.fitness.is_out()).collect();
        }
        if let Some(segment) = self.settings.segment {
            let near = |n: &Node| n.health.report().and_then(Report::member).and_then(|m| m.segment) == Some(segment);
            if fit.iter().any(|n| near(n)) {
                fit.retain(|n| near(n));
            }
        }
        fit.iter().map(|node| node.id).collect()
    }

    fn close_sessions(&mut self, id: NodeId, which: impl Fn(&Session) -> bool) -> u64 {
        let mut closed: Vec<SessionId> =
            self.sessions.iter().filter(|(_, s)| s.node == id && which(s)).map(|(id, _)| *id).collect();
        closed.sort();
        if let Some(node) = self.nodes.get_mut(&id) {
            node.counters.closed += closed.len() as u64;
        }
        let count = closed.len() as u64;
        self.outputs.extend(closed.into_iter().map(Output::Close));
        count
    }

    fn log(&mut self, line: String) {
        self.outputs.push_back(Output::Log(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::HURRY;
    use crate::report::tests::synced;
    use crate::report::{Kind, Member};

    const WRITER: ListenerId = ListenerId(0);
    const READER: ListenerId = ListenerId(1);
    const ANY: ListenerId = ListenerId(2);

    fn settings() -> Settings {
        Settings {
            fresh: Duration::from_secs(2),
            grace: Duration::from_secs(5),
            ramp: Duration::from_secs(5),
            node_limit: 100,
            connecting_limit: 50,
            discover: true,
            segment: None,
            by_latency: false,
        }
    }

    struct World {
        pool: Pool,
        now: Instant,
    }

    impl World {
        /// Three nodes of one group, the first of which orders.
        fn new() -> World {
            let mut world = World { pool: Pool::new(settings(), 1), now: Instant::now() };
            world.pool.add_listener(WRITER, Role::Writer, Policy::Least, false);
            world.pool.add_listener(READER, Role::Reader, Policy::Least, false);
            world.pool.add_listener(ANY, Role::Any, Policy::Least, false);
            for n in 1..=3 {
                world.pool.set_node(address(n), 1.0, world.now).unwrap();
                world.hear(n, Heard::Answer(synced(&format!("n{n}"), n == 1, 1)));
            }
            world.outputs();
            world
        }
        fn hear(&mut self, n: u32, heard: Heard) {
            self.pool.handle_heard(NodeId(n), heard, self.now);
        }
        fn pass(&mut self, time: Duration) {
            self.now += time;
            self.pool.handle_time(self.now);
        }
        fn outputs(&mut self) -> Vec<Output> {
            std::iter::from_fn(|| self.pool.poll_output()).collect()
        }
        fn closed(&mut self) -> Vec<SessionId> {
            let closed = |output| match output {
                Output::Close(id) => Some(id),
                Output::Watch(..)
                | Output::Unwatch(_)
                | Output::Log(_)
                | Output::Changed
                | Output::Free
                | Output::LogIn(_)
                | Output::Hurry(_)
                | Output::Look => None,
            };
            self.outputs().into_iter().filter_map(closed).collect()
        }
        fn go(&mut self, listener: ListenerId) -> (SessionId, u32) {
            match self.pool.begin(listener, None, &[], self.now) {
                Choice::Go { session, node, .. } => {
                    self.pool.handle_greeting(session);
                    (session, node.0)
                }
                Choice::Wait(nobody) => panic!("{nobody}"),
            }
        }
        fn waits(&mut self, listener: ListenerId) -> Nobody {
            match self.pool.begin(listener, None, &[], self.now) {
                Choice::Go { node, .. } => panic!("{node:?}"),
                Choice::Wait(nobody) => nobody,
            }
        }
    }

    fn address(n: u32) -> Address {
        Address::Tcp { host: "10.0.0.1".into(), port: n as u16 }
    }

    fn changed(name: &str, orders: bool, term: u64, change: impl FnOnce(&mut Member)) -> Heard {
        let mut report = synced(name, orders, term);
        if let Kind::Member(member) = &mut report.kind {
            change(member);
        }
        Heard::Answer(report)
    }

    fn hears_not(name: &str, orders: bool, term: u64, silent: &str) -> Heard {
        changed(name, orders, term, |m| m.order.as_mut().unwrap().silent = vec![silent.into()])
    }

    #[test]
    fn writes_go_where_the_order_is_made_and_reads_elsewhere() {
        let mut world = World::new();
        assert_eq!([world.go(WRITER).1, world.go(WRITER).1], [1, 1]);
        assert_eq!([world.go(READER).1, world.go(READER).1, world.go(READER).1], [2, 3, 2]);
    }

    #[test]
    fn readers_of_a_split_listener_take_turns() {
        for policy in [Policy::Least, Policy::Round] {
            let mut world = World::new();
            world.pool.add_listener(ANY, Role::Split, policy, false);
            let readers: Vec<u32> = (0..6)
                .map(|_| {
                    world.go(ANY);
                    let choice = world.pool.begin_as(Role::Reader, ANY, None, &[], world.now);
                    let Choice::Go { session, node, .. } = choice else { panic!("{choice:?}") };
                    world.pool.handle_end(session);
                    node.0
                })
                .collect();
            assert_eq!(readers, [2, 3, 2, 3, 2, 3], "{policy:?}");
        }
    }

    #[test]
    fn a_killed_writer_loses_its_sessions_at_once_and_the_next_sequencer_gets_the_clients() {
        let mut world = World::new();
        let (session, _) = world.go(WRITER);
        world.outputs();
        world.hear(1, Heard::Refused("Connection refused".into()));
        assert_eq!(world.closed(), [session]);
        assert_eq!(world.waits(WRITER), Nobody::Fit);
        world.hear(3, Heard::Answer(synced("n3", true, 2)));
        assert!(world.outputs().contains(&Output::Changed));
        assert_eq!(world.go(WRITER).1, 3);
    }

    #[test]
    fn a_frozen_writer_is_out_as_soon_as_others_call_it_silent() {
        let mut world = World::new();
        let (session, _) = world.go(WRITER);
        world.outputs();
        world.hear(1, Heard::Late);
        assert!(world.outputs().contains(&Output::Hurry(true)));
        world.hear(2, hears_not("n2", true, 2, "n1"));
        assert_eq!(world.closed(), [session]);
        assert_eq!(world.go(WRITER).1, 2);
        // It thaws and answers as before; the writes stay where they are.
        world.hear(1, Heard::Answer(synced("n1", true, 1)));
        world.hear(2, Heard::Answer(synced("n2", true, 2)));
        world.pass(Duration::from_secs(3));
        assert_eq!(world.go(WRITER).1, 2);
    }

    #[test]
    fn a_writer_that_its_peers_miss_is_looked_at_in_a_hurry() {
        let mut world = World::new();
        let (session, _) = world.go(WRITER);
        world.outputs();
        // Cut off from them, and not from us.
        world.hear(2, hears_not("n2", false, 1, "n1"));
        assert!(world.outputs().contains(&Output::Hurry(true)));
        assert_eq!(world.closed(), [], "it answers, and may not be the one in trouble");
        let lost = || changed("n1", false, 1, |m| m.order.as_mut().unwrap().leaderless = true);
        world.hear(1, lost());
        assert_eq!(world.closed(), []);
        world.hear(2, hears_not("n2", true, 2, "n1"));
        world.pass(Duration::from_millis(100));
        world.hear(1, lost());
        assert_eq!(world.closed(), [session]);
        assert_eq!(world.go(WRITER).1, 2);
    }

    #[test]
    fn a_writer_that_goes_on_in_an_older_term_is_out_before_it_knows() {
        let mut world = World::new();
        let (session, _) = world.go(WRITER);
        world.outputs();
        world.hear(2, hears_not("n2", true, 2, "n1"));
        // Said in the moment in which the order moved.
        world.hear(1, Heard::Answer(synced("n1", true, 1)));
        assert_eq!(world.closed(), []);
        world.pass(Duration::from_millis(99));
        world.hear(1, Heard::Answer(synced("n1", true, 1)));
        assert_eq!(world.closed(), []);
        world.pass(Duration::from_millis(1));
        world.hear(1, Heard::Answer(synced("n1", true, 1)));
        assert_eq!(world.closed(), [session]);
        assert_eq!(world.go(WRITER).1, 2);
    }

    #[test]
    fn a_writer_that_hears_no_majority_is_out_as_soon_as_its_successor_is_seen() {
        let mut world = World::new();
        let (session, _) = world.go(WRITER);
        world.outputs();
        let out_of_touch = |name: &str, orders, leaderless| {
            changed(name, orders, 1, |m| {
                let order = m.order.as_mut().unwrap();
                (order.out_of_touch, order.leaderless) = (true, leaderless);
            })
        };
        world.hear(1, out_of_touch("n1", true, false));
        assert!(world.outputs().contains(&Output::Hurry(true)), "who orders now is of interest");
        // It has stepped down meanwhile; so do all when they look for a new one.
        for n in 1..=3 {
            world.hear(n, out_of_touch(&format!("n{n}"), false, true));
        }
        assert_eq!(world.closed(), [], "there may be an election");
        let (read, node) = world.go(READER);
        assert_eq!(node, 2);
        world.hear(3, Heard::Answer(synced("n3", true, 2)));
        assert_eq!(
            world.closed(),
            [session],
            "and not those of a reader, which hears of its new sequencer in a moment"
        );
        assert_eq!(world.go(WRITER).1, 3);
        world.pool.handle_end(read);
    }

    /// The time from the cut of a writer's links to the end of its sessions, event by event, with the longest of each limit, for every position
    /// of the looks: docs/operations/balance.md states the sum.
    #[test]
    fn a_writer_that_is_cut_off_is_left_within_nine_tenths_of_a_second() {
        const INTERVAL: u64 = 250;
        let slowest = |time: u64| time * 12 / 10;
        let hurry = HURRY.as_millis() as u64;
        // A follower stands after two election timeouts of 400 ms at the latest; then come two rounds of messages, each with a sync.
        let (silent_after, elected) = (400, 800 + 20);
        let answer_takes = 10;
        let mut longest = 0;
        for (phase, steps_down) in (0..slowest(INTERVAL)).step_by(7).flat_map(|phase| [(phase, 700), (phase, 900)]) {
            let mut world = World::new();
            let start = world.now;
            let (session, _) = world.go(WRITER);
            world.outputs();
            // When each is asked next; answers tell what was so when it was asked.
            let mut asked = [phase, (phase * 3) % slowest(INTERVAL), (phase * 5) % slowest(INTERVAL)];
            let mut pending: Vec<(u64, u32, Heard)> = Vec::new();
            let (mut pace, mut ended) = (slowest(INTERVAL), None);
            for ms in 0..2000u64 {
                world.now = start + Duration::from_millis(ms);
                for (i, at) in asked.iter_mut().enumerate().filter(|(_, at)| **at == ms) {
                    let n = i as u32 + 1;
                    let (orders, term, lost) = match n {
                        1 => (ms < steps_down, 1, ms >= silent_after),
                        2 => (ms >= elected, if ms >= elected { 2 } else { 1 }, ms >= silent_after && ms < elected),
                        _ => (false, if ms >= elected { 2 } else { 1 }, ms >= silent_after && ms < elected),
                    };
                    let leaderless = n == 1 && ms >= steps_down;
                    let answer = changed(&format!("n{n}"), orders, term, |m| {
                        let order = m.order.as_mut().unwrap();
                        (order.out_of_touch, order.leaderless) = (lost, leaderless);
                    });
                    pending.push((ms + answer_takes, n, answer));
                    *at = u64::MAX;
                }
                for (_, n, answer) in pending.extract_if(.., |(at, ..)| *at == ms) {
                    world.hear(n, answer);
                    asked[n as usize - 1] = ms + pace;
                }
                for output in world.outputs() {
                    if output == Output::Close(session) {
                        ended = ended.or(Some(ms));
                    } else if let Output::Hurry(on) = output {
                        pace = slowest(if on { hurry } else { INTERVAL });
                        // A node that waits for its next look is asked now.
                        asked.iter_mut().filter(|at| **at != u64::MAX).for_each(|at| *at = ms + 1);
                    }
                }
                if ms % 100 == 0 {
                    world.pool.handle_time(world.now);
                }
            }
            longest = longest.max(ended.expect("its sessions end"));
        }
        assert!(longest <= 900, "{longest} ms");
    }

    #[test]
    fn a_member_whose_peers_are_gone_is_out_as_soon_as_it_knows_of_no_sequencer() {
        let mut world = World::new();
        let (session, _) = world.go(WRITER);
        world.outputs();
        let says = |leaderless: bool| {
            changed("n1", !leaderless, 1, |m| {
                let order = m.order.as_mut().unwrap();
                order.leaderless = leaderless;
                order.voters = ["n1", "n2", "n3"].map(|name| (name.to_owned(), 1)).to_vec();
            })
        };
        world.hear(1, says(true));
        world.hear(2, Heard::Refused("Connection refused".into()));
        assert!(world.outputs().contains(&Output::Hurry(true)), "who orders now is of interest");
        assert_eq!(world.closed(), [], "one of three");
        world.hear(3, Heard::Refused("Connection refused".into()));
        assert_eq!(world.closed(), [session]);
        world.hear(3, Heard::Answer(synced("n3", false, 1)));
        world.hear(1, says(false));
        assert_eq!(world.go(WRITER).1, 1);
    }

    #[test]
    fn a_writer_that_left_and_answers_no_more_is_out_before_it_resets_its_connections() {
        let mut world = World::new();
        let all: Vec<Address> = (1..=3).map(address).collect();
        for n in 1..=3 {
            world.hear(n, changed(&format!("n{n}"), n == 1, 1, |m| m.addresses = all.clone()));
        }
        let (session, _) = world.go(WRITER);
        world.outputs();
        world.now += Duration::from_millis(100);
        world.hear(1, Heard::Late);
        assert_eq!(world.closed(), [], "late is nothing yet");
        world.hear(2, changed("n2", true, 2, |m| m.addresses = all[1..].to_vec()));
        assert_eq!(world.closed(), [session]);
        assert_eq!(world.go(WRITER).1, 2);
    }

    #[test]
    fn a_frozen_writer_is_out_as_soon_as_another_member_orders_in_its_place() {
        let mut world = World::new();
        let (session, _) = world.go(WRITER);
        world.outputs();
        world.hear(2, Heard::Answer(synced("n2", true, 2)));
        assert_eq!(world.closed(), [], "it may just not have told us yet");
        world.hear(1, Heard::Late);
        assert_eq!(world.closed(), [session]);
    }

    #[test]
    fn nobody_is_out_by_hearsay_alone() {
        let mut world = World::new();
        let (session, _) = world.go(READER);
        world.outputs();
        world.hear(1, hears_not("n1", true, 1, "n2"));
        assert_eq!(world.closed(), []);
        world.pool.handle_end(session);
        assert_eq!(world.go(READER).1, 3);
    }

    #[test]
    fn sessions_of_a_node_without_majority_end() {
        let mut world = World::new();
        let (session, node) = world.go(READER);
        world.outputs();
        world.hear(node, changed("n2", false, 1, |m| m.primary = false));
        assert_eq!(world.closed(), [session]);
    }

    #[test]
    fn a_writer_that_lives_keeps_its_sessions_for_the_grace_and_readers_for_ever() {
        let mut world = World::new();
        let (write, _) = world.go(WRITER);
        let read = (0..3).map(|_| world.go(ANY)).find(|(_, node)| *node == 1).map(|(id, _)| id);
        assert!(read.is_some());
        world.outputs();
        world.hear(1, Heard::Answer(synced("n1", false, 2)));
        world.hear(2, Heard::Answer(synced("n2", true, 2)));
        world.pass(writer::SETTLE);
        assert_eq!(world.go(WRITER).1, 2);
        assert_eq!(world.closed(), []);
        for n in 1..=3 {
            world.hear(n, Heard::Answer(synced(&format!("n{n}"), n == 2, 2)));
        }
        world.pass(settings().grace);
        assert_eq!(world.closed(), [write]);
    }

    #[test]
    fn a_reader_that_became_the_writer_ends_after_the_grace() {
        let mut world = World::new();
        world.pool.add_listener(WRITER, Role::Split, Policy::Least, false);
        let choice = world.pool.begin_as(Role::Reader, WRITER, None, &[NodeId(3)], world.now);
        let Choice::Go { session, node: NodeId(2), .. } = choice else { panic!("{choice:?}") };
        world.pool.handle_greeting(session);
        let order = |world: &mut World, of: u32, term| {
            for n in 1..=3 {
                world.hear(n, Heard::Answer(synced(&format!("n{n}"), n == of, term)));
            }
        };
        order(&mut world, 2, 2);
        world.pass(writer::SETTLE);
        order(&mut world, 2, 2);
        assert_eq!(world.go(WRITER).1, 2);
        world.pool.handle_promotion(session);
        order(&mut world, 3, 3);
        world.pass(writer::SETTLE);
        order(&mut world, 3, 3);
        assert_eq!(world.go(WRITER).1, 3);
        world.outputs();
        world.pass(settings().grace);
        assert!(world.closed().contains(&session));
    }

    #[test]
    fn a_donor_is_the_last_choice() {
        let mut world = World::new();
        let donor = |n: &str| changed(n, false, 1, |m| m.state = crate::report::LocalState::Donor);
        world.hear(2, donor("n2"));
        assert_eq!([world.go(READER).1, world.go(READER).1], [3, 3]);
        world.hear(1, Heard::Refused("gone".into()));
        world.hear(3, Heard::Refused("gone".into()));
        assert_eq!(world.go(READER).1, 2);
    }

    fn pushed(name: &str, term: u64, silent: &[&str]) -> Pushed {
        let silent = silent.iter().map(|name| (*name).to_owned()).collect();
        Pushed { name: name.into(), alive: true, sequencer: false, term, silent, leaderless: false }
    }

    #[test]
    fn what_a_monitor_pushes_counts_as_what_its_member_answers() {
        let mut world = World::new();
        let (session, _) = world.go(WRITER);
        world.outputs();
        world.pool.handle_pushed(&pushed("n2", 1, &["n1"]), world.now);
        assert!(world.outputs().contains(&Output::Look), "all are asked at once");
        assert_eq!(world.pool.nodes[&NodeId(1)].fitness, Fitness::LastChoice(Why::Contested("n2".into())));
        world.pool.handle_pushed(&pushed("n2", 1, &["n1"]), world.now);
        assert!(!world.outputs().contains(&Output::Look), "no news");
        world.hear(1, Heard::Late);
        assert_eq!(world.closed(), [session], "long before its time limit");
    }

    #[test]
    fn a_push_is_no_sign_of_life_and_an_older_one_no_news() {
        let mut world = World::new();
        world.hear(1, Heard::Late);
        world.pool.handle_pushed(&pushed("n1", 1, &[]), world.now);
        assert!(world.pool.nodes[&NodeId(1)].health.is_late());
        world.hear(2, Heard::Answer(synced("n2", false, 2)));
        world.outputs();
        world.pool.handle_pushed(&pushed("n2", 1, &["n3"]), world.now);
        assert_eq!(world.outputs(), []);
        // Nobody knows which of two is meant.
        world.hear(3, Heard::Answer(synced("n2", false, 2)));
        world.outputs();
        for name in ["n2", "n7"] {
            world.pool.handle_pushed(&pushed(name, 2, &["n1"]), world.now);
        }
        assert_eq!(world.outputs(), []);
        // A monitor that says that its node is dead: it may be wrong, so the node is asked.
        world.pool.handle_pushed(&Pushed { alive: false, ..pushed("n1", 2, &["n2", "n3"]) }, world.now);
        assert_eq!(world.outputs(), [Output::Look]);
    }

    #[test]
    fn readers_get_the_writer_if_there_is_no_other() {
        let mut world = World::new();
        world.hear(2, Heard::Refused("gone".into()));
        world.hear(3, Heard::Refused("gone".into()));
        assert_eq!(world.go(READER).1, 1);
    }

    #[test]
    fn a_drained_server_keeps_its_sessions_and_gets_no_new_ones() {
        let mut world = World::new();
        world.go(WRITER);
        world.outputs();
        world.pool.drain(NodeId(1), false, world.now);
        assert_eq!(world.closed(), []);
        assert_ne!(world.go(WRITER).1, 1, "another writer at once, without an election");
        world.pool.undrain(NodeId(1), world.now);
        world.pass(writer::SETTLE);
        assert_eq!(world.go(WRITER).1, 1);
    }

    #[test]
    fn limits_make_clients_wait_and_an_end_lets_one_in() {
        let mut world = World::new();
        world.pool.settings = Settings { node_limit: 2, ..settings() };
        let (session, _) = world.go(WRITER);
        world.go(WRITER);
        assert_eq!(world.waits(WRITER), Nobody::Free);
        world.outputs();
        world.pool.handle_end(session);
        assert_eq!(world.outputs(), [Output::Free]);
        world.go(WRITER);
    }

    #[test]
    fn a_storm_moves_nobody_who_belongs_to_one_server() {
        for policy in [Policy::Single, Policy::Source, Policy::Least] {
            let mut world = World::new();
            world.pool.settings = Settings { connecting_limit: 1, ..settings() };
            world.pool.add_listener(ANY, Role::Any, policy, false);
            let begin = |world: &mut World| world.pool.begin(ANY, None, &[], world.now);
            let Choice::Go { session, node, .. } = begin(&mut world) else { panic!("nobody is there") };
            match begin(&mut world) {
                Choice::Go { node: other, .. } => assert!(policy == Policy::Least && other != node, "{policy:?}"),
                Choice::Wait(nobody) => assert!(policy != Policy::Least && nobody == Nobody::Free, "{policy:?}"),
            }
            world.pool.handle_greeting(session);
            if policy != Policy::Least {
                assert!(matches!(begin(&mut world), Choice::Go { node: again, .. } if again == node), "{policy:?}");
            }
        }
    }

    #[test]
    fn clients_that_leave_in_the_middle_of_their_login_make_us_log_in() {
        let mut world = World::new();
        for _ in 0..3 {
            for _ in 1..BROKEN_MAX {
                world.pool.handle_broken_login(NodeId(2));
                world.pool.handle_broken_login(NodeId(9));
                assert_eq!(world.outputs(), []);
            }
            world.pool.handle_broken_login(NodeId(2));
            assert_eq!(world.outputs(), [Output::LogIn(NodeId(2))]);
        }
    }

    #[test]
    fn a_storm_is_handed_on_at_the_pace_of_the_greetings() {
        let mut world = World::new();
        world.pool.settings = Settings { connecting_limit: 1, ..settings() };
        let Choice::Go { session, .. } = world.pool.begin(WRITER, None, &[], world.now) else { panic!() };
        assert_eq!(world.waits(WRITER), Nobody::Free);
        world.pool.handle_greeting(session);
        world.go(WRITER);
    }

    #[test]
    fn a_server_that_did_not_take_the_client_is_not_tried_twice() {
        let mut world = World::new();
        let Choice::Go { session, node, .. } = world.pool.begin(READER, None, &[], world.now) else { panic!() };
        world.pool.handle_end(session);
        let Choice::Go { node: other, .. } = world.pool.begin(READER, None, &[node], world.now) else { panic!() };
        assert_ne!(node, other);
        assert_eq!(world.pool.begin(READER, None, &[node, other], world.now), Choice::Wait(Nobody::Left));
    }

    #[test]
    fn members_are_found_and_the_same_server_is_counted_once() {
        let mut world = World { pool: Pool::new(settings(), 1), now: Instant::now() };
        world.pool.set_node(address(1), 1.0, world.now).unwrap();
        let list = vec![address(11), address(12)];
        world.hear(1, changed("n1", true, 1, |m| m.addresses = list.clone()));
        assert_eq!(world.pool.nodes().count(), 3);
        // 11 is another address of 1.
        world.hear(2, changed("n1", true, 1, |m| m.addresses = list.clone()));
        assert_eq!(world.pool.nodes().map(|n| n.id.0).collect::<Vec<_>>(), [1, 3]);
        world.hear(1, changed("n1", true, 1, |m| m.addresses = list.clone()));
        assert_eq!(world.pool.nodes().count(), 2, "it is not found again");
        // Nobody lists 12 any more.
        world.hear(3, Heard::Refused("gone".into()));
        world.now += FORGET + Duration::from_secs(1);
        world.hear(1, changed("n1", true, 1, |m| m.addresses = vec![address(11)]));
        world.pass(Duration::ZERO);
        assert_eq!(world.pool.nodes().count(), 1);
    }

    #[test]
    fn a_server_that_gets_a_second_name_keeps_its_sessions() {
        let mut world = World { pool: Pool::new(settings(), 1), now: Instant::now() };
        world.pool.add_listener(WRITER, Role::Writer, Policy::Least, false);
        world.pool.set_node(address(1), 1.0, world.now).unwrap();
        world.hear(1, changed("n1", false, 1, |m| m.addresses = vec![address(2)]));
        world.hear(2, Heard::Answer(synced("n2", true, 1)));
        world.pass(writer::SETTLE);
        let (session, node) = world.go(WRITER);
        assert_eq!(node, 2);
        world.outputs();
        world.pool.set_node(address(12), 3.0, world.now).unwrap();
        world.hear(3, Heard::Answer(synced("n2", true, 1)));
        let outputs = world.outputs();
        assert!(!outputs.contains(&Output::Close(session)), "{outputs:?}");
        assert!(
            outputs.contains(&Output::Watch(NodeId(2), address(12))) && outputs.contains(&Output::Unwatch(NodeId(3)))
        );
        assert_eq!(world.table(), [address(1), address(12)]);
        let node = &world.pool.nodes[&NodeId(2)];
        assert_eq!((node.weight, node.cause, node.connections), (3.0, Cause::Added, 1));
        // Members go on to list it by its first name.
        world.hear(1, changed("n1", false, 1, |m| m.addresses = vec![address(2)]));
        assert_eq!(world.table(), [address(1), address(12)]);
        world.pool.handle_end(session);
        assert_eq!(world.pool.nodes[&NodeId(2)].connections, 0);
    }

    #[test]
    fn a_removed_server_is_not_found_again_until_it_is_added() {
        let mut world = World::new();
        world.pool.remove(NodeId(3), world.now);
        let list = vec![address(3)];
        world.hear(1, changed("n1", true, 1, |m| m.addresses = list.clone()));
        assert_eq!(world.pool.nodes().count(), 2);
        world.pool.set_node(address(3), 1.0, world.now).unwrap();
        assert_eq!(world.pool.nodes().count(), 3);
    }

    #[test]
    fn a_removed_server_is_not_found_again_by_another_of_its_addresses() {
        let mut world = World::new();
        let list = vec![address(13)];
        world.hear(1, changed("n1", true, 1, |m| m.addresses = list.clone()));
        world.hear(4, Heard::Answer(synced("n3", false, 1)));
        assert_eq!(world.table(), [address(1), address(2), address(3)], "13 is another address of 3");
        world.pool.remove(NodeId(3), world.now);
        world.hear(1, changed("n1", true, 1, |m| m.addresses = list.clone()));
        assert_eq!(world.table(), [address(1), address(2)]);
        world.pool.set_node(address(3), 1.0, world.now).unwrap();
        world.hear(1, changed("n1", true, 1, |m| m.addresses = list.clone()));
        assert_eq!(world.table(), [address(1), address(2), address(3), address(13)]);
    }

    impl World {
        fn configure(&mut self, nodes: &[u32]) -> Result<(), String> {
            let given: Vec<_> = nodes.iter().map(|n| (address(*n), 1.0)).collect();
            self.pool.configure(settings(), &given, self.now)
        }
        fn table(&self) -> Vec<Address> {
            self.pool.nodes().map(|n| n.address.clone()).collect()
        }
    }

    #[test]
    fn a_new_configuration_takes_out_what_it_does_not_name_when_the_last_session_ends() {
        let mut world = World::new();
        world.configure(&[1, 2, 3]).unwrap();
        let (session, node) = world.go(WRITER);
        assert_eq!(node, 1);
        world.outputs();
        world.configure(&[2, 4]).unwrap();
        assert_eq!(world.table(), [address(1), address(2), address(4)], "nobody is on 3");
        assert_eq!(world.closed(), []);
        for _ in 0..8 {
            assert_eq!(world.go(ANY).1, 2, "1 gets no more clients");
        }
        world.pool.handle_end(session);
        assert_eq!(world.table(), [address(2), address(4)]);
    }

    #[test]
    fn one_that_the_configuration_names_again_in_time_stays() {
        let mut world = World::new();
        world.configure(&[1, 2, 3]).unwrap();
        let (session, _) = world.go(WRITER);
        world.configure(&[2, 3]).unwrap();
        world.configure(&[1, 2, 3]).unwrap();
        world.pool.handle_end(session);
        assert_eq!(world.table(), [address(1), address(2), address(3)]);
    }

    #[test]
    fn a_new_configuration_leaves_what_a_command_added() {
        let mut world = World::new();
        world.configure(&[1, 2, 3]).unwrap();
        world.pool.set_node(address(4), 1.0, world.now).unwrap();
        world.pool.set_node(address(3), 2.0, world.now).unwrap();
        world.configure(&[1, 2]).unwrap();
        assert_eq!(world.table(), [address(1), address(2), address(4)]);
    }

    #[test]
    fn a_configuration_with_too_many_servers_changes_nothing() {
        let mut world = World::new();
        world.configure(&[1, 2, 3]).unwrap();
        let many: Vec<u32> = (3..NODES_MAX as u32 + 3).collect();
        assert!(world.configure(&many).is_err());
        assert_eq!(world.table(), [address(1), address(2), address(3)]);
    }

    #[test]
    fn weights_follow_how_fast_a_watchdog_answers() {
        let mut world = World { pool: Pool::new(settings(), 1), now: Instant::now() };
        world.pool.settings = Settings { by_latency: true, ..settings() };
        world.pool.add_listener(ANY, Role::Any, Policy::Round, false);
        for n in 1..=2 {
            world.pool.set_node(address(n), 1.0, world.now).unwrap();
        }
        let ready = |ms| Heard::Watchdog(Verdict::Ready, Some(Duration::from_millis(ms)));
        let share = |world: &mut World| {
            let went: Vec<_> = (0..60).map(|_| world.go(ANY)).collect();
            went.iter().for_each(|(session, _)| world.pool.handle_end(*session));
            went.iter().filter(|(_, node)| *node == 1).count()
        };
        world.hear(1, ready(10));
        world.hear(2, ready(20));
        assert_eq!(share(&mut world), 40, "twice as fast, twice as many");
        // Less than a tenth is no news.
        world.hear(2, ready(30));
        assert_eq!(share(&mut world), 40);
        for _ in 0..100 {
            world.hear(2, ready(50));
        }
        assert!((49..=50).contains(&share(&mut world)));
    }

    #[test]
    fn a_list_without_end_does_not_fill_the_table() {
        let mut world = World::new();
        let list: Vec<Address> = (100..1000).map(address).collect();
        world.pool.handle_members(list, world.now);
        assert_eq!(world.pool.nodes().count(), NODES_MAX);
    }

    #[test]
    fn a_server_that_returns_begins_with_a_part_of_its_weight() {
        let mut world = World::new();
        world.hear(3, Heard::Refused("gone".into()));
        for _ in 0..8 {
            assert_eq!(world.go(READER).1, 2);
        }
        world.hear(3, Heard::Answer(synced("n3", false, 1)));
        assert_eq!(world.go(READER).1, 2, "a tenth of the weight and no session yet");
        world.now += settings().ramp;
        assert_eq!(world.go(READER).1, 3);
    }

    #[test]
    fn the_same_segment_comes_first() {
        let mut world = World::new();
        world.pool.settings = Settings { segment: Some(2), ..settings() };
        world.hear(3, changed("n3", false, 1, |m| m.segment = Some(2)));
        assert_eq!([world.go(READER).1, world.go(READER).1], [3, 3]);
        world.hear(3, Heard::Refused("gone".into()));
        assert_eq!(world.go(READER).1, 2);
    }

    #[test]
    fn plain_servers_have_a_writer_too() {
        let mut world = World { pool: Pool::new(settings(), 1), now: Instant::now() };
        world.pool.add_listener(WRITER, Role::Writer, Policy::Least, false);
        for n in 1..=2 {
            world.pool.set_node(address(n), 1.0, world.now).unwrap();
            let report = Report { kind: Kind::Plain, read_only: n == 1, took: Duration::ZERO };
            world.hear(n, Heard::Answer(report));
        }
        assert_eq!(world.go(WRITER).1, 2, "the other one is read_only");
    }
}
