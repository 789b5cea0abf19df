//! Nodes of two builds: a rolling upgrade, with steps back, deaths of all in the middle, and steps back that come too late.
//!
//! Each start draws the build, until everything heals: then the upgrade is finished. A build that finds a log above its level is refused; its
//! operator installs the newer one.

use trireme_order::{Append, BootstrapError, Failure, Message, SUPPORTED};
use trireme_replicator::message::AppMessage;
use trireme_types::{EntryKind, Level, Levels, LogIndex, Setting, Term, Uuid};

use crate::Cluster;
use crate::rng::Rng;
use crate::situations::Situation;

pub(crate) const NEWER: Levels = SUPPORTED;

impl Cluster {
    /// The levels that the former build of this run supports. They follow from the seed.
    fn former(&self) -> Levels {
        let mut r = Rng::new(self.options.seed ^ 0x0066_6f72_u64.rotate_left(24));
        Levels { min: NEWER.min, max: Level(NEWER.min.0 + r.below(u64::from(NEWER.max.0 - NEWER.min.0)) as u16) }
    }

    pub(crate) fn is_former(&self, slot: usize) -> bool {
        self.slots[slot].levels != NEWER
    }

    /// Draws the build that this node runs from here on.
    pub(crate) fn install(&mut self, slot: usize) {
        let may_be_former = self.options.mixed && !self.calm && !self.slots[slot].refused;
        let former = may_be_former && self.rng.chance(0.5);
        let levels = if former { self.former() } else { NEWER };
        let before = std::mem::replace(&mut self.slots[slot].levels, levels);
        if former && before == NEWER && self.slots[slot].boot > 0 {
            self.arose(Situation::SteppedBack);
        }
    }

    /// Did this node stop because its build is below the level of its log? Then its operator installs the newer one.
    pub(crate) fn was_refused(&mut self, slot: usize, why: &BootstrapError) -> bool {
        let former = self.former();
        let refused = self.is_former(slot)
            && matches!(why, BootstrapError::Failed(Failure::LevelUnsupported { level, supported })
                if *level > former.max && *supported == former);
        if refused {
            self.arose(Situation::BuildRefused);
            self.slots[slot].refused = true;
        }
        refused
    }

    /// Everything heals: the nodes of the former build get the newer one.
    pub(crate) fn finish_upgrade(&mut self) {
        for slot in 0..self.slots.len() {
            if self.is_former(slot) && self.slots[slot].process.is_some() {
                self.crash(slot, false);
            }
        }
    }

    /// A build gets no message that it does not know.
    pub(crate) fn check_known(&mut self, slot: usize, message: &Message) {
        let knows = match message {
            Message::LevelLimit { .. } | Message::VotersHeard { .. } => self.slots[slot].levels.max > Level::FIRST,
            Message::Unknown { .. } => !self.is_former(slot),
            _ => true,
        };
        if !knows {
            self.fail(format!("n{slot} got {message:?}, which its build does not know"));
        }
    }

    /// The same with what members say in the order.
    pub(crate) fn check_known_in_order(&mut self, slot: usize, message: &AppMessage) {
        if matches!(message, AppMessage::NoData) && self.slots[slot].levels.max < Level::WAITS_FOR_ALL {
            self.fail(format!("n{slot} delivered {message:?}, which its build does not know"));
        }
    }

    /// A sequencer raises the level only while none that it is linked to, and that votes or is in its view, is of a build below it.
    pub(crate) fn check_raise(&mut self, slot: usize, branch: Uuid, term: Term, append: &Append) {
        for (header, body) in append.entries.iter().filter(|(h, _)| h.kind == EntryKind::Setting && h.term == term) {
            let Some(Ok(Setting::Level(level))) = body.as_deref().map(Setting::decode) else { continue };
            if !self.raises.insert((term, branch, header.index)) {
                continue;
            }
            let Some(p) = &self.slots[slot].process else { return };
            let status = p.group.status();
            let concerned = |node| status.view.get(node).is_some() || status.voters.contains(node);
            let linked = |node| p.links.contains_key(node) && concerned(*node);
            let below = p.builds.iter().find(|(node, levels)| linked(node) && !levels.contains(level));
            if let Some((node, levels)) = below {
                return self.fail(format!("n{slot} raises the level to {level}, and {node} supports {levels}"));
            }
        }
    }

    /// The level that an entry puts in force is the same for all, and none below it is there to hear of it.
    pub(crate) fn check_level(&mut self, slot: usize, index: LogIndex, level: Level) {
        if !self.slots[slot].levels.contains(level) {
            return self.fail(format!("n{slot} delivered level {level}, which its build does not support"));
        }
        let branch = self.branch(slot);
        if self.options.mixed && !self.raised.contains_key(&(branch, index)) {
            self.arose(Situation::LevelRaised);
        }
        let first = *self.raised.entry((branch, index)).or_insert(level);
        if first != level {
            self.fail(format!("n{slot} delivered level {level} at {index}, another node level {first}"));
        }
    }

    /// Does the level have to be the newest one in the end? Voters that never come back hold it.
    pub(crate) fn level_rises(&self) -> bool {
        let there = |node| self.slots.iter().any(|s| s.node == node && !s.dead);
        self.slots.iter().filter_map(|s| s.process.as_ref()).all(|p| {
            let status = p.group.status();
            status.voters.voters.iter().all(|v| there(v.node)) && status.view.members.iter().all(|m| there(m.node))
        })
    }

    pub(crate) fn all_at_newest_level(&self) -> bool {
        self.slots.iter().filter_map(|s| s.process.as_ref()).all(|p| p.group.level() == NEWER.max)
    }
}
