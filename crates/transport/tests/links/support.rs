//! A transport that remembers what it reported, and the pump.

use std::time::{Duration, Instant};

use bytes::Bytes;
use trireme_order::{Class, Message};
use trireme_transport::{NetConfig, NetEvent, Sent, Transport};
use trireme_types::{Incarnation, Member, MemberKind, NodeId, Uuid, Weight};

/// All that takes longer does not happen.
pub const LONG: Duration = Duration::from_secs(20);

pub fn id(n: u8) -> NodeId {
    NodeId(Uuid([n; 16]))
}

pub fn config(n: u8, seeds: &[u16]) -> NetConfig {
    let me = Member {
        node: id(n),
        incarnation: Incarnation(1),
        name: format!("node{n}"),
        incoming: String::new(),
        address: "127.0.0.1:0".to_owned(),
        segment: 0,
        weight: Weight(1),
        kind: MemberKind::Data,
    };
    let mut cfg = NetConfig::new(me, "test");
    cfg.listen = vec!["127.0.0.1:0".to_owned()];
    cfg.seeds = seeds.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    cfg
}

/// A transport and everything it reported.
pub struct Node {
    pub transport: Transport,
    pub events: Vec<NetEvent>,
}

impl Node {
    pub fn new(cfg: NetConfig) -> Node {
        Node { transport: Transport::new(cfg).unwrap(), events: Vec::new() }
    }

    pub fn port(&self) -> u16 {
        self.transport.listen_port()
    }

    pub fn count(&self, wanted: impl Fn(&NetEvent) -> bool) -> usize {
        self.events.iter().filter(|event| wanted(event)).count()
    }

    pub fn ups(&self, n: u8) -> usize {
        self.count(|event| matches!(event, NetEvent::LinkUp { member, .. } if member.node == id(n)))
    }

    pub fn downs(&self, n: u8) -> usize {
        self.count(|event| matches!(event, NetEvent::LinkDown { node, .. } if *node == id(n)))
    }

    /// As the events tell it, which must be how the transport sees it.
    pub fn linked(&self, n: u8) -> bool {
        assert!(self.ups(n) == self.downs(n) || self.ups(n) == self.downs(n) + 1, "ups and downs alternate");
        self.ups(n) > self.downs(n)
    }

    pub fn bodies(&self, n: u8) -> Vec<Bytes> {
        let body = |event: &NetEvent| match event {
            NetEvent::Message { from, message: Message::Signal { body } } if *from == id(n) => Some(body.clone()),
            _ => None,
        };
        self.events.iter().filter_map(body).collect()
    }

    pub fn logged(&self, part: &str) -> usize {
        self.count(|event| match event {
            NetEvent::Log { text, .. } => text.contains(part),
            NetEvent::Refused { reason, .. } => reason.contains(part),
            _ => false,
        })
    }

    pub fn send(&mut self, n: u8, class: Class, body: impl Into<Bytes>) -> Sent {
        self.transport.send(id(n), class, &Message::Signal { body: body.into() })
    }
}

/// Pumps until `done`; panics with what happened when it does not come.
#[track_caller]
pub fn until<const N: usize>(mut nodes: [&mut Node; N], mut done: impl FnMut(&mut [&mut Node; N]) -> bool) {
    let end = Instant::now() + LONG;
    loop {
        for node in &mut nodes {
            node.transport.flush();
            node.transport.poll(Some(Duration::from_millis(1)), &mut node.events);
        }
        if done(&mut nodes) {
            return;
        }
        if Instant::now() > end {
            for node in &nodes {
                let shown: Vec<_> =
                    node.events.iter().filter(|event| !matches!(event, NetEvent::Message { .. })).collect();
                println!("{}: {shown:#?}", node.transport.me().name);
            }
            panic!("it did not happen");
        }
    }
}

/// Pumps for a while in which something must *not* happen.
pub fn for_a_while<const N: usize>(nodes: [&mut Node; N], time: Duration) {
    let end = Instant::now() + time;
    until(nodes, |_| Instant::now() >= end);
}

/// Two linked nodes; the first is the arbiter.
pub fn pair() -> (Node, Node) {
    pair_with(|_| {})
}

/// As [`pair`], the first having another configuration than usual.
pub fn pair_with(edit: impl FnOnce(&mut NetConfig)) -> (Node, Node) {
    let mut cfg = config(1, &[]);
    edit(&mut cfg);
    let mut a = Node::new(cfg);
    let mut b = Node::new(config(2, &[a.port()]));
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
    (a, b)
}
