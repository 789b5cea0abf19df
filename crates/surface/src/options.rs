//! Provider options: the table, the option string, values at start and at run time.
//!
//! Life of the values: [`Options::new`] fills in defaults, [`Options::set_at_start`] takes the configured string,
//! [`Options::set_from_uri`] the options in the cluster address. [`Options::print`] is what the server shows.
//!
//! `SET GLOBAL wsrep_provider_options` goes through three steps: [`text::pairs`], and for each pair [`Options::check_runtime`] and
//! [`Options::store`]. Between these two the caller puts the change into effect, without a lock on the options: a change of the weight waits
//! for its delivery.

#[cfg(test)]
mod page;
mod store;
mod table;
pub mod text;
pub mod value;

pub use store::{Change, Defaults, OptionError, Options};
pub use table::{Kind, Spec, TABLE, When, spec};
