//! Dependencies between transactions.

use crate::lists::Lists;
use crate::operation::{Element, Key, Micros, OpId, Outcome};
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::BTreeMap;

/// Why one transaction comes before another. In the order of preference when several hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    /// Its append precedes the other's.
    Write { key: Key, before: Element, after: Element },
    /// Its append is the newest that the other read.
    Read { key: Key, element: Element },
    /// It read the list without the other's append.
    Overtaken { key: Key, element: Element },
    /// One client did one after the other.
    Session,
    /// It was answered before the other began.
    RealTime,
}

impl Why {
    pub fn is_data(self) -> bool {
        matches!(self, Why::Write { .. } | Why::Read { .. })
    }
    pub fn is_overtaken(self) -> bool {
        matches!(self, Why::Overtaken { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vertex {
    Transaction(OpId),
    /// "Answered by now". Answers point to such instants, instants to later ones and to what begins after them, so that real
    /// time needs a few edges per transaction instead of one per pair.
    Instant(Micros),
}

pub(crate) struct Graph {
    pub edges: DiGraph<Vertex, Why>,
}

impl Graph {
    pub fn build(lists: &Lists<'_>) -> Graph {
        let mut graph = Graph { edges: DiGraph::new() };
        let mut vertices: BTreeMap<OpId, NodeIndex> = BTreeMap::new();
        let visible = |id: OpId| {
            let operation = lists.history.get(id);
            match operation.outcome {
                Outcome::Ok => !operation.steps().is_empty(),
                // It happened if somebody saw it.
                Outcome::Unknown => true,
                Outcome::Failed => false,
            }
        };
        let mut vertex = |graph: &mut Graph, id: OpId| {
            *vertices.entry(id).or_insert_with(|| graph.edges.add_node(Vertex::Transaction(id)))
        };
        for (key, order) in &lists.orders {
            let writers: Vec<Option<OpId>> = order
                .elements
                .iter()
                .map(|element| lists.writers.get(&(*key, *element)).copied().filter(|id| visible(*id)))
                .collect();
            for (i, pair) in writers.windows(2).enumerate() {
                if let [Some(before), Some(after)] = pair
                    && before != after
                {
                    let (a, b) = (vertex(&mut graph, *before), vertex(&mut graph, *after));
                    let why = Why::Write { key: *key, before: order.elements[i], after: order.elements[i + 1] };
                    graph.edges.add_edge(a, b, why);
                }
            }
        }
        for read in &lists.reads {
            let elements = &lists.orders[&read.key].elements;
            let writer = |i: usize| {
                let element = *elements.get(i)?;
                let id = lists.writers.get(&(read.key, element)).copied();
                id.filter(|id| *id != read.op && visible(*id)).map(|id| (id, element))
            };
            if let Some((from, element)) = read.seen.checked_sub(1).and_then(writer) {
                let (a, b) = (vertex(&mut graph, from), vertex(&mut graph, read.op));
                graph.edges.add_edge(a, b, Why::Read { key: read.key, element });
            }
            if let Some((to, element)) = writer(read.seen) {
                let (a, b) = (vertex(&mut graph, read.op), vertex(&mut graph, to));
                graph.edges.add_edge(a, b, Why::Overtaken { key: read.key, element });
            }
        }
        graph.add_sessions(lists, &vertices);
        graph.add_real_time(lists, &vertices);
        graph
    }

    fn add_sessions(&mut self, lists: &Lists<'_>, vertices: &BTreeMap<OpId, NodeIndex>) {
        let mut by_process: BTreeMap<u32, Vec<(Micros, NodeIndex)>> = BTreeMap::new();
        for (id, vertex) in vertices {
            let operation = lists.history.get(*id);
            if operation.outcome == Outcome::Ok {
                by_process.entry(operation.process).or_default().push((operation.invoked, *vertex));
            }
        }
        for mut vertices in by_process.into_values() {
            vertices.sort();
            for pair in vertices.windows(2) {
                self.edges.add_edge(pair[0].1, pair[1].1, Why::Session);
            }
        }
    }

    fn add_real_time(&mut self, lists: &Lists<'_>, vertices: &BTreeMap<OpId, NodeIndex>) {
        #[derive(PartialEq, Eq, PartialOrd, Ord)]
        enum What {
            // At the same microsecond nothing is before the other.
            Begins,
            Answered,
        }
        let mut events = Vec::new();
        for (id, vertex) in vertices {
            let operation = lists.history.get(*id);
            events.push((operation.invoked, What::Begins, *vertex));
            if operation.outcome == Outcome::Ok
                && let Some(completed) = operation.completed
            {
                events.push((completed, What::Answered, *vertex));
            }
        }
        events.sort();
        let mut latest: Option<NodeIndex> = None;
        for (time, what, vertex) in events {
            match what {
                What::Begins => {
                    if let Some(instant) = latest {
                        self.edges.add_edge(instant, vertex, Why::RealTime);
                    }
                }
                What::Answered => {
                    let instant = self.edges.add_node(Vertex::Instant(time));
                    self.edges.add_edge(vertex, instant, Why::RealTime);
                    if let Some(earlier) = latest {
                        self.edges.add_edge(earlier, instant, Why::RealTime);
                    }
                    latest = Some(instant);
                }
            }
        }
    }
}
