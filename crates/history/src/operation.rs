//! Operations and their outcomes.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Of the file: a reader refuses others.
pub const FORMAT: u32 = 1;

/// Microseconds since the run began, by one monotonic clock for all clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub u64);

/// Names a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(pub u64);

/// The element that is appended; never twice in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Element(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Account(pub u32);

/// Names a transfer of money; never twice in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TransferId(pub u64);

/// Place of an operation in [`History::operations`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OpId(pub usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The client was told that it is done.
    Ok,
    /// The client was told that nothing happened, or never asked for the commit.
    Failed,
    /// The answer leaves both open, or there was none.
    Unknown,
}

/// One action inside a list-append transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    Append(Key, Element),
    /// `None`: the transaction did not get that far.
    Read(Key, Option<Vec<Element>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    pub id: TransferId,
    pub from: Account,
    pub to: Account,
    pub amount: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Body {
    Transaction(Vec<Step>),
    Transfer(Transfer),
    /// All accounts in one read. Empty if there was no answer.
    Balances(Vec<(Account, i64)>),
    /// All accounts and the list of all transfers, read together when the run is over.
    Ledger {
        balances: Vec<(Account, i64)>,
        transfers: Vec<Transfer>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// The client. It does one thing after the other, always on the same node.
    pub process: u32,
    /// The node that was asked, from 1 on.
    pub node: u8,
    pub invoked: Micros,
    /// `None`: no answer came, so the operation may still take effect at any later time.
    pub completed: Option<Micros>,
    pub outcome: Outcome,
    /// The client's error when it was not done.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// One of the reads after everything has ended, which show what is left of a key, or of all money.
    #[serde(rename = "final", skip_serializing_if = "std::ops::Not::not", default)]
    pub last: bool,
    pub body: Body,
}

impl Operation {
    /// Steps of a list-append transaction; none for others.
    pub fn steps(&self) -> &[Step] {
        match &self.body {
            Body::Transaction(steps) => steps,
            Body::Transfer(_) | Body::Balances(_) | Body::Ledger { .. } => &[],
        }
    }

    /// Whether it would change data.
    pub fn writes(&self) -> bool {
        match &self.body {
            Body::Transaction(steps) => steps.iter().any(|step| matches!(step, Step::Append(..))),
            Body::Transfer(_) => true,
            Body::Balances(_) | Body::Ledger { .. } => false,
        }
    }
}

/// The isolation that the sessions of the run asked of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    ReadCommitted,
    /// The server's default. Reads see a snapshot, writes the newest version: what lies between the two is not noticed.
    RepeatableRead,
    /// `REPEATABLE READ` with `innodb_snapshot_isolation=ON`: a write to what the snapshot does not show is refused.
    Snapshot,
    /// Reads lock, on the node where they run.
    Serializable,
}

impl Isolation {
    pub const ALL: [Isolation; 4] =
        [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Snapshot, Isolation::Serializable];
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isolation::ReadCommitted => "read-committed",
            Isolation::RepeatableRead => "repeatable-read",
            Isolation::Snapshot => "snapshot",
            Isolation::Serializable => "serializable",
        })
    }
}

impl FromStr for Isolation {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Isolation::ALL
            .into_iter()
            .find(|level| level.to_string() == text)
            .ok_or_else(|| format!("`{text}` is no level: read-committed, repeatable-read, snapshot or serializable"))
    }
}

/// The rules for the money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BankRules {
    /// Every account begins with so much.
    pub initial: i64,
    pub accounts: u32,
    pub negative_allowed: bool,
}

impl BankRules {
    pub fn total(&self) -> i64 {
        self.initial * i64::from(self.accounts)
    }
}

/// The first line of a file: what was promised, and what ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub format: u32,
    pub isolation: Isolation,
    /// Reads wait for everything that was acknowledged before (`wsrep_sync_wait`), so a stale one counts.
    pub causal: bool,
    /// One plain server without a cluster.
    #[serde(default)]
    pub single: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bank: Option<BankRules>,
    /// For the reader: provider, workload, faults, seed.
    #[serde(default)]
    pub about: String,
}

impl Header {
    pub fn new(isolation: Isolation) -> Header {
        Header { format: FORMAT, isolation, causal: false, single: false, bank: None, about: String::new() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    pub header: Header,
    pub operations: Vec<Operation>,
}

impl History {
    pub(crate) fn each(&self) -> impl Iterator<Item = (OpId, &Operation)> {
        self.operations.iter().enumerate().map(|(i, operation)| (OpId(i), operation))
    }

    pub(crate) fn get(&self, id: OpId) -> &Operation {
        &self.operations[id.0]
    }
}
