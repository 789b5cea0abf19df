//! The log from outside. One program: each that opens a log compiles it once more for its disks.

mod branches;
mod devices;
mod directory;
mod failed_sync;
mod format_before;
mod model;
mod past_cache;
mod sealed;
mod support;
