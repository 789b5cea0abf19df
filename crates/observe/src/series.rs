//! The curves of the dashboard: numbers of every node, each second for an hour, and the worst or the mean of ten seconds for
//! a day.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

use crate::overview::{Node, Overview};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Merge {
    Mean,
    Max,
}

struct Column {
    name: &'static str,
    merge: Merge,
    of: fn(&Node) -> Option<f64>,
}

const fn column(name: &'static str, merge: Merge, of: fn(&Node) -> Option<f64>) -> Column {
    Column { name, merge, of }
}

fn p50(node: &Node, stage: &str) -> Option<f64> {
    Some(node.times.get(stage)?.p50)
}

fn p99(node: &Node, stage: &str) -> Option<f64> {
    Some(node.times.get(stage)?.p99)
}

/// Seconds, bytes, or numbers per second.
const COLUMNS: &[Column] = &[
    column("commits", Merge::Mean, |node| node.rates.commits),
    column("total_p50", Merge::Mean, |node| p50(node, "total")),
    column("total_p99", Merge::Max, |node| p99(node, "total")),
    column("send_p99", Merge::Max, |node| p99(node, "send")),
    column("hold_p99", Merge::Max, |node| p99(node, "hold")),
    column("order_p99", Merge::Max, |node| p99(node, "order")),
    column("wait_p99", Merge::Max, |node| p99(node, "wait")),
    column("engine_p99", Merge::Max, |node| p99(node, "engine")),
    column("send_p50", Merge::Mean, |node| p50(node, "send")),
    column("hold_p50", Merge::Mean, |node| p50(node, "hold")),
    column("order_p50", Merge::Mean, |node| p50(node, "order")),
    column("wait_p50", Merge::Mean, |node| p50(node, "wait")),
    column("engine_p50", Merge::Mean, |node| p50(node, "engine")),
    column("sync_p50", Merge::Mean, |node| p50(node, "sync")),
    column("sync_p99", Merge::Max, |node| p99(node, "sync")),
    column("delay_p99", Merge::Max, |node| p99(node, "delay")),
    column("apply_p99", Merge::Max, |node| p99(node, "apply")),
    column("lag_p99", Merge::Max, |node| p99(node, "lag")),
    column("queue", Merge::Max, |node| node.queue),
    column("conflicts", Merge::Mean, |node| node.rates.conflicts),
    column("held", Merge::Mean, |node| node.rates.held),
    column("received_bytes", Merge::Mean, |node| node.rates.received_bytes),
    column("log_bytes", Merge::Max, |node| node.log_bytes),
    column("away", Merge::Mean, |node| node.away_seconds),
];

/// One tier: a row for each step.
#[derive(Debug)]
struct Tier {
    step: u32,
    rows_max: usize,
    times: VecDeque<f64>,
    /// By node, as long as `times`. NaN: unknown.
    nodes: BTreeMap<String, VecDeque<Box<[f32]>>>,
}

impl Tier {
    fn new(step: u32, rows_max: usize) -> Tier {
        Tier { step, rows_max, times: VecDeque::new(), nodes: BTreeMap::new() }
    }

    fn push(&mut self, time: f64, rows: BTreeMap<String, Box<[f32]>>) {
        let unknown = || vec![f32::NAN; COLUMNS.len()].into_boxed_slice();
        for name in rows.keys() {
            if !self.nodes.contains_key(name) && self.nodes.len() < NODES_MAX {
                self.nodes.insert(name.clone(), self.times.iter().map(|_| unknown()).collect());
            }
        }
        self.times.push_back(time);
        let full = self.times.len() > self.rows_max;
        if full {
            self.times.pop_front();
        }
        for (name, past) in &mut self.nodes {
            past.push_back(rows.get(name).cloned().unwrap_or_else(unknown));
            if full {
                past.pop_front();
            }
        }
        self.nodes.retain(|_, past| past.iter().any(|row| row.iter().any(|value| !value.is_nan())));
    }
}

/// More nodes are not drawn: it would take memory, and nobody could tell the lines apart.
pub const NODES_MAX: usize = 32;
/// Rows of the fine tier that make one of the coarse.
const COARSE: usize = 10;

#[derive(Debug)]
pub struct Series {
    fine: Tier,
    coarse: Tier,
}

impl Default for Series {
    fn default() -> Series {
        Series { fine: Tier::new(1, 3600), coarse: Tier::new(COARSE as u32, 8640) }
    }
}

impl Series {
    /// Once in a second.
    pub fn push(&mut self, overview: &Overview) {
        let rows = overview.nodes.iter().map(|node| (node.name.clone(), row(node))).collect();
        self.fine.push(overview.time, rows);
        if overview.time as u64 / COARSE as u64
            != self.coarse.times.back().map_or(0, |time| *time as u64 / COARSE as u64)
        {
            let rows = self.fine.nodes.iter().map(|(name, past)| (name.clone(), merge(past))).collect();
            self.coarse.push(overview.time, rows);
        }
    }

    /// The last `seconds`; in steps of ten where that is more than an hour.
    pub fn to_json(&self, seconds: u32) -> Value {
        let tier = if seconds as usize > self.fine.rows_max { &self.coarse } else { &self.fine };
        let rows = (seconds / tier.step) as usize;
        let skip = tier.times.len().saturating_sub(rows);
        let one = |past: &VecDeque<Box<[f32]>>, column: usize| -> Vec<Value> {
            past.iter().skip(skip).map(|row| number(row[column])).collect()
        };
        let nodes: BTreeMap<&String, Vec<Vec<Value>>> = tier
            .nodes
            .iter()
            .map(|(name, past)| (name, (0..COLUMNS.len()).map(|column| one(past, column)).collect()))
            .collect();
        let times: Vec<f64> = tier.times.iter().skip(skip).map(|time| (time * 1000.0).round() / 1000.0).collect();
        json!({ "version": 1, "step": tier.step, "columns": names(), "times": times, "nodes": nodes })
    }
}

pub fn names() -> Vec<&'static str> {
    COLUMNS.iter().map(|column| column.name).collect()
}

/// One node's numbers, in the order of [`names`].
pub fn to_json(node: &Node) -> Vec<Value> {
    row(node).iter().map(|value| number(*value)).collect()
}

fn row(node: &Node) -> Box<[f32]> {
    COLUMNS.iter().map(|column| (column.of)(node).map_or(f32::NAN, |value| value as f32)).collect()
}

fn merge(past: &VecDeque<Box<[f32]>>) -> Box<[f32]> {
    let one = |(place, column): (usize, &Column)| {
        let known = past.iter().rev().take(COARSE).map(|row| row[place]).filter(|value| !value.is_nan());
        match column.merge {
            Merge::Max => known.fold(f32::NAN, f32::max),
            Merge::Mean => {
                let (sum, count) = known.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
                if count == 0 { f32::NAN } else { sum / count as f32 }
            }
        }
    };
    COLUMNS.iter().enumerate().map(one).collect()
}

/// Four digits are more than anybody sees.
fn number(value: f32) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    let value = f64::from(value);
    let digits = 10f64.powf(3.0 - value.abs().max(1e-9).log10().floor());
    json!((value * digits).round() / digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Level;

    fn overview(time: f64, nodes: &[(&str, f64)]) -> Overview {
        let node = |(name, commits): &(&str, f64)| {
            let mut node = Node { name: (*name).to_owned(), queue: Some(*commits), ..Node::default() };
            node.rates.commits = Some(*commits);
            node
        };
        Overview {
            version: 1,
            time,
            here: None,
            level: Level::Well,
            sentences: vec![],
            clusters: vec![],
            notes: vec![],
            nodes: nodes.iter().map(node).collect(),
            throttle: vec![],
            slow: vec![],
            round_trips: vec![],
            changes: vec![],
        }
    }

    #[test]
    fn an_hour_by_the_second_and_a_day_by_ten() {
        let mut series = Series::default();
        for second in 0..4000 {
            series.push(&overview(10_000.0 + f64::from(second), &[("a", f64::from(second % 10))]));
        }
        let fine = series.to_json(3600);
        assert_eq!((fine["step"].as_u64(), fine["times"].as_array().unwrap().len()), (Some(1), 3600));
        let coarse = series.to_json(86_400);
        assert_eq!(coarse["times"].as_array().unwrap().len(), 400);
        let last = |place: usize| coarse["nodes"]["a"][place].as_array().unwrap().last().unwrap().as_f64();
        let queue = names().iter().position(|name| *name == "queue").unwrap();
        assert_eq!((last(0), last(queue)), (Some(4.5), Some(9.0)));
        assert_eq!(series.to_json(60)["times"].as_array().unwrap().len(), 60);
    }

    #[test]
    fn nodes_come_and_go() {
        let mut series = Series::default();
        series.push(&overview(1.0, &[("a", 1.0)]));
        series.push(&overview(2.0, &[("a", 1.0), ("b", 123_456.0)]));
        series.push(&overview(3.0, &[("b", 0.000_012_345)]));
        let json = series.to_json(60);
        assert_eq!(json["nodes"]["a"][0].to_string(), "[1.0,1.0,null]");
        assert_eq!(
            json["nodes"]["b"][0].to_string(),
            "[null,123500.0,0.00001235]".replace("0.00001235", &json["nodes"]["b"][0][2].to_string())
        );
        assert!((json["nodes"]["b"][0][2].as_f64().unwrap() - 1.2345e-5).abs() < 1e-8);
        let many: Vec<String> = (0..100).map(|n| format!("n{n:03}")).collect();
        let many: Vec<(&str, f64)> = many.iter().map(|name| (name.as_str(), 1.0)).collect();
        series.push(&overview(4.0, &many));
        assert_eq!(series.fine.nodes.len(), NODES_MAX);
    }
}
