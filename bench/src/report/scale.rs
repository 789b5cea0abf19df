//! A model of throughput on separate machines, from costs that this run measured, and how far it is from what this run measured (docs/scaling.md).

use super::statistics::{Cells, Key};
use std::fmt::Write;

/// Of one system and load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Processor time of a transaction where its client is, in units of one node's share for one second.
    pub origin: f64,
    /// The same on every other node.
    pub applied: f64,
}

impl Costs {
    /// From the throughput of one and of two nodes whose processors were the limit.
    pub fn of(one: f64, two: f64) -> Option<Costs> {
        let origin = 1.0 / one;
        let applied = 2.0 / two - origin;
        (one > 0.0 && two > 0.0 && applied > 0.0).then_some(Costs { origin, applied })
    }

    /// Transactions per second of `nodes` that share the clients evenly.
    pub fn rate(&self, nodes: f64) -> f64 {
        nodes / (self.origin + (nodes - 1.0) * self.applied)
    }
}

/// For every system and load that was measured with 1 and 2 nodes. `None`: there is none.
pub fn table(cells: &Cells) -> Option<String> {
    const NODES: [u8; 7] = [3, 4, 5, 6, 7, 8, 9];
    let mut out = String::new();
    let mut worst: Option<f64> = None;
    for (key, one) in cells.iter().filter(|(key, _)| key.nodes == 1) {
        let with = |nodes: u8| cells.get(&Key { nodes, ..key.clone() });
        let Some(costs) = with(2).and_then(|two| Costs::of(one.median, two.median)) else { continue };
        let _ = write!(out, "| {} | {:.2} |", key.words(|name| name != "nodes"), costs.applied / costs.origin);
        for nodes in NODES {
            let model = costs.rate(f64::from(nodes)) / one.median;
            let _ = match with(nodes) {
                Some(measured) => {
                    let error = (model / (measured.median / one.median) - 1.0) * 100.0;
                    worst = Some(worst.map_or(error.abs(), |worst: f64| worst.max(error.abs())));
                    write!(out, " {model:.2} ({error:+.0} %) |")
                }
                None => write!(out, " {model:.2} |"),
            };
        }
        out.push('\n');
    }
    let error = worst.map_or_else(
        || "This run measured no more than two nodes, so the error of the model is not known.".to_owned(),
        |worst| format!("In brackets: the model's error against this run; {worst:.0} % at most."),
    );
    (!out.is_empty()).then(|| {
        let columns: String = NODES.iter().map(|nodes| format!(" {nodes} nodes |")).collect();
        let rule = "---|".repeat(NODES.len());
        format!(
            "\nThe scale model (docs/scaling.md): throughput in units of one node, if every node is a machine of this share. {error}\n\n\
             | load | applying / executing |{columns}\n|---|---|{rule}\n{out}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_meets_what_it_is_made_of_and_has_a_limit() {
        let costs = Costs::of(1000.0, 1600.0).unwrap();
        assert!((costs.rate(1.0) - 1000.0).abs() < 1e-6 && (costs.rate(2.0) - 1600.0).abs() < 1e-6);
        // However many nodes there are, each applies what all write.
        assert!(costs.rate(1000.0) < 1.0 / costs.applied && costs.rate(9.0) > costs.rate(4.0));
        assert_eq!(Costs::of(1000.0, 2500.0), None, "two nodes cannot do more than twice");
    }
}
