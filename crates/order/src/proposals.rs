//! Proposals of this member: numbered in a session, sent, and delivered, withdrawn or given up.

use std::collections::VecDeque;

use bytes::Bytes;
use trireme_types::{ProposalNumber, Session, SessionMark};

use crate::Message;

/// A proposal as it travels, and as it is ordered.
#[derive(Clone)]
pub(crate) struct Proposed {
    /// Its origin, the session, and the number there.
    pub mark: SessionMark,
    /// An ordered message that takes no seqno, and not a write set.
    pub app: bool,
    pub body: Bytes,
}

impl Proposed {
    pub fn submit(self) -> Message {
        let SessionMark { session, number } = self.mark;
        Message::Submit { session, number, app: self.app, body: self.body }
    }
}

/// Kept until it is delivered, given up or withdrawn.
pub(crate) struct Proposal {
    pub number: ProposalNumber,
    app: bool,
    body: Bytes,
    /// Somebody was given it, be it the own log: it may be ordered.
    sent: bool,
}

/// Of one session, with dense numbers in order: first those that were sent, then those that were not.
pub(crate) struct Proposals {
    /// The present one. Changes when everything is given up.
    session: Session,
    /// The number of the next proposal. Falls back over those that are withdrawn.
    next_number: ProposalNumber,
    /// Not delivered, given up or withdrawn.
    pending: VecDeque<Proposal>,
    /// Of the bodies in `pending`.
    bytes: usize,
}

impl Proposals {
    pub fn new(session: Session) -> Proposals {
        Proposals { session, next_number: ProposalNumber(1), pending: VecDeque::new(), bytes: 0 }
    }

    pub fn session(&self) -> Session {
        self.session
    }

    /// Of all bodies that are kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of the first one that is kept, or else of the next one.
    pub fn first_number(&self) -> ProposalNumber {
        self.pending.front().map_or(self.next_number, |p| p.number)
    }

    /// Gives its number.
    pub fn add(&mut self, app: bool, body: Bytes) -> ProposalNumber {
        let number = self.next_number;
        self.next_number = number.next();
        self.bytes += body.len();
        self.pending.push_back(Proposal { number, app, body, sent: false });
        number
    }

    fn sent_count(&self) -> usize {
        self.pending.partition_point(|p| p.sent)
    }

    pub fn has_unsent(&self) -> bool {
        self.pending.back().is_some_and(|p| !p.sent)
    }

    /// The next one to be sent, which counts as sent from now on.
    pub fn send_next(&mut self) -> Option<Proposed> {
        let next = self.sent_count();
        self.pending.get_mut(next)?.sent = true;
        self.pending.get(next).map(|p| self.proposed(p))
    }

    /// All that was sent, in order.
    pub fn sent(&self) -> Vec<Proposed> {
        self.pending.iter().take_while(|p| p.sent).map(|p| self.proposed(p)).collect()
    }

    fn proposed(&self, p: &Proposal) -> Proposed {
        let mark = SessionMark { session: self.session, number: p.number };
        Proposed { mark, app: p.app, body: p.body.clone() }
    }

    /// The body of one that was sent.
    pub fn body_of(&self, number: ProposalNumber) -> Option<&Bytes> {
        let at = number.0.checked_sub(self.pending.front()?.number.0)?;
        self.pending.get(at as usize).filter(|p| p.sent).map(|p| &p.body)
    }

    /// This number of the session was delivered: those before it will not be any more (rule 23).
    pub fn delivered(&mut self, number: ProposalNumber) {
        while self.pending.front().is_some_and(|p| p.number <= number) {
            self.bytes -= self.pending.pop_front().map_or(0, |p| p.body.len());
        }
    }

    /// Takes back what was not sent, or with `also_sent` everything. Gives the numbers, in order; they are given again: nobody else has
    /// seen them in this session (rule 23).
    pub fn withdraw(&mut self, also_sent: bool) -> Vec<ProposalNumber> {
        let kept = if also_sent { 0 } else { self.sent_count() };
        let withdrawn = self.pending.split_off(kept);
        if let Some(first) = withdrawn.front() {
            debug_assert_eq!(first.number.0 + withdrawn.len() as u64, self.next_number.0, "numbers are dense");
            self.next_number = first.number;
        }
        self.bytes -= withdrawn.iter().map(|p| p.body.len()).sum::<usize>();
        withdrawn.iter().map(|p| p.number).collect()
    }

    /// Everything is given up, and a new session begins (rules 22, 23), if any number of this one is out. One that was delivered is out as well: the
    /// application may give it up before it hears of that.
    pub fn give_up(&mut self) {
        if self.next_number > ProposalNumber(1) {
            *self = Proposals::new(self.session.following());
        }
    }

    pub fn check(&self) {
        assert!(self.pending.iter().skip_while(|p| p.sent).all(|p| !p.sent), "sent behind an unsent one");
        let bytes: usize = self.pending.iter().map(|p| p.body.len()).sum();
        assert_eq!(bytes, self.bytes, "the count of pending bytes is off");
        assert!(self.pending.back().is_none_or(|p| p.number < self.next_number), "a number would be given twice");
    }
}

#[cfg(test)]
mod tests {
    use trireme_types::{Incarnation, NodeId, Uuid};

    use super::*;

    fn proposals(bodies: &[&'static str]) -> Proposals {
        let mut proposals = Proposals::new(Session::first(NodeId(Uuid([1; 16])), Incarnation(1)));
        for body in bodies {
            proposals.add(false, Bytes::from_static(body.as_bytes()));
        }
        proposals
    }

    #[test]
    fn numbers_of_the_withdrawn_are_given_again_and_those_of_the_sent_are_not() {
        let mut proposals = proposals(&["a", "bb", "ccc"]);
        assert_eq!(proposals.send_next().map(|p| p.mark.number), Some(ProposalNumber(1)));
        assert_eq!(proposals.withdraw(false), [2, 3].map(ProposalNumber));
        assert_eq!((proposals.bytes(), proposals.has_unsent()), (1, false));
        assert_eq!(proposals.add(true, Bytes::from_static(b"d")), ProposalNumber(2));
        proposals.check();
    }

    #[test]
    fn only_the_body_of_one_that_was_sent_is_known() {
        let mut proposals = proposals(&["a", "b", "c"]);
        proposals.send_next();
        proposals.send_next();
        proposals.delivered(ProposalNumber(1));
        let known = |number| proposals.body_of(ProposalNumber(number)).map(|body| &body[..]);
        assert_eq!([1, 2, 3, 4].map(known), [None, Some(&b"b"[..]), None, None]);
    }

    #[test]
    fn what_is_given_up_is_of_a_session_that_is_over() {
        let mut proposals = proposals(&["a"]);
        let session = proposals.session();
        proposals.send_next();
        proposals.give_up();
        assert!(proposals.bytes() == 0 && proposals.session() != session);
        assert_eq!(proposals.first_number(), ProposalNumber(1));
    }

    #[test]
    fn what_was_delivered_may_be_given_up_and_what_was_withdrawn_may_not() {
        let mut proposals = proposals(&["a"]);
        let session = proposals.session();
        proposals.withdraw(false);
        proposals.give_up();
        assert_eq!(proposals.session(), session, "no number of it is out");
        let number = proposals.add(false, Bytes::from_static(b"b"));
        proposals.send_next();
        proposals.delivered(number);
        proposals.give_up();
        assert_ne!(proposals.session(), session);
    }
}
