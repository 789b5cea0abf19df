//! The work of the clients.

mod bank;
mod list_append;

pub(crate) use bank::Bank;
pub(crate) use list_append::ListAppend;

use trireme_cluster::Dice;
use trireme_cluster::{Answer, Session, SqlError};
use trireme_history::Body;

/// Schema of all tables.
pub(crate) const SCHEMA: &str = "chaos";

/// Why an operation did not end well.
#[derive(Debug)]
pub(crate) struct Failure {
    pub error: SqlError,
    /// Whether the server had been asked to commit.
    pub at: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Nothing can have happened.
    BeforeCommit,
    AtCommit,
}

/// Shared by all clients.
pub(crate) trait Work: Send + Sync {
    /// Tables and their first rows.
    fn prepare(&self, session: &mut Session) -> Result<(), SqlError>;
    /// The next operation of a client: what is to be done, answers open.
    fn next(&self, dice: &mut Dice) -> Body;
    /// Does it, and fills the answers in.
    fn run(&self, session: &mut Session, body: &mut Body) -> Result<(), Failure>;
    /// Reads everything there is, when all is over.
    fn last(&self, session: &mut Session) -> Result<Body, SqlError>;
}

/// A statement of an open transaction.
fn early(session: &mut Session, sql: &str) -> Result<Answer, Failure> {
    session.query(sql).map_err(|error| Failure { error, at: Moment::BeforeCommit })
}

/// A statement after which the work is done.
fn commit(session: &mut Session, sql: &str) -> Result<Answer, Failure> {
    session.query(sql).map_err(|error| Failure { error, at: Moment::AtCommit })
}
