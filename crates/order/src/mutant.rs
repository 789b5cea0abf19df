//! Ways to break this core on purpose. A simulator that does not notice them proves nothing (docs/testing.md).
//!
//! A group is sound until [`Group::set_mutant`](crate::Group) says otherwise, and that exists with the feature `mutants`
//! only. Without it every question below is answered `false` at compile time.

use crate::LogStore;
use crate::group::Group;

trireme_types::named! {
    /// One broken rule. The numbers are those of docs/protocol.md, section 9.
    pub enum Mutant {
        /// 1: the longest log is the best, whatever its last term.
        LongestLog = "longest-log",
        /// 2: an acknowledgement counts in whatever term it was given.
        AcksOfAnyTerm = "acks-of-any-term",
        /// 2: what members acknowledged in the last term still counts in the next one.
        AcksKept = "acks-kept",
        /// 2: a sync counts that began before the tail was replaced.
        StaleSync = "stale-sync",
        /// 2: what is written counts as synced.
        AckUnsynced = "ack-unsynced",
        /// 2: a large entry counts as written when its first piece is.
        AckUnwritten = "ack-unwritten",
        /// 2: an entry of an older term is committed by counting who holds it (Raft, figure 8).
        OlderTermCommits = "older-term-commits",
        /// 3: nobody is handed a body that has not reached it from its origin. Safe, but not live.
        BodiesWithheld = "bodies-withheld",
        /// 4: what was ordered already is ordered again.
        Duplicates = "duplicates",
        /// 6: nobody ever stands for election. Safe, but not live.
        NeverStands = "never-stands",
        /// 8: a voter change is decided by the new voters alone.
        NewVotersAlone = "new-voters-alone",
        /// 13: which branch of a history a log or a message belongs to is not looked at.
        ForkMerged = "fork-merged",
        /// 12: the new incarnation of a node enters beside the old one.
        TwoIncarnations = "two-incarnations",
        /// 12: a log that ends below what its peers have heard acknowledged counts as evidence all the same.
        ShortLogVotes = "short-log-votes",
        /// 12: a member forgets at a start that the voters in its log may be those of then.
        VotersForgotten = "voters-forgotten",
        /// 14: an arbitrator leads although it has dropped what the others lack.
        ArbitratorForgets = "arbitrator-forgets",
        /// 15: a switch to mode `disk` is acknowledged before it is synced.
        SwitchUnsynced = "switch-unsynced",
        /// 15: after a switch to mode `disk` the log goes on saying `process` until a sync leaves nothing unsynced.
        ProcessKept = "process-kept",
        /// 16: a log that may have lost its end with the power counts as evidence of what was committed.
        SuspectVotes = "suspect-votes",
        /// 16: in mode `process` the beginning of a term is not synced either.
        TermUnsynced = "term-unsynced",
        /// 16: a log whose end another branch takes the place of stays evidence of its own branch until the fork is in it.
        ForkUnsuspected = "fork-unsuspected",
        /// 18: where the data of the members are is not looked at.
        DataIgnored = "data-ignored",
        /// 23: after giving up, the same session gives the same numbers again.
        SessionKept = "session-kept",
        /// 22, 23: what was sent is withdrawn too, and its numbers are given again.
        WithdrawSent = "withdraw-sent",
        /// 25: a read is sent to the committed position, not to the assigned one.
        ReadCommitted = "read-committed",
        /// 25: a read is answered without asking whether this is still the sequencer.
        ReadWithoutRound = "read-without-round",
        /// 35: whoever is linked is believed, whatever it says.
        StrangerBelieved = "stranger-believed",
        /// 35: log and data are given up for anybody.
        StrangerOverrules = "stranger-overrules",
        /// 35: any term is taken over.
        TermsUnbounded = "terms-unbounded",
        /// 35: a voter whose term was raised alone is not let in again. Safe, but not live.
        DrivenUpStaysOut = "driven-up-stays-out",
        /// 35: a member does not follow the terms of a majority beyond the bound. Safe, but not live.
        AwayStaysOut = "away-stays-out",
        /// 35: a newcomer has the weight that it asks for at once.
        HeavyNewcomer = "heavy-newcomer",
        /// 32: a log is replaced although it could still replay what the engine does not have on disk.
        ReplayDropped = "replay-dropped",
        /// 34: what was known to be committed stays known behind a fork below it.
        MarksOverFork = "marks-over-fork",
        /// 36: an entry is written that no reader of the log accepts.
        UnreadableWritten = "unreadable-written",
        /// 37: the group level rises without those that do not support it.
        LevelAlone = "level-alone",
        /// 38: a message that proves its sender a liar is handled like any other.
        ViolatorKept = "violator-kept",
    }
}

impl<S: LogStore> Group<S> {
    /// From now on this member is broken.
    #[cfg(feature = "mutants")]
    pub fn set_mutant(&mut self, mutant: Option<Mutant>) {
        self.mutant = mutant;
    }

    #[cfg(feature = "mutants")]
    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    pub(crate) fn is(&self, _mutant: Mutant) -> bool {
        false
    }
}
