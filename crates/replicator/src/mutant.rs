//! Ways to break these decisions on purpose. A simulator that does not notice them proves nothing (docs/testing.md).
//!
//! A replicator is sound until [`Replicator::set_mutant`](crate::Replicator) says otherwise, and so is a [`Flow`]. That exists with the
//! feature `mutants` only. Without it every question below is answered `false` at compile time.

use crate::Replicator;
use crate::flow::Flow;

/// One broken rule. The numbers are those of docs/protocol.md, section 9.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// 24: whoever orders leaves a member that lags out of its own cut at once, and does not order that.
    LagUnordered,
    /// 26: data from before another member went on from half done ones are gone on with.
    OvertakenTrusted,
    /// 26: a member goes on from half done data although a voter is absent that may have whole ones.
    GoesOnEarly,
    /// 28: what the data held when they were found is not compared with what the group has decided.
    ContradictionIgnored,
    /// 28: a vote does not wait for members that have not said yet whether they have data.
    NewcomersUnasked,
    /// 33: a copy is good for whatever log it meets.
    CopyUnchecked,
    /// Flow control: a stop that is not heard again stays in force.
    StopNeverExpires,
    /// Flow control: a stop in force is not said again.
    StopSaidOnce,
    /// Flow control: the end of a stop is not said.
    GoNeverSaid,
    /// Flow control: a member that applies nothing asks for a stop without end.
    NeverGivesUp,
}

#[cfg(feature = "mutants")]
impl Mutant {
    pub const ALL: &'static [Mutant] = &[
        Mutant::LagUnordered,
        Mutant::OvertakenTrusted,
        Mutant::GoesOnEarly,
        Mutant::ContradictionIgnored,
        Mutant::NewcomersUnasked,
        Mutant::CopyUnchecked,
        Mutant::StopNeverExpires,
        Mutant::StopSaidOnce,
        Mutant::GoNeverSaid,
        Mutant::NeverGivesUp,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Mutant::LagUnordered => "lag-unordered",
            Mutant::OvertakenTrusted => "overtaken-trusted",
            Mutant::GoesOnEarly => "goes-on-early",
            Mutant::ContradictionIgnored => "contradiction-ignored",
            Mutant::NewcomersUnasked => "newcomers-unasked",
            Mutant::CopyUnchecked => "copy-unchecked",
            Mutant::StopNeverExpires => "stop-never-expires",
            Mutant::StopSaidOnce => "stop-said-once",
            Mutant::GoNeverSaid => "go-never-said",
            Mutant::NeverGivesUp => "never-gives-up",
        }
    }
}

/// The two questions of everything that can be broken on purpose.
macro_rules! breakable {
    ($($what:ty),*) => {$(
        impl $what {
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
    )*};
}

breakable!(Replicator, Flow);
