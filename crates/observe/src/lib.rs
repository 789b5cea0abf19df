//! The account that a cluster gives of itself, and its meaning.
//!
//! Pure: [`batch`] (what the client program printed), [`facts`] (one server's answers), [`survey`] (whom to ask next), [`cluster`] (all
//! answers together), [`verdict`] (in words), [`table`] and [`status`] (how it is shown). [`client`] runs the `mariadb` client, and decides
//! nothing. [`monitor`] is what one node says of itself; [`station`] what a monitor knows of all of them: [`overview`] at this moment,
//! [`series`] over time, [`changes`] between two moments, and [`dashboard`] the page on it. [`lines`] says what lines of an error log ([`errorlog`]) mean, for [`explain`].
//!
//! **Invariant:** nothing here changes a server, but for `repl.status_extended`, which decides what a node tells and nothing else.

#![forbid(unsafe_code)]

pub mod batch;
pub mod bundle;
pub mod changes;
pub mod client;
pub mod cluster;
pub mod dashboard;
pub mod doctor;
pub mod errorlog;
pub mod examine;
pub mod explain;
pub mod facts;
pub mod flight;
pub mod lines;
pub mod monitor;
pub mod outage;
pub mod overview;
pub mod series;
pub mod station;
pub mod status;
pub mod survey;
pub mod table;
pub mod verdict;

pub use client::Connect;
