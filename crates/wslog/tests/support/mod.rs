//! For several tests of the log. Each takes what it needs.
#![allow(dead_code)]

pub mod dir;
pub mod entries;
