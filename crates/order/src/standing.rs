//! The standing of the own log and of the data behind it (rules 10, 13): may they be gone on with? The only writer of that state.
//!
//! ```text
//!            join                      a later branch leads, or this one runs twice
//! Keeps <------------> OutOfReach      Keeps ------------> GivesWay ---+ not heard of for too long, or a person decides
//!   ^                                    ^                            |
//!   |                                    +----------------------------+
//!   |  the log begins anew                       any of these three: the group contradicts the own log
//!   +---------------------- Discarded <---------- Diverged
//!                                      the driver has marked the data as void
//! ```

use trireme_types::{Base, Lineage, NodeId, Term, Timestamp};

use crate::group::Group;
use crate::{Event, LogStore, Output};

/// A state that a peer gives this member to begin with.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub from: NodeId,
    pub term: Term,
    /// The peer's.
    pub lineage: Lineage,
    pub base: Base,
}

/// The history that goes on instead of the own one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rival {
    /// That of another branch.
    Branch,
    /// That of a component on the very branch that this member went on with alone: its disk is an old one, and what it ordered since
    /// contradicts what the others did, under the same numbers.
    Double,
}

/// See the module's text. Each state but the first asks for a snapshot.
#[derive(Debug)]
pub(crate) enum Standing {
    /// The log is the member's own, and is gone on with.
    Keeps,
    /// The log does not go on from where the server's data end. It is continued all the same, since this member's vote may be in its end.
    OutOfReach,
    /// Another component goes on, whose primary component was last heard of at `heard`. Nothing is given up before that one has offered
    /// its state: what was heard may have been said long ago. Nothing is added to the log.
    GivesWay { rival: Rival, heard: Timestamp },
    /// The data are to be marked as void before the log may be replaced: no crash leaves the group's log beside another branch's
    /// data. An offer that comes meanwhile waits.
    Diverged { rival: Rival, offer: Option<Box<Offer>> },
    /// The data are void, durably. The log waits to be replaced.
    Discarded { rival: Rival },
}

/// Changed below and nowhere else.
pub(crate) struct CurrentStanding(Standing);

impl CurrentStanding {
    pub const START: CurrentStanding = CurrentStanding(Standing::Keeps);
}

/// May a member go from the first to the second? Anything else is a mistake of ours. Asserted in every build, as the phase is.
fn is_legal(from: &Standing, to: &Standing) -> bool {
    use Standing::{Discarded, Diverged, GivesWay, Keeps, OutOfReach};
    match (from, to) {
        // Told at a join; and a log that grows may turn out to be a voter's.
        (Keeps | OutOfReach, Keeps | OutOfReach) => true,
        // Only a log that is gone on with can stand in another's way.
        (Keeps, GivesWay { .. }) => true,
        (OutOfReach | Diverged { .. } | Discarded { .. }, GivesWay { .. }) => false,
        // Heard of again.
        (GivesWay { rival: before, .. }, GivesWay { rival, .. }) => before == rival,
        (GivesWay { .. }, Keeps) => true,
        (GivesWay { .. } | Diverged { .. } | Discarded { .. }, OutOfReach) => false,
        (Keeps | OutOfReach, Diverged { rival, .. }) => *rival == Rival::Branch,
        // The rival stays the same one; or a newer offer.
        (GivesWay { rival: before, .. } | Diverged { rival: before, .. }, Diverged { rival, .. }) => before == rival,
        (Diverged { rival: before, .. }, Discarded { rival }) => before == rival,
        // Data first, then the log.
        (Diverged { .. }, Keeps) => false,
        (Keeps | OutOfReach | GivesWay { .. } | Discarded { .. }, Discarded { .. }) => false,
        (Discarded { .. }, Diverged { .. }) => false,
        (Discarded { .. }, Keeps) => true,
    }
}

impl Standing {
    /// Is the log this member's to go on with: to stand, to vote with, and to tell others of?
    pub fn keeps_log(&self) -> bool {
        match self {
            Standing::Keeps => true,
            Standing::OutOfReach
            | Standing::GivesWay { .. }
            | Standing::Diverged { .. }
            | Standing::Discarded { .. } => false,
        }
    }

    /// The log and the data behind it are on a branch that this member gives up: nothing is added to it any more.
    pub fn gives_up_log(&self) -> bool {
        match self {
            Standing::Keeps | Standing::OutOfReach => false,
            Standing::GivesWay { .. } | Standing::Diverged { .. } | Standing::Discarded { .. } => true,
        }
    }

    /// Are the data void, or about to be marked so?
    pub fn gives_up_data(&self) -> bool {
        match self {
            Standing::Keeps | Standing::OutOfReach | Standing::GivesWay { .. } => false,
            Standing::Diverged { .. } | Standing::Discarded { .. } => true,
        }
    }

    /// Does the own log contradict one of the same branch?
    pub fn is_doubled(&self) -> bool {
        match self {
            Standing::Keeps | Standing::OutOfReach => false,
            Standing::GivesWay { rival, .. } | Standing::Diverged { rival, .. } | Standing::Discarded { rival } => {
                *rival == Rival::Double
            }
        }
    }
}

impl<S: LogStore> Group<S> {
    pub(crate) fn standing(&self) -> &Standing {
        &self.standing.0
    }

    fn stand(&mut self, to: Standing) {
        assert!(is_legal(&self.standing.0, &to), "from {:?} to {to:?}", self.standing.0);
        self.standing.0 = to;
    }

    /// The log is gone on with: it is this member's own, was replaced, or a person says so.
    pub(crate) fn become_keeping(&mut self) {
        self.stand(Standing::Keeps);
    }

    /// At a join, and when a log that is out of reach has grown. A log that is given up already stays so.
    pub(crate) fn settle_reach(&mut self, out_of_reach: bool) {
        if !self.standing().gives_up_log() {
            self.stand(if out_of_reach { Standing::OutOfReach } else { Standing::Keeps });
        }
    }

    /// Asks for the state of another component. Until it comes, log and data are kept: a person may want them (`pc.bootstrap`), and so
    /// does this member if that primary component turns out to be gone. It orders no more, also where it was elected just now and nobody has
    /// heard of that.
    pub(crate) fn become_yielding(&mut self, now: Timestamp, rival: Rival) {
        self.become_follower(now, None);
        self.stand(Standing::GivesWay { rival, heard: now });
        self.send_join();
    }

    /// The primary component that this member gives way to was heard of, if it gives way to one.
    pub(crate) fn hear_of_rival(&mut self, now: Timestamp) {
        if let Standing::GivesWay { rival, .. } = *self.standing() {
            self.stand(Standing::GivesWay { rival, heard: now });
        }
    }

    /// The own log contradicts what the group committed: only a full copy heals that (a fork was forced without us). Said once.
    pub(crate) fn become_diverged(&mut self, offered: Option<Offer>) {
        let new = offered.map(Box::new);
        let (rival, offer, first) = match &mut self.standing.0 {
            Standing::Keeps | Standing::OutOfReach => (Rival::Branch, new, true),
            Standing::GivesWay { rival, .. } => (*rival, new, true),
            Standing::Diverged { rival, offer } => (*rival, new.or_else(|| offer.take()), false),
            Standing::Discarded { .. } => return,
        };
        self.stand(Standing::Diverged { rival, offer });
        if first {
            self.out.push_back(Output::Event(Event::DataDiverged));
            self.send_join();
        }
    }

    /// The driver has marked the data as void. Returns what was offered meanwhile.
    pub(crate) fn become_discarded(&mut self) -> Option<Offer> {
        let Standing::Diverged { rival, offer } = &mut self.standing.0 else { return None };
        let (rival, offer) = (*rival, offer.take());
        self.stand(Standing::Discarded { rival });
        offer.map(|offer| *offer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Standing> {
        let each = |rival| {
            [
                Standing::GivesWay { rival, heard: Timestamp(1) },
                Standing::Diverged { rival, offer: None },
                Standing::Discarded { rival },
            ]
        };
        let mut all = vec![Standing::Keeps, Standing::OutOfReach];
        all.extend(each(Rival::Branch).into_iter().chain(each(Rival::Double)));
        all
    }

    #[test]
    fn a_log_is_replaced_beside_data_that_diverged_only_after_they_are_void() {
        for to in all().iter().filter(|to| !to.gives_up_data()) {
            assert!(!is_legal(&Standing::Diverged { rival: Rival::Branch, offer: None }, to), "{to:?}");
        }
        assert!(is_legal(&Standing::Discarded { rival: Rival::Branch }, &Standing::Keeps));
    }

    #[test]
    fn data_are_marked_void_only_after_they_diverged() {
        for from in all() {
            let diverged = matches!(from, Standing::Diverged { rival: Rival::Branch, .. });
            assert_eq!(is_legal(&from, &Standing::Discarded { rival: Rival::Branch }), diverged, "{from:?}");
        }
    }

    #[test]
    fn the_rival_is_never_mistaken_for_another_on_the_way() {
        for (from, to) in all().iter().flat_map(|from| all().into_iter().map(move |to| (from, to))) {
            let forgets = from.is_doubled() != to.is_doubled() && from.gives_up_log() && to.gives_up_log();
            assert!(!(forgets && is_legal(from, &to)), "{from:?} to {to:?}");
        }
    }
}
