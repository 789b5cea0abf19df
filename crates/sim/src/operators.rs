//! The wishes of operators in a cluster that runs. One has a log trimmed (`trireme log trim`), as a node does it (`crates/node/src/core/house.rs`).
//! Another one has an arbitrator ask for a full copy, as for a backup. In the end a server waits for no engine that could not be asked.

use trireme_order::LogStore;
use trireme_replicator::retention::Needs;
use trireme_types::Seqno;

use crate::cluster::Cluster;
use crate::options::{Options, SEC};
use crate::rng::Rng;
use crate::situations::Situation;

/// How long a wish waits for the engine's disk, as in a node.
const WISH_PATIENCE: u64 = 5 * SEC;

impl Options {
    /// From a stream of its own, behind all others. A short disk ends a server, so no disk is short where nobody is to die.
    pub(crate) fn draw_operators(&mut self) {
        let mut r = Rng::new(self.seed ^ 0x006f_7065_u64.rotate_left(24));
        if r.chance(0.3) {
            self.trim_share = r.range(1, 20) as f64 / 1_000.0;
        }
        if r.chance(0.5) {
            self.ask_share = r.range(5, 50) as f64 / 1_000.0;
        }
        if r.chance(0.5) && self.error_share == 0.0 && !self.faults.is_empty() {
            self.room = r.range(0, 30);
        }
    }
}

impl Cluster {
    /// At each tick of a node.
    pub(crate) fn operate(&mut self, slot: usize) {
        let trims = self.operators.chance(self.options.trim_share);
        let asks = self.operators.chance(self.options.ask_share);
        if trims && !self.calm {
            self.wish_for_trim(slot);
        }
        if asks && !self.calm {
            self.ask_for_donor(slot);
        }
        self.trim_as_wished(slot);
        self.have_engine_asked(slot);
    }

    /// A server whose engine could not be asked waits for it, and its data may be needed: in the end somebody mends what is wrong with that
    /// and starts it again, as its log says.
    fn have_engine_asked(&mut self, slot: usize) {
        let s = &mut self.slots[slot];
        let Some(p) = &s.process else { return };
        let waits = s.unheard && !p.replicator.serves() && p.group.awaits_engine_disk();
        if waits && self.calm {
            s.claim = None;
            self.log(|| format!("n{slot} is started again, for its engine to be asked"));
            self.restart_server(slot);
        }
    }

    fn wish_for_trim(&mut self, slot: usize) {
        let now = self.now;
        let Some(p) = &mut self.slots[slot].process else { return };
        let (first, last) = (p.group.store().base().seqno, p.last_seqno);
        if p.wish.is_none() && p.replicator.is_live() && first < last {
            p.wish = Some((Seqno(self.operators.range(first.0, last.0 + 1)), now));
        }
    }

    /// Drops what lies below the entry that was named, though members that are away may lack it; never what this server or a linked member
    /// needs.
    fn trim_as_wished(&mut self, slot: usize) {
        let (now, arbitrates) = (self.now, self.options.is_arbitrator(slot));
        let s = &mut self.slots[slot];
        let committed = Seqno(s.db.now.position);
        let Some(p) = &mut s.process else { return };
        let Some((keep_from, since)) = p.wish.take() else { return };
        let log = p.group.store();
        if !p.replicator.is_live() || log.failed() {
            return; // It is refused.
        }
        let reached = keep_from <= p.engine.upto().next();
        if !arbitrates && !reached && keep_from <= committed.next() && now < since + WISH_PATIENCE {
            // All commits so far are on disk in a moment.
            p.wish = Some((keep_from, since));
            return;
        }
        let before = log.base().index;
        let Some(wanted) = log.index_of(keep_from).filter(|_| keep_from > log.base().seqno.next()) else { return };
        let members = Some(p.group.held_by_members().next());
        let Some(p) = &self.slots[slot].process else { return };
        let (needed, _) = Needs { own: self.own_need(slot, p), members, absent: None }.keep_from();
        let Some(p) = &mut self.slots[slot].process else { return };
        p.group.store_mut().trim_wholly(wanted.min(needed));
        let base = p.group.store().base().index;
        p.absent.trimmed(base);
        self.log(|| format!("n{slot} was to trim its log below {keep_from}: it begins after {base}"));
        if base > before {
            self.arose(Situation::LogTrimmed);
        }
        if needed < wanted {
            self.arose(Situation::TrimHeldBack);
        }
        self.check_replay(slot);
    }

    fn ask_for_donor(&mut self, slot: usize) {
        let now = self.slots[slot].local(self.now);
        let arbitrates = self.options.is_arbitrator(slot);
        let Some(p) = self.slots[slot].process.as_mut().filter(|p| arbitrates && p.replicator.is_member()) else {
            return;
        };
        if p.replicator.is_requesting() {
            return;
        }
        p.asks_donor = true;
        p.replicator.handle_ask_donor(now, b"backup".to_vec());
        self.carry_out(slot);
    }

    /// An arbitrator was told which server gives, or that none can.
    pub(crate) fn on_answer(&mut self, slot: usize, granted: bool) {
        let Some(p) = &mut self.slots[slot].process else { return };
        if !std::mem::take(&mut p.asks_donor) {
            return self.fail(format!("n{slot} is told of a donor, and has not asked for one"));
        }
        if granted {
            self.arose(Situation::DonorForArbitrator);
        }
    }
}
