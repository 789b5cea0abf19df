//! The durable segmented write-set log: what a member keeps before it acknowledges (operators know the role as gcache).
//!
//! [`WriteSetLog`] implements [`trireme_order::LogStore`] over a [`Storage`]: a real directory ([`DirStorage`]) or the
//! simulator's disk ([`SimDisk`]) that loses, tears and damages what was not synced. The bytes of every file, and the rules by
//! which recovery judges them, are in `docs/wslog-format.md`.
//!
//! **Invariant:** nothing is ever rewritten in place except by bytes that are equal, and no file is mapped into memory: a full
//! disk is an error and never a signal, and whatever was synced before an error stays readable after it.
#![deny(unsafe_code)] // but for the file of io_uring

mod checkpoint;
mod dir;
mod direct;
mod error;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod index;
pub mod inspect;
mod log;
mod meta;
mod names;
mod options;
mod reader;
mod recovery;
mod retention;
mod scan;
mod seal;
mod simdisk;
mod storage;
mod sync;
mod tail;
mod term;
mod uring;
mod wish;

pub use dir::{DirFile, DirLock, DirStorage, WriteWatch};
pub use direct::{DirectWriter, PAGE, Pages};
pub use error::{InClearText, NoDirectWriter};
pub use format::RECORD_PAYLOAD_MAX;
pub use log::WriteSetLog;
pub use options::{BOOT_ID_MAX, IndexRange, OpenReport, Options, Trim, read_boot_id};
pub use reader::LogReader;
pub use seal::{KEY_BYTES, KeyId, LogKeys};
pub use simdisk::{Faults, SimDisk, SimFile, SimLock, SimWriter};
pub use storage::{Storage, StorageFile};
pub use sync::{SpareReady, SpareTicket, SyncTicket, Synced};
pub use term::raise_term;
pub use uring::RingWriter;
pub use wish::{TrimAnswer, TrimWish};

/// With the feature `fuzzing`, which no server needs.
pub const TEST_BUILD: bool = cfg!(feature = "fuzzing");
