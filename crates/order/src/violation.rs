//! A peer that says what no build of Trireme says is named and left (rule 38).
//!
//! Only the message itself is looked at, with the name of the link on which it came, never what others tell, nor what this member knows: a
//! liar that poses as the sequencer makes honest members say wrong things about the order, but none of these. So nobody can be made to look
//! like a liar by another one, but by whoever takes its name on a link of his own: certificates prevent that, a shared secret does not.
//!
//! A peer is left only while the others are a majority without it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use trireme_types::{LogIndex, NodeId, Term, Timestamp};

use crate::group::{CHECK_EVERY, Group};
use crate::mutant::Mutant;
use crate::{Append, Content, Event, Heartbeat, LogStore, Message, Output, Phase};

/// A kind of message that no honest member ever sends, in answer to anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    /// It asks to be let in, or proposes, in the name of another node.
    ForAnother,
    /// The log that it speaks of ends in a later term than the one in which it speaks; or in the very one for which it asks for votes.
    LogBeyondTerm,
    /// Entries that are not numbered one after the other, or whose terms fall.
    EntriesOutOfLine,
    /// Committed is more than the sequencer's log holds.
    CommitBeyondLog,
}

impl Violation {
    pub const ALL: [Violation; 4] =
        [Violation::ForAnother, Violation::LogBeyondTerm, Violation::EntriesOutOfLine, Violation::CommitBeyondLog];
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Violation::ForAnother => "speaks in the name of another node",
            Violation::LogBeyondTerm => "names the end of a log in a term that it has not reached",
            Violation::EntriesOutOfLine => "sends entries that do not follow each other",
            Violation::CommitBeyondLog => "calls more committed than its log holds",
        })
    }
}

/// The rule that this message breaks by itself, if `from` has sent it. The one list of such things; docs/protocol.md, section 2, has it in words.
pub fn violation(from: NodeId, message: &Message) -> Option<Violation> {
    let (wrong, what) = match message {
        Message::Submit { session, .. } => (session.node != from, Violation::ForAnother),
        Message::Join(request) => (request.member.node != from, Violation::ForAnother),
        Message::Snapshot { term, base, .. } => (base.term > *term, Violation::LogBeyondTerm),
        Message::InTerm(envelope) => return violation_in_term(envelope.term, &envelope.content),
        // A node whose disk refused in the middle of taking another log may say so of itself in its presence: no violation.
        Message::Presence(_)
        | Message::Leave { .. }
        | Message::Force
        | Message::Evicted
        | Message::SetWeight { .. }
        | Message::SetDurability { .. }
        | Message::Signal { .. }
        | Message::LevelLimit { .. }
        | Message::VotersHeard { .. }
        | Message::Unknown { .. } => return None,
    };
    wrong.then_some(what)
}

fn violation_in_term(term: Term, content: &Content) -> Option<Violation> {
    let (wrong, what) = match content {
        Content::PreVote { last } | Content::Vote { last, .. } => (last.term >= term, Violation::LogBeyondTerm),
        Content::Append(append) => return violation_of_append(term, append),
        Content::Heartbeat(Heartbeat { commit, last, .. }) => (commit > last, Violation::CommitBeyondLog),
        Content::Reject { .. }
        | Content::NeedBodies { .. }
        | Content::Ack { .. }
        | Content::HeartbeatAck { .. }
        | Content::PreVoteReply { .. }
        | Content::VoteReply { .. }
        | Content::TimeoutNow
        | Content::ReadRequest { .. }
        | Content::ReadReply { .. }
        | Content::Recall { .. }
        | Content::Entrust
        | Content::BeginFromData { .. } => return None,
    };
    wrong.then_some(what)
}

fn violation_of_append(term: Term, append: &Append) -> Option<Violation> {
    if append.prev_term > term {
        return Some(Violation::LogBeyondTerm);
    }
    let mut before: (LogIndex, Term) = (append.prev_index, append.prev_term);
    for (header, _) in &append.entries {
        let follows =
            header.index.0.checked_sub(1) == Some(before.0.0) && header.term >= before.1 && header.term <= term;
        if !follows {
            return Some(Violation::EntriesOutOfLine);
        }
        before = (header.index, header.term);
    }
    None
}

/// The first time.
const LEFT_FOR: Duration = Duration::from_secs(60);
/// Each time it is twice as long, up to 64 min.
const DOUBLINGS_MAX: u32 = 6;
/// After so long without a violation all is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(2 * 3600);
/// Nodes of which it is remembered. One that has many names gives many, and has to get a link for each.
const REMEMBERED_MAX: usize = 1024;
/// Lines about peers that are no members are at least so far apart.
const STRANGER_LINE_EVERY: Duration = Duration::from_secs(10);

/// A peer that violated the protocol. Changed with each further time, and by `readmit`.
struct Record {
    /// How often.
    times: u32,
    /// The last time.
    latest: Timestamp,
    /// Its link is refused until then. `None`: it is let in again.
    until: Option<Timestamp>,
    /// A line said that it was left.
    told: bool,
}

/// Peers that this member has caught.
#[derive(Default)]
pub(crate) struct Violators {
    /// Forgotten two hours after the last time, or when there are too many.
    records: BTreeMap<NodeId, Record>,
    /// When a line last named one that is no member.
    told_of_stranger: Option<Timestamp>,
}

impl Violators {
    fn is_left(&self, node: NodeId) -> bool {
        self.records.get(&node).is_some_and(|r| r.until.is_some())
    }

    fn left(&self) -> impl Iterator<Item = NodeId> {
        self.records.iter().filter(|(_, r)| r.until.is_some()).map(|(node, _)| *node)
    }

    /// One more violation. Says for how long it is left.
    fn note(&mut self, now: Timestamp, node: NodeId) -> Duration {
        let record = self.records.entry(node).or_insert(Record { times: 0, latest: now, until: None, told: false });
        let time = LEFT_FOR * (1 << record.times.min(DOUBLINGS_MAX));
        record.times = record.times.saturating_add(1);
        record.latest = now;
        record.until = Some(now.after(time));
        time
    }
}

impl<S: LogStore> Group<S> {
    /// Peers whose links are closed and refused.
    pub fn left_peers(&self) -> Vec<NodeId> {
        self.violators.left().collect()
    }

    /// Is this message proof that its sender violates the protocol? Then it is not heard, and neither is the sender from here on, if the
    /// others can do without it.
    pub(crate) fn is_violation(&mut self, now: Timestamp, from: NodeId, message: &Message) -> bool {
        if from == self.me() || self.is(Mutant::ViolatorKept) {
            return false;
        }
        let Some(what) = violation(from, message) else { return false };
        if self.can_do_without(from) {
            self.leave_peer(now, from, what);
        } else {
            let text = format!(
                "violates the protocol: it {what}. That is ignored. Its link stays, because the other voters that are linked are no \
                 majority without it. Find out what runs on that node; if it is not yours, change the secret"
            );
            self.complain(now, from, &text);
        }
        true
    }

    /// Are those that are linked a majority without this peer, or does it not vote?
    fn can_do_without(&self, node: NodeId) -> bool {
        !self.is_asked(node) || self.quorum(|n| n != node && (n == self.me() || self.is_linked(n)))
    }

    fn leave_peer(&mut self, now: Timestamp, node: NodeId, what: Violation) {
        let named = self.is_named(node);
        if self.violators.records.len() >= REMEMBERED_MAX && !self.violators.records.contains_key(&node) {
            self.forget_a_violator();
        }
        let time = self.violators.note(now, node).as_secs();
        let quiet = self.violators.told_of_stranger.is_some_and(|at| now.since(at) < STRANGER_LINE_EVERY);
        let tells = named || !quiet;
        if let Some(record) = self.violators.records.get_mut(&node) {
            record.told = tells;
        }
        if tells {
            if !named {
                self.violators.told_of_stranger = Some(now);
            }
            let name = self.names_of(&[node]);
            self.log(
                true,
                format!(
                    "{name}, node {node}, violates the protocol: it {what}. No build of Trireme does that. Its link is closed and refused \
                     for {time} s; the view drops it as one that died. Find out what runs on that node; if it is not yours, change the \
                     secret"
                ),
            );
        }
        self.on_unlinked(now, node);
        self.out.push_back(Output::Event(Event::Refuse { node, refused: true }));
    }

    /// The one of whom it was longest ago, members last.
    fn forget_a_violator(&mut self) {
        let records = self.violators.records.iter();
        let oldest = records.min_by_key(|(node, r)| (self.is_named(**node), r.latest)).map(|(node, _)| *node);
        let Some(node) = oldest else { return };
        self.violators.records.remove(&node);
        self.out.push_back(Output::Event(Event::Refuse { node, refused: false }));
    }

    /// A link came up that was under way when its peer was left.
    pub(crate) fn is_refused(&mut self, node: NodeId) -> bool {
        let left = self.violators.is_left(node);
        if left {
            self.out.push_back(Output::Event(Event::Refuse { node, refused: true }));
        }
        left
    }

    /// A peer that has been left for long enough may come back, and so may those without whom the others are no majority any more, or no primary
    /// component.
    pub(crate) fn readmit(&mut self, now: Timestamp) {
        // A link may stand although nobody answers at its other end.
        let lost = self.phase() != Phase::Primary || !self.quorum(|n| n == self.me() || self.is_linked(n));
        let asked: Vec<NodeId> = self.violators.left().filter(|n| self.is_asked(*n)).collect();
        let mut again = Vec::new();
        self.violators.records.retain(|node, record| {
            let over = record.until.is_some_and(|until| now >= until);
            // A link that was lost with the majority, an election ago, may be on its way back.
            let needed = lost && asked.contains(node) && now.since(record.latest) > CHECK_EVERY * 20;
            if record.until.is_some() && (over || needed) {
                record.until = None;
                again.push((*node, over, record.told));
            }
            record.until.is_some() || now.since(record.latest) < FORGOTTEN_AFTER
        });
        for (node, over, told) in again {
            // Strangers may have been left by the hundred.
            if told {
                let why = if over { "its time is over" } else { "the others are no majority without it" };
                let name = self.names_of(&[node]);
                self.log(false, format!("{name}, which violated the protocol, may be linked again: {why}"));
            }
            self.out.push_back(Output::Event(Event::Refuse { node, refused: false }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trireme_types::Uuid;

    fn node(n: u32) -> NodeId {
        NodeId(Uuid(u128::from(n).to_be_bytes()))
    }

    #[test]
    fn the_time_doubles_and_has_an_end() {
        let mut violators = Violators::default();
        let times: Vec<u64> = (0..9).map(|_| violators.note(Timestamp(1), node(1)).as_secs()).collect();
        assert_eq!(times, [60, 120, 240, 480, 960, 1920, 3840, 3840, 3840]);
        assert!(violators.is_left(node(1)) && !violators.is_left(node(2)));
    }
}
