//! Words for hand-written scenarios.

use trireme_order::{LogStore, Message, Phase};
use trireme_types::LogIndex;

use crate::check::Outcome;
use crate::cluster::{Cluster, Verdict};
use crate::options::{MS, Options, SEC};

impl Cluster {
    /// A calm cluster of `nodes`, all in one view and all voters, with equal data.
    pub fn formed(options: Options) -> Cluster {
        let mut c = Cluster::new(options);
        c.trace = std::env::var_os("SIM_TRACE").is_some();
        let n = c.options.nodes;
        c.bootstrap(0);
        c.run_for(100 * MS);
        for slot in 1..n {
            c.join(slot);
        }
        let ok = c.run_until(60 * SEC, |c| c.one_view() && c.voters().len() == n && c.settled());
        assert!(ok, "the cluster does not form: {:?}\n{}", c.failure, c.dump());
        c
    }

    /// A server that ended because it could not go on is not started again.
    pub fn stay_down(&mut self, slot: usize) {
        let s = &mut self.slots[slot];
        if s.process.is_none() {
            s.boot += 1;
        }
    }

    /// It runs, and no stop is under way.
    pub fn is_up_to_stay(&self, slot: usize) -> bool {
        self.slots[slot].process.as_ref().is_some_and(|p| !p.leaving)
    }

    /// Slots of the voters, as the sequencer has them; empty without one.
    pub fn voters(&self) -> Vec<usize> {
        let Some(status) = self.sequencer().and_then(|s| self.status(s)) else { return Vec::new() };
        let mut slots: Vec<usize> = status.voters.voters.iter().filter_map(|v| self.slot_of(v.node)).collect();
        slots.sort_unstable();
        slots
    }

    /// All running nodes hold the same data and wait for none, and their servers take clients.
    pub fn settled(&self) -> bool {
        let all = |slot| self.options.is_arbitrator(slot) || self.slots[slot].process.is_none() || self.is_synced(slot);
        self.same_data() && (0..self.slots.len()).all(all)
    }

    /// Does the server in this place take clients?
    pub fn is_synced(&self, slot: usize) -> bool {
        self.slots[slot].process.as_ref().is_some_and(|p| p.synced)
    }

    /// Index before the first entry that the log in this place holds.
    pub fn base(&self, slot: usize) -> LogIndex {
        self.slots[slot].store().base().index
    }

    /// Index of its last entry.
    pub fn last(&self, slot: usize) -> LogIndex {
        self.slots[slot].store().last()
    }

    pub fn committed(&self, op: u64) -> bool {
        matches!(self.clients.outcome(op), Some(Outcome::Committed(_)))
    }

    /// Does the history hold it?
    pub fn is_ordered(&self, op: u64) -> bool {
        self.histories.find(op).is_some()
    }

    /// How often the member `of` is desynced, as the one in the place `slot` knows.
    pub fn desyncs(&self, slot: usize, of: usize) -> u32 {
        let roster = self.slots[slot].process.as_ref().map(|p| p.replicator.roster());
        roster.map_or(0, |roster| roster.desyncs(self.node(of)))
    }

    /// Writes on `slot`, once its server takes clients, and waits until the client is told "committed".
    pub fn write_committed(&mut self, slot: usize) -> u64 {
        self.expect(30 * SEC, "a server takes clients", |c| c.is_synced(slot));
        let op = self.write(slot);
        self.expect(30 * SEC, "a write set commits", |c| c.committed(op));
        op
    }

    /// Clients on each of `slots` write one transaction after the other for `duration`. The longest time between two commits
    /// that any one of them saw.
    pub fn longest_gap(&mut self, slots: &[usize], duration: u64) -> u64 {
        let end = self.now + duration;
        let mut clients: Vec<(u64, Option<u64>)> = slots.iter().map(|_| (self.now, None)).collect();
        let mut longest = 0;
        while self.now < end {
            for (client, &slot) in clients.iter_mut().zip(slots) {
                let answered = client.1.and_then(|op| self.clients.outcome(op));
                match answered {
                    Some(Outcome::Unknown) => continue,
                    Some(Outcome::Committed(_) | Outcome::Conflict(_)) => client.0 = self.now,
                    Some(Outcome::Refused | Outcome::Withdrawn | Outcome::RolledBack) | None => {}
                }
                client.1 = Some(self.write(slot));
            }
            self.pass(MS);
            longest = clients.iter().map(|(last, _)| self.now - last).max().unwrap_or(0).max(longest);
        }
        longest
    }

    /// Runs until `done`. Panics with every node's state if that does not come within `bound`.
    pub fn expect(&mut self, bound: u64, what: &str, done: impl FnMut(&Cluster) -> bool) {
        let ok = self.run_until(bound, done);
        assert!(ok, "expected: {what}; violation: {:?}\n{}", self.failure, self.dump());
    }

    /// The same for what may be over within the ten milliseconds after which [`expect`](Self::expect) looks again.
    pub fn catch(&mut self, bound: u64, what: &str, done: impl FnMut(&Cluster) -> bool) {
        let ok = self.run_until_every(MS, bound, done);
        assert!(ok, "expected: {what}; violation: {:?}\n{}", self.failure, self.dump());
    }

    /// Runs for `duration`; panics when a checker objects.
    pub fn pass(&mut self, duration: u64) {
        self.run_for(duration);
        assert!(self.failure.is_none(), "{:?}\n{}", self.failure, self.dump());
    }

    /// Cuts `slot` from everybody, and nobody else.
    pub fn isolate(&mut self, slot: usize) {
        self.partition(&[slot]);
    }

    /// The same, and what is on its way to it is lost.
    pub fn sever(&mut self, slot: usize) {
        self.isolate(slot);
        for other in (0..self.slots.len()).filter(|other| *other != slot) {
            self.reset_link(slot, other);
        }
    }

    /// The sequencer; panics without one.
    pub fn the_sequencer(&mut self) -> usize {
        self.expect(30 * SEC, "there is a sequencer", |c| c.sequencer().is_some());
        self.sequencer().expect("just seen")
    }

    /// A primary member that believes somebody else or itself to order, but not `not`.
    pub fn other_sequencer(&mut self, not: usize) -> usize {
        let named = |c: &Cluster| {
            (0..c.options.nodes).find(|&i| {
                i != not && c.status(i).is_some_and(|s| s.phase == Phase::Primary && s.sequencer == Some(c.node(i)))
            })
        };
        self.expect(30 * SEC, "another sequencer", |c| named(c).is_some());
        named(self).expect("just seen")
    }

    /// Holds back every message from `from` to `to` (`None`: any) for which `which` says yes.
    pub fn hold(&mut self, from: Option<usize>, to: Option<usize>, which: fn(&Message) -> bool) {
        self.set_filter(Some(Box::new(move |f, t, m| {
            if from.is_none_or(|x| x == f) && to.is_none_or(|x| x == t) && which(m) {
                Verdict::Hold
            } else {
                Verdict::Pass
            }
        })));
    }

    /// Loses them instead.
    pub fn lose(&mut self, from: Option<usize>, to: Option<usize>, which: fn(&Message) -> bool) {
        self.set_filter(Some(Box::new(move |f, t, m| {
            if from.is_none_or(|x| x == f) && to.is_none_or(|x| x == t) && which(m) {
                Verdict::Drop
            } else {
                Verdict::Pass
            }
        })));
    }

    /// Syncs of `slot` take `factor` times as long from now on. With 1 the one that is under way ends as well.
    pub fn stall_syncs(&mut self, slot: usize, factor: u64) {
        if factor == 1 {
            return self.end_sync_stall(slot);
        }
        self.slots[slot].sync_factor = factor;
    }

    /// Everything heals; all converge; every promise is checked.
    pub fn conclude(mut self) {
        self.set_filter(None);
        self.liveness_phase();
        if self.failure.is_none() {
            self.final_check();
        }
        assert!(self.failure.is_none(), "{:?}\n{}", self.failure, self.dump());
    }
}
