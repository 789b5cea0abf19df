//! The provider once more, as it is built with the tests: the example `trireme_checked`, from the sources of `crates/provider`.
//!
//! It has debug assertions, so a node checks its invariants after every input, and it panics where a test asks for it. It shares all other crates
//! with the tests, features included: nothing but the edge is compiled for it. It says TEST BUILD in its version, and is never installed.
#![forbid(unsafe_code)]
