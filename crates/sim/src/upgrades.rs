//! Nodes of two builds: a rolling upgrade, with steps back, deaths of all in the middle, and steps back that come too late.
//!
//! Each start draws the build, until everything heals: then the upgrade is finished. A build that finds a log above its level is refused; its
//! operator installs the newer one.

use trireme_order::{Append, BootstrapError, Failure, Message, SUPPORTED};
use trireme_types::{EntryKind, Level, Levels, LogIndex, Setting, Term, Uuid};

use crate::Cluster;
use crate::situations::Situation;

pub(crate) const NEWER: Levels = SUPPORTED;
pub(crate) const FORMER: Levels = Levels { min: SUPPORTED.min, max: Level(SUPPORTED.max.0 - 1) };

impl Cluster {
    /// What is installed on this node from here on.
    pub(crate) fn install(&mut self, slot: usize) {
        let may_be_former = self.options.mixed && !self.calm && !self.slots[slot].refused;
        let former = may_be_former && self.rng.chance(0.5);
        let before = std::mem::replace(&mut self.slots[slot].levels, if former { FORMER } else { NEWER });
        if former && before == NEWER && self.slots[slot].boot > 0 {
            self.arose(Situation::SteppedBack);
        }
    }

    /// Did this node stop because its build is below the level of its log? Then its operator installs the newer one.
    pub(crate) fn was_refused(&mut self, slot: usize, why: &BootstrapError) -> bool {
        let refused = self.slots[slot].levels == FORMER
            && matches!(why, BootstrapError::Failed(Failure::LevelUnsupported { level, supported })
                if *level == NEWER.max && *supported == FORMER);
        if refused {
            self.arose(Situation::BuildRefused);
            self.slots[slot].refused = true;
        }
        refused
    }

    /// Everything heals: the nodes of the former build get the newer one.
    pub(crate) fn finish_upgrade(&mut self) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].levels == FORMER && self.slots[slot].process.is_some() {
                self.crash(slot, false);
            }
        }
    }

    /// The former build knows no optional message, and none is sent to it.
    pub(crate) fn check_known(&mut self, slot: usize, message: &Message) {
        if self.slots[slot].levels == FORMER && matches!(message, Message::LevelLimit { .. } | Message::Unknown { .. })
        {
            self.fail(format!("n{slot} got {message:?}, which its build does not know"));
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
