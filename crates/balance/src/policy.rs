//! Which of several servers a client gets. The names are GLB's.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;

use trireme_types::{SplitMix, mix};

use crate::pool::NodeId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The highest weight per connection.
    Least,
    /// In turn, in proportion to the weights.
    Round,
    /// All to one until it fails; the highest weight first. A higher weight that appears later does not move them.
    Single,
    /// By chance, in proportion to the weights.
    Random,
    /// By the client's address, in proportion to the weights. A server that leaves moves only its own clients.
    Source,
}

impl FromStr for Policy {
    type Err = String;
    fn from_str(text: &str) -> Result<Policy, String> {
        Ok(match text {
            "least" => Policy::Least,
            "round" => Policy::Round,
            "single" => Policy::Single,
            "random" => Policy::Random,
            "source" => Policy::Source,
            _ => return Err(format!("`{text}` is no policy: least, round, single, random or source")),
        })
    }
}

impl Policy {
    pub fn name(self) -> &'static str {
        match self {
            Policy::Least => "least",
            Policy::Round => "round",
            Policy::Single => "single",
            Policy::Random => "random",
            Policy::Source => "source",
        }
    }
}

/// One server to choose from.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    pub id: NodeId,
    /// Of its address, so that all balancers lead a client to the same server: [`crate::Address::hash`].
    pub key: u64,
    /// More than 0.
    pub weight: f64,
    pub connections: usize,
}

/// The memory of a policy between two choices. Each listener has one.
#[derive(Debug)]
pub struct Chooser {
    policy: Policy,
    /// Only those of the highest weight count.
    top: bool,
    random: SplitMix,
    /// `Round`: what each server is owed (smooth weighted round robin).
    owed: BTreeMap<NodeId, f64>,
    /// `Least`: when each was chosen last, counted in choices. Among equals the one that waited longest is next, or else short
    /// connections would all go to the first.
    chosen: BTreeMap<NodeId, u64>,
    choices: u64,
    single: Option<NodeId>,
}

impl Chooser {
    pub fn new(policy: Policy, top: bool, seed: u64) -> Chooser {
        Chooser {
            policy,
            top: top || policy == Policy::Single,
            random: SplitMix(seed),
            owed: BTreeMap::new(),
            chosen: BTreeMap::new(),
            choices: 0,
            single: None,
        }
    }

    /// It leads a client to one server as long as that is there, and not to another one because that is quicker.
    pub fn is_faithful(&self) -> bool {
        match self.policy {
            Policy::Single | Policy::Source => true,
            Policy::Least | Policy::Round | Policy::Random => false,
        }
    }

    /// `None`: there is nobody to choose from. `source` is the client's address; without one (a unix socket) all are alike.
    pub fn choose(&mut self, candidates: &[Candidate], source: Option<IpAddr>) -> Option<NodeId> {
        let highest = candidates.iter().map(|c| c.weight).fold(0.0, f64::max);
        if self.policy == Policy::Single {
            let still = self.single.filter(|id| candidates.iter().any(|c| c.id == *id));
            self.single = still.or_else(|| candidates.iter().find(|c| c.weight == highest).map(|c| c.id));
            return self.single;
        }
        let some: Vec<Candidate> =
            candidates.iter().copied().filter(|c| c.weight > 0.0 && (!self.top || c.weight == highest)).collect();
        match self.policy {
            Policy::Least => self.least_loaded(&some),
            Policy::Round => self.next_in_turn(&some),
            Policy::Random => self.by_chance(&some),
            Policy::Source => some
                .iter()
                .max_by(|a, b| rendezvous(a, source).total_cmp(&rendezvous(b, source)).then(b.key.cmp(&a.key)))
                .map(|c| c.id),
            Policy::Single => unreachable!("answered above"),
        }
    }

    fn least_loaded(&mut self, some: &[Candidate]) -> Option<NodeId> {
        self.chosen.retain(|id, _| some.iter().any(|c| c.id == *id));
        let last = |id: NodeId| self.chosen.get(&id).copied().unwrap_or(0);
        let order = |a: &Candidate, b: &Candidate| {
            let load = per_connection(a).total_cmp(&per_connection(b));
            load.then(last(b.id).cmp(&last(a.id))).then(b.id.cmp(&a.id))
        };
        let next = some.iter().max_by(|a, b| order(a, b))?.id;
        self.choices += 1;
        self.chosen.insert(next, self.choices);
        Some(next)
    }

    fn next_in_turn(&mut self, some: &[Candidate]) -> Option<NodeId> {
        self.owed.retain(|id, _| some.iter().any(|c| c.id == *id));
        let total: f64 = some.iter().map(|c| c.weight).sum();
        for candidate in some {
            *self.owed.entry(candidate.id).or_default() += candidate.weight;
        }
        let next = some.iter().map(|c| c.id).max_by(|a, b| self.owed[a].total_cmp(&self.owed[b]).then(b.cmp(a)))?;
        *self.owed.get_mut(&next)? -= total;
        Some(next)
    }

    fn by_chance(&mut self, some: &[Candidate]) -> Option<NodeId> {
        let total: f64 = some.iter().map(|c| c.weight).sum();
        let mut left = unit(self.random.next()) * total;
        some.iter()
            .find(|c| {
                left -= c.weight;
                left < 0.0
            })
            .or(some.last())
            .map(|c| c.id)
    }
}

fn per_connection(candidate: &Candidate) -> f64 {
    candidate.weight / (candidate.connections as f64 + 1.0)
}

/// Weighted rendezvous hashing: each pair of client and server has a number of its own, and the highest wins.
fn rendezvous(candidate: &Candidate, source: Option<IpAddr>) -> f64 {
    let client = match source {
        None => 0,
        Some(IpAddr::V4(ip)) => u64::from(u32::from(ip)),
        Some(IpAddr::V6(ip)) => match ip.to_ipv4_mapped() {
            Some(ip) => u64::from(u32::from(ip)),
            None => mix((u128::from(ip) >> 64) as u64) ^ u128::from(ip) as u64,
        },
    };
    let chance = unit(mix(mix(client) ^ candidate.key));
    candidate.weight / -chance.max(f64::MIN_POSITIVE).ln()
}

/// From 0 up to, but without, 1.
fn unit(random: u64) -> f64 {
    (random >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn c(n: u32, weight: f64, connections: usize) -> Candidate {
        Candidate { id: NodeId(n), key: u64::from(n), weight, connections }
    }

    fn counts(chooser: &mut Chooser, candidates: &[Candidate], times: u32) -> BTreeMap<u32, u32> {
        let mut counts = BTreeMap::new();
        for i in 0..times {
            let source = IpAddr::from([10, 0, (i >> 8) as u8, i as u8]);
            *counts.entry(chooser.choose(candidates, Some(source)).unwrap().0).or_default() += 1;
        }
        counts
    }

    #[test]
    fn nobody_is_chosen_from_nobody() {
        for policy in [Policy::Least, Policy::Round, Policy::Single, Policy::Random, Policy::Source] {
            assert_eq!(Chooser::new(policy, false, 1).choose(&[], None), None);
        }
    }

    #[test]
    fn least_looks_at_connections_and_weight() {
        let mut least = Chooser::new(Policy::Least, false, 1);
        assert_eq!(least.choose(&[c(1, 1.0, 3), c(2, 1.0, 2)], None), Some(NodeId(2)));
        assert_eq!(least.choose(&[c(1, 2.0, 3), c(2, 1.0, 2)], None), Some(NodeId(1)));
    }

    #[test]
    fn least_takes_turns_among_equals() {
        let mut least = Chooser::new(Policy::Least, false, 1);
        let all = [c(1, 1.0, 0), c(2, 1.0, 0), c(3, 1.0, 0)];
        let first: Vec<u32> = (0..5).map(|_| least.choose(&all, None).unwrap().0).collect();
        assert_eq!(first, [1, 2, 3, 1, 2]);
    }

    #[test]
    fn round_is_exact_and_mixes() {
        let mut round = Chooser::new(Policy::Round, false, 1);
        let all = [c(1, 2.0, 0), c(2, 1.0, 0), c(3, 1.0, 0)];
        let first: Vec<u32> = (0..4).map(|_| round.choose(&all, None).unwrap().0).collect();
        assert_eq!(first, [1, 2, 3, 1]);
        assert_eq!(counts(&mut round, &all, 400), BTreeMap::from([(1, 200), (2, 100), (3, 100)]));
    }

    #[test]
    fn single_stays_until_it_fails_and_does_not_fall_back() {
        let mut single = Chooser::new(Policy::Single, false, 1);
        assert_eq!(single.choose(&[c(1, 1.0, 0), c(2, 2.0, 0)], None), Some(NodeId(2)));
        assert_eq!(single.choose(&[c(1, 1.0, 0)], None), Some(NodeId(1)));
        assert_eq!(single.choose(&[c(1, 1.0, 0), c(2, 2.0, 0)], None), Some(NodeId(1)));
    }

    #[test]
    fn random_and_source_are_in_proportion_to_the_weights() {
        for policy in [Policy::Random, Policy::Source] {
            let counts = counts(&mut Chooser::new(policy, false, 7), &[c(1, 3.0, 0), c(2, 1.0, 0)], 40_000);
            assert!((29_000..31_000).contains(&counts[&1]), "{policy:?} {counts:?}");
        }
    }

    #[test]
    fn source_moves_only_the_clients_of_the_server_that_left() {
        let mut source = Chooser::new(Policy::Source, false, 1);
        let all = [c(1, 1.0, 0), c(2, 1.0, 0), c(3, 1.0, 0)];
        for i in 0..2000u32 {
            let ip = Some(IpAddr::from(i.to_be_bytes()));
            let before = source.choose(&all, ip).unwrap();
            let after = source.choose(&all[..2], ip).unwrap();
            assert!(before == NodeId(3) || before == after);
        }
    }

    #[test]
    fn source_does_not_depend_on_the_order_in_which_servers_became_known() {
        let servers = |ids: [u32; 3]| {
            let names = ["10.0.0.1:3306", "10.0.0.2:3306", "10.0.0.3:3306"];
            let one = |(id, name): (u32, &str)| {
                let key = crate::Address::server(name, 1).unwrap().hash();
                Candidate { key, ..c(id, 1.0, 0) }
            };
            ids.into_iter().zip(names).map(one).collect::<Vec<_>>()
        };
        let (mut one, mut other) = (Chooser::new(Policy::Source, false, 1), Chooser::new(Policy::Source, false, 2));
        let mut to = BTreeSet::new();
        for i in 0..300u32 {
            let ip = Some(IpAddr::from(i.to_be_bytes()));
            let here = one.choose(&servers([1, 2, 3]), ip).unwrap().0;
            let there = other.choose(&servers([3, 1, 2]), ip).unwrap().0;
            assert_eq!([3, 1, 2][here as usize - 1], there);
            to.insert(here);
        }
        assert_eq!(to.len(), 3);
    }

    #[test]
    fn top_uses_the_heaviest_only() {
        let mut top = Chooser::new(Policy::Round, true, 1);
        let counts = counts(&mut top, &[c(1, 2.0, 0), c(2, 1.0, 0), c(3, 2.0, 0)], 10);
        assert_eq!(counts, BTreeMap::from([(1, 5), (3, 5)]));
    }
}
