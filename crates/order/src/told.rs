//! Things that were said already, so that each is said once, or again when it changes. Nothing is decided by these.

use trireme_types::{Level, NodeId, Seqno, Timestamp, Uuid, Weight};

use crate::Evidence;

#[derive(Default)]
pub(crate) struct Told {
    // --- to all peers, by `Presence`
    /// The branch that the log is on.
    pub branch: Uuid,
    /// For whom this member vouches: they believe that one because of it.
    pub sequencer: Option<NodeId>,
    /// Whether this member has data.
    pub stocked: bool,
    /// Of what its log is evidence.
    pub evidence: Evidence,
    /// Where its log begins.
    pub base: Seqno,
    // --- to all peers, by `LevelLimit`
    /// How far this member lets the group level rise.
    pub level_limit: Option<Level>,
    // --- to an operator, by a line in the log
    /// The members that this one waits for.
    pub waits_for: Option<Vec<NodeId>>,
    /// The member whose data are ahead of all logs, and how far they reach.
    pub ahead: Option<(NodeId, Seqno)>,
    /// How far the data reach that are of no use for this log.
    pub useless: Option<Seqno>,
    /// Those that wait to begin a cluster (`pc.bootstrap_expect`).
    pub founders: Vec<NodeId>,
    /// The member whose lower weight waits for voters that are away, and that weight.
    pub weight_waits: Option<(NodeId, Weight)>,
    /// The member whose lower weight would leave nobody to decide, and that weight.
    pub weight_refused: Option<(NodeId, Weight)>,
    /// The branch of another primary component that runs.
    pub met: Uuid,
    /// Lines about peers that nobody named.
    pub strangers: OfStrangers,
}

/// Lines about strangers.
#[derive(Default)]
pub(crate) struct OfStrangers {
    pub since: Timestamp,
    /// Since then, those that were left out included.
    pub lines: u32,
}
