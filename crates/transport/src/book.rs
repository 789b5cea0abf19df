//! The addresses that are dialled, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use trireme_types::NodeId;

use crate::AdmitToken;
use crate::address::{Address, Host};
use crate::jitter::{BACKOFF_MAX, BACKOFF_MIN, Jitter};

/// An address that is neither configured nor in the view is tried less often once it has not answered for `COLD_AFTER`.
const COLD_AFTER: Duration = Duration::from_secs(60);
const COLD_MAX: Duration = Duration::from_secs(10);
/// Attempts after which a learned address may make room for another.
const GIVEN_UP_AFTER: u32 = 10;
/// An address where only we ourselves answer is looked at again after this: names may move.
const OWN_RECHECK: Duration = Duration::from_secs(30);
/// A link that lived shorter than this counts as a failure, so that one which breaks at once is not made in a tight loop.
const SHORT_LIFE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempt {
    /// Nothing under way.
    None,
    Resolving,
    /// Waits for the allow list; then this place is dialled, or not.
    Asked(AdmitToken, SocketAddr),
    /// A connection exists, until its handshake has ended.
    Connecting,
}

pub(crate) struct Entry {
    pub address: Address,
    /// Configured; never dropped but by `remove`.
    pub seed: bool,
    /// Of a member of the current view.
    pub current: bool,
    /// The node that answered here last. Not dialled while that node is linked.
    pub node: Option<NodeId>,
    pub attempt: Attempt,
    /// When to try next, if `attempt` is `None`.
    pub next: Instant,
    failures: u32,
    /// Since when nobody has answered.
    cold_since: Instant,
    /// Places that the name stands for and that were not tried yet in this round.
    pub candidates: Vec<SocketAddr>,
    /// All places that a name stood for when it was last looked up.
    pub resolved: Vec<IpAddr>,
    pub problem: Option<String>,
    /// Handshakes that failed since the last link: while a secret is being changed, the next attempt shows another one.
    pub tls_failures: u32,
    /// The next attempt is made without TLS: see [`Book::retry_in_clear`].
    pub clear: bool,
}

impl Entry {
    /// The hosts that it stands for, as far as they are known.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> {
        let written = match self.address.host {
            Host::Ip(ip) => Some(ip),
            Host::Name(_) => None,
        };
        written.into_iter().chain(self.resolved.iter().copied())
    }
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

    /// The entry of `address`, made when there is room for it or an entry that can be given up.
    pub fn add(&mut self, address: Address, now: Instant, max: usize) -> Option<EntryId> {
        if let Some(at) = self.find(&address) {
            return Some(at);
        }
        if self.entries.len() >= max {
            self.give_up_one()?;
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
            resolved: Vec::new(),
            problem: None,
            tls_failures: 0,
            clear: false,
        };
        self.made += 1;
        self.entries.insert(EntryId(self.made), entry);
        Some(EntryId(self.made))
    }

    /// Drops the learned address that has not answered for longest, if there is one that should.
    fn give_up_one(&mut self) -> Option<()> {
        let idle = |entry: &Entry| {
            !entry.seed && !entry.current && entry.attempt == Attempt::None && entry.failures >= GIVEN_UP_AFTER
        };
        let (at, _) = self.iter().filter(|(_, entry)| idle(entry)).min_by_key(|(_, entry)| entry.cold_since)?;
        self.remove(at);
        Some(())
    }

    pub fn remove(&mut self, at: EntryId) {
        self.entries.remove(&at);
    }

    /// The attempt at entry `at` failed.
    pub fn fail(&mut self, at: EntryId, now: Instant, problem: String, jitter: &mut Jitter) {
        let Some(entry) = self.get_mut(at) else { return };
        entry.attempt = Attempt::None;
        entry.clear = false;
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

    /// The peer at `remote` does not understand TLS, it seems: once more without, at once. The attempt after that is made
    /// with TLS again, since by then the peer may have been restarted with it.
    pub fn retry_in_clear(&mut self, at: EntryId, remote: SocketAddr, now: Instant) {
        let Some(entry) = self.get_mut(at) else { return };
        entry.attempt = Attempt::None;
        entry.clear = true;
        entry.candidates.insert(0, remote);
        entry.next = now;
    }

    /// The node that answers at entry `at` is ourselves.
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
                entry.clear = false;
                entry.tls_failures = 0;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Address {
        Address::parse(&format!("10.0.0.1:{port}")).unwrap()
    }

    #[test]
    fn a_full_book_gives_up_only_what_does_not_answer() {
        let now = Instant::now();
        let mut jitter = Jitter::new();
        let mut book = Book::default();
        let first = book.add(address(1), now, 2).unwrap();
        let second = book.add(address(2), now, 2).unwrap();
        assert_eq!(book.add(address(1), now, 2), Some(first), "known already");
        assert_eq!(book.add(address(3), now, 2), None);
        for _ in 0..GIVEN_UP_AFTER {
            book.fail(first, now, String::new(), &mut jitter);
            book.fail(second, now, String::new(), &mut jitter);
        }
        book.get_mut(first).unwrap().seed = true;
        let third = book.add(address(3), now, 2).unwrap();
        assert!(book.get(first).is_some() && book.get(second).is_none() && third > second);
    }

    #[test]
    fn addresses_outside_the_view_cool_down() {
        let start = Instant::now();
        let mut jitter = Jitter::new();
        let mut book = Book::default();
        let learned = book.add(address(1), start, 9).unwrap();
        let current = book.add(address(2), start, 9).unwrap();
        book.get_mut(current).unwrap().current = true;
        let late = start + COLD_AFTER * 2;
        for at in [learned, current] {
            (0..20).for_each(|_| book.fail(at, late, String::new(), &mut jitter));
        }
        assert!(book.get(current).unwrap().next <= late + BACKOFF_MAX * 2);
        assert!(book.get(learned).unwrap().next > late + COLD_MAX / 2);
        // Once it was linked it is warm again.
        book.link_up(NodeId::default(), Some(learned));
        book.link_down(NodeId::default(), late, SHORT_LIFE, &mut jitter);
        assert!(book.get(learned).unwrap().next <= late + BACKOFF_MIN * 2);
    }

    #[test]
    fn other_addresses_of_a_name_are_tried_before_the_pause() {
        let now = Instant::now();
        let mut jitter = Jitter::new();
        let mut book = Book::default();
        let at = book.add(address(1), now, 9).unwrap();
        book.get_mut(at).unwrap().candidates = vec!["10.0.0.2:1".parse().unwrap()];
        book.fail(at, now, String::new(), &mut jitter);
        assert_eq!(book.get(at).unwrap().next, now);
        book.get_mut(at).unwrap().candidates.clear();
        book.fail(at, now, String::new(), &mut jitter);
        assert!(book.get(at).unwrap().next > now);
    }
}
