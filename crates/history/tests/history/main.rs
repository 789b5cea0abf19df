//! The checker: every class of anomaly found, nothing found in correct histories.

mod anomalies;
mod bank;
mod model;
mod support;
