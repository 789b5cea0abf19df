//! Sessions that read on one server and write on another: which statement may go where, and the part of the protocol that must be read
//! for that. Pure; `shell::split` owns the connections.

mod classify;
mod login;
mod reply;

pub use classify::{Class, classify};
pub use login::{Login, Opening, PROOF, offer, switch_to_native};
pub use reply::{End, Progress, Reply};
