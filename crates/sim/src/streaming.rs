//! Clients with streaming transactions: one fragment after the other, each sent when the one before was certified; then commit or
//! rollback. The origin may die in the middle. Where clients lock rows (`locals.rs`) a streaming transaction keeps its locks from one
//! fragment to the next, and begins with that when the one before is committed here.

use crate::cluster::Cluster;
use crate::judge::Part;
use crate::locals::Trx;

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
        let idle = |op: &u64, s: &OwnStream| s.sent.is_none() && p.trxs.get(op).is_none_or(Trx::rests);
        let idle: Vec<u64> = p.streams.iter().filter(|(op, s)| idle(op, s)).map(|(op, _)| *op).collect();
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
        let Some(part) = self.own_stream(slot, op).map(|stream| stream.next()) else { return false };
        if part == Part::Rollback {
            self.leave_trx(slot, op);
        } else if self.options.think_mean > 0 {
            return self.go_on_trx(slot, op, part);
        }
        if !self.submit(slot, op, part) {
            return false;
        }
        if let Some(stream) = self.own_stream(slot, op) {
            stream.sent = Some(part);
        }
        true
    }

    pub(crate) fn own_stream(&mut self, slot: usize, op: u64) -> Option<&mut OwnStream> {
        self.slots[slot].process.as_mut()?.streams.get_mut(&op)
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
        let Some(stream) = self.own_stream(slot, op) else { return };
        stream.sent = None;
        if !std::mem::replace(&mut stream.dead, true) {
            self.clients.rolled_back(op);
        }
    }

    /// An applier wants its rows, it has waited for a row for too long, or what it wanted to send was not sent: it rolls back.
    pub(crate) fn give_up_stream(&mut self, slot: usize, op: u64) {
        let Some(stream) = self.own_stream(slot, op) else { return };
        if stream.dead {
            return;
        }
        if stream.fragments > 0 || stream.sent.is_some() {
            self.roll_back_stream(slot, op);
            self.leave_trx(slot, op);
        } else {
            // Nobody has heard of it.
            self.clients.refused(op);
            if let Some(p) = &mut self.slots[slot].process {
                p.streams.remove(&op);
            }
            self.end_trx(slot, op);
        }
        self.values.answered(op, self.now, None);
    }

    /// A server without a primary component aborts them; what is about to commit is left to the order.
    pub(crate) fn abort_streams(&mut self, slot: usize) {
        let Some(p) = &mut self.slots[slot].process else { return };
        let mut aborted = Vec::new();
        for (op, stream) in &mut p.streams {
            if !stream.dead && !matches!(stream.sent, Some(Part::Commit(_))) {
                stream.dead = true;
                self.clients.rolled_back(*op);
                aborted.push(*op);
            }
        }
        for op in aborted {
            self.leave_trx(slot, op);
        }
    }
}

#[cfg(test)]
mod tests {
    use trireme_certification::KeyKind;

    use super::*;
    use crate::options::{MS, Options, SEC};
    use crate::situations::Situation;

    /// Two nodes whose clients use few rows.
    fn formed(seed: u64) -> Cluster {
        let mut o = Options::calm(seed, 2);
        (o.keys, o.think_mean) = (2, MS);
        Cluster::formed(o)
    }

    fn trx(c: &Cluster, op: u64) -> Option<&Trx> {
        c.slots[0].process.as_ref().and_then(|p| p.trxs.get(&op))
    }

    #[test]
    fn locks_are_kept_from_one_fragment_to_the_next() {
        let mut kept = 0;
        for seed in 1..=10 {
            let mut c = formed(seed);
            let op = c.clients.begin();
            c.begin_stream(0, op);
            c.expect(3 * SEC, "a fragment is committed", |c| trx(c, op).is_some_and(Trx::rests));
            let rows: Vec<u16> = trx(&c, op).into_iter().flat_map(Trx::changed).collect();
            c.run_for(SEC);
            let is_locked =
                |row: &u16| c.slots[0].process.as_ref().is_some_and(|p| p.is_claimed_by_trx(*row, KeyKind::Update));
            assert!(rows.iter().all(is_locked));
            kept += rows.len();
            c.conclude();
        }
        assert!(kept > 0, "no fragment has changed a row");
    }

    #[test]
    fn one_that_asks_for_nothing_gives_way_to_what_a_peer_has_ordered() {
        let mut hit = 0;
        for seed in 1..=20 {
            let mut c = formed(seed);
            for _ in 0..100 {
                c.stream(0);
                c.write(1);
                c.run_for(5 * MS);
            }
            hit += c.situations.times(Situation::StreamHit);
            c.conclude();
        }
        assert!(hit >= 20, "{hit} were hit");
    }
}
