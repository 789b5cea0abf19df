//! The index against the rules written down a second time, as data and as a scan over all pairs.

mod model;
mod rules;
mod streams;
mod versus_model;
