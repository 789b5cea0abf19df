//! The queue's items: what the server is to be told, one thing after the other.

use bytes::Bytes;
use trireme_replicator::position::Word;
use trireme_types::{LogIndex, NodeId, Seqno};

use crate::ServerView;

/// A write set to be applied, or a dummy that only closes its seqno.
#[derive(Clone, Debug)]
pub struct ApplyItem {
    pub seqno: Seqno,
    pub index: LogIndex,
    pub depends_on: Seqno,
    /// It passed certification; else it changes nothing.
    pub ok: bool,
    /// The whole body; `None` when it is to be read from the log, to keep memory bounded.
    pub body: Option<Bytes>,
}

#[derive(Clone, Debug)]
pub enum Item {
    Connected(ServerView),
    /// With a seqno: an ordered view, which closes that seqno.
    View {
        view: ServerView,
        closes: Option<Seqno>,
    },
    /// The engine, which runs from here on, has to be at this position before anything behind it is handed out.
    Compare {
        position: Seqno,
        word: Word,
    },
    /// `data`: a full copy is needed, not only what a script brings beside it.
    SstRequest {
        data: bool,
    },
    Apply(ApplyItem),
    Donate {
        joiner: NodeId,
        request: Vec<u8>,
        /// Where the joiner's own data are: then no copy is wanted.
        position: Option<Seqno>,
        at: Seqno,
    },
    /// This node is synced from `at` on.
    Synced {
        at: Seqno,
    },
    /// The last thing the server hears: every `recv` returns. `last`: the last seqno that this connection closes.
    Final {
        view: ServerView,
        last: Seqno,
    },
}

impl Item {
    /// The seqno that this item closes.
    pub fn seqno(&self) -> Option<Seqno> {
        match self {
            Item::View { closes, .. } => *closes,
            Item::Apply(item) => Some(item.seqno),
            Item::Connected(_)
            | Item::Compare { .. }
            | Item::SstRequest { .. }
            | Item::Donate { .. }
            | Item::Synced { .. }
            | Item::Final { .. } => None,
        }
    }

    pub fn is_write_set(&self) -> bool {
        matches!(self, Item::Apply(_))
    }

    /// A name for tests that let its handling panic.
    pub fn place(&self) -> &'static str {
        match self {
            Item::Connected(_) => "item-connected",
            Item::View { .. } => "item-view",
            Item::Compare { .. } => "item-compare",
            Item::SstRequest { .. } => "item-sst-request",
            Item::Apply(_) => "item-apply",
            Item::Donate { .. } => "item-donate",
            Item::Synced { .. } => "item-synced",
            Item::Final { .. } => "item-final",
        }
    }

    /// Everything before it is finished when it is handed out, and nothing after it begins before it is finished
    /// (contract 3.10).
    pub fn alone(&self) -> bool {
        match self {
            Item::Connected(_)
            | Item::View { .. }
            | Item::Compare { .. }
            | Item::SstRequest { .. }
            | Item::Donate { .. }
            | Item::Final { .. } => true,
            Item::Apply(_) | Item::Synced { .. } => false,
        }
    }
}
