//! The types by which threads share state. Tests put a scheduler in its place that tries their interleavings
//! (`crates/interleavings`).

pub use std::sync::atomic;
