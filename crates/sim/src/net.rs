//! Links between nodes: connections as TCP gives them. Within a connection and a class order is kept and nothing is lost. A connection that
//! is reset loses the messages under way, and its two ends notice at different times. A cut direction holds everything back until it heals
//! or the connection is given up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use trireme_order::{Class, Message};
use trireme_types::NodeId;

pub const SLOTS_MAX: usize = 8;

#[derive(Clone, Debug)]
pub enum Payload {
    Plain(Message),
    Encoded(Bytes),
    /// It was never sent by the core.
    Lie(Message),
}

#[derive(Default)]
pub struct Lane {
    /// Arrival time and content, in order.
    pub queue: VecDeque<(u64, Payload)>,
    pub last: u64,
}

pub struct Conn {
    /// Slots; `ends[0] < ends[1]`.
    pub ends: [usize; 2],
    pub boots: [u32; 2],
    pub nodes: [NodeId; 2],
    /// Sends still travel. False after a reset.
    pub open: bool,
    /// The end was told that the link is up.
    pub up: [bool; 2],
    /// The end was told that the link is down (or died).
    pub closed: [bool; 2],
    /// By sending end, then class.
    pub lanes: [[Lane; 3]; 2],
}

impl Conn {
    pub fn end_of(&self, slot: usize) -> usize {
        usize::from(self.ends[1] == slot)
    }
}

#[derive(Default)]
pub struct Network {
    pub conns: BTreeMap<u64, Conn>,
    /// The open connection of a pair.
    pub pairs: BTreeMap<(usize, usize), u64>,
    /// Pairs with a connection attempt under way.
    pub connecting: BTreeSet<(usize, usize)>,
    next: u64,
    /// How many faults cut the direction from → to.
    blocked: [[u32; SLOTS_MAX]; SLOTS_MAX],
    /// Delay factor of the direction; 0 and 1 mean normal.
    pub slow: [[u64; SLOTS_MAX]; SLOTS_MAX],
}

pub fn lane_of(class: Class) -> usize {
    match class {
        Class::Control => 0,
        Class::Bulk => 1,
        Class::Droppable => 2,
    }
}

pub fn pair(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}

impl Network {
    /// `a < b`.
    pub fn open(&mut self, a: usize, b: usize, boots: [u32; 2], nodes: [NodeId; 2]) -> u64 {
        debug_assert!(a < b);
        self.next += 1;
        let conn = Conn {
            ends: [a, b],
            boots,
            nodes,
            open: true,
            up: [false; 2],
            closed: [false; 2],
            lanes: Default::default(),
        };
        self.conns.insert(self.next, conn);
        self.pairs.insert((a, b), self.next);
        self.next
    }

    pub fn is_blocked(&self, from: usize, to: usize) -> bool {
        self.blocked[from][to] > 0
    }

    pub fn block(&mut self, from: usize, to: usize) {
        self.blocked[from][to] += 1;
    }

    /// Returns whether the direction is free again.
    pub fn unblock(&mut self, from: usize, to: usize) -> bool {
        let count = &mut self.blocked[from][to];
        *count = count.saturating_sub(1);
        *count == 0
    }

    pub fn heal_all(&mut self) {
        self.blocked = Default::default();
        self.slow = Default::default();
    }

    /// Forget a connection that both ends have closed.
    pub fn sweep(&mut self, id: u64) {
        if self.conns.get(&id).is_some_and(|c| !c.open && c.closed == [true, true]) {
            self.conns.remove(&id);
        }
    }
}
