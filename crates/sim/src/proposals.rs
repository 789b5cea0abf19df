//! Own proposals of a simulated process: the clients and threads behind them, as a node's group thread has them (`settle_proposals` in
//! `crates/node/src/core/inputs.rs`). The same [`Proposals`] decide their fates; here is who hears of them.
//!
//! A client's write set that is ordered is its client's work, and no applier's. It takes its place in the server's queue when the client is
//! answered: at once, or, if it was ordered before its server is fed again after an outage, together with what lies before it.

use bytes::Bytes;
use trireme_order::Phase;
use trireme_replicator::message::AppMessage;
use trireme_replicator::proposals::{Fate, Owed, ProposalId, Proposals};
use trireme_types::{Base, LogIndex, Seqno, Uuid};

use crate::check::Reach;
use crate::cluster::{Asked, Cluster, Process};
use crate::database::{By, Change};
use crate::judge::Part;
use crate::options::Sabotage;
use crate::situations::Situation;

/// Clients, threads, and what a client is told of an ordered write set. The threads of a server do one thing at a time (`pauses.rs`).
pub(crate) type OwnProposals = Proposals<Asked, (), Answer>;

/// A client's write set was ordered.
pub(crate) struct Answer {
    pub index: LogIndex,
    /// For the client's thread to execute.
    pub change: Change,
    pub verdict: bool,
}

impl Process {
    /// The server says this without waiting for it. Nobody hears it in an outage.
    pub(crate) fn say(&mut self, message: AppMessage) {
        if self.outage.is_none() {
            self.proposals.ask(message, None);
        }
    }

    /// Does a client wait for the outcome of a write set of this operation?
    pub fn has_asked_for(&self, op: u64) -> bool {
        self.proposals.clients().any(|asked| asked.op == op)
    }
}

impl Cluster {
    /// Says something in the order, for the replicator; `false` when that does not take it.
    pub fn propose_app(&mut self, slot: usize, message: AppMessage) -> bool {
        let id = self.propose_message(slot, &message);
        if let (Some(id), Some(p)) = (id, &mut self.slots[slot].process) {
            p.proposals.replicator_said(id, message);
        }
        id.is_some()
    }

    fn propose_message(&mut self, slot: usize, message: &AppMessage) -> Option<ProposalId> {
        let body = Bytes::from(message.encode());
        self.with_group(slot, |g, now| g.propose_app(now, body))?.ok().map(ProposalId::from)
    }

    /// A thread of the server says this, and waits until it is ordered.
    pub(crate) fn say_for_thread(&mut self, slot: usize, message: AppMessage) {
        if let Some(p) = &mut self.slots[slot].process {
            p.proposals.ask(message, Some(()));
        }
        self.propose_owed(slot);
        self.settle_proposals(slot);
    }

    /// The rollback of a streaming transaction. `false`: nobody hears it.
    pub(crate) fn send_rollback(&mut self, slot: usize, body: Bytes) -> bool {
        let Some(answer) = self.with_group(slot, |g, now| g.propose(now, body.clone())) else { return false };
        if let Some(p) = &mut self.slots[slot].process {
            p.proposals.rollback_sent(answer.ok().map(ProposalId::from), body);
        }
        true
    }

    /// As a member again: what has to be ordered and was not.
    pub(crate) fn pay_owed(&mut self, slot: usize) {
        let Some(p) = &mut self.slots[slot].process else { return };
        if !p.replicator.is_member() {
            return;
        }
        if let Some(counted) = p.replicator.counted_desyncs() {
            p.proposals.desync_again(counted, p.desyncs.count());
        }
        self.propose_owed(slot);
    }

    fn propose_owed(&mut self, slot: usize) {
        let Some(p) = &mut self.slots[slot].process else { return };
        let member = p.group.status().phase == Phase::Primary;
        for owed in p.proposals.take_owed(member) {
            match owed {
                Owed::Message(message, thread) => {
                    let id = self.propose_message(slot, &message);
                    if let Some(p) = &mut self.slots[slot].process {
                        p.proposals.said(id, message, thread);
                    }
                }
                Owed::Rollback(body) => drop(self.send_rollback(slot, body)),
            }
        }
    }

    /// Without a primary component clients are told at once that operations which were given to nobody did not happen.
    pub(crate) fn withdraw(&mut self, slot: usize) {
        let Some(p) = &mut self.slots[slot].process else { return };
        let unsent = p.group.withdraw_unsent();
        p.proposals.withdrawn(unsent.into_iter().map(ProposalId::from));
        self.settle_proposals(slot);
    }

    /// The log begins anew at `base`. A server that goes on in its place has all that was skipped, so its clients wait on, and hold what they
    /// have locked: their session goes on, and with it what it promises (rule 23).
    pub(crate) fn reset_proposals(&mut self, slot: usize, base: &Base) {
        let s = &mut self.slots[slot];
        let Some(p) = &mut s.process else { return };
        let waiting = p.proposals.clients().count();
        p.proposals.reset(base.newest_of(s.node));
        if p.replicator.serves() && p.proposals.clients().count() < waiting {
            let at = base.index;
            return self
                .fail(format!("n{slot} lives on, and never hears of what it asked for: it was ordered before {at}"));
        }
        self.settle_proposals(slot);
    }

    /// Tells what has become of own proposals.
    pub(crate) fn settle_proposals(&mut self, slot: usize) {
        let mut frees_rows = false;
        while let Some(fate) = self.slots[slot].process.as_mut().and_then(|p| p.proposals.poll()) {
            match fate {
                Fate::Answered(asked, answer) => self.answered(slot, asked, answer),
                Fate::Withdrawn(asked) => {
                    frees_rows = true;
                    if self.forget(slot, asked) {
                        self.arose(Situation::Withdrawn);
                        self.clients.withdrawn(asked.op);
                    }
                }
                Fate::NeverOrdered(asked) => {
                    frees_rows = true;
                    if self.forget(slot, asked) {
                        self.arose(Situation::NeverOrdered);
                        // Nobody can say what another branch has.
                        if !self.options.branches() {
                            self.clients.withdrawn(asked.op);
                        }
                    }
                }
                Fate::Open(asked) => {
                    frees_rows = true;
                    self.leave_open(slot, asked);
                }
                Fate::Heard((), message) => {
                    if let Some(p) = &mut self.slots[slot].process {
                        p.desyncs.heard(&message);
                    }
                    self.thread_goes_on(slot, &message, true);
                }
                Fate::Unheard((), message) => self.unheard(slot, &message),
                Fate::Lost(message) => {
                    let now = self.slots[slot].local(self.now);
                    if let Some(p) = &mut self.slots[slot].process {
                        p.replicator.handle_lost(now, &message);
                    }
                    self.carry_out(slot);
                }
            }
            if self.failure.is_some() {
                return;
            }
        }
        if frees_rows {
            self.wake_waiting(slot);
        }
    }

    /// The group does not hear what a thread of the server has said.
    pub(crate) fn unheard(&mut self, slot: usize, message: &AppMessage) {
        self.arose(Situation::ThreadUnheard);
        let Some(p) = &mut self.slots[slot].process else { return };
        let counts = p.desyncs.unheard(message, p.outage.is_some());
        self.thread_goes_on(slot, message, counts);
    }

    /// The client's write set was not ordered. `false`: it is a part of a streaming transaction, which sends it again.
    fn forget(&mut self, slot: usize, asked: Asked) -> bool {
        let Some(p) = &mut self.slots[slot].process else { return false };
        if let Some(stream) = p.streams.get_mut(&asked.op) {
            stream.sent = None;
            return false;
        }
        p.locks.remove(&asked.op);
        p.trxs.remove(&asked.op);
        true
    }

    /// It is rolled back here, and its client is told nothing definite. If it is ordered after all, an applier closes it.
    fn leave_open(&mut self, slot: usize, Asked { op, part }: Asked) {
        let Some(p) = &mut self.slots[slot].process else { return };
        p.locks.remove(&op);
        p.trxs.remove(&op);
        if let Some(stream) = p.streams.get_mut(&op) {
            stream.lose();
        }
        if part == Part::Isolated && self.options.sabotage == Some(Sabotage::StatementAbandoned) {
            self.clients.withdrawn(op);
        }
    }

    /// The client goes on with what was ordered, in its turn.
    fn answered(&mut self, slot: usize, Asked { op, part }: Asked, answer: Answer) {
        let Answer { index, mut change, verdict } = answer;
        let (seqno, lineage) = (change.seqno, change.lineage.clone());
        if change.op != op {
            return self.fail(format!("n{slot}: what was operation {op} is delivered at {seqno} as {}", change.op));
        }
        change.by = match part {
            Part::Whole | Part::Fragment(_) | Part::Commit(_) => self.trx_ordered(slot, op, Seqno(seqno), verdict),
            Part::Isolated if verdict => By::Statement,
            // It only closes its seqno.
            Part::Isolated => By::Client,
            Part::Rollback => return self.fail(format!("n{slot}: a client waits for the rollback of operation {op}")),
        };
        match change.by {
            By::Replay | By::Statement => change.depends_on = seqno - 1,
            By::Applier | By::Client => {}
        }
        let taken = self.slots[slot].db.take_in(change);
        self.check(slot, taken);
        if matches!(part, Part::Fragment(_) | Part::Commit(_)) {
            return self.own_part(slot, op, part, seqno, verdict);
        }
        let result = self.clients.answered(op, seqno, verdict);
        self.values_answered(slot, op, seqno);
        self.check(slot, result);
        if self.options.branches() {
            let at = self.past(slot, seqno);
            self.branches.acknowledged(op, at);
        }
        if verdict && self.options.dark {
            let history = self.slots[slot].process.as_ref().map_or(Uuid::NIL, |p| p.history);
            let on_disk = self.durability_at(slot, index) == trireme_types::Durability::Disk;
            self.losses.acknowledged(op, Reach { history, lineage, seqno }, on_disk);
        }
    }
}
