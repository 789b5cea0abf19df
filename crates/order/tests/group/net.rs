//! Small groups over in-memory logs and in-order links.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use trireme_order::{
    Config, Content, Delivery, Event, Group, JoinState, Limits, LogStore, MemStore, Message, Output, Phase, Timeouts,
};
use trireme_types::{
    Base, Durability, HardState, Incarnation, Level, LogIndex, Member, NodeId, Seqno, Timestamp, Uuid, Weight,
};

pub use super::lies::UNIX_AT_ZERO;

/// The seqno of the last entry.
pub fn end_of(log: &MemStore) -> Seqno {
    log.read(log.last(), 0).unwrap()[0].header.seqno
}

pub fn node(n: u8) -> NodeId {
    NodeId(Uuid([n; 16]))
}

/// As it comes out of a link: the others can read all that a member says.
fn as_read(message: &Message) -> Message {
    let mut w = trireme_types::Writer::new();
    message.encode(&mut w);
    match Message::decode(&w.buf.into()) {
        Ok(read) => read,
        Err(e) => panic!("nobody can read {message:?}: {e}"),
    }
}

thread_local! {
    /// This is done with every member that is started by this thread, to break it.
    pub static AT_START: Cell<Option<fn(&mut Group<MemStore>)>> = const { Cell::new(None) };
}

/// All outputs of a group that has something to say for once. Of one that never ends, the test fails.
pub fn outputs(group: &mut Group<MemStore>, now: Timestamp) -> Vec<Output> {
    const MANY: usize = 1000;
    let said: Vec<Output> = std::iter::from_fn(|| group.poll_output(now)).take(MANY).collect();
    assert!(said.len() < MANY, "{:?} has no end: {:?}", group.status(), said.last());
    said
}

pub const HISTORY: Uuid = Uuid([0xaa; 16]);

pub struct Node {
    pub group: Group<MemStore>,
    pub delivered: Vec<(u64, Vec<u8>)>,
    pub views: Vec<Vec<NodeId>>,
    pub events: Vec<Event>,
    pub cfg: Config,
}

/// The whole group: links are pairs that are up, messages are delivered in order per pair.
pub struct Net {
    pub nodes: BTreeMap<u8, Node>,
    pub cut: Vec<(u8, u8)>,
    pub queue: VecDeque<(u8, u8, Message)>,
    pub now: Timestamp,
    pub links: Vec<(u8, u8)>,
    /// Messages of the first to the second are lost, although the link stands.
    pub lost: Vec<(u8, u8)>,
    /// Their disks hang: nothing is synced.
    pub stalled: Vec<u8>,
    /// Members that are in a view get their data at once.
    pub copies: bool,
    /// How often a member's state was encoded for another one.
    pub encoded: usize,
}

impl Net {
    pub fn new() -> Net {
        Net {
            nodes: BTreeMap::new(),
            cut: vec![],
            queue: VecDeque::new(),
            now: Timestamp(1),
            links: vec![],
            lost: vec![],
            stalled: vec![],
            copies: true,
            encoded: 0,
        }
    }

    pub fn config(n: u8) -> Config {
        Config {
            me: Member {
                node: node(n),
                incarnation: Incarnation(1),
                name: format!("n{n}"),
                weight: Weight(1),
                ..Member::default()
            },
            timeouts: Timeouts::default(),
            unix_at_zero: UNIX_AT_ZERO,
            ignore_sb: false,
            ignore_quorum: false,
            expect: 0,
            durability: Durability::Process,
            levels: trireme_order::SUPPORTED,
            level_hold: Level(u16::MAX),
            batch_bytes_max: 1 << 20,
            inflight_bytes_max: 1 << 20,
            cache_bytes_max: 1 << 20,
            limits: Limits::default(),
        }
    }

    pub fn start(&mut self, n: u8, cfg: Config, store: MemStore, at: Option<Seqno>) {
        let mut group = Group::new(cfg.clone(), store, at, u64::from(n) * 7919, self.now);
        if let Some(change) = AT_START.get() {
            change(&mut group);
        }
        self.nodes.insert(n, Node { group, delivered: vec![], views: vec![], events: vec![], cfg });
    }

    pub fn bootstrap(&mut self, n: u8) {
        self.bootstrap_as(n, Self::config(n));
    }

    pub fn bootstrap_as(&mut self, n: u8, cfg: Config) {
        self.start(n, cfg, MemStore::new(), None);
        self.nodes.get_mut(&n).unwrap().group.bootstrap(self.now, HISTORY, Seqno(0)).unwrap();
        self.settle();
    }

    pub fn join(&mut self, n: u8) {
        self.enter(n, Self::config(n), MemStore::new(), None);
        self.run(Duration::from_secs(2));
    }

    /// It never votes.
    pub fn join_without_a_vote(&mut self, n: u8) {
        let mut cfg = Self::config(n);
        cfg.me.weight = Weight(0);
        self.enter(n, cfg, MemStore::new(), None);
        self.run(Duration::from_secs(2));
    }

    /// Starts with the data where they are, if it has any, and looks for a component.
    pub fn enter(&mut self, n: u8, cfg: Config, store: MemStore, at: Option<Seqno>) {
        self.start(n, cfg, store, at);
        let position = at.map(|at| (HISTORY, at));
        self.nodes.get_mut(&n).unwrap().group.join(self.now, JoinState { position });
    }

    /// A cluster of nodes 1..=n, all in and voting.
    pub fn cluster(n: u8) -> Net {
        let mut net = Net::new();
        net.bootstrap(1);
        for i in 2..=n {
            net.join(i);
        }
        for i in 1..=n {
            assert_eq!(net.phase(i), Phase::Primary, "node {i}: {:?}", net.nodes[&i].group.status());
            assert_eq!(net.nodes[&i].group.status().voters.voters.len(), n as usize, "node {i}");
        }
        net
    }

    pub fn phase(&self, n: u8) -> Phase {
        self.nodes[&n].group.status().phase
    }

    pub fn sequencer(&self) -> u8 {
        let first = self.nodes.values().find(|n| n.group.status().phase == Phase::Primary).unwrap();
        first.group.status().sequencer.unwrap().0.0[0]
    }

    pub fn linked(&self, a: u8, b: u8) -> bool {
        a != b && !self.cut.contains(&(a, b)) && !self.cut.contains(&(b, a))
    }

    pub fn update_links(&mut self) {
        let names: Vec<u8> = self.nodes.keys().copied().collect();
        for &a in &names {
            for &b in &names {
                let up = self.linked(a, b);
                let had = self.links.contains(&(a, b));
                if up && !had {
                    self.links.push((a, b));
                    let Config { me: member, levels, .. } = self.nodes[&b].cfg.clone();
                    self.nodes.get_mut(&a).unwrap().group.handle_link_up(self.now, member, levels);
                }
                if !up && had {
                    self.links.retain(|l| *l != (a, b));
                    self.nodes.get_mut(&a).unwrap().group.handle_link_down(self.now, node(b));
                }
            }
        }
        let gone: Vec<(u8, u8)> =
            self.links.iter().copied().filter(|(a, b)| !names.contains(a) || !names.contains(b)).collect();
        for (a, b) in gone {
            self.links.retain(|l| *l != (a, b));
            if let Some(n) = self.nodes.get_mut(&a) {
                n.group.handle_link_down(self.now, node(b));
            }
        }
        let links = self.links.clone();
        self.queue.retain(|(a, b, _)| links.contains(&(*b, *a)));
    }

    /// Cuts `n` off from everybody.
    pub fn isolate(&mut self, n: u8) {
        for other in self.nodes.keys().copied().filter(|o| *o != n).collect::<Vec<_>>() {
            self.cut.push((n, other));
        }
        self.update_links();
    }

    /// Nobody hears anything of `n` any more, but its links stand.
    pub fn mute(&mut self, n: u8) {
        self.lost.extend((1..=9).filter(|o| *o != n).map(|o| (n, o)));
    }

    pub fn heal(&mut self) {
        self.cut.clear();
        self.update_links();
    }

    pub fn kill(&mut self, n: u8) -> MemStore {
        let dead = self.nodes.remove(&n).unwrap();
        self.update_links();
        dead.group.into_store()
    }

    /// It leaves in order, and ends. The others go on for a time.
    pub fn stop(&mut self, n: u8) {
        let now = self.now;
        self.nodes.get_mut(&n).unwrap().group.leave(now);
        self.run(Duration::from_secs(3));
        self.kill(n);
        self.run(Duration::from_secs(10));
    }

    pub fn restart(&mut self, n: u8, store: MemStore, incarnation: u32, at: Seqno) {
        let now = self.now;
        self.reopen(n, store, incarnation, Some(at)).join(now, JoinState { position: Some((HISTORY, at)) });
    }

    /// The same of a server that has a log and no data.
    pub fn restart_without_data(&mut self, n: u8, store: MemStore, incarnation: u32) {
        let now = self.now;
        self.reopen(n, store, incarnation, None).join(now, JoinState { position: None });
    }

    /// Its server is started again, and has not begun to look for a component.
    pub fn reopen(&mut self, n: u8, store: MemStore, incarnation: u32, at: Option<Seqno>) -> &mut Group<MemStore> {
        let mut cfg = Self::config(n);
        cfg.me.incarnation = Incarnation(incarnation);
        self.start(n, cfg, store, at);
        &mut self.nodes.get_mut(&n).unwrap().group
    }

    pub fn drain(&mut self, n: u8) {
        let now = self.now;
        let node = self.nodes.get_mut(&n).unwrap();
        while let Some(output) = node.group.poll_output(now) {
            match output {
                Output::Send { to, message, .. } => self.queue.push_back((n, to.0.0[0], as_read(&message))),
                Output::Deliver(Delivery::WriteSet { seqno, body, .. }) => {
                    node.delivered.push((seqno.0, body.to_vec()))
                }
                Output::Deliver(Delivery::View { view, .. }) => {
                    node.views.push(view.members.iter().map(|m| m.node).collect());
                    let me = &node.cfg.me;
                    if self.copies && view.get(me.node).is_some_and(|m| m.incarnation == me.incarnation) {
                        node.group.data_arrived();
                    }
                }
                Output::Deliver(Delivery::App { .. } | Delivery::Level { .. } | Delivery::Reset { .. }) => {}
                Output::Event(Event::NeedSnapshot(request)) => {
                    self.encoded += usize::from(request.peer.is_some());
                    node.group.provide_snapshot(now, request, Bytes::new());
                }
                Output::Event(Event::DataDiverged) => {
                    node.events.push(Event::DataDiverged);
                    node.group.data_discarded(now);
                }
                Output::Event(Event::Found { history }) => {
                    node.events.push(Event::Found { history });
                    node.group.bootstrap(now, history, Seqno(0)).unwrap();
                }
                Output::Event(event) => node.events.push(event),
            }
        }
        if self.stalled.contains(&n) {
            return;
        }
        let again = node.group.wants_sync();
        let (generation, upto) = node.group.store_mut().sync();
        node.group.handle_synced(now, generation, upto);
        if again {
            self.drain(n);
        }
    }

    /// Everything that can happen without time passing.
    pub fn drain_all(&mut self) {
        self.update_links();
        for n in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.drain(n);
        }
    }

    /// The present sequencer calls this member to stand, if it is another one.
    pub fn hand_order_to(&mut self, n: u8) {
        let from = self.sequencer();
        if from != n {
            let term = self.nodes[&from].group.status().term;
            self.queue.push_back((from, n, Content::TimeoutNow.in_term(HISTORY, term)));
            self.run(Duration::from_secs(1));
        }
        assert_eq!(self.sequencer(), n);
    }

    /// One message after the other arrives, until there is what is looked for.
    pub fn deliver_until<T>(&mut self, found: impl Fn(&Net) -> Option<T>) -> T {
        for _ in 0..100_000 {
            self.drain_all();
            if let Some(found) = found(self) {
                return found;
            }
            let Some((from, to, message)) = self.next_message() else { continue };
            let now = self.now;
            self.nodes.get_mut(&to).unwrap().group.handle_message(now, node(from), message);
        }
        panic!("it does not come to that");
    }

    /// One message after the other arrives, until the log of this member begins anew with a state, and has nothing behind that yet.
    pub fn deliver_a_state_to(&mut self, n: u8) -> Base {
        self.deliver_until(|net| {
            let log = net.nodes[&n].group.store();
            Some(log.base()).filter(|base| base.index > LogIndex::ZERO && base.index == log.last()).cloned()
        })
    }

    /// The next message on its way, by hand. `None`: there was none, and a millisecond has passed.
    pub fn next_message(&mut self) -> Option<(u8, u8, Message)> {
        while let Some((from, to, message)) = self.queue.pop_front() {
            if self.arrives(from, to) {
                return Some((from, to, message));
            }
        }
        self.now = self.now.after(Duration::from_millis(1));
        let now = self.now;
        self.nodes.values_mut().for_each(|n| n.group.handle_timeout(now));
        None
    }

    fn arrives(&self, from: u8, to: u8) -> bool {
        self.links.contains(&(to, from)) && !self.lost.contains(&(from, to))
    }

    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            self.drain_all();
            let Some((from, to, message)) = self.queue.pop_front() else { return };
            let arrives = self.arrives(from, to);
            if let Some(target) = self.nodes.get_mut(&to).filter(|_| arrives) {
                target.group.handle_message(self.now, node(from), message);
                self.drain(to);
            }
        }
        panic!("the group does not come to rest");
    }

    pub fn run(&mut self, time: Duration) {
        let end = self.now.after(time);
        while self.now < end {
            self.settle();
            let next = self.nodes.values().filter_map(|n| n.group.poll_timeout()).map(|(at, _)| at).min();
            self.now = next.unwrap_or(end).max(Timestamp(self.now.0 + 1)).min(end);
            for n in self.nodes.values_mut() {
                n.group.handle_timeout(self.now);
            }
        }
        self.settle();
    }

    pub fn propose(&mut self, n: u8, body: &str) {
        let now = self.now;
        self.nodes.get_mut(&n).unwrap().group.propose(now, Bytes::copy_from_slice(body.as_bytes())).unwrap();
    }

    /// The logs of these nodes keep a checkpoint at every entry from now on.
    pub fn checkpoint_always(&mut self, nodes: impl IntoIterator<Item = u8>) {
        for n in nodes {
            self.nodes.get_mut(&n).unwrap().group.store_mut().checkpoint_every = 1;
        }
    }

    /// Something that is ordered and takes no seqno.
    pub fn say(&mut self, n: u8, text: &str) {
        let now = self.now;
        self.nodes.get_mut(&n).unwrap().group.propose_app(now, Bytes::copy_from_slice(text.as_bytes())).unwrap();
    }

    /// As `pc.bootstrap` does it.
    pub fn force(&mut self, n: u8) {
        let now = self.now;
        self.nodes.get_mut(&n).unwrap().group.force_primary(now);
    }

    /// Does its history hold a fork?
    pub fn forked(&self, n: u8) -> bool {
        self.nodes[&n].group.lineage().newest().is_some()
    }

    pub fn gave_way(&self, n: u8) -> bool {
        self.nodes[&n].events.contains(&Event::DataDiverged)
    }

    /// A copy of the disk of a node that runs. `rebooted`: in mode `process`, to be started on another boot, so it is suspect.
    pub fn copy_disk(&self, n: u8, rebooted: bool) -> MemStore {
        let mut copy = self.nodes[&n].group.store().clone();
        copy.set_suspect(Some(copy.last()).filter(|_| rebooted)).unwrap();
        copy
    }

    /// An old disk is put back, and the first words of all that are linked say so (`tells`: those of them). It is stopped before it gets anything
    /// else.
    pub fn put_back_and_tell(&mut self, n: u8, disk: MemStore, tells: fn(&Message) -> bool) -> MemStore {
        if self.nodes.contains_key(&n) {
            self.kill(n);
        }
        self.restart(n, disk, 2, Seqno(0));
        self.drain_all();
        let words: Vec<(u8, u8, Message)> = self.queue.drain(..).filter(|(_, to, m)| *to == n && tells(m)).collect();
        assert!(!words.is_empty());
        for (from, _, word) in words {
            self.nodes.get_mut(&n).unwrap().group.handle_message(self.now, node(from), word);
        }
        self.kill(n)
    }

    pub fn warned(&self, n: u8, words: &str) -> bool {
        self.nodes[&n].events.iter().any(|e| matches!(e, Event::Log { warn: true, text } if text.contains(words)))
    }

    pub fn bodies(&self, n: u8) -> Vec<String> {
        self.nodes[&n].delivered.iter().map(|(_, b)| String::from_utf8(b.clone()).unwrap()).collect()
    }
}

pub fn is_recall(m: &Message) -> bool {
    matches!(m.content(), Some(Content::Recall { .. }))
}

/// Does it tell a member that its log lacks something?
pub fn tells_of_a_lack(m: &Message) -> bool {
    is_recall(m) || matches!(m, Message::VotersHeard { .. })
}

pub fn is_heartbeat(m: &Message) -> bool {
    matches!(m.content(), Some(Content::Heartbeat(_)))
}

pub fn is_read_reply(m: &Message) -> bool {
    matches!(m.content(), Some(Content::ReadReply { .. }))
}

/// The log after a loss of power in mode `process`.
pub fn without_end(mut store: MemStore, entries: u64) -> MemStore {
    let end = LogIndex(store.last().0 - entries);
    store.truncate_after(end).unwrap();
    store.set_suspect(Some(end)).unwrap();
    store
}

/// Nothing is left of this log but what its owner has promised.
pub fn damaged_from_its_beginning(hard: HardState) -> MemStore {
    let mut log = MemStore::new();
    log.save_hard_state(hard).unwrap();
    log.set_suspect(Some(LogIndex::ZERO)).unwrap();
    log
}
