//! Provider options: the table, the option string, values at start and at run time.
//!
//! Life of the values: [`Options::new`] fills in defaults, [`Options::set_at_start`] takes the configured string,
//! [`Options::set_from_uri`] the options in the cluster address, and [`Options::set_runtime`] what
//! `SET GLOBAL wsrep_provider_options` brings. [`Options::print`] is what the server shows.
//!
//! A caller that must not hold a lock while a change takes effect (a weight change waits for its delivery) uses the three
//! steps of `set_runtime` by themselves: [`text::pairs`], [`Options::check_runtime`], [`Options::store`].

#[cfg(test)]
mod page;
mod store;
mod table;
pub mod text;
pub mod value;

pub use store::{Change, Defaults, OptionError, Options};
pub use table::{Kind, Spec, TABLE, When, spec};
