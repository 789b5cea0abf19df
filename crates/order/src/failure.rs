//! Why a member has failed, or could not begin.

use trireme_types::{DecodeError, Level, Levels, LogIndex};

use crate::StoreError;

/// The phase is [`Failed`](crate::Phase::Failed) for this reason, and stays so: the driver ends this incarnation of the member.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// The log did not carry out an operation. Its disk may work again later.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another build has to be installed. Log and data are as they were.
    #[error(
        "the write-set log of this node is at group level {level}, and this version of Trireme supports {supported}. A level is never \
         lowered: install a version that supports level {level}. The data and the log are as they were"
    )]
    LevelUnsupported { level: Level, supported: Levels },
    /// An entry that is known to be committed is never cut off. Another build can read it, perhaps.
    #[error("log entry {index} is committed, and this version cannot read it: {error}")]
    Unreadable { index: LogIndex, error: DecodeError },
    /// The log contradicts what it says of its end.
    #[error("the log ends before its last entry {last}")]
    EndsEarly { last: LogIndex },
    #[error("log entry {index} does not follow its predecessor")]
    DoesNotFollow { index: LogIndex },
    #[error("committed entry {index} is not in the log")]
    Missing { index: LogIndex },
}

/// Why a history was not begun, or not gone on with.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BootstrapError {
    /// To go on with this log takes a fork, and it has as many as a reader accepts. Nothing was changed.
    #[error("this history has been forced too often to be forced again: bootstrap a new one")]
    ForkedTooOften,
    #[error(transparent)]
    Failed(#[from] Failure),
    /// It failed before, and has said why.
    #[error("this node has failed before, for the reason that it gave then")]
    FailedBefore,
}

impl From<StoreError> for BootstrapError {
    fn from(error: StoreError) -> BootstrapError {
        BootstrapError::Failed(error.into())
    }
}

/// Why a member does not go on with a log at an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unread {
    #[error("does not follow its predecessor")]
    DoesNotFollow,
    #[error("can be read by no member: {0}")]
    Undecodable(#[from] DecodeError),
}
