//! A model of throughput on separate machines, from costs that this run measured, and how far it is from what this run measured (docs/scaling.md).

use super::statistics::{Cells, Key};
use super::wan::{self, Writers};
use crate::experiments::layout;
use crate::plan::Experiment;
use crate::record::Record;
use crate::systems::System;
use std::fmt::Write;

/// The costs of a transaction, in whatever unit: only their relation counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Where its client is.
    pub origin: f64,
    /// On every other node. Not below 0.
    pub applied: f64,
}

impl Costs {
    /// From the throughput of one node and of `nodes`, whose processors were the limit.
    pub fn of_rates(one: f64, nodes: f64, many: f64) -> Option<Costs> {
        (one > 0.0 && many > 0.0).then(|| Costs::of(1.0 / one, nodes, nodes / many))
    }

    /// From the processor time that a transaction takes on all servers together.
    pub fn of_processor_time(one: f64, nodes: f64, many: f64) -> Option<Costs> {
        (one > 0.0 && many > 0.0).then(|| Costs::of(one, nodes, many))
    }

    fn of(origin: f64, nodes: f64, all: f64) -> Costs {
        Costs { origin, applied: ((all - origin) / (nodes - 1.0)).max(0.0) }
    }

    /// Throughput of `nodes` that share the clients evenly, in units of one node.
    pub fn times_one(&self, nodes: f64) -> f64 {
        nodes * self.origin / (self.origin + (nodes - 1.0) * self.applied)
    }
}

/// One load of one system.
struct Load<'a> {
    key: &'a Key,
    rates: &'a Cells,
    processor: &'a Cells,
}

impl Load<'_> {
    fn with(&self, cells: &Cells, nodes: u8) -> Option<f64> {
        cells.get(&Key { nodes, ..self.key.clone() }).map(|summary| summary.median)
    }

    /// From one node and from the least number beyond it.
    fn costs(&self, cells: &Cells, of: fn(f64, f64, f64) -> Option<Costs>) -> Option<(u8, Costs)> {
        let one = self.with(cells, 1)?;
        (2..=9).find_map(|nodes| Some((nodes, of(one, f64::from(nodes), self.with(cells, nodes)?)?)))
    }

    fn name(&self) -> String {
        self.key.words(|name| name != "nodes")
    }
}

const NODES: [u8; 8] = [2, 3, 4, 5, 6, 7, 8, 9];

/// `limited`: every node had a share of the processor that was its limit, so the throughput says what separate machines would do.
pub fn section(experiment: Experiment, records: &[&Record], limited: bool) -> String {
    let layout = layout(experiment);
    let rates = Cells::of(records, layout.values[0].name);
    let processor = Cells::of(records, "servers_cpu_us_per_transaction");
    let is_group = |key: &&Key| {
        let system: Result<System, _> = clap::ValueEnum::from_str(&key.system, false);
        key.nodes == 1 && system.is_ok_and(System::is_group)
    };
    let loads: Vec<Load> = rates
        .keys()
        .filter(is_group)
        .map(|key| Load { key, rates: &rates, processor: &processor })
        .filter(|load| load.costs(load.processor, Costs::of_processor_time).is_some())
        .collect();
    let mut text = format!("\n### The scale model of `{experiment}`\n");
    if loads.is_empty() {
        let _ = writeln!(
            text,
            "\nNo model: it needs a group of one node and one of more, of the same system under the same load, and this run has none."
        );
        return text;
    }
    text.push_str(&table(&loads, limited));
    text.push_str(&wan(experiment, &loads));
    text
}

/// Both models beside each other, with their errors.
fn table(loads: &[Load], limited: bool) -> String {
    let mut out = String::new();
    let mut errors: [Vec<f64>; 2] = Default::default();
    let mut line = |load: &Load, of: usize, (from, costs): (u8, Costs)| {
        let title = ["throughput", "processor time"][of];
        let _ = write!(out, "| {} | {title}, 1 and {from} nodes | {:.2} |", load.name(), costs.applied / costs.origin);
        for nodes in NODES {
            let model = costs.times_one(f64::from(nodes));
            let measured = load.with(load.rates, nodes).zip(load.with(load.rates, 1)).map(|(many, one)| many / one);
            // A model meets the points it is made of: they say nothing about its error.
            match measured.filter(|_| limited && (of == 1 || nodes != from)) {
                Some(measured) => {
                    let error = (model / measured - 1.0) * 100.0;
                    errors[of].push(error.abs());
                    let _ = write!(out, " {model:.2} ({error:+.0} %) |");
                }
                None => {
                    let _ = write!(out, " {model:.2} |");
                }
            }
        }
        out.push('\n');
    };
    for load in loads {
        if let Some(costs) = load.costs(load.rates, Costs::of_rates).filter(|_| limited) {
            line(load, 0, costs);
        }
        if let Some(costs) = load.costs(load.processor, Costs::of_processor_time) {
            line(load, 1, costs);
        }
    }
    let mut words = Vec::new();
    for (title, errors) in ["throughput", "processor time"].iter().zip(&errors) {
        if let Some(all) = super::Summary::of(errors) {
            words.push(format!("the model from {title}: {:.0} % in the median, {:.0} % at most", all.median, all.most));
        }
    }
    let error = match (limited, words.is_empty()) {
        (false, _) => {
            "It is not checked by this run: without `--cpu-per-node` the nodes take each other's processors, so only the costs are of use.".to_owned()
        }
        (true, true) => "This run has no further number of nodes, so the error is not known.".to_owned(),
        (true, false) => format!("In brackets: the error against this run. Error of {}.", words.join("; of ")),
    };
    let columns: String = NODES.iter().map(|nodes| format!(" {nodes} nodes |")).collect();
    format!(
        "\nThroughput in units of one node, if every node is a machine of its own (docs/scaling.md). {error}\n\n\
         | load | model from | applying / executing |{columns}\n|---|---|---|{}\n{out}",
        "---|".repeat(NODES.len())
    )
}

/// Round trips, in milliseconds.
const ROUND_TRIPS: [f64; 4] = [1.0, 10.0, 30.0, 100.0];
/// On each node.
const CLIENTS: [f64; 2] = [1.0, 32.0];

/// The loads for which the table is made: writing ones, and one of each experiment.
fn is_shown(experiment: Experiment, key: &Key) -> bool {
    match experiment {
        Experiment::Insert => key.coordinate("rows") == "1",
        Experiment::Ratio => key.coordinate("ratio") == "50/50" && key.coordinate("write_sets") == "rows",
        _ => true,
    }
}

fn wan(experiment: Experiment, loads: &[Load]) -> String {
    let mut out = String::new();
    for load in loads.iter().filter(|load| is_shown(experiment, load.key)) {
        let Some((_, costs)) = load.costs(load.processor, Costs::of_processor_time) else { continue };
        let Some(one) = load.with(load.rates, 1) else { continue };
        for nodes in [3, 5, 7, 9] {
            let _ = write!(out, "| {} | {nodes} |", load.name());
            for rtt in ROUND_TRIPS {
                let limit = one * costs.times_one(f64::from(nodes));
                let rate = |clients| wan::rate(limit, costs.origin / 1e6, nodes, Writers::all(nodes), rtt, clients);
                let shown = CLIENTS.map(|clients| super::number(rate(clients), 0));
                let _ = write!(out, " {} |", shown.join(" / "));
            }
            out.push('\n');
        }
    }
    if out.is_empty() {
        return out;
    }
    let columns: String = ROUND_TRIPS.iter().map(|rtt| format!(" {rtt} ms |")).collect();
    format!(
        "\nWith round trips between the nodes, computed and not measured here: {} per second of the whole group with {} client / with {} clients on each node. \
         Assumed: every node is as far from each other one, and has what one node had in this run; a transaction takes its processor time and the round trips of \
         its commit, one on the sequencer and in a group of three, one and a half elsewhere, as Trireme's protocol has it; nothing is in conflict, and no network card is full.\n\n\
         | load | nodes |{columns}\n|---|---|{}\n{out}",
        layout(experiment).values[0].title.trim_end_matches("/s").trim_end_matches(" per minute"),
        CLIENTS[0],
        CLIENTS[1],
        "---|".repeat(ROUND_TRIPS.len())
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Point;
    use crate::record::{Measured, Outcome};

    #[test]
    fn the_model_meets_what_it_is_made_of_and_has_a_limit() {
        let costs = Costs::of_rates(1000.0, 2.0, 1600.0).unwrap();
        assert!((costs.times_one(1.0) - 1.0).abs() < 1e-9 && (costs.times_one(2.0) - 1.6).abs() < 1e-9);
        // However many nodes there are, each applies what all write.
        let limit = costs.origin / costs.applied;
        assert!(costs.times_one(1000.0) < limit && costs.times_one(9.0) > costs.times_one(4.0));
        assert_eq!(Costs::of_rates(1000.0, 2.0, 2500.0).unwrap().applied, 0.0, "two nodes cannot do more than twice");
        // 100 µs where the client is, and 60 on each of two others.
        let costs = Costs::of_processor_time(100.0, 3.0, 220.0).unwrap();
        assert!((costs.applied - 60.0).abs() < 1e-9 && (costs.times_one(2.0) - 1.25).abs() < 1e-9);
    }

    fn record(nodes: u8, rate: f64, processor: f64) -> Record {
        let mut measured = Measured::default();
        measured.set("transactions_per_s", rate);
        measured.set("servers_cpu_us_per_transaction", processor);
        let point =
            Point::new(Experiment::Ratio, "trireme-disk", nodes).with("ratio", "50/50").with("write_sets", "rows");
        Record { point, outcome: Outcome::Measured, began: 0, took: 1.0, others_percent: None, measured }
    }

    #[test]
    fn a_section_has_both_models_with_their_errors_or_says_why_not() {
        let all = [record(1, 1000.0, 500.0), record(2, 1600.0, 625.0), record(4, 2500.0, 900.0)];
        let text = section(Experiment::Ratio, &all.iter().collect::<Vec<_>>(), true);
        assert!(text.contains("throughput, 1 and 2 nodes") && text.contains("processor time, 1 and 2 nodes"), "{text}");
        assert!(text.contains("Error of the model from throughput: 9 % in the median"), "{text}");
        assert!(text.contains("computed and not measured here") && text.contains("| 100 ms |"), "{text}");
        let unlimited = section(Experiment::Ratio, &all.iter().collect::<Vec<_>>(), false);
        assert!(
            unlimited.contains("not checked by this run") && !unlimited.contains("throughput, 1 and"),
            "{unlimited}"
        );
        assert!(section(Experiment::Ratio, &[&all[1]], true).contains("No model: it needs"));
    }
}
