//! Wishes of this member that have to be ordered: its own weight, and a mode of durability for all. A request may get lost with a sequencer, so it is
//! repeated until it is seen in force.

use trireme_types::{Durability, Member, Timestamp, Weight};

use crate::group::Group;
use crate::{LogStore, Message, Phase};

/// Written below and nowhere else.
pub(crate) struct Wishes {
    /// The weight that this member wants, from its start on: it says so when it joins, and repeats it in a view that shows another weight.
    /// The view and the voters have the weight in force.
    weight: Weight,
    /// The mode that was last asked for here, while it was not seen in force since.
    durability: Option<Durability>,
}

impl Wishes {
    pub fn new(weight: Weight) -> Wishes {
        Wishes { weight, durability: None }
    }

    pub fn weight(&self) -> Weight {
        self.weight
    }

    pub fn durability(&self) -> Option<Durability> {
        self.durability
    }
}

impl<S: LogStore> Group<S> {
    /// This member as it wants to be in the next view.
    pub(crate) fn own_member(&self) -> Member {
        Member { weight: self.wishes.weight, ..self.cfg.me.clone() }
    }

    pub(crate) fn wish_for_weight(&mut self, now: Timestamp, weight: Weight) {
        if self.phase() == Phase::Primary {
            self.wishes.weight = weight;
            self.press_wishes(now);
        }
    }

    pub(crate) fn wish_for_durability(&mut self, now: Timestamp, durability: Durability) {
        self.cfg.durability = durability;
        // Repeated only until it is seen in force, which it may be for a moment before another one's wish undoes it.
        self.wishes.durability = (self.done.durability != durability).then_some(durability);
        // Only the sequencer knows what is in force: another member may have changed it, which this one has not seen yet.
        if self.phase() == Phase::Primary {
            self.to_sequencer(now, Message::SetDurability { durability });
        }
    }

    /// A wish that is not seen in force yet is said again.
    pub(crate) fn press_wishes(&mut self, now: Timestamp) {
        if self.phase() != Phase::Primary {
            return;
        }
        let weight = self.wishes.weight;
        if self.done.view.get(self.me()).is_some_and(|m| m.weight != weight) {
            self.to_sequencer(now, Message::SetWeight { weight });
        }
        self.settle_wishes();
        if let Some(durability) = self.wishes.durability {
            self.to_sequencer(now, Message::SetDurability { durability });
        }
    }

    /// A mode in force is wished for no more, though another member may have changed it again by the time that somebody looks.
    pub(crate) fn settle_wishes(&mut self) {
        self.wishes.durability.take_if(|wanted| *wanted == self.done.durability);
    }
}
