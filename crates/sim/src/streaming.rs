//! Clients with streaming transactions: one fragment after the other, each sent when the one before was certified; then commit or
//! rollback. The origin may die in the middle.

use crate::cluster::Cluster;
use crate::judge::Part;

/// A streaming transaction as its origin sees it; dies with the process.
pub(crate) struct OwnStream {
    /// Fragments that were certified.
    fragments: u32,
    /// Fragments in all.
    wanted: u32,
    rolls_back: bool,
    /// Under way.
    pub sent: Option<Part>,
    /// Nothing is left to do but to tell the others (by a rollback).
    dead: bool,
}

impl OwnStream {
    /// The part that was under way will not be heard of.
    pub fn lose(&mut self) {
        self.sent = None;
        self.dead = true;
    }

    pub fn is_dead(&self) -> bool {
        self.dead
    }

    fn next(&self) -> Part {
        if self.dead {
            Part::Rollback
        } else if self.fragments < self.wanted {
            Part::Fragment(self.fragments)
        } else if self.rolls_back {
            Part::Rollback
        } else {
            Part::Commit(self.fragments)
        }
    }
}

/// Open at one time on one node.
const STREAMS_MAX: usize = 3;

impl Cluster {
    /// Begins a streaming transaction on `slot`, or goes on with one.
    pub(crate) fn stream(&mut self, slot: usize) {
        let Some(p) = &self.slots[slot].process else { return };
        let idle: Vec<u64> = p.streams.iter().filter(|(_, s)| s.sent.is_none()).map(|(op, _)| *op).collect();
        let room = p.streams.len() < STREAMS_MAX;
        match self.rng.pick(&idle).copied() {
            Some(op) if !room || self.rng.chance(0.7) => {
                self.go_on(slot, op);
            }
            _ if room => {
                let op = self.clients.begin();
                self.begin_stream(slot, op);
            }
            _ => {}
        }
    }

    fn begin_stream(&mut self, slot: usize, op: u64) {
        let (wanted, rolls_back) = (self.rng.range(1, 4) as u32, self.rng.chance(0.2));
        let stream = OwnStream { fragments: 0, wanted, rolls_back, sent: None, dead: false };
        if let Some(p) = &mut self.slots[slot].process {
            p.streams.insert(op, stream);
        }
        if !self.go_on(slot, op) {
            self.clients.refused(op);
            if let Some(p) = &mut self.slots[slot].process {
                p.streams.remove(&op);
            }
        }
    }

    fn go_on(&mut self, slot: usize, op: u64) -> bool {
        let stream = |c: &Cluster| c.slots[slot].process.as_ref().and_then(|p| p.streams.get(&op)).map(OwnStream::next);
        let Some(part) = stream(self) else { return false };
        if !self.submit(slot, op, part) {
            return false;
        }
        if let Some(stream) = self.slots[slot].process.as_mut().and_then(|p| p.streams.get_mut(&op)) {
            stream.sent = Some(part);
        }
        true
    }

    /// A part of an own streaming transaction was delivered.
    pub(crate) fn own_part(&mut self, slot: usize, op: u64, part: Part, seqno: u64, effect: bool) {
        let Some(p) = &mut self.slots[slot].process else { return };
        let Some(stream) = p.streams.get_mut(&op) else { return };
        stream.sent = None;
        let told = match part {
            Part::Whole | Part::Isolated => return,
            Part::Rollback => {
                if !stream.dead {
                    self.clients.rolled_back(op);
                }
                p.streams.remove(&op);
                return;
            }
            _ if stream.dead => return,
            Part::Fragment(_) if effect => {
                stream.fragments += 1;
                return;
            }
            Part::Fragment(_) | Part::Commit(_) => {
                stream.dead = true;
                self.clients.answered(op, seqno, effect)
            }
        };
        if effect {
            p.streams.remove(&op);
        }
        self.values_answered(slot, op, seqno);
        self.check(slot, told);
    }

    /// Its write set was not sent: it rolls back.
    pub(crate) fn roll_back_stream(&mut self, slot: usize, op: u64) {
        let Some(stream) = self.slots[slot].process.as_mut().and_then(|p| p.streams.get_mut(&op)) else { return };
        stream.sent = None;
        if !std::mem::replace(&mut stream.dead, true) {
            self.clients.rolled_back(op);
        }
    }

    /// A server without a primary component aborts them; what is about to commit is left to the order.
    pub(crate) fn abort_streams(&mut self, slot: usize) {
        let Some(p) = &mut self.slots[slot].process else { return };
        for (op, stream) in &mut p.streams {
            if !stream.dead && !matches!(stream.sent, Some(Part::Commit(_))) {
                stream.dead = true;
                self.clients.rolled_back(*op);
            }
        }
    }
}
