//! Ways to break this core on purpose. A simulator that does not notice them proves nothing (docs/testing.md).
//!
//! A group is sound until [`Group::set_mutant`](crate::Group) says otherwise, and that exists with the feature `mutants`
//! only. Without it every question below is answered `false` at compile time.

use crate::LogStore;
use crate::group::Group;

/// One broken rule. The numbers are those of docs/protocol.md, section 9.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// 1: the longest log is the best, whatever its last term.
    LongestLog,
    /// 2: an acknowledgement counts in whatever term it was given.
    AcksOfAnyTerm,
    /// 2: what members acknowledged in the last term still counts in the next one.
    AcksKept,
    /// 2: a sync counts that began before the tail was replaced.
    StaleSync,
    /// 2: what is written counts as synced.
    AckUnsynced,
    /// 2: a large entry counts as written when its first piece is.
    AckUnwritten,
    /// 2: an entry of an older term is committed by counting who holds it (Raft, figure 8).
    OlderTermCommits,
    /// 3: nobody is handed a body that has not reached it from its origin. Safe, but not live.
    BodiesWithheld,
    /// 4: what was ordered already is ordered again.
    Duplicates,
    /// 6: nobody ever stands for election. Safe, but not live.
    NeverStands,
    /// 8: a voter change is decided by the new voters alone.
    NewVotersAlone,
    /// 13: which branch of a history a log or a message belongs to is not looked at.
    ForkMerged,
    /// 12: the new incarnation of a node enters beside the old one.
    TwoIncarnations,
    /// 12: a log that ends below what its peers have heard acknowledged counts as evidence all the same.
    ShortLogVotes,
    /// 12: a member forgets at a start that the voters in its log may be those of then.
    VotersForgotten,
    /// 14: an arbitrator leads although it has dropped what the others lack.
    ArbitratorForgets,
    /// 15: a switch to mode `disk` is acknowledged before it is synced.
    SwitchUnsynced,
    /// 16: a log that may have lost its end with the power counts as evidence of what was committed.
    SuspectVotes,
    /// 16: in mode `process` the beginning of a term is not synced either.
    TermUnsynced,
    /// 16: a log whose end another branch takes the place of stays evidence of its own branch until the fork is in it.
    ForkUnsuspected,
    /// 18: where the data of the members are is not looked at.
    DataIgnored,
    /// 23: after giving up, the same session gives the same numbers again.
    SessionKept,
    /// 22, 23: what was sent is withdrawn too, and its numbers are given again.
    WithdrawSent,
    /// 25: a read is sent to the committed position, not to the assigned one.
    ReadCommitted,
    /// 25: a read is answered without asking whether this is still the sequencer.
    ReadWithoutRound,
    /// 35: whoever is linked is believed, whatever it says.
    StrangerBelieved,
    /// 35: log and data are given up for anybody.
    StrangerOverrules,
    /// 35: any term is taken over.
    TermsUnbounded,
    /// 35: a voter whose term was raised alone is not let in again. Safe, but not live.
    DrivenUpStaysOut,
    /// 35: a member does not follow the terms of a majority beyond the bound. Safe, but not live.
    AwayStaysOut,
    /// 35: a newcomer has the weight that it asks for at once.
    HeavyNewcomer,
    /// 32: a log is replaced although it could still replay what the engine does not have on disk.
    ReplayDropped,
    /// 34: what was known to be committed stays known behind a fork below it.
    MarksOverFork,
    /// 36: an entry is written that no reader of the log accepts.
    UnreadableWritten,
    /// 37: the group level rises without those that do not support it.
    LevelAlone,
    /// 38: a message that proves its sender a liar is handled like any other.
    ViolatorKept,
}

#[cfg(feature = "mutants")]
impl Mutant {
    pub const ALL: &'static [Mutant] = &[
        Mutant::LongestLog,
        Mutant::AcksOfAnyTerm,
        Mutant::AcksKept,
        Mutant::StaleSync,
        Mutant::AckUnsynced,
        Mutant::AckUnwritten,
        Mutant::OlderTermCommits,
        Mutant::BodiesWithheld,
        Mutant::Duplicates,
        Mutant::NeverStands,
        Mutant::NewVotersAlone,
        Mutant::TwoIncarnations,
        Mutant::ShortLogVotes,
        Mutant::VotersForgotten,
        Mutant::ForkMerged,
        Mutant::ArbitratorForgets,
        Mutant::SwitchUnsynced,
        Mutant::SuspectVotes,
        Mutant::TermUnsynced,
        Mutant::ForkUnsuspected,
        Mutant::DataIgnored,
        Mutant::SessionKept,
        Mutant::WithdrawSent,
        Mutant::ReadCommitted,
        Mutant::ReadWithoutRound,
        Mutant::StrangerBelieved,
        Mutant::StrangerOverrules,
        Mutant::TermsUnbounded,
        Mutant::DrivenUpStaysOut,
        Mutant::AwayStaysOut,
        Mutant::HeavyNewcomer,
        Mutant::ReplayDropped,
        Mutant::MarksOverFork,
        Mutant::UnreadableWritten,
        Mutant::LevelAlone,
        Mutant::ViolatorKept,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Mutant::LongestLog => "longest-log",
            Mutant::AcksOfAnyTerm => "acks-of-any-term",
            Mutant::AcksKept => "acks-kept",
            Mutant::StaleSync => "stale-sync",
            Mutant::AckUnsynced => "ack-unsynced",
            Mutant::AckUnwritten => "ack-unwritten",
            Mutant::OlderTermCommits => "older-term-commits",
            Mutant::BodiesWithheld => "bodies-withheld",
            Mutant::Duplicates => "duplicates",
            Mutant::NeverStands => "never-stands",
            Mutant::NewVotersAlone => "new-voters-alone",
            Mutant::ForkMerged => "fork-merged",
            Mutant::TwoIncarnations => "two-incarnations",
            Mutant::ShortLogVotes => "short-log-votes",
            Mutant::VotersForgotten => "voters-forgotten",
            Mutant::ArbitratorForgets => "arbitrator-forgets",
            Mutant::SwitchUnsynced => "switch-unsynced",
            Mutant::SuspectVotes => "suspect-votes",
            Mutant::TermUnsynced => "term-unsynced",
            Mutant::ForkUnsuspected => "fork-unsuspected",
            Mutant::DataIgnored => "data-ignored",
            Mutant::SessionKept => "session-kept",
            Mutant::WithdrawSent => "withdraw-sent",
            Mutant::ReadCommitted => "read-committed",
            Mutant::ReadWithoutRound => "read-without-round",
            Mutant::StrangerBelieved => "stranger-believed",
            Mutant::StrangerOverrules => "stranger-overrules",
            Mutant::TermsUnbounded => "terms-unbounded",
            Mutant::DrivenUpStaysOut => "driven-up-stays-out",
            Mutant::AwayStaysOut => "away-stays-out",
            Mutant::HeavyNewcomer => "heavy-newcomer",
            Mutant::ReplayDropped => "replay-dropped",
            Mutant::MarksOverFork => "marks-over-fork",
            Mutant::UnreadableWritten => "unreadable-written",
            Mutant::LevelAlone => "level-alone",
            Mutant::ViolatorKept => "violator-kept",
        }
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
