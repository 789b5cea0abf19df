//! Flow control: how fast new write sets may be sent while a member has more to apply than it can.
//!
//! A member whose backlog is above the upper limit says *stop*, together with the rate at which the group may go on; at the
//! lower limit it says *go*. The rate is what it applies itself, falling linearly with the backlog: all of it at the lower
//! limit, nothing at twice the upper one. So writers are slowed in proportion before anybody stands still. Where the patience is bounded the rate
//! does not fall below a part of what the group writes ([`WALK`]), and nobody stands still.
//!
//! **Level-triggered**, since signals are neither ordered nor repeated by anybody: a stop is said again while it lasts, and
//! one that is not heard again expires. A member that is dead, frozen or cut off holds nobody up.
//!
//! **Bounded**: a member that has applied nothing for [`Flow::set_patience`] stops counting. It lags, its backlog being the
//! log on disk, and counts again from the backlog that it has when it gets on.
//!
//! No clock, no socket: time is an argument, effects are taken by [`Flow::poll`].

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use trireme_types::{NodeId, Seqno, Timestamp};

use crate::mutant::Mutant;

/// A stop in force is said again this often.
const REPEAT_EVERY: Duration = Duration::from_millis(100);
/// A stop that was not heard again for so long is over. Some repetitions may come late (200 ms of jitter); but who freezes
/// while its stop is in force holds the others up for so long.
const EXPIRES_AFTER: Duration = Duration::from_millis(400);
/// A stop lasts so long at least, so that a backlog that sways around a limit does not flood the group, unless the backlog
/// falls to half of the limit: appliers that run dry would be lost time. The other way there is no delay: what is written
/// meanwhile has to be applied.
const STEADY_FOR: Duration = Duration::from_millis(5);
/// A rate that has changed by more than [`CHANGE`] is told after this time, others with the repetition.
const UPDATE_AFTER: Duration = Duration::from_millis(10);
const CHANGE: f64 = 0.1;
/// How often a stopped node looks around.
pub const TICK: Duration = Duration::from_millis(10);
/// The speed of applying is measured over this much time with a backlog.
const MEASURE_OVER: Duration = Duration::from_millis(50);
/// A backlog that takes no longer than this to apply is none, however many write sets it has: processors shared with others
/// make such ones all the time, and they are gone before a stop is heard. Longer, and the clients of this node wait long: their commits stand in
/// the commit order behind all of it. Shorter, and processors idle while the writers are held back for one node.
const MOMENT: Duration = Duration::from_millis(10);
/// Slower than this counts as standing still.
const RATE_MIN: f64 = 0.5;
/// The most that may be saved up for a burst: as much as comes in during this part of a second.
const BURST: f64 = 0.02;
/// While a member that stands still may yet lose patience, this part of what the group writes goes on.
const WALK: f64 = 0.25;
/// A node's part of the permitted rate is its part of what was ordered in the last one or two of these.
const SHARE_OVER: Duration = Duration::from_secs(1);
/// A write set that comes within this time after a node was out of touch counts as missed. The log of a peer gives tens of
/// thousands of write sets in it.
const CATCH_UP_FOR: Duration = Duration::from_secs(2);
/// The operator is told who holds up writes once it has lasted so long.
const TELL_AFTER: Duration = Duration::from_secs(1);

const FORMAT: u8 = 2;

/// The backlogs at which a node says stop (above `upper`) and go (not above `lower`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Limits {
    pub lower: u64,
    pub upper: u64,
}

impl Limits {
    /// Galera's: the backlog grows with the number of members that can write at the same time.
    pub fn new(fc_limit: u64, fc_factor: f64, members: usize, single_primary: bool) -> Limits {
        let scale = if single_primary { 1.0 } else { (members.max(1) as f64).sqrt() };
        let upper = (fc_limit as f64 * scale + 0.5).floor() as u64;
        let lower = (upper as f64 * fc_factor + 0.5).floor() as u64;
        Limits { lower, upper }
    }

    /// The excess at which a stop ends that began at `since`.
    fn go_at(self, now: Timestamp, since: Timestamp) -> u64 {
        if now.since(since) >= STEADY_FOR { self.lower } else { self.lower / 2 }
    }
}

/// The actions of the driver, in order.
#[derive(Clone, PartialEq, Debug)]
pub enum Act {
    /// To all members.
    Signal(Bytes),
    /// This node asks for a stop, or no longer.
    Requested(bool),
    /// A member's stop has come into force.
    Received,
    /// The first stop is in force, or the last one is over.
    Paused(bool),
    /// This node's writes have been slowed by a member for a while.
    HeldUpBy { node: NodeId, rate: f64 },
    /// This node has applied nothing for too long and no longer counts.
    GaveUp { patience: Duration },
}

/// This node's own part.
#[derive(Clone, Copy, Debug)]
enum Own {
    Quiet,
    Stopping {
        since: Timestamp,
        said: Timestamp,
        rate: f64,
        progress: Seqno,
        progress_at: Timestamp,
    },
    /// Applied nothing for too long: does not count until something leaves after this.
    GivenUp {
        left: Seqno,
    },
}

/// A stop in force.
#[derive(Clone, Copy, Debug)]
struct Stop {
    since: Timestamp,
    heard: Timestamp,
    /// Write sets per second that the whole group may send.
    rate: f64,
    /// The write sets that wait to be applied there.
    backlog: u64,
    told: bool,
}

/// A stop in force, for whoever asks who slows the group and why.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Slow {
    pub node: NodeId,
    /// Write sets per second that the whole group may send because of it; zero: it stands still.
    pub rate: f64,
    pub backlog: u64,
}

/// How fast this node applies while it has something to apply.
#[derive(Clone, Copy, Default, Debug)]
struct Meter {
    looked: Timestamp,
    left: Seqno,
    /// Something was waiting at the last look. Where it is so now too, the time between counts.
    waiting: bool,
    /// When something was last seen to be applied, or nothing to wait.
    moved: Timestamp,
    busy: Duration,
    applied: u64,
    /// Per second.
    rate: f64,
}

impl Meter {
    fn observe(&mut self, now: Timestamp, backlog: u64, left: Seqno) {
        if self.waiting && backlog > 0 {
            self.busy += now.since(self.looked);
            self.applied += left.0.saturating_sub(self.left.0);
            if self.busy >= MEASURE_OVER {
                let seen = self.applied as f64 / self.busy.as_secs_f64();
                self.rate = if self.rate == 0.0 { seen } else { (self.rate + seen) / 2.0 };
                (self.busy, self.applied) = (Duration::ZERO, 0);
            }
        }
        if left > self.left || !self.waiting {
            self.moved = now;
        }
        // Without a backlog the speed is that of the writers, which says nothing.
        self.waiting = backlog > 0;
        self.looked = now;
        self.left = left;
    }

    /// How much is applied in a [`MOMENT`].
    fn quick(&self, now: Timestamp) -> u64 {
        if now.since(self.moved) < MOMENT { (self.rate * MOMENT.as_secs_f64()) as u64 } else { 0 }
    }
}

/// Which part of the group's writes are this node's.
#[derive(Clone, Copy, Default, Debug)]
struct Share {
    from: Timestamp,
    own: [u64; 2],
    all: [u64; 2],
}

impl Share {
    fn turn(&mut self, now: Timestamp) {
        if now.since(self.from) >= SHARE_OVER {
            self.from = now;
            self.own = [0, self.own[0]];
            self.all = [0, self.all[0]];
        }
    }

    /// The rate at which the whole group writes, per second.
    fn pace(&self, now: Timestamp) -> f64 {
        (self.all[0] + self.all[1]) as f64 / (SHARE_OVER + now.since(self.from)).as_secs_f64()
    }

    /// Never nothing: who has not written yet may begin.
    fn get(&self, members: usize) -> f64 {
        let members = members.max(1) as f64;
        let (own, all) = (self.own[0] + self.own[1], self.all[0] + self.all[1]);
        if all == 0 { 1.0 / members } else { (own as f64 / all as f64).max(0.25 / members) }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Flow {
    me: NodeId,
    /// Of the view; none without a primary component. Set by `set_members`.
    members: Vec<NodeId>,
    /// Set by `set_limits`.
    limits: Limits,
    /// Zero: without end. Set by `set_patience`.
    patience: Duration,
    /// May this node ask for a stop? Set by `set_counts`.
    counts: bool,
    /// Changed by `observe`; `go` and `set_counts` put it back to quiet.
    own: Own,
    /// Part of the backlog that was there when this node began to count, or that it had missed while it was out of touch; only
    /// falls, but while it catches up. Set by `set_counts`, followed up by `observe`, emptied by `rest`.
    allowance: u64,
    /// Until then whatever comes was missed. Set by `out_of_touch`.
    catching_up_until: Timestamp,
    /// Fed by `observe`; `rest` ends a measurement.
    meter: Meter,
    /// Counted by `count`; `observe` and `rest` turn its seconds.
    share: Share,
    /// The own one included. Changed by `stop`, `lift` and `expire` only.
    stops: BTreeMap<NodeId, Stop>,
    /// Whole write sets that may be sent now. Used up and filled by `admit`; the first `stop` empties it.
    tokens: f64,
    /// When `tokens` were last filled, by the same two.
    refilled: Timestamp,
    /// Taken by `poll`.
    acts: VecDeque<Act>,
    #[cfg(feature = "mutants")]
    pub(crate) mutant: Option<Mutant>,
}

impl Flow {
    pub fn new(me: NodeId) -> Flow {
        Flow {
            me,
            members: Vec::new(),
            limits: Limits::default(),
            patience: Duration::ZERO,
            counts: false,
            own: Own::Quiet,
            allowance: 0,
            catching_up_until: Timestamp::ZERO,
            meter: Meter::default(),
            share: Share::default(),
            stops: BTreeMap::new(),
            tokens: 0.0,
            refilled: Timestamp::ZERO,
            acts: VecDeque::new(),
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Is any stop in force? Then new write sets pass by [`Flow::admit`] only.
    pub fn is_stopped(&self) -> bool {
        !self.stops.is_empty()
    }

    /// The members that slow the group, the slowest first.
    pub fn slow(&self) -> Vec<Slow> {
        let mut slow: Vec<Slow> =
            self.stops.iter().map(|(node, s)| Slow { node: *node, rate: s.rate, backlog: s.backlog }).collect();
        slow.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        slow
    }

    /// This node applied nothing for too long and slows nobody any more.
    pub fn gave_up(&self) -> bool {
        matches!(self.own, Own::GivenUp { .. })
    }

    pub fn poll(&mut self) -> Option<Act> {
        self.acts.pop_front()
    }

    // --- what is known of the group ---------------------------------------------------------------------------------

    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// How long a stop may last in which nothing is applied; zero: without end.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The members of the view; none: no primary component. Stops of others are over.
    pub fn set_members(&mut self, members: Vec<NodeId>) {
        self.members = members;
        if !self.members.contains(&self.me) {
            self.go();
        }
        let gone: Vec<NodeId> = self.stops.keys().copied().filter(|n| !self.members.contains(n)).collect();
        for node in gone {
            self.lift(node);
        }
    }

    /// A node that does not count (desynced, or receiving its state) lags without asking for a stop. The write sets that
    /// have gathered by the time it counts again are its own affair: only those that come on top of them slow others.
    pub fn set_counts(&mut self, counts: bool, backlog: u64) {
        if counts == self.counts {
            return;
        }
        self.counts = counts;
        if counts {
            self.allowance = backlog;
            self.own = Own::Quiet;
        } else {
            self.go();
        }
    }

    /// This node had not heard the sequencer for a while: it was frozen, or cut off. The others went on without it, and do not stop for
    /// what it missed.
    pub fn out_of_touch(&mut self, now: Timestamp) {
        self.catching_up_until = now.after(CATCH_UP_FOR);
    }

    pub fn on_signal(&mut self, now: Timestamp, from: NodeId, body: &[u8]) {
        if !self.members.contains(&from) || from == self.me {
            return;
        }
        match decode(body) {
            Some(Some((rate, backlog))) => self.stop(now, from, rate, backlog),
            Some(None) => self.lift(from),
            // A later version's way of saying something.
            None => {}
        }
    }

    /// A write set was ordered.
    pub fn count(&mut self, own: bool) {
        self.share.all[0] += 1;
        self.share.own[0] += u64::from(own);
    }

    // --- asking for a stop --------------------------------------------------------------------------------------------

    /// Does [`Flow::rest`] do for an empty backlog? Spares the question for the position, whose lock all committers share.
    pub fn at_rest(&self) -> bool {
        self.stops.is_empty() && self.acts.is_empty() && matches!(self.own, Own::Quiet)
    }

    /// Nothing is to be applied, and nothing stopped.
    pub fn rest(&mut self, now: Timestamp) {
        self.allowance = 0;
        self.meter.waiting = false;
        self.share.turn(now);
    }

    /// To be called whenever the backlog may have grown, and each [`TICK`] while [`Flow::is_stopped`]. `left`: up to where
    /// everything has been applied.
    pub fn observe(&mut self, now: Timestamp, backlog: u64, left: Seqno) {
        self.meter.observe(now, backlog, left);
        self.share.turn(now);
        let catching_up = now < self.catching_up_until;
        self.allowance = if catching_up { backlog } else { self.allowance.min(backlog) };
        let excess = backlog - self.allowance;
        let limits = self.limits_now(now);
        match self.own {
            Own::Quiet => {
                if self.counts && excess > limits.upper {
                    let rate = self.permitted(now, limits, excess);
                    self.own = Own::Stopping { since: now, said: now, rate, progress: left, progress_at: now };
                    self.acts.push_back(Act::Requested(true));
                    self.say_stop(now, rate, backlog);
                }
            }
            Own::Stopping { since, said, rate, progress, progress_at } => {
                let progress_at = if left > progress { now } else { progress_at };
                if excess <= limits.go_at(now, since) {
                    self.go();
                } else if excess > limits.lower
                    && !self.patience.is_zero()
                    && now.since(progress_at) >= self.patience
                    && !self.is(Mutant::NeverGivesUp)
                {
                    self.go();
                    self.own = Own::GivenUp { left };
                    self.acts.push_back(Act::GaveUp { patience: self.patience });
                } else {
                    let (mut said, mut rate, new) = (said, rate, self.permitted(now, limits, excess));
                    let changed = (new - rate).abs() > rate * CHANGE && now.since(said) >= UPDATE_AFTER;
                    let repeats = now.since(said) >= REPEAT_EVERY && !self.is(Mutant::StopSaidOnce);
                    if changed || repeats {
                        (said, rate) = (now, new);
                        self.say_stop(now, rate, backlog);
                    }
                    self.own = Own::Stopping { since, said, rate, progress: left, progress_at };
                }
            }
            Own::GivenUp { left: then } => {
                if left > then {
                    self.allowance = backlog;
                    self.own = Own::Quiet;
                }
            }
        }
        if self.is_stopped() {
            self.expire(now);
        }
    }

    /// The backlog at which [`Flow::observe`] is of use at once, and not only at the next [`TICK`].
    pub fn watch(&self, now: Timestamp) -> Option<u64> {
        match self.own {
            Own::Stopping { since, .. } => Some(self.allowance + self.limits_now(now).go_at(now, since)),
            Own::Quiet | Own::GivenUp { .. } => None,
        }
    }

    /// Those that are set, or what a quick node applies in a [`MOMENT`].
    fn limits_now(&self, now: Timestamp) -> Limits {
        let Limits { lower, upper } = self.limits;
        let quick = self.meter.quick(now);
        if quick <= upper { self.limits } else { Limits { lower: quick * lower / upper.max(1), upper: quick } }
    }

    /// The rate at which the group may send while this node has so much too much.
    fn permitted(&self, now: Timestamp, Limits { lower, upper }: Limits, excess: u64) -> f64 {
        let ceiling = (2 * upper).max(lower + 1);
        let part = ceiling.saturating_sub(excess) as f64 / (ceiling - lower) as f64;
        let walk = if self.patience.is_zero() { 0.0 } else { self.share.pace(now) * WALK };
        let rate = (self.meter.rate * part.min(1.0)).max(walk);
        if rate < RATE_MIN { 0.0 } else { rate }
    }

    fn say_stop(&mut self, now: Timestamp, rate: f64, backlog: u64) {
        self.acts.push_back(Act::Signal(encode(Some((rate, backlog)))));
        self.stop(now, self.me, rate, backlog);
    }

    fn go(&mut self) {
        if matches!(self.own, Own::Stopping { .. }) {
            if !self.is(Mutant::GoNeverSaid) {
                self.acts.push_back(Act::Signal(encode(None)));
            }
            self.acts.push_back(Act::Requested(false));
            self.lift(self.me);
        }
        self.own = Own::Quiet;
    }

    // --- being stopped --------------------------------------------------------------------------------------------------

    fn stop(&mut self, now: Timestamp, node: NodeId, rate: f64, backlog: u64) {
        let first = self.stops.is_empty();
        if let Some(stop) = self.stops.get_mut(&node) {
            stop.heard = now;
            stop.rate = rate;
            stop.backlog = backlog;
            return;
        }
        self.stops.insert(node, Stop { since: now, heard: now, rate, backlog, told: false });
        self.acts.push_back(Act::Received);
        if first {
            self.tokens = 0.0;
            self.refilled = now;
            self.acts.push_back(Act::Paused(true));
        }
    }

    fn lift(&mut self, node: NodeId) {
        if self.stops.remove(&node).is_some() && self.stops.is_empty() {
            self.acts.push_back(Act::Paused(false));
        }
    }

    fn expire(&mut self, now: Timestamp) {
        let is_over = |stop: &Stop| now.since(stop.heard) >= EXPIRES_AFTER && !self.is(Mutant::StopNeverExpires);
        let expired: Vec<NodeId> = self.stops.iter().filter(|(_, s)| is_over(s)).map(|(n, _)| *n).collect();
        for node in expired {
            self.lift(node);
        }
        for (node, stop) in &mut self.stops {
            if !stop.told && now.since(stop.since) >= TELL_AFTER {
                stop.told = true;
                self.acts.push_back(Act::HeldUpBy { node: *node, rate: stop.rate });
            }
        }
    }

    /// The rate at which this node may send, per second.
    fn rate(&self) -> f64 {
        let slowest = self.stops.values().map(|s| s.rate).fold(f64::INFINITY, f64::min);
        slowest * self.share.get(self.members.len())
    }

    /// May one more write set be sent? A yes is used up.
    pub fn admit(&mut self, now: Timestamp) -> bool {
        if !self.is_stopped() {
            return true;
        }
        let rate = self.rate();
        self.tokens = (self.tokens + rate * now.since(self.refilled).as_secs_f64()).min((rate * BURST).max(1.0));
        self.refilled = now;
        let yes = self.tokens >= 1.0;
        if yes {
            self.tokens -= 1.0;
        }
        yes
    }

    /// How long to wait before [`Flow::observe`] and, with something held back, [`Flow::admit`] are of use again; `None`
    /// while nothing is stopped.
    pub fn wait(&self, holding: bool) -> Option<Duration> {
        if !self.is_stopped() {
            return None;
        }
        let rate = self.rate();
        let until = (1.0 - self.tokens) / rate;
        // A sleep is not finer than a millisecond.
        Some(if holding && until < TICK.as_secs_f64() { Duration::from_secs_f64(until.max(0.001)) } else { TICK })
    }
}

/// Rate and backlog; `None`: go.
fn encode(stop: Option<(f64, u64)>) -> Bytes {
    let (rate, backlog) = stop.unwrap_or_default();
    let mut body = vec![FORMAT, u8::from(stop.is_some())];
    body.extend_from_slice(&((rate * 1000.0) as u64).to_le_bytes());
    body.extend_from_slice(&backlog.to_le_bytes());
    Bytes::from(body)
}

fn decode(body: &[u8]) -> Option<Option<(f64, u64)>> {
    let (&[format, stop], rest) = body.split_first_chunk::<2>()?;
    let (rate, backlog) = rest.split_first_chunk::<8>()?;
    let (rate, backlog) = (u64::from_le_bytes(*rate), u64::from_le_bytes(backlog.try_into().ok()?));
    match (format, stop) {
        (FORMAT, 0) => Some(None),
        (FORMAT, 1) => Some(Some((rate as f64 / 1000.0, backlog))),
        _ => None,
    }
}

#[cfg(feature = "fuzzing")]
pub fn fuzz(body: &[u8]) {
    if let Some(Some((rate, backlog))) = decode(body) {
        assert!(rate.is_finite() && rate >= 0.0);
        assert!(decode(&encode(Some((rate, backlog)))).is_some_and(|again| again.is_some_and(|a| a.1 == backlog)));
    }
}

#[cfg(feature = "fuzzing")]
pub fn fuzz_seed() -> Vec<u8> {
    encode(Some((12.5, 1000))).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trireme_types::Uuid;

    const ME: NodeId = NodeId(Uuid([1; 16]));
    const OTHER: NodeId = NodeId(Uuid([2; 16]));

    fn at(ms: u64) -> Timestamp {
        Timestamp(1_000_000_000 + ms * 1_000_000)
    }

    /// Two members, interval [4, 4], gives up after 10 s.
    fn flow() -> Flow {
        let mut flow = Flow::new(ME);
        flow.set_members(vec![ME, OTHER]);
        flow.set_limits(Limits { lower: 4, upper: 4 });
        flow.set_patience(Duration::from_secs(10));
        flow.set_counts(true, 0);
        flow
    }

    fn acts(flow: &mut Flow) -> Vec<Act> {
        std::iter::from_fn(|| flow.poll()).collect()
    }

    /// The signals that were sent: true for stop.
    fn said(acts: &[Act]) -> Vec<bool> {
        acts.iter().filter_map(|a| if let Act::Signal(b) = a { decode(b).map(|s| s.is_some()) } else { None }).collect()
    }

    /// Applies at this rate, with this backlog, for a second.
    fn apply_at(flow: &mut Flow, rate: u64, backlog: u64) {
        for i in 0..=100 {
            flow.observe(at(i * 10), backlog, Seqno(i * rate / 100));
        }
    }

    #[test]
    fn intervals_are_galeras() {
        let of = |members, single| {
            let l = Limits::new(16, 1.0, members, single);
            (l.lower, l.upper)
        };
        assert_eq!([of(1, false), of(2, false), of(3, false)], [(16, 16), (23, 23), (28, 28)]);
        assert_eq!(of(3, true), (16, 16));
        assert_eq!(Limits::new(1, 1.0, 2, false), Limits { lower: 1, upper: 1 });
        assert_eq!(Limits::new(16, 0.5, 3, false), Limits { lower: 14, upper: 28 });
    }

    #[test]
    fn a_stop_is_asked_for_above_the_upper_limit_and_ends_at_the_lower_one() {
        let mut flow = flow();
        flow.set_limits(Limits { lower: 2, upper: 4 });
        flow.observe(at(100), 4, Seqno(0));
        assert_eq!(acts(&mut flow), []);
        flow.observe(at(100), 5, Seqno(0));
        let begun = acts(&mut flow);
        assert_eq!(said(&begun), [true]);
        assert!(begun.contains(&Act::Requested(true)) && begun.contains(&Act::Paused(true)), "{begun:?}");
        assert!(flow.is_stopped(), "the own stop counts for this node too");
        flow.observe(at(110), 3, Seqno(2));
        assert_eq!(acts(&mut flow), []);
        flow.observe(at(120), 2, Seqno(3));
        let ended = acts(&mut flow);
        assert_eq!(said(&ended), [false]);
        assert!(ended.contains(&Act::Requested(false)) && ended.contains(&Act::Paused(false)), "{ended:?}");
        assert!(!flow.is_stopped());
    }

    #[test]
    fn a_swaying_backlog_does_not_flood_the_group() {
        let mut flow = flow();
        let mut signals = 0;
        for us in 0..100_000u64 {
            let now = Timestamp(at(0).0 + us * 1000);
            flow.observe(now, 4 + us % 2, Seqno(us));
            signals += said(&acts(&mut flow)).len();
        }
        assert!((2..=42).contains(&signals), "{signals} in 100 ms");
    }

    #[test]
    fn a_stop_is_repeated_while_it_lasts() {
        let mut flow = flow();
        let mut stops = 0;
        for ms in (0..2000).step_by(10) {
            flow.observe(at(ms), 100, Seqno(ms));
            stops += said(&acts(&mut flow)).len();
        }
        assert_eq!(stops, 20);
        assert!(flow.is_stopped());
    }

    #[test]
    fn a_changed_rate_is_told_soon() {
        let mut flow = flow();
        flow.set_limits(Limits { lower: 10, upper: 20 });
        apply_at(&mut flow, 1000, 15);
        flow.observe(at(1001), 21, Seqno(1001));
        flow.observe(at(1006), 40, Seqno(1002));
        assert_eq!(said(&acts(&mut flow)), [true], "not with every step");
        flow.observe(at(1011), 40, Seqno(1003));
        let told = acts(&mut flow);
        assert_eq!(told, [Act::Signal(encode(Some((0.0, 40))))]);
    }

    #[test]
    fn a_stop_that_is_not_repeated_expires() {
        let mut flow = flow();
        flow.on_signal(at(0), OTHER, &encode(Some((0.0, 9))));
        assert_eq!(acts(&mut flow), [Act::Received, Act::Paused(true)]);
        for ms in (100..=900).step_by(100) {
            flow.on_signal(at(ms), OTHER, &encode(Some((0.0, 9))));
        }
        flow.observe(at(1290), 0, Seqno(0));
        assert!(flow.is_stopped());
        assert!(!flow.admit(at(1290)));
        assert_eq!(acts(&mut flow), [Act::HeldUpBy { node: OTHER, rate: 0.0 }], "a repetition is not another stop");
        flow.observe(at(1300), 0, Seqno(0));
        assert_eq!(acts(&mut flow), [Act::Paused(false)]);
        assert!(flow.admit(at(1300)));
    }

    #[test]
    fn all_stops_must_end_before_writes_are_free() {
        let mut flow = flow();
        flow.observe(at(100), 9, Seqno(0));
        flow.on_signal(at(100), OTHER, &encode(Some((0.0, 9))));
        assert_eq!(acts(&mut flow).iter().filter(|a| **a == Act::Received).count(), 2);
        flow.observe(at(150), 0, Seqno(9));
        assert!(flow.is_stopped());
        flow.on_signal(at(151), OTHER, &encode(None));
        assert!(!flow.is_stopped());
    }

    #[test]
    fn who_left_stops_nobody() {
        let mut flow = flow();
        flow.on_signal(at(0), OTHER, &encode(Some((0.0, 9))));
        flow.set_members(vec![ME]);
        assert!(!flow.is_stopped());
        flow.on_signal(at(2), OTHER, &encode(Some((0.0, 9))));
        assert!(!flow.is_stopped(), "nor does a stranger");
        flow.observe(at(100), 9, Seqno(0));
        assert!(flow.is_stopped());
        flow.set_members(vec![]);
        assert!(!flow.is_stopped(), "without a primary component there is nothing to hold back");
    }

    #[test]
    fn nonsense_is_ignored() {
        let mut flow = flow();
        for body in [
            &b""[..],
            b"\x01",
            b"\x01\x01",
            b"\x02\x01\0\0\0\0\0\0\0\0",
            b"\x01\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            b"\x02\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            b"\x02\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ] {
            flow.on_signal(at(0), OTHER, body);
        }
        assert!(!flow.is_stopped());
        flow.on_signal(at(0), OTHER, b"\x02\x01\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0");
        assert!(flow.wait(true).is_some());
    }

    #[test]
    fn a_desynced_node_never_asks_for_a_stop() {
        let mut flow = flow();
        flow.observe(at(100), 5, Seqno(0));
        acts(&mut flow);
        flow.set_counts(false, 5);
        assert_eq!(said(&acts(&mut flow)), [false]);
        flow.observe(at(200), 1000, Seqno(0));
        assert_eq!(acts(&mut flow), []);
    }

    #[test]
    fn what_gathered_while_a_node_did_not_count_stops_nobody_later() {
        let mut flow = flow();
        flow.set_counts(false, 0);
        flow.set_counts(true, 1000);
        flow.observe(at(100), 1004, Seqno(1));
        assert_eq!(acts(&mut flow), []);
        flow.observe(at(110), 900, Seqno(100));
        flow.observe(at(120), 904, Seqno(101));
        assert_eq!(acts(&mut flow), []);
        flow.observe(at(130), 905, Seqno(102));
        assert_eq!(said(&acts(&mut flow)), [true], "it falls behind again");
    }

    #[test]
    fn what_gathered_while_a_node_was_out_of_touch_stops_nobody() {
        let mut flow = flow();
        apply_at(&mut flow, 100, 4);
        flow.out_of_touch(at(5000));
        for ms in (5000..6000).step_by(10) {
            flow.observe(at(ms), ms - 4990, Seqno(100 + (ms - 5000) / 10));
        }
        flow.observe(at(8000), 900, Seqno(300));
        assert_eq!(acts(&mut flow), []);
        flow.observe(at(8010), 905, Seqno(301));
        assert_eq!(said(&acts(&mut flow)), [true], "it falls behind again");
    }

    #[test]
    fn who_applies_nothing_for_long_stops_counting_until_it_gets_on() {
        let mut flow = flow();
        let mut gave_up = None;
        for ms in (0..12_000).step_by(10) {
            // The last progress is at 1 s.
            flow.observe(at(ms), 9, Seqno(u64::from(ms >= 1000)));
            if acts(&mut flow).contains(&Act::GaveUp { patience: Duration::from_secs(10) }) {
                gave_up = Some(ms);
            }
        }
        assert_eq!(gave_up, Some(11_000));
        assert!(!flow.is_stopped());
        flow.observe(at(13_000), 5000, Seqno(1));
        assert_eq!(acts(&mut flow), []);
        flow.observe(at(13_010), 4999, Seqno(2));
        flow.observe(at(13_020), 5003, Seqno(3));
        assert_eq!(acts(&mut flow), []);
        flow.observe(at(13_030), 5004, Seqno(3));
        assert_eq!(said(&acts(&mut flow)), [true]);
    }

    #[test]
    fn without_a_bound_it_counts_for_ever() {
        let mut flow = flow();
        flow.set_patience(Duration::ZERO);
        for s in 0..1000 {
            flow.observe(at(s * 500), 9, Seqno(0));
        }
        assert!(flow.is_stopped());
    }

    #[test]
    fn the_permitted_rate_falls_linearly_to_nothing_at_twice_the_upper_limit() {
        let mut flow = flow();
        flow.set_limits(Limits { lower: 10, upper: 20 });
        apply_at(&mut flow, 1000, 15);
        let speed = flow.meter.rate;
        assert!((990.0..1010.0).contains(&speed), "{speed}");
        let part = |excess| (flow.permitted(at(1000), flow.limits, excess) / speed * 100.0).round();
        assert_eq!([part(5), part(10), part(25), part(39), part(40), part(500)], [100.0, 100.0, 50.0, 3.0, 0.0, 0.0]);
    }

    #[test]
    fn for_one_that_stands_still_the_others_walk_until_its_patience_ends() {
        let mut flow = flow();
        flow.rest(at(1000));
        for n in 0..4000 {
            flow.count(n % 2 == 0);
        }
        // One second and what has passed of the next one.
        let walk = |flow: &Flow| flow.permitted(at(2000), flow.limits, 500);
        assert_eq!(walk(&flow), 500.0);
        flow.observe(at(2000), 500, Seqno(0));
        assert!(!flow.admit(at(2000)));
        assert!(flow.admit(at(2010)));
        flow.set_patience(Duration::ZERO);
        assert_eq!(walk(&flow), 0.0, "without a bound the backlog has to be");
    }

    #[test]
    fn a_backlog_that_is_applied_in_a_moment_stops_nobody() {
        let mut flow = flow();
        flow.set_limits(Limits { lower: 14, upper: 28 });
        apply_at(&mut flow, 10_000, 28);
        flow.observe(at(1001), 95, Seqno(10_010));
        assert_eq!(acts(&mut flow), [], "9.5 ms of work");
        flow.observe(at(1002), 105, Seqno(10_020));
        assert_eq!(said(&acts(&mut flow)), [true]);
        flow.observe(at(1004), 40, Seqno(10_040));
        assert!(flow.is_stopped(), "it lasts a little at least");
        flow.observe(at(1008), 60, Seqno(10_080));
        assert!(flow.is_stopped());
        flow.observe(at(1009), 50, Seqno(10_090));
        assert!(!flow.is_stopped());
    }

    /// One node applies 8,000 write sets per second, the other one would write 12,000. A signal takes a millisecond.
    #[test]
    fn a_faster_writer_is_slowed_to_what_is_applied_and_no_backlog_becomes_long() {
        let new = |node| {
            let mut flow = flow();
            flow.me = node;
            flow.set_limits(Limits { lower: 28, upper: 28 });
            flow
        };
        let (mut slow, mut quick) = (new(ME), new(OTHER));
        let (mut written, mut applied, mut longest, mut shortest) = (0, 0, 0, u64::MAX);
        let mut under_way: Vec<Bytes> = Vec::new();
        for ms in 0..3000 {
            for signal in std::mem::take(&mut under_way) {
                quick.on_signal(at(ms), ME, &signal);
            }
            quick.observe(at(ms), 0, Seqno(written));
            let passed = (0..12).filter(|_| quick.admit(at(ms))).count() as u64;
            (0..passed).for_each(|_| quick.count(true));
            written += passed;
            applied = written.min(applied + 8);
            slow.observe(at(ms), written - applied, Seqno(applied));
            under_way.extend(
                acts(&mut slow).into_iter().filter_map(|a| if let Act::Signal(b) = a { Some(b) } else { None }),
            );
            if ms >= 500 {
                longest = longest.max(written - applied);
                shortest = shortest.min(written - applied);
            }
        }
        assert!(longest <= 160, "{longest} are more than twice what is applied in a moment");
        assert!(shortest > 0, "the applier ran dry");
    }

    #[test]
    fn a_quick_node_that_is_held_up_asks_for_a_stop_soon() {
        let mut flow = flow();
        apply_at(&mut flow, 10_000, 4);
        for ms in 1001..1010 {
            flow.observe(at(ms), 10, Seqno(10_000));
        }
        assert_eq!(acts(&mut flow), []);
        flow.observe(at(1010), 10, Seqno(10_000));
        assert_eq!(said(&acts(&mut flow)), [true]);
    }

    #[test]
    fn an_idle_time_does_not_look_like_slowness() {
        let mut flow = flow();
        apply_at(&mut flow, 1000, 3);
        flow.observe(at(59_000), 0, Seqno(1000));
        assert!(flow.at_rest());
        flow.rest(at(60_000));
        flow.observe(at(60_500), 3, Seqno(1000));
        assert!(flow.meter.rate > 990.0, "{}", flow.meter.rate);
        // Real slowness does.
        for i in 0..200 {
            flow.observe(at(60_500 + i * 10), 3, Seqno(1000));
        }
        assert_eq!(flow.permitted(at(0), flow.limits, 4), 0.0);
    }

    #[test]
    fn writers_share_the_permitted_rate() {
        let mut flow = flow();
        for i in 0..100 {
            flow.count(i % 4 == 0);
        }
        flow.on_signal(at(0), OTHER, &encode(Some((400.0, 9))));
        let mut admitted = 0;
        for ms in 0..1000 {
            if ms % 200 == 0 {
                flow.on_signal(at(ms), OTHER, &encode(Some((400.0, 9))));
            }
            while flow.admit(at(ms)) {
                admitted += 1;
            }
        }
        assert!((98..=101).contains(&admitted), "{admitted} of 400/s, a quarter of which is this node's");
        let pause = flow.wait(true).unwrap();
        assert!(pause <= TICK && pause >= Duration::from_millis(1));
    }

    #[test]
    fn who_slows_the_group_is_named_the_slowest_first() {
        let mut flow = flow();
        flow.on_signal(at(0), OTHER, &encode(Some((2.5, 30))));
        flow.observe(at(10), 9, Seqno(0));
        let slow = flow.slow();
        assert_eq!(slow[0], Slow { node: ME, rate: 0.0, backlog: 9 });
        assert_eq!(slow[1], Slow { node: OTHER, rate: 2.5, backlog: 30 });
    }

    #[test]
    fn nothing_passes_at_rate_zero() {
        let mut flow = flow();
        flow.on_signal(at(0), OTHER, &encode(Some((0.0, 9))));
        for ms in 0..900 {
            assert!(!flow.admit(at(ms)));
        }
        assert_eq!(flow.wait(true), Some(TICK));
    }
}
