//! Invariants: they hold after every input, whatever it was. Checked in builds with debug assertions: tests, fuzz targets, the simulator, and the
//! library that chaos runs are made with.
//!
//! A rule here is a promise of the code to itself: it may depend on nothing that a peer or a driver says.

use trireme_types::Seqno;

use crate::LogStore;
use crate::Phase;
use crate::group::Group;
use crate::role::Role;
use crate::standing::Standing;
use crate::timers::Timer;

impl<S: LogStore> Group<S> {
    /// **Panics:** when an invariant is broken, in builds with debug assertions. In others it does nothing.
    pub(crate) fn check_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        self.check_phase_and_role();
        self.check_timers();
        if self.phase() == Phase::Failed {
            return;
        }
        self.check_log();
        self.proposals.check();
        self.check_standing();
    }

    /// Positions, from what is delivered to what is promised.
    fn check_log(&self) {
        assert!(self.done.index <= self.commit, "delivered beyond the committed position");
        assert!(self.commit <= self.own.tail().index, "committed beyond the log");
        self.own.check();
        let held = self.held().max(self.own.store().base().index);
        assert!(self.commit <= held, "committed beyond what is held");
        self.era.check(self.me(), self.own.tail().index, self.own.term());
    }

    fn check_phase_and_role(&self) {
        let me = self.me();
        match self.role() {
            Role::Follower { of } => assert_ne!(*of, Some(me), "it orders without the role"),
            Role::PreCandidate(_) => {}
            Role::Candidate(_) => assert_eq!(self.own.voted_for(), me, "it stands and has voted for another"),
            Role::Sequencer(_) => {
                assert_eq!(self.own.voted_for(), me, "it orders and has voted for another");
                assert_eq!(self.era.term(), self.own.term(), "it orders in a term that is over");
                assert_eq!(self.era.branch(), self.own.tail().branch(), "it orders on a branch that is not its own");
            }
        }
        match self.phase() {
            Phase::Idle | Phase::Failed => {
                assert!(matches!(self.role(), Role::Follower { of: None }), "a role although it takes no part");
            }
            Phase::Joining | Phase::Primary | Phase::NonPrimary | Phase::Leaving => {}
        }
        if matches!(self.phase(), Phase::Primary | Phase::Leaving) {
            let inside = self.done.view.get(me).is_some_and(|m| m.incarnation == self.cfg.me.incarnation);
            assert!(inside, "primary, and not in the view");
        }
    }

    fn check_timers(&self) {
        if !self.running() {
            assert_eq!(self.timers.next(), None, "a timer is armed although it takes no part");
            return;
        }
        let orders = self.leads();
        assert!(self.timers.is_armed(Timer::Check), "nothing would ever be checked again");
        assert_eq!(orders, self.timers.is_armed(Timer::Heartbeat), "heartbeats are the sequencer's");
        assert!(!orders || !self.timers.is_armed(Timer::Election), "a sequencer waits for an election");
        assert_eq!(self.phase() == Phase::Leaving, self.timers.is_armed(Timer::Linger), "linger is for leaving");
    }

    /// Log and data are as the standing says that they may be.
    fn check_standing(&self) {
        match self.standing() {
            Standing::Keeps | Standing::OutOfReach | Standing::Diverged { .. } => {}
            Standing::GivesWay { .. } => {
                assert!(!self.leads(), "it gives way and orders");
            }
            Standing::Discarded { .. } => {
                assert!(!self.data.stocked && self.data.position.is_none(), "its data are void and count");
                assert_eq!(self.data.applied, Seqno::ZERO, "its data are void and count");
                assert!(!self.leads(), "it orders with a log that is to be replaced");
            }
        }
        assert!(
            !(self.suspicion.plans_repair() || self.own.store().is_outdated()) || self.own.store().suspect().is_some(),
            "a log that is whole is to be repaired, or is outdated"
        );
        assert!(!self.data.stocked || !self.arbitrates(), "an arbitrator with data");
    }
}
