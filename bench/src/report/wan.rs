//! The model of round trips (docs/scaling.md), and how far it is from what a run of `provider` measured through relays.

use super::number;
use super::statistics::{Cells, Key, Summary};
use crate::record::Record;
use std::fmt::Write;

/// The nodes that have clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writers {
    sequencer: bool,
    others: u8,
}

impl Writers {
    pub fn all(nodes: u8) -> Writers {
        Writers { sequencer: true, others: nodes - 1 }
    }

    /// Of a point of `provider`: its first node begins the cluster, and so orders.
    fn of(key: &Key) -> Writers {
        match key.coordinate("writers").as_str() {
            "first" => Writers { sequencer: true, others: 0 },
            "last" => Writers { sequencer: false, others: 1 },
            _ => Writers::all(key.nodes),
        }
    }
}

/// Round trips that a commit waits for, where every node is as far from each other one.
///
/// On the sequencer, and in a group of three, the way to one other node and back makes a majority. Elsewhere a third node gets the position from
/// the sequencer and answers to the origin: three times one way.
fn round_trips(nodes: u8, on_sequencer: bool) -> f64 {
    if on_sequencer || nodes <= 3 { 1.0 } else { 1.5 }
}

/// Transactions per second of the whole group: the least of what processors allow (`limit`) and of what `clients` on each writer do that
/// wait for round trips. `own_s`: seconds that a transaction takes beside them.
pub fn rate(limit: f64, own_s: f64, nodes: u8, writers: Writers, rtt_ms: f64, clients: f64) -> f64 {
    let each = |on_sequencer| clients / (own_s + rtt_ms / 1e3 * round_trips(nodes, on_sequencer));
    let sequencer = if writers.sequencer { each(true) } else { 0.0 };
    limit.min(sequencer + f64::from(writers.others) * each(false))
}

/// The same point with another value of a coordinate.
fn with(key: &Key, name: &str, value: &str) -> Key {
    let mut other = key.clone();
    other.set.insert(name.to_owned(), value.to_owned());
    other
}

/// A point without round trips and with the fewest clients: what a commit takes by itself.
fn lone<'a>(cells: &'a Cells, key: &Key) -> Option<&'a Summary> {
    let near = with(key, "rtt", "0");
    let clients = |key: &Key| key.coordinate("clients").parse::<u32>().unwrap_or(u32::MAX);
    let alike = cells.iter().filter(|(other, _)| with(other, "clients", &near.coordinate("clients")) == near);
    alike.min_by_key(|(other, _)| clients(other)).map(|(_, summary)| summary)
}

/// Each point with round trips beside what the model makes of the points without. Empty where no point has any.
pub fn section(records: &[&Record]) -> String {
    let (rates, halves) = (Cells::of(records, "commits_per_s"), Cells::of(records, "p50_us"));
    let far = |key: &&Key| key.coordinate("rtt").parse::<f64>().is_ok_and(|rtt| rtt > 0.0);
    let mut lines = String::new();
    let mut errors: Vec<(&str, Vec<f64>)> = Vec::new();
    let mut alone = 0;
    for key in rates.keys().filter(far) {
        let (Some(measured), Some(half)) = (rates.get(key), halves.get(key)) else { continue };
        let (Some(limit), Some(own)) = (rates.get(&with(key, "rtt", "0")), lone(&halves, key)) else {
            alone += 1;
            continue;
        };
        let of = |name: &str| key.coordinate(name).parse::<f64>().unwrap_or(0.0);
        let (rtt, clients) = (of("rtt"), of("clients"));
        let model = rate(limit.median, own.median / 1e6, key.nodes, Writers::of(key), rtt, clients);
        let error = (model / measured.median - 1.0) * 100.0;
        match errors.iter_mut().find(|(system, _)| *system == key.system) {
            Some((_, all)) => all.push(error.abs()),
            None => errors.push((&key.system, vec![error.abs()])),
        }
        let point = key.words(|name| !matches!(name, "rtt" | "clients"));
        let trips = (half.median - own.median) / (rtt * 1e3);
        let _ = writeln!(
            lines,
            "| {point} | {clients} | {rtt} | {} | {} | {error:+.0} % | {trips:.2} |",
            measured.shown(0),
            number(model, 0),
        );
    }
    if lines.is_empty() && alone == 0 {
        return String::new();
    }
    let mut text = "\n### The model of round trips\n".to_owned();
    if alone > 0 {
        let _ = writeln!(
            text,
            "\nPoints without a model: {alone}. It needs the same ones without round trips (`--rtt 0,…`)."
        );
    }
    if lines.is_empty() {
        return text;
    }
    let words = errors.iter().filter_map(|(system, errors)| {
        let all = Summary::of(errors)?;
        Some(format!("{system} {:.0} % in the median, {:.0} % at most", all.median, all.most))
    });
    let _ = write!(
        text,
        "\nThe model (docs/scaling.md) takes two things from the points without round trips: the most that processors allow with as many clients, and the \
         time of a commit with the fewest. `round trips`: how many the median commit took longer than that one. The model is of Trireme's protocol; what else was measured stands beside it. The error of the model: {}.\n\n\
         | point | clients | rtt, ms | commits/s | model | error | round trips |\n|---|---|---|---|---|---|---|\n{lines}",
        words.collect::<Vec<_>>().join("; ")
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Experiment, Point};
    use crate::record::{Measured, Outcome};

    #[test]
    fn round_trips_hold_few_clients_and_processors_many() {
        let rate = |nodes, rtt, clients| rate(2500.0, 0.001, nodes, Writers::all(nodes), rtt, clients);
        assert!((rate(3, 9.0, 1.0) - 300.0).abs() < 1e-6, "three clients that wait 10 ms each");
        assert!((rate(3, 1.0, 1000.0) - 2500.0).abs() < 1e-6, "what processors allow");
        assert!(rate(5, 30.0, 1.0) / 5.0 < rate(3, 30.0, 1.0) / 3.0, "the third of five is further away");
    }

    #[test]
    fn the_sequencer_is_quicker_than_the_others() {
        let rate = |writers| rate(1e9, 0.0, 5, writers, 10.0, 1.0);
        let (first, last) = (Writers { sequencer: true, others: 0 }, Writers { sequencer: false, others: 1 });
        assert!((rate(first) - 100.0).abs() < 1e-6 && (rate(last) - 100.0 / 1.5).abs() < 1e-6);
        assert!((rate(Writers::all(5)) - rate(first) - 4.0 * rate(last)).abs() < 1e-6, "each has its own clients");
    }

    fn record(writers: &str, clients: u32, rtt: f64, rate: f64, half_us: f64) -> Record {
        let mut measured = Measured::default();
        measured.set("commits_per_s", rate);
        measured.set("p50_us", half_us);
        let point = Point::new(Experiment::Provider, "trireme-process", 5)
            .with("writers", writers)
            .with("clients", clients)
            .with("rtt", rtt);
        Record { point, outcome: Outcome::Measured, began: 0, took: 1.0, others_percent: None, measured }
    }

    #[test]
    fn points_with_round_trips_stand_beside_the_model_made_of_those_without() {
        let all = [
            record("last", 1, 0.0, 5000.0, 200.0),
            record("last", 32, 0.0, 20_000.0, 1600.0),
            record("last", 1, 10.0, 66.0, 15_200.0),
            record("last", 32, 10.0, 1900.0, 16_000.0),
        ];
        let text = section(&all.iter().collect::<Vec<_>>());
        // 1 / (0.2 ms + 15 ms), and 32 times as much.
        assert!(text.contains("writers last | 1 | 10 | 66 | 66 | -0 % | 1.50 |"), "{text}");
        assert!(text.contains("writers last | 32 | 10 | 1,900 | 2,105 | +11 % | 1.58 |"), "{text}");
        assert!(text.contains("trireme-process 6 % in the median, 11 % at most"), "{text}");
        assert_eq!(section(&[&all[0]]), "", "nothing has a round trip");
        assert!(section(&[&all[2]]).contains("Points without a model: 1."), "it needs one without");
    }
}
