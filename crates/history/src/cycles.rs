//! Cycles of dependencies, the smallest of each kind.
//!
//! Two searches. Writes and reads of them (and time) must not form a cycle at all: strongly connected components show
//! whether they do. Then each read that was overtaken by a write: is there a way back from that write to the reader? By
//! writes, reads and time alone it is read skew or a lost update; only over further overtaken reads, write skew.

use crate::finding::{Class, Findings, Reader};
use crate::graph::{Graph, Vertex, Why};
use crate::lists::Lists;
use crate::operation::{History, Micros, OpId};
use petgraph::algo::{astar, kosaraju_scc};
use petgraph::graph::{DiGraph, EdgeIndex, EdgeReference, NodeIndex};
use petgraph::visit::{EdgeFiltered, EdgeRef, NodeFiltered};
use std::collections::{BTreeMap, BTreeSet};

/// Ways searched per history, for time: a history in which this many are needed is broken beyond doubt.
const SEARCHES_MAX: usize = 100_000;
/// Starting points in a strongly connected component when its smallest cycle is wanted.
const STARTS_MAX: usize = 50;

/// `from`, `to`, and why one comes before the other.
type Link = (NodeIndex, NodeIndex, Why);

pub(crate) fn check(lists: &Lists<'_>, findings: &mut Findings) {
    let graph = Graph::build(lists);
    let mut search = Search { history: lists.history, lists, graph: &graph.edges, findings, seen: BTreeSet::new() };
    search.forbidden(Class::WriteCycle, |why| matches!(why, Why::Write { .. }));
    search.forbidden(Class::CircularFlow, Why::is_data);
    search.forbidden(Class::TimeTravel, |why| !why.is_overtaken());
    search.overtaken();
}

struct Search<'a, 'l> {
    history: &'a History,
    lists: &'a Lists<'l>,
    graph: &'a DiGraph<Vertex, Why>,
    findings: &'a mut Findings,
    /// The cycles that were reported, by their transactions.
    seen: BTreeSet<BTreeSet<OpId>>,
}

impl Search<'_, '_> {
    /// Cycles of edges that can never form one; the smallest per component.
    fn forbidden(&mut self, class: Class, allowed: impl Fn(Why) -> bool) {
        let graph = self.graph;
        let filtered = EdgeFiltered::from_fn(graph, |edge| allowed(*edge.weight()));
        for component in kosaraju_scc(&filtered).into_iter().filter(|component| component.len() > 1) {
            let members: BTreeSet<NodeIndex> = component.iter().copied().collect();
            let mut smallest: Option<Vec<Link>> = None;
            let transactions = component.iter().filter(|vertex| matches!(graph[**vertex], Vertex::Transaction(_)));
            for start in transactions.take(STARTS_MAX) {
                for edge in graph.edges(*start).filter(|e| allowed(*e.weight()) && members.contains(&e.target())) {
                    let back = shortest(graph, edge.target(), *start, &allowed, |v| members.contains(&v));
                    let Some(back) = back else { continue };
                    let cycle = [&[(*start, edge.target(), *edge.weight())], &back[..]].concat();
                    if smallest.as_ref().is_none_or(|known| cycle.len() < known.len()) {
                        smallest = Some(cycle);
                    }
                }
            }
            if let Some(cycle) = smallest {
                self.report(class, Reader::Writes, &cycle);
            }
        }
    }

    fn overtaken(&mut self) {
        let graph = self.graph;
        let causal = self.findings.rules().causal;
        // Without causal reads a client still follows its own steps, on its own node.
        let by_time = |why: Why| if causal { why == Why::RealTime } else { why == Why::Session };
        let forward = |why: Why| why.is_data() || by_time(why);
        let items = |why: Why| why.is_data() || why.is_overtaken();

        let component = components(graph, items);
        let mut searches = 0;
        let edges: Vec<EdgeIndex> = graph.edge_indices().filter(|edge| graph[*edge].is_overtaken()).collect();
        for edge in edges {
            let Some((reader, writer)) = graph.edge_endpoints(edge) else { continue };
            searches += 1;
            if searches > SEARCHES_MAX {
                self.findings.incomplete = true;
                return;
            }
            let first = (reader, writer, graph[edge]);
            let Vertex::Transaction(id) = graph[reader] else { continue };
            let kind = if self.history.get(id).writes() { Reader::Writes } else { Reader::ReadOnly };
            if let Some(back) = self.way(writer, reader, forward) {
                let class = match (&back[..], first.2) {
                    // Reported as stale reads and session order.
                    (way, _) if way.iter().all(|(_, _, why)| by_time(*why)) => continue,
                    ([(_, _, Why::Write { key, .. })], Why::Overtaken { key: read, .. }) if *key == read => {
                        Class::LostUpdate
                    }
                    _ => Class::ReadSkew,
                };
                self.report(class, kind, &[&[first], &back[..]].concat());
            } else if let Some(common) = component.get(&reader).filter(|c| component.get(&writer) == Some(*c))
                && let Some(back) =
                    shortest(graph, writer, reader, items, |vertex| component.get(&vertex) == Some(common))
            {
                self.report(Class::WriteSkew, kind, &[&[first], &back[..]].concat());
            }
        }
    }

    /// The shortest way forward. Only what began before `to` was answered is looked at: a transaction on the way
    /// committed before `to` did.
    fn way(&self, from: NodeIndex, to: NodeIndex, allowed: impl Fn(Why) -> bool) -> Option<Vec<Link>> {
        let end = self.time(to).1;
        let near = |vertex| end.is_none_or(|end| self.time(vertex).0 <= end);
        shortest(self.graph, from, to, allowed, near)
    }

    fn time(&self, vertex: NodeIndex) -> (Micros, Option<Micros>) {
        match self.graph[vertex] {
            Vertex::Transaction(id) => (self.history.get(id).invoked, self.history.get(id).completed),
            Vertex::Instant(time) => (time, Some(time)),
        }
    }

    fn report(&mut self, class: Class, reader: Reader, cycle: &[Link]) {
        let id = |vertex: NodeIndex| match self.graph[vertex] {
            Vertex::Transaction(id) => Some(id),
            Vertex::Instant(_) => None,
        };
        let operations: Vec<OpId> = cycle.iter().filter_map(|(from, _, _)| id(*from)).collect();
        if !self.seen.insert(operations.iter().copied().collect()) {
            return;
        }
        let mut lines: Vec<String> = Vec::new();
        for (from, to, why) in cycle {
            // The middle of a passage of time says nothing.
            let Some(from) = id(*from) else { continue };
            let name = |id: OpId| self.lists.describe(id);
            lines.push(match why {
                Why::Write { key, before, after } => {
                    let to = id(*to).map(name).unwrap_or_default();
                    format!("{} appended {} to list {} before {to} appended {}", name(from), before.0, key.0, after.0)
                }
                Why::Read { key, element } => {
                    let to = id(*to).map(name).unwrap_or_default();
                    format!("{}'s append of {} to list {} was read by {to}", name(from), element.0, key.0)
                }
                Why::Overtaken { key, element } => {
                    let to = id(*to).map(name).unwrap_or_default();
                    format!("{} read list {} without {} of {to}", name(from), key.0, element.0)
                }
                Why::Session => format!("{} precedes the next in its session", name(from)),
                Why::RealTime => format!("{} was answered before the next began", name(from)),
            });
        }
        self.findings.add(class, reader, operations, lines.join("\n"));
    }
}

/// The shortest way over allowed edges and near vertices, counted in transactions.
fn shortest(
    graph: &DiGraph<Vertex, Why>,
    from: NodeIndex,
    to: NodeIndex,
    allowed: impl Fn(Why) -> bool,
    near: impl Fn(NodeIndex) -> bool,
) -> Option<Vec<Link>> {
    let edges = EdgeFiltered::from_fn(graph, |edge| allowed(*edge.weight()));
    let nearby = NodeFiltered::from_fn(&edges, near);
    let cost = |edge: EdgeReference<'_, Why>| match graph[edge.target()] {
        Vertex::Transaction(_) => 1u32,
        Vertex::Instant(_) => 0,
    };
    let (_, way) = astar(&nearby, from, |v| v == to, cost, |_| 0)?;
    Some(links(graph, &way, &allowed))
}

/// The edges along a way, the most telling one between each two.
fn links(graph: &DiGraph<Vertex, Why>, way: &[NodeIndex], allowed: &impl Fn(Why) -> bool) -> Vec<Link> {
    way.windows(2)
        .filter_map(|pair| {
            let why = graph.edges_connecting(pair[0], pair[1]).map(|edge| *edge.weight());
            why.filter(|why| allowed(*why)).min().map(|why| (pair[0], pair[1], why))
        })
        .collect()
}

/// The strongly connected component of each vertex that is in one with others.
fn components(graph: &DiGraph<Vertex, Why>, allowed: impl Fn(Why) -> bool) -> BTreeMap<NodeIndex, usize> {
    let filtered = EdgeFiltered::from_fn(graph, |edge| allowed(*edge.weight()));
    let large = kosaraju_scc(&filtered).into_iter().filter(|component| component.len() > 1);
    large.enumerate().flat_map(|(i, vertices)| vertices.into_iter().map(move |vertex| (vertex, i))).collect()
}
