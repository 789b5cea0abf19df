//! The decisions that members compute from the ordered history: who is in which state, who gives a copy to whom, the commit
//! cut and votes; and those that a member makes for itself by what it knows, without asking anybody.
//!
//! **Invariant:** no socket, thread, clock, lock or randomness; time is an argument, effects are values. So the simulator runs the same
//! code as a node.
#![forbid(unsafe_code)]

pub mod absent;
pub mod applying;
pub mod desyncs;
pub mod failures;
pub mod feed;
pub mod flow;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod message;
mod mutant;
pub mod position;
pub mod progress;
pub mod proposals;
mod replicator;
pub mod retention;
pub mod roster;
pub mod victim;
pub mod votes;

pub use failures::Failures;
pub use feed::{Feed, Offer, Position, Start};
#[cfg(feature = "mutants")]
pub use mutant::Mutant;
pub use replicator::{Bounds, Connect, Effect, NoDonor, Replicator, Severity, Sight};

/// With the features `fuzzing` or `mutants`, which no server needs.
pub const TEST_BUILD: bool = cfg!(feature = "fuzzing") || cfg!(feature = "mutants");
