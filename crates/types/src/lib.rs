//! The words everything else speaks: ids, positions, members, log entries.
//!
//! No behaviour beyond parsing, printing and small pure functions, no I/O, no clock. See `docs/glossary.md` for the meaning of each term.
#![forbid(unsafe_code)]

mod codec;
mod entry;
mod ids;
mod level;
mod lineage;
mod member;
mod named;
mod panic_text;
mod printable;
mod splitmix;

pub use codec::{DecodeError, Reader, Writer};
pub use entry::{Base, Choice, Entry, EntryHeader, EntryKind, HardState, SessionMark, Voter, VoterSet};
pub use ids::{
    Incarnation, LogIndex, NUMBER_MAX, NodeId, ProposalNumber, Seqno, Session, TERM_MAX, Term, Timestamp, Uuid, Weight,
};
pub use level::{Level, Levels, Setting};
pub use lineage::{Fork, Kinship, Lineage};
pub use member::{Durability, Member, MemberKind, View};
pub use panic_text::panic_text;
pub use printable::printable;
pub use splitmix::{SplitMix, mix};
