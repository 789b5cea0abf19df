//! The wsrep API, version 26, as Rust declarations: what a MariaDB server and a replication provider agree on in memory.
//!
//! Declarations only; there is no behaviour here. Written from the interface's contract, and held to a C compiler's opinion
//! twice: by the `const` assertions of [`layout`] and by `tests/c-host/layout.c`, which prints what a C compiler makes of the
//! same structures.
//!
//! Conventions:
//! * C enums are `c_int` with named constants, never a Rust `enum`: the other side may store any number in them, and an
//!   unlisted value in a Rust `enum` is undefined behaviour.
//! * Every function pointer is an `Option`, because the null pointer is a legal value of all of them.
//! * Entry points that a provider fills in are `extern "C"`: a panic that reaches one ends the process. Callbacks into the
//!   server are `extern "C-unwind"`, because the server is C++ and may throw; with plain `"C"` that would be undefined.
#![no_std]

mod constants;
mod layout;
mod services;
mod table;
mod values;

pub use constants::*;
pub use services::*;
pub use table::*;
pub use values::*;
