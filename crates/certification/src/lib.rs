//! Write sets and the verdict on them: which transactions may commit, and what an applier must wait for.
//!
//! [`WriteSetBuilder`] turns keys and data of one transaction into the body of an ordered entry, [`WriteSet`] reads such a body, and
//! [`Certifier`] judges write sets in their order. A verdict is a function of the history and of the ordered cut alone, so every member
//! reaches the same one without talking about it.
//!
//! **Invariant:** no clock, no randomness, no hash-map iteration order, no lock and no I/O reaches a verdict.
#![forbid(unsafe_code)]

mod index;
mod key;
mod records;
mod snapshot;
mod writeset;

pub use index::{Certifier, Conflict, Failure, Found, Stream, Verdict};
pub use key::{KeyError, KeyKind, MAX_KEY_PARTS};
pub use writeset::{Encoded, Head, KeyGroup, WriteSet, WriteSetBuilder, flags};
