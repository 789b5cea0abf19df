//! `libtrireme.so`: the exported edge of the provider.
//!
//! Translation only. Every entry point has the same shape: the panic boundary ([`boundary`]), null checks and conversion
//! ([`convert`]), one call on the node, the result as a number. The other direction, calls into the server, is [`server`].
//! `README.md` has the panic policy and the table of pointers that cross the edge.
//!
//! With `wsrep-sys` (declarations), this is where `unsafe` lives. Each block names the clause of the interface's contract
//! that it relies on. The clauses:
//!
//! * **table**: the server calls an entry with the `wsrep_t` that it got from `wsrep_loader`, valid until unloading, and calls
//!   no entry before `wsrep_loader` nor after the last `free`.
//! * **ctx**: `wsrep_t::ctx` is the provider's; nobody else writes it. `free` is called when no other entry is running.
//! * **argument**: pointers given to an entry are null or valid for its duration; buffers are readable for their stated length,
//!   strings end in NUL, out-parameters are writable and belong to the caller alone.
//! * **callback**: function pointers and `app_ctx` given to `init` stay valid until `free` returns; callbacks do not keep the
//!   pointers that they get.
//! * **malloc**: what the other side frees comes from `malloc(3)`, and what it hands over for freeing does too.
#![deny(clippy::undocumented_unsafe_blocks)]

mod boundary;
mod convert;
mod engine;
mod entry;
mod executable;
mod gate;
mod loader;
mod offered;
mod server;
mod services;
mod stats;
mod sync;
