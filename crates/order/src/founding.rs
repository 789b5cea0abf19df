//! The first start of a cluster without choosing who begins it (`pc.bootstrap_expect`).
//!
//! Members without any state tell each other whom of their kind they hear. When all that are expected hear each other, the one with
//! the lowest id begins a history, alone; the others join it as any joiner does. Of N nodes there is only one set of N, and one
//! lowest id in it, so nobody else can come to the same conclusion. Its driver first writes down, durably, that its empty data are those of
//! the new history, and then bootstraps. It counts from the moment at which the founder's own vote is in its
//! log: if it dies before, it has no state when it comes back and all begin anew; if it dies after, it forms the group alone. The
//! others never decide anything by themselves.

use trireme_types::{LogIndex, NodeId, Seqno, Timestamp};

use crate::group::Group;
use crate::message::Founding;
use crate::{Event, LogStore, Output, Phase};

impl<S: LogStore> Group<S> {
    /// Neither data nor a log that anybody could have heard of.
    fn is_blank(&self) -> bool {
        self.own.tail().voters.voters.is_empty()
            && self.own.tail().index == LogIndex::ZERO
            && self.own.tail().seqno == Seqno::ZERO
            && self.data.position.is_none_or(|(_, seqno)| seqno == Seqno::ZERO)
    }

    /// Those that wait as this member does, as far as it hears them.
    pub(crate) fn founding(&self, now: Timestamp) -> Option<Founding> {
        let expect = self.cfg.expect;
        if expect == 0 || self.phase() != Phase::Joining || !self.is_blank() {
            return None;
        }
        let mut seen: Vec<NodeId> = self
            .peers
            .iter()
            .filter(|(_, peer)| {
                let waits = peer.told_lately(now).and_then(|p| p.founding.as_ref());
                waits.is_some_and(|f| f.expect == expect)
            })
            .map(|(node, _)| *node)
            .chain([self.me()])
            .collect();
        seen.sort_unstable();
        seen.truncate(255);
        Some(Founding { expect, seen })
    }

    /// Begins a history when it is this member's turn.
    pub(crate) fn found(&mut self, now: Timestamp) {
        let Some(mine) = self.founding(now) else { return };
        self.tell_founders(&mine);
        let agreed = mine.seen.len() == usize::from(mine.expect)
            && mine.seen.first() == Some(&self.me())
            // One that has a state, or waits for another number, is to be joined or asked about, not passed over.
            && self.peers.values().filter(|peer| !peer.member.kind.is_arbitrator()).all(|peer| {
                peer.told().is_some_and(|p| p.founding.as_ref() == Some(&mine))
            });
        if !agreed {
            return;
        }
        let history = self.draw_fork();
        self.log(
            false,
            format!(
                "all {} expected nodes are here and none has any state: this node begins history {history}",
                mine.expect
            ),
        );
        self.out.push_back(Output::Event(Event::Found { history }));
    }

    fn tell_founders(&mut self, mine: &Founding) {
        if self.told.founders == mine.seen {
            return;
        }
        self.told.founders = mine.seen.clone();
        let names: Vec<&str> =
            mine.seen.iter().filter_map(|n| self.peers.get(n)).map(|p| p.member.name.as_str()).collect();
        let others = if names.is_empty() { "nobody else yet".to_string() } else { names.join(", ") };
        let (here, expect) = (mine.seen.len(), usize::from(mine.expect));
        let what = match here.cmp(&expect) {
            std::cmp::Ordering::Less => format!("{} more to come", expect - here),
            std::cmp::Ordering::Equal => "all are here".into(),
            std::cmp::Ordering::Greater => {
                "more than expected: set pc.bootstrap_expect to the number of nodes, or stop those that are too many"
                    .into()
            }
        };
        self.log(
            here > expect,
            format!("waiting for {expect} nodes without state to begin a cluster (pc.bootstrap_expect); with this node: {others}; {what}"),
        );
        let differ: Vec<String> = self
            .peers
            .values()
            .filter_map(|p| {
                let theirs = p.told()?.founding.as_ref().filter(|f| f.expect != mine.expect)?;
                Some(format!("{} waits for {}", p.member.name, theirs.expect))
            })
            .collect();
        if !differ.is_empty() {
            self.log(
                true,
                format!("pc.bootstrap_expect differs: {}; set the same number everywhere", differ.join(", ")),
            );
        }
    }
}
