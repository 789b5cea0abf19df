//! For several tests of the log.

pub mod dir;
pub mod entries;
