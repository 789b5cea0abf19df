//! Syncing beside the log: the group thread hands out a ticket, a sync thread runs it, the group thread takes the result back.
//! One sync covers everything written before the ticket was handed out (group commit).

use std::sync::Arc;

use trireme_order::StoreError;
use trireme_types::LogIndex;

use crate::index::Shared;
use crate::names;
use crate::storage::{Storage, StorageFile};

/// Everything written until now, to be made durable. Dropping it loses nothing: the next ticket covers it as well.
#[must_use]
pub struct SyncTicket<S: Storage> {
    pub generation: u64,
    pub upto: LogIndex,
    pub(crate) serial: u64,
    pub(crate) files: Vec<S::File>,
    /// Names were made or removed as well.
    pub(crate) dir: Option<S>,
    pub(crate) shared: Arc<Shared<S::File>>,
}

/// A finished sync: to be given to `WriteSetLog::finish_sync`, and its generation and position to the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Synced {
    pub generation: u64,
    pub upto: LogIndex,
    pub(crate) serial: u64,
}

impl<S: Storage> SyncTicket<S> {
    /// Blocks on the disk.
    ///
    /// **Errors:** a failed sync is final; the log refuses everything from then on.
    pub fn run(self) -> Result<Synced, StoreError> {
        self.shared.check()?;
        let sync = || {
            for file in &self.files {
                file.sync()?;
            }
            self.dir.as_ref().map_or(Ok(()), Storage::sync_dir)
        };
        sync().map_err(|e| self.shared.fail(e))?;
        Ok(Synced { generation: self.generation, upto: self.upto, serial: self.serial })
    }
}

/// Prepares the next segment ahead of its need, so that no append has to fill one with zeros.
#[must_use]
pub struct SpareTicket<S: Storage> {
    pub(crate) storage: S,
    pub(crate) size: u64,
}

/// The result, to be given to `WriteSetLog::finish_spare` in any case.
#[must_use]
pub struct SpareReady<S: Storage> {
    pub(crate) file: Result<S::File, StoreError>,
}

impl<S: Storage> SpareTicket<S> {
    /// Blocks on the disk. A failure is no failure of the log: it has not needed the space yet.
    pub fn run(self) -> SpareReady<S> {
        let make = || {
            let file = self.storage.create(names::SPARE_TMP)?;
            file.fill(self.size)?;
            file.sync()?;
            self.storage.rename(names::SPARE_TMP, names::SPARE)?;
            Ok(file)
        };
        let file: Result<S::File, StoreError> = make();
        if file.is_err() {
            // Gives back what a full disk could not complete; what cannot be removed now goes at the next open.
            let _ = self.storage.remove(names::SPARE_TMP);
        }
        SpareReady { file }
    }
}
