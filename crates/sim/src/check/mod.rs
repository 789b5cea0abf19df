//! Checkers. They see the deliveries of nodes, the entries in logs, and the answers to clients. They never see the conclusions of the core
//! about itself.

mod branches;
mod clients;
mod history;
mod isolation;
mod logs;
mod losses;
mod streams;

pub use branches::Branches;
pub use clients::{Clients, Outcome, ReadRecord, Share};
pub use history::{Delivered, Histories, What};
pub use isolation::{Isolation, Judged};
pub use logs::Logs;
pub use losses::{Losses, Reach};
pub use streams::Streams;
