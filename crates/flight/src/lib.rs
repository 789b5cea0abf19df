//! The flight recorder: what happened to a node, in a bounded file that outlives the process.
//!
//! [`event`] says what can happen, [`record`] how that is written, [`ring`] keeps the file, [`reading`] takes a file apart, and [`timeline`]
//! puts the files of all nodes on one time line. [`recorder`] is the way from the threads of a node to the one that writes.
//!
//! **Invariant:** noting takes no lock, makes no system call and cannot fail; what does not fit is dropped and counted. Nothing that is in a
//! file can panic its reader.

#![forbid(unsafe_code)]

pub mod event;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod keeper;
pub mod reading;
pub mod record;
pub mod recorder;
pub mod ring;
pub mod timeline;

pub use event::{Event, Fact, Topic};
pub use keeper::Keeper;
pub use reading::{Bad, Reading};
pub use record::Record;
pub use recorder::{Incoming, Recorder};
pub use ring::{FILE_NAME, Identity, Ring};
pub use timeline::{Lane, Timeline};
