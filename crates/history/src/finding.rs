//! The anomalies that were found, and whether they count.

use crate::operation::{Header, Isolation, OpId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// A kind of anomaly. The letters in the comments are those of the literature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Acknowledged, and gone at the end.
    LostWrite,
    /// A read shows what was answered "rolled back" (G1a).
    AbortedRead,
    /// A read shows an append that its transaction had not finished with (G1b).
    IntermediateRead,
    /// Nodes show different data when all is over.
    Divergence,
    /// Two reads contradict each other about the order of appends.
    IncompatibleOrder,
    /// One append, twice in a list.
    Duplicate,
    /// A read shows what nobody wrote.
    InventedValue,
    /// A transaction does not see what it has read or written itself.
    Internal,
    /// A cycle of writes alone (G0).
    WriteCycle,
    /// A cycle of writes and reads of them (G1c).
    CircularFlow,
    /// The order of the data contradicts the order of time.
    TimeTravel,
    /// Two transactions read the same version and both wrote (P4).
    LostUpdate,
    /// A snapshot with a part of another transaction's effects, or of no single time (G-single).
    ReadSkew,
    /// A cycle with two or more reads of old versions (G2-item).
    WriteSkew,
    /// A client did not see what it had seen or written before.
    SessionOrder,
    /// A read misses what was acknowledged before it began.
    StaleRead,
    /// Money has appeared or vanished.
    WrongTotal,
    NegativeBalance,
    /// Balances are not what the list of transfers adds up to.
    WrongBalance,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::LostWrite => "lost acknowledged write",
            Class::AbortedRead => "aborted read (G1a)",
            Class::IntermediateRead => "intermediate read (G1b)",
            Class::Divergence => "nodes differ",
            Class::IncompatibleOrder => "incompatible orders",
            Class::Duplicate => "duplicate",
            Class::InventedValue => "value that nobody wrote",
            Class::Internal => "own reads or writes not seen",
            Class::WriteCycle => "write cycle (G0)",
            Class::CircularFlow => "circular information flow (G1c)",
            Class::TimeTravel => "order against real time",
            Class::LostUpdate => "lost update (P4)",
            Class::ReadSkew => "read skew (G-single)",
            Class::WriteSkew => "write skew (G2-item)",
            Class::SessionOrder => "session order",
            Class::StaleRead => "stale read",
            Class::WrongTotal => "wrong total",
            Class::NegativeBalance => "negative balance",
            Class::WrongBalance => "balances and transfers differ",
        })
    }
}

/// One anomaly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub class: Class,
    /// Why the run's isolation level lets it happen; `None`: it counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excuse: Option<&'static str>,
    /// For a person, one line per step.
    pub text: String,
    /// The operations that show it; in a cycle, in its order.
    pub operations: Vec<OpId>,
}

/// All findings of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Against the promises.
    pub counted: u64,
    /// Allowed by the isolation level.
    pub excused: u64,
    /// The first few, those that count before those that do not, small ones first.
    pub examples: Vec<Finding>,
}

/// Enough to see a pattern; a broken run has thousands.
const EXAMPLES_MAX: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Findings {
    #[serde(skip)]
    rules: Rules,
    pub classes: BTreeMap<Class, Tally>,
    /// The search for cycles gave up before it had looked at everything; what it found stands.
    pub incomplete: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    pub isolation: Isolation,
    pub causal: bool,
    pub single: bool,
}

/// The other facts that an excuse may depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The transaction whose read was overtaken writes nothing.
    ReadOnly,
    Writes,
}

impl Rules {
    /// Why this level allows such an anomaly.
    pub fn excuse(&self, class: Class, reader: Reader) -> Option<&'static str> {
        use Isolation::{ReadCommitted, RepeatableRead, Serializable, Snapshot};
        match (class, self.isolation) {
            (Class::StaleRead, _) if !self.causal => Some("reads do not wait for the cluster (wsrep_sync_wait=0)"),
            (Class::Internal | Class::LostUpdate | Class::ReadSkew | Class::WriteSkew, ReadCommitted) => {
                Some("READ COMMITTED: each statement sees the data of its own time")
            }
            (Class::Internal | Class::LostUpdate | Class::ReadSkew, RepeatableRead) if reader == Reader::Writes => {
                Some("InnoDB's REPEATABLE READ: reads see a snapshot, writes the newest version")
            }
            (Class::WriteSkew, RepeatableRead | Snapshot) => Some("a snapshot allows it"),
            (Class::WriteSkew, Serializable) if !self.single => Some("locks of reads hold on one node only"),
            _ => None,
        }
    }
}

impl Findings {
    pub(crate) fn new(header: &Header) -> Findings {
        let rules = Rules { isolation: header.isolation, causal: header.causal, single: header.single };
        Findings { rules, classes: BTreeMap::new(), incomplete: false }
    }

    pub(crate) fn rules(&self) -> Rules {
        self.rules
    }

    pub(crate) fn add(&mut self, class: Class, reader: Reader, operations: Vec<OpId>, text: String) {
        let excuse = self.rules.excuse(class, reader);
        let tally = self.classes.entry(class).or_default();
        match excuse {
            None => tally.counted += 1,
            Some(_) => tally.excused += 1,
        }
        let weight = |finding: &Finding| (finding.excuse.is_some(), finding.operations.len());
        let finding = Finding { class, excuse, text, operations };
        let place = tally.examples.partition_point(|other| weight(other) <= weight(&finding));
        if place < EXAMPLES_MAX {
            tally.examples.insert(place, finding);
            tally.examples.truncate(EXAMPLES_MAX);
        }
    }

    /// Anomalies that the promises of the run exclude.
    pub fn counted(&self) -> u64 {
        self.classes.values().map(|tally| tally.counted).sum()
    }

    /// All of one class, allowed or not.
    pub fn of(&self, class: Class) -> u64 {
        self.classes.get(&class).map_or(0, |tally| tally.counted + tally.excused)
    }
}
