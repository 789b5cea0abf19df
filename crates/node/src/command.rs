//! The questions and orders of other threads to the group thread, and its answers.

use std::sync::Arc;

use bytes::Bytes;
use trireme_certification::Encoded;
use trireme_order::{Config, StoreError};
use trireme_replicator::NoDonor;
use trireme_replicator::message::AppMessage;
use trireme_replicator::retention::{EngineLog, Look};
use trireme_transport::{AdmitToken, Isolation, TlsContext, Waker};
use trireme_types::{Durability, Seqno, Weight};
use trireme_wslog::{DirStorage, InClearText, LogKeys, SpareReady, Synced};

use crate::mailbox::{Letter, Mailbox, Wake};
use crate::picture::Picture;
use crate::slot::Slot;
use crate::trx::Trx;

/// The way to the group thread. Bounded by what the server's threads can have under way: each has at most one command at a time.
pub type CommandQueue = Mailbox<Command, Waker>;

impl Wake for Waker {
    fn wake(&self) {
        Waker::wake(self);
    }
}

/// Why new keys of the log are not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeysRefused {
    #[error(transparent)]
    InClearText(#[from] InClearText),
    #[error("not connected to a group: the next start reads the file")]
    NotConnected,
}

/// The end of a proposal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing was sent, or what was sent will certainly never be ordered.
    NotSent,
    /// Given up; it may still be ordered, and is then closed by an applier (rule 22).
    Abandoned,
    /// `body`: as ordered, kept for a replay.
    Ordered { seqno: Seqno, ok: bool, depends_on: Seqno, body: Bytes },
}

/// The questions and orders of other threads to the group thread.
pub enum Command {
    /// `patient`: waits through a loss of the majority however long it lasts. There is no truthful answer for a statement in
    /// total-order isolation whose order is not known (rule 22).
    /// `trx`: whose it is, if it can be aborted while it waits to be sent.
    Propose {
        body: Encoded,
        patient: bool,
        trx: Option<Arc<Trx>>,
        slot: Arc<Slot<Outcome>>,
    },
    /// A transaction that may still wait to be sent was aborted: do not send it.
    Recall,
    /// The backlog has fallen to what flow control waits for.
    BacklogSank,
    /// Options of flow control have changed.
    FlowOptions,
    /// The rollback of a streaming transaction: ordered sooner or later, an applier closes its seqno.
    ProposeUnowned {
        body: Bytes,
    },
    /// The slot, if any, is filled when the message has been delivered here (true), or with false: it could not be sent, will never be
    /// ordered, or was given up (`replicator::proposals`). Without one the message is sent again until it is ordered.
    App {
        message: AppMessage,
        slot: Option<Arc<Slot<bool>>>,
    },
    /// A causal read: the position to wait for.
    Read {
        slot: Arc<Slot<Option<Seqno>>>,
    },
    Synced(Result<Synced, StoreError>),
    SpareReady(SpareReady<DirStorage>),
    /// The answer of the storage engine.
    EngineSeen {
        look: Look,
        log: EngineLog,
    },
    /// The certification index is back from an errand.
    IndexBack,
    /// The server's script wants this full copy.
    StateRequest {
        request: Vec<u8>,
    },
    /// An arbitrator wants a server to carry out this request; the answer names it.
    AskDonor {
        request: Vec<u8>,
        slot: Arc<Slot<Result<String, NoDonor>>>,
    },
    /// The full copy is here (or failed, `None`).
    StateReceived {
        position: Option<Seqno>,
    },
    ForcePrimary,
    Weight {
        weight: Weight,
        slot: Arc<Slot<bool>>,
    },
    Durability(Durability),
    /// The picture that the extended status shows.
    Describe {
        slot: Arc<Slot<Option<Picture>>>,
    },
    Configure(Box<dyn FnOnce(&mut Config) + Send>),
    Isolate(Isolation),
    /// Certificates for connections made from now on.
    Tls(TlsContext),
    /// For what is written to the log from now on.
    LogKeys {
        keys: LogKeys,
        slot: Arc<Slot<Result<(), KeysRefused>>>,
    },
    Admit {
        token: AdmitToken,
        allowed: bool,
    },
    /// Leave at once, drop what is not applied yet. `corrupt`: this node's data are not the group's any more.
    GiveUp {
        reason: String,
        corrupt: bool,
    },
    /// Leave in order and end.
    Leave,
}

impl Letter for Command {
    /// Answers a command that nobody will carry out.
    fn refuse(self) {
        match self {
            Command::Propose { slot, .. } => slot.fill(Outcome::NotSent),
            Command::App { slot: Some(slot), .. } => slot.fill(false),
            Command::Read { slot } => slot.fill(None),
            Command::Weight { slot, .. } => slot.fill(false),
            Command::Describe { slot } => slot.fill(None),
            Command::AskDonor { slot, .. } => slot.fill(Err(NoDonor::NotConnected)),
            Command::LogKeys { slot, .. } => slot.fill(Err(KeysRefused::NotConnected)),
            Command::App { slot: None, .. }
            | Command::ProposeUnowned { .. }
            | Command::Recall
            | Command::BacklogSank
            | Command::FlowOptions
            | Command::Synced(_)
            | Command::SpareReady(_)
            | Command::EngineSeen { .. }
            | Command::IndexBack
            | Command::StateRequest { .. }
            | Command::StateReceived { .. }
            | Command::ForcePrimary
            | Command::Durability(_)
            | Command::Configure(_)
            | Command::Isolate(_)
            | Command::Tls(_)
            | Command::Admit { .. }
            | Command::GiveUp { .. }
            | Command::Leave => {}
        }
    }
}
