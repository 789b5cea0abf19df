//! Reading from other threads while the log is appended to.

use std::sync::Arc;

use trireme_order::StoreError;
use trireme_types::{Entry, LogIndex};

use crate::index::Shared;
use crate::storage::Storage;

/// Reads entries of an open log from any thread. Holds no lock while it reads from the disk, so it delays no append, trim or
/// truncation; what they took away meanwhile is answered as not held.
pub struct LogReader<S: Storage> {
    shared: Arc<Shared<S::File>>,
}

impl<S: Storage> Clone for LogReader<S> {
    fn clone(&self) -> Self {
        LogReader { shared: self.shared.clone() }
    }
}

impl<S: Storage> LogReader<S> {
    pub(crate) fn new(shared: Arc<Shared<S::File>>) -> LogReader<S> {
        LogReader { shared }
    }

    /// The entry at `index`; `None` when it is not held (any more, or yet).
    ///
    /// **Errors:** the disk returned other bytes than were written, or the log has failed before.
    pub fn get(&self, index: LogIndex) -> Result<Option<Entry>, StoreError> {
        Ok(self.shared.read(index, 0)?.into_iter().next())
    }

    /// Consecutive entries from `from` on: at least one when held, then as many as fit into `max_bytes` of payload. Empty when
    /// `from` is not held.
    pub fn read(&self, from: LogIndex, max_bytes: usize) -> Result<Vec<Entry>, StoreError> {
        self.shared.read(from, max_bytes)
    }

    /// First and last index held now; first is greater than last when the log is empty.
    pub fn held(&self) -> (LogIndex, LogIndex) {
        let held = self.shared.held();
        (held.base.next(), held.last())
    }
}
