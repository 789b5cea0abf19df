//! Checkers. They see what nodes deliver, what lands in logs, and what clients were told; never what the core concludes
//! about itself.

mod clients;
mod history;
mod logs;

pub use clients::{Clients, Outcome, ReadRecord, Share};
pub use history::{Delivered, Histories, What};
pub use logs::Logs;
