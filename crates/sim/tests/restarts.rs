//! Orders of stopping and starting. However nodes go down, a majority of the last voters is enough to go on, no other set of nodes may, and
//! nothing that was acknowledged is lost. A seed draws the sequence. `RESTART_SEEDS` says how many seeds, for each number of nodes, and
//! `RESTART_FIRST` where they begin.

use std::collections::BTreeMap;

use trireme_order::LogStore;
use trireme_sim::check::Outcome;
use trireme_sim::{Cluster, DbFlush, MS, Options, Rng, SEC, Store, StoreKind};
use trireme_types::{Durability, EntryKind, LogIndex, Reader, VoterSet, Weight};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// A clean stop, awaited or not.
    Stop {
        awaited: bool,
    },
    Kill,
    /// The process dies with its machine.
    Power,
    Start,
    /// `pc.weight` at run time: it is 1 again after a start.
    Weigh(u8),
}

/// Something is done to a node, and then clients write on a primary member for a while.
#[derive(Clone, Copy, Debug)]
struct Step {
    what: What,
    slot: usize,
    writes: u64,
    pause_ms: u64,
}

/// The draw of a seed. The last steps are the stops of all that still run then.
#[derive(Debug)]
struct Plan {
    seed: u64,
    nodes: usize,
    durability: Durability,
    steps: Vec<Step>,
    /// Those who may not begin are started first, to see that they do not.
    others_first: bool,
}

impl Plan {
    fn draw(seed: u64, nodes: usize) -> Plan {
        let mut r = Rng::new(seed ^ ((nodes as u64) << 48));
        let durability = if r.chance(0.5) { Durability::Disk } else { Durability::Process };
        let weighs = r.chance(0.25);
        let mut up = vec![true; nodes];
        let mut steps = Vec::new();
        for _ in 0..r.range(4, 12) {
            let slot = r.below(nodes as u64) as usize;
            let what = match up[slot] {
                true if weighs && r.chance(0.4) => What::Weigh(r.range(0, 3) as u8),
                true => fall(&mut r, durability),
                false => What::Start,
            };
            up[slot] = matches!(what, What::Start | What::Weigh(_));
            steps.push(step(&mut r, what, slot));
        }
        let mut left: Vec<usize> = (0..nodes).filter(|slot| up[*slot]).collect();
        shuffle(&mut r, &mut left);
        for slot in left {
            let what = fall(&mut r, durability);
            steps.push(step(&mut r, what, slot));
        }
        Plan { seed, nodes, durability, steps, others_first: r.chance(0.5) }
    }

    fn options(&self) -> Options {
        let mut r = Rng::new(self.seed ^ 0x6f70_7469 ^ ((self.nodes as u64) << 48));
        let mut o = Options::calm(self.seed, self.nodes);
        o.durability = self.durability;
        o.store = if r.chance(0.2) { StoreKind::Real } else { StoreKind::Fast };
        o.codec = r.chance(0.2);
        o.db_flush = [DbFlush::Lazy, DbFlush::Each, DbFlush::Kernel][r.below(3) as usize];
        (o.sync_min, o.sync_mean) = (100 * trireme_sim::US, r.range(1, 100) * 100 * trireme_sim::US);
        if r.chance(0.3) {
            // A node that was away for a while needs a full copy.
            (o.checkpoint_every, o.retain) = (5, r.below(10));
            o.transfer_mean = r.range(10, 2_000) * MS;
        }
        o
    }
}

fn fall(r: &mut Rng, durability: Durability) -> What {
    match r.below(10) {
        0..=2 => What::Stop { awaited: true },
        3..=4 => What::Stop { awaited: false },
        5..=7 if durability == Durability::Disk => What::Power,
        _ => What::Kill,
    }
}

/// The next step comes at once, before anybody has noticed, or when the view has changed.
fn step(r: &mut Rng, what: What, slot: usize) -> Step {
    let pause_ms = match r.below(4) {
        0 => r.below(20),
        1 => r.range(20, 1_000),
        2 => r.range(1_000, 5_000),
        _ => r.range(5_000, 15_000),
    };
    Step { what, slot, writes: r.below(6), pause_ms }
}

fn shuffle<T>(r: &mut Rng, list: &mut [T]) {
    for i in (1..list.len()).rev() {
        list.swap(i, r.below(i as u64 + 1) as usize);
    }
}

/// How often each thing came up, to see that the test sees it.
type Seen = BTreeMap<String, u64>;

/// Broken by hand: a person forces those who may not begin.
const FORCED: &str = "forced";

/// Carries the plan out, with a mutant or a sabotage if one is named. Returns the first demand that is not met.
fn run(plan: &Plan, broken: Option<&str>, seen: &mut Seen) -> Result<(), String> {
    let mut options = plan.options();
    if let Some(name) = broken.filter(|name| *name != FORCED) {
        assert!(options.break_by_name(name), "no mutant {name}");
    }
    let bound = options.liveness_bound();
    let mut c = Cluster::formed(options);
    let mut r = Rng::new(plan.seed ^ 0x6372_7769 ^ ((plan.nodes as u64) << 48));
    for step in &plan.steps {
        go(&mut c, step, bound)?;
        write_here_and_there(&mut c, &mut r, step);
        sound(&c)?;
    }
    for slot in 0..plan.nodes {
        gone(&mut c, slot, bound)?;
        // One that could not go on would be started again by itself.
        c.stay_down(slot);
    }
    let mut order: Vec<usize> = (0..plan.nodes).collect();
    shuffle(&mut r, &mut order);
    let Some(first) = enough(&c, &order) else {
        return Err(format!("nobody could go on with these logs\n{}", c.dump()));
    };
    let decisive = decisive(&c).remove(0);
    *seen.entry(format!("{} of {} last voters", first.len(), decisive.voters.len())).or_default() += 1;
    let others: Vec<usize> = order.iter().copied().filter(|slot| !first.contains(slot)).collect();
    if plan.others_first && !others.is_empty() {
        *seen.entry("others first".into()).or_default() += 1;
        for &slot in &others {
            c.join(slot);
        }
        if broken == Some(FORCED) {
            c.run_for(SEC);
            c.with_group(others[0], |g, now| g.force_primary(now));
        }
        if c.run_until(20 * SEC, |c| others.iter().any(|slot| c.is_primary(*slot))) {
            return Err(format!("{others:?} began without a majority of {decisive:?}\n{}", c.dump()));
        }
        others.iter().for_each(|slot| c.crash(*slot, false));
    }
    for &slot in &first {
        c.join(slot);
        c.run_for(r.exp(500 * MS));
    }
    if !c.run_until(bound, |c| c.one_view()) {
        return Err(format!("{first:?} alone do not form a component by {decisive:?}: {:?}\n{}", c.failure, c.dump()));
    }
    for &slot in &first {
        commit(&mut c, slot, bound)?;
    }
    *seen.entry("acknowledged before all are back".into()).or_default() += c.clients.share(&c.histories).committed;
    c.liveness_phase();
    sound(&c)?;
    c.final_check();
    sound(&c)
}

fn go(c: &mut Cluster, step: &Step, bound: u64) -> Result<(), String> {
    let slot = step.slot;
    if matches!(step.what, What::Stop { .. } | What::Kill | What::Power) && !c.is_running(slot) {
        c.stay_down(slot);
    }
    match step.what {
        What::Stop { awaited } => {
            c.leave(slot);
            if awaited {
                gone(c, slot, bound)?;
            }
        }
        What::Kill => c.crash(slot, false),
        What::Power => c.crash(slot, true),
        What::Start => {
            if c.is_up_to_stay(slot) {
                // A server that could not go on was started again.
                return Ok(());
            }
            gone(c, slot, bound)?;
            c.join(slot);
        }
        What::Weigh(weight) => {
            // Somebody keeps a weight: else nobody could ever be elected.
            let node = c.node(slot);
            let others = |s: trireme_order::Status| s.voters.voters.iter().any(|v| v.node != node && v.weight.0 > 0);
            if weight > 0 || c.status(slot).is_some_and(others) {
                c.with_group(slot, |g, now| g.set_weight(now, Weight(weight)));
            }
        }
    }
    Ok(())
}

/// A clean stop may be under way.
fn gone(c: &mut Cluster, slot: usize, bound: u64) -> Result<(), String> {
    if c.run_until(bound, |c| !c.is_running(slot)) {
        return Ok(());
    }
    Err(format!("n{slot} does not end its clean stop: {:?}\n{}", c.failure, c.dump()))
}

fn write_here_and_there(c: &mut Cluster, r: &mut Rng, step: &Step) {
    for _ in 0..step.writes {
        let primary: Vec<usize> = (0..c.options.nodes).filter(|slot| c.is_primary(*slot)).collect();
        if let Some(&slot) = r.pick(&primary) {
            c.write(slot);
        }
        c.run_for(step.pause_ms * MS / (step.writes + 1));
    }
    c.run_for(step.pause_ms * MS / (step.writes + 1));
}

fn commit(c: &mut Cluster, slot: usize, bound: u64) -> Result<(), String> {
    let mut op = c.write(slot);
    let done = |c: &Cluster, op| !matches!(c.clients.outcome(op), Some(Outcome::Unknown) | None);
    for _ in 0..100 {
        if !c.run_until(bound, |c| done(c, op)) {
            break;
        }
        if c.committed(op) {
            return Ok(());
        }
        c.run_for(100 * MS);
        op = c.write(slot);
    }
    Err(format!("n{slot} does not commit: {:?}\n{}", c.failure, c.dump()))
}

fn sound(c: &Cluster) -> Result<(), String> {
    c.failure.as_ref().map_or(Ok(()), |text| Err(format!("{text}\n{}", c.dump())))
}

// --- who is enough, by what is on the disks ---------------------------------------------------------------------------

/// The sets of voters that a log knows of, from that at its base on, and where they are.
fn changes(store: &Store) -> Vec<(LogIndex, VoterSet)> {
    let entries = store.read(store.base().index.next(), usize::MAX).unwrap_or_default();
    let changes = entries.iter().filter(|e| e.header.kind == EntryKind::Voters);
    let read = |payload| VoterSet::decode(&mut Reader::new(payload)).expect("a log of our own");
    let base = (store.base().voters_at, store.base().voters.clone());
    std::iter::once(base).chain(changes.map(|e| (e.header.index, read(&e.payload)))).collect()
}

/// The sets by which a log decides: the newest, and the one before it unless `known` says that the change was committed.
fn sets(store: &Store, known: impl Fn(LogIndex) -> bool) -> Vec<VoterSet> {
    let changes = changes(store);
    let doubted = changes.last().is_some_and(|(at, _)| *at > store.base().index && !known(*at));
    changes.into_iter().rev().map(|(_, set)| set).take(if doubted { 2 } else { 1 }).collect()
}

fn end(store: &Store) -> (Option<trireme_types::Term>, LogIndex) {
    (store.term_at(store.last()), store.last())
}

/// The sets by which the best log of all decides.
fn decisive(c: &Cluster) -> Vec<VoterSet> {
    let best = (0..c.options.nodes).max_by_key(|slot| end(c.store(*slot))).expect("there are nodes");
    let best = c.store(best);
    let known = |at| {
        (0..c.options.nodes).any(|slot| {
            let store = c.store(slot);
            store.hard_state().voters_committed >= at && store.term_at(at) == best.term_at(at)
        })
    };
    sets(best, known)
}

/// The smallest part of `order` that must be able to go on, taken from its beginning. It is a majority of the last voters, by the best log
/// of all and by the best of its own, and has data from which this one goes on.
fn enough(c: &Cluster, order: &[usize]) -> Option<Vec<usize>> {
    let of_all = decisive(c);
    let fits = |some: &[usize]| {
        let Some(best) = some.iter().map(|slot| end(c.store(*slot))).max() else { return false };
        let best: Vec<&Store> = some.iter().map(|slot| c.store(*slot)).filter(|store| end(store) == best).collect();
        let own = best.iter().flat_map(|s| sets(s, |at| s.hard_state().voters_committed >= at));
        let majority = |set: &VoterSet| set.majority(|node| some.iter().any(|slot| c.node(*slot) == node));
        let data = some.iter().filter_map(|slot| c.database_position(*slot)).max();
        own.chain(of_all.iter().cloned()).all(|set| majority(&set))
            && best.iter().any(|store| data.is_some_and(|data| data >= store.base().seqno.0))
    };
    let mut some = order.to_vec();
    if !fits(&some) {
        return None;
    }
    for slot in order.iter().rev() {
        let fewer: Vec<usize> = some.iter().copied().filter(|other| other != slot).collect();
        if fits(&fewer) {
            some = fewer;
        }
    }
    Some(some)
}

// ----------------------------------------------------------------------------------------------------------------------

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn every_order(nodes: usize, seeds: u64) {
    let first = number("RESTART_FIRST", 0);
    let mut seen = Seen::new();
    for seed in first..first + number("RESTART_SEEDS", seeds) {
        let plan = Plan::draw(seed, nodes);
        if let Err(text) = run(&plan, None, &mut seen) {
            panic!("seed {seed} of {nodes} nodes: {text}\n{plan:#?}\n{}", plan.options());
        }
    }
    println!("{seen:#?}");
}

#[test]
fn after_any_order_of_restarts_a_majority_of_the_last_voters_of_three_goes_on() {
    every_order(3, 250);
}

#[test]
fn after_any_order_of_restarts_a_majority_of_the_last_voters_of_five_goes_on() {
    every_order(5, 250);
}

/// The first seed that notices with these words, by a verdict or a panic.
fn caught(name: &str, words: &str, seeds: u64) -> Option<(u64, usize, String)> {
    let cases = (0..seeds).flat_map(|seed| [3, 5].map(|nodes| (seed, nodes)));
    cases.into_iter().find_map(|(seed, nodes)| {
        let plan = Plan::draw(seed, nodes);
        let verdict = std::panic::catch_unwind(|| run(&plan, Some(name), &mut Seen::new()));
        let text = verdict.unwrap_or_else(|_| Err("panic".into())).err().filter(|text| text.contains(words))?;
        // The same run unharmed must hold: else something other than the mutant was caught.
        assert_eq!(run(&plan, None, &mut Seen::new()), Ok(()), "seed {seed} fails without {name}");
        Some((seed, nodes, text.lines().next().unwrap_or_default().into()))
    })
}

#[test]
fn orders_of_restarts_notice_what_is_broken() {
    let broken = [
        ("new-voters-alone", "no majority of its voters"),
        ("two-incarnations", "a node twice in view"),
        ("never-stands", "alone do not form a component"),
        // The messages of the members to each other are withheld too: some clusters do not even form.
        ("bodies-withheld", ""),
        ("lying-disk", ""),
        ("lost-writes", ""),
        ("forgotten-promise", ""),
        (FORCED, "began without a majority"),
    ];
    for (name, words) in broken {
        let caught = caught(name, words, 100);
        println!("{name} is caught: {caught:?}");
        assert!(caught.is_some(), "{name}");
    }
}
