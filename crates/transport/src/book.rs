//! The addresses that are dialled, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use trireme_types::NodeId;

use crate::address::Address;
use crate::jitter::{BACKOFF_MAX, BACKOFF_MIN, Jitter};

/// An address that is neither configured nor in the view is tried less often once it has not answered for `COLD_AFTER`.
const COLD_AFTER: Duration = Duration::from_secs(60);
const COLD_MAX: Duration = Duration::from_secs(10);
/// An address where only we ourselves answer is looked at again after this: names may move.
const OWN_RECHECK: Duration = Duration::from_secs(30);
/// A link that lived shorter than this counts as a failure, so that one which breaks at once is not made in a tight loop.
const SHORT_LIFE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempt {
    /// Nothing under way.
    None,
    Resolving,
    /// A connection exists, until its handshake has ended.
    Connecting,
}

pub(crate) struct Entry {
    pub address: Address,
    /// Configured; never dropped but by `remove`.
    pub seed: bool,
    /// Of a member of the current view.
    pub current: bool,
    /// Who answered here last. Not dialled while that node is linked.
    pub node: Option<NodeId>,
    pub attempt: Attempt,
    /// When to try next, if `attempt` is `None`.
    pub next: Instant,
    failures: u32,
    /// Since when nobody has answered.
    cold_since: Instant,
    /// Places that the name stands for and that were not tried yet in this round.
    pub candidates: Vec<SocketAddr>,
    pub problem: Option<String>,
}

/// Names an entry. Never reused: a connection may outlive the entry that it was dialled for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct EntryId(u64);

#[derive(Default)]
pub(crate) struct Book {
    entries: BTreeMap<EntryId, Entry>,
    made: u64,
    /// Places where we found ourselves.
    pub own: BTreeSet<SocketAddr>,
}

impl Book {
    pub fn get(&self, at: EntryId) -> Option<&Entry> {
        self.entries.get(&at)
    }

    pub fn get_mut(&mut self, at: EntryId) -> Option<&mut Entry> {
        self.entries.get_mut(&at)
    }

    pub fn iter(&self) -> impl Iterator<Item = (EntryId, &Entry)> {
        self.entries.iter().map(|(at, entry)| (*at, entry))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (EntryId, &mut Entry)> {
        self.entries.iter_mut().map(|(at, entry)| (*at, entry))
    }

    pub fn find(&self, address: &Address) -> Option<EntryId> {
        self.iter().find(|(_, entry)| entry.address == *address).map(|(at, _)| at)
    }

    /// The entry of `address`, made when there is room for it.
    pub fn add(&mut self, address: Address, now: Instant, max: usize) -> Option<EntryId> {
        if let Some(at) = self.find(&address) {
            return Some(at);
        }
        if self.entries.len() >= max {
            return None;
        }
        let entry = Entry {
            address,
            seed: false,
            current: false,
            node: None,
            attempt: Attempt::None,
            next: now,
            failures: 0,
            cold_since: now,
            candidates: Vec::new(),
            problem: None,
        };
        self.made += 1;
        self.entries.insert(EntryId(self.made), entry);
        Some(EntryId(self.made))
    }

    pub fn remove(&mut self, at: EntryId) {
        self.entries.remove(&at);
    }

    /// The attempt at entry `at` failed.
    pub fn fail(&mut self, at: EntryId, now: Instant, problem: String, jitter: &mut Jitter) {
        let Some(entry) = self.get_mut(at) else { return };
        entry.attempt = Attempt::None;
        entry.problem = Some(problem);
        // The other addresses of a name are tried before the pause.
        if !entry.candidates.is_empty() {
            entry.next = now;
            return;
        }
        let cold = !entry.seed && !entry.current && now.duration_since(entry.cold_since) > COLD_AFTER;
        entry.next = now + jitter.backoff(entry.failures, if cold { COLD_MAX } else { BACKOFF_MAX });
        entry.failures = entry.failures.saturating_add(1);
    }

    /// Whoever answers at entry `at` is ourselves.
    pub fn found_own(&mut self, at: EntryId, now: Instant) {
        let Some(entry) = self.get_mut(at) else { return };
        entry.attempt = Attempt::None;
        entry.problem = None;
        entry.next = if entry.candidates.is_empty() { now + OWN_RECHECK } else { now };
    }

    /// `node` answered at entry `at`, whatever became of the connection.
    pub fn found(&mut self, at: EntryId, node: NodeId) {
        if let Some(entry) = self.get_mut(at) {
            entry.node = Some(node);
            entry.problem = None;
        }
    }

    pub fn link_up(&mut self, node: NodeId, at: Option<EntryId>) {
        for (index, entry) in self.iter_mut() {
            if Some(index) == at {
                entry.attempt = Attempt::None;
                entry.node = Some(node);
                entry.candidates.clear();
            }
            if entry.node == Some(node) {
                entry.problem = None;
            }
        }
    }

    /// The link to `node` is down after it lived for `lifetime`: time to dial.
    pub fn link_down(&mut self, node: NodeId, now: Instant, lifetime: Duration, jitter: &mut Jitter) {
        for (_, entry) in self.iter_mut().filter(|(_, entry)| entry.node == Some(node)) {
            entry.cold_since = now;
            entry.failures = if lifetime < SHORT_LIFE { entry.failures.saturating_add(1) } else { 0 };
            if entry.attempt == Attempt::None {
                entry.next = now + jitter.backoff(entry.failures, BACKOFF_MAX);
            }
        }
    }

    /// `node` stops on purpose: only configured addresses are worth dialling on.
    pub fn forget(&mut self, node: NodeId) {
        self.entries.retain(|_, entry| entry.node != Some(node) || entry.seed);
    }

    /// Everything may be tried again soon.
    pub fn restart(&mut self, now: Instant, jitter: &mut Jitter) {
        for (_, entry) in self.iter_mut().filter(|(_, entry)| entry.attempt == Attempt::None) {
            entry.failures = 0;
            entry.cold_since = now;
            entry.next = now + jitter.backoff(0, BACKOFF_MIN);
        }
    }
}
