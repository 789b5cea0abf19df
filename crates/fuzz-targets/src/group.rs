//! Messages of the order, and a group that receives some that no correct member would send.

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use trireme_order::{Content, Message, Phase, ReadId};
use trireme_types::{Durability, LogIndex, Seqno, Term, Timestamp, Uuid, Weight, Writer};

/// The small groups of the order's own tests.
#[path = "../../order/tests/group/net.rs"]
#[allow(dead_code)]
mod net;

#[path = "../../order/tests/group/liar.rs"]
#[allow(dead_code)]
mod liar;

#[path = "../../order/tests/group/lies.rs"]
#[allow(dead_code)]
mod lies;

use net::{Net, node};

fn encoded(message: &Message) -> Vec<u8> {
    let mut w = Writer::new();
    message.encode(&mut w);
    w.buf
}

/// A frame. A frame that decodes encodes to something that means the same.
pub fn message(data: &[u8]) {
    if let Ok(message) = Message::decode(&Bytes::copy_from_slice(data)) {
        let again = Message::decode(&Bytes::from(encoded(&message)));
        assert_eq!(again.as_ref(), Ok(&message));
        let _ = (message.class(), message.term());
    }
}

/// One of each kind that a small group sends in its life.
pub fn message_seeds() -> Vec<Vec<u8>> {
    let mut world = World::new();
    world.net.propose(2, "write set");
    world.settle();
    let reset = Bytes::from_static(&[21]);
    world.net.queue.extend(Message::decode(&reset).ok().map(|message| (1, 2, message)));
    world.settle();
    let mut seen = std::collections::BTreeMap::new();
    for (_, _, message) in &world.sent {
        let bytes = encoded(message);
        seen.entry((bytes[0], bytes.len())).or_insert(bytes);
    }
    let mut seeds: Vec<_> = seen.into_values().collect();
    // Kinds that a healthy group has no use for, with fields of zeros.
    seeds.extend((1..=27).map(|kind| [&[kind][..], &[0; 64]].concat()));
    let (branch, term) = (Uuid([1; 16]), Term(3));
    let begin = Content::BeginFromData { index: LogIndex(5), seqno: Seqno(4) }.in_term(branch, term);
    seeds.extend([Content::Entrust.in_term(branch, term), begin].iter().map(encoded));
    seeds
}

/// A group of three that is up and running, every message it ever sent, and a fuzzer that sends some again: to others, as
/// others, changed.
struct World {
    net: Net,
    sent: Vec<(u8, u8, Message)>,
}

/// Messages carried in one step at most: members that lie may keep the group talking.
const CARRIED_MAX: usize = 300;
/// Bytes that no member may hold in memory for what a few small messages say.
const MEMORY_MAX: usize = 1 << 20;

impl World {
    fn new() -> World {
        let mut net = Net::new();
        net.bootstrap(1);
        let mut world = World { net, sent: Vec::new() };
        for n in 2..=3 {
            let now = world.net.now;
            world.net.start(n, Net::config(n), trireme_order::MemStore::new(), None);
            if let Some(node) = world.net.nodes.get_mut(&n) {
                node.group.join(now, trireme_order::JoinState { position: None });
            }
            world.run(Duration::from_millis(700));
        }
        world
    }

    fn settle(&mut self) {
        for _ in 0..CARRIED_MAX {
            self.net.update_links();
            for n in self.names() {
                self.net.drain(n);
            }
            let Some((from, to, message)) = self.net.queue.pop_front() else { return };
            if self.sent.len() < 4000 {
                self.sent.push((from, to, message.clone()));
            }
            self.deliver(from, to, message);
        }
        self.net.queue.clear();
    }

    fn names(&self) -> Vec<u8> {
        self.net.nodes.keys().copied().collect()
    }

    fn deliver(&mut self, from: u8, to: u8, message: Message) {
        let now = self.net.now;
        if let Some(target) = self.net.nodes.get_mut(&to) {
            target.group.handle_message(now, node(from), message);
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.net.now.after(time);
        for _ in 0..100 {
            self.settle();
            let next = self.net.nodes.values().filter_map(|n| n.group.poll_timeout()).map(|(at, _)| at).min();
            self.net.now = next.unwrap_or(end).max(Timestamp(self.net.now.0 + 1)).min(end);
            for n in self.net.nodes.values_mut() {
                n.group.handle_timeout(self.net.now);
            }
            if self.net.now >= end {
                break;
            }
        }
        self.settle();
    }

    /// A message that was sent before, or one from the bytes, with some bytes of its encoding changed.
    fn forged(&self, u: &mut Unstructured<'_>) -> Result<Option<Message>> {
        let mut bytes = if u.ratio(1, 6)? {
            let len = usize::from(u.int_in_range(1..=120u8)?).min(u.len());
            u.bytes(len)?.to_vec()
        } else {
            // The newest count from the end, so that a number means the same in a longer run.
            let back = usize::from(u.arbitrary::<u8>()?) % self.sent.len().max(1);
            match self.sent.len().checked_sub(back + 1) {
                Some(at) => encoded(&self.sent[at].2),
                None => return Ok(None),
            }
        };
        for _ in 0..u.int_in_range(0..=3u8)? {
            let at = usize::from(u.arbitrary::<u8>()?) % bytes.len().max(1);
            let Some(byte) = bytes.get_mut(at) else { continue };
            *byte = match u.int_in_range(0..=3u8)? {
                0 => byte.wrapping_add(1),
                1 => byte.wrapping_sub(1),
                2 => 0xff,
                _ => u.arbitrary()?,
            };
        }
        Ok(Message::decode(&Bytes::from(bytes)).ok())
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let names = self.names();
        let n = *u.choose(&names)?;
        let now = self.net.now;
        let Some(one) = self.net.nodes.get_mut(&n) else { return Ok(()) };
        match u.int_in_range(0..=31u8)? {
            0..=15 => {
                // From a member, or from a stranger that has a link.
                let from = u.int_in_range(1..=4u8)?;
                if from == 4 {
                    one.group.handle_link_up(now, Net::config(4).me, trireme_order::SUPPORTED);
                }
                if let Some(message) = self.forged(u)? {
                    self.deliver(from, n, message);
                }
            }
            16..=18 => self.settle(),
            19..=20 => self.run(Duration::from_millis(u64::from(u.arbitrary::<u8>()?) * 4)),
            21 => self.run(Duration::from_secs(6)),
            22..=23 => drop(one.group.propose(now, Bytes::from(vec![n; 20]))),
            24 => drop(one.group.propose_app(now, Bytes::from_static(b"app"))),
            25 => {
                let other = *u.choose(&names)?;
                if other != n {
                    self.net.cut.push((n, other));
                }
            }
            26 => self.net.cut.clear(),
            27 => one.group.read(now, ReadId(1)),
            28 => one.group.set_weight(now, Weight(u.int_in_range(0..=3)?)),
            29 => {
                let disk = u.arbitrary()?;
                one.group.set_durability(now, if disk { Durability::Disk } else { Durability::Process });
            }
            30 => one.group.signal(Bytes::from_static(b"signal")),
            _ => {
                let restart: bool = u.arbitrary()?;
                if restart {
                    let incarnation = self.net.nodes[&n].cfg.me.incarnation.0 + 1;
                    let store = self.net.kill(n);
                    self.net.restart(n, store, incarnation, trireme_types::Seqno(1));
                } else {
                    one.group.withdraw_unsent();
                    one.group.abandon_pending();
                }
            }
        }
        self.check();
        Ok(())
    }

    fn check(&mut self) {
        for n in self.net.nodes.values_mut() {
            let status = n.group.status();
            assert!(
                status.delivered <= status.committed && status.committed <= status.last
                    || status.phase == Phase::Failed
            );
            assert!(status.pending_bytes <= MEMORY_MAX, "{} bytes", status.pending_bytes);
        }
    }
}

/// Steps of a group of three, among them messages that no correct member sends (an old version's, a stranger's, a damaged
/// one's). No input panics or makes a member hold much memory; a member may turn `Failed` by its own rules.
pub fn operations(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let mut world = World::new();
    while !u.is_empty() {
        if world.step(&mut u).is_err() {
            break;
        }
    }
    world.settle();
    world.run(Duration::from_secs(1));
    world.check();
}

/// A group of three that one lies to, a stranger or a member, with messages of the group whose fields are changed by what they mean. When
/// the liar is gone the others elect, commit and agree within 10 s.
pub fn lies(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let mut choose = |below: u64| u.int_in_range(0..=below.saturating_sub(1)).unwrap_or_default();
    let mut world = liar::World::new(&mut choose);
    for _ in 0..choose(60) {
        world.step(&mut choose);
    }
    world.end();
}

pub fn operation_seeds() -> Vec<Vec<u8>> {
    crate::noise(16, 160)
}
