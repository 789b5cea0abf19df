//! Where this member stands with the server (docs/protocol.md, section 1): the only writer of the phase, and what each change brings
//! with it.

use trireme_types::{Member, Timestamp};

use crate::group::{CHECK_EVERY, Group};
use crate::timers::Timer;
use crate::{Event, Failure, LogStore, Output, Phase};

/// Changed below and nowhere else.
pub(crate) struct CurrentPhase(Phase);

impl CurrentPhase {
    pub const START: CurrentPhase = CurrentPhase(Phase::Idle);
}

/// May a member go from the first to the second? Anything else is a mistake of ours. Asserted in every build: a change is rare, and a node
/// that makes an illegal one must not go on.
fn is_legal(from: Phase, to: Phase) -> bool {
    match (from, to) {
        // Nothing works any more.
        (Phase::Failed, to) => to == Phase::Failed,
        // The log may fail at any time.
        (_, Phase::Failed) => true,
        // Told by the driver. One that waits for others of its kind begins a history.
        (Phase::Idle | Phase::Joining, Phase::Joining) => true,
        (Phase::Primary | Phase::NonPrimary | Phase::Leaving, Phase::Joining) => false,
        // A view with this member was delivered.
        (Phase::Joining | Phase::NonPrimary, Phase::Primary) => true,
        (Phase::Idle | Phase::Primary | Phase::Leaving, Phase::Primary) => false,
        // No majority, a view without this member, or another component that goes on.
        (Phase::Primary, Phase::NonPrimary) => true,
        (Phase::Idle | Phase::Joining | Phase::NonPrimary | Phase::Leaving, Phase::NonPrimary) => false,
        (Phase::Primary, Phase::Leaving) => true,
        (Phase::Idle | Phase::Joining | Phase::NonPrimary | Phase::Leaving, Phase::Leaving) => false,
        // It has left, was thrown out, or had nothing to leave.
        (Phase::Idle | Phase::Joining | Phase::Primary | Phase::NonPrimary | Phase::Leaving, Phase::Idle) => true,
    }
}

impl<S: LogStore> Group<S> {
    pub(crate) fn phase(&self) -> Phase {
        self.phase.0
    }

    fn enter(&mut self, to: Phase) {
        let from = self.phase.0;
        assert!(is_legal(from, to), "from {from:?} to {to:?}");
        self.phase.0 = to;
    }

    /// Takes part: messages are heard, and things happen by time.
    pub(crate) fn running(&self) -> bool {
        !matches!(self.phase(), Phase::Idle | Phase::Failed)
    }

    pub(crate) fn become_joining(&mut self, first_check: Timestamp) {
        self.enter(Phase::Joining);
        self.timers.arm(Timer::Check, first_check);
    }

    /// A view with this member was delivered.
    pub(crate) fn become_primary(&mut self, now: Timestamp) {
        self.enter(Phase::Primary);
        self.data.brings = None;
        self.good_at = now;
        // While it was out, the sequencer dropped what it sent.
        self.resend_pending();
    }

    pub(crate) fn become_non_primary(&mut self, reachable: Vec<Member>) {
        self.enter(Phase::NonPrimary);
        self.fail_reads();
        self.out.push_back(Output::Event(Event::NonPrimary { reachable }));
    }

    pub(crate) fn become_leaving(&mut self, now: Timestamp) {
        self.enter(Phase::Leaving);
        self.timers.arm(Timer::Linger, now.after(self.cfg.timeouts.linger));
    }

    /// The end of a leave, or of a member that had nothing to leave. A log that has failed stays so, and its driver hears that it left.
    pub(crate) fn become_left(&mut self) {
        self.save_committed();
        if self.phase() != Phase::Failed {
            self.take_no_part(Phase::Idle);
        }
        self.out.push_back(Output::Event(Event::Left));
    }

    pub(crate) fn become_evicted(&mut self) {
        self.take_no_part(Phase::Idle);
        self.out.push_back(Output::Event(Event::Evicted));
    }

    pub(crate) fn fail(&mut self, why: impl Into<Failure>) {
        if self.phase() != Phase::Failed {
            self.take_no_part(Phase::Failed);
            self.out.clear();
            self.out.push_back(Output::Event(Event::Failed(why.into())));
        }
    }

    /// From here on messages are ignored and nothing happens by time.
    fn take_no_part(&mut self, phase: Phase) {
        self.enter(phase);
        self.become_leaderless();
        self.timers.disarm_all();
    }

    /// The check that follows the one that is carried out now.
    pub(crate) fn check_again(&mut self, now: Timestamp) {
        self.timers.arm(Timer::Check, now.after(CHECK_EVERY));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Phase; 6] =
        [Phase::Idle, Phase::Joining, Phase::Primary, Phase::NonPrimary, Phase::Leaving, Phase::Failed];

    #[test]
    fn a_failed_log_is_the_end_and_may_come_at_any_time() {
        for phase in ALL {
            assert!(is_legal(phase, Phase::Failed));
            assert_eq!(is_legal(Phase::Failed, phase), phase == Phase::Failed);
        }
    }

    #[test]
    fn a_member_is_primary_by_a_view_only_and_leaves_from_there() {
        for phase in ALL {
            assert_eq!(is_legal(phase, Phase::Primary), matches!(phase, Phase::Joining | Phase::NonPrimary));
            assert_eq!(is_legal(phase, Phase::Leaving), phase == Phase::Primary);
            assert_eq!(is_legal(phase, Phase::NonPrimary), phase == Phase::Primary);
        }
    }
}
