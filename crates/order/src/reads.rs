//! Causal reads (rule 25): the sequencer's last assigned position, confirmed by one majority round after the request.
//! All readers of one member share a request, all requests of one drain share a round.

use trireme_types::{NodeId, Seqno, Timestamp};

use crate::group::Group;
use crate::mutant::Mutant;
use crate::{Content, Event, LogStore, Output, Phase, ReadId};

/// At the member that reads.
#[derive(Default)]
pub(crate) struct Reads {
    /// For the next batch.
    waiting: Vec<ReadId>,
    /// Under way: asked of the sequencer as `batch`, and not answered.
    current: Vec<ReadId>,
    /// The number of the last request. Rises with each, a repeated one included, so that late answers are known.
    batch: u64,
}

impl Reads {
    pub(crate) fn requests(&self) -> u64 {
        self.batch
    }
}

/// At the sequencer.
pub(crate) struct PendingRead {
    from: NodeId,
    /// The asking member's number.
    batch: u64,
    /// The answer: the last seqno that was assigned when the request came.
    seqno: Seqno,
    /// Answered by a majority of this round; `None`: the round is not begun.
    round: Option<u64>,
}

impl<S: LogStore> Group<S> {
    pub(crate) fn begin_read(&mut self, now: Timestamp, read: ReadId) {
        if self.phase() != Phase::Primary {
            self.out.push_back(Output::Event(Event::ReadFailed { read }));
            return;
        }
        self.reads.waiting.push(read);
        self.start_batch(now);
    }

    fn start_batch(&mut self, now: Timestamp) {
        if !self.reads.current.is_empty() || self.reads.waiting.is_empty() || self.sequencer().is_none() {
            return;
        }
        self.reads.current = std::mem::take(&mut self.reads.waiting);
        self.reads.batch += 1;
        let batch = self.reads.batch;
        self.to_sequencer(now, Content::ReadRequest { batch }.in_term(self.era.branch(), self.own.term()));
    }

    /// A new sequencer, or a new link to it: ask again.
    pub(crate) fn resend_reads(&mut self, now: Timestamp) {
        let mut again = std::mem::take(&mut self.reads.current);
        again.append(&mut self.reads.waiting);
        self.reads.waiting = again;
        self.start_batch(now);
    }

    pub(crate) fn fail_reads(&mut self) {
        let all = std::mem::take(&mut self.reads.current).into_iter().chain(std::mem::take(&mut self.reads.waiting));
        for read in all.collect::<Vec<_>>() {
            self.out.push_back(Output::Event(Event::ReadFailed { read }));
        }
    }

    pub(crate) fn on_read_request(&mut self, from: NodeId, batch: u64) {
        let seqno = if self.is(Mutant::ReadCommitted) { self.done.seqno } else { self.own.tail().seqno };
        if let Some(s) = self.role.leading_mut() {
            s.reads.retain(|r| r.from != from || r.batch > batch);
            s.reads.push(PendingRead { from, batch, seqno, round: None });
        }
    }

    /// A new link to it: it asks again. In a new life it counts its batches anew, and would take the answer to an old one for that to its own.
    pub(crate) fn forget_reads_of(&mut self, member: NodeId) {
        if let Some(s) = self.role.leading_mut() {
            s.reads.retain(|r| r.from != member);
        }
    }

    /// At the end of a drain: one heartbeat round for all requests that have none.
    pub(crate) fn begin_read_round(&mut self, now: Timestamp) {
        let Some(s) = self.role.leading_mut() else { return };
        if !s.established || s.reads.iter().all(|r| r.round.is_some()) {
            return;
        }
        let round = s.round + 1;
        for r in s.reads.iter_mut().filter(|r| r.round.is_none()) {
            r.round = Some(round);
        }
        let good = now.since(self.good_at) < self.cfg.timeouts.election;
        self.send_heartbeats(now, good);
        self.answer_reads(now);
    }

    pub(crate) fn answer_reads(&mut self, now: Timestamp) {
        let me = self.me();
        let Some(s) = self.role.leading() else { return };
        if s.reads.is_empty() {
            return;
        }
        let unasked = self.is(Mutant::ReadWithoutRound);
        let answered: Vec<(NodeId, u64, Seqno)> = s
            .reads
            .iter()
            .filter(|r| {
                r.round.is_some_and(|round| {
                    unasked || self.quorum(|n| n == me || s.progress.get(&n).is_some_and(|p| p.round >= round))
                })
            })
            .map(|r| (r.from, r.batch, r.seqno))
            .collect();
        if let Some(s) = self.role.leading_mut() {
            s.reads.retain(|r| !answered.iter().any(|(from, batch, _)| *from == r.from && *batch == r.batch));
        }
        for (from, batch, seqno) in answered {
            if from == me {
                self.on_read_reply(now, batch, seqno);
            } else {
                self.send_in_term(from, Content::ReadReply { batch, seqno });
            }
        }
    }

    pub(crate) fn on_read_reply(&mut self, now: Timestamp, batch: u64, seqno: Seqno) {
        if batch != self.reads.batch {
            return;
        }
        for read in std::mem::take(&mut self.reads.current) {
            self.out.push_back(Output::Event(Event::ReadAt { read, seqno }));
        }
        self.start_batch(now);
    }
}
