//! Ways to break these decisions on purpose. A simulator that does not notice them proves nothing (docs/testing.md).
//!
//! A replicator is sound until [`Replicator::set_mutant`](crate::Replicator) says otherwise, and so is a [`Flow`]. That exists with the
//! feature `mutants` only. Without it every question below is answered `false` at compile time.

use crate::Replicator;
use crate::flow::Flow;

trireme_types::named! {
    /// One broken rule. The numbers are those of docs/protocol.md, section 9.
    pub enum Mutant {
        /// 24: whoever orders leaves a member that lags out of its own cut at once, and does not order that.
        LagUnordered = "lag-unordered",
        /// 26: data from before another member went on from half done ones are gone on with.
        OvertakenTrusted = "overtaken-trusted",
        /// 26: a member goes on from half done data although a voter is absent that may have whole ones.
        GoesOnEarly = "goes-on-early",
        /// 28: what the data held when they were found is not compared with what the group has decided.
        ContradictionIgnored = "contradiction-ignored",
        /// 28: a vote does not wait for members that have not said yet whether they have data.
        NewcomersUnasked = "newcomers-unasked",
        /// 28: a member that comes back says nothing of the votes that began while nobody could hear it.
        OpenVotesIgnored = "open-votes-ignored",
        /// 33: a copy is good for whatever log it meets.
        CopyUnchecked = "copy-unchecked",
        /// The log of a server that waits for its data goes on growing when its disk has no room.
        RoomIgnored = "room-ignored",
        /// Flow control: a stop that is not heard again stays in force.
        StopNeverExpires = "stop-never-expires",
        /// Flow control: a stop in force is not said again.
        StopSaidOnce = "stop-said-once",
        /// Flow control: the end of a stop is not said.
        GoNeverSaid = "go-never-said",
        /// Flow control: a member that applies nothing asks for a stop without end.
        NeverGivesUp = "never-gives-up",
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
