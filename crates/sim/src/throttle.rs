//! Flow control in a simulated process, as a node's group thread carries it out (`crates/node/src/core/throttle.rs`): it looks at the
//! backlog of its server, says what is to be said, and holds back what own clients want to commit. A client that is held back keeps its
//! locks, and lets go of them when an applier wants one.
//!
//! The record beside it is the simulator's own: the stops that came, and what this member said last. By it is judged that nobody is held
//! up by a stop that was not heard for long, that a stop is said again while it lasts, that its end is said, and that a member that
//! applies nothing gives up. That nobody is held back for ever the liveness phase shows.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use trireme_replicator::flow::{Act, Flow, Limits};
use trireme_replicator::roster::NodeState;
use trireme_types::{NodeId, Seqno, Timestamp};

use crate::cluster::{Cluster, Event, Process};
use crate::judge::Part;
use crate::locals::Trx;
use crate::options::{MS, Options, Sabotage};
use crate::rng::Rng;
use crate::situations::Situation;
use crate::streaming::OwnStream;
use crate::watch::Stage;

/// A stop that was not heard again for so long is over.
const EXPIRES_AFTER: Duration = Duration::from_millis(400);
/// In force, it is said again after so long.
const REPEATED_AFTER: Duration = Duration::from_millis(100);
/// A node that has not heard the sequencer for so long was out of touch.
const OUT_OF_TOUCH_AFTER: Duration = Duration::from_millis(300);

/// Something that a client wants to commit, and that is not sent for now.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Held {
    /// A transaction that has its locks.
    Trx(u64),
    /// A part of an operation that takes its rows when it is sent.
    Part(u64, Part),
}

impl Held {
    fn op(self) -> u64 {
        match self {
            Held::Trx(op) | Held::Part(op, _) => op,
        }
    }
}

/// Of one incarnation, but for what is held back.
pub(crate) struct Throttle {
    flow: Flow,
    held: VecDeque<Held>,
    members: Vec<NodeId>,
    /// When the sequencer was last heard.
    touched: Timestamp,
    /// The next look is planned for then, in global time.
    looks_at: Option<u64>,
    /// The backlog at which the group thread wants to be woken.
    wakes_at: Option<u64>,
    // The simulator's record.
    /// Stops of others that no other word of theirs came after, and when they came last.
    heard: BTreeMap<NodeId, Timestamp>,
    /// It asks for a stop.
    asks: bool,
    /// Its last word, when there was one: was it a stop?
    said: Option<(Timestamp, bool)>,
    /// Up to where everything had been applied at the last look, and when that had last moved while it asked for a stop.
    left: Seqno,
    moved: Timestamp,
}

impl Throttle {
    /// `None`: there is no flow control in this run.
    pub fn new(me: NodeId, options: &Options) -> Option<Box<Throttle>> {
        if options.flow_limit == 0 {
            return None;
        }
        let mut flow = Flow::new(me);
        flow.set_mutant(options.replicator_mutant);
        flow.set_patience(Duration::from_nanos(options.flow_patience));
        Some(Box::new(Throttle {
            flow,
            held: VecDeque::new(),
            members: Vec::new(),
            touched: Timestamp::ZERO,
            looks_at: None,
            wakes_at: None,
            heard: BTreeMap::new(),
            asks: false,
            said: None,
            left: Seqno::ZERO,
            moved: Timestamp::ZERO,
        }))
    }

    /// The backlog at which a member counts as synced.
    pub fn backlog_small(&self) -> u64 {
        self.flow.limits().lower
    }

    pub fn asks(&self) -> bool {
        self.asks
    }

    pub fn holds(&self, op: u64) -> bool {
        self.held.iter().any(|held| held.op() == op)
    }

    /// A write set was ordered.
    pub fn count(&mut self, own: bool) {
        self.flow.count(own);
    }

    /// The members of the view, without a primary component nobody.
    fn set_members(&mut self, members: Vec<NodeId>, options: &Options) {
        if !members.is_empty() {
            self.flow.set_limits(Limits::new(options.flow_limit, options.flow_factor, members.len(), false));
        }
        self.heard.retain(|node, _| members.contains(node));
        self.members.clone_from(&members);
        self.flow.set_members(members);
    }

    fn on_signal(&mut self, now: Timestamp, me: NodeId, from: NodeId, body: &[u8]) {
        if from != me && self.members.contains(&from) {
            match (body.len(), body.first(), body.get(1)) {
                (18, Some(2), Some(1)) => drop(self.heard.insert(from, now)),
                (18, Some(2), Some(0)) => drop(self.heard.remove(&from)),
                // Something else.
                _ => {}
            }
        }
        self.flow.on_signal(now, from, body);
    }

    /// The words that are to be said.
    fn say(&mut self, now: Timestamp) -> (Vec<bytes::Bytes>, Vec<Situation>) {
        let (mut words, mut met) = (Vec::new(), Vec::new());
        while let Some(act) = self.flow.poll() {
            match act {
                Act::Signal(body) => {
                    self.said = Some((now, body.get(1) == Some(&1)));
                    words.push(body);
                }
                Act::Requested(asks) => {
                    if asks {
                        self.moved = now;
                        met.push(Situation::FlowStop);
                    }
                    self.asks = asks;
                }
                Act::GaveUp { .. } => met.push(Situation::FlowGivenUp),
                Act::Received | Act::Paused(_) | Act::HeldUpBy { .. } => {}
            }
        }
        (words, met)
    }

    /// The verdict after a look at `now`, and whether stops had expired.
    fn judge(&mut self, now: Timestamp, me: NodeId, left: Seqno, patience: Duration) -> Result<bool, String> {
        if left > self.left {
            self.moved = now;
        }
        self.left = left;
        let before = self.heard.len();
        self.heard.retain(|_, heard| now.since(*heard) < EXPIRES_AFTER);
        let expired = self.heard.len() < before;
        if self.flow.is_stopped() {
            let slow = self.flow.slow();
            if let Some(stop) = slow.iter().find(|s| s.node != me && !self.heard.contains_key(&s.node)) {
                return Err(format!("a stop of {} holds up commits, and was not heard for long", stop.node));
            }
            if slow.iter().any(|s| s.node == me) != self.asks {
                return Err("it does not obey its own stop, or obeys it for longer than it asks".into());
            }
        }
        match self.said {
            Some((at, true)) if self.asks && now.since(at) >= REPEATED_AFTER => {
                return Err("a stop in force is not said again".into());
            }
            Some((_, said)) if said != self.asks => return Err("it has said stop, and nothing since it ended".into()),
            None if self.asks => return Err("it asks for a stop, and has not said so".into()),
            Some(_) | None => {}
        }
        if self.asks && !patience.is_zero() && now.since(self.moved) >= patience {
            return Err(format!("it asks for a stop, and has applied nothing for {patience:?}"));
        }
        Ok(expired)
    }
}

impl Process {
    fn throttle(&mut self) -> Option<&mut Throttle> {
        self.throttle.as_deref_mut()
    }

    pub fn holds_back(&self, op: u64) -> bool {
        self.throttle.as_ref().is_some_and(|t| t.holds(op))
    }
}

impl Cluster {
    /// The view is that of the primary component, or there is none any more.
    pub(crate) fn set_flow_members(&mut self, slot: usize) {
        let Some(p) = &mut self.slots[slot].process else { return };
        let view = p.view.as_ref().filter(|_| p.primary);
        let members = view.map_or(Vec::new(), |v| v.members.iter().map(|m| m.node).collect());
        if let Some(t) = p.throttle() {
            t.set_members(members, &self.options);
        }
    }

    pub(crate) fn hear_signal(&mut self, slot: usize, from: NodeId, body: &[u8]) {
        let s = &mut self.slots[slot];
        let (now, me) = (s.local(self.now), s.node);
        if let Some(t) = s.process.as_mut().and_then(Process::throttle) {
            t.on_signal(now, me, from, body);
        }
    }

    /// The sequencer's word came, perhaps after it had been missing.
    pub(crate) fn keep_touch(&mut self, slot: usize, from: NodeId) {
        let s = &mut self.slots[slot];
        let now = s.local(self.now);
        let Some(p) = &mut s.process else { return };
        let Some(t) = &mut p.throttle else { return };
        if p.group.sequencer() == Some(from) {
            if now.since(t.touched) >= OUT_OF_TOUCH_AFTER {
                t.flow.out_of_touch(now);
            }
            t.touched = now;
        }
    }

    /// At the end of each turn of the group thread: it looks at the backlog, does what flow control asks for, and sends what it lets pass.
    pub(crate) fn regulate(&mut self, slot: usize) {
        let s = &mut self.slots[slot];
        if s.stands_still() {
            return;
        }
        let (now, me) = (s.local(self.now), s.node);
        let arbitrates = self.options.is_arbitrator(slot);
        let (backlog, left) = (s.db.queue.len() as u64, Seqno(s.db.now.position));
        let Some(p) = s.process.as_mut().filter(|p| p.outage.is_none()) else { return };
        let Some(t) = &mut p.throttle else { return };
        let state = if p.replicator.is_member() { p.replicator.roster().state(me) } else { None };
        let counts = matches!(state, Some(NodeState::Synced | NodeState::Joined)) && p.replicator.is_live();
        t.flow.set_counts(counts && !arbitrates, backlog);
        if backlog == 0 && t.held.is_empty() && t.flow.at_rest() {
            t.wakes_at = None;
            return t.flow.rest(now);
        }
        t.flow.observe(now, backlog, left);
        t.wakes_at = t.flow.watch(now);
        let (words, met) = t.say(now);
        let verdict = t.judge(now, me, left, Duration::from_nanos(self.options.flow_patience));
        if met.contains(&Situation::FlowStop) {
            self.tempt(slot, Stage::Slows);
        }
        met.into_iter().for_each(|situation| self.situations.arose(situation));
        for body in words {
            self.with_group(slot, |g, _| g.signal(body));
        }
        if verdict == Ok(true) {
            self.arose(Situation::FlowExpired);
        }
        self.check(slot, verdict.map(drop));
        self.let_pass(slot);
        self.plan_look(slot);
    }

    fn plan_look(&mut self, slot: usize) {
        let s = &self.slots[slot];
        let now = s.local(self.now);
        let Some(p) = &s.process else { return };
        let Some(t) = &p.throttle else { return };
        let Some(wait) = t.flow.wait(!t.held.is_empty()) else { return };
        let at = s.global(now.after(wait)).max(self.now);
        if t.looks_at.is_none_or(|planned| planned > at) {
            let boot = p.boot;
            if let Some(t) = self.throttle(slot) {
                t.looks_at = Some(at);
            }
            self.at(at, Event::Flow { slot, boot });
        }
    }

    pub(crate) fn look_at_flow(&mut self, slot: usize, boot: u32) {
        let now = self.now;
        let Some(p) = self.life(slot, boot) else { return };
        let until = p.writes_until;
        let Some(t) = p.throttle() else { return };
        if t.looks_at != Some(now) {
            return;
        }
        t.looks_at = None;
        if until > now {
            t.looks_at = Some(until);
            return self.at(until, Event::Flow { slot, boot });
        }
        self.regulate(slot);
    }

    /// Something is applied: the group thread may wait for that.
    pub(crate) fn backlog_sinks(&mut self, slot: usize) {
        let backlog = self.slots[slot].db.queue.len() as u64;
        if let Some(t) = self.throttle(slot)
            && t.wakes_at.take_if(|mark| backlog <= *mark).is_some()
        {
            self.schedule_step(slot);
        }
    }

    fn throttle(&mut self, slot: usize) -> Option<&mut Throttle> {
        self.slots[slot].process.as_mut()?.throttle()
    }

    // --- what is held back ------------------------------------------------------------------------------------------------

    /// A client wants to commit. `true`: not now.
    pub(crate) fn is_held_back(&mut self, slot: usize, held: Held) -> bool {
        let stands_still = self.slots[slot].stands_still();
        // Of a server without a group nobody waits.
        let Some(p) = self.slots[slot].process.as_mut().filter(|p| p.serves() && p.outage.is_none()) else {
            return false;
        };
        let Some(t) = p.throttle().filter(|t| !stands_still && (t.flow.is_stopped() || !t.held.is_empty())) else {
            return false;
        };
        t.held.push_back(held);
        self.arose(Situation::FlowHeld);
        self.log(|| format!("n{slot} holds {held:?} back"));
        self.let_pass(slot);
        self.plan_look(slot);
        true
    }

    /// Sends what may be sent now.
    fn let_pass(&mut self, slot: usize) {
        let now = self.slots[slot].local(self.now);
        while self.failure.is_none() {
            let Some(p) = &mut self.slots[slot].process else { return };
            let Some(t) = &mut p.throttle else { return };
            let Some(held) = t.held.front().copied() else { return };
            let aborted = p.streams.get(&held.op()).is_some_and(OwnStream::is_dead);
            let recalled = aborted || p.trxs.get(&held.op()).is_some_and(Trx::is_marked);
            if !recalled && !t.flow.admit(now) {
                return;
            }
            t.held.pop_front();
            match held {
                Held::Trx(op) if recalled => self.refuse_trx(slot, op),
                Held::Trx(op) => self.send_trx(slot, op),
                Held::Part(op, part) => {
                    if recalled || !self.send_now(slot, op, part) {
                        self.refuse_part(slot, op, part);
                    }
                }
            }
        }
    }

    /// A client hears that what it wanted to commit was not sent.
    fn refuse_part(&mut self, slot: usize, op: u64, part: Part) {
        if self.undisturbed {
            return self.fail(format!("n{slot}: refuses a write set although nothing serious happened"));
        }
        match part {
            Part::Whole | Part::Isolated => self.clients.refused(op),
            Part::Fragment(_) | Part::Commit(_) | Part::Rollback => self.roll_back_stream(slot, op),
        }
    }

    /// A transaction that is marked while it is held back lets go of its locks: the applier may be what everybody waits for.
    pub(crate) fn recall_held(&mut self, slot: usize) {
        if self.options.sabotage == Some(Sabotage::RecallForgotten) {
            return;
        }
        let Some(p) = &mut self.slots[slot].process else { return };
        let Some(t) = &mut p.throttle else { return };
        let marked = |held: &Held| p.trxs.get(&held.op()).is_some_and(Trx::is_marked);
        let recalled: Vec<u64> = t.held.iter().filter(|held| marked(held)).map(|held| held.op()).collect();
        t.held.retain(|held| !recalled.contains(&held.op()));
        for op in recalled {
            self.arose(Situation::FlowRecalled);
            self.refuse_trx(slot, op);
        }
    }

    /// All who are held back hear that nothing was sent.
    pub(crate) fn drop_held(&mut self, slot: usize) {
        let Some(t) = self.throttle(slot) else { return };
        for held in std::mem::take(&mut t.held) {
            match held {
                Held::Trx(op) => self.refuse_trx(slot, op),
                Held::Part(op, part) => self.refuse_part(slot, op, part),
            }
        }
    }

    /// A new incarnation knows nothing of stops.
    pub(crate) fn renew_flow(&mut self, slot: usize) {
        let node = self.slots[slot].node;
        let renewed = Throttle::new(node, &self.options);
        if let Some(p) = &mut self.slots[slot].process {
            p.throttle = renewed;
        }
    }

    /// For the dump of a failed run.
    pub(crate) fn flow_words(p: &Process) -> String {
        p.throttle.as_ref().map_or_else(String::new, |t| {
            format!("flow: asks {}, slow {:?}, holds {:?}, looks {:?}", t.asks, t.flow.slow(), t.held, t.looks_at)
        })
    }
}

impl Options {
    /// From a stream of its own, behind all others. Small limits, and servers that are slow or stand still: else no backlog of a run of this
    /// length is large.
    pub(crate) fn draw_flow(&mut self) {
        let mut r = Rng::new(self.seed ^ 0x0066_6c6f_u64.rotate_left(24));
        if !r.chance(0.35) {
            return;
        }
        self.flow_limit = r.range(1, 6);
        self.flow_factor = [0.0, 0.5, 0.8, 1.0][r.below(4) as usize];
        self.flow_patience = if r.chance(0.3) { 0 } else { r.range(100, 2_000) * MS };
        if r.chance(0.5) && self.error_share == 0.0 {
            self.db_apply_mean = r.range(10, 100) * MS;
        }
        if !self.faults.is_empty() && self.error_share == 0.0 && r.chance(0.4) {
            self.strikes.push((Stage::Slows, r.range(5, 50) as f64 / 100.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::SEC;

    /// Three nodes, a limit of three write sets, and no patience.
    fn formed() -> Cluster {
        let mut o = Options::calm(1, 3);
        o.flow_limit = 2;
        let mut c = Cluster::formed(o);
        // The write sets that come to a newcomer count as missed for a while.
        c.run_for(3 * SEC);
        c
    }

    fn held(c: &Cluster, slot: usize) -> usize {
        c.slots[slot].process.as_ref().and_then(|p| p.throttle.as_ref()).map_or(0, |t| t.held.len())
    }

    /// Writes until one has to wait.
    fn write_until_held(c: &mut Cluster, slot: usize) {
        for _ in 0..20 {
            c.write(slot);
            c.run_for(20 * MS);
        }
        assert!(held(c, slot) > 0 && c.situations.times(Situation::FlowStop) > 0);
    }

    #[test]
    fn a_server_that_applies_nothing_holds_the_others_up_until_it_goes_on() {
        let mut c = formed();
        let s = c.the_sequencer();
        assert!(c.hold_order((s + 1) % 3, false));
        write_until_held(&mut c, s);
        c.run_for(10 * SEC);
        assert!(held(&c, s) > 0, "there is no patience that ends");
        c.resume_order((s + 1) % 3);
        c.expect(SEC, "all is sent", |c| held(c, s) == 0);
        c.conclude();
    }

    #[test]
    fn one_that_stands_still_or_dies_holds_nobody_up_for_longer_than_its_last_word_counts() {
        for dies in [false, true] {
            let mut c = formed();
            let s = c.the_sequencer();
            let slow = (s + 1) % 3;
            assert!(c.hold_order(slow, false));
            write_until_held(&mut c, s);
            if dies {
                c.crash(slow, false);
            } else {
                c.pause(slow);
            }
            c.expect(SEC / 2, "all is sent", |c| held(c, s) == 0);
            assert!(c.situations.times(Situation::FlowExpired) > 0);
            c.conclude();
        }
    }

    #[test]
    fn one_that_desyncs_for_a_pause_holds_nobody_up() {
        let mut c = formed();
        let s = c.the_sequencer();
        let away = (s + 1) % 3;
        assert!(c.hold_order(away, true));
        c.expect(SEC, "it has desynced", |c| c.desyncs(s, away) == 1);
        for _ in 0..20 {
            c.write_committed(s);
        }
        assert!(c.slots[away].db.queue.len() >= 20, "nothing begins in a pause");
        c.resume_order(away);
        c.expect(SEC, "it counts again", |c| c.desyncs(s, away) == 0);
        assert_eq!(c.situations.times(Situation::FlowStop), 0);
        c.conclude();
    }

    fn desynced(c: &mut Cluster) -> usize {
        let s = c.the_sequencer();
        let away = (s + 1) % 3;
        assert!(c.hold_order(away, true));
        c.expect(SEC, "it has desynced", |c| c.desyncs(s, away) == 1);
        away
    }

    /// It takes clients before its resync, and counts again after it.
    fn goes_on_desynced(mut c: Cluster, away: usize) {
        c.heal_network();
        c.expect(30 * SEC, "it takes clients", |c| c.is_synced(away));
        c.expect(SEC, "it is desynced", |c| (0..3).all(|slot| c.desyncs(slot, away) == 1));
        let writer = (away + 1) % 3;
        for _ in 0..20 {
            c.write_committed(writer);
        }
        assert_eq!(c.situations.times(Situation::FlowStop), 0);
        c.resume_order(away);
        c.expect(SEC, "it counts again", |c| (0..3).all(|slot| c.desyncs(slot, away) == 0));
        c.conclude();
    }

    /// The group forgets a desync together with the member, when nobody hears that for a while.
    #[test]
    fn one_that_was_cut_off_is_desynced_as_before() {
        let mut c = formed();
        let away = desynced(&mut c);
        let other = (away + 1) % 3;
        c.isolate(away);
        let is_member = |c: &Cluster| {
            let roster = c.slots[other].process.as_ref().map(|p| p.replicator.roster());
            roster.is_some_and(|roster| roster.view().get(c.node(away)).is_some())
        };
        c.expect(30 * SEC, "it is no member, and takes no clients", |c| !is_member(c) && !c.is_synced(away));
        goes_on_desynced(c, away);
    }

    #[test]
    fn one_that_has_desynced_takes_clients_after_all_had_lost_the_majority() {
        let mut c = formed();
        let away = desynced(&mut c);
        (0..3).for_each(|slot| c.isolate(slot));
        c.expect(30 * SEC, "nobody takes clients", |c| (0..3).all(|slot| !c.is_synced(slot)));
        goes_on_desynced(c, away);
    }
}
