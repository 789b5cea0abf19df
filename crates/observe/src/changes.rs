//! The events between two looks at the cluster: the time line of the dashboard.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::overview::{Node, Overview};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Change {
    /// Rises with each.
    pub number: u64,
    /// Seconds since 1970.
    pub time: f64,
    /// `verdict`, `member`, `health`, `state`, `sequencer`, `silence`, `throttle`, `restart`, `durability`, `outcome`.
    pub kind: String,
    /// The node that it concerns; empty: the cluster.
    pub node: String,
    pub text: String,
}

/// Changes that are kept.
const CHANGES_MAX: usize = 1000;
/// Changes that go with each overview.
pub const SHOWN: usize = 50;
/// Writers wait for more than this share of their time: it is told.
const THROTTLED: f64 = 0.05;
/// For so many seconds nobody waited for it: it is over.
const CALM: f64 = 3.0;

#[derive(Debug, Default)]
pub struct Chronicle {
    count: u64,
    changes: VecDeque<Change>,
    before: BTreeMap<String, Node>,
    level: Option<crate::verdict::Level>,
    /// By cluster's name and history: the sequencer last known, and its term.
    sequencers: BTreeMap<String, (String, Option<u64>)>,
    silent: BTreeSet<String>,
    /// The nodes that writers wait for, and when they last did.
    throttling: BTreeMap<String, f64>,
}

impl Chronicle {
    pub fn look(&mut self, overview: &Overview) {
        let time = overview.time;
        let mut told = Vec::new();
        let mut tell = |kind: &str, node: &str, text: String| told.push((kind.to_owned(), node.to_owned(), text));
        for node in &overview.nodes {
            match self.before.insert(node.name.clone(), node.clone()) {
                // All are new at the first look.
                None if self.level.is_some() => {
                    tell("member", &node.name, format!("{} is seen for the first time", node.name))
                }
                None => {}
                Some(before) => compare(&before, node, &mut tell),
            }
        }
        let here: BTreeSet<&String> = overview.nodes.iter().map(|node| &node.name).collect();
        let lost: Vec<String> = self.before.keys().filter(|name| !here.contains(name)).cloned().collect();
        for name in lost {
            self.before.remove(&name);
            tell("member", &name, format!("{name} is a member no longer"));
        }
        for cluster in &overview.clusters {
            let Some(sequencer) = cluster.sequencer.as_ref().filter(|name| !name.is_empty()) else { continue };
            let key = format!("{}/{}", cluster.name, cluster.uuid.as_deref().unwrap_or_default());
            let known = self.sequencers.insert(key, (sequencer.clone(), cluster.term));
            if known.is_some_and(|known| known != (sequencer.clone(), cluster.term)) {
                let term = cluster.term.map_or_else(String::new, |term| format!(", term {term}"));
                tell("sequencer", sequencer, format!("{sequencer} orders now{term}"));
            }
        }
        let silent: BTreeSet<String> = overview.nodes.iter().flat_map(|node| node.silent.iter().cloned()).collect();
        for name in silent.difference(&self.silent) {
            tell("silence", name, format!("{name} is not heard by the others"));
        }
        for name in self.silent.difference(&silent) {
            tell("silence", name, format!("{name} is heard again, or is left out"));
        }
        self.silent = silent;
        for cell in overview.throttle.iter().filter(|cell| cell.share > THROTTLED) {
            let by = if cell.by.is_empty() { "somebody" } else { &cell.by };
            if self.throttling.insert(by.to_owned(), time).is_none() {
                let why = match &*cell.reason {
                    "stands" => "it applies nothing",
                    "behind" => "it has more to apply than it can",
                    other => other,
                };
                tell("throttle", &cell.by, format!("writers wait for {by}: {why}"));
            }
        }
        self.throttling.retain(|by, last| {
            let over = time - *last > CALM;
            if over {
                tell("throttle", by, format!("nobody waits for {by} any more"));
            }
            !over
        });
        if self.level.replace(overview.level).is_some_and(|level| level != overview.level) {
            tell("verdict", "", overview.sentences.first().cloned().unwrap_or_default());
        }
        for (kind, node, text) in told {
            self.count += 1;
            self.changes.push_back(Change { number: self.count, time, kind, node, text });
        }
        while self.changes.len() > CHANGES_MAX {
            self.changes.pop_front();
        }
    }

    /// The last of them.
    pub fn last(&self, count: usize) -> Vec<Change> {
        self.changes.iter().skip(self.changes.len().saturating_sub(count)).cloned().collect()
    }
}

fn compare(before: &Node, node: &Node, tell: &mut impl FnMut(&str, &str, String)) {
    let name = &node.name;
    if before.health != node.health {
        let why = node.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        tell("health", name, format!("{name} was {}, is {}{why}", before.health, node.health));
    }
    if before.identity.is_some() && node.identity.is_some() && before.identity != node.identity {
        tell("restart", name, format!("{name} is another process: it was started again"));
    }
    if let (Some(old), Some(new)) = (&before.state, &node.state) {
        if old != new {
            let long = match before.state_since {
                Some(since) if old != "Synced" => {
                    format!(" after {:.0} s", (node.state_since.unwrap_or(since) - since).max(0.0))
                }
                Some(_) | None => String::new(),
            };
            tell("state", name, format!("{name} is {new}, was {old}{long}"));
        }
    }
    if let (Some(old), Some(new)) = (&before.durability, &node.durability) {
        if old != new {
            tell("durability", name, format!("durability is {new} on {name}, was {old}"));
        }
    }
    if let (Some(old), Some(new)) = (before.unknown_outcomes, node.unknown_outcomes) {
        if new > old {
            tell("outcome", name, format!("{name} left the outcome of {:.0} commits open", new - old));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::Watch;
    use crate::overview::Roundup;
    use crate::overview::tests::seconds;
    use std::time::Instant;
    use trireme_metrics::state::label;

    #[test]
    fn what_happened_is_told_once() {
        let start = Instant::now();
        let mut roundup = Roundup::default();
        let mut watches: Vec<Watch> = (0..3).map(|_| Watch::new(start)).collect();
        let mut chronicle = Chronicle::default();
        let cell = label("trireme_flow_control_seconds_total", &[("by", "db3"), ("reason", "stands")]);
        for second in 1..=12u64 {
            let overview = seconds(&mut roundup, &mut watches, start, second..=second, |node, second, state| {
                if second >= 3 {
                    state.texts.insert("sequencer".into(), "db2".into());
                    state.numbers.insert("trireme_term".into(), 8.0);
                }
                if node == 1 && second >= 4 {
                    state.numbers.insert(cell.clone(), 0.5 * (second.min(6) - 3) as f64);
                }
                if node == 2 && second >= 5 {
                    state.numbers.insert("trireme_local_state".into(), 2.0);
                    state.texts.insert("local_state_comment".into(), "Donor/Desynced".into());
                }
            });
            chronicle.look(&overview);
        }
        let told: Vec<String> = chronicle.last(100).into_iter().map(|change| change.text).collect();
        let count = |text: &str| told.iter().filter(|told| told.contains(text)).count();
        for text in [
            "db2 orders now, term 8",
            "writers wait for db3: it applies nothing",
            "nobody waits for db3 any more",
            "db2 is Donor/Desynced, was Synced",
            "db2 was synced, is donor",
            "db2 is Donor/Desynced",
        ] {
            assert!(count(text) >= 1, "{text}: {told:?}");
        }
        assert_eq!((count("orders now"), count("writers wait"), count("was Synced")), (1, 1, 1), "{told:?}");
        assert!(!told.iter().any(|text| text.contains("first time")), "{told:?}");
        assert_eq!(chronicle.last(2).len(), 2);
    }
}
