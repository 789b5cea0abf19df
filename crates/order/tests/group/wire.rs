//! Numbers at the end of their range that come by a link: they are calculated with, and the group goes on.

use std::time::Duration;

use trireme_order::{Content, Message};
use trireme_types::{LogIndex, Term};

use crate::net::*;

/// The sequencer of two is told `said` by the other one. Both order afterwards.
fn is_survived(said: impl FnOnce(Term) -> Message) {
    let mut net = Net::cluster(2);
    let seq = net.sequencer();
    let (now, term) = (net.now, net.nodes[&seq].group.status().term);
    net.nodes.get_mut(&seq).unwrap().group.handle_message(now, node(3 - seq), said(term));
    net.run(Duration::from_secs(3));
    for n in 1..=2 {
        net.propose(n, &format!("of {n}"));
        net.settle();
    }
    for n in 1..=2 {
        assert_eq!(net.bodies(n), ["of 1", "of 2"], "node {n}: {:?}", net.nodes[&n].group.status());
    }
}

#[test]
fn a_log_that_is_said_to_end_at_the_highest_index_stops_nobody() {
    is_survived(|term| Content::Reject { prev_index: LogIndex(1), last: LogIndex(u64::MAX) }.in_term(HISTORY, term));
}

#[test]
fn the_highest_term_of_all_stops_nobody() {
    is_survived(|_| Content::HeartbeatAck { round: 0 }.in_term(HISTORY, Term(u64::MAX)));
}
