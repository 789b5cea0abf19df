//! One run: swarm options, safety phase, liveness phase, verdict.

use std::fmt;

use trireme_order::{LogStore, Phase};
use trireme_replicator::Replicator;
use trireme_types::{Base, Fork, Kinship, LogIndex};

use crate::check::{Reach, Share};
use crate::cluster::{Cluster, Event, Process, Slot};
use crate::database::State;
use crate::driver::voters_at;
use crate::faults::{lineage_of, named_by, rank_of, seqno_at};
use crate::options::{Kind, MS, Options, SEC};
use crate::situations::{Situation, Situations};

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Report {
    pub seed: u64,
    pub options: String,
    pub failure: Option<Failure>,
    /// Virtual time, nanoseconds.
    pub time: u64,
    /// Virtual time from healing to convergence.
    pub healed_in: u64,
    pub events: u64,
    pub messages: u64,
    pub terms: u64,
    pub faults: u64,
    pub copies: u64,
    pub ordered: u64,
    /// In the end no node had data.
    pub bare: bool,
    pub share: Share,
    pub situations: Situations,
}

#[derive(Clone, Debug)]
pub struct Failure {
    pub phase: &'static str,
    pub text: String,
    pub dump: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.share;
        write!(
            f,
            "seed {} {} time {:.1}s healed {:.1}s events {} messages {} terms {} faults {} copies {} ordered {} committed {} conflict {} \
             refused {} withdrawn {} unknown {} ({} ordered) reads {} failed {}",
            self.seed,
            if self.failure.is_some() { "FAIL" } else { "ok" },
            self.time as f64 / SEC as f64,
            self.healed_in as f64 / SEC as f64,
            self.events,
            self.messages,
            self.terms,
            self.faults,
            self.copies,
            self.ordered,
            s.committed,
            s.conflict,
            s.refused,
            s.withdrawn,
            s.unknown,
            s.unknown_ordered,
            s.reads,
            s.reads_failed,
        )?;
        if let Some(failure) = &self.failure {
            write!(f, "\n  {} phase: {}", failure.phase, failure.text)?;
        }
        Ok(())
    }
}

/// A bound on the work of one run: beyond it something talks to itself.
const EVENTS_MAX: u64 = 20_000_000;

pub fn run_seed(seed: u64, trace: bool) -> Report {
    run(Options::draw(seed), trace)
}

pub fn run(options: Options, trace: bool) -> Report {
    let mut c = Cluster::new(options);
    c.trace = trace;
    let mut phase = "safety";
    match c.options.kind {
        Kind::Swarm | Kind::Restored | Kind::Large => c.safety_phase(),
        Kind::Harmless => c.harmless_phase(),
        Kind::Hostile => c.hostile_phase(),
    }
    let mut healed_in = 0;
    if c.failure.is_none() {
        phase = "liveness";
        let begun = c.now;
        c.liveness_phase();
        healed_in = c.now - begun;
    }
    if c.failure.is_none() {
        phase = "final";
        c.final_check();
    }
    let dump = if c.failure.is_some() { c.dump() } else { String::new() };
    Report {
        seed: c.options.seed,
        options: c.options.to_string(),
        time: c.now,
        healed_in,
        events: c.events,
        messages: c.messages,
        terms: c.terms,
        faults: c.faults_done,
        copies: c.copies,
        ordered: (0..c.slots.len()).map(|i| c.slots[i].db.now.position).max().unwrap_or(0),
        bare: c.nobody_has_data(),
        share: c.clients.share(&c.histories),
        situations: c.situations.clone(),
        failure: c.failure.take().map(|text| Failure { phase, text, dump }),
    }
}

impl Cluster {
    /// Node 0 begins a history, the others join one by one, clients work, harm is done.
    pub fn safety_phase(&mut self) {
        if self.options.founded {
            self.join(0);
        } else {
            self.bootstrap(0);
        }
        let mut at = self.now;
        for slot in 1..self.slots.len() {
            at += self.rng.exp(300 * MS);
            let boot = self.slots[slot].boot;
            self.at(at, Event::Restart { slot, boot });
        }
        self.operations_left = self.options.operations;
        self.after(200 * MS, Event::Client);
        // Often let the cluster form before harm is done; a cluster that never formed tests little.
        let quiet =
            if self.rng.chance(if self.options.founded { 0.7 } else { 0.2 }) { 0 } else { at + self.rng.exp(2 * SEC) };
        self.at(quiet, Event::Fault);
        self.plan_pause();
        let end = self.now + self.options.safety;
        while self.now < end && self.failure.is_none() {
            self.run_for(SEC.min(end - self.now));
            if self.events > EVENTS_MAX {
                let (events, now) = (self.events, self.now);
                self.fail(format!("{events} events in {}s of virtual time", now / SEC));
            }
        }
    }

    /// A formed cluster works while load, jitter and short pauses go over it: the server must not hear of it.
    fn harmless_phase(&mut self) {
        self.bootstrap(0);
        self.run_for(SEC);
        for slot in 1..self.slots.len() {
            self.join(slot);
        }
        let n = self.slots.len();
        let bound = self.options.liveness_bound();
        if !self.run_until(bound, |c| c.one_view() && c.voters().len() == n && c.settled()) {
            return self.fail(format!("{n} nodes do not form a cluster"));
        }
        self.undisturbed = true;
        let terms = self.newest_term();
        let shaken = self.faults_done;
        self.operations_left = self.options.operations;
        self.client();
        self.after(SEC, Event::Fault);
        self.plan_pause();
        self.run_for(self.options.safety);
        let (terms, shaken) = (self.newest_term() - terms, self.faults_done - shaken);
        if terms > 2 * shaken + self.options.safety / (15 * SEC) {
            self.fail(format!(
                "{terms} new terms in {}s, in which a node was shaken {shaken} times",
                self.options.safety / SEC
            ));
        }
        // All lasting harm ends, and is forgiven within the timeout.
        self.calm = true;
        self.heal();
        self.run_for(10 * SEC);
        self.undisturbed = false;
    }

    fn newest_term(&self) -> u64 {
        self.slots.iter().map(|s| s.store().hard_state().term.0).max().unwrap_or(0)
    }

    /// All faults end, but for the deaths of those who stay dead. Within the bound every other node must be a primary member of one view,
    /// order a new write set, and have the same data.
    pub fn liveness_phase(&mut self) {
        self.operations_left = 0;
        self.heal();
        let bound = self.options.liveness_bound();
        let begun = self.now;
        let limit = self.events + EVENTS_MAX;
        let mut ok = self.run_until(bound, |c| c.one_view() || c.events > limit);
        if !ok && self.failure.is_none() {
            let all = (0..self.slots.len()).collect();
            let (excuse, decides) = if self.options.forced {
                (Situation::ForcedAgain, Some(all))
            } else if self.is_liar_needed() {
                (Situation::LiarNeeded, Some(all))
            } else {
                let decides = self.only_a_person_can_go_on_from().or_else(|| self.a_voter_refuses_all());
                (Situation::PersonDecided, decides)
            };
            if let Some(slots) = decides {
                self.arose(excuse);
                ok = self.decide(bound, slots) || self.options.forced && self.have_strangers_let_in(bound);
            }
        }
        if self.failure.is_some() {
            return;
        }
        if !ok && self.only_a_person_can_repair() {
            return self.situations.arose(Situation::HalfDoneAhead);
        }
        if !ok || self.events > limit {
            let why = self.why_not_one_view();
            return self
                .fail(format!("no common primary view {}s after everything healed: {why}", (self.now - begun) / SEC));
        }
        if self.nobody_has_data() && !self.only_data_lost_a_vote() {
            return self.fail("nobody has data any more".into());
        }
        let ok = self.probe(bound);
        if !ok && self.failure.is_none() {
            return match self.data_for_a_person() {
                Some(situation) => self.situations.arose(situation),
                None => self.fail(format!("new write sets did not commit everywhere within {}s", bound / SEC)),
            };
        }
        let ok = self.failure.is_some() || self.run_until(bound, |c| c.all_at_newest_level() || !c.level_rises());
        if !ok && self.failure.is_none() {
            self.fail(format!("the group level did not rise within {}s, although all support it", bound / SEC));
        }
    }

    /// A backup would have to be restored (rule 10).
    fn nobody_has_data(&self) -> bool {
        self.slots.iter().all(|s| s.dead || (!s.db.valid && !s.db.half_done))
    }

    /// A statement was cut off in data that reach further than all logs, which lost their ends. Nobody can repeat the statement, and nobody may
    /// give up the commits before it: a person looks at the data.
    fn only_a_person_can_repair(&self) -> bool {
        let here = || self.slots.iter().filter(|s| !s.dead);
        // A log that begins behind the statement, with no data beside it, brings neither the statement nor a copy.
        let brings = |s: &Slot, at: u64| s.db.valid || s.store().base().seqno.0 < at;
        // The log that goes before all others in an election: another one may have a longer tail of an older term.
        let end = |at: u64| {
            let best = here().filter(|s| brings(s, at)).map(Slot::store).max_by_key(|store| rank_of(store));
            best.map(|store| seqno_at(store, store.last())).unwrap_or_default()
        };
        here().any(|s| s.db.half_done_at().is_some_and(|at| at > end(at).0))
    }

    /// The data that are left are of no use to the logs, and a person looks at them.
    fn data_for_a_person(&self) -> Option<Situation> {
        let outvoted = self.only_data_lost_a_vote().then_some(Situation::Outvoted);
        outvoted.or_else(|| self.logs_begin_behind_half_done_data().then_some(Situation::HalfDoneBehind))
    }

    /// Nobody has whole data, and those that a statement was cut off in have no log any more that goes on from them: a component without data had
    /// dropped what lies between before they came. A person looks at them.
    fn logs_begin_behind_half_done_data(&self) -> bool {
        let begins_behind = |s: &Slot| s.db.half_done_at().is_some_and(|at| s.store().base().seqno.0 > at);
        let here = || self.servers_left().map(|slot| &self.slots[slot]);
        here().all(|s| !s.db.valid && (!s.db.half_done || begins_behind(s))) && here().any(|s| s.db.half_done)
    }

    /// All data that logs go on from lost a vote, and those that had won it are gone. A person looks at the files of the loser.
    fn only_data_lost_a_vote(&self) -> bool {
        let here = || self.servers_left().map(|slot| &self.slots[slot]);
        let of_use = |s: &Slot| (s.db.valid || s.db.half_done) && s.store().base().seqno.0 <= s.db.now.position;
        !here().any(of_use) && here().any(|s| s.db.outvoted)
    }

    /// Those that are not dead for good.
    fn servers_left(&self) -> impl Iterator<Item = usize> {
        (0..self.slots.len() - self.options.arbitrators).filter(|slot| !self.slots[*slot].dead)
    }

    /// A statement was cut off in a voter's data beyond the logs of all that may be elected, so it promises nothing to anybody (rule 18). A server
    /// without a vote holds the statement: with that log nothing is lost, but only a person can have it gone on with.
    fn a_voter_refuses_all(&self) -> Option<Vec<usize>> {
        let here = || self.servers_left();
        let end = |slot: usize| seqno_at(self.store(slot), self.store(slot).last()).0;
        let voters = |slot: usize| voters_at(self.store(slot), self.store(slot).last());
        let best = here().max_by_key(|slot| rank_of(self.store(*slot)))?;
        let elects = |slot: usize| here().any(|s| voters(s).is_some_and(|set| set.contains(self.slots[slot].node)));
        let refuses = |slot: usize| {
            let at = self.slots[slot].db.half_done_at();
            at.is_some_and(|at| elects(slot) && at <= end(best) && here().all(|s| !elects(s) || end(s) < at))
        };
        here().any(refuses).then(|| here().collect())
    }

    /// The data that are left end before the best log of the latest branch begins, or their owner was given what that branch leaves out; and all logs of
    /// it may lack what they acknowledged, or the branch was begun in that doubt, without these data. The servers that have them. The commits behind them are lost, so a person has to say that
    /// the cluster goes on from there (rule 10).
    fn only_a_person_can_go_on_from(&self) -> Option<Vec<usize>> {
        let servers = || self.servers_left();
        let latest = servers().map(|slot| lineage_of(self.store(slot))).max_by_key(|lineage| lineage.forks().len())?;
        let owners: Vec<usize> = servers().filter(|slot| self.slots[*slot].db.valid).collect();
        let goes_on = |owner: usize| self.slots[owner].goes_on_from_data();
        let holds =
            |owner: usize, base: &Base| goes_on(owner) && self.store(owner).term_at(base.index) == Some(base.term);
        let went_on =
            |owner: usize, fork: &Fork| self.slots[owner].process.as_ref().is_some_and(|p| p.last_index >= fork.index);
        // By the data, or the log beside them.
        let meets = |owner: usize, base: &Base| {
            let data = self.slots[owner].db.now.position;
            match lineage_of(self.store(owner)).kinship(&latest) {
                Kinship::Same => base.seqno.0 <= data || holds(owner, base),
                Kinship::Descendant(fork) => {
                    data <= fork.seqno.0
                        && (base.seqno.0 <= data || base.index < fork.index && holds(owner, base))
                        && !went_on(owner, &fork)
                }
                Kinship::Ancestor | Kinship::Sibling => false,
            }
        };
        let on_latest = || servers().filter(|slot| lineage_of(self.store(*slot)).kinship(&latest) == Kinship::Same);
        // The one that goes before all others in an election. It shows what the others lost, so none of them goes on without a person.
        let best = on_latest().max_by_key(|slot| rank_of(self.store(*slot)))?;
        let begins_behind = owners.iter().all(|owner| !meets(*owner, self.store(best).base()));
        let is_behind =
            |owner: usize| !goes_on(owner) || lineage_of(self.store(owner)).kinship(&latest) != Kinship::Same;
        let overtaken = || owners.iter().all(|owner| is_behind(*owner));
        let lost = on_latest().all(|slot| self.slots[slot].doubt.is_some()) || overtaken();
        (lost && begins_behind && !owners.is_empty()).then_some(owners)
    }

    /// A node gave way to a component, which broke up before it could let it in. The component needs the node, and the node cannot help it.
    /// The operator who forced one side decides again. Or nobody else can: then it is for one of the servers with data.
    fn decide(&mut self, bound: u64, slots: Vec<usize>) -> bool {
        self.have_forced(&slots);
        let arbitrates = |c: &Cluster, slot: usize| c.options.is_arbitrator(slot) && c.slots[slot].process.is_some();
        let arbitrators: Vec<usize> = (0..self.slots.len()).filter(|slot| arbitrates(self, *slot)).collect();
        if !self.has_primary() && !arbitrators.is_empty() {
            // So it said: it has what the servers can no longer be given. Its log comes back once they go on without it.
            self.arose(Situation::ArbitratorStopped);
            for slot in &arbitrators {
                self.crash(*slot, false);
            }
            // Until the servers have noticed.
            self.run_for(5 * SEC);
            self.have_forced(&slots);
            for slot in arbitrators {
                self.begin_start(slot);
            }
        }
        self.run_until(bound, |c| c.one_view())
    }

    /// A branch was forced while others went on, and those have let in a node that it never heard of. Then it keeps its log and data, whatever that
    /// node shows (rule 35), and its nodes say what to do: they are started again without both.
    fn have_strangers_let_in(&mut self, bound: u64) -> bool {
        let primary = || (0..self.slots.len()).filter(|slot| self.is_primary(*slot));
        let refuses = |slot: &usize| primary().any(|other| self.is_stranger_to(*slot, other));
        let refusing: Vec<usize> = primary().filter(refuses).collect();
        if refusing.is_empty() || refusing.len() == primary().count() {
            return false;
        }
        for slot in refusing {
            self.wipe(slot);
            self.begin_start(slot);
        }
        self.run_until(bound, |c| c.one_view())
    }

    /// Does `other` go on elsewhere with nobody whom the log of `slot` has named?
    fn is_stranger_to(&self, slot: usize, other: usize) -> bool {
        let Some(there) = self.slots[other].process.as_ref().and_then(|p| p.view.as_ref()) else { return false };
        let Some(named) = named_by(self.store(slot)) else { return false };
        there.members.iter().all(|m| !named.members.contains(&m.node) && !named.speakers.contains(&m.node))
    }

    fn has_primary(&self) -> bool {
        (0..self.slots.len()).any(|slot| self.is_primary(slot))
    }

    /// `pc.bootstrap=1` at one after the other, until there is a primary component.
    fn have_forced(&mut self, slots: &[usize]) {
        for slot in slots {
            if !self.has_primary() {
                self.log(|| format!("the operator decides for n{slot}"));
                self.with_group(*slot, |g, now| g.force_primary(now));
                self.run_for(5 * SEC);
            }
        }
    }

    /// Every node writes until each has seen one of its own committed; then all data must be equal.
    fn probe(&mut self, bound: u64) -> bool {
        let end = self.now + bound;
        // Operation, and the life of the node that began it.
        let mut probes: Vec<Option<(u64, u32)>> = vec![None; self.slots.len()];
        while self.now < end {
            if self.failure.is_some() {
                return false;
            }
            let mut all = true;
            for slot in 0..self.slots.len() - self.options.arbitrators {
                if self.slots[slot].dead {
                    continue;
                }
                let done = probes[slot].is_some_and(|(op, _)| {
                    matches!(
                        self.clients.outcome(op),
                        Some(crate::check::Outcome::Committed(_) | crate::check::Outcome::Conflict(_))
                    )
                });
                if done {
                    continue;
                }
                all = false;
                let boot = self.slots[slot].boot;
                let lost = probes[slot].is_none_or(|(op, began)| {
                    let waits = self.slots[slot].process.as_ref().is_some_and(|p| p.is_busy_with(op));
                    began != boot || !waits
                });
                if lost && self.slots[slot].db.valid {
                    probes[slot] = Some((self.write(slot), boot));
                }
            }
            if all
                && self.one_view()
                && self.same_data()
                && self.nobody_evicted_is_in()
                && self.votes_are_settled()
                && self.nobody_asks_for_a_donor()
            {
                return true;
            }
            self.run_for(20 * MS);
        }
        false
    }

    /// Nobody waits for a result, and each server that has lost a vote is back.
    fn votes_are_settled(&self) -> bool {
        self.slots.iter().filter(|s| !s.dead).all(|s| {
            let settled = |r: &Replicator| !r.awaits_result() && r.roster().open_votes().is_empty();
            s.process.as_ref().is_some_and(|p| settled(&p.replicator))
        })
    }

    /// Each request of an arbitrator has an answer.
    fn nobody_asks_for_a_donor(&self) -> bool {
        !self.slots.iter().any(|s| s.process.as_ref().is_some_and(|p| p.asks_donor))
    }

    fn nobody_evicted_is_in(&self) -> bool {
        let evicted = |p: &crate::cluster::Process| {
            p.view
                .as_ref()
                .is_some_and(|v| v.members.iter().any(|m| p.replicator.roster().evicted().contains(&m.uuid())))
        };
        !self.slots.iter().filter_map(|s| s.process.as_ref()).any(evicted)
    }

    /// All running nodes are members of the same primary view, which has exactly them.
    pub fn one_view(&self) -> bool {
        self.why_not_one_view().is_empty()
    }

    pub(crate) fn why_not_one_view(&self) -> String {
        let mut common: Option<(&trireme_types::View, trireme_types::Uuid)> = None;
        let running = self.slots.iter().filter(|s| s.process.is_some()).count();
        for (i, s) in self.slots.iter().enumerate() {
            let Some(p) = &s.process else { continue };
            let Some(view) = p.view.as_ref().filter(|_| p.primary) else { return format!("n{i} is not primary") };
            if p.leaving {
                return format!("n{i} is leaving");
            }
            if p.group.status().phase != Phase::Primary {
                return format!("n{i} is {:?}", p.group.status().phase);
            }
            match common {
                None => common = Some((view, p.history)),
                Some((v, h)) if v != view || h != p.history => return format!("n{i} has another view"),
                Some(_) => {}
            }
            if view.members.len() != running {
                return format!("n{i} has a view of {}, {running} are running", view.members.len());
            }
        }
        String::new()
    }

    pub(crate) fn same_data(&self) -> bool {
        let mut common = None;
        // Messages without a seqno may come after the last one that has one.
        let mut ends = self.slots.iter().filter_map(|s| s.process.as_ref()).map(|p| p.group.status().delivered);
        let first = ends.next();
        if ends.any(|end| Some(end) != first) {
            return false;
        }
        for (i, s) in self.slots.iter().enumerate() {
            let Some(p) = &s.process else { continue };
            if self.options.is_arbitrator(i) {
                // Arbitrators have the last slots: by now it is known what the servers have applied.
                if common.is_some_and(|c: &State| c.position != p.last_seqno.0) {
                    return false;
                }
                continue;
            }
            if !s.db.valid || !s.db.queue.is_empty() || !p.replicator.is_live() || s.db.now.position != p.last_seqno.0 {
                return false;
            }
            match common {
                None => common = Some(&s.db.now),
                // Content is compared by `final_check`: a difference is a violation, not a reason to wait.
                Some(c) if c.position != s.db.now.position => return false,
                Some(_) => {}
            }
        }
        true
    }

    /// Equal data everywhere, every promise kept, logs equal where they overlap.
    pub fn final_check(&mut self) {
        if self.nobody_has_data() || self.only_a_person_can_repair() || self.data_for_a_person().is_some() {
            return;
        }
        let running: Vec<usize> = (0..self.slots.len()).filter(|&i| self.slots[i].process.is_some()).collect();
        let Some(&first) = running.first() else { return };
        for &other in &running {
            if !self.options.is_arbitrator(other) && self.slots[other].db.now != self.slots[first].db.now {
                return self.fail(format!(
                    "n{first} and n{other} have different data at position {}",
                    self.slots[first].db.now.position
                ));
            }
            let (a, b) = (self.slots[first].process.as_ref(), self.slots[other].process.as_ref());
            // A message of the application, which takes no seqno, may be on its way to one of them.
            let at = |p: &Process| p.group.status().delivered;
            if a.map(at) == b.map(at) && a.map(|p| p.state()) != b.map(|p| p.state()) {
                return self.fail(format!("n{first} and n{other} have different application states"));
            }
        }
        if let Some(text) = self.logs_differ(&running) {
            return self.fail(text);
        }
        if self.options.founded && self.histories.formed() > 1 {
            return self.fail("more than one history was begun".into());
        }
        let servers: Vec<usize> = running.iter().copied().filter(|&i| !self.options.is_arbitrator(i)).collect();
        if let Some(&server) = servers.first() {
            let data = &self.slots[server].db.now;
            let end = Reach { history: data.history, lineage: data.lineage.clone(), seqno: data.position };
            let result = self.judge_values(&end, &servers);
            self.check(server, result);
        }
        if self.options.branches() {
            let data = self.slots[first].db.now.clone();
            let end = Reach { history: data.history, lineage: data.lineage, seqno: data.position };
            let result = self.branches.check(&end, &self.clients);
            self.check(first, result);
        }
        if self.options.dark {
            let data = self.slots[first].db.now.clone();
            let end = Reach { history: data.history, lineage: data.lineage, seqno: data.position };
            let gone = self.losses.check(&end).map(|gone| {
                if gone > 0 {
                    self.arose(Situation::CommitsLost);
                }
            });
            self.check(first, gone);
        }
        if !self.options.branches() {
            let position = self.slots[first].db.now.position;
            let result = self.clients.check(&self.histories, position);
            self.check(first, result);
        }
    }

    fn logs_differ(&self, running: &[usize]) -> Option<String> {
        let first = self.slots[*running.first()?].store();
        let end = running.iter().filter_map(|&i| self.slots[i].process.as_ref()).map(|p| p.last_index).min()?;
        for &other in running {
            let store = self.slots[other].store();
            let mut index = first.base().index.max(store.base().index).next();
            while index <= end {
                let (a, b) = (first.read(index, 0).ok()?, store.read(index, 0).ok()?);
                if a.first() != b.first() {
                    return Some(format!("logs of n{} and n{other} differ at index {index}", running[0]));
                }
                index = LogIndex(index.0 + 1);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::DbFlush;
    use trireme_types::Durability;

    /// All die in the same statement with their machines, and all logs lose the commits before it.
    #[test]
    fn half_done_data_ahead_of_all_logs_are_left_to_a_person() {
        let mut o = Options::calm(1, 3);
        (o.durability, o.db_flush, o.dark) = (Durability::Process, DbFlush::Each, true);
        let mut c = Cluster::formed(o);
        (0..3).for_each(|slot| c.stall_syncs(slot, 1_000_000));
        let writer = c.the_sequencer();
        for _ in 0..20 {
            c.write_committed(writer);
        }
        c.expect(SEC, "all have applied them", |c| c.same_data());
        for slot in 0..3 {
            c.crash(slot, true);
            let s = &mut c.slots[slot];
            s.db.cut_off(&mut c.rng);
        }
        assert!(c.only_a_person_can_repair());
        c.liveness_phase();
        assert_eq!((&c.failure, c.situations.times(Situation::HalfDoneAhead)), (&None, 1));
    }
}
