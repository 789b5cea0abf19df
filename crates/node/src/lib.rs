//! One cluster member: the shell around the pure crates. Owns the threads, the commit order, the appliers, state
//! transfer and the status variables.
#![forbid(unsafe_op_in_unsafe_fn)]

mod api;
mod node;

pub use api::*;
pub use node::Node;
