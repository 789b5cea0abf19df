//! How far the end of the connection has come: the only writer of it, and what each change brings with it. Other threads see parts of it
//! only: [`crate::life`] what ends for the whole node, [`crate::outage`] that nobody waits for the disk any more, [`crate::data`] whether
//! the data are still the group's.

use trireme_order::Phase;

use super::Core;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// No end is in sight.
    GoesOn,
    /// The log's disk has failed: this incarnation is over, and the next one begins when the disk works.
    SitsOut,
    /// The leave is being ordered. Until then the server gets what is ordered, as before.
    Leaves,
    /// The node gives up: the leave is being ordered, and nothing more goes to the server.
    Drops,
    /// The group thread ends after this turn. `dropped`: nothing more goes to the server but its final view.
    Over { dropped: bool },
}

impl Ending {
    /// May the connection outlive a failure of the log's disk?
    pub fn may_sit_out(self) -> bool {
        match self {
            Ending::GoesOn | Ending::SitsOut => true,
            Ending::Leaves | Ending::Drops | Ending::Over { .. } => false,
        }
    }

    /// Does nothing more go to the server?
    pub fn drops(self) -> bool {
        match self {
            Ending::GoesOn | Ending::SitsOut | Ending::Leaves => false,
            Ending::Drops => true,
            Ending::Over { dropped } => dropped,
        }
    }
}

/// Changed below and nowhere else.
pub(super) struct CurrentEnding(Ending);

impl CurrentEnding {
    pub const START: CurrentEnding = CurrentEnding(Ending::GoesOn);
}

/// May the end go from the first to the second? Anything else is a mistake of ours.
fn is_legal(from: Ending, to: Ending) -> bool {
    match (from, to) {
        // An end is not taken back, and a server that is to hear nothing more does not hear more.
        (Ending::Over { dropped: before }, Ending::Over { dropped: after }) => !before || after,
        (Ending::Over { .. }, _) => false,
        // Nobody could order a leave any more, or it was ordered.
        (from, Ending::Over { dropped }) => dropped == from.drops() || from == Ending::SitsOut,
        // A log may fail again before this node sits out.
        (Ending::GoesOn | Ending::SitsOut, Ending::SitsOut) => true,
        (Ending::Leaves | Ending::Drops, Ending::SitsOut) => false,
        // The disk works again.
        (from, Ending::GoesOn) => from == Ending::SitsOut,
        (from, Ending::Leaves) => from == Ending::GoesOn,
        // Also a node that leaves may find a reason to give up, or several.
        (Ending::GoesOn | Ending::Leaves | Ending::Drops, Ending::Drops) => true,
        (Ending::SitsOut, Ending::Drops) => false,
    }
}

impl Core {
    pub(super) fn ending(&self) -> Ending {
        self.conn.ending.0
    }

    fn enter(&mut self, to: Ending) {
        let from = self.ending();
        assert!(is_legal(from, to), "from {from:?} to {to:?}");
        self.conn.ending.0 = to;
    }

    /// The log's disk has failed, and a server with good data needs no more than to wait.
    pub(super) fn become_out(&mut self) {
        self.enter(Ending::SitsOut);
    }

    /// Another incarnation has taken the place of the one that lost its disk.
    pub(super) fn become_back(&mut self) {
        self.enter(Ending::GoesOn);
    }

    /// The connection is to end. Its leave is ordered where somebody can order it.
    pub(super) fn become_leaving(&mut self) {
        let now = self.now();
        match self.inc.group.status().phase {
            Phase::Idle | Phase::Joining | Phase::Failed => self.become_over(),
            Phase::NonPrimary => {
                self.inc.group.leave(now);
                self.drain();
                self.become_over();
            }
            Phase::Primary => {
                match self.ending() {
                    Ending::GoesOn => self.enter(Ending::Leaves),
                    // The others hear of the leave, and it is not waited for.
                    Ending::SitsOut => self.become_over(),
                    Ending::Leaves | Ending::Drops | Ending::Over { .. } => {}
                }
                self.inc.replicator.handle_leave();
                self.drop_held_back();
                self.inc.group.leave(now);
            }
            Phase::Leaving => {}
        }
    }

    /// This node gives up. `corrupt`: with data that are not the group's. The leave is ordered, so that the others need not take this node
    /// for failed: two nodes would lose their majority.
    pub(super) fn become_dropping(&mut self, corrupt: bool) {
        self.shared.drop_all(corrupt);
        match self.ending() {
            Ending::GoesOn | Ending::Leaves | Ending::Drops => self.enter(Ending::Drops),
            // It is not waited for.
            Ending::SitsOut | Ending::Over { .. } => self.enter(Ending::Over { dropped: true }),
        }
        self.inc.replicator.handle_leave();
        self.abandon_all();
        let now = self.now();
        self.inc.group.leave(now);
    }

    /// Nothing more is waited for.
    pub(super) fn become_over(&mut self) {
        self.enter(Ending::Over { dropped: self.ending().drops() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Ending; 6] = [
        Ending::GoesOn,
        Ending::SitsOut,
        Ending::Leaves,
        Ending::Drops,
        Ending::Over { dropped: false },
        Ending::Over { dropped: true },
    ];

    #[test]
    fn an_end_is_reached_from_everywhere_and_never_taken_back() {
        for ending in ALL {
            assert!(is_legal(ending, Ending::Over { dropped: ending.drops() }));
            let is_over = matches!(ending, Ending::Over { .. });
            for to in [Ending::GoesOn, Ending::SitsOut, Ending::Leaves, Ending::Drops] {
                assert!(!is_over || !is_legal(ending, to), "{ending:?} {to:?}");
            }
        }
    }

    #[test]
    fn a_server_that_is_dropped_hears_nothing_more() {
        for from in ALL.into_iter().filter(|ending| ending.drops()) {
            for to in ALL.into_iter().filter(|to| is_legal(from, *to)) {
                assert!(to.drops(), "{from:?} {to:?}");
            }
        }
    }

    #[test]
    fn only_a_connection_without_an_end_outlives_its_disk() {
        for ending in ALL {
            assert_eq!(is_legal(ending, Ending::SitsOut), ending.may_sit_out());
            assert_eq!(is_legal(ending, Ending::GoesOn), ending == Ending::SitsOut);
        }
    }
}
